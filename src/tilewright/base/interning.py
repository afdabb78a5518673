"""The table of interned expressions: one object for each key, in every thread.

An entry is complete before it enters the table. Entering takes a lock, finding takes none. Entries that only the table
holds are dropped by `release`, which a build calls at its end.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any, Final, TypeVar

from tilewright.base.forks import new_reentrant_lock

_INTERNED: Final[dict[tuple[Any, ...], Any]] = {}
interned: Final = _INTERNED.get
"""Return the interned expression of a key (its class, then its fields), or None."""
_MANY: Final = 1_000_000
_SWEEP_AT = [_MANY]  # table size that triggers the next sweep
_KEYS_PER_TURN: Final = 2_000  # keys swept each time the lock is held
_CHANGING: Final = new_reentrant_lock()
E = TypeVar("E")


def release() -> None:
    """Drop the interned expressions that only the table holds. Others stay interned, so equal ones remain identical."""
    keys = list(_INTERNED)  # one step for the interpreter, unlike iterating
    while keys:
        with _CHANGING:
            _forget_unused(keys[-_KEYS_PER_TURN:])
        del keys[-_KEYS_PER_TURN:]
    _SWEEP_AT[0] = max(_MANY, 2 * len(_INTERNED))


def _forget_unused(keys: list[tuple[Any, ...]]) -> None:
    """Drop those of `keys` whose expressions only the table holds, youngest first, because operands are older than
    users.

    The caller holds the lock. Another thread may find an expression between the count and its removal. It is then put
    back, and no duplicate arises, because entering takes the lock.
    """
    for key in reversed(keys):
        if key in _INTERNED and getrefcount(_INTERNED[key]) <= 2:  # the table and the argument
            taken = [_INTERNED.pop(key)]
            if getrefcount(taken[0]) > 2:
                _INTERNED[key] = taken[0]


def publish(key: tuple[Any, ...], new: E) -> E:
    """Intern a complete expression; return the one interned under `key`, which may be another thread's."""
    if len(_INTERNED) > _SWEEP_AT[0]:
        release()
    with _CHANGING:
        known: E = _INTERNED.setdefault(key, new)
    return known
