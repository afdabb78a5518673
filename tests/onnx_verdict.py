"""What the answers of a conformance case are compared with: the files of the case, within its tolerances, or what rules
where these do not.

The files hold what one implementation computed on one day. A few cases of the installed release have a check of their
own (`APART`). Elsewhere, where ours differ from the files, ONNX's own reference implementation of the installed release
is asked, and its word is the specification's: older releases of the suite had mistakes that newer ones mended, and
implementations that optimise a model may round where it does not. Numbers that a model draws are compared by their
distribution.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator

Array = np.ndarray[Any, Any]
Values = Sequence[Any]
RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"}
)
LIKELY = 2.2
"""Times sqrt(1/n + 1/m): two samples of one distribution differ by more than that in one case of ten thousand
(Kolmogorov and Smirnov)."""


@dataclass(frozen=True)
class Answer:
    """The outputs of a case's model, and what they should be."""

    name: str
    model: onnx.ModelProto
    given: Values
    wanted: Values
    got: Values
    rtol: float
    atol: float


def verdict(answer: Answer) -> str:
    """Empty where the answer is what the files say; why they say otherwise, where it is right. Raises `AssertionError`
    where it is wrong."""
    try:
        similar(answer)
    except AssertionError as error:
        if answer.name in APART:
            why, check = APART[answer.name]
            check(answer)
            return why
        drawn = drawn_outputs(answer.model)
        if any(drawn) and _holds(by_chance, answer, drawn):
            return ""
        expected = reference(answer.model, answer.given)
        if expected is None or not _holds(by_chance, replace(answer, wanted=expected), drawn):
            raise
        return (
            "ONNX's reference implementation has the same answer, and the files another: "
            f"{' '.join(str(error).split())[:200]}"
        )
    return ""


def similar(answer: Answer) -> None:
    """As the suite compares, by its tolerances; a sequence element by element, since its runner takes an array in one
    for a list of numbers."""
    for a, b in _pairs(answer):
        if isinstance(a, list) and isinstance(b, list):
            similar(replace(answer, wanted=a, got=b))
        else:
            Runner.assert_similar_outputs([a], [b], answer.rtol, answer.atol, answer.name)


def _pairs(answer: Answer) -> list[tuple[Any, Any]]:
    if len(answer.wanted) != len(answer.got):
        raise AssertionError(f"{len(answer.wanted)} values were expected, and there are {len(answer.got)}")
    return [*zip(answer.wanted, answer.got, strict=True)]


def by_chance(answer: Answer, drawn: Sequence[bool]) -> None:
    """The same, with those outputs that are `drawn` compared as samples."""
    for chosen, (a, b) in zip(drawn, _pairs(answer), strict=True):
        one = replace(answer, wanted=[a], got=[b])
        if not (chosen and isinstance(a, np.ndarray)) or _holds(similar, one):
            similar(one)
        else:
            compare_samples(a, b)


def _holds(check: Callable[..., None], *args: Any) -> bool:
    try:
        check(*args)
    except AssertionError:
        return False
    return True


def zeros_and_ones(answer: Answer) -> None:
    """The answers are arrays of the expected shapes and types, of zeros and ones."""
    for a, b in zip(answer.wanted, answer.got, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype) and set(np.unique(b)) <= {0, 1}, answer.name


def exact_inverse(answer: Answer) -> None:
    """The answer is the inverse Fourier transform of the first input along its second dimension, computed in double
    precision."""
    found = np.fft.ifft(answer.given[0].astype(np.float64) @ np.array([1, 1j]), axis=1)
    similar(replace(answer, wanted=[np.stack([found.real, found.imag], -1).astype(answer.wanted[0].dtype)]))


def corners_kept(answer: Answer) -> None:
    """The answer is that of the reference implementation for a resize to the same lengths, given as `sizes` in place of
    `scales`."""
    node = answer.model.graph.node[0]
    resize = onnx.helper.make_node("Resize", [node.input[0], "", "", "sizes"], list(node.output))
    resize.attribute.extend(node.attribute)
    sizes = numpy_helper.from_array(np.array(answer.got[0].shape, np.int64), "sizes")
    graph = onnx.helper.make_graph([resize], "g", answer.model.graph.input[:1], answer.model.graph.output, [sizes])
    expected = reference(onnx.helper.make_model(graph, opset_imports=answer.model.opset_import), answer.given[:1])
    assert expected is not None, answer.name
    similar(replace(answer, wanted=expected))


