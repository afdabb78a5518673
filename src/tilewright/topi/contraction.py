"""Einstein sums: products of tensors, summed over the letters absent from the result."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.scalar import expr as E
from tilewright.topi.transform import dims

__all__ = ["einsum"]

_SPARE: Final = "ΑΒΓΔΕΖΗΘ"


def parse(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result; an ellipsis becomes capital letters."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ShapeError(f"equation '{equation}' has {len(terms)} operands, but {len(ranks)} tensors were given")
    widths = [n - len(t.replace("...", "")) if "..." in t else 0 for t, n in zip(terms, ranks, strict=True)]
    widest = max(widths)
    named = [t.replace("...", _SPARE[widest - w : widest]) for t, w in zip(terms, widths, strict=True)]
    for term, n in zip(named, ranks, strict=True):
        if len(term) != n:
            raise ShapeError(f"equation '{equation}' names {len(term)} dimensions for a tensor of {n} dimensions")
    letters = "".join(named)
    if not arrow:
        return named, _SPARE[:widest] + "".join(
            sorted(c for c in set(letters) if c not in _SPARE and letters.count(c) == 1)
        )
    result = right.replace("...", _SPARE[:widest])
    if len(set(result)) != len(result) or not set(result) <= set(letters):
        raise ShapeError(
            f"equation '{equation}' must name each dimension of the result once, and each must occur in an operand"
        )
    return named, result


def letters(equation: str, shapes: Sequence[Sequence[Any]]) -> tuple[list[str], str, dict[str, Any]]:
    """Return the letters of each operand and of the result, and the size of each letter. Raises `ShapeError` if sizes
    differ."""
    terms, result = parse(equation, [len(s) for s in shapes])
    sizes: dict[str, Any] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, n in zip(term, shape, strict=True):
            old = sizes.get(letter, 1)
            if isinstance(old, int) and isinstance(n, int) and 1 not in (old, n) and old != n:
                raise ShapeError(f"dimension '{letter}' of '{equation}' is {old} in one operand and {n} in another")
            sizes[letter] = n if isinstance(old, int) and old == 1 else old
    return terms, result, sizes


def einsum(subscripts: str, *operand: te.Tensor) -> te.Tensor:
    """Return the products of the elements of `operand`, summed over the letters of `subscripts` absent from the result.
    """
    terms, result, sizes = letters(subscripts, [dims(x) for x in operand])
    over = {c: te.reduce_axis((0, n), f"k{k}") for k, (c, n) in enumerate(sizes.items()) if c not in result}

    def element(*i: E.Var) -> E.PrimExpr:
        at = dict(zip(result, i, strict=True)) | {c: r.var for c, r in over.items()}
        factors = [
            x(*(0 if E.number_of(n) == 1 else at[c] for c, n in zip(term, x.shape, strict=True))) for term,
            x in zip(terms, operand, strict=True)
        ]
        return te.sum(reduce(E.mul, factors), axis=list(over.values()))

    return te.compute([sizes[c] for c in result], element, name="einsum")
