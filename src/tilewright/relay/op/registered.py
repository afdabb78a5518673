"""Operators that programs register: a Python function infers the type, a tensor expression defines the values.

    relay.op.register("my.scale", "twice x")
    relay.op.get("my.scale").add_type_rel("MyScale", lambda arg_types, attrs: arg_types[0])
    relay.op.register_compute("my.scale", lambda attrs, inputs, out_type: [topi.multiply(inputs[0], 2.0)])
    relay.Call(relay.op.get("my.scale"), [x])

A relation has a global name, as the built-in ones: `add_type_rel("Identity")` gives the result the type of the first
argument, and `"Broadcast"` the broadcast shape of two tensors of one dtype.

Such an operator has no attributes. Its calls can be printed, parsed, evaluated (by running the tensor expression) and
compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from tilewright import te
from tilewright.base.errors import CompileError, ShapeError
from tilewright.base.global_functions import get_global_func, register_func
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.ir.op_attributes import op_attr
from tilewright.relay.expr import Attrs
from tilewright.relay.op.broadcast import Add
from tilewright.relay.op.hooks import COMPUTE
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.tir import interpreter
from tilewright.topi.transform import dims

_RELATIONS: Final = "tvm.relay.type_relation."
"""Prefix of the names of registered type relations."""
TypeRelation = Callable[[Sequence[Type], Any], Type]
"""Maps the types of the arguments, and the operator with its attributes, to the type of the result."""


@register_func(f"{_RELATIONS}Identity")
def identity(arg_types: Sequence[Type], attrs: Any) -> Type:
    """Return the type of the first argument."""
    return arg_types[0]


@register_func(f"{_RELATIONS}Broadcast")
def broadcast(arg_types: Sequence[Type], attrs: Any) -> Type:
    """Return the type of the elementwise combination of two tensors. Raises `ShapeError` if they do not broadcast."""
    lhs, rhs = arg_types
    return Add().infer(lhs, rhs)


class Registered(Op):
    """Base of the operators created by `register`. Registered properties are stored on the class."""

    relation: ClassVar[tuple[TypeRelation, ...]] = ()
    """The type relation, or empty."""
    num_inputs: ClassVar[int | None] = None
    support_level: ClassVar[int] = 10
    attrs_type_key: ClassVar[str] = ""
    arguments: ClassVar[tuple[tuple[str, str, str], ...]] = ()
    """Name, type and description of each documented argument."""

    @classmethod
    def add_type_rel(cls, rel_name: str, type_rel_func: TypeRelation | None = None) -> None:
        """Set the function that infers the type of a call, and register it as `tvm.relay.type_relation.<rel_name>`.

        Without a function, set the registered one. Raises `CompileError` if no function has the name.
        """
        name = f"{_RELATIONS}{rel_name}"
        found = get_global_func(name, allow_missing=True) if type_rel_func is None else type_rel_func
        if found is None:
            raise CompileError(f"the type relation '{rel_name}' of {cls.name} is only a name; give its function: "
                               f"add_type_rel({rel_name!r}, lambda arg_types, attrs: …)", code="TW0312")
        if type_rel_func is not None and get_global_func(name, allow_missing=True) is None:
            register_func(name, type_rel_func)
        cls.relation = (found,)

    @classmethod
    def set_num_inputs(cls, n: int) -> None:
        """Set the number of arguments of a call."""
        cls.num_inputs = n

    @classmethod
    def add_argument(cls, name: str, type: str, description: str) -> None:
        """Describe the next argument."""
        cls.arguments = (*cls.arguments, (name, type, description))

    @classmethod
    def set_support_level(cls, level: int) -> None:
        """Accept TVM's level of support, which has no effect."""
        cls.support_level = level

    @classmethod
    def set_attrs_type_key(cls, key: str) -> None:
        """Set TVM's name of the kind of the attributes: `DictAttrs`, which the type relation then receives, empty.

        Raises `CompileError` for another kind, because such an operator has no attributes.
        """
        if key != "DictAttrs":
            raise CompileError(
                f"the attributes of {cls.name} cannot be '{key}': an operator that a program registers has none; give "
                "'DictAttrs'", code="TW0312")
        cls.attrs_type_key = key

    @classmethod
    def set_attr(cls, attr_name: str, value: Any, plevel: int = 10) -> None:
        """Call `register_op_attr` for this operator; `TOpPattern` also sets its fusion class."""
        super().set_attr(attr_name, value, plevel)
        if attr_name == "TOpPattern":
            cls.kind = Fusion(value)

    def infer(self, *args: Type) -> Type:
        if self.num_inputs is not None and len(args) != self.num_inputs:
            raise ShapeError(f"it takes {self.num_inputs} arguments, and is given {len(args)}")
        if not self.relation:
            raise ShapeError(f"its type relation is missing; give one with relay.op.get({self.name!r}).add_type_rel")
        found = self.relation[-1](list(args), Attrs() if self.attrs_type_key else self)
        if not isinstance(found, Type):
            raise ShapeError(f"its type relation returned {found!r}; it must return a type")
        return found

    def compute(self, *inputs: te.Tensor) -> te.Tensor | tuple[te.Tensor, ...]:
        rule = op_attr(self.name, COMPUTE)
        if rule is None:
            raise CompileError(f"{self.name} has no tensor expression; give one with "
                               f"relay.op.register_compute({self.name!r}, …)", code="TW0312")
        out_type = self.infer(*(TensorType(dims(x), x.dtype) for x in inputs))
        made = rule(self, list(inputs), out_type)
        outputs = (made,) if isinstance(made, te.Tensor) else tuple(made)
        return outputs if isinstance(out_type, TupleType) else outputs[0]

    def reference(self, *args: Array) -> Any:
        inputs = [te.placeholder(a.shape, str(a.dtype), f"x{k}") for k, a in enumerate(args)]
        made = self.compute(*inputs)
        outputs = made if isinstance(made, tuple) else (made,)
        types = tensors(*(TensorType(t.extents, t.dtype) for t in outputs))
        results = [np.empty(t.shape, t.dtype.numpy()) for t in types]
        interpreter.run(te.create_prim_func([*inputs, *outputs]), [*map(np.ascontiguousarray, args), *results])
        return tuple(results) if isinstance(made, tuple) else results[0]


def register(op_name: str, describe: str = "") -> None:
    """Declare an operator called `op_name`; its type and computation are registered on `get(op_name)`.

    Raises `CompileError` for an existing name.
    """
    made = type(op_name.rpartition(".")[2], (Registered,),
                {"__doc__": describe or f"{op_name}, which a program registered.", "__module__": __name__})
    op(op_name, kind=Fusion.OPAQUE)(made)
