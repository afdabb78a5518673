"""Operators of memory: blocks, tensors inside them, and ends of lifetimes that passes keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import ShapeError
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op import memory


def program(body: str, params: str = "") -> tvm.IRModule:
    mod = tvm.IRModule()
    mod.import_from_std("core.rly")
    return relay.parse(f'#[version = "0.0.5"]\ndef @main({params}) {{ {body} }}', "test", mod, {})


def storage() -> relay.Var:
    return relay.Var("block", memory.STORAGE)


def test_tensors_in_one_block_share_its_bytes() -> None:
    mod = program(
        "let %b = memory.alloc_storage(32i64, 64i64, virtual_device=\"cpu:0\"); "
        "(memory.alloc_tensor(%b, 0i64, %s, const_shape=[2]), memory.alloc_tensor(%b, 8i64, %s, assert_shape=[4]))",
        "%s: Tensor[(1), int64]")
    first, second = evaluate(mod, np.array([2]))
    assert (np.asarray(first).shape, np.asarray(second).shape) == ((2,), (4,))


def test_the_sizes_of_a_tensor_in_a_block() -> None:
    sizes = relay.const(np.array([1, 2]), "int64")
    known = memory.alloc_tensor(storage(), relay.const(0, "int64"), sizes, "int8")
    assert known.checked_type == relay.TensorType((1, 2), "int8")
    assert memory.alloc_tensor(storage(), 0, [1, 2]).checked_type == relay.TensorType((1, 2), "float32")
    shape = relay.var("s", shape=(3,), dtype="int64")
    assert memory.alloc_tensor(storage(), 0, shape).tensor_type.ndim == 3
    assert memory.alloc_storage(64, 8, "cpu:0").checked_type == memory.STORAGE


def test_wrong_arguments() -> None:
    x = relay.var("x", shape=(2,), dtype="int64")
    cases: tuple[tuple[Callable[[], Any], str], ...] = (
        (lambda: memory.alloc_storage(x, 8, "cpu:0"), "size must be one integer, and it is"),
        (lambda: memory.alloc_storage(8, 8.0, "cpu:0"), "alignment must be one integer, and it is float32"),
        (lambda: memory.alloc_tensor(x, 0, [2]), r"storage must be of the type Storage\[\], and it is"),
        (lambda: memory.alloc_tensor(storage(), 0, relay.const(2, "int64")), "shape must be a vector of a known"),
        (lambda: memory.AllocTensor(const_shape=(1,))(storage(), 0, x), r"shape has 2 elements, and const_shape is"))
    for call, message in cases:
        with pytest.raises(ShapeError, match=message):
            call()


def test_ends_of_lifetimes_keep_their_place() -> None:
    """let %b = alloc_storage(…); let %_ = kill(%b); 0 -> let %_ = kill(alloc_storage(…)); 0"""
    mod = program("let %b = memory.alloc_storage(8i64, 8i64, virtual_device=\"cpu:0\"); let %_ = memory.kill(%b); 0")
    after = relay.transform.DeadCodeElimination(inline_once=True)(mod)
    body = after["main"].body
    assert isinstance(body, relay.Let)
    kill: Any = body.value
    assert (kill.op.name, kill.args[0].op.name) == ("memory.kill", "memory.alloc_storage")
