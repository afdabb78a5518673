"""Structural equality and hashing, of graphs, functions, loops, scalar expressions and types.

Names do not matter: two programs are equal if a one-to-one renaming of their variables and buffers makes them
identical. A graph call used twice differs from two calls; scalar expressions are values. The components of a node are
derived from its fields, so a new kind of node needs no code here. The comparison ignores `span` and `origin`, and what
a class of nodes declares: the fields `uncompared_fields`, and in its dictionaries the keys `uncompared_keys`.
Fractional numbers are equal if they differ by less than 1e-9, as in TVM. A multiply-add `fma(a, b, c)` equals
`c + a * b`, whose code TVM contracts. No recursion over a graph occurs. The hash is the same in every process.

The type of a variable of a `let` that has no annotation is not compared, since it follows from the value. Type
variables are bound by the generic function or data type, symbolic dimensions by the annotation of the variable
that contains them. All unknown dimensions are equal.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.array_bytes import to_bytes
from tilewright.base.errors import CompileError, DifferenceError
from tilewright.base.types import DataType, FuncType, TensorType, Type, TypeVar, type_children
from tilewright.ir import dialects
from tilewright.ir.virtual_device import VirtualDevice
from tilewright.scalar import expr as scalar
from tilewright.scalar.intrinsics import fma
from tilewright.scalar.walk import walk

_SKIPPED: Final = frozenset(
    {"span", "origin", "function_type", "tensors", "_type", "_declared", "reference", "__weakref__", "__dict__"})
_NO_KEYS: Final[frozenset[str]] = frozenset()
_BINDERS: Final = ("type_params", "type_vars", "params", "var", "buffer", "iters")
CLOSE: Final = 1e-9
"""Floating-point numbers with a smaller difference are equal."""
_FIELDS: dict[type, tuple[str, ...]] = {}
_LABELS: dict[type, tuple[tuple[str, str], ...]] = {}
MOST_LINES: Final = 6
"""Largest number of lines of a program part in a message."""
MOST_STEPS: Final = 32
"""Largest number of path steps in a message."""

_PLAIN: Final = frozenset({type(None), bool, int, str, DataType, scalar.IntImm})
"""Classes of values without parts, and of constants: the same one is equal on both sides."""
_ALIKE: Final = ((tuple, list), scalar.Buffer)
"""Classes of values that are compared, whichever class derived from them they have."""
_ATTRIBUTE: Final = "\0"
"""Prefix of the label of an operator's attribute; its path is the path of the call, followed by `attrs`."""


class _Program(dict[str, Any]):
    """The data types and functions of a module by name."""


class _Missing:
    """Placeholder for a function that only one module has."""

    def __repr__(self) -> str:
        return "no definition of that name"


_MISSING: Final = _Missing()


@dataclasses.dataclass(slots=True)
class Step:
    """One step of the path to a difference: the previous step, the nodes on both sides, and the label of the component.
    """

    before: Step | None
    label: str
    left: Any
    right: Any


def fields_of(kind: type) -> tuple[str, ...]:
    """Return the names of the compared fields of a node class, in order of declaration."""
    known = _FIELDS.get(kind)
    if known is None:
        if dataclasses.is_dataclass(kind):
            names = [f.name for f in dataclasses.fields(kind)]
        else:
            slots = [getattr(c, "__slots__", ()) for c in reversed(kind.__mro__)]
            names = [n for s in slots for n in ((s,) if isinstance(s, str) else s)]
        but = _SKIPPED | getattr(kind, "uncompared_fields", frozenset())
        known = _FIELDS[kind] = tuple(n for n in names if n not in but)
    return known


def is_name(x: Any) -> bool:
    """Return whether `x` is a variable or buffer, which is compared by its binding."""
    return isinstance(x, (scalar.Var, scalar.Buffer, TypeVar)) or hasattr(x, "type_annotation")


