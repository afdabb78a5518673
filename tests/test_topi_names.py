"""The names of `topi` that scripts of the field use, its schedules and tags, and what it refuses."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.base.errors import CompileError, ScheduleError, ShapeError
from tilewright.scalar.expr import Var
from tilewright.topi.utils import (
    equal_const_int,
    get_const_float,
    get_const_int,
    get_const_tuple,
    prod,
    simplify,
    traverse_inline,
)

TOP = [
    "abs", "acos", "acosh", "add", "adv_index", "all", "any", "arange", "argmax", "argmin", "asin", "asinh", "atan",
    "atanh", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "broadcast_to", "cast", "ceil", "ceil_log2",
    "clip", "collapse_sum", "concatenate", "cos", "cosh", "divide", "elemwise_sum", "equal", "erf", "exp",
    "expand_dims", "expand_like", "fast_erf", "fast_exp", "fast_tanh", "fixed_point_multiply",
    "fixed_point_multiply_per_axis", "flip", "floor", "floor_divide", "floor_mod", "full", "full_like", "gather",
    "gather_nd", "greater", "greater_equal", "identity", "isfinite", "isinf", "isnan", "layout_transform", "left_shift",
    "less", "less_equal", "log", "log10", "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul",
    "matrix_set_diag", "max", "maximum", "meshgrid", "min", "minimum", "mod", "multiply", "ndarray_size", "negative",
    "not_equal", "one_hot", "power", "prod", "reinterpret", "repeat", "reshape", "reverse_sequence", "right_shift",
    "round", "rsqrt", "sequence_mask", "shape", "sigmoid", "sign", "sin", "sinh", "sliding_window", "split", "sqrt",
    "squeeze", "stack", "strided_set", "strided_slice", "subtract", "sum", "take", "tan", "tanh", "tensordot", "tile",
    "transpose", "trilu", "trunc", "unravel_index", "where", "arm_cpu", "generic", "nn", "tag", "utils", "x86", "cuda",
    "gpu", "rocm", "mali", "bifrost", "intel_graphics", "hexagon", "adreno", "hls"
]
NN = [
    "adaptive_pool", "adaptive_pool1d", "adaptive_pool3d", "batch_matmul", "batch_norm", "batch_to_space_nd",
    "bias_add", "binarize_pack", "binary_dense", "bitpack", "bitserial_conv2d_nchw", "bitserial_conv2d_nhwc",
    "bitserial_dense", "conv", "conv1d", "conv1d_ncw", "conv1d_nwc", "conv1d_transpose_ncw", "conv2d", "conv2d_NCHWc",
    "conv2d_NCHWc_int8", "conv2d_gemm_weight_transform", "conv2d_hwcn", "conv2d_nchw", "conv2d_nhwc",
    "conv2d_transpose_nchw", "conv2d_winograd_nchw", "conv2d_winograd_nchw_without_weight_transform",
    "conv2d_winograd_nhwc", "conv2d_winograd_nhwc_without_weight_transform", "conv2d_winograd_weight_transform",
    "conv3d_ncdhw", "conv3d_ndhwc", "conv3d_transpose_ncdhw", "conv3d_winograd_weight_transform", "correlation_nchw",
    "deformable_conv2d_nchw", "deformable_conv2d_nhwc", "dense", "dense_pack", "depth_to_space",
    "depthwise_conv2d_NCHWc", "depthwise_conv2d_backward_input_nhwc", "depthwise_conv2d_backward_weight_nhwc",
    "depthwise_conv2d_nchw", "depthwise_conv2d_nhwc", "dilate", "fast_softmax", "fifo_buffer", "flatten", "global_pool",
    "group_conv1d_ncw", "group_conv1d_nwc", "group_conv1d_transpose_ncw", "group_conv2d_nchw", "group_conv2d_nhwc",
    "group_conv2d_transpose_nchw", "group_conv3d_transpose_ncdhw", "group_norm", "instance_norm", "l2_normalize",
    "layer_norm", "leaky_relu", "log_softmax", "lrn", "lstm", "matmul", "mirror_pad", "pad", "pool1d", "pool2d",
    "pool3d", "pool_grad", "prelu", "relu", "rms_norm", "scale_shift_nchw", "scale_shift_nchwc", "scale_shift_nhwc",
    "simulated_dequantize", "simulated_quantize", "softmax", "space_to_batch_nd", "space_to_depth", "sparse_add",
    "sparse_conv2d", "sparse_dense", "sparse_dense_sp_lhs", "sparse_dense_sp_rhs", "sparse_transpose",
    "unpack_NCHWc_to_nchw", "upsampling", "upsampling3d"
]
SCHEDULES = [
    "schedule_adaptive_pool", "schedule_batch_matmul", "schedule_bitserial_conv2d_nchw",
    "schedule_bitserial_conv2d_nhwc", "schedule_bitserial_dense", "schedule_concatenate", "schedule_conv1d_ncw",
    "schedule_conv1d_nwc", "schedule_conv2d_NCHWc", "schedule_conv2d_nchw", "schedule_conv2d_nhwc",
    "schedule_conv2d_transpose_nchw", "schedule_conv3d_ncdhw", "schedule_conv3d_ndhwc", "schedule_dense",
    "schedule_depthwise_conv2d_NCHWc", "schedule_depthwise_conv2d_nchw", "schedule_depthwise_conv2d_nhwc",
    "schedule_extern", "schedule_group_conv2d_nchw", "schedule_group_conv2d_nhwc", "schedule_injective",
    "schedule_pool", "schedule_reduce", "schedule_softmax", "schedule_sparse_dense"
]


def test_every_name_is_there() -> None:
    assert [n for n in TOP if not hasattr(topi, n)] == []
    assert [n for n in NN if not hasattr(topi.nn, n)] == []
    assert [
        (m, n) for m in ("generic", "x86", "arm_cpu") for n in SCHEDULES
        if not callable(getattr(getattr(topi, m), n, None))
    ] == []
    assert set(TOP) <= set(dir(topi))
    assert set(NN) <= set(dir(topi.nn))


def test_every_function_says_what_it_does() -> None:
    functions = [(m, n, getattr(m, n)) for m in (topi, topi.nn) for n in dir(m) if callable(getattr(m, n))]
    assert len(functions) > 200
    assert [n for _, n, f in functions if not f.__doc__] == []


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match=r"module 'tilewright.topi' has no attribute 'softmax'"):
        _ = topi.softmax
    with pytest.raises(AttributeError, match=r"module 'tilewright.topi.nn' has no attribute 'conv4d'"):
        _ = topi.nn.conv4d
    with pytest.raises(AttributeError, match=r"topi.cuda has no attribute '_dense'"):
        _ = topi.cuda._dense
    with pytest.raises(AttributeError, match=r"'tvm.topi.x86.conv4d' is not in tilewright"):
        _ = topi.x86.conv4d


def convolution() -> tuple[list[te.Tensor], te.Tensor]:
    x, w = te.placeholder((1, 3, 9, 9), name="x"), te.placeholder((8, 3, 3, 3), name="w")
    return [x, w], topi.nn.relu(topi.nn.conv2d_nchw(x, w, 1, 1, 1))


def test_schedules_for_gpus_are_refused() -> None:
    _, y = convolution()
    for family in ("cuda", "rocm", "mali", "bifrost", "intel_graphics"):
        with pytest.raises(
            ScheduleError,
            match=rf"topi.{family}.schedule_conv2d_nchw binds loops to GPU threads.*use "
            r"topi.x86.schedule_conv2d_nchw"
        ):
            getattr(topi, family).schedule_conv2d_nchw([y])


def test_no_module_has_the_name_of_a_family() -> None:
    """A module that is imported becomes an attribute of its package, in place of the family."""
    from tilewright.topi.device_families import FAMILIES

    assert FAMILIES.isdisjoint(module.name for module in pkgutil.iter_modules(topi.__path__))
    assert callable(topi.gpu.conv2d_nhwc)


def test_computations_for_gpus_are_refused() -> None:
    x = te.placeholder((1, 3, 9, 9), name="x")
    computations = {"generic": topi.nn.relu, "cuda": topi.cuda.relu}
    with pytest.raises(ScheduleError, match=r"topi.cuda.relu computes on a GPU.*use the function of topi or topi.nn"):
        computations["cuda"](x)


@pytest.mark.parametrize("name", ["conv2d_nchw_spatial_pack", "conv2d_nchw_winograd"])
def test_computations_of_processors(name: str) -> None:
    """A computation of TVM's `topi.arm_cpu` or `topi.x86` is that of `topi.nn`."""
    x, w = te.placeholder((1, 3, 9, 9), name="x"), te.placeholder((8, 3, 3, 3), name="w")
    found = getattr(topi.arm_cpu, name)(x, w, 1, 1, 1, "float32")
    given = [np.random.default_rng(k).standard_normal(t.extents).astype("float32") for k, t in enumerate((x, w))]
    results = []
    for y in (found, topi.nn.conv2d_nchw(x, w, 1, 1, 1)):
        results.append(np.zeros((1, 8, 9, 9), "float32"))
        tvm.build(topi.arm_cpu.schedule_conv2d_nchw([y]), [x, w, y], "llvm")(*given, results[-1])
    np.testing.assert_array_equal(results[0], results[1])


