"""`tag_scope`: names the kind of computation of every `te.compute` inside it.

    with te.tag_scope("injective"):
        B = te.compute(A.shape, lambda *i: A(*i) + 1)      # B.op.tag == "injective"
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_CURRENT: Final[ContextVar[str]] = ContextVar("tag", default="")


def current_tag() -> str:
    """Return the tag of the enclosing `tag_scope`; "" outside of one."""
    return _CURRENT.get()


@contextmanager
def tag_scope(tag: str) -> Iterator[None]:
    """Set the tag of computations in this context; also a decorator of functions that create computations."""
    token = _CURRENT.set(tag)
    try:
        yield
    finally:
        _CURRENT.reset(token)
