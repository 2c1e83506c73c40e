"""Kinds of CPUs that code is frozen for: their features by LLVM's names, and where a CPU says that it has them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import NamedTuple

from tunegen.box import Box
from tunegen.errors import FreezeError
from tunegen.features import needs
from tunegen.making.compile import Target
from tunegen.making.make import host_target

_V2 = frozenset("64bit cmov crc32 cx16 cx8 fxsr mmx popcnt sahf sse sse2 sse3 sse4.1 sse4.2 ssse3".split())
_V3 = _V2 | frozenset("avx avx2 bmi bmi2 f16c fma lzcnt movbe xsave".split())
_V4 = _V3 | frozenset("avx512bw avx512cd avx512dq avx512f avx512vl".split())
_NEON = frozenset(("fp-armv8", "neon"))
_SVE = _NEON | frozenset(("dotprod", "fullfp16", "sve"))


class CpuClass(NamedTuple):
    """A kind of CPU: its name, LLVM's name for the model of its pipeline, and the features that code may use."""

    name: str
    cpu: str
    features: frozenset[str]

    @property
    def tag(self) -> str:
        """The name as a part of an identifier."""
        return re.sub(r"\W", "_", self.name)


class Platform(NamedTuple):
    """What a frozen build runs on. `name` is the GNU triplet that `--target` takes.

    `classes` go from the lowest to the highest. `baseline` is the CPU of code that runs before the class is known.
    `bits` says where features are among the words that `detect` collects: (word, bit).
    """

    name: str
    architecture: str
    triple: str
    baseline: str
    classes: tuple[CpuClass, ...]
    bits: dict[str, tuple[int, int]]
    words: int


def _bits(text: str) -> dict[str, tuple[int, int]]:
    """Reads lines such as `2: bmi 3, avx2 5`: the word, and the bit of each feature."""
    found = {}
    for line in text.strip().splitlines():
        word, _, entries = line.partition(":")
        for entry in entries.split(","):
            name, bit = entry.split()
            found[name] = int(word), int(bit)
    return found


XCR0 = 8
"""The word that says which registers the operating system saves; the others are outputs of CPUID."""
OSXSAVE = 0, 27

# words 0 to 9: CPUID 1 ecx and edx; 7.0 ebx, ecx and edx; 7.1 eax; 0x80000001 ecx and edx; XCR0; CPUID 7.1 edx
_X86_64_BITS = _bits("""
0: sse3 0, pclmul 1, ssse3 9, fma 12, cx16 13, sse4.1 19, sse4.2 20, crc32 20, movbe 22, popcnt 23, aes 25
0: xsave 26, avx 28, f16c 29, rdrnd 30
1: cx8 8, cmov 15, mmx 23, fxsr 24, sse 25, sse2 26
2: fsgsbase 0, bmi 3, avx2 5, bmi2 8, rtm 11, avx512f 16, avx512dq 17, rdseed 18, adx 19, avx512ifma 21
2: avx512cd 28, sha 29, avx512bw 30, avx512vl 31
3: avx512vbmi 1, avx512vbmi2 6, gfni 8, vaes 9, vpclmulqdq 10, avx512vnni 11, avx512bitalg 12, avx512vpopcntdq 14
4: avx512vp2intersect 8, amx-bf16 22, avx512fp16 23, amx-tile 24, amx-int8 25
5: sha512 0, sm3 1, sm4 2, avxvnni 4, avx512bf16 5, avxifma 23
6: sahf 0, lzcnt 5, sse4a 6, prfchw 8, xop 11, fma4 16, tbm 21
7: 64bit 29
9: avxvnniint8 4, avxneconvert 5, avxvnniint16 10
""")
# Linux's AT_HWCAP and AT_HWCAP2
_AARCH64_BITS = _bits("""
0: fp-armv8 0, neon 1, aes 3, sha2 6, crc 7, lse 8, fullfp16 10, rdm 12, jsconv 13, complxnum 14, rcpc 15, sha3 17
0: sm4 19, dotprod 20, sve 22, fp16fml 23, dit 24, flagm 27
1: sve2 1, sve-bitperm 4, f32mm 10, f64mm 11, i8mm 13, bf16 14
""")

_X86_64_CLASSES = (
    CpuClass("x86-64-v2", "x86-64-v2", _V2),
    CpuClass("x86-64-v3", "x86-64-v3", _V3),
    CpuClass("x86-64-v4", "x86-64-v4", _V4),
)
_AARCH64_CLASSES = (CpuClass("aarch64-neon", "generic", _NEON), CpuClass("aarch64-sve", "generic", _SVE))

PLATFORMS = {
    p.name: p
    for p in (
        Platform("x86_64-linux-gnu", "x86_64", "x86_64-unknown-linux-gnu", "x86-64", _X86_64_CLASSES, _X86_64_BITS, 10),
        Platform("aarch64-linux-gnu", "aarch64", "aarch64-unknown-linux-gnu", "generic", _AARCH64_CLASSES,
                 _AARCH64_BITS, 2),
    )
}  # fmt: skip


def host_platform(box: Box) -> Platform | None:
    """The platform of this box; None where frozen builds do not run."""
    names = {"amd64": "x86_64", "arm64": "aarch64"}
    architecture = names.get(box.architecture, box.architecture)
    found = [p for p in PLATFORMS.values() if p.architecture == architecture and sys.platform == "linux"]
    return found[0] if found else None


def box_class(box: Box, platform: Platform) -> CpuClass:
    """The class of CPUs that have what this box has. Features that no compiler uses by itself are left out."""
    return CpuClass(box.cpu, box.cpu, box.feature_set & frozenset(platform.bits))


def named_classes(platform: Platform, names: Iterable[str]) -> tuple[CpuClass, ...]:
    """The classes of these names, from the lowest to the highest; all without names. Raises `FreezeError`."""
    known, wanted = [c.name for c in platform.classes], set(names)
    if unknown := sorted(wanted - set(known)):
        raise FreezeError(f"{unknown[0]!r} is no CPU class of {platform.name}; there are {', '.join(known)}")
    return tuple(c for c in platform.classes if c.name in wanted or not wanted)


def target_of(cpu_class: CpuClass, platform: Platform, box: Box) -> Target:
    """What code for a class is compiled for. That of this box is the very code that runs in a process here."""
    if cpu_class == box_class(box, platform):
        return host_target(box)
    return Target(platform.triple, cpu_class.cpu, ",".join(f"+{name}" for name in sorted(cpu_class.features)))


def masks(cpu_class: CpuClass, platform: Platform) -> list[int]:
    """For each word of `detect`, the bits that a CPU of this class has set."""
    found = [0] * platform.words
    for name in cpu_class.features:
        for word, mask in feature_masks(name, platform):
            found[word] |= mask
    return found


def feature_masks(name: str, platform: Platform) -> list[tuple[int, int]]:
    """The bits that say a feature may be used, as (word, mask): the CPU's, and the operating system's."""
    if name not in platform.bits:
        return []
    word, bit = platform.bits[name]
    found = [(word, 1 << bit)]
    if platform.architecture == "x86_64" and (state := _saved_state(name)):
        found += [(OSXSAVE[0], 1 << OSXSAVE[1]), (XCR0, state)]
    return found


def _saved_state(name: str) -> int:
    """Bits of XCR0 for the registers of a feature: SSE and AVX, AVX-512's, and AMX's."""
    on, seen = [name], set()
    while on:
        seen.add(on[-1])
        on += [n for n in needs(on.pop()) if n not in seen]
    if name.startswith("amx"):
        return 0x6_0000
    return 0xE6 if "avx512f" in seen else 0x06 if "avx" in seen else 0
