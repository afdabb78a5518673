"""Token cursor, and parser of types: `Tensor[(1, ?, n), float32]`, `fn [A](A) -> List[A]`, `(int32, bool)`,
`ref(float32)`."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from tilewright.base.errors import CompileError, Origin, ParseError
from tilewright.base.settings import nearest
from tilewright.base.types import (
    INT64,
    DataType,
    FuncType,
    GlobalTypeVar,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)
from tilewright.relay.parser.errors import Source
from tilewright.relay.parser.lexer import Token, plain_word, tokens_of
from tilewright.scalar.expr import UnknownDim, floordiv, floormod, maximum, minimum
from tilewright.scalar.expr import Var as SizeVar

_SIZES: Final[dict[str, Callable[[Any, Any], Any]]] = {"floordiv": floordiv, "floormod": floormod, "min": minimum,
    "max": maximum}
_SUMS: Final[dict[str, Callable[[Any, Any], Any]]] = {"+": operator.add, "-": operator.sub}


class Cursor:
    """A position in the tokens of a text."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = tokens_of(source)
        self.at = 0

    @property
    def kind(self) -> str:
        return self.tokens[self.at][0]

    @property
    def ahead(self) -> str:
        """The kind of the token after the current one."""
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)][0]

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def take(self) -> Token:
        found = self.tokens[self.at]
        self.at += 1
        return found

    def accept(self, kind: str) -> bool:
        """Consume the current token if it is of that kind; return whether it was."""
        if self.tokens[self.at][0] != kind:
            return False
        self.at += 1
        return True

    def expect(self, kind: str, what: str) -> Token:
        """Return the next token, which must be of that kind; `what` describes it in errors."""
        found = self.tokens[self.at]
        if found[0] != kind:
            raise self.fail(f"{what} is expected here, not {shown(found)}")
        self.at += 1
        return found

    def word(self, text: str) -> bool:
        """Consume the current token if it is that word; return whether it was."""
        found = self.tokens[self.at]
        if found[0] != "word" or found[1] != text:
            return False
        self.at += 1
        return True

    def fail(self, message: str, token: Token | None = None) -> ParseError:
        """Return an error at a token, by default the current one."""
        token = self.token if token is None else token
        return self.source.error(token.position, len(token.text), message)

    def span(self, token: Token, kind: str) -> Origin:
        return self.source.origin(token.position, kind)


def shown(token: Token) -> str:
    return "the end of the text" if token.kind == "end" else f"'{token.text}'"


