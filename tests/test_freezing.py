"""Frozen builds of small libraries, whose answer is the row that ran: what is baked, for whom, and what is refused."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frozen import ARM, HERE, HOST, NATIVE, emulator, isolated, output, program
from toys import write_library

import tunegen
from tunegen import cli
from tunegen.box import this_box
from tunegen.errors import FreezeError, KernelNotFound
from tunegen.features import AARCH64, X86_64
from tunegen.freezing import linking
from tunegen.freezing.baking import Batch
from tunegen.freezing.classes import PLATFORMS, CpuClass
from tunegen.freezing.export import Build, Frozen, export
from tunegen.freezing.library import exported, library_ir
from tunegen.making.compile import Target, compile_object
from tunegen.public.scope import find_scope

pytestmark = pytest.mark.skipif(HOST is None, reason="frozen builds are for Linux on x86-64 and AArch64")

BODY = """
def pack(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = -1

@scope.tune(
    gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)],
    fallback="row5 if N >= cut.at; reference if N == 7; row4; row3; row2; row1",
)
@scope.tune_param("cut.at", default=100, minimum=1, maximum=1000, unit="elements", doc="From here on row 5 runs.")
@scope.tune_companion(fn=pack, gen="toy.ll.j2")
@scope.tune_perm(row=1)
@scope.tune_perm(row=2, requires="sse4.2|neon")
@scope.tune_perm(row=3, requires="avx2|sve")
@scope.tune_perm(row=4, requires="avx512f")
@scope.tune_perm(row=5)
def toy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    \"\"\"Says which row ran.\"\"\"
    out[...] = -1

@scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], inplace=True, fallback="row1")
@scope.tune_perm(row=1)
def each(x: In[floats, ...], out: Out[floats, ...]) -> None:
    out[...] = -1
"""
ROWS = {"x86-64-v2": 2, "x86-64-v3": 3, "x86-64-v4": 4, "aarch64-neon": 2, "aarch64-sve": 3}
"""The row of `toy` in each class."""

PROGRAM = """
#include <stdio.h>
#include "{title}.h"
int main(void) {{
    static float x[200], y[200], z[200];
    int status = {title}_toy_f32(x, y, 3), more = {title}_toy_f32(x, z, 200);
    const char *name = {title}_cpu_class(), *refusal = {title}_refusal();
    printf("%s|%s|%d|%d|%g|%g", name ? name : "", refusal ? refusal : "", status, more, y[0], z[199]);
    return 0;
}}
"""

Freeze = Callable[..., tuple[Frozen, Path]]


@pytest.fixture
def freeze(library: Callable[..., Any], tmp_path: Path) -> Freeze:
    """Freezes a library: `freeze(body, stamp=..., classes=...)`. Its name is its manifest's scope."""

    def made(body: str = BODY, stamp: Any = "fallback", **options: Any) -> tuple[Frozen, Path]:
        folder = tmp_path / f"frozen{len(list(tmp_path.glob('frozen*')))}"
        return export(find_scope(library(body).__name__), folder, Build(stamp, **options)), folder

    return made


def load(folder: Path, title: str) -> ctypes.CDLL:
    found = ctypes.CDLL(str(folder / f"lib{title}.so"))
    for name in ("baked", "refusal", "cpu_class"):
        getattr(found, f"{title}_{name}").restype = ctypes.c_char_p
    for name in ("toy_f32", "pack_f32"):
        setattr(found, name, getattr(found, f"{title}_{name}", None))
    return found


def ran(function: Any, n: int) -> int:
    """Which row answers a call of size `n`."""
    x, out = np.zeros(n, np.float32), np.zeros(n, np.float32)
    assert function(x.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(n)) == 0
    return int(out[-1])


