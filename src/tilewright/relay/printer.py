"""Relay as text in TVM's form, version 0.0.5, which `relay/parser` reads back.

    %0 = nn.conv2d(%x, meta[relay.Constant][0], padding=[1, 1, 1, 1]) /* ty=Tensor[(1, 8, 32, 32), float32] */;

Functions are printed in the order of their names. Each call has a line, in evaluation order; the last one is unnamed. A
value that is used twice is named once, in a scope that contains all its users (`relay/scopes.py`). An attribute is
printed if it differs from its default. Tensors are `meta[relay.Constant][i]`, numbered by first use, and are listed at
the end on request. Graphs may be arbitrarily deep; nested functions and branches recurse.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from tilewright.base.array_bytes import to_bytes
from tilewright.base.errors import InternalError
from tilewright.base.recursion import room_for
from tilewright.base.types import DataType, Type
from tilewright.ir.source import Span
from tilewright.ir.virtual_device import VirtualDevice
from tilewright.relay.adt import (
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    TypeData,
)
from tilewright.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.relay.op.registry import OPS
from tilewright.relay.scopes import Scopes
from tilewright.relay.type_text import KEYWORDS, TypeNames, word
from tilewright.relay.visitor import free_vars

VERSION: Final = '#[version = "0.0.5"]'
SUFFIXES: Final = {"float16": "f16", "float32": "f", "float64": "f64", "int16": "i16", "int32": "", "int64": "i64"}
"""Suffix of a scalar constant's number, by dtype; scalars of other dtypes are in the metadata."""

Annotate = Callable[[Expr], str]


def text_of(expr: Expr) -> str:
    """Return the text of an expression or function; free variables come first, as `free_var`."""
    if isinstance(expr, Constant) and _scalar_text(expr.value) is None:
        return _described(expr)
    return _Printer().whole(expr)


def astext(what: Any, show_meta_data: bool = False, annotate: Annotate | None = None, show_spans: bool = False) -> str:
    """Return a module, function, expression or data type as text with the version line.

    `show_meta_data` appends the values of the constants, which the parser needs otherwise. `annotate(expr)` replaces
    the type comment of each value; `show_spans` appends the origins of values. A `relay.Span`, which a program gave, is
    always shown.
    """
    printer = _Printer(annotate, show_spans)
    if hasattr(what, "type_definitions"):
        parts = printer.module(what)
    else:
        parts = [printer.data_type(what) if isinstance(what, TypeData) else printer.whole(what)]
    if show_meta_data and (printer.constants or printer.others):
        parts.append(printer.metadata())
    return VERSION + "\n" + "\n\n".join(parts) + "\n"


def constants_of(what: Any) -> list[Constant]:
    """Return the tensors of a module or expression in the order of their numbers in its text. The parser accepts them
    as `{"relay.Constant": constants_of(mod)}`."""
    printer = _Printer()
    _ = printer.module(what) if hasattr(what, "type_definitions") else printer.whole(what)
    return printer.constants


