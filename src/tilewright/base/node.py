"""The `@node` decorator, which declares the IR nodes of every level.

A node is a slotted dataclass, compared by identity, read-only to the type checker. Nodes hold no checks: builders
check, verifiers verify. The test suite sets `FREEZE` before importing anything else, which makes every node frozen at
run time.
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

FREEZE = os.environ.get("TILEWRIGHT_FREEZE_NODES") == "1"


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
def node(cls: type[T]) -> type[T]:
    """Declare an IR node: slots, identity comparison, weak references, read-only fields."""
    return dataclasses.dataclass(slots=True, eq=False, repr=False, frozen=FREEZE, weakref_slot=True)(cls)


def children(value: Any) -> tuple[tuple[str, Any], ...]:
    """Return the fields of a node as `(name, value)` pairs, in order of declaration."""
    return tuple((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