def test_a_library_chooses_by_sizes_and_says_what_it_baked(freeze: Freeze) -> None:
    frozen, folder = freeze(classes=(HERE[-1],))
    title = frozen.manifest["scope"]
    library = load(folder, title)
    best = ROWS[HERE[-1]]
    assert [ran(library.toy_f32, n) for n in (3, 99, 100)] == [best, best, 5]
    assert ran(library.toy_f32, 7) == best, "where the chain wants the reference, native code goes on"
    assert ran(library.pack_f32, 200) == 5, "a companion has the kernel's row"
    assert json.loads(getattr(library, f"{title}_baked")()) == frozen.manifest
    assert json.loads((folder / f"{title}.json").read_text()) == frozen.manifest
    toy = next(f for f in frozen.manifest["functions"] if f["symbol"] == f"{title}_toy_f32")
    assert toy["prototype"] == f"int {title}_toy_f32(const float *x, float *out, int64_t N)"
    assert toy["values"] == {"cut.at": 100}
    regimes = toy["regimes"][HERE[-1]]
    assert [(r["if"], r["variant"]) for r in regimes] == [("N >= cut.at", "row5"), ("N == 7", None), ("", f"row{best}")]
    assert "reference" in regimes[1]["reason"]
    assert sorted(frozen.files) == sorted(p.name for p in folder.iterdir())
    # sizes out of range, and a missing array
    assert library.toy_f32(None, None, ctypes.c_int64(-1)) == library.toy_f32(None, None, ctypes.c_int64(1)) == 2
    assert library.toy_f32(None, None, ctypes.c_int64(0)) == 0


