"""oneDNN's C interface (version 3), called through ctypes, without a compiler or linker.

The library comes from `pip install onednn-cpu-gomp` (or a system package with `libdnnl.so.3`); `TILEWRIGHT_DNNL` names
another file. Names and numbers are those of `dnnl.h` and `dnnl_types.h` (oneDNN 3.0 and later keep them).
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import site
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tilewright.base.errors import InternalError, RunError, TargetError

VARIABLE: Final = "TILEWRIGHT_DNNL"
INSTALL: Final = (
    "install it (pip install onednn-cpu-gomp, or a package with libdnnl.so.3), or set TILEWRIGHT_DNNL to the path of "
    "libdnnl.so.3"
)
FILE: Final = "libdnnl.so.3"

FORWARD_INFERENCE, FLOAT32, ANY, CPU, IN_ORDER, SCRATCHPAD_OF_USER = 96, 3, 1, 1, 1, 1
CONVOLUTION_DIRECT, DECONVOLUTION_DIRECT = 1, 10
QUERY_SRC, QUERY_WEIGHTS, QUERY_DST, QUERY_SCRATCHPAD = 129, 131, 133, 136
ARG_SRC, ARG_SRC_1, ARG_DST, ARG_WEIGHTS, ARG_BIAS, ARG_SCALE, ARG_SHIFT, ARG_SCRATCHPAD, ARG_MULTIPLE_SRC = (
    1, 2, 17, 33, 41, 51, 52, 80, 1024
)
ARG_POST_OP: Final = 32768
"""Argument of post-op k: `ARG_POST_OP * (k + 1) | ARG_SRC_1`."""
USE_SCALE, USE_SHIFT = 2, 4
UNIMPLEMENTED: Final = 3
POOLS: Final = {"max": 511, "average with padding": 767, "average": 1023}
BINARIES: Final = {
    "add": 131056, "multiply": 131057, "maximum": 131058, "minimum": 131059, "divide": 131060, "subtract": 131061
}
ELTWISE: Final = {
    "relu": 32, "tanh": 33, "elu": 34, "abs": 36, "sqrt": 37, "linear": 38, "hard_sigmoid": 40, "sigmoid": 41,
    "exp": 42, "gelu_tanh": 43, "swish": 44,
    "log": 45, "clip": 46, "gelu": 49, "hard_swish": 52,
}
SOFTMAX: Final = {"softmax": 196608, "log_softmax": 196609}

_STATUS: Final = (
    "success", "out of memory", "invalid arguments", "unimplemented", "last implementation reached", "runtime error",
    "not required"
)
_RUNTIMES: Final = {
    1: "sequential", 2: "OpenMP", 4: "TBB", 8: "a thread pool of its caller", 256: "OpenCL", 512: "SYCL"
}
_CALLABLE: Final = (1, 2, 4)
"""The runtimes that use plain memory and finish a primitive before its call returns."""

Dims = Sequence[int]


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int), ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


class Argument(ctypes.Structure):
    """`dnnl_exec_arg_t`."""

    _fields_ = (("arg", ctypes.c_int), ("memory", ctypes.c_void_p))


def dims(values: Dims) -> Any:
    """`dnnl_dims_t`."""
    return (ctypes.c_int64 * 12)(*values)


class Library:
    """The loaded library, and the CPU as its engine. Raises `TargetError` if it cannot be used."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.code = _loaded(path)
        version = getattr(self.code, "dnnl_version", None)
        if version is None:
            raise TargetError(f"{path} is not oneDNN: it has no dnnl_version; {INSTALL}", code="TW0912")
        version.restype = ctypes.POINTER(_Version)
        found = version().contents
        self.version = f"{found.major}.{found.minor}.{found.patch}"
        if found.major != 3:
            raise TargetError(
                f"{path} is oneDNN {self.version}, but its interface must be that of version 3; {INSTALL}",
                code="TW0912")
        self.runtime = _RUNTIMES.get(found.cpu_runtime, str(found.cpu_runtime))
        if found.cpu_runtime not in _CALLABLE:
            raise TargetError(
                f"{path} is oneDNN {self.version} for {self.runtime}, which does not share plain memory with its "
                f"caller; {INSTALL}",
                code="TW0912")
        self.code.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        self.code.dnnl_primitive_desc_query_md.restype = ctypes.c_void_p
        self.execute = self.code.dnnl_primitive_execute
        self.execute.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
        self.set_handle = self.code.dnnl_memory_set_data_handle
        self.set_handle.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self._set_threads = getattr(self.code, "omp_set_num_threads", None)
        engine = ctypes.c_void_p()
        check(self.code.dnnl_engine_create(ctypes.byref(engine), CPU, ctypes.c_size_t(0)), "engine")
        assert engine.value is not None
        self.engine = engine.value

    def use_threads(self, count: int) -> None:
        """Set the number of threads for calls of this thread; a thread pool of the library takes precedence."""
        if self._set_threads is not None:
            self._set_threads(ctypes.c_int(count))

    def size(self, desc: int) -> int:
        """Return the bytes of memory that `desc` describes."""
        return int(self.code.dnnl_memory_desc_get_size(ctypes.c_void_p(desc)))

    def same(self, a: int, b: int) -> bool:
        """Whether two memory descriptors are equal."""
        return a == b or bool(self.code.dnnl_memory_desc_equal(ctypes.c_void_p(a), ctypes.c_void_p(b)))

    def description(self, primitive_desc: int, what: int) -> int:
        """Return the memory descriptor that a primitive chose for an argument; it lives as long as the primitive
        descriptor."""
        found = self.code.dnnl_primitive_desc_query_md(
            ctypes.c_void_p(primitive_desc), ctypes.c_int(what), ctypes.c_int(0))
        if not found:
            raise InternalError(f"oneDNN {self.version} does not describe argument {what} of a primitive")
        return int(found)


