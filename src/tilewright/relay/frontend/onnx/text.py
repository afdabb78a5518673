"""Strings: concatenation, splitting, normalization, matching, and n-grams of strings or integers."""

from __future__ import annotations

from tilewright.relay.expr import Expr
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import fields


@converter("StringConcat", since=20)
def string_concat(x: Expr, y: Expr) -> Expr:
    return op.string_concat(x, y)


@converter("StringSplit", since=20)
def string_split(x: Expr, *, delimiter: str = "", maxsplit: int = -1) -> tuple[Expr, ...]:
    return fields(op.string_split(x, delimiter=delimiter, maxsplit=maxsplit), 2)


@converter("StringNormalizer", since=10)
def string_normalizer(
    x: Expr, *, case_change_action: str = "NONE", is_case_sensitive: int = 0, locale: str = "", stopwords: tuple[str, ...] = (), node: Node,
) -> Expr:
    """The locale does not matter to what Unicode calls upper and lower case."""
    return op.string_normalize(x, case_change_action=case_change_action, is_case_sensitive=bool(is_case_sensitive), stopwords=stopwords)


@converter("RegexFullMatch", since=20)
def regex_full_match(x: Expr, *, pattern: str) -> Expr:
    return op.regex_full_match(x, pattern=pattern)


@converter("TfIdfVectorizer", since=9)
def tfidf_vectorizer(
    x: Expr, *, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str, ngram_counts: tuple[int, ...], ngram_indexes: tuple[int, ...],
    pool_int64s: tuple[int, ...] = (), pool_strings: tuple[str, ...] = (), weights: tuple[float, ...] = (), node: Node,
) -> Expr:
    if bool(pool_int64s) == bool(pool_strings):
        node.refuse("one of the attributes pool_int64s and pool_strings must be given")
    return op.tfidf_vectorize(
        x, pool=pool_int64s or pool_strings, ngram_counts=ngram_counts, ngram_indexes=ngram_indexes, max_gram_length=max_gram_length,
        max_skip_count=max_skip_count, min_gram_length=min_gram_length, mode=mode, weights=weights)
