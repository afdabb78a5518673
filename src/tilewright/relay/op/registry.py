"""`Op` and the `@op` decorator: an operator is one class, which holds everything that is known about it.

An `Op` object is an operator with its attributes: `Softmax(axis=1)(x)` is a call. Passes read the properties declared
here (`kind`, `relayout`, `simplify`). Only text formats and patterns look an operator up by its name.
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

from tilewright.base.errors import CompileError, NoNativeKernel, Origin, ShapeError
from tilewright.base.limits import refused_size
from tilewright.base.types import DataType, TensorType, TupleType, Type
from tilewright.ir.op_attributes import op_attr, register_op_attr, reset_op_attr
from tilewright.relay.expr import Call, Expr, Tuple, const
from tilewright.relay.op.unsupported import left_out
from tilewright.scalar.expr import PrimExpr, UnknownDim
from tilewright.scalar.expr import Var as ScalarVar
from tilewright.scalar.walk import walk

Array = np.ndarray[Any, Any]
T = TypeVar("T", bound="Op")
Order = tuple[Any, ...]
Relaid = tuple["Op", tuple[Order | None, ...], Order | None]
"""An operator, the order in which it needs each argument, and the order of its result; None for the logical order."""


class Fusion(enum.IntEnum):
    """Class of fusion: how an operator joins others in one kernel. A larger value is harder to fuse."""

    ELEMWISE = 0  # out[i] from in[i]
    BROADCAST = 1  # the same, some axes repeated
    INJECTIVE = 2  # each output element from one element of each input: transpose, slice, concatenate, …
    REDUCE = 3  # sums over axes; takes elementwise producers
    OUT_FUSABLE = 4  # convolution, matrix product, pooling, softmax, norm: takes elementwise consumers
    OPAQUE = 8  # alone


class Precision(enum.Enum):
    """Treatment of an operator when `ToMixedPrecision` converts a float32 graph to 16-bit floats."""

    ALWAYS = "always"  # products: the time is in them, and they sum in float32
    FOLLOW = "follow"  # in 16 bits where its arguments are, so that nothing is cast
    NEVER = "never"  # loses too much: exponentials, long sums


class Op:
    """Base of all operators. A subclass is a frozen dataclass of its attributes, made by `@op`.

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
    """True when passes learn from a call of it on constants (that weights are quantized): not computed while importing.
    """
    pure: ClassVar[bool] = True
    """False when two calls with equal arguments may differ (random numbers): never folded, never merged."""

    objects: ClassVar[bool] = False
    """True when it also works on tensors of Python objects (strings), by its reference."""
    reads_texts: ClassVar[bool] = False
    """True when its kernel reads the strings of a program's inputs, as blocks of bytes (`topi/texts.py`)."""

    takes_open_sizes: ClassVar[bool] = False
    """True when its kernels were seen to give the right values at sizes that they were not made for
    (`compiler/open_program.py`); elementwise ones do.

    That a kernel is the same for two samples is no proof for a third size, so an operator that was not tried is
    refused.
    """

    attribute_names: ClassVar[tuple[str, ...]] = ()
    attribute_defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, *args: Any, **attrs: Any) -> None:
        """Set the attributes, by position or by name, in their normal form. Raises `CompileError` with the known names.
        """
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
        """Bring attributes to their normal form."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field '{name}'")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field '{name}'")

    def __eq__(self, other: object) -> bool:
        """Compare with an operator of the same attributes, or with the class that `get` returns: `call.op ==
        relay.op.get("add")`.
        """
        if type(self) is not type(other):
            return type(self) is other
        return all(getattr(self, n) == getattr(other, n) for n in self.attribute_names)

    def __hash__(self) -> int:
        return hash((type(self), *(getattr(self, n) for n in self.attribute_names)))

    @property
    def results(self) -> int | None:
        """Number of fields of the result tuple; None for a single tensor, and where the attributes do not tell."""
        return None

    precision: ClassVar[Precision | None] = None
    """The category in mixed precision; None where nothing is said of the operator (`ToMixedPrecision.missing_op_mode`).
    """
    wide: ClassVar[tuple[int, ...]] = ()
    """Arguments that stay in float32 where the others are of 16 bits."""

    def mixed_precision(self, types: Sequence[Type]) -> Precision | None:
        """Return the mixed-precision category of a call with arguments of these types."""
        return self.precision

    @property
    def type_key(self) -> str:
        """Name of the node kind in TVM's reflection."""
        return "Op"

    @staticmethod
    def get(op_name: str) -> type[Op]:
        """Return the operator class of that name: `tvm.ir.Op.get("nn.conv2d")`."""
        return get(op_name)

    @staticmethod
    def list_op_names() -> list[str]:
        """Return the names of all operators."""
        return sorted(OPS)

    @classmethod
    def get_attr(cls, attr_name: str) -> Any:
        """Return the value that `register_op_attr` set; for `TOpPattern` the class of fusion by default; None for other
        names.
        """
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
        """Return `reference` specialized to the constant arrays in `known` (None for the others), or None where that
        saves nothing.

        The function takes the remaining arrays and returns one new array. What depends on the constants alone is
        computed once.
        """
        return None

    def compute(self, *args: Any) -> Any:
        """Return the result as tensor expressions: one `te.Tensor`, or a tuple. Raises `NoNativeKernel` where these
        types have none.
        """
        raise NoNativeKernel(f"{self.name} has no tensor expression")

    def simplify(self, call: Call) -> Expr | None:
        """Return a simpler graph for inference (batch norm -> scale and shift, dropout -> its input), or None."""
        return None

    def relayout(self, perms: Sequence[Order | None]) -> Relaid | None:
        """Return how the operator works on permuted tensors.

        `perms[k]` is the stored order of argument k (`stored = transpose(logical, perm)`), None for the logical order.
        The result is the operator to use, the order that it needs for each argument, and the order of its result. None
        means that the operator needs the logical order.
        """
        return None

    def reblock(self, orders: Sequence[Order | None], types: Sequence[TensorType]) -> Relaid | None:
        """Return the same as `relayout` for arguments stored in blocks (`topi.orders`); `types` are the types of the
        arguments.

        A result is never padded: None where the blocks do not divide it.
        """
        return None

    def resized(self, shape: tuple[Any, ...]) -> Op:
        """Return the operator with `shape` in place of the shape of its result, where that shape is an attribute;
        itself otherwise.
        """
        return self

    def joined_axis(self, *args: Any) -> int | None:
        """Return the axis along which the result joins the tensors of its only argument, a tuple; None for other
        operators.

        The parameters are the types of the arguments.
        """
        return None

    def reads_once(self, argument: int) -> bool:
        """Return whether no element of that argument is read twice, so that its producer can be fused into the kernel.

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
            raise ShapeError(f"{self}({shown}): {error.message}", span) from None
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
    """Make the annotated fields of a base class attributes of the operators below it, before their own.

    `Op` has what dataclasses generate: each generated method would cost a millisecond of import time.
    """
    return dataclasses.dataclass(init=False, repr=False, eq=False)(cls)


@dataclass_transform(frozen_default=True, eq_default=True)
def op(name: str, kind: Fusion, *, variadic: bool = False,
        takes_open_sizes: bool = False) -> Callable[[type[T]], type[T]]:
    """Declare an operator. The annotated fields of the class are its attributes, with the defaults of the
    specification.
    """

    def declare(cls: type[T]) -> type[T]:
        _repeat_defaults(cls, getattr(cls, "rank", 1))
        made = attributes(cls)
        fields = dataclasses.fields(made)
        made.attribute_names = tuple(f.name for f in fields)
        made.attribute_defaults = {f.name: f.default for f in fields if f.default is not dataclasses.MISSING}
        made.name, made.kind, made.variadic, made.takes_open_sizes = name, kind, variadic, takes_open_sizes
        if name in OPS:
            raise CompileError(f"operator '{name}' is declared twice", code="TW0212")
        OPS[name] = made
        return made

    return declare


def declare(base: type[T], name: str, kind: Fusion, meaning: str, **members: Any) -> type[T]:
    """Declare an operator without attributes: a class below `base` with the docstring `meaning` and these members."""
    body = {k: staticmethod(v) if inspect.isfunction(v) else v for k, v in members.items()}
    caller = sys._getframe(1)
    body["declared_at"] = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    return op(name, kind=kind)(
        type(name.rpartition(".")[2], (base,), {"__doc__": meaning, "__module__": base.__module__, **body}))


def _repeat_defaults(cls: type[Op], rank: int) -> None:
    """Repeat inherited defaults of one number, such as `strides = (1,)`, for each of the `rank` spatial dimensions."""
    for name, field in getattr(cls, "__dataclass_fields__", {}).items():
        if rank > 1 and name not in cls.__annotations__ and type(field.default) is tuple and len(field.default) == 1:
            cls.__annotations__[name] = field.type
            setattr(cls, name, field.default * rank)


def plain(value: Any) -> Any:
    """Return an attribute in its normal form: tuples for sequences, Python numbers for numpy's, `DataType` for types.
    """
    if isinstance(value, (list, tuple)):
        return tuple(map(plain, value))
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return value.item()
    return DataType(value) if isinstance(value, (np.dtype, type)) else value


def get(name: str) -> type[Op]:
    """Return the operator class of that name. Raises `CompileError` with the nearest names, or the reason for leaving
    it out.
    """
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

    build.__name__ = cls.name.rpartition(".")[2]
    build.__doc__ = cls.__doc__
    return build


def public_function(name: str, module: str) -> Callable[..., Call]:
    """Return the function of the operator `name`, for a module's `__getattr__`. Raises `AttributeError` for unknown
    names.
    """
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
    """Return `t` with every size that is computed from an unknown size replaced by an unknown size."""
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
    """Refuse a result that exceeds the memory of any machine, or has a negative size."""
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


def tensors(*types: Any) -> tuple[TensorType, ...]:
    """Return the arguments as tensor types. Raises `ShapeError` for a tuple or a function among them."""
    for t in types:
        if not isinstance(t, TensorType):
            raise ShapeError(f"a tensor was expected, and {t!r} was given")
    return types
