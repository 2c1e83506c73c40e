"""What it costs to start and end a parallel region: the executor's `parallel_for` against gcc's `#pragma omp parallel`.

`python -m tunegen.harness.dispatch_cost [--threads N]` prints a line per figure: the median of paired ratios with its
interval, the goal, and whether it is reached. Both sides call the same body through a pointer, once a thread, from the
same native loop; the team of `omp parallel` is built by gcc in this run. In an `empty` region the body returns at once,
and the executor's caller may be through with all blocks before a worker looks; in a `meet` region every thread waits in
the body until all of them are there, so none can be left out. Regions come back to back, or after serial work of about
100 microseconds each.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tunegen import knobs
from tunegen.box import effective_threads, this_box
from tunegen.digest import sha256
from tunegen.executor import CpuExecutor
from tunegen.harness import race
from tunegen.harness.measure import clock, native_clock
from tunegen.harness.speed import Goal, Line, Missing, line, show
from tunegen.making.compile import link
from tunegen.making.make import entry_object, host_target

MODULE = "tunegen.harness.dispatch_cost"
DEFAULT_ROUNDS = 21
OURS, OMP, CASE = "executor", "omp", "case"
SETTLE_NS = 20_000_000
"""Before each sample the side in turn runs alone for so long: libgomp's idle threads spin for some milliseconds."""
REGIONS = 10_000
"""Regions of a sample, back to back."""
REGIONS_APART = 150
"""Regions of a sample with serial work before each."""
SERIAL_NS = 100_000
GOAL = Goal(1.0, at_least=False)

OMP_C = """
struct region { void *pool; void (*body)(void *, long, long, long); void *context; long threads; };
void region(struct region *r) {
#pragma omp parallel num_threads(r->threads)
    r->body(r->context, 0, 1, 0);
}
"""
_GCC = ("-O2", "-fopenmp", "-shared", "-fPIC", "-x", "c", "-")

LOOPS_IR = """
%region = type { ptr, ptr, ptr, i64 }

define void @region(ptr %r) {
  %pool = load ptr, ptr %r
  %body.at = getelementptr %region, ptr %r, i64 0, i32 1
  %body = load ptr, ptr %body.at
  %context.at = getelementptr %region, ptr %r, i64 0, i32 2
  %context = load ptr, ptr %context.at
  %threads.at = getelementptr %region, ptr %r, i64 0, i32 3
  %threads = load i64, ptr %threads.at
  %for = load ptr, ptr %pool
  %admitted = call i64 %for(ptr %pool, ptr %body, ptr %context, i64 %threads, i64 1, i64 %threads, i64 0)
  ret void
}

define void @empty(ptr %context, i64 %begin, i64 %end, i64 %participant) {
  ret void
}

; context: arrivals, threads
define void @meet(ptr %context, i64 %begin, i64 %end, i64 %participant) {
entry:
  %threads.at = getelementptr i64, ptr %context, i64 1
  %threads = load i64, ptr %threads.at
  %before = atomicrmw add ptr %context, i64 1 seq_cst
  %turn = udiv i64 %before, %threads
  %next = add i64 %turn, 1
  %all = mul i64 %next, %threads
  br label %look
look:
  %here = load atomic i64, ptr %context acquire, align 8
  %met = icmp uge i64 %here, %all
  br i1 %met, label %out, label %look
out:
  ret void
}

; counts the blocks that a worker ran
define void @count(ptr %context, i64 %begin, i64 %end, i64 %participant) {
entry:
  %caller = icmp eq i64 %participant, 0
  br i1 %caller, label %out, label %add
add:
  %before = atomicrmw add ptr %context, i64 1 monotonic
  br label %out
out:
  ret void
}

define void @serial(i64 %steps) {
entry:
  %cell = alloca i64
  store volatile i64 0, ptr %cell
  br label %step
step:
  %i = phi i64 [ 0, %entry ], [ %i.next, %step ]
  %old = load volatile i64, ptr %cell
  %new = add i64 %old, %i
  store volatile i64 %new, ptr %cell
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %steps
  br i1 %more, label %step, label %out
out:
  ret void
}

define void @together(ptr %region, ptr %r, i64 %count) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  call void %region(ptr %r)
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %count
  br i1 %more, label %next, label %out
out:
  ret void
}

define internal i64 @now(ptr %clock) {
  %time = alloca [2 x i64]
  %code = call i32 %clock(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest.at
  %whole = mul i64 %seconds, 1000000000
  %ns = add i64 %whole, %rest
  ret i64 %ns
}

; returns the time in regions alone, in ns
define i64 @apart(ptr %region, ptr %r, i64 %count, i64 %steps, ptr %clock) {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  %sum = phi i64 [ 0, %entry ], [ %sum.next, %next ]
  call void @serial(i64 %steps)
  %start = call i64 @now(ptr %clock)
  call void %region(ptr %r)
  %end = call i64 @now(ptr %clock)
  %spent = sub i64 %end, %start
  %sum.next = add i64 %sum, %spent
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %count
  br i1 %more, label %next, label %out
out:
  ret i64 %sum.next
}
"""
_SYMBOLS = ("region", "empty", "meet", "count", "serial", "together", "apart")


