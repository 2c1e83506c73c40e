"""Fault injection: a library with a variant for each way to fail is tuned to the end, with the right reasons."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent

import faults
import numpy as np
import pytest
from toys import GENERIC, TOY_TEMPLATE

from conftest import Child, Libraries
from tunegen import Declined
from tunegen.box import this_box
from tunegen.harness import journal
from tunegen.harness.outcomes import charge, nothing_left, told
from tunegen.harness.protocol import Outcome, RegimeResult, Result
from tunegen.harness.spawn import Died
from tunegen.making.make import family_code
from tunegen.public.variant import Variant
from tunegen.signature import ELEMENT_TYPES

TUNE = f"""
    {faults.WATCH}
    import json
    import faults
    (report,) = tune(targets(faults.scope), lambda event: None, settings)
    outcomes = {{suffix: [outcome.state, outcome.reason] for suffix, outcome in report.outcomes.items()}}
    regimes = report.result.regimes if report.result else []
    winners = [[regime.winner, regime.evidence["baseline"]] for regime in regimes]
    print(json.dumps([report.problem, winners, outcomes, report.path]))
"""

linux = pytest.mark.skipif(sys.platform != "linux", reason="guard pages, limits and signals are tried on Linux")


@linux
def test_every_kind_of_fault_is_survived_with_its_reason_and_the_right_one_wins(tmp_path: Path, child: Child) -> None:
    folder = tmp_path / "libraries"
    faults.write(folder)
    done = child(TUNE)
    assert done.returncode == 0, done.stderr
    assert "junk" not in done.stdout
    problem, winners, found, path = json.loads(done.stdout)
    assert problem == ""
    # the default chain begins with a crash: the next one that is valid is the baseline
    assert winners == [["fast", "slow"]]
    assert {suffix: state for suffix, (state, _) in found.items()} == {k: s for k, (s, _) in faults.KINDS.items()}
    for kind, (_, reason) in faults.KINDS.items():
        assert reason in found[kind][1], (kind, found[kind][1])
    assert Path(path).exists()


@pytest.mark.parametrize(
    ("stage", "death", "state", "reason"),
    [
        ("gate", Died("signal SIGSEGV", signal="SIGSEGV"), "crashed", "run: signal SIGSEGV at awkward N=3"),
        (
            "guard",
            Died("signal SIGSEGV", signal="SIGSEGV"),
            "out of bounds",
            "SIGSEGV next to an operand at awkward N=3",
        ),
        ("guard", Died("signal SIGILL", signal="SIGILL"), "crashed", "run: signal SIGILL at awkward N=3"),
        ("gate", Died("silent for 9 s", hanging=True), "timed out", "run: silent for 9 s at awkward N=3"),
        ("compile", Died("silent for 9 s", hanging=True), "timed out", "compile: silent for 9 s"),
        (
            "compile",
            Died("signal SIGABRT", signal="SIGABRT", words="LLVM ERROR: out of memory"),
            "out of memory",
            "LLVM",
        ),
        (
            "compile",
            Died("signal SIGABRT", signal="SIGABRT", words="LLVM ERROR: no"),
            "crashed",
            "SIGABRT: LLVM ERROR: no",
        ),
        (
            "final",
            Died("signal SIGKILL", signal="SIGKILL"),
            "out of memory",
            "run: killed by signal 9 (by the system's memory killer, or by somebody)",
        ),
        (
            "final",
            Died("signal SIGKILL", signal="SIGKILL", killer="memory"),
            "out of memory",
            "run: killed by signal 9 (by the system's memory killer)",
        ),
        (
            "gate",
            Died("signal SIGKILL", signal="SIGKILL", killer="somebody"),
            "crashed",
            "run: killed by signal 9 (by somebody: the system's memory killer ended nothing meanwhile) at awkward N=3",
        ),
        ("screen", Died("exit code 0"), "crashed", "run: exit code 0"),
    ],
)
def test_a_death_is_told_apart_by_stage_signal_and_last_words(stage: str, death: Died, state: str, reason: str) -> None:
    outcome = charge(stage, "awkward N=3" if stage in ("gate", "guard") else "", death)
    assert outcome.state == state
    assert reason in outcome.reason


def test_a_kill_from_outside_says_nothing_about_a_candidate_that_a_later_run_should_know() -> None:
    assert not Died("signal SIGKILL", signal="SIGKILL", killer="somebody").telling
    assert Died("signal SIGSEGV", signal="SIGSEGV").telling
    assert Died("silent for 9 s", hanging=True).telling


HANGS = f"""
    {faults.WATCH}
    import json
    import faults
    (report,) = tune(targets(faults.scope, retune=True), lambda event: None, settings)
    print(json.dumps({{suffix: [outcome.state, outcome.reason] for suffix, outcome in report.outcomes.items()}}))
