"""What a run says: progress while it lasts, and what came of each kernel."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import msgspec

from tunegen.harness.protocol import Outcome, Result


class Event(msgspec.Struct, frozen=True):
    """Progress, for whoever draws it. `part` is how much of step `index` of `total` is done, from 0 to 1."""

    key: str
    stage: str
    detail: str = ""
    part: float = 0.0
    index: int = 0
    total: int = 0


class Report(msgspec.Struct, frozen=True):
    """What came of one kernel and element type: a result or a problem, and each candidate's outcome.

    `seconds` says where the time went: start-up, gate (with compiling), screen, final, confirm, rest. `untried` counts
    the rows of a large grid that nobody got to and that have no outcome of their own. `refused` when the box was too
    noisy to believe the result.
    """

    key: str
    result: Result | None
    problem: str
    outcomes: dict[str, Outcome]
    path: str = ""
    seconds: dict[str, float] = {}
    untried: int = 0
    refused: bool = False
    scope: str = ""


Observer = Callable[[Event], None]


def describe(report: Report) -> str:
    """A report as one line."""
    if report.result is None:
        return f"{report.key}: {report.problem}"
    parts = [
        f"{regime.winner}{f' if {regime.condition}' if regime.condition else ''} "
        f"({regime.gain:.2f} x default, {regime.reference_gain:.2f} x reference)"
        for regime in report.result.regimes
    ]
    return f"{report.key}: {'; '.join(parts)}" + (f" - {report.problem}" if report.problem else "")


def unwanted(reports: Iterable[Report], strict: frozenset[str]) -> list[str]:
    """The candidates whose outcome a strict run does not stand for, each with its reason."""
    return [
        f"{report.key}: {suffix}: {outcome.state}: {outcome.reason}"
        for report in reports
        for suffix, outcome in report.outcomes.items()
        if outcome.state in strict
    ]


def time_by_stage(reports: Iterable[Report]) -> dict[str, float]:
    """Seconds by stage over all reports, in the order of a run."""
    total: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        for stage, taken in report.seconds.items():
            total[stage] += taken
    order = ["start-up", "gate", "screen", "final", "confirm", "rest"]
    return {stage: round(total[stage], 3) for stage in order if stage in total}


def where_time_went(reports: Iterable[Report]) -> str:
    """One line: how long it took, and on what."""
    spent = time_by_stage(reports)
    names = {"gate": "compile and gate"}
    parts = ", ".join(f"{names.get(stage, stage)} {taken:.1f}" for stage, taken in spent.items())
    return f"{sum(spent.values()):.1f} s: {parts}"
