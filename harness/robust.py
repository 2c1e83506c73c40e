"""Robust choices: what to ship where boxes differ, from recorded spaces of several boxes, idle and loaded.

Per kernel, element type and regime, the chain whose worst slowdown is the smallest: over all spaces, against each
space's own best. A box runs the first item of a chain that it has, so a chain may serve boxes with different features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from tunegen.errors import StoreError
from tunegen.grid import REFERENCE
from tunegen.harness.simulate import Space, read_spaces


class Pick(msgspec.Struct, frozen=True):
    """The chain of one regime. `worst` is its slowdown where it does worst: 1.05 is 5 % behind that space's best.

    `slowdowns` has it by space, `default_worst` is that of what each space had as its default.
    """

    condition: str
    chain: tuple[str, ...]
    worst: float
    slowdowns: dict[str, float]
    default_worst: float


class Robust(msgspec.Struct, frozen=True):
    """The choice for one kernel and element type, a pick per regime."""

    key: str
    picks: tuple[Pick, ...]

    @property
    def fallback(self) -> str:
        """All picks as a fallback chain: `mr1_nr64 if M <= 2; mr14_nr32; mr6_nr16; reference`."""
        items = [f"{suffix} if {p.condition}" if p.condition else suffix for p in self.picks for suffix in p.chain]
        return "; ".join(items if items[-1:] == [REFERENCE] else [*items, REFERENCE])

    @property
    def worst(self) -> float:
        """The slowdown of its worst regime."""
        return max(pick.worst for pick in self.picks)


def read_labelled(paths: Sequence[Path]) -> dict[str, list[Space]]:
    """The spaces of several files by the name of the file. Raises `StoreError`, for two files of one name, too."""
    found: dict[str, list[Space]] = {}
    for path in paths:
        label = path.name if path.name not in found else str(path)
        if label in found:
            raise StoreError(f"{path} is given twice")
        found[label] = read_spaces(path)
    return found


def robust(spaces: Mapping[str, Sequence[Space]]) -> list[Robust]:
    """A choice for each key that was recorded, regimes in the order of recording and the unconditional one last.

    `spaces` has what was recorded under one set of circumstances by its label.
    """
    keys: dict[str, dict[str, dict[str, Space]]] = {}
    for label, recorded in spaces.items():
        for space in recorded:
            keys.setdefault(space.key, {}).setdefault(space.condition, {})[label] = space
    return [
        Robust(key, tuple(_pick(condition, by_label) for condition, by_label in _ordered(regimes)))
        for key, regimes in keys.items()
    ]


def _ordered(regimes: dict[str, dict[str, Space]]) -> list[tuple[str, dict[str, Space]]]:
    return sorted(regimes.items(), key=lambda item: item[0] == "")


def _pick(condition: str, spaces: Mapping[str, Space]) -> Pick:
    slowdowns = {label: {r: 1 + space.regret(r) for r in space.runners} for label, space in spaces.items()}
    chain = best_chain(slowdowns)
    runs = {label: _first(chain, by_runner) for label, by_runner in slowdowns.items()}
    reached = {label: slowdowns[label][runner] for label, runner in runs.items()}
    default = max(slowdowns[label][space.default] for label, space in spaces.items())
    return Pick(condition, chain, max(reached.values()), reached, default)


def _first(chain: Sequence[str], by_runner: Mapping[str, float]) -> str:
    return next(suffix for suffix in chain if suffix in by_runner)


def best_chain(slowdowns: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """The chain with the smallest worst slowdown, by space and runner; the shortest, then the first of the grid, of
    those that tie. Every space has a runner of it.
    """
    grid = tuple(dict.fromkeys(runner for by_runner in slowdowns.values() for runner in by_runner))

    @cache
    def solve(left: frozenset[str]) -> tuple[float, int, tuple[str, ...]]:
        """(worst slowdown, length, chain) for the spaces that no item has served yet."""
        if not left:
            return (1.0, 0, ())
        options = []
        for place, runner in enumerate(grid):
            served = frozenset(label for label in left if runner in slowdowns[label])
            if served:
                worst, length, rest = solve(left - served)
                own = max(slowdowns[label][runner] for label in served)
                options.append((max(own, worst), length + 1, place, (runner, *rest)))
        worst, length, _, chain = min(options)
        return (worst, length, chain)

    return solve(frozenset(slowdowns))[2]
