"""The grid of permutations: rows, their suffixes, and products with constraints that are never held in memory.

A grid may have millions of rows: it is walked one row at a time, counted by reasoning where its constraint allows that,
and a row is found by reading its suffix.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property

import msgspec

from tunegen import points
from tunegen.errors import ExpressionError
from tunegen.expressions import Expression

Value = bool | int | float | str
REFERENCE = "reference"
"""The suffix that stands for the Python body."""
LIMITS = ("registers", "vector_bytes")
"""Names of the box that a `where` may use: how many vector registers it has, and how wide they are."""
FIRST_STEPS = 1 << 10
"""A declaration walks products of up to this many values to the end, and says what is wrong with any row."""
LISTED = 64
"""Grids of up to so many rows are listed by name when they are declared, which is quicker than reading names."""
SEARCH_STEPS = 1 << 16
"""How long a declaration looks for one row of a kind; when there is none by then, it goes on without."""


class Row(msgspec.Struct, frozen=True):
    """One permutation: its name, its values and the features it asks for (a `requires` text)."""

    suffix: str
    perm: dict[str, Value]
    requires: str = ""


def suffix_of(perm: Mapping[str, Value]) -> str:
    """The name of a permutation: `mr4_nr8`, `stream`, `nostream`, `alpha0d5`, `isa_avx2`."""
    return "_".join(piece(name, value) for name, value in perm.items())


def piece(name: str, value: Value) -> str:
    """What one value adds to a suffix: `mr4`."""
    if isinstance(value, bool):
        return name if value else f"no{name}"
    if isinstance(value, str):
        return f"{name}_{value}"
    if isinstance(value, int) and value >= 0:
        return f"{name}{value}"
    return name + repr(value).replace("-", "m").replace("+", "p").replace(".", "d")


class Perm(msgspec.Struct, frozen=True):
    """One explicit row, from `tune_perm`. Without a suffix it gets that of its values."""

    values: dict[str, Value]
    suffix: str = ""
    requires: str = ""

    def __post_init__(self) -> None:
        if not self.suffix:
            msgspec.structs.force_setattr(self, "suffix", suffix_of(self.values))

    def rows(self) -> Iterator[Row]:
        """The one row."""
        yield Row(self.suffix, self.values, self.requires)

    def count(self, steps: int = 0) -> points.Count:
        """One."""
        return points.Count(1)

    def find(self, suffix: str) -> Row | None:
        """The row, if this is its name."""
        return Row(suffix, self.values, self.requires) if suffix == self.suffix else None

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the values, in order."""
        return tuple(self.values)


