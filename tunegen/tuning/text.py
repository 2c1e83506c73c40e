"""Values as they are typed: `NAME=VALUE`, where the schema says what a text means."""

from __future__ import annotations

from collections.abc import Iterable

from tunegen.errors import ParameterError
from tunegen.parameters import Parameter, Schema, Value

_BOOLS = {"true": True, "false": False}


def read_values(schema: Schema, texts: Iterable[str]) -> dict[str, Value]:
    """The values that texts such as `parallel.minimum_elements=65536` stand for.

    `true` and `false` are bools, whole numbers are ints, and strings are taken as they are. Raises `ParameterError`
    with all that cannot be read.
    """
    known = {p.name: p for p in schema.parameters}
    values: dict[str, Value] = {}
    problems = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            problems.append(f"{text!r}: write NAME=VALUE")
        elif name not in known:
            problems.append(f"unknown parameter {name!r}; there are {', '.join(known) or 'none'}")
        elif name in values:
            problems.append(f"{name} is given twice")
        else:
            try:
                values[name] = _read(known[name], value)
            except (ValueError, KeyError):
                problems.append(f"{name}={value}: allowed is {known[name].allowed}")
    if problems:
        raise ParameterError(tuple(problems))
    return values


def _read(parameter: Parameter, text: str) -> Value:
    if parameter.kind == "bool":
        return _BOOLS[text.lower()]
    if parameter.kind == "int":
        return int(text)
    return float(text) if parameter.kind == "float" else text


def written(values: dict[str, Value]) -> str:
    """Values as they are typed."""
    return " ".join(f"{n}={str(v).lower() if isinstance(v, bool) else v}" for n, v in values.items())
