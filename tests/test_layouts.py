"""Layouts by name, the way between two of them, and networks whose channels stand in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from codegen_native import TARGETS
from tilewright import relay, te, topi
from tilewright.base.errors import CompileError, OptionError, ShapeError
from tilewright.base.types import TensorType
from tilewright.compat.target import Target
from tilewright.compiler.build import build_module
from tilewright.ir import IRModule, assert_structural_equal, reset_op_attr
from tilewright.relay import nn, transform
from tilewright.relay.analysis import calls, check_well_formed
from tilewright.relay.expr import Expr, Function, const, var
from tilewright.relay.interpreter import evaluate
from tilewright.scalar.expr import Var
from tilewright.tir import bijective_layout, layout

BLOCKS = {"nn.conv2d": ["NCHW8c", "OIHW8i8o"], "nn.max_pool2d": ["NCHW8c"]}
_random = np.random.default_rng(11)


def weight(*shape: int) -> Expr:
    return const((_random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype("float32"))


def test_a_layout_has_letters_and_blocks() -> None:
    blocked = layout("NCHW16c")
    assert (len(blocked), str(blocked), blocked.name) == (5, "NCHW16c", "NCHW16c")
    assert [blocked[k] for k in range(5)] == ["N", "C", "H", "W", "c"] and blocked[-1] == "c"
    assert "C" in blocked and "c" in blocked and "D" not in blocked
    assert (blocked.index_of("C"), blocked.index_of("c"), blocked.index_of("O")) == (1, 4, -1)
    assert (blocked.factor_of("C"), blocked.factor_of("c"), blocked.factor_of("H")) == (16, 16, -1)
    assert layout("OIHW4i16o4i").factor_of("I") == 16
    assert layout("NCHW") == tvm.tir.layout("NCHW") and layout("NCHW") != layout("NHWC")


@pytest.mark.parametrize(("name", "message"), [
    ("NCHW8", "'NCHW8' is not a layout; it has capital letters, and numbers only before small letters, for example "
        "NCHW8c"),
    ("N-C", "'N-C' is not a layout"),
    ("NCHWc", "the layout 'NCHWc' has the block c without a size; write the size before the letter, such as 8c"),
    ("NCHW0c", "the layout 'NCHW0c' has the block c without a size"),
    ("NCHW8d", "the layout 'NCHW8d' has blocks 8d, but no dimension D"),
    ("N8CHW", "the layout 'N8CHW' has a size before the dimension C; only blocks have sizes: 8c"),
    ("NCHC", "the layout 'NCHC' contains the dimension C twice"),
])
def test_names_that_are_no_layouts(name: str, message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        layout(name)
    assert message in str(caught.value)


def test_ways_that_do_not_exist() -> None:
    with pytest.raises(
        ShapeError, match="layouts NCHW and NHWD do not have the same dimensions: N, C, H, W and N, H, W, D"
    ):
        bijective_layout("NCHW", "NHWD")
    way = bijective_layout("NCHW", "NCHW8c")
    with pytest.raises(
        ShapeError, match=r"a tensor of shape \(1, 8, 3\) does not have the layout NCHW, which has 4 dimensions"
    ):
        way.forward_shape([1, 8, 3])
    with pytest.raises(
        ShapeError,
        match=r"a tensor of shape \(1, 1, 3, 3, 4\) does not have the layout NCHW8c, which has 5 dimensions, where "
        r"dimension 4 is 8"
    ):
        way.backward_shape([1, 1, 3, 3, 4])
    with pytest.raises(ShapeError, match="3 indices do not fit the layout NCHW of 4 dimensions"):
        way.forward_index([0, 0, 0])


WAYS = [
    ("NCHW", "NCHW4c", (1, 8, 2, 3)), ("NCHW", "NHWC", (2, 3, 4, 5)), ("NCHW4c", "NHWC", (1, 2, 2, 3, 4)),
    ("NCHW4c", "NCHW8c", (1, 2, 2, 3, 4)),
    ("OIHW", "OIHW4i16o4i", (16, 32, 1, 2)), ("OIHW4i16o4i", "HWOI16o", (1, 2, 1, 2, 4, 16, 4)),
    ("NC", "2nC3cN", (4, 6)),
]


@pytest.mark.parametrize(("source", "target", "shape"), WAYS, ids=[f"{a}-{b}" for a, b, _ in WAYS])
def test_indices_shapes_and_arrays_agree(source: str, target: str, shape: tuple[int, ...]) -> None:
    way = bijective_layout(source, target)
    moved = tuple(way.forward_shape(shape))
    assert tuple(way.backward_shape(moved)) == shape
    x = np.arange(np.prod(shape)).reshape(shape)
    y = way.forward(x)
    assert y.shape == moved
    for i in product(*map(range, shape)):
        at = tuple(way.forward_index(i))
        assert tuple(way.backward_index(at)) == i
        assert y[at] == x[i]
    np.testing.assert_array_equal(bijective_layout(target, source).forward(y), x)


def test_indices_may_be_expressions() -> None:
    n, c, h, w, chunk, lane = (Var(v) for v in ("n", "c", "h", "w", "chunk", "lane"))
    found = bijective_layout("NCHW", "NCHW8c").forward_index([n, c, h, w])
    assert [str(e) for e in found] == ["n", "(c // 8)", "h", "w", "(c % 8)"]
    assert found[0] is n
    back = bijective_layout("NCHW", "NCHW8c").backward_index([n, chunk, h, w, lane])
    assert str(back[1]) == "((chunk * 8) + lane)"


def test_what_blocks_do_not_divide_ends_in_zeros() -> None:
    way = bijective_layout("NCHW", "NCHW8c")
    assert way.forward_shape([1, 3, 2, 2]) == [1, 1, 2, 2, 8]
    x = _random.standard_normal((1, 3, 2, 2)).astype("float32")
    y = way.forward(x)
    np.testing.assert_array_equal(y[0, 0, ..., :3], x[0].transpose(1, 2, 0))
    assert not y[..., 3:].any()
    assert bijective_layout("NCHW8c", "NCHW").forward(y).shape == (1, 8, 2, 2)
    data = te.placeholder((1, 3, 2, 2), name="data")
    out = topi.layout_transform(data, "NCHW", "NCHW8c")
    func = tvm.build(te.create_schedule(out.op), [data, out])
    result = tvm.nd.array(np.ones((1, 1, 2, 2, 8), "float32"))
    func(tvm.nd.array(x), result)
    np.testing.assert_array_equal(result.numpy(), y)


def test_there_and_back_is_nothing() -> None:
    x = var("x", shape=(1, 8, 2, 2))
    there = relay.layout_transform(x, "NCHW", "NCHW4c")
    back = relay.layout_transform(there, "NCHW4c", "NCHW")
    assert back.op.simplify(back) is x
    filled = relay.layout_transform(relay.layout_transform(x, "NCHW", "NCHW16c"), "NCHW16c", "NCHW")
    assert filled.op.simplify(filled) is None


def mobile_block() -> Expr:
    """An inverted residual block of MobileNetV2."""
    x = nn.conv2d(var("x", shape=(1, 3, 12, 12)), weight(16, 3, 3, 3), strides=2, padding=1)
    y = relay.clip(nn.bias_add(nn.conv2d(x, weight(48, 16, 1, 1)), weight(48)), 0, 6)
    y = relay.clip(nn.bias_add(nn.conv2d(y, weight(48, 1, 3, 3), padding=1, groups=48), weight(48)), 0, 6)
    y = relay.add(nn.bias_add(nn.conv2d(y, weight(16, 48, 1, 1)), weight(16)), x)
    return nn.dense(nn.batch_flatten(nn.global_avg_pool2d(y)), weight(10, 16))


def residual_block() -> Expr:
    """The first layers of a ResNet, one bottleneck with batch norm, and the classifier."""
    def normal(y: Expr, n: int) -> Expr:
        return nn.batch_norm(
            y, weight(n), weight(n), weight(n), const(_random.uniform(0.5, 1.5, n).astype("float32"))
        )[0]

    y = nn.relu(normal(nn.conv2d(var("x", shape=(1, 3, 20, 20)), weight(8, 3, 7, 7), strides=2, padding=3), 8))
    y = nn.max_pool2d(y, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    z: Expr = nn.relu(normal(nn.conv2d(y, weight(8, 8, 1, 1)), 8))
    z = nn.relu(normal(nn.conv2d(z, weight(8, 8, 3, 3), padding=1), 8))
    z = normal(nn.conv2d(z, weight(32, 8, 1, 1)), 32)
    y = nn.relu(relay.add(z, normal(nn.conv2d(y, weight(32, 8, 1, 1)), 32)))
    return nn.softmax(nn.dense(relay.squeeze(relay.mean(y, axis=(2, 3), keepdims=True), axis=(2, 3)), weight(10, 32)))


@pytest.fixture
def hook() -> Iterator[Callable[[Any], Any]]:
    yield lambda f: relay.op.register_alter_op_layout("nn.conv2d", f, level=11)
    reset_op_attr("nn.conv2d", "FTVMAlterOpLayout")


def test_a_layout_without_axes() -> None:
    assert not layout("")
    assert layout("__undef__") is not None
    assert str(layout("")) == "__undef__"


def test_hook_of_an_operator_between_layouts() -> None:
    """The hook sees the new and old layouts, and can refuse the new one."""
    x, w = relay.var("x", shape=(1, 8, 8, 4)), relay.var("w", shape=(3, 3, 4, 4))
    y = nn.relu(nn.conv2d(x, w, channels=4, kernel_size=(3, 3), data_layout="NHWC", kernel_layout="HWIO"))
    seen: list[Any] = []

    def infer(attrs: Any, new: Any, old: Any, types: Any) -> Any:
        seen.append((str(new[0]), str(old[0])))
        wanted = new if keeps else old
        return relay.transform.InferCorrectLayoutOutput(wanted, [wanted[0]], attrs)

    relay.op.register_infer_correct_layout("nn.relu", infer, level=11)
    try:
        for keeps in (True, False):
            mod = relay.transform.InferType()(IRModule.from_expr(relay.Function([x, w], y)))
            found = relay.transform.ConvertLayout({"nn.conv2d": ["NCHW", "default"]})(mod)["main"].body
            assert found.op.name == ("layout_transform" if keeps else "nn.relu")
    finally:
        reset_op_attr("nn.relu", "FInferCorrectLayout")
    assert seen == [("NCHW", "NHWC")] * 2


def contrib(attrs: Any, inputs: Any, tinfos: Any, out_type: Any) -> Any:
    """Channels in blocks of 16 or of what there is of them."""
    x, y = (next(n for n in (16, 8, 3, 1) if c % n == 0) for c in (tinfos[0].shape[1], out_type.shape[1]))
    how = {**{k: attrs[k] for k in attrs.keys()}, "data_layout": f"NCHW{x}c", "out_layout": f"NCHW{y}c"}  # noqa: SIM118
    if attrs.groups > 1:
        return nn.contrib_depthwise_conv2d_nchwc(*inputs, **{**how, "kernel_layout": f"OIHW1i{y}o"})
    return nn.contrib_conv2d_nchwc(*inputs, **{**how, "kernel_layout": f"OIHW{x}i{y}o"})


@pytest.mark.parametrize("block", [mobile_block, residual_block])
@pytest.mark.parametrize("way", ["ConvertLayout", "AlterOpLayout"])
def test_blocks_of_networks(block: Callable[[], Expr], way: str, hook: Callable[[Any], None]) -> None:
    """The same values, nothing more in a second run, one way in and one out; in text and JSON and back; and
    compiled."""
    hook(contrib)
    mod = IRModule.from_expr(block())
    change = transform.ConvertLayout(BLOCKS) if way == "ConvertLayout" else transform.AlterOpLayout()
    after = change(mod)
    check_well_formed(after)
    convolutions = [c for c in calls(after["main"]) if "conv2d" in c.op.name]
    assert all(c.tensor_type.ndim == 5 for c in convolutions[way == "ConvertLayout":]), "three channels fill no block"
    folded = transform.FoldConstant()(after)
    assert sum(c.op.name == "layout_transform" for c in calls(folded["main"])) == 2
    assert_structural_equal(change(after), after)
    assert_structural_equal(relay.parse(after.astext()), after)
    assert_structural_equal(tvm.ir.load_json(tvm.ir.save_json(after)), after)
    (param,) = mod["main"].params
    value = _random.standard_normal(param.checked_type.shape).astype("float32")
    expected = evaluate(mod, value)
    np.testing.assert_allclose(evaluate(after, value), expected, rtol=1e-4, atol=1e-5)
    for target in (Target("llvm"), *TARGETS[-1:]):
        found = build_module(after, target).executable(threads=1)(value)
        np.testing.assert_allclose(
            found[0] if isinstance(found, (tuple, list)) else found, expected, rtol=1e-4, atol=1e-5
        )


def test_hooks_that_cannot_be_followed(hook: Callable[[Any], None]) -> None:
    x, w = var("x", shape=(1, 8, 3, 3)), weight(6, 8, 1, 1)
    mod = IRModule.from_expr(nn.conv2d(x, w))
    hook(lambda attrs, inputs, tinfos, out_type: nn.conv2d(*inputs, data_layout="NCHW8c", kernel_layout="OIHW8i8o"))
    with pytest.raises(
        OptionError,
        match=r"the result Tensor\[\(1, 6, 3, 3\), float32\] of nn.conv2d is not divisible into the blocks of NCHW8c"
    ):
        transform.AlterOpLayout()(mod)
    reset_op_attr("nn.conv2d", "FTVMAlterOpLayout")
    hook(lambda attrs, inputs, tinfos, out_type: nn.conv2d(*inputs, data_layout="NCDW8c"))
    with pytest.raises(
        CompileError,
        match=r"layout 'NCDW8c' is not valid here; it must be a permutation of the letters N, C, H, W, for example "
        r"NCHW, "
        r"and blocks of them"
    ):
        transform.AlterOpLayout()(mod)
    reset_op_attr("nn.conv2d", "FTVMAlterOpLayout")
    hook(lambda attrs, inputs, tinfos, out_type: nn.conv2d(inputs[0], relay.transpose(inputs[1])))
    with pytest.raises(
        OptionError,
        match=r"the hook of nn.conv2d for AlterOpLayout must return a call of nn.conv2d on its inputs, in order, "
        r".* the same number of layouts"
    ):
        transform.AlterOpLayout()(mod)


def test_a_hook_that_changes_an_argument(hook: Callable[[Any], None]) -> None:
    """The changed argument is part of the program, in the layout that the hook saw."""
    x, w = var("x", shape=(1, 8, 3, 3)), var("w", shape=(8, 8, 1, 1))
    hook(lambda attrs, inputs, tinfos, out_type: nn.conv2d(
        inputs[0], relay.multiply(inputs[1], relay.const(2.0)), **{**attrs.attributes(), "data_layout": "NHWC"}))
    after = transform.AlterOpLayout()(IRModule.from_expr(Function([x, w], nn.relu(nn.conv2d(x, w)))))
    y = nn.conv2d(relay.layout_transform(x, "NCHW", "NHWC"), relay.multiply(w, relay.const(2.0)), data_layout="NHWC")
    assert_structural_equal(after["main"], Function([x, w], relay.layout_transform(nn.relu(y), "NHWC", "NCHW")))


def test_layouts_that_cannot_be_desired() -> None:
    mod = IRModule.from_expr(nn.conv2d(var("x", shape=(1, 8, 3, 3)), weight(8, 8, 1, 1)))
    for wanted, message in (
        (["NCHW8"], "'NCHW8' is not a layout"), (["NCHW8d", "OIHW"], "has blocks 8d, but no dimension D"),
        (["NDHWC", "default"], "layout 'NDHWC' is not valid here"),
    ):
        with pytest.raises(CompileError, match=message):
            transform.ConvertLayout({"nn.conv2d": wanted})(mod)


def test_sizes_that_are_not_known_stay_as_they_are() -> None:
    mod = IRModule.from_expr(
        nn.relu(nn.conv2d(var("x", shape=(1, relay.Any(), 3, 3)), var("w", shape=(8, relay.Any(), 1, 1))))
    )
    assert_structural_equal(transform.ConvertLayout(BLOCKS)(mod), mod)
    open_batch = IRModule.from_expr(nn.conv2d(var("x", shape=(relay.Any(), 8, 3, 3)), weight(8, 8, 1, 1)))
    after = transform.ConvertLayout(BLOCKS)(open_batch)
    value = _random.standard_normal((2, 8, 3, 3)).astype("float32")
    np.testing.assert_allclose(evaluate(after, value), evaluate(open_batch, value), rtol=1e-4, atol=1e-5)


def test_a_deep_graph_of_blocks() -> None:
    y: Any = nn.conv2d(var("x", shape=(1, 8, 2, 2)), weight(8, 8, 1, 1))
    for _ in range(10_000):
        y = nn.relu(y)
    after = transform.ConvertLayout(BLOCKS)(IRModule.from_expr(y))
    assert after["main"].body.op.name == "layout_transform"


@pytest.mark.parametrize(("channels", "size"), [("NHWC", 1), ("NHWC", 3), ("NCHW", 1)])
def test_kernels_that_are_mostly_zeros(channels: str, size: int) -> None:
    from tilewright.relay.data_dep_optimization import bsr_conv2d

    first = channels == "NCHW"
    x = var("x", shape=(1, 8, 5, 6) if first else (1, 5, 6, 8))
    w = np.zeros((16, 8, size, size), "float32")
    w[:4, :4] = _random.standard_normal((4, 4, size, size))
    w = w if first else np.ascontiguousarray(w.transpose(2, 3, 1, 0))
    param = var("w", shape=w.shape)
    y = nn.conv2d(x, param, padding=size // 2, data_layout=channels, kernel_layout="OIHW" if first else "HWIO")
    func = relay.Function((x, param), nn.relu(y))
    value = _random.standard_normal(x.tensor_type.concrete_shape).astype("float32")
    expected = evaluate(func, value, w)
    new, params = bsr_conv2d.convert(func, {"w": w}, (4, 1), 0.8, channels, size)
    assert [p.name_hint for p in new.params] == ["x", "w.data", "w.indices", "w.indptr"]
    np.testing.assert_allclose(
        evaluate(new, value, *(params[p.name_hint].numpy() for p in new.params[1:])), expected, rtol=1e-4, atol=1e-5
    )
    bound, left = bsr_conv2d.convert2(func, {"w": w}, (4, 1), 0.8, channels, size)
    assert [c.op.name for c in calls(bound)] == ["nn.sparse_conv2d", "nn.relu"] and not left
    found = build_module(IRModule.from_expr(bound), TARGETS[0]).executable(threads=1)(value)
    np.testing.assert_allclose(found[0] if isinstance(found, (tuple, list)) else found, expected, rtol=1e-4, atol=1e-5)
    same, kept = bsr_conv2d.convert(func, {"w": w}, (4, 1), 0.99, channels, size)
    assert same is func and sorted(kept) == ["w"]
    other = "NHWC" if first else "NCHW"
    assert bsr_conv2d.convert(func, {"w": w}, (4, 1), 0.8, other, 1)[0] is func


def test_sparse_convolutions_that_are_not_made() -> None:
    with pytest.raises(
        OptionError,
        match="sparse convolutions of layout NCHW with a kernel of 3 are not supported: NHWC supports 1 and 3, NCHW "
        "supports 1"
    ):
        transform.Conv2dToSparse2("NCHW", 3)
    with pytest.raises(
        OptionError,
        match="weight_shape needs three shapes for each entry of weight_name: data, indices and indptr"
    ):
        transform.Conv2dToSparse(["w"], [[(1, 2, 2)]])
    with pytest.raises(
        ShapeError, match=r"layout NCHW with a kernel of \(3, 3\) is not supported; use 1 or 3 with NHWC, 1 with NCHW"
    ):
        relay.op.get("nn.sparse_conv2d")("NCHW", 3).infer(
            TensorType((1, 8, 3, 3)), TensorType((1,)), TensorType((1,), "int32"), TensorType((3,), "int32")
        )
