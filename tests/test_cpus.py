"""Detection on recorded descriptions of real CPUs: what identifies each, what it descends from, and what selects it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tunegen import box as box_room
from tunegen import system
from tunegen.box import Box, ancestry, cpu_numbers
from tunegen.choosing.selecting import ARCHITECTURES, Boxes, Model, Selector, selector_of
from tunegen.requires import parse_requires

RECORDED = {
    path.stem: json.loads(path.read_text()) for path in (Path(__file__).parent / "recorded" / "cpus").glob("*.json")
}
NAMES = sorted(RECORDED)


def put(root, recorded):
    """The files of a recorded machine below a folder."""
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(recorded["cpuinfo"] + "\nprocessor\t: 1\nmodel\t: of another core\n")
    for cpu, siblings in enumerate(recorded["thread_siblings"]):
        folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(siblings + "\n")
    return tuple(range(len(recorded["thread_siblings"])))


def recorded_box(root, name):
    recorded = RECORDED[name]
    allowed = put(root, recorded)
    numbers = cpu_numbers(system.cpu_fields(root))
    features = tuple(recorded["llvm"]["features"].split())
    threads = box_room.threads_for(allowed, root)
    return Box(recorded["architecture"], *numbers, recorded["llvm"]["cpu"], features, threads)


@pytest.fixture(scope="module")
def boxes(tmp_path_factory):
    return {name: recorded_box(tmp_path_factory.mktemp(name), name) for name in NAMES}


@pytest.mark.parametrize(
    ("name", "numbers", "logical", "threads"),
    [
        ("haswell", ("intel", "6", "60"), 8, 4),
        ("skylake_x", ("intel", "6", "85"), 4, 2),
        ("ice_lake", ("intel", "6", "106"), 8, 4),
        ("sapphire_rapids", ("intel", "6", "143"), 8, 4),
        ("zen2", ("amd", "23", "49"), 8, 4),
        ("zen3", ("amd", "25", "1"), 8, 4),
        ("zen4", ("amd", "25", "17"), 4, 4),
        ("zen4_desktop", ("amd", "25", "97"), 32, 16),
        ("zen5", ("amd", "26", "68"), 32, 16),
        ("neoverse_n1", ("arm", "8", "0xd0c"), 4, 4),
        ("neoverse_v1", ("arm", "8", "0xd40"), 4, 4),
        ("neoverse_v2", ("arm", "8", "0xd4f"), 72, 72),
        ("cortex_a76", ("arm", "8", "0xd0b"), 4, 4),
        ("apple_m1", ("apple", "8", "0x022"), 8, 8),
    ],
)
def test_each_cpu_is_identified_and_its_cores_are_counted(boxes, name, numbers, logical, threads):
    assert len(RECORDED[name]["thread_siblings"]) == logical
    box = boxes[name]
    assert (box.vendor, box.family, box.model) == numbers
    assert box.threads == threads
    assert box.file_name.startswith(f"{box.cpu}-t{threads}-")


def test_no_two_recorded_cpus_have_one_identity(boxes):
    assert len({box.id for box in boxes.values()}) == len(NAMES)
    assert len({(box.vendor, box.family, box.model) for box in boxes.values()}) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_features_are_llvms_and_give_the_limits_of_the_vector_registers(boxes, name):
    box = boxes[name]
    assert box.feature_set <= ARCHITECTURES[box.architecture]
    wide = {"haswell": (16, 32), "zen2": (16, 32), "zen3": (16, 32)}
    expected = wide.get(name, (32, 64) if box.architecture == "x86_64" else (32, 16))
    assert (box.limits["registers"], box.limits["vector_bytes"]) == expected
    assert parse_requires("avx2|neon,fma|neon").missing(box.feature_set) == ""


@pytest.mark.parametrize(
    ("name", "descends"),
    [
        ("haswell", {"x86-64-v3", "sandybridge"}),
        ("skylake_x", {"skylake", "haswell", "x86-64-v4"}),
        ("ice_lake", {"icelake-client", "skylake-avx512", "x86-64-v4"}),
        ("sapphire_rapids", {"icelake-client", "skylake-avx512"}),
        ("zen2", {"znver1", "x86-64-v3"}),
        ("zen3", {"znver2", "x86-64-v3"}),
        ("zen4", {"znver3", "x86-64-v4"}),
        ("zen5", {"znver4", "znver3", "x86-64-v4"}),
        ("neoverse_n1", {"armv8.2a"}),
        ("neoverse_v1", {"neoverse-n1", "armv8.4a"}),
        ("neoverse_v2", {"neoverse-n1", "armv9.0a"}),
        ("cortex_a76", {"armv8.2a"}),
        ("apple_m1", {"armv8.4a"}),
    ],
)
def test_ancestry_reaches_the_expected_ancestors_in_llvms_names(name, descends):
    cpu = RECORDED[name]["llvm"]["cpu"]
    found = ancestry(cpu)
    assert found[0] == cpu
    assert descends <= set(found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["model", "models", "microarchitecture", "features"])
def test_a_selector_made_of_a_cpu_selects_it_and_says_what_differs_on_others(boxes, name, kind):
    own = boxes[name]
    meant = Boxes(own.architecture, selector_of(own, kind))
    assert meant.problem() == ""
    assert meant.mismatch(own) == ""
    for other_name, other in boxes.items():
        unlike = meant.mismatch(other)
        if kind in ("model", "models"):
            assert bool(unlike) is (name != other_name)
        if own.architecture != other.architecture:
            assert unlike == f"architecture: {own.architecture} there, {other.architecture} here"
        elif unlike:
            assert unlike.split(":")[0] == kind.removesuffix("s") + ("s" if kind == "features" else "")


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (Selector(microarchitecture="znver3"), {"zen3", "zen4", "zen4_desktop", "zen5"}),
        (Selector(microarchitecture="skylake-avx512"), {"skylake_x", "ice_lake", "sapphire_rapids"}),
        (Selector(microarchitecture="x86-64-v4"),
         {"skylake_x", "ice_lake", "sapphire_rapids", "zen4", "zen4_desktop", "zen5"}),
        (Selector(features=("avx512bf16",)), {"sapphire_rapids", "zen4", "zen4_desktop", "zen5"}),
        (Selector(features=("avx2", "fma")), {n for n in NAMES if RECORDED[n]["architecture"] == "x86_64"}),
        (Selector(models=(Model("intel", "6", "85"), Model("amd", "25", "97"))), {"skylake_x", "zen4_desktop"}),
    ],
)  # fmt: skip
def test_selectors_select_what_they_say(boxes, selector, selected):
    meant = Boxes("x86_64", selector)
    assert {name for name, box in boxes.items() if not meant.mismatch(box)} == selected


def test_features_of_arm_are_told_from_those_of_x86_with_the_same_name(boxes):
    meant = Boxes("aarch64", Selector(features=("aes",)))
    assert meant.mismatch(boxes["zen4"])
    assert not meant.mismatch(boxes["neoverse_n1"])
