"""IR to objects and objects to addresses: errors are clean, and an object tells what it asks of others."""

from __future__ import annotations

import ctypes

import pytest

from tunegen.box import this_box
from tunegen.errors import CompileError, CompilerUnavailable
from tunegen.making.compile import Target, assembly, compile_object, initialize_all_targets, link, machine
from tunegen.making.elf import code_size_bytes, undefined_symbols
from tunegen.making.make import host_target

ANSWER = "define i64 @answer() {\n  ret i64 42\n}\n"
CALLS = "declare float @expf(float)\ndeclare void @gone()\n" + (
    "define float @f(float %x) {\n  %y = call float @expf(float %x)\n  call void @gone()\n  ret float %y\n}\n"
)
FOREIGN = [Target("x86_64-unknown-linux-gnu", "x86-64-v2", ""), Target("aarch64-unknown-linux-gnu", "generic", "+neon")]


@pytest.fixture
def host():
    return host_target(this_box())


def test_an_object_is_mapped_and_runs(host):
    address = link(compile_object(ANSWER, host), ("answer",), host)["answer"]
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(address)() == 42
    again = link(compile_object(ANSWER.replace("42", "43"), host), ("answer",), host)["answer"]
    assert (ctypes.CFUNCTYPE(ctypes.c_int64)(again)(), ctypes.CFUNCTYPE(ctypes.c_int64)(address)()) == (43, 42)


@pytest.mark.parametrize("target", FOREIGN, ids=lambda target: target.triple)
def test_objects_of_every_target_tell_what_they_ask_for(target):
    initialize_all_targets()
    assert undefined_symbols(compile_object(ANSWER, target)) == ()
    image = compile_object(CALLS, target)
    assert undefined_symbols(image) == ("expf", "gone")
    assert code_size_bytes(image, "f") > 0
    assert code_size_bytes(image, "gone") == code_size_bytes(image, "other") == 0
    assert "f:" in assembly(CALLS, target)


@pytest.mark.parametrize(
    "ir",
    [
        "nonsense",
        "define void @f() {\n}",
        "define i64 @f() {\n  ret i32 0\n}",
        "define void @f() {\n  ret void\n}\n" * 2,
        "define float @f() {\n  ret float 0.1\n}",
        "define void @f() {\n  call void @g()\n  ret void\n}",
    ],
)
def test_what_llvm_refuses_is_a_compile_error(host, ir):
    with pytest.raises(CompileError, match="LLVM refused the IR"):
        compile_object(ir, host)


def test_an_object_that_does_not_link_is_a_compile_error_and_the_next_one_links(host):
    image = compile_object(CALLS.replace("expf", "no_such_function"), host)
    with pytest.raises(CompileError, match="f does not link"):
        link(image, ("f",), host)
    assert link(compile_object(ANSWER, host), ("answer",), host)["answer"]


def test_a_symbol_that_an_object_does_not_have_is_a_compile_error(host):
    with pytest.raises(CompileError, match="does not link"):
        link(compile_object(ANSWER, host), ("question",), host)


def test_a_target_that_llvm_does_not_have_is_said():
    with pytest.raises(CompilerUnavailable, match="no target for pdp11"):
        machine(Target("pdp11", "", ""))


@pytest.mark.parametrize("image", [b"", b"MZ", b"\xcf\xfa\xed\xfe" + bytes(99), b"\x7fELF\x01\x01"])
def test_another_format_of_objects_is_a_compile_error(image):
    with pytest.raises(CompileError, match="ELF"):
        undefined_symbols(image)
