"""Sessions: captured once, isolated from what comes later, and free of registry, file and environment in a call."""

from __future__ import annotations

import builtins
import copy
import os
import pickle
import sys
import threading

import numpy as np
import pytest
from toys import COMPANIONS, GENERIC, PARAMETERS, TOY_TEMPLATE, ran

import tunegen
from tunegen import knobs, tuning
from tunegen.box import effective_threads, this_box
from tunegen.choosing import published, store
from tunegen.errors import KernelNotFound, ParameterError, SessionError
from tunegen.making import make
from tunegen.public import scope, sources
from tunegen.public.session import Hints


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    monkeypatch.setenv("TUNE_THREADS", "2")


def publish(kernel, **values):
    spec = kernel.spec
    (t,) = spec.signature.element_types
    whole = spec.schema.completed({name.replace("__", "."): value for name, value in values.items()})
    return published.publish({(spec.tuning_key(t), this_box()): whole}, {spec.tuning_key(t): spec.schema})


def test_a_bound_kernel_answers_as_the_kernel_does(library):
    made = library()
    with tunegen.session() as session:
        bound = session.bind(made.toy)
        assert ran(bound) == ran(made.toy) == 2
        assert bound.stamp["f32"] == made.toy.stamp["f32"]
        assert (bound.session, bound.name, bound.__name__) == (session, "toy", "toy")
        assert session.bind("toy") is session.bind(f"{made.__name__}:toy") is bound
        assert bound.table_offset == made.toy.table_offset, "one native entry serves both"


def test_a_session_may_be_left_by_an_exception_and_closed_twice(library):
    made = library()
    session = tunegen.session()
    bound = session.bind(made.toy)
    with pytest.raises(ZeroDivisionError), session:
        raise ZeroDivisionError
    session.close()
    assert ran(bound) == 2
    with pytest.raises(SessionError, match="toy cannot be bound: the session has ended"):
        session.bind(made.toy)


@pytest.mark.parametrize(
    ("pins", "rows"),
    [
        ({}, (2, 2)),
        ({"toy": "row3"}, (3, 3)),
        ({"toy": "reference"}, (-1, -1)),
        ({"toy[f64]": "row1"}, (2, 1)),
        ({"toy[f64]": "row1", "toy": "row3"}, (3, 1)),
    ],
)
def test_a_pin_goes_before_all_tiers_and_the_one_for_an_element_type_before_that_for_the_kernel(
    library, monkeypatch, pins, rows
):
    made = library(GENERIC.replace("row1; row2", "row2"), {"generic.ll.j2": TOY_TEMPLATE})
    assert tunegen.tune_manifest_set(made.toy, "row2")
    if pins:
        monkeypatch.setenv("TUNE_POLICY", "reference")
    with tunegen.session(pins=pins) as session:
        bound = session.bind(made.toy)
        if pins == {"toy[f64]": "row1"}:
            rows = (-1, 1)
        assert (ran(bound), ran(bound, dtype=np.float64)) == rows


def test_a_pin_may_name_its_library_where_names_clash(library):
    one, two = library(), library()
    with pytest.raises(KernelNotFound, match="ambiguous"):
        tunegen.session(pins={"toy": "row3"})
    with tunegen.session(pins={f"{two.__name__}:toy": "row3"}) as session:
        assert (ran(session.bind(one.toy)), ran(session.bind(two.toy))) == (2, 3)


@pytest.mark.parametrize(
    ("pins", "said"),
    [
        ({"tea": "row1"}, "no kernel 'tea'"),
        ({"toy": "row9"}, "toy: 'row9' is no row; rows are reference, row1"),
        ({"toy": 3}, "toy: 3 is no row"),
        ({"toy[f64]": "row1"}, "toy has no element type 'f64'; there are f32"),
    ],
)
def test_a_pin_that_names_nothing_is_an_error(library, pins, said):
    library()
    with pytest.raises(KernelNotFound, match=said):
        tunegen.session(pins=pins)


def test_a_pin_that_cannot_run_here_passes_on_and_says_why(library):
    made = library()
    with tunegen.session(pins={"toy": "row4"}) as session:
        choice = session.bind(made.toy).stamp["f32"].default
        assert (choice.asked, choice.state, choice.emitted) == ("row4", "ineligible", "row2")


