"""Tokens pass while rows are on their way to every holder, and each row is stored once and each pair found once."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sluice.model.errors import ProtocolError
from sluice.sim.worlds.replication.token_passing import PassPhase, StartStoring, StopStoring, TokenPassing

INPUTS = (0, 1)


@dataclass(frozen=True)
class Row:
    input: int
    number: int


@dataclass
class Holder:
    """What a holder knows: its turn at storing, the rows it stored and the pairs it found."""

    link: deque[Row | TokenPassing] = field(default_factory=deque)
    turn: dict[int, tuple[int, int]] = field(default_factory=dict)
    behind: dict[int, int] = field(default_factory=lambda: dict.fromkeys(INPUTS, 0))
    stored: list[Row] = field(default_factory=list)
    pairs: list[tuple[Row, Row]] = field(default_factory=list)

    def take(self, site: int) -> None:
        """The next thing on the link from the split."""
        item = self.link.popleft()
        if isinstance(item, Row):
            self.join_and_store(item)
            return
        self.behind[item.input] = 0
        for instruction in item.reached(site):
            match instruction:
                case StartStoring(input=input_, turn=turn, turns=turns):
                    self.turn[input_] = turn, turns
                case StopStoring(input=input_):
                    del self.turn[input_]

    def join_and_store(self, row: Row) -> None:
        self.pairs += [
            tuple(sorted((row, old), key=lambda r: r.input)) for old in self.stored if old.input != row.input
        ]
        turn, turns = self.turn.get(row.input, (-1, 1))
        if self.behind[row.input] % turns == turn:
            self.stored.append(row)
        self.behind[row.input] += 1


class Cluster(RuleBasedStateMachine):
    """A coordinator, a split and holders. Everything between them is a queue that the rules empty as they like."""

    @initialize(sites=st.integers(2, 4))
    def build(self, sites: int) -> None:
        self.holders = {0: Holder(turn={i: (0, 1) for i in INPUTS})}
        self.spare = list(range(1, sites))
        self.storing = {i: (0,) for i in INPUTS}
        """As the coordinator knows it, which is ahead of the stream."""
        self.orders: deque[TokenPassing | int] = deque()
        self.passing: list[TokenPassing] = []
        self.known = [0]
        self.sent: list[Row] = []

    # --- the coordinator ---

    @precondition(lambda self: self.spare)
    @rule()
    def add_holder(self) -> None:
        self.known.append(self.spare[0])
        self.orders.append(self.spare.pop(0))

    @precondition(lambda self: len(self.known) > 1)
    @rule(data=st.data(), input_=st.sampled_from(INPUTS))
    def pass_token(self, data, input_) -> None:
        possible = [(site,) for site in self.known] + [tuple(self.known)]
        target = data.draw(st.sampled_from([t for t in possible if t != self.storing[input_]]))
        passing = TokenPassing(7, input_, self.known, self.storing[input_], target)
        self.storing[input_] = target
        assert passing.begin()[0].holders == tuple(self.known)
        self.orders.append(passing)
        self.passing.append(passing)

    # --- the split ---

    @precondition(lambda self: self.orders)
    @rule()
    def split_hears(self) -> None:
        order = self.orders.popleft()
        if isinstance(order, int):
            self.holders[order] = Holder()
            return
        order.put()
        for site in order.holders:
            self.holders[site].link.append(order)

    @rule(inputs=st.lists(st.sampled_from(INPUTS), min_size=1, max_size=4))
    def send(self, inputs) -> None:
        for input_ in inputs:
            self.sent.append(Row(input_, len(self.sent)))
            for holder in self.holders.values():
                holder.link.append(self.sent[-1])

    # --- the network ---

    @rule(data=st.data(), count=st.integers(1, 6))
    def deliver(self, data, count) -> None:
        """Some of what is on one link arrives; others wait as long as the rules like."""
        site = data.draw(st.sampled_from(sorted(self.holders)))
        for _ in range(min(count, len(self.holders[site].link))):
            self.holders[site].take(site)

    @invariant()
    def no_row_is_stored_twice(self) -> None:
        stored = [row for holder in self.holders.values() for row in holder.stored]
        assert len(stored) == len(set(stored))

    def teardown(self) -> None:
        if not hasattr(self, "holders"):
            return
        while self.orders:
            self.split_hears()
        for site, holder in self.holders.items():
            while holder.link:
                holder.take(site)
        assert all(passing.phase is PassPhase.PASSED for passing in self.passing)
        assert sorted(r.number for h in self.holders.values() for r in h.stored) == [r.number for r in self.sent]
        found = sorted((a.number, b.number) for h in self.holders.values() for a, b in h.pairs)
        first, second = ([row.number for row in self.sent if row.input == i] for i in INPUTS)
        assert found == sorted(product(first, second))
        for input_, storing in self.storing.items():
            for site, holder in self.holders.items():
                expected = (storing.index(site), len(storing)) if site in storing else None
                assert holder.turn.get(input_) == expected


TestTokensOnTheirWay = Cluster.TestCase
TestTokensOnTheirWay.settings = settings(
    max_examples=3 * settings().max_examples, stateful_step_count=40, deadline=None
)


def test_the_order_in_which_a_command_reaches_holders_does_not_matter():
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
        passing = TokenPassing(3, 0, (0, 1, 2), (0,), (2,))
        passing.begin()
        passing.put()
        answers = {site: passing.reached(site) for site in order}
        assert answers == {0: [StopStoring(3, 0, 0)], 1: [], 2: [StartStoring(3, 0, 2, 0, 1)]}
        assert passing.phase is PassPhase.PASSED


def test_holders_that_begin_to_store_in_turn_get_a_turn_each():
    passing = TokenPassing(3, 0, (0, 1, 2), (1,), (0, 1, 2))
    passing.begin()
    passing.put()
    assert [passing.reached(s)[0].turn for s in (2, 0, 1)] == [2, 0, 1]


def test_two_holders_that_see_both_inputs_in_different_orders_lose_a_pair_or_find_it_twice():
    """Why rows of both inputs have to come in one order: the proposal's split for each input does not see to that."""
    a, b = Row(0, 0), Row(1, 1)
    for orders, times in ((((a, b), (b, a)), 2), (((b, a), (a, b)), 0), (((a, b), (a, b)), 1)):
        one, other = Holder(turn={0: (0, 1)}), Holder(turn={1: (0, 1)})  # a is stored at one, b at the other
        for holder, order in zip((one, other), orders, strict=True):
            for row in order:
                holder.join_and_store(row)
        assert len(one.pairs) + len(other.pairs) == times


