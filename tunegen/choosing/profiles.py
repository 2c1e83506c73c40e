"""Profiles: winners and values that a library ships for a class of CPUs, one JSON file each.

    {"tunegen_profile": 1, "scope": "mylib", "architecture": "x86_64", "tuning_abi": 1,
     "selector": {"microarchitecture": "znver4"}, "threads": 2, "priority": 0,
     "provenance": {"cpu": "AMD EPYC 9654", "date": "2026-01-31", "versions": {"llvm": "22.1"}, "samples": 15},
     "kernels": {"gemm[f32]": {"regimes": [{"if": "M <= 2", "winner": "mr1_nr64", "perm": {"mr": 1, "nr": 64}}],
                               "params": {"parallel.minimum_elements": 4096}}}}

The selector is exactly one of, from the most specific to the least:

    {"model": {"vendor": "amd", "family": "25", "model": "17"}}      one model
    {"models": [{"vendor": ...}, ...]}                               one of some models
    {"microarchitecture": "znver4"}                                  LLVM's name: this, and what descends from it
    {"features": ["avx2", "fma"]}                                    an instruction set, by LLVM's names

`threads` restricts a profile to that number of effective threads, and makes it more specific than one without.
A model list is as specific as the own microarchitecture of a box; an ancestor is less so the farther it is. Of two
instruction sets the superset is more specific. `priority` breaks ties, the greater number first, and nothing else.

A file is imported as a whole or not at all. Two profiles of which nobody could say which goes first on some box,
and which share a kernel, are both refused: equal specificity and priority, or instruction sets of which none contains
the other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from tunegen import paths
from tunegen.box import Box, ancestry
from tunegen.choosing.document import PROVENANCE, Entry, Manifest, RegimeWinner
from tunegen.choosing.resolve import Tier
from tunegen.choosing.selecting import APART, TIED, Ancestry, Boxes, Selector, closure
from tunegen.choosing.values import values_entry
from tunegen.errors import ParameterError, ProfileError
from tunegen.grid import REFERENCE
from tunegen.making.spec import Spec
from tunegen.parameters import TUNING_ABI
from tunegen.requires import parse_requires

FORMAT = 1
SUFFIX = ".json"
MAX_BYTES = 4 << 20
MOST_SHOWN = 120
"""Letters of a provenance that a line of text has room for."""
NONE_SHIPPED = Tier("shipped profile", "profile")

Specs = Mapping[str, Spec]
"""The kernels of a scope by name."""


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a profile says of one kernel and element type."""

    regimes: tuple[RegimeWinner, ...] = ()
    params: dict[str, Any] = {}


class Provenance(msgspec.Struct, frozen=True):
    """Where the choices come from: the CPU, the day (YYYY-MM-DD), versions by name, and the samples per race."""

    cpu: str
    date: str
    versions: dict[str, str]
    samples: int

    def __str__(self) -> str:
        text = f"{self.cpu}, {self.date}"
        return "".join(c if c.isprintable() else "?" for c in text[:MOST_SHOWN])

    def problem(self) -> str:
        """What is wrong with it, as a sentence; "" when nothing is."""
        if re.fullmatch(r"\d{4}-\d\d-\d\d", self.date):
            return ""
        return f"provenance: the date {self.date!r} is not of the form YYYY-MM-DD"


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file, which was read and found right. `name` is the file's without its ending."""

    scope: str
    architecture: str
    selector: Selector
    provenance: Provenance
    kernels: dict[str, Chosen]
    tuning_abi: int
    tunegen_profile: int = FORMAT
    threads: int | None = None
    priority: int = 0
    name: str = ""

    @property
    def boxes(self) -> Boxes:
        """The boxes that it is for."""
        return Boxes(self.architecture, self.selector, self.threads)

    def ambiguity(self, other: Profile) -> str:
        """Why nobody could say which of two profiles goes first where both hold; "" when one does."""
        tie = self.boxes.tie(other.boxes)
        if not self.kernels.keys() & other.kernels.keys() or (tie == TIED and self.priority != other.priority):
            return ""
        return tie


