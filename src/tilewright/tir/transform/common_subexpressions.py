"""Name values that are computed more than once.

    for i in T.serial(8):              ->      for i in T.serial(8):
        A[i // 3 + 1] = 1.0                        cse_var_1 = i // 3
        B[i // 3 + 2] = 2.0                        A[cse_var_1 + 1] = 1.0
                                                   B[cse_var_1 + 2] = 2.0

A binding surrounds the outermost statement in which the value is computed at least twice on every path and its
variables are known. A value that both branches of a condition compute counts in both; the body of a loop counts
outside if it runs at least once. Larger values are named first. Values that read memory, may divide by zero, or are
vectors are not bound. Code generation shares the expressions of consecutive statements by itself. So this pass is for
readability and for other back ends, and is not part of `lower_loops`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tilewright.scalar.arith import Ranges, simplify
from tilewright.scalar.arith.polynomials import polynomial
from tilewright.scalar.arith.simplify import is_index
from tilewright.scalar.expr import (
    Add,
    Binary,
    Call,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Load,
    Mul,
    PrimExpr,
    Sub,
    TruncDiv,
    TruncMod,
    Var,
    number_of,
)
from tilewright.scalar.walk import free_vars, rewrite, walk
from tilewright.tir.stmt import (
    NUMBERS,
    Allocate,
    AttrStmt,
    Block,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    expressions,
    map_bodies,
    map_expressions,
)

_DIVISIONS: Final = (FloorDiv, FloorMod, TruncDiv, TruncMod)


def common_subexpressions(func: PrimFunc, identify_equiv_terms: bool = False) -> PrimFunc:
    """Bind each scalar that is computed at least twice with a `Let`.

    With `identify_equiv_terms`, values with one simplified form are the same, such as `x * (y + z)` and `x * y + x *
    z`; the form with the most operations is computed.
    """
    sizes = [v for b in func.buffers for d in b.shape if isinstance(d, PrimExpr) for v in free_vars(d)]
    known = frozenset([*sizes, *func.scalars, *func.attrs.get(NUMBERS, ())])
    return func.with_body(_Namer(identify_equiv_terms).stmt(func.body, known))


@dataclass(slots=True)
class _Namer:
    equivalent: bool
    number: int = 0
    worth: dict[PrimExpr, bool] = field(default_factory=dict)
    forms: dict[object, PrimExpr] = field(default_factory=dict)

    def stmt(self, s: Stmt, known: frozenset[Var]) -> Stmt:
        lets: list[Let] = []
        while (found := self.repeated(s, lets, known)) is not None:
            s, lets = self.named(found, s, lets)
        inner = known | {let.var for let in lets}
        if isinstance(s, (For, Let)):
            inner |= {s.var}
        elif isinstance(s, Block):
            inner |= {i.var for i in s.iters}
        s = map_bodies(s, lambda b: self.stmt(b, inner)) or s
        for let in reversed(lets):
            s = Let(let.var, let.value, s)
        return s

    def repeated(self, s: Stmt, lets: list[Let], known: frozenset[Var]) -> PrimExpr | None:
        """Return the largest value that `s` and the bindings around it compute at least twice, or None.
        """
        counts = self.computed(s)
        for let in lets:
            counts += self.occurrences(let.value)
        names = known | {let.var for let in lets}
        found = [e for e, n in counts.items() if n > 1 and names.issuperset(free_vars(e))]
        return max(found, key=_size, default=None)

    def named(self, value: PrimExpr, s: Stmt, lets: list[Let]) -> tuple[Stmt, list[Let]]:
        """Return `s` and the bindings around it with a name for a value."""
        self.number += 1
        name = Var(f"cse_var_{self.number}", value.dtype)
        same, chosen, memo = self.form(value), value, dict[PrimExpr, PrimExpr]()

        def rule(e: PrimExpr) -> PrimExpr | None:
            nonlocal chosen
            if e is not value and not (self.equivalent and self.worthy(e) and self.form(e) is same):
                return None
            chosen = max(chosen, e, key=_size)
            return name

        s = map_expressions(s, lambda e: rewrite(e, rule, memo))
        lets = [Let(let.var, rewrite(let.value, rule, memo), let.body) for let in lets]
        return s, [Let(name, chosen, Seq(())), *lets]

    def computed(self, s: Stmt) -> Counter[PrimExpr]:
        """Return how often each value is computed whenever `s` runs."""
        counts: Counter[PrimExpr] = Counter()
        for e in expressions(s):
            counts += self.occurrences(e)
        match s:
            case Seq():
                for x in s.stmts:
                    counts += self.computed(x)
            case IfThenElse():
                if s.else_case is not None:
                    then, other = self.computed(s.then_case), self.computed(s.else_case)
                    counts += Counter({e: n + other[e] for e, n in then.items() if other[e]})
            case For() if isinstance(s.extent, IntImm) and s.extent.value > 0:
                counts += self.computed(s.body)
            case Let() | AttrStmt() | Allocate():
                counts += self.computed(s.body)
            case _:
                pass
        return counts

    def occurrences(self, e: PrimExpr) -> Counter[PrimExpr]:
        """Return how often each value that is worth a name occurs in an expression, which is a graph."""
        uses: Counter[PrimExpr] = Counter({e: 1})
        found: Counter[PrimExpr] = Counter()
        for x in reversed(walk(e)):
            for o in x.operands():
                uses[o] += uses[x]
            if self.worthy(x):
                found[self.form(x) if self.equivalent else x] += uses[x]
        return found

    def form(self, e: PrimExpr) -> PrimExpr:
        """Return the first value with the same simplified form, if equivalent values are the same."""
        if not self.equivalent:
            return e
        whole = is_index(e.dtype) and isinstance(e, (Add, Sub, Mul))
        key = (e.dtype, frozenset(polynomial(e).items())) if whole else simplify(e, Ranges())
        return self.forms.setdefault(key, e)

    def worthy(self, e: PrimExpr) -> bool:
        if not isinstance(e, (Binary, Call, Cast)) or e.dtype.lanes > 1:
            return False
        found = self.worth.get(e)
        if found is None:
            found = self.worth[e] = not any(
                isinstance(x, Load) or (isinstance(x, Call) and x.op.effect)
                or (isinstance(x, _DIVISIONS) and not number_of(x.b)) for x in walk(e))
        return found


def _size(e: PrimExpr) -> int:
    """Return the number of operands and operations of a value, at most some thousand."""
    sizes: dict[PrimExpr, int] = {}
    for x in walk(e):
        sizes[x] = min(1 + sum(sizes[o] for o in x.operands()), 1 << 12)
    return sizes[e]
