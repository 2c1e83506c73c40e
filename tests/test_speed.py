"""The speed report runs from end to end and judges by its rule. Nothing here depends on how fast anything is."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tunegen.harness import speed, startup

pytestmark = pytest.mark.usefixtures("shared_objects")

NAMES = {
    "gemm f32 512^3", "gemm f32 1024^3", "exp f32 16384", "exp f32 error", "call exp f32 16", "call add f32 16",
    "log f32 16384", "log f64 16384", "sigmoid f32 16384", "sigmoid f64 16384", "tanh f32 16384", "tanh f64 16384",
    "import tunegen", "first call",
}  # fmt: skip


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", speed.MODULE, "--rounds", "3", *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def test_every_line_is_printed_with_its_goal_and_a_verdict() -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    printed = {line.partition(":")[0]: line for line in done.stdout.splitlines()}
    assert set(printed) - {"gemm"} == NAMES
    assert all(f"goal {'<' if '<=' in printed[name] else '>'}= " in printed[name] for name in NAMES)
    assert all("reached" in printed[name] or "not this machine's kind" in printed[name] for name in NAMES)
    untuned = ("(profile)", "(fallback)", "(reference)")
    assert all(any(source in printed[name] for source in untuned) for name in NAMES if "f32 16" in name)


def test_json_has_the_figures_that_were_named() -> None:
    done = run("call", "imports", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [row["name"] for row in found] == ["call exp f32 16", "call add f32 16", "import tunegen", "first call"]
    assert all(row["interval"][0] <= row["value"] <= row["interval"][1] for row in found)


def test_a_blas_that_was_told_its_core_type_is_warned_of() -> None:
    assert "OPENBLAS_CORETYPE" in run("call", OPENBLAS_CORETYPE="Haswell").stderr
    assert "OPENBLAS_CORETYPE" not in run("call", OPENBLAS_CORETYPE="").stderr


def test_an_unknown_figure_is_code_2() -> None:
    done = run("gem")
    assert done.returncode == 2
    assert "gemm" in done.stderr


@pytest.mark.parametrize(
    ("goal", "value", "interval", "verdict"),
    [
        (speed.Goal(0.95), 0.96, (0.90, 0.97), "reached"),
        (speed.Goal(0.95), 0.93, (0.90, 0.95), "reached within the noise"),
        (speed.Goal(0.95), 0.93, (0.90, 0.94), "not reached"),
        (speed.Goal(0.6, at_least=False), 0.6, (0.5, 0.7), "reached"),
        (speed.Goal(0.6, at_least=False), 0.65, (0.6, 0.7), "reached within the noise"),
        (speed.Goal(0.6, at_least=False), 0.65, (0.61, 0.7), "not reached"),
    ],
)
def test_a_goal_is_reached_when_the_interval_reaches_it(
    goal: speed.Goal, value: float, interval: tuple[float, float], verdict: str
) -> None:
    assert goal.verdict(value, interval) == verdict


def test_a_goal_for_another_kind_of_machine_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_FEATURES", "-avx512f")
    assert speed.Goal(0.95, kind="avx512f").verdict(0.1, (0.1, 0.2)) == "not this machine's kind (no avx512f)"


def test_start_up_costs_are_paired_with_numpy_in_each_round() -> None:
    """On made-up times: each process tells what numpy took in it, and what came on top."""
    added = {"library": 10, "first call": 40}
    ran: list[str] = []

    def run(addition: str) -> tuple[int, int]:
        ran.append(addition)
        return 20 * len(ran), added[addition] * len(ran)

    found = startup.start_up(3, run)
    assert found["library"].ratio == 0.5
    assert found["first call"].ratio == 2.0
    assert ran == list(startup.ADDITIONS) * 4, "one process each to fill the caches, then three"


def test_an_error_is_measured_in_units_of_the_rounded_answer() -> None:
    exact = np.array([1.0, 3.5, 1e-40])
    rounded = exact.astype(np.float32)
    assert speed.max_ulp(rounded, exact) <= 0.5
    assert speed.max_ulp(np.nextafter(rounded, np.float32(9)), exact) == pytest.approx(1, abs=0.5)
    assert np.isinf(speed.max_ulp(np.array([np.inf], np.float32), np.array([1.0])))
