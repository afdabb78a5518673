"""TVM's `tvm.contrib.pickle_memoize`: results of a function of no arguments, kept while the process lives.

    @memoize("my_module.reference")
    def reference(): ...

TVM also wrote them to disk with pickle. Nothing is written here, because a pickle can run any code when it is read.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["memoize"]

T = TypeVar("T")


def memoize(key: str, save_at_exit: bool = False) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Return a decorator that computes the result for each list of arguments once.

    Arguments are hashable, or lists of such. `key` and `save_at_exit` are TVM's arguments, without effect.
    """
    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        known = dict[Any, T]()

        @functools.wraps(function)
        def call(*args: Any) -> T:
            words = _words(args)
            if words not in known:
                known[words] = function(*args)
            return known[words]

        return call

    return decorate


def _words(value: Any) -> Any:
    return tuple(map(_words, value)) if isinstance(value, (list, tuple)) else value
