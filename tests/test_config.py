"""`tunegen config`: each setting says what is in force, and who said so, in the order of who decides."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from toys import HEADER

import tunegen
from tunegen import cli, knobs
from tunegen.box import this_box
from tunegen.public import host, scope, sources
from tunegen.public.settings import Effective, effective


class Program:
    """A process in which everybody says something about its settings, the lowest first."""

    def __init__(self, library, monkeypatch, folder) -> None:
        self.patch, self.folder = monkeypatch, folder
        self._library = library
        self.declared: dict[str, str] = {}
        self.session: dict[str, Any] = {}

    @cached_property
    def made(self):
        more = "".join(f", {name}={value!r}" for name, value in self.declared.items())
        return self._library(header=HEADER.replace('"templates")', f'"templates"{more})'))

    def texts(self, value):
        here = {"FOLDER": self.folder, "SCOPE": self.made.__name__, "BOX": this_box().file_name}
        for short, long in here.items():
            value = value.replace(short, str(long)) if isinstance(value, str) else value
        return value

    def rows(self) -> dict[str, Effective]:
        """What is in force, in a session if the program makes one."""
        name = self.made.__name__
        if not self.session:
            found = effective()
        else:
            with tunegen.session(**{k: self.texts(v) for k, v in self.session.items()}) as session:
                found = effective(session)
        return {row.name.replace(name, "SCOPE"): row for row in found}


class Word(NamedTuple):
    """What somebody says, and what is in force then if nobody above says anything."""

    say: Callable[[Program], object]
    value: object


class Setting(NamedTuple):
    """Who can say what a setting is, the highest first; None where it cannot be said."""

    call: Word | None
    environment: Word | None
    application: Word | None
    library: Word | None
    default: Word | None


def nothing(program: Program) -> None:
    """What holds when nobody says anything."""


def variable(name: str, text: str, value: object) -> Word:
    return Word(lambda program: program.patch.setenv(name, program.texts(text)), value)


def in_session(value: object, **arguments: Any) -> Word:
    return Word(lambda program: program.session.update(arguments), value)


def declared(name: str, value: str) -> Word:
    def say(program: Program) -> None:
        path = program.folder / value
        path.mkdir() if name == "profiles" else path.touch()
        program.declared[name] = str(path)

    return Word(say, f"FOLDER/{value}")


def policy(name: str, **options: Any) -> Word:
    return Word(lambda program: tunegen.tune_policy(**options), options[name])


def by_environment(name: str, default: object, text: str, value: object) -> Setting:
    """What the environment alone can say."""
    return Setting(None, variable(name, text, value), None, None, Word(nothing, default))


APPLICATION_FILE = Word(lambda program: tunegen.tune_manifest("app", program.folder), "FOLDER/app-BOX")
SETTINGS = {
    "mode": by_environment("TUNE_MODE", "normal", "test", "test"),
    "policy": Setting(
        None, variable("TUNE_POLICY", "warn", "warn"), policy("missing", missing="error"), None,
        Word(nothing, "fallback"),
    ),
    "manifest": Setting(
        in_session("FOLDER/own.tune.json", manifest="FOLDER/own.tune.json"),
        variable("TUNE_MANIFEST", "/tmp/x.tune.json", "/tmp/x.tune.json"),
        APPLICATION_FILE, None, Word(nothing, None),
    ),
    "home": by_environment("TUNE_HOME", "FOLDER/share/tunegen", "/tmp/home", "/tmp/home"),
    "cache": by_environment("TUNE_CACHE", "FOLDER/caches/tunegen", "here/cache", "FOLDER/here/cache"),
    "cache_limit": by_environment("TUNE_CACHE_LIMIT", 512 << 20, "2 GiB", 2 << 30),
    "threads": Setting(in_session(2, threads=2), variable("TUNE_THREADS", "3", 3), None, None, Word(nothing, 7)),
    "features": by_environment("TUNE_FEATURES", "", "-avx512f", "-avx512f"),
    "log": Setting(
        None, variable("TUNE_LOG", "debug", "debug"),
        Word(lambda program: logging.getLogger("tunegen").setLevel("INFO"), "info"), None, Word(nothing, "warning"),
    ),
    "share": Setting(
        None, variable("TUNE_SHARE", "5%", 0.05), policy("share", missing="live", share=0.5), None, Word(nothing, None)
    ),
    "parent": by_environment("TUNE_PARENT", "", "1", "1"),
    "system": Setting(None, None, None, None, Word(nothing, "FOLDER/site/tunegen")),
    "SCOPE: manifest to write": Setting(
        None, variable("TUNE_MANIFEST", "/tmp/y", "/tmp/y"), APPLICATION_FILE, None,
        Word(nothing, "FOLDER/share/tunegen/SCOPE/BOX"),
    ),
    "SCOPE: tuner": Setting(
        None, None, None, declared("tuner", "tune.py"), Word(nothing, "-m tunegen.harness SCOPE")
    ),
    "SCOPE: profiles": Setting(None, None, None, declared("profiles", "shipped"), Word(nothing, None)),
    "SCOPE: pin of toy[f32]": Setting(
        in_session("row1", pins={"toy": "row1"}), None,
        Word(lambda program: tunegen.pin(program.made.toy, "row3"), "row3"), None, None,
    ),
}  # fmt: skip
BELOW_THE_ENVIRONMENT = {"manifest": "call"}
"""Who stands one step lower than elsewhere: a session's file is a file, and the environment's goes before all files."""


def order(name: str) -> list[str]:
    """Who can say what a setting is, the highest first."""
    lower = BELOW_THE_ENVIRONMENT.get(name)
    origins = ["environment", lower, *Setting._fields[2:]] if lower else Setting._fields
    return [origin for origin in origins if getattr(SETTINGS[name], origin) is not None]


@pytest.fixture
def program(library, monkeypatch, tmp_path):
    """A process on a box of seven cores, in an environment that says nothing."""
    for knob in knobs.TABLE:
        monkeypatch.delenv(knob.name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tunegen.box.threads_for", lambda allowed: 7)
    return Program(library, monkeypatch, tmp_path)


def test_the_table_has_every_setting_and_every_variable(program):
    SETTINGS["SCOPE: pin of toy[f32]"].application.say(program)
    rows = program.rows()
    assert rows.keys() == SETTINGS.keys()
    assert {row.variable for row in rows.values()} - {""} == {knob.name for knob in knobs.TABLE}
    said = {name for name, setting in SETTINGS.items() if setting.environment is not None}
    assert said == {name for name, row in rows.items() if row.variable}, "a row names the variable that can say it"


@pytest.mark.parametrize(("name", "origin"), [(name, origin) for name in SETTINGS for origin in order(name)])
def test_whoever_can_say_a_setting_is_named_with_what_they_said(program, name, origin):
    word = getattr(SETTINGS[name], origin)
    word.say(program)
    row = program.rows()[name]
    assert (row.value, row.origin, row.problem) == (program.texts(word.value), origin, "")
    others = {other: found.origin for other, found in program.rows().items() if other != name}
    meant = {"default", origin} if word.say is not nothing else {"default"}
    assert set(others.values()) <= meant | {"library"}


PAIRS = [(name, *pair) for name in SETTINGS for pair in combinations(order(name), 2) if pair[1] != "default"]


@pytest.mark.parametrize(("name", "higher", "lower"), PAIRS)
def test_of_two_who_say_a_setting_the_higher_decides(program, name, higher, lower):
    for origin in (lower, higher):
        getattr(SETTINGS[name], origin).say(program)
    row = program.rows()[name]
    assert (row.value, row.origin) == (program.texts(getattr(SETTINGS[name], higher).value), higher)


@pytest.mark.parametrize("name", [name for name, setting in SETTINGS.items() if setting.environment is not None])
def test_an_empty_variable_says_nothing(program, name):
    for knob in knobs.TABLE:
        program.patch.setenv(knob.name, "")
    word = SETTINGS[name].default
    row = program.rows()[name]
    assert (row.value, row.origin) == (program.texts(word.value), "default")


def test_the_home_of_manifests_says_where_new_winners_go_below_the_application(program):
    program.patch.setenv("TUNE_HOME", str(program.folder / "home"))
    row = program.rows()["SCOPE: manifest to write"]
    assert (Path(row.value).parent.parent, row.origin) == (program.folder / "home", "environment")
    assert row.variable == "TUNE_HOME"
    APPLICATION_FILE.say(program)
    row = program.rows()["SCOPE: manifest to write"]
    assert (row.value, row.origin) == (program.texts(APPLICATION_FILE.value), "application")
    assert row.variable == "TUNE_MANIFEST"


def test_a_program_that_tunes_in_the_background_does_so_with_a_quarter_of_a_core(program):
    program.patch.setenv("TUNE_POLICY", "live")
    row = program.rows()["share"]
    assert (row.value, row.origin) == (0.25, "default")
    program.patch.delenv("TUNE_POLICY")
    tunegen.tune_policy(missing="live")
    assert program.rows()["share"].value == 0.25


def test_a_session_has_no_more_threads_than_the_environment_gives(program):
    program.patch.setenv("TUNE_THREADS", "4")
    program.session["threads"] = 9
    row = program.rows()["threads"]
    assert (row.value, row.origin) == (4, "environment")


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
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(found) + 1, "a line each, however long a path is"
    assert "environment  TUNE_POLICY" in next(line for line in lines if line.startswith("policy ")), lines
    assert lines[-2].endswith(f"-m tunegen.harness {name}"), lines
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
