"""The code and the listings of the documents that describe the system, run as they stand there.

The documents are looked for in the folder that the environment variable `TILEWRIGHT_SEEDS` names, then in
`shared/seeds`. Each becomes a program that imports `tvm`. What a document leaves out, such as imports and weights, is
written here; its marks of omissions, `......`, are removed. Left alone are programs of TVM's own C++ library, the
commands that build TVM from its source, lines that the documents cut off, and the second listing of document 004,
which ends within a call.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

pytestmark = pytest.mark.models
ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared"
FOLDER = Path(os.environ.get("TILEWRIGHT_SEEDS", SHARED / "seeds"))
OMITTED = re.compile(r"\.{6,}")


def document(number: str) -> str:
    """The text of a document; its test is skipped where the documents are not there."""
    found = sorted(FOLDER.glob(f"{number}_*.txt"))
    if not found:
        pytest.skip(f"there is no document {number}; TILEWRIGHT_SEEDS names the folder of the documents")
    return found[0].read_text(encoding="utf-8")


def blocks(number: str, language: str) -> list[str]:
    """The fenced blocks of a document in a language."""
    found = re.findall(rf"^``` ?{language}\n(.*?)^```$", document(number), re.DOTALL | re.MULTILINE)
    return [OMITTED.sub("", block) for block in found]


def lines(number: str, first: str, last: str) -> list[str]:
    """The lines of a document from the first that begins with `first` to the next that is `last`."""
    all_lines = OMITTED.sub("", document(number)).splitlines()
    start = next(k for k, line in enumerate(all_lines) if line.startswith(first))
    return all_lines[start : all_lines.index(last, start) + 1]


def run(folder: Path, code: str, **environment: str) -> str:
    """The output of a program that imports `tvm`."""
    (folder / "program.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "tilewright.tvm", "program.py"], cwd=folder, text=True, capture_output=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")} | environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


# Document 000: one convolution as two frontends import it, and rewrites that make the two alike.

LISTINGS = """
import numpy as np
import tvm
from tvm import relay
from tvm.relay import transform
from tvm.relay.dataflow_pattern import DFPatternCallback, is_constant, is_op, wildcard

rng = np.random.default_rng(0)
weight, bias = rng.integers(-127, 128, (32, 3, 3, 3)).astype("int8"), rng.integers(-4000, 4000, 32).astype("int32")
image = "%input: Tensor[(1, 3, 224, 224), float32]"
floats = "%features.0.0_weight: Tensor[(32, 3, 3, 3), float32], %features.0.0_bias: Tensor[(32), float32]"
begin = '#[version = "0.0.5"]\\ndef @main'
torch = tvm.parser.fromtext(f"{begin}({image}, {floats}) {{{TORCH} %8 }}")["main"]
torch = relay.build_module.bind_params_by_name(torch, {
    "features.0.0_weight": tvm.nd.array(weight * np.float32(0.00288958)),
    "features.0.0_bias": tvm.nd.array(bias * np.float32(5.39136e-05))})
torch = transform.InferType()(tvm.IRModule.from_expr(torch))
tflite = tvm.parser.parse(f"{begin}({image}) {{{TFLITE} %4 }}", "document", None, {
    "relay.Constant": [relay.const(weight), relay.const(bias)]})
tflite = transform.InferType()(tflite)
x = rng.standard_normal((1, 3, 224, 224)).astype("float32")

def result(mod):
    return relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(x).numpy()

assert result(torch).dtype == np.uint8 and len(np.unique(result(torch))) > 50
np.testing.assert_array_equal(result(torch), result(tflite))
"""
"""The two listings as modules, whose results are equal."""
REMOVE_CLIP = """
class RemoveClipAfterRequantize(DFPatternCallback):
    def __init__(self):
        super().__init__()
        requantize = is_op("qnn.requantize")(wildcard(), is_constant(), is_constant(), is_constant(), is_constant())
        self.pattern = is_op("cast")(is_op("clip")(requantize))

    def callback(self, pre, post, node_map):
        inner = post.args[0].args[0]
        return tvm.relay.qnn.op.requantize(*inner.args, axis=inner.attrs.axis, out_dtype="uint8")
"""
"""A class that the document names and does not show."""
OMITTED_IN_FOLD = """\
        dtype = post.attrs.out_dtype
        value, scale, zero = (a.data.numpy() for a in post.args)
        data = np.round(value / scale) + zero
"""
PARTITION = """
def pattern_table():
    return [("ethos-n.qnn_conv2d", qnn_conv_pattern())]

def parts(mod):
    PARTITIONING
    return [str(g.name_hint) for g, f in seq(mod).functions.items() if f.attrs and f.attrs.get("Compiler") == "ethos-n"]

