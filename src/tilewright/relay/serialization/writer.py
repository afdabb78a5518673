"""Writes a program as JSON: `save_json`."""

from __future__ import annotations

import base64
import json
import math
from typing import Any, Final

import numpy as np

from tilewright.base.array_bytes import to_bytes
from tilewright.base.errors import CompileError, Origin
from tilewright.base.nd import NDArray, as_numpy
from tilewright.base.types import DataType, TensorType, Type
from tilewright.ir.container import Map
from tilewright.ir.env_func import EnvFunc
from tilewright.ir.module import IRModule
from tilewright.ir.virtual_device import VirtualDevice
from tilewright.relay.adt import Constructor
from tilewright.relay.expr import Call, Constant, Expr, GlobalVar
from tilewright.relay.op.registry import Op
from tilewright.relay.serialization.kinds import Kind, kinds_by_class
from tilewright.scalar import expr as scalar
from tilewright.scalar.intrinsics import Extern

FORMAT: Final = "tilewright"
VERSION: Final = 1


def save_json(what: Any) -> str:
    """Serialize a module, an expression, a type, a TIR function, an array, a registered function by its name, or a
    container of these, as text for `load_json`.

    Shared parts stay shared, constants included. Raises `CompileError` for any other value, such as an object in an
    attribute.
    """
    writer = _Writer()
    root = writer.module(what) if isinstance(what, IRModule) else writer.value(what)
    arrays = [_array(a) for a in writer.arrays]
    head = f'{{"format": "{FORMAT}", "version": {VERSION}, "root": {json.dumps(root)},\n"nodes": ['
    return "".join([
        head, ",\n".join(["", *map(json.dumps, writer.nodes)])[1:], '\n],\n"arrays": [',
        ",\n".join(["", *map(json.dumps, arrays)])[1:], "\n]}\n"
    ])


