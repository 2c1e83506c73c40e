"""A kernel's callable: native when it is stamped, with a Python slow path that converts, explains or refuses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tunegen import forks
from tunegen.calling.dispatching import Dispatching
from tunegen.calling.native import (
    Callee,
    Executor,
    Row,
    Stamping,
    Table,
    bind_entry,
    is_native,
    native_type,
    table_offset,
)
from tunegen.errors import TunegenError
from tunegen.expressions import MAX_SIZE_BITS
from tunegen.signature import Operand, Signature

if TYPE_CHECKING:
    from tunegen.calling.checking import Arrays, Checked
    from tunegen.calling.layout import Array

RELEASE_GIL_ABOVE = 1 << 15
"""Products of sizes that take some microseconds: giving the GIL away and taking it back costs about 30 ns."""


class _OfReference:
    """An attribute that instances take from their reference, through `inspect`. The class keeps its own."""

    def __init__(self, reader: str, of_class: object = None) -> None:
        self._reader = reader
        self._of_class = of_class

    def __get__(self, instance: Dispatcher | None, owner: type | None = None) -> Any:
        if instance is None:
            return self._of_class
        import inspect

        return getattr(inspect, self._reader)(instance.reference)


class _Thread(threading.local):
    """The native call that the slow path is trying in this thread, by kernel and arguments."""

    attempt: tuple[Dispatcher, tuple[Any, ...]] | None = None


_NO_VALUES: Mapping[str, Mapping[str, int]] = MappingProxyType({})
_thread = _Thread()
_REFUSED = object()
"""What a native call returns to the slow path that made it, when the entry does not take its arguments."""


class Dispatcher:
    """A callable over one signature. Calls run natively once `install` was called, else the reference.

    Make instances of `NativeDispatcher`, or of `native_type` of a subclass: this class alone cannot be installed.
    `slow_calls` counts the calls that took the slow path.
    """

    __slots__ = (
        "__weakref__",
        "_install_lock",
        "_installed",
        "_load_lock",
        "_loaded",
        "_loading",
        "_table",
        "dispatching",
        "name",
        "reference",
        "signature",
        "slow_calls",
    )
    __signature__ = _OfReference("signature")

    def __init__(
        self, name: str, signature: Signature, dispatching: Dispatching, reference: Callable[..., Any]
    ) -> None:
        self.name = name
        self.signature = signature
        self.dispatching = dispatching
        self.reference = reference
        self.slow_calls = 0
        self._table: Table | None = None
        self._installed: Stamping | None = None
        self._loaded = self._loading = False
        self._load_lock = self._install_lock = forks.LOCK

    def __init_subclass__(cls) -> None:
        cls.__doc__ = _OfReference("getdoc", cls.__doc__)  # type: ignore[assignment]

    @property
    def __name__(self) -> str:
        return str(getattr(self.reference, "__name__", self.name))

    def __repr__(self) -> str:
        return f"<{type(self).__qualname__} {self.name}{self.signature}>"

    @property
    def table_offset(self) -> int:
        """Where the entry finds the address of the table in this object: an argument of `entry_ir`."""
        return table_offset(type(self))

    @property
    def installed(self) -> bool:
        """Whether calls go to a native entry."""
        return self._installed is not None

    def load(self) -> None:
        """A hook: the first call runs it, once, before anything else. It may call `install`."""

    def install(
        self,
        entry_address: int,
        rows: Mapping[str, Row],
        release_gil_above: int = RELEASE_GIL_ABOVE,
        values: Mapping[str, Mapping[str, int]] = _NO_VALUES,
        executor: Executor | Callable[[], Executor | None] | None = None,
        label: int = 0,
    ) -> None:
        """Sends calls to the entry, and its calls to the callees of `rows`, which has a row for each element type name.

        A row has one callee for each size condition and the unconditional one at the end. `values` holds the int
        parameters of each element type; those that are missing have their defaults. Calls are split over `executor`,
        where the kernel has a split and it says so, and noted there under `label`; a function is asked for an executor
        when a call first needs it; without one, all run serial. May be called again at any time: calls that run finish
        on the old code and the old executor. The code must stay mapped for the life of the process. Raises `TypeError`
        for an instance of a class that `native_type` did not make, `ValueError` for rows or values that do not fit.
        """
        if not is_native(type(self)):
            raise TypeError(f"{self.name}: {type(self).__qualname__} takes no native entry: make it with native_type")
        self._require_fitting(rows, values)
        own = {t.name: self.dispatching.completed(values.get(t.name, {})) for t in self.signature.element_types}
        rows = {name: tuple(row) for name, row in rows.items()}
        stamping = Stamping(rows, own, release_gil_above, executor, label)
        with self._install_lock:
            table = self._table or Table(self._slow, self.signature, self.dispatching)
            table.fill(stamping)
            self._table = table
            bind_entry(self, table, entry_address)
            self._installed = stamping

    def _require_fitting(self, rows: Mapping[str, Row], values: Mapping[str, Mapping[str, int]]) -> None:
        types, columns = [t.name for t in self.signature.element_types], self.dispatching.columns
        if not set(rows) <= set(types) or any(len(row) != columns for row in rows.values()):
            raise ValueError(f"{self.name}: rows are {', '.join(types)} with {columns} callees each, not {dict(rows)}")
        known = self.dispatching.parameters
        for name, value in ((name, value) for own in values.values() for name, value in own.items()):
            if name not in known or value >> MAX_SIZE_BITS:
                raise ValueError(f"{self.name}: {name}={value}: no int parameter, or not below 2**{MAX_SIZE_BITS}")

    def run_serially(self) -> None:
        """Sends later calls to no executor: each runs on the thread of its caller alone."""
        with self._install_lock:
            if self._installed is not None and self._table is not None:
                self._installed = msgspec.structs.replace(self._installed, executor=None)
                self._table.fill(self._installed)

    def uninstall(self) -> None:
        """Sends calls to the reference. The table stays, for calls that already read it."""
        with self._install_lock:
            if self._installed is not None:
                self._installed = None
                bind_entry(self, None, 0)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What serves calls while no entry is installed; afterwards they do not come here."""
        if not self._loaded:
            self.ensure_loaded()
        if self._installed is not None:
            return self(*args, **kwargs)
        return self._slow(*args, **kwargs)

    def choose(self, element_type: str, sizes: Mapping[str, int]) -> Callee | None:
        """The variant that a call of these sizes runs, or None for the reference."""
        return self._choose(self._installed, element_type, sizes)

    def _choose(self, stamp: Stamping | None, element_type: str, sizes: Mapping[str, int]) -> Callee | None:
        if stamp is None:
            return None
        row = stamp.rows.get(element_type, (None,))
        names = {**stamp.values[element_type], **sizes}
        regimes = zip(row, self.dispatching.conditions, strict=False)
        chosen = next((callee for callee, condition in regimes if callee and condition(names)), row[-1])
        return chosen if chosen and chosen.address else None

    def ensure_loaded(self) -> None:
        """Runs `load` if no call has yet."""
        forks.go_before("logging")
        with self._load_lock:
            # a call that `load` itself makes comes here in the same thread, and runs the reference
            if self._loaded or self._loading:
                return
            self._loading = True
            try:
                self.load()
                self._loaded = True
            finally:
                self._loading = False

    def _slow(self, *args: Any, **kwargs: Any) -> Any:
        """Takes any call: binds and checks it, then runs the reference, or a variant on fitting copies."""
        attempt = _thread.attempt
        if attempt is not None and attempt[0] is self and not kwargs and _identical(attempt[1], args):
            return _REFUSED
        # programs whose calls all run natively do without these rooms
        from tunegen.calling.binding import bind
        from tunegen.calling.checking import check

        self.slow_calls += 1
        given = bind(self.name, self.signature, args, kwargs)
        checked = check(self.name, self.signature, given)
        stamp = self._installed
        if stamp and self._choose(stamp, checked.element_type.name, checked.sizes):
            self._run_native(stamp, checked, given)
        else:
            self.reference(*self._arguments(checked.arrays, given))
        # outputs come back as the objects that were passed, as from a native call
        results = [given.get(p.name, checked.arrays[p.name]) for p in self.signature.outputs]
        return results[0] if len(results) == 1 else tuple(results)

    def _attempt(self, arguments: tuple[Any, ...]) -> Any:
        """Calls natively. The answer is `_REFUSED` when the entry refuses."""
        before, _thread.attempt = _thread.attempt, (self, arguments)
        try:
            return self(*arguments)
        finally:
            _thread.attempt = before

    def _arguments(self, arrays: Arrays, given: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(arrays[p.name] if isinstance(p, Operand) else given[p.name] for p in self.signature.parameters)

    def _make_executor(self, stamp: Stamping) -> None:
        """Makes the executor that a split call has waited for, if that is why the entry refuses."""
        if callable(stamp.executor):
            # outside of the lock: a session that gives its executor has one of its own
            executor = stamp.executor()
            with self._install_lock:
                if self._installed is stamp and self._table is not None:
                    self._installed = msgspec.structs.replace(stamp, executor=executor)
                    self._table.fill(self._installed)

    def _run_native(self, stamp: Stamping, checked: Checked, given: Mapping[str, Any]) -> None:
        """Runs a variant on fitting copies: that of `stamp`, or of what the kernel is stamped with meanwhile."""
        fitting = {p.name: _fitting(p, checked) for p in self.signature.operands}
        arguments = self._arguments(fitting, given)
        while self._attempt(arguments) is _REFUSED:
            self._make_executor(stamp)
            with self._install_lock:
                now = self._installed
            if now is stamp:
                raise TunegenError(f"{self.name}: internal error: native code refuses {_describe(arguments)}")
            if now is None or not self._choose(now, checked.element_type.name, checked.sizes):
                self.reference(*arguments)
                break
            stamp = now
        for operand in self.signature.outputs:
            result, used = checked.arrays[operand.name], fitting[operand.name]
            if result is not None and used is not None and used is not result:
                result[...] = used


def _fitting(operand: Operand, checked: Checked) -> Array | None:
    """The array, or a copy that the native entry takes."""
    from tunegen.calling.layout import contiguous_copy, layout_fault

    array = checked.arrays[operand.name]
    if array is None:
        return None
    entangled = operand.name in checked.entangled
    if operand.written:
        return contiguous_copy(array) if entangled else array
    inner_size = checked.sizes[operand.dims[-1].symbol] if operand.dims else (checked.shape or (1,))[-1]
    if array.shape[-1:] == (inner_size,) or not (operand.dims or checked.shape):
        return contiguous_copy(array) if entangled or layout_fault(array, written=False) else array
    return contiguous_copy(array, inner_size)


def _identical(these: tuple[Any, ...], those: tuple[Any, ...]) -> bool:
    return len(these) == len(those) and all(a is b for a, b in zip(these, those, strict=True))


def _describe(arguments: tuple[Any, ...]) -> str:
    return ", ".join(
        f"{a.dtype.name}{list(a.shape)} with strides {a.strides}" if isinstance(a, np.ndarray) else repr(a)
        for a in arguments
    )


Dispatcher.__doc__ = _OfReference("getdoc", Dispatcher.__doc__)  # type: ignore[assignment]

NativeDispatcher = native_type(Dispatcher)
"""What to make instances of."""
