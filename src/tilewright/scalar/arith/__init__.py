"""Integer expressions: ranges, bounds, linear forms, proofs, simplification. Independent of tensors.

    r = Ranges().bind(i, 0, 7)
    bounds(i * 2 + 1, r)            # (1, 15)
    prove(i < 8, r)                 # True
    simplify((i * 4 + 3) // 4, r)   # i
"""

from tilewright.scalar.arith.analyzer import Analyzer, ConstIntBound, ProofStrength, detect_linear_equation
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.evaluate import Evaluator, evaluate
from tilewright.scalar.arith.linear import LinearForm, expression, linear
from tilewright.scalar.arith.modular import ModularSet
from tilewright.scalar.arith.ranges import Interval, Ranges
from tilewright.scalar.arith.simplify import prove, simplify
from tilewright.scalar.arith.solve import assume, conjuncts, solve

__all__ = [
    "Analyzer", "ConstIntBound", "Evaluator", "Interval", "LinearForm", "ModularSet", "ProofStrength", "Ranges",
    "assume", "bounds", "conjuncts", "detect_linear_equation", "evaluate", "expression", "linear", "prove", "simplify",
    "solve",
]
