"""The arguments of a native call: positions, keywords, defaults, and numbers."""

from __future__ import annotations

from dataclasses import dataclass

from tunegen.calling.entry.ir import Writer, double
from tunegen.calling.native import table_layout
from tunegen.signature import Operand, Scalar, Signature

SLOW = "slow"
"""Label of the block that hands the call to Python while no operand is held."""

_OBJECT_TYPE_OFFSET = object.__basicsize__ - 8
_LARGEST = (1 << 63) - 1


def must_be_given(parameter: Operand | Scalar) -> bool:
    """Whether a native call has no way to fill this parameter in. Outputs that are left out are allocated."""
    if isinstance(parameter, Operand):
        return not parameter.optional and parameter.role != "out"
    return parameter.default is None


@dataclass(frozen=True)
class Arguments:
    """The arguments by position: the address of the first, and how many there are. One that is left out is null."""

    first: str
    count: str

    def must(self, w: Writer, index: int) -> str:
        """An argument that is there."""
        return w.load("ptr", w.at("ptr", self.first, index), "argument")

    def may(self, w: Writer, index: int) -> str:
        """An argument, or null."""
        cell = w.cell("argument", "ptr", "null")
        with w.when(w.compare("ugt", self.count, str(index))):
            w.store("ptr", self.must(w, index), cell)
        return w.load("ptr", cell, "argument")


def read_arguments(w: Writer, signature: Signature, table: str) -> Arguments:
    """Requires as many arguments as there may be. Keywords are put in their places first."""
    must = [index for index, parameter in enumerate(signature.parameters) if must_be_given(parameter)]
    fewest, most = max(must, default=-1) + 1, len(signature.parameters)
    positional = w.op("and", "%nargsf", str(_LARGEST))
    first, count = w.cell("first", "ptr", "%args"), w.cell("count", "i64", positional)
    with w.when(w.compare("ne", "%kwnames", "null", "ptr")):
        w.require(w.compare("ule", positional, str(most)), otherwise=SLOW)
        places = w.cell("places", f"[{most} x ptr]")
        w.store(f"[{most} x ptr]", "zeroinitializer", places)
        with w.countdown(positional) as index:
            w.store("ptr", w.load("ptr", w.at("ptr", "%args", index)), w.at("ptr", places, index))
        with w.countdown(w.let("keywords", "call i64 @PyTuple_Size(ptr %kwnames)")) as keyword:
            _place_keyword(w, signature, table, places, keyword, positional)
        filled = [w.compare("ne", w.load("ptr", w.at("ptr", places, place)), "null", "ptr") for place in must]
        w.require(w.both(filled), otherwise=SLOW)
        w.store("ptr", places, first)
        w.store("i64", str(most), count)
    arguments = Arguments(w.load("ptr", first, "arguments"), w.load("i64", count, "count"))
    w.require(w.compare("ule", w.op("sub", arguments.count, str(fewest)), str(most - fewest)), otherwise=SLOW)
    return arguments


def _place_keyword(w: Writer, signature: Signature, table: str, places: str, keyword: str, positional: str) -> None:
    """Puts one keyword's value into its place. Names are compared by identity: those in a program are interned."""
    name = w.let("name", f"call ptr @PyTuple_GetItem(ptr %kwnames, i64 {keyword})")
    place = w.cell("place", "i64", "-1")
    for index in range(len(signature.parameters)):
        known = w.load("ptr", w.at("ptr", table, table_layout(signature).names + index))
        w.store("i64", w.pick(w.compare("eq", name, known, "ptr"), str(index), w.load("i64", place)), place)
    # the place of an unknown name, and those that positional arguments take, are below; no name occurs twice
    w.require(w.compare("sge", w.load("i64", place), positional), otherwise=SLOW)
    value = w.load("ptr", w.at("ptr", "%args", w.op("add", positional, keyword)))
    w.store("ptr", value, w.at("ptr", places, w.load("i64", place)))


def read_scalar(w: Writer, scalar: Scalar, index: int, arguments: Arguments) -> str:
    """The typed argument for a scalar: an exact `float` or `int`, or its default."""
    type_ = "double" if scalar.kind == "float" else "i64"
    cell = w.cell(scalar.name, type_)
    given = "true"
    if scalar.default is None:
        argument = arguments.must(w, index)
    else:
        w.store(type_, double(scalar.default) if scalar.kind == "float" else str(scalar.default), cell)
        argument = arguments.may(w, index)
        given = w.compare("ne", argument, "null", "ptr")
    with w.when(given):
        exact = "@PyFloat_Type" if scalar.kind == "float" else "@PyLong_Type"
        w.require(w.compare("eq", w.load("ptr", w.at("i8", argument, _OBJECT_TYPE_OFFSET)), exact, "ptr"))
        w.store(type_, _float(w, argument) if scalar.kind == "float" else _int(w, argument), cell)
    return f"{type_} {w.load(type_, cell, scalar.name)}"


def _float(w: Writer, argument: str) -> str:
    return w.let("float", f"call double @PyFloat_AsDouble(ptr {argument})")


def _int(w: Writer, argument: str) -> str:
    overflow = w.cell("overflow", "i32")
    value = w.let("int", f"call i64 @PyLong_AsLongLongAndOverflow(ptr {argument}, ptr {overflow})")
    w.require(w.compare("eq", w.load("i32", overflow), "0", "i32"))
    return value