def test_winners_are_what_runs_here_and_other_classes_have_the_fallback(
    library: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, scope = tmp_path / "own.tune.json", find_scope(library(BODY).__name__)
    monkeypatch.setenv("TUNE_MANIFEST", str(manifest))

    def last_regimes(winner: str, folder: str) -> dict[str, dict[str, Any]]:
        manifest.write_text(json.dumps({"toy": winner}))
        tunegen.load()
        functions = export(scope, tmp_path / folder, Build("winners", classes=tuple(HERE))).manifest["functions"]
        assert functions[-1]["regimes"][HERE[-1]][0]["source"] == "fallback", "the other kernel is not tuned here"
        return {name: regimes[-1] for name, regimes in functions[0]["regimes"].items()}

    last = last_regimes("row1", "tuned")
    assert (last[HERE[-1]]["variant"], last[HERE[-1]]["source"]) == ("row1", "manifest")
    assert all((last[n]["variant"], last[n]["source"]) == (f"row{ROWS[n]}", "fallback") for n in HERE[:-1])
    assert ran(load(tmp_path / "tuned", scope.name).toy_f32, 3) == 1
    last = last_regimes("reference", "python")
    assert last[HERE[-1]]["source"] == "fallback", "a reference that won cannot be baked"
    assert "reference" in last[HERE[-1]]["reason"]


def test_the_box_as_it_is_masked_is_the_floor(freeze: Freeze, monkeypatch: pytest.MonkeyPatch) -> None:
    masked = "avx2" if HOST is PLATFORMS["x86_64-linux-gnu"] else "sve"
    monkeypatch.setenv("TUNE_FEATURES", f"-{masked}")
    frozen, folder = freeze()
    (own,) = frozen.manifest["classes"]
    assert own["name"] == this_box().cpu
    assert masked not in own["features"]
    library = load(folder, frozen.manifest["scope"])
    assert ran(library.toy_f32, 3) == 2


def test_a_cpu_gets_the_highest_class_that_it_belongs_to(freeze: Freeze) -> None:
    assert HOST is not None
    lacks = sorted(frozenset(HOST.bits) - this_box().feature_set)
    future = CpuClass("future", HOST.classes[-1].cpu, HOST.classes[0].features | {lacks[0]})
    frozen, folder = freeze(classes=(*(c for c in HOST.classes if c.name in HERE), future))
    library, title = load(folder, frozen.manifest["scope"]), frozen.manifest["scope"]
    assert getattr(library, f"{title}_cpu_class")() == HERE[-1].encode()
    assert getattr(library, f"{title}_refusal")() is None
    assert ran(library.toy_f32, 3) == ROWS[HERE[-1]]


def test_a_cpu_below_the_floor_is_refused_with_words(freeze: Freeze, tmp_path: Path) -> None:
    assert HOST is not None
    lacking = sorted(frozenset(HOST.bits) - this_box().feature_set)[0]
    floor = CpuClass("future", HOST.classes[0].cpu, HOST.classes[0].features | {lacking})
    frozen, folder = freeze(classes=(floor,), python=True)
    title = frozen.manifest["scope"]
    library = load(folder, title)
    assert library.toy_f32(None, None, ctypes.c_int64(0)) == 3
    assert getattr(library, f"{title}_cpu_class")() is None
    words = getattr(library, f"{title}_refusal")().decode()
    assert all(part in words for part in (title, lacking, "future"))
    done = isolated(tmp_path, folder, f"import {title}")
    assert done.returncode == 1
    assert f"ImportError: {words}" in done.stderr


@pytest.mark.skipif(NATIVE != "x86_64-linux-gnu", reason="emulates x86-64 CPUs on one")
def test_emulated_cpus_get_their_classes(freeze: Freeze) -> None:
    """QEMU does not emulate AVX-512."""
    frozen, folder = freeze(classes=())
    title = frozen.manifest["scope"]
    made = program(folder, title, PROGRAM.format(title=title))
    assert output(made) == f"{HERE[-1]}||0|0|{ROWS[HERE[-1]]}|5"
    for cpu, name in (("Nehalem", "x86-64-v2"), ("Haswell", "x86-64-v3")):
        assert output(made, *emulator(HOST, cpu)) == f"{name}||0|0|{ROWS[name]}|5"
    name, refusal, *rest = output(made, *emulator(HOST, "core2duo")).split("|")
    assert name == ""
    assert "x86-64-v2" in refusal
    assert rest == ["3", "3", "0", "0"]


def test_a_build_for_aarch64(freeze: Freeze) -> None:
    frozen, folder = freeze(target=ARM.name, classes=(), python=True)
    title = frozen.manifest["scope"]
    for file in (folder / f"lib{title}.so", folder / title / "_native.abi3.so"):
        assert int.from_bytes(file.read_bytes()[0x12:0x14], "little") == 183, "EM_AARCH64"
    made = program(folder, title, PROGRAM.format(title=title), ARM)
    run = (lambda cpu: output(made)) if HOST is ARM else (lambda cpu: output(made, *emulator(ARM, cpu)))
    if HOST is not ARM:
        assert run("cortex-a57") == "aarch64-neon||0|0|2|5"
        assert run("max") == "aarch64-sve||0|0|3|5"
    else:
        assert run("") == f"{HERE[-1]}||0|0|{ROWS[HERE[-1]]}|5"


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    """Whatever the folder, the hash seed and the state of the caches."""
    name = write_library(tmp_path / "libraries", BODY)
    found = []
    for seed in ("1", "2"):
        folder = tmp_path / f"folder{seed}" / ("deep" * int(seed)) / "out"
        command = [sys.executable, "-P", "-m", "tunegen", "export", name, "-o", str(folder), "--stamp", "fallback",
                   "--python", "--classes", "--only", "toy"]  # fmt: skip
        environment = {
            **os.environ, "PYTHONPATH": str(tmp_path / "libraries"), "PYTHONHASHSEED": seed,
            "TUNE_CACHE": str(tmp_path / f"cache{seed}"),
        }  # fmt: skip
        done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found.append({p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()})
    assert len(found[0]) == 6
    assert found[0] == found[1]
    everything = b"".join(found[0].values())
    assert str(tmp_path).encode() not in everything
    assert str(Path(linking.__file__).parent).encode() not in everything


def test_the_same_process_gives_the_same_bytes(library: Callable[..., Any], tmp_path: Path) -> None:
    """Compiling leaves nothing behind in the compiler that would change what is compiled later."""
    scope, found = find_scope(library(BODY).__name__), []
    for number in range(4):
        folder = tmp_path / f"out{number}"
        export(scope, folder, Build("fallback", classes=(), python=True))
        found.append({p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()})
    assert all(files == found[0] for files in found)


def test_what_is_refused_leaves_nothing_behind(freeze: Freeze, library: Any, tmp_path: Path) -> None:
    scope = find_scope(library().__name__)
    full = tmp_path / "full"
    full.mkdir()
    (full / "kept").write_text("mine")
    for folder in (full, full / "kept"):
        with pytest.raises(FreezeError, match="not an empty folder"):
            export(scope, folder, Build("fallback"))
    assert [p.name for p in full.iterdir()] == ["kept"]
    with pytest.raises(KernelNotFound):
        export(scope, tmp_path / "new", Build("fallback", only=("nothing",)))
    with pytest.raises(FreezeError, match="no target 'riscv'"):
        export(scope, tmp_path / "new", Build("fallback", target="riscv"))
    with pytest.raises(FreezeError, match="'x87' is no CPU class"):
        export(scope, tmp_path / "new", Build("fallback", classes=("x87",)))
    foreign = next(name for name in PLATFORMS if name != NATIVE)
    with pytest.raises(FreezeError, match="winners are this box's"):
        export(scope, tmp_path / "new", Build("winners", target=foreign))
    needy = BODY.replace("row3; row2; row1", "row4").replace("row4; row4", "row4")
    with pytest.raises(FreezeError, match=rf"toy\[f32\].*{HOST.classes[0].name}.*row4 requires avx512f.*--only"):
        freeze(needy, classes=(HOST.classes[0].name,))
    empty = tmp_path / "empty"
    empty.mkdir()
    export(scope, empty, Build("fallback"))
    assert any(empty.iterdir()), "an empty folder is as good as none"
    assert not list(tmp_path.glob(".tunegen-*"))
    assert not (tmp_path / "new").exists()


def test_a_folder_that_is_none_is_refused_with_words_and_left_as_it_is(library: Any, tmp_path: Path) -> None:
    """A link is followed as far as it leads to an empty folder."""
    scope = find_scope(library().__name__)
    for name in ("full", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "full" / "kept").write_text("mine")
    for link, to in (("nowhere", "nothing"), ("round", "round"), ("to_full", "full"), ("to_empty", "empty")):
        (tmp_path / link).symlink_to(to)
    for folder in ("nowhere", "round", "to_full", "full/kept/below", "x" * 300):
        with pytest.raises(FreezeError, match=r"cannot be|not an empty folder"):
            export(scope, tmp_path / folder, Build("fallback"))
    assert not (tmp_path / "nothing").exists()
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["kept"]
    export(scope, tmp_path / "to_empty", Build("fallback"))
    assert len(list((tmp_path / "empty").iterdir())) == 3
    assert not list(tmp_path.rglob(".tunegen-*"))


BOTH = """
#include <cstdio>
#include "{one}.h"
#include "{two}.h"
int main() {{
    float x[3] = {{0, 0, 0}}, a[3], b[3];
    int status = {one}_toy_f32(x, a, 3) + {two}_toy_f32(x, b, 3);
    std::printf("%d %g %g", status, a[0], b[0]);
}}
"""


def test_builds_of_libraries_with_kernels_of_one_name_meet_in_one_program(freeze: Freeze, tmp_path: Path) -> None:
    """A C++ program that is linked with both."""
    compiler = shutil.which("c++") or shutil.which("g++") or pytest.skip("no C++ compiler")
    plain = BODY.replace("row5 if N >= cut.at; reference if N == 7; row4; row3; row2; row1", "row1")
    plain = plain.replace("Says which row ran.", "/* Says */ which // row */ ran.")
    builds = [freeze(plain), freeze(plain.replace('fallback="row1"', 'fallback="row5"', 1))]
    titles = [frozen.manifest["scope"] for frozen, _ in builds]
    (tmp_path / "both.cpp").write_text(BOTH.format(one=titles[0], two=titles[1]))
    flags = ["-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "both.cpp", "-o", "both"]
    for title, (_, folder) in zip(titles, builds, strict=True):
        flags += [f"-I{folder}", f"-L{folder}", f"-l{title}", f"-Wl,-rpath,{folder}"]
    done = subprocess.run([compiler, *flags], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert output(tmp_path / "both") == "0 1 5"


def test_the_command_says_what_it_made_and_why_not(
    library: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = library(BODY).__name__

    def tunegen_export(folder: str, *options: str) -> tuple[int, str, str]:
        code = cli.run(["export", name, "-o", str(tmp_path / folder), *options])
        return code, *capsys.readouterr()

    code, out, err = tunegen_export("made", "--stamp", "fallback", "--json", "--classes", HERE[0])
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert set(found) == {"folder", "files", "linker", "manifest"}
    assert found["files"] == sorted((f"lib{name}.so", f"{name}.h", f"{name}.json"))
    code, out, err = tunegen_export("made", "--stamp", "fallback")
    assert (code, out) == (1, "")
    assert err.startswith("tunegen: ")
    assert "made exists and is not an empty folder" in err
    code, out, _ = tunegen_export("plain", "--stamp", "fallback", "--only", "each[f32]", "--classes", HERE[0])
    assert (code, out.splitlines()[0]) == (0, f"{name}_each_f32 for {HERE[0]}: row1")
    for stamp in ("winners", "reference"):
        code, out, _ = tunegen_export(stamp, "--stamp", stamp, "--python", "--json")
        assert (code, json.loads(out)["manifest"]["stamp"]) == (0, stamp)
    for options, words in (
        (("--stamp", "reference"), "add --python"),
        (("--stamp", "reference", "--python", "--classes"), "run everywhere"),
        (("--stamp", "fallback", "--classes", "pentium"), "no class 'pentium'"),
        (("--stamp", "fallback", "--only", "nothing"), "no kernel 'nothing'"),
    ):
        code, out, err = tunegen_export("never", *options)
        assert (code, out) == (2, "")
        assert words in err
    for options in (
        ("--stamp", "newest"),
        ("--stamp", "fallback", "--target", "riscv"),
        (),
        ("--stamp", "fallback", "--tune"),
    ):
        with pytest.raises(SystemExit) as exit_:
            tunegen_export("never", *options)
        assert exit_.value.code == 2
        capsys.readouterr()
    assert not (tmp_path / "never").exists()


def test_only_names_kernels_and_element_types(freeze: Freeze, tmp_path: Path) -> None:
    frozen, folder = freeze(only=("each[f64]",), python=True)
    title = frozen.manifest["scope"]
    assert [f["symbol"] for f in frozen.manifest["functions"]] == [f"{title}_each_f64"]
    code = f"""
import numpy as np, {title} as frozen
assert frozen.each(np.zeros(3)).tolist() == [1, 1, 1]
try:
    frozen.each(np.zeros(3, np.float32))
except TypeError as error:
    assert "float64" in str(error)
else:
    raise AssertionError
"""
    done = isolated(tmp_path, folder, code)
    assert done.returncode == 0, done.stderr


HUNGRY = """\
define void @{{ symbol }}(ptr %x, ptr %out, i64 %N, ptr %scratch) {
entry:
  %aligned = ptrtoint ptr %scratch to i64
  %rest = and i64 %aligned, 63
  %bad = sitofp i64 %rest to float
  store float %bad, ptr %scratch, align 4
  %back = load float, ptr %scratch, align 4
  store float %back, ptr %out, align 4
  ret void
}
define i64 @{{ symbol }}__scratch(i64 %N) {
  %wanted = shl i64 %N, 44
  ret i64 %wanted
}
"""


def test_scratch_is_allocated_and_no_memory_is_a_return_code(library: Callable[..., Any], tmp_path: Path) -> None:
    body = BODY.replace("toy.ll.j2", "hungry.ll.j2").replace("N >= cut.at", "N < 0").partition("@scope.tune(gen")[0]
    scope = find_scope(library(body, {"hungry.ll.j2": HUNGRY.replace("i64 %N, 44", "i64 %N, 3")}).__name__)
    export(scope, tmp_path / "small", Build("fallback"))
    assert ran(load(tmp_path / "small", scope.name).toy_f32, 1) == 0
    scope = find_scope(library(body, {"hungry.ll.j2": HUNGRY}).__name__)
    export(scope, tmp_path / "large", Build("fallback", python=True))
    one = (ctypes.c_float * 2)(5, 5)
    for n in (2, 200):
        assert load(tmp_path / "large", scope.name).toy_f32(one, one, ctypes.c_int64(n)) == 1
    assert list(one) == [5, 5]
    code = f"""
import numpy as np, {scope.name} as frozen
try:
    frozen.toy(np.zeros(2, "f"))
except MemoryError:
    pass
else:
    raise AssertionError
"""
    done = isolated(tmp_path, tmp_path / "large", code)
    assert done.returncode == 0, done.stderr


def test_without_a_linker_both_ways_to_get_one_are_named(freeze: Freeze, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linking.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(linking.shutil, "which", lambda name: None)
    with pytest.raises(FreezeError, match=rf"ziglang.*tunegen\[freeze\].*cc, gcc, clang, {NATIVE}-gcc"):
        freeze()


def test_a_linker_that_fails_is_quoted(freeze: Freeze, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = linking.Linker("broken", (sys.executable, "-c", "import sys; sys.exit('no such object')"))
    monkeypatch.setattr("tunegen.freezing.export.find_linker", lambda platform, native: broken)
    with pytest.raises(FreezeError, match=r"broken could not link .*no such object"):
        freeze()


def test_what_a_linker_keeps_for_later_goes_with_its_folder(freeze: Freeze, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that cannot be written to is none of its business."""
    code = (
        "import os, sys; sys.exit(' '.join(os.path.relpath(os.environ[f'ZIG_{n}_CACHE_DIR']) for n in sys.argv[1:3]))"
    )
    curious = linking.Linker("curious", (sys.executable, "-c", code, "GLOBAL", "LOCAL"))
    monkeypatch.setattr("tunegen.freezing.export.find_linker", lambda platform, native: curious)
    with pytest.raises(FreezeError, match=r"curious could not link .*: zig zig$"):
        freeze()


def test_features_are_spelled_as_llvm_spells_them() -> None:
    for platform, known in (("x86_64-linux-gnu", X86_64), ("aarch64-linux-gnu", AARCH64)):
        assert set(PLATFORMS[platform].bits) <= known
        assert all(c.features <= set(PLATFORMS[platform].bits) for c in PLATFORMS[platform].classes)


def test_what_a_build_sees_of_the_cpu_is_what_llvm_sees(tmp_path: Path) -> None:
    """All features that LLVM found are there, and none of the others is."""
    assert HOST is not None
    own = frozenset(HOST.bits) & this_box().feature_set
    others = sorted(frozenset(HOST.bits) - own)
    seen = []
    for title, classes in (
        ("has", [CpuClass("all", HOST.baseline, own)]),
        ("lacks", [CpuClass(name, HOST.baseline, frozenset({name})) for name in others]),
    ):
        batch = Batch((), {}, tuple(classes), HOST)
        image = compile_object(library_ir(title, batch, "{}"), Target(HOST.triple, HOST.baseline, ""))
        linked = linking.link_shared(
            linking.find_linker(HOST, native=True), [image], exported(title, batch), f"lib{title}.so"
        )
        (tmp_path / f"lib{title}.so").write_bytes(linked)
        seen.append(getattr(load(tmp_path, title), f"{title}_cpu_class")())
    assert seen == [b"all", None]


def test_a_package_of_references(freeze: Freeze, tmp_path: Path) -> None:
    body = (
        BODY
        + """
import math
HALF = 0.5

def helper(x: float) -> float:
    return x * HALF + math.pi * 0

@scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row1")
@scope.tune_perm(row=1)
def halves(x: In[f32, "N"], out: Out[f32, "N"], by: float = 1.0) -> None:
    out[...] = x * helper(1.0) * by

@scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row1")
@scope.tune_perm(row=1)
def tied(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    toy.reference(x, out)
"""
    )
    frozen, folder = freeze(body, stamp="reference", python=True)
    title = frozen.manifest["scope"]
    assert list(frozen.manifest["left_out"]) == ["tied"]
    assert "toy" in frozen.manifest["left_out"]["tied"]
    assert not list(folder.rglob("*.so"))
    code = f"""
import numpy as np, {title} as frozen
x = np.arange(4, dtype=np.float32)
assert frozen.halves(x, by=2).tolist() == x.tolist()
assert frozen.toy(x).tolist() == [-1] * 4 and frozen.pack(x[::2]).shape == (2,)
assert frozen.each(x, x) is x
assert frozen.__tunegen__["stamp"] == "reference"
for wrong, kind in ((lambda: frozen.halves(x, x), ValueError), (lambda: frozen.halves([1]), TypeError)):
    try:
        wrong()
    except kind as error:
        assert "halves: operand" in str(error)
    else:
        raise AssertionError
"""
    done = isolated(tmp_path, folder, code)
    assert done.returncode == 0, done.stderr


def test_references_that_all_depend_on_their_library_are_refused(freeze: Freeze) -> None:
    body = """
@scope.tune(gen="toy.ll.j2", gate=bitwise(), cases=[case("some", N=8)], fallback="row1")
@scope.tune_perm(row=1)
def tied(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    out[...] = len(scope.kernels)
"""
    with pytest.raises(FreezeError, match="stands on its own: tied: it uses tune_scope of tunegen"):
        freeze(body, stamp="reference", python=True)
