"""Rules for the checks of pattern tables; a violated rule reports its text and the edit that satisfies it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, Sequential
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.contrib import PatternTable, Refusal
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import calls, operands, with_operands

ROUNDING: Final = "tflite"
"""The rounding of Arm's accelerators and libraries: that of TensorFlow Lite's reference kernels."""
Rule = tuple[bool, str, str] | tuple[bool, str, str, Callable[[Any], Any]]
"""Whether the rule holds, its text, the required edit, and optionally a function of the match that makes it (`edited`).
"""


def kept(rules: Iterable[Rule]) -> bool | Refusal:
    """True if all rules hold, otherwise a `Refusal` with the first violated one; later rules may assume earlier ones.
    """
    return next((Refusal(*broken) for ok, *broken in rules if not ok), True)


def edited(name: str, arguments: Mapping[int, Any] | None = None, **attributes: Any) -> Callable[[Any], Any]:
    """A function that edits a match: the nearest call of operator `name` gets these attributes and constant arguments.

    The call is searched along first arguments.
    """

    def change(root: Any) -> Any:
        above, at = [], root
        while at.op.name != name:
            above.append(at)
            at = at.args[0]
        args = [_constant_like(a, arguments[i]) if arguments and i in arguments else a for i, a in enumerate(at.args)]
        made: Expr = Call(type(at.op)(**{**at.op.attributes(), **attributes}), args, span=at.span)
        for e in reversed(above):
            made = with_operands(e, [made, *operands(e)[1:]])
        return made

    return change


def result_quantized(root: Any, scale: float, zero: int) -> Callable[[Any], Any]:
    """A function that replaces the scale and zero point of a match's result, the last arguments of the last call."""
    count = len(root.args)
    return edited(root.op.name, {count - 2: scale, count - 1: zero})


def _constant_like(old: Expr, value: Any) -> Constant:
    """A constant filled with `value`, of the type of the replaced constant."""
    kind = tensor(old)
    return Constant(np.full(kind.concrete_shape, value, kind.dtype.numpy()))


def tensor(e: Expr) -> TensorType:
    """The type of a tensor. Raises `CompileError` for other values."""
    kind = e.checked_type
    if not isinstance(kind, TensorType):
        raise CompileError(f"the value of a pattern must be a tensor, but it is {kind!r}", e.span, code="TW0413")
    return kind


def value_of(e: Expr) -> Any:
    """The value of a constant. Raises `CompileError` for other expressions."""
    if not isinstance(e, Constant):
        raise CompileError(f"a constant of a pattern is a {type(e).__name__}; match it with is_constant()", e.span,
                           code="TW0413")
    return e.value


def inner(e: Expr, name: str) -> Call:
    """The nearest call of operator `name` at or above `e`, along first arguments. Raises `CompileError` without one."""
    return chain_to(e, name)[-1]


def chain_to(e: Expr, name: str) -> list[Call]:
    """The calls from `e` to the nearest one of operator `name`, along first arguments. Raises `CompileError` without
    one.
    """
    found: list[Call] = []
    at: Any = e
    while isinstance(at, Call) and isinstance(at.op, Op):
        found.append(at)
        if at.op.name == name:
            return found
        at = at.args[0] if at.args else None
    raise CompileError(f"the match of a pattern has no operator {name}", e.span, code="TW0413")


def bias_is_of_channels(chain: Sequence[Call]) -> Rule:
    """The bias of a convolution or product, the last call of `chain`, is added along its channel axis."""
    product, bias = chain[-1], next((c for c in chain if c.op.name == "nn.bias_add"), None)
    op: Any = product.op
    channels = (getattr(op, "out_layout", "") or getattr(op, "data_layout", "NC")).index("C")
    axis = channels if bias is None else bias.op.axis % len(tensor(product).shape)
    rule = f"nn.bias_add adds along axis {axis} of {op.name}; it must add along axis {channels}, that of the channels"
    return axis == channels, rule, f"make axis {channels}", edited("nn.bias_add", axis=channels)


def dtype_is(e: Expr, allowed: Sequence[str], what: str) -> Rule:
    """The dtype of `e` is one of `allowed`."""
    found = str(tensor(e).dtype)
    return found in allowed, f"{what} is {found}; it must be {' or '.join(allowed)}", f"convert {what} to {allowed[0]}"


