"""What automatic tuning tried on this box, so that a kernel that cannot be tuned costs one start and not every one.

It lies beside the manifest: `NAME.attempts.json`. Whoever deletes it, or changes the library, has it tried again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from tunegen import forks, paths
from tunegen.choosing import store
from tunegen.digest import sha256
from tunegen.errors import StoreError
from tunegen.making.compile import llvm_version
from tunegen.making.spec import Spec
from tunegen.public.scope import Scope

LIMIT = 3
"""How often a tuner is started that was cut short each time: by noise, a signal, the time. One that came to its end
is believed at once.
"""
KILLED_LIMIT = 20
"""How often that may be in the background of programs that were killed meanwhile: servers end like that every day, and
the journal keeps what was found. A tuner that takes its program or its box down comes to an end, too.
"""
MAX_BYTES = 1 << 20


class Attempt(msgspec.Struct, frozen=True):
    """What was tried for one kernel and element type: `digest` covers all that the outcome depends on.

    One that goes on, or whose program was killed meanwhile, has no reason.
    """

    digest: str
    tries: int = 1
    ended: bool = False
    reason: str = ""

    def over(self, *, background: bool = False) -> bool:
        """Whether it is not worth another try while the digest is the same."""
        limit = KILLED_LIMIT if background and not self.reason else LIMIT
        return self.ended or self.tries >= limit


Attempts = dict[str, Attempt]
"""By "scope:gemm[f32]"."""


def path_for(manifest: Path) -> Path:
    """The file that belongs to a manifest."""
    return manifest.with_name(f"{manifest.name.removesuffix(store.SUFFIX)}.attempts.json")


def read(path: Path) -> Attempts:
    """What was tried so far; nothing when the file cannot be read."""
    return paths.read_record(path, MAX_BYTES, Attempts) or {}


def write(path: Path, changes: Mapping[str, Attempt | None]) -> None:
    """Adds what was tried, or takes it away (None). Raises `StoreError`. Its writers take turns: `store.turn`."""
    found = {name: attempt for name, attempt in {**read(path), **changes}.items() if attempt is not None}
    try:
        # a child that is forked meanwhile would not know what this thread is in the middle of
        with forks.LOCK:
            if found:
                store.replace(path, msgspec.json.format(msgspec.json.encode(found), indent=1))
            else:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}", "read_only") from None


def digest_of(scope: Scope, spec: Spec) -> str:
    """Digest of all that decides what a tuner finds: declaration, templates, tuner and compiler. Renders nothing."""
    module = getattr(sys.modules.get(spec.module), "__file__", None)
    files = [Path(module)] if module else []
    files += [scope.tuner] if scope.tuner else []
    files += sorted(scope.templates.folder.rglob("*.j2"))
    parts = [llvm_version(), spec.name]
    for file in files:
        with suppress(OSError):
            parts.append(f"{file.name} {sha256(file.read_bytes()).hexdigest()}")
    return f"sha256:{sha256(chr(0).join(parts).encode(errors='surrogateescape')).hexdigest()}"
