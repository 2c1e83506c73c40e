"""Threads: one native `parallel_for` over a pool of workers that know no Python, and what its regions cost.

`CpuExecutor` is the pool, `Collector` the record of its regions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tunegen.executor.labels import label_id

if TYPE_CHECKING:
    from tunegen.executor.cpu import CpuExecutor
    from tunegen.executor.events import Collector, Counter, Event

__all__ = ["Collector", "Counter", "CpuExecutor", "Event", "label_id"]

_LATER = {"Collector": "events", "Counter": "events", "CpuExecutor": "cpu", "Event": "events"}
"""Names that a call which is not split does not need, and where they are."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"tunegen.executor.{_LATER[name]}"), name)
