"""Random Relay modules over every construct of the language, the same for the same seed.

    random_module(7)                      the whole language: closures, recursion, references, data types, polymorphic
                                          functions
    random_module(7, first_order=True)    tensors and tuples, let, if, and functions that are called by name or in place
    random_module(7, pure=True)           nothing is written to references, and no random numbers are drawn
    random_module(7, vary=False)          operators have the attributes of `op_examples.py`, so that every call can be
                                          evaluated
    random_module(7, static=True)         no unknown or symbolic dimensions

Every operator comes by, with attributes and shapes that vary; every node has a type, but those of which the language
itself says too little (`Nil` of no known element).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeGuard

import numpy as np

from host_examples import HOST_EXAMPLES
from op_examples import EXAMPLES, Example
from tilewright import relay, tir
from tilewright.base.errors import CompileError
from tilewright.base.types import DataType, FuncType, GlobalTypeVar, RefType, TensorType, TupleType, Type, TypeVar
from tilewright.ir.module import IRModule
from tilewright.relay.adt import Clause, Match, PatternConstructor, PatternTuple, PatternVar, PatternWildcard, TypeData
from tilewright.relay.adt import Constructor as Ctor
from tilewright.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    const,
)
from tilewright.relay.op.registry import Op
from tilewright.scalar.expr import UnknownDim
from tilewright.scalar.expr import Var as SizeVar

DTYPES: Final = (
    "float32", "float16", "float64", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
    "uint64", "bool", "int4", "uint4",
)
MAXIMUM: Final = 20_000
"""Elements of the largest value that is kept."""
NAMES: Final = ("x", "y", "data", "weight", "a/b:0", "1st", "", "été", "x.1", "let", "_", "x")
LIST, OPTION = GlobalTypeVar("List"), GlobalTypeVar("Option")
PRIM_FUNC: Final = (
    '@T.prim_func\ndef {}(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):\n    for i in T.serial(8):\n    '
    '    B[i] = A[i] + 1.0\n'
)


def random_module(
    seed: int, *, first_order: bool = False, pure: bool = False, vary: bool = True, static: bool = False,
    length: int = 8
) -> IRModule:
    """A module with a `main` of about `length` steps, and the functions and data types that it uses."""
    program = _Program(seed, first_order, pure, vary, static)
    return program.module(length)


def data_types() -> dict[GlobalTypeVar, TypeData]:
    """`List` and `Option`, as the field defines them."""
    a, b = TypeVar("A"), TypeVar("A")
    nil = TypeData(LIST, (a,), (Ctor("Cons", [a, LIST(a)], LIST), Ctor("Nil", [], LIST)))
    return {LIST: nil, OPTION: TypeData(OPTION, (b,), (Ctor("Some", [b], OPTION), Ctor("None", [], OPTION)))}


class _Program:
    """What the functions of one module share."""

    def __init__(self, seed: int, first_order: bool, pure: bool, vary: bool, static: bool) -> None:
        self.seed, self.random, self.numbers = seed, random.Random(seed), np.random.default_rng(seed)
        self.first_order, self.pure, self.vary, self.static = first_order, pure, vary, static
        self.types = {} if first_order else data_types()
        self.functions: dict[Any, Any] = {}
        self.examples = [e for e in EXAMPLES if not pure or e.op.pure]
        self.count = 0

    def module(self, length: int) -> IRModule:
        for _ in range(self.random.randrange(3)):
            self.global_function()
        if not self.first_order:
            if self.chance(0.4):
                self.functions["identity"] = _identity(GlobalVar)
            if self.chance(0.3):
                self.functions["tir_kernel"] = tir.parse(PRIM_FUNC.format(self.random.choice(["tir_kernel", "kernel"])))
        main = _Block(self, []).function(self.params(), length)
        attrs = {"mod_name": "random", "numbers": [1, 2.5, [True, None]]} if self.chance(0.2) else {}
        functions = {
            **{k: f for k, f in self.functions.items() if not isinstance(k, str)},
            **{k: f for k, f in self.functions.items() if isinstance(k, str)}
        }
        return IRModule({"main": main, **functions}, self.types, attrs)

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def name(self) -> str:
        return self.random.choice(NAMES)

    def array(self, shape: Sequence[int], dtype: str) -> np.ndarray[Any, Any]:
        kind = DataType(dtype)
        high = 2 if dtype == "bool" else 6
        plain = self.numbers.standard_normal(tuple(shape)) if kind.is_float else self.numbers.integers(
            0, high, tuple(shape)
        )
        return np.asarray(plain).astype(kind.numpy())

    def constant(self, shape: Sequence[int] | None = None, dtype: str | None = None) -> Constant:
        """A constant of any type; floats may be infinite or no number, tensors empty."""
        dtype = dtype or self.random.choice(DTYPES)
        if shape is None:
            shape = self.random.choice([(), (), (3,), (2, 3), (0, 2), (1,)])
        value = self.array(shape, dtype)
        if self.vary and DataType(dtype).is_float and not value.shape and self.chance(0.5):
            value = np.asarray(self.random.choice([np.inf, -np.inf, np.nan, -0.0, 1e-3, 3.0e4, 0.1]), value.dtype)
        elif self.vary and DataType(dtype).is_integer and not value.shape and self.chance(0.3) and dtype not in (
            "int4", "uint4"
        ):
            value = np.asarray(self.random.choice([np.iinfo(value.dtype).min, np.iinfo(value.dtype).max]), value.dtype)
        return Constant(value)

    def type(self) -> Type:
        shape = self.random.choice([(2, 3), (4,), (), (1, 4, 6, 8), (3, 1), (2, 3)])
        if not self.static and shape and self.chance(0.1):
            unknown = UnknownDim() if self.chance(0.5) else SizeVar("n", self.random.choice(["int64", "int32"]))
            return TensorType((unknown, *shape[1:]), "float32")
        return TensorType(shape, self.random.choice(["float32", "float32", "int32", "float16"]))

    def params(self) -> list[Var]:
        kinds = [self.type() for _ in range(self.random.randrange(1, 4))]
        if self.chance(0.2):
            kinds.append(TupleType([kinds[0], TensorType((2,), "int32")] if self.chance(0.5) else [kinds[0]]))
        return [Var(self.name(), t) for t in kinds]

    def attributes(self) -> dict[str, Any]:
        """Attributes of a function, now and then."""
        some = {
            "Primitive": 1, "Compiler": "npu", "names": ["a", 'b"c'], "scale": 0.5, "none": None, "flag": True,
            "nested": [[1, 2], []], "an odd key": -1
        }
        return {
            k: some[k] for k in self.random.sample(sorted(some), self.random.randrange(1, 4))
        } if self.chance(0.2) else {}

    def global_function(self) -> None:
        """A function of the module, which those after it may call; now and then one that calls itself."""
        self.count += 1
        name = f"f{self.count}" if self.chance(0.8) else f"a/b c:{self.count}"
        function = _loop(lambda t: GlobalVar(name, t)) if self.chance(0.3) else (
            _Block(self, []).function(self.params(), 3), None
        )
        made, used = function
        self.functions[used or GlobalVar(name, made.known_type())] = made  # type: ignore[arg-type]


def _identity(make: Callable[..., Any]) -> Function:
    a = TypeVar("A")
    x = Var("x", a)
    return Function((x,), x, a, (a,))


def _loop(make: Callable[[FuncType], Expr]) -> tuple[Function, Any]:
    """A function that calls itself a number of times, and the name it calls itself by."""
    number, pair = TensorType((), "int32"), TensorType((2,), "float32")
    n, x = Var("n", number), Var("x", pair)
    again = make(FuncType([number, pair], pair))
    step = Call(again, [relay.subtract(n, const(1)), relay.tanh(x)])
    return Function((n, x), If(relay.less(n, const(1)), x, step), pair), again


class _Block:
    """A scope as it grows: what can be used, and the names that were bound in it."""

    def __init__(self, program: _Program, outer: Sequence[Expr], depth: int = 0) -> None:
        self.program, self.random, self.depth = program, program.random, depth
        self.values: list[Expr] = list(outer)
        self.lets: list[tuple[Var, Expr]] = []

    # Whole scopes.
    def function(self, params: list[Var], length: int) -> Function:
        self.values += params
        self.grow(length)
        body = self.result(
            self.random.choice(self.values[-4:]) if self.program.chance(0.7)
            else Tuple(tuple(self.random.sample(self.values, min(2, len(self.values)))))
        )
        declared = body.known_type() if self.program.chance(0.4) else None
        return Function(params, body, declared, None, self.program.attributes())

    def grow(self, length: int) -> None:
        for _ in range(length):
            found = self.random.choice(self.steps())()
            if found is not None and _small(found.known_type()):
                self.values.append(found)
            if found is not None and self.program.chance(0.2):
                self.values.append(self.bind(found))

    def result(self, body: Expr) -> Expr:
        for var, value in reversed(self.lets):
            body = Let(var, value, body)
        self.lets = []
        return body

    def steps(self) -> list[Callable[[], Expr | None]]:
        plain = [
            self.example, self.example, self.example, self.elementwise, self.shaped, self.tuple, self.item, self.branch,
            self.nested_let, self.call_global
        ]
        plain += [self.some_constant]
        if self.depth < 2:
            plain += [self.closure]
        if not self.program.first_order:
            plain += [self.list, self.option, self.match_tuple, self.polymorphic, self.recursion, self.higher_order]
            if not self.program.pure:
                plain += [self.reference]
        return plain

    def inner(self) -> _Block:
        return _Block(self.program, self.values, self.depth + 1)

    def bind(self, value: Expr) -> Var:
        """A name for a value; where no type is written it is that of the value."""
        known = value.known_type()
        var = Var(self.program.name(), known if self.program.chance(0.6) else None)
        var.set_type(known)
        self.lets.append((var, value))
        return var

    def pick(self, fits: Callable[[Type], bool]) -> Expr | None:
        found = [v for v in self.values if (t := v.known_type()) is not None and fits(t)]
        return self.random.choice(found) if found else None

    def of_type(self, t: Type) -> Expr:
        """A value of that type: one there is, or a constant."""
        found = self.pick(lambda u: u == t)
        if found is not None and self.program.chance(0.8):
            return found
        return self.fresh(t)

    def fresh(self, t: Type) -> Expr:
        if isinstance(t, TupleType):
            return Tuple(tuple(self.of_type(f) for f in t.fields))
        if isinstance(t, TensorType) and t.is_static:
            return self.program.constant(t.concrete_shape, str(t.dtype))
        found = self.pick(lambda u: u == t)
        if found is None:
            raise AssertionError(f"there is no value of type {t!r}")
        return found

    # Operators.
    def example(self) -> Expr | None:
        chosen = self.random.choice(self.program.examples)
        op = varied(chosen.op, self.random) if self.program.vary and self.program.chance(0.6) else chosen.op
        made = self.applied(chosen, op)
        return made if made is not None else self.applied(chosen, chosen.op)

    def applied(self, chosen: Example, op: Op) -> Expr | None:
        args = [self.argument(a) for a in chosen.inputs]
        try:
            return Call(op, [Tuple(tuple(args))] if op.variadic else args)
        except (CompileError, ArithmeticError, LookupError, TypeError, ValueError):
            return None  # attributes that do not go with these shapes

    def argument(self, a: np.ndarray[Any, Any]) -> Expr:
        t = TensorType(a.shape, DataType(a.dtype))
        found = self.pick(lambda u: u == t) if t.dtype.is_float else None
        return found if found is not None and self.program.chance(0.7) else Constant(a)

    def elementwise(self) -> Expr | None:
        x = self.pick(_is_float)
        if x is None:
            return None
        op = self.random.choice(
            [
                "tanh", "exp", "sigmoid", "nn.relu", "negative", "abs", "clip", "cast", "nn.leaky_relu", "add",
                "multiply", "maximum"
            ]
        )
        if op in ("add", "multiply", "maximum"):
            return Call(relay.op.get(op)(), [x, self.of_type(x.checked_type)])
        numbers = self.random.choice([-1.5, 0.0, 1e-30, 6, 1e30])
        attrs: dict[str, dict[str, Any]] = {
            "clip": {"a_min": -numbers, "a_max": numbers}, "cast": {"dtype": self.random.choice(DTYPES[:-2])},
            "nn.leaky_relu": {"alpha": numbers}
        }
        return Call(relay.op.get(op)(**attrs.get(op, {})), [x])

    def shaped(self) -> Expr | None:
        x = self.pick(lambda t: _is_float(t) and t.is_static and t.size > 1 and t.ndim > 1)
        if x is None:
            return None
        axes = list(range(x.tensor_type.ndim))
        self.random.shuffle(axes)
        shapes: list[Callable[[], Expr]] = [
            lambda: relay.transpose(x, axes=axes),
            lambda: relay.reshape(x, self.random.choice([(-1,), (1, -1), (0, -1)])),
            lambda: relay.sum(x, axis=axes[0], keepdims=self.program.chance(0.5)),
            lambda: relay.mean(x, axis=axes[:2], exclude=self.program.chance(0.3)),
            lambda: relay.split(x, 1, axis=axes[0]),
            lambda: relay.concatenate([x, x], axis=axes[0]),
            lambda: relay.stack([x, x, x], axis=axes[0]),
            lambda: relay.strided_slice(x, [0] * len(axes), [1] * len(axes)),
        ]
        return self.random.choice(shapes)()

    def some_constant(self) -> Expr:
        return self.program.constant()

    # Tuples and branches.
    def tuple(self) -> Expr:
        return Tuple(tuple(self.random.choice(self.values) for _ in range(self.random.choice([0, 1, 2, 3]))))

    def item(self) -> Expr | None:
        x = self.pick(lambda t: isinstance(t, TupleType) and len(t.fields) > 0)
        if x is None:
            return None
        assert isinstance(x.checked_type, TupleType)
        return TupleGetItem(x, self.random.randrange(len(x.checked_type.fields)))

    def condition(self) -> Expr:
        x = self.pick(lambda t: t == TensorType((), "float32"))
        return relay.greater(x, const(0.5)) if x is not None else relay.less(
            const(self.random.choice([0.0, 2.0])), const(1.0)
        )

    def branch(self) -> Expr | None:
        x = self.pick(_is_float)
        if x is None:
            return None
        then, other = self.inner(), self.inner()
        return If(self.condition(), then.towards(x), other.towards(x))

    def towards(self, x: Expr) -> Expr:
        """A value of the type of `x`, made in this scope of whatever is around."""
        made: Expr = x
        for _ in range(self.random.randrange(3)):
            made = self.random.choice([relay.tanh, relay.nn.relu])(made) if self.program.chance(0.6) else relay.add(
                made, self.of_type(x.checked_type)
            )
            if self.program.chance(0.3):
                made = self.bind(made)
        if self.depth < 3 and self.program.chance(0.3):
            made = If(self.condition(), self.inner().towards(made), self.inner().towards(x))
        return self.result(made)

    def nested_let(self) -> Expr | None:
        """A let as an operand."""
        x = self.pick(_is_float)
        if x is None:
            return None
        block = self.inner()
        var = block.bind(relay.exp(x))
        return relay.negative(block.result(relay.add(var, x)))

    # Functions.
    def call_global(self) -> Expr | None:
        known = [g for g in self.program.functions if isinstance(g, GlobalVar)]
        if not known:
            return None
        called = self.random.choice(known)
        kind = called.known_type()
        if not isinstance(kind, FuncType) or not all(_closed(t) for t in kind.arg_types):
            return None
        return Call(called, [self.of_type(t) for t in kind.arg_types])

    def closure(self) -> Expr | None:
        """A function of this scope, which sees what is around it, called once or twice."""
        x = self.pick(lambda t: isinstance(t, TensorType) and t.is_static)
        if x is None:
            return None
        function = self.inner().function([Var(self.program.name(), x.known_type())], 3)
        if function.known_type() is None:
            return None
        called: Expr = function if self.program.first_order or self.program.chance(0.5) else self.bind(function)
        first = Call(called, [x])
        return Tuple(
            (first, Call(called, [self.of_type(x.checked_type)]))
        ) if self.program.chance(0.3) and not self.program.first_order else first

    def polymorphic(self) -> Expr | None:
        x = self.random.choice(self.values)
        if x.known_type() is None:
            return None
        called: Expr = self.bind(_identity(Var)) if self.program.chance(0.5) else _identity(Var)
        return Call(called, [x])

    def recursion(self) -> Expr:
        """A let-bound function that calls itself by its name."""
        function, name = _loop(lambda t: Var("loop", t))
        self.lets.append((name, function))
        return Call(name, [const(3), self.of_type(TensorType((2,), "float32"))])

    def higher_order(self) -> Expr | None:
        """A function that is given to a function."""
        x = self.pick(_is_float)
        if x is None:
            return None
        t = x.checked_type
        f, y, z = Var("f", FuncType([t], t)), Var("y", t), Var("z", t)
        twice = Function((f, y), Call(f, [Call(f, [y])]), t)
        return Call(twice, [Function((z,), relay.tanh(relay.add(z, x)), t), x])

    # References and data types.
    def reference(self) -> Expr | None:
        x = self.pick(_is_float)
        if x is None:
            return None
        place = Var("r", RefType(x.checked_type)) if self.program.chance(0.5) else Var("r")
        place.set_type(RefType(x.checked_type))
        self.lets.append((place, RefCreate(x)))
        done = Var("_", None)
        done.set_type(TupleType(()))
        self.lets.append((done, RefWrite(place, relay.exp(RefRead(place)))))
        return self.bind(RefRead(place))

    def list(self) -> Expr | None:
        """A list of one or two values, and what a match makes of it."""
        x = self.pick(_is_float)
        if x is None:
            return None
        cons, nil = self.program.types[LIST].constructors
        kind = LIST(x.checked_type)
        empty = Var("none", kind)
        self.lets.append((empty, Call(nil, [])))
        made = Call(cons, [x, Call(cons, [self.of_type(x.checked_type), empty]) if self.program.chance(0.5) else empty])
        head, second = Var("head"), Var("second", x.known_type() if self.program.chance(0.5) else None)
        head.set_type(x.known_type())
        second.set_type(x.known_type())
        deep = PatternConstructor(
            cons, (PatternWildcard(), PatternConstructor(cons, (PatternVar(second), PatternWildcard())))
        )
        clauses = [
            Clause(deep, relay.nn.relu(second)),
            Clause(PatternConstructor(cons, (PatternVar(head), PatternWildcard())), relay.tanh(relay.add(head, x)))
        ]
        if complete := self.program.chance(0.6):
            clauses.append(
                Clause(PatternConstructor(nil), x) if self.program.chance(0.5)
                else Clause(PatternWildcard(), self.inner().towards(x))
            )
        return Match(made, tuple(clauses), complete)

    def option(self) -> Expr | None:
        x = self.random.choice(self.values)
        if x.known_type() is None:
            return None
        some, none = self.program.types[OPTION].constructors
        inner = Var("inner")
        inner.set_type(x.known_type())
        return Match(
            Call(some, [x]),
            (Clause(PatternConstructor(some, (PatternVar(inner),)), inner), Clause(PatternConstructor(none), x))
        )

    def match_tuple(self) -> Expr | None:
        x, y = self.random.choice(self.values), self.pick(_is_float)
        if y is None or x.known_type() is None:
            return None
        a, b = Var("a"), Var("b", y.known_type())
        a.set_type(x.known_type())
        b.set_type(y.known_type())
        return Match(Tuple((x, y)), (Clause(PatternTuple((PatternVar(a), PatternVar(b))), Tuple((b, a))),))


def varied(op: Op, rng: random.Random) -> Op:
    """The operator with other attributes: some may not go with its arguments, which the caller finds out."""
    attrs = op.attributes()
    for name, value in attrs.items():
        if rng.random() < 0.5:
            attrs[name] = _other(value, rng)
    try:
        return type(op)(**attrs)
    except (CompileError, ArithmeticError, LookupError, TypeError, ValueError):
        return op


def _other(value: Any, rng: random.Random) -> Any:
    """A value of the same kind as `value`."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + rng.choice([-1, 0, 1])
    if isinstance(value, float):
        return rng.choice([value, value / 3, -value, 1e-12, value * 2 + 1])
    if isinstance(value, tuple):
        return tuple(_other(v, rng) for v in value)
    if isinstance(value, str):
        return rng.choice(
            [
                value,
                *[
                    n for n in ("float32", "float16", "int32", "int64", "NCHW", "NHWC", "edge", "reflect")
                    if len(n) == len(value)
                ]
            ]
        )
    return value


def _is_float(t: Type) -> TypeGuard[TensorType]:
    return isinstance(t, TensorType) and t.dtype == "float32"


def _small(t: Type | None) -> bool:
    """Whether a value is kept for later steps: those of huge or untyped values would make tests slow or say nothing."""
    if isinstance(t, TensorType):
        return not t.is_static or t.size <= MAXIMUM
    return t is not None and (not isinstance(t, TupleType) or all(_small(f) for f in t.fields))


def _closed(t: Type) -> bool:
    if isinstance(t, TupleType):
        return all(_closed(f) for f in t.fields)
    return isinstance(t, TensorType) and t.is_static


def with_every_operator() -> list[IRModule]:
    """One small module for every example of an operator, its inputs being parameters."""
    found = []
    for e in (*EXAMPLES, *HOST_EXAMPLES):
        params, call = e.call()
        found.append(IRModule({"main": Function(params, call)}))
    return found


