"""Growth of the tree of stages: from the rest of a program and the values of a run to the next stage
(`compiler/staged.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NoReturn

import numpy as np

from tilewright.base.errors import CompileError, InternalError
from tilewright.base.types import DataType, TensorType, TupleType
from tilewright.compiler.entry_types import check_entry_types
from tilewright.compiler.staged import SMALL, Edge, Point
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, Var
from tilewright.relay.interpreter import apply_op, evaluate
from tilewright.relay.op.deferred import Waiting, pending
from tilewright.relay.op.registry import Fusion, Op
from tilewright.relay.sequence_values import with_known_outputs
from tilewright.relay.transform.dynamic_to_static import DynamicToStatic
from tilewright.relay.transform.eliminate_common_subexpr import merge_equal
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.transform.stages import cut, is_static, needs_stages, resolve, work
from tilewright.relay.visitor import operands, post_order

Array = np.ndarray[Any, Any]

_MOST_ASKED: Final = 16
"""Largest number of integers in a value that is computed early because an operator asks for it; it becomes part of a
key."""
_LONGEST: Final = 4
"""Largest number of operators in such a value, for each integer."""
_ALL: Final = 1 << 62


class Asked:
    """Answers operators that ask for values of a run, and records which values decide. Without values it only
    records."""

    def __init__(self, params: Sequence[Var], values: Sequence[Array] | None, most: int) -> None:
        """`most` limits the integers in a value that is computed for an operator; `_ALL`: no limit."""
        self.most = most
        self.params: dict[Expr, int] = {p: k for k, p in enumerate(params)}
        self.values = values
        self.found: set[int] = set()

    def __call__(self, e: Expr) -> Array | None:
        needed = [e] if isinstance(e, Var) else _made_of(e, self.most)
        if needed is None or any(v not in self.params for v in needed):
            return None
        self.found.update(self.params[v] for v in needed)
        if self.values is None and needed:
            return None
        given = [self.values[self.params[v]] for v in needed] if self.values is not None else []
        return given[0] if isinstance(e, Var) else np.asarray(evaluate(Function(needed, e), *given))


def _made_of(e: Expr, most: int) -> list[Var] | None:
    """Return the parameters of `e` where it is arithmetic on few integers; None for other values, which a stage
    computes."""
    seen: dict[Expr, None] = {e: None}
    stack = [e]
    while stack:
        now = stack.pop()
        if not isinstance(now, Constant) and not _is_arithmetic(now, most):
            return None
        new = [o for o in operands(now) if o not in seen]
        seen.update((o, None) for o in new)
        stack += new
        if len(seen) > _LONGEST * most:
            return None
    return [v for v in seen if isinstance(v, Var)]


def _is_arithmetic(e: Expr, most: int) -> bool:
    t = e.known_type()
    if most == _ALL or isinstance(t, TupleType):
        return is_static(t)
    few = isinstance(t, TensorType) and t.is_static and not t.dtype.is_float and t.size <= most
    return few and (not isinstance(e, Call) or (isinstance(e.op, Op) and e.op.kind <= Fusion.INJECTIVE))


def point_of(function: Function) -> Point:
    """Return the point at which `function` is left to do."""
    return Point(function, [k for k, p in enumerate(function.params) if not is_static(p.known_type())])


def types_of(function: Function, values: Sequence[Array] | None) -> list[TensorType]:
    """Return the types of the parameters in a run with these values."""
    if values is None:
        return [p.tensor_type for p in function.params]
    known = (p.known_type() for p in function.params)
    return [
        t if isinstance(t, TensorType) and t.is_static else TensorType(v.shape, DataType(v.dtype))
        for t, v in zip(known, values, strict=True)]


def grow(function: Function, values: Sequence[Array] | None) -> tuple[Edge, set[int]]:
    """Return the edge from `function` for these values, and the numbers of the values that decide it.

    Without values, all sizes must be known, and the numbers are of those that would decide. Raises `CompileError` that
    names the node, as conversions and type inference do.
    """
    types = types_of(function, values)
    resolved, found = _resolved(function, types, values, _MOST_ASKED)
    made = cut(resolved)
    if made.stage is None and made.rest is not None and not made.sizers and values is not None:
        resolved, found = _resolved(function, types, values, _ALL)
        made = cut(resolved)
        if made.stage is None and made.rest is not None and not made.sizers:
            _refuse(made.rest)
    after = None if made.rest is None else point_of(made.rest)
    lists = resolved.attrs.get("output_lists", ()) if after is None else ()
    sizers = [(Sizer(call), places) for call, places in made.sizers]
    return Edge(
        made.takes, made.gives, after, made.stage, sizers, small=made.stage is not None and work(made.stage) < SMALL,
        lists=lists
    ), found


def _resolved(
    function: Function, types: Sequence[TensorType], values: Sequence[Array] | None, most: int
) -> tuple[Function, set[int]]:
    if not needs_stages(function) and [p.known_type() for p in function.params] == list(types):
        return function, set()
    params = [Var(p.name_hint, t, p.span) for p, t in zip(function.params, types, strict=True)]
    ask = Asked(params, values, most)
    return merge_equal(with_known_outputs(resolve(function, params, ask))), ask.found


def _refuse(rest: Function) -> NoReturn:
    stuck = next((e for e in post_order(rest.body) if isinstance(e, Call) and pending(e)), None)
    if stuck is None:
        raise InternalError("a program in stages makes no progress, and no part of it waits for a value")
    raise CompileError(
        "it waits for a value that is never computed; evaluate the program with "
        "relay.create_executor('debug')", stuck.span,
        code="TW0403")


class Sizer:
    """Numpy meaning of a call on the tensors of its arguments, in order."""

    def __init__(self, call: Call) -> None:
        self.call, self.name = call, str(call.op.name)
        self._widths = [len(a.fields) if isinstance(a, Tuple) else 0 for a in call.args]

    def __call__(self, *arrays: Array) -> list[Array]:
        left = list(arrays)
        args: list[Any] = [tuple(left.pop(0) for _ in range(w)) if w else left.pop(0) for w in self._widths]
        result = apply_op(self.call, args)
        return [np.ascontiguousarray(r).reshape(r.shape) for r in (result if isinstance(result, tuple) else (result,))]


def typed(mod: IRModule) -> IRModule:
    """Return `mod` with the types that are known before it runs. Raises `CompileError` for a type that should be
    known."""
    main = mod["main"]
    if any(isinstance(e, Call) and isinstance(e.op, Waiting) for e in post_order(main)):
        return mod
    return DynamicToStatic()(InferType()(mod))


def with_main(mod: IRModule, main: Function) -> IRModule:
    """Return `mod` with another `main`."""
    if mod["main"] is main:
        return mod
    made = mod.copy()
    made["main"] = main
    return made


def signature_of(main: Function) -> list[tuple[str, list[int | str], str]]:
    """Return names, dimensions and dtypes of the inputs. Raises `CompileError` for an input that is not a tensor."""
    check_entry_types(main)
    return [
        (p.name_hint, [d if isinstance(d, int) else str(d) for d in p.tensor_type.shape], str(p.tensor_type.dtype))
        for p in main.params]
