"""TVM's interface to compiled models: the results of `relay.build` and `runtime.load_module`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ArtifactError, InputError, OptionError
from tilewright.base.nd import Device, NDArray, empty
from tilewright.base.params import load_param_dict
from tilewright.runtime import compiler_hooks
from tilewright.runtime.artifact import Artifact, is_staged, load, load_executable
from tilewright.runtime.benchmark import USUAL, BenchmarkResult, Pace, measure
from tilewright.runtime.c_source import CSourceModule
from tilewright.runtime.entry_layout import EntryLayout
from tilewright.runtime.executable import Executable
from tilewright.runtime.function_graph import FunctionGraph
from tilewright.runtime.functions import FunctionModule
from tilewright.runtime.graph_json import graph_json
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.modules import Module, ModuleNode, Timer
from tilewright.runtime.program import TensorInfo

DEBUG_CREATE: Final = "debug_create"
"""Name of the entry for TVM's debug executor, a function of a program name and a device."""


class Session(Module):
    """A runnable copy of a model with its own input and output arrays, used by `GraphModule`."""

    def __init__(self, executable: Executable | FunctionGraph, device: Device) -> None:
        self.executable = executable
        self.device = device.require()
        self.inputs = [empty(t.shape, t.dtype, device).copyfrom(np.zeros(t.shape)) for t in executable.inputs]
        self.outputs = [empty(t.shape, t.dtype, device) for t in executable.outputs]

    @property
    def input_infos(self) -> Sequence[TensorInfo]:
        """Names, shapes and dtypes of the inputs."""
        return self.executable.inputs

    @property
    def output_infos(self) -> Sequence[TensorInfo]:
        """Names, shapes and dtypes of the outputs."""
        return self.executable.outputs

    @property
    def output_count(self) -> int:
        return len(self.outputs)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return a function of TVM's graph executor by its name: `session["run"]()`."""
        functions: dict[str, Callable[..., Any]] = {
            "set_input": lambda key, value: self.set_input(self.input_index(key), value), "run": self.run,
            "set_input_zero_copy": self.set_input_zero_copy, "set_output_zero_copy": self.set_output_zero_copy,
            "get_input": lambda key: self.inputs[self.input_index(key)], "get_output": self._output,
            "get_num_inputs": lambda: len(self.inputs), "get_num_outputs": lambda: self.output_count,
            "get_input_index": self.input_index, "load_params": self._load_params,
        }
        if name not in functions:
            raise InputError(f"a session has no function '{name}'; it has {', '.join(functions)}", code="TW0707")
        return functions[name]

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """Return the function of that name, as `session[name]`. `query_imports` has no effect, since a session imports
        no functions. Raises `InputError` for an unknown name."""
        return self[name]

    def _load_params(self, params: bytes | bytearray) -> None:
        known = {t.name: k for k, t in enumerate(self.input_infos)}
        for name, value in load_param_dict(params).items():
            if name in known:
                self.set_input(known[name], value)

    def _output(self, index: int, out: NDArray | None = None) -> NDArray:
        found = self.outputs[index]
        return found if out is None else found.copyto(out)

    def set_input(self, index: int, value: Any) -> None:
        """Copy into an input array; raises `InputError` for another shape."""
        self.inputs[index].copyfrom(value)

    def set_input_zero_copy(self, key: str | int, value: NDArray) -> None:
        """Read this array in every run from now on, instead of a copy. Raises `InputError` for another type."""
        index = self.input_index(key)
        self.inputs[index] = _fitting(value, self.input_infos[index])

    def set_output_zero_copy(self, index: int, value: NDArray) -> None:
        """Write this array in every run from now on. Raises `InputError` for another type."""
        if not 0 <= index < len(self.outputs):
            raise InputError(f"the model has no output {index}; it has {len(self.outputs)}", code="TW0707")
        self.outputs[index] = _fitting(value, self.output_infos[index])

    def run(self) -> None:
        """Compute the output arrays from the input arrays."""
        self.executable(*self.inputs, out=self.outputs)

    def input_index(self, key: str | int) -> int:
        """Return the position of an input by name or number. Raises `InputError` for an unknown input."""
        names = [t.name for t in self.input_infos]
        if isinstance(key, str):
            if key not in names:
                raise InputError(f"the model has no input '{key}'; it has {', '.join(names) or 'none'}", code="TW0702")
            return names.index(key)
        if not 0 <= key < len(names):
            raise InputError(f"the model has no input {key}; it has {len(names)}: {', '.join(names)}", code="TW0702")
        return key

    def benchmark(
        self, repeat: int, number: int, min_repeat_ms: float, end_to_end: bool, pace: Pace = USUAL
    ) -> BenchmarkResult:
        """Time `run`; `end_to_end` includes copies of inputs and outputs."""
        if not end_to_end:
            return measure(self.run, repeat, number, min_repeat_ms, pace)
        given = [x.numpy() for x in self.inputs]

        def call() -> None:
            for k, value in enumerate(given):
                self.set_input(k, value)
            self.run()
            for output in self.outputs:
                output.numpy()

        return measure(call, repeat, number, min_repeat_ms, pace)

    def timer(self, func_name: str) -> Timer:
        """Return how `run` is timed. Raises `InputError` for another function."""
        if func_name != "run":
            raise InputError(f"only 'run' can be timed, not '{func_name}'", code="TW0717")
        return lambda args, number, repeat, least, pace: self.benchmark(repeat, number, least, False, pace)


