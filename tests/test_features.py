"""The table of feature names is that of the installed LLVM."""

from __future__ import annotations

import re

import pytest

from tunegen import features
from tunegen.errors import ExpressionError
from tunegen.requires import parse_requires

HELP = """
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
print(*llvm.llvm_version_info, flush=True)
triple = "{}"
llvm.Target.from_triple(triple).create_target_machine(cpu="generic", features="+help")
"""


@pytest.mark.parametrize(
    ("triple", "table"),
    [("x86_64-unknown-linux-gnu", features.X86_64), ("aarch64-unknown-linux-gnu", features.AARCH64)],
)
def test_the_table_is_what_llvm_prints(child, triple, table):
    done = child(HELP.format(triple))
    version = done.stdout.split()[:2]
    if ".".join(version) != features.LLVM_VERSION:
        pytest.skip(f"the table is of LLVM {features.LLVM_VERSION}, this is {'.'.join(version)}")
    printed = done.stderr.partition("Available features")[2]
    assert set(re.findall(r"^  (\S+) +- ", printed, flags=re.MULTILINE)) == set(table)


def test_what_a_feature_is_built_on_is_a_known_name_and_has_no_cycle():
    for name in features.KNOWN:
        seen, front = set(), {name}
        while front:
            assert front <= features.KNOWN
            assert name not in seen
            front = {base for one in front for base in features.needs(one)} - seen
            seen |= front


def test_masking_a_feature_masks_what_is_built_on_it():
    box = frozenset("sse sse2 sse4.2 avx avx2 fma f16c avx512f avx512vl avx512vnni vaes aes bmi2 sha512".split())
    assert features.without(box, "avx512f") == box - {"avx512f", "avx512vl", "avx512vnni"}
    assert features.without(box, "avx2") == features.without(box, "avx512f") - {"avx2", "vaes", "sha512"}
    assert features.without(box, "avx") == {"sse", "sse2", "sse4.2", "aes", "bmi2"}
    assert features.without(box, "amx-tile") == box


@pytest.mark.parametrize(
    ("text", "has", "holds"),
    [
        ("", "", True),
        (" ", "", True),
        ("avx2", "avx2", True),
        ("avx2", "avx", False),
        ("avx2|neon,fma|neon", "neon", True),
        ("avx2|neon,fma|neon", "avx2", False),
        ("avx2 | neon , fma|neon", "avx2 fma", True),
        ("!avx512f", "avx2", True),
        ("!avx512f", "avx512f", False),
        ("avx2,!avx512f|neon", "avx2 avx512f neon", True),
    ],
)
def test_requires_is_a_conjunction_of_alternatives(text, has, holds):
    assert (parse_requires(text).missing(set(has.split())) == "") is holds


def test_the_term_that_fails_is_named():
    assert parse_requires("avx2,fma|neon").missing({"avx2"}) == "fma|neon"


@pytest.mark.parametrize("text", [",", "avx2,", "avx2||fma", "!", "avx2,,fma"])
def test_an_empty_name_in_requires_is_an_error(text):
    with pytest.raises(ExpressionError, match="empty name"):
        parse_requires(text)


def test_an_unknown_feature_comes_with_those_it_may_mean():
    with pytest.raises(ExpressionError, match=r"'avx512_vnni'; did you mean.*avx512vnni"):
        parse_requires("avx2|avx512_vnni")
