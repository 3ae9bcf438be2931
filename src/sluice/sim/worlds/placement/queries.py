"""Random queries, and the pieces that they are cut into, as arrays for the compiled core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sluice.policies.planning.query_pieces import PlanOperator, QueryPiece, StreamLeaf, cut_into_pieces, output_rate
from sluice.sim.worlds.placement.scenario import PlacementScenario

NOWHERE = -1


class Pieces(NamedTuple):
    """A row a piece, and a row an operator; the operators of a piece follow one another.

    `first` has where a piece's operators begin, and ends with how many there are. Its rows go on to the operator
    `entry` of the piece `downstream`, or are results (`NOWHERE`). `reads` is the stream that enters at its first
    operator, `NOWHERE` if other pieces feed it. `home` is the site at which its stream is native. `of_stream`, from
    `stream_first[s]` to `stream_first[s + 1]`, are the pieces that read stream s.
    """

    cost: np.ndarray
    selectivity: np.ndarray
    first: np.ndarray
    downstream: np.ndarray
    entry: np.ndarray
    reads: np.ndarray
    home: np.ndarray
    query: np.ndarray
    state: np.ndarray
    stream_first: np.ndarray
    of_stream: np.ndarray

    def expected_loads(self, rate: float) -> np.ndarray:
        """The busy seconds a second that each piece makes, if streams have so many tuples a second."""
        loads = np.zeros(len(self.home))
        for piece in np.flatnonzero(self.reads != NOWHERE).tolist():
            tuples, at, operator = rate, piece, int(self.first[piece])
            while at != NOWHERE:
                for number in range(operator, int(self.first[at + 1])):
                    loads[at] += tuples * self.cost[number]
                    tuples *= self.selectivity[number]
                at, operator = int(self.downstream[at]), int(self.entry[at])
        return loads


@dataclass
class _Query:
    """A random query: its plan, and of each operator what it costs, gives and keeps."""

    plan: PlanOperator | StreamLeaf
    cost: list[float]
    selectivity: list[float]
    state: list[int]


def draw_pieces(scenario: PlacementScenario) -> Pieces:
    """The same for the same seed."""
    rng = np.random.default_rng(scenario.seed)
    deck, rows = _Deck(scenario, rng), _Rows(scenario.by_operator)
    for _ in range(scenario.queries):
        rows.add(_draw_query(scenario, rng, deck))
    streams = np.array(rows.streams)
    pieces = rows.pieces(streams // scenario.streams_per_site, scenario.streams)
    if scenario.zipf:
        return pieces
    loads = np.bincount(streams, pieces.expected_loads(1 / scenario.arrival), minlength=scenario.streams)
    return pieces._replace(home=_even_homes(loads, scenario.sites)[streams])


class _Rows:
    """The pieces of all queries so far, row by row; `by_operator`: each operator is a piece of its own."""

    def __init__(self, by_operator: bool) -> None:
        self.by_operator, self.queries = by_operator, 0
        self.cost: list[float] = []
        self.selectivity: list[float] = []
        self.first: list[int] = []
        self.streams: list[int] = []
        """Of each piece the stream that it belongs to, whether or not it reads it."""
        self.others: list[tuple[int, int, int, int, int]] = []
        """Of each piece: downstream, entry, reads, query, state."""

    def add(self, query: _Query) -> None:
        pieces = cut_into_pieces(query.plan)
        groups = [self._groups(piece) for piece in pieces]
        row_of, place_of = {}, {}
        for own in groups:
            for group in own:
                self.first.append(len(self.cost))
                for operator in group:
                    row_of[operator], place_of[operator] = len(self.first) - 1, len(self.cost)
                    self.cost.append(query.cost[operator])
                    self.selectivity.append(query.selectivity[operator])
        for piece, own in zip(pieces, groups, strict=True):
            behind = NOWHERE if piece.operator is None else piece.operator
            for group, after in zip(own, [*(g[0] for g in own[1:]), behind], strict=True):
                down = (NOWHERE, NOWHERE) if after == NOWHERE else (row_of[after], place_of[after])
                reads = piece.stream if group is own[0] else NOWHERE
                self.others.append((*down, reads, self.queries, sum(query.state[operator] for operator in group)))
                self.streams.append(piece.stream)
        self.queries += 1

    def _groups(self, piece: QueryPiece) -> list[list[int]]:
        single = [[operator] for operator in piece.operators]
        return single if self.by_operator and single else [piece.operators]

    def pieces(self, homes: np.ndarray, streams: int) -> Pieces:
        """All as arrays."""
        downstream, entry, reads, query, state = np.array(self.others, dtype=np.int64).T.copy()
        readers = np.flatnonzero(reads != NOWHERE)
        counts = np.bincount(reads[readers], minlength=streams)
        return Pieces(
            np.array(self.cost),
            np.array(self.selectivity),
            np.array([*self.first, len(self.cost)], dtype=np.int64),
            downstream,
            entry,
            reads,
            homes,
            query,
            state,
            np.append(0, np.cumsum(counts)).astype(np.int64),
            readers[np.argsort(reads[readers], kind="stable")],
        )


def _even_homes(loads: np.ndarray, sites: int) -> np.ndarray:
    """A site for each stream, equally many streams a site: the largest first, each to the site with least load.

    >>> _even_homes(np.array([1.0, 2.0, 3.0, 4.0]), sites=2)
    array([0, 1, 1, 0])
    """
    homes, site_loads, room = np.zeros(len(loads), dtype=np.int64), np.zeros(sites), np.full(sites, len(loads) // sites)
    for stream in np.argsort(-loads, kind="stable"):
        site = int(np.argmin(np.where(room > 0, site_loads, np.inf)))
        homes[stream] = site
        site_loads[site] += loads[stream]
        room[site] -= 1
    return homes


class _Deck:
    """Streams for queries: by Zipf, or dealt out so that all have equally many queries."""

    def __init__(self, scenario: PlacementScenario, rng: np.random.Generator) -> None:
        self.streams, self.rng, self.zipf = scenario.streams, rng, scenario.zipf
        weights = 1.0 / np.arange(1, self.streams + 1) ** scenario.zipf
        self.weights = rng.permutation(weights / weights.sum())
        self.cards: list[int] = []

    def draw(self, count: int) -> list[int]:
        """Different streams for one query."""
        if self.zipf:
            return [int(one) for one in self.rng.choice(self.streams, count, replace=False, p=self.weights)]
        hand: list[int] = []
        while len(hand) < count:
            if not set(self.cards) - set(hand):
                self.cards += self.rng.permutation(self.streams).tolist()
            place = next(i for i, card in enumerate(self.cards) if card not in hand)
            hand.append(self.cards.pop(place))
        return hand


def _draw_query(scenario: PlacementScenario, rng: np.random.Generator, deck: _Deck) -> _Query:
    """Streams are joined two by two in a random order. Each filter is on a random edge of the plan: behind a stream or
    behind a join."""
    count = int(rng.integers(scenario.fewest_streams, scenario.most_streams + 1))
    drawn = int(rng.integers(scenario.fewest_operators, scenario.most_operators + 1))
    operators = scenario.operators_per_stream * count or drawn
    filters = rng.multinomial(operators - (count - 1), np.full(2 * count - 1, 1 / (2 * count - 1)))
    query = _Query(StreamLeaf(0, 0.0), [], [], [])

    def add(cost: float, state: int, *inputs: StreamLeaf | PlanOperator) -> PlanOperator:
        query.cost.append(cost)
        query.selectivity.append(float(rng.uniform(scenario.least_selectivity, scenario.most_selectivity)))
        query.state.append(state)
        return PlanOperator(len(query.cost) - 1, query.selectivity[-1], inputs)

    def filtered(plan: StreamLeaf | PlanOperator, edge: int) -> StreamLeaf | PlanOperator:
        for _ in range(int(filters[edge])):
            plan = add(scenario.filter_cost, 0, plan)
        return plan

    roots = [filtered(StreamLeaf(s, 1 / scenario.arrival), edge) for edge, s in enumerate(deck.draw(count))]
    for edge in range(count, 2 * count - 1):
        left, right = (roots.pop(int(rng.integers(len(roots)))) for _ in range(2))
        window = float(rng.uniform(scenario.least_window, scenario.most_window))
        state = window * (output_rate(left) + output_rate(right)) * scenario.tuple_bytes
        join = add(scenario.join_cost, round(state), left, right)
        roots.append(filtered(join, edge))
    query.plan = roots[0]
    return query


def links(pieces: Pieces) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of neighbouring pieces, each pair both ways round."""
    upstream = np.flatnonzero(pieces.downstream != NOWHERE)
    downstream = pieces.downstream[upstream]
    return np.concatenate([upstream, downstream]), np.concatenate([downstream, upstream])


def neighbouring_sites(pieces: Pieces, sites: int) -> list[list[int]]:
    """Of each site the native sites of its pieces' neighbours, by falling neighbouring factor."""
    own, other = links(pieces)
    factors = np.zeros((sites, sites), dtype=np.int64)
    np.add.at(factors, (pieces.home[own], pieces.home[other]), 1)
    np.fill_diagonal(factors, 0)
    order = np.argsort(-factors, axis=1, kind="stable")
    return [[int(site) for site in row if factors[at, site]] for at, row in enumerate(order)]
