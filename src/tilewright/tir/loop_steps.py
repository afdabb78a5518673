"""Steps of `tir.Schedule` on loops and copies, and references to loops and blocks (see `module_schedule.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, overload

from tilewright.base.errors import MissingBufferError, MissingLoopError, ScheduleError, UnknownFunctionError
from tilewright.base.types import BOOL
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Buffer, Var, const
from tilewright.tir import block_copies, rfactor
from tilewright.tir import loop_schedule as engine
from tilewright.tir.block_moves import whole_domain
from tilewright.tir.block_regions import buffers_read
from tilewright.tir.block_scope import StmtSRef
from tilewright.tir.block_tree import child_blocks
from tilewright.tir.flat_bindings import with_flat_bindings
from tilewright.tir.legality import (
    check_all_points,
    check_complete,
    check_nested,
    check_own_axes,
    check_sum,
    only_maker,
)
from tilewright.tir.loop_rewrites import check_plain
from tilewright.tir.nested_blocks import ScopeSchedule, holder_of, scope_of
from tilewright.tir.steps import BlockAt, LoopAt, Recorder, recorded
from tilewright.tir.stmt import (
    PARALLEL,
    ROOT_ATTRS,
    ROOT_BLOCK,
    UNROLLED,
    VECTORIZED,
    Block,
    For,
    PrimFunc,
    Stmt,
    block_names,
    map_bodies,
    stored_buffers,
    walk_stmt,
)
from tilewright.tir.threads import is_shared_by
from tilewright.tir.transform.convert_ssa import convert_ssa
from tilewright.tir.transform.infer_reducers import infer_reducers

MAIN = "main"
NO_LOOP: Final = Var("_")
"""The variable of a reference that is only part of a trace."""
UPDATE: Final = "_update"
"""Ending of TVM's name of a sum without its initial values."""
ROOT, INLINE = -1, -2
"""Decisions of `sample_compute_location`: keep the block where it is, or inline it into its readers."""


@dataclass(frozen=True, slots=True)
class LoopRV:
    """A reference to a loop of a schedule."""

    var: Var = NO_LOOP
    func: str = ""

    def same_as(self, other: object) -> bool:
        """Return whether both are the same object."""
        return self is other

    def __repr__(self) -> str:
        return f"loop '{self.var.name}' of {self.func}"


