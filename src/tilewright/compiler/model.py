"""`compile` a model file, call the result, `save` it.

A model of fixed sizes is compiled directly (`compiler/pipeline.py`). One with symbolic dimensions is specialised for
each combination of input shapes that it is called with (`compiler/staged.py`), or compiled once for all sizes
(`compiler/open_program.py`). A model in the cache is loaded without importing the frontend or the compiler: this module
imports only what loading needs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.backends.targets.target import Target
from tilewright.base import settings
from tilewright.base.errors import CompileError, InputError, OptionError
from tilewright.base.garbage_collection import no_garbage_collection
from tilewright.compiler.all_sizes import check_holds_several, program_for, refusal, report_refusal, size_report
from tilewright.compiler.cache import Cache
from tilewright.compiler.formats import PYTORCH, format_of
from tilewright.compiler.model_compiler import ModelCompiler, Options
from tilewright.compiler.model_source import source_of
from tilewright.compiler.open_shapes import OpenShapes, default_shapes, has_open, open_shapes, with_numbers
from tilewright.compiler.report import BuildReport
from tilewright.compiler.sequences import Groups, flat, given_shape, grouped, is_group, shape_of, tensors_of
from tilewright.compiler.specialization import Specialization
from tilewright.compiler.staged import MOST_EDGES, Dims, Edge, Key, Point, Stages
from tilewright.runtime.artifact import Artifact, runs_here
from tilewright.runtime.benchmark import BenchmarkResult
from tilewright.runtime.call_inputs import described, in_order
from tilewright.runtime.executable import Executable
from tilewright.runtime.guards import Guards
from tilewright.runtime.open_program import OpenExecutable
from tilewright.runtime.program import TensorInfo
from tilewright.runtime.stateful import Stateful
from tilewright.runtime.threads import checked_threads

if TYPE_CHECKING:
    from tilewright.backends.cpu.c.model import CModel
    from tilewright.backends.cpu.link import Linker
    from tilewright.ir.instrument import PassInstrument
    from tilewright.ir.module import IRModule
    from tilewright.relay.expr import Function
    from tilewright.runtime.profile import Profile

Array = np.ndarray[Any, Any]
Shapes = Mapping[str, Sequence[Any]]
STAGES: Final = ("relay", "tir", "ll", "asm")
_HIGHEST_LEVEL: Final = 4


def compile(
    model: Any, shapes: Shapes | None = None, target: str | Target = "llvm", threads: int | None = None, *,
    opt_level: int = 3, config: Mapping[str, Any] | None = None, disabled_pass: Sequence[str] = (),
    mixed_precision: str = "", numerics: str = "", max_arena: int = 0, cache: Cache | None = None,
    specialise_after: int = 0, records: Any = None, symbolic: bool | None = None,
) -> Model:
    """Compile a model for this machine, or for `target`.

    - `model`: the path or bytes of a file (ONNX, TFLite, PyTorch, or Relay as `.relay`), or an object: a `ModelProto`,
      a `tflite.Model`, a TorchScript module, an `ExportedProgram`, an `IRModule`, or a function of Relay.
    - `shapes`: sizes of symbolic input dimensions, by input. Dimensions that remain symbolic are served by one program
      for all sizes; names and ranges (`("1..64", 3, "h", "w")`) limit the sizes. Without such a program,
      `OpenSizeWarning` has the reason, and each combination of shapes is compiled at the first call with it. If values
      decide sizes, stages for all sizes are compiled at the first call, with the warning if they are not possible.
    - `symbolic`: true raises `OpenSizeError` instead of the warning; false compiles each combination of shapes at the
      first call with it, even if one program could serve all.
    - `target`: in TVM's form; accelerators before the processor ("npu, llvm") compute the operators that they support.
    - `threads`: threads that share the work of a call (default: all cores).
    - `opt_level`, `config`, `disabled_pass`: the arguments of `PassContext`.
    - `mixed_precision`: "bfloat16" or "float16" for products and the values between them, with sums in float32. Inputs
      and outputs keep their types.
    - `numerics`: the rounding of quantized networks, "tflite", "onnx", "torch" (or one of its engines) or "fast"; by
      default that of the runtime from which the model comes.
    - `max_arena`: the limit of the memory between kernels in bytes (0: none). A `CompileError` names the values at the
      peak of a model that needs more.
    - `specialise_after`: the number of calls after which a combination of dynamic sizes is compiled separately in the
      background (0: never).
    - `records`: files of tuning records (`tilewright tune`), which override the analytical schedules.

    Raises `ModelError` for a bad file, `OpNotImplemented` with all unknown operators, `ShapeError` for arguments that
    an operator refuses, `InputError` for unsuitable shapes, `TargetError`, `OptionError`.
    """
    if not isinstance(opt_level, int) or not 0 <= opt_level <= _HIGHEST_LEVEL:
        raise OptionError(
            f"opt_level is {opt_level!r}; it must be an integer from 0 to {_HIGHEST_LEVEL}", code="TW0209")
    named = {
        "relay.ToMixedPrecision.type": mixed_precision, "relay.qnn.numerics": numerics,
        "relay.backend.max_arena": max_arena
    }
    switches = {**(config or {}), **{name: value for name, value in named.items() if value}}
    options = Options(opt_level, settings.checked(switches), tuple(sorted(disabled_pass)))
    if threads is not None:
        checked_threads(threads)
    chosen = Target(target).compilable()
    if chosen.accelerators and has_open(shapes or {}):
        raise OptionError(
            "programs for accelerators need known sizes; give numbers in shapes, or remove "
            f"{chosen.accelerators[0].name} from the target '{chosen}'", code="TW0204")
    kept, report = cache or Cache.default(), BuildReport()
    if not isinstance(model, (str, bytes, os.PathLike)) and format_of(model) is PYTORCH:
        model, shapes = PYTORCH.read(model, shapes)[0], None  # a module of torch has no bytes as identity
    with _advised(records), no_garbage_collection():
        source = source_of(model, shapes or {}, kept, report)
        made = Model(ModelCompiler(source, chosen, options, kept, report), shapes or {}, threads)
        made.specialise_after = specialise_after
        made.prepare(symbolic)
    return made


def _advised(records: Any) -> Any:
    """Return the context in which tuning records override schedules."""
    if records is None:
        return nullcontext()
    from tilewright.search.autotvm.task.dispatcher import apply_history_best

    return apply_history_best(records)


class Model:
    """A compiled model: call it with numpy arrays, `save` it, `benchmark` it.

    `m(x)` for one input, `m(x, y)` or `m(name=x)` for several; the result is an array, or a tuple of them.
    """

    def __init__(self, compiler: ModelCompiler, shapes: Shapes, threads: int | None) -> None:
        self._compiler, self._threads, self._signature = compiler, threads, compiler.source.signature
        self.target, self.report = compiler.target, compiler.report
        self._shapes: dict[str, Sequence[Any]] = dict(shapes)
        self._has_groups = any(is_group(dims) for _, dims, _ in self._signature)
        self._single: Specialization | None = None
        """The program of every call, if the model has a single program."""
        self._only: Executable | None = None
        """The same program, loaded, if all outputs are tensors."""
        self._open: OpenShapes | None = None
        self._waits: OpenShapes | None = None
        """The dynamic dimensions, if values of a call decide sizes, so that stages are compiled for all sizes."""
        self._limits: Guards | None = None
        """The dynamic dimensions that the caller gave, so that sizes beyond them are refused."""
        self.why_not_symbolic = ""
        """Why a model with symbolic dimensions has no program for all sizes; empty if it has one."""
        self._trees: dict[Key, Stages] = {}
        self._stages: Stages | None = None
        """The tree of the last call, if calls decide the programs."""
        self.specialise_after = 0

    def prepare(self, symbolic: bool | None = None) -> None:
        """Compile every program that no size or value of a call decides: that for all sizes where sizes of inputs are
        not known, unless `symbolic` is false. Without such a program, raise `OpenSizeError` if `symbolic` is true, else
        warn."""
        _check_names(self._shapes, [n for n, _, _ in self._signature])
        if has_open(self._shapes) and not self._has_groups:
            every = open_shapes(self._signature, default_shapes(self._signature, self._shapes))
            self._limits = every.guards(self._signature)
        if self._limits is None and not self._has_groups:
            self._shapes = with_numbers(self._signature, self._shapes)
        if self.open_dimensions:
            self.why_not_symbolic = self._why_not_open(symbolic) or self._prepare_open()
            if not self.why_not_symbolic:
                return
            if symbolic or (symbolic is None and self._waits is None):
                report_refusal(self._compiler.source.name, self.why_not_symbolic, required=bool(symbolic))
        dims = {n: tuple(self._shapes.get(n, own)) for n, own, _ in self._signature}
        module: list[IRModule] = []
        if not self._has_groups and all(isinstance(d, int) for shape in dims.values() for d in shape):
            artifact = self._compiler.stored(dims)
            if artifact is None:
                with self._compiler.context():
                    module.append(self._compiler.source.read(dims, self.report))
                if _is_one_program(module[0]):
                    artifact = self._compiler.compile(module.pop)
                    self._compiler.store(dims, artifact)
            if artifact is not None:
                self._use(artifact)
                return
        self._prepare_stages(module)

    def _use(self, artifact: Artifact) -> None:
        """Answer every call with this program."""
        self._single = Specialization(artifact, self._threads)
        if runs_here(artifact.manifest):
            with self.report.phase("load"):
                executable = self._single.executable
            self._only = None if artifact.manifest.lists else executable

    def _prepare_stages(self, module: list[IRModule]) -> None:
        """Make the tree of programs, and its first program where no call decides it; `module` has the model where it
        was read."""
        groups = {
            n: given_shape(self._shapes[n]) for n, dims, _ in self._signature if is_group(dims) and n in self._shapes}
        if any(is_group(dims) and n not in groups for n, dims, _ in self._signature):
            return
        self._stages = self._tree(groups, module)
        edge = self._stages.prepare()
        if edge is not None and edge.is_whole and edge.program is not None:
            self._stages.last = edge.program
            if not self._has_groups:
                self._use(edge.program.artifact)

    def _why_not_open(self, symbolic: bool | None) -> str:
        """Return why the inputs, the target or the options allow no program for all sizes; empty if they do."""
        if symbolic is False:
            return "symbolic=False was given"
        if self._has_groups:
            return "it takes sequences or optionals"
        accelerators = ", ".join(a.name for a in self.target.accelerators)
        return f"accelerators ({accelerators}) need known sizes" if accelerators else ""

    def _prepare_open(self) -> str:
        """Compile one program for all sizes. Without such a program, return the reason: shapes are then compiled
        separately."""
        given = self._shapes if self._limits else default_shapes(self._signature, self._shapes)
        wanted = open_shapes(self._signature, given)
        if self._limits:
            self._shapes = dict(wanted.dims)
        artifact, why, waits = program_for(wanted, self._compiler, limited=self._limits is not None)
        if artifact is None:
            self._waits = wanted if waits else None
            return why
        self._open = wanted
        self._use(artifact)
        if self.specialise_after and isinstance(self._only, OpenExecutable):
            self._only.specialise(self._specialised, self.specialise_after)
        return ""

    def _specialised(self, shapes: Sequence[tuple[int, ...]]) -> Executable:
        """Return the program for these shapes alone, from the cache or compiled."""
        named = {n: list(shape) for (n, _, _), shape in zip(self._signature, shapes, strict=True)}
        found = self._compiler.stored(named)
        if found is None:
            found = self._compiler.compile(lambda: self._compiler.read(named, BuildReport()), BuildReport())
            self._compiler.store(named, found)
        return found.executable(self._threads)

    def _tree(self, groups: Groups, module: list[IRModule] | None = None) -> Stages:
        """Return the stages for sequences and optionals of these lengths and shapes."""
        key = tuple(groups.items())
        made = self._trees.pop(key, None)
        if made is None:
            made = self._new_tree(groups, module or [])
            if len(self._trees) >= MOST_EDGES:
                self._trees.pop(next(iter(self._trees)), None)
        self._trees[key] = made
        return made

    def _new_tree(self, groups: Groups, module: list[IRModule]) -> Stages:
        inputs: list[tuple[str, Dims, str]] = []
        for name, dims, dtype in self._signature:
            inputs += tensors_of(name, dtype, groups[name]) if name in groups else [
                (name, tuple(self._shapes.get(name, dims)), dtype)
            ]
        root = Point(None, [k for k, (_, dims, _) in enumerate(inputs) if not all(isinstance(d, int) for d in dims)])
        root.name = repr((inputs, groups)) if self._waits is None else repr((inputs, groups, self._waits.key()))
        made = Stages(
            inputs, root, lambda point, values: self._grown(made, point, values, module),
            lambda make, edge: self._compiled(made, make, edge),
            lambda key: self._known(made, key), groups, lambda edge: self._kept(made, edge),
            lambda point, values, foreseen: self._compiler.symbolic_edge(
                point, values, foreseen, self._threads, self._waits if point is root else None))
        made.limits = self._limits
        made.opens_root = self._waits is not None and not groups
        made.refused = refusal(self._compiler.source.name, self.why_not_symbolic) if made.opens_root else ""
        return made

    def specializations(self) -> list[Specialization]:
        """Return the programs so far, each with the guards under which a call uses it."""
        apart = [s for tree in self._trees.values() for s in tree.specializations()]
        return apart if self._single is None else [self._single, *apart]

    @property
    def artifact(self) -> Artifact:
        """The program that `save` writes: that for the shapes of the last call. Raises `InputError` if a call takes
        several."""
        if self._single is None and self._stages is not None and self._stages.root.asked:
            raise InputError(self._stages.why_not_one(), code="TW0708")
        return self._program.artifact

    @property
    def executable(self) -> Executable:
        """The program, loaded in this process. Raises `ArtifactError` when it was compiled for another machine."""
        return self._program.executable

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        stages = self._stages if self._single is None else None
        return self._program.artifact.manifest.inputs if stages is None or stages.last is not None else stages.inputs

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        return self._program.artifact.manifest.outputs

    @property
    def is_one_program(self) -> bool:
        """Whether one program answers every call, so that the shapes of a call's inputs give those of its outputs."""
        return self._only is not None

    @property
    def declared_dimensions(self) -> dict[str, tuple[int | str, ...]]:
        """The shapes of the inputs with symbolic dimensions as the model declares them."""
        return {
            n: tuple(dims) for n, dims, _ in self._signature
            if not is_group(dims) and any(isinstance(d, str) for d in dims)}

    @property
    def open_dimensions(self) -> dict[str, tuple[int | str, ...]]:
        """The shapes of the inputs with symbolic dimensions."""
        if self._single is not None:
            shapes = {t.name: tuple(t.shape) for t in self._single.artifact.manifest.inputs}
        else:
            shapes = {n: tuple(self._shapes.get(n, own)) for n, own, dtype in self._signature if not is_group(own)}
        return {n: dims for n, dims in shapes.items() if any(isinstance(d, str) for d in dims)}

    @property
    def in_stages(self) -> bool:
        """Whether values of a call decide sizes, so that stages serve the symbolic dimensions."""
        return self._waits is not None

    @property
    def size_report(self) -> str:
        """The symbolic dimensions of the inputs, and how programs serve their sizes; empty without such dimensions."""
        return size_report(
            self.open_dimensions, self.why_not_symbolic if self._open is None else self.artifact.manifest.symbols,
            in_stages=self.in_stages)

    @property
    def in_python(self) -> frozenset[str]:
        """Names of the operators that run in Python by their numpy meaning, in the programs so far."""
        trees = (tree.in_python for tree in self._trees.values())
        return frozenset(chain(self._single.in_python if self._single is not None else (), *trees))

    @property
    def threads(self) -> int:
        """Number of threads that share the work of a call."""
        return self.executable.threads

    @threads.setter
    def threads(self, count: int) -> None:
        self._threads = checked_threads(count)
        for s in self.specializations():
            s.use_threads(count)

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run; `out` is an array, or one for each output, to write into instead of new ones."""
        program = self._only
        if program is None:
            return self._call(args, kwargs, out)
        try:
            return program(*args) if out is None and not kwargs else program(*args, out=out, **kwargs)
        except InputError as error:
            return self._excluded(error, args, kwargs, out)

    def _may_exclude(self, refusal: InputError) -> bool:
        """Whether the program for all sizes may have refused sizes that the model allows: the caller gave no limits."""
        return self._open is not None and self._limits is None and refusal.code in ("TW0704", "TW0709")

    def _excluded(
        self, refusal: InputError, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, *, at_once: bool = False
    ) -> Any:
        """Answer a call with sizes that the program for all sizes refuses, such as 0: interpret the model, with
        `at_once` compile it for them.

        Raises the refusal if the caller gave the sizes of the program, or the model itself excludes these.
        """
        if not self._may_exclude(refusal):
            raise refusal
        try:
            return self._call(args, kwargs, out, at_once=at_once, apart=True)
        except CompileError as error:
            raise refusal from error

    def stateful(self, states: Mapping[str, str], initial: Mapping[str, Any] | None = None) -> Stateful:
        """Return the program with states, outputs of a call that are inputs of the next one.

        `states` maps inputs to outputs; `*` stands for the same text in both: `{"past.*": "present.*"}`. A call of the
        result takes and returns the other tensors only. States are zeros at first, or `initial`, with the smallest
        sizes that the program takes. Raises `InputError` for wrong names, and for a model that is not one program.
        """
        if self._only is None:
            raise InputError(
                f"'{self._compiler.source.name}' is compiled for each combination of its sizes, and states need one "
                "program; compile it with known or symbolic sizes: shapes={…}", code="TW0708")
        return Stateful(self._only, states, initial)

    def warm_up(self, *args: Any, **kwargs: Any) -> None:
        """Compile all that a call with these inputs needs, and make the call.

        By default, new branches and sizes are compiled only after they recur, so that a unique call does not wait
        (`base/jit_policy.py`). A service can compile its shapes before it starts; in the cache or a saved file they
        remain available. Raises the errors of a call.
        """
        if self._only is None:
            self._call(args, kwargs, None, at_once=True)
            return
        try:
            self._only(*args, **kwargs)
        except InputError as error:
            self._excluded(error, args, kwargs, None, at_once=True)

    def run_arrays(self, arrays: Sequence[Array]) -> Any:
        """Run on arrays, in order, that are known to have the dtypes, ranks and fixed sizes of the inputs."""
        if self._only is not None or self._has_groups or self._single is not None:
            return self(*arrays)
        (tree,) = self._trees.values()
        results, lists = tree.run(arrays)
        self._stages = tree
        return grouped(results, lists) if lists else results

    def _call(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], out: Any, *, at_once: bool = False, apart: bool = False
    ) -> Any:
        """Run any model; `__call__` takes a shorter path for one program with tensors alone.

        `apart` is true for sizes that the program for all sizes refuses. They are interpreted, with `at_once` compiled.
        """
        if self._single is not None and not apart:
            lists = self._single.artifact.manifest.lists
            results = self._single.executable(*args, out=None if lists else out, **kwargs)
        else:
            tree, args = self._tensors(args, kwargs)
            results, lists = tree.run(
                tree.arrays(args, {}), out, at_once=at_once, interpret=apart and not at_once)
            self._stages = tree
        if out is not None and (lists or self._has_groups):
            raise InputError(
                "the model takes or returns sequences or optionals, but out= supports only tensors; omit it",
                code="TW0705")
        return grouped(results, lists) if lists else results

    def _tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Stages, Sequence[Any]]:
        """Return the stages for a call, and the tensors that they take. Raises `InputError` for unsuitable inputs."""
        if not self._has_groups:
            tree = self._tree({})
            return tree, tree.in_order(args, kwargs)
        values = in_order([n for n, *_ in self._signature], args, kwargs, lambda: described(self._signature))
        groups = {
            n: shape_of(n, dtype, v) for (n, dims, dtype),
            v in zip(self._signature, values, strict=True) if is_group(dims)}
        for n, shape in groups.items():
            if n in self._shapes and given_shape(self._shapes[n]) != shape:
                raise InputError(
                    f"input '{n}' has the shapes {shape}, but the model was compiled for "
                    f"{given_shape(self._shapes[n])}", code="TW0704"
                )
        return self._tree(groups), flat(values)

    def save(self, path: str | os.PathLike[str], linker: Linker | None = None) -> Path:
        """Write a `.so` (needs a linker) or a `.tar`: code, constants and plan in one self-contained file.

        Other forms need a linker, too: `.a` and `.o` with their header, `.dll` for Windows, `.wasm` with its loader for
        JavaScript. A program in stages is saved as a `.tar` for this package, with its compiled stages and the rest of
        the program. So are programs for several combinations of shapes; other forms hold one of them, and `InputError`
        names the shapes. `.c` is one C file with its header: see `export_c`.
        """
        tree = self._stages
        if Path(path).suffix == ".c":
            return self.save_c(path)
        if self._single is not None or tree is None or not (tree.root.edges or tree.root.has_symbolic):
            return self.artifact.save(path, linker)
        if not tree.root.has_symbolic and not tree.root.asked:
            if len(tree.root.edges) > 1:
                check_holds_several(tree, Path(path))
            elif tree.last is not None:
                return self.artifact.save(path, linker)
        if self._has_groups:
            raise InputError(
                "the model takes sequences or optionals, so it is compiled in stages and cannot be saved; use "
                "tensors", code="TW0807")
        from tilewright.compiler.saved_stages import Way, save_stages

        decided = bool(tree.root.asked) and not tree.root.open
        main = self._compiler.read(self._shapes_of(tree, ()), BuildReport())["main"] if decided else None
        return save_stages(
            tree, Way(self._compiler.source.name, self.target, self._compiler.options, self._threads), main, Path(path))

    def save_c(self, path: str | os.PathLike[str], target: str | Target | None = None) -> Path:
        """Write the model as C99 for any processor to `path`, with its header. See `export_c`."""
        from tilewright.compiler.c_model import write_model

        return write_model(self._as_c(Path(path).stem, target), Path(path))

    def export_c(self, folder: str | os.PathLike[str], *inputs: Any, target: str | Target | None = None) -> list[Path]:
        """Write the model as C99 for any processor: source, header, a test on `inputs` (default: random), an example
        and a Makefile.

        `target` is C with its options, by default that of the model, or plain "c". Returns the paths. Raises
        `CompileError` for control flow, dynamic shapes, and operators without a kernel.
        """
        from tilewright.compiler.c_model import write_project

        _, texts = self._c_project(self._compiler.source.name, target, inputs)
        return write_project(texts, Path(folder))

    def save_c_library(
        self, path: str | os.PathLike[str], *inputs: Any, target: str | Target | None = None, name: str | None = None,
        source: IRModule | None = None,
    ) -> Path:
        """Write the files of `export_c` as a Model Library, a `.tar`, for projects of small systems
        (`tilewright.micro`). Returns the path.

        `name` is that of the model, `source` a network whose text goes along. Raises what `export_c` raises, and
        `ArtifactError` for another extension.
        """
        from tilewright.compiler.model_library import write_c_library

        model, texts = self._c_project(name or self._compiler.source.name, target, inputs)
        return write_c_library(model, texts, str(target or "c"), Path(path), source)

    def _c_project(
        self, name: str, target: str | Target | None, inputs: Sequence[Any]
    ) -> tuple[CModel, dict[str, str]]:
        """Return the model as C, and the texts of all files by name."""
        from tilewright.backends.cpu.c.project import files
        from tilewright.compiler.c_model import known_answers

        model, shapes, compiler = self._as_c(name, target), self._input_shapes(), self._compiler
        with compiler.context():
            given = [np.asarray(x) for x in inputs] if inputs else None
            known = known_answers(
                lambda: compiler.read(shapes, BuildReport()), compiler.source.name, compiler.cache, given)
        return model, files(model, *known)

    def _as_c(self, name: str, target: str | Target | None) -> CModel:
        from tilewright.compiler.c_model import c_model

        chosen = (
            Target(target) if target is not None else self.target if "c" in self.target.processor.backend.stages
            else Target("c")
        )
        if "c" not in chosen.processor.backend.stages:
            raise OptionError(
                "C files are written for a target of the kind c, such as 'c' or 'c -vector-width=128', not for "
                f"'{chosen}'", code="TW0204")
        one = self._single is not None or (
            self._stages is not None and not self._has_groups and not self._stages.root.asked
        )
        if self._open is not None:
            raise InputError(
                f"one C file needs known sizes, and this program has dynamic shapes ({described(self._signature)}); "
                "give numbers in shapes=, or save it as .so or .a, which C programs call with the shapes of a call",
                code="TW0511")
        if not one:
            raise InputError(
                "one C file needs inputs of known sizes; give all of them in shapes=, and only tensors", code="TW0511")
        shapes = self._input_shapes()
        with self._compiler.context():
            return c_model(lambda: self._compiler.read(shapes, BuildReport()), chosen, name)

    def benchmark(self, *args: Any, **options: Any) -> BenchmarkResult:
        """Time the program, on these inputs or on random ones: see `Executable.benchmark`."""
        if self._single is not None:
            try:
                return self._single.executable.benchmark(*args, **options)
            except InputError as error:
                if not self._may_exclude(error):
                    raise
        if self._stages is not None and not args and self._stages.last is not None:
            return self._stages.last.executable.benchmark(**options)
        tree, tensors = self._tensors(args, {})
        return tree.benchmark(*tensors, **options)

    def profile(self, *args: Any, **options: Any) -> Profile:
        """Return the time of each step, on these inputs or on random ones: see `Executable.profile`.

        The steps of a model with a program for all sizes are those of the program for the sizes of these inputs, or of
        the last call.
        """
        program = self.executable
        if self._open is None or self._limits or not isinstance(program, OpenExecutable):
            return program.profile(*args, **options)
        return self._specialised(program.shapes_of(*args)).profile(*args, **options)

    def dump(self, stage: str) -> str:
        """Return the program as text at a stage: `relay`, `tir`, `ll` or `asm`, for the target c `c` instead of the
        last two. Compiles again if the program came from the cache."""
        backend = self.target.processor.backend
        if stage not in (*STAGES, "c", *backend.stages):
            raise OptionError(f"there is no stage '{stage}'; the stages are {', '.join(STAGES)}", code="TW0210")
        if stage not in ("relay", "tir", *backend.stages):
            raise OptionError(
                f"a program for '{self.target}' has no stage '{stage}'; it has {' and '.join(backend.stages)}",
                code="TW0204")
        report = self.report
        if stage == "relay" or not report.kernels or not self._only:
            report = BuildReport(keeps_module=stage == "relay")
            self.build_again(report)
        if stage == "relay":
            return f"{report.module}\n"
        if stage == "tir":
            return "\n\n".join(str(f) for k in report.kernels.values() for f in (k.func, *k.kept)) + "\n"
        texts = [report.text] if backend.one_text else report.llvm.values()
        return "\n".join(backend.texts(text, self.target)[stage]() for text in texts)

    def build_again(self, report: BuildReport, instruments: Sequence[PassInstrument] = ()) -> Artifact:
        """Compile the program again, with kernels from the cache, to fill `report` and call `instruments`. Raises
        `InputError` where the sizes of inputs are not known."""
        if self._open is not None:
            return self._compiler.compile_open(self._open, report, instruments)
        shapes = self._input_shapes()
        return self._compiler.compile(lambda: self._compiler.read(shapes, report), report, instruments)

    def _input_shapes(self) -> dict[str, Any]:
        """Return the shapes of all inputs of the model. Raises `InputError` if they are not known."""
        shapes = [t.shape for t in self.inputs]
        if self._single is not None:
            return {n: shape for (n, _, _), shape in zip(self._signature, shapes, strict=True)}
        assert self._stages is not None
        return self._named(self._stages, shapes)

    @property
    def _program(self) -> Specialization:
        if self._single is not None:
            return self._single
        if self._stages is None:
            raise InputError(
                f"the model has symbolic dimensions ({described(self._signature)}); call it once, or compile it with "
                "shapes=", code="TW0708")
        if self._stages.last is None:
            raise InputError(self._stages.why_not_one(), code="TW0708")
        return self._stages.last

    def _known(self, tree: Stages, key: Key) -> Edge | None:
        """Return the whole program for inputs of these shapes, from the cache."""
        found = self._compiler.stored(self._shapes_of(tree, key))
        return None if found is None else Edge.whole(len(tree.signature), Specialization(found, self._threads))

    def _shapes_of(self, tree: Stages, key: Key) -> dict[str, Any]:
        """Return the shapes of all inputs of the model, from those of the tensors with dynamic sizes."""
        given = dict(zip(tree.root.open, key, strict=False))
        return self._named(tree, [tuple(given.get(k, dims)) for k, (_, dims, _, _) in enumerate(tree.signature)])

    def _named(self, tree: Stages, shapes: Sequence[Any]) -> dict[str, Any]:
        """Return the shapes of all inputs of the model, from those of the tensors that stages take."""
        found = dict(zip((s[0] for s in tree.signature), shapes, strict=True))
        return {n: tree.groups[n] if n in tree.groups else found[n] for n, _, _ in self._signature}

    def _grown(
        self, tree: Stages, point: Point, values: Sequence[Array] | None, module: list[IRModule],
    ) -> tuple[Edge, set[int]]:
        from tilewright.compiler.stage_growth import grow

        with no_garbage_collection(), self._compiler.context():
            if point.function is not None:
                return grow(point.function, values)
            shapes = self._shapes_of(tree, ()) if values is None else self._named(tree, [v.shape for v in values])
            read = module.pop() if module else self._compiler.read(shapes)
            return grow(read["main"], values)

    def _compiled(self, tree: Stages, make: Callable[[], Function], edge: Edge) -> Specialization:
        """Compile a stage."""
        made = self._compiler.compile(lambda: self._compiler.source.module_of(make()))
        self._compiler.store(self._way_to(tree, edge), made)
        return Specialization(made, self._threads)

    def _kept(self, tree: Stages, edge: Edge) -> Specialization | None:
        """Return the program of a stage in the cache; `_known` looks for that of a whole model."""
        found = None if _is_model(tree, edge) else self._compiler.stored(self._way_to(tree, edge))
        return None if found is None else Specialization(found, self._threads)

    def _way_to(self, tree: Stages, edge: Edge) -> Any:
        """Return the cache's name of a program: the path to a stage, or the shapes of the inputs of a whole model."""
        return self._shapes_of(tree, edge.key) if _is_model(tree, edge) else edge.name


def _is_one_program(module: IRModule) -> bool:
    """Whether one program computes the model (`compiler/pipeline.py`)."""
    from tilewright.compiler.pipeline import is_one_program

    return is_one_program(module["main"])


def _is_model(tree: Stages, edge: Edge) -> bool:
    """Whether an edge is a whole model, for shapes of its inputs."""
    return edge.is_whole and not tree.root.asked and tree.root.edges.get(edge.key) is edge


def _check_names(given: Mapping[str, Any], names: Sequence[str]) -> None:
    unknown = [n for n in given if n not in names]
    if unknown:
        raise InputError(f"the model has no input '{unknown[0]}'; its inputs are {', '.join(names)}", code="TW0702")
