"""What a decided race leaves behind: the result of a regime, with the evidence for it and all samples."""

from __future__ import annotations

from typing import Any

import msgspec

from tunegen.grid import REFERENCE
from tunegen.harness import race
from tunegen.harness.looks import LOOK_CONFIDENCE
from tunegen.harness.noise import Noise
from tunegen.harness.protocol import RegimeResult


class Decision(msgspec.Struct, frozen=True):
    """What a final came to: `times` of the final, `again` those of the confirmation.

    `refused` are runners whose samples were no positive numbers, and what was seen.
    """

    condition: str
    cases: tuple[str, ...]
    default: str
    winner: race.Verdict | None
    verdicts: dict[str, race.Verdict]
    times: race.Times
    again: race.Times
    reference: float
    floor: float
    noise: Noise | None
    refused: dict[str, str] = {}


def result(decision: Decision, states: dict[str, int]) -> RegimeResult:
    """The result of a regime. `states` counts what became of all candidates."""
    default, cases = decision.default, decision.cases
    pairs = len(decision.times[default, cases[0]])
    chosen = decision.winner or race.Verdict(default, 1.0, (1.0, 1.0), 1.0, pairs)
    others = sorted((v for r, v in decision.verdicts.items() if r != chosen.runner), key=lambda v: -v.ratio)
    gain = 1.0 if chosen.runner == REFERENCE else chosen.ratio / decision.reference if decision.reference else 0.0
    evidence: dict[str, Any] = {
        "kind": "isolated",
        "baseline": default,
        "ratio": round(chosen.ratio, 4),
        "interval": [round(x, 4) for x in chosen.interval],
        "worst": round(chosen.worst, 4),
        "pairs": chosen.pairs,
        "noise": round(race.noise(decision.times, default, cases), 4),
        "floor": round(decision.floor, 4),
        "cases": list(cases),
        "reference": round(gain, 4),
        "outcomes": states,
    }
    if others:
        evidence |= {"runner_up": others[0].runner, "margin": round(chosen.ratio / others[0].ratio - 1, 4)}
    if decision.winner is not None:
        second = race.compare(decision.again, chosen.runner, default, cases, LOOK_CONFIDENCE)
        evidence["confirmed"] = {
            "ratio": round(second.ratio, 4), "interval": [round(x, 4) for x in second.interval], "pairs": second.pairs,
        }  # fmt: skip
    if decision.noise is not None:
        evidence["box"] = decision.noise.evidence()
    if decision.refused:
        evidence["refused"] = decision.refused
    return RegimeResult(
        decision.condition, chosen.runner, chosen.ratio, gain, evidence, by_runner(decision.times),
        by_runner(decision.again), decision.noise,
    )  # fmt: skip


def by_runner(times: race.Times) -> dict[str, dict[str, list[float]]]:
    """Samples in nanoseconds by runner and case, as a file keeps them."""
    found: dict[str, dict[str, list[float]]] = {}
    for (runner, case), samples in times.items():
        found.setdefault(runner, {})[case] = samples
    return found
