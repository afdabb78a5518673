"""What provokes each code of `catalogue/running.md`, in an empty folder."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

import tilewright as tvm
from small_models import mlp
from tilewright import relay
from tilewright.base.memory_faults import Site
from tilewright.driver import files
from tilewright.relay.interpreter import evaluate
from tilewright.runtime import scratch

from .targets import adding


@functools.cache
def model() -> tvm.Model:
    """Dense layers: `x` (2, 16) -> `y` (2, 10)."""
    return tvm.compile(mlp(), threads=1)


X = np.zeros((2, 16), np.float32)


def tw0701() -> None:
    model()()


def tw0702() -> None:
    model()(image=X)


def tw0703() -> None:
    model()(X.astype("float64"))


def tw0704() -> None:
    model()(X[:1])


def tw0705() -> None:
    model()(X, out=[np.zeros((2, 9), np.float32)])


def tw0706() -> None:
    tvm.nd.from_dlpack([1.0, 2.0])


def tw0707() -> None:
    tvm.build(*adding(), target="llvm", name="add")["sub"]


def tw0708() -> None:
    tvm.compile(mlp("n"), threads=1, symbolic=False).save("model.so")


def tw0709() -> None:
    tvm.compile(mlp("n"), {"x": ("n=1..4", 16)}, threads=1)(np.zeros((5, 16), np.float32))


def tw0710() -> None:
    raise scratch.Scratch(0, 1 << 33, "sort").lacking("model")


def tw0711() -> None:
    with mock.patch.object(scratch, "_ROOM", SimpleNamespace(bytes=1 << 20)):
        scratch.check_stack("model", scratch.Scratch(4 << 20, 0, "conv2d"))


def tw0712() -> None:
    x = relay.var("x", shape=(2,), dtype="string")
    evaluate(tvm.IRModule.from_expr(relay.Function([x], relay.cast(x, "float32"))), np.array(["1.5", "many"], object))


def tw0713() -> None:
    text = "type Colour { Red, Green, }\ndef @main() -> int32 { match? (Green) { Red => 1 } }"
    evaluate(relay.transform.InferType()(relay.parse('#[version = "0.0.5"]\n' + text)))


def tw0714() -> None:
    c, x = relay.var("c", shape=(), dtype="bool"), relay.var("x", shape=(2,))
    relay.build(
        tvm.IRModule.from_expr(relay.Function([c, x], relay.If(c, relay.exp(x), relay.tanh(x)))), "llvm"
    ).executable.profile()


def tw0715() -> None:
    site = Site("read", "take", "table", "float32", (8,), ("i",), "Gather 'rows'", 0, "", 0, 0, "")
    raise site.fault([9, 3])


def tw0716() -> None:
    np.save("inputs.npy", X)
    files.read_arrays(Path("inputs.npy"))


def tw0717() -> None:
    tvm.contrib.graph_executor.GraphModule(
        relay.build(tvm.IRModule.from_expr(relay.const(1)), "llvm")["default"](tvm.cpu())
    ).module.time_evaluator("compile", tvm.cpu())
