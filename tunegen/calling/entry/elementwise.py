"""The part of a native entry that knows operands of any rank: a contiguous run, and the walk over what is around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tunegen.calling.entry import views as v
from tunegen.calling.entry.ir import DONE, Writer
from tunegen.calling.entry.splitting import Share
from tunegen.calling.entry.views import Extent, View
from tunegen.calling.entry.walk import Walk
from tunegen.signature import ANY_RANK_SIZE, Signature

_ODOMETER = f"[{v.MAX_RANK} x i64]"
_RUNS_EACH = 8
"""With so many runs for each participant, whole runs are shared out evenly enough."""


@dataclass
class _Track:
    """What is collected about one operand, dimension by dimension. All but `view` and `data` are cells or values."""

    view: View
    data: str
    start: str
    absent: str
    missing: str
    shape: str
    strides: str
    steps: str
    low: str
    high: str
    reach: str
    pointer: str


@dataclass
class Elementwise:
    """Checks the operands when it is made, then offers what choosing and calling need."""

    w: Writer
    signature: Signature
    views: Sequence[View]
    sizes: dict[str, str] = field(init=False)
    elements: str = field(init=False)
    _runs: str = field(init=False, default="")
    _by_runs: str = field(init=False, default="")

    def __post_init__(self) -> None:
        w = self.w
        self._leader = next(view for view in self.views if view.operand.written)
        self._rank = self._view_rank(self._leader)
        w.require(w.compare("ule", self._rank, str(v.MAX_RANK)))
        self._shape = self._leader.field(w, v.SHAPE)
        self._tracks = [self._track(view) for view in self.views]
        self._same = self._candidates()
        self._total, self._run = w.cell("total", "i64", "1"), w.cell("run", "i64", "1")
        self._good, self._running = w.cell("good", "i1", "true"), w.cell("running", "i1", "true")
        self._outer = w.cell("outer", "i64", "0")
        self._counters = w.cell("counters", _ODOMETER)
        with w.countdown(self._rank) as dimension:
            self._dimension(dimension)
        self.elements = w.load("i64", self._total, "elements")
        self.sizes = {ANY_RANK_SIZE: self.elements}
        w.require(w.compare("ne", self.elements, "0"), otherwise=DONE)
        w.require(v.small(w, [self.elements]))
        self._finish()
        self.call_sizes = [w.load("i64", self._run, "run")]

    def call(self, variant: str, scalars: Sequence[str], memory: str) -> None:
        """Calls the variant once for each run: the innermost outer dimension moves first."""
        w = self.w
        outer = w.load("i64", self._outer, "outer")
        pointers, strides = [track.pointer for track in self._tracks], [track.strides for track in self._tracks]
        walk = Walk(outer, self._shape, self._counters, pointers, strides)
        walk.run(w, lambda places: _call(w, variant, places, self.call_sizes[0], scalars, memory))

    def cut(self, over: Sequence[str], participants: str) -> str:
        """The runs are what is cut, if each participant gets several of them; else the longer: their list, or a run."""
        w, (run,) = self.w, self.call_sizes
        self._runs = w.op("udiv", self.elements, run)
        enough = w.compare("sge", self._runs, w.op("mul", participants, str(_RUNS_EACH)))
        self._by_runs = w.either([enough, w.compare("sge", self._runs, run)])
        return w.pick(self._by_runs, self._runs, run)

    def units(self, grain: str) -> str:
        """A grain of elements, in runs where these are what is cut."""
        w, (run,) = self.w, self.call_sizes
        return w.pick(self._by_runs, w.op("udiv", w.op("sub", w.op("add", grain, run), "1"), run), grain)

    def share_sizes(self, units: str) -> list[str]:
        """The elements of a run, or of a part of each run."""
        return [self.w.pick(self._by_runs, self.call_sizes[0], units)]

    def run_share(self, share: Share, variant: str, scalars: Sequence[str], memory: str) -> None:
        """Walks its share of the runs, or its share of each run."""
        w, b = self.w, share.w
        by_runs = b.compare("ne", share.hand("i64", w.let("flag", f"zext i1 {self._by_runs} to i64")), "0")
        run, runs = share.hand("i64", self.call_sizes[0]), share.hand("i64", self._runs)
        first, into = b.pick(by_runs, "%begin", "0"), b.pick(by_runs, "0", "%begin")
        pointers = []
        for track in self._tracks:
            # the pointer of an absent operand is null, and stays so
            itemsize = w.pick(track.absent, "0", track.view.itemsize)
            moved = b.at("i8", share.hand("ptr", track.data), b.op("mul", into, share.hand("i64", itemsize)))
            pointers.append(b.cell("pointer", "ptr", moved))
        outer, shape = share.hand("i64", w.load("i64", self._outer)), share.hand("ptr", self._shape)
        strides = [share.hand("ptr", track.strides) for track in self._tracks]
        walk = Walk(outer, shape, b.cell("counters", _ODOMETER), pointers, strides)
        walk.begin_at(b, first)
        left = b.cell("runs", "i64", b.pick(by_runs, share.length, runs))
        elements = b.pick(by_runs, run, share.length)
        walk.run(b, lambda places: _call(b, variant, places, elements, scalars, memory), left)

    def _view_rank(self, view: View) -> str:
        return self.w.let("rank", f"sext i32 {view.field(self.w, v.RANK, 'i32')} to i64")

    def _track(self, view: View) -> _Track:
        """Requires the rank: an output has that of the result, an input may lack leading dimensions."""
        w = self.w
        rank = self._rank if view is self._leader else self._view_rank(view)
        missing = w.op("sub", self._rank, rank)
        w.require(w.compare("eq" if view.operand.written else "sge", missing, "0"))
        data = view.field(w, v.DATA)
        start = v.address(w, data)
        return _Track(
            view=view,
            data=data,
            start=start,
            absent="false" if view.given == "true" else w.op("xor", view.given, "true", "i1"),
            missing=missing,
            shape=view.field(w, v.SHAPE),
            strides=w.cell("strides", _ODOMETER),
            steps=w.cell("steps", "i64", start),
            low=w.cell("low", "i64", start),
            high=w.cell("high", "i64", w.op("add", start, view.itemsize)),
            reach=w.cell("reach", "i64", view.itemsize),
            pointer=w.cell("pointer", "ptr", data),
        )

    def _candidates(self) -> dict[tuple[str, str], str]:
        """Cells for the pairs of an output and an input that may be the very same array."""
        cells = {}
        for a in self._tracks if self.signature.inplace else ():
            for b in self._tracks:
                one, other = a.view.operand, b.view.operand
                if one.written and not other.written and one.choice == other.choice:
                    cells[one.name, other.name] = self.w.cell("same", "i1", self.w.compare("eq", a.start, b.start))
        return cells

    def _dimension(self, dimension: str) -> None:
        w = self.w
        size = w.load("i64", w.at("i64", self._shape, dimension), "size")
        w.update("mul", self._total, size)
        strides = {t.view.operand.name: self._stride(t, dimension, size) for t in self._tracks}
        for track in self._tracks:
            self._collect(track, size, strides[track.view.operand.name])
        for (one, other), cell in self._same.items():
            w.update("and", cell, w.compare("eq", strides[one], strides[other]), "i1")
        self._extend_run(dimension, size, strides)

    def _stride(self, track: _Track, dimension: str, size: str) -> str:
        """Requires the length to fit the result's, and returns the stride; 0 where the operand does not move."""
        w, view = self.w, track.view
        if view.operand.written:
            length = size if view is self._leader else w.load("i64", w.at("i64", track.shape, dimension), "length")
            if view is not self._leader:
                w.require(w.compare("eq", length, size))
            stride = w.load("i64", w.at("i64", view.field(w, v.STRIDES), dimension), "stride")
            return w.pick(w.compare("sgt", length, "1"), stride, "0")
        own = w.op("sub", dimension, track.missing)
        given = w.compare("sge", own, "0")
        length = w.load("i64", w.pick(given, w.at("i64", track.shape, own), "@one", "ptr"), "length")
        w.require(w.either([w.compare("eq", length, size), w.compare("eq", length, "1")]))
        stride_at = w.pick(given, w.at("i64", view.field(w, v.STRIDES), own), "@zero", "ptr")
        return w.pick(w.compare("sgt", length, "1"), w.load("i64", stride_at, "stride"), "0")

    def _collect(self, track: _Track, size: str, stride: str) -> None:
        """Adds one dimension to the bounds of an operand and to what is known of its layout."""
        w = self.w
        span = w.op("mul", w.op("sub", size, "1"), stride)
        w.update("or", track.steps, stride)
        w.update("add", track.low, v.least(w, span))
        w.update("add", track.high, v.most(w, span))
        if track.view.operand.written:
            steps_over = w.compare("sge", v.magnitude(w, stride), w.load("i64", track.reach))
            w.update("and", self._good, w.either([w.compare("sle", size, "1"), steps_over]), "i1")
            w.update("add", track.reach, v.magnitude(w, span))

    def _extend_run(self, dimension: str, size: str, strides: dict[str, str]) -> None:
        """Takes the dimension into the run while all operands are contiguous up to it, else into the odometer."""
        w = self.w
        run = w.load("i64", self._run, "run")
        goes_on = []
        for track in self._tracks:
            contiguous = w.compare("eq", strides[track.view.operand.name], w.op("mul", run, track.view.itemsize))
            goes_on.append(contiguous if track.absent == "false" else w.either([contiguous, track.absent]))
        fits = w.either([w.compare("sle", size, "1"), w.both(goes_on)])
        innermost = w.compare("eq", dimension, w.op("sub", self._rank, "1"))
        outside = w.op("xor", innermost, "true", "i1")
        w.update("and", self._good, w.either([fits, outside]), "i1")
        running = w.op("and", w.load("i1", self._running), fits, "i1")
        ended = w.op("xor", running, "true", "i1")
        with w.when(w.op("and", ended, w.load("i1", self._running), "i1")):
            w.store("i64", w.op("add", dimension, "1"), self._outer)
        w.store("i1", running, self._running)
        w.store("i64", w.op("mul", run, w.pick(running, size, "1")), self._run)
        with w.when(ended):
            w.store("i64", "0", w.at("i64", self._counters, dimension))
            for track in self._tracks:
                w.store("i64", strides[track.view.operand.name], w.at("i64", track.strides, dimension))

    def _finish(self) -> None:
        """Requires the layouts and that outputs stay apart from the rest, now that all dimensions are known."""
        w = self.w
        w.require(w.load("i1", self._good))
        w.require(w.both([v.divisible(w, w.load("i64", t.steps), t.view.itemsize) for t in self._tracks]))
        extents = [Extent(w.load("i64", t.low), w.load("i64", t.high)) for t in self._tracks]
        v.require_apart(w, self.views, extents, self._may_be_same)

    def _may_be_same(self, a: View, b: View) -> str | None:
        for pair in ((a, b), (b, a)):
            cell = self._same.get((pair[0].operand.name, pair[1].operand.name))
            if cell:
                return self.w.load("i1", cell, "same")
        return None


def _call(w: Writer, variant: str, places: Sequence[str], run: str, scalars: Sequence[str], memory: str) -> None:
    pointers = [f"ptr {place}" for place in places]
    w.do(f"call void {variant}({', '.join([*pointers, f'i64 {run}', *scalars, f'ptr {memory}'])})")
