"""The features of a processor: LLVM's names as a set, and TVM's `target.features.has_dotprod`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self

_LLVM: Final = {
    "asimd": "neon", "matmul_i8": "i8mm", "fp16_simd": "fullfp16",
}
"""TVM's names of features that have other names in LLVM."""


class Features(frozenset[str]):
    """A set of LLVM's names of features. `has_<name>` tells about one feature, and is False for an unknown one.

    `described` are features that generated code does not depend on, such as those of a microcontroller, whose code is C
    text; they are not elements of the set. `is_<name>` tells about a property of the processor.
    """

    described: frozenset[str]

    def __new__(cls, names: Iterable[str] = (), described: Iterable[str] = ()) -> Self:
        made = super().__new__(cls, names)
        made.described = frozenset(described)
        return made

    def __bool__(self) -> bool:
        """Return True: every processor has this description, also one without features."""
        return True

    def __getattr__(self, name: str) -> bool:
        kind, _, feature = name.partition("_")
        if kind == "is" and feature:
            return name in self.described
        if kind == "has" and feature:
            return any(n in self or n in self.described for n in (feature, _LLVM.get(feature, feature)))
        raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'; ask has_<feature>")

    def __reduce__(self) -> tuple[type[Features], tuple[list[str], list[str]]]:
        return type(self), (sorted(self), sorted(self.described))
