"""The serving loop: figures of spans, answers that are compared, threads that serve, phases on a made-up clock."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import subprocess
import sys
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegen.harness import latency, serving
from tunegen.harness.latency import FEWEST_PAIRS, Span, compared, figures, merged, quantile_us
from tunegen.harness.serving import Report, held, lines, phases
from tunegen.harness.workloads import untuned
from tunegen.harness.workloads.requests import WORKLOADS, Answer, Asked, Calls, answers
from tunegen.harness.workloads.server import Server
from tunegen.public import scope

SECOND = 10**9


def served(spans: list[Span], per_second: Callable[[Span], float], took_ns: Callable[[Span], int]) -> latency.Requests:
    """Requests at an even rate in each span."""
    starts, took = [], []
    for span in spans:
        count = int(per_second(span) * (span.end_ns - span.start_ns) / SECOND)
        starts += [span.start_ns + i * (span.end_ns - span.start_ns) // count for i in range(count)]
        took += [took_ns(span)] * count
    return merged([starts], [took])


def test_requests_of_several_threads_come_in_the_order_in_which_they_began() -> None:
    requests = merged([array("q", [1, 5, 9]), array("q", [2, 7])], [array("q", [10, 50, 90]), array("q", [20, 70])])
    assert requests.start_ns.tolist() == [1, 2, 5, 7, 9]
    assert requests.took_ns.tolist() == [10, 20, 50, 70, 90]
    assert requests.within(Span("", 2, 7)).tolist() == [20, 50]


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=2000), st.sampled_from([0.5, 0.99, 0.999]))
def test_a_quantile_is_the_least_that_so_many_do_not_exceed(took: list[int], part: float) -> None:
    found = quantile_us(np.array(took), part) * 1e3
    assert sum(t <= found * (1 + 1e-12) for t in took) >= part * len(took) - 1e-9
    assert sum(t < found * (1 - 1e-12) for t in took) < part * len(took)


def test_the_figures_of_a_label_are_those_of_all_its_spans() -> None:
    spans = [Span("a", 0, SECOND), Span("b", SECOND, 2 * SECOND), Span("a", 2 * SECOND, 4 * SECOND)]
    requests = served(spans, lambda span: 100 if span.label == "a" else 40, lambda span: 2000 + span.start_ns // SECOND)
    found = figures(requests, spans, "a")
    assert found is not None
    assert (found.requests, found.seconds, found.per_second) == (300, 3.0, 100.0)
    assert found.latency_us == pytest.approx({"p50": 2.002, "p99": 2.002, "p99.9": 2.002, "max": 2.002})
    assert figures(requests, spans, "c") is None


def turns(count: int, rate: Callable[[int], float], took: Callable[[int], int]) -> tuple[Any, list[Span]]:
    """Spans of three seconds of work and one in which it is held, in turn."""
    spans, at = [], 0
    for i in range(2 * count + 1):
        length = 3 if i % 2 == 0 else 1
        spans.append(Span("held" if i % 2 else "tuning", at * SECOND, (at + length) * SECOND))
        at += length
    numbers = {span: i for i, span in enumerate(spans)}
    return served(spans, lambda span: rate(numbers[span]), lambda span: took(numbers[span])), spans


def test_what_tuning_costs_comes_from_pairs_and_drift_costs_nothing() -> None:
    rng = random.Random(0)

    def drift(i: int) -> float:
        return 1000 * (1 + i / 40)

    requests, spans = turns(
        20, lambda i: drift(i) * (1 if i % 2 else 0.9), lambda i: rng.randrange(990, 1010) * (10 if i % 2 else 12)
    )
    cost = compared(requests, spans, "tuning", "held")
    assert cost["throughput"].value == pytest.approx(0.9, abs=0.005)
    assert cost["p99"].value == pytest.approx(1.2, abs=0.02)
    assert cost["p50"].interval[0] <= cost["p50"].value <= cost["p50"].interval[1]
    assert {ratio.pairs for ratio in cost.values()} == {20}


def test_nothing_is_said_of_too_few_pairs() -> None:
    requests, spans = turns(FEWEST_PAIRS - 1, lambda i: 100, lambda i: 1000)
    assert compared(requests, spans, "tuning", "held") == {}
    requests, spans = turns(FEWEST_PAIRS, lambda i: 100, lambda i: 1000)
    assert compared(requests, spans, "tuning", "held")["throughput"].value == 1.0


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The library that has nothing for an untuned box."""
    (tmp_path / "served").mkdir()
    untuned.write(tmp_path / "served")
    monkeypatch.syspath_prepend(str(tmp_path / "served"))
    importlib.invalidate_caches()
    yield importlib.import_module(untuned.NAME)
    del sys.modules[untuned.NAME]
    del scope._scopes[untuned.NAME]


