"""`micro.Session` runs a model in a project, and `micro.testing` has TVM's helpers."""

from __future__ import annotations

import ctypes
import importlib
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planted import planted
from tilewright import IRModule, cpu, micro, nd, relay
from tilewright.base.errors import ArtifactError, InputError, OptionError, RPCError, TargetError
from tilewright.compat.contrib import cc
from tilewright.compat.target import micro as board
from tilewright.compat.testing.micro import get_target
from tilewright.compat.testing.micro.utils import create_header_file, mlf_extract_workspace_size_bytes
from tilewright.relay.backend import Executor, Runtime
from tilewright.runtime.executor import AotModule
from tilewright.search.local import LocalBuilder, LocalRunner
from tilewright.search.measure import MeasureErrorNo, measure
from tilewright.search.ssh import ThisMachine

X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(1, 8)


def built(target: Any) -> Any:
    x, w = relay.var("x", shape=(1, 8), dtype="float32"), relay.var("w", shape=(4, 8), dtype="float32")
    mod = IRModule.from_expr(relay.Function([x, w], relay.tanh(relay.nn.dense(x, w))))
    params = {"w": np.arange(32, dtype=np.float32).reshape(4, 8) / 32}
    return relay.build(mod, target, params=params, executor=Executor("aot"), runtime=Runtime("crt"))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> micro.GeneratedProject:
    folder = tmp_path_factory.mktemp("micro") / "project"
    made = micro.generate_project(
        micro.get_microtvm_template_projects("crt"), built(get_target("crt")), folder,
        {"verbose": False, "workspace_size_bytes": 1024})
    made.build()
    made.flash()
    return made


def test_a_session_runs_the_program_of_a_project(project: micro.GeneratedProject) -> None:
    lib = built("llvm")
    expected = lib["default"](cpu())
    expected.set_input(0, X)
    expected.run()
    with micro.Session(project.transport()) as session:
        executor = AotModule(session.create_aot_executor())
        executor.get_input("x").copyfrom(X)
        executor.run()
        np.testing.assert_allclose(executor.get_output(0).numpy(), expected.outputs[0].numpy(), rtol=1e-4)
        assert executor.get_input_info() == ({"x": (1, 8)}, {"x": "float32"})


def test_a_session_has_local_executors(
    project: micro.GeneratedProject, capsys: pytest.CaptureFixture[str]
) -> None:
    with micro.Session(transport_context_manager=project.transport()) as session:
        results = []
        for create in (micro.create_local_graph_executor, micro.create_local_debug_executor):
            executor = create("{}", session.get_system_lib(), session.device)
            executor.set_input("x", nd.array(X))
            executor.run()
            results.append(executor.get_output(0).numpy())
    assert (results[0] == results[1]).all() and results[0].any()
    assert capsys.readouterr().out.startswith("Node Name  Time(us)\nTotal_time ")


def test_a_project_that_is_not_built_has_no_program(tmp_path: Path) -> None:
    template = micro.get_microtvm_template_projects("crt")
    made = micro.generate_project(template, built("c"), tmp_path / "project")
    with micro.Session(made.transport()) as session, pytest.raises(ArtifactError, match="is not built"):
        session.create_aot_executor()


def test_only_c_can_become_a_project(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"or relay\.build for the target 'c'"):
        micro.generate_project(micro.get_microtvm_template_projects("crt"), built("llvm"), tmp_path / "project")


def test_a_library_of_the_target_c_has_its_text(tmp_path: Path) -> None:
    path = micro.export_model_library_format(built("c -keys=cpu -model=host"), tmp_path / "model.tar")
    with tarfile.open(path) as archive:
        names = archive.getnames()
    assert "./codegen/host/src/default_.c" in names and not [n for n in names if n.endswith(".o")]
    assert mlf_extract_workspace_size_bytes(path) >= 0


