"""The harness examines itself on this box: is it ever fooled, does it agree with itself, and what does it leave behind?

`python -m tunegen.harness.selftest [--quick] [--json] [--parts aa,power,...]` prints a line per figure with its goal.
The whole of it fits one hour; `--quick` takes a few minutes. Nothing is written to the manifests of this box.

- `aa`: grids of 50 identical variants, simulated under every kind of noise. A win is a mistake.
- `power`: a variant that is 10 % faster than 50 others has to be found, and 6 % where it is quiet: who crowns nobody is
  never fooled, either.
- `real_aa`: the same as `aa` for real, with copies of a shipped variant.
- `tunes`: the 12 op keys tuned again and again from nothing: winners agree, and little is left behind (regret).
- `loaded`: the same while another core is busy. Refusals to measure are counted.
- `simulation`: every key of the scope recorded once and tuned under every recorded trace: regret.
- `fidelity`: a fresh process with an empty object cache emits what was crowned, by digest.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from tunegen import knobs
from tunegen.harness import trials
from tunegen.harness.disturbances import all_kinds, read_traces
from tunegen.harness.fooled import VARIANTS, Line, simulated_aa, simulated_power
from tunegen.harness.measure import now_s
from tunegen.harness.one_thread import run_again
from tunegen.harness.simulate import (
    Space,
    contest,
    handicapped,
    read_spaces,
    replay,
    write_spaces,
)
from tunegen.kernels import exp, scope
from tunegen.public.kernel import KernelMethods
from tunegen.signature import ElementType

MODULE = "tunegen.harness.selftest"
SCOPE = "kernels"
KERNELS: tuple[KernelMethods, ...] = tuple(scope.kernels.values())
KEYS = (
    "exp[f32]", "exp[f64]", "gelu[f32]", "add[f32]", "add[f64]", "gemm[f32]", "linear[f32]", "linear_gelu[f32]",
    "softmax[f32]", "softmax[f64]", "layernorm[f32]", "layernorm[f64]",
)  # fmt: skip
"""The op keys that are tuned for real; the rest of the scope is simulated."""
PARTS = ("aa", "power", "real_aa", "tunes", "loaded", "simulation", "fidelity")
PATIENCE = 3
"""How many times as many tunes are begun as are wanted, where the box is too noisy for some."""
AGREED = 0.02
MEDIAN_REGRET, WORST_REGRET = 0.01, 0.03


class Size(msgspec.Struct, frozen=True):
    """How much is tried."""

    simulated: int = 100
    real: int = 10
    keys: tuple[str, ...] = KEYS
    aa_seconds: float = 15.0
    tune_minutes: float = 18.0
    """No further real tune begins after this, per part."""


QUICK = Size(simulated=20, real=3, keys=KEYS[:3], aa_seconds=6.0, tune_minutes=3.0)


def targets() -> dict[str, tuple[KernelMethods, ElementType]]:
    """Kernel and element type of each key of the scope."""
    return {kernel.spec.key(t): (kernel, t) for kernel in KERNELS for t in kernel.signature.element_types}


def real_aa(size: Size) -> Iterator[Line]:
    """Wins among copies of one shipped variant, for real."""
    element_type = exp.signature.element_types[0]
    first = exp.spec.fallback.chain(len(exp.spec.fallback.conditions))[0]
    runs = [trials.same_body(exp, element_type, first, VARIANTS, size.aa_seconds) for _ in range(size.real)]
    wins = [run.winner for run in runs if run.winner != "default"]
    fewest = min(run.runners for run in runs) - 1
    yield Line(f"A/A, {VARIANTS} copies of {exp.name}: wins in {len(runs)} real runs", len(wins), "0", not wins,
               {"runs": runs})  # fmt: skip
    yield Line(f"A/A, {exp.name}: copies that raced, fewest of a real run", fewest, f"{VARIANTS}", fewest == VARIANTS)


class Homes:
    """Where the trials keep manifests and objects; and what each key's exhaustive race came to."""

    def __init__(self, folder: Path, size: Size, options: Sequence[str] = ()) -> None:
        self.folder = folder
        self.options = options
        self.size = size
        self.spaces: dict[str, list[Space]] = {}
        self.last: tuple[trials.Tuned, Path] | None = None

    @property
    def cache(self) -> Path:
        """The object cache of all real tunes."""
        return self.folder / "cache"

    def space(self, key: str) -> list[Space]:
        """The spaces of a key, recorded when they are first needed."""
        if key not in self.spaces:
            self.spaces[key] = trials.record(*targets()[key])
        return self.spaces[key]

    def tunes(self, name: str) -> list[trials.Tuned]:
        """Real tunes, each from nothing, until enough came to something, or there is no time or patience left."""
        found: list[trials.Tuned] = []
        end = now_s() + 60 * self.size.tune_minutes
        while now_s() < end and len(found) < PATIENCE * self.size.real:
            home = self.folder / f"{name}{len(found)}"
            found.append(trials.tune_once(SCOPE, self.size.keys, home, self.cache, self.options))
            if found[-1].winners:
                self.last = (found[-1], home)
            if sum(not run.refused for run in found) >= self.size.real:
                break
        return found


