"""Frozen builds of shipped kernels, as C, ctypes and Python call them."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frozen import HOST, isolated, output, program

import tunegen.kernels as shipped
from tunegen.freezing.export import Build, export

pytestmark = pytest.mark.skipif(HOST is None, reason="frozen builds are for Linux on x86-64 and AArch64")


@pytest.fixture(scope="module")
def frozen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of two kernels for this box."""
    folder = tmp_path_factory.mktemp("kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNE_CACHE", str(folder / "cache"))
        export(
            shipped.scope,
            folder / "frozen",
            Build("fallback", only=("gemm[f32]", "softmax[f64]", "add[f32]"), python=True),
        )
    return folder / "frozen"


@pytest.fixture
def library(frozen: Path, monkeypatch: pytest.MonkeyPatch) -> ctypes.CDLL:
    # the same objects again
    monkeypatch.setenv("TUNE_CACHE", str(frozen.parent / "cache"))
    return ctypes.CDLL(str(frozen / "libkernels.so"))


def pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data if array is not None else None)


def sizes(*values: int) -> list[ctypes.c_int64]:
    return [ctypes.c_int64(value) for value in values]


@pytest.mark.parametrize("m", [0, 1, 3, 37])
def test_ctypes_calls_every_regime(frozen: Path, library: ctypes.CDLL, m: int) -> None:
    rng = np.random.default_rng(m)
    sizes_in_order = json.loads((frozen / "kernels.json").read_text())["functions"][1]["sizes"]
    assert sizes_in_order == ["M", "K", "N"]
    wide = rng.standard_normal((m, 101)).astype(np.float32)
    a, b = wide[:, :53], rng.standard_normal((53, 41)).astype(np.float32)
    c = np.full((m, 41), np.nan, np.float32)
    rows = [x for z in (a, b, c) for x in (pointer(z), ctypes.c_int64(z.strides[0] // 4))]
    assert library.kernels_gemm_f32(*rows, *sizes(m, 53, 41)) == 0
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    if m == 37:
        assert c.tobytes() == shipped.gemm(a, b).tobytes(), "the code is that of an untuned process"


def test_scalars_and_an_optional_operand_that_repeats(library: ctypes.CDLL) -> None:
    rng = np.random.default_rng(0)
    x, mask = rng.standard_normal((5, 33)), rng.standard_normal((1, 33))
    out = np.zeros_like(x)
    for given in (None, mask):
        status = library.kernels_softmax_f64(
            pointer(x), *sizes(33), pointer(out), *sizes(33), pointer(given), *sizes(0), *sizes(5, 33),
            ctypes.c_double(0.5),
        )  # fmt: skip
        assert status == 0
        expected = shipped.softmax(x, mask=given, scale=0.5)
        assert out.tobytes() == expected.tobytes()


def test_a_size_out_of_range_is_a_return_code(library: ctypes.CDLL) -> None:
    one = np.zeros((1, 1), np.float32)
    arguments = [x for _ in range(3) for x in (pointer(one), ctypes.c_int64(1))]
    for m in (1 << 48, -1):
        assert library.kernels_gemm_f32(*arguments, *sizes(m, 1, 1)) == 2


PROGRAM = """
#include <stdio.h>
#include <string.h>
#include "kernels.h"
int main(void) {
    float a[6] = {1, 2, 3, 4, 5, 6}, b[3] = {1, 10, 100}, c[2] = {0, 0};
    if (kernels_refusal()) { fprintf(stderr, "%s", kernels_refusal()); return 1; }
    if (!strstr(kernels_baked(), "\\"tunegen_frozen\\": 1")) return 2;
    int status = kernels_gemm_f32(a, 3, b, 1, c, 1, 2, 3, 1);
    printf("%d %g %g", status, c[0], c[1]);
    return status == KERNELS_DONE ? 0 : 3;
}
"""


def test_a_c_program(frozen: Path) -> None:
    assert output(program(frozen, "kernels", PROGRAM)) == "0 321 654"


def test_the_header_is_cpp_too(frozen: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++") or pytest.skip("no C++ compiler")
    command = [compiler, "-x", "c++", "-std=c++11", "-Wall", "-Werror", "-fsyntax-only", str(frozen / "kernels.h")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


CALLS = """
import pickle
import numpy as np
import kernels as k

rng = np.random.default_rng(0)
a, b = rng.standard_normal((37, 53)).astype("f"), rng.standard_normal((53, 41)).astype("f")
c = np.zeros((37, 41), "f")
assert k.gemm(a, b, c) is c
for found in (c, k.gemm(a, b), k.gemm(b=b, a=a), k.gemm(np.asfortranarray(a), b), k.gemm(a, b, c=c.copy())):
    np.testing.assert_allclose(found, a @ b, rtol=1e-4, atol=1e-4)
x = rng.standard_normal((6, 40))
rows = k.softmax(x[:, ::2], scale=np.float32(0.5), mask=np.zeros(20))
np.testing.assert_allclose(rows.sum(1), 1)
assert k.softmax(np.zeros((0, 4))).shape == (0, 4)
assert k.softmax(memoryview(x)).shape == x.shape
assert pickle.loads(pickle.dumps(k.gemm)) is k.gemm
assert "gemm(a: in f32|f64[M, K]" in repr(k.gemm)
assert k.__tunegen__["stamp"] == "fallback" and k.__all__ == ["add", "gemm", "softmax"]


both = rng.standard_normal((6, 8)).astype("f")
left, right, row = both[:, :4], both[:, 4:], both[0, :4].copy()
pairs = [(left, row), (row, left), (left, right), (left[:, ::2], row[:1]), (left, left[:, :1]), (both.T, both.T)]
for one, other in pairs:
    np.testing.assert_array_equal(k.add(one, other), one + other)
expected = left + row
assert k.add(left, row, right) is right, "its bounds overlap those of an input, its elements do not"
np.testing.assert_array_equal(right, expected)
assert k.add(left, row, left) is left
np.testing.assert_array_equal(left, expected)

frozen = np.zeros((37, 41), "f")
frozen.flags.writeable = False
wrong = [
    (TypeError, "argument b: got no argument", lambda: k.gemm(a)),
    (TypeError, "at most 3", lambda: k.gemm(a, b, c, c)),
    (TypeError, "unknown argument 'q'", lambda: k.gemm(a, b, q=1)),
    (TypeError, "argument a: got two values", lambda: k.gemm(a, b, a=a)),
    (TypeError, "operand b: got element type", lambda: k.gemm(a, b.astype("d"))),
    (TypeError, "operand a: got element type", lambda: k.gemm(a.astype(">f4"), b)),
    (TypeError, "operand a: got list", lambda: k.gemm([1.0], b)),
    (TypeError, "argument scale: got a str", lambda: k.softmax(x, scale="1")),
    (TypeError, "float32", lambda: k.gemm(a.astype("d"), b.astype("d"))),
    (ValueError, "operand b: got K = 37", lambda: k.gemm(a, a)),
    (ValueError, "operand a: got shape", lambda: k.gemm(a[0], b)),
    (ValueError, "operand c: got N = 40", lambda: k.gemm(a, b, c[:, :40])),
    (ValueError, "operand c: got a read-only array", lambda: k.gemm(a, b, frozen)),
    (ValueError, "operand out: got an array that shares memory", lambda: k.softmax(x, x)),
    (ValueError, "shares memory with operand a", lambda: k.add(both[:-1], both[1:], both[1:][::-1])),
    (ValueError, "shapes that broadcast", lambda: k.add(left, both[:, :3])),
    (ValueError, "side by side", lambda: k.gemm(a, b, np.zeros((41, 37), "f").T)),
]
for kind, words, call in wrong:
    try:
        call()
    except kind as error:
        assert words in str(error), (words, str(error))
    else:
        raise AssertionError(words)
"""


def test_the_package_needs_numpy_alone(frozen: Path, tmp_path: Path) -> None:
    done = isolated(tmp_path, frozen, CALLS)
    assert done.returncode == 0, done.stderr


def test_the_package_heeds_no_policy(frozen: Path, tmp_path: Path) -> None:
    """It reads no environment and no argument, and writes nothing."""
    code = """
sys.argv += ["--", "--tune"]
import kernels as k, numpy as np
print(k.softmax(np.zeros((1, 4))).tolist(), sys.argv)
"""
    done = isolated(tmp_path, frozen, code, TUNE_POLICY="error", TUNE_MODE="test", TUNE_HOME=str(tmp_path / "home"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "[[0.25, 0.25, 0.25, 0.25]] ['-c', '--', '--tune']\n", "")
    assert not (tmp_path / "home").exists()


def test_calls_keep_no_reference_and_threads_may_call(frozen: Path, tmp_path: Path) -> None:
    code = """
import threading
import numpy as np, kernels as k
a, b = np.ones((64, 64), "f"), np.ones((64, 64), "f")
c = np.zeros((64, 64), "f")
before = [sys.getrefcount(o) for o in (a, b, c)]
def work():
    own = np.zeros((64, 64), "f")
    for _ in range(50):
        assert (k.gemm(a, b, own) == 64).all() and (k.gemm(a.T, b) == 64).all()
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
for _ in range(100):
    k.gemm(a, b, c); k.gemm(a, b)
    try: k.gemm(a, b, c.T[::2])
    except ValueError: pass
assert [sys.getrefcount(o) for o in (a, b, c)] == before
"""
    done = isolated(tmp_path, frozen, code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("minor", [10, 12, 13])
def test_other_versions_of_python_run_the_package_or_refuse_it_with_words(frozen: Path, minor: int) -> None:
    python, old = shutil.which(f"python3.{minor}"), minor < 11
    probe = [str(python), "-I", "-c", "" if old else "import numpy"]
    if python is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip(f"no Python 3.{minor}{' with numpy' * (not old)}")
    code = "import sys; sys.path.append(sys.argv[1]); import kernels, numpy; print(kernels.softmax(numpy.ones((1, 2))))"
    done = subprocess.run([python, "-I", "-c", code, str(frozen)], capture_output=True, text=True)
    if old:
        assert "ImportError: kernels: this build is for CPython 3.11 and newer" in done.stderr
    else:
        assert (done.stdout, done.stderr) == ("[[0.5 0.5]]\n", "")
