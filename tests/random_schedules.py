"""Random loop programs with blocks, and random schedules of them: whatever steps are accepted, the result stays.

All values are whole and small, so that results must be equal, not close, in whatever order sums are taken.

    python tests/random_schedules.py 5000 0     # that many schedules from a seed on: half of loop programs, half of
                                                tensor expressions
"""

from __future__ import annotations

import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import random_te_schedules
import tilewright as tvm
from tilewright import tir
from tilewright.base.errors import CompileError, InternalError, ScheduleError
from tilewright.scalar.expr import IntImm
from tilewright.te.resolve import schedule_func
from tilewright.tir.interpreter import run
from tilewright.tir.stmt import THREAD, For, PrimFunc, Stmt, block_names, map_bodies

Array = np.ndarray[Any, Any]
Choose = random.Random
LOOPS = "ijk"
Kind = Callable[[str], tuple[tuple[int, int], list[str]]]
"""Adds a computation of that name to a program; returns its shape and the lines of its loops."""


class Program:
    """Builds the text of one program: a chain of values over two parameters, of sums, maxima, windows and plain
    arithmetic.

    With `bound`, trips depend on each other: values change in place, rows follow from rows, blocks share loops, stores
    go to places that are computed, and loops run as often as others say.
    """

    def __init__(self, seed: int, bound: bool = False) -> None:
        self.choose = random.Random(seed)
        self.bound = bound
        self.dtype = self.choose.choice(["float32", "float32", "int32"])
        self.values: dict[str, tuple[int, int]] = {}
        self.lines: list[str] = []

    def func(self) -> PrimFunc:
        for name in ("P", "Q"):
            self.values[name] = (self.size(), self.size())
        head = [f"{n}: {self.buffer(s)}" for n, s in self.values.items()]
        made = self.choose.randint(1, 3)
        for k in range(made):
            name = "Z" if k == made - 1 else "BCD"[k]
            shape, lines = self.choose.choice(self.kinds())(name)
            self.lines += lines
            if name == "Z":
                head.append(f"Z: {self.buffer(shape)}")
            else:
                self.lines.insert(0, f"    {name} = T.alloc_buffer({shape}, '{self.dtype}')")
            self.values[name] = shape
        return tir.parse("\n".join([f"def program({', '.join(head)}):", *self.lines]))

    def kinds(self) -> list[Kind]:
        plain: list[Kind] = [self.pointwise, self.window, self.rows, self.product, self.mirrored]
        return plain + [
            self.in_place, self.following, self.scattered, self.triangle, self.together, self.two_results, self.running
        ] if self.bound else plain

    def size(self) -> int:
        return self.choose.randint(2, 9)

    def buffer(self, shape: tuple[int, int]) -> str:
        return f"T.Buffer({shape}, '{self.dtype}')"

    def value(self) -> str:
        """A value made before, the newest most often, so that blocks depend on each other."""
        names = list(self.values)
        return names[-1] if self.choose.random() < 0.7 else self.choose.choice(names)

    def number(self) -> str:
        return f"T.{self.dtype}({self.choose.randint(-3, 3)})"

    def nest(self, name: str, extents: dict[str, int], kinds: str, body: list[str]) -> list[str]:
        axes = [
            f"v{v} = T.axis.{'spatial' if k == 'S' else 'reduce'}({n}, {v})" for (v, n),
            k in zip(extents.items(), kinds, strict=True)
        ]
        head = f"    for {', '.join(extents)} in T.grid({', '.join(map(str, extents.values()))}):"
        if len(extents) == 1:
            head = f"    for {next(iter(extents))} in T.serial({next(iter(extents.values()))}):"
        return [head, f"        with T.block('{name}'):", *("            " + line for line in axes + body)]

    def pointwise(self, name: str) -> tuple[tuple[int, int], list[str]]:
        a = self.value()
        m, n = self.values[a]
        other = next((b for b, s in self.values.items() if s == (m, n) and b != a), a)
        term = (
            f"min(max({a}[vi, vj], {self.number()}), T.{self.dtype}(9)) {self.choose.choice('+-')} {other}[vi, vj] * "
            f"{self.number()}"
        )
        return (m, n), self.nest(name, {"i": m, "j": n}, "SS", [f"{name}[vi, vj] = {term}"])

    def mirrored(self, name: str) -> tuple[tuple[int, int], list[str]]:
        a = self.value()
        m, n = self.values[a]
        return (n, m), self.nest(name, {"i": n, "j": m}, "SS", [f"{name}[vi, vj] = {a}[vj, vi] + {self.number()}"])

    def window(self, name: str) -> tuple[tuple[int, int], list[str]]:
        """Zeros outside of the value: a padded read."""
        a = self.value()
        m, n = self.values[a]
        at = self.choose.randint(-2, 2)
        read = f"T.if_then_else(vj + {at} >= 0 and vj + {at} < {n}, {a}[vi, vj + {at}], T.{self.dtype}(0))"
        return (m, n + 1), self.nest(name, {"i": m, "j": n + 1}, "SS", [f"{name}[vi, vj] = {read} - {self.number()}"])

    def rows(self, name: str) -> tuple[tuple[int, int], list[str]]:
        """A sum or maximum along rows, kept as a column."""
        a = self.value()
        m, n = self.values[a]
        start, step = self.choose.choice([("0", "{old} + {new}"), ("-99", "max({old}, {new})")])
        old, new = f"{name}[vi, 0]", f"{a}[vi, vk] * {self.number()}"
        init = f"T.min_value('{self.dtype}')" if start != "0" else f"T.{self.dtype}(0)"
        body = ["with T.init():", f"    {old} = {init}", f"{old} = {step.format(old=old, new=new)}"]
        return (m, 1), self.nest(name, {"i": m, "k": n}, "SR", body)

    def product(self, name: str) -> tuple[tuple[int, int], list[str]]:
        a = self.value()
        m, depth = self.values[a]
        b, transposed = self.choose.choice(
            [(v, t) for v, s in self.values.items() for t in (0, 1) if s[t] == depth] or [(a, 1)]
        )
        n = self.values[b][1 - transposed]
        right = f"{b}[vj, vk]" if transposed else f"{b}[vk, vj]"
        body = ["with T.init():", f"    {name}[vi, vj] = T.{self.dtype}(0)",
                f"{name}[vi, vj] = {name}[vi, vj] + min(max({a}[vi, vk], T.{self.dtype}(-4)), T.{self.dtype}(4)) * "
                f"min(max({right}, T.{self.dtype}(-4)), T.{self.dtype}(4))"]
        return (m, n), self.nest(name, {"i": m, "j": n, "k": depth}, "SSR", body)

    # Trips that depend on each other.
    def small(self, value: str) -> str:
        return f"min(max({value}, T.{self.dtype}(-9)), T.{self.dtype}(9))"

    def in_place(self, name: str) -> tuple[tuple[int, int], list[str]]:
        """A value, or a parameter, changes in place and is read after, and perhaps before."""
        a = self.value()
        m, n = self.values[a]
        place = self.choose.choice(["vi, vj", "vi, vj", f"{m - 1} - vi, vj", "vi, 0"])
        update = self.nest(
            f"{name}_u", {"i": m, "j": n}, "SS",
            [f"{a}[vi, vj] = {self.small(f'{a}[vi, vj] * {self.number()} + {a}[{place}]')}"]
        )
        before = self.nest(name, {"i": m, "j": n}, "SS", [f"{name}[vi, vj] = {a}[vi, vj] - {self.number()}"])
        after = self.nest(f"{name}_a", {"i": m, "j": n}, "SS", [f"{name}[vi, vj] = {name}[vi, vj] + {a}[vi, vj]"])
        return (m, n), self.choose.choice([before + update, update + before, before + update + after])

    def following(self, name: str) -> tuple[tuple[int, int], list[str]]:
        """Rows, or diagonals, that follow from those before."""
        a = self.value()
        m, n = self.values[a]
        at, step = self.choose.choice(
            [("vi, vj", (1, 0)), ("vi, vj", (1, 0)), ("vi, vj + 1", (1, 0)), ("vi + 1, vj", (0, 1)), ("vi, vj", (1, 1))]
        )
        first = self.nest(name, {"i": m + 1, "j": n + 1}, "SS", [f"{name}[vi, vj] = {self.number()}"])
        to = f"vi + {step[0]}, vj + {step[1]}"
        rest = self.nest(
            f"{name}_n", {"i": m, "j": n}, "SS", [f"{name}[{to}] = {self.small(f'{name}[{at}] + {a}[vi, vj]')}"]
        )
        return (m + 1, n + 1), first + rest

    def scattered(self, name: str) -> tuple[tuple[int, int], list[str]]:
        """Stores to places that are no plain axes: several trips may share one."""
        a = self.value()
        m, n = self.values[a]
        column = f"min(max({a}[vi, 0], 0), {n - 1})" if self.dtype == "int32" else f"(vi * vj + vj) % {n}"
        place = self.choose.choice(
            [
                f"vi, {column}", "vi // 2, vj", f"(vi * 2) % {m}, vj", f"{m - 1} - vi, {n - 1} - vj",
                f"(vi * {n} + vj) // {n}, (vi * {n} + vj) % {n}"
            ]
        )
        first = self.nest(name, {"i": m, "j": n}, "SS", [f"{name}[vi, vj] = {self.number()}"])
        value = self.choose.choice([f"{a}[vi, vj]", f"{self.small(f'{name}[{place}] + {a}[vi, vj]')}"])
        return (m, n), first + self.nest(f"{name}_s", {"i": m, "j": n}, "SS", [f"{name}[{place}] = {value}"])

    def triangle(self, name: str) -> tuple[tuple[int, int], list[str]]:
        """A sum over as many columns as the row says, or a copy of that part."""
        a = self.value()
        m, n = self.values[a]
        body = [
            "with T.init():", f"    {name}[vi, 0] = T.{self.dtype}(0)", f"{name}[vi, 0] = {name}[vi, 0] + {a}[vi, vk]"
        ]
        shape, axes = (m, 1), [f"vi = T.axis.spatial({m}, i)", f"vk = T.axis.reduce({n}, k)"]
        fill: list[str] = []
        if self.choose.random() < 0.5:
            shape, axes, body = (m, n), [axes[0], f"vk = T.axis.spatial({n}, k)"], [f"{name}[vi, vk] = {a}[vi, vk]"]
            fill = self.nest(f"{name}_f", {"i": m, "j": n}, "SS", [f"{name}[vi, vj] = {self.number()}"])
        lines = [
            f"    for i in T.serial({m}):", f"        for k in T.serial(min(i + {self.choose.randint(1, 2)}, {n})):",
            f"            with T.block('{name}'):"
        ]
        return shape, fill + lines + ["                " + x for x in axes + body]

    def together(self, name: str) -> tuple[tuple[int, int], list[str]]:
        """Two blocks in one loop; the second reads what the first made in this trip, or in the one before."""
        a = self.value()
        m, n = self.values[a]
        self.lines.insert(0, f"    {name}t = T.alloc_buffer({(m, n)}, '{self.dtype}')")
        back = self.choose.choice(
            [
                f"{name}t[vi, vj]", f"T.if_then_else(vi > 0, {name}t[max(vi - 1, 0), vj], T.{self.dtype}(0))",
                f"{name}t[vi, {n - 1} - vj]"
            ]
        )
        rows = [f"    for i in T.serial({m}):"]
        for block, target, value in (
            (f"{name}_t", f"{name}t", f"{a}[vi, vj] + {self.number()}"), (name, name, f"{back} - {a}[vi, vj]")
        ):
            rows += [
                f"        for j in T.serial({n}):", f"            with T.block('{block}'):",
                "                vi, vj = T.axis.remap('SS', [i, j])",
                     f"                {target}[vi, vj] = {value}"]
        return (m, n), rows

    def two_results(self, name: str) -> tuple[tuple[int, int], list[str]]:
        """The maximum of a row and where it is; or a sum of sums, in an order that counts."""
        a = self.value()
        m, n = self.values[a]
        self.lines.insert(0, f"    {name}w = T.alloc_buffer({(m, 1)}, '{self.dtype}')")
        axes = ["with T.init():", f"    {name}[vi, 0] = T.{self.dtype}(0)", f"    {name}w[vi, 0] = T.{self.dtype}(-99)"]
        best = [f"w: T.{self.dtype} = T.if_then_else({name}w[vi, 0] < {a}[vi, vk], {a}[vi, vk], {name}w[vi, 0])",
                f"p: T.{self.dtype} = T.if_then_else({name}w[vi, 0] < {a}[vi, vk], T.cast(vk, '{self.dtype}'), "
                f"{name}[vi, 0])",
                f"{name}w[vi, 0] = w", f"{name}[vi, 0] = p"]
        sums = [
            f"{name}w[vi, 0] = {a}[vi, vk] - {name}w[vi, 0]",
            f"{name}[vi, 0] = {self.small(f'{name}[vi, 0] + {name}w[vi, 0]')}"
        ]
        return (m, 1), self.nest(name, {"i": m, "k": n}, "SR", axes + self.choose.choice([best, sums]))

    def running(self, name: str) -> tuple[tuple[int, int], list[str]]:
        """A value that is kept from trip to trip, or a reduction whose order counts."""
        a = self.value()
        m, n = self.values[a]
        if self.choose.random() < 0.5:
            body = [
                "with T.init():", f"    {name}[vi, 0] = T.{self.dtype}(1)",
                f"{name}[vi, 0] = {self.small(f'{name}[vi, 0] * {self.number()} + {a}[vi, vk]')}"
            ]
            return (m, 1), self.nest(name, {"i": m, "k": n}, "SR", body)
        self.lines.insert(0, f"    {name}r = T.alloc_buffer({(n,)}, '{self.dtype}')")
        rows = [f"    for i in T.serial({m}):"]
        for block, store in (
            (
                f"{name}_r",
                f"{name}r[vj] = {self.small(f'{a}[vi, vj] + T.if_then_else(vi > 0, {name}r[vj], T.{self.dtype}(0))')}"
            ), (name, f"{name}[vi, vj] = {name}r[vj]")
        ):
            rows += [
                f"        for j in T.serial({n}):", f"            with T.block('{block}'):",
                "                vi, vj = T.axis.remap('SS', [i, j])", f"                {store}"
            ]
        return (m, n), rows


