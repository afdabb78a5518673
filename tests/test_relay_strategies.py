"""Strategies of programs for operators: the doors of `relay.op.strategy`, `register_schedule` and
`autotvm.register_topi_compute`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, topi
from tilewright.base.errors import CompileError, OptionError, ScheduleError
from tilewright.compiler.cache import Cache
from tilewright.ir.op_attributes import registrations
from tilewright.relay.testing import TempOpAttr
from tilewright.search import autotvm
from tilewright.search.autotvm.task.entities import SplitEntity
from tilewright.tir.stmt import Block, walk_stmt

Array = Any
RNG = np.random.default_rng(7)
X, W, B = (RNG.standard_normal(s).astype(np.float32) for s in ((6, 20), (10, 20), (10,)))


@pytest.fixture(autouse=True)
def _registrations_end() -> Iterator[None]:
    """What a test registers is taken back."""
    generic = relay.op.strategy.dense_strategy
    with registrations():
        yield
    generic.functions.clear()


def dense_of_mine(
    data: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None, out_dtype: str | None = None
) -> te.Tensor:
    """A product whose result is three times that of `nn.dense`, so that it can be told apart."""
    k = te.reduce_axis((0, data.shape[1]), "k")
    return te.compute(
        (data.shape[0], weight.shape[0]), lambda i, j: te.sum(data[i, k] * weight[j, k] * 3.0, axis=k), name="mine"
    )


def schedule_of_mine(outs: Sequence[te.Tensor]) -> te.Schedule:
    """The product inside blocks of rows of the result, its sum split by 4."""
    s = te.create_schedule([t.op for t in outs])
    product = next(stage.op for stage in s.stages if stage.op.name == "mine")
    for stage in s.stages:
        if isinstance(stage.op, te.ComputeOp) and stage.op is not product and not stage.is_output:
            stage.compute_inline()
    if product is not outs[0].op:
        outer, _ = s[outs[0]].split(outs[0].op.axis[0], factor=2)
        s[product].compute_at(s[outs[0]], outer)
    s[product].split(product.reduce_axis[0], factor=4)
    return s


def strategy_of_mine(attrs: Any, inputs: Sequence[te.Tensor], out_type: Any, target: Any) -> relay.op.OpStrategy:
    strategy = relay.op.OpStrategy()
    wrap = relay.op.strategy
    strategy.add_implementation(
        wrap.wrap_compute_dense(dense_of_mine), wrap.wrap_topi_schedule(schedule_of_mine), "dense.mine", 20
    )
    strategy.add_implementation(
        wrap.wrap_compute_dense(topi.nn.dense), wrap.wrap_topi_schedule(topi.x86.schedule_dense), "dense.other", 5
    )
    return strategy


def network() -> tvm.IRModule:
    x = relay.var("x", shape=X.shape)
    return tvm.IRModule.from_expr(
        relay.Function([x], relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, relay.const(W)), relay.const(B))))
    )


def loops_of(model: Any) -> str:
    return "\n".join(map(repr, (k.loops or k.func for k in model.report.kernels.values())))


def check(mod: tvm.IRModule, target: str, wanted: Array, *, mine: bool) -> None:
    model = tvm.compile(mod, target=target, cache=Cache(None))
    np.testing.assert_allclose(model(X), wanted, rtol=1e-5, atol=1e-5)
    assert ("mine" in loops_of(model)) is mine


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_strategy_that_is_registered_for_processors_makes_the_code(target: str) -> None:
    plain = np.maximum(X @ W.T + B, 0)
    check(network(), target, plain, mine=False)
    relay.op.strategy.dense_strategy.register("cpu")(strategy_of_mine)
    check(network(), target, np.maximum(3 * X @ W.T + B, 0), mine=True)


def test_the_graph_executor_runs_the_code_of_a_strategy() -> None:
    with TempOpAttr("nn.dense", "FTVMStrategy", strategy_of_mine):
        lib = relay.build(network(), "llvm")
    module = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.set_input("x", X)
    module.run()
    np.testing.assert_allclose(module.get_output(0).numpy(), np.maximum(3 * X @ W.T + B, 0), rtol=1e-5, atol=1e-5)


def test_a_strategy_for_another_processor_is_not_taken() -> None:
    relay.op.strategy.dense_strategy.register("gpu")(strategy_of_mine)
    check(network(), "llvm", np.maximum(X @ W.T + B, 0), mine=False)


def test_a_program_of_a_strategy_is_not_taken_from_the_cache(tmp_path: Any) -> None:
    cache = Cache(tmp_path)
    plain = np.maximum(X @ W.T + B, 0)
    np.testing.assert_allclose(tvm.compile(network(), cache=cache)(X), plain, rtol=1e-5, atol=1e-5)
    with TempOpAttr("nn.dense", "FTVMStrategy", strategy_of_mine):
        np.testing.assert_allclose(
            tvm.compile(network(), cache=cache)(X), np.maximum(3 * X @ W.T + B, 0), rtol=1e-5, atol=1e-5
        )
    np.testing.assert_allclose(tvm.compile(network(), cache=cache)(X), plain, rtol=1e-5, atol=1e-5)


def test_the_strategy_of_a_named_generic_function() -> None:
    @tvm.target.override_native_generic_func("strategy_of_tests")
    def generic(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
        return relay.op.strategy.dense_strategy_cpu(attrs, inputs, out_type, target)

    generic.register("arm_cpu")(strategy_of_mine)
    relay.op.register_strategy("nn.dense", tvm.target.get_native_generic_func("strategy_of_tests"))
    check(network(), "llvm", np.maximum(X @ W.T + B, 0), mine=False)
    check(network(), "llvm -device=arm_cpu", np.maximum(3 * X @ W.T + B, 0), mine=True)


def test_a_registered_computation_and_a_registered_schedule() -> None:
    relay.op.register_compute("nn.dense", lambda attrs, inputs, out_type: [dense_of_mine(*inputs)])
    check(network(), "llvm", np.maximum(3 * X @ W.T + B, 0), mine=True)
    seen = []

    def schedule(attrs: Any, outs: Sequence[te.Tensor], target: Any) -> te.Schedule:
        seen.append((attrs.name, str(target.kind)))
        return schedule_of_mine(outs)

    relay.op.register_schedule("nn.dense", schedule)
    check(network(), "llvm", np.maximum(3 * X @ W.T + B, 0), mine=True)
    assert seen == [("nn.dense", "llvm")]


def test_the_schedule_of_the_anchor_and_the_computation_of_every_operator() -> None:
    def twice(attrs: Any, inputs: Sequence[te.Tensor], out_type: Any) -> list[te.Tensor]:
        return [
            te.compute(
                inputs[0].shape, lambda *i: te.max(inputs[0](*i) * 2.0, tvm.tir.const(0, "float32")), name="twice"
            )
        ]

    relay.op.register_compute("nn.relu", twice)
    model = tvm.compile(network(), cache=Cache(None))
    np.testing.assert_allclose(model(X), np.maximum(2 * (X @ W.T + B), 0), rtol=1e-5, atol=1e-5)
    assert len(model.report.kernels) == 1


def conv_strategy(attrs: Any, inputs: Sequence[te.Tensor], out_type: Any, target: Any) -> relay.op.OpStrategy:
    strategy = relay.op.OpStrategy()
    wrap = relay.op.strategy
    compute, schedule = wrap.wrap_compute_conv2d(topi.nn.conv2d_nchw), wrap.wrap_topi_schedule(
        topi.x86.schedule_conv2d_nchw
    )
    strategy.add_implementation(compute, schedule, name="low", plevel=10)
    strategy.add_implementation(compute, schedule, name="middle", plevel=15)
    with te.SpecializedCondition(inputs[0].shape[1] >= 16):
        strategy.add_implementation(compute, schedule, name="wide", plevel=20)
    return strategy


@pytest.mark.parametrize(("channels", "count", "best"), [(8, 2, "middle"), (16, 3, "wide")])
def test_conditions_and_levels_choose_the_implementation(channels: int, count: int, best: str) -> None:
    data, weight = te.placeholder((1, channels, 7, 7)), te.placeholder((32, channels, 3, 3))
    x, w = relay.var("x", shape=data.extents), relay.var("w", shape=weight.extents)
    out = relay.testing.run_infer_type(relay.nn.conv2d(x, w, padding=(1, 1)))
    asked = relay.op.get("nn.conv2d"), out.attrs, [data, weight], out.checked_type, tvm.target.Target("llvm")
    compiler = relay.backend.te_compiler
    with TempOpAttr("nn.conv2d", "FTVMStrategy", conv_strategy):
        assert len(compiler.get_valid_implementations(*asked)) == count
        implementation, outs = compiler.select_implementation(*asked)
        assert (implementation.name, outs[0].extents) == (best, (1, 32, 7, 7))


def test_a_strategy_sees_the_layouts_of_the_program() -> None:
    seen = []

    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> relay.op.OpStrategy:
        seen.append((attrs.data_layout, inputs[0].extents, tuple(out_type.shape)))
        return conv_strategy(attrs, inputs, out_type, target)

    x, w = RNG.standard_normal((1, 16, 7, 7)).astype(np.float32), RNG.standard_normal((8, 16, 3, 3)).astype(np.float32)
    data = relay.var("x", shape=x.shape)
    mod = tvm.IRModule.from_expr(
        relay.Function([data], relay.nn.max_pool2d(relay.nn.conv2d(data, relay.const(w), padding=(1, 1)), (2, 2)))
    )
    plain = tvm.compile(mod, cache=Cache(None))(x)
    with TempOpAttr("nn.conv2d", "FTVMStrategy", strategy):
        np.testing.assert_allclose(tvm.compile(mod, cache=Cache(None))(x), plain, rtol=1e-4, atol=1e-4)
    assert set(seen) == {("NCHW", x.shape, (1, 8, 7, 7))}


@pytest.mark.parametrize(
    ("target", "name"), [("llvm", "concatenate.cpu"), ("llvm -device=arm_cpu", "concatenate.arm_cpu")]
)
def test_the_implementation_of_the_compiler_has_a_name(target: str, name: str) -> None:
    parts = [relay.var(n, shape=(1, 3)) for n in "ab"]
    out = relay.testing.run_infer_type(relay.concatenate(parts, axis=1))
    found, outs = relay.backend.te_compiler.select_implementation(
        relay.op.get("concatenate"), out.attrs, [te.placeholder((1, 3)), te.placeholder((1, 3))], out.checked_type,
        tvm.target.Target(target), use_autotvm=False,
    )
    assert found.name == name
    assert outs[0].extents == (1, 6)


def test_lowered_functions_are_kept() -> None:
    compiler = relay.backend.te_compiler.get()
    compiler.clear()

    def function(*shape: int) -> relay.Function:
        x = relay.var("x", shape=shape)
        return relay.Function([x], relay.add(relay.add(x, x), x))

    first = compiler.lower(function(10), "llvm")
    assert compiler.lower(function(10), "llvm") is first and compiler.lower(function(), "llvm") is not first
    x, y = np.ones(10, np.float32), np.zeros(10, np.float32)
    compiler.jit(function(10), "llvm")(x, y)
    assert y.tolist() == [3.0] * 10
    compiler.clear()
    assert compiler.lower(function(10), "llvm") is not first


def split_of(config: autotvm.ConfigEntity, name: str) -> tuple[int, ...]:
    """The sizes of the loops that a configuration splits one into."""
    entity = config[name]
    assert isinstance(entity, SplitEntity)
    return tuple(entity.size)


@contextmanager
def task_functions() -> Iterator[tuple[Any, Any]]:
    """Two functions of a task `tests/dense`, whose schedule has one split to choose."""
    from tilewright.search.autotvm.task.task import TEMPLATES

    @autotvm.register_topi_compute("tests/dense")
    def compute(cfg: Any, data: te.Tensor, weight: te.Tensor, bias: Any, out_dtype: str) -> te.Tensor:
        return dense_of_mine(data, weight, bias, out_dtype)

    @autotvm.register_topi_schedule("tests/dense")
    def schedule(cfg: Any, outs: Sequence[te.Tensor]) -> te.Schedule:
        s = te.create_schedule([t.op for t in outs])
        product = next(stage.op for stage in s.stages if stage.op.name == "mine")
        cfg.define_split("tile_k", s[product].op.reduce_axis[0], num_outputs=2)
        cfg["tile_k"].apply(s, product, product.reduce_axis[0])
        return s

    yield compute, schedule
    TEMPLATES.pop("tests/dense")


def test_functions_of_a_tuning_task_follow_its_records() -> None:
    with task_functions() as (compute, schedule):
        target = tvm.target.Target("llvm")
        args = [te.placeholder(X.shape), te.placeholder(W.shape), None, "float32"]
        task = autotvm.task.create("tests/dense", args, target)
        assert len(task.config_space) == 6
        chosen = next(c for c in map(task.config_space.get, range(6)) if split_of(c, "tile_k")[-1] == 5)
        record = autotvm.MeasureInput(target, task, chosen), autotvm.MeasureResult((1e-3,), 0, 0.1, 0)

        def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> relay.op.OpStrategy:
            made, wrap = relay.op.OpStrategy(), relay.op.strategy
            made.add_implementation(
                wrap.wrap_compute_dense(topi.nn.dense), wrap.wrap_topi_schedule(topi.x86.schedule_dense), "of topi", 20
            )
            made.add_implementation(
                wrap.wrap_compute_dense(compute), wrap.wrap_topi_schedule(schedule), "of the task", 10
            )
            return made

        def of_the_task(attrs: Any, inputs: Any, out_type: Any, target: Any) -> relay.op.OpStrategy:
            made, wrap = relay.op.OpStrategy(), relay.op.strategy
            made.add_implementation(wrap.wrap_compute_dense(compute), wrap.wrap_topi_schedule(schedule))
            return made

        with TempOpAttr("nn.dense", "FTVMStrategy", of_the_task):
            (found,) = autotvm.task.extract_from_program(network(), None, target)
        assert found.workload == task.workload == autotvm.task.get_workload([compute(*args)])
        with TempOpAttr("nn.dense", "FTVMStrategy", strategy):
            check(network(), "llvm", np.maximum(X @ W.T + B, 0), mine=False)
            with autotvm.apply_history_best([record]):
                model = tvm.compile(network(), target="llvm", cache=Cache(None))
        np.testing.assert_allclose(model(X), np.maximum(3 * X @ W.T + B, 0), rtol=1e-5, atol=1e-5)
        assert "T.serial(4)" in loops_of(model) and "T.serial(5)" in loops_of(model)


def test_a_schedule_of_a_task_refuses_tensors_of_others() -> None:
    with task_functions() as (_, schedule), pytest.raises(
        OptionError, match="the task 'tests/dense' did not compute mine"
    ):
        schedule([dense_of_mine(te.placeholder((2, 3)), te.placeholder((4, 3)))])


def test_a_strategy_without_an_implementation_is_refused() -> None:
    def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> relay.op.OpStrategy:
        made = relay.op.OpStrategy()
        with te.SpecializedCondition(inputs[0].shape[0] >= 1000):
            made.add_implementation(relay.op.strategy.wrap_compute_dense(dense_of_mine), None)
        return made

    with TempOpAttr("nn.dense", "FTVMStrategy", strategy), pytest.raises(
        CompileError, match=r"strategy of nn\.dense has no implementation for"
    ):
        tvm.compile(network(), cache=Cache(None))
    with TempOpAttr("nn.dense", "FTVMStrategy", lambda *_: None), pytest.raises(
        CompileError, match=r"the strategy of nn\.dense returned None"
    ):
        tvm.compile(network(), cache=Cache(None))


def test_a_schedule_for_another_device_is_refused() -> None:
    def schedule(attrs: Any, outs: Sequence[te.Tensor], target: Any) -> te.Schedule:
        s = te.create_schedule([t.op for t in outs])
        s[outs[0]].bind(outs[0].op.axis[0], te.thread_axis("threadIdx.x"))
        return s

    with TempOpAttr("nn.dense", "FTVMSchedule", schedule), pytest.raises((CompileError, ScheduleError)):
        tvm.compile(network(), target="llvm", cache=Cache(None))


# Generic functions.


def test_generic_functions_dispatch_on_the_keys_of_a_target() -> None:
    @tvm.target.generic_func
    def tile(n: int) -> int:
        """The tile of a size."""
        return n

    @tile.register(["gpu", "arm_cpu"])
    def tile_of_others(n: int) -> int:
        return n + 1

    tile.register("cpu", lambda n: n + 2)
    assert (tile(1), tile.__doc__) == (1, "The tile of a size.")
    with tvm.target.Target("llvm"):
        assert tile(1) == 3
        kept = tile.get_packed_func()
    with tvm.target.Target("llvm -device=arm_cpu"):
        assert tile(1) == 2
    tile.register(lambda n: 0, "cpu", allow_override=True)
    with tvm.target.Target("llvm"):
        assert (tile(1), kept(1)) == (0, 3)


def test_generic_functions_refuse_what_is_not_there() -> None:
    generic = tvm.target.get_native_generic_func("nothing_of_tests")
    with pytest.raises(
        OptionError, match="'nothing_of_tests' has no implementation for the current target and no default"
    ):
        generic(1)
    generic.register(lambda n: n, "cpu")
    with pytest.raises(OptionError, match="has an implementation for the key 'cpu'"):
        generic.register(lambda n: n, "cpu", allow_override=False)
    generic.set_default(lambda n: n)
    with pytest.raises(OptionError, match="has a default; replace it"):
        generic.set_default(lambda n: n)


def test_loops_of_a_function_before_they_are_scheduled() -> None:
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3))
    function = relay.testing.run_infer_type(relay.Function([x, y], relay.nn.relu(x + y)))
    loops = relay.backend.te_compiler.lower_to_primfunc(function, tvm.target.Target("llvm"))
    blocks = [s.name for s in walk_stmt(loops.body) if isinstance(s, Block)]
    assert blocks and [tuple(p.shape) for p in loops.params] == [(2, 3)] * 3
    a, b, out = RNG.standard_normal((2, 3)).astype("float32"), np.ones((2, 3), "float32"), np.zeros((2, 3), "float32")
    tvm.build(loops, target="llvm")(a, b, out)
    np.testing.assert_array_equal(out, np.maximum(a + b, 0))
