"""Refused calls: the type of the error, the kernel and operand it names, and that nothing was written."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.test_calling_kit import add, add_body, element, kernel, native, rows, rows_body
from tunegen.calling.entry.ir import Writer
from tunegen.signature import ElementType, In, InOut, Out, f32, floats

X = np.arange(12, dtype="f4").reshape(3, 4)
LONG = np.arange(96, dtype="f4")


def power(x: In[floats, "M", "N"], out: Out[floats, "M", "N"], a: float, k: int = 2) -> None:
    out[...] = a * x**k


def power_body(w: Writer, t: ElementType) -> None:
    with w.countdown("%M") as m, w.countdown("%N") as n:
        w.store(t.llvm, w.load(t.llvm, element(w, t, "x", m, n)), element(w, t, "out", m, n))


def halve(x: InOut[f32, "N"], extra: Out[f32, "K"]) -> None:
    x /= 2


def halve_body(w: Writer, t: ElementType) -> None:
    pass


BODIES: dict[str, tuple[Any, Any]] = {
    "add": (add, add_body),
    "rows": (rows, rows_body),
    "power": (power, power_body),
    "halve": (halve, halve_body),
}


@pytest.fixture(params=["native", "reference"])
def kernels(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The same errors come whether a variant is stamped or the reference runs."""
    if request.param == "reference":
        return {name: kernel(reference) for name, (reference, _) in BODIES.items()}
    return {name: native(reference, body) for name, (reference, body) in BODIES.items()}


def out_like_x() -> Any:
    return np.full((3, 4), 7, "f4")


def misaligned(n: int) -> Any:
    return np.zeros(4 * n + 1, "u1")[1:].view("f4")


def read_only() -> Any:
    out = out_like_x()
    out.flags.writeable = False
    return out


def overlapping_rows() -> Any:
    return np.lib.stride_tricks.as_strided(np.full(100, 7, "f4"), (3, 4), (8, 4))


