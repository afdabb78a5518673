"""`GraphModule` and the module that `relay.build` returns."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import small_programs as programs
import tilewright as tvm
from tilewright import relay, runtime, te
from tilewright.base import nd
from tilewright.base.errors import ArtifactError, InputError
from tilewright.ir.module import IRModule
from tilewright.runtime import graph_executor
from tilewright.runtime.graph_executor import GraphModule
from tilewright.runtime.module import FactoryModule

X = np.arange(8, dtype="float32").reshape(2, 4) - 3


@pytest.fixture
def module() -> GraphModule:
    return GraphModule(FactoryModule(programs.two_outputs())["default"](nd.cpu(0)))


def test_set_run_get(module: GraphModule) -> None:
    module.set_input("x", X)
    module.set_input(1, nd.array(X + 1))
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), 2 * X + 1)
    np.testing.assert_array_equal(module.get_output(1).numpy(), X)
    assert module.get_num_inputs() == module.get_num_outputs() == 2


def test_all_ways_to_set(module: GraphModule) -> None:
    module.set_input({"x": X})
    module.set_input(b=X, not_there=X)
    module.load_params({"b": X, "weight": X})
    module.run(x=X + 2)
    np.testing.assert_array_equal(module.get_output(0).numpy(), 2 * X + 2)
    out = nd.empty((2, 4))
    assert module.get_output(0, out) is out and (out.numpy() == 2 * X + 2).all()
    assert (module.get_input("x").numpy() == X + 2).all()


def test_get_output_is_overwritten_by_the_next_run(module: GraphModule) -> None:
    module.run(x=X, b=X)
    kept, copied = module.get_output(0), module.get_output(0).numpy()
    module.run(x=X + 1)
    assert (kept.numpy() == 2 * X + 1).all() and (copied == 2 * X).all()


def test_inputs_start_as_zeros_and_are_copies(module: GraphModule) -> None:
    assert not module.get_input(0).numpy().any()
    x = X.copy()
    module.set_input("x", x)
    x[:] = 0
    assert (module.get_input("x").numpy() == X).all()


def test_time_evaluator(module: GraphModule) -> None:
    timed = module.module.time_evaluator("run", nd.cpu(0), number=2, repeat=3)()
    assert len(timed.results) == 3 and timed.mean > 0
    with pytest.raises(InputError, match="only 'run' can be timed, not 'walk'"):
        module.module.time_evaluator("walk", nd.cpu(0))


def test_names_and_shapes(module: GraphModule) -> None:
    assert module.get_input_index("b") == 1 and module.get_input_index("z") == -1
    shapes, dtypes = module.get_input_info()
    assert shapes == {"x": (2, 4), "b": (2, 4)} and dtypes["x"] == "float32"
    assert module.get_output_info()[0] == {"y": (2, 4), "same": (2, 4)}


def test_shared_inputs(module: GraphModule) -> None:
    other = GraphModule(FactoryModule(programs.two_outputs()).get_function("default")(nd.cpu(0)))
    other.set_input("b", X)
    module.share_params(other, {"b": None, "w": None})
    module.run(x=X)
    assert (module.get_output(0).numpy() == 2 * X).all()


def test_errors(module: GraphModule) -> None:
    with pytest.raises(InputError, match="the model has no input 'z'; it has x, b"):
        module.set_input("z", X)
    with pytest.raises(InputError, match="the model has no input 2; it has 2: x, b"):
        module.get_input(2)
    with pytest.raises(InputError, match="the model has no output 2; it has 2"):
        module.get_output(2)
    with pytest.raises(InputError, match=r"shape \(8,\) cannot be copied"):
        module.set_input("x", X.reshape(8))
    with pytest.raises(InputError, match=r"set_input\('x'\) was given no value"):
        module.set_input("x")
    with pytest.raises(InputError, match="no entry 'main'; it has 'default'"):
        FactoryModule(programs.two_outputs())["main"]
    with pytest.raises(InputError, match="no entry 'main'; it has 'default'"):
        FactoryModule(programs.two_outputs()).get_function("main")
    with pytest.raises(InputError, match="only 'run' can be timed"):
        module.benchmark(nd.cpu(), func_name="set_input")


def test_benchmark(module: GraphModule) -> None:
    assert module.benchmark(nd.cpu(), repeat=2, number=3, x=X).median > 0
    assert module.benchmark(nd.cpu(), repeat=2, number=1, min_repeat_ms=1, end_to_end=True).min > 0


@pytest.mark.parametrize("suffix", ["so", "tar"])
def test_export_and_load(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"model.{suffix}"
    FactoryModule(programs.affine()).export_library(path)
    library = runtime.load_module(path)
    assert isinstance(library, FactoryModule)
    loaded = GraphModule(library["default"](nd.cpu(0)))
    loaded.run(x=X)
    np.testing.assert_array_equal(loaded.get_output(0).numpy(), programs.affine_value(X))


def test_the_older_triple() -> None:
    graph, lib, params = FactoryModule(programs.affine())
    module = graph_executor.create(graph, lib, nd.cpu(0))
    module.set_input(**params)
    module.run(x=X)
    np.testing.assert_array_equal(module.get_output(0).numpy(), programs.affine_value(X))


def test_functions_of_the_executor_by_name() -> None:
    library = FactoryModule(programs.affine())
    session = library["default"](nd.cpu(0))
    session["set_input"]("x", nd.array(X))
    session["run"]()
    np.testing.assert_array_equal(session["get_output"](0).numpy(), programs.affine_value(X))
    session["load_params"](runtime.save_param_dict({"x": X + 1, "unknown": X}))
    session.get_function("run")()
    assert session["get_num_inputs"]() == session["get_num_outputs"]() == 1 and session["get_input_index"]("x") == 0
    out = session["get_output"](0, nd.empty(X.shape))
    np.testing.assert_array_equal(out.numpy(), programs.affine_value(X + 1))
    with pytest.raises(InputError, match="a session has no function 'stop'; it has set_input, run, "):
        session["stop"]
    assert library["get_graph_json"]() == library.get_graph_json() and library["get_graph_params"]() == {}
    assert library["remove_params"]() is library and runtime.num_threads() >= 1


def test_arrays_of_the_caller_are_read_and_written() -> None:
    module = GraphModule(FactoryModule(programs.affine())["default"](nd.cpu(0)))
    x, y = nd.array(X), nd.empty(X.shape)
    module.set_input_zero_copy("x", x)
    module.set_output_zero_copy(0, y)
    for shift in (0, 1):
        x.copyfrom(X + shift)
        module.run()
        np.testing.assert_array_equal(y.numpy(), programs.affine_value(X + shift))
    module.set_input_zero_copy(x=nd.array(X + 2))
    module.run()
    np.testing.assert_array_equal(y.numpy(), programs.affine_value(X + 2))
    with pytest.raises(InputError, match=r"the array is float32\[3\], expected float32 x\[2, 4\]"):
        module.set_input_zero_copy("x", nd.empty((3,)))
    with pytest.raises(InputError, match="the model has no output 1; it has 1"):
        module.set_output_zero_copy(1, y)


def test_save_with_a_format(tmp_path: Path) -> None:
    FactoryModule(programs.affine()).save(tmp_path / "model", "tar")
    assert (tmp_path / "model.tar").exists()


def test_a_program_in_stages_knows_its_outputs_when_it_has_run() -> None:
    x = relay.var("x", shape=(relay.Any(), 2))
    library = relay.build(
        IRModule.from_expr(relay.Function([x], relay.Tuple([relay.argwhere(x), relay.exp(x)]))), "llvm"
    )
    module = GraphModule(library["default"](nd.cpu(0)))
    assert module.get_num_outputs() == 2 and module.get_input_index("x") == 0
    for ask in (lambda: module.get_output(0), module.get_output_info):
        with pytest.raises(
            InputError, match=r"the sizes of the outputs are only known when the model has run; call run\(\) first"
        ):
            ask()
    with pytest.raises(InputError, match="the model has no output 2; it has 2"):
        module.get_output(2)
    for rows in ([[0, 1], [2, 0], [3, 4]], [[0, 0]], [[5, 0]]):
        value = np.array(rows, np.float32)
        module.set_input("x", value)
        module.run()
        np.testing.assert_array_equal(module.get_output(0).numpy(), np.argwhere(value))
        np.testing.assert_allclose(module.get_output(1).numpy(), np.exp(value), rtol=1e-5)
        shapes, dtypes = module.get_output_info()
        assert list(shapes.values()) == [
            np.argwhere(value).shape, value.shape
        ] and list(dtypes.values())[1] == "float32"
        assert module.get_input_info() == ({"x": value.shape}, {"x": "float32"})
    with pytest.raises(InputError, match=r"an array of shape \(3,\) cannot be copied into one of shape \(1, 2\)"):
        module.set_input("x", np.zeros(3, np.float32))
    assert module.benchmark(nd.cpu(0), repeat=1, number=1, end_to_end=True).mean > 0


def test_strings_go_in_and_come_out() -> None:
    assert nd.empty((2, 0), "string").shape == (2, 0) and nd.array(
        np.array(["a", "b"], object)
    ).numpy().tolist() == ["a", "b"]
    node = onnx.helper.make_node("StringConcat", ["x", "y"], ["z"])
    infos = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.STRING, [2]) for n in "xyz"]
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "g", infos[:2], infos[2:]), opset_imports=[onnx.helper.make_opsetid("", 20)],
        ir_version=9
    )
    module = GraphModule(relay.build(relay.frontend.from_onnx(model)[0], "llvm")["default"](nd.cpu(0)))
    module.run(x=np.array(["a", "b"], object), y=np.array(["c", "d"], object))
    assert module.get_output(0).numpy().tolist() == ["ac", "bd"]
    assert module.get_input_info()[1] == {"x": "string", "y": "string"}


def function_graph(**changes: Any) -> str:
    """The graph of `reshape(x + 1) * y`: two calls of functions, and a change of the shape between them."""
    nodes = [
        {"op": "null", "name": "x", "inputs": []}, {"op": "null", "name": "y", "inputs": []},
        node("add", "plus_one", [[0, 0, 0]]), node("reshape", "__nop", [[2, 0, 0]]),
        node("multiply", "times", [[3, 0, 0], [1, 0, 0]], flatten_data="1"),
    ]
    return json.dumps({
        "nodes": nodes, "arg_nodes": [0, 1], "heads": [[4, 0, 0]], "node_row_ptr": [0, 1, 2, 3, 4, 5],
        "attrs": {
            "shape": ["list_shape", [[6], [2, 3], [6], [2, 3], [2, 3]]],
            "dltype": ["list_str", ["float32"] * 5], "storage_id": ["list_int", [0, 1, 2, 2, 0]],
        },
    } | changes)


def node(name: str, function: str, inputs: list[list[int]], flatten_data: str = "0") -> dict[str, Any]:
    attrs = {"func_name": function, "flatten_data": flatten_data, "num_inputs": str(len(inputs)), "num_outputs": "1"}
    return {"op": "tvm_op", "name": name, "inputs": inputs, "attrs": attrs}


def functions() -> Any:
    x, y = te.placeholder((6,), name="x"), te.placeholder((6,), name="y")
    added, multiplied = te.compute((6,), lambda i: x[i] + 1.0), te.compute((6,), lambda i: x[i] * y[i])
    return tvm.build(tvm.IRModule({
        "plus_one": te.create_prim_func([x, added]), "times": te.create_prim_func([x, y, multiplied])}), target="llvm")


def test_a_graph_of_functions_is_run() -> None:
    first, second = (graph_executor.create(function_graph(), functions(), nd.cpu(0)) for _ in range(2))
    y = np.arange(6, dtype="float32").reshape(2, 3)
    first.load_params(runtime.save_param_dict({"y": y, "unknown": y}))
    first.run(x=np.arange(6, dtype="float32"))
    expected = (np.arange(6, dtype="float32") + 1).reshape(2, 3) * y
    np.testing.assert_array_equal(first.get_output(0).numpy(), expected)
    assert first.get_input_info() == ({"x": (6,), "y": (2, 3)}, {"x": "float32", "y": "float32"})
    second.share_params(first, runtime.save_param_dict({"y": y}))
    second.run(x=np.zeros(6, "float32"))
    np.testing.assert_array_equal(second.get_output(0).numpy(), y)


@pytest.mark.parametrize(("changes", "why"), [
    ({"heads": [[9, 0, 0]]}, "list index out of range"), ({"heads": [[4, 1, 0]]}, "there is no output 1 of node 4"),
    ({"nodes": [node("add", "plus_one", [[4, 0, 0]])] * 5}, "node 'add' reads a value that is computed later"),
    ({"nodes": [{"op": "loop", "name": "l", "inputs": []}] * 5}, "node 'l' is a 'loop'"), ({"attrs": {}}, "KeyError"),
])
def test_a_damaged_graph_of_functions_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ArtifactError, match=f"the text is not a graph of functions: .*{re.escape(why)}"):
        graph_executor.create(function_graph(**changes), functions(), nd.cpu(0))
    with pytest.raises(InputError, match="the module has no function 'minus'; it has plus_one, times"):
        graph_executor.create(function_graph().replace("plus_one", "minus"), functions(), nd.cpu(0))


def test_files_of_parameters(tmp_path: Path) -> None:
    runtime.save_param_dict_to_file({"w": X}, tmp_path / "w.params")
    np.testing.assert_array_equal(runtime.load_param_dict_from_file(tmp_path / "w.params")["w"].numpy(), X)


def test_containers_of_sizes() -> None:
    shape = runtime.ShapeTuple([2, np.int64(3)])
    assert shape == [2, 3] and shape == (2, 3) and shape != [3, 2] and pickle.loads(pickle.dumps(shape)) == shape


def test_views() -> None:
    a = nd.array(np.arange(16, dtype="float32").reshape(4, 4))
    view = a._create_view((2, 8))
    view[0, 0] = 5
    assert view.shape == (2, 8) and a.numpy()[0, 0] == 5
    with pytest.raises(InputError, match=r"an array of shape \[4, 4\] has no view of shape \[3, 5\]"):
        a._create_view((3, 5))
