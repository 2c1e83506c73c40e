"""One worker: compiles, gates and races the candidates of one kernel and element type. It may die of any of them.

Run as `python -m tunegen.harness.worker FD` with a job on standard input; messages go to the file descriptor FD.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from collections.abc import Iterable

import msgspec

from tunegen.cases import facts
from tunegen.grid import REFERENCE, Row
from tunegen.harness import gate
from tunegen.harness.candidates import Enumeration, certain
from tunegen.harness.contest import Bench, Contest, Tell
from tunegen.harness.measure import now_s
from tunegen.harness.problems import problems
from tunegen.harness.protocol import Candidate, Failed, Job, Message, Outcome, Result, Trying
from tunegen.harness.qualify import qualify
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import find_scope

TRY_SHARE = 0.7
"""Part of the time after which no further candidate is gated and screened; finals have the rest."""


class Worker:
    """The stages of one job, in order."""

    def __init__(self, job: Job, kernel: KernelMethods, tell: Tell) -> None:
        self.job = job
        self.spec = kernel.spec
        self.element_type = next(t for t in kernel.signature.element_types if t.name == job.element_type)
        # the body itself: what numpy costs without this framework around it
        self.variants = {**kernel.variants(), REFERENCE: kernel.reference}
        self.tell = tell
        self.started = now_s()
        self.bench = Bench(self.spec, self.element_type, self.variants)
        self.outcomes: dict[str, Outcome] = dict(job.excluded)

    def run(self) -> Result:
        """Gates what an untuned box could run, then gates and screens candidates, then holds a final per regime."""
        first = certain(self.spec, self.job.incumbents)
        self.tried = list(problems(self.spec, self.element_type, gate.tile_edges(self.spec.grid)))
        for done, row in enumerate(first):
            self._qualify(row, done, len(first))
        contests = self._contests()
        for contest in contests:
            for row in first:
                self._screen(contest, row)
        self._try(Enumeration(self.spec), contests)
        results = []
        for done, contest in enumerate(contests):
            left = max(self.job.seconds - (now_s() - self.started), 0.0)
            states = dict(Counter(outcome.state for outcome in self.outcomes.values()))
            results.append(contest.final(left / (len(contests) - done), states))
        return Result(results)

    def _try(self, proposed: Enumeration, contests: list[Contest]) -> None:
        """Gates and screens what is proposed while there is time. The rest is not tried."""
        for done, row in enumerate(proposed):
            if row.suffix not in self.outcomes:
                if now_s() - self.started > TRY_SHARE * self.job.seconds:
                    self._settle(row, Outcome("not tried", "the budget ended"))
                else:
                    self._qualify(row, done, proposed.total)
            ratios = [self._screen(contest, row) for contest in contests]
            proposed.learn(row, max((ratio for ratio in ratios if ratio is not None), default=None))

    def _qualify(self, row: Row, done: int, total: int) -> None:
        if row.suffix in self.outcomes:
            return
        if row.suffix in self.job.passed:
            self._settle(row, Outcome("passed"))
            return
        self.tell(Trying(row.suffix, "gate", done, total))
        self._settle(row, qualify(self.spec, self.element_type, row, self.variants, self.tried))

    def _settle(self, row: Row, outcome: Outcome) -> None:
        self.outcomes[row.suffix] = outcome
        self.tell(Candidate(row.suffix, outcome))

    def _screen(self, contest: Contest, row: Row) -> float | None:
        passed = self.outcomes[row.suffix].state == "passed"
        return contest.screen(row.suffix) if passed else None

    def _contests(self) -> list[Contest]:
        """A contest per regime that has cases, against what an untuned box runs there."""
        members: dict[int, list[str]] = {}
        for case in self.spec.cases:
            regime = self.spec.fallback.regime_of(facts(self.spec.signature, case.sizes))
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
        )

    def _default(self, regime: int) -> str:
        """What an untuned box runs in this regime, out of what passed the gate here."""
        for later in range(regime, len(self.spec.fallback.regimes)):
            for suffix in self.spec.fallback.chain(later):
                if suffix == REFERENCE or self.outcomes[suffix].state == "passed":
                    return suffix
        return REFERENCE


def main() -> None:
    """Entry point of the process."""
    pipe = os.fdopen(int(sys.argv[1]), "wb", buffering=0)

    def tell(message: Message) -> None:
        pipe.write(msgspec.json.encode(message) + b"\n")

    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    try:
        importlib.import_module(job.module)
        kernel = find_scope(job.scope).kernels[job.kernel]
    except Exception as error:
        tell(Failed(f"{job.module} cannot be imported: {type(error).__name__}: {error}"))
        return
    try:
        tell(Worker(job, kernel, tell).run())
    except Exception as error:
        tell(Failed(f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main()
