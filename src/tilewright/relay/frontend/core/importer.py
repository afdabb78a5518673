"""`Importer`: walks a graph in order and converts it node by node.

Only the nodes that the outputs depend on are converted. Every call carries the model's node as its span. Values
computed from constants alone are folded immediately (`known.py`). A node whose input values or types are not known yet
becomes a call that is converted later (`deferral.py`). All missing converters are reported before the first node is
converted.

A format whose reader gives a `SourceGraph` with plain attributes uses this class directly. Other formats override the
methods under "hooks".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from tilewright.base.errors import CompileError, ModelError, Origin
from tilewright.base.limits import refused_size
from tilewright.base.types import DataType, TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Constant, Expr, Var
from tilewright.relay.frontend.core import deferral
from tilewright.relay.frontend.core.known import KnownValues, has_unknown_sizes
from tilewright.relay.frontend.core.node import Node, NotKnownError, SizeNotKnownError
from tilewright.relay.frontend.core.order import execution_order
from tilewright.relay.frontend.core.origins import locate, makes_no_sense, naming
from tilewright.relay.frontend.core.reading import Name, SourceGraph, SourceNode, given
from tilewright.relay.frontend.core.registry import Converter, Converters
from tilewright.relay.frontend.core.size_choices import rule_of, with_number
from tilewright.relay.sequence_values import with_outputs

Array = np.ndarray[Any, Any]
Outside = Callable[[Expr], Expr]


@dataclass(slots=True)
class Scope:
    """The values of one graph by name, and the enclosing graphs. A stored tensor is read at its first lookup."""

    graph: SourceGraph
    values: dict[Name, Expr] = field(default_factory=dict)
    outer: Scope | None = None
    outside: Outside | None = None
    """In the body of a loop: makes a value of the enclosing scopes usable in an iteration."""
    is_looped: bool = False
    """Whether the graph may run more than once, as a loop's body; its nodes cannot be deferred."""
    depth: int = 0
    """Number of graphs and functions around this one."""

    def has(self, name: Name) -> bool:
        """Whether this scope or an enclosing one has a value of the name."""
        return name in self.values or name in self.graph.constants or (self.outer is not None and self.outer.has(name))


