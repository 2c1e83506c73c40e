"""A stampede: processes that tune, write, read and are killed at random, on one manifest and one object cache.

    python -m tunegen.harness.stampede --seconds 120 --processes 16

Each process says what it is about to write, and again when the write was acknowledged. Afterwards the manifest has to
be valid and to hold, for each process, the last value that was acknowledged, or a later one that a kill kept from being
acknowledged. No process may ever read a manifest that is not whole, or call a kernel that answers wrongly, and the
object cache has to be sound. The manifest and the cache of the box are not touched.
"""

from __future__ import annotations

import argparse
import os
import random
import selectors
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from tunegen import knobs
from tunegen.box import information, this_box
from tunegen.choosing import store
from tunegen.choosing.document import Entry
from tunegen.choosing.values import base_of
from tunegen.errors import StoreError
from tunegen.harness.measure import now_s
from tunegen.making import upkeep
from tunegen.making.cache import ObjectCache
from tunegen.public.record import tune_manifest_set

MODULE = "tunegen.harness.stampede"
NAME = "stampeding"
ROWS = 8
KILLED_PER_WORD = 0.05
"""How likely each word of a process is to cost some process its life."""
WAIT_S = 1.0

TEMPLATE = """\
define void @{{ symbol }}(ptr %out, i64 %N, ptr %scratch) {
  %any = icmp sgt i64 %N, 0
  br i1 %any, label %write, label %done
write:
  store float {{ hexf(perm.row, "f32") }}, ptr %out
  br label %done
done:
  ret void
}
"""
HEADER = """\
from tunegen import Out, bitwise, case, f32, tune_scope
scope = tune_scope(name=__name__, templates="templates")
"""
KERNEL = """
@scope.tune(gen="row.ll.j2", gate=bitwise(), cases=[case("one", N=1)], fallback="row1; reference")
{parameters}@scope.tune_grid(row=list(range(1, {rows} + 1)))
def {name}(out: Out[f32, "N"]) -> None:
    out[...] = 1
"""


class Word(msgspec.Struct, frozen=True):
    """What a process says: it tries to write the number `n` as a winner or a value, did so, was refused, or read."""

    what: str
    kind: str = ""
    n: int = 0
    text: str = ""


def write_library(folder: Path, processes: int) -> None:
    """A library with a kernel for each process, and one with a parameter for each."""
    (folder / NAME / "templates").mkdir(parents=True)
    (folder / NAME / "templates" / "row.ll.j2").write_text(TEMPLATE, encoding="utf-8")
    one = '@scope.tune_param("v{}", default=0, minimum=0, maximum=1 << 40, doc="A number.")\n'
    shared = "".join(one.format(i) for i in range(processes))
    kernels = [KERNEL.format(parameters="", rows=ROWS, name=f"k{i}") for i in range(processes)]
    kernels.append(KERNEL.format(parameters=shared, rows=ROWS, name="shared"))
    (folder / NAME / "__init__.py").write_text(HEADER + "".join(kernels), encoding="utf-8")


def suffix(n: int) -> str:
    """The winner that stands for a number: two that follow each other differ."""
    return f"row{n % ROWS + 1}"


def work(slot: int, first: int, seed: int) -> None:
    """What a process does until it is killed: it tunes, writes, reads and calls, in random order."""
    rng, library, output = random.Random(seed), import_module(NAME), os.dup(1)
    kernel, shared = getattr(library, f"k{slot}"), library.shared.spec
    schema, key = shared.schema, shared.tuning_key(shared.signature.element_types[0])
    path = Path(store_path())

    def say(word: Word) -> None:
        os.write(output, msgspec.json.encode(word) + b"\n")

    def read() -> None:
        found = store.read(path)
        kernel.reload()
        out = np.zeros(1, np.float32)
        kernel(out)
        whole = found.status in ("loaded", "not_found") and 1 <= out[0] <= ROWS
        say(Word("read" if whole else "bad", text=f"{found.status} {found.problem}, the call gave {out[0]}"))

    for n in count(first):
        for kind in rng.sample(("winner", "value", "read"), 3):
            if kind == "read":
                read()
                continue
            say(Word("try", kind, n))
            try:
                if kind == "winner":
                    written = tune_manifest_set(kernel, suffix(n))
                    refused = "" if written else written.reason
                else:
                    store.set_values(path, this_box(), information(), key, lambda entries, n=n: schema.completed(  # type: ignore[misc]
                        {f"v{slot}": n}, base_of(entries, key, schema)))  # fmt: skip
                    refused = ""
            except StoreError as error:
                refused = str(error)
            say(Word("refused" if refused else "done", kind, n, refused))


def store_path() -> str:
    """The manifest that all write."""
    return str(knobs.MANIFEST.get())


