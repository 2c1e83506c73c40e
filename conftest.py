"""Says once, and clearly, that a checkout without an editable install hides the installed package."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    # test processes side by side, each with a pool of threads, would fight over the cores
    os.environ.setdefault(variable, "1")

PARTS = ("tunegen.harness", "tunegen.kernels", "tunegen.templates")


def pytest_configure() -> None:
    """The four code folders are one package only where it is installed: `./tunegen` alone lacks three of them."""
    here = find_spec("tunegen")
    missing = [part for part in PARTS if here is None or find_spec(part) is None]
    if missing:
        place = Path(here.origin).parent if here is not None and here.origin else "nowhere"
        raise pytest.UsageError(
            f"tunegen comes from {place}, which has no {', '.join(missing)}: the checkout hides a plain install, or "
            "there is none. Run `pip install -e .`, or run the tests from outside with `python -P -m pytest PATH`."
        )
