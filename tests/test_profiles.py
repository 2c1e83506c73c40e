"""Profiles: which one goes first, which are refused and why, and what a library's own do to an untuned box."""

from __future__ import annotations

import importlib
import itertools
import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_resolve import T, a_spec, entry
from test_values import BOX, KEY, SCHEMA, some
from toys import HEADER, PARAMETERS, ran, write_library

import tunegen
import tunegen.tuning
from tunegen.box import this_box
from tunegen.choosing import store
from tunegen.choosing.document import Entry, Manifest
from tunegen.choosing.exporting import from_manifest
from tunegen.choosing.profiles import Provenance, load_profiles, read_profile, write_profile
from tunegen.choosing.resolve import Outcome, Sources, consult, resolve
from tunegen.choosing.selecting import APART, TIED, Boxes, Model, Selector, closure, selector_of
from tunegen.choosing.values import resolve_values, values_entry
from tunegen.errors import DeclarationError, ProfileError
from tunegen.public import sources

SPEC = msgspec.structs.replace(a_spec("r1 if N <= 2; r2; reference"), schema=SCHEMA)
SPECS = {"kern": SPEC}
PROVENANCE = {"cpu": "AMD EPYC 9654", "date": "2026-01-31", "versions": {"llvm": "22.1"}, "samples": 15}
CHOSEN = {"regimes": [{"if": "N <= 2", "winner": "r3", "perm": {"r": 3}}, {"winner": "r3"}], "params": some()}
EXACT = {"model": {"vendor": "amd", "family": "25", "model": "97"}}
LIST = {"models": [{"vendor": "amd", "family": "25", "model": m} for m in ("17", "97")]}
OWN, ANCESTOR = {"microarchitecture": "znver4"}, {"microarchitecture": "znver2"}
WIDE, NARROW = {"features": ["avx2"]}, {"features": ["avx"]}


def a_profile(selector=OWN, chosen=CHOSEN, **changes):
    return {"tunegen_profile": 1, "scope": "lib", "architecture": "x86_64", "tuning_abi": 1, "selector": selector,
            "provenance": PROVENANCE, "kernels": {"kern[f32]": chosen}, **changes}  # fmt: skip


def read(profile, name="a.json", beside=()):
    return read_profile(json.dumps(profile).encode(), name, "lib", SPECS, beside)


def refusals(profile, beside=()):
    with pytest.raises(ProfileError) as error:
        read(profile, beside=beside)
    return error.value.problems


@pytest.fixture
def folder(tmp_path):
    def write(**profiles):
        for name, profile in profiles.items():
            text = profile if isinstance(profile, str) else json.dumps(profile)
            (tmp_path / f"{name}.json").write_text(text)
        return load_profiles([tmp_path], "lib", SPECS)

    return write


