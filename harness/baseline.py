"""The machine report: what representative calls cost on this box, serial and on all threads, and how far they are from
what the box could do.

Read only: it never writes a manifest. Each kernel is measured on its smallest, middle and largest declared case, in
interleaved rounds of one thread and all; participants and counters come from parallel events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any, Literal

import msgspec

import tunegen
from tunegen import knobs
from tunegen.box import effective_threads, this_box
from tunegen.cases import Case
from tunegen.executor import Collector, Counter
from tunegen.executor.perf import hardware
from tunegen.harness import race, startup
from tunegen.harness.counting import counted
from tunegen.harness.flops import flops, moved_bytes
from tunegen.harness.forced import call_path
from tunegen.harness.measure import Clock, Runner, clock, process_clock
from tunegen.harness.problems import make_inputs, operands
from tunegen.harness.reports import About, about
from tunegen.harness.roofline import Roofline, measured
from tunegen.making.spec import Spec
from tunegen.parameters import Value
from tunegen.public.scope import Scope
from tunegen.public.setting import process_setting
from tunegen.public.target import Target
from tunegen.signature import ElementType

SizeName = Literal["small", "medium", "large"]
ROUNDS = 9
EVENTS = 5
"""Calls whose parallel events are recorded."""
STARTS = 3


class Figure(msgspec.Struct, frozen=True):
    """One call, on one thread or on all. Times are medians per call.

    `cpu_ns` is the processor time of the process, threads that wait for work included. `participants` is how many
    threads the call was admitted and how many took a share, 1 where it was not split; `utilisation` their work over
    the time that they had. `attainable_ns` is what the roofline allows, `distance` the time over that; 0 for unknown.
    """

    key: str
    size: SizeName
    sizes: dict[str, Any]
    threads: int
    variant: str
    wall_ns: float
    cpu_ns: float
    admitted: int
    observed: int
    utilisation: float
    counters: dict[str, Counter]
    flops: int
    bytes: int
    attainable_ns: float
    distance: float


class Held(msgspec.Struct, frozen=True):
    """The values that a key's parameters have on the box, and from where: default, profile, manifest or published."""

    key: str
    values: dict[str, Value]
    source: str


class Start(msgspec.Struct, frozen=True):
    """What a fresh process pays on top of numpy's import: in milliseconds, and as a multiple of that import."""

    what: str
    ms: float
    ratio: float


class Ranked(msgspec.Struct, frozen=True):
    """A region's place: by processor time, and where that is equal by how little of its threads it uses."""

    key: str
    size: SizeName
    threads: int
    cpu_ns: float
    share: float
    utilisation: float
    distance: float


class Baseline(msgspec.Struct, frozen=True):
    """The whole report. `policy` are the settings that decide what runs; `ranking` has the most costly region first."""

    about: About
    policy: dict[str, str]
    start_up: list[Start]
    roofline: Roofline
    values: list[Held]
    figures: list[Figure]
    ranking: list[Ranked]


def take(scopes: Iterable[Scope], *, only: Sequence[str] = (), announce: Callable[[str], None]) -> Baseline:
    """Measures the report. Takes some seconds for the roofline and about a second per kernel."""
    threads = effective_threads()
    announce("start-up")
    starts = start_up()
    announce("roofline")
    roofline = measured(this_box(), (1, threads))
    figures, values = [], []
    for target in _targets(scopes, only):
        announce(target.key)
        figures += figures_of(target, threads, roofline)
        values += [held(target)] if target.spec.schema else []
    return Baseline(about("baseline"), policy(), starts, roofline, values, figures, ranking(figures))


def _targets(scopes: Iterable[Scope], only: Sequence[str]) -> list[Target]:
    return [
        Target(kernel, t)
        for scope in scopes
        for kernel in scope.kernels.values()
        for t in kernel.signature.element_types
        if kernel.spec.cases and (not only or {kernel.name, kernel.spec.key(t)} & set(only))
    ]


DECIDING = (knobs.MODE, knobs.POLICY, knobs.FEATURES, knobs.THREADS)


def policy() -> dict[str, str]:
    """The settings of this process that decide what runs, as text; those that are not set are left out."""
    found = {knob.name: knob.get() for knob in DECIDING}
    return {**{n: str(v) for n, v in found.items() if v not in (None, "")}, "threads": str(effective_threads())}


def start_up() -> list[Start]:
    """What fresh processes pay for the import, and for the first call of a shipped kernel."""
    with startup.processes() as run:
        costs = startup.start_up(STARTS, run)
    return [Start(what, cost.ms, cost.ratio) for what, cost in costs.items()]


def held(target: Target) -> Held:
    """The values that calls without a session use."""
    choice = process_setting().values(target.spec, target.element_type)
    return Held(target.key, dict(choice.values), choice.source)