class Product(msgspec.Struct, frozen=True):
    """A Cartesian product with a constraint, from `tune_grid`. The last axis varies fastest.

    `limits` are the values of `LIMITS` on a box. Without them, the parts of `where` that name one admit everything: a
    row that some box has no registers for is a row all the same.
    """

    values: dict[str, tuple[Value, ...]]
    where: Expression | None = None
    requires: str = ""
    limits: dict[str, int] = {}

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes, in order."""
        return tuple(self.values)

    @property
    def parts(self) -> points.Parts:
        """The parts of the constraint that can be decided."""
        return points.parts_of(self.where, self.values, self.limits, LIMITS)

    def rows(self, steps: points.Steps | None = None) -> Iterator[Row]:
        """The rows that the constraint admits, one at a time; at most as many as `steps` lead to."""
        for perm in self.perms(steps or points.Steps()):
            yield Row(suffix_of(perm), perm, self.requires)

    def perms(self, steps: points.Steps) -> Iterator[dict[str, Value]]:
        """The values of the rows."""
        return points.walk(self.values, self.parts, self.limits, steps)

    def count(self, steps: int = points.COUNT_STEPS) -> points.Count:
        """How many rows there are."""
        return points.count(self.values, self.parts, self.limits, steps)

    def find(self, suffix: str) -> Row | None:
        """The first row of this name, by reading the values off the name."""
        for perm in self._readings(suffix, self.axes):
            if all(points.holds(part, {**self.limits, **perm}) for part in self.parts):
                return Row(suffix, perm, self.requires)
        return None

    def _readings(self, text: str, axes: tuple[str, ...]) -> Iterator[dict[str, Value]]:
        """The points of `axes` whose pieces make up `text`."""
        if not axes:
            return
        for value in self.values[axes[0]]:
            start = piece(axes[0], value)
            if text == start and len(axes) == 1:
                yield {axes[0]: value}
            elif text.startswith(f"{start}_"):
                for rest in self._readings(text[len(start) + 1 :], axes[1:]):
                    yield {axes[0]: value, **rest}

    def first(self, fixed: Mapping[str, Value]) -> Row | None:
        """The first row with these values; None, too, when looking for it takes too long."""
        some = {axis: (fixed[axis],) if axis in fixed else values for axis, values in self.values.items()}
        return next(msgspec.structs.replace(self, values=some).rows(points.Steps(SEARCH_STEPS)), None)

    def overlap(self, other: Product) -> Row | None:
        """A row of this product that is one of the other, too."""
        common = {
            axis: [v for v in values if piece(axis, v) in {piece(axis, w) for w in other.values[axis]}]
            for axis, values in self.values.items()
        }
        steps = points.Steps(SEARCH_STEPS)
        found = next(points.walk(common, self.parts + other.parts, {}, steps), None) if all(common.values()) else None
        return Row(suffix_of(found), found, self.requires) if found is not None else None


class Grid(msgspec.Struct, frozen=True, dict=True):
    """All rows of a kernel, in reading order."""

    parts: tuple[Perm | Product, ...]

    @cached_property
    def _listed(self) -> dict[str, Row] | None:
        """The rows by name, when they are few, no two share one, and all are named as they may be; else None."""
        listed, count = {}, 0
        for part in self.parts:
            steps = points.Steps(8 * LISTED)
            for row in part.rows(steps) if isinstance(part, Product) else part.rows():
                listed[row.suffix] = row
                count += 1
            if steps.ended or count > LISTED:
                return None
        plain = all(name != REFERENCE and _identifier(name) for name in listed)
        return listed if plain and len(listed) == count else None

    def __iter__(self) -> Iterator[Row]:
        return itertools.chain.from_iterable(part.rows() for part in self.parts)

    def count(self, steps: int = points.COUNT_STEPS) -> points.Count:
        """How many rows there are, without walking them where the constraints allow it; else, with this many steps."""
        counts = [part.count(steps) for part in self.parts]
        return points.Count(sum(c.rows for c in counts), all(c.exact for c in counts))

    def find(self, suffix: str) -> Row | None:
        """The row of this name."""
        if (listed := self._listed) is not None:
            return listed.get(suffix)
        return next((row for part in self.parts if (row := part.find(suffix)) is not None), None)

    def place(self, suffix: str) -> tuple[int, ...]:
        """Where a row stands in reading order, as numbers to sort by; after all others for what is no row."""
        for index, part in enumerate(self.parts):
            if (row := part.find(suffix)) is not None:
                places = part.values.items() if isinstance(part, Product) else ()
                return (index, *(values.index(row.perm[axis]) for axis, values in places))
        return (len(self.parts),)

    def on(self, limits: Mapping[str, int]) -> Grid:
        """The grid without the rows that exceed the limits of a box."""
        given = dict(limits)
        return Grid(tuple(p if isinstance(p, Perm) else msgspec.structs.replace(p, limits=given) for p in self.parts))

    def corners(self) -> Iterator[Row]:
        """Some rows, which between them take each value of each axis that any row takes."""
        for part in self.parts:
            if isinstance(part, Perm):
                yield from part.rows()
            else:
                found = (part.first({axis: value}) for axis, values in part.values.items() for value in values)
                yield from (row for row in found if row is not None)

    def names(self, limit: int = 50) -> str:
        """The suffixes, for a message; of many, the first ones and how many there are."""
        first = [row.suffix for row in itertools.islice(self, limit + 1)]
        rest = [f"... ({self.count(SEARCH_STEPS)} in all)"] if len(first) > limit else []
        return ", ".join([*first[:limit], *rest])

    def check(self) -> Iterator[str]:
        """What is wrong with the rows, each as a sentence that names row and value."""
        axes, sound = self.parts[0].axes, True
        for part in self.parts:
            if part.axes != axes:
                sound = False
                yield f"row {part.values}: rows name the same axes in the same order: got {part.axes} after {axes}"
            if empty := [axis for axis, values in part.values.items() if values == ()]:
                yield f"row {part.values}: {empty[0]} has no values"
        try:
            if sound:
                yield from self._rows_and_names()
        except ExpressionError as error:
            yield str(error)

    def _rows_and_names(self) -> Iterator[str]:
        if self._listed:
            yield from self._run_together()
            return
        some, names, products = False, set[str](), list[Product]()
        for part in self.parts:
            steps = points.Steps(FIRST_STEPS)
            found = sum(1 for _ in part.perms(steps)) if isinstance(part, Product) else 1
            some |= bool(found) or (steps.ended and _maybe(part))
            for row in _oddly_named(part):
                if row.suffix == REFERENCE:
                    yield f"row {row.perm}: the suffix {REFERENCE!r} is reserved for the Python body"
                else:
                    yield f"row {row.perm}: the suffix {row.suffix!r} is no identifier; give one with suffix="
            for row in _taken(part, names, products):
                yield f"row {row.perm}: the suffix {row.suffix!r} is taken by an earlier row"
            if isinstance(part, Product):
                products.append(part)
            else:
                names.add(part.suffix)
        yield from self._run_together()
        if not some:
            yield "no rows: the constraint `where` rules all of them out"

    def _run_together(self) -> Iterator[str]:
        """Axes whose pieces could end at two places in one suffix, so that two rows might have one name.

        All but the last: where no piece goes on from another one with `_`, a name is read in one way.
        """
        products = [part for part in self.parts if isinstance(part, Product)]
        for axis in self.parts[0].axes[:-1]:
            pieces = {piece(axis, value) for part in products for value in part.values[axis]}
            for text in sorted(pieces):
                if clash := [text[:end] for end, c in enumerate(text) if c == "_" and text[:end] in pieces]:
                    yield f"axis {axis}: {clash[0]!r} and {text!r} run together in a suffix: take values without '_'"


def _maybe(part: Perm | Product) -> bool:
    """Whether a part has a row, as far as one can tell."""
    steps = points.Steps(SEARCH_STEPS)
    return isinstance(part, Perm) or next(part.perms(steps), None) is not None or steps.ended


def _oddly_named(part: Perm | Product) -> Iterator[Row]:
    """Rows whose suffix is reserved, or no identifier."""
    if isinstance(part, Perm) or not part.values:
        yield from (row for row in part.rows() if row.suffix == REFERENCE or not _identifier(row.suffix))
        return
    if (reserved := part.find(REFERENCE)) is not None:
        yield reserved
    for position, (axis, values) in enumerate(part.values.items()):
        for value in values:
            text = piece(axis, value)
            odd = not _identifier(f"_{text}" if position else text)
            if odd and (row := part.first({axis: value})) is not None:
                yield row


def _identifier(text: str) -> bool:
    return text.isidentifier() and text.isascii()


def _taken(part: Perm | Product, names: Set[str], products: Sequence[Product]) -> Iterator[Row]:
    """Rows whose suffix an earlier row has: an explicit one, or one of a product."""
    if isinstance(part, Perm):
        taken = part.suffix in names or any(product.find(part.suffix) for product in products)
        yield from part.rows() if taken else ()
        return
    for axis, values in part.values.items():
        pieces = [piece(axis, value) for value in values]
        for text in {text for text in pieces if pieces.count(text) > 1} if len(set(pieces)) < len(pieces) else ():
            if (row := part.first({axis: values[pieces.index(text)]})) is not None:
                yield row
    found = (*(part.find(name) for name in names), *(part.overlap(other) for other in products))
    yield from (row for row in found if row is not None)
