"""The graph tuner: lists of nodes, choices of least cost, layouts of records, and times of transformations."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.base.errors import OptionError
from tilewright.search import autotvm
from tilewright.search.autotvm.graph_tuner import DPTuner, PBQPTuner
from tilewright.search.autotvm.graph_tuner import _base as base
from tilewright.search.autotvm.graph_tuner.base_graph_tuner import Pair, blocked_shape
from tilewright.search.autotvm.graph_tuner.choices import Choices
from tilewright.search.autotvm.graph_tuner.utils import (
    bind_inputs,
    expr2graph,
    get_in_nodes,
    get_out_nodes,
    has_multiple_inputs,
)
from tilewright.search.autotvm.graph_tuner.utils.utils import Node
from tilewright.search.autotvm.measure import MeasureInput, MeasureResult
from tilewright.search.autotvm.task import ConfigEntity, Task
from tilewright.search.measure import MeasureErrorNo

CONV = [relay.op.get("nn.conv2d")]


@pytest.mark.parametrize("seed", range(6))
def test_choices_of_least_cost(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, 6)
    choices = Choices({k: rng.random(n).tolist() for k, n in enumerate(sizes)})
    pairs = [(a, b) for a in range(6) for b in range(a) if rng.random() < 0.6]
    for a, b in pairs:
        choices.couple(a, b, rng.random((sizes[a], sizes[b])))
    least = min(choices.cost(dict(enumerate(p))) for p in itertools.product(*map(range, sizes)))
    assert choices.cost(choices.solve()) == pytest.approx(least)
    assert least <= choices.cost(choices.solve(exact=False)) + 1e-9


def test_a_chain_is_solved_exactly_without_tables() -> None:
    rng = np.random.default_rng(0)
    choices = Choices({k: rng.random(3).tolist() for k in range(8)})
    for k in range(7):
        choices.couple(k, k + 1, rng.random((3, 3)))
    assert choices.solve(exact=False) == choices.solve()


def test_choices_that_exclude_each_other_are_refused() -> None:
    choices = Choices({0: [1.0], 1: [1.0, 2.0]})
    choices.couple(0, 1, np.full((1, 2), np.inf))
    with pytest.raises(OptionError, match="no combination of the records has layouts that fit together"):
        choices.solve()
    large = Choices({k: [0.0] * 40 for k in range(6)})
    for a, b in itertools.combinations(range(6), 2):
        large.couple(a, b, np.zeros((40, 40)))
    with pytest.raises(OptionError, match="because 6 nodes depend on each other; use PBQPTuner"):
        large.solve()
    assert len(large.solve(exact=False)) == 6


def test_blocks_of_channels() -> None:
    assert blocked_shape((1, 32, 8, 8), "NCHW16c") == (1, 2, 8, 8, 16)
    assert blocked_shape((1, 32, 8, 8), "NCHW") == (1, 32, 8, 8)
    assert blocked_shape((1, 3, 8, 8), "NCHW16c") is None and blocked_shape((1, 3), "NCHW") is None


def branches() -> relay.Function:
    """conv(x) + relu(conv(conv(x))), with weights whose types follow from the operators."""
    x = relay.var("x")
    first = relay.nn.conv2d(x, relay.var("w0"), channels=16, kernel_size=(3, 3), padding=(1, 1))
    second = relay.nn.conv2d(first, relay.var("w1"), channels=16, kernel_size=(1, 1))
    out = relay.add(first, relay.nn.relu(second))
    return relay.Function(relay.analysis.free_vars(out), out)


def test_nodes_and_their_neighbours() -> None:
    nodes: list[Node] = []
    expr2graph(bind_inputs(branches(), {"x": (1, 8, 8, 8)}), CONV, {}, nodes, "llvm")
    assert [n["name"].partition("_")[0] for n in nodes] == ["x", "w0", "w1", "Call", "Call", "Call", "Call"]
    assert [len(n.get("workloads", ())) for n in nodes] == [0, 0, 0, 1, 1, 0, 0]
    found = get_in_nodes(nodes, CONV, {"x"})
    assert found == {3: [0], 4: [3], 6: [3, 4]}
    assert get_out_nodes(found) == {3: [4, 6], 4: [6], 6: [], 0: [3]}
    assert [has_multiple_inputs(nodes, k, {"x"}, base.OPT_OUT_OP) for k in (2, 4, 6)] == [False, False, True]


def record(data: tuple[int, ...], kernel: tuple[int, ...], pad: int, block: tuple[int, int], seconds: float) -> Pair:
    """A record of TVM's template that takes blocks of `block[0]` channels and gives blocks of `block[1]`."""
    args = (te.placeholder(data), te.placeholder(kernel), (1, 1), (pad,) * 4, (1, 1), "NCHW", "NCHW", "float32")
    config = {"index": -1, "code_hash": None, "entity": [
        ["tile_ic", "sp", [-1, block[0]]], ["tile_oc", "sp", [-1, block[1]]], ["tile_ow", "sp", [-1, 4]]]}
    task = Task("conv2d_NCHWc.x86", args, tvm.target.Target("llvm"))
    return (MeasureInput(task.target, task, ConfigEntity.from_json_dict(config)),
            MeasureResult((seconds,), MeasureErrorNo.NO_ERROR, -1, -1))


def transform(shape: tuple[int, ...], a: str, b: str, seconds: float) -> Pair:
    task = autotvm.task.create("layout_transform", [te.placeholder(shape), a, b], "llvm")
    return MeasureInput(task.target, task, None), MeasureResult((seconds,), MeasureErrorNo.NO_ERROR, -1, -1)


