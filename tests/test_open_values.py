"""Symbolic sizes as values: arithmetic whose result has another sign or a special meaning for small sizes."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import tilewright
from small_models import onnxruntime_answers
from tilewright.base.errors import CompileError, OpenSizeWarning

pytestmark = pytest.mark.slow
SIZES = (1, 2, 3, 4, 6, 9)
ONE = "float[n, 4] x"
TWO = "float[n, 4] x, float[m] z"


def model(inputs: str, body: str) -> onnx.ModelProto:
    """A model of this text with the result `y`; `n` and `m` are the first sizes of `x` and `z`, `c3` is a vector of 3,
    and `minus3` of -3."""
    numbers = ", ".join(
        [f"int64[1] c{k} = {{{k}}}" for k in range(6)] + [f"int64[1] minus{k} = {{-{k}}}" for k in range(1, 4)])
    sizes = "n = Shape<start: int = 0, end: int = 1>(x)\n" + (
        "m = Shape<start: int = 0, end: int = 1>(z)\n" if " z" in inputs else "")
    made = parser.parse_model(
        f'<ir_version: 9, opset_import: ["": 18]> g ({inputs}) => (float y) <{numbers}, float zero = {{0}}> '
        f"{{ {sizes}{body} }}")
    made.graph.output[0].type.Clear()
    return made


def answered(of: onnx.ModelProto, feeds: Mapping[str, Any]) -> Any:
    """The answer of ONNX Runtime; None where it refuses the sizes."""
    try:
        (found,) = onnxruntime_answers(of, feeds)
    except Exception:  # its classes have no common base
        return None
    return found


def check(inputs: str, body: str) -> None:
    """Compare one program with ONNX Runtime at all sizes that it takes."""
    of = model(inputs, body)
    with warnings.catch_warnings():
        warnings.simplefilter("error", OpenSizeWarning)
        program = tilewright.compile(of, threads=1)
    names = sorted({d.dim_param for i in of.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param})
    served = 0
    for numbers in itertools.product(SIZES, repeat=len(names)):
        sizes = dict(zip(names, numbers, strict=True))
        feeds = {
            i.name: np.random.default_rng(0).standard_normal(
                [sizes.get(d.dim_param, d.dim_value) for d in i.type.tensor_type.shape.dim]).astype(np.float32)
            for i in of.graph.input}
        wanted = answered(of, feeds)
        if wanted is None:  # whether it is refused is not compared: an empty tensor has many shapes
            continue
        try:
            found = program(**feeds)
        except CompileError:
            continue
        assert found.shape == wanted.shape, sizes
        np.testing.assert_allclose(found, wanted, rtol=1e-5, err_msg=str(sizes))
        served += 1
    assert served >= 2


@pytest.mark.parametrize(("inputs", "body"), [
    (ONE, "e = Sub(n, c1) s = Concat<axis = 0>(c4, e) z = Slice(x, c1, n, c0) y = Reshape(z, s)"),
    (ONE, "e = Sub(n, c1) s = Concat<axis = 0>(e, c4) z = Slice(x, c1, n, c0) y = Reshape(z, s)"),
    (ONE, "e = Sub(n, c2) s = Concat<axis = 0>(e, minus1) y = Reshape(x, s)"),
    ("float[a, n, n] x", "p = Slice(x, c1, c5, c2) s = Shape(p) a = Gather(s, c2) b = Gather(s, c1) "
     "w = Gather(s, c0) t = Concat<axis = 0>(a, w, b) y = Reshape(p, t)"),
])
def test_a_size_of_zero_in_a_new_shape_stands_for_a_dimension(inputs: str, body: str) -> None:
    check(inputs, body)


@pytest.mark.parametrize("text", ["c5, c4", "m, c4", "e, c4"])
def test_a_dimension_of_one_is_repeated(text: str) -> None:
    check(TWO, f"e = Add(m, c1) s = Concat<axis = 0>({text}) y = Expand(x, s)")


def test_a_dimension_of_one_that_is_computed_is_repeated() -> None:
    check(ONE, "e = Sub(n, c2) z = Slice(x, c1, n, c0) s = Concat<axis = 0>(e, c4) y = Expand(z, s)")


@pytest.mark.parametrize("text", [
    "e = Sub(n, c5) f = Div(e, c2) g = Add(f, c4)", "f = Div(minus3, n) g = Add(f, c4)",
    "f = Div(n, minus2) g = Add(f, c5)", "d = Concat<axis = 0>(n, minus3) f = Div(d, c2) g = Add(f, c4)",
    "e = Sub(n, c3) e2 = Mul(e, c2) e3 = Add(e2, c1) f = Div(c4, e3) g = Add(f, c5)",
])
def test_quotients_are_rounded_toward_zero(text: str) -> None:
    check(ONE, f"{text} y = ConstantOfShape(g)")


@pytest.mark.parametrize("text", [
    "e = Sub(n, c2) q = Equal(e, minus1) g = Where(q, c3, e)",
    "e = Sub(n, c2) q = Cast<to = 9>(e) g = Cast<to = 7>(q)", "e = Sub(n, c2) q = Cast<to = 2>(e) g = Cast<to = 7>(q)",
    "e = Sub(n, c3) g = Abs(e)", "e = Sub(n, c2) g = Max(e, c0)",
])
def test_differences_of_sizes_may_be_negative(text: str) -> None:
    check(ONE, f"{text} y = ConstantOfShape(g)")


@pytest.mark.parametrize("body", [
    "e = Sub(n, c2) s = Concat<axis = 0>(c2, e) v, y = Split<axis = 0>(x, s)", "e = Sub(n, c2) y = ConstantOfShape(e)",
    "e = Sub(n, c2) s = Concat<axis = 0>(e, c1) y = Tile(x, s)",
])
def test_a_negative_dimension_is_refused(body: str) -> None:
    check(ONE, body)
    program = tilewright.compile(model(ONE, body), threads=1)
    with pytest.raises(CompileError, match="dimension 0 of input 'x' is 1"):
        program(np.ones((1, 4), np.float32))


@pytest.mark.parametrize("body", [
    "e = Sub(n, c3) y = Slice(x, e, n, c0)", "e = Sub(n, c3) y = Slice(x, c0, e, c0)",
    "y = Slice(x, minus3, n, c0)", "e = Neg(n) y = Slice(x, e, c2, c0)",
])
def test_bounds_of_slices_may_be_negative(body: str) -> None:
    check(ONE, body)


@pytest.mark.parametrize("body", [
    "e = Sub(m, c2) y = Gather<axis = 0>(x, e)", "e = Sub(m, c1) y, i = TopK<axis = 0>(x, e)",
    "e = Sub(m, c2) s = Concat<axis = 0>(e, c0, c0, c0) y = Pad(x, s, zero)",
    "e = Sub(m, c2) y = Slice(x, c0, e, c0)",
])
def test_values_of_another_size(body: str) -> None:
    check(TWO, body)


BATCH_VALUES = [
    "f = Cast<to: int = 1>(n) p = Mul(x, f) s = Softmax<axis: int = -1>(x) y = Add(p, s)",
    "o = Expand(one, n) t = ReduceSum<keepdims: int = 0>(o) s = Softmax<axis: int = -1>(x) y = Add(s, t)",
    "v, i = TopK<axis: int = 1>(wide, n) y = ReduceSum<keepdims: int = 0>(v, c1)",
]
"""Rows that are independent of each other, but for the number of rows."""


@pytest.mark.parametrize("body", BATCH_VALUES)
def test_one_image_after_another_reads_the_size_of_the_whole_batch(body: str) -> None:
    of = model(ONE, f"one = Cast<to: int = 1>(c1) wide = Concat<axis: int = 1>(x, x, x, x) {body}")
    program = tilewright.compile(of, threads=1, config={"relay.SplitBatch.images": 1})
    for n in SIZES:
        x = np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)
        np.testing.assert_allclose(program(x), onnxruntime_answers(of, {"x": x})[0], rtol=1e-5, atol=1e-6)
