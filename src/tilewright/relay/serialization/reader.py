"""Reads a program from JSON: `load_json`, for untrusted texts.

Loading runs no code. A node refers only to earlier nodes, so there are no cycles and no recursion over the program.
Array sizes are checked before decoding. Every fault is a `ParseError` with its position.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from tilewright.base.array_bytes import from_bytes
from tilewright.base.errors import CompileError, Origin, ParseError, TVMError
from tilewright.base.nd import array
from tilewright.base.settings import nearest
from tilewright.base.type_matching import bind_types
from tilewright.base.types import DataType, Type
from tilewright.ir.container import Map
from tilewright.ir.env_func import EnvFunc
from tilewright.ir.module import IRModule
from tilewright.ir.virtual_device import virtual_device
from tilewright.relay.adt import TypeData
from tilewright.relay.expr import Expr, Function, GlobalVar
from tilewright.relay.op.registry import get
from tilewright.relay.serialization.kinds import MAXIMUM_LANES, fits, hint_text, kinds_by_name
from tilewright.relay.serialization.tvm_json import TvmGraph, is_tvm_form
from tilewright.relay.serialization.writer import FORMAT, VERSION
from tilewright.scalar import intrinsics
from tilewright.scalar.expr import Intrinsic
from tilewright.tir.stmt import PrimFunc

DEEPEST: Final = 64
"""Largest nesting depth of lists and maps in one field."""
MOST_BYTES: Final = 1 << 34
_FAULTS: Final = (TVMError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
_INTRINSICS: Final = {f.spelling: f for f in vars(intrinsics).values() if isinstance(f, Intrinsic)}


def load_json(text: str, max_bytes: int = MOST_BYTES) -> Any:
    """Read the text that `save_json` wrote, or that TVM v0.6 to v0.13 wrote. Safe for untrusted text.

    Raises `ParseError` with the position of a fault, for another version, and if the constants exceed `max_bytes`.
    """
    try:
        found = json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        raise ParseError(
            f"the text is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}", code="TW0406"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ParseError(f"the JSON text cannot be read: {error}", code="TW0406") from None
    if is_tvm_form(found):
        graph = TvmGraph(found, max_bytes)
        return _checked(graph, graph.whole)
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ParseError(
            f"the text is not a program saved as JSON: it does not begin with 'format': '{FORMAT}'", code="TW0406")
    if found.get("version") != VERSION:
        raise ParseError(
            f"the text has version {found.get('version')!r}, but only version {VERSION} is supported; save the "
            "program again",
            code="TW0406")
    reader = _Reader(max_bytes)
    return _checked(reader, lambda: reader.whole(found))


def _checked(reader: _Reader | TvmGraph, read: Callable[[], Any]) -> Any:
    """Return what `read` returns. Raises `ParseError` with the place of a fault."""
    try:
        return read()
    except _FAULTS as error:
        message = (
            error.message if isinstance(error, CompileError) else f"{type(error).__name__}: {error}" if str(error)
            else type(error).__name__
        )
        raise ParseError(f"the saved program is damaged at {reader.place}: {message}", code="TW0406") from None
    except (MemoryError, RecursionError) as error:
        raise ParseError(
            f"the saved program is damaged at {reader.place}: it is too large ({type(error).__name__})",
            code="TW0406"
        ) from None


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number in JSON")


class _Reader:
    """The nodes and arrays read so far, by index. `place` is the current position in the text."""

    def __init__(self, max_bytes: int) -> None:
        self.nodes: list[Any] = []
        self.arrays: list[np.ndarray[Any, Any]] = []
        self.left = max_bytes
        self.place = "the text"

    def whole(self, found: dict[str, Any]) -> Any:
        for i, a in enumerate(_listed(found, "arrays")):
            self.place = f"arrays[{i}]"
            self.arrays.append(self._array(a))
        for i, n in enumerate(_listed(found, "nodes")):
            self.place = f"nodes[{i}]"
            self.nodes.append(self._node(i, n))
        self.place = "root"
        root = found.get("root")
        return self._module(root["module"]) if isinstance(root, dict) and "module" in root else self._value(root, 0)

    def _array(self, a: Any) -> np.ndarray[Any, Any]:
        dtype, shape, data = DataType(_text(a["dtype"])), a["shape"], _text(a["data"])
        if not isinstance(shape, list) or len(shape) > 32 or not all(fits(d, int) and d >= 0 for d in shape):
            raise ParseError(f"{shape!r} is not a shape", code="TW0406")
        given = len(data) * 3 // 4 - data[-2:].count("=")
        wanted = given if dtype.is_object else math.prod(shape) * dtype.itemsize
        self.left -= wanted
        if self.left < 0:
            raise ParseError(f"the arrays exceed the size limit; this one has {wanted} bytes", code="TW0406")
        if given != wanted:
            raise ParseError(
                f"an array of {dtype} of shape {tuple(shape)} needs {wanted} bytes, but has {given}", code="TW0406")
        try:
            raw = base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise ParseError(f"its contents are not valid base64: {error}", code="TW0406") from None
        return from_bytes(raw, dtype, shape)

    def _node(self, number: int, given: Any) -> Any:
        if not isinstance(given, dict):
            raise ParseError("a node must be a map", code="TW0406")
        kinds = kinds_by_name()
        name = _text(given.get("class"))
        kind = kinds.get(name)
        if kind is None:
            raise ParseError(f"there is no kind of node '{name}'{nearest(name, kinds)}", code="TW0406")
        self.place = f"nodes[{number}] ({name})"
        extra = set(given) - set(kind.fields) - {"class", "type"}
        if extra:
            raise ParseError(f"a {name} has no field '{min(extra)}'{nearest(min(extra), kind.fields)}", code="TW0406")
        fields: dict[str, Any] = {}
        for field, (_, hint) in kind.fields.items():
            if field not in given and field in kind.defaults:
                continue
            if field not in given:
                raise ParseError(f"the field '{field}' is missing", code="TW0406")
            value = fields[field] = self._value(given[field], 0)
            if not fits(value, hint):
                raise ParseError(
                    f"the field '{field}' must be {hint_text(hint)}, not {_shown(value)}", code="TW0406")
        if fields.get("lanes", 1) not in range(1, MAXIMUM_LANES):
            raise ParseError(f"{fields['lanes']} is not a number of lanes", code="TW0406")
        made = kind.build(**fields)
        if "type" in given:
            self._found_type(made, self._value(given["type"], 0))
        return made

    def _found_type(self, e: Any, found: Any) -> None:
        """Record the inferred type of a node whose operands do not determine it."""
        if not isinstance(e, Expr) or not isinstance(found, Type):
            raise ParseError("the field 'type' must be the type of an expression", code="TW0406")
        own = e.known_type()
        if own is not None and not bind_types(own, found, frozenset(), {}):
            raise ParseError(f"its type is {own!r}, but the text contains {found!r}", code="TW0406")
        e.set_type(found)

    def _module(self, given: Any) -> IRModule:
        mod = IRModule()
        for i, d in enumerate(_listed(given, "types")):
            self.place = f"root, types[{i}]"
            data = self._value(d, 0)
            if not isinstance(data, TypeData):
                raise ParseError("the definition of a data type is expected", code="TW0406")
            mod[data.header] = data
        for i, entry in enumerate(_listed(given, "functions")):
            self.place = f"root, functions[{i}]"
            name, var, function = (self._value(v, 0) for v in entry)
            if (
                not isinstance(name, str) or not isinstance(var, GlobalVar) or var.name_hint != name
                or not isinstance(function, (Function, PrimFunc))
            ):
                raise ParseError("a name, its GlobalVar and a function are expected", code="TW0406")
            if name in mod:
                raise ParseError(f"the function '{name}' occurs twice", code="TW0406")
            mod[var] = function
        self.place = "root, attrs"
        attrs = self._value(given["attrs"], 0)
        if not fits(attrs, dict[str, Any]):
            raise ParseError("attributes must be a map with names as keys", code="TW0406")
        mod.attrs.update(attrs)
        return mod

    def _value(self, x: Any, depth: int) -> Any:
        if depth > DEEPEST:
            raise ParseError(f"a value is nested deeper than {DEEPEST} levels", code="TW0406")
        if isinstance(x, list):
            return tuple(self._value(v, depth + 1) for v in x)
        if not isinstance(x, dict):
            return x
        tag = next(iter(x), "")
        inner: Any = x.get(tag)
        if tag == "node":
            return self._known(self.nodes, inner, "node")
        if tag == "list":
            return [self._value(v, depth + 1) for v in inner]
        if tag in ("map", "mapping"):
            found = {self._value(k, depth + 1): self._value(v, depth + 1) for k, v in inner}
            return found if tag == "map" else Map(found)
        if tag == "op":
            return get(_text(inner))(**{k: self._value(v, depth + 1) for k, v in x["attrs"].items()})
        return self._plain(tag, inner, x)

    def _plain(self, tag: str, inner: Any, x: dict[str, Any]) -> Any:
        match tag:
            case "dtype":
                return DataType(_text(inner))
            case "array":
                return self._known(self.arrays, inner, "array")
            case "ndarray":
                return array(self._known(self.arrays, inner, "array"))
            case "op class":
                return get(_text(inner))
            case "function":
                return EnvFunc.get(_text(inner))
            case "number":
                return self._known(self.arrays, inner, "array").reshape(-1)[0]
            case "float":
                return float({"inf": "inf", "-inf": "-inf", "nan": "nan"}[inner])
            case "span":
                name, kind, file, line = inner
                if not all(isinstance(v, str) for v in (name, kind, file)) or not fits(line, int):
                    raise ParseError("a span must be a name, a kind, a file and a line", code="TW0406")
                return Origin(name, kind, file, line)
            case "intrinsic":
                if inner not in _INTRINSICS:
                    raise ParseError(
                        f"there is no intrinsic function '{inner}'{nearest(str(inner), _INTRINSICS)}", code="TW0406")
                return _INTRINSICS[inner]
            case "extern":
                return intrinsics.extern(_text(inner), pure=bool(x.get("pure")))
            case "device":
                place, scope = map(_text, inner)
                return replace(virtual_device(place), memory_scope=scope)
            case "bytes":
                return base64.b64decode(_text(inner), validate=True)
        raise ParseError(f"there is no kind of value '{tag}'", code="TW0406")

    def _known(self, table: list[Any], number: Any, what: str) -> Any:
        if not fits(number, int) or not 0 <= number < len(table):
            raise ParseError(f"{what} {number!r} is not defined before its use; {len(table)} are", code="TW0406")
        return table[number]


def _listed(given: Any, name: str) -> list[Any]:
    found = given.get(name) if isinstance(given, dict) else None
    if not isinstance(found, list):
        raise ParseError(f"the list '{name}' is missing", code="TW0406")
    return found


def _text(x: Any) -> str:
    if not isinstance(x, str):
        raise ParseError(f"a string is expected, not {_shown(x)}", code="TW0406")
    return x


def _shown(value: Any) -> str:
    """Return a short description of an invalid value for messages; scalars are shown themselves."""
    return f"{value!r}"[:60] if isinstance(value, (str, int, float, bool, type(None))) else f"a {type(value).__name__}"
