"""The executor and its process: forks, Ctrl-C, and the end of the interpreter with a pool that lives."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from tunegen.executor import native

pytestmark = pytest.mark.skipif(native.library() is None, reason="no threads on this system")

HEAD = """
import os, signal, sys, threading
from tunegen.executor import Collector, CpuExecutor

def everybody(executor, work=lambda me: None):
    barrier = threading.Barrier(executor.threads)
    done = []
    def body(begin, end, me):
        barrier.wait(60)
        work(me)
        done.append(begin)
    admitted = executor.parallel_for(body, executor.threads, 1)
    assert sorted(done) == list(range(executor.threads)), done
    return admitted

def code(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def pool_in_child(executor):
    child = os.fork()
    if not child:
        assert everybody(executor) == 3
        with Collector(executor) as collector:
            everybody(executor)
        assert [event.observed for event in collector.events()] == [3]
        executor.close()
        assert executor.threads == 1
        os._exit(0)
    assert code(child) == 0
"""


def run(child: Any, body: str) -> str:
    done = child(HEAD + dedent(body))
    assert (done.returncode, done.stderr) == (0, ""), done
    return str(done.stdout)


def test_the_child_of_a_fork_has_workers_of_its_own_and_the_parent_goes_on(child: Any) -> None:
    run(child, """
        executor, fresh = CpuExecutor(3), CpuExecutor(3)
        for turn in range(5):
            assert everybody(executor) == 3
            pool_in_child(executor)
            pool_in_child(fresh)
            assert everybody(executor) == 3
    """)  # fmt: skip


def test_a_closed_pool_stays_closed_in_the_child(child: Any) -> None:
    run(child, """
        executor = CpuExecutor(3)
        everybody(executor)
        executor.close()
        child = os.fork()
        if not child:
            os._exit(executor.threads - 1)
        assert code(child) == 0
    """)  # fmt: skip


def test_a_fork_while_another_thread_is_in_a_region(child: Any) -> None:
    run(child, """
        executor, inside, go_on = CpuExecutor(3), threading.Event(), threading.Event()
        def hold(me):
            inside.set()
            assert go_on.wait(60)
        with Collector(executor) as collector:
            holder = threading.Thread(target=everybody, args=(executor, hold))
            holder.start()
            assert inside.wait(60)
            for _ in range(5):
                pool_in_child(executor)
            go_on.set()
            holder.join(60)
            assert everybody(executor) == 3
        assert [event.observed for event in collector.events()] == [3, 3]
    """)  # fmt: skip


def test_a_fork_inside_a_region_by_its_caller_and_by_a_worker(child: Any) -> None:
    """The caller's child comes back from the region and has a pool; a worker's child ends with its only thread."""
    run(child, """
        executor = CpuExecutor(3)
        for who in (0, 2):
            children = []
            def fork(me):
                if me == who:
                    children.append(os.fork())
            parent = os.getpid()
            done = []
            barrier = threading.Barrier(3)
            def body(begin, end, me):
                barrier.wait(60)
                fork(me)
            executor.parallel_for(body, 3, 1)
            if os.getpid() != parent:
                assert who == 0
                assert everybody(executor) == 3
                os._exit(7)
            assert code(children[0]) == (7 if who == 0 else 0)
            assert everybody(executor) == 3
    """)  # fmt: skip


def test_multiprocessing_by_fork(child: Any) -> None:
    run(child, """
        import multiprocessing
        executor = CpuExecutor(3)
        everybody(executor)
        def square(x):
            assert everybody(executor) == 3
            return x * x
        with multiprocessing.get_context("fork").Pool(2) as processes:
            assert processes.map(square, range(10)) == [x * x for x in range(10)]
        assert everybody(executor) == 3
    """)  # fmt: skip


@pytest.mark.parametrize("spin_us", [0, 200, 10_000_000])
@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "del executor", "executor.close()"])
def test_an_interpreter_ends_right_after_a_region(child: Any, spin_us: int, end: str) -> None:
    run(child, f"""
        executor = CpuExecutor(3, spin_us={spin_us})
        assert everybody(executor) == 3
        {end}
    """)  # fmt: skip


def test_an_interpreter_ends_while_daemons_are_in_regions(child: Any) -> None:
    run(child, """
        executor = CpuExecutor(3)
        started = threading.Barrier(3)
        def work():
            started.wait(60)
            while True:
                executor.parallel_for(lambda *_: None, 6, 1)
        for _ in range(2):
            threading.Thread(target=work, daemon=True).start()
        started.wait(60)
        everybody
    """)  # fmt: skip


def test_an_interpreter_that_fails_after_a_region_says_so(child: Any) -> None:
    done = child(HEAD + "executor = CpuExecutor(3)\neverybody(executor)\nraise LookupError('no more')\n")
    assert done.returncode == 1
    assert "LookupError: no more" in done.stderr


@pytest.mark.parametrize("who", [0, 1])
def test_ctrl_c_during_a_region_reaches_the_main_thread_when_all_is_done(child: Any, who: int) -> None:
    """Whoever runs when the signal comes: it is the main thread that Python interrupts, and the caller that raises."""
    printed = run(child, f"""
        executor = CpuExecutor(2)
        seen = []
        for turn in range(20):
            def interrupt(me):
                if me == {who}:
                    os.kill(os.getpid(), signal.SIGINT)
            try:
                barrier, begun = threading.Barrier(2), []
                def body(begin, end, me):
                    begun.append(begin)
                    if begin < 2:
                        barrier.wait(60)
                    if begin == {who}:
                        interrupt(me)
                executor.parallel_for(body, 2, 1)
                signal.pause()
            except KeyboardInterrupt:
                seen.append(sorted(begun))
        assert seen == [[0, 1]] * 20, seen
        assert everybody(executor) == 2
        print("interrupted")
    """)  # fmt: skip
    assert printed == "interrupted\n"


def test_ctrl_c_before_a_block_loses_no_other_block(child: Any) -> None:
    """The signal waits while native code runs, and strikes before the first instruction of the next Python block."""
    run(child, """
        executor = CpuExecutor(1)
        import ctypes
        kill = ctypes.CDLL(None).kill  # without the checks for signals that os.kill makes
        for turn in range(50):
            done = []
            def body(begin, end, me):
                if begin == 3:
                    kill(os.getpid(), signal.SIGINT)
                done.append(begin)
            try:
                executor.parallel_for(body, 10, 1)
            except KeyboardInterrupt:
                pass
            else:
                raise AssertionError("not interrupted")
            assert len(done) >= 9 and done == sorted(done), done
    """)  # fmt: skip
