"""What the tuning parent and its workers say to each other: a job on standard input, then one JSON line per message.

Messages go over a pipe of their own, because a candidate may print, or close, what it likes.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Job(msgspec.Struct, frozen=True):
    """One kernel and element type to tune. `seconds` is this worker's share of the budget.

    `excluded` are suffixes that an earlier worker on this job found unfit, with the outcome; `passed` those that
    passed its gate.
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


class Outcome(msgspec.Struct, frozen=True):
    """What became of one candidate, and why."""

    state: str
    reason: str = ""


class Trying(msgspec.Struct, frozen=True, tag="trying"):
    """A step begins that may end the worker. `done` of `total` candidates are through this stage."""

    suffix: str
    stage: str
    done: int
    total: int


class Candidate(msgspec.Struct, frozen=True, tag="candidate"):
    """A candidate's outcome is known."""

    suffix: str
    outcome: Outcome


class RegimeResult(msgspec.Struct, frozen=True):
    """What a regime's race came to. `gain` is the speed-up over the default, `reference_gain` over the reference."""

    condition: str
    winner: str
    gain: float
    reference_gain: float
    evidence: dict[str, Any]


class Result(msgspec.Struct, frozen=True, tag="result"):
    """The job is done: a result per regime that has cases."""

    regimes: list[RegimeResult]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The job could not be done at all."""

    reason: str


Message = Trying | Candidate | Result | Failed
