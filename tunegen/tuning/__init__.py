"""The Python API of tuning: what parameters there are, what manifests hold, and how to change that.

Every function returns a typed record whose `status` says in a word what came of it. None raises for what is in a file;
wrong arguments raise `ParameterError`, `KernelNotFound` or `ScopeNotFound` before any file is touched.
"""

from tunegen.tuning.calibrating import apply, calibrate
from tunegen.tuning.inspecting import inspect
from tunegen.tuning.priors import import_prior
from tunegen.tuning.profiling import export_profile, import_profile
from tunegen.tuning.reading import default_path, load, parameters, propose
from tunegen.tuning.writing import forget
from tunegen.tuning.writing import set_values as set  # noqa: A004 - the contract's word

__all__ = [
    "apply",
    "calibrate",
    "default_path",
    "export_profile",
    "forget",
    "import_prior",
    "import_profile",
    "inspect",
    "load",
    "parameters",
    "propose",
    "set",
]
