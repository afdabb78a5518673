"""Strings as bytes: lookup of words in a table, and counts of words.

A tensor of strings is one block of bytes (`tilewright.base.string_tensors.pack_texts`). It starts with six 8-byte
integers: the begin and end of the strings as given, in lower case, and in upper case. The strings follow in UTF-8, each
with a terminating zero byte. If all three begin at the same position, all strings are ASCII, and the reader changes the
case itself, byte by byte.

The table of words is a hash table: `heads[b]` to `heads[b + 1]` are the entries of bucket `b`, each with the hash, the
start of the letters, and the number of the word. The full hash and all letters are compared, so words are never
confused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from tilewright import te
from tilewright.base.string_tensors import FORMS, text_bytes
from tilewright.scalar import expr as E
from tilewright.scalar import intrinsics as I
from tilewright.scalar.expr import PrimExpr, Value
from tilewright.tir.ir_builder import BufferVar
from tilewright.topi.loops import Loops, loops

__all__ = ["count_grams", "count_words", "gram_tree", "index_texts", "letters_of", "word_table"]

Array = np.ndarray[Any, Any]
Shape = Sequence[Any]
_SEED: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_MASK: Final = (1 << 64) - 1
"""Mask of 64 bits for the FNV-1a hash (Fowler, Noll, Vo)."""


def letters_of(case: str, inside: Callable[[str], bool], beyond: bool) -> Array:
    """Return a table that maps each byte of a string to its value after a change of case; 0 for separators.

    `inside` selects the ASCII characters that belong to words; `beyond`: whether all other characters do.
    """
    changed = [FORMS[case](chr(k)) for k in range(128)]
    return np.array([0, *[ord(c) * inside(c) for c in changed[1:]], *[k * beyond for k in range(128, 256)]], np.uint8)


def word_table(words: Mapping[str, int]) -> tuple[Array, Array, Array, Array, Array]:
    """Return the table: `heads` (buckets + 1,) int32, `hashes` (words,) uint64, `begins` (words + 1,) int32, `letters`
    uint8, `numbers` (words,) int32."""
    spelled = [text_bytes(w) for w in words]
    hashes = np.array([_hash(s) for s in spelled], np.uint64)
    buckets = 1 << max(1, len(spelled)).bit_length()
    bucket = ((hashes ^ (hashes >> np.uint64(32))) & np.uint64(buckets - 1)).astype(np.int64)
    order = np.argsort(bucket, kind="stable")
    heads = np.searchsorted(bucket[order], np.arange(buckets + 1)).astype(np.int32)
    begins = np.cumsum([0, *(len(spelled[k]) for k in order)]).astype(np.int32)
    letters = np.frombuffer(b"".join(spelled[k] for k in order) or b"\0", np.uint8)
    return heads, hashes[order], begins, letters, np.fromiter(words.values(), np.int32, len(words))[order]


def _hash(word: bytes) -> int:
    found = _SEED
    for byte in word:
        found = (found ^ byte) * _PRIME & _MASK
    return found


class _Reader:
    """Reads strings, with callbacks for every word and for the end of every string."""

    def __init__(self, b: Loops, texts: BufferVar, letters: BufferVar, table: Sequence[BufferVar], case: str) -> None:
        self.b, self.texts, self.letters, self.form = b, texts, letters, list(FORMS).index(case)
        self.heads, self.hashes, self.begins, self.spelled, self.numbers = table

    def _header(self, k: int) -> PrimExpr:
        value: PrimExpr = E.const(0, "int64")
        for byte in range(8):
            value = I.bitwise_or(
                value, I.shift_left(E.cast("int64", self.texts[8 * k + byte]), E.const(8 * byte, "int64"))
            )
        return self.b.let(f"header{k}", value)

    def read(self, shortest: int, word: Callable[[PrimExpr, PrimExpr], None], end: Callable[[], None]) -> None:
        """Call `word(number, text)` for each word of at least `shortest` characters, with -1 for an unknown word, and
        `end` after each string."""
        b = self.b
        begin, behind = self._header(2 * self.form), self._header(2 * self.form + 1)
        text = b.variable("text", "int64", 0)
        hashed, length, characters = b.variable(
            "hash", "uint64", E.const(_SEED, "uint64")
        ), b.variable("length", "int64", 0), b.variable("characters", "int64", 0)
        with b.for_range(begin, behind, "at") as at:
            byte = b.let("byte", self.texts[at])
            letter = b.let("letter", self.letters[E.cast("int64", byte)])
            with b.if_scope(E.compare(E.NE, letter, E.const(0, "uint8"))):
                hashed[0] = I.bitwise_xor(hashed[0], E.cast("uint64", letter)) * E.const(_PRIME, "uint64")
                length[0] = length[0] + 1
                within = E.compare(E.EQ, I.bitwise_and(byte, E.const(0xC0, "uint8")), E.const(0x80, "uint8"))
                characters[0] = characters[0] + E.if_then_else(within, E.const(0, "int64"), E.const(1, "int64"))
            with b.else_scope():
                with b.if_scope(characters[0] >= shortest):
                    word(self._number(at, hashed[0], length[0]), text[0])
                hashed[0] = E.const(_SEED, "uint64")
                length[0] = E.const(0, "int64")
                characters[0] = E.const(0, "int64")
                with b.if_scope(E.compare(E.EQ, byte, E.const(0, "uint8"))):
                    end()
                    text[0] = text[0] + 1

    def _number(self, behind: PrimExpr, hashed: PrimExpr, length: PrimExpr) -> PrimExpr:
        """Return the number of the word that ends before `behind`."""
        b = self.b
        number = b.variable("number", "int64", -1)
        begin, count = b.let("begin", behind - length), b.let("count", length)
        key = b.let("key", hashed)
        mixed = I.bitwise_xor(key, I.shift_right(key, E.const(32, "uint64")))
        bucket = b.let(
            "bucket", E.cast("int64", I.bitwise_and(mixed, E.const(self.heads.buffer.shape[0] - 2, "uint64")))
        )
        with b.for_range(self.heads[bucket], self.heads[bucket + 1], "entry") as entry:
            first = b.let("first", E.cast("int64", self.begins[entry]))
            alike = E.logical_and(
                E.compare(E.EQ, self.hashes[entry], key),
                E.compare(E.EQ, E.cast("int64", self.begins[entry + 1]) - first, count)
            )
            with b.if_scope(alike):
                differing = b.variable("differing", "int64", 0)
                with b.for_range(0, count, "k") as k:
                    same = E.compare(
                        E.EQ, self.letters[E.cast("int64", self.texts[begin + k])], self.spelled[first + k]
                    )
                    differing[0] = differing[0] + E.if_then_else(same, E.const(0, "int64"), E.const(1, "int64"))
                with b.if_scope(E.compare(E.EQ, differing[0], E.const(0, "int64"))):
                    number[0] = E.cast("int64", self.numbers[entry])
        return b.let("word", number[0])


def index_texts(texts: te.Tensor, letters: te.Tensor, table: Sequence[te.Tensor], case: str, absent: int) -> te.Tensor:
    """Return the number of each string, in `case`, in the table, or `absent`: int64 with the strings' shape."""
    shape = texts.extents[:-1]

    def body(b: Loops, x: BufferVar, letter: BufferVar, *rest: BufferVar) -> None:
        out = rest[-1]
        with b.for_range(0, prod(shape), "k") as k:
            out[k] = E.const(absent, "int64")

        def word(number: PrimExpr, text: Value) -> None:
            with b.if_scope(number >= 0):
                out[text] = number

        _Reader(b, x, letter, rest[:-1], case).read(0, word, lambda: None)

    return loops("index_texts", [texts, letters, *table], [(shape, "int64")], body)[0]


