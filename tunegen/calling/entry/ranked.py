"""The part of a native entry that knows operands of a fixed rank: sizes, strides, and one call of the variant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tunegen.calling.entry import views as v
from tunegen.calling.entry.ir import Writer
from tunegen.calling.entry.splitting import Share
from tunegen.calling.entry.views import Extent, View
from tunegen.signature import Dim, Signature

_ZERO, _ONE = "@zero", "@one"


@dataclass
class Ranked:
    """Checks the operands when it is made, then offers what choosing and calling need."""

    w: Writer
    signature: Signature
    views: Sequence[View]
    sizes: dict[str, str] = field(init=False)
    elements: str = field(init=False)
    _cut: dict[str, str] = field(init=False, default_factory=dict)
    """For each size that may be cut whether it is, an i1."""

    def __post_init__(self) -> None:
        w = self.w
        required = [view for view in self.views if not view.operand.optional]
        shapes = {view.operand.name: self._shape(view) for view in required}
        self.sizes = self._bind(required, shapes)
        w.require(v.small(w, list(self.sizes.values())))
        self.elements = w.product(self.sizes.values())
        self._arguments: list[str] = []
        extents = []
        for view in self.views:
            if view.operand.optional:
                extents.append(self._optional(view))
            else:
                extents.append(self._operand(view, *shapes[view.operand.name]))
        v.require_apart(w, self.views, extents, lambda a, b: None)

    @property
    def call_sizes(self) -> list[str]:
        """The sizes that a variant and its scratch function receive."""
        return list(self.sizes.values())

    def call(self, variant: str, scalars: Sequence[str], memory: str) -> None:
        """Calls the variant."""
        sizes = [f"i64 {size}" for size in self.call_sizes]
        self.w.do(f"call void {variant}({', '.join([*self._arguments, *sizes, *scalars, f'ptr {memory}'])})")

    def cut(self, over: Sequence[str], participants: str) -> str:
        """The longest of these sizes, the first on a tie."""
        w, longest = self.w, self.sizes[over[0]]
        self._cut = {over[0]: "true"}
        for symbol in over[1:]:
            longer = w.compare("sgt", self.sizes[symbol], longest)
            longest = w.pick(longer, self.sizes[symbol], longest)
            self._cut = {size: w.pick(longer, "false", cut, "i1") for size, cut in self._cut.items()} | {symbol: longer}
        return longest

    def units(self, grain: str) -> str:
        """As it is: a unit is one of the size that is cut."""
        return grain

    def share_sizes(self, units: str) -> list[str]:
        """All sizes, that of the share in the place of the one that is cut."""
        return [
            self.w.pick(self._cut[symbol], units, size) if symbol in self._cut else size
            for symbol, size in self.sizes.items()
        ]

    def run_share(self, share: Share, variant: str, scalars: Sequence[str], memory: str) -> None:
        """Calls the variant with the pointers of all operands that have the size which is cut moved along it."""
        w, b = self.w, share.w
        arguments, rest = [], list(self._arguments)
        for view in self.views:
            (data, *strides), rest = rest[: view.operand.strides + 1], rest[view.operand.strides + 1 :]
            step = share.hand("i64", self._step(view, [stride.removeprefix("i64 ") for stride in strides]))
            moved = b.at("i8", share.hand("ptr", data.removeprefix("ptr ")), b.op("mul", "%begin", step))
            arguments += [f"ptr {moved}", *(f"i64 {share.hand('i64', s.removeprefix('i64 '))}" for s in strides)]
        for symbol, size in self.sizes.items():
            own = share.hand("i64", size)
            if symbol in self._cut:
                flag = share.hand("i64", w.let("flag", f"zext i1 {self._cut[symbol]} to i64"))
                own = b.pick(b.compare("ne", flag, "0"), share.length, own)
            arguments.append(f"i64 {own}")
        b.do(f"call void {variant}({', '.join([*arguments, *scalars, f'ptr {memory}'])})")

    def _step(self, view: View, strides: Sequence[str]) -> str:
        """The bytes from one unit of the size that is cut to the next: 0 if an operand does not have it.

        Strides over dimensions that broadcast are 0 as they are, and so are those of operands that are absent.
        """
        w, step = self.w, "0"
        inner = view.itemsize if view.given == "true" else w.pick(view.given, view.itemsize, "0")
        for dim, distance in zip(view.operand.dims or (), [*strides, inner], strict=True):
            if dim.symbol in self._cut:
                step = w.pick(self._cut[dim.symbol], distance, step)
        return step

    def _shape(self, view: View) -> tuple[list[str], list[str]]:
        """Requires the rank, and returns lengths and strides; a dimension that is left out has length 1, stride 0."""
        w, dims = self.w, view.operand.dims or ()
        optional_dims = _leading_broadcast(dims)
        rank = w.let("rank", f"sext i32 {view.field(w, v.RANK, 'i32')} to i64")
        absent = w.op("sub", str(len(dims)), rank)
        w.require(w.compare("ule", absent, str(optional_dims)))
        arrays = view.field(w, v.SHAPE), view.field(w, v.STRIDES)
        lengths, strides = [], []
        for index in range(len(dims)):
            at = [w.at("i64", array, w.op("sub", str(index), absent) if optional_dims else index) for array in arrays]
            if index < optional_dims:
                given = w.compare("sge", str(index), absent)
                at = [w.pick(given, a, other, "ptr") for a, other in zip(at, (_ONE, _ZERO), strict=True)]
            lengths.append(w.load("i64", at[0], "length"))
            strides.append(w.load("i64", at[1], "stride"))
        return lengths, strides

    def _bind(self, required: Sequence[View], shapes: dict[str, tuple[list[str], list[str]]]) -> dict[str, str]:
        """Each size from the first dimension that must have it."""
        bound: dict[str, str] = {}
        for view in required:
            for dim, length in zip(view.operand.dims or (), shapes[view.operand.name][0], strict=True):
                if not dim.broadcast:
                    bound.setdefault(dim.symbol, length)
        return {symbol: bound[symbol] for symbol in self.signature.sizes}

    def _operand(self, view: View, lengths: list[str], strides: list[str]) -> Extent:
        """Checks one operand and adds its pointer and outer strides to the variant's arguments."""
        w = self.w
        self._agree(view, lengths)
        data = view.field(w, v.DATA)
        long = [w.compare("sgt", length, "1") for length in lengths]
        inner = w.pick(long[-1], strides[-1], view.itemsize)
        # over a dimension of length 0 or 1 a stride means nothing, and is passed as 0
        outer = [w.pick(yes, stride, "0") for yes, stride in zip(long[:-1], strides[:-1], strict=True)]
        extent = self._layout(view, data, lengths, [*outer, inner])
        self._arguments += [f"ptr {data}", *(f"i64 {stride}" for stride in outer)]
        return extent

    def _agree(self, view: View, lengths: list[str]) -> None:
        w, dims = self.w, view.operand.dims or ()
        for index, (dim, length) in enumerate(zip(dims, lengths, strict=True)):
            size = self.sizes[dim.symbol]
            if size == length:
                continue
            fits = w.compare("eq", length, size)
            # a variant reads its innermost dimension as a run: broadcasting there needs a copy
            if dim.broadcast and index < len(dims) - 1:
                fits = w.either([fits, w.compare("eq", length, "1")])
            w.require(fits)

    def _layout(self, view: View, data: str, lengths: list[str], strides: list[str]) -> Extent:
        """Requires a layout that variants take, and returns the bounds. An empty array may have any layout."""
        w, itemsize = self.w, view.itemsize
        start = v.address(w, data)
        empty = w.either([w.compare("eq", length, "0") for length in lengths])
        spans = [w.op("mul", w.op("sub", length, "1"), stride) for length, stride in zip(lengths, strides, strict=True)]
        steps = start
        for stride in strides[:-1]:
            steps = w.op("or", steps, stride)
        good = [w.compare("eq", strides[-1], itemsize), v.divisible(w, steps, itemsize)]
        low, high, reach = start, w.op("add", start, w.op("add", spans[-1], itemsize)), w.op("add", spans[-1], itemsize)
        for length, stride, span in reversed(list(zip(lengths[:-1], strides[:-1], spans[:-1], strict=True))):
            if view.operand.written:
                steps_over = w.compare("sge", v.magnitude(w, stride), reach)
                good.append(w.either([w.compare("sle", length, "1"), steps_over]))
                reach = w.op("add", reach, v.magnitude(w, span))
            low, high = w.op("add", low, v.least(w, span)), w.op("add", high, v.most(w, span))
        w.require(w.either([empty, w.both(good)]))
        return Extent(w.pick(empty, "0", low), w.pick(empty, "0", high))

    def _optional(self, view: View) -> Extent:
        """As `_operand`, for an operand that may be absent: then its pointer is null and its strides are 0."""
        w = self.w
        cells = [w.cell(view.operand.name, "ptr", "null")]
        cells += [w.cell("stride", "i64", "0") for _ in range(view.operand.strides)]
        bounds = [w.cell("low", "i64", "0"), w.cell("high", "i64", "0")]
        before = len(self._arguments)
        with w.when(view.given):
            extent = self._operand(view, *self._shape(view))
            for cell, argument in zip(cells, self._arguments[before:], strict=True):
                w.do(f"store {argument}, ptr {cell}")
            w.store("i64", extent.low, bounds[0])
            w.store("i64", extent.high, bounds[1])
        types = ["ptr", *["i64"] * view.operand.strides]
        self._arguments[before:] = [f"{t} {w.load(t, cell)}" for t, cell in zip(types, cells, strict=True)]
        return Extent(w.load("i64", bounds[0]), w.load("i64", bounds[1]))


def _leading_broadcast(dims: Sequence[Dim]) -> int:
    """How many leading dimensions an array may lack."""
    return next((index for index, dim in enumerate(dims) if not dim.broadcast), len(dims))
