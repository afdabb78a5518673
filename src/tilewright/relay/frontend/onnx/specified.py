"""Checks a node against the specification: the kinds of its attributes and inputs.

Converters may accept more than the specification. The kinds of attributes and the ranks of inputs are always checked,
since a list in place of a number is meaningless. The types of inputs are checked only after a conversion has failed, to
explain why.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import onnx
from onnx import AttributeProto, defs

from tilewright.base.limits import MOST_BYTES, MOST_TAPS
from tilewright.base.types import TensorType
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.onnx.registry import domain_of

_HIGHEST_VERSION: Final = (1 << 31) - 1
"""Greatest opset version that `onnx.defs` accepts."""
_KINDS: Final[dict[int, str]] = {
    AttributeProto.FLOAT: "a number", AttributeProto.INT: "an integer", AttributeProto.STRING: "a string",
    AttributeProto.TENSOR: "a tensor",
    AttributeProto.GRAPH: "a graph", AttributeProto.FLOATS: "a list of numbers",
    AttributeProto.INTS: "a list of integers",
    AttributeProto.STRINGS: "a list of strings", AttributeProto.TENSORS: "a list of tensors",
    AttributeProto.GRAPHS: "a list of graphs",
    AttributeProto.SPARSE_TENSOR: "a sparse tensor", AttributeProto.SPARSE_TENSORS: "a list of sparse tensors",
    AttributeProto.TYPE_PROTO: "a type", AttributeProto.TYPE_PROTOS: "a list of types",
    AttributeProto.UNDEFINED: "of unknown type",
}
_RANKS: Final[dict[str, tuple[int, ...]]] = {
    "RNN": (3, 3, 3, 2, 1, 3), "GRU": (3, 3, 3, 2, 1, 3), "LSTM": (3, 3, 3, 2, 1, 3, 3, 2),
    "DeformConv": (4, 4, 4, 1, 4),
    "MaxRoiPool": (4, 2), "AffineGrid": (3, 1), "DepthToSpace": (4,), "SpaceToDepth": (4,), "Col2Im": (3, 1, 1),
    "NonMaxSuppression": (3, 3), "EyeLike": (2,),
}
"""Ranks of the inputs of operators whose ranks are fixed."""
_TRUTHS: Final = frozenset({
    "align_corners", "allowzero", "antialias", "ceil_mode", "center_point_box", "count_include_pad", "detect_negative",
    "detect_positive", "exclude_outside", "exclusive", "fmod", "input_forget", "interleaved",
    "inverse", "is_case_sensitive", "is_causal", "keepdims", "largest", "layout", "linear_before_reset",
    "noop_with_empty_axes", "onesided", "periodic", "reverse", "saturate", "select_last_index", "sorted",
    "storage_order", "training_mode", "transA", "transB", "upper",
})
"""Integer attributes that must be 0 or 1, in all operators of the standard."""
_AXIS_OF_DATA: Final = frozenset({"LayerNormalization", "RMSNormalization"})
"""Composite operators whose attribute `axis` is a dimension of the first input."""
_OF_WINDOWS: Final = frozenset({"kernel_shape", "strides", "dilations"})


@dataclass(frozen=True, slots=True)
class Specification:
    """The kinds of attributes, numbers of inputs and outputs, and input types of an operator at one opset."""

    attributes: Mapping[str, int]
    inputs: tuple[str, ...]
    types: tuple[frozenset[str], ...]
    fewest: int
    most: int


def schema_of(op_type: str, domain: str, opset: int) -> Any:
    """The `onnx.defs.OpSchema` of an operator, or None when it has none at this opset."""
    if not 0 < opset <= _HIGHEST_VERSION or not defs.has(op_type, domain_of(domain)):
        return None
    try:
        return defs.get_schema(op_type, opset, domain_of(domain))
    except defs.SchemaError:
        return None  # this opset does not have the operator yet


@functools.lru_cache(1024)
def specification(op_type: str, domain: str, opset: int) -> Specification | None:
    """The specification of an operator; None if it is not a standard one."""
    schema = schema_of(op_type, domain, opset)
    if schema is None:
        return None
    constraints = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    types = tuple(constraints.get(i.type_str, frozenset({i.type_str})) for i in schema.inputs)
    kinds = {name: int(a.type.value) for name, a in schema.attributes.items()}
    return Specification(kinds, tuple(i.name for i in schema.inputs), types, schema.min_input, schema.max_input)


def widened(said: Specification, given: Mapping[str, AttributeProto]) -> dict[str, AttributeProto]:
    """The attributes, with integers converted to floats where the specification requires floats (`alpha=1`)."""
    found = dict(given)
    for name, a in given.items():
        wanted = said.attributes.get(name)
        if a.type == AttributeProto.INT and wanted == AttributeProto.FLOAT:
            found[name] = AttributeProto(name=name, type=AttributeProto.FLOAT, f=a.i)
        elif a.type == AttributeProto.INTS and wanted == AttributeProto.FLOATS:
            found[name] = AttributeProto(name=name, type=AttributeProto.FLOATS, floats=a.ints)
    return found


def wrong_attribute(said: Specification, given: Mapping[str, AttributeProto]) -> str:
    """The fault of an attribute's kind, a boolean value, or the length of window attributes; "" if all are valid."""
    for name, a in given.items():
        wanted = said.attributes.get(name)
        if wanted is not None and a.type != wanted:
            return (f"attribute '{name}' is {kind_of_attribute(a.type)}, but must be {kind_of_attribute(wanted)}; "
                    "correct it in the program that exports the model")
        if name in _TRUTHS and wanted == AttributeProto.INT and a.i not in (0, 1):
            return f"attribute '{name}' is {a.i}, but must be 0 or 1; correct it in the program that exports the model"
        if name in _OF_WINDOWS and not all(0 < n <= MOST_TAPS for n in (*a.ints, math.prod(a.ints))):
            return (f"attribute '{name}' is {tuple(a.ints)}; each number must be 1 or more, and their product at most "
                    f"{MOST_TAPS}")
        if name == "pads" and not all(abs(n) <= MOST_BYTES for n in a.ints):
            return (f"attribute 'pads' is {tuple(a.ints)}, which is too large; correct it in the program that exports "
                    "the model")
    return ""