def count_words(
    texts: te.Tensor, letters: te.Tensor, table: Sequence[te.Tensor], case: str, shortest: int, width: int
) -> te.Tensor:
    """Return the number of words of each number below `width` in each string: float32 (*shape of the strings, width).
    """
    shape = texts.extents[:-1]

    def body(b: Loops, x: BufferVar, letter: BufferVar, *rest: BufferVar) -> None:
        out = rest[-1]
        with b.for_range(0, prod(shape) * width, "k") as k:
            out[k] = E.const(0.0, "float32")

        def word(number: PrimExpr, text: Value) -> None:
            with b.if_scope(number >= 0):
                _count(b, out, E.as_expr(text) * width + number)

        _Reader(b, x, letter, rest[:-1], case).read(shortest, word, lambda: None)

    return loops("count_words", [texts, letters, *table], [((*shape, width), "float32")], body)[0]


def _count(b: Loops, out: BufferVar, at: PrimExpr) -> None:
    place = b.let("place", at)
    out[place] = out[place] + E.const(1.0, "float32")


def gram_tree(grams: Mapping[tuple[int, ...], int], words: int) -> tuple[Array, Array, Array, Array]:
    """Return a tree of n-grams of word numbers, from last to first word, with the column of each n-gram.

    The children of all nodes are in buckets by mixed `node * words + number`: `heads` (buckets + 1,) int32, `keys` and
    the nodes `children` (nodes - 1,) int64 and int32. `columns` (nodes,) int32 has the column of the n-gram that ends
    at a node, or -1.
    """
    known: dict[int, int] = {}
    columns = [-1]
    for gram, column in grams.items():
        node = 0
        for number in reversed(gram):
            node = known.setdefault(node * words + number, len(columns))
            columns += [-1] * (node == len(columns))
        columns[node] = column
    keys = np.array([*known], np.int64)
    buckets = 1 << max(1, len(keys)).bit_length()
    bucket = (((keys.astype(np.uint64) * np.uint64(_PRIME)) >> np.uint64(16)) & np.uint64(buckets - 1)).astype(np.int64)
    order = np.argsort(bucket, kind="stable")
    heads = np.searchsorted(bucket[order], np.arange(buckets + 1)).astype(np.int32)
    return heads, keys[order], np.fromiter(known.values(), np.int32, len(known))[order], np.array(columns, np.int32)


