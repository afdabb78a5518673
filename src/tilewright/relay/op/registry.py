"""`Op` and the `@op` decorator: each operator is one class with all its properties.

An `Op` object is an operator with its attributes: `Softmax(axis=1)(x)` is a call. Passes read the properties declared
here (`kind`, `relayout`, `simplify`). Only text formats and patterns look up an operator by name.
"""

from __future__ import annotations

import dataclasses
import enum
import inspect
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform

import numpy as np

from tilewright.base.errors import CompileError, NoNativeKernel, Origin, ShapeError, UnequalSizesError
from tilewright.base.limits import refused_size
from tilewright.base.types import DataType, TensorType, TupleType, Type
from tilewright.ir.op_attributes import op_attr, register_op_attr, reset_op_attr
from tilewright.relay.expr import Call, Expr, Tuple, const
from tilewright.relay.fields import TupleWrapper
from tilewright.relay.op.unsupported import left_out
from tilewright.scalar.expr import PrimExpr, UnknownDim
from tilewright.scalar.expr import Var as ScalarVar
from tilewright.scalar.intrinsics import intrinsic_named
from tilewright.scalar.walk import walk

Array = np.ndarray[Any, Any]
T = TypeVar("T", bound="Op")
Order = tuple[Any, ...]
Relaid = tuple["Op", tuple[Order | None, ...], Order | None]
"""An operator, the order that it needs for each argument, and the order of its result; None for the logical order."""


class Fusion(enum.IntEnum):
    """Fusion class: how an operator joins others in one kernel. A larger value is harder to fuse."""

    ELEMWISE = 0  # out[i] from in[i]
    BROADCAST = 1  # the same, with some axes broadcast
    INJECTIVE = 2  # each output element from one element of each input: transpose, slice, concatenate, …
    REDUCE = 3  # sums over axes; takes elementwise producers
    OUT_FUSABLE = 4  # convolution, matrix product, pooling, softmax, norm: takes elementwise consumers
    OPAQUE = 8  # never fused


class Precision(enum.Enum):
    """Treatment of an operator when `ToMixedPrecision` converts a float32 graph to 16-bit floats."""

    ALWAYS = "always"  # products: they dominate the time, and accumulate in float32
    FOLLOW = "follow"  # 16 bits if the arguments are, to avoid casts
    NEVER = "never"  # too imprecise in 16 bits: exponentials, long sums


class _NumberOfInputs:
    """The number of arguments of an operator's calls, from the signature of `infer`; None if it varies."""

    def __get__(self, instance: Op | None, owner: type[Op]) -> int | None:
        given = [*inspect.signature(owner.infer).parameters.values()][1:]
        return None if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in given) else len(given)


