"""Units with several holders: which of them a new row reaches, and which of those store it.

Two ways to share, after D-CAPE and after joins on a grid. By token: a row reaches all holders, and the one with the
token of its input stores it, or all in turn, row by row. On a grid: a row of one input goes along a line of holders, a
row of the other along a line across, and each stores what it gets; so each pair of rows meets at one of them. Either
way a result is found once: where the row that came first is stored; of two rows of one epoch, where that of the later
input is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isqrt, prod

from sluice.model.errors import ProtocolError
from sluice.model.ids import InputNumber, Site, Unit


@dataclass(frozen=True)
class SharedUnit:
    """A unit of a join of two, and its holders.

    `inputs` are those of the join, `tokens` has a holder for each of them. With `turns` the holders store in turn. On a
    grid `lines` says for each input how many lines there are: their product is the number of holders, which are in the
    order of the grid, line by line of the first input.
    """

    unit: Unit
    holders: tuple[Site, ...]
    inputs: tuple[InputNumber, ...]
    tokens: tuple[Site, ...]
    turns: bool = False
    grid_shape: tuple[int, ...] = ()

    @classmethod
    def alone(cls, unit: Unit, site: Site, inputs: Sequence[InputNumber]) -> SharedUnit:
        """A unit that one site holds."""
        return cls(unit, (site,), tuple(inputs), (site,) * len(inputs))

    def line_count(self, input_: InputNumber) -> int:
        """How many lines the rows of an input are dealt out to, in turn."""
        if self.grid_shape:
            return self.grid_shape[self.inputs.index(input_)]
        return len(self.holders) if self.turns else 1

    def storing(self, input_: InputNumber, line: int) -> tuple[Site, ...]:
        """The holders that store a line's rows of an input.

        >>> grid = SharedUnit(0, (0, 1, 2, 3, 4, 5), (0, 1), (0, 0), grid_shape=(2, 3))
        >>> grid.storing(0, 1), grid.storing(1, 2)
        ((3, 4, 5), (2, 5))
        """
        place = self.inputs.index(input_)
        if self.grid_shape:
            return tuple(site for at, site in enumerate(self.holders) if self._line_of(place, at) == line)
        return (self.holders[line],) if self.turns else (self.tokens[place],)

    def stores(self, input_: InputNumber) -> tuple[Site, ...]:
        """All that store rows of an input, whichever the line."""
        return tuple(site for line in range(self.line_count(input_)) for site in self.storing(input_, line))

    def probing(self, input_: InputNumber, line: int) -> tuple[Site, ...]:
        """The holders that a line's rows reach without being stored there: they meet what is there."""
        storing = self.storing(input_, line)
        return () if self.grid_shape else tuple(site for site in self.holders if site not in storing)

    def copies(self, input_: InputNumber) -> int:
        """How many holders a row of an input reaches."""
        return len(self.holders) // self.line_count(input_) if self.grid_shape else len(self.holders)

    def with_holder(self, site: Site) -> SharedUnit:
        """With one holder more; tokens stay."""
        if site in self.holders:
            raise ProtocolError(f"site {site} holds unit {self.unit} already")
        return self.with_holders((*self.holders, site))

    def without_holder(self, site: Site) -> SharedUnit:
        """Without one; its tokens go to the first of those that stay."""
        if site not in self.holders or len(self.holders) == 1:
            raise ProtocolError(f"site {site} does not share unit {self.unit} and cannot release it")
        return self.with_holders(tuple(holder for holder in self.holders if holder != site))

    def with_token(self, input_: InputNumber, site: Site) -> SharedUnit:
        """With the token of an input at another holder; whoever has it stores all, nobody takes turns."""
        if site not in self.holders or len(self.holders) == 1:
            raise ProtocolError(f"site {site} does not share unit {self.unit} and cannot have a token of it")
        place = self.inputs.index(input_)
        return replace(self, tokens=(*self.tokens[:place], site, *self.tokens[place + 1 :]), turns=False, grid_shape=())

    def taking_turns(self) -> SharedUnit:
        """With holders that store in turn, row by row."""
        return replace(self, turns=True, grid_shape=())

    def on_grid(self, lines: Sequence[int]) -> SharedUnit:
        """With its holders on a grid with so many lines for each input."""
        fits = len(lines) == len(self.inputs) > 1 and prod(lines) == len(self.holders) and min(lines) > 0
        if not fits:
            raise ProtocolError(f"{len(self.holders)} holders of unit {self.unit} cannot be laid out as {tuple(lines)}")
        return replace(self, turns=False, grid_shape=tuple(lines))

    def laid_out_evenly(self) -> SharedUnit:
        """With its holders on the grid for inputs of as many rows; a stream that is joined with itself goes everywhere
        and is stored in turn."""
        return self.on_grid(best_grid(len(self.holders), (1, 1))) if len(self.inputs) == 2 else self.taking_turns()

    def describe(self) -> str:
        """Who holds it and who stores what.

        >>> SharedUnit(3, (0, 1), (0, 1), (0, 1)).describe()
        'unit 3 is shared by sites 0, 1: each row goes to all, tokens are at sites 0, 1'
        """
        if self.grid_shape:
            way = f"on a grid of {' x '.join(map(str, self.grid_shape))}"
        elif self.turns:
            way = "each row goes to all, they store in turn"
        else:
            way = f"each row goes to all, tokens are at sites {', '.join(map(str, self.tokens))}"
        return f"unit {self.unit} is shared by sites {', '.join(map(str, self.holders))}: {way}"

    def with_holders(self, holders: tuple[Site, ...]) -> SharedUnit:
        """With these holders; the first of them gets the tokens of those that are none."""
        tokens = tuple(token if token in holders else holders[0] for token in self.tokens)
        grid_shape = best_grid(len(holders), self.grid_shape) if self.grid_shape else ()
        return replace(self, holders=holders, tokens=tokens, grid_shape=grid_shape)

    def _line_of(self, place: int, at: int) -> int:
        """The line of an input, given by its place, on which a holder stands."""
        return at // prod(self.grid_shape[place + 1 :]) % self.grid_shape[place]


def best_grid(holders: int, rows: Sequence[float]) -> tuple[int, ...]:
    """The grid of so many holders on which the fewest copies of rows are sent, given how many rows each input has.

    Where one input has few rows, those go everywhere and the others to one holder each.

    >>> best_grid(8, (100, 100)), best_grid(8, (1000, 1)), best_grid(9, (5, 5))
    ((4, 2), (8, 1), (3, 3))
    """
    divisors = [number for number in range(1, isqrt(holders) + 1) if holders % number == 0]
    first = sorted({*divisors, *(holders // number for number in divisors)}, reverse=True)
    return min(((lines, holders // lines) for lines in first), key=lambda lines: copied_rows(lines, rows))


def copied_rows(lines: Sequence[int], rows: Sequence[float]) -> float:
    """How many rows the holders of a grid get, all together, given how many each input has.

    >>> copied_rows((4, 2), (100, 100))
    600.0
    """
    holders = prod(lines)
    return float(sum(count * holders / line for count, line in zip(rows, lines, strict=True)))
