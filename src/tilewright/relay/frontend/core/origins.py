"""Origins: each call carries the node of the model that it was created for, and each error names the node."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from tilewright.base.errors import CompileError, ModelError, Origin
from tilewright.relay.expr import Call, Expr, Function, If, Let, Tuple, TupleGetItem
from tilewright.relay.visitor import operands

SENSELESS: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError)
"""Errors that a converter, or numpy below it, raises for an invalid node, such as one with absurd sizes."""


def locate(result: Expr, origin: Origin) -> None:
    """Set the span of all calls reached from `result` that have no span yet."""
    stack = [result]
    seen: set[Expr] = set()
    while stack:
        e = stack.pop()
        if isinstance(e, Call):
            if e.span is None:
                e.span = origin
                stack.extend(e.args)
                if isinstance(e.op, Let):
                    stack.append(e.op)
        elif isinstance(e, (Tuple, TupleGetItem, If, Let, Function)) and e not in seen:
            seen.add(e)
            stack.extend(operands(e))


def shortly(error: BaseException) -> str:
    """The type of a foreign error, and the beginning of its text."""
    return f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")


@contextlib.contextmanager
def naming(origin: Origin, explain: Callable[[Exception], str],
           hint: Callable[[CompileError], str] = lambda error: "") -> Iterator[None]:
    """Add `origin` to the errors raised in this context, and `hint` to the text of the compiler's own errors.

    Errors of the types `SENSELESS` become a `ModelError` with the text of `explain`; a `MemoryError` becomes one about
    sizes.
    """
    try:
        yield
    except CompileError as error:
        if error.origin is not None:
            raise
        raise type(error)(error.message + hint(error), origin, code=error.code) from error
    except MemoryError as error:
        why = "there is not enough memory for it; a size in it is wrong, or the model is too large for this machine"
        raise ModelError(why, origin, code="TW0115") from error
    except SENSELESS as error:
        raise ModelError(explain(error), origin, code="TW0109") from error


def makes_no_sense(what: str, runtime: str) -> Callable[[Exception], str]:
    """The default explanation of an error; `runtime` names the reference implementation."""

    def explain(error: Exception) -> str:
        return (f"{what} do not fit together ({shortly(error)}); if {runtime} runs the model, report this as a bug of "
                "the importer")

    return explain
