"""Stamping: from all that a choice depends on to dispatchers that run it. Kernels and bound kernels share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

import msgspec

from tunegen import knobs
from tunegen.box import Box
from tunegen.calling import REFERENCE as REFERENCE_CALLEE
from tunegen.calling import Callee, Dispatcher
from tunegen.choosing.resolve import Outcome, Sources, Stamp, resolve, unstamped
from tunegen.choosing.values import ValueChoice
from tunegen.errors import CompileError, CompilerUnavailable, Declined, RenderError
from tunegen.grid import REFERENCE, Row
from tunegen.making import make
from tunegen.making.spec import Spec
from tunegen.public.setting import Setting, Values
from tunegen.public.sources import warn_once
from tunegen.public.variant import native_entry
from tunegen.signature import ElementType

Family = Mapping[str, make.Linked]


class Stamped(msgspec.Struct, frozen=True):
    """What came of stamping, by name of element type: empty in the modes tune and test, where the reference runs."""

    stamps: Mapping[str, Stamp] = MappingProxyType({})
    choices: Mapping[str, ValueChoice] = MappingProxyType({})

    @property
    def values(self) -> Values:
        """The values of the parameters by name of element type."""
        return {name: MappingProxyType(choice.values) for name, choice in self.choices.items()}


class Maker:
    """Makes variants of one kernel for one box, each once."""

    def __init__(self, spec: Spec, box: Box) -> None:
        self.spec = spec
        self.box = box
        self._made: dict[tuple[str, str], Family] = {}

    def sources(self, setting: Setting, element_type: ElementType) -> Sources:
        """All that the stamp of an element type depends on."""
        return setting.sources(self.spec, element_type, partial(self._make, element_type=element_type))

    def _make(self, row: Row, element_type: ElementType) -> Outcome:
        key = (element_type.name, row.suffix)
        try:
            if key not in self._made:
                self._made[key] = make.make_family(self.spec, row, element_type, self.box)
            return Outcome("ok")
        except Declined as declined:
            return Outcome("declined", str(declined))
        except CompilerUnavailable as error:
            return Outcome("failed", str(error))
        except (RenderError, CompileError) as error:
            warn_once(f"{self.spec.function.symbol(element_type, row.suffix)}: {error}")
            return Outcome("failed", str(error))

    def callees(self, function: str, element_type: str, stamp: Stamp) -> list[Callee | None]:
        """The row of the table of a kernel or companion that runs a stamp."""
        callees: list[Callee | None] = []
        for choice in stamp.choices:
            if choice.emitted is None:
                callees.append(None)
            elif choice.emitted == REFERENCE:
                callees.append(REFERENCE_CALLEE)
            else:
                linked = self._made[element_type, choice.emitted][function]
                callees.append(Callee(linked.address, linked.scratch))
        return callees


def stamp(family: Sequence[Dispatcher], maker: Maker, setting: Setting) -> Stamped:
    """Picks a variant per element type and regime, and installs it in a kernel's dispatcher and its companions'.

    Never raises for what a manifest holds or a variant does. In the modes tune and test, and without a usable
    compiler, the reference runs.
    """
    types = maker.spec.signature.element_types if knobs.MODE.get() == "normal" else ()
    stamps = {t.name: resolve(maker.spec, t, setting.box, maker.sources(setting, t)) for t in types}
    choices = {t.name: setting.values(maker.spec, t) for t in types}
    if problem := _install(family, stamps, choices, maker, setting):
        stamps = {name: unstamped(found, problem) for name, found in stamps.items()}
    return Stamped(MappingProxyType(stamps), MappingProxyType(choices))


def _install(
    family: Sequence[Dispatcher], stamps: Mapping[str, Stamp], choices: Mapping[str, ValueChoice], maker: Maker,
    setting: Setting,
) -> str:  # fmt: skip
    """Installs the stamps: all dispatchers natively or none, for they agree on layouts.

    Returns why none could be, or "".
    """
    problem = ""
    native = any(choice.emitted not in (None, REFERENCE) for stamp in stamps.values() for choice in stamp.choices)
    try:
        entries = [native_entry(dispatcher, maker.box) for dispatcher in family] if native else []
    except CompileError as error:
        problem = f"no native entry: {error}"
        warn_once(f"{maker.spec.name}: it runs its Python reference, for there is {problem}")
        entries = []
    native_names = maker.spec.schema.native
    numbers = {t: {n: v for n in native_names if isinstance(v := c.values[n], int)} for t, c in choices.items()}
    for dispatcher, entry in zip(family, entries, strict=False):
        rows = {t: maker.callees(dispatcher.name, t, s) for t, s in stamps.items()}
        split = dispatcher.dispatching.split is not None and setting.descriptor.threads > 1
        executor = setting.executor() if split else None
        label = _label(dispatcher.name) if executor is not None else 0
        dispatcher.install(entry, rows, values=numbers, executor=executor, label=label)
    for dispatcher in family[len(entries) :]:
        dispatcher.uninstall()
    return problem


def _label(name: str) -> int:
    """The number under which events note a kernel's regions."""
    from tunegen.executor.labels import label_id

    return label_id(name)
