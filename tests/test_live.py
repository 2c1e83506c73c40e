"""The policy live: programs that run at once and are tuned meanwhile, with tuners that wait until they are told."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest
from stage import WINS, Stage
from toys import TOY

import tunegen
from tunegen.public.attempts import Attempt
from tunegen.public.background import Background
from tunegen.public.live import Live

BOTH = TOY + TOY.replace("def toy", "def tea")
PROGRAM = """
import os, sys, threading, time, warnings
# of a fork beside a thread
warnings.simplefilter("ignore", DeprecationWarning)
import numpy as np
import tunegen
from tunegen.public import background, launching
import {name} as made
live = tunegen.live
background.LOOK_S = background.BREATH_S = 0.01
def row(kernel=made.toy):
    return int(kernel(np.ones(1, np.float32))[0])
def until(reached):
    while not reached():
        time.sleep(0.001)
def tell(fifo):
    with open(fifo, "w") as file:
        file.write("now")
def hear(fifo):
    with open(fifo) as file:
        return file.read()
{body}
"""
WAITS = f"open('go').read()\n{WINS}"
FOUND = "assert tunegen.tune_manifest_set('{name}:' + sys.argv[2].partition('[')[0], 'row3')"
ENDS = """
from tunegen.harness.limits import end_with_parent
end_with_parent(int(os.environ['TUNE_PARENT']))
"""
"""As the standard tuner does."""


@pytest.fixture
def stage(tmp_path, tmp_path_factory):
    made = Stage(tmp_path, tmp_path_factory.getbasetemp() / "objects")
    for fifo in ("go", "ready"):
        os.mkfifo(tmp_path / fifo)
    return made


def program(stage, name, body):
    path = stage.folder / "app.py"
    path.write_text(PROGRAM.format(name=name, body=body))
    return path


def live(stage, tuner, body, kernels=TOY, *arguments, **environment):
    """Runs a program whose library has this tuner."""
    return stage.run(program(stage, stage.make_library(tuner, kernels), body), *arguments, **environment)


APPLY = "tunegen.apply_policy(missing='live')\n"
LINE = "tuning 1 kernel for this box in the background, with 25 % of a core at most\n"


def test_a_program_starts_at_once_and_has_the_winner_without_a_new_start(stage):
    body = APPLY + "print(row()); tell('go'); print(live.wait(), row(), live.status())"
    done = live(stage, WAITS, body)
    (name,) = (path.name for path in stage.libraries.iterdir())
    status = f"Status(state='done', key='', tuned=('{name}:toy[f32]',), left=(), problems=())"
    assert (done.stdout, done.stderr) == (f"2\nTrue 3 {status}\n", LINE)
    assert (stage.starts, stage.remembered) == (["--only toy[f32] --noisy-ok"], {})
    again = stage.run(program(stage, name, APPLY + "print(live.wait(), row(), live.status().state)"))
    assert (again.stdout, again.stderr, len(stage.starts)) == ("True 3 off\n", "", 1), "there is nothing to tune"


def test_a_program_that_is_tuned_imports_nothing_of_it(stage):
    name = stage.make_library()
    text = f"import sys, tunegen, {name}\n{APPLY}print([m for m in sys.modules if m[-4:] in ('live', 'ound', 'atic')])"
    assert stage.run("-c", text, TUNE_POLICY="auto").stdout != "[]\n"
    assert stage.run("-c", text).stdout == "[]\n"


def test_kernel_by_kernel(stage):
    """The winner of the first runs while the tuner of the second has not ended."""
    tuner = f"if 'tea' in sys.argv[2]:\n    open('ready', 'w').close(); open('go').read()\n{FOUND}"
    body = (
        APPLY
        + """
hear('ready'); print(row(), row(made.tea), live.status())
tell('go'); live.wait(); print(row(), row(made.tea))
"""
    )
    done = live(stage, tuner, body, BOTH)
    (name,) = (path.name for path in stage.libraries.iterdir())
    status = f"Status(state='tuning', key='{name}:tea[f32]', tuned=('{name}:toy[f32]',), left=('{name}:tea[f32]',), "
    assert done.stdout == f"3 2 {status}problems=())\n3 3\n", done.stderr
    assert stage.starts == ["--only toy[f32] --noisy-ok", "--only tea[f32] --noisy-ok"]


def test_a_pause_ends_the_tuner_and_is_no_attempt(stage):
    tuner = f"""
