"""Relay expressions: the graph of a model.

Every call infers its type when it is built, as soon as the types of its arguments are known; `expr.checked_type` is that
type. Nodes are compared by identity; two equal calls are two calls until common subexpressions are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.errors import CompileError, Origin
from tilewright.node import node
from tilewright.types import DataType, FuncType, TensorType, TupleType, Type

if TYPE_CHECKING:
    from tilewright.relay.op.registry import Op


class Expr:
    """Base of graph expressions. `span` is the model's node that this one came from."""

    __slots__ = ()
    span: Origin | None

    def known_type(self) -> Type | None:
        """The type, or None when it is not known yet."""
        raise NotImplementedError

    @property
    def checked_type(self) -> Type:
        """The type; raises `CompileError` when it is not known yet."""
        found = self.known_type()
        if found is None:
            raise CompileError(f"the type of this {type(self).__name__} is not known; annotate its variables", self.span)
        return found

    @property
    def tensor_type(self) -> TensorType:
        """The type of a tensor value; raises `CompileError` for tuples and functions."""
        found = self.checked_type
        if not isinstance(found, TensorType):
            raise CompileError(f"a tensor was expected, and this is {found!r}", self.span)
        return found

    def __repr__(self) -> str:
        from tilewright.relay.printer import text_of

        return text_of(self)

    def __getitem__(self, index: int) -> Expr:
        """A field of a tuple; raises `IndexError` past the last one, so that `a, b = split(…)` unpacks."""
        whole = self.checked_type
        if not isinstance(whole, TupleType):
            raise CompileError(f"a tuple was expected, and this is {whole!r}; take elements of a tensor with strided_slice or take", self.span)
        if not 0 <= index < len(whole.fields):
            raise IndexError(f"field {index} of a tuple of {len(whole.fields)}")
        return self.fields[index] if isinstance(self, Tuple) else TupleGetItem(self, index)

    def __add__(self, other: Any) -> Call: return _apply("add", self, other)
    def __radd__(self, other: Any) -> Call: return _apply("add", other, self)
    def __sub__(self, other: Any) -> Call: return _apply("subtract", self, other)
    def __rsub__(self, other: Any) -> Call: return _apply("subtract", other, self)
    def __mul__(self, other: Any) -> Call: return _apply("multiply", self, other)
    def __rmul__(self, other: Any) -> Call: return _apply("multiply", other, self)
    def __truediv__(self, other: Any) -> Call: return _apply("divide", self, other)
    def __rtruediv__(self, other: Any) -> Call: return _apply("divide", other, self)
    def __neg__(self) -> Call: return _apply("negative", self)

    def astype(self, dtype: str | DataType) -> Call:
        """`relay.cast`."""
        return _apply("cast", self, dtype=dtype)


@node
class Var(Expr):
    """A parameter or a let-bound name."""

    name_hint: str
    type_annotation: Type | None = None
    span: Origin | None = None

    def known_type(self) -> Type | None:
        return self.type_annotation


@node
class Constant(Expr):
    """A tensor whose value is known. `value` is a numpy array that nobody writes to."""

    value: np.ndarray[Any, Any]
    span: Origin | None = None

    def known_type(self) -> Type:
        return TensorType(self.value.shape, DataType(self.value.dtype))


@node
class Tuple(Expr):
    fields: tuple[Expr, ...]
    span: Origin | None = None

    def known_type(self) -> Type | None:
        types = [f.known_type() for f in self.fields]
        return None if any(t is None for t in types) else TupleType(tuple(t for t in types if t is not None))


@node
class TupleGetItem(Expr):
    tuple_value: Expr
    index: int
    span: Origin | None = None

    def known_type(self) -> Type | None:
        whole = self.tuple_value.known_type()
        return whole.fields[self.index] if isinstance(whole, TupleType) else None


@node
class GlobalVar(Expr):
    """The name of a function of the module; `function_type` is set by whoever makes it."""

    name_hint: str
    function_type: FuncType | None = None
    span: Origin | None = None

    def known_type(self) -> Type | None:
        return self.function_type


@node
class Function(Expr):
    """A function. `attrs` hold the field's keys (`Primitive`, `Compiler`, `Composite`, `global_symbol`, …)."""

    params: tuple[Var, ...]
    body: Expr
    attrs: dict[str, Any] = field(default_factory=dict)
    span: Origin | None = None

    def known_type(self) -> Type | None:
        ret = self.body.known_type()
        args = [p.known_type() for p in self.params]
        if ret is None or any(a is None for a in args):
            return None
        return FuncType(tuple(a for a in args if a is not None), ret)

    @property
    def ret_type(self) -> Type:
        return self.body.checked_type


@node
class If(Expr):
    cond: Expr
    true_branch: Expr
    false_branch: Expr
    span: Origin | None = None

    def known_type(self) -> Type | None:
        return self.true_branch.known_type()


@node
class Let(Expr):
    var: Var
    value: Expr
    body: Expr
    span: Origin | None = None

    def known_type(self) -> Type | None:
        return self.body.known_type()


class Call(Expr):
    """An operator (or a function) applied to arguments. `op` is an `Op` with its attributes, a `Function` or a `GlobalVar`."""

    __slots__ = ("__weakref__", "_type", "args", "op", "span")

    def __init__(self, op: Op | Expr, args: Sequence[Expr], span: Origin | None = None) -> None:
        """Infers the type. Raises `ShapeError` when the operator refuses these arguments."""
        self.op = op
        self.args = tuple(args)
        self.span = span
        self._type: Type | None = None
        self._type = self._infer()

    def _infer(self) -> Type | None:
        types = [a.known_type() for a in self.args]
        if any(t is None for t in types):
            return None
        if isinstance(self.op, Expr):
            function = self.op.known_type()
            return function.ret_type if isinstance(function, FuncType) else None
        return self.op.infer_call([t for t in types if t is not None], self.span)

    def known_type(self) -> Type | None:
        if self._type is None:
            self._type = self._infer()
        return self._type

    @property
    def attrs(self) -> Any:
        """The attributes of the operator: `call.attrs.axis`."""
        return self.op


def const(value: Any, dtype: str | DataType | None = None) -> Constant:
    """A constant from a number, a sequence or an array; Python floats become float32, Python ints int32, as in the field."""
    if dtype is None and not isinstance(value, (np.ndarray, np.generic)):
        probe = np.asarray(value)
        dtype = {"f": "float32", "i": "int32"}.get(probe.dtype.kind)
    array = np.asarray(getattr(value, "numpy", lambda: value)(), None if dtype is None else DataType(dtype).numpy())
    return Constant(np.ascontiguousarray(array).reshape(array.shape))


def var(name_hint: str, type_annotation: Type | None = None, shape: Sequence[Any] | None = None, dtype: str = "float32") -> Var:
    """A variable: `relay.var("x", shape=(1, 3))`, `relay.var("x", relay.TensorType((1, 3), "int8"))`."""
    if type_annotation is None and shape is not None:
        type_annotation = TensorType(shape, dtype)
    return Var(name_hint, type_annotation)


def _apply(name: str, *args: Any, **attrs: Any) -> Call:
    """An operator as Python's operators write it; a number takes the dtype of the tensor beside it."""
    from tilewright.relay.op.registry import as_relay, get

    known = next((t for a in args if isinstance(a, Expr) and isinstance(t := a.known_type(), TensorType)), None)
    dtype = known.dtype if known is not None else None
    return get(name)(**attrs)(*(const(a, dtype) if isinstance(a, (int, float)) else as_relay(a) for a in args))
