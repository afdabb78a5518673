"""Sequences and optionals of ONNX: as values, as inputs and outputs of compiled models, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tvm
from tilewright.base.errors import InputError, ModelError
from tilewright.base.limits import MOST_WRITTEN_OUT
from tilewright.compiler.cache import Cache
from tilewright.relay.frontend.onnx import from_onnx, signature

FLOAT = TensorProto.FLOAT
node = helper.make_node
A, B, C = (np.full((k + 1, 2), k, np.float32) for k in range(3))


def sequence(name: str, optional: bool = False) -> onnx.ValueInfoProto:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    return helper.make_value_info(name, helper.make_optional_type_proto(kind) if optional else kind)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], **stored: Any) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes), "g", list(inputs), list(outputs),
        [numpy_helper.from_array(np.asarray(v), k) for k, v in stored.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def tensor(name: str, kind: int = FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def same(got: Any, wanted: Any) -> None:
    assert isinstance(got, list)
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(g, w)


EDITS: list[tuple[str, dict[str, Any], Callable[[list[Any]], list[Any]]]] = [
    ("SequenceInsert", {"position": 1}, lambda s: [s[0], C, *s[1:]]),
    ("SequenceInsert", {"position": -1}, lambda s: [*s[:-1], C, s[-1]]),
    ("SequenceInsert", {}, lambda s: [*s, C]),
    ("SequenceErase", {"position": 0}, lambda s: s[1:]),
    ("SequenceErase", {}, lambda s: s[:-1]),
]


@pytest.mark.parametrize(("op", "place", "edit"), EDITS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_edits(op: str, place: dict[str, int], edit: Callable[[list[Any]], list[Any]], count: int) -> None:
    if not -count <= place.get("position", 0) < max(count, 1):
        pytest.skip("there is no such place")
    inserted = ["c"] if op == "SequenceInsert" else []
    given = [A, B, C][:count]
    compiled = tvm.compile(
        model([node(op, ["s", *inserted, *place], ["out"])], [sequence("s")], [sequence("out")], c=C, **place)
    )
    same(compiled(given), edit(given))


def test_a_model_is_specialised_for_the_length(tmp_path: Path) -> None:
    """Each length and each shape has its own program, and the programs are kept in the cache."""
    built = model(
        [node("SequenceLength", ["s"], ["n"]), node("ConcatFromSequence", ["s"], ["all"], axis=0)], [sequence("s")],
        [tensor("n", TensorProto.INT64), tensor("all")]
    )
    for _ in range(2):
        compiled = tvm.compile(built, cache=Cache(tmp_path))
        for given in ([A], [A, B], [B, A, C], [A, B]):
            count, whole = compiled(given)
            assert count == len(given)
            np.testing.assert_array_equal(whole, np.concatenate(given))
    assert signature(built) == [("s", ["..."], "seq(float32)")]


def test_shapes_given_when_compiling() -> None:
    compiled = tvm.compile(
        model([node("SequenceAt", ["s", "k"], ["y"])], [sequence("s")], [tensor("y")], k=-1),
        shapes={"s": [(1, 2), (2, 2)]}
    )
    assert [t.name for t in compiled.inputs] == ["s.0", "s.1"]
    np.testing.assert_array_equal(compiled([A, B]), B)
    with pytest.raises(InputError, match=r"input 's' has the shapes \(\(1, 2\),\), but the model was compiled for"):
        compiled([A])
    assert "@main" in compiled.dump("relay")


def test_optional_input_and_output() -> None:
    compiled = tvm.compile(model([
        node("OptionalHasElement", ["s"], ["has"]), node("Identity", ["s"], ["out"])
    ], [sequence("s", optional=True)],
                                 [tensor("has", TensorProto.BOOL), sequence("out", optional=True)]))
    has, out = compiled(None)
    assert not has
    assert out is None
    has, out = compiled([A, B])
    assert has
    same(out, [A, B])
    same(compiled(s=[])[1], [])


def test_split_and_place_that_only_the_data_says() -> None:
    built = model([
        node("SplitToSequence", ["x", "sizes"], ["s"], axis=0),
        node("SplitToSequence", ["x"], ["t"], axis=1, keepdims=0), node("SequenceAt", ["t", "k"], ["y"])
    ],
                  [tensor("x", FLOAT, [5, 4]), tensor("k", TensorProto.INT64, [])], [sequence("s"), tensor("y")],
                  sizes=2)
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    for k in (0, 3, -1, -4):
        parts, y = tvm.compile(built)(x, np.asarray(k))
        same(parts, [x[:2], x[2:4], x[4:]])
        np.testing.assert_array_equal(y, x[:, k])


def test_loop_over_a_sequence_that_it_makes() -> None:
    body = helper.make_graph(
        [
            node("SequenceAt", ["in", "i"], ["x"]), node("Add", ["x", "x"], ["y"]),
            node("SequenceInsert", ["s", "y"], ["s2"])
        ], "b",
        [tensor("i", TensorProto.INT64, []), tensor("c", TensorProto.BOOL, []), sequence("s")],
        [tensor("c", TensorProto.BOOL, []), sequence("s2")],
    )
    built = model(
        [
            node("SequenceLength", ["in"], ["n"]), node("SequenceEmpty", [], ["empty"]),
            node("Loop", ["n", "", "empty"], ["out"], body=body)
        ], [sequence("in")], [sequence("out")]
    )
    same(tvm.compile(built)([A, B, C, A, B, C]), [2 * x for x in (A, B, C, A, B, C)])


def test_map_over_two_sequences_and_a_tensor() -> None:
    body = helper.make_graph(
        [node("Add", ["x", "y"], ["xy"]), node("Mul", ["xy", "z"], ["r"])], "b", [tensor(n) for n in "xyz"],
        [tensor("r"), tensor("xy")]
    )
    built = model(
        [node("SequenceMap", ["s", "t", "z"], ["r", "xy"], body=body)],
        [sequence("s"), sequence("t"), tensor("z", FLOAT, [2])], [sequence("r"), sequence("xy")]
    )
    z = np.array([3, 4], np.float32)
    r, xy = tvm.compile(built)([A, B], [B[:1], C[:2]], z)
    same(r, [(A + B[:1]) * z, (B + C[:2]) * z])
    same(xy, [A + B[:1], B + C[:2]])
    with pytest.raises(
        ModelError,
        match="additional input 0 has 1 tensors, but input_sequence has 2; all must have the same length"
    ):
        tvm.compile(built)([A, B], [B], z)


REFUSED = [
    (node("SequenceAt", ["s", "far"], ["y"]), [A], r"position 5 is not in \[-1, 0\]; the sequence has 1 tensors"),
    (
        node("SequenceInsert", ["s", "c", "far"], ["y"]), [A],
        r"position 5 is not in \[-1, 1\]; the sequence has 1 tensors"
    ),
    (node("ConcatFromSequence", ["s"], ["y"], axis=0), [], "its sequence is empty; give at least one tensor to join"),
    (node("SequenceLength", ["c"], ["y"]), [A], "its input must be a sequence, but it is a tensor"),
    (
        node("SplitToSequence", ["c", "sizes"], ["y"]), [A],
        r"the parts \[1, 1\] do not add up to the 3 slices of axis 0"
    ),
    (node("SplitToSequence", ["c", "none"], ["y"]), [A], "input 'split' is 0; it must be 1 or more"),
]


@pytest.mark.parametrize(("made", "given", "message"), REFUSED)
def test_refused(made: Any, given: list[Any], message: str) -> None:
    compiled = tvm.compile(model([made], [sequence("s")], [tensor("y")], c=C, far=5, sizes=np.array([1, 1]), none=0))
    with pytest.raises(ModelError, match=message):
        compiled(given)


def test_what_is_not_there_cannot_be_taken() -> None:
    with pytest.raises(ModelError, match="its optional is empty; test it with OptionalHasElement first"):
        tvm.compile(
            model([node("OptionalGetElement", ["s"], ["y"])], [sequence("s", optional=True)], [sequence("y")])
        )(None)


def test_more_parts_than_a_program_may_have_are_refused() -> None:
    split = node("SplitToSequence", ["x", "two"], ["y"])
    with pytest.raises(
        ModelError,
        match=rf"axis 0 has {1 << 30} slices; splitting it into {1 << 29} parts exceeds the limit of "
        rf"{MOST_WRITTEN_OUT}"
    ):
        from_onnx(model([split], [tensor("x", shape=(1 << 30,))], [sequence("y")], two=2))
    assert len(from_onnx(model([split], [tensor("x", shape=(9,))], [sequence("y")], two=2))[0]["main"].body.fields) == 5


def test_wrong_kinds_of_inputs() -> None:
    compiled = tvm.compile(model([node("Identity", ["s"], ["y"])], [sequence("s")], [sequence("y")]))
    with pytest.raises(
        InputError, match=r"input 's' is seq\(float32\), and takes a list of arrays; it was given a ndarray"
    ):
        compiled(A)
    with pytest.raises(InputError, match=r"takes a list of arrays; it was given a NoneType"):
        compiled(None)
    with pytest.raises(InputError, match="out= supports only tensors"):
        compiled([A], out=[A])


def test_importing_needs_the_length() -> None:
    built = model([node("Identity", ["s"], ["y"])], [sequence("s")], [sequence("y")])
    with pytest.raises(
        ModelError,
        match=r"input 's' is a sequence of tensors, and the number of its tensors must be known at compile time; give "
        r"its shape"
    ):
        from_onnx(built)
    assert [p.name_hint for p in from_onnx(built, {"s": [(1, 2), (3,)]})[0]["main"].params] == ["s.0", "s.1"]
    for wrong in ((2, 3), 4, [(1, -2)], None):
        with pytest.raises(
            ModelError,
            match=r"is not a list with the shape of each tensor, but input 's' is a sequence of tensors; write for "
            r"example shape={'s': \["
        ):
            from_onnx(built, {"s": wrong})


def test_sequences_of_maps_are_no_inputs() -> None:
    kind = onnx.TypeProto()
    kind.map_type.key_type = TensorProto.INT64
    kind.map_type.value_type.tensor_type.elem_type = FLOAT
    built = model(
        [node("Identity", ["s"], ["y"])], [helper.make_value_info("s", helper.make_sequence_type_proto(kind))],
        [tensor("y")]
    )
    with pytest.raises(
        ModelError,
        match="input 's' is a sequence of a map; an input must be a tensor, a sequence of tensors, or an optional"
    ):
        tvm.compile(built)
