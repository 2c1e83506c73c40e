"""Several scopes in one program: each is tuned, changed and broken on its own, whatever their kernels are called."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path

import pytest
from toys import PARAMETERS, ran

import tunegen
from tunegen import cli, tuning
from tunegen.box import this_box
from tunegen.errors import KernelNotFound
from tunegen.harness import journal
from tunegen.making import make
from tunegen.public import attempts, sources
from tunegen.public.status import status_lines, titles


def states(*scopes):
    return {row.scope: (row.emitted, row.state, row.tuned) for row in tunegen.tune_status(*scopes)}


def folder(made):
    return Path(made.__file__).parent


def edit(made, file, old, new):
    """Changes a file of a library, and loads its module anew, as the next start of a program would."""
    path = folder(made) / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    sources.refresh()
    importlib.reload(made)


def test_each_is_tuned_or_not_by_itself_and_names_may_be_the_same(library):
    one, two = library(), library()
    names = one.__name__, two.__name__
    assert tunegen.tune_manifest_set(one.toy, "row3")
    tunegen.load()
    assert (ran(one.toy), ran(two.toy)) == (3, 2)
    assert [states()[name][2] for name in names] == [True, False]
    assert states(names[1]) == {names[1]: ("row2", "missing", False)}
    assert status_lines(tunegen.tune_status())[1:] == [
        f"  {names[0]}:toy[f32]: row3 (manifest)",
        f"  {names[1]}:toy[f32]: row2 (fallback: no manifest entry)",
        f"  hint: run `tunegen tune {names[1]}`, or start with `-- --tune`",
    ]
    assert status_lines(tunegen.tune_status(names[0]))[1:] == ["  toy[f32]: row3 (manifest)"]
    assert tunegen.tune_manifest_set(two.toy, "row1")
    tunegen.load()
    assert (ran(one.toy), ran(two.toy)) == (3, 1)
    with pytest.raises(KernelNotFound, match="ambiguous"):
        tunegen.explain("toy")
    assert tunegen.explain(f"{names[1]}:toy").emitted == "row1"


def test_a_name_has_its_scope_only_where_it_would_mean_two_kernels():
    places = [("a", "exp[f32]"), ("b", "exp[f32]"), ("b", "gemm[f32]"), ("b", "gemm[f32]")]
    assert titles(places) == ["a:exp[f32]", "b:exp[f32]", "gemm[f32]", "gemm[f32]"]


CHANGES = [
    ("templates/toy.ll.j2", "{# Every", "{# Each", "stale"),
    ("templates/loop.ll.j2", "%i = phi", "%i = phi", "ok"),
    ("templates/loop.ll.j2", "{% macro", "{# new #}{% macro", "stale"),
    ("__init__.py", "gate=bitwise()", "gate=ulp(2)", "stale"),
    ("__init__.py", "gate=", 'define={"new": 1}, gate=', "stale"),
    ("__init__.py", 'In[f32, "N"], out', 'InOut[f32, "N"], out', "stale"),
    ("__init__.py", "row=[1, 2, 3]", "row=[1, 2]", "unknown"),
    ("__init__.py", "import numpy as np", "import numpy as np\n__version__ = '2'", "ok"),
]


@pytest.mark.parametrize(("file", "old", "new", "state"), CHANGES)
def test_a_change_of_one_costs_the_other_no_stamp_no_attempt_no_journal_and_no_time(library, file, old, new, state):
    one, two = library(), library()
    for made in (one, two):
        assert tunegen.tune_manifest_set(made.toy, "row3")
    tunegen.load()

    def known(made):
        spec, (t, *_) = made.toy.spec, made.toy.spec.signature.element_types
        row = spec.grid.find("row1")
        return (attempts.digest_of(made.scope, spec), journal.identity_of(spec, t, row, this_box()),
                journal.intent_of(spec, t, row, this_box()), made.toy.stamp["f32"])  # fmt: skip

    before, changed = known(two), known(one)
    edit(one, file, old, new)
    counted = make.counters.copy()
    tunegen.load(two.__name__)
    assert make.counters - counted == {"hits": 1}, "no template is rendered and no code is made"
    assert known(two) == before
    tunegen.load()
    assert states()[one.__name__][1] == state
    assert states()[two.__name__] == ("row3", "ok", True)
    assert (known(one)[0] != changed[0]) == (old != new), "what was tried of the changed one is tried again"


def test_two_that_have_kernels_and_templates_of_one_name_share_the_object_cache(library, child):
    """The second start renders nothing: neither overwrites what the cache knows of the other."""
    one, two = library(), library()
    path = folder(two) / "templates" / "toy.ll.j2"
    path.write_text(path.read_text().replace("{# Every", "{# Each"))
    start = f"""
        import sys, numpy as np, {one.__name__} as one, {two.__name__} as two
        from tunegen.making.make import counters
        one.toy(np.zeros(3, np.float32)), two.toy(np.zeros(3, np.float32))
        print(counters["rendered"], "jinja2" in sys.modules)
    """
    assert [child(start).stdout.split() for _ in range(3)] == [["2", "True"], ["0", "False"], ["0", "False"]]


def test_load_stamps_the_kernels_of_the_scopes_that_are_named(library):
    one, two = library(), library()
    ran(one.toy), ran(two.toy)
    old = two.toy.stamp
    for made in (one, two):
        assert tunegen.tune_manifest_set(made.toy, "row3")
    tunegen.load(one.__name__)
    assert (ran(one.toy), ran(two.toy)) == (3, 2)
    assert two.toy.stamp is old
    tunegen.load(two.__name__, one.__name__)
    assert (ran(one.toy), ran(two.toy)) == (3, 3)


BREAKS = {
    "syntax": lambda made: (folder(made) / "templates" / "toy.ll.j2").write_text("{% if %}"),
    "code": lambda made: (folder(made) / "templates" / "toy.ll.j2").write_text("define void @{{ symbol }}("),
    "bytes": lambda made: (folder(made) / "templates" / "toy.ll.j2").write_bytes(b"\xff\xfe"),
    "no file": lambda made: (folder(made) / "templates" / "loop.ll.j2").unlink(),
    "no folder": lambda made: shutil.rmtree(folder(made) / "templates"),
}


@pytest.mark.parametrize("how", BREAKS)
def test_broken_templates_of_one_cost_the_other_nothing(library, how):
    one, two = library(), library()
    for made in (one, two):
        assert tunegen.tune_manifest_set(made.toy, "row3")
    BREAKS[how](one)
    tunegen.load()
    assert (ran(one.toy), ran(two.toy)) == (-1, 3)
    assert [states()[made.__name__][2] for made in (one, two)] == [False, True]
    with tunegen.session(pins={f"{one.__name__}:toy": "row1"}) as session:
        assert (ran(session.bind(one.toy)), ran(session.bind(two.toy))) == (-1, 3)


@pytest.mark.parametrize("text", ["", "{}", "[" * 100_000, '{"tunegen_profile": 1, "scope": "other", "kernels": {}}'])
def test_a_broken_profile_of_one_costs_the_other_nothing(library, caplog, text):
    one, two = library(), library()
    for made in (one, two):
        made.scope.profiles = folder(made) / "profiles"
        made.scope.profiles.mkdir()
    profile = {
        "tunegen_profile": 1, "scope": two.__name__, "architecture": this_box().architecture, "tuning_abi": 1,
        "selector": {"microarchitecture": this_box().cpu},
        "provenance": {"cpu": "this", "date": "2026-01-31", "versions": {}, "samples": 15},
        "kernels": {"toy[f32]": {"regimes": [{"winner": "row1", "perm": {"row": 1}}]}},
    }  # fmt: skip
    (two.scope.profiles / "good.json").write_text(json.dumps(profile))
    (one.scope.profiles / "bad.json").write_text(text)
    assert (ran(one.toy), ran(two.toy)) == (2, 1)
    assert caplog.text.count("is refused") == 1


def test_the_files_of_one_cost_the_other_nothing_however_damaged(library):
    one, two = library(), library()
    for made in (one, two):
        assert tunegen.tune_manifest_set(made.toy, "row3")
    sources.target_manifest(one.__name__, this_box()).write_text("[" * 100_000)
    tunegen.load()
    assert (ran(one.toy), ran(two.toy)) == (2, 3)


def test_a_name_in_the_folder_of_a_scope_means_its_own_kernel(library, tmp_path, monkeypatch):
    """In a file for all scopes it is ambiguous, and so are the names of neither."""
    one = library()
    path = sources.target_manifest(one.__name__, this_box())
    path.parent.mkdir(parents=True)
    path.write_text('{"toy": "row3"}')
    two = library()
    assert (ran(one.toy), ran(two.toy)) == (3, 2)
    named = tmp_path / "named.json"
    named.write_text('{"toy": "row1"}')
    monkeypatch.setenv("TUNE_MANIFEST", str(named))
    tunegen.load()
    assert (ran(one.toy), ran(two.toy)) == (3, 2)
    reason = [tier["reason"] for tier in tunegen.explain(two.toy).tiers if tier["tier"] == "TUNE_MANIFEST"]
    assert reason == [f"the name 'toy' is ambiguous: write one of {one.__name__}:toy, {two.__name__}:toy"]
    named.write_text(json.dumps({f"{two.__name__}:toy": "row1"}))
    tunegen.load()
    assert (ran(one.toy), ran(two.toy)) == (3, 1)


def test_one_manifest_of_an_application_holds_what_both_have(library, tmp_path):
    one, two = library(PARAMETERS), library(PARAMETERS)
    path = tunegen.tune_manifest("app", tmp_path)
    assert tunegen.tune_manifest_set(one.toy, "row3")
    assert tunegen.tune_manifest_set(two.toy, "row2")
    for made, ratio in ((one, 0.25), (two, 0.75)):
        assert tuning.set(made.toy, {"ratio": ratio})
    tunegen.load()
    found = json.loads(path.read_text())["scopes"]
    assert found.keys() == {one.__name__, two.__name__}
    assert (ran(one.toy), ran(two.toy)) == (3, 2)
    assert [made.toy.values["f32"]["ratio"] for made in (one, two)] == [0.25, 0.75]
    text = path.read_text()
    path.write_text(text.replace('"winner": "row3"', '"winner": ["row3"]', 1))
    tunegen.load()
    assert (ran(one.toy), ran(two.toy)) == (1, 2)
    assert [made.toy.values["f32"]["ratio"] for made in (one, two)] == [0.25, 0.75]
    assert tuning.forget(one.toy)
    tunegen.load()
    assert [made.toy.values["f32"]["ratio"] for made in (one, two)] == [0.5, 0.75]


def test_what_lies_beside_a_manifest_of_both_is_of_one(library, tmp_path):
    """Kernels of one name have journals, samples and a history of their own, for a tuner is that of a scope."""
    path = tunegen.tune_manifest("app", tmp_path)
    assert journal.path_for(path, "one") != journal.path_for(path, "two")
    for scope in ("one", "two"):
        journal.write_samples(path, scope, "toy[f32]", scope, {})
    found = sorted(json.loads(file.read_text())["digest"] for file in tmp_path.glob("*.samples/toy_f32.json"))
    assert found == ["one", "two"]


def test_a_scope_that_cannot_be_imported_costs_a_command_the_exit_code_and_nothing_else(library, tmp_path, capsys):
    name = library().__name__
    for broken, text in (("toylib_raises", "import no_such_module"), ("toylib_typo", "x = (")):
        (tmp_path / "libraries" / f"{broken}.py").write_text(text)
    importlib.invalidate_caches()
    assert cli.run(["status", "toylib_raises", name, "toylib_typo"]) == 1
    out, err = capsys.readouterr()
    assert "1 tuned for this box" in out
    assert "tunegen: toylib_raises cannot be imported: ModuleNotFoundError: No module named 'no_such_module' (" in err
    assert "toylib_raises.py, line 1)\n" in err
    assert "tunegen: toylib_typo cannot be imported: SyntaxError: " in err
    assert cli.run(["status", name]) == 0
    assert cli.run(["tune", "toylib_typo"]) == 1
    assert "tunegen: toylib_typo cannot be imported" in capsys.readouterr().err
