"""The request `-- --tune` on an application's command line: found, and taken out before anything parses it."""

from __future__ import annotations

from typing import NamedTuple

FLAG = "--tune"


class Request(NamedTuple):
    """What `-- --tune` asks for: all that the program demands, or the kernels named by `-- --tune=gemm,exp[f32]`."""

    everything: bool
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"-- {FLAG}" if self.everything else f"-- {FLAG}={','.join(self.names)}"


_kept: list[Request] = []


def keep(argv: list[str]) -> None:
    """Takes a request out of `argv`, and keeps it until it is asked for: nobody who parses `argv` later sees it."""
    request = take_out(argv)
    if request is not None:
        _kept.append(request)


def kept() -> Request | None:
    """The last request that was taken out; None when there was none, or when it was asked for already."""
    request = _kept[-1] if _kept else None
    _kept.clear()
    return request


def take_out(argv: list[str]) -> Request | None:
    """Takes each `--tune` and `--tune=NAMES` that comes right after a `--` out of `argv`, in place.

    The `--` goes, too, when nothing else follows it. `argv[0]` is the program's name.
    """
    words: list[str] = []
    at = 1
    while at < len(argv):
        if argv[at] != "--":
            at += 1
            continue
        before = len(words)
        while at + 1 < len(argv) and (argv[at + 1] == FLAG or argv[at + 1].startswith(f"{FLAG}=")):
            words.append(argv.pop(at + 1))
        if len(words) > before and at + 1 == len(argv):
            argv.pop()
        at += 1
    if not words:
        return None
    names = [name.strip() for word in words for name in word.partition("=")[2].split(",")]
    return Request(FLAG in words, tuple(dict.fromkeys(name for name in names if name)))
