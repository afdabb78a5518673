"""Matrix products: MatMul, Gemm and the Einsum forms that are matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.operators import op
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.onnx.shaping import cast, dtype_of, rank, reshape, scalar, shape_of, transpose


@converter("MatMul")
def matmul(a: Expr, b: Expr, *, node: Node) -> Expr:
    """Numpy's rule: vectors are completed to matrices, leading dimensions broadcast."""
    n, m = rank(a), rank(b)
    if n == 0 or m == 0:
        node.refuse("a matrix product of a single number; use Mul")
    if dtype_of(a).is_integer:
        return _matmul(cast(a, "int32"), cast(b, "int32"), n, m, node) if dtype_of(a).bits < 32 else _matmul(a, b, n, m, node)
    return _matmul(a, b, n, m, node)


def _matmul(a: Expr, b: Expr, n: int, m: int, node: Node) -> Expr:
    if n == 1:
        product = _matmul(reshape(a, (1, *shape_of(a))), b, 2, m, node)
        dims = shape_of(product)
        return reshape(product, dims[:-2] + dims[-1:]) if m > 1 else reshape(product, dims[:-1])
    if m == 1:
        product = _matmul(a, reshape(b, (*shape_of(b), 1)), n, 2, node)
        return reshape(product, shape_of(product)[:-1])
    if m == 2:
        return _times_matrix(a, transpose(b, (1, 0)))
    if n == 2:  # the one matrix is the same for all
        a = reshape(a, (1, *shape_of(a)))
    return _batched(a, b, node)


def _times_matrix(a: Expr, weight: Expr) -> Expr:
    """a @ weight.T, whatever stands before the last dimension of `a` taken as rows."""
    units = shape_of(weight)[0]
    dims = shape_of(a)
    rows = a if len(dims) == 2 else reshape(a, (-1, dims[-1]))
    product = op.nn.dense(rows, weight, units=units) if isinstance(units, int) else op.nn.dense(rows, weight)
    return product if len(dims) == 2 else reshape(product, (*dims[:-1], units))


def _batched(a: Expr, b: Expr, node: Node) -> Expr:
    before, after = shape_of(a)[:-2], shape_of(b)[:-2]
    size = max(len(before), len(after))
    before, after = (1,) * (size - len(before)) + tuple(before), (1,) * (size - len(after)) + tuple(after)
    common = tuple(y if isinstance(x, int) and x == 1 else x for x, y in zip(before, after, strict=True))
    a, b = _stacked(a, before, common), _stacked(b, after, common)
    if node.config["use_nt_batch_matmul"]:
        product = op.nn.batch_matmul(a, transpose(b, (0, 2, 1)), transpose_a=False, transpose_b=True)
    else:
        product = op.nn.batch_matmul(a, b, transpose_a=False, transpose_b=False)
    if size == 1:
        return product
    return reshape(product, (*common, *shape_of(product)[1:]))


def _stacked(x: Expr, lead: tuple[Any, ...], common: tuple[Any, ...]) -> Expr:
    """`x` with one leading dimension: 1 where it is the same for all, else the product of the common ones."""
    tail = shape_of(x)[-2:]
    if all(isinstance(d, int) and d == 1 for d in lead):
        return reshape(x, (1, *tail))
    if any(a is not b and a != b for a, b in zip(lead, common, strict=True)):
        x = op.broadcast_to(x, shape=(*common, *tail))
    if len(common) == 1:
        return x
    static = all(isinstance(d, int) for d in common)
    return reshape(x, (math.prod(common) if static else -1, *tail))


@converter("Gemm")
def gemm_first(
    a: Expr, b: Expr, c: Expr | None = None, *, alpha: float = 1.0, beta: float = 1.0, broadcast: int = 0, transA: int = 0, transB: int = 0,
) -> Expr:
    return gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)


@converter("Gemm", since=7)
def gemm(a: Expr, b: Expr, c: Expr | None = None, *, alpha: float = 1.0, beta: float = 1.0, transA: int = 0, transB: int = 0) -> Expr:
    y = _times_matrix(transpose(a, (1, 0)) if transA else a, b if transB else transpose(b, (1, 0)))
    if alpha != 1:
        y = op.multiply(y, scalar(alpha, y))
    if c is None or beta == 0:
        return y
    if beta != 1:
        c = Constant((c.value * beta).astype(c.value.dtype), c.span) if isinstance(c, Constant) else op.multiply(c, scalar(beta, c))
    if rank(c) == 1 and shape_of(c)[0] == shape_of(y)[1]:
        return op.nn.bias_add(y, c, axis=-1)
    return op.add(y, c)


