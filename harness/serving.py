"""A serving loop while its kernels are tuned in the background: throughput, tail latency, and whether answers change.

`python -m tunegen.harness.serving [--workload untuned|block] [--threads N] [--seconds S] [--json]` starts a program
with manifests and an object cache of its own, in which threads serve one request after another under the policy `live`:
for S seconds before anything is tuned, while it is tuned, and for S seconds after. A request is a prompt of a
transformer block and some steps after it (`workloads/requests.py`), of the shipped kernels or of a library that has
nothing for an untuned box (`workloads/untuned.py`). Kernels run on one thread each.

While it is tuned, the tuner is held for a second (SIGSTOP) in every four, so that seconds with it and without it are
compared in pairs: that is what tuning costs a program that serves. It has its share of the whole time, so in the other
three it uses a third more.

Each answer is compared to the first one bit for bit, and to the gate of its kernel. The exit code is 1 when a request
failed or an answer is outside its gate.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Protocol, get_args

import msgspec

from tunegen import knobs
from tunegen.harness.latency import QUANTILES, Figures, Ratio, Span, compared, figures
from tunegen.harness.measure import Clock, clock, sleep_s
from tunegen.harness.spawn import SINGLE_THREAD
from tunegen.harness.tuner import seconds as duration
from tunegen.harness.workloads import untuned
from tunegen.harness.workloads.requests import ELEMENT_TYPE, WORKLOADS, Answer, Calls, Seen, answers
from tunegen.harness.workloads.server import Server
from tunegen.public.scope import find_scope

MODULE = "tunegen.harness.serving"
BEFORE, AT_WORK, HELD, AFTER = "before", "tuning", "held", "after"
PHASES = (BEFORE, AT_WORK, HELD, AFTER)
WORK_SLICES = 3
"""How many slices of time the tuner goes on for each one in which it is held."""
ENDED = ("off", "stopped", "failed", "done")
"""States of the background in which nothing is tuned any more."""

PROGRAM = """\
import sys
import tunegen
from tunegen.harness import serving
program = serving.prepare(sys.argv[1:])
tunegen.apply_policy(missing="live", kernels=program.names, share=program.options.share)
tunegen.live.pause()
sys.exit(serving.run(program, tunegen.live))
"""
"""A program like any other: one of the harness would not tune itself."""


class Background(Protocol):
    """What tunes in the background: `tunegen.live`, or a test's."""

    def resume(self) -> None:
        """Goes on."""
        ...

    def stop(self) -> None:
        """Ends it."""
        ...

    def status(self) -> Any:
        """A state, and what is tuned, left, and given up."""
        ...


class Report(msgspec.Struct, frozen=True):
    """What a run came to. `answers` counts calls by how their answers compare to the first ones and to the gates.

    `cost` is the program while the tuner works against the program while it is held, `gain` its requests in a second
    after against before.
    """

    workload: str
    threads: int
    state: str
    tuned: list[str]
    left: list[str]
    problems: list[str]
    phases: dict[str, Figures]
    cost: dict[str, Ratio]
    gain: float | None
    requests: int
    failed: int
    answers: dict[str, int]
    words: list[str]

    @property
    def right(self) -> bool:
        """Whether no request failed, and no answer is outside its gate."""
        return not self.failed and not self.answers.get("outside")


class Program(NamedTuple):
    """A program that serves: its options, what each call has to answer, and the kernels that it uses."""

    options: argparse.Namespace
    answers: list[Answer]
    names: list[str]


def prepare(arguments: Sequence[str]) -> Program:
    """Makes the calls of a request and their first answers, which are those of an untuned box."""
    options = parser().parse_args(arguments)
    workload = WORKLOADS[options.workload]
    scope = find_scope(workload.module)
    made = answers(scope, workload.request)
    first = Calls(made)
    first.serve()
    list(first.look())
    names = [f"{scope.name}:{name}[{ELEMENT_TYPE}]" for name in dict.fromkeys(a.kernel.name for a in made)]
    return Program(options, made, names)


def run(program: Program, live: Background) -> int:
    """Serves, and prints the report as JSON. The exit code of the program."""
    server = Server(program.answers, program.options.threads)
    with server.serving():
        spans = phases(program.options, live, lambda: held(os.getpid()), sleep_s, clock)
    report = reported(program.options, live, server, spans)
    print(msgspec.json.encode(report).decode())
    return 0 if report.right else 1


