"""`tunegen cache list|verify|prune`: what the object cache holds, whether it is sound, and making room in it."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tunegen import knobs, paths
from tunegen.cli import output
from tunegen.making import upkeep
from tunegen.making.cache import ObjectCache

AGES = (("d", 86_400.0), ("h", 3600.0), ("min", 60.0))


def add(subparsers: Any) -> None:
    """Adds the command."""
    parser = subparsers.add_parser("cache", help="the object cache: show, verify, prune", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="list|verify|prune")
    listing = actions.add_parser("list", help="the objects, the most recently used first")
    verify = actions.add_parser("verify", help="check every digest; exit code 1 when something is wrong")
    verify.add_argument("--repair", action="store_true", help="take away what is wrong")
    prune = actions.add_parser("prune", help="take away what is wrong, then what was used least recently")
    prune.add_argument("--limit", type=_limit, help="bytes to keep (64M); TUNE_CACHE_LIMIT if left out")
    for action, run in ((listing, _list), (verify, _verify), (prune, _prune)):
        output.add_json(action)
        action.set_defaults(run=run)


def _limit(text: str) -> int:
    try:
        return knobs.CACHE_LIMIT.read(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


def _cache() -> ObjectCache | None:
    """The cache; None, with a word on stderr, for a folder that is not trusted."""
    cache = ObjectCache(paths.object_cache())
    if cache.folder is None:
        sys.stderr.write(f"tunegen: there is no cache: {cache.problem}\n")
        return None
    return cache


def _list(options: argparse.Namespace) -> int:
    """Prints the objects."""
    if (cache := _cache()) is None:
        return 1
    found, limit = upkeep.contents(cache), knobs.CACHE_LIMIT.get()
    if options.json:
        objects = [{**o._asdict(), "symbols": list(o.symbols), "age_s": round(o.age_s, 3)} for o in found.objects]
        counts = {"records": found.records, "declines": found.declines, "size_bytes": found.size_bytes}
        output.write_json({"folder": str(cache.folder), "objects": objects, **counts, "limit_bytes": limit})
        return 0
    _table(found)
    output.write([f"{cache.folder}: {len(found.objects)} objects, {found.records} records ({found.declines} declines), "
                  f"{_size(found.size_bytes)} of {_size(limit)}"])  # fmt: skip
    return 0


def _verify(options: argparse.Namespace) -> int:
    """Prints what is wrong. Exit code 1 while something is."""
    if (cache := _cache()) is None:
        return 1
    found = upkeep.flaws(cache)
    left = upkeep.remove(found) if options.repair else found
    if options.json:
        output.write_json({"folder": str(cache.folder), "flaws": [f._asdict() for f in found],
                           "removed": len(found) - len(left), "left": [f._asdict() for f in left]})  # fmt: skip
    else:
        output.write(f"{flaw.path}: {flaw.kind}: {flaw.reason}" for flaw in found)
        removed = f"{len(found) - len(left)} removed" if options.repair else "`--repair` takes them away"
        output.write([f"{cache.folder}: wrong files: {len(found)}; {removed}" if found else "all is well"])
    return 1 if left else 0


def _prune(options: argparse.Namespace) -> int:
    """Makes room. Exit code 1 when more is left than the limit allows."""
    if (cache := _cache()) is None:
        return 1
    limit = options.limit if options.limit is not None else knobs.CACHE_LIMIT.get()
    found = upkeep.flaws(cache)
    left = upkeep.remove(found)
    removed = cache.prune(limit)
    if options.json:
        output.write_json({"folder": str(cache.folder), "limit_bytes": limit, "flaws": [f._asdict() for f in found],
                           "left": [f._asdict() for f in left], "removed": removed.files,
                           "freed_bytes": removed.freed_bytes, "size_bytes": removed.left_bytes})  # fmt: skip
    else:
        output.write(f"{flaw.path}: {flaw.kind}: {flaw.reason}" for flaw in found)
        if found:
            output.write([f"{cache.folder}: wrong files: {len(found)}; {len(found) - len(left)} removed"])
        output.write([f"{cache.folder}: {removed.files} files removed to make room, {_size(removed.freed_bytes)}; "
                      f"{_size(removed.left_bytes)} of {_size(limit)} are left"])  # fmt: skip
    return 1 if left or removed.left_bytes > limit else 0


def _table(found: upkeep.Contents) -> None:
    rows = [
        (", ".join(item.symbols) or "(no record)", _size(item.size_bytes), _age(item.age_s), item.digest[:16])
        for item in found.objects
    ]
    output.write_table(("kernel", "size", "used", "digest"), rows, right=("size", "used"))


def _size(size_bytes: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size_bytes < 1024:
            return f"{size_bytes:.4g} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.4g} GiB"


def _age(age_s: float) -> str:
    return next((f"{age_s / length:.0f} {unit} ago" for unit, length in AGES if age_s >= length), "just now")
