"""`import tvm` gives this package where a program asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tilewright

SCRIPT = """
import sys
import tvm
import tvm.relay as relay
from tvm.contrib import graph_executor
import tilewright
assert tvm is tilewright and relay is tilewright.relay and graph_executor is tilewright.contrib.graph_executor
print(sys.argv[1:], __name__)
"""


def run(*args: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    source = str(Path(tilewright.__file__).parents[1])
    path = os.pathsep.join(filter(None, (env.pop("PYTHONPATH", ""), source)))
    return subprocess.run(
        [sys.executable, *args], cwd=cwd, env={**os.environ, **env, "PYTHONPATH": path}, capture_output=True, text=True,
        check=False)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def folder(cwd: Path) -> str:
    return run("-m", "tilewright.tvm", "--path", cwd=cwd).stdout.strip()


@pytest.mark.parametrize("args", [
    ["-m", "tilewright.tvm", "script.py", "--x"], ["-m", "tilewright.tvm", "-m", "script", "--x"],
    ["-m", "tilewright.tvm", "-c", SCRIPT, "--x"], ["-c", "import tilewright.as_tvm\n" + SCRIPT, "--x"],
])
def test_a_program_imports_tvm(args: list[str], script: Path) -> None:
    done = run(*args, cwd=script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['--x'] __main__\n", "")


def test_the_folder_for_the_path(script: Path) -> None:
    done = run("script.py", "--x", cwd=script, PYTHONPATH=folder(script))
    assert (done.returncode, done.stdout, done.stderr) == (0, "['--x'] __main__\n", "")
    done = run("-m", "tvm.driver.tvmc", "--version", cwd=script, PYTHONPATH=folder(script))
    assert done.stdout == f"tilewright {tilewright.__version__}\n"


@pytest.mark.parametrize(("args", "said"), [
    ([], "usage: python -m tilewright.tvm"), (["-m"], "-m needs an argument"), (["-c"], "-c needs an argument"),
    (["nothing.py"], "there is no file nothing.py"),
])
def test_mistakes_on_the_command_line(args: list[str], said: str, tmp_path: Path) -> None:
    done = run("-m", "tilewright.tvm", *args, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stdout + done.stderr


def test_an_error_of_the_program_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import sys\nsys.exit(7)\n")
    assert run("-m", "tilewright.tvm", "script.py", cwd=tmp_path).returncode == 7


def test_an_installed_tvm_is_named(script: Path) -> None:
    (script / "site" / "tvm").mkdir(parents=True)
    (script / "site" / "tvm" / "__init__.py").write_text("version = 'theirs'\n")
    site = str(script / "site")
    done = run("-m", "tilewright.tvm", "script.py", cwd=script, PYTHONPATH=site)
    assert done.returncode == 0 and f"'import tvm' gives tilewright, not TVM in {site}{os.sep}tvm" in done.stderr
    done = run("-c", "import tilewright, tvm; print(tvm.version)", cwd=script, PYTHONPATH=site)
    assert (done.stdout, done.stderr) == ("theirs\n", "")
    done = run("-c", "import tvm, tilewright.as_tvm", cwd=script, PYTHONPATH=site)
    assert f"'tvm' is already imported from {site}" in done.stderr and done.returncode == 1
