"""The files of a frozen Python package that are no native code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tunegen.freezing import module
from tunegen.freezing.baking import Batch

_INIT = '''"""Kernels of the scope {title}, frozen by tunegen: {what} that needs nothing but numpy.

`__tunegen__` says what was baked.
"""

{load}

{names}

__all__ = {all}
'''

_VERSION = """\
import sys

if sys.version_info < (3, 11):
    raise ImportError("{title}: this build is for CPython 3.11 and newer")"""


def runtime_source() -> bytes:
    """The module `_runtime`."""
    return Path(__file__).with_name("runtime.py").read_bytes()


def native_init(title: str, batch: Batch) -> str:
    """The `__init__.py` of a package with native code."""
    entries = module.entries_of(batch)
    words = "\n".join(f"    {module.words_of(entry.signature)}," for entry in entries)
    load = (
        f"{_VERSION.format(title=title)}\n\nfrom . import _native, _runtime\n\n_words = [\n{words}\n]\n"
        f"_kernels, __tunegen__ = _runtime.load(_native, __name__, _words, {module.BASE_SIZE})"
    )
    return _init(title, "native code", load, [entry.name for entry in entries])


def reference_init(title: str, homes: Mapping[str, str]) -> str:
    """The `__init__.py` of a package of reference bodies: `homes` has the module of each."""
    modules = ", ".join(sorted({*homes.values(), "_runtime"}))
    bodies = "\n".join(f'    "{name}": {home}.{name},' for name, home in sorted(homes.items()))
    load = (
        f"from . import {modules}\n\n_bodies = {{\n{bodies}\n}}\n"
        "_kernels, __tunegen__ = _runtime.load_references(_bodies, __name__)"
    )
    return _init(title, "Python", load, list(homes))


def _init(title: str, what: str, load: str, names: Sequence[str]) -> str:
    found = sorted(names)
    lines = "\n".join(f'{name} = _kernels["{name}"]' for name in found)
    return _INIT.format(title=title, what=what, load=load, names=lines, all=found)
