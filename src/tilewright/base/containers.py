"""TVM's immutable sequences and mappings: `Array` and `Map`."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from typing import Any, ClassVar, NoReturn

from tilewright.base.errors import CompileError


class Array(tuple[Any, ...]):
    """An immutable sequence; `a + [x]` returns a new one."""

    __slots__ = ()
    type_key: ClassVar[str] = "Array"

    def __add__(self, other: Any) -> Array:
        return Array((*self, *other))

    def __radd__(self, other: Any) -> Array:
        return Array((*other, *self))

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Array(found) if isinstance(index, slice) else found

    def __setitem__(self, index: Any, value: Any) -> NoReturn:
        raise CompileError("an Array is immutable; create a new one: Array([*a[:i], value, *a[i + 1:]])", code="TW0416")

    def __repr__(self) -> str:
        return f"[{', '.join(map(repr, self))}]"


class Items(ItemsView[Any, Any]):
    """The pairs of a map; `items[0]` is the first pair."""

    __slots__ = ()

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return list(self)[index]


class Map(Mapping[Any, Any]):
    """An immutable mapping; `Map({**m, key: value})` creates a new one."""

    __slots__ = ("_items",)
    type_key: ClassVar[str] = "Map"

    def __init__(self, items: Mapping[Any, Any]) -> None:
        self._items = dict(items)

    def __getitem__(self, key: Any) -> Any:
        return self._items[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> Items:
        return Items(self)

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise CompileError(f"a Map is immutable; create a new one: Map({{**m, {key!r}: value}})", code="TW0416")

    def __repr__(self) -> str:
        return repr(self._items)
