"""Parallel events: one record a region, counters from a source that may fail, and never a number that nobody read."""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from tunegen.executor import Collector, Counter, CpuExecutor, Event, label_id, native
from tunegen.executor.labels import label_name
from tunegen.executor.perf import PerfEvent, hardware

pytestmark = pytest.mark.skipif(native.library() is None, reason="no threads on this system")

Reading = tuple[int, int, int]


def nothing(*_: int) -> None:
    """A block without work."""


@pytest.fixture
def pool() -> Iterator[CpuExecutor]:
    with CpuExecutor(2) as executor:
        yield executor


class Fake:
    """Gives each thread a file with the readings in it, one after the other."""

    def __init__(self, readings: Callable[[int], list[Reading]], error: int = 0, opens: int = 1 << 30) -> None:
        self.readings, self.error, self.opens = readings, error, opens
        self.files: dict[int, int] = {}

    def open(self, thread_id: int) -> int:
        if len(self.files) >= self.opens:
            raise OSError(self.error, os.strerror(self.error))
        file = os.memfd_create("counter")
        os.write(file, b"".join(struct.pack("<3q", *reading) for reading in self.readings(len(self.files))))
        os.lseek(file, 0, os.SEEK_SET)
        self.files[thread_id] = file
        return file


def both(executor: CpuExecutor, label: str = "") -> None:
    """A region of which each participant has a block."""
    barrier = threading.Barrier(2)
    executor.parallel_for(lambda *_: barrier.wait(60), 2, 1, label=label)


def test_an_event_says_what_was_asked_for_and_what_became_of_it(pool: CpuExecutor) -> None:
    with Collector(pool) as collector:
        both(pool, "exp[f32]")
        pool.parallel_for(nothing, 100, 30, 9)
        pool.parallel_for(nothing, 11)
    first, second, third = collector.events()
    assert (first.label, first.iterations, first.grain, first.block) == ("exp[f32]", 2, 1, 1)
    assert (first.requested, first.admitted, first.observed, first.alone) == (0, 2, 2, "")
    assert (second.label, second.iterations, second.grain, second.block, second.requested) == ("", 100, 30, 30, 9)
    assert second.admitted == 2
    assert 1 <= second.observed <= 2
    assert (third.grain, third.block) == (0, 6)
    for event in (first, second, third):
        assert event.wall_ns > 0
        assert event.cpu_ns > 0
        assert event.counters == {}
        assert event.utilisation == event.cpu_ns / (event.wall_ns * 2)
    assert msgspec.json.decode(msgspec.json.encode(first), type=Event) == first


def test_regions_on_the_caller_alone_say_why(pool: CpuExecutor) -> None:
    inside, go_on = threading.Event(), threading.Event()
    with Collector(pool) as collector:
        pool.parallel_for(nothing, 1)
        pool.parallel_for(nothing, 10, participants=1)
        pool.parallel_for(lambda begin, *_: pool.parallel_for(nothing, 8, 2) if not begin else None, 2, 1)
        holder = threading.Thread(
            target=pool.parallel_for, args=(lambda begin, *_: begin or (inside.set(), go_on.wait(60)), 2, 1)
        )
        holder.start()
        assert inside.wait(60)
        pool.parallel_for(nothing, 6, 3)
        go_on.set()
        holder.join(60)
        pool.parallel_for(nothing, 0)
    found = [(event.iterations, event.block, event.admitted, event.observed, event.alone)
             for event in collector.events() if event.alone]  # fmt: skip
    assert found == [(1, 1, 1, 1, "one_block"), (10, 10, 1, 1, "one_participant"), (8, 2, 1, 1, "nested"),
                     (6, 3, 1, 1, "busy")]  # fmt: skip
    assert len(collector.events()) == 6, "an empty region is none"


def test_processor_time_is_that_of_all_participants(pool: CpuExecutor) -> None:
    """A block that works until it has used 2 ms of its thread's own clock, on each of two threads."""
    import time

    def work(*_: int) -> None:
        end = time.thread_time_ns() + 2_000_000
        barrier.wait(60)
        while time.thread_time_ns() < end:
            pass

    barrier = threading.Barrier(2)
    with Collector(pool) as collector:
        pool.parallel_for(work, 2, 1)
    (event,) = collector.events()
    assert event.observed == 2
    assert event.cpu_ns >= 4_000_000


