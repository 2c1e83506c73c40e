"""The pool on the other architecture: it compiles everywhere, and runs where an emulator is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tunegen.executor.body_ir import BODY_IR
from tunegen.executor.layout import PoolWords
from tunegen.executor.pool_ir import ARCHITECTURES, SYMBOLS, pool_ir
from tunegen.making.compile import Target, compile_object, initialize_all_targets
from tunegen.making.elf import code_size_bytes, undefined_symbols

GENERIC = {"x86_64": "x86-64", "aarch64": "generic"}
LIBC = {
    "clock_gettime", "pthread_create", "pthread_getspecific", "pthread_join", "pthread_key_create",
    "pthread_setspecific", "pthread_sigmask", "read", "sigdelset", "sigfillset", "syscall",
}  # fmt: skip
CALLER = "aarch64-linux-gnu-gcc"
EMULATOR = "qemu-aarch64-static"

PROGRAM = r"""
#include <stdio.h>
#include <stdint.h>
#include <string.h>
#include <stdatomic.h>
int64_t tunegen_pool_setup(int64_t), tunegen_pool_start(void *), tunegen_pool_close(void *);
int64_t tunegen_parallel_for(void *, void *, void *, int64_t, int64_t, int64_t, int64_t);
enum { THREADS = 4, SIZE = 1000 };
static _Alignas(128) int64_t pool[(384 + 384 * THREADS) / 8];
static _Atomic int marks[SIZE], here, far;
static void mark(void *context, int64_t begin, int64_t end, int64_t who) {
    for (int64_t i = begin; i < end; i++) marks[i]++;
}
static void meet(void *context, int64_t begin, int64_t end, int64_t who) {
    here++;
    while (here % THREADS) ;
    if (who) far++;
    if (tunegen_parallel_for(pool, mark, 0, 10, 1, 0, 0) != 1) far += 1000;
}
int main(void) {
    pool[0] = (int64_t)tunegen_parallel_for, pool[1] = THREADS, pool[3] = 20000;
    if (tunegen_pool_setup(THREADS)) return 2;
    for (int turn = 0; turn < 200; turn++) {
        memset(marks, 0, sizeof marks);
        int64_t admitted = tunegen_parallel_for(pool, mark, 0, SIZE, turn % 50, turn % 6, 0);
        int64_t limit = turn % 6 && turn % 6 < THREADS ? turn % 6 : THREADS;
        if (admitted != limit) return 3;
        for (int i = 0; i < SIZE; i++) if (marks[i] != 1) return 4;
    }
    if (tunegen_parallel_for(pool, meet, 0, THREADS, 1, 0, 0) != THREADS || far != THREADS - 1) return 5;
    if (tunegen_pool_close(pool) || tunegen_parallel_for(pool, mark, 0, SIZE, 1, 0, 0) != 1) return 6;
    puts("all done");
}
"""


@pytest.fixture(scope="module", autouse=True)
def foreign_targets() -> None:
    initialize_all_targets()


def compiled(architecture: str) -> bytes:
    return compile_object(pool_ir(architecture), Target(f"{architecture}-unknown-linux-gnu", GENERIC[architecture], ""))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_pool_compiles_and_needs_the_c_library_alone(architecture: str) -> None:
    """No Python in it, so that a worker can never wait for the GIL."""
    image = compiled(architecture)
    allowed = LIBC | {"memcpy", "memset"}
    assert LIBC <= set(undefined_symbols(image)) <= allowed
    assert all(code_size_bytes(image, symbol) for symbol in SYMBOLS)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_body_that_calls_python_compiles(architecture: str) -> None:
    target = Target(f"{architecture}-unknown-linux-gnu", GENERIC[architecture], "")
    assert "PyGILState_Ensure" in undefined_symbols(compile_object(BODY_IR, target))


@pytest.mark.skipif(not (shutil.which(CALLER) and shutil.which(EMULATOR)), reason=f"no {CALLER} or no {EMULATOR}")
def test_the_pool_runs_on_aarch64(tmp_path: Path) -> None:
    (tmp_path / "pool.o").write_bytes(compiled("aarch64"))
    (tmp_path / "main.c").write_text(PROGRAM)
    command = [CALLER, "-O1", "-static", "-pthread", "-Wno-all", "-o", "main", "main.c", "pool.o"]
    subprocess.run(command, check=True, cwd=tmp_path)
    done = subprocess.run(
        [EMULATOR, "-cpu", "max", "./main"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "all done\n"), done.stderr


def test_the_program_above_knows_the_size_of_a_pool() -> None:
    assert PoolWords.cursor.offset + 128 == 384