class Importer:
    """The state of one import."""

    runtime: ClassVar[str] = "another runtime"
    """Name of the reference implementation, for messages."""
    stored_kind: ClassVar[str] = "Initializer"
    """Kind of a stored tensor in its origin."""
    shape_sources: ClassVar[frozenset[str]] = frozenset()
    """Operators whose results are known once the shapes of their inputs are known."""

    def __init__(self, table: Converters, file: str = "", *, freeze: bool = True,
                 known: KnownValues | None = None) -> None:
        """With `freeze`, all stored tensors become constants; otherwise floating-point tensors become parameters."""
        self.table, self.file, self.freeze = table, file, freeze
        self.known = known or KnownValues()
        self.params: dict[Expr, Array] = {}

    # Graphs

    def import_graph(self, scope: Scope) -> list[Expr]:
        """Convert the graph of a scope; return its outputs."""
        for node in self.order(scope):
            self.import_node(node, scope)
        return [self.lookup(name, scope) for name in scope.graph.outputs]

    def import_node(self, source: SourceNode, scope: Scope) -> None:
        """Convert a node, and add its outputs to the scope."""
        self.check_depth(source, scope)
        origin = self.origin(source, scope)
        args = [None if name is None else self.operand(name, scope, origin) for name in source.inputs]
        results = self.results(source, origin, args, scope)
        scope.values.update((name, r) for name, r in zip(source.outputs, results, strict=False) if name is not None)

    def lookup(self, name: Name, scope: Scope) -> Expr:
        """The value of a name in a scope or an enclosing one. Raises `ModelError` if the name is not defined."""
        crossed: list[tuple[Scope, Outside]] = []
        at: Scope | None = scope
        while at is not None:
            found = at.values.get(name)
            if found is None and name in at.graph.constants:
                found = at.values[name] = self.parameter(at.graph.label(name), at.graph.constants[name]())
            if found is not None:
                for inner, outside in reversed(crossed):
                    known = self.known.of(found) is not None
                    found = inner.values[name] = found if known else self.known.same(outside(found), found)
                return found
            if at.outside is not None:
                crossed.append((at, at.outside))
            at = at.outer
        return self.missing_tensor(name, scope)

    def results(self, source: SourceNode, origin: Origin, args: list[Any], scope: Scope) -> list[Expr]:
        """The outputs of a node. Raises a `CompileError` that names the node."""
        while args and args[-1] is None:
            args.pop()
        with naming(origin, lambda error: self.explain(error, source, args), lambda error: self.hint(error, args)):
            try:
                waits = self._waits(source, origin, args, scope)
                results = (self.defer(source, origin, args, scope, False) if waits
                           else self.convert(source, origin, args, scope))
            except NotKnownError as error:
                if scope.is_looped:
                    raise
                results = self.defer(source, origin, args, scope, isinstance(error, SizeNotKnownError))
        results = self._with_numbers(results, origin)
        wanted = given(source.outputs)
        if len(results) < len(wanted):
            lost = ", ".join(map(str, wanted[len(results):]))
            what = f"{len(results)} of its {len(source.outputs)} outputs are supported: {lost} cannot be computed"
            raise ModelError(what, origin, code="TW0107")
        if source.kind in self.shape_sources or all(a is None or self.known.is_evaluated(self.expr(a)) for a in args):
            return [r if name is None else self.known.settle(r) for name, r in zip(source.outputs, results,
                strict=False)]
        return results

    def _with_numbers(self, results: list[Expr], origin: Origin) -> list[Expr]:
        """The results of a node with numbers in the place of sizes that must equal them in the branch around it."""
        choices = self.known.choices
        for size, number in choices.equal if choices is not None and choices.is_early else ():
            message = rule_of(origin, f"{size} must be {number}")
            results = [with_number(r, size, number, message) for r in results]
        return results

    def _waits(self, source: SourceNode, origin: Origin, args: list[Any], scope: Scope) -> bool:
        """Whether a node must be deferred until the sizes of its inputs are known. Raises `NotKnownError` in a loop."""
        used = self.typed_operands(source, args, scope)
        if not any(map(has_unknown_sizes, used)) or self.takes_unknown(source, used, scope):
            return False
        if scope.is_looped:
            raise NotKnownError("the sizes of its inputs are known only at run time, and may differ between "
                                "iterations", origin)
        return True

    def apply(self, converter: Converter, node: Node, args: Sequence[Any], attributes: Mapping[str, Any]) -> list[Expr]:
        """Call a converter; return its results as a list, and set the node as the span of their calls."""
        result = converter.bound(node, args, attributes)()
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        for r in results:
            locate(r, node.origin)
        return results

    # Parameters

    def parameter(self, name: str, value: Array) -> Expr:
        """A stored tensor as a constant, or as a parameter if it is a float tensor and not frozen."""
        if self.freeze or value.dtype.kind in "iub":
            return Constant(value, Origin(name, self.stored_kind, self.file))
        return self.variable(name, value)

    def variable(self, name: str, value: Array) -> Var:
        """A stored tensor as a new parameter of the function."""
        made = Var(name, TensorType(value.shape, DataType(value.dtype)))
        self.params[made] = value
        return made

    def used_params(self, outputs: Sequence[Expr]) -> dict[Var, Array]:
        """The parameters that `outputs` depend on, with their values."""
        from tilewright.relay.visitor import post_order

        reached = {e for e in post_order(*outputs) if e in self.params} if self.params else ()
        return {v: a for v, a in self.params.items() if v in reached and isinstance(v, Var)}

    # Hooks

    def check_depth(self, source: SourceNode, scope: Scope) -> None:
        """Raise `ModelError` if a format's limit on nesting or on the number of nodes is exceeded."""

    def order(self, scope: Scope) -> Sequence[SourceNode]:
        """The nodes to convert, producers first."""
        return execution_order(scope.graph.nodes, scope.graph.outputs, scope.has, scope.graph.name)

    def origin(self, source: SourceNode, scope: Scope) -> Origin:
        """The place of a node in the model."""
        return Origin(source.name, source.kind, self.file)

    def operand(self, name: Name, scope: Scope, origin: Origin) -> Any:
        """An argument of a converter."""
        return self.lookup(name, scope)

    def expr(self, operand: Any) -> Expr:
        """The expression of an argument."""
        found: Expr = operand
        return found

    def typed_operands(self, source: SourceNode, args: Sequence[Any], scope: Scope) -> list[Expr]:
        """The operands whose types must be known to convert the node."""
        return [self.expr(a) for a in args if a is not None]

    def takes_unknown(self, source: SourceNode, used: Sequence[Expr], scope: Scope) -> bool:
        """Whether a node can be converted for inputs of unknown sizes."""
        found = self.find(source, scope)
        return found is not None and found.takes_unknown and all(isinstance(a.known_type(), TensorType) for a in used)

    def find(self, source: SourceNode, scope: Scope) -> Converter | None:
        """The converter of a node."""
        return self.table.find(source.kind, source.version, source.domain)

    def convert(self, source: SourceNode, origin: Origin, args: list[Any], scope: Scope) -> list[Expr]:
        """Convert a node whose inputs are known as far as possible; return its outputs."""
        found = self.find(source, scope)
        if found is None:
            self.table.refuse_missing({(source.domain, source.kind): [source.name]}, self.file)
        return self.apply(found, self.node(source, origin, scope), args, source.attributes)

    def node(self, source: SourceNode, origin: Origin, scope: Scope) -> Node:
        """The `Node` to pass to a converter."""
        return Node(origin, source.outputs, self.known, self.params)

    def defer(self, source: SourceNode, origin: Origin, args: Sequence[Any], scope: Scope,
              for_sizes: bool) -> list[Expr]:
        """Defer a node; return its outputs. `for_sizes` means that only symbolic sizes are missing."""
        return deferral.defer(self.table.name, source, origin, args, for_sizes)

    def missing_tensor(self, name: Name, scope: Scope) -> Expr:
        """Raise `ModelError` for an undefined name."""
        raise ModelError(f"there is no tensor '{name}'", code="TW0103")

    def explain(self, error: Exception, source: SourceNode, args: Sequence[Any]) -> str:
        """The message for a node with invalid inputs or attributes."""
        return makes_no_sense("its inputs and attributes", self.runtime)(error)

    def hint(self, error: CompileError, args: Sequence[Any]) -> str:
        """Text to append to an error of a converter."""
        return ""


