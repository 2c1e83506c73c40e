"""Policies: what a program does when its kernels are not tuned on this box. Each in a process of its own."""

from __future__ import annotations

import pytest
from toys import TOY, write_library

import tunegen
from tunegen import knobs
from tunegen.errors import KernelNotFound, ScopeNotFound

PROGRAM = """
import tunegen
import {name} as made
@tunegen.tune_policy({options})
def main(word):
    print("started", word)
    return 7
for _ in range({times}):
    print(main("now"))
"""
TUNED = "import {name} as made, tunegen\nprint(bool(tunegen.tune_manifest_set(made.toy, 'row3')))\n"
BOTH = TOY + TOY.replace("def toy", "def tea")


@pytest.fixture
def program(child, tmp_path):
    """Runs a program with a policy: `program(options, TUNE_POLICY=...)`."""

    def run(options, body=TOY, times=1, **environment):
        run.name = write_library(tmp_path / "libraries", body)
        return child(PROGRAM.format(name=run.name, options=options, times=times), **environment)

    return run


def banner(name):
    rule = "=" * 78
    return (
        f"{rule}\nNOT TUNED FOR THIS BOX: 1 kernel\n  toy[f32]: row2 (fallback: no manifest entry)\n"
        f"to tune them, run: tunegen tune {name}\n{rule}\n"
    )


STARTED = "started now\n7\n"


@pytest.mark.parametrize(
    ("options", "environment", "code", "said"),
    [
        ("", {}, 0, False),
        ('missing="fallback"', {}, 0, False),
        ('missing="warn"', {}, 0, True),
        ('missing="error"', {}, 3, True),
        ('missing="error"', {"TUNE_POLICY": "fallback"}, 0, False),
        ('missing="error"', {"TUNE_POLICY": "warn"}, 0, True),
        ('missing="error"', {"TUNE_POLICY": "reference"}, 0, False),
        ("", {"TUNE_POLICY": "error"}, 3, True),
        ('missing="error"', {"TUNE_MODE": "tune"}, 0, False),
        ('missing="error"', {"TUNE_MODE": "test"}, 0, False),
    ],
)
def test_an_untuned_program(program, options, environment, code, said):
    done = program(options, **environment)
    assert done.returncode == code
    assert done.stdout == ("" if code else STARTED)
    assert done.stderr == (banner(program.name) if said else "")


def test_a_warning_comes_once_and_an_error_is_a_system_exit(program):
    done = program('missing="warn"', times=3)
    assert done.stdout == STARTED * 3
    assert done.stderr == banner(program.name)


def test_a_tuned_program_starts_silently(child, tmp_path):
    name = write_library(tmp_path / "libraries")
    assert child(TUNED.format(name=name)).stdout == "True\n"
    done = child(PROGRAM.format(name=name, options='missing="error"', times=1))
    assert (done.returncode, done.stdout, done.stderr) == (0, STARTED, "")


@pytest.mark.parametrize("policy", ["lives", "always"])
def test_a_bad_policy_in_the_environment_is_an_error_that_lists_the_legal_ones(program, policy):
    done = program("", TUNE_POLICY=policy)
    assert done.returncode == 1
    assert f"KnobError: TUNE_POLICY='{policy}': allowed are {', '.join(knobs.POLICIES)}" in done.stderr


@pytest.mark.parametrize("missing", ["reference", "always", ""])
def test_a_program_declares_a_legal_policy(missing):
    for use in (tunegen.tune_policy, tunegen.apply_policy):
        with pytest.raises(ValueError, match=r"declares one of fallback, warn, error, auto, relaunch, restart, live$"):
            use(missing=missing)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_the_time_of_a_tuner_is_a_positive_number(seconds):
    with pytest.raises(ValueError, match=r"timeout_s=.*: allowed is a number of seconds above 0"):
        tunegen.apply_policy(missing="auto", timeout_s=seconds)


def test_demand_is_narrowed_by_scopes_and_kernels(library, capsys):
    one, two = library(BOTH), library()
    assert tunegen.tune_manifest_set(one.tea, "row3")
    tunegen.load()
    tunegen.apply_policy(missing="error", kernels=[f"{one.__name__}:tea"])
    tunegen.apply_policy(missing="error", kernels=["tea"])
    tunegen.apply_policy(missing="error", kernels=[])
    tunegen.apply_policy(missing="error", scopes=[])
    assert capsys.readouterr().err == ""
    with pytest.raises(SystemExit) as caught:
        tunegen.apply_policy(missing="error", scopes=[two.__name__])
    assert caught.value.code == 3
    assert f"run: tunegen tune {two.__name__}\n" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        tunegen.apply_policy(missing="error")
    text = capsys.readouterr().err
    assert "NOT TUNED FOR THIS BOX: 2 kernels" in text
    assert f"run: tunegen tune {one.__name__} {two.__name__}\n" in text


def test_demand_that_does_not_exist_is_an_error_not_a_pass(library):
    library()
    with pytest.raises(ScopeNotFound, match="nowhere"):
        tunegen.apply_policy(missing="error", scopes=["nowhere"])
    with pytest.raises(KernelNotFound, match="'tea'"):
        tunegen.apply_policy(missing="error", kernels=["tea"])


def test_a_program_without_kernels_starts(library, capsys):
    library("")
    tunegen.apply_policy(missing="error")
    assert capsys.readouterr().err == ""


def test_the_policy_is_applied_when_main_runs_and_not_before(library):
    made = library()

    @tunegen.tune_policy(missing="error")
    def main(x: int) -> int:
        """Doubles."""
        return 2 * x

    assert (main.__name__, main.__doc__) == ("main", "Doubles.")
    with pytest.raises(SystemExit):
        main(1)
    assert tunegen.tune_manifest_set(made.toy, "row3")
    tunegen.load()
    assert main(2) == 4