def test_a_good_profile_is_read_and_written_back():
    for changes in ({}, {"threads": 2, "priority": 3}, {"selector": WIDE}, {"selector": LIST}, {"selector": EXACT}):
        profile = read(a_profile(**changes))
        assert profile.kernels["kern[f32]"].regimes[0].winner == "r3"
        assert read_profile(write_profile(profile), "a.json", "lib", SPECS) == profile
        assert write_profile(profile).endswith(b"}\n")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"kernels": {"gemm[f32]": CHOSEN}}, "gemm[f32]: there is no such kernel; there are kern[f32]"),
        ({"kernels": {"kern[f64]": CHOSEN}}, "kern[f64]: there is no such kernel"),
        ({"kernels": {}}, "it has no kernels"),
        ({"kernels": {"kern[f32]": {}}}, "it says nothing of this kernel"),
        ({"kernels": {"kern[f32]": {"regimes": [{"winner": "r9"}]}}}, "'r9' is no row of the grid"),
        ({"kernels": {"kern[f32]": {"regimes": [{"winner": "r3", "if": "N <= 3"}]}}}, "there is no regime 'N <= 3'"),
        ({"kernels": {"kern[f32]": {"regimes": [{"winner": "r3"}, {"winner": "r1"}]}}}, "'' has 2 winners"),
        ({"kernels": {"kern[f32]": {"regimes": [{"winner": "r3", "perm": {"r": 2}}]}}}, "is the row {'r': 3}"),
        ({"kernels": {"kern[f32]": {"regimes": [{"winner": "r3", "perm": {"r": 3.0}}]}}}, "is the row {'r': 3}"),
        ({"kernels": {"kern[f32]": {"params": {"parallel.minimum": 1}}}}, "kern[f32]: parallel.grain is missing"),
        ({"kernels": {"kern[f32]": {"params": some(0)}}}, "kern[f32]: parallel.minimum=0"),
        ({"kernels": {"kern[f32]": {"params": some(more=1)}}}, "unknown parameter 'more'"),
        ({"kernels": {"kern[f32]": {"params": some(50)}}}, "parallel.grain <= parallel.minimum"),
        ({"kernels": {"kern[f32]": {"regimes": [{}]}}}, "missing required field `winner`"),
        ({"kernels": {"kern[f32]": {**CHOSEN, "parms": {}}}}, "unknown field `parms`"),
        ({"scope": "other"}, "it is for the scope 'other', not 'lib'"),
        ({"tuning_abi": 0}, "tuning_abi changed from 0 to 1"),
        ({"tunegen_profile": 2}, '"tunegen_profile": 2 is not the format 1'),
        ({"tunegen_profile": True}, "is not the format 1"),
        ({"architecture": "riscv64"}, "the architecture 'riscv64' is none of x86_64, aarch64"),
        ({"selector": {}}, "exactly one of model, models, microarchitecture, features; got none"),
        ({"selector": {**OWN, **WIDE}}, "got microarchitecture, features"),
        ({"selector": {"vendor": "amd"}}, "unknown field `vendor`"),
        ({"selector": {"features": ["avx1024"]}}, "LLVM has no feature avx1024 for x86_64"),
        ({"selector": {"features": ["neon"]}}, "LLVM has no feature neon for x86_64"),
        ({"selector": WIDE, "kernels": {"kern[f32]": {"regimes": [{"winner": "r4"}]}}}, "requires avx512f"),
        ({"threads": 0}, "threads: 0 is less than one"),
        ({"threads": "2"}, "threads"),
        ({"priority": 1.5}, "priority"),
        ({"provenance": {**PROVENANCE, "date": "today"}}, "'today' is not of the form YYYY-MM-DD"),
        ({"provenance": {"cpu": "x"}}, "missing required field `date`"),
        ({"more": 1}, "unknown field `more`"),
    ],
)
def test_a_profile_with_one_thing_wrong_is_refused_as_a_whole(folder, wrong, said):
    problems = refusals(a_profile(**wrong))
    assert said in "; ".join(problems)
    found = folder(bad=a_profile(**wrong), good=a_profile(EXACT))
    assert [p.name for p in found.found.values()] == ["good"]
    assert list(found.refused.values()) == [problems]


def test_everything_that_is_wrong_is_said_at_once():
    wrong = {"regimes": [{"winner": "r9"}, {"winner": "r8", "if": "no"}], "params": some(0, exact=1)}
    problems = refusals(a_profile(kernels={"kern[f32]": wrong, "x": 5, "y": CHOSEN}, scope="other", tuning_abi=7))
    assert len(problems) == 9


@pytest.mark.parametrize("text", ["", "[]", "5", "{", "[" * 100_000, '"\xff"'])
def test_what_is_no_profile_is_refused_and_costs_the_others_nothing(folder, text):
    found = folder(bad=text, good=a_profile())
    assert [p.name for p in found.found.values()] == ["good"]
    assert len(found.refused) == 1


def test_a_folder_without_profiles_or_without_itself_has_none(folder, tmp_path):
    assert folder() == load_profiles([tmp_path], "lib", SPECS)
    (tmp_path / "notes.txt").write_text("no profile")
    (tmp_path / ".hidden.json").write_text("{")
    assert (folder().found, folder().refused) == ({}, {})
    assert list(load_profiles([tmp_path / "nowhere"], "lib", SPECS).refused)


