"""What a program pays for its first call, counted: modules, classes and files. Nothing here depends on a clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conftest import Child

MODULES = """
    box calling calling.dispatch calling.dispatching calling.identity calling.native cases choosing choosing.document
    choosing.profiles choosing.published choosing.resolve choosing.selecting choosing.store choosing.values digest
    errors executor executor.labels expressions fallback features forks gates grid kernels kernels.calibration
    kernels.library kernels.map kernels.marks kernels.product kernels.rows knobs log making making.cache making.compile
    making.make making.render making.spec parallel parameters paths points public public.declare public.kernel
    public.library public.scope public.setting public.sources public.stamping public.variant requires signature system
    templates
"""
"""All that a first call in a warm process imports of tunegen. Every module here costs each program a third of a
millisecond: what a call does not need is imported where it is needed.
"""

PROGRAM = """
    import json, sys
    import llvmlite.binding, msgspec, numpy, platformdirs.unix

    opened = []
    sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
    before = set(sys.modules)
    from tunegen.kernels import exp
    from tunegen.making import make
    x = numpy.ones(16, "f")
    exp(x, numpy.empty_like(x))
    new = sorted(set(sys.modules) - before)
    classes = [value for name in new for value in vars(sys.modules[name]).values() if isinstance(value, type)]
    tuples = sorted({c.__qualname__ for c in classes if issubclass(c, tuple) and c.__module__ in new})
    print(json.dumps({"new": new, "tuples": tuples, "opened": opened, **make.counters}))
"""


@pytest.fixture
def warm(child: Child) -> dict[str, Any]:
    """New modules, named tuples, opened files and counters of a first call whose code is in the object cache."""
    cold, done = (child(PROGRAM, TUNE_THREADS="2") for _ in range(2))
    assert (cold.returncode, done.returncode) == (0, 0), cold.stderr + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_warm_first_call_imports_no_more_than_it_needs(warm: dict[str, Any]) -> None:
    ours = {name.removeprefix("tunegen.") for name in warm["new"] if name.partition(".")[0] == "tunegen"}
    assert ours == {"tunegen", *MODULES.split()}
    others = {name for name in warm["new"] if name.partition(".")[0] != "tunegen"}
    assert others <= {"_sha2", "_sha256", "archspec"}, "what numpy, LLVM, msgspec and platformdirs import, comes anyway"


def test_records_on_the_load_path_are_structs(warm: dict[str, Any]) -> None:
    """To define a named tuple takes five times as long: each of its annotations is compiled."""
    assert warm["tuples"] == []


def test_a_warm_first_call_compiles_nothing_and_reads_each_file_once(warm: dict[str, Any]) -> None:
    assert warm["hits"] > 0
    assert "compiled" not in warm
    assert sorted(warm["opened"]) == sorted(set(warm["opened"]))
