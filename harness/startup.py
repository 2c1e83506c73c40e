"""What a program pays at its start: fresh processes that time their own imports.

Each process imports numpy and then the library, so that the two are measured side by side and what the interpreter does
before and after them counts for neither.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tunegen import knobs
from tunegen.harness import race

PROGRAM = """
from time import perf_counter_ns as clock
start = clock()
import numpy
then = clock()
{addition}
print(then - start, clock() - then)
"""
ADDITIONS = {
    "library": "import tunegen",
    "first call": "from tunegen.kernels import exp; x = numpy.ones(16, 'f'); exp(x, numpy.empty_like(x))",
}

Run = Callable[[str], tuple[int, int]]
"""(addition) -> nanoseconds of `import numpy` and of the addition, in one fresh process."""


class Cost(NamedTuple):
    """What an addition costs as a multiple of `import numpy`: median of paired ratios, its interval, and both in ms."""

    ratio: float
    interval: tuple[float, float]
    ms: float
    numpy_ms: float


@contextmanager
def processes() -> Iterator[Run]:
    """Runs additions in processes of their own. Bytecode is kept, as it is for an installed package."""
    with TemporaryDirectory() as bytecode:
        environment = knobs.child_environment(PYTHONPYCACHEPREFIX=bytecode, PYTHONDONTWRITEBYTECODE="")

        def run(addition: str) -> tuple[int, int]:
            command = [sys.executable, "-c", PROGRAM.format(addition=ADDITIONS[addition])]
            numpy, added = subprocess.run(command, check=True, env=environment, capture_output=True).stdout.split()
            return int(numpy), int(added)

        yield run


def start_up(rounds: int, run: Run) -> dict[str, Cost]:
    """The cost of each addition over `rounds` processes each, in turn, after one to fill all caches."""
    for addition in ADDITIONS:
        run(addition)
    samples = [{addition: run(addition) for addition in ADDITIONS} for _ in range(rounds)]
    return {addition: _cost([sample[addition] for sample in samples]) for addition in ADDITIONS}


def _cost(pairs: list[tuple[int, int]]) -> Cost:
    ratios = sorted(added / numpy for numpy, added in pairs)
    numpy_ms, ms = (median(times) / 1e6 for times in zip(*pairs, strict=True))
    return Cost(median(ratios), race.interval_of_median(ratios), ms, numpy_ms)