class LoopSteps(Recorder):
    """Steps on the functions of a module; each preserves the results of the program.

    `mod` is an `IRModule`, or a function, which becomes `main`. Every step raises `ScheduleError` if it cannot be
    applied.
    """

    def __init__(self, mod: PrimFunc | IRModule) -> None:
        module = IRModule({MAIN: mod}) if isinstance(mod, PrimFunc) else mod
        if not isinstance(module, IRModule):
            raise ScheduleError(
                f"a schedule takes a PrimFunc or an IRModule of them, but was given a {type(mod).__name__}")
        self._module = module
        self._engines = {
            name: engine.Schedule(convert_ssa(infer_reducers(_named_apart(f))), checked=True)
            for name, f in module.items()
            if isinstance(f, PrimFunc)}
        self.steps = []
        self._removed: list[BlockAt | LoopRV] = []
        self._flat: dict[str, tuple[PrimFunc, PrimFunc]] = {}
        for name, e in self._engines.items():
            _check_blocks(name, e.func)

    @property
    def mod(self) -> IRModule:
        """The current module, with flat bindings."""
        new = self._module.copy()
        for name, e in self._engines.items():
            if self._flat.get(name, (None, None))[0] is not e.func:
                self._flat[name] = e.func, with_flat_bindings(e.func)
            new[name] = self._flat[name][1]
        return new

    # Queries.
    def get_block(self, name: str, func_name: str | None = None) -> BlockAt:
        """Return the block of that name; `func_name` is needed if a module has several functions and none is `main`.

        A sum whose initial values are in a block "C_init" has the name "C_update", too.
        """
        at = self._with_own_name(BlockAt(name, self._named(func_name)))
        if not self._is_root(at):
            self._engine(at.func).block(at.block)
        return at

    def _with_own_name(self, at: BlockAt) -> BlockAt:
        """Return a reference with the name that the block has here, where TVM renames it."""
        own = at.block.removesuffix(UPDATE)
        names = block_names(self._engine(at.func).func) if own != at.block else []
        known = at.block in names or not {own, f"{own}_init"} <= {*names}
        return at if known else replace(at, block=own)

    def get_loops(self, block: BlockAt | str) -> list[LoopRV]:
        """Return the loops around a block, outermost first."""
        at = self._block(block)
        func = self._named(at.func)
        return [] if self._is_root(at) else [LoopRV(v, func) for v in self._engine(func).loops(at.block)]

    @overload
    def get(self, what: BlockAt | str) -> Block: ...
    @overload
    def get(self, what: LoopRV) -> For: ...
    @overload
    def get(self, what: int) -> int: ...
    @overload
    def get(self, what: StmtSRef) -> Block | For: ...
    def get(self, what: BlockAt | LoopRV | StmtSRef | str | int) -> Block | For | int:
        """Return the current statement of a block or a loop, or that of a reference; a sampled number is its own value.
        """
        if isinstance(what, int):
            return what
        self._check_kept(what)
        if isinstance(what, StmtSRef):
            statement: Block | For = what.stmt
            return statement
        if isinstance(what, LoopRV):
            return self._engine(what.func).loop(what.var)
        at = self._block(what)
        if self._is_root(at):
            func = self._engine(at.func).func
            return Block(ROOT_BLOCK, (), (), const(1, BOOL), None, func.body, dict(func.attrs.get(ROOT_ATTRS, {})))
        return self._engine(at.func).block(at.block)

    def _is_root(self, at: BlockAt) -> bool:
        """Return whether a reference is to the block around all others, which has no statement."""
        return at.block == ROOT_BLOCK and ROOT_BLOCK not in block_names(self._engine(at.func).func)

    def _set_root(self, at: BlockAt, annotations: dict[str, Any]) -> None:
        e = self._engine(at.func)
        kept = {k: v for k, v in e.func.attrs.items() if k != ROOT_ATTRS}
        e.func = replace(e.func, attrs={**kept, ROOT_ATTRS: annotations} if annotations else kept)

    # Steps.
    @recorded
    def split(self, loop: LoopRV, factors: Sequence[int | None]) -> list[LoopRV]:
        """Split a loop without annotations into several, outermost first; one of the factors may be None."""
        self._check_plain(loop, "split")
        sizes = [None if f is None else int(f) for f in factors]
        return [LoopRV(v, loop.func) for v in self._engine(loop.func).split(loop.var, sizes)]

    @recorded
    def fuse(self, *loops: LoopRV) -> LoopRV:
        """Fuse directly nested loops without annotations into one; a single loop stays as it is."""
        e = self._together(loops)
        for v in loops if len(loops) > 1 else ():
            self._check_plain(v, "fuse")
        return LoopRV(e.fuse(*(v.var for v in loops)), loops[0].func)

    @recorded
    def reorder(self, *loops: LoopRV) -> None:
        """Reorder loops of one nest."""
        self._beside(loops).reorder(*(v.var for v in loops))

    @recorded
    def merge(self, *loops: LoopRV) -> LoopRV:
        """Merge consecutive nests down to the given loops. Return the inner merged loop."""
        return LoopRV(self._beside(loops).merge(*(v.var for v in loops)), loops[0].func)

    @recorded
    def loop_partition(
        self, loop: LoopRV, factors: Sequence[int | None], preserve_unit_iters: bool = True
    ) -> list[LoopRV]:
        """Split a loop into consecutive loops of `factors` trips; one factor may be None for the rest. Blocks get a
        copy for each."""
        sizes = [None if f is None else int(f) for f in factors]
        return [LoopRV(v, loop.func) for v in self._scope(loop).loop_partition(loop.var, sizes)]

    @recorded
    def parallel(self, loop: LoopRV) -> None:
        """Run the trips on several threads; `annotate(loop, "grain", n)` distributes them n at a time."""
        if self._is_already(loop, PARALLEL):
            return
        self._may_hold(loop, PARALLEL)
        self._scope(loop).parallel(loop.var)

    @recorded
    def vectorize(self, loop: LoopRV) -> None:
        """Run all trips at once, as vector lanes."""
        if self._is_already(loop, VECTORIZED):
            return
        self._may_hold(loop, VECTORIZED)
        self._scope(loop).vectorize(loop.var)

    @recorded
    def unroll(self, loop: LoopRV) -> None:
        """Repeat the body for each trip. The same mark again changes nothing, as for parallel and vectorized loops."""
        if not self._is_already(loop, UNROLLED):
            self._engine(loop.func).unroll(loop.var)

    @recorded
    def compute_at(
        self, block: BlockAt | str, loop: LoopRV | int, preserve_unit_loops: bool = False, index: int = -1
    ) -> None:
        """Compute a value inside a loop of its reader, only the part that each trip needs; `ROOT` leaves it where it
        is, `INLINE` inlines it. `index` is its position in the loop: -1 the last, -2 the first one possible."""
        at = self._block(block)
        if not isinstance(loop, LoopRV):
            if loop == INLINE:
                self._scope(at).compute_inline(at.block)
            return
        e = self._shared_scope(at, loop)
        node = e.block(at.block)
        only_maker(e.func, node)
        check_complete(e.func, node)
        check_all_points(e.func, node)
        around = [*e.around(e.loop(loop.var)), e.loop(loop.var)]
        made = stored_buffers(node)
        threads = [f.var for f in around if isinstance(f, For) and any(is_shared_by(b, f) for b in made)]
        e.compute_at(at.block, loop.var, preserve_unit_loops=preserve_unit_loops, across=threads, index=int(index))

    @recorded
    def compute_inline(self, block: BlockAt | str) -> None:
        """Compute an elementwise value where it is used, instead of storing it."""
        at = self._block(block)
        e = self._scope(at)
        whole_domain(e.func, e.block(at.block))
        e.compute_inline(at.block)

    @recorded
    def set_scope(self, block: BlockAt | str, buffer_index: int | str, storage_scope: str) -> None:
        """Set the memory of the values that a block computes, `global` or `local`; all results of a block share one
        scope."""
        at = self._block(block)
        self._pick(stored_buffers(self._engine(at.func).block(at.block)), buffer_index, f"block '{at.block}' writes")
        self._engine(at.func).set_scope(at.block, storage_scope)

    @recorded
    def annotate(self, block_or_loop: BlockAt | LoopRV | str, ann_key: str, ann_val: Any) -> None:
        """Attach an annotation to a block or a loop, for later passes."""
        if isinstance(block_or_loop, LoopRV):
            self._engine(block_or_loop.func).annotate(block_or_loop.var, ann_key, ann_val)
        else:
            at = self._block(block_or_loop)
            if self._is_root(at):
                self._set_root(at, {**self.get(at).annotations, ann_key: ann_val})
            else:
                self._engine(at.func).annotate(at.block, ann_key, ann_val)

    @recorded
    def cache_read(
        self, block: BlockAt | str, read_buffer_index: int | str, storage_scope: str,
        consumer_blocks: Sequence[BlockAt | str] = ()
    ) -> BlockAt:
        """Let `consumer_blocks`, or all blocks that read a value which the block reads, read a copy of it in other
        memory. Return the copying block."""
        at = self._block(block)
        e = self._scope(at)
        node = e.block(at.block)
        read = self._from_outside(at, buffers_read(node))
        buffer = self._pick(read, read_buffer_index, f"block '{at.block}' reads")
        readers = [self._block(b).block for b in consumer_blocks]
        e.func, name = block_copies.cache_read(e.func, buffer, storage_scope, readers)
        return replace(at, block=name)

    @recorded
    def cache_write(
        self, block: BlockAt | str, write_buffer_index: int | str, storage_scope: str,
        consumer_blocks: Sequence[BlockAt | str] = ()
    ) -> BlockAt:
        """Let the block compute a value in other memory, which `consumer_blocks` read, too. Return the block that
        copies the value back for all others."""
        at = self._block(block)
        e = self._scope(at)
        made = self._from_outside(at, stored_buffers(e.block(at.block)))
        home = self._pick(made, write_buffer_index, f"block '{at.block}' writes")
        readers = [self._block(b).block for b in consumer_blocks]
        e.func, name = block_copies.cache_write(e.func, at.block, home, storage_scope, readers)
        return replace(at, block=name)

    @recorded
    def rfactor(self, loop: LoopRV, factor_axis: int) -> BlockAt:
        """Give the trips of a reduction loop separate results, which are then reduced. Return the block that computes
        these."""
        at = self.reference(loop)
        e = self._scope(loop)
        node = e.block(at.block)
        check_sum(e.func, node)
        check_all_points(e.func, node)
        e.func, name = rfactor.rfactor(e.func, at.block, loop.var, factor_axis)
        return BlockAt(name, self._named(at.func))

    def _check_plain(self, loop: LoopRV, step: str) -> None:
        e = self._engine(loop.func)
        check_plain(e.func, e._serial(loop.var, step), step)

    def _is_already(self, loop: LoopRV, kind: str) -> bool:
        return self._engine(loop.func).loop(loop.var).kind == kind

    def _may_hold(self, loop: LoopRV, kind: str) -> None:
        e = self._engine(loop.func)
        node = e.loop(loop.var)
        check_nested(e.func, node, kind, e.around(node))

    # Block and loop references.
    def reference(self, arg: Any) -> Any:
        several = len(self._engines) > 1
        if isinstance(arg, LoopRV):
            at = self._engine(arg.func).reference(arg.var)
            return replace(at, func=arg.func) if several else at
        if isinstance(arg, BlockAt):
            return replace(arg, func=self._named(arg.func) if several else "")
        return arg

    def referred(self, data: Any) -> Any:
        if isinstance(data, LoopAt):
            func = self._named(data.func)
            return LoopRV(self._engine(func).referred(data), func)
        return self.get_block(data.block, data.func) if isinstance(data, BlockAt) else data

    def remove_rv(self, rand_var: BlockAt | LoopRV) -> None:
        """Remove a reference: its further use raises `MissingLoopError`. Other references to the block or loop remain.
        """
        self._removed.append(rand_var)

    def _check_kept(self, what: Any) -> None:
        if any(r is what for r in self._removed):
            raise MissingLoopError(f"the reference to {what} was removed from the schedule", code="TW0613")

    def _block(self, block: BlockAt | str) -> BlockAt:
        self._check_kept(block)
        return self._with_own_name(BlockAt(block, self._named(None))) if isinstance(block, str) else block

    def _named(self, func: str | None) -> str:
        """Return the function of a reference: the named one, else the only one, else `main`."""
        if func:
            return func
        return next(iter(self._engines)) if len(self._engines) == 1 else MAIN

    def _engine(self, func: str) -> engine.Schedule:
        name = self._named(func)
        found = self._engines.get(name)
        if found is None and name == MAIN and len(self._engines) > 1:
            raise UnknownFunctionError(
                "the schedule does not know which function to be working on; pass func_name=, or call work_on, with "
                f"one of {', '.join(self._engines)}", code="TW0613")
        if found is None:
            raise ScheduleError(
                f"there is no loop function '{func}' in the module; there are {', '.join(self._engines) or 'none'}",
                code="TW0613")
        return found

    def _scope(self, at: BlockAt | LoopRV) -> engine.Schedule:
        """Return the schedule of the statements in the innermost block around a block or a loop, or in the function."""
        return scope_of(self._engine(at.func), self.get(at))

    def _from_outside(self, block: BlockAt, buffers: Sequence[Buffer]) -> list[Buffer]:
        """Return the buffers that are used outside of a block, too, if the block contains others."""
        e = self._engine(block.func)
        if not child_blocks(e.block(block.block).body):
            return list(buffers)
        outer = ScopeSchedule(e, block.block).func.params
        return [b for b in buffers if b in outer]

    def _shared_scope(self, block: BlockAt, loop: LoopRV) -> engine.Schedule:
        """Return the schedule of the statements around both a block and a loop."""
        func = self._engine(block.func).func
        inside, beside = holder_of(func, self.get(block)), holder_of(func, self.get(loop))
        if inside is not beside:
            names = [f"block '{b.name}'" if b is not None else "no other block" for b in (inside, beside)]
            raise ScheduleError(
                f"block '{block.block}' and loop '{loop.var.name}' must be in the same block scope; the block is in "
                f"{names[0]}, and the loop in {names[1]}", code="TW0612")
        return self._scope(block)

    def _beside(self, loops: Sequence[LoopRV]) -> engine.Schedule:
        """Return the schedule of the statements around loops of one block or function."""
        e = self._together(loops)
        holders = [holder_of(e.func, self.get(v)) for v in loops]
        if any(h is not holders[0] for h in holders):
            raise ScheduleError(
                f"the loops {', '.join(v.var.name for v in loops)} must be in the same block scope", code="TW0612")
        return self._scope(loops[0])

    def _together(self, loops: Sequence[LoopRV]) -> engine.Schedule:
        if len({v.func for v in loops}) != 1:  # includes the case without loops
            raise ScheduleError("pass one or more loops, all from the same function")
        return self._engine(loops[0].func)

    @staticmethod
    def _pick(buffers: Sequence[Buffer], index: int | str, which: str) -> Buffer:
        """Return one of the buffers, by index or name."""
        found = [b for k, b in enumerate(buffers) if index in (k, b.name)]
        if not found:
            raise MissingBufferError(
                f"{which} {', '.join(f'{k}: {b.name}' for k, b in enumerate(buffers))}; {index!r} is not one of them")
        return found[0]


