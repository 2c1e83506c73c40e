"""The operands of a call as the native entry sees them: Python buffers, their formats and their place in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tunegen.calling.entry.ir import Writer
from tunegen.expressions import MAX_SIZE_BITS
from tunegen.signature import Operand, Signature

MAX_RANK = 64
"""As in numpy and in Python's memoryview."""

BUFFER = "%Py_buffer"
BUFFER_TYPE = f"{BUFFER} = type {{ ptr, ptr, i64, i64, i32, i32, ptr, ptr, ptr, ptr, ptr }}"
DATA, OBJECT, RANK, FORMAT, SHAPE, STRIDES = 0, 1, 5, 6, 7, 8
_PYBUF_WRITABLE, _PYBUF_FORMAT, _PYBUF_STRIDES = 0x1, 0x4, 0x18


@dataclass(eq=False)
class View:
    """One array operand. `given` is "true", or for an optional operand the value that says whether it is there.

    `made` and `shape` are cells of an output: the array, and the tuple for its shape, that this call made and owns.
    """

    operand: Operand
    argument: str
    buffer: str
    given: str
    made: str = ""
    shape: str = ""
    itemsize: str = ""

    def field(self, w: Writer, index: int, type_: str = "ptr") -> str:
        """The value of a field of the buffer."""
        return w.load(type_, self.address(w, index), self.operand.name)

    def address(self, w: Writer, index: int) -> str:
        """The address of a field of the buffer."""
        return w.let("field", f"getelementptr {BUFFER}, ptr {self.buffer}, i32 0, i32 {index}")


@dataclass(frozen=True)
class Extent:
    """The bytes that an operand may touch: from `low` up to, and without, `high`; 0 and 0 when it is empty."""

    low: str
    high: str


def acquire(w: Writer, view: View) -> None:
    """Gets the buffer of an operand that is given."""
    flags = _PYBUF_STRIDES | _PYBUF_FORMAT | (_PYBUF_WRITABLE if view.operand.written else 0)
    with w.when(view.given):
        failed = w.let("failed", f"call i32 @PyObject_GetBuffer(ptr {view.argument}, ptr {view.buffer}, i32 {flags})")
        w.require(w.compare("eq", failed, "0", "i32"))


def new_view(w: Writer, operand: Operand, argument: str, given: str) -> View:
    """A view that holds nothing, and may be released. An optional operand has rank 0 and address null until then."""
    view = View(operand, argument, w.cell("buffer", BUFFER), given)
    w.store("ptr", "null", view.address(w, OBJECT))
    if operand.optional:
        w.store("ptr", "null", view.address(w, DATA))
        w.store("i32", "0", view.address(w, RANK))
    if operand.role == "out":
        view.made, view.shape = w.cell("made", "ptr", "null"), w.cell("shape", "ptr", "null")
    return view


def release(w: Writer, views: Sequence[View]) -> None:
    """Releases all that the views hold. A buffer that was never acquired has no object, and Python leaves it alone."""
    for view in views:
        w.do(f"call void @PyBuffer_Release(ptr {view.buffer})")
    for view in views:
        for cell in filter(None, (view.made, view.shape)):
            owned = w.load("ptr", cell)
            with w.when(w.compare("ne", owned, "null", "ptr")):
                w.do(f"call void @Py_DecRef(ptr {owned})")


@dataclass(frozen=True)
class Element:
    """The generic element type of a call: its row of the table, its letter in formats, its size in bytes."""

    row: str
    letter: str
    itemsize: str


def read_element(w: Writer, signature: Signature, anchor: View | None) -> Element:
    """Requires the anchor's format to be that of one of the element types. Without anchor there is one row."""
    row, letter, itemsize = "0", "", ""
    if anchor:
        types = signature.element_types
        letter = _letter(w, anchor)
        matches = [w.compare("eq", letter, str(ord(t.format)), "i8") for t in types]
        w.require(w.either(matches))
        itemsize = str(types[0].bytes)
        for index in range(1, len(types)):
            row = w.pick(matches[index], str(index), row)
            itemsize = w.pick(matches[index], str(types[index].bytes), itemsize)
    return Element(row, letter, itemsize)


def check_format(w: Writer, view: View, element: Element, anchor: View | None) -> None:
    """Requires the format to be the one letter of the operand's element type, and notes its size."""
    generic, concrete = view.operand.choice.generic, view.operand.choice.types[0]
    view.itemsize = element.itemsize if generic else str(concrete.bytes)
    if view is not anchor:
        with w.when(view.given):
            expected = element.letter if generic else str(ord(concrete.format))
            w.require(w.compare("eq", _letter(w, view), expected, "i8"))


def _letter(w: Writer, view: View) -> str:
    """Requires a format of one letter, which it returns. Reads no byte after the end of the text."""
    text = view.field(w, FORMAT)
    w.require(w.compare("ne", text, "null", "ptr"))
    first = w.load("i8", text, "letter")
    one = w.let("one", f"zext i1 {w.compare('ne', first, '0', 'i8')} to i64")
    w.require(w.compare("eq", w.load("i8", w.at("i8", text, one)), "0", "i8"))
    return first


def address(w: Writer, pointer: str) -> str:
    """A pointer as a whole number."""
    return w.let("address", f"ptrtoint ptr {pointer} to i64")


def magnitude(w: Writer, value: str) -> str:
    """The absolute value."""
    return w.let("abs", f"call i64 @llvm.abs.i64(i64 {value}, i1 false)")


def least(w: Writer, value: str) -> str:
    """The value when it is negative, else 0."""
    return w.let("least", f"call i64 @llvm.smin.i64(i64 {value}, i64 0)")


def most(w: Writer, value: str) -> str:
    """The value when it is positive, else 0."""
    return w.let("most", f"call i64 @llvm.smax.i64(i64 {value}, i64 0)")


def divisible(w: Writer, value: str, itemsize: str) -> str:
    """Whether a value is a multiple of the item size, which is a power of two."""
    return w.compare("eq", w.op("and", value, w.op("sub", itemsize, "1")), "0")


def require_apart(
    w: Writer, views: Sequence[View], extents: Sequence[Extent], same: Callable[[View, View], str | None]
) -> None:
    """Requires that what is written overlaps no other operand by its bounds, unless `same` says that it may."""
    places = list(zip(views, extents, strict=True))
    for index, (a, place_a) in enumerate(places):
        for b, place_b in places[index + 1 :]:
            if not (a.operand.written or b.operand.written):
                continue
            before = w.compare("ule", place_a.high, place_b.low)
            after = w.compare("ule", place_b.high, place_a.low)
            allowed = same(a, b)
            w.require(w.either([before, after, *([allowed] if allowed else [])]))


def small(w: Writer, sizes: Sequence[str]) -> str:
    """Whether all sizes are below the limit."""
    joined = sizes[0]
    for size in sizes[1:]:
        joined = w.op("or", joined, size)
    return w.compare("ult", joined, str(1 << MAX_SIZE_BITS))