def kind_of_attribute(kind: int) -> str:
    return _KINDS.get(kind, f"of the unknown type {kind}")


def wrong_rank(said: Specification, node: onnx.NodeProto, args: Sequence[Expr | None]) -> str:
    """The fault of an input's rank; "" if it is valid or not specified."""
    ranks = _RANKS.get(node.op_type, ()) if not domain_of(node.domain) else ()
    for name, arg, wanted in zip(said.inputs, args, ranks, strict=False):
        t = None if arg is None else arg.known_type()
        if isinstance(t, TensorType) and t.ndim != wanted:
            return (f"input '{name}' has {t.ndim} dimensions, {t!r}, but {node.op_type} takes {wanted}; reshape it")
    return ""


def wrong_axis(node: onnx.NodeProto, given: Mapping[str, AttributeProto], args: Sequence[Expr | None]) -> str:
    """The fault of the attribute `axis` of a composite operator; "" if it is valid."""
    axis = given["axis"].i if "axis" in given else None
    t = args[0].known_type() if args and args[0] is not None else None
    if (axis is None or node.op_type not in _AXIS_OF_DATA or domain_of(node.domain) or not isinstance(t, TensorType)
            or -t.ndim <= axis < t.ndim):
        return ""
    return (f"attribute 'axis' is {axis}, but input '{node.input[0]}' has {t.ndim} dimensions, {t!r}; correct it in "
            "the program that exports the model")


def wrong_targets(node: onnx.NodeProto, args: Sequence[Expr | None]) -> str:
    """The fault of the target's shape (N, d1, …) for a loss of input (N, C, d1, …); "" if it is valid."""
    if node.op_type not in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss") or domain_of(node.domain):
        return ""
    scores, targets = (None if a is None else a.known_type() for a in args[:2])
    if not isinstance(scores, TensorType) or not isinstance(targets, TensorType):
        return ""
    wanted = (*scores.shape[:1], *scores.shape[2:])
    if len(wanted) == targets.ndim and all(a == b for a, b in zip(wanted, targets.shape, strict=True)
                                           if isinstance(a, int) and isinstance(b, int)):
        return ""
    return (f"input '{node.input[1]}' is {targets!r}, but '{node.input[0]}' is {scores!r}; targets must have the "
            "dimensions of the scores except the second")


def wrong_input(said: Specification, node: onnx.NodeProto, args: Sequence[Expr | None]) -> str:
    """The fault of the number or types of inputs; "" if they are valid."""
    if not said.fewest <= len(node.input) <= said.most:
        wanted = (str(said.fewest) if said.fewest == said.most else f"{said.fewest} to {said.most}"
                  if said.most < _HIGHEST_VERSION else f"{said.fewest} or more")
        return f"it has {len(node.input)} inputs, but {node.op_type} takes {wanted}: {', '.join(said.inputs)}"
    for k, arg in enumerate(args):
        place = min(k, len(said.types) - 1)
        t = None if arg is None or place < 0 else arg.known_type()
        if isinstance(t, TensorType):
            code = onnx.helper.np_dtype_to_tensor_dtype(t.dtype.numpy())
            name = onnx.TensorProto.DataType.Name(code).lower()
            allowed = said.types[place]
            if not any(f"tensor({name})" in text for text in allowed):
                listed = ", ".join(sorted(text.removeprefix("tensor(").removesuffix(")") for text in allowed))
                return f"input '{said.inputs[place]}' is of type {name}, but {node.op_type} takes {listed}; cast it"
    return ""
