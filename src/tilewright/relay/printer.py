"""Relay as text, in the field's form, version 0.0.5.

    %0 = nn.conv2d(%x, meta[relay.Constant][0], padding=[1, 1, 1, 1]) /* ty=Tensor[(1, 8, 32, 32), float32] */;

One call per line in the order of evaluation, the last one unnamed. An attribute is printed when it differs from its
default. Tensors are `meta[relay.Constant][i]`, numbered by first use, and listed at the end when asked for. The body of a
function and each branch of an `if` is a scope: what is first used inside is named inside. Graphs may be arbitrarily deep;
functions and branches within each other nest the printer.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from tilewright.errors import InternalError
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from tilewright.types import DataType, Type

VERSION: Final = '#[version = "0.0.5"]'
_SUFFIX: Final = {"float32": "f", "float64": "f64", "int32": "", "int64": "i64"}


def text_of(expr: Expr) -> str:
    """An expression or function as text; variables that nothing binds come first, as `free_var`."""
    if isinstance(expr, Constant) and _scalar_text(expr.value) is None:
        return _described(expr)
    return _Printer().whole(expr)


def astext(what: Any, show_meta_data: bool = False) -> str:
    """A module, function or expression as text with the version line; `show_meta_data` adds the constants' values."""
    printer = _Printer()
    functions = getattr(what, "items", None)
    parts = [printer.definition(name, f) for name, f in functions()] if functions is not None else [printer.whole(what)]
    if show_meta_data and printer.constants:
        parts.append(printer.metadata())
    return VERSION + "\n" + "\n\n".join(parts) + "\n"


