"""Reference bodies as a module of their own: what a kernel's function needs is copied from where it was written."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from tunegen.making.spec import Function


class Written(NamedTuple):
    """Modules with reference bodies: the source of each by name, the module of each function, and why others were
    left out.
    """

    sources: dict[str, str]
    homes: dict[str, str]
    left_out: dict[str, str]


class _Tied(Exception):
    """A name that cannot be copied. The argument says why."""


def written_references(functions: Iterable[Function], package: str) -> Written:
    """The bodies of these functions with what they use of their own modules: a module for each of those.

    A body is left out that uses a part of `package` or of tunegen, or what no plain statement of its module defines.
    """
    statements: dict[str, dict[str, str]] = {}
    homes: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for function in functions:
        module = function.reference.__module__
        own = statements.setdefault(module, {})
        found = dict(own)
        try:
            _copy(module, function.reference.__name__, package, found, own=True)
        except _Tied as tied:
            left_out[function.name] = str(tied)
            continue
        own |= found
        homes[function.name] = module
    names = {module: f"_references{number}" for number, module in enumerate(m for m, own in statements.items() if own)}
    sources = {name: _source(statements[module].values()) for module, name in names.items()}
    return Written(sources, {name: names[module] for name, module in homes.items()}, left_out)


def _source(statements: Iterable[str]) -> str:
    found = list(statements)
    imports = [text for text in found if not text.endswith("\n")]
    rest = [text for text in found if text.endswith("\n")]
    return "\n".join(['"""Reference bodies, as they were written."""\n', *imports, "", *rest])


def _copy(module: str, name: str, package: str, found: dict[str, str], *, own: bool = False) -> None:
    """Adds the statement that defines a name, after those that it needs. `own` is the body itself: its decorators and
    annotations are taken off. Raises `_Tied`.
    """
    statement = _definitions(module).get(name)
    if statement is None:
        if hasattr(builtins, name):
            return
        raise _Tied(f"{name} is defined by no plain statement of {module}")
    if isinstance(statement, ast.FunctionDef) and statement.decorator_list and not own:
        raise _Tied(f"it uses {name}, which is decorated")
    if name in found:
        return
    if isinstance(statement, ast.Import | ast.ImportFrom):
        found[name] = _import(statement, name, package)
        return
    if isinstance(statement, ast.FunctionDef):
        statement = _bare(statement)
    for needed in _free_names(statement):
        if needed != name:
            _copy(module, needed, package, found)
    found[name] = ast.unparse(statement) + "\n"


def _import(statement: ast.Import | ast.ImportFrom, name: str, package: str) -> str:
    """The import of one name. Raises `_Tied` for a part of tunegen or of the package itself."""
    alias = next(a for a in statement.names if (a.asname or a.name.partition(".")[0]) == name)
    source = alias.name if isinstance(statement, ast.Import) else statement.module or ""
    root = source.partition(".")[0]
    relative = isinstance(statement, ast.ImportFrom) and statement.level
    if relative or root in ("tunegen", package.partition(".")[0]):
        raise _Tied(f"it uses {name} of {source or 'its package'}")
    if isinstance(statement, ast.Import):
        return ast.unparse(ast.Import([alias]))
    return ast.unparse(ast.ImportFrom(source, [alias], 0))


def _bare(function: ast.FunctionDef) -> ast.FunctionDef:
    """A function without decorators and annotations."""
    bare = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(bare, ast.FunctionDef)
    bare.decorator_list, bare.returns = [], None
    arguments = bare.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        argument.annotation = None
    return bare


def _free_names(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement reads from its module, in order."""
    nodes = list(ast.walk(statement))
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    read = (n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    yield from dict.fromkeys(name for name in read if name not in bound)


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """The statement of a module that defines each name; a name that is defined twice has its last one."""
    found: dict[str, ast.stmt] = {}
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError, KeyError):
        return found
    for statement in tree.body:
        match statement:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                found |= {a.asname or a.name.partition(".")[0]: statement for a in names}
            case ast.FunctionDef(name=name):
                found[name] = statement
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                found[name] = statement
    return found
