"""A small stampede on each run of the tests; `python -m tunegen.harness.stampede` is the large one."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tunegen.harness import stampede
from tunegen.harness.stampede import Slot


def test_processes_that_are_killed_leave_a_valid_manifest_with_all_that_was_acknowledged(capsys) -> None:
    code = stampede.main(["--processes", "3", "--writes", "40", "--seed", "5"])
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == []
    assert found["acknowledged"] >= 40
    assert found["kills"] >= 1
    assert code == 0


@pytest.fixture
def slot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Slot:
    monkeypatch.setattr(Slot, "start", lambda self: None)
    return Slot(1, tmp_path, random.Random(0))


@pytest.mark.parametrize(
    ("there", "lost"),
    [(4, 0), (5, 0), (3, 1), (6, 1), (None, 1)],
    ids=["acknowledged", "written before a kill", "older", "never tried", "nothing"],
)
def test_what_counts_as_lost(slot: Slot, there: int | None, lost: int) -> None:
    for line in (
        b'{"what": "try", "kind": "value", "n": 3}', b'{"what": "done", "kind": "value", "n": 3}',
        b'{"what": "try", "kind": "value", "n": 4}', b'{"what": "done", "kind": "value", "n": 4}',
        b'{"what": "try", "kind": "value", "n": 5}', b'{"what": "done", "kind": "val',
    ):  # fmt: skip
        slot.hear(line)
    assert len(list(slot.lost({"value": there}))) == lost


def test_a_winner_is_known_by_its_row(slot: Slot) -> None:
    slot.hear(b'{"what": "try", "kind": "winner", "n": 9}')
    slot.hear(b'{"what": "done", "kind": "winner", "n": 9}')
    assert list(slot.lost({"winner": stampede.suffix(9)})) == []
    assert list(slot.lost({"winner": stampede.suffix(8)}))


def test_a_reader_that_saw_half_a_file_is_a_problem(slot: Slot) -> None:
    slot.hear(b'{"what": "bad", "text": "malformed"}')
    assert slot.problems == ["process 1 read malformed"]
