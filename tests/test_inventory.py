"""The inventory: one coverage state per kernel and element type, from the declaration alone."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from tunegen import cli
from tunegen.public.inventory import State, coverage, inventory
from tunegen.public.scope import find_scope

HEADER = """
import numpy as np
from tunegen import In, Out, bitwise, case, f32, f64, floats, serial, split, tune_scope

scope = tune_scope(name=__name__, templates="templates")
ELEMENTS = scope.tune_param("parallel.minimum_elements", default=100, minimum=1, maximum=1 << 40, doc="when",
                            calibrate=lambda trial: None)
GRAIN = scope.tune_param("parallel.grain", default=8, minimum=1, maximum=1 << 20, doc="how much")
OTHER = scope.tune_param("other", default="a", choices=("a", "b"), doc="something else")
"""
KERNEL = """
@scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row1; reference"{parallel})
{params}@scope.tune_perm(row=1)
def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = -1
"""


@pytest.mark.parametrize(
    ("parallel", "params", "state", "reason"),
    [
        ("", "", "serial", "declares no split"),
        (', parallel=serial("each row waits for the last")', "@ELEMENTS\n", "serial", "each row waits"),
        (', parallel=split("N", when="N >= 4096")', "@ELEMENTS\n", "parallel_fixed_policy", "names no parameter"),
        (
            ', parallel=split("N", when="N >= parallel.minimum_elements", grain="parallel.grain")',
            "@ELEMENTS\n@GRAIN\n@OTHER\n", "tunable", "by hand: parallel.grain",
        ),
        (
            ', parallel=split("N", when="N >= parallel.minimum_elements", grain=64)',
            "@ELEMENTS\n@GRAIN\n", "calibratable", "parallel.minimum_elements",
        ),
    ],
)  # fmt: skip
def test_each_state_comes_from_what_is_declared(library, parallel, params, state, reason):
    module = library(KERNEL.format(parallel=parallel, params=params), header=HEADER)
    found = coverage(module.toy.spec, module.toy.signature.element_types[0])
    assert found.state == state
    assert reason in found.reason
    assert found.key == "toy[f32]"


def test_parameters_are_told_apart_by_who_finds_them(library):
    params = "@ELEMENTS\n@GRAIN\n@OTHER\n"
    when = ', parallel=split("N", when="N >= parallel.minimum_elements")'
    module = library(KERNEL.format(parallel=when, params=params), header=HEADER)
    (found,) = inventory([module.scope])
    assert found.governing == ("parallel.minimum_elements",)
    assert found.calibrated == ("parallel.minimum_elements",)
    assert found.manual == ("parallel.grain", "other")
    assert found.state == "calibratable"


def test_every_shipped_kernel_has_exactly_one_state(capsys):
    """Once per kernel and element type, and serial ones say why."""
    assert cli.run(["inventory", "kernels", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    scope = find_scope("kernels")
    keys = [k.spec.key(t) for k in scope.kernels.values() for t in k.signature.element_types]
    assert [row["key"] for row in found["kernels"]] == keys
    assert sum(found["states"].values()) == len(keys)
    assert set(found["states"]) == set(get_args(State))
    assert all(row["reason"] for row in found["kernels"])


def test_the_table_names_kernel_state_and_reason(capsys):
    assert cli.run(["inventory", "kernels"]) == 0
    assert "kernels:exp[f32]" in capsys.readouterr().out
