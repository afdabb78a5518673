"""Einstein sums, and the matrix products that they are made of."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from tilewright import expr as E
from tilewright import te
from tilewright.errors import ShapeError
from tilewright.relay.expr import Call, Expr, Tuple
from tilewright.relay.op.broadcast import Multiply
from tilewright.relay.op.nn_matmul import BatchMatmul
from tilewright.relay.op.reduction import Sum
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.relay.op.shapes import product, require_same_dtype, same
from tilewright.relay.op.shaping import Reshape
from tilewright.relay.op.transform import Transpose
from tilewright.types import TensorType, TupleType, Type

_SPARE = "ΑΒΓΔΕΖΗΘ"


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand and of the result; an ellipsis becomes capital letters of its own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(f"equation '{equation}' has {len(terms)} operands, and {len(ranks)} tensors are given")
    widths = [n - len(t.replace("...", "")) if "..." in t else 0 for t, n in zip(terms, ranks, strict=True)]
    widest = max(widths)
    named = [t.replace("...", _SPARE[widest - w : widest]) for t, w in zip(terms, widths, strict=True)]
    for term, n in zip(named, ranks, strict=True):
        if len(term) != n:
            raise ShapeError(f"equation '{equation}' names {len(term)} dimensions for a tensor of {n}")
    letters = "".join(named)
    if not arrow:
        return named, _SPARE[:widest] + "".join(sorted(c for c in set(letters) if c not in _SPARE and letters.count(c) == 1))
    result = right.replace("...", _SPARE[:widest])
    if len(set(result)) != len(result) or not set(result) <= set(letters):
        raise ShapeError(f"equation '{equation}' must name each dimension of the result once, and one that an operand has")
    return named, result


@op("einsum", kind=Fusion.OPAQUE, variadic=True)
class Einsum(Op):
    """Products of tensors, summed over the letters of `equation` that its result lacks: "bij,bjk->bik", "...ii->...i"."""

    equation: str

    def _sizes(self, types: Sequence[TensorType]) -> tuple[list[str], str, dict[str, Any]]:
        """The terms, the result, and the size of each letter."""
        terms, result = parse(self.equation, [t.ndim for t in types])
        sizes: dict[str, Any] = {}
        for term, t in zip(terms, types, strict=True):
            for letter, n in zip(term, t.shape, strict=True):
                old = sizes.get(letter, 1)
                if not same(old, 1) and not same(n, 1) and not same(old, n) and isinstance(old, int) and isinstance(n, int):
                    raise ShapeError(f"dimension '{letter}' of '{self.equation}' is {old} in one operand and {n} in another")
                sizes[letter] = n if same(old, 1) else old
        return terms, result, sizes

    def infer(self, data: Type) -> TensorType:
        if not isinstance(data, TupleType) or not data.fields:
            raise ShapeError(f"a tuple of tensors was expected, and {data!r} was given")
        types = tensors(*data.fields)
        require_same_dtype(types)
        _, result, sizes = self._sizes(types)
        return TensorType(tuple(sizes[c] for c in result), types[0].dtype)

    def reference(self, data: Sequence[Array]) -> Array:
        terms, result = parse(self.equation, [x.ndim for x in data])
        plain = {c: k for k, c in enumerate(dict.fromkeys("".join(terms)))}
        shapes = self._sizes([TensorType(x.shape) for x in data])[2]
        operands: list[Any] = []
        for term, x in zip(terms, data, strict=True):
            operands += [np.broadcast_to(x, [shapes[c] for c in term]), [plain[c] for c in term]]
        return np.asarray(np.einsum(*operands, [plain[c] for c in result]), data[0].dtype)

    def compute(self, data: Sequence[te.Tensor]) -> te.Tensor:
        terms, result, sizes = self._sizes([TensorType(x.shape, x.dtype) for x in data])
        over = {c: te.reduce_axis((0, n), f"k{k}") for k, (c, n) in enumerate(sizes.items()) if c not in result}

        def element(*i: E.Var) -> E.PrimExpr:
            at = dict(zip(result, i, strict=True)) | {c: r.var for c, r in over.items()}
            factors = [x(*(0 if E.number_of(n) == 1 else at[c] for c, n in zip(term, x.shape, strict=True))) for term, x in zip(terms, data, strict=True)]
            return te.sum(reduce(E.mul, factors), axis=list(over.values()))

        return te.compute([sizes[c] for c in result], element, name="einsum")  # type: ignore[no-any-return]

    def simplify(self, call: Call) -> Expr | None:
        """Matrix products of two operands at a time, unless one has a letter twice or sizes are broadcast."""
        (fields,) = call.args
        if not isinstance(fields, Tuple):
            return None
        types = [f.tensor_type for f in fields.fields]
        terms, result, sizes = self._sizes(types)
        plain = all(len(set(t)) == len(t) for t in terms)
        if not plain or any(not same(sizes[c], n) for t, x in zip(terms, types, strict=True) for c, n in zip(t, x.shape, strict=True)):
            return None
        return contracted(terms, fields.fields, result, sizes)


def contracted(terms: Sequence[str], inputs: Sequence[Expr], result: str, sizes: dict[str, Any]) -> Expr:
    """The sum of products as a graph: letters that nothing else has are summed first, then operands are multiplied in order."""
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
    """Two operands as one batched matrix product: letters of both that stay are the batch, those that go are summed."""
    shared = [c for c in a_term if c in b_term]
    batch, summed = [c for c in shared if c in keep], [c for c in shared if c not in keep]
    rows, columns = [c for c in a_term if c not in shared], [c for c in b_term if c not in shared]
    order = [*batch, *rows, *columns]
    if not summed:
        left = Reshape((*(sizes[c] for c in (*batch, *rows)), *(1 for _ in columns)))(_ordered(a_term, a, [*batch, *rows]))
        right = Reshape((*(sizes[c] for c in batch), *(1 for _ in rows), *(sizes[c] for c in columns)))(_ordered(b_term, b, [*batch, *columns]))
        return "".join(order), Multiply()(left, right)
    total, m, n, k = (product(sizes[c] for c in group) for group in (batch, rows, columns, summed))
    left = Reshape((total, m, k))(_ordered(a_term, a, [*batch, *rows, *summed]))
    right = Reshape((total, n, k))(_ordered(b_term, b, [*batch, *columns, *summed]))
    return "".join(order), Reshape(tuple(sizes[c] for c in order))(BatchMatmul("", False, True)(left, right))


