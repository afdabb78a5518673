"""Reasons for which an answer of ours may differ from both references: data, which the report counts.

A rule looks at one node of an ONNX model with its input and output arrays by a reference. Where it holds for a node,
each result that depends on the node is free. A rule needs a reason that is a fact about the standard or about floating
point, never about this compiler.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from onnx import helper

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Rule:
    """A reason, the operators that it is about (all where there are none), and the condition on a node with its inputs
    and outputs."""

    name: str
    reason: str
    operators: frozenset[str]
    holds: Callable[[Any, Sequence[Any], Sequence[Any]], bool]


@dataclass(frozen=True)
class General:
    """A reason that is not about one node: `name` is what the report counts."""

    name: str
    reason: str


CONDITION: Final = General(
    "ill-conditioned",
    "results move as much where each float rounding of the model is another, by less than one float32 unit"
)
ACCUMULATION: Final = General("rounding", "the error against float64 is within eight times that of the worse reference")
EITHER: Final = General("between the references", "each element is that of one of the references, which disagree")


def attribute(node: Any, name: str, default: Any = None) -> Any:
    """The value of an attribute."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def _divided_by_zero(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    a, b = inputs
    if a.dtype.kind not in "iu":
        return False
    lowest = a.dtype.kind == "i" and bool(((a == np.iinfo(a.dtype).min) & (b == -1)).any())
    return bool((b == 0).any()) or lowest