def test_companions_are_bound_with_their_kernel(library):
    made = library(COMPANIONS)
    with tunegen.session(pins={"toy": "row4"}) as session:
        pack = session.bind(made.pack)
        assert ran(pack) == ran(session.bind(made.unpack)) == ran(session.bind(made.toy)) == 4
        assert session.bind(made.toy).companions["pack"] is pack
        assert ran(made.pack) == 3


def test_the_manifest_of_a_session_stands_right_below_that_of_the_environment(library, tmp_path, monkeypatch):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row1")
    (tmp_path / "own.json").write_text('{"toy": "row3"}')
    (tmp_path / "named.json").write_text('{"toy": "five"}')
    session = tunegen.session(manifest=tmp_path / "own.json")
    (tmp_path / "own.json").write_text('{"toy": "row2"}')
    assert ran(session.bind(made.toy)) == 3, "it is read once"
    assert session.bind(made.toy).stamp["f32"].default.path == str(tmp_path / "own.json")
    monkeypatch.setenv("TUNE_MANIFEST", str(tmp_path / "named.json"))
    assert ran(tunegen.session(manifest=str(tmp_path / "own.json")).bind(made.toy)) == 5
    assert ran(tunegen.session(manifest=tmp_path / "nothing.json").bind(made.toy)) == 5
    assert ran(made.toy) == 5


def test_files_are_captured_when_a_session_is_made(library):
    made = library()
    assert tunegen.tune_manifest_set(made.toy, "row1")
    old = tunegen.session()
    assert tunegen.tune_manifest_set(made.toy, "row3")
    tunegen.load()
    assert ran(tunegen.session().bind(made.toy)) == 3
    assert ran(old.bind(made.toy)) == 1, "even what is bound later"


def test_an_old_session_keeps_its_values_and_a_new_one_has_the_new(library):
    made = library(PARAMETERS)
    with tunegen.session() as old:
        bound = old.bind(made.toy)
        assert (ran(bound, 99), ran(bound, 100)) == (1, 2)
        generation = publish(made.toy, large__minimum=50)
        with tunegen.session() as new:
            assert new.generation is generation
            assert (ran(new.bind(made.toy), 49), ran(new.bind(made.toy), 50)) == (1, 2)
            assert new.bind(made.toy).values["f32"]["large.minimum"] == 50
        assert ran(bound, 50) == 1
        tunegen.load()
        assert ran(made.toy, 50) == 2
        assert ran(bound, 50) == 1
        assert bound.values["f32"]["large.minimum"] == 100
        with pytest.raises(TypeError):
            bound.values["f32"]["large.minimum"] = 1


def test_a_session_with_fewer_threads_has_the_winners_of_this_box_and_the_values_of_its_own_number(library):
    made = library(PARAMETERS)
    assert tunegen.tune_manifest_set(made.toy, "row3")
    assert tuning.set(made.toy, {"ratio": 0.25})
    tunegen.load()
    for threads, ratio in ((1, 0.5), (2, 0.25)):
        with tunegen.session(threads=threads) as session:
            bound = session.bind(made.toy)
            assert (ran(bound), bound.values["f32"]["ratio"]) == (3, ratio)


def test_kernels_without_a_session_keep_their_values_until_load(library):
    made = library(PARAMETERS)
    assert ran(made.toy, 50) == 1
    publish(made.toy, large__minimum=50)
    assert (ran(made.toy, 50), made.toy.values["f32"]["large.minimum"]) == (1, 100)
    tunegen.load()
    assert (ran(made.toy, 50), made.toy.values["f32"]["large.minimum"]) == (2, 50)


def test_values_of_a_session_complete_those_that_would_hold_without_it(library):
    made = library(PARAMETERS)
    publish(made.toy, large__minimum=50)
    with tunegen.session(parameters={"toy": {"ratio": 0.25}, "toy[f32]": {"way": "right"}}) as session:
        values = session.bind(made.toy).values["f32"]
    assert (values["large.minimum"], values["ratio"], values["way"], values["exact"]) == (50, 0.25, "right", True)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"large": 1}, "toy[f32]: unknown parameter 'large'; there are large.minimum"),
        ({"large.minimum": True}, "large.minimum=True: allowed is a whole number from 1 to 10000 (elements)"),
        ({"large.minimum": 1.0}, "large.minimum=1.0: allowed"),
        ({"ratio": 1}, "ratio=1: allowed is a finite number"),
        ({"way": "up"}, "way='up': allowed is one of left, right"),
        ({"parallel.grain": 2000}, "the rule 'parallel.grain <= parallel.minimum' does not hold"),
    ],
)
def test_values_that_the_schema_refuses_are_an_error(library, values, said):
    library(PARAMETERS)
    with pytest.raises(ParameterError) as caught:
        tunegen.session(parameters={"toy[f32]": values})
    assert said in str(caught.value)


