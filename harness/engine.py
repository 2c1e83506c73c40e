"""The engine: the tuning parent. It plans, spawns a worker per kernel and stage, survives it, and writes what it found.

First all kernels are gated and screened, so that it is known what each can gain; then the finals have the time that is
left, in proportion. One worker runs at a time, so that nothing overlaps a timing. The parent never runs a candidate.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from tunegen.box import this_box
from tunegen.errors import TunegenError, WorkerError
from tunegen.grid import REFERENCE
from tunegen.harness import history
from tunegen.harness.candidates import caution
from tunegen.harness.journal import Journal, path_for, write_samples
from tunegen.harness.measure import now_s
from tunegen.harness.outcomes import charge, nothing_left, told
from tunegen.harness.plan import EFFORTS, Budget
from tunegen.harness.protocol import (
    Candidate,
    Failed,
    Job,
    Outcome,
    Ready,
    Recorded,
    Result,
    Screened,
    Stage,
    Trying,
)
from tunegen.harness.report import Event, Observer, Report
from tunegen.harness.simulate import Space
from tunegen.harness.spawn import SILENCE_S, Died, Stop, messages, refusal
from tunegen.harness.target import Target, incumbents
from tunegen.public.record import entry_for, kept_winners, write_entry
from tunegen.public.sources import target_manifest

log = logging.getLogger("tunegen")


STAGES = {
    "gate": ("gate", 0.0, 0.8),
    "screen": ("screen", 0.8, 1.0),
    "reference": ("screen", 0.0, 0.1),
    "final": ("final", 0.1, 0.7),
    "confirm": ("confirm", 0.7, 1.0),
    "record": ("record", 0.0, 1.0),
}
"""What the time of a stage is booked as, and which part of a worker's work it is, for the progress bar."""


DRAW_EVERY_S = 0.25
"""Progress is shown this often and no more: what draws it runs beside a timing."""


class Settings(NamedTuple):
    """How a run goes. `budget_s` is wall time; `noisy_ok` writes what was measured on a box that is too noisy."""

    effort: str = "normal"
    budget_s: float | None = None
    silence_s: float = SILENCE_S
    noisy_ok: bool = False


DEFAULTS = Settings()


class Prospect:
    """What this run knows of a target so far."""

    def __init__(self, target: Target, journal: Journal, path: Path) -> None:
        self.target = target
        self.journal = journal
        self.path = path
        self.outcomes: dict[str, Outcome] = {}
        self.screened: dict[str, dict[str, float]] = {}
        self.untried = 0
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.spaces: list[Space] = []

    @property
    def gain(self) -> float:
        """The best ratio to the default that the screening saw in any regime."""
        return max((ratio for ratios in self.screened.values() for ratio in ratios.values()), default=1.0)

    def report(self, result: Result | None, problem: str, path: Path | None = None) -> Report:
        """The report, with what became of each candidate."""
        seconds = {name: round(taken, 3) for name, taken in self.seconds.items()}
        return Report(
            self.target.key, result, problem, told(self.outcomes, result, self.screened), str(path or ""), seconds,
            self.untried,
        )  # fmt: skip


def tune(
    chosen: Sequence[Target], observer: Observer, settings: Settings = DEFAULTS, *, stop: Stop | None = None,
    spaces: list[Space] | None = None,
) -> Iterator[Report]:  # fmt: skip
    """Tunes targets and writes each result at once. Yields what came of each.

    `spaces`, when given, is filled with samples of all candidates that passed, for simulations.
    """
    return Tuning(chosen, observer, settings, Stop() if stop is None else stop, spaces).run()