ORDER = {
    "exact_and_threads": (EXACT, {"threads": 2}),
    "exact": (EXACT, {}),
    "list": (LIST, {"priority": 1}),
    "own": (OWN, {}),
    "parent": ({"microarchitecture": "znver3"}, {"priority": 9}),
    "ancestor": (ANCESTOR, {"priority": 9}),
    "wide": (WIDE, {"threads": 2}),
    "wide_first": (WIDE, {"priority": 5}),
    "wide_second": (WIDE, {"priority": -5}),
    "narrow": (NARROW, {"priority": 99}),
}
"""From the most specific to the least, on `BOX`."""


def test_the_most_specific_goes_first_and_priority_breaks_ties_alone(folder):
    names = list(ORDER)
    found = folder(**{name: a_profile(selector, **more) for name, (selector, more) in reversed(ORDER.items())})
    assert not found.refused
    assert [p.name for p in found.matching(BOX)] == names
    for first in range(len(names)):
        rest = load_profiles_of(found, names[first:])
        assert resolve_values(SPEC, T, BOX, rest.tiers(BOX, SPECS)).consulted[0].tier == f"profile {names[first]}"


def load_profiles_of(found, names):
    return msgspec.structs.replace(found, found={p: one for p, one in found.found.items() if one.name in names})


@pytest.mark.parametrize(
    ("one", "two", "why"),
    [
        (a_profile(EXACT), a_profile(EXACT), TIED),
        (a_profile(LIST), a_profile({"models": [*LIST["models"][:1]]}), TIED),
        (a_profile(LIST), a_profile(OWN), TIED),
        (a_profile(OWN), a_profile(OWN), TIED),
        (a_profile(OWN, threads=2), a_profile(OWN, threads=2), TIED),
        (a_profile(WIDE), a_profile({"features": ["avx2", "avx"]}), TIED),
        (a_profile(WIDE), a_profile({"features": ["fma"]}), APART),
        (a_profile(WIDE, priority=1), a_profile({"features": ["fma"]}), APART),
        (a_profile(EXACT), a_profile(EXACT, priority=1), ""),
        (a_profile(EXACT), a_profile(LIST), ""),
        (a_profile(LIST), a_profile({"models": [{"vendor": "intel", "family": "6", "model": "85"}]}), ""),
        (a_profile(LIST), a_profile(OWN, priority=1), ""),
        (a_profile(OWN), a_profile(ANCESTOR), ""),
        (a_profile(OWN), a_profile(OWN, threads=2), ""),
        (a_profile(OWN, threads=4), a_profile(OWN, threads=2), ""),
        (a_profile(OWN), a_profile(WIDE), ""),
        (a_profile(WIDE), a_profile(NARROW), ""),
        (a_profile({"features": ["avx512f"]}), a_profile({"features": ["fma", "f16c"]}), ""),
        (a_profile(OWN), a_profile(OWN, kernels={"other[f32]": CHOSEN}), ""),
        (a_profile({"features": ["aes"]}), a_profile({"features": ["crc"]}, architecture="aarch64"), ""),
    ],
)
def test_an_ambiguity_is_refused_when_it_is_registered(tmp_path, one, two, why):
    specs = {
        **SPECS,
        "other": msgspec.structs.replace(SPEC, function=msgspec.structs.replace(SPEC.function, name="other")),
    }
    for name, profile in (("one", one), ("two", two)):
        (tmp_path / f"{name}.json").write_text(json.dumps(profile))
    found = load_profiles([tmp_path], "lib", specs)
    assert len(found.refused) == (2 if why else 0)
    assert all(why in "".join(reasons) for reasons in found.refused.values())
    first = read_profile(json.dumps(one).encode(), "one.json", "lib", specs)
    if why:
        with pytest.raises(ProfileError, match="ambiguous beside one"):
            read_profile(json.dumps(two).encode(), "two.json", "lib", specs, [first])
    assert read_profile(json.dumps(two).encode(), "one.json", "lib", specs, [first]), "it replaces the one of its name"


NAMES = ("znver4", "znver3", "znver2", "x86-64-v3")
SELECTORS = st.one_of(
    st.builds(lambda m: Selector(model=m), st.sampled_from([Model("amd", "25", "97"), Model("amd", "25", "17")])),
    st.builds(lambda m: Selector(models=tuple(m)), st.lists(
        st.builds(Model, st.just("amd"), st.just("25"), st.sampled_from(["97", "17", "1"])), min_size=1, max_size=3)),
    st.builds(lambda name: Selector(microarchitecture=name), st.sampled_from(NAMES)),
    st.builds(lambda names: Selector(features=tuple(names)),
              st.lists(st.sampled_from(["avx", "avx2", "fma", "sse2"]), min_size=1, unique=True)),
)  # fmt: skip
CLASSES = st.builds(Boxes, st.just("x86_64"), SELECTORS, st.sampled_from([None, 2, 4]))


