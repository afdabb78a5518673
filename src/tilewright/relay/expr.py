"""Relay expressions: the graph of a model, and the small functional language around it.

A node knows its type from construction if the types of its operands are known; `expr.checked_type` is that type.
Expressions over variables without annotations get their types from `InferType`. Nodes are compared by identity; two
equal calls remain two calls until common subexpressions are merged. Data types and `match` are in `relay/adt.py`.

    expr ::= Var | GlobalVar | Constant | Call(op, args) | Function(params, body) | Tuple(fields)
           | TupleGetItem(tuple, index)
           | If(cond, then, else) | Let(var, value, body) | RefCreate(value) | RefRead(ref) | RefWrite(ref, value)
           | Constructor | Match(data, clauses)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from tilewright.base.errors import CompileError, Origin, ShapeError
from tilewright.base.node import node
from tilewright.base.type_matching import bind_types, join_types
from tilewright.base.types import (
    DataType,
    FuncType,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeVar,
    substitute_type,
)
from tilewright.ir import dialects
from tilewright.ir.virtual_device import FREE, VirtualDevice, virtual_device
from tilewright.scalar.expr import FloatImm, IntImm

if TYPE_CHECKING:
    from tilewright.base.nd import NDArray


class Expr:
    """Base of graph expressions. `span` is the node of the model from which this one was made."""

    __slots__ = ("_type",)
    span: Origin | None
    _type: Type | None

    def known_type(self) -> Type | None:
        """The type, or None when it is not known yet."""
        return self._type

    def infer_type(self) -> Type | None:
        """The type derived from the operands' types, or None if these are not known."""
        raise NotImplementedError

    def set_type(self, found: Type | None) -> None:
        """Record the inferred type. It is derived data, so the node counts as unchanged."""
        object.__setattr__(self, "_type", found)

    def __post_init__(self) -> None:
        self.set_type(self.infer_type())

    @property
    def type_key(self) -> str:
        """Name of the kind of node in TVM's reflection: `relay.Call`."""
        return f"relay.{type(self).__name__}"

    @property
    def checked_type(self) -> Type:
        """The type; raises `CompileError` when it is not known yet."""
        found = self.known_type()
        if found is None:
            raise CompileError(f"the type of this {type(self).__name__} is not known; annotate its variables",
                               self.span, code="TW0310")
        return found

    @property
    def tensor_type(self) -> TensorType:
        """The type of a tensor value; raises `CompileError` for tuples and functions."""
        found = self.checked_type
        if not isinstance(found, TensorType):
            raise CompileError(f"a tensor is expected, not {found!r}", self.span, code="TW0311")
        return found

    def __repr__(self) -> str:
        from tilewright.relay.printer import text_of

        return text_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy as JSON, which supports graphs of any depth."""
        return dialects.pickled(self)

    def astext(self, show_meta_data: bool = True, annotate: Callable[[Expr], str] | None = None,
               show_spans: bool = False) -> str:
        """The expression as text, which `relay.parse_expr` reads. `annotate` and `show_spans` are those of
        `relay.astext`."""
        from tilewright.relay.printer import astext

        return astext(self, show_meta_data, annotate, show_spans)

    def __getitem__(self, index: int) -> Expr:
        """Return a field of a tuple; a negative index counts from the end. Raises `IndexError` past the last field, so
        that `a, b = split(…)` unpacks.

        Where the type is unknown, a field is assumed to exist unless the operator's number of results is known.
        """
        if isinstance(self, Tuple):
            if not -len(self.fields) <= index < len(self.fields):
                raise IndexError(f"field {index} is out of range for a tuple of {len(self.fields)} fields")
            return self.fields[index]
        whole = self.known_type()
        if whole is None and isinstance(self, Call) and not isinstance(self.op, Expr) and index >= 0:
            if self.op.results is not None and index >= self.op.results:
                raise IndexError(f"field {index} is out of range for a tuple of {self.op.results} fields")
            return TupleGetItem(self, index)
        whole = self.checked_type
        if not isinstance(whole, TupleType):
            raise CompileError(f"a tuple is expected, not {whole!r}; take elements of a "
                               "tensor with strided_slice or take", self.span, code="TW0311")
        if not -len(whole.fields) <= index < len(whole.fields):
            raise IndexError(f"field {index} is out of range for a tuple of {len(whole.fields)} fields")
        return TupleGetItem(self, index % len(whole.fields))

    def __iter__(self) -> Iterator[Expr]:
        """Iterate over the fields of a tuple."""
        known = self.known_type()
        if known is None and not (isinstance(self, Call) and getattr(self.op, "results", None) is not None):
            raise CompileError("the number of fields is not known; use indices, or annotate the variables",
                               self.span, code="TW0310")
        count = self.op.results if known is None and isinstance(self, Call) else len(getattr(known, "fields", (0,)))
        return (self[i] for i in range(count))

    def astuple(self) -> Expr:
        """Return the tuple itself; scripts for TVM unwrap operators of several results with it."""
        return self

    def same_as(self, other: object) -> bool:
        """Return whether this is the same node, as `==` does."""
        return self is other

    def __call__(self, *args: Expr) -> Call:
        """Return a call of the function that this expression denotes."""
        return Call(self, args)

    def __add__(self, other: Any) -> Call: return _apply("add", self, other)
    def __radd__(self, other: Any) -> Call: return _apply("add", other, self)
    def __sub__(self, other: Any) -> Call: return _apply("subtract", self, other)
    def __rsub__(self, other: Any) -> Call: return _apply("subtract", other, self)
    def __mul__(self, other: Any) -> Call: return _apply("multiply", self, other)
    def __rmul__(self, other: Any) -> Call: return _apply("multiply", other, self)
    def __truediv__(self, other: Any) -> Call: return _apply("divide", self, other)
    def __rtruediv__(self, other: Any) -> Call: return _apply("divide", other, self)
    def __neg__(self) -> Call: return _apply("negative", self)
    def __lt__(self, other: Any) -> Call: return _apply("less", self, other)
    def __gt__(self, other: Any) -> Call: return _apply("greater", self, other)
    def __le__(self, other: Any) -> Call: return _apply("less_equal", self, other)
    def __ge__(self, other: Any) -> Call: return _apply("greater_equal", self, other)

    def astype(self, dtype: str | DataType) -> Call:
        """Return `relay.cast` of this value."""
        return _apply("cast", self, dtype=dtype)


@node
class Var(Expr):
    """A parameter or a let-bound name."""

    name_hint: str
    type_annotation: Type | None = None
    span: Origin | None = None
    virtual_device: VirtualDevice | None = None
    """Device of a parameter, as `PlanDevices` chooses it."""

    def __post_init__(self) -> None:
        if type(self.type_annotation) is IncompleteType:
            object.__setattr__(self, "type_annotation", None)
        self.set_type(self.type_annotation)

    def infer_type(self) -> Type | None:
        return self.type_annotation

    @property
    def vid(self) -> Var:
        """TVM's identity of a variable, with a `name_hint`: the variable itself."""
        return self

    @property
    def virtual_device_(self) -> VirtualDevice:
        """The device of the variable, under TVM's name; `VirtualDevice()` if none is known."""
        return self.virtual_device or FREE


