"""The walk over the outer dimensions of operands of any rank: one variant call for each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tunegen.calling.entry.ir import Writer


@dataclass(frozen=True)
class Walk:
    """An odometer: how many outer dimensions there are, where their lengths and the counters are, and for each operand
    the cell of its pointer and the address of its strides.
    """

    outer: str
    shape: str
    counters: str
    pointers: Sequence[str]
    strides: Sequence[str]

    def run(self, w: Writer, call: Callable[[list[str]], None], left: str = "") -> None:
        """Calls with the pointers of each run, to the end or, with the cell `left`, as often as that says."""
        walk, finished = w.label("walk"), w.label("finished")
        w.jump(walk)
        w.begin(walk)
        call([w.load("ptr", pointer) for pointer in self.pointers])
        if left:
            w.update("sub", left, "1")
            w.require(w.compare("sgt", w.load("i64", left), "0"), otherwise=finished)
        with w.countdown(self.outer) as dimension:
            length = w.load("i64", w.at("i64", self.shape, dimension), "length")
            counter = w.at("i64", self.counters, dimension)
            w.update("add", counter, "1")
            self._advance(w, dimension, "1")
            back = w.label("back")
            w.branch(w.compare("slt", w.load("i64", counter), length), walk, back)
            w.begin(back)
            w.store("i64", "0", counter)
            self._advance(w, dimension, w.op("sub", "0", length))
        w.jump(finished)
        w.begin(finished)

    def begin_at(self, w: Writer, run: str) -> None:
        """Sets the counters, and moves the pointers, from run 0 to this one."""
        rest = w.cell("rest", "i64", run)
        with w.countdown(self.outer) as dimension:
            length, before = w.load("i64", w.at("i64", self.shape, dimension), "length"), w.load("i64", rest)
            counter = w.op("urem", before, length)
            w.store("i64", w.op("udiv", before, length), rest)
            w.store("i64", counter, w.at("i64", self.counters, dimension))
            self._advance(w, dimension, counter)

    def _advance(self, w: Writer, dimension: str, times: str) -> None:
        for pointer, strides in zip(self.pointers, self.strides, strict=True):
            stride = w.load("i64", w.at("i64", strides, dimension), "stride")
            w.store("ptr", w.at("i8", w.load("ptr", pointer), w.op("mul", stride, times)), pointer)
