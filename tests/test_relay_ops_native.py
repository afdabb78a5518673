"""Every operator, compiled on its own for each kind of processor that this machine can run, against its reference."""

from __future__ import annotations

import pytest

from codegen_native import TARGETS
from op_examples import EXAMPLES, Example
from test_relay_ops import close
from tilewright.compiler.build import build_module
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function
from tilewright.target import Target

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.mcpu)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.id)
@pytest.mark.filterwarnings("ignore::tilewright.errors.NotNativeWarning")
def test_compiled_operator(example: Example, target: Target) -> None:
    params, call = example.call()
    artifact = build_module(IRModule.from_expr(Function(tuple(params), call)), target)
    close(artifact.executable(threads=1)(*example.inputs), example.expected())
