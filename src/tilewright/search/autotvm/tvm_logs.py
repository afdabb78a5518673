"""Logs that TVM v0.8 to v0.13 wrote: which of their records say something here.

A record of TVM is of one operator in one layout and of a template of TVM's own, and its schedule is not ours. What carries over is the size of
the tile that stays in registers, for convolutions, dense layers and batched products of equal sizes:

    conv2d_NCHWc.x86       tile_ow [-1, 28]  tile_oc [-1, 16]  unroll_kw           ->  tile_ow, tile_oc, unroll_kw
    dense_pack.x86         tile_y [-1, 1, 6]  tile_x [-1, 2, 16]  tile_k [-1, 8]   ->  tile_y, tile_x, tile_k

It is taken where it is one of the kernel's options, otherwise the model decides. All else is counted by reason.
"""

from __future__ import annotations

import functools
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.visitor import post_order
from tilewright.search.autotvm.task.entities import Entity
from tilewright.search.autotvm.task.space import ConfigEntity
from tilewright.search.records import Record
from tilewright.tir.data_layout import layout

if TYPE_CHECKING:
    from tilewright.search.autotvm.history import Foreign

Workload = tuple[Any, ...]
Anchor = tuple[Any, ...]
"""("conv2d", batch, in channels, height, width, out channels, kernel…, strides…, padding…, dilation…, groups), ("dense", m, n, k), ("batch_matmul", b, m, n, k); dtype last."""
_CPU: Final = ("llvm",)
_INNER: Final = {
    "conv2d": {"tile_ow": "tile_ow", "tile_oc": "tile_oc", "unroll_kw": "unroll_kw", "tile_co": "tile_oc", "ow_block": "tile_ow", "oc_block": "tile_oc"},
    "dense": {"tile_y": "tile_y", "tile_x": "tile_x", "tile_k": "tile_k"},
    "batch_matmul": {"tile_y": "tile_y", "tile_x": "tile_x", "tile_k": "tile_k"},
}
"""Their names and ours, by operator; the innermost part of a split is what counts."""


def translated(record: Record) -> Foreign | str:
    """What a record of TVM says here, or the reason why it says nothing."""
    from tilewright.search.autotvm.history import Foreign

    name, args, _ = json.loads(record.key)
    kind = record.target.split()[0] if record.target else ""
    if kind not in _CPU:
        return f"of TVM, for a target '{kind}' that code is not made for"
    reader = _reader(name)
    if reader is None:
        return f"of TVM, for the template '{name}', which has no counterpart"
    try:
        anchor = reader(args)
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, CompileError):
        return f"of TVM, for '{name}' with arguments that are not understood"
    names = _INNER[str(anchor[0]).removeprefix("depthwise_")]
    try:
        found = {names[n]: _innermost(value) for n, _, value in json.loads(record.config).get("entity", ()) if n in names}
    except (ValueError, IndexError, TypeError, AttributeError, OverflowError):
        return f"of TVM, for '{name}' with a configuration that is not understood"
    if not found:
        return f"of TVM, for '{name}', whose configuration has no tiles"
    return Foreign(anchor, found, record.measured.cost)


def _innermost(value: Any) -> int:
    return int(value[-1]) if isinstance(value, list) else int(value)


def _reader(name: str) -> Callable[[Sequence[Any]], Anchor] | None:
    for start, reader in (("depthwise_conv2d", _depthwise), ("conv2d", _conv2d), ("dense", _dense), ("batch_matmul", _batch_matmul)):
        if name.startswith(start) and "winograd" not in name and "int8" not in name and "transpose" not in name:
            return functools.partial(reader, "")
    return None


def _tensor(x: Any) -> tuple[list[int], str]:
    kind, shape, dtype = x
    if kind != "TENSOR":
        raise ValueError(kind)
    return [int(n) for n in shape], str(dtype)


