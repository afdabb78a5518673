"""The field's `tvmc` from Python: models, packages, results, what stands in for libraries, and programs for other
machines."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tvm
from small_models import cnn, mlp, onnxruntime_answers
from suites import unpack
from test_command_lines import rewritten
from tflite_small import _models
from tilewright import relay
from tilewright.backends.targets.target import Target
from tilewright.base.errors import ArtifactError, InputError, ModelError, OptionError, RunError, TargetError
from tilewright.driver import tvmc
from tilewright.driver.application import spread
from tilewright.driver.targets import read_target, split_target_options
from tilewright.driver.tvmc.composition import executor, runtime
from tilewright.driver.tvmc.transforms import MixedPrecision, with_layouts
from tilewright.ir.op_attributes import op_attr
from tilewright.relay.backend import Executor
from tilewright.relay.op.hooks import MIXED_PRECISION
from tilewright.relay.visitor import calls
from tilewright.runtime import graph_executor, load_module
from tilewright.runtime.program import KernelCall
from tilewright.runtime.sealed_tar import SEAL

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
BNNS = "bnns, llvm -device=arm_cpu -mtriple=aarch64-linux-gnu"
IMAGE = np.random.default_rng(0).random((1, 3, 16, 16), np.float32)


@pytest.fixture
def perceptron(tmp_path: Path) -> Path:
    """`x` (2, 16) -> `y` (2, 10)."""
    path = tmp_path / "mlp.onnx"
    path.write_bytes(mlp().SerializeToString())
    return path


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """`x` (1, 3, 16, 16) -> `y` (1, 10), with convolutions."""
    path = tmp_path / "cnn.onnx"
    path.write_bytes(cnn().SerializeToString())
    return path


# --- models
# ---------------------------------------------------------------------------------------------------------------


def test_load_compile_run(perceptron: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The three steps of the field's tutorial."""
    model = tvmc.load(perceptron)
    package = tvmc.compile(model, target="llvm", package_path=tmp_path / "p.tar")
    x = np.random.default_rng(1).random((2, 16), np.float32)
    result = tvmc.run(package, device="cpu", inputs={"x": x}, benchmark=True, repeat=2, number=1)
    np.testing.assert_allclose(
        result.get_output("output_0"), onnxruntime_answers(perceptron, {"x": x})[0], rtol=1e-4, atol=1e-5
    )
    assert "mean (ms)" in result.format_times() and "output_0: float32[2, 10]" in str(result)
    result.save(tmp_path / "y.npz")
    with np.load(tmp_path / "y.npz") as found:
        assert found["output_0"].tobytes() == result.outputs["output_0"].tobytes()
    with pytest.raises(InputError, match="there is no output 'y'; there are output_0"):
        result.get_output("y")
    with pytest.raises(InputError, match="no times were measured"):
        tvmc.run(package).format_times()
    model.summary()
    assert "def @main(%x: Tensor[(2, 16), float32]" in capsys.readouterr().out


