"""Loop programs as native functions: the results of `tvm.build`, and of `load_module` for a library of them.

    module = tvm.build(schedule, [A, B, C], "llvm", name="matmul")
    module(a, b, c)                 # or module["matmul"](a, b, c); c is written in place

Arguments are arrays (`NDArray`, numpy, or anything with `__dlpack__`) of the parameter's dtype and shape, and numbers
for scalar parameters. Symbolic sizes (`n`) are derived from the arrays.
"""

from __future__ import annotations

import ctypes
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np

from tilewright.base.errors import ArtifactError, InputError, MemoryFault, OptionError
from tilewright.base.nd import NDArray, aligned_empty, as_numpy
from tilewright.runtime import compiler_hooks
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.benchmark import USUAL, BenchmarkResult, Pace, measure
from tilewright.runtime.elf_sections import add_manifest
from tilewright.runtime.fault_reports import reported
from tilewright.runtime.files import write_atomically
from tilewright.runtime.host_calls import Callbacks, c_type
from tilewright.runtime.manifest import Argument, Callback, Manifest, Parameter, Result, Scalar
from tilewright.runtime.modules import Module, Timer
from tilewright.runtime.program import Code
from tilewright.runtime.scratch import ALWAYS_THERE, check_stack, refused
from tilewright.runtime.sizes import value as size_of
from tilewright.runtime.threads import POOLS, default_threads

Array = np.ndarray[Any, Any]
Sources = Mapping[str, Callable[[], str]]
_KERNEL_ALIGNMENT: Final = 16
_TEXTS: Final = {".c": "c", ".ll": "ll", ".s": "asm"}
"""File name extensions of sources, by the format of `get_source`."""


