"""Small arithmetic and logic expressions over names: grid constraints (`where`) and size conditions (`if`).

The language is a subset of Python's: names, with dots in those of parameters, literals, `+ - *`, `// %` by a positive
literal, comparisons (chains included), `and`, `or`, `not` and parentheses. It is read once, never executed as code.
"""

from __future__ import annotations

import _ast as ast
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from tunegen.errors import ExpressionError

_ARITHMETIC: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
MAX_LENGTH = 500
MAX_SIZE_BITS = 48
"""A size is below 2**48: more than any address space holds, and little enough that size conditions stay narrow."""
MAX_CONDITION_BITS = 512
"""Native code tests conditions exactly up to this width: products of ten sizes."""


class Expression:
    """One expression that was read and checked. Equal texts are equal expressions."""

    __slots__ = ("_conjuncts", "_evaluate", "names", "text", "tree")

    def __init__(self, text: str, names: Collection[str]) -> None:
        """Reads `text`, in which just `names` may occur.

        Raises `ExpressionError` that names the unknown name or the construct that is not allowed.
        """
        self.text = " ".join(text.split())
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"an expression has at most {MAX_LENGTH} characters, this one {len(text)}")
        try:
            # the builtin half of `ast`: importing the other takes longer than reading all expressions of a library
            tree: Any = compile(self.text, "<expression>", "eval", ast.PyCF_ONLY_AST)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ExpressionError(f"{text!r} is no expression") from None
        self.tree: ast.expr = tree.body
        _check(self.tree, self.text, names)
        self.names = tuple(sorted(set(_names(self.tree))))
        self._evaluate: Callable[[Mapping[str, Any]], Any] | None = None
        self._conjuncts: tuple[Expression, ...] = ()

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """The value for these values of the names. Raises `ExpressionError` when their types do not go together."""
        if self._evaluate is None:
            self._evaluate = _evaluator(self.tree)
        try:
            return self._evaluate(values)
        except (TypeError, ArithmeticError) as error:
            raise ExpressionError(f"{self.text!r}: {error}") from None

    def conjuncts(self) -> tuple[Expression, ...]:
        """The expressions that `and` joins here: this one holds where all of them do."""
        if not self._conjuncts:
            nodes = list(_joined(self.tree))
            self._conjuncts = tuple(map(self._part, nodes)) if len(nodes) > 1 else (self,)
        return self._conjuncts

    def _part(self, node: ast.expr) -> Expression:
        part = object.__new__(Expression)
        part.text = self.text.encode()[node.col_offset : node.end_col_offset].decode()
        part.tree, part.names = node, tuple(sorted(set(_names(node))))
        part._evaluate, part._conjuncts = None, (part,)
        return part

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"


def _check(node: ast.expr, text: str, names: Collection[str]) -> None:
    match node:
        case ast.Name() | ast.Attribute():
            if (name := name_of(node)) not in names:
                raise ExpressionError(f"unknown name {name!r} in {text!r}; known are {', '.join(names)}")
        case ast.Constant(value=value):
            if not isinstance(value, bool | int | float | str):
                raise ExpressionError(f"{value!r} in {text!r}: allowed are numbers, strings, True and False")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            if isinstance(op, ast.FloorDiv | ast.Mod) and not _positive_literal(right):
                raise ExpressionError(f"{text!r}: the divisor of // and % is a positive whole number")
            _check(left, text, names)
            _check(right, text, names)
        case ast.UnaryOp(op=ast.USub() | ast.Not(), operand=operand):
            _check(operand, text, names)
        case ast.BoolOp(values=values):
            for part in values:
                _check(part, text, names)
        case ast.Compare(left=left, ops=ops, comparators=comparators) if all(type(op) in _COMPARE for op in ops):
            for part in (left, *comparators):
                _check(part, text, names)
        case _:
            from ast import unparse

            raise ExpressionError(f"{unparse(node)!r} in {text!r} is not allowed: use names, numbers, "
                                  "+ - * // %, comparisons, and, or, not")  # fmt: skip


