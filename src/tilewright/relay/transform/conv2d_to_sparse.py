"""Replace convolutions with sparse kernels by operators that skip zeros: a kernel becomes its nonzero blocks and their
positions.

    nn.conv2d(%x, %w) -> nn.sparse_conv2d(%x, %w.data, %w.indices, %w.indptr)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import OptionError
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, Pass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Var
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.relay.op.nn_sparse import SparseConv2d
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.bind_params import bind_params
from tilewright.relay.transform.dense_to_sparse import Parts, WeightsToSparse, packed_rows, with_sparse
from tilewright.relay.visitor import consumers, post_order, rewrite

KERNELS = {"NHWC": "HWIO", "NCHW": "OIHW"}
"""Kernel layout by data layout."""


@dataclass(frozen=True)
class Conv2dToSparse(WeightsToSparse, Pass):
    """Replace the kernel parameters `weight_name` of `main` by sparse ones, of three shapes `weight_shape` each.

    Applies to convolutions of `layout` and `kernel_size` (1, or 3 in NHWC) with stride 1 whose padding keeps the size.
    Only `nn.conv2d` may read the parameters.
    """

    layout: str = "NHWC"
    kernel_size: int = 1
    dense = Conv2d

    def __post_init__(self) -> None:
        _check(self.layout, self.kernel_size)
        super().__post_init__()

    def weights(self, func: Function) -> list[Var]:
        return search_conv2d_weights(func, self.layout, self.kernel_size)

    def sparse(self) -> Op:
        return SparseConv2d(self.layout, (self.kernel_size, self.kernel_size))


@dataclass(frozen=True)
class Conv2dToSparse2(FunctionPass):
    """Replace constant kernels with a share of zeros of at least `sparsity_threshold` by sparse ones, in blocks of
    `blocksize`.

    Applies to convolutions of `layout` and `kernel_size` (1, or 3 in NHWC) with stride 1 whose padding keeps the size,
    and whose kernels the blocks divide.
    """

    layout: str = "NHWC"
    kernel_size: int = 1
    blocksize: tuple[int, int] = (1, 1)
    sparsity_threshold: float = 0.5
    kind: ClassVar[type] = Function

    def __post_init__(self) -> None:
        _check(self.layout, self.kernel_size)

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        def rule(e: Expr) -> Expr | None:
            if not isinstance(e, Call) or not _qualifies(e, self.layout, self.kernel_size):
                return None
            kernel = e.args[1]
            parts = _packed(kernel.value, self.layout, self.blocksize,
                            self.sparsity_threshold) if isinstance(kernel, Constant) else None
            if parts is None:
                return None
            return Call(SparseConv2d(self.layout, (self.kernel_size, self.kernel_size)),
                        [e.args[0], *map(Constant, parts)], span=e.span)

        return rewrite(function, rule)


def _check(layout: str, kernel_size: int) -> None:
    if (layout, kernel_size) not in (("NHWC", 1), ("NHWC", 3), ("NCHW", 1)):
        raise OptionError(f"sparse convolutions of layout {layout} with a kernel of {kernel_size} are "
                          "not supported: NHWC supports 1 and 3, NCHW supports 1", code="TW0408")


def _qualifies(e: Call, layout: str, size: int) -> bool:
    """Return whether a call is a convolution that `nn.sparse_conv2d` can replace."""
    op = e.op
    if (not isinstance(op, Conv2d) or op.data_layout != layout or op.kernel_layout != KERNELS[layout]
            or op.out_layout not in ("", layout)):
        return False
    kind = e.args[1].checked_type
    plain = op.groups == 1 and set(op.strides) == {1} and set(op.dilation) == {1} and set(op.padding) == {size // 2}
    return (plain and isinstance(kind, TensorType) and op.kernel_shape(kind)[2:] == (size, size)
            and e.tensor_type.dtype is kind.dtype)


def search_conv2d_weights(func: Function, layout: str, kernel_size: int) -> list[Var]:
    """Return the parameters used only as the kernel of convolutions that can become sparse."""
    users = consumers(post_order(func))
    return [
        p for p in func.params
        if users.get(p) and all(isinstance(u, Call) and _qualifies(u, layout, kernel_size) and u.args[1] is p
                                and u.args[0] is not p for u in users[p])]


def _packed(kernel: Any, layout: str, blocksize: tuple[int, int], threshold: float) -> Parts | None:
    """Return the parts of a sparse kernel; None if it has too few zeros or the blocks do not divide it."""
    rows = kernel.transpose((3, 0, 1, 2) if layout == "NHWC"
                            else (0, 2, 3, 1)).reshape(kernel.shape[KERNELS[layout].index("O")], -1)
    return packed_rows(rows, blocksize, threshold)


def convert(
    func: Function, params: Mapping[str, Any], blocksize: tuple[int, int], sparsity_threshold: float,
    layout: str = "NHWC", kernel_size: int = 1
) -> tuple[Function, dict[str, Any]]:
    """Make kernels with a share of zeros of at least `sparsity_threshold` sparse, in blocks of `blocksize`. Return the
    function and its new parameters."""
    weights = search_conv2d_weights(func, layout, kernel_size)
    kept, new = with_sparse(params, weights, lambda w: _packed(w, layout, blocksize, sparsity_threshold))
    return Conv2dToSparse([*new], [*new.values()], layout, kernel_size)(IRModule.from_expr(func))["main"], kept


def convert2(
    func: Function, params: Mapping[str, Any], blocksize: tuple[int, int], sparsity_threshold: float,
    layout: str = "NHWC", kernel_size: int = 1
) -> tuple[Function, dict[str, Any]]:
    """Bind the parameters as constants, then convert as `convert` does; the result has no parameters left."""
    bound = bind_params(IRModule.from_expr(func), params)
    return Conv2dToSparse2(layout, kernel_size, blocksize, sparsity_threshold)(bound)["main"], {}