if not os.path.exists('again'):
    open('ready', 'w').write(str(os.getpid())); open('go').read()
{FOUND}
"""
    body = (
        APPLY
        + """
pid = int(hear('ready'))
live.pause()
print(live.status().state, os.path.exists(f'/proc/{{pid}}'), row())
import glob
print(glob.glob('home/*/*.attempts.json'), live.wait(0.0))
open('again', 'w').close()
live.resume()
print(live.wait(), row(), live.status().state)
live.pause(); live.resume(); live.stop()
print(live.status().state)
""".replace("{{", "{").replace("}}", "}")
    )
    done = live(stage, tuner, body)
    assert done.stdout == "paused False 2\n[] False\nTrue 3 done\ndone\n", done.stderr
    assert len(stage.starts) == 2


def test_a_pause_outlasts_a_tune_at_once_that_it_came_in():
    own = Live()
    with own.aside():
        own.pause()
    assert own._rests
    own.resume()
    with own.aside(), own.aside():
        assert own._rests
    assert not own._rests


def test_what_is_stopped_goes_on_when_a_policy_is_applied_again(stage):
    tuner = f"if not os.path.exists('again'):\n    open('ready', 'w').close(); open('go').read()\n{FOUND}"
    body = (
        APPLY
        + f"""
hear('ready')
live.stop()
print(live.status().state, live.status().left[0][-8:], live.wait(), row())
open('again', 'w').close()
{APPLY}
print(live.wait(), row(), live.status().state)
"""
    )
    done = live(stage, tuner, body)
    assert (done.stdout, done.stderr) == ("stopped toy[f32] True 2\nTrue 3 done\n", LINE * 2)
    assert stage.remembered == {}


def test_off_where_no_policy_started_it():
    assert tunegen.live.status().state == "off"
    tunegen.live.pause()
    tunegen.live.resume()
    tunegen.live.stop()
    assert tunegen.live.wait()
    assert tunegen.live.status().state == "off"


def test_applied_by_many_threads_it_tunes_once_and_what_is_imported_later_is_added(stage):
    other = stage.make_library(FOUND)
    body = f"""
