"""The Python API of tuning: what a file holds is a result, and a wrong argument an error before a file is touched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_record import forbid_writing
from toys import GENERIC, PARAMETERS, TOY, TOY_TEMPLATE, ran

import tunegen
from tunegen import tuning
from tunegen.box import this_box
from tunegen.choosing import published, store
from tunegen.errors import KernelNotFound, ParameterError, ScopeNotFound
from tunegen.parameters import Parameter, Schema
from tunegen.tuning.text import read_values, written

DEFAULTS = {"large.minimum": 100, "parallel.minimum": 1000, "parallel.grain": 100, "ratio": 0.5, "exact": True,
            "note": "", "way": "left"}  # fmt: skip


def raw(path):
    return json.loads(Path(path).read_text())


def entries(made):
    return raw(tuning.default_path(made.__name__))["scopes"][made.__name__]["kernels"]["toy[f32]"]


def spoil(made, change):
    """Changes the newest entry of a manifest as another version, or a careless editor, would."""
    path = tuning.default_path(made.__name__)
    document = raw(path)
    change(document["scopes"][made.__name__]["kernels"]["toy[f32]"][0])
    path.write_text(json.dumps(document))
    tunegen.load()


def row(made):
    (found,) = tuning.parameters(made.toy)
    return found


def active(made, name):
    return next(p.active for p in row(made).parameters if p.parameter.name == name)


def cached(made, name):
    return next(p.cached for p in row(made).parameters if p.parameter.name == name)


def test_parameters_are_described_with_their_defaults_and_nothing_is_stamped(library):
    made = library(PARAMETERS)
    found = row(made)
    assert str(found.key) == f"{made.__name__}:toy[f32] (toy, cpu)"
    assert {p.parameter.name: p.default for p in found.parameters} == DEFAULTS
    assert {p.parameter.name: p.active for p in found.parameters} == DEFAULTS
    assert [p.parameter.name for p in found.parameters if p.calibratable] == ["parallel.minimum"]
    assert (found.source, found.state, found.rules) == ("default", "missing", ("parallel.grain <= parallel.minimum",))
    assert all(p.cached is None for p in found.parameters)
    assert not made.toy.installed
    whole = tuning.parameters()
    assert ([str(r.key) for r in whole], whole.status) == ([str(found.key)], "not_found")
    assert json.loads(msgspec.json.encode(whole))["rows"][0]["parameters"][0]["parameter"]["unit"] == "elements"


def test_a_set_value_is_cached_and_published_and_reaches_kernels_with_the_next_load(library):
    made = library(PARAMETERS)
    assert ran(made.toy, 50) == 1
    found = tuning.set("toy", {"large.minimum": 50})
    assert (found.status, bool(found), found.published) == ("updated", True, 1)
    assert found.path == str(tuning.default_path(made.__name__))
    assert [(r.key, r.values) for r in found.updated] == [("toy[f32]", {**DEFAULTS, "large.minimum": 50})]
    assert (active(made, "large.minimum"), cached(made, "large.minimum")) == (100, 50)
    with tunegen.session() as session:
        assert ran(session.bind(made.toy), 50) == 2
    tunegen.load()
    assert (active(made, "large.minimum"), ran(made.toy, 50), row(made).source) == (50, 2, "published")


def test_without_load_a_value_is_in_the_file_alone(library):
    made = library(PARAMETERS)
    assert tuning.set(made.toy, {"large.minimum": 50}, load=False).published == 0
    assert (active(made, "large.minimum"), cached(made, "large.minimum")) == (100, 50)
    with tunegen.session() as session:
        assert ran(session.bind(made.toy), 50) == 1
    tunegen.load()
    assert (active(made, "large.minimum"), row(made).source) == (50, "manifest")


def test_a_partial_set_completes_the_entry_that_is_there_and_an_entry_is_complete(library):
    made = library(PARAMETERS)
    tuning.set(made.toy, {"large.minimum": 50})
    tuning.set(made.toy, {"ratio": 0.125})
    (entry,) = entries(made)
    assert entry["params"] == {**DEFAULTS, "large.minimum": 50, "ratio": 0.125}
    assert entry["evidence"] == {"kind": "manual"}
    assert entry["parts"]["abi"] == "1"


def test_winners_and_values_of_a_kernel_do_not_disturb_each_other(library):
    made = library(PARAMETERS)
    assert tunegen.tune_manifest_set(made.toy, "row3")
    found = tuning.set(made.toy, {"large.minimum": 50})
    assert [r.reason for r in found.preserved] == ["winners"]
    assert tunegen.tune_manifest_set(made.toy, "row1")
    tunegen.load()
    assert (ran(made.toy, 1), row(made).state, cached(made, "large.minimum")) == (1, "ok", 50)


def test_each_element_type_has_its_own_values(library):
    body = PARAMETERS.replace("f32", "floats")
    made = library(body)
    found = tuning.set("toy[f64]", {"large.minimum": 50})
    assert [r.key for r in found.updated] == ["toy[f64]"]
    assert [r.key for r in tuning.set("toy", {"ratio": 0.25}).updated] == ["toy[f32]", "toy[f64]"]
    values = {r.key.element_type: {p.parameter.name: p.cached for p in r.parameters} for r in tuning.parameters("toy")}
    assert [values[t]["large.minimum"] for t in ("f32", "f64")] == [100, 50]
    assert tuning.set(made.toy, {"ratio": 1.0}, "f32").updated[0].key == "toy[f32]"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"nothing": 1}, "toy[f32]: unknown parameter 'nothing'"),
        ({"exact": 1}, "exact=1: allowed is True or False"),
        ({"large.minimum": True}, "large.minimum=True: allowed is a whole number from 1 to 10000 (elements)"),
        ({"large.minimum": 0}, "large.minimum=0: allowed"),
        ({"ratio": float("nan")}, "ratio=nan: allowed is a finite number from 0.0 to 1.0"),
        ({"ratio": 1, "way": "up"}, "ratio=1: allowed is a finite number from 0.0 to 1.0; toy[f32]: way='up'"),
        ({"note": None}, "note=None: allowed is a string"),
        ({"parallel.minimum": 50}, "the rule 'parallel.grain <= parallel.minimum' does not hold"),
    ],
)
def test_values_that_the_schema_refuses_are_an_error_before_any_file_is_touched(library, tmp_path, values, said):
    library(PARAMETERS)
    with pytest.raises(ParameterError) as caught:
        tuning.set("toy", values)
    assert said in str(caught.value)
    assert not (tmp_path / "home").exists()
    assert published.current().number == 0


def test_unknown_kernels_types_and_scopes_are_an_error(library):
    made = library(PARAMETERS)
    with pytest.raises(KernelNotFound, match="no kernel 'tea'"):
        tuning.set("tea", {})
    with pytest.raises(KernelNotFound, match="no element type 'f64'"):
        tuning.set(made.toy, {"ratio": 1.0}, "f64")
    with pytest.raises(KernelNotFound, match="no kernel 'tea'"):
        tuning.parameters("tea")
    with pytest.raises(KernelNotFound, match="no kernel 'tea'"):
        tuning.forget("tea")
    with pytest.raises(ScopeNotFound, match="nowhere"):
        tuning.propose("nowhere")
    with pytest.raises(ScopeNotFound, match="nowhere"):
        tuning.default_path("nowhere")


SETTER = """
import sys, tunegen, {module} as made
from tunegen import tuning
print("ready", flush=True)
sys.stdin.readline()
for value in range(1, 21):
    found = tuning.set(made.toy, {{"{name}": {value}}})
    assert found, found
