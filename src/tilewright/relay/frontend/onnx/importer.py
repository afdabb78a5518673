"""`from_onnx`: walks the graph of a model in order and converts it node by node.

Invariants: only what the outputs depend on is converted; every call carries the model's node as its span; a value that
comes out of constants alone is a constant at once (see `known`). Missing converters are all found before the first
node is converted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any, Final

import onnx
from onnx import AttributeProto

from tilewright.base.errors import CompileError, ModelError, OptionError, Origin, ShapeError
from tilewright.base.limits import DEEPEST, MOST_FOR_A_NODE, MOST_WRITTEN_OUT
from tilewright.base.types import TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.known import KnownValues, has_unknown_sizes
from tilewright.relay.frontend.onnx import functions, registry
from tilewright.relay.frontend.onnx.deferred import captured_names, defer
from tilewright.relay.frontend.onnx.gradient import with_graphs
from tilewright.relay.frontend.onnx.inputs import Array, ModelInputs
from tilewright.relay.frontend.onnx.node import Node, NotKnownError
from tilewright.relay.frontend.onnx.order import execution_order
from tilewright.relay.frontend.onnx.reading import Source, read_model, read_tensor
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
from tilewright.relay.frontend.origins import locate, shortly
from tilewright.relay.sequence_values import NOTHING, with_outputs

_OPTIONS: Final[dict[str, Any]] = {"use_nt_batch_matmul": False}
"""`convert_config`: whether batched MatMul becomes batch_matmul with a transposed right side, as TVM's default was."""


