"""What is baked: for each kernel, element type, regime and class of CPUs the variant that runs, and its object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from tunegen.box import Box
from tunegen.calling import Dispatching, dispatching_of
from tunegen.errors import CompileError, Declined, FreezeError, RenderError
from tunegen.freezing.classes import CpuClass, Platform, target_of
from tunegen.grid import REFERENCE, Value
from tunegen.making.elf import code_digest
from tunegen.making.make import make_object
from tunegen.making.spec import Function, Spec
from tunegen.parallel import Serial
from tunegen.requires import parse_requires
from tunegen.signature import ElementType


class Order(NamedTuple):
    """A kernel and element type to bake. `winners` says for each regime what runs on this box: the suffix, None where
    the regime passes its sizes on, and the source of the choice. It is empty where nothing but the fallback counts.
    `values` are the int parameters'.
    """

    spec: Spec
    element_type: ElementType
    winners: tuple[tuple[str | None, str], ...]
    values: Mapping[str, int]


class Regime(msgspec.Struct, frozen=True, omit_defaults=True):
    """What runs under one size condition. Without a variant, the sizes pass on to the next regime. `source` is that of
    the choice, "fallback" or "manifest" for example; `reason` says why nothing that was asked for before is here, and
    `code` is the digest of the variant's code.
    """

    condition: str = msgspec.field(name="if")
    variant: str | None
    perm: dict[str, Value]
    source: str
    code: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Baked:
    """A function of one element type: `rows` has, per class, the symbol of each regime's variant, or None."""

    scope: str
    function: Function
    element_type: ElementType
    dispatching: Dispatching
    values: dict[str, int]
    regimes: dict[str, list[Regime]]
    rows: tuple[tuple[str | None, ...], ...]

    @property
    def symbol(self) -> str:
        """Name of the function in C, where all libraries of a program share the names: `mylib_gemm_f32`."""
        return f"{self.scope}_{self.function.name}_{self.element_type.name}"


@dataclass(frozen=True)
class Batch:
    """All that is baked, and the objects of its variants by symbol."""

    functions: tuple[Baked, ...]
    images: dict[str, bytes]
    classes: tuple[CpuClass, ...]
    platform: Platform


class _Oven:
    """Makes variants for one class, each once. `tag` tells the clones of different classes apart."""

    def __init__(self, order: Order, cpu_class: CpuClass, platform: Platform, box: Box, tag: str) -> None:
        self.order, self.cpu_class = order, cpu_class
        self._target, self._tag = target_of(cpu_class, platform, box), tag
        self.images: dict[str, bytes] = {}
        self._refused: dict[str, str] = {}

    def symbol(self, function: Function, suffix: str) -> str:
        """Symbol of a variant in this class."""
        return self._named(function).symbol(self.order.element_type, suffix)

    def _named(self, function: Function) -> Function:
        return msgspec.structs.replace(function, name=function.name + self._tag)

    def refusal(self, suffix: str) -> str:
        """Why a suffix cannot be baked, as a sentence; "" when its variants were made, those of companions included."""
        if suffix not in self._refused:
            self._refused[suffix] = self._make(suffix)
        return self._refused[suffix]

    def _make(self, suffix: str) -> str:
        spec, element_type, features = self.order.spec, self.order.element_type, self.cpu_class.features
        row = spec.grid.find(suffix)
        if row is None:
            return f"{suffix} is the reference" if suffix == REFERENCE else f"{suffix} is no row of the grid"
        if missing := parse_requires(row.requires).missing(features):
            return f"{suffix} requires {missing}"
        try:
            made = {
                self.symbol(f, suffix): make_object(
                    self._named(f), row, element_type, spec.templates, features, self._target
                ).image
                for f in spec.functions
            }
        except Declined as declined:
            return f"{suffix} declined: {declined}"
        except (RenderError, CompileError) as error:
            return f"{suffix} failed: {error}"
        self.images.update(made)
        return ""


def bake(orders: Sequence[Order], classes: Sequence[CpuClass], platform: Platform, box: Box, tuned: str) -> Batch:
    """Picks and makes all variants. `tuned` names the class in which the orders' winners count.

    Raises `FreezeError` naming a kernel of which nothing can run in a class.
    """
    functions: list[Baked] = []
    images: dict[str, bytes] = {}
    for order in orders:
        rows: dict[str, list[tuple[str | None, ...]]] = {f.name: [] for f in order.spec.functions}
        regimes: dict[str, list[Regime]] = {}
        for cpu_class in classes:
            oven = _Oven(order, cpu_class, platform, box, f"__{cpu_class.tag}" if len(classes) > 1 else "")
            winners = order.winners if cpu_class.name == tuned else ()
            found = list(_pick(oven, winners))
            regimes[cpu_class.name] = found
            for function in order.spec.functions:
                symbols = [r.variant and oven.symbol(function, r.variant) for r in found]
                rows[function.name].append(tuple(symbols))
                images.update((symbol, oven.images[symbol]) for symbol in symbols if symbol)
        functions += [_baked(order, f, regimes, tuple(rows[f.name])) for f in order.spec.functions]
    return Batch(tuple(functions), dict(sorted(images.items())), tuple(classes), platform)


def _baked(
    order: Order, function: Function, regimes: dict[str, list[Regime]], rows: tuple[tuple[str | None, ...], ...]
) -> Baked:
    spec = order.spec
    dispatching = dispatching_of(function.signature, spec.fallback.conditions, spec.schema, Serial("it is frozen"))
    values = dispatching.completed(order.values)
    return Baked(spec.scope, function, order.element_type, dispatching, values, regimes, rows)


def _pick(oven: _Oven, winners: Sequence[tuple[str | None, str]]) -> Iterator[Regime]:
    """The choice of each regime. Raises `FreezeError` when the unconditional one has none."""
    spec = oven.order.spec
    for number, condition in enumerate(spec.fallback.regimes):
        reasons: list[str] = []
        if winners and winners[number][0] is None:
            yield Regime(condition, None, {}, winners[number][1])
            continue
        wanted = [(suffix, source) for suffix, source in winners[number : number + 1] if suffix]
        wanted += [(suffix, "fallback") for suffix in spec.fallback.chain(number)]
        for suffix, source in wanted:
            # where a chain wants the reference before others, these others are what is left for a native build
            if refusal := oven.refusal(suffix):
                reasons.append(refusal)
                continue
            yield _regime(oven, condition, suffix, source, "; ".join(dict.fromkeys(reasons)))
            break
        else:
            reason = "; ".join(dict.fromkeys(reasons))
            if not condition:
                key = spec.key(oven.order.element_type)
                raise FreezeError(
                    f"{key}: nothing can be baked for {oven.cpu_class.name}: {reason}. The reference is Python, which "
                    "no frozen build holds; leave the kernel out with --only, or put a row that fits into its fallback"
                )
            yield Regime(condition, None, {}, "fallback", reason=reason)


def _regime(oven: _Oven, condition: str, suffix: str, source: str, reason: str) -> Regime:
    spec = oven.order.spec
    row = spec.grid.find(suffix)
    assert row is not None
    code = code_digest(oven.images[oven.symbol(spec.function, suffix)])
    return Regime(condition, suffix, dict(row.perm), source, f"sha256:{code}", reason)
