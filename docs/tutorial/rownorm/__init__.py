"""A sample library: the squared Euclidean norm of each row of a matrix, tuned for the box it runs on."""

from __future__ import annotations

import numpy as np

from tunegen import In, Out, bound, case, f32, tune_scope

scope = tune_scope(name="rownorm", templates="templates")


@scope.tune(
    gen="squares.ll.j2",
    gate=bound("N"),
    cases=[case("short", M=1024, N=64), case("long", M=64, N=4096)],
    fallback="vl16_unroll4; vl8_unroll4; vl4_unroll4; reference",
)
@scope.tune_grid(vl=[16], unroll=[1, 2, 4], requires="avx512f")
@scope.tune_grid(vl=[8], unroll=[1, 2, 4], requires="avx2|neon")
@scope.tune_grid(vl=[4], unroll=[1, 2, 4])
def squared_norms(x: In[f32, "M", "N"], out: Out[f32, "M"]) -> None:
    """out[m] = sum over n of x[m, n]**2."""
    np.sum(x * x, axis=1, out=out)
