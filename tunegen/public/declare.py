"""The decorators. They only mark; `tune`, outermost, closes the bracket, validates everything and builds the kernel."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

import msgspec

from tunegen.calling import uncuttable
from tunegen.cases import Case, Inputs
from tunegen.cases import problem as case_problem
from tunegen.errors import DeclarationError, ExpressionError, ParameterError
from tunegen.expressions import Expression
from tunegen.fallback import Fallback, parse_fallback
from tunegen.gates import NONFINITE, Gate
from tunegen.grid import LIMITS, REFERENCE, Grid, Perm, Product, Value
from tunegen.making.spec import Calibration, Function, Spec
from tunegen.parallel import Parallel, Serial, Split
from tunegen.parameters import Parameter, Schema, kind_of, read_schema
from tunegen.parameters import Value as ParameterValue
from tunegen.public.kernel import Kernel
from tunegen.public.scope import Scope, enclosing
from tunegen.requires import parse_requires
from tunegen.signature import Signature, read_signature

MARKS = "__tunegen_marks__"


class Companion(msgspec.Struct, frozen=True):
    """A mark: a sibling function that is stamped with the same perm."""

    fn: Any
    gen: str | None
    define: dict[str, Value] = {}


class Declared(msgspec.Struct, frozen=True):
    """A mark: a runtime parameter, the rules that come with it, and how its value is found."""

    parameter: Parameter
    rules: tuple[str, ...] = ()
    calibrate: Calibration | None = None


class Options(msgspec.Struct, frozen=True):
    """What `tune` was given."""

    gen: str | None
    gate: Gate
    cases: tuple[Case, ...]
    fallback: str = REFERENCE
    inputs: Inputs | None = None
    define: dict[str, Value] = {}
    inplace: bool = False
    parallel: Parallel = Serial("it declares no split")


def tune(
    *,
    gen: str | None = None,
    gate: Gate,
    cases: Iterable[Case] = (),
    fallback: str = REFERENCE,
    inputs: Inputs | None = None,
    define: Mapping[str, Value] | None = None,
    inplace: bool = False,
    parallel: Parallel | None = None,
) -> Callable[[Callable[..., None]], Kernel]:
    """Closes the declaration of a kernel: turns the marked reference function into a `Kernel`.

    `gen` is the template that generates a variant, `gate` how close to the reference it must be, `cases` the sizes it
    is tuned for, `fallback` the chain that an untuned box runs ("mr1_nr64 if M <= 2; mr6_nr16; reference"), `inputs`
    makes the inputs of gate and race, `define` holds fixed options for the template, `inplace` allows one array as
    input and output of an elementwise kernel, and `parallel` says how a call is split over threads (`split`) or why it
    is not (`serial`). The kernel belongs to the scope of the nearest enclosing package.

    Raises `DeclarationError` that names the kernel, the row and the value.
    """
    options = options_of(gen, gate, cases, fallback, inputs, define, inplace, parallel)
    return closing(None, options, sys._getframe(1).f_locals)


def options_of(
    gen: str | None, gate: Gate, cases: Iterable[Case], fallback: str, inputs: Inputs | None,
    define: Mapping[str, Value] | None, inplace: bool, parallel: Parallel | None,
) -> Options:  # fmt: skip
    """What `tune` was given, as a record."""
    options = Options(gen, gate, tuple(cases), fallback, inputs, dict(define or {}), inplace)
    return options if parallel is None else msgspec.structs.replace(options, parallel=parallel)


def closing(scope: Scope | None, options: Options, names: Mapping[str, Any]) -> Callable[[Callable[..., None]], Kernel]:
    """What `tune` returns. Without a scope, a kernel belongs to that of its nearest enclosing package.

    `names` are those under which annotations written as text find what is local where the kernel is declared.
    """
    return lambda fn: _close(fn, scope, options, names)


def tune_perm(*, suffix: str = "", requires: str = "", **values: Value) -> Callable[[Any], Any]:
    """One row of the grid. `suffix` overrides its name; `requires` asks for CPU features."""
    return _mark(lambda kernel: Perm(values, suffix, requires))


def tune_grid(*, where: str | None = None, requires: str = "", **axes: Iterable[Value]) -> Callable[[Any], Any]:
    """A Cartesian product of rows, of which `where` admits some: `where="mr * nr <= 128"`. It may have millions.

    `where` may name `registers` and `vector_bytes` of the box, how many vector registers it has and how wide they are:
    `"mr * nv + nv < registers"`. A row that exceeds them is a row, but is not tried when that box is tuned.
    """
    values = {name: tuple(axis) for name, axis in axes.items()}

    def product(kernel: str) -> Product:
        try:
            expression = Expression(where, tuple(dict.fromkeys((*values, *LIMITS)))) if where is not None else None
        except ExpressionError as error:
            raise DeclarationError(kernel, f"row {values}: where: {error}") from None
        return Product(values, expression, requires)

    return _mark(product)


def tune_companion(
    *, fn: Callable[..., None] | str, gen: str | None = None, define: Mapping[str, Value] | None = None
) -> Callable[[Any], Any]:
    """A function of the same module, declared earlier, that always gets the same perm as the kernel."""
    return _mark(lambda kernel: Companion(fn, gen, dict(define or {})))


def tune_param(
    name: str, *, default: ParameterValue, doc: str, minimum: float | None = None, maximum: float | None = None,
    choices: Iterable[str] = (), unit: str = "", rules: Iterable[str] | str = (), calibrate: Calibration | None = None,
) -> Callable[[Any], Any]:  # fmt: skip
    """A runtime parameter of the kernel: a number in a range, a bool, a string, or one of `choices`.

    `name` may have dots ("parallel.minimum_elements"), `default` holds on every box and gives the type, `unit` says
    what a number counts, `doc` what it is for, in a sentence. `rules` are expressions over this and other parameters
    that every set of values fulfils. Size conditions and `split` may name int parameters. `calibrate` finds the value
    on a box.
    """

    def declared(kernel: str) -> Declared:
        try:
            kind = kind_of(default, tuple(choices))
        except ParameterError as error:
            raise DeclarationError(kernel, f"parameter {name!r}: {error}") from None
        parameter = Parameter(name, kind, default, minimum, maximum, tuple(choices), unit, doc)
        return Declared(parameter, (rules,) if isinstance(rules, str) else tuple(rules), calibrate)

    return _mark(declared)


def _mark(make: Callable[[str], Perm | Product | Companion | Declared]) -> Callable[[Any], Any]:
    def decorate(fn: Any) -> Any:
        if isinstance(fn, Kernel):
            raise DeclarationError(fn.name, f"{make(fn.name)} stands above `tune`, which closes the declaration")
        if not isinstance(fn, FunctionType):
            raise DeclarationError(repr(fn), "a kernel is a plain function")
        setattr(fn, MARKS, [make(fn.__name__), *getattr(fn, MARKS, ())])
        return fn

    return decorate


def _close(fn: Any, scope: Scope | None, options: Options, names: Mapping[str, Any]) -> Kernel:
    if not isinstance(fn, FunctionType):
        raise DeclarationError(repr(fn), "a kernel is a plain function, closed by `tune` once")
    scope = scope or enclosing(fn.__module__)
    kernel = Kernel(_spec(fn, scope, options, names))
    scope.add(kernel)
    fn.__globals__.update(kernel.companions)
    return kernel


def _spec(fn: FunctionType, scope: Scope, options: Options, names: Mapping[str, Any]) -> Spec:
    name = fn.__name__
    marks = getattr(fn, MARKS, [])
    rows = tuple(mark for mark in marks if isinstance(mark, Perm | Product))
    if not options.gen:
        raise DeclarationError(name, 'no generator: tune(gen="name.ll.j2")')
    if not rows:
        raise DeclarationError(name, "no rows: add tune_perm or tune_grid below tune")
    grid = Grid(rows)
    _check_grid(name, grid)
    signature = read_signature(fn, name, names, inplace=options.inplace)
    declared = [mark for mark in marks if isinstance(mark, Declared)]
    schema = _schema(name, declared)
    if clash := set(signature.sizes) & set(schema.names):
        raise DeclarationError(name, f"{', '.join(sorted(clash))} is a size and a parameter")
    fallback = _fallback(name, options.fallback, grid, (*signature.sizes, *schema.native))
    _check_options(name, options, signature)
    companions = _companions(fn, [mark for mark in marks if isinstance(mark, Companion)], fallback, names, schema)
    functions = (Function(name, options.gen, fn, signature, options.define), *companions)
    for function in functions:
        _check_function(name, function, scope)
    return Spec(
        scope.name, fn.__module__, functions[0], grid, fallback, options.gate, options.cases, scope.templates,
        options.inputs, companions, schema, {d.parameter.name: d.calibrate for d in declared if d.calibrate},
        _parallel(name, options.parallel, signature, schema),
    )  # fmt: skip


def _schema(name: str, declared: list[Declared]) -> Schema:
    try:
        return read_schema([d.parameter for d in declared], [rule for d in declared for rule in d.rules])
    except ParameterError as error:
        raise DeclarationError(name, str(error)) from None


def _parallel(name: str, written: Parallel, signature: Signature, schema: Schema) -> Split | Serial:
    if isinstance(written, Serial):
        return written
    try:
        split = written.read(signature.sizes, schema.native)
    except ExpressionError as error:
        raise DeclarationError(name, str(error)) from None
    if sentence := uncuttable(signature, split):
        raise DeclarationError(name, sentence)
    return split


def _check_grid(name: str, grid: Grid) -> None:
    for part in grid.parts:
        for axis, value in _points(part):
            if not _is_value(value):
                raise DeclarationError(name, f"row {part.values}: {axis}={value!r}: {VALUES}")
        try:
            parse_requires(part.requires)
        except ExpressionError as error:
            raise DeclarationError(name, f"row {part.values}: {error}") from None
    for sentence in grid.check():
        raise DeclarationError(name, sentence)


VALUES = "a value is a bool, an int, a finite float or a str"


def _is_value(value: object) -> bool:
    return type(value) in (bool, int, str) or (type(value) is float and math.isfinite(value))


def _points(part: Perm | Product) -> list[tuple[str, object]]:
    if isinstance(part, Perm):
        return list(part.values.items())
    return [(axis, value) for axis, values in part.values.items() for value in values]


def _fallback(name: str, text: str, grid: Grid, names: tuple[str, ...]) -> Fallback:
    suffixes = {name for item in text.split(";") for name in item.split()[:1] if grid.find(name) is not None}
    try:
        return parse_fallback(text, suffixes, names)
    except ExpressionError as error:
        raise DeclarationError(name, str(error)) from None


def _check_options(name: str, options: Options, signature: Signature) -> None:
    if options.gate.size and options.gate.size not in signature.sizes:
        raise DeclarationError(name, f"gate {options.gate}: the sizes are {', '.join(signature.sizes)}")
    if options.gate.nonfinite not in NONFINITE:
        raise DeclarationError(name, f"gate {options.gate}: nonfinite is one of {', '.join(NONFINITE)}")
    for case in options.cases:
        if sentence := case_problem(case, signature):
            raise DeclarationError(name, sentence)
    names = [case.name for case in options.cases]
    if len(set(names)) != len(names):
        raise DeclarationError(name, f"two cases have one name: {', '.join(names)}")


def _check_function(kernel: str, function: Function, scope: Scope) -> None:
    label = "" if function.name == kernel else f"companion {function.name!r}: "
    for key, value in function.define.items():
        if not _is_value(value):
            raise DeclarationError(kernel, f"{label}define {key}={value!r}: {VALUES}")
    if not scope.templates.exists(function.gen):
        raise DeclarationError(kernel, f"{label}the generator {function.gen!r} is not in {scope.templates.folder}")


def _companions(
    fn: FunctionType, marks: list[Companion], fallback: Fallback, names: Mapping[str, Any], schema: Schema
) -> tuple[Function, ...]:
    found: dict[str, Function] = {}
    for mark in marks:
        companion = _companion(fn, mark, names)
        if companion.name in found:
            raise DeclarationError(fn.__name__, f"companion {companion.name!r} is listed twice")
        for condition in fallback.conditions:
            known = (*companion.signature.sizes, *schema.native)
            if unknown := [size for size in condition.names if size not in known]:
                problem = f"knows no size {unknown[0]}, on which {condition.text!r} of the fallback depends"
                raise DeclarationError(fn.__name__, f"companion {companion.name!r} {problem}")
        found[companion.name] = companion
    return tuple(found.values())


def _companion(fn: FunctionType, mark: Companion, names: Mapping[str, Any]) -> Function:
    kernel = fn.__name__
    sibling = fn.__globals__.get(mark.fn) if isinstance(mark.fn, str) else mark.fn
    label = mark.fn if isinstance(mark.fn, str) else str(getattr(mark.fn, "__name__", repr(mark.fn)))
    if label == kernel or sibling == fn:
        raise DeclarationError(kernel, f"companion {label!r} is the kernel itself: name another function")
    if not isinstance(sibling, FunctionType):
        raise DeclarationError(kernel, f"companion {label!r} is missing: a plain function, declared earlier")
    if sibling.__module__ != fn.__module__ or fn.__globals__.get(sibling.__name__) != sibling:
        raise DeclarationError(kernel, f"companion {label!r} is not a function of module {fn.__module__}")
    if sibling.__code__.co_firstlineno > fn.__code__.co_firstlineno:
        raise DeclarationError(kernel, f"companion {label!r} is declared later: move it above the kernel")
    if not mark.gen:
        raise DeclarationError(kernel, f"companion {label!r} has no generator: gen=...")
    try:
        signature = read_signature(sibling, label, names)
    except DeclarationError as error:
        raise DeclarationError(kernel, f"companion {error}") from None
    return Function(label, mark.gen, sibling, signature, mark.define)
