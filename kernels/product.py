"""Matrix products: one micro-kernel, `templates/gemm/tile.ll.j2`, and streaming forms for few rows.

Rows of the grids: `mr` x `nv` vectors of `vb` bytes are the register tile. 14 x 2 and 8 x 3 fill the 32 registers of
AVX-512 (6 x 2 the 16 of AVX2, 8 x 3 those of NEON, 4 x 2 fits everywhere without fma, whose product takes one more);
14 x 2 loads least per product, 8 x 3 divides the sizes of common models. `kc` 256 keeps an a panel in half an L1, 384
writes c less often. `direct` is the largest M that reads b in place: up to 256 rows that beats packing by 2 to 10 % on
Zen 4, but with few products per line of b (6 x 2) it loses a third where rows of b are a large power of two apart.
`stream` rows never pack. In `gemm` they win up to 4 rows (deep `kc` with b in memory, shallow with b in the caches), in
the linear layers, whose tiles must turn w first, up to some 16.
"""

import numpy as np

from tunegen import In, Out, bound, case, f32, floats, split
from tunegen.kernels import calibration
from tunegen.kernels.library import scope
from tunegen.kernels.map import gelu
from tunegen.kernels.marks import Mark, together

LAYERS = [
    case("hidden", M=128, N=384, K=384),
    case("up", M=128, N=1536, K=384),
    case("down", M=128, N=384, K=1536),
    case("few", M=4, N=384, K=384),
    case("sixteen", M=16, N=1536, K=384),
    case("token", M=1, N=384, K=384),
    case("token_up", M=1, N=1536, K=384),
    case("token_down", M=1, N=384, K=1536),
]

LAYER_FALLBACK = (
    "stream_mr1_nv8_vb64_kc16 if M == 1; stream_mr1_nv4_vb32_kc8 if M == 1; stream_mr1_nv4_vb16_kc4 if M == 1; "
    "stream_mr4_nv6_vb64_kc16 if M < pack.minimum_rows; stream_mr4_nv3_vb32_kc8 if M < pack.minimum_rows; "
    "stream_mr4_nv6_vb16_kc4 if M < pack.minimum_rows; stream_mr2_nv4_vb16_kc4 if M < pack.minimum_rows; "
    "nostream_mr14_nv2_vb64_kc256; nostream_mr6_nv2_vb32_kc256; nostream_mr8_nv3_vb16_kc256; "
    "nostream_mr4_nv2_vb16_kc256; reference"
)

COLUMNS_OR_ROWS = split(
    "N", "M", when="M * N * K // 65536 >= parallel.minimum_tasks", grain="parallel.grain",
    participants="parallel.maximum_participants",
)  # fmt: skip
"""A part of the columns leaves each participant its own part of the second operand to pack; parts of the rows pack it
all, each for itself."""


def product_parameters(pack_from: int) -> Mark:
    """The parameters that the products share. `pack_from` is the default of `pack.minimum_rows`."""
    marks = [
        scope.tune_param(
            "parallel.minimum_tasks", default=64, minimum=1, maximum=1 << 40, unit="tasks of 65536 multiply-adds",
            doc="From how much work on a call is split over threads, along the longer side of the result.",
            calibrate=calibration.shares,
        ),
        scope.tune_param(
            "parallel.grain", default=0, minimum=0, maximum=1 << 20, unit="rows or columns of the result",
            doc="How much of the longer side a thread takes at a time; 0 gives each thread one equal share.",
            calibrate=calibration.shares,
        ),
        scope.tune_param(
            "parallel.maximum_participants", default=0, minimum=0, maximum=4096, unit="threads",
            doc="How many threads a call takes at most; 0 is as many as there are.", calibrate=calibration.shares,
        ),
        scope.tune_param(
            "pack.minimum_rows", default=pack_from, minimum=2, maximum=4096, unit="rows of the result",
            doc="From how many rows on a product packs its operands into register tiles, instead of streaming them.",
            calibrate=calibration.packing,
        ),
    ]  # fmt: skip
    return together(marks)