def arrays(func: PrimFunc, seed: int) -> list[Array]:
    """Small whole numbers for every parameter; the output starts conspicuous."""
    numbers = np.random.default_rng(seed)
    made = [numbers.integers(-3, 4, tuple(map(int, b.shape))).astype(b.dtype.numpy()) for b in func.buffers]
    made[-1][...] = 77
    return made


# Steps.
def some_block(sch: tir.Schedule, choose: Choose) -> str:
    return choose.choice(block_names(sch.mod["main"]))


def some_loop(sch: tir.Schedule, choose: Choose, block: str | None = None) -> Any:
    loops = sch.get_loops(block or some_block(sch, choose))
    if not loops:
        raise ScheduleError("no loops left")
    return choose.choice(loops)


def split(sch: tir.Schedule, choose: Choose) -> None:
    factors: list[int | None] = [None, *(choose.randint(1, 5) for _ in range(choose.randint(1, 2)))]
    choose.shuffle(factors)
    sch.split(some_loop(sch, choose), factors)


def fuse(sch: tir.Schedule, choose: Choose) -> None:
    loops = sch.get_loops(some_block(sch, choose))
    at = choose.randrange(max(1, len(loops) - 1))
    sch.fuse(*loops[at : at + 2])


def merge(sch: tir.Schedule, choose: Choose) -> None:
    blocks = choose.sample(block_names(sch.mod["main"]), 2)
    ordered = sorted(blocks, key=block_names(sch.mod["main"]).index)
    depth = choose.randrange(2)
    loops = [sch.get_loops(b) for b in ordered]
    if any(depth >= len(x) for x in loops):
        raise ScheduleError("not that deep")
    sch.merge(*(x[depth] for x in loops))


