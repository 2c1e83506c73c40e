"""A library as somebody may begin one: numpy bodies, our templates, and no variant that runs on an untuned box."""

from __future__ import annotations

from pathlib import Path

NAME = "untuned"
LIBRARY = '''\
"""Rows and activations of a small transformer."""

import numpy as np

from tunegen import In, Out, bound, case, f32, tune_scope, ulp

scope = tune_scope(name=__name__, templates=".")
ROWS = [case("step", M=12, N=128), case("prompt", M=192, N=128)]


@scope.tune(gen="tunegen/rows/softmax.ll.j2", gate=bound("N"), cases=ROWS, fallback="reference")
@scope.tune_grid(vl=[16], unroll=[1, 2], rows=[1, 4], where="unroll * rows <= 4", requires="avx512f")
@scope.tune_grid(vl=[8], unroll=[1, 2], rows=[1, 4], where="unroll * rows <= 4", requires="avx2|neon,fma|neon")
@scope.tune_grid(vl=[4], unroll=[2], rows=[1, 2])
def softmax(
    x: In[f32, "M", "N"], out: Out[f32, "M", "N"], mask: In[f32, "M?", "N"] | None = None, scale: float = 1.0
) -> None:
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        v = x * scale if mask is None else x * scale + mask
        out[...] = np.exp(v - v.max(axis=-1, keepdims=True, initial=-np.inf))
        out /= out.sum(axis=-1, keepdims=True)


@scope.tune(gen="tunegen/rows/layernorm.ll.j2", gate=bound("N"), fallback="reference",
            cases=[case("step", M=1, N=384), case("prompt", M=16, N=384)])
@scope.tune_grid(vl=[16], unroll=[1, 2], rows=[2, 4], requires="avx512f")
@scope.tune_grid(vl=[8], unroll=[2], rows=[2, 4], requires="avx2|neon,fma|neon")
@scope.tune_grid(vl=[4], unroll=[2], rows=[1, 2])
def layernorm(
    x: In[f32, "M", "N"], gamma: In[f32, "N"], beta: In[f32, "N"], out: Out[f32, "M", "N"], eps: float = 1e-5
) -> None:
    length = max(x.shape[-1], 1)
    with np.errstate(invalid="ignore", over="ignore"):
        centred = x - x.sum(axis=-1, keepdims=True) / length
        variance = np.square(centred).sum(axis=-1, keepdims=True) / length
        out[...] = centred / np.sqrt(variance + eps) * gamma + beta


@scope.tune(gen="tunegen/map/sigmoid.ll.j2", gate=ulp(2.5), fallback="reference",
            cases=[case("step", N=1536), case("prompt", N=24576)])
@scope.tune_grid(vl=[16], unroll=[1, 2], stream=[False], requires="avx512f")
@scope.tune_grid(vl=[8], unroll=[1, 2], stream=[False], requires="avx2|neon,fma|neon")
@scope.tune_grid(vl=[4], unroll=[2], stream=[False])
def sigmoid(x: In[f32, ...], out: Out[f32, ...]) -> None:
    e = np.exp(-np.abs(x))
    out[...] = np.where(x < 0, e, 1) / (1 + e)
'''


def write(folder: Path) -> None:
    """Writes the library into a folder, from which it can be imported as `NAME`."""
    (folder / NAME).mkdir()
    (folder / NAME / "__init__.py").write_text(LIBRARY, encoding="utf-8")
