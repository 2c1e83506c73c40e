"""The machine report: its parts on made-up figures, one small real run, and what two reports propose together."""

from __future__ import annotations

import errno
import json
import os
import struct
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tunegen import cli
from tunegen.errors import StoreError
from tunegen.executor import Counter
from tunegen.harness import baseline, portable, reports, roofline
from tunegen.harness.baseline import Baseline, Figure, Held, ranking, representative
from tunegen.harness.counting import counted
from tunegen.harness.roofline import Bandwidth, Peak, Roofline
from tunegen.public.scope import find_scope

LINE = Roofline(
    [Peak("f32", 1, 100.0), Peak("f32", 2, 200.0)],
    [Bandwidth("l1", 1, 16 << 10, 200.0, 150.0, 80.0), Bandwidth("memory", 1, 1 << 28, 20.0, 25.0, 30.0),
     Bandwidth("memory", 2, 1 << 27, 40.0, 50.0, 60.0)],
)  # fmt: skip


def test_what_is_attainable_is_the_slower_of_arithmetic_and_bytes() -> None:
    assert LINE.attainable_ns("f32", 1, 1e6, 1000) == pytest.approx(1e4)
    assert LINE.attainable_ns("f32", 1, 100, 20_000) == pytest.approx(100.0)
    assert LINE.attainable_ns("f32", 1, 100, 3_000_000) == pytest.approx(1e5), "streaming is the best at that level"
    assert LINE.attainable_ns("f32", 2, 0, 3_000_000) == pytest.approx(5e4)
    assert LINE.attainable_ns("f64", 1, 100, 0) == 0.0
    assert Roofline([], []).attainable_ns("f32", 1, 100, 100) == 0.0


def test_levels_fill_half_a_cache_and_share_the_last_one() -> None:
    sizes = roofline.levels({"l1": 32 << 10, "l2": 1 << 20, "l3": 32 << 20}, 2)
    assert sizes == {"l1": 16 << 10, "l2": 512 << 10, "l3": 8 << 20, "memory": 128 << 20}
    assert roofline.levels({}, 1) == {"memory": 256 << 20}


@pytest.mark.parametrize(("vector_bytes", "fused"), [(64, True), (32, True), (16, False)])
def test_the_loops_compile_as_wide_as_the_vectors(vector_bytes: int, fused: bool) -> None:
    ir = roofline.loops_ir(vector_bytes, fused=fused)
    assert f"<{vector_bytes // 4} x float>" in ir
    assert ("llvm.fma" in ir) == fused
    from tunegen.box import this_box
    from tunegen.making.compile import compile_object
    from tunegen.making.make import host_target

    assert compile_object(ir, host_target(this_box()))


