"""What the page's views ask for, by path: the server answers when it is asked, a report has all answers inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sluice.control.advice import ADVISERS
from sluice.dashboard.page.history import History
from sluice.model.errors import SluiceError

EPOCH_VIEWS: dict[str, Callable[[History, int], object]] = {
    "/api/units": lambda history, epoch: history.snapshot(epoch).units.pack(),
    "/api/sites": lambda history, epoch: history.snapshot(epoch).sites.table(),
    "/api/hot": History.hot_units,
}
"""Views of one epoch, whose number follows the path."""
NEWEST_VIEWS: dict[str, Callable[[History], object]] = {
    "/api/marks": History.marks,
    "/api/plan": History.plan,
    "/api/queries": History.queries,
}
ADVICE_VIEW = "/api/advice"
"""What a policy would do now; its name follows the path."""


@dataclass(frozen=True)
class Refusal:
    """Why there is no answer."""

    refused: str


def answer_all(history: History) -> dict[str, object]:
    """The answer to each path that the page can ask for; none before the first epoch."""
    epochs = [one.point.epoch for one in history.snapshots]
    if not epochs:
        return {}
    views: dict[str, Callable[[], object]] = {
        **{f"{path}/{epoch}": partial(view, history, epoch) for path, view in EPOCH_VIEWS.items() for epoch in epochs},
        **{path: partial(view, history) for path, view in NEWEST_VIEWS.items()},
        **{f"{ADVICE_VIEW}/{name}": partial(history.advice, name) for name in ADVISERS},
    }
    return {path: _answer(view) for path, view in views.items()}


def _answer(view: Callable[[], object]) -> object:
    """A view's value, or why there is none: a record that it needs may be damaged."""
    try:
        return view()
    except SluiceError as problem:
        return Refusal(str(problem))
