"""Calling: the native entry of a signature, the table of variants behind it, and the Python slow path."""

from tunegen.calling.dispatch import Dispatcher, NativeDispatcher
from tunegen.calling.dispatching import SERIAL, Dispatching, dispatching_of, uncuttable
from tunegen.calling.native import REFERENCE, SYMBOL, Callee, Executor, Row, native_type

__all__ = [
    "REFERENCE",
    "SERIAL",
    "SYMBOL",
    "Callee",
    "Dispatcher",
    "Dispatching",
    "Executor",
    "NativeDispatcher",
    "Row",
    "dispatching_of",
    "native_type",
    "uncuttable",
]
