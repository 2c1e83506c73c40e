"""Races without a clock: a recorded or made-up space of variants, replayed with any noise, strategy and budget.

A `Space` holds what was measured of all variants of one regime. A `Replay` answers samples from it, as a bench does,
blurred by a disturbance that follows a clock of its own. A strategy is what decides: today's contest, or another one to
compare with it. So a change of the race is judged in seconds, on many boxes' noise, and always the same way.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec

from tunegen.errors import StoreError
from tunegen.grid import REFERENCE
from tunegen.harness.bench import Sampling
from tunegen.harness.contest import Contest
from tunegen.harness.disturbances import Disturbance
from tunegen.harness.measure import SAMPLE_NS
from tunegen.harness.race import PLACES, WORST_CASE

FORMAT = 1
"""Version of the file of spaces. 1: spaces with samples by runner and case."""
OVERHEAD_S = 20e-6
"""What a sample costs beside the calls that it times."""
TRY_SHARE = 0.7
"""Part of the time after which a replayed contest screens nobody any more."""

Samples = dict[str, dict[str, list[float]]]
"""runner -> case -> nanoseconds per call, in the order in which they were taken."""
SLOW = 10.0
"""How many times the default a reference takes that a space does not have: a contest asks for it all the same."""


class Space(msgspec.Struct, frozen=True):
    """What was measured of one regime of one kernel. Samples with the same index belong to the same round."""

    key: str
    condition: str
    cases: tuple[str, ...]
    default: str
    samples: Samples
    incumbent: str = ""

    @property
    def runners(self) -> list[str]:
        """All runners, in the order of the grid."""
        return list(self.samples)

    def level_ns(self, runner: str, case: str) -> float:
        """The median of a runner's samples: its true speed, as far as a replay is concerned."""
        return median(self.samples[runner][case])

    def gain(self, runner: str) -> float:
        """True speed-up over the default: the geometric mean over the cases."""
        logs = [math.log(ratio) for ratio in self._ratios(runner)]
        return math.exp(sum(logs) / len(logs))

    def best(self) -> str:
        """The runner with the largest gain among those that lose too much on no case."""
        allowed = [runner for runner in self.runners if min(self._ratios(runner)) >= WORST_CASE]
        return max(allowed, key=self.gain)

    def regret(self, chosen: str) -> float:
        """How much faster the best runner is than the chosen one: 0.01 is one percent."""
        return self.gain(self.best()) / self.gain(chosen) - 1

    def _ratios(self, runner: str) -> list[float]:
        return [self.level_ns(self.default, case) / self.level_ns(runner, case) for case in self.cases]


