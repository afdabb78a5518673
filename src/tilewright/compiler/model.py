"""The short door: `compile` a model file, call the result, `save` it.

A model with symbolic dimensions is specialised for each combination of input shapes that it is called with; the
specialisations are kept in the model and in the cache on disk. A model that the cache has is loaded without importing the
frontend or the compiler: this module imports only what loading needs.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright import __version__, settings
from tilewright.compiler.cache import Cache
from tilewright.compiler.collection import no_garbage_collection
from tilewright.compiler.content import digest_external, digest_model
from tilewright.compiler.report import Report
from tilewright.errors import InputError, OptionError
from tilewright.runtime.artifact import Artifact, runs_here
from tilewright.runtime.benchmark import BenchmarkResult
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import TensorInfo
from tilewright.runtime.threads import checked_threads
from tilewright.target.target import Target

if TYPE_CHECKING:
    from tilewright.ir.module import IRModule

Shapes = Mapping[str, Sequence[int]]
STAGES: Final = ("relay", "tir", "ll", "asm")
_HIGHEST_LEVEL: Final = 4


def compile(
    model: Any,
    shapes: Shapes | None = None,
    target: str | Target = "llvm",
    threads: int | None = None,
    *,
    opt_level: int = 3,
    config: Mapping[str, Any] | None = None,
    disabled_pass: Sequence[str] = (),
    mixed_precision: str = "",
    cache: Cache | None = None,
) -> Model:
    """Compile a model for this machine or for `target`.

    `model` is a path to an ONNX file, its bytes, a `ModelProto`, or an `IRModule` or function of relay; `shapes` gives sizes to symbolic input dimensions.
    Without them, a model with symbolic dimensions is compiled for each shape at the first call with it. `opt_level`,
    `config` and `disabled_pass` are those of `PassContext`. `mixed_precision` ("bfloat16" or "float16") computes products and what
    stands between them in that type, with sums in float32; inputs and outputs keep their types. `threads` share the work of a call (default: all cores).

    Raises `ModelError` for a bad file, `OpNotImplemented` with all operators that are not known, `ShapeError` where an
    operator refuses its arguments, `InputError` for shapes that do not fit, `TargetError`, `OptionError`.
    """
    if not isinstance(opt_level, int) or not 0 <= opt_level <= _HIGHEST_LEVEL:
        raise OptionError(f"opt_level is {opt_level!r}; it is a whole number from 0 to {_HIGHEST_LEVEL}")
    switches = {**(config or {}), **({"relay.ToMixedPrecision.type": mixed_precision} if mixed_precision else {})}
    options = _Options(opt_level, settings.checked(switches), tuple(sorted(disabled_pass)))
    if threads is not None:
        checked_threads(threads)
    kind = Model
    if type(model).__module__.startswith("tilewright."):  # asked by name, so that what is no module imports nothing
        from tilewright.compiler.module_model import ModuleModel

        kind = ModuleModel
    made = kind(model, dict(shapes or {}), Target(target), threads, options, cache or Cache.default())
    with no_garbage_collection():
        made.prepare()
    return made


class _Options:
    """How passes run: the arguments of a `PassContext`."""

    def __init__(self, opt_level: int, config: dict[str, Any], disabled_pass: tuple[str, ...]) -> None:
        self.opt_level, self.config, self.disabled_pass = opt_level, config, disabled_pass

    def context(self) -> Any:
        """The context; raises `OptionError` for a pass that does not exist."""
        from tilewright.ir.transform import PassContext, named_pass

        for name in self.disabled_pass:
            named_pass(name)
        return PassContext(self.opt_level, disabled_pass=self.disabled_pass, config=self.config)

    def key(self) -> str:
        return json.dumps([self.opt_level, self.config, self.disabled_pass], sort_keys=True, default=str)


class _Program:
    """The model for one combination of shapes: an artifact, and its code in this process once it is called."""

    def __init__(self, artifact: Artifact, threads: int | None) -> None:
        self.artifact, self._threads = artifact, threads
        self._executable: Executable | None = None

    @property
    def executable(self) -> Executable:
        """Raises `ArtifactError` when this machine cannot run what was compiled for another."""
        if self._executable is None:
            self._executable = self.artifact.executable(self._threads)
        return self._executable

    def use_threads(self, count: int) -> None:
        self._threads = count
        if self._executable is not None:
            self._executable.threads = count


class Model:
    """A compiled model: call it with numpy arrays, `save` it, `benchmark` it.

    `m(x)` for one input, `m(x, y)` or `m(name=x)` for several; the result is an array, or a tuple of them.
    """

    def __init__(
        self, model: Any, shapes: dict[str, Sequence[int]], target: Target, threads: int | None, options: _Options, cache: Cache
    ) -> None:
        self.target, self.report = target, Report()
        self._source, self._shapes, self._threads = model, shapes, threads
        self._options, self._cache = options, cache
        self._made: dict[tuple[tuple[int, ...], ...], _Program] = {}
        self._only: Executable | None = None
        self._last: _Program | None = None
        self._signature: list[tuple[str, list[int | str], str]] = []
        self._content = ""

    def prepare(self) -> None:
        """Read the signature, and compile at once when all shapes are known."""
        self._read_signature()
        names = [n for n, _, _ in self._signature]
        _check_names(self._shapes, names)
        shapes = [tuple(self._shapes.get(n, d)) for n, d, _ in self._signature]
        if all(isinstance(d, int) for s in shapes for d in s):
            program = self._specialise(shapes)  # type: ignore[arg-type]
            if runs_here(program.artifact.manifest):
                with self.report.phase("load"):
                    self._only = program.executable

    @property
    def artifact(self) -> Artifact:
        """What `save` writes: the program for the shapes of the last call."""
        return self._program.artifact

    @property
    def executable(self) -> Executable:
        """The same in this process; raises `ArtifactError` when it was compiled for another machine."""
        return self._program.executable

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        return self.artifact.manifest.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return self.artifact.manifest.outputs

    @property
    def threads(self) -> int:
        """How many threads share a call's work."""
        return self.executable.threads

    @threads.setter
    def threads(self, count: int) -> None:
        self._threads = checked_threads(count)
        for program in self._made.values():
            program.use_threads(count)

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run; `out` is an array, or one for each output, to write into instead of new ones."""
        program = self._only
        if program is None:
            program = self._specialise(self._called_with(args, kwargs)).executable
        elif out is None and not kwargs:
            return program(*args)
        return program(*args, out=out, **kwargs)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a `.so` (needs a linker) or a `.tar`: code, constants and plan in one file, which needs nothing of ours."""
        return self.artifact.save(path)

    def benchmark(self, *args: Any, **options: Any) -> BenchmarkResult:
        """Time the program, on these inputs or on random ones: see `Executable.benchmark`."""
        program = self._specialise(self._called_with(args, {})) if args and not self._only else self._program
        return program.executable.benchmark(*args, **options)

    def dump(self, stage: str) -> str:
        """The program as text at a stage: `relay`, `tir`, `ll` or `asm`. Compiles again when it came from the cache."""
        if stage not in STAGES:
            raise OptionError(f"there is no stage '{stage}'; the stages are {', '.join(STAGES)}")
        report = self.report
        if stage == "relay" or not report.kernels or not self._only:
            report = Report(keeps_module=stage == "relay")
            self._build([t.shape for t in self.inputs], report, self._cache)
        if stage == "relay":
            return f"{report.module}\n"
        if stage == "tir":
            return "\n\n".join(str(k.func) for k in report.kernels.values()) + "\n"
        if stage == "ll":
            return "\n".join(report.llvm.values())
        from tilewright.target.llvm.compile import assembly

        return "\n".join(assembly(text, self.target) for text in report.llvm.values())

    @property
    def _program(self) -> _Program:
        if self._last is None:
            raise InputError(f"the model has symbolic dimensions ({self._described()}); call it once, or compile it with shapes=")
        return self._last

    def _described(self) -> str:
        return ", ".join(f"{n}: ({', '.join(map(str, self._shapes.get(n, d)))})" for n, d, _ in self._signature)

    def _called_with(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[int, ...]]:
        """The shapes of the inputs of a call, in order; raises `InputError` for those that the model does not take."""
        if len(args) == 1 and not kwargs and isinstance(args[0], Mapping):
            kwargs, args = args[0], ()
        names = [n for n, _, _ in self._signature]
        _check_names(kwargs, names)
        given = dict(zip(names, args, strict=False)) | dict(kwargs)
        missing = [n for n in names if n not in given]
        if missing or len(args) > len(names):
            found = f"missing: {', '.join(missing)}" if missing else f"{len(args)} were given"
            raise InputError(f"the model takes {len(names)} inputs ({self._described()}); {found}")
        shapes = []
        for n, dims, _ in self._signature:
            shape = tuple(np.shape(given[n]))
            wanted = self._shapes.get(n, dims)
            if len(shape) != len(wanted) or any(isinstance(w, int) and w != d for w, d in zip(wanted, shape, strict=False)):
                raise InputError(f"input '{n}' has the shape {shape}, and the model takes ({', '.join(map(str, wanted))})")
            shapes.append(shape)
        return shapes

    def _specialise(self, shapes: Sequence[tuple[int, ...]]) -> _Program:
        key = tuple(tuple(int(d) for d in s) for s in shapes)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = _Program(self._cached_or_built(key), self._threads)
        self._last = found
        return found

    def _cached_or_built(self, shapes: Sequence[tuple[int, ...]]) -> Artifact:
        key = Cache.key(
            "artifact", __version__, _compiler_fingerprint(), self._content, json.dumps(shapes), self._name(), str(self.target),
            ",".join(sorted(self.target.features)), str(self.target.cores), self._options.key(),
        )
        with self.report.phase("cache"):
            found = self._cache.get_artifact(key)
        if found is None:
            found = self._build(shapes, self.report, self._cache)
            with self.report.phase("cache"):
                self._cache.put_artifact(key, found)
        return found

    def _build(self, shapes: Sequence[tuple[int, ...]], report: Report, cache: Cache) -> Artifact:
        from tilewright.compiler.build import build_made
        from tilewright.relay.frontend.onnx import from_onnx

        context = self._options.context()
        given = {n: s for (n, _, _), s in zip(self._signature, shapes, strict=True)}

        def imported() -> IRModule:
            with report.phase("import"):
                return from_onnx(self._source, given)[0]

        with context:
            return build_made(imported, self.target, self._name(), report, cache)

    def _name(self) -> str:
        return Path(self._source).stem if isinstance(self._source, (str, os.PathLike)) else "model"

    def _read_signature(self) -> None:
        """Names, dimensions and dtypes of the inputs, and the key of the content, external data included."""
        with self.report.phase("hash"):
            content = self._digest()
        key = Cache.key("signature", __version__, content)
        stored = self._cache.get(key)
        if stored is None:
            from tilewright.relay.frontend.onnx.signature import survey

            with self.report.phase("import"):
                stored = json.dumps(survey(self._source)).encode()
            self._cache.put(key, stored)
        inputs, locations = json.loads(stored)
        self._signature = [(str(n), list(d), str(t)) for n, d, t in inputs]
        with self.report.phase("hash"):
            self._content = f"{content}|{digest_external(self._source, locations, self._cache)}"

    def _digest(self) -> str:
        """The digest of the model itself, made while what every way on needs is imported."""
        with ThreadPoolExecutor(1) as thread:
            made = thread.submit(digest_model, self._source, self._cache)
            from tilewright.target.llvm import jit  # noqa: F401
        try:
            return made.result()
        except (OSError, TypeError):
            from tilewright.relay.frontend.onnx.signature import survey

            survey(self._source)  # raises the ModelError that says what is wrong with something that has no content
            raise


def _check_names(given: Mapping[str, Any], names: Sequence[str]) -> None:
    unknown = [n for n in given if n not in names]
    if unknown:
        raise InputError(f"the model has no input '{unknown[0]}'; its inputs are {', '.join(names)}")


@functools.cache
def _compiler_fingerprint() -> str:
    """Changes whenever the compiler's own files do."""
    root = Path(__file__).parent.parent
    stats = ((p, p.stat()) for p in sorted(root.rglob("*.py")))
    return hashlib.sha256("|".join(f"{p.relative_to(root)}:{s.st_size}:{s.st_mtime_ns}" for p, s in stats).encode()).hexdigest()
