"""Checks the types of a compiled program's inputs and outputs: tensors of known sizes, and tuples of them as results.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.errors import CompileError
from tilewright.base.types import FuncType, RefType, TensorType, TupleType, Type, TypeCall
from tilewright.relay.expr import Function, Var

_TAKEN = {
    TensorType: "give its dimensions sizes",
    TupleType: "give its fields as separate inputs",
    FuncType: "make it a function of the module, and call that by its name",
    RefType: "take the value as an input, and make the reference in @main",
    TypeCall: "take its tensors as inputs and build it in @main, or evaluate the program with "
    "relay.create_executor('debug')",
}
_GIVEN = {
    FuncType: "call it in @main, and return its result",
    RefType: "read it in @main, and return the value",
    TypeCall: "take the tensors out of it with a match in @main, or evaluate the program with "
    "relay.create_executor('debug')",
}


def check_entry_types(main: Function) -> None:
    """Raise `CompileError` for a parameter or a part of the result of `main` that is not a tensor. Types that are not
    known yet pass."""
    for p in main.params:
        kind = p.known_type()
        if kind is not None and not isinstance(kind, TensorType):
            raise input_error(p, kind)
    for path, t in result_types(main.ret_type):
        if not isinstance(t, TensorType):
            what = "@main returns" if not path else f"field {'.'.join(map(str, path))} of the result of @main is"
            advice = _GIVEN.get(type(t), "give it a plain type")
            raise CompileError(
                f"{what} a value of type {t!r}, but compiled programs return tensors and tuples of them; {advice}",
                main.span, code="TW0403")


def input_error(p: Var, kind: Type) -> CompileError:
    """Return the error for a parameter `p` of `main` whose type cannot be an input."""
    advice = _TAKEN.get(type(kind), "give it a plain type")
    return CompileError(
        f"input '{p.name_hint}' of @main is {kind!r}, but a compiled program takes tensors of known sizes; {advice}",
        p.span, code="TW0403")


def result_types(result: Type | None) -> Iterator[tuple[tuple[int, ...], Type]]:
    """Yield the parts of a result that are not tuples, each with its path of indices."""
    stack: list[tuple[tuple[int, ...], Type]] = [] if result is None else [((), result)]
    while stack:
        path, t = stack.pop()
        if isinstance(t, TupleType):
            stack += [((*path, k), f) for k, f in reversed(list(enumerate(t.fields)))]
        else:
            yield path, t
