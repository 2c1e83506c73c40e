"""LLVM IR to objects, and objects to addresses: the one place that drives llvmlite.

Cold and warm take the same path: there is always an object, and it is always linked by JITLink. Code is never unloaded,
because a call may be running in it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from tunegen import forks
from tunegen.errors import CompileError, CompilerUnavailable, LinkError, VerifyError

PASSES = "O3;no-loop-vectorize;no-slp-vectorize;no-unroll"
"""The pass pipeline, as part of every cache key: templates decide the shape of the code, LLVM the rest."""


class Target(msgspec.Struct, frozen=True, array_like=True):
    """What code is made for. `features` is LLVM's text: `+avx2,-avx512f`."""

    triple: str
    cpu: str
    features: str


class Machine:
    """A target machine. Not safe for threads by itself; `compile_object` locks."""

    def __init__(self, target: Target) -> None:
        llvm = _llvm()
        try:
            factory = llvm.Target.from_triple(target.triple)
        except RuntimeError as error:
            raise CompilerUnavailable(f"LLVM has no target for {target.triple}: {error}") from None
        # 512-bit code for templates that ask for it: LLVM halves such vectors on some CPUs by default
        features = f"{target.features},-prefer-256-bit" if target.triple.startswith("x86_64") else target.features
        self.triple = target.triple
        self.machine = factory.create_target_machine(
            cpu=target.cpu, features=features.strip(","), opt=3, reloc="pic", codemodel="default"
        )


_lock = forks.LOCK
_libraries: list[Any] = []


@cache
def _llvm() -> Any:
    try:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    except (ImportError, OSError, RuntimeError) as error:
        raise CompilerUnavailable(f"llvmlite does not load: {error}") from None
    return llvm


@cache
def initialize_all_targets() -> None:
    """Makes the foreign targets usable: objects for another architecture."""
    llvm = _llvm()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@cache
def machine(target: Target) -> Machine:
    """The target machine for `target`, made once a process. Raises `CompilerUnavailable`."""
    return Machine(target)


def llvm_version() -> str:
    """Version of the LLVM in use: "22.1"."""
    return ".".join(str(part) for part in _llvm().llvm_version_info[:2])


def optimized(ir: str, target: Target) -> Any:
    """Parses, verifies and optimises `ir`. Raises `VerifyError` with LLVM's message."""
    llvm = _llvm()
    tm = machine(target)
    try:
        module = llvm.parse_assembly(ir)
        module.triple = tm.triple
        module.data_layout = str(tm.machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise VerifyError(f"LLVM refused the IR: {str(error).strip()}") from None
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(tm.machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


def compile_object(ir: str, target: Target) -> bytes:
    """A position-independent object for `target`. Raises `CompileError`."""
    with _lock:
        module = optimized(ir, target)
        try:
            return bytes(machine(target).machine.emit_object(module))
        except RuntimeError as error:
            raise CompileError(f"LLVM could not emit an object: {str(error).strip()}") from None


def assembly(ir: str, target: Target) -> str:
    """Assembly text of `ir` for `target`. Raises `CompileError`."""
    with _lock:
        return str(machine(target).machine.emit_assembly(optimized(ir, target)))


@cache
def _jit(target: Target) -> Any:
    return _llvm().create_lljit_compiler(machine(target).machine, use_jit_link=True, suppress_errors=True)


def link(image: bytes, symbols: tuple[str, ...], target: Target, *, process_symbols: bool = False) -> dict[str, int]:
    """Maps an object into this process for good and returns the addresses of `symbols`. Raises `LinkError`.

    `image` must be trusted: a damaged object can end the process.
    """
    with _lock:
        builder = _llvm().JITLibraryBuilder().add_object_img(image)
        if process_symbols:
            builder.add_current_process()
        for symbol in symbols:
            builder.export_symbol(symbol)
        try:
            library = builder.link(_jit(target), f"{symbols[0]}.{len(_libraries)}")
        except RuntimeError as error:
            _libraries.append(None)
            raise LinkError(f"{symbols[0]} does not link: {error}") from None
        _libraries.append(library)
        return {symbol: library[symbol] for symbol in symbols}
