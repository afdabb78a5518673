"""`from_tflite`: converts a TFLite model with its variables and signatures to an `IRModule`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ModelError, Origin
from tilewright.base.types import DataType, TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Expr, Var
from tilewright.relay.frontend.core import importer as core
from tilewright.relay.frontend.core.importer import Scope, check_names, check_rank
from tilewright.relay.frontend.core.known import KnownValues
from tilewright.relay.frontend.core.origins import makes_no_sense, naming
from tilewright.relay.frontend.core.reading import Name, SourceGraph, SourceNode
from tilewright.relay.frontend.core.registry import Converters
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.tflite import deferred
from tilewright.relay.frontend.tflite.model import Graph, Model, Operator, Signature, Tensor, read_model
from tilewright.relay.frontend.tflite.node import Node, Outside, Value, is_complex, is_quantized, zero_point_of
from tilewright.relay.frontend.tflite.registry import CONVERTERS
from tilewright.relay.frontend.tflite.resources import Resources
from tilewright.relay.qnn.settle_numerics import with_numerics
from tilewright.relay.sequence_values import with_outputs

Array = np.ndarray[Any, Any]

_WRITERS: Final = frozenset({"ASSIGN_VARIABLE", "CALL_ONCE", "HASHTABLE_IMPORT"})
"""Operators with side effects, which are converted even if their results are unused."""
_DEEPEST: Final = 32
_LARGEST_STATE: Final = 1 << 28
"""Largest number of elements of a variable."""


def from_tflite(
    model: Any, shape_dict: Mapping[str, Sequence[int]] | None = None, dtype_dict: Mapping[str, str] | None = None,
    op_converter: Mapping[str, Callable[..., Any]] | None = None, signature: str | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """Import a TFLite model as an `IRModule` whose `main` has the model's inputs as parameters, named like their
    tensors.

    `model` is a path, the bytes of a file, or a `tflite.Model`. `shape_dict` replaces the shapes of inputs by name (the
    file has 1 for a dynamic dimension). `dtype_dict` must agree with the model. `op_converter` has functions for custom
    operators, or replaces built-in ones, by operator name; see `register_converter`. `signature` selects one of the
    model's entries: its graph is imported, and inputs and outputs have the signature's names. The weights are
    constants, so the second result is empty.

    Raises `ModelError` for a damaged file, `OpNotImplemented` listing all operators without a converter, and
    `ShapeError` for invalid arguments of an operator; all name the operator.
    """
    read = read_model(model)
    entry = None if signature is None else signature_of(read, signature)
    graph = read.graphs[0 if entry is None else entry.graph]
    importer = Importer(read, CONVERTERS.extended(op_converter or {}))
    importer.check_supported()
    variables = inputs_of(graph, shape_dict, dtype_dict, {} if entry is None
                          else {n: name for name, n in entry.inputs.items()})
    given = [op.complex_parts(v) if is_complex(t) else v for v, t in zip(variables, _tensors(graph, graph.inputs),
        strict=True)]
    outputs = importer.graph(graph, given)
    outputs = [op.complex_of_parts(x) if is_complex(t) else x for x, t in zip(outputs, _tensors(graph, graph.outputs),
        strict=True)]
    said = {} if entry is None else {n: name for name, n in entry.outputs.items()}
    names = _distinct([said.get(n) or graph.tensors[n].name or f"output{k}" for k, n in enumerate(graph.outputs)])
    main = with_outputs(variables, names, outputs, [True] * len(outputs))
    return IRModule.from_expr(with_numerics(main, "tflite") if any(is_quantized(t) for g in read.graphs
        for t in g.tensors) else main), {}


def signature_of(model: Model, key: str) -> Signature:
    """The signature called `key`. Raises `ModelError` if it does not exist or its tensors do not match its graph's."""
    found = next((s for s in model.signatures if s.key == key), None)
    if found is None:
        raise ModelError(f"the model has no signature '{key}'; its signatures are: "
                         f"{', '.join(s.key for s in model.signatures) or 'none'}", code="TW0111")
    graph = model.graphs[found.graph]
    for said, numbers in ((found.inputs, graph.inputs), (found.outputs, graph.outputs)):
        wrong = next((name for name, n in said.items() if n not in numbers), None)
        if wrong is not None:
            raise ModelError(f"the signature '{key}' has '{wrong}', which its graph neither takes nor gives; the file "
                             "is damaged: convert it again", code="TW0103")
    return found