"""


def test_two_processes_that_set_different_parameters_of_one_key_both_succeed(library, tmp_path):
    """Each writes twenty times, at the same time: the last value of both is in the file."""
    made = library(PARAMETERS)
    setters = [("large.minimum", "value"), ("ratio", "value / 32")]
    children = [
        subprocess.Popen(
            [sys.executable, "-c", SETTER.format(module=made.__name__, name=name, value=value)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(tmp_path),
        )
        for name, value in setters
    ]  # fmt: skip
    for process in children:
        assert process.stdout.readline() == "ready\n"
    for process in children:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.wait(60) for process in children] == [0, 0]
    for process in children:
        process.communicate()
    assert (cached(made, "large.minimum"), cached(made, "ratio")) == (20, 20 / 32)
    assert len(entries(made)) == 1


def environment(tmp_path):
    from tunegen import knobs

    return knobs.child_environment(PYTHONPATH=str(tmp_path / "libraries"))


@given(st.floats(0, 1), st.text(), st.booleans(), st.integers(1, 10_000))
def test_values_survive_any_number_of_round_trips(ratio, note, exact, large):
    """Through a document, and as they are typed on a command line: doubles to the last digit, text with newlines."""
    from tunegen.choosing import document

    values = {"ratio": ratio, "note": note, "exact": exact, "large": large}
    data = document.encode({"tunegen": 1, "values": values})
    for _ in range(3):
        assert json.loads(data)["values"] == values
        data = document.encode(json.loads(data))
    schema = Schema((
        Parameter("ratio", "float", 0.5), Parameter("note", "string", ""), Parameter("exact", "bool", True),
        Parameter("large", "int", 1, 1, 10_000),
    ))  # fmt: skip
    typed = [f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in values.items()]
    assert read_values(schema, typed) == values


@pytest.mark.parametrize("value", [0.1, 1 / 3, 5e-324, 1.0, 0.0])
def test_a_double_survives_being_set_read_loaded_and_set_again(library, value):
    made = library(PARAMETERS)
    for _ in range(4):
        assert tuning.set(made.toy, {"ratio": value})
        (loaded,) = tuning.load().loaded
        value = loaded.values["ratio"]
        assert repr(value) == repr(active(made, "ratio")) == repr(cached(made, "ratio"))
    assert type(value) is float


@pytest.mark.parametrize("text", ["two\nlines\r\n", '"quotes" \\ and = signs', "tab\tnul\0", "ünïcödé \U0001f600", ""])
def test_text_with_newlines_and_worse_is_read_back(library, text):
    made = library(PARAMETERS)
    assert tuning.set(made.toy, {"note": text})
    tunegen.load()
    assert (cached(made, "note"), active(made, "note")) == (text, text)


def test_a_read_only_folder_is_a_result_and_nothing_is_published(library, tmp_path, monkeypatch):
    made = library(PARAMETERS)
    monkeypatch.setattr(store, "LOCK_TIMEOUT_S", 0.2)
    forbid_writing(tmp_path / "closed", monkeypatch)
    found = tuning.set(made.toy, {"ratio": 1.0}, path=tmp_path / "closed" / "x.tune.json")
    assert (found.status, bool(found), found.published) == ("read_only", False, 0)
    assert found.reason == f"{tmp_path / 'closed' / 'x.tune.json'} cannot be written: Permission denied"
    assert (found.updated, active(made, "ratio")) == ((), 0.5)


HOLDER = """
import sys
from pathlib import Path
from tunegen.choosing import store
with store._locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_lock_held_by_another_process_is_a_result_that_names_it(library, tmp_path, monkeypatch):
    made = library(PARAMETERS)
    path = tmp_path / "x.tune.json"
    monkeypatch.setattr(store, "LOCK_TIMEOUT_S", 0.05)
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)  # fmt: skip
    try:
        assert holder.stdout.readline() == "held\n"
        found = tuning.set(made.toy, {"ratio": 1.0}, path=path)
        assert (found.status, found.published) == ("locked", 0)
        assert f"by process {holder.pid} on " in found.reason
    finally:
        holder.communicate("done\n")
    assert tuning.set(made.toy, {"ratio": 1.0}, path=path)


