"""Operators that have a meaning in Python alone: what they give, the types they promise, and programs of which they are
steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from host_examples import HOST_EXAMPLES, HostExample
from op_examples import dtype_of
from tilewright.base.types import TensorType, TupleType
from tilewright.ir import IRModule
from tilewright.relay.expr import Function
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.registry import Op
from tilewright.scalar.expr import UnknownDim

examples = pytest.mark.parametrize(
    "example", HOST_EXAMPLES, ids=[f"{e.op.name}-{k}" for k, e in enumerate(HOST_EXAMPLES)]
)


def same(found: Any, wanted: Any) -> None:
    """Equal dtypes, shapes and values; one array, or as many."""
    for f, w in zip(
        found if isinstance(found, tuple) else (found,), wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        assert (f.dtype, f.shape) == (w.dtype, w.shape)
        np.testing.assert_array_equal(f, w)


@examples
def test_the_reference_gives_what_is_written(example: HostExample) -> None:
    # or it belongs to `op_examples.py`, whose tests compile it
    assert type(example.op).compute is Op.compute or example.op.reads_texts
    same(example.expected(), example.wanted)


@examples
def test_the_type_is_that_of_the_result_as_far_as_sizes_are_known(example: HostExample) -> None:
    _, call = example.call()
    promised = call.checked_type
    values = example.wanted if isinstance(example.wanted, tuple) else (example.wanted,)
    for t, v in zip(promised.fields if isinstance(promised, TupleType) else (promised,), values, strict=True):
        assert isinstance(t, TensorType)
        assert (t.ndim, t.dtype) == (v.ndim, dtype_of(v))
        assert [
            n for n, d in zip(v.shape, t.shape, strict=True) if not isinstance(d, UnknownDim)
        ] == [d for d in t.shape if not isinstance(d, UnknownDim)]


@examples
@pytest.mark.filterwarnings("ignore::tilewright.base.errors.NotNativeWarning")
def test_programs_of_one_operator_give_the_same(example: HostExample) -> None:
    params, call = example.call()
    program = Function(tuple(params), call)
    same(evaluate(program, *example.inputs), example.wanted)
    found = tvm.compile(IRModule.from_expr(program))(*example.inputs)
    same(tuple(found) if isinstance(found, list) else found, example.wanted)
