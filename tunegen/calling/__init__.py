"""Calling: the native entry of a signature, the table of variants behind it, and the Python slow path."""

from tunegen.calling.dispatch import Dispatcher, NativeDispatcher
from tunegen.calling.native import REFERENCE, SYMBOL, Callee, Row, native_type

__all__ = ["REFERENCE", "SYMBOL", "Callee", "Dispatcher", "NativeDispatcher", "Row", "native_type"]
