"""The element type bool: from the annotation to the native call, its errors, and the gate of the harness."""

from __future__ import annotations

import ctypes
import re
from array import array
from typing import Any

import numpy as np
import pytest

from conftest import Libraries
from tests.test_calling_kit import element, kernel, native
from tunegen import bitwise, bool_, bound, dtypes, ulp
from tunegen.calling.entry.ir import Writer
from tunegen.cases import default_inputs
from tunegen.errors import GateError
from tunegen.harness import gate
from tunegen.harness.memory import Layout, Memory
from tunegen.harness.problems import POISON, operands, problems
from tunegen.kernels import logical_not
from tunegen.public.variant import Variant, checked
from tunegen.signature import BOOL, ELEMENT_TYPES, ElementType, In, InOut, Out, f32, read_signature

BYTES = np.array([0, 1, 2, 0x7F, 0x80, 0xFF, 0], np.uint8)
TRUTH = np.array([0, 1, 1, 1, 1, 1, 0], bool)
EITHER = dtypes("bool", "f32")


def negate(x: In[bool_, ...], out: Out[bool_, ...]) -> None:
    np.logical_not(x, out=out)


def negate_body(w: Writer, t: ElementType) -> None:
    with w.countdown("%N") as i:
        false = w.compare("eq", w.load(t.llvm, element(w, t, "x", i)), "0", t.llvm)
        w.store(t.llvm, w.let("not", f"zext i1 {false} to {t.llvm}"), element(w, t, "out", i))


def keep(x: In[f32, "M", "N"], mask: In[bool_, "M", "N"], out: Out[f32, "M", "N"]) -> None:
    out[...] = np.where(mask, x, 0)


def keep_body(w: Writer, t: ElementType) -> None:
    with w.countdown("%M") as m, w.countdown("%N") as n:
        given = w.compare("ne", w.load("i8", element(w, BOOL, "mask", m, n)), "0", "i8")
        kept = w.pick(given, w.load(t.llvm, element(w, t, "x", m, n)), "0.0", t.llvm)
        w.store(t.llvm, kept, element(w, t, "out", m, n))


def flip(x: InOut[EITHER, "N"]) -> None:
    np.logical_not(x, out=x)


def flip_body(w: Writer, t: ElementType) -> None:
    with w.countdown("%N") as i:
        at = element(w, t, "x", i)
        if t == BOOL:
            w.store("i8", w.op("xor", w.load("i8", at), "1", "i8"), at)
        else:
            w.store("float", w.op("fsub", "1.0", w.load("float", at), "float"), at)


@pytest.fixture(params=["native", "reference"])
def make(request: pytest.FixtureRequest) -> Any:
    """A kernel that runs a variant, or the same one that runs its reference."""
    if request.param == "reference":
        return lambda reference, body, **options: kernel(reference, **options)
    return native


def test_a_bool_is_a_byte_and_has_a_stamp_of_its_own() -> None:
    assert ELEMENT_TYPES["bool"].dtype == np.bool_
    assert (BOOL.llvm, BOOL.bytes, BOOL.format) == ("i8", 1, "?")
    assert [t.name for t in read_signature(flip, "flip", {}).element_types] == ["bool", "f32"]
    assert [t.name for t in read_signature(keep, "keep", {}).element_types] == ["f32"]
    assert str(read_signature(negate, "negate", {}).operands[0]) == "x: in bool[...]"
    assert list(logical_not.stamp) == ["bool"]


def test_any_byte_but_0_is_true_and_answers_are_0_and_1(make: Any) -> None:
    negation = make(negate, negate_body, inplace=True)
    out = BYTES.copy().view(bool)
    assert negation(BYTES.view(bool), out) is out
    assert out.view(np.uint8).tolist() == (~TRUTH).view(np.uint8).tolist()
    assert negation(out, out).tolist() == TRUTH.tolist()
    assert negation(np.zeros((2, 0), bool)).shape == (2, 0)
    assert negation(np.True_).tolist() is False
    wide = np.zeros((3, 8), bool)
    assert negation(wide[:, ::2]).all(), "an input of another layout is copied"
    assert negation(memoryview(bytearray(3)).cast("?")).tolist() == [True] * 3