@node
class GlobalVar(Expr):
    """The name of a function of the module; the creator of the function sets `function_type`."""

    name_hint: str
    function_type: FuncType | None = None
    span: Origin | None = None

    def infer_type(self) -> Type | None:
        return self.function_type

    @property
    def type_key(self) -> str:
        return "GlobalVar"

    def __call__(self, *args: Expr) -> Call:
        """Return a call of the function."""
        return Call(self, args)


@node
class Constant(Expr):
    """A tensor of known value. `value` is a read-only numpy array; objects with `numpy()` are converted."""

    value: np.ndarray[Any, Any]
    span: Origin | None = None

    def __post_init__(self) -> None:
        value: Any = self.value
        if not isinstance(value, np.ndarray):
            value = value.numpy() if hasattr(value, "numpy") else np.asarray(value)
            object.__setattr__(self, "value", value)
        self.set_type(TensorType(value.shape, DataType(value.dtype)))

    @property
    def data(self) -> NDArray:
        """The value as an array of the package, without a copy."""
        from tilewright.base.nd import NDArray

        return NDArray(self.value)


@node
class Tuple(Expr):
    """A fixed tuple of values."""

    fields: tuple[Expr, ...]
    span: Origin | None = None

    def __init__(self, fields: Iterable[Expr], span: Origin | None = None) -> None:
        object.__setattr__(self, "fields", tuple(fields))
        object.__setattr__(self, "span", span)
        self.set_type(self.infer_type())

    def infer_type(self) -> Type | None:
        types = [f.known_type() for f in self.fields]
        return None if any(t is None for t in types) else TupleType([t for t in types if t is not None])

    def __len__(self) -> int:
        return len(self.fields)


