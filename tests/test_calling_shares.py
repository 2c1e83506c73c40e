"""Splitting, beside the operands: scratch memory, errors, the GIL, stamping anew, regimes, and what can be cut."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_calling_kit import Body, add, add_body, address, element, entry, kernel, rows, scratch_function, variant
from tests.test_calling_pool import FakePool, backwards, in_order, in_threads
from tests.test_calling_splits import ADD, ALWAYS, PARAMETERS, ROWS, anew, any_rank, square, stamped
from tunegen.calling import Dispatching, dispatching_of, uncuttable
from tunegen.calling.entry.ir import Writer
from tunegen.calling.entry.module import entry_ir
from tunegen.calling.identity import entry_identity
from tunegen.calling.native import REFERENCE, Callee
from tunegen.making.compile import Target, compile_object, initialize_all_targets
from tunegen.making.elf import undefined_symbols
from tunegen.parallel import Serial, split
from tunegen.parameters import Parameter, Schema
from tunegen.signature import ElementType, In, Out, f32, read_signature


def scribble(x: In[f32, "M", "N"], out: Out[f32, "M", "N"]) -> None:
    raise AssertionError("never the reference")


def scribble_body(w: Writer, t: ElementType) -> None:
    """Copies a row at a time, through scratch memory of M + N elements, all of which it overwrites first."""
    total = w.op("add", "%M", "%N")
    with w.countdown("%M") as m:
        with w.countdown(total) as i:
            w.store(t.llvm, w.let("f", f"sitofp i64 {m} to float"), w.at(t.llvm, "%scratch", i))
        with w.countdown("%N") as n:
            w.store(t.llvm, w.load(t.llvm, element(w, t, "x", m, n)), w.at(t.llvm, "%scratch", n))
        with w.countdown("%N") as n:
            w.store(t.llvm, w.load(t.llvm, w.at(t.llvm, "%scratch", n)), element(w, t, "out", m, n))
    place = w.let("place", "ptrtoint ptr %scratch to i64")
    with w.when(w.compare("ne", w.op("and", place, "63"), "0")):
        w.store(t.llvm, "-1.0", "%out")


@pytest.mark.parametrize("over", [("M",), ("N",), ("M", "N")])
@pytest.mark.parametrize("grain", [0, 1, 5, 50])
def test_each_participant_has_scratch_memory_of_its_own(over: tuple[str, ...], grain: int) -> None:
    made = kernel(scribble, parameters=PARAMETERS, split=split(*over, when="M >= least", **ALWAYS))
    wanted = address_of_bytes(made)
    for participants in (2, 3, 8):
        anew(made, scribble_body, FakePool(participants, in_threads), grain, scratch=wanted)
        for m, n in ((60, 50), (50, 61)):
            x = np.arange(m * n, dtype="f4").reshape(m, n)
            for _ in range(5):
                np.testing.assert_array_equal(made(x), x)


def address_of_bytes(made: Any) -> int:
    text = "define i64 @scratch(i64 %M, i64 %N) {\n  %s = add i64 %M, %N\n  %b = mul i64 %s, 4\n  ret i64 %b\n}\n"
    assert made.signature.sizes == ("M", "N")
    return address(text, "scratch")


@pytest.mark.parametrize("bytes_", [1 << 44, 1 << 60, (1 << 63) - 1])
def test_too_much_scratch_memory_is_a_memory_error_before_anything_is_written(bytes_: int) -> None:
    made = kernel(scribble, parameters=PARAMETERS, split=split("M", when="M >= least", **ALWAYS))
    pool = FakePool(8, in_order)
    anew(made, scribble_body, pool, scratch=scratch_function(made.signature, str(bytes_)))
    out = np.zeros((40, 40), "f4")
    with pytest.raises(MemoryError):
        made(square(40), out)
    assert pool.regions == []
    assert not out.any()


def test_a_share_of_the_last_length_has_its_memory_too() -> None:
    """A scratch function that asks for more when there is less to do."""
    made = kernel(scribble, parameters=PARAMETERS, split=split("M", when="M >= least", **ALWAYS))
    text = (
        "define i64 @scratch(i64 %M, i64 %N) {\n  %few = icmp slt i64 %M, 8\n"
        "  %b = select i1 %few, i64 4096, i64 256\n  ret i64 %b\n}\n"
    )
    anew(made, fill_scratch_body, FakePool(2, in_threads), 8, scratch=address(text, "scratch"))
    assert (made(np.zeros((12, 3), "f4")) == 0).all()


def fill_scratch_body(w: Writer, t: ElementType) -> None:
    few = w.compare("slt", "%M", "8")
    with w.countdown(w.pick(few, "1024", "64")) as i:
        w.store("float", "1.0", w.at("float", "%scratch", i))
    with w.countdown("%M") as m, w.countdown("%N") as n:
        w.store("float", "0.0", element(w, t, "out", m, n))


def test_errors_are_raised_as_ever() -> None:
    pool = FakePool(2, in_order)
    anew(ADD, add_body, pool)
    x = np.ones(100, "f4")
    with pytest.raises(ValueError, match="add: operand y: got shape"):
        ADD(x, x[:50], x.copy())
    with pytest.raises(TypeError, match="add: operand y: got element type"):
        ADD(x, x.astype("i4"), x.copy())
    with pytest.raises(ValueError, match="shares memory"):
        ADD(x, x, x)
    assert pool.regions == []


def test_values_that_do_not_fit_are_refused() -> None:
    for own in ({"least": -1}, {"least": 1 << 48}, {"other": 1}):
        with pytest.raises(ValueError, match=r"add: .* no int parameter, or not below 2"):
            stamped(ADD, add_body, values={"f32": own})


def test_the_gil_is_given_away() -> None:
    """The shares of this pool wait for each other, in Python."""
    barrier = threading.Barrier(2, timeout=60)

    def meeting(blocks: Any, run: Any, participants: int) -> None:
        def work(block: Any, who: int) -> None:
            barrier.wait()
            run(block, who)

        threads = [threading.Thread(target=work, args=(block, who)) for who, block in enumerate(blocks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    made = anew(any_rank(), add_body, FakePool(2, meeting))
    assert (made(np.ones(100, "f4"), np.ones(100, "f4")) == 2).all()
    assert barrier.n_waiting == 0


def test_stamping_other_executors_while_calls_run() -> None:
    made = any_rank()
    pools = [FakePool(2, in_threads), None, FakePool(5, backwards), FakePool(1, in_order)]
    stop, wrong = threading.Event(), []
    anew(made, add_body, None)

    def work(n: int) -> None:
        x = np.arange(n, dtype="f4")
        while not stop.is_set():
            if not np.array_equal(made(x, x), x + x):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in (5, 100, 1000)]
    for thread in threads:
        thread.start()
    for round_ in range(400):
        anew(made, add_body, pools[round_ % 4], grain=round_ % 11, least=50 * (round_ % 3))
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert wrong == []
    assert made.slow_calls == 0
    assert pools[0] is not None
    assert pools[0].regions


def marked(x: In[f32, "M", "K"], out: Out[f32, "M", "K"]) -> None:
    out[...] = -1


def marked_body(number: float) -> Body:
    def body(w: Writer, t: ElementType) -> None:
        with w.countdown("%M") as m, w.countdown("%K") as k:
            w.store("float", f"{number:.1f}", element(w, t, "out", m, k))

    return body


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 100), st.booleans())
def test_the_regime_is_that_of_the_whole_call_natively_and_in_python(
    m: int, k: int, few: int, much: int, split_up: bool
) -> None:
    made = MARKED
    made.install(
        entry(made),
        {"f32": [Callee(variant(made.signature, made.signature.element_types[0], marked_body(i))) for i in range(3)]},
        values={"f32": {"few": few, "much.elements": much}},
        executor=FakePool(3, backwards) if split_up else None,
    )
    x = np.zeros((m, k), "f4")
    sizes = {"M": m, "K": k}
    expected = 0 if m <= few and few != 3 else 1 if m * k >= much else 2
    assert (made(x) == expected).all()
    assert (made(x, np.zeros((m, k + 1), "f4")[:, :k]) == expected).all()
    chosen = made.choose("f32", sizes)
    assert chosen == made._installed.rows["f32"][expected]
    # through the slow path, which chooses in Python before it calls natively
    assert (made(np.zeros((m, 2 * k), "f4")[:, ::2]) == expected).all()


MARKED = kernel(
    marked, conditions=["M <= few and few != 3", "M * K >= much.elements"], parameters={"few": 2, "much.elements": 50},
    split=split("M", "K", when="M + K > few"),
)  # fmt: skip


def test_a_regime_of_the_reference_by_parameter() -> None:
    made = MARKED
    callee = Callee(variant(made.signature, made.signature.element_types[0], marked_body(1)))
    made.install(entry(made), {"f32": [REFERENCE, callee, callee]}, values={"f32": {"few": 4}})
    x = np.zeros((4, 4), "f4")
    assert (made(x) == -1).all()
    assert (made(x.repeat(2, 0)) == 1).all()
    made.install(entry(made), {"f32": [REFERENCE, callee, callee]})
    assert (made(x) == 1).all()


def summed(x: In[f32, "M", "N"], out: Out[f32, "N"]) -> None: ...


def gram(x: In[f32, "N", "N"], out: Out[f32, "N", "M"], y: In[f32, "M"]) -> None: ...


@pytest.mark.parametrize(
    ("reference", "over", "reason"),
    [
        (summed, ("M",), "split over 'M': operand out is written and does not have it, so all parts would write"),
        (summed, ("N", "M"), "split over 'M': operand out is written"),
        (summed, ("K",), "split over 'K': the sizes are M, N"),
        (gram, ("N",), "split over 'N': operand x has it twice"),
        (summed, ("N",), ""),
        (gram, ("M",), ""),
        (add, ("N",), ""),
    ],
)
def test_what_cannot_be_cut(reference: Any, over: tuple[str, ...], reason: str) -> None:
    signature = read_signature(reference, "f", {})
    written = split(*over, when=f"{over[0]} > 1").read(over, ())
    assert uncuttable(signature, written).startswith(reason)
    assert bool(uncuttable(signature, written)) == bool(reason)
    least = Parameter("least", "int", 3, 0, 9, doc="Some.")
    name = Parameter("name", "string", "", doc="Some.")
    made = dispatching_of(signature, (), Schema((name, least)), written)
    assert made == Dispatching((), ("least",), None if reason else written, (3,))
    assert dispatching_of(signature, (), Schema(), Serial("no")) == Dispatching()


def test_a_companion_that_lacks_a_size_of_the_condition_runs_serial() -> None:
    written = split("N", when="M * N > least").read(("N", "M"), ("least",))
    least = Schema((Parameter("least", "int", 3, 0, 9, doc="Some."),))
    for reference, expected in ((add, None), (rows, written)):
        signature = read_signature(reference, "f", {})
        assert dispatching_of(signature, (), least, written).split is expected
    assert dispatching_of(read_signature(rows, "f", {}), (), Schema(), written).split is None


def test_the_identity_covers_all_that_native_code_depends_on() -> None:
    made = any_rank()
    whole = made.dispatching
    replaced = [
        whole,
        Dispatching(whole.conditions, whole.parameters, None, whole.defaults),
        Dispatching(whole.conditions, (*whole.parameters, "more"), whole.split, (*whole.defaults, 1)),
        Dispatching(whole.conditions, whole.parameters[::-1], whole.split, whole.defaults),
        kernel(add, parameters=PARAMETERS, split=split("N", when="N > least", **ALWAYS)).dispatching,
        kernel(add, parameters=PARAMETERS, split=split("N", when="N >= least", grain="grain")).dispatching,
        kernel(
            add, parameters=PARAMETERS, split=split("N", when="N >= least", grain=4, participants="most")
        ).dispatching,
    ]
    assert len({entry_identity(made.signature, own, 64) for own in replaced}) == len(replaced)
    other = Dispatching(whole.conditions, whole.parameters, whole.split, (1, 2, 3))
    assert entry_identity(made.signature, other, 64) == entry_identity(made.signature, whole, 64)
    assert entry_ir(made.signature, other, 64) == entry_ir(made.signature, whole, 64)


@pytest.mark.parametrize("triple", ["aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"])
@pytest.mark.parametrize("which", ["any", "M", "MN"])
def test_an_entry_that_splits_compiles_for_other_machines_and_always_to_the_same_bytes(triple: str, which: str) -> None:
    initialize_all_targets()
    made = any_rank() if which == "any" else ROWS[tuple(which)]
    target = Target(triple, "generic" if triple.startswith("aarch64") else "x86-64-v2", "")
    images = {bytes(compile_object(entry_ir(made.signature, made.dispatching, 64), target)) for _ in range(2)}
    assert len(images) == 1
    foreign = {name for name in undefined_symbols(images.pop()) if not name.startswith(("Py", "_Py"))}
    assert foreign <= {"aligned_alloc", "free", "memcpy", "memset", "_GLOBAL_OFFSET_TABLE_"}
