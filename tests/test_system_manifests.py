"""`tune --system`, and hosts that are read only: what an administrator tuned holds for all, and nothing is written."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from stage import Stage
from toys import TOY, ran, write_library

import tunegen
from tunegen import knobs, paths
from tunegen.box import this_box
from tunegen.harness.journal import Journal
from tunegen.harness.protocol import Outcome
from tunegen.making import make
from tunegen.making.cache import ObjectCache
from tunegen.public import sources
from tunegen.public.settings import effective

RIGHT = TOY.replace("out[...] = -1", "out[...] = 1").replace("row2; row1; reference", "row1; reference")
"""A kernel of which row 1 is right, so that a real tuner has something to race."""


@pytest.fixture
def stage(tmp_path, tmp_path_factory):
    return Stage(tmp_path, tmp_path_factory.getbasetemp() / "objects")


@pytest.fixture
def site(tmp_path):
    """The folder of the system's manifests, as the tests have it."""
    return tmp_path / "site" / "tunegen"


def system_file(site, name):
    return site / name / this_box().file_name


def test_winners_go_below_the_site_s_data_folder_where_everybody_can_read_them(stage, site):
    name = stage.make_library()
    done = subprocess.run(
        [sys.executable, "-m", "tunegen", "tune", name, "--system", "--json"], cwd=stage.folder, env=stage.environment,
        capture_output=True, text=True, timeout=120, umask=0o077,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["kernels"]
    path = system_file(site, name)
    assert (row["emitted"], row["state"], row["path"]) == ("row3", "ok", str(path))
    assert {folder.stat().st_mode & 0o777 for folder in (site, path.parent)} == {0o755}
    assert path.stat().st_mode & 0o777 == 0o644
    assert not (stage.folder / "home").exists()
    program = stage.program(name, 'missing="error"')
    done = stage.run(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "row 3 []\n", "")


def test_the_standard_tuner_judges_by_the_system_s_manifest_alone_and_keeps_all_beside_it(stage, site):
    """What the administrator tuned for himself is not for all; nor is what others tuned with other threads."""
    name = write_library(stage.libraries, RIGHT)
    assert stage.run("-c", f"import tunegen, {name}; assert tunegen.tune_manifest_set('toy', 'reference')").stderr == ""
    plan = ["-m", "tunegen", "tune", name, "--dry-run"]
    assert stage.run(*plan).stdout == "everything is tuned\n"
    untuned = stage.run(*plan, "--system", TUNE_MANIFEST="named.tune.json")
    assert untuned.stdout.startswith(f"{name}: toy[f32], ")
    tuner = ["-m", "tunegen.harness", name, "--system", "--effort", "quick", "--noisy-ok"]
    done = stage.run(*tuner, TUNE_MANIFEST="named.tune.json")
    assert done.returncode == 0, done.stderr
    stem = this_box().file_name.removesuffix(".tune.json")
    assert {path.name for path in (site / name).iterdir() if not path.name.startswith(".")} == {
        f"{stem}.tune.json", f"{stem}.{name}.journal.jsonl", f"{stem}.{name}.samples",
    }  # fmt: skip
    assert [path.name for path in (stage.folder / "home" / name).iterdir() if path.suffix == ".json"] == [
        this_box().file_name
    ]
    assert not (stage.folder / "named.tune.json").exists()
    assert stage.run(*plan, "--system").stdout == "everything is tuned\n"
    other = str(this_box().threads + 1)
    assert stage.run(*plan, TUNE_THREADS=other, TUNE_HOME="nowhere").stdout == "everything is tuned\n"
    assert stage.run(*plan, "--system", TUNE_THREADS=other).stdout == untuned.stdout


def test_a_library_that_names_a_file_of_its_own_is_tuned_for_all_all_the_same(stage, site):
    name = stage.make_library()
    module = stage.libraries / name / "__init__.py"
    module.write_text(module.read_text() + "\nimport tunegen\ntunegen.tune_manifest('own')\n")
    done = stage.run("-m", "tunegen", "tune", name, "--system", "--diff", "--json")
    assert done.returncode == 0, done.stderr
    assert [change["after"] for change in json.loads(done.stdout)["changes"][name]] == ["row3"]
    assert system_file(site, name).exists()
    assert not list(module.parent.glob("*.tune.json"))


def a_file_in_the_way(site):
    site.parent.mkdir()
    site.write_text("")
    return "Not a directory"


def no_rights(site):
    site.mkdir(parents=True)
    site.chmod(0o555)
    if os.access(site, os.W_OK):
        pytest.skip("to root every folder is open")
    return "Permission denied"


@pytest.mark.parametrize("obstacle", [a_file_in_the_way, no_rights])
def test_who_may_not_write_there_is_told_before_anything_is_measured(stage, site, obstacle):
    name, reason = stage.make_library(), obstacle(site)
    done = stage.run("-m", "tunegen", "tune", name, "--system")
    assert (done.returncode, done.stdout, stage.starts) == (1, "", [])
    path = system_file(site, name)
    assert done.stderr == f"tunegen: nothing is tuned for all users: {path} cannot be written: {reason}\n"
    done = stage.run("-m", "tunegen.harness", name, "--system")
    assert (done.returncode, done.stderr) == (1, f"{path} cannot be written: {reason}\n")
    site.chmod(0o755)


def test_a_file_of_a_newer_format_is_left_alone_and_said_before_anything_is_measured(stage, site):
    name = stage.make_library()
    path = system_file(site, name)
    path.parent.mkdir(parents=True)
    path.write_text('{"tunegen": 2}')
    done = stage.run("-m", "tunegen", "tune", name, "--system")
    assert (done.returncode, stage.starts, path.read_text()) == (1, [], '{"tunegen": 2}')
    assert "is left alone: format 2 is newer" in done.stderr


def test_a_link_in_the_place_of_a_journal_is_not_followed(tmp_path, caplog):
    """An administrator's run in a folder where somebody else could put it."""
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "x.journal.jsonl").symlink_to(tmp_path / "victim")
    journal = Journal(tmp_path / "x.journal.jsonl")
    journal.outcome("toy[f32]", "row1", "identity", Outcome("wrong", "why"))
    journal.close()
    assert (tmp_path / "victim").read_text() == "precious"
    assert "no journal is kept" in caplog.text


