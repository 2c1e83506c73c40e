"""What threads and tuned parameters gain on this box, from small calls to large ones.

`python -m tunegen.harness.scaling [--kernels exp,add,gemm] [--rounds N] [--quick]` prints a line per figure. At 2^10 to
2^24 elements of each operand: the values in force against the portable defaults, and all threads against one; neither
may lose beyond the noise. Then two threads against one on a large product and a large map. Settings that take the same
code path are not compared; all sides share their threads and are sampled in turn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from tunegen.box import effective_threads, this_box
from tunegen.cases import Sizes
from tunegen.harness import race
from tunegen.harness.calibrate import base_values
from tunegen.harness.decisions import Values
from tunegen.harness.forced import ForcedSession, call_path
from tunegen.harness.measure import Runner, clock
from tunegen.harness.problems import make_inputs, operands
from tunegen.harness.speed import CASE, Goal, Line, Missing, line, show_pairs
from tunegen.kernels import add, exp, gemm
from tunegen.public.kernel import KernelMethods
from tunegen.public.setting import new_executor
from tunegen.public.target import Target

MODULE = "tunegen.harness.scaling"
KERNELS: dict[str, KernelMethods] = {"exp": exp, "add": add, "gemm": gemm}
EXPONENTS = range(10, 25, 2)
QUICK = range(10, 19, 4)
DEFAULT_ROUNDS = 15
FEW_ROUNDS = 7
"""For calls of a second and more."""
LARGE_ELEMENTS = 1 << 22
NO_LOSS = Goal(1.0)
GOAL = Goal(1.85)
"""Two threads against one."""


class Setting(msgspec.Struct, frozen=True):
    """Values, and on how many threads."""

    values: dict[str, Any]
    threads: int


class Bench:
    """A kernel for f32 under several settings whose sessions share their threads."""

    def __init__(self, kernel: KernelMethods, stack: ExitStack, threads: int | None = None) -> None:
        self.target = Target(kernel, kernel.signature.element_types[0])
        self.threads = threads or effective_threads()
        self.tuned = base_values(self.target, this_box())
        self._stack = stack
        self._executor = stack.enter_context(new_executor(self.threads)) if self.threads > 1 else None
        self._bound: dict[str, Any] = {}

    def bound(self, setting: Setting) -> Any:
        """The kernel under a setting."""
        key = repr(setting)
        if key not in self._bound:
            name = f"{self.target.spec.scope}:{self.target.key}"
            executor = self._executor if setting.threads > 1 else None
            session = self._stack.enter_context(ForcedSession({name: setting.values}, executor))
            self._bound[key] = session.bind(self.target.kernel)
        return self._bound[key]

    def path(self, setting: Setting, sizes: Sizes) -> object:
        """The code path of a call."""
        stamp = self.bound(setting).stamp[self.target.element_type.name]
        emitted = [choice.emitted for choice in stamp.choices]
        return call_path(self.target.spec, emitted, setting.values, sizes, setting.threads)

    def compare(self, one: Setting, default: Setting, sizes: Sizes, rounds: int) -> race.Verdict:
        """How many times as fast `one` is as `default`, from interleaved rounds."""
        inputs = make_inputs(self.target.spec, self.target.element_type, sizes, 0, optional=False)
        values = tuple(operands(self.target.spec, self.target.element_type, sizes, inputs).values())
        times = settled({"one": self.bound(one), "default": self.bound(default)}, values, rounds)
        return race.compare(times, "one", "default", [CASE])


def settled(calls: Mapping[str, Callable[..., Any]], values: Sequence[Any], rounds: int) -> race.Times:
    """Interleaved samples of calls on the same operands, each after a call that wakes its threads up."""
    runners = {name: Runner(call, values) for name, call in calls.items()}
    for runner in runners.values():
        runner.warm_up()

    def sample(name: str, _: str) -> float:
        runners[name].settle()
        return runners[name].sample(clock)

    return race.rounds(sample, list(runners), [CASE], lambda done: done >= rounds)


def sizes_of(kernel: KernelMethods, exponent: int) -> Sizes:
    """A call whose every operand has 2^exponent elements: for a product, square ones."""
    if kernel.signature.any_rank:
        return {"N": 1 << exponent}
    return dict.fromkeys(kernel.signature.sizes, 1 << exponent // 2)


def curves(kernel: KernelMethods, exponents: Sequence[int], rounds: int) -> Iterator[Line | Missing]:
    """Tuned against default, and parallel against serial, size by size."""
    with ExitStack() as stack:
        bench = Bench(kernel, stack)
        tuned = Setting(bench.tuned, bench.threads)
        sides = {
            "tuned/default": (tuned, Setting(dict(bench.target.spec.schema.defaults), bench.threads)),
            "parallel/serial": (tuned, Setting(bench.tuned, 1)),
        }
        for exponent in exponents:
            sizes = sizes_of(kernel, exponent)
            few = rounds if 1 << exponent < LARGE_ELEMENTS else min(rounds, FEW_ROUNDS)
            for what, (one, default) in sides.items():
                name = f"{bench.target.key} 2^{exponent} {what}"
                if bench.path(one, sizes) == bench.path(default, sizes):
                    yield Missing(name, "both take the same code path")
                    continue
                verdict = bench.compare(one, default, sizes, few)
                yield line(name, "times the speed", verdict.ratio, verdict.interval, NO_LOSS, f"{verdict.pairs} pairs")


def forced(values: Values, spec: Any) -> dict[str, Any]:
    """These values, with the split forced: every threshold of threads at its minimum."""
    least = {p.name: p.minimum for p in spec.schema.parameters if p.name in spec.parallel.when.names}
    return {**values, **least}


def two_threads(rounds: int) -> Iterator[Line | Missing]:
    """Two threads against one on gemm 1024^3 and exp 2^20."""
    if effective_threads() < 2:
        yield Missing("two threads", "this process has one thread")
        return
    for kernel, sizes in ((gemm, {"M": 1024, "N": 1024, "K": 1024}), (exp, {"N": 1 << 20})):
        with ExitStack() as stack:
            bench = Bench(kernel, stack, 2)
            values = forced(bench.tuned, bench.target.spec)
            verdict = bench.compare(Setting(values, 2), Setting(values, 1), dict(sizes), rounds)
            name = f"{bench.target.key} {', '.join(f'{n}={v}' for n, v in sizes.items())}"
            yield line(f"two threads, {name}", "times the speed of one", verdict.ratio, verdict.interval, GOAL,
                       f"{verdict.pairs} pairs")  # fmt: skip


def figures(kernels: Sequence[str], exponents: Sequence[int], rounds: int) -> Iterator[Line | Missing]:
    """All figures, kernel by kernel."""
    yield from two_threads(max(rounds, DEFAULT_ROUNDS))
    for name in kernels:
        yield from curves(KERNELS[name], exponents, rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; returns 0: a figure that misses its goal is a result."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--kernels", default=",".join(KERNELS), metavar="NAMES", help=f"out of {', '.join(KERNELS)}")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, metavar="N", help="pairs per figure")
    parser.add_argument("--quick", action="store_true", help="three small sizes alone")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(arguments)
    names = options.kernels.split(",")
    if unknown := set(names) - set(KERNELS):
        parser.error(f"no kernel {', '.join(sorted(unknown))}; there are {', '.join(KERNELS)}")
    return show_pairs(parser, options, figures(names, QUICK if options.quick else EXPONENTS, options.rounds))


if __name__ == "__main__":
    sys.exit(main())
