"""Mark the target that computes each call.

    nn.relu(add(%x, %y))
    -> %0 = add(compiler_begin(%x, "npu"), compiler_begin(%y, "npu"));
       %1 = nn.relu(compiler_begin(compiler_end(%0, "npu"), "default")); compiler_end(%1, "default")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.analysis.regions import DEFAULT, is_begin, is_mark, open_nodes
from tilewright.relay.expr import Call, Expr, Function, RefCreate, RefRead, RefWrite, Tuple, TupleGetItem
from tilewright.relay.op.annotation import CompilerBegin, CompilerEnd
from tilewright.relay.op.contrib import supports
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands, with_operands

_OF_ARGUMENTS: Final = (Tuple, TupleGetItem)
_OF_HOST: Final = (Call, RefCreate, RefRead, RefWrite)


@dataclass(frozen=True)
class AnnotateTarget(FunctionPass):
    """Assign each call to the first of `targets` that supports it, else to `default`, and mark the borders of the
    regions.

    Needs composite functions (`MergeComposite`). A target supports an operator if its attribute `target.<name>`
    (`register_op_attr`) returns True for the call, and a composite function if its name begins with the target's. With
    `include_non_call_ops`, tuples and fields get the target that their arguments have in common, else `default`, as do
    references and calls of other functions; without it, all these have no marks. Existing marks are kept. Calls without
    arguments count as inputs.
    """

    kind: ClassVar[type] = Function
    targets: str | Sequence[str]
    include_non_call_ops: bool = True

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        if "Compiler" in function.attrs:
            return function
        plain, earlier = _without_marks(function)
        targets = (self.targets,) if isinstance(self.targets, str) else tuple(self.targets)
        return _Marking(targets, self.include_non_call_ops, earlier).of(plain)


def mark_targets(function: Function, given: Mapping[Expr, str]) -> Expr:
    """Return the function with marks around the calls in `given`, which maps them to targets; other calls belong to
    `default`, and tuples follow their fields.
    """
    return _Marking((), True, given).of(function)


def _without_marks(function: Function) -> tuple[Expr, dict[Expr, str]]:
    """Return the function without marks, and the earlier target of each marked node."""
    new: dict[Expr, Expr] = {}
    given: dict[Expr, str] = {}
    earlier: dict[Expr, str] = {}
    for e in open_nodes(function):
        old = operands(e)
        if is_mark(e):
            new[e] = new.get(old[0], old[0])
            if is_begin(e):
                given[e] = e.op.compiler
            continue
        target = next((given[o] for o in old if o in given), None)
        if any(o in new for o in old):
            new[e] = with_operands(e, [new.get(o, o) for o in old])
        if target is not None:
            given[e] = target
            if target != DEFAULT and isinstance(e, (*_OF_HOST, *_OF_ARGUMENTS)):
                earlier[new.get(e, e)] = target
    plain = new.get(function, function)
    return plain, earlier


class _Marking:
    """A walk that assigns targets to nodes and inserts marks between regions."""

    def __init__(self, targets: Sequence[str], non_calls: bool, earlier: Mapping[Expr, str]) -> None:
        self.targets, self.non_calls, self.earlier = targets, non_calls, earlier
        self.target: dict[Expr, str] = {}
        self.new: dict[Expr, Expr] = {}

    def of(self, function: Expr) -> Expr:
        for e in open_nodes(function):
            old = operands(e)
            target = self._target(e)
            if target is not None:
                self.target[e] = target
                called = e.op if isinstance(e, Call) else None
                now = [self._end(o) if o is called else CompilerBegin(target)(self._end(o)) for o in old]
            else:
                now = [self._end(o) for o in old]
            if any(a is not b for a, b in zip(old, now, strict=True)):
                self.new[e] = with_operands(e, now)
        return self.new.get(function, function)

    def _end(self, e: Expr) -> Expr:
        """Return the value of `e` outside of its region, with a mark of its own for each use, as in TVM."""
        target, value = self.target.get(e), self.new.get(e, e)
        return value if target is None else CompilerEnd(target)(value)

    def _target(self, e: Expr) -> str | None:
        """Return the target of `e`; None for an unmarked node."""
        if e in self.earlier:
            return self.earlier[e]
        if isinstance(e, Call) and not e.args:
            return None
        if isinstance(e, Call) and isinstance(e.op, (Op, Function)):
            return next((t for t in self.targets if supports(t, e)), DEFAULT)
        if not self.non_calls:
            return None
        if isinstance(e, _OF_HOST):
            return DEFAULT
        if not isinstance(e, _OF_ARGUMENTS) or not operands(e):
            return None
        given = {self.target.get(o, DEFAULT) for o in operands(e)}
        return given.pop() if len(given) == 1 else DEFAULT
