"""A contest: the race of one regime, from screening over the final to its confirmation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tunegen.grid import REFERENCE
from tunegen.harness import race
from tunegen.harness.measure import Runner, now_s
from tunegen.harness.problems import make_inputs, operands
from tunegen.harness.protocol import Message, RegimeResult, Trying
from tunegen.making.spec import Spec
from tunegen.signature import ElementType

Tell = Callable[[Message], None]
SCREEN_ROUNDS = 3
FINAL_SHARE = 0.7
"""Part of the time that the final may take; the confirmation has what is left."""
HOPELESS = 0.5
"""The reference takes part in the final only when screening puts it above this ratio to the default."""


class Bench:
    """Runners of one kernel by (suffix, case), made when they are first sampled."""

    def __init__(self, spec: Spec, element_type: ElementType, variants: Mapping[str, Callable[..., Any]]) -> None:
        self.spec = spec
        self.element_type = element_type
        self.variants = variants
        self.arguments: dict[str, list[Any]] = {}
        self.runners: dict[tuple[str, str], Runner] = {}
        self.restore = [i for i, p in enumerate(spec.signature.parameters) if getattr(p, "role", "") == "inout"]

    def sample(self, suffix: str, case_name: str) -> float:
        """Nanoseconds per call of a variant on a case."""
        key = (suffix, case_name)
        if key not in self.runners:
            runner = Runner(self.variants[suffix], self._arguments(case_name), self.restore)
            runner.warm_up()
            self.runners[key] = runner
        return self.runners[key].sample()

    def _arguments(self, case_name: str) -> list[Any]:
        if case_name not in self.arguments:
            sizes = next(case.sizes for case in self.spec.cases if case.name == case_name)
            inputs = make_inputs(self.spec, self.element_type, sizes, seed=0, optional=False)
            self.arguments[case_name] = list(operands(self.spec, self.element_type, sizes, inputs).values())
        return self.arguments[case_name]


class Contest(msgspec.Struct):
    """One regime: its cases, and the default as the baseline. Entrants come in by being screened."""

    condition: str
    cases: tuple[str, ...]
    default: str
    incumbent: str
    bench: Bench
    tell: Tell
    pairs: int
    finalists: int
    screened: dict[str, float] = {}

    def screen(self, runner: str) -> float:
        """The ratio of a runner to the default, from a few quick pairs; taken once."""
        if runner == self.default:
            return 1.0
        if runner not in self.screened:
            self.tell(Trying(runner, "screen", 0, 1))
            self.screened[runner] = self._ratio(runner)
        return self.screened[runner]

    def final(self, seconds: float, states: dict[str, int]) -> RegimeResult:
        """Races the best within about `seconds` and says who won. `states` counts what became of all candidates."""
        deadline = now_s() + seconds
        self.tell(Trying(REFERENCE, "reference", 0, 1))
        reference = 1.0 if self.default == REFERENCE else self._ratio(REFERENCE)
        contenders = self._contenders(reference)
        times = self._rounds(contenders, "final", now_s() + FINAL_SHARE * max(deadline - now_s(), 0.0))
        verdicts = [race.compare(times, r, self.default, self.cases) for r in contenders if r != self.default]
        order = [self.incumbent, self.default, *self.screened]
        winner = race.decide(verdicts, {suffix: rank for rank, suffix in enumerate(order)})
        if winner is not None:
            again = self._rounds([self.default, winner.runner], "confirm", deadline)
            second = race.compare(again, winner.runner, self.default, self.cases)
            winner = winner if race.confirmed(second) else None
        return self._result(winner, verdicts, times, reference, states)

    def _ratio(self, runner: str) -> float:
        times = race.rounds(self.bench.sample, [self.default, runner], self.cases, lambda done: done >= SCREEN_ROUNDS)
        return race.compare(times, runner, self.default, self.cases).ratio

    def _contenders(self, reference: float) -> list[str]:
        """The default, the best of the screening, the incumbent, and the reference if it has a chance."""
        chosen = [self.default, *sorted(self.screened, key=lambda runner: -self.screened[runner])[: self.finalists]]
        if self.incumbent in self.screened:
            chosen.append(self.incumbent)
        if reference > HOPELESS:
            chosen.append(REFERENCE)
        return list(dict.fromkeys(chosen))

    def _rounds(self, runners: list[str], stage: str, deadline: float) -> race.Times:
        def enough(done: int) -> bool:
            self.tell(Trying(runners[-1], stage, done, self.pairs))
            return done >= self.pairs or (done >= race.FEWEST_PAIRS and now_s() > deadline)

        return race.rounds(self.bench.sample, runners, self.cases, enough)

    def _result(
        self,
        winner: race.Verdict | None,
        verdicts: list[race.Verdict],
        times: race.Times,
        reference: float,
        states: dict[str, int],
    ) -> RegimeResult:
        pairs = len(times[self.default, self.cases[0]])
        chosen = winner or race.Verdict(self.default, 1.0, (1.0, 1.0), 1.0, pairs)
        others = sorted((v for v in verdicts if v.runner != chosen.runner), key=lambda v: -v.ratio)
        reference_gain = 1.0 if chosen.runner == REFERENCE else chosen.ratio / reference
        evidence: dict[str, Any] = {
            "kind": "isolated",
            "baseline": self.default,
            "ratio": round(chosen.ratio, 4),
            "interval": [round(x, 4) for x in chosen.interval],
            "worst": round(chosen.worst, 4),
            "pairs": pairs,
            "noise": round(race.noise(times, self.default, self.cases), 4),
            "cases": list(self.cases),
            "reference": round(reference_gain, 4),
            "outcomes": states,
        }
        if others:
            evidence |= {"runner_up": others[0].runner, "margin": round(chosen.ratio / others[0].ratio - 1, 4)}
        return RegimeResult(self.condition, chosen.runner, chosen.ratio, reference_gain, evidence)
