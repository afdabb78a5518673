"""Questions about programs: what operators and types there are, how often, and parts of a program on their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import CompileError, OptionError
from tilewright.ir import IRModule, assert_structural_equal, structural_hash
from tilewright.relay import analysis
from tilewright.relay.dataflow_pattern import is_op, wildcard
from tilewright.relay.interpreter import evaluate

X = relay.var("x", shape=(2, 4))
W = relay.const(np.eye(4, dtype="float32"))


def quantized(body: relay.Expr) -> relay.Expr:
    return relay.qnn.op.quantize(body, relay.const(0.5), relay.const(0), out_dtype="int8")


def real(data: relay.Expr) -> relay.Expr:
    return relay.qnn.op.dequantize(data, relay.const(0.5), relay.const(0))


def test_how_often_there_is_an_operator() -> None:
    double = relay.Function([X], X + X)
    mod = IRModule({"main": relay.Function([X], relay.nn.relu(relay.nn.dense(X + X, W))), "double": double})
    assert analysis.list_op_freqs(mod) == {"add": 2, "nn.dense": 1, "nn.relu": 1}


def test_operators_between_dequantize_and_quantize() -> None:
    q = relay.var("q", shape=(2, 4), dtype="int8")
    inside = quantized(relay.nn.relu(relay.nn.dense(real(q), W)))
    assert analysis.list_fake_quantized_op_freqs(IRModule.from_expr(inside)) == {"nn.relu": 1, "nn.dense": 1}
    assert analysis.list_fake_quantized_op_freqs(IRModule.from_expr(quantized(real(q) + X))) == {}
    twice = relay.Tuple([inside, quantized(relay.nn.softmax(relay.concatenate((real(q), real(q)), 0)))])
    assert analysis.list_fake_quantized_op_freqs(IRModule.from_expr(twice)) == {
        "nn.relu": 1, "nn.dense": 1, "nn.softmax": 1, "concatenate": 1
    }
    assert analysis.list_fake_quantized_op_freqs(IRModule.from_expr(quantized(relay.nn.relu(W)))) == {}


def test_the_data_types_of_a_program() -> None:
    assert analysis.all_dtypes(
        relay.Function([X], relay.cast(relay.TupleGetItem(relay.Tuple([X, relay.const(1, "int8")]), 0), "float16"))
    ) == {"float32", "int8", "float16"}
    assert analysis.all_dtypes(relay.var("unknown")) == set()


def test_constants_and_tuples_of_constants() -> None:
    assert analysis.check_constant(W) and analysis.check_constant(relay.Tuple([W, relay.Tuple([])]))
    assert not analysis.check_constant(relay.nn.relu(W)) and not analysis.check_constant(relay.Tuple([W, X]))


def test_layers_one_after_another() -> None:
    deep = relay.nn.dense(relay.nn.relu(relay.nn.dense(X, W)), W)
    assert analysis.count_layers(deep + relay.nn.dense(X, W), ["nn.dense"]) == 2
    assert analysis.count_layers(deep, ["nn.dense", "nn.relu"]) == 3
    assert analysis.count_layers(deep, ["nn.conv2d"]) == 0
    assert analysis.count_layers(relay.Function([X], deep), ["nn.dense"]) == analysis.count_layers(
        tvm.IRModule.from_expr(deep), ["nn.dense"]
    ) == 2
    long: relay.Expr = X
    for _ in range(10_000):
        long = relay.nn.relu(long)
    assert analysis.count_layers(long, ["nn.relu"]) == 10_000


def test_what_fusion_made() -> None:
    mod = relay.transform.FuseOps(2)(IRModule.from_expr(relay.nn.relu(relay.nn.dense(X, W) + X)))
    found = analysis.extract_fused_functions(mod)
    assert [f.attrs.Primitive for f in found.values()] == [1] and [
        structural_hash(f) for f in found.values()
    ] == list(found)
    assert analysis.list_op_freqs(
        IRModule.from_expr(next(iter(found.values())))
    ) == {"nn.dense": 1, "add": 1, "nn.relu": 1}


def test_a_value_on_its_own() -> None:
    y = relay.var("y", shape=(2, 4))
    mod = IRModule.from_expr(relay.Function([X, y], relay.nn.relu(relay.nn.dense(X, W) + y)))
    assert_structural_equal(
        analysis.extract_intermediate_expr(mod, 0)["main"], relay.Function([X], relay.nn.dense(X, W))
    )
    assert_structural_equal(analysis.extract_intermediate_expr(mod, 2), mod)
    with pytest.raises(CompileError, match="@main has 3 values, numbered from 0; there is no value 3"):
        analysis.extract_intermediate_expr(mod, 3)


def test_what_goes_through_functions_of_other_compilers() -> None:
    mod = IRModule.from_expr(relay.nn.softmax(relay.nn.relu(X + X)))
    table = [("npu.add_relu", is_op("nn.relu")(is_op("add")(wildcard(), wildcard())))]
    mod = relay.transform.MergeComposite(table)(mod)
    mod = tvm.transform.Sequential(
        [
            relay.transform.AnnotateTarget("npu"), relay.transform.MergeCompilerRegions(),
            relay.transform.PartitionGraph()
        ]
    )(mod)
    x = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    found = analysis.get_calibration_data(mod, {"x": x})
    ((name, data),) = found.items()
    assert mod[name].attrs["Compiler"] == "npu"
    np.testing.assert_array_equal([a.numpy() for a in data["inputs"]], [x])
    np.testing.assert_allclose([a.numpy() for a in data["outputs"]], [np.maximum(2 * x, 0)])
    np.testing.assert_allclose(evaluate(mod, x).sum(1), 1, rtol=1e-6)
    with pytest.raises(CompileError, match="the inputs x of @main are missing from the data, which has y"):
        analysis.get_calibration_data(mod, {"y": x})
    assert analysis.get_calibration_data(IRModule.from_expr(X), {"x": x}) == {}


def test_used_memory() -> None:
    """Bytes of the arguments, of the result, and of what is read later; the same function called twice has two."""
    x, y = relay.var("x", shape=(2, 4)), relay.var("y", shape=(2, 4))
    f = relay.Function([y], relay.exp(y)).with_attr("Primitive", 1)
    a = f(x)
    mod = IRModule.from_expr(relay.add(f(a), a))
    after = relay.transform.Sequential([relay.transform.ToANormalForm(), relay.transform.AnnotateUsedMemory()])(mod)
    (found,) = {e for e in relay.visitor.post_order(after["main"].body)
                if isinstance(e, relay.Function) and "Primitive" in e.attrs}
    assert list(found.attrs["used_memory"]) == [64, 64] and after["main"].attrs["io_used_memory"] == 64
    unknown = IRModule.from_expr(relay.Function([v := relay.var("v", shape=(relay.Any(),))], relay.exp(v)))
    with pytest.raises(CompileError, match="AnnotateUsedMemory does not support dynamic shapes"):
        relay.transform.AnnotateUsedMemory()(unknown)


def test_the_regions_of_a_function() -> None:
    begin, end = relay.op.get("annotation.compiler_begin"), relay.op.get("annotation.compiler_end")
    first = relay.annotation.compiler_begin(X, "npu")
    inside = relay.nn.relu(first)
    last = relay.annotation.compiler_end(inside, "npu")
    other = relay.annotation.compiler_begin(last, "dsp")
    function = relay.Function([X], relay.annotation.compiler_end(relay.exp(other), "dsp"))
    found = analysis.AnnotatedRegionSet(function, begin, end)
    assert len(found) == 2 and [r.target for r in found] == ["npu", "dsp"]
    region = found.get_region(inside)
    assert region is not None and region.args == [first] and region.rets == [last]
    assert region.nodes == [first, inside, last] and found.get_region(X) is None
    with pytest.raises(CompileError, match=r"between annotation\.compiler_begin and .*, not between exp and"):
        analysis.AnnotatedRegionSet(function, relay.op.get("exp"), end)


# --- the solver of types


def solver() -> Any:
    return relay.analysis._ffi_api._test_type_solver()


def test_types_with_holes_are_made_equal() -> None:
    hole, other, tensor = relay.IncompleteType(), relay.IncompleteType(), relay.TensorType((10, 20), "float32")
    unify = solver()("Unify")
    found = unify(relay.TupleType([hole, other]), relay.TupleType([tensor, relay.TupleType([hole])]))
    assert found == relay.TupleType([tensor, relay.TupleType([tensor])])
    assert solver()("Unify")(hole, other) in (hole, other)
    with pytest.raises(CompileError, match=r"the types \? and \(\?,\) cannot be made equal"):
        solver()("Unify")(hole, relay.TupleType([hole]))
    with pytest.raises(OptionError, match="a type solver has no method 'Guess'; it has AddConstraint, Resolve, Solve"):
        solver()("Guess")


def test_different_names_of_data_types_are_not_equal() -> None:
    nat, tree = relay.GlobalTypeVar("nat"), relay.GlobalTypeVar("tree")
    assert solver()("Unify")(nat, nat) is nat
    with pytest.raises(CompileError, match="cannot be made equal"):
        solver()("Unify")(nat, tree)


def test_generic_function_types_get_parameters_for_what_is_free() -> None:
    a, b, c = (relay.TypeVar(n) for n in "abc")
    found = solver()("Unify")(relay.FuncType([a, b], c, [a, b, c]), relay.FuncType([a, a], a, [a]))
    assert found == relay.FuncType([c, c], c, [c])
    found = solver()("Unify")(relay.FuncType([a], b, [a, b]), relay.FuncType([b], relay.TupleType([]), [b]))
    assert found == relay.FuncType([b], relay.TupleType([]), [b])


def test_relations_are_applied_when_their_types_are_known() -> None:
    def relation(name: str, *types: Any) -> Any:
        return relay.TypeRelation(tvm.ir.EnvFunc.get(f"tvm.relay.type_relation.{name}"), types, len(types) - 1, None)

    one, hole, out = solver(), relay.IncompleteType(), relay.IncompleteType()
    tensor, column = relay.TensorType((10, 20), "float32"), relay.TensorType((10, 1, 1), "float32")
    one("AddConstraint")(relation("Broadcast", tensor, hole, out))
    assert not one("Solve")()
    assert one("Resolve")(out) is out
    one("AddConstraint")(relation("Identity", hole, column))
    assert one("Solve")()
    assert one("Resolve")(relay.TupleType([out])) == relay.TupleType([relay.TensorType((10, 10, 20), "float32")])
    one("AddConstraint")(relation("Identity", out, column))
    with pytest.raises(CompileError, match="which cannot be made equal to"):
        one("Solve")()
