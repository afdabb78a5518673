"""Functions of the field that are several operators, or one whose parameters come in another order."""

from __future__ import annotations

from typing import Any

from tilewright.errors import CompileError
from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.op.broadcast import Add, Subtract
from tilewright.relay.op.create import Arange
from tilewright.relay.op.elementwise import Exp, Log, Sqrt
from tilewright.relay.op.indexing import Gather
from tilewright.relay.op.reduction import Max, Mean, Sum, Variance
from tilewright.relay.op.registry import as_relay
from tilewright.relay.op.shapes import axes_of
from tilewright.relay.op.shaping import Squeeze

Axis = int | tuple[int, ...] | None


def gather(data: Any, axis: int, indices: Any) -> Call:
    """`out[i…] = data[i… with i[axis] = indices[i…]]`; see the operator `gather`."""
    return Gather(axis)(data, indices)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> Call:
    """start, start + step, … up to but without stop; one argument alone is the stop. Numbers or constants."""
    first, end = (0, start) if stop is None else (start, stop)
    return Arange(_number(first, "start"), _number(end, "stop"), _number(step, "step"), dtype)()


def _number(value: Any, what: str) -> Any:
    if isinstance(value, Constant) and value.value.size == 1:
        return value.value.item()
    if isinstance(value, Expr):
        raise CompileError(f"arange: {what} must be a number or a constant, for the shape of the result to be known", value.span)
    return value


def variance(data: Any, axis: Axis = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False, with_mean: Any = None) -> Call:
    """The mean of (data - mean)^2 along `axis`; `with_mean` is the mean, when it is known, with its axes kept."""
    x = as_relay(data)
    mean = Mean(axis, True, exclude)(x) if with_mean is None else with_mean
    return Variance(axis, keepdims, exclude, unbiased)(x, mean)


def std(data: Any, axis: Axis = None, keepdims: bool = False, exclude: bool = False, unbiased: bool = False) -> Call:
    """The square root of the variance."""
    return Sqrt()(variance(data, axis, keepdims, exclude, unbiased))


def logsumexp(data: Any, axis: Axis = None, keepdims: bool = False) -> Call:
    """log(sum(exp(data))) along `axis`, without overflow."""
    x = as_relay(data)
    most = Max(axis, True)(x)
    total = Add()(Log()(Sum(axis, True)(Exp()(Subtract()(x, most)))), most)
    return total if keepdims else Squeeze(axes_of(axis, x.tensor_type.ndim))(total)
