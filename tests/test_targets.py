"""Every variant compiles for each kind of CPU whose features it asks for, on any machine, and needs no other symbol."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from variants import VARIANTS, Item

from tunegen import Declined
from tunegen.features import AARCH64, X86_64
from tunegen.making.compile import Target, initialize_all_targets
from tunegen.making.elf import undefined_symbols
from tunegen.making.make import make_object
from tunegen.requires import parse_requires

V2 = frozenset("cmov cx16 cx8 fxsr mmx popcnt sahf sse sse2 sse3 sse4.1 sse4.2 ssse3 x87 64bit".split())
V3 = V2 | frozenset("avx avx2 bmi bmi2 crc32 f16c fma lzcnt movbe xsave".split())
V4 = V3 | frozenset("avx512bw avx512cd avx512dq avx512f avx512vl".split())
ARM = frozenset("fp-armv8 neon".split())


class Kind(NamedTuple):
    """A kind of CPU, by LLVM's names."""

    triple: str
    cpu: str
    features: frozenset[str]

    @property
    def target(self) -> Target:
        return Target(self.triple, self.cpu, ",".join(f"+{name}" for name in sorted(self.features)))


KINDS = {
    "x86-64-v2": Kind("x86_64-unknown-linux-gnu", "x86-64-v2", V2),
    "x86-64-v3": Kind("x86_64-unknown-linux-gnu", "x86-64-v3", V3),
    "x86-64-v4": Kind("x86_64-unknown-linux-gnu", "x86-64-v4", V4),
    "aarch64": Kind("aarch64-unknown-linux-gnu", "generic", ARM),
}


@pytest.fixture(scope="module", autouse=True)
def foreign_targets() -> None:
    initialize_all_targets()


def test_the_kinds_are_spelled_as_llvm_spells_them() -> None:
    assert V4 <= X86_64
    assert ARM <= AARCH64


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("item", VARIANTS, ids=str)
def test_a_variant_compiles_and_has_no_undefined_symbol(item: Item, kind: str) -> None:
    features = KINDS[kind].features
    if parse_requires(item.row.requires).missing(features):
        pytest.skip(f"{kind} lacks {item.row.requires}")
    try:
        made = make_object(
            item.spec.function, item.row, item.element_type, item.spec.templates, features, KINDS[kind].target
        )
    except Declined as declined:
        if "calls" in str(declined):
            pytest.fail(str(declined))
        pytest.skip(f"declined: {declined}")
    assert undefined_symbols(made.image) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kernel_has_a_variant_on_every_kind(kind: str) -> None:
    """Nobody falls back to Python for want of a plain row."""
    features = KINDS[kind].features
    able = {
        (i.spec.name, i.element_type.name) for i in VARIANTS if not parse_requires(i.row.requires).missing(features)
    }
    assert able == {(i.spec.name, i.element_type.name) for i in VARIANTS}
