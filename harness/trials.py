"""Trials on this box, for the self-evaluation: real tunes in processes of their own, against exhaustive races.

What runs in this process passed the gate of a tune before, or is a variant that ships with the library.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec

from tunegen import knobs
from tunegen.box import this_box
from tunegen.cases import facts
from tunegen.errors import CompileError, Declined, RenderError
from tunegen.grid import REFERENCE, Row
from tunegen.harness import race
from tunegen.harness.bench import Bench
from tunegen.harness.measure import now_s
from tunegen.harness.simulate import Space, contest, identical
from tunegen.making import make
from tunegen.making.spec import Spec
from tunegen.public.kernel import KernelMethods
from tunegen.public.variant import Variant
from tunegen.requires import parse_requires
from tunegen.signature import ElementType

DONE, REFUSED = 0, 3
ROUNDS = 16
"""Rounds of an exhaustive race, twice through all places: enough to know who may be best, and the best few are measured
again."""
ROUNDS_AGAIN = (32, 64, 128, 256)
"""The second race ends after one of these, when it is precise enough."""
PRECISE = 0.005
"""Half the width of an interval that is precise enough to tell 1 % of regret."""
BEST_FEW = 3

Winners = dict[str, dict[str, str]]
"""key -> condition -> suffix."""


class Tuned(msgspec.Struct, frozen=True):
    """What one real tune came to. `refused` are the keys for which the box was too noisy."""

    winners: Winners
    seconds: float
    refused: list[str] = []
    problem: str = ""


class Compared(msgspec.Struct, frozen=True):
    """The winners of several tunes of one regime, measured again beside the best of an exhaustive race.

    `regrets` has one figure per tune, `spread` is the largest ratio between two winners, less 1.
    """

    key: str
    condition: str
    winners: list[str]
    best: str
    regrets: list[float]
    spread: float


class Raced(msgspec.Struct, frozen=True):
    """What a contest among copies came to: who won, how many runners were sampled, and how often."""

    winner: str
    runners: int
    samples: int


def tune_once(scope: str, keys: Sequence[str], home: Path, cache: Path, options: Sequence[str] = ()) -> Tuned:
    """Tunes `keys` from nothing, as a user would, in a process of its own with its own home of manifests."""
    command = [sys.executable, "-P", "-m", "tunegen", "tune", scope, "--only", ",".join(keys), "--json", *options]
    start = now_s()
    done = subprocess.run(command, env=_environment(home, cache), capture_output=True, check=False)
    seconds = now_s() - start
    if done.returncode not in (DONE, REFUSED):
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return Tuned({}, seconds, [], f"exit code {done.returncode}: {' '.join(last)}")
    try:
        reports = msgspec.json.decode(done.stdout)["reports"]
    except (msgspec.DecodeError, KeyError):
        reports = []
    winners = {
        report["key"]: {regime["condition"]: regime["winner"] for regime in report["result"]["regimes"]}
        for report in reports
        if report["result"] and not report.get("refused")
    }
    refused = [report["key"] for report in reports if report.get("refused")]
    if done.returncode == REFUSED and not reports:
        # before anything began
        refused = list(keys)
    return Tuned(winners, seconds, refused, "" if reports or refused else "it reported nothing")


def _environment(home: Path, cache: Path) -> dict[str, str]:
    return knobs.child_environment(TUNE_HOME=str(home), TUNE_CACHE=str(cache), TUNE_MODE="normal", TUNE_MANIFEST="")


@contextmanager
def busy_core() -> Iterator[None]:
    """Keeps one other thread of the machine busy meanwhile."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def digests(kernels: Iterable[tuple[KernelMethods, ElementType]], winners: Winners) -> Winners:
    """The object digests of the crowned variants, by key and condition, from the object cache of this process."""
    found: Winners = {}
    for kernel, element_type in kernels:
        for condition, suffix in winners.get(kernel.spec.key(element_type), {}).items():
            row = kernel.spec.grid.find(suffix)
            digest = _digest(kernel.spec, row, element_type) if row is not None else suffix
            found.setdefault(kernel.spec.key(element_type), {})[condition] = digest
    return found


def _digest(spec: Spec, row: Row, element_type: ElementType) -> str:
    box = this_box()
    target = make.host_target(box)
    return make.make_object(spec.function, row, element_type, spec.templates, box.feature_set, target).digest


def emitted(kernels: Iterable[tuple[KernelMethods, ElementType]]) -> Winners:
    """The digests of what this process emits: of its stamps, by key and condition. Only manifests count."""
    pairs = list(kernels)
    stamped: Winners = {}
    for kernel, element_type in pairs:
        stamp = kernel.stamp[element_type.name]
        chosen = {c.condition: c.emitted for c in stamp.choices if c.source == "manifest" and c.emitted}
        stamped[kernel.spec.key(element_type)] = chosen
    return digests(pairs, stamped)