class TypeReader(Cursor):
    """Reads types. `type_names` are the data types of the module; `type_vars` and `sizes` are the type and shape
    variables of the definition."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.type_names: dict[str, GlobalTypeVar] = {}
        self.arities: dict[str, int] = {}
        self.type_vars: dict[str, TypeVar] = {}
        self.sizes: dict[str, SizeVar] = {}

    def annotation(self) -> Type | None:
        """Read a type annotation; `_` gives None."""
        return None if self.word("_") else self.type()

    def type(self) -> Type:
        """Read a type. Raises `ParseError`."""
        token = self.take()
        if token.kind == "(":
            return self._tuple_type()
        if token.kind != "word":
            raise self.fail(f"a type is expected here, not {shown(token)}; write for example Tensor[(1, 3), "
                            "float32]", token)
        read = _TYPES.get(token.text)
        if read is not None:
            return read(self)
        name = plain_word(token.text)
        if name in self.type_vars:
            return self.type_vars[name]
        if name in self.type_names:
            return self._type_call(token, self.type_names[name])
        return self._scalar(token)

    def _scalar(self, token: Token) -> Type:
        if token.text == "_":
            raise self.fail("a type cannot be partly unknown; omit the whole annotation", token)
        try:
            return TensorType((), DataType(token.text))
        except CompileError:
            known = {*self.type_names, *self.type_vars, *_TYPES, "float32", "float16", "int32", "int64", "int8",
                     "uint8", "bool"}
            raise self.fail(f"there is no type '{token.text}'{nearest(token.text, known)}", token) from None

    def generics(self) -> list[TypeVar]:
        """Read `<A, B>` or `[A, B]`, if present, and declare the names."""
        close = {"<": ">", "[": "]"}.get(self.kind)
        if close is None:
            return []
        _ = self.take()
        made = []
        while not self.accept(close):
            name = self.expect("word", "the name of a type variable").text
            self.type_vars[name] = TypeVar(name)
            made.append(self.type_vars[name])
            if self.kind != close:
                _ = self.expect(",", f"',' or '{close}'")
        return made

    def type_list(self, close: str) -> list[Type]:
        """Read types up to the closing mark, and consume it."""
        found: list[Type] = []
        while not self.accept(close):
            found.append(self.type())
            if self.kind != close:
                _ = self.expect(",", f"',' or '{close}'")
        return found

    def _tuple_type(self) -> Type:
        fields: list[Type] = []
        while not self.accept(")"):
            fields.append(self.type())
            if self.accept(")"):
                return fields[0] if len(fields) == 1 else TupleType(fields)
            _ = self.expect(",", "',' or ')'")
        return TupleType(fields)

    def _type_call(self, token: Token, header: GlobalTypeVar) -> Type:
        args = self.type_list("]") if self.accept("[") else []
        wanted = self.arities.get(header.name_hint, len(args))
        if len(args) != wanted:
            raise self.fail(f"{header.name_hint} has {wanted} type parameters, but {len(args)} types were given", token)
        return TypeCall(header, args)

    def _tensor(self) -> Type:
        _ = self.expect("[", "'['")
        _ = self.expect("(", "the shape, in parentheses,")
        shape: list[Any] = []
        while not self.accept(")"):
            shape.append(self._size())
            if self.kind != ")":
                _ = self.expect(",", "',' or ')'")
        _ = self.expect(",", "',' and the dtype")
        dtype = self._dtype()
        _ = self.expect("]", "']'")
        return TensorType(shape, dtype)

    def _dtype(self) -> DataType:
        token = self.expect("word", "a dtype")
        try:
            return DataType(token.text)
        except CompileError as error:
            raise self.fail(error.message, token) from None

    def _function(self) -> Type:
        outer = dict(self.type_vars)
        params = self.generics()
        _ = self.expect("(", "'(' and the types of the arguments")
        args = self.type_list(")")
        _ = self.expect("->", "'->' and the type of the result")
        ret = self.type()
        self.type_vars = outer
        return FuncType(args, ret, params)

    def _reference(self) -> Type:
        _ = self.expect("(", "'('")
        held = self.type()
        _ = self.expect(")", "')'")
        return RefType(held)

    # Dimensions.
    def _size(self) -> Any:
        """Read a dimension: a number, `?`, a name, or arithmetic of these."""
        found = self._product()
        while self.kind in _SUMS:
            found = _SUMS[self.take().kind](found, self._product())
        return found

    def _product(self) -> Any:
        found = self._size_atom()
        while self.accept("*"):
            found = found * self._size_atom()
        return found

    def _size_atom(self) -> Any:
        token = self.take()
        if token.kind == "?":
            return UnknownDim()
        if token.kind == "number" and token.text.isdigit():
            return int(token.text)
        if token.kind == "-":
            return -self._size_atom()
        if token.kind == "(":
            found = self._size()
            _ = self.expect(")", "')'")
            return found
        if token.kind != "word":
            raise self.fail(f"a size is expected here, not {shown(token)}; write a number, a name, or ?", token)
        if self.kind == "(":
            return self._size_call(token)
        dtype = INT64
        if self.accept(":"):
            dtype = self._dtype()
        known = self.sizes.get(token.text)
        if known is None:
            known = self.sizes[token.text] = SizeVar(token.text, dtype)
        return known

    def _size_call(self, token: Token) -> Any:
        function = _SIZES.get(token.text)
        if function is None:
            raise self.fail(f"there is no function '{token.text}' of sizes{nearest(token.text, _SIZES)}", token)
        _ = self.expect("(", "'('")
        a = self._size()
        _ = self.expect(",", "','")
        b = self._size()
        _ = self.expect(")", "')'")
        return function(a, b)


_TYPES: Final[dict[str, Callable[[TypeReader], Type]]] = {"Tensor": TypeReader._tensor, "fn": TypeReader._function,
    "ref": TypeReader._reference}
