"""Unification of types with holes.

A `Hole` is an unknown type. Rules that need a hole wait for it, and are queued again when it is filled. An unknown
dimension unifies with any dimension, so unification determines no dimensions.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from tilewright.base.type_matching import sizes_fit
from tilewright.base.types import FuncType, TensorType, Type, TypeCall, type_children, with_type_children


class Hole(Type):
    """An unknown type. `filled` is its value when known; `waiting` are the rules to queue then."""

    __slots__ = ("filled", "waiting")

    def __init__(self) -> None:
        self.filled: Type | None = None
        self.waiting: list[Any] = []

    def __repr__(self) -> str:
        return "_" if self.filled is None else repr(self.filled)


class Solver:
    """The queue of rules whose holes have been filled."""

    def __init__(self) -> None:
        self.queue: deque[Any] = deque()

    def resolve(self, t: Type) -> Type:
        """Return `t`, or the value of the hole `t`; inner holes are not resolved."""
        while isinstance(t, Hole) and t.filled is not None:
            t = t.filled
        return t

    def expand(self, t: Type) -> Type:
        """Return `t` with its filled holes replaced by their values."""
        t = self.resolve(t)
        old = type_children(t)
        if not old:
            return t
        new = [self.expand(c) for c in old]
        return t if all(a is b for a, b in zip(old, new, strict=True)) else with_type_children(t, new)

    def hole_in(self, t: Type) -> Hole | None:
        """Return the first unfilled hole of `t`, or None."""
        t = self.resolve(t)
        if isinstance(t, Hole):
            return t
        for c in type_children(t):
            found = self.hole_in(c)
            if found is not None:
                return found
        return None

    def instantiate(self, t: FuncType) -> FuncType:
        """Return a function type with its type variables replaced by new holes."""
        t = t.without_constraints()
        return t.instantiate([Hole() for _ in t.type_params]) if t.type_params else t

    def unify(self, a: Type, b: Type) -> bool:
        """Make two types equal; return False if that is impossible. Holes filled before a failure stay filled."""
        a, b = self.resolve(a), self.resolve(b)
        if a is b:
            return True
        if isinstance(a, Hole):
            return self._fill(a, b)
        if isinstance(b, Hole):
            return self._fill(b, a)
        if isinstance(a, TensorType) and isinstance(b, TensorType):
            return a.dtype is b.dtype and sizes_fit(a.shape, b.shape)
        if type(a) is not type(b):
            return False
        if isinstance(a, FuncType) and isinstance(b, FuncType):
            return self._unify_functions(a, b)
        if isinstance(a, TypeCall) and isinstance(b, TypeCall) and a.func != b.func:
            return False
        mine, others = type_children(a), type_children(b)
        return self._unify_all(mine, others) if mine or others else a == b

    def _unify_functions(self, a: FuncType, b: FuncType) -> bool:
        if len(a.type_params) == len(b.type_params):
            b = b.instantiate(a.type_params)
        else:
            a, b = self.instantiate(a), self.instantiate(b)
        return self._unify_all((*a.arg_types, a.ret_type), (*b.arg_types, b.ret_type))

    def _unify_all(self, a: tuple[Type, ...], b: tuple[Type, ...]) -> bool:
        return len(a) == len(b) and all(self.unify(x, y) for x, y in zip(a, b, strict=True))

    def _fill(self, hole: Hole, t: Type) -> bool:
        if self._occurs(hole, t):
            return False
        hole.filled = t
        self.queue.extend(hole.waiting)
        hole.waiting.clear()
        return True

    def _occurs(self, hole: Hole, t: Type) -> bool:
        t = self.resolve(t)
        return t is hole or any(self._occurs(hole, c) for c in type_children(t))
