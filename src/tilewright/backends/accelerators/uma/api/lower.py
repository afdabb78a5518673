"""Lowers the functions of a backend to loop programs, and runs its passes over them.

    def @my_npu_0(%x, %w) { nn.conv2d(%x, %w) }   ->   def my_npu_0(x: Buffer, w: Buffer, out: Buffer) { for … }
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright import te
from tilewright.backends.accelerators.uma.api.utils import PassPhase
from tilewright.backends.hooks import hook_of, register_target_kind
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import post_order, rewrite, substitute
from tilewright.te.create import create_prim_func
from tilewright.tir.stmt import PrimFunc

__all__ = ["UMALower"]

_PHASES: Final = (PassPhase.TIR_PHASE_0, PassPhase.TIR_PHASE_1, PassPhase.TIR_PHASE_2, PassPhase.TIR_PHASE_3)
Strategy = Callable[..., Any]
"""`strategy(attrs, inputs, out_type, target)` returns an `OpStrategy`."""


class UMALower:
    """The strategies of operators and the passes over loop programs of one target."""

    def __init__(self, target_name: str) -> None:
        self.target_name = target_name
        self._operator_strategies: list[tuple[str, Strategy, int]] = []
        self._tir_passes: list[tuple[PassPhase, Pass]] = []

    def register(self) -> None:
        """Make this the lowering of the target's functions (`RelayToTIR`)."""
        if hook_of(self.target_name, "RelayToTIR") is None:
            register_target_kind(self.target_name, {"RelayToTIR": self.relay_to_tir})

    def relay_to_tir(self, mod: IRModule) -> IRModule:
        """Return the loop programs of the functions of a module, under their names."""
        return IRModule({
            name: self._lower_stir_to_nstir(self._lower_relay_to_tir(f, name))["main"]
            for name, f in mod.items() if isinstance(f, Function)})

    def _lower_relay_to_tir(self, relay_prim_func: Function, name: str = "main") -> PrimFunc:
        """Return the loops of a function, one nest for each computation. Raises `CompileError` for constants that are
        tensors: bind them outside, with `PartitionGraph(bind_constants=False)`."""
        function = _inlined(relay_prim_func)
        inputs = [te.placeholder(p.tensor_type.shape, p.tensor_type.dtype, name=p.name_hint) for p in function.params]
        values: dict[Expr, Any] = dict(zip(function.params, inputs, strict=True))
        for e in post_order(function.body):
            if e not in values and not isinstance(e, (Op, Var)):
                values[e] = self._value(e, values)
        result = values[function.body]
        return create_prim_func(inputs, list(result) if isinstance(result, tuple) else [result], name)

    def _value(self, e: Expr, values: dict[Expr, Any]) -> Any:
        match e:
            case Constant() if e.value.size == 1:
                number = e.value.reshape(()).item()
                return te.compute(e.value.shape, lambda *_i: te.const(number, str(e.value.dtype)), name="constant")
            case Tuple():
                return tuple(values[f] for f in e.fields)
            case TupleGetItem():
                return values[e.tuple_value][e.index]
            case Call(op=Op() as op):
                return self._computed(e, op, [values[a] for a in e.args])
        raise CompileError(
            f"a {type(e).__name__} in a function for '{self.target_name}' cannot be lowered to loops", e.span,
            code="TW0904")

    def _computed(self, call: Call, op: Op, args: list[Any]) -> Any:
        """Return the tensors of a call, by the registered strategy of the highest level or the plain definition."""
        found = sorted((s for s in self._operator_strategies if s[0] == op.name), key=lambda s: s[2])
        if not found:
            return op.compute(*args)
        strategy = found[-1][1](op, args, call.checked_type, Target(self.target_name))
        best = max(strategy.valid, key=lambda i: i.plevel)
        outs = best.compute(op, args, call.checked_type)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _lower_stir_to_nstir(self, prim_func: PrimFunc) -> IRModule:
        """Return a module with the function `main` after the passes of all phases, in order."""
        mod = IRModule({"main": prim_func})
        for phase in _PHASES:
            for p in (p for at, p in self._tir_passes if at == phase):
                mod = p(mod)
        return mod


def _inlined(function: Function) -> Function:
    """Return a function with its composite functions inlined."""

    def inline(e: Expr) -> Expr | None:
        if isinstance(e, Call) and isinstance(e.op, Function):
            return substitute(e.op.body, dict(zip(e.op.params, e.args, strict=True)))
        return None

    found = rewrite(function, inline)
    assert isinstance(found, Function)
    return found


