"""Search: which rows of a grid are tried when there are more than the budget can try.

A source asks for points of the space that the axes span; the nearest row that the constraint admits and nobody tried is
proposed instead, and the source is told how fast that row was. So a constraint that admits one point in a thousand
costs no trial, and no row is proposed twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

import msgspec

from tunegen.grid import Grid, Perm, Product, Row, Value, piece
from tunegen.points import Steps

NEAR_STEPS = 4096
"""How many values are tried on the way to the nearest row."""
MISSES = 20
"""So many points in a row without an untried row near them end the search; the rest is taken in reading order."""
START = 16
"""Points of a spread sample that a model learns from before it asks for its own."""
GUESSES = 96
"""Points that a model weighs before it asks for one; optuna's 24 find less on made-up kernels of six axes."""
UNFIT = 0.0
"""What a model is told of a row that is wrong, crashes or cannot be made: worse than any ratio to the default."""

Point = dict[str, int]
"""A position on each axis of a space."""


class Axis(msgspec.Struct, frozen=True):
    """The values that an axis has in any product of a grid; in order of size when all are numbers."""

    values: tuple[Value, ...]
    ordered: bool

    def distance(self, a: int, b: int) -> float:
        """How far apart two positions are, from 0 to 1."""
        return abs(a - b) / max(len(self.values) - 1, 1) if self.ordered else float(a != b)


class Space(msgspec.Struct, frozen=True):
    """The box of points around all products of a grid."""

    axes: dict[str, Axis]
    positions: dict[str, dict[str, int]]
    """axis -> piece of a suffix -> position"""

    def point(self, perm: Mapping[str, Value]) -> Point | None:
        """Where a row lies; None for one outside."""
        found = {axis: at.get(piece(axis, perm[axis])) for axis, at in self.positions.items()}
        point = {axis: position for axis, position in found.items() if position is not None}
        return point if len(point) == len(found) else None

    def near(self, product: Product, point: Point) -> Product:
        """The product with the values of each axis in order of their distance to a point: its first rows are near."""

        def sorted_by_distance(axis: str, values: tuple[Value, ...]) -> tuple[Value, ...]:
            at, positions = self.axes[axis], self.positions[axis]
            return tuple(sorted(values, key=lambda v: at.distance(positions[piece(axis, v)], point[axis])))

        values = {axis: sorted_by_distance(axis, values) for axis, values in product.values.items()}
        return msgspec.structs.replace(product, values=values)

    def distance(self, a: Point, b: Point) -> float:
        """How far apart two points are."""
        return sum(axis.distance(a[name], b[name]) for name, axis in self.axes.items())


def space_of(products: Sequence[Product]) -> Space:
    """The space that these products share."""
    axes, positions = {}, {}
    for name in products[0].axes if products else ():
        by_piece = {piece(name, value): value for product in products for value in product.values[name]}
        numbers = [v for v in by_piece.values() if isinstance(v, int | float) and not isinstance(v, bool)]
        ordered = len(numbers) == len(by_piece)
        values: tuple[Value, ...] = tuple(sorted(numbers)) if ordered else tuple(by_piece.values())
        axes[name] = Axis(values, ordered)
        positions[name] = {piece(name, value): position for position, value in enumerate(values)}
    return Space(axes, positions)


class Source(Protocol):
    """Asks for points, and is told how good the rows near them are."""

    def ask(self) -> Point:
        """A point that is worth a look."""

    def tell(self, point: Point, ratio: float) -> None:
        """A row's ratio to the default."""


class Spread:
    """A deterministic sequence that covers a space evenly, however short it is cut.

    The additive recurrence on the powers of the generalised golden ratio (Roberts, The unreasonable effectiveness of
    quasirandom sequences, 2018).
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.asked = 0
        ratio = 2.0
        for _ in range(50):
            ratio = (1 + ratio) ** (1 / (len(space.axes) + 1))
        self.steps = [ratio ** -(i + 1) for i in range(len(space.axes))]

    def ask(self) -> Point:
        """The next point of the sequence."""
        self.asked += 1
        parts = [(0.5 + self.asked * step) % 1.0 for step in self.steps]
        axes = zip(self.space.axes.items(), parts, strict=True)
        return {name: int(part * len(axis.values)) for (name, axis), part in axes}

    def tell(self, point: Point, ratio: float) -> None:
        """A sequence does not learn."""


class Model:
    """optuna's tree-structured Parzen estimator, started on a spread sample. Raises `ImportError` without optuna."""

    def __init__(self, space: Space, seed: int = 0) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.optuna = optuna
        self.spread = Spread(space)
        self.distributions: dict[str, Any] = {
            name: optuna.distributions.IntDistribution(0, len(axis.values) - 1)
            if axis.ordered
            else optuna.distributions.CategoricalDistribution(range(len(axis.values)))
            for name, axis in space.axes.items()
        }
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=START, n_ei_candidates=GUESSES)
        self.study = optuna.create_study(direction="maximize", sampler=sampler)

    def ask(self) -> Point:
        """The point that the model expects most of."""
        if self.spread.asked < START:
            return self.spread.ask()
        trial = self.study.ask(self.distributions)
        # the row that is raced in its place is told instead
        self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
        return {name: int(position) for name, position in trial.params.items()}

    def tell(self, point: Point, ratio: float) -> None:
        """Adds what was measured to the model."""
        self.study.add_trial(
            self.optuna.trial.create_trial(params=dict(point), distributions=self.distributions, value=ratio)
        )


def installed() -> bool:
    """Whether a search learns: without optuna it is an even sample."""
    return find_spec("optuna") is not None


def source_for(space: Space) -> Source:
    """A model, or without optuna a spread sample."""
    try:
        return Model(space)
    except ImportError:
        return Spread(space)


class Search:
    """Proposes the explicit rows of a grid, then rows near the points that a source asks for. Never a row twice."""

    def __init__(self, grid: Grid, source: Source, space: Space, total: int) -> None:
        self.total = total
        self.listed = False
        self._grid = grid
        self._source = source
        self._space = space
        self._products = [part for part in grid.parts if isinstance(part, Product)]
        self._proposed: set[str] = set()

    def __iter__(self) -> Iterator[Row]:
        for part in self._grid.parts:
            if isinstance(part, Perm):
                yield from self._note(part.rows())
        missed = 0
        while missed < MISSES:
            row = self._nearest(self._source.ask())
            missed = missed + 1 if row is None else 0
            if row is not None:
                yield from self._note(iter([row]))
        yield from self._note(row for row in self._grid if row.suffix not in self._proposed)

    def learn(self, row: Row, ratio: float | None) -> None:
        """Takes note of a row's ratio to the default, None when it is unfit."""
        point = self._space.point(row.perm)
        if point is not None:
            self._source.tell(point, UNFIT if ratio is None else ratio)

    def _note(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            self._proposed.add(row.suffix)
            yield row

    def _nearest(self, point: Point) -> Row | None:
        """The row nearest to a point, about, that was not proposed before."""
        found: list[tuple[float, int, Row]] = []
        for number, product in enumerate(self._products):
            rows = self._space.near(product, point).rows(Steps(NEAR_STEPS))
            row = next((row for row in rows if row.suffix not in self._proposed), None)
            if row is not None:
                there = self._space.point(row.perm)
                found.append((self._space.distance(point, there) if there is not None else 0.0, number, row))
        return min(found, default=(0.0, 0, None))[2]
