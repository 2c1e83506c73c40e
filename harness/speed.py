"""How fast the shipped kernels and the library are on this box, against numpy and torch, and whether that is enough.

`python -m tunegen.harness.speed [gemm exp maps call imports]` prints a line per figure: the median of paired ratios and
its interval, the goal, and whether it is reached. Everything runs on one thread, interleaved in rotating order, and
kernels run what is stamped on this box. A goal is reached when the interval of the paired ratios reaches it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product, repeat
from statistics import median
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunegen import explain
from tunegen.box import this_box
from tunegen.errors import TunegenError
from tunegen.harness import race, startup
from tunegen.harness.measure import Runner, clock
from tunegen.harness.one_thread import keep_to_one, run_again
from tunegen.kernels import add, exp, gemm, log, sigmoid, tanh
from tunegen.signature import ELEMENT_TYPES

MODULE = "tunegen.harness.speed"
DEFAULT_ROUNDS = 21
OURS = "tunegen"
CASE = "case"
CALLS = 200
"""Calls in a row that count as one, where a single one is as short as the loop around it."""
KIND = "avx512f"
"""The goals of gemm and the maps are for machines with this feature."""


class Goal(msgspec.Struct, frozen=True):
    """A figure to reach: at least it, or at most it; `kind` is a CPU feature without which it does not count."""

    figure: float
    at_least: bool = True
    kind: str = ""

    def __str__(self) -> str:
        return f"{'>=' if self.at_least else '<='} {self.figure:g}"

    def verdict(self, value: float, interval: tuple[float, float]) -> str:
        """Whether an interval of paired ratios reaches the goal, and whether it does so only by its width."""
        if self.kind and self.kind not in this_box().feature_set:
            return f"not this machine's kind (no {self.kind})"
        if not self._met(interval[1] if self.at_least else interval[0]):
            return "not reached"
        return "reached" if self._met(value) else "reached within the noise"

    def _met(self, value: float) -> bool:
        return value >= self.figure if self.at_least else value <= self.figure


class Line(msgspec.Struct, frozen=True):
    """One figure. `interval` is that of the median of paired ratios; a figure without noise has no width."""

    name: str
    what: str
    value: float
    interval: tuple[float, float]
    goal: str
    verdict: str
    detail: str

    def __str__(self) -> str:
        low, high = self.interval
        spread = f" (interval {low:.3f} to {high:.3f})" if low != high else ""
        return f"{self.name}: {self.value:.3f}{spread} {self.what}; goal {self.goal}: {self.verdict}; {self.detail}"


class Missing(msgspec.Struct, frozen=True):
    """A figure that cannot be measured, and why."""

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def line(name: str, what: str, value: float, interval: tuple[float, float], goal: Goal, detail: str) -> Line:
    """A figure with its verdict."""
    return Line(name, what, value, interval, str(goal), goal.verdict(value, interval), detail)


Call = Callable[[], object]


def interleaved(calls: Mapping[str, Call], rounds: int) -> race.Times:
    """Nanoseconds per call, sampled in turn."""
    runners = {name: Runner(call, ()) for name, call in calls.items()}
    for runner in runners.values():
        runner.warm_up()
    return race.rounds(lambda name, _: runners[name].sample(clock), list(runners), [CASE], lambda done: done >= rounds)


def stamped(name: str, element_type: str = "f32", **sizes: int) -> str:
    """What a kernel runs here for these sizes, and who chose it."""
    found = explain(f"kernels:{name}", element_type, **sizes)
    return f"{name} runs {found.emitted} ({found.source})"


def _product_calls(n: int, torch: Any) -> dict[str, Call]:
    """Each side's product of the same two matrices, into an output of its own."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((n, n), np.float32) for _ in "ab")
    c, d, e = (np.empty_like(a) for _ in "cde")
    calls: dict[str, Call] = {OURS: lambda: gemm(a, b, c), "numpy": lambda: np.matmul(a, b, d)}
    if torch is not None:
        x, y, z = (torch.from_numpy(array) for array in (a, b, e))
        calls["torch"] = lambda: torch.mm(x, y, out=z)
    return calls


