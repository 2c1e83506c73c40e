"""The slow path: takes any call, binds and checks it, and runs the reference, or a variant on fitting copies."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tunegen import forks
from tunegen.calling.binding import bind
from tunegen.calling.checking import Arrays, Checked, check
from tunegen.calling.layout import Array, contiguous_copy, layout_fault
from tunegen.errors import TunegenError
from tunegen.signature import Operand, Signature

if TYPE_CHECKING:
    from tunegen.calling.dispatch import Dispatcher
    from tunegen.calling.native import Stamping


class _Thread(threading.local):
    """The native call that the slow path is trying in this thread, by kernel and arguments."""

    attempt: tuple[Dispatcher, tuple[Any, ...]] | None = None


_thread = _Thread()
_REFUSED = object()
"""What a native call returns to the slow path that made it, when the entry does not take its arguments."""


def call(kernel: Dispatcher, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The results of a call that the native entry of a kernel did not take. Raises for arguments that are wrong."""
    attempt = _thread.attempt
    if attempt is not None and attempt[0] is kernel and not kwargs and _identical(attempt[1], args):
        return _REFUSED
    kernel.slow_calls += 1
    given = bind(kernel.name, kernel.signature, args, kwargs)
    checked = check(kernel.name, kernel.signature, given)
    stamp = kernel.stamping
    if stamp and kernel.chosen(stamp, checked.element_type.name, checked.sizes):
        _run_native(kernel, stamp, checked, given)
    else:
        kernel.reference(*_arguments(kernel.signature, checked.arrays, given))
    # outputs come back as the objects that were passed, as from a native call
    results = [given.get(p.name, checked.arrays[p.name]) for p in kernel.signature.outputs]
    return results[0] if len(results) == 1 else tuple(results)


def _run_native(kernel: Dispatcher, stamp: Stamping, checked: Checked, given: Mapping[str, Any]) -> None:
    """Runs a variant on fitting copies: that of `stamp`, or of what the kernel is stamped with meanwhile."""
    fitting = {p.name: _fitting(p, checked) for p in kernel.signature.operands}
    arguments = _arguments(kernel.signature, fitting, given)
    while _attempt(kernel, arguments) is _REFUSED:
        kernel.make_executor(stamp)
        with forks.LOCK:
            now = kernel.stamping
        if now is stamp:
            raise TunegenError(f"{kernel.name}: internal error: native code refuses {_describe(arguments)}")
        if now is None or not kernel.chosen(now, checked.element_type.name, checked.sizes):
            kernel.reference(*arguments)
            break
        stamp = now
    for operand in kernel.signature.outputs:
        result, used = checked.arrays[operand.name], fitting[operand.name]
        if result is not None and used is not None and used is not result:
            result[...] = used


def _attempt(kernel: Dispatcher, arguments: tuple[Any, ...]) -> Any:
    """Calls natively. The answer is `_REFUSED` when the entry refuses."""
    before, _thread.attempt = _thread.attempt, (kernel, arguments)
    try:
        return kernel(*arguments)
    finally:
        _thread.attempt = before


def _arguments(signature: Signature, arrays: Arrays, given: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(arrays[p.name] if isinstance(p, Operand) else given[p.name] for p in signature.parameters)


def _fitting(operand: Operand, checked: Checked) -> Array | None:
    """The array, or a copy that the native entry takes."""
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
