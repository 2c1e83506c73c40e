"""A scope's tuner in a child process: what is started, under which environment, and how it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, NamedTuple, NoReturn

from tunegen import forks, knobs, log
from tunegen.box import this_box
from tunegen.public.host import interpreter
from tunegen.public.scope import Scope
from tunegen.public.sources import target_manifest

GRACE_S = 10.0
"""How long a tuner has to save what it found, after it was told to end."""
NICE = 10
"""Of a tuner beside a program that serves. Where all cores are busy it has a tenth of one: with less, as at 19 or in
the class of idle work, such a program would never be tuned.
"""
LONGEST_LINE = 4096
LONGEST_POLL_MS = (1 << 31) - 1
REFUSED, INTERRUPTED = 3, (130, 143)


class Signalled(BaseException):
    """A signal came that ends this process. The argument is its number."""


class Ended(NamedTuple):
    """How a tuner ended: `problem` says what was wrong, "" when nothing was.

    `cut` when it did not come to its end, so that another try may find more; `stopped` when this program wanted that.
    """

    problem: str = ""
    cut: bool = False
    stopped: bool = False


class Job(NamedTuple):
    """What a tuner does: the `keys` ("gemm[f32]") of a scope, in `timeout_s` seconds at most.

    `budget_s` is the time in which it is asked to be ready. With a `share` it works beside this program while that
    serves: at a low priority, for this share of one core, and however noisy the box is.
    """

    scope: Scope
    keys: Sequence[str]
    timeout_s: float
    retune: bool = False
    budget_s: float | None = None
    share: float | None = None

    @property
    def arguments(self) -> list[str]:
        """What stands on the tuner's command line."""
        words = ["--only", ",".join(self.keys)]
        words += ["--retune"] if self.retune else []
        words += ["--noisy-ok"] if self.share is not None else []
        return words + (["--budget", f"{self.budget_s:.3f}s"] if self.budget_s is not None else [])

    @property
    def environment(self) -> dict[str, str]:
        """Winners are for the box that this program saw when it started, and go where it looks first."""
        box = this_box()
        place = {
            knobs.MANIFEST.name: str(target_manifest(self.scope.name, box)),
            knobs.THREADS.name: str(box.threads),
        }
        return environment() | place | ({knobs.SHARE.name: str(self.share)} if self.share is not None else {})


def command(scope: Scope, arguments: Sequence[str]) -> list[str]:
    """The tuner of a scope as an argument list: its script, or the standard one."""
    script = [str(scope.tuner)] if scope.tuner else ["-m", "tunegen.harness", scope.module]
    return [interpreter() or sys.executable, "-P", *script, *arguments]


def environment() -> dict[str, str]:
    """The environment of a tuner: it finds what this process can import, and nothing in it tunes by itself.

    What it says is logged here, at the level that holds here.
    """
    folders = os.pathsep.join(folder for folder in sys.path if isinstance(folder, str))
    own = {knobs.PARENT.name: str(os.getpid()), knobs.LOG.name: ""}
    return knobs.child_environment(TUNE_MODE="tune", PYTHONPATH=folders, **own)


