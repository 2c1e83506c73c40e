"""The bench: runners of one kernel's variants on the operands of its cases, sampled round by round in many places.

How fast a variant is depends on where its operands lie: their offsets within a page decide which loads and stores seem
to touch the same line, and which physical pages they got decides what shares a set of the cache. On one Zen 4 box the
ratio of two layernorm variants was 0.90 in one process and 1.10 in the next, each with an interval of 1 %, and the time
of a small matrix product trebled in one allocation out of ten. A verdict from one allocation is a verdict about that
allocation. So each round has its operands in another place, and all runners of a round share it.
"""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from tunegen.cases import Case
from tunegen.harness import race
from tunegen.harness.measure import ClockError, Operands, Runner, size_eviction
from tunegen.harness.noise import last_cache_bytes
from tunegen.harness.problems import make_inputs, operands
from tunegen.harness.race import PLACES
from tunegen.making.spec import Spec
from tunegen.signature import ElementType

FEWEST_PLACES = 2
PLACES_BYTES = 256 << 20
"""All places of a case stay within this: large operands, whose pages lie anywhere, have fewer."""
STEP_BYTES = 16
"""Operands lie at multiples of this, as allocators give them."""


class Sampling(Protocol):
    """What a contest asks for samples: a bench, or a replay of a recorded space."""

    def sample(self, suffix: str, case_name: str, number: int = 0) -> float:
        """Nanoseconds per call of a variant on a case, in the round of this number."""
        ...

    def move(self, series: int) -> None:
        """Lays all operands in the places of this series from now on, so that races do not share their luck."""
        ...


class Bench:
    """Runners of one kernel by (suffix, case), made when they are first sampled."""

    def __init__(self, spec: Spec, element_type: ElementType, variants: Mapping[str, Callable[..., Any]]) -> None:
        self.spec = spec
        self.element_type = element_type
        self.variants = variants
        self.values: dict[str, list[Any]] = {}
        self.operands: dict[str, list[Operands]] = {}
        self.runners: dict[tuple[str, str], Runner] = {}
        self.last: Operands | None = None
        self.series = 0
        self.restore = [i for i, p in enumerate(spec.signature.parameters) if getattr(p, "role", "") == "inout"]

    def sample(self, suffix: str, case_name: str, number: int = 0) -> float:
        """Nanoseconds per call of a variant on a case. Raises `race.Refused` when the clock showed none."""
        places = self._places(case_name)
        key = (suffix, case_name)
        if key not in self.runners:
            self.runners[key] = Runner(self.variants[suffix], places[number % len(places)])
            self.runners[key].warm_up()
        runner = self.runners[key]
        runner.operands = places[number % len(places)]
        try:
            # whoever ran last, and whoever was told about it, left the caches to others; a long call hardly notices,
            # unless the last one was on other operands
            if not runner.operands.cold and (runner.repetitions > 1 or runner.operands is not self.last):
                runner.settle()
            self.last = runner.operands
            return runner.sample()
        except ClockError:
            raise race.Refused(suffix, case_name, 0) from None

    def move(self, series: int) -> None:
        """Lays all operands in the places of this series from now on."""
        if series == self.series:
            return
        self.series = series
        self.operands.clear()
        self.runners.clear()
        if self.restore:
            # the first place holds what calls have updated since
            self.values.clear()
        self.last = None

    def _places(self, case_name: str) -> list[Operands]:
        """The operands of a case, which all runners share, place by place: hot or cold, as the case is declared."""
        if case_name not in self.operands:
            case = next(case for case in self.spec.cases if case.name == case_name)
            values = self._values(case)
            if case.cold and (last := last_cache_bytes()):
                size_eviction(last)
            # a cold case has many copies of its own
            count, first = 1 if case.cold else count_for(values), PLACES * self.series
            self.operands[case_name] = [
                Operands([placed(value, place, i) for i, value in enumerate(values)], self.restore, cold=case.cold)
                for place in range(first, first + count)
            ]
        return self.operands[case_name]

    def _values(self, case: Case) -> list[Any]:
        """What the operands of a case hold, kept for the next places unless they are large."""
        if case.name in self.values:
            return self.values[case.name]
        inputs = make_inputs(self.spec, self.element_type, case.sizes, seed=0, optional=False)
        made = list(operands(self.spec, self.element_type, case.sizes, inputs).values())
        if count_for(made) == PLACES:
            self.values[case.name] = made
        return made


def count_for(values: list[Any]) -> int:
    """In how many places operands are laid."""
    used = sum(value.nbytes for value in values if isinstance(value, np.ndarray))
    return max(FEWEST_PLACES, min(PLACES, PLACES_BYTES // max(used, 1)))


def placed(value: Any, place: int, position: int) -> Any:
    """An array in a place: where numpy put it in the first, elsewhere within a page in others, the same in every run.

    Other values, and arrays that are not contiguous, are as they were.
    """
    if place == 0 or not isinstance(value, np.ndarray) or not value.flags.c_contiguous:
        return value
    offset = STEP_BYTES * random.Random(f"{place} {position}").randrange(mmap.PAGESIZE // STEP_BYTES)
    buffer = np.empty(value.nbytes + 2 * mmap.PAGESIZE, np.uint8)
    start = -buffer.ctypes.data % mmap.PAGESIZE + offset
    laid = buffer[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
    laid[...] = value
    return laid
