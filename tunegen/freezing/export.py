"""A frozen build from scopes to files: what the command `tunegen export` does."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from tunegen.box import Box, this_box
from tunegen.errors import FreezeError
from tunegen.freezing import module, package
from tunegen.freezing.baking import Batch, Order, bake
from tunegen.freezing.classes import PLATFORMS, CpuClass, Platform, box_class, host_platform, named_classes
from tunegen.freezing.header import header
from tunegen.freezing.library import exported, library_ir
from tunegen.freezing.linking import Linker, find_linker, link_shared
from tunegen.freezing.manifest import encoded, manifest, reference_manifest
from tunegen.freezing.references import written_references
from tunegen.making.compile import Target, compile_object, initialize_all_targets
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import Scope, find_keys
from tunegen.public.setting import process_setting
from tunegen.signature import ElementType

Stamp = Literal["fallback", "winners", "reference"]


class Build(msgspec.Struct, frozen=True):
    """What to freeze. `classes` None stands for this box alone, () for all classes of the target; `only` names kernels
    (`gemm`, `exp[f32]`), all when empty. `target` "" is the platform of this box.
    """

    stamp: Stamp
    target: str = ""
    classes: tuple[CpuClass | str, ...] | None = None
    only: tuple[str, ...] = ()
    python: bool = False


class Frozen(msgspec.Struct, frozen=True):
    """What was made: the files, relative to the folder, the manifest, and the linker that was used."""

    folder: str
    files: tuple[str, ...]
    linker: str
    manifest: dict[str, Any]


Files = dict[str, bytes]


def export(scope: Scope, folder: Path, build: Build) -> Frozen:
    """Writes a frozen build of a scope into `folder`, which must be empty or not exist. All of it, or nothing.

    Raises `FreezeError`, and `KernelNotFound` for an unknown name in `only`.
    """
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise FreezeError(f"{folder} exists and is not an empty folder")
    except OSError as error:
        raise FreezeError(f"{folder} cannot be looked at: {error.strerror}") from None
    wanted = _wanted(scope, build.only)
    if not wanted:
        raise FreezeError(f"{scope.name} has no kernel to freeze")
    if build.stamp == "reference":
        description, files = _references(scope, wanted)
        linker = ""
    else:
        description, files, linker = _native(scope, wanted, build)
    _write(folder, files)
    return Frozen(str(folder), tuple(sorted(files)), linker, description)


def _wanted(scope: Scope, only: Sequence[str]) -> list[tuple[KernelMethods, ElementType]]:
    """The kernels and element types in order of declaration."""
    every = [(kernel, t) for kernel in scope.kernels.values() for t in kernel.signature.element_types]
    named = [(kernel.name, t.name) for name in only for kernel, types in [find_keys(name, [scope])] for t in types]
    return [(kernel, t) for kernel, t in every if not only or (kernel.name, t.name) in named]


def _native(
    scope: Scope, wanted: Sequence[tuple[KernelMethods, ElementType]], build: Build
) -> tuple[dict[str, Any], Files, str]:
    """The manifest, the files and the linker's name of a build of native code."""
    box = this_box()
    host, platform = host_platform(box), _platform(build, box)
    classes = _classes(build, platform, box)
    linker = find_linker(platform, native=platform is host)
    initialize_all_targets()
    orders = [_order(kernel, element_type, build.stamp) for kernel, element_type in wanted]
    batch = bake(orders, classes, platform, box, _tuned(classes, box) if platform is host else "")
    symbols = [baked.symbol for baked in batch.functions]
    if twice := sorted({symbol for symbol in symbols if symbols.count(symbol) > 1}):
        raise FreezeError(f"{scope.name} has two functions that come to {twice[0]}: leave a kernel out with --only")
    description = manifest(scope.name, build.stamp, batch)
    files = _library(scope.name, batch, description, linker)
    if build.python:
        files |= _package(scope.name, batch, description, linker)
    return description, files, linker.name


def _platform(build: Build, box: Box) -> Platform:
    host = host_platform(box)
    if not build.target:
        if host is None:
            raise FreezeError(f"frozen builds are for {', '.join(PLATFORMS)}, and this is none: name one with --target")
        return host
    if build.target not in PLATFORMS:
        raise FreezeError(f"no target {build.target!r}; there are {', '.join(PLATFORMS)}")
    platform = PLATFORMS[build.target]
    if build.stamp == "winners" and platform is not host:
        raise FreezeError(f"winners are this box's, and this box is no {platform.name}: use --stamp fallback")
    return platform