def test_the_c_text_of_a_model_is_a_module(tmp_path: Path) -> None:
    lib = built("c").get_lib()
    (module,) = lib.imported_modules
    assert module.type_key == "c" and module.get_function("default") is None and not built("llvm").imported_modules
    lines = module.get_source().split("\n")
    assert any(line.startswith("TVM_DLL int32_t tvmgen_default_") for line in lines[:10])
    (tmp_path / "model.c").write_text(module.get_source())
    cc.create_shared(tmp_path / "model.so", tmp_path / "model.c", cc="cc")
    out = np.zeros((1, 4), np.float32)
    ins, outs = (ctypes.c_void_p * 1)(X.ctypes.data), (ctypes.c_void_p * 1)(out.ctypes.data)
    assert ctypes.CDLL(str(tmp_path / "model.so")).tvmgen_default_run(ins, outs) == 0
    expected = lib["default"](cpu())
    expected.set_input(0, X)
    expected.run()
    np.testing.assert_allclose(out, expected.outputs[0].numpy(), rtol=1e-5)


@pytest.mark.slow
def test_kernels_are_timed_by_programs_of_this_machine() -> None:
    loader = micro.AutoTvmModuleLoader(micro.get_microtvm_template_projects("crt"), {"verbose": False})
    kinds = ["right", "wrong answer"]
    options = {"build_option": {"tir.disable_vectorize": True}}
    with LocalBuilder(
        timeout=120, n_parallel=1, build_kwargs=options, build_func=micro.autotvm_build_func, runtime=Runtime("crt"),
        do_fork=True,
    ) as builder, LocalRunner(
        timeout=30, number=1, repeat=1, cooldown_interval=0, noise=1e9, module_loader=loader
    ) as runner:
        results = measure([planted(k) for k in kinds], builder, runner)
    assert [m.error_no for m in results] == [MeasureErrorNo.NO_ERROR, MeasureErrorNo.WRONG_ANSWER], results
    with pytest.raises(OptionError, match="run on another machine"):
        micro.AutoTvmModuleLoader(micro.get_microtvm_template_projects("qemu-arm"))
    with pytest.raises(OptionError, match="which runs nothing"):
        LocalRunner(module_loader=1)
    with pytest.raises(OptionError, match="build_kwargs has no 'options'"):
        LocalBuilder(build_kwargs={"options": {}})
    machine = ThisMachine()
    with pytest.raises(RPCError, match="failed with status 3"):
        machine.checked("exit 3")
    with pytest.raises(RPCError, match="did not end within"):
        machine.checked("sleep 9", timeout=0.1)


@pytest.mark.parametrize(("module", "name"), [
    ("micro.testing", "get_target"), ("micro.testing.utils", "create_header_file"),
    ("micro.testing.utils", "get_conv2d_relay_module"), ("micro.model_library_format", "export_model_library_format"),
    ("target.target", "micro"), ("runtime.executor.aot_executor", "AotModule"),
])
def test_modules_have_the_names_of_tvm(module: str, name: str) -> None:
    assert callable(getattr(importlib.import_module(f"tilewright.{module}"), name))


def test_a_small_network() -> None:
    module = importlib.import_module("tilewright.micro.testing.utils").get_conv2d_relay_module()
    result = module["main"].ret_type
    assert (result.shape, result.dtype) == ((1, 8, 64, 64), "int32")


def test_targets_of_boards() -> None:
    assert str(get_target("crt")) == "c -keys=cpu -model=host"
    assert board("stm32l4r5zi").mcpu == get_target("zephyr", "stm32l4r5zi").mcpu == "cortex-m4"
    assert board("host", "-vector-width=128") == board("host", ["-vector-width=128"]) != board("host")
    with pytest.raises(TargetError, match="there is no microcontroller 'stm32l4r5z'; did you mean 'stm32l4r5zi'"):
        board("stm32l4r5z")


def test_a_model_for_a_board_is_compiled_as_text(tmp_path: Path) -> None:
    path = micro.export_model_library_format(built(board("stm32f746xx")), tmp_path / "model.tar")
    with tarfile.open(path) as archive:
        assert "./codegen/host/src/default_.c" in archive.getnames()


def test_an_array_as_a_header(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        create_header_file("sample", np.array([[1, -2]], np.int8), "include", archive)
        with pytest.raises(InputError, match="'other' is float64"):
            create_header_file("other", np.zeros(1), "include", archive)
    with tarfile.open(tmp_path / "a.tar") as archive:
        file = archive.extractfile("include/sample.h")
        assert file is not None
        assert file.read().decode().splitlines()[-2:] == [
            "const size_t sample_len = 2;", "int8_t sample[] = {1, -2};"]
