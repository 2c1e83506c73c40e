"""The tutorial is true: its page holds the library's files as they are, and its commands do what it says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TUTORIAL = ROOT / "docs" / "tutorial"
PAGE = (TUTORIAL / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", ["rownorm/__init__.py", "rownorm/templates/squares.ll.j2", "tune_by_hand.py"])
def test_the_page_shows_each_file_as_it_is(name: str) -> None:
    shown = re.search(rf"^`{re.escape(name)}`:\n\n```\w+\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    assert shown is not None
    assert shown[1] == (TUTORIAL / name).read_text(encoding="utf-8")


def test_every_command_of_the_page_runs(tmp_path: Path) -> None:
    """In a copy of the folder, in order, from an empty home: the outputs that the page shows are the real ones."""
    folder = tmp_path / "tutorial"
    shutil.copytree(TUTORIAL, folder, ignore=shutil.ignore_patterns("__pycache__"))
    scripts = tmp_path / "bin"
    scripts.mkdir()
    (scripts / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (scripts / "tunegen").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m tunegen "$@"\n')
    for script in scripts.iterdir():
        script.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "TUNE_HOME": str(tmp_path / "home"),
        "TUNE_CACHE": str(tmp_path / "cache"),
    }
    expected = iter(blocks("text")[1:])
    for command in blocks("sh"):
        run = subprocess.run(["bash", "-ec", command], cwd=folder, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        if "print" in command:
            assert run.stdout == next(expected)
    manifests = list((tmp_path / "home" / "rownorm").glob("*.tune.json"))
    assert len(manifests) == 1
    assert '"kind": "manual"' in manifests[0].read_text(), "the tuner by hand wrote last"
