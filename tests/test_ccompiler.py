"""TVM's example of another code generator, `ccompiler`, and calls of modules that other compilers make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.backends.accelerators.ccompiler import CompiledCModule
from tilewright.base.errors import ArtifactError, CompileError, OptionError, TargetError
from tilewright.runtime import graph_executor

RNG = np.random.default_rng(5)


def part(value: Any, params: list[Any], symbol: str = "ccompiler_0", compiler: str = "ccompiler") -> Any:
    """Return a function that another compiler takes."""
    return relay.Function(params, value, attrs={"Primitive": 1, "Compiler": compiler, "global_symbol": symbol})


def variables(names: str, shape: tuple[int, ...] = (4, 3), dtype: str = "float32") -> list[Any]:
    return [relay.var(n, shape=shape, dtype=dtype) for n in names]


def arrays(count: int, shape: tuple[int, ...] = (4, 3), dtype: str = "float32") -> list[np.ndarray[Any, Any]]:
    return [(RNG.standard_normal(shape) * 9).astype(dtype) for _ in range(count)]


def test_parts_in_a_graph(tmp_path: Path) -> None:
    a, b = variables("ab")
    c, d = variables("cd")
    x, y = variables("xy")
    product = relay.Call(part(a * b, [a, b], "ccompiler_1"), [y, y])  # one argument twice
    difference = relay.Call(part(c - d + relay.const(np.float32(2)), [c, d]), [product, x])
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x, y], relay.exp(difference))), "llvm")
    modules: list[Any] = lib.imported_modules
    assert sorted(m.symbol for m in modules) == ["ccompiler_0", "ccompiler_1"]
    assert "v0[i0 * 3 + i1] * v1[i0 * 3 + i1]" in "".join(m.get_source() for m in modules)
    p, q = (v / 9 for v in arrays(2))
    lib.export_library(tmp_path / "lib.so", fcompile=False, options=["-O2"])
    module = graph_executor.create(lib.graph_json, tvm.runtime.load_module(tmp_path / "lib.so"), tvm.cpu())
    module.run(x=p, y=q)
    np.testing.assert_allclose(module.get_output(0).numpy(), np.exp(q * q - p + 2), rtol=1e-5)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "float64"])
def test_types_and_broadcasts(dtype: str) -> None:
    a, (b,) = relay.var("a", shape=(2, 4, 3), dtype=dtype), variables("b", (4, 1), dtype)
    value = relay.Tuple([a + b, a * a - b])
    x, (y,) = relay.var("x", shape=(2, 4, 3), dtype=dtype), variables("y", (4, 1), dtype)
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x, y], relay.Call(part(value, [a, b]), [x, y]))), "llvm")
    p, q = np.abs(arrays(1, (2, 4, 3))[0]).astype(dtype), np.abs(arrays(1, (4, 1))[0]).astype(dtype)
    total, other = lib.executable(p, q)
    np.testing.assert_array_equal(total, p + q)
    np.testing.assert_array_equal(other, p * p - q)


def test_header_of_the_target() -> None:
    (a,), (x,) = variables("a"), variables("x")
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.Call(part(a + a, [a]), [x])))
    targets = [tvm.target.Target("llvm"), tvm.target.Target({"kind": "ccompiler", "header": "// The header"}, "llvm")]
    lib = relay.build(mod, targets)
    made: Any = lib.imported_modules[0]
    assert made.get_source().startswith("// The header\n")
    with pytest.raises(CompileError, match="refused the functions for 'ccompiler'; check the header"):
        relay.build(mod, [tvm.target.Target({"kind": "ccompiler", "header": "Bogus"}, "llvm")])
    with pytest.raises(TargetError, match="the targets name 2 processors"):
        relay.build(mod, ["llvm", "c"])


def test_values_that_are_refused() -> None:
    (a,), (x,) = variables("a"), variables("x")

    def build(value: Any, *given: Any) -> None:
        relay.build(tvm.IRModule.from_expr(relay.Call(part(value, [given[0]]), [given[1]])), "llvm")

    with pytest.raises(CompileError, match="'ccompiler' writes add, subtract, multiply, and @ccompiler_0 has exp"):
        build(relay.exp(a), a, x)
    (h,), (z,) = variables("h", dtype="float16"), variables("z", dtype="float16")
    with pytest.raises(CompileError, match="'ccompiler' has no C type for float16"):
        build(h + h, h, z)
    with pytest.raises(ArtifactError, match="not a function in C"):
        CompiledCModule.load_from_binary(b"{}\n")
    with pytest.raises(OptionError, match="addons: a program is linked without other files"):
        relay.build(tvm.IRModule.from_expr(relay.exp(x)), "llvm").export_library("a.so", addons=["b.o"])


def test_arguments_that_occur_twice_in_control_flow() -> None:
    a, b = variables("ab", ())
    flag, x = relay.var("flag", shape=(), dtype="bool"), relay.var("x", shape=())
    value = relay.If(flag, relay.Call(part(a - b * b, [a, b]), [x, x]), x)
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([flag, x], value)), "llvm")
    assert float(lib.executable(np.array(True), np.float32(3))) == -6.0


def test_other_compilers_keep_their_functions() -> None:
    """Passes over functions leave those of other compilers alone."""
    (a,), (x,) = variables("a"), variables("x")
    mod = tvm.IRModule()
    mod["npu_0"] = part(relay.nn.batch_norm(a, *[relay.const(np.ones(3, np.float32))] * 4)[0], [a], "npu_0", "npu")
    mod["main"] = relay.Function([x], relay.Call(mod.get_global_var("npu_0"), [x]))
    mod = relay.transform.InferType()(mod)
    assert relay.transform.SimplifyInference()(mod)["npu_0"] is mod["npu_0"]
    skipped = tvm.IRModule({"main": mod["npu_0"].without_attr("Compiler").with_attr("SkipOptimization", 1)})
    assert relay.transform.SimplifyInference()(skipped)["main"] is skipped["main"]


def test_parts_with_tuples_return_tensors() -> None:
    tvm.ir.register_op_attr("split", "target.flat", lambda e: True)
    tvm.ir.register_op_attr("abs", "target.flat", lambda e: True)
    try:
        x = relay.var("x", shape=(10, 10))
        halves = relay.split(x, 2)
        value = relay.Tuple([relay.concatenate(halves, 0), relay.nn.relu(relay.abs(halves[0]))])
        mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], value)))
        passes = [relay.transform.AnnotateTarget("flat"), relay.transform.MergeCompilerRegions(),
                  relay.transform.PartitionGraph(), relay.transform.InferType()]
        made = tvm.transform.Sequential(passes)(mod)
    finally:
        for name in ("split", "abs"):
            tvm.ir.op_attributes.reset_op_attr(name, "target.flat")
    assert str(made["tvmgen_default_flat_main_0"].ret_type) == str(relay.TupleType([
        relay.TensorType((5, 10), "float32")] * 3))
    data = arrays(1, (10, 10))[0]
    plain = relay.transform.InlineCompilerFunctionsBoundTo(["tvmgen_default_flat_main_0"])(made)
    found = relay.create_executor("debug", relay.transform.InferType()(plain)).evaluate()(data)
    np.testing.assert_array_equal(found[0].numpy(), data)
    np.testing.assert_array_equal(found[1].numpy(), np.abs(data[:5]))
