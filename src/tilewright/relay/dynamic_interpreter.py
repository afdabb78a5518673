"""Interpreter of programs with data-dependent sizes, made of numpy steps that read sizes from their arrays.

    %1 = frontend.deferred(%v0, %0, op_type="Gather")  ->  slot 2 = converted(slot 0, slot 1)
    %2 = transpose(%1, axes=[1, 0])                        slot 3 = transpose's meaning in numpy (slot 2)

A deferred operator is converted at its first call, when the sizes and values of its operands are known. The conversion
is kept for every combination of sizes and values that satisfies the same conditions (`arith/noted_sizes.py`). For
example, `Gather` depends on ranks only and is converted once. So a call with new sizes costs only the operators
themselves; it builds and types no graph.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable, Iterable, Iterator, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from tilewright.base import jit_policy
from tilewright.base.errors import CompileError, RunError, ShapeError
from tilewright.base.jit_policy import Use, Uses
from tilewright.base.nd import content
from tilewright.base.types import DataType, TensorType, TupleType
from tilewright.relay.expr import Call, Constant, Expr, Function, Var
from tilewright.relay.interpreter import MEANINGLESS, arrays_of, evaluate, meaningless
from tilewright.relay.numpy_steps import Step, is_straight, steps_of
from tilewright.relay.op.deferred import Waiting, pending
from tilewright.relay.op.registry import Fusion, Op
from tilewright.relay.sequence_values import OPEN, Lists
from tilewright.relay.value_specialization import content_of, decided, deciding_of, outlined
from tilewright.relay.visitor import calls, free_vars, post_order
from tilewright.scalar.arith.noted_sizes import Notes, is_noted

Array = np.ndarray[Any, Any]

MOST_SIZES: Final = 128
"""Number of size combinations per operator whose conversion is remembered."""
MOST_CONVERSIONS: Final = 32
"""Number of conversions kept per operator."""
_WIDEST: Final = 16
"""Largest element size, in bytes."""
LARGE: Final = 1 << 28
"""Size in bytes of a value from which compiled kernels pay; the compiler also checks the memory."""
_OPAQUE: Final = 4
"""Cost per element of an opaque operator (sort, box suppression), relative to numpy's cost of an elementwise one."""


class TooLargeError(Exception):
    """Raised when an operator has so much work that compiling kernels pays."""


class Conversions:
    """The conversions of the deferred operators of a program so far; operators of equal content share them."""

    def __init__(self, most_work: float) -> None:
        """Raise `TooLargeError` for operators of more than `most_work` operations."""
        self.most_work = most_work
        self._known: dict[Any, _Converted] = {}
        self._parts: dict[Any, _Decided] = {}

    def part(self, function: Function) -> _Decided:
        """Return the known results of a part; parts of equal content share them."""
        return self._parts.setdefault(content_of(function), _Decided(function))

    def of(self, op: Waiting) -> _Converted:
        """Return the conversions of one operator."""
        return self._known.setdefault(op.content(), _Converted(self))


class DynamicProgram:
    """The rest of a program, interpreted."""

    def __init__(self, function: Function, conversions: Conversions) -> None:
        lists = function.attrs.get("output_lists", ())
        self.lists: Lists = tuple(lists)
        straight = OPEN not in lists and is_straight(function)
        self._run = _quietly(steps_of(outlined(function), functools.partial(_step, conversions))) if straight else None

    def __call__(self, values: Sequence[Array]) -> tuple[list[Array], Lists]:
        """Return the outputs, as separate arrays, and their grouping into lists. Raises `TooLargeError` if the work
        should be compiled, and the errors of operators."""
        if self._run is None:
            raise TooLargeError
        return [np.array(x, order="C") for x in _leaves(self._run(*values))], self.lists


def _leaves(value: Any) -> Iterator[Array]:
    """The tensors of a value, those of nested tuples in order."""
    if isinstance(value, tuple):
        for part in value:
            yield from _leaves(part)
    else:
        yield value


