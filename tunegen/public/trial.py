"""What a calibration callback gets: the questions that it may ask about the parameters of one kernel on this box."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from tunegen.cases import Sizes
from tunegen.parameters import Value


class Trial(Protocol):
    """One exact key on trial: kernel, element type and box. `tune_param(calibrate=fn)` has `fn(trial)` called.

    A callback asks for what it wants to know, and each answer is in force for its later questions:

        def maps(trial: Trial) -> None:
            trial.threshold("parallel.minimum_elements", lambda n: {"N": n}, grid=(1 << 14, 1 << 16, 1 << 18))

    Whoever runs the trial measures, validates each output against the serial run, keeps the limits of time, memory and
    threads, and records what was found, or why nothing was. A question that cannot be asked on this box (a parallel
    threshold with one thread) is skipped with its reason.
    """

    @property
    def element_type(self) -> str:
        """Name of the element type: `f32`."""

    @property
    def threads(self) -> int:
        """Effective threads of this trial, the caller's included."""

    @property
    def values(self) -> Mapping[str, Value]:
        """The values in force: those found so far, on top of those that the box had before."""

    def threshold(
        self, name: str, sizes: Callable[[int], Sizes], *, grid: Sequence[int], bounds: tuple[int, int] | None = None
    ) -> int | None:
        """From which value of a size on something pays: the int parameter `name` at its minimum ("always") is compared
        with `name` at its maximum ("never") at the sizes `sizes(n)`, for n on `grid`, beyond it up to `bounds` (else
        a factor of 16 either way) and in between.

        The value that is in force afterwards; None where the question was skipped. Raises `KeyError` for a parameter
        that the kernel does not have.
        """

    def best(self, candidates: Sequence[Mapping[str, Value]], sizes: Sequence[Sizes]) -> Mapping[str, Value]:
        """The best of several settings of parameters that interact, over all `sizes` together.

        Each candidate is completed from the values in force, which are the default of the race; one that breaks a rule
        of the schema is left out. Returns the values in force afterwards.
        """
