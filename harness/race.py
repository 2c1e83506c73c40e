"""The race: who wins, decided on interleaved pairs. No clock and no kernel in here, so it is tested on made-up times.

A sampler gives the time per call of one runner on one case. Every round samples all runners of all cases, in an order
that rotates, so drift hits them alike, and turns round after a full turn, so that nobody always runs after the same
neighbour; ratios are taken within a round, against the default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import median

import msgspec

Sampler = Callable[[str, str], float]
"""(runner, case) -> nanoseconds per call."""
Times = dict[tuple[str, str], list[float]]
"""(runner, case) -> a sample per round."""

MINIMUM_GAIN = 0.02
"""A winner is at least this much faster than the default, with confidence."""
WORST_CASE = 0.97
"""No case may fall below this ratio to the default."""
FEWEST_PAIRS = 7
"""A race is not cut shorter than this, whatever the budget: fewer pairs give no interval."""
TIE = 0.01
"""Runners within this of the best are tied."""
CONFIDENCE = 0.95
QUARTILE = 0.6745
"""Median absolute deviation of the standard normal distribution."""
MEDIAN_WIDTH = 1.96 * 1.2533
"""Half the 95 % interval of a median of normal errors, times the root of their count."""


class Refused(ValueError):
    """A sample that is no positive number: nothing can be decided on it."""

    def __init__(self, runner: str, case: str, got: object) -> None:
        super().__init__(runner, case, got)
        self.runner = runner
        self.case = case
        self.got = got

    def __str__(self) -> str:
        return f"{self.runner} on {self.case}: a sample of {self.got} ns is no positive number"


class Verdict(msgspec.Struct, frozen=True):
    """One runner against the default over all cases: ratio above 1 is faster."""

    runner: str
    ratio: float
    interval: tuple[float, float]
    worst: float
    pairs: int

    @property
    def wins(self) -> bool:
        """Whether it beats the default with the minimum gain, and is worse than allowed on no case."""
        return self.beats(0.0)

    def beats(self, floor: float) -> bool:
        """Whether it wins where chance alone makes gains up to `floor`."""
        return self.interval[0] >= 1 + max(MINIMUM_GAIN, floor) and self.worst >= WORST_CASE


def rounds(sample: Sampler, runners: Sequence[str], cases: Sequence[str], enough: Callable[[int], bool]) -> Times:
    """Interleaved samples: whole rounds until `enough(rounds so far)`. Raises `Refused` for a bad one."""
    times: Times = {(runner, case): [] for runner in runners for case in cases}
    done = 0
    while not enough(done):
        order = [*runners[done % len(runners) :], *runners[: done % len(runners)]]
        if done // len(runners) % 2:
            order.reverse()
        for case in cases:
            for runner in order:
                times[runner, case].append(_positive(runner, case, sample(runner, case)))
        done += 1
    return times


def _positive(runner: str, case: str, ns: float) -> float:
    if not 0 < ns < math.inf:
        raise Refused(runner, case, ns)
    return ns


def compare(times: Times, runner: str, default: str, cases: Sequence[str]) -> Verdict:
    """The verdict of `runner` against `default`: medians of paired ratios, with a confidence interval.

    The interval is that of the median by order statistics (Conover, Practical Nonparametric Statistics, section 3.2),
    over the geometric mean of each round's ratios.
    """
    per_case = {case: [d / r for d, r in zip(times[default, case], times[runner, case], strict=True)] for case in cases}
    per_round = sorted(
        math.exp(sum(map(math.log, ratios)) / len(ratios)) for ratios in zip(*per_case.values(), strict=True)
    )
    worst = min(median(ratios) for ratios in per_case.values())
    return Verdict(runner, median(per_round), interval_of_median(per_round), worst, len(per_round))


def interval_of_median(ordered: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Bounds of the median of the distribution behind `ordered` samples; with few samples, all of their range."""
    n = len(ordered)
    tail, k = 0.5**n, 0
    while tail + math.comb(n, k + 1) * 0.5**n <= (1 - confidence) / 2 and k + 1 < n // 2:
        k += 1
        tail += math.comb(n, k) * 0.5**n
    return ordered[k], ordered[n - 1 - k]


def noise(times: Times, default: str, cases: Sequence[str]) -> float:
    """Median relative step between neighbouring samples of the default: how much this box fidgets."""
    steps = [
        abs(b / a - 1) for case in cases for a, b in zip(times[default, case], times[default, case][1:], strict=False)
    ]
    return median(steps) if steps else 0.0


def chance(ratios: Sequence[float], pairs: int) -> float:
    """The gain or loss that the median of `pairs` ratios could show although both sides are equal, from such ratios.

    Half the width of the median's confidence interval for normal errors, whose spread is taken from the median absolute
    deviation: a few wild samples, which a median ignores, do not count.
    """
    if not ratios or pairs < 1:
        return 0.0
    spread = median(abs(math.log(ratio)) for ratio in ratios) / QUARTILE
    return math.expm1(MEDIAN_WIDTH * spread / math.sqrt(pairs))


def floor(times: Times, default: str, cases: Sequence[str]) -> float:
    """The noise floor of a race: the gain that the default would show over itself, one round later."""
    steps = [[a / b for a, b in pairwise(times[default, case])] for case in cases]
    per_round = [math.exp(sum(map(math.log, ratios)) / len(ratios)) for ratios in zip(*steps, strict=True)]
    return chance(per_round, len(per_round) + 1)


def decide(verdicts: Sequence[Verdict], preferred: Mapping[str, int], floor: float = 0.0) -> Verdict | None:
    """The winner among runners that beat the default where chance makes gains up to `floor`; None when none does.

    Runners within one percent, or the floor, of the best are tied: the lowest rank in `preferred` wins.
    """
    winners = [verdict for verdict in verdicts if verdict.beats(floor)]
    if not winners:
        return None
    best = max(verdict.ratio for verdict in winners)
    tied = [verdict for verdict in winners if verdict.ratio >= best * (1 - max(TIE, floor))]
    return min(tied, key=lambda verdict: preferred.get(verdict.runner, len(preferred)))


def confirmed(verdict: Verdict) -> bool:
    """Whether a second, fresh race stands by a winner. It can only demote."""
    return verdict.interval[0] > 1 and verdict.worst >= WORST_CASE