@given(st.lists(st.tuples(CLASSES, st.integers(-1, 1)), min_size=2, max_size=6))
def test_whatever_is_not_refused_has_one_order_on_every_box(listed):
    """Of two that can both hold and of which neither is refused, one goes first; and so does each before the next."""
    box = msgspec.structs.replace(BOX, features=("avx", "avx2", "fma", "sse2"))
    fits = [(boxes, priority) for boxes, priority in listed if not boxes.mismatch(box)]
    for (one, first), (two, second) in itertools.combinations(fits, 2):
        tie = one.tie(two)
        assert tie == two.tie(one)
        if tie == APART or (tie == TIED and first == second):
            return
    ranks = [(boxes.rank(box), priority) for boxes, priority in fits]
    assert len(set(ranks)) == len(ranks)
    for one, two in itertools.combinations(fits, 2):
        a, b = one[0].selector, two[0].selector
        if a.features and b.features and closure(a.features) < closure(b.features):
            assert one[0].rank(box) < two[0].rank(box)


def test_each_tier_says_why_its_profile_does_not_hold_here(folder):
    found = folder(
        own=a_profile(), other=a_profile({"microarchitecture": "znver5"}), bad="{",
        threads=a_profile(EXACT, threads=64),
        arm=a_profile({"microarchitecture": "neoverse-v1"}, architecture="aarch64"),
    )  # fmt: skip
    asked = consult(SPEC, T, BOX, Sources(found.tiers(BOX, SPECS), lambda row: Outcome("ok"), "22.1"), 1)
    shown = {c.tier: (c.state, c.reason) for c in asked if c.source == "profile"}
    assert shown["profile own"] == ("ok", "")
    assert shown["profile other"] == ("foreign", "microarchitecture: znver5 there, znver4 here")
    assert shown["profile threads"] == ("foreign", "threads: 64 there, 2 here")
    assert shown["profile arm"] == ("foreign", "architecture: aarch64 there, x86_64 here")
    assert shown["profile bad"][0] == "invalid"
    values = resolve_values(SPEC, T, BOX, found.tiers(BOX, SPECS))
    assert {c.tier for c in values.consulted} == {*shown, "portable defaults"}


def test_winners_of_a_profile_pass_the_same_way_as_those_of_a_manifest(folder):
    """Known, eligible and made; else the next profile is asked, then the chain."""
    wide = {"regimes": [{"winner": "r4"}]}
    found = folder(first=a_profile(EXACT, wide), second=a_profile(OWN, {"regimes": [{"winner": "r3"}]}))
    tiers = found.tiers(BOX, SPECS)

    def chosen(make=lambda row: Outcome("ok"), box=BOX):
        return resolve(SPEC, T, box, Sources(tiers, make, "22.1")).default

    assert (chosen().emitted, chosen().source, chosen().tuned) == ("r3", "profile", False)
    assert [(c.suffix, c.state) for c in chosen().consulted] == [("r4", "ineligible"), ("r3", "ok")]
    assert (chosen().state, chosen().reason) == ("missing", "no manifest entry")
    with_it = msgspec.structs.replace(BOX, features=(*BOX.features, "avx512f"))
    assert chosen(box=with_it).emitted == "r4"
    assert chosen(lambda row: Outcome("declined")).source == "reference"
    # one winner for the unconditional regime says nothing of the other
    assert resolve(SPEC, T, BOX, Sources(tiers, lambda row: Outcome("ok"), "22.1")).choices[0].source == "fallback"


def a_manifest(*entries, box=BOX):
    return Manifest("/file", "loaded", "", box, {"lib": {"kern[f32]": list(entries)}})


def exported(manifest, kind="microarchitecture", **options):
    made = msgspec.convert(PROVENANCE, Provenance)
    return from_manifest(manifest, "lib", SPECS, "22.1", selector_of(BOX, kind), made, **options)


