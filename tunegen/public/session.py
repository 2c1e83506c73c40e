"""Sessions: choices captured once. Whatever is published, loaded or written later reaches only later sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from tunegen import forks
from tunegen.box import Box, effective_threads, this_box
from tunegen.calling import Dispatcher, native_type
from tunegen.choosing import store
from tunegen.choosing.published import Generation, current
from tunegen.choosing.resolve import NO_ENTRY, Stamp, Tier
from tunegen.errors import ParameterError, SessionError
from tunegen.making.spec import Spec
from tunegen.parameters import Value
from tunegen.public import sources
from tunegen.public.kernel import CompanionMethods, KernelMethods
from tunegen.public.pins import Pins, session_pins
from tunegen.public.scope import find_keys, scopes
from tunegen.public.setting import Setting, Values, new_executor
from tunegen.public.stamping import Maker, stamp

if TYPE_CHECKING:
    from tunegen.executor import CpuExecutor


class Hints(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a host knows about itself.

    `threads_available` is how many threads it can spare, `background` whether others go first: then idle threads of
    the session sleep at once instead of waiting for work.
    """

    threads_available: int | None = None
    background: bool = False


def session(
    threads: int | None = None,
    pins: Mapping[str, str] | None = None,
    manifest: str | Path | None = None,
    parameters: Mapping[str, Mapping[str, Value]] | None = None,
    hints: Hints | Mapping[str, Any] | None = None,
) -> Session:
    """Captures what choices depend on, now; a context manager, whose `bind` gives the kernels.

    `threads` is how many threads kernels may use: at most what the process may use and what the hints leave, which is
    what they get without it; `Session.threads` says what came of it. `pins` are suffixes by kernel ("gemm",
    "gemm[f32]", "mylib:gemm"), `manifest` is a file that goes before all but a pin and `TUNE_MANIFEST`, `parameters`
    are values by kernel, completed from those that would hold without them. `hints` are a `Hints`, or a mapping with
    its fields.

    Raises `KernelNotFound` for an unknown kernel, element type or suffix, `ParameterError` for values that the schema
    refuses, and `ValueError` for a number of threads below 1 and for unknown or mistyped hints.
    """
    said = _hints(hints)
    for number, name in ((threads, "threads"), (said.threads_available, "threads_available")):
        if number is not None and (type(number) is not int or number < 1):
            raise ValueError(f"session: {name}={number!r}: allowed is a whole number from 1 up")
    allowed = effective_threads()
    most = min(allowed, said.threads_available or allowed)
    return Session(min(threads or most, most), said, _manifest(manifest), pins or {}, parameters or {})


class BoundMethods(Dispatcher):
    """A kernel, or a companion of one, as a session chose it: call it like the kernel.

    `stamp` and `values` are the variants and the parameters' values by element type, copied when it was bound;
    `companions` are the siblings of a kernel, bound with it.
    """

    # as many as a kernel has: then both have their table at one place, and one native entry serves both
    __slots__ = ("companions", "session", "spec", "stamp", "values")

    def __init__(self, session: Session, source: Dispatcher, spec: Spec) -> None:
        super().__init__(source.name, source.signature, source.dispatching, source.reference)
        self.session = session
        self.spec = spec
        self.stamp: Mapping[str, Stamp] = {}
        self.values: Values = {}
        self.companions: Mapping[str, BoundMethods] = {}

    def __repr__(self) -> str:
        return f"<{self.name}{self.signature} bound to {self.session!r}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self.name} is bound to a session of this process: pickle the kernel, and bind it there again"
        )


if TYPE_CHECKING:
    Bound = BoundMethods
else:
    Bound = native_type(BoundMethods)


