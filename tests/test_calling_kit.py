"""What the tests of the calling room share: toy variants in LLVM IR, and kernels made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from tunegen.calling import Dispatching
from tunegen.calling.dispatch import NativeDispatcher
from tunegen.calling.entry.ir import Writer, double
from tunegen.calling.entry.module import entry_ir
from tunegen.calling.native import SYMBOL, Callee
from tunegen.expressions import SizeCondition
from tunegen.making.compile import Target, compile_object, link
from tunegen.parallel import WrittenSplit
from tunegen.signature import ElementType, In, Out, Signature, f32, floats, read_signature

Body = Callable[[Writer, ElementType], None]
NOTHING: Mapping[str, int] = MappingProxyType({})


@cache
def host() -> Target:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    features = llvm.get_host_cpu_features().flatten()
    return Target(llvm.get_process_triple(), llvm.get_host_cpu_name(), features)


@cache
def address(ir: str, symbol: str, process_symbols: bool = False) -> int:
    """The address of a symbol of some IR, which is compiled once."""
    image = compile_object(ir, host())
    return link(image, (symbol,), host(), process_symbols=process_symbols)[symbol]


def variant(signature: Signature, element_type: ElementType, body: Body) -> int:
    """The address of a variant whose instructions `body` writes. Its parameters have the names of the ABI."""
    parameters = []
    for operand in signature.operands:
        parameters.append(f"ptr %{operand.name}")
        parameters += [f"i64 %{operand.name}_s{index}" for index in range(operand.strides)]
    parameters += [f"i64 %{size}" for size in signature.sizes]
    parameters += [f"{'double' if p.kind == 'float' else 'i64'} %{p.name}" for p in signature.scalars]
    w = Writer()
    body(w, element_type)
    head = f"define void @toy({', '.join([*parameters, 'ptr %scratch'])}) {{\nentry:"
    return address(f"{head}\n{w.body()}\n  ret void\n}}\n", "toy")


def scratch_function(signature: Signature, size: str) -> int:
    """The address of a scratch function; `size` may mention the size symbols as in `%N`."""
    parameters = ", ".join(f"i64 %{symbol}" for symbol in signature.sizes)
    return address(f"define i64 @scratch({parameters}) {{\n  %r = add i64 {size}, 0\n  ret i64 %r\n}}\n", "scratch")


def entry(kernel: Any) -> int:
    """The address of the native entry for a kernel."""
    return address(entry_ir(kernel.signature, kernel.dispatching, kernel.table_offset), SYMBOL, process_symbols=True)


def kernel(
    reference: Callable[..., None],
    *,
    conditions: Sequence[str] = (),
    inplace: bool = False,
    parameters: Mapping[str, int] = NOTHING,
    split: WrittenSplit | None = None,
) -> Any:
    """A kernel with nothing installed. `parameters` are int parameters and their defaults."""
    signature = read_signature(reference, reference.__name__, {}, inplace=inplace)
    names = (*signature.sizes, *parameters)
    tests = tuple(SizeCondition(text, names) for text in conditions)
    own = split.read(signature.sizes, tuple(parameters)) if split else None
    depends = Dispatching(tests, tuple(parameters), own, tuple(parameters.values()))
    return NativeDispatcher(reference.__name__, signature, depends, reference)


def native(reference: Callable[..., None], body: Body, *, inplace: bool = False, scratch: int = 0) -> Any:
    """A kernel with one variant for each of its element types, no regimes."""
    made = kernel(reference, inplace=inplace)
    rows = {t.name: [Callee(variant(made.signature, t, body), scratch)] for t in made.signature.element_types}
    made.install(entry(made), rows)
    return made


def element(w: Writer, t: ElementType, operand: str, *index: str) -> str:
    """The address of an element: outer indices go with the operand's strides, the last one counts elements."""
    base = f"%{operand}"
    for axis, outer in enumerate(index[:-1]):
        base = w.at("i8", base, w.op("mul", outer, f"%{operand}_s{axis}"))
    return w.at(t.llvm, base, index[-1])


def add_body(w: Writer, t: ElementType) -> None:
    """out[i] = x[i] + y[i]"""
    with w.countdown("%N") as i:
        x, y = (w.load(t.llvm, element(w, t, name, i)) for name in "xy")
        w.store(t.llvm, w.op("fadd", x, y, t.llvm), element(w, t, "out", i))


def add(x: In[floats, ...], y: In[floats, ...], out: Out[floats, ...]) -> None:
    """Adds."""
    np.add(x, y, out=out)


def rows_body(w: Writer, t: ElementType) -> None:
    """out[m, n] = x[m, n] + b[m, n]"""
    with w.countdown("%M") as m, w.countdown("%N") as n:
        x, b = (w.load(t.llvm, element(w, t, name, m, n)) for name in "xb")
        w.store(t.llvm, w.op("fadd", x, b, t.llvm), element(w, t, "out", m, n))


def rows(x: In[f32, "M", "N"], b: In[f32, "M?", "N"], out: Out[f32, "M", "N"]) -> None:
    """Adds rows."""
    np.add(x, b, out=out)


def fill_body(value: float) -> Body:
    """out[i] = value, for operands of rank 1 and size N"""

    def body(w: Writer, t: ElementType) -> None:
        with w.countdown("%N") as i:
            w.store("float", double(value), element(w, t, "out", i))

    return body


def test_toy_kernels_run_natively() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for made, operands in ((native(add, add_body), (x, x)), (native(rows, rows_body), (x, x[0]))):
        out = np.zeros_like(x)
        assert made(*operands, out) is out
        assert (out == x + operands[1]).all()
        assert made.slow_calls == 0


def soften(x: In[floats, ...], out: Out[floats, ...], shift: In[floats, ...] | None = None) -> None:
    out[...] = x if shift is None else x + shift


def soften_body(w: Writer, t: ElementType) -> None:
    absent = w.compare("eq", "%shift", "null", "ptr")
    with w.countdown("%N") as i:
        cell = w.cell("value", t.llvm, w.load(t.llvm, element(w, t, "x", i)))
        with w.when(w.op("xor", absent, "true", "i1")):
            w.update("fadd", cell, w.load(t.llvm, element(w, t, "shift", i)), t.llvm)
        w.store(t.llvm, w.load(t.llvm, cell), element(w, t, "out", i))
