"""Checks pickles of tensors and plain containers without executing them, before torch reads them.

The operations of a pickle are followed on a stack of descriptions. So all names that it would call are known, including
those from the memo, and the memory of each tensor. (torch takes sizes from the pickle, and would read beyond the stored
bytes.) torch's two readers number the memo differently and accept numbers as functions. Pickles for which this matters
are refused.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import ModelError

_MAX_OPERATIONS: Final = 5_000_000
MAX_REPEATED_ELEMENTS: Final = 16 << 20
"""Largest number of elements of a tensor whose strides repeat its stored elements."""
_MODULES: Final = ("collections", "torch", "torch._utils", "torch._tensor", "torch.storage", "torch.nn.parameter",
                   "torch.serialization", "torch.jit._pickle")
_CALLED: Final = frozenset({
    "OrderedDict", "_rebuild_tensor_v2", "_rebuild_tensor", "_rebuild_parameter", "_rebuild_qtensor",
    "_rebuild_from_type_v2", "_rebuild_tensor_v3", "Size", "device", "_get_layout",
    "build_intlist", "build_tensorlist", "build_doublelist", "build_boollist", "build_tensor_from_id",
    "restore_type_tag", "_rebuild_meta_tensor_no_storage",
})
_NAMED: Final = frozenset({
    "UntypedStorage", "TypedStorage", "Tensor", "Parameter", "dtype", "layout", "per_tensor_affine",
    "per_channel_affine", "per_channel_affine_float_qparams",
})
"""Names that may be used as values but not called."""
_TORCH_KINDS: Final = re.compile(
    r"[A-Z][A-Za-z0-9]*Storage|(float|int|uint|bfloat|complex|quint|qint)[0-9]+(x[0-9])?(_e[0-9]m[0-9][a-z0-9]*)?|"
    r"float|int|bool|half|double|long|short|strided")
"""Names in torch of element types, storages or layouts."""
_CLASSES: Final = re.compile(
    r"__torch__\.torch\.classes\.(quantized|rnn)(\.\w+)*|__torch__(?!\.torch\.classes)(\.\w+)*", re.ASCII)
"""Classes that TorchScript reads as data; torch's own C++ classes are packed weights of quantized layers."""
_BYTES: Final = {
    **dict.fromkeys(("Untyped", "Byte", "Char", "Bool", "QInt8", "QUInt8", "QUInt4x2", "QUInt2x4"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16"), 2),
    **dict.fromkeys(("Int", "Float", "QInt32"), 4), **dict.fromkeys(("Long", "Double", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
"""Bytes per element by the name of the storage."""
_PACKED: Final = {"QUInt4x2": 2, "QUInt2x4": 4}
"""Elements per byte."""

Refuse = Callable[[str], ModelError]


@dataclass(frozen=True)
class _Name:
    """A global name: a class or a function."""

    module: str
    name: str


@dataclass(frozen=True)
class _Storage:
    """The memory of a tensor: its number of elements, and the bytes of each."""

    elements: int
    element_bytes: int


_MARK: Final = object()
_OTHER: Final = object()
"""A value whose contents are irrelevant."""
_POPS: Final = {
    "APPEND": (1, False), "SETITEM": (2, False), "BUILD": (1, False), "POP": (1, False),
}
_TO_MARK: Final = {"APPENDS": False, "SETITEMS": False, "ADDITEMS": False, "POP_MARK": False, "LIST": True,
                   "DICT": True, "FROZENSET": True}
"""Operations that pop everything down to the mark, and whether they push a value."""
_EMPTY: Final = frozenset({"EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET"})


def check_pickle(path: object, name: str, data: bytes, records: Mapping[str, int] | None = None) -> None:
    """Raise `ModelError` for a pickle with other contents than tensors and plain containers, or tensors beyond their
    memory.

    `records` has the size of each stored record in bytes, by name; without it, memory is not checked.
    """
    try:
        _Machine(path, name, records).run(data)
    except ModelError:
        raise
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
        raise ModelError(f"{path} is damaged: {name} is not a pickle ({str(error)[:200]})", code="TW0103") from error


class _Machine:
    """Follows the operations of one pickle."""

    def __init__(self, path: object, file: str, records: Mapping[str, int] | None) -> None:
        self.path, self.file, self.records = path, file, records
        self.stack: list[Any] = []
        self.memo: list[Any] = []

    def run(self, data: bytes) -> None:
        for count, (code, argument, _) in enumerate(pickletools.genops(data)):
            if count >= _MAX_OPERATIONS:
                raise ModelError(f"{self.path} is refused: {self.file} has more than {_MAX_OPERATIONS} operations; "
                                 "save the module without tables of Python values", code="TW0104")
            self._operation(code.name, argument)

    def _operation(self, name: str, argument: Any) -> None:
        if name in ("GLOBAL", "INST"):
            module, _, found = str(argument).rpartition(" ")
            if name == "INST":
                raise self._calls(module, found)
            self.stack.append(self._named(module, found))
        elif name == "STACK_GLOBAL":
            found, module = self.stack.pop(), self.stack.pop()
            self.stack.append(self._named(module, found) if isinstance(module, str) and isinstance(found, str)
                              else self._named("a name", "that is not text"))
        elif name in ("EXT1", "EXT2", "EXT4"):
            raise self._calls("copyreg", "extension")
        elif name in ("REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ"):
            self._object(name)
        elif name in ("BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"):
            if name != "MEMOIZE" and argument != len(self.memo):
                raise ValueError("its memo is not numbered in order")
            self.memo.append(self.stack[-1])
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            self.stack.append(self.memo[argument])
        elif name == "BINPERSID":
            self.stack.append(self._storage(self.stack.pop()))
        elif name.startswith("TUPLE"):
            self._tuple(name)
        elif not self._container(name):
            self._plain(name, argument)

    def _container(self, name: str) -> bool:
        if name in _POPS:
            self._take(_POPS[name][0])
        elif name in _TO_MARK:
            self._to_mark()
            if _TO_MARK[name]:
                self.stack.append(_OTHER)
        elif name in _EMPTY:
            self.stack.append(_OTHER)
        else:
            return False
        return True

    def _plain(self, name: str, argument: Any) -> None:
        if name == "MARK":
            self.stack.append(_MARK)
        elif name == "EMPTY_TUPLE":
            self.stack.append(())
        elif name in ("NONE", "NEWTRUE", "NEWFALSE", "BINFLOAT", "FLOAT"):
            self.stack.append(_OTHER)
        elif isinstance(argument, (int, str, bytes)) and name not in ("PROTO", "FRAME", "PERSID"):
            self.stack.append(argument)
        elif name not in ("PROTO", "FRAME", "STOP"):
            raise ValueError(f"the operation {name} is not allowed")

    def _take(self, count: int) -> list[Any]:
        taken = self.stack[len(self.stack) - count :] if count <= len(self.stack) else [_MARK]
        if any(v is _MARK for v in taken):
            raise ValueError("its stack is empty too early")
        del self.stack[len(self.stack) - count :]
        return taken

    def _to_mark(self) -> list[Any]:
        taken = []
        while (value := self.stack.pop()) is not _MARK:
            taken.append(value)
        return taken[::-1]

    def _tuple(self, name: str) -> None:
        self.stack.append(tuple(self._to_mark() if name == "TUPLE" else self._take(int(name[5:]))))

    # Names and their arguments

    def _calls(self, module: str, name: str) -> ModelError:
        return ModelError(f"{self.path} is refused: {self.file} would call {module}.{name} when it is read, but code "
                          "from files is never run; save the module with torch.jit.save or "
                          "torch.export.save", code="TW0104")

    def _named(self, module: str, name: str) -> _Name:
        is_known = module in _MODULES and (name in _CALLED or name in _NAMED
                                           or (module == "torch" and _TORCH_KINDS.fullmatch(name)))
        if not is_known and not _CLASSES.fullmatch(module):
            raise self._calls(module, name)
        return _Name(module, name)

    def _object(self, operation: str) -> None:
        """Check a call, or the creation of an object of a class."""
        if operation == "OBJ":
            function, *arguments = self._to_mark()
            given: Any = tuple(arguments)
        else:
            function, given = self._take(3 if operation == "NEWOBJ_EX" else 2)[:2]
        if not isinstance(function, _Name) or not isinstance(given, tuple):
            raise ValueError("it calls an object without a name")
        is_class = function.module.startswith("__torch__")
        if not is_class and (function.name not in _CALLED or operation != "REDUCE"):
            raise self._calls(function.module, function.name)
        self.stack.append(_OTHER if is_class else self._called(function.name, given))

    def _called(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "_rebuild_from_type_v2":
            function, inner = arguments[0], arguments[2]
            if not isinstance(function, _Name) or function.name not in _CALLED or not isinstance(inner, tuple):
                raise ValueError("it calls an object without a name")
            return self._called(function.name, inner)
        if name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor"):
            kind = arguments[6] if name == "_rebuild_tensor_v3" else None
            storage, offset, sizes, strides = arguments[:4]
            self._check_tensor(storage, offset, sizes, strides, kind)
        elif name == "_rebuild_meta_tensor_no_storage":
            self._check_tensor(_Storage(0, 1), 0, arguments[1], arguments[2], None)
        elif name == "Size" and len(arguments) == 1 and isinstance(arguments[0], tuple):
            return arguments[0]
        return _OTHER

    # Memory

    def _storage(self, value: Any) -> _Storage:
        """The memory that `("storage", kind, record, device, elements)` describes; its record must be large enough."""
        if not isinstance(value, tuple) or len(value) != 5 or value[0] != "storage":
            raise ValueError("it has an invalid reference to tensor data")
        _, kind, key, _, elements = value
        if not isinstance(kind, _Name) or not isinstance(key, str) or not _is_size(elements):
            raise ValueError("it has an invalid reference to tensor data")
        name = kind.name.removesuffix("Storage")
        if name not in _BYTES:
            raise ValueError(f"it has tensor data of the unknown type {kind.name}")
        found = _Storage(elements * _PACKED.get(name, 1), _BYTES[name])
        if self.records is not None and elements and elements * _BYTES[name] > self.records.get(key, -1):
            raise ModelError(f"{self.path} is damaged: {self.file} has a tensor with {elements * _BYTES[name]} bytes "
                             f"in {key!r}, which holds {self.records.get(key, 0)}", code="TW0103")
        return found

    def _check_tensor(self, storage: Any, offset: Any, sizes: Any, strides: Any, kind: Any) -> None:
        is_plain = (isinstance(storage, _Storage) and _is_size(offset) and isinstance(sizes, tuple)
                    and isinstance(strides, tuple) and len(sizes) == len(strides))
        if not is_plain or not all(map(_is_size, (*sizes, *strides))):
            raise ValueError("it has a tensor with sizes that are not numbers")
        nbytes = storage.elements * storage.element_bytes
        each = storage.element_bytes
        if isinstance(kind, _Name):
            each = max(1, int((re.findall(r"(?:int|float)([0-9]+)", kind.name) or ["8"])[0]) // 8)
        if self.records is not None:
            check_extent(f"{self.path}: {self.file}", sizes, strides, offset, nbytes, each)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def check_extent(file: str, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int, nbytes: int,
                 element_bytes: int) -> None:
    """Raise `ModelError` for a tensor that exceeds its memory of `nbytes` bytes, or repeats it too often."""
    count = 1
    for size in sizes:
        count *= size
    end = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)) + 1
    if count and (end * element_bytes > nbytes or count > max(nbytes, MAX_REPEATED_ELEMENTS)):
        raise ModelError(f"{file} is damaged: a tensor of sizes {list(sizes)[:8]} and strides {list(strides)[:8]} does "
                         f"not fit its {nbytes} bytes", code="TW0103")
