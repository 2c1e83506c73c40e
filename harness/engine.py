"""The engine: the tuning parent. It plans, has a worker run each stage of each kernel, and writes what it found.

First all kernels are gated and screened, so that it is known what each can gain; then the finals have the time that is
left, in proportion. One worker runs at a time, so that nothing overlaps a timing. The parent never runs a candidate.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from tunegen import knobs
from tunegen.box import this_box
from tunegen.errors import TunegenError, WorkerError
from tunegen.harness import history
from tunegen.harness.candidates import caution
from tunegen.harness.crew import Crew
from tunegen.harness.journal import Journal, path_for, write_samples
from tunegen.harness.measure import now_s
from tunegen.harness.outcomes import nothing_left
from tunegen.harness.pacing import Pace
from tunegen.harness.plan import EFFORTS, Budget
from tunegen.harness.prospect import Prospect
from tunegen.harness.protocol import Result, Stage
from tunegen.harness.report import Observer, Report
from tunegen.harness.simulate import Space
from tunegen.harness.spawn import SILENCE_S, Stop
from tunegen.harness.target import standing
from tunegen.public.record import entry_for, kept_winners, write_entry
from tunegen.public.sources import target_manifest
from tunegen.public.target import Target

log = logging.getLogger("tunegen")


class Settings(NamedTuple):
    """How a run goes. `budget_s` is wall time; `noisy_ok` writes what was measured on a box that is too noisy.

    With `again`, candidates that timed out in an earlier run are tried once more.
    """

    effort: str = "normal"
    budget_s: float | None = None
    silence_s: float = SILENCE_S
    noisy_ok: bool = False
    again: bool = False


DEFAULTS = Settings()


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
        self.settings = settings
        self.stop = stop
        self.spaces = spaces
        self.box = this_box()
        self.pace = Pace(knobs.SHARE.get(), now_s)
        effort = EFFORTS[settings.effort]
        self.budget = Budget(effort, len(chosen), settings.budget_s, self.pace)
        stages = len(chosen) * (2 if spaces is None else 3)
        self.crew = Crew(effort, observer, stop, settings.silence_s, stages, self.pace, again=settings.again)
        self.crew.limit_at = _after(now_s(), self.budget.limit_s)
        self.journals: dict[Path, Journal] = {}
        self.kept: set[Path] = set()
        self.prospects = [self._prospect(target) for target in chosen]

    def _prospect(self, target: Target) -> Prospect:
        path = target_manifest(target.spec.scope, self.box)
        place = path_for(path, target.spec.scope)
        if place not in self.journals:
            self.journals[place] = Journal(place)
        return Prospect(target, self.journals[place], path)

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
            self.pace.rest(lambda: bool(self.stop) or self.budget.over)
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
        self.crew.limit_at = _after(now_s(), limit)
        result = self._result(prospect, "screen", seconds, "its turn")
        self.crew.limit_at = _after(now_s(), self.budget.limit_s)
        if isinstance(result, str):
            return result
        prospect.untried = result.untried
        if result.stopped and (self.stop or not prospect.default_is_known):
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
            decided = kept_winners(prospect.path, spec, element_type, standing(prospect.target)) | decided
        winners = {condition: winner for condition, (winner, _) in decided.items()}
        evidence = {condition: evidence for condition, (_, evidence) in decided.items()}
        entry = entry_for(spec, element_type, self.box, winners, evidence)
        if prospect.path not in self.kept:
            self.kept.add(prospect.path)
            history.keep(prospect.path, spec.scope)
        path = write_entry(spec, element_type, self.box, entry)
        samples = {r.condition: {"final": r.samples, "confirm": r.confirmation} for r in result.regimes}
        write_samples(path, spec.scope, prospect.target.key, entry.digest, samples)
        return path

    def _result(self, prospect: Prospect, stage: Stage, seconds: float, what: str) -> Result | str:
        """What a stage came to, or why it came to nothing."""
        step = self.crew.skip()
        if self.stop:
            return f"interrupted before {what}"
        if self.budget.over and stage != "record":
            return f"the budget ended before {what}"
        try:
            return self.crew.survive(prospect, stage, self.pace.working_s() + seconds, step)
        except WorkerError as error:
            return str(error)


def _after(now: float, seconds: float | None) -> float | None:
    return now + seconds if seconds is not None else None


def _too_noisy(result: Result) -> str:
    """Why the box was not fit to measure on, in the words of the probe; "" when it was."""
    seen = [regime.noise for regime in result.regimes if regime.noise is not None and regime.noise.verdict == "refused"]
    return seen[0].reason or "too noisy" if seen else ""


def _without_samples(result: Result) -> Result:
    """A result as a report has it: the samples are in their own file."""
    regimes = [msgspec.structs.replace(regime, samples={}, confirmation={}) for regime in result.regimes]
    return msgspec.structs.replace(result, regimes=regimes)
