"""Carries out merges: runs that are due become one, files that are little used can go, leaving units are set apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sluice.model.epoch.segments import RunRef
from sluice.model.ids import InputNumber, UnitIndex
from sluice.model.routing.unit_ranges import Ranges, intersect, single_unit
from sluice.state.compaction import RunMerge, choose_rewrites, merges_of_epoch
from sluice.state.epoch_runs import EpochRuns, group_by_input
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

    def merge(self, retention: Mapping[InputNumber, Retention], leaving: Sequence[UnitIndex]) -> None:
        """Merge what is due. The runs of a unit that is about to leave are merged with each other alone: its next site
        is to read nothing else."""
        apart = {single_unit(unit) for unit in leaving}
        staying = [run for run in self._runs.state if run.units not in apart]
        leaving_runs = [run for run in self._runs.state if run.units in apart]
        rewrites = choose_rewrites(staying, [*self._runs.waiting, *self._runs.frozen, *leaving_runs])
        new = [run for run in self._runs.new if run.is_active]
        staying_of, leaving_of, rewrites_of, new_of = map(group_by_input, (staying, leaving_runs, rewrites, new))
        for input_ in sorted(staying_of.keys() | leaving_of.keys()):
            rules = retention[input_]
            by_unit: dict[Ranges, list[RunRef]] = {}
            for run in leaving_of.get(input_, ()):
                by_unit.setdefault(run.units, []).append(run)
            brought = sum(run.segment.length for run in new_of.get(input_, ()))
            groups = [staying_of.get(input_, []), *by_unit.values()]
            due = merges_of_epoch(groups, brought, rules.earliest_needed, rules.retention, rules.shrinks)
            merged = {run.segment.id for merge in due for run in merge.runs}
            rewritten = [run for run in rewrites_of.get(input_, ()) if run.segment.id not in merged]
            due += [RunMerge([run], run.segment.hashes) for run in rewritten]
            for merge in due:
                units = merge.runs[0].units
                self._carry_out(merge, input_, rules, units if units in apart else self._holdings.units)

    def set_apart(
        self, units: Sequence[UnitIndex], retention: Mapping[InputNumber, Retention], allowance: float
    ) -> None:
        """Give units that are about to leave segments of their own, so that their next site reads nothing else: as many
        as `allowance` bytes, at least one; the others have to wait."""
        for unit in units:
            if allowance > 0 and intersect(self._holdings.units, single_unit(unit)):
                for input_ in self._holdings.layouts:
                    allowance -= self._set_apart(input_, unit, retention[input_])

    def _carry_out(self, merge: RunMerge, input_: InputNumber, rules: Retention, units: Ranges) -> None:
        """Writes runs as one, or as pieces, of some units."""
        segments = {run.segment.id for run in merge.runs}
        pieces = [part for run in merge.runs for part in self._open_runs.open(run)]
        self._runs.remove(segments)
        self.merged_rows += sum(len(piece) for piece in pieces)
        merged = merge_runs(pieces, rules)
        pieces.clear()
        for segment in segments:
            self._open_runs.close(segment)
            self._tiers.drop(segment)
        if merged is not None:
            level = max(run.segment.level for run in merge.runs) + 1
            new = NewSegment(input_, merged, units, level, merge.hashes)
            self._writer.write_pieces(new, merge.narrower)

    def _set_apart(self, input_: InputNumber, unit: UnitIndex, rules: Retention) -> int:
        """Writes all rows of a unit as one segment, and takes them out of the others; returns its bytes."""
        alone = single_unit(unit)
        new = (run for run in self._runs.new if run.is_active)
        runs = [run for run in (*self._runs.state, *new) if run.segment.input == input_]
        shared = [run for run in runs if intersect(run.units, alone) and run.segment.units != alone]
        pieces = [part for run in shared for part in self._open_runs.open(replace(run, units=alone))]
        if not pieces:
            return 0
        self._runs.take_out({run.segment.id for run in shared}, alone)
        merged = merge_runs(pieces, rules)
        if merged is None:
            return 0
        level = max(run.segment.level for run in shared)
        return self._writer.write_pieces(NewSegment(input_, merged, alone, level))
