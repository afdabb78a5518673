"""The builder that the functions of `ir` and `tir` add to."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final, Self, TypeVar

from tilewright.base.errors import OptionError
from tilewright.base.types import BOOL
from tilewright.ir.module import IRModule
from tilewright.scalar.expr import Buffer, PrimExpr, Var, const
from tilewright.tir.ir_builder import IRBuilder as Statements
from tilewright.tir.stmt import IterVar, PrimFunc, Stmt

_CURRENT: Final[ContextVar[IRBuilder | None]] = ContextVar("builder", default=None)
P = TypeVar("P", Var, Buffer)


class FunctionFrame:
    """A function under construction: its name, its parameters in order, the buffers of its handles, and attributes."""

    def __init__(self) -> None:
        self.name = "main"
        self.params: list[Var | Buffer] = []
        self.buffers: dict[Var, Buffer] = {}
        self.attrs: dict[str, Any] = {}
        self.inner: list[Buffer] = []
        """Intermediate buffers."""


class BlockFrame:
    """A block under construction: its axes with their bindings, predicate, initialization and annotations."""

    def __init__(self) -> None:
        self.iters: list[IterVar] = []
        self.bindings: list[PrimExpr] = []
        self.predicate: PrimExpr = const(1, BOOL)
        self.init: Stmt | None = None
        self.annotations: dict[str, Any] = {}


class IRBuilder:
    """A program under construction, the current one inside its `with`."""

    def __init__(self) -> None:
        self.statements = Statements()
        self.function: FunctionFrame | None = None
        self.block: BlockFrame | None = None
        """The innermost open block."""
        self.extents: dict[Any, PrimExpr] = {}
        """Extents of the loops by their variables."""
        self.threads: dict[Var, str] = {}
        """Kinds of threads by the variables of `T.env_thread`."""
        self.condition: PrimExpr | None = None
        """The condition of the innermost `T.If`."""
        self.module: dict[str, PrimFunc] | None = None
        self._made: PrimFunc | IRModule | None = None

    def __enter__(self) -> Self:
        self._outer = _CURRENT.get()
        _CURRENT.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _CURRENT.set(self._outer)

    @staticmethod
    def current() -> IRBuilder:
        """Return the innermost builder. Raises `OptionError`, a `ValueError`, outside of any."""
        found = _CURRENT.get()
        if found is None:
            raise OptionError("there is no current builder; write `with IRBuilder() as ib:` around it", code="TW0608")
        return found

    @staticmethod
    def is_in_scope() -> bool:
        """Return whether there is a current builder."""
        return _CURRENT.get() is not None

    @staticmethod
    def name(s: str, v: P) -> P:
        """Give a variable or buffer the name `s`, and return it."""
        v.name = s
        return v

    @staticmethod
    def name_many(s: Sequence[str], vs: Sequence[P]) -> list[P]:
        """Give variables or buffers their names in order, and return them. Raises `ValueError` for lists of different
        lengths."""
        return [IRBuilder.name(name, v) for name, v in zip(s, vs, strict=True)]

    def add(self, made: PrimFunc | IRModule) -> None:
        """Add a function, to the module if one is open, or a module."""
        if isinstance(made, PrimFunc) and self.module is not None:
            self.module[made.name] = made
        else:
            self._made = made

    def get(self) -> Any:
        """Return the module, the function or the statement."""
        return self.statements.get() if self._made is None else self._made
