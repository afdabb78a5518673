"""The text of one function while it is written: levels, places of instructions, and known values.

A *level* is the function itself, the body of a loop, or a branch. Text is a list of chunks. Each open level has the
chunk that ends where its inner construct begins. A line can thus be added to any open level and dominates all that
follows. Expressions are interned, so a dictionary from expression to name removes common subexpressions. Names of a
level are forgotten when it closes, and names that read a buffer when it is stored to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from tilewright.backends.cpu.llvm.facts import Facts, Key
from tilewright.backends.cpu.llvm.text import constant, register_type, vector
from tilewright.backends.targets.target import Target
from tilewright.base.errors import InternalError
from tilewright.base.types import DataType
from tilewright.scalar.expr import Buffer, Load, PrimExpr, Var, const
from tilewright.scalar.walk import walk

Value: TypeAlias = tuple[str, int]
"""The text of a value and the level at which it is defined."""


class Mask(NamedTuple):
    """A boolean vector under which memory is read: its text, its level, and its lanes.

    `fixed` are its values if they are constants.
    """

    text: str
    level: int
    lanes: int
    fixed: tuple[bool, ...] | None = None


Rule: TypeAlias = "Callable[[FunctionText, Any], Value]"


class _Masked(tuple[Any, str]):
    """The key of a value that was computed under a mask, with the text of the mask."""

    __slots__ = ()


def _uses(key: Any, var: Var) -> bool:
    if isinstance(key, tuple):
        return any(_uses(part, var) for part in key)
    return isinstance(key, PrimExpr) and any(x is var for x in walk(key))


class Level:
    """An open loop body or branch.

    It has the place of its next line, the names to forget when it closes, and the location `at` of its construct.
    """

    __slots__ = ("at", "chunk", "is_loop", "names", "stores")

    def __init__(self, is_loop: bool, stores: Iterable[Key], at: str) -> None:
        self.is_loop, self.at = is_loop, at
        self.stores = frozenset(stores)
        self.chunk: list[str] = []
        self.names: list[Any] = []


class FunctionText:
    """State and primitives for writing one function; a table has the rules for expressions."""

    def __init__(self, target: Target, facts: Facts, rules: dict[type, Rule], declarations: dict[str, str]) -> None:
        self.target, self.facts, self.declarations = target, facts, declarations
        self.rules: Final = rules
        self.entry: list[str] = []
        self.chunks: list[list[str]] = [self.entry]
        self.levels: list[Level] = []
        self.block = "entry"
        self._values: dict[Any, Value] = {}
        self.variables: dict[Var, Value] = {}
        self.pointers: dict[Buffer, Value] = {}
        self.slots: dict[tuple[Buffer, int], Value] = {}
        self.not_negative: set[PrimExpr] = set()
        self.mask: Mask | None = None
        self.at = ""
        """The suffix of each instruction: its location, if there is debug information."""
        self._readers: dict[Key, list[Any]] = {}
        self._count = 0
        self.enter(is_loop=False)

    # Names and lines.
    def name(self, hint: str = "t") -> str:
        self._count += 1
        return f"{hint}.{self._count}"

    def put(self, text: str, level: int, hint: str = "t") -> str:
        """Add an instruction to a level; return the name of its result."""
        self._count += 1
        name = f"%{hint}.{self._count}"
        at = self.at if level == len(self.levels) - 1 else self.levels[level + 1].at
        self.levels[level].chunk.append(f"  {name} = {text}{at}")
        return name

    def do(self, text: str) -> None:
        """Add an instruction without a result at the current place."""
        self.levels[-1].chunk.append(f"  {text}{self.at}")

    @property
    def here(self) -> int:
        """The innermost open level."""
        return len(self.levels) - 1

    def declare(self, name: str, result: str, arguments: str) -> str:
        """Declare an external function; return its name for a call."""
        self.declarations.setdefault(name, f"declare {result} @{name}({arguments})")
        return f"@{name}"

    def define(self, name: str, text: str) -> str:
        """Add a function of the module; return its name for a call."""
        self.declarations.setdefault(name, text)
        return f"@{name}"

    # Levels and blocks.
    def enter(self, *, is_loop: bool, stores: Iterable[Key] = ()) -> None:
        self.levels.append(Level(is_loop, stores, self.at))
        self.fresh_chunk()

    def leave(self) -> None:
        for key in self.levels.pop().names:
            self._values.pop(key, None)

    def fresh_chunk(self) -> None:
        """Place later lines of the innermost level after everything written so far."""
        self.levels[-1].chunk = []
        self.chunks.append(self.levels[-1].chunk)

    def start_block(self, label: str, end_of_last: str, phis: Iterable[str] = ()) -> list[str]:
        """End the current basic block and begin another; return its chunk, which ends where the block's body begins."""
        head = [f"  {end_of_last}{self.at}", f"{label}:", *phis]
        self.chunks.append(head)
        self.block = label
        return head

    # Placement.
    def place(self, need: int) -> int:
        """Return the level for pure arithmetic whose operands are known at level `need`, outside as many loops as
        possible."""
        for level in range(need + 1, len(self.levels)):
            if self.levels[level].is_loop:
                return level - 1
        return len(self.levels) - 1

    def place_load(self, need: int, buffer: Buffer) -> int:
        """Return the level for a load: outside loops that do not store to the buffer, never outside a branch."""
        level = len(self.levels) - 1
        while level > need and self.levels[level].is_loop and buffer not in self.levels[level].stores:
            level -= 1
        return level

    # Values.
    def value(self, e: PrimExpr) -> Value:
        """Return the name of `e`, after emitting the missing parts."""
        known = self.known(e, e)
        if known is not None:
            return known
        if isinstance(e, Var):
            return self._variable(e)
        text = constant(e)
        if text is not None:
            return text, 0
        if isinstance(e, Load) and e.buffer in self.facts.tiles:
            return self._slot(e)
        result = self.rules[type(e)](self, e)
        self.remember(e, result, e)
        return result

    def known(self, key: Any, *parts: PrimExpr) -> Value | None:
        """Return the value that `remember` recorded for `key` and that is still valid here.

        A value that was loaded in all lanes is also valid under a mask. A value that was loaded under a mask is valid
        only under that mask.
        """
        found = self._values.get(key)
        return found if found is not None or self.mask is None else self._values.get(self._scoped(key, parts))

    def remember(self, key: Any, value: Value, *parts: PrimExpr) -> None:
        """Record the value of `key`, which is made of `parts`, until its level closes or a store changes the parts."""
        key = self._scoped(key, parts)
        self._values[key] = value
        self.levels[value[1]].names.append(key)
        for part in parts:
            for k in self.facts.reads(part):
                self._readers.setdefault(k, []).append(key)

    def _scoped(self, key: Any, parts: tuple[PrimExpr, ...]) -> Any:
        """Return the key under the mask if the parts load; lanes outside the mask are not read."""
        return key if self.mask is None or not any(map(self.facts.loads, parts)) else _Masked((key, self.mask.text))

    def forget(self, key: Key) -> None:
        """Forget values that read `key`, which is stored to."""
        for reader in self._readers.pop(key, ()):
            self._values.pop(reader, None)

    def forget_variable(self, var: Var) -> None:
        """Forget values made of `var`, which gets another value in a copy of the statement that binds it."""
        for key in [k for k in self._values if _uses(k, var)]:
            del self._values[key]
        self.not_negative = {e for e in self.not_negative if not _uses(e, var)}

    def _variable(self, e: Var) -> Value:
        known = self.variables.get(e)
        if known is None:
            raise InternalError(f"variable '{e.name}' is used outside of the loop or let that defines it")
        return known

    def _slot(self, e: Load) -> Value:
        known = self.slots.get((e.buffer, self.facts.slot(e)), ("poison", 0))
        lanes = self.facts.slots(e.buffer)[self.facts.slot(e)]
        return known if lanes == e.dtype.lanes else self.splat(known, e.dtype)

    def set_slot(self, key: tuple[Buffer, int], value: Value) -> None:
        self.slots[key] = value
        self.forget(key)

    def splat(self, value: Value, dtype: DataType) -> Value:
        """Return a scalar in every lane of a vector."""
        text, need = value
        kind, element = register_type(dtype), register_type(dtype.element)
        level = self.place(need)
        one = self.put(f"insertelement {kind} poison, {element} {text}, i32 0", level)
        return self.put(
            f"shufflevector {kind} {one}, {kind} poison, {vector('i32', dtype.lanes)} zeroinitializer", level, "splat"
        ), level

    # Branches inside expressions.
    def choose(self, condition: str, kind: str, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        """Evaluate only `yes()` or `no()`, by the condition, and return the result."""
        labels = [self.name(hint) for hint in ("yes", "no", "join")]
        ends, end_of_last = [], f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}"
        for label, side in zip(labels, (yes, no), strict=False):
            self.start_block(label, end_of_last)
            self.enter(is_loop=False)
            text, _ = side()
            ends.append(f"[ {text}, %{self.block} ]")
            self.leave()
            end_of_last = f"br label %{labels[2]}"
        name = f"%{self.name('either')}"
        self.start_block(labels[2], end_of_last, [f"  {name} = phi {kind} {', '.join(ends)}"])
        self.fresh_chunk()
        return name, self.here

    def value_in_any_lane(self, e: PrimExpr) -> Value:
        """Return a scalar expression under the mask: its value if a lane is active, else zero.

        Its loads run only if a lane is active.
        """
        if self.mask is None or not self.facts.loads(e):
            return self.value(e)
        outer, self.mask = self.mask, None
        mask, lanes = outer.text, outer.lanes
        bits = self.put(f"bitcast <{lanes} x i1> {mask} to i{lanes}", self.here)
        some = self.put(f"icmp ne i{lanes} {bits}, 0", self.here)
        zero = constant(const(0, e.dtype)) or "zeroinitializer"
        result = self.choose(some, register_type(e.dtype), lambda: self.value(e), lambda: (zero, 0))
        self.mask = outer
        return result

    def lines(self) -> list[str]:
        """The whole text, entry block first."""
        return [line for chunk in self.chunks for line in chunk]
