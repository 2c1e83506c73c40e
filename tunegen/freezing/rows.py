"""The rows of variants behind frozen functions, as constants in LLVM IR. Their layout is that of a kernel's table."""

from __future__ import annotations

from collections.abc import Sequence

from tunegen.freezing.baking import Baked, Batch
from tunegen.making.make import SCRATCH


def constant(name: str, words: Sequence[str]) -> str:
    """A constant of words such as `ptr null` and `i64 5`."""
    types = ", ".join(word.partition(" ")[0] for word in words)
    return f"@{name} = private constant {{ {types} }} {{ {', '.join(words)} }}"


def pairs_ir(batch: Batch) -> str:
    """The variants' declarations, and for each a pair (variant, scratch function or null)."""
    lines = []
    for symbol, image in batch.images.items():
        scratch = f"@{symbol}{SCRATCH}" if symbol.encode() + SCRATCH.encode() in image else "null"
        lines.append(f"declare hidden void @{symbol}(...)")
        if scratch != "null":
            lines.append(f"declare hidden i64 {scratch}(...)")
        lines.append(constant(f"pair.{symbol}", [f"ptr @{symbol}", f"ptr {scratch}"]))
    return "\n".join(lines)


def row(baked: Baked | None, number: int, words: int) -> list[str]:
    """The words of a row in the class of this number; one that is not baked leads nowhere."""
    if baked is None:
        return ["ptr null"] * words
    slots = [f"ptr @pair.{symbol}" if symbol else "ptr null" for symbol in baked.rows[number]]
    return [*slots, *(f"i64 {value}" for value in baked.values.values())]
