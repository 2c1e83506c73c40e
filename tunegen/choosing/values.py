"""Values of a kernel's parameters: one pure function from a kernel, a box and tiers to a complete set.

The tiers are those that winners come from, and a set of values passes the same states on its way. A set is taken as a
whole from one tier; only what a session forces may be partial, and stands on top of what the tiers below it say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from tunegen.box import Box
from tunegen.choosing.document import Entry
from tunegen.choosing.published import Generation
from tunegen.choosing.resolve import USABLE, Outcome, State, Tier, foreign, tiers_for
from tunegen.errors import ParameterError
from tunegen.making.spec import Spec, digest_of
from tunegen.parallel import Serial
from tunegen.parameters import Key, Schema, Value
from tunegen.signature import ElementType

Source = Literal["session", "published", "manifest", "profile", "default"]
TUNED_SOURCES: tuple[Source, ...] = ("session", "published", "manifest")
DEFAULTS = "portable defaults"
_SOURCES: dict[str, Source] = {"pin": "session", "published": "published", "manifest": "manifest", "profile": "profile"}


class ConsultedValues(msgspec.Struct, frozen=True):
    """One set of values that was looked at: from which tier, and what became of it."""

    tier: str
    source: Source
    state: State
    reason: str = ""
    path: str = ""
    values: dict[str, Value] = {}
    evidence: dict[str, Any] = {}

    @property
    def usable(self) -> bool:
        """Whether these values hold here."""
        return self.state in USABLE


class ValueChoice(msgspec.Struct, frozen=True):
    """The values that a kernel and element type uses. `consulted` has every tier, from the highest to the defaults.

    `state` and `reason` are those of the set that is used; if no tuned tier has one, those of the first that should.
    """

    values: dict[str, Value]
    source: Source
    state: State
    reason: str
    path: str
    consulted: tuple[ConsultedValues, ...]
    evidence: dict[str, Any] = {}

    @property
    def tuned(self) -> bool:
        """Whether these values were chosen on this box, or for it."""
        return self.source in TUNED_SOURCES


def parts_of(key: Key) -> dict[str, str]:
    """The parts of the digest of values: all of their key, as text."""
    return {name: str(part) for name, part in msgspec.structs.asdict(key).items()}


def values_entry(key: Key, values: Mapping[str, Value], evidence: Mapping[str, Any] | None = None) -> Entry:
    """The entry of a manifest that says a complete set of values holds for `key`."""
    parts = parts_of(key)
    return Entry([], digest_of(parts), dict(values), parts, {}, dict(evidence or {}))


def place_of(key: Key) -> tuple[str, str]:
    """The scope and the name under which a manifest has the entries of `key`."""
    return key.library, f"{key.kernel}[{key.element_type}]"


def judge(entry: Entry, key: Key, schema: Schema) -> Outcome:
    """Whether the values of an entry hold for `key` and its schema, wherever the entry comes from."""
    parts = parts_of(key)
    if entry.digest and entry.digest != digest_of(parts):
        changed = [f"{name} changed from {entry.parts.get(name, 'nothing')} to {now}" for name, now in parts.items()
                   if entry.parts.get(name) != now]  # fmt: skip
        return Outcome("stale", ", ".join(changed) or "the digest does not match what the entry says of itself")
    try:
        schema.check(entry.params)
    except ParameterError as error:
        return Outcome("invalid", str(error))
    return Outcome("ok") if entry.digest else Outcome("unverified", "written by hand, without a digest")


def base_of(entries: Sequence[Entry], key: Key, schema: Schema) -> dict[str, Value] | None:
    """The newest values among a kernel's entries that hold for `key`, which a partial set completes; None without."""
    found = (e for e in entries if e.params and judge(e, key, schema).state in USABLE)
    return next((schema.check(entry.params) for entry in found), None)


def resolve_values(
    spec: Spec, element_type: ElementType, box: Box, tiers: Sequence[Tier], generation: Generation | None = None
) -> ValueChoice:
    """Takes a complete set of values from the highest tier that has a usable one. Never raises for data.

    `generation` has the published values. A kernel that never uses threads takes what was found with any number.
    """
    consulted: list[ConsultedValues] = []
    default = ConsultedValues(DEFAULTS, "default", "ok", values=spec.schema.defaults)
    below = default
    if spec.schema:
        for tier in reversed(tiers_for(spec, tiers)):
            found = list(_from_tier(tier, spec, element_type, box, generation, below.values))
            below = next((c for c in found if c.usable), below)
            consulted[:0] = found
    wanted = [c for c in consulted if c.source in TUNED_SOURCES and c.state != "missing"]
    missing = dict.fromkeys(c.reason for c in consulted if c.state == "missing" and c.reason)
    asked = ConsultedValues("", "default", "missing", below.reason or "; ".join(missing))
    if below.source in TUNED_SOURCES or not spec.schema:
        asked = below
    elif wanted and not below.reason:
        asked = wanted[0]
    return ValueChoice(below.values, below.source, asked.state, asked.reason, asked.path, (*consulted, default),
                       below.evidence)  # fmt: skip


def _from_tier(
    tier: Tier, spec: Spec, element_type: ElementType, box: Box, generation: Generation | None,
    below: Mapping[str, Value],
) -> Iterator[ConsultedValues]:  # fmt: skip
    """What a tier says. `below` is what holds without it."""
    key, name = spec.tuning_key(element_type), spec.key(element_type)
    source = _SOURCES.get(tier.source, "default")

    def consulted(outcome: Outcome, values: Mapping[str, Value] = below, evidence: Any = None) -> ConsultedValues:
        kept = dict(values) if outcome.state in USABLE else {}
        return ConsultedValues(tier.name, source, outcome.state, outcome.reason, tier.path, kept, evidence or {})

    if source == "default":
        yield consulted(Outcome("ok", tier.note), spec.schema.defaults)
    elif (forced := tier.values.get(f"{spec.scope}:{name}", tier.values.get(name))) is not None:
        yield _forced(tier, source, spec.schema, forced, below)
    elif source == "published":
        found = generation.get(key, box, any_threads=isinstance(spec.parallel, Serial)) if generation else None
        yield consulted(Outcome("ok"), found) if found is not None else consulted(Outcome("missing", tier.note))
    elif tier.manifest is None or tier.manifest.status == "not_found":
        yield consulted(Outcome(tier.state, tier.note))
    elif tier.manifest.status != "loaded":
        yield consulted(Outcome("invalid", f"the manifest is {tier.manifest.status}: {tier.manifest.problem}"))
    else:
        entries = tier.manifest.values(spec.scope, name)
        for entry in entries:
            unlike = foreign(tier.manifest, spec, box)
            outcome = Outcome("foreign", unlike) if unlike else judge(entry, key, spec.schema)
            yield consulted(outcome, entry.params, entry.evidence)
        if not entries:
            yield consulted(Outcome("missing", tier.note))


def _forced(
    tier: Tier, source: Source, schema: Schema, forced: Mapping[str, Any], below: Mapping[str, Value]
) -> ConsultedValues:
    try:
        values = schema.completed(forced, below)
    except ParameterError as error:
        return ConsultedValues(tier.name, source, "invalid", str(error), tier.path)
    return ConsultedValues(tier.name, source, "ok", "", tier.path, values)
