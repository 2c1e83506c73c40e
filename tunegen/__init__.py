"""One reference function and one LLVM IR template become a kernel family tuned for the box it runs on."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tunegen.cases import case
from tunegen.errors import (
    CompileError,
    DeclarationError,
    Declined,
    GateError,
    KernelNotFound,
    KnobError,
    RenderError,
    ScopeNotFound,
    StoreError,
    TunegenError,
)
from tunegen.gates import bitwise, bound, ulp
from tunegen.public.declare import tune, tune_companion, tune_grid, tune_perm
from tunegen.public.library import tune_scope
from tunegen.public.sources import tune_manifest
from tunegen.signature import In, InOut, Out, dtypes, f32, f64, floats

if TYPE_CHECKING:
    from tunegen.public.explain import explain
    from tunegen.public.policy import apply_policy, tune_policy
    from tunegen.public.record import tune_manifest_set
    from tunegen.public.status import load, log_tune_status, tune_status

__version__ = "0.1.0"

__all__ = [
    "CompileError",
    "DeclarationError",
    "Declined",
    "GateError",
    "In",
    "InOut",
    "KernelNotFound",
    "KnobError",
    "Out",
    "RenderError",
    "ScopeNotFound",
    "StoreError",
    "TunegenError",
    "apply_policy",
    "bitwise",
    "bound",
    "case",
    "dtypes",
    "explain",
    "f32",
    "f64",
    "floats",
    "load",
    "log_tune_status",
    "tune",
    "tune_companion",
    "tune_grid",
    "tune_manifest",
    "tune_manifest_set",
    "tune_perm",
    "tune_policy",
    "tune_scope",
    "tune_status",
    "ulp",
]

_LATER = {
    "apply_policy": "policy",
    "explain": "explain",
    "load": "status",
    "log_tune_status": "status",
    "tune_manifest_set": "record",
    "tune_policy": "policy",
    "tune_status": "status",
}
"""Names that declaring and calling kernels do not need, and the rooms that are imported when they are asked for."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tunegen.public.{_LATER[name]}"), name)
