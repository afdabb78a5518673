"""TVM's `relay.expr_functor`: base classes for walks and rewrites of graphs."""

from tilewright.relay.expr import Call
from tilewright.relay.functor import ExprFunctor, ExprMutator, ExprVisitor

__all__ = ["Call", "ExprFunctor", "ExprMutator", "ExprVisitor"]
