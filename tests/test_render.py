"""Templates to IR: what a template sees, which files a text came from, and how it can fail."""

from __future__ import annotations

import re
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunegen import In, InOut, f64, floats
from tunegen.errors import Declined, RenderError
from tunegen.making.render import Request, Templates, hexf, render
from tunegen.signature import ELEMENT_TYPES, read_signature


def kern(a: In[floats, "M", "K"], b: In[f64, "K?"], c: InOut[floats, "M"], s: float, n: int = 3,
         mask: In[floats, "M", "K"] | None = None) -> None: ...  # fmt: skip


SIGNATURE = read_signature(kern, "kern", {})


def request(perm=None, element_type="f32", **define):
    values = {"mr": 4} if perm is None else perm
    return Request("kern_f32__x", "main.j2", values, define, SIGNATURE, ELEMENT_TYPES[element_type],
                   frozenset({"avx2", "fma"}))  # fmt: skip


@pytest.fixture
def rendered(tmp_path):
    """Renders `main.j2` with other files beside it, and returns the text and the files that it came from."""

    def run(main, files=None, asked=None, templates=None):
        for name, text in {"main.j2": main, **(files or {})}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        used = {}
        return render(templates or Templates(tmp_path), asked or request(), used), list(used)

    return run


def test_a_template_sees_what_the_contract_says(rendered):
    text, _ = rendered(
        "{{ symbol }} {{ perm.mr }} {{ define.epilogue }} {{ T.name }} {{ T.llvm }} {{ T.bytes }} {{ T.bits }}"
        " {{ sizes }} {{ has('avx2') }} {{ has('avx512f') }} {{ box.features | sort }} {{ uid() }} {{ uid() }}"
        " {{ hexf(1.0, T.name) }}\n"
        "{% for a in args %}{{ a.name }}:{{ a.kind }}:{{ a.type.name }}:{{ a.type.llvm }}"
        "{% if a.kind == 'array' %}:{{ a.role }}:{{ a.strides }}:{{ a.optional }}{% endif %} {% endfor %}",
        asked=request(epilogue="gelu"),
    )
    first, second = text.splitlines()
    assert first == ("kern_f32__x 4 gelu f32 float 4 32 ('M', 'K') True False ['avx2', 'fma'] 0 1 0x3FF0000000000000")
    assert second.split() == [
        "a:array:f32:float:in:1:False", "b:array:f64:double:in:0:False", "c:array:f32:float:inout:0:False",
        "s:scalar:f64:double", "n:scalar:i64:i64", "mask:array:f32:float:in:1:True",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["mr", "suffix", "requires", "epilogue", "fn", "os"])
def test_there_are_no_bare_names_of_perms(rendered, name):
    with pytest.raises(RenderError, match=f"kern_f32__x: UndefinedError: '{name}' is undefined"):
        rendered(f"{{{{ {name} }}}}", asked=request(epilogue="x"))


def test_a_decline_carries_its_reason(rendered):
    with pytest.raises(Declined, match=r"^too wide$"):
        rendered('{{ decline("too wide") }}')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\n{% if %}", r"kern_f32__x: main.j2, line 2: "),
        ("{% include 'broken.j2' %}", r"kern_f32__x: broken.j2, line 1: "),
        ("{% include 'none.j2' %}", "TemplateNotFound: none.j2"),
        ("{% include '../main.j2' %}", "leads out of"),
        ("{% include '/etc/passwd' %}", "leads out of"),
        ("{{ hexf(1, 'int') }}", "hexf knows float, f32, double and f64, not 'int'"),
        ("{{ [][1] + 1 }}", "UndefinedError"),
        ("{{ 'a' + 1 }}", "TypeError"),
        ("{{ symbol.missing }}", "UndefinedError"),
    ],
)
def test_what_fails_in_a_template_is_a_render_error_with_symbol_and_place(rendered, text, said):
    with pytest.raises(RenderError, match=said):
        rendered(text, {"broken.j2": "{% end %}"})


def test_a_template_that_is_not_text_is_a_render_error(tmp_path):
    (tmp_path / "main.j2").write_bytes(b"\xff\xfe")
    with pytest.raises(RenderError, match="UnicodeDecodeError"):
        render(Templates(tmp_path), request())


