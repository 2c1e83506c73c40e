"""Scopes: a library's kernels, tuned together. The registry of all scopes that were imported."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tunegen.errors import DeclarationError, KernelNotFound, ScopeNotFound
from tunegen.making.render import Templates

if TYPE_CHECKING:
    from tunegen.public.kernel import Kernel
    from tunegen.signature import ElementType

_scopes: dict[str, Scope] = {}


class Scope:
    """A library's kernels, with the folder of its templates, the script that tunes it, and its profiles' folder."""

    def __init__(
        self, name: str, module: str, templates: Path, tuner: Path | None, profiles: Path | None = None
    ) -> None:
        self.name = name
        self.module = module
        self.templates = Templates(templates)
        self.tuner = tuner
        self.profiles = profiles
        self.kernels: dict[str, Kernel] = {}
        self._imports: dict[str, object] = {}

    def __repr__(self) -> str:
        return f"<scope {self.name} of {self.module}: {len(self.kernels)} kernels>"

    def add(self, kernel: Kernel) -> None:
        """Registers a kernel. A module that is loaded again replaces its own kernels.

        Raises `DeclarationError` when the scope has a kernel of this name from another module, or from this one in the
        course of the same import: winners and values belong to a name.
        """
        old, load = self.kernels.get(kernel.name), _import_of(kernel)
        if old is not None and old.spec.module != kernel.spec.module:
            raise DeclarationError(kernel.name, f"scope {self.name} has a kernel of this name in {old.spec.module}")
        if load is not None and load is self._imports.get(kernel.name):
            raise DeclarationError(kernel.name, f"{kernel.spec.module} declares two kernels of this name")
        self.kernels[kernel.name] = kernel
        self._imports[kernel.name] = load


def _import_of(kernel: Kernel) -> object:
    """What the import in which a kernel is declared is known by; None when its module is not being imported."""
    spec = kernel.spec.function.reference.__globals__.get("__spec__")
    return spec if getattr(spec, "_initializing", False) else None


def register(scope: Scope) -> None:
    """Makes a scope known. Raises `DeclarationError` when another module has a scope of this name."""
    old = _scopes.get(scope.name)
    if old is not None and old.module != scope.module:
        raise DeclarationError(scope.name, f"a scope of this name is declared by {old.module}")
    _scopes[scope.name] = scope


def scopes() -> dict[str, Scope]:
    """The scopes declared so far in this process, by name."""
    return dict(_scopes)


def enclosing(module: str) -> Scope:
    """The scope of the nearest enclosing package of `module`. Raises `DeclarationError`."""
    by_module = {scope.module: scope for scope in _scopes.values()}
    package = module
    while package not in by_module and "." in package:
        package = package.rpartition(".")[0]
    if package not in by_module:
        raise DeclarationError(module, "no enclosing package declared a scope: call tune_scope(...) in one first")
    return by_module[package]


def find_scope(name: str) -> Scope:
    """The scope of this name: declared, installed under the entry-point group `tunegen.scopes`, or a module.

    Raises `ScopeNotFound` that lists what is installed.
    """
    if name in _scopes:
        return _scopes[name]
    from importlib.metadata import entry_points

    installed = {point.name: point for point in entry_points(group="tunegen.scopes")}
    module = installed[name].value.partition(":")[0] if name in installed else name
    before = set(_scopes)
    if not _import(module):
        options = ", ".join(sorted({*installed, *_scopes})) or "none"
        raise ScopeNotFound(f"no scope or module {name!r}; installed scopes: {options}")
    if name in _scopes:
        return _scopes[name]
    found = [s for s in _scopes.values() if s.module == module or s.name not in before]
    if len(found) != 1:
        raise ScopeNotFound(f"module {module!r} declares {len(found)} scopes; name one of {', '.join(_scopes)}")
    return found[0]


def _import(module: str) -> bool:
    """Whether there is such a module, which is imported then. Raises what its own code raises."""
    import importlib

    if not all(part.isidentifier() for part in module.split(".")):
        return False
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        return False
    return True


def chosen_scopes(names: Iterable[str]) -> list[Scope]:
    """The scopes of these names, each as `find_scope` finds it; all that are declared by now without names."""
    return [find_scope(name) for name in names] or list(_scopes.values())


def installed_scopes() -> list[str]:
    """Names of the scopes under the entry-point group `tunegen.scopes`, and of those declared by now."""
    from importlib.metadata import entry_points

    return sorted({*(point.name for point in entry_points(group="tunegen.scopes")), *_scopes})


def find_kernel(name: str, among: list[Scope] | None = None) -> Kernel:
    """The kernel called `gemm` or `mylib:gemm` in the scopes declared so far. Raises `KernelNotFound`."""
    scope_name, _, kernel = name.rpartition(":")
    candidates = [
        scope
        for scope in (among if among is not None else _scopes.values())
        if kernel in scope.kernels and scope_name in ("", scope.name)
    ]
    if len(candidates) == 1:
        return candidates[0].kernels[kernel]
    if candidates:
        raise KernelNotFound(f"{kernel} is ambiguous: {', '.join(f'{s.name}:{kernel}' for s in candidates)}")
    known = ", ".join(f"{s.name}:{k}" for s in _scopes.values() for k in s.kernels) or "none"
    raise KernelNotFound(f"no kernel {name!r}; declared are {known}")


def find_keys(name: str, among: list[Scope] | None = None) -> tuple[Kernel, tuple[ElementType, ...]]:
    """The kernel that `gemm`, `mylib:gemm` or `gemm[f32]` names, and the element types that are meant: all or one.

    Raises `KernelNotFound`.
    """
    plain, bracket, rest = name.partition("[")
    kernel = find_kernel(plain, among)
    types = kernel.signature.element_types
    if not bracket:
        return kernel, types
    wanted = rest.removesuffix("]")
    if not (chosen := tuple(t for t in types if t.name == wanted)):
        names = ", ".join(t.name for t in types)
        raise KernelNotFound(f"{kernel.name} has no element type {wanted!r}; there are {names}")
    return kernel, chosen
