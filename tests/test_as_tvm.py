"""`import tvm` gives this package where a program asks for it."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import daily
import tilewright
from tilewright.base import absent
from tvm_names import reasons

PAGE = Path(__file__).parent.parent / "docs" / "tvm.md"
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


@pytest.mark.slow
@pytest.mark.parametrize("args", [
    ["-m", "tilewright.tvm", "script.py", "--x"], ["-m", "tilewright.tvm", "-m", "script", "--x"],
    ["-m", "tilewright.tvm", "-c", SCRIPT, "--x"], ["-c", "import tilewright.as_tvm\n" + SCRIPT, "--x"],
])
def test_a_program_imports_tvm(args: list[str], script: Path) -> None:
    done = run(*args, cwd=script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "['--x'] __main__\n", "")


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_page_on_tvm_runs(tmp_path: Path) -> None:
    page = PAGE.read_text(encoding="utf-8")
    outputs = []
    for source in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        done = run("-c", source, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        outputs.append(done.stdout)
    assert "Tensor[(8, 3, 3, 3), float32]" in outputs[0]
    assert len(outputs) == 3 and all(text in page for text in outputs[1:])


def test_the_page_on_tvm_names_all_families_of_absent_names() -> None:
    assert reasons() in PAGE.read_text(encoding="utf-8")


def test_names_that_are_listed_as_absent_are_absent_and_say_so() -> None:
    wrong = []
    for line in daily.sample(absent.ABSENT_NAMES.read_text(encoding="utf-8").splitlines(), 40):
        module, *names = line.split()
        try:
            found = importlib.import_module(module.replace("tvm", "tilewright", 1))
        except ImportError as error:
            wrong += [] if " is not in tilewright yet" in str(error) else [f"{module}: {error}"]
            continue
        for name in names:
            with pytest.raises(AttributeError) as caught:
                getattr(found, name)
            if not re.search(rf"{name}' is not (in tilewright yet|supported)", str(caught.value)):
                wrong.append(f"{module}.{name}: {caught.value}")
    assert not wrong, "\n".join(wrong)
