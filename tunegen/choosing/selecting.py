"""Selectors of profiles: which boxes one is for, which of two goes first, and when nobody could say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from tunegen.box import Box, ancestry
from tunegen.features import AARCH64, X86_64, needs

ARCHITECTURES = {"x86_64": X86_64, "aarch64": AARCH64}
"""The architectures that there are profiles for, with the names of their features."""
TIED = "equally specific"
APART = "neither instruction set contains the other"
_SAME = {"amd64": "x86_64", "arm64": "aarch64"}

Ancestry = Callable[[str], tuple[str, ...]]
Kind = Literal["model", "models", "microarchitecture", "features"]
_LEVELS: dict[Kind, int] = {"model": 3, "models": 2, "microarchitecture": 2, "features": 1}


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model of CPU, by the words that a box has for it: "amd", "25", "17"."""

    vendor: str
    family: str
    model: str

    def __str__(self) -> str:
        return f"{self.vendor} {self.family}/{self.model}"


class Selector(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The boxes that a profile is for: exactly one of the four is given."""

    model: Model | None = None
    models: tuple[Model, ...] = ()
    microarchitecture: str = ""
    features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given = [name for name in _LEVELS if getattr(self, name)]
        if len(given) != 1:
            raise ValueError(f"a selector is exactly one of {', '.join(_LEVELS)}; got {', '.join(given) or 'none'}")

    def __str__(self) -> str:
        match self.kind:
            case "model":
                return str(self.model)
            case "models":
                return ", ".join(map(str, self.models))
            case "microarchitecture":
                return self.microarchitecture
        return ",".join(self.features)

    @property
    def kind(self) -> Kind:
        """Which of the four is given."""
        return next(name for name in _LEVELS if getattr(self, name))

    @property
    def meant(self) -> tuple[Model, ...]:
        """The models that are named."""
        return (self.model,) if self.model is not None else self.models


class Boxes(msgspec.Struct, frozen=True):
    """A class of boxes: an architecture, a selector, and a number of effective threads, or None for any."""

    architecture: str
    selector: Selector
    threads: int | None = None

    def problem(self) -> str:
        """What is wrong with the names of this class, as a sentence; "" when nothing is."""
        if self.architecture not in ARCHITECTURES:
            return f"the architecture {self.architecture!r} is none of {', '.join(ARCHITECTURES)}"
        if unknown := [name for name in self.selector.features if name not in ARCHITECTURES[self.architecture]]:
            return f"LLVM has no feature {', '.join(unknown)} for {self.architecture}"
        return "" if self.threads is None or self.threads > 0 else f"threads: {self.threads} is less than one"

    def mismatch(self, box: Box, ancestors: Ancestry = ancestry) -> str:
        """The fields in which a box is not of this class; "" when it is."""
        fields = []
        if self.architecture != (here := architecture_of(box)):
            return f"architecture: {self.architecture} there, {here} here"
        match self.selector.kind:
            case "model" | "models":
                if (own := model_of(box)) not in self.selector.meant:
                    fields.append(f"model: {self.selector} there, {own} here")
            case "microarchitecture":
                if self.selector.microarchitecture not in lineage(box, self.selector, ancestors):
                    fields.append(f"microarchitecture: {self.selector} there, {box.cpu} here")
            case "features":
                if lacking := [name for name in self.selector.features if name not in box.feature_set]:
                    fields.append("features: " + " ".join(f"+{name}" for name in lacking) + " there")
        if self.threads not in (None, box.threads):
            fields.append(f"threads: {self.threads} there, {box.threads} here")
        return "; ".join(fields)

    def rank(self, box: Box, ancestors: Ancestry = ancestry) -> tuple[int, int, bool]:
        """How specific this class is for a box of it: the greater, the more."""
        nearness = 0
        if self.selector.kind == "microarchitecture":
            nearness = -lineage(box, self.selector, ancestors).index(self.selector.microarchitecture)
        elif self.selector.kind == "features":
            nearness = len(closure(self.selector.features))
        return _LEVELS[self.selector.kind], nearness, self.threads is not None

    def tie(self, other: Boxes) -> str:
        """Why neither of two classes is more specific for some box that is of both; "" when one is.

        A priority decides between those that are `TIED`, and nothing does between instruction sets that are `APART`.
        """
        a, b = self.threads, other.threads
        if self.architecture != other.architecture or (None not in (a, b) and a != b):
            return ""
        one, two = self.selector, other.selector
        if "features" in (one.kind, two.kind):
            if one.kind != two.kind:
                return ""
            first, second = closure(one.features), closure(two.features)
            if not first <= second and not second <= first:
                return APART
            same = first == second
        elif "microarchitecture" in (one.kind, two.kind):
            same = one.microarchitecture == two.microarchitecture or "models" in (one.kind, two.kind)
        else:
            same = one.kind == two.kind and not set(one.meant).isdisjoint(two.meant)
        return TIED if same and a == b else ""


def architecture_of(box: Box) -> str:
    """The architecture of a box by the name that profiles have for it."""
    return _SAME.get(box.architecture, box.architecture)


def model_of(box: Box) -> Model:
    """The model of CPU that a box has."""
    return Model(box.vendor, box.family, box.model)


def lineage(box: Box, selector: Selector, ancestors: Ancestry) -> tuple[str, ...]:
    """The box's microarchitecture and its ancestors; these are not asked for where the first is meant."""
    return (box.cpu,) if selector.microarchitecture == box.cpu else ancestors(box.cpu) or (box.cpu,)


def closure(features: tuple[str, ...]) -> frozenset[str]:
    """Features with all that they are built on: what an instruction set contains."""
    found, more = set[str](), list(features)
    while more:
        name = more.pop()
        if name not in found:
            found.add(name)
            more += needs(name)
    return frozenset(found)


def selector_of(box: Box, kind: Kind) -> Selector:
    """The selector of a kind that a box is of."""
    match kind:
        case "model":
            return Selector(model=model_of(box))
        case "models":
            return Selector(models=(model_of(box),))
        case "microarchitecture":
            return Selector(microarchitecture=box.cpu)
    return Selector(features=box.features)
