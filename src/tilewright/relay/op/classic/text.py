"""Operators of strings, which run in Python between native steps.

If the size of a result depends on the data, its type has an unknown dimension.
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
from tilewright.topi.classic.texts import letters_of
from tilewright.topi.shapes import broadcast_shapes

STRING: Final = DataType("string")


def _strings(t: TensorType) -> TensorType:
    if t.dtype is not STRING:
        raise ShapeError(f"a tensor of strings was expected, and this one is {t.dtype}")
    return t


@op("string_concat", kind=Fusion.OPAQUE)
class StringConcat(Op):
    """The concatenation of the strings of two tensors (ONNX StringConcat)."""

    objects = True

    def infer(self, lhs: Type, rhs: Type) -> TensorType:
        """The broadcast shape of two tensors of strings; string."""
        a, b = map(_strings, tensors(lhs, rhs))
        return TensorType(broadcast_shapes(a.shape, b.shape), STRING)

    def reference(self, lhs: Array, rhs: Array) -> Array:
        return np.asarray(np.add(lhs, rhs), object)


@op("string_split", kind=Fusion.OPAQUE)
class StringSplit(Op):
    """The pieces of each string along a new last axis, padded with empty strings, and their numbers (ONNX StringSplit).
    """

    objects = True
    delimiter: str = ""
    """Separator of the pieces; "" means any run of white space."""
    maxsplit: int = -1
    """Largest number of splits; -1 means all."""

    def infer(self, data: Type) -> TupleType:
        """(*shape, most pieces) of strings, the last size known at run time; the counts, int64."""
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
    """The strings of a vector, or of a matrix of one row, without stop words and in another case (ONNX
    StringNormalizer).

    If all strings are stop words, the result is one empty string.
    """

    objects = True
    case_change_action: str = "NONE"
    """Case of the result: "NONE", "LOWER" or "UPPER"."""
    is_case_sensitive: bool = False
    """True compares stop words with their case."""
    stopwords: tuple[str, ...] = ()
    """Strings that are removed."""

    def infer(self, data: Type) -> TensorType:
        """The shape of the strings, the last size known at run time where stop words are removed; string."""
        t = _strings(*tensors(data))
        if not (t.ndim == 1 or (t.ndim == 2 and t.shape[0] == 1)):
            raise ShapeError(f"the strings must be a vector, or a matrix of one row, and their shape is {t.shape}")
        if self.case_change_action not in FORMS:
            raise ShapeError(f"case_change_action is {self.case_change_action!r}; it must be one of {', '.join(FORMS)}")
        keeps = not self.stopwords and isinstance(t.shape[-1], int) and t.shape[-1] > 0
        return TensorType((*t.shape[:-1], t.shape[-1] if keeps else UnknownDim()), STRING)

    def reference(self, data: Array) -> Array:
        seen = (lambda s: s) if self.is_case_sensitive else str.lower
        stopped = set(map(seen, self.stopwords))
        kept = [FORMS[self.case_change_action](s) for s in data.flat if seen(s) not in stopped] or [""]
        return of_strings(kept, (*data.shape[:-1], len(kept)))


@op("regex_full_match", kind=Fusion.OPAQUE)
class RegexFullMatch(Op):
    """Whether the regular expression `pattern` matches the whole of each string (ONNX RegexFullMatch)."""

    objects = True
    pattern: str
    """Regular expression in the syntax of Python's `re`."""

    def infer(self, data: Type) -> TensorType:
        """The shape of the strings; bool."""
        t = _strings(*tensors(data))
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ShapeError(f"the pattern {self.pattern!r} is not a regular expression: {error}") from None
        return TensorType(t.shape, BOOL)

    def reference(self, data: Array) -> Array:
        whole = re.compile(self.pattern).fullmatch
        return np.array([whole(s) is not None for s in data.flat], bool).reshape(data.shape)


_PLAIN: Final = re.compile(r"(\\[wdsWDS]|\[\^?\]?[^\[\]]*\]|[^\\\[\](){}|*+?.^$])([+*]|\{\d+(,\d*)?\})?")
"""Expressions of one repeated character class: their first match is the longest."""
_OF_BYTES: Final = re.compile(
    r"(\\[wdsWDS]|\[\^?(?:\\[wdsWDStnrfv]|\\[^\w\x80-\U0010ffff]|[^\\\[\]\x80-\U0010ffff])+\]"
    r"|[^\\\[\](){}|*+?.^$\x80-\U0010ffff])[+*]?")
