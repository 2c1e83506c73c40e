"""What an ELF object defines, and what it asks of others: variants must ask for nothing."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from tunegen.digest import sha256
from tunegen.errors import CompileError

SHT_SYMTAB = 2
SHT_STRTAB = 3
SHT_NOBITS = 8
SHN_UNDEF = 0


def undefined_symbols(image: bytes) -> tuple[str, ...]:
    """Names that a 64-bit little-endian ELF object uses and does not define, sorted. Raises `CompileError`."""
    return tuple(sorted({name for name, section, _ in _symbols(image) if section == SHN_UNDEF and name}))


def code_size_bytes(image: bytes, symbol: str) -> int:
    """Size of a function's code; 0 for one that is missing or empty. Raises `CompileError`."""
    return next((size for name, section, size in _symbols(image) if name == symbol and section != SHN_UNDEF), 0)


def code_digest(image: bytes) -> str:
    """Digest of what an object does: its sections and symbols without their names. Raises `CompileError`.

    Two variants that came to the same code differ in the names of their symbols alone.
    """
    digest = sha256()
    for _, kind, flags, _, start, length, link, info, align, entry in _sections(image):
        if kind == SHT_STRTAB:
            continue
        content = image[start : start + length] if kind != SHT_NOBITS else b""
        if kind == SHT_SYMTAB:
            content = b"".join(content[at + 4 : at + entry] for at in range(0, length, entry))
        digest.update(struct.pack("<8Q", kind, flags, length, len(content), link, info, align, entry))
        digest.update(content)
    return digest.hexdigest()


def _sections(image: bytes) -> list[tuple[int, ...]]:
    """The section headers. Layout: System V ABI, ELF-64 object file format. Raises `CompileError`."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise CompileError("the object is not a 64-bit little-endian ELF object, which is all that tunegen reads")
    (offset,) = struct.unpack_from("<Q", image, 0x28)
    size, count = struct.unpack_from("<HH", image, 0x3A)
    return [struct.unpack_from("<IIQQQQIIQQ", image, offset + i * size) for i in range(count)]


def _symbols(image: bytes) -> Iterator[tuple[str, int, int]]:
    """Name, section index and size in bytes of each symbol."""
    sections = _sections(image)
    for _, kind, _, _, start, length, link, _, _, entry in sections:
        if kind != SHT_SYMTAB:
            continue
        strings = sections[link][4]
        for at in range(start + entry, start + length, entry):
            name, _, _, section, _, bytes_ = struct.unpack_from("<IBBHQQ", image, at)
            end = image.index(b"\0", strings + name)
            yield image[strings + name : end].decode(), section, bytes_