def import_source(importer: Importer, graph: SourceGraph,
                  shapes: Mapping[str, Sequence[Any]] | None = None) -> tuple[IRModule, dict[str, Array]]:
    """Import a graph; return its module, and by name the parameters that are not constants.

    `shapes` override the declared shapes. Raises `OpNotImplemented` listing all operators without a converter.
    """
    missing: dict[tuple[str, str], list[str]] = {}
    for node in graph.nodes:
        if importer.table.find(node.kind, node.version, node.domain) is None:
            missing.setdefault((node.domain, node.kind), []).append(node.name)
    if missing:
        importer.table.refuse_missing(missing, importer.file)
    check_names(shapes or {}, [str(n) for n in graph.inputs])
    variables = {name: _variable(name, kind, shapes or {}) for name, kind in graph.inputs.items() if kind is not None}
    outputs = importer.import_graph(Scope(graph, dict(variables)))
    used = importer.used_params(outputs)
    main = with_outputs((*variables.values(), *used), [str(n) for n in graph.outputs], outputs, [True] * len(outputs))
    return IRModule.from_expr(main), {v.name_hint: a for v, a in used.items()}


def _variable(name: Name, kind: TensorType, shapes: Mapping[str, Sequence[Any]]) -> Var:
    shape = shapes.get(str(name))
    if shape is not None:
        check_rank(str(name), shape, kind.ndim)
        kind = TensorType(tuple(shape), kind.dtype)
    if why := refused_size(kind.shape, kind.dtype.itemsize):
        raise ModelError(f"input '{name}': {why}; give it a shape that it can have", code="TW0112")
    return Var(str(name), kind)


def check_names(chosen: Iterable[str], names: Sequence[str]) -> None:
    """Raise `ModelError` for a chosen name that is not an input of the model."""
    for name in chosen:
        if name not in names:
            raise ModelError(f"the model has no input '{name}'; its inputs are: {', '.join(names) or 'none'}",
                             code="TW0111")


def check_rank(name: str, shape: Sequence[Any], rank: int, option: str = "shape") -> None:
    """Raise `ModelError` for a shape whose rank differs from the input's."""
    if len(shape) != rank:
        said = f"{option}={{{name!r}: {tuple(shape)}}} has {len(shape)} dimensions"
        raise ModelError(f"{said}, and input '{name}' of the model has {rank}", code="TW0112")
