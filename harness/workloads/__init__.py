"""Whole programs that run on stamped kernels."""