class Session:
    """Choices as they were when it was made, by `tunegen.session(...)`. Use it in a `with`; any thread may.

    `threads` is how many threads its kernels may use, `generation` has the published values that it sees, `hints` is
    what the host said, `pins` are the suffixes that were asked for, by scope and name in a manifest.
    """

    def __init__(
        self, threads: int, hints: Hints, manifest: Tier | None, pins: Mapping[str, str],
        parameters: Mapping[str, Mapping[str, Value]],
    ) -> None:  # fmt: skip
        self.threads = threads
        self.hints = hints
        self.generation: Generation = current()
        self._box = this_box()
        self._manifest = manifest
        self._tiers: dict[tuple[str, Box], list[Tier]] = {}
        self._executor: CpuExecutor | None = None
        self._bound: dict[Dispatcher, BoundMethods] = {}
        self._ended = False
        self._lock = forks.LOCK
        descriptor = msgspec.structs.replace(self._box, threads=threads)
        for name in scopes():
            self._tiers_of(name, self._box)
            self._tiers_of(name, descriptor)
        self.pins: Pins = session_pins(pins)
        setting = Setting(self._box, descriptor, self._tiers_of, self.generation, lambda: self.executor, self.pins)
        self._setting = msgspec.structs.replace(setting, parameters=_parameters(parameters, setting))

    def __repr__(self) -> str:
        state = "ended" if self._ended else f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"<session: {state}, generation {self.generation.number}>"

    @property
    def manifest(self) -> str:
        """The file that the session was given; "" for none."""
        return self._manifest.path if self._manifest is not None else ""

    @property
    def executor(self) -> CpuExecutor | None:
        """The threads that all kernels of the session share, made when first asked for; None when it has but one."""
        with self._lock:
            if self._executor is None and self.threads > 1 and not self._ended:
                self._executor = new_executor(self.threads, background=self.hints.background)
            return self._executor

    def bind(self, kernel: KernelMethods | CompanionMethods | str) -> BoundMethods:
        """The kernel ("gemm", "mylib:gemm") or companion as this session chooses it, the same object each time.

        Raises `KernelNotFound` for an unknown name, `SessionError` when the session has ended.
        """
        found = find_keys(kernel)[0] if isinstance(kernel, str) else kernel
        with self._lock:
            if self._ended:
                raise SessionError(f"{found.name} cannot be bound: the session has ended")
            if found not in self._bound:
                self._bind(found.kernel if isinstance(found, CompanionMethods) else found)
            return self._bound[found]

    def _bind(self, kernel: KernelMethods) -> None:
        family = (kernel, *kernel.companions.values())
        bound, *siblings = dispatchers = [Bound(self, source, kernel.spec) for source in family]
        stamped = stamp(dispatchers, Maker(kernel.spec, self._box), self._setting)
        bound.companions = MappingProxyType({sibling.name: sibling for sibling in siblings})
        for one in dispatchers:
            one.stamp = MappingProxyType(stamped.stamps)
            one.values = stamped.values
        self._bound.update(zip(family, dispatchers, strict=True))

    def _tiers_of(self, scope: str, box: Box) -> Sequence[Tier]:
        """Where to look for a scope's kernels, as it was when the session was made, or when it first saw the scope."""
        with self._lock:
            if (scope, box) not in self._tiers:
                self._tiers[scope, box] = sources.tiers(scope, box, self._manifest)
            return self._tiers[scope, box]

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the session: its threads end, and what it bound goes on alone on the thread of its caller."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
            for bound in self._bound.values():
                bound.run_serially()
        # it waits for threads, which may fork
        if self._executor is not None:
            self._executor.close()


def _hints(given: Hints | Mapping[str, Any] | None) -> Hints:
    try:
        return given if isinstance(given, Hints) else msgspec.convert(dict(given or {}), Hints)
    except msgspec.ValidationError as error:
        fields = ", ".join(Hints.__struct_fields__)
        raise ValueError(f"session: hints={given!r}: {error}; a hint is one of {fields}") from None


def _manifest(given: str | Path | None) -> Tier | None:
    if given is None:
        return None
    path = Path(given).expanduser().absolute()
    found = store.read(path)
    note = f"no manifest {path}" if found.status == "not_found" else NO_ENTRY
    return Tier("session manifest", "manifest", found, path=str(path), note=note)


def _parameters(given: Mapping[str, Mapping[str, Value]], setting: Setting) -> dict[tuple[str, str], dict[str, Value]]:
    """The complete values for each scope and manifest key, from partial ones."""
    found: dict[tuple[str, str], dict[str, Value]] = {}
    for name in sorted(given, key=lambda name: "[" in name):
        kernel, types = find_keys(name)
        spec = kernel.spec
        for t in types:
            place = (spec.scope, spec.key(t))
            try:
                found[place] = spec.schema.completed(given[name], found.get(place) or setting.values(spec, t).values)
            except ParameterError as error:
                raise ParameterError(tuple(f"{spec.key(t)}: {problem}" for problem in error.problems)) from None
    return found