def dropped(answer: Answer) -> None:
    """The elements of the first input are 0 or made larger, as many as is likely; a second output says which are
    kept."""
    x, ratio = answer.given[0], float(answer.given[1])
    y, *masks = answer.got
    compare_samples(answer.wanted[0] != 0, y != 0)
    similar(replace(answer, wanted=[np.where(y != 0, x / (1 - ratio), 0).astype(x.dtype), *[y != 0] * len(masks)]))


_OWN_NUMBERS = (
    "ONNX leaves random numbers to the implementation, even with a seed; the tests compare the shape and the type, and "
    "that all values are 0 or 1"
)
_OWN_MASK = (
    "ONNX leaves the choice of dropped elements to the implementation; the tests compare their number, and all other "
    "elements"
)
_IN_SINGLE = (
    "the expected values were computed in single precision, with errors beyond the tolerance; the tests compare with "
    "an inverse transform in double precision"
)
_CORNERS = (
    "the specification's formula keeps the corners of the result, whose length is a whole number; the expected values "
    "were computed with the fractional length; "
            "a resize to the same sizes is compared")
APART: dict[str, tuple[str, Callable[[Answer], None]]] = {
    **{
        f"node/test_bernoulli{kind}": (_OWN_NUMBERS, zeros_and_ones)
        for kind in itertools.chain(*((k, f"{k}_expanded") for k in ("", "_double", "_seed")))
    },
    **{
        f"node/test_training_dropout{kind}": (_OWN_MASK, dropped) for kind in ("", "_mask", "_default", "_default_mask")
    },
    **{
        f"node/test_resize_downsample_scales_{mode}_align_corners": (_CORNERS, corners_kept)
        for mode in ("linear", "cubic")
    },
    **{f"node/test_dft_inverse{kind}": (_IN_SINGLE, exact_inverse) for kind in ("", "_opset19")},
}
"""Cases whose values are not what the specification says they must be: why, and what is compared in place of them."""


def compare_samples(wanted: Array, got: Array) -> None:
    """Raises `AssertionError` where two arrays are not of one shape and type, or hardly of one distribution."""
    if wanted.shape != got.shape or wanted.dtype != got.dtype:
        raise AssertionError(
            f"{wanted.dtype}{list(wanted.shape)} was expected, and there is {got.dtype}{list(got.shape)}"
        )
    a, b = np.sort(wanted, axis=None), np.sort(got, axis=None)
    everything = np.concatenate((a, b))
    shares = [np.searchsorted(x, everything, side="right") / max(1, x.size) for x in (a, b)]
    apart = float(np.max(np.abs(shares[0] - shares[1]), initial=0))
    if apart > LIKELY * np.sqrt(2 / max(1, a.size)):
        raise AssertionError(
            f"the {a.size} numbers drawn are distributed otherwise than those expected: {apart:.2f} of them lie "
            "elsewhere"
        )


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


def reference(model: onnx.ModelProto, inputs: Values) -> list[Any] | None:
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
    if isinstance(
        value, np.ndarray
    ) and value.dtype == np.uint16 and kind.tensor_type.elem_type == onnx.TensorProto.BFLOAT16:
        return value.view(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16))
    return value


def redeclare(model: onnx.ModelProto, inputs: Values) -> None:
    """Give inputs the shapes of their data, where these contradict what the model says: older releases declared a few
    wrongly."""
    for i, x in zip(model.graph.input, inputs, strict=False):
        declared = i.type.tensor_type.shape.dim
        if isinstance(x, np.ndarray) and i.type.tensor_type.HasField("shape") and not _fits(x.shape, declared):
            i.CopyFrom(onnx.helper.make_tensor_value_info(i.name, i.type.tensor_type.elem_type, x.shape))


def _fits(shape: tuple[int, ...], declared: Sequence[Any]) -> bool:
    return len(shape) == len(declared) and all(
        not d.HasField("dim_value") or d.dim_value == size for d, size in zip(declared, shape, strict=True)
    )


def plain(x: Any) -> Any:
    """Of the protobufs of tensors, sequences and optionals the arrays, lists and None that they hold."""
    if isinstance(x, onnx.TensorProto):
        return numpy_helper.to_array(x)
    if isinstance(x, onnx.SequenceProto):
        return numpy_helper.to_list(x)
    if isinstance(x, onnx.OptionalProto):
        return numpy_helper.to_optional(x)
    return [*map(plain, x)] if isinstance(x, (list, tuple)) else x