def reorder(sch: tir.Schedule, choose: Choose) -> None:
    loops = sch.get_loops(some_block(sch, choose))
    sch.reorder(*choose.sample(loops, choose.randint(min(1, len(loops)), len(loops))))


def layout(sch: tir.Schedule, choose: Choose) -> None:
    block = some_block(sch, choose)
    c = choose.randint(1, 4)
    maps = [
        f"lambda i, j: (j, i // {c}, i % {c})", "lambda i, j: (j, i)", f"lambda i, j: (i, j * {c} + 1)",
        f"lambda i, j: (i // {c}, j, i % {c})"
    ]
    buffers: list[int | tuple[str, int]] = [0, ("read", choose.randrange(2))]
    which, how = choose.choice(buffers), choose.choice(maps)
    at, engine = sch._in(block)
    if sch._buffer(at, engine, which) in engine.func.params:
        raise ScheduleError("the program would take its arguments in another layout")
    sch.transform_layout(block, which, how)


def block_layout(sch: tir.Schedule, choose: Choose) -> None:
    block = some_block(sch, choose)
    extents = [i.extent.value for i in sch.get(block).iters if isinstance(i.extent, IntImm)]
    if not extents:  # the initial value of a tile of one sum
        return
    text = ["lambda i, j: (j, i)", f"lambda i, j: (i * {extents[-1]} + j,)", "lambda i, j: (i // 2, j, i % 2)"]
    three = [
        "lambda i, j, k: (k, j, i)", f"lambda i, j, k: (j * {extents[0]} + i, k)",
        "lambda i, j, k: (i, j, k // 2, k % 2)"
    ]
    sch.transform_block_layout(block, choose.choice(three if len(extents) == 3 else text))


