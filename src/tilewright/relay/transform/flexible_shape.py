"""Compile one program for several sizes of an axis, and choose among them at run time.

    fn (%x: Tensor[(8, 3), float32]) { body }
    -> fn (%x: Tensor[(?, 3), float32]) {
         if (size <= 4) { part(@main_4(padded(%x))) } else { part(@main_8(padded(%x))) }
       }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import OptionError
from tilewright.base.types import INT64, TensorType, TupleType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Tuple, TupleGetItem, Var, const
from tilewright.relay.op.broadcast import LessEqual, Subtract
from tilewright.relay.op.create import ShapeOf
from tilewright.relay.op.dynamic import DynPad, DynStridedSlice
from tilewright.relay.op.indexing import Take
from tilewright.relay.op.shaping import Reshape
from tilewright.relay.op.transform import Concatenate, Stack
from tilewright.relay.transform.change_batch import ChangeBatch
from tilewright.scalar.expr import UnknownDim


@dataclass(frozen=True)
class FlexibleShapeDispatch(Pass):
    """Make `main` accept any size along `axis` of its inputs, up to the largest of `buckets`, and run the smallest
    bucket that fits.

    With `auto_pad`, inputs are padded with `pad_value`; without it, the size must equal a bucket. With
    `affects_output`, results are cut to the size of the input along the same axis. `input_indices` are the inputs of
    variable size (default: all).
    """

    buckets: Sequence[int] | None = None
    axis: int = 0
    auto_pad: bool = False
    pad_value: float = 0
    input_indices: Sequence[int] | None = None
    affects_output: bool = True

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        buckets = sorted(self.buckets or ())
        if not buckets or buckets[0] < 1:
            raise OptionError(f"buckets is {self.buckets!r}; it must be a list of one or more sizes to compile for",
                              code="TW0408")
        main = mod["main"]
        varying = range(len(main.params)) if self.input_indices is None else self.input_indices
        if not varying or not all(0 <= k < len(main.params) for k in varying):
            raise OptionError("input_indices must be one or more positions among the "
                              f"{len(main.params)} inputs, not {self.input_indices!r}", code="TW0408")
        new = mod.copy()
        for size in buckets:
            new[f"main_{size}"] = ChangeBatch({main.params[k]: self.axis for k in varying},
                size).transform_function(main, mod, context)
        params = [self._open(p) if k in varying else p for k, p in enumerate(main.params)]
        given = Call(Take(axis=0), [Call(ShapeOf("int64"), [params[varying[0]]]), const(self.axis, "int64")])
        body: Expr | None = None
        for size in reversed(buckets):
            here = self._run(new, params, varying, size, given)
            fits = Call(LessEqual(), [given, const(size, "int64")])
            body = here if body is None else If(fits, here, body)
        assert body is not None
        new["main"] = Function(params, body, attrs=main.attrs, span=main.span)
        return new

    def _open(self, p: Var) -> Var:
        kind = p.checked_type
        if not isinstance(kind, TensorType):
            raise OptionError(f"the input '{p.name_hint}' has type {kind!r}, but only a tensor can "
                              "have other sizes; list only tensors in input_indices", code="TW0408")
        return Var(p.name_hint, TensorType([UnknownDim() if d == self.axis else n for d, n in enumerate(kind.shape)],
                                           kind.dtype), p.span)

    def _run(self, mod: IRModule, params: Sequence[Var], varying: Sequence[int], size: int, given: Expr) -> Expr:
        """Return the call of the function for `size`."""
        target: GlobalVar = mod.get_global_var(f"main_{size}")
        args: list[Expr] = [self._filled(p, size, given) if self.auto_pad and k in varying else p
                            for k, p in enumerate(params)]
        result = Call(target, args)
        return self._cut(result, given) if self.affects_output else result

    def _filled(self, p: Var, size: int, given: Expr) -> Expr:
        kind = p.tensor_type
        missing = Call(Reshape((1,)), [Call(Subtract(), [const(size, "int64"), given])])
        widths = np.zeros(2 * kind.ndim, "int64")
        at = 2 * self.axis + 1
        flat = Call(Concatenate(0), [Tuple((Constant(widths[:at]), missing, Constant(widths[at + 1 :])))])
        pairs = Call(Reshape((kind.ndim, 2)), [flat])
        return Call(DynPad(), [p, pairs, const(self.pad_value, kind.dtype)])

    def _cut(self, result: Expr, given: Expr) -> Expr:
        kind = result.checked_type
        if isinstance(kind, TupleType):
            return Tuple(tuple(self._cut(TupleGetItem(result, k), given) for k in range(len(kind.fields))))
        if not isinstance(kind, TensorType):
            return result
        sizes: list[Expr] = [const(n if isinstance(n, int) else 0, "int64") for n in kind.shape[: self.axis]] + [given]
        end = Call(Stack(0), [Tuple(tuple(sizes))])
        return Call(DynStridedSlice(), [result, Constant(np.zeros(len(sizes), INT64.numpy())), end,
                                        Constant(np.ones(len(sizes), INT64.numpy()))])
