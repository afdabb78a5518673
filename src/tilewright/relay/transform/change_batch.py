"""Change the batch size of a program.

    ChangeBatch({%x: 0}, 16):   fn (%x: Tensor[(1, 3, 8, 8), float32]) { … }
      -> fn (%x: Tensor[(16, 3, 8, 8), float32]) { … }
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import CompileError, OptionError
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Expr, Function, Var
from tilewright.relay.op.shaping import Reshape
from tilewright.relay.visitor import operands, post_order, with_operands


@dataclass(frozen=True, eq=False)
class ChangeBatch(FunctionPass):
    """Set the batch size to `batch_size`; `data` maps each variable, or its name, to its batch axis. All types are
    inferred again.

    Reshapes that start with the old size get the new one. Raises `OptionError` for an unknown variable, and
    `CompileError` if an operator rejects the new size.
    """

    data: Mapping[Any, int]
    batch_size: int = 16
    kind: ClassVar[type] = Function

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        known = {p for f in mod.functions.values() if isinstance(f, Function) for p in f.params}
        names = {p.name_hint for p in known}
        for v in self.data:
            if v not in known and v not in names:
                raise OptionError(f"no function of the module has the parameter {getattr(v, 'name_hint', v)!r}; it has "
                                  f"{', '.join(sorted(names))}", code="TW0408")
        return FunctionPass.transform_module(self, mod, context)

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        new: dict[Expr, Expr] = {p: changed for p in function.params if (changed := self._param(p)) is not p}
        if not new:
            return function
        for e in post_order(function.body, inside=False):
            old = operands(e)
            now = [new.get(o, o) for o in old]
            if e not in new and any(a is not b for a, b in zip(old, now, strict=True)):
                new[e] = self._over(e, now)
        params = [new.get(p, p) for p in function.params]
        return Function(params, new.get(function.body, function.body), None, function.type_params, function.attrs,
                        function.span)

    def _param(self, p: Var) -> Var:
        axis = self.data.get(p, self.data.get(p.name_hint))
        kind = p.type_annotation
        if axis is None:
            return p
        if not isinstance(kind, TensorType) or not -kind.ndim <= axis < kind.ndim:
            raise OptionError(f"the parameter '{p.name_hint}' has type {kind!r}, without an "
                              f"axis {axis}; map each tensor to its batch axis in data", p.span, code="TW0408")
        if kind.shape[axis] == self.batch_size:
            return p
        at = axis % kind.ndim
        return Var(p.name_hint, TensorType((*kind.shape[:at], self.batch_size, *kind.shape[at + 1 :]), kind.dtype),
                   p.span)

    def _over(self, e: Expr, now: list[Expr]) -> Expr:
        if isinstance(e, Call) and isinstance(e.op, Reshape):
            before, after, shape = e.args[0].tensor_type.shape, now[0].tensor_type.shape, e.op.newshape
            if before and shape and before[0] != after[0] and shape[0] == before[0]:
                return Call(Reshape((after[0], *shape[1:]), e.op.allowzero), now, span=e.span)
        try:
            return with_operands(e, now)
        except CompileError as error:
            error.add_note(f"while the batch size was changed to {self.batch_size}")
            raise
