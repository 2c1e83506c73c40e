"""The structures that a native entry reads: the type whose calls go to it, and the table of variants behind it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tunegen.signature import Signature

T = TypeVar("T")

SYMBOL = "tunegen_entry"
"""The function that a native entry defines."""

_WORD = ctypes.sizeof(ctypes.c_void_p)
_HEAPTYPE, _HAVE_VECTORCALL = 1 << 9, 1 << 11
_MEMBER_SSIZE, _MEMBER_READONLY, _SLOT_MEMBERS = 19, 1, 72


class Callee(NamedTuple):
    """The address of a variant, and that of its scratch function or 0. Address 0 stands for the reference."""

    address: int
    scratch: int = 0


REFERENCE = Callee(0)

Row = Sequence[Callee | None]
"""One callee for each size condition, None where the regime passes on, and the unconditional one at the end."""


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


class TableLayout(NamedTuple):
    """Which word of a table is what: the slow path's callable, the largest product of sizes that keeps the GIL,
    `numpy.empty`, the interned name of each parameter, for each output a dtype a row, and for each row its slots.
    """

    slow: int
    limit: int
    empty: int
    names: int
    dtypes: int
    slots: int


def table_layout(signature: Signature) -> TableLayout:
    """The layout of the tables behind this signature's entry."""
    dtypes = 3 + len(signature.parameters)
    return TableLayout(0, 1, 2, 3, dtypes, dtypes + len(signature.outputs) * len(signature.element_types))


class Table:
    """The memory that an entry reads. The owner keeps it alive as long as the entry may be called.

    Slots may be changed while calls run.
    """

    __slots__ = ("_columns", "_kept", "_layout", "_rows", "_words")

    def __init__(self, slow: Callable[..., Any], signature: Signature, columns: int) -> None:
        """`columns` is the number of slots in a row."""
        types = signature.element_types
        names = [sys.intern(p.name) for p in signature.parameters]
        dtypes = [signature.type_of(p, t).dtype for p in signature.outputs for t in types]
        self._kept = (slow, np.empty, *names, *dtypes)
        self._rows = [t.name for t in types]
        self._columns = columns
        self._layout = table_layout(signature)
        words = [id(slow), 0, *map(id, self._kept[1:])]
        self._words = (ctypes.c_int64 * (len(words) + len(types) * columns))(*words)

    @property
    def address(self) -> int:
        return ctypes.addressof(self._words)

    def set(self, rows: Mapping[str, Row], release_gil_above: int) -> None:
        """Fills in all slots. An element type that is not in `rows` gets none, and so goes to the slow path."""
        self._words[self._layout.limit] = release_gil_above
        for index, name in enumerate(self._rows):
            for column, callee in enumerate(rows.get(name, (None,) * self._columns)):
                self._words[self._layout.slots + index * self._columns + column] = _pair(callee)


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
