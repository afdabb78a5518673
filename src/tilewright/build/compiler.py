"""The short door: `compile` a model file, call the result, `save` it, `load` it; and `build`, the field's `relay.build`.

A model with symbolic dimensions is specialised for each combination of input shapes that it is called with; the
specialisations are kept in the model and in the cache on disk.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import __version__, expr
from tilewright.build.cache import Cache
from tilewright.build.program import Report, build_program
from tilewright.errors import InputError, ModelError, OptionError
from tilewright.ir.module import IRModule
from tilewright.ir.transform import PassContext
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.executable import Executable
from tilewright.runtime.files import hash_file
from tilewright.runtime.module import FactoryModule
from tilewright.runtime.program import TensorInfo
from tilewright.target.target import Target

Shapes = Mapping[str, Sequence[int]]
STAGES = ("relay", "tir", "ll", "asm")


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Compiling makes no cycles worth collecting, and collecting costs a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def build_module(
    mod: IRModule, target: str | Target = "llvm", name: str = "default", report: Report | None = None, cache: Cache | None = None,
    output_names: Sequence[str] = (),
) -> Artifact:
    """Optimize and compile the `main` of a module under the current `PassContext`."""
    from tilewright.relay.transform.pipeline import optimize

    report = Report() if report is None else report
    chosen = Target(target)
    with _no_garbage_collection():
        try:
            with report.phase("graph"):
                optimized = optimize(mod, chosen)
            report.module = optimized
            return build_program(optimized["main"], chosen, name, report, cache or Cache.default(), output_names)
        finally:
            expr.release()


def build(
    mod: Any, target: str | Target = "llvm", target_host: Any = None, params: Mapping[str, Any] | None = None, mod_name: str = "default"
) -> FactoryModule:
    """The field's `relay.build`: compile `mod` (a module or a function) with `params` bound to its variables of those names."""
    from tilewright.relay.transform.bind_params import bind_params

    del target_host
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    if params:
        module = bind_params(module, params)
    return FactoryModule(build_module(module, target, mod_name))


def compile(
    model: Any, shapes: Shapes | None = None, target: str | Target = "llvm", threads: int | None = None, *, opt_level: int = 3,
    config: Mapping[str, Any] | None = None, cache: Cache | None = None,
) -> Model:
    """Compile a model for this machine or for `target`.

    `model` is a path to an ONNX file, its bytes, or a `ModelProto`; `shapes` gives sizes to symbolic input dimensions.
    Without them, a model with symbolic dimensions is compiled for each shape at the first call with it.
    Raises `ModelError` for a bad file, `OpNotImplemented` with all operators that are not known, `TargetError`.
    """
    made = Model(model, dict(shapes or {}), Target(target), threads, opt_level, dict(config or {}), cache or Cache.default())
    made.prepare()
    return made


