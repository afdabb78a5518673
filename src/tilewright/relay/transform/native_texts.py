"""Texts that come in as inputs are looked up where they stand, by kernels.

    string_index(reshape(%x, (4,)), keys)                -> reshape(text_index(%x, letters, table), (4,))      for a parameter %x
    string_index(take(%x, 1, axis=1), keys)              -> take(text_index(%x, letters, table), 1, axis=1)
    equal(expand_dims(%x), names)                        -> equal(expand_dims(text_index(%x, …)), the numbers of the names)

Only the texts of inputs are bytes (see `topi/texts.py`): what else makes strings runs in Python, and so does what reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Var
from tilewright.relay.op.broadcast import Equal, NotEqual
from tilewright.relay.op.indexing import Take
from tilewright.relay.op.maps import StringIndex
from tilewright.relay.op.native_texts import TextIndex
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.movement import reshaped
from tilewright.relay.visitor import rewrite
from tilewright.topi.texts import LETTERS, word_table
from tilewright.types import DataType, TensorType

STRING: Final = DataType("string")


@dataclass(frozen=True)
class NativeTexts(FunctionPass):
    """Needs known types; right when it is run twice, or not at all."""

    kind: ClassVar[type] = Function
    opt_level: ClassVar[int] = 1

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        given = {p for p in function.params if isinstance(p.known_type(), TensorType) and p.known_type().dtype is STRING}
        return rewrite(function, lambda e: _native(e, given)) if given else function


def _native(e: Expr, given: set[Var]) -> Expr | None:
    if not isinstance(e, Call) or len(e.args) != 2 or not isinstance(e.op, (StringIndex, Equal, NotEqual)):
        return None
    for texts, words in (e.args, e.args[::-1]):
        if isinstance(words, Constant) and words.value.dtype == object and _source(texts) in given:
            if isinstance(e.op, StringIndex):
                return _indexed(texts, words.value) if texts is e.args[0] else None
            numbers = {w: k for k, w in enumerate(dict.fromkeys(words.value.flat))}
            places = np.array([numbers[w] for w in words.value.flat], np.int64).reshape(words.value.shape)
            return Call(e.op, [_indexed(texts, np.array(list(numbers), object)), Constant(places, words.span)], span=e.span)
    return None


def _source(e: Expr) -> Expr:
    """What a tensor's elements are taken from."""
    while isinstance(e, Call) and isinstance(e.op, Op) and (e.op.view or isinstance(e.op, Take)):
        e = e.args[0]
    return e


def _indexed(texts: Expr, words: Any) -> Expr:
    table = word_table({w: k for k, w in enumerate(words.tolist())})
    return moved(texts, lambda x: Call(TextIndex(absent=len(words)), [x, Constant(LETTERS), *map(Constant, table)], span=texts.span))


def moved(texts: Expr, made: Callable[[Expr], Expr]) -> Expr:
    """What `made` gives for the source of `texts`, element by element, and then moved as `texts` are."""
    moves: list[Call] = []
    while isinstance(texts, Call):
        moves.append(texts)
        texts = texts.args[0]
    found = made(texts)
    for move in reversed(moves):
        found = reshaped(found, move.tensor_type.shape) if move.op.view else Call(move.op, [found, *move.args[1:]], span=move.span)
    return found