def name_of(node: ast.expr) -> str:
    """The name that a tree's leaf stands for: `M`, or `pack.minimum_rows`; "" for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            outer = name_of(value)
            return f"{outer}.{attribute}" if outer else ""
    return ""


def _joined(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        for value in node.values:
            yield from _joined(value)
    else:
        yield node


def _names(node: ast.expr) -> Iterator[str]:
    if name := name_of(node):
        yield name
        return
    for field in node._fields:
        below = getattr(node, field)
        for child in below if isinstance(below, list) else [below]:
            if isinstance(child, ast.expr):
                yield from _names(child)


def _positive_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value > 0


def _evaluator(node: ast.expr) -> Callable[[Mapping[str, Any]], Any]:
    """A function from values to the value of a tree: a grid's constraint is asked a million times."""
    match node:
        case ast.Name() | ast.Attribute():
            return operator.itemgetter(name_of(node))
        case ast.Constant(value=value):
            return lambda values: value
        case ast.BinOp(op=op):
            calculate, left, right = _ARITHMETIC[type(op)], _evaluator(node.left), _evaluator(node.right)
            return lambda values: calculate(left(values), right(values))
        case ast.UnaryOp(op=op):
            operand, apply = _evaluator(node.operand), operator.not_ if isinstance(op, ast.Not) else operator.neg
            return lambda values: apply(operand(values))
        case ast.BoolOp(op=op):
            parts, fold = [_evaluator(part) for part in node.values], all if isinstance(op, ast.And) else any
            return lambda values: fold(part(values) for part in parts)
        case ast.Compare(ops=ops):
            operands = [_evaluator(part) for part in (node.left, *node.comparators)]
            compare = [_COMPARE[type(op)] for op in ops]
            if len(ops) == 1:
                test, (first, second) = compare[0], operands
                return lambda values: test(first(values), second(values))
            return lambda values: _chain(compare, [operand(values) for operand in operands])
    raise AssertionError(node)


def _chain(compare: Sequence[Callable[[Any, Any], bool]], operands: Sequence[Any]) -> bool:
    return all(test(a, b) for test, a, b in zip(compare, operands, operands[1:], strict=False))


class SizeCondition(Expression):
    """A condition on sizes and int parameters, true or false as a whole: whole numbers only, so that native code can
    test it too.
    """

    __slots__ = ()

    def __init__(self, text: str, names: Collection[str]) -> None:
        super().__init__(text, names)
        if not _logical(self.tree):
            raise ExpressionError(f"{text!r} is no condition: compare something, as in 'M <= 2'")
        bits = max(map(magnitude_bits, _compared(self.tree)))
        if bits >= MAX_CONDITION_BITS:
            raise ExpressionError(
                f"{text!r} needs numbers of {bits} bits; allowed are {MAX_CONDITION_BITS}: multiply fewer sizes"
            )

    def __call__(self, values: Mapping[str, int]) -> bool:
        return bool(super().__call__(values))


@cache
def size_condition(text: str, names: tuple[str, ...]) -> SizeCondition:
    """A size condition that kernels with the same names share: read once. Raises as `SizeCondition` does."""
    return SizeCondition(text, names)


def _logical(node: ast.expr) -> bool:
    match node:
        case ast.BoolOp(values=values):
            return all(map(_logical, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _logical(operand)
        case ast.Compare(left=left, comparators=comparators):
            return all(map(_integral, (left, *comparators)))
    return False


def _integral(node: ast.expr) -> bool:
    match node:
        case ast.Name() | ast.Attribute():
            return True
        case ast.Constant(value=value):
            return type(value) is int and abs(value) < 1 << 62
        case ast.BinOp(left=left, right=right):
            return _integral(left) and _integral(right)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _integral(operand)
    return False


def _compared(node: ast.expr) -> Iterator[ast.expr]:
    """The numbers that a condition compares."""
    match node:
        case ast.BoolOp(values=values):
            for value in values:
                yield from _compared(value)
        case ast.UnaryOp(operand=operand):
            yield from _compared(operand)
        case ast.Compare(left=left, comparators=comparators):
            yield from (left, *comparators)


def magnitude_bits(node: ast.expr) -> int:
    """A bound: the magnitude of a number over sizes, and of every value on the way to it, is below 2**bits."""
    match node:
        case ast.Name() | ast.Attribute():
            return MAX_SIZE_BITS
        case ast.Constant(value=int(value)):
            return value.bit_length()
        case ast.UnaryOp(operand=operand):
            return magnitude_bits(operand)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = magnitude_bits(left), magnitude_bits(right)
            return a + b if isinstance(op, ast.Mult) else max(a, b) + 1
    raise AssertionError(node)
