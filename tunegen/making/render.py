"""Templates to LLVM IR. The only importer of jinja2, and only when something has to be rendered."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

import msgspec

from tunegen.digest import sha256
from tunegen.errors import Declined, RenderError
from tunegen.signature import ElementType, Scalar, Signature

SHIPPED = "tunegen/"
"""Prefix under which every scope finds the macros that come with tunegen."""

Value = bool | int | float | str


class Templates:
    """The templates that one scope sees: its own folder first, then ours under `tunegen/`.

    Each file is read once, so that its digest is that of the text that was rendered, whoever edits it meanwhile.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.compiled: dict[tuple[str, str], CodeType] = {}
        self._files: dict[str, tuple[bytes | None, str]] = {}

    def path(self, name: str) -> Path:
        """The file behind a template name. Raises `RenderError` for a name that leads out of its folder."""
        root, relative = self.folder, name
        if name.startswith(SHIPPED) and not (self.folder / name).is_file():
            import tunegen.templates

            root, relative = Path(tunegen.templates.__file__).parent, name.removeprefix(SHIPPED)
        if ".." in relative.split("/") or relative.startswith("/"):
            raise RenderError(f"template name {name!r} leads out of {root}")
        return root / relative

    def source(self, name: str) -> bytes | None:
        """A template file's bytes; None when there is no such file. The name may come from a manifest: any text."""
        return self._file(name)[0]

    def exists(self, name: str) -> bool:
        """Whether there is a template of this name."""
        try:
            return self.path(name).is_file()
        except (OSError, ValueError, RenderError):
            return False

    def digest(self, name: str) -> str:
        """Digest of a template file's bytes; "" when there is no such file."""
        return self._file(name)[1]

    def _file(self, name: str) -> tuple[bytes | None, str]:
        """Bytes and digest, as they were when the file was read."""
        if (known := self._files.get(name)) is not None:
            return known
        read: tuple[bytes | None, str] = None, ""
        with suppress(OSError, ValueError, RenderError):
            source = self.path(name).read_bytes()
            read = source, sha256(source).hexdigest()
        return self._files.setdefault(name, read)

    def forget(self) -> None:
        """Reads the files again from now on."""
        self._files.clear()


class Request(msgspec.Struct, frozen=True):
    """All that a variant's text depends on, but for the template files."""

    symbol: str
    gen: str
    perm: Mapping[str, Value]
    define: Mapping[str, Value]
    signature: Signature
    element_type: ElementType
    features: frozenset[str]


class Namespace:
    """Named values under attribute access: `perm.mr`. An unknown name is an error in the template."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)


def render(templates: Templates, request: Request, used: dict[str, None] | None = None) -> str:
    """Renders one variant. Adds the names of the template files that it came from to `used`, however it ends.

    Raises `Declined` with the template's reason, or `RenderError`.
    """
    import jinja2

    used = used if used is not None else {}
    used[request.gen] = None
    try:
        return str(_environment(templates, used).get_template(request.gen).render(_context(request)))
    except (Declined, MemoryError):
        raise
    except jinja2.TemplateSyntaxError as error:
        at = f"{error.name or request.gen}, line {error.lineno}"
        raise RenderError(f"{request.symbol}: {at}: {error.message}") from None
    except Exception as error:  # a template calls what it likes
        raise RenderError(f"{request.symbol}: {type(error).__name__}: {error}") from None


def hexf(value: float, type_name: str) -> str:
    """An LLVM floating-point constant of type "float"/"f32" or "double"/"f64", exact in hexadecimal."""
    if type_name in ("float", "f32"):
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    elif type_name not in ("double", "f64"):
        raise ValueError(f"hexf knows float, f32, double and f64, not {type_name!r}")
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _decline(reason: str) -> NoReturn:
    raise Declined(reason)


def _context(request: Request) -> dict[str, Any]:
    count = iter(range(1 << 30))
    return {
        "symbol": request.symbol,
        "perm": Namespace(request.perm),
        "define": Namespace(request.define),
        "T": request.element_type,
        "args": [_argument(p, request) for p in request.signature.parameters],
        "sizes": request.signature.sizes,
        "box": Namespace({"features": request.features}),
        "has": request.features.__contains__,
        "decline": _decline,
        "uid": lambda: next(count),
        "hexf": hexf,
    }


def _argument(parameter: Any, request: Request) -> Namespace:
    if isinstance(parameter, Scalar):
        scalar = {"name": "f64", "llvm": "double"} if parameter.kind == "float" else {"name": "i64", "llvm": "i64"}
        return Namespace({"name": parameter.name, "kind": "scalar", "type": Namespace(scalar)})
    return Namespace(
        {
            "name": parameter.name,
            "kind": "array",
            "role": parameter.role,
            "type": request.signature.type_of(parameter, request.element_type),
            "strides": parameter.strides,
            "optional": parameter.optional,
        }
    )


def _environment(templates: Templates, used: dict[str, None]) -> Any:
    """A jinja2 environment for one render: a longer-lived one keeps modules, and their imports would go unnoticed."""
    import jinja2

    class Recording(jinja2.Environment):
        """Notes every template that another one names."""

        def join_path(self, template: str, parent: str) -> str:
            used[template] = None
            return template

    class Compiled(jinja2.BytecodeCache):
        """Keeps compiled templates from one render to the next."""

        def load_bytecode(self, bucket: Any) -> None:
            bucket.code = templates.compiled.get((bucket.key, bucket.checksum))

        def dump_bytecode(self, bucket: Any) -> None:
            templates.compiled[bucket.key, bucket.checksum] = bucket.code

    def load(name: str) -> tuple[str, str, None] | None:
        path, source = templates.path(name), templates.source(name)
        return (source.decode("utf-8"), str(path), None) if source is not None else None

    return Recording(
        loader=jinja2.FunctionLoader(load),
        bytecode_cache=Compiled(),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
