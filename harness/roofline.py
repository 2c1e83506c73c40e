"""The roofline of this box, measured: how many multiply-adds, and how many bytes from each level of memory.

Three loops in LLVM IR, as wide as the vectors of the box: fused multiply-adds in as many chains as hide their latency,
a read, and a copy with and without streaming stores. What a kernel could at best take is the larger of its arithmetic
at that peak and its bytes at the bandwidth of the level that holds them.

Source: S. Williams, A. Waterman, D. Patterson, Roofline: an insightful visual performance model, CACM 52 (2009).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np

from tunegen.box import Box, information
from tunegen.harness.measure import Clock, clock
from tunegen.making.compile import compile_object, link
from tunegen.making.make import host_target
from tunegen.signature import ELEMENT_TYPES, ElementType

CHAINS = 12
"""Independent chains of multiply-adds: more than latency times pipes of today's cores, and they fit 16 registers."""
LANES = 8
"""Vectors in flight of the loops over memory."""
SAMPLE_NS = 3_000_000
"""How long a sample takes: threads that start together are up to some ten microseconds apart."""
SAMPLES = 7
MEMORY_BYTES = 256 << 20
"""Least working set that counts as memory, where the last cache is not larger than a quarter of it."""
ALIGNMENT = 64
TYPES = ("f32", "f64")


class Peak(msgspec.Struct, frozen=True):
    """Arithmetic: multiplications and additions, in 10^9 per second, of all threads together."""

    element_type: str
    threads: int
    gflops: float


class Bandwidth(msgspec.Struct, frozen=True):
    """Bytes read and written in 10^9 per second, of all threads together, where each works on `bytes` bytes."""

    level: str
    threads: int
    bytes: int
    read_gbs: float
    copy_gbs: float
    stream_gbs: float

    @property
    def best_gbs(self) -> float:
        """The best of the three: no kernel moves more."""
        return max(self.read_gbs, self.copy_gbs, self.stream_gbs)


class Roofline(msgspec.Struct, frozen=True):
    """What was measured, levels from the nearest to memory."""

    peaks: list[Peak]
    bandwidths: list[Bandwidth]

    def attainable_ns(self, element_type: str, threads: int, flops: float, bytes_: int) -> float:
        """What a call could at best take on so many threads, 0 where nothing is known of it."""
        levels = [b for b in self.bandwidths if b.threads == threads]
        # a thread's working set is filled to half, so what fits is up to twice as large
        level = next((b for b in levels if bytes_ <= 2 * b.bytes * threads), levels[-1] if levels else None)
        gflops = next((p.gflops for p in self.peaks if (p.element_type, p.threads) == (element_type, threads)), 0.0)
        arithmetic = flops / gflops if gflops else 0.0
        return max(arithmetic, bytes_ / level.best_gbs if level is not None else 0.0)


def measured(box: Box, thread_counts: Sequence[int], clock: Clock = clock) -> Roofline:
    """Measures the roofline on each of these thread counts. Takes about a second each. Raises `CompileError`."""
    loops = Loops(box)
    peaks, bandwidths = [], []
    for threads in dict.fromkeys(thread_counts):
        with ThreadPoolExecutor(threads) as pool:
            for name in TYPES:
                rate = _rate([loops.arithmetic(name)] * threads, pool, clock)
                peaks.append(Peak(name, threads, rate * threads))
            for level, bytes_ in levels(information()["cache_bytes"], threads).items():
                works = [loops.memory(bytes_) for _ in range(threads)]
                found = {kind: _rate([work[kind] for work in works], pool, clock) * threads for kind in works[0]}
                bandwidths.append(Bandwidth(level, threads, bytes_, found["read"], found["copy"], found["stream"]))
    return Roofline(peaks, bandwidths)


