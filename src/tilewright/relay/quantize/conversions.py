"""Move the quantization of inputs and the dequantization of outputs into separate functions, for integer-only devices.

    def @main(%x) { qnn.dequantize(qnn.conv2d(qnn.quantize(%x, …), …), …) }
    -> def @quantize_inputs(%x) { qnn.quantize(%x, …) }
       def @quantized_main(%q) { qnn.conv2d(%q, …) }
       def @dequantize_outputs(%q) { qnn.dequantize(%q, …) }
       def @main(%x) { @dequantize_outputs(@quantized_main(@quantize_inputs(%x))) }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tilewright.base.errors import FloatOperatorError
from tilewright.base.types import FuncType, TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var
from tilewright.relay.op.broadcast import Add
from tilewright.relay.op.registry import Op
from tilewright.relay.qnn.scaling import Dequantize, Quantize
from tilewright.relay.visitor import consumers, operands, post_order, substitute

NAMES = ("quantize_inputs", "quantized_main", "dequantize_outputs")
_ALLOWED: Final[tuple[tuple[type[Op], ...], ...]] = ((Quantize,), (), (Dequantize, Add))
"""Operators on floats in each stage of a fully integral network: conversions, and sums of dequantized results."""


def partition_conversions(mod: IRModule, ensure_fully_integral: bool = False) -> IRModule:
    """Split `main` of `mod` into three functions.

    With `ensure_fully_integral`, raises `FloatOperatorError` for an operator on floats other than these conversions
    and sums of dequantized results.
    """
    main = mod["main"]
    order = [e for e in post_order(main.body, inside=False) if not isinstance(e, Constant)]
    users = consumers(order)
    stage = _stages(main, order, users)
    if ensure_fully_integral:
        _refuse_floats(order, stage)
    made = mod.copy()
    known: dict[Expr, Expr] = {p: p for p in main.params}
    for k, name in enumerate(NAMES):
        inside = {e for e in order if stage[e] == k and not isinstance(e, Var)}
        results = [e for e in order if e in inside and (e is main.body or any(stage[u] > k for u in users[e]))]
        given = [e for e in order if e not in inside and any(u in inside for u in users[e])]
        params = [Var(f"x{n}", e.checked_type) for n, e in enumerate(given)]
        body = substitute(_packed(results), dict(zip(given, params, strict=True)))
        part = Function(params, body)
        kind = part.known_type()
        assert isinstance(kind, FuncType)
        made[name] = part
        call = Call(GlobalVar(name, kind), [known[e] for e in given])
        known.update({e: call if len(results) == 1 else TupleGetItem(call, n) for n, e in enumerate(results)})
    made["main"] = main.with_body(known[main.body])
    return made


def _refuse_floats(order: Sequence[Expr], stage: Mapping[Expr, int]) -> None:
    """Raise `FloatOperatorError` for the first operator on floats that its stage does not allow."""
    floats = [e for e in order if isinstance(e, Call) and not isinstance(e.op, _ALLOWED[stage[e]])
              and (stage[e] != 1 or _is_float(e))]
    if floats:
        e = next((e for e in floats if not isinstance(e.op, Dequantize)), floats[0])
        raise FloatOperatorError(
            f"{getattr(e.op, 'name', 'a call')} computes with floats, which a fully integral network does not; remove "
            "it from the network, or set partition_conversions='enabled'", e.span)


def _stages(main: Function, order: Sequence[Expr], users: Mapping[Expr, Sequence[Expr]]) -> dict[Expr, int]:
    """The stage of each value: 0 up to the first quantizations, 2 for floats after all integers, 1 for the rest."""
    first: set[Expr] = set()
    for e in order:
        below = [o for o in operands(e) if not isinstance(o, Constant)]
        if isinstance(e, Var) or all(o in first and not (isinstance(o, Call) and isinstance(o.op, Quantize))
                                     for o in below):
            first.add(e)
    last: set[Expr] = set()
    for e in reversed(order):
        if (_is_float(e) or isinstance(e, Tuple)) and all(u in last for u in users[e]) and (users[e] or e is main.body):
            last.add(e)
    return {e: 0 if e in first else 2 if e in last else 1 for e in order}


def _is_float(e: Expr) -> bool:
    kind = e.known_type()
    return isinstance(kind, TensorType) and kind.dtype.is_float


def _packed(results: Sequence[Expr]) -> Expr:
    return results[0] if len(results) == 1 else Tuple(tuple(results))
