"""After an upgrade of LLVM alone: what was chosen before goes through the gate again, and stays when it passes.

Only the harness can gate, and a variant may crash, so that is done in a child process: once, for all such winners of a
scope, for its verdicts are remembered per box beside the user's manifests, in `NAME.regated.json`: a map of kernel,
suffix and the digest that a new entry would have to the reason of a refusal, "" for what passed. Another change of
anything in the digest asks anew, and so does deleting the file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tunegen import forks, knobs, log, paths
from tunegen.box import Box
from tunegen.choosing import document, store
from tunegen.choosing.resolve import Outcome, Tier, resolve
from tunegen.errors import StoreError, TunegenError
from tunegen.making.compile import llvm_version
from tunegen.making.spec import Spec
from tunegen.public import host, sources
from tunegen.public.scope import scopes
from tunegen.signature import ElementType

if TYPE_CHECKING:
    import subprocess

LIMIT_S = 120.0
"""How long a program waits for the verdicts of a scope."""
MAX_BYTES = 4 << 20
MOST_VERDICTS = 4096
LONGEST_REASON = 300
MOST_WINNERS = 2 * document.KEPT_ENTRIES
"""How many winners of one kernel and element type a process has gated: a manifest may list any number of them."""


class Winner(msgspec.Struct, frozen=True):
    """What is to be gated: a row of a kernel, for one element type. `digest` is that of an entry that is made now."""

    module: str
    kernel: str
    element_type: str
    suffix: str
    digest: str

    @property
    def key(self) -> str:
        """`gemm[f32]`."""
        return f"{self.kernel}[{self.element_type}]"

    @property
    def name(self) -> str:
        """What its verdict is remembered under."""
        return f"{self.key} {self.suffix} {self.digest}"


class Job(msgspec.Struct, frozen=True):
    """What the child is told. It ends with the process `parent`."""

    scope: str
    parent: int
    winners: list[Winner]


class Verdict(msgspec.Struct, frozen=True):
    """What the child says of the winner of this number. The reason of a refusal is "" for one that passed.

    It is `lasting` when it says something about the winner, and not about how this box is just now.
    """

    number: int
    reason: str
    lasting: bool = True


Verdicts = dict[str, str]
"""The reason of a refusal, "" for what passed, by the name of a winner."""

_verdicts: dict[Path, Verdicts] = {}
"""What this process knows, by the file in which it is remembered. A digest says all, so it never ages."""
_put_off: dict[Winner, str] = {}
"""Why this process could not have a winner gated; the next one tries again."""
_gated: Counter[tuple[Path, str]] = Counter()
"""How many winners of a kernel and element type this process had gated."""


def path_for(scope: str, box: Box) -> Path:
    """Where verdicts on this box are remembered."""
    return paths.user_manifests() / scope / f"{box.file_name.removesuffix(store.SUFFIX)}.regated.json"


def gate_again(
    spec: Spec, element_type: ElementType, box: Box, places: Sequence[Tier], suffix: str, digest: str
) -> Outcome:
    """What the gate says of a winner that was found with another LLVM: `ok`, `failed`, or `stale` where it has no say.

    May take as long as `LIMIT_S` the first time, for all that is in `places` for the scope. Never raises.
    """
    winner = _winner(spec, element_type, suffix, digest)
    path = path_for(spec.scope, box)
    with forks.LOCK:
        if _open(path, winner):
            if why_not := _why_not(spec) or _too_many(path, winner):
                return Outcome("stale", f"not gated again: {why_not}")
            others = [w for w in _waiting(spec.scope, box, places) if w != winner and _open(path, w)]
            others.sort(key=lambda other: other.key != winner.key)
            _gate(path, spec.scope, [winner, *(w for w in others if not _too_many(path, w))])
        said = remembered(spec, element_type, box, suffix, digest)
        return said if said.state != "stale" else Outcome("stale", f"not gated again: {_put_off[winner]}")


def remembered(spec: Spec, element_type: ElementType, box: Box, suffix: str, digest: str) -> Outcome:
    """What the gate said of a winner before: `ok`, `failed`, or `stale` when it was not asked."""
    verdict = _known(path_for(spec.scope, box), _winner(spec, element_type, suffix, digest))
    if verdict is None:
        return Outcome("stale")
    return Outcome("failed", verdict) if verdict else Outcome("ok")


def _winner(spec: Spec, element_type: ElementType, suffix: str, digest: str) -> Winner:
    return Winner(spec.module, spec.name, element_type.name, suffix, digest)


def _too_many(path: Path, winner: Winner) -> str:
    """Why this process has no further winner of a kernel gated; "" when it does, and one more is counted."""
    _gated[path, winner.key] += 1
    return "the manifests list too many" if _gated[path, winner.key] > MOST_WINNERS else ""


def _open(path: Path, winner: Winner) -> bool:
    """Whether nothing is known of a winner, and this process has not tried."""
    return _known(path, winner) is None and winner not in _put_off


def _known(path: Path, winner: Winner) -> str | None:
    known = _verdicts.setdefault(path, {})
    if winner.name not in known:
        known |= _read(path)
    return known.get(winner.name)


def _why_not(spec: Spec) -> str:
    """Why this process starts no child; "" when it does."""
    if knobs.under_pytest():
        return "it is a test, or was started by one"
    for package, what in host.runners():
        if what != "a worker" and package != "tunegen.cli":
            return f"it is {what}"
    if spec.module == "__main__":
        return "it is declared in a script or a notebook, which no other process can import"
    if not host.interpreter():
        return "no Python interpreter was found"
    try:
        llvm_version()
    except TunegenError as error:
        return str(error)
    return ""


def _waiting(scope: str, box: Box, places: Sequence[Tier]) -> Iterator[Winner]:
    """All winners of a scope that are in use and that an upgrade of LLVM made stale."""
    found: list[Winner] = []
    manifests = [tier for tier in places if tier.manifest is not None]
    for kernel in scopes()[scope].kernels.values():
        spec = kernel.spec
        for element_type in spec.signature.element_types:

            def ask(suffix: str, digest: str, spec: Spec = spec, element_type: ElementType = element_type) -> Outcome:
                found.append(_winner(spec, element_type, suffix, digest))
                return Outcome("stale")

            resolve(spec, element_type, box, sources.sources(spec.name, manifests, lambda row: Outcome("ok"), ask))
    return (winner for winner in dict.fromkeys(found) if winner.module != "__main__")


def _gate(path: Path, scope: str, winners: Sequence[Winner]) -> None:
    """Finds a verdict on each winner: what another process wrote meanwhile, and else what a child says."""
    with ExitStack() as stack:
        try:
            stack.enter_context(store.turn(path, LIMIT_S))
        except StoreError as error:
            if error.status == "locked":
                _put_off.update(dict.fromkeys(winners, str(error)))
                return
            sources.warn_once(f"winners of {scope} go through the gate at each start: {error}")
        known = _read(path)
        left = [winner for winner in winners if winner.name not in known]
        said = _asked(scope, left) if left else {}
        _verdicts[path] |= known | said
        if said:
            _write(path, known | said)


def _asked(scope: str, winners: Sequence[Winner]) -> Verdicts:
    """What a child says of the winners. One that hangs before it says anything would do so at each start."""
    log.warning("LLVM has changed to %s: %d of the winners of %s for this box go through the gate again, once, for "
                "%g s at most", llvm_version(), len(winners), scope, LIMIT_S)  # fmt: skip
    verdicts, problem, late = _run(Job(scope, os.getpid(), list(winners)))
    said = {winners[v.number]: v for v in verdicts if v.number in range(len(winners))}
    passed = sum(not verdict.reason for verdict in said.values())
    log.warning("%d of %d passed; `tunegen tune %s` finds out what is fastest now", passed, len(winners), scope)
    if late and not said:
        return {winner.name: problem for winner in winners}
    lasting = {winner: verdict.reason for winner, verdict in said.items() if verdict.lasting}
    _put_off.update({w: said[w].reason if w in said else problem for w in winners if w not in lasting})
    return {winner.name: reason[:LONGEST_REASON] for winner, reason in lasting.items()}


def _run(job: Job) -> tuple[list[Verdict], str, bool]:
    """What a child came to, what was wrong with it, and whether it had to be ended. It ends with this wait."""
    import subprocess

    from tunegen.public import launching

    command = [host.interpreter(), "-P", "-m", "tunegen.harness.recheck"]
    late = False
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=launching.environment(), process_group=0,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return [], f"no child could be started: {error}", late
    try:
        said = process.communicate(msgspec.json.encode(job), LIMIT_S)[0]
    except subprocess.TimeoutExpired:
        late = True
        _end(process)
        said = process.communicate()[0]
    finally:
        _end(process)
    ending = f"was not ready after {LIMIT_S:g} s" if late else f"ended with exit code {process.returncode}"
    return list(_decoded(said)), f"the child {ending}", late


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends all that a child is and started."""
    import signal

    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _decoded(said: bytes) -> Iterator[Verdict]:
    decoder = msgspec.json.Decoder(Verdict)
    for line in said.splitlines():
        with suppress(msgspec.DecodeError):
            yield decoder.decode(line)


def _read(path: Path) -> Verdicts:
    """What is remembered; nothing when the file cannot be read."""
    found = paths.read_record(path, MAX_BYTES, Verdicts) or {}
    return {name: reason[:LONGEST_REASON] for name, reason in found.items()}


def _write(path: Path, verdicts: Mapping[str, str]) -> None:
    kept = dict(list(verdicts.items())[-MOST_VERDICTS:])
    try:
        store.replace(path, msgspec.json.format(msgspec.json.encode(kept), indent=1))
    except OSError as error:
        sources.warn_once(f"winners are gated again at each start: {path} cannot be written: {error.strerror}")
