"""The comparison with `omp parallel` runs from end to end. Nothing here depends on how fast anything is."""

from __future__ import annotations

import json
import shutil

import pytest

from tunegen.executor import native
from tunegen.harness import dispatch_cost

needs_threads = pytest.mark.skipif(native.library() is None, reason="no threads on this system")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("REGIONS", 40), ("REGIONS_APART", 3), ("SETTLE_NS", 1), ("SERIAL_NS", 1000)):
        monkeypatch.setattr(dispatch_cost, name, value)


@needs_threads
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_four_figures_each_with_its_goal_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch_cost.main(["--rounds", "2", "--threads", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in found] == [
        f"dispatch {body} {when}"
        for when in ("back to back", "after 100 us of serial work")
        for body in ("empty", "meet")
    ]
    for row in found:
        assert row["interval"][0] <= row["value"] <= row["interval"][1]
        assert row["goal"] == "<= 1"
        assert "reached" in row["verdict"]


@needs_threads
def test_what_cannot_be_compared_says_why(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert dispatch_cost.main(["--threads", "1"]) == 0
    assert "nothing to dispatch" in capsys.readouterr().out
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert dispatch_cost.main(["--threads", "2"]) == 0
    assert "gcc is missing" in capsys.readouterr().out
    monkeypatch.setattr(shutil, "which", lambda _: "false")
    assert dispatch_cost.main(["--threads", "2"]) == 0
    assert "builds no" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--threads", "0"]])
def test_counts_below_one_are_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        dispatch_cost.main(arguments)