def _described(x: Any) -> tuple[tuple[str, Any], ...]:
    """Return the properties of a variable or buffer that are compared, besides its identity."""
    if isinstance(x, scalar.Var):
        return (("dtype", x.dtype),)
    if isinstance(x, scalar.Buffer):
        place = (("pointer", x.pointer),) if isinstance(x, scalar.PlacedBuffer) else ()
        return (("shape", x.shape), ("dtype", x.dtype), ("scope", x.scope), *place)
    if isinstance(x, TypeVar):
        return ()
    return (("type_annotation", x.known_type() if x.type_annotation is None else x.type_annotation),)


def _let_variable(x: Any) -> Any:
    """Return the variable of a let of a graph if it has no annotation, else None. Its type follows from the value."""
    var = getattr(x, "var", None) if hasattr(x, "value") and hasattr(x, "body") else None
    return var if getattr(var, "type_annotation", var) is None else None


def _parts(x: Any) -> list[tuple[str, Any]]:
    """Return the labelled components of a node, container or type. Binders come first, so that names are bound before
    their uses."""
    if isinstance(x, (tuple, list)):
        return [(f"[{i}]", v) for i, v in enumerate(x)]
    if isinstance(x, _Program):
        return [(f".{k}", x[k]) for k in sorted(x)]
    if isinstance(x, dict):
        return [(f"[{k!r}]", x[k]) for k in sorted(x, key=str)]
    if is_name(x):
        return [(f".{k}", v) for k, v in _described(x)]
    parts = [(label, getattr(x, n)) for label, n in _labels_of(type(x))]
    if but := _uncompared_keys(x):
        return [
            (n, {k: e for k, e in v.items() if k not in but} if isinstance(v, dict) else v) for n, v in parts
        ]
    return parts


def _uncompared_keys(x: Any) -> frozenset[str]:
    """Return the keys of a node's dictionaries that are not compared, as its class declares."""
    return getattr(type(x), "uncompared_keys", _NO_KEYS)


def _labels_of(kind: type) -> tuple[tuple[str, str], ...]:
    """Return the labels and names of the components of a node class."""
    known = _LABELS.get(kind)
    if known is None:
        names = fields_of(kind)
        if "body" in names:
            names = tuple(n for n in names if n in _BINDERS) + tuple(n for n in names if n not in _BINDERS)
        lead = _ATTRIBUTE if _is_op(kind) else ""
        known = _LABELS[kind] = tuple((f"{lead}.{n}", n) for n in names)
    return known


def _bound_names(x: Any) -> Iterator[Any]:
    """Yield the names that the node `x` itself binds."""
    names = fields_of(type(x)) if not isinstance(x, (tuple, list, dict)) else ()
    if "body" in names or {"var", "extent"} <= set(names) or "type_vars" in names or isinstance(x, FuncType):
        for n in _BINDERS:
            if n in names:
                value = getattr(x, n)
                for v in value if isinstance(value, tuple) else (value,):
                    if is_name(v):
                        yield v
                        yield from _sizes_of(getattr(v, "type_annotation", None))
    elif names == ("var",):  # a pattern
        yield x.var
        yield from _sizes_of(x.var.type_annotation)
    if "params" in names:
        yield from _sizes_and_inner(x)


def _sizes_of(t: Type | None) -> Iterator[scalar.Var]:
    """Yield the symbolic dimensions in a type."""
    if isinstance(t, TensorType):
        for d in t.shape:
            yield from (v for v in walk(d) if isinstance(v, scalar.Var)) if isinstance(d, scalar.PrimExpr) else ()
    elif t is not None:
        for c in type_children(t):
            yield from _sizes_of(c)


