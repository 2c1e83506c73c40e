"""The reports kept of a box fit their schemas and the kernels of today, and a fresh process uses what they found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tunegen.box import this_box
from tunegen.choosing import store
from tunegen.harness import reports
from tunegen.harness.baseline import Baseline
from tunegen.harness.calibrate import CalibrationReport, calibratable
from tunegen.public.inventory import inventory
from tunegen.public.scope import find_scope
from tunegen.public.sources import target_manifest

FOLDER = Path(__file__).parents[1] / "docs" / "reports"
BASELINES = sorted(FOLDER.glob("*.baseline.json"))
CALIBRATIONS = sorted(FOLDER.glob("*.calibration.json"))


def keys() -> dict[str, Any]:
    return {target.key: target for target in calibratable([find_scope("kernels")])}


def test_both_kinds_of_report_are_kept() -> None:
    assert BASELINES
    assert CALIBRATIONS


@pytest.mark.parametrize("path", BASELINES, ids=lambda path: path.name)
def test_a_baseline_covers_every_kernel_serial_and_on_all_threads(path: Path) -> None:
    found = reports.read(path, Baseline)
    assert found.about.kind == "baseline"
    assert {f.key for f in found.figures} == {c.key for c in inventory([find_scope("kernels")])}
    assert {f.threads for f in found.figures} == {1, found.about.box.threads}
    assert all(f.wall_ns > 0 and f.cpu_ns > 0 and f.variant for f in found.figures)
    assert all(counter.value or counter.status != "ok" for f in found.figures for counter in f.counters.values())
    assert len(found.ranking) == len(found.figures)
    assert {peak.threads for peak in found.roofline.peaks} == {1, found.about.box.threads}
    assert "/" not in json.dumps(found.policy), "no path of a machine"


@pytest.mark.parametrize("path", CALIBRATIONS, ids=lambda path: path.name)
def test_a_calibration_has_a_valid_decision_for_every_parameter(path: Path) -> None:
    found = reports.read(path, CalibrationReport)
    assert found.about.kind == "calibration"
    assert {result.name for result in found.results} == set(keys())
    for result in found.results:
        spec = keys()[result.name].spec
        assert result.key == spec.tuning_key(keys()[result.name].element_type)
        assert spec.schema.check(result.values) == result.values
        assert {name for d in result.decisions for name in d.names} == set(spec.calibrations)
        assert result.finished, result.name
        assert "/" not in result.path
        for decision in result.decisions:
            assert decision.reason
            assert decision.evidence or decision.outcome == "skipped"


PROGRAM = """
import json
import tunegen.kernels
from tunegen import tuning
print(json.dumps({key.key.kernel + "[" + key.key.element_type + "]":
                  [key.source, {row.parameter.name: row.active for row in key.parameters}]
                  for key in tuning.parameters()}))
"""


@pytest.mark.parametrize("path", CALIBRATIONS, ids=lambda path: path.name)
def test_a_fresh_process_resolves_every_calibrated_key(path: Path, child: Any) -> None:
    """From a manifest with the values of the report, as if this were its box."""
    found = reports.read(path, CalibrationReport)
    for result in found.results:
        values = result.values
        store.set_values(target_manifest("kernels", this_box()), this_box(), {}, result.key, lambda _, v=values: v)
    run = child(PROGRAM)
    assert run.returncode == 0, run.stderr
    used = json.loads(run.stdout)
    for result in found.results:
        assert used[result.name] == ["manifest", result.values]
