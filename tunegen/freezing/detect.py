"""The part of a frozen build that looks at the CPU, once, when it is loaded: as LLVM IR.

`@chosen` is the number of the highest class that the CPU has all features of, or -1; then `@refusal` says what it
lacks.
"""

from __future__ import annotations

from collections.abc import Sequence

from tunegen.calling.entry.ir import Writer
from tunegen.freezing.classes import OSXSAVE, XCR0, CpuClass, Platform, feature_masks, masks

# Bodies as machine code, because llvmlite has an assembler for the own architecture only. They are weak, so that LLVM
# believes nothing of what it sees in the IR.
_X86_64 = """\
define weak hidden void @tunegen_cpuid(i32 %leaf, i32 %subleaf, ptr %registers) noinline prologue [27 x i8] c"\
\\53\
\\49\\89\\D0\
\\89\\F8\
\\89\\F1\
\\0F\\A2\
\\41\\89\\00\
\\41\\89\\58\\04\
\\41\\89\\48\\08\
\\41\\89\\50\\0C\
\\5B\
\\C3\
" { ret void }
define weak hidden i32 @tunegen_xgetbv() noinline prologue [6 x i8] c"\
\\31\\C9\
\\0F\\01\\D0\
\\C3\
" { ret i32 0 }
"""
"""push rbx; mov r8, rdx; mov eax, edi; mov ecx, esi; cpuid; mov [r8 + 4 i], eax ebx ecx edx; pop rbx; ret.
xor ecx, ecx; xgetbv; ret.
"""

_LEAVES = ((1, 0), (7, 0), (7, 1), (0x8000_0001, 0))
_WORDS = {(1, 0): {2: 0, 3: 1}, (7, 0): {1: 2, 2: 3, 3: 4}, (7, 1): {0: 5, 3: 9}, (0x8000_0001, 0): {2: 6, 3: 7}}
"""For each leaf and subleaf of CPUID, which register (eax, ebx, ecx, edx) is which word."""
_AT_HWCAP, _AT_HWCAP2 = 16, 26


def text_constant(name: str, text: str) -> str:
    """A C string under a private name."""
    data = "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02X}" for b in text.encode())
    return f'@{name} = private constant [{len(text.encode()) + 1} x i8] c"{data}\\00"'


def detection_ir(title: str, classes: Sequence[CpuClass], platform: Platform) -> str:
    """Globals `@chosen` (i32), `@refusal` (ptr) and `@class_names`, and what sets them when the build is loaded."""
    w = Writer()
    words = w.cell("words", f"[{platform.words} x i32]")
    w.store(f"[{platform.words} x i32]", "zeroinitializer", words)
    if platform.architecture == "x86_64":
        _read_cpuid(w, words)
    else:
        for index, kind in enumerate((_AT_HWCAP, _AT_HWCAP2)):
            value = w.let("hwcap", f"call i64 @getauxval(i64 {kind})")
            w.store("i32", w.let("word", f"trunc i64 {value} to i32"), w.at("i32", words, index))
    for number, cpu_class in enumerate(classes):
        wanted = [(word, mask) for word, mask in enumerate(masks(cpu_class, platform)) if mask]
        with w.when(w.both([_has(w, words, *one) for one in wanted])):
            w.store("i32", str(number), "@chosen")
    constants = _refuse(w, words, title, classes[0], platform)
    w.do("ret void")
    names = [text_constant(f"class.{number}", c.name) for number, c in enumerate(classes)]
    entries = ", ".join(f"ptr @class.{number}" for number in range(len(classes)))
    return "\n".join([
        *names,
        f"@class_names = private constant [{len(classes)} x ptr] [{entries}]",
        *constants,
        "@chosen = internal global i32 -1",
        "@refusal = internal global ptr null",
        '@at_load = internal constant [1 x ptr] [ptr @look], section ".init_array"',
        # not llvm.used: a target machine remembers the addresses of what is in there and takes globals of later
        # modules for them, so that objects would change from run to run
        '@llvm.compiler.used = appending global [1 x ptr] [ptr @at_load], section "llvm.metadata"',
        _X86_64 if platform.architecture == "x86_64" else "declare i64 @getauxval(i64)",
        "define internal void @look() {\nentry:",
        w.body(),
        "}",
    ])  # fmt: skip


def _read_cpuid(w: Writer, words: str) -> None:
    registers = w.cell("registers", "[4 x i32]")
    for leaf, subleaf in _LEAVES:
        w.do(f"call void @tunegen_cpuid(i32 {leaf & 0x8000_0000}, i32 0, ptr {registers})")
        highest = w.load("i32", registers, "highest")
        with w.when(w.compare("uge", highest, str(leaf), "i32")):
            w.do(f"call void @tunegen_cpuid(i32 {leaf}, i32 {subleaf}, ptr {registers})")
            for register, word in _WORDS[leaf, subleaf].items():
                w.store("i32", w.load("i32", w.at("i32", registers, register)), w.at("i32", words, word))
    with w.when(_has(w, words, OSXSAVE[0], 1 << OSXSAVE[1])):
        w.store("i32", w.let("saved", "call i32 @tunegen_xgetbv()"), w.at("i32", words, XCR0))


def _has(w: Writer, words: str, word: int, mask: int) -> str:
    value = w.op("and", w.load("i32", w.at("i32", words, word)), str(mask), "i32")
    return w.compare("eq", value, str(mask), "i32")


def _refuse(w: Writer, words: str, title: str, floor: CpuClass, platform: Platform) -> list[str]:
    """Names the features that the CPU lacks of the lowest class. Returns the texts."""
    texts = []
    with w.when(w.compare("slt", w.load("i32", "@chosen"), "0", "i32")):
        for number, name in enumerate(sorted(floor.features & frozenset(platform.bits), reverse=True)):
            fits = w.both([_has(w, words, *one) for one in feature_masks(name, platform)])
            with w.when(w.op("xor", fits, "true", "i1")):
                w.store("ptr", f"@lacks.{number}", "@refusal")
            lacks = f"lacks {name}, and the lowest class here is {floor.name}"
            text = f"{title}: this CPU, or its operating system, {lacks}"
            texts.append(text_constant(f"lacks.{number}", text))
    return texts
