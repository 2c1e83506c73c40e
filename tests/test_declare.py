"""Declarations: everything is checked when a kernel is declared, and each error names kernel, row and value."""

from __future__ import annotations

import importlib

import pytest
from toys import HEADER, TOY

from tunegen.errors import DeclarationError, KernelNotFound, ScopeNotFound
from tunegen.public import scope as scopes

FN = 'def kern(x: In[f32, "N"], out: Out[f32, "N"]) -> None: ...'
TUNE = '@scope.tune(gen="toy.ll.j2", gate=bitwise())'
ROW = "@scope.tune_perm(row=1)"
PACK = 'def pack(x: In[f32, "N"], out: Out[f32, "N"]) -> None: ...'
COMPANION = '@scope.tune_companion(fn=pack, gen="toy.ll.j2")'


def lines(*parts):
    return "\n".join(parts)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (lines("@scope.tune(gate=bitwise())", ROW, FN), "no generator"),
        (lines('@scope.tune(gen="", gate=bitwise())', ROW, FN), "no generator"),
        (lines('@scope.tune(gen="none.ll.j2", gate=bitwise())', ROW, FN), "'none.ll.j2' is not in .*templates"),
        (lines('@scope.tune(gen="../../x", gate=bitwise())', ROW, FN), "'../../x' is not in"),
        (lines(TUNE, FN), "no rows"),
        (lines(TUNE, "@scope.tune_grid(row=[])", FN), "row has no values"),
        (lines(TUNE, '@scope.tune_grid(row=[1], where="row > 1")', FN), "no rows"),
        (lines(ROW, TUNE, ROW, FN), r"\{'row': 1\}.*stands above `tune`"),
        (lines(COMPANION, TUNE, ROW, FN).replace("fn=pack", "fn='pack'"), "stands above `tune`"),
        (lines(TUNE, TUNE, ROW, FN), "closed by `tune` once"),
        (lines(TUNE, ROW, "class kern: ..."), "plain function"),
        (lines(TUNE, "class kern: ..."), "plain function"),
        (lines(TUNE, ROW, ROW, FN), r"\{'row': 1\}: the suffix 'row1' is taken"),
        (lines(TUNE, ROW, '@scope.tune_perm(row=2, suffix="row1")', FN), r"\{'row': 2\}: the suffix 'row1' is taken"),
        (lines(TUNE, '@scope.tune_perm(row=2, suffix="reference")', FN), r"\{'row': 2\}.*'reference' is reserved"),
        (lines(TUNE, '@scope.tune_perm(row="a b")', FN), r"\{'row': 'a b'\}.*'row_a b' is no identifier"),
        (lines(TUNE, "@scope.tune_perm()", FN), "no identifier"),
        (lines(TUNE, "@scope.tune_perm(row=None)", FN), "row=None: a value is a bool"),
        (lines(TUNE, "@scope.tune_grid(row=[1, (2,)])", FN), r"row=\(2,\): a value is a bool"),
        (lines(TUNE, '@scope.tune_perm(row=float("nan"))', FN), "row=nan: a value is.*finite"),
        (lines(TUNE, '@scope.tune_perm(row=float("inf"))', FN), "row=inf: a value is.*finite"),
        (lines(TUNE, ROW, "@scope.tune_perm(other=1)", FN), r"\{'other': 1\}: rows name the same axes"),
        (lines(TUNE, '@scope.tune_perm(row=1, requires="avx512_vnni")', FN), r"\{'row': 1\}.*'avx512_vnni'; did you"),
        (lines(TUNE, '@scope.tune_grid(row=[1], requires="avx2,")', FN), r"\{'row': \(1,\)\}.*empty name"),
        (lines(TUNE, '@scope.tune_grid(row=[1], where="rwo > 0")', FN), r"\(1,\)\}: where: unknown name 'rwo'"),
        (lines(TUNE, '@scope.tune_grid(row=[1], where="row +")', FN), "where: 'row \\+' is no expression"),
        (lines(TUNE, '@scope.tune_grid(row=["a"], where="row > 1")', FN), r"\{'row': 'a'\}: where 'row > 1'"),
        (lines(TUNE, ROW, FN.replace('x: In[f32, "N"]', "x")), "parameter x has no annotation"),
        (lines(TUNE, ROW, FN.replace(" -> None", "")), "return annotation is missing"),
        (lines(TUNE[:-1] + ', fallback="row2; reference")', ROW, FN), "'row2' is neither a row nor 'reference'"),
        (lines(TUNE[:-1] + ', fallback="row1 if M < 2; reference")', ROW, FN), "unknown name 'M'.*known are N"),
        (lines(TUNE[:-1] + f', fallback="row1 if {"*".join(["N"] * 20)} > 2")', ROW, FN), "multiply fewer sizes"),
        (lines(TUNE[:-1] + ', cases=[case("a", M=1)])', ROW, FN), r"case a\(M=1\): the sizes are N"),
        (lines(TUNE[:-1] + ', cases=[case("a", N=1), case("a", N=2)])', ROW, FN), "two cases have one name"),
        (lines(TUNE[:-1] + ", define={'epilogue': None})", ROW, FN), "define epilogue=None: a value is"),
        (lines(TUNE[:-1] + ", inplace=True)", ROW, FN), "inplace is for elementwise"),
        (lines('@scope.tune(gen="toy.ll.j2", gate=bound("K"))', ROW, FN), r"gate bound\('K'\): the sizes are N"),
        (
            lines('@scope.tune(gen="toy.ll.j2", gate=ulp(1, nonfinite="no"))', ROW, FN),
            r"gate ulp\(1.0, nonfinite='no'\): nonfinite is one of propagate, ignore",
        ),
        (lines(TUNE, ROW, COMPANION.replace("fn=pack", "fn='pack'"), FN), "companion 'pack' is missing"),
        (lines(TUNE, ROW, COMPANION.replace("fn=pack", "fn='pack'"), FN, PACK), "companion 'pack' is missing"),
        (lines(TUNE, ROW, COMPANION.replace("fn=pack", "fn=3"), FN), "companion '3' is missing"),
        (lines(PACK, TUNE, ROW, '@scope.tune_companion(fn=pack)', FN), "companion 'pack' has no generator"),
        (lines(PACK, TUNE, ROW, COMPANION.replace("toy.", "none."), FN), "companion 'pack'.*'none.ll.j2' is not in"),
        (lines(PACK, TUNE, ROW, COMPANION, COMPANION, FN), "companion 'pack' is listed twice"),
        (lines(PACK.replace(" -> None", ""), TUNE, ROW, COMPANION, FN), "companion pack: the return annotation"),
        (lines(TUNE, ROW, COMPANION.replace("fn=pack", "fn='kern'"), FN), "companion 'kern' is the kernel itself"),
        (lines(TUNE, ROW, COMPANION.replace("fn=pack", "fn=np.broadcast_shapes"), FN), "not a function of module"),
        (lines("def outer():\n    " + PACK + "\n    return pack", "other = outer()", TUNE, ROW,
               COMPANION.replace("fn=pack", "fn=other"), FN), "not a function of module"),
        (lines(PACK.replace('"N"', '"M"'), TUNE[:-1] + ', fallback="row1 if N < 2")', ROW, COMPANION, FN),
         "companion 'pack' knows no size N, on which 'N < 2'"),
        (lines("code = compile('\\n' * 99 + " + repr(PACK) + ", 'x', 'exec')", "exec(code)", TUNE, ROW, COMPANION, FN),
         "companion 'pack' is declared later"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"], ids=["objects", "text"])
def test_a_wrong_declaration_is_refused(library, future, body, problem):
    with pytest.raises(DeclarationError, match=problem) as caught:
        library(body, header=future + HEADER)
    assert "kern" in str(caught.value)


def test_nothing_of_a_refused_declaration_is_registered(library):
    with pytest.raises(DeclarationError):
        library(lines(PACK, TUNE[:-1] + ', fallback="row9")', ROW, COMPANION, FN))
    assert [list(s.kernels) for s in scopes.scopes().values()] == [[]]


@pytest.mark.parametrize("decorators", ["scope.", ""], ids=["methods", "functions"])
def test_a_kernel_belongs_to_its_scope_either_way(library, decorators):
    made = library(lines(PACK, TUNE, "@scope.tune_grid(row=[1, 2])", ROW.replace("1", "3"), COMPANION, FN).replace(
        "scope.tune", f"{decorators}tune"))  # fmt: skip
    assert made.kern.spec.scope == made.__name__
    assert made.scope.kernels == {"kern": made.kern}
    assert [row.suffix for row in made.kern.spec.grid] == ["row1", "row2", "row3"]
    assert made.pack is made.kern.companions["pack"]
    assert (made.kern.__name__, made.pack.__name__) == ("kern", "pack")


def test_a_module_of_a_package_finds_the_scope_of_the_package(library, tmp_path):
    made = library("")
    text = HEADER.partition("scope =")[0] + lines(TUNE, ROW, FN).replace("scope.", "")
    (tmp_path / "libraries" / made.__name__ / "family.py").write_text(text)
    family = importlib.import_module(f"{made.__name__}.family")
    assert made.scope.kernels == {"kern": family.kern}
    (tmp_path / "libraries" / made.__name__ / "another.py").write_text(text)
    with pytest.raises(DeclarationError, match=f"kern: scope {made.__name__} has a kernel of this name in .*family"):
        importlib.import_module(f"{made.__name__}.another")
    assert importlib.reload(family).kern is made.scope.kernels["kern"]


def test_a_kernel_outside_of_any_scope_is_refused(library, tmp_path):
    text = HEADER.partition("scope =")[0] + lines(TUNE, ROW, FN).replace("scope.", "")
    (tmp_path / "libraries" / "toylib_stray.py").write_text(text)
    with pytest.raises(DeclarationError, match="toylib_stray: no enclosing package declared a scope"):
        importlib.import_module("toylib_stray")


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ('tune_scope(name="my lib", templates="templates")', "'my lib' is no identifier"),
        ('tune_scope(name="lib", templates="nowhere")', "lib: the templates folder .*nowhere does not exist"),
        ('tune_scope(name="lib", templates="templates", tuner="tune.py")', "lib: the tuner .*tune.py does not exist"),
    ],
)
def test_a_wrong_scope_is_refused(library, call, problem):
    with pytest.raises(DeclarationError, match=problem):
        library(call)


