"""The crew: workers of a run, one at a time, each listened to until it is done or dead.

A death costs the candidate that was being tried, and a new worker goes on without it.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from tunegen.errors import WorkerError
from tunegen.grid import REFERENCE
from tunegen.harness.measure import now_s
from tunegen.harness.outcomes import charge
from tunegen.harness.pacing import Pace
from tunegen.harness.plan import Effort
from tunegen.harness.prospect import Prospect
from tunegen.harness.protocol import Candidate, Failed, Job, Ready, Recorded, Resting, Result, Screened, Stage, Trying
from tunegen.harness.report import Event, Observer
from tunegen.harness.simulate import Space
from tunegen.harness.spawn import Died, Stop, messages, refusal
from tunegen.harness.target import incumbents, suggested

log = logging.getLogger("tunegen")

STAGES = {
    "gate": ("gate", 0.0, 0.8),
    "screen": ("screen", 0.8, 1.0),
    "reference": ("screen", 0.0, 0.1),
    "heat": ("final", 0.1, 0.3),
    "final": ("final", 0.3, 0.7),
    "confirm": ("confirm", 0.7, 1.0),
    "record": ("record", 0.0, 1.0),
}
"""What the time of a stage is booked as, and which part of a worker's work it is, for the progress bar."""

DRAW_EVERY_S = 0.25
"""Progress is shown this often and no more: what draws it runs beside a timing."""


class Death(NamedTuple):
    """A worker died, and what it was trying."""

    died: Died
    trying: Trying | None


class Crew:
    """Runs the stages of a tune. `steps` is the number of the stage that is next, and how many there are.

    `limit_at` is when nothing may go on; None when the run is not limited. With `again`, candidates that timed out in
    an earlier run are tried once more.
    """

    def __init__(self, effort: Effort, observer: Observer, stop: Stop, silence_s: float, steps: int, pace: Pace,
                 *, again: bool) -> None:  # fmt: skip
        self.effort = effort
        self.observer = observer
        self.stop = stop
        self.silence_s = silence_s
        self.pace = pace
        self.again = again
        self.steps = (0, steps)
        self.limit_at: float | None = None
        self._draw_at = 0.0
        self._start_up_s = self._start_work_s = 0.0

    def skip(self) -> int:
        """Counts a stage, whether it is run or not, and returns its number."""
        step, total = self.steps
        self.steps = (step + 1, total)
        return step

    def survive(self, prospect: Prospect, stage: Stage, end: float, step: int) -> Result:
        """Runs workers until one comes to the end of its stage: each death costs the candidate that was being tried.

        `end` is on the clock of the pace. Raises `WorkerError` when the stage cannot be done.
        """
        spec = prospect.target.spec
        if reason := refusal(spec):
            raise WorkerError(reason)
        while True:
            self.pace.rest(lambda: bool(self.stop) or (self.limit_at is not None and now_s() > self.limit_at))
            seconds = max(end - self.pace.working_s() - self._start_work_s, 0.0)
            ended = self._hear(prospect, self._job(prospect, stage, seconds), step)
            if isinstance(ended, Result):
                return ended
            if self.stop:
                raise WorkerError("interrupted")
            self._charge(prospect, ended)

    def _charge(self, prospect: Prospect, death: Death) -> None:
        """Books a death. Raises `WorkerError` when no candidate can be blamed for it, or none is left to go on with."""
        key, trying, reason = prospect.target.key, death.trying, death.died.reason
        if trying is None:
            raise WorkerError(f"the worker for {key} could not start: {reason}")
        before = prospect.outcomes.get(trying.suffix)
        if before is not None and before.state not in ("passed", "not tried"):
            raise WorkerError(f"the workers for {key} keep dying of {trying.suffix}: {reason}")
        if trying.suffix == REFERENCE:
            raise WorkerError(f"the reference itself ended a worker: {reason}")
        outcome = charge(trying.stage, trying.detail, death.died)
        prospect.outcomes[trying.suffix] = outcome
        if death.died.telling:
            prospect.journal.outcome(key, trying.suffix, trying.identity, outcome)
        log.warning("%s: %s %s: %s", key, trying.suffix, outcome.state, outcome.reason)

    def _job(self, prospect: Prospect, stage: Stage, seconds: float) -> Job:
        spec, key = prospect.target.spec, prospect.target.key
        unfit = {suffix: outcome for suffix, outcome in prospect.outcomes.items() if outcome.state != "passed"}
        passed = [suffix for suffix, outcome in prospect.outcomes.items() if outcome.state == "passed"]
        # a worker's clock starts when it is ready
        limit = self.limit_at - now_s() - self._start_up_s if self.limit_at is not None and stage != "record" else None
        screened = {condition: dict(ratios) for condition, ratios in prospect.screened.items()}
        order = [*dict.fromkeys([*suggested(prospect.target), *prospect.journal.order(key)])]
        return Job(
            spec.scope, spec.module, spec.name, prospect.target.element_type.name, seconds, self.effort.pairs,
            self.effort.finalists, unfit, passed, incumbents(prospect.target), stage,
            limit,
            prospect.journal.known(key, again=self.again), order, screened, prospect.untried,
        )  # fmt: skip

    def _hear(self, prospect: Prospect, job: Job, step: int) -> Result | Death:
        """Listens to one worker. Raises `WorkerError` when the job cannot be done at all."""
        key, booked, mark = prospect.target.key, "start-up", now_s()
        trying: Trying | None = None
        before = prospect.seconds[booked]
        try:
            for message in messages(job, self.stop, self.silence_s):
                prospect.seconds[booked] += now_s() - mark
                mark = now_s()
                match message:
                    case Ready(used_s=used):
                        self._start_up_s = prospect.seconds[booked] - before
                        self._start_work_s = used if self.pace.rests else self._start_up_s
                        booked = "gate" if job.stage == "screen" else "start-up"
                    case Resting(seconds=rested):
                        prospect.seconds[booked] -= rested
                        prospect.seconds["rest"] += rested
                    case Trying():
                        trying = message
                        booked = STAGES.get(message.stage, STAGES["gate"])[0]
                        self._draw(key, message, mark, step)
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

    def _draw(self, key: str, trying: Trying, now: float, step: int) -> None:
        if now >= self._draw_at:
            self._draw_at = now + DRAW_EVERY_S
            _, low, high = STAGES.get(trying.stage, STAGES["gate"])
            part = low + (high - low) * trying.done / max(trying.total, 1)
            self.observer(Event(key, trying.stage, trying.suffix, part, step, self.steps[1]))
