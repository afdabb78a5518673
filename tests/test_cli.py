"""The command line: what it writes, what it prints, and how it says no."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import small_programs
from small_models import cnn, mlp, onnxruntime_answers
from test_model import bad_files
from tilewright import __main__ as commands
from tilewright.base.errors import ArtifactError, InputError, InternalError, OptionError
from tilewright.base.settings import SETTINGS
from tilewright.compiler import tuned
from tilewright.driver import files, options, tensors
from tilewright.driver.main import main
from tilewright.runtime import host


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small classifier: x (2, 16) -> y (2, 10)."""
    path = tmp_path / "mlp.onnx"
    path.write_bytes(mlp().SerializeToString())
    return path


@pytest.fixture
def fed(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Inputs for `model`, as a file and as arrays."""
    arrays: dict[str, Any] = {"x": np.random.default_rng(1).standard_normal((2, 16), np.float32)}
    np.savez(tmp_path / "in.npz", **arrays)
    return tmp_path / "in.npz", arrays


# --- options
# ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("", {}),
        ("x:[1,3,224,224]", {"x": (1, 3, 224, 224)}),
        ("x: [1, 3] y:[10]", {"x": (1, 3), "y": (10,)}),
        ("x:[1],y:[2]", {"x": (1,), "y": (2,)}),
        ("serving/input:0:[1,3] scalar:[]", {"serving/input:0": (1, 3), "scalar": ()}),
    ],
)
def test_input_shapes(text: str, shapes: dict[str, tuple[int, ...]]) -> None:
    assert options.input_shapes(text) == shapes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "--input-shapes: cannot read 'x'; write for example \"x:[1,3,224,224] y:[1,10]\""),
        ("x:[1] y=3", "--input-shapes: cannot read 'y=3'"),
        ("x:[1,-3]", "--input-shapes: '-3' in the shape of 'x' is not a size; sizes are whole numbers from 0"),
        ("x:[1,?]", "--input-shapes: '?' in the shape of 'x' is not a size"),
        ("x:[1] x:[2]", "--input-shapes: 'x' is given twice"),
    ],
)
def test_bad_input_shapes(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        options.input_shapes(text)
    assert str(caught.value).startswith(message)


def test_pass_config_takes_the_type_that_the_switch_declares() -> None:
    number = next(s.name for s in SETTINGS.values() if s.type is int)
    switch = next(s.name for s in SETTINGS.values() if s.type is bool)
    assert options.pass_config([f"{number}=8", f"{switch}=off"]) == {number: 8, switch: False}
    with pytest.raises(OptionError, match=f"--pass-config: {number} takes int, not 'many'"):
        options.pass_config([f"{number}=many"])
    with pytest.raises(OptionError, match=f"--pass-config: {switch} takes bool, not 'perhaps'"):
        options.pass_config([f"{switch}=perhaps"])
    with pytest.raises(OptionError, match=f"--pass-config: '{switch}' has no value; write {switch}=VALUE"):
        options.pass_config([switch])
    with pytest.raises(OptionError, match="no configuration option 'nosuchswitch'"):
        options.pass_config(["nosuchswitch=1"])


def test_names_are_checked() -> None:
    assert options.names("--dump-code", " relay, asm ,", options.STAGES) == ["relay", "asm"]
    with pytest.raises(OptionError, match="--dump-code: there is no 'cuda'; choose from relay, tir, ll, asm"):
        options.names("--dump-code", "cuda", options.STAGES)


# --- arrays
# -------------------------------------------------------------------------------------------------------------


def info(name: str, shape: tuple[object, ...], dtype: str) -> SimpleNamespace:
    """An input as the compiler describes it."""
    return SimpleNamespace(
        name=name, shape=shape, dtype=np.dtype(dtype),
        nbytes=math.prod(d for d in shape if isinstance(d, int)) * np.dtype(dtype).itemsize
    )


def test_inputs_are_filled_as_asked() -> None:
    infos = [info("x", (2, 3), "float32"), info("ids", (4,), "int64"), info("flag", (), "bool")]
    zeros, ones, random = (tensors.feed(infos, {}, fill) for fill in tensors.Fill)
    for made in (zeros, ones, random):
        assert {name: (a.shape, a.dtype) for name, a in made.items()} == {i.name: (i.shape, i.dtype) for i in infos}
    assert not any(a.any() for a in zeros.values())
    assert all(a.all() for a in ones.values())
    assert random["x"].min() >= 0
    assert random["x"].max() < 1
    assert set(random["ids"].tolist()) <= {0, 1}
    given = np.full((2, 3), 7, np.float32)
    assert tensors.feed(infos, {"x": given}, tensors.Fill.ZEROS)["x"] is given


def test_an_array_that_belongs_to_no_input_is_named() -> None:
    with pytest.raises(InputError, match="the model has no input 'z'; it has x, y"):
        tensors.feed([info("x", (1,), "float32"), info("y", (1,), "float32")], {"z": np.zeros(1)}, tensors.Fill.ONES)


def test_an_input_of_open_size_cannot_be_filled() -> None:
    with pytest.raises(
        OptionError, match=r"input 'x' has the dynamic shape \[batch,3\]; give numbers for batch in --input-shapes \"x:"
    ):
        tensors.feed([info("x", ("batch", 3), "float32")], {}, tensors.Fill.RANDOM)


def test_the_largest_elements_come_with_their_indices() -> None:
    lines = list(tensors.largest({"y": np.array([[[0.5, 3.0], [9.25, -1.0]]], np.float32)}, 2))
    assert lines == ["y float32[1, 2, 2], its 2 largest:", "  [1, 0]  9.25", "  [0, 1]  3"]


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "text"
    files.write_text(path, "one")
    with pytest.raises(RuntimeError, match="half-way"), files.replacing(path) as scratch:
        scratch.write_text("tw")
        raise RuntimeError("half-way")
    assert path.read_text() == "one"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(
        ArtifactError, match=r"cannot write '.*': No such file or directory; choose another place with -o"
    ):
        files.write_text(tmp_path / "no folder" / "x", "")


def test_only_archives_of_arrays_are_read(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("not an archive")
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "object.npz", x=np.array([{}], dtype=object))
    with pytest.raises(
        InputError, match=r"cannot read arrays from '.*text\.npz': .*; it must be written with np\.savez"
    ):
        files.read_arrays(tmp_path / "text.npz")
    with pytest.raises(InputError, match=r"holds one array without a name; it must be written with np\.savez"):
        files.read_arrays(tmp_path / "one.npy")
    with pytest.raises(
        InputError, match=r"cannot read arrays from '.*object\.npz': .*it holds Python objects, which are not loaded"
    ):
        files.read_arrays(tmp_path / "object.npz")


# --- commands
# -----------------------------------------------------------------------------------------------------------


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tilewright {version('tilewright')}\n"
    assert main(["run", "--help"]) == 0
    assert "--print-top" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compile", "no-such-file.onnx"], "no-such-file.onnx"),
        (["compile", "{model}", "--bogus"], "--bogus"),
        (
            ["compile", "{model}", "-o", "out.exe"],
            "--output: 'out.exe' has none of the supported extensions: .so, .tar, .a, .o, .dll, .wasm, .c"
        ),
        (["compile", "{model}", "--dump-code", "cuda"], "--dump-code: there is no 'cuda'"),
        (["compile", "{model}", "--input-shapes", "x=3"], "--input-shapes: cannot read 'x=3'"),
        (["compile", "{model}", "--pass-config", "a.b=1"], "there is no configuration option 'a.b'"),
        (["compile", "{model}", "--threads", "0"], "--threads"),
        (
            ["compile", "{model}", "--target", "bnns,", "llvm"],
            "'bnns,' ends in a comma; quote a target of several parts: --target \"bnns, llvm\""
        ),
        (["run", "{model}", "-o", "out.txt"], "--outputs: 'out.txt' does not end in .npz"),
        (["run", "{model}", "--fill-mode", "nines"], "nines"),
        (["walk"], "walk"),
    ],
)
def test_a_command_that_is_not_written_right(
    arguments: list[str], message: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([a.format(model=model) for a in arguments]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("Error: ")
    assert message in said.err
    assert said.out == ""


def test_compile_then_run(
    model: Path, fed: tuple[Path, dict[str, np.ndarray]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = onnxruntime_answers(model, fed[1])[0]
    for suffix in (".tar", ".so"):
        artifact, answers = tmp_path / f"out{suffix}", tmp_path / f"y{suffix}.npz"
        assert main(["compile", str(model), "-o", str(artifact), "--threads", "1"]) == 0, capsys.readouterr().err
        assert capsys.readouterr().out.startswith(f"Wrote {artifact} (")
        assert main(
            ["run", str(artifact), "-i", str(fed[0]), "-o", str(answers), "--threads", "2"]
        ) == 0, capsys.readouterr().err
        with np.load(answers) as archive:
            assert archive.files == ["y"]
            np.testing.assert_allclose(archive["y"], expected, rtol=1e-4, atol=1e-6)


def test_compile_writes_the_stages_beside_the_output(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.tar"
    assert main(
        ["compile", str(model), "-o", str(path), "--dump-code", "relay,tir,ll,asm", "-v"]
    ) == 0, capsys.readouterr().err
    texts = {stage: (tmp_path / f"out.tar.{stage}").read_text() for stage in options.STAGES}
    assert "nn.dense" in texts["relay"] or "nn.matmul" in texts["relay"]
    assert "define" in texts["ll"]
    assert "ret" in texts["asm"]
    assert texts["tir"].strip()
    assert "input   x: float32[2, 16]" in capsys.readouterr().out


def test_run_a_model_file_prints(
    model: Path, fed: tuple[Path, dict[str, np.ndarray]], capsys: pytest.CaptureFixture[str]
) -> None:
    expected = onnxruntime_answers(model, fed[1])[0]
    command = [
        "run", str(model), "-i", str(fed[0]), "--print-top", "3", "--print-time", "--repeat", "2", "--number", "1"
    ]
    assert main(command) == 0, capsys.readouterr().err
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "y float32[2, 10], its 3 largest:"
    best = np.unravel_index(expected.argmax(), expected.shape)
    assert lines[1].startswith(f"  [{best[0]}, {best[1]}]  {expected.max():.4g}"[:12])
    assert "mean (ms)" in "\n".join(lines[4:])
    assert main(["run", str(model)]) == 0
    assert capsys.readouterr().out == "y: float32[2, 10]\n"


def test_open_sizes_come_from_the_shapes_or_from_the_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cnn.onnx"
    path.write_bytes(cnn("batch").SerializeToString())
    assert main(["run", str(path)]) == 2
    assert 'give numbers for batch in --input-shapes "x:[batch,3,16,16]"' in capsys.readouterr().err
    assert main(["run", str(path), "--input-shapes", "x:[3,3,16,16]"]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out == "y: float32[3, 10]\n"
    np.savez(tmp_path / "in.npz", x=np.zeros((2, 3, 16, 16), np.float32))
    assert main(["run", str(path), "-i", str(tmp_path / "in.npz")]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out == "y: float32[2, 10]\n"


def test_a_saved_program_for_all_sizes_runs_with_given_shapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, saved = tmp_path / "cnn.onnx", tmp_path / "cnn.so"
    path.write_bytes(cnn("batch").SerializeToString())
    for given in ([], ["--input-shapes", "x:[n,3,16,16]"]):
        assert main(["compile", str(path), "-o", str(saved), *given]) == 0, capsys.readouterr().err
        capsys.readouterr()
        assert main(["run", str(saved), "--input-shapes", "x:[5,3,16,16]", "--print-time"]) == 0
        assert "mean (ms)" in capsys.readouterr().out
        assert main(["run", str(saved), "--input-shapes", "x:[2,3,16,16]"]) == 0
        assert capsys.readouterr().out == "y: float32[2, 10]\n"
    assert main(["run", str(saved), "--input-shapes", "x:[2,3,16,17]"]) == 1
    assert "input 'x' has shape [2, 3, 16, 17], expected float32 x[n, 3, 16, 16]" in capsys.readouterr().err
    assert main(["run", str(saved), "--input-shapes", "z:[2]"]) == 1
    assert "the model has no input 'z'; it has x" in capsys.readouterr().err
    assert main(["run", str(saved)]) == 2
    assert 'give numbers for n in --input-shapes "x:[n,3,16,16]"' in capsys.readouterr().err


def test_a_model_without_a_program_for_all_sizes_needs_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "m.onnx"
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    assert main(["compile", str(path), "-o", str(tmp_path / "m.tar")]) == 2
    said = capsys.readouterr().err
    assert "Error: no program serves all sizes of the model: " in said and "depends on values" in said
    assert 'Give numbers for the names in --input-shapes "x:[n]"' in said


def test_shapes_of_some_inputs_determine_the_names_in_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [d, 4])
             for n, d in (("past", "p"), ("x", "t"), ("mask", "p + t"))]
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["all"], axis=0), helper.make_node("Mul", ["all", "mask"], ["y"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", infos, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    saved = str(tmp_path / "m.so")
    assert main(["compile", str(tmp_path / "m.onnx"), "-o", saved]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert main(["run", saved, "--input-shapes", "past:[3,4] x:[2,4]"]) == 0
    assert capsys.readouterr().out == "y: float32[5, 4]\n"
    assert main(["run", saved, "--input-shapes", "past:[3,4] x:[2,4] mask:[6,4]"]) == 1
    assert (
        "dimension 0 of input 'mask' is 6, and must be (p + t) = 5, where p is 3 (dimension 0 of input 'past'), t is 2 "
        "(dimension 0 of input 'x')") in capsys.readouterr().err
    assert main(["run", saved, "--input-shapes", "past:[3,4] x:[0,4]"]) == 1
    assert "dimension 0 of input 'x' is 0, but the program was compiled for t from 1" in capsys.readouterr().err
    assert main(["run", saved, "--input-shapes", "past:[3,4]"]) == 2
    assert "input 'x' has the dynamic shape [t,4]; give numbers for t" in capsys.readouterr().err


def test_run_a_model_that_gives_a_sequence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    y = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("SequenceConstruct", ["x", "x"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    assert main(["run", str(tmp_path / "m.onnx")]) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.count(": float32[2]") == 2


@pytest.mark.parametrize("suffix", [".tar", ".so"])
def test_run_a_program_with_two_outputs(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program, path, answers = small_programs.two_outputs(), tmp_path / f"two{suffix}", tmp_path / "y.npz"
    program.save(path)
    assert main(["run", str(path), "-o", str(answers), "--fill-mode", "ones", "-v"]) == 0, capsys.readouterr().err
    with np.load(answers) as archive:
        assert archive.files == ["y", "same"]
        np.testing.assert_array_equal(archive["y"], np.full((2, 4), 2, np.float32))
        np.testing.assert_array_equal(archive["same"], np.ones((2, 4), np.float32))
    assert capsys.readouterr().out.startswith("  input   x: float32[2, 4]\n  input   b: float32[2, 4]\n  output  y: ")


def test_run_says_what_is_wrong_with_the_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = small_programs.affine()
    program.save(tmp_path / "a.tar")
    name = program.manifest.inputs[0].name
    for given, message in (("other", f"the model has no input 'other'; it has {name}"), (name, name)):
        arrays: dict[str, Any] = {given: np.zeros(1)}
        np.savez(tmp_path / "in.npz", **arrays)
        assert main(["run", str(tmp_path / "a.tar"), "-i", str(tmp_path / "in.npz")]) == 1
        said = capsys.readouterr().err
        assert said.startswith("Error: ")
        assert message in said


def test_a_model_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("text.onnx", "text.so", "text.tar"):
        (tmp_path / name).write_text("this is no model")
        assert main(["run", str(tmp_path / name)]) == 1
        said = capsys.readouterr().err
        assert said.startswith("Error: ")
        assert name in said
        assert "Traceback" not in said


def test_an_output_that_cannot_be_written(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(model), "-o", str(tmp_path / "none" / "out.tar")]) == 1
    assert "none" in capsys.readouterr().err
    assert main(["run", str(model), "-o", str(tmp_path / "none" / "y.npz")]) == 1
    assert capsys.readouterr().err.startswith(f"Error: cannot write '{tmp_path}/none/y.npz'")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (
            InternalError("the pass X failed"),
            "Error: this is a fault of the compiler, not of the model: the pass X failed; -v shows where [TW1301]\n"
        ),
        (
            ZeroDivisionError("by 0"),
            "Error: this is a fault of the compiler, not of the model: ZeroDivisionError: by 0; -v shows where "
            "[TW1301]\n"
        ),
    ],
)
def test_faults_of_ours_are_said_to_be_ours(
    raised: Exception, said: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("tilewright.driver.compilation.Compilation.compiled", fail)
    assert main(["run", str(model)]) == 1
    assert capsys.readouterr().err == said
    main(["-v", "run", str(model)])
    assert "Traceback" in capsys.readouterr().err
    main(["run", "-v", str(model)])
    assert "Traceback" in capsys.readouterr().err


def test_an_interruption_is_no_fault(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewright.driver.compilation.Compilation.compiled", interrupt)
    assert main(["run", str(model)]) == 130
    assert capsys.readouterr().err == "Error: interrupted\n"


def test_an_interrupt_while_a_model_is_compiled_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lowered: list[object] = []
    lower = tuned.lower

    def interrupted(*args: Any, **options: Any) -> Any:
        lowered.append(args)
        if len(lowered) == 2:
            signal.raise_signal(signal.SIGINT)
        return lower(*args, **options)

    path = tmp_path / "cnn.onnx"
    path.write_bytes(cnn().SerializeToString())
    monkeypatch.setattr(tuned, "lower", interrupted)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "off")  # another test may have compiled the same model
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["compile", str(path), "-o", str(tmp_path / "cnn.so")]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "Error: interrupted\n"
    assert [p.name for p in tmp_path.iterdir()] == ["cnn.onnx"]
    assert len(lowered) == 2
    assert main(["compile", str(path), "-o", str(tmp_path / "cnn.so")]) == 0


def test_an_interruption_of_the_imports_is_none_either(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupt)
    assert (commands.tilewright(), commands.tvmc()) == (130, 130)
    assert capsys.readouterr().err == "Error: interrupted\n" * 2


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "tilewright", "compile"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: Missing argument")


# --- bad input: one message, no traceback, nothing half-written
# ---------------------------------------------------------


def refused(arguments: list[object], capsys: pytest.CaptureFixture[str], code: int = 1) -> str:
    """What the command says when it refuses; it writes nothing to the standard output."""
    assert main([str(a) for a in arguments]) == code
    said = capsys.readouterr()
    assert said.err.startswith("Error: ")
    assert "Traceback" not in said.err
    assert "fault of the compiler" not in said.err
    assert said.out == ""
    return said.err


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_files_that_are_no_models_leave_nothing_behind(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, (_, message) in bad_files(tmp_path).items():
        before = sorted(tmp_path.iterdir())
        said = refused(["compile", tmp_path / name, "-o", tmp_path / f"out{suffix}"], capsys)
        assert message in said
        assert name in said
        assert sorted(tmp_path.iterdir()) == before


def test_all_unknown_operators_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad_files(tmp_path)
    said = refused(["compile", tmp_path / "unknown.onnx", "-o", tmp_path / "out.so"], capsys)
    assert all(word in said for word in ("Wobble", "Frobnicate", "first", "second", "third"))


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--target", "cuda"], 1, "'cuda' is not a kind of target"),
        (["--target", "llvm -mcpu=skylark"], 1, "CPU 'skylark' is not known for"),
        (["--target", "llvm -fast"], 1, "'-fast' is not an option of a target"),
        (["--disabled-pass", "FuseOps,FoldConst"], 2, "there is no pass 'FoldConst'; did you mean 'FoldConstant'?"),
        (["--input-shapes", "z:[1]"], 1, "the model has no input 'z'; its inputs are x"),
        (["--input-shapes", "x:[1,2,3]"], 1, "has 3 dimensions, and input 'x' of the model has 2"),
        (["--opt-level", "7"], 2, "Invalid value for '--opt-level'"),
        (["--threads", "0"], 2, "Invalid value for '--threads'"),
    ],
)
def test_options_that_cannot_be(
    options: list[str], code: int, message: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(["compile", model, "-o", tmp_path / "out.so", *options], capsys, code)
    assert [p.name for p in tmp_path.iterdir()] == ["mlp.onnx"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.zeros((2, 16), np.float32)}, "the model has no input 'z'; it"),
        ({"x": np.zeros((2, 17), np.float32)}, "17"),
        (
            {"x": np.zeros((2, 16), np.float64)},
            "input 'x' has dtype float64, expected float32 x[2, 16]; convert it with .astype('float32')"
        ),
    ],
)
def test_inputs_that_do_not_fit(
    arrays: dict[str, Any], message: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(tmp_path / "in.npz", **arrays)
    assert main(["compile", str(model), "-o", str(tmp_path / "m.so")]) == 0
    capsys.readouterr()
    for what in (tmp_path / "m.so", model):
        said = refused(["run", what, "-i", tmp_path / "in.npz", "-o", tmp_path / "out.npz"], capsys)
        assert message in said
        assert not (tmp_path / "out.npz").exists()


def test_an_output_that_cannot_be_written_leaves_nothing(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    for suffix in (".so", ".tar"):
        assert "cannot be written" in refused(["compile", model, "-o", tmp_path / "file" / f"m{suffix}"], capsys)
    (tmp_path / "folder.so").mkdir()
    assert "cannot be written" in refused(["compile", model, "-o", tmp_path / "folder.so"], capsys)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["file", "folder.so", "mlp.onnx"]


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_artifacts_that_cannot_be_run(
    suffix: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"m{suffix}"
    assert main(["compile", str(model), "-o", str(path)]) == 0
    capsys.readouterr()
    whole = path.read_bytes()
    middle = whole.index(b"\x7fELF") + 200
    for damaged in (
        whole[: len(whole) // 2], whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :], b"", b"\0" * 4096
    ):
        path.write_bytes(damaged)
        assert f"Error: {path}: " in refused(["run", path], capsys)
    path.write_bytes(whole)
    assert main(["run", str(path)]) == 0


def test_an_artifact_for_another_processor(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = "aarch64" if host.host_arch() == "x86_64" else "x86_64"
    path = tmp_path / "m.tar"
    assert main(
        ["compile", str(model), "-o", str(path), "--target", f"llvm -mtriple={other}-linux-gnu"]
    ) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert f"made for {other}, this machine is {host.host_arch()}" in refused(["run", path], capsys)
    assert main(["compile", str(model), "-o", str(path)]) == 0
    capsys.readouterr()
    monkeypatch.setattr(host, "host_features", lambda: frozenset({"sse2", "neon"}))
    said = refused(["run", path], capsys)
    assert "made for a CPU with" in said
    assert "compile with --target 'llvm -mcpu=" in said
