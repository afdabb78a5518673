"""Lowers Relay with control flow to control functions (`backends/flow.py`) and straight-line blocks.

    def @main(%n: int32) { if (less(%n, 0)) { negative(%n) } else { @f(add(%n, 1)) } }
    ->  main(%0): %1 = run block 0(%0); if %1: %2 = run block 1(%0); return %2 else: %3 = run block 2(%0); jump f(%3)

Operator calls are collected in an open block until control flow needs one of their values, or a branch begins. A block
is a Relay function of tensors, which is compiled like any straight-line program. Tuples are created only where they
leave the function or are stored in a cell. A closure is a record of its captured values. Tail calls are jumps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from tilewright.backends import flow
from tilewright.base.errors import CompileError, InternalError
from tilewright.base.graphs import reachable
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.compiler.entry_types import check_entry_types, input_error, result_types
from tilewright.compiler.entry_values import has_records, layout_of
from tilewright.compiler.program_steps import written
from tilewright.ir.module import IRModule
from tilewright.relay.adt import Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar
from tilewright.relay.analysis.branches import Branches, is_kernel
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
)
from tilewright.relay.op.create import Zeros
from tilewright.relay.op.indexing import WriteRow
from tilewright.relay.scopes import ATOMS, Scopes
from tilewright.relay.visitor import operands

Value: TypeAlias = "flow.Reg | tuple[Value, ...]"
"""A register, or a tuple that is not a cell."""


@dataclass(slots=True)
class Lowered:
    """A module as control functions. `blocks` are Relay functions of tensors, `constants` the values that `Wrap`s name.
    """

    program: flow.FlowProgram
    blocks: list[Function] = field(default_factory=list)
    constants: list[np.ndarray[Any, Any]] = field(default_factory=list)


def needs_control(main: Function) -> bool:
    """Whether a function contains more than operator calls and tuples."""
    control = (If, Match, RefCreate, RefRead, RefWrite, Function, GlobalVar, Constructor)
    walk = reachable([main.body], lambda e: e.args if isinstance(e, Call) and is_kernel(e) else operands(e))
    return any(isinstance(e, control) for e in walk)


def lower_control(mod: IRModule) -> Lowered:
    """Lower `main` and its callees. Needs inferred types; raises `CompileError` for constructs without a native form.

    `main` takes tensors and returns tensors or tuples of them (`compiler/entry_types.py`), or values of data types
    (`compiler/entry_values.py`).
    """
    main, layout = mod["main"], layout_of(mod["main"])
    if layout is None or not has_records(main):
        check_entry_types(main)
    for p in main.params:
        if isinstance(p.checked_type, TensorType) and not p.tensor_type.is_static:
            raise input_error(p, p.tensor_type)
    if main.ret_type is None:
        raise CompileError(
            "the type of the result of @main is not known; annotate its variables, or run relay.transform.InferType",
            main.span, code="TW0310")
    done = _Module(mod)
    done.function_of("main")
    while done.waiting:
        done.waiting.pop(0).lower()
    program = done.lowered.program
    if layout is not None:
        program.records, program.is_boxed = layout.records, layout.is_boxed
    program.results = () if program.is_boxed else tuple(path for path, _ in result_types(main.ret_type))
    return done.lowered


class _Module:
    """State shared by the functions of one module."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.lowered = Lowered(flow.FlowProgram([], [], (), []))
        self.waiting: list[_Function] = []
        self._numbers: dict[Any, int] = {}
        self._constants: dict[int, int] = {}

    def add(self, function: flow.FlowFunction) -> int:
        self.lowered.program.functions.append(function)
        return len(self.lowered.program.functions) - 1

    def function_of(self, name: str) -> int:
        """Return the number of a function of the module."""
        found = self._numbers.get(name)
        if found is None:
            if name not in self.mod:
                raise CompileError(f"the function @{name} is not in the module", code="TW0401")
            function = self.mod[name]
            if not isinstance(function, Function):
                raise CompileError(
                    f"@{name} is a {type(function).__name__}, but compiled control flow calls Relay functions only",
                    code="TW0403")
            made = flow.FlowFunction(name)
            found = self._numbers[name] = self.add(made)
            self.waiting.append(_Function(self, made, function, Scopes(function)))
        return found

    def closure_of(self, e: Function, sees: tuple[Expr, ...], own: Var | None, outer: _Function) -> int:
        """Return the number of the function of a closure that captures the values `sees` of the function `outer`."""
        key = (e, sees, own)
        found = self._numbers.get(key)
        if found is None:
            made = flow.FlowFunction(f"{outer.made.name}.{own.name_hint if own is not None else 'fn'}")
            found = self._numbers[key] = self.add(made)
            self.waiting.append(_Function(self, made, e, outer.scopes, sees, own))
        return found

    def value_of(self, e: GlobalVar | Constructor) -> int:
        """Return the number of the function of a closure without captures: a global function or a constructor as a
        value."""
        key = ("value", e.name_hint, e if isinstance(e, Constructor) else None)
        found = self._numbers.get(key)
        if found is None:
            count = len(e.inputs) if isinstance(e, Constructor) else len(self.mod[e.name_hint].params)
            params = tuple(range(count))
            body: flow.Body = (
                [flow.Record(count + 1, e.tag, params), flow.Return(count + 1)] if isinstance(e, Constructor)
                else [flow.TailCall(self.function_of(e.name_hint), params)]
            )
            found = self._numbers[key] = self.add(flow.FlowFunction(f"{e.name_hint}.value", params, (), count, body))
        return found

    def constant(self, array: np.ndarray[Any, Any]) -> int:
        found = self._constants.get(id(array))
        if found is None:
            found = self._constants[id(array)] = len(self.lowered.constants)
            self.lowered.constants.append(array)
        return found

    def block(self, function: Function) -> int:
        blocks = self.lowered.blocks
        blocks.append(function)
        outputs = function.body.fields if isinstance(function.body, Tuple) else (function.body,)
        self.lowered.program.blocks.append(
            (tuple(written(p.tensor_type.nbytes) for p in function.params),
             tuple(written(o.tensor_type.nbytes) for o in outputs)))
        return len(blocks) - 1

    def message(self, text: str) -> int:
        self.lowered.program.messages.append(text)
        return len(self.lowered.program.messages) - 1