def real_tunes(homes: Homes, name: str, load: AbstractContextManager[None]) -> Iterator[Line]:
    """Agreement, regret and refusals of repeated tunes under `load`; what they chose is measured again without it."""
    with load:
        runs = homes.tunes(name)
    done = [run for run in runs if run.winners]
    refused = sum(len(run.refused) for run in runs)
    failed = [run.problem for run in runs if run.problem]
    detail = {"problems": failed, "refused": [run.refused for run in runs],
              "seconds": [round(run.seconds, 1) for run in runs]}  # fmt: skip
    keys = len(homes.size.keys)
    yield Line(f"{name}: real tunes of {keys} keys that failed, of {len(runs)} ({refused} of {keys * len(runs)} keys "
               f"refused{'; ' + failed[0] if failed else ''})", len(failed), "0", not failed, detail)  # fmt: skip
    if not done:
        return
    compared = [item for key in homes.size.keys for item in _compare(homes, key, done)]
    spreads = {f"{c.key} {c.condition}".strip(): c.spread for c in compared}
    yield Line(f"{name}: largest distance between two winners of one regime", max(spreads.values()), f"<= {AGREED}",
               max(spreads.values()) <= AGREED, {"runs": len(done), "compared": compared})  # fmt: skip
    yield from _regret(name, [regret for c in compared for regret in c.regrets], {})


def _compare(homes: Homes, key: str, runs: Sequence[trials.Tuned]) -> list[trials.Compared]:
    found = []
    for space in homes.space(key):
        winners = [w for run in runs if (w := run.winners.get(key, {}).get(space.condition))]
        if winners:
            found.append(trials.compare(*targets()[key], space, winners))
    return found


def _regret(name: str, regrets: Sequence[float], detail: dict[str, Any]) -> Iterator[Line]:
    middle, worst = median(regrets), max(regrets)
    yield Line(f"{name}: median regret", middle, f"<= {MEDIAN_REGRET}", middle <= MEDIAN_REGRET, detail)
    yield Line(f"{name}: worst regret", worst, f"<= {WORST_REGRET}", worst <= WORST_REGRET, detail)


