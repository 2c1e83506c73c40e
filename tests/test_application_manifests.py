"""Manifests that an application names: programs in processes of their own, each with its winners beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest
from stage import FREE, Stage
from toys import TOY, ran, write_library

import tunegen
from tunegen.box import this_box

BOTH = TOY + TOY.replace("def toy", "def tea")
APPLICATION = """
import json, sys
import numpy as np
import tunegen
import LIBRARY
DECLARED
def ran(kernel):
    out = np.zeros(1, np.float32)
    kernel(np.ones(1, np.float32), out)
    return int(out[0])
for pair in sys.argv[1:]:
    kernel, _, suffix = pair.partition("=")
    written = tunegen.tune_manifest_set(LIBRARY.__name__ + ":" + kernel, suffix)
    print(json.dumps([written.saved, written.path, written.reason]))
rows = tunegen.tune_status()
print(json.dumps({row.kernel: [ran(getattr(LIBRARY, row.kernel)), row.state, row.reason, row.path] for row in rows}))
"""
"""Records the winners of its arguments (`toy=row3`), and prints for each kernel which row ran, its state and why."""


class Applications:
    """A library of two kernels, and programs that import it, in a folder of theirs."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.libraries, self.cache = folder / "apps", folder / "libraries", str(cache)
        self.name = write_library(self.libraries, BOTH)

    def program(self, name: str, declared: str = "", below: str = "") -> Path:
        path = self.folder / below / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(APPLICATION.replace("LIBRARY", self.name).replace("DECLARED", dedent(declared)))
        return path

    def run(self, *command: object, cwd: Path | None = None, said: str = "", **environment: str) -> Ran:
        """What a program prints. It says nothing else, unless `said` is part of it, and ends well."""
        done = subprocess.run(
            [sys.executable, *map(str, command)], cwd=cwd or self.folder, capture_output=True, text=True, timeout=120,
            env={**os.environ, **FREE, "PYTHONPATH": str(self.libraries), "TUNE_CACHE": self.cache, **environment},
        )  # fmt: skip
        assert (done.returncode, bool(done.stderr)) == (0, bool(said)), done.stderr
        assert said in done.stderr
        *written, seen = map(json.loads, done.stdout.splitlines())
        return Ran([Written(*write) for write in written], {name: Seen(*kernel) for name, kernel in seen.items()})


class Written(NamedTuple):
    """What `tune_manifest_set` came to."""

    saved: bool
    path: str
    reason: str


class Seen(NamedTuple):
    """What ran for a kernel, and what the status says of its entry."""

    row: int
    state: str
    reason: str
    path: str


class Ran(NamedTuple):
    """What a program did: what it wrote, and then what ran, by kernel."""

    written: list[Written]
    seen: dict[str, Seen]

    @property
    def rows(self) -> tuple[int, int]:
        """The rows of `toy` and `tea`."""
        return self.seen["toy"].row, self.seen["tea"].row


@pytest.fixture
def objects(tmp_path_factory):
    """A cache that all tests share."""
    return tmp_path_factory.getbasetemp() / "objects"


@pytest.fixture
def applications(tmp_path, objects):
    return Applications(tmp_path, objects)


def test_two_applications_in_one_folder_each_have_their_own_winners(applications):
    one = applications.program("one.py", 'tunegen.tune_manifest("one")')
    two = applications.program("two.py", 'tunegen.tune_manifest("two")')
    assert applications.run(one, "toy=row1", "tea=row3").rows == (1, 3)
    assert applications.run(two).rows == (2, 2)
    assert applications.run(two, "toy=row3").rows == (3, 2)
    assert applications.run(one).rows == (1, 3)
    assert applications.run(applications.program("none.py")).rows == (2, 2)
    names = {path.name for path in applications.folder.glob("*.tune.json")}
    assert names == {f"{name}-{this_box().file_name}" for name in ("one", "two")}


def test_an_application_s_file_goes_before_the_user_s_entry_by_entry(applications):
    plain = applications.program("plain.py")
    own = applications.program("own.py", 'tunegen.tune_manifest("own")')
    applications.run(plain, "toy=row3", "tea=row3")
    ran = applications.run(own, "toy=row1")
    assert ran.rows == (1, 3)
    assert [Path(ran.seen[name].path).parent for name in ("toy", "tea")] == [
        applications.folder, Path(os.environ["TUNE_HOME"]) / applications.name,
    ]  # fmt: skip
    assert applications.run(plain).rows == (3, 3)


def test_of_two_files_that_a_program_names_the_last_goes_first(applications):
    early = applications.program("early.py", 'tunegen.tune_manifest("early")')
    both = applications.program("both.py", 'tunegen.tune_manifest("early"); tunegen.tune_manifest("late")')
    applications.run(early, "toy=row1", "tea=row1")
    assert applications.run(both, "tea=row3").rows == (1, 3)
    assert applications.run(early).rows == (1, 1)


