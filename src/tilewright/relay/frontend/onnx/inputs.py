"""The inputs of a model as relay variables: their types and symbolic dimensions."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx

from tilewright.base.errors import ModelError
from tilewright.base.limits import refused_size
from tilewright.base.types import DataType, TensorType, same_shape
from tilewright.relay import expr as relay
from tilewright.relay.frontend.core.importer import check_names, check_rank
from tilewright.relay.frontend.core.reading import Name
from tilewright.relay.frontend.onnx.reading import element_type
from tilewright.relay.sequence_values import NOTHING
from tilewright.scalar import expr as scalar

Array = np.ndarray[Any, Any]

_NAMELESS: Final = frozenset({"", "?", "*", "-1", "None"})
"""Placeholders that exporters write for unknown dimensions; equal placeholders are different dimensions."""


class ModelInputs:
    """The variables of `main`, in the order of the graph's inputs.

    A named dimension (`dim_param`) is the same symbol in all inputs, and a shape given for one input fixes it for all.
    The shape of a sequence is a list of the shapes of its tensors, each of which is a variable. The shape of an empty
    optional is None.
    """

    def __init__(self, graph: onnx.GraphProto, shape: Mapping[str, Any] | None,
                 dtype: str | Mapping[str, str] | None) -> None:
        stored = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
        taken = [i for i in graph.input if i.name not in stored]
        protos = {i.name: i for i in taken}
        if len(protos) < len(taken):
            twice = next(name for name, count in collections.Counter(i.name for i in taken).items() if count > 1)
            raise ModelError(f"the graph '{graph.name}' has several inputs called '{twice}'; give each a unique "
                             "name", code="TW0103")
        self.variables: dict[str, relay.Var] = {}
        self.values: dict[Name, relay.Expr] = {}
        """The value of each input by name: its variable, a tuple of variables, or nothing."""
        self.unknown: dict[str, Kind] = {}
        """Sequences and optionals whose shapes are not given."""
        self.map_values: dict[relay.Expr, DataType] = {}
        """Value types of the inputs that are maps."""
        self._symbols: dict[str, scalar.Var] = {}
        self._where: dict[scalar.Var, list[tuple[str, int]]] = {}
        shapes, dtypes = dict(shape or {}), dtype if isinstance(dtype, Mapping) else {}
        check_names((*shapes, *dtypes), list(protos))
        fixed = self._fixed_symbols(protos, shapes)
        for name, proto in protos.items():
            if proto.type.HasField("map_type"):
                self._add_map(name, proto.type.map_type)
                continue
            kind = kind_of(proto)
            given = dtypes.get(name) or (dtype if isinstance(dtype, str) else None)
            declared = element_type(kind.tensor.elem_type, f"input '{name}'")
            element = DataType(given) if given and (name in dtypes or declared.is_float) else declared
            if kind.is_plain:
                self.values[name] = self._variable(name, shapes[name] if name in shapes
                                                   else self._dims(name, kind.tensor, fixed), element)
            elif name not in shapes:
                self.unknown[name] = kind
            elif shapes[name] is None:
                self.values[name] = NOTHING
            elif kind.sequence:
                self.values[name] = relay.Tuple(tuple(self._variable(f"{name}.{k}", s, element)
                    for k, s in enumerate(shapes[name])))
            else:
                self.values[name] = self._variable(name, shapes[name], element)

    def _variable(self, name: str, dims: Sequence[Any], element: DataType) -> relay.Var:
        if why := refused_size(dims, element.itemsize):
            raise ModelError(f"input '{name}': {why}; give it a shape that it can have: shape={{{name!r}: (…)}}",
                             code="TW0112")
        found = self.variables[name] = relay.Var(name, TensorType(tuple(dims), element))
        return found

    def require_all(self) -> None:
        """Raise `ModelError` if the number of tensors in a sequence or the presence of an optional is unknown."""
        for name, kind in self.unknown.items():
            what = "the number of its tensors" if kind.sequence else "its presence"
            shapes = "[(…), (…)]" if kind.sequence else "(…)"
            raise ModelError(f"input '{name}' is {kind}, and {what} must be known at compile time; give its shape when "
                             f"importing: shape={{{name!r}: {shapes}}}"
                             + (", or None if it is empty" if kind.optional else ""), code="TW0113")

    def _add_map(self, name: str, kind: onnx.TypeProto.Map) -> None:
        """Add an input that is a dictionary: one Python object."""
        made = relay.Var(name, TensorType((), DataType("object")))
        self.values[name] = self.variables[name] = made
        self.map_values[made] = element_type(kind.value_type.tensor_type.elem_type, f"input '{name}'")

    def hint(self, symbols: Sequence[scalar.Var] = ()) -> str:
        """Advice on unknown dimensions: the input and the shape to give."""
        places = [place for s in symbols for place in self._where.get(s, ())]
        names = dict.fromkeys(name for name, _ in places) or dict.fromkeys(name for where in self._where.values()
            for name, _ in where)
        if not names:
            return ""
        said = "".join(f"; '{s.name}' is dimension {axis} of input '{name}'" for s in symbols
                       for name, axis in self._where.get(s, ())[:1])
        shapes = ", ".join(f"{name!r}: ({self._shape_with_holes(name)})" for name in names)
        return f"{said}; give the shape when importing: shape={{{shapes}}}"

    def _shape_with_holes(self, name: str) -> str:
        annotation = self.variables[name].type_annotation
        assert isinstance(annotation, TensorType)
        shown = ", ".join(str(d) if isinstance(d, int) else f"<{d}>" for d in annotation.shape)
        return f"{shown}," if annotation.ndim == 1 else shown

    def _fixed_symbols(self, protos: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, Any]:
        """The values of named dimensions that the given shapes determine; checks the given shapes."""
        fixed: dict[str, Any] = {}
        for name, given in shapes.items():
            if protos[name].type.HasField("map_type"):
                continue
            kind_given = kind_of(protos[name])
            if kind_given.accepts(given):
                continue
            if kind_given.sequence:
                raise ModelError(f"shape={{{name!r}: {given!r}}} is not a list with the shape of each tensor, but "
                                 f"input '{name}' is {kind_given}; write for example "
                                 f"shape={{{name!r}: [(1, 3), (2, 3)]}}", code="TW0112")
            if not _is_shape(given):
                raise ModelError(f"shape={{{name!r}: {given!r}}} is not a tuple of sizes; write for example "
                                 f"shape={{{name!r}: (1, 3, 224, 224)}}", code="TW0112")
            kind = kind_given.tensor
            dims = kind.shape.dim
            if kind.HasField("shape"):
                check_rank(name, given, len(dims))
            for dim, size in zip(dims, given, strict=False):
                known = size if isinstance(size, scalar.PrimExpr) else int(size)
                if dim.dim_param not in _NAMELESS and not same_shape((fixed.setdefault(dim.dim_param, known),),
                    (known,)):
                    raise ModelError(f"dimension '{dim.dim_param}' is given as {fixed[dim.dim_param]} and as {size}; "
                                     "the shapes of the inputs contradict each other", code="TW0112")
        return fixed

    def _dims(self, name: str, kind: Any, fixed: Mapping[str, Any]) -> list[Any]:
        if not kind.HasField("shape"):
            raise ModelError(f"the model does not say how many dimensions input '{name}' has; give its shape: "
                             f"shape={{{name!r}: (…)}}, or shapes={{…}} to compile", code="TW0113")
        dims: list[Any] = []
        for axis, dim in enumerate(kind.shape.dim):
            label = f"{name}_{axis}" if dim.dim_param in _NAMELESS else dim.dim_param
            if dim.HasField("dim_value") and dim.dim_value > 0:
                dims.append(dim.dim_value)
            elif label in fixed:
                dims.append(fixed[label])
            elif dim.HasField("dim_value") and dim.dim_value == 0:
                dims.append(0)
            else:
                symbol = self._symbols.setdefault(label, scalar.Var(label))
                self._where.setdefault(symbol, []).append((name, axis))
                dims.append(symbol)
        return dims


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of an input: a tensor type (`onnx.TypeProto.Tensor`), a sequence of it, or an optional of either."""

    tensor: Any
    sequence: bool = False
    optional: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is a tensor that must be given."""
        return not self.sequence and not self.optional

    def accepts(self, shape: Any) -> bool:
        """Whether `shape` has the form of a shape of this sequence or optional."""
        if shape is None:
            return self.optional
        return self.sequence and isinstance(shape, Sequence) and all(_is_shape(s) for s in shape)

    @property
    def dtype(self) -> str:
        """The type for a signature: `float32`, `seq(float32)`, `optional(seq(float32))`."""
        text = str(element_type(self.tensor.elem_type, "an input"))
        text = f"seq({text})" if self.sequence else text
        return f"optional({text})" if self.optional else text

    def __str__(self) -> str:
        inner = "a sequence of tensors" if self.sequence else "a tensor"
        return f"an optional of {inner}" if self.optional else inner


def _is_shape(given: Any) -> bool:
    return isinstance(given, Sequence) and all(isinstance(d, scalar.PrimExpr)
                                               or (isinstance(d, (int, np.integer)) and d >= 0) for d in given)


def kind_of(proto: onnx.ValueInfoProto) -> Kind:
    """The declared kind of an input; raises `ModelError` for maps and other unsupported types."""
    found, wrapped = proto.type, []
    while (which := found.WhichOneof("value")) in ("optional_type", "sequence_type") and which not in wrapped:
        wrapped.append(which)
        found = getattr(found, which).elem_type
    if which != "tensor_type" or wrapped == ["sequence_type", "optional_type"]:
        shown = " of a ".join([*wrapped, which or "no type"]).replace("_type", "")
        raise ModelError(f"input '{proto.name}' is a {shown}; an input must be a tensor, a sequence of tensors, or an "
                         "optional of one; change the model", code="TW0114")
    return Kind(found.tensor_type, "sequence_type" in wrapped, "optional_type" in wrapped)
