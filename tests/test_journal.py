"""What a run leaves behind, and what the next one makes of it: the journal, the samples, and the manifest's history."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import msgspec
import pytest

from tunegen.box import Box, this_box
from tunegen.choosing import store
from tunegen.choosing.document import Entry, RegimeWinner
from tunegen.harness import history, journal
from tunegen.harness.journal import Journal
from tunegen.harness.protocol import Known, Outcome
from tunegen.making import make

BOX = Box("x86_64", "amd", "25", "97", "znver4", ("avx", "avx2"), 2)
PASSED = Outcome("passed")


def written(path: Path) -> Journal:
    """A journal with two candidates of one kernel and one of another."""
    made = Journal(path)
    made.outcome("gemm[f32]", "slow", "id1", PASSED)
    made.screened("gemm[f32]", "", "slow", 0.9)
    made.outcome("gemm[f32]", "fast", "id2", PASSED)
    made.screened("gemm[f32]", "", "fast", 1.2)
    made.screened("gemm[f32]", "M <= 2", "slow", 1.1)
    made.outcome("exp[f32]", "bad", "id3", Outcome("wrong", "at [0]"))
    return made


def test_each_line_is_in_the_file_at_once_and_the_next_run_knows_it(tmp_path: Path) -> None:
    """Nothing waits in a buffer for an end that may not come: the writer is not even closed here."""
    written(tmp_path / "lib" / "j.jsonl")
    again = Journal(tmp_path / "lib" / "j.jsonl")
    assert again.known("gemm[f32]") == {"slow": Known("id1", PASSED), "fast": Known("id2", PASSED)}
    assert again.known("exp[f32]") == {"bad": Known("id3", Outcome("wrong", "at [0]"))}
    assert again.order("gemm[f32]") == ["fast", "slow"]
    assert again.order("exp[f32]") == []


def test_a_file_that_is_cut_anywhere_loses_the_last_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "j.jsonl"
    written(path).close()
    whole = path.read_bytes()
    lines = whole.count(b"\n")
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        made = Journal(path)
        assert lines - len(made.lines) <= whole[cut:].count(b"\n")
        made.outcome("add[f32]", "new", "id4", PASSED)
        made.close()
        assert Journal(path).known("add[f32]") == {"new": Known("id4", PASSED)}, "a cut line does not spoil the next"


def test_what_depends_on_load_or_budget_is_found_out_again(tmp_path: Path) -> None:
    made = Journal(tmp_path / "j.jsonl")
    for state in journal.PASSING:
        made.outcome("exp[f32]", state.replace(" ", "_"), "id", Outcome(state))  # type: ignore[arg-type]
    made.outcome("exp[f32]", "no_identity", "", PASSED)
    assert made.known("exp[f32]") == {}


def test_what_timed_out_is_known_unless_it_shall_be_tried_again(tmp_path: Path) -> None:
    made = Journal(tmp_path / "j.jsonl")
    outcome = Outcome("timed out", "compile: silent for 120 s")
    made.outcome("exp[f32]", "slow", "intent 1", outcome)
    made.outcome("exp[f32]", "bad", "id", Outcome("wrong"))
    assert set(made.known("exp[f32]")) == {"slow", "bad"}
    assert set(made.known("exp[f32]", again=True)) == {"bad"}
    told = journal.earlier(outcome)
    assert told.reason.startswith(outcome.reason)
    assert "--retune" in told.reason
    assert journal.earlier(told) == told
    assert journal.earlier(Outcome("wrong", "why")) == Outcome("wrong", "why")


def test_what_was_never_made_is_known_by_all_that_it_would_be_made_from(library) -> None:
    made = library()
    spec, box = made.toy.spec, this_box()
    f32 = spec.signature.element_types[0]
    row, other = (spec.grid.find(suffix) for suffix in ("row1", "row2"))
    first = journal.intent_of(spec, f32, row, box)
    assert journal.is_intent(first)
    assert not journal.is_intent(journal.identity_of(spec, f32, row, box))
    assert first == journal.intent_of(spec, f32, row, box) != journal.intent_of(spec, f32, other, box)
    assert make.counters["rendered"] == 1, "the identity of code alone needed any"
    unused = Path(made.__file__).parent / "templates" / "loop.ll.j2"
    unused.write_text(unused.read_text() + "{# changed #}")
    spec.templates.forget()
    assert journal.intent_of(spec, f32, row, box) != first


def test_a_later_line_replaces_an_earlier_one_and_many_old_ones_are_cleaned_away(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(journal, "MOST_WASTE", 3)
    path = tmp_path / "j.jsonl"
    for ratio in range(10):
        made = Journal(path)
        made.screened("exp[f32]", "", "a", float(ratio))
        made.close()
    assert len([line for line in path.read_bytes().split(b"\n") if line]) < 7
    assert [line.ratio for line in Journal(path).lines.values()] == [9.0]


def test_equal_lines_are_written_once(tmp_path: Path) -> None:
    made = written(tmp_path / "j.jsonl")
    size = (tmp_path / "j.jsonl").stat().st_size
    made.outcome("gemm[f32]", "slow", "id1", PASSED)
    assert (tmp_path / "j.jsonl").stat().st_size == size


def test_without_a_place_to_write_it_says_so_and_remembers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with caplog.at_level(logging.WARNING, "tunegen"):
        made = written(tmp_path / "file" / "j.jsonl")
    assert len([record for record in caplog.records if "journal" in record.message]) == 1
    assert made.order("gemm[f32]") == ["fast", "slow"]


def test_the_identity_of_a_candidate_changes_with_code_gate_box_cases_and_source(library) -> None:
    made = library()
    spec, box = made.toy.spec, this_box()
    f32 = spec.signature.element_types[0]
    row, other = (spec.grid.find(suffix) for suffix in ("row1", "row2"))

    def identity(**changes) -> str:
        changed = msgspec.structs.replace(spec, **{k: v for k, v in changes.items() if k not in ("row", "box")})
        return journal.identity_of(changed, f32, changes.get("row", row), changes.get("box", box))

    from tunegen import case, ulp

    first = identity()
    assert identity() == first
    path = Path(made.__file__)
    seen = {
        first,
        identity(row=other),
        identity(gate=ulp(3)),
        identity(box=msgspec.structs.replace(box, threads=box.threads + 1)),
        identity(cases=(case("other", N=9),)),
    }
    path.write_text(path.read_text().replace("out[...] = -1", "out[...] = -2"))
    journal._source_of.cache_clear()
    seen.add(identity())
    template = path.parent / "templates" / "toy.ll.j2"
    template.write_text(template.read_text().replace("perm.row)", "perm.row + 1)"))
    spec.templates.forget()
    seen.add(identity())
    assert len(seen) == 7


def test_the_module_of_a_kernel_without_a_file_has_no_digest(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "no_file", object())
    assert journal._source_of("no_file") == ""


def test_samples_lie_beside_the_manifest_where_loading_does_not_look(tmp_path: Path) -> None:
    manifest = tmp_path / BOX.file_name
    store.write(manifest, BOX, {}, "lib", "k[f32]", Entry([RegimeWinner("a")], "sha256:1"))
    journal.write_samples(manifest, "lib", "k[f32]", "sha256:1", {"": {"final": {"a": {"case": [1.0, 2.0]}}}})
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    (file,) = folder.iterdir()
    assert json.loads(file.read_bytes())["regimes"][""]["final"] == {"a": {"case": [1.0, 2.0]}}
    assert file.name == "k_f32.json"
    assert not list(tmp_path.rglob(f"*{store.SUFFIX}"))[1:], "nothing else looks like a manifest"


def tuned(path: Path, key: str, winner: str, ratio: float | None = None) -> None:
    evidence = {} if ratio is None else {"ratio": ratio}
    store.write(path, BOX, {}, "lib", key, Entry([RegimeWinner(winner, "", {}, evidence)], f"sha256:{winner}"))


def test_a_few_earlier_manifests_are_kept_each_once(tmp_path: Path) -> None:
    path = tmp_path / BOX.file_name
    history.keep(path, "lib")
    assert history.earlier(path, "lib") == []
    for number in range(history.KEPT + 3):
        tuned(path, "k[f32]", f"v{number}")
        history.keep(path, "lib")
        history.keep(path, "lib")
    kept = history.earlier(path, "lib")
    assert len(kept) == history.KEPT
    newest = store.read(kept[-1]).scopes["lib"]["k[f32]"][0]
    assert isinstance(newest, Entry)
    assert newest.regimes[0].winner == f"v{history.KEPT + 2}"
    assert store.nearest(tmp_path, BOX) is None, "the history is in a folder that nobody loads from"


def test_the_difference_names_what_is_new_changed_gone_and_the_same(tmp_path: Path) -> None:
    path = tmp_path / BOX.file_name
    for key, winner in (("a[f32]", "one"), ("b[f32]", "one"), ("c[f32]", "one")):
        tuned(path, key, winner, 1.1)
    history.keep(path, "lib")
    before = history.previous(path, "lib")
    path.unlink()
    for key, winner in (("a[f32]", "one"), ("b[f32]", "two"), ("d[f32]", "one")):
        tuned(path, key, winner, 1.3)
    found = {change.key: change for change in history.changes(before, store.read(path), "lib")}
    assert {key: change.what for key, change in found.items()} == {
        "a[f32]": "same",
        "b[f32]": "changed",
        "c[f32]": "gone",
        "d[f32]": "new",
    }
    assert (found["b[f32]"].ratio_before, found["b[f32]"].ratio_after) == (1.1, 1.3)


def test_without_a_history_all_is_new(tmp_path: Path) -> None:
    path = tmp_path / BOX.file_name
    tuned(path, "a[f32]", "one")
    (change,) = history.changes(history.previous(path, "lib"), store.read(path), "lib")
    assert (change.what, change.ratio_after) == ("new", None)
    assert history.changes(history.previous(path, "lib"), store.read(tmp_path / "none"), "lib") == []


def test_a_history_that_cannot_be_kept_is_said_and_stops_nothing(tmp_path: Path, caplog) -> None:
    path = tmp_path / BOX.file_name
    tuned(path, "a[f32]", "one")
    (tmp_path / "history").write_text("a file where a folder should be")
    with caplog.at_level(logging.WARNING, "tunegen"):
        history.keep(path, "lib")
    assert "history" in caplog.text
