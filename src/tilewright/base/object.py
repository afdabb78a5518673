"""TVM's `tvm.runtime.Object`: the common base of nodes, which here is a question only: `isinstance(x, Object)`."""

from __future__ import annotations

from typing import Final

_HOLDERS: Final = tuple(f"tilewright.{room}" for room in (
    "ir.", "relay.", "scalar.", "te.", "tir.", "base.containers", "base.types"))


class _IsNode(type):
    """Nodes have no common base class, so that creating and matching them stays cheap; their modules tell them."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance) or (
            cls is Object and type(instance).__module__.startswith(_HOLDERS) and not isinstance(instance, type))


class Object(metaclass=_IsNode):
    """A node of a program: an expression, a statement, a type, an operator, a module, an array or a mapping of them."""