class Model:
    """A compiled model: call it with numpy arrays, `save` it, `benchmark` it.

    `m(x)` for one input, `m(x, y)` or `m(name=x)` for several; the result is an array, or a tuple of them.
    """

    def __init__(
        self, model: Any, shapes: dict[str, Sequence[int]], target: Target, threads: int | None, opt_level: int, config: dict[str, Any], cache: Cache
    ) -> None:
        self.target, self.report = target, Report()
        self._source, self._shapes, self._threads = model, shapes, threads
        self._opt_level, self._config, self._cache = opt_level, config, cache
        self._made: dict[tuple[tuple[int, ...], ...], tuple[Artifact, Executable]] = {}
        self._last: Executable | None = None
        self._proto: Any = None
        self._signature: list[tuple[str, list[int | str], str]] = []
        self._content = ""

    def prepare(self) -> None:
        """Read the signature, and compile at once when all shapes are known."""
        with self.report.phase("hash"):
            self._content = _content_key(self._source)
        key = Cache.key("signature", __version__, self._content)
        stored = self._cache.get(key)
        if stored is None:
            self._signature = self._read_signature()
            self._cache.put(key, json.dumps(self._signature).encode())
        else:
            self._signature = [(str(n), list(d), str(t)) for n, d, t in json.loads(stored)]
        _check_names(self._shapes, [n for n, _, _ in self._signature])
        shapes = [tuple(self._shapes.get(n, d)) for n, d, _ in self._signature]
        if all(isinstance(d, int) for s in shapes for d in s):
            self._last = self._specialise(shapes)  # type: ignore[arg-type]

    @property
    def executable(self) -> Executable:
        """The program for the shapes of the last call."""
        if self._last is None:
            raise InputError(f"the model has symbolic dimensions ({self._described()}); call it once, or compile it with shapes=")
        return self._last

    @property
    def artifact(self) -> Artifact:
        """What `save` writes."""
        return next(a for a, e in self._made.values() if e is self.executable)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return self.executable.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return self.executable.outputs

    @property
    def threads(self) -> int:
        return self.executable.threads

    @threads.setter
    def threads(self, count: int) -> None:
        self._threads = count
        for _, e in self._made.values():
            e.threads = count

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(self._made) > 1 or self._last is None or self._symbolic():
            self._last = self._specialise(self._called_with(args, kwargs))
        return self._last(*args, **kwargs)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a `.so` (needs a linker) or a `.tar`: code, constants and plan in one file, which needs nothing of ours."""
        return self.artifact.save(path)

    def benchmark(self, *args: Any, **kwargs: Any) -> Any:
        """Time the program on example inputs: see `Executable.benchmark`."""
        return self.executable.benchmark(*args, **kwargs)

    def dump(self, stage: str) -> str:
        """The program as text at a stage: `relay`, `tir`, `ll` or `asm`. Compiles again when it came from the cache."""
        if stage not in STAGES:
            raise OptionError(f"there is no stage '{stage}'; the stages are {', '.join(STAGES)}")
        shapes = [t.shape for t in self.inputs]
        report = Report()
        self._build(shapes, report, Cache(None))
        if stage == "relay":
            return str(report.module)
        if stage == "tir":
            return "\n\n".join(str(k.func) for k in report.kernels.values()) + "\n"
        if stage == "ll":
            return "\n".join(report.llvm.values())
        from tilewright.target.llvm.compile import assembly

        return "\n".join(assembly(text, self.target) for text in report.llvm.values())

    def _symbolic(self) -> bool:
        return any(not isinstance(d, int) for n, dims, _ in self._signature if n not in self._shapes for d in dims)

    def _described(self) -> str:
        return ", ".join(f"{n}: ({', '.join(map(str, self._shapes.get(n, d)))})" for n, d, _ in self._signature)

    def _called_with(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[int, ...]]:
        if len(args) == 1 and not kwargs and isinstance(args[0], Mapping):
            return self._called_with((), args[0])
        names = [n for n, _, _ in self._signature]
        _check_names(kwargs, names)
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        missing = [n for n in names if n not in given]
        if missing or len(args) > len(names):
            raise InputError(f"the model takes {len(names)} inputs ({self._described()}); " + (f"missing: {', '.join(missing)}" if missing else f"{len(args)} were given"))
        shapes = []
        for n, dims, _ in self._signature:
            shape = tuple(np.shape(given[n]))
            wanted = self._shapes.get(n, dims)
            if len(shape) != len(wanted) or any(isinstance(w, int) and w != d for w, d in zip(wanted, shape, strict=True)):
                raise InputError(f"input '{n}' has the shape {shape}, and the model takes ({', '.join(map(str, wanted))})")
            shapes.append(shape)
        return shapes

    def _specialise(self, shapes: Sequence[tuple[int, ...]]) -> Executable:
        key = tuple(tuple(int(d) for d in s) for s in shapes)
        found = self._made.get(key)
        if found is None:
            artifact = self._cached_or_built(key)
            with self.report.phase("load"):
                found = self._made[key] = artifact, artifact.executable(self._threads)
        return found[1]

    def _cached_or_built(self, shapes: Sequence[tuple[int, ...]]) -> Artifact:
        key = Cache.key(
            "artifact", __version__, _compiler_fingerprint(), self._content, json.dumps(shapes), str(self.target), ",".join(sorted(self.target.features)),
            str(self._opt_level), json.dumps(self._config, sort_keys=True, default=str),
        )
        with self.report.phase("cache"):
            found = self._cache.get_artifact(key)
        if found is None:
            found = self._build(shapes, self.report, self._cache)
            if not found.manifest.host_steps:
                with self.report.phase("cache"):
                    self._cache.put_artifact(key, found)
        return found

    def _build(self, shapes: Sequence[tuple[int, ...]], report: Report, cache: Cache) -> Artifact:
        from tilewright.relay.frontend.onnx import from_onnx

        with report.phase("import"), _no_garbage_collection():
            mod, _ = from_onnx(self._model(), {n: s for (n, _, _), s in zip(self._signature, shapes, strict=True)})
        with PassContext(opt_level=self._opt_level, config=self._config):
            return build_module(mod, self.target, self._name(), report, cache, mod["main"].attrs.get("output_tensor_names", ()))

    def _model(self) -> Any:
        return self._source

    def _name(self) -> str:
        return Path(self._source).stem if isinstance(self._source, (str, os.PathLike)) else "model"

    def _read_signature(self) -> list[tuple[str, list[int | str], str]]:
        from tilewright.relay.frontend.onnx import signature

        with self.report.phase("import"):
            return signature(self._source)


def _check_names(given: Mapping[str, Any], names: Sequence[str]) -> None:
    unknown = [n for n in given if n not in names]
    if unknown:
        raise InputError(f"the model has no input '{unknown[0]}'; its inputs are {', '.join(names)}")


def _content_key(model: Any) -> str:
    """A hash of the model's content: of the file, the bytes, or the serialised message."""
    if isinstance(model, (str, os.PathLike)):
        path = Path(model)
        if not path.is_file():
            raise ModelError(f"{path}: there is no such file" if not path.exists() else f"{path}: this is a folder, not a model file")
        return _with_external_data(path)
    data = model if isinstance(model, (bytes, bytearray)) else model.SerializeToString(deterministic=True)
    return hashlib.sha256(data).hexdigest()


def _with_external_data(path: Path) -> str:
    """The hash of a model file and of the data files beside it that may belong to it."""
    parts = [hash_file(path)]
    for other in sorted(path.parent.glob(f"{path.name}*")) + sorted(path.parent.glob("*.data")):
        if other != path and other.is_file():
            stat = other.stat()
            parts.append(f"{other.name}:{stat.st_size}:{stat.st_mtime_ns}")
    return hashlib.sha256("|".join(parts).encode()).hexdigest()


@functools.cache
def _compiler_fingerprint() -> str:
    """Changes whenever the compiler's own files do."""
    root = Path(__file__).parent.parent
    stats = ((p, p.stat()) for p in sorted(root.rglob("*.py")))
    return hashlib.sha256("|".join(f"{p.relative_to(root)}:{s.st_size}:{s.st_mtime_ns}" for p, s in stats).encode()).hexdigest()
