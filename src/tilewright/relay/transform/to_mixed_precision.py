"""Compute in 16-bit floats where this pays: products always, and the operators between them depending on their inputs.

    %0 = nn.conv2d(%x, w); nn.relu(add(%0, b))
    -> %0 = cast(%x, "bfloat16"); %1 = nn.conv2d(%0, w16, out_dtype="float32"); nn.relu(cast(add(%1, b), "bfloat16"))

Every operator class declares its category, `Op.precision`. `Op.mixed_precision` can decide by the types of a call.

- ALWAYS: float32 arguments are cast, except those of `Op.wide`. An operator with an `out_dtype` sums in the
  accumulation type, and its result is cast.
- FOLLOW: 16 bits if every argument that is neither a constant nor a variable has 16 bits; otherwise like NEVER.
- NEVER: 16-bit arguments are cast back to float32.

By default the categories are those of TVM, whose kernels sum in 16 bits: `softmax` and averages stay in float32. With
`wide_kernels`, they follow, because kernels here sum in float32, and operators of variables alone stay in float32. An
elementwise operator with a constant (a bias, a scale) then keeps the constant in float32: its arguments are widened and
its result is rounded.

A program can override the category and the types of sums and results with
`relay.op.register_mixed_precision_conversion`. `missing_op_mode` applies to operators without a category.

Constants are cast at compile time. A pair of casts to 16 bits and back without another reader is removed. Kernels widen
values once when reading and round once when writing, so casts inside a kernel cost neither time nor precision. For
this, each reader gets its own cast. A variable bound by `let` gets the type of its new value. Products of bfloat16 are
computed in pairs (`intrinsics.dot2`); such instructions may flush subnormal numbers to zero.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tilewright.base.errors import CompileError, MixedPrecisionWarning, OptionError
from tilewright.base.types import FLOAT32, DataType, TensorType, TupleType, tensors_of
from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import op_attr
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from tilewright.relay.op import hooks
from tilewright.relay.op.elementwise import Cast, converted
from tilewright.relay.op.registry import Fusion, Op, Precision
from tilewright.relay.visitor import consumers, operands, post_order, with_operands

TYPES: Final = ("float16", "bfloat16", "float64")
CATEGORIES: Final = (Precision.ALWAYS, Precision.FOLLOW, Precision.NEVER)
"""Categories by their numbers in hooks."""
TVM_CATEGORIES: Final = {
    **dict.fromkeys(("nn.batch_norm", "nn.dropout"), Precision.FOLLOW),
    **dict.fromkeys((
        "nn.softmax", "nn.log_softmax", "nn.l2_normalize", "nn.global_avg_pool2d", "nn.adaptive_avg_pool1d",
        "nn.adaptive_avg_pool2d", "nn.adaptive_avg_pool3d"), Precision.NEVER),
}
"""Categories of TVM that differ from those of the operators' classes."""


@dataclass(frozen=True)
class ToMixedPrecision(FunctionPass):
    """Convert float32 to `mixed_precision_type` by the categories of the operators. Needs and leaves known types.

    `acc_dtype` is the type of the sums of products, by default `mixed_precision_type`. `missing_op_mode` applies to
    operators without a category: 0 raises one `CompileError` for all, 1 keeps float32 and warns once for each, 2 keeps
    float32. Results keep their types with `relay.ToMixedPrecision.keep_orig_output_dtype`. Fold scales and constants
    first, so that their rounding errors are not stored. `wide_kernels` selects the categories of this compiler. Raises
    `OptionError` for other types and modes, and for invalid results of hooks.
    """

    mixed_precision_type: str = "float16"
    missing_op_mode: int = 1
    acc_dtype: str | None = None
    keep_orig_output_dtype: bool | None = None
    wide_kernels: bool = False
    exact: ClassVar[bool] = False
    kind: ClassVar[type] = Function
    required: ClassVar[tuple[str, ...]] = ("InferType",)

    def __post_init__(self) -> None:
        if self.mixed_precision_type not in TYPES:
            raise OptionError(f"mixed precision supports {', '.join(TYPES)}, not "
                              f"'{self.mixed_precision_type}'", code="TW0418")
        if self.missing_op_mode not in (0, 1, 2):
            raise OptionError(f"missing_op_mode must be 0, 1 or 2, not {self.missing_op_mode!r}", code="TW0418")
        if self.acc_dtype not in (None, "float32", self.mixed_precision_type):
            raise OptionError(f"products of {self.mixed_precision_type} can be summed in "
                              f"{self.mixed_precision_type} or in float32, not in '{self.acc_dtype}'", code="TW0418")

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        if self.missing_op_mode < 2:
            self._check_categories(mod)
        return super().transform_module(mod, context)

    def _check_categories(self, mod: IRModule) -> None:
        """Report operators without a category, as `missing_op_mode` 0 or 1 requires."""
        missing: dict[str, list[Call]] = {}
        for _, f in mod.items():
            for e in post_order(f.body, inside=False) if isinstance(f, Function) and _is_converted(f) else ():
                if (isinstance(e, Call) and isinstance(e.op, Op) and e.op.precision is None
                        and op_attr(e.op.name, hooks.MIXED_PRECISION) is None):
                    missing.setdefault(e.op.name, []).append(e)
        advice = "register one with relay.op.register_mixed_precision_conversion"
        if missing and self.missing_op_mode == 0:
            first = next(iter(missing.values()))[0]
            raise CompileError("these operators have no category in mixed precision: "
                               f"{', '.join(sorted(missing))}; {advice}, or keep them in "
                               "float32 with missing_op_mode=2", first.span, code="TW0418")
        for name, calls in missing.items():
            times = "once" if len(calls) == 1 else f"{len(calls)} times"
            warnings.warn(f"{name}, called {times}, has no category in mixed precision and stays in float32; {advice}",
                          MixedPrecisionWarning, stacklevel=5)

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        if not _is_converted(function):
            return function
        keep = self.keep_orig_output_dtype
        keep = context.get("relay.ToMixedPrecision.keep_orig_output_dtype") if keep is None else keep
        half = DataType(self.mixed_precision_type)
        conversion = _Conversion(half, DataType(self.acc_dtype or half), self.wide_kernels)
        body = conversion.converted(function.body, keep)
        body = _without_pairs(body)
        return function if body is function.body else with_operands(function, [body])


