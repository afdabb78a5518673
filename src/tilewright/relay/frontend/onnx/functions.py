"""Operators that are graphs of other operators, and the check that all operators of a model can be converted.

A model may define its own functions, and the specification defines many operators by a body of simpler ones. Both are
imported in place of the call. All operators with neither a body nor a converter are refused here together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import onnx
from onnx import defs

from tilewright.base.errors import ModelError, Origin
from tilewright.base.types import TensorType, TupleType
from tilewright.relay.expr import Expr
from tilewright.relay.frontend.onnx.reading import Source
from tilewright.relay.frontend.onnx.registry import CONVERTERS, domain_of
from tilewright.relay.frontend.onnx.specified import schema_of

FunctionKey = tuple[str, str, str]


def opsets_of(model: onnx.ModelProto, source: Source, opset: int | None) -> dict[str, int]:
    """The opset of every domain of the model; `opset` overrides the one of ONNX itself."""
    found = {domain_of(o.domain): o.version for o in model.opset_import}
    if opset is not None:
        found[""] = opset
    where = Origin(source.name) if source.name else None
    uses_onnx = any(not domain_of(n.domain) for n in model.graph.node)
    if uses_onnx and "" not in found:
        raise ModelError("the model does not say which opset it is written in; give it when importing: opset=17", where,
                         code="TW0110")
    newest = defs.onnx_opset_version()
    if not 0 < found.get("", 1) <= newest:
        raise ModelError(f"the model is written in opset {found['']}, but only opsets 1 to {newest} are known; upgrade "
                         "the onnx package, or convert the model with onnx.version_converter", where,
                         code="TW0110")
    return found


def check_supported(
    model: onnx.ModelProto, local: Mapping[FunctionKey, onnx.FunctionProto], opsets: Mapping[str, int], source: Source,
) -> int:
    """The number of nodes of the model; raises `OpNotImplemented` listing all operators that cannot be converted."""
    missing: dict[tuple[str, str], list[str]] = {}
    count = 0
    for domain, version, name, node in operators(model, local, opsets):
        count += 1
        if not is_supported(domain, node.op_type, version):
            missing.setdefault((domain, node.op_type), []).append(name)
    if missing:
        refuse_operators(missing, source)
    return count


def operators(
    model: onnx.ModelProto, local: Mapping[FunctionKey, onnx.FunctionProto], opsets: Mapping[str, int],
) -> Iterator[tuple[str, int, str, onnx.NodeProto]]:
    """`(domain, opset, name, node)` of all operators in the model, its inner graphs and functions, each body once."""
    bodies: list[tuple[Iterable[onnx.NodeProto], Mapping[str, int]]] = [(model.graph.node, opsets)]
    seen: set[FunctionKey] = set()
    while bodies:
        nodes, versions = bodies.pop()
        for index, node in enumerate(nodes):
            domain = domain_of(node.domain)
            key = (domain, node.op_type, node.overload)
            bodies.extend((g.node, versions) for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs))
            if key not in local:
                yield domain, versions.get(domain, 1), node.name or f"{node.op_type}_{index}", node
            elif key not in seen:
                seen.add(key)
                imports = {domain_of(o.domain): o.version for o in local[key].opset_import}
                bodies.append((local[key].node, imports or versions))


def functions_of(model: onnx.ModelProto) -> dict[FunctionKey, onnx.FunctionProto]:
    """The functions that the model defines."""
    return {(domain_of(f.domain), f.name, f.overload): f for f in model.functions}


def unknown_operators(model: onnx.ModelProto) -> dict[tuple[str, str], list[str]]:
    """The operators of `model` without a converter: names of nodes by `(domain, operator)`."""
    found: dict[tuple[str, str], list[str]] = {}
    for domain, version, name, node in operators(model, functions_of(model), opsets_of(model, Source(), None)):
        if not is_supported(domain, node.op_type, version):
            found.setdefault((domain, node.op_type), []).append(name)
    return found


def refuse_operators(missing: Mapping[tuple[str, str], Sequence[str]], source: Source) -> NoReturn:
    """Raise `OpNotImplemented` for operators without a converter."""
    named = {(domain or "ai.onnx", operator): names for (domain, operator), names in missing.items()}
    CONVERTERS.refuse_missing(named, source.name, "; or export the model with an option that avoids them")


def specified_function(node: onnx.NodeProto, opset: int, primitives: int,
                       args: Sequence[Expr | None]) -> onnx.FunctionProto | None:
    """The body that the specification gives this operator at `opset` of its domain, or None if it is primitive.

    `primitives` is the opset of ONNX itself for bodies that do not declare one.
    """
    schema = schema_of(node.op_type, node.domain, opset)
    if schema is None:
        return None
    versions = [v for v in schema.function_opset_versions if v <= primitives] or list(schema.function_opset_versions)
    if versions:
        return _complete(schema.get_function_with_opset_version(max(versions)), schema, primitives)
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= primitives]
    versions = versions or list(schema.context_dependent_function_opset_versions)
    if not versions:
        return None
    types = [_type_proto(a).SerializeToString() for a in args]
    body = schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), types)
    return _complete(body, schema, primitives) if body else None


def has_one_body(node: onnx.NodeProto, opset: int) -> bool:
    """Whether the specification gives the operator one body for all input types."""
    schema = schema_of(node.op_type, node.domain, opset)
    return schema is not None and bool(schema.has_function)


def with_attributes(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """The node with `given` as its attributes, all references to the enclosing function resolved."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for name, attribute in given.items():
        made = copy.attribute.add()
        made.CopyFrom(attribute)
        made.name = name
    return copy


def without_inputs(node: onnx.NodeProto, absent: set[str]) -> onnx.NodeProto:
    """The node with the inputs removed that its function was called without."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.input[:]
    copy.input.extend("" if name in absent else name for name in node.input)
    return copy


def is_supported(domain: str, op_type: str, opset: int) -> bool:
    """Whether the operator at `opset` has a converter, or a body in the specification."""
    if CONVERTERS.find(op_type, opset, domain) is not None:
        return True
    schema = schema_of(op_type, domain, opset)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def _complete(body: bytes, schema: Any, primitives: int) -> onnx.FunctionProto:
    """The body with the defaults of its attributes and its opset, which the schema states separately."""
    function: onnx.FunctionProto = onnx.FunctionProto.FromString(body)
    function.name, function.domain = f"{schema.name} as specified", schema.domain
    function.attribute_proto.extend(a.default_value for a in schema.attributes.values() if a.default_value.type)
    if not any(not domain_of(o.domain) for o in function.opset_import):
        function.opset_import.add(domain="", version=primitives)
    return function


def _type_proto(arg: Expr | None) -> onnx.TypeProto:
    proto = onnx.TypeProto()
    if arg is None:
        return proto
    kind = arg.checked_type
    if isinstance(kind, TupleType):
        proto.sequence_type.elem_type.CopyFrom(_type_proto(arg[0] if kind.fields else None))
        return proto
    assert isinstance(kind, TensorType)
    proto.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(kind.dtype.numpy())
    for dim in kind.shape:
        made = proto.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            made.dim_value = dim
        else:
            made.dim_param = str(dim)
    return proto
