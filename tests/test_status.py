"""Status, its log lines, and explanations."""

from __future__ import annotations

import json
import logging

import msgspec
import pytest
from toys import REGIMES, TOY, TOY_TEMPLATE, ran, write_library

import tunegen
from tunegen.box import this_box
from tunegen.choosing import store
from tunegen.errors import KernelNotFound, ScopeNotFound
from tunegen.public import record, sources
from tunegen.public.status import status_lines, summary

BOTH = TOY + TOY.replace("def toy", "def tea")


def put(made, value):
    path = sources.target_manifest(made.__name__, this_box())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    tunegen.load()
    return path


def tune(kernel, winners, evidence=None):
    spec, box = kernel.spec, this_box()
    for t in spec.signature.element_types:
        record.write_entry(spec, t, box, record.entry_for(spec, t, box, winners, evidence or {}))
    tunegen.load()


def test_a_row_has_the_fields_of_the_contract(library):
    made = library()
    path = put(made, {"toy": "row9"})
    (row,) = summary(tunegen.tune_status())["kernels"]
    regimes = row.pop("regimes")
    assert row == {
        "kernel": "toy", "element_type": "f32", "asked": "row9", "emitted": "row2", "source": "fallback",
        "state": "unknown", "reason": "'row9' is no row of the grid", "scope": made.__name__, "path": str(path),
        "tuned": False,
    }  # fmt: skip
    assert len(regimes) == 1
    assert summary(tunegen.tune_status())["total"] == 1
    assert summary(tunegen.tune_status())["tuned"] == 0
    json.dumps(summary(tunegen.tune_status()))


def test_the_lines_are_those_of_the_contract(library):
    made = library(BOTH)
    tune(made.toy, {"": "row3"})
    assert status_lines(tunegen.tune_status()) == [
        "tune status (1/2 kernels tuned for this box):",
        "  toy[f32]: row3 (manifest)",
        "  tea[f32]: row2 (fallback: no manifest entry)",
        f"  hint: run `tunegen tune {made.__name__}`, or start with `-- --tune`",
    ]
    tune(made.tea, {"": "row1"})
    assert status_lines(tunegen.tune_status())[-1] == "  tea[f32]: row1 (manifest)"


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("row3", "toy[f32]: row3 (manifest: unverified, written by hand, without a digest)"),
        ("row9", "toy[f32]: row2 (fallback: row9 unknown, 'row9' is no row of the grid)"),
        ("reference", "toy[f32]: reference (manifest: unverified, written by hand, without a digest)"),
    ],
)
def test_a_line_says_what_was_asked_and_why_it_does_not_run(library, name, line):
    made = library()
    put(made, {"toy": name})
    assert [str(row) for row in tunegen.tune_status()] == [line]


def test_regimes_have_lines_and_states_of_their_own(library):
    """The kernel is tuned when the regimes that its cases fall in are: here the unconditional one."""
    made = library(REGIMES)
    tune(made.toy, {"": "row3"})
    assert status_lines(tunegen.tune_status()) == [
        "tune status (1/1 kernels tuned for this box):",
        "  toy[f32]: row3 (manifest)",
        "    if N <= 2: row1 (fallback)",
    ]
    made = library(REGIMES.replace("cases=[", 'cases=[case("tiny", N=1), '))
    tune(made.toy, {"": "row3"})
    (row,) = tunegen.tune_status(made.__name__)
    assert str(row) == "toy[f32]: row3 (manifest: not tuned for N <= 2)"
    assert [regime.tuned for regime in row.regimes] == [False, True]
    tune(made.toy, {"N <= 2": "five", "": "row3"})
    (row,) = tunegen.tune_status(made.__name__)
    assert (str(row), row.tuned) == ("toy[f32]: row3 (manifest)", True)


def test_a_regime_that_passes_on_is_said(library):
    library(REGIMES.replace("gate=", 'define={"declined": "1"}, gate='))
    assert "    if N <= 2: passed on (fallback)" in status_lines(tunegen.tune_status())


