"""Parses whole texts: the version, the definitions of a module, and its metadata.

    #[version = "0.0.5"]
    attributes { "key" = 1 }
    type List[A] { Cons(A, List[A]), Nil, }
    extern type File
    def @main[A](%x: A, Primitive=1) -> A { … }
    @T.prim_func …                                  a function of loops, in the language of `tir/parser.py`

Data types and signatures are read before the bodies of functions, so definitions can be in any order. Each body is read
separately, and the errors of all bodies are reported together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright import tir
from tilewright.base.errors import CompileError, ParseError
from tilewright.base.recursion import room_for
from tilewright.base.types import FuncType, GlobalTypeVar, Type, TypeVar
from tilewright.ir.module import IRModule
from tilewright.relay.adt import Constructor, TypeData
from tilewright.relay.expr import Expr, Function, GlobalVar, Var
from tilewright.relay.parser.errors import Source, together
from tilewright.relay.parser.expressions import CLOSE, OPEN, ExprReader, similar
from tilewright.relay.parser.lexer import Token, plain_word, string_value
from tilewright.relay.parser.metadata import read_metadata
from tilewright.relay.parser.types import shown

VERSION: Final = "0.0.5"
_METADATA: Final = re.compile(r"^#\[metadata\]", re.M)
_LOOPS: Final = re.compile(
    r"^@T\.prim_func.*?(?=^(?:def @|type |extern |attributes |#\[|@T\.prim_func|//|fn |free_var )|\Z)", re.M | re.S)
_MARK: Final = "#loops"
DEEPEST: Final = 5_000
"""Largest nesting depth of brackets."""


@dataclass
class _Definition:
    """A function of the module: its signature, and the position of its body."""

    name: str
    token: Token
    params: list[Var]
    attrs: dict[str, Any]
    type_params: list[TypeVar]
    ret: Type | None
    type_vars: dict[str, TypeVar]
    sizes: dict[str, Any]
    at: int
    function: Function | None = None
    reading: bool = False
    var: GlobalVar | None = field(default=None)

    def signature_type(self) -> FuncType | None:
        """Return the type, if the signature determines it."""
        args = [p.type_annotation for p in self.params]
        if self.ret is None or any(a is None for a in args):
            return None
        return FuncType([a for a in args if a is not None], self.ret, self.type_params)


class ModuleReader(ExprReader):
    """Reads one text, which can use the definitions of `init_module`."""

    def __init__(self, text: str, name: str, init_module: IRModule | None = None, meta: Mapping[str, Sequence[Any]]
                 | None = None) -> None:
        text, section = _split(text)
        text, self._loops = _without_loops(text)
        super().__init__(Source(text, name), meta or {})
        if section and meta is None:
            try:
                self.meta = read_metadata(section)
            except CompileError as error:
                raise self.source.error(len(text), 1, error.message) from None
        self.module = IRModule() if init_module is None else init_module.copy()
        self._definitions: dict[str, _Definition] = {}
        self._order: list[str] = []
        self._loop_functions: dict[str, Any] = {}
        for header, data in self.module.type_definitions.items():
            self.type_names[header.name_hint], self.arities[header.name_hint] = header, len(data.type_vars)
            self._add_constructors(data)

    def read(self) -> tuple[IRModule, Expr | None]:
        """Return the module, and the expression after its definitions, if any. Raises `ParseError`."""
        found: Expr | None = None
        try:
            with room_for(self._nesting()):
                found = self._read()
        except ParseError as error:
            if error not in self.errors:
                self.errors.append(error)
        if self.errors:
            raise together(self.errors)
        return self.module, found

    def _read(self) -> Expr | None:
        self._version()
        self._name_types()
        found: Expr | None = None
        while self.kind != "end":
            read = {"def": self._signature, "type": self._type, "extern": self._extern,
                    "attributes": self._attributes}.get(self.token.text)
            if self.kind == _MARK:
                self._loop_function(None)
            elif read is not None and self.kind == "word":
                read()
            else:
                found = self._expression()
        for definition in list(self._definitions.values()):
            self._body(definition)
        for name in self._order:
            if name in self._loop_functions:
                self.module[name] = self._loop_functions[name]
            elif (made := self._definitions[name].function) is not None:
                self.module[self._variable(self._definitions[name])] = made
        return found

    def _nesting(self) -> int:
        """Return the necessary recursion depth: that of brackets, plus one for each function that may be read on
        demand. Raises `ParseError` if it exceeds `DEEPEST`."""
        depth = most = functions = 0
        for token in self.tokens:
            depth += (token.kind in OPEN) - (token.kind in CLOSE)
            most = max(most, depth)
            functions += token.text == "def"
            if depth > DEEPEST:
                raise self.fail("the text is nested too deeply here; assign the inner values to names", token)
        return most + functions

    def _version(self) -> None:
        if self.kind != "#[":
            return
        start = self.take()
        if not self.word("version"):
            raise self.fail('the first line must be #[version = "0.0.5"]')
        _ = self.expect("=", "'='")
        given = string_value(self.expect("string", "the version, in quotes,"))
        _ = self.expect("]", "']'")
        if given != VERSION:
            raise self.fail(f"the text has version {given}, but only {VERSION} is supported", start)

    def _expression(self) -> Expr:
        self.start()
        while self.word("free_var"):
            name = self.expect("local", "a name such as %x")
            self.bind(name.text,
                      Var(name.text[1:], self.annotation() if self.accept(":") else None, self.span(name, "variable")))
            _ = self.expect(";", "';'")
        # A definition after the expression would be used before its body is read, so the expression must be last.
        for definition in list(self._definitions.values()):
            at, names, sizes = self.at, self._names, self.sizes
            self._body(definition)
            self.at, self._names, self.sizes = at, names, sizes
        found = self.scope()
        if self.kind != "end":
            raise self.fail(f"the end of the text is expected here, not {shown(self.token)}")
        return found

    # Data types.
    def _name_types(self) -> None:
        """Declare the names of all data types, which can be used before their definitions."""
        for i, token in enumerate(self.tokens[:-1]):
            if token.kind == "word" and token.text == "type" and self.tokens[i + 1].kind == "word":
                name = plain_word(self.tokens[i + 1].text)
                self.type_names[name] = GlobalTypeVar(name)
                self.arities.pop(name, None)

    def _extern(self) -> None:
        start = self.take()
        if not self.word("type"):
            raise self.fail(f"'type' is expected after 'extern', not {shown(self.token)}", start)
        header, variables = self._type_head()
        self.module[header] = TypeData(header, tuple(variables), ())

    def _type(self) -> None:
        _ = self.take()
        header, variables = self._type_head()
        _ = self.expect("{", "'{' and the constructors")
        made: list[Constructor] = []
        while not self.accept("}"):
            token = self.expect("word", "the name of a constructor")
            fields = self.type_list(")") if self.accept("(") else []
            made.append(Constructor(plain_word(token.text), fields, header, self.span(token, "constructor")))
            if self.kind != "}":
                _ = self.expect(",", "',' or '}'")
        self.type_vars = {}
        data = TypeData(header, tuple(variables), tuple(made))
        self.module[header] = data
        self._add_constructors(data)

    def _type_head(self) -> tuple[GlobalTypeVar, list[TypeVar]]:
        token = self.expect("word", "the name of a data type")
        header = self.type_names[plain_word(token.text)]
        if header in self.module.type_definitions:
            raise self.fail(f"the data type {token.text} is defined twice", token)
        variables = self.generics()
        self.arities[header.name_hint] = len(variables)
        return header, variables

    def _add_constructors(self, data: TypeData) -> None:
        for c in data.constructors:
            self.constructors.setdefault(c.name_hint, []).append(c)
            self.constructors[f"{data.header.name_hint}.{c.name_hint}"] = [c]

    # Functions.
    def _attributes(self) -> None:
        _ = self.take()
        _ = self.expect("{", "'{'")
        while not self.accept("}"):
            if not self.at_attribute():
                raise self.fail(f'"name" = value is expected here, not {shown(self.token)}')
            name = self.attribute_name()
            self.module.attrs[name] = self.attribute()

    def _signature(self) -> None:
        """Read `def @name(…) -> …`, and skip the body."""
        _ = self.take()
        token = self.expect("global", "the name of the function, such as @main,")
        name = _global_name(token)
        if name in self._definitions or name in self._order:
            raise self.fail(f"the function {token.text} is defined twice", token)
        if self.accept("="):
            self._loop_function(name)
            return
        self.start()
        self.type_vars = {}
        params, attrs, type_params, ret = self.signature()
        made = _Definition(name, token, params, attrs, type_params, ret, self.type_vars, self.sizes, self.at)
        self.type_vars = {}
        self._definitions[name] = made
        self._order.append(name)
        self._pass_over(token)

    def _pass_over(self, token: Token) -> None:
        """Skip the body that starts at the current token."""
        if self.kind != "{":
            raise self.fail(f"'{{' and the body of the function are expected here, not {shown(self.token)}")
        depth = 0
        while self.kind != "end":
            kind = self.take().kind
            depth += (kind == "{") - (kind == "}")
            if depth == 0:
                return
        raise self.fail(f"the body of {token.text} is not closed; write }} at its end", token)

    def _body(self, d: _Definition) -> None:
        """Read the body of a function unless it has been read; its errors are recorded, so that all are reported
        together."""
        if d.function is not None or d.reading:
            return
        d.reading = True
        self.start()
        self.at, self.type_vars, self.sizes = d.at, d.type_vars, d.sizes
        try:
            d.function = self.function_body(d.params, d.attrs, d.type_params, d.ret, d.token)
        except ParseError as error:
            if error not in self.errors:
                self.errors.append(error)
        self.type_vars = {}

    def _variable(self, d: _Definition) -> GlobalVar:
        if d.var is None:
            known = d.signature_type() or (d.function.known_type() if d.function is not None else None)
            d.var = GlobalVar(d.name, known)  # type: ignore[arg-type]
        return d.var

    def global_var(self, token: Token) -> Expr:
        """Return a function by its name; if its type depends on its body, the body is read first."""
        name = _global_name(token)
        definition = self._definitions.get(name)
        if definition is None:
            if name in self.module:
                found: Expr = self.module.get_global_var(name)
                return found
            known = [f"@{n}" for n in (*self._definitions, *self.module)]
            raise self.fail(f"the module has no function {token.text}{similar(token.text, known)}", token)
        if definition.var is None and definition.signature_type() is None:
            at, names, type_vars, sizes = self.at, self._names, self.type_vars, self.sizes
            self._body(definition)
            self.at, self._names, self.type_vars, self.sizes = at, names, type_vars, sizes
        return self._variable(definition)

    def _loop_function(self, name: str | None) -> None:
        """Read a TIR function."""
        token = self.expect(_MARK, "a function of loops")
        text = self._loops[len(self._loop_functions)]
        line = self.source.place(token.position)[0]
        try:
            function = tir.parse("\n" * (line - 1) + text, self.source.name)
        except ParseError as error:
            self.errors.append(error)
            raise
        self._order.append(name or function.name)
        self._loop_functions[name or function.name] = function


def _global_name(token: Token) -> str:
    return string_value(token) if token.text.startswith('@"') else token.text[1:]


def _split(text: str) -> tuple[str, str]:
    """Split a text into the program and its metadata."""
    m = _METADATA.search(text)
    return (text, "") if m is None else (text[: m.start()], text[m.end() :])


def _without_loops(text: str) -> tuple[str, list[str]]:
    """Replace each TIR function by a marker with the same number of lines; return the text and the functions."""
    found: list[str] = []

    def mark(m: re.Match[str]) -> str:
        found.append(m[0])
        return _MARK + "\n" * m[0].count("\n")

    return _LOOPS.sub(mark, text), found
