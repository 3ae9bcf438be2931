"""The runs of an epoch, opened once each, from whichever tier they are in."""

from __future__ import annotations

from collections.abc import Iterable

from sluice.kernels.probe import Run
from sluice.model.epoch.segments import RunRef
from sluice.state.reading import SegmentReader
from sluice.state.segment import parts
from sluice.state.unit_pages import UnitPages


class OpenRuns:
    """What is open of the state of a site. Segments of units that are paged are not kept open: their memory is short.

    `before` are the runs with which the epoch begins: what is read is all that is held of a segment.
    """

    def __init__(self, before: Iterable[RunRef], reader: SegmentReader, pages: UnitPages) -> None:
        self._before = {run.segment.id: run for run in before}
        self._reader, self._pages = reader, pages
        self._open: dict[str, Run] = {}

    def open(self, run: RunRef) -> list[Run]:
        """The rows of a run, used where they lie."""
        ref = run.segment
        if not run.units:
            return []
        if ref.id not in self._open:
            if self._pages.active and not ref.pending:
                return self._pages.open(run, self._before.get(ref.id, run))
            whole = self._before[ref.id]
            if not whole.rows:  # the units held have none in it
                return []
            self._open[ref.id] = self._reader.read(whole)
        return parts(self._open[ref.id], run.units, self._reader.holdings.directories[ref.input])

    def hold(self, run: RunRef) -> None:
        """Other units are held of a segment than before: it is read anew when it is opened next."""
        self.close(run.segment.id)
        self._before[run.segment.id] = run

    def add(self, segment: str, run: Run) -> None:
        """A new segment, which need not be read."""
        self._open[segment] = run

    def close(self, segment: str) -> None:
        """Let go of a segment: a mapped file would stay in memory as long as it is used."""
        self._open.pop(segment, None)

    def close_all(self) -> None:
        """Let go of everything."""
        self._open.clear()