def from_onnx(
    model: Any, shape: Mapping[str, Any] | None = None, dtype: str | Mapping[str, str] | None = None, opset: int | None = None,
    freeze_params: bool = True, convert_config: Mapping[str, Any] | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """Import an ONNX model as an `IRModule` whose `main` has the model's inputs as parameters.

    `model` is a path, the bytes of a file, or an `onnx.ModelProto`. `shape` fixes the shapes of inputs by name; symbolic
    dimensions that are not fixed stay symbolic. `dtype` replaces the element type of inputs (of floating inputs when it is
    one name). `opset` overrides the model's. With `freeze_params` the weights are constants and the second result is
    empty; without, the floating-point weights are parameters of `main` and their values are returned by name.

    Raises `ModelError` for a model that cannot be read or contradicts itself, `OpNotImplemented` with the list of all
    operators that have no converter, and `ShapeError` where an operator refuses its arguments; all name the node.
    """
    config = dict(_OPTIONS)
    for key, value in (convert_config or {}).items():
        if key not in _OPTIONS:
            raise OptionError(f"convert_config has no option '{key}'; its options are: {', '.join(_OPTIONS)}", code="TW0210")
        config[key] = value
    return _imported(model, shape, dtype, opset, freeze_params, config)


def glance(model: Any, shape: Mapping[str, Any] | None = None) -> IRModule:
    """The module of `from_onnx` for whoever looks at its graph alone: its weights are not read, and lie in the files of the model."""
    return _imported(model, shape, None, None, True, _OPTIONS, mapped=True)[0]


def _imported(
    model: Any, shape: Mapping[str, Any] | None, dtype: str | Mapping[str, str] | None, opset: int | None, freeze_params: bool, config: Mapping[str, Any],
    mapped: bool = False,
) -> tuple[IRModule, dict[str, Array]]:
    with read_model(model, mapped) as (proto, source):
        inputs = ModelInputs(proto.graph, shape, dtype)
        importer = Importer(proto, source, inputs, freeze_params, dict(config), functions.opsets_of(proto, source, opset))
        outputs = importer.run()
    used = importer.used_params(outputs)
    declared = [o.type.WhichOneof("value") == "tensor_type" for o in proto.graph.output]
    main = with_outputs((*inputs.variables.values(), *used), [o.name for o in proto.graph.output], outputs, declared)
    return IRModule.from_expr(main), {v.name_hint: inputs.params[v.name_hint] for v in used}


def convert_node(model: onnx.ModelProto, args: Mapping[str, Expr], span: Origin | None, config: Mapping[str, Any], known: KnownValues) -> list[Expr]:
    """The outputs of the one node of `model`, the names in which are those of `args`."""
    (node,) = model.graph.node
    source = Source(span.file if span is not None else "")
    opsets = {registry.domain_of(o.domain): o.version for o in model.opset_import}
    importer = Importer(model, source, ModelInputs(onnx.GraphProto(), None, None), True, dict(config), opsets)
    importer.known = known
    return importer.node(node, span or Origin(node.name, node.op_type), Body(Scope(dict(args)), opsets))


@dataclass(slots=True)
class Scope:
    """Names and their values in one graph: converted ones, and stored tensors that are read when they are first asked for."""

    values: dict[str, Expr]
    stored: dict[str, tuple[onnx.TensorProto, Span | None]] = field(default_factory=dict)
    outer: Scope | None = None
    outside: Callable[[Expr], Expr] | None = None
    """What a value of the scopes around is in this one, where they differ: in the body of a loop."""

    def has(self, name: str) -> bool:
        return name in self.values or name in self.stored or (self.outer is not None and self.outer.has(name))


@dataclass(slots=True)
class Body:
    """What surrounds a node: its scope, opsets by domain, and in a function the attributes that it was called with."""

    scope: Scope
    opsets: Mapping[str, int]
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    prefix: str = ""
    is_looped: bool = False
    """Whether it is run more than once, as a loop: no node of it is converted later, for one turn."""
    depth: int = 0
    """How many graphs and functions are around it."""


class Importer:
    """The state of one import."""

    def __init__(
        self, model: onnx.ModelProto, source: Source, inputs: ModelInputs, freeze: bool, config: dict[str, Any], opsets: Mapping[str, int],
    ) -> None:
        self.model, self.source, self.inputs, self.freeze, self.config, self.opsets = model, source, inputs, freeze, config, opsets
        self.functions = functions.functions_of(model)
        self.known = KnownValues()
        self._calling: list[tuple[str, str, str]] = []
        self._left = MOST_WRITTEN_OUT

    def run(self) -> list[Expr]:
        self._left += MOST_FOR_A_NODE * functions.check_supported(self.model, self.functions, self.opsets, self.source)
        self.inputs.require_all()
        return self._import_graph(self.model.graph, Body(Scope(dict(self.inputs.values)), self.opsets))

    def used_params(self, outputs: Sequence[Expr]) -> list[Any]:
        """The parameters kept as inputs that `outputs` still depend on."""
        found: set[Expr] = set()
        wanted = self.inputs.param_variables()
        if wanted:
            from tilewright.relay.visitor import post_order

            found.update(e for e in post_order(*outputs) if e in wanted)
        return [v for v in wanted if v in found]

    def _import_graph(self, graph: onnx.GraphProto, body: Body) -> list[Expr]:
        spans = self.source.spans if body.scope.outer is None else ()
        body.scope.stored = {t.name: (t, span) for t, span in zip_longest(graph.initializer, spans)}
        if len(body.scope.stored) != len(graph.initializer):
            raise ModelError(f"two initializers have the same name in the graph '{graph.name}'; export the model again", code="TW0103")
        body.scope.values.update((t.values.name, self._parameter(t.values.name, read_sparse(t, self.source))) for t in graph.sparse_initializer)
        for index, node in execution_order(with_graphs(graph.node), [o.name for o in graph.output], body.scope.has, graph.name):
            self._import_node(node, index, body)
        return [self._lookup(o.name, body.scope) for o in graph.output]

    def _lookup(self, name: str, scope: Scope | None) -> Expr:
        crossed: list[tuple[Scope, Callable[[Expr], Expr]]] = []
        while scope is not None:
            found = scope.values.get(name)
            if found is None and name in scope.stored:
                tensor, span = scope.stored[name]
                found = scope.values[name] = self._parameter(name, read_tensor(tensor, self.source, span))
            if found is not None:
                for inner, outside in reversed(crossed):
                    found = inner.values[name] = found if self.known.of(found) is not None else self.known.same(outside(found), found)
                return found
            if scope.outside is not None:
                crossed.append((scope, scope.outside))
            scope = scope.outer
        raise ModelError(f"there is no tensor '{name}'", code="TW0103")

    def _parameter(self, name: str, value: Array) -> Expr:
        if self.freeze or value.dtype.kind in "iub":
            return Constant(value, Origin(name, "Initializer", self.source.name))
        return self.inputs.add_param(name, value)

    def _import_node(self, proto: onnx.NodeProto, index: int, body: Body) -> None:
        origin = Origin(body.prefix + (proto.name or f"{proto.op_type}_{index}"), proto.op_type, self.source.name)
        self._left -= 1
        if self._left < 0:
            raise ModelError("with its functions and loops written out, the model has more nodes than can be compiled, far more than are in the file; "
                             "export it without functions that call others many times over", origin, code="TW0115")
        if body.depth > DEEPEST:
            raise ModelError(f"it is {body.depth} graphs and functions deep; export the model with fewer levels", origin, code="TW0115")
        results = self.node(proto, origin, body)
        for name, result in zip(proto.output, results, strict=False):
            if name:
                body.scope.values[name] = result

    def node(self, proto: onnx.NodeProto, origin: Origin, body: Body) -> list[Expr]:
        """The outputs of a node whose inputs are in the scope of `body`."""
        args = [self._lookup(name, body.scope) if name else None for name in proto.input]
        while args and args[-1] is None:
            args.pop()
        try:
            results = self._convert_or_defer(proto, origin, args, body)
        except CompileError as error:
            if error.origin is not None:
                raise
            symbolic = isinstance(error, ShapeError) and any(a is not None and not _is_static(a) for a in args)
            raise type(error)(error.message + (self.inputs.hint() if symbolic else ""), origin, code=error.code) from error
        except MemoryError as error:
            raise ModelError("it needs more memory than there is; a size in it is wrong, or the model is too large for this machine", origin, code="TW0115") from error
        except _SENSELESS as error:
            found = specification(proto.op_type, proto.domain, body.opsets.get(registry.domain_of(proto.domain), 1))
            why = "" if found is None else wrong_input(found, proto, args)
            shown = ", ".join("nothing" if a is None else repr(a.known_type()) for a in args) or "none"
            raise ModelError(why or f"its inputs ({shown}) and attributes cannot be made sense of together; compare them with what {proto.op_type} takes, and "
                             f"correct the model; where they are right, this is a fault of the importer ({shortly(error)})", origin, code="TW0109") from error
        if len(results) < sum(map(bool, proto.output)):
            raise ModelError(f"{len(results)} of its {len(proto.output)} outputs are supported: "
                             f"{', '.join(proto.output[len(results):])} cannot be computed", origin, code="TW0107")
        if proto.op_type not in _SHAPE_SOURCES and not all(a is None or self.known.of(a) is not None for a in args):
            settle: Callable[[Expr], Expr] = _unchanged
        else:
            settle = self.known.settle
        return [settle(r) if name else r for name, r in zip(proto.output, results, strict=False)]

    def _convert_or_defer(self, proto: onnx.NodeProto, origin: Origin, args: list[Expr | None], body: Body) -> list[Expr]:
        """The converted node; where the type of an input or a value is not known yet, a call that will be converted when it is.

        In a body that is looped there is no later: `NotKnownError` says that it cannot be.
        """
        captured = proto if proto.op_type in _LOOPS and not registry.domain_of(proto.domain) else onnx.NodeProto()
        used = [*args, *(self._lookup(n, body.scope) for n in captured_names(captured) if body.scope.has(n))]
        if not any(a is not None and has_unknown_sizes(a) for a in used) or self._takes_unknown(proto, used, body):
            try:
                return self._convert(proto, origin, args, body)
            except NotKnownError:
                if body.is_looped:
                    raise
        elif self._has_body(proto, body):
            return self._convert(proto, origin, args, body)
        elif body.is_looped:
            raise NotKnownError("the sizes of its inputs are only known while the model runs, and may differ from turn to turn", origin)
        whole = functions.with_attributes(proto, self._given(proto, body))
        seen = [n for n in captured_names(whole) if body.scope.has(n)]
        around = {name: self._lookup(name, body.scope) for name in seen}
        return defer(whole, origin, body.opsets, self.model.functions, self.config, dict(zip(proto.input, args, strict=False)) | around)

    def _takes_unknown(self, proto: onnx.NodeProto, args: Sequence[Expr | None], body: Body) -> bool:
        """Whether the converter may make something of tensors of which sizes are not known."""
        domain = registry.domain_of(proto.domain)
        found = registry.find(domain, proto.op_type, body.opsets.get(domain, 1))
        return found is not None and found.takes_unknown and all(a is None or isinstance(a.known_type(), TensorType) for a in args)

    def _has_body(self, proto: onnx.NodeProto, body: Body) -> bool:
        """Whether the node is imported as simpler ones, which need no types of its inputs."""
        domain = registry.domain_of(proto.domain)
        opset = body.opsets.get(domain, 1)
        return (domain, proto.op_type, proto.overload) in self.functions or (
            registry.find(domain, proto.op_type, opset) is None and functions.has_one_body(proto, opset))

    def _convert(self, proto: onnx.NodeProto, origin: Origin, args: list[Expr | None], body: Body) -> list[Expr]:
        domain = registry.domain_of(proto.domain)
        function = self.functions.get((domain, proto.op_type, proto.overload))
        if function is not None:
            return self._call_function(function, proto, origin, args, body)
        opset = body.opsets.get(domain, 1)
        given, said = self._given(proto, body), specification(proto.op_type, domain, opset)
        if said is not None:
            given = widened(said, given)
            if why := wrong_attribute(said, given) or wrong_rank(said, proto, args) or wrong_axis(proto, given, args) or wrong_targets(proto, args):
                raise ModelError(why, origin, code="TW0107")
        found = registry.find(domain, proto.op_type, opset)
        if found is None:
            whole = functions.with_attributes(proto, given)
            spec = functions.specified_function(whole, opset, body.opsets.get("", opset), args)
            if spec is None:
                functions.refuse_operators({(domain, proto.op_type): [origin.name]}, self.source)
            return self._call_function(spec, whole, origin, args, body)

        def subgraph(graph: onnx.GraphProto, inputs: Sequence[Expr], outside: Callable[[Expr], Expr] | None) -> list[Expr]:
            scope = Scope(dict(zip((i.name for i in graph.input), inputs, strict=True)), outer=body.scope, outside=outside)
            return self._import_graph(graph, replace(body, scope=scope, is_looped=body.is_looped or outside is not None, depth=body.depth + 1))

        node = Node(origin, opset, tuple(proto.output), self.config, self.known, self.inputs, subgraph)
        result = found.convert(node, args, {name: self._attribute_value(a) for name, a in given.items()})
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        for r in results:
            locate(r, origin)
        return results

    def _call_function(
        self, function: onnx.FunctionProto, proto: onnx.NodeProto, origin: Origin, args: list[Expr | None], body: Body,
    ) -> list[Expr]:
        """Import the body of a model's or the specification's function in place of the call."""
        key = (function.domain, function.name, function.overload)
        if key in self._calling:
            raise ModelError(f"the function '{function.name}' calls itself; a model's functions must not be recursive", origin, code="TW0103")
        given = {a.name: a for a in function.attribute_proto} | self._given(proto, body)
        scope = Scope({name: a for name, a in zip(function.input, args, strict=False) if a is not None})
        opsets = {registry.domain_of(o.domain): o.version for o in function.opset_import} or body.opsets
        inner = Body(scope, opsets, given, f"{origin.name}/", body.is_looped, body.depth + 1)
        absent = set(function.input) - set(scope.values)
        wanted = [inner_name for inner_name, name in zip(function.output, proto.output, strict=False) if name]
        self._calling.append(key)
        try:
            for index, node in execution_order(function.node, wanted, lambda n: n in scope.values or n in absent, function.name):
                if absent.intersection(node.input):
                    node = functions.without_inputs(node, absent)
                self._import_node(node, index, inner)
        finally:
            self._calling.pop()
        return [self._lookup(name, scope) if name in wanted else NOTHING for name in function.output]

    def _given(self, proto: onnx.NodeProto, body: Body) -> dict[str, AttributeProto]:
        """The attributes of a node by name; those that refer to one of the enclosing function are looked up there."""
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
        raise ModelError(f"attribute '{a.name}' is {kind_of_attribute(a.type)}, which is not supported; correct it where the model is made", code="TW0107")


_SENSELESS: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What a converter, or numpy below it, raises for values that no valid model has: absurd sizes, a number in the place of a list."""
_LOOPS: Final = frozenset({"Loop", "Scan"})
"""Their bodies are converted for the types of what stands around them."""
_SHAPE_SOURCES: Final = frozenset({"Shape", "Size"})
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


def _unchanged(e: Expr) -> Expr:
    return e
