"""What a run knows of a target so far."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from tunegen.grid import REFERENCE
from tunegen.harness.journal import Journal
from tunegen.harness.outcomes import told
from tunegen.harness.protocol import Outcome, Result
from tunegen.harness.report import Report
from tunegen.harness.simulate import Space
from tunegen.public.target import Target


class Prospect:
    """A target, and what became of its candidates by now. `path` is the manifest that it is written to."""

    def __init__(self, target: Target, journal: Journal, path: Path) -> None:
        self.target = target
        self.journal = journal
        self.path = path
        self.outcomes: dict[str, Outcome] = {}
        self.screened: dict[str, dict[str, float]] = {}
        self.untried = 0
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.spaces: list[Space] = []

    @property
    def gain(self) -> float:
        """The best ratio to the default that the screening saw in any regime."""
        return max((ratio for ratios in self.screened.values() for ratio in ratios.values()), default=1.0)

    @property
    def default_is_known(self) -> bool:
        """Whether all that an untuned box could run went through the gate, so that a final has the right baseline."""
        chain = {item.suffix for item in self.target.spec.fallback.items} - {REFERENCE}
        return chain <= self.outcomes.keys()

    def report(self, result: Result | None, problem: str, path: Path | None = None) -> Report:
        """The report, with what became of each candidate."""
        seconds = {name: round(taken, 3) for name, taken in self.seconds.items()}
        return Report(
            self.target.key, result, problem, told(self.outcomes, result, self.screened), str(path or ""), seconds,
            self.untried, scope=self.target.spec.scope,
        )  # fmt: skip
