"""Names of regions as numbers, so that native code can carry them."""

from __future__ import annotations

from tunegen import forks

_names: list[str] = [""]
_ids: dict[str, int] = {"": 0}
_lock = forks.LOCK


def label_id(name: str) -> int:
    """The number of a label in this process, the same for the same name; 0 for none."""
    found = _ids.get(name)
    if found is None:
        with _lock:
            found = _ids.setdefault(name, len(_names))
            if found == len(_names):
                _names.append(name)
    return found


def label_name(number: int) -> str:
    """The label behind a number; "" for one that nobody asked for."""
    return _names[number] if 0 <= number < len(_names) else ""
