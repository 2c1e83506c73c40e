"""What a library declares once: its scope, with the decorators that add kernels to it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tunegen.cases import Case, Inputs
from tunegen.errors import DeclarationError
from tunegen.gates import Gate
from tunegen.grid import REFERENCE, Value
from tunegen.parallel import Parallel
from tunegen.public import declare
from tunegen.public.kernel import Kernel
from tunegen.public.scope import Scope, register


class Library(Scope):
    """A scope with the decorators of `tunegen`, for kernels that are declared outside of its package, too."""

    tune_perm = staticmethod(declare.tune_perm)
    tune_grid = staticmethod(declare.tune_grid)
    tune_companion = staticmethod(declare.tune_companion)
    tune_param = staticmethod(declare.tune_param)

    def tune(
        self,
        *,
        gen: str | None = None,
        gate: Gate,
        cases: Iterable[Case] = (),
        fallback: str = REFERENCE,
        inputs: Inputs | None = None,
        define: Mapping[str, Value] | None = None,
        inplace: bool = False,
        parallel: Parallel | None = None,
    ) -> Callable[[Callable[..., None]], Kernel]:
        """Closes the declaration of a kernel of this scope; see `tunegen.tune`."""
        options = declare.options_of(gen, gate, cases, fallback, inputs, define, inplace, parallel)
        return declare.closing(self, options, sys._getframe(1).f_locals)


def tune_scope(*, name: str, templates: str, tuner: str | None = None, profiles: str | None = None) -> Library:
    """Declares a scope, once, in the package that holds its kernels, or in a module of that package.

    `templates` is a folder, `tuner` a script and `profiles` a folder of the winners and values that the library ships,
    all relative to the file of the caller. Raises `DeclarationError` for a name that is no identifier or is taken by
    another module, and for a folder or script that does not exist.
    """
    caller = sys._getframe(1).f_globals
    module, file = str(caller.get("__package__") or caller["__name__"]), caller.get("__file__")
    base = Path(file).absolute().parent if file else Path.cwd()
    folder, script = base / templates, base / tuner if tuner else None
    shipped = base / profiles if profiles else None
    if not (name.isidentifier() and name.isascii()):
        raise DeclarationError("tune_scope", f"the name {name!r} is no identifier")
    if not folder.is_dir():
        raise DeclarationError(name, f"the templates folder {folder} does not exist")
    if script is not None and not script.is_file():
        raise DeclarationError(name, f"the tuner {script} does not exist")
    if shipped is not None and not shipped.is_dir():
        raise DeclarationError(name, f"the profiles folder {shipped} does not exist")
    scope = Library(name, module, folder, script, shipped)
    register(scope)
    return scope