assert len(parts(torch)) == 0 and len(parts(tflite)) == 1
mod = torch
REWRITING
mod = transform.InferType()(mod)
assert len(parts(mod)) == 1
tvm.ir.assert_structural_equal(mod, tflite)
np.testing.assert_array_equal(result(mod), result(tflite))
"""


def test_two_listings_of_a_convolution_are_made_alike(tmp_path: Path) -> None:
    torch, tflite = blocks("000", "text")
    partitioning, pattern, fold, rewriting = blocks("000", "python")
    code = [
        f"TORCH, TFLITE = {torch!r}, {tflite!r}", LISTINGS, pattern, fold.replace("        \n", OMITTED_IN_FOLD, 1),
        REMOVE_CLIP, PARTITION.replace("PARTITIONING", partitioning.replace("\n", "\n    ")).replace(
            "REWRITING", rewriting)
    ]
    run(tmp_path, "\n".join(code))


@pytest.mark.skipif(shutil.which("aarch64-linux-gnu-gcc") is None, reason="aarch64-linux-gnu-gcc is not installed")
def test_the_command_line_compiles_for_two_targets(tmp_path: Path) -> None:
    command, = blocks("000", "bash")
    model = SHARED / "models" / "mobilenet_v1_0.25_224_quant.tflite"
    if not model.is_file():
        pytest.skip(f"there is no {model.name}")
    shutil.copy(model, tmp_path)
    source = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    path = subprocess.run(
        [sys.executable, "-m", "tilewright.tvm", "--path"], check=True, capture_output=True, text=True, env=source)
    subprocess.run(["bash", "-e"], input=command, cwd=tmp_path, text=True, check=True, env=os.environ | {
        "CC": "aarch64-linux-gnu-gcc", "CC_OPTIONS": "-O2", "PYTHONPATH": f"{path.stdout.strip()}:{ROOT / 'src'}",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})
    with tarfile.open(tmp_path / "tvmc.tar") as file:
        assert any(name.endswith(".so") for name in file.getnames())


# Document 002: a model is compiled, run, tuned, and compared.

def image_classifier(path: Path) -> None:
    """Write a small classifier with the input and the output of that of the document."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array((rng.standard_normal(shape) / 10).astype("float32"), name)

    def value(name: str, *shape: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    nodes = [
        helper.make_node("Conv", ["data", "w0"], ["c0"], strides=[4, 4], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], strides=[2, 2], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        helper.make_node("GlobalAveragePool", ["c1"], ["p"]), helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w2"], ["y"])
    ]
    graph = helper.make_graph(nodes, "classifier", [value("data", "N", 3, 224, 224)], [value("y", "N", 1000)], [
        weight("w0", 16, 3, 3, 3), weight("w1", 32, 16, 3, 3), weight("w2", 32, 1000)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


@pytest.mark.slow
def test_the_tutorial_of_tuning_runs(tmp_path: Path) -> None:
    """The files that the document downloads are put where downloads are kept. A line of the document has a slip of
    the keyboard, `333` behind a call."""
    for folder in ("onnx", "data"):
        (tmp_path / folder).mkdir()
    image_classifier(tmp_path / "onnx" / "resnet50-v2-7.onnx")
    Image.new("RGB", (400, 300), (90, 120, 30)).save(tmp_path / "data" / "imagenet_cat.png")
    (tmp_path / "data" / "synset.txt").write_text("".join(f"n{k:08} thing {k}\n" for k in range(1000)), "utf-8")
    code = "".join(blocks("002", "python")).replace('loss_type="reg")333', 'loss_type="reg")')
    printed = run(tmp_path, code, TEST_DATA_ROOT_PATH=str(tmp_path))
    assert printed.count("with probability=") == 15
    assert "unoptimized: {'mean': " in printed and "\noptimized: {'mean': " in printed
    records = (tmp_path / "resnet-50-v2-autotuning.json").read_text(encoding="utf-8").splitlines()
    assert len(records) >= 20 and all('"input": ["llvm' in record for record in records)


# Document 003: code in C for a program that was written with the builder of loops.

LOOPS = """
import tvm
from tvm import te

def doubled(ins, outs):
    irb = tvm.tir.ir_builder.create()
    source, result = irb.buffer_ptr(ins[0]), irb.buffer_ptr(outs[0])
    row = irb.allocate("float32", 8, name="row", scope="local")
    with irb.for_range(0, 16, name="i") as i:
        row[0] = source[i] * 2.0
        result[i] = row[0]
    return irb.get()

data = te.placeholder((16,), name="data")
out = te.extern((16,), [data], doubled, dtype="float32")
ls = tvm.lower(te.create_schedule(out.op), [data, out], name="prune_conv")
"""
"""A program with an allocation of scope `local`, which TVM's own back end for C refuses."""


def test_the_builder_of_loops_gives_code_in_c(tmp_path: Path) -> None:
    line = re.search(r"^1 \| (build_f = .*, binds=None\)) \|$", document("003"), re.MULTILINE)
    assert line is not None
    code = run(tmp_path, f"{LOOPS}\n{line[1]}\nprint(build_f.get_source())")
    assert re.search(r"\bprune_conv\(", code) and "float" in code and "for (" in code


# Document 004: a layer of MobileNet is taken by an accelerator.

VERSION = '#[version = "0.0.5"]\n'
DEPTHS = (0, 0, 1, 1, 2, 1, 0)
"""The indentation of the lines of a program, which the document has lost."""
TAKEN = """
taken = {g.name_hint: f for g, f in mod.functions.items() if f.attrs and f.attrs.get("Compiler") == "npu"}
assert sorted(taken) == ["tvmgen_default_npu_main_0", "tvmgen_default_npu_main_2"], sorted(taken)
for name, function in taken.items():
    assert function.body.op.name == "nn.bias_add" and function.attrs["global_symbol"] == name
    assert function.attrs["Inline"] == 1 and function.attrs["Primitive"] == 1
"""


def test_an_operator_is_taken_by_a_target_of_the_user(tmp_path: Path) -> None:
    listing = lines("004", "def @main(%input: Tensor[(1, 224, 224, 3), float32], %v_param_1", "}")
    text = "\n".join(listing[:-1]).replace(", ...)", ")") + "\n%5 }"
    register = lines("004", "import tvm.ir", '_register_external_op_helper("nn.bias_add")')
    assert len(register) == len(DEPTHS)
    partition = lines("004", 'target = "npu"', "mod = tvm.relay.transform.PartitionGraph()(mod)")
    run(tmp_path, "\n".join([
        *(" " * 4 * depth + line for depth, line in zip(DEPTHS, register, strict=True)),
        f"mod = tvm.parser.fromtext({VERSION + text!r})",
        "mod = tvm.relay.transform.InferType()(mod)", *partition, TAKEN]))
