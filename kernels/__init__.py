"""The shipped kernel library, scope "kernels": one file per family.

It has no privilege that a library of somebody else lacks.
"""

if __name__ != "tunegen.kernels":
    raise ImportError(f"import this package as tunegen.kernels, not as {__name__}")

from tunegen.kernels.library import scope
from tunegen.kernels.map import abs, add, exp, gelu, log, logical_not, sigmoid, tanh  # noqa: A004 - as in numpy
from tunegen.kernels.product import gemm, linear, linear_gelu
from tunegen.kernels.rows import layernorm, softmax

__all__ = [
    "abs",
    "add",
    "exp",
    "gelu",
    "gemm",
    "layernorm",
    "linear",
    "linear_gelu",
    "log",
    "logical_not",
    "scope",
    "sigmoid",
    "softmax",
    "tanh",
]
