"""A kernel's callable: native when it is stamped; what native code does not take goes the slow path, in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import msgspec

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
from tunegen.expressions import MAX_SIZE_BITS
from tunegen.signature import Signature

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


_NO_VALUES: Mapping[str, Mapping[str, int]] = MappingProxyType({})


@cache
def _slow_path() -> Callable[[Dispatcher, tuple[Any, ...], Mapping[str, Any]], Any]:
    """Programs whose calls all run natively do without it, and the rooms that it needs."""
    from tunegen.calling import slow

    return slow.call


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
    def stamping(self) -> Stamping | None:
        """What calls run as now; None for the reference."""
        return self._installed

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
        return self.chosen(self._installed, element_type, sizes)

    def chosen(self, stamp: Stamping | None, element_type: str, sizes: Mapping[str, int]) -> Callee | None:
        """The variant that a call of these sizes runs under `stamp`, or None for the reference."""
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
        return _slow_path()(self, args, kwargs)

    def make_executor(self, stamp: Stamping) -> None:
        """Makes the executor that a split call has waited for, if that is why the entry refuses."""
        if callable(stamp.executor):
            # outside of the lock: a session that gives its executor has one of its own
            executor = stamp.executor()
            with self._install_lock:
                if self._installed is stamp and self._table is not None:
                    self._installed = msgspec.structs.replace(stamp, executor=executor)
                    self._table.fill(self._installed)


Dispatcher.__doc__ = _OfReference("getdoc", Dispatcher.__doc__)  # type: ignore[assignment]

NativeDispatcher = native_type(Dispatcher)
"""What to make instances of."""
