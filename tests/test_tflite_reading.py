"""Files that are no whole TFLite models: one error that says so, whatever is wrong with them, and never much memory."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tflite_models import Op, T, model
from tflite_small import MODELS
from tilewright.base.errors import CompileError, ModelError
from tilewright.relay.frontend.tflite import from_tflite
from tilewright.relay.frontend.tflite.flexbuffer import numbers_of
from tilewright.relay.frontend.tflite.model import read_model
from tilewright.relay.frontend.tflite.sparsity import densified

NAMES = ("conv_int8", "lstm", "mean_uint8")


def read(data: bytes) -> bool:
    """Whether a model comes out; any other end than a `CompileError` fails."""
    try:
        from_tflite(data)
    except CompileError:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_is_cut_off(name: str) -> None:
    data = MODELS[name]()
    assert read(data)
    for size in range(0, len(data) - 16, 7):  # the last bytes are padding
        with pytest.raises(ModelError):
            read_model(data[:size])


@pytest.mark.parametrize("name", NAMES)
def test_bytes_that_are_changed(name: str) -> None:
    """What is left may be another model; it is never anything but a model or an error."""
    data, rng = MODELS[name](), np.random.default_rng(0)
    ends = set()
    for _ in range(250):
        changed = bytearray(data)
        for place in rng.integers(8, len(data), rng.integers(1, 5)):
            changed[place] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, int(rng.integers(256))])
        ends.add(read(bytes(changed)))
    assert ends == {True, False}


@pytest.mark.parametrize("value", [0xFFFFFFFF, 0x7FFFFFFF, 0x80000000, 0x10000000])
def test_every_offset_and_length_is_checked(value: int) -> None:
    data = MODELS["relu6_int8"]()
    for place in range(0, len(data) - 4, 4):
        read(data[:place] + struct.pack("<I", value) + data[place + 4 :])


def test_a_length_asks_for_no_memory() -> None:
    data = MODELS["relu6_int8"]()
    tracemalloc.start()
    for place in range(8, len(data) - 4, 4):
        read(data[:place] + struct.pack("<I", 0x7FFFFFF0) + data[place + 4 :])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 << 20


def test_vectors_that_overlap() -> None:
    """Graphs whose inputs begin one word behind the other, and are all that follows: a million numbers in a few
    thousand bytes."""
    count = 1024
    graphs, words = 44 + 4 * count, 44 + 12 * count
    model_table = struct.pack("<6h", 10, 12, 4, 0, 8, 0) + struct.pack("<iII", 12, 3, 40 - 28)
    graph_fields = struct.pack("<4h", 8, 8, 0, 4)
    offsets = struct.pack("<I", count) + b"".join(
        struct.pack("<I", graphs + 8 * k - (44 + 4 * k)) for k in range(count)
    )
    tables = b"".join(
        struct.pack("<iI", graphs + 8 * k - 32, words + 4 * k - (graphs + 8 * k + 4)) for k in range(count)
    )
    data = struct.pack("<I", 20) + b"TFL3" + model_table + graph_fields + offsets + tables + b"".join(
        struct.pack("<I", count - k - 1) for k in range(count)
    )
    with pytest.raises(ModelError, match="its tables overlap; the file is damaged or truncated"):
        read_model(data)


@pytest.mark.parametrize("data, message", [
    (b"", "is not a TFLite model: bytes 4 to 8 are not TFL3"),
    (b"\x08\0\0\0ONNX....", "is not a TFLite model: bytes 4 to 8 are not TFL3"),
    (struct.pack("<I", 1000) + b"TFL3" + bytes(40), r"a table of Model would be at byte 1000, but the file has 48"),
])
def test_what_is_no_model_is_called_so(data: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read_model(data)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is no file"):
        from_tflite(tmp_path / "m.tflite")
    with pytest.raises(ModelError, match=r"a model is given as path, bytes or a tflite\.Model, not as int"):
        from_tflite(3)


def test_stored_values_are_views_of_the_file() -> None:
    data = MODELS["fully_connected_int8"]()
    (w,) = (t for t in read_model(data).graphs[0].tensors if t.name == "w")
    assert not w.value().flags.owndata and not w.value().flags.writeable


def test_integers_of_four_bits() -> None:
    packed = T("x", (3,), "int4")
    assert read_model(
        model([packed, T("y", (3,), "int4")], [Op("RELU", [0], [1])], [0], [1])
    ).graphs[0].tensors[0].dtype == "int4"


def test_sparse_weights_are_made_dense() -> None:
    sparsity: dict[str, Any] = {
        "traversal_order": (0, 1), "block_map": (),
        "dim_metadata": (
            {"format": 0, "dense_size": 2, "array_segments": None, "array_indices": None},
            {
                "format": 1, "dense_size": 0, "array_segments": {"values": (0, 1, 3)},
                "array_indices": {"values": (2, 0, 1)}
            },
        ),
    }
    dense = densified("w", sparsity, (2, 3), lambda n: np.arange(1, n + 1))
    np.testing.assert_array_equal(dense, [[0, 0, 1], [2, 3, 0]])
    sparsity["dim_metadata"][1]["array_indices"] = {"values": (2, 0, 3)}
    with pytest.raises(ModelError, match="has an index outside of dimension 1"):
        densified("w", sparsity, (2, 3), np.arange)


def test_options_of_custom_operators() -> None:
    # {"a": 7, "b": 0.5, "c": true}, as flexbuffers write it: keys, their offsets, values and their types
    keys = b"a\0b\0c\0"
    vector = bytes([3, 7, 6, 5])  # three keys, each so many bytes back
    floats = struct.pack("<f", 0.5)
    head = floats + keys + vector
    where = len(head)
    body = bytes([where + 0 - 11, 1, 3, 7, where + 4 - 0, 1]) + bytes([1 << 2, 8 << 2 | 2, 26 << 2])
    data = head + body + bytes([6, 9 << 2, 1])
    assert numbers_of(data) == {"a": 7, "b": 0.5, "c": True}
    for size in range(3, len(data)):
        try:
            numbers_of(data[:size])
        except ModelError as error:
            assert "not a valid flexbuffer map" in str(error)
