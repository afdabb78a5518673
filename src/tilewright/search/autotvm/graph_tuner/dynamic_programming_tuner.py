"""`DPTuner`: the best combination of records, by dynamic programming."""

from __future__ import annotations

from typing import Any

from tilewright.search.autotvm.graph_tuner.base_graph_tuner import BaseGraphTuner


class DPTuner(BaseGraphTuner):
    """Finds the combination of records with the least total time. A network of many branches, all of which depend on
    each other, needs `PBQPTuner`."""

    def run(self, **kwargs: Any) -> None:
        """Choose a record for each node. Raises `OptionError` before `benchmark_layout_transform`, or if too many nodes
        depend on each other."""
        self._run(exact=True, title="dynamic programming")
