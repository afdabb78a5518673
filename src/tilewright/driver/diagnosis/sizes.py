"""Shrinks the tensors of a program.

    nn.dense(x: (16, 384), w: (64, 384))      384 -> 2       nn.dense(x: (16, 2), w: (64, 2))

All axes of inputs and constants with one extent are cut to a smaller one together. Attributes equal to the extent
follow: `channels`, `units`, `groups`, then any. Sizes that the type rules of the operators reject are not tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from tilewright.base.errors import TVMError
from tilewright.base.types import DataType, TensorType
from tilewright.driver.diagnosis.case import Array, Case
from tilewright.relay.expr import Call, Constant, Expr, Function, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands, post_order, with_operands

FEW: Final = 256
"""Number of elements below which a case is not reduced further."""
_TRIED: Final = (1, 2, 3, 5, 9, 17, 33)
_NAMED: Final = frozenset({"channels", "units", "groups"})
_FAULTS: Final = (TVMError, TypeError, ValueError, IndexError, ZeroDivisionError)


def smaller_sizes(case: Case, takes: Callable[[Case | None], bool]) -> None:
    """Offer `takes` the case with one extent after another reduced, and continue with the cases that it accepts."""
    done: set[int] = set()
    while case.elements > FEW:
        extents = Counter(d for v in _tensors(case) for d in v.shape if d > 1 and d not in done)
        if not extents:
            return
        old = max(extents)
        done.add(old)
        for new in sorted({*(n for n in _TRIED if n < old), max(1, old // 2)}):
            made = next((c for c in _resized(case, old, new) if takes(c)), None)
            if made is not None:
                case = made
                done.add(new)
                break


def _tensors(case: Case) -> list[Array]:
    return [*case.values, *(e.value for e in post_order(case.main.body) if isinstance(e, Constant))]


def _resized(case: Case, old: int, new: int) -> Iterable[Case]:
    """Yield the case with `old` replaced by `new` everywhere, for different choices of the attributes that follow."""
    seen: list[list[Any]] = []
    for follows in (lambda name: False, lambda name: name in _NAMED, lambda name: True):
        try:
            made = _with_extent(case, old, new, follows)
        except _FAULTS:
            continue
        ops = [e.op for e in post_order(made.main.body) if isinstance(e, Call)]
        if ops not in seen:
            seen.append(ops)
            yield made


def _with_extent(case: Case, old: int, new: int, follows: Callable[[str], bool]) -> Case:
    made: dict[Expr, Expr] = {}
    values: dict[Any, Array] = {}
    for p, v in zip(case.main.params, case.values, strict=True):
        cut = _sliced(v, old, new)
        made[p] = Var(p.name_hint, TensorType(cut.shape, DataType(cut.dtype)))
        values[made[p]] = cut
    for e in post_order(case.main.body):
        if e in made:
            continue
        if isinstance(e, Constant):
            made[e] = Constant(_sliced(e.value, old, new), e.span)
        elif isinstance(e, Function):
            raise ValueError("functions keep their sizes")
        elif isinstance(e, Call) and isinstance(e.op, Op):
            made[e] = Call(_following(e.op, old, new, follows), [made[a] for a in e.args], span=e.span)
        else:
            made[e] = with_operands(e, [made[o] for o in operands(e)])
    body = made[case.main.body]
    _ = body.checked_type
    return case.around(body, values)


def _sliced(value: Array, old: int, new: int) -> Array:
    return np.array(value[tuple(slice(new) if d == old else slice(None) for d in value.shape)], order="C")


def _following(op: Op, old: int, new: int, follows: Callable[[str], bool]) -> Op:
    """Return the operator with `new` for `old` in the attributes that follow."""
    def changed(value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(changed, value))
        return new if type(value) is int and value == old else value

    attrs = {n: changed(getattr(op, n)) if follows(n) else getattr(op, n) for n in op.attribute_names}
    return op if all(attrs[n] is getattr(op, n) or attrs[n] == getattr(op, n) for n in attrs) else type(op)(**attrs)