def test_values_for_an_unknown_kernel_are_an_error(library):
    library(PARAMETERS)
    with pytest.raises(KernelNotFound, match="no kernel 'tea'"):
        tunegen.session(parameters={"tea": {}})


def test_threads_are_limited_by_the_process_and_the_host(library, monkeypatch):
    library()
    monkeypatch.setenv("TUNE_THREADS", "3")
    assert effective_threads() == 3
    for asked, hints, given in [
        (None, None, 3), (2, None, 2), (9, None, 3), (None, {"threads_available": 2}, 2),
        (9, Hints(threads_available=1), 1), (1, {"threads_available": 8, "background": True}, 1),
    ]:  # fmt: skip
        assert tunegen.session(threads=asked, hints=hints).threads == given


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"threads": 0}, "threads=0: allowed is a whole number from 1 up"),
        ({"threads": True}, "threads=True"),
        ({"threads": 1.5}, "threads=1.5"),
        ({"hints": {"threads_available": 0}}, "threads_available=0"),
        ({"hints": {"threads": 2}}, "a hint is one of threads_available, background"),
        ({"hints": {"background": "yes"}}, "background"),
    ],
)
def test_threads_and_hints_that_mean_nothing_are_an_error(arguments, said):
    with pytest.raises(ValueError, match=said):
        tunegen.session(**arguments)


def test_one_executor_serves_all_kernels_of_a_session_and_ends_with_it(library):
    made = library(PARAMETERS + PARAMETERS.replace("def toy", "def tea"))
    with tunegen.session(threads=2) as session:
        bound = session.bind(made.toy)
        assert ran(bound, 5000) == ran(session.bind(made.tea), 5000) == 2
        executor = session.executor
        assert session.executor is executor
        assert executor.threads == 2
    assert executor.threads == 1, "it is closed"
    assert ran(bound, 5000) == 2, "and its kernels go on serially"


def test_a_session_with_one_thread_has_no_executor(library):
    made = library(PARAMETERS)
    with tunegen.session(threads=1) as session:
        assert session.executor is None
        assert ran(session.bind(made.toy), 5000) == 2


def test_a_host_in_the_background_has_workers_that_do_not_spin(library):
    library()
    with tunegen.session(hints={"background": True}) as session:
        assert session.executor._words.spin_ns == 0
    with tunegen.session() as session:
        assert session.executor._words.spin_ns > 0


def test_calls_are_split_over_the_executor_of_their_session(library):
    """Parallel events tell which values a session has: an old one goes on with its own."""
    from tunegen.executor import Collector

    made = library(PARAMETERS)
    with tunegen.session(parameters={"toy": {"parallel.minimum": 2000, "parallel.grain": 500}}) as session:
        bound = session.bind(made.toy)
        with Collector(session.executor) as collector:
            ran(bound, 1999)
            ran(bound, 2000)
            assert tuning.set(made.toy, {"parallel.minimum": 200}).status == "updated"
            ran(bound, 300)
        (event,) = collector.events()
        assert (event.label, event.grain) == ("toy", 500)
    with tunegen.session() as later, Collector(later.executor) as collector:
        ran(later.bind(made.toy), 300)
    assert len(collector.events()) == 1


