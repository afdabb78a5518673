"""ONNX models evaluated by the two references, node by node where values between the nodes are asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

from tilewright.base.types import DataType

Array = np.ndarray[Any, Any]
Values = Mapping[str, Any]
IR_VERSION: Final = 10
EXACT: Final = frozenset(
    [
        "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Tile", "Slice", "Concat",
        "Split", "Gather", "GatherElements", "GatherND", "Pad", "Neg", "Abs", "Relu", "Max", "Min", "Where", "Clip",
        "MaxPool", "GlobalMaxPool", "ScatterElements", "ScatterND", "Constant", "ConstantOfShape", "Cast", "CastLike",
        "Shape", "Size", "Floor", "Ceil", "Round", "Sign", "DepthToSpace", "SpaceToDepth", "ReverseSequence", "Trilu",
        "EyeLike", "OneHot", "TopK", "ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "NonZero", "Compress", "Unique",
        "Range", "QuantizeLinear", "DequantizeLinear", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual",
        "And", "Or", "Not", "Xor", "IsNaN", "IsInf", "Hardmax", "Dropout", "BitCast", "Upsample", "ReduceMax"
    ]
)
"""Operators whose floats are not rounded, or rounded by definition."""
SUMS: Final = frozenset(
    [
        "ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp",
        "ReduceProd", "MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "AveragePool", "GlobalAveragePool", "LpPool",
        "GlobalLpPool", "Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization", "GroupNormalization",
        "RMSNormalization", "BatchNormalization", "MeanVarianceNormalization", "LRN", "LpNormalization", "LSTM", "GRU",
        "RNN", "CumSum", "Sum", "Mean", "Resize", "GridSample", "Attention", "DFT", "STFT", "RoiAlign", "AffineGrid",
        "Det", "DeformConv", "LinearAttention", "FlexAttention", "CausalConvWithState", "SoftmaxCrossEntropyLoss",
        "CumProd", "NegativeLogLikelihoodLoss", "Col2Im", "RotaryEmbedding", "TreeEnsemble", "MelWeightMatrix", "SwiGLU"
    ]
)
"""Operators with sums inside: the order of their terms is free, so a rounding of the inputs says how sure the result
is."""


class NoAnswer(Exception):
    """A reference refuses the model, or cannot run it."""


def reference(model: onnx.ModelProto, feeds: Values) -> list[Any]:
    """The outputs by ONNX's reference implementation."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return list(ReferenceEvaluator(model).run(None, dict(feeds)))
        except Exception as error:  # it raises whatever numpy does
            raise NoAnswer(f"{type(error).__name__}: {str(error)[:200]}") from None


def runtime(model: onnx.ModelProto, feeds: Values) -> list[Any]:
    """The outputs by ONNX Runtime, without its rewriting of graphs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, dict(feeds)))
    except Exception as error:  # its classes have no common base
        raise NoAnswer(f"{type(error).__name__}: {str(error)[:200]}") from None


REFERENCES: Final[
    Mapping[str, Callable[[onnx.ModelProto, Values], list[Any]]]
] = {"onnxruntime": runtime, "onnx": reference}


def free_names(node: NodeProto) -> list[str]:
    """The values that a node reads, with those that its subgraphs read from outside."""
    found = [n for n in node.input if n]
    for a in node.attribute:
        for graph in [*([a.g] if a.HasField("g") else []), *a.graphs]:
            inside = {i.name for i in graph.input} | {t.name for t in graph.initializer} | {
                o for n in graph.node for o in n.output
            }
            found += [name for n in graph.node for name in free_names(n) if name not in inside]
            found += [o.name for o in graph.output if o.name not in inside]
    return [*dict.fromkeys(found)]


def single(node: NodeProto, values: Values, opsets: Sequence[Any]) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model of one node, and its inputs."""
    fed = {name: values[name] for name in free_names(node)}
    inputs = [helper.make_value_info(name, type_of(value)) for name, value in fed.items()]
    outputs = [onnx.ValueInfoProto(name=o) for o in node.output if o]
    return helper.make_model(
        helper.make_graph([node], "one", inputs, outputs), opset_imports=opsets, ir_version=IR_VERSION
    ), fed


