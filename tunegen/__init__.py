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
    ParameterError,
    RenderError,
    ScopeNotFound,
    SessionError,
    StoreError,
    TunegenError,
)
from tunegen.gates import bitwise, bound, ulp
from tunegen.parallel import serial, split
from tunegen.public.declare import tune, tune_companion, tune_grid, tune_param, tune_perm
from tunegen.public.library import tune_scope
from tunegen.public.sources import tune_manifest
from tunegen.signature import In, InOut, Out, bool_, dtypes, f32, f64, floats

if TYPE_CHECKING:
    from tunegen.public.explain import explain
    from tunegen.public.live import live
    from tunegen.public.pins import pin
    from tunegen.public.policy import apply_policy, tune_policy
    from tunegen.public.record import tune_manifest_set
    from tunegen.public.session import session
    from tunegen.public.status import load, log_tune_status, tune_status
    from tunegen.public.trial import Trial

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
    "ParameterError",
    "RenderError",
    "ScopeNotFound",
    "SessionError",
    "StoreError",
    "Trial",
    "TunegenError",
    "apply_policy",
    "bitwise",
    "bool_",
    "bound",
    "case",
    "dtypes",
    "explain",
    "f32",
    "f64",
    "floats",
    "live",
    "load",
    "log_tune_status",
    "pin",
    "serial",
    "session",
    "split",
    "tune",
    "tune_companion",
    "tune_grid",
    "tune_manifest",
    "tune_manifest_set",
    "tune_param",
    "tune_perm",
    "tune_policy",
    "tune_scope",
    "tune_status",
    "ulp",
]

_LATER = {
    "Trial": "trial",
    "apply_policy": "policy",
    "explain": "explain",
    "live": "live",
    "load": "status",
    "log_tune_status": "status",
    "pin": "pins",
    "session": "session",
    "tune_manifest_set": "record",
    "tune_policy": "policy",
    "tune_status": "status",
}
"""Names that declaring and calling kernels do not need, and the rooms that are imported when they are asked for."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tunegen.public.{_LATER[name]}"), name)