class Tuner:
    """A tuner at work. What it says goes to the log. Raises `OSError` or `ValueError` when it cannot be started."""

    def __init__(self, job: Job) -> None:
        # a child that is forked meanwhile would keep the pipe open
        with forks.LOCK:
            self._process = subprocess.Popen(
                command(job.scope, job.arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env=job.environment, process_group=0,
            )  # fmt: skip
        if job.share is not None:
            _lower(self._process.pid)
        self._job = job
        self._said: deque[str] = deque(maxlen=40)
        self._stopped = False

    def wait(self) -> Ended:
        """Waits for its end. It ends with this wait, however that ends."""
        said, pipe = self._said, self._process.stdout
        reader = threading.Thread(
            target=_read, args=(pipe, self._job.scope.name, said), name="tunegen-tuner", daemon=True
        )
        hanging = False
        try:
            with _signals_raise():
                reader.start()
                _await(self._process, self._job.timeout_s)
        except subprocess.TimeoutExpired:
            hanging = True
        except RuntimeError as error:
            # no thread begins in a program that ends
            return Ended(f"its tuner could not be listened to: {error}", cut=True, stopped=self._stopped)
        finally:
            _end(self._process, GRACE_S)
            # what it left behind
            _kill_group(self._process)
            if reader.ident is not None:
                # what left the group may keep the pipe open
                reader.join(GRACE_S)
        if hanging:
            return Ended(f"its tuner was not ready after {self._job.timeout_s:g} s", cut=True)
        ended = _ending(self._process.returncode, said)
        # the system tells no exit code to who ignores the end of children
        unknown = signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
        return ended._replace(cut=ended.cut or unknown, stopped=self._stopped)

    def stop(self, grace_s: float) -> None:
        """Ends it while another thread waits for it: what it found by now is saved in `grace_s` seconds, or not."""
        self._stopped = True
        _end(self._process, grace_s)


def run(job: Job, hold: Callable[[Tuner], None] = lambda tuner: None) -> Ended:
    """Runs a tuner, for its time at most. `hold` gets it while it is at work, so that it can be stopped.

    Raises nothing but what interrupts this process.
    """
    if problem := _unfit(job.scope):
        return Ended(problem)
    try:
        tuner = Tuner(job)
    except (OSError, ValueError) as error:
        return Ended(f"its tuner could not be started: {error}", cut=True)
    try:
        hold(tuner)
        return tuner.wait()
    except Signalled as signalled:
        os.kill(os.getpid(), signalled.args[0])
        raise


def _unfit(scope: Scope) -> str:
    if not interpreter():
        return "no Python interpreter was found to run its tuner with"
    if scope.module == "__main__" and scope.tuner is None:
        return "it is declared in a script or a notebook, which a tuner cannot import: move it to a module"
    return ""


def _lower(pid: int) -> None:
    """Lets a process, and all that it will start, stand back. Where the system refuses, it stands as this program."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, NICE)
    if sys.platform == "linux":
        # who wakes up in this class takes the core from nobody
        with suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))


def _await(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """Waits for the end of a process: without waking up in between, where the system can say when that is.

    Raises `subprocess.TimeoutExpired`.
    """
    if sys.platform != "linux":
        process.wait(timeout_s)
        return
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        process.wait(timeout_s)
        return
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        if not poll.poll(min(timeout_s * 1000, LONGEST_POLL_MS)):
            raise subprocess.TimeoutExpired("tuner", timeout_s)
    finally:
        os.close(handle)
    process.wait()


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Has SIGTERM and SIGHUP, where they would end this process at once, end what it waits for first."""
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    try:
        for number in numbers:
            signal.signal(number, _raise)
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _raise(number: int, _: FrameType | None) -> NoReturn:
    raise Signalled(number)


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """Ends a tuner that still runs: first it is asked, so that it saves what it has, then all of its group ends."""
    if process.poll() is not None:
        return
    try:
        process.terminate()
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _kill_group(process)
        process.wait()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kills what is left of the group of a tuner: the number of a group is nobody else's while it has members."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _read(pipe: IO[bytes], scope: str, said: deque[str]) -> None:
    with suppress(OSError, ValueError), pipe:
        for data in iter(lambda: pipe.readline(LONGEST_LINE), b""):
            line = data.decode(errors="backslashreplace").rstrip()
            if line:
                said.append(line)
                log.info("tuner of %s: %s", scope, line)


def _ending(code: int, said: Sequence[str]) -> Ended:
    if code == 0:
        return Ended()
    if code == REFUSED:
        return Ended("its tuner refused: this box is too noisy to measure on", cut=True)
    if code < 0 or code in INTERRUPTED:
        return Ended(f"its tuner was ended by signal {-code if code < 0 else code - 128}", cut=True)
    telling = [line for line in said if "error" in line.lower()] or list(said)
    return Ended(f"its tuner failed with exit code {code}{f': {telling[-1].strip()[:300]}' if telling else ''}")
