"""Hash tables, filled with stored keys and values at initialization and looked up in every call."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.relay.expr import Constant, Expr
from tilewright.relay.frontend.look_up import looked_up
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import reshape
from tilewright.relay.frontend.tflite.node import Node, Value, constant
from tilewright.relay.frontend.tflite.registry import converter

Array = np.ndarray[Any, Any]


@converter("HASHTABLE")
def hashtable(*, table_id: int = 0, key_dtype: int = 0, value_dtype: int = 0, node: Node) -> Expr:
    return node.resources.handle(("table", table_id))


@converter("HASHTABLE_IMPORT")
def hashtable_import(handle: Value, keys: Value, values: Value, *, node: Node) -> tuple[Expr, ...]:
    """Fill the table; the first of equal keys is kept. A table that is already filled does not change."""
    found, kept = node.stored(keys).reshape(-1), node.stored(values).reshape(-1)
    if len(found) != len(kept):
        node.refuse(f"it has {len(found)} keys and {len(kept)} values; the file is damaged: convert it again")
    _, first = np.unique(found, return_index=True)
    node.resources.tables.setdefault(_key(handle, node), (found[np.sort(first)], kept[np.sort(first)]))
    return ()


@converter("HASHTABLE_FIND")
def hashtable_find(handle: Value, key: Value, default: Value, *, node: Node) -> Expr:
    keys, values = _table(handle, node)
    return looked_up(key.expr, keys, values, node.stored(default).reshape(-1)[0], node)


@converter("HASHTABLE_SIZE")
def hashtable_size(handle: Value, *, node: Node) -> Expr:
    return constant([len(_table(handle, node)[0])], "int64")


def _key(handle: Value, node: Node) -> Any:
    key = node.resources.handles.get(handle.expr)
    if key is None:
        node.refuse("its first input is not a table handle; the file is damaged: convert it again")
    return key


def _table(handle: Value, node: Node) -> tuple[Array, Array]:
    found: tuple[Array, Array] | None = node.resources.tables.get(_key(handle, node))
    if found is None:
        node.refuse("its table is never filled; convert the model with its initialization")
    return found


@converter("HASHTABLE_LOOKUP")
def hashtable_lookup(keys: Value, known: Value, rows: Value, *, node: Node) -> tuple[Expr, ...]:
    """The rows at the sorted keys, with zeros for missing keys; and whether each key exists, as uint8."""
    if known.rank != 1 or not known.shape[0] or rows.rank < 1 or rows.shape[0] != known.shape[0]:
        node.refuse(f"its keys have the shape {known.shape} and its rows {rows.shape}, but there must be one row for "
                    "each key; the file is damaged: convert it again")
    place = op.minimum(op.searchsorted(known.expr, keys.expr, dtype="int32"), constant(known.shape[0] - 1, "int32"))
    hit = op.equal(op.take(known.expr, place, axis=0), keys.expr)
    found = op.take(rows.expr, place, axis=0)
    wide = reshape(hit, (*keys.shape, *[1] * (rows.rank - 1)))
    none = Constant(np.asarray("", object)) if rows.dtype == "string" else constant(0, rows.dtype)
    return op.where(wide, found, none), op.cast(hit, dtype="uint8")