class Profiles(msgspec.Struct, frozen=True):
    """The profiles of a folder: those that can be used by path, and all reasons why the others cannot."""

    found: Mapping[str, Profile] = {}
    refused: Mapping[str, tuple[str, ...]] = {}

    def matching(self, box: Box, ancestors: Ancestry = ancestry) -> list[Profile]:
        """The profiles for a box, the one that goes first first."""
        return [profile for _, profile in self._ordered(box, ancestors)]

    def _ordered(self, box: Box, ancestors: Ancestry) -> list[tuple[str, Profile]]:
        fits = [(path, p) for path, p in self.found.items() if not p.boxes.mismatch(box, ancestors)]
        return sorted(fits, key=lambda item: (item[1].boxes.rank(box, ancestors), item[1].priority), reverse=True)

    def tiers(self, box: Box, specs: Specs, ancestors: Ancestry = ancestry) -> list[Tier]:
        """A tier per profile: those for a box, best first; those for other boxes, with what differs; the refused."""
        ordered = self._ordered(box, ancestors)
        tiers = [Tier(_tier_name(path), "profile", _manifest(path, p, specs), path=path) for path, p in ordered]
        others = {path: p.boxes.mismatch(box, ancestors) for path, p in self.found.items()}
        tiers += [Tier(_tier_name(path), "profile", path=path, note=unlike, state="foreign")
                  for path, unlike in others.items() if unlike]  # fmt: skip
        tiers += [Tier(_tier_name(path), "profile", path=path, note="; ".join(reasons), state="invalid")
                  for path, reasons in self.refused.items()]  # fmt: skip
        return tiers or [NONE_SHIPPED]


def load_profiles(folders: Sequence[Path], scope: str, specs: Specs, box: Box | None = None) -> Profiles:
    """Reads the profiles of some folders. Never raises for what is there: what cannot be used is refused, with reasons.

    With a box, those that are for other boxes are not checked beyond what says so, for a program waits for this.
    """
    found: dict[str, Profile] = {}
    refused: dict[str, tuple[str, ...]] = {}
    listed: list[Path] = []
    for place in folders:
        try:
            listed += sorted(path for path in place.iterdir() if path.name.endswith(SUFFIX) and path.name[0] != ".")
        except OSError as error:
            refused[str(place)] = (f"the folder cannot be read: {error.strerror}",)
    for path in listed:
        try:
            found[str(path)] = _read(paths.read_plain(path, MAX_BYTES), path.name, scope, specs, box)
        except OSError as error:
            refused[str(path)] = (f"it cannot be read: {error.strerror}",)
        except ProfileError as error:
            refused[str(path)] = error.problems
    for (one, first), (two, second) in itertools.combinations(found.items(), 2):
        if why := first.ambiguity(second):
            refused[one] = (*refused.get(one, ()), _ambiguous(second, why))
            refused[two] = (*refused.get(two, ()), _ambiguous(first, why))
    return Profiles({path: profile for path, profile in found.items() if path not in refused}, refused)


def read_profile(data: bytes, name: str, scope: str, specs: Specs, beside: Sequence[Profile] = ()) -> Profile:
    """The profile in a file of this name, for a scope with these kernels, that is to lie beside other ones.

    Raises `ProfileError` with all that is wrong: what cannot be read, a kernel, row or parameter that is not known,
    values that are not allowed, and an ambiguity.
    """
    profile = _read(data, name, scope, specs)
    others = [other for other in beside if other.name != profile.name]
    if problems := [_ambiguous(other, why) for other in others if (why := profile.ambiguity(other))]:
        raise ProfileError(tuple(problems))
    return profile


def write_profile(profile: Profile) -> bytes:
    """The bytes of a profile's file."""
    plain = {name: part for name, part in msgspec.to_builtins(profile).items() if name != "name" and part is not None}
    order = ("tunegen_profile", "scope", "architecture", "tuning_abi", "selector", "threads", "priority", "provenance")
    plain = {name: plain[name] for name in (*order, "kernels") if name in plain}
    return msgspec.json.format(msgspec.json.encode(plain), indent=1) + b"\n"


def _read(data: bytes, name: str, scope: str, specs: Specs, box: Box | None = None) -> Profile:
    """The profile in a file. Of one that is not for `box`, the kernels are named alone, and nothing is checked."""
    if len(data) > MAX_BYTES:
        raise ProfileError((f"{len(data)} bytes are too many for a profile (limit {MAX_BYTES})",))
    try:
        raw = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ProfileError((f"it cannot be read: {error}",)) from None
    version, listed = raw.get("tunegen_profile"), raw.get("kernels")
    if version != FORMAT or type(version) is not int:
        problem = f'"tunegen_profile": {version!r} is not the format {FORMAT}, which this tunegen reads'
        raise ProfileError((problem,))
    kernels: dict[str, Any] = listed if isinstance(listed, dict) else {}
    problems = [] if kernels else ["it has no kernels"]
    profile = None
    try:
        named = {**raw, "kernels": dict.fromkeys(kernels, Chosen()), "name": name.removesuffix(SUFFIX)}
        profile = msgspec.convert(named, Profile)
        if box is not None and kernels and profile.boxes.mismatch(box):
            return profile
    except (msgspec.ValidationError, RecursionError) as error:
        problems.append(str(error))
    chosen = dict(_kernels(kernels, problems))
    if profile is not None:
        profile = msgspec.structs.replace(profile, kernels=chosen)
        problems += _problems(profile, scope, specs)
    if profile is None or problems:
        raise ProfileError(tuple(problems))
    return profile


