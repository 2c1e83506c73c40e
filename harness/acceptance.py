"""The acceptance matrix of parallel kernels, measured: correctness, determinism, memory, latency, throughput, nesting,
oversubscription.

`python -m tunegen.harness.acceptance [PART...] [--rounds N]` prints a line per figure with its goal.

- `correctness`: each shipped kernel and element type, split over threads, against its reference through its gate.
- `determinism`: the same, bit for bit over 1 to 4 threads and several grains.
- `memory`: peak memory of a process whose product runs on all threads, against one thread.
- `latency`: a call of 16 elements in a session with threads, against a session with one.
- `throughput`: two threads against one.
- `nesting`: kernels called inside a region of the same executor: the same bits, and each inner region alone.
- `oversubscription`: four sessions at once, each with all threads, against one after the other; and with torch's own
  threads alive, where torch is installed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

import tunegen
from tunegen import cases, knobs
from tunegen.box import effective_threads
from tunegen.cases import Sizes
from tunegen.executor import Collector
from tunegen.harness import race
from tunegen.harness.crowd import oversubscription
from tunegen.harness.problems import make_inputs, operands
from tunegen.harness.scaling import Bench, Setting, forced, settled, two_threads
from tunegen.harness.speed import CASE, Goal, Line, Missing, line, show_pairs
from tunegen.kernels import exp, scope
from tunegen.parallel import Serial
from tunegen.public.kernel import KernelMethods
from tunegen.public.variant import oracle
from tunegen.signature import ElementType

MODULE = "tunegen.harness.acceptance"
DEFAULT_ROUNDS = 15
NONE = Goal(0, at_least=False)
MOST_THREADS = 4
GRAINS = (0, 96)
"""Equal shares, and shares that are no multiple of any register tile."""
RAGGED = 1031
"""A size whose shares end inside of every tile."""
MEMORY_GOAL = Goal(1.15, at_least=False)
LATENCY_GOAL = Goal(1.05, at_least=False)

Key = tuple[KernelMethods, ElementType]


def keys() -> list[Key]:
    """The shipped kernels that are split, and their element types."""
    return [(kernel, t) for kernel in scope.kernels.values() for t in kernel.signature.element_types
            if not isinstance(kernel.spec.parallel, Serial)]  # fmt: skip


@contextmanager
def allowed(threads: int) -> Iterator[None]:
    """This process may use so many threads, whatever the box has."""
    before = knobs.THREADS.get()
    knobs.change({knobs.THREADS.name: str(threads)})
    try:
        yield
    finally:
        knobs.change({knobs.THREADS.name: None if before is None else str(before)})


def ragged(kernel: KernelMethods) -> Sizes:
    """Sizes of a moderate call whose shares end inside of tiles."""
    sizes: Sizes = {name: RAGGED if i == 0 else 67 for i, name in enumerate(kernel.signature.sizes)}
    return {"N": 64 * RAGGED} if kernel.signature.any_rank else sizes


def outputs(key: Key, sizes: Sizes, threads: int, grain: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """(operands before the call, outputs) of a call that is split by force."""
    kernel, element_type = key
    spec = kernel.spec
    values = forced(spec.schema.defaults, spec)
    if isinstance(spec.parallel, Serial):
        raise TypeError(f"{spec.name} is not split")
    if isinstance(spec.parallel.grain, str):
        values[spec.parallel.grain] = grain
    given = operands(spec, element_type, sizes, make_inputs(spec, element_type, sizes, 0, optional=True))
    before = {name: np.array(v) if isinstance(v, np.ndarray) else v for name, v in given.items()}
    with tunegen.session(threads=threads, parameters={f"{spec.scope}:{spec.key(element_type)}": values}) as session:
        session.bind(kernel)(*given.values())
    return before, {operand.name: given[operand.name] for operand in spec.signature.outputs}


def correctness(rounds: int) -> Iterator[Line | Missing]:
    """Outputs that their gate refuses."""
    wrong = []
    for key in keys():
        kernel, element_type = key
        sizes = ragged(kernel)
        with allowed(MOST_THREADS):
            before, got = outputs(key, sizes, MOST_THREADS)
        with np.errstate(all="ignore"):
            expected = oracle(kernel.spec, before)
        facts = cases.facts(kernel.signature, sizes)
        if any(kernel.spec.gate.check(array, expected[name], facts) is not None for name, array in got.items()):
            wrong.append(kernel.spec.key(element_type))
    yield _count("correctness", "kernels whose split call is wrong", len(wrong),
                 f"{len(keys())} tried on {MOST_THREADS} threads{_listed(wrong)}")  # fmt: skip


def determinism(rounds: int) -> Iterator[Line | Missing]:
    """Outputs that depend on the number of threads, or on the grain."""
    differing = []
    with allowed(MOST_THREADS):
        for key in keys():
            sizes = ragged(key[0])
            _, serial = outputs(key, sizes, 1)
            settings = [(n, grain) for n in range(2, MOST_THREADS + 1) for grain in GRAINS]
            split = [outputs(key, sizes, n, grain)[1] for n, grain in settings]
            if any(one[name].tobytes() != serial[name].tobytes() for one in split for name in serial):
                differing.append(key[0].spec.key(key[1]))
    yield _count("determinism", "kernels whose bits depend on threads or grain", len(differing),
                 f"{len(keys())} tried, 1 to {MOST_THREADS} threads, grains {GRAINS}{_listed(differing)}")  # fmt: skip


def _count(name: str, what: str, count: int, detail: str) -> Line:
    return line(name, what, float(count), (float(count), float(count)), NONE, detail)


def _listed(names: Sequence[str]) -> str:
    return f": {', '.join(names)}" if names else ""


PEAK = """
import resource, numpy, tunegen
from tunegen.kernels import gemm
a = numpy.ones((1024, 1024), numpy.float32)
out = numpy.empty_like(a)
with tunegen.session(threads={threads}) as session:
    session.bind(gemm)(a, a, out)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def memory(rounds: int) -> Iterator[Line | Missing]:
    """Peak memory on all threads against one, each in a process of its own after one that fills the object cache."""
    threads = effective_threads()

    def peak(n: int) -> int:
        command = [sys.executable, "-c", PEAK.format(threads=n)]
        return int(subprocess.run(command, check=True, capture_output=True, env=knobs.child_environment()).stdout)

    peak(1)
    one, all_ = peak(1), peak(threads)
    yield line("memory", "times the peak of one thread", all_ / one, (all_ / one, all_ / one), MEMORY_GOAL,
               f"gemm 1024^3, {all_ >> 10} MiB on {threads} threads, {one >> 10} MiB on one")  # fmt: skip