THREE = """
import numpy as np
import tunegen
import LIBRARY
seen = []
for kernel in (LIBRARY.toy, LIBRARY.tea, LIBRARY.tee):
    out = np.zeros(1, np.float32)
    kernel(np.ones(1, np.float32), out)
    seen.append(int(out[0]))
print(*seen, *{row.state for row in tunegen.tune_status()})
"""
KERNELS = TOY + TOY.replace("def toy", "def tea") + TOY.replace("def toy", "def tee")
NO_HOME = {"TUNE_HOME": "", "TUNE_CACHE": "", "XDG_DATA_HOME": "", "XDG_CACHE_HOME": ""}


def image(stage, site):
    """A library of three kernels that was tuned into the system's manifest, and a program."""
    name = stage.make_library("for k in ('toy', 'tea', 'tee'): assert tunegen.tune_manifest_set(k, 'row3')", KERNELS)
    assert stage.run(stage.libraries / name / "tuner.py", TUNE_MANIFEST=str(system_file(site, name))).stderr == ""
    program = stage.folder / "three.py"
    program.write_text(THREE.replace("LIBRARY", name))
    return name, program


@pytest.mark.parametrize("home", ["a file", "below a file", "closed", "closed, named"])
def test_without_a_writable_folder_a_program_runs_tuned_and_says_one_line(stage, site, home):
    _, program = image(stage, site)
    folder = stage.folder / "nobody"
    if home.startswith("closed"):
        no_rights(folder)
    else:
        folder.write_text("")
    place = folder / "home" if home == "below a file" else folder
    environment = {**NO_HOME, "HOME": str(place)}
    if home == "closed, named":
        environment |= {"TUNE_HOME": str(place / "home"), "TUNE_CACHE": str(place / "cache")}
    done = stage.run(program, **environment)
    assert (done.returncode, done.stdout) == (0, "3 3 3 ok\n"), done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"objects are not cached: {place}")
    assert line.endswith("; each start compiles anew unless TUNE_CACHE names another folder")
    cached = stage.run(program, **{**environment, "TUNE_CACHE": str(stage.cache)})
    assert (cached.stdout, cached.stderr) == ("3 3 3 ok\n", "")
    quiet = stage.run(program, TUNE_LOG="error", **environment)
    assert (quiet.stdout, quiet.stderr) == ("3 3 3 ok\n", "")


