"""References to the blocks and loops of programs, and which blocks depend on each other: TVM's `tvm.tir.block_scope`.

    info = BlockDependenceInfo(func)
    at = info.get_sref(block)
    info.get_block_scope(at.parent).get_deps_by_src(at)      # the blocks that need what `block` computes
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir.module import IRModule
from tilewright.tir.block_tree import child_blocks
from tilewright.tir.stmt import (
    INNER,
    Block,
    For,
    PrimFunc,
    RootBlock,
    Stmt,
    bodies,
    loaded_buffers,
    path_to,
    replaced,
    root_block,
    stored_buffers,
    walk_stmt,
)


class DepKind(enum.IntEnum):
    """Why a block must run after another one: it reads what the other wrote, and so on."""

    RAW = 0
    WAW = 1
    WAR = 2
    OPAQUE = 3


@dataclass(slots=True, eq=False)
class StmtSRef:
    """A block or loop, and the block or loop around it; the root block has none."""

    stmt: Any
    """A `Block` or a `For`; None once a statement without it replaced it."""
    parent: StmtSRef | None

    def same_as(self, other: object) -> bool:
        """Return whether both are the same object."""
        return self is other


@dataclass(frozen=True, slots=True)
class Dependency:
    """The block `dst` depends on `src`, which precedes it."""

    src: StmtSRef
    dst: StmtSRef
    kind: DepKind


@dataclass(frozen=True, slots=True)
class BlockScope:
    """The dependencies among the blocks directly inside one block, in order."""

    deps: tuple[Dependency, ...]

    def get_deps_by_src(self, block: StmtSRef) -> list[Dependency]:
        """Return the dependencies on a block."""
        return [d for d in self.deps if d.src is block]

    def get_deps_by_dst(self, block: StmtSRef) -> list[Dependency]:
        """Return the dependencies of a block."""
        return [d for d in self.deps if d.dst is block]


@dataclass(slots=True)
class SRefTree:
    """The references of all blocks and loops of functions. Each function has an explicit root block."""

    functions: dict[str, PrimFunc]
    known: dict[Stmt, StmtSRef] = field(default_factory=dict)

    @staticmethod
    def of(functions: Mapping[str, PrimFunc]) -> SRefTree:
        """Return the tree of functions by name."""
        tree = SRefTree({name: with_root(f) for name, f in functions.items()})
        for f in tree.functions.values():
            tree._refer(f.body, None, {})
        return tree

    def _refer(self, s: Stmt, parent: StmtSRef | None, former: Mapping[Stmt, StmtSRef]) -> None:
        """Give the blocks and loops in `s` references: their former ones, or new ones."""
        if isinstance(s, (Block, For)):
            at = self.known[s] = former.get(s) or StmtSRef(s, parent)
            at.stmt, at.parent = s, parent
            parent = at
        for b in bodies(s):
            self._refer(b, parent, former)

    def replace(self, at: StmtSRef, new: Stmt, blocks: Mapping[Block, Block]) -> None:
        """Replace a block or a loop. References to what is in both programs stay, and so do those to the blocks of
        `blocks`, which others replace, and those to loops over the same variable. All others lose their statements.

        Raises `ScheduleError` for a statement of another program.
        """
        old = at.stmt
        self.get_sref(old)
        name, func = next((n, f) for n, f in self.functions.items() if old is f.body or path_to(f.body, old))
        if old is func.body:  # the buffers of the function are those of its root block
            func = func.without_attr(INNER)
        made = replaced(func, old, new)
        former = {s: self.known.pop(s) for s in walk_stmt(func.body) if s in self.known}
        kept = {s: ref for s, ref in former.items() if not any(s is x for x in walk_stmt(old))}
        around = zip(path_to(func.body, old), path_to(made.body, new), strict=True)
        kept.update((b, former[a]) for a, b in around if a in former)
        loops = {s.var: s for s in walk_stmt(old) if isinstance(s, For)}
        for s in walk_stmt(new):
            same = next((a for a, b in blocks.items() if b is s), loops.get(s.var, s) if isinstance(s, For) else s)
            if s in former or same in former:
                kept[s] = former[s if s in former else same]
        for ref in former.values():
            ref.stmt = None
        self.functions[name] = made
        self._refer(made.body, None, kept)

    def get_sref(self, stmt: Block | For) -> StmtSRef:
        """Return the reference of a block or a loop. Raises `ScheduleError` for a statement of another program."""
        found = self.known.get(stmt)
        if found is None:
            raise ScheduleError(f"this block or loop is not in the program:\n{stmt}", code="TW0613")
        return found

    def get_block_scope(self, block_sref: StmtSRef) -> BlockScope:
        """Return the dependencies among the blocks directly inside a block, or in the block around a loop."""
        at: StmtSRef | None = block_sref
        while at is not None and not isinstance(at.stmt, Block):
            at = at.parent
        if at is None:
            raise ScheduleError("this loop has no block around it", code="TW0613")
        blocks = child_blocks(at.stmt.body)
        pairs = ((a, b) for k, b in enumerate(blocks) for a in blocks[:k])
        return BlockScope(tuple(
            Dependency(self.known[a], self.known[b], kind) for a, b in pairs for kind in dependencies(a, b)))


def with_root(func: PrimFunc) -> PrimFunc:
    """Return the function with a block around its whole body, which other functions have without a statement."""
    if isinstance(func.body, RootBlock):
        return func
    return func.with_body(replace(root_block(func), body=func.body))


def dependencies(first: Block, second: Block) -> Iterator[DepKind]:
    """Yield the ways in which a block depends on one before it."""
    wrote, read = set(stored_buffers(first)), set(loaded_buffers(first))
    writes, reads = set(stored_buffers(second)), set(loaded_buffers(second))
    if wrote & reads:
        yield DepKind.RAW
    if wrote & writes:
        yield DepKind.WAW
    if read & writes:
        yield DepKind.WAR


class BlockDependenceInfo:
    """The dependencies among the blocks of a function or a module."""

    def __init__(self, mod: PrimFunc | IRModule) -> None:
        functions: dict[str, Any] = {"main": mod} if isinstance(mod, PrimFunc) else dict(mod.items())
        self._tree = SRefTree.of({name: f for name, f in functions.items() if isinstance(f, PrimFunc)})

    def get_sref(self, block: Block) -> StmtSRef:
        """Return the reference of a block."""
        return self._tree.get_sref(block)

    def get_block_scope(self, block_sref: StmtSRef) -> BlockScope:
        """Return the dependencies among the blocks directly inside a block."""
        return self._tree.get_block_scope(block_sref)


__all__ = ["BlockDependenceInfo", "BlockScope", "DepKind", "Dependency", "StmtSRef"]
