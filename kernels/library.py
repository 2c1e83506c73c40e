"""The scope that all kernels of this library join."""

from tunegen import tune_scope

scope = tune_scope(name="kernels", templates="../templates", tuner="../harness/tune_kernels.py", profiles="profiles")
