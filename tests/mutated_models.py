"""Damaged and hostile models: how they are made (`tests/onnx_mutations.py` sends them through every door of the
compiler).

A mutation is drawn from a number alone, so a number is a reproducer. Seeds are the small models that come with ONNX,
those of its node suite, and real networks where `TILEWRIGHT_MODELS` has some.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import TensorProto, helper, numpy_helper

from damaged_files import Random, cut, faulty, flip

LARGEST_SEED = 40_000
LARGEST_NETWORK = 20_000_000
DATA_FILE = "data.bin"
"""What stands beside each model: `DATA_BYTES` zeros, for tensors that are said to be elsewhere."""
DATA_BYTES = 4096
NUMBERS = (0, -1, 1, 2, 7, 255, 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -(1 << 63))
ABSURD = (
    0, -1, -2, -7, 3, 64, 1000, 100_000, 10**9, 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 62), (1 << 63) - 1, -(1 << 63)
)
FLOATS = (0.0, -1.0, 1e-30, 1e38, float("nan"), float("inf"), -float("inf"))
NAMES = ("", "x", "y", "\0", "a" * 5000, "Relu", "Loop", "If", "Conv", "Reshape", "Constant", "ai.onnx", "n", "\u20ac")
PLACES = (
    DATA_FILE, "../data.bin", "/etc/passwd", "/dev/zero", "", ".", "missing.bin", "a" * 5000, "\0", "sub/../data.bin"
)
Mutation = Callable[[bytes, Random], bytes]
_SHORT = {FieldDescriptor.TYPE_INT32: 32, FieldDescriptor.TYPE_UINT64: -64}


@functools.cache
def small_models() -> tuple[tuple[str, bytes], ...]:
    """Names and bytes of small models of many operators, with branches and loops among them."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    found = [
        p for kind in ("pytorch-operator", "pytorch-converted", "simple")
        for p in sorted((folder / kind).glob("*/model.onnx"))
    ]
    return tuple((p.parent.name, p.read_bytes()) for p in found if p.stat().st_size <= LARGEST_SEED)


