"""`tvm.lower` and `tvm.build`: native functions from a schedule or a loop program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright import __version__
from tilewright.backends import kernel_options
from tilewright.backends.cpu.c.compile import compile_c, find_compilers, named_compiler, sanitizer_of
from tilewright.backends.cpu.link import Linker
from tilewright.backends.cpu.llvm.compile import compile_imports
from tilewright.backends.cpu.shared_loops import share_loops
from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.machine import Machine
from tilewright.backends.targets.target import Target
from tilewright.base.errors import ArtifactError, CompileError, InternalError, OptionError, TargetError
from tilewright.base.memory_faults import Site
from tilewright.base.recursion import room_for
from tilewright.compiler import debug_texts
from tilewright.ir.module import IRModule
from tilewright.runtime import compiler_hooks
from tilewright.runtime.artifact import Artifact
from tilewright.runtime.functions import FunctionModule
from tilewright.runtime.host import host_arch
from tilewright.runtime.manifest import Argument, Callback, Manifest, Parameter, Result, Scalar
from tilewright.runtime.sizes import Size
from tilewright.scalar.expr import Buffer, IntImm, PrimExpr, Var
from tilewright.scalar.walk import free_vars, substitute, text_of
from tilewright.te.resolve import schedule_func
from tilewright.te.schedule import Schedule
from tilewright.tir.legality import refuse_addresses, refuse_gpu_threads
from tilewright.tir.packed_calls import CallbackType
from tilewright.tir.stmt import (
    CALLBACKS,
    IMPORTS,
    INNER,
    NUMBERS,
    RESULT,
    SCALAR_LOOPS,
    SERIAL,
    Block,
    For,
    PrimFunc,
    Store,
    bodies,
    stored_buffers,
    walk_stmt,
)
from tilewright.tir.transform.instrument_memory import Checks
from tilewright.tir.transform.lower_blocks import lower_blocks
from tilewright.tir.transform.lower_packed_calls import lower_packed_calls
from tilewright.tir.transform.lower_returns import lower_returns
from tilewright.tir.transform.lowering_options import with_options, with_passes
from tilewright.tir.transform.partition_loops import partition_loops
from tilewright.tir.transform.pipeline import lower_checked
from tilewright.tir.transform.remove_assumptions import remove_assumptions
from tilewright.tir.transform.remove_attributes import remove_attributes
from tilewright.tir.transform.simplify import simplify
from tilewright.tir.transform.tighten_loop_bounds import tighten_loop_bounds


def lower(
    inputs: Schedule | PrimFunc | IRModule, args: Sequence[Any] | None = None, name: str = "main", binds: Any = None,
    simple_mode: bool = False
) -> IRModule:
    """Return the loops of a te schedule over the tensors `args`, or of loop programs: without blocks, with allocations,
    simplified.

    A single function gets `name`. Schedules of `topi` follow the target of the enclosing `with Target(…):`, or this
    machine. `simple_mode` skips the passes that lengthen the text: narrowing of loop bounds by conditions, and
    splitting of loops at conditions.
    """
    inputs = replace(inputs, name=name) if isinstance(inputs, PrimFunc) else inputs
    options = KernelOptions((Target.current() or Target("llvm")).machine)
    with room_for(_levels(inputs)), kernel_options.use(options):
        funcs = _lowered(inputs, args, name, binds, options.machine)
        if not simple_mode:
            funcs = [partition_loops(tighten_loop_bounds(f)) for f in funcs]
        funcs = with_passes(funcs, (2, 3))
    return IRModule({f.name: f for f in funcs})


def build(
    inputs: Schedule | PrimFunc | IRModule | Sequence[PrimFunc | IRModule] | Mapping[Any, IRModule],
    args: Sequence[Any] | str | Target | None = None, target: str | Target | None = None,
    target_host: str | Target | None = None, name: str = "default_function", binds: Any = None, runtime: Any = None,
) -> FunctionModule:
    """Compile a te schedule over the tensors `args`, or the loop programs of a module or of several, to native
    functions.

    Programs have their parameters already, so `args` is not used for them; a target there is the target. The default
    target is that of the enclosing `with Target(…):`, or this machine. A mapping has the module of a target.
    `runtime` is ignored: functions are the same for each. Raises `CompileError`, and `TargetError` for code of several
    targets.
    """
    if isinstance(inputs, Mapping) and not isinstance(inputs, IRModule):
        if len(inputs) != 1:
            raise TargetError(
                f"programs for {len(inputs)} targets were given; build those of each target on their own",
                code="TW0504")
        ((target, inputs),) = inputs.items()
    if isinstance(args, (str, Target)):
        args, target = None, args if target is None else target
    chosen = (Target(target) if target is not None else Target.current() or Target("llvm")).compilable()
    if target_host is not None and Target(target_host) != chosen:
        raise TargetError(
            f"target_host is '{Target(target_host)}', but code for '{chosen}' runs on that target itself; omit "
            "target_host", code="TW0505")
    with room_for(_levels(inputs)):
        return _built(inputs, args, chosen, name, binds)


def _levels(inputs: Any) -> int:
    """Return a bound on the nesting depth of a program's statements."""
    if isinstance(inputs, Schedule):
        return len(inputs.stages)
    if isinstance(inputs, (list, tuple)):
        return max(map(_levels, inputs), default=0)
    funcs = [f for _, f in inputs.items()] if isinstance(inputs, IRModule) else [inputs]
    return max(
        (sum(1 for s in walk_stmt(f.body) if len(bodies(s)) == 1) for f in funcs if isinstance(f, PrimFunc)), default=0)


