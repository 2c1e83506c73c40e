"""The Python side of a frozen package: what its native entries do not take as it is.

tunegen copies this file into the package. Calls go to native code; only inputs of another layout (which are copied),
outputs that native code cannot allocate, numbers of numpy's types, and errors come here. In a package of reference
bodies all calls do.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_REFUSED = object()
_OVERLAP_WORK: Any = 1_000_000


class Kernel:
    """A frozen kernel: call it like the function that it was written as. Outputs may be left out."""

    __slots__ = ("__name__", "_package", "_slow")
    __name__: str
    _package: str
    _slow: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Replaced by the native entry."""
        return self._slow(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<frozen kernel {self._package}.{self.__name__}{self._slow.about['signature']}>"

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return _by_name, (self._package, self.__name__)


def _by_name(package: str, name: str) -> Any:
    return getattr(importlib.import_module(package), name)


def load(native: Any, package: str, words: list[dict[str, int]], base_size: int) -> tuple[dict[str, Kernel], Any]:
    """The kernels of a package by name, and what was baked. Raises `ImportError` on a CPU below the lowest class.

    `words` says for each kernel where its table holds which object.
    """
    if refusal := native.refusal():
        raise ImportError(refusal, name=package)
    if Kernel.__basicsize__ != base_size:
        raise ImportError(f"{package} is for CPython with the GIL, and this is another Python", name=package)
    manifest, kernels = json.loads(native.baked()), {}
    type_ = native.subtype(Kernel)
    for number, (name, same) in enumerate(_functions(manifest)):
        strict = _make(type_, package, name, lambda *args: _REFUSED)
        kernels[name] = _make(type_, package, name, _Slow(same, strict))
        for kernel in (strict, kernels[name]):
            native.install(kernel, number, _objects(same[0], words[number], kernel._slow))
    return kernels, manifest


def load_references(bodies: Mapping[str, Any], package: str) -> tuple[dict[str, Kernel], Any]:
    """As `load`, for a package whose kernels are these reference bodies."""
    manifest = json.loads(Path(__file__).with_name("_manifest.json").read_text(encoding="utf-8"))
    slow = {name: _Slow(same, bodies[name]) for name, same in _functions(manifest)}
    return {name: _make(Kernel, package, name, own) for name, own in slow.items()}, manifest


def _functions(manifest: Any) -> list[tuple[str, list[Any]]]:
    """The functions by name, in order: one for each element type."""
    found: dict[str, list[Any]] = {}
    for function in manifest["functions"]:
        found.setdefault(function["name"], []).append(function)
    return list(found.items())


def _make(type_: Any, package: str, name: str, slow: Any) -> Kernel:
    kernel: Kernel = type_()
    kernel.__name__, kernel._package, kernel._slow = name, package, slow
    return kernel


def _objects(about: Mapping[str, Any], words: Mapping[str, int], slow: Any) -> tuple[Any, ...]:
    """The objects of a table: the slow path, what allocates outputs, names of parameters, types of outputs."""
    found: list[Any] = [None] * words["objects"]
    found[words["slow"]], found[words["empty"]] = slow, np.empty
    for index, parameter in enumerate(about["parameters"]):
        found[words["names"] + index] = sys.intern(parameter["name"])
    outputs = [p for p in about["parameters"] if p["kind"] == "array" and p["role"] != "in"]
    dtypes = [_dtype(p, name) for p in outputs for name in about["element_types"]]
    found[words["dtypes"] : words["dtypes"] + len(dtypes)] = dtypes
    return tuple(found)


def _dtype(operand: Mapping[str, Any], element_type: str) -> Any:
    """The type of an operand in a call of this generic element type."""
    own = element_type if operand["generic"] else next(iter(operand["types"]))
    return np.dtype(operand["types"][own])


class _Slow:
    """Takes any call of one kernel: binds and checks it, copies what has another layout, and runs it. `run` is native
    code, which may refuse by its answer, or the reference.
    """

    def __init__(self, functions: list[Any], run: Callable[..., Any]) -> None:
        self.about = functions[0]
        self._name, self._parameters = self.about["name"], self.about["parameters"]
        self._operands = [p for p in self._parameters if p["kind"] == "array"]
        self._baked = [f["element_type"] for f in functions]
        self._run = run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self._bind(args, kwargs)
        arrays = {p["name"]: self._array(p, given[p["name"]]) for p in self._operands if p["name"] in given}
        element_type = self._element_type(arrays)
        sizes, shape = self._sizes(arrays)
        fitting = dict(given)
        for p in self._operands:
            array = arrays.get(p["name"])
            if p["name"] not in given:
                own = shape if p["dims"] is None else tuple(sizes[symbol] for symbol, _ in p["dims"])
                array = arrays[p["name"]] = np.empty(own, _dtype(p, element_type))
            elif array is not None and p["role"] == "in":
                array = self._fit(p, array, arrays, sizes, shape)
            elif array is not None:
                self._check_output(p, array, arrays)
            fitting[p["name"]] = array
        if self._run(*(fitting[p["name"]] for p in self._parameters)) is _REFUSED:
            came = "; ".join(f"{n}: {_describe(a)}" for n, a in arrays.items() if a is not None)
            rules = "sizes that agree, and outputs that are aligned, with elements side by side"
            raise self._error(ValueError, "operands", came, f"{self.about['signature']}, {rules}")
        results = [given.get(p["name"], arrays[p["name"]]) for p in self._operands if p["role"] != "in"]
        return results[0] if len(results) == 1 else tuple(results)

    def _error(self, kind: type[Exception], what: str, came: str, allowed: str) -> Exception:
        return kind(f"{self._name}: {what}: got {came}; allowed: {allowed}")

    def _bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The argument of each parameter, with defaults. Outputs may be missing."""
        names = [p["name"] for p in self._parameters]
        if len(args) > len(names):
            raise self._error(TypeError, "call", f"{len(args)} positional arguments", f"at most {len(names)}")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise self._error(TypeError, "call", f"an unknown argument {name!r}", ", ".join(names))
            if name in given:
                raise self._error(TypeError, f"argument {name}", "two values", "one, by position or by name")
            given[name] = value
        for p in self._parameters:
            name, array = p["name"], p["kind"] == "array"
            if name in given:
                given[name] = given[name] if array else self._number(p, given[name])
            elif array and p["optional"]:
                given[name] = None
            elif not array and p["default"] is not None:
                given[name] = p["default"]
            elif not array or p["role"] != "out":
                raise self._error(TypeError, f"argument {name}", "no argument", self.about["signature"])
        return given

    def _number(self, scalar: Mapping[str, Any], value: Any) -> float | int:
        whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not whole and (scalar["kind"] == "int" or not isinstance(value, float | np.floating)):
            allowed = "an int" if scalar["kind"] == "int" else "a float or an int"
            raise self._error(TypeError, f"argument {scalar['name']}", f"a {type(value).__name__}", allowed)
        if scalar["kind"] == "int" and -(1 << 63) <= value < 1 << 63:
            return int(value)
        try:
            if scalar["kind"] == "float":
                return float(value)
        except OverflowError:
            pass
        raise self._error(ValueError, f"argument {scalar['name']}", "a number out of range", "64 bits")

    def _array(self, operand: Mapping[str, Any], value: Any) -> Any:
        """The value as an array, without a copy."""
        if value is None and operand["optional"]:
            return None
        try:
            array = np.asarray(value if isinstance(value, np.ndarray) else memoryview(value))
        except (TypeError, ValueError, BufferError, NotImplementedError):
            allowed = "an array, or another object with the buffer protocol"
            raise self._error(TypeError, f"operand {operand['name']}", type(value).__name__, allowed) from None
        if array.dtype.isnative and array.dtype.byteorder != "=":
            # an order that is spelled out is in the buffer's format too, which native code does not take
            return array.view(array.dtype.newbyteorder("="))
        return array

    def _element_type(self, arrays: Mapping[str, Any]) -> str:
        """Requires the element types, and returns the generic one."""
        generic = ""
        for p in self._operands:
            array = arrays.get(p["name"])
            if array is None:
                continue
            names = ([generic] if generic else self._baked) if p["generic"] else list(p["types"])
            found = [name for name in names if np.dtype(p["types"][name]) == array.dtype]
            if not found:
                allowed = " or ".join(np.dtype(p["types"][name]).name for name in names)
                raise self._error(TypeError, f"operand {p['name']}", f"element type {array.dtype!r}", allowed)
            generic = found[0] if p["generic"] else generic
        if not generic and any(p["generic"] for p in self._operands):
            raise self._error(TypeError, "call", "no array that gives the element type", "leaving out fewer outputs")
        return generic or str(self._baked[0])

    def _sizes(self, arrays: Mapping[str, Any]) -> tuple[dict[str, int], tuple[int, ...]]:
        """The sizes, and the shape of the result where operands have any rank. Requires ranks and sizes to agree."""
        present = [(p, arrays[p["name"]]) for p in self._operands if arrays.get(p["name"]) is not None]
        if self._operands[0]["dims"] is None:
            return self._spread(present)
        sizes: dict[str, int] = {}
        pairs = [(p, symbol, spreads, n) for p, a in present for symbol, spreads, n in self._lengths(p, a)]
        for p, symbol, spreads, length in pairs:
            if not spreads and not p["optional"]:
                sizes.setdefault(symbol, length)
        for symbol in self.about["sizes"]:
            if symbol not in sizes:
                raise self._error(TypeError, "call", "too few arrays", f"one that gives size {symbol}")
        for p, symbol, spreads, length in pairs:
            if length != sizes[symbol] and not (spreads and length == 1):
                came, allowed = f"{symbol} = {length}", f"{symbol} = {sizes[symbol]}" + ", or 1" * spreads
                raise self._error(ValueError, f"operand {p['name']}", came, allowed)
        return sizes, ()

    def _spread(self, present: list[Any]) -> tuple[dict[str, int], tuple[int, ...]]:
        shapes = [a.shape for p, a in present if p["role"] != "in"] or [a.shape for _, a in present]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            raise self._error(ValueError, "operands", f"shapes {shapes}", "shapes that broadcast to one") from None
        return {"N": math.prod(shape)}, shape

    def _lengths(self, operand: Mapping[str, Any], array: Any) -> Iterator[tuple[str, bool, int]]:
        dims = operand["dims"]
        missing = len(dims) - array.ndim
        if missing < 0 or not all(spreads for _, spreads in dims[:missing]):
            came, allowed = f"shape {array.shape}", f"rank {len(dims)}"
            raise self._error(ValueError, f"operand {operand['name']}", came, allowed)
        for (symbol, spreads), length in zip(dims[missing:], array.shape, strict=True):
            yield symbol, spreads, length

    def _check_output(self, operand: Mapping[str, Any], array: Any, arrays: Mapping[str, Any]) -> None:
        """Requires an output to be writable, and to share no memory with another operand but its own input."""
        what = f"operand {operand['name']}"
        if not array.flags.writeable:
            raise self._error(ValueError, what, "a read-only array", "a writable one: it is an output")
        for p in self._operands:
            other = arrays.get(p["name"])
            if p is operand or other is None or not _share_memory(array, other):
                continue
            inplace = self.about["inplace"] and p["role"] == "in"
            if not (inplace and _same_elements(array, other)):
                came = f"an array that shares memory with operand {p['name']}"
                allowed = "the very same array or memory of its own" if inplace else "memory of its own"
                raise self._error(ValueError, what, came, allowed)

    def _fit(
        self, operand: Mapping[str, Any], array: Any, arrays: Mapping[str, Any], sizes: Mapping[str, int],
        shape: tuple[int, ...],
    ) -> Any:  # fmt: skip
        """An input as native code takes it: the array itself, or a copy."""
        inner = sizes[operand["dims"][-1][0]] if operand["dims"] else (shape or (1,))[-1]
        if array.ndim and array.shape[-1] == 1 != inner:
            return np.array(np.broadcast_to(array, (*array.shape[:-1], inner)), order="C")
        outputs = [arrays[p["name"]] for p in self._operands if p["role"] != "in" and p["name"] in arrays]
        # bounds that overlap without a common element are fine here, but native code compares bounds
        entangled = any(np.may_share_memory(array, out) and not _share_memory(array, out) for out in outputs)
        steps = [stride for length, stride in zip(array.shape, array.strides, strict=True) if length > 1]
        straight = array.flags.aligned and not any(stride % array.itemsize for stride in steps)
        runs = not array.ndim or array.shape[-1] <= 1 or array.strides[-1] == array.itemsize
        return array if straight and runs and not entangled else np.array(array, order="C")


def _same_elements(a: Any, b: Any) -> bool:
    return bool(a.ctypes.data == b.ctypes.data and (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides))


def _share_memory(a: Any, b: Any) -> bool:
    try:
        return bool(np.shares_memory(a, b, max_work=_OVERLAP_WORK))
    except np.exceptions.TooHardError:
        return True


def _describe(array: Any) -> str:
    return f"{array.dtype.name}{list(array.shape)} with strides {array.strides}"