def _fitting(value: NDArray, info: TensorInfo) -> NDArray:
    """Return an array of the type of an input or output. Raises `InputError` for another one."""
    if tuple(value.shape) != tuple(info.shape) or str(value.dtype) != str(info.dtype):
        raise InputError(f"the array is {value.dtype}{list(value.shape)}, expected {info}", code="TW0704")
    return value


class FactoryModule(Module):
    """A compiled model: `module["default"](device)` creates a session, `export_library` writes a file."""

    executor: Any = None
    """The `relay.backend.Executor` that `relay.build` was given; None for modules that are loaded."""
    runtime: Any = None
    """The `relay.backend.Runtime` that `relay.build` was given."""
    write_c: Callable[[Path], Path] | None = None
    """Writes the model as C, a Model Library; None where the target is not of the kind c."""
    c_source: CSourceModule | None = None
    """The C text of the model; None where the target is not of the kind c."""
    sources: Mapping[str, Callable[[], str]] | None = None
    """The texts of the kernels by format; None for modules that are loaded, and for programs in stages."""

    def __init__(self, artifact: Artifact, executable: Executable | None = None) -> None:
        self._artifact = artifact
        self._executable = executable

    @property
    def artifact(self) -> Artifact:
        """The artifact of the model."""
        return self._artifact

    @property
    def executable(self) -> Executable:
        """The model as a function."""
        if self._executable is None:
            self._executable = self.artifact.executable()
        return self._executable

    @property
    def entry(self) -> EntryLayout | None:
        """The structure of the values that the model takes and returns, if not all are tensors."""
        return self.artifact.manifest.entry

    @property
    def input_names(self) -> list[str]:
        """The names of the native inputs."""
        return [t.name for t in self.artifact.manifest.inputs]

    def manifests(self) -> list[Manifest]:
        """Return the manifests of the native programs of the model."""
        return [self.artifact.manifest]

    def identity(self) -> str:
        """Return a text that is equal for two modules only if they are the same program with the same constants."""
        constants = hashlib.sha256(self.artifact.constants.data).hexdigest()
        return replace(self.artifact.manifest, hashes={}, modules=()).to_json() + constants

    @property
    def mod(self) -> FactoryModule:
        """The module itself, for TVM's `exe.mod.export_library(path)`."""
        return self

    @property
    def libmod_name(self) -> str:
        return self.artifact.manifest.name

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return the function that makes sessions ("default"), or one of TVM's by its name."""
        if name == DEBUG_CREATE:
            return lambda entry="default", device=None: self[entry](device)
        own: dict[str, Callable[..., Any]] = {
            "get_graph_json": self.get_graph_json, "get_graph_params": self.get_params, "remove_params": self.get_lib,
            "list_module_names": lambda: [self.libmod_name]}
        if name in own:
            return own[name]
        if name not in ("default", self.libmod_name):
            raise InputError(
                f"a compiled model has no entry '{name}'; it has 'default', and '{DEBUG_CREATE}' for contrib.debugger",
                code="TW0707")
        return self._create

    def _create(self, *devices: Device | None) -> Session:
        """Return a session on a device, the CPU if there is none. Raises `InputError` for several devices."""
        if len(devices) > 1:
            raise InputError(f"a compiled model runs on one device; {len(devices)} were given", code="TW0701")
        return self.session((devices[0] if devices else None) or Device())

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """Return the function of that name, as `module[name]`. `query_imports` has no effect, because a compiled model
        imports no functions. Raises `InputError` for an unknown name."""
        return self[name]

    def session(self, device: Device) -> Session:
        """Return a runnable copy with its own arrays."""
        return Session(self.executable, device)

    def __iter__(self) -> Iterator[Any]:
        """Yield graph, library and parameters, for older scripts that write `graph, lib, params = relay.build(…)`."""
        return iter((self.get_graph_json(), self, self.get_params()))

    def get_lib(self) -> FactoryModule:
        """Return the module itself, which is the library and the graph in one."""
        return self

    @property
    def lib(self) -> FactoryModule:
        """The module itself, as `get_lib()`."""
        return self

    @property
    def module(self) -> FactoryModule:
        """The module itself, for older scripts."""
        return self

    @property
    def params(self) -> dict[str, NDArray]:
        """An empty dictionary, as `get_params()`."""
        return self.get_params()

    @property
    def graph_json(self) -> str:
        """The program as a graph of TVM, as `get_graph_json()`."""
        return self.get_graph_json()

    def get_executor_config(self) -> str:
        """Return the program as a graph of TVM, as `get_graph_json()`."""
        return self.get_graph_json()

    @property
    def imported_modules(self) -> list[ModuleNode]:
        """The C text of a model for the target c, or the modules of other compilers for parts of the model."""
        if self.c_source is not None and not self.artifact.modules:
            return [self.c_source]
        return [*self.artifact.modules]

    def get_params(self) -> dict[str, NDArray]:
        """Return an empty dictionary: parameters are constants of the program."""
        return {}

    def get_graph_json(self) -> str:
        """Return the program as a graph of TVM: its inputs, and one call of its native code."""
        return graph_json(self.artifact.manifest)

    def get_source(self, fmt: str = "") -> str:
        """Return the code of the kernels as text. `fmt` is `ll` or `asm`, or `c` if it was built for C; by default the
        text that is compiled."""
        if not self.sources:
            raise ArtifactError(
                f"the model '{self.libmod_name}' has no source here; build it again, with known sizes, to see it",
                code="TW0807")
        wanted = {"": next(iter(self.sources)), "s": "asm"}.get(fmt, fmt)
        if wanted not in self.sources:
            raise OptionError(
                f"there is no source '{fmt}' of this module; there is {', '.join(self.sources)}", code="TW0210")
        return self.sources[wanted]()

    def save(self, path: str | os.PathLike[str], fmt: str = "") -> Path:
        """Write to `path`; `fmt` (`so` or `tar`) is appended unless it is the extension."""
        target = Path(path)
        return self.artifact.save(
            target.with_name(f"{target.name}.{fmt}") if fmt and target.suffix != f".{fmt}" else target)

    def export_library(
        self, file_name: str | os.PathLike[str], fcompile: Any = None, addons: Sequence[str] | None = None,
        workspace_dir: str | None = None, *, cc: str | None = None, **_options: Any
    ) -> Path:
        """Write a `.so` or a `.tar`.

        `cc` is the compiler that links, as is the compiler of a `contrib.cc.cross_compiler` as `fcompile`; by default,
        a linker for the target is found. Only the compiled code is linked, so other `fcompile`, `workspace_dir` and
        `options` have no effect. Raises `OptionError` for `addons`, files to link with it.
        """
        if addons:
            raise OptionError(
                "addons: a program is linked without other files; link them to the program that loads it",
                code="TW0204")
        compiler = cc or getattr(fcompile, "compiler", None)
        return self.artifact.save(file_name, compiler_hooks.named_linker(compiler) if compiler else None)


def load_module(path: str | os.PathLike[str]) -> FactoryModule | FunctionModule:
    """Read a model or functions that `export_library` wrote; C text is compiled. Raises `ArtifactError` for other
    files."""
    if Path(path).suffix == ".c":
        return compiler_hooks.load_c(Path(path))
    if is_staged(path):
        stages: Any = load_executable(path)
        module: FactoryModule = stages.module()
        return module
    artifact = load(path)
    return FunctionModule(artifact) if artifact.manifest.functions else FactoryModule(artifact)