def simulated_scope(homes: Homes) -> Iterator[Line]:
    """Regret of simulated tunes of every key, on its recorded space, under every recorded trace."""
    kinds = {name: make for name, make in all_kinds(read_traces()).items() if name.startswith("trace")}
    keys = list(targets()) if homes.size.keys == KEYS else list(homes.size.keys)
    for name, change in (("simulation", None), ("simulation from a middling default", handicapped)):
        by_regime: dict[str, float] = {}
        regrets: list[float] = []
        for space in (space if change is None else change(space) for key in keys for space in homes.space(key)):
            found = [
                space.regret(replay(space, contest(), make(random.Random(seed)), seed))
                for make in kinds.values()
                for seed in range(max(homes.size.simulated // len(kinds), 1))
            ]
            by_regime[f"{space.key} {space.condition}".strip()] = round(max(found), 4)
            regrets += found
        yield from _regret(f"{name}, {len(by_regime)} regimes", regrets, {"worst by regime": by_regime})


def fidelity(homes: Homes) -> Iterator[Line]:
    """Whether a fresh process with an empty object cache emits what the last tune crowned, by digest."""
    if homes.last is None:
        homes.last = (trials.tune_once(SCOPE, homes.size.keys, homes.folder / "once", homes.cache, homes.options),
                      homes.folder / "once")  # fmt: skip
    tuned, home = homes.last
    knobs.change({"TUNE_CACHE": str(homes.cache)})
    crowned = trials.digests(targets().values(), tuned.winners)
    child = knobs.child_environment(TUNE_HOME=str(home), TUNE_CACHE=str(homes.folder / "fresh"), TUNE_MODE="normal")
    command = [sys.executable, "-P", "-m", MODULE, "--emitted"]
    shown = subprocess.run(command, env=child, stdout=subprocess.PIPE, check=True).stdout
    fresh = msgspec.json.decode(shown, type=trials.Winners)
    pairs = [(crowned[key][c], fresh.get(key, {}).get(c)) for key in crowned for c in crowned[key]]
    different = sum(a != b for a, b in pairs)
    yield Line(f"fidelity: of {len(pairs)} winners, those that a fresh process does not emit", different, "0",
               bool(pairs) and not different, {"crowned": crowned, "emitted": fresh})  # fmt: skip


def examine(
    size: Size, parts: Sequence[str], recorded: Path | None = None, options: Sequence[str] = ()
) -> Iterator[Line]:
    """Every part that was asked for, in order. `recorded` keeps the spaces for the next time."""
    with ExitStack() as stack:
        homes = Homes(Path(stack.enter_context(TemporaryDirectory())), size, options)
        if recorded is not None and recorded.exists():
            for space in read_spaces(recorded):
                homes.spaces.setdefault(space.key, []).append(space)
        steps: dict[str, Callable[[], Iterator[Line]]] = {
            "aa": lambda: simulated_aa(size.simulated),
            "power": lambda: simulated_power(size.simulated),
            "real_aa": lambda: real_aa(size),
            "tunes": lambda: real_tunes(homes, "tunes", nullcontext()),
            "loaded": lambda: real_tunes(homes, "loaded", trials.busy_core()),
            "simulation": lambda: simulated_scope(homes),
            "fidelity": lambda: fidelity(homes),
        }
        for part in PARTS:
            if part in parts:
                yield from steps[part]()
        if recorded is not None:
            write_spaces(recorded, [space for spaces in homes.spaces.values() for space in spaces])


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the report. Exit code 1 when a goal is not reached."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer runs of fewer keys: a few minutes")
    parser.add_argument("--json", action="store_true", help="the whole report as JSON, with what lies behind it")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"out of {','.join(PARTS)}")
    parser.add_argument(
        "--spaces", type=Path, metavar="FILE", help="recorded spaces: read if there, written at the end"
    )
    parser.add_argument("--noisy-ok", action="store_true", help="tune on a box that is too noisy to be believed, too")
    parser.add_argument("--emitted", action="store_true", help=argparse.SUPPRESS)
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(given)
    if options.emitted:
        print(msgspec.json.encode(trials.emitted(targets().values())).decode())
        return 0
    if unknown := set(options.parts.split(",")) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}")
    if (code := run_again(MODULE, given)) is not None:
        return code
    knobs.change({"TUNE_MODE": "tune"})
    lines, start = [], now_s()
    size, extra = QUICK if options.quick else Size(), ["--noisy-ok"] if options.noisy_ok else []
    for line in examine(size, options.parts.split(","), options.spaces, extra):
        lines.append(line)
        print(line, file=sys.stderr if options.json else sys.stdout, flush=True)
    if options.json:
        print(msgspec.json.encode({"lines": lines, "seconds": round(now_s() - start, 1)}).decode())
    return 0 if all(line.reached for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
