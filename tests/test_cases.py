"""Cases: sizes that fit a signature, and the inputs made for them."""

from __future__ import annotations

import numpy as np
import pytest

from tunegen import In, InOut, Out, case, f32, floats
from tunegen.cases import default_inputs, facts, problem, shapes
from tunegen.signature import ELEMENT_TYPES, read_signature


def product(a: In[f32, "M", "K"], b: In[f32, "K", "N"], c: InOut[f32, "M", "N"], s: float, n: int = 3,
            mask: In[f32, "M?", "N"] | None = None) -> None: ...  # fmt: skip


def add(a: In[floats, ...], b: In[floats, ...], out: Out[floats, ...]) -> None: ...


PRODUCT, ADD = read_signature(product, "product", {}), read_signature(add, "add", {})


@pytest.mark.parametrize(
    ("item", "signature", "sentence"),
    [
        (case("x", M=1, K=2, N=0), PRODUCT, ""),
        (case("x", N=5), ADD, ""),
        (case("x", a=(2, 3), b=(3,)), ADD, ""),
        (case("x", a=[2, 3], b=()), ADD, ""),
        (case("x", M=1, K=2), PRODUCT, r"the sizes are M, K, N"),
        (case("x", M=1, K=2, N=3, L=4), PRODUCT, r"the sizes are M, K, N"),
        (case("x", M=-1, K=2, N=True), PRODUCT, r"M=-1, N=True is no whole number"),
        (case("x", N=-5), ADD, r"N=-5 is no whole number"),
        (case("x", N=(5,)), ADD, r"N=\(5,\) is no whole number"),
        (case("x", N=5, cold=True), ADD, ""),
        (case("x", N=5, cold=1), ADD, "cold=1: cold operands are True or False"),
        (case("x", a=(2, 3)), ADD, "a shape for each of a, b"),
        (case("x", a=(2, 3), b=3), ADD, "a shape for each of a, b"),
        (case("x", a=(2, -3), b=(3,)), ADD, "a shape for each of a, b"),
        (case("x", a=(2, 3), b=(4,)), ADD, "do not broadcast"),
    ],
)
def test_what_is_wrong_with_a_case_is_one_sentence(item, signature, sentence):
    with pytest.raises(AssertionError, match=f"^(case x.*{sentence}.*)?$" if sentence else "^$"):
        raise AssertionError(problem(item, signature))


def test_shapes_and_facts_of_a_case():
    sizes = {"M": 2, "K": 3, "N": 4}
    assert shapes(PRODUCT, sizes) == {"a": (2, 3), "b": (3, 4), "c": (2, 4), "mask": (2, 4)}
    assert facts(PRODUCT, sizes) == sizes
    assert shapes(ADD, {"N": 5}) == {"a": (5,), "b": (5,), "out": (5,)}
    assert shapes(ADD, {"a": (2, 1), "b": (3,)}) == {"a": (2, 1), "b": (3,), "out": (2, 3)}
    assert facts(ADD, {"a": (2, 1), "b": (3,)}) == {"N": 6}


def test_default_inputs_are_reproducible_and_of_the_right_type():
    rng = [np.random.default_rng(1) for _ in range(2)]
    a, b = (default_inputs(PRODUCT, r, {"M": 2, "K": 3, "N": 4}, ELEMENT_TYPES["f32"]) for r in rng)
    assert list(a) == ["a", "b", "c", "s", "n", "mask"]
    assert a["a"].dtype == np.float32
    assert a["a"].tobytes() == b["a"].tobytes()
    assert (a["s"], a["n"]) == (1, 3)
    without = default_inputs(PRODUCT, rng[0], {"M": 2, "K": 3, "N": 4}, ELEMENT_TYPES["f32"], optional=False)
    assert without["mask"] is None
    assert list(default_inputs(ADD, rng[0], {"N": 5}, ELEMENT_TYPES["f64"])) == ["a", "b"]