def meaning_of(function: Function, conversions: Conversions | None = None) -> Step:
    """Return `evaluate` for arrays of the right types (not checked), with its steps made once.

    Functions with control flow fall back to `evaluate`. With `conversions`, a deferred operator is converted once, and
    no operator may be too large. Raises `RunError` for values without a meaning, and the errors of conversions.
    """
    return _quietly(_run(function, conversions))


def _quietly(run: Step) -> Step:
    def quietly(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return run(*args)

    return quietly


def _run(function: Function, conversions: Conversions | None) -> Step:
    if not is_straight(function):
        return functools.partial(evaluate, function)
    return steps_of(function, functools.partial(_step, conversions))


def _step(conversions: Conversions | None, call: Call) -> Step:
    """Return the step of a call: a function of its operands' values."""
    if conversions is not None and isinstance(call.op, Function):
        return _Part(call.op, call.args, conversions)
    if conversions is not None and isinstance(call.op, Waiting):
        return functools.partial(conversions.of(call.op), call)
    if conversions is None:
        return functools.partial(_meaning, call.op.reference, call)
    if call.op.kind >= Fusion.OUT_FUSABLE and not pending(call):
        return functools.partial(_bounded, conversions.most_work, call)
    return functools.partial(_limited, _growth(call.op), call)


def _meaning(reference: Step, call: Call, *args: Any) -> Any:
    try:
        result = reference(*args)
    except MEANINGLESS as error:
        raise meaningless(call, args, error) from error
    except CompileError as error:
        if error.origin is not None:
            raise
        raise type(error)(f"{call.op.name}: {error.message}", call.span, code=error.code) from error
    return result if type(result) is np.ndarray else arrays_of(result)


def _growth(op: Op) -> int:
    """Return an upper bound of output elements per input element, derived from the integer attributes."""
    stack: list[Any] = list(op.attributes().values())
    found = 1
    while stack:
        attribute = stack.pop()
        if isinstance(attribute, tuple):
            stack += attribute
        elif isinstance(attribute, int):
            found *= max(abs(attribute) + 1, 1)
    return found


def _limited(growth: int, call: Call, *args: Any) -> Any:
    """Evaluate a call. Its type is inferred only if the result could be large."""
    if growth * _most_elements(call.op, args) > LARGE // _WIDEST and _is_large(call, args):
        raise TooLargeError
    return _meaning(call.op.reference, call, *args)


def _most_elements(op: Op, args: Sequence[Any]) -> int:
    """Return a quick upper bound of the result's elements: the product of the arguments' elements."""
    if op.kind <= Fusion.BROADCAST and len({getattr(a, "shape", None) for a in args}) == 1:
        return int(getattr(args[0], "size", 1))
    return prod(getattr(a, "size", 1) or 1 for a in args)


def _is_large(call: Call, args: Sequence[Any]) -> bool:
    if not all(type(a) is np.ndarray and not a.dtype.hasobject for a in args):
        return False
    try:
        made = call.op.infer(*(TensorType(a.shape, DataType(a.dtype)) for a in args))
    except ShapeError:  # too large for any memory, or no such value: the compiler reports which
        return True
    fields = made.fields if isinstance(made, TupleType) else (made,)
    return sum(t.nbytes for t in fields if isinstance(t, TensorType) and t.is_static) > LARGE


def _bounded(most: float, call: Call, *args: Any) -> Any:
    sizes = [a.size for a in args if type(a) is np.ndarray]
    work = sizes[0] * sizes[1] ** 0.5 if call.op.kind is Fusion.OUT_FUSABLE and len(sizes) > 1 else _OPAQUE * sum(sizes)
    if work > most:
        raise TooLargeError
    return _meaning(call.op.reference, call, *args)


class _Decided:
    """The specializations of a part for frequent values."""

    def __init__(self, function: Function) -> None:
        self.asked = tuple(sorted(deciding_of(function)))
        self.known: dict[Any, Step | None] = {}
        """By deciding values; None if they do not determine all sizes."""
        self.met: dict[Any, Use] = {}
        self.uses = Uses()
        self.operators = len(calls(function.body))
        self._constants: dict[Any, int] = {}

    def number(self, constants: tuple[Hashable, ...]) -> int:
        """Return the number of the constants among the deciding values."""
        return self._constants.setdefault(constants, len(self._constants))

    def widen(self, asked: Iterable[int]) -> None:
        """Add deciding values; existing keys do not distinguish them."""
        self.asked, self.known, self.met = tuple(sorted({*self.asked, *asked})), {}, {}

    def use(self, key: Any) -> Use:
        """Count one more use of a combination of values."""
        if len(self.met) >= MOST_SIZES and key not in self.met:
            self.met = {}
        use = self.met.setdefault(key, Use())
        self.uses.meet(use)
        return use

    def keep(self, key: Any, run: Step | None) -> None:
        """Store the specialization for these values."""
        if len(self.known) >= MOST_SIZES:
            self.known = {}
        self.known[key] = run


class _Part:
    """A part of a program: its specialization for the deciding values if that is known, else its own steps."""

    def __init__(self, function: Function, given: Sequence[Expr], conversions: Conversions) -> None:
        self._function, self._given, self._conversions = function, given, conversions
        self._steps = steps_of(function, functools.partial(_step, conversions))
        self._decided = conversions.part(function)
        self._keys = self._in_keys(self._decided.asked)

    def _in_keys(self, asked: tuple[int, ...]) -> tuple[tuple[int, ...], int, list[int]]:
        """Return the deciding values, the number of their constants, and the other values."""
        varying = [k for k in asked if not isinstance(self._given[k], Constant)]
        constants = [content(a.value) for a in map(self._given.__getitem__, asked) if isinstance(a, Constant)]
        return asked, self._decided.number(tuple(constants)), varying

    def _key(self, args: Sequence[Array]) -> Any:
        asked, constants, varying = self._keys
        if asked is not self._decided.asked:
            self._keys = _, constants, varying = self._in_keys(self._decided.asked)
        return (constants, *[content(args[k]) for k in varying])

    def __call__(self, *args: Any) -> Any:
        of, key = self._decided, self._key(args)
        run = of.known.get(key)
        if run is not None:
            try:
                return run(*args)
            except RunError:
                return self._steps(*args)  # names the nodes of this part in the error
        if key in of.known:
            return self._steps(*args)
        use = of.use(key)
        if of.uses.pays(use, jit_policy.RESOLVING.of(of.operators)):
            self._find(args)
            return self(*args)
        begin = jit_policy.clock()
        found = self._steps(*args)
        use.ran(jit_policy.clock() - begin)
        return found

    def _find(self, args: Sequence[Array]) -> None:
        """Specialize the part for these values."""
        begin, of = jit_policy.clock(), self._decided
        found, asked = decided(self._function, args)
        if not asked <= set(of.asked):
            of.widen(asked)
        of.keep(self._key(args), None if found is None or not is_straight(found)
                else steps_of(found, functools.partial(_step, self._conversions)))
        jit_policy.RESOLVING.took(of.operators, jit_policy.clock() - begin)


_SIZES: Final = operator.attrgetter("shape", "dtype")


class _Conversion:
    """The conversion of an operator, and the sizes and values that it holds for."""

    def __init__(self, notes: Notes, asked: dict[int, Any], run: Step) -> None:
        self.notes, self.asked, self.run = notes, asked, run

    def serves(self, args: Sequence[Array]) -> bool:
        return (all(_content(args[k]) == value for k, value in self.asked.items())
                and self.notes.hold([a.shape for a in args]))


class _Converted:
    """A deferred operator, called with the values of its operands."""

    def __init__(self, conversions: Conversions) -> None:
        self._conversions = conversions
        self._known: dict[Any, _Conversion] = {}
        self._all: dict[Any, list[_Conversion]] = {}
        self._asked: tuple[int, ...] = ()

    def __call__(self, call: Call, *args: Any) -> Any:
        try:
            key = tuple(map(_SIZES, args))
        except AttributeError:  # a sequence or an empty optional
            return _meaning(call.op.reference, call, *args)
        found = self._known.get((*key, *[_content(args[k]) for k in self._asked]) if self._asked else key)
        if found is None:
            found = self._kept(key, self._found(call, args), args)
        try:
            return found.run(*args)
        except RunError as error:
            raise RunError(error.message, call.span, code="TW0712") from error

    def _found(self, call: Call, args: Sequence[Array]) -> _Conversion:
        alike = self._all.setdefault(tuple([(a.ndim, a.dtype) for a in args]), [])
        for known in alike:
            if known.serves(args):
                return known
        made = self._converted(call, args)
        alike.insert(0, made)
        del alike[MOST_CONVERSIONS:]
        return made

    def _kept(self, key: Any, found: _Conversion, args: Sequence[Array]) -> _Conversion:
        if not set(found.asked) <= set(self._asked):
            self._asked = tuple(sorted({*self._asked, *found.asked}))
            self._known = {}  # the old keys lack the new deciding values
        elif len(self._known) >= MOST_SIZES:
            self._known = {}
        self._known[(*key, *[_content(args[k]) for k in self._asked])] = found
        return found

    def _converted(self, call: Call, args: Sequence[Array]) -> _Conversion:
        """Return the conversion for these values. Recording stand-ins for the sizes show which sizes it depends on;
        where that fails, it is converted again with the sizes themselves.
        """
        notes = Notes()
        shapes = [notes.shape(k, a.shape) for k, a in enumerate(args)]
        try:
            function, asked = _convert(call, args, shapes)
            sizes = [s for e in post_order(function.body) for s in _noted_in(e)]
        except (CompileError, AttributeError, *MEANINGLESS):
            sizes, function = [s for shape in shapes for s in shape], None
        if function is None or sizes:
            for s in sizes:
                int(s)
            function, asked = _convert(call, args, [a.shape for a in args])
        if not is_straight(function):
            raise TooLargeError  # a loop, whose number of iterations is unknown
        return _Conversion(notes, asked, _run(function, self._conversions))


def _convert(call: Call, args: Sequence[Array], shapes: Sequence[Sequence[Any]]) -> tuple[Function, dict[int, Any]]:
    """Return the conversion of a deferred operator for these values and sizes, and the values that it read."""
    types = [TensorType(shape, DataType(a.dtype)) for shape, a in zip(shapes, args, strict=True)]
    params = [Var(f"v{k}", None if call.op.decides else t) for k, t in enumerate(types)]
    places: dict[Expr, int] = {p: k for k, p in enumerate(params)}
    asked: dict[int, Any] = {0: _content(args[0])} if call.op.decides else {}
    given = [Constant(args[0]), *params[1:]] if call.op.decides else params

    def ask(e: Expr) -> Array:
        if isinstance(e, Constant):
            return e.value
        needed = free_vars(e)
        asked.update((places[v], _content(args[places[v]])) for v in needed)
        return (args[places[e]] if e in places
                else np.asarray(evaluate(Function(needed, e), *[args[places[v]] for v in needed])))

    found = call.op.resolve(Call(call.op, given, span=call.span), ask)
    if found is None:
        raise CompileError("the operator needs a value that is never computed; evaluate the "
                           "program with relay.create_executor('debug')", call.span, code="TW0403")
    return Function(params, found), asked


def _content(value: Array) -> Any:
    """Return a hashable form of a value."""
    return (value.shape, content(value))


def _noted_in(e: Expr) -> Iterator[Any]:
    """Return the recording stand-ins for sizes in a node: a conversion that contains them holds for these sizes only.
    """
    if isinstance(e, Constant) and e.value.dtype.hasobject:
        yield from filter(is_noted, e.value.flat)
    elif isinstance(e, Call) and isinstance(e.op, Op):
        stack: list[Any] = list(e.op.attributes().values())
        while stack:
            attribute = stack.pop()
            if isinstance(attribute, tuple):
                stack += attribute
            elif is_noted(attribute):
                yield attribute