def _out_of_range(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    if not outputs or inputs[0].dtype.kind in "iubOSU":
        return False
    try:
        x, info = inputs[0].astype(np.float64), ml_dtypes.iinfo(outputs[0].dtype)  # type: ignore[no-untyped-call]
    except ValueError:  # no integers
        return False
    return not bool(((x > float(info.min) - 1) & (x < float(info.max) + 1)).all())


def _shifted_out(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return bool((inputs[1] >= inputs[0].dtype.itemsize * 8).any())


def _has_nan(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return any(
        isinstance(x, np.ndarray) and x.dtype.kind in "fV" and bool(np.isnan(x.astype(np.float64)).any())
        for x in inputs
    )


def _not_finite(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return any(
        isinstance(x, np.ndarray) and x.dtype.kind in "fV" and not bool(np.isfinite(x.astype(np.float64)).all())
        for x in inputs
    )


def _odd_scale(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    scales = [x for x in inputs[1:] if isinstance(x, np.ndarray) and x.dtype.kind in "fV"]
    return any(not bool((np.isfinite(s.astype(np.float64)) & (s.astype(np.float64) > 1e-30)).all()) for s in scales)


def _whole_power(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    a, b = inputs
    return a.dtype.kind in "iu" and (
        b.dtype.kind == "f" or bool((b < 0).any())
        or not _fits(np.power(a.astype(np.float64), b.astype(np.float64)), a.dtype)
    )


def _fits(x: Array, dtype: np.dtype[Any]) -> bool:
    info = np.iinfo(dtype)
    return bool(((x >= info.min) & (x <= info.max)).all())


def _long_vector(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    x = inputs[0]
    return x.dtype.kind in "iu" and not _fits(np.sum(np.square(x.astype(np.float64))), x.dtype)


def _of_integers(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return outputs[0].dtype.kind in "iu"


def _always(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return True


def _no_iteration(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return any(isinstance(o, np.ndarray) and o.shape[:1] == (0,) for o in outputs)


def _joined_scans(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    body = attribute(node, "body")
    scans = outputs[len(body.input) - 2:]
    return any(isinstance(o, np.ndarray) and o.ndim > 1 for o in scans)


def _sequence_loop(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return (len(node.input) < 2 or not node.input[1]) and any(isinstance(o, list) for o in outputs)


def _no_range(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    x = inputs[0]
    return x.size > 0 and float((max(x.max(), np.float32(0)) - min(x.min(), np.float32(0))) / np.float32(255)) == 0


def _mask_of_one(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return len(inputs) > 3 and inputs[3] is not None and inputs[3].shape[-1] == 1 < inputs[1].shape[-2]


def _squares_overflow(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return bool((np.abs(inputs[0].astype(np.float64)) > 2.0**60).any())


def _listed_twice(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    pool = attribute(node, "pool_int64s") or attribute(node, "pool_strings") or []
    counts = [*attribute(node, "ngram_counts"), len(pool)]
    grams = [
        tuple(pool[k : k + n]) for n,
        (first, last) in enumerate(itertools.pairwise(counts), 1) for k in range(first, last, n)
    ]
    return len({*grams}) < len(grams) or any(
        (last - first) % n for n, (first, last) in enumerate(itertools.pairwise(counts), 1)
    )


def _of_doubles(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return bool(inputs[0].dtype == np.float64)


def _even_size(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return bool(attribute(node, "size") % 2 == 0)


def _has_shape(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return len(inputs) > 2 and inputs[2] is not None


def _pads_below_zero(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """A step over places that no window reaches, where the pads follow from the size of the result."""
    wanted = attribute(node, "output_shape") is not None or attribute(node, "auto_pad", b"").startswith(b"SAME")
    strides, kernel = attribute(node, "strides", [1]), attribute(node, "kernel_shape") or inputs[1].shape[2:]
    return wanted and any(s > k for s, k in zip(strides, kernel, strict=False))


def _whole_image(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return inputs[0].dtype.kind in "iub" and attribute(node, "mode", b"linear") != b"nearest"


def _other_image(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return _whole_image(node, inputs, outputs) and inputs[0].dtype not in (np.int8, np.uint8, np.int32)


def _dilated_to_size(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return attribute(node, "auto_pad", b"").startswith(b"SAME") and any(
        d > 1 for d in attribute(node, "dilations", [1])
    )


def _slice_outside(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    x, starts, ends, axes, steps = inputs
    sizes = [x.shape[a] for a in (axes if axes is not None else range(len(starts)))]
    return steps is not None and any(
        step < 0 and (start < -n or end >= n) for start, end, step, n in zip(starts, ends, steps, sizes, strict=True)
    )


def _fraction_of_one(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return inputs[1].dtype.kind == "f" and float(inputs[1].reshape(-1)[0]) % 1 != 0


def _clipped_cell(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return attribute(node, "clip") is not None


def _stops_in_any_case(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return bool(attribute(node, "stopwords")) and not attribute(node, "is_case_sensitive", 0)


def _below_zero(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return any(float(x.reshape(-1)[0]) < 0 for x in inputs[:5])


def _infinite_over_padding(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return _not_finite(node, inputs[1:2], outputs) and (
        any(attribute(node, "pads", [0])) or attribute(node, "auto_pad", b"").startswith(b"SAME")
    )


def _beyond_double(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    x = inputs[0]
    return x.dtype.kind in "iu" and float(np.abs(x.astype(np.float64)).sum()) >= 2.0**53


def _type_not_taken(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """A type that even the newest version of the operator does not take."""
    schema = onnx.defs.get_schema(node.op_type, onnx.defs.onnx_opset_version(), node.domain)
    name = onnx.TensorProto.DataType.Name(onnx.helper.np_dtype_to_tensor_dtype(inputs[0].dtype)).lower()
    return f"tensor({name})" not in schema.inputs[0].types


def _one_size(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return bool(inputs[1].size != len(attribute(node, "axes", range(inputs[0].ndim))))


def _training(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return len(inputs) > 2 and inputs[2] is not None and bool(np.any(inputs[2]))


RULES: Final = (
    Rule(
        "integer division by zero", "ONNX does not define it, nor the quotient of the lowest integer and -1",
        frozenset({"Div", "Mod"}), _divided_by_zero
    ),
    Rule(
        "out-of-range cast", "a float outside of the range of an integer type has no defined value there",
        frozenset({"Cast", "CastLike"}), _out_of_range
    ),
    Rule("shift by the width or more", "ONNX does not define it", frozenset({"BitShift"}), _shifted_out),
    Rule(
        "NaN among values that are ordered",
        "comparisons with NaN have no order; the references differ among themselves",
         frozenset(
             [
                 "ArgMax", "ArgMin", "TopK", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "Hardmax", "Unique",
                 "NonMaxSuppression", "Max", "Min", "Clip", "MaxRoiPool", "Sign"
             ]
         ), _has_nan),
    Rule(
        "quantization of what is not finite", "an infinite or NaN value has no integer",
        frozenset({"QuantizeLinear", "DynamicQuantizeLinear"}), _not_finite
    ),
    Rule("odd quantization scale", "a scale has to be positive and finite", frozenset(
        ["QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul"]),
        _odd_scale),
    Rule(
        "power of integers", "the exponent is negative or not whole, or the result does not fit", frozenset({"Pow"}),
        _whole_power
    ),
    Rule(
        "length of a vector of large integers", "the sum of squares does not fit the type", frozenset({"ReduceL2"}),
        _long_vector
    ),
    Rule(
        "window of integers", "its peak is 1 less a rounding, or 1, and its fraction is cut off",
        frozenset({"BlackmanWindow", "HannWindow", "HammingWindow"}), _of_integers
    ),
    Rule(
        "LRN over an even number of channels",
        "ONNX Runtime refuses it, and ONNX's reference sums only as many channels as there are images",
        frozenset({"LRN"}), _even_size
    ),
    Rule(
        "unpooling into a given shape",
        "the node suite fills up the pooled tensor, and ONNX Runtime takes indices for those of the given shape",
        frozenset({"MaxUnpool"}), _has_shape
    ),
    Rule(
        "padding below zero",
        "the formula for the size of the result gives negative pads, which the references refuse, cut off or place "
        "differently", frozenset({"ConvTranspose", "MaxPool", "AveragePool", "LpPool"}), _pads_below_zero
    ),
    Rule(
        "sampling at points that are not finite", "such a point is in no image",
        frozenset({"GridSample", "RoiAlign", "DeformConv"}), _not_finite
    ),
    Rule(
        "interpolation of integers", "ONNX's reference rounds the weights to integers, and ONNX Runtime refuses it",
        frozenset({"GridSample"}), _whole_image
    ),
    Rule(
        "sizes of images of other integers",
        "ONNX's reference rounds the result, and ONNX Runtime, which cuts it off, refuses these types",
        frozenset({"Resize"}), _other_image
    ),
    Rule(
        "a window over a size that its dilation does not count",
        "the references leave the dilation out of the formula of SAME",
        frozenset({"MaxPool", "AveragePool", "LpPool", "QLinearConv"}), _dilated_to_size
    ),
    Rule(
        "bounds outside of what is sliced backwards",
        "the standard moves the start and the end to the nearest element; numpy, and so ONNX's reference, and ONNX "
        "Runtime do otherwise", frozenset({"Slice"}), _slice_outside
    ),
    Rule(
        "a depth that is not whole",
        "the standard casts it to int64, ONNX Runtime refuses it, and ONNX's reference counts up to it",
        frozenset({"OneHot"}), _fraction_of_one
    ),
    Rule(
        "recurrent cells with a clip", "ONNX's reference leaves the attribute out", frozenset({"RNN", "GRU", "LSTM"}),
        _clipped_cell
    ),
    Rule(
        "stop words in any case", "ONNX's reference compares them as they are written", frozenset({"StringNormalizer"}),
        _stops_in_any_case
    ),
    Rule("frequencies below zero", "ONNX Runtime refuses them", frozenset({"MelWeightMatrix"}), _below_zero),
    Rule("a range that is not finite", "its length is a quotient of what has none", frozenset({"Range"}), _not_finite),
    Rule(
        "infinite weights over padding",
        "infinity times a zero of the padding is NaN, where an implementation multiplies it",
        frozenset({"Conv", "ConvTranspose"}), _infinite_over_padding
    ),
    Rule(
        "means of integers beyond 53 bits", "ONNX's reference and ONNX Runtime compute them in float64",
        frozenset({"ReduceMean"}), _beyond_double
    ),
    Rule(
        "exponentials of integers", "they have fractions, which each implementation cuts off in its place",
        frozenset({"ReduceLogSumExp", "ReduceLogSum"}), _of_integers
    ),
    Rule(
        "spectra of what is not finite", "every frequency is a sum of infinities", frozenset({"DFT", "STFT"}),
        _not_finite
    ),
    Rule(
        "a type that the operator does not take", "ONNX's reference checks no types",
        frozenset({"ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceSum", "ReduceProd", "ReduceMean"}), _type_not_taken
    ),
    Rule(
        "sizes and axes of different numbers", "CenterCropPad needs a size for each axis", frozenset({"CenterCropPad"}),
        _one_size
    ),
    Rule(
        "a range without a scale",
        "the scale of zeros is 1 in ONNX Runtime, 1/255 in ONNX's reference, and 0 of denormals, by which nothing "
        "divides", frozenset({"DynamicQuantizeLinear"}), _no_range
    ),
    Rule(
        "a mask of one column",
        "the standard broadcasts it, and from opset 24 on fills up what is shorter than the keys, as ONNX's reference "
        "does in every opset", frozenset({"Attention"}), _mask_of_one
    ),
    Rule(
        "squares that overflow", "the variance of large numbers is infinite, or NaN where it is a difference of sums",
        frozenset(
            {
                "GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization",
                "BatchNormalization", "MeanVarianceNormalization"
            }
        ), _squares_overflow
    ),
    Rule("n-grams that are listed twice", "ONNX Runtime refuses them", frozenset({"TfIdfVectorizer"}), _listed_twice),
    Rule(
        "constants of float32 in a function of float64", "ONNX's reference computes the function's body with them",
        frozenset({"Gelu"}), _of_doubles
    ),
    Rule(
        "scan outputs of several dimensions",
        "ONNX's reference joins them along their first dimension in the place of a new one", frozenset({"Loop"}),
        _joined_scans
    ),
    Rule(
        "a loop over sequences without a condition", "ONNX's reference does not run it where the sequence is there",
        frozenset({"Loop"}), _sequence_loop
    ),
    Rule(
        "a loop without iterations", "the sizes of a scan output that was never written are not defined",
        frozenset({"Loop"}), _no_iteration
    ),
    Rule("random numbers", "the standard leaves them to the implementation",
         frozenset(
             ["RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"]
         ), _always),
    Rule("random dropping", "the standard leaves it to the implementation", frozenset({"Dropout"}), _training),
)
"""Rules about one node."""


def applying(node: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Rule | None:
    """The first rule that holds for a node."""
    for rule in RULES:
        if node.op_type in rule.operators:
            try:
                if rule.holds(node, inputs, outputs):
                    return rule
            except (ValueError, TypeError, IndexError):  # shapes that no operator takes: the references refuse the node
                continue
    return None


def applying_tflite(op: Any, tensors: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Rule | None:
    """The first rule that holds for a TFLite operator."""
    return next((r for r in TFLITE_RULES if op.kind in r.operators and r.holds(op, inputs, outputs)), None)


def _shrinks_backwards(op: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    return any(op.values.get("ShrinkAxisMask", 0) >> k & 1 and s < 0 for k, s in enumerate(inputs[3].tolist()))


TFLITE_RULES: Final = (
    Rule(
        "one element backwards", "LiteRT reads beside the tensor where an axis is dropped and its stride is negative",
        frozenset({"STRIDED_SLICE"}), _shrinks_backwards
    ),
    Rule(
        "integer division by zero", "C does not define it", frozenset({"DIV", "FLOOR_DIV", "FLOOR_MOD"}),
        _divided_by_zero
    ),
    Rule(
        "out-of-range cast", "a float outside of the range of an integer type has no defined value there",
        frozenset({"CAST"}), _out_of_range
    ),
    Rule("NaN among values that are ordered", "comparisons with NaN have no order",
         frozenset(
             [
                 "ARG_MAX", "ARG_MIN", "TOPK_V2", "MAX_POOL_2D", "REDUCE_MAX", "REDUCE_MIN", "MAXIMUM", "MINIMUM",
                 "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "SIGN", "SOFTMAX", "LOG_SOFTMAX"
             ]
         ), _has_nan),
    Rule(
        "quantization of what is not finite", "an infinite or NaN value has no integer", frozenset({"QUANTIZE"}),
        _not_finite
    ),
    Rule("power of integers", "the exponent is negative, or the result does not fit", frozenset({"POW"}), _whole_power),
    Rule(
        "interpolation of what is not finite",
        "infinity times a weight of zero is NaN, and the kernels of LiteRT differ in which they multiply",
        frozenset({"RESIZE_BILINEAR"}), _not_finite
    ),
)
"""Rules about one operator of TFLite."""


def _torch_cast(lines: Sequence[tuple[str, str]], values: dict[str, Any]) -> bool:
    """A conversion of floats to integers that do not hold them."""
    for name, expression in lines:
        source, _, target = expression.partition(".to(torch.")
        if (
            target and source in values and name in values and values[source].is_floating_point()
            and not values[name].is_floating_point()
        ):
            x, to = values[source].double(), str(values[name].dtype).removeprefix("torch.")
            if to != "bool" and not bool(((x > np.iinfo(to).min - 1.0) & (x < np.iinfo(to).max + 1.0)).all()):
                return True
    return False


def _torch_vectors(lines: Sequence[tuple[str, str]], values: dict[str, Any]) -> bool:
    """Vectors, not values, of a decomposition: the first result of `svd`."""
    return any(e.startswith(("(torch.svd(", "(torch.linalg.svd(")) and e.endswith("[0]") for _, e in lines)


def _torch_reflections(lines: Sequence[tuple[str, str]], values: dict[str, Any]) -> bool:
    """A product of reflections with an operand that is not finite."""
    read = {
        w for _,
        e in lines if "householder_product(" in e or "orgqr(" in e
        for w in e.replace("(", " ").replace(")", " ").replace(",", " ").split()
    }
    return any(n in values and not bool(values[n].isfinite().all()) for n in read)


TORCH_RULES: Final = (
    (
        General(
            "signs of singular vectors",
            "the documentation of PyTorch leaves them open: a column of U and of V may change its sign together"
        ), _torch_vectors
    ),
    (
        General(
            "reflections that are not finite",
            "infinity times zero is NaN, and LAPACK leaves out products with the zeros that it knows"
        ), _torch_reflections
    ),
    (
        General("out-of-range cast", "a float outside of the range of an integer type has no defined value there"),
        _torch_cast
    ),
)
"""Rules about the statements of a module and the values of eager PyTorch."""


def applying_torch(lines: Sequence[tuple[str, str]], values: dict[str, Any]) -> General | None:
    """The first rule that holds for a module."""
    return next((rule for rule, holds in TORCH_RULES if holds(lines, values)), None)


RANDOM_RELAY: Final = frozenset(
    [
        "random.uniform", "random.normal", "random.multinomial", "random.threefry_generate", "nn.dropout",
        "random.bernoulli"
    ]
)
"""Operators of Relay that draw numbers."""
