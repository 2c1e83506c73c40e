"""A contest: the race of one regime, from screening over the final to its confirmation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from tunegen.grid import REFERENCE
from tunegen.harness import race
from tunegen.harness.measure import ClockError, Operands, Runner, now_s, size_eviction
from tunegen.harness.noise import Noise, last_cache_bytes, merged
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
        self.operands: dict[str, Operands] = {}
        self.runners: dict[tuple[str, str], Runner] = {}
        self.last = ""
        self.restore = [i for i, p in enumerate(spec.signature.parameters) if getattr(p, "role", "") == "inout"]

    def sample(self, suffix: str, case_name: str) -> float:
        """Nanoseconds per call of a variant on a case. Raises `race.Refused` when the clock showed none."""
        key = (suffix, case_name)
        if key not in self.runners:
            runner = Runner(self.variants[suffix], self._operands(case_name))
            runner.warm_up()
            self.runners[key] = runner
        runner = self.runners[key]
        try:
            # whoever ran last, and whoever was told about it, left the caches to others; a long call hardly notices,
            # unless the last one was on other operands
            if not runner.operands.cold and (runner.repetitions > 1 or case_name != self.last):
                runner.settle()
            self.last = case_name
            return runner.sample()
        except ClockError:
            raise race.Refused(suffix, case_name, 0) from None

    def _operands(self, case_name: str) -> Operands:
        """The operands of a case, which all runners share: hot or cold, as it is declared."""
        if case_name not in self.operands:
            case = next(case for case in self.spec.cases if case.name == case_name)
            inputs = make_inputs(self.spec, self.element_type, case.sizes, seed=0, optional=False)
            values = list(operands(self.spec, self.element_type, case.sizes, inputs).values())
            if case.cold and (last := last_cache_bytes()):
                size_eviction(last)
            self.operands[case_name] = Operands(values, self.restore, cold=case.cold)
        return self.operands[case_name]


class Sampling(Protocol):
    """What a contest asks for samples: a bench, or a replay of a recorded space."""

    def sample(self, suffix: str, case_name: str) -> float:
        """Nanoseconds per call of a variant on a case."""
        ...


class Contest(msgspec.Struct):
    """One regime: its cases, and the default as the baseline. Entrants come in by being screened.

    `chain` is the fallback of the regime, and `place` the place of a suffix in the grid: they decide ties.
    """

    condition: str
    cases: tuple[str, ...]
    default: str
    incumbent: str
    bench: Sampling
    tell: Tell
    pairs: int
    finalists: int
    screened: dict[str, float] = {}
    now: Callable[[], float] = now_s
    """Seconds on some clock; a simulation brings its own."""
    chain: tuple[str, ...] = ()
    place: Callable[[str], tuple[int, ...]] = lambda suffix: ()
    probe: Callable[[], Noise] | None = None
    """Looks at the noise of the box, before, between and after the races of a final."""
    refused: dict[str, str] = {}
    """Runners whose samples were no positive numbers, and what was seen: out of the race."""

    def screen(self, runner: str) -> float:
        """The ratio of a runner to the default, from a few quick pairs; taken once. 0 when its samples are refused."""
        if runner == self.default:
            return 1.0
        if runner not in self.screened:
            self.screened[runner] = self._ratio(runner, "screen")
        return self.screened[runner]

    def final(self, seconds: float, states: dict[str, int]) -> RegimeResult:
        """Races the best within about `seconds` and says who won. `states` counts what became of all candidates."""
        deadline = self.now() + seconds
        probes = self._probe()
        reference = 1.0 if self.default == REFERENCE else self._ratio(REFERENCE, "reference")
        contenders = self._contenders(reference)
        times = self._rounds(contenders, "final", self.now() + FINAL_SHARE * max(deadline - self.now(), 0.0))
        verdicts = {r: self._verdict(times, r) for r in contenders if r != self.default and r not in self.refused}
        if REFERENCE in verdicts:
            reference = verdicts[REFERENCE].ratio
        probes += self._probe()
        # what a busy neighbour does to instruction fetch, the default's own samples show for this kernel
        floor = max([race.floor(times, self.default, self.cases), *(probe.native.floor for probe in probes)])
        winner = race.decide(list(verdicts.values()), self._preference(), floor)
        again: race.Times = {}
        if winner is not None:
            standing = [winner, *(v for r, v in verdicts.items() if r == self.incumbent != winner.runner)]
            standing = [verdict for verdict in standing if verdict.beats(floor)]
            again = self._rounds([self.default, *(v.runner for v in standing)], "confirm", deadline)
            winner = next((v for v in standing if self._stands(again, v.runner)), None)
        probes += self._probe()
        outcome = Outcome(winner, verdicts, times, again, reference, floor, merged(probes) if probes else None)
        return result(self, outcome, states)

    def _probe(self) -> list[Noise]:
        return [self.probe()] if self.probe is not None else []

    def _preference(self) -> dict[str, int]:
        """Who wins a tie: the incumbent, then the fallback in its order, then the grid in its order."""
        order = [self.incumbent, self.default, *self.chain, *sorted(self.screened, key=self.place)]
        return {suffix: rank for rank, suffix in enumerate(dict.fromkeys(order))}

    def _verdict(self, times: race.Times, runner: str) -> race.Verdict:
        return race.compare(times, runner, self.default, self.cases)

    def _stands(self, times: race.Times, runner: str) -> bool:
        """Whether a second, fresh race confirms a runner. The incumbent may stand where the winner does not."""
        return runner not in self.refused and race.confirmed(self._verdict(times, runner))

    def _ratio(self, runner: str, stage: str) -> float:
        runners = [self.default, runner]
        times = self._guarded(runners, stage, lambda done: done >= SCREEN_ROUNDS)
        return 0.0 if runner in self.refused else self._verdict(times, runner).ratio

    def _contenders(self, reference: float) -> list[str]:
        """The default, the best of the screening, the incumbent, and the reference if it has a chance."""
        fit = [runner for runner in self.screened if runner not in self.refused and self.screened[runner] > 0]
        chosen = [self.default, *sorted(fit, key=lambda runner: -self.screened[runner])[: self.finalists]]
        if self.incumbent in fit:
            chosen.append(self.incumbent)
        if reference > HOPELESS:
            chosen.append(REFERENCE)
        return list(dict.fromkeys(chosen))

    def _rounds(self, runners: list[str], stage: str, deadline: float) -> race.Times:
        def enough(done: int) -> bool:
            return done >= self.pairs or (done >= race.FEWEST_PAIRS and self.now() > deadline)

        return self._guarded(runners, stage, enough)

    def _guarded(self, runners: list[str], stage: str, enough: Callable[[int], bool]) -> race.Times:
        """Rounds among runners with proper samples: whose are not is out, and the others begin again.

        The parent hears who runs next before each sample, outside the time that is taken, so that a death is charged
        to the right one. Raises `race.Refused` when it is the default.
        """
        done = 0

        def counted(rounds: int) -> bool:
            nonlocal done
            done = rounds
            return enough(rounds)

        def sample(runner: str, case: str) -> float:
            self.tell(Trying(runner, stage, done, self.pairs))
            return self.bench.sample(runner, case)

        while True:
            try:
                return race.rounds(sample, runners, self.cases, counted)
            except race.Refused as refused:
                if refused.runner == self.default:
                    raise
                self.refused[refused.runner] = str(refused)
                runners = [runner for runner in runners if runner != refused.runner]


class Outcome(msgspec.Struct, frozen=True):
    """What a final came to: `times` of the final, `again` those of the confirmation."""

    winner: race.Verdict | None
    verdicts: dict[str, race.Verdict]
    times: race.Times
    again: race.Times
    reference: float
    floor: float
    noise: Noise | None


def result(contest: Contest, outcome: Outcome, states: dict[str, int]) -> RegimeResult:
    """The result of a regime, with the evidence for it and all samples."""
    default, cases = contest.default, contest.cases
    pairs = len(outcome.times[default, cases[0]])
    chosen = outcome.winner or race.Verdict(default, 1.0, (1.0, 1.0), 1.0, pairs)
    others = sorted((v for r, v in outcome.verdicts.items() if r != chosen.runner), key=lambda v: -v.ratio)
    gain = 1.0 if chosen.runner == REFERENCE else chosen.ratio / outcome.reference if outcome.reference else 0.0
    evidence: dict[str, Any] = {
        "kind": "isolated",
        "baseline": default,
        "ratio": round(chosen.ratio, 4),
        "interval": [round(x, 4) for x in chosen.interval],
        "worst": round(chosen.worst, 4),
        "pairs": pairs,
        "noise": round(race.noise(outcome.times, default, cases), 4),
        "floor": round(outcome.floor, 4),
        "cases": list(cases),
        "reference": round(gain, 4),
        "outcomes": states,
    }
    if others:
        evidence |= {"runner_up": others[0].runner, "margin": round(chosen.ratio / others[0].ratio - 1, 4)}
    if outcome.winner is not None:
        second = race.compare(outcome.again, chosen.runner, default, cases)
        evidence["confirmed"] = {
            "ratio": round(second.ratio, 4), "interval": [round(x, 4) for x in second.interval], "pairs": second.pairs,
        }  # fmt: skip
    if outcome.noise is not None:
        evidence["box"] = outcome.noise.evidence()
    if contest.refused:
        evidence["refused"] = contest.refused
    return RegimeResult(
        contest.condition, chosen.runner, chosen.ratio, gain, evidence, by_runner(outcome.times),
        by_runner(outcome.again), outcome.noise,
    )  # fmt: skip


def by_runner(times: race.Times) -> dict[str, dict[str, list[float]]]:
    """Samples in nanoseconds by runner and case, as a file keeps them."""
    found: dict[str, dict[str, list[float]]] = {}
    for (runner, case), samples in times.items():
        found.setdefault(runner, {})[case] = samples
    return found
