"""Every environment variable that tunegen reads, typed, in one table. Nothing else reads the environment."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from tunegen import log
from tunegen.errors import KnobError

V = TypeVar("V")


class Knob(msgspec.Struct, Generic[V], frozen=True):
    """One variable: `read` turns its text into a value or raises `ValueError` with what is allowed."""

    name: str
    read: Callable[[str], V]
    default: V
    doc: str

    def get(self) -> V:
        """The value in force. Raises `KnobError` for a text that is not allowed; an empty text counts as unset."""
        text = os.environ.get(self.name, "")
        if not text:
            return self.default
        try:
            return self.read(text)
        except ValueError as error:
            raise KnobError(f"{self.name}={text!r}: {error}") from None

    def is_set(self) -> bool:
        """Whether the environment says something; an empty text does not."""
        return bool(os.environ.get(self.name))


def _one_of(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"allowed are {', '.join(allowed)}")
        return text

    return read


def _positive_int(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise ValueError("allowed is a whole number from 1 up")
    return value


def _share(text: str) -> float:
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        value = float(number) / (100 if percent else 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ValueError("allowed is a number above 0 up to 1, or a percentage such as 25%")
    return value


UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def _bytes(text: str) -> int:
    digits = text.strip().lower().removesuffix("ib").removesuffix("b")
    unit = digits[-1:] if digits[-1:] in UNITS else ""
    number = digits.removesuffix(unit).strip()
    if not (number.isascii() and number.isdigit() and len(number) < 20):
        raise ValueError("allowed is a number of bytes such as 100000, 512M or 2GiB")
    return int(number) * UNITS[unit]


def _path(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except (RuntimeError, OSError) as error:
        raise ValueError(f"no such folder: {error}") from None


MODES = ("normal", "tune", "test")
POLICIES = ("fallback", "warn", "error", "auto", "relaunch", "restart", "live", "reference")
LEVELS = ("debug", "info", "warning", "error")

MODE: Knob[str] = Knob("TUNE_MODE", _one_of(*MODES), "normal", "stamp one winner, or offer the whole grid")
POLICY: Knob[str | None] = Knob("TUNE_POLICY", _one_of(*POLICIES), None, "overrides what a program does when untuned")
MANIFEST: Knob[Path | None] = Knob("TUNE_MANIFEST", _path, None, "one manifest file that goes before all others")
HOME: Knob[Path | None] = Knob("TUNE_HOME", _path, None, "folder of the user's manifests")
CACHE: Knob[Path | None] = Knob("TUNE_CACHE", _path, None, "folder of the object cache")
CACHE_LIMIT: Knob[int] = Knob("TUNE_CACHE_LIMIT", _bytes, 512 << 20, "how many bytes the object cache may hold")
THREADS: Knob[int | None] = Knob("TUNE_THREADS", _positive_int, None, "effective thread count")
FEATURES: Knob[str] = Knob("TUNE_FEATURES", str, "", "-name masks a CPU feature and what needs it, +name forces it")
LOG: Knob[str | None] = Knob("TUNE_LOG", _one_of(*LEVELS), None, "level of tunegen's log on stderr")
SHARE: Knob[float | None] = Knob("TUNE_SHARE", _share, None, "share of one core that a tuner may use: 0.25 or 25%")
PARENT: Knob[str] = Knob("TUNE_PARENT", str, "", "set by a process that tunes, for all that it starts: its number")

TABLE: tuple[Knob[object], ...] = (  # type: ignore[assignment]
    MODE, POLICY, MANIFEST, HOME, CACHE, CACHE_LIMIT, THREADS, FEATURES, LOG, SHARE, PARENT,
)  # fmt: skip


class Start(msgspec.Struct, frozen=True):
    """The process that imported tunegen, and the folder in which it was then; "" when there was none."""

    process: int
    folder: str


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


START = Start(os.getpid(), _folder())

_reported: set[str] = set()


def report_unknown(environment: Mapping[str, str] = os.environ) -> None:
    """Logs each `TUNE_*` variable that no knob reads, once a process."""
    known = {knob.name for knob in TABLE}
    for name in sorted(environment):
        if name.startswith("TUNE_") and name not in known and name not in _reported:
            _reported.add(name)
            log.warning("unknown environment variable %s; tunegen reads %s", name, ", ".join(sorted(known)))


def change(values: Mapping[str, str | None]) -> None:
    """Sets variables of this process, or takes them away (None), for programs that try one setting after another."""
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def child_environment(**changes: str) -> dict[str, str]:
    """The environment for a child process: this one's, with `changes` on top."""
    return {**os.environ, **changes}


def under_pytest() -> bool:
    """Whether this is a test that pytest runs, or a program that one started."""
    return bool(os.environ.get("PYTEST_CURRENT_TEST"))


@functools.cache
def begin() -> None:
    """What a process does before its first choice: logs if `TUNE_LOG` asks for it, and reports unknown variables."""
    if LOG.get() is not None:
        start_logging()
    report_unknown()


@functools.cache
def start_logging() -> None:
    """Sends tunegen's log to stderr, once, at the level of `TUNE_LOG`: in programs of ours, or when it is set."""
    level = LOG.get() or "warning"
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("tunegen: %(message)s"))
    logger = logging.getLogger(log.NAME)
    logger.addHandler(handler)
    logger.setLevel(level.upper())
