"""Where the time of a task goes: seconds by phase, each second in one of them."""

from __future__ import annotations

from contextlib import AbstractContextManager

from sluice.model.clock import Clock


class Stopwatch:
    """Measures phases. While one runs inside another, the time is that of the inner one alone.

    >>> class Ticking:
    ...     now = 0.0
    ...     def monotonic(self): return self.now
    >>> clock = Ticking()
    >>> stopwatch = Stopwatch(clock)
    >>> with stopwatch.measure("kernel"):
    ...     clock.now += 1
    ...     with stopwatch.measure("open"):
    ...         clock.now += 5
    ...     clock.now += 2
    >>> stopwatch.seconds
    {'kernel': 3.0, 'open': 5.0}
    """

    def __init__(self, clock: Clock) -> None:
        self.seconds: dict[str, float] = {}
        self._clock = clock
        self._phases: list[str] = []
        self._since = 0.0

    def measure(self, phase: str) -> AbstractContextManager[None]:
        """The time inside the `with` is this phase's, except what is measured as another one within."""
        return _Phase(self, phase)

    def begin(self, phase: str) -> None:
        """From now on the time is this phase's."""
        self._book()
        self._phases.append(phase)
        self.seconds.setdefault(phase, 0.0)

    def end(self) -> None:
        """The time is again that of the phase around the one that began last."""
        self._book()
        self._phases.pop()

    def _book(self) -> None:
        """Give the time since the last look to the innermost phase."""
        now = self._clock.monotonic()
        if self._phases:
            self.seconds[self._phases[-1]] += now - self._since
        self._since = now


class _Phase(AbstractContextManager[None]):
    """A phase that is measured: many are, of a few microseconds each, and a generator would take as long as they."""

    __slots__ = ("_phase", "_stopwatch")

    def __init__(self, stopwatch: Stopwatch, phase: str) -> None:
        self._stopwatch, self._phase = stopwatch, phase

    def __enter__(self) -> None:
        self._stopwatch.begin(self._phase)

    def __exit__(self, *failure: object) -> None:
        self._stopwatch.end()
