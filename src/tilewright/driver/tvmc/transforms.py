"""Changes of a network before compilation: layouts of some operators, and operators computed in 16-bit floats."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import register_op_attr, registrations, reset_op_attr
from tilewright.ir.transform import Sequential
from tilewright.relay.op.hooks import MIXED_PRECISION
from tilewright.relay.op.registry import get
from tilewright.relay.transform.convert_layout import ConvertLayout
from tilewright.relay.transform.infer_type import InferType

LAYOUT_OPERATORS: Final = ("nn.conv2d", "nn.conv2d_transpose", "qnn.conv2d")
"""The operators that change their layout by default."""
_ALWAYS: Final = 0


def with_layouts(mod: IRModule, layouts: Sequence[str], operators: Sequence[str] = ()) -> IRModule:
    """Return the network with these layouts, `NHWC` or `NHWC:HWIO`: one for all operators, or one for each. Raises
    `OptionError`."""
    wanted = desired_layouts(layouts, list(operators) or LAYOUT_OPERATORS)
    return Sequential([InferType(), ConvertLayout(wanted), InferType()])(mod)


def desired_layouts(layouts: Sequence[str], operators: Sequence[str]) -> dict[str, list[str]]:
    """Return the layouts of data and kernel by operator. Raises `OptionError` unless there is one for all operators, or
    one for each."""
    if len(layouts) not in (1, len(operators)):
        raise OptionError(
            f"--desired-layout: {len(layouts)} layouts for {len(operators)} operators; give one for all of them, or "
            "one for each",
            code="TW0410")
    given = list(layouts) * len(operators) if len(layouts) == 1 else list(layouts)
    return {name: _layouts(text) for name, text in zip(operators, given, strict=True)}


def _layouts(text: str) -> list[str]:
    """Return `NHWC:HWIO` as layouts of data and kernel; without the latter, the operator chooses it."""
    data, _, kernel = text.partition(":")
    if not data.isalnum() or (kernel and not kernel.isalnum()):
        raise OptionError(
            f"--desired-layout: '{text}' is not a layout; write NCHW, or with the kernel's NHWC:HWIO", code="TW0410")
    return [data, kernel or "default"]


class MixedPrecision:
    """A context inside which `ToMixedPrecision` always computes these operators in its type, and sums in `acc_type`.

    The attributes of other operators do not matter there; the operators get their own ones back at the end.
    """

    def __init__(self, ops: Sequence[str], acc_type: str) -> None:
        self.ops, self.acc_type = list(ops), acc_type
        self._entered = ExitStack()

    def __enter__(self) -> MixedPrecision:
        for name in self.ops:
            get(name)

        def always(call: Any, mixed: str) -> list[Any]:
            return [_ALWAYS, self.acc_type, mixed]

        self._entered.enter_context(registrations())
        for name in self.ops:
            reset_op_attr(name, MIXED_PRECISION)
            register_op_attr(name, MIXED_PRECISION, always)
        return self

    def __exit__(self, *error: object) -> None:
        self._entered.close()
