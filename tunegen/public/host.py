"""What kind of process this is: whether it may tune itself, and whether it can be started again."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from tunegen import knobs

RUNNERS = {
    **dict.fromkeys(("pytest", "_pytest", "unittest", "doctest", "nose2"), "a test"),
    **dict.fromkeys(("sphinx", "mkdocs", "pdoc", "pydoc"), "a documentation build"),
    **dict.fromkeys(("tunegen.harness", "tunegen.cli"), "a tuning program"),
    "joblib.externals.loky.backend": "a worker",
}
"""Packages that run other people's programs, or parts of them, and what such a part is."""
PYTHON = re.compile(r"(?i)(python|pypy)[\w.-]*$")
"""What an interpreter's file is called."""
RELAUNCHED = "tunegen"
"""`-X tunegen` stands on the command line of a process that was started again: unlike a variable, nothing on the way
can lose it.
"""
BACKGROUND = "tunegen-live"
"""The name of the thread that tunes in the background, or takes over what another process finds."""
_marked: list[int] = []


def mark() -> None:
    """Lets everything that this process starts know that it does not have to tune itself."""
    _marked[:] = [os.getpid()]
    knobs.change({knobs.PARENT.name: str(os.getpid())})


def relaunched() -> bool:
    """Whether this process was started again after tuning. It keeps its number then, and so knows its own mark."""
    own = knobs.PARENT.get() == str(os.getpid()) and _marked != [os.getpid()]
    return own or RELAUNCHED in sys._xoptions


def why_not_tuned(*, asked: bool = False) -> str:
    """Why this process does not tune itself, though its policy says so or its user `asked` for it; "" when it does."""
    if relaunched():
        return "it has been started again already"
    parent = knobs.PARENT.get()
    if parent and parent != str(os.getpid()) and not asked:
        return f"it was started by a program that tunes, process {parent}"
    if os.getpid() != knobs.START.process:
        return "it is a fork of the process that imported tunegen"
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        return "it is a worker of another process"
    if knobs.under_pytest():
        return "it is a test, or was started by one"
    what = next((f"it is {what}" for _, what in runners()), "")
    return what or ("" if asked else _child_of_a_runner())


def _child_of_a_runner() -> str:
    """Which runner started this process directly, where the system says how that one was started.

    Pytest, and what tunes, leave a word in the environment of what they start, for which they count alone; others
    leave none.
    """
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return ""
    if not words or PYTHON.match(os.path.basename(os.fsdecode(words[0]))) is None:
        return ""
    kind, value = launched_as([os.fsdecode(word) for word in words])
    module = {"-m": value, "script": os.path.basename(value).partition("-")[0]}.get(kind, "")
    found = [what for package, what in RUNNERS.items() if f"{module}.".startswith(f"{package}.")]
    return f"it was started by {found[0]}" if found and module.partition(".")[0] not in ("pytest", "tunegen") else ""


def runners() -> Iterator[tuple[str, str]]:
    """The packages that run a part of this thread's program, and what such a part is."""
    for module in _callers():
        yield from (found for found in RUNNERS.items() if f"{module}.".startswith(f"{found[0]}."))


def _callers() -> Iterator[str]:
    """The modules of all functions that are being called in this thread, and the one that Python was started with."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back
    yield getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "") or ""


def interpreter() -> str:
    """The Python to start; "" when there is none. A program that embeds Python is none, and its `sys.executable`
    may be the program itself.
    """
    if not embedded():
        return sys.executable
    candidates = (Path(sys.prefix) / "bin" / name for name in ("python3", "python"))
    return next((str(path) for path in candidates if os.access(path, os.X_OK)), "")


def embedded() -> bool:
    """Whether Python runs inside another program, or packed into one."""
    name = os.path.basename(sys.executable or "")
    return not sys.orig_argv or getattr(sys, "frozen", False) or PYTHON.match(name) is None


def why_not_again() -> str:
    """Why this process cannot be replaced by a fresh one that does the same; "" when it can."""
    if not hasattr(os, "execve") or os.name != "posix":
        return "this system cannot replace a process"
    if embedded():
        return "Python is embedded in another program"
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return "it is an interactive session or a notebook"
    if sys.gettrace() is not None or sys.getprofile() is not None:
        return "a debugger or a profiler is at work"
    return _lost_program() or _lost_work()


def _lost_program() -> str:
    """Why the command line of this process does not lead to the same program any more."""
    kind, value = launched_as(sys.orig_argv)
    if kind == "-":
        return "its program text came through standard input"
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""
    moved = "the working directory has changed since it was started"
    if not folder or folder != knobs.START.folder:
        return moved
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if kind == "script" and main is not None:
        script = os.path.realpath(value)
        if not f"{os.path.realpath(main)}{os.sep}".startswith(f"{script}{os.sep}") or not os.path.exists(script):
            return f"{value!r} does not lead to its script, or {moved}"
    # python -m puts the first working directory first
    first = sys.path[0] if sys.path and not sys.flags.safe_path else folder
    if kind == "-m" and main is not None and first != folder and main.startswith(os.path.join(first, "")):
        return moved
    return ""


def launched_as(argv: Sequence[str]) -> tuple[str, str]:
    """How Python was started: ("script", path), ("-m", module), ("-c", text), or ("-", "") for standard input."""
    words = iter(argv[1:])
    for word in words:
        if word == "--":
            word = next(words, "-")
        if not word.startswith("-"):
            return "script", word
        if word == "-":
            break
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                next(words, "")
            continue
        for at, letter in enumerate(word[1:], start=2):
            if letter in "cm":
                return f"-{letter}", word[at:] or next(words, "")
            if letter in "WX":
                if not word[at:]:
                    next(words, "")
                break
    return "-", ""


def _lost_work() -> str:
    """What this process is in the middle of, and what would be lost."""
    import threading

    own = threading.current_thread()
    others = [one.name for one in threading.enumerate() if one is not own and one.name != BACKGROUND]
    if others:
        return f"threads are at work: {', '.join(others)}"
    if _has_children():
        return "it has child processes"
    try:
        kind = os.fstat(0).st_mode
        read_on = stat.S_ISREG(kind) and os.lseek(0, 0, os.SEEK_CUR) != 0
    except OSError:
        return ""
    if read_on or stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind):
        return "what it may have read from standard input would be lost"
    return ""


def _has_children() -> bool:
    if not hasattr(os, "waitid"):
        return False
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def start_again() -> None:
    """Replaces this process by a fresh one with the same command line and number. Raises `OSError` when that fails.

    What waits in the buffers of the standard streams is written first; `atexit` functions do not run.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()
    environment = knobs.child_environment(**{knobs.PARENT.name: str(os.getpid())})
    os.execve(sys.executable, [sys.executable, "-X", RELAUNCHED, *sys.orig_argv[1:]], environment)
