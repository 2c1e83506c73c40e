"""What a trial asks of a bench, and what it answers: settings in, decisions out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from tunegen.cases import Sizes
from tunegen.harness import race
from tunegen.parameters import Value

Outcome = Literal["found", "moved", "kept", "skipped", "failed", "unfinished"]
"""`moved`: no crossover, but sizes that lose or win for sure. `kept`: nothing was proven better than what there was.
`skipped`: could not be asked here. `failed`: a setting gave a wrong output, or the callback raised. `unfinished`: time
was over, or the run was interrupted.
"""
Values = Mapping[str, Value]


class Rejected(Exception):
    """A setting whose output is not bit for bit that of the serial run."""

    def __init__(self, setting: int, reason: str) -> None:
        super().__init__(setting, reason)
        self.setting = setting
        self.reason = reason


class TimeOver(Exception):
    """The duration that a calibration may take is over."""


class Bench(Protocol):
    """Where settings are tried."""

    @property
    def threads(self) -> int:
        """Effective threads."""

    @property
    def memory_bytes(self) -> int:
        """What the operands of a call may take."""

    def bytes_of(self, sizes: Sizes) -> int:
        """What the operands of a call take."""

    def path(self, setting: Values, sizes: Sizes) -> Hashable:
        """The code path of a call: which variant runs, in how many shares."""

    def times(self, settings: Sequence[Values], cases: Sequence[Sizes], pairs: int) -> race.Times:
        """Interleaved samples, by "index of the setting", "index of the case". Raises `Rejected` or `TimeOver`."""


class Decision(msgspec.Struct, frozen=True):
    """The answer to one question: `values` of the parameters `names` in force afterwards, and why."""

    names: tuple[str, ...]
    outcome: Outcome
    reason: str
    values: dict[str, Value]
    evidence: dict[str, Any] = {}
