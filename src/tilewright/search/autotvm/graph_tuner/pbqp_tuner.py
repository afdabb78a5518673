"""`PBQPTuner`: a good combination of records, as a partitioned Boolean quadratic problem."""

from __future__ import annotations

from typing import Any

from tilewright.search.autotvm.graph_tuner.base_graph_tuner import BaseGraphTuner


class PBQPTuner(BaseGraphTuner):
    """Finds the best combination of records where each node depends on two others at a time, and a good one elsewhere,
    in time that grows with the number of nodes."""

    def run(self, **kwargs: Any) -> None:
        """Choose a record for each node. Raises `OptionError` before `benchmark_layout_transform`."""
        self._run(exact=False, title="partitioned Boolean quadratic programming")
