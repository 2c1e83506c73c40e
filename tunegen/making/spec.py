"""All that the declaration of a kernel says, in one record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tunegen.cases import Case, Inputs
from tunegen.digest import sha256
from tunegen.fallback import Fallback
from tunegen.gates import GATING, Gate
from tunegen.grid import Grid, Row, Value
from tunegen.making.render import Request, Templates
from tunegen.parallel import Serial, Split
from tunegen.parameters import Key, Schema
from tunegen.signature import ElementType, Signature

ABI = 1
"""Version of the generator ABI: parameters of a variant, and what a template sees."""


Calibration = Callable[[Any], None]
"""Finds values of parameters on a box, by means of the trial that it is given."""


class Function(msgspec.Struct, frozen=True):
    """A reference function and the template that generates its variants: the kernel itself, or a companion."""

    name: str
    gen: str
    reference: Callable[..., None]
    signature: Signature
    define: dict[str, Value]

    def symbol(self, element_type: ElementType, suffix: str) -> str:
        """Name of a variant everywhere: symbol, test id, bench row: `gemm_f32__mr14_nr32`."""
        return f"{self.name}_{element_type.name}__{suffix}"

    def request(self, row: Row, element_type: ElementType, features: frozenset[str]) -> Request:
        """What to render for one row."""
        symbol = self.symbol(element_type, row.suffix)
        return Request(symbol, self.gen, row.perm, self.define, self.signature, element_type, features)


class Spec(msgspec.Struct, frozen=True):
    """A kernel: its own function, its companions, its grid, and how it is chosen, gated and raced."""

    scope: str
    module: str
    function: Function
    grid: Grid
    fallback: Fallback
    gate: Gate
    cases: tuple[Case, ...]
    templates: Templates
    inputs: Inputs | None = None
    companions: tuple[Function, ...] = ()
    schema: Schema = Schema()
    calibrations: dict[str, Calibration] = {}
    parallel: Split | Serial = Serial("it declares no split")

    @property
    def name(self) -> str:
        """Name of the kernel."""
        return self.function.name

    @property
    def signature(self) -> Signature:
        """Signature of the kernel's own function."""
        return self.function.signature

    @property
    def functions(self) -> tuple[Function, ...]:
        """The kernel's function and its companions: they are made, and decline, together."""
        return (self.function, *self.companions)

    def key(self, element_type: ElementType) -> str:
        """Name of the entry in a manifest: `gemm[f32]`."""
        return f"{self.name}[{element_type.name}]"

    def tuning_key(self, element_type: ElementType) -> Key:
        """What a set of values of this kernel's parameters belongs to."""
        return Key(self.scope, self.name, self.function.gen.removesuffix(".ll.j2"), element_type.name)

    def regime_of(self, facts: Mapping[str, int]) -> int:
        """The regime of these sizes where parameters have their portable values."""
        return self.fallback.regime_of({**self.schema.native_defaults, **facts})

    def parts(self, perms: list[dict[str, Value]], templates: dict[str, str], llvm: str) -> dict[str, str]:
        """The parts of an entry's digest, each with its own digest, so that a stale entry can say what changed."""
        functions = [[f.name, f.gen, str(f.signature)] for f in self.functions]
        return {
            "perm": _digest(perms),
            "templates": _digest(templates),
            "define": _digest([function.define for function in self.functions]),
            "signature": _digest(functions),
            "abi": str(ABI),
            "llvm": llvm,
            "gate": str(self.gate),
            "gating": str(GATING),
        }


def digest_of(parts: dict[str, str]) -> str:
    """Digest of an entry, from its parts."""
    return f"sha256:{_digest(parts)}"


def _digest(value: Any) -> str:
    return sha256(msgspec.json.encode(value, order="sorted")).hexdigest()
