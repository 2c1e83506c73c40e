"""Runtime parameters of a kernel: their types, ranges and defaults, and what a set of values has to fulfil."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from tunegen.errors import ExpressionError, ParameterError
from tunegen.expressions import MAX_SIZE_BITS, Expression

TUNING_ABI = 1
"""Version of what a parameter means to the code that reads it."""

Kind = Literal["int", "float", "bool", "enum", "string"]
Value = bool | int | float | str

_TYPES: dict[Kind, type] = {"int": int, "float": float, "bool": bool, "enum": str, "string": str}
_KINDS: dict[type, Kind] = {bool: "bool", int: "int", float: "float", str: "string"}


class Key(msgspec.Struct, frozen=True):
    """What a set of values belongs to. `implementation` is the variant family: the generator's name."""

    library: str
    kernel: str
    implementation: str
    element_type: str
    device: str = "cpu"
    abi: int = TUNING_ABI

    def __str__(self) -> str:
        return f"{self.library}:{self.kernel}[{self.element_type}] ({self.implementation}, {self.device})"


class Parameter(msgspec.Struct, frozen=True):
    """One named value. `default` holds on every box; `unit` is what a number counts, `doc` one sentence.

    Numbers lie in `minimum` to `maximum`, both included; an enum's value is one of `choices`.
    """

    name: str
    kind: Kind
    default: Value
    minimum: float | int | None = None
    maximum: float | int | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    doc: str = ""

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        if self.kind == "enum":
            return f"one of {', '.join(self.choices)}"
        if self.kind in ("bool", "string"):
            return "True or False" if self.kind == "bool" else "a string"
        least = "" if self.minimum is None else f" from {self.minimum}"
        most = "" if self.maximum is None else f" to {self.maximum}"
        unit = f" ({self.unit})" if self.unit else ""
        return f"{'a whole number' if self.kind == 'int' else 'a finite number'}{least}{most}{unit}"

    def problem(self, value: object) -> str:
        """Why a value is refused, as a sentence; "" when it is not. True is no int, and an int is no float."""
        fits = type(value) is _TYPES[self.kind]
        if isinstance(value, str):
            # half a surrogate pair, which no file can hold
            fits = fits and not any("\ud800" <= c <= "\udfff" for c in value)
        if fits and self.kind == "enum":
            fits = value in self.choices
        if fits and isinstance(value, int | float) and self.kind in ("int", "float"):
            low, high = self.minimum, self.maximum
            fits = math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)
        return "" if fits else f"{self.name}={_short(value)}: allowed is {self.allowed}"


class Rule(msgspec.Struct, frozen=True):
    """What the values of several parameters have to fulfil together: an expression over their names."""

    condition: Expression

    def problem(self, values: Mapping[str, Value]) -> str:
        """The rule, when these values break it; else ""."""
        return "" if self.condition(values) else f"the rule {self.condition.text!r} does not hold"


class Schema(msgspec.Struct, frozen=True):
    """The parameters of a kernel in order of declaration, and the rules across them."""

    parameters: tuple[Parameter, ...] = ()
    rules: tuple[Rule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.parameters)

    @property
    def names(self) -> tuple[str, ...]:
        """All names."""
        return tuple(p.name for p in self.parameters)

    @property
    def native(self) -> tuple[str, ...]:
        """Names of the int parameters: those that size conditions may name, in the order native code keeps them."""
        return tuple(p.name for p in self.parameters if p.kind == "int")

    @property
    def defaults(self) -> dict[str, Value]:
        """The portable values."""
        return {p.name: p.default for p in self.parameters}

    @property
    def native_defaults(self) -> dict[str, int]:
        """The portable values of the int parameters."""
        return {p.name: p.default for p in self.parameters if p.kind == "int"}  # type: ignore[misc]

    def check(self, values: Mapping[str, Any]) -> dict[str, Value]:
        """A complete set of values, in order. Raises `ParameterError` with everything that is wrong with it."""
        known = self.names
        problems = [f"unknown parameter {name!r}; there are {', '.join(known) or 'none'}" for name in values
                    if name not in known]  # fmt: skip
        problems += [f"{p.name} is missing: {p.allowed}" for p in self.parameters if p.name not in values]
        problems += [s for p in self.parameters if p.name in values and (s := p.problem(values[p.name]))]
        if not problems:
            problems = [s for rule in self.rules if (s := rule.problem(values))]
        if problems:
            raise ParameterError(tuple(problems))
        return {name: values[name] for name in known}

    def completed(self, partial: Mapping[str, Any], base: Mapping[str, Value] | None = None) -> dict[str, Value]:
        """`partial` on top of `base`, else of the defaults, checked as a whole. Raises `ParameterError`."""
        return self.check({**(self.defaults if base is None else base), **partial})


def read_schema(parameters: Iterable[Parameter], rules: Iterable[str]) -> Schema:
    """A schema whose defaults fulfil it. Raises `ParameterError` for a repeated name, or a parameter or rule that
    cannot be met: a kind that does not fit the default, an empty range, an int beyond 48 bits.
    """
    found = tuple(parameters)
    names = [p.name for p in found]
    problems = [f"the parameter {name!r} is declared twice" for name in dict.fromkeys(names) if names.count(name) > 1]
    problems += [s for p in found if (s := _declaration_problem(p))]
    read = []
    for text in rules:
        try:
            read.append(Rule(Expression(text, names)))
        except ExpressionError as error:
            problems.append(f"rule: {error}")
    if problems:
        raise ParameterError(tuple(problems))
    schema = Schema(found, tuple(read))
    schema.check(schema.defaults)
    return schema


def kind_of(default: object, choices: tuple[str, ...]) -> Kind:
    """The kind that a default stands for. Raises `ParameterError` for a type that no parameter has."""
    if type(default) not in _KINDS:
        raise ParameterError((f"the default {_short(default)} is no bool, int, float or str",))
    return "enum" if choices else _KINDS[type(default)]


def _declaration_problem(p: Parameter) -> str:
    if not all(part.isidentifier() and part.isascii() for part in p.name.split(".")):
        return f"{p.name!r} is no name: write identifiers with dots between them"
    if not p.doc:
        return f"{p.name}: say in a sentence what it is for (doc=...)"
    if p.kind == "enum" and not all(isinstance(choice, str) for choice in p.choices):
        return f"{p.name}: choices are strings"
    if p.kind not in ("int", "float") and (p.minimum, p.maximum) != (None, None):
        return f"{p.name}: a {p.kind} has no range"
    if p.kind == "int":
        for bound in (p.minimum, p.maximum):
            if type(bound) is not int or not 0 <= bound < 1 << MAX_SIZE_BITS:
                return f"{p.name}: an int has a minimum and a maximum, from 0 to below 2**{MAX_SIZE_BITS}"
    return p.problem(p.default)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
