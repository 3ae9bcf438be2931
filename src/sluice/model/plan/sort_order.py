"""By what rows are sorted, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SortOrder:
    """A column, the direction, and where nulls go: by default, as in Spark, first if it ascends and last if not."""

    column: str
    descending: bool = False
    nulls: str | None = None

    @property
    def nulls_first(self) -> bool:
        return self.nulls == "first" if self.nulls else not self.descending

    def describe(self) -> str:
        nulls = f" nulls {self.nulls}" if self.nulls else ""
        return f"{self.column}{' descending' if self.descending else ''}{nulls}"