def layer_rows() -> Mark:
    """The grid that the linear layers share."""
    return together([
        scope.tune_grid(
            stream=[False], mr=[8, 14], nv=[2, 3], vb=[64], kc=[256, 384],
            where="mr * nv >= 24 and mr * nv <= 28",
            requires="avx512f",
        ),
        scope.tune_perm(stream=True, mr=1, nv=8, vb=64, kc=16, requires="avx512f"),
        scope.tune_perm(stream=True, mr=4, nv=6, vb=64, kc=16, requires="avx512f"),
        scope.tune_perm(stream=False, mr=6, nv=2, vb=32, kc=256, requires="avx2,fma"),
        scope.tune_perm(stream=True, mr=1, nv=4, vb=32, kc=8, requires="avx2,fma"),
        scope.tune_perm(stream=True, mr=4, nv=3, vb=32, kc=8, requires="avx2,fma"),
        scope.tune_perm(stream=False, mr=8, nv=3, vb=16, kc=256, requires="neon"),
        scope.tune_perm(stream=True, mr=4, nv=6, vb=16, kc=4, requires="neon"),
        scope.tune_perm(stream=False, mr=4, nv=2, vb=16, kc=256),
        scope.tune_grid(stream=[True], mr=[1, 2], nv=[4], vb=[16], kc=[4]),
    ])  # fmt: skip


@scope.tune(
    gen="gemm/gemm.ll.j2",
    gate=bound("K"),
    cases=[
        case("square512", M=512, N=512, K=512),
        case("square1024", M=1024, N=1024, K=1024),
        case("mlp", M=128, N=384, K=384),
        case("small", M=64, N=64, K=64),
        case("decode", M=1, N=4096, K=4096),
        case("decode4", M=4, N=4096, K=4096),
        case("few", M=4, N=512, K=512),
    ],
    parallel=COLUMNS_OR_ROWS,
    fallback=(
        "stream_mr1_nv2_vb64_kc8_direct0 if M == 1; stream_mr1_nv2_vb32_kc8_direct0 if M == 1; "
        "stream_mr1_nv2_vb16_kc4_direct0 if M == 1; "
        "stream_mr4_nv2_vb64_kc4_direct0 if M < pack.minimum_rows; "
        "stream_mr4_nv1_vb32_kc4_direct0 if M < pack.minimum_rows; "
        "nostream_mr14_nv2_vb64_kc256_direct256; nostream_mr6_nv2_vb32_kc256_direct48; "
        "nostream_mr8_nv3_vb16_kc256_direct48; nostream_mr4_nv2_vb16_kc256_direct48; reference"
    ),
)
@product_parameters(pack_from=5)
@scope.tune_grid(
    stream=[False], mr=[8, 14], nv=[2, 3], vb=[64], kc=[256, 384], direct=[48, 256],
    where="mr * nv >= 24 and mr * nv <= 28 and (kc == 256 or direct == 256)",
    requires="avx512f",
)  # fmt: skip
@scope.tune_perm(stream=True, mr=1, nv=2, vb=64, kc=8, direct=0, requires="avx512f")
@scope.tune_perm(stream=True, mr=4, nv=2, vb=64, kc=4, direct=0, requires="avx512f")
@scope.tune_perm(stream=True, mr=4, nv=1, vb=64, kc=8, direct=0, requires="avx512f")
@scope.tune_grid(stream=[False], mr=[6], nv=[2], vb=[32], kc=[256], direct=[48, 256], requires="avx2,fma")
@scope.tune_perm(stream=True, mr=1, nv=2, vb=32, kc=8, direct=0, requires="avx2,fma")
@scope.tune_perm(stream=True, mr=4, nv=1, vb=32, kc=4, direct=0, requires="avx2,fma")
@scope.tune_perm(stream=False, mr=8, nv=3, vb=16, kc=256, direct=48, requires="neon")
@scope.tune_perm(stream=False, mr=4, nv=2, vb=16, kc=256, direct=48)
@scope.tune_perm(stream=True, mr=1, nv=2, vb=16, kc=4, direct=0)
def gemm(a: In[floats, "M", "K"], b: In[floats, "K", "N"], c: Out[floats, "M", "N"]) -> None:
    """Matrix product: c[i,j] = sum over k of a[i,k] * b[k,j]; zeros where K = 0.

    | operand | shape  | element type | layout                        | alignment in bytes |
    |---------|--------|--------------|-------------------------------|--------------------|
    | a       | [M, K] | f32, f64     | rows contiguous, any distance | 4, 8               |
    | b       | [K, N] | as a         | rows contiguous, any distance | 4, 8               |
    | c       | [M, N] | as a         | rows contiguous, any distance | 4, 8               |

    2 M N K flops; (M K + K N + M N) * element bytes, when each operand is moved once.

    Accumulation in the element type, one sum per element of c over k upwards: one rounding per term with fma, two
    without. |error| <= gamma(K) * (|a| |b|)[i,j], gamma(n) = n u / (1 - n u), u the unit roundoff (gamma(K + 1) without
    fma); Higham, Accuracy and Stability of Numerical Algorithms, section 3.1.

    Sources: Goto and van de Geijn, Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34 (2008); Van Zee and
    van de Geijn, BLIS, ACM TOMS 41 (2015).
    """
    np.matmul(a, b, out=c)


