"""What the native entry of a signature depends on, as text: the key of its object in the cache."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from tunegen.calling.dispatching import Dispatching
from tunegen.digest import sha256
from tunegen.signature import Signature


def entry_identity(signature: Signature, dispatching: Dispatching, table_offset: int) -> str:
    """Equal texts stand for equal entries; nothing has to be written to find out."""
    return f"{signature} sizes {signature.sizes} {dispatching.text}; table at {table_offset}; written by {_writers()}"


@cache
def _writers() -> str:
    """Digest of the code that writes entries, and of the layout of what they read."""
    folder = Path(__file__).parent
    names = ["native.py", *(f"entry/{name}" for name in sorted(os.listdir(folder / "entry")) if name.endswith(".py"))]
    return sha256(b"".join((folder / name).read_bytes() for name in names)).hexdigest()
