"""What a window join is, as a value: its streams, keys, time bounds and condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sluice.model.durations import LONGEST, in_words
from sluice.model.epoch.times import ENDED, Times
from sluice.model.errors import EvaluationError
from sluice.model.plan.inequalities import Inequality, Narrowing, Ordering, orderings_of
from sluice.model.plan.join_kind import JoinKind
from sluice.model.plan.stream import LATEST, TIME_COLUMN, Expression, Input, Stream, columns_of


@dataclass(frozen=True)
class Leg:
    """One side of the join. Two legs may share an input (a self-join).

    `until` is a column with the latest event time that a partner of the row may have. One of two legs may have it, in a
    join that is inner and has a key; it has an input of its own, whose state goes by that time.
    """

    name: str
    input: int
    until: str | None = None


@dataclass(frozen=True)
class JoinSpec:
    """An m-way window join.

    `reach[i][j]` is how much later than leg i's row leg j's row may be, in microseconds; `LONGEST` is without a bound.
    Without keys it is a theta join: of two legs, with a condition, of which `narrowing` is what can be searched by.
    A join of another kind than inner is of two legs.
    """

    streams: tuple[Stream, ...]
    inputs: tuple[Input, ...]
    legs: tuple[Leg, ...]
    key_types: tuple[pa.DataType, ...]
    reach: tuple[tuple[int, ...], ...]
    where: Expression | None = field(default=None)
    timed: bool = False
    """Whether results carry their event time, the greatest of their rows', in a hidden column."""
    narrowing: Narrowing = field(default_factory=Narrowing)
    kind: JoinKind = JoinKind.INNER

    @property
    def inequalities(self) -> tuple[Inequality, ...]:
        return self.narrowing.inequalities

    @property
    def is_inner(self) -> bool:
        return self.kind is JoinKind.INNER

    @property
    def is_theta(self) -> bool:
        """Whether no key says which rows can match: all of them are in one unit."""
        return not self.key_types

    def orderings(self, input_: int) -> tuple[Ordering, ...]:
        """By which values rows of an input are looked for."""
        legs = [number for number, leg in enumerate(self.legs) if leg.input == input_]
        return tuple(dict.fromkeys(o for leg in legs for o in orderings_of(self.inequalities, leg)))

    def columns_read(self, input_: int) -> tuple[str, ...]:
        """All that there are."""
        return tuple(self.streams[self.inputs[input_].stream].schema.names)

    @property
    def output_keys(self) -> tuple[tuple[str, ...], ...]:
        if self.is_theta or self.kind is JoinKind.FULL:  # of a full join either side may be null
            return ()
        legs = self.legs if self.is_inner else [self.legs[leg] for leg in self.kind.kept_legs]
        return tuple(tuple(f"{leg.name}_{key}" for key in self.inputs[leg.input].keys) for leg in legs)

    @property
    def event_time(self) -> str:
        return TIME_COLUMN

    @property
    def delay(self) -> int | None:
        """How far behind its newest row a result's event time may lie. A row that appears by itself has its own."""
        delays = [s.delay for s in self.streams]
        waiting = max((self.reach[leg][1 - leg] for leg in self.kind.kept_legs), default=0)
        return None if None in delays or waiting >= LONGEST else waiting + max(d for d in delays if d is not None)

    def state_structure(self, input_: int) -> object:
        """Rows as they are, in the order of their keys and times, and of values where they are looked for by these."""
        own, stream = self.inputs[input_], self.streams[self.inputs[input_].stream]
        hashed = [(key, str(kind)) for key, kind in zip(own.keys, self.key_types, strict=True)]
        orderings = [(o.expression, o.nan_is_least) for o in self.orderings(input_)]
        ordered = [(by.text, by.columns, str(by.type), least) for by, least in orderings]
        rows: tuple[object, ...] = "rows", columns_of(stream.schema), hashed, ordered
        if self.until_of(input_) is not None:
            rows = (*rows, "until", self.until_of(input_))
        return rows if self.is_inner else (*rows, "judged" if self.is_judged(input_) else "partners")

    def until_of(self, input_: int) -> str | None:
        """The column that says how long a row of an input is needed, None if its event time does."""
        return next((leg.until for leg in self.legs if leg.input == input_), None)

    @property
    def until_leg(self) -> int | None:
        """The leg whose rows say how long they are needed."""
        return next((number for number, leg in enumerate(self.legs) if leg.until is not None), None)

    @property
    def closing_time(self) -> str | None:
        """The column of results with the time until which one of their rows has partners, if no result has a later
        event time: a row that says so never comes after its partner."""
        leg = self.until_leg
        if leg is None or self.reach[1 - leg][leg] > 0:
            return None
        return f"{self.legs[leg].name}_{self.legs[leg].until}"

    def stream_of(self, leg: int) -> Stream:
        return self.streams[self.inputs[self.legs[leg].input].stream]

    def output_schema(self) -> pa.Schema:
        """Every column of every leg that is shown, named `<leg>_<column>`."""
        columns = [
            pa.field(f"{self.legs[i].name}_{column.name}", column.type)
            for i in self.shown_legs
            for column in self.stream_of(i).shown
        ]
        first = self.stream_of(0)
        hidden = [pa.field(TIME_COLUMN, first.schema.field(first.event_time).type)] if self.timed else []
        return pa.schema([*hidden, *columns])

    @property
    def shown_legs(self) -> tuple[int, ...]:
        """The legs whose columns results have."""
        return tuple(range(len(self.legs))) if self.kind.shows_pairs else self.kind.kept_legs

    def is_judged(self, input_: int) -> bool:
        """Whether rows of an input appear without a partner: those with a null in their key too."""
        return self.kind.waits and any(self.legs[leg].input == input_ for leg in self.kind.kept_legs)

    def settled_before(self, leg: int, watermarks: Times) -> int | None:
        """The event time below which a row of one of two legs meets no new partner any more; None if any row may. Once
        the other leg has ended, none does."""
        watermark = self._watermark_of(1 - leg, watermarks)
        if watermark == ENDED:
            return ENDED
        bound = self.reach[leg][1 - leg]
        return None if watermark is None or bound >= LONGEST else watermark - bound

    def watermark(self, watermarks: Times) -> int | None:
        """Below which event time no result will come any more. Of a pair one row is new, and so one is at least as new;
        a row by itself is new, or may still meet a partner."""
        bounds = [*watermarks, *(self.settled_before(leg, watermarks) for leg in self.kind.kept_legs)]
        return None if None in bounds else min(bound for bound in bounds if bound is not None)

    def _watermark_of(self, leg: int, watermarks: Times) -> int | None:
        return watermarks[self.inputs[self.legs[leg].input].stream]

    def keep_from(self, input_: int, watermarks: Times) -> int | None:
        """The event time below which no row of this input can match a row still to come, nor tell that a row has had a
        partner; None keeps everything.

        A row at time t of leg l can meet a new row of leg j only while t + reach[l][j] reaches j's watermark, or, where
        its state goes by the time until which it has partners, that one does. Where rows of j appear by themselves,
        all their partners are kept until they are settled.
        """
        bounds: list[int | None] = []
        for own, leg in enumerate(self.legs):
            if leg.input != input_:
                continue
            for other in range(len(self.legs)):
                if other == own:
                    continue
                watermark = self._watermark_of(other, watermarks)
                reach = 0 if leg.until is not None else self.reach[own][other]
                bounds.append(None if watermark is None else watermark - reach)
                if other in self.kind.kept_legs:
                    settled = self.settled_before(other, watermarks)
                    bounds.append(None if settled is None else settled - self.reach[own][other])
        return None if None in bounds else min(bound for bound in bounds if bound is not None)

    def reachable_span(self, input_: int, new: Sequence[tuple[int, int] | None]) -> tuple[int, int] | None:
        """The times at which state of this input can match new rows, given each input's new span: from the earliest
        event time to the latest one, or to the latest until which its rows have partners."""
        low, high = [], []
        for own, leg in enumerate(self.legs):
            if leg.input != input_:
                continue
            for other, theirs in enumerate(self.legs):
                span = new[theirs.input]
                if other == own or span is None:
                    continue
                if leg.until is not None:
                    low.append(span[0])
                    high.append(LATEST)
                else:
                    low.append(span[0] - self.reach[own][other])
                    high.append(span[1] + (0 if theirs.until is not None else self.reach[other][own]))
        return (min(low), max(high)) if low else None

    def evaluate_where(self, rows: pa.RecordBatch) -> pa.Array:
        """Its condition for each of these combinations of rows."""
        assert self.where is not None, "a join without a condition has nothing to evaluate"
        try:
            return self.where.evaluate(rows)
        except EvaluationError as error:
            legs = " and ".join(repr(leg.name) for leg in self.legs)
            raise EvaluationError(f"join of {legs}, condition: {error}") from error

    def widest(self) -> int:
        """The longest time bound between any two legs."""
        return max(max(row) for row in self.reach)

    def retention(self) -> int | None:
        """For how long, in event time, state may be needed; None is for good."""
        delays = [s.delay for s in self.streams]
        if None in delays or self.widest() >= LONGEST:
            return None
        longest = self.widest() if self.is_inner else self.reach[0][1] + self.reach[1][0]
        return longest + max(d for d in delays if d is not None)

    def expires(self, input_: int) -> bool:
        """Whether rows of an input are needed for a bounded time only: another may keep its own for good."""
        pairs = [
            (own, other)
            for own, leg in enumerate(self.legs)
            for other in range(len(self.legs))
            if leg.input == input_ and other != own
        ]
        bounded = (self.legs[own].until is not None or self.reach[own][other] < LONGEST for own, other in pairs)
        return all(bounded) and all(self.stream_of(other).delay is not None for _, other in pairs)

    def structure(self) -> dict[str, object]:
        """What tells it from other joins of the same rows."""
        return {**self.identity(), "where": self.where.meaning if self.where else None}

    def identity(self) -> dict[str, object]:
        """What must be the same for a checkpoint to be continued."""
        return {
            "join": [self._identity_of(leg) for leg in self.legs],
            "within": [list(row) for row in self.reach],
            "where": self.where.text if self.where else None,
            **({} if self.is_inner else {"how": self.kind.value}),
            **({"ordered": self._orderings_by_input()} if self.inequalities else {}),
        }

    def _identity_of(self, leg: Leg) -> dict[str, object]:
        own = self.inputs[leg.input]
        until = {} if leg.until is None else {"until": leg.until}
        return {"name": leg.name, "stream": own.stream, "on": list(own.keys), **until}

    def _orderings_by_input(self) -> list[list[str]]:
        """What segments have besides rows."""
        return [[o.expression.text for o in self.orderings(number)] for number in range(len(self.inputs))]

    def describe(self) -> str:
        """The join in a few lines for `explain`."""
        lines = [f"{self.kind.words} {'theta' if self.is_theta else 'window'} join".strip().capitalize()]
        for i, leg in enumerate(self.legs):
            stream, keys = self.stream_of(i), ", ".join(self.inputs[leg.input].keys)
            alias = f" as {leg.name!r}" if leg.name != stream.name else ""
            on = f" on ({keys})" if keys else ""
            lines.append(
                f"  {stream.name!r}{alias}{on}, event time {stream.event_time!r}, delay {in_words(stream.delay)}"
            )
        if len(self.legs) == 2:
            lines.append(f"  {self._describe_pair(*self.legs)}")
        elif self.widest() >= LONGEST:
            lines.append("  however far apart in time")
        else:
            lines.append(f"  all within {in_words(self.widest())} of the newest")
        if self.where:
            lines.append(f"  where {self.where.text}")
        if self.is_theta:
            lines.append(f"  {self._describe_search()}")
        return "\n".join(lines)

    def _describe_search(self) -> str:
        """How candidates are found."""
        ways = [
            f"{self.legs[leg].name}: {ordering.expression.text}"
            for leg in (0, 1)
            for ordering in orderings_of(self.inequalities, leg)
        ]
        if not ways:
            return "candidates are found by event time; nothing in the condition narrows them down"
        return f"candidates are found by event time or by the order of values, whichever are fewer ({'; '.join(ways)})"

    def _describe_pair(self, first: Leg, second: Leg) -> str:
        before, after = self.reach[1][0], self.reach[0][1]
        bounds = [
            f"at most {in_words(most)} {way}" for most, way in ((before, "earlier"), (after, "later")) if most < LONGEST
        ]
        near = f"{second.name!r} {', '.join(bounds)} than {first.name!r}" if bounds else "however far apart in time"
        leg = self.until_leg
        if leg is None:
            return near
        until = f"{self.legs[1 - leg].name!r} not later than {self.legs[leg].name}.{self.legs[leg].until}"
        return f"{near}, {until}" if bounds else until
