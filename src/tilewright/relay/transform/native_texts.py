"""Compile look-ups and counts of the strings of a program's inputs to kernels.

    string_index(reshape(%x, (4,)), keys)
      -> reshape(text_index(%x, letters, table), (4,))      for a parameter %x
    string_index(string_normalize(%x, "LOWER"), keys)    -> text_index(%x, letters, table, "LOWER")
    string_index(take(%x, 1, axis=1), keys)              -> take(text_index(%x, letters, table), 1, axis=1)
    tokens_tfidf(%x, pool, "[a-z]+", …)
      -> multiply(text_count(%x, letters, table), weights)  or text_count_grams
    equal(expand_dims(%x), names)
      -> equal(expand_dims(text_index(%x, …)), the numbers of the names)

Only strings from the program's inputs are available as bytes (`topi/classic/texts.py`). Operators that create strings,
and the readers of their results, run in Python.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np

from tilewright.base.types import DataType, TensorType
from tilewright.ir.module import IRModule
from tilewright.ir.transform import FunctionPass, PassContext
from tilewright.relay.expr import Call, Constant, Expr, Function, Var
from tilewright.relay.op.broadcast import Equal, Greater, Multiply, NotEqual, Where
from tilewright.relay.op.classic.dictionaries import StringIndex
from tilewright.relay.op.classic.native_texts import TextCount, TextCountGrams, TextIndex
from tilewright.relay.op.classic.text import StringNormalize, TokensTfIdf
from tilewright.relay.op.indexing import Take
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.permutations import reshaped
from tilewright.relay.visitor import rewrite
from tilewright.topi.classic.texts import gram_tree, letters_of, word_table

Array = np.ndarray[Any, Any]
STRING: Final = DataType("string")
_MOST_WALKED: Final = 32
"""Largest number of n-gram steps unrolled in a kernel: words times the possible numbers of skipped words."""


@dataclass(frozen=True)
class NativeTexts(FunctionPass):
    """Replace string look-ups and token counts of inputs by `text_index` and `text_count`. Needs known types.
    Idempotent.
    """

    kind: ClassVar[type] = Function
    opt_level: ClassVar[int] = 1

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        given = {p for p in function.params if isinstance(p.known_type(), TensorType)
                 and p.known_type().dtype is STRING}
        return rewrite(function, lambda e: _native(e, given)) if given else function


def _native(e: Expr, given: set[Var]) -> Expr | None:
    if isinstance(e, Call) and isinstance(e.op, TokensTfIdf):
        found = _source(e.args[0])
        return _counted(e.op, found, e) if found.texts in given else None
    if not isinstance(e, Call) or len(e.args) != 2 or not isinstance(e.op, (StringIndex, Equal, NotEqual)):
        return None
    for texts, words in (e.args, e.args[::-1]):
        if isinstance(words, Constant) and words.value.dtype == object and (found := _source(texts)).texts in given:
            if isinstance(e.op, StringIndex):
                return _indexed(found, words.value, e) if texts is e.args[0] else None
            numbers = {w: k for k, w in enumerate(dict.fromkeys(words.value.flat))}
            places = np.array([numbers[w] for w in words.value.flat], np.int64).reshape(words.value.shape)
            return Call(e.op, [_indexed(found, np.array(list(numbers), object), e), Constant(places, words.span)],
                        span=e.span)
    return None


@dataclass(frozen=True)
class _Source:
    """The origin of strings: `texts`, after a change of `case` and the calls in `moves`, last call first."""

    texts: Expr
    case: str
    moves: tuple[Call, ...]

    def moved(self, made: Expr) -> Expr:
        """Apply the moves of `texts` to a value computed from them elementwise."""
        tail = made.tensor_type.shape[self.texts.tensor_type.ndim :]
        for move in reversed(self.moves):
            if move.op.view:
                made = reshaped(made, (*move.tensor_type.shape, *tail))
            else:
                made = Call(Take(move.op.axis % move.args[0].tensor_type.ndim, mode=move.op.mode),
                            [made, *move.args[1:]], span=move.span)
        return made


def _source(e: Expr) -> _Source:
    moves, case = [], "NONE"
    while isinstance(e, Call) and isinstance(e.op, Op):
        if e.op.view or (isinstance(e.op, Take) and e.op.axis is not None and not e.op.batch_dims):
            moves.append(e)
        elif (isinstance(e.op, StringNormalize) and case == "NONE" and not e.op.stopwords
                and e.args[0].tensor_type.shape == e.tensor_type.shape):
            case = e.op.case_change_action
        else:
            break
        e = e.args[0]
    return _Source(e, case, tuple(moves))


def _indexed(source: _Source, words: Any, e: Call) -> Expr:
    tables = (letters_of(source.case, lambda c: True, beyond=True),
              *word_table({w: k for k, w in enumerate(words.tolist())}))
    return source.moved(Call(TextIndex(len(words), source.case), [source.texts, *map(Constant, tables)], span=e.span))


def _counted(op: TokensTfIdf, source: _Source, e: Call) -> Expr | None:
    """Replace a weighted count of n-grams of words, where words are runs of given characters; None if not possible."""
    if source.case != "NONE" != op.case_change_action:
        return None
    if source.case != "NONE":
        op = replace(op, case_change_action=source.case)
    letters, (columns, weights) = op.letters(), op.columns
    width, case, lengths = len(weights), op.case_change_action, range(op.min_gram_length, op.max_gram_length + 1)
    words, tree = columns, list[Array]()
    count: Op = TextCount(width, case, op.fewest)
    if not op.is_single:
        grams = {g: c for g, c in columns.items() if len(g) in lengths}
        words = {w: k for k, w in enumerate(dict.fromkeys(w for g in grams for w in g))}
        tree += gram_tree({tuple(words[w] for w in g): c for g, c in grams.items()}, len(words))
        count = TextCountGrams(width, case, op.fewest, lengths[0], lengths[-1], op.max_skip_count)
    if letters is None or op.pad in words or op.max_gram_length * (op.max_skip_count + 1) > _MOST_WALKED:
        return None
    counts = (
        source.moved(Call(count, [source.texts, *map(Constant, (letters, *word_table(words), *tree))], span=e.span)))
    if op.mode == "IDF":
        zero = Constant(np.zeros((), np.float32))
        return Call(Where(), [Call(Greater(), [counts, zero], span=e.span), Constant(weights), zero], span=e.span)
    return counts if op.mode == "TF" or (weights == 1).all() else Call(Multiply(), [counts, Constant(weights)],
        span=e.span)
