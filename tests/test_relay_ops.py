"""What holds for every operator: its type is that of its reference, and its compute, layouts and simplification mean
the same."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import daily
from host_examples import HOST_EXAMPLES
from op_examples import EXAMPLES, OWN, Example
from te_numpy import evaluate as evaluate_te
from tilewright import te
from tilewright.base.types import DataType, TensorType, TupleType, Type
from tilewright.relay.expr import Call, Function, Tuple
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.registry import Op, get
from tilewright.scalar.expr import Var as Symbol

examples = pytest.mark.parametrize(
    "example", daily.of_each(EXAMPLES, lambda e: e.op.name, 2, "operators"), ids=lambda e: e.id
)


def close(found: Any, wanted: Any) -> None:
    """Equal shapes, dtypes and values, floats to a few parts in a hundred thousand."""
    if isinstance(wanted, tuple):
        assert isinstance(found, tuple)
        for f, w in zip(found, wanted, strict=True):
            close(f, w)
        return
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype.kind in "fV":
        np.testing.assert_allclose(found, wanted, rtol=5e-5, atol=2e-5)
    else:
        np.testing.assert_array_equal(found, wanted)


def test_every_operator_has_an_example() -> None:
    assert sorted(set(OWN) - {e.op.name for e in (*EXAMPLES, *HOST_EXAMPLES)}) == []


def test_every_operator_says_what_it_means() -> None:
    assert [n for n, cls in OWN.items() if not (cls.__doc__ or "").strip()] == []


@examples
def test_infer_is_the_type_of_the_reference(example: Example) -> None:
    _, call = example.call()
    found, value = call.checked_type, example.expected()
    values = value if isinstance(value, tuple) else (value,)
    types = found.fields if isinstance(found, TupleType) else (found,)
    assert types == tuple(TensorType(v.shape, DataType(v.dtype)) for v in values)


@examples
def test_compute_means_the_reference(example: Example) -> None:
    if type(example.op).compute is Op.compute:
        assert example.op.name in WITHOUT_COMPUTE
        return
    tensors = [te.placeholder(a.shape, DataType(a.dtype), f"x{k}") for k, a in enumerate(example.inputs)]
    made = example.op.compute(tensors) if example.op.variadic else example.op.compute(*tensors)
    close(evaluate_te(made, dict(zip(tensors, example.inputs, strict=True))), example.expected())


WITHOUT_COMPUTE = {"nn.batch_norm", "nn.cross_entropy", "nn.cross_entropy_with_logits", "nn.dropout", "nn.group_norm"}
"""Simplified away, or run by their reference."""


@examples
def test_simplified_calls_mean_the_same(example: Example) -> None:
    params, call = example.call()
    simpler = example.op.simplify(call)
    if simpler is None:
        return
    assert simpler.checked_type == call.checked_type
    close(evaluate(Function(tuple(params), simpler), *example.inputs), example.expected())


def _orders(example: Example) -> list[tuple[tuple[int, ...] | None, ...]]:
    """Ways in which the inputs may be stored: all of the highest rank in one order, or only the first."""
    ndim = max((a.ndim for a in example.inputs), default=0)
    if ndim not in (3, 4, 5):
        return []
    last = (0, *range(2, ndim), 1)
    odd = (1, *range(2, ndim), 0)
    found: list[tuple[tuple[int, ...] | None, ...]] = []
    for perm in (last, odd):
        found.append(tuple(perm if a.ndim == ndim else None for a in example.inputs))
        found.append(tuple(perm if k == 0 and a.ndim == ndim else None for k, a in enumerate(example.inputs)))
    return [*found, (None,) * len(example.inputs)]


def _stored(x: np.ndarray[Any, Any], perm: tuple[int, ...] | None) -> np.ndarray[Any, Any]:
    if perm is None or x.ndim == 0:
        return x
    return x.reshape((1,) * (len(perm) - x.ndim) + x.shape).transpose(perm)


@examples
def test_relaid_operators_mean_the_same(example: Example) -> None:
    for perms in _orders(example):
        how = example.op.relayout(perms)
        if how is None:
            continue
        other, wanted, order = how
        inputs = tuple(_stored(x, p) for x, p in zip(example.inputs, wanted, strict=True))
        relaid = Example(other, inputs)
        assert relaid.call()[1].known_type() is not None
        value, expected = relaid.expected(), example.expected()
        if isinstance(expected, tuple):
            close(value, tuple(_stored(e, order) for e in expected))
        else:
            close(value, _stored(expected, order))


def test_convolutions_ask_for_channels_last() -> None:
    convolutions = [e for e in EXAMPLES if e.op.name == "nn.conv2d" and e.op.attributes()["data_layout"] == "NCHW"]
    assert convolutions
    for e in convolutions:
        how = e.op.relayout((None, None))
        assert how is not None
        assert (how[1], how[2]) == (((0, 2, 3, 1), (2, 3, 1, 0)), (0, 2, 3, 1))
        assert (how[0].attributes()["data_layout"], how[0].attributes()["kernel_layout"]) == ("NHWC", "HWIO")


def test_variadic_examples_are_tuples() -> None:
    variadic = [e for e in EXAMPLES if e.op.variadic]
    assert variadic
    assert all(isinstance(e.call()[1].args[0], Tuple) for e in variadic)


def test_equal_parts_of_a_symbolic_dimension_have_one_type() -> None:
    from tilewright.relay.op import transform

    n = Symbol("n")
    part = TensorType((n * 4 // 2, 3))
    assert transform.Split(2).infer(TensorType((n * 4, 3))) == TupleType((part, part))


def test_symbolic_dimensions() -> None:
    """Types follow a batch and a length that are not known."""
    from tilewright.relay.op import broadcast, elementwise, nn, reduction, shaping, transform

    n, m = Symbol("n"), Symbol("m")
    image = TensorType((n, 3, 8, m))
    cases: list[tuple[Op, tuple[Type, ...], tuple[Any, ...]]] = [
        (elementwise.Exp(), (image,), (n, 3, 8, m)),
        (broadcast.Add(), (image, TensorType((3, 1, 1))), (n, 3, 8, m)),
        (broadcast.Add(), (image, TensorType((m,))), (n, 3, 8, m)),
        (broadcast.Add(), (TensorType((n, 1)), TensorType((5,))), (n, 5)),
        (nn.Conv2d((2,), (1,)), (image, TensorType((4, 3, 3, 3))), (n, 4, 4, (m + 1) // 2)),
        (nn.MaxPool2d((2,), (2,)), (image,), (n, 3, 4, m // 2)),
        (reduction.Mean((2, 3)), (image,), (n, 3)),
        (transform.Transpose((0, 2, 3, 1)), (image,), (n, 8, m, 3)),
        (transform.Concatenate(0), (TupleType((image, image)),), (n + n, 3, 8, m)),
        (shaping.Reshape((0, -1)), (TensorType((n, 3, 8)),), (n, 24)),
        (shaping.Reshape((-1, 24)), (TensorType((n, 3, 8)),), (n, 24)),
        (nn.Dense(), (TensorType((n, 5)), TensorType((4, 5))), (n, 4)),
        (nn.BatchFlatten(), (TensorType((n, 3, 8)),), (n, 24)),
    ]
    for op, types, shape in cases:
        found = op.infer(*types)
        assert isinstance(found, TensorType)
        assert found == TensorType(shape), op


def test_reshape_of_every_small_shape_computes_the_same() -> None:
    from tilewright.relay.op.shaping import Reshape

    shapes = [s for r in range(4) for s in itertools.product((1, 2, 3, 4, 6), repeat=r) if np.prod(s) == 12]
    for old, new in itertools.product(shapes, shapes):
        x = np.arange(12.0, dtype="float32").reshape(old)
        t = te.placeholder(old, "float32", "x")
        np.testing.assert_array_equal(evaluate_te(Reshape(new).compute(t), {t: x}), x.reshape(new))


def test_operators_are_values() -> None:
    conv2d, pad, softmax = map(get, ("nn.conv2d", "nn.pad", "nn.softmax"))
    assert conv2d(padding=1) == conv2d(padding=(1, 1, 1, 1)) == conv2d(padding=[1, 1])
    assert hash(pad([[0, 0], [1, 1]])) == hash(pad(((0, 0), (1, 1))))
    assert softmax(1) != softmax(2)


def test_calls_keep_their_span() -> None:
    from tilewright import relay
    from tilewright.base.errors import Origin

    origin = Origin("relu_1", "Relu")
    call = relay.nn.relu(relay.var("x", shape=(2,)), span=origin)
    assert isinstance(call, Call)
    assert call.span is origin