@pytest.mark.parametrize("kind", ["model", "models", "microarchitecture", "features"])
def test_an_exported_profile_gives_the_choices_of_the_manifest(tmp_path, kind):
    tuned = entry({"N <= 2": "r3", "": "r1"}, SPEC)
    found = exported(a_manifest(tuned, values_entry(KEY, some(4321))), kind, threads=2, priority=1)
    assert found.left_out == {}
    (tmp_path / "mine.json").write_bytes(write_profile(found.profile))
    loaded = load_profiles([tmp_path], "lib", SPECS)
    assert not loaded.refused
    tiers = loaded.tiers(BOX, SPECS)
    stamp = resolve(SPEC, T, BOX, Sources(tiers, lambda row: Outcome("ok"), "22.1"))
    assert [(c.emitted, c.source) for c in stamp.choices] == [("r3", "profile"), ("r1", "profile")]
    values = resolve_values(SPEC, T, BOX, tiers)
    assert (values.values, values.source, values.tuned) == (some(4321), "profile", False)


def test_what_is_not_right_today_is_not_exported():
    stale = entry("r3", SPEC, llvm="1.0")
    found = exported(a_manifest(stale, values_entry(KEY, some())))
    assert found.profile.kernels["kern[f32]"].regimes == ()
    assert found.left_out == {"kern[f32]": "stale: llvm changed from 1.0 to 22.1"}
    with pytest.raises(ProfileError, match=r"nothing to export.*stale"):
        exported(a_manifest(stale))
    with pytest.raises(ProfileError, match=r"invalid: parallel\.minimum=0"):
        exported(a_manifest(values_entry(KEY, some(0))))
    with pytest.raises(ProfileError, match="does not say of which box"):
        exported(a_manifest(values_entry(KEY, some()), box=None))
    elsewhere = msgspec.structs.replace(BOX, cpu="znver5", model="68")
    with pytest.raises(ProfileError, match="selector does not fit"):
        exported(a_manifest(Entry([], "", some()), box=elsewhere), "model")


SHIPPING = HEADER.replace('templates="templates"', 'templates="templates", profiles="profiles"')


@pytest.fixture
def shipping(library, tmp_path):
    """Imports a library that ships profiles: `shipping(name=profile)`, where kernels are given by their key."""

    def ship(body=PARAMETERS, **profiles):
        name = write_library(tmp_path / "libraries", body, header=SHIPPING)
        folder = tmp_path / "libraries" / name / "profiles"
        folder.mkdir()
        for file, changes in profiles.items():
            head = {"scope": name, "architecture": this_box().architecture}
            (folder / f"{file}.json").write_text(json.dumps(a_profile(**{**head, **changes})))
        importlib.invalidate_caches()
        return importlib.import_module(name)

    return ship


def own(**chosen):
    selector = msgspec.to_builtins(selector_of(this_box(), "model"))
    return {"selector": selector, "kernels": {"toy[f32]": chosen}}


DEFAULTS = {"large.minimum": 100, "parallel.minimum": 1000, "parallel.grain": 100, "ratio": 0.5, "exact": True,
            "note": "", "way": "left"}  # fmt: skip


def test_an_untuned_box_takes_what_the_library_ships_and_is_not_called_tuned(shipping):
    regimes = [{"if": "N < large.minimum", "winner": "row3"}, {"winner": "row1"}]
    made = shipping(mine=own(regimes=regimes, params={**DEFAULTS, "large.minimum": 5}))
    assert (ran(made.toy, 4), ran(made.toy, 5)) == (3, 1)
    (row,) = tunegen.tune_status()
    assert (row.emitted, row.source, row.state, row.tuned) == ("row1", "profile", "missing", False)
    told = tunegen.explain("toy")
    assert ("profile mine", "ok") in [(t["tier"], t["state"]) for t in told.tiers]
    assert ("profile mine", "ok") in [(t["tier"], t["state"]) for t in told.value_tiers]
    assert (told.values["large.minimum"], told.values_source) == (5, "profile")
    assert tunegen.tune_manifest_set(made.toy, "row2")
    tunegen.load()
    assert ran(made.toy) == 2