def type_of(value: Any) -> onnx.TypeProto:
    """The type of an array or of a list of arrays."""
    if isinstance(value, list):
        first = next((v for v in value if v is not None), None)
        return helper.make_sequence_type_proto(
            helper.make_tensor_type_proto(TensorProto.FLOAT, None) if first is None else type_of(first)
        )
    return helper.make_tensor_type_proto(element(value.dtype), value.shape)


def element(dtype: np.dtype[Any]) -> int:
    """The number that ONNX has for an element type."""
    return TensorProto.STRING if dtype.kind in "OSU" else int(helper.np_dtype_to_tensor_dtype(dtype))


def run_node(node: NodeProto, values: Values, opsets: Sequence[Any], first: str = "onnx") -> list[Any]:
    """The results of one node by the reference `first`, or by the other one where that cannot run it."""
    model, fed = single(node, values, opsets)
    for name in sorted(REFERENCES, key=lambda name: name != first):
        try:
            return REFERENCES[name](model, fed)
        except NoAnswer as error:
            refusal = error
    raise refusal


@dataclass
class Steps:
    """The values of a model, computed node by node."""

    model: onnx.ModelProto
    feeds: Values

    def start(self) -> dict[str, Any]:
        stored = {t.name: onnx.numpy_helper.to_array(t) for t in self.model.graph.initializer}
        return {**stored, **self.feeds}

    def values(self, first: str = "onnx") -> dict[str, Any]:
        """Every value by name, computed by the reference `first` where it can."""
        known = self.start()
        for node in self.model.graph.node:
            results = run_node(node, known, self.model.opset_import, first)
            known.update(zip([o for o in node.output if o], results, strict=False))
        return known

    def outputs(self, known: Values) -> list[Any]:
        return [known[o.name] for o in self.model.graph.output]

    def exact(self) -> list[Any]:
        """The outputs with every float in float64."""
        return self.outputs(self._wide(None))

    def shaken(self, seed: int) -> list[Any]:
        """The outputs in float64, with a rounding error of random size in each result that float32 would round."""
        return self.outputs(self._wide(np.random.default_rng(seed)))

    def _wide(self, random: np.random.Generator | None) -> dict[str, Any]:
        known = {name: widened(v) for name, v in self.start().items()}
        narrow = any(np.asarray(v).dtype.itemsize < 4 for v in self.start().values() if is_floating(v))
        amount = 2.0**-10 if narrow else 2.0**-22
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            for node in self.model.graph.node:
                read = known
                if random is not None and node.op_type in SUMS:
                    read = {**known, **{n: shake(known[n], random, amount) for n in node.input if n}}
                results = [widened(v) for v in self._one(node, read)]
                if random is not None and node.op_type not in EXACT:
                    results = [shake(v, random, amount) for v in results]
                known.update(zip([o for o in node.output if o], results, strict=False))
        return known


    def _one(self, node: NodeProto, read: Values) -> list[Any]:
        """The results of a node; in float32 where no reference computes it in float64, or with other shapes."""
        narrow = {n: narrowed(v) for n, v in read.items()}
        try:
            wide = reference(*single(node, read, self.model.opset_import))
        except NoAnswer:
            return run_node(node, narrow, self.model.opset_import)
        try:
            known = runtime(*single(node, narrow, self.model.opset_import))
        except NoAnswer:
            return wide
        return wide if [*map(np.shape, wide)] == [*map(np.shape, known)] else known


def is_floating(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fV" and (
        value.dtype.kind == "f" or DataType(value.dtype).is_float
    )


def widened(value: Any) -> Any:
    """The value in float64 where it is float."""
    if isinstance(value, list):
        return [widened(v) for v in value]
    return value.astype(np.float64) if is_floating(value) else value


def narrowed(value: Any) -> Any:
    """The value in float32 where it is float64."""
    if isinstance(value, list):
        return [narrowed(v) for v in value]
    return value.astype(np.float32) if isinstance(value, np.ndarray) and value.dtype == np.float64 else value


def shake(value: Any, random: np.random.Generator, amount: float) -> Any:
    """The value with relative errors up to `amount`."""
    if not is_floating(value):
        return value
    return value * (1 + amount * random.uniform(-1, 1, value.shape))


def descendants(model: onnx.ModelProto, names: Iterable[str]) -> set[str]:
    """The values that depend on these."""
    found = set(names)
    for node in model.graph.node:
        if found.intersection(free_names(node)):
            found.update(o for o in node.output if o)
    return found
