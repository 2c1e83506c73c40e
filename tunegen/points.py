"""Points of a Cartesian product that a constraint admits: walked one at a time, and counted without a walk.

A constraint is a list of parts that all have to hold. A part is looked at as soon as the last name in it has a value,
so that what it rules out is never visited.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from tunegen.errors import ExpressionError
from tunegen.expressions import Expression

Axes = Mapping[str, Sequence[Any]]
Parts = tuple[Expression, ...]

COUNT_STEPS = 1 << 21
"""How many values a count tries per group of axes that hang together. Seconds; a count that needs more is cut."""
REMEMBERED = 1 << 16
"""How many partial counts are kept."""


class Count(msgspec.Struct, frozen=True):
    """How many points there are: exactly, or at least that many."""

    rows: int
    exact: bool = True

    def __str__(self) -> str:
        return f"{self.rows:,}" if self.exact else f"at least {self.rows:,}"


class Steps:
    """How many values may be tried in all."""

    def __init__(self, left: float = math.inf) -> None:
        self.left = left

    def take(self, some: int = 1) -> bool:
        """So many more tries; False when that is more than are left."""
        self.left -= some
        return self.left >= 0

    @property
    def ended(self) -> bool:
        """Whether something was left out."""
        return self.left < 0


def parts_of(where: Expression | None, axes: Axes, given: Mapping[str, Any], all_given: Sequence[str]) -> Parts:
    """The parts of a constraint that can be decided with the axes and with what is `given` of `all_given`.

    Where an axis mixes text and numbers, one part may guard the next one against values that it cannot take: then the
    constraint stays in one piece, unless it names something of `all_given`.
    """
    if where is None:
        return ()
    mixed = any(len({isinstance(value, str) for value in values}) > 1 for values in axes.values())
    outside = set(all_given).difference(axes).intersection(where.names)
    parts = (where,) if mixed and not outside else where.conjuncts()
    return tuple(part for part in parts if not (outside.intersection(part.names) - set(given)))


def holds(part: Expression, point: Mapping[str, Any]) -> bool:
    """Whether a part admits a point. Raises `ExpressionError` that names both."""
    try:
        return bool(part(point))
    except ExpressionError as error:
        row = {name: value for name, value in point.items() if name in part.names}
        raise ExpressionError(f"row {row}: where {error}") from None


def walk(axes: Axes, parts: Parts, given: Mapping[str, Any], steps: Steps) -> Iterator[dict[str, Any]]:
    """The points that all parts admit, the last axis fastest, until `steps` are used up."""
    if not parts:
        return _everywhere(axes, steps)
    names = tuple(axes)
    due = [_due(parts, names[:depth], names[depth:]) for depth in range(len(names) + 1)]
    point = {name: value for name, value in given.items() if name not in axes}

    def descend(depth: int) -> Iterator[dict[str, Any]]:
        if not all(holds(part, point) for part in due[depth]):
            return
        if depth == len(names):
            yield {name: point[name] for name in names}
            return
        for value in axes[names[depth]]:
            if not steps.take():
                return
            point[names[depth]] = value
            yield from descend(depth + 1)

    return descend(0)


def _everywhere(axes: Axes, steps: Steps) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*axes.values()):
        if not steps.take():
            return
        yield dict(zip(axes, values, strict=True))


def _due(parts: Parts, known: Sequence[str], open_names: Sequence[str]) -> Parts:
    """The parts that can be decided now, and not before the last of the known names had its value."""
    last = set(known[-1:])
    return tuple(p for p in parts if not set(p.names).intersection(open_names) and (not known or last & set(p.names)))


def count(axes: Axes, parts: Parts, given: Mapping[str, Any], steps: int = COUNT_STEPS) -> Count:
    """How many points all parts admit: exactly, unless a group of axes needs more than `steps` tries.

    Axes that share no part are counted apart and multiplied; within a group, the axis that most parts name is fixed to
    each of its values in turn, which lets the others fall apart, and what was counted before is remembered.
    """
    rows, exact = 1, True
    bound = {name: value for name, value in given.items() if name not in axes}
    names = tuple(axes)
    for group, own in _groups(names, tuple(part for part in parts if set(part.names).intersection(names))):
        counter = _Counter(axes, bound, Steps(steps))
        rows *= counter.group(group, own)
        exact &= not counter.steps.ended
    rows *= all(holds(part, bound) for part in parts if not set(part.names).intersection(names))
    return Count(rows, exact)


class _Counter:
    """A count of some axes, others having the values in `point`."""

    def __init__(self, axes: Axes, given: Mapping[str, Any], steps: Steps) -> None:
        self.axes = axes
        self.point = dict(given)
        self.steps = steps
        self.known: dict[tuple[Any, ...], int] = {}

    def group(self, names: tuple[str, ...], parts: Parts) -> int:
        """How many points these axes have, which hang together by `parts`."""
        if not parts:
            return math.prod(len(self.axes[name]) for name in names)
        bound = sorted({name for part in parts for name in part.names if name not in names})
        key = (names, parts, tuple(self.point[name] for name in bound))
        if key in self.known:
            return self.known[key]
        found = self._branch(names, parts)
        if len(self.known) < REMEMBERED and not self.steps.ended:
            self.known[key] = found
        return found

    def _branch(self, names: tuple[str, ...], parts: Parts) -> int:
        axis = max(names, key=lambda name: sum(name in part.names for part in parts))
        others = tuple(name for name in names if name != axis)
        later = tuple(part for part in parts if set(part.names).intersection(others))
        now = tuple(part for part in parts if part not in later)
        if not others and self.steps.take(len(self.axes[axis])):
            return self._leaf(axis, now)
        groups, found = list(_groups(others, later)), 0
        for value in self.axes[axis]:
            if not self.steps.take():
                break
            self.point[axis] = value
            if all(holds(part, self.point) for part in now):
                found += math.prod(self.group(group, own) for group, own in groups)
        self.point.pop(axis, None)
        return found

    def _leaf(self, axis: str, parts: Parts) -> int:
        point, found = dict(self.point), 0
        for value in self.axes[axis]:
            point[axis] = value
            for part in parts:
                if not part(point):
                    break
            else:
                found += 1
        return found


def _groups(names: Sequence[str], parts: Parts) -> Iterator[tuple[tuple[str, ...], Parts]]:
    """The names, grouped with the parts that tie them together."""
    left = list(names)
    while left:
        group = {left[0]}
        while more := {n for p in parts if group.intersection(p.names) for n in p.names if n in left} - group:
            group |= more
        yield tuple(n for n in left if n in group), tuple(p for p in parts if group.intersection(p.names))
        left = [n for n in left if n not in group]
