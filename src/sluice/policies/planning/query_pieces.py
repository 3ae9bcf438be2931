"""A query plan cut into pieces, one a stream: what placement puts at a site and moves as one.

Section 3.1 of the paper on operator placement has the five steps. Each stream begins a piece. Unary operators join the
piece that they follow. A binary operator joins the piece of the faster of its two inputs, so that the slower one is
what crosses the network. The other input's piece ends there, and the first one goes on behind the operator.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class StreamLeaf:
    """Where a stream enters a plan, with its rows a second."""

    stream: int
    rate: float


@dataclass(frozen=True)
class PlanOperator:
    """An operator of a plan, by its number there, with one input or two. It gives `selectivity` rows for each row."""

    number: int
    selectivity: float
    inputs: tuple[StreamLeaf | PlanOperator, ...]


@dataclass
class QueryPiece:
    """What of a query belongs to a stream: operators in the order in which rows pass them.

    Its rows go on to `operator`, of the piece `downstream`; both are None if they are the query's results.
    """

    stream: int
    operators: list[int] = field(default_factory=list)
    downstream: int | None = None
    operator: int | None = None


def output_rate(plan: StreamLeaf | PlanOperator) -> float:
    """The rows a second that an operator gives."""
    if isinstance(plan, StreamLeaf):
        return plan.rate
    return plan.selectivity * sum(output_rate(one) for one in plan.inputs)


def cut_into_pieces(plan: StreamLeaf | PlanOperator) -> list[QueryPiece]:
    """The pieces of a plan, in the order of its leaves; neighbours are pieces of which one is the other's downstream.

    >>> fast, slow = StreamLeaf(stream=7, rate=100), StreamLeaf(stream=8, rate=10)
    >>> join = PlanOperator(1, 0.5, (slow, PlanOperator(0, 0.5, (fast,))))
    >>> for piece in cut_into_pieces(join): print(piece)
    QueryPiece(stream=8, operators=[], downstream=1, operator=1)
    QueryPiece(stream=7, operators=[0, 1], downstream=None, operator=None)
    """
    pieces: list[QueryPiece] = []
    _cut(plan, pieces)
    return pieces


def _cut(plan: StreamLeaf | PlanOperator, pieces: list[QueryPiece]) -> int:
    """Add the pieces below an operator; the place of the one that it belongs to."""
    if isinstance(plan, StreamLeaf):
        pieces.append(QueryPiece(plan.stream))
        return len(pieces) - 1
    places = [_cut(one, pieces) for one in plan.inputs]
    fastest = max(range(len(places)), key=lambda number: output_rate(plan.inputs[number]))
    for place in places:
        if place != places[fastest]:
            pieces[place].downstream, pieces[place].operator = places[fastest], plan.number
    pieces[places[fastest]].operators.append(plan.number)
    return places[fastest]
