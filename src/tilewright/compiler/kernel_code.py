"""From an entry of the kernel table to native code: lowered, emitted, and compiled to an object file.

    KernelSpec --kernel_code--> KernelCode: loops, text, scratch memory, checked sites      (Python, pure)
    text       --ObjectFiles--> object file                                                 (LLVM or a C compiler)

Both are pure functions of their arguments. LLVM runs without Python's global lock, so a worker thread compiles the
text of one kernel while the next one is lowered; the files are the same bytes for any number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from tilewright import __version__
from tilewright.backends.base import Backend
from tilewright.backends.cpu.llvm.debug_info import Source
from tilewright.backends.host_code import HostCode
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, InternalError, NoNativeKernel
from tilewright.base.limits import usable_cores
from tilewright.base.memory_faults import Site
from tilewright.compiler import tuned
from tilewright.compiler.cache import Cache
from tilewright.compiler.debug_texts import OFF, asked_for, kernel_source, loops_source
from tilewright.compiler.kernel import Kernel
from tilewright.compiler.kernel_table import KernelSpec
from tilewright.compiler.memory_limits import check_scratch
from tilewright.compiler.report import BuildReport
from tilewright.compiler.target_hooks import host_kernel
from tilewright.relay.expr import Function
from tilewright.runtime.scratch import Scratch, most
from tilewright.scalar.expr import Var as Symbol
from tilewright.tir.stmt import PrimFunc
from tilewright.tir.transform.instrument_memory import Checks

WORKERS: Final = 1
"""Number of threads that compile objects. More do not help: llvmlite admits one thread to LLVM at a time."""


@dataclass(frozen=True, slots=True)
class CodeOptions:
    """Options that all kernels of a program share.

    `symbols` are the dynamic dimensions; `checks` the accesses to memory that are checked. `debug` names the text that
    debug information points to ("": none). Without `has_code`, kernels are lowered to loops only.
    """

    target: Target
    symbols: tuple[Symbol, ...] = ()
    checks: Checks | None = None
    debug: str = ""
    has_code: bool = True

    @staticmethod
    def current(target: Target, symbols: Sequence[Symbol] = (), has_code: bool = True) -> CodeOptions:
        """Return the options under the current `PassContext`. Raises `OptionError` for a bad value."""
        kind = asked_for(target)
        return CodeOptions(target, tuple(symbols), Checks.current(in_place=True), "" if kind == OFF else kind, has_code)


@dataclass(frozen=True, slots=True)
class KernelCode:
    """Code of one kernel. `kernel` is None for a loop program, `text` is empty if the back end emits one text for all
    kernels.

    `scratch` is the memory that it takes of each thread, `sites` are the checked accesses.
    """

    func: PrimFunc
    kernel: Kernel | None
    text: str
    scratch: Scratch | None
    sites: tuple[Site, ...]


def kernel_code(spec: KernelSpec, options: CodeOptions, report: BuildReport, first_site: int = 0) -> KernelCode | None:
    """Lower and emit one kernel, its checked sites numbered from `first_site`; None for a function without a native
    kernel.

    Raises `CompileError` if an operator refuses its arguments, or the kernel needs too much memory per thread.
    """
    if spec.in_python:
        return None
    with report.phase("lower"):
        if isinstance(spec.function, PrimFunc):
            kernel = None
            func, sites = host_kernel(
                spec.function, spec.symbol, spec.storage, options.target, options.checks, first_site)
        else:
            kernel = _lowered(spec, spec.function, options, first_site)
            if kernel is None:
                return None
            func, sites = kernel.func, kernel.sites
    if not options.has_code:
        return KernelCode(func, kernel, "", None, sites)
    kept = () if kernel is None else kernel.kept
    text, scratch = _emitted(spec, func, kernel, kept, options, report)
    check_scratch(scratch, options.target)
    return KernelCode(func, kernel, text, scratch, sites)


def _lowered(spec: KernelSpec, function: Function, options: CodeOptions, first_site: int) -> Kernel | None:
    try:
        return tuned.lower(
            function, spec.constants, options.target, spec.symbol, storage=spec.storage, symbols=options.symbols,
            flat=options.has_code, checks=options.checks, first_site=first_site)
    except NoNativeKernel:
        return None
    except CompileError as error:
        if error.origin is not None or not options.symbols:
            raise
        raise type(error)(error.message, spec.origin, code=error.code) from error
    except NotImplementedError as error:
        message = f"lowering '{spec.symbol}' reached a method that is not implemented: {error!r}"
        raise InternalError(message) from error


def _emitted(
    spec: KernelSpec, func: PrimFunc, kernel: Kernel | None, kept: Sequence[PrimFunc], options: CodeOptions,
    report: BuildReport,
) -> tuple[str, Scratch]:
    """Return the text of a kernel and of the functions that compute its kept values, and the scratch memory."""
    backend = options.target.backend
    if backend.one_text:
        return "", most(map(backend.scratch, (func, *kept)))
    with report.phase("emit"):
        sources = [
            _source(spec, func, kernel, options.debug), *(loops_source(f, f, written=True) for f in kept)
        ] if options.debug else []
        return backend.emit((func, *kept), options.target, sources)


def _source(spec: KernelSpec, func: PrimFunc, kernel: Kernel | None, kind: str) -> Source:
    if isinstance(spec.function, PrimFunc):
        return loops_source(func, spec.function, written=True)
    assert kernel is not None
    return kernel_source(kind, func, kernel.declared, spec.function)


class ObjectFiles:
    """Object files of texts: from the cache, or compiled by worker threads in the background. Without a cache it makes
    none.

    A context manager: leaving it by an exception drops the texts that no worker has begun.
    """

    def __init__(
        self, options: CodeOptions, cache: Cache | None, report: BuildReport, workers: int | None = None
    ) -> None:
        """Start `workers` threads (0: compile in the caller's thread). The default is `WORKERS` if this process may use
        several cores."""
        self.options, self.cache, self.report = options, cache, report
        count = (WORKERS if usable_cores() > 1 else 0) if workers is None else workers
        self._pool = ThreadPoolExecutor(count, "tilewright-llvm") if count and cache is not None else None

    def __enter__(self) -> ObjectFiles:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=kind is not None)

    def add(self, text: str, compiler: Backend | HostCode) -> Future[bytes]:
        """Compile a text by the writer of it."""
        if self._pool is not None:
            try:
                return self._pool.submit(self.compile, text, compiler)
            except RuntimeError:  # Python starts no thread while it ends
                self._pool = None
        done: Future[bytes] = Future()
        done.set_result(self.compile(text, compiler))
        return done

    def compile(self, text: str, compiler: Backend | HostCode) -> bytes:
        """Return the object file of a text."""
        if self.cache is None:
            return b""
        target, in_order = self.options.target, bool(self.options.debug)
        key = Cache.key(
            "object", __version__, str(target), target.backend.identity(target), text,
            *(["in order"] if in_order else []))
        found = self.cache.get(key)
        if found is None:
            with self.report.phase("llvm"):
                found = compiler.compile(text, target, in_order=in_order)
            self.cache.put(key, found)
        return found


@dataclass(frozen=True, slots=True)
class ProgramCode:
    """Code of all kernels of a program, by their entries in the table; None for a function that runs in Python."""

    of: Mapping[KernelSpec, KernelCode | None]
    objects: Sequence[Future[bytes]]

    @property
    def native(self) -> list[KernelCode]:
        """The kernels that have native code, in order."""
        return [code for code in self.of.values() if code is not None]

    @property
    def sites(self) -> tuple[Site, ...]:
        """The checked accesses of all kernels, by their numbers."""
        return tuple(site for code in self.native for site in code.sites)

    def scratch(self, specs: Iterable[KernelSpec | None]) -> list[Scratch]:
        """Return the memory that each of these kernels takes of a thread."""
        codes = (self.of[spec] for spec in specs if spec is not None)
        return [code.scratch for code in codes if code is not None and code.scratch is not None]

    def complete(self, objects: ObjectFiles, overlapping: frozenset[str]) -> Sequence[Future[bytes]]:
        """Return the objects; a back end of one text emits it here. Kernels of `overlapping` symbols may read memory
        that they write."""
        target, report = objects.options.target, objects.report
        if not target.backend.one_text or not objects.options.has_code or not self.native:
            return self.objects
        with report.phase("emit"):
            funcs = [f for c in self.native for f in (c.func, *(() if c.kernel is None else c.kernel.kept))]
            report.text, _ = target.backend.emit(funcs, target, overlapping=overlapping)
        return [objects.add(report.text, target.backend)]


def compile_kernels(table: Iterable[KernelSpec], objects: ObjectFiles) -> ProgramCode:
    """Compile the kernels of a table in order. Where accesses are checked, a kernel's sites follow those of the kernels
    before it."""
    options, report = objects.options, objects.report
    made: dict[KernelSpec, KernelCode | None] = {}
    files: list[Future[bytes]] = []
    sites = 0
    for spec in table:
        code = made[spec] = kernel_code(spec, options, report, sites)
        if code is None:
            continue
        sites += len(code.sites)
        report.compiled(spec.symbol, spec.function, code.kernel, code.text)
        if code.text:
            files.append(objects.add(code.text, options.target.backend))
    return ProgramCode(made, files)
