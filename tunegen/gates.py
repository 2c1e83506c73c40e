"""Gates: how close to the reference an answer must be. Dtype-aware, and exact about NaN, Inf, signed zero and bool."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from tunegen.signature import BOOL, ElementType

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]


class Mismatch(msgspec.Struct, frozen=True):
    """The worst element of an output that is not within the gate."""

    index: tuple[int, ...]
    got: float
    expected: float
    bound: str


Nonfinite = Literal["propagate", "ignore"]
"""NaN and infinity: as the reference has them, or anything where the reference's answer is one of them."""

NONFINITE: tuple[str, ...] = get_args(Nonfinite)

GATING = 2
"""Version of how variants are put to a gate: which sizes, seeds and operands. Raised whenever a gate becomes stronger,
so that an entry obtained with a weaker one is stale.

1: one seed per size, canaries around outputs. 2: several seeds, guard pages, padded rows, in place where it is allowed.
"""

BOUND_FACTOR = 8.0
"""How far an error may be above the typical one of a sum."""


class Gate(msgspec.Struct, frozen=True):
    """One gate. `value` is in ULP for `ulp`, a factor for `bound`; `size` is the symbol of the reduction length."""

    kind: Literal["bitwise", "ulp", "bound"]
    value: float = 0.0
    size: str = ""
    nonfinite: Nonfinite = "propagate"

    def __str__(self) -> str:
        values = [repr(self.size)] if self.kind == "bound" else []
        if self.kind == "ulp" or (self.kind == "bound" and self.value != BOUND_FACTOR):
            values.append(repr(self.value))
        if self.nonfinite != "propagate":
            values.append(f"nonfinite={self.nonfinite!r}")
        return f"{self.kind}({', '.join(values)})"

    def oracle_dtype(self, element_type: ElementType) -> np.dtype[Any]:
        """In which precision the reference runs: the next higher one, or the same for a bitwise gate and for bool."""
        if self.kind == "bitwise" or element_type == BOOL:
            return element_type.dtype
        return np.dtype(np.float64 if element_type.name == "f32" else np.longdouble)

    def check(self, got: Array, expected: Array, sizes: Mapping[str, int]) -> Mismatch | None:
        """The worst element of `got` outside the gate, or None.

        `expected` has the oracle's precision. NaN matches NaN, an infinity matches the same infinity, and a value that
        rounds to an infinity may be the largest finite number when that is within the bound. With
        `nonfinite="ignore"` anything goes where the expected value is NaN or infinite. Of bool every byte counts, by
        any gate: 0 or 1, as expected.
        """
        if got.dtype == np.bool_:
            return _check_bytes(got, expected)
        with np.errstate(all="ignore"):
            rounded = expected.astype(got.dtype)
            # equal bits are right by any gate, and most bits are equal
            suspects = np.flatnonzero(_bits(got) != _bits(rounded))
            if not suspects.size:
                return None
            some, wanted, nearest = got.ravel()[suspects], expected.ravel()[suspects], rounded.ravel()[suspects]
            excess, limit = self._excess(some, wanted, nearest, self._scale(rounded, expected, sizes))
            if self.nonfinite == "ignore":
                excess = np.where(np.isfinite(nearest), excess, 0.0)
        if not (excess > 0).any():
            return None
        worst = int(np.argmax(excess))
        at = np.unravel_index(int(suspects[worst]), got.shape)
        text = f"{self} = {float(limit[worst]):.3g}" if self.kind != "bitwise" else str(self)
        return Mismatch(tuple(int(i) for i in at), float(got[at]), float(expected[at]), text)

    def _excess(self, got: Array, expected: Array, rounded: Array, scale: Any) -> tuple[Array, Array]:
        """By how much each element is outside (0 and less: it is within), and what each may be off."""
        if self.kind == "bitwise":
            wrong = (got != rounded) | (np.signbit(got) != np.signbit(rounded))
            wrong &= ~(np.isnan(got) & np.isnan(rounded))
            return wrong.astype(np.float64), np.zeros(got.shape)
        limit = self._limit(rounded, expected, scale)
        error = np.abs(got.astype(expected.dtype) - expected)
        same = (np.isnan(got) & np.isnan(expected)) | (got == rounded)
        near = np.isinf(got) & np.isfinite(expected) & (np.sign(got) == np.sign(expected))
        near &= np.abs(expected) >= np.finfo(got.dtype).max - limit
        finite = np.where(np.isfinite(got) & ~np.isnan(expected), error / limit - 1, np.inf)
        return np.where(same | near, 0.0, finite), limit

    def _scale(self, rounded: Array, expected: Array, sizes: Mapping[str, int]) -> Any:
        """For a bound: root mean square of the whole output, and the square root of the reduction length."""
        if self.kind != "bound":
            return None
        magnitude = _magnitude(rounded, expected)
        return _rms(magnitude[np.isfinite(rounded)]), np.sqrt(max(sizes[self.size], 16))

    def _limit(self, rounded: Array, expected: Array, scale: Any) -> Array:
        info = np.finfo(rounded.dtype)
        if self.kind == "ulp":
            magnitude = np.nan_to_num(np.abs(rounded), nan=0.0, posinf=info.max)
            finite = np.clip(magnitude, info.smallest_subnormal, info.max)
            below = np.nextafter(finite, np.asarray(0, finite.dtype))
            spacing = np.where(finite >= info.max, finite - below, np.spacing(finite))
            return np.asarray(self.value * spacing.astype(expected.dtype))
        rms, length = scale
        allowed = self.value * info.epsneg * np.maximum(_magnitude(rounded, expected), rms) * length
        return np.asarray(np.maximum(allowed, info.smallest_normal))