def latency(rounds: int) -> Iterator[Line | Missing]:
    """What a small call pays for belonging to a session with threads."""
    if effective_threads() < 2:
        yield Missing("latency", "this process has one thread")
        return
    x = np.linspace(-1, 1, 16, dtype=np.float32)
    with ExitStack() as stack:
        bench = Bench(exp, stack)
        calls = {"one": bench.bound(Setting(bench.tuned, 1)), "all": bench.bound(Setting(bench.tuned, bench.threads))}
        times = settled(calls, (x, np.empty_like(x)), max(rounds, DEFAULT_ROUNDS))
    verdict = race.compare(times, "one", "all", [CASE])
    yield line("latency", "times the time in a session with one thread", verdict.ratio, verdict.interval, LATENCY_GOAL,
               f"exp of 16 elements, {min(times['all', CASE]):.0f} ns")  # fmt: skip


def throughput(rounds: int) -> Iterator[Line | Missing]:
    """Two threads against one."""
    yield from two_threads(rounds)


def nesting(rounds: int) -> Iterator[Line | Missing]:
    """Inner regions that did not stay on their caller, and inner calls with other bits."""
    if effective_threads() < 2:
        yield Missing("nesting", "this process has one thread")
        return
    x = np.random.default_rng(0).standard_normal(1 << 16).astype(np.float32)
    key = f"{exp.spec.scope}:{exp.spec.key(exp.signature.element_types[0])}"
    values = forced(exp.spec.schema.defaults, exp.spec)
    with tunegen.session(parameters={key: values}) as session:
        bound, executor = session.bind(exp), session.executor
        expected = bound(x, np.empty_like(x)).tobytes()
        inner = [np.empty_like(x) for _ in range(8)]
        if executor is None:
            yield Missing("nesting", "this box has no native threads")
            return
        with Collector(executor) as collector:
            executor.parallel_for(lambda begin, end, _: [bound(x, inner[i]) for i in range(begin, end)], 8, 1)
        events = [event for event in collector.events() if event.label]
    astray = sum(event.alone != "nested" for event in events) + sum(out.tobytes() != expected for out in inner)
    yield _count("nesting", "inner regions astray or with other bits", astray + 8 - len(events),
                 f"{len(events)} of 8 inner regions seen")  # fmt: skip


PARTS: dict[str, Callable[[int], Iterator[Line | Missing]]] = {
    "correctness": correctness,
    "determinism": determinism,
    "memory": memory,
    "latency": latency,
    "throughput": throughput,
    "nesting": nesting,
    "oversubscription": oversubscription,
}


def figures(parts: Sequence[str], rounds: int) -> Iterator[Line | Missing]:
    """The figures of these parts, in the order of the matrix."""
    for name, part in PARTS.items():
        if name in parts:
            yield from part(rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; returns 0: a figure that misses its goal is a result."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {MODULE}", description="The acceptance matrix of parallel kernels."
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all when left out")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, metavar="N", help="pairs per figure")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    return show_pairs(parser, options, figures(options.parts or list(PARTS), options.rounds))


if __name__ == "__main__":
    sys.exit(main())
