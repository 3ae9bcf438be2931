"""Who may look at the page: everybody on this machine, or whoever has its token."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.requests import cookie_parser


@dataclass(frozen=True)
class Access:
    """A page with a `token` answers those who have it. One without is for this machine: it answers only where it is
    asked for by a name of loopback, so that no other page in the same browser reads it by a name of its own."""

    token: str | None = None

    @classmethod
    def for_page(cls, host: str, control: bool = False) -> Access:
        """For a page at an address, from which things can be asked for or not."""
        return cls(None if is_loopback(host) and not control else secrets.token_urlsafe(24))

    @property
    def cookie(self) -> str:
        """The name of the cookie with the token. It is of this page alone: browsers do not tell a machine's ports
        apart, and each may have a page."""
        return f"sluice_{sha256((self.token or '').encode()).hexdigest()[:16]}"

    def refuse(self, headers: Mapping[str, str]) -> str | None:
        """Why a request is not answered, None if it is.

        >>> Access().refuse({"host": "localhost:8080"}), Access("x").refuse({"authorization": "Bearer x"})
        (None, None)
        >>> Access("x").refuse({"cookie": f"{Access('y').cookie}=y"})
        'this page has a token: open the link that was printed when it was started'
        """
        if self.token is None:
            if is_loopback(_name_in(headers.get("host", ""))):
                return None
            return "this page is for the machine that it runs on: open it by the link that was printed"
        cookies = cookie_parser(headers.get("cookie", ""))
        tokens = (cookies.get(self.cookie, ""), headers.get("authorization", "").removeprefix("Bearer "))
        if any(self.admits(token) for token in tokens):
            return None
        return "this page has a token: open the link that was printed when it was started"

    def admits(self, token: str) -> bool:
        """Whether this is the token."""
        return self.token is not None and secrets.compare_digest(token.encode(), self.token.encode())

    def link(self, host: str, port: int) -> str:
        """Where the page is, for whoever may look at it."""
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{port}/" + (f"?token={self.token}" if self.token else "")


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("db3")
    (True, True, False, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _name_in(host: str) -> str:
    """The name or address in a request's Host, nothing if it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