def _sizes_and_inner(func: Any) -> Iterator[Any]:
    """Yield the names that a function binds besides its parameters: their symbolic dimensions, and the buffers and
    variables in its attributes."""
    for p in func.params:
        for d in getattr(p, "shape", ()):
            yield from (v for v in walk(d) if isinstance(v, scalar.Var)) if isinstance(d, scalar.PrimExpr) else ()
    for listed in (getattr(func, "attrs", None) or {}).values():
        if isinstance(listed, tuple):
            yield from (v for v in listed if isinstance(v, scalar.Buffer))
            for entry in listed:  # variables with their positions or kinds
                yield from (v for v in entry if isinstance(v, scalar.Var)) if isinstance(entry, tuple) else ()


def _as_sum(x: Any) -> Any:
    """Return `c + a * b` for a multiply-add `fma(a, b, c)`; other values as they are."""
    if type(x) is scalar.Call and x.op is fma and len(x.args) == 3:
        a, b, c = x.args
        return scalar.add(c, scalar.mul(a, b))
    return x


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(
        x, (str, int, float, bool, bytes, np.generic, enum.Enum, type, VirtualDevice)) or not (
        isinstance(x, (tuple, list, dict, np.ndarray)) or is_name(x) or fields_of(type(x))
    )


def _is_shared(x: Any) -> bool:
    """Return whether sharing of the node is significant: only for graph calls."""
    return hasattr(x, "args") and not isinstance(x, (scalar.PrimExpr, Type))


class Comparison:
    """One comparison of two programs."""

    def __init__(self, map_free_vars: bool, exact: bool = False) -> None:
        self.map_free_vars, self.exact = map_free_vars, exact
        self.there: dict[Any, Any] = {}
        self.back: dict[Any, Any] = {}
        self.done: set[tuple[int, int]] = set()
        self.alive: list[Any] = []
        self.bound: set[int] = set()
        self.derived: set[int] = set()

    def difference(self, lhs: Any, rhs: Any) -> tuple[Step | None, Any, Any] | None:
        """Return the path to the first difference in reading order, and the values there on both sides; None if there
        is none."""
        stack: list[tuple[Any, Any, Step | None]] = [(lhs, rhs, None)]
        while stack:
            a, b, path = stack.pop()
            if not self.exact:
                a, b = _as_sum(a), _as_sum(b)
            if a is b and type(a) in _PLAIN:
                continue
            if _is_leaf(a) or _is_leaf(b):
                if not _same_leaf(a, b, self.exact):
                    return path, a, b
                continue
            if isinstance(a, np.ndarray):
                if not _same_array(a, b):
                    return path, a, b
                continue
            if (id(a), id(b)) in self.done:
                continue
            if not self._enter(a, b):
                return path, a, b
            below = self._below(a, b, path)
            if below is None:
                return path, a, b
            stack.extend(reversed(below))
        return None

    def _enter(self, a: Any, b: Any) -> bool:
        """Pair two nodes; return False if they cannot be equal."""
        if type(a) is not type(b) and not any(isinstance(a, k) and isinstance(b, k) for k in _ALIKE):
            return False
        if isinstance(a, scalar.UnknownDim):
            return True
        self.done.add((id(a), id(b)))
        self.alive += (a, b)
        if is_name(a):
            placed = isinstance(a, scalar.PlacedBuffer)  # it is bound if its address is
            if a is not b and not self.map_free_vars and id(a) not in self.bound and not placed:
                return False
            return self._pair(a, b)
        mine = list(_bound_names(a))
        self.bound.update(id(v) for v in mine)
        if (var := _let_variable(a)) is not None and _let_variable(b) is not None:
            self.derived.add(id(var))
        again = [*mine, *getattr(a, "type_params", ())]
        self._forget(again, self.there, self.back)
        self._forget([*_bound_names(b), *getattr(b, "type_params", ())], self.back, self.there)
        return not _is_shared(a) or self._pair(a, b)

    def _forget(self, names: Any, there: dict[Any, Any], back: dict[Any, Any]) -> None:
        """Rebind names, since two loops, or a function and its declared type, can bind the same ones."""
        for v in names:
            if v in there:
                _ = back.pop(there.pop(v), None)
                self.done.clear()

    def _pair(self, a: Any, b: Any) -> bool:
        return self.there.setdefault(a, b) is b and self.back.setdefault(b, a) is a

    def _below(self, a: Any, b: Any, path: Step | None) -> list[tuple[Any, Any, Step | None]] | None:
        if id(a) in self.derived:
            return []
        plain = type(a) is type(b) and not isinstance(a, (tuple, list, dict)) and not is_name(a)
        if plain and not _uncompared_keys(a):
            return [(getattr(a, n), getattr(b, n), Step(path, label, a, b)) for label, n in _labels_of(type(a))]
        mine, other = _parts(a), _parts(b)
        if [n for n, _ in mine] != [n for n, _ in other]:
            if not isinstance(a, (_Program, dict)):
                return None
            left, right = dict(mine), dict(other)
            mine = [(n, left.get(n, _MISSING)) for n in sorted({**left, **right})]
            other = [(n, right.get(n, _MISSING)) for n, _ in mine]
        return [(x, y, Step(path, n, a, b)) for (n, x), (_, y) in zip(mine, other, strict=True)]


