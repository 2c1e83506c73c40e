"""The guide to threads and parameters is true: its blocks run in order, and print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "parallel.md").read_text(encoding="utf-8")
MARK = "---- block {} ----"


def blocks() -> list[tuple[str, str]]:
    """Each Python block with the output that is shown right after it."""
    return re.findall(r"^```python\n(.*?)^```$\n*(?:^```text\n(.*?)^```$)?", PAGE, flags=re.DOTALL | re.MULTILINE)


def test_every_block_prints_what_the_page_shows(tmp_path: Path) -> None:
    program = "".join(f"print({MARK.format(i)!r})\n{code}\n" for i, (code, _) in enumerate(blocks()))
    file = tmp_path / "guide.py"
    file.write_text(program, encoding="utf-8")
    environment = {**os.environ, "TUNE_HOME": str(tmp_path / "home"), "TUNE_THREADS": "2"}
    run = subprocess.run(
        [sys.executable, "-P", str(file)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    printed = re.split(r"^---- block \d+ ----\n", run.stdout, flags=re.MULTILINE)[1:]
    assert printed == [shown for _, shown in blocks()]
    assert "export TUNE_HOME=$(mktemp -d) TUNE_THREADS=2" in PAGE, "what the program is run with"