def phases(
    options: argparse.Namespace, live: Background, hold: Callable[[], Any], sleep: Callable[[float], None], clock: Clock
) -> list[Span]:
    """Lets time pass before, while and after kernels are tuned, and says what was when."""
    spans: list[Span] = []

    def stretch(label: str, seconds: float) -> None:
        start = clock()
        sleep(seconds)
        spans.append(Span(label, start, clock()))

    stretch(BEFORE, options.seconds)
    live.resume()
    end = clock() + options.longest * 1e9
    while live.status().state not in ENDED and clock() < end:
        stretch(AT_WORK, WORK_SLICES * options.slice)
        with hold():
            stretch(HELD, options.slice)
    live.stop()
    stretch(AFTER, options.seconds)
    return spans


@contextmanager
def held(pid: int) -> Iterator[list[int]]:
    """Holds all that a process has started, and what these have, on systems that say who they are."""
    waiting, found = _children(pid), list[int]()
    try:
        while waiting:
            one = waiting.pop()
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGSTOP)
                found.append(one)
                # who is held starts no further one
                waiting += _children(one)
        yield found
    finally:
        for one in reversed(found):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGCONT)


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(p) for path in Path(f"/proc/{pid}/task").glob("*/children") for p in path.read_text().split()]
    return []


def reported(options: argparse.Namespace, live: Background, server: Server, spans: Sequence[Span]) -> Report:
    """What was served, and how fast."""
    status, requests = live.status(), server.requests
    found = {label: f for label in PHASES if (f := figures(requests, spans, label)) is not None}
    gain = found[AFTER].per_second / found[BEFORE].per_second if {BEFORE, AFTER} <= found.keys() else None
    return Report(
        options.workload, options.threads, status.state, list(status.tuned), list(status.left), list(status.problems),
        found, compared(requests, spans, AT_WORK, HELD), gain, len(requests.took_ns) + server.failed, server.failed,
        dict(server.seen), server.words,
    )  # fmt: skip


def lines(report: Report) -> Iterator[str]:
    """A report as text."""
    tuned, left = len(report.tuned), len(report.left) + len(report.problems)
    threads = f"{report.threads} thread{'s' if report.threads > 1 else ''}"
    yield f"{report.workload}, {threads}: {tuned} of {tuned + left} kernels were tuned: {report.state}"
    yield f"{'':8} {'seconds':>8} {'requests/s':>11} " + " ".join(f"{name:>9}" for name in (*QUANTILES, "max"))
    for label, phase in report.phases.items():
        latency = " ".join(f"{us:6.0f} us" for us in phase.latency_us.values())
        yield f"{label:8} {phase.seconds:8.1f} {phase.per_second:11.1f} {latency}"
    for name, ratio in report.cost.items():
        yield f"{name}, tuning / held: {ratio}, {ratio.pairs} pairs"
    if report.gain is not None:
        yield f"throughput, after / before: {report.gain:.2f}"
    counts = "; ".join(f"{report.answers.get(seen, 0)} {seen}" for seen in get_args(Seen))
    yield f"{report.requests} requests, {report.failed} failed; answers: {counts}"
    yield from (*report.words, *report.problems)


def parser() -> argparse.ArgumentParser:
    """The options."""
    made = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    made.add_argument("--workload", choices=tuple(WORKLOADS), default="untuned", help="whose kernels are served")
    made.add_argument("--threads", type=int, default=1, metavar="N", help="threads that serve")
    made.add_argument("--seconds", type=duration, default=10.0, metavar="S", help="how long before and after: 10s")
    made.add_argument("--longest", type=duration, default=900.0, metavar="S", help="how long tuning may go on: 15m")
    made.add_argument("--slice", type=duration, default=1.0, metavar="S", help="how long the tuner is held in a piece")
    made.add_argument("--share", type=float, metavar="S", help="share of one core that tuning may use: 0.25")
    made.add_argument("--json", action="store_true", help="print the figures as JSON")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program in a child process and prints what it reports. Returns its exit code."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    options = parser().parse_args(given)
    with TemporaryDirectory() as folder:
        untuned.write(Path(folder))
        places = {"TUNE_HOME": f"{folder}/home", "TUNE_CACHE": f"{folder}/cache", "TUNE_THREADS": "1"}
        unset = dict.fromkeys(("TUNE_MODE", "TUNE_POLICY", "TUNE_MANIFEST", "TUNE_PARENT", "TUNE_SHARE"), "")
        found = os.pathsep.join([folder, *sys.path])
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM, *given], stdout=subprocess.PIPE, check=False,
            env=knobs.child_environment(**places, **unset, **SINGLE_THREAD, PYTHONPATH=found),
        )  # fmt: skip
    if not done.stdout:
        return done.returncode or 1
    if options.json:
        sys.stdout.write(msgspec.json.format(done.stdout, indent=2).decode())
    else:
        print("\n".join(lines(msgspec.json.decode(done.stdout, type=Report))))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
