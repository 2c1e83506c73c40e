"""The structures that a native entry reads: the type whose calls go to it, and the table of variants behind it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np

from tunegen.calling.dispatching import Dispatching
from tunegen.signature import Signature

T = TypeVar("T")

SYMBOL = "tunegen_entry"
"""The function that a native entry defines."""

_WORD = ctypes.sizeof(ctypes.c_void_p)
_HEAPTYPE, _HAVE_VECTORCALL = 1 << 9, 1 << 11
_MEMBER_SSIZE, _MEMBER_READONLY, _SLOT_MEMBERS = 19, 1, 72


class Callee(msgspec.Struct, frozen=True):
    """The address of a variant, and that of its scratch function or 0. Address 0 stands for the reference."""

    address: int
    scratch: int = 0


REFERENCE = Callee(0)

Row = Sequence[Callee | None]
"""One callee for each size condition, None where the regime passes on, and the unconditional one at the end."""


class Executor(Protocol):
    """What runs the parts of a call, as native code needs it: the address of its pool.

    The first word of a pool is the function that runs a region, the second the most participants it ever admits. The
    memory of a pool has to stay as long as the executor lives, for a call may be using it.
    """

    @property
    def address(self) -> int: ...


PENDING = 1
"""The pool of calls that wait for one: the first that would be split takes the slow path, which makes the executor."""


class Stamping(msgspec.Struct, frozen=True):
    """What a table is filled with: rows of callees and values of parameters by name of element type, the largest
    product of sizes that keeps the GIL, what calls are split over or what makes it, and the number under which they are
    noted there.
    """

    rows: Mapping[str, Row]
    values: Mapping[str, Mapping[str, int]]
    release_gil_above: int
    executor: Executor | Callable[[], Executor | None] | None = None
    label: int = 0


class _Slot(ctypes.Structure):
    _fields_ = [("slot", ctypes.c_int), ("value", ctypes.c_void_p)]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.c_void_p),
    ]


class _Member(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


_native_types: dict[type, object] = {}
"""Each native type with the structures that Python keeps pointers to."""


def native_type(base: type[T]) -> type[T]:
    """A subtype of `base` whose instances hold the pointer to a native entry and the pointer to its table.

    `base` is a class with `__call__` and `__slots__` alone. Until an entry is set, calls go to `base.__call__`. The
    type is final: CPython 3.11 would send the calls of a subclass to `__call__` for good. Raises `TypeError` for a
    class whose instances have a `__dict__`.
    """
    if base.__dictoffset__ or not any("__call__" in vars(class_) for class_ in base.__mro__):
        raise TypeError(f"{base.__qualname__} cannot have a native entry: it needs __call__, and __slots__ everywhere")
    size = base.__basicsize__
    members = (_Member * 2)(_Member(b"__vectorcalloffset__", _MEMBER_SSIZE, size, _MEMBER_READONLY, None))
    slots = (_Slot * 2)(_Slot(_SLOT_MEMBERS, ctypes.addressof(members)))
    name = f"{base.__module__}.{base.__qualname__}".encode()
    # the garbage collector's part, and tp_call, are inherited
    flags = _HEAPTYPE | _HAVE_VECTORCALL
    spec = _Spec(name, size + 2 * _WORD, 0, flags, ctypes.addressof(slots))
    create: Any = ctypes.pythonapi.PyType_FromSpecWithBases
    create.restype, create.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object]
    created: type[T] = create(ctypes.addressof(spec), (base,))
    created.__doc__ = base.__dict__.get("__doc__")
    _native_types[created] = (members, slots, spec)
    return created


def is_native(type_: type) -> bool:
    """Whether `native_type` made this type."""
    return type_ in _native_types


def table_offset(type_: type) -> int:
    """Where the instances of a native type hold the address of their table, in bytes."""
    return type_.__basicsize__ - _WORD


class TableLayout(msgspec.Struct, frozen=True):
    """Which word of a table is what: the slow path's callable, the largest product of sizes that keeps the GIL,
    `numpy.empty`, the pool that calls are split over, the label of its regions, the interned name of each parameter,
    for each output a dtype a row, and the rows: slots, then values of int parameters.
    """

    slow: int
    limit: int
    empty: int
    pool: int
    label: int
    names: int
    dtypes: int
    rows: int


def table_layout(signature: Signature) -> TableLayout:
    """The layout of the tables behind this signature's entry."""
    names = 5
    dtypes = names + len(signature.parameters)
    return TableLayout(0, 1, 2, 3, 4, names, dtypes, dtypes + len(signature.outputs) * len(signature.element_types))