def test_dense_layers_of_processors() -> None:
    x, w, packed = te.placeholder((2, 6)), te.placeholder((4, 6)), te.placeholder((2, 6, 2))
    for compute in (topi.x86.dense_nopack, topi.x86.dense_pack, topi.x86.dense_dynamic):
        assert compute(x, w, None, "float32").extents == (2, 4)
    assert topi.x86.dense_pack(x, packed).extents == (2, 4)
    assert topi.arm_cpu.compute_depthwise_conv2d_nhwc(
        te.placeholder((1, 5, 5, 3)), te.placeholder((3, 3, 3, 2)), 1, 1, 1, "float32").extents == (1, 5, 5, 6)


def test_a_schedule_of_the_anchor_has_its_loops() -> None:
    with tvm.target.Target("llvm -mcpu=x86-64-v3"):
        args, y = convolution()
        tiled, plain = (
            str(tvm.lower(m.schedule_conv2d_nchw([y]), [*args, y])["main"]) for m in (topi.x86, topi.generic)
        )
    assert "T.vectorized" in tiled or "ramp" in tiled.lower()
    assert "T.vectorized" not in plain
    assert "ramp" not in plain.lower()


def test_code_for_another_architecture() -> None:
    target = tvm.target.Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")
    with target:
        args, y = convolution()
        module = tvm.build(topi.arm_cpu.schedule_conv2d_nchw([y]), [*args, y], name="conv")
    assert re.search(r"fmla\s+v\d+\.4s", module.get_source("asm"))