def levels(cache_bytes: Mapping[str, int], threads: int) -> dict[str, int]:
    """Bytes that each thread works on, by level: half of a cache of its own, a share of half the last one, and more
    than that for memory.
    """
    names = sorted(cache_bytes)
    found = {name: cache_bytes[name] // 2 for name in names[:-1]}
    found |= {name: cache_bytes[name] // 2 // threads for name in names[-1:]}
    memory = max([MEMORY_BYTES, *(4 * size for size in cache_bytes.values())])
    step = LANES * ALIGNMENT
    return {name: max(size // step, 1) * step for name, size in {**found, "memory": memory // threads}.items()}


Work = Callable[[int], float]
"""Does something so many times over; how much that was each time, in operations or bytes."""


class Loops:
    """The loops, compiled for a box."""

    def __init__(self, box: Box) -> None:
        self.bytes = box.limits.get("vector_bytes", 16)
        self.fused = "fma" in box.feature_set or "neon" in box.feature_set
        target = host_target(box)
        symbols = (*(f"arithmetic_{name}" for name in TYPES), "read", "copy", "stream")
        ir = loops_ir(self.bytes, fused=self.fused)
        addresses = link(compile_object(ir, target), symbols, target)
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        self._calls = {symbol: kind(address) for symbol, address in addresses.items()}

    def arithmetic(self, element_type: str) -> Work:
        """A step is a round of all chains, 1000 times; in operations."""
        call, factor, term = self._calls[f"arithmetic_{element_type}"], _aligned(4096), _aligned(4096)
        dtype = ELEMENT_TYPES[element_type].dtype
        factor[:4096].view(dtype)[...] = 0.75
        term[:4096].view(dtype)[...] = 0.25
        lanes = self.bytes // ELEMENT_TYPES[element_type].bytes

        def work(steps: int) -> float:
            call(factor.ctypes.data, term.ctypes.data, 1000, steps)
            return 2.0 * CHAINS * lanes * 1000

        return work

    def memory(self, bytes_: int) -> dict[str, Work]:
        """A step reads, or copies from one half to the other, so many bytes; in bytes read and written."""
        buffer = _aligned(bytes_)
        half = bytes_ // 2 // (LANES * self.bytes) * (LANES * self.bytes) or LANES * self.bytes
        start = buffer.ctypes.data

        def reads(steps: int) -> float:
            self._calls["read"](start, start, bytes_, steps)
            return float(bytes_)

        def copies(name: str) -> Work:
            def work(steps: int) -> float:
                self._calls[name](start, buffer[half:].ctypes.data, half, steps)
                return 2.0 * half

            return work

        return {"read": reads, "copy": copies("copy"), "stream": copies("stream")}


def _aligned(bytes_: int) -> Any:
    """Zeroed bytes on a line of their own, every page of them touched."""
    whole = np.empty(bytes_ + ALIGNMENT + 2 * LANES * ALIGNMENT, np.uint8)
    whole[...] = 0
    start = -whole.ctypes.data % ALIGNMENT
    return whole[start:]


def _rate(works: Sequence[Work], pool: ThreadPoolExecutor, clock: Clock) -> float:
    """The best rate of a thread among some samples, in units per nanosecond: noise only ever makes it less."""
    steps, taken = 1, 0
    while taken < SAMPLE_NS // 4:
        steps *= 4 if taken else 1
        # the least of a few: somebody else's turn on this core is no work of ours
        taken = min(_sample(works, steps, pool, clock)[0] for _ in range(3))
    steps = max(steps * SAMPLE_NS // max(taken, 1), 1)
    return max(done * steps / ns for ns, done in (_sample(works, steps, pool, clock) for _ in range(SAMPLES)))


def _sample(works: Sequence[Work], steps: int, pool: ThreadPoolExecutor, clock: Clock) -> tuple[int, float]:
    """(nanoseconds until all threads are done, units per step of a thread)."""
    start = clock()
    done = [future.result() for future in [pool.submit(work, steps) for work in works]]
    return max(clock() - start, 1), done[0]


def loops_ir(vector_bytes: int, *, fused: bool) -> str:
    """All loops as one module: `void name(ptr, ptr, i64 inner, i64 outer)`."""
    arithmetic = [_arithmetic(ELEMENT_TYPES[name], vector_bytes, fused=fused) for name in TYPES]
    return "\n".join([*arithmetic, *(_memory(name, vector_bytes) for name in ("read", "copy", "stream")),
                      "!0 = !{i32 1}"])  # fmt: skip


def _arithmetic(t: ElementType, vector_bytes: int, *, fused: bool) -> str:
    """`%from` holds a factor and `%to` a term, so nothing is known when this is compiled; the results go behind it."""
    vector = f"<{vector_bytes // t.bytes} x {t.llvm}>"
    body = [
        f"  %x = load {vector}, ptr %from, align {vector_bytes}",
        f"  %y = load {vector}, ptr %to, align {vector_bytes}",
    ]
    for i in range(CHAINS):
        body.append(f"  %v{i} = load {vector}, ptr %a{i}")
        if fused:
            name = f"llvm.fma.v{vector_bytes // t.bytes}f{t.bits}"
            body.append(f"  %w{i} = call {vector} @{name}({vector} %v{i}, {vector} %x, {vector} %y)")
        else:
            body += [f"  %m{i} = fmul {vector} %v{i}, %x", f"  %w{i} = fadd {vector} %m{i}, %y"]
        body.append(f"  store {vector} %w{i}, ptr %a{i}")
    sum_ = [f"  %z{i} = load {vector}, ptr %a{i}\n  %at{i} = getelementptr {vector}, ptr %to, i64 {i + 1}\n"
            f"  store {vector} %z{i}, ptr %at{i}" for i in range(CHAINS)]  # fmt: skip
    return _loops(f"arithmetic_{t.name}", vector, CHAINS, body, 1, sum_)


def _memory(name: str, vector_bytes: int) -> str:
    vector = f"<{vector_bytes // 8} x i64>"
    body = []
    for i in range(LANES):
        place = f"  %p{i}.at = add i64 %i.now, {i * vector_bytes}\n  %p{i} = getelementptr i8, ptr %from, i64 %p{i}.at"
        body += [place, f"  %v{i} = load {vector}, ptr %p{i}, align {vector_bytes}"]
        if name == "read":
            body += [f"  %b{i} = load {vector}, ptr %a{i}", f"  %w{i} = xor {vector} %b{i}, %v{i}",
                     f"  store {vector} %w{i}, ptr %a{i}"]  # fmt: skip
        else:
            hint = ", !nontemporal !0" if name == "stream" else ""
            body += [f"  %q{i} = getelementptr i8, ptr %to, i64 %p{i}.at",
                     f"  store {vector} %v{i}, ptr %q{i}, align {vector_bytes}{hint}"]  # fmt: skip
    last = [f"  %z{i} = load {vector}, ptr %a{i}" for i in range(LANES)]
    last += [f"  %s{i + 1} = xor {vector} %{'z0' if not i else f's{i}'}, %z{i + 1}" for i in range(LANES - 1)]
    last.append(f"  store {vector} %s{LANES - 1}, ptr %to")
    return _loops(name, vector, LANES, body, LANES * vector_bytes, last if name == "read" else [])


def _loops(name: str, carried: str, count: int, body: Sequence[str], step: int, end: Sequence[str]) -> str:
    """`outer` times a loop over `inner` in steps. `%a0` and on keep values of the type `carried`, `%i.now` counts."""
    lines = "\n".join
    kept = lines(f"  %a{i} = alloca {carried}\n  store {carried} zeroinitializer, ptr %a{i}" for i in range(count))
    return f"""
define void @{name}(ptr %from, ptr %to, i64 %inner, i64 %outer) {{
entry:
{kept}
  br label %head
head:
  %j = phi i64 [ 0, %entry ], [ %j.next, %leave ]
  br label %loop
loop:
  %i.now = phi i64 [ 0, %head ], [ %i.next, %loop ]
{lines(body)}
  %i.next = add i64 %i.now, {step}
  %more = icmp slt i64 %i.next, %inner
  br i1 %more, label %loop, label %leave
leave:
  %j.next = add i64 %j, 1
  %again = icmp slt i64 %j.next, %outer
  br i1 %again, label %head, label %done
done:
{lines(end)}
  ret void
}}
"""
