"""The manifest: the description of a compiled model except code and constants, as JSON in every artifact."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from tilewright.base.errors import ArtifactError, CompileError
from tilewright.base.json_reading import read_json
from tilewright.base.memory_faults import OVERLAP, Site
from tilewright.base.types import DataType
from tilewright.runtime.entry_layout import EntryLayout
from tilewright.runtime.notes import Note
from tilewright.runtime.program import (
    ExternalStep,
    HostStep,
    NativeStep,
    Place,
    Step,
    TensorInfo,
    entry_symbols,
    interruptible_symbol,
    place_from_json,
    place_to_json,
    step_from_json,
    step_to_json,
)
from tilewright.runtime.scratch import NOTHING, Scratch
from tilewright.runtime.size_rules import RELATIONS, Requirement, size_rules
from tilewright.runtime.sizes import Size, check_size

FORMAT: Final = 1
"""Format version, incremented when older readers would misread the newer form."""

INTERRUPTED, MEMORY_FAULT, NO_SCRATCH, NO_MEMORY, NO_STACK, FIRST_MESSAGE = -3, -2, -1, 1, 2, 3
"""Statuses of a failed run: an exception of a signal handler, an invalid access, no memory between the stages of a
kernel, and others. From `FIRST_MESSAGE` on, a status is an index into the manifest's `failures`."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An array parameter of a function, and whether it is written. `strides` count elements; empty means dense rows."""

    name: str
    shape: tuple[Size, ...]
    dtype: DataType
    written: bool
    strides: tuple[Size, ...] = ()

    def __str__(self) -> str:
        return f"{self.dtype} {self.name}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Scalar:
    """A scalar parameter of a function: `given` by the caller, or derived from the shapes of the arrays."""

    name: str
    dtype: DataType
    given: bool

    def __str__(self) -> str:
        return f"{self.dtype} {self.name}"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a function, which it stores in an array of one element behind the other arrays."""

    dtype: DataType


@dataclass(frozen=True, slots=True)
class Callback:
    """A registered function that the code calls, by an address that is passed behind all scalars. The kinds of its
    arguments are those of `CallbackType`."""

    name: str
    arguments: tuple[tuple[str, ...], ...]
    dtype: DataType


Argument: TypeAlias = Parameter | Scalar | Result | Callback
"""An argument of the code of a function."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A size that is known when the program is called, and its range (`most` None: unbounded)."""

    name: str
    least: int = 1
    most: int | None = None

    def __str__(self) -> str:
        return f"{self.name} from {self.least}" + ("" if self.most is None else f" to {self.most}")


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the workspace: `nbytes` bytes, live from its first write through its last read, as steps."""

    nbytes: Size
    birth: int
    death: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A value that `symbol(context, source, value)` computes from a constant at the first call for which the size
    `needed` is positive. It is kept for all further calls."""

    symbol: str
    source: Place
    nbytes: int
    needed: Size


