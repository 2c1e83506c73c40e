"""The plan: how the wall time of a run is split over its kernels, and what an effort level asks of a race."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tunegen.harness.pacing import Pace

SCREEN_SHARE = 0.6
"""Part of the time for gates and screening; the finals have the rest, and what these leave."""
SCREEN_LIMIT = 0.8
"""Part of a given budget after which nothing is gated or screened any more, done or not."""
MOST_SHARES = 3
"""How many times its equal part a kernel may take whose gate is slow, before the others have their turn."""
LEAST_WEIGHT = 0.05
"""A kernel without a gain in sight still holds a final as if it could gain this much."""
MOST_WEIGHT = 1.0
"""A gain is clear when it is this large: more time would not make it clearer."""


class Effort(NamedTuple):
    """How thorough a race is. `pairs` is after how many rounds it is looked at first."""

    pairs: int
    finalists: int
    seconds: float
    """Wall time per kernel when no budget is given."""


EFFORTS = {"quick": Effort(9, 3, 6.0), "normal": Effort(15, 4, 12.0), "thorough": Effort(31, 6, 60.0)}


class Budget:
    """The time of a run over `keys` kernels and element types: `seconds` on the wall, else what the effort allows.

    A given budget is a limit; the time of an effort level is only how the run is paced. The limits are on the wall, and
    work is given working time.
    """

    def __init__(self, effort: Effort, keys: int, seconds: float | None, pace: Pace) -> None:
        self.now, self.working_s = pace.now, pace.working_s
        self.limited = seconds is not None
        self.pace_s = 0.0 if self.limited else effort.seconds
        total = seconds if seconds is not None else effort.seconds * keys
        work = seconds * pace.share if seconds is not None else total
        self.limit = self.now() + total
        self.screen_limit = self.now() + SCREEN_LIMIT * total
        self.end = self.working_s() + work
        self.screen_end = self.working_s() + SCREEN_SHARE * work

    @property
    def limit_s(self) -> float | None:
        """What is left until nothing may go on; None when the run is not limited."""
        return self.limit - self.now() if self.limited else None

    @property
    def over(self) -> bool:
        """Whether the limit has passed."""
        return self.limited and self.now() >= self.limit

    def screening_s(self, waiting: int) -> float:
        """Time to gate and screen the next of `waiting` kernels: an equal part, so that all gains become known.

        Without a limit one kernel that took long does not cost the others their time.
        """
        return max((self.screen_end - self.working_s()) / waiting, SCREEN_SHARE * self.pace_s, 0.0)

    def screening_limit_s(self, waiting: int) -> float | None:
        """When gates and screening of the next of `waiting` kernels end, done or not; None when nothing is limited."""
        if not self.limited:
            return None
        left = self.screen_limit - self.now()
        return min(left, MOST_SHARES * left / waiting)

    def final_s(self, gains: Sequence[float]) -> float:
        """Time for the final of the first of the waiting kernels: in proportion to the gains that were seen.

        `gains` are ratios to the default above 1, of all that wait.
        """
        left = max(self.end - self.working_s(), (1 - SCREEN_SHARE) * self.pace_s * len(gains), 0.0)
        weights = [weight(gain) for gain in gains]
        return left * weights[0] / sum(weights)


def weight(gain: float) -> float:
    """What a kernel's final is worth, from the best ratio that its screening saw."""
    return min(max(gain - 1, LEAST_WEIGHT), MOST_WEIGHT)
