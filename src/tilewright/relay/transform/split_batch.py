"""Compute a batch that exceeds the caches in parts, one after the other.

    fn (%x: Tensor[(32, 3, 224, 224)]) { … nn.conv2d(%x, …) /* (32, 112, 112, 32) */ … }
      -> fn (%x: Tensor[(2, 3, 224, 224)], Parts=16) { … nn.conv2d(%x, …) /* (2, 112, 112, 32) */ … }

`Parts` is the number of calls of the function. Each call gets the next images of the inputs, and the results are
concatenated. If every kernel processed the whole batch, its output would leave the caches before the next kernel reads
it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from tilewright.backends.kernel_options import current
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type, tensors_of
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.analysis.batch_independence import Batch, batch_of, images_of
from tilewright.relay.analysis.branches import is_one_kernel
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Var
from tilewright.relay.op.nn_conv import Conv2d
from tilewright.relay.op.registry import Fusion, Op
from tilewright.relay.visitor import operands, post_order, with_operands
from tilewright.scalar.arith.divisors import divisors

PARTS: Final = "Parts"
_THIRD_LEVEL: Final = 16 << 20
"""Size of the third-level cache in bytes that a program can rely on."""
_NEARER: Final = 0.2
"""Cost of a byte from the third-level cache, relative to one from memory."""
_ROWS: Final = 64
"""Number of rows multiplied with a weight that take as long as loading the weight from memory, so that the load is
hidden."""
_GAIN: Final = 0.5
"""Split the batch only if the memory stalls drop to this fraction; 0.6 would make resnet50 5 % slower (measured)."""
_WINOGRAD: Final = (4, 16)
"""Winograd's algorithm: weights are 4 times as large (36 numbers for 9), and a row represents a tile of 4x4 (16)
pixels."""


@dataclass(frozen=True)
class SplitBatch(Pass):
    """Compute `images` of a batch at a time (0: as many as suit the caches of the machine, -1: all). Needs known types.

    `second_level` is the size of a core's private cache in bytes (0: that of the target machine). Entry functions are
    split: `main`, or the blocks of a program with control flow. A function stays if it mixes images or its batch has no
    suitable divisor.
    """

    opt_level: ClassVar[int] = 2
    images: int = 0
    second_level: int = 0

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        if self.images < 0:
            return mod
        inner = {e.name_hint for f in mod.functions.values() if isinstance(f, Function) for e in post_order(f)
                 if isinstance(e, GlobalVar)}
        entered = {f for name, f in mod.items() if isinstance(f, Function) and name not in inner
                   and not is_one_kernel(f)}
        return mod.map_functions(lambda f: self._split(f) if f in entered else f, Function)

    def _split(self, function: Function) -> Function:
        """Return the function for fewer images, called for all parts of its batch; unchanged if that is impossible or
        does not pay."""
        batch = 1 if PARTS in function.attrs else images_of(function)
        if batch < 2:
            return function
        images = self.images or best_part(function, batch, self.second_level or current().machine.l2_bytes)
        if images >= batch or batch % images:
            return function
        apart = batch_of(function)
        return function if apart is None else for_fewer(function, apart, images) or function


def best_part(function: Function, batch: int, second_level: int) -> int:
    """Return the divisor of `batch` with the lowest memory stalls (the larger of equals); `batch` if the gain is small.
    """
    traffic = _Traffic(function, batch)
    waiting = {n: traffic.waiting(n, second_level) for n in reversed(divisors(batch))}
    best = min(waiting, key=waiting.__getitem__)
    return best if waiting[best] <= _GAIN * waiting[batch] else batch


class _Traffic:
    """The memory traffic of the kernels of a function.

    `values` are the bytes of inputs and outputs for one image. `weights` are the bytes of each weight, with the
    number of rows of one image that are multiplied with it.
    """

    def __init__(self, function: Function, batch: int) -> None:
        self.values: list[float] = []
        self.weights: list[tuple[int, float]] = []
        for e in post_order(function.body, inside=False):
            if (not isinstance(e, Call) or not isinstance(e.op, Op) or e.op.kind < Fusion.REDUCE
                    or not tensors_of(e.checked_type)[0].ndim):
                continue
            constant = [a.tensor_type for a in e.args if isinstance(a, Constant)]
            moved = [*tensors_of(e.checked_type),
                     *(t for a in e.args if not isinstance(a, Constant) for t in tensors_of(a.checked_type))]
            self.values.append(sum(t.nbytes for t in moved) / batch)
            rows = math.prod(tensors_of(e.checked_type)[0].shape) / batch
            larger, fewer = _WINOGRAD if _by_winograd(e.op, constant) else (1, 1)
            self.weights += [(larger * t.nbytes, rows / fewer / _channels(t, e)) for t in constant if t.ndim > 1
                             and t.nbytes]

    def waiting(self, images: int, second_level: int) -> float:
        """Return the bytes that one image loads from memory if that many are computed at once."""
        far = 1.0 if sum(n for n, _ in self.weights) > _THIRD_LEVEL else _NEARER
        weights = sum(n / images * max(0.0, 1 - images * rows / _ROWS) for n, rows in self.weights)
        held = [n * images for n in self.values]
        between = sum(n if all_ > _THIRD_LEVEL else _NEARER * n for n, all_ in zip(self.values, held, strict=True)
                      if all_ > second_level)
        return far * weights + between


def _by_winograd(op: Op, constant: Sequence[TensorType]) -> bool:
    """Return whether Winograd's algorithm applies to a call: an ungrouped convolution of stride 1 with 3x3 windows."""
    return (isinstance(op, Conv2d) and op.groups == 1 and set(op.strides) == {1}
            and any(t.shape.count(3) >= 2 for t in constant))


