"""The page about frozen builds is true: its commands run, in order, and print what it shows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from frozen import ARM, HOST

PAGE = (Path(__file__).parents[1] / "docs" / "frozen.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(sh|text|c)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.skipif(HOST is None, reason="frozen builds are for Linux on x86-64 and AArch64")
def test_every_command_of_the_page_runs(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    scripts = tmp_path / "bin"
    scripts.mkdir()
    (scripts / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (scripts / "tunegen").write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m tunegen "$@"\n')
    for script in scripts.iterdir():
        script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    blocks = [(m[1], m[2]) for m in BLOCK.finditer(PAGE)]
    assert [kind for kind, _ in blocks].count("sh") == 6
    for (kind, text), (next_kind, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "c":
            (tmp_path / "product.c").write_text(text)
        if kind != "sh":
            continue
        if ARM.name in text and HOST is not ARM and shutil.which(f"{ARM.name}-gcc") is None:
            continue
        run = subprocess.run(["bash", "-ec", text], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        if next_kind == "text":
            assert run.stdout.endswith(shown), run.stdout
