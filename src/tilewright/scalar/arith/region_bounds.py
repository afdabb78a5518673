"""Bounds of the regions of memory that loops access, under TVM's names.

    estimate_region_lower_bound([Range(i * 4, i * 4 + 8)], {i: Range(0, 64)}, True)      # [0, 260), without gaps
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.scalar.arith.analyzer import Analyzer
from tilewright.scalar.arith.int_set import IntervalSet, SetEvaluator, of_range
from tilewright.scalar.arith.iter_map import IterSumExpr, detect_iter_map
from tilewright.scalar.expr import IntImm, PrimExpr, Value, Var, add, mul, sub
from tilewright.scalar.range import Range


def estimate_region_strict_bound(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: Value
) -> list[IntervalSet] | None:
    """Return the exact interval of each dimension, or None if it has gaps or the dimensions depend on one another."""
    if not all(isinstance(r.extent, IntImm) for r in region):
        return None
    found = detect_iter_map([r.min for r in region], var_dom, predicate).indices
    if not found and region:
        return None
    bounds = [_interval(x, r.extent) for x, r in zip(found, region, strict=True)]
    return None if any(b is None for b in bounds) else [b for b in bounds if b is not None]


def estimate_region_lower_bound(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: Value
) -> list[IntervalSet] | None:
    """Return an interval of each dimension that is surely accessed, or None."""
    return estimate_region_strict_bound(region, var_dom, predicate)


def estimate_region_upper_bound(
    region: Sequence[Range], var_dom: Mapping[Var, Range], predicate: Value
) -> list[IntervalSet]:
    """Return an interval of each dimension that contains all accesses."""
    strict = estimate_region_strict_bound(region, var_dom, predicate)
    if strict is not None:
        return strict
    evaluator = SetEvaluator(Analyzer(), {v: of_range(r) for v, r in var_dom.items()})
    found = []
    for r in region:
        alone = estimate_region_strict_bound([r], var_dom, predicate)
        found.append(alone[0] if alone else _covering(r, evaluator))
    return found


def _covering(r: Range, evaluator: SetEvaluator) -> IntervalSet:
    first, extent = evaluator.of(r.min), evaluator.of(sub(r.extent, 1))
    return evaluator.union([IntervalSet(first.min_value, first.max_value if extent.point is None else add(
        first.max_value, extent.point))])


def _interval(x: IterSumExpr, extent: PrimExpr) -> IntervalSet | None:
    """Return the values from those of `x` on, `extent` of them each; None if there are gaps."""
    if not x.args:
        return _from(x.base, extent)
    split, analyzer = x.args[0], Analyzer()
    steps = mul(split.scale, sub(split.extent, 1))
    if analyzer.can_prove(split.scale < 0):
        if not analyzer.can_prove(extent >= sub(0, split.scale)):
            return None
        return _from(add(x.base, steps), sub(extent, steps))
    if not analyzer.can_prove(extent >= split.scale):
        return None
    return _from(x.base, add(extent, steps))


def _from(low: PrimExpr, extent: PrimExpr) -> IntervalSet:
    analyzer = Analyzer()
    return IntervalSet(analyzer.simplify(low), analyzer.simplify(sub(add(low, extent), 1)))


__all__ = ["estimate_region_lower_bound", "estimate_region_strict_bound", "estimate_region_upper_bound"]