class Objects:
    """Objects of the library with a common lifetime, destroyed with this object in reverse order."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._made: list[tuple[Any, int]] = []
        weakref.finalize(self, _destroy, self._made)

    def made(self, kind: str, creator: str, *args: Any) -> int:
        """Create an object of this kind; raises `RunError` with the status of `dnnl_<creator>`."""
        found = self.tried(kind, creator, *args)
        if found is None:
            check(UNIMPLEMENTED, creator)
        assert found is not None
        return found

    def tried(self, kind: str, creator: str, *args: Any) -> int | None:
        """Create an object of this kind, or return None if the library has no implementation."""
        handle = ctypes.c_void_p()
        status = getattr(self.library.code, f"dnnl_{creator}")(ctypes.byref(handle), *args)
        if status == UNIMPLEMENTED:
            return None
        check(status, creator)
        assert handle.value is not None
        self._made.append((getattr(self.library.code, f"dnnl_{kind}_destroy"), handle.value))
        return handle.value

    def plain(self, shape: Dims, strides: Dims | None = None) -> int:
        """Return a float32 descriptor with `strides` in elements, by default row-major."""
        if strides is None:
            strides = row_major(shape)
        return self.made(
            "memory_desc", "memory_desc_create_with_strides", len(shape), dims(shape), FLOAT32, dims(strides))

    def any(self, shape: Dims) -> int:
        """Return a float32 descriptor whose format a primitive chooses."""
        return self.made("memory_desc", "memory_desc_create_with_tag", len(shape), dims(shape), FLOAT32, ANY)

    def permuted(self, desc: int, order: Sequence[int]) -> int:
        """Return a descriptor of the same memory with axis k at `order[k]`."""
        if list(order) == sorted(order):
            return desc
        return self.made(
            "memory_desc", "memory_desc_permute_axes", ctypes.c_void_p(desc), (ctypes.c_int * len(order))(*order))

    def memory(self, desc: int, address: int) -> int:
        return self.made(
            "memory", "memory_create", ctypes.c_void_p(desc), ctypes.c_void_p(self.library.engine),
            ctypes.c_void_p(address))

    def stream(self) -> int:
        return self.made("stream", "stream_create", ctypes.c_void_p(self.library.engine), IN_ORDER)


def row_major(shape: Dims) -> list[int]:
    """Return row-major strides in elements."""
    strides = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        strides[k] = strides[k + 1] * shape[k + 1]
    return strides


def check(status: int, what: str) -> None:
    """Raise `RunError` for a status that is not success."""
    if status:
        said = _STATUS[status] if status < len(_STATUS) else f"status {status}"
        raise RunError(
            f"oneDNN answered '{said}' to dnnl_{what}; keep the operator on the CPU, or report it with the network",
            code="TW0913")


def _destroy(made: list[tuple[Any, int]]) -> None:
    while made:
        destroy, handle = made.pop()
        destroy(ctypes.c_void_p(handle))


@functools.cache
def library() -> Library:
    """Return the library of this process. Raises `TargetError` if no usable library is found."""
    return Library(find())


def find() -> str:
    """Return the path of the library: from the environment, from pip, or the name for the system's loader."""
    named = os.environ.get(VARIABLE, "")
    if named:
        if not Path(named).is_file():
            raise TargetError(f"{VARIABLE} is '{named}', which does not exist; {INSTALL}", code="TW0912")
        return named
    for root in (sys.prefix, site.getuserbase(), sys.base_prefix):
        if (Path(root) / "lib" / FILE).is_file():
            return str(Path(root) / "lib" / FILE)
    return FILE


def _loaded(path: str) -> ctypes.CDLL:
    """Load the library after its dependences in the same folder, because wheels do not declare their location."""
    tried: set[str] = set()
    while True:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            missing = re.match(r"([^\s/]+): cannot open shared object file", str(error))
            beside = Path(path).parent / missing[1] if missing else None
            if beside is None or str(beside) in tried or not beside.is_file() or beside.name == Path(path).name:
                raise TargetError(f"oneDNN cannot be loaded ({error}); {INSTALL}", code="TW0912") from error
            tried.add(str(beside))
            _loaded(str(beside))
