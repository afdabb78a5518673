"""Bounds of te schedules and scheduled statements, under TVM's names: `te.schedule.InferBound`, `ScheduleOps`, and
`AutoInlineInjective`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.scalar.expr import PrimExpr
from tilewright.te import schedule
from tilewright.tir.stmt import Allocate, Block, For, ProducerRealize, walk_stmt


def chain(n: object = 32) -> tuple[te.Tensor, te.Tensor, te.Tensor, te.Schedule]:
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((n,), lambda i: b[i] + 1.0, name="C")
    return a, b, c, te.create_schedule(c.op)


def test_bounds_of_an_attached_stage_depend_on_the_loop_around_it() -> None:
    _, b, c, s = chain()
    xo, xi = s[c].split(c.op.axis[0], factor=8)
    s[b].compute_at(s[c], xo)
    bounds = schedule.InferBound(s)
    assert isinstance(bounds, tvm.container.Map)
    assert str(bounds[b.op.axis[0]]) == "Range((xo * 8), ((xo * 8) + 8))".replace("xo", xo.var.name)
    assert (bounds[xo].extent.value, bounds[xi].extent.value, bounds[c.op.axis[0]].extent.value) == (4, 8, 32)
    assert bounds[xo].min.value == 0


def test_bounds_of_symbolic_sizes() -> None:
    n = te.var("n")
    a = te.placeholder((8 * n,), name="A")
    b = te.compute((8 * n,), lambda i: a[i], name="B")
    s = te.create_schedule(b.op)
    xo, xi = s[b].split(b.op.axis[0], 8)
    bounds = schedule.InferBound(s)
    assert bounds[xo].extent is n
    assert bounds[xi].extent.value == 8


@pytest.mark.parametrize(("scope", "extent"), [("", 2), ("local", 2), ("shared", 32), ("warp", 32)])
def test_memory_that_threads_share_is_filled_for_all_of_them(scope: str, extent: int) -> None:
    _, b, c, s = chain(128)
    if scope:
        s[b].set_scope(scope)
    _, xi = s[c].split(c.op.axis[0], 32)
    tx, _ = s[c].split(xi, nparts=16)
    s[c].bind(tx, te.thread_axis("threadIdx.x"))
    s[b].compute_at(s[c], tx)
    assert schedule.InferBound(s)[b.op.axis[0]].extent.value == extent


def test_bounds_of_a_scan_begin_after_its_start() -> None:
    m, n = te.var("m"), te.var("n")
    x = te.placeholder((m, n), name="X")
    state, init = te.placeholder((m, n)), te.compute((1, n), lambda _, i: x[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + x[t, i])
    total = te.scan(init, update, state)
    s = te.create_schedule(total.op)
    bounds = schedule.InferBound(s)
    assert bounds[total.op.scan_axis].min.value == 1
    assert (s[update].attach_type, s[init].attach_type) == (5, 1)
    assert isinstance(schedule.ScheduleOps(s, bounds), ProducerRealize)


def test_groups_nest() -> None:
    x = te.compute((6, 8), lambda i, j: i + j, name="x")
    x1 = te.compute((6, 8), lambda i, j: x[i, j] + 1, name="x1")
    x2 = te.compute((6, 8), lambda i, j: x1[i, j] + 2, name="x2")
    s = te.create_schedule(x2.op)
    inner = s.create_group(outputs=x, inputs=x, include_inputs=True)
    outer = s.create_group(outputs=x1, inputs=x, include_inputs=True)
    assert (s[x].group, s[x1].group, inner.group) == (inner, outer, outer)
    assert s.groups == (inner, outer) and (inner.num_child_stages, outer.num_child_stages) == (1, 2)
    assert outer.attach_stage is None
    outer.compute_at(s[x2], x2.op.axis[0])
    assert outer.attach_stage is s[x2] and x.op.num_outputs == 1
    assert [r.extent.value for r in map(schedule.InferBound(s).__getitem__, x.op.axis)] == [1, 8]
    inner.compute_at(s[x1], x1.op.axis[1])
    bounds = schedule.InferBound(s)
    assert [bounds[a].extent.value for a in (*x.op.axis, *x1.op.axis)] == [1, 1, 1, 8]
    with pytest.raises(ScheduleError, match="'x' is already in a group, of which only a part is between the given"):
        s.create_group(outputs=x2, inputs=x)


def test_inlined_stages_have_no_bounds() -> None:
    _, b, _, s = chain()
    s[b].compute_inline()
    assert b.op.axis[0] not in schedule.InferBound(s)


def test_a_scheduled_statement_becomes_a_function_that_computes_the_same() -> None:
    a, b, c, s = chain()
    xo, xi = s[c].split(c.op.axis[0], factor=8)
    s[b].compute_at(s[c], xo)
    s[c].vectorize(xi)
    stmt = schedule.ScheduleOps(s, schedule.InferBound(s))
    assert isinstance(stmt, ProducerRealize)
    assert stmt.producer is c
    assert isinstance(stmt.body, For)
    assert stmt.body.loop_var is xo.var
    realized = [x for x in walk_stmt(stmt) if isinstance(x, ProducerRealize)]
    assert [x.producer for x in realized] == [c, b]
    assert str(realized[1].bounds[0]) == "Range(0, 8)"
    assert not any(isinstance(x, Block) for x in walk_stmt(stmt))
    func = schedule.SchedulePostProcToPrimFunc([a, c], stmt, None)
    assert [p.name for p in func.params] == ["A", "C"]
    assert [x.buffer.name for x in walk_stmt(func.body) if isinstance(x, Allocate)] == ["B"]
    x, got = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    tvm.build(func, target="llvm")(x, got)
    np.testing.assert_array_equal(got, x * 2 + 1)


def test_a_function_takes_given_buffers_and_scalars() -> None:
    n = te.var("n")
    a, _, c, s = chain(n)
    mine = tvm.tir.decl_buffer((n,), name="mine")
    stmt = schedule.ScheduleOps(s, schedule.InferBound(s))
    func = schedule.SchedulePostProcToPrimFunc([n, a, c], stmt, {a: mine})
    assert func.params[:2] == (n, mine)
    x, got = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    tvm.build(func, target="llvm")(5, x, got)
    np.testing.assert_array_equal(got, x * 2 + 1)


def test_schedule_to_module_gives_loops_without_blocks() -> None:
    a, _, c, s = chain()
    mod = tvm.driver.build_module.schedule_to_module(s, [a, c])
    assert isinstance(mod["main"], tvm.tir.PrimFunc)
    assert not any(isinstance(x, Block) for x in walk_stmt(mod["main"].body))


def test_buffers_of_the_arguments_of_a_function() -> None:
    a, _, c, s = chain()
    n, mine = te.var("n"), tvm.tir.decl_buffer(a.shape, a.dtype, "mine")
    binds, args = tvm.driver.build_module.get_binds([n, a, c], binds={a: mine})
    assert args == [n, mine, binds[c]] and binds[a] is mine and binds[c].name == c.op.name
    assert tvm.lower(s, [a, c], binds=binds)["main"].params == tuple(args[1:])
    with pytest.raises(ScheduleError, match=r"must be a tensor, a buffer or a te\.var; 3 is"):
        tvm.driver.build_module.get_binds([3])


def test_a_loop_of_one_trip_can_be_made_and_split() -> None:
    x, k = te.placeholder((10,), "int32", name="X"), te.reduce_axis((0, 10))
    y = te.compute((), lambda: te.sum(x[k], k), name="Y")
    s = te.create_schedule(y.op)
    outer, inner = s[y].split(s[y].fuse(), nparts=20)
    assert [a.var.name for a in s[y].leaf_iter_vars] == [outer.var.name, inner.var.name, k.var.name]
    got = np.zeros((), np.int32)
    tvm.build(s, [y, x], "llvm")(got, np.ones(10, np.int32))
    assert got == 10


def copied(how: str) -> tuple[te.Schedule, te.Tensor]:
    a, b = te.placeholder((4, 1), name="A"), te.placeholder((4, 8), name="B")
    body: dict[str, Callable[..., PrimExpr]] = {
        "elementwise": lambda i, j: b[i, j] * 2.0, "broadcast": lambda i, j: a[i, 0] + b[i, j],
        "injective": lambda i, j: b[3 - i, j]}
    c = te.compute((4, 8), body[how], name="C")
    d = te.compute((4, 8), lambda i, j: c[i, j] + 1.0, name="D")
    return te.create_schedule(d.op), c


@pytest.mark.parametrize(("how", "inlined"), [
    ("elementwise", (True, True, True)), ("broadcast", (False, True, True)), ("injective", (False, False, True))])
def test_simple_stages_are_inlined_together(how: str, inlined: tuple[bool, ...]) -> None:
    functions = (schedule.AutoInlineElemWise, schedule.AutoInlineBroadcast, schedule.AutoInlineInjective)
    for function, expected in zip(functions, inlined, strict=True):
        s, c = copied(how)
        assert s[c].attach_type == 1
        function(s)
        assert s[c].attach_type == (2 if expected else 1)


def test_stages_with_steps_and_reductions_are_not_inlined() -> None:
    s, c = copied("elementwise")
    s[c].split(c.op.axis[0], 2)
    schedule.AutoInlineInjective(s)
    assert s[c].attach_type == 1
    x, k = te.placeholder((4, 8), name="X"), te.reduce_axis((0, 8))
    y = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="Y")
    z = te.compute((4,), lambda i: y[i] + 1.0, name="Z")
    s = te.create_schedule(z.op)
    schedule.AutoInlineInjective(s)
    assert s[y].attach_type == 1


def test_refusals() -> None:
    _, b, c, s = chain()
    bounds = schedule.InferBound(s)
    outer, inner = s[c].split(c.op.axis[0], factor=8)
    with pytest.raises(ScheduleError, match=r"axis 'i.outer' of 'C' has no bounds; call InferBound after"):
        schedule.ScheduleOps(s, bounds)
    stmt = schedule.ScheduleOps(s, schedule.InferBound(s))
    with pytest.raises(ScheduleError, match=r"an argument of a function must be a tensor, a buffer or a te.var; 3 is"):
        schedule.SchedulePostProcToPrimFunc([3], stmt, None)
    with pytest.raises(AttributeError, match="has no attribute 'InferBounds'"):
        schedule.InferBounds  # noqa: B018
    s[b].compute_at(s[c], outer)
    s[c].fuse(outer, inner)
    with pytest.raises(ScheduleError, match="which was split or fused"):
        schedule.InferBound(s)
