"""Signatures, read from annotations as objects and as text."""

from __future__ import annotations

import pytest

from tunegen import In, InOut, Out, dtypes, f32, f64, floats
from tunegen.errors import DeclarationError
from tunegen.signature import read_signature

EVERYTHING = """
def fn(a: In[f32, "M", "K"], b: In[f32, "M?", "K"], c: InOut[f32, "M"], d: Out[f32, "K"], s: float, n: int = 3,
       mask: In[f32, "M?", "K"] | None = None, t: float = 0.5) -> None: ...
"""


def make(source, **names):
    scope = {"In": In, "Out": Out, "InOut": InOut, "f32": f32, "f64": f64, "floats": floats, "T": dtypes("f64", "f32")}
    exec(source, {**scope, **names}, scope)
    return scope["fn"]


def read(source, **options):
    return read_signature(make(source), "kern", {}, **options)


def test_annotations_mean_the_same_as_text_and_as_objects():
    as_objects = read(EVERYTHING)
    as_text = read("from __future__ import annotations" + EVERYTHING)
    assert as_objects == as_text
    assert as_objects.sizes == ("M", "K")
    assert [p.name for p in as_objects.outputs] == ["c", "d"]
    assert [str(p) for p in as_objects.parameters] == [
        "a: in f32[M, K]",
        "b: in f32[M?, K]",
        "c: inout f32[M]",
        "d: out f32[K]",
        "s: float",
        "n: int = 3",
        "mask: in f32[M?, K] or None",
        "t: float = 0.5",
    ]


def test_a_quoted_annotation_is_read_under_future_annotations_too():
    quoted = """from __future__ import annotations
def fn(x: "In[f32, 'N']", out: "Out[f32, 'N']") -> "None": ...
"""
    assert read(quoted).sizes == ("N",)


def test_names_that_are_local_where_a_kernel_is_declared_are_found():
    local = dtypes("f32")

    def fn(x: In[local, "N"], out: Out[local, "N"]) -> None:
        later()

    fn.__annotations__ = {"x": "In[local, 'N']", "out": "Out[local, 'N']", "return": "None"}
    assert read_signature(fn, "fn", locals()).element_types[0].name == "f32"

    def later(): ...


def test_a_reference_may_use_a_name_that_is_bound_later():
    def fn(x: In[f32, "N"], out: Out[f32, "N"]) -> None:
        later()

    assert read_signature(fn, "fn", {}).sizes == ("N",)

    def later(): ...


def test_a_generic_kernel_has_a_stamp_for_each_element_type():
    signature = read("def fn(x: In[T, 'N'], w: In[f32, 'N'], out: Out[T, 'N']) -> None: ...")
    assert [t.name for t in signature.element_types] == ["f64", "f32"]
    f32_type = signature.element_types[1]
    assert [signature.type_of(p, f32_type).name for p in signature.operands] == ["f32", "f32", "f32"]
    assert [signature.type_of(p, signature.element_types[0]).name for p in signature.operands] == ["f64", "f32", "f64"]


def test_operands_of_any_rank_share_one_size():
    signature = read("def fn(x: In[floats, ...], out: Out[floats, ...]) -> None: ...", inplace=True)
    assert signature.any_rank
    assert signature.sizes == ("N",)
    assert [p.strides for p in signature.operands] == [0, 0]


GOOD = "x: In[f32, 'N'], out: Out[f32, 'N']"


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (f"def fn({GOOD}): ...", "return annotation is missing"),
        (f"def fn({GOOD}) -> int: ...", "returns None, not"),
        ("def fn(x, out: Out[f32, 'N']) -> None: ...", "parameter x has no annotation"),
        ("def fn(x: 'nonsense', out: Out[f32, 'N']) -> None: ...", "annotation of x cannot be read.*nonsense"),
        ("def fn(x: list, out: Out[f32, 'N']) -> None: ...", "parameter x: got <class 'list'>; allowed are In"),
        ("def fn(x: bool, out: Out[f32, 'N']) -> None: ...", "parameter x: got <class 'bool'>"),
        ("def fn(x: 'In[f32]', out: Out[f32, 'N']) -> None: ...", "parameter x: In.*dimensions are missing"),
        ("def fn(x: 'In[int, 3]', out: Out[f32, 'N']) -> None: ...", "first item is an element type"),
        ("def fn(x: 'In[f32, 3]', out: Out[f32, 'N']) -> None: ...", "size symbol.*not 3"),
        ("def fn(x: 'In[f32, \"N M\"]', out: Out[f32, 'N']) -> None: ...", "size symbol.*not 'N M'"),
        ("def fn(x: In[f32, 'N'], out: 'Out[f32, \"N?\"]') -> None: ...", "only an input may broadcast"),
        ("def fn(x: 'In[f32, \"N\"] | int', out: Out[f32, 'N']) -> None: ...", r"may be `\| None`, not"),
        (f"def fn(*{GOOD}) -> None: ...", "are not supported"),
        (f"def fn({GOOD}, *, s: float) -> None: ...", "are not supported"),
        (f"def fn({GOOD}, s: int = 1.5) -> None: ...", "default 1.5 is no int"),
        (f"def fn({GOOD}, s: int = True) -> None: ...", "default True is no int"),
        (f"def fn({GOOD}, m: In[f32, 'N'] | None) -> None: ...", "m: `| None` goes with the default None"),
        (f"def fn({GOOD}, m: In[f32, 'N'] = None) -> None: ...", "m: `| None` goes with the default None"),
        ("def fn(x: In[f32, 'N'], o: Out[f32, 'N'] | None = None) -> None: ...", "only an input may be optional"),
        ("def fn(x: In[f32, 'N'] | None = None, o: Out[f32, 'N'] = None) -> None: ...", "goes with the default None"),
        ("def fn(x: In[f32, 'N']) -> None: ...", "no operand is written"),
        ("def fn() -> None: ...", "no operand is written"),
        ("def fn(x: In[f32, ...], out: Out[f32, 'N']) -> None: ...", "do not mix"),
        ("def fn(x: In[T, 'N'], out: Out[floats, 'N']) -> None: ...", "at most one generic"),
        ("def fn(N: In[f32, 'N'], out: Out[f32, 'N']) -> None: ...", "N is a parameter and a size symbol"),
        ("def fn(scratch: In[f32, 'N'], out: Out[f32, 'N']) -> None: ...", "scratch is a parameter"),
        ("def fn(x: In[f32, 'M', 'N'], x_s0: Out[f32, 'M']) -> None: ...", "x_s0 is"),
        ("def fn(größe: In[f32, 'N'], out: Out[f32, 'N']) -> None: ...", "'größe'.*a name has"),
        ("def fn(x: In[f32, 'N?'], out: Out[f32, 'M']) -> None: ...", "size N is bound by no"),
    ],
)
@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"], ids=["objects", "text"])
def test_what_is_wrong_with_a_signature_is_said_with_kernel_and_parameter(future, source, problem):
    with pytest.raises(DeclarationError, match=problem.replace("|", r"\|").replace(r"\\|", r"\|")) as caught:
        read(future + source)
    assert caught.value.kernel == "kern"


def test_inplace_is_for_elementwise_kernels():
    with pytest.raises(DeclarationError, match="inplace is for elementwise"):
        read(f"def fn({GOOD}) -> None: ...", inplace=True)


@pytest.mark.parametrize("names", [(), ("f32", "f32"), ("f16",), ("f32", "int")])
def test_a_generic_type_has_distinct_known_names(names):
    with pytest.raises(DeclarationError, match="distinct names out of f32, f64"):
        dtypes(*names)