def test_what_has_no_room_is_counted(pool: CpuExecutor) -> None:
    with Collector(pool, capacity=3) as collector:
        for size in range(1, 11):
            pool.parallel_for(nothing, size)
        assert [event.iterations for event in collector.events()] == [1, 2, 3]
        assert collector.overflow == 7
    assert len(collector.events()) == 3
    assert collector.overflow == 7
    with Collector(pool, capacity=3) as again:
        pool.parallel_for(nothing, 1)
    assert (len(again.events()), again.overflow) == (1, 0)


def test_regions_of_many_threads_are_all_recorded(pool: CpuExecutor) -> None:
    with Collector(pool, capacity=2000) as collector:

        def work(me: int) -> None:
            for _ in range(300):
                pool.parallel_for(nothing, 4 + me, 1, label=f"thread {me}")

        threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    events = collector.events()
    assert len(events) == 1200
    assert all(event.iterations == 4 + int(event.label[-1]) for event in events)
    assert collector.overflow == 0


def test_nothing_is_recorded_outside(pool: CpuExecutor) -> None:
    collector = Collector(pool)
    pool.parallel_for(nothing, 5)
    assert collector.events() == []
    with collector:
        pool.parallel_for(nothing, 6)
    pool.parallel_for(nothing, 7)
    assert [event.iterations for event in collector.events()] == [6]


def test_a_region_that_outlives_its_collector_keeps_what_it_writes_to(pool: CpuExecutor) -> None:
    source = Fake(lambda _: [(0, 0, 0), (1, 1, 1)])
    collector = Collector(pool, counters={"cycles": source})

    def leave(begin: int, end: int, participant: int) -> None:
        if not begin:
            collector.__exit__(None, None, None)
            assert all(os.fstat(file) for file in source.files.values()), "a participant may yet read them"

    collector.__enter__()
    pool.parallel_for(leave, 2, 1)
    with Collector(pool) as following:
        pool.parallel_for(nothing, 2)
    assert len(collector.events()) == 1
    assert len(following.events()) == 1
    for file in source.files.values():
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(file)


def test_an_executor_has_one_collector_at_a_time(pool: CpuExecutor) -> None:
    with Collector(pool), pytest.raises(RuntimeError, match="already"), Collector(pool):
        pass
    with CpuExecutor(2) as other, Collector(pool) as ours, Collector(other) as theirs:
        both(other)
    assert (len(ours.events()), len(theirs.events())) == (0, 1)


def test_counters_inside_a_region_are_refused(pool: CpuExecutor) -> None:
    def enter(*_: int) -> None:
        with Collector(pool, counters=hardware()):
            pass

    with pytest.raises(RuntimeError, match="inside a region"):
        pool.parallel_for(enter, 2, 1)


def test_counters_are_summed_over_the_participants(pool: CpuExecutor) -> None:
    """The caller's file says 100 and then 140, the worker's 1000 and then 1007; then 2 and 3 more."""
    lists = [[(100, 5, 5), (140, 9, 9), (140, 9, 9), (142, 10, 10)],
             [(1000, 50, 50), (1007, 60, 60), (1007, 60, 60), (1010, 61, 61)]]  # fmt: skip
    source = Fake(lambda index: lists[index])
    with Collector(pool, counters={"cycles": source}) as collector:
        both(pool)
        both(pool)
        assert threading.get_native_id() in source.files
        assert len(source.files) == 2
    first, second = collector.events()
    assert first.counters == {"cycles": Counter("ok", 47)}
    assert second.counters == {"cycles": Counter("ok", 5)}


def test_a_region_on_its_caller_has_the_callers_counters(pool: CpuExecutor) -> None:
    with Collector(pool, counters={"cycles": Fake(lambda _: [(1, 0, 0), (12, 4, 4)])}) as collector:
        pool.parallel_for(nothing, 1)
    assert collector.events()[0].counters == {"cycles": Counter("ok", 11)}


