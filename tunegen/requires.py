"""`requires` texts: which CPU features a row of a grid asks for."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import cache

import msgspec

from tunegen.errors import ExpressionError
from tunegen.features import KNOWN


class Requires(msgspec.Struct, frozen=True):
    """A conjunction of alternatives. Each alternative is a feature name, or `!name` for its absence."""

    terms: tuple[tuple[str, ...], ...] = ()

    def missing(self, features: AbstractSet[str]) -> str:
        """The first term that does not hold for `features`, as text; "" when all hold."""
        for term in self.terms:
            if not any((name.removeprefix("!") in features) != name.startswith("!") for name in term):
                return "|".join(term)
        return ""

    def __str__(self) -> str:
        return ",".join("|".join(term) for term in self.terms)


@cache
def parse_requires(text: str) -> Requires:
    """Reads `avx2|neon,fma|neon`: `,` is AND, `|` is OR inside a term, `!` negates, blanks are ignored.

    Raises `ExpressionError` for an empty alternative or a name that LLVM does not know.
    """
    text = "".join(text.split())
    if not text:
        return Requires()
    terms = tuple(tuple(term.split("|")) for term in text.split(","))
    for name in (name.removeprefix("!") for term in terms for name in term):
        if not name:
            raise ExpressionError(f"requires {text!r} has an empty name")
        if name not in KNOWN:
            raise ExpressionError(f"requires {text!r}: LLVM knows no feature {name!r}{_similar(name)}")
    return Requires(terms)


def _similar(name: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, sorted(KNOWN), n=3)
    return f"; did you mean {', '.join(close)}?" if close else ""
