"""The house: rooms import only downwards, and each "never" of the design holds. Read from the sources."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {"tunegen": ROOT / "tunegen", "tunegen.harness": ROOT / "harness", "tunegen.kernels": ROOT / "kernels",
           "tunegen.templates": ROOT / "templates"}  # fmt: skip

FLOORS = (
    # ground; the floors of single files have steps, so that here, too, a room imports only from below
    {"forks"},
    {"errors", "log", "digest", "system"},
    {"knobs", "features", "expressions"},
    {"paths", "points"},
    {"parameters", "parallel"},
    # describing
    {"signature", "requires", "grid", "box"},
    {"fallback", "cases", "gates"},
    # making and calling; the shipped templates are data that rendering finds by name
    {"templates"},
    {"making", "calling"},
    {"executor"},
    # choosing
    {"choosing"},
    # public; the package itself offers what is in it
    {"public"},
    {""},
    # a library, as anybody may write one; then the harness, whose benchmarks and workloads use it
    {"kernels"},
    {"harness"},
    # frozen builds of a library
    {"freezing"},
    # faces
    {"tuning", "testing"},
    {"cli"},
    {"__main__"},
)
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
FRAMEWORK = [room for room in FLOOR if FLOOR[room] <= FLOOR[""]]


class Import(NamedTuple):
    target: str
    lazy: bool
    for_types: bool
    line: int


def modules() -> dict[str, Path]:
    found = {}
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *(part for part in parts if part != "__init__")))
            found[name] = path
    return found


MODULES = modules()


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imports(module: str) -> Iterator[Import]:
    """What a module imports from tunegen, as modules."""

    def walk(node: ast.AST, lazy: bool, for_types: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inside = lazy or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            typed = for_types or (isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"))
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, lazy, for_types, child.lineno)
            elif isinstance(child, ast.ImportFrom):
                assert not child.level, f"{module}:{child.lineno}: a relative import"
                for alias in child.names:
                    whole = f"{child.module}.{alias.name}"
                    yield Import(whole if whole in MODULES else str(child.module), lazy, for_types, child.lineno)
            yield from walk(child, inside, typed)

    return (found for found in walk(tree(module), False, False))


def ours(module: str) -> Iterator[Import]:
    return (found for found in imports(module) if found.target.split(".")[0] == "tunegen")


def test_every_room_is_on_a_floor():
    assert {room(module) for module in MODULES} == set(FLOOR)


@pytest.mark.parametrize("module", MODULES)
def test_a_room_imports_only_from_the_floors_below(module):
    """Lazy imports and imports for types count like any others."""
    wrong = [
        f"line {found.line}: {found.target}"
        for found in ours(module)
        if room(found.target) != room(module) and FLOOR[room(found.target)] >= FLOOR[room(module)]
    ]
    assert not wrong


def test_imports_inside_a_room_have_no_cycle():
    """Lazy ones included. An import for types alone is none when the program runs."""
    edges = {
        module: {
            found.target
            for found in ours(module)
            if not found.for_types and found.target != module and room(found.target) == room(module)
        }
        for module in MODULES
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module not in done:
            for target in edges[module]:
                visit(target, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


def attributes(module: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node), node.lineno
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def uses(module: str, *names: str) -> list[str]:
    return [
        f"line {line}: {text}"
        for text, line in attributes(module)
        if any(text == n or text.startswith(f"{n}.") for n in names)
    ]


@pytest.mark.parametrize("module", [m for m in MODULES if m != "tunegen.knobs"])
def test_nothing_but_knobs_touches_the_environment(module):
    assert not uses(module, "os.environ", "os.getenv", "os.putenv", "os.unsetenv", "os.environb")


@pytest.mark.parametrize("module", [m for m in MODULES if m != "tunegen.harness.measure"])
def test_nothing_but_the_measuring_room_looks_at_a_clock(module):
    clocks = {"time", "timeit", "datetime", "sched"}
    assert not [f"line {f.line}: {f.target}" for f in imports(module) if f.target.split(".")[0] in clocks]


SPEAKERS = {"tunegen.public.policy", "tunegen.public.status"}
"""The banner of a policy, and the status of a program that never configured logging: both go to stderr."""


def is_program(module: str) -> bool:
    """A benchmark or a workload that is run by its name, and so has a face of its own."""
    guards = [ast.unparse(n.test) for n in tree(module).body if isinstance(n, ast.If)]
    return room(module) == "harness" and "__name__ == '__main__'" in guards


@pytest.mark.parametrize("module", [m for m in MODULES if room(m) != "cli" and not is_program(m)])
def test_nothing_but_the_faces_prints(module):
    printed = [f"line {n.lineno}: print" for n in ast.walk(tree(module))
               if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "print"]  # fmt: skip
    written = uses(module, "sys.stdout.write", "sys.stdout.buffer", "sys.__stdout__", "sys.__stderr__")
    written += uses(module, "sys.stderr.write") if module not in SPEAKERS else []
    assert not printed + written


def test_the_framework_names_no_kernel_and_no_harness():
    for module in MODULES:
        if room(module) in FRAMEWORK:
            text = MODULES[module].read_text(encoding="utf-8")
            assert "tunegen.kernels" not in text, module
            assert not [f.target for f in ours(module) if room(f.target) in ("kernels", "harness")], module


@pytest.mark.parametrize(
    ("package", "importers"),
    [
        ("jinja2", {"tunegen.making.render"}),
        ("llvmlite", {"tunegen.making.compile", "tunegen.box"}),
        ("archspec", {"tunegen.box"}),
        ("platformdirs", {"tunegen.paths"}),
        ("filelock", {"tunegen.choosing.store"}),
    ],
)
def test_each_heavy_package_has_its_importers_and_waits_until_it_is_needed(package, importers):
    found = {m: [f for f in imports(m) if f.target.split(".")[0] == package] for m in MODULES if room(m) in FRAMEWORK}
    assert {module for module, uses in found.items() if uses} == importers
    assert all(f.lazy or f.for_types for uses in found.values() for f in uses)


def test_rich_is_for_the_faces_alone():
    for module in MODULES:
        if room(module) != "cli":
            assert not [f.target for f in imports(module) if f.target.split(".")[0] == "rich"]
        assert all(f.lazy for f in imports(module) if f.target.split(".")[0] == "rich")