_UNNAMED: Final = ("block", "")
"""Names of blocks in texts that give them none."""


def _named_apart(func: PrimFunc) -> PrimFunc:
    """Return the function with numbers in the names of further blocks without a name."""
    names = block_names(func)
    if all(names.count(n) < 2 for n in _UNNAMED):
        return func
    taken, seen = set(names), set[str]()

    def visit(s: Stmt) -> Stmt:
        if not isinstance(s, Block):
            return map_bodies(s, visit) or s
        name = s.name if s.name not in seen or s.name not in _UNNAMED else next(
            f"block_{k}" for k in range(1, 2 * len(names)) if f"block_{k}" not in taken)
        taken.add(name)
        seen.add(name)
        return replace(s, name=name, init=None if s.init is None else visit(s.init), body=visit(s.body))

    return func.with_body(visit(func.body))


def _check_blocks(name: str, func: PrimFunc) -> None:
    """Raise `ScheduleError` unless the function has blocks with distinct names, which identify them."""
    names = block_names(func)
    if not names:
        raise ScheduleError(
            f"function '{name}' has no blocks; schedule steps need stores inside blocks: with T.block(\"C\"):")
    for s in walk_stmt(func.body):
        if isinstance(s, Block):
            check_own_axes(func, s)
    doubled = [n for k, n in enumerate(names) if n in names[:k]]
    if doubled:
        raise ScheduleError(f"function '{name}' has two blocks '{doubled[0]}'; give each a unique name")
