"""Hosts: which processes may tune themselves, and which can be started again with nothing lost. In child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tunegen.public.host import launched_as, why_not_tuned

FREE = {"PYTEST_CURRENT_TEST": ""}
"""What a test starts knows that, and would not tune."""


def test_a_test_does_not_tune():
    assert why_not_tuned() == "it is a test, or was started by one"
    assert why_not_tuned(asked=True) == "it is a test, or was started by one"


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("", ("-", "")),
        ("-", ("-", "")),
        ("- a", ("-", "")),
        ("-i", ("-", "")),
        ("-X dev -W ignore x.py a", ("script", "x.py")),
        ("-Xdev -Wignore -bb x.py -c", ("script", "x.py")),
        ("--check-hash-based-pycs always x.py", ("script", "x.py")),
        ("-- x.py", ("script", "x.py")),
        ("-m pkg.app -- --tune", ("-m", "pkg.app")),
        ("-Bm pkg", ("-m", "pkg")),
        ("-Bcpass a", ("-c", "pass")),
        ("-P -c pass", ("-c", "pass")),
    ],
)
def test_how_python_was_started(arguments, found):
    assert launched_as(["python", *arguments.split()]) == found


KINDS = """
import multiprocessing, os, sys, unittest
from tunegen import knobs
from tunegen.public.host import mark, relaunched, why_not_tuned

def called_by(module, **given):
    names = {"f": why_not_tuned, "__name__": module, "given": given}
    exec("def call(): return f(**given)", names)
    return names["call"]()

def in_a_fork():
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, why_not_tuned(asked=True).encode())
        os._exit(0)
    os.wait()
    return os.read(reading, 1000).decode()

def worker(_):
    return why_not_tuned(asked=True)

class Case(unittest.TestCase):
    def runTest(self):
        print("unittest:", why_not_tuned())

if __name__ == "__main__":
    print("plain:", why_not_tuned())
    for module in ("sphinx.ext.autodoc.importer", "unittest_like", "tunegen.harness.worker", "tunegen.cli.tune"):
        print(module + ":", called_by(module, asked=True))
    print("fork:", in_a_fork())
    unittest.TextTestRunner(stream=open(os.devnull, "w")).run(Case())
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print("spawn:", pool.map(worker, [0])[0])
    knobs.change({"TUNE_PARENT": "1"})
    print("child:", why_not_tuned())
    print("asked child:", why_not_tuned(asked=True))
    knobs.change({"TUNE_PARENT": str(os.getpid())})
    print("own number:", why_not_tuned(asked=True), relaunched())
    mark()
    print("marked:", why_not_tuned(), relaunched())
    print("its fork:", in_a_fork())
    for text in ("0", "-1", "999999999999999999999", "\\udcff"):
        knobs.change({"TUNE_PARENT": text})
        assert why_not_tuned().startswith("it was started by a program that tunes"), text
"""


def test_which_processes_tune_themselves(tmp_path):
    program = tmp_path / "kinds.py"
    program.write_text(KINDS)
    done = subprocess.run([sys.executable, str(program)], env={**os.environ, **FREE}, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "plain: ",
        "sphinx.ext.autodoc.importer: it is a documentation build",
        "unittest_like: ",
        "tunegen.harness.worker: it is a tuning program",
        "tunegen.cli.tune: it is a tuning program",
        "fork: it is a fork of the process that imported tunegen",
        "unittest: it is a test",
        "spawn: it is a worker of another process",
        "child: it was started by a program that tunes, process 1",
        "asked child: ",
        "own number: it has been started again already True",
        "marked:  False",
        "its fork: it is a fork of the process that imported tunegen",
    ]


RUN = "import subprocess, sys; subprocess.run([sys.executable, 'program.py', *{arguments}], check=True)"
RUNNERS = {
    "a script": (["run.py"], RUN),
    "unittest": (
        ["-m", "unittest", "it"],
        f"import unittest\nclass Case(unittest.TestCase):\n  def test(self):\n    {RUN}",
    ),
    "doctest": (["-m", "doctest", "it.py"], f"'''\n>>> {RUN}\n'''"),
    "nose2": (["nose2"], RUN),
    "sphinx": (["sphinx-build", "docs"], RUN),
    "pytest, which would have said so": (["pytest"], RUN),
}
MEANT = {"unittest": "a test", "doctest": "a test", "nose2": "a test", "sphinx": "a documentation build"}


@pytest.mark.skipif(sys.platform != "linux", reason="how a process was started is read from /proc")
@pytest.mark.parametrize("arguments", [[], ["asked"]])
@pytest.mark.parametrize("runner", RUNNERS)
def test_what_a_runner_starts_does_not_tune_unless_it_is_asked_to(tmp_path, runner, arguments):
    command, text = RUNNERS[runner]
    for file in {command[0], "it.py"} - {"-m"}:
        (tmp_path / file).write_text(text.format(arguments=arguments))
    (tmp_path / "program.py").write_text(
        "import sys\nfrom tunegen.public.host import why_not_tuned\n"
        "open('said', 'w').write(why_not_tuned(asked='asked' in sys.argv))"
    )
    done = subprocess.run([sys.executable, *command], env={**os.environ, **FREE}, cwd=tmp_path, capture_output=True)
    said = f"it was started by {MEANT[runner]}" if runner in MEANT and not arguments else ""
    assert (tmp_path / "said").read_text() == said, done.stderr


AGAIN = """
import os, sys
import tunegen
from tunegen.public import host
file = os.environ["STARTS"]
with open(file, "a") as starts:
    print(os.getpid(), [os.fsencode(a) for a in sys.argv], [os.getcwdb()], host.why_not_tuned(asked=True), file=starts)