@node
class TupleGetItem(Expr):
    """A field of a tuple value."""

    tuple_value: Expr
    index: int
    span: Origin | None = None

    def infer_type(self) -> Type | None:
        whole = self.tuple_value.known_type()
        if isinstance(whole, TupleType) and not 0 <= self.index < len(whole.fields):
            raise ShapeError(f"field {self.index} is out of range for a tuple of {len(whole.fields)} "
                             f"fields: {whole!r}", self.span)
        return whole.fields[self.index] if isinstance(whole, TupleType) else None


class Attrs(dict[str, Any]):
    """Read-only attributes of a function, or of a call of one: `attrs["Compiler"]`, `attrs.Compiler`,
    `attrs.get("Compiler")`."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the function has no attribute '{name}'") from None


def _plain(value: Any) -> Any:
    """Return the Python value of a number or text node of TVM (`tir.IntImm("int32", 1)`); other values unchanged."""
    return value.value if isinstance(value, (IntImm, FloatImm)) else value


class Function(Expr):
    """A function of `params`. `attrs` hold TVM's keys (`Primitive`, `Compiler`, `Composite`, `global_symbol`, …).
    `virtual_device` among them is the device of the result; structural equality ignores it, as in TVM.

    `ret_type` is the declared type of the result, or else that of the body; `type_params` are the type variables of a
    polymorphic function.
    """

    __slots__ = ("__weakref__", "_declared", "attrs", "body", "params", "span", "type_params")
    uncompared_keys: ClassVar = frozenset({"virtual_device"})

    def __init__(
        self, params: Sequence[Var], body: Expr, ret_type: Type | None = None, type_params: Sequence[TypeVar]
        | None = None,
        attrs: Mapping[str, Any] | None = None, span: Origin | None = None,
    ) -> None:
        self.params = tuple(params)
        self.body = body
        self._declared = ret_type
        self.type_params = tuple(type_params or ())
        self.attrs = attrs if isinstance(attrs, Attrs) else Attrs({k: _plain(v) for k, v in (attrs or {}).items()})
        self.span = span
        self._type = self.infer_type()

    def infer_type(self) -> Type | None:
        ret = self.ret_type
        args = [p.known_type() for p in self.params]
        if ret is None or any(a is None for a in args):
            return None
        return FuncType([a for a in args if a is not None], ret, self.type_params)

    @property
    def ret_type(self) -> Type | None:
        """The type of the result: the declared one, else that of the body; None when neither is known."""
        return self._declared if self._declared is not None else self.body.known_type()

    @property
    def virtual_device_(self) -> VirtualDevice:
        """The device of the result, the attribute `virtual_device`; `VirtualDevice()` if none is known."""
        return virtual_device(self.attrs.get("virtual_device", FREE))

    @property
    def declared_ret_type(self) -> Type | None:
        """The type that was written for the result, or None."""
        return self._declared

    def with_body(self, body: Expr) -> Function:
        """The same function around another body."""
        return Function(self.params, body, self._declared, self.type_params, self.attrs, self.span)

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> Function:
        """Return the same function with additional attributes: one, or a mapping of several."""
        more = {key: value} if isinstance(key, str) else key
        return Function(self.params, self.body, self._declared, self.type_params, {**self.attrs, **more}, self.span)

    def without_attr(self, key: str) -> Function:
        """The same function without an attribute."""
        attrs = {k: v for k, v in self.attrs.items() if k != key}
        return Function(self.params, self.body, self._declared, self.type_params, attrs, self.span)

    def __call__(self, *args: Expr) -> Call:
        """Return a call of the function."""
        return Call(self, args)


@node
class If(Expr):
    """The value of one of two branches, selected by a boolean scalar; only that branch is computed."""

    cond: Expr
    true_branch: Expr
    false_branch: Expr
    span: Origin | None = None

    def infer_type(self) -> Type | None:
        cond, then, other = self.cond.known_type(), self.true_branch.known_type(), self.false_branch.known_type()
        if cond is not None and cond != TensorType((), "bool"):
            raise ShapeError(f"the condition of an if must be a bool scalar, not {cond!r}", self.span)
        if then is None or other is None:
            return then if then is not None else other
        found = join_types(then, other)
        if found is None:
            raise ShapeError(f"the branches of an if have different types, {then!r} and {other!r}", self.span)
        return found


@node
class Let(Expr):
    """`value` under the name `var` in `body`; its side effects (writes to references) precede the body."""

    var: Var
    value: Expr
    body: Expr
    span: Origin | None = None

    def infer_type(self) -> Type | None:
        return self.body.known_type()


@node
class RefCreate(Expr):
    """A new reference that holds `value`."""

    value: Expr
    span: Origin | None = None

    def infer_type(self) -> Type | None:
        held = self.value.known_type()
        return None if held is None else RefType(held)


@node
class RefRead(Expr):
    """The current value of a reference."""

    ref: Expr
    span: Origin | None = None

    def infer_type(self) -> Type | None:
        return _held(self.ref, self.span)


@node
class RefWrite(Expr):
    """Store `value` in a reference; the result is the empty tuple."""

    ref: Expr
    value: Expr
    span: Origin | None = None

    def infer_type(self) -> Type | None:
        held, given = _held(self.ref, self.span), self.value.known_type()
        if held is not None and given is not None and not bind_types(held, given, frozenset(), {}):
            raise ShapeError(f"a value of type {given!r} cannot be written to a reference to {held!r}", self.span)
        return TupleType(())


def _held(ref: Expr, span: Origin | None) -> Type | None:
    known = ref.known_type()
    if known is not None and not isinstance(known, RefType):
        raise ShapeError(f"a reference is expected, not {known!r}", span)
    return known.value if isinstance(known, RefType) else None


class Call(Expr):
    """An operator or a function applied to arguments.

    `op` is an `Op` with its attributes, or an expression of function type. In TVM's form, `Call(op, args, attrs)`, `op`
    may also be the class that `relay.op.get(name)` returns, with the attributes as a mapping or as `attrs` of another
    call. A call of a function may have attributes of its own, a mapping, which have no effect on its value.
    """

    __slots__ = ("__weakref__", "args", "op", "own_attrs", "span")

    def __init__(self, op: Any, args: Sequence[Expr], attrs: Any = None, type_args: Sequence[Type] | None = None,
                 span: Origin | None = None) -> None:
        """Infer the type. Raises `ShapeError` if the operator rejects the arguments."""
        self.own_attrs: Attrs | None = None
        if isinstance(op, Expr):
            self.op: Any = op
            if attrs is not None:
                self.own_attrs = _of_function(attrs)
        else:
            self.op = op if attrs is None and not isinstance(op, type) else _applied(op, attrs)
        self.args = tuple(args)
        self.span = span
        self._type = self.infer_type()

    @classmethod
    def untyped(cls, op: Any, args: Sequence[Expr], span: Origin | None = None) -> Call:
        """Return a call whose type is not inferred, for arguments that the operator may reject; a rule replaces it."""
        made = cls.__new__(cls)
        made.op, made.args, made.own_attrs, made.span, made._type = op, tuple(args), None, span, None
        return made

    def infer_type(self) -> Type | None:
        types = [a.known_type() for a in self.args]
        if any(t is None for t in types):
            return None
        known = [t for t in types if t is not None]
        if not isinstance(self.op, Expr):
            found: Type = self.op.infer_call(known, self.span)
            return found
        function = self.op.known_type()
        return None if function is None else applied_type(function, known, self.span)

    @property
    def attrs(self) -> Any:
        """The attributes of the operator, `call.attrs.axis`; for a call of a function, its own attributes or None."""
        return self.own_attrs if isinstance(self.op, Expr) else self.op

    @property
    def tuple_value(self) -> Expr:
        """The call itself, as `astuple()`."""
        return self

    @property
    def type_args(self) -> tuple[Type, ...]:
        """The known types of an operator's arguments; empty for a call of a function."""
        return () if isinstance(self.op, Expr) else tuple(t for a in self.args if (t := a.known_type()) is not None)


