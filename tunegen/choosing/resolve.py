"""Who wins: one pure function from a kernel, a box and sources to a stamp.

Nothing here reads a file, an environment variable or a clock: manifests were read, and making a variant is a function
among the sources. So every tier and every state of an entry can be tried without a disk or a compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from tunegen.box import Box, Difference, differences
from tunegen.choosing.document import Entry, Invalid, Manifest
from tunegen.grid import REFERENCE, Row
from tunegen.making.spec import Spec, digest_of
from tunegen.parallel import Serial
from tunegen.requires import parse_requires
from tunegen.signature import ElementType

State = Literal[
    "ok", "missing", "unknown", "ineligible", "declined", "failed", "stale", "foreign", "invalid", "unverified"
]
USABLE: tuple[State, ...] = ("ok", "unverified")
FALLBACK = "fallback"
NO_ENTRY = "no manifest entry"
TUNED_SOURCES = ("pin", "manifest", "published")


class Outcome(msgspec.Struct, frozen=True):
    """Whether a suggestion can be used, and why not.

    `fresh` is set on what is stale through another LLVM alone, and was not refused by the gate since: the digest that
    an entry made now would have. What has `passed` the gate can be used.
    """

    state: State
    reason: str = ""
    fresh: str = ""
    passed: bool = False


class Tier(msgspec.Struct, frozen=True):
    """One place to look: a manifest, one `suffix` for every kernel, or `pins`, which are suffixes by key (`exp[f32]`).

    `state` and `note` are those of an empty one.

    `values` are values of parameters by key (`exp[f32]`, or `mylib:exp[f32]`), where a set may be partial. A tier that
    is `serial` was made on this box with another number of threads: it is for kernels that never use them. One that is
    `own` lies in the folder of the scope, where a name means no other scope's kernel.
    """

    name: str
    source: str
    manifest: Manifest | None = None
    suffix: str = ""
    pins: Mapping[str, str] = {}
    path: str = ""
    note: str = ""
    state: State = "missing"
    values: Mapping[str, Mapping[str, Any]] = {}
    serial: bool = False
    own: bool = False


def not_gated(suffix: str, digest: str) -> Outcome:
    """The word on a winner that was found with another LLVM, where nobody can put it through the gate."""
    return Outcome("stale")


class Sources(msgspec.Struct, frozen=True):
    """All that a choice depends on besides the kernel and the box.

    `tiers` go from the highest to the one above the fallback chain. `make` makes a variant of the kernel and says what
    came of it. `llvm` is the version of the compiler, `namesakes` are the scopes with a kernel of this name.
    `gate_again` says of a suffix that was found with another LLVM, and of the digest that an entry made now would have,
    what the gate says: `ok`, `failed`, or `stale` when it was not asked.
    """

    tiers: Sequence[Tier]
    make: Callable[[Row], Outcome]
    llvm: str
    namesakes: tuple[str, ...] = ()
    gate_again: Callable[[str, str], Outcome] = not_gated


class Consulted(msgspec.Struct, frozen=True):
    """One suggestion that was looked at: from which tier, for which suffix, and what became of it.

    `fresh` and `passed` are those of its outcome.
    """

    tier: str
    source: str
    suffix: str
    state: State
    reason: str
    path: str
    evidence: dict[str, Any] = {}
    fresh: str = ""
    passed: bool = False

    @property
    def usable(self) -> bool:
        """Whether it is what runs."""
        return self.state in USABLE or self.passed


class Choice(msgspec.Struct, frozen=True):
    """What a regime runs. `emitted` is None for a conditional regime that passes its sizes on to the next one.

    `asked`, `state` and `reason` are those of the entry that runs; if no entry of a tuned tier does, those of the first
    that should have.
    """

    condition: str
    asked: str
    emitted: str | None
    source: str
    state: State
    reason: str
    path: str
    consulted: tuple[Consulted, ...]

    @property
    def tuned(self) -> bool:
        """Whether this came from a choice made on this box."""
        return self.source in TUNED_SOURCES and self.state in USABLE


class Stamp(msgspec.Struct, frozen=True):
    """The choices of one kernel and element type, one per regime; the last is unconditional."""

    choices: tuple[Choice, ...]

    @property
    def default(self) -> Choice:
        """The unconditional choice."""
        return self.choices[-1]


def resolve(spec: Spec, element_type: ElementType, box: Box, sources: Sources) -> Stamp:
    """Picks a variant per regime: the first usable suggestion, tier by tier. Never raises for data."""
    regimes = spec.fallback.regimes
    return Stamp(tuple(_choose(spec, element_type, box, sources, i) for i in range(len(regimes))))


def consult(spec: Spec, element_type: ElementType, box: Box, sources: Sources, regime: int) -> list[Consulted]:
    """What every tier says, also below the one that wins; of the fallback chain, up to the first that can run."""
    found = []
    for suggestion in _suggestions(spec, element_type, box, sources, regime):
        found.append(suggestion)
        if suggestion.tier == FALLBACK and suggestion.usable:
            break
    return _gated_again(found, spec, box, sources)


def unstamped(stamp: Stamp, reason: str) -> Stamp:
    """A stamp that could not be put in place: the reference runs, and every regime says why."""
    return Stamp(
        tuple(
            msgspec.structs.replace(choice, emitted=REFERENCE, source=REFERENCE, state="failed", reason=reason)
            for choice in stamp.choices
        )
    )


def _choose(spec: Spec, element_type: ElementType, box: Box, sources: Sources, regime: int) -> Choice:
    consulted = []
    for found in _suggestions(spec, element_type, box, sources, regime):
        consulted.append(found)
        if found.usable:
            break
    consulted = _gated_again(consulted, spec, box, sources)
    chosen = next((c for c in consulted if c.usable), None)
    wanted = [c for c in consulted if c.source in TUNED_SOURCES and c.state != "missing"]
    asked = next((c for c in wanted if c.usable), wanted[0] if wanted else None) or _missing(consulted)
    condition = spec.fallback.regimes[regime]
    emitted, source = (chosen.suffix, chosen.source) if chosen is not None else (None, "fallback")
    return Choice(condition, asked.suffix, emitted, source, asked.state, asked.reason, asked.path, tuple(consulted))


def _gated_again(consulted: list[Consulted], spec: Spec, box: Box, sources: Sources) -> list[Consulted]:
    """What tiers say, after the gate had a word on what another LLVM alone made stale.

    That is for where no choice of this box holds, so that environments with an LLVM each stay out of each other's way.
    """
    first = next((number for number, c in enumerate(consulted) if c.usable), len(consulted))
    if any(c.source in TUNED_SOURCES for c in consulted[first : first + 1]):
        return consulted
    asked = list[Consulted]()
    for found in consulted[:first]:
        if found.fresh:
            outcome = gated_again(Outcome(found.state, found.reason, found.fresh), found.suffix, spec, box, sources)
            found = msgspec.structs.replace(found, **msgspec.structs.asdict(outcome))
        asked.append(found)
        if found.passed:
            break
    return [*asked, *consulted[len(asked) :]]


def gated_again(stale: Outcome, suffix: str, spec: Spec, box: Box, sources: Sources) -> Outcome:
    """What becomes of a winner that another LLVM alone made stale, after the gate had a word on it."""
    if suffix == REFERENCE:
        return Outcome(stale.state, f"{stale.reason}; the reference is as it was", stale.fresh, passed=True)
    word = sources.gate_again(suffix, stale.fresh)
    if word.state == "ok":
        word = _usable(spec, suffix, box, sources)
    if word.state == "ok":
        return Outcome(stale.state, f"{stale.reason}; it passed the gate again", stale.fresh, passed=True)
    reason = "; ".join(filter(None, (stale.reason, word.reason)))
    return Outcome(stale.state, reason, stale.fresh if word.state == "stale" else "")


def _missing(consulted: Sequence[Consulted]) -> Consulted:
    """What stands for the entry when no tuned tier has one: why there is none."""
    reasons = dict.fromkeys(c.reason for c in consulted if c.state == "missing" and c.reason)
    policy = next((c.reason for c in consulted if c.source == REFERENCE and c.tier != FALLBACK), "")
    return Consulted("", "", "", "missing", policy or "; ".join(reasons) or NO_ENTRY, "")


def _suggestions(spec: Spec, element_type: ElementType, box: Box, sources: Sources, regime: int) -> Iterator[Consulted]:
    for tier in tiers_for(spec, sources.tiers):
        yield from _from_tier(tier, spec, element_type, box, sources, regime)
    for suffix in spec.fallback.chain(regime):
        outcome = _usable(spec, suffix, box, sources)
        source = "fallback" if suffix != REFERENCE else REFERENCE
        yield Consulted(FALLBACK, source, suffix, outcome.state, outcome.reason, "")


def tiers_for(spec: Spec, tiers: Sequence[Tier]) -> list[Tier]:
    """The tiers that a kernel may ask."""
    return [tier for tier in tiers if not tier.serial or isinstance(spec.parallel, Serial)]


def foreign(manifest: Manifest, spec: Spec, box: Box) -> str:
    """Why a manifest does not hold for a kernel on this box: the fields that differ; "" when it does."""
    return "; ".join(map(str, _unlike(manifest, spec, box)))


def _unlike(manifest: Manifest, spec: Spec, box: Box) -> list[Difference]:
    if manifest.box is None:
        return []
    return differences(manifest.box, box, ignore_threads=isinstance(spec.parallel, Serial))


def _from_tier(
    tier: Tier, spec: Spec, element_type: ElementType, box: Box, sources: Sources, regime: int
) -> Iterator[Consulted]:
    def consulted(
        suffix: str, state: State, reason: str, evidence: dict[str, Any] | None = None, fresh: str = ""
    ) -> Consulted:
        return Consulted(tier.name, tier.source, suffix, state, reason, tier.path, evidence or {}, fresh)

    manifest = tier.manifest
    if suffix := tier.suffix or tier.pins.get(spec.key(element_type), ""):
        outcome = _usable(spec, suffix, box, sources)
        yield consulted(suffix, outcome.state, outcome.reason or tier.note)
        return
    if manifest is None or manifest.status == "not_found":
        yield consulted("", tier.state, tier.note)
        return
    if manifest.status != "loaded":
        yield consulted("", "invalid", f"the manifest is {manifest.status}: {manifest.problem}")
        return
    condition = spec.fallback.regimes[regime]
    namesakes = () if tier.own else sources.namesakes
    entries = manifest.entries(spec.scope, spec.name, spec.key(element_type), namesakes)
    for entry in entries:
        if isinstance(entry, Invalid):
            yield consulted("", "invalid", entry.reason)
            continue
        winner = entry.winner(condition)
        if winner is None:
            yield consulted("", "missing", f"no winner for {condition or 'other sizes'} in its entry")
            continue
        if tier.source == "profile":
            outcome = _usable(spec, winner.winner, box, sources)
        else:
            outcome = judge_winner(entry, winner.winner, manifest, spec, box, sources)
        yield consulted(winner.winner, outcome.state, outcome.reason, winner.evidence, outcome.fresh)
    if not entries:
        yield consulted("", "missing", tier.note)


def judge_winner(entry: Entry, suffix: str, manifest: Manifest, spec: Spec, box: Box, sources: Sources) -> Outcome:
    """Whether an entry of a manifest can be used for this kernel, here and now."""
    unlike = _unlike(manifest, spec, box)
    # LLVM says which features a box has, and another version may know others
    as_named = [difference.field for difference in unlike] == ["features"]
    stale = _stale(entry, suffix, spec, sources) if as_named or not unlike else None
    if unlike and not (stale is not None and stale.fresh):
        return Outcome("foreign", "; ".join(map(str, unlike)))
    if stale is not None:
        reason = ", ".join([stale.reason, *map(str, unlike)])
        return msgspec.structs.replace(stale, reason=reason)
    outcome = _usable(spec, suffix, box, sources)
    if outcome.state == "ok" and not entry.digest:
        return Outcome("unverified", "written by hand, without a digest")
    return outcome


def _stale(entry: Entry, suffix: str, spec: Spec, sources: Sources) -> Outcome | None:
    """What changed since an entry was written; None when nothing did, or when nobody can know."""
    if not entry.digest:
        return None
    rows = [spec.grid.find(regime.winner) for regime in entry.regimes]
    perms = [row.perm if row is not None else {} for row in rows]
    templates = {name: spec.templates.digest(name) for name in entry.templates}
    parts = spec.parts(perms, templates, sources.llvm)
    if not (changed := _changed(entry, parts, templates)):
        return None
    if suffix != REFERENCE and spec.grid.find(suffix) is None:
        return Outcome("unknown", f"{suffix!r} is no row of the grid")
    return Outcome("stale", changed, _fresh(entry, parts))


def _changed(entry: Entry, parts: dict[str, str], templates: dict[str, str]) -> str:
    """What changed since an entry was written; "" when nothing did."""
    if digest_of(parts) == entry.digest:
        return ""
    changed = []
    for name, now in parts.items():
        then = entry.parts.get(name, "nothing")
        if name == "templates":
            edited = [file for file, digest in templates.items() if entry.templates.get(file) != digest]
            changed += [f"template {file} changed" for file in edited]
        elif then != now:
            plain = name in ("abi", "llvm", "gate", "gating")
            changed.append(f"{name} changed" + (f" from {then} to {now}" if plain else ""))
    return ", ".join(changed) or "the digest does not match what the entry says of itself"


def _fresh(entry: Entry, parts: dict[str, str]) -> str:
    """The digest that an entry made now would have, if LLVM is all that changed since this one was written; else ""."""
    then = {**parts, "llvm": entry.parts.get("llvm", "")}
    return digest_of(parts) if digest_of(then) == entry.digest else ""


def _usable(spec: Spec, suffix: str, box: Box, sources: Sources) -> Outcome:
    """Whether a suffix can run here: a row of the grid, eligible, and made without complaint."""
    if suffix == REFERENCE:
        return Outcome("ok")
    row = spec.grid.find(suffix)
    if row is None:
        return Outcome("unknown", f"{suffix!r} is no row of the grid")
    if missing := parse_requires(row.requires).missing(box.feature_set):
        return Outcome("ineligible", f"{suffix} requires {missing}, which this box does not have")
    return sources.make(row)