def test_the_loops_do_what_is_counted() -> None:
    """A read gives the exclusive or of all that it read, a copy copies."""
    import numpy as np

    from tunegen.box import this_box

    loops = roofline.Loops(this_box())
    data = roofline._aligned(8192)
    data[:8192] = np.random.default_rng(0).integers(0, 256, 8192)
    before = data.copy()
    loops._calls["copy"](data.ctypes.data, data[4096:].ctypes.data, 4096, 1)
    assert (data[4096:8192] == before[:4096]).all()
    out = roofline._aligned(4096)
    loops._calls["read"](data.ctypes.data, out.ctypes.data, 4096, 1)
    words = before[:4096].view(np.uint64).reshape(-1, loops.bytes // 8)
    assert (out[: loops.bytes].view(np.uint64) == np.bitwise_xor.reduce(words, axis=0)).all()


def test_the_smallest_middle_and_largest_case_stand_for_a_kernel() -> None:
    kernel = find_scope("kernels").kernels["gemm"]
    found = representative(kernel.spec, kernel.signature.element_types[0])
    assert list(found) == ["small", "medium", "large"]
    assert found["small"].name == "small"
    assert "decode" in found["large"].name


def figure(key: str, cpu_ns: float, utilisation: float = 1.0, threads: int = 1) -> Figure:
    return Figure(key, "small", {"N": 1}, threads, "row", cpu_ns, cpu_ns, 1, 1, utilisation, {}, 0, 0, 0.0, 0.0)


def test_regions_are_ranked_by_processor_time_and_then_by_what_they_leave_unused() -> None:
    found = ranking([figure("a", 10), figure("b", 30), figure("c", 30, 0.5), figure("d", 5, threads=2)])
    assert [row.key for row in found] == ["c", "b", "a", "d"]
    assert found[0].share == pytest.approx(30 / 70)
    assert found[-1].share == 1.0


class Fake:
    """A source whose reads give three words each; or none, for a reason."""

    def __init__(self, *readings: tuple[int, int, int], refused: int = 0) -> None:
        self.readings, self.refused = readings, refused

    def open(self, thread_id: int) -> int:
        if self.refused:
            raise OSError(self.refused, "no")
        reading, writing = os.pipe()
        os.write(writing, b"".join(struct.pack("3q", *words) for words in self.readings))
        os.close(writing)
        return reading


def test_counters_of_a_serial_call_have_a_status_and_never_a_made_up_zero() -> None:
    sources = {
        "good": Fake((100, 10, 10), (350, 30, 30)),
        "shared": Fake((0, 0, 0), (100, 40, 20)),
        "never ran": Fake((0, 0, 0), (0, 40, 0)),
        "denied": Fake(refused=errno.EACCES),
        "missing": Fake(refused=errno.ENOENT),
        "silent": Fake(),
    }
    called: list[int] = []
    assert counted(lambda: called.append(1), sources, 1) == {
        "good": Counter("ok", 250),
        "shared": Counter("multiplexed", 200),
        "never ran": Counter("multiplexed", None),
        "denied": Counter("permission_denied"),
        "missing": Counter("unsupported"),
        "silent": Counter("unsupported"),
    }
    assert called == [1]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes are started and no roofline is measured."""
    monkeypatch.setattr(baseline, "start_up", lambda: [baseline.Start("library", 20.0, 0.3)])
    monkeypatch.setattr(baseline, "measured", lambda box, threads: LINE)
    monkeypatch.setenv("TUNE_THREADS", "2")


@pytest.mark.usefixtures("quick")
def test_a_small_report_is_printed_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of one kernel, as JSON and as a table; no manifest is written."""
    path = tmp_path / "here.json"
    assert cli.run(["baseline", "kernels", "--only", "add[f32]", "--json", "--report", str(path)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(f["size"], f["threads"]) for f in found["figures"]} == {
        (size, n) for size in ("small", "medium", "large") for n in (1, 2)
    }
    assert all(f["wall_ns"] > 0 and f["cpu_ns"] > 0 and f["variant"] for f in found["figures"])
    assert {c["status"] for f in found["figures"] for c in f["counters"].values()}
    read = reports.read(path, Baseline)
    assert read.about.kind == "baseline"
    assert len(read.ranking) == len(read.figures)
    assert not list(tmp_path.glob("home/**/*.tune.json"))
    assert cli.run(["baseline", "kernels", "--only", "add[f32]"]) == 0
    assert "roofline x" in capsys.readouterr().out


def report(values: dict[str, Any], source: str = "manifest", **box: str) -> Baseline:
    head = reports.about("baseline")
    changed = msgspec.structs.replace(head, box=msgspec.structs.replace(head.box, **box))
    return Baseline(changed, {}, [], Roofline([], []), [Held("exp[f32]", values, source)], [], [])


HERE = {"parallel.minimum_elements": 40_000, "parallel.grain": 0, "stream.kind": "a"}
THERE = {"parallel.minimum_elements": 90_000, "parallel.grain": 0, "stream.kind": "b"}


def test_two_unlike_boxes_propose_what_holds_on_both() -> None:
    found = {p.parameter: p.value for p in portable.compare(report(HERE), report(THERE, architecture="aarch64"))}
    assert found == {"parallel.minimum_elements": 90_000, "parallel.grain": 0, "stream.kind": None}


def test_one_box_proposes_nothing() -> None:
    with pytest.raises(portable.SameBox, match="two boxes"):
        portable.compare(report(HERE), report(THERE))
    assert portable.compare(report(HERE), report(THERE, model="99"))


def test_values_that_were_not_found_on_both_boxes_propose_nothing() -> None:
    assert portable.compare(report(HERE), report(THERE, "default", model="99")) == []
    assert portable.compare(report(HERE, "profile"), report(THERE, model="99")) == []


def test_comparing_files_prints_and_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other, broken = (tmp_path / name for name in ("a.json", "b.json", "c.json"))
    one.write_bytes(msgspec.json.encode(report(HERE)))
    other.write_bytes(msgspec.json.encode(report(THERE, model="99")))
    assert cli.run(["baseline", "--compare", str(one), str(other), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["value"] == 90_000
    assert cli.run(["baseline", "--compare", str(one), str(other)]) == 0
    assert "portable default" in capsys.readouterr().out
    assert cli.run(["baseline", "--compare", str(one), str(one)]) == 3
    broken.write_text('{"about": 1}')
    assert cli.run(["baseline", "--compare", str(one), str(broken)]) == 1


def test_a_report_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    good = report(HERE)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(
        good, about=msgspec.structs.replace(good.about, tunegen_report=99))))  # fmt: skip
    with pytest.raises(StoreError, match="format 99"):
        reports.read(path, Baseline)