NOBODY = """
import os, pwd
def getpwuid(uid):
    raise KeyError("getpwuid(): uid not found: 12345")
pwd.getpwuid = getpwuid
"""
"""A user who has no entry, as a container's may be."""


@pytest.mark.parametrize("home", ["", "here"])
def test_a_user_without_a_home_runs_tuned_and_finds_nothing_in_the_working_directory_later(stage, site, home):
    _, program = image(stage, site)
    work = stage.folder / "work"
    work.mkdir()
    program.write_text(f"{NOBODY}\nos.environ.update(HOME={home!r})\nos.chdir({str(work)!r})\n{program.read_text()}")
    done = stage.run(program, **NO_HOME)
    assert (done.returncode, done.stdout, list(work.iterdir())) == (0, "3 3 3 ok\n", []), done.stderr
    assert done.stderr.startswith(f"objects are not cached: {paths.NOWHERE} cannot be used: Not a directory; ")
    assert done.stderr.count("\n") == 1


def test_a_policy_has_nothing_to_do_on_a_read_only_host_that_an_image_tuned(stage, site):
    name = stage.make_library()
    assert stage.run("-m", "tunegen", "tune", name, "--system").returncode == 0
    (stage.folder / "nobody").write_text("")
    nowhere = {"HOME": str(stage.folder / "nobody"), "TUNE_HOME": str(stage.folder / "nobody")}
    for policy in ("warn", "error", "auto", "relaunch", "restart"):
        done = stage.run(stage.program(name, f'missing="{policy}"'), **nowhere)
        assert (done.returncode, done.stdout, done.stderr, len(stage.starts)) == (0, "row 3 []\n", "", 1)
    system_file(site, name).unlink()
    done = stage.run(stage.program(name, 'missing="auto"'), **nowhere)
    assert (done.returncode, done.stdout, len(stage.starts)) == (0, "row 2 []\n", 1)
    assert "attempts.json cannot be written: " in done.stderr


def test_a_cache_that_an_image_filled_is_read_where_nothing_can_be_written_and_that_is_said_once(
    library, tmp_path, monkeypatch, caplog
):
    made = library(KERNELS)
    kernels = (made.toy, made.tea, made.tee)
    assert [ran(kernel) for kernel in kernels] == [2, 2, 2]

    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("tempfile.mkstemp", refuse)
    for damage in (False, True):
        make._mapped.clear()
        for path in (tmp_path / "cache" / "objects").iterdir() if damage else ():
            path.unlink()
        tunegen.load()
        assert [ran(kernel) for kernel in kernels] == [2, 2, 2]
        said = [f"an object could not be cached in {tmp_path / 'cache'}: Read-only file system"] if damage else []
        assert [record.getMessage() for record in caplog.records] == said


def test_a_cache_says_anew_when_it_meets_another_obstacle(tmp_path, monkeypatch, caplog):
    kept = ObjectCache(tmp_path / "cache")
    for number in (errno.ENOSPC, errno.ENOSPC, errno.EROFS):

        def refuse(*_, number=number, **__):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("tempfile.mkstemp", refuse)
        kept.put_image(b"bytes")
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        "No space left on device", "Read-only file system",
    ]  # fmt: skip