@pytest.mark.parametrize("start", ["by a relative path", "as a module"])
def test_the_folder_is_that_of_the_file_that_declares_it_wherever_the_program_starts(applications, tmp_path, start):
    program = applications.program("__main__.py", 'tunegen.tune_manifest("app", "tuned")', below="shop")
    (tmp_path / "elsewhere" / "tuned").mkdir(parents=True)
    applications.run(program, "toy=row3")
    assert [path.name for path in program.parent.glob("tuned/*.tune.json")] == [f"app-{this_box().file_name}"]
    command, environment = {
        "by a relative path": (["../apps/shop/__main__.py"], {}),
        "as a module": (["-m", "shop"], {"PYTHONPATH": f"{applications.libraries}:../apps"}),
    }[start]
    assert applications.run(*command, cwd=tmp_path / "elsewhere", **environment).rows == (3, 2)
    assert not list((tmp_path / "elsewhere").rglob("*.tune.json"))


def test_a_module_of_the_application_may_declare_it_for_all_of_its_programs(applications, tmp_path):
    """It is the module's folder that counts, and not that of the program."""
    settings = applications.folder / "shop" / "settings.py"
    settings.parent.mkdir(parents=True)
    settings.write_text("import tunegen\ntunegen.tune_manifest('shop', '../data')\n")
    sell, buy = (applications.program(name, "import shop.settings") for name in ("sell.py", "buy.py"))
    (written,) = applications.run(sell, "toy=row1").written
    assert os.path.realpath(written.path) == str(applications.folder / "data" / f"shop-{this_box().file_name}")
    assert applications.run(buy, cwd=tmp_path).rows == (1, 2)


def test_programs_that_import_one_library_share_the_box_s_winners_without_declaring_anything(tmp_path, objects):
    """Whatever tuned it: a program of the one, `tunegen tune`, or a tuner. They lie in folders of their own."""
    stage = Stage(tmp_path, objects)
    name = stage.make_library()
    for folder in ("editor", "server"):
        (tmp_path / folder).mkdir()
    editor = stage.program(name, 'missing="auto"').rename(tmp_path / "editor" / "main.py")
    server = stage.program(name, 'missing="error"').rename(tmp_path / "server" / "main.py")
    assert stage.run(server).returncode == 3
    assert stage.run(editor, TUNE_LOG="info").stdout == "row 3 []\n"
    done = stage.run(server)
    assert (done.returncode, done.stdout, done.stderr) == (0, "row 3 []\n", "")
    assert len(stage.starts) == 1


DECLARED = 'tunegen.tune_manifest("app", "tuned")'


@pytest.mark.parametrize("way", ["auto", "--tune"])
def test_what_a_program_tunes_goes_into_its_file(tmp_path, objects, way):
    stage = Stage(tmp_path, objects)
    name = stage.make_library()
    own = stage.program(name, f'missing="{"auto" if way == "auto" else "fallback"}"')
    own.write_text(own.read_text().replace("@tunegen.tune_policy", f"{DECLARED}\n@tunegen.tune_policy"))
    done = stage.run(own, *(["--", "--tune"] if way == "--tune" else []))
    assert (done.returncode, done.stdout) == (0, "row 3 []\n"), done.stderr
    assert [path.name for path in tmp_path.glob("tuned/*.tune.json")] == [f"app-{this_box().file_name}"]
    assert not list((tmp_path / "home").rglob("*.tune.json"))
    other = stage.program(name, 'missing="fallback"')
    assert stage.run(other).stdout == "row 2 []\n"


