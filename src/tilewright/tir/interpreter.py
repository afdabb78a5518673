"""Runs TIR functions of any stage in Python, with checks; it defines the meaning that loop passes must preserve.

Accesses outside of a buffer, and uses of undefined variables, raise `InternalError`. Local memory is initialized with
NaN (or a conspicuous integer), so that reads of unwritten elements are visible in the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import CompileError, InternalError
from tilewright.scalar.arith.evaluate import Evaluator, typed
from tilewright.scalar.expr import Buffer, Call, Load, Var
from tilewright.scalar.intrinsics import prefetch
from tilewright.tir.stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    Block,
    Evaluate,
    For,
    IfThenElse,
    Let,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    While,
)


def run(func: PrimFunc, arrays: Sequence[np.ndarray[Any, Any]], numbers: Mapping[Var, Any] | None = None) -> None:
    """Execute `func` on `arrays`, one per buffer (any shape of the right size), which are written in place.

    `numbers` are the values of symbolic dimensions and scalar parameters; a variable that is a whole dimension gets its
    value from the arrays.
    """
    if len(arrays) != len(func.buffers):
        raise InternalError(f"{func.name} has {len(func.buffers)} buffers and was given {len(arrays)} arrays")
    machine = _Machine()
    for buffer, array in zip(func.buffers, arrays, strict=True):
        if len(buffer.shape) == array.ndim:
            machine.env.update(
                {d: typed(n, d.dtype) for d, n in zip(buffer.shape, array.shape, strict=True) if isinstance(d, Var)})
    machine.env.update({v: typed(n, v.dtype) for v, n in (numbers or {}).items()})
    copies = []
    for buffer, array in zip(func.buffers, arrays, strict=True):
        memory = np.ascontiguousarray(array, buffer.dtype.numpy()).reshape(machine.shape(buffer)).copy()
        machine.memory[buffer] = memory
        copies.append(memory)
    for buffer in func.attrs.get("intermediates", ()):
        machine.allocate(buffer)
    machine.run(func.body)
    for array, memory in zip(arrays, copies, strict=True):
        array[...] = memory.reshape(array.shape)


class _Machine:
    def __init__(self) -> None:
        self.memory: dict[Buffer, np.ndarray[Any, Any]] = {}
        self.evaluator = Evaluator({}, self.load)
        self.env = self.evaluator.env

    def shape(self, buffer: Buffer) -> tuple[int, ...]:
        return tuple(d if isinstance(d, int) else self.evaluator.value(d) for d in buffer.shape)

    def allocate(self, buffer: Buffer) -> None:
        fill = np.nan if buffer.dtype.is_float else 0 if buffer.dtype.code == "bool" else 77
        self.memory[buffer] = np.full(self.shape(buffer), fill, buffer.dtype.numpy())

    def place(self, buffer: Buffer, indices: tuple[Any, ...], lanes: Any) -> tuple[Any, ...]:
        """Return the numpy indices of an access, with bounds checks in the active lanes."""
        if buffer not in self.memory:
            raise InternalError(f"buffer '{buffer.name}' is used where it is not allocated")
        array = self.memory[buffer]
        if len(indices) != array.ndim:
            raise InternalError(f"buffer '{buffer.name}' has {array.ndim} dimensions and {len(indices)} indices")
        checked = []
        for i, n in zip(indices, array.shape, strict=True):
            at = np.where(lanes, i, 0)
            if (at < 0).any() or (at >= n).any():
                raise InternalError(f"index {i} of buffer '{buffer.name}' is outside of its dimension of {n}")
            checked.append(at if at.ndim else int(at))
        return tuple(checked)

    def load(self, e: Load, indices: tuple[Any, ...], mask: Any) -> Any:
        lanes = mask if e.dtype.lanes > 1 else True
        if not np.any(lanes):
            return typed(0, e.dtype)
        found = (
            self.memory[e.buffer][self.place(e.buffer, indices, lanes)] if e.buffer in self.memory
            else self.place(e.buffer, indices, lanes)
        )
        return found if lanes is True else np.where(lanes, found, np.zeros((), e.dtype.numpy()))

    def run(self, s: Stmt) -> None:
        match s:
            case For():
                low, extent = self.evaluator.value(s.min), self.evaluator.value(s.extent)
                for i in range(int(low), int(low) + int(extent)):
                    self.env[s.var] = typed(i, s.var.dtype)
                    self.run(s.body)
                self.env.pop(s.var, None)
            case Seq():
                for x in s.stmts:
                    self.run(x)
            case Store():
                self.store(s)
            case IfThenElse():
                if self.evaluator.value(s.condition):
                    self.run(s.then_case)
                elif s.else_case is not None:
                    self.run(s.else_case)
            case _:
                self.run_rare(s)

    def run_rare(self, s: Stmt) -> None:
        match s:
            case Allocate():
                self.allocate(s.buffer)
                if isinstance(s, AllocateConst):
                    self.memory[s.buffer][:] = s.elements()
                self.run(s.body)
                del self.memory[s.buffer]
            case While():
                while self.evaluator.value(s.condition):
                    self.run(s.body)
            case AssertStmt():
                if not self.evaluator.value(s.condition):
                    raise CompileError(f"an assertion of the program fails: {s.message}", code="TW0611")
                self.run(s.body)
            case Let():
                self.env[s.var] = self.evaluator.value(s.value)
                self.run(s.body)
                del self.env[s.var]
            case Evaluate():
                if not (isinstance(s.value, Call) and s.value.op is prefetch):
                    self.evaluator.value(s.value)
            case Block():
                self.block(s)
            case _:
                raise InternalError(f"{type(s).__name__} is not a statement")

    def block(self, s: Block) -> None:
        values = [self.evaluator.value(b) for b in s.bindings]
        if not self.evaluator.value(s.predicate):
            return
        for axis, value in zip(s.iters, values, strict=True):
            self.env[axis.var] = value
        if s.init is not None and all(v == 0 for a, v in zip(s.iters, values, strict=True) if a.kind == "reduce"):
            self.run(s.init)
        self.run(s.body)

    def store(self, s: Store) -> None:
        mask = True if s.mask is None else self.evaluator.value(s.mask)
        indices = tuple(self.evaluator.value(i) for i in s.indices)
        value = self.evaluator.value(s.value, mask)
        array = self.memory.get(s.buffer)
        place = self.place(s.buffer, indices, mask)
        if array is None or not np.any(mask):
            return
        if mask is True:
            array[place] = value
        else:
            where = np.flatnonzero(mask)
            lanes = tuple(p[where] if isinstance(p, np.ndarray) else p for p in place)
            array[lanes] = np.broadcast_to(value, np.shape(mask))[where]
