"""Hash tables and texts of TFLite models, compiled. What is expected is what the interpreter of LiteRT answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tflite_models import Graph, Op, T, model
from tflite_tables import GIVEN, INT64, MODELS, NAMES, STRING, hash_table, texts
from tilewright.base.errors import ModelError
from tilewright.relay.frontend.tflite import from_tflite

EXPECTED: dict[str, Any] = {
    "texts_to_numbers": ([-20, 10, 40, -1], [3]), "numbers_to_texts": (["ü", "a", "a", "none"], [4]),
    "rows": ([[3, 4], [0, 0], [1, 2], [5, 6]], [1, 0, 1, 1]),
    "rows_of_integers": ([[3, 4], [0, 0], [1, 2], [0, 0]], [1, 0, 1, 0]),
}


@pytest.mark.filterwarnings("ignore::tilewright.base.errors.NotNativeWarning")
@pytest.mark.parametrize("name", MODELS)
def test_what_stands_in_tables_is_found(name: str) -> None:
    found = tvm.compile(MODELS[name](), threads=1)(*GIVEN[name])
    assert tuple(y.tolist() for y in found) == EXPECTED[name]


def _never_filled() -> bytes:
    tensors = [T("x", (4,), "string"), T("t", (), "resource"), T("d", (1,), "int64", [0]), T("y", (4,), "int64")]
    return model(
        tensors, [Op("HASHTABLE", [], [1], "HashtableOptions"), Op("HASHTABLE_FIND", [1, 0, 2], [3])], [0], [3]
    )


def _no_handle() -> bytes:
    tensors = [T("x", (4,), "string"), T("d", (1,), "int64", [0]), T("y", (4,), "int64")]
    return model(tensors, [Op("HASHTABLE_FIND", [1, 0, 1], [2])], [0], [2])


def _rows_missing() -> bytes:
    tensors = [
        T("x", (4,), "int32"), T("k", (3,), "int32", [1, 2, 3]), T("v", (2, 2), value=[[1, 2], [3, 4]]), T("y", (4, 2)),
        T("hits", (4,), "uint8")
    ]
    return model(tensors, [Op("HASHTABLE_LOOKUP", [0, 1, 2], [3, 4])], [0], [3, 4])


@pytest.mark.parametrize(("make", "message"), [
    (_never_filled, "HASHTABLE_FIND.*its table is never filled"),
    (_no_handle, "HASHTABLE_FIND.*its first input is not a table handle"),
    (
        _rows_missing,
        r"HASHTABLE_LOOKUP.*its keys have the shape \(3,\) and its rows \(2, 2\), but there must be one row for each "
        r"key"
    ),
    (
        lambda: hash_table(NAMES, T("v", (3,), "int64", [1, 2, 3]), T("d", (1,), "int64", [-1]), STRING, INT64),
        "HASHTABLE_IMPORT.*it has 4 keys and 3 values"
    ),
])
def test_tables_that_make_no_sense_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        from_tflite(make())


# Texts in control flow


def _branch() -> bytes:
    """A text, or the other one."""
    ways = [Graph([T("a", (1,), "string"), T("b", (1,), "string")], [], [0, 1], [k]) for k in range(2)]
    main = [T("c", (1,), "bool"), T("a", (1,), "string"), T("b", (1,), "string"), T("y", (1,), "string")]
    return model(
        main, [Op("IF", [0, 1, 2], [3], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})], [0, 1, 2], [3],
        *ways
    )


def _loop() -> bytes:
    """Two texts that change places in every turn."""
    state = [T("k", (), "int32"), T("n", (), "int32"), T("a", (1,), "string"), T("b", (1,), "string")]
    condition = Graph([*state, T("go", (), "bool")], [Op("LESS", [0, 1], [4])], [0, 1, 2, 3], [4])
    turn = Graph(
        [*state, T("one", (), "int32", 1), T("k2", (), "int32")], [Op("ADD", [0, 4], [5], "AddOptions")], [0, 1, 2, 3],
        [5, 1, 3, 2]
    )
    made = [T("l", (), "int32"), T("m", (), "int32"), T("y", (1,), "string"), T("z", (1,), "string")]
    loop = Op("WHILE", [0, 1, 2, 3], [4, 5, 6, 7], "WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})
    return model([*state, *made], [loop], [0, 1, 2, 3], [4, 6], condition, turn)


def test_texts_go_through_a_branch() -> None:
    compiled = tvm.compile(_branch())
    for choice, wanted in ((True, "yes"), (False, "no")):
        assert compiled(np.asarray([choice]), texts("yes"), texts("no")).tolist() == [wanted]


def test_texts_go_through_a_loop() -> None:
    compiled = tvm.compile(_loop())
    for count in (3, 0, 4):
        last, text = compiled(np.asarray(0, np.int32), np.asarray(count, np.int32), texts("a"), texts("b"))
        assert last == count and text.tolist() == ["b" if count % 2 else "a"]


def test_a_loop_over_texts_of_many_turns_is_refused() -> None:
    with pytest.raises(
        ModelError,
        match=r"WHILE.*it must be unrolled \(a compiled loop cannot contain strings\), but has more than 64"
    ):
        tvm.compile(_loop())(np.asarray(0, np.int32), np.asarray(65, np.int32), texts("a"), texts("b"))