def products(rounds: int) -> Iterator[Line | Missing]:
    """f32 matrix products against the better of numpy and torch."""
    torch = import_module("torch") if find_spec("torch") else None
    if torch is None:
        yield Missing("gemm", 'torch is missing, so numpy is the only peer; pip install "tunegen[peers]"')
    else:
        torch.set_num_threads(1)
    for n in (512, 1024):
        times = interleaved(_product_calls(n, torch), rounds)
        verdicts = {
            peer: race.compare(times, OURS, peer, [CASE]) for peer in ("numpy", "torch") if (peer, CASE) in times
        }
        best = min(verdicts, key=lambda peer: verdicts[peer].ratio)
        others = "".join(f"{v.ratio:.3f} times {peer}, " for peer, v in verdicts.items() if peer != best)
        gflops = 2 * n**3 / median(times[OURS, CASE])
        detail = f"{gflops:.1f} GFLOP/s, {others}{stamped('gemm', M=n, N=n, K=n)}; {blas()}"
        yield line(f"gemm f32 {n}^3", f"times the speed of {best}", verdicts[best].ratio, verdicts[best].interval,
                   Goal(0.95, kind=KIND), detail)  # fmt: skip


def blas() -> str:
    """Which code numpy's products run, and on how many threads."""
    if find_spec("threadpoolctl") is None:
        return "numpy's BLAS is not known, because threadpoolctl is missing"
    pools = import_module("threadpoolctl").threadpool_info()
    found = [
        f"{p['internal_api']} {p.get('architecture', '')} x{p['num_threads']}" for p in pools if p["user_api"] == "blas"
    ]
    return f"numpy on {', '.join(dict.fromkeys(found)) or 'no known BLAS'}"


def exponential(rounds: int) -> Iterator[Line | Missing]:
    """f32 exp against numpy, with its error."""
    x = np.random.default_rng(0).uniform(-80, 80, 16384).astype(np.float32)
    y, z = np.empty_like(x), np.empty_like(x)
    times = interleaved({OURS: lambda: exp(x, y), "numpy": lambda: np.exp(x, out=z)}, rounds)
    verdict = race.compare(times, OURS, "numpy", [CASE])
    ns = median(times[OURS, CASE]) / x.size
    yield line("exp f32 16384", "times the speed of numpy", verdict.ratio, verdict.interval, Goal(1.7, kind=KIND),
               f"{ns:.3f} ns per element, {stamped('exp', N=x.size)}")  # fmt: skip
    inputs = exp_inputs()
    error = float(max_ulp(exp(inputs, np.empty_like(inputs)), np.exp(inputs.astype(np.float64))))
    yield line("exp f32 error", "ULP at most", error, (error, error), Goal(2.5, at_least=False),
               f"against float64 on {inputs.size} values")  # fmt: skip


def _logistic(x: NDArray[Any], out: NDArray[Any]) -> None:
    np.divide(1, 1 + np.exp(-x), out=out)


MAPS: dict[str, tuple[Any, Callable[..., object]]] = {
    "log": (log, np.log),
    "sigmoid": (sigmoid, _logistic),
    "tanh": (tanh, np.tanh),
}
"""Kernels, and what one writes in numpy."""


def maps(rounds: int) -> Iterator[Line | Missing]:
    """Other elementwise functions against numpy."""
    drawn = np.random.default_rng(0).uniform(0.01, 8, 16384)
    for (name, (ours, numpys)), element_type in product(MAPS.items(), ("f32", "f64")):
        x = drawn.astype(ELEMENT_TYPES[element_type].dtype)
        calls: dict[str, Call] = {
            OURS: partial(ours, x, np.empty_like(x)), "numpy": partial(numpys, x, out=np.empty_like(x)),
        }  # fmt: skip
        times = interleaved(calls, rounds)
        verdict = race.compare(times, OURS, "numpy", [CASE])
        detail = f"{median(times[OURS, CASE]) / x.size:.3f} ns per element, {stamped(name, element_type, N=x.size)}"
        yield line(f"{name} {element_type} {x.size}", "times the speed of numpy", verdict.ratio, verdict.interval,
                   Goal(1.2, kind=KIND), detail)  # fmt: skip