def test_status_is_narrowed_by_scope_and_kernel(library):
    one, two = library(BOTH), library()
    assert [r.scope for r in tunegen.tune_status()] == [one.__name__, one.__name__, two.__name__]
    assert [r.scope for r in tunegen.tune_status(two.__name__)] == [two.__name__]
    assert [r.kernel for r in tunegen.tune_status(one.__name__, kernels=["tea"])] == ["tea"]
    assert [r.kernel for r in tunegen.tune_status(kernels=[f"{two.__name__}:toy"])] == ["toy"]
    with pytest.raises(KernelNotFound, match="ambiguous"):
        tunegen.tune_status(kernels=["toy"])
    with pytest.raises(KernelNotFound, match="'nothing'"):
        tunegen.tune_status(kernels=["nothing"])
    for use in (tunegen.tune_status, tunegen.load):
        with pytest.raises(ScopeNotFound, match="nowhere"):
            use("nowhere")


def test_a_case_per_shape_falls_in_its_regime(library):
    body = """
@scope.tune(gen="any.ll.j2", gate=bitwise(), cases=[case("bias", a=(4, 8), b=(8,))], fallback="row1 if N > 16; row2")
@scope.tune_grid(row=[1, 2])
def both(a: In[f32, ...], b: In[f32, ...], out: Out[f32, ...]) -> None:
    out[...] = -1
"""
    made = library(body, templates={"any.ll.j2": TOY_TEMPLATE.replace("ptr %x", "ptr %a, ptr %b")})
    tune(made.both, {"N > 16": "row2"})
    (row,) = tunegen.tune_status()
    assert ([r.tuned for r in row.regimes], row.tuned) == ([True, True], True)


def test_the_status_is_logged_at_info_under_the_name_of_the_program(library, caplog):
    library()
    with caplog.at_level(logging.INFO, "myapp"):
        tunegen.log_tune_status("myapp")
    (line,) = caplog.records
    assert (line.name, line.levelno) == ("myapp", logging.INFO)
    assert line.message.splitlines()[:2] == [
        "myapp: tune status (0/1 kernels tuned for this box):",
        "  toy[f32]: row2 (fallback: no manifest entry)",
    ]


def test_without_kernels_the_log_is_silent(library, caplog, capsys):
    library("")
    with caplog.at_level(logging.DEBUG):
        tunegen.log_tune_status("myapp")
    assert caplog.text == ""
    assert capsys.readouterr() == ("", "")


def test_the_status_reaches_stderr_in_a_program_that_never_configured_logging(child, tmp_path):
    name = write_library(tmp_path / "libraries")
    use = "import tunegen\nimport logging\n{}\nimport " + name + '\ntunegen.log_tune_status("myapp")'
    done = child(use.format(""))
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "myapp: tune status (0/1 kernels tuned for this box):",
        "  toy[f32]: row2 (fallback: no manifest entry)",
        f"  hint: run `tunegen tune {name}`, or start with `-- --tune`",
    ]
    configured = child(use.format("logging.basicConfig(level='INFO', format='%(levelname)s %(name)s')"))
    assert configured.stderr.splitlines() == ["INFO myapp"]
    assert child(use.format("logging.basicConfig(level='ERROR')")).stderr == ""
    assert child(use.format(f"import sys; sys.modules[{name!r}] = None").replace(f"import {name}\n", "")).stderr == ""


def test_tune_log_sends_the_log_of_tunegen_to_stderr(child, tmp_path):
    name = write_library(tmp_path / "libraries", templates={"toy.ll.j2": "{{ nonsense }}"})
    code = f"import {name}, tunegen; tunegen.load()"
    assert "UndefinedError" in child(code).stderr
    assert child(code, TUNE_LOG="error").stderr == ""
    assert "tunegen: toy_f32__row2: " in child(code, TUNE_LOG="info").stderr


