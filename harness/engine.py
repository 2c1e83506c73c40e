"""The engine: the tuning parent. It plans, spawns a worker per kernel, survives it, and writes what it found.

The parent never runs a candidate.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from tunegen import knobs
from tunegen.box import this_box
from tunegen.errors import StoreError, TunegenError, WorkerError
from tunegen.harness.measure import now_s
from tunegen.harness.protocol import Candidate, Failed, Job, Message, Outcome, Result, Trying
from tunegen.making.spec import Spec
from tunegen.public.kernel import KernelMethods
from tunegen.public.record import entry_for, write_entry
from tunegen.public.scope import Scope
from tunegen.public.status import tune_status
from tunegen.signature import ElementType

log = logging.getLogger("tunegen")

SILENCE_S = 120.0
"""A worker that says nothing for this long hangs in a candidate."""
LONGEST_MESSAGE = 16 << 20


class Effort(NamedTuple):
    """How thorough a race is."""

    pairs: int
    finalists: int
    seconds: float
    """Wall time per kernel when no budget is given."""


EFFORTS = {"quick": Effort(9, 3, 6.0), "normal": Effort(15, 4, 15.0), "thorough": Effort(31, 6, 60.0)}


class Target(NamedTuple):
    """One kernel and element type."""

    kernel: KernelMethods
    element_type: ElementType

    @property
    def spec(self) -> Spec:
        """The kernel's declaration."""
        return self.kernel.spec

    @property
    def key(self) -> str:
        """`gemm[f32]`."""
        return self.spec.key(self.element_type)


class Event(msgspec.Struct, frozen=True):
    """Progress, for whoever draws it. `part` is how much of this kernel's work is done, from 0 to 1."""

    key: str
    stage: str
    detail: str = ""
    part: float = 0.0
    index: int = 0
    total: int = 0


class Report(msgspec.Struct, frozen=True):
    """What came of one kernel and element type: a result or a problem, and each candidate's outcome."""

    key: str
    result: Result | None
    problem: str
    outcomes: dict[str, Outcome]
    path: str = ""


Observer = Callable[[Event], None]
STAGES = {
    "gate": (0.0, 0.5),
    "screen": (0.5, 0.65),
    "reference": (0.65, 0.7),
    "final": (0.7, 0.9),
    "confirm": (0.9, 1.0),
}
"""Which part of a kernel's work a stage is, for the progress bar."""


def targets(scope: Scope, only: Sequence[str] = (), *, retune: bool = False) -> list[Target]:
    """What there is to tune in a scope: all that is not tuned, or all with `retune`, out of `only` when given."""
    tuned = {(row.kernel, row.element_type) for row in tune_status(scope.name) if row.tuned and not retune}
    found = [
        Target(kernel, t)
        for kernel in scope.kernels.values()
        for t in kernel.signature.element_types
        if kernel.spec.cases and (not only or kernel.name in only or kernel.spec.key(t) in only)
    ]
    return [target for target in found if (target.kernel.name, target.element_type.name) not in tuned]


def incumbents(target: Target) -> dict[str, str]:
    """What was tuned for a target before and still runs, by regime: tried first, and preferred in a tie."""
    stamp = target.kernel.stamp.get(target.element_type.name)
    return {c.condition: c.emitted for c in stamp.choices if c.tuned and c.emitted} if stamp is not None else {}


def tune(
    chosen: Sequence[Target], observer: Observer, *, effort: str = "normal", budget_s: float | None = None
) -> Iterator[Report]:
    """Tunes one target after the other, and writes each result at once. Yields what came of each."""
    end = now_s() + budget_s if budget_s is not None else None
    for index, target in enumerate(chosen):
        left = len(chosen) - index
        seconds = (end - now_s()) / left if end is not None else EFFORTS[effort].seconds
        if seconds <= 0:
            yield Report(target.key, None, "the budget ended before its turn", {})
            continue

        def draw(stage: str, detail: str, part: float, index: int = index, key: str = target.key) -> None:
            observer(Event(key, stage, detail, part, index, len(chosen)))

        yield _tune_one(target, draw, EFFORTS[effort], seconds)


