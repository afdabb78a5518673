"""TVM's `tvm.micro.testing.utils`: arrays as C headers, the memory that a Model Library needs, and a small network."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright import relay
from tilewright.base.errors import InputError
from tilewright.ir.module import IRModule
from tilewright.relay.transform.infer_type import InferType

__all__ = ["create_header_file", "get_conv2d_relay_module", "mlf_extract_workspace_size_bytes"]

_C_TYPES: Final = {"int8": "int8_t", "uint8": "uint8_t", "int32": "int32_t", "float32": "float"}


def create_header_file(
    tensor_name: str, npy_data: np.ndarray[Any, Any], output_path: str | os.PathLike[str], tar_file: tarfile.TarFile
) -> None:
    """Add the header `output_path/tensor_name.h` to an archive: an array in row-major order, and its length.

    Raises `InputError` for other dtypes than int8, uint8, int32 and float32.
    """
    array = np.asarray(npy_data)
    kind = _C_TYPES.get(str(array.dtype))
    if kind is None:
        raise InputError(
            f"a header has arrays of {', '.join(_C_TYPES)}; '{tensor_name}' is {array.dtype}", code="TW0704")
    values = ", ".join(map(str, array.reshape(-1).tolist()))
    text = (
        f"#include <stddef.h>\n#include <stdint.h>\nconst size_t {tensor_name}_len = {array.size};\n"
        f"{kind} {tensor_name}[] = {{{values}}};\n")
    info = tarfile.TarInfo((Path(output_path) / f"{tensor_name}.h").as_posix())
    info.size = len(text)
    tar_file.addfile(info, io.BytesIO(text.encode()))


def get_conv2d_relay_module() -> IRModule:
    """Return a network of one convolution: `data` of shape (1, 3, 64, 64) and `weight` of shape (8, 3, 5, 5), both
    int8, to int32."""
    data = relay.var("data", shape=(1, 3, 64, 64), dtype="int8")
    weight = relay.var("weight", shape=(8, 3, 5, 5), dtype="int8")
    result = relay.nn.conv2d(data, weight, padding=(2, 2), kernel_size=(5, 5), out_dtype="int32")
    return InferType()(IRModule.from_expr(relay.Function([data, weight], result)))


def mlf_extract_workspace_size_bytes(mlf_tar_path: str | os.PathLike[str]) -> int:
    """Return the bytes of workspace that the model of a Model Library needs."""
    with tarfile.open(mlf_tar_path) as archive:
        name = next(n for n in archive.getnames() if n.rpartition("/")[2] == "metadata.json")
        file = archive.extractfile(name)
        assert file is not None
        (module, *_), = [list(json.load(file)["modules"].values())]
    return int(module["memory"]["functions"]["main"][0]["workspace_size_bytes"])