@converter("Einsum")
def einsum(*inputs: Expr, equation: str, node: Node) -> Expr:
    terms, result = _parse(equation, [rank(x) for x in inputs], node)
    operands: list[tuple[str, Expr]] = []
    for k, (term, x) in enumerate(zip(terms, inputs, strict=True)):
        later = set(result).union(*terms[k + 1:], *[t for t, _ in operands])
        operands.append(_single(term, x, later, node))
    term, x = operands[0]
    for k, (other, y) in enumerate(operands[1:], 1):
        keep = set(result).union(*[t for t, _ in operands[k + 1:]])
        term, x = _product(term, x, other, y, keep)
    summed = tuple(k for k, letter in enumerate(term) if letter not in result)
    if summed:
        x, term = op.sum(x, axis=summed, keepdims=False), "".join(c for c in term if c in result)
    return transpose(x, [term.index(letter) for letter in result])


def _parse(equation: str, ranks: Sequence[int], node: Node) -> tuple[list[str], str]:
    """The letters of each operand and of the result; an ellipsis becomes capital letters of its own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        node.refuse(f"equation {equation!r} has {len(terms)} operands, and {len(ranks)} inputs are given")
    spare = "ΑΒΓΔΕΖΗΘ"
    widths = [n - len(t.replace("...", "")) if "..." in t else 0 for t, n in zip(terms, ranks, strict=True)]
    widest = max(widths)
    named = [t.replace("...", spare[widest - w:widest]) for t, w in zip(terms, widths, strict=True)]
    for term, n in zip(named, ranks, strict=True):
        if len(term) != n:
            node.refuse(f"equation {equation!r} names {len(term)} dimensions for an input of {n}")
    if arrow:
        return named, right.replace("...", spare[:widest])
    letters = "".join(named)
    return named, spare[:widest] + "".join(sorted(c for c in set(letters) if c not in spare and letters.count(c) == 1))


def _single(term: str, x: Expr, later: set[str], node: Node) -> tuple[str, Expr]:
    """One operand without repeated letters, and without letters that nothing else uses."""
    if len(set(term)) != len(term):
        node.refuse(f"the equation takes a diagonal ({term!r}), which is not supported; write it with Mul and ReduceSum")
    lonely = tuple(k for k, letter in enumerate(term) if letter not in later)
    if lonely:
        x, term = op.sum(x, axis=lonely, keepdims=False), "".join(c for c in term if c in later)
    return term, x


def _product(a_term: str, a: Expr, b_term: str, b: Expr, keep: set[str]) -> tuple[str, Expr]:
    """Two operands as one batched matrix product: letters of both that stay are the batch, those that go are summed."""
    shared = [c for c in a_term if c in b_term]
    batch, summed = [c for c in shared if c in keep], [c for c in shared if c not in keep]
    rows, columns = [c for c in a_term if c not in shared], [c for c in b_term if c not in shared]
    sizes: dict[str, Any] = {}
    for letter, size in (*zip(a_term, shape_of(a), strict=True), *zip(b_term, shape_of(b), strict=True)):
        if letter not in sizes or (isinstance(sizes[letter], int) and sizes[letter] == 1):
            sizes[letter] = size
    if not summed:
        order = [*batch, *rows, *columns]
        left = reshape(transpose(a, [a_term.index(c) for c in (*batch, *rows)]), [_size(a_term, a, c) for c in (*batch, *rows)] + [1] * len(columns))
        right = reshape(transpose(b, [b_term.index(c) for c in (*batch, *columns)]),
                        [_size(b_term, b, c) for c in batch] + [1] * len(rows) + [_size(b_term, b, c) for c in columns])
        return "".join(order), op.multiply(left, right)
    m, n, k = (_volume(sizes, group) for group in (rows, columns, summed))
    total = _volume(sizes, batch)
    left = reshape(transpose(a, [a_term.index(c) for c in (*batch, *rows, *summed)]), (total, m, k))
    right = reshape(transpose(b, [b_term.index(c) for c in (*batch, *columns, *summed)]), (total, n, k))
    product = op.nn.batch_matmul(left, right, transpose_a=False, transpose_b=True)
    return "".join((*batch, *rows, *columns)), reshape(product, [sizes[c] for c in (*batch, *rows, *columns)])


def _size(term: str, x: Expr, letter: str) -> Any:
    return shape_of(x)[term.index(letter)]


def _volume(sizes: dict[str, Any], letters: Sequence[str]) -> Any:
    total: Any = 1
    for letter in letters:
        total = total * sizes[letter]
    return total
