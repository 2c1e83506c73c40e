"""Reports that are kept as files: what each is about, and reading one back against its schema."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
import numpy as np

import tunegen
from tunegen.box import Box, information, this_box
from tunegen.errors import StoreError
from tunegen.harness.measure import today
from tunegen.making.compile import llvm_version

FORMAT = 1
"""Version of the reports. 1: baselines and calibrations."""

Kind = Literal["baseline", "calibration"]


class About(msgspec.Struct, frozen=True):
    """What every report begins with: where, when and with what it was made.

    `information` are caches, cores and ancestry of the box, `versions` those of what decides what code runs.
    """

    tunegen_report: int
    kind: Kind
    date: str
    box: Box
    information: dict[str, Any]
    versions: dict[str, str]


def about(kind: Kind, box: Box | None = None) -> About:
    """The head of a report on this box, or this box with another number of threads."""
    versions = {
        "tunegen": tunegen.__version__,
        "llvm": llvm_version(),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
    return About(FORMAT, kind, today(), box or this_box(), information(), versions)


Report = TypeVar("Report", bound=msgspec.Struct)


def read(path: Path, type_: type[Report]) -> Report:
    """The report in a file; `type_` has a field `about`. Raises `StoreError` for a file that is none of this kind."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=type_)
    except (OSError, msgspec.MsgspecError) as error:
        raise StoreError(f"{path} is no {type_.__name__}: {error}") from None
    head: About = found.about  # type: ignore[attr-defined]
    if head.tunegen_report != FORMAT:
        raise StoreError(f"{path} has format {head.tunegen_report}; this version reads {FORMAT}")
    return found
