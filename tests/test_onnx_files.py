"""What happens to files that are no models, or damaged, or dangerous: each message, and that nothing outside is
read."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.base.errors import ModelError
from tilewright.relay.frontend.onnx import from_onnx
from tilewright.relay.interpreter import evaluate

WEIGHT = np.arange(64 * 48, dtype=np.float32).reshape(64, 48)


def model(weight: TensorProto | None = None) -> onnx.ModelProto:
    """`y = x @ w`, with a weight large enough to be read apart from the graph."""
    weight = numpy_helper.from_array(WEIGHT, "w") if weight is None else weight
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")], "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 48))], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def external(location: str, offset: int | str | None = None, length: int | str | None = None) -> TensorProto:
    """The weight, said to be stored in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=WEIGHT.shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            tensor.external_data.add(key=key, value=str(value))
    return tensor


def refused(what: Any, *words: str) -> str:
    with pytest.raises(ModelError) as caught:
        from_onnx(what)
    message = str(caught.value)
    for word in words:
        assert re.search(word, message), f"{word!r} is not in: {message}"
    return message


def test_a_path_bytes_and_a_proto_are_the_same_model(tmp_path: Path) -> None:
    file = tmp_path / "small.onnx"
    file.write_bytes(model().SerializeToString())
    x = np.random.default_rng(0).standard_normal((2, 64), np.float32)
    for what in (file, str(file), file.read_bytes(), model()):
        module, params = from_onnx(what)
        assert params == {}
        np.testing.assert_array_equal(evaluate(module["main"], x), x @ WEIGHT)


@pytest.mark.parametrize(("content", "words"), [
    (b"", ["is empty", "again"]),
    (b"<!DOCTYPE html><html>", ["text file", "DOCTYPE html"]),
    (b"version https://git-lfs.github.com/spec/v1\n", ["Git LFS pointer", "git lfs pull"]),
    (b"PK\x03\x04rest of an archive", ["zip archive", r"torch\.onnx\.export"]),
    (b"\x1c\x00\x00\x00TFL3rest of it", ["TFLite", "from_tflite"]),
    (b"\x89HDF\r\n\x1a\n", ["HDF5", "tf2onnx"]),
    (b"\x80\x02}q\x00.", ["pickle", "never executed"]),
    (b"\xff\xfe\xfd\xfc\x00\x01", ["not an ONNX model"]),
    (b"\x08\x08", ["no graph", "not an ONNX model"]),
])
def test_files_that_are_no_models(tmp_path: Path, content: bytes, words: list[str]) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(content)
    refused(file, re.escape(str(file)), *words)
    refused(content, *words)


@pytest.mark.parametrize("kept", [0.02, 0.3, 0.9, 0.999])
def test_a_truncated_file(tmp_path: Path, kept: float) -> None:
    data = model().SerializeToString()
    file = tmp_path / "cut.onnx"
    file.write_bytes(data[:int(len(data) * kept)])
    refused(file, "damaged or truncated after|no graph")


def test_missing_files_folders_and_other_things(tmp_path: Path) -> None:
    refused(tmp_path / "none.onnx", "none.onnx' does not exist", "current folder")
    (tmp_path / "found.onnx").write_bytes(b"x")
    refused(tmp_path, "is a folder", r"found\.onnx")
    refused(42, "give a path, bytes or an onnx.ModelProto", "int")


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"\0" * 100 + WEIGHT.tobytes())
    file = tmp_path / "m.onnx"
    file.write_bytes(model(external("w.bin", 100, WEIGHT.nbytes)).SerializeToString())
    module, _ = from_onnx(file)
    x = np.ones((2, 64), np.float32)
    np.testing.assert_array_equal(evaluate(module["main"], x), x @ WEIGHT)
    refused(file.read_bytes(), "stored in the separate file 'w.bin'", "give the path of the model")


def _absolute(folder: Path) -> str:
    return str(folder / "secret.bin")


@pytest.mark.parametrize(
    "location",
    [_absolute, lambda _: "../secret.bin", lambda _: "sub/../../secret.bin", lambda _: "link.bin", lambda _: ""]
)
def test_external_data_never_leaves_the_folder(tmp_path: Path, location: Callable[[Path], str]) -> None:
    (tmp_path / "secret.bin").write_bytes(WEIGHT.tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    file = folder / "m.onnx"
    file.write_bytes(model(external(location(tmp_path))).SerializeToString())
    refused(file, "tensor 'w'", "outside the model's folder", "never read")


@pytest.mark.parametrize(("offset", "length", "word"), [
    (8, WEIGHT.nbytes, "the file has .* bytes; it is truncated"),
    (0, 16, "its entry in 'w.bin' has 16 bytes"),
    (-4, WEIGHT.nbytes, "'-4', which is not a valid number of bytes"),
    ("many", WEIGHT.nbytes, "'many', which is not a valid number"),
])
def test_external_data_of_the_wrong_size(tmp_path: Path, offset: int | str, length: int, word: str) -> None:
    (tmp_path / "w.bin").write_bytes(WEIGHT.tobytes())
    file = tmp_path / "m.onnx"
    file.write_bytes(model(external("w.bin", offset, length)).SerializeToString())
    refused(file, word)


def test_external_data_that_is_not_there(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(model(external("gone.bin")).SerializeToString())
    refused(file, "'gone.bin', but '.*' has no such file", "copy it there")


def test_shapes_larger_than_the_data_allocate_nothing(tmp_path: Path) -> None:
    huge = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(1 << 40, 1 << 20), raw_data=b"\0" * 8192)
    refused(model(huge), "tensor 'w'", "8192 bytes of data")
    file = tmp_path / "m.onnx"
    file.write_bytes(model(huge).SerializeToString())
    refused(file, "tensor 'w'", "8192 bytes of data", "export the model again")
    few = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(64, 48), float_data=[1.0, 2.0])
    refused(model(few), "3072 values, but 2 values of data")
    refused(
        model(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(-64, 48), raw_data=b"")), "negative dimension"
    )


def test_element_types_that_are_not_there() -> None:
    refused(
        model(TensorProto(name="w", data_type=TensorProto.COMPLEX64, dims=(1,), float_data=[1.0, 0.0])), "tensor 'w'",
        "COMPLEX64", "not supported"
    )
    refused(model(TensorProto(name="w", data_type=999, dims=(1,))), "999")


@pytest.mark.parametrize("dtype", ["float64", "int64", "int32", "int8", "uint8", "uint16", "uint64", "bool", "float16"])
@pytest.mark.parametrize("raw", [True, False])
def test_tensors_of_every_type(dtype: str, raw: bool) -> None:
    values = (np.arange(6).reshape(2, 3) % 2).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(values.dtype)
    tensor = numpy_helper.from_array(values, "w") if raw else helper.make_tensor(
        "w", kind, values.shape, values.ravel().tolist()
    )
    graph = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["y"])], "g", [], [helper.make_tensor_value_info("y", kind, (2, 3))],
        [tensor]
    )
    module, _ = from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    got = evaluate(module["main"])
    assert got.dtype == values.dtype
    np.testing.assert_array_equal(got, values)


def test_weights_are_owned_and_aligned(tmp_path: Path) -> None:
    file = tmp_path / "m.onnx"
    file.write_bytes(model().SerializeToString())
    module, _ = from_onnx(file)
    weight = module["main"].body.args[1].value
    assert weight.flags.aligned
    np.testing.assert_array_equal(weight.T, WEIGHT)
    file.write_bytes(b"overwritten")
    np.testing.assert_array_equal(weight.T, WEIGHT)