WRONG_CALLS = [
    (lambda p: p.put(), "the command in the stream does not fit .* from site 0 to site 1, which is decided"),
    (lambda p: p.reached(0), "the command at site 0 does not fit .*, which is decided"),
    (lambda p: (p.begin(), p.begin()), "begin does not fit .*, which is ordered"),
    (lambda p: (p.begin(), p.reached(0)), "the command at site 0 does not fit .*, which is ordered"),
    (lambda p: (p.begin(), p.put(), p.reached(2)), "the command at site 2 does not fit"),
    (lambda p: (p.begin(), p.put(), p.reached(0), p.reached(0)), "the command at site 0 does not fit"),
]


@pytest.mark.parametrize(("calls", "told"), WRONG_CALLS)
def test_what_comes_out_of_order_is_refused(calls, told):
    with pytest.raises(ProtocolError, match=told):
        calls(TokenPassing(3, 0, (0, 1), (0,), (1,)))


@pytest.mark.parametrize(
    ("storing", "target", "told"),
    [((0,), (0,), "goes nowhere"), ((0,), (5,), "concerns site 5"), ((0,), (), "nowhere")],
)
def test_a_token_that_cannot_pass_is_refused(storing, target, told):
    with pytest.raises(ProtocolError, match=told):
        TokenPassing(3, 0, (0, 1), storing, target)
