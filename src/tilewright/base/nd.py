"""Arrays and devices: the inputs and outputs of compiled models.

An `NDArray` is a device and a numpy array: host memory, any strides, any dtype of `DataType` (bfloat16 and the 4-bit
integers through ml_dtypes). Memory is shared with numpy and with DLPack exporters. As in TVM, `numpy()` copies;
`np.asarray` does not.
"""

from __future__ import annotations

import ctypes
import difflib
import functools
import math
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import ml_dtypes
import numpy as np

from tilewright.base.errors import InputError, TargetError
from tilewright.base.types import DataType

ALIGNMENT: Final = 64
_TYPES: Final = {
    "cpu": 1, "cuda": 2, "opencl": 4, "aocl": 5, "vulkan": 7, "metal": 8, "vpi": 9, "rocm": 10, "ext_dev": 12,
    "webgpu": 15, "hexagon": 16,
}
"""Kind of device -> DLPack's number of it."""
_KINDS: Final = {
    **{kind: kind for kind in _TYPES}, "llvm": "cpu", "c": "cpu", "stackvm": "cpu", "hybrid": "cpu", "cl": "opencl",
    "sdaccel": "opencl", "aocl_sw_emu": "aocl", "mtl": "metal", "nvptx": "cuda", "test": "cpu", "composite": "cpu",
}
"""Name of a device or of a target -> kind of device."""
_BFLOAT16: Final = np.dtype(ml_dtypes.bfloat16)
_DL_UINT, _DL_BFLOAT = 1, 4


def content(value: np.ndarray[Any, Any]) -> Hashable:
    """Return the elements of a numpy array as a dictionary key: the bytes, or a tuple for Python objects."""
    return tuple(value.flat) if value.dtype.hasobject else value.tobytes()


def is_numeric(kind: np.dtype[Any]) -> bool:
    """Whether elements are numbers or truth values: of numpy's own kinds, or bfloat16."""
    return kind.kind in "biuf" or kind == _BFLOAT16


@dataclass(frozen=True, slots=True)
class Device:
    """A device: a kind (`cpu`, `cuda`, …) and the number of the device of that kind. Programs run on those that
    `exist`."""

    kind: str = "cpu"
    index: int = 0
    STR2MASK: ClassVar[Mapping[str, int]] = {name: _TYPES[kind] for name, kind in _KINDS.items()}
    """Name of a device or of a target -> DLPack's number of the device."""
    MASK2STR: ClassVar[Mapping[int, str]] = {number: kind for kind, number in _TYPES.items()}
    """DLPack's number -> kind of device."""

    @property
    def device_type(self) -> int:
        """DLPack's number of the device kind."""
        return _TYPES.get(self.kind, 1)

    @property
    def device_id(self) -> int:
        return self.index

    @property
    def exist(self) -> bool:
        return self.kind == "cpu" and self.index == 0

    def sync(self) -> None:
        """Wait for the device. A CPU has always finished its work when a call returns."""
        self.require()

    def require(self) -> Device:
        """Return the device. Raises `TargetError` if programs do not run on its kind."""
        if self.kind != "cpu":
            raise TargetError(
                f"there is no device '{self}' here: arrays and programs are on the CPU, tvm.cpu()", code="TW0506")
        return self

    def __repr__(self) -> str:
        return f"{self.kind}({self.index})"


def device(kind: str, index: int = 0) -> Device:
    """Return the device called `kind`, or the device of the target kind `kind`: `device("llvm") == cpu(0)`.

    TVM's other kinds are known: `device("cuda").exist` is False.
    """
    name = kind.split(maxsplit=1)[0] if kind.strip() else kind
    known = _KINDS.get(name)
    if known is None:
        near = difflib.get_close_matches(name, _KINDS, 1)
        hint = f"did you mean '{near[0]}'?" if near else "use 'cpu' or one of: " + ", ".join(_KINDS)
        raise TargetError(f"there is no device '{kind}' here; {hint}", code="TW0506")
    return Device(known, index)


def cpu(index: int = 0) -> Device:
    """Return the host device."""
    return Device("cpu", index)


def _device_function(kind: str) -> Callable[[int], Device]:
    def function(index: int = 0) -> Device:
        return Device(kind, index)

    function.__name__ = kind
    function.__doc__ = f"Return the {kind} device with this number; it does not exist here."
    return function


cuda, opencl, vulkan, metal, vpi, rocm, ext_dev, webgpu, hexagon = map(
    _device_function, (k for k in _TYPES if k not in ("cpu", "aocl")))
cl = opencl


