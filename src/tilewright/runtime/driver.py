"""Modules that are implemented by a driver in C, a shared library with the function table of `tilewright_driver.h`.

    npu = load_driver("libnpu.so")                          its modules can be loaded from files from now on
    register_func("relay.ext.npu", lambda f: npu.module(blob_of(f)))

The driver describes the memory that it needs. Tensors in host memory are passed in place if their alignment suffices.
Tensors in other scopes are copied before and after a call, to and from memory that the driver allocates and frees.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ArtifactError, RunError, TargetError
from tilewright.base.forks import new_lock
from tilewright.base.nd import NDArray, aligned_empty, as_numpy
from tilewright.runtime.device_memory import HOST_SCOPE, DeviceMemory, memory_of
from tilewright.runtime.modules import ModuleNode, register_module

VERSION: Final = 1
HEADER: Final = Path(__file__).parent / "tilewright_driver.h"
"""The header of the interface, for authors of drivers."""
_MESSAGE: Final = 512
_ONE_AT_A_TIME: Final = 1
_pointer, _u64, _i32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int32


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", _pointer), ("shape", ctypes.POINTER(ctypes.c_int64)), ("nbytes", _u64), ("ndim", _i32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16), ("scope", ctypes.c_char_p),
    )


class _Function(ctypes.Structure):
    _fields_ = (("handle", _pointer), ("inputs", _i32), ("outputs", _i32))


class _Memory(ctypes.Structure):
    _fields_ = (("scope", ctypes.c_char_p), ("alignment", _u64))


_SIGNATURES: Final = (
    ("create", _pointer, (_pointer, _u64, _pointer)),
    ("get_function", _i32, (_pointer, ctypes.c_char_p, ctypes.POINTER(_Function))),
    ("call", _i32, (_pointer, ctypes.POINTER(_Function), _pointer, _pointer)),
    ("destroy", None, (_pointer,)),
    ("save", _u64, (_pointer, _pointer, _u64)),
    ("describe", None, (_pointer, ctypes.POINTER(_Function), _i32, ctypes.POINTER(_Memory))),
    ("allocate", _pointer, (_pointer, ctypes.c_char_p, _u64, _u64)),
    ("release", None, (_pointer, ctypes.c_char_p, _pointer)),
    ("copy_in", _i32, (_pointer, _pointer, _pointer, _u64)),
    ("copy_out", _i32, (_pointer, _pointer, _pointer, _u64)),
)
_REQUIRED: Final = ("create", "get_function", "call", "destroy")
_OF_DEVICES: Final = ("allocate", "release", "copy_in", "copy_out")


class _Table(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("kind", ctypes.c_char_p),
        *((name, _pointer) for name, _, _ in _SIGNATURES)
    )


class Driver:
    """A loaded driver; `kind` is the name of its modules in files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(str(path))
            entry = self._library.tw_driver
        except OSError as error:
            raise TargetError(
                f"the driver {path} cannot be loaded: {error}; build it for this machine as a shared library",
                code="TW0916"
            ) from error
        except AttributeError as error:
            raise TargetError(
                f"{path} is not a driver: it has no function tw_driver; {HEADER} declares the functions to "
                "export", code="TW0916"
            ) from error
        entry.restype = ctypes.POINTER(_Table)
        table = entry()
        if not table:
            raise TargetError(
                f"tw_driver of {path} returned null; it must return its table of functions", code="TW0916")
        found = table.contents
        if found.version != VERSION:
            raise TargetError(
                f"the driver {path} is for version {found.version} of the interface, but this is version {VERSION}; "
                f"build it with {HEADER}",
                code="TW0916")
        self.kind = (found.kind or b"").decode("utf-8", "replace")
        self.one_at_a_time = bool(found.flags & _ONE_AT_A_TIME)
        self.functions: dict[str, Callable[..., Any]] = {
            name: ctypes.CFUNCTYPE(result, *args)(getattr(found, name)) for name, result, args in _SIGNATURES
            if getattr(found, name)}
        missing = [name for name in _REQUIRED if name not in self.functions]
        partial = [name for name in _OF_DEVICES if name not in self.functions]
        if missing or (partial and len(partial) < len(_OF_DEVICES)):
            why = "" if missing else "; the functions of device memory must be given together"
            raise TargetError(f"the driver {path} has no function {', '.join(missing or partial)}{why}", code="TW0916")
        self.lock = new_lock()
        self.type: type[CModule] = type(
            f"CModule_{self.kind}", (CModule,),
            {"type_key": self.kind, "driver": self, "__module__": f"{__name__}:{path}"})
        register_module(self.type)

    @property
    def has_memory(self) -> bool:
        """Whether the driver allocates its own memory."""
        return "allocate" in self.functions

    def module(self, blob: bytes) -> CModule:
        """Return a module made from `blob`. Raises `ArtifactError` with the driver's message if the driver refuses it.
        """
        return self.type(blob)