def reindex(sch: tir.Schedule, choose: Choose) -> None:
    block, k = some_block(sch, choose), choose.randrange(2)
    match choose.randrange(3):
        case 0:
            sch.reindex(block, (choose.choice(["read", "write"]), k))
        case 1:
            sch.reindex_cache_read(block, k, choose.choice(["global", "local"]), "lambda i, j: (j, i)")
        case _:
            sch.reindex_cache_write(block, 0, choose.choice(["global", "local"]), "lambda i, j: (j // 2, i, j % 2)")


def tile_locations(sch: tir.Schedule, choose: Choose) -> None:
    sch.seed(choose.randrange(1 << 30))
    match choose.randrange(4):
        case 0:
            loop = some_loop(sch, choose)
            sch.split(loop, sch.sample_perfect_tile(loop, choose.randint(1, 3), 4))
        case 1:
            loop = some_loop(sch, choose)
            sch.split(loop, sch.sample_partitioned_tile(loop, 2, 1, choose.randint(1, 2)))
        case 2:
            sch.split(some_loop(sch, choose), [None, sch.sample_categorical([1, 2, 3], [0.2, 0.3, 0.5])])
        case _:
            block = some_block(sch, choose)
            where = sch.sample_compute_location(block)
            if not isinstance(where, int):
                sch.compute_at(block, where)
            elif where == -2:
                sch.compute_inline(block)


