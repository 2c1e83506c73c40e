"""Elementwise kernels: one skeleton, `templates/map/map.ll.j2`, and one operation each.

Rows of the grids: `vl` lanes fill a register of AVX-512 (16), AVX2 (8) or SSE and NEON (4); half of that suits f64, for
which 16 lanes decline, and four times as many bool. `unroll` vectors in flight matter little where an operation
computes: 2 was within 5 % of the best on Zen 4. add, abs and logical_not are bound by loads and stores: in add 32-byte
ones were 3 to 8 % faster than 64-byte ones, in the others all rows are alike. `stream` rows store past the caches, for
outputs that these cannot hold: with 32 MiB of L3 they gained 17 to 34 % (exp, abs, add) where the output fills it, 29
to 40 % from twice that on, and lost up to 25 % where the output would have stayed in a cache.
"""

import math
from collections.abc import Sequence

import numpy as np

from tunegen import In, Out, bitwise, bool_, case, f32, floats, split, ulp
from tunegen.kernels import calibration
from tunegen.kernels.library import scope
from tunegen.kernels.marks import Mark, together

LENGTHS = [case("n1024", N=1024), case("n16384", N=16384), case("n1m", N=1 << 20)]

ELEMENTS = split(
    "N", when="N >= parallel.minimum_elements", grain="parallel.grain", participants="parallel.maximum_participants"
)

COMPUTE = ((16, "avx512f"), (8, "avx2|neon,fma|neon"), (4, ""))
MOVE = ((16, "avx512f"), (8, "avx|neon"), (4, ""))
BYTES = ((64, "avx512bw"), (32, "avx2|neon"), (16, ""))
"""Lanes of a register, and what a CPU needs for it."""

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def chain(*rows: str) -> str:
    """The fallback of a map: these rows, streaming from `stream.minimum_elements` on."""
    streaming = [f"{row.partition('_')[0]}_unroll2_stream if N >= stream.minimum_elements" for row in rows]
    return "; ".join([*streaming, *(f"{row}_nostream" for row in rows), "reference"])


def map_rows(
    registers: Sequence[tuple[int, str]], unroll: Sequence[int] = (1, 2, 4), split_from: int = 1 << 17,
    stream_from: int = 1 << 25,
) -> Mark:  # fmt: skip
    """The parameters that all maps share, with two defaults, and the grid of one: rows for each kind of register."""
    marks = [
        scope.tune_param(
            "parallel.minimum_elements", default=split_from, minimum=1, maximum=1 << 40, unit="elements",
            doc="From how many elements on a call is split over threads.", calibrate=calibration.elements,
        ),
        scope.tune_param(
            "parallel.grain", default=split_from // 8, minimum=0, maximum=1 << 40, unit="elements",
            doc="How many elements a thread takes at a time; 0 gives each thread one equal share.",
            calibrate=calibration.elements,
        ),
        scope.tune_param(
            "parallel.maximum_participants", default=0, minimum=0, maximum=4096, unit="threads",
            doc="How many threads a call takes at most; 0 is as many as there are.", calibrate=calibration.elements,
        ),
        scope.tune_param(
            "stream.minimum_elements", default=stream_from, minimum=1, maximum=1 << 40, unit="elements",
            doc="From how many elements on the output is stored past the caches.", calibrate=calibration.streaming,
        ),
    ]  # fmt: skip
    for vl, requires in registers:
        marks.append(scope.tune_grid(vl=[vl], unroll=unroll, stream=[False], requires=requires))
        marks.append(scope.tune_perm(vl=vl, unroll=2, stream=True, requires=requires))
    return together(marks)


@scope.tune(
    gen="map/exp.ll.j2",
    gate=ulp(2.5),
    cases=LENGTHS,
    inplace=True,
    parallel=ELEMENTS,
    fallback=chain("vl16_unroll2", "vl8_unroll2", "vl4_unroll2"),
)
@map_rows(COMPUTE)
def exp(x: In[floats, ...], out: Out[floats, ...]) -> None:
    """out[i] = exp(x[i])

    | operand | shape | element type | layout           | alignment in bytes |
    |---------|-------|--------------|------------------|--------------------|
    | x       | any   | f32, f64     | any, broadcasts  | 4, 8 (the element) |
    | out     | any   | as x         | may be x itself  | 4, 8 (the element) |

    Flops: 21 N (f32), 31 N (f64); 16 N and 24 N where a register of AVX-512 holds a table. Bytes: 2 N s for elements
    of s bytes.
    Computed in the element type: x = n ln 2 + r, a minimax polynomial in r of degree 6 (f32) or 11 (f64), times 2^n;
    with the table, of degree 3 or 7.
    Error: at most 1 ULP for f32 (over all x: 0.91, with the table 0.99), 1.1 for f64, 1.5 without fused multiply-add;
    denormal results are rounded once. exp(NaN) = NaN, exp(-Inf) = 0, overflow gives +Inf.
    Source: W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980, chapter 6; P. T. P. Tang,
    Table-driven implementation of the exponential function, ACM TOMS 15 (1989).
    """
    with np.errstate(over="ignore", under="ignore"):
        np.exp(x, out=out)


