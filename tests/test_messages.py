"""Messages of errors that no other file of tests leads to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import small_programs as programs
import tilewright
from tilewright import relay, te
from tilewright.backends.cpu.elf import _machine_of
from tilewright.base import nd
from tilewright.base.errors import (
    ArtifactError,
    CompileError,
    InputError,
    InternalError,
    ModelError,
    ScheduleError,
    ShapeError,
    TargetError,
    UndecidedError,
)
from tilewright.base.types import DataType, TensorType
from tilewright.compiler.build import build, build_module
from tilewright.compiler.digests import digest_file
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function, Tuple, TupleGetItem, var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.transform.plan_memory import plan_memory
from tilewright.runtime.library import SharedLibrary
from tilewright.runtime.manifest import Manifest
from tilewright.scalar import expr as E
from tilewright.te.create import create_prim_func
from tilewright.tir.loop_schedule import Schedule
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.topi.shapes import require_static

OPEN = TensorType((E.Var("n"), 4))


def sums(count: int = 1) -> Schedule:
    """The sums of the rows of a matrix; with two, also their products."""
    a, k = te.placeholder((4, 8), name="A"), te.reduce_axis((0, 8), "k")
    if count == 1:
        return Schedule(create_prim_func([a], [te.compute((4,), lambda i: te.sum(a[i, k], axis=k), name="C")]))
    both = te.comm_reducer(lambda x, y: (x[0] + y[0], x[1] * y[1]), lambda s, t: (E.const(0, s), E.const(1, t)))
    made = te.compute((4,), lambda i: both((a[i, k], a[i, k]), axis=k), name="C")
    return Schedule(create_prim_func([a], list(made)))


def vectorize_two_results() -> None:
    s = sums(2)
    s.vectorize(s.axes("C")[1][0])
    lower_blocks(s.func)


def sum_two_results_apart() -> None:
    s = sums(2)
    outer, _ = s.split(s.axes("C")[1][0], [2, None])
    s.annotate(outer, "apart", True)
    lower_blocks(s.func)


x = var("x", shape=(2, 4))
MESSAGES: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "an index as a truth value": (
        lambda: bool(E.Var("i") < 3), UndecidedError,
        r"the value of '\(i < 3\)' is not known at compile time; use if_then_else"
    ),
    "no expression": (
        lambda: E.as_expr("4"), CompileError,  # type: ignore[arg-type]
        r"'4' \(str\) is not a scalar expression"
    ),
    "no width": (lambda: DataType("bool16"), CompileError, r"'bool16' is not a data type: bool takes no width"),
    "no lanes": (lambda: DataType("int8x0"), CompileError, r"'int8x0' is not a data type: it needs at least one lane"),
    "no numpy type": (lambda: DataType("handle").numpy(), CompileError, "handle has no numpy type"),
    "an unknown size": (lambda: OPEN.size, CompileError, r"the size of .* is not known: dimension n is symbolic"),
    "another type without a copy": (
        lambda: np.asarray(nd.array([1.0]), "int8", copy=False), ValueError,
        "array cannot be viewed as int8 without a copy"
    ),
    "an untyped variable": (
        lambda: var("y").checked_type, CompileError, "the type of this Var is not known; annotate its variables"
    ),
    "a tuple as a tensor": (lambda: Tuple((x, x)).tensor_type, CompileError, "a tensor is expected, not"),
    "past the last field": (lambda: Tuple((x, x))[2], IndexError, "field 2 is out of range for a tuple of 2"),
    "a free variable": (lambda: evaluate(Function((), x)), CompileError, "the variable 'x' is not bound here"),
    "no such function": (
        lambda: evaluate(Function((x,), relay.Call(relay.GlobalVar("f"), [x])), np.zeros((2, 4), "float32")),
        CompileError,
        "the function @f is not in the module",
    ),
    "a static shape": (
        lambda: require_static(OPEN, "the weight"), ShapeError,
        r"the shape \(n, 4\) of the weight is symbolic, but must be static"
    ),
    "a field of a tensor": (
        lambda: plan_memory(Function((x,), TupleGetItem(x, 0))), CompileError, "field 0 .*not a tuple|a tuple is"
    ),
    "an open input": (
        lambda: build_module(IRModule.from_expr(Function((v := relay.Var("x", OPEN),), relay.nn.relu(v)))),
        CompileError,
        "symbolic; fix the input shapes before compiling|give its symbolic dimensions a size",
    ),
    "another number of indices": (
        lambda: te.placeholder((2, 3), name="A")[0] + 1, CompileError, "tensor 'A' has 2 dimensions, but was given 1"
    ),
    "extents of an open tensor": (
        lambda: te.placeholder((E.Var("n"),), name="A").extents, CompileError,
        "tensor 'A' has a symbolic shape, but a static one is needed",
    ),
    "a reduction from one": (
        lambda: te.reduce_axis((1, 4), "k"), CompileError, "reduction axis 'k' starts at 1; it must start at 0"
    ),
    "a placeholder left out": (
        lambda: create_prim_func([], [te.compute((2,), te.placeholder((2,), name="A"), name="B")]), CompileError,
        "placeholder 'A' is missing from the arguments",
    ),
    "lanes of two results": (
        vectorize_two_results, ScheduleError,
        "cannot be vectorized along 'k': only sums, products, maxima and minima of one value"
    ),
    "two results apart": (
        sum_two_results_apart, ScheduleError, "has several results; its loop 'k_0' cannot be summed separately"
    ),
    "no ELF": (lambda: _machine_of(b"MZ" + bytes(64)), InternalError, "not 64-bit little-endian ELF"),
    "another entry": (
        lambda: build(Function((x,), relay.nn.relu(x)), "llvm")["main"], InputError,
        "a compiled model has no entry 'main'; it has 'default'",
    ),
    "another thing to time": (
        lambda: build(Function((x,), relay.nn.relu(x)), "llvm")["default"]().time_evaluator("load", tilewright.cpu()),
        InputError, "only 'run' can be timed, not 'load'",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_message(name: str) -> None:
    cause, kind, message = MESSAGES[name]
    with pytest.raises(kind, match=message):
        cause()


def test_an_unknown_public_name() -> None:
    for module in (tilewright, tilewright.contrib):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nothing'"):
            module.nothing  # noqa: B018


def test_a_library_that_cannot_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(b"\x7fELF" + bytes(200))
    with path.open("rb") as file, pytest.raises(
        ArtifactError, match=r"model\.so: the system cannot load this library: "
    ):
        SharedLibrary(file.fileno(), path)


def test_a_triple_that_llvm_cannot_serve() -> None:
    from tilewright.backends.cpu.llvm.compile import _machine

    with pytest.raises(TargetError, match="LLVM cannot make code for 'pdp11-none': "):
        _machine("pdp11-none", "", "", "", 2)


def test_something_that_is_no_model() -> None:
    with pytest.raises(ModelError, match="int"):
        tilewright.compile(42)


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"x" * 100)
    real = os.fstat

    class Longer:
        def __init__(self, found: os.stat_result) -> None:
            self.st_size = found.st_size + 10

    monkeypatch.setattr("tilewright.compiler.digests.os.fstat", lambda descriptor: Longer(real(descriptor)))
    with pytest.raises(
        ModelError, match=r"m\.onnx: the file became shorter while it was read; compile it when it is complete"
    ):
        digest_file(model)


def test_a_function_has_no_place_in_memory() -> None:
    inner = Function((x,), x)
    outer = var("f", inner.known_type())
    with pytest.raises(CompileError, match=r"cannot be stored in memory; only tensors and tuples of tensors can"):
        plan_memory(Function((outer,), outer))


def test_an_attribute_of_a_kind_that_no_operator_has() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="r")
    node.attribute.append(helper.make_attribute("weird", helper.make_sparse_tensor(
        helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]), helper.make_tensor("i", TensorProto.INT64, [1], [0]),
        [2])))
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, [2])], [helper.make_tensor_value_info("y", 1, [2])]
    )
    with pytest.raises(ModelError, match="weird"):
        tilewright.relay.frontend.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_an_output_that_is_not_there() -> None:
    node = helper.make_node("Relu", ["x"], ["y", "more"], name="positive")
    values = [helper.make_tensor_value_info(n, 1, None) for n in ("y", "more")]
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, [1, 1, 4, 4])], values)
    with pytest.raises(ModelError, match="Relu 'positive': 1 of its 2 outputs are supported: more cannot be computed"):
        tilewright.relay.frontend.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_a_manifest_with_a_size_that_is_none() -> None:
    good = programs.affine().manifest.to_json()
    with pytest.raises(ArtifactError, match=r"m\.so"):
        Manifest.from_json(good.replace('"workspace_bytes":', '"workspace_bytes":-'), "m.so")
