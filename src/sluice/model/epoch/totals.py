"""What all epochs of a checkpoint did together: every record carries it on, so that whoever reads the newest one knows
it, however many epochs there were and whoever drove them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from sluice.model.epoch.decision import Fate, Verb
from sluice.model.epoch.stats import SiteStats, StreamStats


@dataclass(frozen=True)
class ActionCount:
    """How often an action of a verb came to an end of a kind."""

    verb: Verb
    outcome: Fate
    count: int


@dataclass(frozen=True)
class PhaseSeconds:
    """How long epochs spent in a phase."""

    phase: str
    seconds: float


@dataclass(frozen=True)
class Totals:
    """Sums over all epochs. `timed_epochs` are those whose `phases` are in: an epoch's time is known when it is over,
    and the next one's record has it. `busy_seconds` has an entry for each site that there ever was."""

    streams: tuple[StreamStats, ...] = ()
    results: int = 0
    moves: int = 0
    moved_bytes: int = 0
    exchanged_bytes: int = 0
    bytes_between_sites: int = 0
    copied_bytes: int = 0
    fetched_bytes: int = 0
    damaged_files: int = 0
    busy_seconds: tuple[float, ...] = ()
    actions: tuple[ActionCount, ...] = ()
    timed_epochs: int = 0
    phases: tuple[PhaseSeconds, ...] = ()

    def with_streams(self, streams: Iterable[StreamStats]) -> Totals:
        """With the rows and files of one more epoch.

        >>> Totals().with_streams([StreamStats("a", 5, late=1)]).with_streams([StreamStats("a", 2)]).streams[0].rows
        7
        """
        sums = {stream.name: stream for stream in self.streams}
        for new in streams:
            sums[new.name] = _add(sums[new.name], new) if new.name in sums else new
        return replace(self, streams=tuple(sums.values()))

    def with_sites(self, sites: Sequence[SiteStats]) -> Totals:
        """With the work of one more epoch's sites."""
        count = max(len(self.busy_seconds), len(sites))
        busy = [*self.busy_seconds, *[0.0] * (count - len(self.busy_seconds))]
        for site in sites:
            busy[site.site] = round(busy[site.site] + site.busy_seconds, 6)
        return replace(
            self,
            busy_seconds=tuple(busy),
            fetched_bytes=self.fetched_bytes + sum(site.fetched_bytes for site in sites),
            damaged_files=self.damaged_files + sum(site.damaged_files for site in sites),
        )

    def with_actions(self, ended: Iterable[tuple[Verb, Fate]]) -> Totals:
        """With the actions that came to an end in one more epoch."""
        counts = {(one.verb, one.outcome): one.count for one in self.actions}
        for key in ended:
            counts[key] = counts.get(key, 0) + 1
        return replace(self, actions=tuple(ActionCount(*key, count) for key, count in counts.items()))

    def with_phases(self, seconds: Mapping[str, float]) -> Totals:
        """With the time of one more epoch."""
        sums = {one.phase: one.seconds for one in self.phases}
        for phase, spent in seconds.items():
            sums[phase] = round(sums.get(phase, 0.0) + spent, 6)
        phases = tuple(PhaseSeconds(phase, spent) for phase, spent in sums.items())
        return replace(self, timed_epochs=self.timed_epochs + 1, phases=phases)


def _add(sums: StreamStats, new: StreamStats) -> StreamStats:
    counted = [field.name for field in fields(StreamStats) if field.name != "name"]
    return replace(sums, **{name: getattr(sums, name) + getattr(new, name) for name in counted})
