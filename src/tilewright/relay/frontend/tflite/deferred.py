"""Operators that cannot be converted yet: the call that stands for one, and its conversion when what was missing is known.

    RESHAPE(x, shape), shape computed  ->  tflite.deferred(%x, %shape, kind="RESHAPE", operator="…")  ->  reshape(%x, newshape=[2, 3])
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from tilewright.base.errors import Origin
from tilewright.relay.expr import Call, Expr, Tuple, TupleGetItem
from tilewright.relay.frontend.known import KnownValues
from tilewright.relay.frontend.shaping import fields
from tilewright.relay.frontend.tflite.model import Model, Operator, Quantization, Tensor
from tilewright.relay.frontend.tflite.node import Value
from tilewright.relay.op.deferred import Ask, DeferredTflite

_CALLERS: Final = frozenset({"IF", "WHILE", "CALL_ONCE", "STABLEHLO_COMPOSITE"})
"""Operators that run other graphs of the model."""
_RANDOM: Final = frozenset({"RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"})


def defer(
    model: Model, operator: Operator, origin: Origin, args: Sequence[Value | None], outputs: Sequence[Tensor], intermediates: Sequence[Tensor],
) -> list[Expr]:
    """The results of an operator that is converted later."""
    said = {
        "kind": operator.kind, "version": operator.version, "options": operator.options, "custom": base64.b64encode(operator.custom_options).decode(),
        "inputs": [None if a is None else _described(a.tensor) for a in args], "outputs": list(map(_described, outputs)),
        "intermediates": list(map(_described, intermediates)),
    }
    whole = base64.b64encode(model.contents).decode() if operator.kind in _CALLERS else ""
    op = DeferredTflite(operator.kind, json.dumps(said), whole, operator.kind in _RANDOM)
    call = Call(op, [a.expr for a in args if a is not None], span=origin)
    return [call] if len(outputs) == 1 else list(fields(call, len(outputs)))


def _described(t: Tensor) -> dict[str, Any]:
    return {"name": t.name, "shape": t.shape, "dtype": t.dtype, "quantization": None if t.quantization is None else asdict(t.quantization)}


def _tensor(said: Mapping[str, Any]) -> Tensor:
    q = said["quantization"]
    found = None if q is None else Quantization(tuple(q["scales"]), tuple(q["zero_points"]), q["axis"])
    return Tensor(said["name"], tuple(said["shape"]), tuple(said["shape"]), said["dtype"], found, False, None, "")


@functools.lru_cache(256)
def _model(text: str) -> Model:
    from tilewright.relay.frontend.tflite.model import read_model

    return read_model(base64.b64decode(text)) if text else Model("", "", ())


def convert(op: DeferredTflite, call: Call, ask: Ask) -> Expr | None:
    """What the operator is converted to; None when that needs a value that `ask` does not know. Raises `CompileError` naming the operator."""
    from tilewright.relay.frontend.tflite import CONVERTERS
    from tilewright.relay.frontend.tflite.importer import Importer

    said = json.loads(op.operator)
    given = iter(call.args)
    args = [None if t is None else Value(next(given), _tensor(t)) for t in said["inputs"]]
    outputs, intermediates = list(map(_tensor, said["outputs"])), list(map(_tensor, said["intermediates"]))
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in said["options"].items()}
    operator = Operator(said["kind"], said["version"], (), tuple(range(len(outputs))), options, (), base64.b64decode(said["custom"]), 0)
    importer = Importer(_model(op.model), CONVERTERS, KnownValues(ask))
    results = importer.operator(operator, call.span or Origin(said["kind"]), args, outputs, intermediates, None, 0)
    if any(_waits(r, op) for r in results):
        return None
    return results[0] if len(outputs) == 1 else Tuple(tuple(results), call.span)


def _waits(result: Expr, op: DeferredTflite) -> bool:
    """Whether a result is that of the same operator, deferred once more."""
    call = result.tuple_value if isinstance(result, TupleGetItem) else result
    return isinstance(call, Call) and isinstance(call.op, DeferredTflite) and call.op == op
