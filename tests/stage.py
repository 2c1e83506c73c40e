"""A stage for programs that tune: a library with a fast tuner of its own, and programs that use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

from toys import HEADER, TOY, write_library

FREE = {"PYTEST_CURRENT_TEST": ""}
"""What a test starts knows that, and would not tune."""
TUNER = """
import os, sys
with open({log!r}, "a") as log:
    print(*sys.argv[1:], file=log)
print("this is the tuner")
import tunegen, {name}
{body}
"""
WINS = "assert tunegen.tune_manifest_set('{name}:toy', 'row3')"
PROGRAM = """
import os, sys
import numpy as np
import tunegen
from {name} import toy
@tunegen.tune_policy({options})
def main():
    out = np.zeros(1, np.float32)
    print("row", int(toy(np.ones(1, np.float32), out)[0]), sys.argv[1:])
if __name__ == "__main__":
    main()
"""


class Stage:
    """A library with a tuner that writes down each of its starts, and programs that use it."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.libraries, self.cache = folder, folder / "libraries", cache
        self.log = folder / "tuner.log"

    def make_library(self, body: str = WINS, kernels: str = TOY, **templates: str) -> str:
        header = HEADER.replace('"templates")', '"templates", tuner="tuner.py")')
        name = write_library(self.libraries, kernels, {f"{t}.ll.j2": text for t, text in templates.items()}, header)
        self.tuner(name, body)
        return name

    def tuner(self, name: str, body: str) -> None:
        text = TUNER.format(log=str(self.log), name=name, body=dedent(body).format(name=name))
        (self.libraries / name / "tuner.py").write_text(text)

    def program(self, name: str, options: str) -> Path:
        path = self.folder / "app.py"
        path.write_text(PROGRAM.format(name=name, options=options))
        return path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, **FREE, "PYTHONPATH": str(self.libraries), "TUNE_CACHE": str(self.cache)}

    def run(self, *command: object, input: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:  # noqa: A002
        stdin = {"input": input} if input is not None else {"stdin": subprocess.DEVNULL}
        return subprocess.run(
            [sys.executable, *map(str, command)], cwd=self.folder, capture_output=True, text=True, timeout=120,
            env={**self.environment, **environment}, **stdin,
        )  # fmt: skip

    @property
    def pipes(self) -> dict[str, Any]:
        return {"cwd": self.folder, "env": self.environment, "stdin": subprocess.DEVNULL, "text": True,
                "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}  # fmt: skip

    @property
    def starts(self) -> list[str]:
        """The arguments of each start of the tuner."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def remembered(self) -> dict[str, dict[str, object]]:
        files = list((self.folder / "home").glob("*/*.attempts.json"))
        return json.loads(files[0].read_text()) if files else {}
