"""Outcomes: what a death says of the candidate that was being tried, and what all outcomes say together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from tunegen.harness.killed import Killer
from tunegen.harness.protocol import Outcome, Result, State
from tunegen.harness.spawn import Died

FAULTS = ("failed", "wrong", "crashed", "timed out", "out of memory", "out of bounds")
"""States that say something is wrong with a candidate. It was declined or is ineligible by its author's own word."""

STRAYING = ("SIGSEGV", "SIGBUS")
KILLED: dict[Killer, tuple[State, str]] = {
    "memory": ("out of memory", "by the system's memory killer"),
    "somebody": ("crashed", "by somebody: the system's memory killer ended nothing meanwhile"),
    "unknown": ("out of memory", "by the system's memory killer, or by somebody"),
}
"""What a SIGKILL says, by who sent it. The harness kills what hangs by itself, and says so."""
STARVING = re.compile(r"out of memory|MemoryError|bad_alloc|cannot allocate memory", re.IGNORECASE)


def charge(stage: str, detail: str, death: Died) -> Outcome:
    """The outcome of the candidate that was at `stage` when its worker died. `detail` is the problem it was given."""
    step = "compile" if stage == "compile" else "run"
    where = f" at {detail}" if detail else ""
    words = f": {death.words}" if death.words else ""
    if death.hanging:
        return Outcome("timed out", f"{step}: {death.reason}{where}")
    if STARVING.search(death.words):
        return Outcome("out of memory", f"{step}: {death.reason}{where}{words}")
    if death.signal == "SIGKILL":
        state, by = KILLED[death.killer]
        return Outcome(state, f"{step}: killed by signal 9 ({by}){where}")
    if stage == "guard" and death.signal in STRAYING:
        return Outcome("out of bounds", f"{death.signal} next to an operand{where}")
    return Outcome("crashed", f"{step}: {death.reason}{where}{words}")


def told(
    outcomes: Mapping[str, Outcome], result: Result | None, screened: Mapping[str, Mapping[str, float]]
) -> dict[str, Outcome]:
    """Outcomes after a race: what passed and won in no regime is slower, by its ratio in the screening."""
    if result is None or not result.regimes:
        return dict(outcomes)
    winners = {regime.condition: regime.winner for regime in result.regimes}
    return {
        suffix: _slower(suffix, winners, screened)
        if outcome.state == "passed" and suffix not in winners.values()
        else outcome
        for suffix, outcome in outcomes.items()
    }


def _slower(suffix: str, winners: Mapping[str, str], screened: Mapping[str, Mapping[str, float]]) -> Outcome:
    parts = []
    for condition, winner in winners.items():
        ratio = screened.get(condition, {}).get(suffix)
        seen = f" ({ratio:.2f} x the default in the screening)" if ratio is not None else ""
        parts.append(f"{winner} won{f' if {condition}' if condition else ''}{seen}")
    return Outcome("slower", "; ".join(parts))


def counts(outcomes: Mapping[str, Outcome], untried: int = 0) -> dict[str, int]:
    """How many candidates came to each state."""
    found: Counter[str] = Counter(outcome.state for outcome in outcomes.values())
    if untried:
        found["not tried"] += untried
    return dict(found)


def nothing_left(outcomes: Mapping[str, Outcome], untried: int = 0) -> str:
    """What to say when no candidate is valid, by no fault of the box: how many came to which end, and why; else "".

    Where all decline or are ineligible the reference is a fair winner.
    """
    states = {outcome.state for outcome in outcomes.values()}
    if states & {"passed", "slower"} or not states & set(FAULTS):
        return ""
    text = ", ".join(f"{number} {state}" for state, number in counts(outcomes, untried).items())
    suffix, outcome = next((s, o) for s, o in outcomes.items() if o.state in FAULTS)
    return f"nothing valid is left: {text}; for example {suffix} {outcome.state}: {outcome.reason}"