FILES = {
    "outer.j2": "{% import 'inner.j2' as inner %}{% macro m() %}{{ inner.i() }}{% endmacro %}",
    "inner.j2": "{% macro i() %}inner{% endmacro %}",
    "other.j2": "other",
    "base.j2": "{% block b %}{% endblock %}",
}


@pytest.mark.parametrize(
    ("main", "used"),
    [
        ("plain", []),
        ("{% import 'outer.j2' as o %}{{ o.m() }}", ["outer.j2", "inner.j2"]),
        ("{% import 'outer.j2' as o with context %}{{ o.m() }}", ["outer.j2", "inner.j2"]),
        ("{% from 'inner.j2' import i %}{{ i() }}", ["inner.j2"]),
        ("{% extends 'base.j2' %}{% block b %}{% include 'other.j2' %}{% endblock %}", ["base.j2", "other.j2"]),
        ("{% if perm.mr == 4 %}{% include 'other.j2' %}{% else %}{% include 'none.j2' %}{% endif %}", ["other.j2"]),
        ("{% include ['none.j2', 'other.j2'] %}", ["none.j2", "other.j2"]),
        ("{% include 'none.j2' ignore missing %}", ["none.j2"]),
    ],
)  # fmt: skip
def test_all_files_of_a_text_are_known_each_time_it_is_rendered(rendered, tmp_path, main, used):
    """Also those that an imported file imports in turn, in the second render as in the first."""
    templates = Templates(tmp_path)
    for _ in range(2):
        assert rendered(main, FILES, templates=templates)[1] == ["main.j2", *used]


def test_files_are_known_when_a_template_declines(tmp_path):
    (tmp_path / "main.j2").write_text("{% include 'other.j2' %}")
    (tmp_path / "other.j2").write_text("{{ decline('no') }}")
    used = {}
    with pytest.raises(Declined):
        render(Templates(tmp_path), request(), used)
    assert list(used) == ["main.j2", "other.j2"]


def test_own_templates_go_before_ours(rendered):
    ours = "{% import 'tunegen/lib/vector.ll.j2' as v with context %}{{ v.type(4) }}"
    assert rendered(ours) == ("<4 x float>", ["main.j2", "tunegen/lib/vector.ll.j2"])
    own = {"tunegen/lib/vector.ll.j2": "{% macro type(n) %}own {{ n }}{% endmacro %}"}
    assert rendered(ours, own)[0] == "own 4"


def test_a_text_and_its_digest_are_of_one_reading(rendered, tmp_path):
    """An edit in a running process changes neither until `forget`."""
    templates = Templates(tmp_path)
    assert rendered("first", templates=templates)[0] == "first"
    digest = templates.digest("main.j2")
    (tmp_path / "main.j2").write_text("second")
    assert (render(templates, request()), templates.digest("main.j2")) == ("first", digest)
    templates.forget()
    assert render(templates, request()) == "second"
    assert templates.digest("main.j2") != digest
    assert templates.digest("none.j2") == ""


@given(st.floats(allow_nan=True), st.sampled_from(["float", "f32", "double", "f64"]))
def test_constants_are_exact(value, type_name):
    narrow = type_name in ("float", "f32")
    try:
        rounded = struct.unpack("<f", struct.pack("<f", value))[0] if narrow else value
    except OverflowError:
        with pytest.raises(OverflowError):
            hexf(value, type_name)
        return
    text = hexf(value, type_name)
    assert re.fullmatch("0x[0-9A-F]{16}", text)
    assert repr(struct.unpack("<d", struct.pack("<Q", int(text, 16)))[0]) == repr(rounded)


def test_threads_that_render_at_once_each_know_their_own_files(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    templates = Templates(tmp_path)
    for name in "abcdefgh":
        (tmp_path / f"{name}.j2").write_text(f"{{% include 'inner_{name}.j2' %}}")
        (tmp_path / f"inner_{name}.j2").write_text(name)

    def run(name):
        used = {}
        text = render(templates, msgspec.structs.replace(request(), gen=f"{name}.j2"), used)
        return text, list(used)

    with ThreadPoolExecutor(8) as pool:
        for name, result in zip("abcdefgh" * 4, pool.map(run, "abcdefgh" * 4), strict=True):
            assert result == (name, [f"{name}.j2", f"inner_{name}.j2"])
