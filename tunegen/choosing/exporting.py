"""From a tuned box to a profile: what a manifest holds that is right today, under a selector."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from tunegen.box import Box
from tunegen.choosing.document import Manifest, RegimeWinner
from tunegen.choosing.profiles import Chosen, Profile, Provenance, Specs
from tunegen.choosing.resolve import Choice, Outcome, Sources, Tier, resolve
from tunegen.choosing.selecting import Selector, architecture_of
from tunegen.choosing.values import resolve_values
from tunegen.errors import ProfileError
from tunegen.grid import REFERENCE
from tunegen.making.spec import Spec
from tunegen.parameters import TUNING_ABI


class Exported(msgspec.Struct, frozen=True):
    """A profile, and why entries of the manifest are not in it, by the kernel's key."""

    profile: Profile
    left_out: dict[str, str]


def from_manifest(
    manifest: Manifest, scope: str, specs: Specs, llvm: str, selector: Selector, provenance: Provenance, *,
    threads: int | None = None, priority: int = 0,
) -> Exported:  # fmt: skip
    """A profile of all that a manifest has for the kernels of a scope, as `write_profile` writes it.

    What is stale, invalid or foreign is left out, with its reason. Raises `ProfileError` when nothing is left, the
    manifest does not say of which box it is, or the selector does not fit that box.
    """
    box = manifest.box
    if box is None:
        problem = manifest.problem or "it does not say of which box it is"
        raise ProfileError((f"the manifest {manifest.path} cannot be exported: {problem}",))
    kernels: dict[str, Chosen] = {}
    left_out: dict[str, str] = {}
    for spec in specs.values():
        for key, chosen, reasons in _chosen(spec, manifest, box, llvm):
            if chosen.regimes or chosen.params:
                kernels[key] = chosen
            if reasons:
                left_out[key] = "; ".join(reasons)
    if not kernels:
        raise ProfileError((f"the manifest {manifest.path} has nothing to export for {scope}",
                            *(f"{key}: {why}" for key, why in left_out.items())))  # fmt: skip
    profile = Profile(
        scope, architecture_of(box), selector, provenance, kernels, TUNING_ABI, threads=threads, priority=priority
    )
    if problem := profile.boxes.problem() or profile.boxes.mismatch(box):
        raise ProfileError((f"the selector does not fit the box that was tuned: {problem}",))
    return Exported(profile, left_out)


def _chosen(spec: Spec, manifest: Manifest, box: Box, llvm: str) -> Iterator[tuple[str, Chosen, list[str]]]:
    tier = Tier("manifest", "manifest", manifest, path=manifest.path)
    for element_type in spec.signature.element_types:
        stamp = resolve(spec, element_type, box, Sources([tier], lambda row: Outcome("ok"), llvm))
        values = resolve_values(spec, element_type, box, [tier])
        regimes = tuple(_winner(spec, choice) for choice in stamp.choices if choice.tuned)
        states = [(choice.state, choice.reason) for choice in stamp.choices if not choice.tuned]
        states += [(values.state, values.reason)] if not values.tuned and spec.schema else []
        reasons = [f"{state}: {reason}" for state, reason in dict.fromkeys(states) if state != "missing"]
        yield spec.key(element_type), Chosen(regimes, values.values if values.tuned else {}), reasons


def _winner(spec: Spec, choice: Choice) -> RegimeWinner:
    suffix = choice.emitted or REFERENCE
    row = spec.grid.find(suffix)
    return RegimeWinner(suffix, choice.condition, dict(row.perm) if row is not None else {})
