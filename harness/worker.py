"""One worker: one stage of tuning one kernel and element type, in a process that may die of any candidate.

It stops between two measurements: at SIGTERM, or when the budget of the whole run has ended.
Run as `python -m tunegen.harness.worker FD` with a job on standard input; messages go to the file descriptor FD.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Iterable
from functools import cached_property

import msgspec

from tunegen import knobs
from tunegen.box import this_box
from tunegen.cases import facts
from tunegen.errors import CompileError, Declined, RenderError
from tunegen.grid import REFERENCE, Row
from tunegen.harness import gate, limits, noise, race
from tunegen.harness.bench import Bench
from tunegen.harness.candidates import Proposals, certain, proposals
from tunegen.harness.contest import Contest, Tell
from tunegen.harness.journal import earlier, identity_of, intent_of, is_intent
from tunegen.harness.measure import now_s, used_s
from tunegen.harness.outcomes import counts
from tunegen.harness.pacing import Pace
from tunegen.harness.problems import Problem, problems
from tunegen.harness.protocol import (
    Candidate,
    Failed,
    Job,
    Message,
    Outcome,
    Ready,
    Recorded,
    RegimeResult,
    Resting,
    Result,
    Screened,
    Trying,
)
from tunegen.harness.qualify import Codes, Variants, qualify
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import find_scope
from tunegen.requires import parse_requires

CLOSURE = "a kernel declared inside a function is no worker's to find; declare it at the top of a module"


class Stopped(BaseException):
    """The run has to end between two measurements. No error: it passes by whatever catches those of a candidate."""


class Worker:
    """One stage of a job."""

    def __init__(self, job: Job, kernel: KernelMethods, tell: Tell) -> None:
        self.job = job
        self.spec = kernel.spec
        self.element_type = next(t for t in kernel.signature.element_types if t.name == job.element_type)
        # the body itself: what numpy costs without this framework around it
        self.variants = Variants(self.spec, self.element_type)
        self.variants[REFERENCE] = kernel.reference
        self._speak = tell
        self.stop = ""
        self.pace = Pace(knobs.SHARE.get(), now_s)
        self.started, self.began = self.pace.now(), self.pace.working_s()
        self.codes = Codes(self.spec, self.element_type)
        self.bench = Bench(self.spec, self.element_type, self.variants)
        self.outcomes: dict[str, Outcome] = {**job.excluded, **dict.fromkeys(job.passed, Outcome("passed"))}
        self.untried = job.untried
        self.decided: list[RegimeResult] = []

    @cached_property
    def tried(self) -> list[Problem]:
        """The problems of the gate. The reference takes its time over them, and a journal may spare it."""
        made = problems(self.spec, self.element_type, gate.tile_edges(self.spec.grid.corners()))
        found: list[Problem] = []
        while True:
            self.tell(Trying(REFERENCE, "answers", 0, 1))
            problem = next(made, None)
            if problem is None:
                return found
            found.append(problem)

    def tell(self, message: Message) -> None:
        """Says something to the parent. Raises `Stopped` before a step that must not begin any more."""
        if isinstance(message, Trying):
            self._rest()
            if self._past_limit():
                self.stop = self.stop or "the budget ended"
            if self.stop:
                raise Stopped(self.stop)
        self._speak(message)

    def run(self) -> Result:
        """Does the stage that the job names. What was decided before it had to stop is in the result."""
        stage = {"screen": self._try, "final": self._decide, "record": self._record}[self.job.stage]
        try:
            stage()
        except Stopped as stopped:
            if self.job.stage == "screen":
                self.untried = max(self.spec.grid.count().rows - len(self.outcomes), 0)
            return Result(self.decided, str(stopped), self.untried)
        return Result(self.decided, untried=self.untried)

    def _rest(self) -> None:
        if self.pace.rest(lambda: bool(self.stop) or self._past_limit(), lambda seconds: self._speak(Resting(seconds))):
            # meanwhile the caches went to others
            self.bench.last = None

    def _past_limit(self) -> bool:
        return self.job.limit_s is not None and self.pace.now() - self.started > self.job.limit_s

    def _passed_s(self) -> float:
        """Working time, which the job has so many seconds of."""
        return self.pace.working_s() - self.began

    def _try(self) -> None:
        """Gates what an untuned box could run, then gates and screens candidates while there is time."""
        self.codes.remember(self.outcomes)
        first = certain(self.spec, self.job.incumbents)
        for done, row in enumerate(first):
            self._qualify(row, done, len(first))
        contests = self._contests()
        proposed = proposals(self.spec, this_box(), self.job.seconds)
        fast = [row for row in map(self.spec.grid.find, self.job.order) if row is not None]
        for row in (*first, *fast):
            self._learn(proposed, row, self._enter(row, contests, 0, proposed.total))
        for done, row in enumerate(proposed):
            self._learn(proposed, row, self._enter(row, contests, done, proposed.total))
            if self._passed_s() > self.job.seconds and not proposed.listed:
                self.untried = proposed.total - done - 1
                break

    def _learn(self, proposed: Proposals, row: Row, ratios: list[float | None]) -> None:
        """Tells what proposes rows how fast one is. Equal code, and what was not tried, say nothing new."""
        if self.outcomes[row.suffix].state not in ("duplicate", "not tried"):
            proposed.learn(row, max((ratio for ratio in ratios if ratio is not None), default=None))

    def _enter(self, row: Row, contests: list[Contest], done: int, total: int) -> list[float | None]:
        """Gates a row and screens it in each regime; past the time it is not tried."""
        if row.suffix not in self.outcomes and self._passed_s() > self.job.seconds:
            self._settle(row, Outcome("not tried", "the budget ended"))
        self._qualify(row, done, total)
        return [self._screen(contest, row) for contest in contests]

    def _decide(self) -> None:
        """Holds a final per regime, on what passed and was screened before."""
        contests = self._contests()
        states = counts(self.outcomes, self.untried)
        for done, contest in enumerate(contests):
            left = max(self.job.seconds - self._passed_s(), 0.0)
            self.decided.append(contest.final(left / (len(contests) - done), states))

    def _record(self) -> None:
        """Samples every candidate that passed, in whole rounds, so that the race can be replayed."""
        for contest in self._contests():
            passed = [suffix for suffix, outcome in self.outcomes.items() if outcome.state == "passed"]
            runners = list(dict.fromkeys([contest.default, *passed, REFERENCE]))
            times = race.contested(self._announced, race.always(runners, self.job.pairs), contest.cases)
            samples = {runner: {case: times[runner, case] for case in contest.cases} for runner in runners}
            self.tell(Recorded(contest.condition, contest.default, list(contest.cases), samples))

    def _announced(self, suffix: str, case_name: str, number: int) -> float:
        self.tell(Trying(suffix, "record", number, self.job.pairs))
        return self.bench.sample(suffix, case_name, number)

    def _qualify(self, row: Row, done: int, total: int) -> None:
        """Puts a row through the gate, unless an earlier run did so with the very same code, gate and box."""
        if row.suffix in self.outcomes:
            return
        # until it is compiled it is known by what it will be made from, so that one that hangs in there is not tried
        # again by every run
        identity = self._intent(row)
        self.tell(Trying(row.suffix, "compile", done, total, identity))
        known = self.job.known.get(row.suffix)
        if known is not None and known.identity == self._identity(row, like=known.identity):
            self._settle(row, earlier(known.outcome), known.identity)
            self.codes.remember({row.suffix: known.outcome})
            return

        def announce(stage: str, detail: str) -> None:
            nonlocal identity
            if stage != "compile" and is_intent(identity):
                identity = self._identity(row)
            self.tell(Trying(row.suffix, stage, done, total, identity, detail))

        gated = qualify(
            self.spec, self.element_type, row, self.variants, lambda: self.tried, self.codes, announce
        )  # fmt: skip
        self._settle(row, gated, identity)

    def _intent(self, row: Row) -> str:
        eligible = not parse_requires(row.requires).missing(this_box().feature_set)
        return intent_of(self.spec, self.element_type, row, this_box()) if eligible else ""

    def _identity(self, row: Row, like: str = "") -> str:
        """What a journal knows a row by; "" for one that cannot be made, which the gate finds the reason of.

        An identity `like` that of something that was never made needs nothing to be made.
        """
        if is_intent(like):
            return self._intent(row)
        if parse_requires(row.requires).missing(this_box().feature_set):
            return ""
        try:
            return identity_of(self.spec, self.element_type, row, this_box())
        except (Declined, RenderError, CompileError, MemoryError):
            return ""

    def _settle(self, row: Row, outcome: Outcome, identity: str = "") -> None:
        self.outcomes[row.suffix] = outcome
        self.tell(Candidate(row.suffix, outcome, identity))

    def _screen(self, contest: Contest, row: Row) -> float | None:
        if self.outcomes[row.suffix].state != "passed":
            return None
        fresh = row.suffix not in contest.screened
        try:
            ratio = contest.screen(row.suffix)
        except MemoryError as error:
            self._settle(row, Outcome("out of memory", f"run: {type(error).__name__}: {error}"))
            return None
        if fresh:
            self.tell(Screened(contest.condition, row.suffix, ratio))
        return ratio

    def _contests(self) -> list[Contest]:
        """A contest per regime that has cases, against what an untuned box runs there."""
        members: dict[int, list[str]] = {}
        for case in self.spec.cases:
            regime = self.spec.regime_of(facts(self.spec.signature, case.sizes))
            members.setdefault(regime, []).append(case.name)
        return [self._contest(regime, cases) for regime, cases in sorted(members.items())]

    def _contest(self, regime: int, cases: Iterable[str]) -> Contest:
        condition = self.spec.fallback.regimes[regime]
        return Contest(
            condition=condition,
            cases=tuple(cases),
            default=self._default(regime),
            incumbent=self.job.incumbents.get(condition, ""),
            bench=self.bench,
            tell=self.tell,
            pairs=self.job.pairs,
            finalists=self.job.finalists,
            screened=dict(self.job.screened.get(condition, {})),
            chain=tuple(self.spec.fallback.chain(regime)),
            place=self.spec.grid.place,
            now=self.pace.working_s,
            probe=lambda: noise.probe(noise.BRIEF_S),
        )

    def _default(self, regime: int) -> str:
        """What an untuned box runs in this regime, out of what passed the gate here."""
        for later in range(regime, len(self.spec.fallback.regimes)):
            for suffix in self.spec.fallback.chain(later):
                outcome = self.outcomes.get(suffix)
                equal = outcome.of if outcome is not None and outcome.of else suffix
                if equal == REFERENCE or (equal in self.outcomes and self.outcomes[equal].state == "passed"):
                    return equal
        return REFERENCE


def main() -> None:
    """Entry point of the process."""
    pipe = os.fdopen(int(sys.argv[1]), "wb", buffering=0)

    def tell(message: Message) -> None:
        pipe.write(msgspec.json.encode(message) + b"\n")

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limits.end_with_parent(os.getppid())
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    try:
        importlib.import_module(job.module)
        kernel = find_scope(job.scope).kernels.get(job.kernel)
    except Exception as error:
        tell(Failed(f"{job.module} cannot be imported: {type(error).__name__}: {error}"))
        return
    if kernel is None:
        tell(Failed(f"{job.kernel} is not there when {job.module} is imported: {CLOSURE}"))
        return
    tell(Ready(used_s()))
    try:
        limits.limit(job.memory_bytes)
        noise.pin()
        worker = Worker(job, kernel, tell)
        signal.signal(signal.SIGTERM, lambda *_: setattr(worker, "stop", "interrupted"))
        tell(worker.run())
    except Exception as error:
        tell(Failed(f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main()
