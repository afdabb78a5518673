"""Builds a call of `topi` with plain loops and with the schedules for processors, and compares what comes out."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import te, topi
from tilewright.base.types import DataType
from topi_cases import Case

Array = np.ndarray[Any, Any]


def tensors(result: Any) -> list[te.Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def check(case: Case) -> None:
    """The results have the shapes, types and values expected, under both kinds of schedule."""
    with tvm.target.Target("llvm"):
        placeholders = [te.placeholder(a.shape, DataType(a.dtype), name=f"x{k}") for k, a in enumerate(case.inputs)]
        outs = tensors(case.call(*placeholders))
        assert [(t.extents, t.dtype.numpy()) for t in outs] == [(a.shape, a.dtype) for a in case.expected]
        for schedule in (topi.generic.schedule_default, topi.x86.schedule_anchor):
            function = tvm.build(schedule(outs), [*placeholders, *outs], "llvm", name="f")
            results = [np.full(t.extents, 77, t.dtype.numpy()) for t in outs]
            function(*case.inputs, *results)
            for got, want in zip(results, case.expected, strict=True):
                np.testing.assert_allclose(
                    got, want, rtol=case.tolerance, atol=case.tolerance, err_msg=f"{case.name}, {schedule.__name__}"
                )
