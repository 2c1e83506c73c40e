"""A manifest is data from anyone, a cache folder is the user's alone: what each rule of trust keeps out.

What stands in the tests of the rooms is not repeated: damage to documents, stale and tampered entries, names that lead
out of the templates, and folders that others can write to.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_architecture import MODULES, imports
from test_profiles import EXACT, LIST, OWN, SPECS, WIDE, a_profile
from test_regating import age
from test_values import BOX
from toys import PARAMETERS, TOY, ran

import tunegen
from tunegen import paths, tuning
from tunegen.box import information, this_box
from tunegen.choosing import store
from tunegen.choosing.document import MAX_BYTES, Entry, RegimeWinner
from tunegen.choosing.profiles import MAX_BYTES as MAX_PROFILE_BYTES
from tunegen.choosing.profiles import load_profiles
from tunegen.errors import StoreError
from tunegen.harness import history, journal
from tunegen.making import make
from tunegen.making.cache import ObjectCache
from tunegen.making.spec import digest_of
from tunegen.public import attempts, regating
from tunegen.public.record import entry_for
from tunegen.public.sources import target_manifest
from tunegen.signature import ELEMENT_TYPES

F32 = ELEMENT_TYPES["f32"]
SECRET = "the-secret-of-somebody"
EVIL = (
    f"../../{SECRET}", f"/etc/{SECRET}", f"tunegen/../../{SECRET}", f"{SECRET}\0", "$(touch pwned)", "`touch pwned`",
    "; touch pwned", "{{ cycler.__init__.__globals__.os.popen('touch pwned') }}",
    "__import__('os').system('touch pwned')", "!!python/object/apply:os.system ['touch pwned']",
    "row1", "reference", "N <= 2", "%s%n", "x" * 5000, "", "\n", "\u202e",
)  # fmt: skip
NUMBERS = (0, -1, 1 << 63, 1 << 64, 10**30, -(10**30), 1e308, -0.0, 5e-324, 0.5, True, None)
TEXT = st.sampled_from(EVIL)
VALUE = st.recursive(
    TEXT | st.sampled_from(NUMBERS),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
NAMES = ("toy", "toy[f32]", "regimes", "winner", "if", "perm", "params", "parts", "templates", "evidence", "digest",
         "large.minimum", "parallel.grain", "row", "box", "names", "kernels", "scopes", "tunegen")  # fmt: skip

opened: list[str] = []
_watching = [False]
STARTS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen")


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if _watching[0] and (event == "open" or event in STARTS):
        opened.append(f"{event} {arguments[0]!r}")


sys.addaudithook(_audit)


@contextlib.contextmanager
def watched():
    """Nothing of what happens inside starts a program, or opens a file that a manifest names."""
    opened.clear()
    _watching[0] = True
    try:
        yield
    finally:
        _watching[0] = False
    assert not [event for event in opened if SECRET in event or event.startswith(STARTS)]
    assert not Path("pwned").exists()


@pytest.fixture
def toy(library, tmp_path, monkeypatch):
    """A kernel with parameters, and a current folder in which nothing may appear."""
    monkeypatch.chdir(tmp_path)
    return library(PARAMETERS).toy


def a_manifest(toy):
    """A good manifest, as its writers write it."""
    assert tunegen.tune_manifest_set(toy, "row3")
    assert tuning.set(toy, {"large.minimum": 50}, load=False).status == "updated"
    return target_manifest(toy.spec.scope, this_box())


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(raw, path, value, name):
    """A copy of `raw` with another value at `path`, and under another name there, too."""
    raw = json.loads(json.dumps(raw))
    inner = raw
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    if isinstance(inner, dict):
        inner[name] = value
    return raw


def used(toy, path):
    """Everything that reads a manifest, and calls that depend on it."""
    tunegen.load()
    assert ran(toy, 8) in (1, 2, 3, -1)
    assert toy.spec.schema.check(dict(toy.values["f32"])) == dict(toy.values["f32"])
    tunegen.tune_status()
    str(tunegen.explain(toy))
    tuning.inspect(path)
    tuning.inspect()
    tuning.propose()
    tuning.parameters()
    with tunegen.session(manifest=path) as session:
        session.bind(toy)(np.zeros(3, np.float32), np.zeros(3, np.float32))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_whatever_stands_in_a_manifest_nothing_is_run_or_read_and_nothing_fails(toy, data):
    path = a_manifest(toy) if not _kept.get(toy.spec.scope) else target_manifest(toy.spec.scope, this_box())
    raw = _kept.setdefault(toy.spec.scope, json.loads(path.read_bytes()))
    where = data.draw(st.sampled_from([p for p in places(raw) if p and p[0] != "box"]))
    hostile = changed(raw, where, data.draw(VALUE), data.draw(st.sampled_from(NAMES) | TEXT))
    path.write_bytes(json.dumps(hostile).encode())
    with watched():
        used(toy, path)
        tuning.set(toy, {"large.minimum": 70})
        tunegen.tune_manifest_set(toy, "row1")
        tuning.forget()
    path.write_bytes(json.dumps(raw).encode())


_kept: dict[str, object] = {}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_bytes_of_a_manifest_that_are_damaged_stop_nothing(toy, data):
    path = a_manifest(toy)
    whole = path.read_bytes()
    at = data.draw(st.integers(0, len(whole)))
    noise = data.draw(
        st.binary(max_size=8) | st.sampled_from([b"[" * 2000, b'{"a":' * 900, b"NaN", b"1e999", b"9" * 5000])
    )
    path.write_bytes(whole[:at] + noise + whole[at + data.draw(st.integers(0, 40)) :])
    with watched():
        used(toy, path)
        tuning.set(toy, {"large.minimum": 70})
    for aside in path.parent.glob("*.unreadable*"):
        aside.unlink()
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("depth", [100, 900, 960, 980, 985, 990, 995, 1000, 100_000])
def test_no_depth_of_nesting_ends_a_reader_or_a_writer(toy, depth):
    path = a_manifest(toy)
    raw = path.read_text().rstrip()
    assert raw.endswith("}")
    path.write_text(f'{raw[:-1]}, "deep": {"[" * depth}{"]" * depth}}}')
    with watched():
        used(toy, path)
        change = tuning.set(toy, {"large.minimum": 70})
    assert change.status in ("updated", "write_failed")


def test_of_a_name_that_comes_twice_the_last_one_counts(toy):
    path = a_manifest(toy)
    raw = path.read_text().rstrip()
    name = json.dumps(toy.spec.scope)
    path.write_text(
        f'{raw[:-1]}, "scopes": {{{name}: {{"kernels": {{"toy[f32]": [{{"regimes": [{{"winner": "row1"}}]}}]}}}}}}}}'
    )
    tunegen.load()
    assert ran(toy, 8) == 1
    assert dict(toy.values["f32"])["large.minimum"] == 100


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_a_number_that_is_none_makes_a_file_malformed_and_stops_nothing(toy, number):
    path = a_manifest(toy)
    path.write_text(path.read_text().replace('"large.minimum": 50', f'"large.minimum": {number}'))
    with watched():
        used(toy, path)
    assert store.read(path).status == "malformed"
    assert tuning.set(toy, {"large.minimum": 70}).status == "updated"
    assert path.with_name(f"{path.name}.unreadable").exists()


@pytest.mark.parametrize("number", ["1e308", str(10**30), str(1 << 64), "-1", "0.5", "true", '"50"', "null", "[50]"])
def test_a_number_that_is_not_allowed_is_never_used(toy, number):
    path = a_manifest(toy)
    path.write_text(path.read_text().replace('"large.minimum": 50', f'"large.minimum": {number}'))
    with watched():
        used(toy, path)
    assert toy.values["f32"]["large.minimum"] == 100
    assert ran(toy, 8) == 3


def specials(tmp_path):
    """Files that are no files: reading one would wait for ever, or never end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    return ("pipe", "zero", "dangling", "circle", "huge")


