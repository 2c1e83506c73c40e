"""Element types, operands and the typed signature of a kernel, read from the annotations of its reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from tunegen.errors import DeclarationError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "ANY_RANK_SIZE",
    "BOOL",
    "ELEMENT_TYPES",
    "Dim",
    "ElementType",
    "In",
    "InOut",
    "Operand",
    "OperandType",
    "Out",
    "Role",
    "Scalar",
    "Signature",
    "TypeChoice",
    "bool_",
    "dtypes",
    "f32",
    "f64",
    "floats",
    "read_signature",
]

Role = Literal["in", "out", "inout"]


class ElementType(msgspec.Struct, frozen=True):
    """One element type: its names here, in LLVM IR and in the buffer protocol."""

    name: str
    llvm: str
    bytes: int
    format: str

    @property
    def bits(self) -> int:
        """Width in bits."""
        return self.bytes * 8

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type, in native byte order."""
        return np.dtype(self.format)


F32, F64 = ElementType("f32", "float", 4, "f"), ElementType("f64", "double", 8, "d")
BOOL = ElementType("bool", "i8", 1, "?")
"""A byte per element, and 0 is false. A variant takes any other byte as true, and writes 0 and 1."""
ELEMENT_TYPES = {t.name: t for t in (F32, F64, BOOL)}


class TypeChoice(msgspec.Struct, frozen=True):
    """The element types that an annotation allows. `generic` ones agree with each other over the whole call."""

    types: tuple[ElementType, ...]
    generic: bool = False


def dtypes(*names: str) -> Any:
    """A generic element type: each of `names` ("f32", "f64", "bool") has its own stamp and its own manifest entry.

    Raises `DeclarationError` for an unknown, repeated or missing name.
    """
    unknown = [name for name in names if name not in ELEMENT_TYPES]
    if unknown or not names or len(set(names)) != len(names):
        raise DeclarationError("dtypes", f"got {names}; allowed are distinct names out of {', '.join(ELEMENT_TYPES)}")
    return TypeChoice(tuple(ELEMENT_TYPES[name] for name in names), generic=True)


class Dim(msgspec.Struct, frozen=True):
    """One dimension: its size symbol, and whether an input may leave it out or give it as 1."""

    symbol: str
    broadcast: bool = False


class OperandType(msgspec.Struct, frozen=True):
    """What `In[f32, "M", "K"]` evaluates to. `dims` is None for an operand of any rank."""

    role: Role
    choice: TypeChoice
    dims: tuple[Dim, ...] | None
    optional: bool = False

    def __or__(self, other: None) -> OperandType:
        if other is not None:
            raise DeclarationError(f"{self.role} operand", f"an operand may be `| None`, not `| {other!r}`")
        return msgspec.structs.replace(self, optional=True)


class _Subscript(msgspec.Struct, frozen=True):
    role: Role

    def __getitem__(self, items: Any) -> OperandType:
        where = f"{self.role.capitalize()}[...]"
        choice, *dims = items if isinstance(items, tuple) else (items,)
        if not isinstance(choice, TypeChoice):
            raise DeclarationError(where, f"the first item is an element type such as f32, not {choice!r}")
        if dims == [...]:
            return OperandType(self.role, choice, None)
        if not dims:
            raise DeclarationError(where, 'dimensions are missing: write size symbols such as "M", or ... for any rank')
        return OperandType(self.role, choice, tuple(self._dim(where, dim) for dim in dims))

    def _dim(self, where: str, dim: object) -> Dim:
        symbol = dim.removesuffix("?") if isinstance(dim, str) else ""
        if not symbol.isidentifier() or symbol != symbol.strip("_") or not symbol.isascii():
            raise DeclarationError(where, f'a dimension is a size symbol such as "M" or "M?", not {dim!r}')
        if symbol != dim and self.role != "in":
            raise DeclarationError(where, f"only an input may broadcast a dimension, so {dim!r} is not allowed")
        return Dim(symbol, symbol != dim)


if TYPE_CHECKING:
    # an alias by assignment would be a variable to a type checker, and no type
    from typing import Annotated as In
    from typing import Annotated as InOut
    from typing import Annotated as Out

    bool_ = NDArray[np.bool_]
    f32 = NDArray[np.float32]
    f64 = NDArray[np.float64]
    floats = NDArray[np.floating[Any]]