def _bits(values: Array) -> Array:
    return np.asarray(values.view(f"u{values.itemsize}"))


def _magnitude(rounded: Array, expected: Array) -> Array:
    return np.asarray(np.nan_to_num(np.minimum(np.abs(expected), np.finfo(rounded.dtype).max), nan=0.0))


def _check_bytes(got: Array, expected: Array) -> Mismatch | None:
    """The first byte of a bool output that is not 0 where the expected one is false, or not 1 where it is true."""
    bytes_ = got.view(np.uint8)
    wanted = expected.view(np.uint8) != 0
    wrong = bytes_ != wanted
    if not wrong.any():
        return None
    at = np.unravel_index(int(np.argmax(wrong)), got.shape)
    return Mismatch(tuple(int(i) for i in at), float(bytes_[at]), float(wanted[at]), "bitwise()")


def _rms(magnitude: Array) -> Any:
    """Root mean square, scaled first so that no square overflows."""
    top = magnitude.max(initial=0)
    return top * np.sqrt(np.mean(np.square(magnitude / top))) if top else top


def bitwise(*, nonfinite: Nonfinite = "propagate") -> Gate:
    """Every bit as in the reference at the same precision (any NaN is equal to any NaN)."""
    return Gate("bitwise", nonfinite=nonfinite)


def ulp(n: float, *, nonfinite: Nonfinite = "propagate") -> Gate:
    """At most `n` units in the last place from the exact result."""
    return Gate("ulp", float(n), nonfinite=nonfinite)


def bound(size: str, factor: float = BOUND_FACTOR, *, nonfinite: Nonfinite = "propagate") -> Gate:
    """For a reduction of length `size`: `factor * u * sqrt(max(size, 16)) * max(|expected|, rms(expected))`.

    u is the unit roundoff. Rounding errors of a sum of n terms of random sign grow as u * sqrt(n) times the size of the
    partial sums, which the root mean square of the result stands for; eight times that leaves room for the worst of
    some millions of elements, and none for a wrong answer.
    """
    return Gate("bound", float(factor), size, nonfinite)