@dataclass(frozen=True, slots=True)
class Held:
    """A value in the workspace, or several parts of one: offset, bytes, and first and last step."""

    offset: int
    nbytes: int
    birth: int
    death: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """The description of a compiled program. A library of functions has `functions`, by symbol, and no steps.

    The steps run `parts` times, each time on the next of `parts` equal parts of all inputs and outputs along the first
    axis. `target` is the target's text, `features` the CPU features that its code uses, `threads` the number of threads
    it was tuned for (0: the number of cores), `hashes` the sha256 of the parts, filled when an artifact is written. A
    program with control flow has no steps, only code; `failures` are the messages of its run-time errors.
    """

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    steps: tuple[Step, ...]
    workspace_bytes: int = 0
    constants_bytes: int = 0
    parts: Size = 1
    target: str = "llvm"
    triple: str = ""
    cpu: str = ""
    features: tuple[str, ...] = ()
    threads: int = 0
    compiler: str = ""
    hashes: dict[str, str] = field(default_factory=dict)
    functions: dict[str, tuple[Argument, ...]] = field(default_factory=dict)
    failures: tuple[str, ...] = ()
    lists: tuple[int | str | None, ...] = ()
    """The kind of each output of the model: a number of list elements in `outputs`, "tensor", or None for no value;
    empty if all are tensors."""
    symbols: tuple[Symbol, ...] = ()
    """The symbolic sizes of the inputs. If there are any, `pieces` are the parts of the workspace. The code then reads
    a table of `symbols`, `sizes`, and offsets of `pieces` (`runtime/open_program.py`)."""
    requirements: tuple[Requirement, ...] = ()
    """Relations of the symbols that hold in every call."""
    sizes: tuple[str, ...] = ()
    pieces: tuple[Piece, ...] = ()
    kept: tuple[Kept, ...] = ()
    """The values that the program computes from its constants when it needs them, by number."""
    calls: tuple[ExternalStep, ...] = ()
    """The callbacks of a program with control flow, by number; the place of an array is its number in the call."""
    scratch: Scratch = NOTHING
    """The maximum scratch memory of a kernel per thread, in addition to the workspace."""
    modules: tuple[tuple[str, int], ...] = ()
    """The kinds and the bytes of the modules that follow each other in a file."""
    sites: tuple[Site, ...] = ()
    """The checks of checked code, by number. A run with a failed check returns `MEMORY_FAULT`."""
    notes: tuple[Note, ...] = ()
    """Notes on each step for profilers and debuggers; empty for programs with control flow or dynamic shapes."""
    arena: tuple[Held, ...] = ()
    """The values in the workspace with their live ranges; empty for dynamic shapes."""
    debug: str = ""
    """The source of the debug information: "tir", "relay" or "model"; such code is loaded from a file for debuggers."""
    interruptible: bool = False
    """Whether runs may be long, so that the code has entries that check for pending signals (`runtime/interrupts.py`).
    """
    entry: EntryLayout | None = None
    """The structure of the values of the model, if it takes tuples or values of data types, or returns values of data
    types or tuples in tuples."""
    sanitizer: str = ""
    """The sanitizer that the process must start with: "address" for AddressSanitizer."""

    @property
    def entries(self) -> tuple[str, ...]:
        """The native entry functions of the program: `tw_run`, or one for each part, and their interruptible variants.
        """
        plain = entry_symbols(self.steps)
        return (*plain, *(map(interruptible_symbol, plain) if self.interruptible else ()))

    @property
    def scratch_bytes(self) -> int:
        """Largest number of bytes that a kernel takes of a thread's stack and of the C library."""
        return self.scratch.stack + self.scratch.heap

    @property
    def c_functions(self) -> tuple[str, ...]:
        """The functions that a C program calls."""
        of_sizes = ("output_shapes", "output_bytes", "workspace_bytes", "message") if self.symbols else ()
        return tuple(f"{self.c_name}_{function}" for function in ("run", "close", *of_sizes))

    @property
    def is_native(self) -> bool:
        """Whether all steps are native code of this compiler, so that a C program can run them."""
        return all(isinstance(step, NativeStep) for step in self.steps) and not self.calls

    @property
    def checks_overlaps(self) -> bool:
        """Whether the code checks for overlapping arguments."""
        return any(site.kind == OVERLAP for site in self.sites)

    @property
    def host_steps(self) -> tuple[HostStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, HostStep))

    @property
    def c_name(self) -> str:
        """The name as a prefix of C identifiers."""
        name = re.sub(r"[^A-Za-z0-9_]", "_", self.name)
        return name if re.match(r"[A-Za-z]", name) and name != "tw" else f"model_{name}"

    @property
    def messages(self) -> tuple[str, ...]:
        """The messages of the statuses from `FIRST_MESSAGE` on: run-time errors, then wrong sizes of inputs."""
        rules = (*size_rules(self.inputs, self.symbols), *self.requirements) if self.symbols else ()
        return (*self.failures, *map(str, rules))

    def header(self) -> str:
        """Return the C header of the plain entry function."""
        name, guard = self.c_name, f"{self.c_name.upper()}_H"
        tensors = [
            f" * {kind}[{i}]: {_comment(t)}" for kind, infos in (("inputs", self.inputs), ("outputs", self.outputs))
            for i, t in enumerate(infos)]
        return "\n".join([
            f"/* Model {_comment(self.name)}, compiled by Tilewright {self.compiler} for {_comment(self.target)}.",
            " * Contiguous tensors, 16-byte aligned, none overlapping another:",
            *tensors,
            *(f" * {s}" for s in self.symbols),
            *self._texts(),
            " */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "#include <stdint.h>",
            f"#define {name.upper()}_NUM_INPUTS {len(self.inputs)}",
            f"#define {name.upper()}_NUM_OUTPUTS {len(self.outputs)}",
            "#ifdef __cplusplus",
            'extern "C" {',
            "#endif",
            *self._statuses(),
            *(_functions_of_sizes(name) if self.symbols else [
                f"int32_t {name}_run(const void* const* inputs, void* const* outputs);"]),
            "/* Ends the threads and frees the memory of finished calls; needed before dlclose. A later call starts "
            "again. */",
            f"void {name}_close(void);",
            "#ifdef __cplusplus",
            "}",
            "#endif",
            f"#endif /* {guard} */",
            "",
        ])

    def _texts(self) -> list[str]:
        """Return comments on the memory layout of inputs of strings."""
        if not any(t.dtype == "string" for t in self.inputs):
            return []
        return [
            " * An input of strings is a block of bytes: six int64_t, where the texts begin and end in it as they are, "
            "in lower case and in upper case (where all are",
            " * ASCII, three times the same), then the texts in UTF-8, each with a zero byte behind it; a zero "
            "character is C0 80.",
        ]

    def _statuses(self) -> list[str]:
        """Return comments on the status that the entry function returns."""
        fault = f"; {MEMORY_FAULT}: a wrong access to memory was found, and left out" if self.sites else ""
        if self.steps:
            said = [f" * {k}: {_comment(text)}" for k, text in enumerate(self.messages, FIRST_MESSAGE)]
            first = (
                f"/* 0: done; {NO_MEMORY}, {NO_SCRATCH}: out of memory{fault}. May be called from several threads at "
                "once."
            )
            return [first, *said, " */"] if said else [f"{first} */"]
        return [
            f"/* 0: done{fault}; {NO_MEMORY}, {NO_SCRATCH}: out of memory; {NO_STACK}: recursion too deep for the "
            "stack. May be called from several threads at once.",
            *(f" * {k}: {_comment(text)}" for k, text in enumerate(self.failures, FIRST_MESSAGE)),
            " */",
        ]

    def with_hashes(self, hashes: dict[str, str]) -> Manifest:
        return replace(self, hashes=hashes)

    def to_json(self) -> str:
        """Return the manifest as deterministic JSON; raises `ArtifactError` if operators of the program run in Python.
        """
        steps: list[NativeStep | ExternalStep] = []
        for step in self.steps:
            if isinstance(step, HostStep):
                names = ", ".join(
                    dict.fromkeys(f"{s.name} ({s.origin})" if s.origin else s.name for s in self.host_steps))
                raise ArtifactError(
                    f"this program cannot be saved: these operators have no native kernel and run in Python: {names}; "
                    "replace them in the model, or keep the compiled model in memory", code="TW0807")
            steps.append(step)
        content = {
            "format": FORMAT,
            "name": self.name,
            "compiler": self.compiler,
            "target": self.target,
            "triple": self.triple,
            "cpu": self.cpu,
            "features": sorted(self.features),
            "threads": self.threads,
            "inputs": [[t.name, list(t.shape), t.dtype] for t in self.inputs],
            "outputs": [[t.name, list(t.shape), t.dtype] for t in self.outputs],
            "workspace_bytes": self.workspace_bytes,
            "constants_bytes": self.constants_bytes,
            "hashes": self.hashes,
            "steps": [step_to_json(step) for step in steps],
        }
        if self.scratch != NOTHING:
            content["scratch"] = [self.scratch.stack, self.scratch.heap, self.scratch.kernel]
        if self.failures:
            content["failures"] = list(self.failures)
        if self.calls:
            content["calls"] = [step_to_json(step) for step in self.calls]
        if self.lists:
            content["lists"] = list(self.lists)
        if self.entry is not None:
            content["entry"] = self.entry.to_json()
        if self.parts != 1:
            content["parts"] = self.parts
        if self.symbols:
            content["symbols"] = [[s.name, s.least, s.most] for s in self.symbols]
            content["requirements"] = [[r.left, r.relation, r.right] for r in self.requirements]
            content["sizes"] = list(self.sizes)
            content["pieces"] = [[p.nbytes, p.birth, p.death] for p in self.pieces]
        if self.kept:
            content["kept"] = [[k.symbol, place_to_json(k.source), k.nbytes, k.needed] for k in self.kept]
        if self.modules:
            content["modules"] = [list(m) for m in self.modules]
        if self.sites:
            content["sites"] = [site.to_json() for site in self.sites]
        if self.notes:
            content["notes"] = [note.to_json() for note in self.notes]
        if self.arena:
            content["arena"] = [[h.offset, h.nbytes, h.birth, h.death] for h in self.arena]
        if self.debug:
            content["debug"] = self.debug
        if self.interruptible:
            content["interruptible"] = True
        if self.sanitizer:
            content["sanitizer"] = self.sanitizer
        if self.functions:
            content["functions"] = {
                name: [_parameter_to_json(p) for p in params] for name, params in self.functions.items()}
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def from_json(text: str | bytes, where: str) -> Manifest:
        """Read the manifest of the artifact `where`; raises `ArtifactError` for an invalid one, or one of another
        version."""
        try:
            content = read_json(text)
        except ValueError as error:
            raise ArtifactError(
                f"{where}: the manifest is damaged ({error}); compile the model again", code="TW0804"
            ) from error
        version = content.get("format") if isinstance(content, dict) else None
        if version != FORMAT:
            raise ArtifactError(
                f"{where}: the artifact has format {version}, this version reads format {FORMAT}; "
                "compile the model again with this version, or load it with the one that made it", code="TW0806")
        try:
            return _read(content)
        except (KeyError, TypeError, ValueError, CompileError) as error:
            raise ArtifactError(
                f"{where}: the manifest is damaged ({error!r}); compile the model again", code="TW0804"
            ) from error


