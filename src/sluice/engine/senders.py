"""Rows on their way to states: after stateless steps they are hashed, routed, and packed as one Arrow blob a site.

Used on both sides of an exchange: by the split for the rows of sources, by sites for the results that a later operator
takes in.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from sluice.engine.blobs import Blob, Payload
from sluice.engine.compiled_plan import Way, compiled
from sluice.engine.filtered_rows import FilteredRows
from sluice.engine.joint_delivery import JointSender
from sluice.kernels.hashing import hash_keys
from sluice.model.ids import InputNumber, SiteKey
from sluice.model.plan.plan import Plan
from sluice.model.routing.routing import Routing
from sluice.model.routing.sharing import SharedUnit


class Sender:
    """The way from an origin to one state, in one task; `holders` has the site of each unit."""

    def __init__(
        self, way: Way, plan: Plan, routing: Routing, holders: np.ndarray, site_keys: tuple[SiteKey, ...]
    ) -> None:
        self.way, self.plan, self.site_keys, self.holders = way, plan, site_keys, holders
        self.directory = routing.directories[way.fragment]
        first, end = self.directory.range
        shared = {routing.index_of(sharing.unit): sharing for sharing in routing.shared}
        self.shared = [sharing for index, sharing in shared.items() if first <= index < end]
        self.shared_units = np.array([index for index in shared if first <= index < end])
        self.turns: dict[tuple[InputNumber, int], int] = {}
        self.dropped = self.copied_rows = self.copied_bytes = 0

    def blobs(self, filtered: FilteredRows) -> Iterator[Blob]:
        way = self.way
        selection = filtered.after(way.path, way.whose)
        if selection is None:
            return
        going = way.operator.prepare_input(way.input, selection.rows.select(way.columns))
        self.dropped += going.dropped
        if going.rows.num_rows == 0:
            return
        packed = pa.RecordBatch.from_arrays([pa.array(going.hashes), *going.rows.columns], schema=way.schema)
        if len(self.site_keys) == 1:
            yield self.site_keys[0], way.number, Payload((packed,))
            return
        units = self.directory.unit_of(going.hashes)
        if self.shared:
            is_shared = np.isin(units, self.shared_units)
            yield from self._by_unit(way.number, units[is_shared], packed.filter(pa.array(is_shared)))
            units, packed = units[~is_shared], packed.filter(pa.array(~is_shared))
        for site_key, part in self._by_site(units, packed):
            yield site_key, way.number, Payload((part,))

    def _by_site(self, units: np.ndarray, packed: pa.RecordBatch) -> Iterator[tuple[SiteKey, pa.RecordBatch]]:
        sites = self.holders[units]
        order = np.argsort(sites, kind="stable")
        cuts = np.searchsorted(sites[order], np.arange(len(self.site_keys) + 1))
        packed = packed.take(pa.array(order))
        for site, (a, b) in enumerate(pairwise(cuts)):
            if b > a:
                yield self.site_keys[site], packed.slice(a, b - a)

    def _by_unit(self, number: InputNumber, units: np.ndarray, packed: pa.RecordBatch) -> Iterator[Blob]:
        """Rows of shared units, unit by unit."""
        order = np.argsort(units, kind="stable")
        units, packed = units[order], packed.take(pa.array(order))
        ends = np.searchsorted(units, self.shared_units, side="right")
        for sharing, a, b in zip(self.shared, np.searchsorted(units, self.shared_units), ends, strict=True):
            if b > a:
                yield from self._send_shared(sharing, number, packed.slice(a, b - a))

    def _send_shared(self, sharing: SharedUnit, number: InputNumber, rows: pa.RecordBatch) -> Iterator[Blob]:
        """Rows of a shared unit to its holders, dealt out to the lines in turn: each to those that store it and to
        those where it only looks up what is there. Where the turns begin is up to the first row, so that an attempt
        again decides the same and tasks with few rows do not all begin with the same holder."""
        lines, whose = sharing.line_count(number), (number, sharing.unit)
        if whose not in self.turns:
            self.turns[whose] = int(hash_keys([rows.column(self.way.event_time).slice(0, 1)])[0])
        lines_of = (self.turns[whose] + np.arange(rows.num_rows)) % lines
        self.turns[whose] += rows.num_rows
        for line in range(lines):
            line_rows = rows if lines == 1 else rows.filter(pa.array(lines_of == line))
            if line_rows.num_rows == 0:
                continue
            payload = Payload((line_rows,))
            storing, probing = sharing.storing(number, line), sharing.probing(number, line)
            yield from ((self.site_keys[site], number, payload) for site in storing)
            yield from ((self.site_keys[site], self.plan.probe_only_number(number), payload) for site in probing)
            copies = len(storing) + len(probing) - 1
            self.copied_rows += copies * line_rows.num_rows
            self.copied_bytes += copies * payload.size


def senders(plan: Plan, origin: int, routing: Routing, site_keys: tuple[SiteKey, ...]) -> list[Sender | JointSender]:
    """The ways of an origin's rows to all states that keep them. Rows of units that several sites hold are dealt out in
    a way of their own, so states of theirs get them by themselves."""
    of_plan, holders = compiled(plan), _holders(routing, site_keys)
    apart = {routing.fragment_of(sharing.unit) for sharing in routing.shared}
    joint: list[Sender | JointSender] = []
    together: set[InputNumber] = set()
    for way in of_plan.joint_ways.get(origin, ()):
        members = [member for member in way.members if member.way.fragment not in apart]
        if len(members) > 1:
            joint.append(JointSender(way, members, routing, holders, site_keys))
            together.update(member.way.number for member in members)
    alone = [way for way in of_plan.ways.get(origin, ()) if way.number not in together]
    return [*joint, *(Sender(way, plan, routing, holders, site_keys) for way in alone)]


def table_sender(plan: Plan, state: InputNumber, routing: Routing, site_keys: tuple[SiteKey, ...]) -> Sender:
    """The way of a table's rows to a state."""
    return Sender(compiled(plan).table_ways[state], plan, routing, _holders(routing, site_keys), site_keys)


def _holders(routing: Routing, site_keys: tuple[SiteKey, ...]) -> np.ndarray:
    """The site of each unit, in a form that is sorted fast."""
    return np.array(routing.holders, dtype=np.uint8 if len(site_keys) <= 256 else np.uint16)
