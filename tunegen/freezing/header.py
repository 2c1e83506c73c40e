"""The C header of a frozen library."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from tunegen.freezing import library
from tunegen.freezing.baking import Baked, Batch
from tunegen.signature import ElementType

_TYPES = {"f32": "float", "f64": "double"}
_KEYWORDS = frozenset(
    """
    alignas alignof and asm auto bool break case catch char class compl concept const constexpr continue decltype
    default delete do double else enum explicit export extern false float for friend goto if inline int long mutable
    namespace new noexcept not nullptr operator or private protected public register requires restrict return short
    signed sizeof static struct switch template this throw true try typedef typeid typename typeof union unsigned using
    virtual void volatile while xor
    """.split()
)

_HEAD = """\
/* Kernels of the scope {title}, frozen by tunegen for {platform} ({classes}).

   Arrays are pointers to their first element, aligned to it. An array of d dimensions has d - 1 strides, the outermost
   dimension's first, in elements: from one row to the next. The elements of its innermost dimension lie side by side.
   A stride of 0 repeats an input. An output overlaps no other array, unless a comment says that it may be an input
   itself. Sizes go from 0 to 2^48 - 1. An array without elements may be NULL.

   Any number of threads may call at once; a call runs on the caller's thread alone, and allocates what it needs. */
#ifndef {guard}_FROZEN_H
#define {guard}_FROZEN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* What the kernels return. Nothing was written unless it is 0. */
enum {{
    {guard}_DONE = {done},
    {guard}_NO_MEMORY = {no_memory},
    {guard}_BAD_ARGUMENT = {bad_argument},       /* a size out of range, or a NULL array that has elements */
    {guard}_UNSUPPORTED_CPU = {unsupported_cpu},    /* {title}_refusal() says why */
}};

/* Why this CPU is refused; NULL when it is not. */
const char *{title}_refusal(void);

/* The CPU class whose clones run; NULL when the CPU is refused. */
const char *{title}_cpu_class(void);

/* What was baked, as JSON: the text of {title}.json. */
const char *{title}_baked(void);
"""

_TAIL = """
#ifdef __cplusplus
}
#endif

#endif
"""


def header(title: str, batch: Batch) -> str:
    """The text of the header."""
    head = _HEAD.format(
        title=title,
        guard=title.upper(),
        platform=batch.platform.name,
        classes=", ".join(c.name for c in batch.classes),
        done=library.DONE,
        no_memory=library.NO_MEMORY,
        bad_argument=library.BAD_ARGUMENT,
        unsupported_cpu=library.UNSUPPORTED_CPU,
    )
    return "\n".join([head, *map(_declaration, batch.functions)]) + _TAIL


def prototype(baked: Baked) -> str:
    """The declaration of a function, without its semicolon."""
    return f"int {baked.symbol}({', '.join(_parameters(baked))})"


def _declaration(baked: Baked) -> str:
    signature = baked.function.signature
    summary = (baked.function.reference.__doc__ or "").strip().partition("\n")[0]
    summary = summary.replace("*/", "* /").replace("/*", "/ *")
    shapes = ["[" + ", ".join(d.symbol + "?" * d.broadcast for d in p.dims) + "]" if p.dims is not None else "[N]"
              for p in signature.operands]  # fmt: skip
    notes = [f"{p.name}{shape}" + " or NULL" * p.optional for p, shape in zip(signature.operands, shapes, strict=True)]
    shape = f"{', '.join(notes)}{'; an output may be an input itself' * signature.inplace}"
    comment = "\n".join(line for text in (summary, shape) for line in textwrap.wrap(text, 110))
    text = textwrap.fill(f"{prototype(baked)};", 110, subsequent_indent="    ", break_long_words=False)
    return f"/* {textwrap.indent(comment, '   ').strip()} */\n{text}\n"


def _parameters(baked: Baked) -> Iterator[str]:
    signature = baked.function.signature
    for operand in signature.operands:
        type_ = _c_type(signature.type_of(operand, baked.element_type))
        yield f"{'' if operand.written else 'const '}{type_} *{_c_name(operand.name)}"
        for index in range(operand.strides):
            yield f"int64_t {operand.name}_stride{index}"
    yield from (f"int64_t {_c_name(size)}" for size in signature.sizes)
    for scalar in signature.scalars:
        yield f"{'double' if scalar.kind == 'float' else 'int64_t'} {_c_name(scalar.name)}"


def _c_type(element_type: ElementType) -> str:
    return _TYPES.get(element_type.name, f"uint{element_type.bits}_t")


def _c_name(name: str) -> str:
    return f"{name}_" if name in _KEYWORDS else name