class _Function:
    """A function during lowering. `known` maps expressions to their values, `same` maps names to the expressions they
    denote.

    `scopes` are those of the enclosing function of the module. A closure captures the values `sees`, and refers to
    itself as `own`.
    """

    def __init__(
        self, module: _Module, made: flow.FlowFunction, function: Function, scopes: Scopes,
        sees: tuple[Expr, ...] | None = None, own: Var | None = None,
    ) -> None:
        self.module, self.made, self.function, self.scopes = module, made, function, scopes
        self.count = 0
        self.known: dict[Expr, Value] = {}
        self.same: dict[Expr, Expr] = {}
        self.done: set[Expr] = set()
        self.names: dict[Function, Var] = {}
        self.body: flow.Body = []
        self.open: dict[Expr, None] = {}
        made.params = tuple(self._bind(p) for p in function.params)
        made.captured = tuple(self._bind(v) for v in sees or ())
        self.given = {v for v in sees or () if not isinstance(v, Var)}
        if sees is not None:
            made.itself = self._register()
            if own is not None:
                self.known[own] = made.itself
                self.done.add(own)

    def lower(self) -> None:
        self.branches = Branches(self.function.body, self.given, self.scopes.captured)
        self.made.body = self._branch(self.function.body, None, tail=True)

    def _register(self) -> flow.Reg:
        self.count += 1
        return self.count - 1

    def _bind(self, v: Expr) -> flow.Reg:
        """Return a new register for a given value."""
        found = self._register()
        self.known[v] = found
        self.done.add(v)
        return found

    # Branches

    def _branch(self, root: Expr, owner: Expr | None, tail: bool) -> flow.Body:
        """Return the instructions of a branch with the value `root`; at the `tail` of the function it ends with a
        return or a jump."""
        outer = self.body, self.open
        self.body, self.open = [], {}
        last = self._last(root, owner) if tail else None
        if not self._visit(root, last):
            value = self._cell(root)
            self.body.append(flow.Return(value) if tail else flow.Yield(value))
        found = self.body
        self.body, self.open = outer
        return found

    def _last(self, root: Expr, owner: Expr | None) -> Expr | None:
        """Return the expression that makes the value of a branch, if it has no other users and can end the function."""
        path: list[Expr | None] = [owner]
        e = root
        while isinstance(e, Let):
            path.append(e)
            named = e.body is e.var and self.branches.users[e.var] == [e]
            e = e.value if named else e.body
        ends = isinstance(e, (If, Match)) or (
            isinstance(e, Call) and not is_kernel(e) and not isinstance(e.op, Constructor)
        )
        return e if ends and e not in self.done and all(u in path for u in self.branches.users[e]) else None

    def _visit(self, root: Expr, last: Expr | None) -> bool:
        """Compute `root`; return whether the function ended with `last`."""
        stack = [root]
        while stack:
            e = stack[-1]
            if not self._waits(e):
                stack.pop()
                continue
            missing = self._missing(e)
            if missing:
                stack.extend(reversed(missing))
            elif e is last:
                self._end(e)
                return True
            else:
                self._emit(e)
                self.done.add(e)
                stack.pop()
        return False

    def _missing(self, e: Expr) -> list[Expr]:
        """Return the expressions that must be computed before `e`."""
        if isinstance(e, Let):
            if e.var not in self.done:
                if isinstance(e.value, Function):
                    self.names.setdefault(e.value, e.var)
                if self._waits(e.value):
                    return [e.value]
                self.same[e.var] = self._meant(e.value)
                self.done.add(e.var)
            below: Sequence[Expr] = (e.body,)
        elif isinstance(e, (If, Match)):
            below = (*self.branches.hoisted.get(e, ()), self.branches.operands(e)[0])
        elif isinstance(e, Function):
            below = [v for v in self.scopes.captured(e) if v is not self.names.get(e)]
        elif isinstance(e, Var):
            raise CompileError(f"the variable '{e.name_hint}' has no value here", e.span, code="TW0402")
        else:
            below = self.branches.operands(e)
        return [o for o in below if self._waits(o)]

    def _waits(self, e: Expr) -> bool:
        return e not in self.done and (isinstance(e, Var) or not isinstance(e, ATOMS))

    # Values

    def _meant(self, e: Expr) -> Expr:
        """Return the expression that a name denotes."""
        return self.same.get(e, e)

    def _value(self, e: Expr) -> Value:
        """Return the value of a computed expression; an open block that makes it is closed first."""
        e = self._meant(e)
        if e in self.open:
            self._close()
        if e in self.known:
            return self.known[e]
        match e:
            case Constant():
                return self._put(flow.Wrap(self._register(), self.module.constant(e.value)))
            case GlobalVar() | Constructor():
                return self._put(flow.Record(self._register(), self.module.value_of(e), ()))
            case Tuple():
                return tuple(self._value(f) for f in e.fields)
            case TupleGetItem():
                return self._field(self._value(e.tuple_value), e.index)
            case _:
                raise InternalError(f"a {type(e).__name__} of @{self.made.name} is used before it is computed")

    def _field(self, whole: Value, index: int) -> Value:
        return whole[index] if isinstance(whole, tuple) else self._put(flow.Field(self._register(), whole, index))

    def _cell(self, e: Expr) -> flow.Reg:
        """Return the value of `e` in one register."""
        return self._boxed(self._value(e))

    def _boxed(self, value: Value) -> flow.Reg:
        return self._put(
            flow.Record(self._register(), 0, tuple(map(self._boxed, value)))
        ) if isinstance(value, tuple) else value

    def _put(self, i: Any) -> flow.Reg:
        self.body.append(i)
        out: flow.Reg = i.out
        return out

    # Instructions

    def _emit(self, e: Expr) -> None:
        if is_kernel(e):
            if not self._instruction(e):
                self.open[e] = None
            return
        match e:
            case Let():
                self.same[e] = self._meant(e.body)
            case Tuple():
                pass
            case TupleGetItem():
                self._take(e)
            case Call():
                self._call(e)
            case If() | Match():
                self._close()
                self.known[e] = out = self._register()
                self._choice(e, out)
            case Function():
                own = self.names.get(e)
                sees = tuple(v for v in self.scopes.captured(e) if v is not own)
                number = self.module.closure_of(e, sees, own, self)
                fields = tuple(map(self._cell, sees))
                self.known[e] = self._put(flow.Record(self._register(), number, fields))
            case RefCreate():
                value = self._cell(e.value)
                self.known[e] = self._put(flow.Record(self._register(), 0, (value,)))
            case RefRead():
                ref = self._cell(e.ref)
                self.known[e] = self._put(flow.Read(self._register(), ref))
            case RefWrite():
                ref, value = self._cell(e.ref), self._cell(e.value)
                self.body.append(flow.Write(ref, value))
                self.known[e] = ()
            case _:
                raise CompileError(f"a {type(e).__name__} cannot be compiled", e.span, code="TW0403")

    def _instruction(self, e: Expr) -> bool:
        """Emit an instruction for an operator that has one (zeros for a loop, writes into them), and return whether it
        has one."""
        assert isinstance(e, Call)
        if isinstance(e.op, Zeros) and not all(is_kernel(u) for u in self.branches.users[e]):
            self.known[e] = self._put(flow.Zeros(self._register(), written(e.tensor_type.nbytes)))
            return True
        if isinstance(e.op, WriteRow) and e.tensor_type.is_static:
            data, row, index = map(self._cell, e.args)
            whole, part, width = e.tensor_type, e.args[1].tensor_type, e.args[2].tensor_type.dtype.bits
            rows, nbytes, size = map(written, (whole.shape[0], part.nbytes, whole.nbytes))
            self.known[e] = self._put(flow.Update(self._register(), data, row, index, rows, nbytes, size, width))
            return True
        return False

    def _take(self, e: TupleGetItem) -> None:
        """Compute a field: directly from a tuple of known parts, by a load from a cell, or when its open block is
        closed."""
        whole = self._meant(e.tuple_value)
        if isinstance(whole, Tuple):
            self.same[e] = self._meant(whole.fields[e.index])
        elif whole in self.known:
            self.known[e] = self._field(self.known[whole], e.index)

    def _call(self, e: Call) -> None:
        args = tuple(map(self._cell, e.args))
        if isinstance(e.op, GlobalVar):
            self.known[e] = self._put(flow.Call(self._register(), self.module.function_of(e.op.name_hint), args))
        elif isinstance(e.op, Constructor):
            self.known[e] = self._put(flow.Record(self._register(), e.op.tag, args))
        else:
            closure = self._cell(e.op)
            self.known[e] = self._put(flow.Apply(self._register(), closure, args))

    def _end(self, e: Expr) -> None:
        """End the function with the value of `e`."""
        if isinstance(e, Call):
            args = tuple(map(self._cell, e.args))
            if isinstance(e.op, GlobalVar):
                self.body.append(flow.TailCall(self.module.function_of(e.op.name_hint), args))
            else:
                self.body.append(flow.TailApply(self._cell(e.op), args))
        else:
            self._close()
            self._choice(e, None)

    def _choice(self, e: Expr, out: flow.Reg | None) -> None:
        tail = out is None
        if isinstance(e, If):
            cond = self._cell(e.cond)
            self.body.append(
                flow.If(out, cond, self._branch(e.true_branch, e, tail), self._branch(e.false_branch, e, tail)))
            return
        assert isinstance(e, Match)
        value = self._cell(e.data)
        cases = []
        for clause in e.clauses:
            tests: list[tuple[tuple[int, ...], int]] = []
            binds: list[tuple[flow.Reg, tuple[int, ...]]] = []
            self._pattern(clause.lhs, (), tests, binds)
            cases.append(flow.Case(tuple(tests), tuple(binds), self._branch(clause.rhs, e, tail)))
        where = f" ({e.span})" if e.span else ""
        known = ", ".join(_text(c.lhs) for c in e.clauses)
        site = self.module.message(
            f"no clause of a match in @{self.made.name}{where} fits the value; its clauses are for {known}; add the "
            "missing one")
        self.body.append(flow.Choose(out, value, tuple(cases), site))

    def _pattern(self, p: Pattern, path: tuple[int, ...], tests: list[Any], binds: list[Any]) -> None:
        match p:
            case PatternVar():
                binds.append((self._bind(p.var), path))
            case PatternConstructor():
                tests.append((path, p.constructor.tag))
        if isinstance(p, (PatternConstructor, PatternTuple)):
            for k, q in enumerate(p.patterns):
                self._pattern(q, (*path, k), tests, binds)

    # Blocks

    def _close(self) -> None:
        """Make a block of the collected operators, and run it."""
        members, self.open = self.open, {}
        results = [e for e in members if self._leaves(e, members)]
        if not results:
            return
        block = _Block(self)
        for e in members:
            assert isinstance(e, Call)
            block.inside[e] = Call(e.op, [block.operand(a) for a in e.args], span=e.span)
        params = tuple(block.inputs.values())
        for p in params:
            if not p.tensor_type.is_static:
                raise CompileError(
                    f"'{p.name_hint}' of @{self.made.name} has the type {p.tensor_type!r}, but code is compiled for "
                    "known sizes; annotate it with a size", p.span, code="TW0303")
        leaves: list[Expr] = []
        made: list[flow.Reg] = []
        for e in results:
            self.known[e] = self._outputs(block.inside[e], leaves, made)
        function = Function(params, leaves[0] if len(leaves) == 1 else Tuple(tuple(leaves)))
        self.body.append(flow.Run(tuple(made), self.module.block(function), tuple(block.inputs)))

    def _outputs(self, e: Expr, leaves: list[Expr], made: list[flow.Reg]) -> Value:
        """Allocate registers for the tensors of a result."""
        kind = e.checked_type
        if isinstance(kind, TupleType):
            return tuple(self._outputs(TupleGetItem(e, k), leaves, made) for k in range(len(kind.fields)))
        if isinstance(kind, TensorType) and not kind.is_static:
            raise CompileError(
                f"a value of @{self.made.name} has the type {kind!r}, but code is compiled for known sizes; annotate "
                "its variables with sizes", e.span, code="TW0303")
        leaves.append(e)
        made.append(self._register())
        return made[-1]

    def _leaves(self, e: Expr, members: dict[Expr, None]) -> bool:
        """Whether the value is used outside its block."""
        seen: set[Expr] = set()
        stack = [e]
        while stack:
            x = stack.pop()
            if x in seen:
                continue
            seen.add(x)
            if x is self.function.body:
                return True
            for u in self.branches.users.get(x, ()):
                if isinstance(u, Let):
                    stack += [y for y, z in ((u.var, u.value), (u, u.body)) if z is x]
                elif isinstance(u, (Tuple, TupleGetItem)):
                    stack.append(u)
                elif u not in members:
                    return True
        return False


