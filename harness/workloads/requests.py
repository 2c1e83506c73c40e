"""Requests: what a served transformer block asks of its kernels, and what each call has to answer.

A request is a prompt of a few tokens and some steps of one token after it. Each call of it has operands of its own, the
same in every request, so that each answer can be compared to the first one, and to the gate of its kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tunegen import cases
from tunegen.cases import Sizes
from tunegen.harness.problems import make_inputs, operands, poison
from tunegen.public.kernel import KernelMethods
from tunegen.public.scope import Scope
from tunegen.public.variant import oracle

ELEMENT_TYPE = "f32"
TOKENS = 16
STEPS = 4
"""Tokens of a prompt, and steps after it."""
HIDDEN, WIDE, HEADS, CONTEXT = 384, 1536, 12, 128
"""Elements of a token, and in the middle of its feed-forward layers; attention heads, and the keys that each sees."""

Seen = Literal["same", "other bits", "outside"]
"""An answer has the bits of the first one, or is another one within the gate, or is outside the gate."""


class Asked(NamedTuple):
    """One call: a kernel, and the sizes of its operands."""

    kernel: str
    sizes: Sizes


def block(tokens: int) -> list[Asked]:
    """A transformer block of the shipped kernels on so many tokens."""
    rows: Sizes = {"M": tokens, "N": HIDDEN}
    return [
        Asked("layernorm", rows),
        Asked("gemm", {"M": tokens, "K": HIDDEN, "N": 3 * HIDDEN}),
        Asked("softmax", {"M": HEADS * tokens, "N": CONTEXT}),
        Asked("gemm", {"M": tokens, "K": HIDDEN, "N": HIDDEN}),
        Asked("add", {"N": tokens * HIDDEN}),
        Asked("layernorm", rows),
        Asked("gemm", {"M": tokens, "K": HIDDEN, "N": WIDE}),
        Asked("gelu", {"N": tokens * WIDE}),
        Asked("gemm", {"M": tokens, "K": WIDE, "N": HIDDEN}),
        Asked("add", {"N": tokens * HIDDEN}),
    ]


def untuned(tokens: int) -> list[Asked]:
    """The same for the library `untuned`, without products."""
    rows: Sizes = {"M": tokens, "N": HIDDEN}
    return [
        Asked("layernorm", rows),
        Asked("softmax", {"M": HEADS * tokens, "N": CONTEXT}),
        Asked("layernorm", rows),
        Asked("sigmoid", {"N": tokens * WIDE}),
    ]


class Workload(NamedTuple):
    """What is served: the module of a scope, and the calls for so many tokens."""

    module: str
    asked: Callable[[int], list[Asked]]

    @property
    def request(self) -> list[Asked]:
        """The calls of one request."""
        return self.asked(TOKENS) + STEPS * self.asked(1)


WORKLOADS = {"untuned": Workload("untuned", untuned), "block": Workload("tunegen.kernels", block)}


class Answer:
    """What one call of a request has to answer."""

    def __init__(self, kernel: KernelMethods, sizes: Sizes, seed: int) -> None:
        self.kernel = kernel
        self.sizes = sizes
        spec = kernel.spec
        self.element_type = next(t for t in kernel.signature.element_types if t.name == ELEMENT_TYPE)
        self._facts = cases.facts(spec.signature, sizes)
        self._inputs = make_inputs(spec, self.element_type, sizes, seed, optional=False)
        (self._expected,) = oracle(spec, self.arguments()).values()
        self._first: NDArray[Any] | None = None
        self._others: list[tuple[NDArray[Any], Seen]] = []

    def arguments(self) -> dict[str, Any]:
        """The operands of a call by name, with an output of its own."""
        return operands(self.kernel.spec, self.element_type, self.sizes, self._inputs)

    def look(self, output: NDArray[Any]) -> Seen:
        """How an answer compares to the first one, which is the first that comes here, and to the gate."""
        if self._first is not None and _same(output, self._first):
            return "same"
        for other, known in self._others:
            if _same(output, other):
                return known
        wrong = self.kernel.spec.gate.check(output, self._expected, self._facts)
        seen: Seen = "outside" if wrong is not None else "other bits"
        if self._first is None and seen != "outside":
            self._first = output.copy()
            return "same"
        self._others.append((output.copy(), seen))
        return seen


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    bits = f"u{one.itemsize}"
    return bool(np.array_equal(one.view(bits), other.view(bits)))


def answers(scope: Scope, asked: Sequence[Asked]) -> list[Answer]:
    """What the calls of a request have to answer."""
    return [Answer(scope.kernels[one.kernel], one.sizes, seed) for seed, one in enumerate(asked)]


class Calls:
    """The calls of a request with outputs of their own, for one thread."""

    def __init__(self, made: Sequence[Answer]) -> None:
        self.answers = made
        arguments = [answer.arguments() for answer in made]
        self._calls = [(a.kernel, tuple(named.values())) for a, named in zip(made, arguments, strict=True)]
        self.outputs = [
            named[a.kernel.signature.outputs[0].name] for a, named in zip(made, arguments, strict=True)
        ]  # fmt: skip

    def clear(self) -> None:
        """Takes the answers of the last request away."""
        for output in self.outputs:
            poison(output)

    def serve(self) -> None:
        """Makes the calls of one request."""
        for kernel, arguments in self._calls:
            kernel(*arguments)

    def look(self) -> Iterator[tuple[str, Seen]]:
        """The kernel of each call, and how its answer compares."""
        for answer, output in zip(self.answers, self.outputs, strict=True):
            yield answer.kernel.name, answer.look(output)