def test_the_command_writes_into_the_file_of_an_application_that_declares_kernels_itself(tmp_path, objects):
    stage = Stage(tmp_path, objects)
    name = stage.make_library()
    module = stage.libraries / name / "__init__.py"
    module.write_text(module.read_text() + f"\nimport tunegen\n{DECLARED}\n")
    done = stage.run("-m", "tunegen", "tune", name, "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["kernels"]
    path = module.parent / "tuned" / f"app-{this_box().file_name}"
    assert (row["emitted"], row["path"], path.exists()) == ("row3", str(path), True)
    assert not (tmp_path / "home").exists()


def test_the_command_writes_into_the_file_that_the_environment_names(tmp_path, objects):
    """So a library is tuned for one application from outside."""
    stage = Stage(tmp_path, objects)
    name = stage.make_library()
    path = tmp_path / "tuned" / f"app-{this_box().file_name}"
    done = stage.run("-m", "tunegen", "tune", name, TUNE_MANIFEST=str(path))
    assert (done.returncode, path.exists()) == (0, True), done.stderr
    own = stage.program(name, 'missing="error"')
    own.write_text(own.read_text().replace("@tunegen.tune_policy", f"{DECLARED}\n@tunegen.tune_policy"))
    assert stage.run(own).stdout == "row 3 []\n"


def cut(text: str) -> str:
    return text[: len(text) // 2]


def other_row(text: str) -> str:
    return text.replace('"winner": "row1"', '"winner": "row9"')


def other_winner(text: str) -> str:
    return text.replace('"winner": "row1"', '"winner": "row3"')


def other_box(text: str) -> str:
    return text.replace(f'"cpu": "{this_box().cpu}"', '"cpu": "vax"')


def newer(text: str) -> str:
    return text.replace('"tunegen": 1', '"tunegen": 2')


@pytest.mark.parametrize(
    ("damage", "state", "reason", "refusal"),
    [
        (other_row, "unknown", "'row9' is no row of the grid", ""),
        (other_winner, "stale", "perm changed", ""),
        (other_box, "foreign", f"cpu: vax there, {this_box().cpu} here", "belongs to another box (cpu: vax there"),
        (newer, "invalid", "the manifest is newer: format 2 is newer than 1", "left alone: format 2 is newer"),
    ],
)
def test_a_file_that_was_edited_or_came_from_elsewhere_costs_its_entries_alone(
    applications, damage, state, reason, refusal
):
    """The program runs, the status says why, and what may not be written is left as it is."""
    own = applications.program("own.py", 'tunegen.tune_manifest("own")')
    path = Path(applications.run(own, "toy=row1").written[0].path)
    damaged = damage(path.read_text())
    assert damaged != path.read_text()
    path.write_text(damaged)
    ran = applications.run(own, "tea=row3")
    assert ran.seen["toy"] == (2, state, ran.seen["toy"].reason, str(path))
    assert reason in ran.seen["toy"].reason
    assert refusal in ran.written[0].reason
    assert (ran.written[0].saved, ran.seen["tea"].row) == ((True, 3) if not refusal else (False, 2))
    assert not refusal or path.read_text() == damaged


def test_a_file_that_was_cut_costs_nothing_but_itself_and_is_set_aside_by_the_next_write(applications):
    applications.run(applications.program("plain.py"), "toy=five")
    own = applications.program("own.py", 'tunegen.tune_manifest("own")')
    path = Path(applications.run(own, "toy=row1", "tea=row1").written[0].path)
    damaged = cut(path.read_text())
    path.write_text(damaged)
    ran = applications.run(own)
    assert ran.rows == (5, 2), "the user's file has a winner for one of them"
    assert (ran.seen["toy"].state, ran.seen["tea"].state) == ("ok", "invalid")
    assert ran.seen["tea"].reason.startswith("the manifest is malformed: not JSON")
    said = f"{path} could not be read (not JSON"
    assert applications.run(own, "tea=row3", said=said).rows == (5, 3)
    assert path.with_name(f"{path.name}.unreadable").read_text() == damaged


@pytest.mark.parametrize(
    "name", ["a" * 64, "naïve", "a..b", "-", "tune", "a.tune.json", "app-znver4-t2-0a1b2c3d", "CON", "1"]
)
def test_whatever_name_is_allowed_the_file_is_in_its_folder_and_holds(library, tmp_path, name):
    made = library()
    path = tunegen.tune_manifest(name, tmp_path / "data")
    assert tunegen.tune_manifest_set(made.toy, "row3").path == str(path)
    assert [p.name for p in (tmp_path / "data").glob("*.tune.json")] == [f"{name}-{this_box().file_name}"]
    tunegen.load()
    assert ran(made.toy) == 3


def test_a_name_that_no_disk_takes_is_said_and_stops_nothing(library, tmp_path):
    made = library()
    tunegen.tune_manifest("a" * 300, tmp_path / "data")
    assert ran(made.toy) == 2
    written = tunegen.tune_manifest_set(made.toy, "row3")
    assert not written
    assert "File name too long" in written.reason


@pytest.mark.parametrize("rest", ["t2", "t3-0a1b2c3d", "t3-0a1b2c3d.tune.json"])
def test_an_application_whose_name_looks_like_a_box_is_not_taken_for_another(library, monkeypatch, tmp_path, rest):
    """`x-CPU-t2` beside `x`: a kernel without threads takes winners of other numbers of threads, but not another's."""
    made = library()
    monkeypatch.setenv("TUNE_THREADS", "3")
    other = tunegen.tune_manifest(f"x-{this_box().cpu}-{rest}", tmp_path)
    assert tunegen.tune_manifest_set(made.toy, "row3").path == str(other)
    tunegen.public.sources._applications.clear()
    monkeypatch.setenv("TUNE_THREADS", "5")
    tunegen.tune_manifest("x", tmp_path)
    tunegen.load()
    assert ran(made.toy) == 2


def test_a_folder_that_cannot_be_made_stops_nothing(applications):
    own = applications.program("own.py", 'tunegen.tune_manifest("own", "own.py")')
    ran = applications.run(own, "toy=row3")
    (written,) = ran.written
    assert (written.saved, written.reason) == (False, f"{written.path} cannot be written: File exists")
    assert ran.rows == (2, 2)


def test_a_program_without_a_file_names_one_in_the_folder_where_it_starts(applications, tmp_path):
    code = applications.program("own.py", 'tunegen.tune_manifest("own", "tuned")').read_text()
    applications.run("-c", code, "toy=row3", cwd=tmp_path)
    assert [path.name for path in tmp_path.glob("tuned/*.tune.json")] == [f"own-{this_box().file_name}"]
    assert applications.run("-c", code, cwd=tmp_path).rows == (3, 2)