def test_two_modules_cannot_declare_one_scope(library):
    first = library('tune_scope(name="shared", templates="templates")')
    with pytest.raises(DeclarationError, match=f"shared: a scope of this name is declared by {first.__name__}"):
        library('tune_scope(name="shared", templates="templates")')


def test_scopes_and_kernels_are_found_by_name(library):
    a, b = library(lines(TUNE, ROW, FN)), library(lines(TUNE, ROW, FN))
    assert scopes.find_scope(a.__name__) is a.scope
    assert scopes.find_kernel(f"{b.__name__}:kern") is b.kern
    with pytest.raises(KernelNotFound, match=f"ambiguous: {a.__name__}:kern, {b.__name__}:kern"):
        scopes.find_kernel("kern")
    with pytest.raises(KernelNotFound, match=f"no kernel 'gemm'; declared are {a.__name__}:kern"):
        scopes.find_kernel("gemm")


@pytest.mark.parametrize("name", ["no_such_module", "", ".", "a b", ".relative", "numpy.no_such_module"])
def test_a_scope_that_is_nowhere_is_not_found(name):
    with pytest.raises(ScopeNotFound, match=r"installed scopes: .*kernels"):
        scopes.find_scope(name)


def test_a_module_without_a_scope_is_said(library):
    with pytest.raises(ScopeNotFound, match="'json' declares 0 scopes"):
        scopes.find_scope("json")


def test_a_module_that_fails_to_import_raises_its_own_error(library, tmp_path):
    (tmp_path / "libraries" / "toylib_broken.py").write_text("import no_such_dependency")
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        scopes.find_scope("toylib_broken")


def test_a_kernel_that_a_module_declares_twice_is_an_error_and_a_reload_is_none(library):
    with pytest.raises(DeclarationError, match="declares two kernels of this name"):
        library(TOY + TOY)
    made = library(TOY)
    first = made.toy
    assert importlib.reload(made).toy is not first
