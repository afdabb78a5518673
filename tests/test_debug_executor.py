"""The debug executor: every value as it was when it was made, times of single steps, and the files that the field's
tools read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from small_models import cnn, mlp
from tilewright import relay
from tilewright.base.errors import ArtifactError, InputError, OptionError, RunError
from tilewright.runtime.benchmark import Pace, measure
from tilewright.runtime.debug_graph import debug_nodes
from tilewright.runtime.debugger import debug_executor
from tilewright.runtime.debugger.debug_executor import GraphModuleDebug
from tilewright.runtime.intermediate import values_of_steps
from tilewright.runtime.profiling import Count, Metric, MetricCollector

IMAGE = np.random.default_rng(0).random((1, 3, 16, 16), np.float32)


def executor(root: Path | None = None, model: Any = None) -> GraphModuleDebug:
    mod, _ = relay.frontend.from_onnx(model or cnn())
    lib = relay.build(mod, "llvm")
    return debug_executor.create(lib.get_graph_json(), lib, tvm.cpu(0), None if root is None else str(root))


def test_a_run_writes_what_the_tools_of_the_field_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    m = executor(tmp_path)
    m.run(number=1, min_repeat_ms=0, x=IMAGE)
    table = capsys.readouterr().out
    assert table.startswith("Node Name") and "Total_time" in table and "kernel_1_conv2d_add" in table
    folder = tmp_path / "_tvmdbg_device_CPU_0"
    graph = json.loads((folder / "_tvmdbg_graph_dump.json").read_text())
    assert [n["op"] for n in graph["nodes"]][:2] == ["null", "kernel_0_conv2d_add_relu"]
    assert (
        graph["nodes"][1]["inputs"], graph["nodes"][1]["shape"], graph["nodes"][1]["attrs"]["T"]
    ) == (["x"], [1, 8, 8, 8], "float32")
    assert graph["outputs"] == ["y"]
    trace = json.loads((folder / "_tvmdbg_execution_trace.json").read_text())
    assert [e["ph"] for e in trace["traceEvents"]] == ["B", "E"] * 4
    assert all(a["ts"] <= b["ts"] for a, b in zip(trace["traceEvents"], trace["traceEvents"][1:], strict=False))
    tensors = tvm.runtime.load_param_dict((folder / "output_tensors.params").read_bytes())
    assert [*tensors][:2] == [
        "x____topo-index:0____output-num:0", "kernel_0_conv2d_add_relu____topo-index:1____output-num:0"
    ]
    np.testing.assert_array_equal([*tensors.values()][-1].numpy(), m.get_output(0).numpy())
    m.exit()
    assert folder.exists()  # it is the user's


def test_values_are_right_where_memory_is_shared() -> None:
    m = executor(model=cnn())
    m.set_input("x", IMAGE)
    first, second = m.debug_get_output("kernel_0_conv2d_add_relu").numpy(), m.debug_get_output(2).numpy()
    arena = m._program.manifest.arena
    # a later value has the place of an earlier one
    assert any(a.offset == b.offset for k, a in enumerate(arena) for b in arena[k + 1 :])
    assert first.min() == 0 and second.min() < 0  # the first step ends in a relu; the second has its own place
    out = tvm.nd.empty(second.shape)
    np.testing.assert_array_equal(m.debug_get_output(2, out).numpy(), second)
    np.testing.assert_array_equal(m.debug_get_output("x").numpy(), IMAGE)
    m.set_input("x", IMAGE * 2)
    assert not np.array_equal(m.debug_get_output(2).numpy(), second)
    np.testing.assert_array_equal(m.debug_get_output(len(m.nodes) - 1).numpy(), m._program(IMAGE * 2))


def test_every_value_is_what_the_graph_says() -> None:
    """Of a chain of elementwise operators, each a kernel of its own, whose values take turns in two places."""
    x = relay.var("x", shape=(4, 64))
    body: Any = x
    steps = [relay.exp, relay.negative, relay.abs, relay.sqrt, relay.tanh, relay.sigmoid]
    for f in steps:
        body = f(body)
    with tvm.transform.PassContext(opt_level=0, disabled_pass=["FuseOps"]):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), "llvm")
    given = np.random.default_rng(0).random((4, 64), np.float32)
    program = lib.executable
    assert len(program.manifest.steps) == len(steps) and program.manifest.workspace_bytes == 2 * given.nbytes
    known: Any = given
    found = values_of_steps(program, [given])
    meanings: list[Callable[[Any], Any]] = [
        np.exp, np.negative, np.abs, np.sqrt, np.tanh, lambda v: 1 / (1 + np.exp(-v))
    ]
    for meaning, (value,) in zip(meanings, found, strict=True):
        known = meaning(known)
        np.testing.assert_allclose(value, known, rtol=1e-5)
    assert [n.inputs for n in debug_nodes(program.manifest)] == [(), *((k,) for k in range(len(steps)))]


def test_values_of_a_batch_in_parts_are_put_together() -> None:
    program = tvm.compile(cnn(batch=4), config={"relay.SplitBatch.images": 2}, threads=1).executable
    given = np.random.default_rng(0).random((4, 3, 16, 16), np.float32)
    values = values_of_steps(program, [given])
    whole = values_of_steps(
        tvm.compile(cnn(batch=4), config={"relay.SplitBatch.images": -1}, threads=1).executable, [given]
    )
    for (a,), (b,) in zip(values, whole, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert [n.shapes[0][0] for n in debug_nodes(program.manifest)] == [4] * (1 + len(values))


def test_parts_of_a_concatenation_are_read_by_those_who_read_it() -> None:
    x = relay.var("x", shape=(1, 4, 8, 8))
    a, b = (
        relay.nn.conv2d(
            x, relay.const(np.ones((4, 4, k, k), np.float32)), padding=k // 2, kernel_size=(k, k), channels=4
        ) for k in (1, 3)
    )
    joined = relay.concatenate([relay.nn.relu(a), relay.nn.relu(b)], axis=1)
    body = relay.nn.conv2d(joined, relay.const(np.ones((2, 8, 1, 1), np.float32)), kernel_size=(1, 1), channels=2)
    nodes = debug_nodes(relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), "llvm").artifact.manifest)
    readers = {n.op: n.inputs for n in nodes}
    assert (readers["kernel_2_concatenate"], readers["kernel_3_conv2d"]) == ((1, 2), (3,))


def test_single_steps_are_timed(tmp_path: Path) -> None:
    m = executor(tmp_path)
    m.set_input("x", IMAGE)
    times = m.run_individual(number=2, repeat=3)
    assert [len(t) for t in times] == [3] * len(m.nodes)
    assert times[0] == [0.0] * 3 and all(x > 0 for t in times[1:] for x in t)
    assert len(m.run_individual_node(1, number=2, repeat=4).results) == 4
    with pytest.raises(InputError, match=r"node 0 is the input 'x', which takes no time; steps are .* from 1 to 4"):
        m.run_individual_node(0)
    with pytest.raises(InputError, match="there is no node 9; they are numbered from 0 to 4"):
        m.debug_get_output(9)
    with pytest.raises(InputError, match="there is no node 'relu'; the nodes are x, kernel_0_conv2d_add_relu"):
        m.debug_get_output("relu")
    with pytest.raises(InputError, match="has no output 1; it has 1"):
        m.get_node_output(1, 1)
    with pytest.raises(InputError, match="there are no values yet; call run"):
        m.debug_datum.get_output_tensors()
    with pytest.raises(InputError, match="nothing was timed yet; call run"):
        m.debug_datum.get_debug_result()
    with pytest.raises(InputError, match="there is no step 7; the program has 4"):
        values_of_steps(m._program, [IMAGE], 7)


class Steps(MetricCollector):
    """Numbers the steps."""

    at = 0

    def start(self, device: Any) -> int:
        self.at += 1
        return self.at

    def stop(self, started: int) -> dict[str, Metric]:
        return {"Step": Count(started)}


def test_a_profile_of_the_debug_executor() -> None:
    m = executor()
    report = m.profile(x=IMAGE)
    assert [r["Name"] for r in report.calls][:-1] == [n.name for n in m.nodes[1:]]
    assert [r.get("Step") for r in m.profile([Steps()]).calls] == [Count(1), Count(2), Count(3), Count(4), None]


def test_a_profile_of_a_virtual_machine() -> None:
    x = relay.var("x", shape=(2, 3))
    exe = relay.vm.compile(tvm.IRModule.from_expr(relay.nn.softmax(relay.nn.relu(x))), "llvm")
    profiler = tvm.runtime.profiler_vm.VirtualMachineProfiler(exe, tvm.cpu(0))
    report = profiler.profile(np.ones((2, 3), np.float32), func_name="main")
    assert tvm.runtime.profiler_vm.enabled() and "softmax" in str(report) and report.configuration["Executor"] == "VM"
    assert tvm.runtime.profiling.Report.from_json(report.json()).table(False, False, False) == report.table(
        False, False, False)
    found = profiler.profile(x=np.ones((2, 3), np.float32), collectors=[Steps()])
    assert found.calls[0]["Step"] == Count(1)
    with pytest.raises(InputError, match="a compiled program is entered by 'main'"):
        profiler.profile(func_name="other")


def test_a_folder_of_its_own_goes() -> None:
    m = executor()
    folder = m.debug_datum.path
    assert (folder / "_tvmdbg_graph_dump.json").exists()
    m.exit()
    assert not folder.parent.exists()


def test_what_cannot_be_looked_into() -> None:
    mod, _ = relay.frontend.from_onnx(cnn())
    other, _ = relay.frontend.from_onnx(mlp())
    lib, graph = relay.build(mod, "llvm"), relay.build(other, "llvm").get_graph_json()
    with pytest.raises(ArtifactError, match="the graph is of another program"):
        debug_executor.create(graph, lib, tvm.cpu(0))
    loop = relay.parse(
        '#[version = "0.0.5"]\ndef @main(%b: bool, %x: Tensor[(4), float32]) { if (%b) { exp(%x) } else { %x } }'
    )
    control = relay.build(loop, "llvm")
    with pytest.raises(RunError, match="cannot be debugged step by step: it has control flow"):
        debug_executor.create(control.get_graph_json(), control, [tvm.cpu(0)])
    with pytest.raises(InputError, match="has no entry 'nonsense'; it has 'default', and 'debug_create'"):
        lib["nonsense"]


def test_measurements_pause_and_notice_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks, slept = iter([0.0, 0.0, 0.0, 4.0, 10.0, 13.0, 20.0, 23.0]), list[float]()
    with monkeypatch.context() as patched:
        patched.setattr(
            "tilewright.runtime.benchmark.time", SimpleNamespace(perf_counter=lambda: next(ticks), sleep=slept.append)
        )
        found = measure(lambda: None, 3, 1, 0, Pace(5, 100, 2))
    assert found.results == (2.0, 1.5, 1.5)  # the first was too short for the clock, and made of two calls
    assert slept == [0.1]
    with pytest.raises(OptionError, match="repeats_to_cooldown=0 must be at least 1"):
        Pace(repeats_to_cooldown=0)
    m = executor()
    assert len(
        m.benchmark(
            tvm.cpu(), repeat=2, number=1, limit_zero_time_iterations=3, cooldown_interval_ms=0, repeats_to_cooldown=1
        ).results
    ) == 2
    assert len(m.module.time_evaluator("run", tvm.cpu(), 1, 2, 0, 100, 0, 1)().results) == 2
