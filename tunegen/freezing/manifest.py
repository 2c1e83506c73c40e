"""What was baked, as data: the text beside a frozen library and inside it."""

from __future__ import annotations

from typing import Any

import msgspec

from tunegen.freezing.baking import Baked, Batch
from tunegen.freezing.header import prototype
from tunegen.making.compile import llvm_version
from tunegen.making.spec import ABI, Function
from tunegen.signature import ElementType, Operand, Scalar

FORMAT = 1
"""Version of this description."""


def manifest(title: str, stamp: str, batch: Batch) -> dict[str, Any]:
    """A description without a path, a time, or anything else of the box that made it."""
    return {
        "tunegen_frozen": FORMAT,
        "scope": title,
        "stamp": stamp,
        "target": batch.platform.name,
        "llvm": llvm_version(),
        "abi": ABI,
        "classes": [{"name": c.name, "cpu": c.cpu, "features": sorted(c.features)} for c in batch.classes],
        "functions": [_function(baked) for baked in batch.functions],
    }


def reference_manifest(
    title: str, functions: list[tuple[Function, ElementType]], left_out: dict[str, str]
) -> dict[str, Any]:
    """The description of a package of reference bodies, and why others are not in it."""
    described = [_signature(function, element_type) for function, element_type in functions]
    return {"tunegen_frozen": FORMAT, "scope": title, "stamp": "reference", "functions": described,
            "left_out": left_out}  # fmt: skip


def encoded(description: dict[str, Any]) -> str:
    """The one text of a description."""
    return msgspec.json.format(msgspec.json.encode(description), indent=2).decode() + "\n"


def _function(baked: Baked) -> dict[str, Any]:
    return {
        **_signature(baked.function, baked.element_type),
        "symbol": baked.symbol,
        "prototype": prototype(baked),
        "values": baked.values,
        "regimes": {name: [msgspec.to_builtins(r) for r in found] for name, found in baked.regimes.items()},
    }


def _signature(function: Function, element_type: ElementType) -> dict[str, Any]:
    signature = function.signature
    return {
        "name": function.name,
        "element_type": element_type.name,
        "signature": str(signature),
        "parameters": [_parameter(p) for p in signature.parameters],
        "element_types": [t.name for t in signature.element_types],
        "sizes": list(signature.sizes),
        "inplace": signature.inplace,
    }


def _parameter(parameter: Operand | Scalar) -> dict[str, Any]:
    if isinstance(parameter, Scalar):
        return {"name": parameter.name, "kind": parameter.kind, "default": parameter.default}
    return {
        "name": parameter.name,
        "kind": "array",
        "role": parameter.role,
        "types": {t.name: t.format for t in parameter.choice.types},
        "generic": parameter.choice.generic,
        "dims": [[d.symbol, d.broadcast] for d in parameter.dims] if parameter.dims is not None else None,
        "optional": parameter.optional,
    }