class Slot:
    """One of the processes: who runs now, and what all that ran so far said."""

    def __init__(self, number: int, folder: Path, rng: random.Random) -> None:
        self.number = number
        self.folder = folder
        self.rng = rng
        self.tried: dict[str, list[int]] = {"winner": [], "value": []}
        self.done: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.start()

    def start(self) -> None:
        """Starts the next process."""
        first = max((n for tried in self.tried.values() for n in tried), default=0) + 1
        arguments = ["--worker", str(self.number), "--first", str(first), "--seed", str(self.rng.randrange(1 << 30))]
        environment = knobs.child_environment(
            TUNE_MANIFEST=str(self.folder / "one.tune.json"), TUNE_HOME=str(self.folder / "home"),
            TUNE_CACHE=str(self.folder / "cache"), TUNE_CACHE_LIMIT="64k",
            PYTHONPATH=os.pathsep.join([str(self.folder), *(p for p in sys.path if p)]),
        )  # fmt: skip
        with (self.folder / f"errors-{self.number}").open("ab") as errors:
            self.process = subprocess.Popen([sys.executable, "-P", "-m", MODULE, *arguments], stdout=subprocess.PIPE,
                                            stderr=errors, env=environment, bufsize=0)  # fmt: skip

    @property
    def pipe(self) -> IO[bytes]:
        """Where the process speaks."""
        assert self.process.stdout is not None
        return self.process.stdout

    def hear(self, line: bytes) -> None:
        """Takes note of a word; a kill may have cut the last one off, which was not said then."""
        try:
            word = msgspec.json.decode(line, type=Word)
        except msgspec.DecodeError:
            return
        self.counts[word.what] += 1
        if word.what == "try":
            self.tried[word.kind].append(word.n)
        elif word.what == "done":
            self.done[word.kind] = word.n
        elif word.what == "bad":
            self.problems.append(f"process {self.number} read {word.text}")

    def end(self) -> None:
        """Kills the process, and hears what it said before."""
        if self.process.poll() is not None:
            self.problems.append(f"process {self.number} ended by itself with exit code {self.process.returncode}")
        self.process.kill()
        for line in self.pipe.read().splitlines():
            self.hear(line)
        self.process.wait()
        self.pipe.close()

    def lost(self, found: dict[str, Any]) -> Iterator[str]:
        """Acknowledged writes that `found`, by kind, does not have."""
        for kind, done in self.done.items():
            allowed = [n for n in self.tried[kind] if n >= done]
            if found.get(kind) not in [suffix(n) if kind == "winner" else n for n in allowed]:
                yield f"process {self.number}: {kind} {done} was acknowledged, and {found.get(kind)} is there"


def stampede(folder: Path, processes: int, seconds: float | None, writes: int | None, seed: int) -> dict[str, Any]:
    """Lets `processes` loose for some time, or until so many writes were acknowledged, and examines what is left."""
    rng = random.Random(seed)
    write_library(folder, processes)
    slots = [Slot(number, folder, rng) for number in range(processes)]
    end_s, kills = now_s() + seconds if seconds is not None else None, 0
    with selectors.DefaultSelector() as waiting:
        for slot in slots:
            waiting.register(slot.pipe, selectors.EVENT_READ, slot)
        while (end_s is None or now_s() < end_s) and (writes is None or sum(s.counts["done"] for s in slots) < writes):
            for event, _ in waiting.select(WAIT_S):
                speaker: Slot = event.data
                speaker.hear(speaker.pipe.readline())
                gone = speaker.process.poll() is not None
                if gone or rng.random() < KILLED_PER_WORD:
                    victim = speaker if gone else rng.choice(slots)
                    waiting.unregister(victim.pipe)
                    victim.end()
                    victim.start()
                    waiting.register(victim.pipe, selectors.EVENT_READ, victim)
                    kills += 1
                    break  # the other events may be of the pipe that is gone
    for slot in slots:
        slot.end()
    return examined(folder, slots, kills)


def examined(folder: Path, slots: Sequence[Slot], kills: int) -> dict[str, Any]:
    """What is left of a stampede, and what is wrong with it."""
    path = folder / "one.tune.json"
    manifest = store.read(path)
    problems = [problem for slot in slots for problem in slot.problems]
    problems += [] if manifest.status == "loaded" else [f"the manifest is {manifest.status}: {manifest.problem}"]
    values = [entry.params for entry in manifest.values(NAME, "shared[f32]")]
    for slot in slots:
        key = f"k{slot.number}[f32]"
        winners = [e.winner("") for e in manifest.entries(NAME, key, key, (NAME,)) if isinstance(e, Entry)]
        found = {"winner": winners[0].winner if winners and winners[0] is not None else None,
                 "value": values[0].get(f"v{slot.number}") if values else None}  # fmt: skip
        problems += slot.lost(found)
    problems += [f"{flaw.path}: {flaw.kind}: {flaw.reason}" for flaw in upkeep.flaws(ObjectCache(folder / "cache"))]
    counts = sum((slot.counts for slot in slots), Counter[str]())
    errors = [(folder / f"errors-{slot.number}").read_text(errors="replace") for slot in slots]
    problems += [f"said on stderr: {text.strip()[-500:]}" for text in errors if "Traceback" in text]
    return {"processes": len(slots), "kills": kills, "acknowledged": counts["done"], "refused": counts["refused"],
            "read": counts["read"], "problems": problems}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a stampede and prints what came of it. Exit code 1 when something was lost or wrong."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--seconds", type=float, metavar="S", help="how long (120, unless --writes is given)")
    parser.add_argument("--writes", type=int, metavar="N", help="end after so many acknowledged writes")
    parser.add_argument("--processes", type=int, default=16, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.worker is not None:
        work(options.worker, options.first, options.seed)
    seconds = options.seconds if options.seconds is not None or options.writes is not None else 120.0
    with tempfile.TemporaryDirectory(prefix="stampede-") as folder:
        found = stampede(Path(folder), options.processes, seconds, options.writes, options.seed)
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    return 1 if found["problems"] or not found["acknowledged"] else 0


if __name__ == "__main__":
    sys.exit(main())
