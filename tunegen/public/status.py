"""Status: what is stamped, why, and the log lines that say so."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from tunegen.cases import facts
from tunegen.choosing.document import PROVENANCE
from tunegen.choosing.resolve import Choice, Stamp
from tunegen.grid import REFERENCE
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import Scope, chosen_scopes, find_keys
from tunegen.public.sources import refresh
from tunegen.signature import ElementType


class Regime(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one regime; `condition` is "" for the unconditional one.

    `tuned` is true where no case falls in the regime, too: there is nothing to tune. `provenance` is there where the
    variant comes from a profile: which one, and where that is from.
    """

    condition: str
    asked: str
    emitted: str
    source: str
    state: str
    reason: str
    tuned: bool
    provenance: str = ""


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one kernel and element type. The plain fields are those of the unconditional regime.

    `asked` is the suffix of the entry that was looked at first, `emitted` the one that runs.
    """

    kernel: str
    element_type: str
    asked: str
    emitted: str
    source: str
    state: str
    reason: str
    scope: str
    path: str
    tuned: bool
    regimes: tuple[Regime, ...]
    provenance: str = ""

    def __str__(self) -> str:
        return f"{self.key}: {self.emitted} ({self._detail()})"

    @property
    def key(self) -> str:
        """The kernel and element type as a manifest names them: `gemm[f32]`."""
        return f"{self.kernel}[{self.element_type}]"

    def _detail(self) -> str:
        source = f"{self.source} {self.provenance}" if self.provenance else self.source
        return source if self.tuned and self.state == "ok" else f"{source}: {self._why()}"

    def _why(self) -> str:
        if self.state == "missing":
            return self.reason
        if self.state == "ok":
            return "not tuned for " + ", ".join(r.condition for r in self.regimes if not r.tuned)
        asked = f"{self.asked} " if self.asked and self.asked != self.emitted else ""
        return f"{asked}{self.state}" + (f", {self.reason}" if self.reason else "")


def tune_status(*scope_names: str, kernels: Iterable[str] | None = None) -> list[Row]:
    """A row per kernel and element type of the scopes declared by now (or of those named). Stamps what is not stamped.

    `kernels` narrows it to kernels by name: "gemm", "mylib:gemm", "gemm[f32]". Raises `ScopeNotFound` for a scope that
    cannot be found, `KernelNotFound` for a kernel that no scope declares.
    """
    return [row for kernel, types in _keys(chosen_scopes(scope_names), kernels) for row in _rows(kernel, types)]


def coming_row(kernel: KernelMethods, element_type: ElementType) -> Row:
    """The row that a `load` would lead to, as manifests are now. Stamps nothing."""
    return _row(kernel, element_type.name, kernel.coming(element_type))


def _keys(chosen: Sequence[Scope], names: Iterable[str] | None) -> list[tuple[KernelMethods, tuple[ElementType, ...]]]:
    if names is not None:
        return [find_keys(name, list(chosen)) for name in names]
    return [(kernel, kernel.signature.element_types) for scope in chosen for kernel in scope.kernels.values()]


def _rows(kernel: KernelMethods, types: Iterable[ElementType]) -> list[Row]:
    stamps = kernel.stamp
    return [_row(kernel, t.name, stamps.get(t.name)) for t in types]


def _row(kernel: KernelMethods, element_type: str, stamp: Stamp | None) -> Row:
    if stamp is None:
        regimes = [Regime("", "", REFERENCE, REFERENCE, "missing", "TUNE_MODE is not normal", False)]
    else:
        regimes = _regimes(kernel, stamp)
    path = stamp.default.path if stamp is not None else ""
    last, tuned = regimes[-1], all(regime.tuned for regime in regimes)
    return Row(
        kernel.name, element_type, last.asked, last.emitted, last.source, last.state, last.reason, kernel.spec.scope,
        path, tuned, tuple(regimes), last.provenance,
    )  # fmt: skip


def _regimes(kernel: KernelMethods, stamp: Stamp) -> list[Regime]:
    spec = kernel.spec
    last = len(stamp.choices) - 1
    needed = {spec.regime_of(facts(spec.signature, case.sizes)) for case in spec.cases} or {last}
    return [_regime(choice, choice.tuned or i not in needed) for i, choice in enumerate(stamp.choices)]


def _regime(c: Choice, tuned: bool) -> Regime:
    evidence = next((consulted.evidence for consulted in c.consulted if consulted.usable), {})
    provenance = str(evidence.get(PROVENANCE, "")) if c.source == "profile" else ""
    return Regime(c.condition, c.asked, c.emitted or "", c.source, c.state, c.reason, tuned, provenance)


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """What `tunegen status --json` prints."""
    return {
        "kernels": [msgspec.to_builtins(row) for row in rows],
        "tuned": sum(row.tuned for row in rows),
        "total": len(rows),
    }


def titles(places: Sequence[tuple[str, str]]) -> list[str]:
    """Names of keys of some scopes: `gemm[f32]`, or `mylib:gemm[f32]` where several scopes have a key of this name."""
    count = Counter(key for _, key in set(places))
    return [f"{scope}:{key}" if count[key] > 1 else key for scope, key in places]


def row_lines(rows: Sequence[Row]) -> list[str]:
    """A line for each row, as `str` makes it, with the scope where the name alone does not say which kernel it is."""
    named = zip(titles([(row.scope, row.key) for row in rows]), rows, strict=True)
    return [f"{title}{str(row).removeprefix(row.key)}" for title, row in named]


def status_lines(rows: Sequence[Row]) -> list[str]:
    """The status as text: a head, a line per kernel and element type, and a hint when something is not tuned."""
    tuned = sum(row.tuned for row in rows)
    lines = [f"tune status ({tuned}/{len(rows)} kernels tuned for this box):"]
    for line, row in zip(row_lines(rows), rows, strict=True):
        lines.append(f"  {line}")
        lines += [f"    if {r.condition}: {r.emitted or 'passed on'} ({r.source})" for r in row.regimes if r.condition]
    untuned = dict.fromkeys(row.scope for row in rows if not row.tuned)
    if untuned:
        lines.append(f"  hint: run `tunegen tune {' '.join(untuned)}`, or start with `-- --tune`")
    return lines


def log_tune_status(name: str = "tunegen") -> None:
    """Logs the status at INFO under `name`; silent without kernels.

    In a program that never configured logging the lines go to stderr.
    """
    rows = tune_status()
    if not rows:
        return
    text = f"{name}: " + "\n".join(status_lines(rows))
    import logging

    logger = logging.getLogger(name)
    if logger.hasHandlers():
        logger.info("%s", text)
    else:
        sys.stderr.write(text + "\n")


def load(*scope_names: str) -> None:
    """Reads manifests and templates again and stamps every kernel anew: of all scopes, or of those named.

    Raises `ScopeNotFound` for a scope that cannot be found.
    """
    chosen = chosen_scopes(scope_names)
    refresh()
    for scope in chosen:
        for kernel in scope.kernels.values():
            kernel.reload()
