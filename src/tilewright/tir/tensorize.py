"""Inner loops become one block, and such a block the body of an instruction or of a routine written by hand.

An intrinsic is two functions over the same buffers: what it computes, and what to run instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tilewright.arith import Ranges, linear, simplify
from tilewright.arith.linear import LinearForm, expression
from tilewright.errors import ScheduleError
from tilewright.expr import Buffer, IntImm, Load, PrimExpr, Var, add, const, floordiv, mul, sub
from tilewright.expr_walk import free_vars, rewrite, substitute
from tilewright.settings import nearest
from tilewright.tir.legality import fault, reduces_over
from tilewright.tir.schedule import Schedule
from tilewright.tir.stmt import (
    Allocate,
    Block,
    For,
    IterVar,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    map_bodies,
    map_expressions,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.transform.convert_ssa import convert_ssa
from tilewright.types import BOOL, INT64


@dataclass(frozen=True, slots=True)
class TensorIntrin:
    """`desc` says what is computed, `impl` computes it; both have the same parameters."""

    name: str
    desc: PrimFunc
    impl: PrimFunc
    known: ClassVar[dict[str, TensorIntrin]] = {}

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> TensorIntrin:
        """Make `name` known to `tensorize`. Raises `ScheduleError`."""
        shapes = [[(b.shape, b.dtype) for b in f.params] for f in (desc, impl)]
        if shapes[0] != shapes[1]:
            raise ScheduleError(f"intrinsic '{name}': its two functions have other parameters; both take the same buffers in the same order")
        if name in TensorIntrin.known and not override:
            raise ScheduleError(f"there is an intrinsic '{name}' already; register it with override=True, or under another name")
        TensorIntrin.known[name] = made = TensorIntrin(name, desc, impl)
        return made

    @staticmethod
    def get(name: str) -> TensorIntrin:
        found = TensorIntrin.known.get(name)
        if found is None:
            raise ScheduleError(f"there is no intrinsic '{name}'{nearest(name, TensorIntrin.known)}; make it known with TensorIntrin.register")
        return found


def blockize(func: PrimFunc, loop: Var) -> tuple[PrimFunc, str]:
    """A loop with all inside becomes one block over tiles.

    for io: for ii in range(4): C[io * 4 + ii] = …  ->  for io: with block("C_o", vo = io): for ii: C[vo * 4 + ii] = …
    """
    s = Schedule(func)
    target = s.loop(loop)
    inner: list[For] = []
    body: Stmt = target
    while isinstance(body, For):
        inner.append(body)
        body = body.body
    if not isinstance(body, Block):
        raise fault(f"loop '{loop.name}' holds several statements; only the loops around one block become a block", target, func)
    if any(f.kind != "serial" for f in inner) or not (isinstance(body.predicate, IntImm) and body.predicate.value):
        raise fault(f"the loops of block '{body.name}' inside of '{loop.name}' are marked, or cover its domain only in part", target, func)
    axes, points = [], dict[PrimExpr, PrimExpr]()
    for it, binding in zip(body.iters, body.bindings, strict=True):
        axes.append(_tile(func, target, it, binding, inner))
        own, _, size, rest = axes[-1]
        points[it.var] = add(mul(own.var, size), rest)
    name = body.name + "_o"
    fresh: dict[PrimExpr, PrimExpr] = {f.var: Var(f.var.name) for f in inner}
    init = None
    if body.init is not None:
        spatial = [f for f in inner if not reduces_over(body, f.var)]
        init = _nest(spatial, substitute_stmt(substitute_stmt(body.init, points), fresh), fresh)
    block = Block(
        name, tuple(a for a, _, _, _ in axes), tuple(b for _, b, _, _ in axes), IntImm(BOOL, 1), init,
        _nest(inner, substitute_stmt(body.body, points)), {k: v for k, v in body.annotations.items() if k != "combiner"}, body.origin,
    )
    s._replace(target, block)
    return s.func, name


def _tile(func: PrimFunc, at: For, it: IterVar, binding: PrimExpr, inner: Sequence[For]) -> tuple[IterVar, PrimExpr, int, PrimExpr]:
    """The axis over tiles, its binding, the size of a tile, and where in the tile a trip of the inner loops is."""
    extents = {f.var: int(f.extent) for f in inner}  # type: ignore[call-overload]
    ranges = Ranges()
    for v, n in extents.items():
        ranges = ranges.bind(v, 0, n - 1)
    form = linear(simplify(binding, ranges))
    rest, outer, size = LinearForm({}), LinearForm({}, form.const), 1
    for atom, c in sorted(form.coefs.items(), key=lambda item: abs(item[1])):
        if atom in extents:
            if c != size:
                raise fault(f"axis '{it.var.name}' is '{binding}', which is not a whole tile of the loops from '{at.var.name}' in", at, func)
            rest, size = rest.plus(LinearForm({atom: c})), size * extents[atom]  # type: ignore[index]
        elif any(v in extents for v in free_vars(atom)):
            raise fault(f"axis '{it.var.name}' is '{binding}', which is not a sum of a tile and a place in it", at, func)
        else:
            outer = outer.plus(LinearForm({atom: c}))
    whole = int(it.extent)  # type: ignore[call-overload]
    if whole % size or outer.const % size or any(c % size for c in outer.coefs.values()):
        raise fault(f"axis '{it.var.name}' of {whole} is not made of whole tiles of {size}", at, func)
    own = IterVar(Var(it.var.name), const(whole // size, INT64), it.kind)
    return own, simplify(floordiv(expression(outer), size), Ranges()), size, expression(rest)


def _nest(loops: Sequence[For], body: Stmt, fresh: dict[PrimExpr, PrimExpr] | None = None) -> Stmt:
    for f in reversed(loops):
        var: Any = (fresh or {}).get(f.var, f.var)
        body = replace(f, var=var, body=body)
    return body


def tensorize(func: PrimFunc, at: Var | str, intrinsic: TensorIntrin) -> tuple[PrimFunc, str]:
    """The loops from `at` in, or a block made by `blockize`, become what `intrinsic` runs for them."""
    if isinstance(at, Var):
        func, name = blockize(func, at)
    else:
        name = at
    s = Schedule(func)
    block = s.block(name)
    match = _Match(func, block, intrinsic)
    match.stmt(_plain(intrinsic.desc), block.body)
    impl = _plain(convert_ssa(_own(intrinsic.impl)))
    params = dict(zip(intrinsic.impl.params, intrinsic.desc.params, strict=True))
    s._replace(block, replace(block, body=_placed(impl, {own: match.places[desc] for own, desc in params.items() if desc in match.places})))
    return s.func, name


def _own(func: PrimFunc) -> PrimFunc:
    """`func` with variables of its own, for one more use of it."""
    fresh: dict[PrimExpr, PrimExpr] = {x.var: Var(x.var.name, x.var.dtype) for x in walk_stmt(func.body) if isinstance(x, For)}

    def visit(s: Stmt) -> Stmt:
        s = map_bodies(s, visit) or s
        return replace(s, var=fresh[s.var]) if isinstance(s, For) else s  # type: ignore[arg-type]

    return func.with_body(visit(substitute_stmt(func.body, fresh)))


def _plain(func: PrimFunc) -> Stmt:
    """The body with blocks as what they do, first values left out: the block around has them."""

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Block):
            return visit(substitute_stmt(s.body, dict(zip((i.var for i in s.iters), s.bindings, strict=True))))
        return map_bodies(s, visit) or s

    return visit(func.body)


Place = tuple[Buffer, tuple[PrimExpr, ...]]


def _placed(s: Stmt, places: dict[Buffer, Place]) -> Stmt:
    """`s` with the buffers of an intrinsic at their places in those of the program."""

    def at(place: Place, indices: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
        lead = len(place[1]) - len(indices)
        return (*place[1][:lead], *(add(b, i) for b, i in zip(place[1][lead:], indices, strict=True)))

    def loads(e: PrimExpr) -> PrimExpr | None:
        place = places.get(e.buffer) if isinstance(e, Load) else None
        return None if place is None else Load(place[0], at(place, e.indices))  # type: ignore[attr-defined]

    def stores(x: Stmt) -> Stmt:
        if isinstance(x, Store) and x.buffer in places:
            return replace(x, buffer=places[x.buffer][0], indices=at(places[x.buffer], x.indices))
        return map_bodies(x, stores) or x

    return stores(map_expressions(s, lambda e: rewrite(e, loads)))


class _Match:
    """Finds where the buffers of a description are in a block; raises where the block computes something else."""

    def __init__(self, func: PrimFunc, block: Block, intrinsic: TensorIntrin) -> None:
        self.func, self.block, self.intrinsic = func, block, intrinsic
        self.vars: dict[PrimExpr, PrimExpr] = {}
        self.places: dict[Buffer, Place] = {}
        self.ranges = Ranges()

    def no(self, why: str) -> ScheduleError:
        return fault(f"block '{self.block.name}' is not what intrinsic '{self.intrinsic.name}' computes: {why}", self.block, self.func)

    def stmt(self, want: Stmt, have: Stmt) -> None:
        while isinstance(have, For) and int(have.extent) == 1 and not (isinstance(want, For) and int(want.extent) == 1):  # type: ignore[call-overload]
            have = substitute_stmt(have.body, {have.var: have.min})
        if type(want) is not type(have) or isinstance(want, (Seq, Allocate)):
            raise self.no(f"a {type(have).__name__} stands where it has a {type(want).__name__}")
        if isinstance(want, For) and isinstance(have, For):
            if want.extent is not have.extent:
                raise self.no(f"loop '{have.var.name}' has {have.extent} trips, and {want.extent} are needed")
            self.vars[want.var] = have.var
            self.ranges = self.ranges.bind_loop(have.var, have.min, have.extent)
            self.stmt(want.body, have.body)
        elif isinstance(want, Store) and isinstance(have, Store):
            self.access(want.buffer, want.indices, have.buffer, have.indices)
            self.expr(want.value, have.value)

    def expr(self, want: PrimExpr, have: PrimExpr) -> None:
        if isinstance(want, Load) and isinstance(have, Load):
            self.access(want.buffer, want.indices, have.buffer, have.indices)
            return
        a, b = want.operands(), have.operands()
        if type(want) is not type(have) or want.dtype is not have.dtype or len(a) != len(b) or getattr(want, "op", None) is not getattr(have, "op", None):
            raise self.no(f"'{have}' stands where it has '{want}'")
        if not a and self.vars.get(want, want) is not have:
            raise self.no(f"'{have}' stands where it has '{want}'")
        for x, y in zip(a, b, strict=True):
            self.expr(x, y)

    def access(self, want: Buffer, inner: Sequence[PrimExpr], have: Buffer, outer: Sequence[PrimExpr]) -> None:
        lead = len(outer) - len(inner)
        if lead < 0 or want.dtype is not have.dtype:
            raise self.no(f"'{have.name}' is {have.dtype} of {len(outer)} dimensions, where it has {want.dtype} of {len(inner)}")
        base = [*outer[:lead], *(sub(o, substitute(i, self.vars)) for o, i in zip(outer[lead:], inner, strict=True))]
        place = tuple(simplify(e, self.ranges) for e in base)
        mine = set(self.vars.values())
        if any(v in mine for e in place for v in free_vars(e)):
            raise self.no(f"'{have.name}' is used at [{', '.join(map(str, outer))}], not along the dimensions of '{want.name}'")
        known = self.places.setdefault(want, (have, place))
        if known[0] is not have or any(x is not y for x, y in zip(known[1], place, strict=True)):
            raise self.no(f"'{want.name}' would be two things")
