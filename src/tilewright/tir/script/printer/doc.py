"""Nodes of Python programs, under TVM's names (`tvm.script.printer.doc`).

    x = IdDoc("x")
    AssignDoc(x, OperationDoc(OperationKind.Add, [x, LiteralDoc(1)]))      x = x + 1

A node is compared by identity. Its `source_paths` are the paths of the parts of a program that it is the text of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeAlias

from tilewright.base.object_path import ObjectPath

Literal: TypeAlias = "str | int | float | bool | None"


class Doc:
    """Base of the nodes."""

    _source_paths: tuple[ObjectPath, ...] = ()

    @property
    def source_paths(self) -> tuple[ObjectPath, ...]:
        """Paths of the parts of a program that this node is the text of."""
        return self._source_paths

    @source_paths.setter
    def source_paths(self, paths: Sequence[ObjectPath]) -> None:
        self._source_paths = tuple(paths)


class ExprDoc(Doc):
    """Base of expressions."""

    def attr(self, name: str) -> AttrAccessDoc:
        """Return the access of an attribute."""
        return AttrAccessDoc(self, name)

    def call(self, *args: ExprDoc, **kwargs: ExprDoc) -> CallDoc:
        """Return a call of the expression."""
        return CallDoc(self, *args, **kwargs)

    def __getitem__(self, indices: Index | tuple[Index, ...]) -> IndexDoc:
        return IndexDoc(self, indices if isinstance(indices, tuple) else (indices,))

    def __iter__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} has no elements; doc[index] is an expression")


class StmtDoc(Doc):
    """Base of statements."""

    _comment: str | None = None

    @property
    def comment(self) -> str | None:
        """The text of a comment, without `#`."""
        return self._comment

    @comment.setter
    def comment(self, text: str | None) -> None:
        self._comment = text


class LiteralDoc(ExprDoc):
    """A constant: None, a string, a number or a bool."""

    def __init__(self, value: Literal) -> None:
        self.value = value


class IdDoc(ExprDoc):
    """A name."""

    def __init__(self, name: str) -> None:
        self.name = name


class AttrAccessDoc(ExprDoc):
    """`value.name`."""

    def __init__(self, value: ExprDoc, name: str) -> None:
        self.value, self.name = value, name


class IndexDoc(ExprDoc):
    """`value[indices]`; `value[()]` without indices."""

    def __init__(self, value: ExprDoc, indices: Sequence[Index]) -> None:
        self.value, self.indices = value, tuple(indices)


class CallDoc(ExprDoc):
    """`callee(*args, **kwargs)`; `kwargs_keys` are the names of the last arguments, `kwargs_values` their values."""

    def __init__(self, callee: ExprDoc, *args: ExprDoc, **kwargs: ExprDoc) -> None:
        self.callee, self.args = callee, args
        self.kwargs_keys, self.kwargs_values = tuple(kwargs), tuple(kwargs.values())


class OperationKind(IntEnum):
    """Python's operators, grouped by the number of operands. Names with an underscore are the ends of a group."""

    _UnaryStart = 0
    USub = 1
    Invert = 2
    Not = 3
    _UnaryEnd = 4

    _BinaryStart = 5
    Add = 6
    Sub = 7
    Mul = 8
    Mult = 8
    Div = 9
    FloorDiv = 10
    Mod = 11
    Pow = 12
    LShift = 13
    RShift = 14
    BitAnd = 15
    BitOr = 16
    BitXor = 17
    Lt = 18
    LtE = 19
    Eq = 20
    NotEq = 21
    Gt = 22
    GtE = 23
    And = 24
    Or = 25
    _BinaryEnd = 26

    _SpecialStart = 27
    IfThenElse = 28
    _SpecialEnd = 29


class OperationDoc(ExprDoc):
    """An operator with its operands. The operands of `IfThenElse` are the condition and the two values."""

    def __init__(self, kind: OperationKind, operands: Sequence[ExprDoc]) -> None:
        self.kind, self.operands = kind, tuple(operands)


class LambdaDoc(ExprDoc):
    """`lambda args: body`."""

    def __init__(self, args: Sequence[IdDoc], body: ExprDoc) -> None:
        self.args, self.body = tuple(args), body


class TupleDoc(ExprDoc):
    """`(element, …)`."""

    def __init__(self, elements: Sequence[ExprDoc]) -> None:
        self.elements = tuple(elements)


