"""Solves systems of linear equations over the integers: TVM's `arith.solve_linear_equations`.

    x + y + z == 15, x + y == 10        x := n0 + 10, y := -n0, z := 5

Row and column operations bring the matrix of the system to diagonal form (Smith, 1861). The columns without a diagonal
element are the free variables n0, n1, … of the solution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from tilewright.base.node import node
from tilewright.base.types import BOOL, DataType
from tilewright.scalar.arith.bounds import bounds
from tilewright.scalar.arith.linear import LinearForm, expression
from tilewright.scalar.arith.ranges import Ranges
from tilewright.scalar.arith.simplify import form_of, is_index, simplify
from tilewright.scalar.expr import EQ, LE, LT, IntImm, PrimExpr, Var, add, as_expr, compare, number_of, sub
from tilewright.scalar.range import Range
from tilewright.scalar.walk import free_vars, substitute


@node
class IntConstraints:
    """The integer values of `variables` within their ranges for which all `relations` hold."""

    variables: tuple[Var, ...] = ()
    ranges: dict[Var, Range] = field(default_factory=dict)
    relations: tuple[PrimExpr, ...] = ()


@node
class IntConstraintsTransform:
    """Two equivalent sets of constraints, and the variables of each as expressions of those of the other."""

    src: IntConstraints
    dst: IntConstraints
    src_to_dst: dict[Var, PrimExpr]
    dst_to_src: dict[Var, PrimExpr]


def solve_linear_equations(
    equations: Sequence[PrimExpr] | IntConstraints, variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None
) -> IntConstraintsTransform:
    """Return the constraints without their linear equations, over new variables.

    Other variables are parameters. Relations that are not linear equations are kept. If the equations contradict each
    other, the only relation of the result is False.
    """
    src = equations if isinstance(equations, IntConstraints) else IntConstraints(
        tuple(variables or ()), dict(ranges or {}), tuple(equations))
    if not src.variables:
        return IntConstraintsTransform(src, src, {}, {})
    system, others = _System(src.variables), []
    for e in src.relations:
        if not system.take(e):
            others.append(e)
    system.diagonalize()
    return system.solution(src, others)


class _System:
    """The equations `sum(row[j] * y[j]) == rhs`, where x = `columns` y and y = `inverse` x."""

    def __init__(self, variables: Sequence[Var]) -> None:
        self.variables = tuple(variables)
        n = len(self.variables)
        self.rows: list[list[int]] = []
        self.rhs: list[LinearForm] = []
        self.columns = [[int(i == j) for j in range(n)] for i in range(n)]
        self.inverse = [[int(i == j) for j in range(n)] for i in range(n)]
        self.rank = 0

    def take(self, e: PrimExpr) -> bool:
        """Add a linear equation; return False for other relations."""
        if not isinstance(e, EQ) or not is_index(e.a.dtype):
            return False
        form = form_of(sub(e.a, e.b), Ranges())
        rest = {a: k for a, k in form.coefs.items() if a not in self.variables}
        if any(v in self.variables for a in rest for v in free_vars(a)):
            return False
        self.rows.append([form.coefs.get(v, 0) for v in self.variables])
        self.rhs.append(LinearForm(rest, form.const).times(-1))
        return True

    def diagonalize(self) -> None:
        """Bring the matrix to diagonal form; `rank` is the number of its elements that are not 0."""
        while (pivot := self._smallest()) is not None:
            self._move(*pivot)
            t, p = self.rank, self.rows[self.rank][self.rank]
            for i in range(t + 1, len(self.rows)):
                self._subtract_row(i, self.rows[i][t] // p)
            for j in range(t + 1, len(self.variables)):
                self._subtract_column(j, self.rows[t][j] // p)
            left = [row[t] for row in self.rows[t + 1 :]] + self.rows[t][t + 1 :]
            self.rank += not any(left)

    def _smallest(self) -> tuple[int, int] | None:
        """Return the place of the smallest element that is not 0 beyond the finished ones."""
        found = [
            (abs(row[j]), j, i) for i, row in enumerate(self.rows) if i >= self.rank
            for j in range(self.rank, len(self.variables)) if row[j]]
        return min(found)[:0:-1] if found else None

    def _move(self, i: int, j: int) -> None:
        t = self.rank
        self.rows[t], self.rows[i] = self.rows[i], self.rows[t]
        self.rhs[t], self.rhs[i] = self.rhs[i], self.rhs[t]
        for row in (*self.rows, *self.columns):
            row[t], row[j] = row[j], row[t]
        self.inverse[t], self.inverse[j] = self.inverse[j], self.inverse[t]

    def _subtract_row(self, i: int, times: int) -> None:
        self.rows[i] = [a - times * b for a, b in zip(self.rows[i], self.rows[self.rank], strict=True)]
        self.rhs[i] = self.rhs[i].plus(self.rhs[self.rank], -times)

    def _subtract_column(self, j: int, times: int) -> None:
        t = self.rank
        for row in (*self.rows, *self.columns):
            row[j] -= times * row[t]
        self.inverse[t] = [a + times * b for a, b in zip(self.inverse[t], self.inverse[j], strict=True)]

    def solution(self, src: IntConstraints, others: Sequence[PrimExpr]) -> IntConstraintsTransform:
        """Return the transformation, with the relations that remain."""
        relations: list[PrimExpr] = []
        dtype = self.variables[0].dtype
        found: list[LinearForm] = []
        for k, rhs in enumerate(self.rhs):
            divisor = self.rows[k][k] if k < self.rank else 0
            value = expression(rhs, dtype)
            if divisor:
                exact = rhs.times(1 if divisor > 0 else -1)
                quotient = expression(exact, dtype) // abs(divisor)
                found.append(form_of(quotient, Ranges()))
                relations.append(compare(EQ, value % abs(divisor), 0))
            else:
                relations.append(compare(EQ, value, 0))
        free = self._free()
        found += [LinearForm({v: 1}) for v in free]
        values = {
            x: _combined(row, found, x.dtype) for x, row in zip(self.variables, self.columns, strict=True)}
        given = [LinearForm({x: 1}) for x in self.variables]
        back = {v: _combined(row, given, dtype) for v, row in zip(free, self.inverse[self.rank :], strict=True)}
        relations += [substitute(e, dict(values)) for e in others]
        return _transformed(src, relations, values, back)

    def _free(self) -> list[Var]:
        """Return the free variables; the first variable that depends on one grows with it."""
        for j in range(self.rank, len(self.variables)):
            first = next(row[j] for row in self.columns if row[j])
            if first < 0:
                for row in self.columns:
                    row[j] = -row[j]
                self.inverse[j] = [-a for a in self.inverse[j]]
        return [Var(f"n{k}", self.variables[0].dtype) for k in range(len(self.variables) - self.rank)]


def _combined(coefficients: Sequence[int], forms: Sequence[LinearForm], dtype: DataType) -> PrimExpr:
    """Return the sum of the products of coefficients and forms; the negative of an expression is `0 - x`."""
    total = LinearForm({})
    for k, form in zip(coefficients, forms, strict=True):
        total = total.plus(form, k)
    if total.const == 0 and list(total.coefs.values()) == [-1]:
        return sub(as_expr(0, dtype), next(iter(total.coefs)))
    return expression(total, dtype)


def _transformed(
    src: IntConstraints, relations: Sequence[PrimExpr], values: dict[Var, PrimExpr], back: dict[Var, PrimExpr]
) -> IntConstraintsTransform:
    """Return the transformation, with ranges of the new variables, and the relations that do not follow from them."""
    known, made = _known(src.ranges), {}
    for v, e in back.items():
        low, high = bounds(e, known)
        if low is not None and high is not None:
            made[v] = Range.from_min_extent(as_expr(low, v.dtype), as_expr(high - low + 1, v.dtype))
    limits = [
        relation for x, e in values.items() if (r := src.ranges.get(x)) is not None
        for relation in (compare(LE, r.min, e), compare(LT, e, add(r.min, r.extent)))]
    parameters = {v: r for v, r in src.ranges.items() if v not in values}
    within = _known({**parameters, **made})
    left = []
    for relation in (*relations, *limits):
        decided = number_of(simplify(relation, within))
        if decided is not None and not decided:
            return IntConstraintsTransform(src, IntConstraints((), {}, (IntImm(BOOL, 0),)), {}, {})
        if decided is None:
            left.append(relation)
    return IntConstraintsTransform(src, IntConstraints(tuple(back), {**parameters, **made}, tuple(left)), values, back)


def _known(ranges: Mapping[Var, Range]) -> Ranges:
    found = Ranges()
    for v, r in ranges.items():
        found = found.bind_loop(v, r.min, r.extent)
    return found


__all__ = ["IntConstraints", "IntConstraintsTransform", "solve_linear_equations"]
