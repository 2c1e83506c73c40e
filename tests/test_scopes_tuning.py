"""Programs with several scopes that tune: one tuner after the other, and one that fails costs the others nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stage import WINS, Stage

BOTH = """
import sys
import numpy as np
import tunegen
import {one} as one, {two} as two
@tunegen.tune_policy({options})
def main():
    rows = [int(made.toy(np.ones(1, np.float32))[0]) for made in (one, two)]
    print(*rows, sys.argv[1:])
if __name__ == "__main__":
    main()
"""
FAILS = "raise ValueError('no luck')"


class Both(Stage):
    """A stage with two libraries, whose tuners say who they are when they start."""

    def libraries_with(self, first: str = WINS, second: str = WINS) -> None:
        self.one, self.two = self.make_library(first), self.make_library(second)

    def tuner(self, name: str, body: str) -> None:
        super().tuner(name, f"open({str(self.folder / 'names.log')!r}, 'a').write('{name} ')\n{body}")

    def application(self, options: str) -> Path:
        path = self.folder / "app.py"
        path.write_text(BOTH.format(one=self.one, two=self.two, options=options.format(one=self.one, two=self.two)))
        return path

    @property
    def started(self) -> list[str]:
        """Whose tuners were started, in order."""
        log = self.folder / "names.log"
        return [{self.one: "one", self.two: "two"}[name] for name in log.read_text().split()] if log.exists() else []


@pytest.fixture
def both(tmp_path, tmp_path_factory):
    return Both(tmp_path, tmp_path_factory.getbasetemp() / "objects")


@pytest.mark.parametrize(("first", "second", "rows"), [(FAILS, WINS, "2 3"), (WINS, FAILS, "3 2"), (WINS, WINS, "3 3")])
def test_auto_tunes_one_after_the_other_and_one_that_fails_costs_the_other_nothing(both, first, second, rows):
    both.libraries_with(first, second)
    program = both.application('missing="auto"')
    failing = [name for name, body in ((both.one, first), (both.two, second)) if body == FAILS]
    for start in range(2):
        done = both.run(program)
        assert (done.returncode, done.stdout) == (0, f"{rows} []\n"), done.stderr
        assert both.started == ["one", "two"], "the one that failed is not tried again, and the other is tuned"
        for name in failing:
            assert "NOT TUNED FOR THIS BOX: 1 kernel\n  toy[f32]: row2" in done.stderr
            assert f"to tune them, run: tunegen tune {name}\n" in done.stderr
            assert ("not tried again" if start else f"{name}: its tuner failed with exit code 1") in done.stderr
    assert [key.partition(":")[0] for key in both.remembered] == failing


def test_relaunch_starts_again_once_when_one_of_two_tuners_fails(both):
    both.libraries_with(FAILS, WINS)
    done = both.run(both.application('missing="relaunch"'), "a b")
    assert (done.returncode, done.stdout, both.started) == (0, "2 3 ['a b']\n", ["one", "two"]), done.stderr
    assert done.stderr.count("starting again") == 1


@pytest.mark.parametrize(("first", "second", "rows"), [(FAILS, WINS, "2 3"), (WINS, FAILS, "3 2")])
def test_live_tunes_what_it_can_when_one_of_two_tuners_fails(both, first, second, rows):
    both.libraries_with(first, second)
    program = both.application('missing="live"')
    program.write_text(program.read_text().replace("    rows =", "    tunegen.live.wait()\n    rows ="))
    done = both.run(program)
    assert (done.returncode, done.stdout, both.started) == (0, f"{rows} []\n", ["one", "two"]), done.stderr
    failing = both.one if first == FAILS else both.two
    assert f"{failing}:toy[f32]: its tuner failed with exit code 1" in done.stderr


@pytest.mark.parametrize(("policy", "code"), [("warn", 0), ("error", 3)])
def test_the_banner_names_the_kernels_of_both_and_the_command_for_both(both, policy, code):
    both.libraries_with()
    done = both.run(both.application(f'missing="{policy}"'))
    assert done.returncode == code
    assert f"  {both.one}:toy[f32]: row2" in done.stderr
    assert f"  {both.two}:toy[f32]: row2" in done.stderr
    assert f"run: tunegen tune {both.one} {both.two}\n" in done.stderr


@pytest.mark.parametrize(
    "options",
    ['missing="auto", scopes=["{two}"]', 'missing="auto", kernels=["{two}:toy"]',
     'missing="auto", scopes=["{two}"], kernels=["toy[f32]"]'],
)  # fmt: skip
def test_a_demand_that_is_narrowed_to_one_is_met_by_its_tuner_alone(both, options):
    both.libraries_with(FAILS, WINS)
    done = both.run(both.application(options))
    assert (done.stdout, both.started) == ("2 3 []\n", ["two"]), done.stderr
    assert "NOT TUNED" not in done.stderr
    assert both.run(both.application(options)).stderr == ""


def test_what_is_asked_for_on_the_command_line_may_be_of_one(both):
    both.libraries_with()
    done = both.run(both.application(""), "--", f"--tune={both.two}:toy")
    assert (done.stdout, both.started) == ("2 3 []\n", ["two"]), done.stderr
    done = both.run(both.application(""), "--", "--tune=toy")
    assert done.returncode == 2
    assert "toy is ambiguous" in done.stderr


def test_what_was_tried_of_one_stays_known_when_the_other_changes(both):
    """Both are in the manifest of an application, and so in one file of attempts."""
    both.libraries_with(FAILS, FAILS)
    program = both.application('missing="auto"')
    program.write_text(program.read_text().replace("@tunegen", "tunegen.tune_manifest('app', 'here')\n@tunegen", 1))
    assert both.run(program).stdout == "2 2 []\n"
    both.tuner(both.one, WINS)
    done = both.run(program)
    assert (done.stdout, both.started) == ("3 2 []\n", ["one", "two", "one"]), done.stderr
    (manifest,) = (both.folder / "here").glob("app-*.tune.json")
    assert json.loads(manifest.read_text())["scopes"].keys() == {both.one}
    (remembered,) = (both.folder / "here").glob("*.attempts.json")
    assert [*json.loads(remembered.read_text())] == [f"{both.two}:toy[f32]"]


def test_the_command_tunes_several_and_one_that_fails_is_said_in_the_exit_code(both):
    both.libraries_with(FAILS, WINS)
    done = both.run("-m", "tunegen", "tune", both.one, both.two)
    assert (done.returncode, both.started) == (1, ["one", "two"]), done.stderr
    assert f"{both.two}:toy[f32]" in done.stdout
    assert f"to tune the rest, run: tunegen tune {both.one}\n" in done.stdout
    done = both.run("-m", "tunegen", "status", both.two, "--json")
    (row,) = json.loads(done.stdout)["kernels"]
    assert (row["scope"], row["emitted"]) == (both.two, "row3")
    done = both.run("-m", "tunegen", "status", both.one, both.two, "--json")
    assert [row["tuned"] for row in json.loads(done.stdout)["kernels"]] == [False, True]
