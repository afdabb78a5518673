"""The operators and types of a program, their frequencies, and extraction of parts of a program as modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError
from tilewright.base.nd import NDArray, array
from tilewright.base.types import TensorType, Type, type_children
from tilewright.ir.module import IRModule
from tilewright.ir.structural import structural_hash
from tilewright.ir.transform import PassContext, Sequential
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem
from tilewright.relay.qnn.scaling import Dequantize, Quantize
from tilewright.relay.visitor import binders, free_vars, operands, post_order


def list_op_freqs(mod: IRModule) -> dict[str, int]:
    """Return the number of calls of each operator in a module."""
    return dict(Counter(e.op.name for e in _calls(mod)))


def list_fake_quantized_op_freqs(mod: IRModule) -> dict[str, int]:
    """Return the number of calls of each operator between `qnn.dequantize` and `qnn.quantize`, which could use
    integers."""
    found: dict[Expr, None] = {}
    for end in _calls(mod):
        if not isinstance(end.op, Quantize):
            continue
        region, whole = _region(end.args[0])
        found.update(dict.fromkeys(region) if whole else {})
    return dict(Counter(e.op.name for e in found if isinstance(e, Call)))


def _region(root: Expr) -> tuple[list[Expr], bool]:
    """Return the calls from `root` up to dequantizations and constants, and whether all paths end there, at least one
    at a dequantization.
    """
    seen, stack, starts, whole = {root}, [root], 0, True
    region: list[Expr] = []
    while stack:
        e = stack.pop()
        if isinstance(e, Call) and isinstance(e.op, Dequantize):
            starts += 1
            continue
        if isinstance(e, Call) and not isinstance(e.op, Expr):
            region.append(e)
        elif not isinstance(e, (Constant, Tuple, TupleGetItem)):
            whole = False
        new = [o for o in operands(e) if o not in seen]
        seen.update(new)
        stack += new
    return region, whole and starts > 0


def _calls(mod: IRModule) -> Iterator[Call]:
    for _, function in mod.items():
        if isinstance(function, Expr):
            yield from (e for e in post_order(function) if isinstance(e, Call) and not isinstance(e.op, Expr))


def all_dtypes(expr: Expr) -> set[str]:
    """Return the dtypes of all tensors of `expr`, as far as types are known."""
    found: set[str] = set()
    stack: list[Type] = [t for e in post_order(expr) for x in (*binders(e), e) if (t := x.known_type()) is not None]
    while stack:
        t = stack.pop()
        if isinstance(t, TensorType):
            found.add(str(t.dtype))
        stack += type_children(t)
    return found


def check_constant(expr: Expr) -> bool:
    """Return whether `expr` is a constant, or a tuple of constants."""
    return all(isinstance(e, (Constant, Tuple)) for e in post_order(expr))


def count_layers(expr: Expr | IRModule, valid_ops: Iterable[str]) -> int:
    """Return the largest number of calls of the operators `valid_ops` on one path through `expr`, or through `main` of
    a module."""
    expr = expr["main"] if isinstance(expr, IRModule) else expr
    names, depth = frozenset(valid_ops), dict[Expr, int]()
    for e in post_order(expr):
        counted = isinstance(e, Call) and not isinstance(e.op, Expr) and e.op.name in names
        depth[e] = max((depth[o] for o in operands(e)), default=0) + counted
    return depth[expr]


def extract_fused_functions(mod: IRModule) -> dict[str, Function]:
    """Return the primitive functions inside the functions of `mod`, by structural hash: the kernels made by `FuseOps`.
    A module without any is simplified for inference and fused first.
    """
    found = _primitive_functions(mod)
    if found:
        return found
    from tilewright.relay.transform import FuseOps, InferType, SimplifyInference

    with PassContext(opt_level=3):
        return _primitive_functions(Sequential([InferType(), SimplifyInference(), InferType(), FuseOps()])(mod))


def _primitive_functions(mod: IRModule) -> dict[str, Function]:
    inside = (e for _, f in mod.items() if isinstance(f, Expr) for e in post_order(f))
    return {structural_hash(e): e for e in inside if isinstance(e, Function) and e.attrs.get("Primitive")}


def extract_intermediate_expr(mod: IRModule, expr_id: int) -> IRModule:
    """Return a module whose `main` computes value number `expr_id` of `main`, counting calls, tuples and fields in text
    order.

    Raises `CompileError` for a number that is too large.
    """
    values = [e for e in post_order(mod["main"].body) if isinstance(e, (Call, Tuple, TupleGetItem))]
    if not 0 <= expr_id < len(values):
        raise CompileError(f"@main has {len(values)} values, numbered from 0; there is no value {expr_id}",
                           code="TW0402")
    value = values[expr_id]
    new = mod.copy()
    needed = set(free_vars(value))
    params = [p for p in mod["main"].params if p in needed]
    new["main"] = Function([*params, *(v for v in free_vars(value) if v not in params)], value)
    return new


def get_calibration_data(mod: IRModule, data: Mapping[str, Any]) -> dict[GlobalVar, dict[str, list[NDArray]]]:
    """Return the inputs and outputs of the functions of other compilers when `main` runs on `data`, its inputs by name.

    `{function: {"inputs": [array, …], "outputs": [array, …]}}`. Raises `CompileError` for a missing input.
    """
    from tilewright.relay.interpreter import evaluate

    main = mod["main"]
    missing = [p.name_hint for p in main.params if p.name_hint not in data]
    if missing:
        raise CompileError(f"the inputs {', '.join(missing)} of @main are missing from the data, which "
                           f"has {', '.join(data) or 'none'}", code="TW0402")
    calls = [e for e in post_order(main.body) if isinstance(e, Call) and isinstance(e.op, GlobalVar)
             and "Compiler" in mod[e.op].attrs]
    seen = mod.copy()
    seen["main"] = Function(main.params, Tuple(tuple(Tuple((Tuple(tuple(c.args)), c)) for c in calls)))
    values = evaluate(seen, *(data[p.name_hint] for p in main.params)) if calls else ()
    found: dict[GlobalVar, dict[str, list[NDArray]]] = {}
    for call, (inputs, outputs) in zip(calls, values, strict=True):
        assert isinstance(call.op, GlobalVar)
        kept = found.setdefault(call.op, {"inputs": [], "outputs": []})
        kept["inputs"] += _arrays(inputs)
        kept["outputs"] += _arrays(outputs)
    return found


def _arrays(value: Any) -> list[NDArray]:
    return [a for v in value for a in _arrays(v)] if isinstance(value, (tuple, list)) else [array(np.asarray(value))]
