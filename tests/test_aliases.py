"""Second names of modules: TVM's, ONNX Runtime's, and those of earlier versions."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from tilewright.base.absent import family_of
from tilewright.base.errors import MovedModuleWarning
from tilewright.base.public_names import FORMER, PUBLIC, real_name


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_is_the_module(name: str) -> None:
    module = importlib.import_module(f"tilewright.{name}")
    assert module is importlib.import_module(f"tilewright.{PUBLIC[name]}")
    assert module.__spec__ is not None
    assert module.__name__ == module.__spec__.name == f"tilewright.{PUBLIC[name]}"


@pytest.mark.parametrize("name", FORMER)
def test_a_former_name_works_with_a_warning(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"tilewright.{name}", raising=False)
    with pytest.warns(MovedModuleWarning, match=f"'tilewright.{name}' is now 'tilewright.{FORMER[name]}'"):
        module = importlib.import_module(f"tilewright.{name}")
    assert module is importlib.import_module(f"tilewright.{FORMER[name]}")


def test_submodules_are_loaded_once() -> None:
    from tilewright.autotvm.task import space  # type: ignore[import-not-found]

    from tilewright.search.autotvm.task import space as same

    assert space is same
    assert real_name("autotvm.task.space") == "search.autotvm.task.space"
    assert real_name("relay.op") == "relay.op"


@pytest.mark.slow
def test_the_package_has_another_name_where_a_program_gives_it_one() -> None:
    code = (
        "import sys, tilewright; sys.modules['tvm'] = tilewright\n"
        "import tvm.testing, tvm.relay.op.nn, tvm.contrib.graph_executor, tvm.relay.testing.resnet\n"
        "from tvm.autotvm.task import space\n"
        "assert tvm.testing is tilewright.testing and tvm.relay.op is tilewright.relay.op\n"
        "assert sys.modules['tvm.relay.op.nn'] is sys.modules['tilewright.relay.op.nn']\n"
        "assert space is sys.modules['tilewright.search.autotvm.task.space']\n"
        "try:\n    import tvm.nothing\nexcept ModuleNotFoundError as error:\n    print(error)\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "No module named 'tvm.nothing'\n"), done.stderr


def test_names_of_nothing_are_not_found() -> None:
    for name in ("autotvm.nothing", "nothing", "contrib.nothing"):
        with pytest.raises(ModuleNotFoundError, match=r"No module named 'tilewright\."):
            importlib.import_module(f"tilewright.{name}")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["exec.rpc_server", "exec.rpc_tracker", "contrib.accelerator"])
def test_programs_start_by_their_second_names(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", f"tilewright.{name}", "--help"], capture_output=True, text=True,
        check=False
    )
    assert done.returncode == 0, done.stderr
    assert "usage" in done.stdout.lower()


@pytest.mark.parametrize(("file", "name"), [
    ("relay.op.tensor", "exp"), ("relay.op.transform", "reshape"), ("relay.op.nn.nn", "dense"),
    ("relay.transform.transform", "FoldConstant"), ("tir.expr", "IntImm"), ("te.operation", "placeholder"),
    ("topi.transform", "expand_dims"), ("topi.nn.conv2d", "conv2d_nchw"), ("topi.nn.softmax", "softmax"),
])
def test_a_file_of_tvm_has_the_names_of_its_package(file: str, name: str) -> None:
    found = getattr(importlib.import_module(f"tilewright.{file}"), name)
    package = importlib.import_module(f"tilewright.{file.rpartition('.')[0]}")
    assert found is getattr(package, name)
    assert callable(getattr(package, "conv2d", found))  # no module hides a function


@pytest.mark.parametrize(("name", "text"), [
    ("topi.cuda.conv2d", "TVM's 'tvm.topi.cuda' is not in tilewright: code for GPUs is not generated; use the targets"),
    ("relay.frontend.keras", "TVM's 'tvm.relay.frontend.keras' is not in tilewright: models of this framework"),
])
def test_a_module_of_tvm_that_is_not_here_says_why(name: str, text: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=text):
        importlib.import_module(f"tilewright.{name}")


@pytest.mark.parametrize(("module", "name", "text"), [
    ("tilewright.target", "hexagon", "TVM's 'tvm.target.hexagon' is not in tilewright: there is no back end for"),
    ("tilewright.relay.frontend", "from_keras", "an ONNX or TFLite file that the framework exports"),
    ("tilewright.relay", "no_such_name", "module 'tilewright.relay' has no attribute 'no_such_name'"),
])
def test_a_name_of_tvm_that_is_not_here_says_why(module: str, name: str, text: str) -> None:
    found = importlib.import_module(module)
    assert not hasattr(found, name)
    with pytest.raises(AttributeError, match=text):
        getattr(found, name)


def test_families_of_absent_names_cover_few_public_modules() -> None:
    assert [n for n in PUBLIC if family_of(n) is not None] == [
        "_ffi", "contrib.dnnl", "exec", "meta_schedule.testing.relay_workload", "meta_schedule.testing.tlcbench",
        "testing", "topi.arm_cpu.conv2d_int8"]
