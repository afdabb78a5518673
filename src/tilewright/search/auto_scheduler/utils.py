"""TVM's `tvm.auto_scheduler.utils`: keys of workloads, constants, means, and devices of trackers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.runtime.rpc.devices import check_remote, request_remote
from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.expr import IntImm, as_expr

__all__ = [
    "array_mean", "calc_workload_dis_factor", "call_func_with_timeout", "check_remote", "decode_workload_key",
    "get_const_int", "get_const_tuple", "get_func_name", "list_to_tuple", "request_remote", "to_str_round",
]


def decode_workload_key(workload_key: str) -> tuple[str, Any]:
    """Return the name or hash of a workload's key, and its arguments: nested tuples, or None if the key has none."""
    try:
        found = json.loads(workload_key)
    except json.JSONDecodeError:
        return workload_key, None
    if not isinstance(found, list) or not found:
        return workload_key, None
    return str(found[0]), list_to_tuple(found[1:])


def list_to_tuple(x: Iterable[Any]) -> tuple[Any, ...]:
    """Return a list of lists as a tuple of tuples."""
    return tuple(list_to_tuple(v) if isinstance(v, list) else v for v in x)


def get_func_name(func: Callable[..., Any]) -> str:
    """Return the name under which a function is registered by default."""
    return getattr(func, "func_name", func.__name__)


def get_const_int(exp: Any) -> int:
    """Return the value of a constant expression. Raises `ValueError` for others."""
    found = simplify(as_expr(exp), Ranges({}))
    if not isinstance(found, IntImm):
        raise ValueError(f"{exp} is not a constant integer")
    return int(found.value)


def get_const_tuple(in_tuple: Iterable[Any]) -> tuple[int, ...]:
    """Return the values of constant expressions, such as a shape. Raises `ValueError` for others."""
    return tuple(get_const_int(e) for e in in_tuple)


def array_mean(arr: Sequence[Any]) -> float:
    """Return the mean of numbers, such as the costs of a measurement."""
    return float(np.mean([float(v) for v in arr]))


def to_str_round(x: Any, decimal: int = 6) -> str:
    """Return a number, or a sequence of numbers, as text with `decimal` digits; other values as they are."""
    if isinstance(x, (list, tuple, np.ndarray)):
        return "[" + ", ".join(to_str_round(y, decimal) for y in x) + "]"
    return f"{x:.{decimal}f}" if isinstance(x, (float, np.floating)) else str(x)


def calc_workload_dis_factor(target_workload_pair: tuple[str, Any], workload_pair: tuple[str, Any]) -> float:
    """Return by what factor a workload, a name and arguments, is larger than another that has the same schedules.

    It is the product of the quotients of all numbers; infinite unless these are whole and all else is equal.
    """
    (name, args), (other, others) = ((n, _flat(a or ())) for n, a in (target_workload_pair, workload_pair))
    if name != other or len(args) != len(others):
        return float("inf")
    factor = 1.0
    for a, b in zip(args, others, strict=True):
        if a == b:
            continue
        if not (isinstance(a, int) and isinstance(b, int)) or 0 in (a, b) or a % b:
            return float("inf")
        factor *= a / b
    return factor


def _flat(args: Iterable[Any]) -> list[Any]:
    return [x for a in args for x in (_flat(a) if isinstance(a, (list, tuple)) else [a])]


def call_func_with_timeout(
    worker: Any, timeout: float | None, func: Callable[..., Any], args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None
) -> Any:
    """Return the result of a call in another process, a `contrib.popen_pool.PopenWorker`, or the exception that it
    raised: `TimeoutError` after `timeout` seconds."""
    worker.send(func, args, kwargs, timeout)
    try:
        return worker.recv()
    except Exception as error:
        return error
