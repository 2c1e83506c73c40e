"""The log of this package, logger "tunegen": costs no import of `logging` until there is something to say."""

from __future__ import annotations

from typing import Any

from tunegen import forks

NAME = "tunegen"


def info(text: str, *values: Any) -> None:
    """Logs at INFO."""
    _log("info", text, values)


def warning(text: str, *values: Any) -> None:
    """Logs at WARNING."""
    _log("warning", text, values)


def level() -> str:
    """The level that somebody gave this log, in small letters; "" when nobody did."""
    import logging

    number = logging.getLogger(NAME).level
    return logging.getLevelName(number).lower() if number else ""


def _log(level: str, text: str, values: tuple[Any, ...]) -> None:
    import logging

    forks.go_before("logging")
    getattr(logging.getLogger(NAME), level)(text, *values, stacklevel=3)