class _Grams:
    """Counts the n-grams that end at the last word of a string, with any number of skipped words."""

    def __init__(
        self, b: Loops, tree: Sequence[BufferVar], words: int, lengths: range, skips: int, out: BufferVar, width: int
    ) -> None:
        self.b, self.words, self.lengths, self.skips, self.out, self.width = b, words, lengths, skips, out, width
        self.heads, self.keys, self.children, self.columns = tree
        self.ring = (lengths[-1] - 1) * (skips + 1) + 1
        self.recent = b.allocate("int64", self.ring, "recent", "local")
        self.seen = b.variable("seen", "int64", 0)

    def word(self, number: PrimExpr, text: Value) -> None:
        """Count the n-grams that end with this word, the next one of the string."""
        b = self.b
        seen = b.let("before", self.seen[0])
        self.recent[E.floormod(seen, self.ring)] = number
        for step in range(1, self.skips + 2):
            self._walk(E.const(0, "int64"), 1, step, seen, text)
        self.seen[0] = seen + 1

    def end(self) -> None:
        """Forget all words at the end of a string."""
        self.seen[0] = E.const(0, "int64")

    def _walk(self, node: PrimExpr, length: int, step: int, seen: PrimExpr, text: Value) -> None:
        """Continue from a node of the tree with the word that completes an n-gram of `length` words."""
        b = self.b
        with b.if_scope(seen >= (length - 1) * step):
            number = b.let("number", self.recent[E.floormod(seen - (length - 1) * step, self.ring)])
            with b.if_scope(number >= 0):
                child = b.let("child", self._child(b.let("key", node * self.words + number)))
                with b.if_scope(child >= 0):
                    if length in self.lengths and (length > 1 or step == 1):
                        column = b.let("column", E.cast("int64", self.columns[child]))
                        with b.if_scope(column >= 0):
                            _count(b, self.out, E.as_expr(text) * self.width + column)
                    if length < self.lengths[-1]:
                        self._walk(child, length + 1, step, seen, text)

    def _child(self, key: PrimExpr) -> PrimExpr:
        b = self.b
        child = b.variable("found", "int64", -1)
        mixed = I.shift_right(E.cast("uint64", key) * E.const(_PRIME, "uint64"), E.const(16, "uint64"))
        bucket = b.let(
            "bucket", E.cast("int64", I.bitwise_and(mixed, E.const(self.heads.buffer.shape[0] - 2, "uint64")))
        )
        with b.for_range(
            self.heads[bucket], self.heads[bucket + 1], "entry"
        ) as entry, b.if_scope(E.compare(E.EQ, self.keys[entry], key)):
            child[0] = E.cast("int64", self.children[entry])
        return child[0]


def count_grams(
    texts: te.Tensor, letters: te.Tensor, table: Sequence[te.Tensor], tree: Sequence[te.Tensor], case: str,
    shortest: int, lengths: range, skips: int, width: int,
) -> te.Tensor:
    """Return the number of n-grams of each column in each string, of `lengths` words with up to `skips` between two:
    float32 (*shape of the strings, width)."""
    shape, words = texts.extents[:-1], table[-1].extents[0]

    def body(b: Loops, x: BufferVar, letter: BufferVar, *rest: BufferVar) -> None:
        out = rest[-1]
        with b.for_range(0, prod(shape) * width, "k") as k:
            out[k] = E.const(0.0, "float32")
        grams = _Grams(b, rest[5:-1], words, lengths, skips, out, width)
        _Reader(b, x, letter, rest[:5], case).read(shortest, grams.word, grams.end)

    return loops("count_grams", [texts, letters, *table, *tree], [((*shape, width), "float32")], body)[0]
