"""TVM's paths to parts of values, and the place of the first difference of two."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
from tilewright import tir
from tilewright.base.object_path import MissingMapEntryPath, ObjectPath, RootPath, UnknownAttributeAccessPath
from tilewright.ir import assert_structural_equal, get_first_structural_mismatch
from tilewright.ir.container import convert

ROOT = ObjectPath.root()


def test_paths_are_values() -> None:
    path = ROOT.attr("body").array_index(2).map_value("x")
    assert str(path) == '<root>.body[2]["x"]' and len(path) == 4
    assert path == ROOT.attr("body").array_index(2).map_value("x") and hash(path) == hash(path.get_prefix(4))
    assert path.get_prefix(2) == ROOT.attr("body") and path.parent == ROOT.attr("body").array_index(2)
    assert path.get_prefix(3).is_prefix_of(path) and not path.is_prefix_of(ROOT)
    assert len({ROOT.array_index(1), ROOT.missing_array_element(1)}) == 2
    assert isinstance(ROOT.attr(None), UnknownAttributeAccessPath) and isinstance(ROOT, RootPath)
    assert str(ObjectPath.root("f").attr(None).missing_map_entry()) == "f.<unknown attribute>[<missing entry>]"
    assert isinstance(ROOT.missing_map_entry(), MissingMapEntryPath)
    assert tilewright.runtime.ObjectPath is ObjectPath
    for length, message in ((0, "at least 1"), (5, "longer than the path itself")):
        with pytest.raises(IndexError, match=message):
            path.get_prefix(length)


@pytest.mark.parametrize(("a", "b", "left", "right"), [
    ([1, 2], [1, 3], "<root>[1].value", "<root>[1].value"),
    ([1], [1, 3], "<root>[<missing element #1>]", "<root>[1]"),
    ({"a": 1, "c": 2}, {"a": 1}, '<root>["c"]', "<root>[<missing entry>]"),
    ({"a": [1, 2]}, {"a": [1, 4]}, '<root>["a"][1].value', '<root>["a"][1].value'),
])
def test_the_first_difference(a: Any, b: Any, left: str, right: str) -> None:
    found = get_first_structural_mismatch(convert(a), convert(b))
    assert found is not None and [*map(str, found)] == [left, right]
    back = get_first_structural_mismatch(convert(b), convert(a))
    assert back is not None and [*map(str, back)] == [right, left]
    assert get_first_structural_mismatch(convert(a), convert(a)) is None


def test_the_type_of_a_scalar() -> None:
    prim = tilewright.ir.PrimType("int32")
    assert prim.dtype == "int32" and prim == tilewright.ir.PrimType("int32") and str(prim) == "int32"
    assert prim.span is None and len({prim, tilewright.ir.PrimType("int32")}) == 1


def test_a_difference_of_sequences_has_the_path_of_tvm() -> None:
    x = tir.Var("x")
    a, b = (tir.SeqStmt((tir.Evaluate(x), tir.Evaluate(x + k))) for k in (1, 2))
    found = get_first_structural_mismatch(a, b)
    assert found is not None
    assert str(found[0]) == "<root>.seq[1].value.b.value"
    with pytest.raises(ValueError, match="the programs differ at stmts"):
        assert_structural_equal(a, b)
