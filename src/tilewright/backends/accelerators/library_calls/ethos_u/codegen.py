"""Converts a function for Ethos-U to a single call of its driver: a TFLite file, Vela, a command stream."""

from __future__ import annotations

from typing import Any, Final

from tilewright.backends.accelerators.library_calls import LibraryModule, Step, Tensor
from tilewright.backends.accelerators.library_calls.ethos_u.tflite_graph import tflite_bytes
from tilewright.backends.accelerators.library_calls.ethos_u.vela import compile_model
from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType, TupleType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.relay.expr import Function
from tilewright.relay.qnn.sources import NUMERICS

INVOKE: Final = "ethos_u_invoke"
DEFAULT_CONFIG: Final = "ethos-u55-256"
_ROUNDING: Final = "tflite"


def command_stream_module(function: Function) -> LibraryModule:
    """Return a module with one call for `ethos-u`: its arguments are the inputs, then commands and weights; its
    attributes are the offsets of values in device memory.

    Raises `CompileError` for a network with another rounding than TensorFlow Lite's, and with Vela's message for an
    unsupported network.
    """
    symbol = str(function.attrs["global_symbol"])
    general = PassContext.current().get("relay.ext.ethos-u.options").get("accelerator_config", DEFAULT_CONFIG)
    config = str(function.attrs.get("ethos-u.accelerator_config", general))
    rounding = str(function.attrs.get(NUMERICS) or _ROUNDING)
    if not rounding.startswith(_ROUNDING):
        raise CompileError(
            f'@{symbol} rounds as "{rounding}", but Ethos-U rounds as "{_ROUNDING}"; convert the network with '
            f'relay.qnn.transform.Unify("NHWC", "int8", "{_ROUNDING}") before partition_for_ethosu', function.span,
            code="TW0905")
    stream = compile_model(tflite_bytes(function), config, symbol)
    result: Any = function.ret_type
    gives = result.fields if isinstance(result, TupleType) else (result,)
    constants = (stream.commands, stream.weights)
    tensors = [
        *(_tensor("input", i, p.checked_type) for i, p in enumerate(function.params)),
        *(Tensor("constant", i, c.shape, "uint8") for i, c in enumerate(constants)),
        *(_tensor("output", i, t) for i, t in enumerate(gives)),
    ]
    first = len(function.params) + len(constants)
    meaning = Function(function.params, function.body, attrs={NUMERICS: rounding})
    step = Step(
        INVOKE, tuple(range(first)), tuple(range(first, len(tensors))), len(constants),
        {"accelerator_config": config, **stream.memory},
        IRModule.from_expr(meaning).astext(show_meta_data=True))
    return LibraryModule("ethos-u", symbol, tensors, [step], constants, 0)


def _tensor(kind: str, place: int, type_: Any) -> Tensor:
    assert isinstance(type_, TensorType)
    return Tensor(kind, place, type_.concrete_shape, str(type_.dtype))
