"""Tags of kinds of computations: `tensor.op.tag`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from tilewright import te
from tilewright.te.tag import tag_scope

ELEMWISE: Final = "elemwise"
BROADCAST: Final = "broadcast"
INJECTIVE: Final = "injective"
COMM_REDUCE: Final = "comm_reduce"
COMM_REDUCE_IDX: Final = "comm_reduce_idx"

P = ParamSpec("P")
R = TypeVar("R")


def is_broadcast(tag: str) -> bool:
    """Return whether each element depends only on the elements that broadcasting reads at its position."""
    return tag in (ELEMWISE, BROADCAST) or tag.startswith((ELEMWISE + "_", BROADCAST + "_"))


def is_injective(tag: str) -> bool:
    """Return whether each element depends on one element of each input, so that the computation can be inlined."""
    return is_broadcast(tag) or tag == INJECTIVE or tag.startswith(INJECTIVE + "_")


def tagged(tag: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that sets `tag` on the results of a function, tensors or a tuple of them."""

    def declare(function: Callable[P, R]) -> Callable[P, R]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            result = function(*args, **kwargs)
            for t in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(t, te.Tensor) and isinstance(t.op, te.ComputeOp):
                    t.op.attrs.setdefault("tag", tag)
            return result

        call.__name__, call.__doc__, call.__module__ = function.__name__, function.__doc__, function.__module__
        call.__wrapped__ = function  # type: ignore[attr-defined]
        return call

    return declare


__all__ = [
    "BROADCAST", "COMM_REDUCE", "COMM_REDUCE_IDX", "ELEMWISE", "INJECTIVE", "is_broadcast", "is_injective", "tag_scope",
    "tagged"
]