def test_steps_have_no_place_in_a_schedule_of_the_anchor() -> None:
    args, y = convolution()
    s = topi.x86.schedule_conv2d_nchw(y)
    s[y].parallel(y.op.axis[0])
    with pytest.raises(
        ScheduleError,
        match=r"'relu' has schedule steps, .* arranges all loops .*; begin with te.create_schedule or "
        r"topi.generic"
    ):
        tvm.build(s, [*args, y], "llvm")


def test_steps_refine_a_plain_schedule() -> None:
    x = te.placeholder((4, 16), name="x")
    y = topi.exp(topi.add(x, 1.0))
    s = topi.generic.schedule_injective(y)
    s[y].vectorize(y.op.axis[1])
    value, out = np.ones((4, 16), "float32"), np.zeros((4, 16), "float32")
    tvm.build(s, [x, y], "llvm")(value, out)
    np.testing.assert_allclose(out, np.exp(value + 1), rtol=1e-6)


def test_two_anchors_in_one_schedule() -> None:
    _, y = convolution()
    with pytest.raises(
        ScheduleError, match=r"'conv' and 'max_pool' each have their own schedule, but a kernel has one"
    ):
        topi.x86.schedule_pool(topi.nn.pool2d(y, 2, 2, 1, 0, "max"))


