"""Deferred conversion of TFLite operators: an operator becomes a call, and is converted once its inputs are known.

    RESHAPE(x, shape)  ->  frontend.deferred(%x, %shape, op_type="RESHAPE", …)  ->  reshape(%x, newshape=[2, 3])
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from tilewright.base.errors import Origin
from tilewright.relay.expr import Call, Expr
from tilewright.relay.frontend.core.deferral import settled, waiting
from tilewright.relay.frontend.core.known import KnownValues
from tilewright.relay.frontend.tflite.model import Model, Operator, Quantization, Tensor
from tilewright.relay.frontend.tflite.node import Value
from tilewright.relay.op.deferred import Ask, Deferred, register_resolver

_CALLERS: Final = frozenset({"IF", "WHILE", "CALL_ONCE", "STABLEHLO_COMPOSITE"})
"""Operators that run other graphs of the model."""
_RANDOM: Final = frozenset({"RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"})


def defer(
    model: Model, operator: Operator, origin: Origin, args: Sequence[Value | None], outputs: Sequence[Tensor],
    intermediates: Sequence[Tensor], for_sizes: bool = False,
) -> list[Expr]:
    """Defer an operator; return its results."""
    said = {
        "kind": operator.kind, "version": operator.version, "options": operator.options,
        "custom": base64.b64encode(operator.custom_options).decode(),
        "inputs": [None if a is None else _described(a.tensor) for a in args],
        "outputs": list(map(_described, outputs)),
        "intermediates": list(map(_described, intermediates)),
    }
    whole = base64.b64encode(model.contents).decode() if operator.kind in _CALLERS else ""
    op = Deferred("tflite", operator.kind, json.dumps(said), whole, operator.kind in _RANDOM, for_sizes)
    return waiting(op, [a.expr for a in args if a is not None], origin, len(outputs))


def _described(t: Tensor) -> dict[str, Any]:
    return {"name": t.name, "shape": t.shape, "dtype": t.dtype, "quantization": None if t.quantization is None
            else asdict(t.quantization)}


def _tensor(said: Mapping[str, Any]) -> Tensor:
    q = said["quantization"]
    found = None if q is None else Quantization(tuple(q["scales"]), tuple(q["zero_points"]), q["axis"])
    return Tensor(said["name"], tuple(said["shape"]), tuple(said["shape"]), said["dtype"], found, False, None, "")


@functools.lru_cache(256)
def _model(text: str) -> Model:
    from tilewright.relay.frontend.tflite.model import read_model

    return read_model(base64.b64decode(text)) if text else Model("", "", ())


class _Resolver:
    """Converts the deferred operators of TFLite models."""

    def convert(self, op: Deferred, call: Call, ask: Ask) -> Expr | None:
        """The converted operator, or None if `ask` lacks a value that it needs. Raises `CompileError`."""
        from tilewright.relay.frontend.core.importer import Scope
        from tilewright.relay.frontend.tflite.importer import Importer, TfliteGraph, source_node
        from tilewright.relay.frontend.tflite.registry import CONVERTERS

        said = json.loads(op.model)
        given = iter(call.args)
        args = [None if t is None else Value(next(given), _tensor(t)) for t in said["inputs"]]
        tensors = [*map(_tensor, said["outputs"]), *map(_tensor, said["intermediates"])]
        count = len(said["outputs"])
        options = {k: tuple(v) if isinstance(v, list) else v for k, v in said["options"].items()}
        operator = Operator(
            said["kind"], said["version"], (), tuple(range(count)), options, tuple(range(count, len(tensors))),
            base64.b64decode(said["custom"]), 0)
        origin = call.span or Origin("", said["kind"])
        scope = Scope(TfliteGraph("", {}, (), ()))
        results = Importer(_model(op.context), CONVERTERS, KnownValues(ask)).results(source_node(operator, origin.name,
            tensors), origin, args, scope)
        return settled(op, results, count, call.span)

    def is_branch(self, op: Deferred) -> bool:
        """False: no operator has branches as graphs with other argument types."""
        return False

    def content(self, op: Deferred) -> Hashable:
        """The operator itself: operators of equal text are converted alike."""
        return op


register_resolver("tflite", _Resolver())
