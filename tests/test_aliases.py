"""Second names of modules: TVM's, ONNX Runtime's, and those of earlier versions."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from tilewright.base.aliases import FORMER, PUBLIC, real_name
from tilewright.base.errors import MovedModuleWarning


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
