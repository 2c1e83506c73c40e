"""Calls with forced values: the bench of a calibration, and the code path that a call takes.

Each setting is a session of its own, so what is raced is the very code that runs when the values are stored. Inputs
come from fixed seeds, and before a setting is timed on a size its outputs are compared bit for bit with those of the
same setting on one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tunegen import cases
from tunegen.cases import Sizes
from tunegen.executor import CpuExecutor
from tunegen.harness import race
from tunegen.harness.decisions import Rejected, TimeOver, Values
from tunegen.harness.measure import Operands, Runner, clock, now_s
from tunegen.harness.problems import Array
from tunegen.harness.supply import Supply
from tunegen.making.spec import Spec
from tunegen.parallel import Serial
from tunegen.public.kernel import KernelMethods
from tunegen.public.session import Hints, Session
from tunegen.public.setting import new_executor
from tunegen.signature import ElementType


class Path(NamedTuple):
    """How a call runs: the variant, and into how many shares of which length it is cut; 1 where it is not."""

    variant: str
    participants: int = 1
    blocks: int = 1
    block: int = 0


def call_path(spec: Spec, emitted: Sequence[str | None], values: Values, sizes: Sizes, threads: int) -> Path:
    """The path of a call. `emitted` is what runs in each regime; None passes its sizes on to the next."""
    facts = cases.facts(spec.signature, sizes)
    names = {**facts, **{name: v for name, v in values.items() if type(v) is int}}
    conditions = spec.fallback.conditions
    holding = [*(i for i, condition in enumerate(conditions) if condition(names)), len(conditions)]
    variant = next((suffix for i in holding if (suffix := emitted[i]) is not None), "")
    split = spec.parallel
    if isinstance(split, Serial) or not split.when(names):
        return Path(variant)
    most = names[split.participants] if split.participants else 0
    participants = min(most or threads, threads)
    grain = names[split.grain] if isinstance(split.grain, str) else split.grain
    size = max(facts[name] for name in split.over)
    block = grain or max(-(-size // participants), 1)
    blocks = max(-(-size // block), 1)
    participants = min(participants, blocks)
    return Path(variant, participants, blocks, block) if participants > 1 else Path(variant)


Opener = Callable[[Values, int], Any]
"""(values, threads) -> the kernel bound with these values on so many threads."""


class ForcedSession(Session):
    """A session of forced values on threads that it shares: workers of another one, looking for work, would disturb."""

    def __init__(self, parameters: Mapping[str, Values], executor: CpuExecutor | None) -> None:
        self._shared = executor
        threads = executor.threads if executor is not None else 1
        super().__init__(threads, Hints(), None, {}, {key: dict(values) for key, values in parameters.items()})

    @property
    def executor(self) -> CpuExecutor | None:
        """The shared threads."""
        return self._shared


def opener(kernel: KernelMethods, element_type: ElementType, threads: int, stack: ExitStack) -> Opener:
    """Binds a kernel in sessions on one thread, or on `threads` that all of them share, until `stack` is closed."""
    key = f"{kernel.spec.scope}:{kernel.spec.key(element_type)}"
    executor = stack.enter_context(new_executor(threads)) if threads > 1 else None

    def bound(values: Values, threads: int) -> Any:
        session = ForcedSession({key: values}, executor if threads > 1 else None)
        return stack.enter_context(session).bind(kernel)

    return bound


class ForcedBench:
    """A `decisions.Bench` over real calls of one kernel and element type. Close it, or use it as a context manager."""

    def __init__(
        self, kernel: KernelMethods, element_type: ElementType, base: Values, *, threads: int, memory_bytes: int,
        end_s: float | None = None, open_: Opener | None = None, now: Callable[[], float] = now_s,
    ) -> None:  # fmt: skip
        """`end_s` is the moment on `now` after which nothing begins any more."""
        self.spec = kernel.spec
        self.element_type = element_type
        self.threads = threads
        self.memory_bytes = memory_bytes
        self.end_s = end_s
        self.now = now
        self._stack = ExitStack()
        self._open = open_ or opener(kernel, element_type, threads, self._stack)
        self._bound: dict[tuple[Hashable, int], Any] = {}
        self._supply = Supply(kernel.spec, element_type)
        self._operands: dict[str, dict[str, Any]] = {}
        self._expected: dict[tuple[str, Hashable], dict[str, Array]] = {}
        self._valid: set[tuple[str, Hashable]] = set()
        self._emitted = self._emissions(base)

    def _emissions(self, base: Values) -> list[str | None]:
        stamp = self.bound(base, self.threads).stamp[self.element_type.name]
        return [choice.emitted for choice in stamp.choices]

    def __enter__(self) -> ForcedBench:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def bound(self, setting: Values, threads: int) -> Any:
        """The kernel with forced values on so many threads, bound once."""
        key = (_key(setting), threads)
        if key not in self._bound:
            self._bound[key] = self._open(setting, threads)
        return self._bound[key]

    def bytes_of(self, sizes: Sizes) -> int:
        """What a call takes here: its operands, its outputs twice more to compare them, and one input in the making."""
        signature = self.spec.signature
        counts = {name: prod(shape) for name, shape in cases.shapes(signature, sizes).items()}
        taken = [counts[p.name] * signature.type_of(p, self.element_type).bytes for p in signature.operands]
        outputs = [n for n, p in zip(taken, signature.operands, strict=True) if p.written]
        return sum(taken) + 2 * sum(outputs) + np.dtype(np.float64).itemsize * max(counts.values(), default=0)

    def path(self, setting: Values, sizes: Sizes) -> Path:
        """The path of a call with forced values."""
        return call_path(self.spec, self._emitted, setting, sizes, self.threads)

    def times(self, settings: Sequence[Values], sizes: Sequence[Sizes], pairs: int) -> race.Times:
        """See `decisions.Bench`."""
        self._forget([_label(s) for s in sizes])
        runners: dict[tuple[str, str], Runner] = {}
        for case, each in enumerate(sizes):
            self._check_time()
            shared = self._shared(each)
            for index, setting in enumerate(settings):
                self._validate(index, setting, each)
                runner = Runner(self.bound(setting, self.threads), shared)
                self._check_time()
                runner.warm_up()
                runners[str(index), str(case)] = runner
        names, labels = [str(i) for i in range(len(settings))], [str(i) for i in range(len(sizes))]
        return race.rounds(partial(self._sample, runners), names, labels, lambda done: done >= pairs)

    def _sample(self, runners: Mapping[tuple[str, str], Runner], runner: str, case: str) -> float:
        self._check_time()
        # workers wake up
        runners[runner, case].settle()
        return runners[runner, case].sample(clock)

    def _check_time(self) -> None:
        if self.end_s is not None and self.now() >= self.end_s:
            raise TimeOver

    def _values(self, sizes: Sizes) -> dict[str, Any]:
        """Operands by name, the same numbers each time."""
        label = _label(sizes)
        if label not in self._operands:
            self._operands[label] = self._supply.operands(sizes)
        return self._operands[label]

    def _shared(self, sizes: Sizes) -> Operands:
        updated = [i for i, p in enumerate(self.spec.signature.parameters) if getattr(p, "role", "") == "inout"]
        return Operands(tuple(self._values(sizes).values()), updated)

    def _validate(self, index: int, setting: Values, sizes: Sizes) -> None:
        """Raises `Rejected` for a setting whose outputs differ from those of its serial run."""
        label, key = _label(sizes), _key(setting)
        if (label, key) in self._valid:
            return
        serial = (label, self._serial_path(setting, sizes))
        if serial not in self._expected:
            self._expected[serial] = self._outputs(self.bound(setting, 1), sizes, {})
        expected = self._expected[serial]
        got = self._outputs(self.bound(setting, self.threads), sizes, expected)
        for name, array in got.items():
            if array.tobytes() != expected[name].tobytes():
                raise Rejected(index, f"{name} differs from the serial run at {label}")
        self._valid.add((label, key))

    def _serial_path(self, setting: Values, sizes: Sizes) -> Path:
        return call_path(self.spec, self._emitted, setting, sizes, 1)

    def _outputs(self, call: Callable[..., Any], sizes: Sizes, expected: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a call. What it is expected to write is made wrong in every bit before."""
        values = dict(self._values(sizes))
        for operand in self.spec.signature.operands:
            if operand.written:
                values[operand.name] = np.array(values[operand.name])
            if operand.role == "out" and operand.name in expected:
                values[operand.name].view(np.uint8)[...] = ~expected[operand.name].view(np.uint8)
        call(*values.values())
        return {p.name: values[p.name] for p in self.spec.signature.operands if p.written}

    def _forget(self, labels: Sequence[str]) -> None:
        """Only the operands of the sizes that are raced now take memory."""
        for label in [label for label in self._operands if label not in labels]:
            del self._operands[label]
        for key in [key for key in self._expected if key[0] not in labels]:
            del self._expected[key]


def _key(values: Values) -> Hashable:
    return tuple(values.items())


def _label(sizes: Sizes) -> str:
    return ", ".join(f"{name}={value}" for name, value in sizes.items())
