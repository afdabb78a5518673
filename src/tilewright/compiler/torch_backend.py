"""`torch.compile(model, backend="tilewright")`: compiles the graphs that torch captures, for inference.

The first call with new input shapes traces the graph and imports it with the model's weights as constants. Weights that
an optimizer or `load_state_dict` has since modified cause another compilation. Results have no gradient. This module
does not import torch on its own. In an installed package, torch finds the backend by its entry point
(`torch_dynamo_backends`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, InternalError, ModelError
from tilewright.base.types import DataType
from tilewright.compiler.torch_fallback import SplitProgram

_MOST_PROGRAMS: Final = 64
"""Largest number of cached programs per graph; the oldest is dropped first."""


def compile_graph(graph: Any, example_inputs: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
    """Compile a graph to a function of its inputs, as torch.compile expects. Raises `CompileError` for unknown
    operators."""
    return _Graph(graph, _static_places(graph))


def _static_places(graph: Any) -> frozenset[int]:
    """Return the numbers of the inputs that are weights and buffers of the model, which torch passes in every call."""
    nodes = [n for n in graph.graph.nodes if n.op == "placeholder"]
    return frozenset(k for k, n in enumerate(nodes) if "_dynamo_static_input_type" in n.meta.get("tensor_dict", {}))


class _Graph:
    """A captured graph, and its programs by input shapes."""

    def __init__(self, graph: Any, static: frozenset[int]) -> None:
        self._graph, self._static = graph, static
        self._programs: dict[Any, _Program] = {}

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        key = tuple((id(x), x._version) if k in self._static else _kind(x) for k, x in enumerate(inputs))
        program = self._programs.get(key)
        if program is None:
            program = self._compiled(inputs)
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
            self._programs[key] = program
        return program(inputs)

    def _compiled(self, inputs: Sequence[Any]) -> _Program:
        """Return a program for such inputs. Weights that the graph writes are treated as inputs."""
        try:
            return _Program(self._graph, self._static, inputs)
        except _WrittenWeightsError as error:
            tensors = [k for k, x in enumerate(inputs) if hasattr(x, "dtype")]
            self._static -= {tensors[k] for k in error.places}
            return _Program(self._graph, self._static, inputs)


class _WrittenWeightsError(Exception):
    """A graph writes weights that were treated as constants; `places` are their numbers among the input tensors."""

    def __init__(self, places: Sequence[int]) -> None:
        self.places = places


class _Program:
    """A graph for inputs of one kind. It keeps the weights alive, so that their identities stay unique."""

    def __init__(self, graph: Any, static: frozenset[int], inputs: Sequence[Any]) -> None:
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        from tilewright.relay.frontend.pytorch.decompose import decompositions, with_decompositions
        from tilewright.relay.frontend.pytorch.importer import Importer

        self._weights = [inputs[k] for k in sorted(static)]
        self._tensors = [k for k, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        given = [inputs[k].detach() if k in static else _described(f"x{k}", inputs[k]) for k in self._tensors]
        missing = Importer(True, "float32", None, "").missing

        def call(*tensors: Any) -> Any:
            values = dict(enumerate(inputs)) | dict(zip(self._tensors, tensors, strict=True))
            return graph(*(values[k] for k in range(len(inputs))))

        def traced(table: Any) -> Any:
            with torch.no_grad():
                made = make_fx(
                    call, tracing_mode="fake", pre_dispatch=True, decomposition_table=table, _allow_non_fake_inputs=True
                )
                return made(*(inputs[k].detach() for k in self._tensors))

        try:
            whole = traced(None)
        except Exception as error:
            if type(error).__module__ != "torch.fx.experimental.symbolic_shapes":
                raise
            reason = str(error).partition("\n")[0]
            raise ModelError(
                f"torch cannot trace the graph without its values ({reason}); exclude this part with "
                "torch.compiler.disable",
                code="TW0118") from error
        try:
            self._run: Any = with_decompositions(
                lambda: _CompiledGraph(whole, given),
                lambda refused: _CompiledGraph(
                    traced(decompositions(lambda name, overload: name in refused or missing(name, overload), True)),
                    given))
        except InternalError:
            raise
        except CompileError as error:
            self._run = SplitProgram(whole, given, _CompiledGraph, missing, error)

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        found = self._run([inputs[k] for k in self._tensors])
        return tuple(found) if isinstance(found, (list, tuple)) else (found,)


class _CompiledGraph:
    """A compiled graph, as a function of the tensors among its inputs. It performs the graph's writes into its inputs.

    `given` describes the inputs; a tensor in it is a constant.
    """

    def __init__(self, module: Any, given: Sequence[Any]) -> None:
        import torch

        import tilewright
        from tilewright.relay.frontend.pytorch import from_graph

        graph = from_graph(module, given)
        constant = [k for k in graph.written if not isinstance(given[k], tuple)]
        if constant:
            raise _WrittenWeightsError(constant)
        self._results, self._written = graph.results, graph.written
        self._model = (
            None if graph.module is None else tilewright.compile(graph.module, threads=torch.get_num_threads())
        )
        self._variable = [k for k, what in enumerate(given) if isinstance(what, tuple)]

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        from tilewright.relay.frontend.pytorch import Input, Output

        found: Any = ()
        if self._model is not None:
            found = self._model(*(_array(tensors[k]) for k in self._variable))
            found = found if isinstance(found, (tuple, list)) else (found,)
        for k, output in self._written.items():
            tensors[k].detach().copy_(_tensor(found[output.number]))

        def result(place: Any) -> Any:
            if isinstance(place, Output):
                return _tensor(found[place.number])
            return tensors[place.number] if isinstance(place, Input) else place

        return tuple(map(result, self._results))


def _kind(x: Any) -> Any:
    """Return the cache key of an argument: shape, dtype and device of a tensor, or the number itself."""
    return (x.shape, x.dtype, x.device) if hasattr(x, "dtype") else x


def _described(name: str, x: Any) -> tuple[str, tuple[int, ...], str]:
    """Return name, shape and dtype of an input."""
    if x.device.type != "cpu":
        raise ModelError(
            f"a tensor on {x.device} is given to a model that is compiled for the CPU; move it there with .cpu()",
            code="TW0114")
    return name, tuple(x.shape), str(x.dtype).removeprefix("torch.")


def _array(x: Any) -> np.ndarray[Any, Any]:
    """Return the elements of a tensor, without a copy if it is contiguous; bfloat16 as its bits."""
    import torch

    x = x.detach().resolve_neg().contiguous()
    found: np.ndarray[Any, Any] = (
        x.view(torch.int16).numpy().view(DataType("bfloat16").numpy()) if x.dtype is torch.bfloat16 else x.numpy()
    )
    return found


def _tensor(x: Any) -> Any:
    """Return an array as a tensor of torch."""
    import torch

    array = np.asarray(x)
    return (
        torch.from_numpy(array.view(np.int16)).view(torch.bfloat16) if array.dtype == DataType("bfloat16").numpy()
        else torch.from_numpy(array)
    )
