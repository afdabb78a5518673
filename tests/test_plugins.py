"""Accelerators that packages bring by entry points: found by targets, by pattern tables and by artifacts, in a process
of its own each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.base.errors import TargetError
from tilewright.base.plugins import GROUP, accelerator_names, find_accelerator

FILE = '''
import numpy as np
from tilewright.contrib.accelerator import Accelerator, Memory, forms

lanes = Accelerator("lanes", far=Memory("dram", 1 << 20), near=Memory("sram", 8 << 10), dtypes=("float32",), prepare=lambda mod: mod)

@lanes.instruction(0x10, x="n h w c", y="n h w c", dtypes={"x": "float32", "y": "float32"}, cycles=lambda n, h, w, c, **_: n * h * w * c)
def relu(x):
    return np.maximum(x, 0)

@lanes.operator(forms.relu())
def larger(f):
    f.require(len(f.x.shape) == 4, "images", "reshape it to four dimensions")
    return relu(x=f.x, y=f.y)

lanes.register()
'''  # noqa: E501
BUILD = """
import numpy as np, tilewright as tvm
from tilewright import relay
x = relay.var("x", shape=(1, 4, 4, 8), dtype="float32")
mod = tvm.IRModule.from_expr(relay.Function([x], relay.op.exp(relay.nn.relu(x))))
assert [row[0] for row in relay.op.contrib.get_pattern_table("lanes")] == ["lanes.larger"]
m = tvm.compile(mod, target="lanes, llvm")
assert [k.type_key for k in m.artifact.modules] == ["lanes"]
m.save("m.so")
"""
RUN = """
import sys, numpy as np, tilewright
m = tilewright.load("m.so")
v = np.linspace(-1, 1, 128, dtype=np.float32).reshape(1, 4, 4, 8)
np.testing.assert_allclose(m(v), np.exp(np.maximum(v, 0)), rtol=1e-6)
assert "tilewright.relay" not in sys.modules
"""


def package(folder: Path, name: str = "lanes", value: str = "lanes_accelerator:lanes", source: str = FILE) -> None:
    """A package with one module and one entry point, as an installation leaves it."""
    (folder / "lanes_accelerator.py").write_text(source, encoding="utf-8")
    metadata = folder / "lanes_accelerator-1.0.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: lanes-accelerator\nVersion: 1.0\n", encoding="utf-8"
    )
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {value}\n", encoding="utf-8")


def run(code: str, folder: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([*map(str, paths), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env={**os.environ, "PYTHONPATH": path}, capture_output=True,
        text=True, check=False
    )


@pytest.mark.slow
def test_a_package_brings_an_accelerator(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    package(site)
    for code in (BUILD, RUN):
        done = run(code, tmp_path, site)
        assert done.returncode == 0, done.stderr
    without = run(RUN, tmp_path)
    assert "m.so: it has a module of the kind 'lanes', which nothing here can load" in without.stderr


@pytest.mark.slow
def test_a_file_without_an_entry_point(tmp_path: Path) -> None:
    """Its name is known once it ran: to targets, tables, reports, artifacts, and the commands that run it."""
    (tmp_path / "lanes.py").write_text(FILE, encoding="utf-8")
    for code in ("import lanes" + BUILD, "import lanes" + RUN):
        done = run(code, tmp_path, tmp_path)
        assert done.returncode == 0, done.stderr
    command = "from tilewright.driver.main import main; sys.exit(main(['run', 'm.so', *sys.argv[1:]]))"
    for plugin, wanted in (([], 1), (["--plugin", "lanes.py"], 0)):
        done = run(f"import sys; sys.argv[1:] = {plugin}; {command}", tmp_path)
        assert done.returncode == wanted, done.stderr
    assert "the code that registers it" in run(f"import sys; {command}", tmp_path).stderr


@pytest.mark.slow
def test_a_file_that_is_run_again_replaces_its_table(tmp_path: Path) -> None:
    (tmp_path / "lanes.py").write_text(FILE, encoding="utf-8")
    code = """
import runpy
from tilewright.relay.op.contrib import get_pattern_table
from tilewright.base.plugins import find_accelerator
runpy.run_path("lanes.py")
assert [row[0] for row in get_pattern_table("lanes")] == ["lanes.larger"]
source = open("lanes.py").read().replace("def larger", "def other")
open("lanes.py", "w").write(source)
again = runpy.run_path("lanes.py")["lanes"]
assert [row[0] for row in get_pattern_table("lanes")] == ["lanes.other"] and find_accelerator("lanes") is again
"""
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr


def test_an_accelerator_that_cannot_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, name="gone", value="lanes_accelerator:other")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "gone" in accelerator_names() and "npu" in accelerator_names()
    with pytest.raises(
        TargetError,
        match=r"the accelerator 'gone' cannot be imported from lanes_accelerator:other: .*has no attribute 'other'; "
        r"repair or remove the package"
    ):
        find_accelerator("gone")
    assert find_accelerator("none") is None


def test_the_one_that_is_built_in_needs_no_installation() -> None:
    found = find_accelerator("npu")
    assert found is not None and found.name == "npu"
