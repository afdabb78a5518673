"""The algorithms and schedules of processors for the functions of `topi` that scripts call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tilewright.backends.cpu.strategies import conv, pool, products
from tilewright.backends.cpu.strategies.schedules.arrange import arrange
from tilewright.backends.kernel_options import current, winograd_setting
from tilewright.scalar.arith.open_sizes import samples
from tilewright.scalar.expr import as_expr
from tilewright.scalar.walk import free_vars
from tilewright.te.tensor import Tensor
from tilewright.tir.stmt import PrimFunc
from tilewright.topi import algorithms, channel_blocks, definitions
from tilewright.topi import pool as plain_pool

_SAMPLE: Final = 1000
_ALGORITHMS: Final[Mapping[Callable[..., Any], Callable[..., Any]]] = {
    definitions.dense: products.dense,
    definitions.matmul: products.matmul,
    definitions.batch_matmul: products.batch_matmul,
    channel_blocks.conv: conv.conv,
    plain_pool.max_pool: pool.max_pool,
    plain_pool.avg_pool: pool.avg_pool,
}
"""By definition, the algorithm with the same arguments and the keyword `options`."""


@algorithms.algorithm.provide
def algorithm(definition: Callable[..., Any]) -> Callable[..., Any]:
    """Return the algorithm for the current machine, with the options of the current pass context."""
    return partial(_ALGORITHMS[definition], options=replace(current(), winograd_tiles=winograd_setting()))


@algorithms.arrange.provide
def arrange_for_scripts(func: PrimFunc, args: Sequence[Tensor], outputs: Sequence[Tensor]) -> PrimFunc:
    """Schedule a program for the current machine. Variables in the shapes of arguments have samples meanwhile."""
    sizes = dict.fromkeys(v for t in args for e in t.shape for v in free_vars(as_expr(e)))
    if not sizes:
        return arrange(func, args, outputs, current())
    with samples({v: _SAMPLE + k for k, v in enumerate(sizes)}):
        return arrange(func, args, outputs, current())
