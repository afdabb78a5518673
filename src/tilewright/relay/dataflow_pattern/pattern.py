"""Patterns of subgraphs, built as Python expressions.

    conv = is_op("nn.conv2d")(wildcard(), is_constant())
    pattern = is_op("nn.relu")(conv.optional(lambda x: is_op("nn.bias_add")(x, is_constant())))

Patterns are compared by identity: a pattern object that occurs twice matches the same expression twice. A pattern
prints as the Python text that builds it.

    pattern ::= ExprPattern(expr) | VarPattern(name) | ConstantPattern() | WildcardPattern() | CallPattern(op, args)
              | FunctionPattern(params, body) | IfPattern(cond, then, else) | LetPattern(var, value, body)
              | TuplePattern(fields) | TupleGetItemPattern(tuple, index) | AltPattern(left, right)
              | TypePattern(pattern, type) | DataTypePattern(pattern, dtype)
              | ShapePattern(pattern, shape) | AttrPattern(pattern, attrs) | DominatorPattern(parent, path, child)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from tilewright.base.errors import CompileError
from tilewright.base.graphs import post_order
from tilewright.base.node import node
from tilewright.base.types import DataType, Type
from tilewright.relay.expr import Expr
from tilewright.relay.op.registry import Op, get, plain

Parts: TypeAlias = "tuple[DFPattern, ...]"


class DFPattern:
    """Base of patterns. Calling a pattern returns the pattern of a call of its match."""

    __slots__ = ()

    def __call__(self, *args: Any) -> CallPattern:
        """Return the pattern of a call of a match, with arguments that match; `pattern(None)` accepts any arguments."""
        return CallPattern(self, None if len(args) == 1 and args[0] is None else args)

    def __or__(self, other: DFPattern) -> AltPattern: return AltPattern(self, other)
    def __add__(self, other: DFPattern) -> CallPattern: return is_op("add")(self, other)
    def __sub__(self, other: DFPattern) -> CallPattern: return is_op("subtract")(self, other)
    def __mul__(self, other: DFPattern) -> CallPattern: return is_op("multiply")(self, other)
    def __truediv__(self, other: DFPattern) -> CallPattern: return is_op("divide")(self, other)

    def optional(self, option_constructor: Callable[[DFPattern], DFPattern]) -> DFPattern:
        """Return this pattern or, preferably, the pattern that the function builds around it."""
        return AltPattern(self, option_constructor(self))

    def has_attr(self, attrs: Mapping[str, Any]) -> DFPattern:
        """Return this pattern, restricted to calls, operators or functions with these attributes."""
        return AttrPattern(self, attrs)

    def has_type(self, ttype: Type) -> DFPattern:
        """Return this pattern, restricted to values of this type."""
        return TypePattern(self, ttype)

    def has_dtype(self, dtype: str | DataType) -> DFPattern:
        """Return this pattern, restricted to tensors of this dtype."""
        return has_dtype(dtype, self)

    def has_shape(self, shape: Sequence[Any]) -> DFPattern:
        """Return this pattern, restricted to tensors of this shape."""
        return has_shape(shape, self)

    def dominates(self, parent: DFPattern, path: DFPattern | None = None) -> DominatorPattern:
        """Return this pattern as the single value where all uses of `parent` end, with only `path` between them."""
        return DominatorPattern(parent, wildcard() if path is None else path, self)

    def match(self, expr: Expr | type[Op]) -> bool:
        """Return whether `expr`, or an operator without its call, matches this pattern."""
        from tilewright.relay.dataflow_pattern.match import match

        return match(self, expr)

    def partition(self, expr: Expr, attrs: Mapping[str, Any] | None = None,
                  check: Callable[[Expr], bool] = lambda expr: True) -> Expr:
        """Return `expr` with each match outlined as a call of a function.

        The functions have the attributes `attrs` and `PartitionedFromPattern`, the names of their operators. Matches
        that `check` rejects stay, as do matches with an inner value that is used outside.
        """
        from tilewright.relay.dataflow_pattern.rewrite import partition

        return partition(self, expr, attrs, check)

    def inside(self) -> Parts:
        """Return the direct subpatterns."""
        return ()

    def __repr__(self) -> str:
        from tilewright.relay.dataflow_pattern.text import text_of

        return text_of(self)


@node
class ExprPattern(DFPattern):
    """An expression structurally equal to `expr`; or an operator, given as its class or as an object with attributes.
    """

    expr: Expr | Op | type[Op]


@node
class VarPattern(DFPattern):
    """A variable, of the given name unless it is empty."""

    name: str = ""


@node
class ConstantPattern(DFPattern):
    """Any constant."""


@node
class WildcardPattern(DFPattern):
    """Any expression; or a match of the pattern given to `redirect_to`, so that a pattern may contain itself."""

    redirected: DFPattern | None = None

    def redirect_to(self, pattern: DFPattern) -> None:
        """Make this wildcard equivalent to `pattern`, which may contain it."""
        object.__setattr__(self, "redirected", pattern)


@node
class CallPattern(DFPattern):
    """A call of `op` on `args` (None: any arguments). Sums and products match in either order."""

    op: DFPattern
    args: Sequence[DFPattern] | None

    def __post_init__(self) -> None:
        _sequence(self, "args")

    def inside(self) -> Parts:
        return (self.op, *(self.args or ()))


@node
class FunctionPattern(DFPattern):
    """A function with the parameters `params` (None: any), whose body matches `body`."""

    params: Sequence[DFPattern] | None
    body: DFPattern

    def __post_init__(self) -> None:
        _sequence(self, "params")

    def inside(self) -> Parts:
        return (*(self.params or ()), self.body)


@node
class IfPattern(DFPattern):
    """An `if`."""

    cond: DFPattern
    true_branch: DFPattern
    false_branch: DFPattern

    def inside(self) -> Parts:
        return (self.cond, self.true_branch, self.false_branch)


@node
class LetPattern(DFPattern):
    """A `let`."""

    var: DFPattern
    value: DFPattern
    body: DFPattern

    def inside(self) -> Parts:
        return (self.var, self.value, self.body)


@node
class TuplePattern(DFPattern):
    """A tuple of `fields` (None: any)."""

    fields: Sequence[DFPattern] | None

    def __post_init__(self) -> None:
        _sequence(self, "fields")

    def inside(self) -> Parts:
        return tuple(self.fields or ())


@node
class TupleGetItemPattern(DFPattern):
    """The field `index` (None: any) of a tuple."""

    tuple: DFPattern
    index: int | None = None

    def inside(self) -> Parts:
        return (self.tuple,)


@node
class AltPattern(DFPattern):
    """`left`, or otherwise `right`."""

    left: DFPattern
    right: DFPattern

    def inside(self) -> Parts:
        return (self.left, self.right)


@node
class TypePattern(DFPattern):
    """`pattern`, restricted to values of the type `type`. A value of unknown type does not match."""

    pattern: DFPattern
    type: Type

    def inside(self) -> Parts:
        return (self.pattern,)


@node
class DataTypePattern(DFPattern):
    """`pattern`, restricted to tensors of `dtype`."""

    pattern: DFPattern
    dtype: DataType

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", DataType(self.dtype))

    def inside(self) -> Parts:
        return (self.pattern,)


@node
class ShapePattern(DFPattern):
    """`pattern`, restricted to tensors of `shape`."""

    pattern: DFPattern
    shape: tuple[Any, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))

    def inside(self) -> Parts:
        return (self.pattern,)


@node
class AttrPattern(DFPattern):
    """`pattern`, restricted to matches with these attributes: of a call, of a function, or (`TOpPattern` and registered
    ones) of an operator."""

    pattern: DFPattern
    attrs: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "attrs", {k: plain(v) for k, v in self.attrs.items()})

    def inside(self) -> Parts:
        return (self.pattern,)


@node
class DominatorPattern(DFPattern):
    """`child`, if all paths up from it end at one `parent` through values that match `path`, and no path down from the
    parent leaves them."""

    parent: DFPattern
    path: DFPattern
    child: DFPattern

    def inside(self) -> Parts:
        return (self.parent, self.path, self.child)


def _sequence(pattern: Any, name: str) -> None:
    """Convert a field that is a sequence of patterns, or None, to a tuple."""
    given = getattr(pattern, name)
    if given is None:
        return
    wrong = [p for p in given if not isinstance(p, DFPattern)]
    if wrong:
        raise CompileError(f"the {name} of a {type(pattern).__name__} must be patterns, but "
                           f"{wrong[0]!r} is a {type(wrong[0]).__name__}; wrap it in is_expr", code="TW0413")
    object.__setattr__(pattern, name, tuple(given))


def is_var(name: str = "") -> VarPattern:
    """Return the pattern of a variable, of the given name unless it is empty."""
    return VarPattern(name)


def is_constant() -> ConstantPattern:
    """Return the pattern of a constant. The constant stays inside a partition; one matched by a wildcard becomes an
    argument."""
    return ConstantPattern()


def is_expr(expr: Expr) -> ExprPattern:
    """Return the pattern of an expression structurally equal to `expr`."""
    return ExprPattern(expr)


def is_op(op_name: str) -> ExprPattern:
    """Return the pattern of the operator of that name. Raises `CompileError` with the nearest names."""
    return ExprPattern(get(op_name))


def is_tuple(fields: Sequence[DFPattern] | None) -> TuplePattern:
    """Return the pattern of a tuple of these fields; None matches any fields."""
    return TuplePattern(None if fields is None else tuple(fields))


def is_tuple_get_item(tuple_value: DFPattern, index: int | None = None) -> TupleGetItemPattern:
    """Return the pattern of the field `index` of a tuple; None matches any field."""
    return TupleGetItemPattern(tuple_value, index)


def is_if(cond: DFPattern, true_branch: DFPattern, false_branch: DFPattern) -> IfPattern:
    """Return the pattern of an `if` whose parts match."""
    return IfPattern(cond, true_branch, false_branch)


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> LetPattern:
    """Return the pattern of a `let` whose parts match."""
    return LetPattern(var, value, body)


def wildcard() -> WildcardPattern:
    """Return a pattern that matches anything."""
    return WildcardPattern()


def has_type(ttype: Type, pattern: DFPattern | None = None) -> TypePattern:
    """Return `pattern` (default: anything), restricted to values of that type."""
    return TypePattern(wildcard() if pattern is None else pattern, ttype)


def has_dtype(dtype: str | DataType, pattern: DFPattern | None = None) -> DataTypePattern:
    """Return `pattern` (default: anything), restricted to tensors of that dtype."""
    return DataTypePattern(wildcard() if pattern is None else pattern, DataType(dtype))


def has_shape(shape: Sequence[Any], pattern: DFPattern | None = None) -> ShapePattern:
    """Return `pattern` (default: anything), restricted to tensors of that shape."""
    return ShapePattern(wildcard() if pattern is None else pattern, tuple(shape))


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """Return the pattern of values with these attributes that match `pattern`."""
    return AttrPattern(wildcard() if pattern is None else pattern, attrs)


def dominates(parent: DFPattern, path: DFPattern, child: DFPattern) -> DominatorPattern:
    """Return the pattern of `child` with one `parent` and only `path` between them."""
    return DominatorPattern(parent, path, child)


def pattern_nodes(root: DFPattern) -> list[DFPattern]:
    """Return the subpatterns of `root`, itself included, once each and innermost first."""
    return post_order([root], lambda p: (p.redirected,) if isinstance(p, WildcardPattern) and p.redirected is not None
                      else p.inside())

