"""What provokes each code of `catalogue/loops.md`, in an empty folder."""

from __future__ import annotations

import tilewright as tvm
from tilewright import te, tir
from tilewright.scalar.expr import as_expr
from tilewright.tir.stmt import PrimFunc, Store

from .targets import adding


def tw0601() -> None:
    s, args = adding()
    s[args[1]].split(s[args[1]].op.axis[0])


def tw0602() -> None:
    n = te.var("n")
    if n > 4:
        raise AssertionError


def tw0603() -> None:
    a = te.placeholder((8,), name="a")
    te.extern((8,), [a], lambda ins, outs: None, name="outside")


def tw0604() -> None:
    state = te.placeholder((4, 8), name="state")
    te.scan([state], [], [state], name="steps")


def tw0605() -> None:
    x = te.placeholder((4,), dtype="int32", name="x")
    te.gradient(te.compute((4,), lambda i: x[i] * 2, name="y"), [x])


def tw0606() -> None:
    te.hybrid.script(3)  # type: ignore[arg-type]


def tw0607() -> None:
    te.decl_tensor_intrin(te.placeholder((8,), name="a").op, lambda ins, outs: None, name="copy8")


def tw0608() -> None:
    builder = tir.ir_builder.create()
    with builder.else_scope():
        raise AssertionError


def tw0609() -> None:
    te.placeholder((4, 4), name="a")[1, 2, 3]


def tw0610() -> None:
    tvm.build(adding()[0], target="llvm")


def tw0611() -> None:
    a, i = tir.decl_buffer((8,), name="a"), te.var("i")
    tir.analysis.verify_well_formed(PrimFunc("f", (a,), Store(a, as_expr(1.0), (i,))))


def tw0612() -> None:
    n = te.reduce_axis((0, 8), name="n")
    a = te.placeholder((8,), name="a")
    total = te.compute((1,), lambda i: te.sum(a[n], axis=n), name="total")
    schedule = tir.Schedule(te.create_prim_func([a, total]))
    schedule.parallel(schedule.get_loops(schedule.get_block("total"))[1])


def tw0613() -> None:
    tir.Schedule(te.create_prim_func(adding()[1])).get_block("c")


def tw0614() -> None:
    te.create_prim_func([1, 2])


def tw0615() -> None:
    a, k = te.placeholder((8, 8), name="a"), te.reduce_axis((0, 8), name="k")
    te.compute((8,), lambda i: te.sum(a[i, k], axis=k) + 1, name="more")
