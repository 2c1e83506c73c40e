"""Choices end to end: a manifest on the disk, a kernel that says which row ran, and a state that says why."""

from __future__ import annotations

import json
import os

import msgspec
import pytest
from toys import COMPANIONS, GENERIC, REGIMES, TOY, TOY_TEMPLATE, ran

import tunegen
from tunegen.box import this_box
from tunegen.choosing import document
from tunegen.making import compile as compile_room
from tunegen.making import spec as spec_room
from tunegen.public import record, sources


def status(kernel):
    (row,) = tunegen.tune_status(kernels=[kernel.name])
    return row


def user_file(made):
    return sources.target_manifest(made.__name__, this_box())


def put(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    tunegen.load()


def edit(path, old, new):
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    tunegen.load()


def test_an_untuned_box_runs_the_first_of_the_chain(library):
    made = library()
    assert ran(made.toy) == 2
    row = status(made.toy)
    assert (row.emitted, row.source, row.state, row.reason) == ("row2", "fallback", "missing", "no manifest entry")


def test_a_recorded_winner_runs_after_the_next_load(library):
    made = library()
    assert ran(made.toy) == 2
    written = tunegen.tune_manifest_set(made.toy, "row3")
    assert written
    assert written.path == str(user_file(made))
    assert ran(made.toy) == 2
    tunegen.load()
    assert ran(made.toy) == 3
    row = status(made.toy)
    assert (row.asked, row.emitted, row.source, row.state, row.tuned) == ("row3", "row3", "manifest", "ok", True)
    assert row.path == written.path


@pytest.mark.parametrize(("suffix", "runs"), [("reference", -1), ("five", 5)])
def test_the_reference_and_a_row_with_a_name_of_its_own_can_win(library, suffix, runs):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, suffix)
    assert ran(made.toy) == runs
    assert status(made.toy).state == "ok"


def edit_template(made, name):
    path = made.scope.templates.folder / name
    path.write_text(path.read_text() + "\n; edited\n")
    tunegen.load()


@pytest.mark.parametrize("name", ["toy.ll.j2", "loop.ll.j2"])
def test_an_edited_template_or_macro_file_makes_its_entries_stale(library, name):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row3")
    assert ran(made.toy) == 3
    edit_template(made, name)
    assert ran(made.toy) == 2
    row = status(made.toy)
    assert (row.asked, row.state, row.reason) == ("row3", "stale", f"template {name} changed")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("bitwise(), cases", "ulp(3), cases", "gate changed from bitwise() to ulp(3.0)"),
        ('gen="toy.ll.j2",', 'gen="toy.ll.j2", define={"style": "new"},', "define changed"),
        ('x: In[f32, "N"],', 'x: In[f32, "N?"],', "signature changed"),
        ("@scope.tune_grid(row=[1, 2, 3])", '@scope.tune_grid(row=[1, 2])\n@scope.tune_perm(row=33, suffix="row3")',
         "perm changed"),
    ],
)  # fmt: skip
def test_a_changed_declaration_makes_its_entries_stale(library, tmp_path, old, new, said):
    import importlib

    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row3")
    assert ran(made.toy) == 3
    file = tmp_path / "libraries" / made.__name__ / "__init__.py"
    assert file.read_text().count(old) == 1
    file.write_text(file.read_text().replace(old, new))
    os.utime(file, (1, 1))
    made = importlib.reload(made)
    assert ran(made.toy) == 2
    assert (status(made.toy).state, status(made.toy).reason) == ("stale", said)


def test_a_row_that_is_no_more_is_unknown(library):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row3")
    edit(user_file(made), '"row3"', '"row9"')
    assert ran(made.toy) == 2
    assert (status(made.toy).asked, status(made.toy).state) == ("row9", "unknown")


THREADED = TOY.replace("fallback=", 'parallel=split("N", when="N >= 100"), fallback=')


def test_another_thread_count_is_another_box(library, monkeypatch):
    made = library(THREADED)
    monkeypatch.setenv("TUNE_THREADS", "3")
    assert tunegen.tune_manifest_set(made.toy, "row3")
    monkeypatch.setenv("TUNE_THREADS", "5")
    tunegen.load()
    assert ran(made.toy) == 2
    assert (status(made.toy).state, status(made.toy).reason) == ("foreign", "threads: 3 there, 5 here")
    assert tunegen.tune_manifest_set(made.toy, "row1")
    tunegen.load()
    assert ran(made.toy) == 1
    monkeypatch.setenv("TUNE_THREADS", "3")
    tunegen.load()
    assert ran(made.toy) == 3
    assert len(list(user_file(made).parent.glob("*.tune.json"))) == 2