def _same_leaf(a: Any, b: Any, exact: bool) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return a.hex() == b.hex() or (not exact and (a == b or abs(a - b) < CLOSE))
    if a is b:
        return True
    if isinstance(a, bool) != isinstance(b, bool) or isinstance(a, type):
        return False
    if isinstance(a, VirtualDevice):
        return bool(a == b)
    if dataclasses.is_dataclass(a):  # an operator without attributes
        return type(a) is type(b)
    if type(a) is type(b) and _has_equality(type(a)):  # a value with an equality of its own, as a target
        return (a == b) is True
    return (
        isinstance(a, (str, int, float, bytes, np.generic)) and isinstance(b, (str, int, float, bytes, np.generic))
        and bool(a == b)
    )


def _has_equality(kind: type) -> bool:
    """Return whether a class, or one that it is derived from, says itself which of its values are equal."""
    return any("__eq__" in vars(c) for c in kind.__mro__ if c is not object)


def _same_array(a: np.ndarray[Any, Any], b: Any) -> bool:
    if a is b:
        return True
    if not isinstance(b, np.ndarray) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(np.array_equal(a, b)) or to_bytes(a) == to_bytes(b)


def _text(path: Step | None) -> str:
    labels = []
    while path is not None:
        labels.append(path.label)
        path = path.before
    labels.reverse()
    if len(labels) > MOST_STEPS:
        half = MOST_STEPS // 2
        labels[half:-half] = [f" … {len(labels) - MOST_STEPS} steps … "]
    text = "".join(labels).replace(f".op{_ATTRIBUTE}", ".attrs").replace(_ATTRIBUTE, "")
    return text.removeprefix(".") or "the whole"


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False, *, exact: bool = False) -> bool:
    """Return whether both are equal up to the names that they bind (and, with `map_free_vars`, of free variables).

    With `exact`, numbers must have equal bits, as necessary to replace one program by the other.
    """
    return first_difference(lhs, rhs, map_free_vars, exact=exact) is None


def first_difference(
    lhs: Any, rhs: Any, map_free_vars: bool = False, *, exact: bool = False
) -> tuple[str, Any, Any] | None:
    """Return the first difference of two programs as `(path, left, right)`, or None."""
    sides = (rhs, rhs) if not exact and _are_same_index(lhs, rhs) else _pair(lhs, rhs)
    found = Comparison(map_free_vars, exact).difference(*sides)
    return None if found is None else (_text(found[0]), found[1], found[2])


def _are_same_index(lhs: Any, rhs: Any) -> bool:
    """Return whether both are one number as int32 and int64: indices have 64 bits here, and 32 in TVM."""
    return isinstance(lhs, scalar.IntImm) and isinstance(rhs, scalar.IntImm) and lhs.value == rhs.value and (
        {str(lhs.dtype), str(rhs.dtype)} == {"int32", "int64"})