else:
    In = _Subscript("in")
    Out = _Subscript("out")
    InOut = _Subscript("inout")
    bool_ = TypeChoice((BOOL,))
    f32 = TypeChoice((F32,))
    f64 = TypeChoice((F64,))
    floats = dtypes("f32", "f64")
"""`floats` is `dtypes("f32", "f64")` in a form that type checkers accept in an annotation."""

ANY_RANK_SIZE = "N"
"""The one size symbol of operands of any rank: the number of elements."""


class Operand(msgspec.Struct, frozen=True):
    """An array parameter. `dims` is None for any rank, which variants see as one contiguous run of `N` elements."""

    name: str
    role: Role
    choice: TypeChoice
    dims: tuple[Dim, ...] | None
    optional: bool = False

    @property
    def strides(self) -> int:
        """How many outer strides a variant receives for this operand."""
        return 0 if self.dims is None else len(self.dims) - 1

    @property
    def written(self) -> bool:
        """Whether the kernel writes to it."""
        return self.role != "in"

    def __str__(self) -> str:
        types = "|".join(t.name for t in self.choice.types)
        dims = ["..."] if self.dims is None else [d.symbol + "?" * d.broadcast for d in self.dims]
        return f"{self.name}: {self.role} {types}[{', '.join(dims)}]" + " or None" * self.optional


class Scalar(msgspec.Struct, frozen=True):
    """A `float` or `int` parameter, with its default if it has one."""

    name: str
    kind: Literal["float", "int"]
    default: float | int | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.kind}" + (f" = {self.default}" if self.default is not None else "")


class Signature(msgspec.Struct, frozen=True, dict=True):
    """The parameters in declaration order and the size symbols in order of first use."""

    parameters: tuple[Operand | Scalar, ...]
    inplace: bool = False

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        """The array parameters."""
        return tuple(p for p in self.parameters if isinstance(p, Operand))

    @cached_property
    def scalars(self) -> tuple[Scalar, ...]:
        """The scalar parameters."""
        return tuple(p for p in self.parameters if isinstance(p, Scalar))

    @cached_property
    def outputs(self) -> tuple[Operand, ...]:
        """What a call returns."""
        return tuple(p for p in self.operands if p.written)

    @cached_property
    def any_rank(self) -> bool:
        """Whether this is an elementwise kernel over arrays of any rank."""
        return any(p.dims is None for p in self.operands)

    @cached_property
    def sizes(self) -> tuple[str, ...]:
        """Size symbols in order of first use."""
        if self.any_rank:
            return (ANY_RANK_SIZE,)
        return tuple(dict.fromkeys(dim.symbol for p in self.operands for dim in p.dims or ()))

    @property
    def element_types(self) -> tuple[ElementType, ...]:
        """The element types that have a stamp of their own: the generic ones, else that of the first operand."""
        generic = [p.choice for p in self.operands if p.choice.generic]
        return generic[0].types if generic else self.operands[0].choice.types[:1]

    def type_of(self, operand: Operand, element_type: ElementType) -> ElementType:
        """The element type of `operand` in a call whose generic type is `element_type`."""
        return element_type if operand.choice.generic else operand.choice.types[0]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parameters))})" + " inplace" * self.inplace


_COLLECTS = 0x04 | 0x08
"""Flags of a code object with *args, or with **kwargs."""
_MISSING = object()


def read_signature(
    fn: Callable[..., Any], kernel: str, names: Mapping[str, Any], *, inplace: bool = False
) -> Signature:
    """The signature of a reference function. `names` resolves annotations written as text in a local scope.

    Raises `DeclarationError` that names the kernel, the parameter and what its annotation may be.
    """
    annotations = _annotations(fn, kernel, names)
    if "return" not in annotations:
        raise DeclarationError(kernel, "the return annotation is missing: write `-> None`")
    if annotations["return"] is not None:
        raise DeclarationError(kernel, f"a reference writes its outputs and returns None, not {annotations['return']}")
    parameters = []
    for name, default in _plain_parameters(fn, kernel):
        if name not in annotations:
            raise DeclarationError(kernel, f"parameter {name} has no annotation such as In[f32, 'M']")
        parameters.append(_parameter(kernel, name, default, annotations[name]))
    signature = Signature(tuple(parameters), inplace)
    _check(kernel, signature)
    return signature


