"""One call or more of every operator, with its inputs: what tests of references, types, layouts and generated code run over."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from tilewright.base.types import DataType
from tilewright.relay.expr import Call, Expr, Tuple, Var, var
from tilewright.relay.op import (
    OPS,
    broadcast,
    classic,
    create,
    einsum,
    elementwise,
    fast_math,
    fixed_point,
    image,
    image_sampling,
    indexing,
    linalg,
    lookup,
    nn,
    nn_binary,
    nn_deformable,
    nn_displacement,
    random,
    reduction,
    runtime_checks,
    scans,
    scattering,
    selection,
    shaping,
    signal,
    sorting,
    special,
    transform,
    vision,
    vision_maps,
    vm,
)
from tilewright.relay.op.annotation import StopFusion
from tilewright.relay.op.blocks import (
    BatchToSpaceNd,
    DepthToSpace,
    Dilate,
    LayoutTransform,
    MirrorPad,
    SpaceToBatchNd,
    SpaceToDepth,
)
from tilewright.relay.op.nn_sparse import SparseAdd, SparseConv2d, SparseDense, SparseTranspose, packed
from tilewright.relay.op.registry import Op

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Example:
    """An operator and the arrays that it is called with (for a variadic one, the fields of its tuple)."""

    op: Op
    inputs: tuple[Array, ...]

    @property
    def id(self) -> str:
        shapes = "-".join(f"{a.dtype}{list(a.shape)}".replace(" ", "") for a in self.inputs)
        return f"{self.op!r}-{shapes}".replace(" ", "")

    def call(self) -> tuple[list[Var], Call]:
        """The parameters, and the call of the operator on them."""
        params = [var(f"x{k}", shape=a.shape, dtype=dtype_of(a)) for k, a in enumerate(self.inputs)]
        args: list[Expr] = [Tuple(tuple(params))] if self.op.variadic else list(params)
        return params, Call(self.op, args)

    def expected(self) -> Any:
        """What the reference gives."""
        return self.op.reference(self.inputs) if self.op.variadic else self.op.reference(*self.inputs)


def dtype_of(array: Array) -> DataType:
    """The element type of an array; of Python objects it is `string` where all are strings."""
    return DataType("object" if array.dtype == object and not all(isinstance(v, str) for v in array.flat) else array.dtype)


_random = np.random.default_rng(7)


def real(*shape: int, low: float = -2, high: float = 2, dtype: str = "float32") -> Array:
    return _random.uniform(low, high, shape).astype(dtype)


def whole(*shape: int, low: int = -50, high: int = 50, dtype: str = "int32") -> Array:
    return _random.integers(low, high, shape).astype(dtype)


def truth(*shape: int) -> Array:
    return _random.integers(0, 2, shape).astype(bool)


def scalar(value: Any, dtype: str = "float32") -> Array:
    return np.asarray(value, dtype)


def _elementwise() -> list[Example]:
    e = elementwise
    anywhere = [e.Exp, e.Tanh, e.Sigmoid, e.Erf, e.Sin, e.Cos, e.Tan, e.Atan, e.Sinh, e.Cosh, e.Asinh]
    found = [Example(cls(), (real(2, 3, 5),)) for cls in (*anywhere, fast_math.FastExp, fast_math.FastTanh, fast_math.FastErf)]
    found += [Example(cls(), (real(2, 7, low=0.01, high=9),)) for cls in (e.Log, e.Log2, e.Log10, e.Sqrt, e.Rsqrt)]
    found += [Example(cls(), (real(4, 3, low=-0.9, high=0.9),)) for cls in (e.Asin, e.Acos, e.Atanh)]
    found.append(Example(e.Acosh(), (real(9, low=1.1, high=5),)))
    halves = np.asarray([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.4, -0.0, 7.9], "float32")
    found += [Example(cls(), (x,)) for cls in (e.Floor, e.Ceil, e.Trunc, e.Round) for x in (halves, whole(5))]
    strange = np.asarray([np.nan, np.inf, -np.inf, 0, -3.5], "float32")
    found += [Example(cls(), (x,)) for cls in (e.IsNan, e.IsInf, e.IsFinite) for x in (strange, whole(4))]
    signed = [real(3, 4), whole(3, 4), whole(6, dtype="int8"), whole(5, low=0, dtype="uint8")]
    found += [Example(cls(), (x,)) for cls in (e.Abs, e.Sign, e.Copy, nn.Relu) for x in signed]
    found += [Example(e.Negative(), (x,)) for x in signed[:3]]
    found += [Example(e.LogicalNot(), (truth(7),)), Example(e.BitwiseNot(), (whole(7),)), Example(e.BitwiseNot(), (truth(7),))]
    casts = [("int32", real(3, 4, low=-9, high=9)), ("float32", whole(9)), ("bool", whole(9, low=0, high=2)), ("int8", whole(9, high=500)), ("uint8", whole(6))]
    found += [Example(e.Cast(dtype), (x,)) for dtype, x in casts]
    codes = np.arange(256, dtype=np.uint8)
    found += [Example(e.Reinterpret(to), (x,)) for to, x in (
        ("int32", real(3, 5)), ("float32", whole(7).astype(np.int32)), ("uint8", codes.view(DataType("float8_e5m2").numpy())), ("uint8", codes > 9),
        ("float8_e8m0fnu", codes), ("int16", real(9).astype(np.float16)), ("uint4", np.arange(-8, 8).astype(DataType("int4").numpy())))]
    found += [Example(e.CastLike(), (real(3, low=-9, high=9), whole(2))), Example(e.Cast("float64"), (real(5),))]
    found += [Example(e.Clip(-1, 0.5), (real(9),)), Example(e.Clip(-300, 20), (whole(9, dtype="int8"),)), Example(e.Clip(0, 6), (real(2, 3, 4, 5, low=-9, high=9),))]
    found += [Example(fixed_point.FixedPointMultiply(1 << 30, -3), (whole(9, low=-9999, high=9999),)), Example(fixed_point.FixedPointMultiply(1395864371, 2), (whole(9),))]
    numbers, factors = whole(3, 21, low=-(1 << 30), high=1 << 30, dtype="int32"), whole(21, low=1 << 30, high=(1 << 31) - 1, dtype="int32")
    found += [Example(fixed_point.HighProduct(doubled), (numbers, factors, whole(21, high=1 << 40, dtype="int64"))) for doubled in (False, True)]
    found += [Example(nn.LeakyRelu(0.1), (real(3, 5),)), Example(nn.PRelu(), (real(2, 3, 4, 5), real(3))), Example(nn.PRelu(-1), (real(2, 3), real(3)))]
    return found


def _broadcast() -> list[Example]:
    b = broadcast
    found = [Example(cls(), (real(2, 3, 4), real(3, 1))) for cls in (b.Add, b.Subtract, b.Multiply, b.Divide, b.FloorDivide, b.Maximum, b.Minimum)]
    found += [Example(cls(), (whole(2, 3, 4, 2), whole(4, 1))) for cls in (b.Add, b.Subtract, b.Multiply, b.Maximum, b.Minimum)]
    quotients: tuple[type[Op], ...] = (b.Divide, b.Divide, b.FloorDivide, b.FloorDivide, b.Mod, b.Mod, b.FloorMod, b.FloorMod)
    found += [Example(cls(), (whole(40), whole(40, low=1, high=9) * np.int32(1 - 2 * (k % 2)))) for k, cls in enumerate(quotients)]
    found += [Example(cls(), (real(9, low=-7, high=7), real(9, low=0.5, high=2))) for cls in (b.Mod, b.FloorMod)]
    found += [Example(cls(), (real(9, low=-7, high=7), real(9, low=0.5, high=2))) for cls in (b.TruncDivide, b.TruncMod)]
    found += [Example(cls(), (whole(20), whole(20, low=1, high=9) * np.int32(sign))) for cls in (b.TruncDivide, b.TruncMod) for sign in (1, -1)]
    found += [Example(b.Power(), (real(3, 4, low=0.1), real(4))), Example(b.Power(), (whole(5, low=1, high=5), whole(5, low=0, high=5)))]
    comparisons = (b.Equal, b.NotEqual, b.Less, b.LessEqual, b.Greater, b.GreaterEqual)
    found += [Example(cls(), (whole(3, 5, low=0, high=3), whole(5, low=0, high=3))) for cls in comparisons]
    found += [Example(cls(), (truth(3, 5), truth(5))) for cls in (b.LogicalAnd, b.LogicalOr, b.LogicalXor, b.BitwiseAnd, b.BitwiseOr, b.BitwiseXor)]
    found += [Example(cls(), (whole(9), whole(9))) for cls in (b.BitwiseAnd, b.BitwiseOr, b.BitwiseXor)]
    found += [Example(cls(), (whole(9), whole(9, low=0, high=20))) for cls in (b.LeftShift, b.RightShift)]
    found += [Example(b.Gcd(), (whole(3, 1, 4), whole(5, 1))), Example(b.Gcd(), (whole(7, dtype="int8"), whole(7, dtype="int8"))), Example(b.Gcd(), (whole(0, 3), whole(3)))]
    found += [Example(b.Gcd(), (np.asarray([12200160415121876738, 0, 6], "uint64"), np.asarray([7540113804746346429, 5, 4], "uint64")))]
    found += [Example(b.Quotient(), (real(2, 3, 4), np.exp(real(3, 1))))]
    found += [Example(b.MultiplyAdd(), (real(2, 3, 4, 5), real(3, 1, 1), real(4, 5))), Example(b.MultiplyAdd(), (real(3, 4), real(1), np.asarray(-0.0, np.float32)))]
    found += [Example(b.Where(), (truth(3, 1), real(3, 4), real(4))), Example(b.Where(), (truth(2, 3, 4, 5), real(2, 3, 4, 5), real(2, 3, 4, 5)))]
    found += [Example(b.BroadcastTo((2, 3, 4)), (real(3, 1),)), Example(b.BroadcastToLike(), (real(3, 1), real(2, 3, 4)))]
    found.append(Example(b.Add(), (real(2, 3, 4, 5), real(2, 3, 4, 5))))
    return found


def _shaping() -> list[Example]:
    s = shaping
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((2, 3, 4), (4, 6)), ((2, 3, 4), (-1,)), ((2, 3, 4), (0, -1)), ((2, 3, 4), (6, 1, -1)), ((2, 3, 4), (-2,)), ((2, 3, 4), (2, -2)),
        ((2, 3, 4), (-3, -2)), ((2, 3, 4), (0, -3)), ((2, 3, 4), (-4, 1, 2, -2)), ((2, 3, 4), (2, -4, -1, 3, -2)), ((1, 1), ()), ((5, 4, 6), (10, 2, 6)),
        ((12, 5), (3, 4, 5)), ((2, 6, 5), (4, 3, 5)),
    ]
    found = [Example(s.Reshape(new), (real(*old),)) for old, new in shapes]
    found += [Example(s.ReshapeLike(), (real(2, 6), whole(3, 4))), Example(s.BatchFlatten(), (real(2, 3, 4),))]
    found += [Example(s.Squeeze(), (real(1, 3, 1),)), Example(s.Squeeze((0, -1)), (real(1, 3, 1),)), Example(s.Squeeze(2), (real(1, 3, 1),))]
    found += [Example(s.ExpandDims(1), (real(2, 3),)), Example(s.ExpandDims(-1, 2), (real(2, 3),))]
    return found


def _transform() -> list[Example]:
    t = transform
    found = [Example(t.Transpose(), (real(2, 3, 4),)), Example(t.Transpose((0, 2, 3, 1)), (real(2, 3, 4, 5),)), Example(t.Transpose((1, 0, -1)), (real(1, 3, 4),))]
    found += [Example(t.Concatenate(1), (real(2, 3, 4), real(2, 1, 4), real(2, 5, 4))), Example(t.Concatenate(-1), (real(2, 3), real(2, 2)))]
    found += [Example(t.Concatenate(1), (real(1, 3, 4, 5), real(1, 2, 4, 5))), Example(t.Stack(1), (real(2, 3), real(2, 3))), Example(t.Stack(-1), (real(2, 3),) * 3)]
    found += [Example(t.Split(3, 1), (real(2, 6, 4, 5),)), Example(t.Split((1, 4), -2), (real(2, 6, 3),))]
    slices: list[tuple[Any, ...]] = [
        ((0, 1), (2, 3)), ((-3, 0), (-1, 100)), ((3, 4), (0, 0), (-1, -2)), ((1,), (3,), (1,), (2,)), ((1, 2), (2, -1), (1,), (0, 2), "size"),
        ((0, 0), (100, 100), (2, 3)), ((100,), (-100,), (-1,)), ((2,), (2,)),
    ]
    found += [Example(t.StridedSlice(*s), (real(4, 5, 6),)) for s in slices]
    found += [Example(t.StridedSlice((1,), (4,), (2,), (1,)), (real(2, 5, 3, 4),)), Example(t.SliceLike(), (real(4, 5), real(2, 3))), Example(t.SliceLike((1,)), (real(4, 5), real(9, 3)))]
    widths = ((0, 0), (1, 2), (2, 0))
    found += [Example(nn.Pad(widths, mode), (real(2, 3, 4), scalar(1.5))) for mode in ("constant", "edge", "reflect")]
    found += [Example(nn.Pad(((0, 0), (0, 0), (1, 1), (2, 2))), (whole(1, 3, 4, 5, dtype="int8"), scalar(-3, "int8")))]
    found += [Example(t.Repeat(3), (real(2, 3),)), Example(t.Repeat(2, -1), (real(2, 3),)), Example(t.Tile((2, 1, 3)), (real(2, 3),)), Example(t.Tile((2,)), (real(2, 3),))]
    found += [Example(t.Reverse(1), (real(2, 3, 4),)), Example(DepthToSpace(2), (real(1, 8, 2, 3),)), Example(DepthToSpace(2, mode="CRD"), (real(1, 8, 2, 3),))]
    found += [Example(DepthToSpace(2, "NHWC"), (real(1, 2, 3, 8),)), Example(SpaceToDepth(2), (real(1, 2, 4, 6),)), Example(SpaceToDepth(2, "NHWC"), (real(1, 4, 6, 2),))]
    found += [Example(SpaceToBatchNd((2, 2), ((0, 0), (1, 2)), 3.0), (real(2, 4, 5, 3),)), Example(SpaceToBatchNd((3,), ((1, 0),)), (real(1, 5, 2),))]
    found += [Example(BatchToSpaceNd((2, 2), ((0, 1), (1, 0))), (real(8, 3, 4, 2),)), Example(BatchToSpaceNd((3,), ((0, 0),)), (real(6, 2, 3),))]
    layouts = [("NCHW", "NHWC", (1, 8, 2, 3)), ("NCHW", "NCHW4c", (1, 8, 2, 3)), ("NCHW4c", "NHWC", (1, 2, 2, 3, 4)), ("NCHW4c", "NCHW8c", (1, 2, 2, 3, 4)), ("OIHW", "OHWI2o4i", (4, 8, 1, 2))]
    layouts += [("NCHW", "NCHW8c", (2, 5, 3, 2)), ("OIHW", "OIHW4i16o4i", (5, 6, 1, 2)), ("OIHW4i16o4i", "IHWO", (1, 2, 1, 2, 4, 16, 4)), ("NC4c", "NC3c", (2, 3, 4))]
    found += [Example(LayoutTransform(a, b), (real(*shape),)) for a, b, shape in layouts]
    return found


def _indexing() -> list[Example]:
    i = indexing
    r = runtime_checks
    found = [Example(r.Outside((8,)), (whole(3, 4, low=-9, high=9),)), Example(r.Outside((9, 5)), (whole(3, 2, low=-4, high=5),)), Example(r.Outside((6,), False), (whole(70, low=0, high=6),))]
    found += [Example(r.Outside((4,)), (scalar(-4, "int64"),)), Example(r.RequireZero("no"), (whole(3, 4), scalar(0, "int32")))]
    found += [Example(i.Take(1), (real(2, 5, 3), whole(2, 2, low=-2, high=8))), Example(i.Take(0, mode="wrap"), (real(5, 3), whole(4, low=-9, high=9)))]
    found += [Example(i.Take(), (real(3, 4), whole(5, low=0, high=12))), Example(i.Take(2, 1, "fast"), (real(2, 3, 5), whole(2, 4, low=0, high=5))), Example(i.Take(0), (real(5, 3), scalar(2, "int64")))]
    found += [Example(i.Gather(1), (real(3, 4), whole(3, 2, low=-4, high=4))), Example(i.Gather(0), (real(3, 4), whole(2, 4, low=0, high=3, dtype="int64")))]
    found += [Example(i.GatherNd(), (real(3, 4, 5), whole(2, 6, low=0, high=3))), Example(i.GatherNd(1), (real(3, 4, 5), whole(1, 3, 2, low=-4, high=4)))]
    found += [Example(i.GatherNd(), (real(3, 4), whole(0, 2))), Example(i.GatherNd(1), (real(3, 4), whole(0, 3, 2)))]
    for how in ("update", "add", "mul", "min", "max"):
        found.append(Example(i.ScatterElements(1, how), (real(3, 5), np.asarray([[0, 2], [1, -1], [4, 3]]), real(3, 2))))
        found.append(Example(i.ScatterNd(how), (real(4, 3), np.asarray([[0, 2, 3]]), real(3, 3))))
    found += [Example(i.WriteRow(), (real(3, 5), real(5), np.asarray(k))) for k in (0, 2, 3, -1)]
    found.append(Example(i.WriteRow(), (real(4), real(), np.asarray(1, np.int32))))
    c = create
    found += [Example(c.OneHot(4), (whole(2, 3, low=-1, high=5), scalar(1), scalar(0))), Example(c.OneHot(3, 0, "int8"), (whole(4, low=0, high=3), scalar(5, "int8"), scalar(-1, "int8")))]
    found += [Example(c.Full((2, 3)), (scalar(2.5),)), Example(c.Full((2,), "int32"), (scalar(7),)), Example(c.FullLike(), (whole(2, 2), scalar(3, "int32")))]
    found += [Example(c.Zeros((2, 3), "float32"), ()), Example(c.Ones((4,), "int8"), ()), Example(c.ZerosLike(), (real(2, 3),)), Example(c.OnesLike(), (whole(3),))]
    found += [Example(c.Arange(0, 5), ()), Example(c.Arange(5, -1, -2, "int32"), ()), Example(c.Arange(0.5, 2, 0.25), ()), Example(c.ShapeOf(), (real(2, 3, 4),)), Example(vm.VmShapeOf(), (real(2, 3, 4),)), Example(vm.VmReshapeTensor((3, 8)), (real(2, 3, 4), np.array([3, 8]))), Example(c.NdarraySize("int64"), (real(2, 3),))]
    found += [Example(c.Trilu(upper), (real(2, 4, 5), scalar(k, "int64"))) for upper in (True, False) for k in (0, -1, 2)]
    return found


def _ensembles() -> list[Example]:
    """Two trees of three leaves: nodes 3 and 5 are the roots, 4 and 6 below them."""
    children = np.asarray([[0, 0], [1, 1], [2, 2], [4, 0], [1, 2], [2, 6], [0, 1]], "int32")
    features, thresholds = np.asarray([0, 0, 0, 1, -3, 0, 2], "int32"), np.asarray([0, 0, 0, 0.5, -0.5, 0, 1], "float32")
    roots, depths = np.asarray([3, 5], "int32"), np.asarray([2, 2], "int32")
    rows = real(21, 3)
    rows[4, 2] = np.nan
    found = []
    for n, entries, how, missing in ((1, 1, "sum", True), (3, 3, "max", True), (4, 2, "min", True), (2, 1, "sum", True)):
        targets, weights = whole(3, entries, low=0, high=n), real(3, entries)
        tables = (np.abs(features) if not missing else features, thresholds, children, roots, depths, targets, weights)
        found.append(Example(classic.ensembles.TreeEnsemble(n, how, missing), (rows, *tables)))
    found.append(Example(classic.ensembles.TreeEnsemble(1), (real(3, 3), np.abs(features) % 3, thresholds, children, np.tile(roots, 5), np.tile(depths, 5), whole(3, 1, low=0, high=1), real(3, 1))))
    found += [Example(classic.coupling.PairwiseCoupling(k), (real(4, k * (k - 1) // 2, low=0.1, high=0.9),)) for k in (2, 3, 4)]
    return found


def _sorting() -> list[Example]:
    found = [Example(cls(1), (real(2, 5),)) for cls in (scans.CumSum, scans.CumProd)]
    found += [Example(scans.CumSum(None, "float64"), (real(2, 5),)), Example(scans.CumSum(0, None, True), (whole(4, 3),)), Example(scans.CumSum(0, None, True), (whole(0, 3),))]
    found += [Example(scans.CumProd(-1, "int64", True), (whole(2, 4, low=1, high=4),)), Example(scans.CumSum(1), (real(2, 3, 4),))]
    gaps = np.where(truth(4, 6), real(4, 6).round(), np.nan)
    found += [Example(cls(axis), (x,)) for cls in (scans.CumMax, scans.CumMin) for axis, x in ((1, gaps), (0, whole(5, 3, low=0, high=4)), (-1, real(2, 0, 3)))]
    s, ties = sorting, whole(3, 6, low=0, high=4)
    found += [Example(s.Sort(), (ties,)), Example(s.Sort(0, False), (ties,)), Example(s.ArgSort(), (ties,)), Example(s.ArgSort(0, False, "int64"), (ties,))]
    found += [Example(s.TopK(2), (ties,)), Example(s.TopK(2, 0, "values", True), (ties,)), Example(s.TopK(0, 1, "indices", dtype="int64"), (real(3, 4),))]
    rows = np.where(truth(2, 70), real(2, 70).round(1), np.nan).astype("float32")
    for up in (True, False):
        found += [Example(s.Sort(-1, up), (rows,)), Example(s.ArgSort(-1, up), (rows,)), Example(s.TopK(3, is_ascend=up), (rows,)), Example(s.TopK(60, is_ascend=up), (rows,))]
        found += [Example(s.ArgSort(1, up), (whole(2, 37, 2, high=-40, dtype="int8"),)), Example(s.TopK(2, 1, is_ascend=up), (whole(2, 9, 2, low=0, high=4, dtype="uint8"),))]
    row = np.sort(whole(11, low=0, high=9).astype("float32"))
    found += [Example(s.SearchSorted(right), (row, whole(3, 4, low=-1, high=10).astype("float32"))) for right in (False, True)]
    found.append(Example(s.SearchSorted(True, "int64"), (np.sort(whole(2, 8)), whole(2, 5))))
    return found


def _reduction() -> list[Example]:
    r = reduction
    found: list[Example] = []
    for cls in (r.Sum, r.Mean, r.Max, r.Min, r.Prod, r.ArgMax, r.ArgMin):
        found += [Example(cls(), (real(3, 4),)), Example(cls((1, 2), True), (real(2, 3, 4),)), Example(cls(0, exclude=True), (real(3, 4, 2),))]
        found += [Example(cls((2, 3), True), (real(1, 3, 4, 5),)), Example(cls(1), (real(2, 3, 4, 5),))]
    found += [Example(cls(-1), (whole(3, 4, dtype=d),)) for cls in (r.Sum, r.Max, r.Min, r.Prod) for d in ("int32", "int8")]
    found += [Example(cls(1), (truth(3, 4),)) for cls in (r.All, r.Any_)]
    tied = whole(5, 7, low=0, high=3)
    found += [Example(cls(1, select_last_index=last), (tied,)) for cls in (r.ArgMax, r.ArgMin) for last in (False, True)]
    x = real(2, 5, 3)
    found += [Example(r.Variance((1,), unbiased=u), (x, x.mean(1, keepdims=True))) for u in (False, True)]
    return found


def _conv() -> list[Example]:
    f32 = real
    found = [
        Example(nn.Conv2d(padding=(1,), channels=4, kernel_size=(3,)), (f32(1, 3, 6, 7), f32(4, 3, 3, 3))),
        Example(nn.Conv2d((2, 1), (0, 1, 2, 0), (1, 2)), (f32(2, 4, 9, 8), f32(6, 4, 3, 2))),
        Example(nn.Conv2d(padding=(1, 1), groups=2), (f32(1, 4, 5, 5), f32(6, 2, 3, 3))),
        Example(nn.Conv2d((2,), (1,), groups=4), (f32(1, 4, 7, 7), f32(4, 1, 3, 3))),
        Example(nn.Conv2d(groups=3), (f32(1, 3, 5, 5), f32(6, 1, 3, 3))),
        Example(nn.Conv2d(data_layout="NHWC", kernel_layout="HWIO"), (f32(1, 5, 6, 3), f32(3, 3, 3, 4))),
        Example(nn.Conv2d(data_layout="NHWC", kernel_layout="OHWI", out_layout="NCHW"), (f32(1, 5, 6, 3), f32(4, 1, 1, 3))),
        Example(nn.Conv2d(padding=(1,), out_dtype="int32"), (whole(1, 3, 5, 5, dtype="int8"), whole(4, 3, 3, 3, dtype="int8"))),
        Example(nn.Conv2d(out_dtype="int32"), (whole(1, 3, 5, 5, low=0, high=255, dtype="uint8"), whole(4, 3, 3, 3, dtype="int8"))),
        Example(nn.Conv1d((2,), (1,)), (f32(2, 3, 9), f32(4, 3, 3))),
        Example(nn.Conv1d((1,), (2, 0), (2,), data_layout="NWC", kernel_layout="WIO"), (f32(1, 9, 2), f32(3, 2, 4))),
        Example(nn.Conv3d((1,), (1,)), (f32(1, 2, 4, 5, 6), f32(3, 2, 3, 3, 3))),
        Example(nn.Conv3d(data_layout="NDHWC", kernel_layout="DHWIO"), (f32(1, 4, 5, 6, 2), f32(2, 2, 2, 2, 3))),
        Example(nn.Conv1dTranspose((2,), (1,)), (f32(1, 3, 5), f32(3, 4, 3))),
        Example(nn.Conv2dTranspose((2,), (1, 1), output_padding=(1,)), (f32(1, 3, 4, 5), f32(3, 4, 3, 3))),
        Example(nn.Conv2dTranspose((1, 2), (0, 1, 1, 0), (2,), 2), (f32(2, 4, 3, 4), f32(4, 3, 2, 3))),
        Example(nn.Conv2dTranspose((2,), data_layout="NHWC", kernel_layout="HWOI"), (f32(1, 3, 4, 2), f32(2, 2, 5, 2))),
        Example(nn.Conv3dTranspose((2,)), (f32(1, 2, 2, 3, 2), f32(2, 3, 2, 2, 2))),
        Example(nn.Dense(), (f32(3, 5), f32(4, 5))), Example(nn.Dense(4), (f32(2, 3, 5), f32(4, 5))),
        Example(nn.Dense(out_dtype="int32"), (whole(3, 70, dtype="int8"), whole(4, 70, dtype="int8"))), Example(nn.Dense(), (f32(5), f32(4, 5))),
        Example(nn.Dense(), (whole(3, 5), whole(4, 5))), Example(nn.Dense(out_dtype="int32"), (whole(70, dtype="int8"), whole(4, 70, dtype="int8"))),
        Example(nn.BiasAdd(), (f32(2, 3, 4, 5), f32(3))), Example(nn.BiasAdd(-1), (f32(2, 3), f32(3))),
    ]
    blocks: dict[str, Any] = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i4o"}
    x4, w4 = f32(1, 2, 6, 7, 4), f32(3, 2, 3, 3, 4, 4)
    found += [Example(cls((2,), (1,), **blocks), (x4, w4)) for cls in (nn.Conv2d, nn.Conv2dNCHWc)]
    found += [Example(nn.Conv2dNCHWc(padding=(1,), **{**blocks, "kernel_layout": "OIHW4i8o"}, out_layout=out), (x4, f32(2, 2, 3, 3, 4, 8))) for out in ("NCHW8c", "NHWC", "NCHW4c")]
    found += [Example(nn.Conv2d((1,), (0, 1), (2,), groups=2, **blocks), (x4, f32(2, 1, 3, 2, 4, 4))), Example(nn.Conv2d((1,), (1,), **blocks, out_dtype="int32"), (whole(1, 2, 5, 5, 4, dtype="int8"), whole(2, 2, 3, 3, 4, 4, dtype="int8")))]
    found += [Example(nn.Conv2d((1,), (1,), data_layout="NCHW3c", kernel_layout="OIHW3i16o", out_layout="NCHW16c"), (f32(1, 1, 9, 9, 3), f32(1, 1, 3, 3, 3, 16)))]
    found += [Example(nn.Conv2d(data_layout="NHWC8c", kernel_layout="HWIO4i16o", out_layout="NCHW"), (f32(2, 3, 4, 1, 8), f32(2, 1, 2, 1, 4, 16)))]
    found += [Example(nn.Conv2d((1,), (1,), data_layout="NCHW8c", kernel_layout="OIHW2i4o4i", out_layout="NCHW4c"), (f32(1, 2, 5, 5, 8), f32(2, 2, 1, 1, 2, 4, 4)))]
    found += [Example(nn.DepthwiseConv2dNCHWc((2,), (1,), groups=8, data_layout="NCHW4c", kernel_layout="OIHW1i4o"), (x4, f32(2, 1, 3, 3, 1, 4)))]
    found += [Example(nn.DepthwiseConv2dNCHWc((1,), (1,), groups=8, data_layout="NCHW4c", kernel_layout="OIHW1i8o", out_layout="NCHW8c"), (x4, f32(2, 1, 3, 3, 1, 8)))]
    found += [Example(nn.Conv1d(data_layout="NCW4c", kernel_layout="OIW4i4o"), (f32(1, 2, 9, 4), f32(1, 2, 3, 4, 4)))]
    found += [Example(nn.Conv3d((1,), (1,), data_layout="NCDHW4c", kernel_layout="OIDHW4i4o"), (f32(1, 1, 3, 4, 5, 4), f32(2, 1, 3, 3, 3, 4, 4)))]
    for a, b in ((False, False), (True, False), (False, True), (True, True)):
        found.append(Example(nn.Matmul(None, "", a, b), (f32(*((5, 3) if a else (3, 5))), f32(*((4, 5) if b else (5, 4))))))
        found.append(Example(nn.BatchMatmul("", a, b), (f32(2, *((5, 3) if a else (3, 5))), f32(1, *((4, 5) if b else (5, 4))))))
    return found


def _attention() -> list[Example]:
    q, k, v = real(2, 5, 12), real(2, 7, 12), real(2, 7, 6)
    found = [Example(nn.Attention(heads=3, size=4, width=2), (q, k, v)), Example(nn.Attention(heads=1, size=12, width=6, scale=0.5), (q, k, v))]
    found += [Example(nn.Attention(heads=3, size=4, width=2), (q, k, v, real(*m))) for m in ((2, 3, 7, 5), (1, 1, 7, 5), (2, 1, 7, 1))]
    mask = np.where(np.arange(7)[:, None] < np.arange(5) + 2, 0, -np.inf).astype("float32")[None, None]
    ends = np.arange(5, dtype="int32").reshape(1, 1, 5) + 2
    found.append(Example(nn.Attention(heads=3, size=4, width=2), (q, k, v, mask, ends, ends)))
    found.append(Example(nn.Attention(heads=2, size=3, width=2, causal=True, starts=(1, 6, 2)), (q, k, v)))
    packed = real(1, 17, 18)
    found.append(Example(nn.Attention(heads=2, size=3, width=3, starts=(0, 6, 12), causal=True), (packed, packed, packed)))
    return found


def _pool() -> list[Example]:
    found: list[Example] = []
    x = real(1, 3, 7, 8)
    for plain in (nn.MaxPool2d, nn.AvgPool2d):
        found += [Example(plain((2,), (2,)), (x,)), Example(plain((3,), (2,), (1,), (0, 1, 1, 0)), (x,)), Example(plain((3, 2), (2, 3), padding=(1,), ceil_mode=True), (x,))]
        found += [Example(plain((2,), (1,), (2,)), (x,)), Example(plain((3,), (2,), padding=(1,), layout="NHWC"), (real(1, 6, 7, 2),)), Example(plain((2,), (2,)), (whole(1, 2, 4, 4, dtype="int8"),))]
    found += [Example(nn.AvgPool2d((3,), (2,), (1,), (1,), ceil_mode=c, count_include_pad=True), (x,)) for c in (False, True)]
    found += [Example(nn.MaxPool1d((3,), (2,), (1,), (1,)), (real(2, 3, 9),)), Example(nn.AvgPool1d((2,), (1,), layout="NWC"), (real(2, 9, 3),))]
    found += [Example(nn.MaxPool3d((2,), (2,)), (real(1, 2, 4, 5, 6),)), Example(nn.AvgPool3d((2,), (1,), (1,), (1,)), (real(1, 2, 3, 4, 3),))]
    wide = real(2, 3, 13, 45)  # rows of several vectors, the last of which begins inside the one before
    for plain in (nn.MaxPool2d, nn.AvgPool2d):
        found += [Example(plain((3,), (1,), (1,), (1,)), (wide,)), Example(plain((3,), (2,), (1,), (1, 1, 0, 2)), (wide,)), Example(plain((2, 5), (3, 3), (2, 2), (2,)), (wide,))]
        found += [Example(plain((5,), (2,), (1,), (2,), ceil_mode=True), (wide,)), Example(plain((1, 3), (1,)), (wide,)), Example(plain((9,), (1,), (1,), (4,)), (wide,))]
    found += [Example(nn.AvgPool2d((3,), (2,), (1,), (1,), count_include_pad=True), (wide,)), Example(nn.MaxPool2d((3,), (2,), (1,), (1,)), (whole(1, 2, 9, 80, dtype="int8"),))]
    found.append(Example(nn.MaxPool2d((2, 2), layout="NHWC"), (np.zeros((1, 4, 4, 0), np.float32),)))
    found += [Example(nn.MaxPool1d((3,), (2,), (1,), (1,)), (real(2, 3, 41),)), Example(nn.AvgPool3d((3,), (2,), (1,), (1,)), (real(1, 2, 5, 4, 37),))]
    found += [Example(cls(), (x,)) for cls in (nn.GlobalAvgPool2d, nn.GlobalMaxPool2d, nn.AdaptiveAvgPool2d)]
    found += [Example(cls("NHWC"), (x,)) for cls in (nn.GlobalAvgPool2d, nn.GlobalMaxPool2d)]
    found += [Example(cls((3, 5)), (x,)) for cls in (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)]
    blocks = real(2, 3, 7, 8, 4)
    for plain in (nn.MaxPool2d, nn.AvgPool2d):
        found += [Example(plain((3,), (2,), (1,), (1,), "NCHW4c"), (blocks,)), Example(plain((3, 2), (2, 3), padding=(0, 1), layout="NCHW4c", ceil_mode=True), (blocks,))]
        found += [Example(plain((2,), (2,), layout="NCHW4c", out_layout=out), (blocks,)) for out in ("NCHW", "NHWC", "NCHW2c")]
        found += [Example(plain((2,), (2,), layout="NHWC", out_layout="NCHW"), (x,)), Example(plain((2,), (1,), layout="NHWC4c"), (real(1, 4, 5, 2, 4),))]
    found += [Example(nn.AvgPool2d((3,), (2,), (1,), (1,), "NCHW4c", ceil_mode=True, count_include_pad=True), (blocks,)), Example(nn.MaxPool1d((3,), layout="NCW8c"), (real(1, 2, 9, 8),))]
    found += [Example(cls("NCHW4c"), (blocks,)) for cls in (nn.GlobalAvgPool2d, nn.GlobalMaxPool2d)]
    found += [Example(cls((3, 5), "NCHW4c"), (blocks,)) for cls in (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)]
    return found


def _gradients() -> list[Example]:
    x, found = real(2, 3, 7, 8), list[Example]()
    for cls, plain in ((nn.MaxPool2dGrad, nn.MaxPool2d), (nn.AvgPool2dGrad, nn.AvgPool2d)):
        windows: list[dict[str, Any]] = [
            {"pool_size": 2, "strides": 2}, {"pool_size": 3, "strides": 2, "padding": (0, 1, 1, 0)}, {"pool_size": (3, 2), "strides": (2, 3), "padding": 1, "ceil_mode": True},
            {"pool_size": 3, "strides": 1, "padding": 1, "layout": "NHWC"}, {"pool_size": 2, "strides": 2, "out_layout": "NHWC"}]
        found += [Example(cls(**w), (real(*plain(**w).reference(x).shape), x)) for w in windows]
    found.append(Example(nn.AvgPool2dGrad((3,), (2,), padding=(1,), count_include_pad=True), (real(2, 3, 4, 4), x)))
    found.append(Example(nn.MaxPool2dGrad((2,), (1,)), (real(1, 1, 3, 3), np.ones((1, 1, 4, 4), np.float32))))
    weights: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((2, 4, 7, 8), {"padding": 1, "kernel_size": 3}), ((2, 6, 3, 4), {"strides": 2, "kernel_size": (3, 2), "groups": 3, "channels": 6}),
        ((2, 2, 3, 4), {"dilation": (2, 2), "kernel_size": (3, 3)})]
    found += [Example(nn.Conv2dBackwardWeight(**attrs), (real(*g), x)) for g, attrs in weights]
    found.append(Example(nn.Conv2dBackwardWeight(kernel_size=(3, 3), padding=(1,), grad_layout="NHWC", data_layout="NHWC", kernel_layout="HWIO"), (real(1, 5, 6, 2), real(1, 5, 6, 3))))
    return found


def _norm() -> list[Example]:
    x, c = real(2, 6, 4, 5), partial(real, 6, low=0.5)
    found = [Example(cls(axis), (real(2, 3, 5),)) for cls in (nn.Softmax, nn.LogSoftmax, fast_math.FastSoftmax) for axis in (-1, 1)]
    found += [Example(nn.BatchNorm(), (x, c(), c(), c(), c())), Example(nn.BatchNorm(3, 1e-3, False, False), (real(1, 2, 3, 6), c(), c(), c(), c()))]
    found += [Example(nn.Dropout(), (real(2, 3),)), Example(nn.LayerNorm(), (real(2, 3, 6), c(), c())), Example(nn.LayerNorm(1, center=False), (x, c(), c()))]
    found += [Example(nn.InstanceNorm(), (x, c(), c())), Example(nn.InstanceNorm(-1), (real(2, 3, 4, 6), c(), c())), Example(nn.GroupNorm(3), (x, c(), c()))]
    groups = real(2), real(2)
    found += [Example(nn.InstanceNorm(axis), (real(*shape), *groups)) for axis, shape in ((3, (2, 3, 4, 2, 17)), (2, (1, 5, 2, 6)), (1, (3, 2, 9)))]
    found += [Example(nn.L2Normalize(1e-6, (1,)), (x,)), Example(nn.L2Normalize(1e-6), (real(3, 4),)), Example(nn.LRN(), (x,)), Example(nn.LRN(4, alpha=0.1, bias=1), (x,))]
    return found


def _image() -> list[Example]:
    x = real(1, 2, 4, 5)
    found: list[Example] = []
    for mode in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "half_pixel_symmetric"):
        found += [Example(image.Resize2d((7, 9), method=m, coordinate_transformation_mode=mode), (x,)) for m in ("nearest_neighbor", "linear", "cubic")]
    found += [Example(image.Resize2d((3, 2), method="nearest_neighbor", rounding_method=r), (x,)) for r in image.ROUNDINGS]
    found += [Example(image.Resize2d((8, 10), None, "NHWC"), (real(1, 4, 5, 2),)), Example(image.Resize2d((2, 2), method="cubic", cubic_alpha=-0.75, cubic_exclude=1), (x,))]
    found.append(Example(image.Resize2d((3, 3), (0.25, -0.25, 0.75, 1.25), coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=9), (x,)))
    found += [Example(image.Resize2d((2, 3), scales=(0.6, 0.6)), (x,)), Example(image.Resize2d((8, 10)), (whole(1, 2, 4, 5, low=0, high=255, dtype="uint8"),))]
    found += [Example(image.Resize2d((8, 10), method="nearest_neighbor", coordinate_transformation_mode="tf_half_pixel_for_nn"), (x,))]
    found += [Example(image.Resize1d((9,)), (real(1, 2, 5),)), Example(image.Resize3d((3, 4, 5)), (real(1, 2, 2, 3, 4),)), Example(image.Resize2d((4, 5)), (x,))]
    found += [Example(nn.Upsampling3d(2, 1, 3, "NCDHW", m), (real(1, 2, 2, 3, 4),)) for m in ("nearest_neighbor", "trilinear")]
    found += [Example(nn.Upsampling3d(2, 2, 1, "NDHWC", "trilinear", "align_corners"), (real(1, 2, 3, 4, 2),))]
    found += [Example(nn.Upsampling(2, 3, "NCHW4c", m), (real(1, 2, 3, 4, 4),)) for m in ("nearest_neighbor", "bilinear")]
    found += [Example(image.Resize2d((7, 9), None, "NCHW4c"), (real(1, 2, 4, 5, 4),))]
    found += [Example(nn.Upsampling(2, 2, method=m), (x,)) for m in ("nearest_neighbor", "bilinear", "bicubic")]
    found.append(Example(nn.Upsampling(2, 3, method="bilinear", align_corners=True), (x,)))
    return found


def boxes(*shape: int, kinds: int = 3) -> Array:
    """Boxes (class, score, left, top, right, bottom), some scores equal and some classes negative."""
    corner, size = real(*shape, 2, low=0, high=6), real(*shape, 2, low=1, high=4)
    kind, score = whole(*shape, 1, low=-1, high=kinds).astype("float32"), real(*shape, 1, low=-0.2, high=1).round(1)
    return np.concatenate([kind, score, corner, corner + size], -1)


def _vision() -> list[Example]:
    v, m = vision, vision_maps
    found = [Example(v.GetValidCounts(0.3), (boxes(2, 9),)), Example(v.GetValidCounts(0.1, -1), (boxes(1, 7),))]
    data, valid, where = boxes(2, 24), np.asarray([24, 15], "int32"), np.stack([_random.permutation(24)] * 2).astype("int32")
    for attrs in ({}, {"force_suppress": True}, {"id_index": -1, "max_output_size": 3}, {"top_k": 9}, {"iou_threshold": 0.0}, {"iou_threshold": 0.1, "top_k": 12}):
        for shown in ({}, {"return_indices": False}, {"return_indices": False, "invalid_to_bottom": True}):
            found.append(Example(v.NonMaxSuppression(**attrs, **shown), (data, valid, where)))
    corners, scores = boxes(2, 20)[..., 2:], real(2, 3, 20, low=0, high=1).round(1)
    found += [Example(v.AllClassNonMaxSuppression(k, 0.3, 0.2, how), (corners, scores)) for k in (0, 2, 30) for how in ("onnx", "tensorflow")]
    x = real(2, 3, 9, 8)
    rois = np.concatenate([whole(4, 1, low=0, high=2).astype("float32"), boxes(4)[:, 2:] * 2 - 2], 1)
    found += [Example(m.RoiAlign((3, 2), 0.7, ratio, mode=how, aligned=al), (x, rois)) for ratio in (2, -1) for how in ("avg", "max", "max_taps") for al in (False, True)]
    found += [Example(m.RoiAlign(2, 1.0, 2, "NHWC", how, out_layout=out), (real(2, 9, 8, 35), rois)) for how in ("avg", "max", "max_taps") for out in ("NCHW", "NHWC")]
    found += [Example(m.RoiAlign(2, 1.0, 2, "NHWC"), (real(2, 9, 8, 3), rois)), Example(m.RoiAlign(2, 0.5, -1, "NHWC", out_layout="NCHW"), (real(2, 9, 8, 16), rois)), Example(m.RoiPool((3, 2), 0.9), (x, rois)), Example(m.RoiPool(4, 0.5, "NHWC"), (real(2, 9, 8, 3), rois))]
    info = np.asarray([[70, 60, 1], [50, 64, 1.5]], "float32")
    for loss in (False, True):
        network = real(2, 12, 5, 4, low=0, high=1), real(2, 24, 5, 4, low=-0.4, high=0.4) * (9 if loss else 1), info
        found += [Example(m.Proposal((1.0, 2.0), (0.5, 1.0, 2.0), 16, 0.6, n, 9, 4, loss), network) for n in (-1, 30)]
    found += [Example(m.MultiboxPrior(), (x,)), Example(m.MultiboxPrior((0.2, 0.5), (1.0, 2.0, 0.5), (0.1, 0.2), (0.3, 0.5), True), (x,))]
    anchors = np.sort(real(1, 11, 2, 2, low=0, high=1), 2).reshape(1, 11, 4)
    options: tuple[dict[str, Any], ...] = ({}, {"clip": False, "threshold": 0.8, "keep_background": True})
    for attrs in options:
        found.append(Example(m.MultiboxTransformLoc(**attrs), (real(2, 4, 11, low=0, high=1), real(2, 44), anchors)))
    found += [Example(m.YoloReorg(2), (real(2, 8, 4, 6),)), Example(m.YoloReorg(), (real(1, 2, 2, 3),))]
    return found


def _sampling() -> list[Example]:
    s = image_sampling
    found: list[Example] = []
    for padding in ("zeros", "border", "reflection"):
        for align in (True, False):
            found += [Example(s.GridSample(m, "NCHW", padding, align), (real(2, 3, 5, 6), real(2, 2, 4, 7, low=-1.7, high=1.7))) for m in ("nearest", "bilinear", "bicubic")]
            found += [Example(s.GridSample(m, "NCDHW", padding, align), (real(1, 2, 3, 4, 5), real(1, 3, 2, 3, 4, low=-1.4, high=1.4))) for m in ("nearest", "bilinear")]
    found += [Example(s.AffineGrid(shape, align), (real(2, n, n + 1),)) for n, shape in ((2, (4, 5)), (3, (2, 3, 4))) for align in (True, False)]
    boxes, where = real(4, 4, low=-0.3, high=1.3), whole(4, low=0, high=2)
    found += [Example(s.CropAndResize((3, 4), "NCHW", m, 7.0), (real(2, 3, 6, 5), boxes, where)) for m in ("bilinear", "nearest_neighbor")]
    found += [Example(s.CropAndResize((1, 4), "NHWC"), (real(2, 6, 5, 3), boxes, where)), Example(s.CropAndResize((5, 1), out_dtype="float64"), (real(2, 3, 6, 5), boxes, where))]
    found += [Example(s.Dilation2d(), (real(2, 3, 7, 8), real(3, 3, 2))), Example(s.Dilation2d((2, 1), (1, 2, 0, 1), (1, 2)), (real(1, 3, 9, 8), real(3, 3, 2)))]
    found += [Example(s.Dilation2d(1, 1, 1, "NHWC", "HWI"), (real(1, 7, 8, 5), real(3, 3, 5))), Example(s.Dilation2d(padding=1), (whole(1, 2, 5, 5), whole(2, 3, 3)))]
    return found


def _random_numbers() -> list[Example]:
    r = random
    fresh = np.asarray([1, 2, 3, 4, 0, 0, 0, 0, 1 << 63, 0], "uint64")
    deep = np.asarray([1, 2, 3, 4, 5, 6, 0, (1 << 64) - 9, 1, 0], "uint64")
    full = np.asarray([1, 2, 3, 4, 5, 7, 0, (1 << 64) - 9, 0, 0], "uint64")
    found: list[Example] = []
    for state in (fresh, deep, full):
        found += [Example(r.ThreefryGenerate((2, 3, 4)), (state,)), Example(r.ThreefrySplit(), (state,))]
    for dtype in ("float32", "float64"):
        found += [Example(cls((3, 5), dtype), (fresh, scalar(-1, dtype), scalar(2.5, dtype))) for cls in (r.Uniform, r.Normal)]
    found.append(Example(r.Multinomial(6), (fresh, real(3, 5, low=0, high=1))))
    return found


def _programs() -> list[Example]:
    """Einstein sums, losses, sparse tensors and signals."""
    e = einsum.Einsum
    found = [Example(e(q), tuple(real(*s) for s in shapes)) for q, *shapes in (
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)), ("ij,kj", (3, 4), (5, 4)), ("...ii->...i", (2, 3, 3)), ("ii", (4, 4)), ("i,j->ij", (3,), (4,)),
        ("ijk->j", (2, 3, 4)), ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)), ("...ij,...j->...i", (2, 1, 3, 4), (5, 4)), ("bhid,bhjd->bhij", (2, 2, 3, 4), (2, 2, 5, 4)),
    )]
    found.append(Example(e("ij,jk->ik"), (whole(2, 3), whole(3, 4))))
    kinds = whole(2, 5, low=0, high=4)
    found += [Example(nn.NllLoss(how, ignored), (real(2, 4, 5), kinds, real(4, low=0.5))) for how in ("mean", "sum", "none") for ignored in (-100, 1)]
    found.append(Example(nn.NllLoss(), (real(4), scalar(2, "int64"), real(4, low=0.5))))
    sparse = real(6, 8) * (whole(6, 8, low=0, high=4) == 0)
    found += [Example(SparseDense(lhs), (real(3, 8), *packed(sparse, block))) for lhs in (False, True) for block in ((1, 1), (2, 4))]
    found += [Example(SparseConv2d("NHWC", (1,)), (real(2, 3, 2, 8), *packed(sparse, (2, 4)))), Example(SparseConv2d("NCHW"), (real(2, 8, 3, 2), *packed(sparse, (1, 1))))]
    found += [Example(SparseConv2d("NHWC", (3,)), (real(2, 3, 4, 2), *packed(real(4, 18) * (whole(4, 18, low=0, high=4) == 0), (2, 2))))]
    values, columns, starts = packed(sparse, (1, 1))
    found.append(Example(SparseDense(), (real(3, 8), values.reshape(-1), columns, starts)))
    row = whole(21, low=0, high=6)
    found += [Example(selection.TruePlaces(), (mask,)) for mask in (row > 1, row > 99, row < 99)]
    found += [Example(sorting.Unique(up, counted), (x,)) for up in (True, False) for counted in (True, False) for x in (row, row.astype("float32"))]
    s = scattering
    found += [Example(cls(1), (real(3, 5), np.asarray([[0, 2], [1, -1], [4, 4]]), real(3, 2))) for cls in (s.Scatter, s.ScatterAdd)]
    found += [Example(s.SparseToDense((3, 4)), (np.asarray([[0, 1], [2, 3], [1, 0]]), real(3), scalar(-1))), Example(s.SparseToDense((5,)), (np.asarray([1, 3]), scalar(2.5), scalar(0)))]
    found += [Example(s.SparseToDense((5,)), (scalar(3, "int32"), scalar(2.5), scalar(0))), Example(s.InvertPermutation(), (_random.permutation(9),))]
    points = np.stack([whole(6, low=0, high=n) for n in (2, 3, 6)], 1).astype("int64")
    found += [Example(s.SparseReshape(), (points, np.asarray([2, 3, 6]), np.asarray(new))) for new in ([9, 4], [9, -1], [-1], [2, 3, 2, -1])]
    for n in (1, 8, 12, 64):
        found += [Example(signal.Dft(back), (real(2, 3, n), real(2, 3, n))) for back in (False, True)]
    found += [Example(signal.Stft(16, 4, 16), (real(2, 50), real(16))), Example(signal.Stft(12, 5, 9, True, False), (real(40), real(9)))]
    return found


def _lookup() -> list[Example]:
    f = lookup
    x = real(3, 4, 5)
    found = [Example(f.AdvIndex(), (x, whole(2, 1, low=-3, high=3), whole(6, low=0, high=4))), Example(f.AdvIndex(), (x, whole(7, low=0, high=3, dtype="int64")))]
    found += [Example(f.UnravelIndex(), (whole(*shape, low=0, high=60), np.asarray([3, 4, 5]))) for shape in ((7,), (2, 3), ())]
    lengths = np.asarray([2, 0, 4, 9], "int32")
    found += [Example(f.SequenceMask(-1.5), (real(6, 4, 2), lengths)), Example(f.SequenceMask(axis=1), (whole(4, 6), lengths))]
    found += [Example(f.ReverseSequence(), (real(3, 5, 2), np.asarray([0, 3, 5]))), Example(f.ReverseSequence(0, -1), (real(5, 2, 3), np.asarray([1, 5, 2], "int32")))]
    found += [Example(f.MatrixSetDiag(), (real(2, 3, 5), real(2, 3))), Example(f.MatrixSetDiag(-1, -1), (real(4, 3), real(3))), Example(f.MatrixSetDiag(2, 2), (whole(3, 4), whole(2)))]
    for above in (True, False):
        found += [Example(f.MatrixSetDiag(-2, 3, above, below), (real(2, 4, 5), real(2, 6, 4))) for below in (True, False)]
    found += [Example(f.SlidingWindow(1, (2, 3), (1, 2)), (real(2, 5, 8),)), Example(f.SlidingWindow(-1, (4,), (3,)), (whole(2, 11),))]
    found += [Example(f.MeshGrid(order), (real(2), real(3), real(4))) for order in ("ij", "xy")] + [Example(f.MeshGrid(), (whole(3), whole()))]
    found += [Example(f.StridedSet((1, 0), (3, 6), (1, 2)), (real(4, 6, 2), real(2, 3, 2))), Example(f.StridedSet((-1,), (0,), (-2,)), (whole(6), whole(3)))]
    found.append(Example(f.StridedSet((1,), (2,)), (real(3, 4), real(1, 4))))
    widths = ((0, 0), (1, 3), (2, 0))
    found += [Example(MirrorPad(how, widths), (real(2, 4, 5),)) for how in ("SYMMETRIC", "REFLECT")]
    found += [Example(Dilate((1, 2, 3)), (real(2, 3, 4),)), Example(Dilate((2,), 7), (whole(5),)), Example(StopFusion(), (real(2, 3),))]
    found += [Example(shaping.ReverseReshape(new), (real(2, 3, 4),)) for new in ((-1, 0), (-3, 0), (-2,), (0, -1, 4), (6, 4))]
    r = reduction
    found += [Example(r.CollapseSumTo(shape), (real(2, 3, 4),)) for shape in ((3, 1), (1, 1, 4), (), (2, 3, 4))] + [Example(r.CollapseSumLike(), (whole(2, 3, 4), whole(1, 4)))]
    q31, shifts = whole(3, low=1 << 28, high=1 << 30), whole(3, low=0, high=6)
    fixed = fixed_point.FixedPointMultiplyPerAxis
    found += [Example(fixed(left, right, (1,)), (whole(2, 3, 4, low=-900, high=900), q31, shifts, shifts)) for left in (False, True) for right in (False, True)]
    return found


def _nn_more() -> list[Example]:
    d, b, m = nn_deformable.DeformableConv2d, nn_binary, nn_displacement
    found = [Example(d(), (real(1, 3, 6, 7), real(1, 18, 4, 5), real(4, 3, 3, 3))), Example(d((2,), (1,), deformable_groups=2), (real(2, 4, 6, 7), real(2, 24, 3, 4), real(3, 4, 3, 2)))]
    found.append(Example(d((1,), (1, 0, 2, 1), (2, 1), 1, 2), (real(1, 4, 6, 5), real(1, 8, 7, 5), real(6, 2, 2, 2))))
    found.append(Example(d(data_layout="NHWC", kernel_layout="HWIO"), (real(1, 5, 6, 3), real(1, 4, 5, 8), real(2, 2, 3, 4))))
    bits = whole(2, 16, 3, 4, low=0, high=8)
    found += [Example(b.BitPack(3, 1, 2, "uint8"), (bits,)), Example(b.BitPack(2, -1, 0, "uint32"), (whole(3, 64, low=0, high=4, dtype="uint8"),)), Example(b.BitPack(1, 1, 4, "uint16"), (bits,))]
    for unipolar in (True, False):
        found.append(Example(b.BitserialDense(None, 2, 3, "uint8", "int32", unipolar), (whole(3, 24, low=0, high=4), whole(5, 24, low=0, high=8))))
        small: dict[str, Any] = {"activation_bits": 2, "weight_bits": 1, "pack_dtype": "uint8", "unipolar": unipolar}
        found.append(Example(b.BitserialConv2d((1,), (1,), **small), (whole(1, 16, 5, 6, low=0, high=4), whole(4, 16, 3, 3, low=0, high=2))))
        found.append(Example(b.BitserialConv2d((2, 1), **small, data_layout="NHWC", kernel_layout="HWIO"), (whole(1, 5, 6, 8, low=0, high=4), whole(3, 2, 8, 4, low=0, high=2))))
    found += [Example(m.Correlation(3, 2, 1, 1, (2,), how), (real(2, 3, 6, 7), real(2, 3, 6, 7))) for how in (True, False)]
    found.append(Example(m.Correlation(1, 3, 2, 2, (3, 2, 3, 4)), (real(1, 2, 7, 8), real(1, 2, 7, 8))))
    found += [Example(m.FifoBuffer(k), (real(2, n, 3), real(2, 5, 3))) for k, n in ((1, 2), (-2, 5), (1, 7))]
    found += [Example(nn.DensePack(weight_layout=how), (real(3, 7), real(2, 7, 4))) for how in ("NK", "NK4n")]
    found += [Example(cls(how), (x,)) for cls in (nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d) for how in (None, (3,)) for x in (real(2, 3, 7),)]
    found += [Example(cls(how), (x,)) for cls in (nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool3d) for how in (None, (2, 3, 1)) for x in (real(1, 2, 4, 5, 3),)]
    found += [Example(nn.AdaptiveMaxPool1d((2,), "NWC"), (real(2, 7, 3),)), Example(nn.AdaptiveAvgPool3d((2, 1, 2), "NDHWC"), (real(1, 4, 3, 5, 2),))]
    shares = np.eye(4, dtype="float32")[whole(3, low=0, high=4)]
    found += [Example(nn.CrossEntropy(), (real(3, 4, low=0.1, high=1), shares)), Example(nn.CrossEntropyWithLogits(), (real(3, 4), shares))]
    sparse = real(6, 6) * (whole(6, 6, low=0, high=3) == 0)
    values, columns, starts = packed(sparse, (1, 1))
    found += [Example(SparseTranspose(), (values.reshape(-1), columns, starts)), Example(SparseAdd(), (real(6, 6), values.reshape(-1), columns, starts))]
    return found


def _special() -> list[Example]:
    s = special
    edges = np.asarray([0, -0.5, 1, 2.5, -3, 9, -12, 30, np.inf, -np.inf, np.nan], "float64")
    anywhere = (s.Lgamma, s.Digamma, s.Erfc, s.Erfcx, s.LogNdtr, s.I0, s.I0E, s.I1, s.I1E, s.J0, s.J1, s.SphericalJ0, s.Airy)
    above_zero = (s.K0, s.K0E, s.K1, s.K1E, s.Y0, s.Y1)
    found = [Example(cls(), (x,)) for cls in anywhere for x in (real(2, 7, low=-15, high=15), edges)]
    found += [Example(cls(), (x,)) for cls in above_zero for x in (real(2, 7, low=0.1, high=15), edges)]
    found += [Example(s.Ndtri(), (real(9, low=0, high=1),)), Example(s.Erfinv(), (real(9, low=-1, high=1, dtype="float64"),)), Example(s.I0(), (real(0, 3),)), Example(s.J1(), (real(5).astype("float16"),))]
    found += [Example(s.Zeta(), (real(3, 1, low=1, high=9), real(4, low=0, high=9))), Example(s.Zeta(), (np.rint(real(9, low=1, high=9)), real(9, low=-5, high=5)))]
    found += [Example(cls(), (real(5, 1, low=0, high=90), real(7, low=0, high=90))) for cls in (s.Igamma, s.Igammac)]
    families = ("chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w", "shifted_chebyshev_t", "shifted_chebyshev_w", "hermite_h", "hermite_he", "laguerre_l", "legendre_p")
    return [*found, *(Example(s.Polynomial(f), (real(9), real(9, low=-2, high=9))) for f in families)]


def _linalg() -> list[Example]:
    f = linalg
    found: list[Example] = []
    for a in (real(4, 4), real(2, 3, 5, 5, dtype="float64"), real(1, 1), real(2, 0, 0)):
        n = a.shape[-1]
        symmetric = a + np.swapaxes(a, -1, -2)
        positive = (a @ np.swapaxes(a, -1, -2) + np.eye(n)).astype(a.dtype)
        found += [Example(f.Cholesky(), (positive,)), Example(f.MatrixExp(), (a,)), Example(f.Eigh(), (symmetric,)), Example(f.Eigh(False), (symmetric,))]
        rhs = real(*a.shape[:-1], 3, dtype=str(a.dtype))
        found += [Example(f.SolveTriangular(upper, unit), (a + np.asarray(4 * np.eye(n), a.dtype), rhs)) for upper in (False, True) for unit in (False, True)]
    found += [Example(f.Cholesky(), (np.diag([1.0, 4, -1, 3]),)), Example(f.LU(False), (np.asarray(real(3, 4) + 9 * np.eye(3, 4), "float32"),))]
    for a in (real(5, 5), real(2, 6, 4, dtype="float64"), real(3, 7), real(3, 0), np.zeros((3, 2), "float32")):
        found += [Example(f.LU(), (a,)), Example(f.Geqrf(), (a,))]
        found.append(Example(f.Permutation(a.shape[-2]), (f.LU().reference(a)[1],)))
        if a.shape[-2] >= a.shape[-1]:
            found.append(Example(f.HouseholderProduct(), f.Geqrf().reference(a)))
    return [*found, *(Example(f.SVD(), (a,)) for a in (real(4, 4), real(2, 6, 3, dtype="float64"), real(3, 0), real(0, 3, 2)))]


EXAMPLES: list[Example] = [
    *_elementwise(), *_broadcast(), *_shaping(), *_transform(), *_indexing(), *_ensembles(), *_sorting(), *_reduction(), *_conv(), *_attention(), *_pool(), *_gradients(), *_norm(), *_image(),
    *_vision(), *_sampling(), *_random_numbers(), *_programs(), *_lookup(), *_nn_more(), *_special(), *_linalg(),
]

ELSEWHERE: Final = ("annotation", "contrib", "deferred", "dynamic", "external", "memory", "registered")
"""Modules of operators with tests of their own: marks, blocks of memory, other runtimes' operators, calls of accelerators, and those that wait for a value (`test_staged.py`)."""
OWN: Final[dict[str, type[Op]]] = {
    name: cls for name, cls in OPS.items()
    if cls.__module__.startswith("tilewright.relay.op.") and cls.__module__.split(".")[3] not in ELSEWHERE
}
"""The operators that must have an example, here or in `host_examples.py`."""
