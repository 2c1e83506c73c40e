"""Which rows of a grid are tried, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tunegen.grid import Row
from tunegen.making.spec import Spec


def certain(spec: Spec, incumbents: Mapping[str, str]) -> list[Row]:
    """The rows that are always tried, first: the incumbents, and what an untuned box could run."""
    names = dict.fromkeys([*incumbents.values(), *(item.suffix for item in spec.fallback.items)])
    found = (spec.grid.find(suffix) for suffix in names)
    return [row for row in found if row is not None]


class Enumeration:
    """Proposes the rows of a grid in reading order."""

    def __init__(self, spec: Spec) -> None:
        self.total = len(spec.grid)
        self._rows = iter(spec.grid)

    def __iter__(self) -> Iterator[Row]:
        return self._rows

    def learn(self, row: Row, ratio: float | None) -> None:
        """Takes note of a row's ratio to the default, None when it is unfit. An enumeration has no use for it."""