class CModule(ModuleNode):
    """A module of a driver. Several threads may call it; the calls are serialized if the driver requires it."""

    driver: Driver

    def __init__(self, blob: bytes) -> None:
        message = ctypes.create_string_buffer(_MESSAGE)
        handle = self.driver.functions["create"](blob, len(blob), message)
        if not handle:
            raise ArtifactError(
                f"the driver of '{self.type_key}' ({self.driver.path}) refused the module: {_said(message)}",
                code="TW0917")
        self._handle, self._blob = int(handle), bytes(blob)
        weakref.finalize(self, self.driver.functions["destroy"], self._handle)

    def get_function(self, name: str) -> Callable[..., Any] | None:
        found = _Function()
        if self.driver.functions["get_function"](self._handle, name.encode(), ctypes.byref(found)):
            return None
        return _Call(self, name, found)

    def save_to_binary(self) -> bytes:
        save = self.driver.functions.get("save")
        if save is None:
            return self._blob
        room = int(save(self._handle, None, 0))
        data = ctypes.create_string_buffer(room)
        if int(save(self._handle, data, room)) != room:
            raise ArtifactError(
                f"the driver of '{self.type_key}' first reports {room} bytes for a module, then another number",
                code="TW0917")
        return data.raw

    @classmethod
    def load_from_binary(cls, blob: bytes) -> CModule:
        return cls(blob)

    def asked(self, function: _Function, k: int) -> tuple[str, int]:
        """Return the scope and the alignment that the driver requires for tensor `k` of a function."""
        memory = _Memory(HOST_SCOPE.encode(), 1)
        if "describe" in self.driver.functions:
            self.driver.functions["describe"](self._handle, ctypes.byref(function), k, ctypes.byref(memory))
        scope = (memory.scope or b"").decode()
        if scope != HOST_SCOPE and not self.driver.has_memory:
            raise TargetError(
                f"the driver of '{self.type_key}' asks for memory in '{scope}', but lacks the functions for it: "
                f"{', '.join(_OF_DEVICES)}",
                code="TW0916")
        return scope, int(memory.alignment)


class _Call:
    """A function of a module, called with the inputs, then the outputs."""

    def __init__(self, module: CModule, name: str, function: _Function) -> None:
        self.module, self.name, self.function = module, name, function
        self.asked = [module.asked(function, k) for k in range(function.inputs + function.outputs)]

    def __call__(self, *arrays: NDArray) -> None:
        driver, function = self.module.driver, self.function
        if len(arrays) != len(self.asked):
            raise RunError(
                f"'{self.name}' of the driver of '{driver.kind}' takes {function.inputs} inputs and {function.outputs} "
                f"outputs, but was given {len(arrays)} arrays",
                code="TW0917")
        message = ctypes.create_string_buffer(_MESSAGE)
        with driver.lock if driver.one_at_a_time else contextlib.nullcontext(), contextlib.ExitStack() as held:
            placed = [_Placed(self.module, self.asked[k], as_numpy(a), held) for k, a in enumerate(arrays)]
            tensors = (_Tensor * len(placed))(*(p.tensor for p in placed))
            for p in placed[: function.inputs]:
                p.copy_in()
            if driver.functions["call"](self.module._handle, ctypes.byref(function), tensors, message):
                raise RunError(
                    f"the driver of '{driver.kind}' reports an error in '{self.name}': {_said(message)}", code="TW0917")
            for p in placed[function.inputs :]:
                p.copy_out()


