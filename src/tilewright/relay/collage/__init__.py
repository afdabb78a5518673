"""Which of several targets computes which part of a graph at the least cost: `relay.transform.CollagePartition`.

    candidates.py   the parts that each target supports: rows of its table, single operators, kernels of the host
    cost.py         the cost of a part on a target and of transfers: measured, or computed by a function
    search.py       the cheapest choice of parts that computes every call once

After Jeon et al., "Collage: Seamless Integration of Deep Learning Backends with Automatic Placement" (PACT 2022); the
search here is exact, by dynamic programming over what is computed so far and where the values live that are still
needed.
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
    "Candidate",
    "CostEstimator",
    "CustomCostEstimator",
    "CycleCostEstimator",
    "MeasureCostEstimator",
    "MockCostEstimator",
    "Plan",
    "candidates_of",
    "cheapest_plan",
]
