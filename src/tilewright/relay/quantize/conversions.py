"""Move the quantization of inputs and the dequantization of outputs into separate functions, for integer-only devices.

    def @main(%x) { qnn.dequantize(qnn.conv2d(qnn.quantize(%x, …), …), …) }
    -> def @quantize_inputs(%x) { qnn.quantize(%x, …) }
       def @quantized_main(%q) { qnn.conv2d(%q, …) }
       def @dequantize_outputs(%q) { qnn.dequantize(%q, …) }
       def @main(%x) { @dequantize_outputs(@quantized_main(@quantize_inputs(%x))) }
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.base.errors import CompileError
from tilewright.base.types import FuncType, TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var
from tilewright.relay.qnn.scaling import Quantize
from tilewright.relay.visitor import consumers, operands, post_order, substitute

NAMES = ("quantize_inputs", "quantized_main", "dequantize_outputs")


def partition_conversions(mod: IRModule, ensure_fully_integral: bool = False) -> IRModule:
    """Split `main` of `mod` into three functions.

    With `ensure_fully_integral`, raises `CompileError` if the middle one computes with floats.
    """
    main = mod["main"]
    order = [e for e in post_order(main.body, inside=False) if not isinstance(e, Constant)]
    users = consumers(order)
    stage = _stages(main, order, users)
    if ensure_fully_integral:
        for e in order:
            if stage[e] == 1 and isinstance(e, Call) and _is_float(e):
                name = getattr(e.op, "name", "a call")
                raise CompileError(f"{name} is computed in float between quantized values; remove it from the network, "
                                   "or set partition_conversions='enabled'", e.span, code="TW1005")
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
