"""The names under which scripts of TVM v0.8 to v0.13 find things: `import tilewright as tvm`."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from small_models import mlp
from tilewright import relay
from tilewright.base.errors import CompileError, InputError, OptionError, TargetError

NAMES = (
    "autotvm.LocalBuilder", "autotvm.LocalRunner", "autotvm.RPCRunner", "autotvm.apply_history_best",
    "autotvm.callback.log_to_file", "autotvm.callback.progress_bar",
    "autotvm.measure_option", "autotvm.record.pick_best", "autotvm.task.DispatchContext", "autotvm.task.create",
    "autotvm.task.dispatcher.ApplyHistoryBest",
    "autotvm.task.extract_from_program", "autotvm.task.space.ConfigSpace", "autotvm.template",
    "autotvm.tuner.DropletTuner", "autotvm.tuner.GATuner",
    "autotvm.tuner.XGBTuner",
    "IRModule", "IRModule.from_expr", "TVMError", "__version__", "contrib.graph_executor.GraphModule",
    "contrib.graph_executor.create", "build", "cpu",
    "driver.tvmc.TVMCModel", "driver.tvmc.compile", "driver.tvmc.load", "driver.tvmc.run", "driver.tvmc.tune",
    "device", "error.OpNotImplemented", "error.TVMError", "instrument.PassTimingInstrument",
    "instrument.pass_instrument",
    "ir.IRModule", "ir.assert_structural_equal", "ir.structural_equal", "ir.structural_hash",
    "ir.transform.PassContext", "ir.transform.Sequential",
    "ir.transform.module_pass", "nd.NDArray", "nd.array", "nd.cpu", "nd.empty", "nd.from_dlpack", "relay.Call",
    "relay.Function", "relay.Var",
    "ir.register_op_attr", "relay.annotation.compiler_begin", "relay.annotation.compiler_end",
    "relay.dataflow_pattern.is_op", "relay.dataflow_pattern.rewrite",
    "relay.op.annotation.compiler_begin", "relay.op.contrib.get_pattern_table",
    "relay.op.contrib.register_pattern_table", "relay.qnn.op.conv2d",
    "relay.transform.AnnotateTarget", "relay.transform.MergeComposite", "relay.transform.MergeCompilerRegions",
    "relay.transform.PartitionGraph",
    "relay.analysis", "relay.build", "relay.const", "relay.frontend.from_onnx", "relay.nn.conv2d",
    "relay.transform.FoldConstant",
    "relay.transform.FuseOps", "relay.transform.InferType", "relay.transform.SimplifyInference",
    "relay.transform.function_pass", "relay.var",
    "lower", "runtime.load_module", "target.Target", "target.Target.current", "te.compute", "te.create_schedule",
    "te.extern", "te.placeholder",
    "relay.einsum", "relay.random.threefry_key", "relay.searchsorted", "relay.topk", "relay.vision.non_max_suppression",
    "relay.vision.roi_align",
    "tir", "tir.ir_builder.create", "topi", "topi.argsort", "topi.image.resize2d", "topi.random.uniform",
    "topi.vision.non_max_suppression",
    "auto_scheduler.ApplyHistoryBest", "auto_scheduler.ComputeDAG", "auto_scheduler.HardwareParams",
    "auto_scheduler.LocalBuilder",
    "auto_scheduler.LocalRunner", "auto_scheduler.PreloadMeasuredStates", "auto_scheduler.RPCRunner",
    "auto_scheduler.RandomModel",
    "auto_scheduler.RecordReader", "auto_scheduler.RecordToFile", "auto_scheduler.SearchTask",
    "auto_scheduler.SketchPolicy",
    "auto_scheduler.TaskScheduler", "auto_scheduler.TuningOptions", "auto_scheduler.XGBModel",
    "auto_scheduler.extract_tasks",
    "auto_scheduler.load_best_record", "auto_scheduler.load_records", "auto_scheduler.make_workload_key",
    "auto_scheduler.measure.MeasureInput",
    "auto_scheduler.measure_record.load_record_from_string", "auto_scheduler.register_workload",
    "auto_scheduler.save_records",
    "contrib.debugger.debug_executor.GraphModuleDebug", "contrib.debugger.debug_executor.create",
    "runtime.profiling.Count", "runtime.profiling.Duration",
    "runtime.profiling.Percent", "runtime.profiling.Ratio", "runtime.profiling.Report",
    "runtime.profiling.profile_function", "utils.estimate_peak_bandwidth",
    "utils.estimate_peak_fma_flops", "utils.roofline_analysis",
    "transform.Pass",
    "transform.PassContext", "transform.PassContext.current", "transform.PrintIR", "transform.Sequential",
    "transform.module_pass",
)


@pytest.mark.parametrize("name", NAMES)
def test_name_is_there_in_a_new_process_too(name: str) -> None:
    found: object = tvm
    for part in name.split("."):
        found = getattr(found, part)
    assert found is not None


@pytest.mark.slow
def test_names_need_no_other_import() -> None:
    code = "import tilewright as tvm\n" + "\n".join(f"tvm.{name}" for name in NAMES)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_is_listed_is_there() -> None:
    for module in ("", ".relay", ".transform", ".error", ".instrument", ".contrib", ".ir", ".runtime", ".target"):
        found = importlib.import_module(f"tilewright{module}")
        assert [name for name in found.__all__ if not hasattr(found, name)] == []
        assert set(found.__all__) <= set(dir(found))


def test_names_that_are_not_there() -> None:
    for module in (tvm, relay, tvm.contrib):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nonsense'"):
            _ = module.nonsense
    assert tvm.cpu() == tvm.device("llvm", 0) == tvm.nd.cpu(0)
    assert issubclass(tvm.error.TVMError, RuntimeError)


# --- relay.build
# --------------------------------------------------------------------------------------------------------

X = np.random.default_rng(0).standard_normal((2, 16), np.float32)


def run(lib: tvm.runtime.FactoryModule) -> np.ndarray:
    module = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(x=X)
    answer: np.ndarray = module.get_output(0).numpy()
    return answer


@tvm.instrument.pass_instrument
class Names:
    """The names of the passes that ran."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def run_before_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        self.names.append(info.name)


