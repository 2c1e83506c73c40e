"""One worker process: started, listened to, told to stop, and ended with all that it started."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import IO, NamedTuple

import msgspec

from tunegen import knobs
from tunegen.box import effective_threads
from tunegen.harness.killed import Killer, killer, victims
from tunegen.harness.protocol import Failed, Job, Message, Result
from tunegen.harness.starving import Seen, hangs, look
from tunegen.making.spec import Spec

SILENCE_S = 120.0
"""A worker that says nothing for this long hangs in a candidate, unless it had no processor."""
LOOKS = 8
"""How often a worker is looked at in that time."""
LONGEST_MESSAGE = 16 << 20
LONGEST_WORDS = 4 << 10
SINGLE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""A reference that calls numpy races on one thread, as the variants do."""


class Died(NamedTuple):
    """The worker ended without a result. `hanging` when it had to be killed for its silence.

    `signal` is what ended it, "" for an exit of its own; `words` are the last that it wrote to stderr. `killer` is who
    sent a SIGKILL that was not ours.
    """

    reason: str
    hanging: bool = False
    signal: str = ""
    words: str = ""
    killer: Killer = "unknown"

    @property
    def telling(self) -> bool:
        """Whether the death says something about what was tried: a SIGKILL may have come from anybody."""
        return self.signal != "SIGKILL"


class Stop:
    """Whether the run was told to end. Signals set it, and it passes them on to the process that works for this one.

    `passed_on` is the signal that the child gets: SIGTERM ends a worker. 0 for the very one that came.
    """

    def __init__(self, passed_on: int = signal.SIGTERM) -> None:
        self.signum = 0
        self.passed_on = passed_on
        self.child: subprocess.Popen[bytes] | None = None

    def __bool__(self) -> bool:
        return self.signum != 0

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM."""
        return 128 + self.signum

    def ask(self, signum: int, _: FrameType | None = None) -> None:
        """A signal handler: the worker finishes its measurement. Asked again, everything ends at once."""
        again, self.signum = self.signum != 0, self.signum or signum
        self.pass_on()
        if again:
            raise KeyboardInterrupt

    def pass_on(self) -> None:
        """Tells the child, if there is one."""
        if self.signum and self.child is not None:
            with suppress(ProcessLookupError):
                os.kill(self.child.pid, self.passed_on or self.signum)

    @contextmanager
    def listening(self) -> Iterator[Stop]:
        """Catches SIGINT and SIGTERM inside the block."""
        before = {number: signal.signal(number, self.ask) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def messages(job: Job, stop: Stop, silence_s: float = SILENCE_S) -> Iterator[Message | Died]:
    """What a fresh worker says about `job`; last a result, a failure, or its death."""
    before = victims()
    with tempfile.TemporaryFile() as words:
        for heard in _conversation(job, stop, silence_s, words):
            if isinstance(heard, Died):
                heard = heard._replace(words=_last_words(words), killer=killer(before, victims()))
            yield heard


def _conversation(job: Job, stop: Stop, silence_s: float, words: IO[bytes]) -> Iterator[Message | Died]:
    reading, writing = os.pipe()
    command = [sys.executable, "-P", "-m", "tunegen.harness.worker", str(writing)]
    environment = knobs.child_environment(
        TUNE_MODE="tune", TUNE_THREADS=str(effective_threads()), PYTHONPATH=os.pathsep.join(sys.path), **SINGLE_THREAD
    )
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=words, pass_fds=[writing],
        start_new_session=True, env=environment,
    )  # fmt: skip
    os.close(writing)
    stop.child = process
    stop.pass_on()
    try:
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(msgspec.json.encode(job))
        yield from _heard(process, reading, silence_s)
    except TimeoutError:
        yield Died(f"silent for {silence_s:g} s", hanging=True)
    except (BrokenPipeError, msgspec.DecodeError) as error:
        yield Died(f"{type(error).__name__}: {error}")
    finally:
        os.close(reading)
        stop.child = None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _heard(process: subprocess.Popen[bytes], reading: int, silence_s: float) -> Iterator[Message | Died]:
    last: Message | None = None
    for line in _lines(reading, silence_s, lambda: look(process.pid)):
        last = msgspec.json.decode(line, type=Message)
        yield last
    if not isinstance(last, Result | Failed):
        try:
            yield _ending(process.wait(timeout=silence_s))
        except subprocess.TimeoutExpired:
            raise TimeoutError from None


def _lines(reading: int, silence_s: float, look: Callable[[], Seen]) -> Iterator[bytes]:
    """Lines from a pipe until it closes. Raises `TimeoutError` when nothing comes for `silence_s`, and it is a hang."""
    buffer, silent, first = b"", 0, Seen()
    with selectors.DefaultSelector() as selector:
        selector.register(reading, selectors.EVENT_READ)
        while True:
            if not selector.select(silence_s / LOOKS):
                silent, seen = silent + 1, look()
                first = seen if silent == 1 else first
                if silent >= LOOKS and hangs(first, seen, silence_s):
                    raise TimeoutError
                continue
            silent = 0
            data = os.read(reading, 1 << 16)
            if not data or len(buffer) > LONGEST_MESSAGE:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            yield from lines


def _ending(code: int) -> Died:
    if code >= 0:
        return Died(f"exit code {code}")
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = str(-code)
    return Died(f"signal {name}", signal=name)


def _last_words(stderr: IO[bytes]) -> str:
    """The telling line of what a worker wrote to stderr: the last one that names an error, else the last one."""
    end = stderr.seek(0, os.SEEK_END)
    stderr.seek(max(end - LONGEST_WORDS, 0))
    lines = [line.strip() for line in stderr.read(LONGEST_WORDS).decode(errors="replace").splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()]
    return (telling or lines or [""])[-1][:300]


def refusal(spec: Spec) -> str:
    """Why no worker can import a kernel, in words; "" when one can.

    A worker is a fresh process that imports the module that declares the kernel: nothing is forked.
    """
    if spec.module != "__main__":
        return ""
    if not getattr(sys.modules["__main__"], "__file__", None):
        where = "in an interactive session, a notebook or text given to python"
    else:
        where = "in a script"
    return f"{spec.name} is declared {where}, which workers cannot import: move it to a module"