def test_an_answer_that_is_left_out_is_allocated_as_bool(make: Any) -> None:
    made = make(negate, negate_body)(TRUTH)
    assert made.dtype == np.bool_
    assert made.tolist() == (~TRUTH).tolist()


def test_a_bool_operand_stands_beside_others(make: Any) -> None:
    x, mask = np.arange(12, dtype="f4").reshape(3, 4), np.arange(24).reshape(3, 8)[:, :4] % 3 > 0
    np.testing.assert_array_equal(make(keep, keep_body)(x, mask), np.where(mask, x, 0))


def test_a_generic_element_type_may_be_bool(make: Any) -> None:
    flipping = make(flip, flip_body)
    for dtype in (bool, "f4"):
        x = np.array([0, 1, 1], dtype)
        assert flipping(x) is x
        assert x.tolist() == [1, 0, 0]


WRONG = {
    "bytes of another type": (BYTES, "got element type dtype.'uint8'.; allowed: bool"),
    "signed bytes": (array("b", [0, 1]), "got element type dtype.'int8'.; allowed: bool"),
    "characters": (memoryview(b"ab").cast("c"), "got element type dtype.'S1'.; allowed: bool"),
    "numbers": (np.zeros(7, "f4"), "got element type dtype.'float32'.; allowed: bool"),
    "objects": (np.zeros(7, object), "got element type dtype.'O'.; allowed: bool"),
    "C bools of another width": ((ctypes.c_int * 2)(), "got element type dtype.'int32'.; allowed: bool"),
    "a list": ([True, False], "got list; allowed: an array"),
    "a bool": (True, "got bool; allowed: an array"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_bool_array_is_a_type_error_and_nothing_is_written(make: Any, wrong: str) -> None:
    value, said = WRONG[wrong]
    negation, out = make(negate, negate_body), np.full(7, POISON, np.uint8)
    with pytest.raises(TypeError, match=f"negate: operand x: {said}"):
        negation(value, out.view(bool))
    with pytest.raises(TypeError, match=f"negate: operand out: {said}"):
        negation(TRUTH, value)
    with pytest.raises(TypeError, match=r"keep: operand mask: got element type dtype.'float32'"):
        make(keep, keep_body)(np.zeros((1, 2), "f4"), np.zeros((1, 2), "f4"))
    assert (out == POISON).all()


def test_a_bool_output_is_refused_as_any_other_is(make: Any) -> None:
    negation = make(negate, negate_body)
    shared = np.zeros(8, bool)
    for out, said in (
        (shared[::2], "inner stride of 2 bytes"),
        (np.broadcast_to(shared[:1], 4), "read-only"),
        (shared[:3], "shape"),
    ):
        with pytest.raises(ValueError, match=said):
            negation(np.ones(4, bool), out)
    with pytest.raises(ValueError, match="shares memory"):
        negation(shared[1:], shared[:-1])


@pytest.mark.parametrize("measure", [bitwise(), bitwise(nonfinite="ignore"), ulp(4), bound("N")], ids=str)
def test_every_gate_compares_bools_byte_by_byte(measure: Any) -> None:
    sizes = {"N": BYTES.size}
    assert measure.oracle_dtype(BOOL) == np.bool_
    assert measure.check(TRUTH, BYTES.view(bool), sizes) is None, "what the reference holds for true is its own affair"
    assert measure.check(TRUTH[:0], TRUTH[:0], sizes) is None
    for wrong in (BYTES.view(bool), ~TRUTH):
        mismatch = measure.check(wrong, TRUTH, sizes)
        assert mismatch is not None
        assert mismatch.bound == "bitwise()"
    assert mismatch.index == (0,)
    found = measure.check(np.full((2, 2), POISON, np.uint8).view(bool), np.ones((2, 2), bool), sizes)
    assert (found.index, found.got, found.expected) == ((0, 0), float(POISON), 1.0)


def test_default_inputs_hold_both_values() -> None:
    made = default_inputs(logical_not.signature, np.random.default_rng(0), {"N": 100}, BOOL)["x"]
    assert made.dtype == np.bool_
    assert 30 < made.sum() < 70
    assert default_inputs(logical_not.signature, np.random.default_rng(0), {"x": ()}, BOOL)["x"].shape == ()


def tried() -> list[Any]:
    return [problem for problem in problems(logical_not.spec, BOOL) if not problem.label.startswith("case")]


def test_problems_of_bools_have_true_in_several_bytes_and_poisoned_outputs() -> None:
    seen = {int(byte) for problem in tried() for byte in problem.inputs["x"].view(np.uint8).ravel()}
    assert {0, 1, 2, 0x80, 0xFF} <= seen
    problem = tried()[-1]
    out = operands(logical_not.spec, BOOL, problem.sizes, problem.inputs)["out"]
    assert (out.view(np.uint8) == POISON).all()


@pytest.mark.parametrize("guarded", [False, True])
def test_the_gate_of_the_harness_passes_the_reference(guarded: bool) -> None:
    assert gate.check(logical_not.spec, BOOL, logical_not.reference, tried(), guarded=guarded) is None


def as_it_came(x: np.ndarray, out: np.ndarray) -> None:
    out.view(np.uint8)[...] = x.view(np.uint8) ^ 1


def other_bytes(x: np.ndarray, out: np.ndarray) -> None:
    out.view(np.uint8)[...] = np.where(x, 0, 255)


def nothing(x: np.ndarray, out: np.ndarray) -> None:
    pass


def all_but_one(x: np.ndarray, out: np.ndarray) -> None:
    np.logical_not(x[:-1], out=out[:-1])


def beyond(x: np.ndarray, out: np.ndarray) -> None:
    np.logical_not(x, out=out)
    ctypes.memset(out.ctypes.data + out.nbytes, 1, 1)


def into_the_input(x: np.ndarray, out: np.ndarray) -> None:
    np.logical_not(x, out=out)
    x.view(np.uint8)[...] = x != 0


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        (as_it_came, "out.*got 254.0, expected 0.0"),
        (other_bytes, "out.*got 255.0, expected 1.0"),
        (nothing, "out.*got 165.0"),
        (all_but_one, "out.*got 165.0"),
        (beyond, "out: written out of bounds"),
        (into_the_input, "x: an input was changed"),
    ],
)
def test_the_gate_of_the_harness_catches_what_is_wrong_with_bools(variant: Any, said: str) -> None:
    found = gate.check(logical_not.spec, BOOL, variant, tried())
    assert found is not None
    assert re.search(said, str(found))


