"""The results of an epoch: the files they are in, and their place in the list that Spark's readers go by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FILES_A_LIST = 1024
"""Files that are listed again for every list that is put, at most and on average, however many there are."""


@dataclass(frozen=True)
class Part:
    """A file with results of one epoch for one output, written by one site or by one map task. In a partitioned output
    it is shown in the `directory` of its partition."""

    name: str
    rows: int
    bytes: int
    checksum: int
    output: int = 0
    directory: str = ""

    @property
    def place(self) -> str:
        """Where it is shown, seen from the output."""
        return f"{self.directory}/{self.name}" if self.directory else self.name


@dataclass(frozen=True)
class Listing:
    """How far the lists of an output go: the newest one's number, that of the newest that repeats all before it (a
    compact one) and how many lists lie between two such, how many files are listed, and a checksum of it all.

    Spark's readers know a compact list by its number: they take the distance of the two newest ones for the interval,
    and expect one at every multiple of it (less one). So the interval can double where the newest compact list is at
    an even multiple, if the next one leaves numbers out. It does so while there are many files for each list: what is
    repeated stays in proportion to what is new.
    """

    number: int = -1
    compact: int = -1
    interval: int = 10
    files: int = 0
    checksum: int = 0

    def after(self, files: int, checksum: int) -> Listing:
        """With one more list, of some files, that leads to this checksum.

        >>> first = Listing().after(3, 1)
        >>> first.number, first.is_compact
        (9, True)
        >>> first.after(3, 1).number, first.after(3, 1).is_compact
        (10, False)
        >>> last = Listing(number=58, compact=39, interval=20, files=50_000)
        >>> last.after(3, 1).number, last.after(3, 1).interval
        (79, 40)
        """
        total = self.files + files
        if self.number < 0:
            return Listing(self.interval - 1, self.interval - 1, self.interval, total, checksum)
        if self.number < self.compact + self.interval - 1:
            return Listing(self.number + 1, self.compact, self.interval, total, checksum)
        double = 2 * self.interval
        may_double = (self.compact + 1) % double == 0 and double * FILES_A_LIST <= total
        interval = double if may_double else self.interval
        return Listing(self.compact + interval, self.compact + interval, interval, total, checksum)

    @property
    def is_compact(self) -> bool:
        return self.number == self.compact

    @property
    def numbers(self) -> range:
        """The lists that together hold all files."""
        return range(self.compact, self.number + 1) if self.number >= 0 else range(0)


_NOTHING_LISTED = Listing()


@dataclass(frozen=True)
class PackedListings:
    """The listings of all outputs before an epoch and with it, as they are written: those that list something, with the
    number of their output. Of many queries most have a sink that lists nothing."""

    outputs: int = 0
    listed: tuple[tuple[int, Listing, Listing], ...] = ()

    @classmethod
    def of(cls, listings: Sequence[tuple[Listing, Listing]]) -> PackedListings:
        """
        >>> listings = ((Listing(), Listing()), (Listing(), Listing(9, 9, 10, 3, 77)), (Listing(), Listing()))
        >>> packed = PackedListings.of(listings)
        >>> len(packed.listed), packed.unpack() == listings
        (1, True)
        """
        numbered = ((output, before, listing) for output, (before, listing) in enumerate(listings))
        return cls(len(listings), tuple(one for one in numbered if one[1:] != _NOTHING))

    def unpack(self) -> tuple[tuple[Listing, Listing], ...]:
        """A pair for each output."""
        listings = [_NOTHING] * self.outputs
        for output, before, listing in self.listed:
            listings[output] = before, listing
        return tuple(listings)


_NOTHING = (Listing(), Listing())


@dataclass(frozen=True)
class Results:
    """What an epoch brought one output: its parts, and the output's listing with and without them. All of it is fixed
    by the epoch's commit, so whoever shows the results shows the same."""

    epoch: int
    parts: tuple[Part, ...] = ()
    before: Listing = _NOTHING_LISTED
    listing: Listing = _NOTHING_LISTED
    committed_at: float = 0.0

    @property
    def directories(self) -> tuple[str, ...]:
        """Where in the output its parts are shown."""
        return tuple(sorted({part.directory for part in self.parts}))
