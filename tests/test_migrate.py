"""`tilewright migrate` finds the names of TVM that a program uses, and says of each whether it is here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilewright.driver.main import main
from tilewright.driver.migration.rows import ABSENT, DIFFERENT, HERE, Migration, migration
from tilewright.driver.migration.uses import uses_below

PROGRAM = """
import tvm
import tvm.contrib.cublas
from tvm import relay as r, te
from tvm.script import tir as T

x = r.var("x", shape=(4,))
y = r.nn.relu(x).astype("float32")
nn = r.nn
z = nn.softmax(x, axis=0)
s = te.create_schedule([], unknown=1)
f = tvm.get_global_func("my.function")
g = tvm.get_global_func("runtime.no_such_function")
tvm.register_func("my.function", lambda: tvm.no_such_name)
target = tvm.target.Target("cuda")

@T.prim_func
def loop(a: T.handle) -> None:
    T.evaluate(T.anything_at_all(0))

def local(te):
    return te.unknown

with tvm.transform.PassContext(opt_level=3, config={"tir.disable_vectorize": True, "tir.no_such_option": 1}):
    relay = r.build(tvm.IRModule.from_expr(y), target)
    relay.nothing
"""


@pytest.fixture
def found(tmp_path: Path) -> Migration:
    (tmp_path / "program.py").write_text(PROGRAM)
    return migration(tmp_path)


def states(found: Migration) -> dict[str, tuple[str, str]]:
    return {row.name: (row.state, row.reason) for row in found.rows}


def test_each_name_has_a_state(found: Migration) -> None:
    assert {name: state for name, (state, _) in states(found).items()} == {
        "tvm.relay": HERE, "tvm.te": HERE, "tvm.script.tir": HERE, "tvm.script.tir.prim_func": HERE,
        "tvm.relay.var": HERE, "tvm.relay.nn": HERE, "tvm.relay.nn.relu": HERE, "tvm.relay.build": HERE,
        "tvm.IRModule.from_expr": HERE, "tvm.get_global_func": HERE, "tvm.register_func": HERE,
        "tvm.target.Target": HERE, "tvm.transform.PassContext": HERE, "my.function": HERE,
        "tir.disable_vectorize": HERE, "tvm.relay.nn.softmax": HERE, "tvm.te.create_schedule": DIFFERENT,
        "tvm.contrib.cublas": ABSENT,
        "tvm.no_such_name": ABSENT, "cuda": ABSENT, "tir.no_such_option": ABSENT, "runtime.no_such_function": ABSENT,
    }


def test_a_row_says_why_and_what_to_use(found: Migration) -> None:
    rows = states(found)
    assert rows["tvm.contrib.cublas"][1] == "code for GPUs is not generated; use the targets 'llvm' and 'c'"
    assert rows["tvm.te.create_schedule"][1] == "without the argument unknown"
    assert rows["cuda"][1].startswith("'cuda' is not a kind of target")
    assert rows["tir.no_such_option"][1].startswith("there is no configuration option 'tir.no_such_option'")
    assert rows["tvm.no_such_name"][1] == "not here yet"


def test_a_row_says_where(found: Migration) -> None:
    places = {row.name: row.places for row in found.rows}
    assert places["tvm.no_such_name"] == ("program.py:14", )
    assert places["tvm.get_global_func"] == ("program.py:12", "program.py:13")


def test_too_many_arguments_are_a_difference(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import tvm\ntvm.cpu(0, 1, 2)\ntvm.cpu(*[0, 1, 2])\n")
    assert [(r.name, r.state, r.reason, r.places) for r in migration(tmp_path).rows] == [
        ("tvm.cpu", DIFFERENT, "takes 1 arguments by position, not 3", ("a.py:2", ))]


@pytest.mark.parametrize("source", [
    "import tilewright.as_tvm\nimport tvm\ntvm.cpu()\n", "import tilewright as tvm\ntvm.cpu()"])
def test_programs_of_this_package_are_read_too(source: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(source)
    assert [(row.name, row.state) for row in migration(tmp_path / "a.py").rows] == [("tvm.cpu", HERE)]


def test_notebooks_are_read(tmp_path: Path) -> None:
    cells: list[Any] = [
        {"cell_type": "markdown", "source": ["import tvm.nothing"]},
        {"cell_type": "code", "source": ["%pip install tvm\n", "import tvm\n", "if tvm.cpu():\n", "    !ls"]},
    ]
    (tmp_path / "a.ipynb").write_text(json.dumps({"cells": cells}))
    assert [row.name for row in migration(tmp_path).rows] == ["tvm.cpu"]


def test_a_file_that_is_not_python_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old.py").write_text("print 'x'\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "hidden.py").write_text("import tvm\ntvm.nothing\n")
    assert uses_below(tmp_path).unread[0].startswith("old.py: ")
    assert main(["migrate", str(tmp_path)]) == 1
    assert "not read\n  old.py: " in capsys.readouterr().out


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    assert main(["migrate", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("22 names of TVM in 1 files: 5 not here, 1 with a difference, 16 here\n")
    assert "  cuda (target): program.py:15\n" in out and "tvm.relay.nn.relu" not in out
    assert main(["migrate", str(tmp_path), "--all"]) == 1
    assert "tvm.relay.nn.relu: program.py:8\n" in capsys.readouterr().out
    assert main(["migrate", str(tmp_path), "--json"]) == 1
    content = json.loads(capsys.readouterr().out)
    assert content["counts"] == {ABSENT: 5, DIFFERENT: 1, HERE: 16} and len(content["rows"]) == 22


def test_a_program_that_works_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.py").write_text("from tvm import relay\nrelay.nn.relu(relay.var('x', shape=(4,)))\n")
    assert main(["migrate", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "3 names of TVM in 1 files: 0 not here, 0 with a difference, 3 here\n"


def test_a_folder_without_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(tmp_path)]) == 2
    assert f"there is no Python file below {tmp_path}" in capsys.readouterr().err
