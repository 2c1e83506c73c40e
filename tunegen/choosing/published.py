"""Values published in this process: immutable generations. Readers take one and need no lock; writers make the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from tunegen import forks
from tunegen.box import Box, differences
from tunegen.errors import ParameterError
from tunegen.parameters import Key, Schema, Value

Place = tuple[Key, Box]
"""What a published set of values is for."""
Values = Mapping[str, Value]


class Generation(msgspec.Struct, frozen=True):
    """All that is published at one time. It never changes; `number` is greater by one in the next."""

    number: int = 0
    values: Mapping[Place, Values] = MappingProxyType({})

    def get(self, key: Key, box: Box, *, any_threads: bool = False) -> Values | None:
        """The values for a key on a box; with `any_threads` also those for another number of threads, the newest."""
        found = self.values.get((key, box))
        if found is None and any_threads:
            same = [v for (k, b), v in self.values.items() if k == key and not differences(b, box, ignore_threads=True)]
            found = same[-1] if same else None
        return found


class Publications:
    """The current generation, and how the next one is made: copied, changed and put in place in one step."""

    def __init__(self) -> None:
        self._lock = forks.LOCK
        self.current = Generation()

    def publish(self, batch: Mapping[Place, Mapping[str, Any]], schemas: Mapping[Key, Schema]) -> Generation:
        """Publishes complete sets of values: all, or none. Returns the generation that has them.

        Raises `ParameterError` with all that is wrong in the batch: a key without a schema, values that it refuses.
        """
        checked: dict[Place, Values] = {}
        problems: list[str] = []
        for (key, box), values in batch.items():
            if key not in schemas:
                problems.append(f"{key}: there is no such key")
                continue
            try:
                checked[key, box] = MappingProxyType(schemas[key].check(values))
            except ParameterError as error:
                problems += [f"{key}: {problem}" for problem in error.problems]
        if problems:
            raise ParameterError(tuple(problems))
        return self._next(lambda old: {**{place: v for place, v in old.items() if place not in checked}, **checked})

    def withdraw(self, places: Iterable[Place]) -> Generation:
        """Takes back what is published for these places. Returns the generation without them."""
        gone = set(places)
        return self._next(lambda old: {place: values for place, values in old.items() if place not in gone})

    def _next(self, change: Callable[[Mapping[Place, Values]], dict[Place, Values]]) -> Generation:
        with self._lock:
            old = self.current
            values = change(old.values)
            if values != old.values:
                self.current = Generation(old.number + 1, MappingProxyType(values))
            return self.current


_publications = Publications()


def current() -> Generation:
    """The generation that is published now."""
    return _publications.current


def publish(batch: Mapping[Place, Mapping[str, Any]], schemas: Mapping[Key, Schema]) -> Generation:
    """Publishes values in this process; see `Publications.publish`."""
    return _publications.publish(batch, schemas)


def withdraw(places: Iterable[Place]) -> Generation:
    """Takes back what is published in this process; see `Publications.withdraw`."""
    return _publications.withdraw(places)
