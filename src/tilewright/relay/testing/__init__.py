"""TVM's `relay.testing`: networks for experiments, and shortcuts to run passes.

    mod, params = relay.testing.resnet.get_workload(num_layers=18, batch_size=1)

Every network has `get_net`, which returns a function whose parameters are `data` and the weights, and `get_workload`,
which returns the module and random weights. The weights depend only on the seed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.nd import Device, NDArray, array, device
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass
from tilewright.relay.expr import Expr, Function
from tilewright.relay.prelude import Prelude
from tilewright.relay.testing import (
    byoc,
    dcgan,
    densenet,
    dqn,
    inception_v3,
    init,
    layers,
    lstm,
    mlp,
    mobilenet,
    nat,
    py_converter,
    resnet,
    squeezenet,
    synthetic,
    temp_op_attr,
    vgg,
)
from tilewright.relay.testing.gradients import check_grad
from tilewright.relay.testing.gradients import random_of_type as _np_randn_from_type
from tilewright.relay.testing.init import create_workload
from tilewright.relay.testing.nat import count, make_nat_expr, make_nat_value
from tilewright.relay.testing.py_converter import run_as_python
from tilewright.relay.testing.temp_op_attr import TempOpAttr
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import calls

__all__ = [
    "Prelude", "TempOpAttr", "_np_randn_from_type", "byoc", "check_grad", "count", "count_ops", "create_workload",
    "dcgan", "densenet", "dqn", "enabled_targets", "inception_v3", "init", "layers", "lstm", "make_nat_expr",
    "make_nat_value", "mlp", "mobilenet", "nat", "py_converter", "rand", "resnet", "run_as_python", "run_infer_type",
    "run_opt_pass", "squeezenet", "synthetic", "temp_op_attr", "vgg",
]


def run_opt_pass(expr: Expr, opt_pass: Pass | Sequence[Pass], import_prelude: bool = False) -> Any:
    """Return `expr` after the pass or passes, at any level: the function, or its body if `expr` is not a
    function."""
    mod = IRModule.from_expr(expr)
    if import_prelude:
        mod.import_from_std("prelude.rly")
    for p in (InferType(), *(opt_pass if isinstance(opt_pass, (list, tuple)) else (opt_pass,))):
        mod = p(mod)
    done = mod["main"]
    return done if isinstance(expr, Function) else done.body


def run_infer_type(expr: Expr) -> Any:
    """Return `expr` with its types inferred."""
    return run_opt_pass(expr, ())


def enabled_targets() -> list[tuple[str, Device]]:
    """Return the targets whose programs run on this machine, with their devices."""
    return [("llvm", device("llvm"))]


def rand(dtype: str = "float32", *shape: int) -> NDArray:
    """Return an array of random values in [0, 1)."""
    return array(np.random.default_rng().random(shape).astype(dtype))


def count_ops(expr: Expr) -> dict[str, int]:
    """Return the number of calls of each operator, by name. A call that several calls read counts once."""
    return dict(Counter(c.op.name for c in calls(expr) if not isinstance(c.op, Expr)))
