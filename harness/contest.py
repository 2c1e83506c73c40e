"""A contest: the race of one regime, from screening over heats and the final to its confirmation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from tunegen.grid import REFERENCE
from tunegen.harness import looks, race
from tunegen.harness.bench import Sampling
from tunegen.harness.evidence import Decision, result
from tunegen.harness.looks import Look
from tunegen.harness.measure import now_s
from tunegen.harness.noise import Noise, merged
from tunegen.harness.protocol import Message, RegimeResult, Trying
from tunegen.harness.race import TWIN

Tell = Callable[[Message], None]
SCREEN_ROUNDS = 5
HEAT_ROUNDS = 9
"""Rounds of the first heat; each further one has twice as many, and half the runners."""
SPREAD_ROUNDS = 9
"""Rounds of the default against itself, which tell how blurred the screening was."""
MARGIN = 3.0
"""Who was screened less than this many standard errors below the last finalist takes part in the heats."""
LEAST_MARGIN = 0.03
"""Screening looks at five places in memory alone, which may make a difference of this much on a quiet box, too."""
HEAT_SHARE, FINAL_SHARE = 0.3, 0.7
"""Part of the time after which the heats, and the final, go on no more; the confirmation has what is left."""
HOPELESS = 0.5
"""Who is below this ratio to the default in the first round of screening is not looked at again. The same for the
reference: above it, it takes part in the final."""


class Contest(msgspec.Struct):
    """One regime: its cases, and the default as the baseline. Entrants come in by being screened.

    `chain` is the fallback of the regime, and `place` the place of a suffix in the grid: they decide ties. `pairs` is
    after how many rounds a race is looked at first, `finalists` how many take part in the final.
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
        begin = self.now()
        self.bench.move(0)
        probes = self._probe()
        reference = 1.0 if self.default == REFERENCE else self._ratio(REFERENCE, "reference")
        finalists = self._finalists(begin + HEAT_SHARE * seconds)
        if reference > HOPELESS and REFERENCE not in (self.default, *finalists):
            finalists.append(REFERENCE)
        times = self._race(finalists, "final", begin + FINAL_SHARE * seconds, Look.open)
        probes += self._probe()
        seen = looks.look(times, self.default, self.cases)
        verdicts = {runner: verdict for runner, verdict in seen.verdicts.items() if runner not in self.refused}
        if REFERENCE in verdicts:
            reference = verdicts[REFERENCE].ratio
        winner = race.decide(list(verdicts.values()), self._preference(), seen.floor)
        again: race.Times = {}
        if winner is not None:
            standing = [winner, *(v for r, v in verdicts.items() if r == self.incumbent != winner.runner)]
            standing = [verdict for verdict in standing if verdict.beats(seen.floor)]
            winner, again = self._confirmed(standing, begin + seconds)
        probes += self._probe()
        decision = Decision(
            self.condition, self.cases, self.default, winner, verdicts, times, again, reference, seen.floor,
            merged(probes) if probes else None, self.refused,
        )  # fmt: skip
        return result(decision, states)

    def _confirmed(self, standing: Sequence[race.Verdict], deadline: float) -> tuple[race.Verdict | None, race.Times]:
        """The first of some winners that a fresh race stands by, in other places of memory, and its samples.

        The incumbent may stand where the winner does not.
        """
        self.bench.move(1)
        again = self._race([v.runner for v in standing], "confirm", deadline, Look.unconfirmed)
        seen = looks.look(again, self.default, self.cases).verdicts
        fit = (v for v in standing if v.runner not in self.refused and race.confirmed(seen[v.runner]))
        return next(fit, None), again

    def _probe(self) -> list[Noise]:
        return [self.probe()] if self.probe is not None else []

    def _preference(self) -> dict[str, int]:
        """Who wins a tie: the incumbent, then the fallback in its order, then the grid in its order."""
        order = [self.incumbent, self.default, *self.chain, *sorted(self.screened, key=self.place)]
        return {suffix: rank for rank, suffix in enumerate(dict.fromkeys(order))}

    def _ratio(self, runner: str, stage: str) -> float:
        def field(times: race.Times, done: int) -> Sequence[str]:
            hopeless = done == 1 and race.compare(times, runner, self.default, self.cases).ratio < HOPELESS
            return () if hopeless or done >= SCREEN_ROUNDS else (self.default, runner)

        times = self._guarded(stage, SCREEN_ROUNDS, field)
        return 0.0 if runner in self.refused else race.compare(times, runner, self.default, self.cases).ratio

    def _finalists(self, deadline: float) -> list[str]:
        """The best of those that were screened, and the incumbent. Near ties are told apart in heats.

        What a heat saw decides who goes on, and nothing else: the final starts from nothing, so that luck in a heat is
        no luck in the final.
        """
        fit = [r for r in self.screened if r not in (self.default, *self.refused) and self.screened[r] > 0]
        fit.sort(key=lambda runner: -self.screened[runner])
        pool = self._near(fit) if len(fit) > self.finalists else fit
        heat = HEAT_ROUNDS
        while len(pool) > self.finalists and self.now() < deadline:
            pool = self._heat(pool, heat, deadline)[: max(self.finalists, len(pool) // 2)]
            heat *= 2
        chosen = pool[: self.finalists]
        return [*chosen, self.incumbent] if self.incumbent in fit and self.incumbent not in chosen else chosen

    def _near(self, fit: Sequence[str]) -> list[str]:
        """The best, and all whom chance may have put behind them in the screening."""
        opening = [self.default, TWIN]
        times = self._guarded("heat", SPREAD_ROUNDS, race.always(opening, SPREAD_ROUNDS))
        blur = race.spread(times, TWIN, self.default, self.cases) / math.sqrt(SCREEN_ROUNDS)
        least = self.screened[fit[self.finalists - 1]] * math.exp(-max(MARGIN * blur, LEAST_MARGIN))
        return [runner for runner in fit if self.screened[runner] >= least]

    def _heat(self, pool: Sequence[str], rounds: int, deadline: float) -> list[str]:
        """Those who ran a heat of so many rounds, best first."""

        def field(times: race.Times, done: int) -> Sequence[str]:
            over = done >= rounds or (done > 0 and self.now() > deadline)
            return () if over else [self.default, *(r for r in pool if r not in self.refused)]

        times = self._guarded("heat", rounds, field)
        left = [runner for runner in pool if runner not in self.refused]
        ratios = {runner: race.compare(times, runner, self.default, self.cases).ratio for runner in left}
        return sorted(left, key=lambda runner: -ratios[runner])

    def _race(
        self, runners: Sequence[str], stage: str, deadline: float, undecided: Callable[[Look], list[str]]
    ) -> race.Times:
        """A race against the default and its twin: it goes on among those who are `undecided` at a look."""
        when = looks.schedule(self.pairs)
        left = list(runners)

        def field(times: race.Times, done: int) -> Sequence[str]:
            nonlocal left
            if done == 0:
                left = list(runners)
            elif done in when:
                left = undecided(looks.look(times, self.default, self.cases))
            late = done >= race.FEWEST_PAIRS and self.now() > deadline
            if late or done >= when[-1] or (done >= when[0] and not left):
                return ()
            return [self.default, *(r for r in left if r not in self.refused), TWIN]

        return self._guarded(stage, when[-1], field)

    def _guarded(self, stage: str, total: int, field: race.Field) -> race.Times:
        """Rounds among runners with proper samples: whose are not is out, and the others begin again.

        The parent hears who runs next before each sample, outside the time that is taken, so that a death is charged
        to the right one. Raises `race.Refused` when it is the default.
        """

        def sample(runner: str, case: str, number: int) -> float:
            suffix = self.default if runner == TWIN else runner
            self.tell(Trying(suffix, stage, number, total))
            return self.bench.sample(suffix, case, number)

        def among(times: race.Times, done: int) -> Sequence[str]:
            wanted = field(times, done)
            left = [runner for runner in wanted if runner not in self.refused]
            # of two who were to be compared, one is out
            return left if len(left) > 1 else ()

        while True:
            try:
                return race.contested(sample, among, self.cases)
            except race.Refused as refused:
                if refused.runner in (self.default, TWIN):
                    raise
                self.refused[refused.runner] = str(refused)