FAULTS: dict[str, tuple[str, Any, type[Exception], str]] = {
    "integers": (
        "add",
        lambda out: (X.astype("i4"), X, out),
        TypeError,
        r"add: operand x: got element type dtype\('int32'\); allowed: float32 or float64",
    ),
    "halfs": (
        "add",
        lambda out: (X, X.astype("f2"), out),
        TypeError,
        r"add: operand y: got .*float16.*allowed: float32, as operand x has",
    ),
    "big-endian": (
        "add",
        lambda out: (X.astype(">f4"), X, out),
        TypeError,
        r"add: operand x: got element type dtype\('>f4'\); allowed: .* in native byte order",
    ),
    "big-endian output": (
        "rows",
        lambda out: (X, X, out.astype(">f4")),
        TypeError,
        r"rows: operand out: got element type dtype\('>f4'\); allowed: float32",
    ),
    "mixed types": (
        "add",
        lambda out: (X, X.astype("f8"), out),
        TypeError,
        r"add: operand y: got .*float64.*allowed: float32, as operand x has",
    ),
    "mixed output": (
        "add",
        lambda out: (X, X, out.astype("f8")),
        TypeError,
        r"add: operand out: got .*float64.*allowed: float32",
    ),
    "concrete type": (
        "rows",
        lambda out: (X.astype("f8"), X, out),
        TypeError,
        r"rows: operand x: got .*float64.*allowed: float32",
    ),
    "complex": ("add", lambda out: (X.astype("c8"), X, out), TypeError, "add: operand x: got .*complex64"),
    "objects": ("add", lambda out: (X.astype(object), X, out), TypeError, "add: operand x: got element type dtype"),
    "records": ("add", lambda out: (np.zeros(3, "f4,f4"), X, out), TypeError, "add: operand x: got element type dtype"),
    "a list": ("add", lambda out: (X.tolist(), X, out), TypeError, "add: operand x: got list; allowed: an array"),
    "a tuple": (
        "rows",
        lambda out: (X, (1.0, 2.0, 3.0, 4.0), out),
        TypeError,
        "rows: operand b: got tuple; allowed: an array",
    ),
    "a number": ("add", lambda out: (X, 1.0, out), TypeError, "add: operand y: got float; allowed: an array"),
    "None": ("add", lambda out: (X, None, out), TypeError, "add: operand y: got NoneType"),
    "None as output": ("add", lambda out: (X, X, None), TypeError, "add: operand out: got NoneType; .*leave it out"),
    "text": ("add", lambda out: ("x", X, out), TypeError, "add: operand x: got str"),
    "bytes": ("add", lambda out: (b"1234", X, out), TypeError, "add: operand x: got element type dtype"),
    "list as output": ("add", lambda out: (X, X, X.tolist()), TypeError, "add: operand out: got list"),
    "odd buffer": ("add", lambda out: ((ctypes.c_void_p * 4)(), X, out), TypeError, "add: operand x: got "),
    "rank": (
        "rows",
        lambda out: (X[0], X[0], out),
        ValueError,
        r"rows: operand x: got rank 1 \(shape \(4,\)\); allowed: rank 2",
    ),
    "rank that may vary": (
        "rows",
        lambda out: (X, X[None], out),
        ValueError,
        "rows: operand b: got rank 3 .*allowed: rank 1 to 2",
    ),
    "rank of an output": ("rows", lambda out: (X, X, out[None]), ValueError, "rows: operand out: got rank 3"),
    "size": (
        "rows",
        lambda out: (X, X[:2], out),
        ValueError,
        r"rows: operand b: got shape \(2, 4\), so M = 2; allowed: M = 3, as operand x has, or 1",
    ),
    "inner size": (
        "rows",
        lambda out: (X, X[:, :1], out),
        ValueError,
        "rows: operand b: got .*so N = 1; allowed: N = 4, as operand x has$",
    ),
    "size of an output": (
        "rows",
        lambda out: (X, X, out[:2]),
        ValueError,
        r"rows: operand out: got shape \(2, 4\), so M = 2; allowed: M = 3",
    ),
    "shape": (
        "add",
        lambda out: (X, X[:2], out),
        ValueError,
        r"add: operand y: got shape \(2, 4\); allowed: what broadcasts to \(3, 4\)",
    ),
    "too many dimensions": ("add", lambda out: (X[None], X, out), ValueError, r"add: operand x: got shape \(1, 3, 4\)"),
    "output would broadcast": ("add", lambda out: (X, X, out[:1]), ValueError, r"add: operand x: got shape \(3, 4\)"),
    "shapes without output": (
        "add",
        lambda out: (X, X[:2]),
        ValueError,
        r"add: inputs: got x of shape \(3, 4\), y of shape \(2, 4\)",
    ),
    "read-only output": ("add", lambda out: (X, X, read_only()), ValueError, "add: operand out: got a read-only array"),
    "read-only buffer": (
        "add",
        lambda out: (X, X, memoryview(bytes(48)).cast("f", (3, 4))),
        ValueError,
        "add: operand out: got a read-only array",
    ),
    "numpy scalar as output": (
        "add",
        lambda out: (X[0, 0], X[0, 0], np.float32(1)),
        ValueError,
        "add: operand out: got a read-only array",
    ),
    "misaligned output": (
        "add",
        lambda out: (X[0], X[0], misaligned(4)),
        ValueError,
        "add: operand out: got data at address .*allowed: an address that is a multiple of 4",
    ),
    "strided output": (
        "add",
        lambda out: (X[:, :2], X[:, :2], out[:, ::2]),
        ValueError,
        "add: operand out: got an inner stride of 8 bytes; allowed: 4",
    ),
    "reversed output": (
        "rows",
        lambda out: (X, X, out[:, ::-1]),
        ValueError,
        "rows: operand out: got an inner stride of -4 bytes",
    ),
    "transposed output": (
        "add",
        lambda out: (X.T, X.T, out.T),
        ValueError,
        "add: operand out: got an inner stride of 16 bytes",
    ),
    "output over itself": (
        "add",
        lambda out: (X, X, overlapping_rows()),
        ValueError,
        "add: operand out: got a stride of 8 bytes in dimension 0; allowed: 16 or more",
    ),
    "one row for all": (
        "rows",
        lambda out: (X, X, np.lib.stride_tricks.as_strided(out, (3, 4), (0, 4))),
        ValueError,
        "rows: operand out: got a stride of 0 bytes",
    ),
    "same array": (
        "rows",
        lambda out: (out, X, out),
        ValueError,
        "rows: operand out: got an array that shares memory with operand x; allowed: memory of its own",
    ),
    "shifted": (
        "add",
        lambda out: (LONG[:8], LONG[:8], LONG[7:15]),
        ValueError,
        "add: operand out: got an array that shares memory with operand x",
    ),
    "interleaved": (
        "add",
        lambda out: (LONG[:16:2], LONG[:8], LONG[:8]),
        ValueError,
        "add: operand out: got an array that shares memory",
    ),
    "two outputs": (
        "halve",
        lambda out: (out[0], out[0]),
        ValueError,
        "halve: operand x: got an array that shares memory with operand extra",
    ),
    "missing": ("add", lambda out: (X,), TypeError, "add: operand y: got no argument; allowed: an array"),
    "missing scalar": (
        "power",
        lambda out: (X, out),
        TypeError,
        "power: argument a: got no argument; allowed: one of type float",
    ),
    "nothing": ("add", lambda out: (), TypeError, "add: operand x: got no argument"),
    "output that gives a size": (
        "halve",
        lambda out: (out[0],),
        TypeError,
        "halve: operand extra: got no argument; allowed: an array: nothing else gives size K",
    ),
    "surplus": (
        "add",
        lambda out: (X, X, out, 1.0),
        TypeError,
        "add: call: got 4 positional arguments; allowed: at most 3: x, y, out",
    ),
    "text for float": (
        "power",
        lambda out: (X, out, "1.5"),
        TypeError,
        "power: argument a: got '1.5' of type str; allowed: a float or an int",
    ),
    "bool for float": ("power", lambda out: (X, out, True), TypeError, "power: argument a: got True of type bool"),
    "array for float": (
        "power",
        lambda out: (X, out, np.ones(1)),
        TypeError,
        "power: argument a: got .* of type ndarray",
    ),
    "complex for float": ("power", lambda out: (X, out, 1j), TypeError, "power: argument a: got 1j of type complex"),
    "None for float": ("power", lambda out: (X, out, None), TypeError, "power: argument a: got None"),
    "int beyond float": (
        "power",
        lambda out: (X, out, 10**400),
        ValueError,
        "power: argument a: got 1000.* of type int; allowed: a number in the range of float",
    ),
    "int beyond printing": (
        "power",
        lambda out: (X, out, 10**6000),
        ValueError,
        "power: argument a: got a number too large to print",
    ),
    "float for int": (
        "power",
        lambda out: (X, out, 1.5, 2.0),
        TypeError,
        "power: argument k: got 2.0 of type float; allowed: an int",
    ),
    "bool for int": ("power", lambda out: (X, out, 1.5, True), TypeError, "power: argument k: got True of type bool"),
    "numpy bool for int": (
        "power",
        lambda out: (X, out, 1.5, np.bool_(True)),
        TypeError,
        "power: argument k: got .*bool",
    ),
    "int of 65 bits": (
        "power",
        lambda out: (X, out, 1.5, 1 << 63),
        ValueError,
        "power: argument k: got 9223372036854775808 of type int; allowed: an int of 64 bits",
    ),
    "unsigned numpy int": (
        "power",
        lambda out: (X, out, 1.5, np.uint64(1 << 63)),
        ValueError,
        "power: argument k: got .*allowed: an int of 64 bits",
    ),
    "huge size": (
        "add",
        lambda out: (np.broadcast_to(X[0, :1], (1 << 40, 1 << 9)),) * 2,
        ValueError,
        "add: size N: got 562949953421312; allowed: less than",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_refused(kernels: dict[str, Any], fault: str) -> None:
    name, make, error, message = FAULTS[fault]
    out = out_like_x()
    long, x = LONG.copy(), X.copy()
    with pytest.raises(error, match=f"^{message}"):
        kernels[name](*make(out))
    assert (out == 7).all()
    np.testing.assert_array_equal(LONG, long)
    np.testing.assert_array_equal(X, x)


@pytest.mark.parametrize(
    ("args", "keywords", "message"),
    [
        ((X, X), {"result": None}, "add: call: got an unknown argument 'result'; allowed: x, y, out"),
        ((X, X), {"x": X}, "add: argument x: got two values; allowed: one, by position or by name"),
        ((X, X, X), {"out": X}, "add: argument out: got two values"),
        ((X,), {"out": X}, "add: operand y: got no argument"),
        ((), {"y": X, "out": X}, "add: operand x: got no argument"),
        ((X, X, X), {"a": 1, "b": 2}, "add: call: got an unknown argument 'a'"),
    ],
)
def test_refused_keywords(kernels: dict[str, Any], args: Any, keywords: Any, message: str) -> None:
    with pytest.raises(TypeError, match=f"^{message}"):
        kernels["add"](*args, **keywords)


def test_an_error_of_the_reference_comes_through() -> None:
    def broken(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        kernel(broken)(np.zeros(3, "f4"))


def test_an_array_like_that_would_be_copied_is_refused_without_asking_it() -> None:
    class Lazy:
        def __array__(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("converted")

    with pytest.raises(TypeError, match="got Lazy; allowed: an array, or another object with the buffer protocol"):
        native(add, add_body)(Lazy(), X, out_like_x())


def test_a_size_given_by_an_inner_dimension_of_stride_0_is_limited() -> None:
    """A size that no memory holds is refused before anything is copied or run."""
    wide = np.broadcast_to(X[:, :1], (3, 1 << 50))
    with pytest.raises(ValueError, match="rows: size N: got 1125899906842624; allowed: less than 2"):
        native(rows, rows_body)(wide, wide, wide)
