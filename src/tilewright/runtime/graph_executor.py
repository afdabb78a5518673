"""`GraphModule`: set inputs, run, get outputs, with TVM's interface."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from tilewright.base.containers import Map
from tilewright.base.errors import InputError
from tilewright.base.nd import Device, NDArray
from tilewright.base.params import load_param_dict
from tilewright.runtime.benchmark import BenchmarkResult, Pace
from tilewright.runtime.container import ShapeTuple
from tilewright.runtime.function_graph import FunctionGraph
from tilewright.runtime.graph_json import check_graph
from tilewright.runtime.module import FactoryModule, Session
from tilewright.runtime.program import TensorInfo

Types: TypeAlias = tuple[Mapping[str, tuple[int, ...]], Mapping[str, str]]
"""Shapes and dtypes by name, in `Map`s."""


def create(graph_json: str, lib: Any, device: Device) -> GraphModule:
    """Create a module from `graph, lib, params = relay.build(…)`, or from the files `mod.json` and `mod.so` of a
    package; or from a graph whose nodes call functions of `lib`, a result of `tvm.build` or a mapping.

    Raises `ArtifactError` for an invalid graph, or the graph of another program.
    """
    if not isinstance(lib, FactoryModule):
        return GraphModule(Session(FunctionGraph(graph_json, lib), device))
    check_graph(graph_json, lib.artifact.manifest)
    return GraphModule(lib["default"](device))


class GraphModule:
    """A model with its own input and output arrays: `GraphModule(lib["default"](device))`.

    Arrays from `get_input` and `get_output` are these arrays themselves: the next `set_input` or `run` changes them.
    """

    def __init__(self, module: Session) -> None:
        self.module = module

    def set_input(self, key: str | int | Mapping[str, Any] | None = None, value: Any = None, **params: Any) -> None:
        """Copy values into inputs: one by name or number, or several by name; unknown names in `params` are ignored."""
        if isinstance(key, Mapping):
            for name, entry in key.items():
                self.set_input(name, entry)
        elif key is not None:
            if value is None:
                raise InputError(f"set_input({key!r}) was given no value", code="TW0701")
            self.module.set_input(self.module.input_index(key), value)
        names = {t.name for t in self.module.input_infos}
        for name, entry in params.items():
            if name in names:
                self.module.set_input(self.module.input_index(name), entry)

    def set_input_zero_copy(
        self, key: str | int | None = None, value: NDArray | None = None, **params: NDArray
    ) -> None:
        """Read arrays in every run from now on, instead of copies: one by name or number, or several by name."""
        given: dict[str | int, NDArray] = dict(params.items())
        if key is not None and value is not None:
            given[key] = value
        for name, array in given.items():
            self.module.set_input_zero_copy(name, array)

    def set_output_zero_copy(self, index: int, value: NDArray) -> None:
        """Write an array in every run from now on."""
        self.module.set_output_zero_copy(index, value)

    def run(self, **inputs: Any) -> None:
        """Set `inputs`, then compute all outputs."""
        self.set_input(**inputs)
        self.module.run()

    def get_input(self, index: str | int, out: NDArray | None = None) -> NDArray:
        """Return the array of an input, or `out` with a copy of it."""
        array = self.module.inputs[self.module.input_index(index)]
        return array if out is None else array.copyto(out)

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """Return the array of an output, or `out` with a copy of it."""
        outputs, count = self.module.outputs, self.module.output_count
        if not 0 <= index < count:
            raise InputError(f"the model has no output {index}; it has {count}", code="TW0707")
        if not outputs:
            raise InputError(
                "the sizes of the outputs are only known when the model has run; call run() first", code="TW0708")
        return outputs[index] if out is None else outputs[index].copyto(out)

    def get_num_inputs(self) -> int:
        return len(self.module.inputs)

    def get_num_outputs(self) -> int:
        return self.module.output_count

    def get_input_index(self, name: str) -> int:
        """Return the position of the input, or -1 for an unknown name."""
        return next((i for i, t in enumerate(self.module.input_infos) if t.name == name), -1)

    def get_input_info(self) -> Types:
        """Return the shapes and the dtypes of the inputs by name."""
        return _types(self.module.input_infos)

    def get_output_info(self) -> Types:
        """Return the shapes and the dtypes of the outputs by name."""
        return _types(self.module.output_infos)

    def load_params(self, params: bytes | bytearray | Mapping[str, Any]) -> None:
        """Set the inputs named in `params`, a mapping or bytes of `save_param_dict`; other parameters are ignored,
        because they are constants of the program."""
        self.set_input(**dict(params if isinstance(params, Mapping) else load_param_dict(params)))

    def share_params(self, other: GraphModule, params: bytes | bytearray | Mapping[str, Any]) -> None:
        """Use the input arrays of `other`, without copies, for the inputs named in `params`, a mapping or bytes of
        `save_param_dict`."""
        for name in params if isinstance(params, Mapping) else load_param_dict(params):
            if self.get_input_index(name) >= 0:
                self.module.inputs[self.get_input_index(name)] = other.get_input(name)

    def benchmark(
        self, device: Device, func_name: str = "run", repeat: int = 5, number: int = 5,
        min_repeat_ms: float | None = None, limit_zero_time_iterations: int = 100, end_to_end: bool = False,
        cooldown_interval_ms: float = 0, repeats_to_cooldown: int = 1, **inputs: Any,
    ) -> BenchmarkResult:
        """Time `run` after setting `inputs`; `end_to_end` includes copies of inputs and outputs.

        Takes `repeat` measurements of `number` calls each, more if one takes less than `min_repeat_ms`; the other
        options are those of `runtime.benchmark.Pace`.
        """
        if func_name != "run":
            raise InputError(f"only 'run' can be timed, not '{func_name}'", code="TW0717")
        self.set_input(**inputs)
        if not end_to_end:
            return self.module.time_evaluator(
                func_name, device, number, repeat, min_repeat_ms or 0, limit_zero_time_iterations,
                cooldown_interval_ms, repeats_to_cooldown)()
        return self.module.benchmark(
            repeat, number, min_repeat_ms or 0, end_to_end,
            Pace(limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown))


def _types(infos: Sequence[TensorInfo]) -> Types:
    """Return the shapes and the dtypes of tensors by name."""
    return Map({t.name: ShapeTuple(t.shape) for t in infos}), Map({t.name: str(t.dtype) for t in infos})
