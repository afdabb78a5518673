"""Every operator as C, against its reference: the kernels of all examples in a few files, which the C compiler makes at
once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import daily
from c_native import CFunctions, refused_types
from op_examples import EXAMPLES, Example
from test_relay_ops import close
from tilewright.backends.cpu.c.codegen import File
from tilewright.base.errors import CompileError, NoNativeKernel
from tilewright.base.types import TensorType, TupleType
from tilewright.compat.target import Target
from tilewright.compiler.kernel import Kernel, lower
from tilewright.relay.expr import Function

C = Target("c")
PARTS = 8
"""Number of files with the kernels of all examples."""


def kernels(examples: Sequence[Example]) -> list[tuple[Example, Kernel, Function]]:
    """What has a kernel: operators that only run in Python, and types that C does not have, are left out."""
    found = []
    for k, example in enumerate(examples):
        params, call = example.call()
        function = Function(tuple(params), call)
        try:
            kernel = lower(function, [False] * len(params), C.machine, f"kernel_{k}")
        except NoNativeKernel:
            continue
        try:
            File().add(kernel.func)
        except CompileError:
            assert refused_types(kernel.func), example.id
            continue
        found.append((example, kernel, function))
    return found


def check(examples: Sequence[Example]) -> int:
    made = kernels(examples)
    code = CFunctions([kernel.func for _, kernel, _ in made])
    for example, kernel, function in made:
        types = function.body.checked_type
        results = [t for t in (types.fields if isinstance(types, TupleType) else (types,)) if isinstance(t, TensorType)]
        inputs = [np.ascontiguousarray(example.inputs[a.sources[0]]) for a in kernel.arguments]
        outputs = [np.zeros(t.concrete_shape, t.dtype.numpy()) for t in results]
        code(kernel.func.name, *inputs, *outputs)
        try:
            close(tuple(outputs) if isinstance(types, TupleType) else outputs[0], example.expected())
        except AssertionError as error:
            raise AssertionError(f"{example.id}: {error}") from error
    code.close()
    return len(made)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("part", daily.sample(range(PARTS), max(1, PARTS // 3), "C"))
def test_every_operator(part: int) -> None:
    examples = EXAMPLES[part::PARTS]
    assert check(examples) > 0.9 * len(examples)