class NativeFunction:
    """A function over arrays and numbers, called by position; it writes its results into its arguments, and may return
    a number."""

    def __init__(self, name: str, params: Sequence[Argument], code: Code, manifest: Manifest) -> None:
        """`manifest` is that of its module: the maximum scratch memory per thread, and the checked accesses."""
        self.name, self._manifest = name, manifest
        self.params = tuple(p for p in params if isinstance(p, Parameter) or (isinstance(p, Scalar) and p.given))
        self.arrays = tuple(p for p in params if isinstance(p, Parameter))
        self.scalars = tuple(p for p in params if isinstance(p, Scalar))
        self.result = next((p.dtype for p in params if isinstance(p, Result)), None)
        self.callbacks = tuple(p for p in params if isinstance(p, Callback))
        self._code, self._scratch = code, manifest.scratch
        arrays = len(self.arrays) + (self.result is not None)
        kinds = [ctypes.c_void_p] * (arrays + 1) + [c_type(p.dtype) for p in self.scalars]
        kinds += [ctypes.c_int64] * len(self.callbacks)
        self._run = ctypes.CFUNCTYPE(None, *kinds)(code.address(name))

    def __call__(self, *args: Any) -> Any:
        """Run, and return the number that the code returns with `T.ret`, or None.

        Raises `InputError` when the arguments do not fit the parameters, `RunError` when memory is exhausted, and the
        exceptions of registered functions that the code calls. Checked code raises `MemoryFault` for an invalid access.
        """
        given, passed, numbers = self._passed(args)
        result, callbacks = self._result(), Callbacks(self.callbacks)
        context, scratch = POOLS.context(default_threads(), self._code), self._scratch
        if scratch.stack > ALWAYS_THERE:
            check_stack(self.name, scratch)
        before = refused(context) if scratch.heap else 0
        self._run(context, *(_address(x) for x in (*passed, *result)), *numbers, *callbacks.addresses)
        fault = self._fault()
        if callbacks.error is not None:
            raise callbacks.error
        if scratch.heap and refused(context) != before:
            raise scratch.lacking(self.name)
        if fault is not None:
            raise fault
        for p, mine, theirs in zip(self.arrays, passed, given, strict=True):
            if p.written and mine is not theirs:
                np.copyto(theirs, mine)
        return result[0].item() if result else None

    def _result(self) -> list[Array]:
        """Return the array that the code stores its result in, if it has one."""
        return [] if self.result is None else [np.zeros((), self.result.numpy())]

    def benchmark(
        self, *args: Any, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0, pace: Pace = USUAL
    ) -> BenchmarkResult:
        """Time calls with these arguments, which are checked once."""
        found = measure(self.bind(*args), repeat, number, min_repeat_ms, pace)
        if (fault := self._fault()) is not None:
            raise fault
        return found

    def _fault(self) -> MemoryFault | None:
        """Return the report of checked code since the last call, if any."""
        return reported(self._code, self._manifest) if self._manifest.sites else None

    def bind(self, *args: Any) -> Callable[[], None]:
        """Return a call with these arguments, which are checked once. If an array had to be copied, the call writes the
        copy."""
        _, passed, numbers = self._passed(args)
        arrays, callbacks = [*passed, *self._result()], Callbacks(self.callbacks)
        context = POOLS.context(default_threads(), self._code)
        everything = (context, *(_address(x) for x in arrays), *numbers, *callbacks.addresses)
        run = self._run

        def call(keep: Sequence[Array] = arrays) -> None:
            run(*everything)
            if callbacks.error is not None:
                raise callbacks.error

        return call

    def _passed(self, args: Sequence[Any]) -> tuple[list[Array], list[Array], list[Any]]:
        """Return the arrays as given, and the arrays and the numbers to pass to the code."""
        if len(args) != len(self.params):
            raise InputError(
                f"{self.name} takes {len(self.params)} {'arguments' if self.scalars else 'arrays'} and was given "
                f"{len(args)}: {self}",
                code="TW0701")
        known: dict[str, Any] = {}
        arrays: list[Array] = []
        for k, (p, x) in enumerate(zip(self.params, args, strict=True)):
            if isinstance(p, Scalar):
                known[p.name] = self._number(k, p, x)
            else:
                arrays.append(self._array(k, p, x))
        self._find_sizes(arrays, known)
        passed = _passable(self.arrays, arrays, self._manifest.checks_overlaps)
        for p, x in zip(self.arrays, passed, strict=True):
            known.update(
                {
                    s: step // x.itemsize for s, step in zip(p.strides, x.strides, strict=False)
                    if isinstance(s, str) and s.isidentifier()})
        return arrays, passed, [known[p.name] for p in self.scalars]

    def _number(self, k: int, p: Scalar, value: Any) -> Any:
        try:
            if isinstance(value, str):
                raise TypeError
            return p.dtype.numpy().type(value).item() if p.dtype.is_float else int(operator.index(value))
        except TypeError:
            raise InputError(
                f"argument {k} of {self.name}, '{p.name}', is a {type(value).__name__}; pass a number, {p.dtype}",
                code="TW0706"
            ) from None

    def _array(self, k: int, p: Parameter, value: Any) -> Array:
        what = f"argument {k} of {self.name}, '{p.name}',"
        if not isinstance(value, (np.ndarray, NDArray)) and not hasattr(value, "__dlpack__"):
            raise InputError(
                f"{what} is a {type(value).__name__}; pass an array: tvm.nd.array(…) of {p}", code="TW0706")
        x = as_numpy(value)
        if x.dtype != p.dtype.numpy():
            raise InputError(
                f"{what} has dtype {x.dtype}, expected {p}; convert it with .astype('{p.dtype.element}')", code="TW0703"
            )
        if p.dtype.lanes > 1:
            x = _vectors(x, p, what)
        if (
            len(x.shape) != len(p.shape)
            or any(isinstance(d, int) and d != n for n, d in zip(x.shape, p.shape, strict=True))
        ):
            raise InputError(f"{what} has shape {list(x.shape)}, expected {p}", code="TW0704")
        if p.written and not x.flags.writeable:
            raise InputError(f"{what} is written by the function, but this array is read-only", code="TW0705")
        return x

    def _find_sizes(self, arrays: Sequence[Array], known: dict[str, Any]) -> None:
        """Determine the symbolic sizes from the shapes. Raises `InputError` if two shapes contradict each other."""
        for p, x in zip(self.arrays, arrays, strict=True):
            for d, n in zip(p.shape, x.shape, strict=True):
                if isinstance(d, str) and d.isidentifier():
                    known.setdefault(d, n)
        for p, x in zip(self.arrays, arrays, strict=True):
            if any(isinstance(d, str) and size_of(d, known) != n for d, n in zip(p.shape, x.shape, strict=True)):
                sizes = ", ".join(f"{name} = {n}" for name, n in known.items())
                raise InputError(
                    f"argument {self.params.index(p)} of {self.name}, '{p.name}', has shape {list(x.shape)}, expected "
                    f"{p} where {sizes}",
                    code="TW0704")

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.params))})"


