"""Changes of a network before compilation: layouts of some operators, and operators computed in 16-bit floats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


@contextmanager
def computed_in(operators: Sequence[str], kind: str, sums: str) -> Iterator[None]:
    """Inside the block, compute these operators in the dtype `kind`, and sum in `sums`, regardless of their own
    attributes."""
    for name in operators:
        get(name)

    def always(call: Any, mixed: str) -> list[Any]:
        return [_ALWAYS, sums, kind]

    with registrations():
        for name in operators:
            reset_op_attr(name, MIXED_PRECISION)
            register_op_attr(name, MIXED_PRECISION, always)
        yield
