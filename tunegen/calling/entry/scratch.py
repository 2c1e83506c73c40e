"""Scratch memory of a call: allocated before a variant runs, so that a call without memory has written nothing."""

from __future__ import annotations

from collections.abc import Sequence

from tunegen.calling.entry.ir import Writer

NO_MEMORY = "no_memory"
"""Label of the block that raises `MemoryError`."""

_LIMIT_BYTES = 1 << 46
"""What a variant cannot ask for: times the number of participants, it still fits an address."""


def allocate(w: Writer, function: str, calls: Sequence[Sequence[str]], blocks: str = "1") -> tuple[str, str]:
    """Blocks of 64-byte-aligned memory, each large enough for a call with any of these sizes.

    Returns the address, null when none is wanted, and the bytes of a block.
    """
    memory, block = w.cell("memory", "ptr", "null"), w.cell("block", "i64", "0")
    with w.when(w.compare("ne", function, "null", "ptr")):
        wanted = "0"
        for sizes in calls:
            arguments = ", ".join(f"i64 {size}" for size in sizes)
            own = w.let("wanted", f"call i64 {function}({arguments})")
            wanted = w.let("most", f"call i64 @llvm.smax.i64(i64 {wanted}, i64 {own})")
        with w.when(w.compare("sgt", wanted, "0")):
            w.require(w.compare("ult", wanted, str(_LIMIT_BYTES)), otherwise=NO_MEMORY)
            bytes_ = w.op("and", w.op("add", wanted, "63"), "-64")
            got = w.let("got", f"call ptr @aligned_alloc(i64 64, i64 {w.op('mul', bytes_, blocks)})")
            w.require(w.compare("ne", got, "null", "ptr"), otherwise=NO_MEMORY)
            w.store("ptr", got, memory)
            w.store("i64", bytes_, block)
    return w.load("ptr", memory, "memory"), w.load("i64", block, "block")


def release(w: Writer, memory: str) -> None:
    """Frees what `allocate` returned."""
    with w.when(w.compare("ne", memory, "null", "ptr")):
        w.do(f"call void @free(ptr {memory})")
