"""Reads a file, bytes or a `ModelProto` into a checked `ModelProto`, and its tensors into numpy arrays.

The file is not trusted: sizes are compared with the data present before anything is allocated, and external data is
read only from inside the model's folder.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import TensorProto

from tilewright.base.array_bytes import of_strings
from tilewright.base.errors import CompileError, ModelError, Origin
from tilewright.base.types import DataType
from tilewright.relay.frontend.onnx.wire import FileData, MalformedError, MemoryData, ModelData, Span, split

Array = np.ndarray[Any, Any]

_LOOKALIKES: Final[tuple[tuple[bytes, int, str], ...]] = (
    (b"version https://git-lfs", 0, "a Git LFS pointer, not the model itself; fetch the model with `git lfs pull`"),
    (b"PK\x03\x04", 0, "a zip archive, as PyTorch saves them; export the model with torch.onnx.export"),
    (b"TFL3", 4, "a TFLite model; use from_tflite"),
    (b"\x89HDF", 0, "an HDF5 file, as Keras saves them; convert the model with tf2onnx"),
    (b"\x80\x02", 0, "a Python pickle, which is never executed here; export the model with torch.onnx.export"),
    (b"\x80\x04", 0, "a Python pickle, which is never executed here; export the model with torch.onnx.export"),
)
_FIELDS: Final[dict[int, str]] = {
    TensorProto.FLOAT: "float_data", TensorProto.DOUBLE: "double_data", TensorProto.INT64: "int64_data",
    TensorProto.UINT64: "uint64_data", TensorProto.UINT32: "uint64_data",
}
"""Field with the non-raw values of each element type; all other types use `int32_data`."""
_PACKED: Final = {
    getattr(TensorProto, name): bits for name, bits in (("INT4", 4), ("UINT4", 4), ("FLOAT4E2M1", 4), ("INT2", 2),
        ("UINT2", 2), ("FLOAT6E2M3", 6), ("FLOAT6E3M2", 6))
    if hasattr(TensorProto, name)}
"""Bits of the types that share bytes; the first value is in the lowest bits."""
_LONGEST_NUMBER: Final = 20
_UNSUPPORTED: Final = frozenset({TensorProto.UNDEFINED, TensorProto.COMPLEX64, TensorProto.COMPLEX128})


@dataclass(slots=True)
class Source:
    """The origin of a model: the name to show, the folder that must contain its external data, and its bytes."""

    name: str = ""
    folder: Path | None = None
    data: ModelData | None = None
    mapped: bool = False
    """Whether tensors are memory-mapped from their files; otherwise they are read."""
    spans: Sequence[Span | None] = ()
    """By index of the initializer, the location of raw data that is not in the message itself."""

    @property
    def origin(self) -> Origin | None:
        return Origin(self.name) if self.name else None


@contextlib.contextmanager
def read_model(model: Any, mapped: bool = False) -> Iterator[tuple[onnx.ModelProto, Source]]:
    """Open a model; yield it and its source, which stays open inside the `with`.

    With `mapped`, tensors are memory-mapped instead of read. Raises `ModelError` for an incomplete or invalid model.
    """
    source = Source(mapped=mapped)
    if isinstance(model, (bytes, bytearray, memoryview)):
        source.data = MemoryData(bytes(model))
    elif isinstance(model, (str, os.PathLike)):
        path = Path(model)
        source.name, source.folder, source.data = str(path), path.resolve().parent, _open(path, mapped)
    elif not isinstance(model, onnx.ModelProto):
        raise ModelError(f"the model is a {type(model).__name__}; give a path, bytes or an onnx.ModelProto",
                         code="TW0102")
    try:
        proto = model if source.data is None else _parse(source.data, source)
        if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
            raise ModelError(f"{source.name or 'the model'} is not an ONNX model: it has no graph; export it "
                             "again", code="TW0102")
        _check_names(proto, source)
        yield proto, source
    except RecursionError:
        raise ModelError(f"{source.name or 'the model'} nests graphs or functions deeper than can be followed; export "
                         "it again with fewer levels", code="TW0115") from None
    except EOFError:
        raise ModelError(
            f"{source.name or 'the model'} became shorter while it was read; import it when it is complete",
            code="TW0101") from None
    except MemoryError:
        raise ModelError(f"{source.name or 'the model'} needs more memory than this machine has; a size in it is "
                         "wrong, or the model is too large", code="TW0115") from None
    finally:
        if source.data is not None:
            source.data.close()


def _check_names(model: onnx.ModelProto, source: Source) -> None:
    """Raise `ModelError` for names that are not valid UTF-8, which protobuf returns as bytes."""
    graphs, nodes = [model.graph], [n for f in model.functions for n in f.node]
    names: list[Any] = [x for f in model.functions for x in (f.name, f.domain, f.overload, *f.input,
        *f.output)] + [o.domain for o in model.opset_import]
    while graphs or nodes:
        while graphs:
            g = graphs.pop()
            nodes += g.node
            names += [g.name, *(x.name for values in (g.input, g.output, g.initializer) for x in values)]
            names += [d.dim_param for i in g.input for d in i.type.tensor_type.shape.dim]
        for n in nodes:
            names += [n.op_type, n.domain, n.name, n.overload, *n.input, *n.output]
            for a in n.attribute:
                names += (a.name, a.ref_attr_name)
                graphs += [*([a.g] if a.HasField("g") else []), *a.graphs]
        nodes = []
    wrong = next((name for name in names if type(name) is not str), None)
    if wrong is not None:
        raise ModelError(f"{source.name or 'the model'} contains the name {wrong[:40]!r}, which is not valid UTF-8; "
                         "the file is damaged: export the model again", code="TW0103")


def _open(path: Path, mapped: bool) -> ModelData:
    try:
        if path.is_dir():
            raise IsADirectoryError
        return FileData(path, mapped) if path.is_file() else MemoryData(path.read_bytes())
    except FileNotFoundError:
        raise ModelError(f"file '{path}' does not exist; check the path (the current folder is '{Path.cwd()}')",
                         code="TW0101") from None
    except IsADirectoryError:
        inside = sorted(p.name for p in path.glob("*.onnx"))[:3]
        hint = f"; it contains: {', '.join(inside)}" if inside else ""
        raise ModelError(f"'{path}' is a folder; give the .onnx file itself{hint}", code="TW0101") from None
    except OSError as error:
        raise ModelError(f"'{path}' cannot be read: {error.strerror}", code="TW0101") from None


def _parse(data: ModelData, source: Source) -> onnx.ModelProto:
    what = f"'{source.name}'" if source.name else "the model"
    if not data.size:
        raise ModelError(f"{what} is empty; copy or export the model again", code="TW0103")
    start = data.read(0, min(512, data.size))
    for magic, at, meaning in _LOOKALIKES:
        if start[at:at + len(magic)] == magic:
            raise ModelError(f"{what} is not an ONNX model: it looks like {meaning}", code="TW0102")
    try:
        content, source.spans = split(data)
    except MalformedError:
        content, source.spans = data.read(0, data.size), ()
    try:
        proto: onnx.ModelProto = onnx.ModelProto.FromString(content)
    except DecodeError:
        if all(32 <= b < 127 or b in b"\t\r\n" for b in start):
            raise ModelError(f"{what} is not an ONNX model: it is a text file that begins with {start[:24].decode()!r}",
                             code="TW0102") from None
        if start[0] == 0x08:
            raise ModelError(f"{what} is damaged or truncated after {data.size} bytes; copy or export the model again",
                             code="TW0103") from None
        raise ModelError(f"{what} is not an ONNX model, or it is damaged; export the model again",
                         code="TW0102") from None
    return proto


def element_type(code: int, what: str, origin: Origin | None = None) -> DataType:
    """The element type for a `TensorProto.DataType` code; `what` names the tensor in errors."""
    if code in TensorProto.DataType.values() and code not in _UNSUPPORTED:
        try:
            return DataType(onnx.helper.tensor_dtype_to_np_dtype(code))
        except CompileError:
            pass  # a numpy type that this compiler does not support: refused below
    shown = TensorProto.DataType.Name(code) if code in TensorProto.DataType.values() else str(code)
    raise ModelError(f"{what} has the element type {shown}, which is not supported; convert the model to float32 or an "
                     "integer type", origin, code="TW0114")


def read_tensor(tensor: TensorProto, source: Source, span: Span | None = None) -> Array:
    """The value of a tensor, whose raw data is at `span` of the source if given.

    Raises `ModelError` if its type, shape and data are inconsistent, before anything is allocated.
    """
    what = f"tensor '{tensor.name}'" if tensor.name else "a constant tensor"

    def refuse(why: str) -> NoReturn:
        raise ModelError(f"{what} {why}; the file is damaged: export the model again", source.origin, code="TW0103")

    dtype = element_type(tensor.data_type, what).numpy()
    shape = tuple(tensor.dims)
    if any(d < 0 for d in shape):
        refuse(f"has a negative dimension: {shape}")
    count = math.prod(shape)
    if tensor.data_type == TensorProto.STRING:
        return _strings(tensor, count, refuse).reshape(shape)
    bits = _PACKED.get(tensor.data_type)
    nbytes = count * dtype.itemsize if bits is None else -(-count * bits // 8)
    if tensor.data_location == TensorProto.EXTERNAL:
        raw: Any = _read_external(tensor, source, nbytes, what)
    elif span is not None or tensor.HasField("raw_data"):
        stored = span.size if span is not None else len(tensor.raw_data)
        if stored != nbytes:
            refuse(f"has shape {shape} and type {dtype}, {nbytes} bytes, but {stored} bytes of data")
        raw = source.data.array(span) if span is not None and source.data is not None else tensor.raw_data
    else:
        return _typed_values(tensor, dtype, count, refuse).reshape(shape)
    if bits is not None:
        return _unpacked(np.frombuffer(raw, np.uint8), bits, count).view(dtype).reshape(shape)
    return np.frombuffer(raw, dtype).reshape(shape)


def _unpacked(packed: Array, bits: int, count: int) -> Array:
    """Unpack values of `bits` bits to one byte each."""
    apart = np.unpackbits(packed, bitorder="little", count=count * bits).reshape(count, bits)
    return np.packbits(apart, axis=1, bitorder="little").reshape(count)


def _strings(tensor: TensorProto, count: int, refuse: Callable[[str], NoReturn]) -> Array:
    if len(tensor.string_data) != count:
        refuse(f"has shape {tuple(tensor.dims)}, {count} strings, but {len(tensor.string_data)} strings of data")
    try:
        return of_strings([s.decode() for s in tensor.string_data], (count,))
    except UnicodeDecodeError as error:
        refuse(f"has a string that is not valid UTF-8 ({error})")


def _typed_values(tensor: TensorProto, dtype: np.dtype[Any], count: int, refuse: Callable[[str], NoReturn]) -> Array:
    values = getattr(tensor, _FIELDS.get(tensor.data_type, "int32_data"))
    bits = _PACKED.get(tensor.data_type)
    packed = bits is not None and 8 % bits == 0
    if len(values) != (-(-count * bits // 8) if bits is not None and packed else count):
        refuse(f"has shape {tuple(tensor.dims)}, {count} values, but {len(values)} values of data")
    if bits is not None and packed:
        return _unpacked(np.array(values, np.uint8), bits, count).view(dtype)
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        return np.array(values, np.uint16).view(dtype)
    if dtype.itemsize == 1 and dtype.kind not in "iub":
        return np.array(values, np.uint8).view(dtype)
    return np.array(values, dtype)


def _read_external(tensor: TensorProto, source: Source, nbytes: int, what: str) -> Array:
    """The bytes of a tensor that is stored in another file, which must be in the model's folder."""
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    if source.folder is None:
        raise ModelError(f"{what} is stored in the separate file '{location}'; give the path of the model, not its "
                         "bytes", code="TW0105")
    try:
        file = (source.folder / location).resolve()
        is_there = file.is_file()
    except (OSError, ValueError):
        raise ModelError(f"{what} is stored in {location[:60]!r}, which is not a valid file name; save the model "
                         "again", code="TW0104") from None
    if not location or Path(location).is_absolute() or not file.is_relative_to(source.folder):
        raise ModelError(f"{what} refers to the data file '{location}' outside the model's folder '{source.folder}', "
                         "which is never read; save the model and its data in one folder", code="TW0104")
    if not is_there:
        raise ModelError(f"{what} is stored in '{location}', but '{source.folder}' has no such file; copy it "
                         "there", code="TW0105")
    offset, length = (_external_number(entries, key, default, what)
                      for key, default in (("offset", 0), ("length", nbytes)))
    if length != nbytes:
        raise ModelError(f"{what} needs {nbytes} bytes, but its entry in '{location}' has {length} bytes; save the "
                         "model again", code="TW0105")
    with _opened(file, source.folder / location, what) as stream:
        size = os.fstat(stream.fileno()).st_size
        if offset + length > size:
            raise ModelError(f"{what} is stored at bytes {offset} to {offset + length} of '{location}', but the file "
                             f"has {size} bytes; it is truncated: copy it again", code="TW0105")
        if source.mapped and length:
            return np.memmap(stream, np.uint8, "c", offset, (length,))
        return np.fromfile(stream, np.uint8, length, offset=offset)


