"""The operator reference: every attribute and type rule is described, and the pages are those of the classes."""

from __future__ import annotations

import pytest

import operator_pages
from tilewright.relay.op.registry import OPS


@pytest.mark.parametrize("name", sorted(OPS))
def test_an_operator_is_described(name: str) -> None:
    cls = OPS[name]
    missing = [a for a in cls.attribute_names if not operator_pages.description(cls, a)]
    assert not missing, f"write a string literal below each attribute of {cls.__qualname__} or of its base: {', '.join(missing)}"  # noqa: E501
    assert cls.__doc__ and cls.__doc__ is not cls.__mro__[1].__doc__, f"{cls.__qualname__} needs a docstring"
    assert operator_pages.type_rule(cls), f"write the type of the result as the docstring of {cls.infer.__qualname__}"


def test_the_pages_are_those_of_the_classes() -> None:
    pages = operator_pages.pages()
    assert sorted(operator_pages.FOLDER.glob("*.md")) == sorted(set(pages) - {operator_pages.INDEX})
    for path, text in pages.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is stale: run python tests/operator_pages.py"
