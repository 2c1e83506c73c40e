"""Without a usable compiler every kernel runs its reference, and says so once."""

from __future__ import annotations

import pytest
from toys import COMPANIONS, TOY, write_library

BLOCKED = """
import sys
sys.modules["llvmlite"] = None
sys.modules["llvmlite.binding"] = None
"""
BROKEN = """
import llvmlite.binding as llvm
def refuse(*_): raise RuntimeError("no such target")
llvm.initialize_native_target = llvm.get_host_cpu_features = llvm.get_process_triple = refuse
"""
USE = """
import numpy as np
import tunegen
import {name} as made
out = np.zeros(2, np.float32)
for kernel in {kernels}:
    for _ in range(2):
        print(kernel.__name__, int(kernel(out)[0]))
print(tunegen.tune_manifest_set(made.toy, "row1"))
tunegen.load()
print(*(str(row) for row in tunegen.tune_status()), sep="\\n")
print(tunegen.explain("toy").state, list(made.toy.variants()), int(made.toy.variants()["reference"](out)[0]))
"""
TWO = TOY + TOY.replace("def toy", "def tea")
ALL_WITH_REQUIRES = TWO.replace("row=[1, 2, 3]", 'row=[1, 2, 3], requires="sse2|neon"')


@pytest.mark.parametrize("way", [BLOCKED, BROKEN], ids=["blocked", "broken"])
@pytest.mark.parametrize(
    ("body", "kernels"),
    [(TWO, ["toy", "tea"]), (ALL_WITH_REQUIRES, ["toy", "tea"]), (COMPANIONS, ["pack", "toy"])],
    ids=["plain", "requires", "companions"],
)
def test_every_kernel_runs_its_reference_and_says_so_once(child, tmp_path, way, body, kernels):
    name = write_library(tmp_path / "libraries", body)
    done = child(way + USE.format(name=name, kernels=f"[made.{', made.'.join(kernels)}]"))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no usable compiler, so kernels run their Python reference") == 1
    assert len(done.stderr.splitlines()) == 1
    lines = done.stdout.splitlines()
    assert all(line.endswith(" -1") for line in lines[: 2 * len(kernels)])
    assert "saved=False" in lines[2 * len(kernels)]
    assert "llvmlite does not load" in lines[2 * len(kernels)]
    assert "toy[f32]: reference (reference: no manifest entry)" in lines
    assert lines[-1] == "missing ['reference'] -1"


def test_in_tune_mode_the_reference_runs_and_variants_say_why_they_do_not(child, tmp_path):
    name = write_library(tmp_path / "libraries")
    code = f"""
import numpy as np
import {name} as made
variants = made.toy.variants()
print(int(variants["reference"](np.zeros(1, np.float32))[0]))
try:
    variants["row1"](np.zeros(1, np.float32))
except Exception as error:
    print(type(error).__name__, error)
"""
    lines = child(BLOCKED + code, TUNE_MODE="tune").stdout.splitlines()
    assert lines[0] == "-1"
    assert lines[1].startswith("CompilerUnavailable llvmlite does not load")