def rank_is(e: Expr, allowed: Sequence[int], what: str) -> Rule:
    """The rank of `e` is one of `allowed`."""
    rank = len(tensor(e).shape)
    return (rank in allowed, f"{what} has {rank} dimensions; it must have {' or '.join(map(str, allowed))}",
            f"reshape {what}")


def batch_is_one(e: Expr, what: str) -> Rule:
    """The first dimension of `e` is 1."""
    shape = tensor(e).shape
    return (bool(shape) and shape[0] == 1, f"{what} has a batch of {shape[0] if shape else 'none'}; it must be 1",
            "compile the network for a batch of 1")


def weight_is_around_zero(call: Call) -> Rule:
    """The zero point of the weight of a quantized convolution or product is 0."""
    weight, zero = (value_of(call.args[i]) for i in (1, 3))

    def change(root: Any) -> Any:
        return edited(call.op.name, {1: _around_zero(call, weight, zero), 3: 0})(root)

    rule = f"the zero point of the weight of {call.op.name} is {zero}; it must be 0"
    found = not np.any(zero), rule, "quantize the weight around 0"
    # an unsigned weight has no negative numbers
    return (*found, change) if np.issubdtype(weight.dtype, np.signedinteger) else found


def _around_zero(call: Call, weight: Any, zero: Any) -> Any:
    """The weight minus its zero point (a scalar, or one per output channel), clipped to the range of its type."""
    op: Any = call.op
    if np.size(zero) > 1:
        outputs = op.kernel_layout.index("O") if "kernel_layout" in op.attributes() else 0
        zero = np.reshape(zero, [-1 if i == outputs else 1 for i in range(np.ndim(weight))])
    limits = np.iinfo(weight.dtype)
    return np.clip(weight.astype("int64") - zero, limits.min, limits.max)


def attr_is(call: Call, name: str, allowed: Sequence[Any]) -> Rule:
    """The attribute `name` of a call is one of `allowed`."""
    found = getattr(call.op, name)
    return (found in allowed, f"{name} of {call.op.name} is {found}; it must be {' or '.join(map(str, allowed))}",
            f"make {name} {allowed[0]}")


def partition_with(
    table: PatternTable, target: str, mod: IRModule, params: dict[str, Any] | None, mod_name: str = "default",
    before: Sequence[Pass] = (), after: Sequence[Pass] = (), dtypes: Sequence[str] = (),
) -> IRModule:
    """Implementation of TVM's `partition_for_<target>`.

    Binds the parameters, makes composites of the patterns of `table`, assigns them to `target`, and makes functions of
    them. With `dtypes`, quantized networks of PyTorch and ONNX become channels-last networks of one of these types
    first, with the rounding of TensorFlow Lite: the form of the tables (`relay.qnn.transform.Unify`).
    """
    from tilewright.backends.accelerators import library_calls
    from tilewright.relay import transform
    from tilewright.relay.qnn.unify import unified_for
    from tilewright.relay.transform.bind_params import bind_params_by_name

    if params:
        mod = mod.copy()
        mod["main"] = bind_params_by_name(mod["main"], params)
    library_calls.register_generators()
    if dtypes and _rounds_otherwise(mod["main"]):
        mod = unified_for(transform.InferType()(mod), "NHWC", dtypes, ROUNDING)
    passes: list[Pass] = [
        transform.InferType(), *before, transform.InferType(), transform.MergeComposite(table),
        transform.AnnotateTarget(target),
        *after, transform.MergeCompilerRegions(), transform.PartitionGraph(mod_name),
    ]
    return Sequential(passes)(mod)


def _rounds_otherwise(main: Any) -> bool:
    """Return whether a quantized network comes from PyTorch (by the attribute of `main`) or ONNX (by the rounding of
    its operators), so that it is not in the form of TensorFlow Lite."""
    from tilewright.relay.qnn.sources import NUMERICS

    named = str(main.attrs.get(NUMERICS) or ROUNDING)
    return not named.startswith(ROUNDING) or any(getattr(c.op, "rounding", "") == "TOEVEN" for c in calls(main.body))
