"""Threads: one load for many first calls, stamping while others call, and the GIL given away."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.test_calling_kit import add, add_body, element, entry, fill_body, kernel, native, variant
from tunegen.calling import SERIAL
from tunegen.calling.dispatch import Dispatcher
from tunegen.calling.entry.ir import Writer
from tunegen.calling.native import REFERENCE, Callee, native_type
from tunegen.signature import ELEMENT_TYPES, ElementType, In, Out, f32


@pytest.fixture(autouse=True)
def _switch_often() -> Any:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(count: int, work: Callable[[int], None]) -> None:
    """Runs `work` in threads that start at once, and raises what one of them raised."""
    start, errors = threading.Barrier(count), []

    def run(index: int) -> None:
        start.wait()
        try:
            work(index)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


class Cold(Dispatcher):
    """Counts its loads; each takes a while, installs the sum, and calls the kernel itself."""

    __slots__ = ("fails", "loads", "seen")

    def load(self) -> None:
        self.loads = getattr(self, "loads", 0) + 1
        if self.loads <= getattr(self, "fails", 0):
            raise RuntimeError("not yet")
        self.seen = self(np.ones(3, "f4"), np.ones(3, "f4"))
        threading.Event().wait(0.05)
        rows = {t.name: [Callee(variant(self.signature, t, add_body))] for t in self.signature.element_types}
        self.install(entry(self), rows)


NativeCold: Any = native_type(Cold)


def cold() -> Any:
    return NativeCold("add", kernel(add).signature, SERIAL, add)


def test_thirty_two_first_calls_load_once() -> None:
    made = cold()
    results: list[Any] = [None] * 32

    def call(index: int) -> None:
        x = np.full(index + 1, index, "f4")
        results[index] = made(x, x, np.zeros(index + 1, "f4"))

    together(32, call)
    assert made.loads == 1
    assert made.installed
    assert all((result == 2 * index).all() for index, result in enumerate(results))
    assert (made.seen == 2).all()


def test_a_load_that_fails_is_tried_again_by_the_next_call() -> None:
    made = cold()
    made.fails = 1
    x = np.ones(3, "f4")
    with pytest.raises(RuntimeError, match="not yet"):
        made(x, x)
    assert (made(x, x) == 2).all()
    assert made.loads == 2


def mark(x: In[f32, "M", "N"], out: Out[f32, "N"]) -> None:
    out[...] = -1


def test_stamping_while_eight_threads_call() -> None:
    made = kernel(mark, conditions=("N <= 4",))
    callees = [Callee(variant(made.signature, ELEMENT_TYPES["f32"], fill_body(number))) for number in (1, 2)] + [
        REFERENCE
    ]
    stop = threading.Event()
    native_entry = entry(made)
    made.install(native_entry, {"f32": callees[:2]})

    def work(index: int) -> None:
        if index == 0:
            for round_ in range(3000):
                if round_ % 50 == 49:
                    made.uninstall()
                else:
                    made.install(native_entry, {"f32": [callees[round_ % 3], callees[(round_ + 1) % 3]]})
            stop.set()
            return
        x, out = np.zeros((2, 8), "f4"), np.zeros(8, "f4")
        seen = set()
        while not stop.is_set():
            n = 3 if index % 2 else 8
            out[:] = 0
            made(x[:, :n] if index < 6 else x[:, ::-1][:, :n], out[:n])
            seen.add(float(out[0]))
            assert (out[:n] == out[0]).all()
            assert (out[n:] == 0).all()
        assert seen <= {1.0, 2.0, -1.0}

    together(9, work)


def spin(flag: In[f32, "M"], out: Out[f32, "N"]) -> None:
    raise AssertionError("never the reference")


def spin_body(w: Writer, t: ElementType) -> None:
    """Sets out[0], then waits until out[1] is set by somebody else; gives up after many rounds with out[2] = 1."""
    w.do(f"store volatile float 1.0, ptr {element(w, t, 'out', '0')}")
    head, after = w.label("head"), w.label("after")
    rounds = w.cell("rounds", "i64", "0")
    w.jump(head)
    w.begin(head)
    w.update("add", rounds, "1")
    seen = w.let("seen", f"load volatile float, ptr {element(w, t, 'out', '1')}")
    tired = w.compare("sgt", w.load("i64", rounds), str(20_000_000_000))
    w.branch(w.either([w.let("set", f"fcmp une float {seen}, 0.0"), tired]), after, head)
    w.begin(after)
    w.store("float", w.let("flag", f"uitofp i1 {tired} to float"), element(w, t, "out", "2"))


@pytest.mark.parametrize("bound", [3, -1])
def test_another_thread_runs_while_a_long_call_waits_for_it(bound: int) -> None:
    """Would hang, and then fail by its own count of rounds, if the call kept the GIL."""
    made = kernel(spin)
    rows = {"f32": [Callee(variant(made.signature, ELEMENT_TYPES["f32"], spin_body))]}
    made.install(entry(made), rows, release_gil_above=bound)
    out, flag = np.zeros(4, "f4"), np.zeros(1, "f4")
    waiter = threading.Thread(target=lambda: made(flag, out), daemon=True)
    waiter.start()
    for _ in range(10_000):
        if out[0]:
            break
        threading.Event().wait(0.001)
    assert out[0] == 1
    out[1] = 1
    waiter.join(60)
    assert not waiter.is_alive()
    assert out[2] == 0
    assert made.slow_calls == 0


def test_the_gil_is_given_away_around_a_whole_walk() -> None:
    """All runs of a walk see the same state: results are right with and without the GIL."""
    for bound in (0, 1 << 40):
        made = native(add, add_body)
        rows = {t.name: [Callee(variant(made.signature, t, add_body))] for t in made.signature.element_types}
        made.install(entry(made), rows, release_gil_above=bound)
        x = np.arange(3000, dtype="f4").reshape(100, 30)

        def call(_: int, made: Any = made, x: Any = x) -> None:
            for _ in range(50):
                out = np.zeros((100, 40), "f4")[:, :30]
                np.testing.assert_array_equal(made(x, x, out), x + x)

        together(4, call)
        assert made.slow_calls == 0
