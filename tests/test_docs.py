"""What the documents say is so: their Python and their commands run, their links lead somewhere, their rooms exist."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer
from onnx import helper

import test_relay_transform_text as text_cases
from small_models import graph
from tilewright import relay, te
from tilewright.backends.accelerators.declared.__main__ import main as accelerator_main
from tilewright.backends.cpu.link import has_zig
from tilewright.base.global_functions import remove_global_func
from tilewright.base.settings import SETTINGS
from tilewright.driver.main import app, main
from tilewright.ir.op_attributes import registrations
from tilewright.relay.frontend.onnx import CONVERTERS
from tilewright.relay.op.contrib import _TABLES
from tilewright.relay.op.deferred import RESOLVERS
from tilewright.runtime import load, rpc
from tilewright.tir.parse_expr import _CALLS, _NAMED, INTRINSICS
from tilewright.tir.parser import _DECLARATIONS, _HEADERS, _LOOPS

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a page in one language, without those inside a block of four backticks."""
    text = re.sub(r"^````.*?^````$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def classifier() -> onnx.ModelProto:
    """Images of open size to ten classes: `x` (batch, 3, height, width) -> `y` (batch, 10)."""
    random = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c"], name="conv", strides=[8, 8]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w1"], ["y"], name="classifier"),
    ]
    weights = {"w0": random.random((8, 3, 8, 8), np.float32), "w1": random.random((8, 10), np.float32)}
    return graph(nodes, {"x": ("batch", 3, "height", "width")}, {"y": ("batch", 10)}, weights)


@pytest.fixture(autouse=True)
def attributes_of_operators() -> Iterator[None]:
    """Blocks register attributes of operators, which end with the test."""
    with registrations():
        yield


@pytest.fixture
def models_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the model files that the documents name."""
    monkeypatch.chdir(tmp_path)
    for name in ("model.onnx", "resnet50.onnx"):
        (tmp_path / name).write_bytes(classifier().SerializeToString())
    return tmp_path


def test_the_session_in_the_place_of_onnx_runtime_runs(models_here: Path) -> None:
    (source,) = blocks(ROOT / "docs" / "from_onnx_runtime.md", "python")
    names: dict[str, Any] = {"x": np.zeros((1, 3, 64, 64), np.float32)}
    exec(compile(source, "from_onnx_runtime.md", "exec"), names)
    assert names["y"].shape == (1, 10)


def test_the_page_on_frontends_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for source in blocks(ROOT / "docs" / "frontends.md", "python"):
        exec(compile(source, "frontends.md", "exec"), names)
    np.testing.assert_allclose(names["y"], [2 * np.expm1(-1), 0, 2, 4], rtol=1e-6)
    np.testing.assert_array_equal(names["z"], [-1, 0, 2, 4])
    assert "| `Softmax` | 13 |" in capsys.readouterr().out
    del CONVERTERS["com.example", "ScaledElu"], RESOLVERS["lines"]


@pytest.mark.slow
def test_the_page_on_quantization_runs(models_here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its Python, then its command on data in a file."""
    page = ROOT / "docs" / "post_training.md"
    names: dict[str, Any] = {}
    for source in blocks(page, "python"):
        exec(compile(source, page.name, "exec"), names)
    assert names["y"].shape == (1, 10)
    assert names["q"].report.error < 0.1
    np.savez("data.npz", x=names["images"])
    (command,) = blocks(page, "sh")
    assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    assert (models_here / "report.json").exists()


