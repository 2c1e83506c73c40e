"""The simulated half of the self-evaluation: is the race ever fooled by noise, and does it find what there is to find?

No clock in here: made-up spaces under every kind of noise, traces of real boxes among them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from tunegen.harness.disturbances import Maker, all_kinds, read_traces
from tunegen.harness.simulate import contest, identical, replay, synthetic

VARIANTS = 50
GAIN, FOUND = 1.10, 0.9
SMALL_GAIN, SMALL_FOUND = 1.06, 0.95
"""The gain that has to be found, and in which share of runs: under the worst trace, and under the worst quiet one."""


class Line(msgspec.Struct, frozen=True):
    """One figure, its goal, and whether it is reached; `detail` is what lies behind it."""

    name: str
    value: float
    goal: str
    reached: bool
    detail: dict[str, Any] = {}

    def __str__(self) -> str:
        return f"{self.name}: {self.value:.4g}; goal {self.goal}: {'reached' if self.reached else 'NOT REACHED'}"


def simulated_aa(runs: int) -> Iterator[Line]:
    """Wins among identical variants, under each kind of noise."""
    space, wins = identical(VARIANTS), {}
    for name, make in all_kinds(read_traces()).items():
        wins[name] = sum(
            replay(space, contest(), make(random.Random(seed)), seed) != space.default for seed in range(runs)
        )
    what = f"A/A, {VARIANTS} variants: most wins in {runs} simulated runs of a kind of noise"
    yield Line(what, max(wins.values()), "0", not any(wins.values()), wins)


def simulated_power(runs: int) -> Iterator[Line]:
    """How often the one variant with a clear gain is found, and whether another is ever crowned in its place."""
    kinds = all_kinds(read_traces())
    recorded = [name for name in kinds if name.startswith("trace") and " with " not in name]
    quiet = [name for name in recorded if name.endswith("quiet")]
    for gain, share, tried, judged, which in (
        (GAIN, FOUND, [*kinds], recorded, "recorded trace"),
        (SMALL_GAIN, SMALL_FOUND, recorded, quiet, "quiet recorded trace"),
    ):
        found, wrong = _searched(gain, {name: kinds[name] for name in tried}, runs)
        yield Line(f"a gain of {gain - 1:.0%} beside {VARIANTS} variants without one: most wins of these",
                   max(wrong.values()), "0", not any(wrong.values()), wrong)  # fmt: skip
        worst = min(found[name] for name in judged)
        yield Line(f"a gain of {gain - 1:.0%} is found, share of runs, worst {which}", worst, f">= {share}",
                   worst >= share, found)  # fmt: skip


def _searched(gain: float, kinds: Mapping[str, Maker], runs: int) -> tuple[dict[str, float], dict[str, int]]:
    """By kind of noise: the share of runs that found the variant with a gain, and how many crowned another one."""
    speeds = {"default": 1e5, **{f"v{i}": 1e5 for i in range(VARIANTS)}}
    space = synthetic({**speeds, "good": 1e5 / gain}, "default")
    found, wrong = {}, {}
    for name, make in kinds.items():
        winners = [replay(space, contest(), make(random.Random(seed)), seed) for seed in range(runs)]
        found[name] = winners.count("good") / len(winners)
        wrong[name] = sum(winner not in ("good", "default") for winner in winners)
    return found, wrong
