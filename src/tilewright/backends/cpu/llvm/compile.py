"""Compiles LLVM text to object code for a target.

Mid-level passes run only for functions whose loops no schedule vectorized: other text of `codegen` has the form that
the instruction selector needs, and was measured no faster after LLVM's pipelines. Text is verified first, because LLVM
aborts the process on invalid IR. llvmlite serializes its calls, so several threads may call these functions.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Sequence
from typing import Any, Final

import llvmlite.binding as llvm

from tilewright.backends.cpu import processors
from tilewright.backends.cpu.llvm.read_apart import read_apart
from tilewright.backends.cpu.llvm.text import FOREIGN, LESS, VECTORIZED
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, InternalError, TargetError

USUAL: Final = 2
"""The default optimization level of code generation."""
IN_ORDER: Final = 0
"""The optimization level that leaves instructions in the order of the text, as debuggers need it."""
_LOCK: Final = threading.RLock()
_VECTOR_STACK_MOVE: Final = re.compile(
    r"^\s*(?:v?mov\w+\s+(?:%[xyz]mm\d+, -?\d*\(%r[sb]p\)|-?\d*\(%r[sb]p\), %[xyz]mm\d+)|(?:str|ldr)\s+q\d+, "
    r"\[(?:sp|x29))", re.MULTILINE)


def _leave_llvm() -> None:
    """Wait until no other thread is inside LLVM.

    Otherwise a child process would find its locks held, and its tables half-written.
    """
    _LOCK.acquire()
    llvm.ffi.lib._lock.__enter__()


def _return_to_llvm() -> None:
    llvm.ffi.lib._lock.__exit__(None, None, None)
    _LOCK.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_leave_llvm, after_in_parent=_return_to_llvm, after_in_child=_return_to_llvm)


def compile_text(text: str, target: Target, *, level: int | None = None) -> bytes:
    """Return the object file of an LLVM module; `level` is the optimization level of code generation, 0 to 3 (default:
    that of the text)."""
    with _LOCK:
        machine = target_machine(target, _level_of(text) if level is None else level)
        return bytes(machine.emit_object(_optimized(text, machine, level)))


def compile_imports(texts: Sequence[str], target: Target) -> list[bytes]:
    """Return the object file of the LLVM texts of a user; none without texts. A function of a later text replaces those
    of its name. Raises `CompileError` for text that LLVM refuses."""
    with _LOCK:
        machine = target_machine(target)
        try:
            for text in texts:
                reading = read_apart(text)
                if not reading.accepted:
                    raise RuntimeError(reading.message)
            modules = [_parsed(text, machine) for text in texts]
            defined = set[str]()
            for module in reversed(modules):
                own = {f.name for f in (*module.functions, *module.global_variables) if not f.is_declaration}
                for name in own & defined:
                    (module.get_function if name in {f.name for f in module.functions} else module.get_global_variable)(
                        name).linkage = "weak_any"
                defined |= {*own}
            for module in modules[1:]:
                modules[0].link_in(module)
            return [bytes(machine.emit_object(modules[0]))] if modules else []
        except (InternalError, RuntimeError) as error:
            cause = error.__cause__ if isinstance(error, InternalError) else error
            raise CompileError(
                f"the text of pragma import_llvm cannot be compiled for {machine.triple}: {cause}", code="TW0509"
            ) from error


def assembly(text: str, target: Target) -> str:
    """Return the assembly of an LLVM module."""
    with _LOCK:
        machine = target_machine(target, _level_of(text))
        return str(machine.emit_assembly(_optimized(text, machine)))


def _optimized(text: str, machine: Any, level: int | None = None) -> Any:
    """Return the module of a text, after LLVM's passes if the text asks for them and `level` does not exclude them."""
    module = _parsed(text, machine)
    if VECTORIZED in text and level != IN_ORDER:
        options = llvm.create_pipeline_tuning_options(speed_level=USUAL)
        options.loop_vectorization = True
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    return module


def _level_of(text: str) -> int:
    """Return the optimization level of code generation for a text."""
    return 1 if LESS in text else USUAL


def spills(text: str) -> int:
    """Return the number of times that assembly moves a vector register to or from the stack."""
    return len(_VECTOR_STACK_MOVE.findall(text))


def target_machine(target: Target, level: int = 2) -> Any:
    """Return LLVM's machine for a target; it is cached, because it takes a millisecond to make."""
    cpu, changes = processors.compilable(target.mcpu), ",".join(target.mattr)
    if target.is_native:
        cpu = llvm.get_host_cpu_name()
        changes = ",".join(filter(None, (llvm.get_host_cpu_features().flatten(), changes)))
    elif cpu == "generic" and target.family == "x86":
        cpu = "x86-64"
    elif cpu.startswith("generic") and target.family == "riscv":
        cpu, changes = "generic-rv64", ",".join(filter(None, ("+m,+a,+f,+d,+c", changes)))
    abi = "lp64d" if target.family == "riscv" and "d" in target.features else ""
    return _machine(target.mtriple, cpu, changes, str(target.attrs.get("mabi", abi)), level)


@functools.cache
def _machine(triple: str, cpu: str, features: str, abi: str, level: int) -> Any:
    _initialize()
    triple = re.sub(r"^(\w+)-linux", r"\1-unknown-linux", triple)  # without a vendor LLVM does not see the system
    try:
        found = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise TargetError(f"LLVM cannot make code for '{triple}': {error}", code="TW0509") from error
    return found.create_target_machine(
        cpu=cpu, features=features, opt=level, reloc="static" if triple.startswith("wasm") else "pic",
        codemodel="small", abiname=abi)


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    # Loop strength reduction takes a quarter of code generation; the text already shares its addresses.
    llvm.set_option("tilewright", "-disable-lsr")


def _parsed(text: str, machine: Any) -> Any:
    if FOREIGN in text and not read_apart(text).accepted:
        raise CompileError(
            f"LLVM refuses the calls of its functions: {read_apart(text).message}", code="TW0602")
    try:
        module = llvm.parse_assembly(text)
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"invalid LLVM text was generated: {error}{_excerpt(text, str(error))}") from error
    return module


def _excerpt(text: str, message: str) -> str:
    """Return the lines around the line that LLVM's message names."""
    found = re.search(r"<string>:(\d+):", message)
    if found is None:
        return ""
    at, lines = int(found[1]) - 1, text.splitlines()
    around = range(max(0, at - 3), min(len(lines), at + 4))
    return "\n" + "\n".join(f"{'>' if k == at else ' '} {k + 1:5} {lines[k]}" for k in around)
