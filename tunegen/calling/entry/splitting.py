"""Splitting a call over threads: when, into which shares, and the function that runs one share.

A share is a call of the variant whose pointers are moved to where the share begins, and which has its length for size.
The pool runs the shares, in any order, on any of its threads, and returns when all are done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tunegen.calling.dispatching import Dispatching
from tunegen.calling.entry import scratch
from tunegen.calling.entry.ir import DONE, Writer
from tunegen.calling.entry.regimes import condition_ir, parameters
from tunegen.calling.native import PENDING, table_layout
from tunegen.parallel import Split
from tunegen.signature import Signature

_SYMBOL = "share"
_ALIGNED, _ALIGNED_FROM = 16, 128
"""Equal shares are multiples of 16 units, so that cache lines and vectors stay whole, where that changes their lengths
by an eighth at most: from 128 units on."""


class Share:
    """The function that runs one share, and what the entry hands to it: a block of words in the entry's frame."""

    def __init__(self, entry: Writer) -> None:
        self.w = Writer()
        self.length = self.w.op("sub", "%end", "%begin")
        self._entry = entry
        self._handed: list[tuple[str, str]] = []

    def hand(self, type_: str, value: str) -> str:
        """A value of the entry's, as the function has it."""
        self._handed.append((type_, value))
        return self.w.load(type_, self.w.at("i64", "%context", len(self._handed) - 1))

    def context(self) -> str:
        """Stores all that is handed over, and returns its address."""
        block = self._entry.cell("context", f"[{len(self._handed)} x i64]")
        for index, (type_, value) in enumerate(self._handed):
            self._entry.store(type_, value, self._entry.at("i64", block, index))
        return block

    def text(self) -> str:
        """The whole function."""
        head = f"define internal void @{_SYMBOL}(ptr %context, i64 %begin, i64 %end, i64 %participant) {{\nentry:"
        return "\n".join([head, self.w.body(), "  ret void\n}\n"])


class Work(Protocol):
    """What splitting needs of the part of an entry that knows the operands."""

    sizes: dict[str, str]

    def cut(self, over: Sequence[str], participants: str) -> str:
        """Decides what is cut, and returns how many units it has."""

    def units(self, grain: str) -> str:
        """A grain in these units."""

    def share_sizes(self, units: str) -> list[str]:
        """The sizes that a share of so many units hands to the variant."""

    def run_share(self, share: Share, variant: str, scalars: Sequence[str], memory: str) -> None:
        """Writes the function: `share.length` units from `%begin` on. `memory` is the address of its scratch."""


def split_call(
    w: Writer, signature: Signature, dispatching: Dispatching, work: Work, table: str, row: str,
    variant: str, scratch_function: str, scalars: Sequence[str],
) -> str:  # fmt: skip
    """Runs the call on the table's pool, if there is one and the split says so; else goes on behind this.

    Returns the function that runs a share.
    """
    split, layout = dispatching.split, table_layout(signature)
    assert split is not None
    serial, asking = w.label("serial"), w.label("asking")
    pool = w.let("pool", f"load atomic ptr, ptr {w.at('ptr', table, layout.pool)} acquire, align 8")
    w.branch(w.compare("ne", pool, "null", "ptr"), asking, serial)
    w.begin(asking)
    named = {*split.when.names, split.grain, split.participants}
    values = parameters(w, row, dispatching, {name for name in named if isinstance(name, str)})
    w.require(condition_ir(w, split.when, {**work.sizes, **values}), otherwise=serial, rarely=True)
    w.require(w.compare("ne", pool, f"inttoptr (i64 {PENDING} to ptr)", "ptr"))
    participants = _participants(w, pool, values.get(split.participants))
    w.require(w.compare("sgt", participants, "1"), otherwise=serial)
    size = work.cut(split.over, participants)
    w.require(w.compare("sgt", size, "1"), otherwise=serial)
    length = _length(w, work, split, size, participants, values)
    shares = _ceiling(w, size, length)
    w.require(w.compare("sgt", shares, "1"), otherwise=serial)
    participants = _least(w, participants, shares)
    last = w.op("sub", size, w.op("mul", w.op("sub", shares, "1"), length))
    calls = [work.share_sizes(length), work.share_sizes(last)]
    memory, block = scratch.allocate(w, scratch_function, calls, participants)
    share = Share(w)
    mine = share.w.op("mul", share.hand("i64", block), "%participant")
    place = share.w.at("i8", share.hand("ptr", memory), mine)
    work.run_share(share, share.hand("ptr", variant), [_hand(share, scalar) for scalar in scalars], place)
    label = w.load("i64", w.at("i64", table, layout.label), "label")
    arguments = f"ptr {pool}, ptr @{_SYMBOL}, ptr {share.context()}, i64 {size}, i64 {length}, i64 {participants}"
    thread = w.let("thread", "call ptr @PyEval_SaveThread()")
    w.let("admitted", f"call i64 {w.load('ptr', pool, 'region')}({arguments}, i64 {label})")
    w.do(f"call void @PyEval_RestoreThread(ptr {thread})")
    scratch.release(w, memory)
    w.jump(DONE)
    w.begin(serial)
    return share.text()


def _hand(share: Share, argument: str) -> str:
    type_, value = argument.split()
    return f"{type_} {share.hand(type_, value)}"


def _participants(w: Writer, pool: str, limit: str | None) -> str:
    """How many threads may take part: what the pool has, and the kernel's own limit if that is not 0."""
    most = w.let("most", f"load atomic i64, ptr {w.at('i64', pool, 1)} monotonic, align 8")
    if limit is None:
        return most
    return w.pick(w.compare("eq", limit, "0"), most, _least(w, most, limit))


def _length(w: Writer, work: Work, split: Split, size: str, participants: str, values: dict[str, str]) -> str:
    """The units of a share: the grain, or for grain 0 an equal share each."""
    grain = values[split.grain] if isinstance(split.grain, str) else str(split.grain)
    if grain != "0" and isinstance(split.grain, int):
        return work.units(grain)
    equal = _ceiling(w, size, participants)
    whole = w.op("and", w.op("add", equal, str(_ALIGNED - 1)), str(-_ALIGNED))
    equal = w.pick(w.compare("sge", equal, str(_ALIGNED_FROM)), whole, equal)
    return equal if grain == "0" else w.pick(w.compare("eq", grain, "0"), equal, work.units(grain))


def _ceiling(w: Writer, value: str, by: str) -> str:
    """The quotient of two positive numbers, rounded up."""
    return w.op("udiv", w.op("sub", w.op("add", value, by), "1"), by)


def _least(w: Writer, a: str, b: str) -> str:
    return w.let("least", f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")
