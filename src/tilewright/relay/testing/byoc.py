"""TVM's `relay.testing.byoc`: annotations of a chain of operators for another compiler."""

from __future__ import annotations

from tilewright.relay.expr import Call, Expr
from tilewright.relay.expr_functor import ExprMutator
from tilewright.relay.op.annotation import compiler_begin, compiler_end

__all__ = ["CcompilerAnnotator"]


class CcompilerAnnotator(ExprMutator):
    """Marks each chain `multiply(subtract(add(a, b), c), d)` for the compiler "ccompiler": begins at its four inputs,
    an end at its result."""

    compiler = "ccompiler"

    def visit_call(self, call: Call) -> Expr:
        chain = _chain(call)
        if chain is None:
            return super().visit_call(call)  # type: ignore[no-any-return]
        total, difference = chain
        first = Call(total.op, [self._begun(a) for a in total.args], span=total.span)
        second = Call(difference.op, [first, self._begun(difference.args[1])], span=difference.span)
        return compiler_end(Call(call.op, [second, self._begun(call.args[1])], span=call.span), self.compiler)

    def _begun(self, value: Expr) -> Expr:
        return compiler_begin(self.visit(value), self.compiler)


def _chain(product: Call) -> tuple[Call, Call] | None:
    """Return the sum and the difference of a chain that ends in `product`, or None."""
    difference = product.args[0] if product.args else None
    if not (_is(product, "multiply") and isinstance(difference, Call) and _is(difference, "subtract")):
        return None
    total = difference.args[0]
    return (total, difference) if isinstance(total, Call) and _is(total, "add") else None


def _is(call: Call, name: str) -> bool:
    return getattr(call.op, "name", "") == name
