"""TVM's `relay.expr_functor`: base classes for walks and rewrites of graphs."""

from tilewright.relay.functor import ExprFunctor, ExprMutator, ExprVisitor

__all__ = ["ExprFunctor", "ExprMutator", "ExprVisitor"]
