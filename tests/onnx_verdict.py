"""What the answers of a conformance case are compared with.

The files of a case hold what one implementation computed on one day. Where ours differ from them, ONNX's own reference implementation of the
installed release is asked, and its word is the specification's: older releases of the suite had mistakes that newer ones mended, and
implementations that optimise a model may round where it does not. Numbers that a model draws are compared by their distribution.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator

Array = np.ndarray[Any, Any]
RANDOM = frozenset({"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"})
LIKELY = 2.2
"""Times sqrt(1/n + 1/m): two samples of one distribution differ by more than that in one case of ten thousand (Kolmogorov and Smirnov)."""


def verdict(model: onnx.ModelProto, inputs: Sequence[Any], wanted: Sequence[Any], got: Sequence[Any], rtol: float, atol: float) -> str:
    """Empty where `got` is what is wanted; where only the reference implementation says so, what the files say. Raises `AssertionError`."""
    drawn = drawn_outputs(model)
    try:
        compare(wanted, got, rtol, atol, drawn)
    except AssertionError as error:
        by_reference = reference(model, inputs)
        if by_reference is None:
            raise
        try:
            compare(by_reference, got, rtol, atol, drawn)
        except AssertionError:
            raise error from None
        return " ".join(str(error).split())[:300]
    return ""


def compare(wanted: Sequence[Any], got: Sequence[Any], rtol: float, atol: float, drawn: Sequence[bool] = ()) -> None:
    """As the suite compares, by its tolerances; a sequence element by element, since its runner takes an array in one for a list of numbers."""
    if len(wanted) != len(got):
        raise AssertionError(f"{len(wanted)} values were expected, and there are {len(got)}")
    for a, b, by_chance in zip(wanted, got, drawn or [False] * len(got), strict=True):
        if isinstance(a, list) and isinstance(b, list):
            compare(a, b, rtol, atol)
        else:
            try:
                Runner.assert_similar_outputs([a], [b], rtol, atol)
            except AssertionError:
                if not by_chance:
                    raise
                compare_samples(a, b)


def compare_samples(wanted: Array, got: Array) -> None:
    """Raises `AssertionError` where two arrays are not of one shape and type, or hardly of one distribution."""
    if wanted.shape != got.shape or wanted.dtype != got.dtype:
        raise AssertionError(f"{wanted.dtype}{list(wanted.shape)} was expected, and there is {got.dtype}{list(got.shape)}")
    a, b = np.sort(wanted, axis=None), np.sort(got, axis=None)
    everything = np.concatenate((a, b))
    shares = [np.searchsorted(x, everything, side="right") / max(1, x.size) for x in (a, b)]
    apart = float(np.max(np.abs(shares[0] - shares[1]), initial=0))
    if apart > LIKELY * np.sqrt(2 / max(1, a.size)):
        raise AssertionError(f"the {a.size} numbers drawn are distributed otherwise than those expected: {apart:.2f} of them lie elsewhere")


def drawn_outputs(model: onnx.ModelProto) -> list[bool]:
    """Which outputs of the model come of random numbers."""
    found = {f.name for f in model.functions if any(map(draws, f.node))} | RANDOM
    drawn: set[str] = set()
    for node in model.graph.node:
        if draws(node, found) or drawn.intersection(node.input):
            drawn.update(node.output)
    return [o.name in drawn for o in model.graph.output]


def draws(node: onnx.NodeProto, operators: Iterable[str] = RANDOM) -> bool:
    """Whether the node, or one in its subgraphs, is one of these operators; Dropout draws when it is told the mode."""
    if node.op_type in operators and (node.op_type != "Dropout" or len(node.input) > 2):
        return True
    return any(draws(n, operators) for a in node.attribute for n in a.g.node)


def reference(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any] | None:
    """What ONNX's reference implementation computes; None for a model that it cannot run."""
    needed = [i.name for i in model.graph.input if i.name not in {t.name for t in model.graph.initializer}]
    try:
        return list(ReferenceEvaluator(model).run(None, dict(zip(needed, inputs, strict=False))))
    except Exception:  # it raises whatever numpy does for an operator or a type that it does not know
        return None


def made_up(model: onnx.ModelProto) -> list[Array]:
    """Inputs for a case that has none: numbers between 0 and 1, or 0 and 1."""
    stored = {t.name for t in model.graph.initializer}
    return [*_made_up(i for i in model.graph.input if i.name not in stored)]


def _made_up(inputs: Iterable[onnx.ValueInfoProto]) -> Iterator[Array]:
    random = np.random.default_rng(0)
    for i in inputs:
        kind = i.type.tensor_type
        shape = [d.dim_value or 1 for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        yield (random.random(shape) if dtype.kind == "f" else random.integers(0, 2, shape)).astype(dtype)


def as_declared(value: Any, kind: onnx.TypeProto) -> Any:
    """The value of a file: older releases stored bfloat16 as the bits of uint16."""
    if isinstance(value, np.ndarray) and value.dtype == np.uint16 and kind.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:
        return value.view(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16))
    return value


def plain(x: Any) -> Any:
    """Of the protobufs of tensors, sequences and optionals the arrays, lists and None that they hold."""
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    if isinstance(x, onnx.SequenceProto):
        return numpy_helper.to_list(x)
    if isinstance(x, onnx.OptionalProto):
        return numpy_helper.to_optional(x)
    return [*map(plain, x)] if isinstance(x, (list, tuple)) else x