def test_the_context_around_build_rules() -> None:
    mod, params = relay.frontend.from_onnx(mlp(), freeze_params=False)
    assert set(params) == {"w0", "w1", "b0", "b1"}
    expected = run(relay.build(mod, "llvm", params=params))
    seen = []
    for level, disabled in ((0, []), (3, []), (3, ["FoldScaleAxis"])):
        names: Any = Names()
        with tvm.transform.PassContext(opt_level=level, disabled_pass=disabled, instruments=[names]):
            np.testing.assert_allclose(run(relay.build(mod, "llvm", params=params)), expected, rtol=1e-5, atol=1e-6)
        seen.append(set(names.names))
    assert "FoldScaleAxis" not in seen[0]
    assert "FoldScaleAxis" in seen[1]
    assert seen[2] == seen[1] - {"FoldScaleAxis"}


def test_ways_to_build() -> None:
    mod, params = relay.frontend.from_onnx(mlp())
    assert params == {}
    expected = run(relay.build(mod, target="llvm"))
    with tvm.target.Target("llvm"):
        np.testing.assert_array_equal(run(relay.build(mod)), expected)
    np.testing.assert_array_equal(run(relay.build(mod["main"], {"kind": "llvm"}, target_host="llvm")), expected)
    _, lib, no_params = relay.build(mod, "llvm")
    assert no_params == {}
    np.testing.assert_array_equal(run(lib), expected)


def test_builds_that_cannot_be() -> None:
    mod, params = relay.frontend.from_onnx(mlp(), freeze_params=False)
    with pytest.raises(TargetError, match="no target is set here; write `with Target"):
        relay.build(mod, params=params)
    with pytest.raises(TargetError, match="'lvm' is not a kind of target"):
        relay.build(mod, "lvm", params=params)
    with pytest.raises(
        OptionError,
        match="target_host is 'llvm -mcpu=x86-64', but code for 'llvm' runs on that target itself; omit target_host"
    ):
        relay.build(mod, "llvm", target_host="llvm -mcpu=x86-64", params=params)
    with pytest.raises(CompileError, match=r"relay.build takes an IRModule or a Relay function, but was given a str"):
        relay.build("model.onnx", "llvm")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="parameter 'w0' has"):
        relay.build(mod, "llvm", params={"w0": np.zeros((3, 3), np.float32)})


def test_an_exported_library_comes_back(tmp_path: object) -> None:
    mod, _ = relay.frontend.from_onnx(mlp())
    lib = relay.build(mod, "llvm")
    path = lib.export_library(f"{tmp_path}/m.tar")
    again = tvm.runtime.load_module(path)
    assert isinstance(again, tvm.runtime.FactoryModule)
    np.testing.assert_array_equal(run(again), run(lib))
