"""The C functions of a frozen library, as LLVM IR: they choose the regime, allocate scratch, and call the variant."""

from __future__ import annotations

from collections.abc import Mapping

from tunegen.calling.entry import scratch
from tunegen.calling.entry.ir import REFUSE, Writer
from tunegen.calling.entry.regimes import choose
from tunegen.calling.entry.views import small
from tunegen.freezing.baking import Baked, Batch
from tunegen.freezing.detect import detection_ir, text_constant
from tunegen.freezing.rows import constant, pairs_ir, row
from tunegen.signature import ANY_RANK_SIZE, Operand

DONE, NO_MEMORY, BAD_ARGUMENT, UNSUPPORTED_CPU = 0, 1, 2, 3
"""What the functions return."""

_UNSUPPORTED = "unsupported"
_DECLARATIONS = """\
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i64 @llvm.smax.i64(i64, i64)
"""


def library_ir(title: str, batch: Batch, manifest: str) -> str:
    """The module with the functions of a batch, and those that tell the class, the refusal and the manifest."""
    return "\n".join([
        _DECLARATIONS,
        pairs_ir(batch),
        detection_ir(title, batch.classes, batch.platform),
        text_constant("manifest", manifest),
        *(_function(baked, len(batch.classes)) for baked in batch.functions),
        f"define ptr @{title}_baked() {{\n  ret ptr @manifest\n}}",
        f"define ptr @{title}_refusal() {{\n  %text = load ptr, ptr @refusal\n  ret ptr %text\n}}",
        f"define ptr @{title}_cpu_class() {{\n{class_name_ir()}}}",
    ])  # fmt: skip


def class_name_ir() -> str:
    """The body of a function that returns the name of the chosen class, or null."""
    w = Writer()
    number = w.load("i32", "@chosen", "number")
    w.require(w.compare("sge", number, "0", "i32"), otherwise="none")
    name = w.load("ptr", w.at("ptr", "@class_names", w.let("index", f"zext i32 {number} to i64")), "name")
    w.do(f"ret ptr {name}")
    w.begin("none")
    w.do("ret ptr null")
    return f"entry:\n{w.body()}\n"


def exported(title: str, batch: Batch) -> list[str]:
    """All names that a library offers."""
    return sorted([*(b.symbol for b in batch.functions), *(f"{title}_{n}" for n in ("baked", "refusal", "cpu_class"))])


def _function(baked: Baked, classes: int) -> str:
    signature, words = baked.function.signature, len(baked.rows[0]) + len(baked.values)
    names = [f"row.{baked.symbol}.{number}" for number in range(classes)]
    rows = [constant(name, row(baked, number, words)) for number, name in enumerate(names)]
    rows.append(constant(f"rows.{baked.symbol}", [f"ptr @{name}" for name in names]))
    w = Writer()
    chosen = w.load("i32", "@chosen", "class")
    w.require(w.compare("sge", chosen, "0", "i32"), otherwise=_UNSUPPORTED)
    sizes = {size: f"%size.{size}" for size in signature.sizes}
    w.require(small(w, list(sizes.values())))
    arguments = _arguments(w, baked, sizes)
    own = w.load("ptr", w.at("ptr", f"@rows.{baked.symbol}", w.let("index", f"zext i32 {chosen} to i64")), "row")
    pair = choose(w, own, baked.dispatching, sizes)
    variant, wanted = w.load("ptr", pair, "variant"), w.load("ptr", w.at("ptr", pair, 1), "scratch")
    memory, _ = scratch.allocate(w, wanted, [list(sizes.values())])
    w.do(f"call void {variant}({', '.join([*arguments, f'ptr {memory}'])})")
    scratch.release(w, memory)
    w.do(f"ret i32 {DONE}")
    for label, code in ((scratch.NO_MEMORY, NO_MEMORY), (REFUSE, BAD_ARGUMENT), (_UNSUPPORTED, UNSUPPORTED_CPU)):
        w.begin(label)
        w.do(f"ret i32 {code}")
    return "\n".join([*rows, f"define i32 @{baked.symbol}({_parameters(baked)}) {{\nentry:", w.body(), "}"])


def _arguments(w: Writer, baked: Baked, sizes: Mapping[str, str]) -> list[str]:
    """What a variant receives but for its scratch memory."""
    signature, found = baked.function.signature, list[str]()
    for operand in signature.operands:
        found += _operand(w, operand, signature.type_of(operand, baked.element_type).bytes, sizes)
    found += [f"i64 {size}" for size in sizes.values()]
    return [*found, *(f"{_llvm(s.kind)} %scalar.{s.name}" for s in signature.scalars)]


def _operand(w: Writer, operand: Operand, itemsize: int, sizes: Mapping[str, str]) -> list[str]:
    """Requires a pointer where there are elements, and returns it with its strides in bytes. No stride is read of an
    optional operand that is absent.
    """
    pointer = f"%data.{operand.name}"
    given = w.compare("ne", pointer, "null", "ptr")
    if not operand.optional:
        symbols = [dim.symbol for dim in operand.dims] if operand.dims is not None else [ANY_RANK_SIZE]
        w.require(w.either([given, *(w.compare("eq", sizes[symbol], "0") for symbol in symbols)]))
    strides = [w.op("mul", f"%stride.{operand.name}.{i}", str(itemsize)) for i in range(operand.strides)]
    if operand.optional:
        strides = [w.pick(given, stride, "0") for stride in strides]
    return [f"ptr {pointer}", *(f"i64 {stride}" for stride in strides)]


def _parameters(baked: Baked) -> str:
    signature, found = baked.function.signature, []
    for operand in signature.operands:
        found += [f"ptr %data.{operand.name}", *(f"i64 %stride.{operand.name}.{i}" for i in range(operand.strides))]
    found += [f"i64 %size.{size}" for size in signature.sizes]
    return ", ".join([*found, *(f"{_llvm(s.kind)} %scalar.{s.name}" for s in signature.scalars)])


def _llvm(kind: str) -> str:
    return "double" if kind == "float" else "i64"