def _pair(lhs: Any, rhs: Any) -> tuple[Any, Any]:
    """Return both sides; a number beside an expression is a constant of its type, also within lists."""
    if isinstance(lhs, (tuple, list)) and isinstance(rhs, (tuple, list)) and len(lhs) == len(rhs):
        pairs = [_pair(a, b) for a, b in zip(lhs, rhs, strict=True)]
        return tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    for a, b in ((lhs, rhs), (rhs, lhs)):
        if isinstance(a, scalar.PrimExpr) and isinstance(b, (bool, int, float)):
            number = scalar.const(b, a.dtype)
            return (a, number) if a is lhs else (number, a)
    return _program(lhs), _program(rhs)


def _program(x: Any) -> Any:
    """Return a module as its data types and functions by name; other values unchanged."""
    if not hasattr(x, "get_global_vars"):
        return x
    types = {f"type {header.name_hint}": data for header, data in x.type_definitions.items()}
    attrs = {"the attributes": dict(x.attrs)} if x.attrs else {}
    return _Program({**types, **attrs, **dict(x.items())})


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise `DifferenceError` with the first difference and the lines that contain it, unless both are equal in
    structure."""
    found = Comparison(map_free_vars).difference(*_pair(lhs, rhs))
    if found is None:
        return
    path, a, b = found
    lines = [f"the programs differ at {_text(path)}:", f"  left:  {_shown(a)}", f"  right: {_shown(b)}"]
    for side, whole, at in (("left", lhs, a), ("right", rhs, b)):
        line = _line_around(whole, at, path, side)
        lines += [f"  in the {side} program: {line}"] if line else []
    raise DifferenceError("\n".join(lines))


def _line_around(whole: Any, at: Any, path: Step | None, side: str) -> str | None:
    """Return the line of one program's text that contains its side of the difference, or the nearest enclosing one."""
    while True:
        line = dialects.line_of(whole, at)
        if line is not None or path is None:
            return line
        at, path = getattr(path, side), path.before


def _shown(x: Any) -> str:
    text = f"{x.dtype} array of shape {x.shape}" if isinstance(x, np.ndarray) else repr(x)
    lines = [line for line in text.split("\n") if not line.startswith("#[version")]
    more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    text = "\n         ".join(lines[:MOST_LINES] + more)
    return text if len(text) <= 2000 else f"{text[:2000]}…"


def structural_hash(x: Any, map_free_vars: bool = True, constants: str = "content") -> str:
    """Return a hash (32 hex digits) that equal programs share in every process. Close but unequal numbers have
    different hashes.

    Free variables count by position; with `map_free_vars=False` also by name. `constants` is `"content"`, or `"type"`
    to include only the shape and dtype of constants, which reads no data.
    """
    if constants not in ("content", "type"):
        raise CompileError(f"constants must be 'content' or 'type', not {constants!r}", code="TW0209")
    return _Digest(map_free_vars, constants == "content").of(_program(x))