def _built(
    inputs: Schedule | PrimFunc | IRModule | Sequence[PrimFunc | IRModule], args: Sequence[Any] | None, chosen: Target,
    name: str, binds: Any
) -> FunctionModule:
    with kernel_options.use(KernelOptions(chosen.machine)) as options:
        funcs = with_passes(_lowered(inputs, args, name, binds, options.machine), (2, 3))
    funcs = [lower_returns(remove_assumptions(remove_attributes(f))) for f in funcs]
    signed = [with_numbers(lower_packed_calls(f)) for f in funcs]
    for f, _ in signed:
        refuse_gpu_threads(f)
        refuse_addresses(f)
    lowered, functions = [f for f, _ in signed], {f.name: params for f, params in signed}
    backend, checks, sites = chosen.backend, Checks.current(), list[Site]()
    flat, in_order = [], sorted(lowered, key=lambda f: f.name)
    for f in in_order:
        func, found = lower_checked(f, checks, len(sites), backend.loop_passes)
        flat.append(replace(func, attrs={**func.attrs, SCALAR_LOOPS: True}) if _has_scalar_loops(func) else func)
        sites += found
    kind = debug_texts.asked_for(chosen)
    texts = [] if kind == debug_texts.OFF else [
        debug_texts.loops_source(f, g, written=bool(kind))
        for f, g in zip(flat, in_order, strict=True)]
    text, scratch = backend.emit(flat, chosen, texts)
    manifest = Manifest(
        name=lowered[0].name, inputs=(), outputs=(), steps=(), target=str(chosen), triple=chosen.mtriple,
        cpu=chosen.mcpu, features=tuple(sorted(chosen.features)), compiler=__version__, functions=functions,
        scratch=scratch, sites=tuple(sites), debug=kind if kind and texts else "")
    imports = dict.fromkeys(t for f in lowered for t in f.attrs.get(IMPORTS, ()))
    text = backend.with_note(text, manifest.to_json())
    compiled = backend.compile(text, chosen, in_order=bool(manifest.debug))
    host = backend.host_code.for_functions(manifest, chosen)
    objects = (compiled, *host, *compile_imports(tuple(imports), chosen))
    shown = backend.texts(text, chosen)
    return FunctionModule(
        Artifact(manifest, objects, np.empty(0, np.uint8)), {**shown, "tir": lambda: "\n\n".join(map(repr, lowered))})


def _has_scalar_loops(func: PrimFunc) -> bool:
    """Return whether a flat function has an innermost loop that stores elements, and no vectors."""
    for loop in walk_stmt(func.body):
        if not isinstance(loop, For) or loop.kind != SERIAL:
            continue
        inner = [*walk_stmt(loop.body)]
        stores = [s for s in inner if isinstance(s, Store)]
        if stores and not any(isinstance(s, For) for s in inner) and all(s.value.dtype.lanes == 1 for s in stores):
            return True
    return False