STEPS: dict[str, Callable[[tir.Schedule, Choose], object]] = {
    "split": split,
    "fuse": fuse,
    "merge": lambda s, c: merge(s, c) if len(block_names(s.mod["main"])) > 1 else None,
    "loop_partition": lambda s, c: s.loop_partition(some_loop(s, c), c.choice([[1, None], [None, 2], [2, None, 1]])),
    "reorder": reorder,
    "compute_at": lambda s, c: s.compute_at(some_block(s, c), some_loop(s, c), c.random() < 0.3),
    "compute_inline": lambda s, c: s.compute_inline(some_block(s, c)),
    "cache_read": lambda s, c: s.cache_read(some_block(s, c), c.randrange(2), c.choice(["global", "local"])),
    "cache_write": lambda s, c: s.cache_write(some_block(s, c), 0, c.choice(["global", "local"])),
    "rfactor": lambda s, c: s.rfactor(some_loop(s, c), c.randrange(3)),
    "set_scope": lambda s, c: s.set_scope(some_block(s, c), 0, "local"),
    "reverse_compute_at": lambda s, c: s.reverse_compute_at(some_block(s, c), some_loop(s, c), c.random() < 0.3),
    "reverse_compute_inline": lambda s, c: s.reverse_compute_inline(some_block(s, c)),
    "decompose_reduction": lambda s, c: s.decompose_reduction(b := some_block(s, c), some_loop(s, c, b)),
    "decompose_padding": lambda s, c: s.decompose_padding(b := some_block(s, c), some_loop(s, c, b)),
    "pad_einsum": lambda s, c: s.pad_einsum(b := some_block(s, c), [c.randint(1, 4) for _ in s.get(b).iters]),
    "blockize": lambda s, c: s.blockize(some_loop(s, c)),
    "add_unit_loop": lambda s, c: s.add_unit_loop(c.choice([some_block, some_loop])(s, c)),
    "reorder_block_iter_var": lambda s, c: s.reorder_block_iter_var(
        b := some_block(s, c), c.sample(range(n := len(s.get(b).iters)), n)
    ),
    "storage_align": lambda s, c: s.storage_align(some_block(s, c), 0, -2, c.randint(1, 16), c.randrange(4)),
    "rolling_buffer": lambda s, c: s.rolling_buffer(some_block(s, c)),
    "double_buffer": lambda s, c: s.annotate(some_block(s, c), "double_buffer", True),
    "transform_layout": layout,
    "transform_block_layout": block_layout,
    "reindex": reindex,
    "cache_index": lambda s, c: s.cache_index(some_block(s, c), c.choice(["global", "local"])),
    "cache_inplace": lambda s, c: s.cache_inplace(some_block(s, c), 0, "local"),
    "sample": tile_locations,
}
"""Steps that change the shape of the program, in any order."""