def test_tags() -> None:
    x = te.placeholder((3, 4), name="x")
    assert [
        topi.exp(x).op.tag, topi.add(x, x).op.tag, topi.transpose(x).op.tag, topi.sum(x, 1).op.tag
    ] == ["elemwise", "broadcast", "injective", "comm_reduce"]
    assert topi.nn.dense(x, x).op.tag == "dense"
    assert (
        x.op.tag, topi.tag.is_broadcast("elemwise"), topi.tag.is_injective("broadcast"),
        topi.tag.is_broadcast("injective")
    ) == ("", True, True, False)
    with te.tag_scope("mine"):
        assert te.compute((3,), lambda i: x[i, 0], name="y").op.tag == "mine"
    assert te.compute((3,), lambda i: x[i, 0], "y", "yours").op.tag == "yours"


def test_what_scripts_take_from_utils() -> None:
    n = te.placeholder((3, 4)).shape
    assert (
        get_const_tuple(n), get_const_int(n[0]), get_const_float(2), prod((2, 3)), equal_const_int(n[1], 4)
    ) == ((3, 4), 3, 2.0, 6, True)
    v = Var("v")
    assert simplify(v * 0 + 7) == 7
    with pytest.raises(CompileError, match="is not a constant; give the tensor a static shape"):
        get_const_int(v)
    with pytest.raises(CompileError, match="is not a constant"):
        get_const_float("x")


def test_shapes_and_layouts_of_utils() -> None:
    get_shape = topi.utils.get_shape
    assert get_shape((3, 2, 32, 48, 16), "NCHW16c", "NC16cWH") == (3, 2, 16, 48, 32)
    assert get_shape((2, 3, 32, 32, 16, 8), "OIHW16i8o", "HWO8oI16i") == (32, 32, 2, 8, 3, 16)
    assert topi.utils.nchw_pack_layout("NCHW4n16c") and not topi.utils.nchw_pack_layout("NCHW16c")
    assert topi.utils.nchw_xc_layout("NCHW16c") and not topi.utils.nchw_xc_layout("NCHW4n16c")
    assert topi.utils.ncw_xc_layout("NCW8c") and not topi.utils.ncw_pack_layout("NCW8c")
    assert topi.utils.ravel_index((1, 2), (3, 4)) == 6
    assert [int(i) for i in topi.utils.unravel_index(6, (3, 4))] == [1, 2]
    assert topi.utils.swap([1, 2, 3], 0) == [3, 2, 1]
    assert topi.utils.is_dynamic_shape((te.var("n"), 2)) and not topi.utils.is_dynamic_shape((2, 3))
    assert topi.utils.is_empty_shape((2, 0)) and topi.utils.ceil_div(7, 2) == 4
    assert [topi.utils.get_max_power2_factor(n, most) for n, most in ((48, None), (48, 8), (7, None))] == [16, 8, 1]


def test_constants_of_utils() -> None:
    values = np.asarray([[1, -2, 3], [4, 5, 6]], "int32")
    y = topi.utils.const_matrix(values)
    out = np.zeros_like(values)
    tvm.build(te.create_schedule(y.op), [y], "llvm")(out)
    np.testing.assert_array_equal(out, values)


