"""Grids too large for a budget are searched: every proposal is a row, none comes twice, and speed is learned."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from toys import write_library

from tunegen.box import Box
from tunegen.errors import KernelNotFound
from tunegen.expressions import Expression
from tunegen.grid import LIMITS, Grid, Perm, Product, Row
from tunegen.harness import search
from tunegen.harness.candidates import Enumeration, caution, fitting, proposals
from tunegen.harness.search import Model, Search, Source, Space, Spread, space_of

AXES = {
    "mr": tuple(range(1, 33)),
    "nv": tuple(range(1, 17)),
    "kc": tuple(range(32, 1024, 32)),
    "unroll": (1, 2, 4, 8, 16),
    "ahead": tuple(range(16)),
    "pack": (False, True),
}
PLAIN = dict.fromkeys(AXES, 1) | {"pack": True}
PRODUCT = Product(AXES, Expression("mr * nv + nv < registers and mr * nv >= 8", (*AXES, *LIMITS)))
BOX = Box("x86_64", "amd", "25", "17", "znver4", ("avx", "avx2", "avx512f", "fma"), 2)
GRID = Grid((Perm(PLAIN, "plain"), PRODUCT)).on(BOX.limits)


def speed(row: Row) -> float:
    """A made-up kernel: the best is a tile of 24 registers, a panel that fits the cache, packed."""
    perm = row.perm
    tile = abs(perm["mr"] * perm["nv"] - 24) / 24
    panel = abs(math.log2(perm["kc"] / 256)) / 4
    return 2 - tile - panel - 0.1 * abs(perm["unroll"] - 4) + 0.1 * perm["pack"] - 0.02 * perm["ahead"]


def search_with(source: type[Source], grid: Grid = GRID) -> Search:
    space = space_of([part for part in grid.parts if isinstance(part, Product)])
    return Search(grid, source(space), space, grid.count().rows)


def run(searched: Search, trials: int, ratio=speed) -> list[Row]:
    rows = []
    for row in islice(searched, trials):
        rows.append(row)
        searched.learn(row, ratio(row))
    return rows


@pytest.fixture(params=["Spread", "Model"])
def source(request) -> type[Source]:
    if request.param == "Model":
        pytest.importorskip("optuna", reason="the extra `search` is not installed")
    return getattr(search, request.param)


def test_every_proposal_is_a_row_none_comes_twice_and_explicit_rows_come_first(source):
    rows = run(search_with(source), 60)
    assert rows[0].suffix == "plain"
    assert len({row.suffix for row in rows}) == 60
    assert all(GRID.find(row.suffix) == row for row in rows)


def test_a_search_is_the_same_every_time(source):
    """A worker that died is followed by one that asks again, and is told the same."""
    assert run(search_with(source), 40) == run(search_with(source), 40)


def test_a_search_proposes_all_rows_in_the_end(source):
    """However tight the constraint and however large the space around it."""
    where = Expression("a + b == 19 and c == a or a == 0 and b == 0 and c == 19", ("a", "b", "c"))
    grid = Grid((Product({"a": tuple(range(20)), "b": tuple(range(20)), "c": tuple(range(20))}, where),))
    rows = run(search_with(source, grid), 1000, ratio=lambda row: None)
    assert sorted(row.suffix for row in rows) == sorted(row.suffix for row in grid)


def test_a_spread_sample_reaches_all_corners_of_a_space():
    space = space_of([Product({"a": tuple(range(100)), "b": ("x", "y", "z"), "c": (False, True)})])
    source = Spread(space)
    asked = [source.ask() for _ in range(24)]
    assert {point["a"] // 10 for point in asked} == set(range(10))
    assert {(point["b"], point["c"]) for point in asked} == {(b, c) for b in range(3) for c in range(2)}


def test_a_model_finds_better_rows_than_a_spread_sample():
    pytest.importorskip("optuna", reason="the extra `search` is not installed")
    learned = run(search_with(Model), 120)
    spread = run(search_with(Spread), 120)
    best = max(map(speed, islice(GRID, 500_000)))
    assert max(map(speed, learned)) > best - 0.1
    assert sum(map(speed, learned[-40:])) > sum(map(speed, spread[-40:])) + 10


def test_unfit_rows_steer_a_model_away():
    pytest.importorskip("optuna", reason="the extra `search` is not installed")

    def ratio(row: Row) -> float | None:
        return None if row.perm["kc"] > 256 else 1.0

    rows = run(search_with(Model), 100, ratio)
    unfit = [ratio(row) is None for row in rows]
    assert sum(unfit[-40:]) < sum(unfit[:40]) / 2


def test_products_share_one_space_and_numbers_are_in_order():
    low, high = Product({"a": (4, 1), "how": ("x",)}), Product({"a": (9, 4), "how": ("y",)})
    space = space_of([low, high])
    assert space.axes["a"].values == (1, 4, 9)
    assert space.axes["how"].values == ("x", "y")
    assert space.point({"a": 9, "how": "x"}) == {"a": 2, "how": 0}
    assert space.point({"a": 5, "how": "x"}) is None
    assert [row.suffix for row in space.near(high, {"a": 0, "how": 0}).rows()] == ["a4_how_y", "a9_how_y"]
    assert space_of([]) == Space({}, {})


def spec_of(library, rows: str):
    return library(
        '@scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="plain; reference")\n'
        f'@scope.tune_perm(row=1, extra=0, suffix="plain")\n{rows}\n'
        'def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:\n    out[...] = -1\n'
    ).toy.spec


MILLION = "@scope.tune_grid(row=range(1, 1001), extra=range(1000), where='row < registers or extra == 0')"


def test_small_grids_are_enumerated_and_large_ones_searched(library):
    small = spec_of(library, "@scope.tune_grid(row=range(1, 11), extra=range(10))")
    assert [row.suffix for row in proposals(small, BOX, 1.0)] == [row.suffix for row in small.grid]
    assert proposals(small, BOX, 1.0).listed
    large = spec_of(library, MILLION)
    found = proposals(large, BOX, 10.0)
    assert isinstance(found, Search)
    assert 30_000 < found.total <= 1 + 31 * 1000 + 1000 - 31  # a quick count, which may be cut
    assert not found.listed
    assert isinstance(proposals(large, BOX, 10_000.0), Enumeration)


def test_what_has_no_registers_or_features_here_is_not_proposed(library):
    spec = spec_of(library, MILLION + "\n@scope.tune_grid(row=range(2000, 2400), extra=[0], requires='amx-tile,sve')")
    assert fitting(spec.grid, BOX).count().rows == spec.grid.count().rows - (1000 - 31) * 999
    rows = run(proposals(spec, BOX, 10.0), 50, ratio=lambda row: 1.0)
    assert all(row.perm["row"] < 32 or row.perm["extra"] == 0 for row in rows)
    assert not [row for row in rows if row.requires]


def test_without_optuna_a_spread_sample_is_tried_and_said(library, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    spec = spec_of(library, MILLION)
    found = proposals(spec, BOX, 10.0)
    assert len({row.suffix for row in islice(found, 100)}) == 100
    word = caution(spec, BOX, 10.0)
    assert re.match(r"toy has (at least )?3\d,\d+ rows, more than 10 s can try", word)
    assert "pip install 'tunegen[search]'" in word
    assert caution(spec, BOX, 10_000.0) == ""


def test_with_optuna_there_is_nothing_to_say(library):
    pytest.importorskip("optuna", reason="the extra `search` is not installed")
    assert caution(spec_of(library, MILLION), BOX, 10.0) == ""


def test_the_machine_is_asked_for_what_a_constraint_names():
    """Registers by instruction set; unknown architectures prune nothing."""
    widths = {("avx512f", "avx"): (32, 64), ("avx", "fma"): (16, 32), ("sse2",): (16, 16)}
    for features, (registers, width) in widths.items():
        box = Box("x86_64", "intel", "6", "85", "generic", features, 2)
        assert box.limits == {"registers": registers, "vector_bytes": width}
    assert set(BOX.limits) == set(LIMITS)
    assert Box("aarch64", "arm", "8", "1", "generic", ("neon",), 2).limits == {"registers": 32, "vector_bytes": 16}
    assert Box("riscv64", "", "", "", "", (), 2).limits == {}
    assert fitting(Grid((PRODUCT,)), Box("riscv64", "", "", "", "", (), 2)).count() == Grid((PRODUCT,)).count()


def test_the_variants_of_a_million_rows_are_made_when_they_are_asked_for(library, monkeypatch):
    monkeypatch.setenv("TUNE_MODE", "tune")
    made = library(TUNED)
    variants = made.toy.variants()
    assert len(variants) == 1 + made.toy.spec.grid.count().rows
    assert list(islice(variants, 3)) == ["reference", "plain", "row2_extra0"]
    assert variants["row1000_extra999"] is variants["row1000_extra999"]
    assert "row1_extra1" not in variants
    with pytest.raises(KernelNotFound, match=r"'row0' is no row; rows are plain, row2_extra0, .* \(999,001 in all\)"):
        made.toy.ir("row0")


def test_optuna_is_loaded_by_a_search_alone():
    script = "import sys, tunegen.kernels, tunegen.harness.worker; print('optuna' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


TUNED = """
@scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=4096)], fallback="plain; reference")
@scope.tune_perm(row=0, extra=0, suffix="plain")
@scope.tune_grid(row=range(1, 1001), extra=range(1000), where="row > 1")
def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = 0
"""


def test_a_grid_of_a_million_rows_is_tuned_within_a_budget(tmp_path: Path):
    """All but the explicit row are wrong, which the gate finds; nothing is listed that nobody got to."""
    name = write_library(tmp_path, TUNED)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TUNE_THREADS": "1"}
    command = [sys.executable, "-P", "-m", "tunegen", "tune", name, "--budget", "8s", "--json", "--noisy-ok"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (report,) = json.loads(done.stdout)["reports"]
    (regime,) = report["result"]["regimes"]
    assert regime["winner"] in ("plain", "reference")
    assert regime["evidence"]["outcomes"]["not tried"] > 990_000
    assert len(report["outcomes"]) < 5000
