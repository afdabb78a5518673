"""`from_onnx`: converts an ONNX model with its functions, inner graphs and opsets to an `IRModule`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, Final, cast

import onnx
from onnx import AttributeProto

from tilewright.base.errors import CompileError, ModelError, OptionError, Origin, ShapeError
from tilewright.base.limits import DEEPEST, MOST_FOR_A_NODE, MOST_WRITTEN_OUT
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.core import importer as core
from tilewright.relay.frontend.core.known import KnownValues
from tilewright.relay.frontend.core.order import execution_order
from tilewright.relay.frontend.core.origins import shortly
from tilewright.relay.frontend.core.reading import Name, SourceGraph, SourceNode
from tilewright.relay.frontend.onnx import functions
from tilewright.relay.frontend.onnx.deferred import captured_names, defer
from tilewright.relay.frontend.onnx.gradient import with_graphs
from tilewright.relay.frontend.onnx.inputs import Array, ModelInputs
from tilewright.relay.frontend.onnx.node import Node, Outside
from tilewright.relay.frontend.onnx.reading import Source, read_model, read_tensor
from tilewright.relay.frontend.onnx.registry import CONVERTERS, domain_of
from tilewright.relay.frontend.onnx.sparse import read_sparse
from tilewright.relay.frontend.onnx.specified import (
    kind_of_attribute,
    specification,
    widened,
    wrong_attribute,
    wrong_axis,
    wrong_input,
    wrong_rank,
    wrong_targets,
)
from tilewright.relay.frontend.onnx.wire import Span
from tilewright.relay.sequence_values import NOTHING, with_outputs

_OPTIONS: Final[dict[str, Any]] = {"use_nt_batch_matmul": False}
"""Defaults of `convert_config`: whether batched MatMul becomes `batch_matmul` with a transposed right side, as in TVM.
"""


def from_onnx(
    model: Any, shape: Mapping[str, Any] | None = None, dtype: str | Mapping[str, str] | None = None,
    opset: int | None = None, freeze_params: bool = True, convert_config: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """Import an ONNX model as an `IRModule` whose `main` has the model's inputs as parameters.

    `model` is a path, the bytes of a file, or an `onnx.ModelProto`. `shape` fixes the shapes of inputs by name; other
    symbolic dimensions stay symbolic. `dtype` replaces the element types of inputs by name; one type replaces that of
    all floating-point inputs. `opset` overrides the model's. With `freeze_params` the weights are constants and the
    second result is empty. Otherwise floating-point weights are parameters of `main`, and their values are returned by
    name.

    Raises `ModelError` for an invalid model, `OpNotImplemented` listing all operators without a converter, and
    `ShapeError` for invalid arguments of an operator; all name the node.
    """
    config = dict(_OPTIONS)
    for key, value in (convert_config or {}).items():
        if key not in _OPTIONS:
            raise OptionError(f"convert_config has no option '{key}'; its options are: {', '.join(_OPTIONS)}",
                              code="TW0210")
        config[key] = value
    with read_model(model) as (proto, source):
        opsets = functions.opsets_of(proto, source, opset)
        importer = Importer(proto, source, ModelInputs(proto.graph, shape, dtype), freeze_params, config, opsets)
        outputs = importer.import_graph(importer.main())
    return importer.module(outputs)


def glance(model: Any, shape: Mapping[str, Any] | None = None) -> IRModule:
    """The module of `from_onnx` for inspection: weights are not read but remain in the model's files."""
    with read_model(model, mapped=True) as (proto, source):
        opsets = functions.opsets_of(proto, source, None)
        importer = Importer(proto, source, ModelInputs(proto.graph, shape, None), True, dict(_OPTIONS), opsets)
        outputs = importer.import_graph(importer.main())
    return importer.module(outputs)[0]


