"""Which pieces a site gives away when another one asks for load (the paper on operator placement, section 3.5)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from sluice.model.ids import Site


class Selection(Enum):
    """In which order pieces are looked at."""

    FLOW_AWARE = "flow-aware"
    """By where their stream is native, then by where their neighbours are, then by load density."""
    INTERMEDIATE = "intermediate"
    """Foreign pieces before native ones, then by load density."""
    ELEMENTARY = "elementary"
    """By load density alone."""


@dataclass(frozen=True)
class HeldPieces:
    """The pieces at one site, a row each: their numbers, the site's load that they are, the bytes of their state, and
    the site at which their stream is native.

    `link_piece` and `link_site` have an entry for each neighbour of a piece: the piece's row, and the neighbour's site.
    """

    number: np.ndarray
    load: np.ndarray
    bytes: np.ndarray
    home: np.ndarray
    link_piece: np.ndarray
    link_site: np.ndarray

    def beside(self, site: Site) -> np.ndarray:
        """Which pieces have a neighbour at a site."""
        counts = np.bincount(self.link_piece[self.link_site == site], minlength=len(self.number))
        at_site: np.ndarray = counts > 0
        return at_site

    def in_order(self, sender: Site, receiver: Site, selection: Selection) -> np.ndarray:
        """The rows of all pieces, those first that the sender gives away first.

        >>> pieces = HeldPieces(
        ...     number=np.arange(4), load=np.array([0.4, 0.3, 0.2, 0.1]), bytes=np.zeros(4),
        ...     home=np.array([0, 2, 1, 2]), link_piece=np.array([3]), link_site=np.array([1]),
        ... )
        >>> pieces.in_order(Site(0), Site(1), Selection.FLOW_AWARE).tolist()
        [2, 3, 1, 0]
        >>> pieces.in_order(Site(0), Site(1), Selection.INTERMEDIATE).tolist()
        [1, 2, 3, 0]
        """
        density = self.load / np.maximum(self.bytes, 1)
        native = self.home == sender
        if selection is Selection.ELEMENTARY:
            return np.argsort(-density, kind="stable")
        if selection is Selection.INTERMEDIATE:
            return np.lexsort((-density, native))
        by_home = np.where(native, 2, np.where(self.home == receiver, 0, 1))
        there, here = self.beside(receiver), self.beside(sender)
        by_neighbours = np.select([there & ~here, there & here, ~there & ~here], [0, 1, 2], 3)
        return np.lexsort((-density, by_neighbours, by_home))

    def choose(
        self, sender: Site, receiver: Site, asked: float, allowed: float, selection: Selection
    ) -> tuple[list[int], float]:
        """The rows of pieces to give away, and their load: no more than was asked for, and no more than is allowed."""
        left, rows = min(asked, allowed), []
        for row in self.in_order(sender, receiver, selection).tolist():
            load = float(self.load[row])
            if 0.0 < load <= left + 1e-12:
                rows.append(row)
                left -= load
        return rows, min(asked, allowed) - left
