"""Variants as callables of their own, for tuners and tests: one row of a grid, whatever is stamped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from tunegen.box import Box, this_box
from tunegen.calling import REFERENCE as REFERENCE_CALLEE
from tunegen.calling import SERIAL, SYMBOL, Callee, Dispatcher, Dispatching, dispatching_of, native_type
from tunegen.calling.identity import entry_identity
from tunegen.errors import CompileError, Declined, GateError
from tunegen.grid import REFERENCE, Grid, Row
from tunegen.making import make
from tunegen.making.compile import link
from tunegen.making.spec import Function, Spec
from tunegen.signature import ElementType, Operand, Signature


def dispatching_in(spec: Spec, function: Function) -> Dispatching:
    """What the calls of a kernel, or of one of its companions, depend on."""
    return dispatching_of(function.signature, spec.fallback.conditions, spec.schema, spec.parallel)


def native_entry(dispatcher: Dispatcher, box: Box) -> int:
    """Address of the native entry for a dispatcher's signature and dispatching. Raises `CompileError`."""
    return _entry(dispatcher.signature, dispatcher.dispatching, dispatcher.table_offset, box)


@cache
def _entry(signature: Signature, dispatching: Dispatching, table_offset: int, box: Box) -> int:
    def write_ir() -> str:
        from tunegen.calling.entry.module import entry_ir

        return entry_ir(signature, dispatching, table_offset)

    target = make.host_target(box)
    image = make.entry_object(entry_identity(signature, dispatching, table_offset), write_ir, target)
    return link(image, (SYMBOL,), target, process_symbols=True)[SYMBOL]


class VariantMethods(Dispatcher):
    """One row of the grid. Made when it is first called; `Declined` for an element type that it does not have."""

    __slots__ = ("declined", "row", "spec", "types")

    def __init__(self, spec: Spec, row: Row, types: tuple[ElementType, ...] = ()) -> None:
        """Of all element types, or of these alone."""
        super().__init__(f"{spec.name}__{row.suffix}", spec.signature, SERIAL, self._refuse)
        self.spec = spec
        self.row = row
        self.types = types or spec.signature.element_types
        self.declined: dict[str, Declined] = {}

    def load(self) -> None:
        """Makes the variant for each element type. Raises what the last one raised when none can be made."""
        box, table = this_box(), {}
        for element_type in self.types:
            try:
                linked = make.make_family(self.spec, self.row, element_type, box)[self.spec.name]
                table[element_type.name] = [Callee(linked.address, linked.scratch)]
            except Declined as declined:
                self.declined[element_type.name] = declined
        if not table:
            raise next(iter(self.declined.values()))
        refused = {t.name: [REFERENCE_CALLEE] for t in self.signature.element_types if t.name not in table}
        self.install(native_entry(self, box), {**table, **refused})

    def _refuse(self, *_: Any) -> None:
        reasons = [f"{name}: {declined}" for name, declined in self.declined.items()]
        raise Declined("; ".join(reasons) or f"it was made for {', '.join(t.name for t in self.types)} alone")


class ReferenceMethods(Dispatcher):
    """The Python body behind the same checks as a variant, so that it races on equal terms."""

    __slots__ = ("spec",)

    def __init__(self, spec: Spec) -> None:
        super().__init__(f"{spec.name}__{REFERENCE}", spec.signature, SERIAL, spec.function.reference)
        self.spec = spec

    def load(self) -> None:
        """Installs a table that leads to the reference, as a stamp of it does."""
        table = {t.name: [REFERENCE_CALLEE] for t in self.signature.element_types}
        # without a compiler the Python body runs all the same
        with suppress(CompileError):
            self.install(native_entry(self, this_box()), table)


if TYPE_CHECKING:
    Variant = VariantMethods
    ReferenceVariant = ReferenceMethods
else:
    Variant = native_type(VariantMethods)
    ReferenceVariant = native_type(ReferenceMethods)


def checked(variant: VariantMethods) -> Callable[..., Any]:
    """`variant` with each call checked against the reference in higher precision. Raises `GateError`."""
    from tunegen.calling.binding import bind
    from tunegen.calling.checking import check

    def call(*args: Any, **kwargs: Any) -> Any:
        given = bind(variant.name, variant.signature, args, kwargs)
        found = check(variant.name, variant.signature, given)
        values = {p.name: {**given, **found.arrays}[p.name] for p in variant.signature.parameters}
        expected = oracle(variant.spec, values)
        result = variant(*values.values())
        for operand in variant.signature.outputs:
            wrong = variant.spec.gate.check(values[operand.name], expected[operand.name], found.sizes)
            if wrong is not None:
                raise GateError(variant.name, operand.name, wrong.index, wrong.got, wrong.expected, wrong.bound)
        return result

    call.__name__ = variant.name
    return call


class Variants(Mapping[str, Callable[..., Any]]):
    """Callables by suffix, made when they are asked for: those given first, then the rows of a grid."""

    def __init__(self, spec: Spec, grid: Grid, made: Mapping[str, Callable[..., Any]], *, gated: bool = False) -> None:
        self._spec = spec
        self._grid = grid
        self._first = tuple(made)
        self._made = dict(made)
        self._gated = gated

    def __getitem__(self, suffix: str) -> Callable[..., Any]:
        if suffix not in self._made:
            row = self._grid.find(suffix)
            if row is None:
                raise KeyError(suffix)
            variant = Variant(self._spec, row)
            self._made[suffix] = checked(variant) if self._gated else variant
        return self._made[suffix]

    def __iter__(self) -> Iterator[str]:
        return chain(self._first, (row.suffix for row in self._grid))

    def __len__(self) -> int:
        return len(self._first) + self._grid.count().rows


def oracle(spec: Spec, values: dict[str, Any]) -> dict[str, Any]:
    """The outputs of the reference on copies of `values` in the gate's precision."""
    wide: dict[str, Any] = {}
    for parameter in spec.signature.parameters:
        value = values[parameter.name]
        if isinstance(parameter, Operand) and value is not None:
            element_type = next(t for t in parameter.choice.types if t.dtype == value.dtype)
            dtype = spec.gate.oracle_dtype(element_type)
            value = np.empty(value.shape, dtype) if parameter.role == "out" else np.array(value, dtype)
        wide[parameter.name] = value
    spec.function.reference(*wide.values())
    return {operand.name: wide[operand.name] for operand in spec.signature.outputs}