def test_a_kernel_that_never_uses_threads_keeps_its_entries_when_their_number_changes(library, monkeypatch):
    """It takes those of the nearest number, until it has one of its own; then that one."""
    made = library()
    for threads, row in (("1", "row1"), ("4", "row3")):
        monkeypatch.setenv("TUNE_THREADS", threads)
        assert tunegen.tune_manifest_set(made.toy, row)
    monkeypatch.setenv("TUNE_THREADS", "5")
    tunegen.load()
    assert ran(made.toy) == 3
    row = status(made.toy)
    assert (row.source, row.state, row.tuned) == ("manifest", "ok", True)
    assert "-t4-" in row.path
    assert tunegen.tune_manifest_set(made.toy, "row2")
    tunegen.load()
    assert ran(made.toy) == 2
    assert "-t5-" in status(made.toy).path
    assert len(list(user_file(made).parent.glob("*.tune.json"))) == 3
    for path in user_file(made).parent.glob("*-t4-*"):
        path.write_text(path.read_text().replace('"threads": 4', '"threads": 5'))
    monkeypatch.setenv("TUNE_THREADS", "2")
    tunegen.load()
    assert ran(made.toy) == 1


def test_an_application_s_manifest_holds_for_other_numbers_of_threads_too(library, monkeypatch, tmp_path):
    made = library()
    monkeypatch.setenv("TUNE_THREADS", "3")
    tunegen.tune_manifest("app", tmp_path)
    assert tunegen.tune_manifest_set(made.toy, "row3")
    monkeypatch.setenv("TUNE_THREADS", "5")
    tunegen.tune_manifest("app", tmp_path)
    tunegen.load()
    assert ran(made.toy) == 3
    assert status(made.toy).path == str(next(tmp_path.glob("app-*-t3-*")))


def test_a_file_that_was_copied_from_another_box_is_foreign(library):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row3")
    edit(user_file(made), f'"cpu": "{this_box().cpu}"', '"cpu": "other"')
    assert ran(made.toy) == 2
    assert (status(made.toy).state, status(made.toy).reason) == ("foreign", f"cpu: other there, {this_box().cpu} here")


def test_two_environments_on_one_box_keep_their_entries(library, monkeypatch):
    """Each with its own LLVM: neither makes the other's entry stale, and neither has to tune again."""
    made, real = library(), compile_room.llvm_version()
    for version, suffix in ((real, "row3"), ("11.0", "row1")):
        for module in (record, sources):
            monkeypatch.setattr(module, "llvm_version", lambda version=version: version)
        tunegen.load()
        assert ran(made.toy) == 2
        assert tunegen.tune_manifest_set(made.toy, suffix)
    for version, row in ((real, 3), ("11.0", 1), (real, 3)):
        monkeypatch.setattr(sources, "llvm_version", lambda version=version: version)
        tunegen.load()
        assert ran(made.toy) == row
        assert (status(made.toy).state, status(made.toy).tuned) == ("ok", True)
    monkeypatch.setattr(sources, "llvm_version", lambda: "12.0")
    tunegen.load()
    why = "llvm changed from 11.0 to 12.0; not gated again: it is a test, or was started by one"
    assert (status(made.toy).state, status(made.toy).reason) == ("stale", why)


def test_another_abi_makes_entries_stale(library, monkeypatch):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row3")
    monkeypatch.setattr(spec_room, "ABI", 2)
    tunegen.load()
    assert (status(made.toy).state, status(made.toy).reason) == ("stale", "abi changed from 1 to 2")


def test_a_winner_that_this_box_cannot_run_is_not_stamped(library):
    made = library()
    put(user_file(made), {"toy": "row4"})
    assert ran(made.toy) == 2
    row = status(made.toy)
    assert (row.asked, row.state) == ("row4", "ineligible")
    assert "amx-tile" in row.reason or "sve" in row.reason


def test_a_winner_that_its_generator_declines_is_not_stamped(library):
    made = library(TOY.replace("gate=", 'define={"declined": "23"}, gate='))
    put(user_file(made), {"toy": "row3"})
    assert ran(made.toy) == 1
    row = status(made.toy)
    assert (row.asked, row.emitted, row.state, row.reason) == ("row3", "row1", "declined", "row 3 is not for here")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ nonsense }}", "UndefinedError"),
        ("{% if %}", "toy.ll.j2, line 1"),
        ("{{ perm.nonsense }}", "no attribute 'nonsense'"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% include 'none.j2' %}", "none.j2"),
        ("{% include '../../secret' %}", "leads out of"),
        ("this is no IR", "LLVM refused the IR"),
        ("define void @other() { ret void }", "has no code"),
    ],
)
def test_a_template_that_fails_costs_nothing_but_its_rows(library, template, said, caplog):
    made = library(templates={"toy.ll.j2": template})
    put(user_file(made), {"toy": "row3"})
    assert ran(made.toy) == -1
    row = status(made.toy)
    assert (row.asked, row.emitted, row.source, row.state) == ("row3", "reference", "reference", "failed")
    assert said in row.reason
    assert f"toy_f32__row3: {row.reason}" in caplog.text


