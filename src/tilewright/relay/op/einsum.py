"""Einstein sums, and their decomposition into matrix products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.relay.expr import Call, Expr, Tuple
from tilewright.relay.op.broadcast import Multiply
from tilewright.relay.op.nn_matmul import BatchMatmul
from tilewright.relay.op.reduction import Sum
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.relay.op.shaping import sized
from tilewright.relay.op.transform import Transpose
from tilewright.topi.contraction import einsum, letters
from tilewright.topi.shapes import product, require_same_dtype, same


@op("einsum", kind=Fusion.OPAQUE, variadic=True)
class Einsum(Op):
    """Products of the tensors of a tuple, summed over the letters that the result lacks: "bij,bjk->bik", "...ii->...i".
    """

    equation: str
    """Subscripts in the notation of `numpy.einsum`: "bij,bjk->bik"."""

    def infer(self, data: Type) -> TensorType:
        """The sizes of the letters of the result; the common dtype of the tensors."""
        if not isinstance(data, TupleType) or not data.fields:
            raise ShapeError(f"a tuple of tensors was expected, and {data!r} was given")
        types = tensors(*data.fields)
        require_same_dtype(types)
        _, result, sizes = letters(self.equation, [t.shape for t in types])
        return TensorType(tuple(sizes[c] for c in result), types[0].dtype)

    def reference(self, data: Sequence[Array]) -> Array:
        terms, result, sizes = letters(self.equation, [x.shape for x in data])
        plain = {c: k for k, c in enumerate(dict.fromkeys("".join(terms)))}
        operands: list[Any] = []
        for term, x in zip(terms, data, strict=True):
            known = x if x.dtype.kind in "fiub" else x.astype(np.float32)
            operands += [np.broadcast_to(known, [sizes[c] for c in term]), [plain[c] for c in term]]
        return np.asarray(np.einsum(*operands, [plain[c] for c in result]), data[0].dtype)

    def compute(self, data: Sequence[te.Tensor]) -> te.Tensor:
        return einsum(self.equation, *data)

    def simplify(self, call: Call) -> Expr | None:
        """Matrix products of two operands at a time, unless one has a letter twice or sizes are broadcast."""
        (fields,) = call.args
        if not isinstance(fields, Tuple):
            return None
        types = [f.tensor_type for f in fields.fields]
        terms, result, sizes = letters(self.equation, [t.shape for t in types])
        plain = all(len(set(t)) == len(t) for t in terms)
        if not plain or any(not same(sizes[c], n) for t, x in zip(terms, types, strict=True)
                            for c, n in zip(t, x.shape, strict=True)):
            return None
        return contracted(terms, fields.fields, result, sizes)


def contracted(terms: Sequence[str], inputs: Sequence[Expr], result: str, sizes: dict[str, Any]) -> Expr:
    """The einsum as a graph: private letters of an operand are summed first, then operands are multiplied in order."""
    operands: list[tuple[str, Expr]] = []
    for k, (term, x) in enumerate(zip(terms, inputs, strict=True)):
        others = set(result).union(*terms[:k], *terms[k + 1 :])
        operands.append(_summed(term, x, others))
    term, x = operands[0]
    for k, (other, y) in enumerate(operands[1:], 1):
        term, x = _product(term, x, other, y, set(result).union(*(t for t, _ in operands[k + 1 :])), sizes)
    term, x = _summed(term, x, set(result))
    return _ordered(term, x, result)


def _summed(term: str, x: Expr, keep: set[str]) -> tuple[str, Expr]:
    lost = tuple(k for k, letter in enumerate(term) if letter not in keep)
    return (term, x) if not lost else ("".join(c for c in term if c in keep), Sum(lost)(x))


def _ordered(term: str, x: Expr, wanted: Sequence[str]) -> Expr:
    axes = tuple(term.index(c) for c in wanted)
    return x if axes == tuple(range(len(axes))) else Transpose(axes)(x)


def _product(a_term: str, a: Expr, b_term: str, b: Expr, keep: set[str], sizes: dict[str, Any]) -> tuple[str, Expr]:
    """The batched matrix product of two operands: common letters in `keep` are the batch, others are summed."""
    shared = [c for c in a_term if c in b_term]
    batch, summed = [c for c in shared if c in keep], [c for c in shared if c not in keep]
    rows, columns = [c for c in a_term if c not in shared], [c for c in b_term if c not in shared]
    order = [*batch, *rows, *columns]
    if not summed:
        left = (
            sized((*(sizes[c] for c in (*batch, *rows)), *(1 for _ in columns)))(_ordered(a_term, a, [*batch, *rows])))
        right = sized((*(sizes[c] for c in batch), *(1 for _ in rows), *(sizes[c] for c in columns)))(
            _ordered(b_term, b, [*batch, *columns]))
        return "".join(order), Multiply()(left, right)
    total, m, n, k = (product(sizes[c] for c in group) for group in (batch, rows, columns, summed))
    left = sized((total, m, k))(_ordered(a_term, a, [*batch, *rows, *summed]))
    right = sized((total, n, k))(_ordered(b_term, b, [*batch, *columns, *summed]))
    return "".join(order), sized(tuple(sizes[c] for c in order))(BatchMatmul("", False, True)(left, right))


