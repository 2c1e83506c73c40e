"""The programs that measure parallel kernels: their verdicts that no clock decides, and what they print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tunegen
from tunegen.harness import acceptance, scaling
from tunegen.harness.acceptance import allowed, keys, ragged
from tunegen.harness.speed import Line, Missing
from tunegen.kernels import add, exp, gemm, softmax


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_THREADS", "2")


FEW = [(exp, exp.signature.element_types[0]), (softmax, softmax.signature.element_types[1]),
       (gemm, gemm.signature.element_types[0])]  # fmt: skip


def test_every_split_kernel_is_in_the_matrix() -> None:
    assert {kernel.name for kernel, _ in keys()} >= {"exp", "add", "gelu", "gemm", "linear", "softmax", "layernorm"}
    assert ragged(exp) == {"N": 64 * 1031}
    assert ragged(gemm) == {"M": 1031, "K": 67, "N": 67}


def test_split_calls_are_right_and_have_the_same_bits_on_any_number_of_threads(monkeypatch) -> None:
    monkeypatch.setattr(acceptance, "keys", lambda: FEW)
    for part in (acceptance.correctness, acceptance.determinism, acceptance.nesting):
        (found,) = part(7)
        assert isinstance(found, Line)
        assert (found.value, found.verdict) == (0.0, "reached"), found


def test_a_wrong_kernel_and_one_whose_bits_depend_on_threads_are_counted(monkeypatch) -> None:
    monkeypatch.setattr(acceptance, "keys", lambda: FEW[:1])
    true = acceptance.outputs

    def broken(key: Any, sizes: Any, threads: int, grain: int = 0) -> Any:
        before, got = true(key, sizes, threads, grain)
        return before, {name: array + np.float32(threads > 1) for name, array in got.items()}

    monkeypatch.setattr(acceptance, "outputs", broken)
    for part in (acceptance.correctness, acceptance.determinism):
        (found,) = part(7)
        assert isinstance(found, Line)
        assert (found.value, found.verdict) == (1.0, "not reached")
        assert "exp[f32]" in found.detail


def test_the_threads_that_are_allowed_for_a_while_are_as_before_afterwards() -> None:
    with allowed(4):
        assert tunegen.session(threads=4).threads == 4
    assert tunegen.session().threads == 2


def test_settings_that_take_the_same_path_are_said_and_not_compared() -> None:
    found = list(scaling.curves(exp, [10], 7))
    assert all(isinstance(item, Missing) and "same code path" in item.reason for item in found)
    assert len(found) == 2


def test_a_line_is_printed_for_each_size_and_side(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    def lines(rounds: int) -> Iterator[Line]:
        return iter(())

    monkeypatch.setattr(scaling, "two_threads", lines)
    assert scaling.main(["--kernels", "add", "--quick", "--rounds", "7", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in found] == [
        f"add[f32] 2^{n} {side}" for n in (10, 14, 18) for side in ("tuned/default", "parallel/serial")
    ]
    assert any("interval" in item for item in found), "a large add is split"


def test_sizes_count_the_elements_of_an_operand() -> None:
    assert scaling.sizes_of(add, 20) == {"N": 1 << 20}
    assert scaling.sizes_of(gemm, 20) == {"M": 1024, "N": 1024, "K": 1024}


@pytest.mark.parametrize("program", [acceptance, scaling])
def test_too_few_rounds_and_unknown_names_are_usage_errors(program: Any) -> None:
    with pytest.raises(SystemExit):
        program.main(["--rounds", "1"])
    with pytest.raises(SystemExit):
        program.main(["nonesuch"])
