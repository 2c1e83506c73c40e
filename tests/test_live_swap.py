"""Swapping while calls run in other threads: each answer is wholly that of one variant, and none is lost."""

from __future__ import annotations

import sys
import threading
import time

import numpy as np
import pytest
from toys import COMPANIONS, GENERIC, PARAMETERS, TOY_TEMPLATE, ran

import tunegen
from tunegen import tuning
from tunegen.public import scope
from tunegen.public.swapping import swap

SWAPS = 40


@pytest.fixture(autouse=True)
def impatient():
    """Threads take turns a hundred times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def hammer(made, calls, one="row1", two="row3"):
    """Runs each of `calls` in a thread of its own, again and again, while `toy` is swapped between two winners.

    Each is called at least once between two swaps. Returns all answers.
    """
    over, answers, errors = threading.Event(), [set() for _ in calls], []
    times = [0] * len(calls)

    def work(number):
        try:
            while not over.is_set():
                answers[number].update(calls[number]())
                times[number] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    try:
        for turn in range(SWAPS):
            assert tunegen.tune_manifest_set(made.toy, (one, two)[turn % 2])
            assert swap(scope.find_scope(made.__name__), ["toy[f32]"]) == []
            before = list(times)
            while not errors and not all(now > then + 1 for now, then in zip(times, before, strict=True)):
                time.sleep(0)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert errors == []
    return answers


def answers_of(kernel, n=8, dtype=np.float32):
    x, out = np.ones(n, dtype), np.zeros(n, dtype)

    def call():
        kernel(x, out)
        return set(map(int, out))

    return call


def whole(kernel, n):
    """A call whose answer is the set of rows that had a part in it; an answer of two is not wholly one's."""
    call = answers_of(kernel, n)
    return lambda: {tuple(sorted(call()))}


def test_each_call_is_answered_by_one_variant_while_they_are_swapped(library):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row1")
    tunegen.load()
    strided = np.ones((3, 16), np.float32)[:, ::2][0]

    def slow():
        return {(int(made.toy(x=strided)[0]),)}

    seen = hammer(made, [whole(made.toy, 8), whole(made.toy, 100_000), slow])
    assert seen == [{(1,), (3,)}] * 3


def test_a_call_that_is_split_over_threads_has_one_variant_in_all_its_parts(library, monkeypatch):
    monkeypatch.setenv("TUNE_THREADS", "2")
    made = library(PARAMETERS)
    assert tuning.set(made.toy, {"parallel.minimum": 1000, "parallel.grain": 100})
    assert tunegen.tune_manifest_set(made.toy, "row1")
    tunegen.load()
    calls = [whole(made.toy, 4096), whole(made.toy, 4096), whole(made.toy, 8)]
    assert hammer(made, calls) == [{(1,), (3,)}] * 3


def test_threads_that_are_there_are_used_by_a_kernel_that_is_stamped_anew(library, monkeypatch):
    """No call takes the slow path to ask for them."""
    monkeypatch.setenv("TUNE_THREADS", "2")
    made = library(PARAMETERS)
    call = answers_of(made.toy, 4096)
    call()
    made.toy.reload()
    before = made.toy.slow_calls
    call()
    assert made.toy.slow_calls == before


def test_a_swap_between_a_variant_and_the_reference(library):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row1")
    tunegen.load()
    assert hammer(made, [whole(made.toy, 8), whole(made.toy, 3)], "row1", "reference") == [{(1,), (-1,)}] * 2


def test_only_the_kernel_that_was_found_is_swapped(library):
    made = library(GENERIC + GENERIC.replace("def toy", "def tea"), {"generic.ll.j2": TOY_TEMPLATE})
    assert (ran(made.toy), ran(made.tea)) == (1, 1)
    for kernel in (made.toy, made.tea):
        assert tunegen.tune_manifest_set(kernel, "row3", "f32")
    library = scope.find_scope(made.__name__)
    assert swap(library, ["toy[f32]", "toy[f64]"]) == ["toy[f64]"]
    assert [ran(made.toy), ran(made.toy, dtype=np.float64), ran(made.tea)] == [3, 1, 1]
    tunegen.load()
    assert ran(made.tea) == 3


def test_sessions_keep_their_variant_and_later_ones_have_the_new(library):
    made = library()
    with tunegen.session() as old:
        bound = old.bind(made.toy)
        assert ran(bound) == 2
        assert tunegen.tune_manifest_set(made.toy, "row3")
        assert swap(scope.find_scope(made.__name__), ["toy[f32]"]) == []
        with tunegen.session() as new:
            assert [ran(bound), ran(made.toy), ran(new.bind(made.toy))] == [2, 3, 3]


def test_a_kernel_with_companions_is_not_swapped_while_the_program_runs(library, caplog):
    """What an old companion has packed must not be read by a new variant. A session has all of one perm."""
    caplog.set_level("INFO", "tunegen")
    made = library(COMPANIONS)
    assert (ran(made.toy), ran(made.pack)) == (3, 3)
    assert tunegen.tune_manifest_set(made.toy, "row4")
    assert swap(scope.find_scope(made.__name__), ["toy[f32]"]) == []
    assert "row4 was found; because of the companions it runs from the next start, session or" in caplog.text
    assert (ran(made.toy), ran(made.pack)) == (3, 3)
    with tunegen.session() as session:
        assert (ran(session.bind(made.toy)), ran(session.bind(made.pack))) == (4, 4)
    tunegen.load()
    assert (ran(made.toy), ran(made.pack)) == (4, 4)
