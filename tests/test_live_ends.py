"""However a program ends whose kernels are tuned in the background: the tuner ends with it, and nothing is said."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest
from stage import Stage
from toys import TOY

PROGRAM = """
import os, signal, sys, threading, warnings
# of a fork beside a thread
warnings.simplefilter("ignore", DeprecationWarning)
import tunegen
import {name} as made
tunegen.apply_policy(missing="live")
open("ready").read()
{end}
"""
TUNER = """
import signal, subprocess
from tunegen.harness.limits import end_with_parent
end_with_parent(int(os.environ["TUNE_PARENT"]), signal.SIGTERM)
{deaf}
with open("alive", "w") as alive:
    child = subprocess.Popen(["sleep", "1000"], pass_fds=[alive.fileno()]) if {group} else None
    print("here", file=alive, flush=True)
    open("ready", "w").close()
    while True:
        signal.pause()
"""
LINE = "tuning 1 kernel for this box in the background, with 25 % of a core at most\n"


@pytest.fixture
def stage(tmp_path, tmp_path_factory):
    made = Stage(tmp_path, tmp_path_factory.getbasetemp() / "objects")
    for fifo in ("alive", "ready"):
        os.mkfifo(tmp_path / fifo)
    return made


def ended(stage, end, *, group, deaf=""):
    """Runs a program to its end. Returns its exit code and what it said, when all of its tuner has ended, too."""
    name = stage.make_library(TUNER.replace("{group}", str(group)).replace("{deaf}", deaf), TOY)
    path = stage.folder / "app.py"
    path.write_text(PROGRAM.format(name=name, end=end))
    with subprocess.Popen([sys.executable, path], **stage.pipes) as started, open(stage.folder / "alive") as alive:
        assert alive.readline() == "here\n"
        out, err = started.communicate()
        assert select.select([alive], [], [], 60)[0], "something is left"
        assert alive.read() == ""
    return started.returncode, out + err


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("raise ValueError('no')", 1, "ValueError: no"),
        ("os.kill(os.getpid(), signal.SIGINT)", -2, "KeyboardInterrupt"),
        ("signal.signal(signal.SIGTERM, lambda *_: sys.exit(5)); os.kill(os.getpid(), signal.SIGTERM)", 5, ""),
        ("threading.Thread(target=tunegen.live.wait, args=(0.01,)).start()", 0, ""),
        ("tunegen.live.pause()", 0, ""),
        ("tunegen.live.stop()", 0, ""),
    ],
)
def test_a_program_that_ends_takes_its_tuner_and_all_that_it_started_along(stage, end, code, said):
    returned, heard = ended(stage, end, group=True)
    assert returned == code, heard
    assert heard.startswith(LINE)
    assert said in heard
    assert "tunegen/public" not in heard
    assert heard.count("Traceback") == ("Error" in said or "Interrupt" in said)
    assert stage.remembered == {}, "that was no attempt"


def test_a_tuner_that_does_not_listen_is_killed(stage):
    code, heard = ended(stage, "", group=True, deaf="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    assert (code, heard) == (0, LINE)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("os._exit(4)", 4),
        ("os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("os.kill(os.getpid(), signal.SIGTERM)", -15),
        ("os.abort()", -6),
        ("os.execv(sys.executable, [sys.executable, '-c', 'pass'])", 0),
    ],
)
def test_a_program_that_cannot_say_goodbye_takes_its_tuner_along(stage, end, code):
    assert ended(stage, end, group=False)[0] == code
    (left,) = stage.remembered.values()
    assert (left["tries"], left["ended"]) == (1, False)


def test_the_end_of_a_fork_leaves_the_tuner_of_its_parent_alone(stage):
    end = """
for way in (sys.exit, os._exit):
    if not os.fork():
        way(0)
    os.wait()
print(tunegen.live.status().state, tunegen.live._tuner._process.poll())
"""
    assert ended(stage, end, group=True) == (0, f"tuning None\n{LINE}")
