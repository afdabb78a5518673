"""Declaration of an accelerator in one file: its memories, its instructions, and the operators that they compute.

    npu = Accelerator(
        "npu", far=Memory("dram", 64 << 20, bytes_per_cycle=16), near=Memory("sram", 256 << 10), dtypes=("int8",),
        numerics="tflite",
    )

    @npu.instruction(
        0x10, x="n h w c", y="n h w c", dtypes={"x": "int8", "y": "int8"}, fields={"low": -9, "high": -9},
        cycles=lambda n, h, w, c, **_: n * h * w * c,
    )
    def clamp(x, *, low, high):
        return np.clip(x, low, high).astype(x.dtype)

    @npu.operator(forms.max_pool2d())
    def clip(f):
        f.require(f.kernel == (1, 1), "windows are of one element", "leave the pool out")
        return clamp(x=f.x, y=f.y, low=-100, high=100)

Nothing here imports the compiler, so programs for the accelerator run without it.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.backends.accelerators.declared import access
from tilewright.backends.accelerators.declared.access import Access
from tilewright.base.errors import OptionError
from tilewright.base.global_functions import FUNCTIONS, register_func
from tilewright.base.plugins import declare_accelerator
from tilewright.runtime.modules import register_module

if TYPE_CHECKING:
    from tilewright.backends.accelerators.declared.matches import Form
    from tilewright.ir.module import IRModule

Array = np.ndarray[Any, Any]
OUTPUT: Final = "y"
"""The operand that an instruction writes."""
FIRST_OPCODE: Final = 0x10
"""Opcodes below are those of data movement."""


class Refused(Exception):
    """A refusal of an operator: the violated rule, and the smallest edit of the model that satisfies it."""

    def __init__(self, rule: str, edit: str) -> None:
        super().__init__(rule)
        self.rule, self.edit = rule, edit


@dataclass(frozen=True)
class Memory:
    """A memory: `size` in bytes, values aligned to `align`.

    For the far memory, also its bandwidth, and the latency of a transfer in cycles.
    """

    name: str
    size: int
    align: int = 16
    bytes_per_cycle: int = 8
    latency: int = 32

    def __post_init__(self) -> None:
        for what in ("size", "align", "bytes_per_cycle"):
            if getattr(self, what) <= 0:
                raise OptionError(
                    f"the memory {self.name} has {what}={getattr(self, what)}; it must be above zero", code="TW0903")
        if self.latency < 0 or self.align & (self.align - 1) or self.size % self.align:
            raise OptionError(
                f"the memory {self.name}: align must be a power of two that divides the size, and latency must not be "
                "negative",
                code="TW0903")


@dataclass(frozen=True)
class Operand:
    """A part of a tensor that an operator reads or writes: from `begin` on, of `shape`, inside `whole`.

    Elements `before` and `after` it, outside the tensor, read as `fill`. `source` identifies the tensor for the
    compiler.
    """

    source: Any
    whole: tuple[int, ...]
    dtype: str
    begin: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    fill: float = 0

    def __post_init__(self) -> None:
        none = (0,) * len(self.whole)
        for name, value in (("begin", none), ("shape", self.whole), ("before", none), ("after", none)):
            if not getattr(self, name):
                object.__setattr__(self, name, value)

    @property
    def padded(self) -> tuple[int, ...]:
        """The shape including padding."""
        return tuple(a + n + b for a, n, b in zip(self.before, self.shape, self.after, strict=True))

    def reshape(self, *shape: int) -> Operand:
        """Return the same elements in order under another shape."""
        if (
            self.shape != self.whole or any(self.before) or any(self.after)
            or int(np.prod(shape)) != int(np.prod(self.whole))
        ):
            raise OptionError(
                f"a whole tensor of {self.whole} cannot be reshaped to {shape} here; only whole tensors without "
                "padding can, to as many elements",
                code="TW0903")
        return Operand(self.source, tuple(shape), self.dtype)

    def part(self, axis: int, begin: int, size: int) -> Operand:
        """Return `size` elements from `begin` on along an axis."""
        at, shape = list(self.begin), list(self.shape)
        at[axis] += begin
        shape[axis] = size
        return replace(self, begin=tuple(at), shape=tuple(shape))

    def pad(self, before: Sequence[int], after: Sequence[int], fill: float) -> Operand:
        """Return the operand surrounded by `fill`, which transfers write; the far memory does not contain it."""
        return replace(self, before=tuple(before), after=tuple(after), fill=fill)


@dataclass(frozen=True)
class Emitted:
    """An instruction on whole operands, which the compiler tiles."""

    instruction: Instruction
    operands: Mapping[str, Operand | Array]
    fields: Mapping[str, int]
    extents: Mapping[str, int]


class Instruction:
    """An instruction: computes `meaning` of tiles related by `accesses`, with numbers in `fields`, in `cycles` cycles.

    A field of 5 is an unsigned field of five bits, one of -5 a signed one. Operators call it with an operand or an
    array for each access and a number for each field. It returns the emitted instruction, or refuses invalid arguments.
    """

    def __init__(
        self, meaning: Callable[..., Array], opcode: int, accesses: Mapping[str, str],
        dtypes: Mapping[str, str | tuple[str, ...]], fields: Mapping[str, int], cycles: Callable[..., int],
        blocks: Mapping[str, int],
    ) -> None:
        self.meaning, self.name, self.opcode = meaning, meaning.__name__, opcode
        self.fields, self._cycles, self.blocks = dict(fields), cycles, dict(blocks)
        where = f"the instruction {self.name}"
        self.accesses: dict[str, Access] = {name: access.parse(text, where) for name, text in accesses.items()}
        self.texts = dict(accesses)
        self.dtypes = {name: (kinds,) if isinstance(kinds, str) else tuple(kinds) for name, kinds in dtypes.items()}
        if OUTPUT not in self.accesses or not all(d.axis or not d.terms for d in self.accesses[OUTPUT]):
            raise OptionError(
                f"{where} writes {OUTPUT}; each of its dimensions must be an axis or a size, not "
                f"{self.texts.get(OUTPUT, 'nothing')!r}",
                code="TW0903")
        if set(self.dtypes) != set(self.accesses):
            raise OptionError(
                f"{where} gives dtypes of {', '.join(self.dtypes)}, but its operands are {', '.join(self.accesses)}",
                code="TW0903")
        unknown = [
            t.factor for a in self.accesses.values() for d in a for t in d.terms
            if isinstance(t.factor, str) and t.factor not in fields]
        if unknown:
            raise OptionError(
                f"{where} multiplies an axis by {unknown[0]}, which is not one of its fields", code="TW0903")
        strange = [a for a in blocks if a not in access.axes_of(self.accesses)]
        if strange:
            raise OptionError(f"{where} has blocks along {strange[0]}, which is not one of its axes", code="TW0903")
        self.inputs = tuple(name for name in self.accesses if name != OUTPUT)
        self.cut = tuple(d.axis for d in self.accesses[OUTPUT] if d.axis)
        self.asked = frozenset(inspect.signature(cycles).parameters)
        """The parameters of `cycles`: fields and axes."""

    def limits(self, name: str) -> tuple[int, int]:
        """Return the smallest and the largest number that a field holds."""
        bits = self.fields[name]
        return (0, (1 << bits) - 1) if bits > 0 else (-(1 << -bits - 1), (1 << -bits - 1) - 1)

    def cycles(self, extents: Mapping[str, int], fields: Mapping[str, int]) -> int:
        """Return the cycles of a tile of these extents."""
        return int(self._cycles(**{**fields, **extents}))

    def __call__(self, **given: Any) -> Emitted:
        missing = [n for n in (*self.accesses, *self.fields) if n not in given]
        unknown = [n for n in given if n not in self.accesses and n not in self.fields]
        if missing or unknown:
            raise OptionError(
                f"the instruction {self.name} was called "
                f"{f'without {missing[0]}' if missing else f'with {unknown[0]}, which it does not have'}",
                code="TW0903")
        fields = {name: int(given[name]) for name in self.fields}
        for name, value in fields.items():
            low, high = self.limits(name)
            if not low <= value <= high:
                raise Refused(
                    f"{name} is {value}, but {self.name} takes {low} to {high}",
                    f"change {name} of the operator to {low} to {high}")
        operands = {name: given[name] for name in self.accesses}
        for name, operand in operands.items():
            if str(operand.dtype) not in self.dtypes[name]:
                wanted = " or ".join(self.dtypes[name])
                raise Refused(
                    f"{name} of {self.name} is {operand.dtype}, but must be {wanted}",
                    f"convert the operator to {wanted}")
        shapes = {name: getattr(o, "padded", o.shape) for name, o in operands.items()}
        extents, wrong = access.extents(self.accesses, shapes, fields)
        if wrong:
            raise OptionError(f"the instruction {self.name}: {wrong}", code="TW0903")
        for axis, block in self.blocks.items():
            if extents[axis] % block:
                filled = -(-extents[axis] // block) * block
                raise Refused(
                    f"{axis} of {self.name} must be a multiple of {block}, but is {extents[axis]}",
                    f"pad the operator's {axis} to {filled}")
        self._check_reach(operands, extents, fields)
        return Emitted(self, operands, fields, extents)

    def _check_reach(self, operands: Mapping[str, Any], extents: Mapping[str, int], fields: Mapping[str, int]) -> None:
        """Refuse an instruction that would read beyond its operands and their padding."""
        ranges = {a: (0, n) for a, n in extents.items()}
        for name, dimensions in self.accesses.items():
            operand = operands[name]
            for d, size in zip(dimensions, getattr(operand, "padded", operand.shape), strict=True):
                if d.range(ranges, fields)[1] > size:
                    raise OptionError(
                        f"the instruction {self.name} would read {name} up to {d.range(ranges, fields)[1]}, but it "
                        f"ends at {size}",
                        code="TW0903")

    def describe(self) -> str:
        """Return one line that identifies the command format: programs of a different declaration are rejected."""
        fields = " ".join(f"{n}:{b}" for n, b in self.fields.items())
        operands = "; ".join(f"{n}={self.texts[n]} {'|'.join(self.dtypes[n])}" for n in self.accesses)
        blocks = "".join(f" {a}%{n}" for a, n in self.blocks.items())
        return f"{self.opcode:#x} {self.name} [{operands}] {fields}{blocks}"


@dataclass(frozen=True)
class Operator:
    """An operator of the accelerator: its form in the graph, and a function that emits its instructions or refuses."""

    name: str
    form: Form
    lower: Callable[[Any], Emitted | Sequence[Emitted]]


@dataclass
class Accelerator:
    """An accelerator of the CPU, declared in one file.

    `dtypes` are those of data, `layout` that of images. `numerics` names the rounding rules of quantized operators
    ("tflite", "torch", "onnx"; None for TVM's defaults). Networks of other frameworks are computed with these rules,
    also on the CPU, so results may differ from that framework by one unit. `macs_per_cycle` is the peak number of
    multiplications per cycle, a bound on the cycle model in tests. `prepare`, module -> module, replaces the passes
    that bring networks into the form of the patterns.
    """

    name: str
    far: Memory
    near: Memory
    dtypes: tuple[str, ...]
    version: int = 1
    layout: str = "NHWC"
    numerics: str | None = None
    macs_per_cycle: int = 0
    tolerance: float = 0
    prepare: Callable[[IRModule], IRModule] | None = None
    instructions: dict[str, Instruction] = field(default_factory=dict, init=False)
    operators: dict[str, Operator] = field(default_factory=dict, init=False)
    tilings: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Cache of chosen tilings."""

    def __post_init__(self) -> None:
        if not self.name.replace("_", "").isalnum():
            raise OptionError(
                f"an accelerator's name must consist of letters, digits and underscores, not {self.name!r}",
                code="TW0903")

    def instruction(
        self, opcode: int, *, dtypes: Mapping[str, str | tuple[str, ...]], cycles: Callable[..., int],
        fields: Mapping[str, int] | None = None, blocks: Mapping[str, int] | None = None, **accesses: str,
    ) -> Callable[[Callable[..., Array]], Instruction]:
        """Declare an instruction by its computation on tiles: a decorator of a numpy function, which takes operands by
        position and fields by name.

        Along the axes of `blocks`, operands and tiles are multiples of whole blocks.
        """

        def declare(meaning: Callable[..., Array]) -> Instruction:
            made = Instruction(meaning, opcode, accesses, dtypes, fields or {}, cycles, blocks or {})
            taken = next(
                (i.name for i in self.instructions.values() if i.opcode == opcode or i.name == made.name), None)
            if taken or not FIRST_OPCODE <= opcode <= 0xFF:
                raise OptionError(
                    f"the instruction {made.name} has the opcode {opcode:#x}"
                    + (
                        f", but {taken} has this opcode or "
                        "name" if taken else "; opcodes are 0x10 to 0xff"), code="TW0903")
            self.instructions[made.name] = made
            return made

        return declare

    def operator(self, form: Form) -> Callable[[Callable[[Any], Emitted | Sequence[Emitted]]], Operator]:
        """Declare an operator by a form of the graph: a decorator of the function that emits instructions for a match.
        Earlier operators take precedence."""

        def declare(lower: Callable[[Any], Emitted | Sequence[Emitted]]) -> Operator:
            if lower.__name__ in self.operators:
                raise OptionError(f"{self.name} has an operator {lower.__name__} already", code="TW0903")
            made = self.operators[lower.__name__] = Operator(lower.__name__, form, lower)
            return made

        return declare

    def transfer_cycles(self, size: int) -> int:
        """Return the cycles of a transfer of `size` bytes."""
        return self.far.latency + -(-size // self.far.bytes_per_cycle)

    @property
    def file(self) -> str:
        """The file that declares the first instruction."""
        return next((i.meaning.__code__.co_filename for i in self.instructions.values()), "")

    def describe(self) -> str:
        """Return memories and instructions as text, whose checksum programs contain."""
        memories = (f"{m.name} {m.size} bytes, aligned to {m.align}" for m in (self.far, self.near))
        return "\n".join(
            [f"{self.name} version {self.version}", *memories, *(i.describe() for i in self.instructions.values())])

    @property
    def fingerprint(self) -> int:
        return zlib.crc32(self.describe().encode())

    def register(self, override: bool = False) -> Accelerator:
        """Register the accelerator with the compiler, by its name in targets, and its programs with the runtime; the
        last line of its file. Returns itself.

        Raises `OptionError` if another file has registered the name, unless `override` is set. Running a file again
        replaces its declarations.
        """
        from tilewright.backends.accelerators.declared.module import module_of

        def generate(function: Any) -> Any:
            from tilewright.backends.accelerators.declared.codegen import generate

            return generate(self, function)

        name = f"relay.ext.{self.name}"
        before = getattr(getattr(FUNCTIONS.get(name), "__wrapped__", None), "declared_in", None)
        generate.declared_in = self.file  # type: ignore[attr-defined]
        if self.instructions:  # `registry.where` then names the user's file
            generate.__wrapped__ = next(iter(self.instructions.values())).meaning  # type: ignore[attr-defined]
        register_func(name, generate, override=override or (before is not None and before == self.file))
        register_module(module_of(self))
        declare_accelerator(self.name, self)
        return self

    def pattern_table(self) -> list[tuple[Any, ...]]:
        """Return rows (name, pattern, check) for `MergeComposite`; a check accepts, or refuses with a rule and an edit.
        """
        from tilewright.backends.accelerators.declared.partition import pattern_table

        return pattern_table(self)

    def partition_for(self, mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule:
        """Return the module with the parts for the accelerator as separate functions."""
        from tilewright.backends.accelerators.declared.partition import partition_for

        return partition_for(self, mod, params)