def attribute_text(value: Any, declared: str = "", other: Callable[[Any], str] = str) -> str:
    """Return the value of an attribute as text; integers of an attribute declared `float` become floats. `other`
    formats values without a literal.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, str):
        return json.dumps(str(value))
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(attribute_text(v, '', other) for v in value)}]"
    if isinstance(value, Mapping) and all(isinstance(k, str) for k in value):
        entries = [f"{json.dumps(k)}: {attribute_text(v, '', other)}" for k, v in value.items()]
        return f"{{{', '.join(entries)}}}"
    if isinstance(value, float) or (declared == "float" and isinstance(value, int)):
        return _float_text(float(value)) + "f"
    if isinstance(value, VirtualDevice) and value.literal is not None:
        return json.dumps(value.literal)
    return str(int(value)) if isinstance(value, int) else other(value)


def _float_text(value: float) -> str:
    return repr(value).removesuffix(".0")


def _scalar_text(value: np.ndarray[Any, Any]) -> str | None:
    """Return the literal of a scalar constant; None if it belongs in the metadata."""
    if value.ndim:
        return None
    dtype = str(DataType(value.dtype))
    if dtype == "bool":
        return str(bool(value))
    suffix = SUFFIXES.get(dtype)
    if suffix is None or not math.isfinite(value):
        return None
    return (_float_text(float(str(value))) if suffix.startswith("f") else str(int(value))) + suffix


def _described(constant: Constant) -> str:
    """Return the text of a tensor printed alone: its type, range and a hash of its contents."""
    value = constant.value
    contents = hashlib.sha256(to_bytes(value)).hexdigest()[:16]
    span = f"from {value.min()} to {value.max()}, " if value.size and value.dtype != object else ""
    return f"meta[relay.Constant][0] /* ty={constant.known_type()!r}, {span}sha256 {contents} */"


class _Printer:
    """The assigned names: those of variables and values per definition, those of constants and data types for the whole
    text."""

    def __init__(self, annotate: Annotate | None = None, show_spans: bool = False) -> None:
        self.constants: list[Constant] = []
        self.others: dict[str, list[Any]] = {}
        self._annotate, self._show_spans = annotate, show_spans
        self._constant_index: dict[Constant, int] = {}
        self._qualified: set[str] = set()
        self._type_names: tuple[str, ...] = ()
        self._begin(None)

    def _begin(self, root: Expr | None) -> None:
        """Start a definition with fresh names of values, variables and dimensions."""
        self._variables: dict[Var, str] = {}
        self._taken: dict[str, int] = {}
        self._values: dict[Expr, str] = {}
        self._count = 0
        self._types = TypeNames(self._type_names)
        self._scopes = None if root is None else Scopes(root)

    @property
    def _depth(self) -> int:
        return self._scopes.depth if self._scopes is not None else 0

    # Whole texts.
    def whole(self, expr: Expr) -> str:
        self._begin(expr)
        lines = [f"free_var {self._parameter(v)};" for v in free_vars(expr)]
        with room_for(self._depth):
            body = [self._function(expr, "fn ")] if isinstance(expr, Function) else self._scope(expr)
        return "\n".join([*lines, *body])

    def module(self, mod: Any) -> list[str]:
        """Return the texts of a module's attributes, data types and functions."""
        parts = []
        self._type_names = tuple(word(t.name_hint) for t in mod.type_definitions)
        named = Counter(c.name_hint for d in mod.type_definitions.values() for c in d.constructors)
        self._qualified = {n for n, count in named.items() if count > 1 or n in OPS or n in KEYWORDS or "." in n}
        if mod.attrs:
            lines = [f"  {json.dumps(k)} = {self._attribute(v)}" for k, v in mod.attrs.items()]
            parts.append("\n".join(["attributes {", *lines, "}"]))
        parts += [self.data_type(d) for d in mod.type_definitions.values()]
        return parts + [self.definition(name, f) for name, f in sorted(mod.items(), key=lambda item: item[0])]

    def data_type(self, data: TypeData) -> str:
        """Return `type List[A] { Cons(A, List[A]), Nil, }`; a type without constructors is `extern`."""
        self._begin(None)
        names = f"[{', '.join(self._types.name(v) for v in data.type_vars)}]" if data.type_vars else ""
        head = f"type {word(data.header.name_hint)}{names}"
        if not data.constructors:
            return f"extern {head}"
        lines = []
        for c in data.constructors:
            fields = f"({', '.join(map(self._types.text, c.inputs))})" if c.inputs else ""
            lines.append(f"  {word(c.name_hint)}{fields},")
        return "\n".join([f"{head} {{", *lines, "}"])

    def definition(self, name: str, function: Any) -> str:
        """Return `def @name(…) -> … { … }`; a function that is not Relay has the text of its own dialect."""
        if not isinstance(function, Function):
            return repr(function) if getattr(function, "name", name) == name else f"def {_global(name)} =\n{function!r}"
        self._begin(function)
        with room_for(self._depth):
            return self._function(function, f"def {_global(name)}")

    def metadata(self) -> str:
        """Return the constants as JSON: dtype, shape and base64 of the little-endian contents, by number.

        Objects without a text form are described, and must be given to the parser.
        """
        entries: dict[str, list[Any]] = {"relay.Constant": [
            {"dtype": str(DataType(c.value.dtype)), "shape": list(c.value.shape),
             "data": base64.b64encode(to_bytes(c.value)).decode()}
            for c in self.constants
        ]}
        entries |= {kind: [repr(v) for v in values] for kind, values in self.others.items()}
        return "#[metadata]\n" + json.dumps(entries, indent=1)

    # Scopes.
    def _scope(self, body: Expr) -> list[str]:
        """Return the lines that evaluate `body`."""
        lines: list[str] = []
        while self._continues(body):
            let: Let = body  # type: ignore[assignment]
            value = self._evaluate(let.value, lines)
            lines.append(f"let {self._bound(let.var)} = {value};")
            body = let.body
        lines.append(self._evaluate(body, lines))
        return lines

    def _continues(self, e: Expr) -> bool:
        return self._scopes is not None and self._scopes.continues(e)

    def _evaluate(self, root: Expr, lines: list[str]) -> str:
        """Append a line for every unnamed value that `root` needs, and return the text of `root`."""
        scopes = self._scopes
        if scopes is None:
            raise InternalError("a value is printed outside of a definition")
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            e, ready = stack.pop()
            if self._name(e) is not None:
                continue
            if not ready:
                stack.append((e, True))
                stack.extend((o, False) for o in reversed((*_inputs(e), *scopes.hoisted.get(e, ()))))
                continue
            text = self._commented(e, _TEXTS[type(e)](self, e))
            if e is root and scopes.uses[e] == 1:
                return text
            lines.append(f"%{self._count} = {text};")
            self._values[e] = f"%{self._count}"
            self._count += 1
        return self._commented(root, self._name(root) or "")

    def _name(self, e: Expr) -> str | None:
        """Return the name or literal of a value, or None."""
        match e:
            case Var():
                return self._variable(e)
            case GlobalVar():
                return _global(e.name_hint)
            case Constant():
                return self._constant(e)
            case Constructor():
                return self._constructor(e) if e.inputs else f"constructor({self._constructor(e)})"
        return self._values.get(e)

    def _argument(self, e: Expr) -> str:
        name = self._name(e)
        if name is None:
            raise InternalError(f"a {type(e).__name__} is used before it has a name")
        return self._commented(e, name) if isinstance(e, Constant) else name

    def _commented(self, e: Expr, text: str) -> str:
        """Return the text of a value with its comment."""
        if isinstance(e, (Var, GlobalVar, Constructor)):
            return text
        if self._annotate is not None:
            return text + self._annotate(e)
        known = e.known_type()
        shown = e.span is not None and (self._show_spans or isinstance(e.span, Span))
        span = f" span={str(e.span).replace('*/', '* /')}" if shown else ""
        typed = "" if known is None else f" ty={self._types.text(known)}"
        return f"{text} /*{typed}{span} */" if typed or span else text

    def _constant(self, e: Constant) -> str:
        scalar = _scalar_text(e.value)
        if scalar is not None:
            return scalar
        index = self._constant_index.setdefault(e, len(self.constants))
        if index == len(self.constants):
            self.constants.append(e)
        return f"meta[relay.Constant][{index}]"

    def _attribute(self, value: Any, declared: str = "") -> str:
        return attribute_text(value, declared, self._object)

    def _object(self, value: Any) -> str:
        """Return a reference to the metadata entry of a value without a literal, under its class name."""
        if isinstance(value, Constant):
            return self._constant(value)
        kind = getattr(value, "type_key", None) or type(value).__name__
        listed = self.others.setdefault(kind, [])
        if not any(v is value for v in listed):
            listed.append(value)
        return f"meta[{kind}][{next(i for i, v in enumerate(listed) if v is value)}]"

    def _constructor(self, c: Constructor) -> str:
        name = word(c.name_hint)
        return f"{word(c.belong_to.name_hint)}.{name}" if c.name_hint in self._qualified else name

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

    def _bound(self, v: Var) -> str:
        """Return a variable at its binding, with its annotation if it has one."""
        if v.type_annotation is None:
            return self._variable(v)
        return f"{self._variable(v)}: {self._types.text(v.type_annotation)}"

    def _parameter(self, v: Var) -> str:
        known = v.known_type()
        place = "" if v.virtual_device is None else f" {{virtual_device={self._attribute(v.virtual_device)}}}"
        annotation = "" if v.type_annotation is None else f": {self._types.text(v.type_annotation)}"
        bound = f"{self._variable(v)}{place}{annotation}"
        return bound if known is None or self._annotate is not None else f"{bound} /* ty={self._types.text(known)} */"

    # One value.
    def _call(self, e: Call) -> str:
        arguments = [self._argument(a) for a in e.args]
        if isinstance(e.op, Constructor):
            return (f"{self._constructor(e.op)}({', '.join(arguments)})" if e.op.inputs or arguments
                    else self._constructor(e.op))
        if isinstance(e.op, Expr):
            arguments += [f"{word(k)}={self._attribute(v)}" for k, v in (e.own_attrs or {}).items()]
            return f"{self._argument(e.op)}({', '.join(arguments)})"
        for field in dataclasses.fields(e.op):
            value = getattr(e.op, field.name)
            if (field.default is dataclasses.MISSING or field.name in e.op.written
                    or repr(value) != repr(field.default) or type(value) is not type(field.default)):
                arguments.append(f"{field.name}={self._attribute(value, str(field.type))}")
        return f"{e.op.name}({', '.join(arguments)})"

    def _tuple(self, e: Tuple) -> str:
        fields = [self._argument(f) for f in e.fields]
        return f"({fields[0]},)" if len(fields) == 1 else f"({', '.join(fields)})"

    def _item(self, e: TupleGetItem) -> str:
        return f"{self._argument(e.tuple_value)}.{e.index}"

    def _if(self, e: If) -> str:
        then = _indented(self._scope(e.true_branch))
        other = _indented(self._scope(e.false_branch))
        return f"if ({self._argument(e.cond)}) {{\n{then}\n}} else {{\n{other}\n}}"

    def _let(self, e: Let) -> str:
        """Return a let used as an operand, in parentheses."""
        lines: list[str] = []
        value = self._evaluate(e.value, lines)
        lines.append(f"let {self._bound(e.var)} = {value};")
        return f"(\n{_indented([*lines, *self._scope(e.body)])}\n)"

    def _ref_create(self, e: RefCreate) -> str:
        return f"ref({self._argument(e.value)})"

    def _ref_read(self, e: RefRead) -> str:
        return f"ref_read({self._argument(e.ref)})"

    def _ref_write(self, e: RefWrite) -> str:
        return f"ref_write({self._argument(e.ref)}, {self._argument(e.value)})"

    def _match(self, e: Match) -> str:
        clauses = [f"{self._pattern(c.lhs)} => {{\n{_indented(self._scope(c.rhs))}\n}}," for c in e.clauses]
        return f"match{'' if e.complete else '?'} ({self._argument(e.data)}) {{\n{_indented(clauses)}\n}}"

    def _pattern(self, p: Pattern) -> str:
        match p:
            case PatternVar():
                return self._bound(p.var)
            case PatternTuple():
                inner = [self._pattern(q) for q in p.patterns]
                return f"({inner[0]},)" if len(inner) == 1 else f"({', '.join(inner)})"
            case PatternConstructor():
                inner = [self._pattern(q) for q in p.patterns]
                return self._constructor(p.constructor) + (f"({', '.join(inner)})" if inner else "")
            case _:
                return "_"

    def _nested(self, e: Function) -> str:
        return self._function(e, "fn ")

    def _function(self, e: Function, head: str) -> str:
        variables = self._types.params(e.type_params)
        signature = [self._parameter(p) for p in e.params] + [f"{word(k)}={self._attribute(v)}"
            for k, v in e.attrs.items()]
        ret: Type | None = e.ret_type
        arrow = "" if ret is None else f" -> {self._types.text(ret)}"
        return f"{head}{variables}({', '.join(signature)}){arrow} {{\n{_indented(self._scope(e.body))}\n}}"


