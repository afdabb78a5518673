"""`tilewright offload`, and `--require-offload` of `compile`: what they print and write, exit codes, and that nothing
is half written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from small_models import cnn
from tilewright.base.errors import TargetError
from tilewright.driver import offload
from tilewright.driver.main import main
from tilewright.relay.op.contrib import _TABLES

PLUGIN = '''
from tilewright.relay.dataflow_pattern import is_constant, is_op, wildcard
from tilewright.relay.op.contrib import register_pattern_table


@register_pattern_table("toy_npu")
def table():
    conv = is_op("nn.conv2d")(wildcard(), is_constant()).has_attr({"groups": 1})
    return [("toy_npu.conv2d", is_op("nn.relu")(conv | is_op("nn.bias_add")(conv, is_constant())))]
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a model and a file that registers an accelerator."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(cnn().SerializeToString())
    (tmp_path / "toy.py").write_text(PLUGIN)
    yield tmp_path
    _TABLES.pop("toy_npu", None)


def run(*words: str) -> int:
    return main(["offload", "model.onnx", "--plugin", "toy.py", *words])


def test_the_shares_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--target", "toy_npu, llvm") == 0
    out = capsys.readouterr().out
    assert out.startswith("toy_npu: ") and out.count("\n") == 1 and "%" in out


def test_why(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--target", "toy_npu, llvm -mcpu=x86-64-v3", "--why") == 0
    out = capsys.readouterr().out
    assert "toy_npu" in out.splitlines()[0] and "no row of toy_npu has" in out


def test_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--target", "toy_npu", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["targets"] == ["toy_npu"] and {r["kind"] for r in found["left"]} >= {"unknown"}
    assert {r["origin"]["name"] for r in found["left"] if r["origin"]}, "nodes are called as in the model"


@pytest.mark.parametrize("name", ["p.svg", "p.html"])
def test_the_picture(here: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--target", "toy_npu, llvm", "-o", name) == 0
    text = (here / name).read_text()
    ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    assert "toy_npu.conv2d" in text


@pytest.mark.parametrize(("words", "message"), [
    (("--target", "no_npu, llvm"), "there is no accelerator 'no_npu'"),
    (
        ("--target", "llvm -mcpu=x86-64-v3"),
        "--target: 'llvm -mcpu=x86-64-v3' names no accelerator; name it before the processor: --target \"npu, llvm\""
    ),
    (
        ("--target", "toy_npu, llvm", "-o", "p.png"),
        "--output: 'p.png' has none of the supported extensions: .svg, .html"
    ),
    (
        ("--target", "toy_npu, llvm", "--require-offload", "much"),
        "--require-offload: 'much' is not a share; write 95% or 0.95"
    ),
    (("--target", "toy_npu, llvm", "--require-offload", "101%"), "--require-offload: '101%' is not a share"),
    (("--target", "toy_npu, llvm", "--plugin", "nowhere.py"), "--plugin: there is no file 'nowhere.py'"),
    (
        ("--target", "toy_npu, llvm", "--plugin", "no_such_module"),
        "--plugin: there is no module 'no_such_module'; give a module that can be imported"
    ),
    (("--target", "toy_npu, llvm", "--input-shapes", "x"), "--input-shapes: cannot read 'x'"),
])
def test_what_is_not_written_right_gives_one_message(
    here: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    err = capsys.readouterr().err
    assert err.startswith("Error: ") and err.count("Error") == 1 and message in err
    assert sorted(p.name for p in here.iterdir() if p.name != "__pycache__") == ["model.onnx", "toy.py"]


def test_a_broken_model_gives_one_message(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "model.onnx").write_bytes(b"no model")
    assert run("--target", "toy_npu, llvm", "-o", "p.svg") == 1
    caught = capsys.readouterr()
    assert caught.out == "" and caught.err.startswith("Error: ") and not (here / "p.svg").exists()


def test_too_little_fails_and_says_what_is_left(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--target", "toy_npu, llvm", "--require-offload", "0%") == 0
    capsys.readouterr()
    assert run("--target", "toy_npu, llvm", "--require-offload", "100%", "-o", "p.svg") == 1
    err = capsys.readouterr().err
    assert "of the multiply-accumulates are off-loaded, and 100.0 % are required; left on the CPU:\n" in err
    assert (here / "p.svg").exists(), "the picture shows why"


def test_compile_fails_before_it_writes(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compile", "model.onnx", "--target", "toy_npu, llvm", "--plugin", "toy.py", "-o", "made.tar"]
    assert main([*words, "--require-offload", "100%"]) == 1
    assert "are required; left on the CPU:\n" in capsys.readouterr().err and not (here / "made.tar").exists()
    assert main(["compile", "model.onnx", "-o", "made.tar", "--require-offload", "95%"]) == 2
    assert "--target: 'llvm' names no accelerator" in capsys.readouterr().err


def test_the_virtual_npu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A quantized network goes there whole, and is compiled for it; the report is of the network as the accelerator's
    partition prepares it."""
    pytest.importorskip("tflite", reason="the network is a TFLite file; install tflite")
    pytest.importorskip("torch", reason="its numbers come from a module of torch; install torch")
    from quantized_networks import NETWORKS
    from quantized_writers import to_tflite

    path = tmp_path / "net.tflite"
    path.write_bytes(to_tflite(NETWORKS["ds_cnn"]()))
    assert main(["offload", str(path), "--target", "npu, llvm", "--why", "--require-offload", "95%"]) == 0
    out = capsys.readouterr().out
    assert "(100.0 %)" in out.splitlines()[0] and "no row of npu has qnn.dequantize" in out
    made = tmp_path / "net.tar"
    assert main(["compile", str(path), "--target", "npu, llvm", "--require-offload", "95%", "-o", str(made)]) == 0
    assert made.exists()


def test_shares_and_targets_as_they_are_written() -> None:
    assert [offload.share("x", t) for t in ("95%", "0.95", "100 %", "0", "12.5%")] == [0.95, 0.95, 1.0, 0.0, 0.125]
    assert [
        str(a) for a in offload.accelerators_of("npu, dsp -size=4, llvm -mattr=+avx2,+fma")
    ] == ["npu", "dsp -size=4"]
    assert [a.name for a in offload.accelerators_of("npu")] == ["npu"]
    with pytest.raises(TargetError, match="an empty part before or after a comma"):
        offload.accelerators_of("npu,, llvm")
