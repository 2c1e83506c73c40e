"""The fallback chain of a declaration, and the regimes that its size conditions make."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping

import msgspec

from tunegen.errors import ExpressionError
from tunegen.expressions import SizeCondition, size_condition
from tunegen.grid import REFERENCE


class Item(msgspec.Struct, frozen=True):
    """One step of the chain: a suffix, and the sizes for which it is meant (None: all)."""

    suffix: str
    condition: SizeCondition | None = None


class Fallback(msgspec.Struct, frozen=True):
    """What an untuned box runs. Regimes are numbered: one per condition in order, then the unconditional one."""

    items: tuple[Item, ...]

    @property
    def conditions(self) -> tuple[SizeCondition, ...]:
        """The distinct size conditions in order of first use."""
        return tuple(dict.fromkeys(item.condition for item in self.items if item.condition is not None))

    @property
    def regimes(self) -> tuple[str, ...]:
        """The text of each regime's condition; "" for the last, which has none."""
        return (*(condition.text for condition in self.conditions), "")

    def chain(self, regime: int) -> tuple[str, ...]:
        """The suffixes to try in a regime, in order.

        A conditional regime ends at its own last item: sizes for which none of these can run pass on to the next
        regime whose condition holds. The unconditional one ends in the reference.
        """
        conditions = self.conditions
        if regime == len(conditions):
            found = [item.suffix for item in self.items if item.condition is None]
            return tuple(found if REFERENCE in found else [*found, REFERENCE])
        own = [i for i, item in enumerate(self.items) if item.condition == conditions[regime]]
        items = self.items[: own[-1] + 1]
        return tuple(item.suffix for item in items if item.condition in (None, conditions[regime]))

    def regime_of(self, sizes: Mapping[str, int]) -> int:
        """The first regime whose condition holds for these sizes and values of the parameters that it names."""
        conditions = self.conditions
        return next((i for i, condition in enumerate(conditions) if condition(sizes)), len(conditions))


def parse_fallback(text: str, suffixes: Collection[str], names: Collection[str]) -> Fallback:
    """Reads `mr1_nr64 if M <= 2; mr14_nr32; reference`. Conditions may use `names`: sizes, and int parameters.

    Raises `ExpressionError` for an empty item, a suffix that is no row, an unknown name in a condition, or a condition
    that comes back after another one.
    """
    items = []
    for part in text.split(";"):
        if not part.strip():
            raise ExpressionError(f"fallback {text!r} has an empty item")
        suffix, *rest = part.split()
        keyword, condition = "".join(rest[:1]), " ".join(rest[1:])
        if suffix != REFERENCE and suffix not in suffixes:
            raise ExpressionError(f"fallback {text!r}: {suffix!r} is neither a row nor {REFERENCE!r}")
        if keyword not in ("", "if"):
            raise ExpressionError(f"fallback {text!r}: after {suffix!r} comes `if` and a condition, or `;`")
        if keyword and not condition:
            raise ExpressionError(f"fallback {text!r}: a condition is missing after {suffix!r}")
        items.append(Item(suffix, size_condition(condition, tuple(names)) if condition else None))
    return Fallback(tuple(_together(text, items)))


def _together(text: str, items: list[Item]) -> list[Item]:
    """`items`, when those of one condition follow each other but for unconditional ones.

    Otherwise a regime would have to try what stands between them first, where both conditions hold.
    """
    conditions = [item.condition for item in items if item.condition is not None]
    runs = [condition for condition, _ in itertools.groupby(conditions)]
    if again := [condition for condition in runs if runs.count(condition) > 1]:
        raise ExpressionError(f"fallback {text!r}: put the items with `if {again[0].text}` next to each other")
    return items
