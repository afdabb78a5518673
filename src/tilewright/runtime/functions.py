"""Loop programs as native functions: what `tvm.build` returns, and `load_module` for a library of them.

    module = tvm.build(schedule, [A, B, C], "llvm", name="matmul")
    module(a, b, c)                 # or module["matmul"](a, b, c); c is written in place

Arguments are arrays: `NDArray`, numpy, or anything with `__dlpack__`, of exactly the shape and dtype of the parameter.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.errors import ArtifactError, InputError, OptionError
from tilewright.nd import Device, NDArray, aligned_empty, as_numpy
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.benchmark import BenchmarkResult, measure
from tilewright.runtime.manifest import Parameter
from tilewright.runtime.program import Code
from tilewright.runtime.threads import POOLS, default_threads

Array = np.ndarray[Any, Any]
Sources = Mapping[str, Callable[[], str]]
_KERNEL_ALIGNMENT: Final = 16


class NativeFunction:
    """A function over arrays, called by position; it writes its results into its arguments."""

    def __init__(self, name: str, params: Sequence[Parameter], code: Code) -> None:
        self.name, self.params = name, tuple(params)
        self._code = code
        self._run = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(self.params) + 1))(code.address(name))

    def __call__(self, *args: Any) -> None:
        """Run; raises `InputError` when the arguments do not fit the parameters."""
        given = self._checked(args)
        passed = _passable(self.params, given)
        self._run(POOLS.context(default_threads(), self._code), *(_address(x) for x in passed))
        for p, mine, theirs in zip(self.params, passed, given, strict=True):
            if p.written and mine is not theirs:
                np.copyto(theirs, mine)

    def benchmark(self, *args: Any, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0) -> BenchmarkResult:
        """Time calls with these arguments; they are checked once."""
        passed = _passable(self.params, self._checked(args))
        addresses, context = [_address(x) for x in passed], POOLS.context(default_threads(), self._code)
        return measure(lambda: self._run(context, *addresses), repeat, number, min_repeat_ms)

    def _checked(self, args: Sequence[Any]) -> list[Array]:
        if len(args) != len(self.params):
            raise InputError(f"{self.name} takes {len(self.params)} arrays and was given {len(args)}: {self}")
        return [self._array(k, p, x) for k, (p, x) in enumerate(zip(self.params, args, strict=True))]

    def _array(self, k: int, p: Parameter, value: Any) -> Array:
        what = f"argument {k} of {self.name}, '{p.info.name}',"
        if not isinstance(value, (np.ndarray, NDArray)) and not hasattr(value, "__dlpack__"):
            raise InputError(f"{what} is a {type(value).__name__}; pass an array: tvm.nd.array(…) of {p.info}")
        x = as_numpy(value)
        if x.dtype != p.info.dtype.numpy():
            raise InputError(f"{what} has dtype {x.dtype}, expected {p.info}; convert it with .astype('{p.info.dtype}')")
        if x.shape != p.info.shape:
            raise InputError(f"{what} has shape {list(x.shape)}, expected {p.info}")
        if p.written and not x.flags.writeable:
            raise InputError(f"{what} is written by the function, and this array is read-only")
        return x

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(str(p.info) for p in self.params)})"


class FunctionModule:
    """Native functions by name. Calling the module calls its first function."""

    def __init__(self, artifact: Artifact, sources: Sources | None = None) -> None:
        self.artifact = artifact
        self._sources = sources or {}
        self._code: Code | None = None

    @property
    def entry_name(self) -> str:
        """The function that a call of the module is a call of."""
        return next(iter(self.artifact.manifest.functions))

    @property
    def entry_func(self) -> NativeFunction:
        return self[self.entry_name]

    @property
    def type_key(self) -> str:
        """The kind of target that the code is for."""
        return self.artifact.manifest.target.split()[0]

    def __call__(self, *args: Any) -> None:
        self.entry_func(*args)

    def __getitem__(self, name: str) -> NativeFunction:
        return self.get_function(name)

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of that name."""
        return name in self.artifact.manifest.functions

    def get_function(self, name: str, query_imports: bool = False) -> NativeFunction:
        """The function of that name; raises `InputError` when there is none."""
        params = self.artifact.manifest.functions.get(name)
        if params is None:
            raise InputError(f"the module has no function '{name}'; it has {', '.join(self.artifact.manifest.functions)}")
        if self._code is None:
            self._code = self.artifact.code()
        return NativeFunction(name, params, self._code)

    def get_source(self, fmt: str = "") -> str:
        """The code as text: `ll` (LLVM, also without `fmt`), `asm`, or `tir` (the loops that it was made from)."""
        if not self._sources:
            raise ArtifactError(f"{self.artifact.path}: a library has no source; build the function again to see it")
        wanted = {"": "ll", "s": "asm"}.get(fmt, fmt)
        if wanted not in self._sources:
            raise OptionError(f"there is no source '{fmt}' of this module; there is {', '.join(self._sources)}")
        return self._sources[wanted]()

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0
    ) -> Callable[..., BenchmarkResult]:
        """A function that takes the arguments and times calls with them: `module.time_evaluator("main", dev)(a, b).mean`."""
        function = self.get_function(self.entry_name if func_name == "__tvm_main__" else func_name)
        return lambda *args: function.benchmark(*args, number=number, repeat=repeat, min_repeat_ms=min_repeat_ms)

    def export_library(self, file_name: str | os.PathLike[str]) -> Path:
        """Write a `.so` (with whichever linker there is) or a `.tar`, which `runtime.load_module` reads."""
        return self.artifact.save(file_name)

    save = export_library

    def __repr__(self) -> str:
        return f"FunctionModule({', '.join(self.artifact.manifest.functions)} for {self.artifact.manifest.target})"


def _passable(params: Sequence[Parameter], given: Sequence[Array]) -> list[Array]:
    """The arrays, or copies where a kernel cannot work on them: strided, unaligned, or memory shared with what is written."""
    passed: list[Array] = []
    for k, (p, x) in enumerate(zip(params, given, strict=True)):
        direct = x.flags.c_contiguous and not _address(x) % _KERNEL_ALIGNMENT
        if direct and p.written:
            direct = not any(np.may_share_memory(x, other) for n, other in enumerate(given) if n != k)
        if not direct:
            copy = aligned_empty(x.shape, x.dtype)
            np.copyto(copy, x)
            x = copy
        passed.append(x)
    return passed


def _address(x: Array) -> int:
    address: int = x.__array_interface__["data"][0]
    return address


