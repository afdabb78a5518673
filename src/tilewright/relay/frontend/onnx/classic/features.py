"""ai.onnx.ml: feature preparation by scaling, imputing, encoding and concatenating columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.onnx.classic.labels import strings
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.transform import gather
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, number, pad, reshape, slice_axis
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of

ML: Final = "ai.onnx.ml"
Array = np.ndarray[Any, Any]


@converter("Scaler", domain=ML)
def scaler(x: Expr, *, offset: Sequence[float] = (), scale: Sequence[float] = (), node: Node) -> Expr:
    x = cast(x, "float32")
    for values, build, what in ((offset, op.subtract, "offset"), (scale, op.multiply, "scale")):
        if len(values) > 1 and shape_of(x)[-1:] != (len(values),):
            node.refuse(f"{what} has {len(values)} elements, but the input has {shape_of(x)[-1]} features; give one "
                        "element, or one for each feature")
        if len(values):
            x = build(x, Constant(np.asarray(values if len(values) > 1 else values[0], np.float32)))
    return x


@converter("Normalizer", domain=ML)
def normalizer(x: Expr, *, norm: str = "MAX", node: Node) -> Expr:
    x = cast(x, "float32")
    if rank(x) not in (1, 2):
        node.refuse(f"its input has {rank(x)} dimensions; it must have one or two")
    if norm == "MAX":  # the maximum of the signed values, as specified, not of their magnitudes
        size = op.max(x, axis=(-1,), keepdims=True)
    elif norm == "L1":
        size = op.sum(op.abs(x), axis=(-1,), keepdims=True)
    elif norm == "L2":
        size = op.sqrt(op.sum(op.multiply(x, x), axis=(-1,), keepdims=True))
    else:
        node.refuse(f"norm is {norm!r}; it must be MAX, L1 or L2")
    return op.divide(x, op.where(op.equal(size, scalar(0, size)), scalar(1, size), size))


@converter("Binarizer", domain=ML)
def binarizer(x: Expr, *, threshold: float = 0.0) -> Expr:
    if dtype_of(x).is_float:
        return cast(op.greater(x, scalar(threshold, x)), dtype_of(x))
    return cast(op.greater(cast(x, "float64"), number(threshold, "float64")), dtype_of(x))


@converter("Imputer", domain=ML)
def imputer(
    x: Expr, *, imputed_value_floats: Sequence[float] = (), imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0, replaced_value_int64: int = 0, node: Node,
) -> Expr:
    real = dtype_of(x).is_float
    values: Sequence[float] = imputed_value_floats if real else imputed_value_int64s
    absent = replaced_value_float if real else replaced_value_int64
    if not len(values):
        node.refuse(f"imputed_value_{'floats' if real else 'int64s'} is missing; it replaces missing values of type "
                    f"{dtype_of(x)}")
    if len(values) > 1 and shape_of(x)[-1:] != (len(values),):
        node.refuse(f"{len(values)} imputed values are given for {shape_of(x)[-1]} features; give one, or one for each "
                    "feature")
    where = op.isnan(x) if math.isnan(absent) else op.equal(x, scalar(absent, x))
    return op.where(where, Constant(np.asarray(values if len(values) > 1 else values[0], dtype_of(x).numpy())), x)


@converter("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(x: Expr, y: Expr, *, node: Node) -> Expr:
    """Columns of `x`; negative indices count from the end. A vector is one row."""
    if rank(x) == 1:
        x = reshape(x, (1, *shape_of(x)))
    return gather(x, reshape(y, (-1,)), axis=-1, node=node)


@converter("FeatureVectorizer", domain=ML)
def feature_vectorizer(*x: Expr, inputdimensions: Sequence[int] = (), node: Node) -> Expr:
    """Concatenate the inputs as float32, each cut or zero-padded to its width in `inputdimensions`."""
    if inputdimensions and len(inputdimensions) != len(x):
        node.refuse(f"inputdimensions has {len(inputdimensions)} elements for {len(x)} inputs; it must have one for "
                    "each")
    parts = []
    for k, part in enumerate(x):
        columns = reshape(part, (-1, 1)) if rank(part) == 1 else part
        width = node.static(columns, "X")[-1]
        wanted = inputdimensions[k] if inputdimensions else width
        columns = slice_axis(columns, 1, 0, wanted) if wanted < width else pad(columns, [(0, 0), (0, wanted - width)],
            0)
        parts.append(cast(columns, "float32"))
    return parts[0] if len(parts) == 1 else op.concatenate(Tuple(tuple(parts)), axis=1)


@converter("OneHotEncoder", domain=ML)
def one_hot_encoder(
    x: Expr, *, cats_int64s: Sequence[int] = (), cats_strings: Sequence[str] = (), zeros: int = 1, node: Node,
) -> Expr:
    """A new last dimension with 1 at the category of each element; all zeros for an unknown category."""
    if bool(cats_int64s) == bool(cats_strings):
        node.refuse("its categories must be given either as integers or as strings, not as both")
    if not zeros:
        node.refuse("zeros=0 (an error at run time for a value without a category) is not supported; export with "
                    "zeros=1")
    text = dtype_of(x) == "string"
    if text != bool(cats_strings):
        node.refuse(f"its categories are {'strings' if cats_strings else 'integers'}, but its input is {dtype_of(x)}")
    names = strings(cats_strings) if text else np.asarray(cats_int64s, np.int64)
    like = x if text else cast(x, "int64")
    return cast(op.equal(op.expand_dims(like, axis=-1), Constant(names)), "float32")
