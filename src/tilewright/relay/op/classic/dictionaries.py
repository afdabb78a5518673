"""Operators between tensors and Python objects: label lookups, dictionaries of scores. They run in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np

from tilewright.base.array_bytes import of_strings
from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.types import INT64, DataType, TensorType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi.shapes import differ, text

STRING: Final = DataType("string")
OBJECT: Final = DataType("object")


@op("string_index", kind=Fusion.OPAQUE)
class StringIndex(Op):
    """The position of each string in the vector `keys`, the last of equal ones; the number of keys for a string that is
    missing.
    """

    objects = True

    def infer(self, data: Type, keys: Type) -> TensorType:
        """The shape of the data; int64. Data and the vector `keys` are strings."""
        t, k = tensors(data, keys)
        if t.dtype is not STRING or k.dtype is not STRING or k.ndim != 1:
            raise ShapeError(f"strings and a vector of strings were expected, and these are {t!r} and {k!r}")
        return TensorType(t.shape, INT64)

    def reference(self, data: Array, keys: Array) -> Array:
        return self._finder(keys)(data)

    def meaning(self, known: Sequence[Array | None]) -> Callable[[Array], Array] | None:
        return None if known[1] is None or known[0] is not None else self._finder(known[1])

    def _finder(self, keys: Array) -> Callable[[Array], Array]:
        places, absent = {key: k for k, key in enumerate(keys.tolist())}, len(keys)

        def find(data: Array) -> Array:
            return np.array([places.get(s, absent) for s in data.ravel().tolist()], np.int64).reshape(data.shape)

        return find


@op("zip_map", kind=Fusion.OPAQUE)
class ZipMap(Op):
    """A dictionary for each row of `data` (rows, keys), from the elements of the vector `keys` to those of the row
    (ONNX ZipMap).
    """

    objects = True

    def infer(self, data: Type, keys: Type) -> TensorType:
        """(rows,) of objects, the dictionaries."""
        t, k = tensors(data, keys)
        if t.ndim not in (1, 2) or k.ndim != 1 or differ(t.shape[-1], k.shape[0]):
            raise ShapeError(f"rows of {text(k.shape)} elements were expected, one for each key, and the data are "
                             f"{text(t.shape)}")
        return TensorType((t.shape[0] if t.ndim == 2 else 1,), OBJECT)

    def reference(self, data: Array, keys: Array) -> Array:
        return self._zipper(keys)(data)

    def meaning(self, known: Sequence[Array | None]) -> Callable[[Array], Array] | None:
        return None if known[1] is None or known[0] is not None else self._zipper(known[1])

    def _zipper(self, keys: Array) -> Callable[[Array], Array]:
        names = keys.tolist()

        def zipped(data: Array) -> Array:
            rows = (data if data.ndim == 2 else data[None]).tolist()
            return np.fromiter(map(dict, map(zip, repeat(names), rows)), object, len(rows))

        return zipped


@op("dict_vectorize", kind=Fusion.OPAQUE)
class DictVectorize(Op):
    """The values of dictionaries for the keys in the vector `keys`, 0 for a missing key: (dictionaries, keys)."""

    objects = True
    dtype: str = "float32"
    """Type of the result."""

    def infer(self, data: Type, keys: Type) -> TensorType:
        """(dictionaries, keys); `dtype`. The data are objects."""
        t, k = tensors(data, keys)
        if t.dtype is not OBJECT or t.ndim > 1 or k.ndim != 1:
            raise ShapeError(f"a dictionary or a row of them, and a vector of keys, were expected, but got {t!r} and "
                             f"{k!r}")
        return TensorType((t.shape[0] if t.ndim else 1, k.shape[0]), self.dtype)

    def reference(self, data: Array, keys: Array) -> Array:
        names, dtype = keys.tolist(), DataType(self.dtype)
        rows = [[d.get(key, "" if dtype is STRING else 0) for key in names] for d in data.flat]
        if dtype is STRING:
            return of_strings([s for row in rows for s in row], (len(rows), len(names)))
        return np.asarray(rows, dtype.numpy()).reshape(len(rows), len(names))


_CASTS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "TO_FLOAT": ("float32", float), "TO_INT64": ("int64", lambda v: int(float(v))), "TO_STRING": ("string", str),
}


@op("cast_map", kind=Fusion.OPAQUE)
class CastMap(Op):
    """The values of a dictionary with int64 keys: (1, size), missing positions zero or empty (ONNX CastMap)."""

    objects = True
    size: int = 1
    """Width of the result."""
    cast_to: str = "TO_FLOAT"
    """Type of the result: "TO_FLOAT", "TO_INT64" or "TO_STRING"."""
    sparse: bool = False
    """True puts each value at the column that its key names, False in the order of the keys."""

    def infer(self, data: Type) -> TensorType:
        """(1, size); float32, int64 or string by `cast_to`. The data are one object."""
        (t,) = tensors(data)
        if self.cast_to not in _CASTS:
            raise CompileError(f"cast_map: cast_to is {self.cast_to!r}; it must be one of {', '.join(_CASTS)}",
                               code="TW0308")
        if t.dtype is not OBJECT or t.ndim:
            raise ShapeError(f"a dictionary was expected, and this is {t!r}")
        return TensorType((1, self.size), _CASTS[self.cast_to][0])

    def reference(self, data: Array) -> Array:
        values: dict[int, Any] = data.item()
        dtype, cast = _CASTS[self.cast_to]
        keys = sorted(values)
        if (self.sparse and any(not 0 <= k < self.size for k in keys)) or (not self.sparse and len(keys) != self.size):
            raise ValueError(f"the dictionary has the keys {keys}, which do not form a row of {self.size} elements")
        row = [cast("0")] * self.size
        for place, key in enumerate(keys):
            row[key if self.sparse else place] = cast(values[key])
        return of_strings(row, (1, self.size)) if dtype == "string" else np.asarray([row], dtype)