def test_a_profile_that_the_schema_rejects_is_reported_not_covered_and_repaired_by_what_is_set(shipping, caplog):
    made = shipping(mine=own(regimes=[{"winner": "row1"}], params={**DEFAULTS, "large.minimum": 0}))
    assert ran(made.toy, 200) == 2
    told = tunegen.explain("toy")
    shown = {t["tier"]: (t["state"], t["reason"]) for t in told.value_tiers}
    assert shown["profile mine"][0] == "invalid"
    assert "large.minimum=0" in shown["profile mine"][1]
    assert (told.values, told.values_source) == (DEFAULTS, "default")
    (row,) = tunegen.tuning.inspect().files
    assert (row.status, "large.minimum=0" in row.reason) == ("malformed", True)
    assert [r.message.count("large.minimum=0") for r in caplog.records if "is refused" in r.message] == [1]
    spec = made.toy.spec
    (t,) = spec.signature.element_types
    path = sources.target_manifest(spec.scope, this_box())
    store.set_values(path, this_box(), {}, spec.tuning_key(t), lambda entries: {**DEFAULTS, "large.minimum": 300})
    tunegen.load()
    assert ran(made.toy, 200) == 1
    assert tunegen.explain("toy").values_source == "manifest"


def test_profiles_are_read_at_the_first_choice_and_again_by_load(shipping, monkeypatch):
    read = []
    real = load_profiles
    monkeypatch.setattr("tunegen.choosing.profiles.load_profiles", lambda *a: read.append(a) or real(*a))
    made = shipping(mine=own(regimes=[{"winner": "row1"}]))
    assert read == []
    assert ran(made.toy, 200) == 1
    assert ran(made.toy, 200) == 1
    tunegen.tune_status()
    assert len(read) == 1
    (file,) = made.scope.profiles.iterdir()
    file.write_text(file.read_text().replace('"row1"', '"row3"'))
    tunegen.load()
    assert ran(made.toy, 200) == 3
    assert len(read) == 2


def test_kernels_that_are_declared_later_are_known_then(shipping, tmp_path):
    made = shipping(mine={**own(), "kernels": {"later[f32]": {"regimes": [{"winner": "row3"}]},
                                               "toy[f32]": {"regimes": [{"winner": "row3"}]}}})  # fmt: skip
    assert ran(made.toy) == 1
    later = PARAMETERS.replace("def toy", "def later").replace("@scope", "@made.scope")
    text = HEADER.partition("scope =")[0] + f"import {made.__name__} as made\n{later}"
    (tmp_path / "libraries" / made.__name__ / "late.py").write_text(text)
    late = importlib.import_module(f"{made.__name__}.late")
    assert ran(late.later) == 1
    tunegen.load()
    assert ran(made.toy, 200) == 3
    assert ran(late.later, 200) == 3


def test_a_folder_of_profiles_that_does_not_exist_is_an_error_at_declaration(library):
    with pytest.raises(DeclarationError, match="the profiles folder"):
        library(header=SHIPPING)


def test_a_program_does_not_look_into_profiles_for_other_boxes(folder, tmp_path):
    """What says that they are for others is checked, and so is an ambiguity; `inspect` finds the rest."""
    elsewhere = {"microarchitecture": "znver5"}
    wrong = {"kernels": {"kern[f32]": {"regimes": [{"winner": "r9"}]}}}
    assert len(folder(own=a_profile(), other=a_profile(elsewhere, **wrong)).refused) == 1
    found = load_profiles([tmp_path], "lib", SPECS, BOX)
    assert found.refused == {}
    assert [t.state for t in found.tiers(BOX, SPECS) if t.name == "profile other"] == ["foreign"]
    folder(own=a_profile(**wrong), other=a_profile({**elsewhere, **WIDE}), third=a_profile(elsewhere, kernels={}))
    assert len(load_profiles([tmp_path], "lib", SPECS, BOX).refused) == 3


def test_what_the_kernel_library_ships_is_right():
    from tunegen.kernels import scope

    folders = [scope.profiles] if scope.profiles is not None else []
    found = load_profiles(folders, scope.name, {name: kernel.spec for name, kernel in scope.kernels.items()})
    assert found.refused == {}
    assert all(file.provenance.samples > 0 for file in found.found.values())
