"""The object cache is shown, verified, repaired and kept to its size, whoever reads and writes meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from toys import ran, write_library

import tunegen
from tunegen import cli
from tunegen.making import make, upkeep
from tunegen.making.cache import LEFT_OVER, ObjectCache, Record, Removed


@pytest.fixture
def kept(tmp_path: Path) -> ObjectCache:
    return ObjectCache(tmp_path / "cache")


def aged(cache: ObjectCache, digest: str, age_s: int) -> None:
    """Makes an object that old."""
    path = cache.folder / "objects" / digest
    now = path.stat().st_mtime_ns
    os.utime(path, ns=(now - age_s * 10**9,) * 2)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = cli.run(["cache", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_list_shows_what_each_object_is_of(library, capsys):
    made = library()
    assert ran(made.toy) == 2
    code, found = run(capsys, "list")
    assert code == 0
    # an earlier test of this process may have made the entry
    assert {s for o in found["objects"] for s in o["symbols"]} - {make.ENTRY} == {"toy_f32__row2"}
    assert all(len(o["digest"]) == 64 and o["size_bytes"] > 0 and 0 <= o["age_s"] < 600 for o in found["objects"])
    assert (found["records"], found["declines"], found["limit_bytes"]) == (len(found["objects"]), 0, 512 << 20)
    assert cli.run(["cache", "list"]) == 0
    text = capsys.readouterr().out
    assert "toy_f32__row2" in text
    assert "of 512 MiB" in text


def test_an_object_that_an_edit_made_useless_is_listed_as_that_of_nobody(library, capsys):
    made = library()
    assert ran(made.toy) == 2
    (template,) = Path(made.__file__).parent.glob("templates/loop.ll.j2")
    template.write_text(template.read_text().replace("%any = icmp sgt", "%any = icmp sge"))
    tunegen.load()
    assert ran(made.toy) == 2
    assert cli.run(["cache", "list"]) == 0
    text = capsys.readouterr().out
    assert (text.count("toy_f32__row2"), text.count("(no record)")) == (1, 1)


def test_a_tampered_object_is_reported_and_taken_away(library, capsys, tmp_path):
    assert ran(library().toy) == 2
    assert run(capsys, "verify") == (0, {"folder": str(tmp_path / "cache"), "flaws": [], "removed": 0, "left": []})
    victim = max((tmp_path / "cache" / "objects").iterdir())
    victim.write_bytes(victim.read_bytes()[:-1] + b"x")
    code, found = run(capsys, "verify")
    assert code == 1
    assert [(flaw["path"], flaw["kind"]) for flaw in found["flaws"]] == [(str(victim), "tampered")]
    assert victim.exists()
    code, found = run(capsys, "verify", "--repair")
    assert (code, found["removed"], victim.exists()) == (0, 1, False)
    assert run(capsys, "verify")[0] == 0


def test_prune_takes_away_what_is_wrong_too(kept, capsys):
    digest = kept.put_image(b"object")
    (kept.folder / "objects" / digest).write_bytes(b"other")
    code, found = run(capsys, "prune")
    assert (code, [flaw["kind"] for flaw in found["flaws"]], found["size_bytes"]) == (0, ["tampered"], 0)


def test_a_limit_that_is_no_size_is_refused_with_what_is_allowed(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.run(["cache", "prune", "--limit", "foo"])
    assert "argument --limit: 'foo': allowed is" in capsys.readouterr().err


def test_who_verifies_is_told_how_to_repair_and_what_was_taken_away(kept, capsys):
    digest = kept.put_image(b"object")
    for command, words in (("verify", "wrong files: 1; `--repair` takes them away"),
                           ("prune", "wrong files: 1; 1 removed"), ("verify", "all is well")):  # fmt: skip
        if command == "verify" and words != "all is well":
            (kept.folder / "objects" / digest).write_bytes(b"other")
        cli.run(["cache", command])
        assert words in capsys.readouterr().out


def test_whatever_does_not_belong_there_is_named(kept):
    objects, index = kept.folder / "objects", kept.folder / "index"
    (objects / "README").write_text("")
    (objects / ("a" * 64)).symlink_to("/etc/passwd")
    (objects / ("b" * 64)).mkdir()
    (index / ("c" * 64)).write_text("{")
    (index / ("d" * 64)).write_bytes(b"[" * 100_000)
    for name, age_s in ((".old", 7200), (".new", 60)):
        (objects / name).write_text("")
        aged(kept, name, age_s)
    found = {os.path.basename(flaw.path)[:4]: flaw.kind for flaw in upkeep.flaws(kept)}
    assert found == {"READ": "foreign", "aaaa": "foreign", "bbbb": "foreign", "cccc": "damaged record",
                     "dddd": "damaged record", ".old": "left over"}  # fmt: skip
    left = upkeep.remove(upkeep.flaws(kept))
    assert [os.path.basename(flaw.path)[:4] for flaw in left] == ["bbbb"]
    assert "cannot be removed" in left[0].reason
    assert Path("/etc/passwd").exists()


def test_what_was_used_least_recently_goes_first(kept):
    digests = [kept.put_image(bytes([n]) * 1000) for n in range(5)]
    for age_s, digest in enumerate(digests, start=100):
        aged(kept, digest, age_s)
    assert kept.image(digests[4]) is not None  # used just now
    assert kept.prune(2999) == Removed(3, 3000, 2000)
    assert [kept.image(digest) is not None for digest in digests] == [True, False, False, False, True]
    assert kept.prune(2000) == Removed(0, 0, 2000)
    assert kept.prune(0) == Removed(2, 2000, 0)


def test_to_look_is_no_use(kept):
    kept.put_record("a" * 64, Record({}, symbol="s"))
    path = kept.folder / "index" / ("a" * 64)
    os.utime(path, ns=(10**18, 10**18))
    upkeep.contents(kept)
    upkeep.flaws(kept)
    assert path.stat().st_mtime_ns == 10**18
    kept.record("a" * 64)
    assert path.stat().st_mtime_ns > 10**18


def test_a_writer_keeps_to_the_limit(tmp_path):
    limited = ObjectCache(tmp_path / "cache", 10_000)
    for n in range(100):
        limited.put_image(bytes([n]) * 1000)
        assert sum(file.size_bytes for file in limited.files("objects")) <= 10_000
    digest = limited.put_image(b"last" * 200)
    assert limited.image(digest) is not None
    # another one's writes are seen when the process begins to write, and again after a part of the limit
    ObjectCache(tmp_path / "cache").put_image(b"x" * 20_000)
    other = ObjectCache(tmp_path / "cache", 10_000)
    other.put_image(b"y" * 10)
    assert sum(file.size_bytes for file in other.files("objects")) <= 10_000 * LEFT_OVER


def test_the_limit_comes_from_the_environment(library, monkeypatch, tmp_path):
    monkeypatch.setenv("TUNE_CACHE_LIMIT", "1k")
    assert ran(library().toy) == 2
    assert sum(path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file()) <= 1024


def test_a_cache_that_is_not_trusted_is_said(capsys, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    for action in ("list", "verify", "prune"):
        assert cli.run(["cache", action]) == 1
        assert "others can write to" in capsys.readouterr().err


def test_a_limit_that_is_none_is_an_error_of_usage(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.run(["cache", "prune", "--limit", "much"])
    assert "much" in capsys.readouterr().err


WRITER = """
import sys
from pathlib import Path
from tunegen.making.cache import ObjectCache, Record
cache = ObjectCache(Path(sys.argv[1]), 200_000)
print("ready", flush=True)
n = 0
while True:
    n += 1
    image = bytes([n % 7]) * (1000 + n % 7)
    digest = cache.put_image(image)
    cache.put_record(digest, Record({}, digest, symbol="s"))
    record = cache.record(digest)
    found = cache.image(record.object) if record is not None else None
    assert found is None or found == image
