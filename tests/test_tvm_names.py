"""Names of `tvm.relay`, `tvm.runtime` and `tvm.contrib` that scripts for TVM use, and what they do."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import ArtifactError, CompileError, OptionError, TargetError
from tilewright.compat.contrib import cc, cudnn, dlpack, nvcc
from tilewright.compat.contrib.download import download, download_testdata
from tilewright.compat.executor_factory import GraphExecutorFactoryModule
from tilewright.ir.structural import assert_structural_equal
from tilewright.relay import op
from tilewright.relay.backend import Executor, Runtime, name_transforms
from tilewright.relay.backend.utils import mangle_module_name
from tilewright.relay.frontend import inference as common
from tilewright.relay.supply import GlobalVarSupply, NameSupply
from tilewright.relay.testing.temp_op_attr import TempOpAttr
from tilewright.runtime import graph_executor
from tilewright.runtime.executor import AotModule
from tilewright.runtime.name_transforms import sanitize_name

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def module() -> tvm.IRModule:
    return tvm.IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(2, 3)) - relay.const(2.0)))


# --- executors and runtimes


def test_executors_and_runtimes_of_a_build() -> None:
    executor, runtime = Executor("aot", {"unpacked-api": True}), Runtime("crt", {"system-lib": True})
    built = relay.build(module(), "llvm", executor=executor, runtime=runtime)
    assert (built.executor, built.runtime) == (executor, runtime) and isinstance(built, GraphExecutorFactoryModule)
    assert built.graph_json == built.get_executor_config() and built.params == {} and built.lib is built.get_lib()
    for kind in (AotModule, graph_executor.GraphModule):
        model = kind(built["default"](tvm.cpu()))
        model.run(x=X)
        np.testing.assert_array_equal(model.get_output(0).numpy(), np.maximum(X - 2, 0))


def test_options_of_executors_and_runtimes() -> None:
    executor = Executor("aot", {"interface-api": "c"})
    assert executor["interface-api"] == "c" and "interface-api" in executor and "link-params" not in executor
    assert executor["link-params"] is False and executor["workspace-byte-alignment"] is None
    assert Executor("graph") == Executor() != executor and len({Executor(), Executor("graph"), executor}) == 2
    assert (str(Runtime("crt")), Runtime.list_registered()) == ("crt", ["cpp", "crt"])
    assert Executor.list_registered_options(Executor("graph")) == {"link-params": "IntImm"}
    wrongs: list[tuple[Callable[[], object], str]] = [
        (lambda: Executor("woof"), 'Executor "woof" is not defined'),
        (lambda: Runtime("crt", {"woof": 1}), 'Attribute "woof" is not available on this Runtime'),
        (lambda: Runtime("crt", {"system-lib": "woof"}),
         'Attribute "system-lib" should have type "IntImm" but instead found "runtime.String"'),
        (lambda: executor["woof"], 'aot has no option "woof"'),
    ]
    for wrong, said in wrongs:
        with pytest.raises(OptionError, match=said):
            wrong()


def test_a_runtime_without_the_conventions_of_an_executor_is_refused() -> None:
    packed, c = Executor("aot"), Executor("aot", {"interface-api": "c"})
    unpacked = Executor("aot", {"interface-api": "c", "unpacked-api": True})
    for executor, runtime, said in (
        (c, Runtime("crt"), 'Either need interface_api == "packed" (got: c) or unpacked-api == true (got: 0) when'),
        (c, Runtime(), 'Need unpacked-api == false (got: 0) and interface-api == "packed" (got: c) when targeting'),
        (unpacked, Runtime(), 'Need unpacked-api == false (got: 1) and interface-api == "packed" (got: c) when'),
    ):
        with pytest.raises(OptionError, match=re.escape(said)):
            relay.build(module(), "llvm", executor=executor, runtime=runtime)
    for executor, runtime in ((packed, Runtime()), (packed, Runtime("crt")), (unpacked, Runtime("crt"))):
        assert relay.build(module(), "llvm", executor=executor, runtime=runtime).runtime is runtime
    with tvm.transform.PassContext(config={"tir.usmp.use_workspace_io": True}):
        with pytest.raises(OptionError, match=r"use_workspace_io option is only compatible with interface_api c\.\n"):
            relay.build(module(), "llvm", executor=packed)
        _ = relay.build(module(), "llvm", executor=unpacked, runtime=Runtime("crt"))


# --- names


def test_names_that_are_used_once() -> None:
    names = NameSupply("net")
    assert [names.fresh_name(n) for n in ("conv", "conv", "add", "conv")] == [
        "net_conv", "net_conv_1", "net_add", "net_conv_2"]
    assert names.reserve_name("x", add_prefix=False) == "x" and names.contains_name("x", add_prefix=False)
    assert not names.contains_name("x") and names.fresh_name("x", add_prefix=False, add_underscore=False) == "x1"
    variables = GlobalVarSupply(module())
    (main,) = module().get_global_vars()
    assert variables.unique_global_for("main") is variables.unique_global_for("main")
    assert variables.fresh_global("main", add_prefix=False).name_hint == "main_1"
    assert variables.fresh_global("main").name_hint == "tvmgen_default_main_1"
    with pytest.raises(CompileError, match="two variables '@main'"):
        variables.reserve_global(main)
    variables.reserve_global(main, allow_conflict=True)


def test_names_in_c() -> None:
    assert name_transforms.to_c_function_style("TVMGen_my_model") == "TVMGenMyModel"
    assert name_transforms.to_c_variable_style("TVM_My_Model") == "tvm_my_model"
    assert name_transforms.to_c_constant_style("TVM_my_model") == "TVM_MY_MODEL"
    assert name_transforms.prefix_name(["a", "b"]) == "TVM_a_b"
    assert name_transforms.prefix_generated_name("a") == "TVMGen_a"
    assert sanitize_name("conv2d:0/w") == "conv2d_0_w"
    assert mangle_module_name("a") == "tvmgen_a" and mangle_module_name(None) == "tvmgen"
    empty: list[str] = []
    wrongs: list[Callable[[], object]] = [
        lambda: name_transforms.to_c_variable_style("cake"), lambda: name_transforms.prefix_name(empty),
        lambda: sanitize_name(""), lambda: mangle_module_name("\u018e")]
    for wrong in wrongs:
        with pytest.raises(OptionError):
            wrong()


@pytest.mark.parametrize("name", [
    "contrib.download", "ir.supply", "relay.backend.executor_factory", "relay.frontend.common", "runtime.ndarray",
    "_ffi.base",
])
def test_modules_with_a_name_of_tvm(name: str) -> None:
    assert importlib.import_module(f"tilewright.{name}").__doc__


# --- nodes


def test_copies_of_nodes() -> None:
    x, y = relay.var("x", shape=(4,)), relay.var("y", shape=(4,))
    span = tvm.relay.Span(tvm.relay.SourceName("net"), 1, 1, 2, 3)
    called = relay.expr.CallWithFields(relay.add(x, x), args=[x, y], span=span)
    assert (called.op.name, called.args, called.span) == ("add", (x, y), span)
    summed = relay.sum(x, keepdims=True)
    assert dict(relay.expr.CallWithFields(summed, args=[y]).attrs) == dict(summed.attrs)
    renamed = relay.expr.VarWithFields(x, vid="z")
    assert (renamed.name_hint, renamed.checked_type) == ("z", x.checked_type)
    assert relay.expr.TupleWithFields(relay.Tuple([x]), fields=[y]).fields == (y,)
    pair = relay.expr.TupleGetItemWithFields(relay.TupleGetItem(relay.Tuple([x, y]), 0), index=1)
    assert pair.index == 1
    device = tvm.target.VirtualDevice(tvm.cuda(1))
    placed = relay.expr.VarWithFields(x, virtual_device=device)
    assert (placed.virtual_device_, relay.expr.VarWithFields(placed, vid="z").virtual_device_) == (device, device)
    function = relay.function.FunctionWithFields(relay.Function([x], x), virtual_device=device)
    assert function.virtual_device_ == device
    for copy, node in ((relay.expr.CallWithFields, summed), (relay.expr.TupleWithFields, relay.Tuple([x]))):
        assert_structural_equal(copy(node, virtual_device=tvm.target.VirtualDevice()), node)
        with pytest.raises(OptionError, match="only variables and functions have a device of their own; annotate the"):
            copy(node, virtual_device=device)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        relay.expr.Nothing  # noqa: B018


def test_a_wrapped_tuple() -> None:
    x = relay.var("x", shape=(4, 2))
    wrapped = relay.TupleWrapper(relay.split(x, 2), 2)
    assert len(wrapped) == 2 and [f.index for f in wrapped] == [0, 1] and wrapped[-1].index == 1
    with pytest.raises(IndexError):
        wrapped[2]
    joined = relay.concatenate(wrapped.astuple(), axis=0)
    assert joined.checked_type == x.checked_type and "split" in wrapped.astext()
    assert relay.concatenate(wrapped, axis=0).checked_type == x.checked_type


def test_variables_without_a_type() -> None:
    weight = relay.var("w", relay.IncompleteType())
    made = relay.nn.conv2d(relay.var("x", shape=(1, 3, 8, 8)), weight, channels=4, kernel_size=(3, 3))
    main = relay.transform.InferType()(tvm.IRModule.from_expr(made))["main"]
    assert weight.type_annotation is None and main.params[1].checked_type == relay.TensorType((4, 3, 3, 3))
    assert repr(relay.IncompleteType()) == "?"


def test_inferred_offsets_of_a_deformable_convolution() -> None:
    made = relay.nn.deformable_conv2d(
        relay.var("x", shape=(2, 4, 8, 10)), relay.var("offset"), relay.var("w"), strides=(2, 2), padding=(1, 1),
        deformable_groups=2, channels=6, kernel_size=(3, 3))
    main = relay.transform.InferType()(tvm.IRModule.from_expr(made))["main"]
    assert [p.checked_type.shape for p in main.params] == [(2, 4, 8, 10), (2, 36, 4, 5), (6, 4, 3, 3)]


def test_slices_with_fewer_ends_than_beginnings() -> None:
    x = np.arange(36, dtype="float32").reshape(3, 4, 3)
    given: list[tuple[dict[str, Any], np.ndarray[Any, Any]]] = [
        ({"begin": [1, 1, 1], "end": [3, 3]}, x[1:3, 1:3, 1:]),
        ({"begin": [1, 3, 2], "end": [3], "strides": [1, -1, -1]}, x[1:3, 3::-1, 2::-1]),
        ({"begin": [1, 1, 1], "end": [2, 2], "slice_mode": "size"}, x[1:3, 1:3, 1:]),
    ]
    for options, wanted in given:
        made = relay.strided_slice(relay.const(x), **options)
        np.testing.assert_array_equal(relay.create_executor("graph").evaluate(made).numpy(), wanted)


def test_variables_are_listed_from_the_outside_in() -> None:
    a, b, c, d = (relay.Var(name) for name in "abcd")
    function = relay.Function([a], relay.Let(b, c, relay.Tuple([d, a])))
    assert relay.analysis.bound_vars(function) == [a, b]
    assert relay.analysis.all_vars(function) == [a, b, c, d]
    prelude = relay.Prelude()
    _, cons, nil = prelude.get_type("List")
    match = relay.Match(c, [
        relay.Clause(relay.PatternConstructor(nil), d),
        relay.Clause(relay.PatternConstructor(cons, (relay.PatternVar(a), relay.PatternVar(b))), b)])
    assert relay.analysis.bound_vars(match) == [a, b] and relay.analysis.all_vars(match) == [c, d, a, b]
    s, t = relay.TypeVar("s"), relay.TypeVar("t")
    generic = relay.Function([relay.Var("x", t)], relay.Tuple([]), type_params=[s, t])
    assert relay.analysis.all_type_vars(generic) == [s, t]


@pytest.mark.parametrize("groups", [1, 2])
def test_multiply_accumulates_of_a_transposed_convolution(groups: int) -> None:
    made = relay.nn.conv2d_transpose(
        relay.var("x", shape=(1, 4, 5, 5)), relay.var("w", shape=(4, 6 // groups, 3, 3)), channels=6, groups=groups,
        kernel_size=(3, 3), strides=(2, 2))
    assert made.tensor_type.shape == (1, 6, 11, 11)
    assert relay.analysis.get_total_mac_number(made) == 6 * 11 * 11 * 4 * 9 // groups


def test_nodes_by_the_name_of_their_kind() -> None:
    attrs = tvm.ir.make_node("DictAttrs", Compiler="npu")
    assert attrs.Compiler == "npu" and tvm.ir.make_node("IntImm", dtype="int32", value=3, span=None).value == 3
    with pytest.raises(OptionError, match=r"a node 'relay.Call' is not created by name"):
        tvm.ir.make_node("relay.Call", op="x")
    x = relay.var("x", shape=(2,))
    nodes: list[Any] = [
        x, relay.add(x, x), x.checked_type, module(), tvm.te.placeholder((2,)), tvm.ir.IntImm("int32", 1),
        tvm.ir.Array([])]
    assert all(isinstance(n, tvm.runtime.Object) for n in nodes)
    assert not any(isinstance(n, tvm.runtime.Object) for n in (3, "x", relay.Call, np.ones(2), None))

    class Own(tvm.runtime.Object):
        """A node of a program."""

    assert isinstance(Own(), tvm.runtime.Object) and not isinstance(x, Own)


def test_types_without_a_width() -> None:
    assert [relay.TensorType((), t).dtype for t in ("int", "uint", "float")] == ["int32", "uint32", "float32"]


# --- diagnostics


def test_a_renderer_of_diagnostics(capsys: pytest.CaptureFixture[str]) -> None:
    shown: list[str] = []
    tvm.ir.diagnostics.override_renderer(lambda context: shown.append(context.diagnostics[0].message))
    try:
        with pytest.raises(tvm.error.DiagnosticError):
            relay.parse("def @main(")
        with pytest.raises(tvm.error.DiagnosticError):
            relay.parse_expr("(1,")
        x = relay.var("x")
        with pytest.raises(tvm.error.DiagnosticError):
            relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], x)))
        assert len(shown) == 3 and all(shown)
    finally:
        tvm.ir.diagnostics.override_renderer(None)
    with pytest.raises(tvm.error.DiagnosticError):
        relay.parse("def @main(")
    assert len(shown) == 3 and capsys.readouterr().err == ""
    context = tvm.ir.diagnostics.DiagnosticContext([
        tvm.ir.diagnostics.Diagnostic(tvm.ir.diagnostics.DiagnosticLevel.ERROR, None, "wrong")])
    tvm.ir.diagnostics.get_renderer().render(context)
    assert capsys.readouterr().err == "error: wrong\n"


def test_a_check_of_spans() -> None:
    with pytest.raises(CompileError, match="this call has no span; run AnnotateSpans first"):
        relay.SpanCheck()(module())
    relay.SpanCheck()(relay.transform.AnnotateSpans()(module()))


def test_functors_without_a_method_for_a_node() -> None:
    with pytest.raises(NotImplementedError, match="ExprFunctor has no method visit_var"):
        relay.ExprFunctor().visit(relay.var("x"))


def test_operators_by_name() -> None:
    assert op.get("nn.relu") is relay.op.get("nn.relu")
    with relay.build_config(opt_level=3):
        assert tvm.transform.PassContext.current().opt_level == 3
    with TempOpAttr("nn.relu", "ftest", 3):
        assert op.get("nn.relu").get_attr("ftest") == 3
    assert op.get("nn.relu").get_attr("ftest") is None


def test_types_and_values_for_importers() -> None:
    x = common.new_var("x", shape=(2, 3))
    both = relay.Tuple([x, relay.sum(x, axis=1)])
    assert common.infer_shape(both) == [(2, 3), (2,)] and common.infer_shape(x) == (2, 3)
    assert common.infer_type(x + x).checked_type == relay.TensorType((2, 3))
    assert common.infer_channels(relay.var("w", shape=(8, 4, 3, 3))) == 8
    np.testing.assert_array_equal(common.infer_value(x + x, {"x": X}).numpy(), X + X)


# --- networks and values for tests


def test_a_synthetic_network_and_counts_of_operators() -> None:
    mod, params = relay.testing.synthetic.get_workload((1, 3, 8, 4))
    found = relay.testing.count_ops(mod["main"].body)
    assert found["nn.conv2d"] == found["nn.dense"] == 1 and found["nn.relu"] == 2
    data = relay.testing.rand("float32", 1, 3, 8, 4)
    wanted = relay.create_executor("debug", mod).evaluate()(data, *params.values()).numpy()
    model = graph_executor.GraphModule(relay.build(mod, "llvm", params=params)["default"](tvm.cpu()))
    model.run(data=data)
    np.testing.assert_allclose(model.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_tensor_arrays_of_the_prelude() -> None:
    prelude = relay.Prelude()
    x, at = np.arange(6, dtype="int32").reshape(2, 3), np.array([2, 0], "int32")
    ops = relay.prelude.StaticTensorArrayOps(prelude, "int32", [2, 3])
    ops.register()
    assert len(prelude.mod.get_type("tensor_int32_t")) == 9
    assert prelude.get_name_static("tensor_t", "int32", [relay.Any(), 3]) == "static_tensor_int32_any_3_t"
    v, index = relay.var("v", shape=(2, 3), dtype="int32"), relay.var("index")
    write, tensor = ops.get_global_var("tensor_array_write"), ops.get_ctor("tensor_constructor")
    array = ops.get_global_var("tensor_array")(relay.const(3))
    for k in range(3):
        array = write(array, relay.const(k), tensor(v * relay.const(k + 1)))

    def run(body: Any, *params: relay.Var) -> Any:
        prelude.mod["main"] = relay.Function(params, body)
        return relay.create_executor("debug", prelude.mod).evaluate()(*(x, at)[: len(params)]).fields[0].numpy()

    for name, wanted in (("stack", [x, x * 2, x * 3]), ("gather", [x * 3, x])):
        f = ops.get_global_var(f"tensor_array_{name}")
        np.testing.assert_array_equal(
            run(f(array), v) if name == "stack" else run(f(array, index), v, index), np.stack(wanted))
    taken = ops.get_global_var("tensor_take")(tensor(v), relay.const(1), relay.const(2))
    np.testing.assert_array_equal(run(taken, v), x[1:])
    two = prelude.get_tensor_ctor("tensor2", "int32")
    assert prelude.get_ctor(prelude.get_name("tensor_t", "int32"), "tensor2", "int32") is two
    join = prelude.get_global_var("tensor_concatenate", "int32")
    np.testing.assert_array_equal(run(join(two(v), two(v)), v), np.concatenate([x, x]))
    parts = relay.prelude.StaticTensorArrayOps(prelude, "int32", [relay.Any(), 3])
    pieces = ops.get_global_var("tensor_array_split")(
        parts.get_global_var("tensor_array")(relay.const(2)), tensor(v), relay.const(np.array([1, 1], "int32")))
    second = parts.get_global_var("tensor_array_read")(pieces, relay.const(1))
    np.testing.assert_array_equal(run(second, v), x[1:])
    with pytest.raises(tvm.error.TVMError, match="are not tensors of this array"):
        ops.define_tensor_array_split([4, 3], [2], True)


def test_accumulating_maps_of_the_prelude() -> None:
    """As in TVM, map_accuml returns its results in reverse."""
    prelude = relay.Prelude()
    _, cons, nil = prelude.mod.get_type("List")
    acc, x = relay.var("acc", shape=(), dtype="int32"), relay.var("x", shape=(), dtype="int32")
    f = relay.Function([acc, x], relay.Tuple([acc + x, acc]))
    numbers = cons(relay.const(1), cons(relay.const(2), cons(relay.const(3), nil())))

    def of(name: str) -> list[int]:
        total, left = relay.create_executor("debug", prelude.mod).evaluate(
            prelude.mod.get_global_var(name)(f, relay.const(0), numbers))
        assert int(total.numpy()) == 6
        found = []
        while left.fields:
            found.append(int(left.fields[0].numpy()))
            left = left.fields[1]
        return found

    assert of("map_accuml") == [3, 1, 0]
    assert of("map_accumr") == [5, 3, 0]


def test_lookup_tables_of_quantized_functions() -> None:
    canonicalizations = importlib.import_module("tilewright.relay.qnn.op.canonicalizations")
    legalizations = importlib.import_module("tilewright.relay.qnn.op.legalizations")
    x = np.arange(-128, 128, dtype="int8").reshape(2, 128)
    found = canonicalizations.create_integer_lookup_op(
        relay.const(x), legalizations.hardswish_func, relay.const(0.05), relay.const(3), relay.const(0.03),
        relay.const(10), in_dtype="int8", out_dtype="uint8")
    value = canonicalizations.run_const_expr(found)
    real = legalizations.hardswish_func((x.astype("float32") - 3) * np.float32(0.05))
    np.testing.assert_allclose((value.astype("float32") - 10) * 0.03, np.clip(real, -0.3, 245 * 0.03), atol=0.0151)
    with pytest.raises(tvm.error.TVMError, match="a table maps int8 or uint8"):
        canonicalizations.create_integer_lookup_table(
            np.abs, relay.const(1.0), relay.const(0), relay.const(1.0), relay.const(0), in_dtype="int16")


def test_names_that_tests_of_tvm_import() -> None:
    from tilewright.relay.testing import byoc
    from tilewright.relay.transform import mixed_precision
    from tilewright.topi.sparse.utils import random_bsr_matrix

    annotate = importlib.import_module("tilewright.relay.quantize._annotate")
    attach, role = annotate.attach_simulated_quantize, annotate.QAnnotateKind.INPUT
    assert importlib.import_module("tilewright._ffi.base").py_str(b"a") == "a"
    assert importlib.import_module("tilewright.relay.backend.runtime").Runtime is Runtime
    assert tvm.support.libinfo()["USE_MICRO"] == "OFF"
    x = relay.var("x", shape=(4, 4))
    y = attach(x, role)
    assert [v.name_hint for v in relay.analysis.free_vars(y)] == ["x", "dom_scale", "clip_min", "clip_max"]
    assert attach(y, role) is y
    marked = byoc.CcompilerAnnotator().visit(relay.Function([x], (x + x - x) * x))
    parts = relay.transform.PartitionGraph()(tvm.IRModule.from_expr(marked))
    assert [f.attrs["Compiler"] for f in parts.functions.values() if "Compiler" in f.attrs] == ["ccompiler"]
    call = relay.nn.dense(x, x)
    assert mixed_precision.generic_always_op(call, "float16") == [0, "float32", "float16"]
    assert mixed_precision.generic_never_op(relay.exp(x), "float16") == [2, "float16", "float16"]
    matrix = random_bsr_matrix(8, 16, 4, 2, 0.5)
    assert matrix.shape == (8, 16)
    assert matrix.data.shape == (8, 4, 2)


@pytest.mark.slow
def test_the_plugin_gives_parameters_and_skips_other_devices(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["tilewright.testing.plugin"]')
    (tmp_path / "test_lengths.py").write_text("""