def _conv2d(_: str, args: Sequence[Any]) -> Anchor:
    """conv2d(data, kernel, strides, padding, dilation, layout, out_layout?, out_dtype)."""
    (data, dtype), (kernel, _) = _tensor(args[0]), _tensor(args[1])
    layouts = [a for a in args if isinstance(a, str) and a[:1] == "N"] or ["NHWC"]
    n, c, h, w = _sizes(data, layouts[0])
    channels, depth, kh, kw = _kernel_sizes(kernel, layouts[0], c)
    return ("conv2d", n, c, h, w, channels, kh, kw, *_two(args[2]), *_four(args[3]), *_two(args[4] if isinstance(args[4], list) else 1), c // depth, dtype)


def _depthwise(_: str, args: Sequence[Any]) -> Anchor:
    (data, dtype), (kernel, _) = _tensor(args[0]), _tensor(args[1])
    layouts = [a for a in args if isinstance(a, str) and a[:1] == "N"] or ["NCHW"]
    n, c, h, w = _sizes(data, layouts[0])
    kh, kw = (kernel[2], kernel[3]) if layouts[0].startswith("NCHW") else (kernel[0], kernel[1])
    return ("depthwise_conv2d", n, c, h, w, c, kh, kw, *_two(args[2]), *_four(args[3]), *_two(args[4] if isinstance(args[4], list) else 1), c, dtype)


def _dense(_: str, args: Sequence[Any]) -> Anchor:
    (data, dtype), (weight, _) = _tensor(args[0]), _tensor(args[1])
    columns = weight[0] if len(weight) == 2 else weight[0] * weight[2]
    return ("dense", math.prod(data[:-1]), columns, data[-1], dtype)


def _batch_matmul(_: str, args: Sequence[Any]) -> Anchor:
    (a, dtype), (b, _) = _tensor(args[0]), _tensor(args[1])
    return ("batch_matmul", max(a[0], b[0]), a[1], b[1], a[2], dtype)


def _sizes(data: Sequence[int], name: str) -> tuple[int, int, int, int]:
    """Batch, channels, height and width of an image; blocks of channels are joined."""
    if len(data) == 5:  # NCHW8c
        return data[0], data[1] * data[4], data[2], data[3]
    n, c, h, w = (data[layout(name[:4]).index_of(x)] for x in "NCHW")
    return n, c, h, w


def _kernel_sizes(kernel: Sequence[int], name: str, channels: int) -> tuple[int, int, int, int]:
    """Output channels, depth, height and width of a kernel that goes with a layout of images."""
    if len(kernel) == 6:  # OIHW8i8o
        return kernel[0] * kernel[5], kernel[1] * kernel[4], kernel[2], kernel[3]
    if name.startswith("NHWC"):
        return kernel[3], kernel[2], kernel[0], kernel[1]
    return kernel[0], kernel[1], kernel[2], kernel[3]


def _two(x: Any) -> tuple[int, int]:
    a, b = (x, x) if isinstance(x, int) else x
    return int(a), int(b)


def _four(x: Any) -> tuple[int, int, int, int]:
    sizes = [x] * 4 if isinstance(x, int) else [*x, *x] if len(x) == 2 else list(x)
    a, b, c, d = map(int, sizes)
    return a, b, c, d


@functools.lru_cache(maxsize=4096)
def anchor_of(workload: Workload) -> Anchor | None:
    """What of a kernel's workload a log of TVM knows, if anything: the operator that its schedule follows."""
    from tilewright.backends.target import Target
    from tilewright.search.autotvm.task.kernels import KernelTask, is_kernel

    if not is_kernel(str(workload[0])):
        return None
    function = KernelTask(workload[0], workload[1:], Target("llvm")).function
    found = [a for e in post_order(function.body) if isinstance(e, Call) and not isinstance(e.op, (Expr, Function)) for a in [_of_call(e)] if a is not None]
    return found[0] if len(found) == 1 else None


def _of_call(call: Call) -> Anchor | None:
    attrs: Mapping[str, Any] = call.op.attributes()
    match call.op.name:
        case "nn.conv2d":
            (data, dtype), (weight, _) = _shape(call.args[0]), _shape(call.args[1])
            n, c, h, w = (data[layout(attrs["data_layout"]).index_of(x)] for x in "NCHW")
            channels, depth, kh, kw = (weight[attrs["kernel_layout"].index(x)] for x in "OIHW")
            name = "depthwise_conv2d" if depth == 1 and c == channels > 1 else "conv2d"
            return (name, n, c, h, w, channels, kh, kw, *_two(_plain(attrs["strides"])), *_four(_plain(attrs["padding"])), *_two(_plain(attrs["dilation"])), c // depth, dtype)
        case "nn.dense":
            (data, dtype), (weight, _) = _shape(call.args[0]), _shape(call.args[1])
            return ("dense", math.prod(data[:-1]), weight[0], data[-1], dtype)
        case "nn.batch_matmul" if attrs.get("transpose_b") and not attrs.get("transpose_a"):
            (a, dtype), (b, _) = _shape(call.args[0]), _shape(call.args[1])
            return ("batch_matmul", max(a[0], b[0]), a[1], b[1], a[2], dtype)
    return None


def _plain(x: Any) -> list[int]:
    return [int(n) for n in x]


def _shape(e: Expr) -> tuple[list[int], str]:
    t = e.checked_type
    assert isinstance(t, TensorType)
    return [int(n) for n in t.shape], str(t.dtype)


def configured(decisions: Mapping[str, int]) -> ConfigEntity:
    """Decisions as a configuration."""
    from tilewright.search.autotvm.task.kernels import entity_of

    entities: OrderedDict[str, Entity] = OrderedDict((n, entity_of(n, v)) for n, v in decisions.items())
    return ConfigEntity(-1, None, entities)


