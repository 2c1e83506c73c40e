"""From a row of a grid to code: cached object, or render, compile and keep. Linked when it is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from tunegen import forks
from tunegen.box import Box, process_triple
from tunegen.digest import sha256
from tunegen.errors import CompileError, Declined
from tunegen.grid import Row
from tunegen.making.cache import ObjectCache, Record, object_cache
from tunegen.making.compile import PASSES, Target, compile_object, link, llvm_version
from tunegen.making.render import Request, Templates, render
from tunegen.making.spec import ABI, Function, Spec
from tunegen.signature import ElementType

counters: Counter[str] = Counter()
"""How often this process did each step: rendered, compiled, linked, hits."""

SCRATCH = "__scratch"
ENTRY = "native entry"
"""What the cache calls the objects that are no variants."""

_mapped: dict[tuple[str, str], Linked] = {}
"""What is mapped into this process, by digest of the object and symbol."""


class Made(msgspec.Struct, frozen=True):
    """An object and the template files that it came from, with their digests."""

    image: bytes
    digest: str
    templates: dict[str, str]


class Linked(msgspec.Struct, frozen=True):
    """Addresses of a variant in this process; `scratch` is 0 when it needs none."""

    address: int
    scratch: int


def host_target(box: Box) -> Target:
    """The target of code that runs in this process."""
    return Target(process_triple(), box.cpu, box.target_features)


def make_object(
    function: Function, row: Row, element_type: ElementType, templates: Templates, features: frozenset[str],
    target: Target,
) -> Made:  # fmt: skip
    """The object of one variant, from the cache or made and kept.

    Raises `Declined` (a kept decline included), `RenderError` or `CompileError`.
    """
    cache = object_cache()
    request = function.request(row, element_type, features)
    key = _key(request, templates, target)
    record = cache.record(key)
    if record is not None and all(templates.digest(name) == digest for name, digest in record.templates.items()):
        if record.declined:
            raise Declined(record.declined)
        image = cache.image(record.object)
        if image is not None:
            counters["hits"] += 1
            return Made(image, record.object, record.templates)
    return _make(request, templates, target, cache, key)


def _make(request: Request, templates: Templates, target: Target, cache: ObjectCache, key: str) -> Made:
    used: dict[str, None] = {}
    counters["rendered"] += 1
    try:
        with forks.LOCK:
            image = _compile(request.symbol, render(templates, request, used), target)
    except Declined as declined:
        digests = {name: templates.digest(name) for name in used}
        cache.put_record(key, Record(digests, "", str(declined), request.symbol))
        raise
    digests = {name: templates.digest(name) for name in used}
    digest = cache.put_image(image)
    cache.put_record(key, Record(digests, digest, symbol=request.symbol))
    return Made(image, digest, digests)


def _compile(symbol: str, ir: str, target: Target) -> bytes:
    from tunegen.making.elf import code_size_bytes, undefined_symbols

    counters["compiled"] += 1
    image = compile_object(ir, target)
    if missing := undefined_symbols(image):
        raise Declined(f"the code calls {', '.join(missing)}, which no variant may")
    if not code_size_bytes(image, symbol):
        raise CompileError(f"{symbol} has no code: the template does not define it, or LLVM found it undefined")
    return image


def _key(request: Request, templates: Templates, target: Target) -> str:
    """What a record is found by: also the generator's text, for libraries may have kernels and files of one name."""
    sizes = (request.signature.sizes, str(request.signature), request.element_type.name)
    generator = (request.gen, templates.digest(request.gen))
    parts = (request.symbol, generator, request.perm, request.define, sizes, sorted(request.features), target)
    return sha256(msgspec.json.encode((ABI, llvm_version(), PASSES, parts), order=None)).hexdigest()


def link_variant(made: Made, symbol: str, target: Target) -> Linked:
    """Maps a variant into this process, once: code is never unmapped. Raises `CompileError`."""
    key = (made.digest, symbol)
    if key not in _mapped:
        counters["linked"] += 1
        scratch = symbol.encode() + SCRATCH.encode() in made.image
        addresses = link(made.image, (symbol, symbol + SCRATCH) if scratch else (symbol,), target)
        _mapped[key] = Linked(addresses[symbol], addresses.get(symbol + SCRATCH, 0))
    return _mapped[key]


def make_family(spec: Spec, row: Row, element_type: ElementType, box: Box) -> dict[str, Linked]:
    """The kernel's variant and those of its companions, by function name: all of them or none.

    Raises `Declined`, `RenderError` or `CompileError` of the first that cannot be made.
    """
    target = host_target(box)
    made = {f.name: make_object(f, row, element_type, spec.templates, box.feature_set, target) for f in spec.functions}
    return {f.name: link_variant(made[f.name], f.symbol(element_type, row.suffix), target) for f in spec.functions}


def family_code(spec: Spec, row: Row, element_type: ElementType, box: Box) -> str:
    """Digest of the code of a row's variant and its companions: equal for rows that differ in name alone.

    Raises `Declined`, `RenderError` or `CompileError` of the first that cannot be made.
    """
    from tunegen.making.elf import code_digest

    target, digest = host_target(box), sha256()
    for function in spec.functions:
        made = make_object(function, row, element_type, spec.templates, box.feature_set, target)
        digest.update(code_digest(made.image).encode())
    return digest.hexdigest()


def template_digests(spec: Spec, row: Row, element_type: ElementType, box: Box) -> dict[str, str]:
    """The template files behind a row of a kernel and its companions, with their digests."""
    target, found = host_target(box), {}
    for function in spec.functions:
        made = make_object(function, row, element_type, spec.templates, box.feature_set, target)
        found.update(made.templates)
    return found


def entry_object(identity: str, write_ir: Callable[[], str], target: Target) -> bytes:
    """The object of a native entry, whose IR is written only when the cache has no object of this identity.

    It names process symbols, but holds no address. Raises `CompileError`.
    """
    cache = object_cache()
    key = sha256(msgspec.json.encode((llvm_version(), PASSES, identity, target))).hexdigest()
    record = cache.record(key)
    image = cache.image(record.object) if record is not None else None
    if image is None:
        counters["compiled"] += 1
        image = compile_object(write_ir(), target)
        cache.put_record(key, Record({}, cache.put_image(image), symbol=ENTRY))
    return image
