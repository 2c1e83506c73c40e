"""Elementwise kernels: one skeleton, `templates/map/map.ll.j2`, and one operation each.

Rows of the grids: `vl` lanes fill a register of AVX-512 (16), AVX2 (8) or SSE and NEON (4); half of that suits f64, for
which 16 lanes decline. `unroll` vectors in flight matter little to exp and gelu: 2 was within 5 % of the best on Zen 4.
add is bound by loads and stores; there 32-byte ones were 3 to 8 % faster than 64-byte ones.
"""

from __future__ import annotations

import math

import numpy as np

from tunegen import In, Out, case, f32, floats, ulp
from tunegen.kernels.library import scope

LENGTHS = [case("n1024", N=1024), case("n16384", N=16384), case("n1m", N=1 << 20)]

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


@scope.tune(
    gen="map/exp.ll.j2",
    gate=ulp(2.5),
    cases=LENGTHS,
    inplace=True,
    fallback="vl16_unroll2; vl8_unroll2; vl4_unroll2; reference",
)
@scope.tune_grid(vl=[16], unroll=[1, 2, 4], requires="avx512f")
@scope.tune_grid(vl=[8], unroll=[1, 2, 4], requires="avx2|neon,fma|neon")
@scope.tune_grid(vl=[4], unroll=[1, 2, 4])
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
    gen="map/gelu.ll.j2",
    gate=ulp(6),
    cases=LENGTHS,
    inplace=True,
    fallback="vl16_unroll2; vl8_unroll2; vl4_unroll2; reference",
)
@scope.tune_grid(vl=[16], unroll=[1, 2, 4], requires="avx512f")
@scope.tune_grid(vl=[8], unroll=[1, 2, 4], requires="avx2|neon,fma|neon")
@scope.tune_grid(vl=[4], unroll=[1, 2, 4])
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
    fallback="vl8_unroll2; vl4_unroll4; reference",
)
@scope.tune_grid(vl=[16], unroll=[1, 2, 4], requires="avx512f")
@scope.tune_grid(vl=[8], unroll=[1, 2, 4], requires="avx|neon")
@scope.tune_grid(vl=[4], unroll=[1, 2, 4])
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
