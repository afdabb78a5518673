"""Operators of strings with native kernels, which look up and count words in the bytes of the inputs
(`topi/classic/texts.py`).

Frontends create the operators of `text.py` and `dictionaries.py`; the pass `NativeTexts` replaces them by these.
"""

from __future__ import annotations

import itertools

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.string_tensors import FORMS, text_bytes
from tilewright.base.types import FLOAT32, INT64, DataType, TensorType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi.classic import texts as topi

_TABLE = ("int32", "uint64", "int32", "uint8", "int32")


def _checked(case: str, data: Type, letters: Type, *table: Type) -> TensorType:
    t, letter, *columns = tensors(data, letters, *table)
    if case not in FORMS:
        raise ShapeError(f"case is {case!r}; it must be one of {', '.join(FORMS)}")
    if t.dtype != DataType("string"):
        raise ShapeError(f"a tensor of strings was expected, and this one is {t.dtype}")
    if letter.dtype != "uint8" or letter.shape != (256,) or tuple(map(str, (c.dtype for c in columns))) != _TABLE:
        raise ShapeError(f"a table of character classes and a table of words were expected, but got {letter!r}, "
                         f"{', '.join(map(repr, columns))}")
    return t


def _words(begins: Array, spelled: Array, numbers: Array) -> dict[bytes, int]:
    whole = spelled.tobytes()
    return {whole[a:b]: int(n) for a, b, n in zip(begins[:-1], begins[1:], numbers, strict=True)}


@op("text_index", kind=Fusion.OPAQUE)
class TextIndex(Op):
    """The number that a table assigns to each string of `data`, after its case is changed; `absent` for a missing
    string.

    `heads`, `hashes`, `begins`, `spelled` and `numbers` are the table (`topi.classic.texts.word_table`); `letters`
    (256,) maps each byte before the comparison.
    """

    objects = True
    reads_texts = True
    absent: int
    """Result for a string that is not in the table."""
    case: str = "NONE"
    """Case of the strings before they are looked up: "NONE", "LOWER" or "UPPER"."""

    def infer(self, data: Type, letters: Type, heads: Type, hashes: Type, begins: Type, spelled: Type,
              numbers: Type) -> TensorType:
        """The shape of the strings; int64."""
        return TensorType(_checked(self.case, data, letters, heads, hashes, begins, spelled, numbers).shape, INT64)

    def reference(self, data: Array, letters: Array, heads: Array, hashes: Array, begins: Array, spelled: Array,
                  numbers: Array) -> Array:
        words, change = _words(begins, spelled, numbers), FORMS[self.case]
        found = [words.get(letters[np.frombuffer(text_bytes(change(s)), np.uint8)].tobytes(), self.absent)
                 for s in data.flat]
        return np.array(found, np.int64).reshape(data.shape)

    def compute(
        self, data: te.Tensor, letters: te.Tensor, heads: te.Tensor, hashes: te.Tensor, begins: te.Tensor,
        spelled: te.Tensor, numbers: te.Tensor,
    ) -> te.Tensor:
        return topi.index_texts(data, letters, (heads, hashes, begins, spelled, numbers), self.case, self.absent)


@op("text_count", kind=Fusion.OPAQUE)
class TextCount(Op):
    """The number of occurrences of the words of each column in each string of `data`: float32 (*shape, width).

    Words are the runs of bytes for which `letters` is not 0. Words shorter than `shortest` and words that are not in
    the table are not counted. The table is that of `text_index`.
    """

    objects = True
    reads_texts = True
    width: int
    """Number of columns of the result."""
    case: str = "NONE"
    """Case of the words before they are looked up: "NONE", "LOWER" or "UPPER"."""
    shortest: int = 1
    """Smallest length of a counted word, in characters."""

    def infer(self, data: Type, letters: Type, heads: Type, hashes: Type, begins: Type, spelled: Type,
              numbers: Type) -> TensorType:
        """(*shape of the strings, width); float32."""
        t = _checked(self.case, data, letters, heads, hashes, begins, spelled, numbers)
        return TensorType((*t.shape, self.width), FLOAT32)

    def reference(self, data: Array, letters: Array, heads: Array, hashes: Array, begins: Array, spelled: Array,
                  numbers: Array) -> Array:
        words, change = _words(begins, spelled, numbers), FORMS[self.case]
        counts = np.zeros((data.size, self.width), np.float32)
        for row, text in enumerate(data.flat):
            seen = letters[np.frombuffer(text_bytes(change(text)), np.uint8)].tobytes()
            for word in seen.split(b"\0"):
                characters = sum(byte & 0xC0 != 0x80 for byte in word)
                if word in words and characters >= self.shortest:
                    counts[row, words[word]] += 1
        return counts.reshape(*data.shape, self.width)

    def compute(
        self, data: te.Tensor, letters: te.Tensor, heads: te.Tensor, hashes: te.Tensor, begins: te.Tensor,
        spelled: te.Tensor, numbers: te.Tensor,
    ) -> te.Tensor:
        return topi.count_words(data, letters, (heads, hashes, begins, spelled, numbers), self.case, self.shortest,
                                self.width)


@op("text_count_grams", kind=Fusion.OPAQUE)
class TextCountGrams(TextCount):
    """`text_count` of n-grams of `least` to `most` words, with the same number of up to `skips` words skipped between
    all neighbours.

    `heads`, `keys`, `children` and `columns` of the tree map the numbers of the words of an n-gram to its column
    (`topi.classic.texts.gram_tree`).
    """

    least: int = 1
    """Smallest number of words of an n-gram, 1 or more."""
    most: int = 2
    """Largest number of words of an n-gram."""
    skips: int = 0
    """Largest number of words skipped between two words of an n-gram."""

    def infer(self, data: Type, letters: Type, *tables: Type) -> TensorType:
        """(*shape of the strings, width); float32."""
        found = tuple(str(t.dtype) for t in tensors(*tables[5:]))
        if found != ("int32", "int64", "int32", "int32") or not 1 <= self.least <= self.most:
            raise ShapeError(f"a tree of n-grams, and lengths of 1 or more, were expected, but got {', '.join(found)}, "
                             f"{self.least} to {self.most}")
        return super().infer(data, letters, *tables[:5])

    def reference(self, data: Array, letters: Array, *tables: Array) -> Array:
        _, _, begins, spelled, numbers, _, keys, children, columns = tables
        words, change = _words(begins, spelled, numbers), FORMS[self.case]
        child = dict(zip(keys.tolist(), children.tolist(), strict=True))
        counts = np.zeros((data.size, self.width), np.float32)
        for row, text in enumerate(data.flat):
            seen = letters[np.frombuffer(text_bytes(change(text)), np.uint8)].tobytes().split(b"\0")
            items = [words.get(w, -1) for w in seen if sum(byte & 0xC0 != 0x80 for byte in w) >= self.shortest]
            for last, step in itertools.product(range(len(items)), range(1, self.skips + 2)):
                node = 0
                for length, at in enumerate(range(last, -1, -step), 1):
                    node = (child.get(node * len(numbers) + items[at], 0) if items[at] >= 0 and length <= self.most
                            else 0)
                    if not node:
                        break
                    if length >= self.least and columns[node] >= 0 and (length > 1 or step == 1):
                        counts[row, columns[node]] += 1
        return counts.reshape(*data.shape, self.width)

    def compute(self, data: te.Tensor, letters: te.Tensor, *tables: te.Tensor) -> te.Tensor:
        lengths = range(self.least, self.most + 1)
        return topi.count_grams(data, letters, tables[:5], tables[5:], self.case, self.shortest, lengths, self.skips,
                                self.width)
