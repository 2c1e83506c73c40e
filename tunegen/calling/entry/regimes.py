"""Choosing a variant natively: size conditions as LLVM IR, and the walk over one row of the table."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence

from tunegen.calling.dispatching import Dispatching
from tunegen.calling.entry.ir import REFUSE, Writer
from tunegen.expressions import SizeCondition, magnitude_bits, name_of

_DIVIDED_IN_LINE = 192

_PREDICATES: dict[type, str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "slt",
    ast.LtE: "sle",
    ast.Gt: "sgt",
    ast.GtE: "sge",
}
_ARITHMETIC: dict[type, str] = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul"}


def choose(w: Writer, row: str, dispatching: Dispatching, sizes: Mapping[str, str]) -> str:
    """The address of the chosen pair {variant, scratch}. `row` is the address of the row's first word.

    A null slot passes on to the next regime; a null last slot refuses.
    """
    pair = w.cell("pair", "ptr")
    chosen = w.label("chosen")
    named = {name for condition in dispatching.conditions for name in condition.names}
    names = {**sizes, **parameters(w, row, dispatching, named)}
    for index, condition in enumerate(dispatching.conditions):
        with w.when(condition_ir(w, condition, names)):
            on = w.label("pass")
            _take(w, row, index, pair)
            w.branch(w.compare("ne", w.load("ptr", pair), "null", "ptr"), chosen, on)
            w.begin(on)
    _take(w, row, len(dispatching.conditions), pair)
    w.branch(w.compare("ne", w.load("ptr", pair), "null", "ptr"), chosen, REFUSE)
    w.begin(chosen)
    return w.load("ptr", pair, "pair")


def parameters(w: Writer, row: str, dispatching: Dispatching, names: Collection[str]) -> dict[str, str]:
    """The values of the int parameters that are among `names`."""
    return {
        name: w.let("parameter", f"load atomic i64, ptr {w.at('i64', row, index)} monotonic, align 8")
        for index, name in enumerate(dispatching.parameters, dispatching.columns)
        if name in names
    }


def _take(w: Writer, row: str, index: int, pair: str) -> None:
    slot = w.let("slot", f"load atomic ptr, ptr {w.at('ptr', row, index)} acquire, align 8")
    w.store("ptr", slot, pair)


def condition_ir(w: Writer, condition: SizeCondition, names: Mapping[str, str]) -> str:
    """The truth of a condition on sizes and parameters: exact, as it is in Python."""
    return _logical(w, condition.tree, names)


def _logical(w: Writer, node: ast.expr, names: Mapping[str, str]) -> str:
    match node:
        case ast.BoolOp(op=op, values=values):
            parts = [_logical(w, part, names) for part in values]
            return w.both(parts) if isinstance(op, ast.And) else w.either(parts)
        case ast.UnaryOp(operand=operand):
            return w.op("xor", _logical(w, operand, names), "true", "i1")
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            operands = [left, *comparators]
            width = _width(operands)
            numbers = [_number(w, operand, width, names) for operand in operands]
            pairs = zip(ops, numbers, numbers[1:], strict=False)
            return w.both([w.compare(_PREDICATES[type(op)], a, b, f"i{width}") for op, a, b in pairs])
    raise AssertionError(node)


def _number(w: Writer, node: ast.expr, width: int, names: Mapping[str, str]) -> str:
    type_ = f"i{width}"
    match node:
        case ast.Name() | ast.Attribute():
            value = names[name_of(node)]
            return value if width == 64 else w.let("wide", f"zext i64 {value} to {type_}")
        case ast.Constant(value=value):
            return str(value)
        case ast.UnaryOp(operand=operand):
            return w.op("sub", "0", _number(w, operand, width, names), type_)
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod() as op, right=ast.Constant(value=int(divisor))):
            own = _width([left])
            value = _floor(w, _number(w, left, own, names), divisor, isinstance(op, ast.Mod), own)
            return value if own == width else w.let("wide", f"sext i{own} {value} to {type_}")
        case ast.BinOp(left=left, op=op, right=right):
            a, b = _number(w, left, width, names), _number(w, right, width, names)
            return w.op(_ARITHMETIC[type(op)], a, b, type_)
    raise AssertionError(node)


def _floor(w: Writer, value: str, divisor: int, modulo: bool, width: int) -> str:
    """Floor division or its remainder, for a positive divisor. LLVM's division truncates."""
    type_, by = f"i{width}", str(divisor)
    if divisor & (divisor - 1) == 0:
        mask, shift = str(divisor - 1), str(divisor.bit_length() - 1)
        return w.op("and", value, mask, type_) if modulo else w.op("ashr", value, shift, type_)
    if width > 64:
        # 128 bits would become a call of the compiler's runtime library. Wider ones are divided in line, if LLVM does
        # not find out that the value is narrower.
        type_ = f"i{max(width, _DIVIDED_IN_LINE)}"
        cell = w.cell("hidden", type_)
        value = value if width >= _DIVIDED_IN_LINE else w.let("wide", f"sext i{width} {value} to {type_}")
        w.do(f"store volatile {type_} {value}, ptr {cell}")
        value = w.let("shown", f"load volatile {type_}, ptr {cell}")
    rest = w.op("srem", value, by, type_)
    below = w.compare("slt", rest, "0", type_)
    if modulo:
        result = w.pick(below, w.op("add", rest, by, type_), rest, type_)
    else:
        quotient = w.op("sdiv", value, by, type_)
        result = w.pick(below, w.op("sub", quotient, "1", type_), quotient, type_)
    return result if type_ == f"i{width}" else w.let("narrow", f"trunc {type_} {result} to i{width}")


def _width(operands: Sequence[ast.expr]) -> int:
    """The width, a multiple of 64, that holds these values and all on the way to them."""
    return -(-(1 + max(map(magnitude_bits, operands))) // 64) * 64
