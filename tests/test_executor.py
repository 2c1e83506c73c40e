"""The executor: every item exactly once, never more participants than allowed, and nothing is left behind."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tunegen.box import this_box
from tunegen.errors import CompilerUnavailable
from tunegen.executor import Collector, CpuExecutor, layout, native
from tunegen.executor.layout import Mailbox
from tunegen.making.compile import compile_object, link
from tunegen.making.make import host_target

pytestmark = pytest.mark.skipif(native.library() is None, reason="no threads on this system")

MARK_IR = """
; context: an i8 per item that counts its visits, after a word each for calls, longest block and participants (bits)
define void @mark(ptr %context, i64 %begin, i64 %end, i64 %participant) {
entry:
  %calls = atomicrmw add ptr %context, i64 1 monotonic
  %longest.at = getelementptr i64, ptr %context, i64 1
  %length = sub i64 %end, %begin
  %longest = atomicrmw umax ptr %longest.at, i64 %length monotonic
  %who.at = getelementptr i64, ptr %context, i64 2
  %bit = shl i64 1, %participant
  %who = atomicrmw or ptr %who.at, i64 %bit monotonic
  %items = getelementptr i64, ptr %context, i64 3
  br label %next
next:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %next ]
  %item = getelementptr i8, ptr %items, i64 %i
  %count = atomicrmw add ptr %item, i8 1 monotonic
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %end
  br i1 %more, label %next, label %out
out:
  ret void
}
"""


@pytest.fixture(scope="module")
def mark() -> int:
    """Address of a body that marks its items."""
    target = host_target(this_box())
    return link(compile_object(MARK_IR, target), ("mark",), target)["mark"]


@pytest.fixture
def pool() -> Iterator[CpuExecutor]:
    with CpuExecutor(3) as executor:
        yield executor


def tasks() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/task")}


def workers(executor: CpuExecutor) -> list[int]:
    """The kernel's numbers of the workers, all of them started."""
    assert executor.native is not None
    executor.native.start(executor.address)
    boxes = executor.mailboxes()
    wait_for(lambda: all(box.thread_id for box in boxes))
    return [box.thread_id for box in boxes]


def wait_for(condition: Callable[[], bool]) -> None:
    """Fails only where something is never so."""
    for _ in range(60_000):
        if condition():
            return
        threading.Event().wait(0.001)
    raise AssertionError("never so")


def everybody(executor: CpuExecutor, work: Callable[[int], object] = lambda participant: None) -> int:
    """A region in which all participants meet, so that each is known to take part; then each does `work`."""
    barrier = threading.Barrier(executor.threads)

    def body(begin: int, end: int, participant: int) -> None:
        barrier.wait(60)
        work(participant)

    return executor.parallel_for(body, executor.threads, 1)


SIZES = (0, 1, 2, 3, 7, 64, 65, 1000, 4097)
GRAINS = (0, 1, 2, 3, 64, 1000, 5000, (1 << 63) - 1)
PARTICIPANTS = (0, 1, 2, 3, 9, -1, (1 << 63) - 1)