def _of_function(attrs: Any) -> Attrs:
    """Return the attributes of a call of a function."""
    if not isinstance(attrs, Mapping):
        raise CompileError(f"a call of a function takes a mapping as its attributes, not {attrs!r}", code="TW0307")
    return attrs if isinstance(attrs, Attrs) else Attrs({k: _plain(v) for k, v in attrs.items()})


def _applied(op: Any, attrs: Any) -> Any:
    """The operator `op`, a class or an object, with the attributes of a mapping or of an operator of its class."""
    kind = op if isinstance(op, type) else type(op)
    if isinstance(attrs, kind):
        return attrs
    if not (attrs is None or isinstance(attrs, Mapping)):
        raise CompileError(f"{op.name} cannot take the attributes {attrs!r}", code="TW0307")
    given = dict(attrs or {})
    return kind(**given) if isinstance(op, type) or given else op


def applied_type(function: Type, args: Sequence[Type], span: Origin | None = None) -> Type | None:
    """Return the type of a call of a function of that type. Raises `ShapeError` for an argument that does not fit.

    None if the function is generic in types that its arguments do not determine.
    """
    if not isinstance(function, FuncType):
        raise ShapeError(f"a function is expected, not {function!r}", span)
    if len(args) != len(function.arg_types):
        raise ShapeError(f"the function takes {len(function.arg_types)} arguments, but was given {len(args)}", span)
    function = function.without_constraints()
    bound: dict[Type, Type] = {}
    # generic functions come last, since the other arguments determine the types that they are used with
    numbered = sorted(enumerate(zip(function.arg_types, args, strict=True)), key=lambda a: _is_generic(a[1][1]))
    for i, (wanted, given) in numbered:
        if not bind_types(wanted, given, frozenset(function.type_params), bound):
            raise ShapeError(f"argument {i} has type {given!r}, but the function takes "
                             f"{substitute_type(wanted, bound)!r}",
                             span)
    if any(v not in bound for v in function.type_params):
        return None
    return substitute_type(function.ret_type, bound)