SMALL = [Asked("softmax", {"M": 3, "N": 17}), Asked("layernorm", {"M": 2, "N": 33}), Asked("sigmoid", {"N": 70})]


def test_every_variant_that_may_be_stamped_here_answers_a_request(
    plain: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNE_MODE", "tune")
    ran = 0
    for answer in answers(plain.scope, SMALL):
        for suffix, variant in answer.kernel.variants().items():
            named = answer.arguments()
            variant(*named.values())
            assert answer.look(named["out"]) != "outside", (answer.kernel.name, suffix)
            ran += 1
    assert ran > 3 * 2


def test_an_untuned_box_runs_the_bodies_and_each_request_has_both_workloads_calls(plain: ModuleType) -> None:
    assert {row.source for row in plain.scope.kernels["softmax"].stamp["f32"].choices} == {"reference"}
    for workload in WORKLOADS.values():
        assert len(workload.request) == 5 * len(workload.asked(1))


def test_an_answer_is_the_first_or_has_other_bits_or_is_outside_the_gate(plain: ModuleType) -> None:
    answer = Answer(plain.sigmoid, {"N": 5}, 0)
    wrong = np.full(5, 3.0, np.float32)
    assert answer.look(wrong) == "outside"
    first = answer.arguments()["out"]
    plain.sigmoid(answer.arguments()["x"], first)
    assert answer.look(first) == "same"
    near = np.nextafter(first, np.float32(2))
    for _ in range(2):
        assert [answer.look(seen) for seen in (first, near, wrong)] == ["same", "other bits", "outside"]


def test_an_output_that_no_call_has_written_is_no_answer(plain: ModuleType) -> None:
    made = answers(plain.scope, SMALL)
    calls = Calls(made)
    calls.serve()
    assert [seen for _, seen in calls.look()] == ["same"] * 3
    calls.clear()
    assert [seen for _, seen in calls.look()] == ["outside"] * 3


class Ticks:
    """A clock that goes on by one at each look."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        self.now += 1
        return self.now


def test_a_server_counts_what_fails_and_what_is_outside(plain: ModuleType) -> None:
    made = answers(plain.scope, SMALL)
    server = Server(made, 1, Ticks())
    calls = Calls(made)
    log = (array("q"), array("q"))
    server.serve(calls, log)
    assert (list(log[0]), list(log[1])) == ([1], [1])
    calls._calls[0] = (lambda *_: None, ())
    server.serve(calls, log)

    def fails(*_: object) -> None:
        raise OSError("no more")

    calls._calls[0] = (fails, ())
    server.serve(calls, log)
    server.serve(calls, log)
    assert (server.failed, len(log[0])) == (2, 2)
    assert server.seen == {"same": 5, "outside": 1}
    assert server.words == ["an answer of softmax is outside its gate", "a request failed: OSError: no more"]


def test_threads_serve_until_the_block_ends(plain: ModuleType) -> None:
    server = Server(answers(plain.scope, SMALL), 2)
    with server.serving():
        while min(len(starts) for starts, _ in server._logs) < 3:
            os.sched_yield()
    served = len(server.requests.took_ns)
    assert served >= 6
    assert server.failed == 0
    assert server.seen == {"same": 3 * served}


class Stage:
    """A made-up clock, and a background that is done after some seconds in which it was at work."""

    def __init__(self, work_s: float, state: str = "done") -> None:
        self.now_ns, self.left_s, self.state = 0, work_s, state
        self.paused, self.stopped, self.holding = True, False, False

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * SECOND)
        if not (self.paused or self.holding):
            self.left_s -= seconds

    def resume(self) -> None:
        self.paused = False

    def stop(self) -> None:
        self.stopped = True

    def status(self) -> Any:
        state = self.state if self.left_s <= 0 else "stopped" if self.stopped else "tuning"
        return SimpleNamespace(state=state, tuned=("untuned:softmax[f32]",), left=(), problems=())

    @contextmanager
    def hold(self) -> Iterator[None]:
        self.holding = True
        yield
        self.holding = False


def ran(stage: Stage, **options: float) -> list[tuple[str, float]]:
    """Labels and seconds of the spans of a run."""
    given = argparse.Namespace(**{"seconds": 5.0, "longest": 100.0, "slice": 1.0, **options})
    found = phases(given, stage, stage.hold, stage.sleep, lambda: stage.now_ns)
    assert stage.stopped
    assert [a.end_ns for a in found[:-1]] == [b.start_ns for b in found[1:]]
    return [(span.label, (span.end_ns - span.start_ns) / SECOND) for span in found]


def test_a_run_goes_on_until_all_is_tuned_and_holds_the_tuner_in_between() -> None:
    turn = [("tuning", 3.0), ("held", 1.0)]
    assert ran(Stage(7.0)) == [("before", 5.0), *turn * 3, ("after", 5.0)]


def test_a_run_that_takes_too_long_is_ended() -> None:
    assert len(ran(Stage(1e9), longest=20.0)) == 2 + 2 * 5


@pytest.mark.parametrize("state", ["done", "failed", "off", "stopped"])
def test_where_nothing_is_tuned_there_is_no_time_in_between(state: str) -> None:
    assert [label for label, _ in ran(Stage(0.0, state))] == ["before", "after"]


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone says who started whom")
def test_what_a_process_started_is_held_and_let_go_with_what_that_one_started() -> None:
    nested = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    with subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with held(os.getpid()) as found:
            assert process.pid in found
            assert len(found) >= 2
            while {state_of(pid) for pid in found} != {"T"}:
                os.sched_yield()
        while "T" in {state_of(pid) for pid in found}:
            os.sched_yield()
        process.communicate(b"\n")
    assert process.returncode == 0


def test_a_run_in_a_test_tunes_nothing_and_serves_all_the_same(capfd: pytest.CaptureFixture[str]) -> None:
    assert serving.main(["--seconds", "0.1", "--json", "--threads", "2"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["state"], found["tuned"], found["failed"]) == ("off", [], 0)
    assert set(found["answers"]) <= {"same"}


def test_a_wrong_answer_is_no_success_and_is_told() -> None:
    figure = latency.Figures(10, 1.0, 10.0, {"p50": 1.0, "p99": 2.0, "p99.9": 3.0, "max": 4.0})
    ratio = latency.Ratio(0.99, (0.98, 1.01), 9)
    good = Report("block", 1, "done", ["k:a[f32]"], [], [], {"before": figure}, {"p99": ratio}, 2.0, 10, 0,
                  {"same": 30, "other bits": 3}, [])  # fmt: skip
    assert good.right
    text = "\n".join(lines(good))
    assert "1 of 1 kernels were tuned: done" in text
    assert "p99, tuning / held: 0.990 [0.980, 1.010], 9 pairs" in text
    assert "10 requests, 0 failed; answers: 30 same; 3 other bits; 0 outside" in text
    assert not Report(*[getattr(good, name) for name in Report.__struct_fields__[:10]], 1, {}, []).right
    assert not Report(*[getattr(good, name) for name in Report.__struct_fields__[:11]], {"outside": 1}, []).right
