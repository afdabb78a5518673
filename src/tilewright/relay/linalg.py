"""Matrix factorizations and solvers: `relay.linalg.cholesky(x)`."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.relay.expr import Call
from tilewright.relay.op.registry import operator_names, public_function


def __getattr__(name: str) -> Callable[..., Call]:
    return public_function("linalg." + name, __name__)


def __dir__() -> list[str]:
    return operator_names("linalg.")
