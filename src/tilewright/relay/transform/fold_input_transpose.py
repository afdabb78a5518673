"""Let a convolution with few input channels read its input in the original order.

    nn.conv2d(transpose(%x, axes=[0, 2, 3, 1]), w, data_layout="NHWC")
      -> nn.conv2d(%x, w, data_layout="NCHW", out_layout="NHWC")    when %x has four channels or less

The kernel loads its input one element at a time and broadcasts it over the output channels, so the order of the input
does not matter. Transposing a picture of three channels costs more than a tenth of its first convolution. Byte inputs
keep the transpose because their channels are read four at a time, unless the kernel reads four neighbours of a row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from tilewright.backends.cpu.strategies.dots import along_rows
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.op.nn_conv import Conv, Conv1d, Conv2d, Conv3d
from tilewright.relay.op.transform import Transpose
from tilewright.relay.visitor import rewrite

_FEW: Final = 4
_CHANNELS_FIRST: Final = {"NWC": "NCW", "NHWC": "NCHW", "NDHWC": "NCDHW"}


@dataclass(frozen=True)
class FoldInputTranspose(FunctionPass):
    """Remove the transpose before a convolution of up to four channels; its kernel reads the channels-first input. Run
    it after `ConvertLayout`.
    """

    kind: ClassVar[type] = Function
    opt_level: ClassVar[int] = 2

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        return rewrite(function, fold_input_transpose)


def fold_input_transpose(e: Expr) -> Expr | None:
    """A convolution of a transposed input -> a convolution of the channels-first input, or None."""
    if not (isinstance(e, Call) and isinstance(e.op, (Conv1d, Conv2d, Conv3d)) and e.op.data_layout in _CHANNELS_FIRST):
        return None
    conv: Conv = e.op
    moved = e.args[0]
    if not (isinstance(moved, Call) and isinstance(moved.op, Transpose)):
        return None
    x, rank = moved.args[0], len(conv.data_layout)
    few = isinstance(x.tensor_type.shape[1], int) and x.tensor_type.shape[1] <= _FEW
    if x.tensor_type.dtype.is_integer and not _reads_rows(conv, x):
        return None
    if not few or conv.groups != 1 or tuple(moved.op.axes or ()) != (0, *range(2, rank), 1):
        return None
    direct = replace(conv, data_layout=_CHANNELS_FIRST[conv.data_layout], out_layout=conv.out_layout
                     or conv.data_layout)
    return Call(direct, (x, e.args[1]), span=e.span)


def _reads_rows(conv: Conv, x: Expr) -> bool:
    """Return whether the kernel multiplies four neighbours along a row of a plane at once."""
    size, depth = conv.kernel_size, x.tensor_type.shape[1]
    return size is not None and isinstance(depth, int) and along_rows("NCHW", depth, size, conv.padding, conv.dilation,
        conv.groups)
