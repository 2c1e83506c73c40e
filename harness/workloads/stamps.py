"""One process, several stamps: the same program under the reference, untuned, and with the manifest of this box."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from tunegen import knobs, load
from tunegen.harness.one_thread import keep_to_one
from tunegen.public.scope import find_scope
from tunegen.public.status import Row, tune_status

REFERENCE, UNTUNED, TUNED = "reference", "untuned", "tuned"
SETTINGS = (REFERENCE, UNTUNED, TUNED)


class Stamps:
    """Stamps a scope's kernels for one setting after the other. Leaving it puts the environment and stamps back."""

    def __init__(self, scope: str, kernels: Sequence[str]) -> None:
        """`kernels` are those that the program calls: what `status` is about."""
        self.scope = scope
        self.kernels = kernels
        self._exit = ExitStack()
        self._environments: dict[str, dict[str, str | None]] = {}
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> Stamps:
        watched: tuple[knobs.Knob[Any], ...] = (knobs.MODE, knobs.POLICY, knobs.HOME, knobs.MANIFEST)
        environment = knobs.child_environment()
        self._before = {knob.name: environment.get(knob.name) for knob in watched}
        empty = Path(self._exit.enter_context(TemporaryDirectory()))
        tuned = {**self._before, knobs.MODE.name: None, knobs.POLICY.name: None}
        self._environments = {
            REFERENCE: {**tuned, knobs.POLICY.name: "reference"},
            UNTUNED: {**tuned, knobs.HOME.name: str(empty), knobs.MANIFEST.name: None},
            TUNED: tuned,
        }
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._exit.close()
        self._stamp(self._before)

    def use(self, setting: str) -> None:
        """Stamps the kernels anew, as a fresh process with this setting would."""
        self._stamp(self._environments[setting])

    def status(self, element_type: str) -> list[Row]:
        """What is stamped now, for one element type."""
        rows = tune_status(self.scope, kernels=self.kernels)
        return [row for row in rows if row.element_type == element_type]

    def _stamp(self, environment: dict[str, str | None]) -> None:
        knobs.change(environment)
        load(self.scope)
        keep_to_one(find_scope(self.scope).kernels[name] for name in self.kernels)