@pytest.mark.parametrize(
    ("content", "status", "reason"),
    [
        (None, "not_found", "no such file"),
        ("{", "malformed", "not JSON"),
        ("", "malformed", "not JSON"),
        ('{"tunegen": 2}', "newer", "format 2 is newer"),
        ('{"tunegen": 1}', "malformed", "the box cannot be read"),
    ],
)
def test_a_file_in_any_state_is_a_result(library, tmp_path, content, status, reason):
    library(PARAMETERS)
    path = tmp_path / "x.tune.json"
    if content is not None:
        path.write_text(content)
    for found in (tuning.load(path), tuning.inspect(path)):
        assert found.status == status
    assert reason in tuning.load(path).reason
    assert reason in tuning.inspect(path).files[0].reason
    assert [r.key for r in tuning.load(path).missing] == ["toy[f32]"]
    forgotten = tuning.forget(path=path)
    assert (forgotten.status, forgotten.pruned) == (status, ())
    assert tuning.load(tmp_path).status == "unreadable"


def test_a_newer_file_is_left_alone_and_a_malformed_one_is_set_aside(library, tmp_path):
    made = library(PARAMETERS)
    path = tmp_path / "x.tune.json"
    path.write_text('{"tunegen": 2}')
    assert tuning.set(made.toy, {"ratio": 1.0}, path=path).status == "newer"
    assert path.read_text() == '{"tunegen": 2}'
    path.write_text("{")
    assert tuning.set(made.toy, {"ratio": 1.0}, path=path).status == "updated"
    assert path.with_name(f"{path.name}.unreadable").read_text() == "{"


