"""Resource variables and hash tables of a model while it is imported.

A compiled model is a function: what a call writes into a variable is read later in that call, and the next call begins
with what the model's initialization wrote.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.relay.expr import Constant, Expr


@dataclass(slots=True)
class Resources:
    """What is held by name and by number: the values of variables, and the keys and values of tables."""

    variables: dict[Any, Expr] = field(default_factory=dict)
    tables: dict[Any, tuple[Any, Any]] = field(default_factory=dict)
    handles: dict[Expr, Any] = field(default_factory=dict)
    """What the handle of each `VAR_HANDLE` and `HASHTABLE` names."""
    done: set[int] = field(default_factory=set)
    """Graphs of `CALL_ONCE` that were run."""

    def handle(self, key: Any) -> Expr:
        """What stands for a resource in the graph, where nothing reads it but operators of resources."""
        found: Expr = Constant(np.zeros(1, np.int32))
        self.handles[found] = key
        return found
