"""Programs that are run through TVM's names: arguments of other dtypes, parameters, texts of code, unknown sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import ArtifactError, InputError, OptionError
from tilewright.relay import Function, var

KINDS = ("debug", "graph", "vm")


def run(kind: str, function: Function, *args: Any) -> Any:
    return relay.create_executor(kind, device=tvm.cpu(0), target="llvm").evaluate(function)(*args).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_other_dtypes_are_converted(kind: str) -> None:
    x, y = var("x", shape=(1, 4), dtype="uint8"), var("y", shape=(1, 4), dtype="uint8")
    total = Function([x, y], relay.add(x, y))
    a, b = np.array([[1, 2, 3, 250]]), np.array([[1, 1, 1, 5]])
    for given in ((a, b), (tvm.nd.array(a), tvm.nd.array(b))):
        found = run(kind, total, *given)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, a + b)


def test_parameters_of_other_dtypes_are_converted() -> None:
    x, w = var("x", shape=(1, 2)), var("w", shape=(1, 2))
    f = Function([x, w], x + w)
    bound = relay.build_module.bind_params_by_name(f, {"w": np.array([[1, 2]])})
    np.testing.assert_array_equal(run("debug", bound, np.zeros((1, 2), "float32")), [[1, 2]])
    small = Function([x, v := var("v", shape=(2,), dtype="int8")], relay.cast(v, "float32") + x)
    assert relay.build_module.bind_params_by_name(small, {"v": np.array([1.0, -128.0])}).params == (x,)
    for value in ([1.5, 0.0], [128, 0]):
        with pytest.raises(InputError, match="parameter 'v' has type .*, but the model declares"):
            relay.build_module.bind_params_by_name(small, {"v": np.array(value)})


def test_calls_may_repeat_bound_parameters() -> None:
    x, w = var("x", shape=(2,)), var("w", shape=(2,))
    params = {"w": np.ones(2, "float32")}
    executor = relay.create_executor("graph", tvm.IRModule.from_expr(Function([x, w], x + w)), params=params)
    np.testing.assert_array_equal(executor.evaluate()(np.zeros(2, "float32"), **params).numpy(), [1, 1])
    with pytest.raises(InputError, match="'v' is not a parameter"):
        executor.evaluate()(np.zeros(2, "float32"), v=1)


def test_the_texts_of_a_build() -> None:
    x = var("x", shape=(16, 16))
    lib = relay.build(relay.nn.relu(x), "llvm")
    assert "define" in lib.get_source() and lib.get_source("ll") == lib.get_source()
    assert ".text" in lib.lib.get_source("asm") and lib.get_source("s") == lib.get_source("asm")
    with pytest.raises(OptionError, match="there is no source 'ptx' of this module; there is ll, asm"):
        lib.get_source("ptx")
    n = var("n", shape=(relay.Any(),))
    with pytest.raises(ArtifactError, match="has no source here; build it again, with known sizes"):
        relay.build(relay.nn.relu(n), "llvm").get_source()


@pytest.mark.parametrize("kind", ("debug", "vm"))
def test_scatters_of_unknown_sizes(kind: str) -> None:
    d, i, u = (var(n, shape=(relay.Any(), relay.Any()), dtype=t) for n, t in (
        ("d", "float32"), ("i", "int64"), ("u", "float32")))
    f = Function([d, i, u], relay.scatter_elements(d, i, u, 1, "add"))
    at, new = np.array([[1, 0], [2, 2]]), np.array([[1, 2], [3, 4]], "float32")
    np.testing.assert_array_equal(run(kind, f, np.zeros((2, 3), "float32"), at, new), [[2, 1, 0], [0, 0, 7]])


@pytest.mark.parametrize("kind", ("debug", "vm"))
@pytest.mark.parametrize("rank", (1, 3))
@pytest.mark.parametrize("unknown", (False, True))
@pytest.mark.parametrize("count", (None, 5))
def test_sums_of_segments(kind: str, rank: int, unknown: bool, count: int | None) -> None:
    data = np.random.default_rng(0).standard_normal((5, 2, 3)[:rank]).astype("float32")
    where = np.array([2, 0, 1, 0, 2])
    x = var("x", shape=tuple(relay.Any() for _ in data.shape) if unknown else data.shape)
    ids = var("ids", shape=(relay.Any(),) if unknown else (5,), dtype="int64")
    found = run(kind, Function([x, ids], relay.segment_sum(x, ids, count)), data, where)
    wanted = np.stack([data[where == k].sum(0) for k in range(count or 3)])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
