"""Named arrays as bytes, in TVM's form: written by `relay.save_param_dict`, read by `load_params` of its executors.

    file  ::= 0xF7E58D4F05049CB7 u64 | 0 u64 | count u64 | (length u64, name)* | count u64 | array*
    array ::= 0xDD5E40F096B4A13F u64 | 0 u64 | device kind i32, number i32 | rank i32 | code u8, bits u8, lanes u16 |
              sizes i64* | bytes i64 | contents

All numbers are little-endian. The reader checks every size before it allocates memory, and raises `ModelError` for
sizes that exceed the data.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, ModelError
from tilewright.base.nd import NDArray, array, as_numpy
from tilewright.base.types import DataType

LIST_MAGIC: Final = 0xF7E58D4F05049CB7
ARRAY_MAGIC: Final = 0xDD5E40F096B4A13F
_HEAD: Final = struct.Struct("<QQiiiBBH")
_MOST_DIMENSIONS: Final = 32


def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """Return named arrays (numpy arrays, `NDArray`s, or similar) in TVM's binary form."""
    parts = [struct.pack("<QQQ", LIST_MAGIC, 0, len(params))]
    for name in params:
        raw = name.encode()
        parts += [struct.pack("<Q", len(raw)), raw]
    parts.append(struct.pack("<Q", len(params)))
    parts += [_written(as_numpy(value)) for value in params.values()]
    return b"".join(parts)


def save_param_dict_to_file(params: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write named arrays into a file, in the form of `save_param_dict`."""
    Path(path).write_bytes(save_param_dict(params))


def load_param_dict_from_file(path: str | os.PathLike[str]) -> dict[str, NDArray]:
    """Return the arrays of a file by name. Raises `ModelError` for a damaged file."""
    return load_param_dict(Path(path).read_bytes())


def _written(a: np.ndarray[Any, Any]) -> bytes:
    little = a.astype(a.dtype.newbyteorder("<")) if a.dtype.byteorder == ">" else a
    if a.dtype == object:
        raise CompileError(
            "the binary form of parameters cannot hold strings; keep them as constants in the module",
            code="TW0407")
    dtype, raw = DataType(str(a.dtype.newbyteorder("="))), little.tobytes()
    head = _HEAD.pack(ARRAY_MAGIC, 0, 1, 0, a.ndim, dtype.type_code, dtype.bits, dtype.lanes)
    return head + struct.pack(f"<{a.ndim}q", *a.shape) + struct.pack("<q", len(raw)) + raw


def load_param_dict(param_bytes: bytes | bytearray | memoryview) -> dict[str, NDArray]:
    """Return the arrays by name from the output of `save_param_dict` or of TVM. Raises `ModelError` with the byte at
    which the data is damaged."""
    reader = _Reader(bytes(param_bytes))
    magic, _ = reader.numbers("<QQ")
    if magic != LIST_MAGIC:
        raise ModelError(
            "these bytes are not parameters: they do not begin with the magic number of TVM's lists of "
            "arrays", code="TW0116")
    (count,) = reader.numbers("<Q")
    names = []
    for _ in range(reader.bounded(count, 8, "names")):
        (length,) = reader.numbers("<Q")
        names.append(reader.text(length))
    (arrays,) = reader.numbers("<Q")
    if arrays != count or len(set(names)) != count:
        raise ModelError(
            f"these parameters are damaged: {len(set(names))} different names, but {arrays} arrays", code="TW0116")
    return {name: array(reader.array()) for name in names}


def read_array(raw: bytes) -> np.ndarray[Any, Any]:
    """Return one array in TVM's form, without a copy. Raises `ModelError` with the byte at which it is damaged."""
    return _Reader(raw).array()


class _Reader:
    """The bytes, and the position up to which they have been read."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def taken(self, size: int) -> bytes:
        if not 0 <= size <= len(self.raw) - self.at:
            raise ModelError(
                f"the parameters are damaged at byte {self.at}: {size} more bytes are declared, but "
                f"{len(self.raw) - self.at} exist", code="TW0116")
        self.at += size
        return self.raw[self.at - size : self.at]

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.taken(struct.calcsize(form)))

    def bounded(self, count: int, least: int, what: str) -> int:
        """Return `count`; raises `ModelError` unless the remaining bytes hold that many items of at least `least`
        bytes."""
        if count * least > len(self.raw) - self.at:
            raise ModelError(
                f"these parameters are damaged at byte {self.at}: {count} {what} are declared, but only "
                f"{len(self.raw) - self.at} bytes remain", code="TW0116")
        return count

    def text(self, length: int) -> str:
        try:
            return self.taken(length).decode()
        except UnicodeDecodeError as error:
            raise ModelError(
                f"these parameters are damaged at byte {self.at}: a name is not valid UTF-8: {error}", code="TW0116"
            ) from None

    def array(self) -> np.ndarray[Any, Any]:
        begin = self.at
        magic, _, _, _, rank, code, bits, lanes = self.numbers(_HEAD.format)
        if magic != ARRAY_MAGIC or not 0 <= rank <= _MOST_DIMENSIONS or lanes != 1:
            raise ModelError(f"these parameters are damaged at byte {begin}: no array begins there", code="TW0116")
        try:
            kind = DataType.of_code(code, bits).numpy()
        except CompileError as error:
            raise ModelError(f"these parameters are damaged at byte {begin}: {error.message}", code="TW0116") from None
        shape = self.numbers(f"<{rank}q")
        (size,) = self.numbers("<q")
        if any(d < 0 for d in shape) or math.prod(shape) * kind.itemsize != size:
            raise ModelError(
                f"these parameters are damaged at byte {begin}: an array of {kind} of shape {shape} does not have "
                f"{size} bytes", code="TW0116")
        return np.frombuffer(self.taken(size), kind).reshape(shape)