class Tuning:
    """One run over some targets."""

    def __init__(
        self, chosen: Sequence[Target], observer: Observer, settings: Settings, stop: Stop, spaces: list[Space] | None
    ) -> None:
        self.observer = observer
        self.settings = settings
        self.effort = EFFORTS[settings.effort]
        self.stop = stop
        self.spaces = spaces
        self.box = this_box()
        self.budget = Budget(self.effort, len(chosen), settings.budget_s, now_s)
        self.journals: dict[Path, Journal] = {}
        self.limit_at = _after(now_s(), self.budget.limit_s)
        self.draw_at = 0.0
        self.start_up_s = 0.0
        self.kept: set[Path] = set()
        self.steps = (0, len(chosen) * (2 if spaces is None else 3))
        self.prospects = [self._prospect(target) for target in chosen]

    def _prospect(self, target: Target) -> Prospect:
        path = target_manifest(target.spec.scope, self.box)
        if path not in self.journals:
            self.journals[path] = Journal(path_for(path))
        return Prospect(target, self.journals[path], path)

    def run(self) -> Iterator[Report]:
        """Screens all, then holds the finals, the largest gain first."""
        ready: list[Prospect] = []
        try:
            for done, prospect in enumerate(self.prospects):
                if problem := self._screen(prospect, len(self.prospects) - done):
                    yield prospect.report(None, problem)
                else:
                    ready.append(prospect)
            ready.sort(key=lambda prospect: -prospect.gain)
            for done, prospect in enumerate(ready):
                yield self._final(prospect, [waiting.gain for waiting in ready[done:]])
            for prospect in ready if self.spaces is not None else ():
                self._record(prospect)
        finally:
            for journal in self.journals.values():
                journal.close()

    def _screen(self, prospect: Prospect, waiting: int) -> str:
        """Gates and screens the candidates of a target. Returns what keeps it from a final, or "".

        When the time for screening has run out, those that were screened have their finals, and the rest waits.
        """
        seconds = self.budget.screening_s(waiting)
        limit = self.budget.screening_limit_s(waiting)
        if limit is not None and limit <= 0:
            return "the budget ended before its turn"
        if word := caution(prospect.target.spec, this_box(), seconds):
            log.warning("%s", word)
        self.limit_at = _after(now_s(), limit)
        result = self._result(prospect, "screen", seconds, "its turn")
        self.limit_at = _after(now_s(), self.budget.limit_s)
        if isinstance(result, str):
            return result
        prospect.untried = result.untried
        if result.stopped and (self.stop or not _default_is_known(prospect)):
            return f"{result.stopped} before its final"
        return nothing_left(prospect.outcomes, prospect.untried)

    def _final(self, prospect: Prospect, gains: Sequence[float]) -> Report:
        result = self._result(prospect, "final", self.budget.final_s(gains), "its final")
        if isinstance(result, str):
            return prospect.report(None, result)
        if not result.regimes:
            return prospect.report(None, f"{result.stopped} before its final was decided")
        problem = f"{result.stopped} before all regimes were decided" if result.stopped else ""
        if (noise := _too_noisy(result)) and not self.settings.noisy_ok:
            report = prospect.report(_without_samples(result), f"refused, nothing is written: {noise}")
            return msgspec.structs.replace(report, refused=True)
        try:
            path = self._save(prospect, result)
        except TunegenError as error:
            return prospect.report(_without_samples(result), f"not saved: {error}")
        return prospect.report(_without_samples(result), problem, path)

    def _record(self, prospect: Prospect) -> None:
        """Samples all candidates of a target that passed. No budget holds for that."""
        assert self.spaces is not None
        result = self._result(prospect, "record", 0.0, "its recording")
        if isinstance(result, str) or result.stopped:
            log.warning("%s is not recorded: %s", prospect.target.key, getattr(result, "stopped", result))
        else:
            self.spaces += prospect.spaces

    def _save(self, prospect: Prospect, result: Result) -> Path:
        """Writes the entry. In a regime that was not decided, what was tuned before stays. Raises `TunegenError`."""
        spec, element_type = prospect.target.spec, prospect.target.element_type
        decided = {regime.condition: (regime.winner, regime.evidence) for regime in result.regimes}
        if result.stopped:
            decided = kept_winners(prospect.path, spec, element_type, incumbents(prospect.target)) | decided
        winners = {condition: winner for condition, (winner, _) in decided.items()}
        evidence = {condition: evidence for condition, (_, evidence) in decided.items()}
        entry = entry_for(spec, element_type, self.box, winners, evidence)
        if prospect.path not in self.kept:
            self.kept.add(prospect.path)
            history.keep(prospect.path)
        path = write_entry(spec, element_type, self.box, entry)
        samples = {r.condition: {"final": r.samples, "confirm": r.confirmation} for r in result.regimes}
        write_samples(path, prospect.target.key, entry.digest, samples)
        return path

    def _result(self, prospect: Prospect, stage: Stage, seconds: float, what: str) -> Result | str:
        """What a stage came to, or why it came to nothing."""
        step, total = self.steps
        self.steps = (step + 1, total)
        if self.stop:
            return f"interrupted before {what}"
        if self.budget.over and stage != "record":
            return f"the budget ended before {what}"
        try:
            return self._survive(prospect, stage, now_s() + seconds, step)
        except WorkerError as error:
            return str(error)

    def _survive(self, prospect: Prospect, stage: Stage, end: float, step: int) -> Result:
        """Runs workers until one comes to the end of its stage: each death costs the candidate that was being tried."""
        spec = prospect.target.spec
        if reason := refusal(spec):
            raise WorkerError(reason)
        while True:
            ended = self._hear(prospect, self._job(prospect, stage, max(end - now_s() - self.start_up_s, 0.0)), step)
            if isinstance(ended, Result):
                return ended
            if self.stop:
                raise WorkerError("interrupted")
            trying, reason = ended.trying, ended.died.reason
            if trying is None:
                raise WorkerError(f"the worker for {prospect.target.key} could not start: {reason}")
            before = prospect.outcomes.get(trying.suffix)
            if before is not None and before.state not in ("passed", "not tried"):
                raise WorkerError(f"the workers for {prospect.target.key} keep dying of {trying.suffix}: {reason}")
            if trying.suffix == REFERENCE:
                raise WorkerError(f"the reference itself ended a worker: {reason}")
            outcome = charge(trying.stage, trying.detail, ended.died)
            prospect.outcomes[trying.suffix] = outcome
            prospect.journal.outcome(prospect.target.key, trying.suffix, trying.identity, outcome)
            log.warning("%s: %s %s: %s", prospect.target.key, trying.suffix, outcome.state, outcome.reason)

    def _job(self, prospect: Prospect, stage: Stage, seconds: float) -> Job:
        spec, key = prospect.target.spec, prospect.target.key
        unfit = {suffix: outcome for suffix, outcome in prospect.outcomes.items() if outcome.state != "passed"}
        passed = [suffix for suffix, outcome in prospect.outcomes.items() if outcome.state == "passed"]
        # a worker's clock starts when it is ready
        limit = self.limit_at - now_s() - self.start_up_s if self.limit_at is not None and stage != "record" else None
        screened = {condition: dict(ratios) for condition, ratios in prospect.screened.items()}
        return Job(
            spec.scope, spec.module, spec.name, prospect.target.element_type.name, seconds, self.effort.pairs,
            self.effort.finalists, unfit, passed, incumbents(prospect.target), stage,
            limit,
            prospect.journal.known(key), prospect.journal.order(key), screened, prospect.untried,
        )  # fmt: skip

    def _hear(self, prospect: Prospect, job: Job, step: int) -> Result | Death:
        """Listens to one worker. Raises `WorkerError` when the job cannot be done at all."""
        key, booked, mark = prospect.target.key, "start-up", now_s()
        trying: Trying | None = None
        before = prospect.seconds[booked]
        try:
            for message in messages(job, self.stop, self.settings.silence_s):
                prospect.seconds[booked] += now_s() - mark
                mark = now_s()
                match message:
                    case Ready():
                        self.start_up_s = prospect.seconds[booked] - before
                        booked = "gate" if job.stage == "screen" else "start-up"
                    case Trying(suffix=suffix, stage=stage, done=done, total=total):
                        trying = message
                        booked, low, high = STAGES.get(stage, STAGES["gate"])
                        if mark >= self.draw_at:
                            self.draw_at = mark + DRAW_EVERY_S
                            part = low + (high - low) * done / max(total, 1)
                            self.observer(Event(key, stage, suffix, part, step, self.steps[1]))
                    case Candidate(suffix=suffix, outcome=outcome, identity=identity):
                        prospect.outcomes[suffix] = outcome
                        prospect.journal.outcome(key, suffix, identity, outcome)
                    case Screened(condition=condition, suffix=suffix, ratio=ratio):
                        prospect.screened.setdefault(condition, {})[suffix] = ratio
                        prospect.journal.screened(key, condition, suffix, ratio)
                    case Recorded(condition=condition, default=default, cases=cases, samples=samples):
                        incumbent = job.incumbents.get(condition, "")
                        prospect.spaces.append(Space(key, condition, tuple(cases), default, samples, incumbent))
                    case Failed(reason=reason):
                        raise WorkerError(reason)
                    case Result():
                        return message
                    case Died():
                        return Death(message, trying)
        finally:
            prospect.seconds[booked] += now_s() - mark
        raise WorkerError(f"the worker for {key} said nothing")


def _after(now: float, seconds: float | None) -> float | None:
    return now + seconds if seconds is not None else None


def _default_is_known(prospect: Prospect) -> bool:
    """Whether all that an untuned box could run went through the gate, so that a final has the right baseline."""
    chain = {item.suffix for item in prospect.target.spec.fallback.items} - {REFERENCE}
    return chain <= prospect.outcomes.keys()


def _too_noisy(result: Result) -> str:
    """Why the box was not fit to measure on, in the words of the probe; "" when it was."""
    seen = [regime.noise for regime in result.regimes if regime.noise is not None and regime.noise.verdict == "refused"]
    return seen[0].reason or "too noisy" if seen else ""


def _without_samples(result: Result) -> Result:
    """A result as a report has it: the samples are in their own file."""
    regimes = [msgspec.structs.replace(regime, samples={}, confirmation={}) for regime in result.regimes]
    return msgspec.structs.replace(result, regimes=regimes)


class Death(NamedTuple):
    """A worker died, and what it was trying."""

    died: Died
    trying: Trying | None