def convert_node(
    model: onnx.ModelProto, args: Mapping[Name, Expr], span: Origin | None, config: Mapping[str, Any],
    known: KnownValues,
) -> list[Expr]:
    """Convert the only node of `model`; its inputs are looked up by name in `args`."""
    source = Source(span.file if span is not None else "")
    opsets = {domain_of(o.domain): o.version for o in model.opset_import}
    importer = Importer(model, source, ModelInputs(onnx.GraphProto(), None, None), True, dict(config), opsets)
    importer.known = known
    body = Body(SourceGraph("", {}, source_nodes(model.graph.node, opsets), ()), dict(args), opsets=opsets)
    (node,) = body.graph.nodes
    origin = span or Origin(node.name, node.kind)
    return importer.results(node, origin, [None if n is None else importer.lookup(n, body) for n in node.inputs], body)


@dataclass(slots=True)
class OnnxNode(SourceNode):
    """A node of a file, with its protobuf message."""

    proto: onnx.NodeProto = field(default_factory=onnx.NodeProto)


def source_nodes(nodes: Iterable[onnx.NodeProto], opsets: Mapping[str, int]) -> list[OnnxNode]:
    """Convert the protobuf nodes of a graph or a function."""
    return [
        OnnxNode(
            n.op_type, [name or None for name in n.input], [name or None for name in n.output], {}, n.name
            or f"{n.op_type}_{index}", domain_of(n.domain), opsets.get(domain_of(n.domain), 1), captured_names(n), n,
        ) for index, n in enumerate(nodes)]


@dataclass(slots=True)
class Body(core.Scope):
    """The scope of a graph or a function, with opsets by domain and the attributes of the function's call."""

    opsets: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    prefix: str = ""