def test_an_undefined_symbol_is_a_decline(library):
    template = """
declare float @expf(float)
define void @{{ symbol }}(ptr %x, ptr %out, i64 %N, ptr %scratch) {
  %v = load float, ptr %x
  %e = call float @expf(float %v)
  store float %e, ptr %out
  ret void
}
"""
    made = library(templates={"toy.ll.j2": template})
    put(user_file(made), {"toy": "row3"})
    assert ran(made.toy) == -1
    assert (status(made.toy).state, status(made.toy).reason) == (
        "declined", "the code calls expf, which no variant may"
    )  # fmt: skip


BOTH = TOY + TOY.replace("def toy", "def tea")


def test_one_bad_entry_never_costs_a_good_one(library):
    made = library(BOTH)
    for kernel in (made.toy, made.tea):
        assert tunegen.tune_manifest_set(kernel, "row3")
    path = user_file(made)
    raw = json.loads(path.read_text())
    kernels = raw["scopes"][made.__name__]["kernels"]
    kernels["toy[f32]"][:0] = [{"regimes": 5}, {"digest": "sha256:0", "regimes": [{"winner": "row1"}]}, None]
    kernels["tea[f32]"] = "nonsense"
    kernels[""] = [[]]
    put(path, raw)
    assert (ran(made.toy), ran(made.tea)) == (3, 2)
    assert [(r.kernel, r.state) for r in tunegen.tune_status()] == [("toy", "ok"), ("tea", "invalid")]


def test_a_damaged_file_is_reported_and_costs_no_other_file(library, tmp_path, monkeypatch):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row3")
    named = tmp_path / "named.tune.json"
    monkeypatch.setenv("TUNE_MANIFEST", str(named))
    put(named, '{"tunegen": 1, "box"')
    assert ran(made.toy) == 3
    tiers = {tier["tier"]: tier["state"] for tier in tunegen.explain("toy").tiers}
    assert (tiers["TUNE_MANIFEST"], tiers["user manifest"]) == ("invalid", "ok")
    put(user_file(made).with_name(this_box().file_name), "")
    put(tmp_path / "home" / made.__name__ / this_box().file_name, "")
    assert ran(made.toy) == 2
    assert status(made.toy).state == "invalid"


def test_names_that_clash_want_their_scope(library, tmp_path, monkeypatch):
    one, two = library(), library()
    named = tmp_path / "named.tune.json"
    monkeypatch.setenv("TUNE_MANIFEST", str(named))
    put(named, {"toy": "row3"})
    assert (ran(one.toy), ran(two.toy)) == (2, 2)
    assert "ambiguous" in tunegen.explain(one.toy).reason
    put(named, {"toy": "row3", f"{one.__name__}:toy": "row1", f"{two.__name__}:toy[f32]": "five"})
    assert (ran(one.toy), ran(two.toy)) == (1, 5)
    assert {r.state for r in tunegen.tune_status()} == {"unverified"}


def test_same_named_kernels_of_two_libraries_do_not_stamp_each_other(library):
    one, two = library(), library()
    assert tunegen.tune_manifest_set(one.toy, "row3")
    assert tunegen.tune_manifest_set(f"{two.__name__}:toy", "row1")
    tunegen.load()
    assert (ran(one.toy), ran(two.toy)) == (3, 1)


def test_files_go_in_order_named_application_user_system(library, tmp_path, monkeypatch):
    made = library()
    box = this_box()
    named = tmp_path / "named.tune.json"
    application = tunegen.tune_manifest("app", tmp_path)
    files = [tmp_path / "site" / "tunegen" / made.__name__ / box.file_name,
             tmp_path / "home" / made.__name__ / box.file_name, application, named]  # fmt: skip
    monkeypatch.setenv("TUNE_MANIFEST", str(named))
    for path, row in zip(files, ("row1", "row2", "row3", "five"), strict=True):
        put(path, {"toy": row})
        assert status(made.toy).asked == row
        assert status(made.toy).path == str(path)
    monkeypatch.delenv("TUNE_MANIFEST")
    tunegen.load()
    assert ran(made.toy) == 3


def test_the_policy_reference_goes_before_all_files(library, monkeypatch):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row3")
    monkeypatch.setenv("TUNE_POLICY", "reference")
    tunegen.load()
    assert ran(made.toy) == -1
    row = status(made.toy)
    assert (row.emitted, row.source, row.reason) == ("reference", "reference", "TUNE_POLICY=reference")
    assert not row.tuned


