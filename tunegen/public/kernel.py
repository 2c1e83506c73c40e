"""The kernel: what a decorated reference function becomes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tunegen import knobs
from tunegen.box import this_box
from tunegen.calling import Dispatcher, native_type
from tunegen.choosing.resolve import Consulted, Stamp, consult, resolve
from tunegen.choosing.values import ValueChoice
from tunegen.errors import KernelNotFound
from tunegen.grid import REFERENCE, Grid, Row
from tunegen.making import make
from tunegen.making.compile import assembly
from tunegen.making.render import render
from tunegen.making.spec import Function, Spec
from tunegen.public.setting import Values, process_setting
from tunegen.public.stamping import Maker, Stamped, stamp
from tunegen.public.variant import ReferenceVariant, Variants, dispatching_in
from tunegen.signature import ElementType


class CompanionMethods(Dispatcher):
    """A sibling of a kernel, stamped with the same perm whenever the kernel is."""

    __slots__ = ("kernel",)

    def __init__(self, kernel: KernelMethods, function: Function) -> None:
        super().__init__(function.name, function.signature, dispatching_in(kernel.spec, function), function.reference)
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

    __slots__ = ("_maker", "_stamped", "_variants", "companions", "spec")

    def __init__(self, spec: Spec) -> None:
        super().__init__(spec.name, spec.signature, dispatching_in(spec, spec.function), spec.function.reference)
        self.spec = spec
        self.companions = {f.name: Companion(self, f) for f in spec.companions}
        self._maker: Maker | None = None
        self._stamped = Stamped()
        self._variants: Variants | None = None

    def __repr__(self) -> str:
        return f"<kernel {self.spec.scope}:{self.name}{self.signature}>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        return _by_name, (self.spec.module, self.name)

    @property
    def stamp(self) -> Mapping[str, Stamp]:
        """The stamp of each element type, frozen until the next `load`, or swap of a winner by the policy live."""
        self.ensure_loaded()
        return self._stamped.stamps

    @property
    def values(self) -> Values:
        """The values of the parameters that calls without a session use, by element type; frozen as `stamp` is."""
        self.ensure_loaded()
        return self._stamped.values

    @property
    def value_choices(self) -> Mapping[str, ValueChoice]:
        """Where the values of the parameters come from, by element type; empty before the first call."""
        return self._stamped.choices

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
        setting = process_setting()
        self._maker = Maker(self.spec, setting.box)
        self._variants = None
        self._stamped = stamp((self, *self.companions.values()), self._maker, setting)

    def coming(self, element_type: ElementType) -> Stamp:
        """The stamp that `load` would pick now. Nothing is installed."""
        setting = process_setting()
        sources = Maker(self.spec, setting.box).sources(setting, element_type)
        return resolve(self.spec, element_type, setting.box, sources)

    def consult(self, element_type: ElementType, regime: int) -> list[Consulted]:
        """What every tier says of one regime, as things are now."""
        setting = process_setting()
        kept = self._maker
        maker = kept if kept is not None and kept.box == setting.box else Maker(self.spec, setting.box)
        return consult(self.spec, element_type, setting.box, maker.sources(setting, element_type), regime)

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
