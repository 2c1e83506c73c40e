"""Freezing: kernels as shared libraries and extension modules that need neither tunegen nor a compiler."""