"""Expressions of one character class that contains all non-ASCII characters, or none."""
_PLACED: Final = re.compile(r"\^(?<!\[\^)|\$|\\[bBAZz]|\(\?[=!<P:#a-zA-Z-]*[=!<]")
"""Parts of expressions that match a position instead of characters."""


@op("string_tokenize", kind=Fusion.OPAQUE)
class StringTokenize(Op):
    """The tokens of each string along a new last axis, padded with `pad` (Tokenizer of com.microsoft).

    Tokens are the text between the matches of `separators`, the longest matches of `expression`, or, without either,
    single characters. With `mark`, start and end tokens are added unless no string has a token.
    """

    objects = True
    pad: str
    """String that fills shorter rows."""
    fewest: int = 1
    """Smallest length of a token, in characters."""
    mark: bool = False
    """True adds a start token (U+0002) and an end token (U+0003) to each row."""
    separators: tuple[str, ...] = ()
    """Regular expressions of separators, applied in order."""
    expression: str = ""
    """Regular expression of a token; "" means that `separators` are used."""

    def infer(self, data: Type) -> TensorType:
        """(*shape, most tokens), the last size known at run time; string."""
        t = _strings(*tensors(data))
        for pattern in (*self.separators, self.expression):
            if _PLACED.search(pattern):
                raise ShapeError(f"the pattern {pattern!r} matches positions, which is not supported; write one that "
                                 "matches the characters of a token: [a-z]+")
            try:
                re.compile(pattern)
            except re.error as error:
                raise ShapeError(f"the pattern {pattern!r} is not a regular expression: {error}") from None
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
    r"""Yield the nonempty matches, each the longest at the first matching position. Classes such as `\w` are ASCII."""
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
    """The weighted number of occurrences of each n-gram of `pool` in the rows of a tensor (ONNX TfIdfVectorizer).

    An n-gram takes every item, every second, …, every (`max_skip_count` + 1)-th.
    """

    objects = True
    pool: tuple[Any, ...]
    """N-grams, the 1-grams first, then the 2-grams, and so on, flattened."""
    ngram_counts: tuple[int, ...]
    """First position in `pool` of the n-grams of each length."""
    ngram_indexes: tuple[int, ...]
    """Column of the result for each n-gram of `pool`."""
    max_gram_length: int
    """Largest length of a counted n-gram, in items."""
    max_skip_count: int
    """Largest number of items skipped between two items of an n-gram."""
    min_gram_length: int
    """Smallest length of a counted n-gram, in items."""
    mode: str
    """Value of a column: "TF" (count), "IDF" (weight if it occurs) or "TFIDF" (count times weight)."""
    weights: tuple[float, ...] = ()
    """Weight of each n-gram of `pool`; empty means 1."""

    def infer(self, data: Type) -> TensorType:
        """(rows, columns) or (columns,), columns = max(ngram_indexes) + 1; float32."""
        (t,) = tensors(data)
        if t.ndim not in (1, 2):
            raise ShapeError(f"a vector or a matrix was expected, but the shape is {t.shape}")
        if self.mode not in ("TF", "IDF", "TFIDF"):
            raise ShapeError(f"mode is {self.mode!r}; it must be TF, IDF or TFIDF")
        return TensorType((*t.shape[:-1], max(self.ngram_indexes) + 1), FLOAT32)

    def reference(self, data: Array) -> Array:
        columns, weights = self.columns
        rows, width = data.reshape(data.shape[0] if data.ndim == 2 else 1,
                                   data.shape[-1]).tolist(), max(self.ngram_indexes) + 1
        lengths = range(self.min_gram_length, self.max_gram_length + 1)
        found: list[int] = []
        for row, items in enumerate(rows):
            grams = items if self.is_single else self._occurring(items, lengths)
            found += [row * width + columns[g] for g in grams if g in columns]
        places, counts = np.unique(np.array(found, np.int64), return_counts=True)
        result = np.zeros(len(rows) * width, np.float32)
        by_mode: dict[str, Callable[[], Array]] = {
            "TF": lambda: counts, "IDF": lambda: weights[places % width],
            "TFIDF": lambda: counts * weights[places % width],
        }
        result[places] = by_mode[self.mode]()
        return result.reshape(*data.shape[:-1], width)

    @lazy_attribute
    def columns(self) -> tuple[dict[Any, int], Array]:
        """The column of each n-gram (or of each item, if only single items are counted), and the weight of each column.
        """
        columns = {gram[0] if self.is_single else gram: column
                   for gram, column in zip(self.grams(), self.ngram_indexes, strict=False) if not self.is_single
                   or len(gram) == 1}
        weights = np.ones(max(self.ngram_indexes) + 1, np.float32)
        if self.weights:
            weights[list(self.ngram_indexes)] = self.weights
        return columns, weights

    @property
    def is_single(self) -> bool:
        """Whether only single items are counted."""
        return self.min_gram_length == self.max_gram_length == 1

    def grams(self) -> Iterator[tuple[Any, ...]]:
        """Yield the n-grams of the pool in order."""
        for n, (begin, end) in enumerate(zip(self.ngram_counts, (*self.ngram_counts[1:], len(self.pool)), strict=True),
                                         1):
            yield from (tuple(self.pool[k : k + n]) for k in range(begin, end, n))

    def _occurring(self, items: Sequence[Any], lengths: range) -> Iterator[tuple[Any, ...]]:
        """Yield the n-grams of a row; single items once."""
        for step in range(1, self.max_skip_count + 2):
            for n in lengths:
                if n > 1 or step == 1:
                    last = len(items) - (n - 1) * step
                    yield from (tuple(items[k : k + n * step : step]) for k in range(last))