def test_symbolic_dimensions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One package for all sizes; a model without one names the dimensions that need numbers."""
    model, package = tmp_path / "open.onnx", str(tmp_path / "open.tar")
    onnx.save(mlp("n"), model)
    assert tvmc.main.main(["compile", str(model), "--target", "llvm", "-o", package]) == 0
    for n in (2, 5):
        capsys.readouterr()
        assert tvmc.main.main(["run", package, "--input-shapes", f"x:[{n},16]"]) == 0
        assert f"[{n}, 10]" in capsys.readouterr().out
    assert tvmc.main.main(["run", package]) != 0
    assert "give numbers for n in --input-shapes" in capsys.readouterr().err
    assert tvmc.main.main(["run", package, "--input-shapes", "x:[0,16]"]) != 0
    assert "dimension 0 of input 'x' is 0, but the program was compiled for n from 1" in capsys.readouterr().err
    nodes = [onnx.helper.make_node("NonZero", ["x"], ["y"])]
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n"])
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None)
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [x], [y])), model)
    assert tvmc.main.main(["compile", str(model), "--target", "llvm", "-o", package]) != 0
    assert 'Give numbers for the names in --input-shapes "x:[n]"' in capsys.readouterr().err


def test_what_is_not_looked_into_is_compiled_from_its_file(perceptron: Path) -> None:
    model = tvmc.load(perceptron)
    assert model.source == perceptron
    assert "main" in dict(model.mod.items())
    assert isinstance(model.source, tvm.IRModule)


def test_a_model_is_saved_copied_and_read(perceptron: Path, tmp_path: Path) -> None:
    model = tvmc.load(perceptron)
    model.save(tmp_path / "model.tar")
    read = tvmc.TVMCModel(model_path=tmp_path / "model.tar")
    assert tvm.ir.structural_equal(read.mod, model.mod)
    copied = model.copy()
    copied.mod["other"] = copied.mod["main"]
    assert "other" not in dict(model.mod.items())
    outputs = [
        tvmc.run(tvmc.compile(m, "llvm", output_format="tar"), fill_mode="ones").outputs["output_0"]
        for m in (model, read)
    ]
    assert outputs[0].tobytes() == outputs[1].tobytes()


def test_a_model_of_a_module_with_parameters() -> None:
    x, w = relay.var("x", shape=(2, 4)), relay.var("w", shape=(3, 4))
    model = tvmc.TVMCModel(
        tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w))), {"w": np.eye(3, 4, dtype=np.float32)}
    )
    result = tvmc.run(
        tvmc.compile(model, "llvm", output_format="tar"), inputs={"x": np.arange(8, dtype=np.float32).reshape(2, 4)}
    )
    assert result.outputs["output_0"].tolist() == [[0, 1, 2], [4, 5, 6]]


def test_weights_that_stay_parameters(perceptron: Path) -> None:
    model = tvmc.load(perceptron, freeze_params=False)
    free = relay.analysis.free_vars(model.mod["main"].body)
    assert model.params and {v.name_hint for v in free} == {"x", *model.params}
    frozen = tvmc.load(perceptron)
    assert not frozen.params
    x = {"x": np.ones((2, 16), np.float32)}
    a, b = (tvmc.run(tvmc.compile(m, "llvm"), inputs=x).outputs["output_0"] for m in (model, frozen))
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_models_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="give one of them"):
        tvmc.TVMCModel()
    with tarfile.open(tmp_path / "other.tar", "w"):
        pass
    with pytest.raises(ModelError, match=r"not a file that TVMCModel\.save wrote"):
        tvmc.TVMCModel(model_path=tmp_path / "other.tar")
    (tmp_path / "x.onnx").write_bytes(b"")
    with pytest.raises(OptionError, match="there is no format 'caffe'; choose from onnx, tflite"):
        tvmc.load(tmp_path / "x.onnx", "caffe")


# --- packages
# -------------------------------------------------------------------------------------------------------------


def names(path: Path) -> list[str]:
    """The members of a package, its seal left out."""
    with tarfile.open(path) as archive:
        return [name for name in archive.getnames() if name != SEAL]


@pytest.mark.parametrize(("options", "members", "executor"), [
    ({}, ["mod.so", "mod.json", "mod.params"], "graph"),
    ({"output_format": "tar"}, ["mod.tar", "mod.json", "mod.params"], "graph"),
    ({"output_format": "tar", "executor": "aot", "mod_name": "my-net"}, ["mod.tar", "my_net.h"], "aot"),
    ({"use_vm": True, "output_format": "tar"}, ["lib.tar"], "vm"),
])
def test_what_a_package_holds(
    options: dict[str, Any], members: list[str], executor: str, perceptron: Path, tmp_path: Path
) -> None:
    package = tvmc.compile(tvmc.load(perceptron), "llvm", package_path=tmp_path / "p.tar", **options)
    assert names(tmp_path / "p.tar") == members
    assert package.executor_type == executor and Path(str(package.lib_path)).name == members[0]
    assert tvmc.run(tvmc.TVMCPackage(tmp_path / "p.tar"), fill_mode="zeros").outputs["output_0"].shape == (2, 10)
    first = (tmp_path / "p.tar").read_bytes()
    tvmc.compile(tvmc.load(perceptron), "llvm", package_path=tmp_path / "p.tar", **options)
    assert first == (tmp_path / "p.tar").read_bytes() or members[0] == "mod.so"


def test_the_library_format_runs_too(perceptron: Path, tmp_path: Path) -> None:
    package = tvmc.compile(
        tvmc.load(perceptron), "llvm", package_path=tmp_path / "library.tar", output_format="mlf", mod_name="net"
    )
    assert package.metadata()["modules"]["net"]["model_name"] == "net"
    assert {
        "./metadata.json", "./codegen/host/lib/entry.o", "./executor-config/aot/net.json"
    } <= set(names(tmp_path / "library.tar"))
    other = tvmc.compile(tvmc.load(perceptron), "llvm", output_format="tar")
    given = {"x": np.ones((2, 16), np.float32)}
    first, second = (tvmc.run(p, inputs=given).outputs["output_0"] for p in (package, other))
    assert first.tobytes() == second.tobytes()
    with pytest.raises(ArtifactError, match="it is not in the Model Library Format"):
        other.metadata()
    assert (package.type, package.lib_name, package.lib_path) == ("mlf", None, None) and other.type == "classic"
    assert package.graph is not None and package.params is not None and package.executor_type == "graph"
    assert tvmc.TVMCPackage(package.package_path, project_dir=tmp_path).project_dir == tmp_path
    with pytest.raises(OptionError, match="Setting 'project_dir' is only allowed when importing a MLF"):
        tvmc.TVMCPackage(other.package_path, project_dir=tmp_path)


def test_a_built_module_becomes_a_package(perceptron: Path, tmp_path: Path) -> None:
    model = tvmc.load(perceptron)
    lib = relay.build(model.mod, "llvm", params=model.params)
    x = {"x": np.ones((2, 16), np.float32)}
    wanted = tvmc.run(tvmc.compile(model, "llvm"), inputs=x).outputs["output_0"]
    for form in ("tar", "mlf"):
        path = model.export_package(lib, tmp_path / f"{form}.tar", output_format=form)
        assert tvmc.run(tvmc.TVMCPackage(path), inputs=x).outputs["output_0"].tobytes() == wanted.tobytes()
    with pytest.raises(OptionError, match="Specifying the MLF output and a cross compiler is not supported"):
        model.export_package(lib, tmp_path / "mlf.tar", cross="cc", output_format="mlf")
    with pytest.raises(OptionError, match="there is no format 'zip'"):
        model.export_package(lib, tmp_path / "p.zip", output_format="zip")


def test_texts_and_instruments_of_a_compilation(perceptron: Path, tmp_path: Path) -> None:
    tvmc.compiler.save_dumps("net", {"relay": "a", "tir": "b"}, tmp_path)
    assert [(tmp_path / f"net.{form}").read_text() for form in ("relay", "tir")] == ["a", "b"]

    @tvm.instrument.pass_instrument
    class Counter:
        def __init__(self) -> None:
            self.names: list[str] = []

        def run_after_pass(self, mod: Any, info: Any) -> None:
            self.names.append(info.name)

    counter: Any = Counter()
    package = tvmc.compile(
        tvmc.load(perceptron), "llvm", package_path=str(tmp_path / "p.tar"), dump_code="ll", instruments=[counter])
    assert counter.names and Path(package.package_path + ".ll").read_text()


def test_the_graph_of_a_package_is_the_fields(perceptron: Path, tmp_path: Path) -> None:
    """Its nodes, their types, and that `graph_executor.create` takes it with the library, and no graph of another."""
    package = tvmc.compile(tvmc.load(perceptron), "llvm", package_path=tmp_path / "p.tar")
    assert package.graph is not None and package.params is not None
    graph = json.loads(package.graph)
    assert [n["op"] for n in graph["nodes"]] == ["null", "tvm_op"]
    assert graph["nodes"][1]["attrs"]["func_name"] == "default_run"
    assert graph["arg_nodes"] == [0] and graph["heads"] == [[1, 0, 0]] and graph["node_row_ptr"] == [0, 1, 2]
    assert graph["attrs"]["shape"] == ["list_shape", [[2, 16], [2, 10]]] and graph["attrs"]["dltype"] == [
        "list_str", ["float32", "float32"]
    ]
    library: Any = load_module(str(package.lib_path))
    module = graph_executor.create(package.graph, library, tvm.cpu(0))
    module.load_params(package.params)
    x = np.random.default_rng(1).random((2, 16), np.float32)
    module.run(x=x)
    assert module.get_output(0).numpy().tobytes() == tvmc.run(package, inputs={"x": x}).outputs["output_0"].tobytes()
    with pytest.raises(ArtifactError, match="the text is not a graph of a program"):
        graph_executor.create("{}", library, tvm.cpu(0))
    with pytest.raises(ArtifactError, match="the graph is of another program: its inputs are z"):
        graph_executor.create(package.graph.replace('"x"', '"z"'), library, tvm.cpu(0))


def test_a_damaged_package_is_refused(perceptron: Path, tmp_path: Path) -> None:
    tvmc.compile(tvmc.load(perceptron), "llvm", package_path=tmp_path / "p.tar", output_format="tar")
    with tarfile.open(tmp_path / "p.tar") as archive:
        whole = archive.extractfile("mod.tar").read()  # type: ignore[union-attr]
    for at in range(600, len(whole) - 1100, len(whole) // 20):
        changed = whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]
        with tarfile.open(fileobj=io.BytesIO(whole)) as inner:
            inside = any(
                m.offset_data <= at < m.offset_data + m.size for m in inner.getmembers()
                if m.name not in ("model.h", "constants.o")
            )
        if inside:
            rewritten(tmp_path / "p.tar", tmp_path / "bad.tar", {"mod.tar": changed})
            with pytest.raises(ArtifactError, match=r"bad\.tar \(mod\.tar\)"):
                tvmc.TVMCPackage(tmp_path / "bad.tar").executable()


# --- profiles
# -------------------------------------------------------------------------------------------------------------


def test_a_profile_has_every_step(network: Path, tmp_path: Path) -> None:
    package = tvmc.compile(tvmc.load(network), "llvm", package_path=tmp_path / "p.tar")
    program = package.executable()
    before = program(IMAGE)
    profile = program.profile(IMAGE, number=3)
    assert [s.name for s in profile.steps] == [s.symbol for s in program.manifest.steps if isinstance(s, KernelCall)]
    assert all(s.seconds > 0 for s in profile.steps)
    assert "first" in profile.steps[0].origin and "'first'" in str(profile)
    assert program(IMAGE).tobytes() == before.tobytes()
    with pytest.raises(OptionError, match="number=0 must be at least 1"):
        program.profile(IMAGE, number=0)


def test_modules_of_others_are_in_a_profile() -> None:
    x = relay.var("x", shape=(1, 4))
    program = tvm.compile(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))), target="llvm").executable
    assert [s.name for s in program.profile(np.ones((1, 4), np.float32)).steps] == ["kernel_0_relu"]
    loop = tvm.relay.parse(
        '#[version = "0.0.5"]\ndef @main(%b: bool, %x: Tensor[(4), float32]) { if (%b) { exp(%x) } else { %x } }'
    )
    with pytest.raises(RunError, match="cannot be timed separately: it has control flow"):
        tvm.compile(loop).executable.profile()


# --- targets
# --------------------------------------------------------------------------------------------------------------


def test_options_of_parts_of_a_target() -> None:
    words, options = split_target_options(
        [
            "compile", "m", "--target-llvm-mcpu=neoverse-n1", "--target-host", "llvm", "--target-ethos-n-variant",
            "n78", "-o", "x"
        ]
    )
    assert words == ["compile", "m", "--target-host", "llvm", "-o", "x"]
    assert [str(o) for o in options] == ["--target-llvm-mcpu", "--target-ethos-n-variant"]
    assert str(
        read_target("ethos-n, llvm -mtriple=aarch64-linux-gnu", options)
    ) == "ethos-n -variant=n78, llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
    assert split_target_options(["--", "--target-llvm-mcpu"])[0] == ["--", "--target-llvm-mcpu"]


def test_the_target_of_the_field_reaches_the_compiler() -> None:
    """The options of its text are attributes; the device is among the keys."""
    target = read_target(BNNS)
    assert [a.name for a in target.accelerators] == ["bnns"]
    assert target.attrs == {"device": "arm_cpu", "mtriple": "aarch64-linux-gnu"} and target.keys == ("arm_cpu", "cpu")


@pytest.mark.parametrize(("text", "said"), [
    ("llvm, npu", "the target 'llvm, npu' has llvm before npu; the processor comes last: 'npu, llvm'"),
    ("npu, npu -size=2, llvm", "names npu twice; give it once, with all of its options"),
    ("llvm, llvm, llvm", "names 3 processors (llvm, llvm, llvm), but a program has one"),
    ("ethos-n", "'ethos-n' computes only parts of a network; add a processor for the rest: 'ethos-n, llvm'"),
])
def test_targets_of_other_parts_are_refused(text: str, said: str) -> None:
    with pytest.raises(TargetError) as error:
        Target(text)
    assert said in str(error.value)


def test_values_of_options_that_take_many() -> None:
    assert spread(["a", "--ops", "b", "c", "-x", "d"], ["--ops"]) == ["a", "--ops", "b", "--ops", "c", "-x", "d"]


# --- what is asked of a program
# -------------------------------------------------------------------------------------------


def test_executors_and_runtimes() -> None:
    packed = executor("aot", {"unpacked-api": "1", "interface-api": "c", "workspace-byte-alignment": "32"})
    assert packed == Executor("aot", {"unpacked-api": True, "interface-api": "c", "workspace-byte-alignment": 32})
    with pytest.raises(OptionError, match='Executor "jit" is not defined; choose from graph, aot, vm'):
        executor("jit")
    with pytest.raises(
        OptionError, match=r'"link-parms" is not available on this Executor; .*did you mean .link-params'
    ):
        executor("aot", {"link-parms": 1})
    with pytest.raises(OptionError, match="--runtime-cpp-system-lib: 'x' is neither 1 nor 0"):
        runtime("cpp", {"system-lib": "x"})
    with pytest.raises(OptionError, match="--executor-aot-interface-api=packed is not possible"):
        executor("aot", {"interface-api": "packed"})


def test_layouts_are_as_desired(network: Path) -> None:
    module = with_layouts(tvmc.load(network).mod, ["NHWC:HWIO"], ["nn.conv2d"])
    found = [c.op for c in calls(module["main"].body) if getattr(c.op, "name", "") == "nn.conv2d"]
    assert len(found) == 2 and {
        (op.data_layout, op.kernel_layout) for op in found
    } == {("NHWC", "HWIO")}
    package = tvmc.compile(
        tvmc.load(network), "llvm", output_format="tar", desired_layout=["NHWC:HWIO"], desired_layout_ops=["nn.conv2d"]
    )
    np.testing.assert_allclose(
        tvmc.run(package, inputs={"x": IMAGE}).outputs["output_0"], onnxruntime_answers(network, {"x": IMAGE})[0],
        rtol=1e-4, atol=1e-5
    )


def test_operators_of_mixed_precision_are_so_inside_alone() -> None:
    with MixedPrecision(["nn.softmax"], "float32"):
        assert op_attr("nn.softmax", MIXED_PRECISION)(None, "bfloat16") == [0, "float32", "bfloat16"]
    assert op_attr("nn.softmax", MIXED_PRECISION) is None


def test_stand_ins_are_named_as_such(network: Path, tmp_path: Path) -> None:
    """Each row of BNNS is a kernel, and the answers are those of the network."""
    package = tvmc.compile(tvmc.load(network), "bnns, llvm", package_path=tmp_path / "p.tar", output_format="tar")
    assert package.graph is not None
    kernels = json.loads(package.graph)["nodes"][1]["attrs"]["kernels"].split(",")
    assert [k.partition("_bnns_")[2] for k in kernels if "bnns" in k] == [
        "conv2d_bias_relu_stand_in", "conv2d_stand_in", "global_avg_pool2d_stand_in", "dense_bias_stand_in"]
    assert "4 calls use stand-ins" in package.notes[0]
    np.testing.assert_allclose(
        tvmc.run(package, inputs={"x": IMAGE}).outputs["output_0"], onnxruntime_answers(network, {"x": IMAGE})[0],
        rtol=1e-4, atol=1e-5
    )
    modules = tvm.compile(network, target="bnns, llvm").artifact.modules
    # without being asked, calls stay calls
    assert [m.type_key for m in modules] == ["library_calls"] * len(modules) != []


# --- other machines
# -------------------------------------------------------------------------------------------------------

C_PROGRAM = """
#include <stdio.h>
#include "default.h"
static unsigned char input[INPUT_BYTES] __attribute__((aligned(64))), output[OUTPUT_BYTES] __attribute__((aligned(64)));