@scope.tune(
    gen="map/log.ll.j2",
    gate=ulp(2.5),
    cases=LENGTHS,
    inplace=True,
    parallel=ELEMENTS,
    fallback=chain("vl16_unroll2", "vl8_unroll2", "vl4_unroll2"),
)
@map_rows(COMPUTE, unroll=(1, 2))
def log(x: In[floats, ...], out: Out[floats, ...]) -> None:
    """out[i] = log(x[i]), the natural logarithm

    | operand | shape | element type | layout           | alignment in bytes |
    |---------|-------|--------------|------------------|--------------------|
    | x       | any   | f32, f64     | any, broadcasts  | 4, 8 (the element) |
    | out     | any   | as x         | may be x itself  | 4, 8 (the element) |

    Flops: 27 N (f32), 28 N (f64); 15 N and 27 N where registers of AVX-512 hold tables. Bytes: 2 N s for elements of s
    bytes.
    Computed in the element type: x = 2^k m, and a minimax polynomial for log(m), from a table of logarithms on where
    there is one (see lib/log.ll.j2).
    Error: at most 0.9 ULP for f32 (over all x: 0.86), with the table 1.6 (1.59); 0.9 for f64, with the table 1.1.
    log(0) = -Inf, log(x < 0) = NaN, log(NaN) = NaN; denormal arguments are as good as any.
    Source: FDLIBM, e_log.c; P. T. P. Tang, Table-driven implementation of the logarithm function in IEEE floating-point
    arithmetic, ACM TOMS 16 (1990).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        np.log(x, out=out)


@scope.tune(
    gen="map/sigmoid.ll.j2",
    gate=ulp(2.5),
    cases=LENGTHS,
    inplace=True,
    parallel=ELEMENTS,
    fallback=chain("vl16_unroll2", "vl8_unroll2", "vl4_unroll2"),
)
@map_rows(COMPUTE, unroll=(1, 2))
def sigmoid(x: In[floats, ...], out: Out[floats, ...]) -> None:
    """out[i] = 1 / (1 + exp(-x[i])), the logistic function

    | operand | shape | element type | layout           | alignment in bytes |
    |---------|-------|--------------|------------------|--------------------|
    | x       | any   | f32, f64     | any, broadcasts  | 4, 8 (the element) |
    | out     | any   | as x         | may be x itself  | 4, 8 (the element) |

    Flops: 25 N (f32), 35 N (f64); 20 N and 28 N where a register of AVX-512 holds a table. Bytes: 2 N s for elements of
    s bytes.
    Computed in the element type from e = exp(-|x|), as `exp` computes it, with one division (see lib/sigmoid.ll.j2).
    Error: at most 2.2 ULP for f32 and 1.7 for f64, 2.0 without fused multiply-add; denormal results are rounded once.
    sigmoid(NaN) = NaN, sigmoid(-Inf) = 0, sigmoid(Inf) = 1; far on the left results shrink gradually to denormals.
    Source: as for `exp`.
    """
    e = np.exp(-np.abs(x))
    out[...] = np.where(x < 0, e, 1) / (1 + e)


@scope.tune(
    gen="map/tanh.ll.j2",
    gate=ulp(2.5),
    cases=LENGTHS,
    inplace=True,
    parallel=ELEMENTS,
    fallback=chain("vl16_unroll2", "vl8_unroll2", "vl4_unroll2"),
)
@map_rows(COMPUTE, unroll=(1, 2))
def tanh(x: In[floats, ...], out: Out[floats, ...]) -> None:
    """out[i] = tanh(x[i])

    | operand | shape | element type | layout           | alignment in bytes |
    |---------|-------|--------------|------------------|--------------------|
    | x       | any   | f32, f64     | any, broadcasts  | 4, 8 (the element) |
    | out     | any   | as x         | may be x itself  | 4, 8 (the element) |

    Flops: 25 N (f32), 37 N (f64). Bytes: 2 N s for elements of s bytes.
    Computed in the element type as f / (f + 1) with f = (exp(2 |x|) - 1) / 2, which comes from a minimax polynomial
    without cancellation (see lib/tanh.ll.j2).
    Error: at most 1.8 ULP for f32 (over all x: 1.75) and 2.2 for f64, without fused multiply-add 1.9 and 2.4.
    tanh(NaN) = NaN, tanh(-0.0) = -0.0, tanh(Inf) = 1; denormal arguments come back as they are.
    Source: the reduction of W. J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980, chapters 6
    and 13.
    """
    np.tanh(x, out=out)


@scope.tune(
    gen="map/gelu.ll.j2",
    gate=ulp(6),
    cases=LENGTHS,
    inplace=True,
    parallel=ELEMENTS,
    fallback=chain("vl16_unroll2", "vl8_unroll2", "vl4_unroll2"),
)
@map_rows(COMPUTE)
def gelu(x: In[f32, ...], out: Out[f32, ...]) -> None:
    """out[i] = x[i] Phi(x[i]) = x[i] (1 + erf(x[i] / sqrt 2)) / 2: the exact GELU, as in BERT

    | operand | shape | element type | layout           | alignment in bytes |
    |---------|-------|--------------|------------------|--------------------|
    | x       | any   | f32          | any, broadcasts  | 4 (the element)    |
    | out     | any   | f32          | may be x itself  | 4 (the element)    |

    Flops: 48 N. Bytes: 8 N.
    Computed in f32 as max(x, 0) - |x| Phi(-|x|), from exp and a scaled erfc (see lib/gelu.ll.j2): nothing cancels.
    Error: at most 5 ULP with fused multiply-add (4.94 over all x), 6 without (5.54), the far negative tail and denormal
    results included.
    gelu(NaN) = NaN, gelu(-0.0) = -0.0, gelu(-Inf) = 0, the limit.
    Source: D. Hendrycks and K. Gimpel, Gaussian Error Linear Units, arXiv:1606.08415; for the split by exp(-x^2 / 2),
    W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969).
    """
    a = np.minimum(np.abs(x), 40)  # Phi(-40) is below the smallest f64
    out[...] = np.where(x < 0, 0, x) - a * 0.5 * _erfc(a * math.sqrt(0.5))


@scope.tune(
    gen="map/add.ll.j2",
    gate=ulp(0.5),
    cases=[*LENGTHS, case("bias", a=(128, 1536), b=(1536,))],
    inplace=True,
    parallel=ELEMENTS,
    fallback=chain("vl8_unroll2", "vl4_unroll4"),
)
@map_rows(MOVE)
def add(a: In[floats, ...], b: In[floats, ...], out: Out[floats, ...]) -> None:
    """out[i] = a[i] + b[i]

    | operand | shape | element type | layout                 | alignment in bytes |
    |---------|-------|--------------|------------------------|--------------------|
    | a, b    | any   | f32, f64     | any, broadcast         | 4, 8 (the element) |
    | out     | any   | as a         | may be a or b itself   | 4, 8 (the element) |

    Flops: N. Bytes: 3 N s for elements of s bytes.
    Error: rounded once (0.5 ULP).
    """
    with np.errstate(over="ignore", invalid="ignore"):
        np.add(a, b, out=out)


@scope.tune(
    gen="map/abs.ll.j2",
    gate=bitwise(),
    cases=LENGTHS,
    inplace=True,
    parallel=ELEMENTS,
    fallback=chain("vl8_unroll2", "vl4_unroll2"),
)
@map_rows(MOVE, unroll=(1, 2))
def abs(x: In[floats, ...], out: Out[floats, ...]) -> None:  # noqa: A001 - numpy's name for it
    """out[i] = |x[i]|

    | operand | shape | element type | layout           | alignment in bytes |
    |---------|-------|--------------|------------------|--------------------|
    | x       | any   | f32, f64     | any, broadcasts  | 4, 8 (the element) |
    | out     | any   | as x         | may be x itself  | 4, 8 (the element) |

    Flops: none; N sign bits are cleared. Bytes: 2 N s for elements of s bytes.
    Error: none. abs(NaN) = NaN, abs(-0.0) = 0.
    """
    np.abs(x, out=out)


@scope.tune(
    gen="map/logical_not.ll.j2",
    gate=bitwise(),
    cases=LENGTHS,
    inplace=True,
    parallel=ELEMENTS,
    fallback=chain("vl64_unroll2", "vl32_unroll2", "vl16_unroll2"),
)
@map_rows(BYTES, unroll=(1, 2), split_from=1 << 19, stream_from=1 << 27)
def logical_not(x: In[bool_, ...], out: Out[bool_, ...]) -> None:
    """out[i] = not x[i]

    | operand | shape | element type | layout           | alignment in bytes |
    |---------|-------|--------------|------------------|--------------------|
    | x       | any   | bool         | any, broadcasts  | 1 (the element)    |
    | out     | any   | bool         | may be x itself  | 1 (the element)    |

    Flops: none; N comparisons. Bytes: 2 N.
    Error: none. Any byte but 0 is true; the result is a byte 0 or 1.
    """
    np.logical_not(x, out=out)
