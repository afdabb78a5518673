"""Files that stand in for the downloads of TVM's tutorials, where there is no network.

    python benchmarks/tvm_data.py MODELS DATA
    TEST_DATA_ROOT_PATH=DATA TORCH_HOME=DATA/torch python benchmarks/tvm_suite.py FOLDER/tvm_v0.13 gallery

`MODELS` has real models, a picture of a cat and the labels of ImageNet; `DATA` is written as
`tvm.contrib.download.download_testdata` would have left it.

| file of a tutorial | what it is here |
| --- | --- |
| `onnx/resnet50-v2-7.onnx` | `efficientnet_lite0.onnx`, its input called `data` |
| `onnx/super_resolution.onnx` | a network of the same layers, its weights those of an enlargement by copying |
| `tf/official/mobilenet_v1_1.0_224.tgz` | the float MobileNet v1 of width 0.25 |
| `tf/official/mobilenet_v2_1.0_224_quant.tgz` | that model itself |
| `model/*.tflite` | these models themselves |
| `data/sine_model.tflite` | one hidden layer, fitted to the sine |
| `data/*.png`, `data/*.jpg`, `samples/*.jpg` | the cat, in the size that the tutorial expects |
| `data/synset.txt` and other labels | the labels, with numbers in place of WordNet's |
| `tvmc/*.tgz`, `tvmc/*.tflite` | the quantized MobileNet v1 of width 0.25, and a network for keywords |
| `tvmc/*.onnx` | a residual network of three convolutions, and a network for digits, with random weights |
| `tvmc/inputs` | the cat |
| `logs/resnet-50-NHWC-B1-llvm.json` | no records: the schedules are the compiler's own |
| `data/keyword_spotting_int8_6.pyc.npy` | random numbers |
| `torch/hub/checkpoints/*.pth` | random weights, from a fixed seed |
"""

from __future__ import annotations

import importlib
import sys
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

ONNX_INPUT: Final = "data"
PICTURES: Final = {
    "data/cat.png": 256,
    "data/imagenet_cat.png": 256,
    "data/elephant-299.jpg": 299,
    "data/test_street_small.jpg": 512,
    "samples/person.jpg": 96,
    "samples/not_person.jpg": 96,
    "tvmc/inputs": 256,
}
MODELS: Final = {
    "model/vww_96_int8.tflite": "vww_96_int8.tflite",
    "model/kws_ref_model.tflite": "kws_ref_model.tflite",
    "tvmc/cnn_s_quantized.tflite": "kws_ref_model.tflite",
}
ARCHIVES: Final = {
    "tf/official/mobilenet_v1_1.0_224.tgz": ("mobilenet_v1_1.0_224.tflite", "mobilenet_v1_0.25_224_1_default_1.tflite"),
    "tf/official/mobilenet_v2_1.0_224_quant.tgz":
        ("mobilenet_v2_1.0_224_quant.tflite", "mobilenet_v2_1.0_224_quant.tflite"),
    "tvmc/mobilenet_v1_1.0_224_quant.tgz":
        ("mobilenet_v1_1.0_224_quant.tflite", "mobilenet_v1_0.25_224_quant.tflite"),
}
CHECKPOINTS: Final = {
    "resnet18-f37072fd.pth": "resnet18",
    "resnet50-0676ba61.pth": "resnet50",
    "mobilenet_v2-b0353104.pth": "mobilenet_v2",
    "maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth": "detection.maskrcnn_resnet50_fpn",
    "mobilenet_v2_qnnpack_37f702c5.pth": "quantization.mobilenet_v2",
}


def write_pictures(models: Path, data: Path) -> None:
    """Write the picture of the cat under the names of the tutorials' pictures."""
    image = importlib.import_module("PIL.Image")
    with image.open(models / "cat.jpg") as cat:
        for name, size in PICTURES.items():
            cat.convert("RGB").resize((size, size)).save(_place(data, name), "PNG" if name.endswith("inputs") else None)


def write_labels(models: Path, data: Path) -> None:
    """Write the labels of ImageNet in the four forms that tutorials read."""
    lines = (models / "imagenet_labels_1001.txt").read_text(encoding="utf-8").splitlines()
    labels, keys = lines[1:], [f"n{k:08d}" for k in range(len(lines) - 1)]
    named = [f"{key} {label}" for key, label in zip(keys, labels, strict=True)]
    texts = {
        "synset.txt": "\n".join(named),
        "imagenet_synsets.txt": "\n".join(named),
        "imagenet_classes.txt": "\n".join(keys),
        "imagenet1000_clsid_to_human.txt": repr(dict(enumerate(labels))),
        "labels_mobilenet_quant_v1_224.txt": "\n".join(lines),
    }
    for name, text in texts.items():
        _place(data, f"data/{name}").write_text(text + "\n", encoding="utf-8")


