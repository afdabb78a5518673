"""The table of distinct kernels, and code that is the same for any number of worker threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.backends.cpu.llvm import compile as llvm_compile
from tilewright.backends.targets.target import Target
from tilewright.base.errors import InternalError
from tilewright.compiler import kernel_code
from tilewright.compiler.cache import Cache
from tilewright.compiler.kernel_table import KernelTable
from tilewright.ir.module import IRModule
from tilewright.relay.transform.pipeline import optimize
from tilewright.relay.transform.plan_memory import HOST, plan_memory
from tilewright.runtime.artifact import Artifact


def network() -> relay.Function:
    """Return three dense layers, two of the same shape, with a softmax behind them."""
    random = np.random.default_rng(0)
    x = relay.var("x", shape=(2, 16))
    y: relay.Expr = x
    for columns in (16, 16, 8):
        y = relay.nn.relu(relay.nn.dense(y, relay.const(random.standard_normal((columns, 16)).astype("float32"))))
    return relay.Function([x], relay.nn.softmax(y))


def artifact() -> Artifact:
    return tilewright.compile(network(), cache=Cache(None)).artifact


def test_table_has_equal_functions_once_and_numbers_them_in_order() -> None:
    plan = plan_memory(optimize(IRModule.from_expr(network()), Target("llvm"))["main"])
    table = KernelTable([plan], {}, by_origin=False)
    symbols = [table.kernel_of(s).symbol for s in plan.steps]  # type: ignore[union-attr]
    assert symbols == ["kernel_0_dense_relu", "kernel_0_dense_relu", "kernel_1_dense_relu", "kernel_2_softmax"]
    assert [spec.symbol for spec in table] == list(dict.fromkeys(symbols))
    assert all(spec.constants == (False, True) for spec in list(table)[:2])


def test_table_of_several_plans_shares_kernels() -> None:
    plan = plan_memory(optimize(IRModule.from_expr(network()), Target("llvm"))["main"])
    other = plan_memory(optimize(IRModule.from_expr(network()), Target("llvm"))["main"])
    table = KernelTable([plan, other], {}, by_origin=False)
    assert len(list(table)) == 3
    assert [table.kernel_of(s) for s in plan.steps] == [table.kernel_of(s) for s in other.steps]


@pytest.mark.parametrize("workers", [1, 4])
def test_artifacts_are_the_same_bytes_for_any_number_of_workers(workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_code, "usable_cores", lambda: 8)
    monkeypatch.setattr(kernel_code, "WORKERS", 0)
    alone = artifact()
    monkeypatch.setattr(kernel_code, "WORKERS", workers)
    shared = artifact()
    assert shared.objects == alone.objects
    assert shared.constants.tobytes() == alone.constants.tobytes()
    assert shared.manifest.to_json() == alone.manifest.to_json()


def test_errors_of_a_worker_reach_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str, target: Target, *, level: int) -> bytes:
        raise InternalError("invalid LLVM text was generated")

    monkeypatch.setattr(kernel_code, "usable_cores", lambda: 8)
    monkeypatch.setattr(llvm_compile, "compile_text", refuse)
    with pytest.raises(InternalError, match="invalid LLVM text"):
        artifact()


def test_texts_are_compiled_where_no_thread_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(kernel_code, "usable_cores", lambda: 8)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    assert artifact().objects


def test_plan_has_an_arena_for_each_device_and_steps_name_theirs() -> None:
    plan = plan_memory(optimize(IRModule.from_expr(network()), Target("llvm"))["main"])
    assert plan.arenas.keys() == {HOST} == {s.device for s in plan.steps}
    assert {loc.device for s in plan.steps for loc in (*s.inputs, *s.outputs)} == {HOST}
    assert plan.arenas[HOST].nbytes == plan.workspace_bytes > 0
