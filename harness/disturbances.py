"""What disturbs samples: made-up noise, and traces that were recorded on a real box.

A disturbance gives, for a moment, the factor by which a sample taken then is longer than it would be. Traces are short
series of such factors, taken with `record_trace` and kept in `traces/`; one is replayed sample by sample, from a random
place on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from tunegen.harness.measure import Runner

Disturbance = Callable[[float], float]
"""Seconds on the clock -> factor."""
SLOWDOWN = 1.8
"""How much a busy sibling hardware thread slows code down, where code waits for its front end."""
FOLDER = Path(__file__).parent / "traces"
SCALE = 1000
"""Traces are kept as whole thousandths above or below their median, so that the files are small."""


class Trace(msgspec.Struct, frozen=True):
    """A series of samples of one call, back to back. `deviations` are thousandths of the median above or below it."""

    name: str
    about: str
    sample_us: float
    deviations: list[int]

    @property
    def factors(self) -> list[float]:
        """Each sample as a multiple of the median."""
        return [1 + deviation / SCALE for deviation in self.deviations]

    @property
    def percentiles(self) -> tuple[float, float, float]:
        """The 50th, 90th and 99th percentile, as multiples of the least sample."""
        ordered = sorted(self.factors)
        n = len(ordered)
        return ordered[n // 2] / ordered[0], ordered[n * 9 // 10] / ordered[0], ordered[n * 99 // 100] / ordered[0]


def record_trace(name: str, about: str, call: Callable[..., Any], arguments: Sequence[Any], count: int) -> Trace:
    """Samples a call `count` times in a row, as a race would."""
    runner = Runner(call, arguments)
    runner.warm_up()
    samples = [runner.sample() for _ in range(count)]
    level = median(samples)
    deviations = [round((sample / level - 1) * SCALE) for sample in samples]
    return Trace(name, about, round(level * runner.repetitions / 1000, 1), deviations)


def read_traces(folder: Path = FOLDER) -> list[Trace]:
    """The traces that came with this library, in order of their names."""
    return [msgspec.json.decode(path.read_bytes(), type=Trace) for path in sorted(folder.glob("*.json"))]


def write_trace(trace: Trace, folder: Path) -> Path:
    """Keeps a trace in `folder` and returns its path."""
    path = folder / f"{trace.name}.json"
    path.write_bytes(msgspec.json.encode(trace) + b"\n")
    return path


def gaussian(rng: random.Random, deviation: float = 0.03) -> Disturbance:
    """Independent noise on every sample; never below a tenth of the true time."""
    return lambda now_s: max(rng.gauss(1, deviation), 0.1)


def bursts(rng: random.Random, every_s: float = 0.05, length_s: float = 0.02, slow: float = SLOWDOWN) -> Disturbance:
    """Slow stretches of random length at random moments, as another tenant of the machine makes them."""
    until, busy = 0.0, True

    def at(now_s: float) -> float:
        nonlocal until, busy
        while now_s >= until:
            busy = not busy
            until += rng.expovariate(1 / (length_s if busy else every_s))
        return slow if busy else 1.0

    return at


def drift(rng: random.Random, depth: float = 0.2, period_s: float = 3.0) -> Disturbance:
    """Slow waves, as a clock frequency makes them that follows temperature and load."""
    phase, period = rng.random() * 2 * math.pi, period_s * (0.5 + rng.random())
    return lambda now_s: 1 + depth * (1 + math.sin(2 * math.pi * now_s / period + phase)) / 2


def replayed(trace: Trace, rng: random.Random) -> Disturbance:
    """A recorded trace, one factor per sample, from a random place on and round again."""
    factors, at = trace.factors, rng.randrange(len(trace.deviations))

    def following(now_s: float) -> float:
        nonlocal at
        at += 1
        return factors[at % len(factors)]

    return following


def together(*parts: Disturbance) -> Disturbance:
    """Several disturbances at once."""
    return lambda now_s: math.prod(part(now_s) for part in parts)


Maker = Callable[[random.Random], Disturbance]


def all_kinds(traces: Sequence[Trace]) -> dict[str, Maker]:
    """Every disturbance that a self-evaluation replays, by name: made up, recorded, and both at once."""

    def of(trace: Trace) -> dict[str, Maker]:
        return {
            f"trace {trace.name}": lambda rng: replayed(trace, rng),
            f"trace {trace.name} with bursts and drift": lambda rng: together(
                replayed(trace, rng), bursts(rng), drift(rng)
            ),
        }

    made_up: dict[str, Maker] = {
        "gaussian 3 %": gaussian,
        "gaussian 10 %": lambda rng: gaussian(rng, 0.1),
        "bursts": lambda rng: together(gaussian(rng, 0.01), bursts(rng)),
        "long bursts": lambda rng: together(gaussian(rng, 0.01), bursts(rng, 1.0, 0.5)),
        "drift": lambda rng: together(gaussian(rng, 0.01), drift(rng)),
        "fast drift": lambda rng: together(gaussian(rng, 0.01), drift(rng, 0.5, 0.1)),
    }
    return made_up | {name: maker for trace in traces for name, maker in of(trace).items()}