def row_words(dispatching: Dispatching) -> int:
    """How many words a row has: first a slot for each regime, then a value for each int parameter."""
    return dispatching.columns + len(dispatching.parameters)


class Table:
    """The memory that an entry reads. The owner keeps it alive as long as the entry may be called.

    It may be filled anew while calls run: each word changes at once, and any mixture of old and new words is a table
    whose calls are right.
    """

    __slots__ = ("_dispatching", "_executors", "_kept", "_layout", "_types", "_words")

    def __init__(self, slow: Callable[..., Any], signature: Signature, dispatching: Dispatching) -> None:
        types = signature.element_types
        names = [sys.intern(p.name) for p in signature.parameters]
        dtypes = [signature.type_of(p, t).dtype for p in signature.outputs for t in types]
        self._kept = (slow, np.empty, *names, *dtypes)
        self._types = [t.name for t in types]
        self._dispatching = dispatching
        self._layout = table_layout(signature)
        self._executors: list[Executor] = []
        words = [id(slow), 0, id(np.empty), 0, 0, *map(id, self._kept[2:])]
        self._words = (ctypes.c_int64 * (len(words) + len(types) * row_words(dispatching)))(*words)

    @property
    def address(self) -> int:
        return ctypes.addressof(self._words)

    def fill(self, stamping: Stamping) -> None:
        """Sets all slots and values. An element type without a row gets no callees, and so goes to the slow path."""
        words, layout = self._words, self._layout
        words[layout.limit] = stamping.release_gil_above
        words[layout.label] = stamping.label
        words[layout.pool] = self._pool(stamping.executor)
        for index, name in enumerate(self._types):
            row = stamping.rows.get(name, (None,) * self._dispatching.columns)
            values = self._dispatching.completed(stamping.values.get(name, {}))
            start = layout.rows + index * row_words(self._dispatching)
            for offset, word in enumerate([*map(_pair, row), *values.values()]):
                words[start + offset] = word

    def _pool(self, executor: Executor | Callable[[], Executor | None] | None) -> int:
        """The address of the pool. A call may be using any executor that was ever here, so all are kept."""
        if executor is None:
            return 0
        if callable(executor):
            return PENDING
        if not any(kept is executor for kept in self._executors):
            self._executors.append(executor)
        return executor.address


_pairs: dict[Callee, Any] = {}


def _pair(callee: Callee | None) -> int:
    """The address of the pair that a slot points to. Pairs are never freed: a call may be reading one."""
    if callee is None:
        return 0
    pair = _pairs.get(callee)
    if pair is None:
        pair = _pairs.setdefault(callee, (ctypes.c_void_p * 2)(callee.address or None, callee.scratch or None))
    return ctypes.addressof(pair)


def bind_entry(instance: object, table: Table | None, entry_address: int) -> None:
    """Sets an instance's table and then its entry; address 0 sends its calls to `__call__` again.

    With no table, the one that was set stays: a call may have read the entry's address before it was taken away.
    """
    words = id(instance) + table_offset(type(instance))
    if table is not None:
        ctypes.c_void_p.from_address(words).value = table.address
    ctypes.c_void_p.from_address(words - _WORD).value = entry_address or None
