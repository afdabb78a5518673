"""`torch.compile(model, backend="tilewright")`: the graphs that torch captures of a model, compiled for inference.

Programs are made at the first call with inputs of new shapes: the graph is traced with them, and imported with the model's weights as
constants. Weights that were written into since, by an optimizer or `load_state_dict`, make a new program. What a compiled graph
gives has no gradient. Only `torch.compile` itself imports torch; installed, the backend is found by its name (the entry point `torch_dynamo_backends`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.errors import ModelError

_MOST_PROGRAMS: Final = 64
"""Programs of one graph that are kept: the oldest goes when there are more."""


def compile_graph(graph: Any, example_inputs: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
    """The graph as a function of its inputs: a backend as torch.compile takes them. Raises `CompileError` for operators that are not known."""
    return _Graph(graph, _static_places(graph))


def _static_places(graph: Any) -> frozenset[int]:
    """Which inputs are weights and buffers of the model, which torch hands over in every call."""
    nodes = [n for n in graph.graph.nodes if n.op == "placeholder"]
    return frozenset(k for k, n in enumerate(nodes) if "_dynamo_static_input_type" in n.meta.get("tensor_dict", {}))


class _Graph:
    """One captured graph, and its programs by the shapes of its inputs."""

    def __init__(self, graph: Any, static: frozenset[int]) -> None:
        self._graph, self._static = graph, static
        self._programs: dict[Any, _Program] = {}

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        key = tuple((id(x), x._version) if k in self._static else _kind(x) for k, x in enumerate(inputs))
        program = self._programs.get(key)
        if program is None:
            program = _Program(self._graph, self._static, inputs)
            if len(self._programs) >= _MOST_PROGRAMS:
                self._programs.pop(next(iter(self._programs)))
            self._programs[key] = program
        return program(inputs)


class _Program:
    """A graph for inputs of one kind. It holds on to the weights, so that their identities stay their own."""

    def __init__(self, graph: Any, static: frozenset[int], inputs: Sequence[Any]) -> None:
        import torch
        from torch.fx.experimental.proxy_tensor import make_fx

        import tilewright
        from tilewright.relay.frontend.pytorch import from_graph

        self._weights = [inputs[k] for k in sorted(static)]
        self._open = [k for k, x in enumerate(inputs) if isinstance(x, torch.Tensor) and k not in static]
        tensors = [k for k, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
        numbers = {k: x for k, x in enumerate(inputs) if k not in tensors}

        def call(*given: Any) -> Any:
            values = dict(zip(tensors, given, strict=True)) | numbers
            return graph(*(values[k] for k in range(len(inputs))))

        with torch.no_grad():
            traced = make_fx(call, tracing_mode="fake", pre_dispatch=True, _allow_non_fake_inputs=True)(*(inputs[k].detach() for k in tensors))
        module, self._places = from_graph(traced, [inputs[k].detach() if k in static else _described(f"x{k}", inputs[k]) for k in tensors])
        self._model = None if module is None else tilewright.compile(module, threads=torch.get_num_threads())

    def __call__(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        import torch

        found: Any = ()
        if self._model is not None:
            found = self._model(*(_array(inputs[k]) for k in self._open))
            found = found if isinstance(found, (tuple, list)) else (found,)
        return tuple(torch.from_numpy(np.asarray(found[p[0]])) if isinstance(p, tuple) else p for p in self._places)


def _kind(x: Any) -> Any:
    """What decides the program: shape, type and device of a tensor, or a number itself."""
    return (x.shape, x.dtype, x.device) if hasattr(x, "dtype") else x


def _described(name: str, x: Any) -> tuple[str, tuple[int, ...], str]:
    """Name, shape and type of an input."""
    if x.device.type != "cpu":
        raise ModelError(f"a tensor on {x.device} is given to a model that is compiled for the CPU; move it there with .cpu()", code="TW0114")
    return name, tuple(x.shape), str(x.dtype).removeprefix("torch.")


def _array(x: Any) -> np.ndarray[Any, Any]:
    """The elements of a tensor, which are not copied where they stand one behind the other."""
    found: np.ndarray[Any, Any] = x.detach().contiguous().numpy()
    return found
