"""Carries out merges: runs that are due become one, files that are little used can go, leaving units are set apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sluice.model.ids import InputNumber, Unit
from sluice.model.state import RunRef
from sluice.model.unit_ranges import intersect, only
from sluice.state import compaction
from sluice.state.compaction import Merge, choose_merges, choose_rewrites
from sluice.state.epoch_runs import EpochRuns
from sluice.state.inputs import Holdings, Retention
from sluice.state.merging import merge_runs
from sluice.state.opening import OpenRuns
from sluice.state.staging import NewSegment, SegmentWriter
from sluice.state.tiers import Tiers


class Rewriter:
    """Writes state anew that lies in too many pieces. It counts the rows that it merges."""

    def __init__(
        self, holdings: Holdings, runs: EpochRuns, open_runs: OpenRuns, writer: SegmentWriter, tiers: Tiers
    ) -> None:
        self._holdings, self._runs, self._open_runs = holdings, runs, open_runs
        self._writer, self._tiers = writer, tiers
        self.merged_rows = 0

    def merge(self, retention: Mapping[InputNumber, Retention], leaving: Sequence[Unit]) -> None:
        """Merge what is due, but no runs of a unit that is about to leave: they may be copied already.

        An input has one merge an epoch, however large, and more as long as they are in proportion to its new rows.
        """
        apart = {only(unit) for unit in leaving}
        staying = [run for run in self._runs.state if run.units not in apart]
        others = [*self._runs.waiting, *self._runs.frozen, *(run for run in self._runs.state if run.units in apart)]
        rewrites = choose_rewrites(staying, others)
        for input_, rules in retention.items():
            runs = [run for run in staying if run.segment.input == input_]
            due = self._choose(input_, runs, rules)
            merged = {run.segment.id for merge in due for run in merge.runs}
            due += [Merge([r], r.segment.hashes) for r in rewrites if r in runs and r.segment.id not in merged]
            for merge in due:
                self._carry_out(merge, input_, rules)

    def set_apart(self, units: Sequence[Unit], retention: Mapping[InputNumber, Retention], allowance: float) -> None:
        """Give units that are about to leave segments of their own, so that their next site reads nothing else: as many
        as `allowance` bytes, at least one; the others have to wait."""
        for unit in units:
            if allowance > 0 and intersect(self._holdings.units, only(unit)):
                for input_ in self._holdings.layouts:
                    allowance -= self._set_apart(input_, unit, retention[input_])

    def _choose(self, input_: InputNumber, runs: Sequence[RunRef], rules: Retention) -> list[Merge]:
        new = sum(run.segment.length for run in self._runs.new if run.segment.input == input_ and run.is_active)
        room = compaction.NEW_SHARE * new
        due: list[Merge] = []
        for merge in choose_merges(runs, rules.keep_from, rules.retention, rules.shrinks):
            due.append(merge)
            room -= round(merge.bytes)
            if room <= 0:
                break
        return due

    def _carry_out(self, merge: Merge, input_: InputNumber, rules: Retention) -> None:
        segments = {run.segment.id for run in merge.runs}
        pieces = [part for run in merge.runs for part in self._open_runs.open(run)]
        self._runs.remove(segments)
        self.merged_rows += sum(len(piece) for piece in pieces)
        merged = merge_runs(pieces, rules.keep_from, rules.compacted)
        pieces.clear()
        for segment in segments:
            self._open_runs.close(segment)
            self._tiers.drop(segment)
        if merged is not None:
            level = max(run.segment.level for run in merge.runs) + 1
            new = NewSegment(input_, merged, self._holdings.units, level, merge.hashes)
            self._writer.write_pieces(new, merge.narrower)

    def _set_apart(self, input_: InputNumber, unit: Unit, rules: Retention) -> int:
        """Writes all rows of a unit as one segment, and takes them out of the others; returns its bytes."""
        alone = only(unit)
        new = (run for run in self._runs.new if run.is_active)
        runs = [run for run in (*self._runs.state, *new) if run.segment.input == input_]
        shared = [run for run in runs if intersect(run.units, alone) and run.segment.units != alone]
        pieces = [part for run in shared for part in self._open_runs.open(replace(run, units=alone))]
        if not pieces:
            return 0
        self._runs.take_out({run.segment.id for run in shared}, alone)
        merged = merge_runs(pieces, rules.keep_from, rules.compacted)
        if merged is None:
            return 0
        level = max(run.segment.level for run in shared)
        return self._writer.write_pieces(NewSegment(input_, merged, alone, level))