def _tensors(graph: Graph, numbers: Sequence[int]) -> list[Tensor]:
    return [graph.tensors[n] for n in numbers]


def inputs_of(
    graph: Graph, shapes: Mapping[str, Sequence[int]] | None, dtypes: Mapping[str, str] | None,
    said: Mapping[int, str] | None = None,
) -> list[Var]:
    """The inputs of a graph as variables, with names from `said` by tensor number. Raises `ModelError` for shapes or
    dtypes that do not match the model."""
    tensors = _tensors(graph, graph.inputs)
    names = _distinct([(said or {}).get(n) or t.name or f"input{k}"
                       for k, (n, t) in enumerate(zip(graph.inputs, tensors, strict=True))])
    check_names((*(shapes or {}), *(dtypes or {})), names)
    found = []
    for name, t in zip(names, tensors, strict=True):
        shape = (shapes or {}).get(name)
        wanted = (dtypes or {}).get(name, t.dtype)
        if wanted != t.dtype:
            raise ModelError(f"input '{name}' of the model is {t.dtype}, and dtype_dict says {wanted}; a TFLite model "
                             "is made for its types", code="TW0112")
        if shape is not None and t.shape not in ((), (1,)):
            check_rank(name, shape, len(t.shape), "shape_dict")
        found.append(Var(name, TensorType(t.shape if shape is None else tuple(int(d) for d in shape), element_type(t))))
    return found


def element_type(t: Tensor) -> DataType:
    """The Relay type of a tensor's elements; types of less than a byte become a byte."""
    narrow = {"int4": "int8", "int2": "int8", "uint4": "uint8"}
    if t.dtype in ("resource", "variant"):
        raise ModelError(f"tensor '{t.name}' is a {t.dtype}, which cannot be an input", code="TW0114")
    return DataType(narrow.get(t.dtype, t.dtype))


def _distinct(names: Sequence[str]) -> list[str]:
    """Make names unique by appending numbers."""
    found: list[str] = []
    for name in names:
        k, made = 1, name
        while made in found:
            made, k = f"{name}_{k}", k + 1
        found.append(made)
    return found


@dataclass(slots=True)
class TfliteNode(SourceNode):
    """An operator of a file, with the declarations of its tensors."""

    operator: Operator = field(kw_only=True)
    tensors: Sequence[Tensor] = ()
    """Declarations of its outputs."""
    intermediates: Sequence[Tensor] = ()


@dataclass(slots=True)
class TfliteGraph(SourceGraph):
    """A graph of a file, with the declarations of its tensors by number."""

    tensors: Sequence[Tensor] = ()

    def label(self, name: Name) -> str:
        return self.tensors[name].name if isinstance(name, int) else name