def _is_generic(kind: Type) -> bool:
    return isinstance(kind, FuncType) and bool(kind.type_params)


def const(value: Any, dtype: str | DataType | TensorType | None = None) -> Constant:
    """Return a constant made from a number, sequence or array, of a dtype or that of a tensor type. As in TVM, Python
    floats become float32 and ints int32; an array keeps its dtype."""
    dtype = dtype.dtype if isinstance(dtype, TensorType) else dtype
    if dtype is None and not hasattr(value, "dtype"):
        probe = np.asarray(value)
        dtype = {"f": "float32", "i": "int32"}.get(probe.dtype.kind)
    array = np.asarray(getattr(value, "numpy", lambda: value)(), None if dtype is None else DataType(dtype).numpy())
    return Constant(np.ascontiguousarray(array).reshape(array.shape))


_NARROWED: Final = {"float64": "float32", "int64": "int32"}
"""Dtypes of the constants that scripts make of arrays of these dtypes."""


def script_const(value: Any, dtype: str | DataType | TensorType | None = None) -> Constant:
    """Return a constant made from a number, sequence or array, of a dtype or that of a tensor type: `relay.const`.

    As in TVM, float64 becomes float32 and int64 becomes int32 where no dtype is given, also in numpy arrays. An
    `NDArray` keeps its dtype, and `Constant(array)` keeps that of a numpy array. Raises `CompileError` for integers
    that int32 cannot hold.
    """
    if dtype is None and isinstance(value, (np.ndarray, np.generic)):
        dtype = _NARROWED.get(value.dtype.name)
        if dtype == "int32" and np.any(value != value.astype(np.int32)):
            raise CompileError("the integers of a constant do not fit into int32; give const(…, dtype='int64')",
                               code="TW0307")
    return const(value, dtype)


def var(
    name_hint: str, type_annotation: Type | str | None = None, shape: Sequence[Any] | None = None,
    dtype: str = "float32", span: Origin | None = None
) -> Var:
    """A variable: `relay.var("x", shape=(1, 3))`, `relay.var("x", relay.TensorType((1, 3), "int8"))`, and
    `relay.var("x", "int8")` for a scalar.

    Raises `CompileError` when both a type and a shape are given.
    """
    if type_annotation is not None and shape is not None:
        raise CompileError(f"the variable {name_hint} was given both the type "
                           f"{type_annotation!r} and the shape {tuple(shape)}; omit one of them", span, code="TW0307")
    if shape is not None:
        return Var(name_hint, TensorType(shape, dtype), span)
    return Var(name_hint, TensorType((), type_annotation) if isinstance(type_annotation, str) else type_annotation,
               span)


def __getattr__(name: str) -> Any:
    """Return a name of TVM's `relay.expr` that is defined in `relay/fields.py`."""
    from tilewright.relay import fields

    if name not in fields.__all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'", name=name)
    return getattr(fields, name)


def _apply(name: str, *args: Any, **attrs: Any) -> Call:
    """Apply an operator written as a Python operator; a number takes the dtype of the tensor operand."""
    from tilewright.relay.op.registry import as_relay, get

    known = next((t for a in args if isinstance(a, Expr) and isinstance(t := a.known_type(), TensorType)), None)
    dtype = known.dtype if known is not None else None
    return get(name)(**attrs)(*(const(a, dtype) if isinstance(a, (int, float)) else as_relay(a) for a in args))