class NDArray:
    """A tensor in host memory, over a numpy array of any strides.

    A tensor of vectors (dtype `float32x2`) is a numpy array whose last axis, not part of `shape`, holds the `lanes` of
    each element.
    """

    __array_priority__ = 1
    __slots__ = ("__weakref__", "_array", "device", "lanes")
    device: Device
    lanes: int

    def __init__(self, array: np.ndarray[Any, Any], device: Device | None = None, lanes: int = 1) -> None:
        self._array = array
        self.device = device or cpu()
        self.lanes = lanes

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._array.shape[: self.ndim]
        return shape

    @property
    def dtype(self) -> DataType:
        return DataType(self._array.dtype).with_lanes(self.lanes)

    @property
    def ndim(self) -> int:
        return self._array.ndim - (self.lanes > 1)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbouring elements, for each axis."""
        return self._array.strides[: self.ndim]

    @property
    def nbytes(self) -> int:
        return self._array.nbytes

    ctx = property(lambda self: self.device, doc="The field's older name of `device`.")

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return a copy as a numpy array; the lanes of vectors are its last axis."""
        return self._array.copy()

    asnumpy = numpy

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Return the array's own memory if `dtype` and `copy` permit it."""
        if dtype is None or np.dtype(dtype) == self._array.dtype:
            return self._array.copy() if copy else self._array
        if copy is False:
            raise ValueError(f"a {self.dtype} array cannot be viewed as {np.dtype(dtype)} without a copy")
        return self._array.astype(dtype)

    def copyfrom(self, source: Any) -> NDArray:
        """Overwrite the elements with those of `source`: same shape, values cast to this dtype. A uint16 source is
        copied into bfloat16 as raw bits."""
        values = as_numpy(source)
        if values.shape != self._array.shape:
            lanes = f", whose {self.lanes} lanes form the last axis" if self.lanes > 1 else ""
            raise InputError(
                f"an array of shape {values.shape} cannot be copied into one of shape {self.shape} and dtype "
                f"{self.dtype}{lanes}", code="TW0704")
        if self._array.dtype == _BFLOAT16 and values.dtype == np.uint16:
            values = values.view(_BFLOAT16)
        np.copyto(self._array, values, casting="unsafe")
        return self

    def copyto(self, target: NDArray | Device) -> NDArray:
        """Copy into another array, or into a new one on a device, and return it."""
        if isinstance(target, Device):
            return NDArray(aligned_copy(self._array), target.require(), self.lanes)
        return target.copyfrom(self)

    def __getitem__(self, index: Any) -> np.ndarray[Any, Any]:
        return np.asarray(self._array[index])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index] = as_numpy(value)

    def __len__(self) -> int:
        return len(self._array)

    def _create_view(self, shape: Sequence[int]) -> NDArray:
        """Return this memory in another shape of as many elements, under TVM's name. Raises `InputError` for another
        number of elements, or if the elements are not contiguous."""
        if self.lanes > 1 or not self._array.flags.c_contiguous or math.prod(shape) != self._array.size:
            raise InputError(
                f"an array of shape {list(self.shape)} has no view of shape {list(shape)}; a view needs contiguous "
                "memory and the same number of elements", code="TW0704")
        return NDArray(self._array.reshape(tuple(shape)), self.device)

    def same_as(self, other: object) -> bool:
        """Whether `other` is this object."""
        return self is other

    def __dlpack__(self, **options: Any) -> Any:
        """Return a DLPack capsule of this memory; `options` are those of the array API (`max_version`, `copy`, …)."""
        if self._array.dtype != _BFLOAT16:
            return self._array.__dlpack__(**options)
        return _retag(self._array.view(np.uint16).__dlpack__(**options), _DL_UINT, _DL_BFLOAT)[0]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.device_type, self.device.index

    def to_dlpack(self) -> Any:
        return self.__dlpack__()

    def __repr__(self) -> str:
        return f"<tilewright.base.nd.NDArray shape={self.shape}, {self.device}>\n{self._array!r}"


def array(source: Any, device: Device | None = None) -> NDArray:
    """Return a new contiguous array, 64-byte aligned, with the elements of `source` (any numpy or DLPack source)."""
    return NDArray(aligned_copy(as_numpy(source)), device and device.require())


def empty(shape: int | Sequence[int], dtype: str | DataType = "float32", device: Device | None = None) -> NDArray:
    """Return a new array of undefined elements."""
    dims, element = (shape,) if isinstance(shape, int) else tuple(int(d) for d in shape), DataType(dtype)
    lanes = (element.lanes,) if element.lanes > 1 else ()
    found = aligned_empty((*dims, *lanes), element.numpy())
    return NDArray(found, device and device.require(), element.lanes)


def from_dlpack(source: Any) -> NDArray:
    """Return the memory of a DLPack exporter or capsule as an array: no copy, strides kept. It can be written, unless
    an exporter says otherwise."""
    return NDArray(source._array if isinstance(source, NDArray) else _import_dlpack(source))


def as_numpy(source: Any) -> np.ndarray[Any, Any]:
    """Return `source` as a numpy array, sharing its memory if possible: numpy, `NDArray`, DLPack, then `np.asarray`."""
    if isinstance(source, np.ndarray):
        return source
    if isinstance(source, NDArray):
        return source._array
    return _import_dlpack(source) if hasattr(source, "__dlpack__") else np.asarray(source)


