"""Sequences and optionals in a graph, and in the outputs of a program.

A sequence is a tuple of its tensors; an optional is its content, or `NOTHING`. A program returns only tensors. So a
function with list outputs has the attribute `output_lists`, which gives the number of results of each output:

    @main(…) { (%a, %b, %c) }, output_tensor_names=("x", "s.0", "s.1"), output_lists=("tensor", 2)  ->  x, [s.0, s.1]

An output whose length is unknown before the run is one result until then; its entry in the list is `OPEN`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.types import TupleType
from tilewright.relay.expr import Expr, Function, Tuple, TupleGetItem, Var

NOTHING: Final = Tuple(())
"""Placeholder of an absent value: an empty optional, or an output that is not requested."""
TENSOR: Final = "tensor"
OPEN: Final = "open"

Lists = tuple[int | str | None, ...]
"""Per output: the length of its list, `TENSOR`, None if it is absent, or `OPEN` if its length is not known yet."""


def opened(x: Expr) -> Expr:
    """Return a sequence as a tuple of its tensors; a tensor unchanged."""
    kind = x.known_type()
    if isinstance(x, Tuple) or not isinstance(kind, TupleType):
        return x
    return Tuple(tuple(TupleGetItem(x, k) for k in range(len(kind.fields))))


def with_outputs(params: Sequence[Var], names: Sequence[str], outputs: Sequence[Expr],
                 tensors: Sequence[bool]) -> Function:
    """Return a function of these outputs. `tensors` marks the outputs that are tensors, regardless of their types."""
    flat: list[str] = []
    found: list[Expr] = []
    lists: list[int | str | None] = []
    for name, x, is_tensor in zip(names, map(opened, outputs), tensors, strict=True):
        if isinstance(x, Tuple):
            flat += [f"{name}.{k}" for k in range(len(x.fields))]
            found += x.fields
            lists.append(None if x is NOTHING else len(x.fields))
        else:
            flat.append(name)
            found.append(x)
            lists.append(TENSOR if is_tensor or x.known_type() is not None else OPEN)
    body = found[0] if len(found) == 1 else Tuple(tuple(found))
    attrs = {"output_tensor_names": tuple(flat)} | ({} if all(n == TENSOR for n in lists)
        else {"output_lists": tuple(lists)})
    return Function(params, body, attrs=attrs)


def with_known_outputs(function: Function) -> Function:
    """Split the outputs of `function` into lists where their lengths have become known."""
    lists: Lists = function.attrs.get("output_lists", ())
    if OPEN not in lists:
        return function
    names = list(function.attrs["output_tensor_names"])
    found = list(function.body.fields) if isinstance(function.body, Tuple) and len(names) != 1 else [function.body]
    outputs: list[Expr] = []
    whole: list[str] = []
    for n in lists:
        count = n if isinstance(n, int) else 0 if n is None else 1
        outputs.append(NOTHING if n is None else Tuple(tuple(found[:count])) if isinstance(n, int) else found[0])
        whole.append(names[0].removesuffix(".0") if isinstance(n, int) and n else names[0] if n in (TENSOR, OPEN)
                     else "")
        del found[:count], names[:count]
    made = with_outputs(function.params, whole, outputs, [n == TENSOR for n in lists])
    return Function(made.params, made.body, None, function.type_params,
                    {**function.attrs, "output_lists": (), **made.attrs}, function.span)
