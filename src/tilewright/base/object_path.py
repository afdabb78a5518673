"""TVM's `tvm.runtime.object_path`: the path from a value to one of its parts.

    ObjectPath.root().attr("body").array_index(2)      <root>.body[2]

Paths are immutable; equal paths compare equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

__all__ = [
    "ArrayIndexPath", "AttributeAccessPath", "MapValuePath", "MissingArrayElementPath", "MissingMapEntryPath",
    "ObjectPath", "RootPath", "UnknownAttributeAccessPath",
]


@dataclass(frozen=True, repr=False)
class ObjectPath:
    """A path: its last step, and the path before it, `parent`."""

    parent: ObjectPath | None

    @staticmethod
    def root(root_name: str | None = None) -> RootPath:
        """Return the path of the value itself, which texts call `root_name`."""
        return RootPath(None, root_name)

    def attr(self, attr_key: str | None) -> ObjectPath:
        """Return the path of an attribute; None for an attribute of unknown name."""
        return UnknownAttributeAccessPath(self) if attr_key is None else AttributeAccessPath(self, attr_key)

    def array_index(self, index: int) -> ArrayIndexPath:
        """Return the path of an element."""
        return ArrayIndexPath(self, int(index))

    def missing_array_element(self, index: int) -> MissingArrayElementPath:
        """Return the path of an element that another array has."""
        return MissingArrayElementPath(self, int(index))

    def map_value(self, key: Any) -> MapValuePath:
        """Return the path of the value of a key."""
        return MapValuePath(self, key)

    def missing_map_entry(self) -> MissingMapEntryPath:
        """Return the path of an entry that another map has."""
        return MissingMapEntryPath(self)

    def __len__(self) -> int:
        return 1 if self.parent is None else 1 + len(self.parent)

    def get_prefix(self, length: int) -> ObjectPath:
        """Return the first `length` steps, the root included. Raises `IndexError`."""
        if length < 1:
            raise IndexError(f"Prefix length must be at least 1, not {length}")
        if length > len(self):
            raise IndexError(f"Attempted to get a prefix longer than the path itself: {length} of {len(self)} steps")
        found: ObjectPath = self
        while len(found) > length:
            assert found.parent is not None
            found = found.parent
        return found

    def is_prefix_of(self, other: ObjectPath) -> bool:
        """Return whether another path begins with this one."""
        return len(self) <= len(other) and other.get_prefix(len(self)) == self

    def last_step(self) -> str:
        """Return the text of the last step."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.parent or ''}{self.last_step()}"

    __repr__ = __str__

    def __bool__(self) -> bool:
        return True

    def same_as(self, other: Self) -> bool:
        """Return whether both are the same object."""
        return self is other


@dataclass(frozen=True, repr=False)
class RootPath(ObjectPath):
    """The path of the value itself."""

    name: str | None = None

    def last_step(self) -> str:
        return self.name or "<root>"


@dataclass(frozen=True, repr=False)
class AttributeAccessPath(ObjectPath):
    """An attribute of a node."""

    attr_key: str

    def last_step(self) -> str:
        return f".{self.attr_key}"


@dataclass(frozen=True, repr=False)
class UnknownAttributeAccessPath(ObjectPath):
    """An attribute of unknown name."""

    def last_step(self) -> str:
        return ".<unknown attribute>"


@dataclass(frozen=True, repr=False)
class ArrayIndexPath(ObjectPath):
    """An element of an array."""

    index: int

    def last_step(self) -> str:
        return f"[{self.index}]"


@dataclass(frozen=True, repr=False)
class MissingArrayElementPath(ObjectPath):
    """An element that an array does not have."""

    index: int

    def last_step(self) -> str:
        return f"[<missing element #{self.index}>]"


@dataclass(frozen=True, repr=False)
class MapValuePath(ObjectPath):
    """The value of a key."""

    key: Any

    def last_step(self) -> str:
        return f'["{self.key}"]' if isinstance(self.key, str) else f"[{self.key}]"


@dataclass(frozen=True, repr=False)
class MissingMapEntryPath(ObjectPath):
    """An entry that a map does not have."""

    def last_step(self) -> str:
        return "[<missing entry>]"