@pytest.mark.parametrize(
    ("readings", "counter"),
    [
        ([(0, 0, 0), (10, 8, 4)], Counter("multiplexed", 20)),
        ([(7, 10, 10), (7, 20, 10)], Counter("multiplexed")),
        ([(0, 0, 0)], Counter("unsupported")),
        ([], Counter("unsupported")),
        ([(3, 1, 1), (3, 2, 2)], Counter("ok", 0)),
    ],
)
def test_a_counter_that_did_not_count_has_no_number(
    pool: CpuExecutor, readings: list[Reading], counter: Counter
) -> None:
    """The last one did count, and there was nothing."""
    with Collector(pool, counters={"misses": Fake(lambda _: readings)}) as collector:
        both(pool)
        pool.parallel_for(nothing, 1)
    event = collector.events()[0]
    expected = counter if counter.value is None else Counter(counter.status, 2 * counter.value)
    assert event.counters == {"misses": expected}
    assert collector.events()[1].counters == {"misses": Counter("unsupported")}, "the file is at its end"


@pytest.mark.parametrize("opens", [0, 1])
@pytest.mark.parametrize(
    ("error", "status"),
    [(errno.EACCES, "permission_denied"), (errno.EPERM, "permission_denied"), (errno.ENOENT, "unsupported"),
     (errno.ENOSYS, "unsupported"), (errno.EMFILE, "unsupported")],
)  # fmt: skip
def test_a_source_that_fails_says_how_and_leaves_the_others(
    pool: CpuExecutor, error: int, status: Any, opens: int
) -> None:
    """Whether it fails at once, or for the second thread: half a sum is none."""
    broken = Fake(lambda _: [(0, 0, 0), (1, 1, 1)], error, opens)
    good = Fake(lambda _: [(0, 0, 0), (2, 1, 1)])
    with Collector(pool, counters={"broken": broken, "good": good}) as collector:
        both(pool)
    assert collector.events()[0].counters == {"broken": Counter(status), "good": Counter("ok", 4)}
    for file in [*broken.files.values(), *good.files.values()]:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(file)


def test_the_counters_of_another_thread_are_not_taken_for_those_of_the_caller(pool: CpuExecutor) -> None:
    source = Fake(lambda _: [(0, 0, 0), (2, 1, 1)])
    with Collector(pool, counters={"cycles": source}) as collector:
        other = threading.Thread(target=both, args=(pool,))
        other.start()
        other.join(60)
    assert collector.events()[0].counters == {"cycles": Counter("unsupported")}


def test_the_counters_of_this_system_have_a_value_or_a_reason(pool: CpuExecutor) -> None:
    with Collector(pool, counters=hardware()) as collector:
        pool.parallel_for(lambda *_: sum(range(1000)), 2, 1)
    counters = collector.events()[0].counters
    assert list(counters) == ["cycles", "instructions", "cache_misses", "branch_misses"]
    for counter in counters.values():
        assert counter.status != "ok" or counter.value is not None
        assert counter.status in ("ok", "multiplexed") or counter.value is None
    if counters["instructions"].status == "ok":
        assert counters["instructions"].value


def test_a_perf_event_of_no_thread_is_an_error() -> None:
    with pytest.raises(OSError, match=r"."):
        PerfEvent(0, 0).open((1 << 22) + 1)


def test_limits_of_a_collector(pool: CpuExecutor) -> None:
    with pytest.raises(ValueError, match="capacity"):
        Collector(pool, 0)
    with pytest.raises(ValueError, match="at most 4"):
        Collector(pool, counters={str(i): Fake(lambda _: []) for i in range(5)})


def test_labels_are_numbers_both_ways() -> None:
    assert label_id("") == 0
    number = label_id("gemm[f64]")
    assert number == label_id("gemm[f64]") != label_id("gemm[f32]")
    assert label_name(number) == "gemm[f64]"
    assert label_name(-1) == label_name(1 << 40) == ""