def test_regimes_are_stamped_each_with_its_own_winner(library):
    made = library(REGIMES)
    assert (ran(made.toy, 2), ran(made.toy, 3)) == (1, 2)
    spec, box = made.toy.spec, this_box()
    t = spec.signature.element_types[0]
    winners = {"N <= 2": "five", "": "row3"}
    record.write_entry(spec, t, box, record.entry_for(spec, t, box, winners, {}))
    tunegen.load()
    assert (ran(made.toy, 2), ran(made.toy, 3)) == (5, 3)
    assert [(r.condition, r.emitted, r.state) for r in status(made.toy).regimes] == [
        ("N <= 2", "five", "ok"),
        ("", "row3", "ok"),
    ]


def test_a_regime_whose_variant_declines_passes_its_sizes_on(library):
    made = library(REGIMES.replace("gate=", 'define={"declined": "1"}, gate='))
    assert (ran(made.toy, 2), ran(made.toy, 3)) == (2, 2)
    assert status(made.toy).regimes[0].emitted == ""


def generic(library):
    decline = '{% if T.name == "f64" and perm.row == 1 %}{{ decline("no f64") }}{% endif %}\n'
    return library(GENERIC, templates={"generic.ll.j2": decline + TOY_TEMPLATE})


def test_each_element_type_has_its_own_stamp_and_entry(library):
    made = generic(library)
    assert (ran(made.toy, dtype="f4"), ran(made.toy, dtype="f8")) == (1, 2)
    assert tunegen.tune_manifest_set(made.toy, "row3", "f64")
    tunegen.load()
    assert (ran(made.toy, dtype="f4"), ran(made.toy, dtype="f8")) == (1, 3)
    assert [(str(r), r.tuned) for r in tunegen.tune_status()] == [
        ("toy[f32]: row1 (fallback: no manifest entry)", False),
        ("toy[f64]: row3 (manifest)", True),
    ]
    written = tunegen.tune_manifest_set(made.toy, "row1")
    assert written.saved
    assert written.reason == "toy[f64]: no f64"


def test_companions_get_the_same_perm_and_all_decline_together(library):
    made = library(COMPANIONS)
    assert [ran(f) for f in (made.unpack, made.pack, made.toy)] == [3, 3, 3]
    assert [ran(f, 2) for f in (made.unpack, made.pack, made.toy)] == [3, 3, 3]
    assert tunegen.tune_manifest_set(made.toy, "row4")
    tunegen.load()
    assert [ran(f) for f in (made.toy, made.unpack, made.pack)] == [4, 4, 4]
    put(user_file(made), {"toy": "row1"})
    assert [ran(f) for f in (made.toy, made.unpack, made.pack)] == [3, 3, 3]
    assert (status(made.toy).state, status(made.toy).reason) == ("declined", "row 1 is not for here")


def test_a_companions_template_is_part_of_the_entry(library):
    text = COMPANIONS.replace('fn=pack, gen="toy.ll.j2"', 'fn=pack, gen="pack.ll.j2"')
    made = library(text, templates={"pack.ll.j2": '{% include "toy.ll.j2" %}'})
    assert tunegen.tune_manifest_set(made.toy, "row4")
    edit_template(made, "pack.ll.j2")
    assert (status(made.toy).state, status(made.toy).reason) == ("stale", "template pack.ll.j2 changed")
    assert [ran(f) for f in (made.toy, made.unpack, made.pack)] == [3, 3, 3]


def test_a_stamp_is_frozen_until_the_next_load(library):
    """A companion's first call, or another kernel's, does not pick anew."""
    made = library(COMPANIONS)
    put(user_file(made), {"toy": "reference"})
    assert ran(made.toy) == -1
    user_file(made).write_text('{"toy": "row4"}')
    assert ran(made.pack) == -1
    assert ran(made.toy) == -1
    tunegen.load(made.__name__)
    assert (ran(made.pack), ran(made.toy)) == (4, 4)


def test_an_entry_says_all_that_it_was_made_of(library):
    made = library(REGIMES)
    assert tunegen.tune_manifest_set(made.toy, "row3")
    manifest = document.decode(user_file(made).read_bytes(), "")
    (entry,) = manifest.scopes[made.__name__]["toy[f32]"]
    assert [(r.condition, r.winner, r.perm) for r in entry.regimes] == [
        ("N <= 2", "row3", {"row": 3}),
        ("", "row3", {"row": 3}),
    ]
    assert list(entry.templates) == ["toy.ll.j2", "loop.ll.j2"]
    assert entry.digest == spec_room.digest_of(entry.parts)
    assert manifest.box == this_box()
    assert msgspec.to_builtins(entry)["regimes"][1]["evidence"] == {"kind": "manual"}
