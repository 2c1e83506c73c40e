"""The grid of permutations: rows, their suffixes, and lazily enumerated products with constraints."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

import msgspec

from tunegen.errors import ExpressionError
from tunegen.expressions import Expression

Value = bool | int | float | str
REFERENCE = "reference"
"""The suffix that stands for the Python body."""


class Row(msgspec.Struct, frozen=True):
    """One permutation: its name, its values and the features it asks for (a `requires` text)."""

    suffix: str
    perm: dict[str, Value]
    requires: str = ""


def suffix_of(perm: Mapping[str, Value]) -> str:
    """The name of a permutation: `mr4_nr8`, `stream`, `nostream`, `alpha0d5`, `isa_avx2`."""
    return "_".join(_piece(name, value) for name, value in perm.items())


def _piece(name: str, value: Value) -> str:
    if isinstance(value, bool):
        return name if value else f"no{name}"
    if isinstance(value, str):
        return f"{name}_{value}"
    return name + repr(value).replace("-", "m").replace("+", "p").replace(".", "d")


class Perm(msgspec.Struct, frozen=True):
    """One explicit row, from `tune_perm`."""

    values: dict[str, Value]
    suffix: str = ""
    requires: str = ""

    def rows(self) -> Iterator[Row]:
        """The one row."""
        yield Row(self.suffix or suffix_of(self.values), self.values, self.requires)

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the values, in order."""
        return tuple(self.values)


class Product(msgspec.Struct, frozen=True):
    """A Cartesian product with a constraint, from `tune_grid`. The last axis varies fastest."""

    values: dict[str, tuple[Value, ...]]
    where: Expression | None = None
    requires: str = ""

    def rows(self) -> Iterator[Row]:
        """The rows that the constraint admits, one at a time."""
        for point in itertools.product(*self.values.values()):
            perm = dict(zip(self.values, point, strict=True))
            if self._admits(perm):
                yield Row(suffix_of(perm), perm, self.requires)

    def _admits(self, perm: dict[str, Value]) -> bool:
        try:
            return self.where is None or bool(self.where(perm))
        except ExpressionError as error:
            raise ExpressionError(f"row {perm}: where {error}") from None

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes, in order."""
        return tuple(self.values)


class Grid(msgspec.Struct, frozen=True):
    """All rows of a kernel, in reading order."""

    parts: tuple[Perm | Product, ...]

    def __iter__(self) -> Iterator[Row]:
        return itertools.chain.from_iterable(part.rows() for part in self.parts)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def find(self, suffix: str) -> Row | None:
        """The row of this name."""
        return next((row for row in self if row.suffix == suffix), None)

    def check(self, seen: set[str]) -> Iterator[str]:
        """What is wrong with the rows, each as a sentence that names row and value. `seen` gets all suffixes."""
        axes = self.parts[0].axes
        for part in self.parts:
            if part.axes != axes:
                yield f"row {part.values}: rows name the same axes in the same order: got {part.axes} after {axes}"
            if empty := [axis for axis, values in part.values.items() if values == ()]:
                yield f"row {part.values}: {empty[0]} has no values"
        try:
            for row in self:
                if row.suffix == REFERENCE:
                    yield f"row {row.perm}: the suffix {REFERENCE!r} is reserved for the Python body"
                elif not (row.suffix.isidentifier() and row.suffix.isascii()):
                    yield f"row {row.perm}: the suffix {row.suffix!r} is no identifier; give one with suffix="
                elif row.suffix in seen:
                    yield f"row {row.perm}: the suffix {row.suffix!r} is taken by an earlier row"
                seen.add(row.suffix)
        except ExpressionError as error:
            yield str(error)
        if not seen:
            yield "no rows: the constraint `where` rules all of them out"