def test_a_stale_abi_is_named_and_not_used_and_set_writes_anew(library):
    made = library(PARAMETERS)
    tuning.set(made.toy, {"large.minimum": 50})
    published._publications.current = published.Generation()

    def older(entry):
        entry["parts"]["abi"], entry["digest"] = "0", "sha256:older"

    spoil(made, older)
    assert (row(made).state, row(made).reason) == ("stale", "abi changed from 0 to 1")
    assert (active(made, "large.minimum"), row(made).source) == (100, "default")
    (stale,) = tuning.load().stale
    assert (stale.key, stale.reason) == ("toy[f32]", "abi changed from 0 to 1")
    assert [r.key for r in tuning.propose().calibratable] == ["toy[f32]"]
    assert tuning.set(made.toy, {"ratio": 1.0}).updated[0].values == {**DEFAULTS, "ratio": 1.0}
    assert [e.state for e in tuning.inspect().files[0].entries] == ["ok", "stale"]
    assert [r.reason for r in tuning.forget(stale=True).pruned] == ["stale: abi changed from 0 to 1"]
    assert len(published.current().values) == 1, "what holds stays published"
    assert [e.state for e in tuning.inspect().files[0].entries] == ["ok"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("large.minimum", True, "large.minimum=True: allowed"), ("large.minimum", 0, "allowed is a whole number from 1"),
     ("ratio", 1, "ratio=1: allowed"), ("gone", 1, "unknown parameter 'gone'"), ("exact", None, "exact=None")],
)  # fmt: skip
def test_values_that_the_schema_rejects_are_reported_not_counted_as_covered_and_repaired_by_set(
    library, name, value, said
):
    made = library(PARAMETERS)
    tuning.set(made.toy, {"large.minimum": 50})
    published._publications.current = published.Generation()
    spoil(made, lambda entry: entry["params"].update({name: value}))
    assert said in row(made).reason
    assert (row(made).state, row(made).source, active(made, "large.minimum")) == ("invalid", "default", 100)
    (invalid,) = tuning.load().invalid
    assert said in invalid.reason
    (open_row,) = tuning.propose().calibratable
    assert said in open_row.reason
    assert tuning.propose().covered == ()
    (entry,) = tuning.inspect().files[0].entries
    assert (entry.state, entry.kind) == ("invalid", "values")
    assert tuning.set(made.toy, {"ratio": 0.25})
    assert (row(made).state, [r.key for r in tuning.propose().covered]) == ("ok", ["toy[f32]"])
    assert len(entries(made)) == 1


def test_a_manifest_of_another_box_is_foreign_field_by_field(library, monkeypatch, tmp_path):
    made = library(PARAMETERS)
    path = tmp_path / "x.tune.json"
    monkeypatch.setenv("TUNE_THREADS", "2")
    tuning.set(made.toy, {"large.minimum": 50}, path=path)
    monkeypatch.setenv("TUNE_THREADS", "3")
    found = tuning.load(path)
    assert ([r.reason for r in found.foreign], found.loaded) == (["threads: 2 there, 3 here"], ())
    (file,) = tuning.inspect(path).files
    assert (file.local, file.threads, file.differences) == (False, 2, ("threads: 2 there, 3 here",))
    assert file.entries[0].state == "foreign"
    refused = tuning.set(made.toy, {"ratio": 1.0}, path=path)
    assert (refused.status, refused.published) == ("foreign", 0)
    assert "threads: 2 there, 3 here" in refused.reason


