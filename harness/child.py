"""One examination in a forked child, so that what crashes, hangs or strays beyond its operands costs itself alone."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress

import msgspec

from tunegen.harness.limits import end_with_parent
from tunegen.harness.protocol import Outcome

SILENT_S = 120.0
"""How long a variant may take for one step, to be compiled or to answer one problem."""

Examine = Callable[[Callable[[str, str], None]], Outcome]
"""Finds out about something. It calls what it is given with a stage and a label before each step."""


class Step(msgspec.Struct, frozen=True, tag=True):
    """What the child is about to do."""

    stage: str
    label: str


class End(msgspec.Struct, frozen=True, tag=True):
    """What the child found."""

    outcome: Outcome


def in_child(examine: Examine, silent_s: float = SILENT_S) -> Outcome:
    """What `examine` returns in a child process; a crash, and a step longer than `silent_s`, are outcomes as well.

    The child ends with this wait, however that ends, and with this process. Where nothing can be forked, it is done
    here.
    """
    if not hasattr(os, "fork"):
        return examine(lambda stage, label: None)
    reading, writing = os.pipe()
    parent, child = os.getpid(), os.fork()
    if child == 0:
        _run_and_exit(examine, writing, parent)
    os.close(writing)
    silent = True
    try:
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            said, silent = _listen(pipe.fileno(), silent_s)
    finally:
        if silent:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return _outcome(said[-1] if said else Step("start", ""), code, silent_s if silent else 0.0)


def _outcome(last: Step | End, code: int, silent_s: float) -> Outcome:
    """What the last word of a child and its exit code say. `silent_s` is how long it was silent, 0 if it was not."""
    if isinstance(last, End):
        return last.outcome
    where = f"{last.stage}: {last.label}" if last.label else last.stage
    if silent_s:
        return Outcome("timed out", f"{where}: nothing for {silent_s:g} s")
    return Outcome("crashed", f"{where}: {signal.Signals(-code).name if code < 0 else f'exit code {code}'}")


def _run_and_exit(examine: Examine, writing: int, parent: int) -> None:
    def say(message: Step | End) -> None:
        os.write(writing, msgspec.json.encode(message) + b"\n")

    try:
        end_with_parent(parent)
        say(End(examine(lambda stage, label: say(Step(stage, label)))))
    finally:
        os._exit(1)


def _listen(pipe: int, silent_s: float) -> tuple[list[Step | End], bool]:
    """The last word of a child, and whether it was silent for too long."""
    decoder, rest, last = msgspec.json.Decoder(Step | End), b"", b""
    while select.select([pipe], [], [], silent_s)[0]:
        data = os.read(pipe, 1 << 16)
        if not data:
            return ([decoder.decode(last)] if last else []), False
        *whole, rest = (rest + data).split(b"\n")
        last = whole[-1] if whole else last
    return ([decoder.decode(last)] if last else []), True
