"""Which rows of a grid are tried, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Protocol

from tunegen.box import Box
from tunegen.grid import Grid, Product, Row
from tunegen.harness.search import Search, installed, source_for, space_of
from tunegen.making.spec import Spec
from tunegen.requires import parse_requires

CANDIDATE_S = 0.15
"""About what it takes to compile, gate and screen one candidate."""
ENUMERABLE = 256
"""A grid of so many rows is tried in reading order, however short the budget is."""

QUICK_COUNT = 1 << 17
"""Steps of a count inside a tune: a fraction of a second. Where it is cut, what is not tried is more than is said."""
LISTED = 1000
"""Rows that nobody got to are named up to this many; of larger grids they are only counted."""


def certain(spec: Spec, incumbents: Mapping[str, str]) -> list[Row]:
    """The rows that are always tried, first: the incumbents, and what an untuned box could run."""
    names = dict.fromkeys([*incumbents.values(), *(item.suffix for item in spec.fallback.items)])
    found = (spec.grid.find(suffix) for suffix in names)
    return [row for row in found if row is not None]


class Proposals(Protocol):
    """Rows to try, one at a time; `learn` is told of each before the next one is asked for."""

    total: int
    """How many rows there are to propose, if time allows."""
    listed: bool
    """Whether rows that nobody gets to are worth to be named one by one."""

    def __iter__(self) -> Iterator[Row]:
        """The rows, each once."""

    def learn(self, row: Row, ratio: float | None) -> None:
        """Takes note of a row's ratio to the default, None when it is unfit."""


class Enumeration:
    """Proposes the rows of a grid in reading order."""

    def __init__(self, grid: Grid) -> None:
        self.total = grid.count().rows
        self.listed = self.total <= LISTED
        self._grid = grid

    def __iter__(self) -> Iterator[Row]:
        return iter(self._grid)

    def learn(self, row: Row, ratio: float | None) -> None:
        """An enumeration has no use for it."""


def proposals(spec: Spec, box: Box, seconds: float) -> Proposals:
    """All rows that fit this box in reading order, or a search among them when `seconds` are too short for all."""
    grid = fitting(spec.grid, box)
    if not _too_large(grid, seconds):
        return Enumeration(grid)
    eligible = Grid(tuple(p for p in grid.parts if not parse_requires(p.requires).missing(box.feature_set)))
    space = space_of([part for part in eligible.parts if isinstance(part, Product)])
    return Search(eligible, source_for(space), space, eligible.count(QUICK_COUNT).rows)


def caution(spec: Spec, box: Box, seconds: float) -> str:
    """What a user has to know of the way that candidates are chosen; "" when there is nothing."""
    grid = fitting(spec.grid, box)
    if installed() or not _too_large(grid, seconds):
        return ""
    return (
        f"{spec.name} has {grid.count(QUICK_COUNT)} rows, more than {seconds:.0f} s can try, and optuna is missing"
        ": an even sample of them is tried, and nothing is learned on the way. To search: pip install 'tunegen[search]'"
    )


def _too_large(grid: Grid, seconds: float) -> bool:
    limit = max(ENUMERABLE, int(seconds / CANDIDATE_S))
    return sum(1 for _ in islice(grid, limit + 1)) > limit


def fitting(grid: Grid, box: Box) -> Grid:
    """The grid without rows that need more registers, or wider ones, than the box has. They are never rendered."""
    return grid.on(box.limits)
