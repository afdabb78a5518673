"""Layouts requested by operator name: converts a call to a requested layout if its shapes permit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tilewright.base.errors import OptionError
from tilewright.base.types import TensorType
from tilewright.ir.op_attributes import op_attr
from tilewright.relay.expr import Call, Expr, Function, Var
from tilewright.relay.op import hooks
from tilewright.relay.op.nn_conv import Convolution
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.chosen_sweep import Choice, ChosenSweep, layout_names
from tilewright.relay.visitor import post_order, with_operands
from tilewright.tir.data_layout import bijective_layout, layout


class LayoutConfig:
    """Excludes operators from `ConvertLayout`: `with LayoutConfig(skip_layers=[0, 2]): …` skips the first and third
    operator that it would convert."""

    current: ClassVar[LayoutConfig | None] = None

    def __init__(self, skip_layers: Sequence[int] | None = None) -> None:
        self.skip_layers = tuple(skip_layers or ())
        self.layer_count = 0
        self._before: list[LayoutConfig | None] = []

    def check_skip(self) -> bool:
        """Count an operator, and return whether it is skipped."""
        self.layer_count += 1
        return self.layer_count - 1 in self.skip_layers

    def reset(self) -> None:
        """Reset the counter and clear `skip_layers`."""
        self.skip_layers, self.layer_count = (), 0

    def __enter__(self) -> LayoutConfig:
        self.layer_count = 0
        self._before.append(LayoutConfig.current)
        LayoutConfig.current = self
        return self

    def __exit__(self, *exc: object) -> None:
        LayoutConfig.current = self._before.pop()


class _NamedSweep(ChosenSweep):
    """A sweep that names the layouts it goes between, as TVM does."""

    by_letters = True


def with_layouts(function: Function, choose: Choice) -> Function:
    """Replace the operator of each call by `choose(call)`, the same operator in other layouts."""
    order = post_order(function.body, inside=False)
    sweep = _NamedSweep(order, choose)
    for e in order:
        sweep.visit(e)
    body = sweep.logical(function.body)
    return function if body is function.body else with_operands(function, [body])  # type: ignore[return-value]


def desired(layouts: Mapping[str, Sequence[str]]) -> Choice:
    """Choose these data and kernel layouts by operator name; "default" selects the usual layout."""

    def choose(e: Call) -> Op | None:
        wanted = layouts.get(e.op.name)
        if wanted is None or (LayoutConfig.current is not None and LayoutConfig.current.check_skip()):
            return None
        hook = op_attr(e.op.name, hooks.CONVERT_OP_LAYOUT)
        if hook is not None:
            return operator_of(e, hook(e.attrs, placeholders(e), [*(a.checked_type for a in e.args), e.checked_type],
                                       list(wanted)), "ConvertLayout")
        return fitting(e, in_layouts(e.op, tuple(wanted)))

    return choose


def fitting(e: Call, op: Op) -> Op | None:
    """Return `op` as the replacement of `e.op`; None if the channels of `e` would not fill its blocks.

    Input channels may be fewer than their blocks hold if this is so in both data and kernel. A depthwise kernel has one
    input channel, in blocks of one.
    """
    old, new = layout_names(e.op), layout_names(op)
    if old == new or not any(layout(n).blocked for n in new):
        return op
    kind = e.args[0].checked_type
    plain = layout(old[0]).plain
    if "C" not in plain or not isinstance(kind, TensorType):
        return None
    channels = bijective_layout(old[0], plain).forward_shape(kind.shape)[plain.index("C")]
    block = max(1, layout(new[0]).factor_of("C"))
    if not isinstance(op, Convolution):
        return op if isinstance(channels, int) and channels % block == 0 else None
    return _fitting_kernel(e, op, channels, block)


def _fitting_kernel(e: Call, op: Convolution, channels: Any, block: int) -> Op | None:
    outputs, depth, *_ = e.op.kernel_shape(e.args[1].checked_type)
    if not all(isinstance(n, int) for n in (channels, outputs, depth)):
        return None
    if e.op.groups > 1 and depth == 1:
        op = type(op)(**{**op.attributes(), "kernel_layout": re.sub(r"\d+i", "1i", op.kernel_layout)})
    kernel = layout(op.kernel_layout)
    inner, outer = max(1, kernel.factor_of("I")), max(1, kernel.factor_of("O"))
    if outputs % block or outputs % outer:
        return None
    if e.op.groups > 1:
        return None if channels % block or depth % inner else op
    return op if -(-channels // block) * block == -(-depth // inner) * inner else None


def in_layouts(op: Any, wanted: Sequence[str]) -> Op:
    """Return an operator with other layouts. Raises `OptionError` for an operator without layouts."""
    attrs = op.attributes()
    name = "data_layout" if "data_layout" in attrs else "layout"
    if name not in attrs:
        raise OptionError(f"{op.name} has no layout; remove it from desired_layouts", code="TW0410")
    data = attrs[name] if wanted[0] == "default" else wanted[0]
    changed: dict[str, Any] = {name: data}
    if "kernel_layout" in attrs:
        kernel = wanted[1] if len(wanted) > 1 else "default"
        if kernel == "default":
            kernel = (attrs["kernel_layout"] if data == attrs[name]
                      else default_kernel_layout(data, getattr(op, "transposed", False)))
        changed["kernel_layout"] = kernel
    if attrs.get("out_layout"):
        changed["out_layout"] = ""
    found: Op = type(op)(**{**attrs, **changed})
    return found


def default_kernel_layout(data: str, transposed: bool = False) -> str:
    """Return the kernel layout for a data layout: OIHW for NCHW, HWIO for NHWC, OIHW8i8o for NCHW8c."""
    block = layout(data).factor_of("C")
    if block > 0:
        return default_kernel_layout(layout(data).plain, transposed) + f"{block}i{block}o"
    spatial = "".join(c for c in data if c not in "NC")
    pair = "IO" if transposed else "OI"
    return pair + spatial if data.endswith(spatial) else spatial + pair[::-1]


def placeholders(e: Call) -> list[Expr]:
    """Return variables of unknown type for the arguments, whose types depend on the layout."""
    return [Var(f"p{k}") for k in range(len(e.args))]


def operator_of(e: Call, found: Any, name: str) -> Op | None:
    """Return the operator that a hook chose for `e`. Raises `OptionError` if the hook returned anything but a call of
    an operator over the same arguments."""
    if found is None:
        return None
    if not (
        isinstance(found, Call) and isinstance(found.op, Op)
        and len(layout_names(found.op)) == len(layout_names(e.op)) > 0
        and len(found.args) == len(e.args) and all(isinstance(a, Var) for a in found.args)
    ):
        raise OptionError(
            f"the hook of {e.op.name} for {name} must return a call of {e.op.name} on its inputs, in "
            "order, with other layouts, or of another operator with the same number of layouts", code="TW0409")
    return found.op
