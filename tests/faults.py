"""A library with a variant for each way to fail: its answer is a copy of the input, and one honest row is the fastest.

The faults that make a system call bring it as bytes of code, for Linux on x86-64: there is no inline assembly here.
"""

from __future__ import annotations

from pathlib import Path

KINDS = {
    "segfault": ("crashed", "run: signal SIGSEGV"),
    "illegal": ("crashed", "run: signal SIGILL"),
    "llvm_abort": ("crashed", "compile: signal SIGABRT: LLVM ERROR: "),
    "division": ("crashed", "run: signal SIGFPE"),
    "endless": ("timed out", "run: silent for"),
    "slow_compile": ("timed out", "compile: silent for"),
    "hog": ("out of memory", "run: MemoryError"),
    "render_hog": ("out of memory", "compile: MemoryError"),
    "partial": ("wrong", "got nan"),
    "wrong_tail": ("wrong", "awkward N="),
    "nan_at_65": ("wrong", "awkward N=65: out[64]: got nan"),
    "in_place": ("wrong", "x: an input was changed"),
    "prints": ("slower", "fast won"),
    "exits": ("crashed", "run: exit code 0 at awkward N="),
    "calls_libc": ("declined", "the code calls _exit"),
    "reads_beyond": ("out of bounds", "SIGSEGV next to an operand at awkward N="),
    "reads_before": ("out of bounds", "SIGSEGV next to an operand at awkward N="),
    "writes_beyond": ("out of bounds", "out: written out of bounds"),
    "twin": ("duplicate", "of fast: "),
    "wrong_twin": ("duplicate", "of partial: "),
    "declines": ("declined", "not here"),
    "no_such_name": ("failed", "render: "),
    "no_ir": ("failed", "verify: "),
    "no_code": ("failed", "compile: "),
    "elsewhere": ("ineligible", "requires "),
    "slow": ("slower", "fast won"),
    "fast": ("passed", ""),
}
"""What becomes of each row, and a part of the reason. Rows stand in this order, but for the twins, which come last."""

TWINS = {"twin": "fast", "wrong_twin": "partial"}

SILENCE_S = 60
"""How long a candidate may be silent: far above what an honest one needs on a busy box."""

WATCH = f"""
    import selectors, sys
    from tunegen.harness import crew, spawn
    from tunegen.harness.engine import Settings, tune
    from tunegen.harness.protocol import Trying
    from tunegen.harness.target import targets

    steps_that_hang = () if "mended" in sys.argv else (("slow_compile", "compile"), ("endless", "gate"))
    step = None

    class Selector(selectors.DefaultSelector):
        def select(self, timeout=None):
            return super().select(1 / spawn.LOOKS if step in steps_that_hang else timeout)

    def hangs(before, now, silence_s, real=spawn.hangs):
        return real(before, now, 1 if step in steps_that_hang else silence_s)

    def messages(*arguments, real=crew.messages):
        global step
        step = None
        for heard in real(*arguments):
            if isinstance(heard, Trying):
                step = heard.suffix, heard.stage
            yield heard

    crew.messages, spawn.selectors.DefaultSelector, spawn.hangs = messages, Selector, hangs
    settings = Settings("quick", 300, {SILENCE_S}, noisy_ok=True, again="again" in sys.argv)
"""
"""Before a tune in a child process. Which steps hang is known: nobody waits for these as long as for others."""

HEAD = """
import numpy as np
from tunegen import In, Out, bitwise, case, f32, tune_scope

scope = tune_scope(name="faults", templates="templates")

@scope.tune(gen="copy.ll.j2", gate=bitwise(), cases=[case("some", N=4096)], fallback="segfault; slow; reference")
"""
BODY = """
def copy(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
    np.negative(-x, out=out)
"""

