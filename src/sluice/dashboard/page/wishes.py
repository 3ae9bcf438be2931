"""What people ask for on the page, as actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec.structs import replace

from sluice.model.codec import DecodeError, decode
from sluice.model.errors import FlowError
from sluice.verbs import Action
from sluice.verbs.freeze import Freeze
from sluice.verbs.move import Move
from sluice.verbs.scale import Scale
from sluice.verbs.share import Release, Share
from sluice.verbs.split import Merge, Split

REASON = "asked for on the page"
_OFFERED = Move | Split | Merge | Share | Release | Freeze | Scale


def read_action(headers: Mapping[str, str], body: bytes) -> Action:
    """The action of a request that the page itself has sent; other pages in the same browser are refused.

    >>> own = {"host": "db3:80", "origin": "http://db3:80", "content-type": "application/json"}
    >>> read_action(own, b'{"type": "Move", "unit": 3, "site": 1, "reason": ""}')
    Move(unit=3, site=1, reason='asked for on the page')
    """
    origin = headers.get("origin", "")
    if urlsplit(origin).netloc != headers.get("host") or not headers.get("content-type", "").startswith(
        "application/json"
    ):
        raise FlowError("actions are asked for from the page itself")
    try:
        action = decode(body, cast(Any, _OFFERED))
    except (DecodeError, FlowError) as problem:
        raise FlowError(f"this is no action that can be asked for: {problem}") from problem
    return cast(Action, replace(action, reason=REASON))