class _Digest:
    """Writes a program as tokens, in reading order, into a hash; repeated nodes are written as their numbers."""

    def __init__(self, map_free_vars: bool, contents: bool) -> None:
        self.hash = hashlib.blake2b(digest_size=16)
        self.map_free_vars, self.contents = map_free_vars, contents
        self.numbers: dict[Any, int] = {}
        self.count = 0
        self.scalars: dict[Any, int] = {}
        self.keys: dict[Any, int] = {}
        self.bound: set[int] = set()
        self.derived: set[int] = set()

    def of(self, x: Any) -> str:
        stack = [x]
        while stack:
            y = stack.pop()
            if _is_leaf(y):
                self._write(_leaf_token(y))
            elif isinstance(y, np.ndarray):
                self._array(y)
            elif isinstance(y, scalar.PrimExpr) and not is_name(y):
                self._write(f"#{self._scalar(y)}")
            elif is_name(y) or _is_shared(y):
                if y in self.numbers:
                    self._write(f"@{self.numbers[y]}")
                    continue
                self.numbers[y] = self._next()
                self._open(y, stack)
            else:
                self._open(y, stack)
        return self.hash.hexdigest()

    def _open(self, x: Any, stack: list[Any]) -> None:
        parts = [] if id(x) in self.derived else _parts(x)
        if (var := _let_variable(x)) is not None:
            self.derived.add(id(var))
        kind = (
            "tuple" if isinstance(x, (tuple, list)) else "Buffer" if isinstance(x, scalar.Buffer)
            else getattr(x, "name", type(x).__name__) if _is_op(x) else type(x).__name__
        )
        self._write(f"{kind}({','.join(n for n, _ in parts)}")
        if is_name(x):
            if not self.map_free_vars and id(x) not in self.bound:
                self._write(getattr(x, "name", None) or x.name_hint)
        else:
            self._bind(list(_bound_names(x)))
        stack.extend(v for _, v in reversed(parts))

    def _scalar(self, e: scalar.PrimExpr) -> int:
        """Return the number of a scalar expression; equal expressions have equal numbers."""
        known = self.scalars.get(e)
        if known is not None:
            return known
        if (total := _as_sum(e)) is not e:
            return self._scalar(total)
        if isinstance(e, scalar.Var):
            key: tuple[Any, ...] = ("Var", e.dtype, "?" if isinstance(e, scalar.UnknownDim) else self._named(e))
        else:
            parts = [self._scalar_part(v) for _, v in _parts(e)]
            key = (type(e).__name__, e.dtype, *parts)
        number = self.keys.get(key)
        if number is None:
            number = self.keys[key] = len(self.keys)
            self._write(f"{number}={key!r}")
        self.scalars[e] = number
        return number

    def _scalar_part(self, v: Any) -> Any:
        if isinstance(v, scalar.PrimExpr):
            return self._scalar(v)
        if isinstance(v, tuple):
            return tuple(self._scalar_part(x) for x in v)
        if isinstance(v, scalar.Buffer):
            return ("Buffer", self._named(v), str(v.dtype), v.scope, tuple(self._scalar_part(d) for d in v.shape))
        if isinstance(v, float):
            return v.hex()
        return (
            v if isinstance(v, (int, str))
            else getattr(v, "name", None) or _Digest(self.map_free_vars, self.contents).of(v)
        )

    def _named(self, x: Any) -> Any:
        if not self.map_free_vars and id(x) not in self.bound:
            return x.name
        if x not in self.numbers:
            self.numbers[x] = self._next()
        return self.numbers[x]

    def _next(self) -> int:
        self.count += 1
        return self.count - 1

    def _bind(self, names: Sequence[Any]) -> None:
        """Bind names; names bound before get a new identity."""
        self.bound.update(id(v) for v in names)
        for v in names:
            if self.numbers.pop(v, None) is not None:
                self.scalars.clear()

    def _array(self, x: np.ndarray[Any, Any]) -> None:
        self._write(f"array:{x.dtype}:{x.shape}")
        if self.contents:
            self.hash.update(
                to_bytes(x) if x.dtype == object else np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)

    def _write(self, token: str) -> None:
        self.hash.update(token.encode())
        self.hash.update(b"\0")


def _is_op(x: Any) -> bool:
    return dataclasses.is_dataclass(x) and hasattr(x, "infer_call")


def _leaf_token(x: Any) -> str:
    if isinstance(x, bool) or x is None:
        return str(x)
    if isinstance(x, enum.Enum):
        return x.name
    if isinstance(x, float):
        return f"f{x.hex()}"
    if isinstance(x, int):
        return f"i{x}"
    if isinstance(x, str):
        return f"s{len(x)}:{x}"
    if isinstance(x, (bytes, np.generic, VirtualDevice)):
        return repr(x)
    return f"{type(x).__qualname__}:{getattr(x, 'name', '') or getattr(x, '__qualname__', '')}"

