"""A whole model as one C99 file and its header: kernels, constants as arrays, one static workspace, and a function that
runs the model.

    emit_model(manifest, kernels, constants)  ->  CModel(name, source, header)

The file needs no dynamic memory, no threads, and no code except `math.h` and `string.h` of the C library.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.backends.cpu.c.codegen import HEADERS, File
from tilewright.backends.cpu.c.helpers import prelude
from tilewright.backends.cpu.c.text import c_type, comment, hexadecimal, identifier, whole
from tilewright.base.errors import CompileError, InternalError
from tilewright.base.types import DataType
from tilewright.runtime.manifest import FIRST_MESSAGE, Manifest
from tilewright.runtime.modules import CPart
from tilewright.runtime.program import INPUT, Copy, ExternalStep, KernelCall, Place, TensorInfo, overlapping
from tilewright.runtime.size_table import part_bytes
from tilewright.scalar.expr import Buffer
from tilewright.tir.stmt import PrimFunc

Array = np.ndarray[Any, Any]
_WIDTH: Final = 118
_ALIGNMENT: Final = 64


@dataclass(frozen=True)
class CModel:
    """The texts of a model: `<name>.c` and `<name>.h`."""

    name: str
    source: str
    header: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    workspace_bytes: int
    constant_bytes: int
    has_status: bool = False
    """Whether the function that runs the model returns a status."""


def emit_model(
    manifest: Manifest, kernels: Sequence[PrimFunc], constants: Array, parts: Sequence[CPart] = ()
) -> CModel:
    """Return the model as C. `parts` are functions of libraries that its external steps call.

    Raises `CompileError` for dynamic shapes, operators that run in Python, and other calls of other compilers, which
    one file cannot hold.
    """
    _refuse(manifest, {part.symbol for part in parts} if manifest.parts == 1 else set())
    return _Model(manifest, kernels, constants, parts).emit()


def _refuse(manifest: Manifest, parts: Collection[str]) -> None:
    where = f"'{manifest.name}' cannot be one C file: "
    if manifest.symbols:
        raise CompileError(
            f"{where}its sizes {', '.join(s.name for s in manifest.symbols)} are dynamic; give all inputs known shapes",
            code="TW0511")
    for step in manifest.steps:
        if not isinstance(step, (KernelCall, Copy)) and getattr(step, "symbol", "") not in parts:
            named = getattr(step, "name", "") or getattr(step, "symbol", "")
            raise CompileError(
                f"{where}'{named}' ({step.origin or 'no origin'}) was compiled by another compiler; replace the "
                "operator, or remove the accelerator from the target", code="TW0511")
    for t in (*manifest.inputs, *manifest.outputs):
        if t.dtype.is_object or t.dtype == "string":
            raise CompileError(
                f"{where}'{t.name}' is of type {t.dtype}, which C arrays cannot hold; use tensors of numbers",
                code="TW0511")
        c_type(t.dtype)


class _Model:
    """One file being written."""

    def __init__(
        self, manifest: Manifest, kernels: Sequence[PrimFunc], constants: Array, parts: Sequence[CPart]
    ) -> None:
        self.parts = {part.symbol: part for part in parts}
        self.manifest, self.constants = manifest, constants
        self.kernels = {f.name: f for f in kernels}
        self.file = File(alone=True, overlapping=overlapping(manifest.steps))
        for f in kernels:
            self.file.add(f)
        self.name = identifier(manifest.c_name)
        self.taken: set[str] = {self.name, f"{self.name}_run", "workspace", "part", *self.kernels}
        self.inputs, self.outputs = (
            [self._taken(t.name) for t in infos] for infos in (manifest.inputs, manifest.outputs))
        self.arrays: dict[tuple[int, str, int], str] = {}
        self.texts: list[str] = []
        self.plan = -(-manifest.workspace_bytes // _ALIGNMENT) * _ALIGNMENT
        self.workspace = self.plan + max(
            [*self.file.scratch.values(), *(p.workspace_bytes + _ALIGNMENT for p in parts)], default=0)
        self.has_status = bool(manifest.failures or parts)

    def _taken(self, name: str) -> str:
        found = identifier(name, self.taken)
        self.taken.add(found)
        return found

    def emit(self) -> CModel:
        steps = [line for step in self.manifest.steps for line in self._step(step)]
        return CModel(
            self.name, self._source(steps), self._header(), self.manifest.inputs, self.manifest.outputs,
            tuple(self.inputs), tuple(self.outputs),
            self.workspace, self.constants.nbytes, self.has_status)

    def _source(self, steps: Sequence[str]) -> str:
        m, name = self.manifest, self.name
        head = f"/* Model {_plain(m.name)}, written by Tilewright {m.compiler}. How to call it stands in {name}.h. */"
        includes = "\n".join([*(f"#include <{h}.h>" for h in HEADERS), "", f'#include "{name}.h"'])
        space = "/* Values between kernels, and what kernels keep while they run. */\n" \
                f"static union {{ unsigned char bytes[{name.upper()}_WORKSPACE_BYTES]; double real; int64_t whole; " \
                "void *pointer; } workspace;"
        parts = [
            head, includes, *prelude(self.file.needs), *dict.fromkeys(p.types for p in self.parts.values()),
            "\n".join(self.file.prototypes.values()), *self.texts, *self.file.functions,
            *(text for p in self.parts.values() for text in (_constants_of(p), p.text)),
        ]
        return "\n\n".join([*filter(None, parts), *([space] if self.workspace else []), self._run(steps)]) + "\n"

    def _run(self, steps: Sequence[str]) -> str:
        parameters, unused = self._parameters(), [
            n for n in (*self.inputs, *self.outputs) if not any(n in line for line in steps)]
        lines = [*(f"  (void){n};" for n in unused), *steps]
        if self.manifest.parts == 1:
            ending = ["  return 0;"] if self.has_status else []
            return "\n".join([f"{self._result()} {self.name}_run({parameters}) {{", *lines, *ending, "}"])
        infos = (*self.manifest.inputs, *self.manifest.outputs)
        moved = [
            f"{n} + part * {int(size) // t.dtype.itemsize}"
            for n, t, size in zip((*self.inputs, *self.outputs), infos, part_bytes(self.manifest), strict=True)]
        one = "\n".join([f"static void run_part({parameters}) {{", *lines, "}"])
        loop = [
            f"  for (int part = 0; part < {self.manifest.parts}; ++part) {{", f"    run_part({', '.join(moved)});",
            "  }"
        ]
        return "\n\n".join([
            f"/* One of {self.manifest.parts} equal parts of the batch. */\n{one}",
            "\n".join([f"void {self.name}_run({parameters}) {{", *loop, "}"])
        ])

    def _result(self) -> str:
        """The return type of the function: a status if checks may end it."""
        return "int" if self.has_status else "void"

    def _parameters(self) -> str:
        given = [f"const {c_type(t.dtype)} *{n}" for n, t in zip(self.inputs, self.manifest.inputs, strict=True)]
        made = [f"{c_type(t.dtype)} *{n}" for n, t in zip(self.outputs, self.manifest.outputs, strict=True)]
        return ", ".join([*given, *made]) or "void"

    # Steps.
    def _step(self, step: Any) -> Iterator[str]:
        if isinstance(step, Copy):
            byte = DataType("uint8")
            source = self._address(step.source, byte, int(step.nbytes))
            yield f"  memcpy({self._address(step.destination, byte)}, {source}, {step.nbytes});"
            return
        if isinstance(step, ExternalStep):
            yield from self._part(step)
            return
        for check in step.checks:
            faults = self._address(check.place, DataType("int32"), 4, "faults")
            message = comment(self.manifest.failures[check.number])
            yield f"  if (*({faults})) return {FIRST_MESSAGE + check.number}; {message}"
        func = self.kernels[step.symbol]
        arguments = [self._argument(p, b) for p, b in zip(step.args, func.buffers, strict=True)]
        if step.symbol in self.file.scratch:
            arguments.append(f"workspace.bytes + {self.plan}")
        if step.origin:
            yield f"  {comment(step.origin)}"
        yield f"  {step.symbol}({', '.join(arguments)});"

    def _part(self, step: ExternalStep) -> Iterator[str]:
        """Call the function of a library's part; its status ends the model."""
        part = self.parts[step.symbol]
        data = [
            self._address(v.place, v.dtype, math.prod(v.shape) * v.dtype.itemsize, f"{step.symbol}_{k}")
            for k, v in enumerate((*step.inputs, *step.outputs))]
        if step.origin:
            yield f"  {comment(step.origin)}"
        yield "  {"
        yield f"    tw_tensor args[{len(data)}] = {{{{0}}}};"
        yield "    int32_t status;"
        yield from (f"    args[{k}].data = (void *)({x});" for k, x in enumerate(data))
        constants = f"{step.symbol}_constants" if part.constants else "0"
        space = f"(void *)(((uintptr_t)workspace.bytes + {self.plan + _ALIGNMENT - 1}) & ~(uintptr_t){_ALIGNMENT - 1})"
        yield f"    status = {step.symbol}(args, {constants}, {space if part.workspace_bytes else '0'});"
        yield "    if (status) return status;"
        yield "  }"

    def _argument(self, place: Place, b: Buffer) -> str:
        (count,) = b.shape
        return self._address(place, b.dtype, int(count) * b.dtype.itemsize, b.name)

    def _address(self, place: Place, dtype: DataType, nbytes: int = 0, name: str = "") -> str:
        kind = c_type(dtype)
        match place.kind:
            case "constant":
                return self._constant(place.offset, dtype, nbytes, name)
            case "workspace":
                at = f"workspace.bytes + {place.offset}" if place.offset else "workspace.bytes"
                return at if kind == "uint8_t" and not name else f"({kind} *)(void *)({at})"
            case "input" | "output":
                given = place.kind == INPUT
                infos, names = (self.manifest.inputs, self.inputs) if given else (self.manifest.outputs, self.outputs)
                constancy = "const " if given else ""
                own, skip = infos[place.offset].dtype, int(place.skip)
                if c_type(own) == kind and skip % own.itemsize == 0:
                    return f"{names[place.offset]} + {skip // own.itemsize}" if skip else names[place.offset]
                at = f"({constancy}unsigned char *){names[place.offset]} + {skip}"
                return f"({constancy}{kind} *)({constancy}void *)({at})"
            case _:
                raise InternalError(
                    f"a step of '{self.manifest.name}' names the {place.kind} {place.offset}, which a model that is "
                    "one file does not have")

    def _constant(self, offset: int, dtype: DataType, nbytes: int, name: str) -> str:
        """Return the name of the array with these bytes."""
        key = (offset, c_type(dtype), nbytes)
        known = self.arrays.get(key)
        if known is None:
            known = self.arrays[key] = self._taken(name or "constant")
            values = self.constants[offset : offset + nbytes].view(dtype.numpy())
            self.texts.append(
                f"static const {key[1]} {known}[{max(1, values.size)}] = {{\n{listed(values, dtype)}\n}};")
        return known

    # The header.
    def _header(self) -> str:
        m, name, upper = self.manifest, self.name, self.name.upper()
        lines = [
            f"/* Model {_plain(m.name)}, written by Tilewright {m.compiler} as C99 for any processor.",
            " *",
            f" * {name}_run computes the outputs of the inputs, dense arrays in row-major order that do not overlap:",
            *(
                f" *   {n}: {_plain(t)}"
                for n, t in zip((*self.inputs, *self.outputs), (*m.inputs, *m.outputs), strict=True)),
            " *",
            *(
                [" * It returns 0, or another number where it cannot go on, and the outputs are not to be used:"]
                if self.has_status else []
            ),
            *(f" *   {k}: {_plain(said)}" for k, said in enumerate(m.failures, FIRST_MESSAGE)),
            *([" *   others: the status of a call of a library"] if self.parts else []),
            *([" *"] if self.has_status else []),
            " * It needs no memory but these arrays, its constants and one static workspace, so that one thread at a "
            "time may call it.",
            *(
                [" * Elements of float16 and bfloat16 are their bits."]
                if any(t.dtype.is_float and t.dtype.bits == 16 for t in (*m.inputs, *m.outputs)) else []
            ),
            " */",
            f"#ifndef {upper}_H", f"#define {upper}_H", "", "#include <stdbool.h>", "#include <stdint.h>", "",
            "/* Bytes of the static workspace, and of all constants. */",
            f"#define {upper}_WORKSPACE_BYTES {self.workspace}",
            f"#define {upper}_CONSTANT_BYTES {self.constants.nbytes}", "",
            "/* Elements of the inputs and outputs. */",
            *(
                f"#define {upper}_{n.upper()}_SIZE {math.prod(t.shape)}"
                for n, t in zip((*self.inputs, *self.outputs), (*m.inputs, *m.outputs), strict=True)),
            "", "#ifdef __cplusplus", 'extern "C" {', "#endif", f"{self._result()} {name}_run({self._parameters()});",
            "#ifdef __cplusplus", "}", "#endif", "", "#endif", "",
        ]
        return "\n".join(lines)


