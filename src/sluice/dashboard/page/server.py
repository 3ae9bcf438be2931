"""The page's server: static files, a stream of news, and an answer for each view, all from the journal.

Looking at the journal is shared by all browsers, and nobody looks when no browser is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sluice.dashboard.page.access import Access
from sluice.dashboard.page.driver import Driver
from sluice.dashboard.page.files import STATIC
from sluice.dashboard.page.history import History
from sluice.dashboard.page.news import KEEP_ALIVE, NewsFeed
from sluice.dashboard.page.views import ADVICE_VIEW, EPOCH_VIEWS, NEWEST_VIEWS
from sluice.dashboard.page.wishes import read_action
from sluice.model.codec import encode
from sluice.model.errors import FlowError, SluiceError

_SILENCE = 15.0
"""Seconds after which a browser is told that the server is still there."""
_LONGEST_PAUSE = 0.5
"""Seconds after which a stream sees that the server ends."""
_HEADERS = {
    "content-security-policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class Watcher:
    """Looks at the journal for all browsers, no more often than the interval says."""

    def __init__(self, history: History, interval: float) -> None:
        self.history, self.interval = history, interval
        self._looked_at: float | None = None
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """See what is new, unless somebody has just looked."""
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._looked_at is None or now - self._looked_at >= self.interval:
                await run_in_threadpool(self.history.look)
                self._looked_at = asyncio.get_running_loop().time()


def page_app(
    history: History, access: Access, interval: float, is_over: Callable[[], bool], driver: Driver | None = None
) -> Starlette:
    """The page of a checkpoint, for those who have access; with a driver, which does what is asked for on it. Streams
    of news end when it `is_over`."""
    watcher = Watcher(history, interval)

    async def index(request: Request) -> Response:
        token = request.query_params.get("token")
        if token is None:
            return FileResponse(STATIC / "index.html")
        response = RedirectResponse("/", status_code=303)  # so that the token is in no address bar
        response.set_cookie(access.cookie, token, httponly=True, samesite="strict")
        return response

    async def events(request: Request) -> Response:
        return StreamingResponse(_events(watcher, is_over, driver is not None), media_type="text/event-stream")

    def answer(view: Callable[..., object]) -> Callable[[Request], Awaitable[Response]]:
        """A view's value as JSON, made in a thread: records of many units take a while."""

        async def respond(request: Request) -> Response:
            await watcher.refresh()
            value = await run_in_threadpool(view, history, *request.path_params.values())
            if isinstance(value, bytes):
                return Response(value, media_type="application/octet-stream")
            return Response(encode(value), media_type="application/json")

        return respond

    async def metrics(request: Request) -> Response:
        try:
            from sluice.dashboard.metrics import scrape_app
        except ImportError:
            return PlainTextResponse("metrics need the package prometheus-client\n", status_code=501)
        return await run_in_threadpool(_answer_of, scrape_app(history.journal), request)

    async def requests(request: Request) -> Response:
        if driver is None:
            return PlainTextResponse("this page only shows: it was started without control\n", status_code=403)
        try:
            action = read_action(request.headers, await request.body())
        except FlowError as refused:
            return PlainTextResponse(f"{refused}\n", status_code=400)
        answer = await run_in_threadpool(driver.ask, action)
        return Response(encode(answer), media_type="application/json")

    return Starlette(
        routes=[
            Route("/", index),
            Route("/events", events),
            Route("/metrics", metrics),
            Route("/api/requests", requests, methods=["POST"]),
            *(Route(f"{path}/{{epoch:int}}", answer(view)) for path, view in EPOCH_VIEWS.items()),
            *(Route(path, answer(view)) for path, view in NEWEST_VIEWS.items()),
            Route(f"{ADVICE_VIEW}/{{policy}}", answer(History.advice)),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Guard, access=access), Middleware(GZipMiddleware, minimum_size=2048, compresslevel=4)],
        exception_handlers={FlowError: _not_there, SluiceError: _unreadable},
    )


class Guard:
    """Answers nobody but those who have access, and says on each answer what a browser may do with it."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = Request(scope)
        invited = request.url.path == "/" and self._access.admits(request.query_params.get("token", ""))
        refused = None if invited else self._access.refuse(request.headers)
        app: ASGIApp = self._app if refused is None else PlainTextResponse(f"{refused}\n", status_code=403)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *own]}
            await send(message)

        await app(scope, receive, send_with_headers)


async def _events(watcher: Watcher, is_over: Callable[[], bool], control: bool) -> AsyncIterator[bytes]:
    """News as they come, until the browser goes or the server ends."""
    feed, silent = NewsFeed(watcher.history, control), 0.0
    pause = min(watcher.interval, _LONGEST_PAUSE)
    while not is_over():
        await watcher.refresh()
        news = await run_in_threadpool(feed.next)
        if news is not None:
            yield news.event()
        silent = 0.0 if news is not None else silent + pause
        if silent >= _SILENCE:
            silent = 0.0
            yield KEEP_ALIVE
        await asyncio.sleep(pause)


def _answer_of(app: Callable[..., Iterable[bytes]], request: Request) -> Response:
    """What a WSGI application says to a request."""
    environ = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
    environ |= {"REQUEST_METHOD": "GET", "PATH_INFO": request.url.path, "QUERY_STRING": request.url.query}
    begun: list[tuple[str, list[tuple[str, str]]]] = []
    body = b"".join(app(environ, lambda status, headers: begun.append((status, headers))))
    status, headers = begun[-1]
    return Response(body, int(status.split()[0]), dict(headers))


async def _not_there(request: Request, problem: Exception) -> Response:
    return PlainTextResponse(f"{problem}\n", status_code=404)


async def _unreadable(request: Request, problem: Exception) -> Response:
    return PlainTextResponse(f"{problem}\n", status_code=503)
