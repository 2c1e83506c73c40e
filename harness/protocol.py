"""What the tuning parent and its workers say to each other: a job on standard input, then one JSON line per message.

Messages go over a pipe of their own, because a candidate may print, or close, what it likes.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from tunegen.harness.noise import Noise

State = Literal[
    "passed", "ineligible", "declined", "failed", "duplicate", "wrong", "crashed", "timed out", "out of memory",
    "out of bounds", "slower", "not tried",
]  # fmt: skip
"""What can become of a candidate."""
STATES: tuple[str, ...] = get_args(State)

Stage = Literal["screen", "final", "record"]
"""What a worker does: gate and screen candidates, hold the finals, or record samples of all candidates."""


class Known(msgspec.Struct, frozen=True):
    """What an earlier run wrote down about a candidate. It counts only for the very same identity."""

    identity: str
    outcome: Outcome


class Job(msgspec.Struct, frozen=True):
    """One stage of tuning one kernel and element type. `seconds` is this worker's share of the budget.

    `limit_s` is what is left of the budget of the whole run: past it not even a race that began is finished.
    `excluded` are suffixes that an earlier worker on this job found unfit, with the outcome; `passed` those that
    passed its gate. `known` and `order` (best first) come from earlier runs; `screened` are this run's ratios by
    regime and suffix, for the final. `memory_bytes` is what the worker may use, 0 for its default.
    """

    scope: str
    module: str
    kernel: str
    element_type: str
    seconds: float
    pairs: int
    finalists: int
    excluded: dict[str, Outcome] = {}
    passed: list[str] = []
    incumbents: dict[str, str] = {}
    stage: Stage = "screen"
    limit_s: float | None = None
    known: dict[str, Known] = {}
    order: list[str] = []
    screened: dict[str, dict[str, float]] = {}
    untried: int = 0
    memory_bytes: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """What became of one candidate, and why. `of` is the candidate that a duplicate is equal to."""

    state: State
    reason: str = ""
    of: str = ""


class Trying(msgspec.Struct, frozen=True, tag="trying"):
    """A step begins that may end the worker. `done` of `total` candidates are through this stage.

    `detail` is the problem that a gate gives to the candidate next.
    """

    suffix: str
    stage: str
    done: int
    total: int
    identity: str = ""
    detail: str = ""


class Screened(msgspec.Struct, frozen=True, tag="screened"):
    """A candidate's ratio to the default in one regime, from a few pairs."""

    condition: str
    suffix: str
    ratio: float


class Candidate(msgspec.Struct, frozen=True, tag="candidate"):
    """A candidate's outcome is known."""

    suffix: str
    outcome: Outcome
    identity: str = ""


class RegimeResult(msgspec.Struct, frozen=True):
    """What a regime's race came to. `gain` is the speed-up over the default, `reference_gain` over the reference.

    `samples` of the final and of its `confirmation` are nanoseconds per call by runner and case, in the order of the
    rounds. `noise` is what the box was like meanwhile.
    """

    condition: str
    winner: str
    gain: float
    reference_gain: float
    evidence: dict[str, Any]
    samples: dict[str, dict[str, list[float]]] = {}
    confirmation: dict[str, dict[str, list[float]]] = {}
    noise: Noise | None = None


class Result(msgspec.Struct, frozen=True, tag="result"):
    """The stage is done. After a final: a result per regime that has cases.

    `stopped` says why it ended early; then only what was decided by then is here. `untried` counts rows that were not
    reached.
    """

    regimes: list[RegimeResult]
    stopped: str = ""
    untried: int = 0


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The job could not be done at all."""

    reason: str


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker has started and imported the kernel, which took so much processor time."""

    used_s: float = 0.0


class Resting(msgspec.Struct, frozen=True, tag="resting"):
    """The worker rested for so many seconds, and may do so again: it lives."""

    seconds: float


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """The space of one regime: samples of every candidate that passed, in whole rounds."""

    condition: str
    default: str
    cases: list[str]
    samples: dict[str, dict[str, list[float]]]


Message = Ready | Resting | Trying | Screened | Candidate | Recorded | Result | Failed