class Op:
    """Base of all operators. A subclass is a frozen dataclass of its attributes, created by `@op`.

    A string literal below an attribute describes it, and the docstring of `infer` states the type of the result;
    `docs/operators` is derived from both.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    name: ClassVar[str]
    kind: ClassVar[Fusion]
    variadic: ClassVar[bool] = False
    """True when the arguments are one tuple of tensors."""
    view: ClassVar[bool] = False
    """True when the result is the first argument's elements, in the same row-major order, under another shape."""
    telling: ClassVar[bool] = False
    """True when importers must not constant-fold it, because later passes match it (quantized weights)."""
    pure: ClassVar[bool] = True
    """False when two calls with equal arguments may differ (random numbers): never folded, never merged."""
    kept: ClassVar[bool] = False
    """True when passes must keep a call of it in its place, although nothing reads its value."""

    objects: ClassVar[bool] = False
    """True when it also works on tensors of Python objects (strings), by its reference."""
    reads_texts: ClassVar[bool] = False
    """True when its kernel reads strings of the inputs, as blocks of bytes (`topi/classic/texts.py`)."""

    attribute_names: ClassVar[tuple[str, ...]] = ()
    attribute_defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, *args: Any, **attrs: Any) -> None:
        """Set the attributes, by position or by name, in their normal form. Raises `CompileError` for unknown names."""
        names = self.attribute_names
        given = dict(zip(names, map(plain, args), strict=False))
        wrong = (f"takes {len(names)} attribute{'s' * (len(names) != 1)}, and was given {len(args)}"
                 if len(args) > len(names) else "")
        for key, value in attrs.items():
            if key not in names:
                wrong = f"got an unexpected keyword argument '{key}'"
            elif key in given:
                wrong = f"got multiple values for argument '{key}'"
            given[key] = plain(value)
        values = self.attribute_defaults | given
        missing = [n for n in names if n not in values]
        if wrong or missing:
            why = wrong or f"missing {len(missing)} required argument{'s' * (len(missing) > 1)}: {', '.join(missing)}"
            raise CompileError(f"{self.name}: {why}; its attributes are: {', '.join(names) or 'none'}", code="TW0307")
        self.__dict__.update(values)
        try:
            self.__post_init__()
        except TypeError as error:
            raise CompileError(f"{self.name}: {error}; its attributes are: {', '.join(names)}", code="TW0307") from None

    def __post_init__(self) -> None:
        """Normalize the attributes."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field '{name}'")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field '{name}'")

    def __eq__(self, other: object) -> bool:
        """Compare with an operator of equal attributes, or with its class: `call.op == relay.op.get("add")`."""
        if type(self) is not type(other):
            return type(self) is other
        return all(getattr(self, n) == getattr(other, n) for n in self.attribute_names)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, n) for n in self.attribute_names)))

    @property
    def results(self) -> int | None:
        """Number of fields of the result tuple; None for a tensor, or if the attributes do not determine it."""
        return None

    precision: ClassVar[Precision | None] = None
    """Category in mixed precision; None leaves it to `ToMixedPrecision.missing_op_mode`."""
    wide: ClassVar[tuple[int, ...]] = ()
    """Arguments that stay in float32 when the others have 16 bits."""
    written: ClassVar[tuple[str, ...]] = ()
    """Attributes that texts contain even where they have their defaults."""
    num_inputs: ClassVar[Any] = _NumberOfInputs()
    """Number of arguments of a call; None if it varies."""
    keeps_type: ClassVar[bool] = False
    """Whether the result has the type of the only argument, for any type."""
    on_host: ClassVar[tuple[int, ...]] = ()
    """Arguments that the host reads, such as shapes, on any device of the operator; -1 is the result."""

    def mixed_precision(self, types: Sequence[Type]) -> Precision | None:
        """Return the mixed-precision category of a call with arguments of these types."""
        return self.precision

    @property
    def type_key(self) -> str:
        """Name of the node kind in TVM's reflection."""
        return "Op"

    @staticmethod
    def get(op_name: str) -> Any:
        """Return the operator class of that name, or the function of loop programs: `tvm.ir.Op.get("nn.conv2d")`,
        `tvm.ir.Op.get("tir.exp")`."""
        return intrinsic_named(op_name) if op_name.startswith("tir.") else get(op_name)

    @staticmethod
    def list_op_names() -> list[str]:
        """Return the names of all operators."""
        return sorted(OPS)

    @classmethod
    def get_attr(cls, attr_name: str) -> Any:
        """The value that `register_op_attr` set; `TOpPattern` defaults to the fusion class, other names to None."""
        found = op_attr(cls.name, attr_name)
        return int(cls.kind) if found is None and attr_name == "TOpPattern" else found

    @classmethod
    def set_attr(cls, attr_name: str, value: Any, plevel: int = 10) -> None:
        """Call `register_op_attr` for this operator."""
        register_op_attr(cls.name, attr_name, value, plevel)

    @classmethod
    def reset_attr(cls, attr_name: str) -> None:
        """Remove a registered attribute."""
        reset_op_attr(cls.name, attr_name)

    @classmethod
    def has_attr(cls, attr_name: str) -> bool:
        """Return whether an attribute is registered for this operator."""
        return op_attr(cls.name, attr_name) is not None

    def keys(self) -> list[str]:
        """Return the names of the attributes."""
        return list(self.attribute_names)

    def __getitem__(self, name: str) -> Any:
        """Return an attribute by name. Raises `KeyError` with the known names."""
        if name not in self.keys():
            raise KeyError(f"{self.name} has no attribute '{name}'; it has {', '.join(self.keys()) or 'none'}")
        return getattr(self, name)

    def get_int(self, key: str) -> int:
        """Return an attribute as an integer. Raises `KeyError` with the known names."""
        return int(self[key])

    def get_str(self, key: str) -> str:
        """Return an attribute as a string."""
        return str(self[key])

    def get_int_tuple(self, key: str) -> tuple[int, ...]:
        """Return an attribute as integers."""
        return tuple(map(int, self[key]))

    def infer(self, *args: Any) -> Type:
        """Return the type of the result for arguments of these types. Raises `ShapeError` with a reason."""
        raise NotImplementedError

    def reference(self, *args: Any) -> Any:
        """Compute the result on numpy arrays; a tuple for several results. This is the meaning of the operator."""
        raise NotImplementedError

    def meaning(self, known: Sequence[Array | None]) -> Callable[..., Any] | None:
        """`reference` specialized to the constant arrays in `known` (None for the others), or None if that saves
        nothing.

        The function takes the remaining arrays and returns a new array. Work that depends only on the constants is done
        once.
        """
        return None

    def compute(self, *args: Any) -> Any:
        """The result as tensor expressions: a `te.Tensor`, or a tuple. Raises `NoNativeKernel` for unsupported types.
        """
        raise NoNativeKernel(f"{self.name} has no tensor expression")

    def simplify(self, call: Call) -> Expr | None:
        """Return a simpler graph for inference (batch norm -> scale and shift, dropout -> its input), or None."""
        return None

    def relayout(self, perms: Sequence[Order | None]) -> Relaid | None:
        """The form of the operator for permuted tensors.

        `perms[k]` is the stored order of argument k (`stored = transpose(logical, perm)`), None for the logical order.
        The result is the operator to use, the order that it needs for each argument, and the order of its result. None
        means that the operator needs the logical order.
        """
        return None

    def reblock(self, orders: Sequence[Order | None], types: Sequence[TensorType]) -> Relaid | None:
        """`relayout` for arguments stored in blocks (`topi.orders`); `types` are the types of the arguments.

        A result is never padded: None if the blocks do not divide it.
        """
        return None

    def resized(self, shape: tuple[Any, ...]) -> Op:
        """The operator with `shape` as the shape of its result, if that is an attribute; otherwise the operator itself.
        """
        return self

    def joined_axis(self, *args: Any) -> int | None:
        """Return the axis along which the result joins the tensors of its only argument, a tuple; None for other
        operators.

        The parameters are the types of the arguments.
        """
        return None

    def reads_once(self, argument: int) -> bool:
        """Whether each element of the argument is read at most once, so that its producer can be fused into the kernel.

        An anchor's kernel first copies such an argument into its own order, unless the argument is a constant.
        """
        return False

    def windows(self, *args: Any) -> tuple[tuple[int, int], ...] | None:
        """Return, for each result, the axis along which it is a slice of the first argument, and the first index of the
        slice.

        The parameters are the types of the arguments. None for operators whose results are not slices.
        """
        return None

    def is_row(self, *args: Any) -> bool:
        """Return whether the result is one contiguous slice of the first argument at an index computed at run time.

        Reading such a slice in place costs no more than a copy. The parameters are the types of the arguments.
        """
        return False

    def infer_arguments(self, types: Sequence[Type | None]) -> Sequence[Type | None]:
        """Return the types that unknown arguments (None) must have, as far as the others and the attributes determine
        them."""
        return types

    def infer_call(self, types: Sequence[Type], span: Origin | None) -> Type:
        try:
            if not self.objects:
                _refuse_objects(types)
            found = self.infer(types[0]) if self.variadic else self.infer(*types)
            _refuse_sizes(found)
            return found if type(found) is TensorType and found.is_static else without_unknown_terms(found)
        except ShapeError as error:
            if error.origin is not None:
                raise
            shown = ", ".join(map(repr, types))
            kept = error if isinstance(error, UnequalSizesError) else None
            raise ShapeError(f"{self}({shown}): {error.message}", span) from kept
        except TypeError as error:
            if "infer()" not in str(error):
                raise
            inputs = list(inspect.signature(self.infer).parameters)
            wanted = f"{len(inputs)} argument{'s' * (len(inputs) != 1)}" + (f" ({', '.join(inputs)})" if inputs else "")
            raise ShapeError(f"{self.name} takes {wanted}, and is given {len(types)}", span) from None

    def __call__(self, *args: Any, span: Origin | None = None) -> Call:
        return Call(self, [as_relay(a) for a in args], span=span)

    def attributes(self) -> dict[str, Any]:
        return {n: getattr(self, n) for n in self.attribute_names}

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v!r}" for k, v in self.attributes().items())
        return f"{self.name}({inner})" if inner else self.name


