"""How a kernel is split over threads: which size is cut, from when on, into how many shares. Or why it is not."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tunegen.errors import ExpressionError
from tunegen.expressions import SizeCondition, size_condition


class Serial(msgspec.Struct, frozen=True):
    """A kernel that runs on the caller's thread alone, and the reason."""

    reason: str


class Split(msgspec.Struct, frozen=True):
    """A kernel whose calls are split where `when` holds: the longest of the sizes `over`, the first on a tie, is cut
    into shares.

    A share has `grain` units of that size, the last one what remains; grain is a number or the name of an int
    parameter. 0 stands for one equal share a thread: from 128 units on it is rounded up to a multiple of 16, so that
    cache lines and vectors stay whole. `participants` names the int parameter that limits the threads of a call; 0
    there, or "" here, is no limit.
    """

    over: tuple[str, ...]
    when: SizeCondition
    grain: int | str = 0
    participants: str = ""

    @property
    def text(self) -> str:
        """All of it, as the identity of a native entry."""
        return f"{' or '.join(self.over)} if {self.when.text} by {self.grain} on {self.participants or 'all'}"


class WrittenSplit(msgspec.Struct, frozen=True):
    """A `Split` as it was written, before its names are checked against a kernel's."""

    over: tuple[str, ...]
    when: str
    grain: int | str
    participants: str

    def read(self, sizes: Collection[str], parameters: Collection[str]) -> Split:
        """The split for a kernel with these sizes and int parameters. Raises `ExpressionError` for unknown names."""
        if not self.over or (unknown := [size for size in self.over if size not in sizes]):
            wrong = unknown[0] if self.over else ""
            raise ExpressionError(f"split over {wrong!r}: the sizes are {', '.join(sizes)}")
        named = [name for name in (self.grain, self.participants) if isinstance(name, str) and name]
        if unknown := [name for name in named if name not in parameters]:
            raise ExpressionError(f"split: {unknown[0]!r} is no int parameter; there are {', '.join(parameters)}")
        if not isinstance(self.grain, str) and (type(self.grain) is not int or self.grain < 0):
            raise ExpressionError(f"split: grain={self.grain!r} is no whole number from 0 up")
        return Split(self.over, size_condition(self.when, (*sizes, *parameters)), self.grain, self.participants)


Parallel = WrittenSplit | Serial
"""What a declaration may say."""


def serial(reason: str) -> Serial:
    """For `tune(parallel=...)`: this kernel never uses threads, for a reason. So its choices hold for any number."""
    return Serial(reason)


def split(*over: str, when: str, grain: int | str = 0, participants: str = "") -> WrittenSplit:
    """For `tune(parallel=...)`: calls for which `when` holds are split over threads along the longest size of `over`.

    `when` is a condition on sizes and int parameters, such as "N >= parallel.minimum_elements". A variant then sees a
    part of that size: what it computes for an element must not depend on where the parts begin and end. A kernel of
    operands of any rank is split over "N", and its grain counts elements. Every output has each size of `over`.
    """
    return WrittenSplit(over, when, grain, participants)
