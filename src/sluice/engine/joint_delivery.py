"""Rows of one origin that many states need: each goes to a site once, and is dealt out there.

A blob has the columns that anybody at the site needs, a column of hashes for each set of keys that they are hashed by,
and in front of them who gets which rows: all of them, those of a bit mask, or a few by their places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from sluice.engine.blobs import Blob, Payload
from sluice.engine.compiled_plan import JointWay, Member
from sluice.engine.filtered_rows import FilteredRows
from sluice.model.ids import InputNumber, SiteKey
from sluice.model.plan.stream import HASH_COLUMN
from sluice.model.routing.routing import Routing
from sluice.operators.row_hashing import RowHashing

_ALL, _MASK, _PLACES = 0, 1, 2
_BITS_A_PLACE = 32


class JointSender:
    """The way of an origin's rows to these members, in one task; `holders` has the site of each unit."""

    def __init__(
        self,
        way: JointWay,
        members: Sequence[Member],
        routing: Routing,
        holders: np.ndarray,
        site_keys: tuple[SiteKey, ...],
    ) -> None:
        self._way, self._members, self._routing, self._site_keys = way, members, routing, site_keys
        self._holders = holders
        self.dropped = self.copied_rows = self.copied_bytes = 0

    def blobs(self, filtered: FilteredRows) -> Iterator[Blob]:
        """One blob for each site that gets any of the rows."""
        chosen = {}
        for place, member in enumerate(self._members):
            selection = filtered.after(member.way.path, member.way.whose)
            if selection is not None:
                chosen[place] = selection.places
        if not chosen:
            return
        rows, chosen = _narrow(filtered.rows, chosen)
        hashes = self._hash(rows, chosen)
        at_sites: dict[int, list[tuple[Member, np.ndarray]]] = {}
        for place, places in chosen.items():
            for site, own in self._by_site(self._members[place], places, hashes):
                at_sites.setdefault(site, []).append((self._members[place], own))
        for site, dealt in sorted(at_sites.items()):
            yield self._site_keys[site], self._way.number, _pack(rows, dealt, hashes, self._way.schema)

    def _hash(self, rows: pa.RecordBatch, chosen: dict[int, np.ndarray]) -> dict[RowHashing, np.ndarray]:
        """The hashes of all rows, by each set of keys that anybody needs. Rows whose key matches nothing are taken out
        of what was chosen."""
        hashes: dict[RowHashing, np.ndarray] = {}
        valid: dict[RowHashing, np.ndarray | None] = {}
        for place in list(chosen):
            hashing = self._members[place].hashing
            if hashing not in hashes:
                hashes[hashing], valid[hashing] = _hash_valid(hashing, rows)
            usable = valid[hashing]
            if usable is not None:
                kept = chosen[place][usable[chosen[place]]]
                self.dropped += len(chosen[place]) - len(kept)
                chosen[place] = kept
        return hashes

    def _by_site(
        self, member: Member, places: np.ndarray, hashes: dict[RowHashing, np.ndarray]
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Where a member's rows go."""
        if not len(places):
            return
        directory = self._routing.directories[member.way.fragment]
        holders = self._holders[slice(*directory.range)]
        if len(holders) == 1 or (holders == holders[0]).all():
            yield int(holders[0]), places
            return
        sites = self._holders[directory.unit_of(hashes[member.hashing][places])]
        order = np.argsort(sites, kind="stable")
        cuts = np.flatnonzero(np.diff(sites[order])) + 1
        for part in np.split(order, cuts):
            yield int(sites[part[0]]), places[part]


def _narrow(rows: pa.RecordBatch, chosen: dict[int, np.ndarray]) -> tuple[pa.RecordBatch, dict[int, np.ndarray]]:
    """The rows that anybody gets, and where those of each are among them."""
    used = np.zeros(rows.num_rows, dtype=bool)
    for places in chosen.values():
        if len(places) == rows.num_rows:
            return rows, chosen
        used[places] = True
    places_now = np.cumsum(used) - 1
    narrowed = {member: places_now[places] for member, places in chosen.items()}
    return rows.filter(pa.array(used)), narrowed


def _hash_valid(hashing: RowHashing, rows: pa.RecordBatch) -> tuple[np.ndarray, np.ndarray | None]:
    """The hashes of rows, and which rows can match anything; None if all can."""
    valid = hashing.find_valid(rows)
    if valid is None:
        return hashing.hash(rows), None
    usable = valid.to_numpy(zero_copy_only=False)
    hashes = np.zeros(rows.num_rows, dtype=np.uint32)
    hashes[usable] = hashing.hash(rows.filter(valid))
    return hashes, usable


def _pack(
    rows: pa.RecordBatch,
    dealt: Sequence[tuple[Member, np.ndarray]],
    hashes: dict[RowHashing, np.ndarray],
    schema: pa.Schema,
) -> Payload:
    """The rows that members get at a site, each once, and who gets which."""
    used = np.zeros(rows.num_rows, dtype=bool)
    for _, places in dealt:
        used[places] = True
    count = int(used.sum())
    places_here = np.cumsum(used) - 1
    columns, hashings = _needed([member for member, _ in dealt])
    sent = rows.select(columns)
    arrays = [pa.array(hashes[hashing]) for hashing in hashings]
    batch = pa.RecordBatch.from_arrays([*arrays, *sent.columns], schema=_batch_schema(columns, len(hashings), schema))
    if count < rows.num_rows:
        batch = batch.filter(pa.array(used))
    entries, bodies = [], []
    for member, places in dealt:
        own = places_here[places]
        if len(own) == count:
            kind, body = _ALL, b""
        elif len(own) * _BITS_A_PLACE > count:
            mask = np.zeros(count, dtype=bool)
            mask[own] = True
            kind, body = _MASK, np.packbits(mask, bitorder="little").tobytes()
        else:
            kind, body = _PLACES, own.astype("<u4").tobytes()
        entries += [member.way.number, kind, len(body)]
        bodies.append(body)
    header = np.array([len(dealt), *entries], dtype="<i4").tobytes()
    return Payload((header, *bodies, batch))


def deal_out(way: JointWay, payload: pa.Buffer) -> Iterator[tuple[InputNumber, pa.RecordBatch]]:
    """The rows that each state gets of a blob, the hashes first."""
    count = int(np.frombuffer(payload, dtype="<i4", count=1)[0])
    entries = np.frombuffer(payload, dtype="<i4", count=3 * count, offset=4).reshape(-1, 3).tolist()
    members = [way.member(number) for number, _, _ in entries]
    columns, hashings = _needed(members)
    at = 4 + 12 * count
    bodies = []
    for _, _, length in entries:
        bodies.append(payload.slice(at, length))
        at += length
    batch = pa.ipc.read_record_batch(payload.slice(at), _batch_schema(columns, len(hashings), way.schema))
    for member, (number, kind, _), body in zip(members, entries, bodies, strict=True):
        own = batch.select([_hash_name(hashings.index(member.hashing)), *member.columns])
        if kind == _MASK:
            own = own.filter(pa.Array.from_buffers(pa.bool_(), batch.num_rows, [None, body]))
        elif kind == _PLACES:
            own = own.take(pa.array(np.frombuffer(body, dtype="<u4")))
        yield InputNumber(number), pa.RecordBatch.from_arrays(own.columns, schema=member.way.schema)


def _needed(members: Sequence[Member]) -> tuple[list[str], list[RowHashing]]:
    """The columns that some members get, and what they are hashed by."""
    columns = dict.fromkeys(column for member in members for column in member.columns)
    return list(columns), list(dict.fromkeys(member.hashing for member in members))


def _batch_schema(columns: Sequence[str], hashings: int, origin: pa.Schema) -> pa.Schema:
    hash_fields = [pa.field(_hash_name(place), pa.uint32()) for place in range(hashings)]
    return pa.schema([*hash_fields, *(origin.field(column) for column in columns)])


def _hash_name(place: int) -> str:
    return f"{HASH_COLUMN}{place}"
