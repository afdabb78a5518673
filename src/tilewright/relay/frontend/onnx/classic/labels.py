"""ai.onnx.ml: labels, categories and maps as table lookups; native for numbers, otherwise dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.array_bytes import of_strings
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.look_up import looked_up
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.types_of import dtype_of

ML: Final = "ai.onnx.ml"
Array = np.ndarray[Any, Any]


def strings(values: Sequence[str]) -> Array:
    return of_strings(list(values), (len(values),))


@converter("LabelEncoder", domain=ML)
def label_encoder_of_classes(
    x: Expr, *, classes_strings: Sequence[str] = (), default_int64: int = -1, default_string: str = "_Unused",
    node: Node,
) -> Expr:
    return category_mapper(x, cats_int64s=tuple(range(len(classes_strings))), cats_strings=classes_strings,
                           default_int64=default_int64,
                           default_string=default_string, node=node)


@converter("LabelEncoder", since=2, domain=ML)
def label_encoder(
    x: Expr, *, default_float: float = -0.0, default_int64: int = -1, default_string: str = "_Unused",
    default_tensor: Array | None = None, keys_floats: Sequence[float] = (), keys_int64s: Sequence[int] = (),
    keys_strings: Sequence[str] = (), keys_tensor: Array | None = None, values_floats: Sequence[float] = (),
    values_int64s: Sequence[int] = (), values_strings: Sequence[str] = (), values_tensor: Array | None = None,
    node: Node,
) -> Expr:
    keys = _given(keys_floats, keys_int64s, keys_strings, keys_tensor, "keys", node)
    values = _given(values_floats, values_int64s, values_strings, values_tensor, "values", node)
    default: Any = default_string if values.dtype == object else default_float if values_floats else default_int64
    if values_tensor is not None:
        if default_tensor is not None:
            default = default_tensor.reshape(-1)[0]
        elif values.dtype != object:
            default = default_float if values.dtype.kind == "f" else default_int64
    return looked_up(x, keys, values, default, node)


def _given(floats: Sequence[float], ints: Sequence[int], texts: Sequence[str], tensor: Array | None, what: str,
           node: Node) -> Array:
    """The value of the only one of four attributes that is set."""
    found = [np.asarray(floats, np.float32)] * bool(floats) + [np.asarray(ints,
        np.int64)] * bool(ints) + [strings(texts)] * bool(texts)
    found += [tensor.reshape(-1)] if tensor is not None else []
    if len(found) != 1:
        node.refuse(f"{len(found)} of the attributes {what}_floats, {what}_int64s, {what}_strings and {what}_tensor "
                    "are given; give exactly one")
    return found[0]


@converter("CategoryMapper", domain=ML)
def category_mapper(
    x: Expr, *, cats_int64s: Sequence[int] = (), cats_strings: Sequence[str] = (), default_int64: int = -1,
    default_string: str = "_Unused", node: Node,
) -> Expr:
    """Map strings to integers, or integers to strings, by two parallel lists."""
    numbers, names = np.asarray(cats_int64s, np.int64), strings(cats_strings)
    if dtype_of(x) == "string":
        return looked_up(x, names, numbers, default_int64, node)
    return looked_up(x, numbers, names, default_string, node)


@converter("ZipMap", domain=ML)
def zip_map(x: Expr, *, classlabels_int64s: Sequence[int] = (), classlabels_strings: Sequence[str] = (),
            node: Node) -> Expr:
    return op.zip_map(x, Constant(_keys(classlabels_int64s, classlabels_strings, node)))


@converter("DictVectorizer", domain=ML)
def dict_vectorizer(x: Expr, *, int64_vocabulary: Sequence[int] = (), string_vocabulary: Sequence[str] = (),
                    node: Node) -> Expr:
    return op.dict_vectorize(x, Constant(_keys(int64_vocabulary, string_vocabulary, node)),
                             dtype=str(node.map_value_type(x)))


def _keys(numbers: Sequence[int], texts: Sequence[str], node: Node) -> Array:
    if bool(numbers) == bool(texts):
        node.refuse("its keys must be given either as integers or as strings, not as both")
    return np.asarray(numbers, np.int64) if numbers else strings(texts)


@converter("CastMap", domain=ML)
def cast_map(x: Expr, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1, node: Node) -> Expr:
    if map_form not in ("DENSE", "SPARSE"):
        node.refuse(f"map_form is {map_form!r}; it must be DENSE or SPARSE")
    if map_form == "DENSE":
        node.refuse("map_form is DENSE, so that the size of the result is not known at compile time; export with "
                    "SPARSE and max_map")
    return op.cast_map(x, size=max_map, cast_to=cast_to, sparse=True)