OPS: Final[dict[str, type[Op]]] = {}
"""The operator table, by name."""


@dataclass_transform(frozen_default=True, eq_default=True)
def attributes(cls: type[T]) -> type[T]:
    """Make the annotated fields of a base class attributes of the operators derived from it, before their own.

    `Op` itself has the methods that dataclasses generate, because each generated method costs about 1 ms of import
    time.
    """
    return dataclasses.dataclass(init=False, repr=False, eq=False)(cls)


@dataclass_transform(frozen_default=True, eq_default=True)
def op(name: str, kind: Fusion, *, variadic: bool = False) -> Callable[[type[T]], type[T]]:
    """Declare an operator. The annotated fields of the class are its attributes, with the specification's defaults."""

    def declare(cls: type[T]) -> type[T]:
        _repeat_defaults(cls, getattr(cls, "rank", 1))
        made = attributes(cls)
        fields = dataclasses.fields(made)
        made.attribute_names = tuple(f.name for f in fields)
        made.attribute_defaults = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
        made.name, made.kind, made.variadic = name, kind, variadic
        if name in OPS:
            raise CompileError(f"operator '{name}' is declared twice", code="TW0212")
        OPS[name] = made
        return made

    return declare


def declare(base: type[T], name: str, kind: Fusion, meaning: str, **members: Any) -> type[T]:
    """Declare an operator without attributes: a subclass of `base` with the docstring `meaning` and these members."""
    body = {k: staticmethod(v) if inspect.isfunction(v) else v for k, v in members.items()}
    caller = sys._getframe(1)
    body["declared_at"] = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    return op(name, kind=kind)(
        type(name.rpartition(".")[2], (base,), {"__doc__": meaning, "__module__": base.__module__, **body}))


