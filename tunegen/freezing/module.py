"""The extension module of a frozen package, as LLVM IR over CPython's stable ABI.

It offers `subtype(base)`: the type of callables with a native entry; `install(callable, number, words)`: gives one the
entry and a table of its own; `baked()`, `refusal()` and `cpu_class()`. What is left is `runtime.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tunegen.calling import SYMBOL, Dispatching
from tunegen.calling.dispatch import RELEASE_GIL_ABOVE
from tunegen.calling.entry.ir import Writer
from tunegen.calling.entry.module import entry_ir
from tunegen.calling.native import row_words, table_layout
from tunegen.freezing.baking import Baked, Batch
from tunegen.freezing.detect import detection_ir, text_constant
from tunegen.freezing.library import class_name_ir
from tunegen.freezing.rows import constant, pairs_ir, row
from tunegen.signature import Signature

NAME = "_native"
"""The module's name in its package."""

FILE = f"{NAME}.abi3.so"
BASE_SIZE = object.__basicsize__ + 3 * 8
"""Bytes of an instance of the base of `subtype`: `runtime.Kernel`, which has three slots."""

_HAVE_VECTORCALL, _MEMBER_SSIZE, _MEMBER_READONLY, _SLOT_MEMBERS = 1 << 11, 19, 1, 72
_VARARGS, _NOARGS, _ONE = 1, 4, 8
_METHODS = {"subtype": _ONE, "install": _VARARGS, "baked": _NOARGS, "refusal": _NOARGS, "cpu_class": _NOARGS}

_DECLARATIONS = """\
@_Py_NoneStruct = external global i8
@PyExc_SystemError = external global ptr
declare void @PyErr_SetString(ptr, ptr)
declare ptr @PyModuleDef_Init(ptr)
declare ptr @PyType_FromSpecWithBases(ptr, ptr)
declare ptr @PyUnicode_FromString(ptr)
declare ptr @PyTuple_GetItem(ptr, i64)
declare i64 @PyTuple_Size(ptr)
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyMem_Malloc(i64)
declare ptr @PyErr_NoMemory()
declare void @Py_IncRef(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


class Entry(NamedTuple):
    """A function of all its element types, which share an entry: those that are not baked are None."""

    name: str
    signature: Signature
    dispatching: Dispatching
    types: tuple[Baked | None, ...]


def entries_of(batch: Batch) -> list[Entry]:
    """The functions of a batch by name, in order."""
    found: dict[str, list[Baked]] = {}
    for baked in batch.functions:
        found.setdefault(baked.function.name, []).append(baked)
    entries = []
    for name, same in found.items():
        signature, by_type = same[0].function.signature, {b.element_type.name: b for b in same}
        types = tuple(by_type.get(t.name) for t in signature.element_types)
        entries.append(Entry(name, signature, same[0].dispatching, types))
    return entries


def entry_modules(batch: Batch) -> Iterator[str]:
    """For each function a module with its native entry, under a name of its own."""
    for number, entry in enumerate(entries_of(batch)):
        text = entry_ir(entry.signature, entry.dispatching, BASE_SIZE + 8)
        yield text.replace(f"define ptr @{SYMBOL}(", f"define ptr @entry.{number}(")


def words_of(signature: Signature) -> dict[str, int]:
    """Where `runtime.py` puts objects in a table: the number of each word, and how many stand before the rows."""
    layout = table_layout(signature)
    found = {"slow": layout.slow, "empty": layout.empty, "names": layout.names, "dtypes": layout.dtypes}
    return {**found, "objects": layout.rows}


def module_ir(title: str, batch: Batch, manifest: str) -> str:
    """The module `_native`."""
    entries = entries_of(batch)
    return "\n".join([
        _DECLARATIONS,
        pairs_ir(batch),
        detection_ir(title, batch.classes, batch.platform),
        text_constant("manifest", manifest),
        *_tables(entries, len(batch.classes)),
        *_types(),
        *_definition(),
        text_constant("wrong", "there is no such function, or this CPU is refused"),
        _install(len(entries), len(batch.classes)),
        f"define internal ptr @name_of_class() {{\n{class_name_ir()}}}",
        _text_function("baked", "getelementptr i8, ptr @manifest, i64 0"),
        _text_function("refusal", "load ptr, ptr @refusal"),
        _text_function("cpu_class", "call ptr @name_of_class()"),
        f"define ptr @PyInit_{NAME}() {{\n  %module = call ptr @PyModuleDef_Init(ptr @module)\n  ret ptr %module\n}}",
    ])  # fmt: skip


def _tables(entries: list[Entry], classes: int) -> Iterator[str]:
    """Each function's table in each class, without the objects that Python puts in; sizes in bytes, and entries."""
    names, sizes = [], []
    for number, entry in enumerate(entries):
        layout, words = table_layout(entry.signature), row_words(entry.dispatching)
        head = ["i64 0"] * layout.rows
        head[layout.limit] = f"i64 {RELEASE_GIL_ABOVE}"
        for class_ in range(classes):
            rows = [word for baked in entry.types for word in row(baked, class_, words)]
            names.append(f"table.{number}.{class_}")
            yield constant(names[-1], [*head, *rows])
        sizes.append(f"i64 {8 * (layout.rows + words * len(entry.types))}")
        yield f"declare ptr @entry.{number}(ptr, ptr, i64, ptr)"
    yield constant("tables", [f"ptr @{name}" for name in names])
    yield constant("table_sizes", sizes)
    yield constant("entries", [f"ptr @entry.{number}" for number in range(len(entries))])