class Region(ctypes.Structure):
    """What one side's loop runs."""

    _fields_ = [("pool", ctypes.c_void_p), ("body", ctypes.c_void_p), ("context", ctypes.c_void_p),
                ("threads", ctypes.c_int64)]  # fmt: skip


class Bench:
    """Both sides, ready to be sampled: `pool` is an executor's address, `omp` the address of gcc's region."""

    def __init__(self, pool: int, omp: int, threads: int) -> None:
        name = f"dispatch_cost {sha256(LOOPS_IR.encode()).hexdigest()}"
        target = host_target(this_box())
        self._at = link(entry_object(name, lambda: LOOPS_IR, target), _SYMBOLS, target)
        self._regions = {OURS: self._at["region"], OMP: omp}
        self._context = (ctypes.c_int64 * 16)(0, threads)
        self._pool, self._threads = pool, threads
        self._together = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(self._at["together"])
        self._apart = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 5)(self._at["apart"])
        self._steps = self._serial_steps()

    def sample(self, side: str, body: str, apart: bool) -> float:
        """Nanoseconds per region, after the other side's threads have gone to sleep."""
        region, begin = self._region(body), clock()
        while clock() - begin < SETTLE_NS:
            self._run(side, region, REGIONS_APART)
        if apart:
            at = ctypes.addressof(region)
            spent = self._apart(self._regions[side], at, REGIONS_APART, self._steps, native_clock())
            return float(spent) / REGIONS_APART
        begin = clock()
        self._run(side, region, REGIONS)
        return (clock() - begin) / REGIONS

    def workers_share(self) -> float:
        """The share of the workers' blocks in empty regions that a worker ran, and not the caller for it."""
        self._context[0] = 0
        self._run(OURS, self._region("count"), REGIONS)
        ran, self._context[0] = self._context[0], 0
        return float(ran) / (REGIONS * (self._threads - 1))

    def _region(self, body: str) -> Region:
        return Region(self._pool, self._at[body], ctypes.addressof(self._context), self._threads)

    def _run(self, side: str, region: Region, count: int) -> None:
        self._together(self._regions[side], ctypes.addressof(region), count)

    def _serial_steps(self) -> int:
        """How many steps of serial work take `SERIAL_NS`."""
        serial, steps = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self._at["serial"]), 100_000
        times = []
        for _ in range(5):
            begin = clock()
            serial(steps)
            times.append(clock() - begin)
        return max(1, steps * SERIAL_NS // max(1, min(times)))


def omp_region(folder: Path) -> tuple[int, str]:
    """The address of gcc's region, and ""; or 0 and the reason why there is none. Built in `folder`."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return 0, "gcc is missing, so there is no `omp parallel` to compare with"
    library = folder / "omp.so"
    done = subprocess.run([gcc, *_GCC, "-o", str(library)], input=OMP_C, capture_output=True, text=True, check=False)
    if done.returncode:
        return 0, f"gcc builds no `omp parallel`: {done.stderr.strip()[-200:]}"
    function = ctypes.CDLL(str(library)).region
    return int(ctypes.cast(function, ctypes.c_void_p).value or 0), ""


def figures(threads: int, rounds: int) -> Iterator[Line | Missing]:
    """The four figures, as soon as each is there."""
    with TemporaryDirectory() as folder, CpuExecutor(threads) as executor:
        omp, reason = omp_region(Path(folder))
        if executor.threads < 2:
            reason = "one thread: there is nothing to dispatch"
        if reason:
            yield Missing("dispatch", reason)
            return
        bench = Bench(executor.address, omp, threads)
        for apart in (False, True):
            for body in ("empty", "meet"):
                yield _figure(bench, body, apart, threads, rounds)


def _figure(bench: Bench, body: str, apart: bool, threads: int, rounds: int) -> Line:
    sample: Callable[[str, str], float] = lambda side, _: bench.sample(side, body, apart)  # noqa: E731
    times = race.rounds(sample, [OURS, OMP], [CASE], lambda done: done >= rounds)
    # the time of ours over that of omp: omp plays the runner that ours is the default of
    verdict = race.compare(times, OMP, OURS, [CASE])
    ours, theirs = (median(times[side, CASE]) for side in (OURS, OMP))
    detail = f"{ours:.0f} ns, omp {theirs:.0f} ns, {threads} threads"
    if body == "empty":
        detail += f", workers ran {bench.workers_share():.0%} of their blocks"
    when = "after 100 us of serial work" if apart else "back to back"
    return line(f"dispatch {body} {when}", "times the time of omp parallel", verdict.ratio, verdict.interval, GOAL,
                detail)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, and returns 0: a figure that misses its goal is a result."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--threads", type=int, default=effective_threads(), metavar="N", help="size of both teams")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, metavar="N", help="pairs per figure")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads are whole numbers from 1 up")
    told = sorted(name for name in knobs.child_environment() if name.startswith(("OMP_", "GOMP_")))
    if told:
        sys.stderr.write(f"libgomp is told what to do by {', '.join(told)}\n")
    show(figures(options.threads, options.rounds), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