"""


@linux
def test_what_hung_while_it_was_made_or_run_is_not_tried_again_until_something_changes(
    tmp_path: Path, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ("slow_compile", "llvm_abort", "endless", "slow", "fast")
    monkeypatch.setattr(faults, "KINDS", {kind: faults.KINDS[kind] for kind in kinds})
    monkeypatch.setattr(faults, "TWINS", {})
    monkeypatch.setattr(faults, "HEAD", faults.HEAD.replace("segfault; slow", "slow"))
    faults.write(tmp_path / "libraries")

    def hung(*arguments: str) -> tuple[int, dict[str, list[str]]]:
        done = child(HANGS, *arguments)
        assert done.returncode == 0, done.stderr
        # each death of a worker is a warning
        return done.stderr.count(f"silent for {faults.SILENCE_S} s"), json.loads(done.stdout)

    deaths, first = hung()
    assert deaths == 2
    deaths, second = hung()
    assert deaths == 0
    for kind in ("slow_compile", "endless"):
        assert first[kind][0] == second[kind][0] == "timed out"
        assert second[kind][1] == f"{first[kind][1]}{journal.EARLIER}"
    assert second["llvm_abort"] == first["llvm_abort"]
    assert hung()[1] == second, "and it is not said twice"
    assert hung("again")[0] == 2
    template = tmp_path / "libraries" / "faults" / "templates" / "copy.ll.j2"
    template.write_text(template.read_text().replace("10 ** 12", "10 ** 1"))
    deaths, mended = hung("mended")
    assert deaths == 0, "the endless loop has the same code as before"
    assert mended["slow_compile"][0] in ("passed", "slower", "duplicate")


def test_what_passed_and_won_nowhere_is_slower() -> None:
    passed, wrong = Outcome("passed"), Outcome("wrong", "why")
    regimes = [RegimeResult("N <= 2", "a", 1.0, 1.0, {}), RegimeResult("", "b", 1.0, 1.0, {})]
    found = told({"a": passed, "b": passed, "c": passed, "d": wrong}, Result(regimes), {"": {"c": 0.5}})
    assert [outcome.state for outcome in found.values()] == ["passed", "passed", "slower", "wrong"]
    assert found["c"].reason == "a won if N <= 2; b won (0.50 x the default in the screening)"
    assert told({"a": passed}, None, {}) == {"a": passed}


def test_only_when_nothing_valid_is_left_there_is_an_error_with_counts() -> None:
    wrong, crashed, declined = Outcome("wrong", "at 3"), Outcome("crashed", "x"), Outcome("declined", "y")
    text = nothing_left({"a": declined, "b": wrong, "c": crashed, "d": wrong}, untried=7)
    assert text == "nothing valid is left: 1 declined, 2 wrong, 1 crashed, 7 not tried; for example b wrong: at 3"
    assert nothing_left({"a": wrong, "b": Outcome("passed")}) == ""
    assert nothing_left({"a": declined, "b": Outcome("ineligible")}) == ""


BROKEN = """
    @scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row1; reference")
    @scope.tune_grid(row=[1, 2])
    def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
        out[...] = -1
"""
TUNE_ONE = """
    import sys, {module} as made
    from tunegen.harness.engine import Settings, tune
    from tunegen.harness.target import targets
    (report,) = tune(targets(made.scope), lambda event: None, Settings("quick", noisy_ok=True))
    print(report.problem, "|", *((regime.winner, regime.evidence["baseline"]) for regime in report.result.regimes)
          if report.result else ())