@pytest.mark.parametrize("again", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_bound_kernel_cannot_be_pickled_or_copied(library, again):
    made = library()
    with tunegen.session() as session, pytest.raises(TypeError, match="toy is bound to a session of this process"):
        again(session.bind(made.toy))


def test_a_bound_call_reads_no_registry_no_file_and_no_environment(library, monkeypatch):
    """Counted: all ways to any of them, in Python and below."""
    made = library(PARAMETERS)
    with tunegen.session() as session:
        bound = session.bind(made.toy)
        counts = dict.fromkeys(("registry", "manifest", "knob", "environment"), 0)

        def counting(kind, real):
            def count(*args, **kwargs):
                counts[kind] += 1
                return real(*args, **kwargs)

            return count

        monkeypatch.setattr(scope, "scopes", counting("registry", scope.scopes))
        monkeypatch.setattr(sources, "scopes", counting("registry", sources.scopes))
        monkeypatch.setattr(published, "current", counting("registry", published.current))
        monkeypatch.setattr(store, "read", counting("manifest", store.read))
        monkeypatch.setattr(sources, "read_manifest", counting("manifest", sources.read_manifest))
        monkeypatch.setattr(knobs.Knob, "get", counting("knob", knobs.Knob.get))
        monkeypatch.setattr(type(os.environ), "__getitem__", counting("environment", type(os.environ).__getitem__))
        monkeypatch.setattr(builtins, "open", counting("manifest", open))
        events = []
        watching = True
        files = ("open", "os.listdir", "os.scandir")
        sys.addaudithook(lambda event, _: events.append(event) if watching and event in files else None)
        x, out = np.zeros(5000, np.float32), np.zeros(5000, np.float32)
        for _ in range(100):
            bound(x, out)
            bound(x[:3], out[:3])
            bound(x=x[::2], out=out[:2500])
        watching = False
        assert bound.slow_calls == 100
        assert (counts, events) == (dict.fromkeys(counts, 0), [])
        monkeypatch.undo()


def test_a_bound_call_runs_no_python(library):
    made = library(PARAMETERS)
    with tunegen.session() as session:
        bound = session.bind(made.toy)
        x, out = np.zeros(5000, np.float32), np.zeros(5000, np.float32)
        seen = []
        sys.setprofile(lambda frame, event, argument: seen.append(frame.f_code.co_name) if event == "call" else None)
        try:
            bound(x, out)
        finally:
            sys.setprofile(None)
        assert seen == []


def test_many_threads_bind_once_and_get_one_kernel(library):
    made = library(PARAMETERS)
    found, ready = [], threading.Barrier(8)
    with tunegen.session() as session:

        def bind():
            ready.wait()
            bound = session.bind(made.toy)
            found.append((id(bound), ran(bound, 5000)))

        threads = [threading.Thread(target=bind) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(found)) == 1


def test_a_session_ends_while_other_threads_call_and_breaks_no_call(library):
    made = library(PARAMETERS)
    session = tunegen.session()
    bound, stop, answers = session.bind(made.toy), threading.Event(), set()

    def keep_calling():
        while not stop.is_set():
            answers.add(ran(bound, 5000))

    threads = [threading.Thread(target=keep_calling) for _ in range(3)]
    for thread in threads:
        thread.start()
    session.close()
    assert ran(bound, 5000) == 2
    stop.set()
    for thread in threads:
        thread.join()
    assert answers <= {2}


def test_sessions_that_choose_the_same_map_no_code_twice(library):
    made = library(PARAMETERS)
    ran(made.toy)
    linked = make.counters["linked"]
    for _ in range(3):
        with tunegen.session(threads=1) as session:
            ran(session.bind(made.toy))
    assert make.counters["linked"] == linked


def test_in_the_modes_tune_and_test_a_bound_kernel_runs_its_reference(library, monkeypatch):
    made = library(PARAMETERS)
    monkeypatch.setenv("TUNE_MODE", "tune")
    with tunegen.session() as session:
        assert ran(session.bind(made.toy)) == -1
        assert dict(session.bind(made.toy).stamp) == {}


def test_without_a_compiler_a_session_runs_references(library, child):
    made = library(PARAMETERS)
    done = child(f"""
        import sys
        sys.modules["llvmlite"] = sys.modules["llvmlite.binding"] = None
        import numpy as np, tunegen, {made.__name__} as made
        with tunegen.session(threads=2) as session:
            toy = session.bind(made.toy)
            print(int(toy(np.zeros(5000, np.float32))[0]), toy.stamp["f32"].default.emitted)
    """)
    assert done.stdout.split() == ["-1", "reference"], done.stderr


def test_importing_tunegen_imports_no_session_executor_or_tuning(child):
    done = child("""
        import sys, tunegen
        print(*[m for m in sys.modules if m in ("tunegen.public.session", "tunegen.executor", "tunegen.tuning")])
        tunegen.session
        print(*[m for m in sys.modules if m in ("tunegen.public.session", "tunegen.executor", "tunegen.tuning")])
    """)
    assert done.stdout.splitlines() == ["", "tunegen.public.session"], done.stderr


def test_session_shows_its_state(library):
    library()
    with tunegen.session(threads=1) as session:
        assert repr(session) == f"<session: 1 thread, generation {session.generation.number}>"
    assert "ended" in repr(session)