def test_canaries_around_bools_see_every_bit() -> None:
    memory = Memory()
    placed = memory.array("x", (3, 5), np.dtype(bool), Layout("room", 2))
    placed.array[...] = True
    assert placed.intact()
    assert placed.array.view(np.uint8).tolist() == [[1] * 5] * 3
    placed.frame[0] ^= 0x80
    assert not placed.intact()


TEMPLATE = """
define void @{{ symbol }}(ptr %x, ptr %out, i64 %N, ptr %scratch) "no-builtins" {
entry:
  %byte = load i8, ptr %x
  %same = {{ "icmp ne" if perm.row == 1 else "trunc" }} i8 %byte{{ ", 0" if perm.row == 1 else " to i1" }}
  %one = zext i1 %same to i8
  store i8 %one, ptr %out
  ret void
}
"""


def test_a_library_of_somebody_else_declares_stamps_and_checks_bools(library: Libraries) -> None:
    made = library(
        """
        from tunegen import bool_

        @scope.tune(gen="copy.ll.j2", gate=ulp(1), cases=[case("one", N=1)], fallback="row1; reference", inplace=True)
        @scope.tune_perm(row=1)
        @scope.tune_perm(row=2)
        def same(x: In[bool_, ...], out: Out[bool_, ...]) -> None:
            out[...] = x
        """,
        {"copy.ll.j2": TEMPLATE},
    ).same
    assert made.stamp["bool"].default.emitted == "row1"
    assert made(BYTES[2:3].view(bool)).view(np.uint8).tolist() == [1]
    assert made.slow_calls == 0
    right, wrong = (checked(Variant(made.spec, row)) for row in made.spec.grid)
    assert right(BYTES[2:3].view(bool), np.zeros(1, bool)).tolist() == [True]
    with pytest.raises(GateError, match="same__row2"):
        wrong(BYTES[2:3].view(bool), np.zeros(1, bool))