"""


def test_a_kernel_without_any_valid_row_is_an_error_and_nothing_is_written(
    library: Libraries, child: Child, tmp_path: Path
) -> None:
    made = library(BROKEN)
    done = child(TUNE_ONE.format(module=made.__name__))
    assert "nothing valid is left: 2 wrong; for example row1 wrong: awkward N=1: out[0]" in done.stdout
    assert not list((tmp_path / "home").rglob("*.tune.json"))


def test_a_default_that_is_the_duplicate_of_an_incumbent_is_raced_as_that(library: Libraries, child: Child) -> None:
    """Equal code is raced once, under the name that came first, and remains the baseline."""
    made = library("""
        @scope.tune(gen="twins.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row1; row3; reference")
        @scope.tune_grid(row=[1, 2, 3])
        def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
            out[...] = 1
    """, {"twins.ll.j2": faults.TWINS_TEMPLATE})  # fmt: skip
    name = made.__name__
    before = f"import {name}, tunegen; assert tunegen.tune_manifest_set({name}.toy, 'row2')"
    assert child(before).returncode == 0
    done = child(TUNE_ONE.format(module=name).replace("targets(made.scope)", "targets(made.scope, retune=True)"))
    assert "'row2')" in done.stdout, done.stdout + done.stderr


FACTORY = """
    def make():
        @scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)])
        @scope.tune_perm(row=1)
        def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
            out[...] = 1
        return toy
"""


def test_a_closure_is_refused_with_a_clear_word(library: Libraries, child: Child) -> None:
    made = library(FACTORY)
    done = child(TUNE_ONE.format(module=made.__name__).replace("as made", "as made; made.make()"))
    assert "a kernel declared inside a function is no worker's to find" in done.stdout


def test_a_kernel_that_its_module_makes_with_a_function_is_tuned(library: Libraries, child: Child) -> None:
    made = library(FACTORY + "\n    toy = make()\n")
    done = child(TUNE_ONE.format(module=made.__name__))
    assert done.stdout.startswith(" |"), done.stdout + done.stderr


def test_kernels_of_a_session_without_a_file_are_refused_with_a_clear_word(library: Libraries, child: Child) -> None:
    made = library("")
    code = f"import {made.__name__} as lib; from {made.__name__} import *; scope = lib.scope" + dedent(FACTORY)
    done = child(f"{code}\nmake()\n" + dedent(TUNE_ONE.format(module=made.__name__)))
    assert "toy is declared in an interactive session, a notebook or text given to python" in done.stdout, done.stderr


@linux
def test_a_worker_has_limits(child: Child) -> None:
    done = child("""
        from tunegen.harness.limits import limit
        import numpy as np
        limit(1 << 30)
        np.zeros(1 << 20)
        try:
            np.ones(1 << 31)
        except MemoryError:
            print("refused")
    """)
    assert done.stdout == "refused\n", done.stderr


def test_code_is_equal_whatever_its_symbols_are_called(library: Libraries) -> None:
    made = library(BROKEN.replace("[1, 2]", "[1, 2, 3]").replace("toy.ll.j2", "twins.ll.j2"),
                   {"twins.ll.j2": faults.TWINS_TEMPLATE})  # fmt: skip
    spec = made.toy.spec
    codes = [family_code(spec, row, spec.signature.element_types[0], this_box()) for row in spec.grid]
    assert codes[0] == codes[1] != codes[2]


def test_a_variant_may_be_made_for_one_element_type_alone(library: Libraries) -> None:
    """What another element type's code does is no matter of the one that is tuned."""
    made = library(GENERIC, {"generic.ll.j2": '{{ perm.absent if T.name == "f64" }}\n' + TOY_TEMPLATE})
    row = next(iter(made.toy.spec.grid))
    variant = Variant(made.toy.spec, row, (ELEMENT_TYPES["f32"],))
    out = np.zeros(3, np.float32)
    variant(np.zeros(3, np.float32), out)
    assert (out == 1).all()
    with pytest.raises(Declined, match="made for f32 alone"):
        variant(np.zeros(3), np.zeros(3))


def test_a_reference_that_ends_the_process_is_named_as_the_culprit(library: Libraries, child: Child) -> None:
    made = library("""
        import os

        @scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row1; reference")
        @scope.tune_grid(row=[1, 2])
        def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
            os.abort()
    """)
    done = child(TUNE_ONE.format(module=made.__name__))
    assert done.stdout.startswith("the reference itself ended a worker: signal SIGABRT"), done.stdout + done.stderr