_NOTE: Final = re.compile(r"/\* For tilewright\.runtime\.load_module:\n(\{.*\})\n\*/")


@compiler_hooks.load_c.provide
def load_c(path: Path) -> FunctionModule:
    """Compile a C file that `export_library` wrote, possibly edited since, and load its functions.

    Raises `ArtifactError` for other files, `TargetError` without a compiler, and `CompileError` with the compiler's
    output.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{path}: cannot be read: {error}", code="TW0803") from error
    found = _NOTE.search(text)
    if found is None:
        raise ArtifactError(
            f"{path}: the C text lacks the comment at its end that declares its functions; write it with "
            f"export_library('{path.name}')", code="TW0803")
    manifest = Manifest.from_json(found[1], str(path))
    target = Target(manifest.target)
    try:
        compiled = compile_c(text, target)
    except InternalError as error:
        raise CompileError(f"{path}: {error}", code="TW0508") from error
    host = target.backend.host_code.for_functions(manifest, target)
    return FunctionModule(Artifact(manifest, (compiled, *host), np.empty(0, np.uint8)), {"c": lambda: text})


@compiler_hooks.export_sanitized.provide
def export_sanitized(
    artifact: Artifact, text: str, path: Path, cc: str | None, options: Sequence[str], sanitizer: str
) -> Path:
    """Write the functions of a C text as a library for the sanitizers `address`, `undefined` or both, which report
    lines of the text.

    Raises `OptionError` for other sanitizers or extensions, and the errors of `compiled_again`.
    """
    names = sanitizer.split(",")
    if path.suffix != ".so" or len(set(names)) < len(names) or not set(names) <= SANITIZERS:
        raise OptionError(
            f"{path}: sanitize='{sanitizer}' is not known; sanitize='address', 'undefined' or 'address,undefined' "
            "makes a .so for these sanitizers", code="TW0210")
    compiler = find_compilers(host_arch())[0] if cc is None else named_compiler(cc)
    sanitizer_of(compiler)
    flag = f"-fsanitize={sanitizer}"
    made = compiled_again(artifact, text, cc, [flag, *_SANITIZED, *options])
    return replace(made, manifest=replace(made.manifest, sanitizer=sanitizer)).save(
        path, Linker(compiler.name, (*compiler.command, flag), True))


SANITIZERS: Final = frozenset({"address", "undefined"})
_SANITIZED: Final = ("-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1", "-g")


@compiler_hooks.compiled_again.provide
def compiled_again(artifact: Artifact, text: str, cc: str | None, options: Sequence[str]) -> Artifact:
    """Compile the functions of a C text with `cc` (default: the first compiler found) and extra `options`; with `-g`,
    the text is stored in the cache.

    Raises `TargetError` if the compiler is not found, and `CompileError` with its output.
    """
    manifest = artifact.manifest
    name = f"{manifest.name}.c"
    source = Path(debug_texts.write_source(name, text)) / name if any(o.startswith("-g") for o in options) else None
    try:
        compiled = compile_c(text, Target(manifest.target), None if cc is None else named_compiler(cc), options, source)
    except InternalError as error:
        raise CompileError(
            f"C text of '{manifest.name}' with the options {' '.join(options)}: {error}", code="TW0513"
        ) from error
    return replace(artifact, objects=(compiled, *artifact.objects[1:]))


def _lowered(
    inputs: Any, args: Sequence[Any] | None, name: str, binds: Any, machine: Machine
) -> list[PrimFunc]:
    """Return loop programs without blocks, after the options and the early passes of the `PassContext`."""
    funcs = [with_options(_without_blocks(f, machine)) for f in _functions(inputs, args, name, binds)]
    return with_passes(funcs, (0, 1))


def _functions(inputs: Any, args: Sequence[Any] | None, name: str, binds: Any) -> list[PrimFunc]:
    if isinstance(inputs, Schedule):
        if args is None:
            raise CompileError("a te schedule needs args=: its tensors, in the order of the call", code="TW0610")
        return [schedule_func(inputs, args, name, binds)]
    if binds:
        raise CompileError(
            f"binds= belongs to a te schedule; the buffers of a {type(inputs).__name__} are its parameters",
            code="TW0610")
    if isinstance(inputs, (list, tuple)):
        found = [f for part in inputs for f in _functions(part, args, name, binds)]
        twice = next((f.name for k, f in enumerate(found) if f.name in {g.name for g in found[:k]}), None)
        if twice is not None:
            raise CompileError(
                f"two of the programs have a function '{twice}'; name them by tvm.lower(…, name=)", code="TW0610")
        return found
    if isinstance(inputs, PrimFunc):
        return [inputs]
    if not isinstance(inputs, IRModule):
        raise CompileError(
            f"a te schedule, a PrimFunc or an IRModule of them can be built, not a {type(inputs).__name__}",
            code="TW0610")
    wrong = next((n for n, f in inputs.items() if not isinstance(f, PrimFunc)), None)
    if wrong is not None:
        raise CompileError(
            f"function '{wrong}' of the module is a graph, not a loop program; graphs are built with relay.build",
            code="TW0610")
    if not len(inputs):
        raise CompileError("the module has no functions to build", code="TW0610")
    return [f if f.name == n else replace(f, name=n) for n, f in inputs.items()]


def _without_blocks(func: PrimFunc, machine: Machine) -> PrimFunc:
    has_blocks = bool(func.attrs.get(INNER)) or any(isinstance(s, Block) for s in walk_stmt(func.body))
    shared = share_loops(func, machine)
    return simplify(lower_blocks(shared) if has_blocks else shared)


def with_numbers(func: PrimFunc) -> tuple[PrimFunc, tuple[Argument, ...]]:
    """Return the function annotated with its scalar arguments, and its parameters: those of a call, then derived sizes,
    its result, and its callbacks.

    Raises `CompileError` for a size that no argument determines.
    """
    scalars = func.scalars
    free = next((v for v in scalars if v.dtype == "handle"), None)
    if free is not None:
        raise CompileError(
            f"parameter '{free.name}' of '{func.name}' is a handle without a buffer, so a call cannot pass it; add "
            f"T.match_buffer({free.name}, …)", code="TW0610")
    open_sizes = list(
        dict.fromkeys(
            v for b in func.buffers for d in (*b.shape, *b.strides) if isinstance(d, PrimExpr) for v in free_vars(d)))
    found = [v for v in open_sizes if v not in scalars]
    alone = {d for b in func.buffers for d in (*b.shape, *b.strides)}
    for v in found:
        if v not in alone:
            raise CompileError(
                f"size '{v.name}' of '{func.name}' is not a dimension of an argument, so a call does not determine it; "
                f"make it an argument: args=[{v.name}, …]", code="TW0610")
    named = _named([*scalars, *found])
    written = stored_buffers(func.body)
    result: Buffer | None = func.attrs.get(RESULT)
    params: list[Argument] = [
        Scalar(named[p].name, p.dtype, given=True) if isinstance(p, Var) else _parameter(p, p in written, named)
        for p in func.params if p is not result]
    params += [Scalar(named[v].name, v.dtype, given=False) for v in found]
    params += [] if result is None else [Result(result.dtype)]
    callbacks: tuple[tuple[Var, CallbackType], ...] = func.attrs.get(CALLBACKS, ())
    params += [Callback(c.name, c.arguments, c.dtype) for _, c in callbacks]
    numbers = (*scalars, *found, *(v for v, _ in callbacks))
    return (replace(func, attrs={**func.attrs, NUMBERS: numbers}) if numbers else func), tuple(params)


def _named(variables: list[Var]) -> dict[Var, Var]:
    """Return a variable with a unique name for each variable."""
    taken: set[str] = set()
    named: dict[Var, Var] = {}
    for v in variables:
        wanted = v.name if v.name.isidentifier() else "n"
        name, k = wanted, 1
        while name in taken:
            name, k = f"{wanted}_{k}", k + 1
        taken.add(name)
        named[v] = Var(name, v.dtype)
    return named


def _parameter(buffer: Buffer, written: bool, named: dict[Var, Var]) -> Parameter:
    by_name: dict[PrimExpr, PrimExpr] = dict(named.items())

    def size(d: int | PrimExpr) -> Size:
        if isinstance(d, (int, IntImm)):
            return int(d)
        return text_of(substitute(d, by_name))

    return Parameter(
        buffer.name, tuple(map(size, buffer.shape)), buffer.dtype, written, tuple(map(size, buffer.strides)))
