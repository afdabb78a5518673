"""Schedules of operators by target, and a comparison of an operator with numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tilewright import te, topi
from tilewright.backends.targets.target import Target
from tilewright.base.nd import array, empty
from tilewright.compiler.functions import build

T = TypeVar("T")
Scheduler = Callable[[Any], Any]


def dispatch(target: Any, dispatch_map: Mapping[str, T]) -> T:
    """Return the entry of the first key of `target` that the map has, or its entry "generic"."""
    keys = Target(target).keys if isinstance(target, str) else target.keys
    return next((dispatch_map[k] for k in keys if k in dispatch_map), None) or dispatch_map["generic"]


def get_injective_schedule(target: Any) -> Scheduler:
    """Return the scheduler of elementwise operators."""
    return dispatch(target, {"generic": topi.generic.schedule_injective, "cpu": topi.x86.schedule_injective})


get_broadcast_schedule = get_injective_schedule
get_elemwise_schedule = get_injective_schedule


def get_reduce_schedule(target: Any) -> Scheduler:
    """Return the scheduler of reductions."""
    return dispatch(target, {"generic": topi.generic.schedule_reduce, "cpu": topi.x86.schedule_reduce})


def get_conv2d_nchw_implement(target: Any) -> tuple[Callable[..., te.Tensor], Scheduler]:
    """Return the computation and the scheduler of a convolution of NCHW images."""
    return topi.nn.conv2d_nchw, dispatch(target, {"generic": topi.generic.schedule_conv2d_nchw})


def compare_numpy_tvm(
    inputs: Sequence[Any], output: Any, target: Any, device: Any, compute: Callable[..., te.Tensor],
    schedule: Scheduler,
) -> None:
    """Raise `AssertionError` unless `compute`, scheduled by `schedule([result])`, gives `output`, within 1e-4
    relative."""
    tensors = [te.placeholder(x.shape, dtype=str(x.dtype), name=f"x{k}") for k, x in enumerate(inputs)]
    with Target(target):
        result = compute(*tensors)
        function = build(schedule([result]), [*tensors, result], target)
    found = empty(output.shape, str(output.dtype), device)
    function(*(array(x, device) for x in inputs), found)
    np.testing.assert_allclose(found.numpy(), output, rtol=1e-4, atol=1e-4)
