"""Schedules: steps that change the loops of a program, but not its results.

A `Schedule` holds a schedulable program (stores in blocks). Loops are identified by their variables, blocks by their
names. Each step replaces the program by a new one and is recorded in `steps`. This record is the schedule as data, and
`apply` repeats it on another copy of the program. A step that cannot be applied raises `ScheduleError`, which names the
loop or block at fault and shows the surrounding loops.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tilewright.base.errors import MissingLoopError, ScheduleError
from tilewright.base.types import INT64, OpenSize
from tilewright.scalar.arith import Interval, Ranges, simplify
from tilewright.scalar.arith.open_sizes import limit, open_size, sampled
from tilewright.scalar.expr import LT as LESS
from tilewright.scalar.expr import (
    Buffer,
    IntImm,
    Load,
    PrimExpr,
    Var,
    add,
    all_of,
    as_expr,
    compare,
    const,
    floordiv,
    floormod,
    integer,
    minimum,
    mul,
    number_of,
    sub,
)
from tilewright.scalar.walk import rewrite, substitute, walk
from tilewright.tir import block_rewrites, loop_rewrites
from tilewright.tir.block_domains import joined, points_using
from tilewright.tir.block_rewrites import check_scope, reads
from tilewright.tir.block_tree import inserted, own_loops
from tilewright.tir.legality import (
    check_bounds,
    check_fuse,
    check_inlined,
    check_order,
    check_passed,
    check_trips,
    fault,
    only_maker,
    place_among,
)
from tilewright.tir.region import regenerate, region_of
from tilewright.tir.rfactor import rfactor_stage
from tilewright.tir.rolling_buffer import rolling_buffer
from tilewright.tir.steps import BlockAt, LoopAt, Recorder, ScheduleStep, recorded
from tilewright.tir.stmt import (
    PARALLEL,
    ROLLING,
    SCOPE,
    SERIAL,
    THREAD,
    UNROLLED,
    VECTORIZED,
    Block,
    For,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    bodies,
    map_bodies,
    map_expressions,
    path_to,
    redirect,
    replaced,
    stored_buffers,
    substitute_stmt,
    walk_stmt,
)
from tilewright.tir.tensorize import TensorIntrin, tensorize
from tilewright.tir.transform.limit_loops import CUT, LIMIT
from tilewright.tir.transform.place_prefetches import NEXT, READS, SHARE


class Schedule(Recorder):
    """Schedule steps over one program. `schedule.func` is the current program.

    With `checked`, a step that would change the results of the program is rejected; otherwise the caller guarantees
    that it does not. Without `recorded`, `steps` stays empty.
    """

    def __init__(self, func: PrimFunc, *, checked: bool = False, recorded: bool = True) -> None:
        self.func = func
        self.checked = checked
        self.is_recorded = recorded
        self.steps: list[ScheduleStep] = []
        self._facts: dict[PrimExpr, Interval] = {v: (n, None) for v, n in sampled().items()}
        """Facts that hold in every block: lower bounds of symbolic sizes, and symbolic loops split with overlap are at
        least as long as the inner factor."""

    # Queries.
    def block(self, name: str) -> Block:
        """Return the block of that name."""
        for s in walk_stmt(self.func.body):
            if isinstance(s, Block) and s.name == name:
                return s
        names = ", ".join(s.name for s in walk_stmt(self.func.body) if isinstance(s, Block))
        raise ScheduleError(f"there is no block '{name}'; the blocks are {names}", code="TW0613")

    def loop(self, var: Var) -> For:
        """Return the loop of that variable."""
        return self._loop(var)

    def loops(self, block: str) -> list[Var]:
        """Return the variables of the loops around a block, outermost first, without those around an outer block."""
        return [f.var for f in own_loops(self._path(self.block(block)))]

    def axes(self, block: str) -> tuple[list[Var], list[Var]]:
        """Return the loops around a block, separated into those that bind spatial axes and those that bind reduction
        axes."""
        target = self.block(block)
        over: set[Var] = set()
        for it, binding in zip(target.iters, target.bindings, strict=True):
            if it.kind == "reduce":
                over.update(v for v in self.loops(block) if _uses(binding, v))
        loops = self.loops(block)
        return [v for v in loops if v not in over], [v for v in loops if v in over]

    def extent(self, loop: Var) -> int:
        """Return the constant extent of a loop, or a sample of a symbolic one."""
        extent = self._loop(loop).extent
        found = extent.value if isinstance(extent, IntImm) else open_size(extent)
        if found is None:
            raise ScheduleError(f"loop '{loop.name}' has the extent {extent}, but this step needs a constant one")
        return found

    # Steps.
    @recorded
    def split(self, loop: Var, factors: Sequence[int | None], *, overlap: bool = False) -> list[Var]:
        """Split a loop into several, outermost first; one factor may be None.

        If the factors do not divide the extent, a predicate guards the rest.

        for i in range(100): C[i]
            ->  for i_0 in range(7): for i_1 in range(16): if i_0 * 16 + i_1 < 100: C[i_0 * 16 + i_1]

        With `overlap`, for two factors and a loop without reduction, the last trip starts earlier instead, and some
        points are computed twice:  for i_0 in range(7): for i_1 in range(16): C[min(i_0 * 16, 84) + i_1]. A loop of
        symbolic extent is assumed to have at least as many iterations as the inner factor; the caller guarantees this.
        """
        node = self._serial(loop, "split")
        extent = node.extent
        sizes = (
            _complete(loop, extent.value, factors) if isinstance(extent, IntImm)
            else _complete_open(loop, extent, factors)
        )
        new = [Var(f"{loop.name}_{k}", loop.dtype) for k in range(len(sizes))]
        point: PrimExpr = const(0, loop.dtype)
        covered: PrimExpr = const(1, loop.dtype)
        for v, size in zip(new, sizes, strict=True):
            point = add(mul(point, size), v)
            covered = mul(covered, size)
        repeats = overlap and covered is not extent
        if repeats:
            self._may_repeat(node, sizes, self.extent(loop))
            if not isinstance(extent, IntImm):
                limit(self.extent(loop), integer(as_expr(sizes[1])))
                self._facts[simplify(extent, Ranges())] = integer(as_expr(sizes[1])), None
            point = add(minimum(mul(new[0], sizes[1]), sub(extent, sizes[1])), new[1])
        body = substitute_stmt(node.body, {loop: add(point, node.min)})
        if covered is not extent and not repeats:
            body = _guard(body, compare(LESS, point, extent))
        for v, size in zip(reversed(new), reversed(sizes), strict=True):
            body = For(v, const(0, loop.dtype), as_expr(size, loop.dtype), SERIAL, body, origin=node.origin)
        self._replace(node, body)
        return new

    def _may_repeat(self, node: For, sizes: Sequence[Any], extent: int) -> None:
        """Raise `ScheduleError` unless points along a loop can be computed twice, in whole trips of two new loops."""
        if len(sizes) != 2 or (sizes[1] > extent and not isinstance(extent, OpenSize)):
            raise self._error(
                f"a split of loop '{node.var.name}' with overlap needs two factors, the inner at most {extent}",
                node)
        for s in walk_stmt(node.body):
            if (
                isinstance(s, Block)
                and (
                    not s.iters
                    or any(i.kind == "reduce" and _uses(b, node.var) for i, b in zip(s.iters, s.bindings, strict=True))
                )
            ):
                raise self._error(
                    f"block '{s.name}' reduces over loop '{node.var.name}', or has no axes, so its points cannot be "
                    "computed twice",
                    node)

    @recorded
    def fuse(self, *loops: Var) -> Var:
        """Fuse directly nested loops into one.

        for i in range(4): for j in range(8): …  ->  for i_j in range(32): … i := i_j // 8, j := i_j % 8

        A single loop stays as it is; in a serial one of a single trip, the variable becomes its value.
        """
        if len(loops) == 1 and (self._loop(loops[0]).kind != SERIAL or number_of(self._loop(loops[0]).extent) != 1):
            return loops[0]
        nodes = [self._serial(v, "fuse") for v in loops]
        for outer, inner in itertools.pairwise(nodes):
            if outer.body is not inner:
                raise self._error(
                    f"loop '{inner.var.name}' is not directly inside '{outer.var.name}', so they cannot be fused", outer
                )
        check_fuse(self.func, nodes)
        kind = max((v.dtype for v in loops), key=lambda d: d.bits)
        fused = Var("_".join(v.name for v in loops), kind)
        total, mapping, rest = const(1, kind), dict[PrimExpr, PrimExpr](), fused.astype(kind)
        longer = [n for n in nodes if not isinstance(n.extent, IntImm) or n.extent.value != 1]
        for n in nodes:
            mapping[n.var] = n.min
        for n in reversed(longer):
            mapping[n.var] = add(rest if n is longer[0] else floormod(rest, n.extent), n.min)
            rest, total = floordiv(rest, n.extent), mul(n.extent, total)
        body = substitute_stmt(nodes[-1].body, mapping)
        self._replace(nodes[0], For(fused, const(0, kind), _polynomial(total), SERIAL, body, origin=nodes[0].origin))
        return fused

    @recorded
    def reorder(self, *loops: Var) -> None:
        """Reorder loops of one nest: they exchange their positions, in the given order from outermost to innermost."""
        twice = next((v for k, v in enumerate(loops) if v in loops[:k]), None)
        if twice is not None:
            raise self._error(f"loop '{twice.name}' is given twice to reorder", self._loop(twice))
        nodes = {v: self._loop(v) for v in loops}
        inside = {v: {id(x) for x in walk_stmt(n)} for v, n in nodes.items()}
        by_depth = sorted(loops, key=lambda v: -len(inside[v]))
        chain: list[For] = []
        at: Stmt = nodes[by_depth[0]]
        while True:
            if not isinstance(at, For):
                raise self._error(
                    f"there are other statements between the loops {', '.join(v.name for v in loops)}",
                    nodes[by_depth[0]])
            self._not_rolling(at)
            chain.append(at)
            if at.var is by_depth[-1]:
                break
            at = at.body
        wanted = iter(loops)
        order = [nodes[next(wanted)] if n.var in nodes else n for n in chain]
        check_bounds(self.func, order)
        if self.checked:
            check_order(self.func, chain, order, self._path(chain[0]))
        body = chain[-1].body
        for n in reversed(order):
            body = replace(n, body=body)
        self._replace(chain[0], body)

    @recorded
    def add_unit_loop(self, at: Var | str) -> Var:
        """Wrap a loop, or the block of that name, in a loop of one trip.

        C[i] = …  ->  for u in range(1): C[i] = …
        """
        node: Stmt = self.block(at) if isinstance(at, str) else self._loop(at)
        new = Var("u")
        self._replace(node, For(new, const(0, INT64), const(1, INT64), SERIAL, node))
        return new

    @recorded
    def merge(self, *loops: Var) -> Var:
        """Merge consecutive nests down to the given loops.

        Return the variable of the inner merged loop.

        for i: B[i] = …;  for i: C[i] = B[i]  ->  for i_m: { B[i_m] = …; C[i_m] = B[i_m] }
        """
        self.func, inner = loop_rewrites.merge(self.func, [self._loop(v) for v in loops])
        return inner

    @recorded
    def loop_partition(self, loop: Var, factors: Sequence[int | None]) -> list[Var]:
        """Split a loop into consecutive loops of `factors` trips; one factor may be None for the rest.

        for i in range(10): B[i] = …  ->  for i_0 in range(2): B[i_0] = …;  for i_1 in range(8): B[i_1 + 2] = …
        """
        self.func, new = loop_rewrites.loop_partition(self.func, self._loop(loop), factors)
        return new

    def tile(self, x: Var, y: Var, x_factor: int, y_factor: int) -> tuple[Var, Var, Var, Var]:
        """Split two loops and order the parts outer, outer, inner, inner."""
        xo, xi = self.split(x, [None, x_factor])
        yo, yi = self.split(y, [None, y_factor])
        self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    @recorded
    def parallel(self, loop: Var, grain: int = 1) -> None:
        """Run the trips of a loop on several threads, `grain` at a time."""
        self._may_run(loop, PARALLEL)
        self._kind(loop, PARALLEL)
        if grain != 1:
            self._mark(loop, "grain", grain)

    @recorded
    def vectorize(self, loop: Var) -> None:
        """Run all trips of a loop at once, as vector lanes. Over a reduction axis, partial results in lanes are
        combined at the end."""
        self.extent(loop)
        self._may_run(loop, VECTORIZED)
        self._kind(loop, VECTORIZED)

    @recorded
    def unroll(self, loop: Var) -> None:
        """Repeat the body for each trip."""
        self.extent(loop)
        self._kind(loop, UNROLLED)

    @recorded
    def annotate(self, at: Var | str, key: str, value: Any) -> None:
        """Attach an annotation to a loop, or to the block of that name, for later passes."""
        self._mark(at, key, value)

    @recorded
    def set_scope(self, block: str, scope: str) -> None:
        """Set the memory of the value that a block computes, `global` or `local`."""
        check_scope(scope)
        made = stored_buffers(self.block(block))
        given = next((b for b in made if b in self.func.params), None)
        if given is not None:
            raise ScheduleError(
                f"block '{block}' computes the parameter '{given.name}', which is in the caller's memory"
            )
        for old in made:
            new = Buffer(old.name, old.shape, old.dtype, scope)
            self._set(redirect(self.func.body, old, new), drop=old, new=new)

    @recorded
    def prefetch(self, buffer: str, ahead: int) -> None:
        """With every vector loaded from a parameter, prefetch the memory `ahead` bytes later."""
        self._parameter(buffer)
        self.func = replace(
            self.func, attrs={**self.func.attrs, "prefetch": {**self.func.attrs.get("prefetch", {}), buffer: ahead}})

    @recorded
    def prefetch_next(self, buffer: str, outer: Var, inner: Var) -> None:
        """During one trip of `outer`, prefetch the data of the next trip: each trip of the loops inside, down to
        `inner`, prefetches a share.

        for p: for m: for k: C[m, p] += A[m, k] * B[p, k]
            ->  for p: for m: for k: prefetch(B[p + 1, share of (m, k)]); C[m, p] += …
        """
        self._parameter(buffer)
        if not any(isinstance(f, For) and f.var is inner for f in walk_stmt(self._loop(outer).body)):
            raise self._error(f"loop '{inner.name}' is not inside loop '{outer.name}'", self._loop(outer))
        self._mark(outer, NEXT, buffer)
        self._mark(inner, SHARE, buffer)

    def _parameter(self, buffer: str) -> None:
        if buffer not in (b.name for b in self.func.buffers):
            raise ScheduleError(
                f"there is no parameter '{buffer}' to prefetch; "
                f"the parameters are {', '.join(b.name for b in self.func.buffers)}",
                code="TW0613")

    @recorded
    def compute_inline(self, block: str) -> None:
        """Recompute an elementwise value at its uses instead of storing it.

        B[i] = A[i] + 1; C[i] = B[i] * 2  ->  C[i] = (A[i] + 1) * 2
        """
        node = self.block(block)
        store = node.body
        if node.init is not None or not isinstance(store, Store) or store.buffer in self.func.params:
            raise self._error(
                f"block '{block}' is a reduction, has several results, or is an output; only an intermediate "
                "elementwise value can be inlined",
                node)
        if self.checked:
            check_inlined(self.func, node)
        buffer = store.buffer
        points: dict[PrimExpr, PrimExpr] = {i.var: const(0, i.var.dtype) for i in node.iters}

        def inline(e: PrimExpr) -> PrimExpr | None:
            if isinstance(e, Load) and e.buffer is buffer:
                return substitute(store.value, points | dict(zip(store.indices, e.indices, strict=True)))
            return None

        memo: dict[PrimExpr, PrimExpr] = {}
        self._remove(node)
        body = map_expressions(self.func.body, lambda e: rewrite(e, inline, memo))
        self._set(body, drop=buffer)

    @recorded
    def cache_read(self, buffer: str, scope: str, readers: Sequence[str]) -> str:
        """Let blocks read a copy of a value, made before the first of them. Return the name of the new block.

        for i: C[i] = A[i] + 1  ->  for i: A_local[i] = A[i]
                                    for i: C[i] = A_local[i] + 1
        """
        self.func, name = block_rewrites.cache_read(self.func, buffer, scope, readers)
        return name

    @recorded
    def cache_write(self, block: str, scope: str) -> str:
        """Let the block compute into other memory, and copy the result back in a new block.

        Return the name of the new block.

        for i: C[i] = A[i] + 1  ->  for i: C_local[i] = A[i] + 1
                                    for i: C[i] = C_local[i]
        """
        self.func, name = block_rewrites.cache_write(self.func, block, scope)
        return name

    @recorded
    def rfactor(self, block: str, loop: Var, factor_axis: int = 0) -> str:
        """Split a reduction into two stages: each trip of `loop` has a separate result. Return the name of the new
        block.

        for ko: for ki: C += A[ko * 4 + ki]  ->  for ko: for ki: C_rf[ki] += A[ko * 4 + ki]
                                                 for ki: C += C_rf[ki]
        """
        self.func, name = rfactor_stage(self.func, block, loop, factor_axis)
        return name

    @recorded
    def compute_at(
        self, block: str, loop: Var, *, preserve_unit_loops: bool = False, across: Sequence[Var] = (), index: int = 0
    ) -> list[Var]:
        """Compute a value inside a loop of its reader, at a position (`place_among`) before its use, and only the part
        that each trip needs.

        for i: B[i] = …; for io: for ii: C[io * 4 + ii] = B[io * 4 + ii]
          ->  for io: { for i in range(4): B[io * 4 + i] = …; for ii: C[…] = B[…] }
        Returns the new loops around the block, in the order of its axes; for a spatial axis of one trip there is a loop
        only with `preserve_unit_loops`. Each trip computes what all trips of the loops `across` around it need.
        """
        node = self.block(block)
        target = self._loop(loop)
        if any(s is node for s in walk_stmt(target)):
            raise self._error(f"loop '{loop.name}' is an ancestor of block '{block}', which is already inside", target)
        self._only_needed_in(target, node)
        around = [*self._path(target), target]
        outer = Ranges(facts=self._facts)
        for f in around:
            outer = outer.bind_loop(f.var, f.min, f.extent) if isinstance(f, For) else outer
        needed = {b: region_of(target.body, b, outer, across=across) for b in stored_buffers(node)}
        parts = [points_using(node, b, box, outer, stores=True) for b, box in needed.items() if box is not None]
        if not parts:
            names = ", ".join(f"'{b.name}'" for b in needed)
            raise self._error(f"{names} is not read inside loop '{loop.name}'", target)
        region = [None if i.kind == "reduce" else joined([p.get(i.var) for p in parts]) for i in node.iters]
        if self.checked:
            only_maker(self.func, node)
            check_passed(self.func, node, target, stored_buffers(node))
        place = place_among(self.func, node, target, index) if index else 0
        self._remove(node)
        target = self._loop(loop)
        nest, new = regenerate(node, region, outer, preserve_unit_loops)
        self._replace(target, replace(target, body=inserted(target.body, place, nest)))
        return new

    @recorded
    def prefetch_reads(self, loop: Var, buffers: Sequence[str]) -> None:
        """At the start of each trip of `loop`, prefetch what its stores read of these parameters.

        for m: { …; for i: C[m, i] = acc[i] + A[m, i] }
            ->  for m: { for i: prefetch(A[m, i]); …; for i: C[m, i] = acc[i] + A[m, i] }
        """
        self._mark(loop, READS, tuple(buffers))

    @recorded
    def rolling_buffer(self, block: str) -> None:
        """Keep the part of a value that the next trip of its reader's loop needs in a ring buffer
        (`tir/rolling_buffer.py`).

        for i: { for x in range(3): B[i + x] = …; C[i] = B[i] + B[i + 2] }
          ->  for i: { for x in range(3): if i == 0 or x == 2: B[(i + x) % 3] = …; C[i] = B[i % 3] + B[(i + 2) % 3] }
        """
        node = self.block(block)
        self.func = rolling_buffer(self.func, node, self._path(node))

    @recorded
    def where(self, block: str, condition: PrimExpr) -> None:
        """Let a block compute only where `condition`, over its axes and the loops around it, is true.

        with block("C", i=i): C[i] = A[i]  ->  with block("C", i=i) where i < 3: C[i] = A[i]
        """
        node = self.block(block)
        self._replace(node, replace(node, predicate=all_of(node.predicate, condition)))

    @recorded
    def limit(self, loop: Var, block: str, step: int = 1) -> None:
        """Run only the iterations of a serial loop that make the first `n` steps, `step` in each, where `n` is the
        value that a block computes inside the same outer loop. The caller guarantees that no result needs the others.

        n = …; for i in range(8): A[i] = …  ->  n = …; for i in range(min(8, (n + step - 1) // step)): A[i] = …
        """
        (buffer,) = stored_buffers(self.block(block))
        self._mark(loop, LIMIT, (buffer.name, step))

    @recorded
    def cut(self, loop: Var, block: str, step: int = 1) -> None:
        """Cut a serial loop, which makes `step` steps in each iteration, at the value `n` that a block computes inside
        the same outer loop. Comparisons `… < n` inside are true in the first part, and false in the second. The caller
        guarantees that results are the same if a comparison is false instead of true.

        for i: A[i] = f(i < n)  ->  for i in range(min(8, n)): A[i] = f(true); for i in range(min(8, n), 8): …
        """
        (buffer,) = stored_buffers(self.block(block))
        self._mark(loop, CUT, (buffer.name, step))

    @recorded
    def tensorize(self, at: Var | str, intrin: TensorIntrin | str) -> None:
        """Replace a loop with its body, or a block that contains loops, by an intrinsic (given as an object or by
        registered name).

        for j: for k: C[j] += A[k] * B[j, k]  ->  gemv(C, A, B)
        """
        target = self._loop(at) if isinstance(at, Var) else self.block(at)
        outer = Ranges()
        for f in self._path(target):
            outer = outer.bind_loop(f.var, f.min, f.extent) if isinstance(f, For) else outer
        found = TensorIntrin.get(intrin) if isinstance(intrin, str) else intrin
        self._replace(target, tensorize(self.func, target, outer, found))

    def _only_needed_in(self, target: For, node: Block) -> None:
        """Raise `ScheduleError` if a value to be moved into a loop is used outside of it."""
        for buffer in stored_buffers(node):
            if buffer in self.func.params:
                raise self._error(
                    f"block '{node.name}' is an output block: it computes the parameter '{buffer.name}', which must be "
                    "stored whole", target)
            if reads(self.func.body, buffer, target, node):
                raise self._error(
                    f"the step requires all the consumers of '{buffer.name}' in loop '{target.var.name}', but it is "
                    "read outside, too", target)

    # Steps as data.
    def reference(self, arg: Any) -> Any:
        """Return a loop as its position around the first block inside it, and a registered intrinsic as its name."""
        if isinstance(arg, TensorIntrin) and TensorIntrin.known.get(arg.name) is arg:
            return arg.name
        if not isinstance(arg, Var):
            return arg
        stack: list[tuple[Stmt, int]] = [(self.func.body, 0)]
        while stack:
            s, depth = stack.pop()
            if isinstance(s, For) and s.var is arg:
                block = next((b for b in walk_stmt(s) if isinstance(b, Block)), None)
                if block is None:
                    raise self._error(
                        f"loop '{arg.name}' is inside a block; steps apply only to loops around blocks", s)
                return LoopAt(block.name, depth)
            depth = 0 if isinstance(s, Block) else depth + (isinstance(s, For) and SCOPE not in s.annotations)
            stack.extend((b, depth) for b in reversed(bodies(s)))
        raise self._gone(arg)

    def referred(self, data: Any) -> Any:
        if not isinstance(data, LoopAt):
            return data.block if isinstance(data, BlockAt) else data
        loops = self.loops(data.block)
        if not 0 <= data.loop < len(loops):
            raise ScheduleError(
                f"block '{data.block}' has {len(loops)} loops around it, but no loop number {data.loop}"
            )
        return loops[data.loop]

    # The tree.
    def _loop(self, loop: Var) -> For:
        stack = [self.func.body]
        while stack:
            s = stack.pop()
            if type(s) is For and s.var is loop:
                return s
            stack += bodies(s)[::-1]
        raise self._gone(loop)

    def _gone(self, loop: Var) -> ScheduleError:
        return MissingLoopError(f"there is no loop '{loop.name}' in the program anymore:\n{self.func}", code="TW0613")

    def around(self, s: Stmt) -> list[Stmt]:
        """Return the statements around `s`, outermost first."""
        return self._path(s)

    def _serial(self, loop: Var, step: str) -> For:
        node = self._loop(loop)
        if node.kind != SERIAL:
            raise self._error(f"loop '{loop.name}' is already {node.kind}; {step} it first", node)
        self._not_rolling(node)
        return node

    def _not_rolling(self, node: For) -> None:
        if node.annotations.get(ROLLING):
            kept = ", ".join(node.annotations[ROLLING])
            raise self._error(
                f"loop '{node.var.name}' cannot be changed: {kept} passes data from one iteration to the next",
                node)

    def _mark(self, at: Var | str, key: str, value: Any) -> None:
        node = self._loop(at) if isinstance(at, Var) else self.block(at)
        self._replace(node, replace(node, annotations={**node.annotations, key: value}))

    def _may_run(self, loop: Var, kind: str) -> None:
        if self.checked:
            node = self._loop(loop)
            check_trips(self.func, node, kind, self._path(node))

    def _kind(self, loop: Var, kind: str) -> None:
        node = self._serial(loop, "leave that out, or split")
        notes = {k: v for k, v in node.annotations.items() if k != THREAD}
        self._replace(node, replace(node, kind=kind, annotations=notes))

    def _path(self, target: Stmt) -> list[Stmt]:
        """Return the statements around `target`, outermost first."""
        return path_to(self.func.body, target)

    def _replace(self, old: Stmt, new: Stmt) -> None:
        self.func = replaced(self.func, old, new)

    def _remove(self, block: Block) -> None:
        """Remove a block, and the loops that become empty."""
        old: Stmt = block
        path = self._path(block)
        while path and isinstance(path[-1], For):
            old = path.pop()
        if not path:
            self.func = self.func.with_body(Seq(()))
            return
        parent = path[-1]
        kept = map_bodies(parent, lambda b: None if b is old else b)
        if kept is None:
            raise self._error(f"block '{block.name}' is the only block, so it cannot be removed", block)
        self._replace(parent, kept)

    def _set(self, body: Stmt, drop: Buffer, new: Buffer | None = None) -> None:
        inner = (
            tuple(b for b in self.func.attrs.get("intermediates", ()) if b is not drop)
            + (() if new is None else (new,))
        )
        self.func = replace(self.func, body=body, attrs={**self.func.attrs, "intermediates": inner})

    def _error(self, message: str, at: Stmt) -> ScheduleError:
        return fault(message, at, self.func)


def _uses(e: PrimExpr, v: Var) -> bool:
    return any(x is v for x in walk(e))


def _complete(loop: Var, extent: int, factors: Sequence[int | None]) -> list[Any]:
    known = 1
    for f in factors:
        if f is not None:
            if f < 1:
                raise ScheduleError(f"loop '{loop.name}' cannot be split by {f}; factors are 1 or more")
            known *= f
    if sum(f is None for f in factors) > 1:
        raise ScheduleError(f"loop '{loop.name}' cannot be split by {list(factors)}: at most one factor may be None")
    sizes = [-(-extent // known) if f is None else f for f in factors]
    total = 1
    for s in sizes:
        total *= s
    if total < extent:
        raise ScheduleError(f"loop '{loop.name}' has {extent} iterations, but the factors {sizes} cover only {total}")
    return sizes


def _complete_open(loop: Var, extent: PrimExpr, factors: Sequence[int | None]) -> list[int | PrimExpr]:
    """Return the factors of a loop of symbolic extent: one of them must be None."""
    if sum(f is None for f in factors) != 1:
        raise ScheduleError(
            f"loop '{loop.name}' has {extent} iterations, a number known only at run time; give None for one of the "
            f"factors {list(factors)}")
    known = _complete(loop, 1, factors)
    covered = prod(known)
    return [simplify(floordiv(add(extent, covered - 1), covered), Ranges()) if f is None else f for f in factors]


def _polynomial(size: PrimExpr) -> PrimExpr:
    """Return a symbolic size in the form of sizes, so that equal ones are the same: n*(h*16) -> n*h*16."""
    found = None if isinstance(size, IntImm) else open_size(size)
    return size if found is None else as_expr(found)


def _guard(s: Stmt, condition: PrimExpr) -> Stmt:
    """Add `condition` to the predicate of every block inside."""

    def visit(x: Stmt) -> Stmt:
        if isinstance(x, Block):
            return replace(x, predicate=all_of(x.predicate, condition))
        return map_bodies(x, visit) or x

    return visit(s)
