"""The field's `relay.expr_functor`: the classes that programs derive from to walk and rebuild graphs."""

from tilewright.relay.functor import ExprFunctor, ExprMutator, ExprVisitor

__all__ = ["ExprFunctor", "ExprMutator", "ExprVisitor"]