@pytest.mark.slow
def test_the_page_on_diagnosing_runs(capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "diagnose.md"
    (source,), (text,) = blocks(page, "python"), blocks(page, "text")
    exec(compile(source, page.name, "exec"), {})
    assert capsys.readouterr().out == text


@pytest.mark.slow
def test_the_page_on_measuring_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs" / "measuring.md"
    module, script = blocks(page, "python")
    (tmp_path / "scaled.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(script, page.name, "exec"), names)
    assert [r.ok for r in names["results"]] == [True] * 3 and capsys.readouterr().out.count(" us\n") == 3
    assert len((tmp_path / "records.json").read_text().splitlines()) == 3


def test_the_page_on_devices_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ROOT / "docs" / "devices.md"
    (script,) = blocks(page, "python")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEWRIGHT_RPC_SECRET", "a secret of the tests")
    tracker = rpc.Tracker(port=0)
    try:
        with rpc.Server(port=0, key="board", tracker_addr=("127.0.0.1", tracker.port)):
            names: dict[str, Any] = {}
            exec(compile(script.replace("9190", str(tracker.port)), page.name, "exec"), names)
            assert (names["y"].numpy() == 1).all()
    finally:
        tracker.close()


def test_the_page_on_offloading_is_so(models_here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its Python prints what stands below it, and its command runs."""
    page = ROOT / "docs" / "offload.md"
    names: dict[str, Any] = {}
    try:
        for source in blocks(page, "python"):
            exec(compile(source, page.name, "exec"), names)
        printed = capsys.readouterr().out
        for text in blocks(page, "text"):
            assert re.sub(r":\d+\)", ":9)", text).strip() in re.sub(r":\d+\)", ":9)", printed)
        (command,) = blocks(page, "sh")
        arguments = shlex.split(command.replace("npu", "edge"))[1:]
        assert main([*arguments, "--input-shapes", "x:[1,3,64,64]"]) == 0, capsys.readouterr().err
        assert "conv (nn.conv2d" in capsys.readouterr().out
    finally:
        _TABLES.pop("edge", None)


def test_the_page_on_the_report_is_so(models_here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source,), (command,) = blocks(ROOT / "docs" / "explain.md", "python"), blocks(ROOT / "docs" / "explain.md", "sh")
    exec(compile(source, "explain.md", "exec"), {})
    assert capsys.readouterr().out.startswith("['import', ")
    assert main([*shlex.split(command)[1:], "--no-run"]) == 0, capsys.readouterr().err
    assert (models_here / "report.html").stat().st_size > 50_000


@pytest.mark.slow
def test_the_page_on_accelerators_runs(models_here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its Python as one file, whose accelerator the commands name."""
    page = ROOT / "docs" / "accelerators.md"
    sources = blocks(page, "python")
    names: dict[str, Any] = {}
    for source in sources:
        exec(compile(source, str(models_here / "mine.py"), "exec"), names)
    assert names["y"].shape == (1, 10) and names["found"].ran == {"total": 8}
    assert "cycles" in capsys.readouterr().out
    (models_here / "mine.py").write_text(next(s for s in sources if "Accelerator(" in s), encoding="utf-8")
    assert main(shlex.split(blocks(page, "sh")[0])[1:]) == 0, capsys.readouterr().err
    assert main(shlex.split(blocks(page, "sh")[1])[1:]) == 0, capsys.readouterr().err
    assert names["prepared"]["main"].body.checked_type.concrete_shape == (1, 8, 4, 4)
    lines = [line for line in blocks(page, "sh")[2].splitlines() if "tflite" not in line]
    assert len(lines) == 2
    for line in lines:
        assert accelerator_main(shlex.split(line, comments=True)[3:]) == 0, line
    assert "vec: 50 programs of 1 operators, 0 failures" in capsys.readouterr().out
    for name in ("relay.ext.vec", "runtime.module.loadbinary_vec"):
        remove_global_func(name)


def test_the_page_on_other_compilers_runs(models_here: Path) -> None:
    """Its Python in order; oneDNN is needed to call what it compiles, and not to compile it."""
    names: dict[str, Any] = {}
    sources = blocks(ROOT / "docs" / "back_ends.md", "python")
    assert len(sources) == 3
    try:
        for source in sources:
            exec(compile(source, "back_ends.md", "exec"), names)
        answer = relay.build(names["program"], "llvm").executable(np.ones(4, np.float32))
    finally:
        remove_global_func("relay.ext.mine.relay_to_tir")
    assert [m.type_key for m in names["lib"].imported_modules] == ["dnnl"]
    np.testing.assert_allclose(answer, np.exp(2), rtol=1e-6)


@pytest.mark.slow
def test_the_page_on_c_runs(models_here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its commands and its Python; the example in C++ classifies as the model does."""
    compilers = [found for name in ("cc", "c++") if (found := shutil.which(name)) is not None]
    if len(compilers) < 2:
        pytest.skip("needs a C and a C++ compiler")
    page = ROOT / "docs" / "c.md"
    for line in blocks(page, "sh")[0].splitlines():
        assert main(shlex.split(line)[1:]) == 0, capsys.readouterr().err
    names: dict[str, Any] = {}
    for source in blocks(page, "python"):
        exec(compile(source, page.name, "exec"), names)
    np.testing.assert_allclose(names["y"], 2 * np.tanh(np.float32(1)), rtol=1e-6)
    assert {p.name for p in names["paths"]} == {"model.c", "model.h", "model_test.c", "main.c", "Makefile"}
    assert (models_here / "project" / "model.c").read_bytes() == (models_here / "model.c").read_bytes()
    image = np.random.default_rng(0).random((1, 3, 64, 64), np.float32)
    image.tofile("image.raw")
    example = ROOT / "examples" / "c_model" / "classify.cpp"
    for command in ([compilers[0], "-O1", "-c", "model.c"],
                    [
                        compilers[1], "-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I.", str(example),
                        "model.o", "-o", "classify"
                    ]):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=200, check=False, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, done.stderr
    said = subprocess.run(
        ["./classify", "image.raw"], capture_output=True, text=True, timeout=60, check=True, stdin=subprocess.DEVNULL
    ).stdout
    scores = names["model"](image)[0]
    assert [int(line.split()[1]) for line in said.splitlines()] == np.argsort(-scores, kind="stable")[:3].tolist()


@pytest.mark.slow
@pytest.mark.skipif(not has_zig(), reason="needs the Python package ziglang")
def test_the_page_on_shipping_runs(models_here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "shipping.md"
    (commands, _), (source,) = blocks(page, "sh"), blocks(page, "python")
    for line in commands.splitlines():
        assert main(shlex.split(line)[1:]) == 0, f"{line}\n{capsys.readouterr().err}"
    exec(compile(source, page.name, "exec"), {})
    assert {p.name for p in models_here.iterdir()} >= {
        "model.so", "model.a", "model.h", "model.dll", "model.wasm", "tilewright.mjs", "model.o"
    }
    declared, _ = blocks(page, "c")
    header = (models_here / "model.h").read_text()
    assert all(line.partition("/*")[0].strip() in header for line in declared.splitlines())
    (script,) = blocks(page, "js")
    if shutil.which("node") is not None:
        (models_here / "page.mjs").write_text(f"{script}\nconsole.log(y.length, model.inputs[0].name);\n")
        done = subprocess.run(
            ["node", "page.mjs"], capture_output=True, text=True, timeout=100, check=False, stdin=subprocess.DEVNULL
        )
        assert (done.stdout, done.stderr) == ("10 x\n", "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_the_c_of_dynamic_shapes_on_the_page_on_shipping_runs(
    models_here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "docs" / "shipping.md"
    command, source = blocks(page, "sh")[1].strip(), blocks(page, "c")[1]
    assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err
    (models_here / "model.h").write_text(load("model.so").header())
    (models_here / "main.c").write_text(f"""
#include <stdio.h>
#include "model.h"
static _Alignas(64) float x[3 * 96 * 64], y[10];
int main(void) {{
const void* inputs[] = {{x}};
void* outputs[] = {{y}};
for (int k = 0; k < 3 * 96 * 64; k++) x[k] = 1;
{source}
printf("%d %d %d %d %.5f\\n", (int)status, (int)y_shape[0], (int)y_shape[1], (int)y_bytes[0], (double)y[9]);
x_shape[2] = 97;
puts(model_message(model_run(shapes, inputs, outputs)));
}}
""")
    subprocess.run(["gcc", "-Wall", "-Werror", "main.c", "./model.so", "-o", "main"], check=True)
    said = subprocess.run(["./main"], capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    wanted = load("model.so").executable()(np.ones((1, 3, 96, 64), np.float32))
    assert said == [
        f"0 1 10 40 {wanted[0, 9]:.5f}", "dimension 2 of input 'x' must be a multiple of 8, from 32 to 256"]


def test_the_examples_for_contributors_run(tmp_path: Path) -> None:
    """As one file, in a process of their own, since they register operators and converters."""
    page = ROOT / "CONTRIBUTING.md"
    text = page.read_text(encoding="utf-8")
    (case,) = map(text_cases.CASE.search, re.findall(r"^````markdown\n(.*?)^````$", text, re.MULTILINE | re.DOTALL))
    assert case is not None
    check = f"""
sys.path.insert(0, {str(ROOT / "tests")!r})
import test_relay_transform_text as text_cases
(case,) = text_cases.CASE.finditer({case.group()!r})
vars(text_cases.transform)["RemoveDoubleNegation"] = RemoveDoubleNegation
assert text_cases.run_case(case).strip() == case["text"].strip()
"""
    (tmp_path / "page.py").write_text("\n".join(["import sys", *blocks(page, "python"), check]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr


def test_the_page_on_dynamic_shapes_runs(models_here: Path) -> None:
    source = "\n".join(blocks(ROOT / "docs" / "dynamic_shapes.md", "python"))
    exec(compile(source, "dynamic_shapes.md", "exec"), {})


def test_the_python_of_the_readme_runs(models_here: Path) -> None:
    sources = blocks(ROOT / "README.md", "python")
    assert len(sources) >= 3
    names: dict[str, Any] = {"x": np.zeros((1, 3, 224, 224), np.float32)}
    for source in sources:
        exec(compile(source, "README.md", "exec"), names)
    assert {path.name for path in models_here.iterdir()} >= {"resnet50.so", "model.tar"}
    np.testing.assert_array_equal(
        names["again"](x=np.ones((8, 3, 224, 224), np.float32)), names["fixed"](np.ones((8, 3, 224, 224), np.float32))
    )


def test_the_commands_of_the_readme_run(models_here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        line for block in blocks(ROOT / "README.md", "sh") for line in block.splitlines()
        if line.startswith("tilewright ")
    ]
    assert len(lines) >= 2
    for line in lines:
        assert main(shlex.split(line, comments=True)[1:]) == 0, f"{line}\n{capsys.readouterr().err}"
    assert (models_here / "model.so").exists()
    assert "y float32[1, 10], its 5 largest:" in capsys.readouterr().out


def test_the_python_of_the_page_on_loops_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As one file, since functions in the loop language are read from theirs; what it prints is what the page shows."""
    page = ROOT / "docs" / "tir.md"
    file = tmp_path / "page.py"
    file.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    runpy.run_path(str(file))
    printed = capsys.readouterr().out
    shown = blocks(page, "text")
    assert len(shown) >= 3
    assert [text for text in shown[1:] if text not in printed] == []


def test_the_python_of_the_page_on_tensor_expressions_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As one file, as above; the loops that the page shows are among those that it prints."""
    page = ROOT / "docs" / "te.md"
    file = tmp_path / "page.py"
    file.write_text("\n".join(blocks(page, "python")), encoding="utf-8")
    runpy.run_path(str(file))
    printed = capsys.readouterr().out
    shown = blocks(page, "text")
    assert len(shown) >= 3
    assert [text for text in shown if text not in printed] == []


def test_the_page_on_debugging_is_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its Python prints what stands below it."""
    monkeypatch.chdir(tmp_path)
    page = ROOT / "docs" / "debugging.md"
    names: dict[str, Any] = {}
    for source in blocks(page, "python"):
        exec(compile(source, page.name, "exec"), names)
    assert capsys.readouterr().out == "".join(blocks(page, "text"))
    assert (tmp_path / "gather.so").exists()


@pytest.mark.parametrize("name", ["relay_text", "quantisation", "partition"])
def test_the_python_of_a_page_on_relay_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What the page shows is what its Python prints."""
    page = ROOT / "docs" / f"{name}.md"
    names: dict[str, object] = {}
    for source in blocks(page, "python"):
        exec(compile(source, page.name, "exec"), names)
    printed = capsys.readouterr().out
    shown = blocks(page, "text")
    assert len(shown) >= 3
    assert [text for text in shown if text not in printed] == []


def test_the_python_of_the_page_on_modules_and_passes_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """And it prints the report that the page shows."""
    page = ROOT / "docs" / "modules_and_passes.md"
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)
    printed = capsys.readouterr().out
    assert blocks(
        page, "text"
    )[1].strip() in printed and "AddToSubtract: " in printed and "fold_constant.py:" in printed


@pytest.mark.slow
def test_the_python_of_the_page_on_schedules_without_templates_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "page"}
    for source in blocks(ROOT / "docs" / "auto_scheduler.md", "python"):
        exec(compile(source, "auto_scheduler.md", "exec"), names)
    assert "s[C].parallel(" in capsys.readouterr().out
    assert {f.name for f in tmp_path.iterdir()} == {"matmul.json", "network.json"}


def test_every_step_of_a_te_schedule_is_described() -> None:
    text = (ROOT / "docs" / "te.md").read_text(encoding="utf-8")
    steps = {
        name for kind in (te.Stage, te.Schedule) for name, value in vars(kind).items()
        if not name.startswith("_") and not isinstance(value, property)
    } - {"restart", "normalize"}
    assert {name for name in steps if f"`{name}`" not in text} == set()


def test_the_python_of_the_page_on_topi_runs(capsys: pytest.CaptureFixture[str]) -> None:
    sources = blocks(ROOT / "docs" / "topi.md", "python")
    assert len(sources) >= 4
    names: dict[str, object] = {}
    for source in sources:
        exec(compile(source, "topi.md", "exec"), names)
    assert "vectorized" in capsys.readouterr().out


def test_every_word_of_the_loop_language_is_described() -> None:
    text = (ROOT / "docs" / "tir.md").read_text(encoding="utf-8")
    words = {*_CALLS, *_NAMED, *_LOOPS, *_HEADERS, *_DECLARATIONS} - {
        "float", "Cast", "Ramp", "Broadcast", "Not", "Select", "buffer_decl"
    }
    assert {word for word in words if f"T.{word}" not in text} == set()
    assert {name for name in INTRINSICS if f"`{name}`" not in text} == set()


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([\w./:-]+)\)", page.read_text(encoding="utf-8"))
    assert [link for link in links if "://" not in link and not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_rooms_and_files_that_are_named_exist(page: Path) -> None:
    named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?|[a-z_]+(?:/[a-z_]+)+)`", page.read_text(encoding="utf-8"))
    source = ROOT / "src" / "tilewright"
    roots = (ROOT, source, source / "relay", source / "relay" / "frontend")
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


def test_every_option_of_the_command_line_is_described(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    for command in ("compile", "run", "quantize", "explain"):
        assert main([command, "--help"]) == 0
        options = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help", "--verbose"}
        assert {option for option in options if option not in text} == set()


def test_every_switch_has_a_description() -> None:
    assert [s.name for s in SETTINGS.values() if len(s.doc) < 10] == []


@pytest.mark.slow
def test_the_page_on_tuning_runs(models_here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "tuning.md"
    source, layouts, traces = blocks(page, "python")
    names: dict[str, Any] = {}
    exec(compile(source, str(page), "exec"), names)
    exec(compile(layouts, str(page), "exec"), names)
    exec(compile(traces, str(page), "exec"), {"__name__": "page"})
    assert names["history"].report == {"taken": len((models_here / "log.json").read_text().splitlines())}
    command, elsewhere = blocks(page, "sh")
    group: Any = typer.main.get_command(app)
    known = {o for p in group.commands["tune"].params for o in p.opts}  # devices are not here, but the options are
    assert all({w for w in shlex.split(line) if w.startswith("--")} <= known for line in elsewhere.strip().splitlines())
    tune, build = (shlex.split(line)[1:] for line in command.strip().splitlines())
    tune[tune.index("--minutes") + 1] = "0.05"
    assert main(tune) == 0, capsys.readouterr().err
    assert main(build) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_the_python_of_the_page_on_profiling_runs(models_here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for source in blocks(ROOT / "docs" / "profiling.md", "python"):
        exec(source, names)
    out = capsys.readouterr().out
    assert (
        "(between steps)" in out and "Total_time" in out and "peak of the arena" in out
        and "but the limit is 100000: the peak is at" in out
    )
    assert (models_here / "run.pftrace").stat().st_size > 0
    assert (models_here / "dump" / "_tvmdbg_device_CPU_0" / "output_tensors.params").exists()


def test_the_python_of_the_command_line_runs(models_here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = blocks(ROOT / "docs" / "command_line.md", "python")
    exec(compile(source, "command_line.md", "exec"), {})
    said = capsys.readouterr().out
    assert "def @main" in said and "mean (ms)" in said and "(1, 10)" in said
