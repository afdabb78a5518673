"""torch.export: converts the graph of an `ExportedProgram`, or any torch.fx graph whose nodes call aten operators."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tilewright.base.errors import ModelError, Origin
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.pytorch.importer import Importer, refuse_missing
from tilewright.relay.frontend.pytorch.references import read
from tilewright.scalar import expr as scalar

_INLINED: Final = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4, "invoke_subgraph": 0, "hints_wrapper": 0,
                   "strict_mode": 0}
"""Operators that call a graph, and the number of arguments before it."""


class GraphWalk:
    """The values of one graph, by node."""

    def __init__(self, importer: Importer, module: Any, attributes: Mapping[str, Any] | None = None) -> None:
        self.importer, self.module = importer, module
        self.values: dict[Any, Any] = dict(attributes or {})

    def run(self, inputs: Sequence[Any]) -> Any:
        """Convert the graph applied to `inputs`; return its outputs."""
        refuse_missing([name for name, overload, _ in operators(self.module) if self.importer.missing(name, overload)])
        return self._run(inputs)

    def _run(self, inputs: Sequence[Any]) -> Any:
        given = iter(inputs)
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = next(given)
            elif node.op == "get_attr":
                self.values[node] = self._attribute(node.target)
            elif node.op == "output":
                return self._value(node.args[0])
            else:
                self.values[node] = self._call(node)
        raise ModelError("the graph has no output; export the model again", code="TW0118")

    def _attribute(self, path: str) -> Any:
        import torch

        found: Any = self.module
        for part in path.split("."):
            found = getattr(found, part)
        return self.importer.tensor(path, found) if isinstance(found, torch.Tensor) else found

    def _value(self, argument: Any) -> Any:
        """An argument of a node with all nodes in it replaced by their values."""
        if type(argument).__name__ == "Node":
            return self.values[argument]
        if isinstance(argument, (list, tuple)):
            return [self._value(a) for a in argument]
        if isinstance(argument, dict):
            return {k: self._value(v) for k, v in argument.items()}
        if isinstance(argument, slice):
            return slice(self._value(argument.start), self._value(argument.stop), self._value(argument.step))
        return argument

    def _call(self, node: Any) -> Any:
        name = target_name(node.target)
        origin = Origin(node.name, name, self.importer.file)
        args, kwargs = self._value(node.args), self._value(dict(node.kwargs))
        if name.startswith("higher_order::"):
            return self._higher_order(name.removeprefix("higher_order::"), args, origin)
        if node.target is operator.getitem:
            return args[0][args[1]]
        return self.importer.call(name, getattr(node.target, "_schema", None), args, kwargs, origin)

    def _higher_order(self, name: str, args: list[Any], origin: Origin) -> Any:
        if name in _INLINED:
            before = _INLINED[name]
            start = (next(k for k, a in enumerate(args) if hasattr(a, "graph")) if before or hasattr(args[0], "graph")
                     else 0)
            return GraphWalk(self.importer, args[start])._run([a for a in args[start + 1 :] if not isinstance(a, str)])
        if name == "cond":
            return self._cond(args, origin)
        raise ModelError(f"the operator {name} is not supported; export the model without it", origin, code="TW0118")

    def _cond(self, args: list[Any], origin: Origin) -> Any:
        condition, yes, no, inputs = args
        value = read(condition)
        known = self.importer.known.of(value) if isinstance(value, Expr) else value
        if known is not None:
            return GraphWalk(self.importer, yes if known else no)._run(inputs)
        first, second = (self.importer.branch(functools.partial(self._branch, g, inputs)) for g in (yes, no))
        return self.importer.choose(value, first, second, origin)

    def _branch(self, graph: Any, inputs: Sequence[Any]) -> list[Any]:
        return list(GraphWalk(self.importer, graph)._run(inputs))


def target_name(target: Any) -> str:
    """Name of a call's target: `aten::add` for `aten.add.Tensor`; `aten::floordiv` for the Python function."""
    schema = getattr(target, "_schema", None)
    if schema is not None:
        return str(schema.name)
    module, name = getattr(target, "__module__", ""), getattr(target, "__name__", str(target))
    if (type(target).__name__.endswith("HigherOrderOperator") or "higher_order" in type(target).__module__
            or hasattr(target, "py_kernels")):
        return f"higher_order::{name}"
    if module in ("math", "_operator", "operator", "builtins", "torch") or target in (math.ceil, math.floor,
        math.trunc):
        return f"aten::{name.strip('_') if name not in ('__and__', '__or__') else name}"
    return f"{module}::{name}"


def operators(module: Any) -> Iterator[tuple[str, str, str]]:
    """The operators of a graph and its inner graphs: name, overload, and node name."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            name = target_name(node.target)
            if not name.startswith("higher_order::"):
                yield name, getattr(getattr(node.target, "_schema", None), "overload_name", ""), node.name
        elif node.op == "get_attr" and hasattr(getattr(module, node.target, None), "graph"):
            yield from operators(getattr(module, node.target))


def symbolic_dim(size: Any, symbols: dict[str, scalar.Var]) -> Any:
    """A size of an exported program: an int, or the variable of its symbol."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if getattr(expression, "is_Integer", False):
        return int(expression)
    if not getattr(expression, "is_Symbol", False):
        raise ModelError(f"the size {expression} of an input is computed from others; export the model with "
                         "independent dimensions", code="TW0118")
    return symbols.setdefault(str(expression), scalar.Var(str(expression)))