def _array(a: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {
        "dtype": str(DataType(a.dtype.newbyteorder("="))), "shape": list(a.shape),
        "data": base64.b64encode(to_bytes(a)).decode("ascii")
    }


class _Writer:
    """The nodes written so far, and their indices."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.arrays: list[np.ndarray[Any, Any]] = []
        self._numbers: dict[int, int] = {}
        self._array_numbers: dict[int, int] = {}
        self._static: dict[tuple[Any, ...], int] = {}
        self._alive: list[Any] = []

    def module(self, mod: IRModule) -> dict[str, Any]:
        """Return the root of a module's text. Data types come first, because functions refer to their constructors."""
        data = [self.value(d) for d in mod.type_definitions.values()]
        functions = [[name, self.value(mod.get_global_var(name)), self.value(f)] for name, f in mod.items()]
        return {"module": {"types": data, "functions": functions, "attrs": self.value(dict(mod.attrs))}}

    def value(self, x: Any) -> Any:
        """Return a value as JSON, and write the nodes inside it first."""
        for node in _nodes_in(x):
            self._write(node)
        return self._encoded(x)

    def _write(self, root: Any) -> None:
        """Number `root` and all nodes below it, operands first."""
        stack: list[tuple[Any, dict[str, Any] | None]] = [(root, None)]
        opened: set[int] = set()
        while stack:
            x, values = stack.pop()
            if id(x) in self._numbers:
                continue
            if values is None:
                if id(x) in opened:
                    raise CompileError(f"a {type(x).__name__} contains itself, and cannot be saved", code="TW0407")
                opened.add(id(x))
                values = _values(x)
                stack.append((x, values))
                stack.extend(
                    (c, None) for c in reversed(list(_nodes_in(list(values.values())))) if id(c) not in self._numbers)
                continue
            self._number(x, values)

    def _number(self, x: Any, values: dict[str, Any]) -> None:
        key = (x.shape, x.dtype) if isinstance(x, TensorType) and x.is_static else None
        known = None if key is None else self._static.get(key)
        if known is None:
            known = len(self.nodes)
            self.nodes.append(
                {"class": kinds_by_class()[type(x)].name, **{n: self._encoded(v) for n, v in values.items()}})
            if key is not None:
                self._static[key] = known
        self._alive.append(x)
        self._numbers[id(x)] = known

    def _encoded(self, x: Any) -> Any:
        if x is None or (isinstance(x, (bool, str, int)) and not isinstance(x, DataType)):
            return x
        if isinstance(x, float):
            return x if math.isfinite(x) else {"float": str(x)}
        if isinstance(x, tuple):
            return [self._encoded(v) for v in x]
        if id(x) in self._numbers:
            return {"node": self._numbers[id(x)]}
        return self._tagged(x)

    def _tagged(self, x: Any) -> dict[str, Any]:
        match x:
            case DataType():
                return {"dtype": str(x)}
            case list():
                return {"list": [self._encoded(v) for v in x]}
            case dict():
                return {"map": [[self._encoded(k), self._encoded(v)] for k, v in x.items()]}
            case Op():
                return {"op": x.name, "attrs": {k: self._encoded(v) for k, v in x.attributes().items()}}
            case type() if issubclass(x, Op):
                return {"op class": x.name}
            case Origin():
                return {"span": [x.name, x.kind, x.file, x.line]}
            case np.ndarray():
                return {"array": self._array_number(x)}
            case NDArray():
                return {"ndarray": self._array_number(as_numpy(x))}
        return self._rare(x)

    def _rare(self, x: Any) -> dict[str, Any]:
        match x:
            case Extern():
                return {"extern": x.spelling, "pure": not x.effect}
            case scalar.Intrinsic():
                return {"intrinsic": x.spelling}
            case np.generic():
                return {"number": self._array_number(np.asarray(x))}
            case Map():
                return {"mapping": [[self._encoded(k), self._encoded(v)] for k, v in x.items()]}
            case EnvFunc():
                return {"function": x.name}
            case VirtualDevice() if x.target is None:
                return {"device": [VirtualDevice(x.device).literal, x.memory_scope]}
            case bytes():
                return {"bytes": base64.b64encode(x).decode("ascii")}
        raise CompileError(
            f"a {type(x).__name__} cannot be saved as JSON: {x!r}; modules, expressions, types, functions, arrays and "
            "plain values can",
            code="TW0407")

    def _array_number(self, a: np.ndarray[Any, Any]) -> int:
        number = self._array_numbers.setdefault(id(a), len(self.arrays))
        if number == len(self.arrays):
            self.arrays.append(a)
        return number


def _values(x: Any) -> dict[str, Any]:
    """Return the fields of a node, with its inferred type if the fields do not determine it."""
    kind: Kind = kinds_by_class()[type(x)]
    values = (
        kind.values(x) if type(x) not in (scalar.Ramp, scalar.Broadcast)
        else {n: x.dtype.lanes if n == "lanes" else getattr(x, n) for n in kind.fields}
    )
    found = _found_type(x) if isinstance(x, Expr) and not isinstance(x, Type) else None
    if found is None:
        return values
    return {**values, "function_type" if isinstance(x, GlobalVar) else "type": found}


def _found_type(e: Expr) -> Type | None:
    """Return the type of `e` if its operands do not determine it, else None."""
    known = e.known_type()
    if (
        known is None or isinstance(e, (Constant, Constructor))
        or (isinstance(e, Call) and not isinstance(e.op, Expr) and all(a.known_type() is not None for a in e.args))
    ):
        return None
    return None if e.infer_type() == known else known


def _nodes_in(x: Any) -> list[Any]:
    """Return the nodes that a value contains directly, without those inside nodes."""
    if type(x) in kinds_by_class():
        return [x]
    if isinstance(x, (tuple, list)):
        return [n for v in x for n in _nodes_in(v)]
    if isinstance(x, (dict, Map)):
        return [n for k, v in x.items() for n in (*_nodes_in(k), *_nodes_in(v))]
    return [n for v in x.attributes().values() for n in _nodes_in(v)] if isinstance(x, Op) else []
