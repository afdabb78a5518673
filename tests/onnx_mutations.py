"""Damaged and hostile models: each is imported, or refused by one of our errors, quickly and in little memory.

`python tests/onnx_mutations.py --count 5000 --seed 1` makes that many from the small models that come with ONNX and says what
is not as it should be; the process has a limit of memory, and an alarm for each model.
"""

from __future__ import annotations

import argparse
import json
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from tilewright.errors import CompileError
from tilewright.relay.frontend.onnx import from_onnx

LARGEST_SEED, MEMORY, SECONDS = 40_000, 6 << 30, 10
NUMBERS = (0, -1, 1, 2, 7, 255, 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 63) - 1, -(1 << 63))
FLOATS = (0.0, -1.0, 1e-30, 1e38, float("nan"), float("inf"), -float("inf"))
NAMES = ("", "x", "y", "\0", "a" * 5000, "Relu", "Loop", "If", "Conv", "Reshape", "Constant", "ai.onnx", "n", "\u20ac")
Random = np.random.Generator
_SHORT = {FieldDescriptor.TYPE_INT32: 32, FieldDescriptor.TYPE_UINT64: -64}


def seeds() -> list[bytes]:
    """Small models of many operators, with branches and loops among them."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    found = [p for kind in ("pytorch-operator", "pytorch-converted", "simple") for p in sorted((folder / kind).glob("*/model.onnx"))]
    return [p.read_bytes() for p in found if p.stat().st_size <= LARGEST_SEED]


def mutate(data: bytes, random: Random) -> bytes:
    """`data` with one to three faults: one model in five is damaged as a file, the others are files of senseless models."""
    if random.random() < 0.2:
        damage: list[Callable[[bytes, Random], bytes]] = [flip, cut, repeat]
        return damage[random.integers(len(damage))](data, random)
    for _ in range(random.integers(1, 4)):
        try:
            data = (tangle if random.random() < 0.2 else change)(data, random)
        except (UnicodeDecodeError, ValueError):  # an earlier fault is in the names, which protobuf does not write again
            data = flip(data, random)
    return data


def flip(data: bytes, random: Random) -> bytes:
    """Some bytes are others."""
    changed = bytearray(data)
    for _ in range(random.integers(1, 8)):
        if changed:
            changed[random.integers(len(changed))] = random.integers(256)
    return bytes(changed)


def cut(data: bytes, random: Random) -> bytes:
    """The end is missing, or a piece in the middle."""
    begin = int(random.integers(len(data) + 1))
    return data[:begin] + (data[begin + int(random.integers(64)):] if random.random() < 0.5 else b"")


def repeat(data: bytes, random: Random) -> bytes:
    """A piece stands twice."""
    begin = int(random.integers(len(data) + 1))
    return data[:begin] + data[max(0, begin - int(random.integers(200))):]


def change(data: bytes, random: Random) -> bytes:
    """One field of one message has another value, or is away, or is there twice."""
    model = _parsed(data)
    if model is None:
        return flip(data, random)
    messages = list(_messages(model))
    message = messages[random.integers(len(messages))]
    fields = message.DESCRIPTOR.fields if random.random() < 0.3 else [f for f, _ in message.ListFields()] or message.DESCRIPTOR.fields
    field = fields[random.integers(len(fields))]
    if random.random() < 0.15:
        message.ClearField(field.name)
    elif _is_repeated(field):
        _change_list(getattr(message, field.name), field, random)
    elif field.message_type is not None:
        getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, _value(field, random))
    return model.SerializeToString()


def tangle(data: bytes, random: Random) -> bytes:
    """The names of the graph are mixed up: cycles, names made twice, names that nothing makes, graphs in graphs, functions of themselves."""
    model = _parsed(data)
    if model is None or not model.graph.node:
        return cut(data, random)
    nodes = model.graph.node
    node = nodes[random.integers(len(nodes))]
    names = [n for m in nodes for n in (*m.input, *m.output)] or ["x"]
    which = random.integers(6)
    if which == 0 and node.input:
        node.input[random.integers(len(node.input))] = names[random.integers(len(names))]
    elif which == 1 and node.output:
        node.output[random.integers(len(node.output))] = names[random.integers(len(names))]
    elif which == 2:
        node.op_type = NAMES[random.integers(len(NAMES))]
    elif which == 3:
        whole = onnx.GraphProto.FromString(model.graph.SerializeToString())  # a message cannot be copied into itself
        node.attribute.add(name="body", type=onnx.AttributeProto.GRAPH).g.CopyFrom(whole if len(data) < LARGEST_SEED else onnx.GraphProto())
    elif which == 4:
        made = model.functions.add(name=node.op_type, domain=node.domain)
        made.input.extend(node.input)
        made.output.extend(node.output)
        made.node.add().CopyFrom(node)
    else:
        tensor = model.graph.initializer.add(name=names[random.integers(len(names))], data_type=1, dims=[int(NUMBERS[random.integers(len(NUMBERS))])])
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=("/etc/passwd", "../x", "x", "")[random.integers(4)])
    return model.SerializeToString()


def _parsed(data: bytes) -> onnx.ModelProto | None:
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError:
        return None


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
        made = values.add()
        if len(values) > 1:
            made.CopyFrom(values[random.integers(len(values) - 1)])
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


def fault(data: bytes) -> str:
    """What is wrong with how `data` is imported; empty where it is imported, or refused as it should be."""
    begin = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from_onnx(data)
    except CompileError as error:
        if not error.message.strip():
            return f"{type(error).__name__} without a message"
    except Exception as error:  # whatever else is raised is what is looked for
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = f"{Path(where.tb_frame.f_code.co_filename).name}:{where.tb_lineno}" if where else ""
        return f"{type(error).__name__} at {place}: {str(error)[:150]}"
    seconds = time.process_time() - begin
    return f"took {seconds:.1f} s" if seconds > SECONDS else ""


def _alarm(number: int, frame: FrameType | None) -> None:
    place = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "?"
    raise TimeoutError(f"still at {place} after {SECONDS} s")


def main(arguments: list[str]) -> int:
    """Import many; print each fault with its seed as JSON, then the most memory that was used, in bytes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for the models that are not refused as they should be")
    chosen = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, _alarm)
    models, faults = seeds(), {}
    for k in range(chosen.seed, chosen.seed + chosen.count):
        random = np.random.default_rng(k)
        data = mutate(models[random.integers(len(models))], random)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of this process, whatever else the machine does
        found = fault(data)
        signal.setitimer(signal.ITIMER_PROF, 0)
        if found:
            faults[k] = found
            if chosen.keep:
                (chosen.keep / f"{k}.onnx").write_bytes(data)
    print(json.dumps({"count": chosen.count, "faults": faults, "bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}, indent=1))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
