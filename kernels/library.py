"""The scope that all kernels of this library join, and decorators that several of them share."""

from collections.abc import Callable, Sequence

from tunegen import tune_scope

scope = tune_scope(name="kernels", templates="../templates", tuner="../harness/tune_kernels.py", profiles="profiles")

Mark = Callable[[Callable[..., None]], Callable[..., None]]
"""A decorator of a reference function: a row, a parameter."""


def together(marks: Sequence[Mark]) -> Mark:
    """Several decorators as one: the first stands on top."""

    def mark(fn: Callable[..., None]) -> Callable[..., None]:
        for one in reversed(marks):
            fn = one(fn)
        return fn

    return mark
