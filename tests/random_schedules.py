"""Random loop programs with blocks, and random schedules of them: whatever steps are accepted, the result stays.

All values are whole and small, so that results must be equal, not close, in whatever order sums are taken.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright import tir
from tilewright.errors import ScheduleError
from tilewright.tir.stmt import PrimFunc, block_names

Array = np.ndarray[Any, Any]
Choose = random.Random
LOOPS = "ijk"


class Program:
    """Builds the text of one program: a chain of values over two parameters, of sums, maxima, windows and plain arithmetic."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
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
            shape, lines = self.choose.choice([self.pointwise, self.window, self.rows, self.product, self.mirrored])(name)
            self.lines += lines
            if name == "Z":
                head.append(f"Z: {self.buffer(shape)}")
            else:
                self.lines.insert(0, f"    {name} = T.alloc_buffer({shape}, '{self.dtype}')")
            self.values[name] = shape
        return tir.parse("\n".join([f"def program({', '.join(head)}):", *self.lines]))

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
        axes = [f"v{v} = T.axis.{'spatial' if k == 'S' else 'reduce'}({n}, {v})" for (v, n), k in zip(extents.items(), kinds, strict=True)]
        head = f"    for {', '.join(extents)} in T.grid({', '.join(map(str, extents.values()))}):"
        if len(extents) == 1:
            head = f"    for {next(iter(extents))} in T.serial({next(iter(extents.values()))}):"
        return [head, f"        with T.block('{name}'):", *("            " + line for line in axes + body)]

    def pointwise(self, name: str) -> tuple[tuple[int, int], list[str]]:
        a = self.value()
        m, n = self.values[a]
        other = next((b for b, s in self.values.items() if s == (m, n) and b != a), a)
        term = f"min(max({a}[vi, vj], {self.number()}), T.{self.dtype}(9)) {self.choose.choice('+-')} {other}[vi, vj] * {self.number()}"
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
        b, transposed = self.choose.choice([(v, t) for v, s in self.values.items() for t in (0, 1) if s[t] == depth] or [(a, 1)])
        n = self.values[b][1 - transposed]
        right = f"{b}[vj, vk]" if transposed else f"{b}[vk, vj]"
        body = ["with T.init():", f"    {name}[vi, vj] = T.{self.dtype}(0)",
                f"{name}[vi, vj] = {name}[vi, vj] + min(max({a}[vi, vk], T.{self.dtype}(-4)), T.{self.dtype}(4)) * min(max({right}, T.{self.dtype}(-4)), T.{self.dtype}(4))"]
        return (m, n), self.nest(name, {"i": m, "j": n, "k": depth}, "SSR", body)


def arrays(func: PrimFunc, seed: int) -> list[Array]:
    """Small whole numbers for every parameter; the output starts conspicuous."""
    numbers = np.random.default_rng(seed)
    made = [numbers.integers(-3, 4, tuple(map(int, b.shape))).astype(b.dtype.numpy()) for b in func.params]
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
    maps = [f"lambda i, j: (j, i // {c}, i % {c})", "lambda i, j: (j, i)", f"lambda i, j: (i, j * {c} + 1)", f"lambda i, j: (i // {c}, j, i % {c})"]
    sch.transform_layout(block, choose.choice([0, ("read", choose.randrange(2))]), choose.choice(maps))


def block_layout(sch: tir.Schedule, choose: Choose) -> None:
    block = some_block(sch, choose)
    extents = [int(i.extent) for i in sch.get(block).iters]
    text = ["lambda i, j: (j, i)", f"lambda i, j: (i * {extents[-1]} + j,)", "lambda i, j: (i // 2, j, i % 2)"]
    three = ["lambda i, j, k: (k, j, i)", f"lambda i, j, k: (j * {extents[0]} + i, k)", "lambda i, j, k: (i, j, k // 2, k % 2)"]
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
    "reorder_block_iter_var": lambda s, c: s.reorder_block_iter_var(b := some_block(s, c), c.sample(range(n := len(s.get(b).iters)), n)),
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


def attempt(sch: tir.Schedule, name: str, choose: Choose, steps: dict[str, Callable[[tir.Schedule, Choose], object]]) -> bool:
    """Try one step; where it is refused, nothing has changed."""
    before = sch.mod["main"], [s for s in sch.trace if not s.name.startswith("sample")]
    try:
        steps[name](sch, choose)
    except ScheduleError:
        assert (sch.mod["main"], [s for s in sch.trace if not s.name.startswith("sample")]) == before, f"{name} was refused and changed something"
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