def _read(content: dict[str, Any]) -> Manifest:
    return Manifest(
        name=str(content["name"]),
        inputs=tuple(map(_tensor, content["inputs"])),
        outputs=tuple(map(_tensor, content["outputs"])),
        steps=tuple(map(step_from_json, content["steps"])),
        workspace_bytes=_count(content["workspace_bytes"]),
        constants_bytes=_count(content["constants_bytes"]),
        parts=_size(content.get("parts", 1)) or 1,
        target=str(content["target"]),
        triple=str(content["triple"]),
        cpu=str(content["cpu"]),
        features=tuple(map(str, content["features"])),
        threads=_count(content["threads"]),
        compiler=str(content["compiler"]),
        hashes={str(k): str(v) for k, v in dict(content["hashes"]).items()},
        functions={
            str(name): tuple(map(_parameter, params)) for name, params in dict(content.get("functions", {})).items()},
        failures=tuple(map(str, content.get("failures", ()))),
        scratch=_scratch(*content.get("scratch", (0, 0, ""))),
        calls=tuple(map(_call, content.get("calls", ()))),
        entry=EntryLayout.from_json(content["entry"]) if "entry" in content else None,
        lists=tuple(n if n in (None, "tensor") else _count(n) for n in content.get("lists", ())),
        symbols=tuple(
            Symbol(str(name), _count(least), None if most is None else _count(most))
            for name, least, most in content.get("symbols", ())),
        requirements=tuple(map(_requirement, content.get("requirements", ()))),
        sizes=tuple(check_size(str(text)) for text in content.get("sizes", ())),
        modules=tuple((str(kind), _count(size)) for kind, size in content.get("modules", ())),
        notes=tuple(map(Note.from_json, content.get("notes", ()))),
        arena=tuple(Held(*map(_count, held)) for held in content.get("arena", ())),
        debug=str(content.get("debug", "")),
        sanitizer=str(content.get("sanitizer", "")),
        interruptible=bool(content.get("interruptible", False)),
        sites=tuple(map(Site.from_json, content.get("sites", ()))),
        pieces=tuple(
            Piece(_size(nbytes), _count(birth), _count(death)) for nbytes, birth, death in content.get("pieces", ())),
        kept=tuple(
            Kept(str(symbol), place_from_json(source), _count(nbytes), _size(needed))
            for symbol, source, nbytes, needed in content.get("kept", ())))