if not host.relaunched():
    print("lost?", end="")
    assert host.why_not_again() == "", host.why_not_again()
    host.start_again()
print("running")
"""
ODD = ["a b", "new\nline", b"\xff\xfe", "", "--", "-c", "ünï", "$HOME;`id`"]


@pytest.mark.parametrize("host", ["script", "relative", "options", "module", "folder", "console", "text"])
def test_a_process_is_started_again_once_as_it_was(tmp_path, host):
    """With its arguments byte for byte, its number and its folder; what was printed is not lost."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/odd \n \xff"))
    (folder / "pkg").mkdir(parents=True)
    for name in ("app.py", "pkg/__init__.py", "pkg/__main__.py"):
        (folder / name).write_text(AGAIN if name != "pkg/__init__.py" else "")
    console = folder / "console app"
    console.write_text(f"#!{sys.executable}\n{AGAIN}")
    console.chmod(0o755)
    command = {
        "script": [sys.executable, folder / "app.py"],
        "relative": [sys.executable, "-bb", "./app.py"],
        "options": [sys.executable, "-X", "dev", "-Wignore", "-I", folder / "app.py"],
        "module": [sys.executable, "-m", "pkg"],
        "folder": [sys.executable, "pkg"],
        "console": [console],
        "text": [sys.executable, "-c", AGAIN],
    }[host]
    starts = tmp_path / "starts"
    done = subprocess.run(
        [*command, *ODD], cwd=folder, env={**os.environ, **FREE, "STARTS": str(starts)}, stdin=subprocess.DEVNULL,
        capture_output=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"lost?running\n", b"")
    first, second = starts.read_bytes().decode(errors="surrogateescape").splitlines()
    assert second == f"{first.rstrip()} it has been started again already"
    assert all(repr(os.fsencode(word)) in first for word in ODD)


def test_it_is_not_started_a_third_time_when_the_environment_is_lost(tmp_path):
    program = tmp_path / "app.py"
    program.write_text(AGAIN.replace("if not", "os.environ.pop('TUNE_PARENT', None)\nif not"))
    environment = {**os.environ, **FREE, "STARTS": str(tmp_path / "starts")}
    done = subprocess.run([sys.executable, program], env=environment, stdin=subprocess.DEVNULL, capture_output=True)
    assert done.stdout == b"lost?running\n"
    assert len((tmp_path / "starts").read_text().splitlines()) == 2


WHY = "from tunegen.public import host\nprint(host.why_not_again())\n"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import threading\nthreading.Thread(target=threading.Event().wait, name='tick', daemon=True).start()",
         "threads are at work: tick"),
        ("import subprocess, sys\nc = subprocess.Popen(['cat'], stdin=subprocess.PIPE)", "it has child processes"),
        ("import os, tunegen\nos.chdir('/')", "the working directory has changed since it was started"),
        ("import os\nos.chdir('/')\nimport tunegen", "'./app.py' does not lead to its script"),
        ("import sys\nsys.ps1 = '>>> '", "it is an interactive session or a notebook"),
        ("import sys\nsys.settrace(lambda *a: None)", "a debugger or a profiler is at work"),
        ("import sys\nsys.executable = '/usr/sbin/uwsgi'", "Python is embedded in another program"),
        ("import sys\nsys.executable = ''", "Python is embedded in another program"),
        ("import sys\nsys.frozen = True", "Python is embedded in another program"),
        ("import sys\nsys.orig_argv = []", "Python is embedded in another program"),
        ("import sys\nnext(sys.stdin)", "what it may have read from standard input would be lost"),
    ],
)  # fmt: skip
def test_what_cannot_be_started_again(tmp_path, code, reason):
    (tmp_path / "app.py").write_text(f"{code}\n{WHY}")
    with (tmp_path / "app.py").open() as stdin:
        done = subprocess.run([sys.executable, "./app.py"], cwd=tmp_path, stdin=stdin, capture_output=True, text=True)
    assert done.stdout.startswith(reason), done
    assert done.returncode in (0, -signal.SIGTERM)


@pytest.mark.parametrize(
    ("arguments", "text", "reason"),
    [
        (["-"], WHY, "its program text came through standard input"),
        ([], WHY, "its program text came through standard input"),
        (["-c", WHY], "data", "what it may have read from standard input would be lost"),
    ],
)
def test_what_came_through_a_pipe_cannot_come_again(arguments, text, reason):
    done = subprocess.run([sys.executable, *arguments], input=text, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{reason}\n", "")


def test_an_embedding_program_is_no_interpreter_but_one_is_found_beside_it():
    code = "import sys\nfrom tunegen.public.host import interpreter\nsys.executable = '/bin/true'\nprint(interpreter())"
    done = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).name.startswith("python")
