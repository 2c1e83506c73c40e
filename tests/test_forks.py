"""A fork at any moment, also while another thread compiles: calls work in the parent and in the child."""

from __future__ import annotations

import threading
from typing import Any

from toys import TOY, write_library

from tunegen import forks

MANY = TOY.replace("row=[1, 2, 3]", "row=[1, 2, 3], other=list(range(60))").replace("row=4, ", "row=4, other=0, ")
MANY = MANY.replace("row=5, ", "row=5, other=0, ").replace("row2; row1", "row2_other0; row1_other0")

PROGRAM = """
import os, signal, sys, threading
import numpy as np
{prelude}
import {name} as made
from tunegen.public.variant import Variant

signal.alarm(100)

def answer(suffix):
    out = np.zeros(3, np.float32)
    Variant(made.toy.spec, made.toy.spec.grid.find(suffix))(out, np.zeros(3, np.float32))

started, done = threading.Event(), threading.Event()

def compile_all():
    for n in range(60):
        if n == 1:
            started.set()
        if not done.is_set():
            answer(f"row1_other{{n}}")
    started.set()

thread = threading.Thread(target=compile_all)
thread.start()
started.wait()
codes = []
for turn in range({turns}):
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            out = np.zeros(3, np.float32)
            made.toy(np.zeros(3, np.float32), out)   # chosen, rendered, compiled and linked in the child
            answer(f"row3_other{{turn}}")
            os._exit(0 if out[0] == 2 else 1)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(2)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done.set()
thread.join()
out = np.zeros(3, np.float32)
made.toy(np.zeros(3, np.float32), out)
print(codes, out[0])
"""


def test_a_fork_while_another_thread_compiles_leaves_parent_and_child_able_to_compile(child: Any, tmp_path) -> None:
    name = write_library(tmp_path / "libraries", MANY)
    done = child(PROGRAM.format(name=name, prelude="sys.setswitchinterval(1e-5)", turns=8))
    assert (done.stdout, done.stderr) == (f"{[0] * 8} 2.0\n", "")


def test_a_fork_waits_for_whoever_holds_the_lock(child: Any) -> None:
    """And one who forks while it holds the lock itself goes on, as does its child."""
    done = child("""
        import os, threading
        from tunegen import forks
        held, free, order = threading.Event(), threading.Event(), []
        def hold():
            with forks.LOCK:
                held.set()
                free.wait()
                order.append("released")
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        threading.Timer(0.1, free.set).start()
        child = os.fork()
        order.append("forked")
        if not child:
            with forks.LOCK:
                os._exit(0 if order == ["released", "forked"] else 1)
        assert os.wait()[1] == 0 and order == ["released", "forked"]
        with forks.LOCK:
            child = os.fork()
            if not child:
                other = threading.Thread(target=lambda: order.append(forks.LOCK.acquire(blocking=False)))
                other.start()
                other.join()
                os._exit(order[-1])
            assert os.wait()[1] == 0
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_who_logs_at_work_and_a_fork_do_not_wait_for_each_other(child: Any) -> None:
    """A fork takes the lock of `logging`, too: after ours, though `logging` is imported later."""
    done = child("""
        import os, signal, sys, threading
        from tunegen import forks, log
        assert "logging" not in sys.modules
        signal.alarm(60)
        sys.setswitchinterval(1e-5)
        stop = threading.Event()
        import logging
        logging.getLogger("tunegen").addHandler(logging.NullHandler())
        forks.go_before("logging")
        def work():
            while not stop.is_set():
                with forks.LOCK:
                    log.warning("at work")
        thread = threading.Thread(target=work)
        thread.start()
        for turn in range(100):
            child = os.fork()
            if not child:
                with forks.LOCK:
                    log.warning("in the child")
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        thread.join()
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_who_has_a_turn_at_work_and_a_fork_do_not_wait_for_each_other(child: Any) -> None:
    """A fork takes the locks of `filelock`, too: after ours, though it is imported later."""
    done = child("""
        import os, signal, sys, threading
        from pathlib import Path
        from tunegen import forks
        from tunegen.choosing import store
        assert "filelock" not in sys.modules
        signal.alarm(60)
        sys.setswitchinterval(1e-5)
        stop, begun = threading.Event(), threading.Event()
        def work():
            while not stop.is_set():
                with forks.LOCK, store.turn(Path("x").absolute(), 0.0):
                    begun.set()
        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        for turn in range(100):
            child = os.fork()
            if not child:
                with forks.LOCK, store.turn(Path("y").absolute(), 10.0):
                    os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        stop.set()
        thread.join()
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_never_holds_the_lock_of_a_manifest_that_is_being_written(child: Any) -> None:
    """It would keep it for as long as it lives, though the writer was killed."""
    done = child("""
        import os, threading
        from pathlib import Path
        from tunegen.box import this_box
        from tunegen.choosing import store
        from tunegen.choosing.document import Entry, RegimeWinner
        path, inside, go = Path("x.tune.json").absolute(), threading.Event(), threading.Event()
        def compute(entries):
            inside.set()
            go.wait()
            return Entry([RegimeWinner("a")], "sha256:1")
        thread = threading.Thread(target=store.update, args=(path, this_box(), {}, "lib", "k", compute))
        thread.start()
        inside.wait()
        threading.Timer(0.1, go.set).start()
        child = os.fork()
        if not child:
            held = [fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")
                    and os.readlink(f"/proc/self/fd/{fd}").endswith(".lock")]
            os._exit(1 if held or store.read(path).status != "loaded" else 0)
        assert os.waitpid(child, 0)[1] == 0
        thread.join()
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_that_comes_in_the_middle_of_a_fork_costs_no_word_and_leaves_the_lock_free(child: Any) -> None:
    """As when a thread logs for the first time while another one waits in `os.fork`."""
    done = child("""
        import os, threading
        from tunegen import forks
        os.register_at_fork(before=lambda: forks.go_before("threading"))
        child = os.fork()
        taken = []
        thread = threading.Thread(target=lambda: taken.append(forks.LOCK.acquire(blocking=False)))
        thread.start()
        thread.join()
        if not child:
            os._exit(taken != [True])
        assert (taken, os.waitpid(child, 0)[1]) == ([True], 0)
    """)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_lock_is_free_after_a_fork_and_can_be_taken_twice(child: Any) -> None:
    assert isinstance(forks.LOCK, type(threading.RLock()))
    done = child("""
        import os, threading
        from tunegen import forks
        child = os.fork()
        taken = []
        thread = threading.Thread(target=lambda: taken.append(forks.LOCK.acquire(blocking=False)))
        thread.start()
        thread.join()
        os._exit(0 if taken == [True] else 1) if not child else None
        assert taken == [True] and os.wait()[1] == 0
    """)
    assert (done.returncode, done.stderr) == (0, "")
