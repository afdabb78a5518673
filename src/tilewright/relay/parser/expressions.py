"""Parses expressions: `%0 = nn.relu(%x);` line by line, `let`, `if`, `match`, functions, infix operators.

Sequences of lines are read in a loop; nested expressions recurse. Nodes are type-checked as they are built, so errors
have the position of the call. After an error, parsing continues with the next line, and the name defined by the failed
line has no type.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, Origin, ParseError, TargetError
from tilewright.base.settings import nearest
from tilewright.base.type_matching import bind_types
from tilewright.base.types import Type, TypeVar
from tilewright.ir.virtual_device import VirtualDevice, virtual_device
from tilewright.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    pattern_types,
    pattern_vars,
)
from tilewright.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from tilewright.relay.op.registry import OPS, Op
from tilewright.relay.op.unsupported import left_out
from tilewright.relay.parser.attributes import AttributeReader
from tilewright.relay.parser.errors import Source
from tilewright.relay.parser.lexer import Token, plain_word
from tilewright.relay.parser.types import shown

_INFIX: Final = {
    "==": ("equal", 1), "!=": ("not_equal", 1), "<": ("less", 1), "<=": ("less_equal", 1), ">": ("greater", 1),
    ">=": ("greater_equal", 1),
    "+": ("add", 2), "-": ("subtract", 2), "*": ("multiply", 3), "/": ("divide", 3),
}
OPEN: Final = frozenset("([{")
CLOSE: Final = frozenset(")]}")
Bound = tuple[Var, Expr, Origin]


class ExprReader(AttributeReader):
    """Reads expressions. `constructors` maps `Name` and `Type.Name` to the constructors of the module's data types."""

    def __init__(self, source: Source, meta: Mapping[str, Sequence[Any]]) -> None:
        super().__init__(source, meta)
        self.errors: list[ParseError] = []
        self.constructors: dict[str, list[Constructor]] = {}
        self._names: list[dict[str, Expr]] = [{}]

    def global_var(self, token: Token) -> Expr:
        """Return the function of the module named `@name`."""
        raise self.fail(f"there is no function {token.text}: this text is not a module", token)

    # Names.
    def bind(self, name: str, value: Expr) -> None:
        self._names[-1][name] = value

    def start(self) -> None:
        """Clear all names for a new definition."""
        self._names, self.sizes = [{}], {}

    def _local(self, token: Token) -> Expr:
        for names in reversed(self._names):
            found = names.get(token.text)
            if found is not None:
                return found
        known = [n for names in self._names for n in names]
        raise self.fail(f"{token.text} is not bound here{similar(token.text, known)}", token)

    def build(self, token: Token, make: Callable[[], Expr]) -> Expr:
        """Build a node; report a type error at `token`."""
        try:
            return make()
        except ParseError:
            raise
        except CompileError as error:
            raise self.fail(error.message, token) from None

    # Scopes.
    def braces(self) -> Expr:
        """Read `{ … }`."""
        _ = self.expect("{", "'{'")
        found = self.scope()
        _ = self.expect("}", "';' or '}'")
        return found

    def scope(self, names: Mapping[str, Expr] | None = None) -> Expr:
        """Read the lines of a scope with local names; the last line is its value."""
        self._names.append(dict(names or {}))
        lets: list[Bound] = []
        depth, type_vars = len(self._names), self.type_vars
        while True:
            start = self.at
            try:
                found = self._line(lets)
            except ParseError as error:
                del self._names[depth:]
                self.type_vars = type_vars
                if error not in self.errors:
                    self.errors.append(error)
                if not self._skip_line(start):
                    raise
                continue
            if found is not None:
                break
        _ = self._names.pop()
        for var, value, span in reversed(lets):
            found = Let(var, value, found, span)
        return found

    def _line(self, lets: list[Bound]) -> Expr | None:
        """Read a line; return None if it binds a name, else its value."""
        token = self.token
        if token.kind == "word" and token.text == "let":
            self._let(lets)
            return None
        if token.kind == "local" and self.ahead == "=":
            self.at += 2
            if token.text in self._names[-1]:
                raise self.fail(f"{token.text} is bound twice in this scope", token)
            value = self.expr()
            self._end_of_line()
            self.bind(token.text, value)
            return None
        found = self.expr()
        if not self.accept(";"):
            return found
        lets.append((_typed("_", found.known_type()), found, self.span(token, "let")))
        return None

    def _let(self, lets: list[Bound]) -> None:
        start = self.take()
        name = self._binder()
        annotation = self.annotation() if self.accept(":") else None
        _ = self.expect("=", "'='")
        var = Var(name.text[1:], annotation, self.span(name, "let"))
        first = self.token
        outer = self._names[-1]
        if first.kind == "word" and first.text == "fn":  # it can be recursive
            outer[name.text] = var
        value = self.expr()
        if annotation is None:
            var.set_type(value.known_type())
        else:
            self._fits(value.known_type(), annotation, f"{name.text} is declared", first)
        self._end_of_line()
        outer[name.text] = var
        lets.append((var, value, self.span(start, "let")))

    def _binder(self) -> Token:
        if self.kind == "word" and self.token.text == "_":
            return self.take()._replace(text="%_")
        return self.expect("local", "a name such as %x")

    def _end_of_line(self) -> None:
        _ = self.expect(";", "';'")

    def _skip_line(self, start: int) -> bool:
        """Skip the line that began at `start`; return False if it was the last one of its scope."""
        depth, at = 0, start
        while self.tokens[at].kind != "end":
            kind = self.tokens[at].kind
            depth += (kind in OPEN) - (kind in CLOSE)
            if depth < 0:
                return False
            at += 1
            if kind == ";" and depth == 0:
                break
        else:
            return False
        name = next((t for t in self.tokens[start : start + 2] if t.kind == "local"), None)
        if name is not None:
            self.bind(name.text, Var(name.text[1:]))
        self.at = at
        return True

    def _fits(self, given: Type | None, wanted: Type | None, what: str, token: Token) -> None:
        """Raise a `ParseError` if a value contradicts its annotation."""
        if given is None or wanted is None or given == wanted or bind_types(wanted, given, frozenset(), {}):
            return
        raise self.fail(f"{what} {wanted!r}, but its value is {given!r}", token)

    # Operators between values.
    def expr(self, level: int = 1) -> Expr:
        """Read an expression. Raises `ParseError`."""
        found = self._unary()
        while True:
            token = self.token
            infix = _INFIX.get(token.kind)
            if infix is None or infix[1] < level:
                return found
            self.at += 1
            found = self._apply(token, OPS[infix[0]], [found, self.expr(infix[1] + 1)], {})

    def _unary(self) -> Expr:
        signs = []
        while self.kind == "-":
            signs.append(self.take())
        if signs and self.kind == "number":  # --10 is 10
            found = self._after(self.literal(self.take(), negative=len(signs) % 2 == 1))
            signs = []
        else:
            found = self._after(self._primary())
        for token in reversed(signs):
            found = self._apply(token, OPS["negative"], [found], {})
        return found

    def _after(self, found: Expr) -> Expr:
        """Read field accesses and calls after a value."""
        while True:
            token = self.token
            if token.kind == "field":
                self.at += 1
                found = self._field(found, token)
            elif token.kind == "(":
                found = self._call(found, token)
            else:
                return found

    def _field(self, whole: Expr, token: Token) -> Expr:
        return self.build(token, lambda: TupleGetItem(whole, int(token.text[1:]), self.span(token, "field")))

    def _call(self, called: Expr, token: Token) -> Expr:
        args, attrs = self._arguments()
        own = {name: value for name, (value, _) in attrs.items()} or None
        return self.build(token, lambda: Call(called, args, own, span=self.span(token, "call")))

    def _primary(self) -> Expr:
        token = self.take()
        kind = token.kind
        if kind == "local":
            return self._local(token)
        if kind == "word":
            read = _FORMS.get(token.text) if token.text not in self.constructors else None
            return read(self, token) if read is not None else self._named(token)
        if kind == "number":
            return self.literal(token)
        if kind == "global":
            return self.global_var(token)
        if kind == "(":
            return self._parentheses(token)
        if kind == "{":
            self.at -= 1
            return self.braces()
        raise self.fail(f"a value is expected here, not {shown(token)}", token)

    def _parentheses(self, token: Token) -> Expr:
        """Read `()`, `(a,)`, `(a, b)`, or a parenthesized value, which can have several lines."""
        if self.accept(")"):
            return Tuple((), self.span(token, "tuple"))
        fields = [self.scope()]
        if self.accept(")"):
            return fields[0]
        while self.accept(","):
            if self.kind != ")":
                fields.append(self.expr())
        _ = self.expect(")", "',' or ')'")
        return Tuple(tuple(fields), self.span(token, "tuple"))

    # Calls of operators and constructors.
    def _named(self, token: Token) -> Expr:
        name = plain_word(token.text)
        made = self.constructors.get(name)
        if made is not None:
            return self._constructed(token, made)
        kind = OPS.get(name)
        if kind is None:
            missing = left_out(name)
            raise self.fail(missing.message if missing is not None
                            else f"there is no operator '{name}'{nearest(name, [*OPS, *self.constructors])}", token)
        if self.kind != "(":
            raise self.fail(f"'{name}' is an operator; write it before its arguments: {name}(…)", token)
        args, attrs = self._arguments(kind)
        return self._apply(token, kind, args, attrs)

    def _constructed(self, token: Token, made: Sequence[Constructor]) -> Expr:
        if len(made) > 1:
            types = " or ".join(f"{c.belong_to.name_hint}.{c.name_hint}" for c in made)
            raise self.fail(f"'{token.text}' is a constructor of several data types; write {types}", token)
        if made[0].inputs and self.kind != "(":
            return made[0]
        args = self._arguments()[0] if self.kind == "(" else []
        return self.build(token, lambda: Call(made[0], args, span=self.span(token, token.text)))

    def _apply(self, token: Token, kind: type[Op], args: list[Expr], attrs: Mapping[str, tuple[Any, Token]]) -> Expr:
        low, high, names = _arity(kind.name)
        if not low <= len(args) <= high:
            attributes = ", ".join(kind.attribute_names)
            by_name = f"; attributes need a name: {attributes}" if len(args) > high and attributes else ""
            raise self.fail(f"{kind.name} takes {_counted(low, high)} ({', '.join(names)}), but was given "
                            f"{len(args)}{by_name}", token)
        made = self.operator(kind, attrs, token)
        span = self.span(token, kind.name)
        try:
            return Call(made, args, span=span)
        except CompileError as error:
            raise self.fail(error.message, token) from None
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise self.fail(f"{made!r} cannot be applied to these arguments: {error}", token) from None

    def _arguments(self, kind: type[Op] | None = None) -> tuple[list[Expr], dict[str, tuple[Any, Token]]]:
        """Read arguments, then attributes with their tokens."""
        _ = self.expect("(", "'('")
        args: list[Expr] = []
        attrs: dict[str, tuple[Any, Token]] = {}
        while not self.accept(")"):
            token = self.token
            if self.ahead == "=" and token.kind in ("word", "string"):
                name = self.attribute_name()
                if name in attrs:
                    raise self.fail(f"the attribute '{name}' is given twice", token)
                attrs[name] = (self.attribute(), token)
            elif token.kind in ("string", "["):
                known = ", ".join(f"{n}=…" for n in getattr(kind, "attribute_names", ())) or "name=…"
                raise self.fail(f"attributes need a name: {known}", token)
            else:
                args.append(self.expr())
            if self.kind != ")":
                _ = self.expect(",", "',' or ')'")
        return args, attrs

    def _lowered_call(self, token: Token) -> Expr:
        """Read TVM's `call_lowered(@f, (%a, %b))`, which is `@f(%a, %b)`."""
        args, attrs = self._arguments()
        if len(args) != 2 or not isinstance(args[1], Tuple):
            raise self.fail("call_lowered takes a function and a tuple of arguments: call_lowered(@f, (%x,))", token)
        called, given = args[0], args[1].fields
        own = {name: value for name, (value, _) in attrs.items()} or None
        return self.build(token, lambda: Call(called, given, own, span=self.span(token, "call")))

    # Keywords with their own syntax.
    def _if(self, token: Token) -> Expr:
        """Read `if (…) {…} else if (…) {…} else {…}` of any length iteratively."""
        cases: list[tuple[Token, Expr, Expr]] = []
        while True:
            _ = self.expect("(", "'(' and the condition")
            cond = self.expr()
            _ = self.expect(")", "')'")
            cases.append((token, cond, self.braces()))
            if not self.word("else"):
                raise self.fail(f"'else' is expected here, not {shown(self.token)}; an if needs both branches")
            token = self.token
            if not self.word("if"):
                break
        found = self.braces()
        for place, cond, then in reversed(cases):
            found = self._branch(place, cond, then, found)
        return found

    def _branch(self, token: Token, cond: Expr, then: Expr, other: Expr) -> Expr:
        return self.build(token, lambda: If(cond, then, other, self.span(token, "if")))

    def _match(self, token: Token) -> Expr:
        complete = not self.accept("?")
        _ = self.expect("(", "'(' and the value to match")
        data = self.expr()
        _ = self.expect(")", "')'")
        _ = self.expect("{", "'{' and the clauses")
        clauses: list[Clause] = []
        while not self.accept("}"):
            clauses.append(self._clause(data))
            if self.kind != "}":
                _ = self.expect(",", "',' or '}'")
        return self.build(token, lambda: Match(data, tuple(clauses), complete, self.span(token, "match")))

    def _clause(self, data: Expr) -> Clause:
        token = self.token
        names: dict[str, Expr] = {}
        pattern = self._pattern(names)
        given = data.known_type()
        if given is not None:
            try:
                types = pattern_types(pattern, given)
            except CompileError as error:
                raise self.fail(error.message, token) from None
            for var in pattern_vars(pattern):
                self._fits(types[var], var.type_annotation, f"%{var.name_hint} is declared", token)
                if var.type_annotation is None:
                    var.set_type(types[var])
        _ = self.expect("=>", "'=>'")
        return Clause(pattern, self.scope(names))

    def _pattern(self, names: dict[str, Expr]) -> Pattern:
        token = self.take()
        if token.kind == "local":
            var = Var(token.text[1:], self.annotation() if self.accept(":") else None, self.span(token, "pattern"))
            if token.text in names:
                raise self.fail(f"{token.text} occurs twice in this pattern", token)
            names[token.text] = var
            return PatternVar(var)
        if token.kind == "(":
            return PatternTuple(tuple(self._patterns(names)))
        if token.kind != "word":
            raise self.fail(f"a pattern is expected here, not {shown(token)}; write _, %x, (…, …), or a "
                            "constructor", token)
        if token.text == "_":
            return PatternWildcard()
        made = self.constructors.get(plain_word(token.text), [])
        if len(made) != 1:
            why = (f"is a constructor of several data types; write {made[0].belong_to.name_hint}.{made[0].name_hint}"
                   if made else "is not a constructor")
            raise self.fail(f"'{token.text}' {why}{nearest(token.text, self.constructors) if not made else ''}", token)
        inner = self._patterns(names) if self.accept("(") else []
        try:
            return PatternConstructor(made[0], tuple(inner))
        except CompileError as error:
            raise self.fail(error.message, token) from None

    def _patterns(self, names: dict[str, Expr]) -> list[Pattern]:
        found = []
        while not self.accept(")"):
            found.append(self._pattern(names))
            if self.kind != ")":
                _ = self.expect(",", "',' or ')'")
        return found

    def _meta(self, token: Token) -> Expr:
        entry = self.meta_entry(token)
        if not isinstance(entry, Expr):
            raise self.fail(f"this entry of the meta data is a {type(entry).__name__}, not a value", token)
        return entry

    def _truth(self, token: Token) -> Expr:
        return Constant(np.asarray(token.text == "True"))

    def _bare_constructor(self, token: Token) -> Expr:
        """Read `constructor(Nil)`, the constructor itself; `Nil` alone is a value."""
        args = self.expect("(", "'('"), self.expect("word", "the name of a constructor"), self.expect(")", "')'")
        made = self.constructors.get(plain_word(args[1].text), [])
        if len(made) != 1:
            raise self.fail(f"'{args[1].text}' is not a constructor{nearest(args[1].text, self.constructors)}", args[1])
        return made[0]

    def _reference_form(self, token: Token) -> Expr:
        """Read `ref(value)`, `ref_read(ref)` or `ref_write(ref, value)`."""
        make: Any = {"ref": RefCreate, "ref_read": RefRead, "ref_write": RefWrite}[token.text]
        args, attrs = self._arguments()
        wanted = 2 if token.text == "ref_write" else 1
        if len(args) != wanted or attrs:
            raise self.fail(f"{token.text} takes {wanted} argument{'s' * (wanted > 1)}, but was given "
                            f"{len(args) + len(attrs)}", token)
        return self.build(token, lambda: make(*args, self.span(token, token.text)))

    def _nested_lines(self, token: Token) -> Expr:
        """Read a `let` used as a value, up to the end of its scope."""
        self.at -= 1
        return self.scope()

    def _nested_function(self, token: Token) -> Expr:
        outer = dict(self.type_vars)
        params, attrs, type_params, ret = self.signature()
        found = self.function_body(params, attrs, type_params, ret, token)
        self.type_vars = outer
        return found

    # Functions.
    def signature(self) -> tuple[list[Var], dict[str, Any], list[TypeVar], Type | None]:
        """Read `<A>(%x: A, Primitive=1) -> A`: parameters, attributes, type variables, and the type of the result."""
        type_params = self.generics()
        _ = self.expect("(", "'(' and the parameters")
        params: list[Var] = []
        attrs: dict[str, Any] = {}
        while not self.accept(")"):
            if self.at_attribute():
                name = self.attribute_name()
                attrs[name] = self.attribute()
            else:
                token = self.expect("local", "a parameter such as %x, or an attribute such as Primitive=1,")
                if any(p.name_hint == token.text[1:] for p in params):
                    raise self.fail(f"the parameter {token.text} is named twice", token)
                place = self._place() if self.accept("{") else None
                params.append(Var(token.text[1:], self.annotation() if self.accept(":") else None,
                                  self.span(token, "parameter"), place))
            if self.kind != ")":
                _ = self.expect(",", "',' or ')'")
        ret = self.annotation() if self.accept("->") else None
        return params, attrs, type_params, ret

    def _place(self) -> VirtualDevice:
        """Read `virtual_device=… }` after a parameter's name and `{`."""
        token = self.token
        if not self.at_attribute() or self.attribute_name() != "virtual_device":
            raise self.fail("a parameter has only the attribute virtual_device, written {virtual_device=…}", token)
        given = self.attribute()
        _ = self.expect("}", "'}'")
        try:
            return virtual_device(given)
        except TargetError as error:
            raise self.fail(error.message, token) from None

    def function_body(self, params: Sequence[Var], attrs: Mapping[str, Any], type_params: Sequence[TypeVar],
                      ret: Type | None, token: Token) -> Function:
        """Read the body of a function with that signature."""
        _ = self.expect("{", "'{' and the body of the function")
        body = self.scope({f"%{p.name_hint}": p for p in params})
        _ = self.expect("}", "';' or '}'")
        self._fits(body.known_type(), ret, "the result is declared", token)
        made = self.build(token, lambda: Function(params, body, ret, type_params, attrs, self.span(token, "function")))
        if not isinstance(made, Function):
            raise self.fail("a function is expected here", token)
        return made


