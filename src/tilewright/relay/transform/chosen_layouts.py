"""Layouts that somebody chose for some operators, carried through the operators between them.

The sweep is that of `ConvertLayout`; here a call is asked in which layouts it shall work, and the others follow where they can.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from tilewright.errors import OptionError
from tilewright.ir.op_attributes import op_attr
from tilewright.relay.expr import Call, Expr, Function, Var
from tilewright.relay.op import hooks
from tilewright.relay.op.nn_conv import Convolution
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.layout_sweep import Relaid, Stored, Sweep
from tilewright.relay.transform.movement import Perm, is_identity
from tilewright.relay.visitor import consumers, post_order, with_operands
from tilewright.topi.layouts import axes_between

Choice = Callable[[Call], "Op | None"]


class LayoutConfig:
    """`with LayoutConfig(skip_layers=[0, 2]): ConvertLayout(…)(mod)` leaves these of the operators that it would convert, counted in order."""

    current: ClassVar[LayoutConfig | None] = None

    def __init__(self, skip_layers: Sequence[int] | None = None) -> None:
        self.skip_layers = tuple(skip_layers or ())
        self.layer_count = 0
        self._before: list[LayoutConfig | None] = []

    def check_skip(self) -> bool:
        """Whether the next operator is one of those to be left; counts it."""
        self.layer_count += 1
        return self.layer_count - 1 in self.skip_layers

    def reset(self) -> None:
        """Count from the beginning, with nothing to be left."""
        self.skip_layers, self.layer_count = (), 0

    def __enter__(self) -> LayoutConfig:
        self.layer_count = 0
        self._before.append(LayoutConfig.current)
        LayoutConfig.current = self
        return self

    def __exit__(self, *exc: object) -> None:
        LayoutConfig.current = self._before.pop()


def with_layouts(function: Function, choose: Choice) -> Function:
    """`function` with every call of an operator in the layouts of `choose(call)`: another operator over the same arguments."""
    order = post_order(function.body, inside=False)
    sweep = _ChosenSweep(order, choose)
    for e in order:
        sweep.visit(e)
    body = sweep.logical(function.body)
    return function if body is function.body else with_operands(function, [body])  # type: ignore[return-value]


class _ChosenSweep(Sweep):
    def __init__(self, order: Sequence[Expr], choose: Choice) -> None:
        super().__init__(consumers(order))
        self.choose = choose

    def rule(self, e: Call, perms: Sequence[Perm | None]) -> Relaid | None:
        chosen = self.choose(e)
        if chosen is not None:
            return _relaid(e, chosen)
        if isinstance(e.op, Convolution):
            return (e.op, (None,) * len(perms), None)
        return e.op.relayout(perms) if any(p is not None for p in perms) else None

    def special(self, e: Call, perms: list[Perm | None]) -> Stored | None:
        return self.movement(e, perms[0]) if perms[0] is not None else None


def _relaid(e: Call, other: Op) -> Relaid:
    """What operator `other` wants of the arguments of `e`, and how its result stands to that of `e`."""
    if other == e.op:
        return e.op, (None,) * len(e.args), None
    old, new = e.op.attributes(), other.attributes()
    name = "data_layout" if "data_layout" in old else "layout"
    wanted: list[Perm | None] = [None] * len(e.args)
    wanted[0] = _perm(old[name], new[name])
    if "kernel_layout" in old:
        wanted[1] = _perm(old["kernel_layout"], new["kernel_layout"])
    before, after = old.get("out_layout") or old[name], new.get("out_layout") or new[name]
    return other, tuple(wanted), _perm(before, after)


def _perm(before: str, after: str) -> Perm | None:
    perm = axes_between(before, after, "layout")
    return None if is_identity(perm) else perm


def desired(layouts: Mapping[str, Sequence[str]]) -> Choice:
    """The operators of these names in these layouts: that of the data and that of the kernel, or "default"."""

    def choose(e: Call) -> Op | None:
        wanted = layouts.get(e.op.name)
        if wanted is None or (LayoutConfig.current is not None and LayoutConfig.current.check_skip()):
            return None
        hook = op_attr(e.op.name, hooks.CONVERT_OP_LAYOUT)
        if hook is not None:
            return operator_of(e, hook(e.attrs, placeholders(e), [*(a.checked_type for a in e.args), e.checked_type], list(wanted)), "ConvertLayout")
        return in_layouts(e.op, tuple(wanted))

    return choose


def in_layouts(op: Any, wanted: Sequence[str]) -> Op:
    """An operator with other layouts; raises `OptionError` for one that has none."""
    attrs = op.attributes()
    name = "data_layout" if "data_layout" in attrs else "layout"
    if name not in attrs:
        raise OptionError(f"{op.name} has no layout to choose; take it out of desired_layouts")
    data = attrs[name] if wanted[0] == "default" else wanted[0]
    changed: dict[str, Any] = {name: data}
    if "kernel_layout" in attrs:
        kernel = wanted[1] if len(wanted) > 1 else "default"
        if kernel == "default":
            kernel = attrs["kernel_layout"] if data == attrs[name] else default_kernel_layout(data, getattr(op, "transposed", False))
        changed["kernel_layout"] = kernel
    if attrs.get("out_layout"):
        changed["out_layout"] = ""
    found: Op = type(op)(**{**attrs, **changed})
    return found


def default_kernel_layout(data: str, transposed: bool = False) -> str:
    """The kernel's layout that goes with one of the data: OIHW with NCHW, HWIO with NHWC."""
    spatial = "".join(c for c in data if c not in "NC")
    pair = "IO" if transposed else "OI"
    return pair + spatial if data.endswith(spatial) else spatial + pair[::-1]


def placeholders(e: Call) -> list[Expr]:
    """Variables of unknown type in place of the arguments: in other layouts they have other types."""
    return [Var(f"p{k}") for k in range(len(e.args))]


def operator_of(e: Call, found: Any, name: str) -> Op | None:
    """The operator that a hook put in place of `e.op`, over its arguments; raises `OptionError` when it made anything else."""
    if found is None:
        return None
    if not (isinstance(found, Call) and type(found.op) is type(e.op) and len(found.args) == len(e.args) and all(isinstance(a, Var) for a in found.args)):
        raise OptionError(f"the hook of {e.op.name} for {name} must return a call of {e.op.name} on its inputs, in their order, with other layouts")
    return found.op  # type: ignore[no-any-return]