def _is_converted(function: Function) -> bool:
    return not function.attrs.get("Primitive") and "Compiler" not in function.attrs


@dataclass(frozen=True, slots=True)
class _Said:
    """The decision about a call: its category, the type of its sums, and the type of its result."""

    category: Precision
    accumulate: DataType
    result: DataType
    rounds: bool
    """Whether the result is rounded to its type even if the call is computed in float32."""


class _Conversion:
    """The new expression of each old one; float32 tensors may have become `half`."""

    def __init__(self, half: DataType, accumulate: DataType, wide_kernels: bool) -> None:
        self.half, self.accumulate, self.wide_kernels = half, accumulate, wide_kernels
        self.bound: dict[Expr, Expr] = {}
        self.new: dict[Expr, Expr] = {}
        self.casts: dict[tuple[Expr, DataType], Expr] = {}

    def converted(self, body: Expr, keep: bool) -> Expr:
        order = post_order(body, inside=False)
        self.bound = {e.var: e.value for e in order if isinstance(e, Let)}
        for e in order:
            self.new[e] = self.node(e)
        return self.restored(body) if keep else self.new[body]

    def node(self, e: Expr) -> Expr:
        if isinstance(e, Call) and isinstance(e.op, Op):
            return self.call(e, e.op)
        if isinstance(e, Var) and e in self.bound:
            return self.variable(e)
        old = operands(e)
        if isinstance(e, Let):
            var = self.new.get(e.var, e.var)
            assert isinstance(var, Var)
            value = self.new[e.value] if var is not e.var else self.restored(e.value)
            return Let(var, value, self.new[e.body], e.span) if self.changes(e) else e
        if isinstance(e, (Tuple, TupleGetItem)):
            return self.rebuilt(e, [self.new[o] for o in old])
        return self.rebuilt(e, [self.restored(o) if o in self.new else o for o in old])

    def variable(self, e: Var) -> Var:
        """Return a variable bound by `let`, with the type of its new value."""
        found = self.new[self.bound[e]].checked_type
        return e if found == e.checked_type else Var(e.name_hint, found, e.span)

    def changes(self, e: Let) -> bool:
        """Return whether the parts of a `let` have new forms."""
        return any(self.new.get(o, o) is not o for o in (e.var, e.value, e.body))

    def rebuilt(self, e: Expr, new: Sequence[Expr]) -> Expr:
        return e if all(a is b for a, b in zip(operands(e), new, strict=True)) else with_operands(e, new)

    def call(self, e: Call, op: Op) -> Expr:
        if isinstance(op, Cast):
            return self.cast(self.new[e.args[0]], DataType(op.dtype), e)
        said = self.said(e, op)
        follows = said.category is Precision.FOLLOW and self.in_half(e)
        constant = any(isinstance(a, Constant) for a in e.args)
        biased = self.wide_kernels and follows and op.kind <= Fusion.BROADCAST and constant
        if said.category is Precision.ALWAYS or (follows and not biased):
            args = [self.restored(a) if k in op.wide else self.of_type(self.new[a], self.half)
                    for k, a in enumerate(e.args)]
            chosen = _summing_in(op, said.accumulate)
            made = self.rebuilt(e, args) if chosen is op else Call(chosen, args, span=e.span)
            return self.of_type(made, said.result)
        made = self.rebuilt(e, [self.restored(a) for a in e.args])
        return self.of_type(made, said.result) if biased or said.rounds else made

    def said(self, e: Call, op: Op) -> _Said:
        """Return the decision of the operator's registered hook, else that of its class."""
        hook = op_attr(op.name, hooks.MIXED_PRECISION)
        if hook is None:
            category = op.mixed_precision([a.checked_type for a in e.args]) or Precision.NEVER
            category = category if self.wide_kernels else TVM_CATEGORIES.get(op.name, category)
            if category is Precision.ALWAYS and not _computes_floats(e):
                category = Precision.NEVER
            return _Said(category, self.accumulate, self.half, op.precision is Precision.ALWAYS)
        said = hook(e, str(self.half))
        types = ("float32", str(self.half))
        if (not isinstance(said, (list, tuple)) or len(said) != 3 or said[0] not in (0, 1, 2)
                or any(str(t) not in types for t in said[1:])):
            raise OptionError(
                f"the hook of {op.name} for ToMixedPrecision returned {said!r}; it must return 0 "
                "(always), 1 (follow) or 2 (never), the type to sum in and the type of the result, "
                f"each {' or '.join(types)}", code="TW0409")
        return _Said(CATEGORIES[int(said[0])], DataType(str(said[1])), DataType(str(said[2])), False)

    def in_half(self, e: Call) -> bool:
        """Return whether all floats among the arguments that are neither constants nor variables are 16-bit, and there
        are some, or one of the variables is a float that may be converted."""
        fields = [f for a in e.args for f in (a.fields if isinstance(a, Tuple) else (a,))]
        values = [f for f in fields if not isinstance(f, (Constant, Var))]
        floats = [t for v in values for t in tensors_of(self.new[v].checked_type) if t.dtype.is_float]
        free = not self.wide_kernels and any(
            t.dtype.is_float for f in fields if isinstance(f, Var) for t in tensors_of(f.checked_type))
        return (bool(floats) or free) and all(t.dtype == self.half for t in floats)

    def of_type(self, e: Expr, dtype: DataType) -> Expr:
        """Return `e` with its float32 and 16-bit tensors converted to `dtype`, field by field for tuples."""
        kind = e.checked_type
        if isinstance(kind, TensorType):
            return self.cast(e, dtype) if kind.dtype in (FLOAT32, self.half) else e
        if isinstance(kind, TupleType) and any(t.dtype in (FLOAT32, self.half) and t.dtype is not dtype
                for t in tensors_of(kind)):
            fields = e.fields if isinstance(e, Tuple) else [TupleGetItem(e, k) for k in range(len(kind.fields))]
            return Tuple(tuple(self.of_type(f, dtype) for f in fields), e.span)
        return e

    def restored(self, e: Expr) -> Expr:
        """Return the new form of `e`, converted to its old type."""
        new = self.new[e]
        return new if new is e or new.checked_type == e.checked_type else self.of_type(new, FLOAT32)

    def cast(self, e: Expr, dtype: DataType, call: Call | None = None) -> Expr:
        if e.tensor_type.dtype is dtype:
            return e
        if call is not None and call.args[0] is e:
            return call
        known = self.casts.get((e, dtype)) if isinstance(e, Constant) or dtype is self.half else None
        if known is None:
            known = (Constant(converted(e.value, str(dtype)), e.span) if isinstance(e, Constant)
                     else Cast(str(dtype))(e, span=e.span))
            self.casts[e, dtype] = known
        return known