@op("tokens_tfidf", kind=Fusion.OPAQUE)
class TokensTfIdf(TfIdfVectorize):
    """`tfidf_vectorize` of the tokens of each string, after `string_normalize` and `string_tokenize`.

    The size of the counts is known while compiling, unlike that of the tokens.
    """

    pad: str = ""
    """String that fills shorter rows of tokens."""
    fewest: int = 1
    """Smallest length of a token, in characters."""
    separators: tuple[str, ...] = ()
    """Regular expressions of separators, applied in order."""
    expression: str = ""
    """Regular expression of a token; "" means that `separators` are used."""
    case_change_action: str = "NONE"
    """Case of the strings before they are split: "NONE", "LOWER" or "UPPER"."""

    def infer(self, data: Type) -> TensorType:
        """(*shape of the strings, columns); float32."""
        t = _strings(*tensors(data))
        if self.case_change_action not in FORMS:
            raise ShapeError(f"case_change_action is {self.case_change_action!r}; it must be one of {', '.join(FORMS)}")
        self._tokenize().infer(t)
        (_, width) = super().infer(TensorType((1, 1), STRING)).shape
        return TensorType((*t.shape, width), FLOAT32)

    def reference(self, data: Array) -> Array:
        changed = of_strings([*map(FORMS[self.case_change_action], data.flat)], (data.size,))
        return super().reference(self._tokenize().reference(changed)).reshape(*data.shape, -1)

    def _tokenize(self) -> StringTokenize:
        return StringTokenize(self.pad, self.fewest, False, self.separators, self.expression)

    def letters(self) -> Array | None:
        """The class of each byte, 0 between tokens, if tokens are runs of characters of one class; None for other
        expressions.

        All non-ASCII characters belong to one class in these expressions, and so do their bytes; a zero character must
        belong to the same class.
        """
        between = self.separators if any(self.separators) else ()
        expressions = (self.expression,) if self.expression else between
        if not expressions or not all(map(_OF_BYTES.fullmatch, expressions)) or (self.expression
                and expressions[0][-1:] not in ("+", "*")):
            return None
        kinds = [re.compile(e.rstrip("+*") if len(e) > 1 else e, re.ASCII).fullmatch for e in expressions]
        inside = [any(kind(c) is not None for kind in kinds) is bool(self.expression)
                  for c in (*map(chr, range(128)), "\x80")]
        if inside[0] is not inside[-1]:
            return None
        return letters_of(self.case_change_action, lambda c: inside[ord(c)], inside[-1])