_FORMS: Final[dict[str, Callable[[ExprReader, Token], Expr]]] = {
    "fn": ExprReader._nested_function, "if": ExprReader._if, "match": ExprReader._match, "meta": ExprReader._meta,
    "True": ExprReader._truth,
    "False": ExprReader._truth, "constructor": ExprReader._bare_constructor, "ref": ExprReader._reference_form,
    "ref_read": ExprReader._reference_form,
    "ref_write": ExprReader._reference_form, "let": ExprReader._nested_lines,
    "call_lowered": ExprReader._lowered_call,
}


def _typed(name: str, known: Type | None) -> Var:
    """Return a variable without annotation, with its type recorded."""
    var = Var(name)
    var.set_type(known)
    return var


def similar(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name (`%…` or `@…`) nearest to `name`, as `nearest` does for words; empty for numbers.
    """
    found = "" if name[1:].isdigit() else nearest(name[1:], [n[1:] for n in known if not n[1:].isdigit()])
    return found.replace(" '", f" '{name[0]}")


@cache
def _arity(name: str) -> tuple[int, int, tuple[str, ...]]:
    """Return the least and largest number of arguments of an operator, and their names."""
    parameters = list(inspect.signature(OPS[name].infer).parameters.values())[1:]
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    fixed = [p for p in parameters if p.kind is not p.VAR_POSITIONAL]
    low = sum(p.default is p.empty for p in fixed)
    return low, 1 << 30 if open_ended else len(fixed), tuple(p.name for p in parameters)


def _counted(low: int, high: int) -> str:
    if low == high:
        return f"{low} argument{'s' * (low != 1)}"
    return f"{low} or more arguments" if high > 1 << 20 else f"{low} to {high} arguments"
