"""Every operator, compiled on its own for this machine, and a sample of the day for each lower kind of processor,
against its reference."""

from __future__ import annotations

import pytest

import daily
from codegen_native import TARGETS
from op_examples import EXAMPLES, Example
from test_relay_ops import close
from tilewright.compat.target import Target
from tilewright.compiler.build import build_module
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Function

pytestmark = pytest.mark.slow
NATIVE, *LOWER = TARGETS
CASES = [
    *((e, NATIVE) for e in daily.of_each(EXAMPLES, lambda e: e.op.name, 1, "native")),
    *((e, t) for t in LOWER for e in daily.sample(EXAMPLES, 50, t.mcpu))
]


@pytest.mark.parametrize(("example", "target"), CASES, ids=lambda x: x.mcpu if isinstance(x, Target) else x.id)
@pytest.mark.filterwarnings("ignore::tilewright.base.errors.NotNativeWarning")
def test_compiled_operator(example: Example, target: Target) -> None:
    params, call = example.call()
    artifact = build_module(IRModule.from_expr(Function(tuple(params), call)), target)
    close(artifact.executable(threads=1)(*example.inputs), example.expected())
