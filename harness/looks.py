"""When a race has seen enough: it looks at its samples now and then, and goes on while more of them could matter.

A look comes after so many rounds as the effort asks for, and then each time after twice as many. Who has surely lost
leaves; the race ends when all that are left have surely won and nothing is left to tell between them. Each look has its
share of the risk to be wrong, so that looking often does not make luck likelier (Bonferroni's correction; Jennison and
Turnbull, Group Sequential Methods, chapter 2). No clock in here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tunegen.harness import race
from tunegen.harness.race import CONFIDENCE, MINIMUM_GAIN, TIE, TWIN, Times, Verdict

LOOKS = 5
"""The longest race has 2 ** (LOOKS - 1) times as many rounds as the shortest: sixteen times. That narrows an interval
to a quarter: what a first look sees within 5 % is known to 1.3 % then, as near as the minimum gain asks for."""
LOOK_CONFIDENCE = 1 - (1 - CONFIDENCE) / LOOKS


def schedule(pairs: int) -> list[int]:
    """After how many rounds a race looks at its samples; the last one ends it."""
    return [pairs << number for number in range(LOOKS)]


class Look(NamedTuple):
    """What a race looks like by now: a verdict for everyone but the default and its twin, and the noise floor."""

    verdicts: dict[str, Verdict]
    floor: float

    def open(self) -> list[str]:
        """Those who may yet win, or be told apart, if the race goes on; nobody when it is decided."""
        left = [verdict for verdict in self.verdicts.values() if not verdict.lost]
        sure = [verdict for verdict in left if verdict.safe and verdict.beats(self.floor)]
        # what the winner will have at least: whoever is surely below that, and no tie, has lost as well
        reached = max((verdict.interval[0] for verdict in sure), default=1 + MINIMUM_GAIN) * (1 - TIE)
        left = [verdict for verdict in left if verdict.interval[1] >= reached]
        decided = all(verdict in sure for verdict in left)
        told_apart = len(left) == 1 or all(verdict.half_width <= TIE for verdict in left)
        return [] if decided and told_apart else [verdict.runner for verdict in left]

    def unconfirmed(self) -> list[str]:
        """Those of whom it is not certain by now whether a second race stands by them."""
        return [
            verdict.runner
            for verdict in self.verdicts.values()
            if not verdict.lost and not (verdict.safe and race.confirmed(verdict))
        ]


def look(times: Times, default: str, cases: Sequence[str]) -> Look:
    """Looks at the samples of a race in which the default had its twin."""
    runners = dict.fromkeys(runner for runner, _ in times if runner not in (default, TWIN))
    verdicts = {runner: race.compare(times, runner, default, cases, LOOK_CONFIDENCE) for runner in runners}
    return Look(verdicts, race.floor(times, default, cases))
