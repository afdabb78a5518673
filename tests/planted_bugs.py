"""Forty mistakes of a compiler, each planted by replacing a function of ours in this process: `plant(name)`, until the
next one or `plant("")`.

A plant says for which network it is, and what a diagnosis has to find: the stage, the pass or part of the lowering, and
the operator.
"""

from __future__ import annotations

import importlib
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from tilewright import relay
from tilewright.backends.base import Strategies
from tilewright.backends.cpu.llvm import codegen, values
from tilewright.backends.kernel_options import KernelOptions
from tilewright.compiler import kernel
from tilewright.relay.expr import Call, Constant, Expr, Function
from tilewright.relay.op.registry import get
from tilewright.relay.transform import (
    canonicalize,
    convert_layout,
    eliminate_common_subexpr,
    fold_constant,
    fold_explicit_padding,
    fold_input_transpose,
    fold_scale_axis,
    fuse_attention,
    fuse_ops,
    simplify_expr,
    simplify_inference,
    sink_reshape,
)
from tilewright.relay.visitor import rewrite
from tilewright.scalar import expr as E
from tilewright.scalar.walk import rewrite as rewrite_scalar
from tilewright.tir.stmt import For, IfThenElse, PrimFunc, Seq, Stmt, Store, bodies, map_bodies
from tilewright.tir.transform import pipeline

# a function of that name hides the module
plan_memory: Final = importlib.import_module("tilewright.relay.transform.plan_memory")
PASS, LOWERING, CODE, PLAN = "pass", "lowering", "code generation", "memory plan"


@dataclass(frozen=True)
class Plant:
    """A mistake: what it is planted by, the network that it is for, and what is to be found."""

    name: str
    network: str
    stage: str
    at: str
    operators: tuple[str, ...]
    make: Callable[[], None]
    kind: str = "values"


PLANTS: Final[dict[str, Plant]] = {}
_UNDO: Final[list[Callable[[], None]]] = []


def plant(name: str) -> None:
    """Take the last mistake back, and make this one; none for an empty name."""
    while _UNDO:
        _UNDO.pop()()
    if name:
        PLANTS[name].make()


def patch(owner: Any, name: str, value: Any) -> None:
    """Replace an attribute until the next mistake."""
    own, old = name in vars(owner), getattr(owner, name)
    _UNDO.append(lambda: setattr(owner, name, old) if own else delattr(owner, name))
    setattr(owner, name, value)


def patch_item(table: Any, key: Any, value: Any) -> None:
    """Replace an entry of a table until the next mistake."""
    old = table[key]
    _UNDO.append(lambda: table.__setitem__(key, old))
    table[key] = value


