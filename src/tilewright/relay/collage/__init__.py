"""Assigns the parts of a graph to several targets at the lowest cost: `relay.transform.CollagePartition`.

    candidates.py   the parts that each target supports: rows of its table, single operators, kernels of the host
    largest.py      the parts that are left if larger parts are never dearer
    cost.py         the cost of a part on a target and of transfers: measured, or computed by a function
    search.py       the cheapest choice of parts that computes every call once
    sub_graph.py    a part given by its nodes, as a function
    by_index.py     a part given by the numbers of its nodes, outlined
    outlining.py    the parts of a plan as functions of the module

After Jeon et al., "Collage: Seamless Integration of Deep Learning Backends with Automatic Placement" (PACT 2022). The
search here is exact: dynamic programming over the computed calls and the locations of live values.
"""

from tilewright.relay.collage.candidates import Candidate, candidates_of
from tilewright.relay.collage.cost import (
    CostEstimator,
    CustomCostEstimator,
    CycleCostEstimator,
    MeasureCostEstimator,
    MockCostEstimator,
)
from tilewright.relay.collage.search import Plan, cheapest_plan

__all__ = [
    "Candidate", "CostEstimator", "CustomCostEstimator", "CycleCostEstimator", "MeasureCostEstimator",
    "MockCostEstimator", "Plan", "candidates_of", "cheapest_plan",
]
