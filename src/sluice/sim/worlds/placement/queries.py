"""Random queries, and the pieces that they are cut into, as arrays for the compiled core."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sluice.policies.planning.query_pieces import PlanOperator, StreamLeaf, cut_into_pieces, output_rate
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
    deck = _Deck(scenario, rng)
    cost: list[float] = []
    selectivity: list[float] = []
    rows: list[tuple[int, int, int, int, int, int]] = []
    first = [0]
    for number in range(scenario.queries):
        query = _draw_query(scenario, rng, deck)
        pieces = cut_into_pieces(query.plan)
        position: dict[int, tuple[int, int]] = {}
        """Of each operator, the row of its piece and its own."""
        begins = []
        for piece in pieces:
            single = [[operator] for operator in piece.operators]
            groups = single if scenario.by_operator and single else [piece.operators]
            begins.append(len(first) - 1)
            for group in groups:
                for operator in group:
                    position[operator] = len(first) - 1, len(cost)
                    cost.append(query.cost[operator])
                    selectivity.append(query.selectivity[operator])
                first.append(len(cost))
        for piece, begin, end in zip(pieces, begins, [*begins[1:], len(first) - 1], strict=True):
            down = (NOWHERE, NOWHERE) if piece.operator is None else position[piece.operator]
            follow = [(row, int(first[row])) for row in range(begin + 1, end)]
            state = [sum(query.state[o] for o in piece.operators if position[o][0] == row) for row in range(begin, end)]
            for row, (target, entry), size in zip(range(begin, end), [*follow, down], state, strict=True):
                rows.append((target, entry, piece.stream if row == begin else NOWHERE, piece.stream, number, size))
    downstream, entry, reads, native, of_query, size = np.array(rows, dtype=np.int64).T.copy()
    readers = np.flatnonzero(reads != NOWHERE)
    of_stream = readers[np.argsort(reads[readers], kind="stable")]
    counts = np.bincount(reads[readers], minlength=scenario.streams)
    pieces = Pieces(
        np.array(cost),
        np.array(selectivity),
        np.array(first, dtype=np.int64),
        downstream,
        entry,
        reads,
        native // scenario.streams_per_site,
        of_query,
        size,
        np.append(0, np.cumsum(counts)).astype(np.int64),
        of_stream,
    )
    if scenario.zipf:
        return pieces
    loads = np.bincount(native, pieces.expected_loads(1 / scenario.arrival), minlength=scenario.streams)
    return pieces._replace(home=_even_homes(loads, scenario.sites)[native])


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
