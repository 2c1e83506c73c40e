"""Small libraries that stand for somebody else's package: kernels whose answer is the row that ran."""

from __future__ import annotations

import itertools
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np

TOY_TEMPLATE = """\
{# Every element of the output is the number of the row that ran. #}
{% import "loop.ll.j2" as loop with context %}
{% set declined = define.declined | default("") %}
{% if perm.row | string in declined %}{{ decline("row " ~ perm.row ~ " is not for here") }}{% endif %}
define void @{{ symbol }}(ptr %x, ptr %out, i64 %N, ptr %scratch) "no-builtins" {
entry:
{{ loop.fill("%out", perm.row) }}
}
"""
"""`toy.ll.j2`: writes `perm.row`. It imports a macro file of its own library."""

LOOP_TEMPLATE = """\
{% macro fill(pointer, value) %}
  %any = icmp sgt i64 %N, 0
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr {{ T.llvm }}, ptr {{ pointer }}, i64 %i
  store {{ T.llvm }} {{ hexf(value, T.name) }}, ptr %at, align {{ T.bytes }}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %N
  br i1 %more, label %loop, label %done
done:
  ret void
{% endmacro %}
"""

HEADER = """
import numpy as np
from tunegen import (
    In, InOut, Out, bitwise, bound, case, dtypes, f32, f64, floats, split, tune, tune_companion, tune_grid, tune_perm,
    tune_scope, ulp,
)

scope = tune_scope(name=__name__, templates="templates")
"""

TOY = """
@scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row2; row1; reference")
@scope.tune_grid(row=[1, 2, 3])
@scope.tune_perm(row=4, requires="amx-tile,sve")
@scope.tune_perm(row=5, suffix="five")
def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = -1
"""
"""A kernel whose answer is the row that ran; -1 stands for the reference, so every row is "wrong" for the gate."""

REGIMES = TOY.replace("row2; row1; reference", "row1 if N <= 2; row2; reference")
"""The same kernel, tuned in two regimes."""

GENERIC = """
@scope.tune(gen="generic.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row1; row2; reference")
@scope.tune_grid(row=[1, 2, 3])
def toy(x: In[floats, "N"], out: Out[floats, "N"]) -> None:
    out[...] = -1
"""
"""A kernel with a stamp for each of two element types. Write its template beside it."""

PARAMETERS = """
@scope.tune(
    gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)],
    fallback="row1 if N < large.minimum; row2",
    parallel=split("N", when="N >= parallel.minimum", grain="parallel.grain"),
)
@scope.tune_param("large.minimum", default=100, minimum=1, maximum=10_000, unit="elements", doc="From here on, row 2.")
@scope.tune_param(
    "parallel.minimum", default=1000, minimum=1, maximum=1 << 40, unit="elements", doc="Smaller calls are not split.",
    calibrate=lambda trial: None,
)
@scope.tune_param(
    "parallel.grain", default=100, minimum=1, maximum=1 << 40, unit="elements", doc="A share is a multiple of it.",
    rules="parallel.grain <= parallel.minimum",
)
@scope.tune_param("ratio", default=0.5, minimum=0.0, maximum=1.0, doc="A number.")
@scope.tune_param("exact", default=True, doc="A switch.")
@scope.tune_param("note", default="", doc="A text.")
@scope.tune_param("way", default="left", choices=["left", "right"], doc="One of two.")
@scope.tune_grid(row=[1, 2, 3])
def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = -1
"""
"""A kernel with parameters of every kind: the rows 1 and 2 answer for small and large sizes."""

COMPANIONS = """
def pack(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = -1

def unpack(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = -1

@scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row1 if N <= 2; row2; row3")
@scope.tune_companion(fn=pack, gen="toy.ll.j2", define={"declined": "1"})
@scope.tune_companion(fn="unpack", gen="toy.ll.j2", define={"declined": "2"})
@scope.tune_grid(row=[1, 2, 3, 4])
def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = -1
"""
"""A kernel whose companions decline a row each: only 3 and 4 are left."""

_numbers = itertools.count(1)


def write_library(folder: Path, body: str = TOY, templates: dict[str, str] | None = None, header: str = HEADER) -> str:
    """Writes a package below `folder` with its own templates and returns its name, which is its scope's name, too."""
    name = f"toylib{next(_numbers)}"
    package = folder / name
    (package / "templates").mkdir(parents=True)
    for file, text in {"toy.ll.j2": TOY_TEMPLATE, "loop.ll.j2": LOOP_TEMPLATE, **(templates or {})}.items():
        (package / "templates" / file).write_text(text, encoding="utf-8")
    (package / "__init__.py").write_text(dedent(header) + dedent(body), encoding="utf-8")
    return name


def ran(kernel: Any, n: int = 3, dtype: Any = np.float32) -> int:
    """Which row of a toy kernel answers a call of size `n`; -1 for the reference."""
    out = np.zeros(n, dtype)
    kernel(np.zeros(n, dtype), out)
    assert (out == out[0]).all()
    return int(out[0])
