"""How fast requests were served, and how long each took: figures of spans of time, and spans compared in pairs.

No clock in here: a request is the moment at which it began and the nanoseconds that it took.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from tunegen.harness import race

QUANTILES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
"""Of these each is the latency that so many of the requests do not exceed."""
FEWEST_PAIRS = 6
"""With fewer pairs no interval of a median holds it with 95 % confidence."""


class Span(NamedTuple):
    """A stretch of time, in nanoseconds on the clock of the requests, and what went on in it."""

    label: str
    start_ns: int
    end_ns: int


class Requests(NamedTuple):
    """Requests in the order in which they began: when that was, and how long they took, in nanoseconds."""

    start_ns: NDArray[np.int64]
    took_ns: NDArray[np.int64]

    def within(self, span: Span) -> NDArray[np.int64]:
        """How long those took that began in a span."""
        first, last = np.searchsorted(self.start_ns, [span.start_ns, span.end_ns])
        return self.took_ns[first:last]


class Figures(msgspec.Struct, frozen=True):
    """What the spans with one label came to. Latencies are in microseconds, by the names of `QUANTILES` and "max"."""

    requests: int
    seconds: float
    per_second: float
    latency_us: dict[str, float]


class Ratio(msgspec.Struct, frozen=True):
    """The median of paired ratios, and its 95 % confidence interval."""

    value: float
    interval: tuple[float, float]
    pairs: int

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"


def merged(starts: Sequence[Any], took: Sequence[Any]) -> Requests:
    """The requests of several threads, each given as two arrays of numbers."""
    start = np.concatenate([np.asarray(part, np.int64) for part in starts])
    order = np.argsort(start, kind="stable")
    return Requests(start[order], np.concatenate([np.asarray(part, np.int64) for part in took])[order])


def figures(requests: Requests, spans: Sequence[Span], label: str) -> Figures | None:
    """The figures of all spans with a label together; None when no request began in one."""
    chosen = [span for span in spans if span.label == label]
    took = np.concatenate([np.empty(0, np.int64), *(requests.within(span) for span in chosen)])
    if not took.size:
        return None
    seconds = sum(span.end_ns - span.start_ns for span in chosen) / 1e9
    latency = {name: quantile_us(took, part) for name, part in QUANTILES.items()}
    return Figures(int(took.size), seconds, took.size / seconds, {**latency, "max": float(took.max()) / 1e3})


def quantile_us(took_ns: NDArray[np.int64], part: float) -> float:
    """The least latency, in microseconds, that this part of some requests does not exceed."""
    return float(np.quantile(took_ns, part, method="inverted_cdf")) / 1e3


def compared(requests: Requests, spans: Sequence[Span], one: str, other: str) -> dict[str, Ratio]:
    """`one` against `other`, from each span of `other` that lies between two of `one`, with as much time of these.

    Half of that time lies before, and half after, so that drift hits both alike. The names are "throughput", above 1
    when `one` serves more, and those of `QUANTILES`, above 1 when its requests take longer. Empty without enough pairs.
    """
    pairs = [
        (_around(requests, before, span, after), requests.within(span))
        for before, span, after in zip(spans, spans[1:], spans[2:], strict=False)
        if (before.label, span.label, after.label) == (one, other, one)
    ]
    pairs = [(a, b) for a, b in pairs if a.size and b.size]
    if len(pairs) < FEWEST_PAIRS:
        return {}
    found = {"throughput": _ratio([a.size / b.size for a, b in pairs])}
    for name, part in QUANTILES.items():
        found[name] = _ratio([quantile_us(a, part) / quantile_us(b, part) for a, b in pairs])
    return found


def _around(requests: Requests, before: Span, span: Span, after: Span) -> NDArray[np.int64]:
    half = (span.end_ns - span.start_ns) // 2
    early = Span("", max(before.end_ns - half, before.start_ns), before.end_ns)
    late = Span("", after.start_ns, min(after.start_ns + half, after.end_ns))
    return np.concatenate([requests.within(early), requests.within(late)])


def _ratio(ratios: Sequence[float]) -> Ratio:
    return Ratio(median(ratios), race.interval_of_median(sorted(ratios)), len(ratios))