def test_files_that_are_no_files_are_not_read(toy, tmp_path, caplog):
    """Neither as a manifest nor as a profile, a journal, a history or a note of attempts."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    for name in specials(tmp_path):
        path = tmp_path / name
        assert store.read(path).status in ("unreadable", "malformed", "not_found")
        assert tuning.inspect(path).status in ("unreadable", "malformed", "not_found")
        assert tuning.import_profile(path, {"features": ["avx2"]}).status in ("unreadable", "malformed", "not_found")
        assert journal._read(path) == []
        assert attempts.read(path) == {}
        history.keep(path, "lib")
        (folder / f"{name}.json").symlink_to(path)
    found = load_profiles([folder], "lib", {})
    assert (dict(found.found), len(found.refused)) == ({}, 5)


def test_a_huge_profile_is_not_read(tmp_path):
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(MAX_PROFILE_BYTES + 1)
    with pytest.raises(OSError, match="larger than"):
        paths.read_plain(tmp_path / "huge.json", MAX_PROFILE_BYTES)
    with (tmp_path / "huge.tune.json").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert "larger than" in store.read(tmp_path / "huge.tune.json").problem


def test_a_link_in_a_manifest_s_place_is_read_and_then_replaced_and_what_it_leads_to_stays(toy, tmp_path):
    path = a_manifest(toy)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    tunegen.load()
    assert ran(toy, 8) == 3
    assert tuning.set(toy, {"large.minimum": 70}).status == "updated"
    assert not path.is_symlink()
    assert elsewhere.read_bytes() == before
    path.unlink()
    elsewhere.write_text("a text that is no manifest")
    path.symlink_to(elsewhere)
    assert tuning.set(toy, {"large.minimum": 70}).status == "updated"
    assert elsewhere.read_text() == "a text that is no manifest"


@pytest.mark.parametrize("kind", ["lock", "holder"])
def test_a_link_in_the_place_of_a_lock_does_no_harm_to_what_it_leads_to(tmp_path, kind):
    """In a folder that others can write to, too, a writer changes nothing but the manifest."""
    path, victim = tmp_path / "x.tune.json", tmp_path / "victim"
    victim.write_text("precious")
    path.with_name(f".{path.name}.{kind}").symlink_to(victim)
    with contextlib.suppress(StoreError):
        store.write(path, this_box(), information(), "lib", "k[f32]", Entry([RegimeWinner("a")], "sha256:1"))
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("evil", EVIL)
def test_lines_of_a_journal_and_of_attempts_are_data(tmp_path, evil):
    text = msgspec.json.encode({"key": evil, "suffix": evil, "identity": evil, "outcome": {"state": evil}, "x": evil})
    (tmp_path / "a").write_bytes(text + b"\n" + b"[" * 100_000 + b"\n" + text)
    with watched():
        journal._read(tmp_path / "a")
        attempts.read(tmp_path / "a")
        regating._read(tmp_path / "a")
        history.earlier(tmp_path / "a", "lib")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_whatever_stands_in_a_record_of_verdicts_a_winner_is_taken_for_good_by_its_own_name_alone(toy, data):
    if not target_manifest(toy.spec.scope, this_box()).exists():
        assert tunegen.tune_manifest_set(toy, "row3")
        age(target_manifest(toy.spec.scope, this_box()))
    digest = digest_of(entry_for(toy.spec, F32, this_box(), dict.fromkeys(toy.spec.fallback.regimes, "row3"), {}).parts)
    own = regating.Winner(toy.spec.module, "toy", "f32", "row3", digest).name
    record = regating.path_for(toy.spec.scope, this_box())
    names = TEXT | st.sampled_from([own, own[:-1], own.upper()])
    raw = data.draw(st.dictionaries(names, TEXT | VALUE, max_size=3) | VALUE | st.binary(max_size=9))
    record.write_bytes(raw if isinstance(raw, bytes) else json.dumps(raw).encode())
    regating._verdicts.clear()
    with watched():
        used(toy, target_manifest(toy.spec.scope, this_box()))
    texts = isinstance(raw, dict) and all(isinstance(reason, str) for reason in raw.values())
    assert ran(toy, 2000) == (3 if texts and raw.get(own) == "" else 2)


@pytest.mark.parametrize("name", [n for n in EVIL if not n.replace("_", "").isalnum()])
def test_no_name_leads_out_of_a_folder(toy, tmp_path, name):
    """Of an application, a scope, a kernel, a profile, a template, an object."""
    with watched():
        with pytest.raises(ValueError, match="no plain name"):
            tunegen.tune_manifest(name)
        with pytest.raises(tunegen.DeclarationError):
            tunegen.tune_scope(name=name, templates=tmp_path)
        with pytest.raises((tunegen.KernelNotFound, tunegen.ScopeNotFound)):
            tunegen.explain(name)
        assert toy.spec.templates.digest(name) == ""
        assert ObjectCache(tmp_path / "cache").image(name) is None
    profile = tmp_path / "p.json"
    profile.write_text(json.dumps({"tunegen_profile": 1, "scope": toy.spec.scope, "name": name, "kernels": {name: {}}}))
    with watched():
        assert tuning.import_profile(profile, {"features": ["avx2"]}).status != "updated"
    assert {p.name for p in tmp_path.iterdir()} <= {"libraries", "cache", "home", "p.json"}


def test_an_object_under_the_record_of_another_variant_is_no_variant(library, tmp_path):
    """A record may be wrong: the symbol is not in the object, and another row runs."""
    made = library(TOY.replace("row2; row1; reference", "row1 if N <= 2; row2; reference"))
    assert (ran(made.toy, 1), ran(made.toy, 3)) == (1, 2)
    index = tmp_path / "cache" / "index"
    records = {path: json.loads(path.read_bytes()) for path in index.iterdir()}
    objects = {record["symbol"]: record["object"] for record in records.values()}
    for path, record in records.items():
        if record["symbol"] == "toy_f32__row2":
            path.write_text(json.dumps({**record, "object": objects["toy_f32__row1"]}))
    make._mapped.clear()
    tunegen.load()
    assert ran(made.toy, 3) in (1, -1)
    assert made.toy.stamp["f32"].choices[-1].emitted != "row2"


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no owners")
def test_a_cache_that_others_could_put_theirs_in_the_place_of_is_refused(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert f"others can replace {shared / 'cache'}" in ObjectCache(shared / "cache").problem
    shared.chmod(0o1777)
    assert ObjectCache(shared / "cache").problem == ""


def test_a_link_in_the_cache_s_place_is_followed_once(tmp_path):
    """What it leads to later is not looked at: nobody can slip another folder in after the check."""
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to(tmp_path / "mine")
    cache = ObjectCache(tmp_path / "cache")
    (tmp_path / "cache").unlink()
    (tmp_path / "cache").symlink_to(tmp_path / "theirs")
    digest = cache.put_image(b"code")
    assert (tmp_path / "mine" / "objects" / digest).exists()
    assert cache.image(digest) == b"code"
    (tmp_path / "theirs").chmod(0o777)
    assert "others can write" in ObjectCache(tmp_path / "cache").problem


FORBIDDEN = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"}


@pytest.mark.parametrize("module", MODULES)
def test_there_is_no_shell_anywhere_and_no_data_becomes_code(module):
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = {ast.unparse(call.func) for call in calls}
    assert not names & FORBIDDEN
    assert not [call.lineno for call in calls for keyword in call.keywords if keyword.arg == "shell"]
    # annotations are code of the author's, and may be text; an expression is read by the parser alone
    allowed = {"tunegen.signature": {"eval"}, "tunegen.expressions": {"compile"}}.get(module, set())
    assert names & {"exec", "eval", "compile"} <= allowed
    unsafe = {"pickle", "marshal", "shelve", "dill", "yaml", "code", "runpy"}
    assert not [found.target for found in imports(module) if found.target.split(".")[0] in unsafe]


def test_nothing_of_the_environment_reaches_a_template(library, monkeypatch):
    """The room that renders does not know the environment, and a feature that LLVM does not know is dropped."""
    known = {found.target for found in imports("tunegen.making.render")}
    assert not known & {"tunegen.knobs", "tunegen.paths"}
    evil = "{{ 7 * 7 }}"
    text = "; {{ box.features | sort | join(' ') }} {{ perm.row }}\n{% include 'toy.ll.j2' %}"
    made = library(TOY.replace("toy.ll.j2", "main.ll.j2"), templates={"main.ll.j2": text})
    plain = made.toy.ir("row2")
    for name in ("TUNE_FEATURES", "TUNE_LOG_X", "TUNE_PARENT", "HOME", "PATH_X"):
        monkeypatch.setenv(name, f"+{evil}" if name == "TUNE_FEATURES" else evil)
    assert made.toy.ir("row2") == plain
    assert "49" not in plain.split("\n")[0]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.data())
def test_whatever_stands_in_a_profile_it_is_used_or_refused(tmp_path, data):
    raw = a_profile(data.draw(st.sampled_from([EXACT, LIST, OWN, WIDE])), threads=2)
    where = data.draw(st.sampled_from([path for path in places(raw) if path]))
    hostile = changed(raw, where, data.draw(VALUE), data.draw(st.sampled_from((*raw, *NAMES)) | TEXT))
    text = json.dumps(hostile).encode()
    cut = data.draw(st.none() | st.integers(0, len(text)))
    (tmp_path / "a.json").write_bytes(text[:cut])
    (tmp_path / "b.json").write_text(json.dumps(a_profile(OWN)))
    with watched():
        for box in (None, BOX):
            found = load_profiles([tmp_path], "lib", SPECS, box)
            assert set(found.found) | set(found.refused) == {str(tmp_path / name) for name in ("a.json", "b.json")}
            found.tiers(BOX, SPECS)
