"""Kernels that treat each row of a matrix by itself: softmax and layer normalisation.

Rows of the grids: several `rows` at once were 15 to 25 % faster at 128 elements on Zen 4, where they hide the latency
of the horizontal sums and maxima; with 4096 elements, whose rows lie 16 KiB apart, 4 rows cost softmax 35 to 80 %.
`unroll` gives a row's sums as many accumulators; softmax with more than 4 vectors in flight was slower and twice as
large.
"""

from collections.abc import Callable

import numpy as np

from tunegen import In, Out, bound, case, floats, split
from tunegen.kernels import calibration
from tunegen.kernels.library import scope

SHAPES = [
    case("heads", M=1536, N=128),
    case("short", M=128, N=67),
    case("hidden", M=128, N=384),
    case("long", M=64, N=4096),
    case("vocabulary", M=4, N=30522),
]

ROWS = split("M", when="M * N // 1024 >= parallel.minimum_rows")


def row_parameters(fn: Callable[..., None]) -> Callable[..., None]:
    """The parameters that the row kernels share."""
    marked: Callable[..., None] = scope.tune_param(
        "parallel.minimum_rows", default=128, minimum=1, maximum=1 << 30, unit="rows of 1024 elements",
        doc="From how much work on a call shares its rows out over threads.", calibrate=calibration.rows,
    )(fn)  # fmt: skip
    return marked


@scope.tune(
    gen="rows/softmax.ll.j2",
    gate=bound("N"),
    cases=SHAPES,
    parallel=ROWS,
    fallback="vl16_unroll1_rows4 if N <= 256; vl8_unroll1_rows4 if N <= 256; "
    "vl16_unroll2_rows1; vl8_unroll1_rows1; vl4_unroll4_rows2; reference",
)
@row_parameters
@scope.tune_grid(vl=[16], unroll=[1, 2], rows=[1, 2, 4], where="unroll * rows <= 4", requires="avx512f")
@scope.tune_grid(vl=[8], unroll=[1, 2], rows=[1, 4], where="unroll * rows <= 4", requires="avx2|neon,fma|neon")
@scope.tune_grid(vl=[4], unroll=[2, 4], rows=[1, 2])
def softmax(
    x: In[floats, "M", "N"], out: Out[floats, "M", "N"], mask: In[floats, "M?", "N"] | None = None, scale: float = 1.0
) -> None:
    """out[m, n] = exp(v[m, n] - max_k v[m, k]) / sum_k exp(v[m, k] - max_k v[m, k]),  v = scale x (+ mask)

    | operand | shape                | element type | layout                  | alignment in bytes |
    |---------|----------------------|--------------|-------------------------|--------------------|
    | x       | M, N                 | f32, f64     | rows, any stride        | 4, 8 (the element) |
    | out     | M, N                 | as x         | rows, any stride        | 4, 8 (the element) |
    | mask    | M, N or 1, N, or None| as x         | rows, any stride        | 4, 8 (the element) |
    | scale   | scalar               | f64          | rounded to x's type     |                    |

    Flops: 24 M N (f32), 34 M N (f64). Bytes: 2 M N s, and M N s or N s for the mask, for elements of s bytes.
    Computed in the element type. Sums run over vl * unroll accumulators, then by halving.
    Error: a numerator has the relative error (2 |v - max| + |v| + |max| + 4) u, u the unit roundoff: v - max, its
    quotient by ln 2, max, and (with a mask) v are rounded once each. The sum adds at most (N / (vl unroll) + 8) u, the
    quotient 2 u. Numerators below the smallest normal number may be 0. A row with a NaN or +Inf, or of -Inf alone (all
    masked), is NaN as a whole.
    Source: the definition, with the maximum taken out; M. Milakov and N. Gimelshein, arXiv:1805.02867, section 2.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        v = x * scale if mask is None else x * scale + mask
        out[...] = np.exp(v - v.max(axis=-1, keepdims=True, initial=-np.inf))
        out /= out.sum(axis=-1, keepdims=True)


@scope.tune(
    gen="rows/layernorm.ll.j2",
    gate=bound("N"),
    cases=SHAPES,
    parallel=ROWS,
    fallback="vl16_unroll2_rows4; vl8_unroll2_rows4; vl4_unroll4_rows2; reference",
)
@row_parameters
@scope.tune_grid(vl=[16], unroll=[1, 2, 4], rows=[2, 4], requires="avx512f")
@scope.tune_grid(vl=[8], unroll=[2, 4], rows=[2, 4], requires="avx2|neon,fma|neon")
@scope.tune_grid(vl=[4], unroll=[2, 4], rows=[1, 2])
def layernorm(
    x: In[floats, "M", "N"],
    gamma: In[floats, "N"],
    beta: In[floats, "N"],
    out: Out[floats, "M", "N"],
    eps: float = 1e-5,
) -> None:
    """out[m, n] = (x[m, n] - mean[m]) / sqrt(variance[m] + eps) gamma[n] + beta[n]

    with mean[m] = sum_n x[m, n] / N and variance[m] = sum_n (x[m, n] - mean[m])^2 / N.

    | operand     | shape  | element type | layout              | alignment in bytes |
    |-------------|--------|--------------|---------------------|--------------------|
    | x           | M, N   | f32, f64     | rows, any stride    | 4, 8 (the element) |
    | gamma, beta | N      | as x         | contiguous          | 4, 8 (the element) |
    | out         | M, N   | as x         | rows, any stride    | 4, 8 (the element) |
    | eps         | scalar | f64          | rounded to x's type |                    |

    Flops: 8 M N. Bytes: (2 M N + 2 N) s for elements of s bytes.
    Computed in the element type, mean first, then the squares of the differences from it, so that a large mean does not
    cancel. Sums run over vl * unroll accumulators, then by halving.
    Error: about (|mean| / deviation + N / (vl unroll) + 8) u relative to max(|out|, gamma), u the unit roundoff.
    Source: J. L. Ba, J. R. Kiros and G. E. Hinton, Layer Normalization, arXiv:1607.06450.
    """
    length = max(x.shape[-1], 1)
    with np.errstate(invalid="ignore", over="ignore"):
        centred = x - x.sum(axis=-1, keepdims=True) / length
        variance = np.square(centred).sum(axis=-1, keepdims=True) / length
        out[...] = centred / np.sqrt(variance + eps) * gamma + beta
