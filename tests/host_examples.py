"""Calls of the operators that have a meaning in Python alone, with what they give, written out: these run between the
kernels of a program.

They work on strings and dictionaries, on complex numbers, on the bytes of files, or give as many elements as the values
say; all others are in `op_examples.py`.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from op_examples import Array, Example, scalar
from tilewright.relay.op.classic.dictionaries import CastMap, DictVectorize, StringIndex, ZipMap
from tilewright.relay.op.classic.native_texts import TextCount, TextCountGrams, TextIndex
from tilewright.relay.op.classic.text import (
    RegexFullMatch,
    StringConcat,
    StringNormalize,
    StringSplit,
    StringTokenize,
    TfIdfVectorize,
    TokensTfIdf,
)
from tilewright.relay.op.complex_numbers import ComplexOfParts, ComplexParts
from tilewright.relay.op.data_dependent import SparseFillEmptyRows
from tilewright.relay.op.image_decoding import DecodeImage
from tilewright.relay.op.linalg import Eig, LDLFactor, LDLSolve
from tilewright.relay.op.selection import ArgWhere, UniqueSlices
from tilewright.topi.classic.texts import gram_tree, letters_of, word_table


@dataclass(frozen=True)
class HostExample(Example):
    """An operator, what it is called with, and what it gives: an array, or a tuple of them."""

    wanted: Any


def objects(*values: Any) -> Array:
    """A row of Python objects."""
    row = np.empty(len(values), object)
    row[:] = values
    return row


def scalar_object(value: Any) -> Array:
    """One Python object."""
    return objects(value).reshape(())


def int64(*values: Any) -> Array:
    return np.asarray(values, np.int64)


def float32(*values: Any) -> Array:
    return np.asarray(values, np.float32)


def _file(pixels: Array, form: str = "PNG") -> Array:
    """The bytes of an image file."""
    raw = io.BytesIO()
    Image.fromarray(pixels).save(raw, form)
    return np.frombuffer(raw.getvalue(), np.uint8)


def _texts() -> list[HostExample]:
    words = objects("ab", "", "é", "c,d,e").reshape(2, 2)
    found = [HostExample(StringConcat(), (words, objects("!", "?")), objects("ab!", "?", "é!", "c,d,e?").reshape(2, 2))]
    found.append(HostExample(StringConcat(), (scalar_object("a"), scalar_object("b")), scalar_object("ab")))
    found.append(
        HostExample(
            StringSplit(","), (objects("a,b,c", "", "d"),),
            (objects("a", "b", "c", "", "", "", "d", "", "").reshape(3, 3), int64(3, 1, 1))
        )
    )
    found.append(
        HostExample(
            StringSplit(maxsplit=1), (objects(" a b  c", ""),),
            (objects("a", "b  c", "", "").reshape(2, 2), int64(2, 0))
        )
    )
    found.append(HostExample(StringTokenize("#", 2, True, (" ", ",")), (objects("one,two a", "three", ""),), objects(
        "\x02", "one", "two", "\x03", "\x02", "three", "\x03", "#", "\x02", "\x03", "#", "#").reshape(3, 4)))
    found.append(
        HostExample(
            StringTokenize("#", expression="[a-z]+"), (objects("ab1c", "-"),),
            objects("ab", "c", "#", "#").reshape(2, 2)
        )
    )
    found.append(HostExample(StringTokenize(""), (objects("né", "a"),), objects("n", "é", "a", "").reshape(2, 2)))
    days = objects("Monday", "tuesday", "monday")
    found.append(HostExample(StringNormalize("UPPER", True, ("monday",)), (days,), objects("MONDAY", "TUESDAY")))
    found.append(
        HostExample(
            StringNormalize("LOWER", False, ("MONDAY",)), (days.reshape(1, 3),), objects("tuesday").reshape(1, 1)
        )
    )
    found.append(HostExample(StringNormalize(stopwords=("a",)), (objects("a"),), objects("")))
    found.append(HostExample(StringNormalize("UPPER"), (days,), objects("MONDAY", "TUESDAY", "MONDAY")))
    found += _words()
    mail = objects("a@b.org", "a@b.org ", "b.org").reshape(3, 1)
    found.append(HostExample(RegexFullMatch(r"\w+@\w+\.(org|com)"), (mail,), np.asarray([[True], [False], [False]])))
    return found


def _words() -> list[HostExample]:
    """Words looked up and counted, with the kernels for it where texts are inputs."""
    texts, table = objects("Cat dog", "", "cat CAT", "d\0g é cat").reshape(2, 2), word_table(
        {"cat": 1, "d\0g": 0, "é": 1, "Cat dog": 2}
    )
    lower, whole = letters_of("LOWER", lambda c: c != " ", beyond=True), letters_of("NONE", lambda c: True, beyond=True)
    pool, starts, columns = ("cat", "dog", "#", "dog", "dog"), (0, 3), (2, 0, 1, 3)
    return [
        HostExample(TextIndex(absent=9), (texts, whole, *table), int64([2, 9], [9, 9])),
        HostExample(TextIndex(absent=9), (objects("é", "cat", "", "d\0g", "d"), whole, *table), int64(1, 1, 9, 0, 9)),
        HostExample(TextIndex(absent=0), (objects("a", ""), whole, *word_table({})), int64(0, 0)),
        HostExample(
            TextIndex(9, "LOWER"), (objects("É", "CAT", "K"), letters_of("LOWER", lambda c: True, beyond=True), *table),
            int64(1, 1, 9)
        ),
        HostExample(
            TextCount(width=2, case="LOWER"), (texts, lower, *table), float32([[0, 1], [0, 0]], [[0, 2], [1, 2]])
        ),
        HostExample(TextCountGrams(width=2, case="LOWER", least=2, most=2, skips=1), (
            objects("cat é cat", "Cat a a CAT cat"), lower, *table, *gram_tree({(1, 1): 0, (1, 2): 1, (2,): 0}, 4)),
            float32([3, 0], [1, 0])),
        HostExample(TextCount(width=2, shortest=2), (texts[1], lower, *table), float32([0, 2], [1, 1])),
        HostExample(TokensTfIdf(
            pool, starts, columns, 1, 0, 1, "TF", expression="[a-z]+", pad="#", case_change_action="LOWER"
        ), (
            objects("Dog,dog", "cat"),), float32([2, 0, 0, 0], [0, 1, 1, 0])),
        HostExample(TokensTfIdf(
            pool, starts, columns, 1, 0, 1, "TFIDF", (1, 2, 3, 4), separators=(" ", "[,;]"), pad="!", fewest=3
        ), (
            objects("cat; #,dog", "cat cat #"),), float32([2, 0, 1, 0], [0, 0, 2, 0])),
        HostExample(TokensTfIdf(pool, starts, columns, 1, 0, 1, "IDF", (0.5, 2, 3, 4), separators=(" ",), pad="!"), (
            objects("cat cat # dog;", "cat dog"),), float32([0, 3, 0.5, 0], [2, 0, 0.5, 0])),
        HostExample(
            TokensTfIdf(pool, starts, columns, 2, 0, 2, "TF", expression=r"\w+"), (objects("dog dog-dog", ""),),
            float32([0, 0, 0, 2], [0, 0, 0, 0])
        ),
    ]


def _grams() -> list[HostExample]:
    """A pool of two single items, 2 and 5, and of the pairs (2, 5) and (5, 2); the columns of the pairs come first."""
    rows = np.asarray([[2, 5, 2, 5], [7, 7, 2, 2]], "int32")
    pool, starts, columns, weights = (2, 5, 2, 5, 5, 2), (0, 2), (2, 3, 0, 1), (0.5, 2.0, 3.0, -1.0)

    def grams(longest: int, skips: int, shortest: int, mode: str, inputs: Array, wanted: Array) -> HostExample:
        return HostExample(
            TfIdfVectorize(pool, starts, columns, longest, skips, shortest, mode, weights), (inputs,), wanted
        )

    texts = tuple(str(p) for p in pool)
    return [
        grams(2, 0, 1, "TF", rows, float32([2, 1, 2, 2], [0, 0, 2, 0])),
        grams(2, 2, 2, "TF", rows, float32([3, 1, 0, 0], [0, 0, 0, 0])),  # the first item and the last are a pair, too
        grams(2, 0, 1, "IDF", rows[0], float32(3, -1, 0.5, 2)),
        grams(1, 0, 1, "TFIDF", rows, float32([0, 0, 1, 4], [0, 0, 1, 0])),
        HostExample(
            TfIdfVectorize(texts, starts, columns, 1, 0, 1, "TF"), (np.empty((2, 0), object),),
            np.zeros((2, 4), np.float32)
        ),
        HostExample(
            TfIdfVectorize(texts, starts, columns, 2, 0, 2, "TF"), (objects("5", "2", "5", "5"),), float32(1, 1, 0, 0)
        ),
    ]


def _dictionaries() -> list[HostExample]:
    keys = objects("cat", "dog", "cat")
    found = [HostExample(StringIndex(), (objects("dog", "cow", "cat", "").reshape(2, 2), keys), int64([1, 3], [2, 3]))]
    scores, names = float32([0.25, 0.75], [1, 0]), objects("cat", "dog")
    found.append(HostExample(ZipMap(), (scores, names), objects({"cat": 0.25, "dog": 0.75}, {"cat": 1.0, "dog": 0.0})))
    found.append(HostExample(ZipMap(), (scores[0], int64(7, 3)), objects({7: 0.25, 3: 0.75})))
    known = objects({"dog": 2.0}, {"cat": 1.5, "dog": -1.0, "cow": 9.0})
    found.append(HostExample(DictVectorize(), (known, names), float32([0, 2], [1.5, -1])))
    found.append(HostExample(DictVectorize("int64"), (scalar_object({5: 8, 6: 9}), int64(6, 4, 5)), int64([9, 0, 8])))
    found.append(
        HostExample(DictVectorize("string"), (objects({1: "one"}), int64(0, 1)), objects("", "one").reshape(1, 2))
    )
    found.append(HostExample(CastMap(2), (scalar_object({9: 1.5, 4: "2.5"}),), float32([2.5, 1.5])))
    found.append(
        HostExample(CastMap(4, "TO_INT64", sparse=True), (scalar_object({3: 7.9, 1: "2"}),), int64([0, 2, 0, 7]))
    )
    found.append(
        HostExample(CastMap(2, "TO_STRING"), (scalar_object({0: "a", 1: "b"}),), objects("a", "b").reshape(1, 2))
    )
    return found


def _images() -> list[HostExample]:
    """Files without loss, whose pixels are known."""
    pixels = np.arange(2 * 5 * 3, dtype=np.uint8).reshape(2, 5, 3) * np.uint8(8)
    grey = pixels[..., 0].copy()
    found = [HostExample(DecodeImage(), (_file(pixels, form),), pixels) for form in ("PNG", "BMP", "TIFF", "PPM")]
    found.append(HostExample(DecodeImage("BGR"), (_file(pixels),), pixels[..., ::-1].copy()))
    found += [
        HostExample(DecodeImage("Grayscale"), (_file(grey),), grey[..., None]),
        HostExample(DecodeImage(), (_file(grey),), np.stack([grey] * 3, -1))
    ]
    return found


def _counted() -> list[HostExample]:
    """As many rows as the values say."""
    x = float32([[0, 2, 0], [-1, 0, np.nan]])
    found = [
        HostExample(ArgWhere(), (x[0],), np.asarray([[0, 1], [1, 0], [1, 2]], "int32")),
        HostExample(ArgWhere("int64"), (x[0] > 5,), np.zeros((0, 2), np.int64))
    ]
    rows = np.asarray([[3, 1], [2, 2], [3, 1], [0, 9], [2, 2]], "int32")
    found += [
        HostExample(UniqueSlices(), (rows,), (rows[[3, 1, 0]], int64(3, 1, 0), int64(2, 1, 2, 0, 1), int64(1, 2, 2))),
        HostExample(
            UniqueSlices(0, False), (rows,), (rows[[0, 1, 3]], int64(0, 1, 3), int64(0, 1, 0, 2, 1), int64(2, 2, 1))
        ),
        HostExample(
            UniqueSlices(-1), (rows[:, [0, 1, 0]],), (rows[:, [1, 0]], int64(1, 0), int64(1, 0, 1), int64(1, 2))
        ),
    ]
    points, values = int64([0, 1], [0, 3], [2, 0]), float32(1, 2, 3)
    filled = (
        int64([0, 1], [0, 3], [1, 0], [2, 0], [3, 0]), float32(1, 2, -1, 3, -1), np.asarray([False, True, False, True])
    )
    found.append(HostExample(SparseFillEmptyRows(), (points, values, int64(4, 4), scalar(-1)), filled))
    full = int64([0, 1], [1, 3], [2, 0])
    found.append(
        HostExample(SparseFillEmptyRows(), (full, values, int64(3, 4), scalar(7)), (full, values, np.zeros(3, bool)))
    )
    return found


def _complex() -> list[HostExample]:
    """Complex numbers and their parts."""
    found = []
    for kind in ("complex64", "complex128"):
        whole = np.asarray([[1 + 2j, -3j], [4, 0.5 - 1j]], kind)
        parts = np.asarray([[[1, 2], [0, -3]], [[4, 0], [0.5, -1]]], whole.real.dtype)
        found += [HostExample(ComplexParts(), (whole,), parts), HostExample(ComplexOfParts(), (parts,), whole)]
    return found


def _eigenvalues() -> list[HostExample]:
    """Of diagonal matrices, and of none."""
    stack = np.stack([np.diag([2.0, -3.0]), np.eye(2)])
    found = [
        HostExample(
            Eig(), (np.diag([2.0, -3.0]).astype("float32"),),
            (np.asarray([2, -3], "complex64"), np.eye(2, dtype="complex64"))
        )
    ]
    found.append(
        HostExample(Eig(), (stack,), (np.asarray([[2, -3], [1, 1]], complex), np.stack([np.eye(2, dtype=complex)] * 2)))
    )
    return [
        *found, HostExample(Eig(), (np.zeros((2, 0, 0)),), (np.zeros((2, 0), complex), np.zeros((2, 0, 0), complex)))
    ]


def _symmetric() -> list[HostExample]:
    """Of a diagonal matrix, and of one without a diagonal, whose rows are one block."""
    diagonal, crossed, rhs = np.diag([2.0, 4.0]), np.asarray([[0.0, 2.0], [2.0, 0.0]]), np.asarray([[2.0], [8.0]])
    packed, block = np.asarray([[0.0, 0.0], [2.0, 0.0]]), np.asarray([-2, -2], np.int32)
    plain = np.asarray([1, 2], np.int32)
    found = [
        HostExample(LDLFactor(), (diagonal,), (diagonal, plain, np.asarray(0, np.int32))),
        HostExample(LDLFactor(), (crossed,), (packed, block, np.asarray(0, np.int32)))
    ]
    found.append(HostExample(LDLSolve(), (diagonal, plain, rhs), np.asarray([[1.0], [2.0]])))
    return [*found, HostExample(LDLSolve(), (packed, block, rhs), np.asarray([[4.0], [1.0]]))]


HOST_EXAMPLES: list[HostExample] = [
    *_texts(), *_grams(), *_dictionaries(), *_images(), *_counted(), *_complex(), *_eigenvalues(), *_symmetric()
]