"""


def test_writers_that_are_killed_beside_one_who_prunes_leave_a_sound_cache(kept, tmp_path):
    """No object is ever half there, and nobody who reads or writes fails."""
    stop, pruned = threading.Event(), []

    def prune() -> None:
        while not stop.is_set():
            pruned.append(kept.prune(2000))

    thread = threading.Thread(target=prune)
    thread.start()
    try:
        for _ in range(3):
            command = [sys.executable, "-c", WRITER, str(kept.folder)]
            writers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)]
            for writer in writers:
                assert writer.stdout.readline() == b"ready\n"
            seen = len(pruned)
            while len(pruned) < seen + 20:
                stop.wait(0.001)
            for writer in writers:
                writer.kill()
                _, said = writer.communicate()
                assert (writer.returncode, said) == (-signal.SIGKILL, b"")
    finally:
        stop.set()
        thread.join()
    assert upkeep.flaws(kept) == []
    assert kept.image(kept.put_image(b"after")) == b"after"


def test_processes_that_compile_beside_one_who_prunes_all_get_their_code(child, tmp_path):
    name = write_library(tmp_path / "libraries")
    code = f"""
        import numpy as np, {name} as made
        out = np.zeros(3, np.float32)
        made.toy(out, out.copy()); made.toy(np.zeros(3, np.float32), out)
        print(out[0])
    """
    for limit in ("0", "9k"):
        done = child(code, TUNE_CACHE_LIMIT=limit)
        assert (done.stdout, done.stderr) == ("2.0\n", "")
