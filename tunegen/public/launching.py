"""A scope's tuner in a child process: what is started, under which environment, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, NamedTuple, NoReturn

from tunegen import knobs, log
from tunegen.box import this_box
from tunegen.public.host import interpreter
from tunegen.public.scope import Scope
from tunegen.public.sources import target_manifest

GRACE_S = 10.0
"""How long a tuner has to save what it found, after it was told to end."""
LONGEST_LINE = 4096
REFUSED, INTERRUPTED = 3, (130, 143)


class Signalled(BaseException):
    """A signal came that ends this process. The argument is its number."""


class Ended(NamedTuple):
    """How a tuner ended: `problem` says what was wrong, "" when nothing was.

    `cut` when it did not come to its end, so that another try may find more.
    """

    problem: str = ""
    cut: bool = False


def command(scope: Scope, arguments: Sequence[str]) -> list[str]:
    """The tuner of a scope as an argument list: its script, or the standard one."""
    script = [str(scope.tuner)] if scope.tuner else ["-m", "tunegen.harness", scope.module]
    return [interpreter() or sys.executable, "-P", *script, *arguments]


def environment() -> dict[str, str]:
    """The environment of a tuner: it finds what this process can import, and nothing in it tunes by itself."""
    folders = os.pathsep.join(folder for folder in sys.path if isinstance(folder, str))
    return knobs.child_environment(TUNE_MODE="tune", PYTHONPATH=folders, **{knobs.PARENT.name: str(os.getpid())})


def run(scope: Scope, keys: Sequence[str], *, retune: bool, budget_s: float | None, timeout_s: float) -> Ended:
    """Runs the tuner of a scope for `keys` ("gemm[f32]"), for `timeout_s` seconds at most, and logs what it says.

    `budget_s` is the time in which the tuner is asked to be ready. Raises nothing but what interrupts this process.
    """
    if problem := _unfit(scope):
        return Ended(problem)
    arguments = ["--only", ",".join(keys)] + (["--retune"] if retune else [])
    arguments += ["--budget", f"{budget_s:.3f}s"] if budget_s is not None else []
    # winners go where this program looks first, which the tuner cannot know
    place = {knobs.MANIFEST.name: str(target_manifest(scope.name, this_box()))}
    try:
        process = subprocess.Popen(
            command(scope, arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**environment(), **place}, process_group=0,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return Ended(f"its tuner could not be started: {error}", cut=True)
    try:
        return _heard(process, scope.name, timeout_s)
    except Signalled as signalled:
        os.kill(os.getpid(), signalled.args[0])
        raise


def _unfit(scope: Scope) -> str:
    if not interpreter():
        return "no Python interpreter was found to run its tuner with"
    if scope.module == "__main__" and scope.tuner is None:
        return "it is declared in a script or a notebook, which a tuner cannot import: move it to a module"
    return ""


def _heard(process: subprocess.Popen[bytes], scope: str, timeout_s: float) -> Ended:
    """Waits for a tuner and logs its lines. It is ended with this wait, however that ends."""
    said: deque[str] = deque(maxlen=40)
    assert process.stdout is not None
    reader = threading.Thread(target=_read, args=(process.stdout, scope, said), name="tunegen-tuner", daemon=True)
    hanging = False
    try:
        with _signals_raise():
            reader.start()
            process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        hanging = True
    except RuntimeError as error:
        return Ended(f"its tuner could not be listened to: {error}", cut=True)
    finally:
        _end(process)
        if reader.ident is not None:
            # a process that the tuner left behind may keep the pipe open
            reader.join(GRACE_S)
    if hanging:
        return Ended(f"its tuner was not ready after {timeout_s:g} s", cut=True)
    return _ending(process.returncode, said)


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


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a tuner that still runs: first it is asked, so that it saves what it has, then all of its group ends."""
    if process.poll() is not None:
        return
    try:
        process.terminate()
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


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
