"""Reads hybrid script: Python's syntax tree -> TIR statements."""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.base.errors import CompileError, ParseError
from tilewright.base.types import INT64
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import Buffer, PrimExpr
from tilewright.te.tensor import Tensor
from tilewright.tir import ir_builder
from tilewright.tir.buffers import decl_buffer
from tilewright.tir.functions import popcount
from tilewright.tir.ir_builder import BufferVar
from tilewright.tir.parse_python import Source
from tilewright.tir.stmt import Stmt

LOOPS: Final = {
    "range": "serial", "serial": "serial", "parallel": "parallel", "vectorize": "vectorize", "unroll": "unroll"
}
_TYPES: Final = (
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"
)


def _in_float(f: E.Intrinsic) -> Callable[..., PrimExpr]:
    return lambda *xs: f(*(x if isinstance(x, PrimExpr) else E.const(float(x), "float32") for x in xs))


def _power(x: Any, y: Any) -> Any:
    return I.pow(*E.match(x, y)) if isinstance(x, PrimExpr) or isinstance(y, PrimExpr) else x**y


FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "min": lambda *xs: _folded(E.minimum, min, xs), "max": lambda *xs: _folded(E.maximum, max, xs),
    "likely": lambda x: x, "power": _power,
    "ceil_div": lambda a, b: -(-a // b), "len": lambda x: x.buffer.shape[0] if isinstance(x, BufferVar) else len(x),
    "abs": lambda x: E.maximum(x, 0 - x) if isinstance(x, PrimExpr) else abs(x), "fabs": _in_float(I.fabs),
    "round": _in_float(I.nearbyint), "popcount": popcount,
    **{
        n: _in_float(getattr(I, n))
        for n in ("exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "floor", "ceil", "erf", "sin", "cos")},
    **{t: (lambda x, t=t: E.cast(t, E.as_expr(x))) for t in _TYPES},
}
"""The functions that hybrid script can call."""
_OPERATORS: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.Pow: _power, ast.BitAnd: I.bitwise_and, ast.BitOr: I.bitwise_or,
    ast.BitXor: I.bitwise_xor, ast.LShift: I.shift_left, ast.RShift: I.shift_right,
}
_COMPARE: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _folded(f: Callable[[Any, Any], PrimExpr], plain: Callable[..., Any], xs: Sequence[Any]) -> Any:
    if not any(isinstance(x, PrimExpr) for x in xs):
        return plain(*xs)
    result = xs[0]
    for x in xs[1:]:
        result = f(result, x)
    return result


class Reader:
    """Reads one function; `inputs` maps its tensors to their buffers."""

    def __init__(
        self, source: Source, outer: Mapping[str, Any], definition: ast.FunctionDef, args: Mapping[str, Any]
    ) -> None:
        self.source, self.outer, self.definition = source, outer, definition
        self.builder = ir_builder.create()
        self.inputs: dict[Tensor, Buffer] = {}
        self.names: dict[str, Any] = {name: self.argument(name, value) for name, value in args.items()}
        self.results: dict[str, Buffer] = {}
        self.returned: list[Buffer] | None = None
        stored = Counter(n.id for n in ast.walk(definition) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        self.once = frozenset(name for name, count in stored.items() if count == 1)
        """Names that a single statement assigns: a number stays a constant."""

    def error(self, node: ast.AST, message: str) -> ParseError:
        return self.source.error(node, message)

    def argument(self, name: str, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return tuple(self.argument(f"{name}{k}", v) for k, v in enumerate(value))
        if not isinstance(value, Tensor):
            return value
        buffer = self.inputs.setdefault(value, decl_buffer(value.shape, value.dtype, name))
        return self.builder.buffer_ptr(buffer)

    def function(self) -> tuple[Stmt, list[Buffer]]:
        """Return the statements, and the buffers of the results in the order of the `return`."""
        body = self.definition.body
        if not body or not isinstance(body[-1], ast.Return):
            raise self.error(self.definition, f"'{self.definition.name}' must end with `return` of tensors created by "
                                              "output_tensor")
        self.block(body)
        assert self.returned is not None
        return self.builder.get(), self.returned

    # Statements.
    def block(self, nodes: Sequence[ast.stmt]) -> None:
        """Read the statements of a scope; scalars defined in it are local."""
        before = dict(self.names)
        for n in nodes:
            read = _STATEMENTS.get(type(n))
            if read is None:
                raise self.error(n, f"Python's {type(n).__name__} is not part of hybrid script")
            try:
                read(self, n)
            except ParseError:
                raise
            except CompileError as error:
                raise self.error(n, error.message) from None
        self.names = before

    def loop(self, node: ast.For) -> None:
        call = node.iter
        word = call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""
        if not isinstance(call, ast.Call) or not isinstance(node.target, ast.Name) or node.orelse or (
            word not in LOOPS and word != "const_range"
        ):
            raise self.error(node, f"a loop must be `for i in range(n):`, or iterate over one of {', '.join(LOOPS)}, "
                                   "const_range")
        ends = [self.value(a) for a in call.args]
        if not 1 <= len(ends) <= 2:
            raise self.error(call, f"{word} takes one argument (end) or two (start, end)")
        low, high = (0, *ends) if len(ends) == 1 else ends
        before = self.names.get(node.target.id)
        if word == "const_range":
            low, high = self.whole(call, low), self.whole(call, high)
            for i in range(low, high):
                self.names[node.target.id] = i
                self.block(node.body)
        else:
            with self.builder.for_range(low, high, name=node.target.id, kind=LOOPS[word]) as var:
                self.names[node.target.id] = var
                self.block(node.body)
        if before is None:
            self.names.pop(node.target.id, None)
        else:
            self.names[node.target.id] = before

    def whole(self, node: ast.AST, value: Any) -> int:
        number = value.value if isinstance(value, E.IntImm) else value
        if not isinstance(number, int):
            raise self.error(node, f"const_range is unrolled, so its bounds must be constants; {value} is not")
        return number

    def branch(self, node: ast.If) -> None:
        condition = self.value(node.test)
        known = E.number_of(condition) if isinstance(condition, PrimExpr) else bool(condition)
        if known is not None:
            self.block(node.body if known else node.orelse)
            return
        with self.builder.if_scope(condition):
            self.block(node.body)
        if node.orelse:
            with self.builder.else_scope():
                self.block(node.orelse)

    def assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            raise self.error(node, "an assignment has one target; write a statement for each name or element")
        (target,) = node.targets
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
            word = node.value.func.id
            if word in ("output_tensor", "allocate"):
                self.names[target.id] = self.memory(target.id, node.value, word)
                return
        self.store(target, self.value(node.value))

    def memory(self, name: str, call: ast.Call, word: str) -> BufferVar:
        given = [self.value(a) for a in call.args]
        named = {k.arg: self.value(k.value) for k in call.keywords}
        shape = named.get("shape", given[0] if given else None)
        dtype = named.get("dtype", given[1] if len(given) > 1 else "float32")
        scope = named.get("scope", given[2] if len(given) > 2 else "global")
        if not isinstance(shape, tuple) or not isinstance(dtype, str):
            raise self.error(call, f'{word} takes a shape and a type: {word}((8, 8), "float32")')
        if word == "allocate":
            return self.builder.allocate(dtype, shape, name=name, scope="local" if scope == "local" else "global")
        if name in self.results:
            raise self.error(call, f"output '{name}' is created twice")
        self.results[name] = decl_buffer([E.cast(INT64, E.as_expr(d)) for d in shape], dtype, name)
        return self.builder.buffer_ptr(self.results[name])

    def store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            array = self.value(target.value)
            if not isinstance(array, BufferVar):
                raise self.error(target, "only elements of output tensors and of allocated memory can be assigned")
            if array.buffer in self.inputs.values():
                raise self.error(target, f"'{array.buffer.name}' is an input, which is read-only")
            array[self.index(target)] = E.cast(array.dtype, E.as_expr(value))
            return
        if not isinstance(target, ast.Name):
            raise self.error(target, "the target of an assignment must be a name or an element")
        known = self.names.get(target.id)
        if known is None and target.id in self.once and isinstance(value, (int, float, E.IntImm, E.FloatImm)):
            self.names[target.id] = value
            return
        if isinstance(known, _Scalar):
            known.memory[0] = E.cast(known.memory.dtype, E.as_expr(value))
        elif known is not None or not isinstance(value, (PrimExpr, int, float, bool)):
            raise self.error(
                target,
                f"'{target.id}' cannot be assigned: it is a tensor, a loop variable or a parameter, or the value is "
                "not a number")
        else:
            first = E.as_expr(value)
            memory = self.builder.allocate(first.dtype, (1,), name=target.id, scope="local")
            memory[0] = first
            self.names[target.id] = _Scalar(memory)

    def update(self, node: ast.AugAssign) -> None:
        old = self.value(
            ast.copy_location(ast.Name(node.target.id, ast.Load()), node) if isinstance(node.target, ast.Name)
            else node.target)
        self.store(node.target, self.operated(node, type(node.op), old, self.value(node.value)))

    def result(self, node: ast.Return) -> None:
        if node is not self.definition.body[-1]:
            raise self.error(node, "`return` must be the last statement of the function")
        values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        found = [self.results.get(v.id) if isinstance(v, ast.Name) else None for v in values]
        if any(b is None for b in found):
            raise self.error(
                node, "only tensors created by output_tensor can be returned; this function has "
                      f"{', '.join(self.results) or 'nothing'}")
        self.returned = [b for b in found if b is not None]

    def nothing(self, node: ast.stmt) -> None:
        """Accept a docstring or `pass`."""
        if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
            raise self.error(node, "this expression has no effect; assign it, or remove it")

    def check(self, node: ast.Assert) -> None:
        known = self.value(node.test)
        if isinstance(known, PrimExpr) and E.number_of(known) is None:
            raise self.error(node, "an assertion is checked at compile time, but the value of this one is not known "
                                   "then")
        if not (E.number_of(known) if isinstance(known, PrimExpr) else known):
            raise self.error(
                node, f"this assertion fails: {self.value(node.msg) if node.msg else ast.unparse(node.test)}")

    # Expressions.
    def value(self, node: ast.expr) -> Any:
        read = _EXPRESSIONS.get(type(node))
        if read is None:
            raise self.error(node, f"Python's {type(node).__name__} is not part of hybrid script")
        return read(self, node)

    def constant(self, node: ast.Constant) -> Any:
        return node.value

    def name(self, node: ast.Name) -> Any:
        if node.id in self.names:
            known = self.names[node.id]
            return known.memory[0] if isinstance(known, _Scalar) else known
        if node.id in self.outer:
            return self.outer[node.id]
        raise self.error(
            node, f"'{node.id}' is not defined here; a scalar first assigned inside a loop or an `if` exists only "
                  "there")

    def attribute(self, node: ast.Attribute) -> Any:
        owner = self.value(node.value)
        if isinstance(owner, BufferVar):
            if node.attr == "shape":
                return tuple(owner.buffer.shape)
            if node.attr == "dtype":
                return str(owner.dtype)
            raise self.error(node, f"a tensor has the attributes .shape and .dtype, not .{node.attr}")
        found = getattr(owner, node.attr, None)
        if found is None:
            raise self.error(node, f"the attribute .{node.attr} does not exist")
        return found

    def subscript(self, node: ast.Subscript) -> Any:
        array = self.value(node.value)
        at = self.index(node)
        if isinstance(array, BufferVar):
            return array[at]
        found = array
        for k in at if isinstance(at, tuple) else (at,):
            number = k.value if isinstance(k, E.IntImm) else k
            if not isinstance(found, (tuple, list)) or not isinstance(number, int):
                break
            found = found[number]
        else:
            return found
        raise self.error(node, f"'{ast.unparse(node.value)}' cannot be indexed by {at}")

    def index(self, node: ast.Subscript) -> Any:
        return tuple(map(self.value, node.slice.elts)) if isinstance(node.slice, ast.Tuple) else self.value(node.slice)

    def tuple(self, node: ast.Tuple | ast.List) -> Any:
        return tuple(map(self.value, node.elts))

    def binary(self, node: ast.BinOp) -> Any:
        return self.operated(node, type(node.op), self.value(node.left), self.value(node.right))

    def operated(self, node: ast.AST, kind: type[ast.operator], a: Any, b: Any) -> Any:
        known = _OPERATORS.get(kind)
        if known is None or isinstance(a, BufferVar) or isinstance(b, BufferVar):
            raise self.error(node, "operators take numbers; index each tensor down to one element")
        return known(a, b)

    def unary(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return E.logical_not(value) if isinstance(value, PrimExpr) else not value
        return -value if isinstance(node.op, ast.USub) else value

    def compare(self, node: ast.Compare) -> Any:
        values = [self.value(x) for x in (node.left, *node.comparators)]
        parts = []
        for op, a, b in zip(node.ops, values, values[1:], strict=False):
            known = _COMPARE.get(type(op))
            if known is None:
                raise self.error(node, "this comparison is not supported; use ==, !=, <, <=, >, >=")
            parts.append(
                E.compare(_CLASSES[type(op)], a, b) if isinstance(a, PrimExpr) or isinstance(b, PrimExpr)
                else known(a, b))
        return parts[0] if len(parts) == 1 else E.all_of(*parts)

    def logic(self, node: ast.BoolOp) -> Any:
        values = [self.value(x) for x in node.values]
        return E.all_of(*values) if isinstance(node.op, ast.And) else E.any_of(*values)

    def choice(self, node: ast.IfExp) -> Any:
        condition = self.value(node.test)
        if not isinstance(condition, PrimExpr):
            return self.value(node.body if condition else node.orelse)
        return E.if_then_else(condition, self.value(node.body), self.value(node.orelse))

    def call(self, node: ast.Call) -> Any:
        word = node.func.id if isinstance(node.func, ast.Name) else node.func.attr if isinstance(
            node.func, ast.Attribute
        ) else ""
        known = FUNCTIONS.get(word)
        if known is None or node.keywords:
            raise self.error(
                node,
                f"'{ast.unparse(node.func)}' cannot be called in hybrid script; the functions are "
                f"{', '.join(FUNCTIONS)}")
        return known(*(self.value(a) for a in node.args))


class _Scalar:
    """A scalar variable, stored in a buffer of one element."""

    def __init__(self, memory: BufferVar) -> None:
        self.memory = memory


_CLASSES: Final[dict[type[ast.cmpop], Any]] = {
    ast.Eq: E.EQ, ast.NotEq: E.NE, ast.Lt: E.LT, ast.LtE: E.LE, ast.Gt: E.GT, ast.GtE: E.GE
}
_STATEMENTS: Final[dict[type[ast.stmt], Callable[[Reader, Any], None]]] = {
    ast.For: Reader.loop, ast.If: Reader.branch, ast.Assign: Reader.assign, ast.AugAssign: Reader.update,
    ast.Return: Reader.result, ast.Expr: Reader.nothing, ast.Pass: Reader.nothing, ast.Assert: Reader.check,
}
_EXPRESSIONS: Final[dict[type[ast.expr], Callable[[Reader, Any], Any]]] = {
    ast.Constant: Reader.constant, ast.Name: Reader.name, ast.Attribute: Reader.attribute,
    ast.Subscript: Reader.subscript, ast.Tuple: Reader.tuple,
    ast.List: Reader.tuple, ast.BinOp: Reader.binary, ast.UnaryOp: Reader.unary, ast.Compare: Reader.compare,
    ast.BoolOp: Reader.logic, ast.IfExp: Reader.choice, ast.Call: Reader.call,
}
