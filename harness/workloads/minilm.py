"""A real program that gets faster without being edited: sentence embeddings with the weights of all-MiniLM-L6-v2.

`python -m tunegen.harness.workloads.minilm [FILE]` embeds the sentences of a text file, one a line, and says how many
a second the same forward pass does with the reference bodies, untuned, and with the manifest of this box. The kernels
are stamped anew between passes, in one process, so that drift hits all three alike.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from tunegen.errors import TunegenError
from tunegen.harness import race
from tunegen.harness.measure import Clock, clock, now_s
from tunegen.harness.one_thread import run_again
from tunegen.harness.workloads.minilm_forward import Encoder
from tunegen.harness.workloads.minilm_model import missing, read_model
from tunegen.harness.workloads.minilm_oracle import Oracle
from tunegen.harness.workloads.stamps import REFERENCE, SETTINGS, TUNED, UNTUNED, Stamps
from tunegen.public.status import Regime

MODULE = "tunegen.harness.workloads.minilm"
SCOPE = "kernels"
KERNELS = ("add", "gemm", "layernorm", "linear", "linear_gelu", "softmax")
SENTENCES = Path(__file__).with_name("sentences.txt")
MOST_SENTENCES = 256
"""Of a longer file this many are taken, spread over it: enough to measure on, and to check in a few seconds."""
FEWEST_ROUNDS = 9
"""With fewer, the interval of a median is all of the range, so one disturbed pass decides it."""
TOLERANCE = 1e-5
"""How far a component of a vector of length one may be from the float64 answer."""
PASS = "pass"
"""The one case of the race: all sentences."""
FAILED, USAGE = 1, 2


class Speed(msgspec.Struct, frozen=True):
    """One setting: its speed, what it ran, and how far its vectors are from the float64 forward pass."""

    sentences_per_second: float
    difference: float
    kernels: dict[str, tuple[Regime, ...]]


class Report(msgspec.Struct, frozen=True):
    """What the program prints. `ratios` are speeds, above 1 when the first setting is faster than the second."""

    sentences: int
    tokens: int
    batch: int
    rounds: int
    settings: dict[str, Speed]
    ratios: dict[str, race.Verdict]
    not_tuned: list[str]
    within_tolerance: bool


def read_sentences(path: Path) -> list[str]:
    """The sentences of a file, one a line. Raises `OSError`, or `ValueError` for text without one or not in UTF-8."""
    lines = [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path} holds no sentence")
    count = min(len(lines), MOST_SENTENCES)
    return [lines[i * len(lines) // count] for i in range(count)]


def measure(sentences: Sequence[str], batch: int, seconds: float, clock: Clock = clock) -> Report:
    """Embeds the sentences in turn under all settings for about `seconds`, and checks the vectors of each."""
    model = read_model()
    encoder = Encoder(model)
    tokens = [model.tokens(sentence) for sentence in sentences]
    expected = Oracle(model).embed(tokens)

    def sample(setting: str, _: str) -> float:
        stamps.use(setting)
        start = clock()
        encoder.embed([model.tokens(sentence) for sentence in sentences], batch)
        return clock() - start

    with Stamps(SCOPE, KERNELS) as stamps:
        differences, rows = {}, {}
        for setting in SETTINGS:
            stamps.use(setting)
            differences[setting] = float(np.abs(encoder.embed(tokens, batch) - expected).max())
            rows[setting] = stamps.status("f32")
        end = now_s() + seconds
        times = race.rounds(sample, SETTINGS, [PASS], lambda n: n >= FEWEST_ROUNDS and now_s() > end)
    speeds = {
        setting: Speed(
            len(sentences) / (median(times[setting, PASS]) / 1e9),
            differences[setting],
            {row.kernel: row.regimes for row in rows[setting]},
        )
        for setting in SETTINGS
    }
    pairs = [(UNTUNED, REFERENCE), (TUNED, REFERENCE), (TUNED, UNTUNED)]
    ratios = {f"{a} / {b}": race.compare(times, a, b, [PASS]) for a, b in pairs}
    not_tuned = [str(row) for row in rows[TUNED] if not row.tuned]
    within = all(difference <= TOLERANCE for difference in differences.values())
    return Report(
        len(sentences), sum(map(len, tokens)), batch, len(times[TUNED, PASS]), speeds, ratios, not_tuned, within
    )


def lines(report: Report) -> list[str]:
    """The report as text."""
    text = [f"{report.sentences} sentences, {report.tokens} tokens, batches of {report.batch}, one thread, "
            f"{report.rounds} rounds"]  # fmt: skip
    for name, speed in report.settings.items():
        text.append(
            f"  {name:9} {speed.sentences_per_second:8.1f} sentences/s, at most {speed.difference:.1e} from float64"
        )
    text += [f"  {name}: {_ratio(verdict)}" for name, verdict in report.ratios.items()]
    text += _changes(report.settings)
    if report.not_tuned:
        text.append(f"not tuned for this box: {len(report.not_tuned)} kernels")
        text += [f"  {row}" for row in report.not_tuned]
        text.append(f"to tune them, run: tunegen tune {SCOPE}")
    if not report.within_tolerance:
        text.append(f"FAILED: a vector is further than {TOLERANCE:g} from the float64 forward pass")
    return text


def _ratio(verdict: race.Verdict) -> str:
    low, high = verdict.interval
    return f"{verdict.ratio:.3f} (interval {low:.3f} to {high:.3f})"


def _changes(settings: Mapping[str, Speed]) -> list[str]:
    """Where tuning chose another variant than an untuned box runs."""
    found = []
    for kernel, regimes in settings[TUNED].kernels.items():
        for before, after in zip(settings[UNTUNED].kernels[kernel], regimes, strict=True):
            if before.emitted != after.emitted:
                condition = f" if {after.condition}" if after.condition else ""
                found.append(f"  {kernel}{condition}: {before.emitted} untuned, {after.emitted} ({after.source}) tuned")
    return found or ["  tuned and untuned run the same variants"]


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 up")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit code: 1 when a vector is wrong, 2 when something is missing or misused."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("file", nargs="?", type=Path, default=SENTENCES, metavar="FILE", help="sentences, one a line")
    parser.add_argument("--batch", type=_positive, default=16, metavar="N", help="sentences in a batch")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="S", help="about how long to measure")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(given)
    if problem := missing():
        sys.stderr.write(problem + "\n")
        return USAGE
    try:
        sentences = read_sentences(options.file)
    except (OSError, ValueError) as error:
        parser.error(f"cannot read sentences: {error}")
    code = run_again(MODULE, given)
    if code is not None:
        return code
    try:
        report = measure(sentences, options.batch, options.seconds)
    except TunegenError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    text = (
        msgspec.json.format(msgspec.json.encode(report), indent=2).decode()
        if options.json
        else "\n".join(lines(report))
    )
    sys.stdout.write(text + "\n")
    return 0 if report.within_tolerance else FAILED


if __name__ == "__main__":
    sys.exit(main())
