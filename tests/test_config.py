"""`tunegen config`: each setting says what is in force, and who said so, in the order of who decides."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tunegen
from tunegen import cli, knobs
from tunegen.public import host, scope, sources
from tunegen.public.settings import Effective, effective


def setting(name, session=None):
    (row,) = [row for row in effective(session) if row.name == name]
    return row.value, row.origin


TABLE = [
    # the setting, its default, what the environment says, and what is in force then
    ("mode", "normal", "test", "test"),
    ("policy", "fallback", "warn", "warn"),
    ("manifest", None, "/tmp/x.tune.json", "/tmp/x.tune.json"),
    ("home", "HOME/share/tunegen", "/tmp/home", "/tmp/home"),
    ("cache", "HOME/caches/tunegen", "here/cache", "FOLDER/here/cache"),
    ("cache_limit", 512 << 20, "2 GiB", 2 << 30),
    ("threads", 7, "3", 3),
    ("features", "", "-avx512f", "-avx512f"),
    ("log", "warning", "debug", "debug"),
    ("parent", "", "1", "1"),
]


@pytest.fixture
def plain(monkeypatch, tmp_path):
    """An environment that says nothing, and a box of seven cores."""
    for knob in knobs.TABLE:
        monkeypatch.delenv(knob.name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tunegen.box.threads_for", lambda allowed: 7)


def test_the_table_has_every_variable():
    assert {f"TUNE_{name.upper()}" for name, *_ in TABLE} == {knob.name for knob in knobs.TABLE}
    assert {knob.name for knob in knobs.TABLE} <= {row.variable for row in effective()}


@pytest.mark.parametrize(("name", "default", "text", "value"), TABLE, ids=[row[0] for row in TABLE])
def test_the_default_and_the_environment(plain, monkeypatch, tmp_path, name, default, text, value):
    here = {"HOME": str(tmp_path), "FOLDER": str(tmp_path)}
    for short, long in here.items():
        default, value = (v.replace(short, long) if isinstance(v, str) else v for v in (default, value))
    assert setting(name) == (default, "default")
    monkeypatch.setenv(f"TUNE_{name.upper()}", "")
    assert setting(name) == (default, "default")
    monkeypatch.setenv(f"TUNE_{name.upper()}", text)
    assert setting(name) == (value, "environment")


def test_the_application_stands_below_the_environment(plain, monkeypatch, tmp_path):
    @tunegen.tune_policy(missing="error")
    def main():
        """An application's."""

    path = str(tunegen.tune_manifest("app", tmp_path))
    tunegen_log = __import__("logging").getLogger("tunegen")
    tunegen_log.setLevel("INFO")
    assert setting("policy") == ("error", "application")
    assert setting("manifest") == (path, "application")
    assert setting("log") == ("info", "application")
    for name, text in (("policy", "warn"), ("manifest", "/tmp/y"), ("log", "error")):
        monkeypatch.setenv(f"TUNE_{name.upper()}", text)
        assert setting(name) == (text, "environment")


def test_a_log_that_we_started_ourselves_is_no_word_of_the_application(plain):
    knobs.start_logging()
    assert setting("log") == ("warning", "default")


def test_a_call_goes_first_where_it_decides(plain, monkeypatch, tmp_path):
    """Fewer threads of a session go before the environment's; its manifest stands below `TUNE_MANIFEST`."""
    tunegen.tune_manifest("app", tmp_path)
    own = str(tmp_path / "own.tune.json")
    with tunegen.session(threads=2, manifest=own) as session:
        assert setting("threads", session) == (2, "call")
        assert setting("manifest", session) == (own, "call")
        monkeypatch.setenv("TUNE_THREADS", "4")
        assert setting("threads", session) == (2, "call")
        monkeypatch.setenv("TUNE_MANIFEST", "/tmp/z")
        assert setting("manifest", session) == ("/tmp/z", "environment")
    with tunegen.session() as session:
        assert setting("threads", session) == (4, "environment")


def test_what_a_library_says_of_its_scope(plain, library, monkeypatch, tmp_path):
    made = library()
    name = made.scope.name
    assert setting(f"{name}: tuner") == (f"-m tunegen.harness {name}", "default")
    assert setting(f"{name}: profiles") == (None, "default")
    monkeypatch.setattr(made.scope, "tuner", Path("/lib/tune.py"))
    monkeypatch.setattr(made.scope, "profiles", Path("/lib/profiles"))
    assert setting(f"{name}: tuner") == ("/lib/tune.py", "library")
    assert setting(f"{name}: profiles") == ("/lib/profiles", "library")


def test_where_new_winners_go_follows_who_names_the_place(plain, library, monkeypatch, tmp_path):
    name = f"{library().scope.name}: manifest to write"
    value, origin = setting(name)
    assert (Path(value).parent.parent, origin) == (tmp_path / "share" / "tunegen", "default")
    monkeypatch.setenv("TUNE_HOME", str(tmp_path / "home"))
    value, origin = setting(name)
    assert (Path(value).parent.parent, origin) == (tmp_path / "home", "environment")
    path = str(tunegen.tune_manifest("app", tmp_path))
    assert setting(name) == (path, "application")
    monkeypatch.setenv("TUNE_MANIFEST", "/tmp/y")
    assert setting(name) == ("/tmp/y", "environment")


@pytest.mark.parametrize(("name", "text"), [("mode", "fast"), ("threads", "0"), ("cache_limit", "much"), ("log", "x")])
def test_a_bad_variable_is_a_row_with_a_problem_and_hides_no_other(library, capsys, monkeypatch, name, text):
    library()
    monkeypatch.setenv(f"TUNE_{name.upper()}", text)
    rows = {row.name: row for row in effective()}
    assert (rows[name].value, rows[name].origin) == (None, "environment")
    assert text in rows[name].problem
    assert sum(not row.problem for row in rows.values()) >= len(knobs.TABLE) - 2


def test_a_cache_that_is_not_trusted_is_a_problem(tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    (row,) = [row for row in effective() if row.name == "cache"]
    assert row.value == str(tmp_path / "cache")
    assert "others can write to" in row.problem


def test_the_command_prints_all_of_it(library, capsys, monkeypatch):
    name = library().scope.name
    monkeypatch.setenv("TUNE_POLICY", "warn")
    assert cli.run(["config", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["settings"]
    assert {row["name"] for row in found} >= {"policy", "threads", "system", f"{name}: tuner"}
    assert set(found[0]) == set(Effective.__struct_fields__)
    assert cli.run(["config", name]) == 0
    assert "environment" in capsys.readouterr().out
    monkeypatch.setenv("TUNE_MODE", "fast")
    assert cli.run(["config", name]) == 2
    assert "allowed are normal, tune, test" in " ".join(capsys.readouterr().out.split())


def test_nothing_is_chosen_or_made_to_answer(library):
    made = library()
    effective()
    assert made.toy.value_choices == {}
    assert scope.scopes()
    assert sources._read == {}
    assert host._marked == []