def _channels(weight: TensorType, e: Call) -> int:
    """Return the number of result elements per row of a product with `weight`: the largest axis that both have."""
    *_, last = shape = tensors_of(e.checked_type)[0].shape
    return int(max((d for d in weight.shape if d in (last, shape[1 % len(shape)])), default=last))


def for_fewer(function: Function, batch: Batch, images: int) -> Function | None:
    """Return the function for `images` images, with `Parts`; None if an operator depends on the number of images."""
    params = {p: Var(p.name_hint, _scaled(p.checked_type, (True,), batch.images, images), p.span)
              for p in function.params}
    new: dict[Expr, Expr] = dict(params.items())
    for e in post_order(function.body, inside=False):
        if e in new:
            continue
        wanted = _scaled(e.checked_type, batch.apart[e], batch.images, images)
        if isinstance(e, Constant):
            new[e] = Constant(e.value[: len(e.value) // batch.images * images], e.span) if e in batch.own else e
            continue
        rebuilt = _rebuilt(e, [new[o] for o in operands(e)], wanted)
        if rebuilt is None:
            return None
        new[e] = rebuilt
    attrs = {**function.attrs, PARTS: batch.images // images}
    return Function(tuple(params.values()), new[function.body], None, function.type_params, attrs, function.span)


def _scaled(kind: Type, apart: tuple[bool, ...], images: int, fewer: int) -> Type:
    """Return the type of a value for fewer images."""
    if isinstance(kind, TupleType):
        return TupleType(tuple(_scaled(t, (flag,), images, fewer) for t, flag in zip(kind.fields, apart, strict=True)))
    if not isinstance(kind, TensorType) or not apart[0]:
        return kind
    return TensorType((kind.shape[0] // images * fewer, *kind.shape[1:]), kind.dtype)


def _rebuilt(e: Expr, new: list[Expr], wanted: Type) -> Expr | None:
    """Return the same node over new operands; None if it then has another type than `wanted`."""
    if not isinstance(e, Call) or not isinstance(e.op, Op):
        return with_operands(e, new)
    op = e.op.resized(wanted.shape) if isinstance(wanted, TensorType) else e.op
    try:
        made = Call(op, new, span=e.span)
    except ShapeError:  # an attribute of the operator depends on the batch size
        return None
    return made if made.checked_type == wanted else None