import tilewright as tvm
lengths, order = tvm.testing.parameters(([3, 5], "ij"), ([4, 2], "xy"))
def test_lengths(lengths, order="none"):
    assert len(lengths) == 2 and order == "none"

import pytest
@pytest.mark.parametrize("target", ["llvm", "cuda -arch=sm_75", tvm.target.Target("opencl")])
def test_targets(target):
    assert target == "llvm"
""")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)], cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(tvm.__file__).parents[1])}, capture_output=True, text=True,
        check=False)
    assert "3 passed, 2 skipped" in done.stdout, done.stdout


@pytest.mark.slow
def test_parameters_that_are_values_of_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_files.py").write_text("""
import pytest
from pytest_lazyfixture import lazy_fixture
from tvm.contrib.hexagon.build import HexagonLauncher

@pytest.fixture
def seven():
    return 7

@pytest.mark.parametrize("number", [lazy_fixture("seven"), 7])
def test_number(number):
    assert number == 7

def test_device():
    HexagonLauncher(1)
""")
    source = Path(tvm.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "tilewright.tvm", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tvm_devices",
         str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(source.parent / "benchmarks")])})
    assert "2 passed, 1 skipped" in done.stdout, done.stdout


def test_natural_numbers() -> None:
    prelude = relay.testing.Prelude()
    prelude.mod.import_from_std("nat.rly")
    three = relay.testing.make_nat_expr(prelude, 3)
    assert relay.testing.count(prelude, three) == 3
    assert relay.testing.count(prelude, relay.testing.make_nat_value(prelude, 5)) == 5
    add, double = prelude.mod.get_global_var("nat_add"), prelude.mod.get_global_var("nat_double")
    assert relay.testing.count(prelude, relay.testing.run_as_python(add(double(three), three), prelude.mod)) == 9
    with pytest.raises(CompileError, match="-1 is not a natural number"):
        relay.testing.make_nat_expr(prelude, -1)


@pytest.mark.parametrize("kind", ["debug", "graph", "vm"])
@pytest.mark.parametrize(("dtype", "given"), [("uint8", [1, 2, 250]), ("float32", [0.5, 1.0, -2.0])])
def test_arrays_of_numpy_are_cast_to_the_type_of_the_parameter(kind: str, dtype: str, given: list[Any]) -> None:
    x = relay.var("x", shape=(3,), dtype=dtype)
    function = relay.create_executor(kind, tvm.IRModule.from_expr(relay.Function([x], relay.maximum(x, x)))).evaluate()
    answer = function(np.array(given)).numpy()
    assert answer.dtype == dtype and answer.tolist() == given


# --- contrib


def test_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "source", tmp_path / "folder" / "target"
    source.write_text("first")
    download(source.as_uri(), target)
    source.write_text("second")
    download(source.as_uri(), target)
    assert target.read_text() == "first"
    download(source.as_uri(), target, size_compare=True)
    assert target.read_text() == "second"
    monkeypatch.setenv("TEST_DATA_ROOT_PATH", str(tmp_path / "root"))
    assert download_testdata(source.as_uri(), "a.txt", module="data") == str(tmp_path / "root" / "data" / "a.txt")
    with pytest.raises(OptionError, match="cannot be downloaded"):
        download((tmp_path / "missing").as_uri(), tmp_path / "x", retries=0)
    with pytest.raises(OptionError, match="unknown url type"):
        download("nonsense", tmp_path / "x")


def test_the_compiler_of_the_system(tmp_path: Path) -> None:
    if cc.get_cc() is None or sys.platform == "win32":
        pytest.skip("no C++ compiler")
    text, library = tmp_path / "f.c", tmp_path / "f.so"
    text.write_text("int twice(int x) { return 2 * x; }\n")
    cc.create_shared(library, text, ["-x", "c"])
    assert library.stat().st_size > 0
    cc.cross_compiler(cc.get_cc() or "", ["-O1"])(tmp_path / "g.so", [text])
    assert (tmp_path / "g.so").exists() and "-" in cc.get_target_by_dump_machine(cc.get_cc() or "")()
    text.write_text("int twice(int x) { return 2 *; }\n")
    with pytest.raises(ArtifactError, match="failed"):
        cc.create_shared(library, text)


def test_capabilities_of_gpus() -> None:
    assert not cudnn.exists()
    assert nvcc.parse_compute_version("7.5") == (7, 5)
    assert [f("6.1") for f in (nvcc.have_fp16, nvcc.have_int8, nvcc.have_tensorcore, nvcc.have_bf16)] == [
        True, True, False, False]
    with pytest.raises(TargetError, match="code for GPUs cannot be compiled"):
        nvcc.compile_cuda("")


def test_functions_over_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    a = tvm.te.placeholder((4,), name="a")
    b = tvm.te.compute((4,), lambda i: a[i] + 1.0, name="b")
    twice = dlpack.to_pytorch_func(tvm.build(tvm.te.create_schedule(b.op), [a, b], "llvm"))
    x, y = torch.arange(4, dtype=torch.float32), torch.zeros(4)
    twice(x, y)
    assert y.tolist() == [1, 2, 3, 4]


def test_results_are_memoized_for_each_list_of_arguments() -> None:
    from tilewright.compat.contrib.pickle_memoize import memoize

    calls: list[object] = []

    @memoize("a.key", save_at_exit=True)
    def doubled(shape: list[int], k: int = 1) -> list[int]:
        calls.append((tuple(shape), k))
        return [2 * k * d for d in shape]

    assert doubled([1, 2]) == doubled([1, 2]) == [2, 4] and doubled([1, 2], 3) == [6, 12]
    assert calls == [((1, 2), 1), ((1, 2), 3)] and doubled.__name__ == "doubled"
