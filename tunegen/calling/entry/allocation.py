"""Outputs that a native call leaves out: made by numpy's `empty`, of the sizes that the inputs have."""

from __future__ import annotations

from collections.abc import Sequence

from tunegen.calling.entry import views as v
from tunegen.calling.entry.ir import Writer
from tunegen.calling.entry.views import View
from tunegen.calling.native import table_layout
from tunegen.signature import Signature


def make_left_out(w: Writer, signature: Signature, views: Sequence[View], view: View, table: str, row: str) -> None:
    """Makes an output if it is left out, and requires it to be given where no input has its sizes.

    The buffers of the inputs are there. What the shape is read from is checked only as far as reading it needs: the
    output is checked later like one that was given.
    """
    sources = [other for other in views if other.operand.role != "out" and not other.operand.optional]
    places = [_place(sources, dim.symbol) for dim in view.operand.dims or ()]
    known = [place for place in places if place]
    if not sources or len(known) < len(places):
        w.require(w.compare("ne", view.argument, "null", "ptr"))
        return
    cell = w.cell(view.operand.name, "ptr", view.argument)
    with w.when(w.compare("eq", view.argument, "null", "ptr")):
        shape = _shape_of(w, view, known) if view.operand.dims else _shape_like(w, view, sources[0])
        made = _empty(w, signature, view, shape, table, row)
        w.store("ptr", made, view.made)
        w.do(f"call void @Py_DecRef(ptr {shape})")
        w.store("ptr", "null", view.shape)
        w.require(w.compare("ne", made, "null", "ptr"))
        w.store("ptr", made, cell)
    view.argument = w.load("ptr", cell, view.operand.name)


def _place(sources: Sequence[View], symbol: str) -> tuple[View, int] | None:
    """The first dimension that must have this size."""
    for view in sources:
        for axis, dim in enumerate(view.operand.dims or ()):
            if dim.symbol == symbol and not dim.broadcast:
                return view, axis
    return None


def _shape_of(w: Writer, view: View, places: Sequence[tuple[View, int]]) -> str:
    """A tuple of the lengths at these places."""
    for source in {id(source): source for source, _ in places}.values():
        rank = source.field(w, v.RANK, "i32")
        w.require(w.compare("eq", rank, str(len(source.operand.dims or ())), "i32"))
    shape = _new_shape(w, view, str(len(places)))
    for index, (source, axis) in enumerate(places):
        _set_length(w, shape, str(index), w.load("i64", w.at("i64", source.field(w, v.SHAPE), axis)))
    return shape


def _shape_like(w: Writer, view: View, source: View) -> str:
    """A tuple of the lengths of an operand of any rank."""
    rank = w.let("rank", f"sext i32 {source.field(w, v.RANK, 'i32')} to i64")
    w.require(w.compare("ule", rank, str(v.MAX_RANK)))
    shape = _new_shape(w, view, rank)
    with w.countdown(rank) as index:
        _set_length(w, shape, index, w.load("i64", w.at("i64", source.field(w, v.SHAPE), index)))
    return shape


def _new_shape(w: Writer, view: View, rank: str) -> str:
    shape = w.let("shape", f"call ptr @PyTuple_New(i64 {rank})")
    w.store("ptr", shape, view.shape)
    w.require(w.compare("ne", shape, "null", "ptr"))
    return shape


def _set_length(w: Writer, shape: str, index: str, length: str) -> None:
    number = w.let("number", f"call ptr @PyLong_FromLongLong(i64 {length})")
    w.require(w.compare("ne", number, "null", "ptr"))
    w.let("status", f"call i32 @PyTuple_SetItem(ptr {shape}, i64 {index}, ptr {number})")


def _empty(w: Writer, signature: Signature, view: View, shape: str, table: str, row: str) -> str:
    """The result of `numpy.empty(shape, dtype)`, or null."""
    layout = table_layout(signature)
    first = layout.dtypes + signature.outputs.index(view.operand) * len(signature.element_types)
    dtype = w.load("ptr", w.at("ptr", table, w.op("add", row, str(first))), "dtype")
    arguments = w.cell("arguments", "[2 x ptr]")
    w.store("ptr", shape, arguments)
    w.store("ptr", dtype, w.at("ptr", arguments, 1))
    empty = w.load("ptr", w.at("ptr", table, layout.empty), "empty")
    return w.let("made", f"call ptr @PyObject_Vectorcall(ptr {empty}, ptr {arguments}, i64 2, ptr null)")
