"""The pace: a tuner with a share of one core rests, and what it decides does not depend on that. No real clock."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from toys import TOY

from tunegen.harness import crew, engine
from tunegen.harness.engine import Settings, tune
from tunegen.harness.pacing import SLICE_S, WORK_S, Pace
from tunegen.harness.plan import EFFORTS, Budget
from tunegen.harness.protocol import Candidate, Job, Message, Outcome, Ready, RegimeResult, Resting, Result, Trying
from tunegen.harness.spawn import Stop
from tunegen.harness.target import targets
from tunegen.harness.worker import Stopped, Worker
from tunegen.public.scope import find_scope


class Box:
    """A clock and the processor time of a process, which work moves together and sleep apart."""

    def __init__(self, used: float = 0.0) -> None:
        self.now = 1000.0
        self.used = used
        self.slept: list[float] = []

    def pace(self, share: float | None) -> Pace:
        """The pace of a process on this box."""
        return Pace(share, lambda: self.now, lambda: self.used, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def work(self, seconds: float, wall: float | None = None) -> None:
        self.used += seconds
        self.now += seconds if wall is None else wall


def never() -> bool:
    return False


def test_without_a_share_nobody_rests() -> None:
    box = Box()
    pace = box.pace(None)
    box.work(100)
    pace.rest(never)
    assert (box.slept, pace.share, pace.working_s()) == ([], 1.0, box.now)


@pytest.mark.parametrize("share", [0.05, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("step", [0.0005, 0.03, 10.0])
def test_over_a_run_no_more_than_the_share_is_used_and_hardly_less(share: float, step: float) -> None:
    box, rng = Box(used=1.5), random.Random(1)
    start, pace = box.now - box.used, box.pace(share)
    for _ in range(int(max(20, 5 / step))):
        box.work(step * rng.uniform(0.5, 1.5))
        pace.rest(never)
        wall = box.now - start
        assert box.used - WORK_S <= share * wall
        assert box.used >= share * wall * 0.999
    assert pace.working_s() == box.used


def test_a_little_work_is_not_slept_off_at_once() -> None:
    box = Box()
    pace = box.pace(0.25)
    for _ in range(int(WORK_S / 0.01) - 1):
        box.work(0.01)
        pace.rest(never)
    assert box.slept == []
    box.work(0.02)
    pace.rest(never)
    assert sum(box.slept) == pytest.approx(3 * (WORK_S + 0.01))


def test_a_time_without_work_is_no_debt_and_no_credit_later() -> None:
    box = Box()
    pace = box.pace(0.25)
    box.work(1.0, wall=4.0)
    pace.rest(never)
    assert box.slept == []
    box.work(1.0, wall=100.0)
    pace.rest(never)
    box.work(1.0)
    pace.rest(never)
    assert sum(box.slept) == pytest.approx(3.0)


def test_a_large_debt_is_slept_off_in_pieces_that_are_told() -> None:
    box, told = Box(), list[float]()
    pace = box.pace(0.05)
    box.work(10.0)
    pace.rest(never, told.append)
    assert sum(told) == pytest.approx(190.0)
    assert max(told) <= SLICE_S * 1.001
    assert told == pytest.approx(box.slept)


def test_a_rest_ends_when_the_run_does() -> None:
    box = Box()
    pace = box.pace(0.05)
    box.work(10.0)
    pace.rest(lambda: box.now > 1015)
    assert box.now == pytest.approx(1015, abs=2 * SLICE_S)


def test_a_rest_or_a_time_without_a_processor_costs_the_pace_of_a_run_nothing() -> None:
    box = Box()
    budget = Budget(EFFORTS["quick"], 2, None, box.pace(0.25))
    before = budget.screening_s(2), budget.final_s([1.5, 1.2])
    box.now += 1000
    assert (budget.screening_s(2), budget.final_s([1.5, 1.2])) == pytest.approx(before)


def test_a_budget_is_wall_time_and_the_work_in_it_has_its_share() -> None:
    box = Box()
    pace = box.pace(0.25)
    budget = Budget(EFFORTS["quick"], 1, 100.0, pace)
    assert budget.screening_s(1) == pytest.approx(0.6 * 25)
    assert budget.final_s([1.5]) == pytest.approx(25)
    box.work(5.0)
    pace.rest(never)
    assert box.now == pytest.approx(1020)
    assert budget.limit_s == pytest.approx(80)
    assert budget.screening_limit_s(1) == pytest.approx(60)
    assert budget.final_s([1.5]) == pytest.approx(20)
    box.now += 80
    assert budget.over


Speech = list[Message]


@pytest.fixture
def resting(library: Any) -> Callable[..., tuple[Worker, Box, Speech]]:
    """`resting(**job)`: a worker at a quarter of a core, its box, and what it says."""

    def make(**more: Any) -> tuple[Worker, Box, Speech]:
        made, box, said = library(), Box(), Speech()
        kernel = find_scope(made.__name__).kernels["toy"]
        job = Job(made.scope.name, made.__name__, "toy", "f32", 60.0, 9, 3, **more)
        one = Worker(job, kernel, said.append)
        one.pace = box.pace(0.25)
        one.started, one.began = one.pace.now(), one.pace.working_s()
        return one, box, said

    return make


STEP = Trying("row3", "gate", 0, 1)


def test_a_worker_rests_before_a_step_says_so_and_its_time_stands_still(resting: Any) -> None:
    one, box, said = resting()
    one.bench.last = object()
    box.work(1.0)
    one.tell(Candidate("row3", Outcome("passed")))
    assert box.slept == []
    one.tell(STEP)
    assert said[-1] == STEP
    assert sum(message.seconds for message in said[1:-1]) == pytest.approx(3.0)
    assert one._passed_s() == pytest.approx(1.0)
    # what the bench had in the caches is not there any more
    assert one.bench.last is None


def test_a_signal_ends_the_rest_of_a_worker(resting: Any) -> None:
    one, box, said = resting()
    box.work(1000.0)
    one.pace._sleep = lambda seconds: (box.sleep(seconds), setattr(one, "stop", "interrupted"))
    with pytest.raises(Stopped, match="interrupted"):
        one.tell(STEP)
    assert len(box.slept) == len(said) == 1


def test_the_limit_of_a_run_goes_on_while_a_worker_rests(resting: Any) -> None:
    one, box, _ = resting(limit_s=20.0)
    box.work(10.0)
    with pytest.raises(Stopped, match="budget ended"):
        one.tell(STEP)
    assert box.now == pytest.approx(1020, abs=2 * SLICE_S)


class Run:
    """A run of the engine whose workers follow a script, at a share of a core."""

    def __init__(self, made: Any, monkeypatch: pytest.MonkeyPatch, share: float | None) -> None:
        self.box, self.made, self.jobs, self.stop = Box(), made, list[Job](), Stop()
        self.patch = monkeypatch
        monkeypatch.setattr(engine, "Pace", lambda *_: self.box.pace(share))
        for module in (engine, crew):
            monkeypatch.setattr(module, "now_s", lambda: self.box.now)

    def reports(self, script: Callable[[Job], Iterator[Message]], budget_s: float | None = None) -> list[Any]:
        def messages(job: Job, *_: Any) -> Iterator[Message]:
            self.jobs.append(job)
            return script(job)

        self.patch.setattr(crew, "messages", messages)
        chosen = targets(find_scope(self.made.__name__), retune=True)
        return list(tune(chosen, lambda event: None, Settings(budget_s=budget_s), stop=self.stop))


@pytest.fixture
def runs(library: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[float | None], Run]:
    """`runs(share)`: two kernels to tune."""
    two = "".join(TOY.replace("def toy", f"def toy{n}") for n in range(2))
    return lambda share: Run(library(two), monkeypatch, share)


def script(box: Box, work: float, rest: float) -> Callable[[Job], Iterator[Message]]:
    """Workers that start in a second, work so long, and rest so long in the middle of it."""

    def play(job: Job) -> Iterator[Message]:
        box.work(1.0)
        yield Ready(1.0)
        yield STEP
        box.work(work / 2)
        for _ in range(4):
            box.now += rest / 4
            yield Resting(rest / 4)
        box.work(work / 2)
        if job.stage == "screen":
            yield Candidate("row3", Outcome("passed"))
            yield Result([])
        else:
            yield Result([RegimeResult("", "row3", 1.5, 2.0, {"kind": "isolated", "ratio": 1.5})])

    return play


def test_workers_that_rest_have_the_same_time_to_work(runs: Any) -> None:
    plain = runs(None)
    assert [report.problem for report in plain.reports(script(plain.box, 2.0, 0.0))] == ["", ""]
    rested = runs(0.25)
    assert [report.problem for report in rested.reports(script(rested.box, 2.0, 60.0))] == ["", ""]
    assert [job.seconds for job in rested.jobs] == pytest.approx([job.seconds for job in plain.jobs])


def test_a_report_tells_rest_from_work(runs: Any) -> None:
    run = runs(0.25)
    first, _ = run.reports(script(run.box, 2.0, 6.0))
    assert first.seconds == pytest.approx({"start-up": 2.0, "gate": 4.0, "rest": 12.0})


def test_the_parent_rests_for_itself_and_for_its_workers_when_none_is_at_work(runs: Any) -> None:
    run = runs(0.25)
    started, working = run.box.now, [False]
    play = script(run.box, 2.0, 6.0)

    def watched(job: Job) -> Iterator[Message]:
        working[0] = True
        try:
            yield from play(job)
        finally:
            working[0] = False

    sleep = run.box.sleep
    run.box.sleep = lambda seconds: sleep(seconds) if not working[0] else pytest.fail("it sleeps beside a worker")
    run.reports(watched)
    wall = run.box.now - started
    assert run.box.used == pytest.approx(4 * 3.0)
    assert run.box.used <= 0.25 * wall * 1.001


def test_a_parent_that_is_told_to_end_does_not_rest(runs: Any) -> None:
    run = runs(0.05)
    run.box.used = 10.0
    run.stop.signum = 15
    assert [report.problem for report in run.reports(script(run.box, 2.0, 0.0))] == ["interrupted before its turn"] * 2
    assert run.box.slept == []


def test_a_budget_ends_a_run_that_rests_in_time(runs: Any) -> None:
    run = runs(0.25)
    started = run.box.now

    def play(job: Job) -> Iterator[Message]:
        """Works as long as it may, and rests as it must."""
        run.box.work(1.0)
        yield Ready(1.0)
        for _ in itertools.takewhile(lambda _: run.box.now < begun + min(4 * job.seconds, job.limit_s), iter(int, 1)):
            run.box.work(0.5)
            run.box.now += 1.5
            yield Resting(1.5)
        yield Result([])

    begun = run.box.now
    run.reports(play, budget_s=100.0)
    assert run.box.now - started <= 100 + 2 * SLICE_S + 4.0


def test_the_share_comes_from_the_environment(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setenv("TUNE_SHARE", "25%")
    run = runs(None)
    monkeypatch.setattr(engine, "Pace", lambda share, *_: asked.append(share) or run.box.pace(None))
    run.reports(script(run.box, 2.0, 0.0))
    assert asked == [0.25]