def test_every_folder_of_the_site_is_looked_into_and_the_first_is_written_to(library, tmp_path, monkeypatch):
    """A desktop's session has more of them than the administrator's shell, in which a library was tuned."""
    made = library()
    monkeypatch.setenv("XDG_DATA_DIRS", str(tmp_path / "local"))
    monkeypatch.setenv("TUNE_MANIFEST", str(sources.system_manifest(made.__name__, this_box())))
    assert tunegen.tune_manifest_set(made.toy, "row3").path.startswith(str(tmp_path / "local" / "tunegen"))
    monkeypatch.delenv("TUNE_MANIFEST")
    monkeypatch.setenv("XDG_DATA_DIRS", f"{tmp_path / 'desktop'}:{tmp_path / 'local'}:{tmp_path / 'share'}")
    tunegen.load()
    assert ran(made.toy) == 3
    assert paths.system_manifests() == tmp_path / "desktop" / "tunegen"
    assert [path.parent.parent.parent.name for path in sources.files_at_hand()] == ["local"]
    assert {row.name: row.value for row in effective()}["system"] == str(tmp_path / "desktop" / "tunegen")


def test_the_system_s_entries_are_shown_and_forgotten_by_their_path(stage, site):
    name, _ = image(stage, site)
    path = str(system_file(site, name))
    (file,) = json.loads(stage.run("-m", "tunegen", "inspect", "--json").stdout)["files"]
    assert (file["path"], file["local"], len(file["entries"])) == (path, True, 3)
    assert stage.run("-m", "tunegen", "forget", f"{name}:toy").stdout == "there was nothing to forget\n"
    forgotten = stage.run("-m", "tunegen", "forget", f"{name}:toy", "--path", path, "--json")
    assert [row["key"] for row in json.loads(forgotten.stdout)["pruned"]] == ["toy[f32]"]


def test_a_system_manifest_that_was_cut_costs_nothing_and_a_user_may_tune_for_himself(stage, site):
    name, program = image(stage, site)
    path = system_file(site, name)
    path.write_text(path.read_text()[:100])
    done = stage.run(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 2 2 invalid\n", "")
    assert stage.run("-m", "tunegen", "tune", name).returncode == 0
    assert stage.run(program).stdout == "3 3 3 ok\n"
    assert len(path.read_bytes()) == 100


def test_a_hostile_manifest_of_the_system_is_data(library, site):
    """Anybody's file may lie there: it can only name rows that the code declares."""
    made = library()
    path = system_file(site, made.__name__)
    path.parent.mkdir(parents=True)
    for winner in ("../../secret", "row3; import os", "", "reference\n", "${HOME}", "a" * 10_000):
        path.write_text(json.dumps({"toy": winner}))
        tunegen.load()
        assert ran(made.toy) == 2
    path.chmod(0o666)
    path.write_text(json.dumps({"toy": "row3"}))
    tunegen.load()
    assert (ran(made.toy), made.toy.stamp["f32"].default.state) == (3, "unverified")


def test_a_hand_written_tuner_that_knows_no_option_writes_for_all_users_too(stage, site):
    """It is told by its environment."""
    name = stage.make_library("sys.argv.clear(); assert tunegen.tune_manifest_set('toy', 'row1')")
    assert stage.run("-m", "tunegen", "tune", name, "--system").returncode == 0
    assert '"row1"' in system_file(site, name).read_text()


def test_what_says_where_winners_go_is_named_in_the_configuration():
    row = next(row for row in effective() if row.name == "system")
    assert row.value == str(Path(os.environ["XDG_DATA_DIRS"]) / "tunegen")
    assert "--system" in row.doc
    assert knobs.MANIFEST.get() is None
