"""`tag_scope`: a word for the kind of computation, put on every `te.compute` inside of it.

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
    """The tag of the enclosing `tag_scope`; "" outside of one."""
    return _CURRENT.get()


@contextmanager
def tag_scope(tag: str) -> Iterator[None]:
    """Give `tag` to what is computed inside the block; also a decorator of functions that compute."""
    token = _CURRENT.set(tag)
    try:
        yield
    finally:
        _CURRENT.reset(token)
