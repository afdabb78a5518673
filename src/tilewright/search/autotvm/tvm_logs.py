"""Configurations from logs that TVM v0.8 to v0.13 wrote.

A record of TVM describes one operator in one layout, and a template of TVM whose schedule does not exist here. The size
of the register tile carries over, for convolutions, dense layers and batched products of equal sizes:

    conv2d_NCHWc.x86       tile_ow [-1, 28]  tile_oc [-1, 16]  unroll_kw           ->  tile_ow, tile_oc, unroll_kw
    dense_pack.x86         tile_y [-1, 1, 6]  tile_x [-1, 2, 16]  tile_k [-1, 8]   ->  tile_y, tile_x, tile_k

It is used if it is one of the kernel's options; otherwise the analytical model decides. Other records are counted by
reason.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.visitor import post_order
from tilewright.search.autotvm.task.dispatcher import Known
from tilewright.search.autotvm.task.space import ConfigEntity
from tilewright.search.records import Record
from tilewright.tir.data_layout import layout

Workload = tuple[Any, ...]
Anchor = tuple[Any, ...]
"""An operator of equal sizes; the data type comes last.

    ("conv2d", batch, in channels, height, width, out channels, kernel…, strides…, padding…, dilation…, groups)
    ("dense", m, n, k)        ("batch_matmul", b, m, n, k)
"""
_CPU: Final = ("llvm",)
_INNER: Final = {
    "conv2d": {
        "tile_ow": "tile_ow", "tile_oc": "tile_oc", "unroll_kw": "unroll_kw", "tile_co": "tile_oc",
        "ow_block": "tile_ow",
        "oc_block": "tile_oc",
    },
    "dense": {"tile_y": "tile_y", "tile_x": "tile_x", "tile_k": "tile_k"},
    "batch_matmul": {"tile_y": "tile_y", "tile_x": "tile_x", "tile_k": "tile_k"},
}
"""Names of TVM's decisions and of the same decisions here, by operator; the innermost part of a split counts."""


def translated(record: Record) -> Known | str:
    """Return the configuration that a record of TVM has for kernels here, or the reason why it has none."""
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
        found = {
            names[n]: _innermost(value) for n, _, value in json.loads(record.config).get("entity", ()) if n in names}
    except (ValueError, IndexError, TypeError, AttributeError, OverflowError):
        return f"of TVM, for '{name}' with a configuration that is not understood"
    if not found:
        return f"of TVM, for '{name}', whose configuration has no tiles"
    from tilewright.search.autotvm.task.kernels import entity_of

    return Known("", anchor, ConfigEntity(-1, None, {n: entity_of(n, v) for n, v in found.items()}), record.rank)


def _innermost(value: Any) -> int:
    return int(value[-1]) if isinstance(value, list) else int(value)


def _reader(name: str) -> Callable[[Sequence[Any]], Anchor] | None:
    readers = (
        ("depthwise_conv2d", _depthwise), ("conv2d", _conv2d), ("dense", _dense), ("batch_matmul", _batch_matmul))
    if any(word in name for word in ("winograd", "int8", "transpose")):
        return None
    return next((reader for start, reader in readers if name.startswith(start)), None)


def _tensor(x: Any) -> tuple[list[int], str]:
    kind, shape, dtype = x
    if kind != "TENSOR":
        raise ValueError(kind)
    return [int(n) for n in shape], str(dtype)


