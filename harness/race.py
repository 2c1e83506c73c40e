"""The race: who wins, decided on interleaved pairs. No clock and no kernel in here, so it is tested on made-up times.

A sampler gives the time per call of one runner on one case. Every round samples all runners of all cases, in an order
that rotates, so drift hits them alike, and turns round after a full turn, so that nobody always runs after the same
neighbour; ratios are taken within a round, against the default. The default may run twice in a round, the second time
as its own `TWIN`: what the twin seems to gain is what chance makes here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import msgspec

Sampler = Callable[[str, str], float]
"""(runner, case) -> nanoseconds per call."""
RoundSampler = Callable[[str, str, int], float]
"""(runner, case, round) -> nanoseconds per call."""
Times = dict[tuple[str, str], list[float]]
"""(runner, case) -> a sample per round, from the first round on. Who left the race early has fewer."""
Field = Callable[[Times, int], Sequence[str]]
"""(times, rounds so far) -> who runs the next round; nobody when the race is over."""

TWIN = "the default again"
"""The name under which the default runs a second time: no suffix has blanks."""
MINIMUM_GAIN = 0.01
"""A winner is at least this much faster than the default, with confidence. Races end undecided only about gains near
this one, so it is half of what two tunes may differ by."""
WORST_CASE = 0.97
"""No case may fall below this ratio to the default."""
PLACES = 8
"""Rounds have their operands in so many places in memory, one after the other: enough that the middle of what they show
hardly depends on which they are."""
RANKS_LOST = {5: 0, 6: 2, 7: 3, 8: 5}
"""Wilcoxon's signed-rank test over places, one-sided at 5 %: the ranks, by size, of the places where a runner is not
faster may add up to this. So a gain has to show in most places, and an average over few of them is no gain. With fewer
than five places nothing can be said."""
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
    """One runner against the default over all cases: ratio above 1 is faster.

    `worst` is the ratio on its worst case, `worst_interval` holds the true one with the same confidence as `interval`.
    """

    runner: str
    ratio: float
    interval: tuple[float, float]
    worst: float
    pairs: int
    worst_interval: tuple[float, float] = (0.0, math.inf)
    steady: bool = True
    """Whether it is faster in other places as well, as far as those of the race can tell."""

    @property
    def wins(self) -> bool:
        """Whether it beats the default with the minimum gain, and is worse than allowed on no case."""
        return self.beats(0.0)

    def beats(self, floor: float) -> bool:
        """Whether it wins where chance alone makes gains up to `floor`."""
        return self.interval[0] >= 1 + max(MINIMUM_GAIN, floor) and self.worst >= WORST_CASE

    @property
    def lost(self) -> bool:
        """Whether no further round can make it a winner: it does not gain enough, or loses too much on some case."""
        return self.interval[1] < 1 + MINIMUM_GAIN or self.worst_interval[1] < WORST_CASE

    @property
    def half_width(self) -> float:
        """Half the width of the interval, as a part of the ratio."""
        low, high = self.interval
        return math.sqrt(high / low) - 1

    @property
    def safe(self) -> bool:
        """Whether it surely is worse than allowed on no case."""
        return self.worst_interval[0] >= WORST_CASE


def contested(sample: RoundSampler, field: Field, cases: Sequence[str]) -> Times:
    """Interleaved samples: whole rounds among those whom `field` names. Who is left out once may not come back.

    Raises `Refused` for a bad sample.
    """
    times: Times = {}
    done = 0
    while runners := field(times, done):
        order = [*runners[done % len(runners) :], *runners[: done % len(runners)]]
        if done // len(runners) % 2:
            order.reverse()
        for case in cases:
            for runner in order:
                times.setdefault((runner, case), []).append(_positive(runner, case, sample(runner, case, done)))
        done += 1
    return times


def always(runners: Sequence[str], count: int) -> Field:
    """A field in which all run in each of `count` rounds."""
    return lambda _, done: runners if done < count else ()


def rounds(sample: Sampler, runners: Sequence[str], cases: Sequence[str], enough: Callable[[int], bool]) -> Times:
    """Interleaved samples: whole rounds until `enough(rounds so far)`. Raises `Refused` for a bad one."""
    taken = contested(
        lambda runner, case, _: sample(runner, case), lambda _, done: () if enough(done) else runners, cases
    )
    return {(runner, case): taken.get((runner, case), []) for runner in runners for case in cases}


def _positive(runner: str, case: str, ns: float) -> float:
    if not 0 < ns < math.inf:
        raise Refused(runner, case, ns)
    return ns


def compare(times: Times, runner: str, default: str, cases: Sequence[str], confidence: float = CONFIDENCE) -> Verdict:
    """The verdict of `runner` against `default`: medians of paired ratios, with a confidence interval.

    The interval is that of the median by order statistics (Conover, Practical Nonparametric Statistics, section 3.2),
    over the geometric mean of each round's ratios. Rounds that the runner did not run do not count.
    """
    per_case = [[d / r for d, r in zip(times[default, case], times[runner, case], strict=False)] for case in cases]
    in_order = [math.exp(sum(map(math.log, ratios)) / len(ratios)) for ratios in zip(*per_case, strict=True)]
    per_round, worst = sorted(in_order), min(per_case, key=median)
    return Verdict(
        runner, median(per_round), interval_of_median(per_round, confidence), median(worst), len(per_round),
        interval_of_median(sorted(worst), confidence),
        _steady([median(in_order[place::PLACES]) for place in range(min(PLACES, len(in_order)))]),
    )  # fmt: skip


def _steady(by_place: Sequence[float]) -> bool:
    by_size = sorted((math.log(ratio) for ratio in by_place), key=abs)
    lost = sum(rank for rank, x in enumerate(by_size, 1) if x <= 0)
    return lost <= RANKS_LOST.get(len(by_size), lost)


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
    """The noise floor of a race: the largest gain or loss of the default over itself that the rounds do not rule out.

    From the same rounds as the verdicts, so it has the same noise, and shrinks with their number as they do.
    """
    low, high = compare(times, TWIN, default, cases).interval
    return max(high, 1 / low) - 1


def spread(times: Times, runner: str, default: str, cases: Sequence[str]) -> float:
    """Standard deviation of the logarithm of one round's ratio, from the median absolute deviation."""
    logs = [
        sum(math.log(times[default, case][i] / times[runner, case][i]) for case in cases) / len(cases)
        for i in range(len(times[runner, cases[0]]))
    ]
    middle = median(logs)
    return median(abs(x - middle) for x in logs) / QUARTILE


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
    return verdict.interval[0] > 1 and verdict.worst >= WORST_CASE and verdict.steady
