"""Reads programs that TVM v0.6 to v0.13 saved as JSON: `load_json` of a text with `nodes` and `b64ndarrays`.

    {"root": 1, "nodes": [{"type_key": ""}, {"type_key": "GlobalVar", "attrs": {"name_hint": "2", …}}, …]}

A node has fields whose values are texts: the index of another node, a number, a dtype, or the text itself. Which one a
field has depends on its name and on the kind of node; `_TABLE` lists the kinds, and `tvm_attributes.py` the attributes
of operators. Node 0 is null. Names of kinds and of fields before v0.8 are read as their later ones.

Loading runs no code. The nodes are built in the order of their references, without recursion.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import Origin, ParseError
from tilewright.base.params import read_array
from tilewright.base.settings import nearest
from tilewright.base.types import (
    DataType,
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    TypeCall,
    TypeKind,
    TypeVar,
)
from tilewright.ir.container import Array, Map
from tilewright.ir.env_func import EnvFunc
from tilewright.ir.module import IRModule
from tilewright.ir.source import SequentialSpan, SourceName, Span
from tilewright.relay import adt
from tilewright.relay import expr as graph
from tilewright.relay.op.registry import Op, get
from tilewright.relay.serialization.tvm_attributes import field_form, operator_attributes, plain_value
from tilewright.scalar import expr as scalar

Fields = Mapping[str, Any]
_NULL: Final = 0
_ARRAYS: Final = "b64ndarrays"


def is_tvm_form(found: Any) -> bool:
    """Return whether a JSON value is a program as TVM writes it."""
    return (isinstance(found, dict) and isinstance(found.get("nodes"), list) and "root" in found
            and "format" not in found)


class TvmGraph:
    """The nodes of a text, and those built so far. `place` is the current position in the text."""

    def __init__(self, found: Mapping[str, Any], max_bytes: int) -> None:
        self.nodes: Sequence[Any] = found["nodes"]
        self.root = found["root"]
        self.place = "the text"
        texts = found.get(_ARRAYS) or []
        if sum(len(t) for t in texts) * 3 // 4 > max_bytes:
            raise ParseError("the arrays exceed the size limit", code="TW0406")
        self.arrays = [read_array(base64.b64decode(t)) for t in texts]
        self.built: dict[int, Any] = {_NULL: None}

    def whole(self) -> Any:
        """Return the root. Builds the nodes below it, operands first."""
        stack, opened = [self._index(self.root)], set()
        while stack:
            k = stack[-1]
            if k in self.built:
                stack.pop()
                continue
            self.place = f"nodes[{k}] ({self.nodes[k].get('type_key')})"
            missing = [r for r in self._references(k) if r not in self.built]
            if missing:
                if k in opened:
                    raise ParseError(f"{self.place} contains itself", code="TW0406")
                opened.add(k)
                stack.extend(reversed(missing))
                continue
            self.built[k] = self._build(k)
            stack.pop()
        return self.built[self._index(self.root)]

    def _index(self, text: Any) -> int:
        index = int(text)
        if not 0 <= index < len(self.nodes):
            raise ParseError(f"node {index} is not defined; there are {len(self.nodes)}", code="TW0406")
        return index

    def _references(self, k: int) -> list[int]:
        """Return the nodes that a node refers to."""
        given = self.nodes[k]
        found = [self._index(i) for i in given.get("data", ())]
        key = _current(given["type_key"])
        for name, text in (given.get("attrs") or {}).items():
            if self._is_reference(key, name, text):
                found.append(self._index(text))
        return found

    def _is_reference(self, key: str, name: str, text: str) -> bool:
        if key in _IGNORED or name in _IGNORED_FIELDS:
            return False
        form = field_form(key, name)
        if form != "text":
            return form == "node"
        return text.isdecimal() and 0 < int(text) < len(self.nodes) and (
            self.nodes[int(text)].get("type_key") == "runtime.String")

    def _build(self, k: int) -> Any:
        given = self.nodes[k]
        key = _current(given["type_key"])
        if key in _IGNORED:
            return None
        if key == "Array":
            return Array([self.built[i] for i in given.get("data", ())])
        if key == "Map":
            return self._map(given)
        if key in _BY_NAME:
            return _BY_NAME[key](_name_of(given))
        fields = {n: self._field(key, n, t) for n, t in (given.get("attrs") or {}).items() if n not in _IGNORED_FIELDS}
        if key.startswith("relay.attrs."):
            return fields
        build = _TABLE.get(key)
        if build is None:
            raise ParseError(f"there is no kind of node '{key}'{nearest(key, _TABLE)}", code="TW0406")
        return build(fields)

    def _map(self, given: Mapping[str, Any]) -> Map:
        data = [self.built[i] for i in given.get("data", ())]
        keys = given.get("keys")
        return Map(dict(zip(keys, data, strict=True)) if keys else dict(zip(data[::2], data[1::2], strict=True)))

    def _field(self, key: str, name: str, text: str) -> Any:
        if self._is_reference(key, name, text):
            return self.built[self._index(text)]
        match field_form(key, name):
            case "int":
                return int(text)
            case "bool":
                return bool(int(text))
            case "float":
                return float(text)
            case "dtype":
                return DataType(text) if text not in ("", "void") else None
            case "array":
                return self.arrays[int(text)]
        return text


def _name_of(given: Mapping[str, Any]) -> str:
    if "repr_b64" in given:
        return base64.b64decode(given["repr_b64"]).decode()
    return str(given.get("repr_str", given.get("global_key", "")))


def _current(key: str) -> str:
    """Return the later name of a kind of node."""
    key = _RENAMED.get(key, key)
    short = key.removeprefix("relay.")
    if short in _SHORT:
        return short
    return f"tir.{key}" if f"tir.{key}" in _TABLE else key


def _module(f: Fields) -> IRModule:
    mod = IRModule()
    for name, data in (f.get("type_definitions") or {}).items():
        mod[name] = data
    for var, function in (f.get("functions") or {}).items():
        mod[var] = function
    mod.attrs.update(f.get("attrs") or {})
    return mod


def _function(f: Fields) -> graph.Function:
    attrs = {k: plain_value(v) for k, v in (f["attrs"] or {}).items()}
    return graph.Function(f["params"] or (), f["body"], f["ret_type"], f["type_params"], attrs, f.get("span"))


def _call(f: Fields) -> graph.Call:
    op = f["op"]
    if isinstance(op, type) and issubclass(op, Op):
        return graph.Call(op(**operator_attributes(op, f["attrs"] or {})), f["args"], span=f.get("span"))
    own = {k: plain_value(v) for k, v in (f.get("attrs") or {}).items()}
    return graph.Call(op, f["args"], own or None, span=f.get("span"))


def _constant(f: Fields) -> graph.Constant:
    value: np.ndarray[Any, Any] = f["data"]
    return graph.Constant(value, f.get("span"))


def _constructor(f: Fields) -> adt.Constructor:
    return adt.Constructor(f["name_hint"], f["inputs"], f["belong_to"], f.get("span"))


def _span(f: Fields) -> Origin | None:
    source = f["source_name"]
    return source and Span(source, *(int(f[n]) for n in ("line", "end_line", "column", "end_column")))


def _type_variable(f: Fields) -> TypeVar:
    name = f["name_hint"] if "name_hint" in f else f["var"].name
    return TypeVar(name, TypeKind(f.get("kind", 0)))


def _type_name(f: Fields) -> GlobalTypeVar:
    name = f["name_hint"] if "name_hint" in f else f["var"].name
    return GlobalTypeVar(name, TypeKind(f.get("kind", TypeKind.AdtHandle)))


def _variable(f: Fields) -> graph.Var:
    known = f["type_annotation"]
    return graph.Var(f["vid"], None if isinstance(known, IncompleteType) else known, f.get("span"))


def _spanned(cls: type, *names: str) -> Callable[[Fields], Any]:
    """Return a builder of nodes whose constructor takes these fields, and the span."""
    return lambda f: cls(*(f[n] for n in names), span=f.get("span"))


def _plain(cls: Any, *names: str) -> Callable[[Fields], Any]:
    """Return a builder of nodes whose constructor takes these fields."""
    return lambda f: cls(*(f[n] for n in names))


_BY_NAME: Final[dict[str, Callable[[str], Any]]] = {
    "EnvFunc": EnvFunc.get, "Op": get, "SourceName": SourceName, "runtime.String": str,
}
_RENAMED: Final = {"StrMap": "Map", "Variable": "tir.Var", "relay.Module": "IRModule", "SizeVar": "tir.SizeVar"}
_SHORT: Final = frozenset({
    "FuncType", "GlobalTypeVar", "GlobalVar", "IncompleteType", "Op", "TupleType", "TypeCall", "TypeVar"})
_IGNORED: Final = frozenset({"SourceMap", "VirtualDevice", "parser.SourceMap"})
_IGNORED_FIELDS: Final = frozenset({"_checked_type_", "global_type_var_map_", "global_var_map_", "virtual_device_",
                                    "source_map", "type_args", "global_infos"})
"""Fields that follow from the others."""
_TABLE: Final[dict[str, Callable[[Fields], Any]]] = {
    "DictAttrs": lambda f: dict(f["__dict__"] or {}),
    "FloatImm": _plain(scalar.FloatImm, "dtype", "value"),
    "FuncType": lambda f: FuncType(f["arg_types"], f["ret_type"], f["type_params"] or ()),
    "GlobalTypeVar": _type_name,
    "GlobalVar": lambda f: graph.GlobalVar(f["name_hint"], span=f.get("span")),
    "IRModule": _module,
    "IncompleteType": lambda f: IncompleteType(),
    "IntImm": _plain(scalar.IntImm, "dtype", "value"),
    "SequentialSpan": lambda f: SequentialSpan(f["spans"]),
    "Span": _span,
    "TupleType": _plain(TupleType, "fields"),
    "TypeCall": _plain(TypeCall, "func", "args"),
    "TypeVar": _type_variable,
    "relay.Call": _call,
    "relay.Clause": _plain(adt.Clause, "lhs", "rhs"),
    "relay.Constant": _constant,
    "relay.Constructor": _constructor,
    "relay.Function": _function,
    "relay.Id": lambda f: f["name_hint"],
    "relay.If": _spanned(graph.If, "cond", "true_branch", "false_branch"),
    "relay.Let": _spanned(graph.Let, "var", "value", "body"),
    "relay.Match": lambda f: adt.Match(f["data"], f["clauses"], f["complete"]),
    "relay.PatternConstructor": _plain(adt.PatternConstructor, "constructor", "patterns"),
    "relay.PatternTuple": _plain(adt.PatternTuple, "patterns"),
    "relay.PatternVar": _plain(adt.PatternVar, "var"),
    "relay.PatternWildcard": lambda f: adt.PatternWildcard(),
    "relay.RefCreate": _spanned(graph.RefCreate, "value"),
    "relay.RefRead": _spanned(graph.RefRead, "ref"),
    "relay.RefType": _plain(RefType, "value"),
    "relay.RefWrite": _spanned(graph.RefWrite, "ref", "value"),
    "relay.TensorType": lambda f: TensorType([plain_value(d) for d in f["shape"]], f["dtype"]),
    "relay.Tuple": _spanned(graph.Tuple, "fields"),
    "relay.TupleGetItem": lambda f: graph.TupleGetItem(f["tuple_value"], f["index"], f.get("span")),
    "relay.TypeData": _plain(adt.TypeData, "header", "type_vars", "constructors"),
    "relay.Var": _variable,
    "tir.Any": lambda f: scalar.UnknownDim(),
    "tir.Cast": _plain(scalar.Cast, "dtype", "value"),
    "tir.Not": _plain(scalar.Not, "a"),
    "tir.Select": _plain(scalar.Select, "condition", "true_value", "false_value"),
    "tir.SizeVar": _plain(scalar.Var, "name", "dtype"),
    "tir.Var": _plain(scalar.Var, "name", "dtype"),
    **{f"tir.{name}": _plain(getattr(scalar, kind), "a", "b") for name, kind in {
        **{n: n for n in ("Add", "Sub", "Mul", "Div", "FloorDiv", "FloorMod", "Min", "Max", "EQ", "NE", "LT", "LE",
                          "GT", "GE", "And", "Or")}, "Mod": "TruncMod"}.items()},
}
