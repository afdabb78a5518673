"""Planted faults of memory: programs with one wrong access each, the arrays that lead to it, and what has to be said of
it."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pytest

import tilewright as tvm
from tilewright import relay, te, tir
from tilewright.backends.cpu.machine import machine_of
from tilewright.base.errors import MemoryFault, Origin
from tilewright.base.global_functions import FUNCTIONS, remove_global_func
from tilewright.base.memory_faults import OVERLAP, READ, UNINITIALIZED, WRITE
from tilewright.base.types import TensorType
from tilewright.compat.target import Target, register_target_kind
from tilewright.ir.op_attributes import reset_op_attr
from tilewright.relay.op.registry import OPS
from tilewright.runtime import ModuleNode
from tilewright.scalar.expr import Buffer

Array = npt.NDArray[Any]
N: Final = 16
CONFIG: Final = {
    "tir.instrument_bound_checkers": True, "tir.instrument_uninitialized_reads": True,
    "tir.instrument_overlapping_arguments": True
}


@dataclass(frozen=True)
class Planted:
    """A fault: `run(wrong)` makes the call, with arrays that lead to the fault or not; and what the error names."""

    id: str
    run: Callable[[bool], object]
    kind: str
    buffer: str
    where: str
    node: str
    says: str = ""
    always: bool = False
    """Whether the program is wrong for all arrays."""


def check_report(planted: Planted) -> None:
    """The fault is reported by its buffer, loops, node and place, and what is right is not."""
    if not planted.always:
        planted.run(False)
    with pytest.raises(MemoryFault) as caught:
        planted.run(True)
    said = str(caught.value)
    assert (caught.value.kind, caught.value.buffer) == (planted.kind, planted.buffer), said
    for part in (planted.where, planted.node, planted.says):
        assert part in said, said
    line, marks = re.findall(r"\| (.*)", said)
    shown = line[marks.index("^") : marks.rindex("^") + 1]
    assert planted.buffer in shown.replace("_written", ""), said


def numbers(n: int = N, dtype: str = "float32") -> Array:
    return (np.arange(n) % 7).astype(dtype)


# Programs of the IR builder.
Emit = Callable[[Any, Sequence[Any], Sequence[Any]], None]


def built(
    name: str, emit: Emit, ins: Sequence[tuple[Any, str]], outs: Sequence[tuple[Any, str]] = (((N,), "float32"),)
) -> Any:
    """A checked function of inputs `a`, `b`, … and the output `out`, or `out_v0`, `out_v1`, …, for the current
    target."""
    inputs = [te.placeholder(shape, dtype, name="abcdef"[k]) for k, (shape, dtype) in enumerate(ins)]

    def body(given: Sequence[Buffer], made: Sequence[Buffer]) -> object:
        irb = tir.ir_builder.create()
        emit(irb, [irb.buffer_ptr(x) for x in given], [irb.buffer_ptr(x) for x in made])
        return irb.get()

    made = te.extern([shape for shape, _ in outs], inputs, body, name="out", dtype=[dtype for _, dtype in outs])
    results = made if isinstance(made, (list, tuple)) else [made]
    with tvm.transform.PassContext(config=CONFIG):
        return tvm.build(te.create_schedule(results[0].op), [*inputs, *results], name=name)


def once(make: Callable[[], Any]) -> Callable[[], Any]:
    """Makes something once for each target."""
    made = functools.cache(lambda target: make())
    return lambda: made(Target.current(allow_none=True))


def called(make: Callable[[], Any], right: Sequence[Array], wrong: Sequence[Array]) -> Callable[[bool], object]:
    """Makes the function, once, and calls it with one of the lists of arrays."""
    make = once(make)
    return lambda is_wrong: make()(*(x.copy() for x in (wrong if is_wrong else right)))


def indexed(irb: Any, ins: Sequence[Any], outs: Sequence[Any], kind: str = "serial") -> None:
    with irb.for_range(0, 3, name="i", kind=kind) as i:
        outs[0][i] = ins[0][ins[1][i]]


def written_at(irb: Any, ins: Sequence[Any], outs: Sequence[Any], kind: str = "serial") -> None:
    with irb.for_range(0, 3, name="i", kind=kind) as i:
        outs[0][ins[1][i]] = ins[0][i]


def scratched(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    scratch = irb.allocate("float32", (4,), name="scratch", scope="local")
    with irb.for_range(0, 4, name="k") as k:
        scratch[k] = 0.0
    with irb.for_range(0, 3, name="i") as i:
        scratch[ins[1][i]] = ins[0][i]
        outs[0][i] = scratch[0] + scratch[1]


def scratch_read(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    scratch = irb.allocate("float32", (2, 4), name="scratch")
    with irb.for_range(0, 8, name="k") as k:
        scratch[k] = ins[0][k]
    with irb.for_range(0, 3, name="i") as i:
        outs[0][i] = scratch[1, ins[1][i]]


def let_bound(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 3, name="i") as i:
        at = irb.let("at", ins[1][i] * 2)
        outs[0][i] = ins[0][at]


def through_two(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 3, name="i") as i:
        outs[0][i] = ins[0][ins[2][ins[1][i]]]


def in_condition(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 3, name="i") as i:
        with irb.if_scope(ins[0][ins[1][i]] > 1.0):
            outs[0][i] = 1.0
        with irb.else_scope():
            outs[0][i] = 2.0


def as_extent(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 3, name="i") as i, irb.for_range(0, ins[1][i], name="k") as k:
        outs[0][k] = ins[0][i]


def extent_from(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 2, name="i") as i, irb.for_range(0, ins[2][ins[1][i]], name="k") as k:
        outs[0][k] = ins[0][k]


def half_guarded(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 3, name="i") as i:
        outs[0][i] = tir.if_then_else(ins[1][i] < N, ins[0][ins[1][i]], 0.0)


def in_plane(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 3, name="i") as i, irb.for_range(0, 2, name="j") as j:
        outs[0][i, j] = ins[0][ins[1][i], j]


def one_too_many(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, N + 1, name="i") as i:
        outs[0][i] = 1.0


def one_too_early(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, N, name="i") as i:
        outs[0][i] = ins[0][i - 1]


def rows_and_columns(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 4, name="i") as i, irb.for_range(0, 3, name="j") as j:
        outs[0][i, j] = ins[0][i, j]


def even_only(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    scratch = irb.allocate("float32", (8,), name="scratch")
    with irb.for_range(0, 4, name="k") as k:
        scratch[k * 2] = ins[0][k]
    with irb.for_range(0, 3, name="i") as i:
        outs[0][i] = scratch[ins[1][i]]


def never_written(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    total = irb.allocate("float32", (1,), name="total", scope="local")
    with irb.for_range(0, 4, name="i") as i:
        total[0] += ins[0][i]
    outs[0][0] = total[0]


def written_where(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 3, name="i") as i:
        seen = irb.allocate("float32", (2, 2), name="seen")
        with irb.if_scope(ins[1][i] > 0):
            seen[1, 0] = ins[0][i]
        outs[0][i] = seen[1, 0]


def forgotten(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    """A buffer inside of a loop begins anew in each trip."""
    with irb.for_range(0, 3, name="i") as i:
        kept = irb.allocate("int32", (4,), name="kept")
        kept[ins[1][i]] = i.astype("int32")
        outs[0][i] = kept[1].astype("float32")


def one_more_column(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    plane = irb.allocate("float32", (3, 4), name="plane")
    with irb.for_range(0, 3, name="i") as i, irb.for_range(0, 4, name="j") as j:
        plane[i, j] = 0.0
    with irb.for_range(0, 3, name="y") as y, irb.for_range(0, 3, name="x") as x:
        outs[0][y * 3 + x] = plane[y, ins[1][x]]


def in_vectors(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 3, name="i") as i, irb.for_range(0, 4, name="v", kind="vectorize") as v:
        outs[0][i * 4 + v] = ins[0][ins[1][i] + v]


def in_copies(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 3, name="i") as i, irb.for_range(0, 2, name="u", kind="unroll") as u:
        outs[0][i * 2 + u] = ins[0][ins[1][i] * 2 + u]


def _indices(*values: int, dtype: str = "int32") -> Array:
    return np.asarray(values, dtype)


def _with_indices(
    name: str, emit: Emit, right: Sequence[int], wrong: Sequence[int], kind: str, buffer: str, where: str, *,
    dtype: str = "int32", element: str = "float32",
    shape: tuple[int, ...] = (N,), out: tuple[int, ...] = (N,), more: Sequence[Array] = (), says: str = "",
) -> Planted:
    """A program over data `a`, indices `b` and `more`; it runs with the right indices, not with the wrong ones."""
    data = numbers(int(np.prod(shape)), element).reshape(shape)

    def make() -> Any:
        return built(
            name, emit, [(shape, element), ((len(right),), dtype), *((x.shape, str(x.dtype)) for x in more)],
            [(out, element)]
        )

    arrays = [[data, _indices(*at, dtype=dtype), *more, np.zeros(out, element)] for at in (right, wrong)]
    return Planted(f"builder-{name}", called(make, *arrays), kind, buffer, where, name, says)


def _parallel(emit: Any) -> Emit:
    return lambda irb, ins, outs: emit(irb, ins, outs, "parallel")


HUGE: Final = 1_000_000_000
BUILDER: Final = [
    _with_indices(
        "gather_high", indexed, (0, 5, 15), (0, 5, 16), READ, "a", "i = 2", says="index 0 is 16, and may be 0 to 15"
    ),
    _with_indices("gather_low", indexed, (0, 5, 15), (0, -1, 15), READ, "a", "i = 1", says="index 0 is -1"),
    _with_indices(
        "gather_far", indexed, (0, 5, 15), (HUGE, 5, 15), READ, "a", "i = 0", says=f"a[{HUGE}] of float32 a[16]"
    ),
    _with_indices("gather_far_low", indexed, (1, 2, 3), (1, 2, -HUGE), READ, "a", "i = 2"),
    _with_indices(
        "gather_bytes", indexed, (0, 5, 15), (0, 200, 15), READ, "a", "i = 1", dtype="uint8", element="int8",
        says="int8 a[16]"
    ),
    _with_indices(
        "gather_wide", indexed, (0, 5, 15), (0, 1 << 40, 15), READ, "a", "i = 1", dtype="int64", element="float64"
    ),
    _with_indices("gather_parallel", _parallel(indexed), (0, 5, 15), (0, 5, 99), READ, "a", "i = 2"),
    _with_indices(
        "scatter_high", written_at, (0, 5, 15), (0, 16, 15), WRITE, "out", "i = 1", says="writes out of bounds: out[16]"
    ),
    _with_indices("scatter_low", written_at, (0, 5, 15), (-3, 5, 15), WRITE, "out", "i = 0", says="index 0 is -3"),
    _with_indices("scatter_far", written_at, (0, 5, 15), (0, 5, HUGE), WRITE, "out", "i = 2"),
    _with_indices("scatter_parallel", _parallel(written_at), (0, 5, 15), (0, -HUGE, 15), WRITE, "out", "i = 1"),
    _with_indices("scratch_high", scratched, (0, 1, 3), (0, 1, 4), WRITE, "scratch", "i = 2", says="may be 0 to 3"),
    _with_indices("scratch_low", scratched, (0, 1, 3), (0, -1, 3), WRITE, "scratch", "i = 1"),
    _with_indices(
        "scratch_read", scratch_read, (0, 1, 3), (0, 1, 4), READ, "scratch", "i = 2",
        says="scratch[1, 4] of float32 scratch[2, 4]: index 1 is 4"
    ),
    _with_indices("let", let_bound, (0, 1, 7), (0, 1, 8), READ, "a", "i = 2", says="a[16]"),
    _with_indices("two_tables", through_two, (0, 1, 2), (0, 4, 2), READ, "c", "i = 1", more=[_indices(1, 2, 3, 77)]),
    _with_indices(
        "two_tables_deep", through_two, (0, 1, 2), (0, 1, 3), READ, "a", "i = 2", more=[_indices(1, 2, 3, 77)],
        says="index 0 is 77"
    ),
    _with_indices("condition", in_condition, (0, 1, 2), (0, 16, 2), READ, "a", "i = 1"),
    _with_indices("extent", as_extent, (16, 3, 0), (1, 17, 2), WRITE, "out", "i = 1, k = 16"),
    _with_indices("extent_table", extent_from, (0, 1), (0, 5), READ, "c", "i = 1", more=[_indices(1, 2, 3)]),
    _with_indices("half_guarded", half_guarded, (0, 20, 2), (0, 20, -2), READ, "a", "i = 2", says="index 0 is -2"),
    _with_indices(
        "plane_high", in_plane, (0, 1, 3), (0, 4, 3), READ, "a", "i = 1, j = 0", shape=(4, 4), out=(4, 4),
        says="a[4, 0] of float32 a[4, 4]: index 0 is 4"
    ),
    _with_indices("plane_low", in_plane, (0, 1, 3), (0, 1, -1), READ, "a", "i = 2, j = 0", shape=(4, 4), out=(4, 4)),
    _with_indices("vectors", in_vectors, (0, 4, 12), (0, 13, 12), READ, "a", "i = 1, v = 3"),
    _with_indices("copies", in_copies, (0, 1, 7), (0, 1, 8), READ, "a", "i = 2, u = 0"),
    _with_indices(
        "even_only", even_only, (0, 2, 6), (0, 3, 6), UNINITIALIZED, "scratch", "i = 1",
        says="reads scratch[3], which nothing has written yet"
    ),
    _with_indices(
        "written_where", written_where, (1, 1, 1), (1, 0, 1), UNINITIALIZED, "seen", "i = 1", says="seen[1, 0]"
    ),
    _with_indices("forgotten", forgotten, (1, 1, 1), (1, 2, 1), UNINITIALIZED, "kept", "i = 1"),
    _with_indices("one_more_column", one_more_column, (0, 1, 3), (0, 4, 3), READ, "plane", "y = 0, x = 1"),
]


def _always(
    name: str, emit: Emit, kind: str, buffer: str, where: str, out: tuple[int, ...] = (N,),
    shape: tuple[int, ...] = (N,)
) -> Planted:
    arrays = [numbers(int(np.prod(shape))).reshape(shape), np.zeros(out, np.float32)]
    return Planted(
        f"builder-{name}", called(lambda: built(name, emit, [(shape, "float32")], [(out, "float32")]), arrays, arrays),
        kind, buffer, where, name, always=True
    )


BUILDER.extend([
    _always("one_too_many", one_too_many, WRITE, "out", "i = 16"),
    _always("one_too_early", one_too_early, READ, "a", "i = 0"),
    _always("rows_and_columns", rows_and_columns, READ, "a", "i = 3, j = 0", out=(4, 3), shape=(3, 4)),
    _always("never_written", never_written, UNINITIALIZED, "total", "i = 0"),
])


# Arguments that share memory.
def doubled(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 8, name="i") as i:
        outs[0][i] = ins[0][i] * 2.0


def swapped(irb: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    with irb.for_range(0, 8, name="i") as i:
        outs[0][i] = ins[0][i]
        outs[1][i] = ins[0][7 - i]


def _shared(name: str, emit: Emit, outputs: int, at: Sequence[int], buffer: str) -> Planted:
    """Arrays of 8 elements that begin at these places of one piece of memory."""

    make = once(lambda: built(name, emit, [((8,), "float32")], [((8,), "float32")] * outputs))

    def run(wrong: bool) -> object:
        memory = tvm.nd.array(np.zeros(64, np.float32)).numpy()
        places = at if wrong else range(0, 8 * (outputs + 1), 8)
        return make()(*(memory[k : k + 8] for k in places))

    return Planted(f"builder-{name}", run, OVERLAP, buffer, "", name, says="memory")


OVERLAPS: Final = [
    _shared("same_memory", doubled, 1, (0, 0), "out"),
    _shared("begins_inside", doubled, 1, (0, 4), "out"),
    _shared("ends_inside", doubled, 1, (4, 0), "out"),
    _shared("two_results", swapped, 2, (0, 16, 20), "out_v0"),
    _shared("second_result", swapped, 2, (8, 16, 8), "out_v1"),
]


# Schedules: computations that read one element too far, or one before the first, in whatever loops.
def scheduled(
    name: str, compute: Callable[[Any], Any], change: Callable[[Any, Any, Any], object], extent: int = N
) -> Callable[[], Any]:
    def make() -> Any:
        a = te.placeholder((N,), name="a")
        made = compute(a)
        s = te.create_schedule(made.op)
        change(s, a, made)
        with tvm.transform.PassContext(config=CONFIG):
            return tvm.build(s, [a, made], "llvm", name=name)

    return make


def window(low: int, high: int, size: int = N) -> Callable[[Any], Any]:
    """`made[i] = a[i + low] + a[i + high]`."""
    return lambda a: te.compute((size,), lambda i: a[i + low] + a[i + high], name="made")


def staged(a: Any) -> Any:
    """Twice the values, then two of them that are 3 apart; the last reads past the end of the first stage."""
    twice = te.compute((N,), lambda i: a[i] * 2.0, name="twice")
    return te.compute((N - 2,), lambda i: twice[i] + twice[i + 3], name="made")


def summed(a: Any) -> Any:
    k = te.reduce_axis((0, 4), name="k")
    return te.compute((N - 2,), lambda i: te.sum(a[i + k], axis=k), name="made")


def squared(a: Any) -> Any:
    """4 rows of 4 of 16 elements, shifted by one."""
    return te.compute((4, 4), lambda y, x: a[y * 4 + x + 1], name="made")


def plain(s: Any, a: Any, made: Any) -> None:
    """The loops as they are."""


def split(s: Any, a: Any, made: Any) -> None:
    s[made].split(made.op.axis[0], factor=3)


def vectorized(s: Any, a: Any, made: Any) -> None:
    _, inner = s[made].split(made.op.axis[0], factor=4)
    s[made].vectorize(inner)


def unrolled(s: Any, a: Any, made: Any) -> None:
    _, inner = s[made].split(made.op.axis[0], factor=4)
    s[made].unroll(inner)


def in_parallel(s: Any, a: Any, made: Any) -> None:
    outer, _ = s[made].split(made.op.axis[0], factor=4)
    s[made].parallel(outer)


def inlined(s: Any, a: Any, made: Any) -> None:
    s[made.op.inputs[0]].compute_inline()


def attached(s: Any, a: Any, made: Any) -> None:
    outer, _ = s[made].split(made.op.axis[0], factor=7)
    s[made.op.inputs[0]].compute_at(s[made], outer)


def read_early(s: Any, a: Any, made: Any) -> None:
    s.cache_read(a, "local", [made])


def tiled(s: Any, a: Any, made: Any) -> None:
    s[made].tile(made.op.axis[0], made.op.axis[1], 2, 2)


def fused(s: Any, a: Any, made: Any) -> None:
    s[made].parallel(s[made].fuse(made.op.axis[0], made.op.axis[1]))


def _scheduled(
    name: str, compute: Callable[[Any], Any], change: Callable[[Any, Any, Any], None], out: tuple[int, ...],
    buffer: str, where: str, kind: str = READ,
) -> Planted:
    arrays = [numbers(), np.zeros(out, np.float32)]
    return Planted(
        f"schedule-{name}", called(scheduled(name, compute, change), arrays, arrays), kind, buffer, where, name,
        always=True
    )


SCHEDULES: Final = [
    _scheduled("plain_high", window(0, 1), plain, (N,), "a", "i = 15"),
    _scheduled("plain_low", window(-1, 0), plain, (N,), "a", "i = 0"),
    _scheduled("split_high", window(0, 1), split, (N,), "a", "i_0 = 5, i_1 = 0"),
    _scheduled("vectorized_high", window(0, 1), vectorized, (N,), "a", "i_0 = 3, i_1 = 3"),
    _scheduled("vectorized_low", window(-2, 0), vectorized, (N,), "a", "i_0 = 0, i_1 = 0"),
    _scheduled("unrolled_high", window(0, 2), unrolled, (N,), "a", "i_0 = 3, i_1 = 2"),
    _scheduled("parallel_low", window(-1, 0), in_parallel, (N,), "a", "i_0 = 0, i_1 = 0"),
    _scheduled("sum_high", summed, plain, (N - 2,), "a", "i = 13, k = 3"),
    _scheduled("sum_split_high", summed, split, (N - 2,), "a", "k = 3"),
    _scheduled("tiled_high", squared, tiled, (4, 4), "a", "y_0 = 1, x_0 = 1, y_1 = 1, x_1 = 1"),
    _scheduled("fused_high", squared, fused, (4, 4), "a", "= 15"),
    _scheduled("read_early_low", window(-1, 0), read_early, (N,), "a_local", "i = 0"),
    _scheduled("staged", staged, plain, (N - 2,), "twice", "= 13"),
    _scheduled("staged_attached", staged, attached, (N - 2,), "twice", "i_0 = 1, i_1 = 6", UNINITIALIZED),
    _scheduled("staged_inlined", staged, inlined, (N - 2,), "a", "i = 13"),
]


TEXT: Final = '''@T.prim_func
def shifted(a: T.Buffer((16,), "float32"), out: T.Buffer((16,), "float32")):
    for i in T.serial(16):
        with T.block("shift"):
            v = T.axis.spatial(16, i)
            out[v + 1] = a[v]'''


def _steps(name: str, change: Callable[[tir.Schedule], None], where: str) -> Planted:
    def make() -> Any:
        schedule = tir.Schedule(tir.parse(TEXT))
        change(schedule)
        with tvm.transform.PassContext(config=CONFIG):
            return tvm.build(schedule.mod, target="llvm")

    arrays = [numbers(), np.zeros(N, np.float32)]
    return Planted(f"schedule-{name}", called(make, arrays, arrays), WRITE, "out", where, "main", always=True)


def split_by_four(s: tir.Schedule) -> None:
    s.split(s.get_loops(s.get_block("shift"))[0], [None, 4])


def vectorized_by_four(s: tir.Schedule) -> None:
    _, inner = s.split(s.get_loops(s.get_block("shift"))[0], [None, 4])
    s.vectorize(inner)


SCHEDULES.extend([
    _steps("steps_none", lambda s: None, "i = 15"),
    _steps("steps_split", split_by_four, "= 3"),
    _steps("steps_vectorized", vectorized_by_four, "= 3"),
])


# Operators of graphs.
def relay_built(mod: Any) -> Any:
    with tvm.transform.PassContext(opt_level=3, config=CONFIG):
        return relay.build(mod, "llvm").executable


def _node(name: str, op: Any, *args: relay.Expr) -> relay.Call:
    """A call that came from the node `name` of a model."""
    return relay.Call(op, args, span=Origin(name, op.name))


def _gathers(call: Callable[[relay.Var, relay.Var], relay.Expr], shape: tuple[int, ...]) -> Callable[[], Any]:
    x, at = relay.var("x", shape=(4, 8)), relay.var("at", shape=shape, dtype="int64")
    return lambda: relay_built(tvm.IRModule.from_expr(relay.Function([x, at], call(x, at))))


def _gathered(
    name: str, node: str, call: Callable[[relay.Var, relay.Var], relay.Expr], right: Sequence[Any],
    wrong: Sequence[Any], where: str, buffer: str, says: str,
) -> Planted:
    data = numbers(32).reshape(4, 8)
    arrays = [[data, np.asarray(at, np.int64)] for at in (right, wrong)]
    return Planted(f"graph-{name}", called(_gathers(call, np.shape(right)), *arrays), READ, buffer, where, node, says)


TAKE: Final = relay.take(
    relay.var("x", shape=(4, 8)), relay.var("at", shape=(3,), dtype="int64"), axis=0, mode="fast"
).op
COLUMNS: Final = relay.take(
    relay.var("x", shape=(4, 8)), relay.var("at", shape=(3,), dtype="int64"), axis=1, mode="fast"
).op
BATCH: Final = relay.take(
    relay.var("x", shape=(4, 8)), relay.var("at", shape=(4, 2), dtype="int64"), axis=1, batch_dims=1, mode="fast"
).op
ROWS: Final = [[0, 1], [2, 3], [4, 5], [6, 7]]


def shifted_operator(by: int, cut: int) -> Callable[[], Any]:
    """A network with an operator that was registered with a wrong computation, `x[i + by]` of `16 - cut` elements,
    after another and before a third."""

    def make() -> Any:
        relay.op.register("tests.shifted", "x moved")
        op: Any = relay.op.get("tests.shifted")
        try:
            op.set_num_inputs(1)
            op.add_type_rel("Shifted", lambda arg_types, attrs: TensorType((N - cut,), "float32"))
            op.set_attr("TOpPattern", relay.op.OpPattern.INJECTIVE)
            relay.op.register_compute(
                "tests.shifted",
                lambda attrs, inputs, out: [te.compute((N - cut,), lambda i: inputs[0][i + by], name="shifted")]
            )
            x = relay.var("x", shape=(N,))
            call = _node("layer3/shift", relay.op.get("tests.shifted")(), relay.exp(x))
            y = relay.nn.relu(call)
            return relay_built(tvm.IRModule.from_expr(relay.Function([x], y)))
        finally:
            OPS.pop("tests.shifted")
            reset_op_attr("tests.shifted", "FTVMCompute")
            reset_op_attr("tests.shifted", "TOpPattern")

    return make


def _place(element: int) -> str:
    """The lane of an element in vectors of this machine, as a report shows it."""
    return f"= {element % machine_of(Target('llvm')).lanes()}"


def _shifted(name: str, by: int, cut: int, where: str, says: str) -> Planted:
    arrays = [numbers()]
    return Planted(
        f"graph-{name}", called(shifted_operator(by, cut), arrays, arrays), READ, "p0", where,
        "tests.shifted 'layer3/shift'", says, always=True
    )


GRAPHS: Final = [
    _gathered(
        "take_high", "take 'embed_words'", lambda x, at: _node("embed_words", TAKE, x, at), (0, 1, 3), (0, 4, 3), "= 1",
        "p0", "index 0 is 4"
    ),
    _gathered(
        "take_low", "take 'embed_words'", lambda x, at: relay.nn.relu(_node("embed_words", TAKE, x, at)), (0, 1, 3),
        (0, 1, -1), "= 2", "p0", "index 0 is -1"
    ),
    _gathered(
        "take_far", "take 'embed'", lambda x, at: _node("embed", TAKE, relay.tanh(x), at), (0, 1, 3), (1 << 40, 1, 2),
        "= 0", "p0", str(1 << 40)
    ),
    _gathered(
        "take_columns", "take 'crop'", lambda x, at: _node("crop", COLUMNS, x, at), (0, 1, 7), (0, 1, 8),
        "i = 0, j_0 = 1, j_2 = 0", "p0", "index 1 is 8"
    ),
    _gathered(
        "take_rows_of", "take 'batch'", lambda x, at: _node("batch", BATCH, x, at), ROWS,
        [[0, 1], [2, 3], [4, 8], [6, 7]], "= 2", "p0", "index 1 is 8"
    ),
    _shifted("shifted_high", 1, 0, _place(15), "index 0 is 16"),
    _shifted("shifted_low", -1, 1, "= 0", "index 0 is -1"),
    _shifted("shifted_far", 7, 0, _place(9), "index 0 is 16"),
    _shifted("shifted_cut", 4, 3, "i_0 = 1, i_2 = 4", "p0[16]"),
]


# Accelerators as plug-ins: loop programs that a target's hook makes, and modules that it builds itself.
PLUGGED: Final = '''#[version = "0.0.5"]
def @main(%x: Tensor[(4, 6), float32], %y: Tensor[(4, 6), float32]) {
  tanh(add(exp(%x), %y))
}'''
Element = Callable[[Any, Any, Sequence[Any]], Any]


def plugged(element: Element, finish: bool) -> Callable[[], Any]:
    """A network whose sums a target "wide" computes, each element as `element(a, b, i)`; with `finish` in a module that
    it builds."""

    def loops(mod: tvm.IRModule) -> tvm.IRModule:
        made = {}
        for name, f in mod.items():
            a, b = (
                te.placeholder(p.tensor_type.shape, p.tensor_type.dtype, n) for p, n in zip(f.params, "ab", strict=True)
            )
            made[name] = te.create_prim_func(
                [a, b, te.compute(a.shape, lambda *i, a=a, b=b: element(a, b, i), name="sums")]
            )
        return tvm.IRModule(made)

    def make() -> Any:
        before = dict(FUNCTIONS)
        mod = relay.transform.InferType()(tvm.parser.parse(PLUGGED))
        tvm.ir.register_op_attr("add", "target.wide", lambda expr: True)
        try:
            register_target_kind("wide", {"RelayToTIR": loops, **({"TIRToRuntime": Sums} if finish else {})})
            with tvm.transform.PassContext(opt_level=3, config=CONFIG):
                steps = relay.transform
                mod = steps.PartitionGraph()(steps.MergeCompilerRegions()(steps.AnnotateTarget("wide")(mod)))
                return relay.build(mod, "llvm").executable
        finally:
            tvm.ir.Op.get("add").reset_attr("target.wide")
            for name in [n for n in FUNCTIONS if n not in before]:
                remove_global_func(name)

    return make


class Sums(ModuleNode):
    """What a target makes of loop programs: here, code of the host."""

    type_key = "tests.sums"

    def __init__(self, mod: tvm.IRModule, target: object) -> None:
        self.built = tvm.build(mod, target="llvm")

    def get_function(self, name: str) -> Any:
        return self.built[name]


def _plugged(name: str, element: Element, buffer: str, where: str, finish: bool = False) -> Planted:
    arrays = [numbers(24).reshape(4, 6)] * 2
    return Planted(
        f"plugin-{name}", called(plugged(element, finish), arrays, arrays), READ, buffer, where,
        "computes add '3:8' (from_string:3)", always=True
    )


PLUGINS: Final = [
    _plugged("high", lambda a, b, i: a(*i) + b(i[0], i[1] + 1), "b", "= 5"),
    _plugged("low", lambda a, b, i: a(i[0] - 1, i[1]) + b(*i), "a", "= 0"),
    _plugged("rows", lambda a, b, i: a(*i) + b(i[0] + 3, i[1]), "b", "= 1"),
    _plugged("module_high", lambda a, b, i: a(*i) + b(i[0], i[1] + 1), "b", "= 5", True),
    _plugged("module_low", lambda a, b, i: a(i[0], i[1] - 2) + b(*i), "a", "= 0", True),
]
PLANTED: Final = [*BUILDER, *OVERLAPS, *SCHEDULES, *GRAPHS, *PLUGINS]
