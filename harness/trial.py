"""A trial: answers the questions of a calibration callback by races between forced values, and keeps what it found.

No clock and no kernel in here: a bench gives paired samples of settings, and a test may be the bench. Settings that
take the same code path are never compared, a setting whose output differs from the serial run is out, and sizes beyond
the memory limit are not tried.

A search that saw differences and found no crossover is made once more: both have to agree.
A value is stored where it is proven: at a crossover, or for the best of several settings in two races. Without a
crossover a threshold moves at most as far as was seen: beyond the sizes that lost, or down to the least that won.
Otherwise the value stays what it was. In any case the decision keeps the evidence and the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from tunegen.cases import Sizes
from tunegen.errors import ParameterError
from tunegen.harness import race
from tunegen.harness.crossover import Found, find_crossover
from tunegen.harness.decisions import Bench, Decision, Outcome, Rejected, Values
from tunegen.parameters import Schema, Value

PAIRS = 9
"""Pairs of a comparison: the fewest whose interval forgives one wild sample on either side."""
FINAL_PAIRS = 25
FINALISTS = 3
MARGIN = 0.02
"""One side of a threshold is faster by more than this, with confidence."""
RESOLUTION = 1.3
"""A threshold is bracketed this closely: around it, neither setting gains much."""
REACH = 16
"""How far beyond a grid a search may go, as a factor, when no bounds are given."""


def _agreed(search: Callable[[], Found]) -> Found:
    """A crossover; or what two searches agree on, for without one, somebody else may have been on the box meanwhile."""
    found = search()
    if found.kind == "crossover" or not set(found.compared.values()) - {"tie"}:
        return found
    again = search()
    if again.kind in (found.kind, "crossover"):
        return again
    reason = f"one search says {found.kind}, another one {again.kind}"
    return Found("no stable crossover", None, reason, again.compared)


class Heat(NamedTuple):
    """One race: the settings that ran to its end, their verdicts, and the gain that the default shows over itself."""

    settings: list[Values]
    verdicts: list[race.Verdict]
    floor: float

    def first(self, count: int) -> list[Values]:
        """The fastest settings."""
        order = sorted(range(len(self.settings)), key=lambda i: -self.verdicts[i].ratio)
        return [self.settings[i] for i in order[:count]]


class KernelTrial:
    """The `Trial` that a callback gets. `decisions` are its answers so far, `values` all values in force."""

    def __init__(self, schema: Schema, governing: Sequence[str], element_type: str, base: Values, bench: Bench) -> None:
        """`base` are the values before the trial, `governing` the parameters that mean nothing with one thread."""
        self.schema = schema
        self.governing = governing
        self.element_type = element_type
        self.values: dict[str, Value] = dict(base)
        self.bench = bench
        self.decisions: list[Decision] = []

    @property
    def threads(self) -> int:
        """Effective threads."""
        return self.bench.threads

    def threshold(
        self, name: str, sizes: Callable[[int], Sizes], *, grid: Sequence[int], bounds: tuple[int, int] | None = None
    ) -> int | None:
        """See `tunegen.public.trial.Trial`."""
        if name not in self.schema.native:
            raise KeyError(f"{name!r} is no int parameter; there are {', '.join(self.schema.native)}")
        low, high = bounds or (max(min(grid) // REACH, 1), max(grid) * REACH)
        high = self._largest(sizes, low, high)
        tried = [n for n in grid if low <= n <= high]
        settings = self._extremes(name)
        if name in self.governing and self.threads == 1:
            return self._close((name,), "skipped", "one thread")
        if settings is None:
            return self._close((name,), "skipped", "the rules of the schema leave it one value")
        if high <= low:
            limit = f"{self.bench.memory_bytes >> 20} MiB"
            return self._close((name,), "skipped", f"the least size takes more than the memory limit of {limit}")
        always, never = settings

        def paths(n: int) -> tuple[Hashable, Hashable]:
            return self.bench.path(never, sizes(n)), self.bench.path(always, sizes(n))

        def compare(n: int) -> list[float]:
            times = self.bench.times([never, always], [sizes(n)], PAIRS)
            return [b / a for b, a in zip(times["0", "0"], times["1", "0"], strict=True)]

        def search() -> Found:
            return find_crossover(
                compare, tried or [high], (low, high), paths=paths, margin=MARGIN, resolution=RESOLUTION
            )

        try:
            found = _agreed(search)
        except Rejected as rejected:
            which = "minimum" if rejected.setting else "maximum"
            return self._close((name,), "failed", f"at its {which}: {rejected.reason}")
        return self._threshold(name, found, lambda n: self._switch(name, always, never, sizes(n)))

    def _threshold(self, name: str, found: Found, switch: Callable[[int], int]) -> int | None:
        """What a search means for the value of a threshold."""
        evidence = {
            "kind": found.kind,
            "between": found.between,
            "compared": {str(n): s for n, s in found.compared.items()},
        }
        now = int(self.values[name])
        if found.value is not None:
            return self._close((name,), "found", str(found), {name: switch(found.value)}, evidence)
        seen = {side: [n for n, who in found.compared.items() if who == side] for side in ("below", "above")}
        if found.kind == "never":
            lost = max(seen["below"])
            reason = f"at no size that was tried does it pay, and up to {lost} it loses"
            value = max(now, switch(lost) + 1)
        elif found.kind == "always":
            won = min(seen["above"])
            reason = f"it loses at no size that was tried, and from {won} on it pays"
            value = min(now, switch(won))
        else:
            return self._close((name,), "kept", str(found), {}, evidence)
        moved = value != now
        return self._close((name,), "moved" if moved else "kept", reason, {name: value} if moved else {}, evidence)

    def best(self, candidates: Sequence[Values], sizes: Sequence[Sizes]) -> Values:
        """See `tunegen.public.trial.Trial`."""
        names = tuple(dict.fromkeys(name for candidate in candidates for name in candidate))
        if unknown := [name for name in names if name not in self.schema.names]:
            raise KeyError(f"{unknown[0]!r} is no parameter; there are {', '.join(self.schema.names)}")
        fitting = [s for s in sizes if self.bench.bytes_of(s) <= self.bench.memory_bytes]
        if self.threads == 1 and set(names) <= set(self.governing):
            self._close(names, "skipped", "one thread")
        elif not fitting:
            self._close(names, "skipped", f"all sizes take more than {self.bench.memory_bytes >> 20} MiB")
        else:
            self._race(names, self._different(candidates, fitting), fitting)
        return self.values

    def _race(self, names: tuple[str, ...], settings: list[Values], sizes: Sequence[Sizes]) -> None:
        """Races settings against the first one, which is in force."""
        evidence: dict[str, Any] = {"sizes": list(sizes), "candidates": len(settings) - 1, "rejected": []}
        if len(settings) == 1:
            self._close(names, "kept", "all candidates take the path of the values in force", {}, evidence)
            return
        try:
            outcome, reason, values = self._raced(names, settings, sizes, evidence)
        except Rejected as rejected:
            outcome, reason, values = "failed", f"the values in force: {rejected.reason}", {}
        self._close(names, outcome, reason, values, evidence)

    def _raced(
        self, names: tuple[str, ...], settings: list[Values], sizes: Sequence[Sizes], evidence: dict[str, Any]
    ) -> tuple[Outcome, str, Values]:
        """All, then the finalists, then the winner again. Raises `Rejected` for the values in force."""
        default, *others = settings
        finalists = self._heat(default, others, sizes, PAIRS, evidence).first(FINALISTS)
        if not finalists:
            return "failed", "no candidate gives the output of the serial run", {}
        final = self._heat(default, finalists, sizes, FINAL_PAIRS, evidence)
        evidence["final"] = [self._line(names, *each) for each in zip(final.settings, final.verdicts, strict=True)]
        winner = race.decide(final.verdicts, {}, final.floor)
        if winner is None:
            return "kept", "no candidate beats the values in force beyond the noise", {}
        chosen = final.settings[final.verdicts.index(winner)]
        again = self._heat(default, [chosen], sizes, PAIRS, evidence)
        evidence["confirmed"] = [self._line(names, *each) for each in zip(again.settings, again.verdicts, strict=True)]
        if not again.verdicts or not race.confirmed(again.verdicts[0]):
            return "kept", "a second race did not confirm the winner", {}
        return (
            "found",
            f"{winner.ratio:.2f} times the speed of the values before",
            {name: chosen[name] for name in names},
        )

    def _heat(
        self, default: Values, others: Sequence[Values], sizes: Sequence[Sizes], pairs: int, evidence: dict[str, Any]
    ) -> Heat:
        """One race of all. Settings with a wrong output go to the evidence; raises `Rejected` for the default."""
        left = list(others)
        while True:
            try:
                times = self.bench.times([default, default, *left], sizes, pairs)
            except Rejected as rejected:
                if rejected.setting < 2:
                    raise
                wrong = left.pop(rejected.setting - 2)
                evidence["rejected"].append({"values": dict(wrong), "reason": rejected.reason})
                continue
            cases = [str(i) for i in range(len(sizes))]
            again, *verdicts = (race.compare(times, str(i + 1), "0", cases) for i in range(len(left) + 1))
            return Heat(left, verdicts, max(again.interval[1], 1 / again.interval[0]) - 1)

    @staticmethod
    def _line(names: Sequence[str], setting: Values, verdict: race.Verdict) -> dict[str, Any]:
        values = {name: setting[name] for name in names}
        interval = [round(bound, 4) for bound in verdict.interval]
        return {"values": values, "ratio": round(verdict.ratio, 4), "interval": interval, "pairs": verdict.pairs}

    def _different(self, candidates: Sequence[Values], sizes: Sequence[Sizes]) -> list[Values]:
        """The values in force, then each candidate that the schema admits and that is the first to take its paths."""
        found: dict[tuple[Hashable, ...], Values] = {}
        for candidate in ({}, *candidates):
            try:
                setting = self.schema.completed(candidate, self.values)
            except ParameterError:
                continue
            found.setdefault(tuple(self.bench.path(setting, s) for s in sizes), setting)
        return list(found.values())

    def _extremes(self, name: str) -> tuple[Values, Values] | None:
        """The settings "always" and "never" of a threshold, as far as the rules of the schema admit them; None where
        they admit but one value.
        """
        parameter = next(p for p in self.schema.parameters if p.name == name)
        always, never = (self._admitted(name, int(end or 0)) for end in (parameter.minimum, parameter.maximum))
        if always == never:
            return None
        return {**self.values, name: always}, {**self.values, name: never}

    def _admitted(self, name: str, goal: int) -> int:
        """The value nearest to `goal`, between it and the one in force, that breaks no rule."""
        good, bad = int(self.values[name]), goal
        if self._fits({name: goal}):
            return goal
        while abs(good - bad) > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self._fits({name: middle}) else (good, middle)
        return good

    def _fits(self, values: Values) -> bool:
        try:
            self.schema.completed(values, self.values)
        except ParameterError:
            return False
        return True

    def _largest(self, sizes: Callable[[int], Sizes], low: int, high: int) -> int:
        """The largest n up to `high` whose operands keep the memory limit, to within a few percent; below `low` if
        none does.
        """
        if self.bench.bytes_of(sizes(high)) <= self.bench.memory_bytes:
            return high
        if self.bench.bytes_of(sizes(low)) > self.bench.memory_bytes:
            return low - 1
        while high - low > max(low >> 5, 1):
            middle = (low + high) // 2
            if self.bench.bytes_of(sizes(middle)) <= self.bench.memory_bytes:
                low = middle
            else:
                high = middle
        return low

    def _switch(self, name: str, always: Values, never: Values, sizes: Sizes) -> int:
        """The largest value of a threshold at which a call of these sizes still takes the path of "always"."""
        on = self.bench.path(always, sizes)
        low, high = int(always[name]), int(never[name])
        while high - low > 1:
            middle = (low + high) // 2
            if self.bench.path({**always, name: middle}, sizes) == on:
                low = middle
            else:
                high = middle
        return low

    def _close(
        self, names: tuple[str, ...], outcome: Outcome, reason: str, values: Values | None = None,
        evidence: dict[str, Any] | None = None,
    ) -> int | None:  # fmt: skip
        """Writes a decision down and puts its values in force, where the schema admits them."""
        try:
            self.values = dict(self.schema.completed(values or {}, self.values))
        except ParameterError as error:
            outcome, reason = "kept", f"{reason}; but {error}"
        now = {name: self.values[name] for name in names}
        self.decisions.append(Decision(names, outcome, reason, now, evidence or {}))
        only = self.values[names[0]]
        return only if outcome != "skipped" and type(only) is int else None
