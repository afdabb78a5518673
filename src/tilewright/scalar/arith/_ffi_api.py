"""Functions of `arith` that TVM registers without a Python wrapper: `tvm.arith._ffi_api.NarrowPredicateExpression`."""

from tilewright.scalar.arith.deduce import narrow_predicate_expression as NarrowPredicateExpression
from tilewright.scalar.arith.linear_inequalities import solve_as_conditions as SolveInequalitiesAsCondition

__all__ = ["NarrowPredicateExpression", "SolveInequalitiesAsCondition"]
