"""SHA-256 from the interpreter itself.

`hashlib` prefers OpenSSL, whose loading takes longer than all the digests of a program's start-up; the standard
library's `random` imports a builtin function for the same reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:
        from _sha2 import sha256  # CPython 3.12 and later
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256

__all__ = ["sha256"]
