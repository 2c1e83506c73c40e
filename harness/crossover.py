"""Where one setting of a numeric parameter begins to beat another: a search over sizes that knows what it did not find.

No clock and no kernel in here: a comparer says how the two settings did at one value. The search looks at a grid,
extends it below and above until the answer changes or the bounds are reached, and bisects the bracket. Nothing is said
before a second look at what decides; a bracket widens to the nearest ends that it confirms. Only a crossover is a value
to store; the other three outcomes are not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from tunegen.harness.race import interval_of_median

Side = Literal["below", "above", "tie"]
"""Which setting is faster at a value: the one meant for small values, the one meant for large ones, or neither."""
Comparer = Callable[[int], Side | Sequence[float]]
"""A value -> who is faster, or the paired ratios time of the setting below / time of the setting above."""
Paths = Callable[[int], tuple[Hashable, Hashable]]
"""A value -> the code path that each of the two settings takes there; equal ones are never compared."""
Kind = Literal["always", "never", "crossover", "no stable crossover"]

STEP = 2
"""The grid is extended by this factor."""
MARGIN = 0.02
"""A setting wins at a value when it is this much faster there, with confidence."""


class Found(msgspec.Struct, frozen=True):
    """What a search came to. `between` holds a proven loss and a proven win of the setting above, for a crossover."""

    kind: Kind
    between: tuple[int, int] | None = None
    reason: str = ""
    compared: dict[int, Side] = {}

    @property
    def value(self) -> int | None:
        """The value to store: from here on the setting above is proven to win. None for everything but a crossover."""
        return self.between[1] if self.between is not None else None

    def __str__(self) -> str:
        if self.between is not None:
            return f"crossover in ({self.between[0]}, {self.between[1]})"
        return f"{self.kind}: {self.reason}" if self.reason else self.kind


def side_of(ratios: Sequence[float], margin: float = MARGIN) -> Side:
    """Who is faster by more than `margin`, by the confidence interval of the median of paired ratios.

    Raises `ValueError` for ratios that are no positive numbers.
    """
    if not ratios or not all(0 < ratio < float("inf") for ratio in ratios):
        raise ValueError(f"paired ratios are positive numbers, not {list(ratios)}")
    low, high = interval_of_median(sorted(ratios))
    if low >= 1 + margin:
        return "above"
    return "below" if high <= 1 / (1 + margin) else "tie"


class Search:
    """One search for a crossover; `run` is its result."""

    def __init__(
        self, compare: Comparer, bounds: tuple[int, int], *, paths: Paths | None = None,
        margin: float = MARGIN, resolution: float = 1.1,
    ) -> None:  # fmt: skip
        """`bounds` are the least and the largest value that may be tried, `resolution` the wished ratio of a bracket.

        Raises `ValueError` for bounds that are no positive range.
        """
        if not 1 <= bounds[0] < bounds[1]:
            raise ValueError(f"bounds {bounds}: give a range of positive values")
        self.compare = compare
        self.bounds = bounds
        self.paths = paths
        self.margin = margin
        self.resolution = resolution
        self.seen: dict[int, Side] = {}
        self.same: set[int] = set()

    def run(self, grid: Sequence[int]) -> Found:
        """Searches from `grid` on. Raises `ValueError` for an empty grid or one outside the bounds."""
        if not grid or min(grid) < self.bounds[0] or max(grid) > self.bounds[1]:
            raise ValueError(f"the grid {list(grid)} has to lie inside the bounds {self.bounds}")
        for value in sorted(set(grid)):
            self._look(value)
        self._extend(min(grid), down=True)
        self._extend(max(grid), down=False)
        sides = [self.seen[value] for value in sorted(self.seen) if self.seen[value] != "tie"]
        if not sides:
            same = bool(self.same) and not self.seen
            why = "both settings take the same code path" if same else "no difference beyond the noise"
            return self._found("no stable crossover", why)
        if len(set(sides)) == 1:
            return self._one_sided(sides[0])
        changes = [pair for pair in pairwise(sides) if pair[0] != pair[1]]
        if changes != [("below", "above")]:
            return self._found("no stable crossover", f"in order of values the faster one is {', '.join(sides)}")
        return self._bisect()

    def _look(self, value: int, *, again: bool = False) -> Side | None:
        """Who is faster at a value, asked once unless `again`; None where both settings take the same code path."""
        if value in self.same:
            return None
        if again or value not in self.seen:
            if self.paths is not None and len(set(self.paths(value))) == 1:
                self.same.add(value)
                return None
            answer = self.compare(value)
            side: Side = answer if isinstance(answer, str) else side_of(answer, self.margin)
            if again:
                return side
            self.seen[value] = side
        return self.seen[value]

    def _extend(self, edge: int, *, down: bool) -> None:
        """Goes on beyond an edge until what belongs there is seen, or the bound is reached."""
        goal = "below" if down else "above"
        while self._look(edge) != goal and edge != self.bounds[0 if down else 1]:
            edge = max(edge // STEP, self.bounds[0]) if down else min(edge * STEP, self.bounds[1])

    def _bisect(self) -> Found:
        low, high = self._bracket()
        self._narrow(low, high, "above")
        low, high = self._bracket()
        self._narrow(high, low, "below")
        low, high = self._bracket()
        if low > high:
            return self._found("no stable crossover", f"the setting above wins at {high} and loses at {low}")
        sure_low, sure_high = self._sure("below", low), self._sure("above", high)
        if sure_low is None or sure_high is None:
            return self._found("no stable crossover", f"a second look around ({low}, {high}) did not confirm it")
        return Found("crossover", (sure_low, sure_high), "", dict(sorted(self.seen.items())))

    def _one_sided(self, side: Side) -> Found:
        """One setting won wherever anybody did: the nearest and the farthest of its wins have to be seen again."""
        won = [value for value, seen in self.seen.items() if seen == side]
        if all(self._look(value, again=True) == side for value in {min(won), max(won)}):
            return self._found("always" if side == "above" else "never")
        return self._found("no stable crossover", f"a second look did not confirm that {side} wins")

    def _sure(self, side: Side, nearest: int) -> int | None:
        """The end of a bracket that a second look confirms: the nearest win of `side`, or one farther out."""
        won = sorted((v for v, seen in self.seen.items() if seen == side), key=lambda v: abs(v - nearest))
        for value in won:
            again = self._look(value, again=True)
            if again == side:
                return value
            if again != "tie":
                return None
        return None

    def _bracket(self) -> tuple[int, int]:
        """The largest value at which the setting above loses, and the least at which it wins."""
        lost = max(value for value, side in self.seen.items() if side == "below")
        return lost, min(value for value, side in self.seen.items() if side == "above")

    def _narrow(self, other: int, proven: int, side: Side) -> None:
        """Looks for the value nearest to `other` at which `side` wins, as it does at `proven`."""
        while abs(proven - other) > 1 and max(proven, other) / min(proven, other) > self.resolution:
            middle = round((proven * other) ** 0.5)
            middle = min(max(middle, min(proven, other) + 1), max(proven, other) - 1)
            if self._look(middle) == side:
                proven = middle
            else:
                other = middle

    def _found(self, kind: Kind, reason: str = "") -> Found:
        return Found(kind, None, reason, dict(sorted(self.seen.items())))


def find_crossover(
    compare: Comparer, grid: Sequence[int], bounds: tuple[int, int], *, paths: Paths | None = None,
    margin: float = MARGIN, resolution: float = 1.1,
) -> Found:  # fmt: skip
    """Where the setting above begins to win: `always`, `never`, a `crossover` in a bracket, or `no stable crossover`.

    `always` and `never` hold over the whole of `bounds`: one setting wins somewhere and the other nowhere. Raises
    `ValueError` for a grid outside the bounds, or ratios that are no positive numbers.
    """
    return Search(compare, bounds, paths=paths, margin=margin, resolution=resolution).run(grid)