def _tune_one(target: Target, draw: Callable[[str, str, float], None], effort: Effort, seconds: float) -> Report:
    outcomes: dict[str, Outcome] = {}
    start = now_s()
    try:
        result = _race(target, draw, effort, start, seconds, outcomes)
    except WorkerError as error:
        return Report(target.key, None, str(error), outcomes)
    winners = {regime.condition: regime.winner for regime in result.regimes}
    evidence = {regime.condition: regime.evidence for regime in result.regimes}
    try:
        box = this_box()
        path = write_entry(target.spec, target.element_type, box,
                           entry_for(target.spec, target.element_type, box, winners, evidence))  # fmt: skip
    except (StoreError, TunegenError) as error:
        return Report(target.key, result, f"not saved: {error}", outcomes)
    draw("done", "", 1.0)
    return Report(target.key, result, "", outcomes, str(path))


def _race(
    target: Target, draw: Callable[[str, str, float], None], effort: Effort, start: float, seconds: float,
    outcomes: dict[str, Outcome],
) -> Result:  # fmt: skip
    """Runs workers until one comes to a result: each death costs the candidate that was being tried."""
    spec = target.spec
    if spec.module == "__main__":
        raise WorkerError(f"{spec.name} is declared in a script, which workers cannot import: move it to a module")
    for _ in range(len(spec.grid) + 1):
        unfit = {suffix: outcome for suffix, outcome in outcomes.items() if outcome.state != "passed"}
        passed = [suffix for suffix, outcome in outcomes.items() if outcome.state == "passed"]
        left = max(seconds - (now_s() - start), 1.0)
        job = Job(
            spec.scope, spec.module, spec.name, target.element_type.name, left, effort.pairs, effort.finalists, unfit,
            passed, incumbents(target),
        )  # fmt: skip
        trying = ""
        for message in _messages(job):
            match message:
                case Result():
                    return message
                case Failed(reason=reason):
                    raise WorkerError(reason)
                case Candidate(suffix=suffix, outcome=outcome):
                    outcomes[suffix] = outcome
                case Trying(suffix=suffix, stage=stage, done=done, total=total):
                    trying = suffix
                    low, high = STAGES[stage]
                    draw(stage, suffix, low + (high - low) * done / max(total, 1))
                case Died(reason=reason):
                    if not trying:
                        raise WorkerError(f"the worker for {target.key} could not start: {reason}")
                    state = "timed out" if reason == HANGING else "crashed"
                    outcomes[trying] = Outcome(state, reason)
                    log.warning("%s: %s %s: %s", target.key, trying, state, reason)
    raise WorkerError(f"the workers for {target.key} kept dying")


class Died(NamedTuple):
    """The worker ended without a result."""

    reason: str


HANGING = f"silent for {SILENCE_S:g} s"


def _messages(job: Job) -> Iterator[Message | Died]:
    """What a fresh worker says about `job`; last a result, a failure, or its death."""
    reading, writing = os.pipe()
    command = [sys.executable, "-P", "-m", "tunegen.harness.worker", str(writing)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=[writing], start_new_session=True,
        env=knobs.child_environment(TUNE_MODE="tune", PYTHONPATH=os.pathsep.join(sys.path), **SINGLE_THREAD),
    )  # fmt: skip
    os.close(writing)
    last: Message | None = None
    try:
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(msgspec.json.encode(job))
        for line in _lines(reading):
            last = msgspec.json.decode(line, type=Message)
            yield last
        if not isinstance(last, Result | Failed):
            yield Died(_ending(process.wait(timeout=SILENCE_S)))
    except TimeoutError:
        yield Died(HANGING)
    except (BrokenPipeError, msgspec.DecodeError) as error:
        yield Died(f"{type(error).__name__}: {error}")
    finally:
        os.close(reading)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


SINGLE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A reference that calls numpy races on one thread, as the variants do."""


def _lines(reading: int) -> Iterator[bytes]:
    """Lines from a pipe until it closes. Raises `TimeoutError` when nothing comes for `SILENCE_S`."""
    buffer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        while True:
            if not selector.select(SILENCE_S):
                raise TimeoutError
            data = os.read(reading, 1 << 16)
            if not data or len(buffer) > LONGEST_MESSAGE:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            yield from lines


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"
