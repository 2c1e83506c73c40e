"""The native type: methods inherited, calls by vectorcall, and a good citizen of the garbage collector."""

from __future__ import annotations

import copyreg
import functools
import gc
import inspect
import sys
import weakref
from typing import Any

import numpy as np
import pytest

from tests.test_calling_kit import add, add_body, kernel, native
from tunegen.calling import SERIAL, Dispatcher, NativeDispatcher, native_type
from tunegen.calling.native import is_native, table_offset


class Base:
    """Documented."""

    __slots__ = ("__weakref__", "held")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self, args, kwargs

    def method(self) -> str:
        return "inherited"


Native: Any = native_type(Base)


def test_without_an_entry_calls_go_to_python() -> None:
    made = Native()
    assert made(1, a=2) == (made, (1,), {"a": 2})
    assert functools.partial(made, 1)() == (made, (1,), {})
    assert made.method() == "inherited"
    assert isinstance(made, Base)
    assert Native.__doc__ == "Documented."
    assert Native.__name__ == "Base"


def test_the_type_has_vectorcall_and_room_for_two_words() -> None:
    assert Native.__flags__ & 1 << 11
    assert Native.__basicsize__ == Base.__basicsize__ + 16
    assert table_offset(Native) == Base.__basicsize__ + 8
    assert is_native(Native)
    assert not is_native(Base)


def test_it_is_final() -> None:
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (Native,), {})


def test_a_class_with_a_dict_or_without_call_is_refused() -> None:
    class WithDict:
        def __call__(self) -> None: ...

    class NoCall:
        __slots__ = ()

    for base in (WithDict, NoCall):
        with pytest.raises(TypeError, match="cannot have a native entry: it needs __call__, and __slots__ everywhere"):
            native_type(base)


def test_instances_are_collected_and_leak_nothing() -> None:
    held = object()
    types, objects = sys.getrefcount(Native), sys.getrefcount(held)
    for _ in range(1000):
        made = Native()
        made.held = held
    del made
    assert abs(sys.getrefcount(Native) - types) < 5
    assert sys.getrefcount(held) == objects
    cycle = Native()
    cycle.held = [cycle]
    assert gc.is_tracked(cycle)
    alive = weakref.ref(cycle)
    del cycle
    gc.collect()
    assert alive() is None


def test_a_stamped_kernel_is_collected() -> None:
    made = native(add, add_body)
    made(np.zeros(3, "f4"), np.zeros(3, "f4"))
    alive = weakref.ref(made)
    assert alive in weakref.getweakrefs(made)
    del made
    gc.collect()
    assert alive() is None


def test_a_kernel_looks_like_its_reference() -> None:
    made = native(add, add_body)
    assert made.name == made.__name__ == "add"
    assert made.__doc__ == inspect.getdoc(made) == "Adds."
    assert inspect.signature(made) == inspect.signature(add)
    assert made.reference is add
    assert "A callable over one signature" in str(Dispatcher.__doc__)
    assert Dispatcher.__doc__ == NativeDispatcher.__doc__
    assert repr(made) == "<Dispatcher add(x: in f32|f64[...], y: in f32|f64[...], out: out f32|f64[...])>"
    with pytest.raises(AttributeError):
        made.anything = 1


def test_every_way_to_call_goes_to_the_entry() -> None:
    made = native(add, add_body)
    x = np.ones(3, "f4")
    for call in (made, made.__call__, functools.partial(made), lambda *a: Dispatcher.__call__(made, *a)):
        out = np.zeros(3, "f4")
        assert call(x, x, out) is out
        assert (out == 2).all()
    assert next(map(made, [x], [x], [out])) is out
    assert made.slow_calls == 0


def test_a_kernel_without_an_entry_runs_the_reference() -> None:
    made = kernel(add)
    x = np.ones(3, "f4")
    out = np.zeros(3, "f4")
    assert made(x, x, out) is out
    assert (out == 2).all()
    assert made.slow_calls == 1


def test_a_subclass_keeps_its_own_words_and_slots() -> None:
    class Named(Dispatcher):
        """Mine."""

        __slots__ = ("extra",)

    made: Any = native_type(Named)("add", kernel(add).signature, SERIAL, add)
    made.extra = copyreg
    assert made.extra is copyreg
    assert made.__doc__ == "Adds."
    assert Named.__doc__ == "Mine."
    assert type(made).__basicsize__ == Named.__basicsize__ + 16