class _Placed:
    """A tensor in memory that meets the driver's requirements while `held` is open."""

    def __init__(
        self, module: CModule, asked: tuple[str, int], array: np.ndarray[Any, Any], held: contextlib.ExitStack
    ) -> None:
        self.driver, self.handle, self.array = module.driver, module._handle, array
        self.memory = memory_of(array, *asked)
        self.near = array
        if self.memory.scope != HOST_SCOPE:
            place = self._allocated(held)
        else:
            if not self.memory.holds(array):
                self.near = _aligned(self.memory)
            place = _address(self.near)
        self.place, self._shape = place, (ctypes.c_int64 * len(array.shape))(*array.shape)
        dtype = self.memory.dtype
        self.tensor = _Tensor(
            place, self._shape, self.memory.nbytes, len(array.shape), dtype.type_code, dtype.bits, dtype.lanes,
            self.memory.scope.encode())

    def _allocated(self, held: contextlib.ExitStack) -> int:
        scope = self.memory.scope.encode()
        place = self.driver.functions["allocate"](self.handle, scope, self.memory.allocated, self.memory.alignment)
        if not place:
            raise RunError(
                f"the driver of '{self.driver.kind}' cannot allocate {self.memory.allocated} bytes of "
                f"'{self.memory.scope}'; give it a smaller part of the network",
                code="TW0917")
        held.callback(self.driver.functions["release"], self.handle, scope, place)
        return int(place)

    def copy_in(self) -> None:
        if self.memory.scope != HOST_SCOPE:
            self._checked(
                self.driver.functions["copy_in"](self.handle, self.place, _address(self.array), self.memory.nbytes))
        elif self.near is not self.array:
            np.copyto(self.near, self.array)

    def copy_out(self) -> None:
        if self.memory.scope != HOST_SCOPE:
            self._checked(
                self.driver.functions["copy_out"](self.handle, _address(self.array), self.place, self.memory.nbytes))
        elif self.near is not self.array:
            np.copyto(self.array, self.near)

    def _checked(self, status: int) -> None:
        if status:
            raise RunError(
                f"the driver of '{self.driver.kind}' cannot copy {self.memory.nbytes} bytes from or to "
                f"'{self.memory.scope}' (status {status})",
                code="TW0917")


def load_driver(path: str | os.PathLike[str]) -> Driver:
    """Load the driver in a shared library, so that programs with its modules can be loaded.

    Loading a library runs its code, so its path comes only from the process, never from a program file. Raises
    `TargetError` for a library that is not a driver of this version.
    """
    file = Path(path).resolve()
    with _LOCK:
        known = _DRIVERS.get(file)
        if known is None:
            known = _DRIVERS[file] = Driver(file)
        return known


_DRIVERS: Final[dict[Path, Driver]] = {}
_LOCK: Final = new_lock()


def _aligned(memory: DeviceMemory) -> np.ndarray[Any, Any]:
    """Return a host array with the alignment of `memory`."""
    block = aligned_empty((memory.nbytes + memory.alignment,))
    start = -_address(block) % memory.alignment
    return block[start : start + memory.nbytes].view(memory.dtype.numpy()).reshape(memory.shape)


def _address(x: np.ndarray[Any, Any]) -> int:
    found: int = x.__array_interface__["data"][0]
    return found


def _said(message: Any) -> str:
    return message.value.decode("utf-8", "replace") or "it gives no reason"
