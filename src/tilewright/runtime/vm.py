"""`VirtualMachine`: TVM's interface for running a program with control flow. The program is native code; no
instructions are interpreted."""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import InputError
from tilewright.base.nd import Device, NDArray, array
from tilewright.runtime.benchmark import BenchmarkResult
from tilewright.runtime.module import FactoryModule


class VirtualMachine:
    """Runs a program of `relay.vm.compile` or `runtime.load_module`: `vm.run(x)`, `vm.invoke("main", x)`.

    A tensor is returned as an `NDArray`, a tuple as a list, with nested tuples flattened.
    """

    def __init__(self, exe: FactoryModule, device: Device | None = None, memory_cfg: Any = None) -> None:
        """`memory_cfg` is accepted for TVM's scripts and ignored."""
        self.executable = exe.executable
        self.device = device or Device()
        self._given: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {}
        self._outputs: list[NDArray] = []

    def set_input(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Set the arguments of later calls without arguments."""
        self._check(func_name)
        self._given[func_name] = (args, kwargs)

    def invoke(self, func_name: str, *args: Any, **kwargs: Any) -> NDArray | list[NDArray]:
        """Call `main`. Raises `InputError` for unsuitable arguments, `RunError` if the program cannot continue."""
        self._check(func_name)
        if not args and not kwargs:
            args, kwargs = self._given.get(func_name, ((), {}))
        result = self.executable(*args, **kwargs)
        several = isinstance(result, tuple)
        self._outputs = [array(r, self.device) for r in (result if several else (result,))]
        return self._outputs if several else self._outputs[0]

    def run(self, *args: Any, **kwargs: Any) -> NDArray | list[NDArray]:
        """Call `main`."""
        return self.invoke("main", *args, **kwargs)

    def invoke_stateful(self, func_name: str, *args: Any, **kwargs: Any) -> None:
        """Call `main` and keep the results for `get_outputs`."""
        self.invoke(func_name, *args, **kwargs)

    def get_outputs(self) -> list[NDArray]:
        """Return the results of the last call."""
        return self._outputs

    def benchmark(
        self, device: Device, *args: Any, func_name: str = "main", repeat: int = 5, number: int = 5,
        min_repeat_ms: float | None = None,
        end_to_end: bool = False, **kwargs: Any,
    ) -> BenchmarkResult:
        """Time calls of `main` with these arguments."""
        self._check(func_name)
        return self.executable.benchmark(
            *args, repeat=repeat, number=number, min_repeat_ms=min_repeat_ms or 0, end_to_end=end_to_end, **kwargs)

    def _check(self, name: str) -> None:
        if name != "main":
            raise InputError(
                f"a compiled program is entered by 'main', not by '{name}'; make '{name}' the main of a module, and "
                "compile that",
                code="TW0707")
