"""Programs with states: recurrent states, growing caches, and what is refused."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import decoder
import tilewright
from decoder_model import TINY, build, inputs_of
from tilewright.base.errors import InputError
from tilewright.compat import onnx_session

Array = np.ndarray[Any, Any]
CACHES = {"past_key_values.*": "present.*"}


def counter(batch: int | str = 2) -> onnx.ModelProto:
    """Return `total = before + x, mean = total / 2` for rows of three numbers."""
    rows = {n: helper.make_tensor_value_info(n, TensorProto.FLOAT, [batch, 3]) for n in ("x", "before", "total", "y")}
    two = helper.make_tensor("two", TensorProto.FLOAT, [], [2.0])
    nodes = [helper.make_node("Add", ["before", "x"], ["total"]), helper.make_node("Div", ["total", "two"], ["y"])]
    graph = helper.make_graph(nodes, "counter", [rows["x"], rows["before"]], [rows["total"], rows["y"]], [two])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def ones(rows: int = 2) -> Array:
    return np.ones((rows, 3), np.float32)


def test_an_output_is_the_input_of_the_next_call() -> None:
    program = tilewright.compile(counter())
    sums = program.stateful({"before": "total"})
    assert sums.state == {}
    for k in range(1, 5):
        np.testing.assert_array_equal(sums(ones()), ones() * k / 2)
        np.testing.assert_array_equal(sums.state["before"], ones() * k)
    sums.reset()
    np.testing.assert_array_equal(sums(x=ones()), ones() / 2)
    sums.reset({"before": 10 * ones()})
    np.testing.assert_array_equal(sums({"x": ones()}), ones() * 11 / 2)
    other = program.stateful({"before": "total"}, {"before": -ones()})
    np.testing.assert_array_equal(other(ones()), 0 * ones())
    np.testing.assert_array_equal(sums(ones()), ones() * 12 / 2)


def test_a_state_of_symbolic_size_starts_with_the_sizes_of_the_other_inputs() -> None:
    sums = tilewright.compile(counter("n"), shapes={"x": ("n", 3), "before": ("n", 3)}).stateful({"before": "total"})
    for rows in (1, 4, 7):
        sums.reset()
        sums(ones(rows))
        np.testing.assert_array_equal(sums(ones(rows)), ones(rows))
    with pytest.raises(InputError, match=r"dimension 0 of input 'before' is 7, and must be"):
        sums(ones(2))
    np.testing.assert_array_equal(sums(ones(7)), ones(7) * 3 / 2)  # the failed call changed nothing


def test_two_buffers_serve_all_calls() -> None:
    sums = tilewright.compile(counter()).stateful({"before": "total"})
    places = set()
    for _ in range(6):
        sums(ones())
        places.add(sums.state["before"].ctypes.data)
    assert len(places) == 2


def test_calls_from_several_threads_take_turns() -> None:
    sums = tilewright.compile(counter()).stateful({"before": "total"})
    with ThreadPoolExecutor(8) as pool:
        means = sorted(float(y[0, 0]) for y in pool.map(sums, [ones()] * 64))
    assert means == [k / 2 for k in range(1, 65)]


@pytest.mark.slow
def test_a_growing_cache() -> None:
    program = tilewright.compile(build(TINY), shapes=decoder.open_shapes(TINY), threads=1)
    chat = program.stateful(CACHES)
    past = TINY.no_past()
    for tokens in ([3, 1, 4, 1, 5], [9], [2], [6, 5, 3], *([n] for n in range(20))):
        feed = inputs_of(TINY, tokens, past)
        wanted, *caches = program(*feed.values())
        found = chat(*[v for n, v in feed.items() if n not in past])
        np.testing.assert_array_equal(found, wanted)
        past = {f"past_key_values.{c}": a for c, a in zip(TINY.caches, caches, strict=True)}
        for name, value in chat.state.items():
            np.testing.assert_array_equal(value, past[name])


REFUSED = [
    ({"befor": "total"}, r"the state 'befor' is not an input; the inputs are x, before; did you mean 'before'\?"),
    ({"before": "totals"}, r"the state 'before' is 'totals' of the call before, which is not an output; the outputs "
                           r"are total, y; did you mean 'total'\?"),
    ({"past.*": "present.*"}, r"no input matches the state 'past.\*'; the inputs are x, before"),
    ({"before": "total", "x": "total"}, "two states are the same output: before = total, x = total"),
]


@pytest.mark.parametrize(("states", "message"), REFUSED)
def test_states_that_are_refused(states: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tilewright.compile(counter()).stateful(states)


def test_other_mistakes() -> None:
    sums = tilewright.compile(counter()).stateful({"before": "total"})
    with pytest.raises(InputError, match=r"2 inputs were given, but .* 1: float32 x\[2, 3\] beside its states"):
        sums(ones(), ones())
    with pytest.raises(InputError, match=r"no input 'before'; it has float32 x\[2, 3\] beside its states"):
        sums(before=ones())
    with pytest.raises(InputError, match="'x' is not a state; the states are before"):
        sums.reset({"x": ones()})
    with pytest.raises(InputError, match=r"input 'before' has shape \[1, 3\]"):
        tilewright.compile(counter()).stateful({"before": "total"}, {"before": ones(1)})(ones())
    graph = counter()
    graph.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    graph.graph.node[0].output[0] = "sum"
    graph.graph.node[1].input[0] = "sum"
    graph.graph.node.append(helper.make_node("Cast", ["sum"], ["total"], to=TensorProto.DOUBLE))
    with pytest.raises(InputError, match=r"cannot be the output .* of the call before: they differ in type"):
        tilewright.compile(graph).stateful({"before": "total"})


def test_outputs_of_the_caller_and_new_ones() -> None:
    program = tilewright.compile(counter())
    mine = np.empty((2, 3), np.float32)
    total, y = program(ones(), ones(), out=[None, mine])
    assert y is mine
    np.testing.assert_array_equal(total, 2 * ones())
    np.testing.assert_array_equal(mine, ones())


def test_a_binding_writes_into_the_memory_of_the_caller() -> None:
    session = onnx_session.InferenceSession(counter().SerializeToString())
    total = onnx_session.OrtValue.ortvalue_from_numpy(0 * ones())
    place = total.data_ptr()
    binding = session.io_binding()
    binding.bind_cpu_input("x", ones())
    binding.bind_ortvalue_input("before", total)
    binding.bind_output("y")
    binding.bind_ortvalue_output("total", total)
    for k in range(1, 4):
        binding.run()
        assert binding.get_outputs()[1] is total and total.data_ptr() == place
        np.testing.assert_array_equal(total.numpy(), k * ones())
        np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], k * ones() / 2)