def test_inlining_by_a_walk() -> None:
    x = te.placeholder((3, 4), name="x")
    total = topi.sum(x, 1)
    y = topi.exp(topi.add(total, 1.0))
    s, seen = te.create_schedule(y.op), list[str]()
    traverse_inline(s, y.op, lambda op: seen.append(op.name))
    assert seen == ["sum_out", "add", "exp"]
    assert [stage.op.name for stage in s.stages if stage.inlined] == ["add"]


X, Y = te.placeholder((2, 3, 4), name="x"), te.placeholder((5, 6), name="y")
IMAGE = te.placeholder((1, 3, 5, 5), name="image")
KERNEL = te.placeholder((4, 3, 3, 3), name="kernel")
REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "channels": (
        lambda: topi.nn.conv2d_nchw(IMAGE, te.placeholder((4, 2, 3, 3)), 1, 1, 1),
        r"3 input channels, 4 output channels and 1 groups do not fit the kernel \(4, 2, 3, 3\)"
    ),
    "rank": (lambda: topi.nn.conv2d_nchw(X, KERNEL, 1, 1, 1), "data must have 4 dimensions"),
    "layout": (
        lambda: topi.nn.conv2d(IMAGE, KERNEL, 1, 1, 1, "NHCW"),
        "layout 'NHCW' is not supported here; it must be one of NCW"
    ),
    "padding": (
        lambda: topi.nn.conv2d_nchw(IMAGE, KERNEL, 1, "FULL", 1),
        "padding 'FULL' is not supported; it must be SAME, VALID, or numbers"
    ),
    "window": (
        lambda: topi.nn.conv2d_nchw(IMAGE, KERNEL, 1, 0, 3), "a window of 7 does not fit into spatial dimension 0 of 5"
    ),
    "rewritten": (lambda: topi.nn.dense(Y, Y, auto_scheduler_rewritten_layout="8n"), "was rewritten by a tuner"),
    "winograd": (
        lambda: topi.nn.conv2d_winograd_nchw(IMAGE, te.placeholder((4, 3, 5, 5)), 1, 1, 1, None),
        "supports only kernels of 3 taps"
    ),
    "winograd stride": (
        lambda: topi.nn.conv2d_winograd_nchw(IMAGE, KERNEL, 2, 1, 1, None), "supports only strides and dilation of 1"
    ),
    "tile": (lambda: topi.nn.conv2d_winograd_weight_transform(KERNEL, 6), "tile_size 6 is not supported"),
    "transformed": (
        lambda: topi.nn.conv2d_winograd_nchw(IMAGE, te.placeholder((2, 3, 3, 4)), 1, 1, 1, None, True),
        "was not transformed for tiles of up to 4"
    ),
    "transposed": (lambda: topi.nn.conv2d_transpose_nchw(IMAGE, te.placeholder((2, 3, 3, 3)), 1, 0), "do not fit"),
    "output_padding": (
        lambda: topi.nn.conv2d_transpose_nchw(IMAGE, te.placeholder((3, 4, 3, 3)), 1, 0, None, 1),
        "output_padding .* must be less than the strides"
    ),
    "nothing left": (
        lambda: topi.nn.conv2d_transpose_nchw(IMAGE, te.placeholder((3, 4, 3, 3)), 1, 4), "leaves an empty result"
    ),
    "blocks of channels": (
        lambda: topi.nn.conv2d_NCHWc(
            te.placeholder((1, 1, 5, 5, 4)), te.placeholder((1, 1, 3, 3, 4, 4)), 1, 1, 1, "NCHW4c", "NCHW"
        ), "has no blocks of channels"
    ),
    "pool": (
        lambda: topi.nn.pool2d(IMAGE, 2, 2, 1, 0, "min"), "pool_type 'min' is not supported; it must be max or avg"
    ),
    "gradient": (lambda: topi.nn.pool_grad(IMAGE, IMAGE, 2, 2, 0, "max"), "gradients at .* do not fit windows"),
    "dense": (lambda: topi.nn.dense(Y, te.placeholder((3, 5))), "cannot be multiplied: the reduced dimensions are 6"),
    "batch_matmul": (
        lambda: topi.nn.batch_matmul(X, X, (1, 1, 1)),
        r"oshape is \(1, 1, 1\), but the product has the shape \(2, 3, 3\)"
    ),
    "matmul": (lambda: topi.matmul(Y, Y), r"\(5, 6\) and \(5, 6\) cannot be multiplied"),
    "tensordot": (lambda: topi.tensordot(Y, Y, 1), "along .* differ"),
    "gamma": (
        lambda: topi.nn.layer_norm(Y, te.placeholder((5,)), None, -1),
        r"gamma must have the shape \(6,\), not \(5,\)"
    ),
    "groups": (
        lambda: topi.nn.group_norm(IMAGE, None, None, 2, 1, (2, 3)), "the 3 channels cannot be divided into 2 groups"
    ),
    "offsets": (
        lambda: topi.nn.deformable_conv2d_nchw(IMAGE, IMAGE, KERNEL, 1, 1, 1, 1, 1, None),
        "the offsets need 18 channels"
    ),
    "words": (
        lambda: topi.nn.bitpack(te.placeholder((2, 9), "int32"), 1, 1, 1, "uint8"),
        "do not fill words of 8 bits; pad them"
    ),
    "word type": (
        lambda: topi.nn.bitpack(te.placeholder((2, 8), "int32"), 1, 1, 1, "int8"), "bits cannot be packed into int8"
    ),
    "sparse": (
        lambda: topi.nn.sparse_dense(Y, Y, te.placeholder((5,), "int32"), te.placeholder((6,), "int32")),
        " do not form a sparse matrix"
    ),
    "sparse_conv2d": (
        lambda: topi.nn.sparse_conv2d(IMAGE, Y, Y, Y, "NCHW", 3), "layout NCHW with a kernel of 3 is not supported"
    ),
    "lstm": (lambda: topi.nn.lstm(X, Y, Y), r"do not fit inputs \(2, 3, 4\)"),
    "weight_layout": (
        lambda: topi.nn.lstm(X, Y, Y, weight_layout="IFOO"), "must contain each of the letters I, F, G and O once"
    ),
    "roi_align": (
        lambda: topi.vision.roi_align_nchw(IMAGE, te.placeholder((2, 5)), 3, 1.0, 2), "mode 2 is not supported"),
    "quantized": (lambda: topi.nn.simulated_quantize(Y, "int4"), "'int4' is not a quantized type"),
    "correlation": (lambda: topi.nn.correlation_nchw(IMAGE, IMAGE, 2, 1, 1, 1, 0, True), "patch size 2 must be odd"),
    "far": (lambda: topi.nn.correlation_nchw(IMAGE, IMAGE, 3, 4, 1, 1, 0, True), "do not fit into images .*; pad them"),
    "fifo": (lambda: topi.nn.fifo_buffer(Y, te.placeholder((5, 7)), 0), r" 7\) differ in another axis than 0"),
    "mirror": (
        lambda: topi.nn.mirror_pad(Y, (6, 0)),
        "a dimension of 5 can be mirrored by at most 5 elements, not by 6"
    ),
    "mirror mode": (
        lambda: topi.nn.mirror_pad(Y, (1, 0), mode="EDGE"),
        "mode 'EDGE' is not supported; it must be SYMMETRIC or REFLECT"
    ),
    "pad": (lambda: topi.nn.pad(Y, (1,)), "must have one number for each of the 2 dimensions"),
    "dilate": (lambda: topi.nn.dilate(Y, (1,)), "need one number for each of the 2 dimensions"),
    "space_to_batch": (lambda: topi.nn.space_to_batch_nd(Y, (4,), (0,), (0,)), "do not divide the padded shape"),
    "batch_to_space": (lambda: topi.nn.batch_to_space_nd(Y, (2,), (0,), (0,)),
                       "a batch of 5 cannot be divided into blocks"),
    "crop": (lambda: topi.nn.batch_to_space_nd(te.placeholder((4, 2)), (2,), (2,), (2,)), "leaves an empty"),
    "upsampling": (lambda: topi.nn.upsampling(IMAGE, 2, 2, method="area"), "method 'area' is not supported"),
    "upsampling3d": (
        lambda: topi.nn.upsampling3d(te.placeholder((1, 1, 2, 2, 2)), 2, 2, 2, coordinate_transformation_mode="x"),
        "coordinate_transformation_mode 'x' is not supported"
    ),
    "collapse": (lambda: topi.collapse_sum(Y, (4,)), "do not broadcast"),
    "collapse to more": (lambda: topi.collapse_sum(te.placeholder((1, 6)), (5, 6)), "cannot be collapsed to"),
    "broadcast": (lambda: topi.broadcast_to(Y, (5, 1)), r"cannot be broadcast to \(5, 1\)"),
    "expand_like": (lambda: topi.expand_like(Y, X, 0), "without the dimensions"),
    "strided_set_places": (
        lambda: topi.strided_set(Y, Y, te.placeholder((9,), "int64"), [2, 2]), "at most one integer for each of the"),
    "strided_set": (lambda: topi.strided_set(Y, Y, [0, 0], [2, 2]), r"the part to set has the shape \(2, 2\)"),
    "windows": (lambda: topi.sliding_window(Y, 0, (2,), (1,)), "do not cover the dimensions from 0 on"),
    "meshgrid": (lambda: topi.meshgrid([Y], "yx"), "indexing 'yx' is not supported"),
    "take": (lambda: topi.take(Y, te.placeholder((2,), "int32"), 0, mode="raise"), "mode 'raise' is not supported"),
    "adv_index": (
        lambda: topi.adv_index(Y, [te.placeholder((2,), "int32")] * 3), "3 indices were given for 2 dimensions"
    ),
    "gather_nd": (lambda: topi.gather_nd(Y, te.placeholder((3, 1), "int32")), "points of 3 coordinates"),
    "arange": (lambda: topi.arange(0, 4, 0), "the step is 0; use"),
    "mask": (lambda: topi.sequence_mask(Y, te.placeholder((5,), "int32"), 0, 2), "axis 2 cannot be the time"),
    "diagonals": (lambda: topi.matrix_set_diag(Y, te.placeholder((2, 5)), (0, 2)), "do not fit a tensor of diagonals"),
    "reinterpret": (
        lambda: topi.reinterpret(Y, "int8"), "the bits of float32 cannot be read as int8: the widths differ; cast"
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_say_why(name: str) -> None:
    call, message = REFUSALS[name]
    with pytest.raises(CompileError, match=message) as caught:
        call()
    assert isinstance(caught.value, ShapeError) or name == "reinterpret"


@pytest.mark.parametrize("scheduler", [topi.x86.schedule_injective, topi.generic.schedule_injective])
def test_elementwise_results_and_sums_of_symbolic_shapes(scheduler: Callable[..., te.Schedule]) -> None:
    m, n = te.var("m"), te.var("n")
    x = te.placeholder((m, n), name="x")
    a = np.random.default_rng(0).random((5, 37), np.float32)
    for y, expected in (
        (topi.exp(x), np.exp(a)), (topi.transpose(topi.exp(x), [1, 0]), np.exp(a).T), (topi.sum(x, 1), a.sum(1))
    ):
        function = tvm.build(scheduler([y]), [x, y], "llvm")
        found = tvm.nd.empty(expected.shape)
        function(tvm.nd.array(a), found)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("module", [topi.generic, topi.x86, topi.arm_cpu])
def test_schedulers_take_the_layout_of_tvm(module: Any) -> None:
    x = te.placeholder((1, 2, 8, 8), name="x")
    y = topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max")
    assert isinstance(module.schedule_pool([y], "NCHW"), te.Schedule) and module.schedule_unique([y])