class Importer(core.Importer):
    """The state of one import."""

    runtime = "the TFLite interpreter"
    stored_kind = "tensor"
    shape_sources = frozenset({"SHAPE", "RANK"})

    def __init__(self, model: Model, table: Converters, known: KnownValues | None = None) -> None:
        super().__init__(table, model.file, known=known)
        self.model, self.resources = model, Resources()

    def check_supported(self) -> None:
        """Raise `OpNotImplemented` for operators without a converter."""
        missing: dict[tuple[str, str], list[str]] = {}
        for g in self.model.graphs:
            for o in g.operators:
                if o.kind not in self.table:
                    missing.setdefault(("", o.kind), []).append(_name(g, o))
        if missing:
            self.table.refuse_missing(missing, self.file, "; or give op_converter={name: function}")

    def graph(self, graph: Graph, inputs: Sequence[Expr], is_looped: bool = False, depth: int = 0) -> list[Expr]:
        """Convert a graph applied to `inputs`; return its outputs."""
        if depth > _DEEPEST:
            what = f"graph '{graph.name}' is called by itself, or deeper than {_DEEPEST} levels, which is not supported"
            raise ModelError(what, code="TW0115")
        if len(inputs) != len(graph.inputs):
            what = (f"graph '{graph.name}' takes {len(graph.inputs)} inputs, and {len(inputs)} are given; the file is "
                    "damaged: convert it again")
            raise ModelError(what, code="TW0103")
        values: dict[Name, Expr] = dict(zip(graph.inputs, inputs, strict=True))
        return self.import_graph(Scope(_source(graph), values, is_looped=is_looped, depth=depth))

    def order(self, scope: Scope) -> Sequence[SourceNode]:
        """The operators that the outputs depend on and those with side effects, in file order."""
        wanted = set(scope.graph.outputs)
        found = []
        for node in reversed(scope.graph.nodes):
            if node.kind in _WRITERS or wanted.intersection(node.outputs):
                found.append(node)
                wanted.update(n for n in node.inputs if n is not None)
        return found[::-1]

    def operand(self, name: Name, scope: Scope, origin: Origin) -> Value:
        assert isinstance(scope.graph, TfliteGraph) and isinstance(name, int)
        with naming(origin, makes_no_sense("its inputs and options", self.runtime)):
            return Value(self.lookup(name, scope), scope.graph.tensors[name])

    def expr(self, operand: Value) -> Expr:
        return operand.expr

    def node(self, source: SourceNode, origin: Origin, scope: Scope) -> Node:
        assert isinstance(source, TfliteNode)

        def import_graph(number: int, inputs: Sequence[Expr], outside: Outside | None) -> list[Expr]:
            if not 0 <= number < len(self.model.graphs):
                what = (f"graph {number} is called, and there are {len(self.model.graphs)}; the file is damaged: "
                        "convert it again")
                raise ModelError(what, origin, code="TW0103")
            return self.graph(self.model.graphs[number], inputs, scope.is_looped or outside is not None, scope.depth
                              + 1)

        return Node(source.operator, origin, source.tensors, source.intermediates, self.model, self.known,
                    self.resources, import_graph)

    def defer(self, source: SourceNode, origin: Origin, args: Sequence[Any], scope: Scope,
              for_sizes: bool) -> list[Expr]:
        assert isinstance(source, TfliteNode)
        return deferred.defer(self.model, source.operator, origin, args, source.tensors, source.intermediates,
                              for_sizes)

    def missing_tensor(self, name: Name, scope: Scope) -> Expr:
        said = f"tensor '{scope.graph.label(name)}' is used before it is computed, and has no stored value"
        raise ModelError(f"{said}; the file is damaged: convert it again", code="TW0103")


def _source(graph: Graph) -> TfliteGraph:
    """A graph of the file in the importer's form; tensors are named by their numbers."""
    stored: dict[Name, Callable[[], Array]] = {}
    for n, t in enumerate(graph.tensors):
        if t.is_stored:
            stored[n] = t.value
        elif t.is_variable or 0 in t.shape:
            stored[n] = partial(_initial, t)
    nodes = [source_node(o, _name(graph, o), graph.tensors) for o in graph.operators]
    return TfliteGraph(graph.name, dict.fromkeys(graph.inputs), nodes, graph.outputs, stored, graph.tensors)


def source_node(o: Operator, name: str, tensors: Sequence[Tensor]) -> TfliteNode:
    """An operator in the importer's form."""
    inputs, outputs = ([n if n >= 0 else None for n in numbers] for numbers in (o.inputs, o.outputs))
    return TfliteNode(
        o.kind, inputs, outputs, o.options, name, operator=o, tensors=[tensors[n] for n in o.outputs],
        intermediates=[tensors[n] for n in o.intermediates])


def _name(graph: Graph, operator: Operator) -> str:
    """The name of an operator: that of its first result, because operators have no names."""
    return next((graph.tensors[n].name for n in operator.outputs if n >= 0), "") or f"{operator.kind}_{operator.number}"


def _initial(t: Tensor) -> Array:
    """The initial value of a variable: zero, or the zero point for quantized int8."""
    if math.prod(t.shape) > _LARGEST_STATE:
        what = (f"tensor '{t.name}', which the model remembers, has the shape {t.shape}; that is larger than any "
                "network's: convert it again")
        raise ModelError(what, code="TW0115")
    return np.full(t.shape, zero_point_of(t) if t.dtype == "int8" and is_quantized(t) else 0, element_type(t).numpy())