def attribute_text(value: Any, declared: str = "") -> str:
    """The value of an attribute; whole numbers of an attribute declared `float` are floats."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, str):
        return json.dumps(str(value))
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(attribute_text(v) for v in value)}]"
    if isinstance(value, float) or (declared == "float" and isinstance(value, int)):
        return _float_text(float(value)) + "f"
    return str(value)


def _float_text(value: float) -> str:
    return repr(value).removesuffix(".0")


def _scalar_text(value: np.ndarray[Any, Any]) -> str | None:
    """A scalar constant inline; None for what goes to the meta data."""
    if value.ndim:
        return None
    dtype = str(DataType(value.dtype))
    if dtype == "bool":
        return str(bool(value))
    suffix = _SUFFIX.get(dtype)
    if suffix is None or not math.isfinite(value):
        return None
    return (_float_text(float(str(value))) if suffix.startswith("f") else str(int(value))) + suffix


def _described(constant: Constant) -> str:
    """A tensor on its own: its type, range and a hash of its contents."""
    value = constant.value
    contents = hashlib.sha256(value.tobytes()).hexdigest()[:16]
    span = f"from {value.min()} to {value.max()}, " if value.size else ""
    return f"meta[relay.Constant][0] /* ty={constant.known_type()!r}, {span}sha256 {contents} */"


class _Printer:
    """The names given so far: of variables, of the values of the scopes that are open, and of constants."""

    def __init__(self) -> None:
        self.constants: list[Constant] = []
        self._constant_index: dict[Constant, int] = {}
        self._variables: dict[Var, str] = {}
        self._taken: dict[str, int] = {}
        self._values: list[dict[Expr, str]] = [{}]
        self._count = 0

    # Whole texts.
    def whole(self, expr: Expr) -> str:
        free = _free_variables(expr)
        lines = [f"free_var {self._parameter(v)};" for v in free]
        if isinstance(expr, Function):
            return "\n".join([*lines, self._function(expr, "fn ", "")])
        return "\n".join([*lines, *self._scope(expr)])

    def definition(self, name: str, function: Any) -> str:
        """`def @name(…) -> … { … }`; the names of values start anew."""
        if not isinstance(function, Function):
            return repr(function)
        self._variables, self._taken, self._count = {}, {}, 0
        return self._function(function, f"def @{name}", "")

    def metadata(self) -> str:
        """The constants as JSON: dtype, shape and base64 of the little-endian contents, in the order of their numbers."""
        entries = [
            {"dtype": str(DataType(c.value.dtype)), "shape": list(c.value.shape), "data": base64.b64encode(c.value.tobytes()).decode()}
            for c in self.constants
        ]
        return "#[metadata]\n" + json.dumps({"relay.Constant": entries}, indent=1)

    # Scopes.
    def _scope(self, body: Expr) -> list[str]:
        """The lines that evaluate `body`; what they name is forgotten at the end."""
        self._values.append({})
        lines: list[str] = []
        while True:
            last = self._evaluate(body, lines)
            if not isinstance(body, Let):
                break
            body = body.body
        self._values.pop()
        lines.append(last)
        return lines

    def _evaluate(self, root: Expr, lines: list[str]) -> str:
        """Append a line for every value that `root` needs and that has no name yet; returns the text of `root`."""
        if isinstance(root, Let):
            value = self._evaluate(root.value, lines)
            annotation = root.var.known_type()
            typed = "" if annotation is None else f": {annotation!r}"
            lines.append(f"let {self._variable(root.var)}{typed} = {value};")
            return ""
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            e, ready = stack.pop()
            if self._name(e) is not None:
                continue
            if not ready:
                stack.append((e, True))
                stack.extend((o, False) for o in reversed(_inputs(e)))
                continue
            text = self._line(e)
            if e is root:
                return text
            lines.append(f"%{self._count} = {text};")
            self._values[-1][e] = f"%{self._count}"
            self._count += 1
        return self._typed(root, self._name(root) or "")

    def _name(self, e: Expr) -> str | None:
        """How a value is referred to, if it has a name or is one."""
        match e:
            case Var():
                return self._variable(e)
            case GlobalVar():
                return f"@{e.name_hint}"
            case Constant():
                return self._constant(e)
        return next((found for scope in reversed(self._values) if (found := scope.get(e)) is not None), None)

    def _argument(self, e: Expr) -> str:
        name = self._name(e)
        if name is None:
            raise InternalError(f"a {type(e).__name__} is used before it has a name")
        return self._typed(e, name) if isinstance(e, Constant) else name

    def _typed(self, e: Expr, text: str) -> str:
        known = None if isinstance(e, (Var, GlobalVar)) else e.known_type()
        return text if known is None else f"{text} /* ty={known!r} */"

    def _constant(self, e: Constant) -> str:
        scalar = _scalar_text(e.value)
        if scalar is not None:
            return scalar
        index = self._constant_index.setdefault(e, len(self.constants))
        if index == len(self.constants):
            self.constants.append(e)
        return f"meta[relay.Constant][{index}]"

    def _variable(self, v: Var) -> str:
        name = self._variables.get(v)
        if name is None:
            plain = re.sub(r"\W", "_", v.name_hint) or "v"
            plain = plain if plain[0].isalpha() or plain[0] == "_" else f"v{plain}"
            name = plain
            while name in self._taken:
                self._taken[plain] += 1
                name = f"{plain}{self._taken[plain]}"
            self._taken[name] = 0
            self._variables[v] = name = f"%{name}"
        return name

    # One value.
    def _line(self, e: Expr) -> str:
        text = _TEXTS[type(e)](self, e)
        return self._typed(e, text)

    def _call(self, e: Call) -> str:
        arguments = [self._argument(a) for a in e.args]
        if isinstance(e.op, Expr):
            return f"{self._argument(e.op)}({', '.join(arguments)})"
        for field in dataclasses.fields(e.op):
            value = getattr(e.op, field.name)
            if field.default is dataclasses.MISSING or value != field.default or type(value) is not type(field.default):
                arguments.append(f"{field.name}={attribute_text(value, str(field.type))}")
        return f"{e.op.name}({', '.join(arguments)})"

    def _tuple(self, e: Tuple) -> str:
        fields = [self._argument(f) for f in e.fields]
        return f"({fields[0]},)" if len(fields) == 1 else f"({', '.join(fields)})"

    def _item(self, e: TupleGetItem) -> str:
        return f"{self._argument(e.tuple_value)}.{e.index}"

    def _if(self, e: If) -> str:
        then, other = (_indented(self._scope(b)) for b in (e.true_branch, e.false_branch))
        return f"if ({self._argument(e.cond)}) {{\n{then}\n}} else {{\n{other}\n}}"

    def _let(self, e: Let) -> str:
        return f"(\n{_indented(self._scope(e))}\n)"

    def _nested(self, e: Function) -> str:
        return self._function(e, "fn ", "")

    def _parameter(self, v: Var) -> str:
        known = v.known_type()
        return self._variable(v) if known is None else f"{self._variable(v)}: {known!r} /* ty={known!r} */"

    def _function(self, e: Function, head: str, tail: str) -> str:
        signature = [self._parameter(p) for p in e.params] + [f"{k}={attribute_text(v)}" for k, v in e.attrs.items()]
        ret: Type | None = e.body.known_type()
        arrow = "" if ret is None else f" -> {ret!r}"
        return f"{head}({', '.join(signature)}){arrow} {{\n{_indented(self._scope(e.body))}\n}}{tail}"


_TEXTS: Final[dict[type, Callable[[_Printer, Any], str]]] = {
    Call: _Printer._call,
    Tuple: _Printer._tuple,
    TupleGetItem: _Printer._item,
    If: _Printer._if,
    Let: _Printer._let,
    Function: _Printer._nested,
}


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for text in lines for line in text.split("\n"))


def _inputs(e: Expr) -> tuple[Expr, ...]:
    """What must have a name before `e` is written: not the insides of functions and branches, which are scopes."""
    match e:
        case Call():
            return (e.op, *e.args) if isinstance(e.op, Expr) else e.args
        case Tuple():
            return e.fields
        case TupleGetItem():
            return (e.tuple_value,)
        case If():
            return (e.cond,)
        case _:
            return ()


def _free_variables(expr: Expr) -> list[Var]:
    from tilewright.relay.visitor import free_vars

    return list(free_vars(expr))
