"""The importer itself: shapes, symbols, known values, functions, branches, order, and the message of each refusal."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper, numpy_helper

import tilewright
from small_models import cnn
from tilewright.base.errors import CompileError, ModelError, OpNotImplemented, OptionError, ShapeError
from tilewright.base.types import TensorType
from tilewright.compat import testing
from tilewright.ir import assert_structural_equal
from tilewright.relay import frontend, nn
from tilewright.relay.expr import Call, Constant, Expr, If
from tilewright.relay.frontend.onnx import CONVERTERS, FAMILIES, from_onnx, register_converter
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.deferred import pending
from tilewright.relay.visitor import post_order

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Any], outputs: Sequence[str] = ("y",),
    weights: Mapping[str, Any] | None = None,
    opset: int = 17, kinds: Mapping[str, int] | None = None, functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    """An unchecked model: floats unless `kinds` says otherwise, outputs without types."""
    kinds = kinds or {}
    graph = helper.make_graph(
        list(nodes), "g", [helper.make_tensor_value_info(n, kinds.get(n, FLOAT), s) for n, s in inputs.items()],
        [onnx.ValueInfoProto(name=n) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (weights or {}).items()])
    opsets = [helper.make_opsetid("", opset)] * bool(opset) + [helper.make_opsetid(d, 1) for d in domains]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions))


def node(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), name: str = "", **attributes: Any
) -> onnx.NodeProto:
    return helper.make_node(op_type, list(inputs), list(outputs), name=name, **attributes)


def main(proto: onnx.ModelProto, **options: Any) -> Any:
    return from_onnx(proto, **options)[0]["main"]


def calls(e: Any) -> list[str]:
    return [c.op.name for c in post_order(e) if isinstance(c, Call)]


def refused(kind: type[CompileError], proto: Any, *words: str, **options: Any) -> None:
    with pytest.raises(kind) as caught:
        from_onnx(proto, **options)
    for word in words:
        assert re.search(word, str(caught.value)), f"{word!r} is not in: {caught.value}"


# Binding of nodes to converters.
def test_an_unknown_attribute() -> None:
    refused(
        ModelError, model([node("Relu", ["x"], name="act", slope=2.0)], {"x": (2,)}), "Relu 'act'",
        "attribute 'slope' is not one of Relu", "none"
    )


def test_a_whole_number_serves_as_a_number() -> None:
    def leaky(alpha: Any) -> onnx.ModelProto:
        return model([node("LeakyRelu", ["x"], name="act", alpha=alpha)], {"x": (3,)})

    x = np.array([-1.5, 0, 1], np.float32)
    np.testing.assert_array_equal(evaluate(main(leaky(2)), x), np.where(x < 0, 2 * x, x))
    assert_structural_equal(main(leaky(2)), main(leaky(2.0)))
    scaled = [
        main(
            model(
                [helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=o)], {"x": (2,)},
                domains=["ai.onnx.ml"]
            )
        ) for o in ([1, 2], [1.0, 2.0])
    ]
    assert_structural_equal(*scaled)
    refused(
        ModelError, leaky("2"), "LeakyRelu 'act'",
        "attribute 'alpha' is a string, but must be a number; correct it in the program that exports the model"
    )
    refused(
        ModelError, model([node("Softmax", ["x"], axis=0.0)], {"x": (3,)}),
        "attribute 'axis' is a number, but must be an integer"
    )


def test_missing_and_surplus_inputs_and_attributes() -> None:
    refused(ModelError, model([node("Add", ["x"], name="sum")], {"x": (2,)}), "Add 'sum'", "input 'b' is missing")
    refused(ModelError, model([node("Add", ["", "x"])], {"x": (2,)}), "Add 'Add_0'", "input 'a' is missing")
    refused(ModelError, model([node("Relu", ["x", "x"])], {"x": (2,)}), "2 inputs are given, but Relu takes at most 1")
    refused(
        ModelError, model([node("Concat", ["x", "x"])], {"x": (2,)}), "Concat 'Concat_0'", "attribute 'axis' is missing"
    )
    refused(ModelError, model([node("Sum", [])], {}), "Sum needs at least one input")


def test_every_converter_has_the_signature_of_the_specification() -> None:
    """Attributes, their defaults and the number of inputs, for every version of every operator."""
    wrong = []
    for schema in defs.get_all_schemas_with_history():
        found = CONVERTERS.find(schema.name, schema.since_version, schema.domain)
        if found is None or (schema.domain, schema.name) not in CONVERTERS or schema.deprecated:
            continue
        for name, attribute in schema.attributes.items():
            if name in {"consumed_inputs"}:
                continue
            if name not in found.attributes:
                wrong.append(f"{schema.name}-{schema.since_version} has no attribute {name}")
            elif attribute.default_value.type:
                wanted = helper.get_attribute_value(attribute.default_value)
                wanted = wanted.decode() if isinstance(wanted, bytes) else tuple(
                    w.decode() if isinstance(w, bytes) else w for w in wanted
                ) if isinstance(wanted, list) else wanted
                wanted = "forward" if wanted == "foward" else wanted  # so it is written in GRU-1
                if found.attributes[name] != (pytest.approx(wanted, rel=1e-6) if isinstance(wanted, float) else wanted):
                    wrong.append(
                        f"{schema.name}-{schema.since_version}: {name} is {found.attributes[name]} by default, not "
                        f"{wanted}"
                    )
        if not found.variadic and (found.required > schema.min_input or len(found.inputs) < schema.max_input):
            wrong.append(f"{schema.name}-{schema.since_version} takes {found.required} to {len(found.inputs)} inputs")
    assert not wrong


def test_a_refusal_of_an_operator_names_the_node() -> None:
    refused(ShapeError, model([node("Add", ["x", "b"], name="sum")], {"x": (2, 3), "b": (4,)}), "Add 'sum'", "add")


def test_every_call_knows_its_node() -> None:
    proto = model(
        [node("HardSwish", ["x"], ["a"], name="act"), node("Gemm", ["a", "w"])], {"x": (2, 3)},
        weights={"w": np.ones((3, 4), np.float32)}
    )
    spans = {str(c.span) for c in post_order(main(proto).body) if isinstance(c, Call)}
    assert spans == {"HardSwish 'act'", "Gemm 'Gemm_1'"}


# Operators without a converter.
def test_all_missing_operators_are_listed_at_once() -> None:
    nodes = [
        node("ImageDecoder", ["", "c", "x"], [f"l{k}"], name=f"decode{k}", body=helper.make_graph([], "b", [], []))
        for k in range(7)
    ]
    nodes += [helper.make_node("Own", ["x"], ["y"], name="mine", domain="com.me")]
    proto = model(nodes, {"x": (2,), "c": ()}, ["y", *[f"l{k}" for k in range(7)]], domains=["com.me"])
    refused(
        OpNotImplemented, proto, r"ImageDecoder \(domain 'ai.onnx'\), in 7 nodes: decode0, .*decode4, and 2 more",
        r"Own \(domain 'com.me'\), in 1 node: mine",
            r"@tilewright\.relay\.frontend\.onnx\.register_converter\('ImageDecoder'\)")


def test_no_operator_has_two_converters_for_one_version() -> None:
    """One family would silently replace what another says; read from the sources, since the table has but the last."""
    said: Counter[str] = Counter()
    for decorator in (
        d for f in FAMILIES for made in ast.walk(ast.parse(inspect.getsource(f)))
        for d in getattr(made, "decorator_list", ())
    ):
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "converter":
            version = {"since": "1", "domain": "''"} | {str(k.arg): ast.unparse(k.value) for k in decorator.keywords}
            said.update(
                f"{ast.unparse(name)} of {version['domain']} since {version['since']}" for name in decorator.args
                if isinstance(name, ast.Constant)
            )
    assert said.total() > 100
    assert [what for what, times in said.items() if times > 1] == []


def test_a_converter_of_the_user() -> None:
    @register_converter("Scaled", domain="com.me")
    def scaled(x: Expr, *, by: float = 2.0) -> Expr:
        """x * by."""
        return Call(registry_op("multiply"), (x, Constant(np.array(by, np.float32))))

    try:
        proto = model(
            [helper.make_node("Scaled", ["x"], ["y"], domain="com.me", by=3.0)], {"x": (2,)}, domains=["com.me"]
        )
        np.testing.assert_array_equal(evaluate(main(proto), np.ones(2, np.float32)), [3, 3])
    finally:
        del CONVERTERS["com.me", "Scaled"]


def registry_op(name: str) -> Any:
    from tilewright.relay.op import get

    return get(name)()


# Opsets.
def test_opsets() -> None:
    relu = [node("Relu", ["x"])]
    refused(ModelError, model(relu, {"x": (2,)}, opset=0), "does not say which opset", "opset=17")
    refused(ModelError, model(relu, {"x": (2,)}, opset=999), "opset 999", "upgrade the onnx package")
    assert calls(main(model(relu, {"x": (2,)}, opset=0), opset=17)) == ["nn.relu"]


def test_versions_of_an_operator_differ() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4), np.float32)
    old, new = (evaluate(main(model([node("Softmax", ["x"])], {"x": x.shape}, opset=v)), x) for v in (11, 13))
    np.testing.assert_allclose(old.sum((1, 2)), 1, rtol=1e-5)
    np.testing.assert_allclose(new.sum(2), 1, rtol=1e-5)


# Inputs.
def test_shapes_and_types_of_inputs() -> None:
    proto = model([node("Add", ["x", "b"])], {"x": ("n", 3), "b": ("n", 3)})
    function = main(proto)
    n = function.params[0].type_annotation.shape[0]
    assert n.name == "n"
    assert function.params[1].type_annotation.shape[0] is n
    assert main(proto, shape={"x": (5, 3)}).ret_type == TensorType((5, 3))
    assert main(proto, dtype="float64").ret_type.dtype == "float64"
    refused(ShapeError, proto, "float16", dtype={"x": "float16"})
    refused(ModelError, proto, "has no input 'z'; its inputs are: x, b", shape={"z": (1,)})
    refused(ModelError, proto, "has no input 'z'", dtype={"z": "int8"})
    refused(ModelError, proto, "has 3 dimensions, and input 'x' of the model has 2", shape={"x": (1, 2, 3)})
    refused(ModelError, proto, "is not a tuple of sizes", shape={"x": ("n", 3)})
    refused(ModelError, proto, "dimension 'n' is given as 4 and as 5", shape={"x": (4, 3), "b": (5, 3)})


def test_an_input_without_a_shape_or_that_is_no_tensor() -> None:
    proto = model([node("Relu", ["x"])], {"x": None})
    refused(ModelError, proto, "how many dimensions input 'x' has", r"shape=\{'x'")
    assert main(proto, shape={"x": (2, 3)}).ret_type == TensorType((2, 3))
    proto.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = FLOAT
    refused(ModelError, proto, "input 'x' is a sequence")


def test_options() -> None:
    proto = model([node("MatMul", ["x", "b"])], {"x": (2, 3, 4), "b": (2, 4, 5)})
    refused(OptionError, proto, "no option 'fast'; its options are: use_nt_batch_matmul", convert_config={"fast": True})
    assert calls(main(proto)) == ["nn.batch_matmul"]
    assert calls(main(proto, convert_config={"use_nt_batch_matmul": True})) == ["transpose", "nn.batch_matmul"]


def test_parameters_that_stay_inputs() -> None:
    weights = {"w": np.ones((3, 4), np.float32), "unused": np.ones(3, np.float32), "shape": np.array([-1, 2])}
    proto = model([node("MatMul", ["x", "w"], ["p"]), node("Reshape", ["p", "shape"])], {"x": (2, 3)}, weights=weights)
    module, params = from_onnx(proto, freeze_params=False)
    assert list(params) == ["w"]
    assert [p.name_hint for p in module["main"].params] == ["x", "w"]
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(evaluate(module["main"], x, params["w"]), np.full((4, 2), 3))
    clip = model([node("Clip", ["x", "low"])], {"x": (2,)}, weights={"low": np.float32(0)})
    assert from_onnx(clip, freeze_params=False)[1] == {}


def test_an_initializer_that_is_also_an_input_is_no_parameter_of_main() -> None:
    function = main(model([node("Add", ["x", "w"])], {"x": (2,), "w": (2,)}, weights={"w": np.ones(2, np.float32)}))
    assert [p.name_hint for p in function.params] == ["x"]


def test_several_outputs_and_outputs_nobody_wants() -> None:
    nodes = [node("Split", ["x"], ["a", "b", ""], axis=0), node("Dropout", ["a"], ["d", ""])]
    function = main(model(nodes, {"x": (6, 2)}, ["d", "b"]))
    assert function.attrs["output_tensor_names"] == ("d", "b")
    x = np.arange(12, dtype=np.float32).reshape(6, 2)
    got = evaluate(function, x)
    np.testing.assert_array_equal(got[0], x[:2])
    np.testing.assert_array_equal(got[1], x[2:4])


# Known values.
def flatten_by_shape(last: int) -> list[onnx.NodeProto]:
    """x.reshape(x.shape[0], last), as exporters spell it."""
    return [
        node("Shape", ["x"], ["s"]), node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "axes"], ["n1"]), node("Concat", ["n1", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"]),
    ]


@pytest.mark.parametrize("batch", [2, "n"])
def test_shape_arithmetic_leaves_no_trace(batch: Any) -> None:
    weights = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([12])}
    function = main(model(flatten_by_shape(12), {"x": (batch, 3, 4)}, weights=weights))
    assert calls(function) == ["reshape"]
    assert function.ret_type.shape[1] == 12
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    np.testing.assert_array_equal(evaluate(function, x), x.reshape(2, 12))


def test_arithmetic_on_symbolic_shapes() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]), node("Slice", ["s", "one", "two"], ["h"]), node("Mul", ["h", "two"], ["h2"]),
        node("Div", ["h2", "two"], ["h1"]),
        node("Add", ["h1", "zeros"], ["h0"]), node("Cast", ["h0"], ["hc"], to=INT64),
        node("Concat", ["minus", "hc"], ["t"], axis=0), node("Reshape", ["x", "t"]),
    ]
    weights = {"one": np.array([1]), "two": np.array([2]), "zeros": np.array([0]), "minus": np.array([-1])}
    function = main(model(nodes, {"x": (4, "h", 6)}, weights=weights))
    assert calls(function) == ["reshape"]
    assert function.ret_type.shape[1] is function.params[0].type_annotation.shape[1]


def test_question_marks_are_no_name_of_a_dimension() -> None:
    proto = model([node("Relu", ["x"])], {"x": (1, "?", "?")})
    assert main(proto, shape={"x": (1, 48, 192)}).ret_type == TensorType((1, 48, 192))
    open_sizes = main(proto).params[0].type_annotation.shape
    assert open_sizes[1] is not open_sizes[2]


def test_a_value_of_symbolic_sizes_is_waited_for() -> None:
    nodes = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["h"]), node("Trilu", ["x", "h"])]
    proto = model(nodes, {"x": (1, "h")}, weights={"one": np.array(1)})
    (waiting,) = [c for c in post_order(main(proto).body) if isinstance(c, Call) and pending(c)]
    assert waiting.op.for_sizes and str(waiting.span) == "Trilu 'Trilu_2'"
    assert main(proto, shape={"x": (1, 5)}).ret_type == TensorType((1, 5))
    x = np.arange(5, dtype=np.float32).reshape(1, 5)
    np.testing.assert_array_equal(evaluate(main(proto), x), np.zeros((1, 5)))
    assert calls(
        main(model([node("Reshape", ["x", "t"])], {"x": (4,), "t": (2,)}, kinds={"t": INT64}))
    ) == ["frontend.deferred"]


def test_constants_are_evaluated_once_and_large_ones_left() -> None:
    big = np.ones((100, 100), np.float32)
    proto = model([node("Transpose", ["w"], ["t"]), node("Add", ["x", "t"])], {"x": (100, 100)}, weights={"w": big})
    assert calls(main(proto)) == ["add"]  # a transposed constant is a view
    assert calls(
        main(model([node("Exp", ["w"], ["t"]), node("Add", ["x", "t"])], {"x": (100, 100)}, weights={"w": big}))
    ) == ["exp", "add"]
    small = main(
        model([node("Exp", ["w"], ["t"]), node("Add", ["x", "t"])], {"x": (2,)}, weights={"w": np.zeros(2, np.float32)})
    )
    assert calls(small) == ["add"]


def test_a_huge_constant_is_never_made() -> None:
    def sized(*size: int) -> onnx.ModelProto:
        return model(
            [node("ConstantOfShape", ["s"], ["c"]), node("Add", ["x", "c"])], {"x": (1,)}, weights={"s": np.array(size)}
        )

    assert calls(main(sized(1 << 16, 1 << 16))) == ["full", "add"]
    with pytest.raises(
        ShapeError, match=r"ConstantOfShape 'ConstantOfShape_0'.*\(1048576, 1048576\).*more memory than the limit"
    ):
        main(sized(1 << 20, 1 << 20))


# Branches, functions, order.
def branches() -> tuple[onnx.GraphProto, onnx.GraphProto]:
    """Two subgraphs that take `x` from around them: 2 x and -x."""
    out = helper.make_tensor_value_info("r", FLOAT, None)
    doubled = helper.make_graph([node("Add", ["x", "x"], ["r"])], "then", [], [out])
    return doubled, helper.make_graph([node("Neg", ["x"], ["r"])], "else", [], [out])


def test_if() -> None:
    then, other = branches()
    choose = node("If", ["c"], name="choice", then_branch=then, else_branch=other)
    x = np.ones(2, np.float32)
    for value in (True, False):
        function = main(model([choose], {"x": (2,)}, weights={"c": np.array(value)}))
        assert calls(function) == (["add"] if value else ["negative"])
    function = main(model([choose], {"x": (2,), "c": ()}, kinds={"c": BOOL}))
    assert isinstance(function.body, If)
    np.testing.assert_array_equal(evaluate(function, x, np.array(True)), [2, 2])
    np.testing.assert_array_equal(evaluate(function, x, np.array(False)), [-1, -1])


def test_branches_of_different_types() -> None:
    then, other = branches()
    other.node[0].CopyFrom(node("ReduceSum", ["x"], ["r"]))
    proto = model(
        [node("If", ["c"], name="choice", then_branch=then, else_branch=other)], {"x": (2,), "c": ()}, kinds={"c": BOOL}
    )
    function = main(proto)
    assert calls(function) == ["frontend.deferred"]  # it waits for the condition, which decides the type
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(evaluate(function, x, np.array(True)), [2, 4])
    np.testing.assert_array_equal(evaluate(function, x, np.array(False)), [3])


def function_of(nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
    return helper.make_function(
        "com.me", "Twice", ["a", "absent"], ["b"], nodes, [helper.make_opsetid("", 17)], ["alpha"]
    )


def test_functions_of_the_model() -> None:
    leaky = node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    call = helper.make_node("Twice", ["x"], ["y"], name="f", domain="com.me", alpha=0.5)
    function = main(model([call], {"x": (2,)}, functions=[function_of([leaky])], domains=["com.me"]))
    np.testing.assert_array_equal(evaluate(function, np.array([-2, 2], np.float32)), [-1, 2])
    assert str(function.body.span) == "LeakyRelu 'f/LeakyRelu_0'"
    again = helper.make_node("Twice", ["a"], ["b"], domain="com.me")
    refused(
        ModelError, model([call], {"x": (2,)}, functions=[function_of([again])], domains=["com.me"]),
        "function 'Twice' calls itself"
    )


def test_unsorted_graphs_are_sorted_and_dead_nodes_dropped() -> None:
    nodes = [node("Neg", ["a"]), node("Exp", ["x"], ["a"]), node("Reshape", ["x", "x"], ["never"])]
    assert calls(main(model(nodes, {"x": (2,)}))) == ["exp", "negative"]


def test_graphs_that_contradict_themselves() -> None:
    cycle = [node("Add", ["x", "b"], ["a"], name="first"), node("Neg", ["a"], ["b"], name="second"), node("Neg", ["b"])]
    refused(ModelError, model(cycle, {"x": (2,)}), "cycle", "Add 'first'", "Neg 'second'")
    refused(
        ModelError, model([node("Add", ["p", "q"], name="n")], {"x": (2,)}), "2 tensors that no node computes",
        "'p', used by Add 'n'", "'q'"
    )
    refused(ModelError, model([node("Neg", ["x"], ["z"])], {"x": (2,)}), "'y', used by the outputs")
    twice = [node("Neg", ["x"], name="a"), node("Exp", ["x"], name="b")]
    refused(ModelError, model(twice, {"x": (2,)}), "'y' .*is computed twice, by Neg 'a' and by Exp 'b'")
    proto = model([node("Add", ["x", "w"])], {"x": (2,)}, weights={"w": np.ones(2, np.float32)})
    proto.graph.initializer.add().CopyFrom(proto.graph.initializer[0])
    refused(ModelError, proto, "two initializers have the same name")


def test_ten_thousand_nodes_in_a_chain() -> None:
    nodes = [node("Neg", [f"t{k}"], [f"t{k + 1}"]) for k in range(10_000)]
    function = main(model(nodes, {"t0": (2,)}, ["t10000"]))
    assert len(calls(function)) == 10_000


# Forms that converters choose.
def test_matrix_products_take_the_plainest_form() -> None:
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert calls(main(model([node("MatMul", ["x", "w"])], {"x": (2, 3)}, weights={"w": w}))) == ["nn.dense"]
    assert calls(
        main(model([node("MatMul", ["x", "w"])], {"x": (5, 2, 3)}, weights={"w": w}))
    ) == ["reshape", "nn.dense", "reshape"]
    assert calls(
        main(model([node("MatMul", ["x", "b"])], {"x": (1, 2, 2, 3), "b": (1, 2, 3, 4)}))
    ) == ["reshape", "reshape", "nn.batch_matmul", "reshape"]
    assert calls(
        main(model([node("Gemm", ["x", "w", "b"], transB=1)], {"x": (2, 4), "b": (3,)}, weights={"w": w}))
    ) == ["nn.dense", "nn.bias_add"]


def test_what_does_nothing_is_left_out() -> None:
    nodes = [
        node("Identity", ["x"], ["a"]), node("Cast", ["a"], ["b"], to=FLOAT), node("Reshape", ["b", "s"], ["c"]),
        node("Transpose", ["c"], ["d"], perm=[0, 1]),
        node("Pad", ["d", "p"], ["e"]), node("Slice", ["e", "zero", "end"], ["f"]), node("Expand", ["f", "s"], ["g"]),
        node("Concat", ["g"], ["h"], axis=0),
        node("Dropout", ["h"], ["i"]), node("Tile", ["i", "ones"], ["j"]), node("Clip", ["j"], ["k"]),
        node("Max", ["k"], ["l"]), node("Relu", ["l"]),
    ]
    weights = {
        "s": np.array([2, 3]), "p": np.array([0, 0, 0, 0]), "zero": np.array([0]), "end": np.array([9]),
        "ones": np.array([1, 1])
    }
    assert calls(main(model(nodes, {"x": (2, 3)}, weights=weights))) == ["nn.relu"]


def test_clip_is_said_plainly() -> None:
    def clipped(low: Any, high: Any) -> list[str]:
        weights = {k: np.float32(v) for k, v in (("low", low), ("high", high)) if v is not None}
        return calls(
            main(
                model(
                    [node("Clip", ["x", "low" if low is not None else "", "high" if high is not None else ""])],
                    {"x": (2,)}, weights=weights
                )
            )
        )

    assert clipped(0, 6) == ["clip"]
    assert clipped(0, None) == ["nn.relu"]
    assert clipped(None, 6) == ["minimum"]
    assert clipped(1, None) == ["maximum"]
    assert nn.relu.__name__ == "relu"


_REGIONS = {"v": np.ones((1, 1, 4, 4), np.float32), "r": np.ones((1, 4), np.float32), "i": np.array([0])}


@pytest.mark.parametrize(("nodes", "weights", "words"), [
    ([node("Gather", ["x", "i"], axis=5)], {"i": np.array([0])}, ["axis 5 is out of range", r"\[-2, 1\]"]),
    ([node("Gather", ["x", "i"])], {"i": np.array([7])}, ["an index is outside dimension 0"]),
    ([node("Squeeze", ["x", "i"])], {"i": np.array([0])}, ["is not 1 and cannot be squeezed"]),
    (
        [node("Slice", ["x", "i", "i", "i", "z"])], {"i": np.array([0]), "z": np.array([0])},
        ["step of dimension 0 is 0"]
    ),
    ([node("Slice", ["x", "i", "z"])], {"i": np.array([0]), "z": np.array([0, 1])}, ["must have the same length"]),
    ([node("Split", ["x", "i"], ["y", "z"])], {"i": np.array([3, 4])}, [r"\(3, 4\) do not add up to 2"]),
    ([node("Pad", ["x", "i"])], {"i": np.array([1])}, ["pads has 1 numbers; 4 are needed"]),
    ([node("Pad", ["x", "i"], mode="mirror")], {"i": np.array([1, 1, 1, 1])}, ["mode is 'mirror'"]),
    ([node("Gelu", ["x"], approximate="fast")], {}, ["approximate is 'fast'"]),
    ([node("Resize", ["x"])], {}, ["neither scales nor sizes"]),
    ([node("Resize", ["x", "", "i"], mode="cube")], {"i": np.array([2, 2], np.float32)}, ["mode is 'cube'"]),
    (
        [
            node(
                "Resize", ["x", "", "i"], antialias=1, mode="linear",
                coordinate_transformation_mode="tf_half_pixel_for_nn"
            )
        ], {"i": np.array([2, 2], np.float32)}, ["antialias=1"]
    ),
    ([node("Conv", ["x", "w"])], {"w": np.ones((1, 1), np.float32)}, ["2 dimensions is not supported", "3, 4, 5"]),
    ([node("ScatterND", ["x", "i", "x"], reduction="avg")], {"i": np.array([[0]])}, ["reduction is 'avg'"]),
    ([node("RoiAlign", ["v", "r", "i"], mode="sum")], _REGIONS, ["mode is 'sum'"]),
    (
        [node("RoiAlign", ["v", "r", "i"], coordinate_transformation_mode="asymmetric")], _REGIONS,
        ["coordinate_transformation_mode is 'asymmetric'"]
    ),
    ([node("GridSample", ["x", "x"], mode="area")], {}, ["mode is 'area'"]),
    ([node("GridSample", ["x", "x"])], {}, ["data of 2 dimensions cannot be sampled"]),
    (
        [node("DFT", ["v", "", "a"])], {"a": np.array(1), "v": np.ones((2, 1), np.float32)},
        ["axis is 1, which has the real and imaginary parts"]
    ),
    (
        [node("DFT", ["v", "n"], onesided=1, inverse=1)], {"n": np.array(9), "v": np.ones((1, 3, 2), np.float32)},
        ["half of a spectrum of 9 frequencies has 5 complex numbers"]
    ),
    (
        [node("DFT", ["v", "", "a"], onesided=1, inverse=1)], {"a": np.array(0), "v": np.ones((1, 3, 2), np.float32)},
        ["it transforms 0 numbers along axis 0; give at least 1, or set dft_length"]
    ),
    ([node("ConvTranspose", ["v", "w"], strides=[2, 2])], {
        "v": np.ones((1, 1, 3, 3, 3), np.float32), "w": np.ones((1, 2, 3, 3), np.float32)
    },
     [
         r"kernel_shape \(3, 3\), strides \(2, 2\), .*output_padding \(0, 0, 0\); each must have 3 numbers, one for "
         r"each dimension of its input"
     ]),
    (
        [node("Conv", ["v", "w"], dilations=[1])],
        {"v": np.ones((1, 1, 3, 3), np.float32), "w": np.ones((1, 1, 3, 3), np.float32)},
        [r"dilations \(1,\); each must have 2 numbers"]
    ),
    ([node("STFT", ["x", "s"])], {"s": np.array(2)}, ["neither window nor frame_length is given"]),
    ([node("LpNormalization", ["x"], p=3)], {}, ["p is 3"]),
    ([node("Constant", [])], {}, ["it has no attribute with a value; give one"]),
    ([node("Cast", ["x"], to=TensorProto.COMPLEX64)], {}, ["COMPLEX64", "not supported"]),
    ([node("Range", ["i", "i", "z"])], {"i": np.array(1), "z": np.array(0)}, ["delta is 0"]),
    ([node("Unsqueeze", ["x", "i"])], {"i": np.array([0, 0])}, ["name a dimension twice"]),
    ([node("CumSum", ["x", "i"])], {"i": np.array([0, 1])}, ["'axis' must be one number"]),
    (
        [node("ReverseSequence", ["x", "i"])], {"i": np.array([1, 3, 2])},
        ["sequence_lens has 3, but the sequences have 2 elements"]
    ),
    (
        [node("ReverseSequence", ["x", "i"])], {"i": np.array([1, 1, -1])},
        ["sequence_lens has -1, but the sequences have 2 elements"]
    ),
    (
        [node("NegativeLogLikelihoodLoss", ["v", "i"])],
        {"v": np.ones((2, 3, 4), np.float32), "i": np.zeros((2, 5), int)},
        ["targets must have the dimensions of the scores except the second"]
    ),
    (
        [node("SoftmaxCrossEntropyLoss", ["x", "i"])], {"i": np.zeros((2, 1), int)},
        ["targets must have the dimensions of the scores"]
    ),
    ([node("NonMaxSuppression", ["v", "s", "i", "o"])],
     {
         "v": np.ones((1, 2, 4), np.float32), "s": np.ones((1, 1, 2), np.float32), "i": np.array([1]),
         "o": np.array([1.5], np.float32)
     }, ["iou_threshold is 1.5; it must be from 0 to 1"]),
])
def test_refusals_of_converters(nodes: list[onnx.NodeProto], weights: dict[str, Any], words: list[str]) -> None:
    refused(ModelError, model(nodes, {"x": (2, 3)}, weights=weights, opset=20), nodes[0].op_type, *words)


def test_shrinking_whole_numbers_compares_fractions() -> None:
    x = np.array([-3, -2, -1, 0, 1, 2, 3])
    found = evaluate(
        main(model([node("Shrink", ["x"], lambd=1.5, bias=1.5)], {"x": x.shape}, kinds={"x": TensorProto.INT64})), x
    )
    np.testing.assert_array_equal(found, [-1, 0, 0, 0, 0, 0, 1])
    assert found.dtype == np.int64


def test_pooling_looks_for_places_only_when_wanted() -> None:
    pool = node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2])
    assert "argmax" in calls(main(model([pool], {"x": (1, 1, 4, 4)}, ["y", "i"])))
    pool.output[1] = ""
    assert calls(main(model([pool], {"x": (1, 1, 4, 4)}))) == ["nn.max_pool2d"]


def test_resizing_by_whole_factors_works_on_symbolic_sizes() -> None:
    weights = {"s": np.array([1, 1, 2, 2], np.float32)}
    proto = model(
        [node("Resize", ["x", "", "s"], coordinate_transformation_mode="asymmetric", nearest_mode="floor")],
        {"x": (1, 1, "h", "w")}, weights=weights
    )
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    np.testing.assert_array_equal(evaluate(main(proto), x), evaluate(main(proto, shape={"x": x.shape}), x))
    linear = model([node("Resize", ["x", "", "s"], mode="linear")], {"x": (1, 1, "h", "w")}, weights=weights)
    assert calls(main(linear)) == ["frontend.deferred"]  # its weights depend on the sizes
    np.testing.assert_allclose(evaluate(main(linear), x), evaluate(main(linear, shape={"x": x.shape}), x))


def test_a_permutation_of_fewer_dimensions_is_refused() -> None:
    model = helper.make_model(helper.make_graph(
        [helper.make_node("Transpose", ["x"], ["y"], perm=[0, 1])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 1, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    ))
    with pytest.raises(ShapeError, match=r"axes \(0, 1\) must name each of the 3 dimensions once"):
        from_onnx(model)


def test_inputs_of_unknown_rank_take_the_shapes_that_are_given() -> None:
    names = ("x", "z")
    given = [onnx.ValueInfoProto(name=n) for n in names]
    for info in given:
        info.type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "z"], ["y"])], "g", given,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x, z = np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.array([7, 8, 9], np.float32)
    np.testing.assert_array_equal(tilewright.compile(model, shapes={"x": (2, 3), "z": (3,)})(x, z), x + z)
    of_any_length = tilewright.compile(model, shapes={"x": ("n", 3), "z": (3,)})
    for rows in (2, 5):
        np.testing.assert_array_equal(of_any_length(np.ones((rows, 3), np.float32), z), np.ones((rows, 3)) + z)
    with pytest.raises(
        ModelError,
        match=r"how many dimensions input 'z' has; give its shape: shape=\{'z': \(…\)\}, or shapes=\{…\} to compile"
    ):
        tilewright.compile(model, shapes={"x": (2, 3)})


@pytest.mark.parametrize("fill", [True, False])
def test_spans_are_left_out_on_request(fill: bool) -> None:
    model = cnn()
    with testing.enable_span_filling() if fill else testing.disable_span_filling():
        mod, _ = frontend.from_onnx(model)
    default, _ = frontend.from_onnx(model)
    for found, are_named in ((mod, fill), (default, True)):
        spans = [c.span for c in post_order(found["main"]) if isinstance(c, Call)]
        assert spans and all((s is not None) is are_named for s in spans)
    assert_structural_equal(mod, default)
    assert [p.span for p in mod["main"].params] == [p.span for p in default["main"].params]
