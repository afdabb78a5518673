"""`torch.compile(model, backend="tilewright")`: compiles the graphs that torch captures, for inference.

The graph is imported with the model's weights as constants. Weights that an optimizer or `load_state_dict` has since
modified cause another compilation. A graph with sizes that torch regards as dynamic is compiled once for all of them;
if that is not possible, and for other graphs, the first call with new input shapes compiles the graph for these shapes.
Results have no gradient. This module does not import torch on its own. In an installed package, torch finds the backend
by its entry point (`torch_dynamo_backends`).
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, InternalError, ModelError
from tilewright.base.types import DataType
from tilewright.compiler.torch_fallback import SplitProgram
from tilewright.compiler.torch_trace import DynamicSizes, Trace, dynamic_sizes, placeholders
from tilewright.scalar.arith.evaluate import evaluate
from tilewright.scalar.expr import PrimExpr, Var

_LOG: Final = logging.getLogger(__name__)

_MOST_PROGRAMS: Final = 64
"""Largest number of cached programs per graph; the oldest is dropped first."""


def compile_graph(graph: Any, example_inputs: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
    """Compile a graph to a function of its inputs, as torch.compile expects. Raises `CompileError` for unknown
    operators."""
    return _Graph(graph, example_inputs)


def _static_places(graph: Any) -> frozenset[int]:
    """Return the numbers of the inputs that are weights and buffers of the model, which torch passes in every call."""
    return frozenset(
        k for k, n in enumerate(placeholders(graph)) if "_dynamo_static_input_type" in n.meta.get("tensor_dict", {}))


class _Graph:
    """A captured graph, and its programs by weights, numbers, and input shapes that are not dynamic."""

    def __init__(self, graph: Any, examples: Sequence[Any]) -> None:
        self._graph, self._static = graph, _static_places(graph)
        self._programs: dict[Any, _Program] = {}
        self._sizes = dynamic_sizes(graph)
        if self._sizes is not None:
            self._compile_for_all_sizes(self._sizes, examples)

    def _compile_for_all_sizes(self, sizes: DynamicSizes, examples: Sequence[Any]) -> None:
        """Compile for all sizes now, while torch still notes which sizes the program is for."""
        try:
            self._programs[self._key(examples)] = self._compiled(examples)
        except InternalError:
            raise
        except CompileError as error:
            _LOG.info("the graph is compiled for each combination of input shapes: %s", error)
            self._sizes = None

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        key = self._key(inputs)
        program = self._programs.get(key)
        if program is None:
            program = self._compiled(inputs)
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
            self._programs[key] = program
        return program(inputs)

    def _key(self, inputs: Sequence[Any]) -> Any:
        dynamic = self._sizes.places if self._sizes is not None else frozenset[int]()
        return tuple(
            (id(x), x._version) if k in self._static else _kind(x) for k, x in enumerate(inputs) if k not in dynamic)

    def _compiled(self, inputs: Sequence[Any]) -> _Program:
        """Return a program for such inputs. Weights that the graph writes are treated as inputs."""
        try:
            return _Program(self._graph, self._static, inputs, self._sizes)
        except _WrittenWeightsError as error:
            self._static -= set(error.places)
            return _Program(self._graph, self._static, inputs, self._sizes)


class _WrittenWeightsError(Exception):
    """A graph writes weights that were treated as constants; `places` are their numbers among the inputs."""

    def __init__(self, places: Sequence[int]) -> None:
        self.places = places


class _Program:
    """A graph for inputs of one kind. It keeps the weights alive, so that their identities stay unique."""

    def __init__(
        self, graph: Any, static: frozenset[int], inputs: Sequence[Any], sizes: DynamicSizes | None
    ) -> None:
        import torch

        from tilewright.relay.frontend.pytorch.decompose import decompositions, with_decompositions
        from tilewright.relay.frontend.pytorch.importer import Importer

        self._weights = [inputs[k] for k in sorted(static)]
        trace = sizes.trace if sizes is not None else Trace(graph, inputs)
        self._taken = trace.taken
        given = [
            inputs[k].detach() if k in static
            else sizes.described[k] if sizes is not None and k in sizes.described
            else _described(f"x{k}", inputs[k]) if isinstance(inputs[k], torch.Tensor) else inputs[k]
            for k in self._taken]
        missing = Importer(True, "float32", None, "").missing
        ranges = sizes.ranges if sizes is not None else None

        def compiled(module: Any, given: Sequence[Any]) -> _CompiledGraph:
            return _CompiledGraph(module, given, self._taken, ranges)

        def decomposed(refused: Set[str]) -> Any:
            return trace(
                frozenset(refused),
                lambda: decompositions(lambda name, overload: name in refused or missing(name, overload), True))

        whole = trace()
        try:
            self._run: Any = with_decompositions(
                lambda: compiled(whole, given), lambda refused: compiled(decomposed(refused), given))
        except InternalError:
            raise
        except CompileError as error:
            if sizes is not None:
                raise
            self._run = SplitProgram(whole, given, _CompiledGraph, missing, error)

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        found = self._run([inputs[k] for k in self._taken])
        return tuple(found) if isinstance(found, (list, tuple)) else (found,)


class _CompiledGraph:
    """A compiled graph, as a function of its inputs. It performs the graph's writes into its inputs.

    `given` describes the inputs; a tensor or number in it is a constant, and a variable a dynamic size, whose range is
    in `ranges`. `places` numbers the inputs for `_WrittenWeightsError`.
    """

    def __init__(
        self, module: Any, given: Sequence[Any], places: Sequence[int] = (), ranges: Mapping[str, str] | None = None
    ) -> None:
        import torch

        import tilewright
        from tilewright.relay.frontend.pytorch import from_graph

        graph = from_graph(module, given)
        constant = [k for k in graph.written if not isinstance(given[k], tuple)]
        if constant:
            raise _WrittenWeightsError([places[k] for k in constant])
        self._results, self._written = graph.results, graph.written
        self._variable = [k for k, what in enumerate(given) if isinstance(what, tuple)]
        self._sizes = {what: k for k, what in enumerate(given) if isinstance(what, Var)}
        self._integers = _integer_results(module)
        shapes = None
        if ranges is not None:
            shapes = {given[k][0]: [ranges.get(str(d), d) for d in given[k][1]] for k in self._variable}
        self._model = None if graph.module is None else tilewright.compile(
            graph.module, shapes, threads=torch.get_num_threads(), symbolic=ranges is not None)

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        from tilewright.relay.frontend.pytorch import Input, Output

        found: Any = ()
        if self._model is not None:
            found = self._model(*(_array(tensors[k]) for k in self._variable))
            found = found if isinstance(found, (tuple, list)) else (found,)
        for k, output in self._written.items():
            tensors[k].detach().copy_(_tensor(found[output.number]))

        def result(k: int, place: Any) -> Any:
            if isinstance(place, Output):
                return int(found[place.number]) if k in self._integers else _tensor(found[place.number])
            if isinstance(place, PrimExpr):
                return evaluate(place, {size: tensors[k] for size, k in self._sizes.items()})
            return tensors[place.number] if isinstance(place, Input) else place

        return tuple(itertools.starmap(result, enumerate(self._results)))


def _integer_results(module: Any) -> frozenset[int]:
    """Return the numbers of the results that are Python's integers."""
    import torch

    results = torch.utils._pytree.tree_leaves(next(n for n in module.graph.nodes if n.op == "output").args[0])
    return frozenset(
        k for k, n in enumerate(results) if isinstance(getattr(n, "meta", {}).get("val"), (int, torch.SymInt)))


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
    """Return the elements of a tensor or an integer, without a copy if it is contiguous; bfloat16 as its bits."""
    import torch

    if isinstance(x, int):
        return np.array(x, np.int64)
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
