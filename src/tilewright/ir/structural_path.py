"""The place of the first difference of two programs or containers, as a path for each side.

    get_first_structural_mismatch(convert([1, 2]), convert([1, 3]))     (<root>[1].value, <root>[1].value)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tilewright.base.object_path import ObjectPath
from tilewright.ir.container import Map
from tilewright.ir.structural import Comparison, Step


class _Absent:
    """Placeholder for an element or entry that only the other side has."""


_ABSENT: Final = _Absent()


_TVM_NAMES: Final = {"stmts": "seq"}
"""Fields of nodes that TVM calls otherwise."""


class _PathComparison(Comparison):
    """A comparison that also goes into containers of different lengths."""

    def _below(self, a: Any, b: Any, path: Step | None) -> list[tuple[Any, Any, Step | None]] | None:
        if isinstance(a, Map) and isinstance(b, Map):
            a, b = dict(a), dict(b)
        if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
            pairs = [(k, _at(a, k), _at(b, k)) for k in range(max(len(a), len(b)))]
            return [(x, y, Step(path, f"[{k}]", a, b)) for k, x, y in pairs]
        if isinstance(a, dict) and isinstance(b, dict):
            keys = sorted({**a, **b}, key=str)
            return [(a.get(k, _ABSENT), b.get(k, _ABSENT), Step(path, f"[{k!r}]", a, b)) for k in keys]
        return super()._below(a, b, path)


def get_first_structural_mismatch(
    lhs: Any, rhs: Any, map_free_vars: bool = False
) -> tuple[ObjectPath, ObjectPath] | None:
    """Return the paths of the first difference on both sides, or None."""
    found = _PathComparison(map_free_vars).difference(lhs, rhs)
    if found is None:
        return None
    step, left, right = found
    return _path(step, "left", left is _ABSENT), _path(step, "right", right is _ABSENT)


def _at(values: Sequence[Any], k: int) -> Any:
    return values[k] if k < len(values) else _ABSENT


def _path(step: Step | None, side: str, is_absent: bool) -> ObjectPath:
    steps: list[Step] = []
    while step is not None:
        steps.append(step)
        step = step.before
    path: ObjectPath = ObjectPath.root()
    for n, s in enumerate(reversed(steps)):
        whole, is_last = getattr(s, side), n == len(steps) - 1
        if isinstance(whole, Mapping):
            key = next((k for k in whole if s.label == f"[{k!r}]"), None)
            path = path.missing_map_entry() if is_last and is_absent else path.map_value(key)
        elif isinstance(whole, (tuple, list)):
            place = int(s.label[1:-1])
            path = path.missing_array_element(place) if is_last and is_absent else path.array_index(place)
        else:
            label = s.label.rpartition(".")[2]
            path = path.attr(_TVM_NAMES.get(label, label))
    return path
