"""Sequences and optionals, which are resolved during the import: no code is generated for these operators.

A sequence is a tuple of its tensors, so its length is known. An optional is its content, or `NOTHING`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tilewright.base.limits import MOST_WRITTEN_OUT
from tilewright.relay.expr import Constant, Expr, Tuple
from tilewright.relay.frontend.onnx.node import Node
from tilewright.relay.frontend.onnx.registry import converter
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.shaping import axis_of, reshape, slice_axis
from tilewright.relay.sequence_values import NOTHING, opened
from tilewright.relay.types_of import rank, scalar


def _tensors(sequence: Expr, node: Node) -> list[Expr]:
    """The tensors of a sequence; refuses anything else."""
    found = opened(sequence)
    if not isinstance(found, Tuple) or found is NOTHING:
        node.refuse("its input must be a sequence, but it is " + ("an empty optional" if found is NOTHING
            else "a tensor"))
    return list(found.fields)


def _place(position: Expr | None, default: int, count: int, what: str, node: Node) -> int:
    """A position counted from the front, in [0, count)."""
    place = default if position is None else int(node.scalar(position, "position"))
    if not -count <= place < count:
        node.refuse(f"position {place} is not in [{-count}, {count - 1}]; the sequence has {what}")
    return place % count


@converter("SequenceConstruct")
def sequence_construct(*inputs: Expr) -> Expr:
    return Tuple(inputs)


@converter("SequenceEmpty")
def sequence_empty(*, dtype: int = onnx.TensorProto.FLOAT) -> Expr:
    return Tuple(())


@converter("SequenceInsert")
def sequence_insert(input_sequence: Expr, tensor: Expr, position: Expr | None = None, *, node: Node) -> Expr:
    found = _tensors(input_sequence, node)
    count = len(found)
    place = count if position is None else int(node.scalar(position, "position"))
    if not -count <= place <= count:
        node.refuse(f"position {place} is not in [{-count}, {count}]; the sequence has {count} tensors")
    found.insert(place, tensor)
    return Tuple(tuple(found))


@converter("SequenceErase")
def sequence_erase(input_sequence: Expr, position: Expr | None = None, *, node: Node) -> Expr:
    found = _tensors(input_sequence, node)
    del found[_place(position, -1, len(found), f"{len(found)} tensors", node)]
    return Tuple(tuple(found))


@converter("SequenceAt")
def sequence_at(input_sequence: Expr, position: Expr, *, node: Node) -> Expr:
    """A tensor of a sequence; if the position is known only at run time, all tensors must have one type."""
    found = _tensors(input_sequence, node)
    if node.known(position) is None and found and all(f.checked_type == found[0].checked_type for f in found):
        place = reshape(position, ())
        place = op.where(op.less(place, scalar(0, place)), op.add(place, scalar(len(found), place)), place)
        return op.take(op.stack(Tuple(tuple(found)), axis=0), place, axis=0)
    return found[_place(position, 0, len(found), f"{len(found)} tensors", node)]


@converter("SequenceLength")
def sequence_length(input_sequence: Expr, *, node: Node) -> Expr:
    return Constant(np.asarray(len(_tensors(input_sequence, node)), np.int64))


@converter("SplitToSequence")
def split_to_sequence(input: Expr, split: Expr | None = None, *, axis: int = 0, keepdims: int = 1, node: Node) -> Expr:
    """Split along an axis: into equal parts (the last may be smaller), parts of given sizes, or single slices."""
    along = axis_of(axis, rank(input), node)
    size = node.static(input, "input")[along]
    given = None if split is None else node.value(split, "split")
    step = 1 if given is None else int(given) if not given.ndim else 0
    if given is not None and given.ndim:
        sizes = [int(n) for n in given]
    else:
        if step < 1:
            node.refuse(f"input 'split' is {step}; it must be 1 or more")
        if (count := -(-size // step)) > MOST_WRITTEN_OUT:
            node.refuse(f"axis {along} has {size} slices; splitting it into {count} parts exceeds the limit of "
                        f"{MOST_WRITTEN_OUT}; use larger parts")
        sizes = [min(step, size - k) for k in range(0, size, step)]
    if sum(sizes) != size or any(n < 0 for n in sizes):
        node.refuse(f"the parts {sizes} do not add up to the {size} slices of axis {along}")
    ends = np.cumsum(sizes)
    parts = [slice_axis(input, along, int(end - n), int(end)) for n, end in zip(sizes, ends, strict=True)]
    return Tuple(tuple(op.squeeze(p, axis=(along,)) if given is None and not keepdims else p for p in parts))


@converter("ConcatFromSequence")
def concat_from_sequence(input_sequence: Expr, *, axis: int, new_axis: int = 0, node: Node) -> Expr:
    found = _tensors(input_sequence, node)
    if not found:
        node.refuse("its sequence is empty; give at least one tensor to join")
    if new_axis:
        return op.stack(Tuple(tuple(found)), axis=axis_of(axis, rank(found[0]) + 1, node))
    return op.concatenate(Tuple(tuple(found)), axis=axis_of(axis, rank(found[0]), node))


@converter("SequenceMap")
def sequence_map(input_sequence: Expr, *additional_inputs: Expr, body: onnx.GraphProto, node: Node) -> tuple[Expr, ...]:
    """Apply the body to the elements at each position of the sequences; tensors are passed unchanged to each."""
    first, others = _tensors(input_sequence, node), [opened(x) for x in additional_inputs]
    for k, x in enumerate(others):
        if isinstance(x, Tuple) and len(x.fields) != len(first):
            node.refuse(f"additional input {k} has {len(x.fields)} tensors, but input_sequence has {len(first)}; all "
                        "must have the same length")
    made = [node.import_graph(body, [x, *(o.fields[k] if isinstance(o, Tuple) else o for o in others)])
            for k, x in enumerate(first)]
    return (tuple(Tuple(tuple(column)) for column in zip(*made, strict=True)) if made
            else (Tuple(()),) * len(body.output))


@converter("Optional")
def optional(input: Expr | None = None, *, type: Any = None) -> Expr:
    return NOTHING if input is None else input


@converter("OptionalHasElement")
def optional_has_element(input: Expr | None = None) -> Expr:
    return Constant(np.asarray(input is not None and input is not NOTHING))


@converter("OptionalGetElement")
def optional_get_element(input: Expr, *, node: Node) -> Expr:
    if input is NOTHING:
        node.refuse("its optional is empty; test it with OptionalHasElement first")
    return input