def regimes(spec: Spec) -> dict[int, list[str]]:
    """The names of the cases that fall into each regime."""
    found: dict[int, list[str]] = {}
    for case in spec.cases:
        found.setdefault(spec.regime_of(facts(spec.signature, case.sizes)), []).append(case.name)
    return dict(sorted(found.items()))


def record(kernel: KernelMethods, element_type: ElementType, rounds: int = ROUNDS) -> list[Space]:
    """Races all variants of a kernel that this box can run, in whole rounds: a space per regime that has cases."""
    spec = kernel.spec
    bench = Bench(spec, element_type, {**kernel.variants(), REFERENCE: kernel.reference})
    fit = [row.suffix for row in spec.grid if _fit(spec, row, element_type)]
    found = []
    for regime, cases in regimes(spec).items():
        chain = [s for later in range(regime, len(spec.fallback.regimes)) for s in spec.fallback.chain(later)]
        default = next((suffix for suffix in chain if suffix in fit), REFERENCE)
        times = race.contested(bench.sample, race.always([*fit, REFERENCE], rounds), cases)
        samples = {runner: {case: times[runner, case] for case in cases} for runner in [*fit, REFERENCE]}
        key, condition = spec.key(element_type), spec.fallback.regimes[regime]
        found.append(Space(key, condition, tuple(cases), default, samples))
    return found


def _fit(spec: Spec, row: Row, element_type: ElementType) -> bool:
    if parse_requires(row.requires).missing(this_box().feature_set):
        return False
    try:
        make.make_family(spec, row, element_type, this_box())
    except (Declined, RenderError, CompileError):
        return False
    return True


def compare(
    kernel: KernelMethods,
    element_type: ElementType,
    space: Space,
    winners: Sequence[str],
    rounds: Sequence[int] = ROUNDS_AGAIN,
) -> Compared:
    """Measures the winners of several tunes again, beside the best few of an exhaustive race: regret and agreement.

    The best is the best of this second race, so its luck in the first one does not count against the winners.
    """
    bench = Bench(kernel.spec, element_type, {**kernel.variants(), REFERENCE: kernel.reference})
    few = sorted(space.runners, key=space.gain, reverse=True)[:BEST_FEW]
    runners = list(dict.fromkeys([space.default, space.best(), *few, *winners]))

    def field(times: race.Times, done: int) -> Sequence[str]:
        enough = done in rounds and all(
            race.compare(times, r, space.default, space.cases).half_width <= PRECISE for r in runners
        )
        return () if enough or done >= rounds[-1] else runners

    times = race.contested(bench.sample, field, space.cases)
    against = {r: race.compare(times, r, space.default, space.cases) for r in runners}
    allowed = [r for r in runners if against[r].worst >= race.WORST_CASE]
    best = max(allowed, key=lambda r: against[r].ratio)
    regret = {r: max(race.compare(times, best, r, space.cases).ratio - 1, 0.0) for r in {*winners}}
    pairs = combinations(sorted(regret), 2)
    apart = [abs(race.compare(times, a, b, space.cases).ratio - 1) for a, b in pairs]
    return Compared(
        space.key, space.condition, list(winners), best, [round(regret[w], 4) for w in winners],
        round(max(apart, default=0.0), 4),
    )  # fmt: skip


def same_body(kernel: KernelMethods, element_type: ElementType, suffix: str, count: int, seconds: float) -> Raced:
    """A real contest among `count` copies of one variant, each linked by itself: `default` ought to be left standing.

    Raises `KeyError` for a suffix that is no row.
    """
    spec = kernel.spec
    row = spec.grid.find(suffix)
    if row is None:
        raise KeyError(suffix)
    cases = max(regimes(spec).values(), key=len)
    space = identical(count, cases)
    copies: Mapping[str, Any] = {name: Variant(spec, row) for name in space.runners}
    bench = Counting(Bench(spec, element_type, {**copies, REFERENCE: kernel.reference}))
    winner = contest(seconds=seconds)(space, bench, now_s)
    return Raced(winner, len(bench.seen - {REFERENCE}), bench.samples)


class Counting:
    """A bench that counts what it is asked for: a race in which hardly anybody ran proves nothing."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.seen: set[str] = set()
        self.samples = 0

    def sample(self, suffix: str, case_name: str, number: int = 0) -> float:
        """What the bench says."""
        self.seen.add(suffix)
        self.samples += 1
        return self.bench.sample(suffix, case_name, number)

    def move(self, series: int) -> None:
        """As the bench does."""
        self.bench.move(series)
