"""The state of a schedule, and facts about its blocks: TVM's `tvm.tir.schedule.state`.

Three facts say how freely a block can move: whether its axes are independent iterators of the loops, whether other
blocks have computed all that it reads, and whether the blocks inside of it can run one after the other.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir.module import IRModule
from tilewright.scalar.arith import Ranges
from tilewright.scalar.arith.iter_map import IterMapLevel, detect_iter_map
from tilewright.scalar.expr import Buffer, IntImm, as_expr, number_of
from tilewright.scalar.range import Range
from tilewright.tir.accesses import Access, accesses
from tilewright.tir.block_scope import BlockScope, DepKind, SRefTree, StmtSRef
from tilewright.tir.block_tree import child_blocks, own_loops
from tilewright.tir.coverage import reads_written
from tilewright.tir.legality import visits_all
from tilewright.tir.stmt import Block, For, PrimFunc, Stmt, Store, path_to
from tilewright.tir.threads import is_shared_by


class ScheduleDebugMask(enum.IntEnum):
    """The checks of TVM after each step. Here every step is checked."""

    VERIFY_SREF_TREE = 1
    VERIFY_CACHED_FLAGS = 2


@dataclass(frozen=True, slots=True)
class CachedFlags:
    """Facts about a block: its bindings are independent iterators; what it reads of other blocks' results is computed
    before, in the same trip of the loops around both; the same is true of all blocks inside, and none overwrites what
    an earlier one reads."""

    affine_binding: bool
    region_cover: bool
    stage_pipeline: bool


class ScheduleState:
    """The functions of a schedule, each with an explicit root block, and their blocks and loops."""

    def __init__(
        self, mod: PrimFunc | IRModule, *, debug_mask: str | int = "none", enable_check: bool = True
    ) -> None:
        functions: Mapping[str, object] = {"main": mod} if isinstance(mod, PrimFunc) else dict(mod.items())
        self._tree = SRefTree.of({name: f for name, f in functions.items() if isinstance(f, PrimFunc)})

    @property
    def mod(self) -> IRModule:
        """The functions."""
        return IRModule(dict(self._tree.functions))

    def root(self, name: str) -> Block:
        """Return the root block of a function."""
        found = self._tree.functions[name].body
        assert isinstance(found, Block)
        return found

    def get_sref(self, stmt: Block | For) -> StmtSRef:
        """Return the reference of a block or a loop."""
        return self._tree.get_sref(stmt)

    def replace(
        self, src_sref: StmtSRef, tgt_stmt: Stmt, block_sref_reuse: Mapping[Block, Block] | None = None
    ) -> None:
        """Replace a block or a loop by a statement. `block_sref_reuse` gives old blocks, and new ones that get their
        references. Raises `ScheduleError` for a reference without a statement, or of another program."""
        self._tree.replace(src_sref, tgt_stmt, block_sref_reuse or {})

    def get_block_scope(self, block_sref: StmtSRef) -> BlockScope:
        """Return the dependencies among the blocks directly inside a block."""
        return self._tree.get_block_scope(block_sref)

    def _get_cached_flags(self, block_sref: StmtSRef) -> CachedFlags:
        """Return the facts about a block."""
        node = block_sref.stmt
        assert isinstance(node, Block)
        holder: StmtSRef | None = block_sref.parent
        while holder is not None and not isinstance(holder.stmt, Block):
            holder = holder.parent
        if holder is None:
            return CachedFlags(True, True, self._is_pipeline(node))
        return CachedFlags(
            is_affine(node, own_loops(path_to(holder.stmt.body, node))), self._is_covered(holder.stmt.body, node),
            self._is_pipeline(node))

    def _is_pipeline(self, holder: Block) -> bool:
        scope = self.get_block_scope(self.get_sref(holder))
        return (
            all(d.kind != DepKind.WAR for d in scope.deps)
            and all(self._is_covered(holder.body, b) for b in child_blocks(holder.body)))

    def _is_covered(self, body: Stmt, node: Block) -> bool:
        """Return whether the blocks before `node` in `body` write what it reads of their results."""
        blocks = child_blocks(body)
        before = blocks[: blocks.index(node)]
        found = accesses(body)
        read = [a for a in found if a.block is node and not a.writes]
        for buffer in {a.buffer for a in read}:
            makers = [b for b in before if any(a.block is b and a.writes and a.buffer is buffer for a in found)]
            if makers and not _covers(body, makers, node, buffer, found):
                return False
        return True


def is_affine(block: Block, loops: Sequence[For]) -> bool:
    """Return whether the axes of a block are independent iterators of the loops around it."""
    if not block.iters or all(isinstance(b, IntImm) for b in block.bindings):
        return True
    over = {f.var: Range(f.min, f.extent) for f in loops}
    return bool(detect_iter_map(block.bindings, over, block.predicate, IterMapLevel.Surjective).indices)


def _covers(body: Stmt, makers: Sequence[Block], user: Block, buffer: Buffer, found: Sequence[Access]) -> bool:
    """Return whether the blocks `makers` write all that `user` reads of `buffer` in one trip of the loops around all
    of them. Trips of different threads that share the memory of `buffer` count as one."""
    paths = [path_to(body, b) for b in (*makers, user)]
    common = [s for s in paths[0] if all(any(s is x for x in p) for p in paths)]
    fixed = [s for s in common if isinstance(s, For) and not is_shared_by(buffer, s)]
    outer = Ranges()
    for f in fixed:
        outer = outer.bind_loop(f.var, f.min, f.extent)
    writes = [a for a in found if a.writes and a.buffer is buffer and a.block in makers]
    reads = [a for a in found if not a.writes and a.buffer is buffer and a.block is user]
    if any(_writes_all(m, own_loops(p[len(common) :]), buffer) for m, p in zip(makers, paths, strict=False)):
        return True
    return all(reads_written(r, writes, outer) for r in reads)


def _writes_all(block: Block, loops: Sequence[For], buffer: Buffer) -> bool:
    """Return whether a block writes all of `buffer` at its own axes in the trips of `loops`."""
    axes = [i for i in block.iters if i.kind != "reduce"]
    if not isinstance(block.body, Store) or block.body.indices != tuple(i.var for i in axes):
        return False
    same = all(number_of(i.extent) == number_of(as_expr(d)) for i, d in zip(axes, buffer.shape, strict=True))
    return same and visits_all(block, loops, block.predicate)


__all__ = ["CachedFlags", "ScheduleDebugMask", "ScheduleState"]