_TEXTS: Final[dict[type, Callable[[_Printer, Any], str]]] = {
    Call: _Printer._call,
    Tuple: _Printer._tuple,
    TupleGetItem: _Printer._item,
    If: _Printer._if,
    Let: _Printer._let,
    Match: _Printer._match,
    RefCreate: _Printer._ref_create,
    RefRead: _Printer._ref_read,
    RefWrite: _Printer._ref_write,
    Function: _Printer._nested,
}


def _global(name: str) -> str:
    """Return the name of a global function, quoted unless it is an identifier."""
    return f"@{name}" if re.fullmatch(r"[^\W\d]\w*", name) else f"@{json.dumps(name)}"


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for text in lines for line in text.split("\n"))


def _inputs(e: Expr) -> tuple[Expr, ...]:
    """Return the nodes that need a name before `e` is printed; functions and branches have their own scopes."""
    match e:
        case Call():
            return (e.op, *e.args) if isinstance(e.op, Expr) else e.args
        case Tuple():
            return e.fields
        case TupleGetItem():
            return (e.tuple_value,)
        case If():
            return (e.cond,)
        case Match():
            return (e.data,)
        case RefCreate():
            return (e.value,)
        case RefRead():
            return (e.ref,)
        case RefWrite():
            return (e.ref, e.value)
        case _:
            return ()