def write_models(models: Path, data: Path) -> None:
    """Write models of TFLite and ONNX."""
    for name, source in MODELS.items():
        _place(data, name).write_bytes((models / source).read_bytes())
    for name, (member, source) in ARCHIVES.items():
        with tarfile.open(_place(data, name), "w:gz") as archive:
            archive.add(models / source, arcname=member)
    _place(data, "data/sine_model.tflite").write_bytes(sine_model())
    onnx = importlib.import_module("onnx")
    onnx.save(super_resolution(), _place(data, "onnx/super_resolution.onnx"))
    onnx.save(residual_network(), _place(data, "tvmc/resnet50-v2-7.onnx"))
    onnx.save(digits_network(), _place(data, "tvmc/mnist-1.onnx"))
    classifier = onnx.load(models / "efficientnet_lite0.onnx")
    _rename_input(classifier.graph, ONNX_INPUT)
    onnx.save(classifier, _place(data, "onnx/resnet50-v2-7.onnx"))


def _rename_input(graph: Any, name: str) -> None:
    old = graph.input[0].name
    graph.input[0].name = name
    for node in graph.node:
        for k, used in enumerate(node.input):
            if used == old:
                node.input[k] = name


def super_resolution() -> Any:
    """Return a network that enlarges a picture of one channel, (1, 1, 224, 224), three times, by copying pixels."""
    helper, numpy_helper = importlib.import_module("onnx.helper"), importlib.import_module("onnx.numpy_helper")
    sizes = [(64, 1, 5), (64, 64, 3), (32, 64, 3), (9, 32, 3)]
    nodes, weights, last = [], [], "1"
    for k, (outputs, inputs, size) in enumerate(sizes):
        weight = np.zeros((outputs, inputs, size, size), np.float32)
        weight[:, 0, size // 2, size // 2] = 1.0
        weights.append(numpy_helper.from_array(weight, f"w{k}"))
        name = f"c{k}"
        nodes.append(helper.make_node("Conv", [last, f"w{k}"], [name], kernel_shape=[size, size], pads=[size // 2] * 4))
        if k < len(sizes) - 1:
            nodes.append(helper.make_node("Relu", [name], [f"r{k}"]))
            name = f"r{k}"
        last = name
    shapes = {"s0": [-1, 1, 3, 3, 224, 224], "s1": [-1, 1, 672, 672]}
    weights += [numpy_helper.from_array(np.array(shape, np.int64), name) for name, shape in shapes.items()]
    nodes += [
        helper.make_node("Reshape", [last, "s0"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[0, 1, 4, 2, 5, 3]),
        helper.make_node("Reshape", ["b", "s1"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(n, 1, s) for n, s in (("1", [1, 1, 224, 224]), ("y", [1, 1, 672, 672]))]
    graph = helper.make_graph(nodes, "super_resolution", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def residual_network() -> Any:
    """Return a network of three convolutions with a sum, over images `data` of any size, that tells 1,000 classes."""
    layers: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Conv", ["data", "w0"], "a", {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}),
        ("Relu", ["a"], "b", {}), ("Conv", ["b", "w1"], "c", {"kernel_shape": [3, 3], "pads": [1] * 4}),
        ("Relu", ["c"], "d", {}), ("Conv", ["d", "w2"], "e", {"kernel_shape": [3, 3], "pads": [1] * 4}),
        ("Add", ["e", "b"], "f", {}), ("GlobalAveragePool", ["f"], "g", {}), ("Flatten", ["g"], "h", {}),
        ("Gemm", ["h", "w3"], "y", {})]
    shapes = [(16, 3, 3, 3), (16, 16, 3, 3), (16, 16, 3, 3), (16, 1000)]
    return _random_network("residual", layers, shapes, ("data", [1, 3, 224, 224]), ("y", [1, 1000]))


def digits_network() -> Any:
    """Return a network of two convolutions that tells ten digits in images (1, 1, 28, 28)."""
    layers: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Conv", ["Input3", "w0"], "a", {"kernel_shape": [5, 5], "pads": [2] * 4}), ("Relu", ["a"], "b", {}),
        ("MaxPool", ["b"], "c", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Conv", ["c", "w1"], "d", {"kernel_shape": [5, 5], "pads": [2] * 4}), ("Relu", ["d"], "e", {}),
        ("MaxPool", ["e"], "f", {"kernel_shape": [3, 3], "strides": [3, 3]}), ("Flatten", ["f"], "g", {}),
        ("Gemm", ["g", "w2"], "Plus214_Output_0", {})]
    shapes = [(8, 1, 5, 5), (16, 8, 5, 5), (256, 10)]
    return _random_network(
        "digits", layers, shapes, ("Input3", [1, 1, 28, 28]), ("Plus214_Output_0", [1, 10]))


def _random_network(
    name: str, layers: Sequence[tuple[str, list[str], str, dict[str, Any]]], shapes: Sequence[tuple[int, ...]],
    source: tuple[str, list[Any]], result: tuple[str, list[Any]],
) -> Any:
    """Return a model whose weights `w0`, `w1`, … are random and small."""
    helper, numpy_helper = importlib.import_module("onnx.helper"), importlib.import_module("onnx.numpy_helper")
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array((rng.standard_normal(s) / np.sqrt(np.prod(s[1:]))).astype(np.float32), f"w{k}")
        for k, s in enumerate(shapes)]
    nodes = [helper.make_node(op, inputs, [output], **attrs) for op, inputs, output, attrs in layers]
    first, last = (helper.make_tensor_value_info(n, 1, s) for n, s in (source, result))
    graph = helper.make_graph(nodes, name, [first], [last], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def sine_model() -> bytes:
    """Return a model of TFLite that maps (1, 1) to its sine: a hidden layer of 32 steps, fitted by least squares."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
    files = importlib.import_module("tflite_models")
    starts = np.linspace(-0.2, 6.2, 32, dtype=np.float32)
    x = np.linspace(0.0, 2 * np.pi, 400, dtype=np.float32)
    hidden = np.maximum(x[:, None] - starts, 0)
    out = np.linalg.lstsq(hidden, np.sin(x), rcond=None)[0].astype(np.float32)
    tensors = [
        files.T("dense_4_input", (1, )), files.T("w0", (32, 1), value=np.ones((32, 1), np.float32)),
        files.T("b0", (32, ), value=-starts), files.T("h", (1, 32)), files.T("w1", (1, 32), value=out[None]),
        files.T("b1", (1, ), value=np.zeros(1, np.float32)), files.T("Identity", (1, 1)),
    ]
    layers = [
        files.Op("FULLY_CONNECTED", [0, 1, 2], [3], "FullyConnectedOptions", {"FusedActivationFunction": 1}),
        files.Op("FULLY_CONNECTED", [3, 4, 5], [6], "FullyConnectedOptions", {}),
    ]
    return bytes(files.model(tensors, layers, [0], [6]))


def write_samples(data: Path) -> None:
    """Write random numbers in place of a recorded word."""
    samples = np.random.default_rng(0).integers(-128, 128, (1, 49, 10, 1), dtype=np.int8)
    np.save(_place(data, "data/keyword_spotting_int8_6.pyc.npy"), samples)


def write_logs(data: Path) -> None:
    """Write an empty file in place of records of a search."""
    _place(data, "logs/resnet-50-NHWC-B1-llvm.json").write_text("", encoding="utf-8")


def write_checkpoints(data: Path) -> None:
    """Write random weights of torchvision's networks; none where torchvision is not installed."""
    try:
        torch, models = importlib.import_module("torch"), importlib.import_module("torchvision.models")
    except (ImportError, RuntimeError) as error:
        print(f"no weights for torchvision: {error}", file=sys.stderr)
        return
    for name, path in CHECKPOINTS.items():
        torch.manual_seed(0)
        network = _network(models, path)
        torch.save(network.state_dict(), _place(data, f"torch/hub/checkpoints/{name}"))


def _network(models: Any, path: str) -> Any:
    """Return a network of torchvision with random weights."""
    *folders, name = path.split(".")
    for folder in folders:
        models = getattr(models, folder)
    options: Mapping[str, Any] = {}
    if folders == ["detection"]:
        options = {"weights": None, "weights_backbone": None, "num_classes": 91}
    if folders == ["quantization"]:
        return _quantized(getattr(models, name)(weights=None, quantize=False))
    return getattr(models, name)(**options)


def _quantized(network: Any) -> Any:
    """Return a network quantized for QNNPACK, calibrated with random pictures."""
    torch = importlib.import_module("torch")
    quantization = importlib.import_module("torch.ao.quantization")
    torch.backends.quantized.engine = "qnnpack"
    network.train()
    network.fuse_model(is_qat=True)
    network.qconfig = quantization.get_default_qat_qconfig("qnnpack")
    quantization.prepare_qat(network, inplace=True)
    network(torch.rand(2, 3, 224, 224) * 4 - 2)
    network.eval()
    return quantization.convert(network)


def _place(data: Path, name: str) -> Path:
    """Return the path of a file below `data`, with its folder made."""
    path = data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    models, data = map(Path, arguments)
    for write in (write_pictures, write_labels, write_models):
        write(models, data)
    for step in _STEPS:
        step(data)
    return 0


_STEPS: Final[Sequence[Callable[[Path], None]]] = (write_samples, write_logs, write_checkpoints)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