class _Block:
    """A block under construction: `inside` are its values, in terms of its own parameters, one for each input register.
    """

    def __init__(self, owner: _Function) -> None:
        self.owner = owner
        self.inside: dict[Expr, Expr] = {}
        self.inputs: dict[flow.Reg, Var] = {}

    def operand(self, e: Expr) -> Expr:
        """Return the expression that represents `e` in the block."""
        name = e.name_hint if isinstance(e, Var) else ""
        e = self.owner._meant(e)
        if e in self.inside or isinstance(e, Constant):
            return self.inside.get(e, e)
        if isinstance(e, Tuple):
            return Tuple(tuple(map(self.operand, e.fields)), e.span)
        if isinstance(e, TupleGetItem) and e not in self.owner.known:
            whole = self.operand(e.tuple_value)
            return whole.fields[e.index] if isinstance(whole, Tuple) else TupleGetItem(whole, e.index, e.span)
        self.inside[e] = self._input(self.owner._value(e), e.checked_type, name)
        return self.inside[e]

    def _input(self, value: Value, kind: Type, name: str) -> Expr:
        if isinstance(kind, TupleType):
            return Tuple(tuple(self._input(self.owner._field(value, k), t, name) for k, t in enumerate(kind.fields)))
        if not isinstance(kind, TensorType) or isinstance(value, tuple):
            raise InternalError(f"an operator in @{self.owner.made.name} takes a value of type {kind!r}")
        return self.inputs.setdefault(value, Var(name or f"x{len(self.inputs)}", kind))


def _text(p: Pattern) -> str:
    """Return a pattern as Relay text."""
    match p:
        case PatternConstructor():
            inner = ", ".join(map(_text, p.patterns))
            return f"{p.constructor.name_hint}({inner})" if inner else p.constructor.name_hint
        case PatternTuple():
            return f"({', '.join(map(_text, p.patterns))})"
        case PatternVar():
            return f"%{p.var.name_hint}"
        case _:
            return "_"
