"""The noise probe: whether this box is fit to measure on, and how small a gain it lets one see.

A busy neighbour on the same physical core slows code that is bound by instruction fetch, and arithmetic hardly;
another process on the same virtual core stops both, and shows as wall time without processor time. So a probe
alternates two short bursts, arithmetic in native code and a loop in bytecode, and reads both clocks. It never sleeps:
a core that wakes up is slow.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from statistics import median
from typing import Literal

import msgspec
import numpy as np
from numpy.lib.stride_tricks import as_strided

from tunegen import knobs
from tunegen.box import effective_threads, information
from tunegen.harness import race
from tunegen.harness.measure import Clock, clock, cpu_clock

Verdict = Literal["quiet", "noisy", "refused"]

PROBE_S = 0.3
BRIEF_S = 0.06
"""Length of a probe before and after a tune, and of one in between."""
PAIRS = 15
"""The floor is that of a race of this many pairs of bursts; a probe takes at least as many."""
QUIET_FLOOR, WORST_FLOOR = 0.03, 0.15
"""From simulated tunes (`simulate.contest`, normal noise of all strengths, 60 tunes each). Up to the first, all of them
chose a winner within 2 % of the best; at 0.037 five of six did, at 0.047 one of three. At the second, half of them
found a variant that was 10 % faster than 50 others; at 0.1 nine of ten did. Nobody was ever crowned wrongly: noise
costs winners, and makes none."""
QUIET_SHARE, WORST_SHARE = 0.97, 0.75
"""Processor time over wall time, from tunes simulated beside a process that takes slices of 4 ms. Down to the first, a
gain of 10 % was found in 95 % of tunes, whether a call takes 0.3 or 20 ms. Down to the second that holds for calls that
are shorter than a slice, in 85 %; long calls tell nothing from 0.9 on, and say so by their floor."""
QUIET_SLOWDOWN = 1.2
"""The usual burst over the fastest one of the whole tune: above it, the box changed its speed in between. In 220 finals
on an idle box it was 1.05 in the median and below 1.2 in 99 of 100; a busy sibling thread makes 1.8."""


class Series(msgspec.Struct, frozen=True):
    """What the bursts of one kind took, and the gain that chance makes between equal ones."""

    best_ns: float
    median_ns: float
    tail_ns: float
    floor: float

    @property
    def slowdown(self) -> float:
        """The usual burst over the fastest."""
        return self.median_ns / self.best_ns


class Noise(msgspec.Struct, frozen=True):
    """What a probe saw. `share` is processor time over wall time."""

    native: Series
    bytecode: Series
    share: float
    bursts: int

    @property
    def floor(self) -> float:
        """The gain that chance makes between two equal runners in a race."""
        return max(self.native.floor, self.bytecode.floor)

    @property
    def slowdown(self) -> float:
        """The usual burst over the fastest, of the kind that suffers more."""
        return max(self.native.slowdown, self.bytecode.slowdown)

    @property
    def verdict(self) -> Verdict:
        """`quiet`; `noisy`: measure, and say so; `refused`: what is measured here is worth nothing."""
        if self.floor > WORST_FLOOR or self.share < WORST_SHARE:
            return "refused"
        quiet = self.floor <= QUIET_FLOOR and self.share >= QUIET_SHARE and self.slowdown <= QUIET_SLOWDOWN
        return "quiet" if quiet else "noisy"

    @property
    def reason(self) -> str:
        """What keeps the box from being quiet, as a sentence; "" when nothing does."""
        found = []
        if self.share < QUIET_SHARE:
            found.append(f"something else has the core for {1 - self.share:.0%} of the time")
        if self.floor > QUIET_FLOOR:
            found.append(f"chance makes gains of {self.floor:.1%} between equal runs")
        if self.slowdown > QUIET_SLOWDOWN:
            kind = "bytecode" if self.bytecode.slowdown > self.native.slowdown else "native code"
            found.append(f"{kind} usually runs {self.slowdown:.2f} times slower than it can")
        return "; ".join(found)

    def evidence(self) -> dict[str, object]:
        """What a manifest keeps of it."""
        return {
            "verdict": self.verdict,
            "floor": round(self.floor, 4),
            "slowdown": round(self.slowdown, 3),
            "share": round(self.share, 3),
            "bursts": self.bursts,
        }


def native_burst() -> Callable[[], object]:
    """A burst of fused multiply-adds, about a tenth of a millisecond of products that stay in the nearest cache."""
    one = np.full((48, 48), 0.5, np.float32)
    out = np.empty_like(one)
    many = np.broadcast_to(one, (64, 48, 48))
    # each product of the batch goes to the same place
    target = as_strided(out, (64, 48, 48), (0, *out.strides))
    return lambda: np.matmul(many, many, out=target)


def bytecode_burst() -> object:
    """A burst of the interpreter's loop, bound by instruction fetch."""
    x = 0
    for i in range(4000):
        x = x * 3 + i & 1023
    return x