def representative(spec: Spec, element_type: ElementType) -> dict[SizeName, Case]:
    """The cases with the fewest, the middle and the most bytes; fewer where there are fewer cases."""
    ordered = sorted(spec.cases, key=lambda case: moved_bytes(spec, element_type, case.sizes))
    found: dict[SizeName, Case] = {"small": ordered[0]}
    if len(ordered) > 2:
        found["medium"] = ordered[len(ordered) // 2]
    if len(ordered) > 1:
        found["large"] = ordered[-1]
    return found


def figures_of(target: Target, threads: int, roofline: Roofline) -> list[Figure]:
    """The figures of one kernel and element type: its representative cases on one thread and on all."""
    found = []
    with ExitStack() as stack:
        sessions = {n: stack.enter_context(tunegen.session(threads=n)) for n in dict.fromkeys((1, threads))}
        calls = {n: session.bind(target.kernel) for n, session in sessions.items()}
        for size, case in representative(target.spec, target.element_type).items():
            inputs = make_inputs(target.spec, target.element_type, case.sizes, 0, optional=False)
            values = tuple(operands(target.spec, target.element_type, case.sizes, inputs).values())
            updated = [i for i, p in enumerate(target.spec.signature.parameters) if getattr(p, "role", "") == "inout"]
            runners = {n: Runner(call, values, updated) for n, call in calls.items()}
            for runner in runners.values():
                runner.warm_up()
            walls, cpus = _times(runners, clock), _times(runners, process_clock)
            for n in sessions:
                used = _parallel(sessions[n].executor, partial(calls[n], *values))
                best = roofline.attainable_ns(target.element_type.name, n, *_work(target, case))
                found.append(_figure(target, size, case, calls[n], n, walls[n], cpus[n], used, best))
    return found


def _times(runners: Mapping[int, Runner], by: Clock) -> dict[int, float]:
    """Nanoseconds per call by threads on a clock, from interleaved rounds."""

    def sample(name: str, _: str) -> float:
        # threads that slept meanwhile wake up
        runners[int(name)].settle()
        return runners[int(name)].sample(by)

    times = race.rounds(sample, [str(n) for n in runners], ["case"], lambda done: done >= ROUNDS)
    return {n: median(times[str(n), "case"]) for n in runners}


def _work(target: Target, case: Case) -> tuple[int, int]:
    return (flops(target.spec, target.element_type, case.sizes),
            moved_bytes(target.spec, target.element_type, case.sizes))  # fmt: skip


class _Used(msgspec.Struct, frozen=True):
    """What the regions of a call used: participants admitted and seen, their utilisation, and counters."""

    admitted: int
    observed: int
    utilisation: float | None
    counters: dict[str, Counter]


def _parallel(executor: Any, call: Callable[[], object]) -> _Used:
    """What parallel events say of a call; of one that opens no region, the counters of this thread."""
    if executor is not None:
        with Collector(executor, counters=hardware()) as collector:
            for _ in range(EVENTS):
                call()
        events = [event for event in collector.events() if not event.alone]
        if events:
            last = events[-1]
            return _Used(round(median(e.admitted for e in events)), round(median(e.observed for e in events)),
                         median(e.utilisation for e in events), last.counters)  # fmt: skip
    return _Used(1, 1, None, counted(call, hardware(), threading.get_native_id()))


def _figure(
    target: Target, size: SizeName, case: Case, call: Any, threads: int, wall_ns: float, cpu_ns: float, used: _Used,
    attainable_ns: float,
) -> Figure:  # fmt: skip
    spec, element_type = target.spec, target.element_type
    count, bytes_ = _work(target, case)
    emitted = [choice.emitted for choice in call.stamp[element_type.name].choices]
    path = call_path(spec, emitted, call.values[element_type.name], case.sizes, threads)
    busy = used.utilisation if used.utilisation is not None else min(cpu_ns / wall_ns, 1.0)
    return Figure(
        target.key, size, dict(case.sizes), threads, path.variant, wall_ns, cpu_ns, used.admitted,
        used.observed, busy, used.counters, count, bytes_, attainable_ns,
        wall_ns / attainable_ns if attainable_ns else 0.0,
    )  # fmt: skip


def ranking(figures: Sequence[Figure]) -> list[Ranked]:
    """All figures by processor time, the most costly first; `share` is that of the figures of equal thread count."""
    totals: dict[int, float] = {}
    for figure in figures:
        totals[figure.threads] = totals.get(figure.threads, 0.0) + figure.cpu_ns
    rows = [
        Ranked(f.key, f.size, f.threads, f.cpu_ns, f.cpu_ns / totals[f.threads], f.utilisation, f.distance)
        for f in figures
    ]
    return sorted(rows, key=lambda row: (-row.cpu_ns, row.utilisation))