@scope.tune(
    gen="gemm/linear.ll.j2", gate=bound("K"), define={"epilogue": "none"}, cases=LAYERS, fallback=LAYER_FALLBACK,
    parallel=COLUMNS_OR_ROWS,
)  # fmt: skip
@product_parameters(pack_from=17)
@layer_rows()
def linear(x: In[f32, "M", "K"], w: In[f32, "N", "K"], bias: In[f32, "N"], out: Out[f32, "M", "N"]) -> None:
    """Linear layer: out[i,j] = bias[j] + sum over k of x[i,k] * w[j,k].

    | operand | shape  | element type | layout                        | alignment in bytes |
    |---------|--------|--------------|-------------------------------|--------------------|
    | x       | [M, K] | f32          | rows contiguous, any distance | 4                  |
    | w       | [N, K] | f32          | rows contiguous, any distance | 4                  |
    | bias    | [N]    | f32          | contiguous                    | 4                  |
    | out     | [M, N] | f32          | rows contiguous, any distance | 4                  |

    2 M N K + M N flops; 4 (M K + N K + N + M N) bytes, when each operand is moved once.

    Accumulation in f32, from the bias over k upwards as in `gemm`; `stream` rows keep one sum per lane, add the lanes
    by halving, and the bias last. |error| <= gamma(K + 1) * (|bias[j]| + (|x| |w|^T)[i,j]), gamma as in `gemm`.

    Sources: as `gemm`.
    """
    np.matmul(x, w.T, out=out)
    np.add(out, bias, out=out)


@scope.tune(
    gen="gemm/linear.ll.j2", gate=bound("K"), define={"epilogue": "gelu"}, cases=LAYERS, fallback=LAYER_FALLBACK,
    parallel=COLUMNS_OR_ROWS,
)  # fmt: skip
@product_parameters(pack_from=17)
@layer_rows()
def linear_gelu(x: In[f32, "M", "K"], w: In[f32, "N", "K"], bias: In[f32, "N"], out: Out[f32, "M", "N"]) -> None:
    """Linear layer with GELU: out[i,j] = g(bias[j] + sum over k of x[i,k] * w[j,k]).

    g(s) = s (1 + erf(s / sqrt 2)) / 2.

    | operand | shape  | element type | layout                        | alignment in bytes |
    |---------|--------|--------------|-------------------------------|--------------------|
    | x       | [M, K] | f32          | rows contiguous, any distance | 4                  |
    | w       | [N, K] | f32          | rows contiguous, any distance | 4                  |
    | bias    | [N]    | f32          | contiguous                    | 4                  |
    | out     | [M, N] | f32          | rows contiguous, any distance | 4                  |

    2 M N K + M N flops and M N values of g; 4 (M K + N K + N + M N) bytes, when each operand is moved once.

    Accumulation as in `linear`; g on each strip of rows while it is in the caches. |error| <= 1.13 * (the bound of
    `linear`) + the error of `gelu`, since the slope of g is at most 1.13.

    Sources: as `gemm` and `gelu`.
    """
    np.matmul(x, w.T, out=out)
    np.add(out, bias, out=out)
    gelu.reference(out.copy(), out)