def exp_inputs(count: int = 1 << 21) -> NDArray[np.float32]:
    """Values over the whole range in which exp is neither 0 nor infinite, and as many near 0."""
    rng = np.random.default_rng(1)
    return np.concatenate([rng.uniform(-104, 88.72, count), rng.normal(0, 1, count)]).astype(np.float32)


def max_ulp(got: NDArray[np.float32], exact: NDArray[np.float64]) -> float:
    """The largest error of `got` in units in the last place of the exact value rounded to float32."""
    return float(np.max(np.abs(got - exact) / np.spacing(exact.astype(np.float32)).astype(np.float64)))


def short_calls(rounds: int) -> Iterator[Line | Missing]:
    """A positional call on 16 elements against numpy's ufuncs."""
    x = np.linspace(-1, 1, 16, dtype=np.float32)
    y = np.empty_like(x)

    def ours_exp() -> None:
        for _ in repeat(None, CALLS):
            exp(x, y)

    def numpy_exp() -> None:
        for _ in repeat(None, CALLS):
            np.exp(x, out=y)

    def ours_add() -> None:
        for _ in repeat(None, CALLS):
            add(x, x, y)

    def numpy_add() -> None:
        for _ in repeat(None, CALLS):
            np.add(x, x, y)

    for name, ours, numpys in (("exp", ours_exp, numpy_exp), ("add", ours_add, numpy_add)):
        times = interleaved({OURS: ours, "numpy": numpys}, rounds)
        # the time of ours over numpy's: numpy plays the runner that ours is the default of
        verdict = race.compare(times, "numpy", OURS, [CASE])
        detail = f"{median(times[OURS, CASE]) / CALLS:.0f} ns, {stamped(name, N=16)}"
        yield line(f"call {name} f32 16", "times the time of numpy", verdict.ratio, verdict.interval,
                   Goal(0.6, at_least=False), detail)  # fmt: skip


def imports(rounds: int) -> Iterator[Line | Missing]:
    """What `import tunegen`, and the first call in a warm process, cost on top of numpy."""
    with startup.processes() as run:
        costs = startup.start_up(rounds, run)
    for name, cost, goal in (("import tunegen", costs["library"], 0.4), ("first call", costs["first call"], 1.0)):
        yield line(name, "times `import numpy`, on top of it", cost.ratio, cost.interval, Goal(goal, at_least=False),
                   f"{cost.ms:.1f} ms, numpy {cost.numpy_ms:.1f} ms")  # fmt: skip


FIGURES: dict[str, Callable[[int], Iterator[Line | Missing]]] = {
    "gemm": products,
    "exp": exponential,
    "maps": maps,
    "call": short_calls,
    "imports": imports,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures what the command line names, prints it, and returns 0: a figure that misses its goal is a result."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"{', '.join(FIGURES)}; all when left out")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, metavar="N", help="pairs per figure")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(given)
    if unknown := set(options.figures) - set(FIGURES):
        parser.error(f"no figure {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    if options.rounds < 1:
        parser.error("--rounds is a whole number from 1 up")
    code = run_again(MODULE, given)
    if code is not None:
        return code
    try:
        report(options.figures or list(FIGURES), options.rounds, as_json=options.json)
    except TunegenError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def report(names: Sequence[str], rounds: int, *, as_json: bool) -> None:
    """Measures the named figures and prints them."""
    keep_to_one((add, exp, gemm, log, sigmoid, tanh))
    show((item for name in names for item in FIGURES[name](rounds)), as_json=as_json)


def show(found: Iterator[Line | Missing], *, as_json: bool) -> None:
    """Prints each figure as soon as it is there, or all at the end as one JSON document."""
    kept = []
    for item in found:
        kept.append(item)
        if not as_json:
            sys.stdout.write(f"{item}\n")
            sys.stdout.flush()
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(kept), indent=2).decode() + "\n")


def show_pairs(parser: argparse.ArgumentParser, options: argparse.Namespace, found: Iterator[Line | Missing]) -> int:
    """Prints the figures of a benchmark that races pairs, and returns its exit code. Too few `--rounds` end it."""
    if options.rounds < race.FEWEST_PAIRS:
        parser.error(f"--rounds is a whole number from {race.FEWEST_PAIRS} up")
    try:
        show(found, as_json=options.json)
    except TunegenError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