def handicapped(space: Space) -> Space:
    """The same space on a box whose fallback is middling: where the default is the best, finding nothing is right."""
    order = sorted(space.runners, key=space.gain)
    return msgspec.structs.replace(space, default=order[len(order) // 2], incumbent="")


class Recording(msgspec.Struct, frozen=True):
    """A file of spaces."""

    tunegen_spaces: int
    spaces: list[Space]


def write_spaces(path: Path, spaces: Sequence[Space]) -> None:
    """Writes a file of spaces, whole or not at all. Raises `StoreError`."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        aside.write_bytes(msgspec.json.format(msgspec.json.encode(Recording(FORMAT, list(spaces))), indent=0) + b"\n")
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise StoreError(f"the recorded space could not be written to {path}: {error}") from None


def read_spaces(path: Path) -> list[Space]:
    """The spaces of a file. Raises `StoreError` for a file that is none, or one without whole, positive samples."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Recording)
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"{path} is no recorded space: {error}") from None
    if found.tunegen_spaces != FORMAT:
        raise StoreError(f"{path} has format {found.tunegen_spaces}; this version reads {FORMAT}")
    for space in found.spaces:
        if wrong := flaw(space):
            raise StoreError(f"{path}: {space.key} {space.condition}: {wrong}")
    return found.spaces


def flaw(space: Space) -> str:
    """What keeps a space from being replayed, as a sentence; "" when nothing does."""
    if not space.cases or space.default not in space.samples:
        return f"there are no cases, or no samples of the default {space.default!r}"
    for runner, by_case in space.samples.items():
        if set(by_case) != set(space.cases) or not all(by_case.values()):
            return f"{runner} has no samples on some case"
        if not all(0 < ns < math.inf for samples in by_case.values() for ns in samples):
            return f"{runner} has samples that are no positive numbers"
    return ""


def synthetic(speeds: Mapping[str, float | Mapping[str, float]], default: str, key: str = "synthetic[f32]") -> Space:
    """A made-up space: nanoseconds by runner, the same on its one case or given by case."""
    rows = {r: dict(ns) if isinstance(ns, Mapping) else {"case": ns} for r, ns in speeds.items()}
    cases = tuple(rows[default])
    return Space(key, "", cases, default, {r: {case: [ns] for case, ns in row.items()} for r, row in rows.items()})


def identical(count: int, cases: Sequence[str] = ("small", "large"), ns: float = 50_000.0) -> Space:
    """An A/A grid: a default and `count` variants that all run the same body."""
    row = {case: ns * 4**index for index, case in enumerate(cases)}
    return synthetic(dict.fromkeys(("default", *(f"same{i}" for i in range(count))), row), "default")


Clock = Callable[[], float]
"""Seconds on some clock."""


class FakeClock:
    """A clock that only samples move on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Replay:
    """A bench that answers from a space: the level of a runner, times the disturbance at that moment.

    Without a disturbance it replays each runner's own samples, round by round, from a random round on. `luck` is by how
    much, as a logarithm, a runner's speed differs from one place in memory to the next.
    """

    def __init__(
        self, space: Space, clock: FakeClock, disturb: Disturbance | None, rng: random.Random, luck: float = 0.0
    ) -> None:
        self.clock = clock
        self.disturb = disturb
        self.rng = rng
        self.luck = luck
        slow = {case: [SLOW * space.level_ns(space.default, case)] for case in space.cases}
        self.samples = {REFERENCE: slow, **space.samples}
        self.levels = {(r, case): median(ns) for r, by_case in self.samples.items() for case, ns in by_case.items()}
        self.start = rng.randrange(1 << 16)
        self.taken: dict[tuple[str, str], int] = {}
        self.lucks: dict[tuple[str, str, int], float] = {}
        self.series = 0

    def sample(self, suffix: str, case_name: str, number: int = 0) -> float:
        """Nanoseconds per call of a variant on a case; the clock moves on by what taking it would have cost."""
        key = (suffix, case_name)
        if self.disturb is None:
            own = self.samples[suffix][case_name]
            index = self.taken[key] = self.taken.get(key, -1) + 1
            ns = own[(self.start + index) % len(own)]
        else:
            ns = self.levels[key] * self.disturb(self.clock.now_s)
        if self.luck:
            here = (suffix, case_name, PLACES * self.series + number % PLACES)
            if here not in self.lucks:
                self.lucks[here] = self.rng.lognormvariate(0, self.luck)
            ns *= self.lucks[here]
        self.clock.now_s += max(ns, SAMPLE_NS) * 1e-9 + OVERHEAD_S
        return ns

    def move(self, series: int) -> None:
        """Other places, other luck."""
        self.series = series


Strategy = Callable[[Space, Sampling, Clock], str]
"""(what there is, where to sample, the clock) -> the runner to crown. It may look at names, and not at samples."""


def contest(pairs: int = 15, finalists: int = 4, seconds: float = 15.0) -> Strategy:
    """Today's way to decide: everyone is screened, then final and confirmation, as in a worker."""

    def decide(space: Space, bench: Sampling, clock: Clock) -> str:
        start = clock()
        order = {runner: rank for rank, runner in enumerate(space.runners)}
        race = Contest(
            condition=space.condition, cases=space.cases, default=space.default, incumbent=space.incumbent,
            bench=bench, tell=lambda message: None, pairs=pairs, finalists=finalists, now=clock,
            place=lambda runner: (order.get(runner, len(order)),),
        )  # fmt: skip
        certain = [r for r in (space.incumbent, space.default) if r]
        for runner in dict.fromkeys([*certain, *space.runners]):
            if runner != REFERENCE and (runner in certain or clock() - start < TRY_SHARE * seconds):
                race.screen(runner)
        return race.final(max(seconds - (clock() - start), 0.0), {}).winner

    return decide


def best_of(rounds: int = 15) -> Strategy:
    """The way of many autotuners, to compare with: one block of samples per variant, and the least of all wins."""

    def decide(space: Space, bench: Sampling, clock: Clock) -> str:
        def least(runner: str) -> float:
            return math.prod(min(bench.sample(runner, case) for _ in range(rounds)) for case in space.cases)

        return min(space.runners, key=least)

    return decide


def replay(space: Space, strategy: Strategy, disturb: Disturbance | None, seed: int, luck: float = 0.0) -> str:
    """The runner that a strategy crowns in one simulated tune."""
    clock = FakeClock()
    return strategy(space, Replay(space, clock, disturb, random.Random(seed), luck), clock)
