"""The reader of JSON networks.

    {"inputs": {"x": {"shape": ["n", 4], "dtype": "float32"}},
     "constants": {"w": {"dtype": "float32", "data": [[1, 2, 3, 4]]}},
     "nodes": [{"op": "dense", "name": "first", "inputs": ["x", "w"], "outputs": ["y"], "attributes": {}}],
     "outputs": ["y"]}

A size is a number, or the name of a size that differs between calls.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.base.types import DataType, TensorType
from tilewright.relay.frontend.core.format import Look, file_bytes
from tilewright.relay.frontend.core.reading import SourceGraph, SourceNode
from tilewright.scalar.expr import Var


def is_json(look: Look) -> bool:
    """Whether a model is a JSON network: a file `….json`, or bytes that begin with a brace."""
    return look.suffix == ".json" or (not look.suffix and look.head.lstrip()[:1] == b"{")


def read_graph(model: Any) -> SourceGraph:
    """The graph in a path or in bytes. Raises `ModelError` for other contents."""
    name, data = file_bytes(model)
    try:
        said = json.loads(data)
        sizes: dict[str, Var] = {}
        inputs = {n: _type(t, sizes) for n, t in said["inputs"].items()}
        constants = {n: functools.partial(_array, n, t) for n, t in said.get("constants", {}).items()}
        nodes = [_node(k, n) for k, n in enumerate(said["nodes"])]
        return SourceGraph(name or "the network", inputs, nodes, list(said["outputs"]), constants)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{name or 'the model'} is not a JSON network ({type(error).__name__}: {error}); write it anew",
            code="TW0102"
        ) from error


def _node(number: int, said: Mapping[str, Any]) -> SourceNode:
    attributes = {k: tuple(v) if isinstance(v, list) else v for k, v in said.get("attributes", {}).items()}
    return SourceNode(
        said["op"], list(said["inputs"]), list(said["outputs"]), attributes,
        said.get("name") or f"{said['op']}_{number}"
    )


def _type(said: Mapping[str, Any], sizes: dict[str, Var]) -> TensorType:
    dims = [d if isinstance(d, int) else sizes.setdefault(str(d), Var(str(d))) for d in said["shape"]]
    return TensorType(tuple(dims), DataType(said["dtype"]))


def _array(name: str, said: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(said["data"], said["dtype"])
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"constant '{name}' is not an array of numbers: {error}", code="TW0103") from error