int main(int argc, char** argv) {
  const void* inputs[] = {input};
  void* outputs[] = {output};
  FILE* file = fopen(argv[1], "rb");
  if (!file || fread(input, 1, sizeof input, file) != sizeof input) return 2;
  fclose(file);
  if (default_run(inputs, outputs)) return 3;
  file = fopen(argv[2], "wb");
  if (!file || fwrite(output, 1, sizeof output, file) != sizeof output) return 4;
  fclose(file);
  default_close();
  return 0;
}
"""


def run_on_arm(
    model: Path, x: np.ndarray[Any, Any], like: np.ndarray[Any, Any], folder: Path
) -> tuple[np.ndarray[Any, Any], tvmc.TVMCPackage]:
    """What a C program on an emulated Arm computes with the library that the user's compiler linked."""
    options: dict[str, Any] = {"cross": COMPILER, "cross_options": "-O2 -shared"}
    package = tvmc.compile(
        tvmc.load(model), BNNS, package_path=folder / "arm.tar", executor="aot", **options
    )
    unpack(folder / "arm.tar", folder)
    (folder / "main.c").write_text(C_PROGRAM)
    command = [
        COMPILER, "-O1", "-Wall", "-Werror", f"-DINPUT_BYTES={x.nbytes}", f"-DOUTPUT_BYTES={like.nbytes}", "main.c",
        "./mod.so", "-o", "main"
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    (folder / "x").write_bytes(x.tobytes())
    subprocess.run(
        [EMULATOR, "-L", "/usr/aarch64-linux-gnu", "./main", "x", "y"], cwd=folder, check=True, capture_output=True,
        timeout=300
    )
    return np.frombuffer((folder / "y").read_bytes(), like.dtype).reshape(like.shape), package


needs_arm = pytest.mark.skipif(
    not (shutil.which(COMPILER) and shutil.which(EMULATOR)), reason=f"{COMPILER} and {EMULATOR} are not installed"
)


@needs_arm
def test_a_program_with_stand_ins_runs_on_an_arm(network: Path, tmp_path: Path) -> None:
    wanted = tvm.compile(network)(IMAGE)
    found, package = run_on_arm(network, IMAGE, wanted, tmp_path)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert package.notes
    assert Path(str(package.lib_path)).read_bytes()[18:20] == b"\xb7\0"  # EM_AARCH64


@needs_arm
@pytest.mark.slow
def test_a_quantized_network_gives_the_same_bytes_on_an_arm(tmp_path: Path) -> None:
    model = Path(__file__).parent.parent.parent / "shared" / "models" / "mobilenet_v1_0.25_224_quant.tflite"
    if not model.exists():
        pytest.skip(f"{model} is not there")
    x = np.random.default_rng(0).integers(0, 256, (1, 224, 224, 3), np.uint8)
    wanted = tvm.compile(model)(x)
    assert run_on_arm(model, x, wanted, tmp_path)[0].tobytes() == wanted.tobytes()


@pytest.mark.parametrize("name", ["conv_int8", "average_pool_uint8"])
def test_partitions_of_float_operators_leave_roundings_alone(name: str) -> None:
    """A network that BNNS and oneDNN take nothing of has the answers of the runtime that it is from."""
    model = _models()[name]()
    plain, *others = (
        tvm.compile(model, target=target, config={"relay.library_calls.stand_in": True})
        for target in ("llvm", "bnns, llvm")
    )
    random = np.random.default_rng(0)
    given = [random.integers(-100, 100, t.shape).astype(t.dtype.numpy()) for t in plain.inputs]
    for other in others:
        for a, b in zip(np.atleast_1d(plain(*given)), np.atleast_1d(other(*given)), strict=True):
            np.testing.assert_allclose(a, b, rtol=0 if a.dtype.kind in "iu" else 1e-5)


def test_sums_go_to_bnns_whichever_way_round_they_stand() -> None:
    x, w = relay.var("x", shape=(2, 4)), relay.const(np.eye(3, 4, dtype=np.float32))
    module = tvm.IRModule.from_expr(
        relay.Function([x], relay.add(relay.const(np.ones((3,), np.float32)), relay.nn.dense(x, w)))
    )
    partitioned = relay.op.contrib.bnns.partition_for_bnns(module)
    assert [f.attrs["Compiler"] for n, f in partitioned.items() if n != "main"] == ["bnns"]
    assert tvm.compile(
        module, target="bnns, llvm", config={"relay.library_calls.stand_in": True}
    )(np.ones((2, 4), np.float32)).tolist() == [[2, 2, 2]] * 2


def test_kernels_of_a_file_that_changed_are_not_looked_for(network: Path, tmp_path: Path) -> None:
    program = tvm.load(tvm.compile(network).save(tmp_path / "a.so"))
    with (tmp_path / "a.so").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ArtifactError, match="is not visible in the code, so it cannot be timed separately"):
        program.profile(IMAGE)
