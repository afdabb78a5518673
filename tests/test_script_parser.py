"""`tvm.script.parser`: sources, expressions of syntax trees, and the types of `T` outside of functions."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from tilewright import tir
from tilewright.base.types import PointerType, PrimType
from tilewright.scalar.expr import Var
from tilewright.tir.script import parser
from tilewright.tir.script import tir as T
from tilewright.tir.script.parser.core import doc_core
from tilewright.tir.script.parser.core.diagnostics import Source
from tilewright.tir.script.parser.core.evaluator import ExprEvaluator


def test_the_source_of_a_function() -> None:
    def inner(x: int) -> int:
        return x + 1

    source = Source(inner)
    assert source.source_name == __file__
    assert source.full_source == Path(__file__).read_text(encoding="utf-8")
    assert source.source == inspect.getsource(inner)
    assert source.full_source.splitlines()[source.start_line - 1] == "    def inner(x: int) -> int:"
    assert source.start_column == 4
    (function,) = source.as_ast().body
    assert isinstance(function, doc_core.FunctionDef)
    assert function.name == "inner"


def test_the_source_of_a_text() -> None:
    source = Source("x = 1")
    assert (source.source_name, source.start_line, source.source, source.full_source) == ("<str>", 1, "x = 1", "x = 1")
    with pytest.raises(SyntaxError):
        Source("x =").as_ast()


def test_expressions_are_computed_with_the_given_values() -> None:
    def value(text: str, **names: object) -> object:
        return ExprEvaluator.eval(None, names, ast.parse(text, mode="eval").body)

    assert value("a[1:] + [n / 2]", a=[1, 2], n=3) == [2, 1.5]
    with pytest.raises(NameError):
        value("open('x')")


def test_types_outside_of_functions() -> None:
    buffer = T.Buffer((16, 4), T.int8, scope="local")
    assert isinstance(buffer, tir.Buffer)
    assert (buffer.shape, buffer.dtype, buffer.scope) == ((16, 4), "int8", "local")
    address = T.handle("float32", "shared")
    assert isinstance(address, Var)
    assert address.dtype == "handle"
    assert address.type_annotation == PointerType(PrimType("float32"), "shared")
    assert address.type_annotation != PointerType(PrimType("float32"))
    assert len({address.type_annotation, PointerType(PrimType("float32"), "shared")}) == 1
    assert repr(address.type_annotation) == 'T.handle("float32", "shared")'
    assert repr(PointerType(PrimType("int8"))) == 'T.handle("int8")'
    assert T.handle().type_annotation == PrimType("handle")
    assert Var("x", PrimType("int8")).dtype == "int8"


def test_names_of_the_parser() -> None:
    assert parser.tir is T
    func = parser.parse("def f():\n    pass")
    assert isinstance(func, tir.PrimFunc)
    assert func.__name__ == "f"