def _types() -> Iterator[str]:
    """`subtype`: a type whose instances hold the pointers to an entry and to its table behind those of the base."""
    yield text_constant("vectorcall", "__vectorcalloffset__")
    yield text_constant("type_name", "tunegen_frozen.Kernel")
    member = f"{{ ptr @vectorcall, i32 {_MEMBER_SSIZE}, i64 {BASE_SIZE}, i32 {_MEMBER_READONLY}, ptr null }}"
    kind = "{ ptr, i32, i64, i32, ptr }"
    yield f"@members = internal global [2 x {kind}] [{kind} {member}, {kind} zeroinitializer]"
    yield (
        f"@slots = internal global [2 x {{ i32, ptr }}] [{{ i32, ptr }} {{ i32 {_SLOT_MEMBERS}, ptr @members }}, "
        "{ i32, ptr } zeroinitializer]"
    )
    spec = f"ptr @type_name, i32 {BASE_SIZE + 16}, i32 0, i32 {_HAVE_VECTORCALL}, ptr @slots"
    yield f"@spec = internal global {{ ptr, i32, i32, i32, ptr }} {{ {spec} }}"
    yield (
        "define internal ptr @subtype(ptr %self, ptr %base) {\n"
        "  %type = call ptr @PyType_FromSpecWithBases(ptr @spec, ptr %base)\n  ret ptr %type\n}"
    )


def _definition() -> Iterator[str]:
    """The `PyModuleDef`, its methods, and no slots."""
    kind = "{ ptr, ptr, i32, ptr }"
    yield from (text_constant(f"name.{name}", name) for name in _METHODS)
    methods = [f"{kind} {{ ptr @name.{name}, ptr @{name if name in ('subtype', 'install') else f'py.{name}'}, "
               f"i32 {flags}, ptr null }}" for name, flags in _METHODS.items()]  # fmt: skip
    yield f"@methods = internal global [{len(methods) + 1} x {kind}] [{', '.join(methods)}, {kind} zeroinitializer]"
    yield "@module_slots = internal global { i32, ptr } zeroinitializer"
    yield text_constant("module_name", NAME)
    # reference count, type, init, index, copy; name, doc, size, methods, slots, traverse, clear, free
    types = "i64, ptr, ptr, i64, ptr, ptr, ptr, i64, ptr, ptr, ptr, ptr, ptr"
    yield (
        f"@module = internal global {{ {types} }} {{ i64 1, ptr null, ptr null, i64 0, ptr null, ptr @module_name, "
        "ptr null, i64 0, ptr @methods, ptr @module_slots, ptr null, ptr null, ptr null }"
    )


def _install(count: int, classes: int) -> str:
    """`install(callable, number, words)`: a copy of the function's table with the objects of the tuple `words`.

    None leaves a word as it is. The table lives as long as the process: a call may be reading it.
    """
    w = Writer()
    instance, number, objects = (w.let("item", f"call ptr @PyTuple_GetItem(ptr %args, i64 {i})") for i in range(3))
    index = w.let("number", f"call i64 @PyLong_AsLongLong(ptr {number})")
    chosen = w.let("class", f"sext i32 {w.load('i32', '@chosen')} to i64")
    w.require(w.both([w.compare("ult", index, str(count)), w.compare("sge", chosen, "0")]), otherwise="wrong")
    size = w.load("i64", w.at("i64", "@table_sizes", index), "size")
    table = w.let("table", f"call ptr @PyMem_Malloc(i64 {size})")
    w.require(w.compare("ne", table, "null", "ptr"), otherwise="no_memory")
    place = w.op("add", w.op("mul", index, str(classes)), chosen)
    own = w.load("ptr", w.at("ptr", "@tables", place), "own")
    w.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {table}, ptr {own}, i64 {size}, i1 false)")
    with w.countdown(w.let("count", f"call i64 @PyTuple_Size(ptr {objects})")) as word:
        item = w.let("item", f"call ptr @PyTuple_GetItem(ptr {objects}, i64 {word})")
        with w.when(w.compare("ne", item, "@_Py_NoneStruct", "ptr")):
            w.do(f"call void @Py_IncRef(ptr {item})")
            w.store("ptr", item, w.at("ptr", table, word))
    w.store("ptr", table, w.at("i8", instance, BASE_SIZE + 8))
    w.store("ptr", w.load("ptr", w.at("ptr", "@entries", index)), w.at("i8", instance, BASE_SIZE))
    w.do("call void @Py_IncRef(ptr @_Py_NoneStruct)")
    w.do("ret ptr @_Py_NoneStruct")
    w.begin("no_memory")
    w.do(f"ret ptr {w.let('null', 'call ptr @PyErr_NoMemory()')}")
    w.begin("wrong")
    w.do(f"call void @PyErr_SetString(ptr {w.load('ptr', '@PyExc_SystemError')}, ptr @wrong)")
    w.do("ret ptr null")
    return f"define internal ptr @install(ptr %self, ptr %args) {{\nentry:\n{w.body()}\n}}"


def _text_function(name: str, value: str) -> str:
    """A method that returns a string, or None for null."""
    w = Writer()
    text = w.let("text", value)
    w.require(w.compare("ne", text, "null", "ptr"), otherwise="none")
    w.do(f"ret ptr {w.let('string', f'call ptr @PyUnicode_FromString(ptr {text})')}")
    w.begin("none")
    w.do("call void @Py_IncRef(ptr @_Py_NoneStruct)")
    w.do("ret ptr @_Py_NoneStruct")
    return f"define internal ptr @py.{name}(ptr %self, ptr %nothing) {{\nentry:\n{w.body()}\n}}"
