"""Commands that count the names, tests and tutorials of TVM: `tvm_names.py`, `tvm_suite.py`, `tvm_tutorials.py`."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

import tvm_tutorials
from tvm_names import main as names_main
from tvm_names import names_of, state
from tvm_suite import main as suite_main


def test_names_of_tvm_are_counted_where_they_are_defined_and_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    modules = {
        "tvm": {"imports": [".relay"]},
        "tvm.relay": {"imports": ["..tir:Var", ".nothing:*", ".op:*", "numpy as np"], "functions": {"_private": []}},
        "tvm.relay.op": {"functions": {"exp": ["data"], "never": ["x"], "build": ["mod", "missing=None"]}},
        "tvm.tir": {"classes": {"Var": {}}},
        "tvm.topi.cuda": {"functions": {"conv2d": ["x"]}},
    }
    file = tmp_path / "names.json.xz"
    with lzma.open(file, "wt") as stream:
        json.dump({"v0.8.0": {"modules": modules}, "v0.13.0": {"modules": modules}}, stream)
    found = {n.path: (state(n), n.versions) for n in names_of(file)}
    assert found["tvm.relay.exp"] == found["tvm.relay.op.exp"] == (("here", []), ["v0.8.0", "v0.13.0"])
    assert found["tvm.relay.build"][0] == ("here, fewer arguments", ["missing"])
    assert found["tvm.relay.never"][0] == ("not here yet", [])
    assert found["tvm.topi.cuda.conv2d"][0] == ("left out, with a reason", [])
    assert set(found) == {
        *(f"tvm.relay{m}.{n}" for m in ("", ".op") for n in ("exp", "never", "build")), "tvm.relay.Var", "tvm.tir.Var",
        "tvm.topi.cuda.conv2d"
    }
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- the tables: so -->\noutdated\n<!-- the end of the tables -->\nafter\n")
    assert names_main([str(file), "tvm.relay", "--page", str(page), "--absent", str(tmp_path / "absent.txt")]) == 0
    assert (tmp_path / "absent.txt").read_text() == "tvm.relay never\ntvm.relay.op build never\n"
    assert "tvm.relay.build · v0.8, v0.13 · missing\n" in capsys.readouterr().out
    text = page.read_text()
    assert "| `tvm.relay` | 3 | 1 | 3 | 0 |" in text and "outdated" not in text and text.endswith("-->\nafter\n")


TESTS = """
import pytest
import tvm

def test_right(): assert tvm.relay
@pytest.mark.parametrize("k", [0, 1])
def test_half(k): assert k
def test_left_out(): pytest.skip("no")
"""


@pytest.mark.slow
def test_the_tests_and_tutorials_of_tvm_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tests, tutorials = tmp_path / "python" / "relay", tmp_path / "gallery" / "how_to"
    for folder in (tests, tutorials):
        folder.mkdir(parents=True)
    (tests / "test_some.py").write_text(TESTS)
    (tests / "test_none.py").write_text("import tvm.no_such_module\ndef test_a(): pass\ndef test_b(): pass\n")
    (tests / "test_endless.py").write_text("import time\ndef test_a(): time.sleep(1000)\n")
    (tutorials / "right.py").write_text("import tvm\nprint(tvm.cpu(0))\n")
    (tutorials / "wrong.py").write_text("import tvm\ntvm.no_such_name\n")
    results = tmp_path / "results.jsonl"
    again = [str(tmp_path), "python/relay", "gallery", "--jobs", "2", "--results", str(results), "--messages"]
    assert suite_main([*again, "--only", "endless", "--limit", "0.1"]) == 0
    assert "| all | 0 | 0 | 0 | 0 | 1 |" in capsys.readouterr().out
    for is_first in (True, False):  # the second run reads the results
        assert suite_main(again) == 0
        printed = capsys.readouterr().out
        assert "| gallery/how_to | 1 | 1 | 0 | 0 | 0 |\n| python/relay | 2 | 1 | 1 | 2 | 1 |\n" in printed
        assert ("test_half[0]: assert 0" in printed) == is_first
    assert "no attribute 'no_such_name'" in results.read_text()


def test_the_page_has_a_table_of_the_tutorials(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, page, results = tmp_path / "gallery" / "how_to", tmp_path / "page.md", tmp_path / "results.jsonl"
    folder.mkdir(parents=True)
    for name in ("from_onnx", "opt_gemm", "build_gcn", "other"):
        (folder / f"{name}.py").write_text("")
    ran = [{"file": f"gallery/how_to/{n}.py", "counts": {"passed": 1}} for n in ("from_onnx", "opt_gemm")]
    results.write_text("\n".join(map(json.dumps, ran)) + "\n")
    page.write_text(f"before\n{tvm_tutorials.BEGIN}\nearlier\n{tvm_tutorials.END}\nafter\n")
    assert tvm_tutorials.main([str(tmp_path), str(results), "--page", str(page)]) == 1
    text = page.read_text()
    for row in ("| run | 1 | `opt_gemm` |", "| run, with matplotlib | 1 | `from_onnx` |", "| fail | 1 | `other` |"):
        assert row in text
    assert "earlier" not in text and text.endswith("-->\nafter\n")
    said = capsys.readouterr().err
    assert "other: it does not run" in said and "scan: there is no such tutorial" in said
    with pytest.raises(ValueError, match="does not have the lines"):
        tvm_tutorials.write_page(results, "")


@pytest.mark.slow
def test_a_case_that_passed_before_must_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tests, tutorials = tmp_path / "python", tmp_path / "gallery"
    for folder in (tests, tutorials):
        folder.mkdir()
    (tests / "test_some.py").write_text(TESTS)
    (tutorials / "right.py").write_text("import tvm\n")
    passing = tmp_path / "passing.txt"
    passing.write_text("# a comment\n")
    expected = [str(tmp_path), "--expected", str(passing)]
    assert suite_main([*expected, "python", "gallery", "--write"]) == 0
    names = ["gallery/right.py", "python/test_some.py::test_half[1]", "python/test_some.py::test_right"]
    assert passing.read_text().splitlines() == ["# a comment", *names]
    assert suite_main(expected) == 0
    (tutorials / "right.py").write_text("import tvm.no_such_name\n")
    (tests / "test_some.py").write_text(TESTS.replace("assert tvm.relay", "assert tvm.relay.no_such_name"))
    capsys.readouterr()
    assert suite_main(expected) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        f"passed before, does not pass: {name}" for name in (names[0], names[2])]
    assert suite_main([*expected, "--minutes", "0"]) == 1
    assert "not run for lack of time: gallery/right.py\n" in capsys.readouterr().out
