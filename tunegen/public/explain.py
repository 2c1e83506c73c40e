"""Why a kernel runs what it runs: every tier with its state, the evidence, and what differs on a miss."""

from __future__ import annotations

from typing import Any

import msgspec

from tunegen.box import Box, this_box
from tunegen.choosing.document import PROVENANCE
from tunegen.choosing.resolve import Choice
from tunegen.errors import KernelNotFound
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import find_keys
from tunegen.public.setting import process_setting


class Evidence(msgspec.Struct, frozen=True):
    """What a race found. `margin` is how much slower the runner-up is."""

    ratio: float
    interval: tuple[float, float]
    baseline: str = ""
    pairs: int = 0
    noise: float = 0.0
    runner_up: str = ""
    margin: float = 0.0


class Explanation(msgspec.Struct, frozen=True):
    """Why one kernel and element type runs what it runs for these sizes.

    `tiers` are all places that were asked for a variant, `value_tiers` those that were asked for the values of the
    parameters; `values` come from `values_source`.
    """

    kernel: str
    element_type: str
    sizes: dict[str, int]
    regime: str
    emitted: str
    source: str
    state: str
    reason: str
    tiers: tuple[dict[str, str], ...]
    evidence: dict[str, Any]
    box: Box
    values: dict[str, Any] = {}
    values_source: str = ""
    value_tiers: tuple[dict[str, str], ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The explanation as text."""
        sizes = ", ".join(f"{k}={v}" for k, v in self.sizes.items())
        regime = f"regime `{self.regime}`" if self.regime else "the unconditional regime"
        call = f"{self.kernel}[{self.element_type}]" + (f"({sizes})" if sizes else "")
        threads = f"{self.box.threads} thread{'s' if self.box.threads > 1 else ''}"
        lines = [f"{call}: {self.emitted} from {self.source}, in {regime}",
                 f"box: {self.box.cpu}, {threads}, {self.box.id}"]  # fmt: skip
        lines += map(_tier_line, self.tiers)
        return lines + self._evidence_lines() + self._value_lines()

    def _value_lines(self) -> list[str]:
        if not self.values:
            return []
        values = ", ".join(f"{name}={value}" for name, value in self.values.items())
        return [f"  parameters: {values} from {self.values_source}", *(f"  {_tier_line(t)}" for t in self.value_tiers)]

    def _evidence_lines(self) -> list[str]:
        if self.source == "profile" and PROVENANCE in self.evidence:
            return [f"  profile: {self.evidence[PROVENANCE]}"]
        try:
            e = msgspec.convert(self.evidence, Evidence)
        except msgspec.ValidationError:
            return []
        low, high = e.interval
        lines = [
            f"  evidence: {e.ratio:.2f} times the default {e.baseline} "
            f"(interval {low:.2f} to {high:.2f}, {e.pairs} pairs, noise {e.noise:.1%})"
        ]
        if e.runner_up:
            lines.append(f"  runner-up: {e.runner_up}, {e.margin:.1%} slower")
        return lines


def explain(kernel: str | KernelMethods, element_type: str | None = None, **sizes: int) -> Explanation:
    """Why `kernel` ("gemm", "mylib:gemm", "gemm[f32]") runs what it runs for these sizes.

    Without sizes it explains the unconditional regime. Raises `KernelNotFound` for an unknown kernel, element type or
    size symbol.
    """
    if isinstance(kernel, str):
        kernel, (first, *_) = find_keys(f"{kernel}[{element_type}]" if element_type and "[" not in kernel else kernel)
        element_type = first.name
    types = [t.name for t in kernel.signature.element_types]
    chosen_type = element_type or types[0]
    if chosen_type not in types:
        raise KernelNotFound(f"{kernel.name} has no element type {chosen_type!r}; there are {', '.join(types)}")
    unknown = set(sizes) - set(kernel.signature.sizes)
    if unknown:
        raise KernelNotFound(f"{kernel.name} has no size {', '.join(sorted(unknown))}; "
                             f"there are {', '.join(kernel.signature.sizes)}")  # fmt: skip
    stamp = kernel.stamp.get(chosen_type)
    if stamp is None:
        raise KernelNotFound(f"{kernel.name} is not stamped, because TUNE_MODE is not normal")
    regime = _regime(kernel, stamp.choices, {**kernel.values[chosen_type], **sizes})
    choice = stamp.choices[regime]
    tiers = kernel.consult(next(t for t in kernel.signature.element_types if t.name == chosen_type), regime)
    evidence = next((c.evidence for c in choice.consulted if c.usable), {})
    return Explanation(
        kernel.name, chosen_type, sizes, choice.condition, choice.emitted or "", choice.source, choice.state,
        choice.reason, tuple(_tier(c) for c in tiers), evidence, this_box(), *_values(kernel, chosen_type),
    )  # fmt: skip


def _values(kernel: KernelMethods, name: str) -> tuple[dict[str, Any], str, tuple[dict[str, str], ...]]:
    """The values that calls use, where they come from, and what every tier says of them."""
    if not kernel.spec.schema:
        return {}, "", ()
    element_type = next(t for t in kernel.signature.element_types if t.name == name)
    choice = kernel.value_choices[name]
    asked = process_setting().values(kernel.spec, element_type)
    return dict(choice.values), choice.source, tuple(_tier(c) for c in asked.consulted)


def _regime(kernel: KernelMethods, choices: tuple[Choice, ...], names: dict[str, Any]) -> int:
    """The number of the regime that a call with these sizes, and these values of parameters, would take."""
    for number, condition in enumerate(kernel.spec.fallback.conditions):
        if choices[number].emitted is not None and set(condition.names) <= set(names) and condition(names):
            return number
    return len(choices) - 1


def _tier(consulted: Any) -> dict[str, str]:
    names = ("tier", "source", "suffix", "state", "reason", "path")
    return {name: str(getattr(consulted, name, "")) for name in names}


def _tier_line(tier: dict[str, str]) -> str:
    what = f"{tier['suffix']}: " if tier["suffix"] else ""
    reason = f" ({tier['reason']})" if tier["reason"] else ""
    path = f" [{tier['path']}]" if tier["path"] else ""
    return f"  {tier['tier']}: {what}{tier['state']}{reason}{path}"
