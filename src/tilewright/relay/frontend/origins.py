"""Where the calls of an imported graph come from: every one carries the node of the model that it was made for, and every error names it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tilewright.base.errors import CompileError, ModelError, Origin
from tilewright.relay.expr import Call, Expr, Function, If, Let, Tuple, TupleGetItem
from tilewright.relay.visitor import operands


def locate(result: Expr, origin: Origin) -> None:
    """Set the span of the calls that were made for a node: those reached from `result` that have none yet."""
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
    """The kind of an error that is none of ours, and the beginning of what it says."""
    return f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")


@contextlib.contextmanager
def naming(origin: Origin, senseless: tuple[type[Exception], ...], what: str, runtime: str) -> Iterator[None]:
    """Whatever is raised within names `origin`; an error of the kinds `senseless` says that `what` makes no sense, which `runtime` may know better."""
    try:
        yield
    except CompileError as error:
        if error.origin is not None:
            raise
        raise type(error)(error.message, origin, code=error.code) from error
    except senseless as error:
        raise ModelError(f"{what} cannot be made sense of ({shortly(error)}); where {runtime} runs the model, this is a fault of the importer", origin, code="TW0109") from error