FIRST, SECOND = ((1, 8, 8, 8), (16, 8, 3, 3), 1), ((1, 16, 8, 8), (16, 16, 1, 1), 0)
RECORDS = [
    record(*FIRST, (8, 8), 1.0), record(*FIRST, (8, 16), 1.3), record(*SECOND, (16, 16), 1.0),
    record(*SECOND, (8, 8), 1.8), record(*SECOND, (5, 5), 0.1)]


@pytest.mark.parametrize("kind", [DPTuner, PBQPTuner])
@pytest.mark.parametrize(("cost", "chosen"), [(1e-6, [0, 2]), (0.5 / 1024, [1, 2])])
def test_transformations_count(kind: type[DPTuner], cost: float, chosen: list[int], tmp_path: Path) -> None:
    """Cheap transformations leave the fastest records; expensive ones make the layouts agree. A block of 5 divides no
    16 channels."""
    log = tmp_path / "tuner.log"
    tuner = kind(branches(), {"x": (1, 8, 8, 8)}, RECORDS, CONV, "llvm", log_file=log)
    with pytest.raises(OptionError, match="call benchmark_layout_transform before run"):
        tuner.run()
    tuner.benchmark_layout_transform(
        layout_records=[transform((1, 4, 8, 8, 4), "NCHW4c", "NCHW8c", 1024 * cost)], infer_layout=True)
    for workload, (_, result) in tuner._layout_transform_perf_records.items():
        assert result.costs == (np.prod(workload[1][1]) * cost,)
    tuner.run()
    assert [p[0].config for p in tuner.get_optimal_records()] == [RECORDS[k][0].config for k in chosen]
    assert "INFO Start to run" in log.read_text()
    tuner.write_opt_sch2record_file(tmp_path / "best.log")
    assert len(list(autotvm.record.load_from_file(tmp_path / "best.log"))) == 2


def test_known_transformations_are_not_measured(tmp_path: Path) -> None:
    tuner = DPTuner(branches(), {"x": (1, 8, 8, 8)}, [RECORDS[0], RECORDS[2]], CONV, "llvm", log_file=None)
    pairs = [
        transform((1, 2, 8, 8, 8), "NCHW8c", "NCHW16c", 0.25), transform((1, 1, 8, 8, 16), "NCHW16c", "NCHW8c", 2.0)]
    tuner.benchmark_layout_transform(layout_records=pairs)
    assert sorted(r.cost for _, r in tuner._layout_transform_perf_records.values()) == [0.25, 2.0]
    with pytest.raises(OptionError, match="infer_layout needs layout_records"):
        tuner.benchmark_layout_transform(infer_layout=True)


def test_a_convolution_without_a_record_keeps_its_kernel(tmp_path: Path) -> None:
    log = tmp_path / "tuner.log"
    tuner = DPTuner(branches(), {"x": (1, 8, 8, 8)}, RECORDS[:2], CONV, "llvm", log_file=log)
    assert "No record is for the workload [('conv2d', 1, 16, 8, 8, 16, 1, 1" in log.read_text()
    tuner.benchmark_layout_transform(
        layout_records=[transform((1, 16, 8, 8), "NCHW", "NCHW8c", 1e-6)], infer_layout=True)
    tuner.run()
    assert [p[0].config for p in tuner.get_optimal_records()] == [RECORDS[0][0].config]
    with pytest.raises(OptionError, match=r"none of the records is for one of the 2 nodes of nn.conv2d"):
        DPTuner(branches(), {"x": (1, 8, 16, 16)}, RECORDS[:2], CONV, "llvm", log_file=None)


def test_the_transformation_is_a_task() -> None:
    task = autotvm.task.create("layout_transform", [te.placeholder((1, 4, 6, 6, 4)), "NCHW4c", "NCHW8c"], "llvm")
    with task.target:
        schedule, tensors = task.instantiate(task.config_space.get(0))
        f = tvm.build(schedule, tensors)
    x, out = np.random.default_rng(0).random((1, 4, 6, 6, 4), np.float32), tvm.nd.array(np.zeros((1, 2, 6, 6, 8), "f4"))
    f(tvm.nd.array(x), out)
    wanted = x.reshape(1, 2, 2, 6, 6, 4).transpose(0, 1, 3, 4, 2, 5).reshape(out.shape)
    np.testing.assert_array_equal(out.numpy(), wanted)
    assert task.flop == 16 * 36


def test_records_of_kernels_here_have_one_layout(tmp_path: Path) -> None:
    x, w = relay.var("x", shape=(1, 8, 16, 16)), relay.var("w", shape=(16, 8, 3, 3))
    out = relay.nn.relu(relay.nn.conv2d(x, w, channels=16, kernel_size=(3, 3)))
    params = {"w": np.ones((16, 8, 3, 3), "float32")}
    mod = tvm.IRModule.from_expr(relay.Function([x, w], out))
    (task,) = autotvm.task.extract_from_program(mod, params, "llvm", ops=CONV)
    pairs = [
        (MeasureInput(task.target, task, task.config_space.get(k)), MeasureResult((s,), MeasureErrorNo.NO_ERROR, 0, 0))
        for k, s in ((0, 0.5), (1, 0.2))]
    tuner = DPTuner(mod, {"x": (1, 8, 16, 16)}, pairs, CONV, "llvm", log_file=None)
    tuner.benchmark_layout_transform()
    assert not tuner._layout_transform_perf_records
    tuner.run()
    tuner.write_opt_sch2record_file(tmp_path / "best.log")
    with autotvm.apply_graph_best(tmp_path / "best.log") as best:
        found = best.query(task.target, task.workload)
        assert found.to_json_dict()["entity"] == pairs[1][0].config.to_json_dict()["entity"]