def _requirement(fields: Any) -> Requirement:
    left, relation, right = fields
    if relation not in RELATIONS:
        raise ValueError(f"{relation!r} is not a relation")
    return Requirement(_size(left), relation, _size(right))


def _scratch(stack: Any, heap: Any, kernel: Any) -> Scratch:
    return Scratch(_count(stack), _count(heap), str(kernel))


def _call(fields: Any) -> ExternalStep:
    step = step_from_json(fields)
    if not isinstance(step, ExternalStep):
        raise ValueError(f"{fields!r} is not a call of a module")
    return step


def _functions_of_sizes(name: str) -> list[str]:
    """Return the declarations of the functions of a program with dynamic shapes."""
    return [
        "/* shapes[i] has the dimensions of inputs[i]. */",
        f"int32_t {name}_run(const int64_t* const* shapes, const void* const* inputs, void* const* outputs);",
        "/* These return the same statuses. The first writes the dimensions of outputs[i] to output_shapes[i]. */",
        f"int32_t {name}_output_shapes(const int64_t* const* shapes, int64_t* const* output_shapes);",
        f"int32_t {name}_output_bytes(const int64_t* const* shapes, int64_t* bytes);",
        f"int32_t {name}_workspace_bytes(const int64_t* const* shapes, int64_t* bytes);",
        "/* The message of a status. */",
        f"const char* {name}_message(int32_t status);",
    ]


