"""Resource variables and hash tables of a model during its import.

A compiled model is a function: a call can read what it wrote into a variable earlier. The next call starts with the
values that the model's initialization wrote.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.relay.expr import Constant, Expr


@dataclass(slots=True)
class Resources:
    """The values of variables, and the keys and values of tables, by name or number."""

    variables: dict[Any, Expr] = field(default_factory=dict)
    tables: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    handles: dict[Expr, Any] = field(default_factory=dict)
    """The resource named by the handle of each `VAR_HANDLE` and `HASHTABLE`."""
    done: set[int] = field(default_factory=set)
    """Graphs of `CALL_ONCE` that have run."""

    def handle(self, key: Any) -> Expr:
        """A placeholder expression for a resource, which only operators of resources read."""
        found: Expr = Constant(np.zeros(1, np.int32))
        self.handles[found] = key
        return found
