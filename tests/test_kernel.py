"""The kernel object: what it offers, how it pickles, and what a stamped program imports."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading

import numpy as np
import pytest
from toys import COMPANIONS, ran, write_library

import tunegen
from tunegen.errors import Declined, KernelNotFound
from tunegen.making import make


def test_a_kernel_looks_like_its_reference(library):
    made = library()
    assert made.toy.__name__ == "toy"
    assert list(inspect.signature(made.toy).parameters) == ["x", "out"]
    assert repr(made.toy) == f"<kernel {made.__name__}:toy(x: in f32[N], out: out f32[N])>"
    out = np.zeros(2, np.float32)
    made.toy.reference(out, out)
    assert out[0] == -1
    assert set(made.toy.stamp) == {"f32"}
    assert made.toy.stamp["f32"].default.emitted == "row2"
    with pytest.raises(TypeError):
        made.toy.stamp["f32"] = None


def test_ir_and_assembly_of_a_row(library):
    made = library()
    assert "define void @toy_f32__row3(" in made.toy.ir("row3")
    assert "toy_f32__row3:" in made.toy.asm("row3", "f32")
    with pytest.raises(KernelNotFound, match="'row9' is no row; rows are row1, row2, row3, row4, five"):
        made.toy.ir("row9")
    with pytest.raises(KernelNotFound, match="element type 'f64'; there are f32"):
        made.toy.ir("row3", "f64")
    with pytest.raises(Declined, match="no"):
        library(templates={"toy.ll.j2": "{{ decline('no') }}"}).toy.ir("row1")


@pytest.mark.parametrize("again", [lambda k: pickle.loads(pickle.dumps(k)), copy.copy, copy.deepcopy])
def test_kernels_and_companions_pickle_by_name(library, again):
    made = library(COMPANIONS)
    assert ran(made.toy) == 3
    for kernel in (made.toy, made.pack):
        assert again(kernel) is kernel


def test_a_pickle_loads_in_another_process(library, child):
    made = library()
    done = child(
        f"import pickle; kernel = pickle.loads({pickle.dumps(made.toy)!r}); print(kernel); import numpy as np\n"
        "print(int(kernel(np.zeros(1, np.float32))[0]))"
    )
    assert done.stdout.splitlines() == [repr(made.toy), "2"]


def test_a_pickle_of_a_kernel_that_is_no_more_says_so(library):
    made = library()
    data = pickle.dumps(made.toy)
    for value in ({}, {"toy": print}):
        vars(made).pop("toy", None)
        vars(made).update(value)
        with pytest.raises(KernelNotFound, match=f"{made.__name__}.toy is no kernel"):
            pickle.loads(data)


def test_the_first_calls_of_many_threads_stamp_once(library):
    made = library(COMPANIONS)
    answers, ready = [], threading.Barrier(16)

    def first(kernel):
        ready.wait()
        answers.append(ran(kernel))

    threads = [threading.Thread(target=first, args=[k]) for k in (made.toy, made.pack, made.unpack, made.toy) * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [3] * 16
    assert make.counters["linked"] <= 3 + 3 + 3


def test_loading_while_other_threads_call_changes_the_row_and_breaks_no_call(library):
    made = library()
    ran(made.toy)
    seen, stop = set(), threading.Event()

    def keep_calling():
        while not stop.is_set():
            seen.add(ran(made.toy))

    thread = threading.Thread(target=keep_calling)
    thread.start()
    for suffix in ("row3", "row1", "reference", "five"):
        assert tunegen.tune_manifest_set(made.toy, suffix)
        tunegen.load()
    stop.set()
    thread.join()
    assert seen <= {2, 3, 1, -1, 5}
    assert ran(made.toy) == 5


IMPORTS = """
import sys
import tunegen
import {name} as made
import numpy as np
heavy = ("rich", "jinja2", "tunegen.cli", "tunegen.harness", "tunegen.kernels", "llvmlite", "archspec", "filelock",
         "optuna", "matplotlib")
print(*[m for m in heavy if m in sys.modules])
out = np.zeros(1, np.float32)
made.toy(out, out + 1)
tunegen.tune_status()
tunegen.apply_policy(missing="warn")
print(*[m for m in heavy if m in sys.modules])
"""


def test_loading_stamping_and_calling_import_nothing_heavy(child, tmp_path):
    code = IMPORTS.format(name=write_library(tmp_path / "libraries"))
    assert child(code).stdout.splitlines() == ["", "jinja2 llvmlite"]
    assert child(code).stdout.splitlines() == ["", "llvmlite"]