MARKS: dict[str, Callable[[tir.Schedule, Choose], object]] = {
    "parallel": lambda s, c: s.parallel(some_loop(s, c)),
    "vectorize": lambda s, c: s.vectorize(some_loop(s, c)),
    "unroll": lambda s, c: s.unroll(some_loop(s, c)),
    "bind": lambda s, c: s.bind(some_loop(s, c), "threadIdx.x"),
}
"""Steps that say how loops run; they come last, since they end what else can be done to a loop."""


def attempt(
    sch: tir.Schedule, name: str, choose: Choose, steps: dict[str, Callable[[tir.Schedule, Choose], object]]
) -> bool:
    """Try one step; where it is refused, nothing has changed."""
    before = sch.mod["main"], [s for s in sch.steps if not s.name.startswith("sample")]
    try:
        steps[name](sch, choose)
    except ScheduleError:
        assert (
            sch.mod["main"], [s for s in sch.steps if not s.name.startswith("sample")]
        ) == before, f"{name} was refused and changed something"
        return False
    return True


def scheduled(func: PrimFunc, seed: int) -> tir.Schedule:
    """`func` after random steps."""
    choose, sch = random.Random(seed), tir.Schedule(func)
    for _ in range(choose.randrange(25)):
        attempt(sch, choose.choice(list(STEPS)), choose, STEPS)
    for _ in range(choose.randrange(5)):
        attempt(sch, choose.choice(list(MARKS)), choose, MARKS)
    return sch


# Many of them.
BATCH = 100
"""Schedules that are compiled as one library."""