def _repeat_defaults(cls: type[Op], rank: int) -> None:
    """Expand inherited defaults of one number, such as `strides = (1,)`, to `rank` spatial dimensions."""
    for name, field in getattr(cls, "__dataclass_fields__", {}).items():
        if rank > 1 and name not in cls.__annotations__ and type(field.default) is tuple and len(field.default) == 1:
            cls.__annotations__[name] = field.type
            setattr(cls, name, field.default * rank)


def plain(value: Any) -> Any:
    """The normal form of an attribute: tuples for sequences, Python numbers for numpy's, `DataType` for types."""
    if isinstance(value, (list, tuple)):
        return tuple(map(plain, value))
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return value.item()
    return DataType(value) if isinstance(value, (np.dtype, type)) else value


def get(name: str) -> type[Op]:
    """The operator class called `name`. Raises `CompileError` with similar names or the reason for its absence."""
    found = OPS.get(name)
    if found is None:
        import difflib

        missing = left_out(name)
        if missing is not None:
            raise missing

        near = ", ".join(difflib.get_close_matches(name, OPS, 3))
        raise CompileError(f"there is no operator '{name}'" + (f"; did you mean {near}?" if near else ""),
                           code="TW0306")
    return found


def as_relay(value: Any) -> Expr:
    """Return an argument of a call as an expression: numbers and arrays become constants, sequences tuples."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, TupleWrapper):
        return value.astuple()
    if isinstance(value, (tuple, list)):
        return Tuple(tuple(as_relay(v) for v in value))
    return const(value)


@cache
def function(cls: type[Op]) -> Callable[..., Call]:
    """Return the function of an operator: `relay.nn.softmax(x, axis=1)` is `Softmax(axis=1)(x)`.

    Its parameters are the tensors, named as in `infer`, then the attributes in their order.
    """
    inputs = list(inspect.signature(cls.infer).parameters)[1:]
    attributes = list(cls.attribute_names)

    def build(*args: Any, span: Origin | None = None, **named: Any) -> Call:
        values = list(args[: len(inputs)])
        values += [named.pop(n) for n in inputs[len(values) :] if n in named]
        by_place = args[len(inputs) :]
        if len(by_place) > len(attributes):
            raise CompileError(f"{cls.name} takes at most {len(inputs) + len(attributes)} arguments: "
                               f"{', '.join(inputs + attributes)}", span, code="TW0307")
        for n, value in zip(attributes, by_place, strict=False):
            if n in named:
                raise CompileError(f"{cls.name} was given '{n}' twice", span, code="TW0307")
            named[n] = value
        if any(isinstance(v, Expr) for v in named.values()):
            from tilewright.relay.op.dynamic import with_tensor_attributes

            return with_tensor_attributes(cls, values, named, span)
        return cls(**named)(*values, span=span)

    build.__name__ = build.__qualname__ = cls.name.rpartition(".")[2]
    build.__doc__ = cls.__doc__
    return build


def public_function(name: str, module: str) -> Callable[..., Call]:
    """The function of the operator `name`, for a module's `__getattr__`. Raises `AttributeError` for unknown names."""
    cls = OPS.get(name)
    missing = left_out(name) if cls is None else None
    if missing is not None:
        raise missing
    if cls is None:
        raise AttributeError(f"module '{module}' has no attribute '{name.rpartition('.')[2]}'", name=name)
    return function(cls)  # type: ignore[arg-type]


