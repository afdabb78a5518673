"""Integer expressions: ranges, bounds, linear forms, proofs, simplification. Independent of tensors.

    r = Ranges().bind(i, 0, 7)
    bounds(i * 2 + 1, r)            # (1, 15)
    prove(i < 8, r)                 # True
    simplify((i * 4 + 3) // 4, r)   # i
"""

from tilewright.scalar.arith import _ffi_api
from tilewright.scalar.arith.analyzer import Analyzer, ConstIntBound, ProofStrength, detect_linear_equation
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.deduce import deduce_bound, detect_clip_bound, detect_common_subexpr
from tilewright.scalar.arith.evaluate import Evaluator, evaluate
from tilewright.scalar.arith.int_set import IntervalSet, IntSet, PresburgerSet
from tilewright.scalar.arith.iter_map import (
    IterMapLevel,
    IterMapResult,
    detect_iter_map,
    inverse_affine_iter_map,
    iter_map_simplify,
    normalize_to_iter_sum,
)
from tilewright.scalar.arith.iter_nodes import (
    IterMapExpr,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    normalize_iter_map_to_expr,
)
from tilewright.scalar.arith.linear import LinearForm, expression, linear
from tilewright.scalar.arith.linear_equations import (
    IntConstraints,
    IntConstraintsTransform,
    solve_linear_equations,
)
from tilewright.scalar.arith.linear_inequalities import solve_linear_inequalities
from tilewright.scalar.arith.modular import ModularSet
from tilewright.scalar.arith.ranges import Interval, Ranges
from tilewright.scalar.arith.region_bounds import (
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
)
from tilewright.scalar.arith.simplify import prove, simplify
from tilewright.scalar.arith.solve import assume, conjuncts, solve
from tilewright.scalar.arith.subspace import subspace_divide

__all__ = [
    "Analyzer", "ConstIntBound", "Evaluator", "IntConstraints", "IntConstraintsTransform", "IntSet", "Interval",
    "IntervalSet", "IterMapExpr", "IterMapLevel", "IterMapResult", "IterMark", "IterSplitExpr", "IterSumExpr",
    "LinearForm", "ModularSet", "PresburgerSet", "ProofStrength", "Ranges", "_ffi_api", "assume", "bounds",
    "conjuncts", "deduce_bound", "detect_clip_bound", "detect_common_subexpr", "detect_iter_map",
    "detect_linear_equation", "estimate_region_lower_bound", "estimate_region_strict_bound",
    "estimate_region_upper_bound", "evaluate", "expression", "inverse_affine_iter_map", "iter_map_simplify", "linear",
    "normalize_iter_map_to_expr", "normalize_to_iter_sum", "prove", "simplify", "solve", "solve_linear_equations",
    "solve_linear_inequalities", "subspace_divide",
]
