"""Layouts requested by operator name: converts a call to a requested layout if its shapes permit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from tilewright.base.errors import OptionError
from tilewright.base.types import TensorType
from tilewright.ir.op_attributes import op_attr
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op import hooks
from tilewright.relay.op.nn_conv import Conv, Conv2d, Convolution, ConvTranspose
from tilewright.relay.op.nn_conv_blocks import Conv2dNCHWc, DepthwiseConv2dNCHWc
from tilewright.relay.op.nn_norm import BatchNorm
from tilewright.relay.op.nn_pool import Spatial
from tilewright.relay.op.registry import Op, Relaid
from tilewright.relay.op.shaping import ExpandDims, Squeeze
from tilewright.relay.op.transform import Transpose
from tilewright.relay.transform.chosen_sweep import Choice, ChosenSweep, layout_names
from tilewright.relay.transform.layout_sweep import Stored
from tilewright.relay.transform.letter_rules import relaid
from tilewright.relay.transform.permutations import Perm, axes_of
from tilewright.relay.visitor import post_order, rewrite, substitute, with_operands
from tilewright.tir.data_layout import bijective_layout, layout
from tilewright.topi.orders import has_blocks


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

    def widened(self, x: Expr, perm: Perm, wide: TensorType, e: Expr) -> Expr:
        """Add leading axes by `expand_dims`; a value of one element broadcasts as it is."""
        if all(d == 1 for d in wide.shape):
            return x
        if isinstance(x, Constant):
            return super().widened(x, perm, wide, e)
        more = ExpandDims(axis=0, num_newaxis=wide.ndim - x.tensor_type.ndim)
        return self.turn(Call(more, [x], span=x.span), None, perm, wide, e)

    def _permuted(self, e: Call, perms: Sequence[Perm | None]) -> Relaid | None:
        how = super()._permuted(e, perms)
        if how is None and (how := relaid(e, perms)) is not None:
            self._pass_letters(e, e.args, perms)
        return how

    def special(self, e: Call, perms: list[Perm | None]) -> Stored | None:
        perm = perms[0]
        if perm is None or has_blocks(perm):
            return super().special(e, perms)
        stored, known = self.stored[e.args[0]].expr, self.letters.get((e.args[0], len(perm)))
        if isinstance(e.op, Transpose):
            return Stored(Call(Transpose(tuple(perm.index(a) for a in axes_of(e))), [stored], span=e.span), None)
        if isinstance(e.op, Squeeze) and known is not None and (
                how := e.op.reblock(perms, [e.args[0].tensor_type])) is not None:
            op, _, result = how
            self.letters[e, e.tensor_type.ndim] = "".join(
                known[p] for p in sorted(p for k, p in enumerate(perm) if k not in op.axis))  # type: ignore[attr-defined]
            return Stored(Call(op, [stored], span=e.span), result)
        if isinstance(e.op, BatchNorm):
            return self._batch_norm(e, perm)
        return super().special(e, perms)

    def _batch_norm(self, e: Call, perm: Perm) -> Stored:
        """Move the axis of the channels. The fields of the result are stored in different orders."""
        data, *params = e.args
        op = type(e.op)(**{**e.op.attributes(), "axis": perm.index(e.op.axis % len(perm))})
        new = Call(op, [self.in_order(data, perm), *map(self.logical, params)], span=e.span)
        fields = tuple(TupleGetItem(e, k, e.span) for k in range(3))
        for k, f in enumerate(fields):
            self.stored[f] = Stored(TupleGetItem(new, k, e.span), perm if k == 0 else None)
        known = self.letters.get((data, len(perm)))
        if known is not None:
            self.letters[e, len(perm)] = self.letters[fields[0], len(perm)] = known
        self.instead[e] = Tuple(fields, e.span)
        return Stored(Tuple(tuple(map(self.logical, fields)), e.span), None)


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
            inputs = placeholders(e)
            found = chosen_by_hook(e, inputs, hook(
                e.attrs, inputs, [*(a.checked_type for a in e.args), e.checked_type], list(wanted)), "ConvertLayout")
            return None if found is None else found[0]
        return fitting(e, _as_named(e, tuple(wanted)))

    return choose


def _as_named(e: Call, wanted: tuple[str, ...]) -> Op:
    """Return the operator in these layouts in TVM's form: a pool names the layout of its result, too, and a
    two-dimensional convolution of blocks is `nn.contrib_conv2d_NCHWc`."""
    old = e.op.attributes()
    if "kernel_layout" in old and isinstance(e.op, (Conv, ConvTranspose)) and (*wanted, "default")[1] == "default":
        wanted = (wanted[0], _usual_kernel(e, old["data_layout"] if wanted[0] == "default" else wanted[0]))
    found = in_layouts(e.op, wanted)
    new = found.attributes()
    if isinstance(found, Spatial) and "out_layout" in new:
        return type(found)(**{**new, "out_layout": new["layout"]})
    if type(found) is not Conv2d or not re.fullmatch(r"NCHW\d+c", new["data_layout"]):
        return found
    depthwise = new["groups"] > 1 and e.op.kernel_shape(e.args[1].tensor_type)[1] == 1
    if new["groups"] > 1 and not depthwise:
        return found
    return (DepthwiseConv2dNCHWc if depthwise else Conv2dNCHWc)(**new)


def _usual_kernel(e: Call, data: str) -> str:
    """Return TVM's kernel layout for a data layout: HWIO for NHWC, or HWOI if the convolution is depthwise."""
    if data == "HWNC":
        return "HWOI"
    if data == "NHWC" and isinstance(e.op, Conv) and e.op.groups > 1 and isinstance(e.args[1].known_type(), TensorType):
        return "HWOI" if e.op.kernel_shape(e.args[1].tensor_type)[1] == 1 else "HWIO"
    return default_kernel_layout(data, getattr(e.op, "transposed", False))


def fitting(e: Call, op: Op) -> Op | None:
    """Return `op` as the replacement of `e.op`; None if the channels of `e` would not fill its blocks.

    A depthwise kernel has one input channel, in blocks of one.
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
    return None if channels % block or depth % inner else op


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


def chosen_by_hook(e: Call, inputs: Sequence[Expr], found: Any, name: str) -> tuple[Op, list[Expr]] | None:
    """Return the operator that a hook chose for `e`, and its arguments in the layouts of `e`; None for no choice.

    `inputs` are the placeholders that the hook received. Raises `OptionError` if the hook returned anything but a call
    of an operator over the inputs, or over expressions of the same types.
    """
    if found is None:
        return None
    if isinstance(found, Call) and isinstance(found.op, Op) and len(found.args) == len(e.args) and (
            len(layout_names(found.op)) == len(layout_names(e.op))):
        own = dict(zip(inputs, e.args, strict=True))
        args = [own[a] if a in own else rewrite(substitute(a, own), _typed) for a in found.args]
        if [a.known_type() for a in args] == [a.known_type() for a in e.args]:
            return found.op, args
    raise OptionError(
        f"the hook of {e.op.name} for {name} must return a call of {e.op.name} on its inputs, in "
        "order, with other layouts, or of another operator with the same number of layouts", code="TW0409")


def _typed(e: Expr) -> Expr | None:
    """Infer the type of a node whose operands have types now."""
    if e.known_type() is None:
        e.set_type(e.infer_type())
    return None
