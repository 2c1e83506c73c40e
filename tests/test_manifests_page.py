"""The page about manifests is true: its programs run and print what it shows, and its words are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from tunegen.making.cache import INSTEAD

PAGE = (Path(__file__).parents[1] / "docs" / "manifests.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_every_command_of_the_page_prints_what_is_shown(tmp_path):
    scripts = tmp_path / "bin"
    scripts.mkdir()
    (scripts / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (scripts / "python").chmod(0o755)
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    blocks = [(m[1], m[2]) for m in BLOCK.finditer(PAGE)]
    shown = [(text, after) for (kind, text), (_, after) in pairwise(blocks) if kind == "sh" and "python" in text]
    (program,) = [text for kind, text in blocks if kind == "python"]
    (tmp_path / "shop.py").write_text(program)
    assert len(shown) == 2
    for commands, text in shown:
        done = subprocess.run(["bash", "-ec", commands], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, text, "")


def test_what_the_page_says_of_a_missing_cache_is_what_is_said():
    assert f"cannot be used: Read-only file system; {INSTEAD}\n" in PAGE
