"""Programs as JSON: what is written is read back equal, whatever it is; damaged texts are refused with their place."""

from __future__ import annotations

import copy
import json
import pickle
import random
import warnings
from typing import Any

import numpy as np
import pytest

import daily
import tilewright as tvm
from random_programs import random_module
from tilewright import relay
from tilewright.base.errors import CompileError, Origin, ParseError
from tilewright.base.types import FuncType, GlobalTypeVar, RefType, TensorType, TupleType, TypeVar
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.relay.adt import Constructor, TypeData
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, Var, const, var
from tilewright.relay.op.elementwise import Relu
from tilewright.relay.serialization import load_json, save_json
from tilewright.scalar import expr as scalar
from tilewright.scalar import intrinsics
from tilewright.tir.stmt import SERIAL, For, PrimFunc, Store


def there_and_back(mod: IRModule) -> IRModule:
    text = save_json(mod)
    back: IRModule = load_json(text)
    assert_structural_equal(mod, back)
    assert relay.astext(back, show_meta_data=True) == relay.astext(mod, show_meta_data=True)
    assert save_json(back) == text
    return back


def generated(seed: int) -> IRModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constants past the range of their type
        return random_module(seed)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    there_and_back(generated(seed))


@pytest.mark.slow
@pytest.mark.parametrize("first", daily.sample(range(0, 2000, 100), 6, "serialization"))
def test_many_random_programs(first: int) -> None:
    for seed in range(first, first + 100):
        there_and_back(generated(seed))


@pytest.mark.slow
def test_deep_graphs() -> None:
    x = var("x", shape=(4,))
    e: Expr = x
    for _ in range(10_000):
        e = Relu()(e)
    assert_structural_equal(load_json(save_json(Function((x,), e))), Function((x,), e))


def test_what_is_shared_stays_shared() -> None:
    x, c = var("x", shape=(2,)), const([1.0, 2.0])
    e = relay.add(x, c)
    back = load_json(save_json(Function((x,), Tuple((e, e, Constant(c.value), c)))))
    first, second, same, other = back.body.fields
    assert first is second and first.args[0] is back.params[0] and first.args[1] is other
    assert same is not other and same.value is other.value
    assert save_json(back).count('"data"') == 1


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int64", "bool", "int4", "uint4"]
)
def test_constants_of_every_type(dtype: str) -> None:
    value = np.arange(6).reshape(2, 3).astype(tvm.nd.empty((1,), dtype).numpy().dtype)
    back = load_json(save_json(Constant(value)))
    assert back.value.dtype == value.dtype and back.value.tobytes() == value.tobytes() and back.value.shape == (2, 3)


def test_bytes_are_little_endian_whatever_the_array() -> None:
    big = np.array([1.0, 2.0], ">f4")
    assert '"AACAPwAAAEA="' in save_json(big)
    np.testing.assert_array_equal(load_json(save_json(big)), [1.0, 2.0])
    strided = np.arange(6, dtype="int32")[::2]
    np.testing.assert_array_equal(load_json(save_json(strided)), strided)


def test_types_spans_and_plain_values() -> None:
    a, n = TypeVar("A"), scalar.Var("n", "int64")
    for t in (
        TensorType((1, n, n + 1), "int8"), TupleType([RefType(TensorType(()))]), FuncType([a], a, [a]),
        GlobalTypeVar("List")(TensorType((2,)))
    ):
        assert repr(load_json(save_json(t))) == repr(t)
    shape = load_json(save_json(TensorType((n, n, relay.Any())))).shape
    assert shape[0] is shape[1] and isinstance(shape[2], scalar.UnknownDim)
    for value in (1, 1.5, True, None, "é", [1, (2, "x")], {"a": {"b": [1]}}, (), float("inf"), b"ab"):
        assert load_json(save_json(value)) == value and type(load_json(save_json(value))) is type(value)
    x = Var("x", TensorType((2,)), Origin("conv/1", "Conv", "net.onnx", 3))
    assert load_json(save_json(x)).span == x.span


def test_types_that_inference_found_are_kept() -> None:
    x = Var("x")
    call = Relu()(x)
    x.set_type(TensorType((3,)))
    call.set_type(TensorType((3,)))
    back = load_json(save_json(Function((x,), call)))
    assert back.body.checked_type == TensorType((3,)) and back.params[0].type_annotation is None


