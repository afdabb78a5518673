"""Algebraic data types: their definitions, the constructors of their values, and `match`.

    type List[A] { Cons(A, List[A]), Nil, }
    match (%l) { Cons(%head, %rest) => add(%head, 1), Nil => 0, }

A definition belongs to a module (`mod[relay.GlobalTypeVar("List")] = relay.TypeData(…)`); `Prelude` adds TVM's standard
definitions.

    pattern ::= PatternWildcard() | PatternVar(var) | PatternTuple(patterns) | PatternConstructor(constructor, patterns)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.base.errors import CompileError, Origin, ShapeError
from tilewright.base.node import node
from tilewright.base.type_matching import bind_types, join_types
from tilewright.base.types import FuncType, GlobalTypeVar, TupleType, Type, TypeCall, TypeVar, substitute_type
from tilewright.relay.expr import Call, Expr, Var


@node
class TypeData:
    """The definition of a data type: its name, the types it is generic in, and its constructors."""

    header: GlobalTypeVar
    type_vars: tuple[TypeVar, ...]
    constructors: tuple[Constructor, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "type_vars", tuple(self.type_vars))
        object.__setattr__(self, "constructors", tuple(self.constructors))
        for tag, c in enumerate(self.constructors):
            c.define(self, tag)

    def __getitem__(self, name: str) -> Constructor:
        """Return the constructor of that name. Raises `CompileError` for an unknown name."""
        for c in self.constructors:
            if c.name_hint == name:
                return c
        known = ", ".join(c.name_hint for c in self.constructors)
        raise CompileError(f"the data type {self.header} has no constructor '{name}'; it has {known}", code="TW0401")


class Constructor(Expr):
    """One alternative of a data type: a function from fields of the types `inputs` to the data type.

    `tag` is its index among the constructors of the type. Its own type is known once a `TypeData` contains it.
    """

    __slots__ = ("__weakref__", "belong_to", "inputs", "name_hint", "span", "tag", "type_vars")

    def __init__(self, name_hint: str, inputs: Sequence[Type], belong_to: GlobalTypeVar, span: Origin
                 | None = None) -> None:
        self.name_hint = name_hint
        self.inputs = tuple(inputs)
        self.belong_to = belong_to
        self.tag = -1
        self.type_vars: tuple[TypeVar, ...] = ()
        self.span = span
        self._type = None

    def define(self, data: TypeData, tag: int) -> None:
        """Set the data type, and the index among its constructors."""
        self.tag, self.type_vars = tag, data.type_vars
        self._type = FuncType(self.inputs, TypeCall(data.header, data.type_vars), data.type_vars)

    def infer_type(self) -> Type | None:
        return self._type

    def __call__(self, *args: Expr) -> Call:
        """Return a call that constructs a value."""
        return Call(self, args)


class Pattern:
    """Base of the patterns of values."""

    __slots__ = ()

    @property
    def type_key(self) -> str:
        """Name of the kind of pattern in TVM's reflection."""
        return f"relay.{type(self).__name__}"


@node
class PatternWildcard(Pattern):
    """Any value."""


@node
class PatternVar(Pattern):
    """Matches any value and binds it to `var` in the clause."""

    var: Var


@node
class PatternTuple(Pattern):
    """A tuple whose fields match `patterns`."""

    patterns: tuple[Pattern, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "patterns", tuple(self.patterns))


@node
class PatternConstructor(Pattern):
    """A value of `constructor` whose fields match `patterns`."""

    constructor: Constructor
    patterns: tuple[Pattern, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "patterns", tuple(self.patterns or ()))
        if len(self.patterns) != len(self.constructor.inputs):
            raise CompileError(f"{self.constructor.name_hint} has {len(self.constructor.inputs)} "
                               f"fields, but the pattern has {len(self.patterns)}", code="TW0402")


@node
class Clause:
    """One case of a match: the result is `rhs` if the value matches `lhs`."""

    lhs: Pattern
    rhs: Expr


@node
class Match(Expr):
    """The result of the first clause whose pattern matches `data`. `complete`: the clauses match every value."""

    data: Expr
    clauses: Sequence[Clause]
    complete: bool = True
    span: Origin | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "clauses", tuple(self.clauses))
        self.set_type(self.infer_type())

    def infer_type(self) -> Type | None:
        given = self.data.known_type()
        if given is not None:
            for c in self.clauses:
                _ = pattern_types(c.lhs, given, self.span)
        found: Type | None = None
        for c in self.clauses:
            t = c.rhs.known_type()
            joined = t if found is None or t is None else join_types(found, t)
            if joined is None and t is not None:
                raise ShapeError(f"the clauses of a match have different types, {found!r} and {t!r}", self.span)
            found = joined if joined is not None else found
        return found


def pattern_children(p: Pattern) -> tuple[Pattern, ...]:
    """The patterns directly inside `p`."""
    return p.patterns if isinstance(p, (PatternTuple, PatternConstructor)) else ()


def pattern_vars(p: Pattern) -> Iterator[Var]:
    """The variables that a pattern binds, left to right."""
    if isinstance(p, PatternVar):
        yield p.var
    for c in pattern_children(p):
        yield from pattern_vars(c)


def pattern_types(p: Pattern, given: Type, span: Origin | None = None) -> Mapping[Var, Type]:
    """Return the type of each variable of a pattern matched against a value of type `given`. Raises `ShapeError` if the
    pattern does not fit the type."""
    found: dict[Var, Type] = {}
    _match_types(p, given, span, found)
    return found


def _match_types(p: Pattern, given: Type, span: Origin | None, found: dict[Var, Type]) -> None:
    match p:
        case PatternVar():
            found[p.var] = given
        case PatternTuple():
            if not isinstance(given, TupleType) or len(given.fields) != len(p.patterns):
                raise ShapeError(f"a pattern for a tuple of {len(p.patterns)} fields cannot match a value of "
                                 f"type {given!r}", span)
            for q, t in zip(p.patterns, given.fields, strict=True):
                _match_types(q, t, span, found)
        case PatternConstructor():
            bound: dict[Type, Type] = {}
            made = p.constructor.known_type()
            if not isinstance(made, FuncType):
                raise ShapeError(f"the constructor {p.constructor.name_hint} does not belong to a data type of "
                                 "the module", span)
            if not bind_types(made.ret_type, given, frozenset(made.type_params), bound):
                raise ShapeError(f"the constructor {p.constructor.name_hint} of {made.ret_type!r} cannot match "
                                 f"a value of type {given!r}", span)
            for q, t in zip(p.patterns, made.arg_types, strict=True):
                _match_types(q, substitute_type(t, bound), span, found)
        case _:
            pass