def aligned_empty(shape: Sequence[int], dtype: np.dtype[Any] | str = "uint8") -> np.ndarray[Any, Any]:
    """Return an undefined contiguous numpy array, aligned to 64 bytes unless it holds Python objects."""
    element = np.dtype(dtype)
    if element.hasobject:
        return np.empty(tuple(shape), element)
    nbytes = math.prod(shape) * element.itemsize
    if under_sanitizer():
        return _exact(nbytes).view(element).reshape(tuple(shape))
    block = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -block.__array_interface__["data"][0] % ALIGNMENT
    return block[start : start + nbytes].view(element).reshape(tuple(shape))


@functools.cache
def under_sanitizer() -> bool:
    """Whether AddressSanitizer is active in this process (`tilewright debug asan`)."""
    return hasattr(ctypes.CDLL(None), "__asan_init")


def _exact(nbytes: int) -> np.ndarray[Any, Any]:
    """Return aligned bytes without padding after them, so that the sanitizer detects accesses beyond the end."""
    library, address = ctypes.CDLL(None), ctypes.c_void_p()
    if library.posix_memalign(ctypes.byref(address), ctypes.c_size_t(ALIGNMENT), ctypes.c_size_t(max(1, nbytes))):
        raise MemoryError(f"{nbytes} bytes")
    block = (ctypes.c_uint8 * max(1, nbytes)).from_address(address.value or 0)
    weakref.finalize(block, library.free, address).atexit = False
    return np.frombuffer(memoryview(block), np.uint8)[:nbytes]


def aligned_copy(source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy that begins at a multiple of `ALIGNMENT` bytes."""
    copy = aligned_empty(source.shape, source.dtype)
    np.copyto(copy, source)
    return copy


class _Capsule:
    """Passes an existing capsule to numpy."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def _import_dlpack(source: Any) -> np.ndarray[Any, Any]:
    """Import by numpy; a bfloat16 tensor, which numpy does not support, is passed through it as uint16."""
    if hasattr(source, "__dlpack_device__") and source.__dlpack_device__()[0] != 1:
        raise InputError("this tensor is not in host memory; copy it to the CPU first", code="TW0706")
    try:
        capsule = _capsule_of(source) if hasattr(source, "__dlpack__") else source
    except (BufferError, RuntimeError, TypeError) as error:
        raise InputError(f"this tensor cannot be shared through DLPack: {error}", code="TW0706") from error
    if (name := _capsule_name(capsule)) is None:
        raise InputError(
            f"expected a DLPack exporter or an unused DLPack capsule, not {type(source).__name__}", code="TW0706")
    capsule, retagged = _retag(capsule, _DL_BFLOAT, _DL_UINT)
    try:
        result: np.ndarray[Any, Any] = np.from_dlpack(_Capsule(capsule))
    except (BufferError, RuntimeError) as error:
        raise InputError(f"this tensor cannot be read through DLPack: {error}", code="TW0706") from error
    if not hasattr(source, "__dlpack__") and name == b"dltensor":
        result = np.asarray(_Writable(result))
    return result.view(_BFLOAT16) if retagged else result


class _Writable:
    """Memory of a capsule of the older form, which has no mark for read-only memory, as writable memory."""

    def __init__(self, memory: np.ndarray[Any, Any]) -> None:
        self._memory = memory
        interface = memory.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def _capsule_of(source: Any) -> Any:
    """Return a capsule of the versioned form, which marks writable memory, or of the older form if only that is
    supported."""
    try:
        return source.__dlpack__(max_version=(1, 0))
    except TypeError:
        return source.__dlpack__()


class _Tensor(ctypes.Structure):
    """`DLTensor` of dlpack.h, up to its dtype code."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


_TENSOR_OFFSET: Final = {b"dltensor": 0, b"dltensor_versioned": 32}
"""Offset of the `DLTensor` in `DLManagedTensor` and in `DLManagedTensorVersioned` (version, context, deleter, flags).
"""

_capsule_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_capsule_is_valid.restype, _capsule_is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype, _capsule_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _capsule_name(capsule: Any) -> bytes | None:
    return next((name for name in _TENSOR_OFFSET if _capsule_is_valid(capsule, name)), None)


def _retag(capsule: Any, old: int, new: int) -> tuple[Any, bool]:
    """Change a 16-bit element code of an unused capsule; return the capsule and whether it changed."""
    name = _capsule_name(capsule)
    if name is None:
        return capsule, False
    tensor = _Tensor.from_address(_capsule_pointer(capsule, name) + _TENSOR_OFFSET[name])
    if tensor.code != old or tensor.bits != 16:
        return capsule, False
    tensor.code = new
    return capsule, True
