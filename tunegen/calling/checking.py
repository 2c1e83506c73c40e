"""What the native entry checks, in Python and with words: types, ranks, sizes, layouts and overlaps of arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from tunegen.calling.binding import refusal
from tunegen.calling.layout import Array, layout_fault, same_elements, share_memory
from tunegen.expressions import MAX_SIZE_BITS
from tunegen.signature import ANY_RANK_SIZE, Dim, ElementType, Operand, Signature

Arrays = dict[str, Array | None]
Present = Sequence[tuple[Operand, Array]]


class Checked(msgspec.Struct, frozen=True):
    """The arrays of a call that may be run, left-out outputs included. `entangled` names what overlaps an output by
    its bounds alone: fine in numpy, but not for native code. `shape` is the result's, for operands of any rank.
    """

    arrays: Arrays
    sizes: dict[str, int]
    element_type: ElementType
    shape: tuple[int, ...] | None
    entangled: frozenset[str]


def check(kernel: str, signature: Signature, given: Mapping[str, Any]) -> Checked:
    """Checks the arrays of a call and allocates the outputs that were left out. Writes to no operand.

    Raises `TypeError` for what is no array or has the wrong element type, `ValueError` for a wrong rank, size or
    layout, for an output that is read-only, and for an output that shares memory with another operand.
    """
    operands = signature.operands
    arrays = {p.name: _array(kernel, p, given[p.name]) for p in operands if p.name in given}
    present = [(p, array) for p in operands if (array := arrays.get(p.name)) is not None]
    element_type = _check_types(kernel, signature, present)
    shape = None
    if operands[0].dims is None:
        shape = _common_shape(kernel, present)
        sizes = {ANY_RANK_SIZE: math.prod(shape)}
    else:
        sizes = _sizes(kernel, signature, present)
    for symbol, size in sizes.items():
        if size >> MAX_SIZE_BITS:
            raise refusal(ValueError, kernel, f"size {symbol}", str(size), f"less than 2**{MAX_SIZE_BITS}")
    for operand, array in present:
        if operand.written:
            _check_output(kernel, operand, array)
    entangled = _check_overlaps(kernel, signature, present)
    for operand in operands:
        if operand.name not in arrays:
            own = shape if operand.dims is None else tuple(sizes[dim.symbol] for dim in operand.dims)
            assert own is not None
            arrays[operand.name] = np.empty(own, signature.type_of(operand, element_type).dtype)
    return Checked(arrays, sizes, element_type, shape, entangled)


def _array(kernel: str, operand: Operand, value: object) -> Array | None:
    """The value as a plain array, without a copy."""
    if value is None and operand.optional:
        return None
    try:
        array = np.asarray(value if isinstance(value, np.ndarray) else memoryview(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError, NotImplementedError):
        hint = "leave it out to have it allocated" if operand.role == "out" else "numpy.asarray makes one"
        allowed = f"an array, or another object with the buffer protocol ({operand}); {hint}"
        raise refusal(TypeError, kernel, f"operand {operand.name}", type(value).__name__, allowed) from None
    if array.dtype.isnative and array.dtype.byteorder != "=":
        # an order that is spelled out is in the buffer's format too, where the native entry does not take it
        return array.view(array.dtype.newbyteorder("="))
    return array


def _check_types(kernel: str, signature: Signature, present: Present) -> ElementType:
    """Requires the element types, and returns the generic one of the call."""
    generic: tuple[str, ElementType] | None = None
    for operand, array in present:
        types = operand.choice.types
        agreed = generic if operand.choice.generic else None
        found = [t for t in ((agreed[1],) if agreed else types) if t.dtype == array.dtype]
        if not found:
            allowed = " or ".join(t.dtype.name for t in types) + ", in native byte order"
            if agreed:
                allowed = f"{agreed[1].dtype.name}, as operand {agreed[0]} has"
            raise refusal(TypeError, kernel, f"operand {operand.name}", f"element type {array.dtype!r}", allowed)
        if operand.choice.generic and not generic:
            generic = operand.name, found[0]
    if generic:
        return generic[1]
    if any(operand.choice.generic for operand in signature.operands):
        raise refusal(TypeError, kernel, "call", "no array that gives the element type", "leaving out fewer outputs")
    return signature.element_types[0]


def _sizes(kernel: str, signature: Signature, present: Present) -> dict[str, int]:
    """The size of each symbol, from the first dimension that must have it. Requires ranks and sizes to agree."""
    bound: dict[str, tuple[int, str]] = {}
    loose: list[tuple[Operand, Array, Dim, int]] = []
    for operand, array in present:
        for dim, length in _lengths(kernel, operand, array):
            if dim.broadcast or operand.optional or dim.symbol in bound:
                loose.append((operand, array, dim, length))
            else:
                bound[dim.symbol] = length, operand.name
    for symbol in signature.sizes:
        if symbol not in bound:
            owner = next(p for p in signature.outputs if any(dim.symbol == symbol for dim in p.dims or ()))
            allowed = f"an array: nothing else gives size {symbol}"
            raise refusal(TypeError, kernel, f"operand {owner.name}", "no argument", allowed)
    for operand, array, dim, length in loose:
        size, owner_name = bound[dim.symbol]
        if length != size and not (dim.broadcast and length == 1):
            came = f"shape {array.shape}, so {dim.symbol} = {length}"
            allowed = f"{dim.symbol} = {size}, as operand {owner_name} has" + ", or 1" * dim.broadcast
            raise refusal(ValueError, kernel, f"operand {operand.name}", came, allowed)
    return {symbol: bound[symbol][0] for symbol in signature.sizes}


def _lengths(kernel: str, operand: Operand, array: Array) -> list[tuple[Dim, int]]:
    """Requires the rank, and returns the length of each dimension that the array has."""
    dims = operand.dims or ()
    lowest = len(dims) - next((index for index, dim in enumerate(dims) if not dim.broadcast), len(dims))
    if not lowest <= array.ndim <= len(dims):
        ranks = str(len(dims)) if lowest == len(dims) else f"{lowest} to {len(dims)}"
        came = f"rank {array.ndim} (shape {array.shape})"
        raise refusal(ValueError, kernel, f"operand {operand.name}", came, f"rank {ranks} ({operand})")
    return list(zip(dims[len(dims) - array.ndim :], array.shape, strict=True))


def _common_shape(kernel: str, present: Present) -> tuple[int, ...]:
    """The shape of the result: that of the outputs, or what the inputs broadcast to when all outputs are left out."""
    shapes = {p.name: array.shape for p, array in present if p.written}
    inputs = {p.name: array.shape for p, array in present if not p.written}
    if not shapes and not inputs:
        raise refusal(TypeError, kernel, "call", "no array that gives the shape", "leaving out fewer outputs")
    if not shapes:
        try:
            return np.broadcast_shapes(*inputs.values())
        except ValueError:
            came = ", ".join(f"{name} of shape {own}" for name, own in inputs.items())
            raise refusal(ValueError, kernel, "inputs", came, "shapes that broadcast to one") from None
    first, shape = next(iter(shapes.items()))
    for name, own in shapes.items():
        if own != shape:
            raise refusal(ValueError, kernel, f"operand {name}", f"shape {own}", f"{shape}, as operand {first} has")
    for name, own in inputs.items():
        if not _spreads(own, shape):
            allowed = f"what broadcasts to {shape}, the shape of operand {first}"
            raise refusal(ValueError, kernel, f"operand {name}", f"shape {own}", allowed)
    return shape


def _spreads(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    pairs = zip(reversed(own), reversed(shape), strict=False)
    return len(own) <= len(shape) and all(a in (b, 1) for a, b in pairs)


def _check_output(kernel: str, operand: Operand, array: Array) -> None:
    what = f"operand {operand.name}"
    if not array.flags.writeable:
        raise refusal(ValueError, kernel, what, "a read-only array", "a writable one: it is an output")
    fault = layout_fault(array, written=True)
    if fault:
        raise refusal(ValueError, kernel, what, fault[0], f"{fault[1]}, in an output")


def _check_overlaps(kernel: str, signature: Signature, present: Present) -> frozenset[str]:
    """Requires outputs to share no memory with other operands, and returns what overlaps them by bounds alone."""
    entangled = set()
    for index, (a, array_a) in enumerate(present):
        for b, array_b in present[index + 1 :]:
            if not (a.written or b.written) or not np.may_share_memory(array_a, array_b):  # which compares bounds
                continue
            # the other one is what may be copied: the input of the two, or else the later output
            (output, out), (other, array) = ((a, array_a), (b, array_b)) if a.written else ((b, array_b), (a, array_a))
            inplace = signature.inplace and not other.written
            if inplace and same_elements(out, array):
                continue
            if share_memory(out, array):
                came = f"an array that shares memory with operand {other.name}"
                allowed = "the very same array or memory of its own" if inplace else "memory of its own"
                raise refusal(ValueError, kernel, f"operand {output.name}", came, allowed)
            entangled.add(other.name)
    return frozenset(entangled)