def planted(
    network: str, stage: str, at: str, *operators: str, kind: str = "values"
) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Declare a mistake."""

    def declare(make: Callable[[], None]) -> Callable[[], None]:
        PLANTS[make.__name__] = Plant(make.__name__, network, stage, at, operators, make, kind)
        return make

    return declare


def around(owner: Any, name: str, wrong: Callable[..., Any]) -> None:
    """Have `wrong(original, *args)` called in the place of a function."""
    old = getattr(owner, name)
    patch(owner, name, lambda *args, **options: wrong(old, *args, **options))


def behind(owner: Any, name: str, rule: Callable[[Call], Expr | None]) -> None:
    """Have a rule rewrite each call of an operator that the pass `owner` leaves."""

    def wrong(old: Any, *args: Any) -> Any:
        made = old(*args)
        return rewrite(
            made, lambda e: rule(e) if isinstance(e, Call) and not isinstance(e.op, Expr) else None, inside=True
        ) if isinstance(made, Function) else made

    around(owner, name, wrong)


def is_product(e: Expr) -> bool:
    return isinstance(e, Call) and not isinstance(e.op, Expr) and e.op.name == "nn.dense"


# Passes over the graph.


@planted("elementwise", PASS, "FoldConstant", "add", "multiply")
def wrong_fold() -> None:
    around(
        fold_constant, "apply_op",
        lambda old, call, args: np.asarray(old(call, args) + 1, old(call, args).dtype) if call.op.name == "add"
        else old(call, args)
    )


@planted("elementwise", PASS, "SimplifyExpr", "divide")
def wrong_reciprocal() -> None:
    def wrong(old: Any, e: Any) -> Any:
        made = old(e)
        return relay.add(made, made) if made is not None and e.op.name == "divide" else made

    around(simplify_expr, "_once", wrong)


@planted("elementwise", PASS, "CanonicalizeOps", "subtract", "multiply")
def swapped_operands() -> None:
    behind(
        canonicalize.CanonicalizeOps, "transform_function",
        lambda e: Call(e.op, e.args[::-1]) if e.op.name == "subtract" else None
    )


@planted("elementwise", PASS, "CanonicalizeOps", "cast", "round", "floor_divide")
def lost_rounding() -> None:
    behind(canonicalize.CanonicalizeOps, "transform_function", lambda e: e.args[0] if e.op.name == "round" else None)


@planted("elementwise", PASS, "EliminateCommonSubexpr", "divide", "abs", "add", "log")
def fields_of_a_tuple_are_one() -> None:
    around(
        eliminate_common_subexpr, "key_of",
        lambda old, e: (e.tuple_value,) if isinstance(e, relay.TupleGetItem) else old(e)
    )


@planted("sequence", PASS, "EliminateCommonSubexpr", "nn.dense", "add", "nn.layer_norm")
def constants_of_one_shape_are_one() -> None:
    around(
        eliminate_common_subexpr, "key_of",
        lambda old, e: ("constant", e.value.shape, str(e.value.dtype)) if isinstance(e, Constant) else old(e)
    )


@planted("image", PASS, "SimplifyInference", "nn.batch_norm")
def epsilon_lost_and_mean_added() -> None:
    behind(
        simplify_inference.SimplifyInference, "transform_function",
        lambda e: relay.subtract(*e.args) if e.op.name == "add" else None
    )


@planted("image", PASS, "FoldScaleAxis", "multiply", "nn.conv2d", "add")
def dropped_scale() -> None:
    around(fold_scale_axis, "_scaled", lambda old, weight, factors, axis: weight)


@planted("image", PASS, "FoldScaleAxis", "multiply", "nn.conv2d", "add")
def scale_along_the_wrong_axis() -> None:
    around(fold_scale_axis, "_scaled", lambda old, weight, factors, axis: old(weight, factors[::-1], axis))


@planted("image", PASS, "FoldExplicitPadding", "nn.conv2d", "nn.pad")
def padding_of_the_other_side() -> None:
    around(fold_explicit_padding, "both_sides", lambda old, padding, rank: old(padding, rank))
    behind(
        fold_explicit_padding.FoldExplicitPadding, "transform_function",
        lambda e: type(e.op)(**{**e.op.attributes(), "padding": (2, 1, 1, 1)})(*e.args) if e.op.name == "nn.conv2d"
        and tuple(e.op.padding) == (1, 1, 2, 1) else None
    )


@planted("image", PASS, "ConvertLayout", "nn.conv2d", "nn.relu", "add", "transpose", "layout_transform")
def bad_layout_transform() -> None:
    behind(
        convert_layout.ConvertLayout, "transform_function",
        lambda e: type(e.op)(axes=(0, 3, 2, 1))(*e.args) if e.op.name == "transpose"
        and tuple(e.op.axes or ()) == (0, 2, 3, 1) else None
    )


@planted("image", PASS, "CanonicalizeOps", "nn.bias_add")
def dropped_bias() -> None:
    behind(
        canonicalize.CanonicalizeOps, "transform_function",
        lambda e: e.args[0] if e.op.name == "add" and is_product(e.args[0]) else None
    )


@planted("image", PASS, "FoldInputTranspose", "nn.conv2d")
def picture_upside_down() -> None:
    def wrong(old: Any, e: Expr) -> Expr | None:
        made = old(e)
        return None if made is None else type(made.op)(
            **{**made.op.attributes(), "data_layout": "NCHW"}
        )(relay.reverse(made.args[0], axis=2), made.args[1])

    around(fold_input_transpose, "fold_input_transpose", wrong)


@planted("sequence", PASS, "FuseAttention", "nn.batch_matmul", "nn.softmax")
def scale_of_attention_lost() -> None:
    around(fuse_attention, "_scaled", lambda old, x: (0.5, old(x)[1]))


@planted("sequence", PASS, "SinkReshape", "nn.bias_add", "add", "nn.dense")
def values_seen_in_the_wrong_shape() -> None:
    behind(
        sink_reshape.SinkReshape, "transform_function",
        lambda e: relay.subtract(*e.args) if e.op.name == "add" and isinstance(e.args[1], Constant)
        and e.args[1].value.size == 23 else None
    )


@planted("sequence", PASS, "FuseOps", "nn.dense")
def wrong_fused_epilogue() -> None:
    behind(
        fuse_ops.FuseOps, "transform_function",
        lambda e: relay.subtract(*e.args) if e.op.name == "add" and is_product(e.args[0]) else None
    )


PLANTS["wrong_fused_epilogue"] = replace(PLANTS["wrong_fused_epilogue"], operators=("add",))


@planted("image", PASS, "FoldScaleAxis", "multiply", "nn.conv2d", "add", "nn.relu", kind="error")
def a_pass_raises() -> None:
    def wrong(old: Any, *args: Any) -> Any:
        raise KeyError("axis")

    around(fold_scale_axis, "_scaled", wrong)


@planted("image", PASS, "SimplifyInference", "nn.batch_norm", kind="crash")
def a_pass_crashes() -> None:
    around(
        simplify_inference, "simplify_call",
        lambda old, e: os.abort() if isinstance(e, Call) and e.op.name == "nn.batch_norm" else old(e)
    )


@planted("elementwise", PASS, "SimplifyExpr", "nn.relu", "tanh", "maximum", "exp", kind="hang")
def a_pass_never_ends() -> None:
    def wrong(old: Any, self: Any, function: Function, *args: Any) -> Any:
        while any(isinstance(e, Call) and e.op.name == "tanh" for e in relay.visitor.calls(function)):
            time.sleep(0.01)
        return old(self, function, *args)

    around(simplify_expr.SimplifyExpr, "transform_function", wrong)


# What operators compute.


def _computes(operator: str, wrong: Callable[..., Any]) -> None:
    kind, old = get(operator), Strategies.compute

    def compute(self: Strategies, op: Any, options: KernelOptions, *args: Any) -> Any:
        if not isinstance(op, kind):
            return old(self, op, options, *args)
        return wrong(lambda o, *a: old(self, o, options, *a), op, *args)

    patch(Strategies, "compute", compute)


def _other(self: Any, **attributes: Any) -> Any:
    return type(self)(**{**self.attributes(), **attributes})


@planted("elementwise", LOWERING, "compute", "exp")
def exp_of_half() -> None:
    _computes("exp", lambda old, self, x: old(self, x) * E.const(0.99, "float32"))


@planted("elementwise", LOWERING, "compute", "take")
def off_by_one_in_take() -> None:
    _computes("take", lambda old, self, x, indices: old(self, x, indices + 1))


@planted("elementwise", LOWERING, "compute", "sum")
def sum_along_the_wrong_part() -> None:
    _computes("sum", lambda old, self, x: old(self, x * E.const(1.25, "float32")))


@planted("elementwise", LOWERING, "compute", "cast")
def lost_cast() -> None:
    _computes("cast", lambda old, self, x: old(self, x + E.const(0.5, "float32")))


@planted("sequence", LOWERING, "compute", "nn.layer_norm")
def wrong_epsilon() -> None:
    _computes("nn.layer_norm", lambda old, self, *args: old(_other(self, epsilon=0.1), *args))


@planted("image", LOWERING, "compute", "nn.avg_pool2d")
def padding_is_counted() -> None:
    _computes("nn.avg_pool2d", lambda old, self, x: old(_other(self, count_include_pad=not self.count_include_pad), x))


@planted("image", LOWERING, "compute", "nn.max_pool2d")
def wrong_padding_value() -> None:
    _computes(
        "nn.max_pool2d",
        lambda old, self, x: get("nn.avg_pool2d")(
            **{k: v for k, v in self.attributes().items() if k in get("nn.avg_pool2d").attribute_names}
        ).compute(x)
    )


@planted("quantized", LOWERING, "compute", "clip")
def clipped_too_early() -> None:
    _computes("clip", lambda old, self, x: old(_other(self, a_max=min(self.a_max, 100)), x))


# Loops.


def _changed(s: Stmt, statement: Callable[[Stmt], Stmt | None], scalar: Callable[[Any], Any] | None = None) -> Stmt:
    """Statements rewritten bottom up, and the values that are stored."""
    made = map_bodies(s, lambda x: _changed(x, statement, scalar)) if bodies(s) else s
    made = s if made is None else made
    if scalar is not None and isinstance(made, Store):
        made = replace(made, value=rewrite_scalar(made.value, scalar))
    return statement(made) or made


def _loops(pass_name: str, wrong: Callable[[PrimFunc], PrimFunc]) -> None:
    """Have a loop pass make something else of what it made."""
    def planted_pass(old: Any) -> Any:
        def run(func: PrimFunc) -> PrimFunc:
            return wrong(old(func))

        run.__name__ = old.__name__
        return run

    patch(
        pipeline, "LOOP_PASSES", tuple(planted_pass(p) if p.__name__ == pass_name else p for p in pipeline.LOOP_PASSES)
    )


def _shorter(extent: int) -> Callable[[Stmt], Stmt | None]:
    """Loops of this extent end one trip early."""
    def rule(s: Stmt) -> Stmt | None:
        return replace(
            s, extent=E.const(extent - 1, s.extent.dtype)
        ) if isinstance(s, For) and isinstance(s.extent, E.IntImm) and s.extent.value == extent else None

    return rule


def _no(s: Any) -> None:
    return None


@planted(
    "elementwise", LOWERING, "simplify", "sum", "multiply", "subtract", "cumsum", "argmax", "maximum", "add", "take",
    "tanh"
)
def off_by_one_constant() -> None:
    _loops(
        "simplify",
        lambda f: f.with_body(
            _changed(f.body, _no, lambda e: E.const(36, e.dtype) if isinstance(e, E.IntImm) and e.value == 37 else None)
        )
    )


@planted(
    "elementwise", LOWERING, "tighten_loop_bounds", "cumsum", "argmax", "sum", "maximum", "multiply", "add", "take",
    "transpose", "reshape", "tanh", "exp", "round", "cast"
)
def loop_one_short() -> None:
    _loops("tighten_loop_bounds", lambda f: f.with_body(_changed(f.body, _shorter(5))))


@planted(
    "elementwise", LOWERING, "vectorize_loops", "sum", "tanh", "maximum", "multiply", "exp", "add", "subtract",
    "reshape", "transpose", "cast", "round", "floor_divide"
)
def wrong_vector_tail() -> None:
    """What is left over behind the last whole vector is not stored."""
    def rule(s: Stmt) -> Stmt | None:
        return (
            Seq(s.stmts[:-1]) if isinstance(s, Seq) and len(s.stmts) > 1 and isinstance(s.stmts[-1], For)
            else IfThenElse(E.const(False, "bool"), s) if isinstance(s, Store) and s.value.dtype.lanes in (1, 5)
            and s.value.dtype.is_float else None
        )

    _loops("vectorize_loops", lambda f: f.with_body(_changed(f.body, rule)))


@planted("elementwise", LOWERING, "lower_math", "tanh", "exp", "log")
def wrong_polynomial() -> None:
    _loops(
        "lower_math",
        lambda f: f.with_body(
            _changed(
                f.body, _no,
                lambda e: E.FloatImm(e.dtype, e.value * 0.5) if isinstance(e, E.FloatImm)
                and abs(e.value - 1.4427) < 1e-4 else None
            )
        )
    )


@planted("sequence", LOWERING, "unroll_loops", "nn.dense", "add", "nn.attention", "nn.layer_norm")
def a_copy_left_out() -> None:
    """The last statement of what was unrolled."""
    _loops(
        "unroll_loops",
        lambda f: f.with_body(
            _changed(
                f.body,
                lambda s: Seq(s.stmts[:-1]) if isinstance(s, Seq) and len(s.stmts) > 3
                and isinstance(s.stmts[-1], Store) else None
            )
        )
    )


@planted("image", LOWERING, "partition_loops", "nn.max_pool2d", "nn.avg_pool2d", "nn.conv2d")
def an_edge_left_out() -> None:
    """The last of the parts that a loop was cut into."""
    def wrong(f: PrimFunc) -> PrimFunc:
        return f.with_body(
            _changed(
                f.body,
                lambda s: Seq(s.stmts[:-1]) if isinstance(s, Seq) and len(s.stmts) > 2
                and all(isinstance(x, For) for x in s.stmts) else None
            )
        )

    _loops("partition_loops", wrong)


@planted("image", LOWERING, "schedule", "nn.max_pool2d", "nn.avg_pool2d")
def rows_that_are_not_computed() -> None:
    def wrong(old: Any, func: PrimFunc, args: Any, outputs: Any) -> PrimFunc:
        made: PrimFunc = old(func, args, outputs)
        return made.with_body(_changed(made.body, _shorter(6))) if "pool" in outputs[0].op.name else made

    around(kernel, "arrange", wrong)


@planted("sequence", LOWERING, "prepack", "nn.dense")
def wrong_order_of_packed_weights() -> None:
    def wrong(old: Any, *args: Any) -> Any:
        made = old(*args)
        return made if made.pack is None else replace(
            made, pack=lambda *arrays: np.ascontiguousarray(made.pack(*arrays)[..., ::-1])
        )

    around(kernel, "_argument", wrong)


# Machine code.


def _emits(pattern: str, replacement: str) -> None:
    """Change the LLVM text of kernels."""
    def wrong(old: Any, *args: Any, **options: Any) -> Any:
        text, scratch = old(*args, **options)
        return re.sub(pattern, replacement, text), scratch

    around(codegen, "emit_measured", wrong)


@planted("elementwise", CODE, "", "subtract", "multiply", "tanh", "maximum")
def subtraction_adds() -> None:
    def wrong(f: Any, e: Any) -> Any:
        return values.RULES[E.Add](
            f, E.Add(e.a, e.b)
        ) if e.dtype.is_float and isinstance(e.a, E.Load) and isinstance(e.b, E.Load) else original(f, e)

    original = values.RULES[E.Sub]
    patch_item(values.RULES, E.Sub, wrong)


@planted("elementwise", CODE, "", "maximum")
def maximum_is_minimum() -> None:
    original = values.RULES[E.Max]
    patch_item(
        values.RULES, E.Max,
        lambda f, e: values.RULES[E.Min](f, E.Min(e.a, e.b)) if e.dtype.is_float
        and isinstance(e.a, E.Load) is not None and "exp" in f"{e}" + "exp" else original(f, e)
    )


@planted("elementwise", CODE, "", "floor_divide")
def wrong_rounding_of_quotients() -> None:
    _emits(r"sext (<\d+ x i1>|i1)", r"zext \1")


@planted(
    "image", CODE, "", "nn.max_pool2d", "nn.avg_pool2d", "nn.conv2d", "nn.relu", "add", "nn.dense", "sigmoid",
    "concatenate", "transpose", "reshape", kind="crash"
)
def a_wild_store() -> None:
    _emits(r"\n  ret void\n", r"\n  store volatile i32 7, ptr inttoptr (i64 8 to ptr)\n  ret void\n")


@planted("elementwise", CODE, "", "divide", "abs", "add", "tanh", "exp", "log")
def division_by_the_wrong_side() -> None:
    def wrong(f: Any, e: Any) -> Any:
        return original(f, type(e)(e.b, e.a)) if e.dtype.is_float else original(f, e)

    original = values.RULES[E.Div]
    patch_item(values.RULES, E.Div, wrong)


# The program as a whole.


@planted(
    "sequence", PLAN, "", "add", "multiply", "nn.dense", "sum", "nn.attention", "nn.layer_norm", "nn.softmax",
    "nn.batch_matmul", "reshape"
)
def memory_given_away_too_early() -> None:
    def wrong(old: Any, self: Any) -> Any:
        found = old(self)
        for m in found:
            m.death = m.birth
        return found

    around(plan_memory._Planner, "roots", wrong)


@planted(
    "image", PLAN, "", "nn.conv2d", "nn.relu", "nn.bias_add", "nn.max_pool2d", "nn.avg_pool2d", "concatenate",
    "nn.dense", "nn.batch_norm", "sigmoid", "nn.pad", "nn.batch_flatten"
)
def all_values_in_one_place() -> None:
    around(plan_memory, "place_pieces", lambda old, pieces: ([0] * len(pieces), old(pieces)[1]))