@functools.cache
def node_models() -> tuple[tuple[str, bytes], ...]:
    """The models of ONNX's node suite, each of one operator."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite divides by zero and overflows on purpose
        cases = load_model_tests(kind="node")
    return tuple((c.name, _serialized(c.model)) for c in cases if c.model is not None)


@functools.cache
def networks() -> tuple[tuple[str, bytes], ...]:
    """Whole networks, the smaller ones of the folder `TILEWRIGHT_MODELS`."""
    folder = Path(os.environ.get("TILEWRIGHT_MODELS", "/nonexistent"))
    return tuple((p.name, p.read_bytes()) for p in sorted(folder.glob("*.onnx")) if p.stat().st_size <= LARGEST_NETWORK)


def seeds() -> list[bytes]:
    """The small models alone."""
    return [data for _, data in small_models()]


def made(number: int, kinds: Sequence[tuple[tuple[str, bytes], ...]]) -> tuple[str, bytes]:
    """The mutation of that number: what it was made from and how, and its bytes. `kinds` are sets of seeds, drawn from
    alike."""
    random = np.random.default_rng(number)
    models = kinds[int(random.integers(len(kinds)))]
    name, data = models[int(random.integers(len(models)))]
    how, mutated = mutate(data, random)
    return f"{name}: {how}", mutated


def mutate(data: bytes, random: Random) -> tuple[str, bytes]:
    """`data` with one to three faults, and their names; those after one that protobuf does not write again, or that is
    too deep, are in bytes."""
    return faulty(data, random, CHANGES, _WEIGHTS, (UnicodeDecodeError, ValueError, DecodeError), lambda random: flip)


# Of messages, whatever they mean.


def change(data: bytes, random: Random) -> bytes:
    """One field of one message has another value, or is away, or is there twice."""
    model = _parsed(data)
    if model is None:
        return flip(data, random)
    messages = list(_messages(model))
    message = messages[random.integers(len(messages))]
    fields = message.DESCRIPTOR.fields if random.random() < 0.3 else [
        f for f, _ in message.ListFields()
    ] or message.DESCRIPTOR.fields
    field = fields[random.integers(len(fields))]
    if random.random() < 0.15:
        message.ClearField(field.name)
    elif _is_repeated(field):
        _change_list(getattr(message, field.name), field, random)
    elif field.message_type is not None:
        getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, _value(field, random))
    return _serialized(model)


# Of models, by what they mean.


def tangle(data: bytes, random: Random) -> bytes:
    """The names of the graph are mixed up: cycles, names made twice, names that nothing makes, graphs in graphs,
    functions of themselves."""
    model = _parsed(data)
    if model is None or not model.graph.node:
        return cut(data, random)
    nodes = model.graph.node
    node = nodes[random.integers(len(nodes))]
    names = [n for m in nodes for n in (*m.input, *m.output)] or ["x"]
    which = random.integers(7)
    if which == 0 and node.input:
        node.input[random.integers(len(node.input))] = names[random.integers(len(names))]
    elif which == 1 and node.output:
        node.output[random.integers(len(node.output))] = names[random.integers(len(names))]
    elif which == 2:
        node.op_type = NAMES[random.integers(len(NAMES))]
    elif which == 3:
        whole = onnx.GraphProto.FromString(model.graph.SerializeToString())  # a message cannot be copied into itself
        node.attribute.add(name="body", type=onnx.AttributeProto.GRAPH).g.CopyFrom(
            whole if len(data) < LARGEST_SEED else onnx.GraphProto()
        )
    elif which == 4:
        function = model.functions.add(name=node.op_type, domain=node.domain)
        function.input.extend(node.input)
        function.output.extend(node.output)
        function.node.add().CopyFrom(node)
    elif which == 5 and node.input:
        node.input[random.integers(len(node.input))] = ""
    elif node.input:
        del node.input[random.integers(len(node.input)):]
    return _serialized(model)


def resize(data: bytes, random: Random) -> bytes:
    """A dimension that an input, a value or an output declares is another, or any, or there is one more or one less."""
    model = _parsed(data)
    infos = [] if model is None else [
        i for i in (*model.graph.input, *model.graph.output, *model.graph.value_info) if i.type.HasField("tensor_type")
    ]
    if model is None or not infos:
        return cut(data, random)
    dims = infos[random.integers(len(infos))].type.tensor_type.shape.dim
    if len(dims) and random.random() < 0.8:
        dim = dims[random.integers(len(dims))]
        if random.random() < 0.2:
            dim.dim_param = NAMES[random.integers(len(NAMES))]
        else:
            dim.dim_value = ABSURD[random.integers(len(ABSURD))]
    elif len(dims) and random.random() < 0.5:
        del dims[random.integers(len(dims))]
    else:
        dims.add().dim_value = int(random.integers(1, 4))
    return _serialized(model)


def retype(data: bytes, random: Random) -> bytes:
    """An input, a stored tensor or an output has another element type."""
    model = _parsed(data)
    if model is None:
        return cut(data, random)
    infos = [i for i in (*model.graph.input, *model.graph.output) if i.type.HasField("tensor_type")]
    places: list[tuple[Any, str]] = [(i.type.tensor_type, "elem_type") for i in infos] + [
        (t, "data_type") for t in model.graph.initializer
    ]
    places += [(a, "i") for n in model.graph.node for a in n.attribute if a.name in ("to", "dtype")]
    if not places:
        return cut(data, random)
    place, field = places[random.integers(len(places))]
    setattr(place, field, int(random.integers(0, 26)))
    return _serialized(model)


def exaggerate(data: bytes, random: Random) -> bytes:
    """An attribute of a node has an absurd value, another length, or another type."""
    model = _parsed(data)
    attributes = [] if model is None else [a for n in model.graph.node for a in n.attribute]
    if model is None or not attributes:
        return revalue(data, random)
    a = attributes[random.integers(len(attributes))]
    number = ABSURD[random.integers(len(ABSURD))]
    if random.random() < 0.1:
        a.type = int(random.integers(0, 15))
    elif a.type == onnx.AttributeProto.INTS and len(a.ints):
        place = int(random.integers(len(a.ints)))
        if random.random() < 0.7:
            a.ints[place] = number
        elif random.random() < 0.5:
            del a.ints[place]
        else:
            a.ints.append(number)
    elif a.type == onnx.AttributeProto.INT:
        a.i = number
    elif a.type == onnx.AttributeProto.FLOAT:
        a.f = FLOATS[random.integers(len(FLOATS))]
    elif a.type == onnx.AttributeProto.FLOATS and len(a.floats):
        a.floats[int(random.integers(len(a.floats)))] = FLOATS[random.integers(len(FLOATS))]
    elif a.type == onnx.AttributeProto.STRING:
        a.s = NAMES[random.integers(len(NAMES))].encode()
    elif a.type == onnx.AttributeProto.TENSOR:
        _replace_value(a.t, random)
    return _serialized(model)


def revalue(data: bytes, random: Random) -> bytes:
    """A stored tensor has other values: absurd shapes, counts, axes, repeats. An input becomes one where none is
    stored."""
    model = _parsed(data)
    if model is None:
        return cut(data, random)
    stored = [
        t for t in model.graph.initializer if t.data_type not in (TensorProto.FLOAT, TensorProto.DOUBLE)
    ] or list(model.graph.initializer)
    inputs = [i for i in model.graph.input if i.type.tensor_type.elem_type in (TensorProto.INT64, TensorProto.INT32)]
    if not stored and not inputs:
        return resize(data, random)
    if stored and (not inputs or random.random() < 0.5):
        _replace_value(stored[random.integers(len(stored))], random)
        return _serialized(model)
    info = inputs[random.integers(len(inputs))]
    shape = [min(max(d.dim_value, 0), 8) for d in info.type.tensor_type.shape.dim]
    values = np.array(
        [
            ABSURD[random.integers(len(ABSURD))] if random.random() < 0.3 else random.integers(-2, 4)
            for _ in range(int(np.prod(shape)))
        ]
    )
    kind = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
    model.graph.initializer.append(
        numpy_helper.from_array(values.astype(np.int64).astype(kind).reshape(shape), info.name)
    )
    return _serialized(model)


def _replace_value(tensor: TensorProto, random: Random) -> None:
    """One element of the tensor is absurd, where it can be read."""
    try:
        if tensor.data_location == TensorProto.EXTERNAL:
            raise ValueError
        value = numpy_helper.to_array(tensor).copy()
    except (ValueError, TypeError, KeyError, MemoryError, OverflowError, RuntimeError):  # damaged by an earlier fault, or not here  # noqa: E501
        tensor.dims.append(ABSURD[random.integers(len(ABSURD))])
        return
    if not value.size or value.dtype.kind not in "iuf" or value.dtype.itemsize > 8:
        return
    place = random.integers(value.size)
    if value.dtype.kind == "f":
        value.reshape(-1)[place] = FLOATS[random.integers(len(FLOATS))]
    else:
        value.reshape(-1)[place] = np.array(ABSURD[random.integers(len(ABSURD))]).astype(np.int64).astype(value.dtype)
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))


def send_away(data: bytes, random: Random) -> bytes:
    """A stored tensor is said to be in another file: beside the model, outside of its folder, past its end, or
    nowhere."""
    model = _parsed(data)
    if model is None:
        return cut(data, random)
    stored = model.graph.initializer
    if not stored:
        stored.add(
            name=model.graph.input[0].name if model.graph.input else "x", data_type=1,
            dims=[int(NUMBERS[random.integers(len(NUMBERS))])]
        )
    tensor = stored[random.integers(len(stored))]
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "string_data", "double_data", "uint64_data"):
        tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=PLACES[0 if random.random() < 0.5 else random.integers(len(PLACES))])
    for key in ("offset", "length"):
        if random.random() < 0.5:
            tensor.external_data.add(
                key=key, value=("0", "8", "-1", "4095", "1e9", str(1 << 63), "9" * 5000, "\u0663")[random.integers(8)]
            )
    return _serialized(model)


def bury(data: bytes, random: Random) -> bytes:
    """A node stands deep in branches or functions, or in functions that each call the next one twice."""
    model = _parsed(data)
    if model is None or not model.graph.node or len(data) > LARGEST_SEED:
        return cut(data, random)
    place = int(random.integers(len(model.graph.node)))
    node = onnx.NodeProto.FromString(model.graph.node[place].SerializeToString())
    names, depth = list(dict.fromkeys(n for n in node.input if n)), int((2, 3, 8, 30, 64)[random.integers(5)])
    if random.random() < 0.4 and depth <= 30:
        infos = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        inner = node
        for k in range(depth):
            branch = helper.make_graph([inner], f"level{k}", [], infos)
            inner = helper.make_node(
                "If", ["deep?"], [n for n in node.output if n], then_branch=branch,
                else_branch=branch if depth < 9 else onnx.GraphProto()
            )
        model.graph.initializer.append(numpy_helper.from_array(np.array(True), "deep?"))
        model.graph.node[place].CopyFrom(inner)
        return _serialized(model)
    twice, imports = random.random() < 0.5, list(model.opset_import)
    for k in range(depth):
        call = node if k == 0 else helper.make_node(f"deep{k - 1}", names, list(node.output), domain="deep")
        body = [
            call,
            *(
                [helper.make_node(f"deep{k - 1}", names, [f"{n}_again" for n in node.output], domain="deep")] if twice
                and k else []
            )
        ]
        wanted = [*node.output, *([f"{n}_again" for n in node.output] if twice and k else [])]
        last = [
            helper.make_node("Add", [wanted[0], wanted[len(node.output)]], [f"{wanted[0]}_sum"])
        ] if twice and k else []
        given = [f"{wanted[0]}_sum", *wanted[1:len(node.output)]] if last else list(node.output)
        model.functions.append(helper.make_function("deep", f"deep{k}", names, given, [*body, *last], imports))
    model.opset_import.append(helper.make_opsetid("deep", 1))
    model.graph.node[place].CopyFrom(helper.make_node(f"deep{depth - 1}", names, list(node.output), domain="deep"))
    return _serialized(model)


CHANGES: tuple[Mutation, ...] = (change, tangle, resize, retype, exaggerate, revalue, send_away, bury)
_WEIGHTS = (0.24, 0.14, 0.14, 0.08, 0.16, 0.14, 0.04, 0.06)


def _parsed(data: bytes) -> onnx.ModelProto | None:
    try:
        model: onnx.ModelProto = onnx.ModelProto.FromString(data)
    except DecodeError:
        return None
    return model


def _serialized(model: onnx.ModelProto) -> bytes:
    data: bytes = model.SerializeToString()
    return data


def _messages(root: Message) -> Iterator[Message]:
    stack = [root]
    while stack:
        message = stack.pop()
        yield message
        for field, value in message.ListFields():
            if field.message_type is not None:
                stack.extend(value if _is_repeated(field) else [value])


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == FieldDescriptor.LABEL_REPEATED


def _change_list(values: Any, field: Any, random: Random) -> None:
    if len(values) and random.random() < 0.3:
        del values[random.integers(len(values))]
    elif field.message_type is not None:
        added = values.add()
        if len(values) > 1:
            added.CopyFrom(values[random.integers(len(values) - 1)])
    elif len(values) and random.random() < 0.7:
        values[random.integers(len(values))] = _value(field, random)
    else:
        values.extend(_value(field, random) for _ in range(random.integers(1, 4)))


def _value(field: Any, random: Random) -> Any:
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return FLOATS[random.integers(len(FLOATS))]
    if field.type == FieldDescriptor.TYPE_STRING:
        return NAMES[random.integers(len(NAMES))]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return random.bytes(int(random.integers(20)))
    if field.enum_type is not None:
        values = field.enum_type.values
        return values[random.integers(len(values))].number
    number = int(NUMBERS[random.integers(len(NUMBERS))])
    bits = _SHORT.get(field.type, 64)
    return abs(number) % (1 << 63) if bits < 0 else (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