def test_a_serial_kernel_completes_the_values_that_this_box_has_with_another_number_of_threads(library, monkeypatch):
    body = PARAMETERS.replace('    parallel=split("N", when="N >= parallel.minimum", grain="parallel.grain"),\n', "")
    made = library(body)
    monkeypatch.setenv("TUNE_THREADS", "2")
    tuning.set(made.toy, {"large.minimum": 50}, load=False)
    monkeypatch.setenv("TUNE_THREADS", "3")
    assert active(made, "large.minimum") == 50
    assert tuning.set(made.toy, {"ratio": 0.25}).updated[0].values["large.minimum"] == 50


def test_loading_a_file_publishes_all_that_holds_and_says_what_does_not(library, tmp_path):
    made = library(PARAMETERS + PARAMETERS.replace("def toy", "def tea"))
    path = tmp_path / "x.tune.json"
    tuning.set(made.toy, {"large.minimum": 50}, path=path, load=False)
    found = tuning.load(path)
    assert (found.status, found.path) == ("loaded", str(path))
    assert [(r.key, r.values["large.minimum"]) for r in found.loaded] == [("toy[f32]", 50)]
    assert [(r.key, r.reason) for r in found.missing] == [("tea[f32]", "no entry")]
    with tunegen.session() as session:
        assert session.bind(made.toy).values["f32"]["large.minimum"] == 50
        assert session.bind(made.tea).values["f32"]["large.minimum"] == 100


def test_one_bad_entry_never_costs_a_good_one(library, tmp_path):
    made = library(PARAMETERS + PARAMETERS.replace("def toy", "def tea"))
    path = tmp_path / "x.tune.json"
    for kernel in (made.toy, made.tea):
        tuning.set(kernel, {"large.minimum": 50}, path=path, load=False)
    document = raw(path)
    document["scopes"][made.__name__]["kernels"]["tea[f32]"] = [7, {"params": []}, {"params": {"ratio": "x"}}]
    document["scopes"]["nowhere"] = {"kernels": {"k[f32]": [{"params": {"a": 1}}]}}
    path.write_text(json.dumps(document))
    found = tuning.load(path)
    assert [r.key for r in found.loaded] == ["toy[f32]"]
    assert [r.key for r in found.invalid] == ["tea[f32]"] * 3
    states = {(e.key, e.state) for e in tuning.inspect(path).files[0].entries}
    assert states == {("toy[f32]", "ok"), ("tea[f32]", "invalid"), ("k[f32]", "unknown")}
    pruned = tuning.forget(stale=True, path=path).pruned
    assert sorted(r.key for r in pruned) == ["k[f32]", *["tea[f32]"] * 3]


def test_inspect_shows_winners_and_values_of_all_boxes_at_hand(library, tmp_path, monkeypatch):
    made = library(TOY)
    assert tunegen.tune_manifest_set(made.toy, "row3")
    other = tuning.default_path(made.__name__).with_name("znver9-t7-00000000.tune.json")
    box = msgspec.structs.replace(this_box(), threads=7, cpu="znver9")
    store.write(other, box, {}, made.__name__, "toy[f32]", store.Entry([store.document.RegimeWinner("row9")]))
    local, foreign = sorted(tuning.inspect().files, key=lambda file: not file.local)
    assert (local.local, local.cpu, foreign.local, foreign.threads) == (True, this_box().cpu, False, 7)
    (entry,) = local.entries
    assert (entry.kind, entry.winners, entry.state) == ("winners", {"": "row3"}, "ok")
    assert foreign.entries[0].state == "foreign"
    (tmp_path / "named.json").write_text(json.dumps({"toy": "row9", f"{made.__name__}:toy": "row1", "tea": "x"}))
    monkeypatch.setenv("TUNE_MANIFEST", str(tmp_path / "named.json"))
    named = tuning.inspect().files[0]
    assert [(e.key, e.state) for e in named.entries] == [
        ("toy", "unknown"), (f"{made.__name__}:toy", "unverified"), ("tea", "unknown"),
    ]  # fmt: skip