@pytest.mark.parametrize("threads", [1, 2, 3, 5])
@pytest.mark.parametrize("spin_us", [0, 50])
def test_every_item_is_done_once_and_no_limit_is_passed(mark: int, threads: int, spin_us: float) -> None:
    with CpuExecutor(threads, spin_us) as executor:
        assert executor.native is not None
        for size in SIZES:
            for grain in GRAINS:
                for asked in PARTICIPANTS:
                    context = (ctypes.c_int64 * (3 + size // 8 + 1))()
                    at = ctypes.addressof(context)
                    admitted = executor.native.call(executor.address, mark, at, size, grain, asked, 0)
                    calls, longest, who = context[:3]
                    case = (size, grain, asked)
                    assert bytes(context)[24 : 24 + size] == b"\1" * size, case
                    limit = min(threads, asked if asked > 0 else threads, size)
                    block = min(grain, size) or -(-size // max(limit, 1))
                    blocks = -(-size // block) if size else 0
                    assert admitted == min(limit, blocks), case
                    assert calls == blocks, case
                    assert longest == min(block, size), case
                    assert who < 1 << admitted, case


def test_the_first_two_words_are_what_entries_read() -> None:
    with CpuExecutor(4) as executor:
        assert executor.native is not None
        function, most = (ctypes.c_int64 * 2).from_address(executor.address)
        assert function == executor.native.parallel_for
        assert most == 4
        assert executor.address % layout.LINE_BYTES == 0


def test_the_layout_is_that_of_the_ir() -> None:
    """Sizes that the IR names as numbers; each structure fills whole lines."""
    sizes = [ctypes.sizeof(kind) for kind in (layout.Slot, layout.RecordWords, Mailbox, layout.PoolWords)]
    assert sizes == [136, 256, 384, 384]


def test_workers_start_with_the_first_region_that_needs_them() -> None:
    before = tasks()
    with CpuExecutor(3) as executor:
        executor.parallel_for(lambda *_: None, 100, participants=1)
        executor.parallel_for(lambda *_: None, 1)
        assert tasks() == before
        executor.parallel_for(lambda *_: None, 100, participants=2)
        assert len(tasks() - before) == 1
        assert everybody(executor) == 3
        assert len(tasks() - before) == 2
    wait_for(lambda: tasks() <= before)


def test_participants_are_threads_of_their_own_and_0_is_the_caller(pool: CpuExecutor) -> None:
    who: dict[int, int] = {}
    assert everybody(pool, lambda participant: who.update({participant: threading.get_native_id()})) == 3
    assert who == dict(enumerate([threading.get_native_id(), *workers(pool)]))


@pytest.mark.parametrize("grain", [0, 1, 3, 100])
def test_a_python_body_gets_blocks_of_grain(pool: CpuExecutor, grain: int) -> None:
    seen: list[tuple[int, int]] = []
    assert pool.parallel_for(lambda begin, end, _: seen.append((begin, end)), 50, grain) <= 3
    block = grain or 17
    assert sorted(seen) == [(begin, min(begin + block, 50)) for begin in range(0, 50, block)]


def test_a_nested_region_runs_on_its_caller(pool: CpuExecutor) -> None:
    """On every participant, and whichever executor it asks."""
    found: list[tuple[int, list[tuple[int, int, int]]]] = []
    with CpuExecutor(2) as other:

        def nest(participant: int) -> None:
            for executor in (pool, other):
                ran: list[tuple[int, int, int]] = []
                admitted = executor.parallel_for(lambda *share, ran=ran: ran.append(share), 10, 4)
                found.append((admitted, ran))

        assert everybody(pool, nest) == 3
        assert found == [(1, [(0, 4, 0), (4, 8, 0), (8, 10, 0)])] * 6
        assert everybody(other) == 2, "the executor inside is as it was"


def test_a_busy_pool_lets_others_run_on_their_own_thread(pool: CpuExecutor) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def hold(begin: int, end: int, participant: int) -> None:
        if begin == 0:
            inside.set()
            assert go_on.wait(60)

    holder = threading.Thread(target=pool.parallel_for, args=(hold, 2, 1))
    holder.start()
    assert inside.wait(60)
    ran: list[int] = []
    assert pool.parallel_for(lambda *_: ran.append(threading.get_ident()), 7, 1) == 1
    assert ran == [threading.get_ident()] * 7
    go_on.set()
    holder.join(60)
    assert everybody(pool) == 3


def test_two_threads_at_once_on_one_pool(mark: int) -> None:
    with CpuExecutor(2, spin_us=5) as executor:
        assert executor.native is not None
        call, address, wrong = executor.native.call, executor.address, []

        def work() -> None:
            for turn in range(2000):
                size = turn % 61
                context = (ctypes.c_int64 * 16)()
                call(address, mark, ctypes.addressof(context), size, turn % 7, 0, 0)
                if bytes(context)[24 : 24 + size] != b"\1" * size:
                    wrong.append(turn)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not wrong


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_is_raised_once_and_all_else_is_done(pool: CpuExecutor, kind: type[BaseException]) -> None:
    done: list[int] = []

    def body(begin: int, end: int, participant: int) -> None:
        if begin % 3 == 1:
            raise kind(begin)
        done.append(begin)

    with pytest.raises(kind) as raised:
        pool.parallel_for(body, 100, 1)
    assert raised.value.args[0] % 3 == 1
    assert raised.traceback[-1].name == "body"
    assert sorted(done) == [i for i in range(100) if i % 3 != 1]
    assert everybody(pool) == 3


def test_an_exception_of_a_worker_reaches_the_caller(pool: CpuExecutor) -> None:
    def fail(participant: int) -> None:
        if participant == 2:
            raise LookupError(participant)

    with pytest.raises(LookupError, match="2"):
        everybody(pool, fail)


def test_a_closed_pool_runs_on_its_caller() -> None:
    before = tasks()
    executor = CpuExecutor(3)
    assert everybody(executor) == 3
    executor.close()
    executor.close()
    assert executor.threads == 1
    wait_for(lambda: tasks() <= before)
    seen: list[tuple[int, int, int]] = []
    assert executor.parallel_for(lambda *share: seen.append(share), 5, 2) == 1
    assert seen == [(0, 2, 0), (2, 4, 0), (4, 5, 0)]


def test_close_inside_a_region_is_refused(pool: CpuExecutor) -> None:
    def close(participant: int) -> None:
        with pytest.raises(RuntimeError, match="inside a region"):
            pool.close()

    assert everybody(pool, close) == 3


def test_close_waits_for_a_region_of_another_thread() -> None:
    executor, inside, go_on, order = CpuExecutor(2), threading.Event(), threading.Event(), []

    def hold(begin: int, end: int, participant: int) -> None:
        inside.set()
        go_on.wait(60)
        order.append("block")

    holder = threading.Thread(target=executor.parallel_for, args=(hold, 2, 1))
    holder.start()
    assert inside.wait(60)
    closer = threading.Thread(target=lambda: (executor.close(), order.append("closed")))
    closer.start()
    wait_for(lambda: executor.threads == 1)
    go_on.set()
    closer.join(60)
    holder.join(60)
    assert order == ["block", "block", "closed"]


def test_an_executor_that_nobody_keeps_ends_its_workers() -> None:
    before = tasks()
    everybody(CpuExecutor(3))
    wait_for(lambda: tasks() <= before)


def test_a_thousand_executors_leave_nothing(mark: int) -> None:
    before, context = tasks(), (ctypes.c_int64 * 8)()
    for turn in range(1000):
        with CpuExecutor(2 + turn % 2, spin_us=turn % 3) as executor:
            assert executor.native is not None
            executor.native.call(executor.address, mark, ctypes.addressof(context), 20, 1, 0, 0)
    wait_for(lambda: tasks() <= before)
    assert context[0] == 20_000


def used(thread: int) -> tuple[str, ...]:
    """State of a thread, what it has used of a processor in ns, and how often it slept."""
    folder = Path(f"/proc/self/task/{thread}")
    status = (folder / "status").read_text().splitlines()
    return ((folder / "schedstat").read_text().split()[0],
            *(line for line in status if line.startswith("State") or "ctxt_switches" in line))  # fmt: skip


def at_rest(threads: list[int]) -> dict[int, tuple[str, ...]]:
    """What sleeping threads have used, once that does not grow any more."""
    looks: list[dict[int, tuple[str, ...]]] = [{}]

    def still() -> bool:
        looks.append({thread: used(thread) for thread in threads})
        return looks[-1] == looks[-2] and all("S (sleeping)" in str(look) for look in looks[-1].values())

    wait_for(still)
    return looks[-1]


def test_idle_workers_use_no_processor_and_only_the_admitted_are_woken() -> None:
    with CpuExecutor(4, spin_us=20) as executor:
        first, *others = workers(executor)
        everybody(executor)
        before = at_rest([first, *others])
        executor.parallel_for(lambda *_: sum(range(10_000)), 1000, 1, participants=1)
        assert {thread: used(thread) for thread in before} == before
        for _ in range(20):
            barrier = threading.Barrier(2)
            executor.parallel_for(lambda *_, barrier=barrier: barrier.wait(60), 2, 1)
        assert at_rest([first])[first] != before[first]
        assert all(used(thread) == before[thread] for thread in others)


def test_signals_are_for_other_threads_but_faults(pool: CpuExecutor) -> None:
    faults = sum(1 << number - 1 for number in (4, 6, 7, 8, 11))
    for thread in workers(pool):
        lines = Path(f"/proc/self/task/{thread}/status").read_text().splitlines()
        blocked = int(next(line for line in lines if line.startswith("SigBlk")).split()[1], 16)
        assert blocked & 1 << 1, "SIGINT"
        assert not blocked & faults


def test_numbers_that_are_none_are_refused(pool: CpuExecutor) -> None:
    for wrong in (True, 1.0, "1"):
        with pytest.raises(TypeError, match="threads"):
            CpuExecutor(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="size"):
            pool.parallel_for(lambda *_: None, wrong)  # type: ignore[arg-type]
    for make in (lambda: CpuExecutor(0), lambda: CpuExecutor(2, -1), lambda: CpuExecutor(2, float("nan"))):
        with pytest.raises(ValueError, match="CpuExecutor"):
            make()
    for size, grain, participants in ((-1, 0, 0), (1, -1, 0), (1, 0, -1), (1 << 63, 0, 0)):
        with pytest.raises(ValueError, match="0 or more"):
            pool.parallel_for(lambda *_: None, size, grain, participants)


def test_without_a_compiler_there_is_one_participant(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*_: object, **__: object) -> Any:
        raise CompilerUnavailable("llvmlite does not load")

    native.library.cache_clear()
    monkeypatch.setattr(native, "entry_object", unavailable)
    try:
        with CpuExecutor(4) as executor, Collector(executor) as collector:
            assert (executor.threads, executor.address) == (1, 0)
            seen: list[tuple[int, int, int]] = []
            assert executor.parallel_for(lambda *share: seen.append(share), 5, 2) == 1
            assert seen == [(0, 2, 0), (2, 4, 0), (4, 5, 0)]
            assert executor.parallel_for(lambda *share: seen.append(share), 5) == 1
            assert seen[3:] == [(0, 5, 0)]
            assert executor.parallel_for(lambda *share: seen.append(share), 0) == 0
            with pytest.raises(ZeroDivisionError):
                executor.parallel_for(lambda begin, *_: 1 // begin, 5, 1)
        assert collector.events() == []
    finally:
        native.library.cache_clear()


def test_a_system_that_has_no_more_threads_makes_do_with_fewer(child: Any) -> None:
    done = child("""
        import resource
        from tunegen.executor import CpuExecutor
        executor = CpuExecutor(64)
        executor.parallel_for(lambda *_: None, 2, 1)
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (30 << 20), resource.RLIM_INFINITY))
        done = []
        admitted = executor.parallel_for(lambda begin, end, me: done.append(begin), 1000, 1)
        assert sorted(done) == list(range(1000))
        assert 2 <= admitted == executor.threads < 64, admitted
    """)
    assert done.returncode == 0, done.stderr