def _constants_of(part: CPart) -> str:
    """Return the arrays of a part's constants, and the array of pointers to them."""
    names = [f"{part.symbol}_constant_{k}" for k, _ in enumerate(part.constants)]
    lines = []
    for name, value in zip(names, part.constants, strict=True):
        dtype = DataType(value.dtype)
        lines.append(
            f"static const {c_type(dtype)} {name}[{max(1, value.size)}] = {{\n{listed(value.reshape(-1), dtype)}\n}};")
    pointers = ", ".join(f"(void *){name}" for name in names)
    return "\n".join([*lines, f"static void *const {part.symbol}_constants[] = {{{pointers}}};"] if names else [])


def _plain(said: object) -> str:
    return comment(said)[3:-3]


def listed(values: Array, dtype: DataType) -> str:
    """Return the elements, as many per line as fit; floats are hexadecimal, which is exact."""
    words = [*literals(values, dtype)] or ["0"]
    lines, line = [], " "
    for word in words:
        if len(line) + len(word) + 2 > _WIDTH:
            lines.append(line)
            line = " "
        line += f" {word},"
    return "\n".join([*lines, line])


def literals(values: Array, dtype: DataType) -> Iterator[str]:
    """Return each element as a constant of C."""
    if dtype.is_float and dtype.bits == 16:
        return (f"0x{bits:04X}" for bits in values.reshape(-1).view(np.uint16).tolist())
    name = str(dtype)
    if dtype.is_float:
        return (hexadecimal(v, name) for v in values.reshape(-1).tolist())
    if dtype.code in ("int", "uint") and dtype.bits <= 16:
        return map(str, values.reshape(-1).tolist())
    return (whole(int(v), dtype) for v in values.reshape(-1).tolist())

