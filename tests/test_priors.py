"""Priors: what another box chose, taken over as suggestions after it passed the gate of this one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_engine import LIBRARY as RACED
from test_engine import TEMPLATE as RACED_TEMPLATE
from test_trust import NAMES, TEXT, VALUE, changed, places, specials, watched

import tunegen
from tunegen import tuning
from tunegen.box import this_box
from tunegen.choosing.profiles import write_profile
from tunegen.choosing.selecting import model_of
from tunegen.errors import ProfileError, ScopeNotFound
from tunegen.harness import recheck
from tunegen.harness.crew import Crew
from tunegen.harness.engine import Settings, Tuning
from tunegen.harness.protocol import Outcome
from tunegen.harness.spawn import Stop
from tunegen.harness.target import incumbents, suggested, targets
from tunegen.public.scope import scopes

BODY = """
@scope.tune(gen="prior.ll.j2", gate=bitwise(), cases=[case("few", N=2), case("some", N=8)],
            fallback="row1 if N < large.minimum; row2; reference")
@scope.tune_param("large.minimum", default=3, minimum=1, maximum=100, unit="elements", doc="From here on, row 2.")
@scope.tune_param("note", default="", doc="A text.")
@scope.tune_grid(row=[1, 2, 3, 4, 5])
@scope.tune_perm(row=6, suffix="wrong")
@scope.tune_perm(row=7, suffix="declines")
@scope.tune_perm(row=8, suffix="crashes")
@scope.tune_perm(row=9, requires="amx-tile,sve")
@scope.tune_perm(row=10, requires="sse2|neon")
def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = -1
"""
TEMPLATE = """\
{% import "loop.ll.j2" as loop with context %}
{% if perm.row == 7 %}{{ decline("it is not for here") }}{% endif %}
define void @{{ symbol }}(ptr %x, ptr %out, i64 %N, ptr %scratch) "no-builtins" {
entry:
{% if perm.row == 8 %}
  store volatile i32 1, ptr inttoptr (i64 8 to ptr)
{% endif %}
{{ loop.fill("%out", 6 if perm.row == 6 else -1) }}
}
"""
"""Rows 1 to 5 are right."""
REGIME = "N < large.minimum"
KEY = "toy[f32]"
VALUES = {"large.minimum": 50, "note": "a box's"}


@pytest.fixture
def made(library):
    """A library whose rows are right, and some that are not."""
    return library(BODY, {"prior.ll.j2": TEMPLATE})


def elsewhere(**changes):
    """A box that is another one than this."""
    return {
        **msgspec.to_builtins(this_box()),
        "family": "1",
        "model": "2",
        "cpu": "elsewhere",
        "threads": 64,
        **changes,
    }


def entry(*winners, digest="sha256:1", **more):
    """An entry with winners: `row3`, or `row3 if N < large.minimum`."""
    split = [winner.partition(" if ") for winner in winners]
    return {"digest": digest, "regimes": [{"winner": w, "if": condition} for w, _, condition in split], **more}


def manifest(path, scope, *entries, box=None, **others):
    """Writes the manifest of another box with entries for the toy kernel, and for other scopes."""
    kernels = {scope: {"kernels": {KEY: list(entries)}}} | {s: {"kernels": k} for s, k in others.items()}
    path.write_text(json.dumps({"tunegen": 1, "box": box or elsewhere(), "scopes": kernels}))
    return path


def reasons(found):
    return [row.reason for row in found.left_out]


def emitted(kernel):
    tunegen.load()
    return [choice.emitted for choice in kernel.stamp["f32"].choices]


def written(found):
    return json.loads(Path(found.path).read_text())


def test_a_manifest_of_another_box_is_suggested_here_and_nothing_counts_as_tuned(made, tmp_path):
    path = manifest(tmp_path / "farm.tune.json", made.__name__, entry(f"row3 if {REGIME}", "row4"))
    assert emitted(made.toy) == ["row1", "row2"]
    found = tuning.import_prior(path)
    assert (found.status, found.reason, found.left_out) == ("updated", "", ())
    assert found.path == str(tmp_path / "home" / made.__name__ / "profiles" / "prior-farm.json")
    assert [(row.scope, row.key, row.reason) for row in found.rows] == [
        (made.__name__, KEY, f"row3 if {REGIME}; row4"),
    ]
    assert emitted(made.toy) == ["row3", "row4"]
    (row,) = tunegen.tune_status()
    assert (row.source, row.tuned, [r.tuned for r in row.regimes]) == ("profile", False, [False, False])
    assert written(found)["selector"] == {"model": msgspec.to_builtins(model_of(this_box()))}
    assert not tuning.propose().covered


def test_status_and_explain_say_which_prior_it_is_and_from_where(made, tmp_path):
    found = tuning.import_prior(manifest(tmp_path / "farm.tune.json", made.__name__, entry("row4")))
    provenance = written(found)["provenance"]
    assert provenance["cpu"].startswith("elsewhere-t64-")
    said = f"prior-farm, from {provenance['cpu']}, {provenance['date']}"
    tunegen.load()
    (row,) = tunegen.tune_status()
    assert row.provenance == row.regimes[-1].provenance == said
    assert f"row4 (profile {said}: no manifest entry)" in str(row)
    assert "provenance" not in msgspec.to_builtins(row)["regimes"][0], "the fallback has none"
    told = tunegen.explain("toy", N=8)
    assert (told.emitted, told.source) == ("row4", "profile")
    assert f"  profile: {said}" in told.lines()
    assert any(t["tier"] == "profile prior-farm" and t["path"] == found.path for t in told.tiers)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (entry("row99"), "'row99' is no row of the grid"),
        (entry("wrong"), "wrong wrong: "),
        (entry("declines"), "it is not for here"),
        (entry("row9"), "row9 requires "),
        (entry("row4 if N <= 7"), "there is no regime 'N <= 7', for which it has 'row4'"),
        ({"digest": "x", "regimes": [{"winner": "row4", "perm": {"row": 5}}]}, "'row4' is the row {'row': 4}"),
        ({"digest": "x", "regimes": 5}, "Expected `array`"),
        ({"digest": "x"}, "an entry has a winner for a regime, or values"),
        ({"params": {"large.minimum": 50}}, "values: invalid: note is missing"),
        ({"params": {**VALUES, "large.minimum": 1000}}, "values: invalid: large.minimum=1000"),
        ({"params": {**VALUES, "more": 1}}, "unknown parameter 'more'"),
        ({"params": VALUES, "digest": "x", "parts": {"abi": "0"}}, "values: stale: "),
    ],
)
def test_what_cannot_be_used_here_is_left_out_with_its_reason_and_costs_nothing_else(made, tmp_path, wrong, why):
    path = manifest(tmp_path / "a.json", made.__name__, wrong)
    alone = tuning.import_prior(path)
    assert (alone.status, alone.rows, alone.reason) == ("refused", (), "nothing in it can be used here")
    assert not (tmp_path / "home" / made.__name__ / "profiles").exists()
    beside = tuning.import_prior(manifest(path, made.__name__, wrong, entry(f"row3 if {REGIME}", "row4")))
    assert beside.status == "updated"
    assert emitted(made.toy) == ["row3", "row4"]
    for found in (alone, beside):
        assert any(why in reason for reason in reasons(found)), reasons(found)
        assert {(row.scope, row.key, row.path) for row in found.left_out} == {(made.__name__, KEY, str(path))}


def test_per_regime_the_newest_entry_that_can_be_used_counts(made, tmp_path):
    path = manifest(
        tmp_path / "a.json", made.__name__,
        entry(f"row5 if {REGIME}", "wrong"), entry(f"row3 if {REGIME}", "row4"), entry("crashes"),
    )  # fmt: skip
    found = tuning.import_prior(path)
    assert emitted(made.toy) == ["row5", "row4"]
    assert len(found.left_out) == 1, "what stands below is not looked at"


def test_a_file_with_entries_without_end_does_not_keep_the_gate_busy_for_ever(made, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(recheck, "recheck", lambda spec, t, row, *_: asked.append(row.suffix) or Outcome("wrong"))
    rows = [entry(f"row{1 + n % 5}") for n in range(1000)]
    found = tuning.import_prior(manifest(tmp_path / "a.json", made.__name__, *rows))
    assert asked == ["row1", "row2", "row3", "row4", "row5"], "each row once"
    assert (found.status, reasons(found)[0]) == ("refused", "984 older entries are not looked at")


def test_values_are_taken_along_as_a_whole_set(made, tmp_path):
    path = manifest(tmp_path / "a.json", made.__name__, {"params": {**VALUES, "note": 7}}, {"params": VALUES})
    found = tuning.import_prior(path)
    assert [(row.key, row.reason, row.values) for row in found.rows] == [(KEY, "values", VALUES)]
    assert len(found.left_out) == 1
    tunegen.load()
    assert made.toy.value_choices["f32"].source == "profile"
    assert made.toy.values["f32"]["large.minimum"] == 50
    assert [row.key for row in tuning.propose().manual] == [KEY], "they do not count as this box's own"


def test_a_change_since_then_is_no_obstacle_but_is_said(made, tmp_path):
    """Whatever it was made from: the gate has the last word."""
    assert tunegen.tune_manifest_set(made.toy, "row4")
    (path,) = (tmp_path / "home" / made.__name__).glob("*.tune.json")
    other = path.rename(tmp_path / "other.tune.json")
    assert tuning.import_prior(other).rows[0].reason == f"row4 if {REGIME}; row4"
    template = tmp_path / "libraries" / made.__name__ / "templates" / "prior.ll.j2"
    template.write_text(TEMPLATE.replace("entry:", "; another text\nentry:"))
    tunegen.load()
    (row,) = tuning.import_prior(other).rows
    assert row.reason == f"row4 if {REGIME}; row4; since it was chosen, template prior.ll.j2 changed"
    template.write_text(TEMPLATE.replace("-1", "4 if perm.row == 4 else -1"))
    tunegen.load()
    assert "row4 wrong: " in reasons(tuning.import_prior(other))[0]


def test_a_map_that_a_person_wrote_holds_for_all_regimes(made, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"toy": "row4", "tea": "row1", f"{made.__name__}:toy[f64]": "row1"}))
    found = tuning.import_prior(path)
    assert (found.status, emitted(made.toy)) == ("updated", ["row4", "row4"])
    assert written(found)["provenance"]["cpu"] == "an unknown box"
    assert [(row.scope, row.key, row.reason) for row in found.left_out] == [
        ("", "tea", "there is no such kernel"), ("", f"{made.__name__}:toy[f64]", "there is no such kernel"),
    ]  # fmt: skip
    path.write_text(json.dumps({"toy": "reference"}))
    assert tuning.import_prior(path).status == "updated"
    assert emitted(made.toy) == ["reference", "reference"]


def test_each_scope_has_a_prior_of_its_own_and_unknown_ones_are_left_out(made, library, tmp_path):
    other = library(BODY, {"prior.ll.j2": TEMPLATE})
    more = {other.__name__: {KEY: [entry("row5")]}, "nowhere": {"x[f32]": [], "y[f32]": []}}
    path = manifest(tmp_path / "two.tune.json", made.__name__, entry("row4"), **more)
    found = tuning.import_prior(path)
    assert [(row.scope, row.path) for row in found.rows] == [
        (name, str(tmp_path / "home" / name / "profiles" / "prior-two.json")) for name in scopes()
    ]
    assert [(row.scope, row.reason) for row in found.left_out] == [
        ("nowhere", "no scope of this name is imported"),
    ]
    assert (emitted(made.toy)[1], emitted(other.toy)[1]) == ("row4", "row5")
    one = tuning.import_prior(path, scope=other.__name__)
    assert (one.reason, [row.scope for row in one.rows], one.left_out) == (
        "it replaces an earlier prior of this name", [other.__name__], (),
    )  # fmt: skip
    flat = tmp_path / "flat.json"
    flat.write_text('{"toy": "row3"}')
    assert "the name 'toy' is ambiguous" in reasons(tuning.import_prior(flat))[0]
    assert tuning.import_prior(flat, scope=made.__name__).status == "updated"


def test_a_module_that_a_file_names_is_never_imported(made, tmp_path):
    (tmp_path / "libraries" / "evil.py").write_text("raise SystemExit")
    found = tuning.import_prior(manifest(tmp_path / "a.json", "evil", entry("row4")))
    assert (found.status, reasons(found)) == ("refused", ["no scope of this name is imported"])
    assert "evil" not in sys.modules


def test_a_file_with_nothing_for_the_scopes_that_are_here_is_refused(made, tmp_path):
    path = manifest(tmp_path / "a.json", "nowhere", entry("row4"))
    found = tuning.import_prior(path, scope=made.__name__)
    assert (found.status, found.left_out) == ("refused", ())
    assert found.reason == f"it has nothing for the scopes asked for: {made.__name__}"


def a_profile(scope, **changes):
    return {
        "tunegen_profile": 1, "scope": scope, "architecture": "aarch64", "tuning_abi": 1, "threads": 64,
        "selector": {"microarchitecture": "neoverse-v2"}, "priority": 7,
        "provenance": {"cpu": "Graviton", "date": "2026-01-31", "versions": {"llvm": "22.1"}, "samples": 15},
        "kernels": {KEY: {"regimes": [{"winner": "row4"}], "params": VALUES}, "tea[f32]": {"regimes": [{}]}},
        **changes,
    }  # fmt: skip


def test_a_profile_is_taken_over_kernel_by_kernel_for_this_box_and_keeps_its_provenance(made, tmp_path):
    path = tmp_path / "graviton.json"
    path.write_text(json.dumps(a_profile(made.__name__)))
    assert tuning.import_profile(path, "model").status == "refused", "as a whole it is none for here"
    found = tuning.import_prior(path)
    assert [row.reason for row in found.rows] == ["row4; values"]
    assert [(row.key, row.reason) for row in found.left_out] == [("tea[f32]", "there is no such kernel")]
    profile = written(found)
    assert profile["provenance"] == a_profile("")["provenance"]
    assert (profile.get("threads"), profile["architecture"]) == (None, "x86_64" if "amd64" in os.uname().machine
                                                                 else os.uname().machine)  # fmt: skip
    assert emitted(made.toy) == ["row1", "row4"]
    path.write_text(json.dumps(a_profile(made.__name__, tuning_abi=0, provenance={"date": "\x1b[2Jtoday"})))
    found = tuning.import_prior(path)
    assert (found.rows[0].reason, reasons(found)[0]) == ("row4", "values: tuning_abi changed from 0 to 1")
    assert written(found)["provenance"]["cpu"] == "an unknown box"


def test_an_exported_profile_comes_back_as_a_prior(made, tmp_path):
    assert tunegen.tune_manifest_set(made.toy, "row4")
    assert tuning.set(made.toy, VALUES, load=False)
    path = tmp_path / "out.json"
    path.write_bytes(write_profile(tuning.export_profile(made.__name__, "microarchitecture").profile))
    tuning.forget()
    found = tuning.import_prior(path)
    assert (found.left_out, written(found)["kernels"]) == ((), json.loads(path.read_text())["kernels"])
    assert emitted(made.toy) == ["row4", "row4"]


def shipped(made, tmp_path, monkeypatch, selector, priority=0):
    """Has the library ship a profile, for row 3."""
    folder = tmp_path / "shipped"
    folder.mkdir(exist_ok=True)
    profile = a_profile(made.__name__, selector=selector, priority=priority, threads=None, kernels={
        KEY: {"regimes": [{"winner": "row3"}]}}, architecture=written_architecture())  # fmt: skip
    (folder / "own.json").write_text(json.dumps({k: v for k, v in profile.items() if v is not None}))
    monkeypatch.setattr(scopes()[made.__name__], "profiles", folder)


def written_architecture():
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(this_box().architecture, this_box().architecture)


@pytest.mark.parametrize("selector", ["model", "microarchitecture", "features"])
def test_beside_an_equally_specific_profile_of_the_library_the_prior_goes_first(made, tmp_path, monkeypatch, selector):
    """Somebody asked for it, whatever the library says."""
    own = msgspec.to_builtins(tuning.profiling.read_selector(selector))
    shipped(made, tmp_path, monkeypatch, own, priority=5000)
    assert emitted(made.toy)[1] == "row3"
    found = tuning.import_prior(manifest(tmp_path / "a.json", made.__name__, entry("row4")), selector)
    assert (found.status, written(found)["priority"]) == ("updated", 5001)
    assert emitted(made.toy)[1] == "row4"
    shipped(made, tmp_path, monkeypatch, own)
    assert emitted(made.toy)[1] == "row4", "and beside one that the library ships later"


def test_the_prior_that_was_imported_last_goes_first_and_the_others_still_serve(made, tmp_path):
    one = manifest(tmp_path / "one.json", made.__name__, entry(f"row3 if {REGIME}", "row3"))
    two = manifest(tmp_path / "two.json", made.__name__, entry("row4"))
    assert tuning.import_prior(one).reason == ""
    assert tuning.import_prior(two).reason == ""
    assert emitted(made.toy) == ["row3", "row4"]
    again = tuning.import_prior(one)
    assert (again.status, again.reason) == ("updated", "it replaces an earlier prior of this name")
    assert emitted(made.toy) == ["row3", "row3"]
    names = sorted(path.name for path in Path(again.path).parent.glob("*.json"))
    assert names == ["prior-one.json", "prior-two.json"]
    assert tuning.import_prior(Path(again.path)).path == again.path, "a prior itself is a profile like any other"


def test_what_nobody_could_put_in_order_is_refused(made, tmp_path, monkeypatch):
    if written_architecture() != "x86_64":
        pytest.skip("named by features of x86")
    shipped(made, tmp_path, monkeypatch, {"features": ["sse4.2"]})
    path = manifest(tmp_path / "a.json", made.__name__, entry("row4"))
    found = tuning.import_prior(path, "features=aes")
    assert (found.status, "ambiguous beside" in found.reason, found.rows) == ("refused", True, ())


def test_a_selector_has_to_fit_the_box_whose_gate_is_asked(made, tmp_path):
    path = manifest(tmp_path / "a.json", made.__name__, entry("row10"))
    for wrong in ("microarchitecture=elsewhere", "model=nobody/1/2", "features=avx1024", "cpu"):
        with pytest.raises(ProfileError, match="the selector"):
            tuning.import_prior(path, wrong)
    with pytest.raises(ScopeNotFound):
        tuning.import_prior(path, scope="nowhere_at_all")
    feature = this_box().features[0]
    assert feature not in ("sse2", "neon")
    narrow = tuning.import_prior(path, {"features": [feature]})
    assert (narrow.status, "is not among the features of the selector" in reasons(narrow)[0]) == ("refused", True)
    assert tuning.import_prior(path, "features").status == "updated"


def test_what_this_box_lacks_later_is_not_run(made, tmp_path, monkeypatch):
    if "sse2" not in this_box().features:
        pytest.skip("named by features of x86")
    assert tuning.import_prior(manifest(tmp_path / "a.json", made.__name__, entry("row10"))).status == "updated"
    assert emitted(made.toy)[1] == "row10"
    monkeypatch.setenv("TUNE_FEATURES", "-sse2")
    assert emitted(made.toy)[1] != "row10"


@pytest.mark.parametrize(
    ("content", "status", "why"),
    [
        (None, "not_found", "no such file"),
        ("", "malformed", "not JSON"),
        ("[" * 100_000, "malformed", "not JSON"),
        ("[]", "malformed", "a JSON object"),
        ('{"tunegen": 2}', "newer", "format 2"),
        ('{"tunegen_profile": 2}', "newer", "format 2"),
        ('{"tunegen_profile": true}', "malformed", "no format number"),
        ('{"tunegen_profile": 1}', "malformed", "a profile has a scope and kernels"),
        ('{"tunegen": 1, "box": 5}', "malformed", "the box cannot be read"),
    ],
)
def test_a_file_that_cannot_be_read_is_a_result(made, tmp_path, content, status, why):
    path = tmp_path / "x.json"
    if content is not None:
        path.write_text(content)
    found = tuning.import_prior(path)
    assert (found.status, found.path, found.rows) == (status, str(path), ())
    assert why in found.reason
    assert tuning.import_prior(tmp_path).status == "unreadable"


def test_files_that_are_no_files_are_not_read(made, tmp_path):
    for name in specials(tmp_path):
        assert tuning.import_prior(tmp_path / name).status in ("unreadable", "malformed", "not_found")


def test_a_folder_that_cannot_be_written_is_a_result_and_the_other_scopes_are_written(made, library, tmp_path):
    other = library(BODY, {"prior.ll.j2": TEMPLATE})
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / made.__name__).write_text("a file in the folder's place")
    more = {other.__name__: {KEY: [entry("row5")]}}
    found = tuning.import_prior(manifest(tmp_path / "two.json", made.__name__, entry("row4"), **more))
    assert (found.status, [row.scope for row in found.rows]) == ("write_failed", [other.__name__])
    assert (found.path, bool(found.reason)) == (
        str(tmp_path / "home" / made.__name__ / "profiles" / "prior-two.json"), True,
    )  # fmt: skip


def test_a_name_leads_nowhere_else(made, tmp_path):
    name = ".. prior-é\n$(touch x).tune.json"
    found = tuning.import_prior(manifest(tmp_path / name, made.__name__, entry("row4")))
    assert Path(found.path).parent == tmp_path / "home" / made.__name__ / "profiles"
    assert Path(found.path).name == "prior-.._prior-____touch_x_.json"
    assert emitted(made.toy)[1] == "row4"


def test_a_reference_that_raises_leaves_its_kernel_out(library, tmp_path):
    made = library(BODY.replace("out[...] = -1", "raise OSError('no numpy today')"), {"prior.ll.j2": TEMPLATE})
    found = tuning.import_prior(manifest(tmp_path / "a.json", made.__name__, entry("row4")))
    assert (found.status, reasons(found)) == ("refused", ["row4: OSError: no numpy today"])


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_whatever_stands_in_a_file_is_a_result_and_nothing_is_run_or_read(made, data):
    """With a gate that lets all pass: what is taken over is what the library declares."""
    good = {
        "manifest": {"tunegen": 1, "box": elsewhere(), "names": {"toy": "row3"}, "scopes": {made.__name__: {"kernels": {
            KEY: [entry("row4", parts={"abi": "1"}, templates={"prior.ll.j2": "x"}), {"params": VALUES}]}}}},
        "profile": a_profile(made.__name__),
        "map": {"toy": "row3", "tea": "row1"},
    }  # fmt: skip
    raw = good[data.draw(st.sampled_from(sorted(good)))]
    for _ in range(data.draw(st.integers(1, 3))):
        where = data.draw(st.sampled_from([path for path in places(raw) if path]))
        raw = changed(raw, where, data.draw(VALUE), data.draw(st.sampled_from(NAMES) | TEXT))
    text = json.dumps(raw).encode()
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.binary(max_size=8)) + text[at + data.draw(st.integers(0, 20)) :]
    path = Path(os.environ["TUNE_HOME"]).parent / "hostile.json"
    path.write_bytes(text)
    with watched(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(recheck, "recheck", lambda *_: Outcome("passed"))
        found = tuning.import_prior(path)
        msgspec.json.encode(found)
        choices = emitted(made.toy)
        str(tunegen.explain(made.toy))
        [str(row) for row in tunegen.tune_status()]
    assert found.status in ("updated", "refused", "malformed", "newer")
    assert bool(found.rows) == (found.status == "updated") == Path(found.path).name.startswith("prior-")
    assert all(choice in made.toy.variants() or made.toy.spec.grid.find(choice) for choice in choices)
    assert made.toy.spec.schema.check(made.toy.values["f32"])


def test_a_tuner_tries_the_rows_of_a_prior_first_and_its_default_stays_the_fallback(made, tmp_path):
    path = manifest(tmp_path / "a.json", made.__name__, entry(f"row5 if {REGIME}", "row4"))
    assert tuning.import_prior(path).status == "updated"
    tunegen.load()
    (target,) = targets(scopes()[made.__name__])
    assert suggested(target) == ["row5", "row4"]
    assert incumbents(target) == {}, "no tie goes to it"
    run = Tuning([target], lambda event: None, Settings(), Stop(), None)
    run.prospects[0].journal.screened(KEY, "", "row3", 2.0)
    run.prospects[0].journal.screened(KEY, "", "row4", 1.0)
    job = Crew._job(run.crew, run.prospects[0], "screen", 1.0)
    assert (job.order, job.incumbents) == (["row5", "row4", "row3"], {})


@pytest.fixture
def raced(tmp_path):
    """A library with a slow fallback, in its own folder."""
    package = tmp_path / "libraries" / "faulty"
    (package / "templates").mkdir(parents=True)
    (package / "__init__.py").write_text(RACED)
    (package / "templates" / "copy.ll.j2").write_text(RACED_TEMPLATE)
    return package.parent


def run(folder, *arguments, **changes):
    return subprocess.run(
        [sys.executable, "-P", "-m", "tunegen", *arguments], capture_output=True, text=True, timeout=240, cwd=folder,
        env={**os.environ, **changes},
    )  # fmt: skip


def test_a_tune_after_an_import_is_judged_against_the_fallback_and_takes_the_prior_s_place(raced, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text('{"copy": "fast", "copy_with_bad_default": "crash"}')
    taken = run(raced, "profile", "import", str(path), "--as-prior", "--scope", "faulty", "--json")
    assert taken.returncode == 0, taken.stderr
    found = json.loads(taken.stdout)
    assert [row["reason"] for row in found["rows"]] == ["fast"]
    assert "crash crashed: " in found["left_out"][0]["reason"]
    (row, _) = json.loads(run(raced, "status", "faulty", "--json").stdout)["kernels"]
    assert (row["emitted"], row["source"], row["tuned"]) == ("fast", "profile", False)
    tuned = run(raced, "tune", "faulty", "--only", "copy", "--effort", "quick", "--noisy-ok", "--json")
    assert tuned.returncode == 0, tuned.stderr
    (report,) = json.loads(tuned.stdout)["reports"]
    assert report["result"]["regimes"][0]["evidence"]["baseline"] == "slow"
    (row, _) = json.loads(run(raced, "status", "faulty", "--json").stdout)["kernels"]
    assert (row["source"], row["tuned"]) == ("manifest", True)


def test_the_command_takes_priors_over_and_says_what_it_leaves_out(made, tmp_path):
    folder, scope = tmp_path / "libraries", made.__name__
    path = manifest(tmp_path / "a.tune.json", scope, entry("wrong"), entry("row4"))
    done = run(folder, "profile", "import", str(path), "--as-prior", "--scope", scope)
    assert done.returncode == 0, done.stderr
    target = tmp_path / "home" / scope / "profiles" / "prior-a.json"
    assert done.stdout.splitlines()[:2] == [f"{target}: 1 kernel", "  toy[f32]: row4"]
    assert f"  left out: {scope}:toy[f32]: wrong wrong: " in done.stdout
    again = run(folder, "profile", "import", str(path), "--as-prior", "--scope", scope, "--json")
    found = json.loads(again.stdout)
    assert (again.returncode, found["status"], found["path"]) == (0, "updated", str(target))
    assert set(found) == {"status", "path", "reason", "rows", "left_out"}
    explained = run(folder, "explain", f"{scope}:toy")
    assert (explained.returncode, "  profile: prior-a, from elsewhere-t64-" in explained.stdout) == (0, True)


def test_the_command_s_exit_code_says_whether_anything_was_taken_over(made, tmp_path):
    folder, scope = tmp_path / "libraries", made.__name__
    path = manifest(tmp_path / "a.tune.json", scope, entry("wrong"))
    order = ("profile", "import", str(path))
    nothing = run(folder, *order, "--as-prior", "--scope", scope, "--json")
    assert (nothing.returncode, json.loads(nothing.stdout)["status"]) == (1, "refused")
    assert f"tunegen: {path} is not taken over: nothing in it can be used here" in nothing.stderr
    unknown = run(folder, "profile", "import", str(manifest(path, "no\x1bwhere", entry("row4"))), "--as-prior")
    said = "  left out: no?where: no scope of this name is imported\n"
    assert (unknown.returncode, unknown.stdout) == (1, said), "a terminal does not obey what a file says"
    missing = run(folder, "profile", "import", "no.json", "--as-prior")
    assert (missing.returncode, "no.json is not taken over: no such file" in missing.stderr) == (1, True)
    bare = run(folder, *order)
    assert (bare.returncode, "say for which boxes" in bare.stderr) == (2, True)
    assert run(folder, *order, "--as-prior", "--selector", "cpu").returncode == 2
    unfit = run(folder, *order, "--as-prior", "--selector", "model=nobody/1/2")
    assert (unfit.returncode, "does not fit this box" in unfit.stderr) == (1, True)
    assert run(folder, *order, "--as-prior", "--scope", "nowhere").returncode == 2
    (tmp_path / "home").write_text("a file in the folder's place")
    closed = run(folder, *order[:2], str(manifest(path, scope, entry("row4"))), "--as-prior", "--scope", scope)
    assert (closed.returncode, "cannot be written: " in closed.stderr) == (1, True)


def test_a_policy_sees_an_untuned_box(made, tmp_path, child):
    path = manifest(tmp_path / "a.json", made.__name__, entry(f"row5 if {REGIME}", "row4"))
    assert tuning.import_prior(path).status == "updated"
    done = child(f"import {made.__name__}, tunegen; tunegen.apply_policy(missing='error')")
    assert (done.returncode, "toy[f32]" in done.stderr) == (3, True), done.stderr
