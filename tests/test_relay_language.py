"""What somebody who knows Relay expects of its nodes and of what is around them: fields, kinds, containers, arrays,
names."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.backends.accelerators.precision import precision_of
from tilewright.base import logs, nd
from tilewright.base.errors import (
    CompileError,
    InputError,
    ModelError,
    OptionError,
    TargetError,
    UnknownOperatorWarning,
)
from tilewright.ir.op_attributes import reset_op_attr
from tilewright.relay.expr import Call, Constant, Function, If, Let, Tuple, TupleGetItem, Var, const, var
from tilewright.relay.visitor import calls

SOURCE = Path(tvm.__file__).parent


def mnist() -> tuple[Function, dict[str, Any]]:
    """softmax(bias_add(matmul(relu(bias_add(matmul(x, c1), c2)), c3), c4)), and its values by name."""
    x = var("x", shape=(1, 784))
    c1, c2, c3, c4 = (const(np.ones(s, "float32")) for s in ((784, 16), (16,), (16, 10), (10,)))
    matmul1 = relay.nn.matmul(x, c1)
    bias1 = relay.nn.bias_add(matmul1, c2)
    matmul2 = relay.nn.matmul(relay.nn.relu(bias1), c3)
    out = relay.nn.softmax(relay.nn.bias_add(matmul2, c4))
    return Function((x,), out), {"x": x, "c1": c1, "c2": c2, "matmul1": matmul1, "bias1": bias1, "matmul2": matmul2}


def test_data_types_have_code_bits_and_lanes() -> None:
    codes = tvm.DataTypeCode
    for name, code, bits, lanes in (
        ("int8", codes.INT, 8, 1), ("uint16", codes.UINT, 16, 1), ("float32x4", codes.FLOAT, 32, 4),
        ("bfloat16", codes.BFLOAT, 16, 1), ("handle", codes.HANDLE, 64, 1), ("bool", codes.UINT, 1, 1),
    ):
        t = tvm.DataType(name)
        assert (str(t), t.type_code, t.bits, t.lanes) == (name, code, bits, lanes)
        assert tvm.DataType.of_code(code, bits, lanes) is t
    # between them, small floats of DLPack that are not here
    assert [int(c) for c in codes] == [0, 1, 2, 3, 4, 5, *range(10, 18)]
    for name, number in (
        ("float8_e4m3fn", 10), ("float8_e5m2", 12), ("float8_e8m0fnu", 14), ("float6_e2m3fn", 15), ("float4_e2m1fn", 17)
    ):
        t = tvm.DataType(name)
        assert (t.type_code, tvm.DataType.of_code(number, t.bits)) == (number, t)


def test_types_that_are_not_there_are_refused() -> None:
    for name, message in (
        ("bfloat32", "'bfloat32' is not a data type: bfloat is 16 bits wide"),
        ("custom[posit]32", r"'custom\[posit\]32' is a custom data type, which is not supported"),
        ("float31", "float is 16, 32, 64 bits wide"),
        ("flot32", "'flot32' is not a data type; write for example float32"),
    ):
        with pytest.raises(CompileError, match=message):
            tvm.DataType(name)
    with pytest.raises(
        CompileError,
        match=r"type code 129 is a custom data type, which is not supported; the codes are 0 \(int\), 1 \(uint\), .* "
        r"17 \(float4_e2m1fn\)"
    ):
        tvm.DataType.of_code(129, 32)
    with pytest.raises(
        CompileError,
        match=r"there is no type code 7; the codes are 0 \(int\), 1 \(uint\), 2 \(float\), 3 \(handle\), 4 \(bfloat\)"
    ):
        tvm.DataType.of_code(7, 32)


def test_the_memory_of_a_constant_is_shared_through_dlpack() -> None:
    value = np.arange(6, dtype="float32").reshape(2, 3)
    array = Constant(value).data
    assert (array.shape, array.dtype, array.ndim, array.device.device_type) == ((2, 3), "float32", 2, 1)
    assert np.shares_memory(np.from_dlpack(array), value)
    assert np.shares_memory(np.asarray(tvm.nd.from_dlpack(array.to_dlpack())), value)


def test_strides_and_offsets_pass_through_dlpack() -> None:
    value = np.arange(24, dtype="int32").reshape(4, 6)
    for view in (value[:, ::2], value[1:, 2:], value.T, value[::-1]):
        for seen in (np.asarray(nd.from_dlpack(view)), np.from_dlpack(nd.NDArray(view))):
            np.testing.assert_array_equal(seen, view)
            assert seen.strides == view.strides and np.shares_memory(seen, value)


def test_torch_and_this_package_share_memory_both_ways() -> None:
    torch = pytest.importorskip("torch")
    ours = nd.array(np.zeros((2, 3), "float32"))
    theirs = torch.from_dlpack(ours)
    theirs[1, 2] = 5
    assert ours[1, 2] == 5
    theirs = torch.utils.dlpack.from_dlpack(ours.to_dlpack())
    assert theirs.data_ptr() == np.asarray(ours).ctypes.data
    part = torch.arange(12).reshape(3, 4)[1:, 1::2]
    seen = nd.from_dlpack(torch.utils.dlpack.to_dlpack(part))
    assert seen.numpy().tolist() == part.tolist() and np.asarray(seen).ctypes.data == part.data_ptr()
    flags = torch.tensor([True, False])
    assert nd.from_dlpack(flags).dtype == "bool" and nd.from_dlpack(flags).numpy().tolist() == [True, False]
    assert torch.from_dlpack(nd.array(np.array([True, False]))).dtype == torch.bool
    half = nd.array(np.array([[1.5, 2.5], [3.5, 4.5]], ml_dtypes.bfloat16))
    turned = torch.from_dlpack(nd.NDArray(np.asarray(half).T))
    assert turned.dtype == torch.bfloat16 and turned.tolist() == [[1.5, 3.5], [2.5, 4.5]]


def test_a_call_has_its_operator_its_attributes_and_its_arguments() -> None:
    _, values = mnist()
    call = values["matmul1"]
    assert call.op.name == "nn.matmul" and call.op == relay.op.get("nn.matmul")
    assert (call.attrs.transpose_a, call.attrs.transpose_b, call.attrs["transpose_b"]) == (False, False, False)
    assert {"units", "out_dtype", "transpose_a", "transpose_b"} <= set(call.attrs.keys())
    assert isinstance(call.args[0], Var) and isinstance(call.args[1], Constant) and isinstance(
        values["bias1"].args[0], Call
    )


def test_the_chain_of_a_network_is_walked_from_its_end() -> None:
    function, _ = mnist()
    names, e = [], function.body
    while isinstance(e, Call):
        names.append(e.op.name)
        e = e.args[0]
    assert names == ["nn.softmax", "nn.bias_add", "nn.matmul", "nn.relu", "nn.bias_add", "nn.matmul"]
    assert e is function.params[0]


def test_what_is_called_may_be_a_function_a_global_or_a_variable() -> None:
    x = var("x", shape=(2,))
    f = Function((x,), relay.nn.relu(x))
    g = relay.GlobalVar("g", f.checked_type)  # type: ignore[arg-type]
    v = Var("f", f.checked_type)
    for callee in (f, g, v):
        assert Call(callee, (x,)).op is callee and Call(callee, (x,)).checked_type == x.checked_type


def test_kinds_of_node_have_the_names_of_the_field() -> None:
    x, c = var("x", shape=(2,)), const(True)
    pair = Tuple((x, x))
    nodes: dict[str, Any] = {
        "relay.Var": x, "relay.Constant": c, "relay.Call": relay.nn.relu(x), "relay.Function": Function((x,), x),
        "relay.Tuple": pair,
        "relay.TupleGetItem": TupleGetItem(pair, 0), "relay.If": If(c, x, x), "relay.Let": Let(x, x, x),
        "GlobalVar": relay.GlobalVar("f"),
        "relay.RefCreate": relay.RefCreate(x), "relay.TensorType": x.checked_type,
    }
    for key, node in nodes.items():
        assert node.type_key == key
    assert relay.nn.relu(x).op.type_key == "Op"


def test_a_function_has_parameters_a_body_and_types() -> None:
    function, values = mnist()
    assert function.params == (
        values["x"],
    ) and function.ret_type == relay.TensorType((1, 10)) and function.type_params == ()
    assert function.with_attr("Compiler", "npu").attrs["Compiler"] == "npu"
    assert [c.op.name for c in calls(function)] == [
        "nn.matmul", "nn.bias_add", "nn.relu", "nn.matmul", "nn.bias_add", "nn.softmax"
    ]


def test_a_module_maps_global_names_to_functions() -> None:
    x = var("x", shape=(1, 784))
    body, _ = mnist()
    mod = tvm.IRModule({"first": body})
    gv = mod.get_global_var("first")
    mod["main"] = Function((x,), Call(gv, (x,)))
    mod[relay.GlobalVar("third")] = body
    assert {
        v.name_hint for v in mod.functions
    } == {"first", "main", "third"} and mod[gv] is body and mod["main"].body.op is gv
    mod.update_func(gv, mod["main"])
    assert mod["first"] is mod["main"]
    assert mod.with_attrs({"a": 1, "b": 2}).without_attr("a").get_attrs() == {"b": 2} and mod.get_attrs() == {}
    assert mod.script().count("def @") == 3 and [
        v.name_hint for v, _ in mod.functions_items()
    ] == ["first", "main", "third"]


def test_a_module_prints_and_imports_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "more.relay"
    path.write_text('#[version = "0.0.5"]\ndef @twice(%x: Tensor[(2), float32]) { add(%x, %x) }\n', encoding="utf-8")
    mod = tvm.IRModule()
    mod._import(path)
    mod.show()
    assert "def @twice" in capsys.readouterr().out


def test_containers_are_never_changed() -> None:
    a = tvm.ir.container.Array([1, 2, 3])
    assert (len(a), a[0], a[-1], list(a[1:]), list(a + [4]), repr(a)) == (3, 1, 3, [2, 3], [1, 2, 3, 4], "[1, 2, 3]")
    with pytest.raises(CompileError, match="an Array is immutable; create a new one"):
        a[0] = 5
    source = {"x": 1}
    m = tvm.ir.container.Map(source)
    source["x"] = 2
    assert m["x"] == 1 and list(m.items()) == [("x", 1)] and "y" not in m and repr(m) == "{'x': 1}"
    with pytest.raises(CompileError, match=r"a Map is immutable; create a new one: Map\(\{\*\*m, 'y': value\}\)"):
        m["y"] = 3


def test_values_are_converted_to_containers() -> None:
    found = tvm.runtime.convert([1, 2.5, "x", {"k": (True,)}])
    assert isinstance(found, tvm.ir.Array) and isinstance(found[3], tvm.ir.Map) and isinstance(
        found[3]["k"], tvm.ir.Array
    )
    assert (
        found[0].dtype, found[0].value, found[1].dtype, found[1].value, found[2], found[3]["k"][0].dtype
    ) == ("int32", 1, "float32", 2.5, "x", "bool")
    assert tvm.convert(1 << 40).dtype == "int64" and tvm.convert(found) == found


def test_places_in_texts() -> None:
    span = tvm.ir.Span(tvm.ir.SourceName("net.relay"), 3, 3, 5, 9)
    assert (span.source_name, span.line, span.end_line, span.column, span.end_column) == ("net.relay", 3, 3, 5, 9)
    both = tvm.ir.SequentialSpan([span, tvm.ir.SequentialSpan([span])])
    assert both.spans == (span, span) and both.line == 3
    with pytest.raises(CompileError, match=r"'3:5' \(net\.relay:3\): add"):
        relay.add(var("x", shape=(2,)), var("y", shape=(3,)), span=span)


def test_functions_are_registered_found_and_replaced() -> None:
    try:
        @tvm.register_func("test.double")
        def double(x: int) -> int:
            return 2 * x

        assert tvm.get_global_func(
            "test.double"
        )(4) == 8 and "test.double" in tvm._ffi.registry.list_global_func_names()
        with pytest.raises(
            OptionError,
            match=rf"the function 'test\.double' is registered already, at {re.escape(__file__)}:\d+; give "
            r"override=True"
        ):
            tvm.register_func("test.double", double)
        tvm.register_func("test.double", lambda x: 3 * x, override=True)
        assert tvm.get_global_func("test.double")(4) == 12
        with pytest.raises(
            OptionError, match=r"there is no registered function 'test\.duoble'; did you mean 'test\.double'"
        ):
            tvm.get_global_func("test.duoble")
        assert tvm.get_global_func("test.duoble", allow_missing=True) is None
        with pytest.raises(
            OptionError, match=r"there is no registered function 'nn\.conv2d'; it is an operator: relay\.op\.get"
        ):
            tvm.get_global_func("nn.conv2d")
        with pytest.raises(OptionError, match="only a function can be registered as 'x', not 3"):
            tvm.register_func("x")(3)
    finally:
        tvm.registry.remove_global_func("test.double")
    assert "test.double" not in tvm.registry.list_global_func_names()


def test_errors_of_a_registered_function_say_where_it_is() -> None:
    @tvm.register_func("test.fail", override=True)
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        tvm.get_global_func("test.fail")()
    tvm.registry.remove_global_func("test.fail")
    line = fail.__code__.co_firstlineno
    assert caught.value.__notes__ == [f"in the registered function 'test.fail', defined at {__file__}:{line}"]


def defined(place: str) -> str:
    path, _, line = place.rpartition(":")
    return Path(path).read_text(encoding="utf-8").split("\n")[int(line) - 1]


@pytest.mark.slow
def test_every_name_leads_to_its_definition() -> None:
    where = tvm.registry.where
    assert '@op("nn.conv2d"' in defined(where("nn.conv2d"))
    path, _, line = where("FoldConstant").rpartition(":")
    assert path == str(SOURCE / "relay" / "transform" / "fold_constant.py")
    assert "class FoldConstant" in "\n".join(
        Path(path).read_text(encoding="utf-8").split("\n")[int(line) - 1 : int(line) + 1]
    )
    assert '"relay.FuseOps.max_depth"' in defined(where("relay.FuseOps.max_depth"))
    with pytest.raises(OptionError, match=r"pass or option 'nn\.conv2dd'; did you mean 'nn\.conv2d'"):
        where("nn.conv2dd")
    for name in relay.op.OPS:
        assert where(name).startswith(str(SOURCE)), name


def test_attributes_of_operators() -> None:
    op = tvm.ir.Op.get("nn.conv2d")
    assert op is relay.op.get("nn.conv2d") and "nn.conv2d" in tvm.ir.Op.list_op_names()
    try:
        @tvm.ir.register_op_attr("nn.conv2d", "target.test")
        def supported(expr: Any) -> bool:
            return True

        assert op.get_attr("target.test") is supported and op.has_attr("target.test") and not op.has_attr("target.tset")
        for name in ("target.test", "nn.conv2d/target.test"):
            assert "register_op_attr" in defined(tvm.registry.where(name))
        with pytest.raises(
            OptionError,
            match=r"the attribute 'target\.test' of nn\.conv2d is already registered with level 10; .* \(registered at "
            r".*test_relay_language\.py:\d+\)"
        ):
            op.set_attr("target.test", 1)
        op.set_attr("target.test", 1, plevel=11)
        assert op.get_attr("target.test") == 1
    finally:
        reset_op_attr("nn.conv2d", "target.test")
    assert op.get_attr("target.test") is None and op.get_attr("TOpPattern") == 4


def test_what_is_said_of_an_operator_that_does_not_exist_is_told() -> None:
    said = (
        r"there is no operator 'nn\.bais_add'; did you mean 'nn\.bias_add'\?; its attribute 'target\.test' has no "
        r"effect.*relay\.op\.register.*at .*test_relay_language\.py:\d+"
    )
    try:
        with pytest.warns(UnknownOperatorWarning, match=said):
            tvm.ir.register_op_attr("nn.bais_add", "target.test", lambda expr: True)
        with pytest.warns(UnknownOperatorWarning, match=r"'nn\.conv22d'; did you mean 'nn\.conv2d'"):
            relay.op.register_legalize("nn.conv22d", lambda attrs, inputs, types: None)
    finally:
        reset_op_attr("nn.bais_add", "target.test")
        reset_op_attr("nn.conv22d", "FTVMLegalize")


def test_hooks_of_operators_are_found_where_they_are_registered() -> None:
    try:
        @relay.op.register_legalize("nn.conv2d", level=20)
        def changed(attrs: Any, inputs: Any, types: Any) -> None:
            return None

        relay.op.get("nn.conv2d").set_attr("FTVMStrategy", changed)
        assert "register_legalize" in defined(tvm.registry.where("nn.conv2d/FTVMLegalize"))
        assert "set_attr" in defined(
            tvm.registry.where("nn.conv2d/FTVMStrategy")
        ) and tvm.registry.where("FTVMStrategy") == tvm.registry.where("nn.conv2d/FTVMStrategy")
    finally:
        reset_op_attr("nn.conv2d", "FTVMLegalize")
        reset_op_attr("nn.conv2d", "FTVMStrategy")


def test_an_operator_of_a_program_is_one_like_the_others() -> None:
    from tilewright import te
    from tilewright.relay.op.registry import OPS, Fusion, Op, op

    try:
        @op("test.cube", kind=Fusion.ELEMWISE)
        class Cube(Op):
            """scale * x^3."""

            scale: float = 1.0

            def infer(self, data: Any) -> Any:
                return data

            def reference(self, data: Any) -> Any:
                return data**3 * np.float32(self.scale)

            def compute(self, data: te.Tensor) -> te.Tensor:
                return te.compute(data.extents, lambda *i: data(*i) * data(*i) * data(*i) * self.scale, name="cube")

        x = var("x", shape=(4,))
        mod = tvm.IRModule.from_expr(relay.nn.relu(Call(relay.op.get("test.cube"), [x], {"scale": 2.0})))
        assert tvm.ir.structural_equal(tvm.parser.parse(mod.astext()), mod) and tvm.ir.structural_equal(
            tvm.ir.load_json(tvm.ir.save_json(mod)), mod
        )
        assert "test.cube" in defined(tvm.registry.where("test.cube"))
        for kind in ("graph", "debug"):
            answer = relay.create_executor(kind, mod=mod, target="llvm").evaluate()(np.arange(-1, 3, dtype="float32"))
            np.testing.assert_array_equal(answer.numpy(), [0, 0, 2, 16])
    finally:
        OPS.pop("test.cube", None)


def test_levels_of_logging_by_module(caplog: pytest.LogCaptureFixture) -> None:
    loggers = [logging.getLogger(n) for n in ("tilewright", "tilewright.ir.transform", "tilewright.relay")]
    before = [(g, g.level) for g in loggers]
    try:
        assert logs.configure("ir.transform=DEBUG,relay=info") == {
            "tilewright.ir.transform": logging.DEBUG, "tilewright.relay": logging.INFO
        }
        assert logs.configure("DEFAULT=0;src/ir/transform.cc=2") == {
            "tilewright": logging.INFO, "tilewright.ir.transform": logging.DEBUG
        }
        relay.transform.InferType()(tvm.IRModule.from_expr(mnist()[0]))
        assert ("tilewright.ir.transform", logging.DEBUG, "InferType") in caplog.record_tuples
        with pytest.raises(OptionError, match="there is no logging level 'DEBGU'; did you mean 'DEBUG'"):
            logs.configure("relay=DEBGU")
    finally:
        for logger, level in before:
            logger.setLevel(level)
        logging.getLogger("tilewright").removeHandler(logs._HANDLER)


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["TILEWRIGHT_LOG", "TVM_LOG_DEBUG"])
def test_the_environment_sets_the_levels(variable: str) -> None:
    code = (
        "import tilewright as tvm\nfrom tilewright import "
        "relay\nrelay.transform.InferType()(tvm.IRModule.from_expr(relay.var('x', shape=(1,))))"
    )
    environment = {"PYTHONPATH": str(SOURCE.parent), variable: "ir/transform.py=1"}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert re.fullmatch(r"DEBUG tilewright\.ir\.transform:\d+: InferType\n", found.stderr)


def test_accelerators_have_names_for_precisions() -> None:
    names = [precision_of(t) for t in ("int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32")]
    assert names == ["INT8", "INT16", "INT32", "UINT8", "UINT16", "UINT32", "FP16", "FP32"]
    with pytest.raises(TargetError, match="Unsupported type: float64; the types are int8, int16"):
        precision_of("float64")
    with pytest.raises(TargetError, match="Unsupported type: int8x4; it has 4 lanes"):
        precision_of("int8x4")


def parameters() -> dict[str, np.ndarray[Any, Any]]:
    kinds = ("float32", "float16", "float64", "int8", "uint8", "int64", "bool", ml_dtypes.bfloat16)
    return {
        f"p{i}/é": np.arange(6).reshape(2, 3).astype(k) for i, k in enumerate(kinds)
    } | {"scalar": np.array(1.5), "none": np.zeros((0, 3), "int32")}


def test_parameters_as_bytes() -> None:
    given = parameters()
    found = relay.load_param_dict(relay.save_param_dict(given))
    assert list(found) == list(given)
    for name, value in given.items():
        assert (
            found[name].numpy().dtype == value.dtype and found[name].numpy().tobytes() == value.tobytes()
            and found[name].shape == value.shape
        )
    assert tvm.runtime.save_param_dict(
        {"a": nd.array(given["scalar"])}
    ) == relay.save_param_dict({"a": given["scalar"]})


def test_the_bytes_of_parameters_are_those_of_the_field() -> None:
    raw = relay.save_param_dict({"w": np.array([1.0], "float32")})
    assert raw.hex() == (
        "b79c04054f8de5f7" "0000000000000000" "0100000000000000" "0100000000000000" "77" "0100000000000000"
        "3fa1b496f0405edd" "0000000000000000" "01000000" "00000000" "01000000" "02" "20" "0100" "0100000000000000" "0400000000000000" "0000803f"  # noqa: E501
    )


def test_damaged_parameters_are_refused() -> None:
    raw = relay.save_param_dict(parameters())
    with pytest.raises(ModelError, match="these bytes are not parameters"):
        relay.load_param_dict(b"\0" * 16)
    with pytest.raises(ModelError, match="the parameters are damaged at byte"):
        relay.load_param_dict(raw[:-1])
    rng = np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(raw)
        broken[int(rng.integers(len(raw)))] ^= int(rng.integers(1, 256))
        try:
            relay.load_param_dict(broken)
        except ModelError as error:
            assert "parameters" in error.message


def test_expressions_compare_and_are_told_apart() -> None:
    x, y = var("x", shape=(2,)), var("y", shape=(2,))
    assert [e.op.name for e in (x < y, x > 1, x <= y, x <= 2.0)] == ["less", "greater", "less_equal", "less_equal"]
    assert x.same_as(x) and not x.same_as(y) and x.vid.name_hint == "x"
    array = nd.array([1.0])
    assert array.same_as(array) and not array.same_as(nd.array([1.0]))


def test_ways_to_write_a_variable() -> None:
    assert var("x", "int8").checked_type == relay.scalar_type("int8")
    assert var("x", relay.TensorType((2,))).checked_type == var("y", shape=(2,)).checked_type
    with pytest.raises(
        CompileError, match=r"the variable x was given both the type 'int8' and the shape \(2,\); omit one of them"
    ):
        var("x", "int8", shape=(2,))


def test_sizes_are_numbers_with_a_value() -> None:
    shape = var("x", shape=(2, np.int64(3), tvm.tir.IntImm("int32", 4), relay.Any())).tensor_type.shape
    assert [d.value for d in shape[:3]] == [2, 3, 4] == [int(d) for d in shape[:3]] and not hasattr(shape[3], "value")
    assert str(shape[0]) == "2" and type(shape[0].value) is int


def test_fields_of_tuples_from_either_end() -> None:
    a, b = const(1), const(2)
    both = Tuple((a, b))
    assert both[-1] is b and both.astuple() is both and list(both) == [a, b]
    with pytest.raises(IndexError, match="field -3 is out of range for a tuple of 2"):
        both[-3]


def test_fields_of_results_whose_types_are_not_known_yet() -> None:
    x, y = var("x"), var("y")
    first, second = relay.split(x, 2)
    assert isinstance(first, TupleGetItem) and isinstance(second, TupleGetItem)
    assert (first.index, second.index, len(list(relay.split(x, (1, 4))))) == (0, 1, 3)
    assert len(list(relay.nn.batch_norm(x, y, y, y, y))) == 3 and len(list(relay.nn.dropout_raw(x))) == 2
    places = relay.topk(x, 2)[1]
    assert isinstance(places, TupleGetItem) and places.index == 1
    with pytest.raises(IndexError, match="field 2 is out of range for a tuple of 2"):
        relay.split(x, 2)[2]
    with pytest.raises(
        CompileError, match="the number of fields is not known; use indices, or annotate the variables"
    ):
        list(relay.topk(x, 2))
    with pytest.raises(CompileError, match="the type of this Var is not known"):
        x[0]


def test_dropout_is_a_tensor_and_its_raw_form_a_tuple() -> None:
    x = var("x", shape=(2,))
    assert relay.nn.dropout(x, rate=0.1).checked_type == x.checked_type
    kept, raw = relay.nn.dropout(x, 0.1), relay.nn.dropout_raw(x, 0.1)
    assert isinstance(kept, TupleGetItem) and isinstance(kept.tuple_value, Call) and isinstance(raw, Call)
    assert kept.tuple_value.op == raw.op


def test_attributes_by_kind() -> None:
    attrs = relay.nn.conv2d(var("x"), var("w"), channels=8, kernel_size=(3, 3)).attrs
    assert (
        attrs.get_int("channels"), attrs.get_str("data_layout"), attrs.get_int_tuple("kernel_size")
    ) == (8, "NCHW", (3, 3))
    with pytest.raises(KeyError, match=r"nn\.conv2d has no attribute 'chanels'; it has strides, padding"):
        attrs.get_int("chanels")


def test_numbers_and_texts_of_the_field_as_attributes_of_functions() -> None:
    f = Function([], const(1)).with_attr(
        "Primitive", tvm.tir.IntImm("int32", 1)
    ).with_attr("Composite", tvm.tir.StringImm("a.b"))
    assert f.attrs == {"Primitive": 1, "Composite": "a.b"} and type(f.attrs.Primitive) is int
    assert Function([], const(1), attrs={"scale": tvm.tir.FloatImm("float32", 0.5)}).attrs.scale == 0.5


def test_functions_of_operators_stand_beside_their_classes() -> None:
    x = var("x", shape=(1, 2, 4, 4))
    assert relay.op.nn.relu(x).op == relay.op.get("nn.relu") and relay.op.add(x, x).op.name == "add"
    assert (
        relay.op.image.resize2d(x, (8, 8)).op.name == "image.resize2d"
        and relay.op.random.threefry_key(1).checked_type.shape == (10,)
    )
    assert relay.op.arange(3).checked_type.shape == (3,) and relay.op.vision.non_max_suppression
    assert (relay.op.OpPattern.OUT_ELEMWISE_FUSABLE, relay.op.OpPattern.OPAQUE) == (4, 8)
    for module in (relay.op, relay.op.nn, relay.op.vision):
        with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
            _ = module.nonsense


def test_the_modules_of_the_field() -> None:
    from tilewright.relay.expr_functor import ExprMutator
    from tilewright.relay.function import FunctionWithFields
    from tilewright.relay.ty import TupleType
    from tilewright.relay.type_functor import TypeMutator, TypeVisitor

    x, w = var("x", shape=(2, 3)), var("w", shape=(4, 3))
    f = Function([x, w], relay.nn.dense(x, w), attrs={"a": 1})
    bound = relay.build_module.bind_params_by_name(f, {"w": np.ones((4, 3), "float32")})
    assert [
        p.name_hint for p in bound.params
    ] == ["x"] and bound.attrs == {"a": 1} and relay.build_module.build is relay.build
    assert relay.build_module.bind_params_by_name(f, {"other": 1}) is f
    same = Function([x, var("x", shape=(4, 3))], x)
    with pytest.raises(InputError, match=r"2 parameters are named 'x'; rename them, or bind values with relay\.bind"):
        relay.build_module.bind_params_by_name(same, {"x": np.ones((2, 3), "float32")})
    with pytest.raises(AttributeError, match=r"'tilewright.relay.build_module' has no attribute 'nonsense'"):
        _ = relay.build_module.nonsense
    body = relay.nn.relu(f.body)
    other = FunctionWithFields(f, body=body, attrs={})
    assert (other.params, other.attrs) == (f.params, {}) and other.body is body and FunctionWithFields(f).body is f.body
    assert ExprMutator is relay.ExprMutator

    class Halves(TypeMutator):
        def visit_tensor_type(self, tt: Any) -> Any:
            return relay.TensorType(tt.shape, "float16")

    class Names(TypeVisitor):
        def __init__(self) -> None:
            self.found: list[str] = []

        def visit_type_var(self, tv: Any) -> None:
            self.found.append(tv.name_hint)

        def visit_tensor_type(self, tt: Any) -> None:
            self.found.append(str(tt.dtype))

    a, box = relay.TypeVar("A"), relay.GlobalTypeVar("Box")
    whole = relay.FuncType(
        [TupleType([x.checked_type, a]), relay.RefType(x.checked_type)], box(x.checked_type), [a], []
    )
    assert str(
        Halves().visit(whole)
    ) == "fn [A]((Tensor[(2, 3), float16], A), ref(Tensor[(2, 3), float16])) -> Box[Tensor[(2, 3), float16]]"
    names = Names()
    names.visit(whole)
    lists: Any = [a], [relay.Constructor("Box", [a], box)]
    names.visit(relay.TypeData(box, *lists))
    assert names.found == ["A", "float32", "A", "float32", "float32", "A", "A"]
    with pytest.raises(NotImplementedError, match="TypeVisitor has no method for types of this kind to visit a int"):
        TypeVisitor().visit(1)


def test_types_have_kinds() -> None:
    t, shape, rule = (relay.TypeVar(k.name, k) for k in (
        relay.TypeKind.Type, relay.TypeKind.ShapeVar, relay.TypeKind.Constraint))
    check = relay.analysis.check_kind
    assert [check(v) for v in (t, shape, rule)] == [t.kind, shape.kind, rule.kind] == [0, 1, 4]
    relation = relay.TypeRelation(None, [t, relay.scalar_type("int32")], 1, None)
    generic = relay.FuncType([t], relay.TupleType([t]), [t], [relation])
    assert check(relation) == relay.TypeKind.Constraint and check(generic) == relay.TypeKind.Type
    for wrong in (relay.TupleType([t, shape]), relay.RefType(rule), relay.TypeRelation(None, [shape], 1, None),
                  relay.FuncType([t], t, [t, shape]), relay.GlobalTypeVar("v", relay.TypeKind.Type)()):
        with pytest.raises(CompileError, match=r"only (Type|AdtHandle) is allowed there"):
            check(wrong)
    mod, box = tvm.IRModule(), relay.GlobalTypeVar("Box")
    mod[box] = relay.TypeData(box, (t,), ())
    assert check(mod[box], mod) == relay.TypeKind.TypeData and check(box(t), mod) == relay.TypeKind.Type
    with pytest.raises(CompileError, match="has 0 type arguments, but the data type Box takes 1"):
        check(box(), mod)
    back = tvm.ir.load_json(tvm.ir.save_json(shape))
    assert (back.name_hint, back.kind) == ("ShapeVar", relay.TypeKind.ShapeVar)
    assert relay.FuncType([], t, [t]) != relay.FuncType([], shape, [shape]) == relay.FuncType([], back, [back])
    f = var("f", generic)
    with pytest.raises(CompileError, match="a function with type constraints cannot be called"):
        relay.transform.InferType()(tvm.IRModule.from_expr(Function([f], f(const(1)))))


def test_a_registered_function_is_a_value() -> None:
    tvm.register_func("test.relay_language.twice", lambda x: 2 * x, override=True)
    f = tvm.ir.EnvFunc.get("test.relay_language.twice")
    assert (f.name, f(2), f.func(3)) == ("test.relay_language.twice", 4, 6) and f == tvm.ir.EnvFunc(f.name)
    with pytest.raises(OptionError, match="there is no registered function"):
        tvm.ir.EnvFunc.get("test.relay_language.none")


def test_a_module_looks_up_by_name() -> None:
    mod = tvm.IRModule.from_expr(var("x", shape=(2,)))
    assert mod.lookup("main") is mod.Lookup("main") is mod["main"]


def test_a_pass_takes_a_module() -> None:
    with pytest.raises(
        CompileError,
        match="the pass FoldConstant takes a module, not Function; wrap a function with "
        "IRModule\\.from_expr"
    ):
        relay.transform.FoldConstant()(Function([], const(1)))  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["debug", "graph", "vm"])
def test_numbers_are_given_to_programs_in_the_type_of_the_parameter(kind: str) -> None:
    mod = tvm.parser.parse(
        "def @main(%n: int32, %x: float32) -> float32 { let %f = fn (%y: float32) -> float32 { %y + cast(%n, "
        "dtype=\"float32\") }; %f(%f(%x)) }"
    )
    run = relay.create_executor(kind, mod=mod, target="llvm").evaluate()
    assert run(3, 1).numpy() == run(3, x=1.0).numpy() == 7
    with pytest.raises(CompileError, match="int32"):
        run(2.5, 1.0)


@pytest.mark.parametrize("kind", ["debug", "graph", "vm", "aot"])
def test_tuples_inside_tuples_come_back_as_such(kind: str) -> None:
    x = var("x", shape=(2,))
    program = relay.Function([x], relay.Tuple([x, relay.Tuple([relay.exp(x), relay.Tuple([x, x]), relay.Tuple([x])])]))
    value = np.ones(2, np.float32)
    first, (second, (third, fourth), (fifth,)) = relay.create_executor(kind, target="llvm").evaluate(program)(value)
    for found, wanted in ((first, value), (second, np.exp(value)), (third, value), (fourth, value), (fifth, value)):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-6)


def test_the_passes_of_compiling_on_their_own() -> None:
    x, w = var("x", shape=(2, 3)), var("w", shape=(4, 3))
    mod, params = relay.optimize(
        tvm.IRModule.from_expr(relay.nn.relu(relay.nn.dense(x, w))), target="llvm",
        params={"w": np.ones((4, 3), "float32")}
    )
    assert params == {} and [p.name_hint for p in mod["main"].params] == ["x"]
    assert len(relay.analysis.extract_fused_functions(mod)) == 1


def test_fields_of_a_literal_tuple_of_unknown_types() -> None:
    x, y = relay.var("x"), relay.var("y")
    assert relay.Tuple([x, y])[-1] is y
