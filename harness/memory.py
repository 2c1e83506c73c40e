"""Memory for the operands of a gate: with room around them, or flush with a page that nobody may touch.

A stray write is seen by the canaries around an operand. A stray read leaves no trace, so an operand is also laid
against a guard page, once with its end and once with its start: there either ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
from math import prod
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Where = Literal["room", "end", "start"]

PAGE = mmap.PAGESIZE
ROOM_BYTES = 64 * 1024
"""Writable memory on both sides of an operand that has room: a variant that strays a little lives on, and is seen."""
MARGIN_BYTES = 512
"""How many bytes of canaries on each side of an operand are looked at."""
CANARY = 0xA5
_PROT_NONE = 0


class Layout(NamedTuple):
    """Where an operand lies, and how many elements its rows are apart beyond their own length."""

    where: Where = "room"
    pad_elems: int = 0


class Framed(NamedTuple):
    """An array, the bytes from before it to after it, and those of them beside it, canaries all.

    They are before it, after it, and between its rows.
    """

    array: Array
    frame: NDArray[np.uint8]
    beside: tuple[NDArray[np.uint8], ...]

    def intact(self) -> bool:
        """Whether nothing but the array's own elements was written."""
        return all(bool((part == CANARY).all()) for part in self.beside)


class Region:
    """Pages between two guard pages."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = -(-max(size_bytes, 1) // PAGE) * PAGE
        whole = mmap.mmap(-1, self.size_bytes + 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        view = np.frombuffer(whole, np.uint8)
        self.bytes = view[PAGE : PAGE + self.size_bytes]
        for start in (0, PAGE + self.size_bytes):
            _forbid(view.ctypes.data + start)


class Memory:
    """A region per operand, used again from problem to problem."""

    def __init__(self) -> None:
        self._regions: dict[str, Region] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], layout: Layout) -> Framed:
        """An array for the operand called `name`, laid out so. What it held for an earlier problem is gone."""
        pad = layout.pad_elems if len(shape) > 1 else 0
        width = shape[-1] + pad if shape else 1
        strides = _strides((*shape[:-1], width) if shape else (), dtype.itemsize)
        size = (prod(shape[:-1]) - 1) * width * dtype.itemsize + shape[-1] * dtype.itemsize if shape else dtype.itemsize
        size = size if prod(shape) else 0
        data = self._region(name, size).bytes
        # not aligned to more than the element is, as the ABI promises no more
        offset = {"start": 0, "end": len(data) - size, "room": ROOM_BYTES + dtype.itemsize}[layout.where]
        frame = data[max(offset - MARGIN_BYTES, 0) : offset + size + MARGIN_BYTES]
        beside = (
            data[max(offset - MARGIN_BYTES, 0) : offset],
            data[offset + size : offset + size + MARGIN_BYTES],
            _gaps(data[offset : offset + size], width * dtype.itemsize, pad * dtype.itemsize),
        )
        for part in beside:
            part[...] = CANARY
        array: Array = np.ndarray(shape, dtype, data, offset if prod(shape) else min(offset, len(data)), strides)
        return Framed(array, frame, beside)

    def _region(self, name: str, size_bytes: int) -> Region:
        needed = size_bytes + 2 * ROOM_BYTES
        found = self._regions.get(name)
        if found is None or found.size_bytes < needed:
            found = self._regions[name] = Region(needed)
        return found


def _gaps(covered: NDArray[np.uint8], pitch_bytes: int, pad_bytes: int) -> NDArray[np.uint8]:
    """What lies between rows that start `pitch_bytes` apart, in the bytes from the first row to the end of the last."""
    if not pad_bytes or not covered.size:
        return covered[:0]
    rows = (covered.size + pad_bytes) // pitch_bytes
    return covered[: (rows - 1) * pitch_bytes].reshape(rows - 1, pitch_bytes)[:, pitch_bytes - pad_bytes :]


def _strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


def _forbid(address: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(PAGE), _PROT_NONE) != 0:
        raise OSError(ctypes.get_errno(), "a guard page could not be made")