def operator_names(prefix: str) -> list[str]:
    """Return the names of the operators directly under `prefix`, without the prefix."""
    return sorted(n.removeprefix(prefix) for n in OPS if n.startswith(prefix) and "." not in n.removeprefix(prefix))


def without_unknown_terms(t: Type) -> Type:
    """`t` with every size that depends on an unknown size replaced by an unknown size."""
    if isinstance(t, TensorType):
        if not any(isinstance(d, PrimExpr) and not isinstance(d, ScalarVar)
                   and any(isinstance(v, UnknownDim) for v in walk(d)) for d in t.shape):
            return t
        return TensorType([d if isinstance(d, int) or not any(isinstance(v, UnknownDim) for v in walk(d))
                           else UnknownDim() for d in t.shape], t.dtype)
    if isinstance(t, TupleType):
        return TupleType([without_unknown_terms(f) for f in t.fields])
    return t


def _refuse_sizes(found: Type | None) -> None:
    """Raise `ShapeError` for a result that exceeds any machine's memory, or has a negative size."""
    for t in (found,) if type(found) is TensorType else found.fields if isinstance(found, TupleType) else ():
        if isinstance(t, TensorType) and (why := refused_size(t.shape, t.dtype.itemsize)):
            raise ShapeError(why)


def _refuse_objects(types: Sequence[Type]) -> None:
    for t in types:
        if type(t) is TensorType:
            if t.dtype.is_object:
                raise ShapeError(f"this operator accepts numeric tensors only; got {t.dtype}")
        elif type(t) is TupleType:
            _refuse_objects(t.fields)


def per_channel_types(types: Sequence[Type | None], axis: int) -> Sequence[Type | None]:
    """Return the types of the data and its parameters. An unknown parameter is a vector of the dtype of the data, with
    one element for each index of `axis`."""
    data, *params = types
    if not isinstance(data, TensorType) or not -data.ndim <= axis < data.ndim:
        return types
    own = TensorType((data.shape[axis],), data.dtype)
    return data, *(own if p is None else p for p in params)


def tensors(*types: Any) -> tuple[TensorType, ...]:
    """The arguments as tensor types. Raises `ShapeError` for a tuple or a function."""
    for t in types:
        if not isinstance(t, TensorType):
            raise ShapeError(f"a tensor was expected, and {t!r} was given")
    return types
