"""TVM's interface for running programs with control flow: `Executable` and `VirtualMachine`.

The program is native code, and no instructions are interpreted. `Executable.bytecode` is the text of the program from
which this code was made: its functions with their instructions, and the kernels that each one runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tilewright.base.errors import ArtifactError, InputError
from tilewright.base.json_reading import read_json
from tilewright.base.nd import Device, NDArray, array
from tilewright.runtime.benchmark import BenchmarkResult, Pace, measure
from tilewright.runtime.container import ADT
from tilewright.runtime.entry_layout import EntryLayout
from tilewright.runtime.module import FactoryModule
from tilewright.runtime.modules import Module, Timer
from tilewright.runtime.program import KernelCall
from tilewright.runtime.records import flat_inputs, nested_result

FORMAT: Final = "tilewright vm 1"
_MAIN: Final = "main"


@dataclass(frozen=True, slots=True)
class Listing:
    """The functions of a program as text: their names with the names of their parameters, and their instructions.

    `constants` are the types of its constants, `primitives` the names of its kernels in the order of their numbers.
    """

    functions: Sequence[tuple[str, Sequence[str], Sequence[str]]] = ()
    constants: Sequence[str] = ()
    primitives: Sequence[str] = field(default=())


class Executable:
    """A compiled program, the result of `relay.vm.compile`.

    `Executable(mod)` takes a module of `runtime.load_module`.
    """

    def __init__(self, mod: Any, listing: Listing | None = None) -> None:
        self.mod: Any = mod
        """The module with the native code; `mod.export_library(path)` writes it to a file."""
        self._listing = listing

    @property
    def lib(self) -> Any:
        """The module with the native code."""
        return self.mod

    @property
    def module(self) -> Any:
        """The module with the native code."""
        return self.mod

    def save(self) -> tuple[bytearray, Any]:
        """Return the description of the program as bytes, and the module with its code and constants.

        `load_exec` needs both. The module is written with `export_library` and read with `runtime.load_module`.
        """
        content = {"format": FORMAT, "program": _identity(self.mod), "listing": asdict(self.listing)}
        return bytearray(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()), self.mod

    @staticmethod
    def load_exec(bytecode: bytearray | bytes, lib: Any) -> Executable:
        """Return the executable that `save` wrote. Raises `ArtifactError` for damaged bytes, and for the library of
        another program."""
        try:
            content = read_json(bytes(bytecode))
            known, program, listing = content["format"], content["program"], Listing(**content["listing"])
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError(
                "the bytes are not the code of a saved executable; pass the first result of Executable.save()",
                code="TW0804") from error
        if known != FORMAT:
            raise ArtifactError(
                f"the code has format '{known}', this version reads '{FORMAT}'; compile the model again", code="TW0806")
        if program != _identity(lib):
            raise ArtifactError(
                "the code and the library are those of two programs; pass the two that one call of Executable.save() "
                "returned", code="TW0804")
        return Executable(lib, listing)

    @property
    def listing(self) -> Listing:
        """The text of the program. A program that was loaded from a library alone lists its kernels only."""
        return self._listing or listing_of(self.mod)

    @property
    def bytecode(self) -> str:
        """The functions of the program with their instructions, as text."""
        lines = []
        for k, (name, params, body) in enumerate(self.listing.functions):
            lines += [f"VM Function[{k}]: {name}({', '.join(params)})", f"# instruction count = {len(body)}"]
            lines += [f"  {line}" for line in body] + [""]
        return "\n".join(lines)

    as_text = bytecode

    @property
    def constants(self) -> str:
        """The types of the constants, one a line."""
        return "".join(f"VM Const[{k}]: {text}\n" for k, text in enumerate(self.listing.constants))

    @property
    def virtual_devices(self) -> str:
        """The devices of the program: the CPU."""
        return "VM VirtualDevice[0]: device type 1, id 0\n"

    @property
    def primitive_ops(self) -> list[str]:
        """The names of the kernels, in the order of their numbers."""
        return list(self.listing.primitives)

    @property
    def primitives(self) -> str:
        """The names of the kernels, one a line."""
        return "".join(f"VM PackedFunc[{k}]: {name}\n" for k, name in enumerate(self.listing.primitives))

    @property
    def globals(self) -> list[str]:
        """The names of the functions. `main` is the only one that a virtual machine can call."""
        return [name for name, _, _ in self.listing.functions]

    @property
    def stats(self) -> str:
        """The numbers of constants, functions and kernels, as text."""
        functions, kernels = self.globals, self.primitive_ops
        return "\n".join([
            "Relay VM executable statistics:",
            f"  Constant shapes (# {len(self.listing.constants)}): [{', '.join(self.listing.constants)}]",
            f"  Globals (#{len(functions)}): [{', '.join(f'({n}, {k})' for k, n in enumerate(functions))}]",
            f"  Primitive ops (#{len(kernels)}): [{', '.join(f'({n}, {k})' for k, n in enumerate(kernels))}]",
        ])

    def get_function_params(self, func_name: str) -> list[str]:
        """Return the names of the parameters of a function. Raises `InputError` for an unknown function."""
        if func_name == _MAIN:
            return parameter_names(self.mod)
        for name, params, _ in self.listing.functions:
            if name == func_name:
                return list(params)
        raise InputError(
            f"the program has no function '{func_name}'; it has {', '.join(self.globals)}", code="TW0707")


def _entry_of(mod: Any) -> EntryLayout | None:
    return mod.entry if isinstance(mod, FactoryModule) else None


def parameter_names(mod: Any) -> list[str]:
    """Return the names of the parameters of `main`."""
    entry = _entry_of(mod)
    if entry is not None:
        return [name for name, _ in entry.inputs]
    return [str(name) for name in mod.input_names]


def _identity(mod: Any) -> str:
    """Return a digest that identifies a program in memory or in a file."""
    return hashlib.sha256(mod.identity().encode()).hexdigest()


def listing_of(mod: Any) -> Listing:
    """Return the steps of straight-line code as text. A program in stages lists the stages that are compiled."""
    names = parameter_names(mod)
    steps = [s for m in mod.manifests() for s in m.steps]
    lines = [s.symbol if isinstance(s, KernelCall) else getattr(s, "name", type(s).__name__) for s in steps]
    kernels = list(dict.fromkeys(s.symbol for s in steps if isinstance(s, KernelCall)))
    return Listing(((_MAIN, names, [f"call {line}" for line in lines]),), (), kernels)


class VirtualMachine(Module):
    """Runs a program of `relay.vm.compile` or `runtime.load_module`: `vm.run(x)`, `vm.invoke("main", x)`.

    A tensor is returned as an `NDArray`, a tuple and a value of a data type as an `ADT`. Arguments are arrays, tuples
    (also lists) where `main` takes a tuple, and `ADT`s or `ConstructorValue`s where it takes a data type.
    """

    NAIVE_ALLOCATOR: Final = 1
    POOLED_ALLOCATOR: Final = 2

    def __init__(self, exe: Any, device: Device | Sequence[Device] | None = None, memory_cfg: Any = None) -> None:
        """`device` is one device, or a list with one; `memory_cfg` is accepted for TVM's scripts and ignored, because
        memory is planned when a program is compiled."""
        self.module = exe.mod if isinstance(exe, Executable) else exe
        self.executable = self.module.executable
        self._entry = _entry_of(self.module)
        self.names = parameter_names(self.module)
        self.device = ((device if isinstance(device, Device) else device[0]) if device else Device()).require()
        self._given: dict[int, Any] = {}
        self._outputs: Any = None

    def get_input_index(self, input_name: str, func_name: str = _MAIN) -> int:
        """Return the position of a parameter, -1 for an unknown name."""
        self._check(func_name)
        return self.names.index(input_name) if input_name in self.names else -1

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set the arguments of later calls without arguments, by position or by name."""
        self._check(func_name)
        self._given = dict(enumerate(self._in_order(args, kwargs)))

    def set_one_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set one argument of later calls: `set_one_input("main", "x", value)`, with a position, or `x=value`."""
        self._check(func_name)
        if len(args) + 2 * len(kwargs) != 2 or len(kwargs) > 1:
            raise InputError(
                "set_one_input takes a name or a number and a value, or one keyword argument; to set several inputs, "
                "call set_input", code="TW0701")
        tag, value = args or next(iter(kwargs.items()))
        index = self.get_input_index(tag) if isinstance(tag, str) else int(tag)
        if not 0 <= index < len(self.names):
            raise InputError(
                f"'main' has no input {tag!r}; it has {', '.join(self.names) or 'none'}", code="TW0702")
        self._given[index] = value

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> Any:
        """Call `main`. Raises `InputError` for unsuitable arguments, `RunError` if the program cannot continue."""
        self._check(func_name)
        self._outputs = self._result(self.executable(*self._flat(args, kwargs)))
        return self._outputs

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Call `main`."""
        return self.invoke(_MAIN, *args, **kwargs)

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Call `main` and keep the results for `get_outputs`."""
        self.invoke(func_name, *args, **kwargs)

    def invoke_with_outputs(
        self, func_name: str, input_args: Mapping[str, Any], output_args: Sequence[Any]
    ) -> None:
        """Call `main` with arguments by name, and write its results into arrays of the caller, one for each tensor."""
        self._check(func_name)
        given = self._flat((), input_args)
        self.executable(*given, out=list(output_args) if len(output_args) > 1 else output_args[0])
        self._outputs = ADT(0, output_args)

    def get_outputs(self) -> list[Any]:
        """Return the results of the last call."""
        if self._outputs is None:
            raise InputError("there are no outputs before the first call; call invoke_stateful first", code="TW0708")
        return list(self._outputs) if isinstance(self._outputs, tuple) else [self._outputs]

    def benchmark(
        self, device: Device, *args: Any, func_name: str = _MAIN, repeat: int = 5, number: int = 5,
        min_repeat_ms: float | None = None, limit_zero_time_iterations: int = 100, end_to_end: bool = False,
        cooldown_interval_ms: float = 0, repeats_to_cooldown: int = 1, **kwargs: Any,
    ) -> BenchmarkResult:
        """Time calls of `main` with these arguments; `end_to_end` includes the conversion of arguments and results.
        Later calls without arguments have the same ones."""
        self._check(func_name)
        if end_to_end:
            return measure(lambda: self.invoke(func_name, *args, **kwargs), repeat, number, min_repeat_ms or 0)
        if args or kwargs:
            self.set_input(func_name, *args, **kwargs)
        return self.time_evaluator(
            "invoke", device, number, repeat, min_repeat_ms or 0, limit_zero_time_iterations, cooldown_interval_ms,
            repeats_to_cooldown)(func_name)

    def timer(self, func_name: str) -> Timer:
        """Return how `invoke` is timed: calls of a function with the arguments of `set_input`. The pace is not used.
        Raises `InputError` for another function."""
        if func_name != "invoke":
            raise InputError(f"only 'invoke' can be timed, not '{func_name}'", code="TW0717")

        def timed(args: Sequence[Any], number: int, repeat: int, least: float, pace: Pace) -> BenchmarkResult:
            self._check(*args)
            found: BenchmarkResult = self.executable.benchmark(
                *self._flat((), {}), repeat=repeat, number=number, min_repeat_ms=least)
            return found

        return timed

    def _flat(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return the inputs of the program for the arguments of a call, by default those of `set_input`."""
        if args or kwargs:
            given = self._in_order(args, kwargs)
        else:
            missing = [n for k, n in enumerate(self.names) if k not in self._given]
            if missing:
                raise InputError(f"'main' lacks the inputs {', '.join(missing)}", code="TW0701")
            given = [self._given[k] for k in range(len(self.names))]
        return given if self._entry is None else flat_inputs(self._entry.inputs, given)

    def _in_order(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        found = dict(enumerate(args))
        for name, value in kwargs.items():
            if name not in self.names or self.names.index(name) in found:
                raise InputError(
                    f"'{name}' is not a parameter of 'main', or was given twice; the parameters are "
                    f"{', '.join(self.names) or 'none'}", code="TW0702")
            found[self.names.index(name)] = value
        if len(found) != len(self.names) or (found and max(found) >= len(self.names)):
            raise InputError(
                f"'main' takes {len(self.names)} arguments ({', '.join(self.names)}), but {len(found)} are given",
                code="TW0701")
        return [found[k] for k in range(len(self.names))]

    def _result(self, found: Any) -> Any:
        if self._entry is not None:
            return nested_result(self._entry.result, found, self._array)
        return ADT(0, map(self._array, found)) if isinstance(found, tuple) else self._array(found)

    def _array(self, value: Any) -> NDArray:
        return array(value, self.device)

    def _check(self, name: str) -> None:
        if name != _MAIN:
            raise InputError(
                f"a compiled program is entered by 'main', not by '{name}'; make '{name}' the main of a module, and "
                "compile that",
                code="TW0707")