def probe(
    seconds: float = PROBE_S,
    clock: Clock = clock,
    cpu: Clock = cpu_clock,
    bursts: tuple[Callable[[], object], Callable[[], object]] | None = None,
) -> Noise:
    """Alternates the two bursts for about `seconds`, and long enough for one block of pairs."""
    native, bytecode = bursts or (native_burst(), bytecode_burst)
    native()
    times: tuple[list[float], list[float]] = ([], [])
    start, used, now = clock(), cpu(), clock()
    while now - start < seconds * 1e9 or len(times[0]) < 2 * PAIRS:
        native()
        between = clock()
        bytecode()
        after = clock()
        times[0].append(between - now)
        times[1].append(after - between)
        now = after
    return judge(times[0], times[1], (cpu() - used) / max(now - start, 1))


def judge(native: Sequence[float], bytecode: Sequence[float], share: float) -> Noise:
    """The noise behind the times of bursts. Raises `race.Refused` for a time that is not positive."""
    return Noise(_series("native", native), _series("bytecode", bytecode), min(share, 1.0), len(native))


def _series(kind: str, times: Sequence[float]) -> Series:
    ordered = sorted(times)
    if not ordered[0] > 0:
        raise race.Refused(f"the {kind} burst", "the noise probe", ordered[0])
    pairs = [a / b for a, b in zip(times[::2], times[1::2], strict=False)]
    tail = ordered[min(len(ordered) * 9 // 10, len(ordered) - 1)]
    return Series(ordered[0], median(ordered), tail, race.chance(pairs, PAIRS))


def merged(probes: Sequence[Noise]) -> Noise:
    """The noise of a whole tune, from the probes before, during and after it.

    The fastest burst of all is what the box can do: a box that is slow throughout one probe shows only that way.
    """
    return Noise(
        _merged([p.native for p in probes]),
        _merged([p.bytecode for p in probes]),
        median(p.share for p in probes),
        sum(p.bursts for p in probes),
    )


def _merged(series: Sequence[Series]) -> Series:
    return Series(
        min(s.best_ns for s in series),
        median(s.median_ns for s in series),
        max(s.tail_ns for s in series),
        median(s.floor for s in series),
    )


def allowed_cores() -> list[int]:
    """The cores that this process may run on; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


PROBED_CORES = 8
SAME_PACE = 0.1
"""Cores whose bursts differ by less, as a logarithm, are equally fast. Some boxes have cores of two kinds."""


def quietest(cores: Sequence[int], look: Callable[[int], Noise]) -> int:
    """The core that is most its owner's, then fastest, then steadiest, out of a few spread over `cores`.

    The later one wins a tie: interrupts are served by the first.
    """
    some = list(cores)[:: max(1, len(cores) // PROBED_CORES)][-PROBED_CORES:]
    seen = {core: look(core) for core in reversed(some)}
    paces = {core: each.native.median_ns * each.bytecode.median_ns for core, each in seen.items()}
    fastest = min(paces.values())

    def rank(core: int) -> tuple[float, int, float]:
        slower = int(math.log(paces[core] / fastest) / SAME_PACE)
        return (round(1 - seen[core].share, 1), slower, round(seen[core].floor, 2))

    return min(seen, key=rank)


def pin() -> int | None:
    """Ties this thread, and those it starts, to the quietest core it may run on. None where that cannot be done.

    The effective thread count, and so the identity of the box, stays what it was: from here on `TUNE_THREADS` says it.
    """
    cores = allowed_cores()
    if not cores:
        return None
    knobs.change({knobs.THREADS.name: str(effective_threads())})
    with _restored():
        core = quietest(cores, _on_core) if len(cores) > 1 else cores[0]
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        return None
    return core


def _on_core(core: int) -> Noise:
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        return judge([1e9], [1e9], 0.0)
    return probe(BRIEF_S / 2)


@contextmanager
def _restored() -> Iterator[None]:
    before = os.sched_getaffinity(0)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def probe_quietest(seconds: float = PROBE_S) -> Noise:
    """A probe on the core that a worker would choose. The affinity of this thread is as before afterwards."""
    cores = allowed_cores()
    if len(cores) < 2:
        return probe(seconds)
    with _restored():
        os.sched_setaffinity(0, {quietest(cores, _on_core)})
        return probe(seconds)


@cache
def last_cache_bytes() -> int:
    """Size of the last-level cache; 0 when unknown."""
    return max(information()["cache_bytes"].values(), default=0)
