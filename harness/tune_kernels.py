"""Tunes the scope `kernels` on this box: `python harness/tune_kernels.py --budget 90s`."""

from tunegen.harness.tuner import main

if __name__ == "__main__":
    main("kernels")
