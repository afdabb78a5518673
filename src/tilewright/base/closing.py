"""Objects that are closed at the end of a `with` block."""

from __future__ import annotations

from typing import Self


class Closeable:
    """Base class of builders, runners, servers and connections."""

    def close(self) -> None:
        """End the object's processes and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
