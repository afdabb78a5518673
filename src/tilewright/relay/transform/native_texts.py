"""Texts that come in as inputs are looked up where they stand, by kernels.

    string_index(reshape(%x, (4,)), keys)                -> reshape(text_index(%x, letters, table), (4,))      for a parameter %x
    string_index(take(%x, 1, axis=1), keys)              -> take(text_index(%x, letters, table), 1, axis=1)
    tokens_tfidf(%x, pool, "[a-z]+", …)                  -> multiply(text_count(%x, letters, table), weights)
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
from tilewright.relay.op.broadcast import Equal, Greater, Multiply, NotEqual, Where
from tilewright.relay.op.indexing import Take
from tilewright.relay.op.maps import StringIndex
from tilewright.relay.op.native_texts import TextCount, TextIndex
from tilewright.relay.op.registry import Op
from tilewright.relay.op.text import TokensTfIdf
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
    if isinstance(e, Call) and isinstance(e.op, TokensTfIdf) and _source(e.args[0]) in given:
        return _counted(e.op, e)
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
    while isinstance(e, Call) and isinstance(e.op, Op) and (e.op.view or (isinstance(e.op, Take) and e.op.axis is not None and not e.op.batch_dims)):
        e = e.args[0]
    return e


def _indexed(texts: Expr, words: Any) -> Expr:
    table = word_table({w: k for k, w in enumerate(words.tolist())})
    return _moved(texts, lambda x: Call(TextIndex(absent=len(words)), [x, Constant(LETTERS), *map(Constant, table)], span=texts.span))


def _counted(op: TokensTfIdf, e: Call) -> Expr | None:
    """Single words counted, where they are runs of some characters, and weighted."""
    letters, (columns, weights) = op.letters(), op.columns
    if letters is None or not op.is_single or op.pad in columns:
        return None
    table = [Constant(letters), *map(Constant, word_table(columns))]
    (texts,), width = e.args, len(weights)
    counts = _moved(texts, lambda x: Call(TextCount(width=width, case=op.case_change_action, shortest=op.fewest), [x, *table], span=e.span))
    if op.mode == "IDF":
        zero = Constant(np.zeros((), np.float32))
        return Call(Where(), [Call(Greater(), [counts, zero], span=e.span), Constant(weights), zero], span=e.span)
    return counts if op.mode == "TF" or (weights == 1).all() else Call(Multiply(), [counts, Constant(weights)], span=e.span)


def _moved(texts: Expr, made: Callable[[Expr], Expr]) -> Expr:
    """What `made` gives for the source of `texts`, element by element, and then moved as `texts` are."""
    moves: list[Call] = []
    while isinstance(texts, Call):
        moves.append(texts)
        texts = texts.args[0]
    found = made(texts)
    tail = found.tensor_type.shape[texts.tensor_type.ndim :]
    for move in reversed(moves):
        if move.op.view:
            found = reshaped(found, (*move.tensor_type.shape, *tail))
        else:
            axis = move.op.axis % move.args[0].tensor_type.ndim
            found = Call(Take(axis, mode=move.op.mode), [found, *move.args[1:]], span=move.span)
    return found
