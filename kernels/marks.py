"""Several decorators of reference functions as one, for the kernels of a family that share them."""

from collections.abc import Callable, Sequence

Mark = Callable[[Callable[..., None]], Callable[..., None]]
"""A decorator of a reference function: a row, a parameter."""


def together(marks: Sequence[Mark]) -> Mark:
    """Several decorators as one: the first stands on top."""

    def mark(fn: Callable[..., None]) -> Callable[..., None]:
        for one in reversed(marks):
            fn = one(fn)
        return fn

    return mark