def _computes_floats(e: Call) -> bool:
    """Return whether the call computes floats from floats. Integer products are exact and stay unchanged."""
    return all(any(t.dtype.is_float for t in tensors_of(kind)) for kind in (e.checked_type, e.args[0].checked_type))


def _summing_in(op: Op, accumulate: DataType) -> Op:
    """Return `op` with the accumulation type `accumulate`, if it has such an attribute."""
    attributes = op.attributes()
    if attributes.get("out_dtype") in (None, str(accumulate)):
        return op
    return type(op)(**{**attributes, "out_dtype": str(accumulate)})


def _without_pairs(body: Expr) -> Expr:
    """cast(cast(x: float32, 16 bits), float32) -> x, if the 16-bit value has no other reader."""
    order = post_order(body, inside=False)
    users = consumers(order)
    new: dict[Expr, Expr] = {}
    for e in order:
        wide = _widened(e, users)
        old = operands(e)
        now = [new.get(o, o) for o in old]
        same = all(a is b for a, b in zip(old, now, strict=True))
        new[e] = new[wide] if wide is not None else e if same else with_operands(e, now)
    return new[body]


def _widened(e: Expr, users: dict[Expr, list[Expr]]) -> Expr | None:
    """Return the float32 value that `e` rounds and widens again without another reader, or None."""
    if not isinstance(e, Call) or not _is_cast(e) or e.tensor_type.dtype is not FLOAT32:
        return None
    inner = e.args[0]
    if (not isinstance(inner, Call) or not _is_cast(inner) or len(users[inner]) != 1
            or str(inner.tensor_type.dtype) not in TYPES):
        return None
    return inner.args[0] if inner.args[0].tensor_type.dtype is FLOAT32 else None


def _is_cast(e: Expr) -> bool:
    return isinstance(e, Call) and isinstance(e.op, Cast)
