"""Shrinks a program to the smallest part that still fails.

    isolate: a window of the graph, by bisection        conv -> relu -> [pool -> dense] -> softmax
    prune:   one node after another becomes an input, is removed, or becomes the result
    sizes:   every extent becomes 1, 2, 3, …            (`sizes.py`)

`fails(case)` returns whether a case fails in the given way. Values at the borders of a part come from the interpreter,
so that a part sees the same numbers as in the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import numpy as np

from tilewright.base.errors import TVMError
from tilewright.driver.diagnosis.case import Array, Case
from tilewright.driver.diagnosis.sizes import smaller_sizes
from tilewright.driver.diagnosis.ways import NoReference
from tilewright.relay.expr import Call, Expr, Tuple, TupleGetItem
from tilewright.relay.visitor import consumers, operands, post_order, rewrite

Fails = Callable[[Case], bool]
MOST: Final = 150
"""Largest number of cases to try."""
_DEPTHS: Final = (1, 2, 4, 8)
_LEVELS: Final = 3
_FEW: Final = 4
"""Number of nodes up to which a case is pruned directly, without isolating a window first."""


class _Spent(Exception):
    """The limit of tried cases is reached."""


class Shrinker:
    """Makes cases smaller while they fail; `best` is the smallest that did."""

    def __init__(self, case: Case, fails: Fails, most: int = MOST) -> None:
        """`case` is known to fail."""
        self.best, self._fails, self._left = case, fails, most

    def run(self, hint: int = -1) -> Case:
        """Return the smallest case; `hint` is the position of a value that is likely to be wrong, in order of
        evaluation."""
        try:
            if self.best.nodes > _FEW:
                self._isolate(hint)
            self._prune()
            smaller_sizes(self.best, self._takes)
        except _Spent:
            pass  # keep the best case so far
        return self.best

    def stop(self) -> None:
        """Try no more cases."""
        self._left = 0

    def _takes(self, case: Case | None) -> bool:
        """Whether a case fails, too; if so, make it the best one."""
        if case is None or not case.nodes:
            return False
        if self._left <= 0:
            raise _Spent
        self._left -= 1
        try:
            if not self._fails(case):
                return False
        except NoReference:
            return False
        self.best = case
        return True

    # A window of the graph

    def _isolate(self, hint: int) -> None:
        known = _known(self.best)
        order = post_order(self.best.main.body, inside=False)
        if 0 <= hint < len(order) and self._around(order[hint], order, known):
            return
        self._window(known)

    def _around(self, wrong: Expr, order: Sequence[Expr], known: dict[Expr, Array]) -> bool:
        """Try the neighbourhood of a value: its operands, and its users."""
        users, case = consumers(order), self.best
        roots, level = [wrong], [wrong]
        for _ in range(_LEVELS):
            level = [u for e in level for u in users.get(e, ())]
            roots += level
        for root in dict.fromkeys(roots):
            for depth in _DEPTHS:
                if self._takes(_cut(case, root, [e for e in known if e not in _near(root, depth)], known)):
                    return True
        return False

    def _window(self, known: dict[Expr, Array]) -> None:
        """Bisect from both ends: turn as many first values as possible into inputs, then make the result as early as
        possible."""
        case, order = self.best, list(known)
        low, high = 0, len(order)
        while low < high - 1:
            middle = (low + high) // 2
            low, high = (
                (middle, high) if self._takes(_cut(case, case.main.body, order[:middle], known)) else (low, middle)
            )
        given, first = order[:low], low
        low, high = first, len(order)
        while low < high - 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._takes(_cut(case, order[middle], given, known)) else (middle, high)

    # One node after another

    def _prune(self) -> None:
        while any(self._takes(c) for c in self._smaller()):
            pass

    def _smaller(self) -> Iterable[Case | None]:
        """Yield cases with one node less: a value becomes an input, the result becomes its operand, or a node is
        replaced by its operand of the same type."""
        case, known = self.best, _known(self.best)
        body = case.main.body
        for e in _parts(body):
            if e in known or isinstance(e, (Tuple, TupleGetItem)):
                yield _cut(case, e, (), known)
        nodes = [e for e in known if e is not body]
        for e in reversed(nodes):
            yield _cut(case, body, [e], known)
        for e in post_order(body, inside=False):
            for o in operands(e) if isinstance(e, Call) and not isinstance(e.op, Expr) else ():
                if o.known_type() == e.known_type():
                    yield _made(partial(_replaced, case, e, o))


def _replaced(case: Case, e: Expr, operand: Expr) -> Case:
    """Return the case with `operand` in place of `e`."""
    inputs = dict(zip(case.main.params, case.values, strict=True))
    return case.around(rewrite(case.main.body, lambda x: None, memo={e: operand}), inputs)


def _known(case: Case) -> dict[Expr, Array]:
    with np.errstate(all="ignore"):
        return {e: v for e, v in case.known().items() if v.dtype != object}


def _parts(body: Expr) -> list[Expr]:
    """Return the parts of the result, with tuples expanded."""
    found = []
    stack = [*operands(body)] if not (isinstance(body, Call) and isinstance(body.op, Expr)) else [*body.args]
    while stack:
        e = stack.pop(0)
        found.append(e)
        stack += operands(e) if isinstance(e, (Tuple, TupleGetItem)) else ()
    return found


def _near(root: Expr, depth: int) -> set[Expr]:
    """Return the calls at most `depth` calls below a value, including the value."""
    found: set[Expr] = set()
    level = [root]
    for _ in range(depth):
        below: list[Expr] = []
        while level:
            e = level.pop()
            if e in found:
                continue
            found.add(e)
            (below if isinstance(e, Call) else level).extend(operands(e))
        level = below
    return found


def _cut(case: Case, root: Expr, given: Iterable[Expr], known: dict[Expr, Array]) -> Case | None:
    return _made(lambda: case.cut(root, {e: known[e] for e in given if e is not root}))


def _made(make: Callable[[], Case]) -> Case | None:
    """Return the case, or None if the types of its operators no longer fit."""
    try:
        return make()
    except TVMError:
        return None