class ListDoc(ExprDoc):
    """`[element, …]`."""

    def __init__(self, elements: Sequence[ExprDoc]) -> None:
        self.elements = tuple(elements)


class DictDoc(ExprDoc):
    """`{key: value, …}`."""

    def __init__(self, content: Mapping[ExprDoc, ExprDoc]) -> None:
        self.keys, self.values = tuple(content), tuple(content.values())


class SliceDoc(Doc):
    """`start:stop:step`, each of them optional; only an index."""

    def __init__(self, start: ExprDoc | None = None, stop: ExprDoc | None = None, step: ExprDoc | None = None) -> None:
        self.start, self.stop, self.step = start, stop, step


Index: TypeAlias = "ExprDoc | SliceDoc"


class StmtBlockDoc(Doc):
    """Statements in order."""

    def __init__(self, stmts: Sequence[StmtDoc]) -> None:
        self.stmts = tuple(stmts)


class AssignDoc(StmtDoc):
    """`lhs: annotation = rhs`, where the value or the annotation may be absent. Raises `ValueError` without both, and
    for several names with an annotation."""

    def __init__(self, lhs: ExprDoc, rhs: ExprDoc | None, annotation: ExprDoc | None = None) -> None:
        if rhs is None and annotation is None:
            raise ValueError("an AssignDoc needs a value (rhs) or an annotation")
        if annotation is not None and isinstance(lhs, TupleDoc):
            raise ValueError("an AssignDoc to a tuple cannot have an annotation; assign each name in its own statement")
        self.lhs, self.rhs, self.annotation = lhs, rhs, annotation


class IfDoc(StmtDoc):
    """`if predicate: … else: …`. Raises `ValueError` if both branches are empty."""

    def __init__(self, predicate: ExprDoc, then_branch: Sequence[StmtDoc], else_branch: Sequence[StmtDoc] = ()) -> None:
        if not then_branch and not else_branch:
            raise ValueError("an IfDoc needs a statement in one of its branches")
        self.predicate, self.then_branch, self.else_branch = predicate, tuple(then_branch), tuple(else_branch)


class WhileDoc(StmtDoc):
    """`while predicate: …`."""

    def __init__(self, predicate: ExprDoc, body: Sequence[StmtDoc]) -> None:
        self.predicate, self.body = predicate, tuple(body)


class ForDoc(StmtDoc):
    """`for lhs in rhs: …`."""

    def __init__(self, lhs: ExprDoc, rhs: ExprDoc, body: Sequence[StmtDoc]) -> None:
        self.lhs, self.rhs, self.body = lhs, rhs, tuple(body)


class ScopeDoc(StmtDoc):
    """`with rhs as lhs: …`, or `with rhs: …` if `lhs` is None."""

    def __init__(self, lhs: ExprDoc | None, rhs: ExprDoc, body: Sequence[StmtDoc]) -> None:
        self.lhs, self.rhs, self.body = lhs, rhs, tuple(body)


class ExprStmtDoc(StmtDoc):
    """An expression as a statement."""

    def __init__(self, expr: ExprDoc) -> None:
        self.expr = expr


class AssertDoc(StmtDoc):
    """`assert test, msg`."""

    def __init__(self, test: ExprDoc, msg: ExprDoc | None = None) -> None:
        self.test, self.msg = test, msg


class ReturnDoc(StmtDoc):
    """`return value`."""

    def __init__(self, value: ExprDoc) -> None:
        self.value = value


class FunctionDoc(StmtDoc):
    """`def name(args) -> return_type: …` with decorators. The arguments are assignments: name, default, annotation."""

    def __init__(
        self,
        name: IdDoc,
        args: Sequence[AssignDoc],
        decorators: Sequence[ExprDoc],
        return_type: ExprDoc | None,
        body: Sequence[StmtDoc],
    ) -> None:
        self.name, self.args, self.decorators = name, tuple(args), tuple(decorators)
        self.return_type, self.body = return_type, tuple(body)


class ClassDoc(StmtDoc):
    """`class name: …` with decorators."""

    def __init__(self, name: IdDoc, decorators: Sequence[ExprDoc], body: Sequence[StmtDoc]) -> None:
        self.name, self.decorators, self.body = name, tuple(decorators), tuple(body)


class CommentDoc(StmtDoc):
    """Lines with only a comment."""

    def __init__(self, comment: str) -> None:
        self.comment = comment


class DocStringDoc(StmtDoc):
    """A string that documents the function or class around it."""

    def __init__(self, docs: str) -> None:
        self.comment = docs
