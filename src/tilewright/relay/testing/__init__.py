"""TVM's `relay.testing`: networks for experiments, and shortcuts to run passes.

    mod, params = relay.testing.resnet.get_workload(num_layers=18, batch_size=1)

Every network has `get_net`, which returns a function whose parameters are `data` and the weights, and `get_workload`,
which returns the module and random weights. The weights depend only on the seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import register_op_attr, registrations, reset_op_attr
from tilewright.ir.transform import Pass, PassContext, Sequential
from tilewright.relay.expr import Expr, Function
from tilewright.relay.testing import (
    dcgan,
    densenet,
    dqn,
    inception_v3,
    init,
    layers,
    lstm,
    mlp,
    mobilenet,
    resnet,
    squeezenet,
    vgg,
)
from tilewright.relay.testing.init import create_workload
from tilewright.relay.transform.infer_type import InferType

__all__ = [
    "TempOpAttr", "create_workload", "dcgan", "densenet", "dqn", "inception_v3", "init", "layers", "lstm", "mlp",
    "mobilenet", "resnet", "run_infer_type",
    "run_opt_pass", "squeezenet", "vgg",
]


def run_opt_pass(expr: Expr, opt_pass: Pass | Sequence[Pass], import_prelude: bool = False) -> Any:
    """Return `expr` after the pass or passes at level 3: the function, or its body if `expr` is not a function."""
    mod = IRModule.from_expr(expr)
    if import_prelude:
        mod.import_from_std("prelude.rly")
    with PassContext(opt_level=3):
        done = (
            Sequential((InferType(), *(opt_pass if isinstance(opt_pass, (list, tuple)) else (opt_pass,))))(mod)["main"])
    return done if isinstance(expr, Function) else done.body


def run_infer_type(expr: Expr) -> Any:
    """Return `expr` with its types inferred."""
    return run_opt_pass(expr, ())


@contextmanager
def TempOpAttr(op_name: str, attr_key: str, attr_value: Any) -> Iterator[None]:
    """A context with a temporary attribute of an operator."""
    with registrations():
        reset_op_attr(op_name, attr_key)
        register_op_attr(op_name, attr_key, attr_value)
        yield
