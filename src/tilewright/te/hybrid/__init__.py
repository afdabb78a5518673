"""Hybrid script: computations written as Python loops, `@te.hybrid.script`.

    @te.hybrid.script
    def outer_product(a, b):
        c = output_tensor((a.shape[0], b.shape[0]), "float32")
        for i in range(a.shape[0]):
            for j in parallel(b.shape[0]):
                c[i, j] = a[i] * b[j]
        return c

    C = outer_product(A, B)         # tensors: the function is parsed, and C is the result of its loops
    c = outer_product(a, b)         # arrays: the function is run, with numpy

Supported are `output_tensor`, `allocate`; loops over `range`, `serial`, `parallel`, `vectorize`, `unroll`, and
`const_range`, which is unrolled; `if`, assignments to elements and to scalars, arithmetic, and the functions in
`FUNCTIONS`. Numbers and tuples of the surrounding Python scopes can be used by name.

`build` writes the loops of a te schedule in this language.
"""

from __future__ import annotations

from tilewright.te.hybrid.function import HybridFunction, script
from tilewright.te.hybrid.module import HybridModule, build
from tilewright.te.hybrid.reader import FUNCTIONS

__all__ = ["FUNCTIONS", "HybridFunction", "HybridModule", "build", "script"]