@dataclass
class Case:
    """A schedule that was accepted: the program before and after, without blocks, and flat."""

    name: str
    before: PrimFunc
    lowered: PrimFunc
    flat: PrimFunc
    steps: str

    @staticmethod
    def of(name: str, before: PrimFunc, after: PrimFunc, steps: object) -> Case:
        """Raises `CompileError` where the schedule cannot be lowered."""
        lowered = tir.lower_blocks(after)
        return Case(name, before, lowered, tir.lower_loops(lowered), str(steps))

    def __str__(self) -> str:
        return f"{self.name}\n{self.before}\n{self.steps}\n{self.lowered}"


def loop_case(seed: int) -> Case:
    """A program of loops after random steps. Raises `CompileError` where it cannot be lowered."""
    func = Program(seed, bound=seed % 4 != 0).func()
    sch = scheduled(func, seed)
    return Case.of(f"loops{seed}", func, sch.mod["main"], sch.trace)


def te_case(seed: int) -> Case:
    """Tensor expressions after random steps. Raises `ScheduleError` for those that are refused."""
    before = schedule_func(*random_te_schedules.unscheduled(seed))
    after = schedule_func(*random_te_schedules.scheduled(seed))
    return Case.of(f"expressions{seed}", before, after, after)


def on_a_cpu(s: Stmt) -> Stmt:
    """`s` without notes of threads of a GPU, which no CPU target takes."""
    if isinstance(s, For):
        return replace(s, body=on_a_cpu(s.body), annotations={k: v for k, v in s.annotations.items() if k != THREAD})
    return map_bodies(s, on_a_cpu) or s


def interpreted(case: Case, given: Sequence[Array], want: Sequence[Array]) -> str:
    """What is wrong with a schedule, read by the interpreter before and after its loops are lowered; nothing for a
    right one."""
    for stage, program in (("lowered", case.lowered), ("flat", case.flat)):
        got = [a.copy() if program is case.lowered else a.reshape(-1).copy() for a in given]
        try:
            run(program, got)
        except InternalError as error:
            return f"interpreted, {stage}: {error}: {case}"
        if wrong(case, got, want):
            return f"interpreted, {stage}: {case}"
    return ""


def wrong(case: Case, got: Sequence[Array], want: Sequence[Array]) -> bool:
    return any(not np.array_equal(a.reshape(b.shape), b) for a, b in zip(got, want, strict=True))


def check(cases: Sequence[Case], counts: Counter[str], native: bool = True) -> list[str]:
    """What differs, read by the interpreter (before and after lowering) and as machine code."""
    faults, works = [], {}
    for k, case in enumerate(cases):
        given = arrays(case.before, k)
        want = [a.copy() for a in given]
        run(case.before, want)
        fault = interpreted(case, given, want)
        faults += [fault] if fault else []
        works.update({} if fault else {f"f{k}": (case, given, want)})
        counts["accepted"] += 1
    if native and works:
        module = tvm.build(
            tvm.IRModule(
                {n: replace(w[0].lowered, name=n, body=on_a_cpu(w[0].lowered.body)) for n, w in works.items()}
            ), target="llvm"
        )
        for name, (case, given, want) in works.items():
            got = [a.copy() for a in given]
            module[name](*got)
            if wrong(case, got, want):
                faults.append(f"LLVM: {case}")
    return faults


def some(seeds: Sequence[int], counts: Counter[str], native: bool = True) -> list[str]:
    """The faults of the schedules of these seeds; every second one is of tensor expressions."""
    cases, faults = [], []
    for seed in seeds:
        counts["tried"] += 1
        try:
            cases.append((te_case if seed % 2 else loop_case)(seed))
        except CompileError as error:
            counts[f"refused: {type(error).__name__}"] += 1
        except Exception:
            faults.append(f"seed {seed}: {traceback.format_exc()}")
    return faults + check(cases, counts, native)


def main(count: int, seed: int) -> int:
    counts: Counter[str] = Counter()
    faults: list[str] = []
    for first in range(seed, seed + count, BATCH):
        found = some(range(first, min(first + BATCH, seed + count)), counts)
        faults += found
        for f in found:
            print(f, "\n")
        print(f"{dict(counts)}, {len(faults)} faults", flush=True)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
