"""Strings: concatenation, splitting, normalization, matching, and n-grams of strings or integers."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.relay.expr import Call, Constant, Expr
from tilewright.relay.frontend.core.node import NotKnownError
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import cast, fields, reshape, slice_axis
from tilewright.relay.op.classic.text import StringNormalize, StringTokenize
from tilewright.relay.op.registry import Op
from tilewright.relay.types_of import dtype_of, rank, scalar, shape_of
from tilewright.scalar.expr import UnknownDim

Array = np.ndarray[Any, Any]


@converter("StringConcat", since=20)
def string_concat(x: Expr, y: Expr) -> Expr:
    return op.string_concat(x, y)


@converter("StringSplit", since=20)
def string_split(x: Expr, *, delimiter: str = "", maxsplit: int = -1) -> tuple[Expr, ...]:
    return fields(op.string_split(x, delimiter=delimiter, maxsplit=maxsplit), 2)


@converter("StringNormalizer", since=10)
def string_normalizer(
    x: Expr, *, case_change_action: str = "NONE", is_case_sensitive: int = 0, locale: str = "",
    stopwords: tuple[str, ...] = (), node: Node,
) -> Expr:
    """Remove stop words and change case; the locale is ignored, since Unicode defines the case of letters."""
    return op.string_normalize(x, case_change_action=case_change_action, is_case_sensitive=bool(is_case_sensitive),
                               stopwords=stopwords)


@converter("RegexFullMatch", since=20)
def regex_full_match(x: Expr, *, pattern: str) -> Expr:
    return op.regex_full_match(x, pattern=pattern)


@converter("TfIdfVectorizer", since=9, takes_unknown=True)
def tfidf_vectorizer(
    x: Expr, *, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str,
    ngram_counts: tuple[int, ...], ngram_indexes: tuple[int, ...], pool_int64s: tuple[int, ...] = (),
    pool_strings: tuple[str, ...] = (), weights: tuple[float, ...] = (), node: Node,
) -> Expr:
    if bool(pool_int64s) == bool(pool_strings):
        node.refuse("neither pool_int64s nor pool_strings is given, or both are; give exactly one")
    size = len(pool_int64s or pool_strings)
    if (list(ngram_counts) != sorted(ngram_counts) or not ngram_counts
            or not 0 <= ngram_counts[0] <= ngram_counts[-1] <= size):
        node.refuse(f"ngram_counts is {ngram_counts}; the start offsets must be increasing, and within the pool of "
                    f"{size} elements")
    if not ngram_indexes or min(ngram_indexes) < 0 or max_skip_count < 0:
        node.refuse(f"ngram_indexes is {ngram_indexes} and max_skip_count {max_skip_count}; give an index for each "
                    "n-gram; neither may be negative")
    if not 1 <= min_gram_length <= max_gram_length:
        node.refuse(f"min_gram_length is {min_gram_length} and max_gram_length {max_gram_length}; the first must be "
                    "from 1 to the second")
    node.check_table(max(ngram_indexes) + 1)
    counting = {
        "pool": pool_int64s or pool_strings, "ngram_counts": ngram_counts, "ngram_indexes": ngram_indexes,
        "max_gram_length": max_gram_length,
        "max_skip_count": max_skip_count, "min_gram_length": min_gram_length, "mode": mode, "weights": weights,
    }
    if not x.tensor_type.is_static and any(isinstance(d, UnknownDim) for d in shape_of(x)):
        return _of_tokens(x, counting)
    if (pool_int64s and dtype_of(x).is_integer and len(set(ngram_indexes)) == len(ngram_indexes)
            and x.tensor_type.is_static):
        ends = (*ngram_counts[1:], len(pool_int64s))
        pool = {n: np.reshape(pool_int64s[a:b], (-1, n))
                for n, (a, b) in enumerate(zip(ngram_counts, ends, strict=True), 1)}
        counts = _counted(x, {n: grams for n, grams in pool.items() if len(grams)},
                          range(min_gram_length, max_gram_length + 1), max_skip_count)
        return _weighted(counts, ngram_indexes, weights or (1.0,) * len(ngram_indexes), mode, node)
    return op.tfidf_vectorize(x, **counting)


def _of_tokens(x: Expr, counting: Mapping[str, Any]) -> Expr:
    """Counts of tokens in rows of unknown length; raises `NotKnownError` for other items."""
    tokens, rows = x, shape_of(x)[:-1]
    while isinstance(tokens, Call) and isinstance(tokens.op, Op) and tokens.op.view:
        tokens = tokens.args[0]
    if (not (isinstance(tokens, Call) and isinstance(tokens.op, StringTokenize)) or tokens.op.mark
            or math.prod(shape_of(tokens)[:-1]) != math.prod(rows)):
        raise NotKnownError("the sizes of its input are known only at run time")
    made, (texts,) = tokens.op, tokens.args
    case = "NONE"
    if isinstance(texts, Call) and isinstance(texts.op, StringNormalize) and not texts.op.stopwords:
        case, texts = texts.op.case_change_action, texts.args[0]
    found = op.tokens_tfidf(
        texts, **counting, pad=made.pad, fewest=made.fewest, separators=made.separators, expression=made.expression,
        case_change_action=case)
    return reshape(found, (*rows, max(counting["ngram_indexes"]) + 1))


@converter("Tokenizer", domain="com.microsoft")
def tokenizer(
    x: Expr, *, mark: int = 0, mincharnum: int = 1, pad_value: str = "", separators: tuple[str, ...] = (),
    tokenexp: str = "", node: Node,
) -> Expr:
    if rank(x) not in (1, 2):
        node.refuse(f"its input must be a vector or a matrix of strings, but it has {rank(x)} dimensions")
    if separators and tokenexp:
        node.refuse("separators and tokenexp are both given; give only one")
    if mincharnum < 1 or (mincharnum > 1 and not tokenexp and not any(separators)):
        node.refuse(f"mincharnum is {mincharnum}; it must be at least 1, and exactly 1 if tokens are single characters")
    return op.string_tokenize(x, pad=pad_value, fewest=mincharnum, mark=bool(mark), separators=separators,
                              expression=tokenexp)


def _counted(x: Expr, pool: Mapping[int, Array], lengths: range, skips: int) -> Expr:
    """The count of each n-gram of the pool (a row of `pool[n]`) in each row of items."""
    *rows, items = shape_of(x)
    x = cast(x, "int64")
    found = []
    for n, grams in pool.items():
        total: Expr = op.zeros(shape=(*rows, len(grams)), dtype="float32")
        for step in range(1, 2 + (min(skips, items) if n > 1 else 0)):
            windows = items - (n - 1) * step
            if n not in lengths or windows < 1:
                continue
            same = [op.equal(op.expand_dims(slice_axis(x, rank(x) - 1, k * step, k * step + windows), axis=-1),
                             Constant(grams[:, k])) for k in range(n)]
            total = op.add(total, op.sum(cast(functools.reduce(op.logical_and, same), "float32"), axis=-2))
        found.append(total)
    return op.concatenate(tuple(found), axis=-1) if len(found) > 1 else found[0]


def _weighted(counts: Expr, indexes: Sequence[int], weights: Sequence[float], mode: str, node: Node) -> Expr:
    """Apply the weighting `mode` to n-gram counts, and place them at their indices of the result; zero elsewhere."""
    if mode not in ("TF", "IDF", "TFIDF"):
        node.refuse(f"mode is {mode!r}; it must be TF, IDF or TFIDF")
    given = Constant(np.asarray(weights, np.float32))
    if mode == "IDF":
        counts = op.where(op.greater(counts, scalar(0, counts)), given, op.zeros_like(counts))
    elif mode == "TFIDF":
        counts = op.multiply(counts, given)
    places = np.full(max(indexes) + 1, len(indexes))
    places[list(indexes)] = range(len(indexes))
    none = op.zeros(shape=(*shape_of(counts)[:-1], 1), dtype="float32")
    return op.take(op.concatenate((counts, none), axis=-1), Constant(places), axis=-1)
