"""The modules of `tvmc` under TVM's names: texts of a command line to shapes, targets, executors, pools and passes."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.backends.targets.target import Target
from tilewright.base.errors import OptionError
from tilewright.driver import tvmc
from tilewright.driver.tvmc.config_options import convert_config_json_to_cli, get_configs_json_dir
from tilewright.driver.tvmc.frontends import OnnxFrontend, get_frontend_by_name, get_frontend_names, guess_frontend
from tilewright.driver.tvmc.pass_config import parse_configs
from tilewright.driver.tvmc.pass_list import parse_pass_list_str
from tilewright.driver.tvmc.registry import generate_registry_args, reconstruct_registry_entity
from tilewright.driver.tvmc.result_utils import get_top_results
from tilewright.driver.tvmc.shape_parser import parse_shape_string
from tilewright.driver.tvmc.target import (
    generate_target_args,
    parse_target,
    reconstruct_target_args,
    target_from_cli,
    tokenize_target,
)
from tilewright.driver.tvmc.tracker import tracker_host_port_from_cli
from tilewright.driver.tvmc.transform import apply_graph_transforms
from tilewright.driver.tvmc.workspace_pools import generate_workspace_pools_args, workspace_pools_recombobulate
from tilewright.ir.memory_pools import PoolInfoProperties, WorkspaceMemoryPools, WorkspacePoolInfo
from tilewright.relay.backend import Executor, Runtime
from tilewright.tir import Any as UnknownSize


def small() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 4, 6, 6))
    w = relay.const(np.random.default_rng(0).standard_normal((2, 4, 3, 3)).astype("float32"))
    return tvm.IRModule.from_expr(relay.Function([x], relay.nn.conv2d(x, w, channels=2, kernel_size=(3, 3))))


@pytest.mark.parametrize("text", ["a:[1, 2] gpu/b:0:[3]", "a:[1,2],gpu/b:0:[3]", " a : [1,2], gpu/b:0 :[3] "])
def test_shapes_are_read(text: str) -> None:
    assert parse_shape_string(text) == {"a": [1, 2], "gpu/b:0": [3]}


def test_a_negative_size_is_unknown() -> None:
    first, second = parse_shape_string("a:[-1,3]")["a"]
    assert isinstance(first, UnknownSize) and second == 3


@pytest.mark.parametrize("text", ["a:1,2", "a:[x]", "[1,2]", "a:[]"])
def test_other_texts_are_no_shapes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="cannot read"):
        parse_shape_string(text)


def test_targets_are_split_as_on_the_command_line() -> None:
    assert tokenize_target("cmsis-nn -mcpu=m55, c -mattr='a, b'") == [
        "cmsis-nn", "-mcpu=m55", ",", "c", "-mattr='a, b'"]
    first, last = parse_target("cmsis-nn -mcpu=m55, llvm -num-cores=2")
    assert (first["name"], first["opts"], first["is_tvm_target"]) == ("cmsis-nn", {"mcpu": "m55"}, False)
    assert (last["name"], last["opts"], last["is_tvm_target"]) == ("llvm", {"num-cores": "2"}, True)


def test_options_of_targets_become_targets() -> None:
    parser = argparse.ArgumentParser()
    generate_target_args(parser)
    args = parser.parse_args(
        ["--target=cmsis-nn, llvm", "--target-llvm-num-cores=2", "--target-cmsis-nn-mcpu=cortex-m55"])
    found, accelerators = target_from_cli(args.target, reconstruct_target_args(args))
    assert found == Target("llvm -num-cores=2")
    assert [(a["name"], a["opts"]) for a in accelerators] == [("cmsis-nn", {"mcpu": "cortex-m55"})]


def test_the_last_of_two_processors_is_the_host() -> None:
    found, accelerators = target_from_cli(
        "opencl -device=mali, llvm -mtriple=aarch64-linux-gnu",
        {"llvm": {"mcpu": "cortex-m3"}, "opencl": {"max_num_threads": 404}})
    assert accelerators == [] and "-device=mali" in str(found) and "-max_num_threads=404" in str(found)
    assert str(found.host) == "llvm -keys=arm_cpu,cpu -mtriple=aarch64-linux-gnu -mcpu=cortex-m3"


@pytest.mark.parametrize(
    ("text", "options", "message"), [
        ("llvm, llvm", {}, "'llvm' is given twice"),
        ("cuda, opencl, llvm", {}, "has 3 processors"),
        ("nothing, llvm", {}, "there is no accelerator 'nothing'"),
        ("llvm", {"c": {"mcpu": "x"}}, "Passed --target-c-mcpu but did not specify c target"),
        ("-mcpu=native", {}, "has no target before it"),
    ])
def test_other_targets_are_refused(text: str, options: dict[str, dict[str, str]], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        target_from_cli(text, options)


def test_options_of_accelerators_reach_the_functions() -> None:
    x = relay.var("x", shape=(1, 4, 4, 3), dtype="int8")
    mod = relay.op.contrib.partition_for("cmsis-nn", tvm.IRModule.from_expr(relay.nn.max_pool2d(
        x, (2, 2), layout="NHWC")), mcpu="cortex-m55")
    (part,) = (f for _, f in mod.items() if f.attrs.get("Compiler") == "cmsis-nn")
    assert part.attrs["cmsis-nn.mcpu"] == "cortex-m55"


def test_partition_functions_are_found_in_the_package() -> None:
    contrib = relay.op.contrib
    assert contrib.partition_for_ethosn is contrib.ethosn.partition_for_ethosn
    assert contrib.partition_for_ethosn78 is contrib.ethosn.partition_for_ethosn78
    with pytest.raises(AttributeError):
        _ = contrib.partition_for_nothing


def test_executors_and_runtimes_are_built_from_arguments() -> None:
    parser = argparse.ArgumentParser()
    generate_registry_args(parser, Executor, "graph")
    generate_registry_args(parser, Runtime)
    args = parser.parse_args(["--executor=aot", "--executor-aot-unpacked-api=1"])
    made = reconstruct_registry_entity(args, Executor)
    assert made == Executor("aot", {"unpacked-api": True}) and reconstruct_registry_entity(args, Runtime) is None
    args = parser.parse_args(["--executor-aot-unpacked-api=1"])
    with pytest.raises(OptionError, match="Passed --executor-aot-unpacked-api but did not specify aot executor"):
        reconstruct_registry_entity(args, Executor)
    with pytest.raises(OptionError, match='Executor "woof" is not defined'):
        reconstruct_registry_entity(parser.parse_args(["--executor=woof"]), Executor)


def test_pass_options_are_read() -> None:
    found = parse_configs([
        "tir.add_lower_pass=1,tir.transform.UnrollLoop", "tir.add_lower_pass=2,tvm.tir.transform.HoistIfThenElse",
        "relay.FuseOps.max_depth=8"])
    assert found["relay.FuseOps.max_depth"] == 8
    phases, passes = zip(*found["tir.add_lower_pass"], strict=True)
    assert phases == (1, 2) and [type(p).__name__ for p in passes] == ["UnrollLoop", "HoistIfThenElse"]
    for text in ("tir.add_lower_pass=tir.transform.UnrollLoop,1", "tir.add_lower_pass=1,tir.transform.Nothing",
                 "nothing=1", "relay.FuseOps.max_depth"):
        with pytest.raises(OptionError):
            parse_configs([text])


def test_names_of_passes_are_read() -> None:
    assert parse_pass_list_str("FoldScaleAxis, FuseOps") == ["FoldScaleAxis", "FuseOps"]
    with pytest.raises(argparse.ArgumentTypeError, match=r"there is no pass Mine; choose from .*FuseOps"):
        parse_pass_list_str("Mine,FuseOps")


def test_pools_are_built_from_arguments() -> None:
    parser = argparse.ArgumentParser()
    generate_workspace_pools_args(parser)
    args = parser.parse_args([
        "--workspace-pools=sram,flash", "--workspace-pools-targets=sram:c,llvm", "--workspace-pools-targets=flash:c",
        "--workspace-pools-size-hint-bytes=sram:400", "--workspace-pools-size-hint-bytes=sram:500",
        "--workspace-pools-target-burst-bytes=sram:c:2"])
    pools = workspace_pools_recombobulate(args, [Target("c"), Target("llvm")])
    assert pools is not None
    first, second = pools.pools
    assert (first.pool_name, first.size_hint_bytes, list(first.target_burst_bytes.values())) == ("sram", 500, [2])
    assert (second.pool_name, second.size_hint_bytes, len(second.targets)) == ("flash", -1, 1)
    with pytest.raises(OptionError, match="the pool 'sram' has no target"):
        workspace_pools_recombobulate(parser.parse_args(["--workspace-pools=sram"]), [Target("c")])


def test_a_program_that_does_not_fit_its_pool_is_refused(tmp_path: Path) -> None:
    properties = PoolInfoProperties(size_hint_bytes=0)
    pools = WorkspaceMemoryPools([WorkspacePoolInfo("sram", [Target("llvm")], properties)])
    x = relay.var("x", shape=(64, 64))
    body = relay.nn.dense(relay.nn.softmax(relay.nn.dense(x, x)), x)
    model = tvmc.TVMCModel(tvm.IRModule.from_expr(relay.Function([x], body)))
    with pytest.raises(OptionError, match="the pool 'sram' has 0 bytes"):
        tvmc.compile(model, "llvm", package_path=tmp_path / "m.tar", workspace_pools=pools)
    two = WorkspaceMemoryPools([*pools.pools, *pools.pools])
    with pytest.raises(OptionError, match="2 pools are given"):
        tvmc.compile(model, "llvm", package_path=tmp_path / "m.tar", workspace_pools=two)


def test_configurations_become_parameters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert convert_config_json_to_cli({
        "targets": [{"kind": "c", "mcpu": "m55"}, {"kind": "cmsis-nn"}], "executor": {"kind": "aot", "link-params": 1},
        "pass-config": {"a.b": "1"}, "opt-level": 3}) == [
            {"target_c_mcpu": "m55"}, {"target": "c, cmsis-nn"}, {"executor": "aot"},
            {"executor_aot_link_params": 1}, {"pass_config": ["a.b=1"]}, {"opt_level": 3}]
    shipped = get_configs_json_dir()
    monkeypatch.setenv("TVM_CONFIGS_JSON_DIR", str(tmp_path / "nothing"))
    assert get_configs_json_dir() == shipped
    monkeypatch.setenv("TVM_CONFIGS_JSON_DIR", str(tmp_path))
    assert get_configs_json_dir() == tmp_path


def test_formats_are_found_by_name_and_ending() -> None:
    assert get_frontend_names() == ["onnx", "tflite", "pytorch", "relay"]
    assert isinstance(guess_frontend("m.onnx"), OnnxFrontend) and get_frontend_by_name("relay").suffixes() == ["relay"]
    for call, text in ((get_frontend_by_name, "keras"), (get_frontend_by_name, "nothing"), (guess_frontend, "m.txt")):
        with pytest.raises(OptionError):
            call(text)


def test_layouts_and_precision_are_applied() -> None:
    mod = small()
    text = apply_graph_transforms(mod, {"desired_layout": ["NHWC"]}).astext(show_meta_data=False)
    assert 'data_layout="NHWC"' in text
    half = {"mixed_precision": True, "mixed_precision_ops": ["nn.conv2d"], "mixed_precision_acc_type": "float16"}
    assert 'out_dtype="float16"' in apply_graph_transforms(mod, half).astext(show_meta_data=False)
    assert apply_graph_transforms(mod, None) is mod
    with pytest.raises(OptionError, match="2 layouts for 3 operators"):
        apply_graph_transforms(mod, {"desired_layout": ["NHWC", "NCHW"]})


def test_addresses_arrays_and_largest_elements() -> None:
    assert tracker_host_port_from_cli("1.2.3.4:91") == ("1.2.3.4", 91)
    assert tracker_host_port_from_cli("host") == ("host", 9090)
    assert tracker_host_port_from_cli("") == (None, None)
    assert tvmc.runner.generate_tensor_data((2, 3), "uint8", "ones").tolist() == [[1] * 3] * 2
    with pytest.raises(OptionError, match="there is no 'whatever'"):
        tvmc.runner.generate_tensor_data((2, 3), "uint8", "whatever")
    top = get_top_results(tvmc.TVMCResult({"output_0": np.array([[1, 9, 3]])}), 2)
    assert top.tolist() == [[1, 2], [9, 3]]


def test_tasks_by_number() -> None:
    from tilewright.driver.tvmc.autotuner import TaskFilterError, filter_tasks, gen_task_list
    from tilewright.search.autotvm.task import Task

    tasks = list("abcdefghij")
    assert filter_tasks(tasks, "6-") == (["g", "h", "i", "j"], False)
    assert filter_tasks(tasks, "-2") == (["a", "b", "c"], False) and filter_tasks(tasks, "help") == ([], True)
    assert filter_tasks(tasks, "0,4-5,9,list") == (["a", "e", "f", "j"], True)
    assert filter_tasks(tasks, "1, all")[0] == ["b", "a", *tasks[2:]]
    for text, message in (
        ("10", "Task index out of range"), ("1-10", "Right-hand side expression out of range"),
        ("-", "Missing lhs or rhs for range expression"), ("-1-", "Malformed range expression"),
        ("x", "cannot read 'x'"),
    ):
        with pytest.raises(TaskFilterError, match=message):
            filter_tasks(tasks, text)
    assert issubclass(TaskFilterError, AssertionError)
    made = gen_task_list([Task("no template", (1,)), Task("x" * 200, ())], False).splitlines()
    assert made[1] == "  0. Task(func_name=no template, args=(1,), kwargs={}, workload=('no template', 1)) (len=?)"
    assert made[2].endswith("xxx... (len=?)")


def test_missing_files_are_python_s() -> None:
    from tilewright.driver import tvmc

    with pytest.raises(FileNotFoundError, match=r"the model 'not/a/file\.onnx' does not exist"):
        tvmc.load("not/a/file.onnx")


def test_a_package_without_a_path_is_removed_when_the_process_ends() -> None:
    program = (
        "from pathlib import Path\nfrom tilewright.driver.tvmc.model import TVMCModel\n"
        "path = Path(TVMCModel.default_package_path())\npath.write_text('x')\nprint(path)")
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    path = Path(done.stdout.strip())
    assert path.name == "package.tar" and not path.parent.exists()
