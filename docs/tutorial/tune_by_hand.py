"""A tuner written by hand: times every variant once and records the fastest. Run it with TUNE_MODE=tune."""

import sys
from timeit import timeit

import numpy as np
from rownorm import squared_norms

from tunegen import Declined, tune_manifest_set

x = np.random.default_rng(0).standard_normal((1024, 64), dtype=np.float32)
out = np.empty(1024, np.float32)
times = {}
for suffix, variant in squared_norms.variants().items():
    try:
        variant(x, out)
    except Declined:
        continue
    times[suffix] = min(timeit(lambda call=variant: call(x, out), number=200) for _ in range(5))

if __name__ == "__main__":
    written = tune_manifest_set(squared_norms, min(times, key=times.__getitem__))
    print(written.path if written else f"not saved: {written.reason}")
    sys.exit(not written)