EVIDENCE = {
    "kind": "isolated", "baseline": "row2", "ratio": 1.3125, "interval": [1.27, 1.35], "pairs": 15, "noise": 0.011,
    "runner_up": "row1", "margin": 0.042,
}  # fmt: skip


def test_an_explanation_has_every_tier_the_runner_up_and_the_evidence(library, monkeypatch):
    monkeypatch.setenv("TUNE_THREADS", "3")
    made = library(REGIMES)
    tune(made.toy, {"N <= 2": "five", "": "row3"}, {"": EVIDENCE})
    told = tunegen.explain("toy", N=100)
    assert (told.emitted, told.source, told.state, told.regime) == ("row3", "manifest", "ok", "")
    assert [tier["tier"] for tier in told.tiers] == [
        "session pin", "program pin", "published value", "user manifest", "system manifest", "shipped profile",
        "fallback",
    ]  # fmt: skip
    below = [
        f"  system manifest: missing [{told.tiers[4]['path']}]",
        "  shipped profile: missing",
        "  fallback: row2: ok",
    ]
    path = sources.target_manifest(made.__name__, this_box())
    assert str(told).splitlines() == [
        "toy[f32](N=100): row3 from manifest, in the unconditional regime",
        f"box: {this_box().cpu}, 3 threads, {this_box().id}",
        "  session pin: missing",
        "  program pin: missing",
        "  published value: missing",
        f"  user manifest: row3: ok [{path}]",
        *below,
        "  evidence: 1.31 times the default row2 (interval 1.27 to 1.35, 15 pairs, noise 1.1%)",
        "  runner-up: row1, 4.2% slower",
    ]
    assert str(tunegen.explain("toy")).startswith("toy[f32]: row3 from manifest,")
    assert tunegen.explain(made.toy, "f32", N=1).emitted == "five"
    assert tunegen.explain("toy[f32]").emitted == "row3"
    json.dumps(msgspec.to_builtins(told))


def test_an_explanation_goes_down_to_the_fallback_and_names_what_differs(library, monkeypatch):
    made = library()
    monkeypatch.setenv("TUNE_THREADS", "3")
    tune(made.toy, {"": "row3"})
    monkeypatch.setenv("TUNE_THREADS", "5")
    tunegen.load()
    told = tunegen.explain("toy")
    assert "threads: 3 there, 5 here" in str(told)
    assert told.tiers[-1] == {
        "tier": "fallback", "source": "fallback", "suffix": "row2", "state": "ok", "reason": "", "path": ""
    }  # fmt: skip
    assert [t["tier"] for t in told.tiers[-3:]] == ["system manifest", "shipped profile", "fallback"]


@pytest.mark.parametrize(
    "evidence",
    [{}, {"ratio": "fast"}, {"ratio": 1.0, "interval": 5}, {"ratio": 1.5, "interval": [1, 2, 3]}, {"kind": []}],
)
def test_evidence_that_makes_no_sense_is_left_out(library, evidence):
    made = library()
    tune(made.toy, {"": "row3"}, {"": evidence})
    assert ran(made.toy) == 3
    assert "  evidence: " not in str(tunegen.explain("toy"))


@pytest.mark.parametrize(
    ("arguments", "sizes", "said"),
    [(["tea"], {}, "no kernel 'tea'"), (["toy[f64]"], {}, "no element type 'f64'; there are f32"),
     (["toy"], {"M": 1}, "no size M; there are N")],
)  # fmt: skip
def test_what_cannot_be_explained_is_said(library, arguments, sizes, said):
    library()
    with pytest.raises(KernelNotFound, match=said):
        tunegen.explain(*arguments, **sizes)


def test_the_folder_of_a_fleet_is_searched_once(library, monkeypatch):
    """Not once for each kernel: a shared home may hold the manifests of hundreds of boxes."""
    library(BOTH)
    searches = []
    monkeypatch.setattr(store, "nearest", lambda folder, box: searches.append(folder))
    tunegen.tune_status()
    assert len(searches) == 1
