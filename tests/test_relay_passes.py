"""Every pass of the package: values stay on random programs, a second run changes nothing, deep graphs go through,
messages say what to do."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

import pass_table
import random_graphs
from random_programs import random_module
from tilewright import relay
from tilewright.base.errors import CompileError, OptionError, Origin, TargetError
from tilewright.base.types import TensorType
from tilewright.ir import IRModule, assert_structural_equal
from tilewright.ir.op_attributes import reset_op_attr
from tilewright.ir.transform import PASSES, Pass, PassContext
from tilewright.relay import qnn, transform
from tilewright.relay.analysis import calls, check_well_formed, post_order
from tilewright.relay.collage import MockCostEstimator
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Tuple, const, var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.qnn import transform as qnn_transform
from tilewright.relay.transform.dense_to_sparse import convert as convert_to_sparse
from tilewright.relay.transform.recast import recast
from tilewright.relay.transform.simplify_fc_transpose import convert

X4 = TensorType((1, 4, 6, 6))
CONV = {"kernel_size": (1, 1)}

OPTIONS: dict[str, list[Pass]] = {
    "CollagePartition": [transform.CollagePartition([], MockCostEstimator({"default": 1.0}))],
    "CombineParallelConv2D": [transform.CombineParallelConv2D(2, compact=c) for c in (False, True)],
    "CombineParallelDense": [
        transform.CombineParallelDense(2, to_batch=b, compact=c) for b in (False, True) for c in (False, True)],
    "CombineParallelBatchMatmul": [transform.CombineParallelBatchMatmul(2, compact=c) for c in (False, True)],
    "ConvertLayout": [
        transform.ConvertLayout(),
        transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"], "nn.max_pool2d": ["NHWC"]}),
        transform.ConvertLayout({"nn.conv2d": ["NCHW2c", "OIHW2i2o"], "nn.max_pool2d": ["NCHW2c"]})
    ],
    "Conv2dToSparse": [transform.Conv2dToSparse([], [])],
    "Conv2dToSparse2": [transform.Conv2dToSparse2("NCHW", 1, (1, 1), 0.0)],
    "DenseToSparse": [transform.DenseToSparse([], [])],
    "FakeQuantizationToInteger": [
        transform.FakeQuantizationToInteger(), transform.FakeQuantizationToInteger(use_qat=True)
    ],
    "InlineCompilerFunctionsBoundTo": [transform.InlineCompilerFunctionsBoundTo(["npu_0"])],
    "MergeComposite": [transform.MergeComposite([])],
    "SimplifyFCTranspose": [transform.SimplifyFCTranspose(["x"])],
    "SplitArgs": [transform.SplitArgs(3)],
    "ToMixedPrecision": [transform.ToMixedPrecision("bfloat16", missing_op_mode=2)],
}
"""The passes that need options, or are worth running with several."""
ELSEWHERE = {
    "Sequential": "runs others", "PrintIR": "prints", "ChangeBatch": "changes the inputs",
    "FlexibleShapeDispatch": "changes the inputs", "FirstOrderGradient": "returns gradients, too",
    "SpanCheck": "refuses programs without spans",
    "AnnotateTarget": "marks again where it is run again", "ToCPS": "adds a parameter", "PartitionGraph": "needs marks",
    "MergeCompilerRegions": "needs marks", "DefuseOps": "needs primitive functions",
    "QuantizeAnnotate": "leaves variables", "QuantizeCalibrate": "gives them values",
    "QuantizeRealize": "computes in integers",
}


def passes() -> list[Any]:
    """One of each pass of graphs, and of some more."""
    found = []
    for name, cls in sorted(PASSES.items()):
        of_graphs = cls.__module__.startswith("tilewright.relay.") and ".backend." not in cls.__module__
        if of_graphs and name not in ELSEWHERE:
            found += [pytest.param(p, id=f"{name}-{k}") for k, p in enumerate(OPTIONS.get(name) or [cls()])]
    return found


@cache
def programs() -> list[tuple[IRModule, list[Any], Any]]:
    """Two hundred programs with inputs and what they give: straight-line graphs, and modules with functions, let and
    branches."""
    found: list[tuple[IRModule, list[Any], Any]] = []
    for seed in range(100):
        mod, inputs = IRModule.from_expr(random_graphs.Graph(seed).function(18)), random_graphs.inputs()
        found.append((mod, inputs, evaluate(mod, *inputs)))
    for seed in range(100):
        mod = random_module(seed, first_order=True, pure=True, vary=False, static=True, length=6)
        rng = np.random.default_rng(seed)
        inputs = [_value(p.checked_type, rng) for p in mod["main"].params]
        with np.errstate(all="ignore"):
            found.append((mod, inputs, evaluate(mod, *inputs)))
    return found


def _value(kind: Any, rng: np.random.Generator) -> Any:
    if not isinstance(kind, TensorType):
        return tuple(_value(f, rng) for f in kind.fields)
    return np.asarray(
        rng.integers(0, 2, kind.shape) if kind.dtype == "bool" else rng.uniform(1, 4, kind.shape)
    ).astype(kind.dtype.numpy())


def close(left: Any, right: Any, tolerance: float) -> None:
    if isinstance(right, tuple):
        for a, b in zip(left, right, strict=True):
            close(a, b, tolerance)
        return
    assert left.shape == right.shape
    a, b = left.astype("float64"), right.astype("float64")
    both = np.isfinite(a) & np.isfinite(b)
    assert float(np.linalg.norm((a - b)[both])) <= tolerance * max(1.0, float(np.linalg.norm(b[both])))
    assert both.sum() >= 0.99 * np.isfinite(b).sum()


@pytest.mark.slow
@pytest.mark.parametrize("graph_pass", passes())
def test_a_pass_keeps_the_values_of_random_programs(graph_pass: Pass) -> None:
    halves = graph_pass.name == "ToMixedPrecision"
    changed = 0
    with np.errstate(all="ignore"):
        for mod, inputs, expected in programs():
            after = graph_pass(mod)
            if after is mod:
                continue
            changed += 1
            if not halves:
                check_well_formed(after)
                close(evaluate(after, *inputs), expected, 2e-3)
            assert_structural_equal(graph_pass(after), after)
    assert bool(changed) != (graph_pass.name in QUIET)


QUIET = frozenset({
    "AlterOpLayout", "BackwardFoldScaleAxis", "BatchingOps", "ByteArithmetic", "CMSISNNFusePads", "CanonicalizeCast",
    "CanonicalizeOps", "ChooseNumerics", "CollagePartition", "CombineParallelBatchMatmul", "CombineParallelConv2D",
    "CombineParallelDense", "Conv2dToSparse", "ConvertEquivalents", "DeDup", "DenseToSparse", "DynamicToStatic",
    "EtaExpand", "ExtractConstantsFromPartitionedFunction", "FakeQuantizationToInteger", "FlattenAtrousConv",
    "FoldGate", "FoldInputTranspose", "ForwardFoldScaleAxis", "FuseAttention", "InferType", "Inline",
    "InlineCompilerFunctionsBoundTo", "InlineNonComputeIntensivePartitions", "Legalize", "MergeComposite",
    "NativeTexts", "OutlineCompilerFunctionsWithExistingGlobalSymbols", "PlanDevices", "QnnCanonicalizeOps",
    "QnnLegalize", "RealToQnn", "RemoveStandaloneReshapes", "ScalarToTensorConstants", "SettleMain", "SettleNumerics",
    "SimplifyFCTranspose", "SplitArgs", "SplitBatch", "UnifyLayout", "UnifyType",
})
"""What these look for does not come by in random programs, which they leave as they are; their cases in `tests/text`
have it."""


def image(name: str = "x") -> relay.Var:
    return var(name, X4)


def pixels() -> np.ndarray[Any, Any]:
    return np.random.default_rng(5).standard_normal(X4.shape).astype("float32")


def weights(*shape: int) -> Constant:
    return const(np.random.default_rng(3).standard_normal(shape).astype("float32"))


def test_hooks_of_legalize() -> None:
    def padded(attrs: Any, inputs: Any, types: Any) -> Any:
        assert [t.shape for t in types] == [(2, 3), (4, 3), (2, 4)]
        if attrs.out_dtype:
            return None
        wide = [relay.nn.pad(v, ((0, 0), (0, 1))) for v in inputs]
        return relay.nn.dense(*wide, out_dtype="float32")

    relay.op.register_legalize("nn.dense", padded, level=11)
    try:
        mod = IRModule.from_expr(relay.nn.dense(var("x", shape=(2, 3)), weights(4, 3)))
        after = transform.Legalize()(mod)
        assert str(after["main"]).count("nn.pad") == 2
        value = np.ones((2, 3), "float32")
        np.testing.assert_allclose(evaluate(after, value), evaluate(mod, value), rtol=1e-5)
    finally:
        reset_op_attr("nn.dense", "FTVMLegalize")


def test_a_hook_that_returns_another_type_is_named() -> None:
    mod = IRModule.from_expr(relay.exp(var("x", shape=(2, 3))))
    relay.op.register_legalize("exp")(lambda attrs, inputs, types: relay.sum(inputs[0]))
    try:
        with pytest.raises(
            CompileError,
            match=r"the hook of exp for Legalize returned type float32, but Tensor\[\(2, 3\), "
            r"float32\]"
        ):
            transform.Legalize()(mod)
    finally:
        reset_op_attr("exp", "FTVMLegalize")
    relay.op.register_legalize("exp")(lambda attrs, inputs, types: 1)
    try:
        with pytest.raises(
            CompileError,
            match="the hook of exp for Legalize returned 1; return an expression, or None to keep the call"
        ):
            transform.Legalize()(mod)
    finally:
        reset_op_attr("exp", "FTVMLegalize")


def test_hooks_of_qnn_passes() -> None:
    x = var("x", shape=(2,), dtype="int8")
    scale, zero = const(0.5), const(0)
    mod = IRModule.from_expr(qnn.op.add(x, x, scale, zero, scale, zero, scale, zero))
    after = qnn_transform.CanonicalizeOps()(mod)
    assert not any(c.op.name.startswith("qnn.") for c in calls(after["main"]))
    value = np.array([3, -7], "int8")
    np.testing.assert_array_equal(evaluate(after, value), evaluate(mod, value))
    qnn.op.register_qnn_legalize("qnn.add")(lambda attrs, inputs, types: relay.nn.relu(inputs[0]))
    try:
        assert calls(relay.qnn.transform.Legalize()(mod)["main"])[0].op.name == "nn.relu"
    finally:
        reset_op_attr("qnn.add", "FTVMQnnLegalize")


def test_hooks_of_alter_op_layout() -> None:
    def last(attrs: Any, inputs: Any, types: Any, out_type: Any) -> Any:
        return relay.nn.conv2d(*inputs, **{**attrs.attributes(), "data_layout": "NHWC", "kernel_layout": "HWIO"})

    mod = IRModule.from_expr(
        relay.nn.relu(relay.nn.conv2d(relay.nn.conv2d(image(), weights(4, 4, 1, 1)), weights(4, 4, 3, 3)))
    )
    assert transform.AlterOpLayout()(mod) is mod
    relay.op.register_alter_op_layout("nn.conv2d", last, level=11)
    try:
        after = transform.AlterOpLayout()(mod)
        assert [c.op.name for c in calls(after["main"])] == [
            "layout_transform", "nn.conv2d", "nn.conv2d", "nn.relu", "layout_transform"
        ]
        turned = calls(transform.CanonicalizeOps(biases_only=False)(after)["main"])
        assert [c.op.axes for c in turned if c.op.name == "transpose"] == [(0, 2, 3, 1), (0, 3, 1, 2)]
        value = pixels()
        close(evaluate(after, value), evaluate(mod, value), 1e-5)
        assert_structural_equal(transform.AlterOpLayout()(after), after)
    finally:
        reset_op_attr("nn.conv2d", "FTVMAlterOpLayout")
    relay.op.register_alter_op_layout("nn.conv2d", lambda attrs, inputs, types, out_type: relay.nn.relu(inputs[0]))
    try:
        with pytest.raises(
            OptionError, match=r"the hook of nn.conv2d for AlterOpLayout must return a call of nn.conv2d on its inputs"
        ):
            transform.AlterOpLayout()(mod)
    finally:
        reset_op_attr("nn.conv2d", "FTVMAlterOpLayout")


def test_hooks_of_convert_layout() -> None:
    seen = []

    def choose(attrs: Any, inputs: Any, types: Any, desired: Any) -> Any:
        seen.append(desired)
        return relay.nn.conv2d(*inputs, **{**attrs.attributes(), "data_layout": desired[0], "kernel_layout": "OHWI"})

    relay.op.register_convert_op_layout("nn.conv2d", choose, level=11)
    try:
        after = transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(
            IRModule.from_expr(relay.nn.conv2d(image(), weights(4, 4, 1, 1)))
        )
    finally:
        reset_op_attr("nn.conv2d", "FTVMConvertOpLayout")
    assert seen == [["NHWC", "default"]]
    assert 'kernel_layout="OHWI"' in str(after)


def test_layers_that_keep_their_layout() -> None:
    mod = IRModule.from_expr(relay.nn.conv2d(relay.nn.conv2d(image(), weights(4, 4, 1, 1)), weights(4, 4, 3, 3)))
    for skipped, layouts in (([0], ["NCHW", "NHWC"]), ([1], ["NHWC", "NCHW"]), ([], ["NHWC", "NHWC"])):
        with transform.LayoutConfig(skip_layers=skipped):
            after = transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(mod)
        assert [c.attrs.data_layout for c in calls(after["main"]) if c.op.name == "nn.conv2d"] == layouts
    assert transform.LayoutConfig.current is None


def test_layouts_that_cannot_be_chosen() -> None:
    with pytest.raises(CompileError, match=r"there is no operator 'nn.conv2'; did you mean nn.conv2d"):
        transform.ConvertLayout({"nn.conv2": ["NHWC"]})
    with pytest.raises(
        OptionError,
        match=r"the desired layouts of nn.conv2d must be a list of two layouts, for data and kernel, not 'NHWC'"
    ):
        transform.ConvertLayout({"nn.conv2d": "NHWC"})
    with pytest.raises(OptionError, match=r"nn.relu has no layout; remove it from desired_layouts"):
        transform.ConvertLayout({"nn.relu": ["NHWC"]})(IRModule.from_expr(relay.nn.relu(image())))


def test_another_batch_size() -> None:
    x, w = image(), weights(6, 144)
    y = relay.nn.dense(relay.reshape(relay.nn.relu(x), newshape=(1, 144)), w)
    for key in (x, "x"):
        after = transform.ChangeBatch({key: 0}, 5)(IRModule.from_expr(relay.nn.softmax(y)))
        assert after["main"].checked_type.ret_type == TensorType((5, 6))
        assert evaluate(after, np.ones((5, 4, 6, 6), "float32")).shape == (5, 6)
    with pytest.raises(OptionError, match="no function of the module has the parameter 'z'; it has x"):
        transform.ChangeBatch({"z": 0})(IRModule.from_expr(y))
    with pytest.raises(CompileError, match="cannot have the shape \\(144,\\), which has 144"):
        transform.ChangeBatch({"x": 0}, 5)(IRModule.from_expr(relay.nn.dense(relay.reshape(x, newshape=(144,)), w)))


@pytest.mark.parametrize("auto_pad", [False, True])
def test_a_program_for_several_sizes(auto_pad: bool) -> None:
    x, y = var("x", shape=(1, 3)), var("y", shape=(1, 3))
    mod = IRModule.from_expr(Function((x, y), Tuple((relay.exp(relay.add(x, y)), relay.nn.dense(y, weights(4, 3))))))
    after = transform.FlexibleShapeDispatch(buckets=[8, 2, 4], auto_pad=auto_pad)(mod)
    assert sorted(after) == ["main", "main_2", "main_4", "main_8"]
    assert any(isinstance(e, If) for e in post_order(after["main"]))
    for size in (1, 2, 3, 8) if auto_pad else (2, 4, 8):
        a, b = (np.random.default_rng(size + k).standard_normal((size, 3)).astype("float32") for k in range(2))
        one, two = evaluate(after, a, b)
        np.testing.assert_allclose(one, np.exp(a + b), rtol=1e-5)
        assert two.shape == (size, 4)
    with pytest.raises(OptionError, match=r"buckets is None; it must be a list of one or more sizes to compile for"):
        transform.FlexibleShapeDispatch()(mod)


def test_devices_that_are_not_there() -> None:
    mod = IRModule.from_expr(relay.annotation.on_device(relay.exp(image()), "cuda"))
    with pytest.raises(
        TargetError,
        match="a value is placed on the device cuda:0, but the program runs on cpu:0; compile for one device"
    ):
        transform.PlanDevices()(mod)
    copied = IRModule.from_expr(relay.annotation.device_copy(relay.annotation.on_device(image(), "cpu"), "cpu", "cuda"))
    for m in (mod, copied):
        assert_structural_equal(relay.parse(m.astext()), m)
    assert transform.PlanDevices("cuda")(mod)["main"].body.op.name == "exp"


def test_functions_of_other_compilers() -> None:
    p, x = image("p"), image()
    inner = Function((p,), relay.nn.relu(p), attrs={"Compiler": "npu", "global_symbol": "npu_0", "Primitive": 1})
    mod = IRModule.from_expr(Function((x,), relay.tanh(Call(inner, [x]))))
    out = transform.OutlineCompilerFunctionsWithExistingGlobalSymbols("npu")(mod)
    assert sorted(out) == ["main", "npu_0"]
    assert any(isinstance(e, GlobalVar) for e in post_order(out["main"]))
    assert transform.OutlineCompilerFunctionsWithExistingGlobalSymbols("other")(mod) is mod
    assert_structural_equal(transform.OutlineCompilerFunctionsWithExistingGlobalSymbols()(out), out)
    assert transform.MarkCompilerFunctionsAsExtern("npu")(out)["npu_0"].attrs == {"Extern": 1}
    back = transform.InlineCompilerFunctionsBoundTo([out.get_global_var("npu_0")])(out)
    assert_structural_equal(back, IRModule.from_expr(Function((x,), relay.tanh(relay.nn.relu(x)))))
    value = pixels()
    for m in (out, back):
        close(evaluate(m, value), evaluate(mod, value), 1e-6)
    twice = Function((p,), relay.exp(p), attrs=inner.attrs)
    with pytest.raises(CompileError, match="two functions have the global symbol 'npu_0'; give each a unique one"):
        transform.OutlineCompilerFunctionsWithExistingGlobalSymbols()(
            IRModule.from_expr(Function((x,), Call(twice, [Call(inner, [x])])))
        )


def test_spans() -> None:
    x = image()
    one, other = relay.nn.relu(x, span=Origin("conv")), relay.exp(x, span=Origin("tail"))
    mod = IRModule.from_expr(relay.add(relay.tanh(one, span=Origin("conv")), other))
    tagged = transform.tag_span_suffixes(mod)
    assert [c.span.name if c.span else "" for c in calls(tagged["main"])] == ["conv_PART_0", "conv_PART_1", "tail", ""]
    indexed = transform.CapturePostDfsIndexInSpans()(mod)
    assert [c.span.name for c in calls(indexed["main"]) if c.span] == ["index:4", "index:5", "index:7", "index:8"]
    assert indexed["main"].params[0].span.line == 0  # and add is 1, tanh 2, relu 3, exp 6
    lines = [c.span.line for c in calls(transform.AnnotateSpans()(mod)["main"]) if c.span]
    assert lines == sorted(lines)
    assert len(lines) == 4
    for m in (tagged, indexed, transform.AnnotateSpans()(mod)):
        assert_structural_equal(m, mod)


def test_operators_in_another_type() -> None:
    x = image()
    y = relay.nn.conv2d(relay.nn.conv2d(x, weights(4, 4, 1, 1)), weights(4, 4, 3, 3))
    for skip, expected in ((None, 2), ([0], 1), ([-1], 1), ([0, 1], 0)):
        after = recast(y, "int8", "int32", skip_layers=skip)
        assert str(after).count('out_dtype="int32"') == expected
        assert after.checked_type == y.checked_type


def test_an_operator_without_out_dtype_computes_in_the_type_of_its_arguments() -> None:
    x = image()
    joined = relay.concatenate([x, x], axis=1)
    assert_structural_equal(recast(joined, "float16", "float32", ops=["concatenate"]), relay.cast(
        relay.concatenate([relay.cast(x, "float16"), relay.cast(x, "float16")], axis=1), "float32"))


def test_weights_that_are_transposed_once() -> None:
    x, w = var("x", shape=(2, 3)), var("w", shape=(3, 4))
    func = Function((x, w), relay.nn.dense(x, relay.transpose(w, axes=(1, 0))))
    value, weight = np.ones((2, 3), "float32"), np.random.default_rng(0).standard_normal((3, 4), "float32")
    new, params = convert(func, {"w": weight})
    assert [p.name_hint for p in new.params] == ["x", "w.T"]
    assert sorted(params) == ["w.T"]
    np.testing.assert_allclose(evaluate(new, value, params["w.T"].numpy()), evaluate(func, value, weight), rtol=1e-5)
    shared = Function((x, w), Tuple((func.body, w)))
    mod = IRModule.from_expr(shared)
    assert transform.SimplifyFCTranspose(["w"])(mod) is mod


def test_weights_that_are_mostly_zeros() -> None:
    x, w, v = var("x", shape=(2, 8)), var("w", shape=(6, 8)), var("v", shape=(4, 6))
    func = Function((x, w, v), relay.nn.dense(relay.nn.dense(x, w), v))
    random = np.random.default_rng(0)
    weight = random.standard_normal((6, 8), "float32")
    weight[:4, 2:] = 0
    params = {"w": weight, "v": random.standard_normal((4, 6), "float32")}
    value = random.standard_normal((2, 8), "float32")
    new, found = convert_to_sparse(func, params, (2, 2), 0.4)
    assert sorted(found) == ["v", "w.data", "w.indices", "w.indptr"]
    assert [p.name_hint for p in new.params] == ["x", "w.data", "w.indices", "w.indptr", "v"]
    inputs = [value, *(relay.const(found[p.name_hint]).value for p in new.params[1:])]
    np.testing.assert_allclose(evaluate(new, *inputs), evaluate(func, value, weight, params["v"]), rtol=1e-5, atol=1e-6)
    same, kept = convert_to_sparse(func, params, (2, 2), 0.9)
    assert same is func
    assert sorted(kept) == ["v", "w"]
    with pytest.raises(
        OptionError,
        match="weight_shape needs three shapes for each entry of weight_name: data, indices and indptr"
    ):
        transform.DenseToSparse(["w"], [[(1, 2, 2)]])


def test_categories_of_mixed_precision_that_a_program_chooses() -> None:
    x = image()
    mod = IRModule.from_expr(relay.nn.conv2d(relay.nn.relu(x), weights(4, 4, 1, 1)))
    half = transform.ToMixedPrecision("float16", wide_kernels=True)
    assert 'float16' in str(half(mod))
    relay.op.register_mixed_precision_conversion("nn.conv2d", lambda call, dtype: [2, "float32", dtype], level=11)
    try:
        assert half(mod) is mod
    finally:
        reset_op_attr("nn.conv2d", "FTVMMixedPrecisionConversionType")
    for said in ([7, "float32", "float32"], [0], [0, "float16", "bfloat16"]):
        relay.op.register_mixed_precision_conversion("nn.conv2d", lambda call, dtype, said=said: said, level=11)
        try:
            with pytest.raises(OptionError, match=re.escape(
                f"the hook of nn.conv2d for ToMixedPrecision returned {said!r}; it must return 0 (always), 1 "
                f"(follow) or 2 "
                "(never), "
                "the type to sum in and the type of the result, each float32 or float16"
            )):
                half(mod)
        finally:
            reset_op_attr("nn.conv2d", "FTVMMixedPrecisionConversionType")


@pytest.mark.parametrize("sums", ["float32", "bfloat16"])
@pytest.mark.parametrize("result", ["float32", "bfloat16"])
def test_types_of_mixed_precision_that_a_program_chooses(sums: str, result: str) -> None:
    mod = IRModule.from_expr(relay.nn.relu(relay.nn.dense(var("x", shape=(2, 8)), weights(4, 8))))
    relay.op.register_mixed_precision_conversion("nn.dense", lambda call, dtype: [0, sums, result], level=11)
    try:
        after = transform.ToMixedPrecision("bfloat16")(mod)
    finally:
        reset_op_attr("nn.dense", "FTVMMixedPrecisionConversionType")
    dense, relu = (next(c for c in calls(after["main"]) if c.op.name == name) for name in ("nn.dense", "nn.relu"))
    assert dense.tensor_type.dtype == sums
    assert relu.tensor_type.dtype == result


def test_operators_without_a_category_of_mixed_precision() -> None:
    x = image()
    y = relay.nn.conv2d(relay.sin(x), weights(4, 4, 1, 1))
    mod = IRModule.from_expr(relay.cumsum(relay.sin(relay.add(y, y)), axis=1))
    refused = (
        r"these operators have no category in mixed precision: cumsum, sin; register one with .*, or keep them in "
        r"float32 with "
        r"missing_op_mode=2"
    )
    with pytest.raises(CompileError, match=refused):
        transform.ToMixedPrecision("bfloat16", missing_op_mode=0)(mod)
    with pytest.warns(UserWarning, match="category in mixed precision and stays in float32") as said:
        warned = transform.ToMixedPrecision("bfloat16", missing_op_mode=1)(mod)
    assert sorted(str(w.message).partition(" has")[0] for w in said) == ["cumsum, called once,", "sin, called 2 times,"]
    silent = transform.ToMixedPrecision("bfloat16", missing_op_mode=2)(mod)
    assert_structural_equal(warned, silent)
    assert all(c.tensor_type.dtype == "float32" for c in calls(silent["main"]) if c.op.name in ("sin", "cumsum"))
    for name in ("sin", "cumsum"):
        relay.op.register_mixed_precision_conversion(name, lambda call, dtype: [1, "float32", dtype])
    try:
        known = transform.ToMixedPrecision("bfloat16", missing_op_mode=0)(mod)
    finally:
        for name in ("sin", "cumsum"):
            reset_op_attr(name, "FTVMMixedPrecisionConversionType")
    assert known["main"].body.tensor_type.dtype == "bfloat16"


def test_regions_without_a_form_in_integers() -> None:
    x = var("x", shape=(2, 3), dtype="int8")
    scale, zero = const(0.5), const(0)
    mod = IRModule.from_expr(qnn.op.quantize(relay.sin(qnn.op.dequantize(x, scale, zero)), scale, zero))
    assert "sin" in str(transform.FakeQuantizationToInteger()(mod))
    with pytest.raises(
        CompileError,
        match="sin has no integer form; quantize before it, or keep it in floating point with hard_fail=False"
    ):
        transform.FakeQuantizationToInteger(hard_fail=True)(mod)
    outside = IRModule.from_expr(relay.sin(qnn.op.dequantize(x, scale, zero)))
    mixed = IRModule.from_expr(
        qnn.op.quantize(relay.atan(relay.add(qnn.op.dequantize(x, scale, zero), var("y", shape=(2, 3)))), scale, zero)
    )
    whole = IRModule.from_expr(qnn.op.quantize(relay.nn.relu(qnn.op.dequantize(x, scale, zero)), scale, zero))
    for use_qat in (False, True):
        strict = transform.FakeQuantizationToInteger(hard_fail=True, use_qat=use_qat)
        assert strict(outside) is outside
        assert strict(mixed) is mixed
        assert [c.op.name for c in calls(strict(whole)["main"])] == ["nn.relu"]


def test_arguments_without_a_form_in_integers() -> None:
    x, scale, zero = var("x", shape=(2, 3), dtype="int8"), const(0.5), const(0)
    bytes_ = qnn.op.dequantize(x, scale, zero)
    shifted = qnn.op.quantize(relay.add(bytes_, const(0.3)), scale, zero)
    computed = qnn.op.quantize(relay.nn.relu(bytes_), var("s", shape=()), zero)
    for name, body in (("add", shifted), ("qnn.quantize", computed)):
        mod = IRModule.from_expr(body)
        assert transform.FakeQuantizationToInteger()(mod) is mod
        with pytest.raises(
            CompileError,
            match=f"{name} has no integer form for these arguments: a scale or zero point is not constant, is per "
            "channel, or differs"
        ):
            transform.FakeQuantizationToInteger(hard_fail=True)(mod)


def test_options_that_name_what_is_not_there() -> None:
    x = image()
    mod = IRModule.from_expr(relay.nn.conv2d(x, weights(4, 4, 1, 1)))
    for axis in (4, -5):
        with pytest.raises(
            OptionError,
            match=re.escape(
                f"the parameter 'x' has type Tensor[(1, 4, 6, 6), float32], without an axis {axis}; map each tensor"
            )
        ):
            transform.ChangeBatch({"x": axis})(mod)
    for layer in (1, -2):
        with pytest.raises(
            OptionError, match=f"skip_layers contains layer {layer}, but there are only 1 calls of nn.conv2d"
        ):
            recast(mod["main"], "int8", "int32", skip_layers=[layer])
    for indices in ([1], []):
        with pytest.raises(
            OptionError,
            match=re.escape(
                f"input_indices must be one or more positions among the 1 inputs, not {indices!r}"
            )
        ):
            transform.FlexibleShapeDispatch(buckets=[2], input_indices=indices)(mod)
    with pytest.raises(OptionError, match="the entry function 'mian' is not in the module; it has main"):
        transform.RemoveUnusedFunctions(["mian"])(mod)


def test_operators_that_are_to_have_a_form_in_integers() -> None:
    assert transform.FakeQuantizationToInteger(optional_qnn_ops=["nn.relu"]).optional_qnn_ops == ["nn.relu"]
    with pytest.raises(OptionError, match=r"sin has no integer form; remove it from optional_qnn_ops"):
        transform.FakeQuantizationToInteger(optional_qnn_ops=["sin"])


def test_constants_inside_of_kernels() -> None:
    mod = IRModule.from_expr(relay.nn.relu(relay.add(relay.add(image(), weights(4, 1, 1)), const(2.0))))

    def arguments(fuse: transform.FuseOps) -> int:
        (call,) = calls(fuse(mod)["main"], inside=False)
        assert isinstance(call.op, Function)
        return len(call.args)

    with PassContext(config={"relay.FuseOps.link_params": True}):
        assert arguments(transform.FuseOps()) == 1
    assert arguments(transform.FuseOps(link_params=True)) == 1
    assert arguments(transform.FuseOps()) == 2, "scalars are inside"
    assert arguments(transform.FuseOps(link_params=False)) == 3
    mod = IRModule.from_expr(relay.nn.relu(relay.add(image(), const(2.0))))
    assert len(calls(transform.FuseOps(fuse_opt_level=0)(mod)["main"], inside=False)) == 2


def test_concatenations_are_limited() -> None:
    with pytest.raises(OptionError, match=r"max_function_args must be 0 or -1 \(no limit\), or 3 or more, not 2"):
        transform.SplitArgs(2)
    mod = IRModule.from_expr(relay.concatenate([var(f"x{k}", shape=(1, 2)) for k in range(40)]))
    assert transform.SplitArgs(0)(mod) is mod and transform.SplitArgs(-1)(mod) is mod
    after = transform.SplitArgs(6)(mod)
    assert max(len(c.args[0].fields) for c in calls(after["main"]) if isinstance(c.args[0], Tuple)) == 5


@pytest.mark.slow
def test_deep_graphs_go_through_the_new_passes() -> None:
    x = var("x", shape=(2, 2))
    e: Expr = x
    for k in range(10_000):
        e = relay.nn.relu(e) if k % 3 else relay.divide(e, const(2.0))
    mod = IRModule.from_expr(Function((x,), e))
    for p in (
        transform.BatchingOps(), transform.FastMath(), transform.DivToMul(), transform.CanonicalizeCast(),
        transform.DynamicToStatic(), transform.Legalize(),
        transform.AlterOpLayout(), transform.ConvertLayout({"nn.conv2d": ["NHWC"]}), transform.SplitArgs(4),
        transform.ChangeBatch({"x": 0}, 3),
        transform.CapturePostDfsIndexInSpans(), transform.PlanDevices(), transform.SimplifyExprPostAlterOp(),
    ):
        assert len(calls(p(mod)["main"])) == 10_000
    fused = transform.FuseOps()(mod)
    assert_structural_equal(transform.DefuseOps()(fused), mod)


def test_the_page_of_passes_is_what_the_classes_say() -> None:
    text = pass_table.PAGE.read_text(encoding="utf-8")
    assert text == pass_table.page(), "run python tests/pass_table.py"
    for source in re.findall(r"^```python\n(.*?)^```", text, re.M | re.S):
        exec(compile(source, "passes.md", "exec"), {})
    for name in transform.__all__:
        if isinstance(
            cls := getattr(transform, name), type
        ) and issubclass(cls, Pass) and cls.__module__.startswith("tilewright.relay."):
            assert f"`transform.{name}`" in text


def test_views_of_calls_of_functions_are_left_alone() -> None:
    """A transpose, and a reshape, of what a function of the module gives."""
    mod = relay.parser.fromtext("""#[version = "0.0.5"]
        def @f(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] { exp(%x) }
        def @main(%x: Tensor[(2, 3), float32]) {
          %0 = @f(%x);
          %1 = transpose(%0, axes=[1, 0]);
          %2 = @f(%x);
          %3 = reshape(%2, newshape=[6]);
          (%1, %3)
        }""")
    done = transform.SimplifyExpr()(transform.InferType()(mod))
    assert_structural_equal(done, transform.InferType()(mod))