def test_propose_tells_covered_calibratable_and_manual_and_changes_nothing(library, tmp_path):
    manual = PARAMETERS.replace("    calibrate=lambda trial: None,\n", "").replace("def toy", "def tea")
    made = library(PARAMETERS + manual + TOY.replace("def toy", "def plain"))
    found = tuning.propose(made.__name__)
    assert [r.key for r in found.calibratable] == ["toy[f32]"]
    assert [r.key for r in found.manual] == ["tea[f32]"]
    assert "set by hand: large.minimum" in found.calibratable[0].reason
    assert (found.covered, found.scopes, (tmp_path / "home").exists()) == ((), (made.__name__,), False)
    tuning.set(made.tea, {}, load=False)
    assert [r.key for r in tuning.propose().covered] == ["tea[f32]"]
    assert tuning.apply(tunegen.tuning.results.Proposal((), ())).status == "updated"


def test_forgetting_a_kernel_takes_its_entries_out_of_the_file_and_of_what_is_published(library):
    made = library(PARAMETERS + PARAMETERS.replace("def toy", "def tea"))
    tunegen.tune_manifest_set(made.toy, "row3")
    for kernel in (made.toy, made.tea):
        tuning.set(kernel, {"large.minimum": 50})
    found = tuning.forget("toy", values_only=True)
    assert (found.status, [(r.key, r.reason) for r in found.pruned]) == ("updated", [("toy[f32]", "ok")])
    assert sorted(r.key for r in found.preserved) == ["tea[f32]", "toy[f32]"]
    with tunegen.session() as session:
        assert session.bind(made.toy).values["f32"]["large.minimum"] == 100
        assert session.bind(made.tea).values["f32"]["large.minimum"] == 50
    tunegen.load()
    assert ran(made.toy) == 3
    assert [r.key for r in tuning.forget(made.toy).pruned] == ["toy[f32]"]
    assert [r.key for r in tuning.forget().pruned] == ["tea[f32]"]
    tunegen.load()
    assert ran(made.toy) == 1
    assert tuning.forget().status in ("updated", "not_found")


def test_a_kernel_without_parameters_has_none(library):
    made = library(GENERIC, {"generic.ll.j2": TOY_TEMPLATE})
    assert (len(tuning.parameters()), tuning.parameters().status) == (0, "not_found")
    assert [r.parameters for r in tuning.parameters(made.toy)] == [(), ()]
    with pytest.raises(ParameterError, match="there are none"):
        tuning.set(made.toy, {"ratio": 1.0})
    assert tuning.load().status == "not_found"


def test_what_was_set_is_found_by_a_fresh_process(library, child):
    made = library(PARAMETERS)
    tuning.set(made.toy, {"large.minimum": 50})
    done = child(f"import {made.__name__} as m; print(m.toy.values['f32']['large.minimum'])")
    assert done.stdout == "50\n", done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [("ratio", "write NAME=VALUE"), ("gone=1", "unknown parameter 'gone'"), ("exact=1", "exact=1: allowed is True"),
     ("large=x", "large=x: allowed"), ("large=1.5", "large=1.5: allowed"), ("ratio=", "ratio=: allowed")],
)  # fmt: skip
def test_a_text_that_stands_for_no_value_is_an_error(text, said):
    schema = Schema((
        Parameter("ratio", "float", 0.5), Parameter("exact", "bool", True), Parameter("large", "int", 1, 1, 9),
    ))  # fmt: skip
    with pytest.raises(ParameterError) as caught:
        read_values(schema, [text])
    assert said in str(caught.value)
    assert read_values(schema, ["exact=false", "large=3", "ratio=1"]) == {"exact": False, "large": 3, "ratio": 1.0}
    assert written({"exact": False, "large": 3}) == "exact=false large=3"
    with pytest.raises(ParameterError, match="large is given twice"):
        read_values(schema, ["large=1", "large=2"])


def test_limits_of_a_calibration_are_above_nothing(library):
    library(PARAMETERS)
    for limits in ({"seconds": 0}, {"memory_bytes": -1}, {"threads": 0}):
        with pytest.raises(ValueError, match="allowed is a number above 0"):
            tuning.calibrate(**limits)
    with pytest.raises(KernelNotFound):
        tuning.calibrate("tea")


def test_calibrating_publishes_and_saves_what_a_callback_finds(library):
    """The callback here asks nothing, so the harness says that nothing was answered."""
    made = library(PARAMETERS)
    found = tuning.calibrate(made.toy, seconds=1.0)
    assert (found.status, found.saved, len(found.results)) == ("incomplete", False, 1)
    assert tuning.calibrate("toy").reason
