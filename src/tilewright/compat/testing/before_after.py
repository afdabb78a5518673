"""`tvm.testing.CompareBeforeAfter`: a test of a pass, from a program before it and the expected program.

    class TestUnroll(CompareBeforeAfter):
        transform = tvm.tir.transform.UnrollLoop()

        def before(A: T.Buffer((2,), "float32")):
            for i in T.unroll(2):
                A[i] = 0.0

        def expected(A: T.Buffer((2,), "float32")):
            A[0] = 0.0
            A[1] = 0.0
"""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tilewright.ir.module import IRModule
from tilewright.ir.structural import assert_structural_equal
from tilewright.tir.parser import parse_python
from tilewright.tir.stmt import PrimFunc


class CompareBeforeAfter:
    """Base of test classes with `transform`, `before` and `expected`.

    `before` and `expected` are a program, a fixture or a method that returns one, or TVMScript: a function without
    `self`, or a class of such functions. `expected` may be an exception class. `transform` is a pass, or a method or
    fixture that returns one.
    """

    transform: Any

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in ("before", "expected"):
            if name in vars(cls):
                setattr(cls, name, _program_fixture(vars(cls)[name]))
        if "transform" in vars(cls):
            cls.transform = _transform_fixture(vars(cls)["transform"])

    @staticmethod
    def _normalize_before(func: Any) -> Any:
        """Return a fixture that gives the program before the pass; tests of other kinds use it for their programs."""
        return _program_fixture(func)

    def test_compare(self, before: Any, expected: Any, transform: Any) -> None:
        """Compare the program after the pass with the expected one, or expect an exception."""
        mod = IRModule({"main": before}) if isinstance(before, PrimFunc) else before
        if isinstance(expected, type) and issubclass(expected, Exception):
            with pytest.raises(expected):
                transform(mod)
            return
        after = transform(mod)
        if isinstance(expected, PrimFunc) and isinstance(after, IRModule):
            after = after["main"]
        assert_structural_equal(after, expected)


def _is_fixture(value: Any) -> bool:
    return hasattr(value, "_pytestfixturefunction") or type(value).__name__ == "FixtureFunctionDefinition"


def _takes_self(value: Any) -> bool:
    return next(iter(inspect.signature(value).parameters), "") == "self"


def _program_fixture(value: Any) -> Any:
    """Return a fixture that gives the program."""
    if _is_fixture(value):
        return value
    if inspect.isfunction(value) and _takes_self(value):
        return pytest.fixture(value)

    @pytest.fixture
    def program(self: Any) -> Any:
        if inspect.isfunction(value):
            return parse_python(value)
        if isinstance(value, type) and not issubclass(value, Exception):
            parts = {n: f if isinstance(f, PrimFunc) else parse_python(f) for n, f in vars(value).items()
                     if isinstance(f, PrimFunc) or inspect.isfunction(f)}
            return IRModule(parts)
        return value

    return program


def _transform_fixture(value: Any) -> Any:
    """Return a fixture that gives the pass."""
    if _is_fixture(value):
        return value
    if inspect.isfunction(value):
        return pytest.fixture(value)

    def apply(program: Any) -> Any:
        """Run the pass on a module, or on a function."""
        if isinstance(program, PrimFunc):
            return value(IRModule({"main": program}))["main"]
        return value(program)

    @pytest.fixture
    def transform(self: Any) -> Any:
        return apply

    return transform