def test_functions_of_loops_and_scalar_expressions() -> None:
    a, b, i = scalar.Buffer("A", (8,)), scalar.Buffer("B", (8,)), scalar.Var("i")
    body = For(i, scalar.as_expr(0), scalar.as_expr(8), SERIAL, Store(b, intrinsics.exp(a[i]) + 1.0, (i,)), {"note": 1})
    back = load_json(save_json(PrimFunc("f", (a, b), body, {"tir.noalias": True})))
    assert_structural_equal(back, PrimFunc("f", (a, b), body, {"tir.noalias": True}))
    assert repr(back) == repr(PrimFunc("f", (a, b), body, {"tir.noalias": True}))
    vector = scalar.Ramp(i * 4, 1, 4)
    assert load_json(save_json((i, vector)))[1].dtype == vector.dtype


def test_kernels_of_schedules() -> None:
    te = tvm.te
    A, B = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    k = te.reduce_axis((0, 8), "k")
    C = te.compute((8, 8), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    func = te.create_prim_func([A, B, C])
    assert_structural_equal(load_json(save_json(func)), func)


def test_data_types() -> None:
    a, header = TypeVar("A"), GlobalTypeVar("List")
    data = TypeData(header, (a,), (Constructor("Cons", [a, header(a)], header), Constructor("Nil", [], header)))
    x = var("x", shape=(2,))
    mod = IRModule({"main": Function((x,), Call(data["Cons"], (x, Call(data["Nil"], ()))))}, {header: data})
    back = there_and_back(mod)
    assert back["main"].body.op is back.type_definitions[header]["Cons"]
    assert load_json(save_json(data["Cons"])).checked_type.ret_type.func == header


def test_modules_pickle_and_copy() -> None:
    mod = generated(3)
    assert_structural_equal(pickle.loads(pickle.dumps(mod)), mod)
    x = var("x", shape=(2,))
    f = Function((x,), Relu()(x))
    assert_structural_equal(pickle.loads(pickle.dumps(f)), f)
    twin = copy.deepcopy(f)
    assert isinstance(twin.body, Call)
    assert twin.params[0] is not x and twin.body.args[0] is twin.params[0]
    assert_structural_equal(twin, f)
    both = (copy.copy(mod), copy.deepcopy(mod))
    for m in both:
        m["more"] = f
        assert "more" not in mod


def test_what_cannot_be_saved_is_named() -> None:
    with pytest.raises(
        CompileError, match=r"a object cannot be saved as JSON: <object object at .*; modules, expressions"
    ):
        save_json(Function((), const(1.0), attrs={"x": object()}))


def damaged(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


def test_damaged_texts_name_the_place() -> None:
    x = var("x", shape=(2,))
    text = save_json(IRModule.from_expr(Function((x,), relay.add(x, const([1.0, 2.0])))))
    faults = {
        "valid JSON: Expecting value at line 1, column 1": "",
        "JSON text cannot be read: NaN is not a number": '{"format": NaN}',
        "not a program saved as JSON": '{"nodes": []}',
        "has version 7, but only version 1 is supported": damaged(text, '"version": 1', '"version": 7'),
        r"at nodes\[\d\]: there is no kind of node 'relay\.Vra'; did you mean 'relay\.Var'": damaged(
            text, "relay.Var", "relay.Vra"
        ),
        r"at nodes\[\d\] \(relay\.GlobalVar\): a relay\.GlobalVar has no field 'nam_hint'; did you mean 'name_hint'": damaged(text, '"name_hint"', '"nam_hint"'),  # noqa: E501
        r"at nodes\[\d\] \(relay\.Var\): the field 'name_hint' must be str, not 3": damaged(
            text, '"name_hint": "x"', '"name_hint": 3'
        ),
        r"there is no operator 'addd'; did you mean add": damaged(text, '"op": "add"', '"op": "addd"'),
        r"node 99 is not defined before its use": damaged(text, '{"node": 1}', '{"node": 99}'),
        r"at arrays\[0\]: an array of float32 of shape \(3,\) needs 12 bytes, but has 8": damaged(
            text, '"shape": [2], "data"', '"shape": [3], "data"'
        ),
        r"at arrays\[0\]: the arrays exceed the size limit; this one has 4000000000000000 bytes": damaged(
            text, '"shape": [2], "data"', '"shape": [1000000000000000], "data"'
        ),
        r"at arrays\[0\]: its contents are not valid base64": damaged(text, '"AACA', '"AA!A'),
        r"at root, functions\[0\]: a name, its GlobalVar and a function are expected": damaged(
            text, '[["main"', '[["mian"'
        ),
        r"at nodes\[\d\] \(relay\.Call\): add\(.*\): shapes \(5,\) and \(2,\) do not broadcast": damaged(
            text, '"shape": [2], "dtype"', '"shape": [5], "dtype"'
        ),
    }
    for message, broken in faults.items():
        with pytest.raises(ParseError, match=message):
            load_json(broken)
    with pytest.raises(ParseError, match="the arrays exceed the size limit; this one has 8 bytes"):
        load_json(text, max_bytes=4)


def test_nesting_is_bounded() -> None:
    for depth in (100, 100_000):
        text = (
            '{"format": "tilewright", "version": 1, "root": ' + "[" * depth + "]" * depth
            + ', "nodes": [], "arrays": []}'
        )
        with pytest.raises(ParseError, match=r"nested deeper than 64|JSON text cannot be read"):
            load_json(text)


@pytest.mark.parametrize("seed", range(20))
def test_mutations_load_or_are_refused(seed: int) -> None:
    """Ten mutations each: of the text, or of a value anywhere in it."""
    rng = random.Random(seed)
    text = save_json(generated(seed))
    for _ in range(5):
        at = rng.randrange(len(text))
        _load_or_refuse(text[:at] + rng.choice(['"', "9", "", "]", "x", "\0"]) + text[at + 1 :])
        tree = json.loads(text)
        _mutate(tree, rng)
        _load_or_refuse(json.dumps(tree))


def _mutate(tree: Any, rng: random.Random) -> None:
    while True:
        keys = list(tree) if isinstance(tree, dict) else range(len(tree))
        key = rng.choice(list(keys))
        below = tree[key]
        if isinstance(below, (dict, list)) and below and rng.random() < 0.85:
            tree = below
            continue
        if rng.random() < 0.3:
            del tree[key]
        else:
            tree[key] = rng.choice([None, -1, 10**9, 1.5, "x", [], {}, True, {"node": 0}, {"dtype": "int8"}])
        return


def _load_or_refuse(text: str) -> None:
    try:
        load_json(text)
    except ParseError as error:
        assert "damaged at" in error.message or error.message.startswith(
            ("the text is", "the text has version")), error.message


def test_the_names_of_the_field() -> None:
    x = var("x", shape=(2,))
    f = Function((x,), Call(GlobalVar("g", FuncType([TensorType((2,))], TensorType((2,)))), (x,)))
    assert tvm.ir.structural_equal(tvm.ir.load_json(tvm.ir.save_json(f)), f)


def test_values_of_programs_are_read_back() -> None:
    @tvm.register_func("test.serialization.plus_one", override=True)
    def plus_one(x: int) -> int:
        return x + 1

    one = scalar.as_expr(1)
    held = tvm.nd.array(np.arange(4, dtype="float32"))
    whole = tvm.runtime.convert([{"z": one + scalar.Var("n"), "x": one}])
    function, arrays = load_json(save_json([tvm.ir.EnvFunc.get("test.serialization.plus_one"), {"a": held}]))
    assert function(1) == 2 and isinstance(arrays["a"], tvm.nd.NDArray)
    np.testing.assert_array_equal(arrays["a"].numpy(), held.numpy())
    mapping, = load_json(save_json(whole))
    assert isinstance(mapping, tvm.ir.container.Map) and mapping.type_key == "Map" and mapping["x"] is one
    assert mapping["z"].b is one or mapping["z"].a is one
    with pytest.raises(ParseError, match=r"there is no registered function 'test\.none'"):
        load_json(save_json(tvm.ir.EnvFunc("test.none")))


def test_a_global_variable_is_saved_with_the_inferred_type_of_its_function() -> None:
    x = relay.var("x", shape=(2, 3))
    name = relay.GlobalVar("main", relay.FuncType([], relay.TensorType((9,))))
    mod = relay.transform.InferType()(IRModule({name: relay.Function([x], relay.nn.relu(x))}))
    again = load_json(save_json(mod))
    assert again.get_global_var("main").known_type() == mod["main"].known_type()


def test_operators_without_attributes() -> None:
    for name in ("add", "nn.conv2d"):
        assert tvm.ir.load_json(tvm.ir.save_json(relay.op.get(name))) is relay.op.get(name)
