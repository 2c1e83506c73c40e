"""One worker: compiles, gates and races the candidates of one kernel and element type. It may die of any of them.

Run as `python -m tunegen.harness.worker FD` with a job on standard input; messages go to the file descriptor FD.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter

import msgspec

from tunegen.box import this_box
from tunegen.cases import Case, facts
from tunegen.errors import CompileError, Declined, RenderError
from tunegen.grid import REFERENCE, Row
from tunegen.harness import gate
from tunegen.harness.contest import Bench, Contest, Tell
from tunegen.harness.measure import now_s
from tunegen.harness.problems import Problem, problems
from tunegen.harness.protocol import Candidate, Failed, Job, Message, Outcome, Result, Trying
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import find_scope
from tunegen.requires import parse_requires

QUALIFY_SHARE = 0.5
"""Part of the time after which no further candidate is compiled and gated."""


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
        """Qualifies all candidates, then races each regime that has cases."""
        passed = self._qualify()
        regimes: dict[int, list[Case]] = {}
        for case in self.spec.cases:
            regime = self.spec.fallback.regime_of(facts(self.spec.signature, case.sizes))
            regimes.setdefault(regime, []).append(case)
        results = []
        for done, (regime, members) in enumerate(sorted(regimes.items())):
            left = self.job.seconds - (now_s() - self.started)
            contest = self._contest(regime, [case.name for case in members], passed)
            results.append(contest.run(max(left, 0.0) / (len(regimes) - done)))
        return Result(results)

    def _contest(self, regime: int, cases: list[str], passed: list[str]) -> Contest:
        condition = self.spec.fallback.regimes[regime]
        default = self._default(regime, passed)
        return Contest(
            condition=condition,
            cases=tuple(cases),
            default=default,
            incumbent=self.job.incumbents.get(condition, ""),
            entrants=list(dict.fromkeys([default, *passed])),
            states=dict(Counter(outcome.state for outcome in self.outcomes.values())),
            bench=self.bench,
            tell=self.tell,
            pairs=self.job.pairs,
            finalists=self.job.finalists,
        )

    def _order(self) -> list[Row]:
        """Rows in the order in which they are tried: incumbents, then the fallback chain, then the grid."""
        first = [*self.job.incumbents.values(), *(item.suffix for item in self.spec.fallback.items)]
        rows = {row.suffix: row for row in self.spec.grid}
        return [rows[suffix] for suffix in dict.fromkeys([*first, *rows]) if suffix in rows]

    def _qualify(self) -> list[str]:
        box, rows, passed = this_box(), self._order(), []
        tried = list(problems(self.spec, self.element_type, gate.tile_edges(rows)))
        certain = {item.suffix for item in self.spec.fallback.items} | set(self.job.incumbents.values())
        for done, row in enumerate(rows):
            if row.suffix in self.outcomes:
                continue
            late = now_s() - self.started > QUALIFY_SHARE * self.job.seconds
            if missing := parse_requires(row.requires).missing(box.feature_set):
                outcome = Outcome("ineligible", f"requires {missing}")
            elif late and row.suffix not in certain:
                outcome = Outcome("not tried", "the budget ended")
            elif row.suffix in self.job.passed:
                outcome = Outcome("passed")
            else:
                self.tell(Trying(row.suffix, "gate", done, len(rows)))
                outcome = self._gated(row.suffix, tried)
            self.outcomes[row.suffix] = outcome
            self.tell(Candidate(row.suffix, outcome))
            if outcome.state == "passed":
                passed.append(row.suffix)
        return passed

    def _gated(self, suffix: str, tried: list[Problem]) -> Outcome:
        try:
            wrong = gate.check(self.spec, self.element_type, self.variants[suffix], tried)
        except Declined as declined:
            return Outcome("declined", str(declined))
        except (RenderError, CompileError) as error:
            return Outcome("failed", str(error))
        return Outcome("passed") if wrong is None else Outcome("wrong", str(wrong))

    def _default(self, regime: int, passed: list[str]) -> str:
        """What an untuned box runs in this regime, out of what passed the gate here."""
        for later in range(regime, len(self.spec.fallback.regimes)):
            for suffix in self.spec.fallback.chain(later):
                if suffix in passed or suffix == REFERENCE:
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
