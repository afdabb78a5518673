"""Leaves single operators of a graph of `torch.compile` to torch, and compiles the rest of the graph.

Torch computes an operator without converter and decomposition, a call that its converter refuses, or one with tensors
of unsupported dtypes (complex numbers). A warning of this module's logger names these operators. Graphs that write into
tensors are not split, because the parts could not share memory.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

from tilewright.base.errors import CompileError, InternalError
from tilewright.compiler.torch_parts import Part

_LOG: Final = logging.getLogger("tilewright.compiler.torch_backend")
_MOST_LEFT: Final = 32
"""Maximum number of nodes for which the compiler is tried to find refused ones."""

Compile = Callable[[Any, Sequence[Any]], Callable[[Sequence[Any]], Sequence[Any]]]
"""Compiles a graph for described inputs, to a function of the tensors among them."""


class SplitProgram:
    """A graph in parts: compiled ones, and single nodes that torch computes."""

    def __init__(
        self, module: Any, given: Sequence[Any], compile_part: Compile, missing: Callable[[str, str], bool],
        first: CompileError
    ) -> None:
        self._module, self._nodes = module, list(module.graph.nodes)
        self._compile = compile_part
        if any(_writes(n) for n in self._nodes):
            raise first
        placeholders = [n for n in self._nodes if n.op == "placeholder"]
        self._given = dict(zip(placeholders, given, strict=True))
        self._placeholders = placeholders
        left = {n for n in self._nodes if n.op == "call_function" and (_is_foreign(n) or _is_missing(n, missing))}
        self._add_origin(first, left)
        if not left:
            raise first
        for _ in range(_MOST_LEFT):
            try:
                self._steps = self._parts(left)
                break
            except InternalError:
                raise
            except CompileError as error:
                if not self._add_origin(error, left):
                    raise first from error
        else:
            raise first
        names = sorted({str(n.target) for n in left if n.target is not operator.getitem})
        _LOG.warning("torch computes %s, which cannot be compiled", ", ".join(names), extra={"operators": names})

    def _add_origin(self, error: CompileError, left: set[Any]) -> bool:
        """Add the node named by an error to `left`; return False if it is unknown, or already there."""
        name = error.origin.name if error.origin is not None else ""
        found = {n for n in self._nodes if n.name == name and n.op == "call_function"} - left
        left |= found
        return bool(found)

    def _parts(self, left: set[Any]) -> list[Any]:
        """Return nodes of torch, and the parts between them, in the order of the graph."""
        runs: list[Any] = []
        for node in self._nodes:
            if node.op != "call_function":
                continue
            source = node.args[0] if node.target is operator.getitem else node
            if source in left:
                left.add(node)
                runs.append(node)
            elif runs and isinstance(runs[-1], list):
                runs[-1].append(node)
            else:
                runs.append([node])
        return [Part(self._module, run, self._given, self._compile) if isinstance(run, list) else run for run in runs]

    def __call__(self, tensors: Sequence[Any]) -> Any:
        """Run the graph on the tensors among its inputs, in order, and return its outputs."""
        import torch

        env: dict[Any, Any] = dict(zip(self._placeholders, tensors, strict=True))
        env |= {n: _attribute(self._module, n.target) for n in self._nodes if n.op == "get_attr"}
        for step in self._steps:
            if isinstance(step, Part):
                env.update(zip(step.outputs, step.run([env[n] for n in step.inputs]), strict=True))
            else:
                with torch.no_grad():
                    env[step] = step.target(
                        *torch.fx.map_arg(step.args, env.__getitem__), **torch.fx.map_arg(step.kwargs, env.__getitem__))
        return torch.fx.map_arg(self._nodes[-1].args[0], env.__getitem__)


def _attribute(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


def _writes(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and bool(schema.is_mutable)


def _is_missing(node: Any, missing: Callable[[str, str], bool]) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and missing(str(schema.name), str(schema.overload_name))


def _is_foreign(node: Any) -> bool:
    """Whether an input or output of a node has a dtype that programs do not support."""
    return any(_has_foreign(n.meta.get("val")) for n in (node, *node.all_input_nodes))


def _has_foreign(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_foreign, value))
    import torch

    return isinstance(value, torch.Tensor) and (value.dtype.is_complex or value.layout is not torch.strided)
