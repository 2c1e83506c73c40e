"""The kernel: what a decorated reference function becomes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tunegen import knobs, log
from tunegen.box import Box, this_box
from tunegen.calling import REFERENCE as REFERENCE_CALLEE
from tunegen.calling import Callee, Dispatcher, native_type
from tunegen.choosing.resolve import Consulted, Outcome, Sources, Stamp, consult, resolve, unstamped
from tunegen.errors import CompileError, CompilerUnavailable, Declined, KernelNotFound, RenderError
from tunegen.grid import REFERENCE, Grid, Row
from tunegen.making import make
from tunegen.making.compile import assembly
from tunegen.making.render import render
from tunegen.making.spec import Function, Spec
from tunegen.public.sources import sources, warn_once
from tunegen.public.variant import ReferenceVariant, Variants, native_entry
from tunegen.signature import ElementType

Family = Mapping[str, make.Linked]


class CompanionMethods(Dispatcher):
    """A sibling of a kernel, stamped with the same perm whenever the kernel is."""

    __slots__ = ("kernel",)

    def __init__(self, kernel: KernelMethods, function: Function) -> None:
        super().__init__(function.name, function.signature, kernel.spec.fallback.conditions, function.reference)
        self.kernel = kernel

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return _by_name, (self.kernel.spec.module, self.name)

    def load(self) -> None:
        """Stamps the kernel, and this with it, unless the kernel is stamped."""
        self.kernel.ensure_loaded()


class KernelMethods(Dispatcher):
    """A reference function with its tuned variants: call it like the function; outputs may be left out.

    `stamp` says what is stamped per element type, `variants()` offers the whole grid in the modes tune and test,
    `ir` and `asm` show a variant's code, `reference` is the Python body.
    """

    __slots__ = ("_made", "_stamps", "_variants", "companions", "spec")

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec.name, spec.signature, spec.fallback.conditions, spec.function.reference)
        self.spec = spec
        self.companions = {f.name: Companion(self, f) for f in spec.companions}
        self._made: dict[tuple[str, str], Family] = {}
        self._stamps: dict[str, Stamp] = {}
        self._variants: Variants | None = None

    def __repr__(self) -> str:
        return f"<kernel {self.spec.scope}:{self.name}{self.signature}>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return _by_name, (self.spec.module, self.name)

    @property
    def stamp(self) -> Mapping[str, Stamp]:
        """The stamp of each element type, frozen until the next `load`."""
        self.ensure_loaded()
        return MappingProxyType(self._stamps)

    def reload(self) -> None:
        """Picks and stamps anew, whatever is stamped now; calls in flight finish on the old code."""
        with self._load_lock:
            self.load()
            self._loaded = True

    def load(self) -> None:
        """Picks and stamps a variant per element type and regime, from what the sources say now.

        Never raises for what a manifest holds or a variant does. In the modes tune and test, and without a usable
        compiler, the reference runs.
        """
        box, stamps = this_box(), {}
        types = self.signature.element_types if knobs.MODE.get() == "normal" else ()
        self._made.clear()
        self._variants = None
        for element_type in types:
            stamps[element_type.name] = resolve(self.spec, element_type, box, self._sources(element_type, box))
        if problem := self._install(stamps, box):
            stamps = {name: unstamped(stamp, problem) for name, stamp in stamps.items()}
        self._stamps = stamps

    def consult(self, element_type: ElementType, regime: int) -> list[Consulted]:
        """What every tier says of one regime, as things are now."""
        box = this_box()
        return consult(self.spec, element_type, box, self._sources(element_type, box), regime)

    def _sources(self, element_type: ElementType, box: Box) -> Sources:
        return sources(self.spec.scope, self.name, box, partial(self._make, element_type=element_type, box=box))

    def _make(self, row: Row, element_type: ElementType, box: Box) -> Outcome:
        key = (element_type.name, row.suffix)
        try:
            if key not in self._made:
                self._made[key] = make.make_family(self.spec, row, element_type, box)
            return Outcome("ok")
        except Declined as declined:
            return Outcome("declined", str(declined))
        except CompilerUnavailable as error:
            return Outcome("failed", str(error))
        except (RenderError, CompileError) as error:
            log.warning("%s: %s", self.spec.function.symbol(element_type, row.suffix), error)
            return Outcome("failed", str(error))

    def _install(self, stamps: Mapping[str, Stamp], box: Box) -> str:
        """Stamps the kernel and its companions: all natively or none, for they agree on layouts.

        Returns why none could be, or "".
        """
        problem = ""
        family = (self, *self.companions.values())
        native = any(choice.emitted not in (None, REFERENCE) for stamp in stamps.values() for choice in stamp.choices)
        try:
            entries = [native_entry(dispatcher, box) for dispatcher in family] if native else []
        except CompileError as error:
            problem = f"no native entry: {error}"
            warn_once(f"{self.name}: it runs its Python reference, for there is {problem}")
            entries = []
        for dispatcher, entry in zip(family, entries, strict=False):
            dispatcher.install(entry, {t: self._callees(dispatcher.name, t, s) for t, s in stamps.items()})
        for dispatcher in family[len(entries) :]:
            dispatcher.uninstall()
        return problem

    def _callees(self, function: str, element_type: str, stamp: Stamp) -> list[Callee | None]:
        callees: list[Callee | None] = []
        for choice in stamp.choices:
            if choice.emitted is None:
                callees.append(None)
            elif choice.emitted == REFERENCE:
                callees.append(REFERENCE_CALLEE)
            else:
                callees.append(Callee(*self._made[element_type, choice.emitted][function]))
        return callees

    def variants(self) -> Variants:
        """Callables by suffix, `reference` first. In mode normal that is all; in tune and test, the whole grid.

        Each is rendered and compiled when it is first called, and raises `Declined`, `RenderError` or `CompileError`
        then. In mode test each call is checked against the reference, and raises `GateError`.
        """
        if self._variants is None:
            mode = knobs.MODE.get()
            grid = self.spec.grid if mode != "normal" else Grid(())
            self._variants = Variants(self.spec, grid, {REFERENCE: ReferenceVariant(self.spec)}, gated=mode == "test")
        return self._variants

    def ir(self, suffix: str, element_type: str | None = None) -> str:
        """LLVM IR of a variant for this box. Raises `KernelNotFound`, `Declined` or `RenderError`."""
        row, t = self._row(suffix, element_type)
        request = self.spec.function.request(row, t, this_box().feature_set)
        return render(self.spec.templates, request)

    def asm(self, suffix: str, element_type: str | None = None) -> str:
        """Assembly of a variant for this box. Raises as `ir` does, or `CompileError`."""
        return assembly(self.ir(suffix, element_type), make.host_target(this_box()))

    def _row(self, suffix: str, element_type: str | None) -> tuple[Row, ElementType]:
        types = {t.name: t for t in self.signature.element_types}
        row = self.spec.grid.find(suffix)
        if row is None:
            raise KernelNotFound(f"{self.name}: {suffix!r} is no row; rows are {self.spec.grid.names()}")
        if element_type is not None and element_type not in types:
            raise KernelNotFound(f"{self.name}: element type {element_type!r}; there are {', '.join(types)}")
        return row, types[element_type or next(iter(types))]


if TYPE_CHECKING:
    Companion = CompanionMethods
    Kernel = KernelMethods
else:
    Companion = native_type(CompanionMethods)
    Kernel = native_type(KernelMethods)


def _by_name(module: str, name: str) -> Any:
    """The kernel or companion that a pickle names."""
    kernel = getattr(importlib.import_module(module), name, None)
    if not isinstance(kernel, KernelMethods | CompanionMethods):
        raise KernelNotFound(f"{module}.{name} is no kernel")
    return kernel
