"""A small writer of LLVM IR. It names values and blocks and keeps stack cells at the head of the function.

Mutable state lives in cells, which LLVM promotes to registers, so the code that writes IR needs no phi nodes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

REFUSE = "refuse"
"""Label of the block that a failed `require` leads to."""

DONE = "done"
"""Label of the block that releases the operands and returns the outputs."""


RARELY = "!0"
"""The metadata of a branch that is seldom taken; a module that has one ends in `METADATA`."""

METADATA = f'{RARELY} = !{{!"branch_weights", i32 1, i32 1000}}\n'


class Writer:
    """The body of one function, written from top to bottom. Values are texts such as `%size.3` or `4`."""

    def __init__(self) -> None:
        self._cells: list[str] = []
        self._lines: list[str] = []
        self._count = 0

    def body(self) -> str:
        """All instructions so far, the cells first."""
        return "\n".join([*self._cells, *self._lines])

    # instructions

    def do(self, text: str) -> None:
        """An instruction without a value."""
        self._lines.append(f"  {text}")

    def let(self, hint: str, text: str) -> str:
        """The value of an instruction, under a fresh name."""
        name = f"%{self._fresh(hint)}"
        self.do(f"{name} = {text}")
        return name

    def cell(self, hint: str, type_: str, initial: str | None = None) -> str:
        """The address of a stack cell, set to `initial` here and now."""
        name = f"%{self._fresh(hint)}"
        self._cells.append(f"  {name} = alloca {type_}, align 16")
        if initial is not None:
            self.store(type_, initial, name)
        return name

    def load(self, type_: str, address: str, hint: str = "v") -> str:
        return self.let(hint, f"load {type_}, ptr {address}")

    def store(self, type_: str, value: str, address: str) -> None:
        self.do(f"store {type_} {value}, ptr {address}")

    def at(self, type_: str, base: str, index: int | str) -> str:
        """The address of element `index` of an array of `type_`."""
        return self.let("at", f"getelementptr {type_}, ptr {base}, i64 {index}")

    def op(self, name: str, a: str, b: str, type_: str = "i64") -> str:
        """A binary instruction: add, sub, mul, and, or, ..."""
        return self.let(name, f"{name} {type_} {a}, {b}")

    def compare(self, predicate: str, a: str, b: str, type_: str = "i64") -> str:
        return self.let(predicate, f"icmp {predicate} {type_} {a}, {b}")

    def pick(self, condition: str, yes: str, no: str, type_: str = "i64") -> str:
        return self.let("pick", f"select i1 {condition}, {type_} {yes}, {type_} {no}")

    def both(self, conditions: Iterable[str]) -> str:
        """Whether all of the conditions hold."""
        return self._fold("and", "true", conditions)

    def either(self, conditions: Iterable[str]) -> str:
        """Whether one of the conditions holds."""
        return self._fold("or", "false", conditions)

    def product(self, values: Iterable[str]) -> str:
        """The product, wrapping around at 64 bits."""
        first, *rest = values
        for value in rest:
            first = self.op("mul", first, value)
        return first

    def update(self, name: str, cell: str, value: str, type_: str = "i64") -> None:
        """Combines a cell with a value by a binary instruction."""
        self.store(type_, self.op(name, self.load(type_, cell), value, type_), cell)

    # blocks

    def label(self, hint: str) -> str:
        """A fresh label."""
        return self._fresh(hint)

    def begin(self, label: str) -> None:
        self._lines.append(f"{label}:")

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.do(f"br i1 {condition}, label %{yes}, label %{no}")

    def require(self, condition: str, otherwise: str = REFUSE, *, rarely: bool = False) -> None:
        """Goes on when the condition holds, else to `otherwise`. What `rarely` goes on is laid out out of the way."""
        on = self.label("on")
        self.do(f"br i1 {condition}, label %{on}, label %{otherwise}" + f", !prof {RARELY}" * rarely)
        self.begin(on)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """The block runs only when the condition holds."""
        if condition == "true":
            yield
            return
        inside, after = self.label("when"), self.label("after")
        self.branch(condition, inside, after)
        self.begin(inside)
        yield
        self.jump(after)
        self.begin(after)

    @contextmanager
    def countdown(self, count: str) -> Iterator[str]:
        """The block runs for each index from `count` - 1 down to 0."""
        head, inside, after = self.label("down"), self.label("inside"), self.label("after")
        left = self.cell("left", "i64", count)
        self.jump(head)
        self.begin(head)
        before = self.load("i64", left, "left")
        self.branch(self.compare("sgt", before, "0"), inside, after)
        self.begin(inside)
        index = self.op("sub", before, "1")
        self.store("i64", index, left)
        yield index
        self.jump(head)
        self.begin(after)

    def _fold(self, name: str, neutral: str, conditions: Iterable[str]) -> str:
        result = neutral
        for condition in conditions:
            result = condition if result == neutral else self.op(name, result, condition, "i1")
        return result

    def _fresh(self, hint: str) -> str:
        self._count += 1
        return f"{hint}.{self._count}"


def double(value: float) -> str:
    """A constant of type double, exact in hexadecimal."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
