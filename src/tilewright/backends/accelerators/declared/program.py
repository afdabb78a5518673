"""A program for an accelerator: commands, constants, and places of inputs and outputs; as bytes for artifacts.

    b"TWAS" · u16 version of this format · u16 version of the accelerator · u32 fingerprint of its declaration
    · u32 crc32 of the rest of the file
    u32 length · JSON: accelerator, symbol, far_bytes, inputs, outputs, layers
    u32 length · constants, which lie at address 0 of the far memory
    u32 length · commands (`stream.py`)

The fingerprint is a checksum of the declared memories and instructions, so that a stream is read only by the
declaration that wrote it.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import asdict, dataclass
from typing import Any, Final

from tilewright.backends.accelerators.declared.declaration import Accelerator
from tilewright.base.errors import ArtifactError
from tilewright.base.json_reading import read_json

MAGIC: Final = b"TWAS"
FORMAT: Final = 1
_HEAD: Final = struct.Struct("<4sHHII")
_LENGTH: Final = struct.Struct("<I")
DTYPES: Final = ("int8", "uint8", "int16", "uint16", "int32", "float16", "float32", "int64")
"""The dtypes of tensors, in the order of their numbers in commands."""


@dataclass(frozen=True)
class TensorPlacement:
    """A tensor in the far memory."""

    address: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Layer:
    """A layer of the network: its name, the accelerator's operator, its multiply-accumulates, and the bytes of near
    memory that it needs."""

    name: str
    operator: str
    macs: int
    near: int


@dataclass(frozen=True)
class Program:
    """The program of one function of a network."""

    symbol: str
    inputs: tuple[TensorPlacement, ...]
    outputs: tuple[TensorPlacement, ...]
    layers: tuple[Layer, ...]
    far_bytes: int
    constants: bytes
    commands: bytes

    def save(self, accelerator: Accelerator) -> bytes:
        """Return the program as bytes."""
        said = {
            "accelerator": accelerator.name,
            "symbol": self.symbol,
            "far_bytes": self.far_bytes,
            "inputs": [asdict(p) for p in self.inputs],
            "outputs": [asdict(p) for p in self.outputs],
            "layers": [asdict(x) for x in self.layers],
        }
        parts = (json.dumps(said, separators=(",", ":")).encode(), self.constants, self.commands)
        rest = b"".join(_LENGTH.pack(len(part)) + part for part in parts)
        return _HEAD.pack(MAGIC, FORMAT, accelerator.version, accelerator.fingerprint, zlib.crc32(rest)) + rest


def load(blob: bytes, accelerator: Accelerator) -> Program:
    """Return the program that `save` encoded. Raises `ArtifactError` for other, damaged or incompatible bytes."""
    what = f"a program for {accelerator.name}"
    if len(blob) < _HEAD.size or blob[:4] != MAGIC:
        raise ArtifactError(f"{what} begins with {MAGIC!r}, but these bytes do not", code="TW0918")
    _, form, version, fingerprint, checksum = _HEAD.unpack_from(blob)
    rest = blob[_HEAD.size :]
    if form != FORMAT:
        raise ArtifactError(
            f"{what} has format {form}, but this version reads {FORMAT}; compile it again", code="TW0918")
    if zlib.crc32(rest) != checksum:
        raise ArtifactError(f"{what} is damaged: its checksum does not match; compile it again", code="TW0918")
    said, constants, commands = _parts(rest, what)
    try:
        header: dict[str, Any] = read_json(said)
        owner, symbol, far_bytes = str(header["accelerator"]), str(header["symbol"]), int(header["far_bytes"])
        inputs, outputs = (
            tuple(
                TensorPlacement(int(p["address"]), tuple(map(int, p["shape"])), str(p["dtype"])) for p in header[which]
            ) for which in ("inputs", "outputs"))
        layers = tuple(
            Layer(str(x["name"]), str(x["operator"]), int(x["macs"]), int(x["near"])) for x in header["layers"])
    except (ValueError, KeyError, TypeError) as error:
        raise ArtifactError(
            f"{what} has a header that cannot be read: {error!r}; compile it again", code="TW0918"
        ) from error
    if owner != accelerator.name:
        raise ArtifactError(f"{what} is for {owner}", code="TW0918")
    if (version, fingerprint) != (accelerator.version, accelerator.fingerprint):
        raise ArtifactError(
            f"{what} is for version {version} ({fingerprint:08x}), but the one here is declared as version "
            f"{accelerator.version} ({accelerator.fingerprint:08x}); compile it again", code="TW0918")
    if not len(constants) <= far_bytes <= accelerator.far.size or not all(
        p.dtype in DTYPES and min(p.shape, default=0) >= 0 for p in (*inputs, *outputs)
    ):
        raise ArtifactError(
            f"{what} needs {far_bytes} bytes of {accelerator.far.name}, which has {accelerator.far.size}, or refers to "
            "missing tensors",
            code="TW0918")
    return Program(symbol, inputs, outputs, layers, far_bytes, constants, commands)


def _parts(rest: bytes, what: str) -> list[bytes]:
    parts, at = [], 0
    for _ in range(3):
        (length,) = _LENGTH.unpack_from(rest, at) if at + _LENGTH.size <= len(rest) else (len(rest),)
        at += _LENGTH.size
        if at + length > len(rest):
            raise ArtifactError(f"{what} ends in the middle of a part; compile it again", code="TW0918")
        parts.append(rest[at : at + length])
        at += length
    return parts
