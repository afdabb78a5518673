"""Models of ai.onnx.ml for tests: random ensembles of trees, and single nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def single(
    op_type: str, inputs: Mapping[str, tuple[int, Sequence[Any]]], outputs: Mapping[str, int], version: int = 3,
    **attributes: Any
) -> onnx.ModelProto:
    """One node: inputs and outputs by name, with their element types."""
    given = {k: v for k, v in attributes.items() if v is not None}
    node = helper.make_node(op_type, list(inputs), list(outputs), name="it", domain="ai.onnx.ml", **given)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, t, s) for n, (t, s) in inputs.items()],
        [helper.make_tensor_value_info(n, t, None) for n, t in outputs.items()])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)], ir_version=9
    )


class _Trees:
    """The attributes of random trees, of which some leaves come early."""

    def __init__(
        self, random: np.random.Generator, width: int, depth: int, modes: Sequence[str], missing: bool,
        targets: Sequence[int], prefix: str
    ) -> None:
        names = (
            "treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids",
            "missing_value_tracks_true"
        )
        self.nodes: dict[str, list[Any]] = {f"nodes_{n}": [] for n in names}
        self.leaves: dict[str, list[Any]] = {f"{prefix}_{n}": [] for n in ("treeids", "nodeids", "ids", "weights")}
        self.random, self.width, self.depth, self.modes, self.missing, self.targets = (
            random, width, depth, modes, missing, targets
        )
        self.count = 0

    def tree(self, number: int) -> None:
        self.count = 0
        self._node(number, self.depth)

    def _node(self, tree: int, depth: int) -> int:
        random, place, at = self.random, self.count, len(self.nodes["nodes_treeids"])
        self.count += 1
        leaf = depth == 0 or (depth < self.depth and random.random() < 0.2)
        values = (tree, place, "LEAF" if leaf else str(random.choice(self.modes)), 0 if leaf else int(
            random.integers(self.width)
        ),
                  0.0 if leaf else float(random.integers(-2, 3)) / 2, 0, 0,
                  int(self.missing and not leaf and random.random() < 0.5))
        for column, value in zip(self.nodes.values(), values, strict=True):
            column.append(value)
        if leaf:
            for target in self.targets:
                for column, value in zip(
                    self.leaves.values(), (tree, place, target, float(np.float32(random.standard_normal()))),
                    strict=True
                ):
                    column.append(value)
            return place
        self.nodes["nodes_truenodeids"][at] = self._node(tree, depth - 1)
        self.nodes["nodes_falsenodeids"][at] = self._node(tree, depth - 1)
        return place


def forest(
    random: np.random.Generator, op_type: str = "TreeEnsembleRegressor", *, trees: int = 3, depth: int = 3,
    width: int = 4, targets: Sequence[int] = (0,),
    modes: Sequence[str] = MODES, missing: bool = False, positive: bool = False, **attributes: Any,
) -> onnx.ModelProto:
    """A model of random trees over `width` features, with weights for `targets` in every leaf."""
    regressor = op_type == "TreeEnsembleRegressor"
    prefix = "target" if regressor else "class"
    made = _Trees(random, width, depth, modes, missing, targets, prefix)
    for k in range(trees):
        made.tree(k)
    if positive:
        made.leaves[f"{prefix}_weights"] = [abs(w) for w in made.leaves[f"{prefix}_weights"]]
    label = TensorProto.STRING if attributes.get("classlabels_strings") else TensorProto.INT64
    outputs = {"y": TensorProto.FLOAT} if regressor else {"label": label, "y": TensorProto.FLOAT}
    described: dict[str, Any] = {**made.nodes, **made.leaves, **attributes}
    return single(op_type, {"x": (TensorProto.FLOAT, ("rows", width))}, outputs, **described)
