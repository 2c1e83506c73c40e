"""Arguments to parameters, with errors that name the kernel, the parameter, what came and what is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tunegen.signature import Operand, Scalar, Signature


def refusal(kind: type[Exception], kernel: str, what: str, came: str, allowed: str) -> Exception:
    """The one form of an error about a call."""
    return kind(f"{kernel}: {what}: got {came}; allowed: {allowed}")


def bind(kernel: str, signature: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The argument of each parameter, with scalars converted and defaults filled in. Outputs may be missing.

    Raises `TypeError` for a missing, surplus, unknown or repeated argument and for a scalar of the wrong type, and
    `ValueError` for a scalar out of range.
    """
    names = [p.name for p in signature.parameters]
    if len(args) > len(names):
        raise refusal(
            TypeError, kernel, "call", f"{len(args)} positional arguments", f"at most {len(names)}: {', '.join(names)}"
        )
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise refusal(TypeError, kernel, "call", f"an unknown argument {name!r}", ", ".join(names))
        if name in given:
            raise refusal(TypeError, kernel, f"argument {name}", "two values", "one, by position or by name")
        given[name] = value
    for parameter in signature.parameters:
        name = parameter.name
        if name not in given:
            _fill_in(kernel, parameter, given)
        elif isinstance(parameter, Scalar):
            given[name] = _number(kernel, parameter, given[name])
    return given


def _fill_in(kernel: str, parameter: Operand | Scalar, given: dict[str, Any]) -> None:
    if isinstance(parameter, Operand):
        if parameter.optional:
            given[parameter.name] = None
        elif parameter.role != "out":
            raise refusal(TypeError, kernel, f"operand {parameter.name}", "no argument", f"an array ({parameter})")
    elif parameter.default is None:
        raise refusal(TypeError, kernel, f"argument {parameter.name}", "no argument", f"one of type {parameter.kind}")
    else:
        given[parameter.name] = parameter.default


def _number(kernel: str, scalar: Scalar, value: object) -> float | int:
    """An exact `float` or `int`. Numpy's scalars convert, and whole numbers to float; bool is no number here."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    what, came = f"argument {scalar.name}", f"{_short(value)} of type {type(value).__name__}"
    if scalar.kind == "int":
        if not whole:
            raise refusal(TypeError, kernel, what, came, "an int")
        number = int(value)  # type: ignore[call-overload]
        if not -(1 << 63) <= number < 1 << 63:
            raise refusal(ValueError, kernel, what, came, "an int of 64 bits")
        return int(number)
    if not (whole or isinstance(value, float | np.floating)):
        raise refusal(TypeError, kernel, what, came, "a float or an int")
    try:
        return float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise refusal(ValueError, kernel, what, came, "a number in the range of float") from None


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an int with too many digits to print
        return "a number too large to print"
    return text if len(text) <= 60 else f"{text[:57]}..."
