"""Operators of strings, which ONNX has and the field's relay does not. They run in Python, between what is compiled.

The result of some has a size that is in the data; its type says so with a dimension of which nothing is known.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.array_bytes import of_strings
from tilewright.base.errors import ShapeError
from tilewright.base.forks import lazy_attribute
from tilewright.base.string_tensors import FORMS
from tilewright.base.types import BOOL, FLOAT32, INT64, DataType, TensorType, TupleType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.scalar.expr import UnknownDim
from tilewright.topi.shapes import broadcast_shapes
from tilewright.topi.texts import letters_of

STRING: Final = DataType("string")


def _strings(t: TensorType) -> TensorType:
    if t.dtype is not STRING:
        raise ShapeError(f"a tensor of strings was expected, and this one is {t.dtype}")
    return t


@op("string_concat", kind=Fusion.OPAQUE)
class StringConcat(Op):
    """The strings of two tensors, which broadcast, one behind the other (ONNX StringConcat)."""

    objects = True

    def infer(self, lhs: Type, rhs: Type) -> TensorType:
        a, b = map(_strings, tensors(lhs, rhs))
        return TensorType(broadcast_shapes(a.shape, b.shape), STRING)

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return np.asarray(np.add(lhs, rhs), object)


@op("string_split", kind=Fusion.OPAQUE)
class StringSplit(Op):
    """The pieces of each string along a new last axis, filled up with empty strings, and how many there are (ONNX StringSplit).

    `delimiter` "" is any run of white space; `maxsplit` is the most cuts, -1 for all.
    """

    objects = True
    delimiter: str = ""
    maxsplit: int = -1

    def infer(self, data: Type) -> TupleType:
        t = _strings(*tensors(data))
        return TupleType((TensorType((*t.shape, UnknownDim()), STRING), TensorType(t.shape, INT64)))

    def reference(self, data: Array) -> tuple[Array, Array]:
        pieces = [s.split(self.delimiter or None, self.maxsplit) for s in data.flat]
        counts = np.array([len(p) for p in pieces], np.int64)
        most = int(counts.max(initial=0))
        rows = [s for p in pieces for s in (*p, *[""] * (most - len(p)))]
        return of_strings(rows, (*data.shape, most)), counts.reshape(data.shape)


@op("string_normalize", kind=Fusion.OPAQUE)
class StringNormalize(Op):
    """The strings of a vector, or of a matrix of one row, without those in `stopwords`, in another case (ONNX StringNormalizer).

    `case_change_action` is NONE, LOWER or UPPER. One empty string is left where all were stop words.
    """

    objects = True
    case_change_action: str = "NONE"
    is_case_sensitive: bool = False
    stopwords: tuple[str, ...] = ()

    def infer(self, data: Type) -> TensorType:
        t = _strings(*tensors(data))
        if not (t.ndim == 1 or (t.ndim == 2 and t.shape[0] == 1)):
            raise ShapeError(f"the strings must be a vector, or a matrix of one row, and their shape is {t.shape}")
        if self.case_change_action not in FORMS:
            raise ShapeError(f"case_change_action is {self.case_change_action!r}; it is one of {', '.join(FORMS)}")
        keeps = not self.stopwords and isinstance(t.shape[-1], int) and t.shape[-1] > 0
        return TensorType((*t.shape[:-1], t.shape[-1] if keeps else UnknownDim()), STRING)

    def reference(self, data: Array) -> Array:
        seen = (lambda s: s) if self.is_case_sensitive else str.lower
        stopped = set(map(seen, self.stopwords))
        kept = [FORMS[self.case_change_action](s) for s in data.flat if seen(s) not in stopped] or [""]
        return of_strings(kept, (*data.shape[:-1], len(kept)))


@op("regex_full_match", kind=Fusion.OPAQUE)
class RegexFullMatch(Op):
    """Whether all of each string is matched by the regular expression `pattern` (ONNX RegexFullMatch)."""

    objects = True
    pattern: str

    def infer(self, data: Type) -> TensorType:
        t = _strings(*tensors(data))
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ShapeError(f"the pattern {self.pattern!r} is no regular expression: {error}") from None
        return TensorType(t.shape, BOOL)

    def reference(self, data: Array) -> Array:
        whole = re.compile(self.pattern).fullmatch
        return np.array([whole(s) is not None for s in data.flat], bool).reshape(data.shape)


_PLAIN: Final = re.compile(r"(\\[wdsWDS]|\[\^?\]?[^\[\]]*\]|[^\\\[\](){}|*+?.^$])([+*]|\{\d+(,\d*)?\})?")
"""Expressions of one kind of characters, repeated: their first match is their longest."""
_OF_BYTES: Final = re.compile(r"(\\[wdsWDS]|\[\^?(?:\\[wdsWDStnrfv]|\\[^\w\x80-\U0010ffff]|[^\\\[\]\x80-\U0010ffff])+\]|[^\\\[\](){}|*+?.^$\x80-\U0010ffff])[+*]?")
"""Those of one class of characters that has all characters beyond ASCII, or none."""
_PLACED: Final = re.compile(r"\^(?<!\[\^)|\$|\\[bBAZz]|\(\?[=!<P:#a-zA-Z-]*[=!<]")
"""What says where in the string it matches, not what."""


@op("string_tokenize", kind=Fusion.OPAQUE)
class StringTokenize(Op):
    """The tokens of each string along a new last axis, filled up with `pad` (Tokenizer of com.microsoft).

    They are what lies between the matches of `separators`, one after another, or the matches of `expression`, each the longest at its
    place; single characters where neither is given. Those of fewer characters than `fewest` are left out. With `mark`, a start (U+0002) and an end
    (U+0003) stand around those of each string, unless no string has any.
    """

    objects = True
    pad: str
    fewest: int = 1
    mark: bool = False
    separators: tuple[str, ...] = ()
    expression: str = ""

    def infer(self, data: Type) -> TensorType:
        t = _strings(*tensors(data))
        for pattern in (*self.separators, self.expression):
            if _PLACED.search(pattern):
                raise ShapeError(f"the pattern {pattern!r} asks what stands around a token, which is not supported; say what a token is made of: [a-z]+")
            try:
                re.compile(pattern)
            except re.error as error:
                raise ShapeError(f"the pattern {pattern!r} is no regular expression: {error}") from None
        return TensorType((*t.shape, UnknownDim()), STRING)

    def reference(self, data: Array) -> Array:
        pieces = [[t for t in self._tokens(s) if len(t) >= self.fewest] for s in data.flat]
        most = max(map(len, pieces), default=0)
        if most and self.mark:
            pieces, most = [["\x02", *p, "\x03"] for p in pieces], most + 2
        return of_strings([s for p in pieces for s in (*p, *[self.pad] * (most - len(p)))], (*data.shape, most))

    def _tokens(self, text: str) -> list[str]:
        if self.expression and _is_plain(self.expression):
            return re.compile(self.expression, re.ASCII).findall(text)
        if self.expression:
            return [text[a:b] for a, b in _matches(self.expression, text)]
        if not any(self.separators):
            return list(text)
        found = [text]
        for separator in self.separators:
            found = [piece for one in found for piece in _between(separator, one)]
        return [piece for piece in found if piece]


@functools.lru_cache(64)
def _is_plain(expression: str) -> bool:
    return _PLAIN.fullmatch(expression) is not None


def _between(separator: str, text: str) -> Iterator[str]:
    begin = 0
    for a, b in _matches(separator, text):
        yield text[begin:a]
        begin = b
    yield text[begin:]


def _matches(expression: str, text: str) -> Iterator[tuple[int, int]]:
    """Where the matches are that are not empty, each the longest at the first place where there is one. Classes such as `\\w` are of ASCII."""
    pattern, begin = re.compile(expression, re.ASCII), 0
    while begin < len(text) and (first := pattern.search(text, begin)) is not None:
        a, b = first.span()
        if not _is_plain(expression):
            b = next((end for end in range(len(text), b, -1) if pattern.fullmatch(text, a, end)), b)
        if b > a:
            yield a, b
        begin = max(b, a + 1)


@op("tfidf_vectorize", kind=Fusion.OPAQUE)
class TfIdfVectorize(Op):
    """How often each n-gram of a pool occurs in the rows of a tensor, weighted (ONNX TfIdfVectorizer).

    `pool` has the 1-grams, then the 2-grams, …; those of n begin at `ngram_counts[n - 1]`. The k-th n-gram of all is counted at
    `ngram_indexes[k]` with the weight `weights[k]`. An n-gram of `min_gram_length` to `max_gram_length` items takes every item, every second,
    …, every (`max_skip_count` + 1)-th. `mode` is TF (the count), IDF (the weight where it occurs) or TFIDF (the product).
    """

    objects = True
    pool: tuple[Any, ...]
    ngram_counts: tuple[int, ...]
    ngram_indexes: tuple[int, ...]
    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: str
    weights: tuple[float, ...] = ()

    def infer(self, data: Type) -> TensorType:
        (t,) = tensors(data)
        if t.ndim not in (1, 2):
            raise ShapeError(f"rows of items were expected, a vector or a matrix, and the shape is {t.shape}")
        if self.mode not in ("TF", "IDF", "TFIDF"):
            raise ShapeError(f"mode is {self.mode!r}; it is TF, IDF or TFIDF")
        return TensorType((*t.shape[:-1], max(self.ngram_indexes) + 1), FLOAT32)

    def reference(self, data: Array) -> Array:
        columns, weights = self.columns
        rows, width = data.reshape(data.shape[0] if data.ndim == 2 else 1, data.shape[-1]).tolist(), max(self.ngram_indexes) + 1
        lengths = range(self.min_gram_length, self.max_gram_length + 1)
        found: list[int] = []
        for row, items in enumerate(rows):
            grams = items if self.is_single else self._occurring(items, lengths)
            found += [row * width + columns[g] for g in grams if g in columns]
        places, counts = np.unique(np.array(found, np.int64), return_counts=True)
        result = np.zeros(len(rows) * width, np.float32)
        by_mode: dict[str, Callable[[], Array]] = {
            "TF": lambda: counts, "IDF": lambda: weights[places % width], "TFIDF": lambda: counts * weights[places % width],
        }
        result[places] = by_mode[self.mode]()
        return result.reshape(*data.shape[:-1], width)

    @lazy_attribute
    def columns(self) -> tuple[dict[Any, int], Array]:
        """Where each n-gram is counted, which is an item itself where there are single ones alone, and the weight of each column."""
        columns = {gram[0] if self.is_single else gram: column for gram, column in zip(self.grams(), self.ngram_indexes, strict=False) if not self.is_single or len(gram) == 1}
        weights = np.ones(max(self.ngram_indexes) + 1, np.float32)
        if self.weights:
            weights[list(self.ngram_indexes)] = self.weights
        return columns, weights

    @property
    def is_single(self) -> bool:
        """Whether n-grams of one item alone are counted."""
        return self.min_gram_length == self.max_gram_length == 1

    def grams(self) -> Iterator[tuple[Any, ...]]:
        """The n-grams of the pool, in order."""
        for n, (begin, end) in enumerate(zip(self.ngram_counts, (*self.ngram_counts[1:], len(self.pool)), strict=True), 1):
            yield from (tuple(self.pool[k : k + n]) for k in range(begin, end, n))

    def _occurring(self, items: Sequence[Any], lengths: range) -> Iterator[tuple[Any, ...]]:
        """The n-grams of a row; single items, which have nothing to skip, once."""
        for step in range(1, self.max_skip_count + 2):
            for n in lengths:
                if n > 1 or step == 1:
                    last = len(items) - (n - 1) * step
                    yield from (tuple(items[k : k + n * step : step]) for k in range(last))


@op("tokens_tfidf", kind=Fusion.OPAQUE)
class TokensTfIdf(TfIdfVectorize):
    """`tfidf_vectorize` of the tokens of each string, its case changed before: how often they occur, weighted, in float32 of (*shape, columns).

    The attributes behind those of `tfidf_vectorize` are those of `string_normalize` and `string_tokenize`. What is only counted has a size
    that is known, which the tokens themselves have not.
    """

    pad: str = ""
    fewest: int = 1
    separators: tuple[str, ...] = ()
    expression: str = ""
    case_change_action: str = "NONE"

    def infer(self, data: Type) -> TensorType:
        t = _strings(*tensors(data))
        if self.case_change_action not in FORMS:
            raise ShapeError(f"case_change_action is {self.case_change_action!r}; it is one of {', '.join(FORMS)}")
        self._tokenize().infer(t)
        (_, width) = super().infer(TensorType((1, 1), STRING)).shape
        return TensorType((*t.shape, width), FLOAT32)

    def reference(self, data: Array) -> Array:
        changed = of_strings([*map(FORMS[self.case_change_action], data.flat)], (data.size,))
        return super().reference(self._tokenize().reference(changed)).reshape(*data.shape, -1)

    def _tokenize(self) -> StringTokenize:
        return StringTokenize(self.pad, self.fewest, False, self.separators, self.expression)

    def letters(self) -> Array | None:
        """What each byte of a text counts as where its tokens are runs of some characters: 0 between them. None for any other self.

        All characters beyond ASCII are of one kind in these expressions, and so are their bytes; a zero character must be of the same kind.
        """
        between = self.separators if any(self.separators) else ()
        expressions = (self.expression,) if self.expression else between
        if not expressions or not all(map(_OF_BYTES.fullmatch, expressions)) or (self.expression and expressions[0][-1:] not in ("+", "*")):
            return None
        kinds = [re.compile(e.rstrip("+*") if len(e) > 1 else e, re.ASCII).fullmatch for e in expressions]
        inside = [any(kind(c) is not None for kind in kinds) is bool(self.expression) for c in (*map(chr, range(128)), "\x80")]
        if inside[0] is not inside[-1]:
            return None
        return letters_of(self.case_change_action, lambda c: inside[ord(c)], inside[-1])