def _conv2d(args: Sequence[Any], depthwise: bool = False) -> Anchor:
    """Read conv2d(data, kernel, strides, padding, dilation, layout, out_layout?, out_dtype)."""
    (data, dtype), (kernel, _) = _tensor(args[0]), _tensor(args[1])
    name = next((a for a in args if isinstance(a, str) and a[:1] == "N"), "NCHW" if depthwise else "NHWC")
    n, c, h, w = _sizes(data, name)
    window = (*_two(args[2]), *_four(args[3]), *_two(args[4] if isinstance(args[4], list) else 1))
    if depthwise:
        kh, kw = (kernel[2], kernel[3]) if name.startswith("NCHW") else (kernel[0], kernel[1])
        return ("depthwise_conv2d", n, c, h, w, c, kh, kw, *window, c, dtype)
    channels, depth, kh, kw = _kernel_sizes(kernel, name)
    return ("conv2d", n, c, h, w, channels, kh, kw, *window, c // depth, dtype)


def _depthwise(args: Sequence[Any]) -> Anchor:
    return _conv2d(args, depthwise=True)


def _dense(args: Sequence[Any]) -> Anchor:
    (data, dtype), (weight, _) = _tensor(args[0]), _tensor(args[1])
    columns = weight[0] if len(weight) == 2 else weight[0] * weight[2]
    return ("dense", math.prod(data[:-1]), columns, data[-1], dtype)


def _batch_matmul(args: Sequence[Any]) -> Anchor:
    (a, dtype), (b, _) = _tensor(args[0]), _tensor(args[1])
    return ("batch_matmul", max(a[0], b[0]), a[1], b[1], a[2], dtype)


def _sizes(data: Sequence[int], name: str) -> tuple[int, int, int, int]:
    """Return batch, channels, height and width of an image; blocks of channels are joined."""
    if len(data) == 5:  # NCHW8c
        return data[0], data[1] * data[4], data[2], data[3]
    n, c, h, w = (data[layout(name[:4]).index_of(x)] for x in "NCHW")
    return n, c, h, w


def _kernel_sizes(kernel: Sequence[int], name: str) -> tuple[int, int, int, int]:
    """Return output channels, depth, height and width of the kernel for a layout of images."""
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


def anchor_of_task(task: Any) -> Anchor | None:
    """Return the operator of a task: a kernel of a network, or a template with tensors as arguments. None for another
    one."""
    args = json.loads(json.dumps(task.args))
    if not args or not isinstance(args[0], list):
        return anchor_of(task.workload)
    reader = _reader(task.name.rpartition(".")[2] if task.name.startswith("fused.") else task.name)
    try:
        return None if reader is None else reader(args)
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, CompileError):
        return None


@functools.lru_cache(maxsize=4096)
def anchor_of(workload: Workload) -> Anchor | None:
    """Return the operator that determines a kernel's schedule, under which logs of TVM know it, or None."""
    from tilewright.backends.targets.target import Target
    from tilewright.search.autotvm.task.kernels import KernelTask, is_kernel

    if not is_kernel(str(workload[0])):
        return None
    function = KernelTask(workload[0], workload[1:], Target("llvm")).function
    calls = (e for e in post_order(function.body) if isinstance(e, Call) and not isinstance(e.op, (Expr, Function)))
    found = [a for a in map(anchor_of_call, calls) if a is not None]
    return found[0] if len(found) == 1 else None


def anchor_of_call(call: Call) -> Anchor | None:
    """Return the operator of a typed call, or None for one that no template of TVM computes."""
    attrs: Mapping[str, Any] = call.op.attributes()
    match call.op.name:
        case "nn.conv2d":
            (data, dtype), (weight, _) = _shape(call.args[0]), _shape(call.args[1])
            n, c, h, w = (data[layout(attrs["data_layout"]).index_of(x)] for x in "NCHW")
            channels, depth, kh, kw = (weight[attrs["kernel_layout"].index(x)] for x in "OIHW")
            name = "depthwise_conv2d" if depth == 1 and c == channels > 1 else "conv2d"
            strides, padding, dilation = ([int(x) for x in attrs[key]] for key in ("strides", "padding", "dilation"))
            window = (*_two(strides), *_four(padding), *_two(dilation))
            return (name, n, c, h, w, channels, kh, kw, *window, c // depth, dtype)
        case "nn.dense":
            (data, dtype), (weight, _) = _shape(call.args[0]), _shape(call.args[1])
            return ("dense", math.prod(data[:-1]), weight[0], data[-1], dtype)
        case "nn.batch_matmul" if attrs.get("transpose_b") and not attrs.get("transpose_a"):
            (a, dtype), (b, _) = _shape(call.args[0]), _shape(call.args[1])
            return ("batch_matmul", max(a[0], b[0]), a[1], b[1], a[2], dtype)
    return None


def _shape(e: Expr) -> tuple[list[int], str]:
    t = e.checked_type
    assert isinstance(t, TensorType)
    return [int(n) for n in t.shape], str(t.dtype)