TEMPLATE = r"""
{% import "tunegen/lib/vector.ll.j2" as v with context %}
{% set kind = perm.kind %}
{% set vl = {"fast": 16, "slow": 4, "partial": 2, "wrong_tail": 2, "nan_at_65": 2}.get(kind, 1) %}
{% set stop = "%short" if kind == "partial" else "%N" %}
{% if kind == "declines" %}{{ decline("not here") }}{% endif %}
{% if kind == "no_such_name" %}{{ perm.absent }}{% endif %}
{% if kind == "slow_compile" %}{% for i in range(10 ** 12) %}{% endfor %}{% endif %}
{% if kind == "render_hog" %}{% set text = "x" * (2 ** 50) %}{% endif %}
{% if kind == "calls_libc" %}declare void @_exit(i32){% endif %}
{% if kind == "prints" %}
; mov eax, 1 (write); syscall
define internal void @system(i64 %fd, ptr %text, i64 %count) noinline optnone
    prologue [7 x i8] c"\B8\01\00\00\00\0F\05" {
  ret void
}
{% elif kind == "exits" %}
; mov eax, 231 (exit_group); xor edi, edi; syscall
define internal void @system() noinline optnone prologue [9 x i8] c"\B8\E7\00\00\00\31\FF\0F\05" {
  ret void
}
{% endif %}
{% if kind == "hog" %}
define i64 @{{ symbol }}__scratch(i64 %N) { ret i64 {{ 2 ** 50 }} }
{% endif %}

{% if kind == "no_code" %}
declare void @{{ symbol }}()
{% else %}
{{ v.head() }}
entry:
  %half = lshr i64 %N, 1
  %short = sub i64 %N, %half
{% if kind == "segfault" %}
  store volatile i32 1, ptr inttoptr (i64 8 to ptr)
{% elif kind == "illegal" %}
  call void @llvm.trap()
{% elif kind == "division" %}
  %zero = alloca i64
  store volatile i64 0, ptr %zero
  %nought = load volatile i64, ptr %zero
  %never = sdiv i64 %N, %nought
  store volatile i64 %never, ptr %zero
{% elif kind == "endless" %}
  br label %again
again:
  call void asm sideeffect "", ""()
  br label %again
on:
{% elif kind == "prints" %}
  %text = alloca [5 x i8]
  store volatile [5 x i8] c"junk\0A", ptr %text
  call void @system(i64 1, ptr %text, i64 5)
{% elif kind == "exits" %}
  call void @system()
{% elif kind == "calls_libc" %}
  call void @_exit(i32 0)
{% elif kind == "llvm_abort" %}
  call void asm sideeffect "no instruction of any target", ""()
{% elif kind == "no_ir" %}
  this is no instruction
{% elif kind in ("reads_beyond", "reads_before") %}
  %stray.at = getelementptr float, ptr %x, i64 {{ "%N" if kind == "reads_beyond" else -1 }}
  %stray = load volatile float, ptr %stray.at
{% elif kind == "writes_beyond" %}
  %stray.at = getelementptr float, ptr %out, i64 %N
  store volatile float 1.0, ptr %stray.at
{% elif kind == "slow" %}
  %cell = alloca float
  store volatile float 1.0, ptr %cell
  %scalar = load volatile float, ptr %cell
{{ v.broadcast("%one", vl, "%scalar") }}
{% elif kind == "in_place" %}
  %some = icmp sgt i64 %N, 0
{% call v.when("some", "%some") %}
  store float 1.0, ptr %x
{% endcall %}
{% endif %}
{% call(at, mask) v.sweep("i", stop, vl, 1) %}
{{ v.load("%a." ~ at[0], vl, "%x", "%" ~ at[0], mask) }}
{% if kind == "slow" %}
  %q.{{ at[0] }} = fdiv {{ v.type(vl) }} %a.{{ at[0] }}, %one
  %r.{{ at[0] }} = fdiv {{ v.type(vl) }} %q.{{ at[0] }}, %one
  %b.{{ at[0] }} = fdiv {{ v.type(vl) }} %r.{{ at[0] }}, %one
{% elif kind == "wrong_tail" and mask %}
  %b.{{ at[0] }} = fadd {{ v.type(vl) }} %a.{{ at[0] }}, {{ v.splat(1.0) }}
{% elif kind == "nan_at_65" and mask %}
  %special.{{ at[0] }} = icmp eq i64 %N, 65
  %nan.{{ at[0] }} = select i1 %special.{{ at[0] }}, float 0x7FF8000000000000, float -0.0
{{ v.broadcast("%nans." ~ at[0], vl, "%nan." ~ at[0]) }}
  %b.{{ at[0] }} = fadd {{ v.type(vl) }} %a.{{ at[0] }}, %nans.{{ at[0] }}
{% else %}
  %b.{{ at[0] }} = fadd {{ v.type(vl) }} %a.{{ at[0] }}, {{ v.splat(-0.0) }}
{% endif %}
{{ v.store("%b." ~ at[0], vl, "%out", "%" ~ at[0], mask) }}
{% endcall %}
  ret void
}
{% endif %}
"""

TWINS_TEMPLATE = """\
{% import "loop.ll.j2" as loop with context %}
define void @{{ symbol }}(ptr %x, ptr %out, i64 %N, ptr %scratch) "no-builtins" {
entry:
{{ loop.fill("%out", 1 if perm.row < 3 else 2) }}
}
"""
"""Rows 1 and 2 come to the same code."""


def write(folder: Path) -> str:
    """Writes the library below `folder` and returns its name."""
    package = folder / "faults"
    (package / "templates").mkdir(parents=True)
    order = [*(kind for kind in KINDS if kind not in TWINS), *TWINS]
    rows = [f"@scope.tune_perm(kind={TWINS.get(kind, kind)!r}, suffix={kind!r}{_requires(kind)})" for kind in order]
    (package / "__init__.py").write_text("\n".join([HEAD, *rows, BODY]), encoding="utf-8")
    (package / "templates" / "copy.ll.j2").write_text(TEMPLATE, encoding="utf-8")
    return "faults"


def _requires(kind: str) -> str:
    return ', requires="amx-tile,sve"' if kind == "elsewhere" else ""
