"""Workloads, states, steps of records, and the records themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from auto_scheduler_workloads import arrays, matmul_add, small_matmul
from tilewright import te
from tilewright.base.errors import CompileError, ModelError, OptionError, ScheduleError, TargetError
from tilewright.compat.testing import auto_scheduler as testing
from tilewright.search import auto_scheduler
from tilewright.search.auto_scheduler import utils
from tilewright.search.auto_scheduler.measure import MeasureInput, MeasureResult, recover_measure_input
from tilewright.search.auto_scheduler.measure_record import (
    distill_record_file,
    dump_record_to_string,
    load_best_record,
    load_record_from_string,
)
from tilewright.search.auto_scheduler.relay_integration import detached
from tilewright.search.auto_scheduler.transform_step import STEPS, step_from_json
from tilewright.tir.interpreter import run

TILED = [
    ["CHW", 2, "local"], ["SP", 2, 0, 24, [1, 3, 4], 1], ["SP", 2, 4, 32, [1, 2, 8], 1], ["SP", 2, 8, 20, [4], 1],
    ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]], ["FSP", 3, 0, 1, 2], ["FSP", 3, 3, 2, 2], ["RE", 3, [0, 3, 1, 4, 2, 5]],
    ["CA", 2, 3, 3], ["FU", 3, [0, 1, 2, 3]], ["AN", 3, 0, 3], ["PR", 2, 0, "auto_unroll_max_step$16"], ["AN", 2, 9, 2],
    ["AN", 3, 2, 2],
]
"""Multi-level tiling with a cache, as logs of the field have it."""


def record(
    steps: Any, key: str = '["small_matmul", 24, 32, 20]', target: str = "llvm -keys=cpu -link-params=0",
    cost: float = 1e-3, error: int = 0
) -> str:
    return json.dumps(
        {
            "i": [[key, target, [6, 64, 64, 0, 0, 0, 0, 0], "", 1, []], [[], steps]],
            "r": [[cost], error, 0.2, 1700000000], "v": "v0.6"
        }
    )


def answer(task: auto_scheduler.SearchTask, state: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """What the interpreter makes of a state, and of the workload without steps."""
    schedule, args = task.compute_dag.apply_steps_from_state(state)
    plain = task.compute_dag.apply_steps_from_state(task.compute_dag.init_state)[0]
    given = arrays(args)
    results = []
    for s in (schedule, plain):
        data = [a.copy() for a in given]
        run(tvm.lower(s, args, simple_mode=True)["main"], data)
        results.append(data[-1])
    return results[0], results[1]


def small() -> auto_scheduler.SearchTask:
    return auto_scheduler.SearchTask(func=small_matmul, args=(24, 32, 20), target="llvm")


# Workloads.
def test_keys_name_a_function_and_its_arguments() -> None:
    key = auto_scheduler.make_workload_key(small_matmul, (24, 32, 20))
    assert key == '["small_matmul", 24, 32, 20]'
    assert [
        t.extents for t in auto_scheduler.workload_registry.workload_key_to_tensors(key)
    ] == [(24, 20), (20, 32), (24, 32)]
    given = auto_scheduler.make_workload_key("small_matmul", [te.placeholder((2, 3), "int8"), (1, 2)])
    assert given == '["small_matmul", ["TENSOR", [2, 3], "int8"], [1, 2]]'


def test_registering() -> None:
    def anything(n: int) -> Any:
        return te.placeholder((n,))

    auto_scheduler.register_workload("named_for_a_test", anything, override=True)

    with pytest.raises(OptionError, match="workload 'named_for_a_test' is registered already"):
        auto_scheduler.register_workload("named_for_a_test", lambda: None)
    with pytest.raises(CompileError, match="it has to return its tensors in a list"):
        _ = auto_scheduler.SearchTask(func="named_for_a_test", args=(3,), target="llvm").compute_dag
    with pytest.raises(OptionError, match="'smal_matmul' is not registered; did you mean 'small_matmul'"):
        auto_scheduler.make_workload_key("smal_matmul", ())
    with pytest.raises(OptionError, match="is not a workload key"):
        auto_scheduler.workload_registry.workload_key_to_tensors("nothing")
    with pytest.raises(OptionError, match="cannot be an argument of a workload"):
        auto_scheduler.make_workload_key("small_matmul", (object(),))


def test_stages_are_numbered_as_records_number_them() -> None:
    dag = auto_scheduler.ComputeDAG(matmul_add(4, 8, 6, "float32"))
    assert [op.name for op in dag.ops] == ["A", "B", "product", "C", "out"]
    assert dag.flop_ct == 2 * 4 * 8 * 6 + 4 * 8
    assert [op.name for op in dag.readers(dag.ops[2])] == ["out"]


def test_the_digest_is_of_what_is_computed() -> None:
    def keyed(name: str, factor: float) -> str:
        x = te.placeholder((4, 4), name=name)
        return auto_scheduler.ComputeDAG(
            [x, te.compute((4, 4), lambda i, j: x[i, j] * factor, name=f"{name}_out")]
        ).hash_key()

    assert keyed("x", 2.0) == keyed("other", 2.0) != keyed("x", 3.0)
    assert json.loads(keyed("x", 2.0))[1:] == [[4, 4], [4, 4]]


def test_what_is_no_workload() -> None:
    with pytest.raises(CompileError, match="is made of tensors"):
        auto_scheduler.ComputeDAG([1])  # type: ignore[list-item]
    with pytest.raises(OptionError, match="a SearchTask takes"):
        auto_scheduler.SearchTask(target="llvm")
    with pytest.raises(TargetError, match="omit target_host"):
        auto_scheduler.SearchTask(func=small_matmul, args=(2, 2, 2), target="llvm", target_host="llvm -mcpu=x86-64-v3")
    x = te.placeholder((te.var("n"),), name="x")
    with pytest.raises(CompileError, match="symbolic shape"):
        auto_scheduler.ComputeDAG([x, te.compute(x.shape, lambda i: x[i] + 1.0)])


# States.
@pytest.mark.slow
def test_a_state_written_by_hand() -> None:
    task = small()
    c = task.compute_dag.tensors[-1]
    s = task.compute_dag.get_init_state().copy()
    i, j, k = s[c].iters
    io, ii = s.split(c, i, [4])
    jo, ji = s.split(c, j, [8])
    s.reorder(c, [io, jo, k, ii, ji])
    s.vectorize(c, ji)
    s.unroll(c, ii, max_unroll=16)
    s.parallel(c, s.fuse(c, [io, jo]))
    s.pragma(c, 0, "auto_unroll_max_step$16")
    assert str(s) == (
        "Placeholder: A, B\n"
        "parallel i.0@j.0@ (0,24)\n  for k (0,20)\n    unroll i.1 (0,4)\n      vectorize j.1 (0,8)\n        C = ...\n"
    )
    ours, plain = answer(task, s)
    np.testing.assert_array_equal(ours, plain)
    again = task.compute_dag.init_state.apply(s.transform_steps)
    assert str(again) == str(s)


def test_every_step_does_what_the_state_says() -> None:
    task = auto_scheduler.SearchTask(func=matmul_add, args=(12, 16, 8, "float32"), target="llvm")
    s = task.compute_dag.init_state.copy()
    k = s.cache_read(0, "global", [2])
    assert (s.stage_id(k), s.stages[1].name, s.stages[3].name) == (1, "A.global", "product")
    made = s.rfactor(3, s.split(3, 2, [4])[1], 2)
    assert [i.extent for i in s[made].iters] == [12, 16, 4, 2]
    assert [i.range.extent for i in s.stages[s.stage_id(made) + 1].iters] == [12, 16, 4]
    s.compute_root(made)
    io, _ = s.split(6, 0, [3], inner_to_outer=False)
    s.compute_at(4, 6, io)
    ours, plain = answer(task, s)
    np.testing.assert_array_equal(ours, plain)


def test_states_for_a_gpu_are_recorded_and_do_not_run() -> None:
    task = small()
    dag, c = task.compute_dag, task.compute_dag.tensors[-1]
    s = dag.get_init_state()
    bound = s.bind(c, s[c].iters[0], "blockIdx.x")
    assert bound is s[c].iters[0] and bound.annotation == s.ANNOTATION_TRANS_TABLE["blockIdx.x"] == 5
    again = dag.infer_bound_from_state(s)
    assert again == s and hash(again) == hash(s) and s != dag.get_init_state() and "blockIdx.x i (0," in str(again)
    with pytest.raises(ScheduleError, match=r"binds a loop to blockIdx\.x, but schedules of a GPU do not run on a CPU"):
        dag.func(s)
    shared = dag.get_init_state()
    copy = shared.cache_read(0, "shared", [c])
    assert copy.name == "A.shared"
    dag.func(shared)  # plain memory on a CPU
    assert shared.cache_read(0, "shared", [c]).name == "A.d.shared"
    with pytest.raises(ScheduleError, match="block 'C' does not read 'A'"):
        dag.func(shared)
    with pytest.raises(ScheduleError, match=r"'block' is no axis of threads; there are vthread, blockIdx\.x"):
        s.bind(c, 1, "block")


def test_extents_of_attached_stages() -> None:
    task = auto_scheduler.SearchTask(func=matmul_add, args=(12, 16, 8, "float32"), target="llvm")
    dag = task.compute_dag
    s = dag.get_init_state()
    outer, inner = s.split(4, 0, [4])
    s.compute_at(2, 4, outer)
    assert (s[2].compute_at, s[4].compute_at, inner.iter_kind, s[2].iters[-1].iter_kind) == (2, 0, 0, 1)
    found = dag.infer_bound_from_state(s)
    assert [i.range.extent for i in found[2].iters] == [4, 16, 8] and [i.extent for i in found[4].iters] == [3, 4, 16]
    assert [i.extent for i in s[2].iters] == [12, 16, 8]
    copy = s.copy()
    assert copy.split(4, inner, [2])[0] is copy[4].iters[1]  # a loop of another copy counts by its name
    assert copy.stage_id(s.stage_ops[2]) == 2 and copy.state_object is copy


def test_a_schedule_is_finished_again_after_further_steps() -> None:
    task = auto_scheduler.SearchTask(func=matmul_add, args=(12, 16, 8, "float32"), target="llvm")
    dag, s = task.compute_dag, task.compute_dag.get_init_state()
    outer, _ = s.split(4, 0, [4])
    s.follow_fused_split(4, 2, [0], 0, True)
    s.compute_at(2, 4, outer)
    first = dag.func(s)
    assert "attached" not in str(s) and s.stages[2].attached is not None
    s.split(4, outer, [3])  # the product moves into the innermost part
    s.parallel(4, 0)
    assert dag.func(s).script() != first.script()
    assert dag.func(s).script() == dag.func(dag.get_init_state().apply(s.transform_steps)).script()
    ours, plain = answer(task, s)
    np.testing.assert_array_equal(ours, plain)
    assert dag.get_init_state() is not dag.get_init_state() and not dag.init_state.transform_steps


def test_what_a_state_refuses() -> None:
    s = small().compute_dag.init_state.copy()
    for wrong, message in (
        (lambda: s.split(9, 0, [2]), "9 is not a stage of this state; the stages are A, B, C"),
        (lambda: s.split(2, 5, [2]), "5 is not a loop of 'C', which has 3"),
        (lambda: s.fuse(2, [0, 2]), "takes adjacent loops"),
        (lambda: s.reorder(2, [0]), "takes all of its 3 loops"),
        (lambda: s.rfactor(2, 0, 0), "is not a reduction loop"),
    ):
        with pytest.raises(ScheduleError, match=message):
            wrong()


# Steps of records.
@pytest.mark.slow
def test_steps_of_the_field_are_replayed() -> None:
    inp, result = load_record_from_string(record(TILED))
    assert (result.cost, result.error_no, inp.task.hardware_params.num_cores) == (1e-3, 0, 6)
    state = recover_measure_input(inp, rebuild_state=True).state
    assert str(state).splitlines()[1] == "parallel i.0@j.0@i.1@j.1@ (0,4)"
    ours, plain = answer(small(), state)
    np.testing.assert_array_equal(ours, plain)
    assert json.loads(dump_record_to_string(inp, result))["i"][1][1] == TILED


def test_every_code_is_read_as_it_is_written() -> None:
    samples = [
        *TILED, ["CI", 3], ["CR", 3], ["CHR", 0, "global", [2]], ["RF", 2, 3, 0], ["SA", 2, 0, 16, 8],
        ["FFSP", 3, 0, [1, 2], 1, 1],
    ]
    assert {s[0] for s in samples} == set(STEPS)
    for s in samples:
        assert step_from_json(s).as_json() == s


@pytest.mark.parametrize(("steps", "message"), [
    ([["XY", 2]], "step 'XY' of the record is unknown here; the steps are AN, FU"),
    ([["SP", 2]], "does not fit 'SP', whose fields are stage_id, iter_id, extent, lengths, inner_to_outer"),
    (["SP"], "is not a step of a record"),
    ({}, "are a list"),
])
def test_steps_that_are_none(steps: Any, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        load_record_from_string(record(steps))


@pytest.mark.parametrize(("steps", "message"), [
    ([["AN", 2, 0, 11]], "annotation 11 of a loop cannot be replayed"),
    ([["SP", 7, 0, 4, [2], 1]], "7 is not a stage of this state; the stages are A, B, C"),
    ([["SP", 2, 6, 4, [2], 1]], "6 is not a loop of 'C', which has 3: i, j, k"),
    ([["FSP", 2, 0, 0, 1]], "follows step 0, which is not a split"),
])
def test_steps_that_do_not_fit(steps: Any, message: str) -> None:
    inp, _ = load_record_from_string(record(steps))
    with pytest.raises(ScheduleError, match=rf"step 0.*{message}"):
        inp.task.compute_dag.init_state.apply(inp.state.transform_steps)


# Files of records.
def test_records_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    task = small()
    slow, fast = task.compute_dag.init_state, task.compute_dag.init_state.copy()
    fast.parallel(2, 0)
    callback = auto_scheduler.RecordToFile(file)
    inputs = [MeasureInput(task, slow), MeasureInput(task, fast), MeasureInput(task, fast)]
    callback(None, inputs, [MeasureResult((2e-3, 4e-3)), MeasureResult((1e-3,)), MeasureResult((), 7, "too slow")])
    read, results = auto_scheduler.RecordReader(file).read_lines()
    assert [r.cost for r in results] == [3e-3, 1e-3, float("inf")]
    assert [r.error_no for r in results] == [0, 0, 7]
    auto_scheduler.RecordReader(file).check_workload_key(read)
    assert len(auto_scheduler.RecordReader(file).read_lines(1, 1)[0]) == 1
    best, cost = load_best_record(file, task.workload_key, task.target)
    assert best is not None and cost is not None
    assert (best.state.transform_steps, cost.cost) == (fast.transform_steps, 1e-3)
    distill_record_file(str(file), str(tmp_path / "best.json"))
    assert len(list(auto_scheduler.load_records(tmp_path / "best.json"))) == 1
    sch, args = task.apply_best(str(file))
    assert "T.parallel(24)" in str(tvm.lower(sch, args)["main"])
    assert task.print_best(str(file)).endswith("s[C].parallel(C_i)\n")


def test_a_file_that_was_cut_short(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "log.json"
    file.write_text(f"# a comment\n{record(TILED)}\n{record(TILED)[:40]}")
    assert len(list(auto_scheduler.load_records(file))) == 1
    assert "log.json:3: the last record is truncated" in caplog.text
    file.write_text(f"{record(TILED)[:40]}\n{record(TILED)}\n")
    with pytest.raises(ModelError, match=r"log.json:1: not a tuning record"):
        list(auto_scheduler.load_records(file))
    with pytest.raises(ModelError, match="cannot be read"):
        list(auto_scheduler.load_records(tmp_path / "none.json"))


@pytest.mark.parametrize(("text", "message"), [
    ("[]", "not a tuning record of AutoTVM or auto_scheduler"),
    ('{"i": [], "r": [], "v": "v9"}', "its version is v9; supported are v0.1, "),
    ('{"i": [], "r": [], "v": "v0.6"}', "not a tuning record"),
])
def test_texts_that_are_no_records(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        load_record_from_string(text)


def test_no_best_record(tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    file.write_text(
        record(TILED, key='["small_matmul", 1, 2, 3]') + "\n" + record(TILED, error=4) + "\n"
        + record(TILED, target="cuda") + "\n"
    )
    with pytest.raises(OptionError, match="has no successful record"):
        small().apply_best(str(file))
    with pytest.raises(OptionError, match="is for GPUs"):
        small().print_best(str(file), print_mode="cuda")


def test_options_of_tuning() -> None:
    with pytest.raises(ValueError, match="Invalid builder: 'locale'"):
        auto_scheduler.TuningOptions(builder="locale")
    with pytest.raises(OptionError, match="they must be at least 0 and 1"):
        auto_scheduler.TuningOptions(num_measures_per_round=0)
    with pytest.raises(OptionError, match="eight numbers"):
        auto_scheduler.HardwareParams.from_json([1])
    with pytest.raises(OptionError, match="there is one CPU"):
        auto_scheduler.LocalRunner(device=1)
    with pytest.raises(OptionError, match=r"there is no search policy 'sketch.rnd'; did you mean 'sketch.random'"):
        small().tune(auto_scheduler.TuningOptions(), "sketch.rnd")
    with pytest.raises(CompileError, match="layout_rewrite changes the arguments"):
        small().compute_dag.apply_steps_from_state(small().compute_dag.init_state, 1)


def test_tensors_add_up_as_in_the_field() -> None:
    a, b = te.placeholder((3, 4), name="a"), te.placeholder((1, 4), name="b")
    whole = 2.0 - (a + b) * a / b
    given = [np.full((3, 4), 3.0, np.float32), np.full((1, 4), 2.0, np.float32), np.zeros((3, 4), np.float32)]
    run(tvm.lower(te.create_schedule(whole.op), [a, b, whole], simple_mode=True)["main"], given)
    np.testing.assert_array_equal(given[-1], 2.0 - (given[0] + given[1]) * given[0] / given[1])


def test_computations_that_read_at_what_they_read_are_detached() -> None:
    table, index = te.placeholder((8,), name="table"), te.placeholder((4,), "int64", name="index")
    found = te.compute((4,), lambda i: table[index[i]], name="found")
    _, _, made = detached([table, index], [found])
    assert isinstance(made.op, te.ComputeOp) and isinstance(found.op, te.ComputeOp)
    assert str(made.op.body[0]) == str(found.op.body[0])


@pytest.mark.parametrize("given", [1.5, "name", [1]])
def test_inputs_of_a_task_are_names(given: Any) -> None:
    with pytest.raises(OptionError, match="task_inputs of a SearchTask are names, or arrays by name, not "):
        auto_scheduler.SearchTask(workload_key="[\"none\"]", target="llvm", task_inputs=given)


def test_the_workloads_of_tvm_s_tests_mean_what_they_say() -> None:
    a, b, c = (np.random.default_rng(k).standard_normal((8, 8)).astype("float32") for k in range(3))
    exp = np.exp(a - a.max(1, keepdims=True))
    for name, arguments, inputs, expected in (
        ("matmul_auto_scheduler_test", (8, 8, 8), (a, b), [a @ b]),
        ("matmul_auto_scheduler_test_rename_1", (8, 8, 8), (a, b), [a @ b]),
        ("double_matmul_auto_scheduler_test", (8,), (a, b, c), [a @ b @ c]),
        ("parallel_matmul_auto_scheduler_test", (8,), (a, b, c), [a @ b, a @ c]),
        ("min_nm_auto_scheduler_test", (8, 8), (a,), [a.min(1)]),
        ("softmax_nm_auto_scheduler_test", (8, 8), (a,), [exp / exp.sum(1, keepdims=True)]),
        ("zero_rank_reduce_auto_scheduler_test", (8,), (a[0],), [a[0].sum()]),
        ("zero_rank_compute_auto_scheduler_test", (8,), (a[0],), [a[0].sum() + 1]),
    ):
        task = auto_scheduler.SearchTask(func=name, args=arguments, target="llvm")
        schedule, tensors = task.compute_dag.apply_steps_from_state(task.compute_dag.get_init_state())
        outputs = [np.zeros_like(np.asarray(e, "float32")) for e in expected]
        tvm.build(schedule, tensors, "llvm")(*inputs, *outputs)
        for found, right in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5, err_msg=name)


def test_workloads_of_tvm_s_tests_for_images_have_their_shapes() -> None:
    *_, convolved = testing.conv2d_nchw_bn_relu_auto_scheduler_test(1, 16, 16, 4, 8, 3, 2, 1)
    _, pooled = testing.max_pool2d_auto_scheduler_test(1, 8, 8, 4, 1)
    assert [int(d) for d in convolved.shape] == [1, 8, 8, 8] and [int(d) for d in pooled.shape] == [1, 4, 9, 9]
    dag, state = testing.get_tiled_matmul()
    assert len(state.stage_ops) == 3 and "for" in str(dag.infer_bound_from_state(state))
    with pytest.raises(CompileError, match="'B' has a reduction within its expression"):
        testing.invalid_compute_definition()


def test_utilities_of_keys_and_numbers() -> None:
    assert utils.decode_workload_key('["matmul", 4, [1, [2]]]') == ("matmul", (4, (1, (2,))))
    assert utils.decode_workload_key("matmul") == ("matmul", None)
    assert utils.get_const_tuple(te.placeholder((2, 3)).shape) == (2, 3)
    with pytest.raises(ValueError, match="is not a constant integer"):
        utils.get_const_int(te.var("n"))
    assert utils.array_mean([1, 2.0]) == 1.5 and utils.to_str_round([0.5, (1, 2.25)], 2) == "[0.50, [1, 2.25]]"
    assert utils.get_func_name(matmul_add) == "matmul_add"


@pytest.mark.slow
def test_candidates_are_timed_through_a_tracker_and_a_server_of_this_machine() -> None:
    context = auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=0)
    try:
        assert utils.check_remote(context.tracker.host, context.tracker.host, context.tracker.port)
        assert not utils.check_remote("board", context.tracker.host, context.tracker.port, timeout=0.1)
        task = auto_scheduler.SearchTask(func="matmul_auto_scheduler_test", args=(16, 16, 16), target="llvm")
        built = auto_scheduler.LocalBuilder(n_parallel=1)
        inputs = [MeasureInput(task, task.compute_dag.get_init_state())]
        found, = auto_scheduler.measure.measure(inputs, built, context.runner)
        assert found.error_no == 0 and found.costs[0] > 0
    finally:
        context.close()
    with pytest.raises(OptionError, match="device=1 does not exist"):
        auto_scheduler.LocalRPCMeasureContext(device=1)
