"""How much arithmetic a call of a shipped kernel is, as its docstring says, by the form that needs least.

Of other kernels only the bytes are known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from tunegen import cases
from tunegen.cases import Sizes
from tunegen.making.spec import Spec
from tunegen.signature import ElementType

Facts = Mapping[str, int]

_PER_ELEMENT = {
    "exp": {"f32": 16, "f64": 24},
    "log": {"f32": 15, "f64": 27},
    "sigmoid": {"f32": 20, "f64": 28},
    "tanh": {"f32": 25, "f64": 37},
    "gelu": {"f32": 48},
    "add": {"f32": 1, "f64": 1},
    "softmax": {"f32": 19, "f64": 27},
    "layernorm": {"f32": 8, "f64": 8},
}
_PRODUCTS: dict[str, Callable[[Facts], int]] = {
    "gemm": lambda f: 2 * f["M"] * f["N"] * f["K"],
    "linear": lambda f: 2 * f["M"] * f["N"] * f["K"] + f["M"] * f["N"],
    "linear_gelu": lambda f: 2 * f["M"] * f["N"] * f["K"] + 49 * f["M"] * f["N"],
}
SCOPE = "kernels"


def flops(spec: Spec, element_type: ElementType, sizes: Sizes) -> int:
    """Additions and multiplications of a call; 0 where they are not known."""
    facts = cases.facts(spec.signature, sizes)
    if spec.scope != SCOPE:
        return 0
    if spec.name in _PRODUCTS:
        return _PRODUCTS[spec.name](facts)
    return _PER_ELEMENT.get(spec.name, {}).get(element_type.name, 0) * prod(facts.values())


def moved_bytes(spec: Spec, element_type: ElementType, sizes: Sizes) -> int:
    """Bytes of a call that moves each operand once; what it updates in place is read and written."""
    shapes, signature = cases.shapes(spec.signature, sizes), spec.signature
    return sum(
        prod(shapes[p.name]) * signature.type_of(p, element_type).bytes * (2 if p.role == "inout" else 1)
        for p in signature.operands
    )