def _vectors(x: Array, p: Parameter, what: str) -> Array:
    """View an array with the lanes of vectors along its last axis as an array of vectors. Raises `InputError` if the
    lanes are not contiguous."""
    if x.shape[-1:] != (p.dtype.lanes,) or x.strides[-1] != x.itemsize:
        raise InputError(
            f"{what} has shape {list(x.shape)}, expected {p}: its last axis must hold the {p.dtype.lanes} lanes, side "
            "by side",
            code="TW0704")
    return x.view(np.dtype((np.void, p.dtype.itemsize)))[..., 0]


class FunctionModule(Module):
    """Native functions by name. Calling the module calls its first function."""

    def __init__(self, artifact: Artifact, sources: Sources | None = None) -> None:
        self.artifact = artifact
        self._sources = sources or {}
        self._code: Code | None = None
        self.imported_modules: list[FunctionModule] = []

    @property
    def entry_name(self) -> str:
        """Name of the function that a call of the module calls."""
        return next(iter(self.artifact.manifest.functions))

    @property
    def entry_func(self) -> NativeFunction:
        return self[self.entry_name]

    @property
    def type_key(self) -> str:
        """The target kind of the code."""
        return self.artifact.manifest.target.split()[0]

    def __call__(self, *args: Any) -> Any:
        return self.entry_func(*args)

    def __getitem__(self, name: str) -> NativeFunction:
        return self.get_function(name)

    def import_module(self, module: FunctionModule) -> None:
        """Add a module whose functions `get_function` finds with `query_imports`. A saved file does not have them."""
        self.imported_modules.append(module)

    is_dso_exportable = property(lambda self: bool(self._sources), doc="Whether the code can be linked into a library.")
    is_runnable = property(lambda self: True, doc="Whether the functions can be called.")
    is_binary_serializable = property(lambda self: False, doc="Whether the module is data, and not machine code.")

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether there is a function of that name."""
        imported = query_imports and any(m.implements_function(name, True) for m in self.imported_modules)
        return name in self.artifact.manifest.functions or imported

    def get_function(self, name: str, query_imports: bool = False) -> NativeFunction:
        """Return the function of that name, with `query_imports` also one of the modules that this one imports. Raises
        `InputError` for an unknown name."""
        params = self.artifact.manifest.functions.get(name)
        if params is None and query_imports:
            for module in self.imported_modules:
                if module.implements_function(name, True):
                    return module.get_function(name, True)
        if params is None:
            raise InputError(
                f"the module has no function '{name}'; it has {', '.join(self.artifact.manifest.functions)}",
                code="TW0707")
        if self._code is None:
            self._code = self.artifact.code()
        return NativeFunction(name, params, self._code, self.artifact.manifest)

    def get_source(self, fmt: str = "") -> str:
        """Return the code as text. `fmt` is `ll`, `asm`, `c` if it was built for C (default: the first of them), or
        `tir` for its loops."""
        if not self._sources:
            raise ArtifactError(
                f"{self.artifact.path}: a library has no source; build the function again to see it", code="TW0807")
        wanted = {"": next(iter(self._sources)), "s": "asm"}.get(fmt, fmt)
        if wanted not in self._sources:
            raise OptionError(
                f"there is no source '{fmt}' of this module; there is {', '.join(self._sources)}", code="TW0210")
        return self._sources[wanted]()

    def timer(self, func_name: str) -> Timer:
        """Return how a function is timed; `__tvm_main__` is the first one."""
        function = self.get_function(self.entry_name if func_name == "__tvm_main__" else func_name)
        return lambda args, number, repeat, least, pace: function.benchmark(
            *args, number=number, repeat=repeat, min_repeat_ms=least, pace=pace)

    def export_library(
        self, file_name: str | os.PathLike[str], *, cc: str | None = None, options: Sequence[str] = (),
        sanitize: str = ""
    ) -> Path:
        """Write a `.so` (with any linker found), a `.tar`, or a `.c` if the module was built for C;
        `runtime.load_module` reads them.

        A path that ends in `.ll` or `.s` gets the LLVM text or the assembly. One that ends in `.o` gets the object file
        of the functions alone; `runtime.load_module` also reads what a compiler links from it. A `.tar` also contains
        the thread pool of parallel loops, and the text of `pragma import_llvm`.

        The C compiler `cc` or extra `options`, such as `options=["-O0", "-g"]` for a debugger, compile C text again.
        With `sanitize="address"`, `"undefined"` or `"address,undefined"`, the `.so` is for these sanitizers. The
        address sanitizer needs a process started by `tilewright debug asan`. Raises `OptionError` for these arguments
        if there is no C text.
        """
        path = Path(file_name)
        if self.imported_modules:
            raise ArtifactError(
                f"{path}: a file has the functions of one module, but this one imports "
                f"{len(self.imported_modules)} more; build all functions as one module, or save each", code="TW0807")
        if cc is not None or options or sanitize:
            if path.suffix == ".c" or (self._sources and "c" not in self._sources):
                target = self.artifact.manifest.target
                raise OptionError(
                    f"{path}: cc=, options= and sanitize= compile the C text of a module built for 'c' into a .so or "
                    f".tar; this module is for '{target}'",
                    code="TW0211")
            if sanitize:
                return compiler_hooks.export_sanitized(self.artifact, self.get_source("c"), path, cc, options, sanitize)
            return compiler_hooks.compiled_again(self.artifact, self.get_source("c"), cc, options).save(path)
        if path.suffix in _TEXTS:
            _write(path, self.get_source(_TEXTS[path.suffix]).encode())
            return path
        if path.suffix == ".o":
            _write(path, add_manifest(self.artifact.objects[0], self.artifact.manifest.to_json()))
            return path
        return self.artifact.save(file_name)

    save = export_library

    def __repr__(self) -> str:
        return f"FunctionModule({', '.join(self.artifact.manifest.functions)} for {self.artifact.manifest.target})"


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically."""

    def write(file: BinaryIO) -> None:
        file.write(content)

    write_atomically(path, write)


def _passable(params: Sequence[Parameter], given: Sequence[Array], shared: bool) -> list[Array]:
    """Return the arrays, or copies of arrays that are strided, unaligned, or (unless `shared`) overlap written memory.
    """
    passed: list[Array] = []
    for k, (p, x) in enumerate(zip(params, given, strict=True)):
        direct = (_fits(p, x) if p.strides else x.flags.c_contiguous) and not _address(x) % _KERNEL_ALIGNMENT
        if direct and p.written and not shared:
            direct = not any(np.may_share_memory(x, other) for n, other in enumerate(given) if n != k)
        if not direct:
            copy = aligned_empty(x.shape, x.dtype)
            np.copyto(copy, x)
            x = copy
        passed.append(x)
    return passed


def _fits(p: Parameter, x: Array) -> bool:
    """Whether an array has those strides of the parameter that are numbers."""
    return all(
        step % x.itemsize == 0 and (isinstance(s, str) or s * x.itemsize == step)
        for s, step in zip(p.strides, x.strides, strict=True))


def _address(x: Array) -> int:
    address: int = x.__array_interface__["data"][0]
    return address