def _kernels(raw: Mapping[str, Any], problems: list[str]) -> Iterator[tuple[str, Chosen]]:
    """What can be read of the kernels; `problems` takes the rest."""
    for key, part in raw.items():
        try:
            yield key, msgspec.convert(part, Chosen)
        except (msgspec.ValidationError, RecursionError) as error:
            problems.append(f"{key}: {error}")


def _problems(profile: Profile, scope: str, specs: Specs) -> Iterator[str]:
    """What is wrong with a profile that could be read."""
    if profile.scope != scope:
        yield f"it is for the scope {profile.scope!r}, not {scope!r}"
    if profile.tuning_abi != TUNING_ABI:
        yield f"tuning_abi changed from {profile.tuning_abi} to {TUNING_ABI}"
    if why := profile.boxes.problem():
        yield why
    if why := profile.provenance.problem():
        yield why
    keys = {spec.key(t): spec for spec in specs.values() for t in spec.signature.element_types}
    for key, chosen in profile.kernels.items():
        if key in keys:
            yield from (f"{key}: {why}" for why in _wrong(chosen, keys[key], profile.selector))
        else:
            yield f"{key}: there is no such kernel; there are {', '.join(keys) or 'none'}"


def _wrong(chosen: Chosen, spec: Spec, selector: Selector) -> Iterator[str]:
    if not chosen.regimes and not chosen.params:
        yield "it says nothing of this kernel"
    conditions, regimes = [regime.condition for regime in chosen.regimes], spec.fallback.regimes
    for condition in dict.fromkeys(conditions):
        if condition not in regimes:
            yield f"there is no regime {condition!r}; there are {', '.join(map(repr, regimes))}"
        elif conditions.count(condition) > 1:
            yield f"the regime {condition!r} has {conditions.count(condition)} winners"
    for regime in chosen.regimes:
        yield from wrong_row(regime, spec, selector)
    if chosen.params:
        try:
            spec.schema.check(chosen.params)
        except ParameterError as error:
            yield from error.problems


def wrong_row(regime: RegimeWinner, spec: Spec, selector: Selector) -> Iterator[str]:
    """Why a winner is no row that a profile with this selector may name."""
    if regime.winner == REFERENCE:
        return
    row = spec.grid.find(regime.winner)
    if row is None:
        yield f"{regime.winner!r} is no row of the grid"
    elif regime.perm and [*map(repr, regime.perm.items())] != [*map(repr, row.perm.items())]:
        yield f"{regime.winner!r} is the row {dict(row.perm)}, not {regime.perm}"
    elif selector.features and (lacking := parse_requires(row.requires).missing(closure(selector.features))):
        yield f"{regime.winner!r} requires {lacking}, which is not among the features of the selector"


def _ambiguous(other: Profile, why: str) -> str:
    advice = "let one contain the other" if why == APART else "give one a greater priority"
    return f"it is ambiguous beside {other.name}, with which it shares kernels: {why}; {advice}"


def _tier_name(path: str) -> str:
    return f"profile {Path(path).name.removesuffix(SUFFIX)}"


def _manifest(path: str, profile: Profile, specs: Specs) -> Manifest:
    """A profile as the manifest that the choosing of variants and values reads."""
    entries: dict[str, list[Any]] = {}
    said = {PROVENANCE: f"{profile.name}, from {profile.provenance}"}
    for spec in specs.values():
        for element_type in spec.signature.element_types:
            chosen = profile.kernels.get(spec.key(element_type), Chosen())
            regimes = [msgspec.structs.replace(regime, evidence=said) for regime in chosen.regimes]
            found = [Entry(regimes, "profile")] if regimes else []
            if chosen.params:
                found.append(values_entry(spec.tuning_key(element_type), chosen.params))
            entries[spec.key(element_type)] = found
    return Manifest(path, "loaded", scopes={profile.scope: entries})