def _opened(file: Path, path: Path, what: str) -> BinaryIO:
    """Open a file found in the model's folder, and check the opened file again, since a link may have replaced it.

    Raises `ModelError` if `path` no longer leads to that file.
    """
    try:
        stream = os.fdopen(os.open(file, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK",
            0) | getattr(os, "O_BINARY", 0)), "rb")
    except OSError as error:
        raise ModelError(f"{what} is stored in '{file}', which cannot be opened ({error.strerror}); copy it again",
                         code="TW0105") from None
    opened = os.fstat(stream.fileno())
    try:
        is_same = path.resolve() == file and stat.S_ISREG(opened.st_mode) and os.path.samestat(opened, file.stat())
    except OSError:
        is_same = False
    if not is_same:
        stream.close()
        raise ModelError(f"{what} is stored in '{file}', which was replaced while it was being opened, and was not "
                         "read; import the model again",
                         code="TW0104")
    return stream


def _external_number(entries: dict[str, str], key: str, default: int, what: str) -> int:
    text = entries.get(key, str(default))
    if not text.isdecimal() or len(text) > _LONGEST_NUMBER:
        raise ModelError(f"{what} has the external data {key} '{text[:40]}', which is not a valid number of bytes; "
                         "save the model again", code="TW0105")
    return int(text)
