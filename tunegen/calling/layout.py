"""Where arrays lie in memory: what native variants take, what overlaps, and copies of what they do not take.

The rules are those of the native entry: an array that passes here passes there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]

_OVERLAP_WORK: Any = 1_000_000
"""Effort after which numpy gives up to find out whether two strided arrays share memory. Its stubs know 0 and -1."""


def address(array: Array) -> int:
    """The address of the first element."""
    return int(array.__array_interface__["data"][0])


def layout_fault(array: Array, written: bool) -> tuple[str, str] | None:
    """What about the layout does not suit native code, as (what came, what is allowed), or None."""
    if not array.size:
        return None
    itemsize = array.itemsize
    # numpy's flag is quicker to read than the address; it is about the strides too
    if not array.flags.aligned and address(array) % itemsize:
        return f"data at address {address(array):#x}", f"an address that is a multiple of {itemsize}"
    reach = itemsize
    for axis in reversed(range(array.ndim)):
        length, stride = array.shape[axis], array.strides[axis]
        if length <= 1:
            continue
        if axis == array.ndim - 1 and stride != itemsize:
            return f"an inner stride of {stride} bytes", f"{itemsize} bytes: elements side by side"
        if stride % itemsize:
            return f"a stride of {stride} bytes in dimension {axis}", f"multiples of {itemsize} bytes"
        if written and abs(stride) < reach:
            return f"a stride of {stride} bytes in dimension {axis}", f"{reach} or more: past the dimensions inside it"
        reach += (length - 1) * abs(stride)
    return None


def share_memory(a: Array, b: Array) -> bool:
    """Whether two arrays have a byte in common. A case too hard to decide counts as one."""
    try:
        return np.shares_memory(a, b, max_work=_OVERLAP_WORK)
    except np.exceptions.TooHardError:
        return True


def same_elements(output: Array, other: Array) -> bool:
    """Whether each element of the output lies where the other array has the element that goes with it."""
    if other.dtype != output.dtype or address(other) != address(output):
        return False
    spread = np.broadcast_to(other, output.shape)
    places = zip(output.shape, output.strides, spread.strides, strict=True)
    return all(a == b for length, a, b in places if length > 1)


def contiguous_copy(array: Array, inner_size: int | None = None) -> Array:
    """A copy in C order. With `inner_size`, the innermost dimension is spread to that length."""
    if inner_size is not None:
        array = np.broadcast_to(array, (*array.shape[:-1], inner_size))
    return np.array(array, order="C", copy=True)