def _plain_parameters(fn: Any, kernel: str) -> Iterator[tuple[str, Any]]:
    """Name and default of each parameter, read from the code object: importing `inspect` takes longer than all else."""
    code, defaults = fn.__code__, fn.__defaults__ or ()
    if code.co_posonlyargcount or code.co_kwonlyargcount or code.co_flags & _COLLECTS:
        raise DeclarationError(
            kernel, "*args, **kwargs and parameters by position or by keyword alone are not supported"
        )
    names = code.co_varnames[: code.co_argcount]
    yield from zip(names, (*[_MISSING] * (len(names) - len(defaults)), *defaults), strict=True)


def _annotations(fn: Callable[..., Any], kernel: str, names: Mapping[str, Any]) -> dict[str, Any]:
    scope = {**fn.__globals__, **names, **_closure(fn)}
    return {name: _evaluated(kernel, name, value, scope) for name, value in fn.__annotations__.items()}


def _closure(fn: Any) -> dict[str, Any]:
    found = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        # a name that is bound later on has an empty cell
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def _evaluated(kernel: str, name: str, value: Any, scope: dict[str, Any]) -> Any:
    """An annotation as an object. It is text once, or twice where it was quoted besides."""
    for _ in range(2):
        if not isinstance(value, str):
            break
        try:
            value = eval(value, scope)
        except DeclarationError as error:
            raise DeclarationError(kernel, f"parameter {name}: {error}") from None
        except Exception as error:
            raise DeclarationError(kernel, f"the annotation of {name} cannot be read: {value!r}: {error}") from None
    return value


def _parameter(kernel: str, name: str, default: Any, annotation: object) -> Operand | Scalar:
    missing = default is _MISSING
    if isinstance(annotation, OperandType):
        if annotation.optional != (not missing) or not (missing or default is None):
            raise DeclarationError(kernel, f"operand {name}: `| None` goes with the default None, got {default!r}")
        if annotation.optional and annotation.role != "in":
            raise DeclarationError(kernel, f"operand {name}: only an input may be optional")
        return Operand(name, annotation.role, annotation.choice, annotation.dims, annotation.optional)
    if annotation in (float, int):
        kind: Literal["float", "int"] = "float" if annotation is float else "int"
        if not missing and type(default) is not annotation:
            raise DeclarationError(kernel, f"parameter {name}: the default {default!r} is no {kind}")
        return Scalar(name, kind, None if missing else default)
    raise DeclarationError(kernel, f"parameter {name}: got {annotation!r}; allowed are In, Out, InOut, float and int")


def _check(kernel: str, signature: Signature) -> None:
    operands = signature.operands
    if not signature.outputs:
        raise DeclarationError(kernel, "no operand is written: annotate one with Out or InOut")
    if operands[0].optional:
        raise DeclarationError(kernel, f"the first operand, {operands[0].name}, cannot be optional")
    if signature.any_rank and any(p.dims is not None for p in operands):
        raise DeclarationError(kernel, "operands of any rank (...) do not mix with operands of a fixed rank")
    generic = {p.choice for p in operands if p.choice.generic}
    if len(generic) > 1:
        raise DeclarationError(kernel, "a kernel has at most one generic element type")
    if generic and all(p.optional for p in operands if p.choice.generic):
        raise DeclarationError(kernel, "the generic element type is bound by no required operand")
    if signature.inplace and not signature.any_rank:
        raise DeclarationError(kernel, "inplace is for elementwise kernels: operands of any rank (...)")
    _check_names(kernel, signature)
    given = {d.symbol for p in operands if not p.optional for d in p.dims or () if not d.broadcast}
    unbound = [symbol for symbol in signature.sizes if symbol not in given and not signature.any_rank]
    if unbound:
        raise DeclarationError(kernel, f"size {', '.join(unbound)} is bound by no required dimension")


def _check_names(kernel: str, signature: Signature) -> None:
    """All names of a variant's parameters are distinct, and LLVM takes them."""
    strides = [f"{p.name}_s{i}" for p in signature.operands for i in range(p.strides)]
    names = [*(p.name for p in signature.parameters), *signature.sizes, *strides, "scratch"]
    if clash := sorted({name for name in names if names.count(name) > 1}):
        raise DeclarationError(
            kernel, f"{clash[0]} is a parameter and a size symbol, the stride of an operand, or reserved"
        )
    if strange := [name for name in (kernel, *names) if not (name.isidentifier() and name.isascii())]:
        raise DeclarationError(kernel, f"{strange[0]!r}: a name has letters from a to z, digits and _")
