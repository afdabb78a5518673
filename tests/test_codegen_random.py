"""Random flat programs: the native code computes what the interpreter of the loop language computes.

Programs nest loops, branches, lets and stores over memory, a register tile and vectors, so that every decision about
what may be reused, hoisted or carried by a phi is exercised. All values are integers: results must be equal, not close.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_native import run
from tilewright.scalar import expr as E
from tilewright.scalar.expr import Broadcast, Buffer, Load, PrimExpr, Ramp, Select, Var, as_expr, const
from tilewright.scalar.intrinsics import doubled_high_product, high_product
from tilewright.tir import interpreter
from tilewright.tir.stmt import PARALLEL, SERIAL, Allocate, For, IfThenElse, Let, PrimFunc, Seq, Stmt, Store

pytestmark = pytest.mark.slow

SIZE, LANES, SLOTS = 64, 4, 3


class Program:
    """Builds one program from a seed; every index stays inside of its buffer."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.inputs = [Buffer(f"a{k}", (SIZE,), "int32") for k in range(2)]
        self.outputs = [Buffer(f"z{k}", (SIZE,), "int32") for k in range(2)]
        self.tile = Buffer("tile", (SLOTS,), "int32", "local")
        self.row = Buffer("row", (SLOTS * LANES,), "int32", "local")
        self.stack = Buffer("stack", (SIZE,), "int32")
        self.loops: list[Var] = []
        self.lets: list[Var] = []

    def func(self) -> PrimFunc:
        start: list[Stmt] = [Store(self.tile, const(k, "int32"), (as_expr(k),)) for k in range(SLOTS)]
        start += [Store(self.row, const(k, f"int32x{LANES}"), (self.lane(k * LANES),)) for k in range(SLOTS)]
        clear = Var("clear")
        start.append(For(clear, as_expr(0), as_expr(SIZE), SERIAL, Store(self.stack, E.cast("int32", clear), (clear,))))
        end: list[Stmt] = [Store(self.outputs[0], self.tile[k], (as_expr(k),)) for k in range(SLOTS)]
        end += [Store(self.outputs[1], self.row[self.lane(k * LANES)], (self.lane(k * LANES),)) for k in range(SLOTS)]
        body: Stmt = Seq((*start, *(self.stmt(4) for _ in range(3)), *end))
        for buffer in (self.tile, self.row, self.stack):
            body = Allocate(buffer, body)
        return PrimFunc("random", (*self.inputs, *self.outputs), body)

    def lane(self, base: PrimExpr | int) -> PrimExpr:
        return Ramp(as_expr(base), 1, LANES)

    def index(self, most: int = SIZE) -> PrimExpr:
        """A linear index in `[0, most)`; loop variables are below 4."""
        value, room = as_expr(self.random.randrange(4)), most - 4
        for v in self.random.sample(self.loops, min(len(self.loops), 2)):
            factor = self.random.choice([1, 2, 4])
            if room >= 3 * factor:
                value, room = value + v * factor, room - 3 * factor
        return value

    def memory(self) -> Buffer:
        return self.random.choice([*self.inputs, *self.outputs, self.stack])

    def scalar(self, depth: int) -> PrimExpr:
        choice = self.random.random()
        if depth == 0 or choice < 0.15:
            return self.leaf()
        a, b = self.scalar(depth - 1), self.scalar(depth - 1)
        if choice < 0.6:
            return self.random.choice([E.add, E.sub, E.mul, E.maximum, E.minimum])(a, b)
        if choice < 0.7:
            return self.random.choice([E.floordiv, E.floormod, E.truncdiv])(a, self.random.choice([2, 3, -4, 7]))
        if choice < 0.75:
            return E.floordiv(a, b)
        return E.if_then_else(self.condition(), a, b)

    def leaf(self) -> PrimExpr:
        kinds = [
            "load", "load", "tile", "const", *(["loop"] if self.loops else []), *(["let", "let"] if self.lets else [])
        ]
        match self.random.choice(kinds):
            case "load":
                return Load(self.memory(), (self.index(),))
            case "tile":
                return Load(self.tile, (E.as_expr(self.random.randrange(SLOTS)),))
            case "loop":
                return E.cast("int32", self.random.choice(self.loops))
            case "let":
                return self.random.choice(self.lets)
            case _:
                return const(self.random.randrange(-9, 10), "int32")

    def condition(self) -> PrimExpr:
        if self.loops and self.random.random() < 0.5:
            return self.random.choice(self.loops) < self.random.randrange(1, 4)
        return self.random.choice([E.LT, E.GE, E.EQ])(Load(self.memory(), (self.index(),)), self.leaf())

    def vector(self, depth: int) -> PrimExpr:
        choice = self.random.random()
        if depth == 0 or choice < 0.2:
            stride = self.random.choice([1, 1, 1, 2, 3, -1])
            base = self.index(SIZE - 12) + (LANES if stride < 0 else 0)
            return Load(self.memory(), (Ramp(base, stride, LANES),)) if choice < 0.7 else self.row[
                self.lane(self.random.randrange(SLOTS) * LANES)
            ]
        if choice < 0.35:
            return Broadcast(self.scalar(1), LANES)
        a, b = self.vector(depth - 1), self.vector(depth - 1)
        if choice < 0.65:
            return self.random.choice([E.add, E.sub, E.mul, E.maximum])(a, b)
        if choice < 0.8:
            return self.product(a)
        return Select(self.lanes_condition(), a, b)

    def product(self, a: PrimExpr) -> PrimExpr:
        """A product for which something is made of its addend, and kept for the next of them."""
        how = self.random.choice([high_product, doubled_high_product])
        return how(
            a, const(1 << 30, f"int32x{LANES}"),
            E.cast(f"int64x{LANES}", self.repeated()) * const(1 << 29, f"int64x{LANES}")
        )

    def guarded_products(self) -> Stmt:
        """Some in a row, each under a condition of its own."""
        parts: list[Stmt] = []
        for _ in range(self.random.randrange(2, 4)):
            value = self.product(self.vector(0))
            guarded = Select(self.lanes_condition(), value, self.vector(0)) if self.random.random() < 0.7 else value
            behind = SLOTS * LANES + 4  # what the end of the program writes
            parts.append(Store(self.outputs[1], guarded, (self.lane(self.index(SIZE - LANES - behind) + behind),)))
        return Seq(tuple(parts))

    def repeated(self) -> PrimExpr:
        """One of four vectors, so that programs use the same again: under conditions, behind them, and after what it
        reads was stored to."""
        return Load(self.random.choice([*self.inputs[:1], *self.outputs[:1]]), (self.lane(self.random.choice([0, 8])),))

    def lanes_condition(self) -> PrimExpr:
        if self.random.random() < 0.5:
            return self.lane(self.index(8)) < Broadcast(self.index(8), LANES)
        return self.vector(0) < Broadcast(self.leaf(), LANES)

    def stmt(self, depth: int) -> Stmt:
        choice = self.random.random()
        if depth == 0 or choice < 0.3:
            return self.store()
        if choice < 0.42:
            return self.guarded_products()
        if choice < 0.6:
            return self.loop(depth)
        if choice < 0.75:
            other = self.stmt(depth - 1) if self.random.random() < 0.5 else None
            return IfThenElse(self.condition(), self.stmt(depth - 1), other)
        if choice < 0.85:
            var, value = Var("let", "int32"), self.scalar(2)
            self.lets.append(var)
            body = self.stmt(depth - 1)
            self.lets.pop()
            return Let(var, value, body)
        return Seq(tuple(self.stmt(depth - 1) for _ in range(self.random.randrange(1, 4))))

    def loop(self, depth: int) -> Stmt:
        var = Var(self.random.choice("ijk"))
        extent: PrimExpr = as_expr(self.random.randrange(0, 5))
        if self.random.random() < 0.3:  # known when the program runs, between 0 and 3, perhaps none
            extent = E.cast("int64", E.minimum(E.maximum(Load(self.memory(), (self.index(),)), 0), 3))
        self.loops.append(var)
        body = self.stmt(depth - 1)
        self.loops.pop()
        start = self.random.choice([0, 0, 1]) if not (isinstance(extent, E.IntImm) and extent.value == 4) else 0
        extent = extent if start == 0 else E.minimum(extent, 3)
        # A parallel loop is right when its trips are independent; with one trip at most, any body is.
        kind = PARALLEL if isinstance(extent, E.IntImm) and extent.value <= 1 and self.random.random() < 0.5 else SERIAL
        return For(var, as_expr(start), extent, kind, body)

    def store(self) -> Stmt:
        choice = self.random.random()
        if choice < 0.25:
            return Store(self.tile, self.scalar(3), (as_expr(self.random.randrange(SLOTS)),))
        if choice < 0.4:
            mask = self.lanes_condition() if self.random.random() < 0.4 else None
            return Store(self.row, self.vector(2), (self.lane(self.random.randrange(SLOTS) * LANES),), mask)
        target = self.random.choice([*self.outputs, self.stack])
        if choice < 0.7:
            return Store(target, self.scalar(3), (self.index(),))
        mask = self.lanes_condition() if self.random.random() < 0.4 else None
        return Store(target, self.vector(2), (self.lane(self.index(SIZE - LANES)),), mask)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 32))
def test_random_programs(seed: int) -> None:
    func = Program(seed).func()
    numbers = np.random.default_rng(seed)
    arrays = [numbers.integers(-20, 20, SIZE).astype("int32") for _ in range(4)]
    expected, result = [a.copy() for a in arrays], [a.copy() for a in arrays]
    with np.errstate(all="ignore"):
        interpreter.run(func, expected)
    run(func, *result, threads=2)
    for name, want, got in zip(("a0", "a1", "z0", "z1"), expected, result, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=f"{name} of the program of seed {seed}")


def test_the_generator_makes_tiles_and_branches() -> None:
    """The programs do contain what they are meant to test."""
    from tilewright.backends.cpu.llvm.codegen import emit
    from tilewright.compat.target import Target

    text = "".join(emit(Program(seed).func(), Target("llvm")) for seed in range(60))
    for piece in (
        "phi <4 x i32>", "phi i32", "%either", "masked.load", "masked.store", ".body", "shufflevector", "srem"
    ):
        assert piece in text, piece
