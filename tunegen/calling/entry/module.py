"""The one native entry of a signature, as LLVM IR with no address of this process in it.

It has the vectorcall ABI. It takes the buffers of the operands, checks them, picks a variant from the table that its
callable points to, and calls it. What it does not take goes to the Python slow path with the arguments as they came.
"""

from __future__ import annotations

from collections.abc import Sequence

from tunegen.calling.dispatching import Dispatching
from tunegen.calling.entry import scratch
from tunegen.calling.entry import views as v
from tunegen.calling.entry.allocation import make_left_out
from tunegen.calling.entry.arguments import SLOW, Arguments, read_arguments, read_scalar
from tunegen.calling.entry.elementwise import Elementwise
from tunegen.calling.entry.ir import DONE, METADATA, REFUSE, Writer
from tunegen.calling.entry.ranked import Ranked
from tunegen.calling.entry.regimes import choose
from tunegen.calling.entry.splitting import split_call
from tunegen.calling.entry.views import View
from tunegen.calling.native import SYMBOL, row_words, table_layout
from tunegen.signature import Operand, Scalar, Signature

_DECLARATIONS = """\
@zero = private unnamed_addr constant i64 0
@one = private unnamed_addr constant i64 1
@_Py_NoneStruct = external global i8
@PyFloat_Type = external global i8
@PyLong_Type = external global i8
declare i32 @PyObject_GetBuffer(ptr, ptr, i32)
declare void @PyBuffer_Release(ptr)
declare void @PyErr_Clear()
declare ptr @PyErr_NoMemory()
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @PyTuple_New(i64)
declare ptr @PyTuple_Pack(i64, ...)
declare i64 @PyTuple_Size(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare double @PyFloat_AsDouble(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i64 @llvm.abs.i64(i64, i1)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""


def entry_ir(signature: Signature, dispatching: Dispatching, table_offset: int) -> str:
    """The module of the entry `SYMBOL` for kernels with this signature whose calls depend on this.

    `table_offset` is where a callable holds the address of its table, in bytes. Raises `ExpressionError` for a
    condition that is too wide for native code.
    """
    w = Writer()
    layout = table_layout(signature)
    table = w.load("ptr", w.at("i8", "%callable", table_offset), "table")
    slow_at = w.at("ptr", table, layout.slow)
    arguments = read_arguments(w, signature, table)
    views = _views(w, signature, arguments)
    scalars = [
        read_scalar(w, p, index, arguments) for index, p in enumerate(signature.parameters) if isinstance(p, Scalar)
    ]
    number = _take_operands(w, signature, views, table)
    work = Elementwise(w, signature, views) if signature.any_rank else Ranked(w, signature, views)
    row = w.at("ptr", table, w.op("add", w.op("mul", number, str(row_words(dispatching))), str(layout.rows)))
    pair = choose(w, row, dispatching, work.sizes)
    variant, scratch_function = w.load("ptr", pair, "variant"), w.load("ptr", w.at("ptr", pair, 1), "scratch")
    w.require(w.compare("ne", variant, "null", "ptr"))
    share = ""
    if dispatching.split:
        share = split_call(w, signature, dispatching, work, table, row, variant, scratch_function, scalars)
    _run(w, work, w.at("i64", table, layout.limit), variant, scratch_function, scalars)
    _ends(w, views, slow_at)
    head = f"define ptr @{SYMBOL}(ptr %callable, ptr %args, i64 %nargsf, ptr %kwnames) {{\nentry:"
    return "\n".join([v.BUFFER_TYPE, _DECLARATIONS, share, head, w.body(), "}\n", METADATA])


def _views(w: Writer, signature: Signature, arguments: Arguments) -> list[View]:
    """A view of each operand that holds nothing yet, and may be released."""
    views = []
    for index, operand in enumerate(signature.parameters):
        if not isinstance(operand, Operand):
            continue
        given = "true"
        if operand.optional:
            argument = arguments.may(w, index)
            given = w.both(w.compare("ne", argument, nothing, "ptr") for nothing in ("null", "@_Py_NoneStruct"))
        else:
            argument = arguments.may(w, index) if operand.role == "out" else arguments.must(w, index)
        views.append(v.new_view(w, operand, argument, given))
    return views


def _take_operands(w: Writer, signature: Signature, views: Sequence[View], table: str) -> str:
    """Acquires the buffers, the inputs' first, makes outputs that are left out, and checks all formats.

    Returns the row of the table.
    """
    inputs = [view for view in views if view.operand.role != "out"]
    outputs = [view for view in views if view.operand.role == "out"]
    generic = [view for view in [*inputs, *outputs] if view.operand.choice.generic and not view.operand.optional]
    anchor = generic[0] if generic else None
    if anchor in outputs:
        w.require(w.compare("ne", anchor.argument, "null", "ptr"))
        inputs.append(anchor)
        outputs.remove(anchor)
    for view in inputs:
        v.acquire(w, view)
    element = v.read_element(w, signature, anchor)
    for view in inputs:
        v.check_format(w, view, element, anchor)
    for view in outputs:
        make_left_out(w, signature, views, view, table, element.row)
        v.acquire(w, view)
        v.check_format(w, view, element, anchor)
    return element.row


def _run(
    w: Writer, work: Ranked | Elementwise, limit_at: str, variant: str, scratch_function: str, scalars: Sequence[str]
) -> None:
    """Calls the variant with its scratch memory, without the GIL when there is much to do."""
    memory, _ = scratch.allocate(w, scratch_function, [work.call_sizes])
    limit = w.load("i64", limit_at, "limit")
    state = w.cell("state", "ptr", "null")
    with w.when(w.compare("sgt", work.elements, limit)):
        w.store("ptr", w.let("thread", "call ptr @PyEval_SaveThread()"), state)
    work.call(variant, scalars, memory)
    thread = w.load("ptr", state, "thread")
    with w.when(w.compare("ne", thread, "null", "ptr")):
        w.do(f"call void @PyEval_RestoreThread(ptr {thread})")
    scratch.release(w, memory)
    w.jump(DONE)


def _ends(w: Writer, views: Sequence[View], slow_at: str) -> None:
    """The four ways out: done, no memory, refused while operands are held, and refused before."""
    outputs = [view.argument for view in views if view.operand.written]
    w.begin(DONE)
    if len(outputs) == 1:
        result = outputs[0]
        w.do(f"call void @Py_IncRef(ptr {result})")
    else:
        items = ", ".join(f"ptr {output}" for output in outputs)
        result = w.let("result", f"call ptr (i64, ...) @PyTuple_Pack(i64 {len(outputs)}, {items})")
    v.release(w, views)
    w.do(f"ret ptr {result}")
    w.begin(scratch.NO_MEMORY)
    v.release(w, views)
    w.do(f"ret ptr {w.let('null', 'call ptr @PyErr_NoMemory()')}")
    w.begin(REFUSE)
    v.release(w, views)
    w.do("call void @PyErr_Clear()")
    w.jump(SLOW)
    w.begin(SLOW)
    slow = w.load("ptr", slow_at, "slow")
    answer = f"tail call ptr @PyObject_Vectorcall(ptr {slow}, ptr %args, i64 %nargsf, ptr %kwnames)"
    w.do(f"ret ptr {w.let('answer', answer)}")
