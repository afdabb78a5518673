"""Small TFLite models with hash tables, what they are given, and what the interpreter answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tflite_models import Graph, Op, T, model

INT64, STRING = 4, 5
"""Element types by their numbers in the schema."""


def texts(*values: str) -> Any:
    return np.asarray(values, object)


def hash_table(keys: T, values: T, default: T, key_type: int, value_type: int) -> bytes:
    """Two tables, the second filled twice: what is found, and how many keys there are."""
    options = {"TableId": 7, "KeyDtype": key_type, "ValueDtype": value_type}
    start = Graph(
        [T("t", (), "resource"), keys, values],
        [
            Op("HASHTABLE", [], [0], "HashtableOptions", options), Op("HASHTABLE_IMPORT", [0, 1, 2], []),
            Op("HASHTABLE_IMPORT", [0, 1, 2], [])
        ], [], [],
    )
    main = [
        T("x", (4,), keys.dtype), T("t", (), "resource"), default, T("y", (4,), values.dtype), T("n", (1,), "int64")
    ]
    operators = [
        Op("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1}),
        Op("HASHTABLE", [], [1], "HashtableOptions", options), Op("HASHTABLE_FIND", [1, 0, 2], [3]),
        Op("HASHTABLE_SIZE", [1], [4]),
    ]
    return model(main, operators, [0], [3, 4], start)


def looked_up(dtype: str) -> bytes:
    tensors = [
        T("x", (4,), "int32"), T("k", (3,), "int32", [-3, 5, 9]), T("v", (3, 2), dtype, [[1, 2], [3, 4], [5, 6]]),
        T("y", (4, 2), dtype), T("hits", (4,), "uint8"),
    ]
    return model(tensors, [Op("HASHTABLE_LOOKUP", [0, 1, 2], [3, 4])], [0], [3, 4])


NAMES, NUMBERS = T("names", (4,), "string", ["a", "bc", "a", "ü"]), T("numbers", (4,), "int64", [10, -20, 30, 40])
MODELS: dict[str, Callable[[], bytes]] = {
    "texts_to_numbers": lambda: hash_table(NAMES, NUMBERS, T("d", (1,), "int64", [-1]), STRING, INT64),
    "numbers_to_texts": lambda: hash_table(NUMBERS, NAMES, T("d", (1,), "string", ["none"]), INT64, STRING),
    "rows": lambda: looked_up("float32"),
    "rows_of_integers": lambda: looked_up("int32"),
}
GIVEN: dict[str, list[Any]] = {
    "texts_to_numbers": [texts("bc", "a", "ü", "zz")], "numbers_to_texts": [np.asarray([40, 10, 30, 7], np.int64)],
    "rows": [np.asarray([5, 4, -3, 9], np.int32)], "rows_of_integers": [np.asarray([5, 4, -3, 90], np.int32)],
}