def _classes(build: Build, platform: Platform, box: Box) -> tuple[CpuClass, ...]:
    if build.classes is None:
        return (box_class(box, platform),) if platform is host_platform(box) else platform.classes[:1]
    own = tuple(c for c in build.classes if isinstance(c, CpuClass))
    return own or named_classes(platform, [c for c in build.classes if isinstance(c, str)])


def _tuned(classes: Sequence[CpuClass], box: Box) -> str:
    """The highest class that this box belongs to: where its winners count."""
    return next((c.name for c in reversed(classes) if c.features <= box.feature_set), "")


def _order(kernel: KernelMethods, element_type: ElementType, stamp: Stamp) -> Order:
    spec = kernel.spec
    if stamp == "fallback":
        return Order(spec, element_type, (), spec.schema.native_defaults)
    if element_type.name not in kernel.stamp:
        raise FreezeError(f"{spec.key(element_type)} has no stamp here: winners need TUNE_MODE=normal and a compiler")
    values = process_setting().values(spec, element_type).values
    winners = tuple((choice.emitted, choice.source) for choice in kernel.stamp[element_type.name].choices)
    return Order(spec, element_type, winners, {name: int(values[name]) for name in spec.schema.native})


def _library(title: str, batch: Batch, description: dict[str, Any], linker: Linker) -> Files:
    """The shared library, its header and its manifest, by file name."""
    text, file = encoded(description), f"lib{title}.so"
    glue = compile_object(library_ir(title, batch, text), _baseline(batch.platform))
    return {
        file: link_shared(linker, [glue, *batch.images.values()], exported(title, batch), file),
        f"{title}.h": header(title, batch).encode(),
        f"{title}.json": text.encode(),
    }


def _package(title: str, batch: Batch, description: dict[str, Any], linker: Linker) -> Files:
    """The files of a package with native code."""
    target = _baseline(batch.platform)
    glue = compile_object(module.module_ir(title, batch, encoded(description)), target)
    images = [glue, *(compile_object(text, target) for text in module.entry_modules(batch)), *batch.images.values()]
    return {
        f"{title}/__init__.py": package.native_init(title, batch).encode(),
        f"{title}/_runtime.py": package.runtime_source(),
        f"{title}/{module.FILE}": link_shared(linker, images, [f"PyInit_{module.NAME}"], module.FILE),
    }


def _references(scope: Scope, wanted: Sequence[tuple[KernelMethods, ElementType]]) -> tuple[dict[str, Any], Files]:
    """The manifest and the files of a package of reference bodies. Raises `FreezeError` when none can be copied."""
    functions = [(function, t) for kernel, t in wanted for function in kernel.spec.functions]
    written = written_references({f.name: f for f, _ in functions}.values(), scope.module)
    kept = [(function, t) for function, t in functions if function.name not in written.left_out]
    if not kept:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in written.left_out.items())
        raise FreezeError(f"no reference of {scope.name} stands on its own: {reasons}")
    description = reference_manifest(scope.name, kept, written.left_out)
    text, title = encoded(description).encode(), scope.name
    files = {f"{title}/{name}.py": source.encode() for name, source in written.sources.items()}
    return description, {
        **files,
        f"{title}.json": text,
        f"{title}/__init__.py": package.reference_init(title, written.homes).encode(),
        f"{title}/_manifest.json": text,
        f"{title}/_runtime.py": package.runtime_source(),
    }


def _baseline(platform: Platform) -> Target:
    """The target of code that runs before the CPU is known."""
    return Target(platform.triple, platform.baseline, "")


def _write(folder: Path, files: Files) -> None:
    """Puts the files where they belong, at once."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".tunegen-") as temporary:
            made = Path(temporary) / "made"
            for name, data in files.items():
                path = made / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
            if folder.is_dir():
                for entry in sorted(made.iterdir()):
                    shutil.move(entry, folder)
            else:
                os.rename(made, folder)
    except OSError as error:
        raise FreezeError(f"{folder} cannot be written: {error.strerror}") from None