def _comment(value: object) -> str:
    return str(value).replace("*/", "* /").replace("\n", " ").replace("\\", "/")


def _tensor(fields: Any) -> TensorInfo:
    name, shape, dtype = fields
    return TensorInfo(str(name), tuple(map(_size, shape)), DataType(str(dtype)))


def _parameter_to_json(p: Argument) -> list[Any]:
    if isinstance(p, Scalar):
        return [p.name, p.dtype, p.given]
    if isinstance(p, Result):
        return [p.dtype]
    if isinstance(p, Callback):
        return [p.name, p.dtype, [list(a) for a in p.arguments]]
    return [p.name, list(p.shape), p.dtype, p.written, *([list(p.strides)] if p.strides else [])]


def _parameter(fields: Any) -> Argument:
    if len(fields) == 1:
        return Result(DataType(str(fields[0])))
    if len(fields) == 3:
        name, dtype, given = fields
        if isinstance(given, list):
            return Callback(str(name), tuple(tuple(map(str, a)) for a in given), DataType(str(dtype)))
        return Scalar(str(name), DataType(str(dtype)), bool(given))
    name, shape, dtype, written, *strides = fields
    return Parameter(
        str(name), tuple(map(_size, shape)), DataType(str(dtype)), bool(written),
        tuple(map(_size, strides[0])) if strides else ())


def _size(value: Any) -> Size:
    return check_size(value) if isinstance(value, str) else _count(value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a size")
    return value
