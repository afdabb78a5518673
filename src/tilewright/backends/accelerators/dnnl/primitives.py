"""Each kind of operation as a primitive of oneDNN: its formats, its post-ops, and its arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

from tilewright.backends.accelerators.dnnl import library as dnnl
from tilewright.backends.accelerators.dnnl.library import dims, row_major
from tilewright.backends.accelerators.dnnl.plan import Plan, Read
from tilewright.backends.accelerators.dnnl.program import Operation
from tilewright.base.errors import RunError

CANONICAL: Final = {3: "NCW", 4: "NCHW", 5: "NCDHW"}


def _pointer(handle: int | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(handle)


def _order(layout: str) -> list[int] | None:
    """Return the position of each axis of `layout` among batch, channels and space; None for the canonical order."""
    canonical = CANONICAL[len(layout)]
    return None if layout == canonical else [canonical.index(c) for c in layout]


def _placed(shape: Sequence[int], order: Sequence[int] | None) -> list[int]:
    """Return a shape with axis k at `order[k]`."""
    if order is None:
        return list(shape)
    result = [0] * len(shape)
    for k, n in zip(order, shape, strict=True):
        result[k] = n
    return result


class _Post:
    """The post-ops of an operation, and their arguments."""

    def __init__(self, plan: Plan, o: Operation, order: Sequence[int] | None) -> None:
        self.reads: list[Read] = []
        self.residual: int | None = None
        made = plan.objects.made("post_ops", "post_ops_create") if o.post else None
        rank = len(plan.shape(o.output))
        for k, post in enumerate(o.post):
            match post:
                case ["eltwise", name, alpha, beta]:
                    self._append(plan, made, "eltwise", dnnl.ELTWISE[name], ctypes.c_float(alpha), ctypes.c_float(beta))
                case ["sum", value]:
                    self.residual = value
                    self._append(plan, made, "sum", ctypes.c_float(1), ctypes.c_int32(0), dnnl.FLOAT32)
                case ["binary", name, value]:
                    r = _operand(plan, value, rank, order)
                    self.reads.append(Read(dnnl.ARG_POST_OP * (k + 1) | dnnl.ARG_SRC_1, r.desc, r.buffer))
                    self._append(plan, made, "binary", dnnl.BINARIES[name], _pointer(r.desc))
                case _:
                    raise RunError(
                        f"a program for oneDNN has the post-op {post!r}, which this version does not know; compile the "
                        "model again",
                        code="TW0913")
        self.attributes = plan.attributes(made)

    def _append(self, plan: Plan, ops: int | None, kind: str, *args: Any) -> None:
        dnnl.check(
            getattr(plan.library.code, f"dnnl_post_ops_append_{kind}")(_pointer(ops), *args), f"post_ops_append_{kind}")


def _operand(plan: Plan, value: int, rank: int, order: Sequence[int] | None) -> Read:
    """Return a value as an operand of `rank` dimensions; missing dimensions are prepended."""
    shape = plan.shape(value)
    if len(shape) == rank:
        desc = plan.seen(value, order)
        return Read(dnnl.ARG_SRC_1, desc, plan.buffer_of(value))
    r = plan.rows(value)
    wide = (*(1,) * (rank - len(shape)), *shape)
    desc = plan.objects.plain(wide)
    return Read(dnnl.ARG_SRC_1, desc if order is None else plan.objects.permuted(desc, order), r.buffer)


def _finish(
    plan: Plan, o: Operation, desc: int, reads: list[Read], post: _Post, order: Sequence[int] | None = None
) -> None:
    """Add the step of a primitive; the primitive chooses the format of its result."""
    made = plan.library.description(desc, dnnl.QUERY_DST)
    into = (
        plan.target(o.output, made, order) if post.residual is None
        else plan.summed(o.output, post.residual, o, made, order)
    )
    plan.emit(desc, [*reads, *post.reads], Read(dnnl.ARG_DST, made, into))
    plan.put(o.output, made, into, order)


def _engine(plan: Plan) -> ctypes.c_void_p:
    return _pointer(plan.library.engine)


def _convolution(plan: Plan, o: Operation) -> None:
    """Add a convolution. Its inputs are data, weights, and an optional bias; the axes are those of the layouts."""
    order = _order(o.attrs["layout"])
    weights, groups = o.inputs[1], o.attrs["groups"]
    source, shape = _weights(plan, weights, o.attrs["kernel_layout"], groups, o.kind == "deconvolution")
    data = plan.objects.any(_placed(plan.shape(o.inputs[0]), order))
    made = plan.objects.any(_placed(plan.shape(o.output), order))
    bias = plan.seen(o.inputs[2]) if len(o.inputs) > 2 else None
    post = _Post(plan, o, order)
    half = len(o.attrs["padding"]) // 2
    dilation = [d - 1 for d in o.attrs["dilation"]]
    algorithm = dnnl.CONVOLUTION_DIRECT if o.kind == "convolution" else dnnl.DECONVOLUTION_DIRECT
    desc = plan.objects.made(
        "primitive_desc", f"{o.kind}_forward_primitive_desc_create", _engine(plan), dnnl.FORWARD_INFERENCE, algorithm,
        _pointer(data),
        _pointer(plan.objects.any(shape)), _pointer(bias), _pointer(made), dims(o.attrs["strides"]), dims(dilation),
        dims(o.attrs["padding"][:half]), dims(o.attrs["padding"][half:]), _pointer(post.attributes))
    reads = [
        plan.read(
            dnnl.ARG_SRC, o.inputs[0], plan.seen(o.inputs[0], order), plan.library.description(desc, dnnl.QUERY_SRC)),
        plan.read(dnnl.ARG_WEIGHTS, weights, source, plan.library.description(desc, dnnl.QUERY_WEIGHTS)),
    ]
    if bias is not None:
        reads.append(Read(dnnl.ARG_BIAS, bias, plan.buffer_of(o.inputs[2])))
    _finish(plan, o, desc, reads, post, order)


def _weights(plan: Plan, value: int, layout: str, groups: int, transposed: bool) -> tuple[int, list[int]]:
    """Return the format of weights as (groups,) outputs, inputs, space, and its shape. Weights of transposed
    convolutions are (inputs, outputs / groups, …)."""
    shape, strides = plan.shape(value), row_major(plan.shape(value))
    axes = {c: (n, s) for c, n, s in zip(layout, shape, strides, strict=True)}
    space = [axes[c] for c in "DHW" if c in axes]
    outputs, inputs = axes["O"], axes["I"]
    if groups == 1:
        found = [outputs, inputs, *space]
    else:
        split = inputs if transposed else outputs
        inner = (split[0] // groups, split[1])
        found = [
            (groups, inner[0] * inner[1]), outputs if transposed else inner, inner if transposed else inputs, *space
        ]
    sizes = [n for n, _ in found]
    return plan.objects.plain(sizes, [s for _, s in found]), sizes


def _inner_product(plan: Plan, o: Operation) -> None:
    """Add an inner product. Its inputs are rows, weights (units, in), and an optional bias."""
    data, weights = o.inputs[:2]
    bias = plan.seen(o.inputs[2]) if len(o.inputs) > 2 else None
    post = _Post(plan, o, None)
    descs = [plan.objects.any(plan.shape(v)) for v in (data, weights, o.output)]
    desc = plan.objects.made(
        "primitive_desc", "inner_product_forward_primitive_desc_create", _engine(plan), dnnl.FORWARD_INFERENCE,
        _pointer(descs[0]), _pointer(descs[1]),
        _pointer(bias), _pointer(descs[2]), _pointer(post.attributes))
    reads = [
        plan.read(dnnl.ARG_SRC, data, plan.seen(data), plan.library.description(desc, dnnl.QUERY_SRC)),
        plan.read(dnnl.ARG_WEIGHTS, weights, plan.seen(weights), plan.library.description(desc, dnnl.QUERY_WEIGHTS)),
    ]
    if bias is not None:
        reads.append(Read(dnnl.ARG_BIAS, bias, plan.buffer_of(o.inputs[2])))
    _finish(plan, o, desc, reads, post)


def _matmul(plan: Plan, o: Operation) -> None:
    """Add a matrix product of (batch, m, k) and (batch, k, n); `transpose` marks operands with swapped last axes."""
    reads = []
    for arg, value, turned in zip((dnnl.ARG_SRC, dnnl.ARG_WEIGHTS), o.inputs, o.attrs["transpose"], strict=True):
        r = plan.rows(value)
        reads.append(Read(arg, plan.objects.permuted(r.desc, [0, 2, 1]) if turned else r.desc, r.buffer))
    post = _Post(plan, o, None)
    desc = plan.objects.made(
        "primitive_desc", "matmul_primitive_desc_create", _engine(plan), _pointer(reads[0].desc),
        _pointer(reads[1].desc), None,
        _pointer(plan.objects.any(plan.shape(o.output))), _pointer(post.attributes))
    _finish(plan, o, desc, reads, post)


def _pool(plan: Plan, o: Operation) -> None:
    (value,) = o.inputs
    order = _order(o.attrs["layout"])
    source = plan.seen(value, order)
    made = plan.objects.any(_placed(plan.shape(o.output), order))
    post = _Post(plan, o, order)
    half = len(o.attrs["padding"]) // 2
    desc = plan.objects.made(
        "primitive_desc", "pooling_forward_primitive_desc_create", _engine(plan), dnnl.FORWARD_INFERENCE,
        dnnl.POOLS[o.attrs["algorithm"]], _pointer(source),
        _pointer(made), dims(o.attrs["strides"]), dims(o.attrs["kernel"]), dims([d - 1 for d in o.attrs["dilation"]]),
        dims(o.attrs["padding"][:half]),
        dims(o.attrs["padding"][half:]), _pointer(post.attributes))
    _finish(plan, o, desc, [Read(dnnl.ARG_SRC, source, plan.buffer_of(value))], post, order)


def _softmax(plan: Plan, o: Operation) -> None:
    r = plan.rows(o.inputs[0])
    post = _Post(plan, o, None)
    desc = plan.objects.made(
        "primitive_desc", "softmax_forward_primitive_desc_create", _engine(plan), dnnl.FORWARD_INFERENCE,
        dnnl.SOFTMAX[o.attrs["algorithm"]], _pointer(r.desc),
        _pointer(r.desc), ctypes.c_int(o.attrs["axis"]), _pointer(post.attributes))
    _finish(plan, o, desc, [r], post)


def _eltwise(plan: Plan, o: Operation) -> None:
    source = plan.seen(o.inputs[0])
    post = _Post(plan, o, None)
    desc = plan.objects.made(
        "primitive_desc", "eltwise_forward_primitive_desc_create", _engine(plan), dnnl.FORWARD_INFERENCE,
        dnnl.ELTWISE[o.attrs["algorithm"]], _pointer(source),
        _pointer(source), ctypes.c_float(o.attrs["alpha"]), ctypes.c_float(o.attrs["beta"]), _pointer(post.attributes))
    _finish(plan, o, desc, [Read(dnnl.ARG_SRC, source, plan.buffer_of(o.inputs[0]))], post)


def _binary(plan: Plan, o: Operation) -> None:
    """Add a binary operation; the second operand is broadcast. Operands of equal shapes get the same format."""
    first, second = o.inputs
    source = plan.seen(first)
    if plan.shape(second) == plan.shape(first):
        other = plan.read(dnnl.ARG_SRC_1, second, plan.seen(second), source)
    else:
        other = _operand(plan, second, len(plan.shape(first)), None)
    post = _Post(plan, o, None)
    desc = plan.objects.made(
        "primitive_desc", "binary_primitive_desc_create", _engine(plan), dnnl.BINARIES[o.attrs["algorithm"]],
        _pointer(source), _pointer(other.desc),
        _pointer(source), _pointer(post.attributes))
    _finish(plan, o, desc, [Read(dnnl.ARG_SRC, source, plan.buffer_of(first)), other], post)


def _concat(plan: Plan, o: Operation) -> None:
    """Add a concatenation in the formats of the parts, or row-major if the library does not support them."""
    post = _Post(plan, o, None)
    parts = [Read(0, plan.seen(v), plan.buffer_of(v)) for v in o.inputs]

    def described(reads: list[Read], made: int) -> int | None:
        sources = (ctypes.c_void_p * len(reads))(*(r.desc for r in reads))
        return plan.objects.tried(
            "primitive_desc", "concat_primitive_desc_create", _engine(plan), _pointer(made), len(reads),
            o.attrs["axis"], sources, _pointer(post.attributes))

    shape = plan.shape(o.output)
    desc = described(parts, plan.objects.any(shape))
    if desc is None:
        parts = [plan.rows(v) for v in o.inputs]
        desc = described(parts, plan.objects.plain(shape))
        if desc is None:
            dnnl.check(dnnl.UNIMPLEMENTED, "concat_primitive_desc_create")
            return
    _finish(plan, o, desc, [Read(dnnl.ARG_MULTIPLE_SRC + k, r.desc, r.buffer) for k, r in enumerate(parts)], post)


def _layer_norm(plan: Plan, o: Operation) -> None:
    """Add a layer norm over the last axis. Its inputs are data, scale and shift."""
    r = plan.rows(o.inputs[0])
    post = _Post(plan, o, None)
    desc = plan.objects.made(
        "primitive_desc", "layer_normalization_forward_primitive_desc_create", _engine(plan), dnnl.FORWARD_INFERENCE,
        _pointer(r.desc), _pointer(r.desc), None,
        ctypes.c_float(o.attrs["epsilon"]), ctypes.c_uint(dnnl.USE_SCALE | dnnl.USE_SHIFT), _pointer(post.attributes))
    reads = [
        r,
        *(
            Read(arg, plan.seen(v), plan.buffer_of(v))
            for arg, v in zip((dnnl.ARG_SCALE, dnnl.ARG_SHIFT), o.inputs[1:], strict=True))
    ]
    _finish(plan, o, desc, reads, post)


def _reshape(plan: Plan, o: Operation) -> None:
    r = plan.rows(o.inputs[0])
    plan.put(o.output, plan.objects.plain(plan.shape(o.output)), r.buffer)


def _transpose(plan: Plan, o: Operation) -> None:
    """Record a transpose as a view: the same memory with its axes in another order."""
    axes = o.attrs["axes"]
    plan.view(o.output, o.inputs[0], plan.seen(o.inputs[0], [axes.index(k) for k in range(len(axes))]))


BUILD: Final[dict[str, Callable[[Plan, Operation], None]]] = {
    "convolution": _convolution, "deconvolution": _convolution, "inner_product": _inner_product, "matmul": _matmul,
    "pool": _pool, "softmax": _softmax,
    "eltwise": _eltwise, "binary": _binary, "concat": _concat, "layer_norm": _layer_norm, "reshape": _reshape,
    "transpose": _transpose,
}