class Importer(core.Importer):
    """The state of one import."""

    runtime = "ONNX Runtime"
    shape_sources = frozenset({"Shape", "Size"})

    def __init__(
        self, model: onnx.ModelProto, source: Source, inputs: ModelInputs, freeze: bool, config: dict[str, Any],
        opsets: Mapping[str, int],
    ) -> None:
        super().__init__(CONVERTERS, source.name, freeze=freeze)
        self.model, self.source, self.inputs, self.config, self.opsets = model, source, inputs, config, opsets
        self.functions = functions.functions_of(model)
        self._calling: list[tuple[str, str, str]] = []
        self._left = MOST_WRITTEN_OUT

    def main(self) -> Body:
        """The scope of the model's graph. Raises `OpNotImplemented` listing all operators without a converter."""
        self._left += MOST_FOR_A_NODE * functions.check_supported(self.model, self.functions, self.opsets, self.source)
        self.inputs.require_all()
        graph = self._graph(self.model.graph, self.opsets, self.source.spans)
        return Body(graph, {**self.inputs.values}, opsets=self.opsets)

    def module(self, outputs: Sequence[Expr]) -> tuple[IRModule, dict[str, Array]]:
        """The model as a module, and its parameters by name."""
        used, declared = self.used_params(outputs), self.model.graph.output
        main = with_outputs((*self.inputs.variables.values(), *used), [o.name for o in declared], outputs,
                            [o.type.WhichOneof("value") == "tensor_type" for o in declared])
        return IRModule.from_expr(main), {v.name_hint: a for v, a in used.items()}

    def _graph(self, graph: onnx.GraphProto, opsets: Mapping[str, int],
               spans: Sequence[Span | None] = ()) -> SourceGraph:
        stored: dict[Name, Callable[[], Array]] = {
            t.name: partial(read_tensor, t, self.source, span) for t, span in zip_longest(graph.initializer, spans)}
        if len(stored) != len(graph.initializer):
            raise ModelError(f"two initializers have the same name in the graph '{graph.name}'; export the model again",
                             code="TW0103")
        stored.update((t.values.name, partial(read_sparse, t, self.source)) for t in graph.sparse_initializer)
        inputs: dict[Name, TensorType | None] = {i.name: None for i in graph.input}
        return SourceGraph(graph.name, inputs, source_nodes(with_graphs(graph.node), opsets),
                           [o.name for o in graph.output], stored)

    def check_depth(self, source: SourceNode, scope: core.Scope) -> None:
        self._left -= 1
        if self._left < 0:
            why = ("inlining functions and unrolling loops gives more nodes than can be compiled; export the model "
                   "with fewer nested function calls")
            raise ModelError(why, self.origin(source, scope), code="TW0115")
        if scope.depth > DEEPEST:
            why = f"it is nested {scope.depth} graphs and functions deep; export the model with fewer levels"
            raise ModelError(why, self.origin(source, scope), code="TW0115")

    def origin(self, source: SourceNode, scope: core.Scope) -> Origin:
        return Origin(cast(Body, scope).prefix + source.name, source.kind, self.file)

    def hint(self, error: CompileError, args: Sequence[Any]) -> str:
        return self.inputs.hint() if isinstance(error, ShapeError) and any(a is not None and not _is_static(a)
            for a in args) else ""

    def explain(self, error: Exception, source: SourceNode, args: Sequence[Any]) -> str:
        assert isinstance(source, OnnxNode)
        found = specification(source.kind, source.domain, source.version or 1)
        shown = ", ".join("nothing" if a is None else repr(a.known_type()) for a in args) or "none"
        return ("" if found is None else wrong_input(found, source.proto, args)) or (
            f"its inputs ({shown}) and attributes do not fit together; compare them with the specification of "
            f"{source.kind}, and correct the model. If they are valid, report a bug of the importer ({shortly(error)})"
        )

    def typed_operands(self, source: SourceNode, args: Sequence[Any], scope: core.Scope) -> list[Expr]:
        around = source.captured if source.kind in _LOOPS and not source.domain else ()
        return [*(a for a in args if a is not None), *(self.lookup(n, scope) for n in around if scope.has(n))]

    def takes_unknown(self, source: SourceNode, used: Sequence[Expr], scope: core.Scope) -> bool:
        """Also accept nodes that expand to simpler nodes, which need no input types."""
        assert isinstance(source, OnnxNode)
        return super().takes_unknown(source, used, scope) or self._function(source) is not None or (
            self.find(source, scope) is None and functions.has_one_body(source.proto, source.version or 1))

    def _function(self, source: OnnxNode) -> onnx.FunctionProto | None:
        return self.functions.get((source.domain, source.kind, source.proto.overload))

    def defer(self, source: SourceNode, origin: Origin, args: Sequence[Any], scope: core.Scope,
              for_sizes: bool) -> list[Expr]:
        assert isinstance(source, OnnxNode) and isinstance(scope, Body)
        whole = functions.with_attributes(source.proto, self._given(source.proto, scope))
        around = {name: self.lookup(name, scope) for name in captured_names(whole) if scope.has(name)}
        named = dict(zip(source.proto.input, args, strict=False)) | around
        return defer(whole, origin, scope.opsets, self.model.functions, self.config, named, for_sizes)

    def convert(self, source: SourceNode, origin: Origin, args: list[Any], scope: core.Scope) -> list[Expr]:
        assert isinstance(source, OnnxNode) and isinstance(scope, Body)
        proto, opset = source.proto, source.version or 1
        function = self._function(source)
        if function is not None:
            return self._call_function(function, proto, origin, args, scope)
        given, said = self._given(proto, scope), specification(source.kind, source.domain, opset)
        if said is not None:
            given = widened(said, given)
            if (why := wrong_attribute(said, given) or wrong_rank(said, proto, args) or wrong_axis(proto, given, args)
                    or wrong_targets(proto, args)):
                raise ModelError(why, origin, code="TW0107")
        found = self.find(source, scope)
        if found is None:
            whole = functions.with_attributes(proto, given)
            spec = functions.specified_function(whole, opset, scope.opsets.get("", opset), args)
            if spec is None:
                functions.refuse_operators({(source.domain, source.kind): [origin.name]}, self.source)
            return self._call_function(spec, whole, origin, args, scope)

        def subgraph(
            graph: onnx.GraphProto, inputs: Sequence[Expr], outside: Outside | None, is_looped: bool
        ) -> list[Expr]:
            return self.import_graph(Body(
                self._graph(graph, scope.opsets), dict(zip((i.name for i in graph.input), inputs, strict=True)), scope,
                outside, scope.is_looped or is_looped, scope.depth + 1, scope.opsets, scope.attributes,
                scope.prefix))

        node = Node(origin, opset, source.outputs, self.config, self.known, self.params, self.inputs, subgraph)
        return self.apply(found, node, args, {name: self._attribute_value(a) for name, a in given.items()})

    def _call_function(
        self, function: onnx.FunctionProto, proto: onnx.NodeProto, origin: Origin, args: list[Expr | None], body: Body,
    ) -> list[Expr]:
        """Import the body of a function of the model or the specification in place of the call."""
        key = (function.domain, function.name, function.overload)
        if key in self._calling:
            why = f"the function '{function.name}' calls itself; a model's functions must not be recursive"
            raise ModelError(why, origin, code="TW0103")
        given = {a.name: a for a in function.attribute_proto} | self._given(proto, body)
        values: dict[Name, Expr] = {name: a for name, a in zip(function.input, args, strict=False) if a is not None}
        opsets = {domain_of(o.domain): o.version for o in function.opset_import} or body.opsets
        absent = set(function.input) - set(values)
        nodes = source_nodes([functions.without_inputs(n, absent) if absent.intersection(n.input) else n
                              for n in function.node], opsets)
        inner = Body(
            SourceGraph(function.name, {}, nodes, ()), values, is_looped=body.is_looped, depth=body.depth + 1,
            opsets=opsets, attributes=given, prefix=f"{origin.name}/")
        wanted: list[Name] = [inner_name for inner_name, name in zip(function.output, proto.output, strict=False)
                              if name]
        self._calling.append(key)
        try:
            for node in execution_order(nodes, wanted, lambda n: n in values or n in absent, function.name):
                self.import_node(node, inner)
        finally:
            self._calling.pop()
        return [self.lookup(name, inner) if name in wanted else NOTHING for name in function.output]

    def _given(self, proto: onnx.NodeProto, body: Body) -> dict[str, AttributeProto]:
        """The attributes of a node by name, with references to the enclosing function's attributes resolved."""
        found = ((a.name, body.attributes.get(a.ref_attr_name) if a.ref_attr_name else a) for a in proto.attribute)
        return {name: a for name, a in found if a is not None}

    def _attribute_value(self, a: AttributeProto) -> Any:
        read = _ATTRIBUTES.get(a.type)
        if read is not None:
            return read(a)
        if a.type == AttributeProto.TENSOR:
            return read_tensor(a.t, self.source)
        if a.type == AttributeProto.SPARSE_TENSOR:
            return read_sparse(a.sparse_tensor, self.source)
        why = (f"attribute '{a.name}' is {kind_of_attribute(a.type)}, which is not supported; correct it in the "
               "program that exports the model")
        raise ModelError(why, code="TW0107")


_LOOPS: Final = frozenset({"Loop", "Scan"})
"""Operators whose bodies are converted for the types of the captured values."""
_ATTRIBUTES: Final[dict[int, Callable[[AttributeProto], Any]]] = {
    AttributeProto.FLOAT: lambda a: a.f,
    AttributeProto.INT: lambda a: a.i,
    AttributeProto.STRING: lambda a: a.s.decode("utf-8", "replace"),
    AttributeProto.FLOATS: lambda a: tuple(a.floats),
    AttributeProto.INTS: lambda a: tuple(a.ints),
    AttributeProto.STRINGS: lambda a: tuple(s.decode("utf-8", "replace") for s in a.strings),
    AttributeProto.GRAPH: lambda a: a.g,
    AttributeProto.TYPE_PROTO: lambda a: a.tp,
}


def _is_static(e: Expr) -> bool:
    kind = e.known_type()
    return not isinstance(kind, TensorType) or kind.is_static