threads = [threading.Thread(target=tunegen.apply_policy, kwargs=dict(missing='live')) for _ in range(8)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
import {other}
{APPLY}
print([thread.name for thread in threading.enumerate()].count('tunegen-live'))
tell('go'); live.wait(); print(row(), row({other}.toy), live.status().problems)
{APPLY}
"""
    done = live(stage, WAITS, body)
    assert done.stdout == "1\n3 3 ()\n", done.stderr
    assert done.stderr.splitlines() == [LINE[:-1], LINE.replace("1 kernel", "2 kernels")[:-1]]
    assert len(stage.starts) == 2


def test_a_load_by_the_program_meanwhile_changes_nothing(stage):
    body = APPLY + "tunegen.load(); print(row()); tell('go'); live.wait(); print(row()); tunegen.load(); print(row())"
    assert live(stage, WAITS, body).stdout == "2\n3\n3\n"


@pytest.mark.parametrize(
    ("tuner", "problem"),
    [
        ("raise ValueError('no luck')", "its tuner failed with exit code 1: ValueError: no luck"),
        ("pass", "no winner was found for tea[f32]"),
        ("os.kill(os.getpid(), 9)", "its tuner was ended by signal 9"),
    ],
)
def test_a_tuner_that_finds_nothing_costs_its_kernel_alone_and_is_remembered(stage, tuner, problem):
    body = APPLY + "live.wait(); print(row(), row(made.tea), live.status().state, *live.status().problems)"
    done = live(stage, f"if 'tea' in sys.argv[2]:\n    {tuner}\nelse:\n    {FOUND}", body, BOTH)
    (name,) = (path.name for path in stage.libraries.iterdir())
    assert done.stdout == f"3 2 done {name}:tea[f32]: {problem}\n", done.stderr
    assert done.stderr == LINE.replace("1 kernel", "2 kernels") + (
        f"not tuned in the background: {name}:tea[f32]: {problem}\n"
    )
    assert list(stage.remembered) == [f"{name}:tea[f32]"]
    again = stage.run("app.py")
    if "signal" in problem:
        assert len(stage.starts) == 3, "another try may find more"
    else:
        assert len(stage.starts) == 2
        assert again.stderr.count("NOT TUNED FOR THIS BOX: 1 kernel") == 1
        assert "tea[f32] is not tried again: " in again.stderr


TIME_IS_OVER = """
def over(process, timeout_s):
    hear('ready')
    print(timeout_s)
    raise launching.subprocess.TimeoutExpired('tuner', timeout_s)
launching._await = over
"""


@pytest.mark.parametrize(("options", "timeout_s"), [("", 7200.0), (", share=0.5", 3600.0), (", timeout_s=77", 77)])
def test_a_tuner_that_hangs_is_ended(stage, options, timeout_s):
    """It has half an hour at full speed, or the time that the program gives it."""
    tuner = "open('ready', 'w').close()\nopen('go').read()"
    body = f"{TIME_IS_OVER}\ntunegen.apply_policy(missing='live'{options})\nlive.wait(); print(row())"
    done = live(stage, tuner, body)
    assert done.stdout == f"{timeout_s}\n2\n", done.stderr
    assert f"its tuner was not ready after {timeout_s:g} s\n" in done.stderr
    assert stage.starts == ["--only toy[f32] --noisy-ok" + (" --budget 69.300s" if timeout_s == 77 else "")]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("os.unlink(made.scope.tuner)", "not tuned in the background: "),
        ("sys.executable = ''; sys.prefix = '/nowhere'", "no Python interpreter was found"),
        ("sys.modules['llvmlite'] = None", "NOT TUNED FOR THIS BOX"),
        ("open('file', 'w').close()", "cannot be written: Not a directory"),
        ("threading.Thread.start = lambda self: 1 / 0", "not tuned in the background: division by zero"),
    ],
)
def test_what_is_absent_never_stops_the_program(stage, change, said):
    change = change.replace("lambda self: 1 / 0", "failing") if "Thread" in change else change
    failing = "def failing(self):\n    raise RuntimeError('division by zero')\n"
    home = {"TUNE_HOME": str(stage.folder / "file" / "home")} if "'file'" in change else {}
    body = f"{failing}{change}\n{APPLY}\nlive.wait(); print(row())"
    done = live(stage, WINS, body, **home)
    assert (done.stdout, done.returncode) == ("-1\n" if "llvmlite" in change else "2\n", 0), done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert stage.starts == []


@pytest.mark.parametrize(
    ("environment", "row", "note"),
    [
        ({"TUNE_MODE": "tune"}, -1, None),
        ({"TUNE_POLICY": "fallback"}, 2, None),
        ({"TUNE_POLICY": "reference"}, -1, None),
        ({"TUNE_MANIFEST": "mine.tune.json"}, 2, "TUNE_MANIFEST says what to use"),
        ({"TUNE_PARENT": "1"}, 2, "it was started by a program that tunes, process 1"),
        ({"PYTEST_CURRENT_TEST": "x"}, 2, "it is a test, or was started by one"),
    ],
)
def test_where_nothing_is_tuned_in_the_background(stage, environment, row, note):
    done = live(stage, WINS, APPLY + "print(row(), live.status().state, threading.active_count())", **environment)
    assert (done.stdout, stage.starts) == (f"{row} off 1\n", []), done.stderr
    assert done.stderr.count("NOT TUNED FOR THIS BOX") == (note is not None)
    assert note is None or f"\nnot tuned automatically: {note}\n" in done.stderr


@pytest.mark.parametrize(
    ("options", "environment", "share"),
    [("", {}, "0.25"), (", share=0.5", {}, "0.5"), (", share=0.5", {"TUNE_SHARE": "10%"}, "0.1")],
)
def test_a_tuner_has_a_share_of_a_core_and_the_lowest_priority(stage, options, environment, share):
    tuner = f"""
open('go').read()
print(os.environ['TUNE_SHARE'], os.getpriority(0, 0), os.sched_getscheduler(0), file=open('how', 'w'))
{WINS}
"""
    body = f"tunegen.apply_policy(missing='live'{options})\nuntil(lambda: live._tuner); tell('go'); live.wait()"
    done = live(stage, tuner, body, **environment)
    assert (stage.folder / "how").read_text() == f"{share} 10 {os.SCHED_BATCH}\n", done.stderr
    assert f"with {100 * float(share):g} % of a core at most\n" in done.stderr


@pytest.mark.parametrize("share", [0, -1, 1.5, float("nan")])
def test_a_share_is_above_0_and_up_to_1(share):
    for use in (tunegen.tune_policy, tunegen.apply_policy):
        with pytest.raises(ValueError, match=r"share=.*: allowed is a number above 0 up to 1, or None"):
            use(missing="live", share=share)


def test_the_environment_asks_for_it_and_a_request_is_tuned_at_once(stage):
    """What is asked for is there when the program starts, and the rest comes later."""
    body = "@tunegen.tune_policy()\ndef main():\n    print(row(), row(made.tea), sys.argv[1:])\n    live.wait()\n"
    body += "    print(row(made.tea))\nmain()"
    tuner = f"if 'tea' in sys.argv[2]:\n    open('go').read()\n{FOUND}"
    body = body.replace("live.wait()", "tell('go'); live.wait()")
    done = live(stage, tuner, body, BOTH, "--", "--tune=toy", "x", TUNE_POLICY="live")
    assert done.stdout == "3 2 ['--', 'x']\n3\n", done.stderr
    assert stage.starts == ["--only toy[f32] --retune", "--only tea[f32] --noisy-ok"]


@pytest.mark.parametrize("policy", ["auto", "relaunch"])
def test_another_policy_afterwards_has_the_tuner_in_the_background_step_aside(stage, policy):
    tuner = f"if '--noisy-ok' in sys.argv:\n    open('ready', 'w').close(); open('go').read()\n{FOUND}"
    body = (
        APPLY
        + f"""
if tunegen.live.status().state != 'off':
    hear('ready')
tunegen.apply_policy(missing={policy!r})
live.wait(); print(row(), live.status().state)
"""
    )
    done = live(stage, tuner, body)
    assert done.stdout == f"3 {'done' if policy == 'auto' else 'off'}\n", done.stderr
    assert "another process is tuning" not in done.stderr
    assert stage.starts == ["--only toy[f32] --noisy-ok", "--only toy[f32]"]


def test_an_error_that_nobody_foresaw_is_said_and_the_program_goes_on(stage):
    body = f"background.Background._round = lambda self: 1 / 0\n{APPLY}live.wait(); print(row(), live.status().state)"
    done = live(stage, WINS, body)
    assert done.stdout == "2 failed\n", done.stderr
    assert "toy[f32]: ZeroDivisionError: division by zero\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("how", ["sys.stderr = None", "sys.stderr.close()", "os.close(2)"])
def test_a_program_without_stderr(stage, how):
    tuner = f"if 'tea' in sys.argv[2]:\n    sys.exit(1)\n{FOUND}"
    done = live(stage, tuner, f"{how}\n{APPLY}live.wait(); print(row(), row(made.tea))", BOTH)
    assert done.stdout == "3 2\n"


def test_a_kernel_whose_program_ended_each_time_lets_others_go_first(stage):
    """A program that is killed while it tunes has tried. Twenty of those, and the first kernel would be given up."""
    name = stage.make_library(f"{ENDS}open('ready', 'w').close(); open('go').read()", BOTH)
    path = program(stage, name, APPLY + "hear('ready'); os.kill(os.getpid(), 9)")
    for _ in range(4):
        stage.run(path)
    assert stage.starts == [f"--only {kernel}[f32] --noisy-ok" for kernel in ("toy", "tea", "toy", "tea")]


@pytest.mark.parametrize(
    ("attempt", "over", "in_the_background"),
    [
        (Attempt("d", 3), True, False),
        (Attempt("d", 19), True, False),
        (Attempt("d", 20), True, True),
        (Attempt("d", 3, reason="its tuner was not ready after 9 s"), True, True),
        (Attempt("d", 1, ended=True, reason="no winner was found"), True, True),
        (Attempt("d", 2), False, False),
    ],
)
def test_a_program_that_was_killed_is_no_reason_to_give_a_kernel_up_in_the_background(attempt, over, in_the_background):
    assert attempt.over() == over
    assert attempt.over(background=True) == in_the_background


def test_a_program_that_ignores_the_end_of_children_takes_no_try_for_the_last(stage):
    body = "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n" + APPLY + "live.wait(); print(row())"
    assert live(stage, "os.kill(os.getpid(), 9)", body).stdout == "2\n"
    (attempt,) = stage.remembered.values()
    assert (attempt["tries"], attempt["ended"]) == (1, False)


ABOUT_TO_END = """
start = threading.Thread.start
def ending(thread):
    if thread.name == "tunegen-tuner":
        live._stopped = True
        live._tuner.stop(1.0)
        raise RuntimeError("can't create new thread at interpreter shutdown")
    start(thread)
threading.Thread.start = ending
"""


def test_a_tuner_that_was_started_when_the_program_ended_was_no_try(stage):
    """CPython 3.12 begins no thread then."""
    done = live(stage, "open('go').read()", f"{ABOUT_TO_END}{APPLY}live.wait(); print(live.status().problems)")
    assert (done.stdout, done.stderr, stage.remembered) == ("()\n", LINE, {})


def test_where_no_thread_can_be_started_nothing_is_said_to_go_on(stage):
    failing = "def failing(self):\n    raise RuntimeError('no')\nthreading.Thread.start = failing\n"
    done = live(stage, WINS, f"{failing}{APPLY}print(live.status().state, live.wait())")
    assert done.stdout == "off True\n", done.stderr


def test_what_a_tuner_leaves_behind_ends_with_it(stage):
    fifo = stage.folder / "alive"
    os.mkfifo(fifo)
    left = "subprocess.Popen(['sleep', '1000'], pass_fds=[alive.fileno()])"
    tuner = f"import subprocess\nwith open('alive', 'w') as alive:\n    {left}\n{FOUND}"
    alive = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    try:
        done = live(stage, tuner, f"{APPLY}live.wait(); print(row())")
        assert done.stdout == "3\n", done.stderr
        assert select.select([alive], [], [], 60)[0], "something is left"
    finally:
        os.close(alive)


def test_a_background_of_nothing_ends_at_once():
    assert Background().begin([], 0.25, None) == (0, False, ())


SECOND = """
if sys.argv[1:]:
    until(lambda: live.status().state == 'waiting'); print(row(), flush=True); sys.stdin.readline()
live.wait(); print(row(), live.status().state)
"""


@pytest.mark.parametrize("gone", [False, True])
def test_a_second_process_follows_the_first_and_takes_its_turn_when_that_is_gone(stage, gone):
    tuner = f"{ENDS}if not os.path.exists('again'):\n    open('ready', 'w').close(); open('go').read()\n{FOUND}"
    path = program(stage, stage.make_library(tuner), APPLY + SECOND)
    pipes = {**stage.pipes, "stdin": subprocess.PIPE}
    with subprocess.Popen([sys.executable, path], **stage.pipes) as one:
        (stage.folder / "ready").read_text()
        with subprocess.Popen([sys.executable, path, "two"], **pipes) as two:
            assert two.stdout is not None
            assert two.stdout.readline() == "2\n"
            if gone:
                (stage.folder / "again").touch()
                one.kill()
            else:
                (stage.folder / "go").write_text("now")
            assert two.communicate("\n")[0] == "3 done\n"
        assert one.communicate()[0] == ("" if gone else "3 done\n")
    assert len(stage.starts) == 1 + gone


def test_forks_follow_and_never_tune(stage):
    """A fork that ends has nothing to do with the tuner of its parent."""
    body = (
        APPLY
        + """
hear('ready')
if not os.fork():
    sys.exit()
os.wait()
if not os.fork():
    tunegen.apply_policy(missing='live')
    print(live.status().state, row(), flush=True)
    tell('go'); live.wait(); print('child', row(), live.status().state, flush=True)
    sys.exit()
live.wait(); os.wait(); print('parent', row())
"""
    )
    done = live(stage, f"open('ready', 'w').close(); {WAITS}", body)
    assert done.stdout == "waiting 2\nchild 3 done\nparent 3\n", done.stderr
    assert (done.stderr, len(stage.starts)) == (LINE, 1)


@pytest.fixture
def last_try(stage):
    """A library whose kernel has one try left. Its tuner says when it has started."""
    tuner = f"if not os.path.exists('again'):\n    os.kill(os.getpid(), 9)\nopen('ready', 'w').close(); {WAITS}"
    name = stage.make_library(tuner)
    path = program(stage, name, f"{APPLY}live.wait()")
    for _ in range(2):
        stage.run(path)
    (attempt,) = stage.remembered.values()
    assert attempt["tries"] == 2
    (stage.folder / "again").touch()
    return name


def test_a_fork_follows_the_last_try_to_its_end(stage, last_try):
    body = (
        APPLY
        + """
hear('ready')
child = os.fork()
if not child:
    looks, look = [], live._take_over
    live._take_over = lambda: looks.append(look())
    until(lambda: len(looks) > 1)
    print(live.status().state, flush=True)
    tell('go'); live.wait(); print(row(), flush=True); os._exit(0)
live.wait(); os.waitpid(child, 0)
"""
    )
    done = stage.run(program(stage, last_try, body))
    assert done.stdout == "waiting\n3\n", done.stderr


def test_who_starts_during_the_last_try_waits_for_it(stage, last_try):
    """Applied again by the program that tunes, the policy has nothing new to say."""
    body = f"{APPLY}if not sys.argv[1:]:\n    hear('ready'); {APPLY}    print('go on', flush=True)\n{SECOND}"
    path = program(stage, last_try, body)
    pipes = {**stage.pipes, "stdin": subprocess.PIPE}
    with subprocess.Popen([sys.executable, path], **stage.pipes) as one:
        assert one.stdout is not None
        assert one.stdout.readline() == "go on\n"
        with subprocess.Popen([sys.executable, path, "two"], **pipes) as two:
            assert two.stdout is not None
            assert two.stdout.readline() == "2\n"
            (stage.folder / "go").write_text("now")
            assert two.communicate("\n") == ("3 done\n", LINE)
        assert one.communicate() == ("3 done\n", LINE)


def test_a_fork_gives_up_what_its_parent_gives_up(stage):
    body = (
        APPLY
        + """
child = os.fork()
if not child:
    live.wait(); print(row(), live.status().state, *live.status().problems, flush=True); sys.exit()
tell('go'); os.waitpid(child, 0)
"""
    )
    done = live(stage, "open('go').read()", body)
    (name,) = (path.name for path in stage.libraries.iterdir())
    assert done.stdout == f"2 done {name}:toy[f32]: no winner was found\n", done.stderr


def test_forks_and_calls_go_on_while_kernels_are_tuned_and_swapped(stage):
    """A fork never finds a lock that a thread holds which it does not have."""
    body = """
import signal
signal.alarm(100)
sys.setswitchinterval(1e-5)
tunegen.apply_policy(missing='live')
while live.status().left:
    child = os.fork()
    if not child:
        assert row() in (2, 3) and row(made.tea) in (2, 3)
        with tunegen.session() as session:
            session.bind(made.toy)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
live.wait(); print(row(), row(made.tea))
"""
    done = live(stage, FOUND, body, BOTH)
    assert (done.stdout, done.returncode) == ("3 3\n", 0), done.stderr


REAL = TOY.replace("out[...] = -1", "out[...] = 3")
HARNESS = "from tunegen.harness.tuner import main\nmain('{name}', [*sys.argv[1:], '--effort', 'quick'])"


def test_a_real_tune_in_the_background(stage):
    """One row of the kernel is right, and so the winner."""
    done = live(stage, HARNESS, APPLY + "live.wait(); print(row(), live.status().problems)", REAL, TUNE_SHARE="100%")
    assert done.stdout == "3 ()\n", done.stderr
