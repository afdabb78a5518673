"""A model as one WebAssembly module, with custom sections for its manifest and a checksum.

    model.wasm    code and constants · custom section `tilewright.manifest` (JSON)
                  · custom section `tilewright.sha256` (32 bytes): the digest of all bytes before it

`tilewright.mjs`, next to this file, runs it in browsers and in Node.js. Python only reads its manifest.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from tilewright.base.errors import ArtifactError
from tilewright.runtime.manifest import Manifest

MAGIC: Final = b"\0asm\1\0\0\0"
LOADER: Final = Path(__file__).with_name("tilewright.mjs")
"""The loader for JavaScript, a single file without dependencies."""
_MANIFEST, _DIGEST = b"tilewright.manifest", b"tilewright.sha256"
_DIGEST_BYTES: Final = 32


def sealed(module: bytes, manifest: Manifest) -> bytes:
    """Return the module with its manifest, and the digest of both."""
    whole = module + _section(_MANIFEST, manifest.to_json().encode())
    return whole + _section(_DIGEST, hashlib.sha256(whole).digest())


def read_manifest(data: bytes, where: str) -> Manifest:
    """Read the manifest of a module that `sealed` made. Raises `ArtifactError` for a damaged or foreign module."""
    tail = _section(_DIGEST, bytes(_DIGEST_BYTES))
    begin = len(data) - len(tail)
    if begin < len(MAGIC) or not data.startswith(MAGIC) or data[begin:-_DIGEST_BYTES] != tail[:-_DIGEST_BYTES]:
        raise ArtifactError(
            f"{where}: the WebAssembly module does not end in the mark of a compiled model: it is truncated, stripped, "
            "or not made by tilewright",
            code="TW0804")
    if hashlib.sha256(data[:begin]).digest() != data[begin + len(tail) - _DIGEST_BYTES :]:
        raise ArtifactError(
            f"{where}: the file is damaged (its contents do not match its checksum); copy it again, or compile the "
            "model again",
            code="TW0804")
    name = bytes([len(_MANIFEST)]) + _MANIFEST
    text = data[data.rindex(name, 0, begin) + len(name) : begin]
    return Manifest.from_json(text, where)


def _section(name: bytes, content: bytes) -> bytes:
    inside = _number(len(name)) + name + content
    return b"\0" + _number(len(inside)) + inside


def _number(value: int) -> bytes:
    """Return the unsigned LEB128 encoding of a number."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
