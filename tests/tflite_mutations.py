"""Damaged and hostile TFLite models through every door of the compiler (`tests/damaged_files.py`).

`python tests/tflite_mutations.py --count 2000 --seed 0` prints how many were refused, compiled and run, by door and
kind of error; then every offender. A mutation is drawn from a number alone. Seeds are the small models of
`tests/tflite_small.py`, some with control flow, and those under the folder `TILEWRIGHT_TFLITE_SUITE`, where that is
given.
"""

from __future__ import annotations

import functools
import os
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import damaged_files
from damaged_files import Damage, Format, Made, Random, cut, faulty, flip, usual_doors
from tflite_models import Graph, Op, T, model
from tflite_small import MODELS
from tilewright.relay.frontend.tflite.schema import ELEMENT_TYPES, OPERATORS, SCALARS, TABLES, UNIONS

FILE = "model.tflite"
LARGEST_SEED = 200_000
DOORS = usual_doors(FILE)
TURNS = ("compile",) * 5 + ("check", "command check", "command compile", "command run")
ABSURD = (
    0, -1, -2, -7, 1, 2, 3, 64, 1000, 100_000, 10**9, 1 << 31, (1 << 31) - 1, 1 << 40, 1 << 62, (1 << 63) - 1,
    -(1 << 63)
)
FLOATS = (0.0, -1.0, 1e-30, 1e38, float("nan"), float("inf"), -float("inf"))


# Where the numbers of a file are


@dataclass(frozen=True, slots=True)
class Place:
    """One number of a file, or the offset of a table or vector: where it is, and the table and field that it belongs
    to."""

    at: int
    type: str
    table: str
    field: str
    leads: str = ""
    """For an offset, the type of what it leads to."""


@functools.lru_cache(512)
def places(data: bytes) -> tuple[Place, ...]:
    """The numbers and offsets of a file that is whole."""
    found: list[Place] = []
    seen: set[tuple[str, int]] = set()
    pending = [("Model", struct.unpack_from("<I", data)[0])]
    while pending:
        kind, at = pending.pop()
        if (kind, at) in seen:
            continue
        seen.add((kind, at))
        if len(found) > 4 * len(data):
            raise struct.error("an earlier fault")
        vtable = at - struct.unpack_from("<i", data, at)[0]
        entries = (struct.unpack_from("<H", data, vtable)[0] - 4) // 2
        before = 0
        for k, field in enumerate(TABLES.get(kind, ())[:entries]):
            offset = struct.unpack_from("<H", data, vtable + 4 + 2 * k)[0]
            if not offset:
                before = 0
            elif field.type in SCALARS:
                found.append(Place(at + offset, field.type, kind, field.name))
                before = struct.unpack_from("<" + SCALARS[field.type], data, at + offset)[0]
            elif field.type != "skip":
                leads = UNIONS[kind, field.name][before] if field.type == "union" else field.type
                found.append(Place(at + offset, "offset", kind, field.name, leads))
                pending += _within(
                    data, found, kind, field.name, leads, at + offset + struct.unpack_from("<I", data, at + offset)[0]
                )
    return tuple(found)


def _within(data: bytes, found: list[Place], table: str, field: str, leads: str, target: int) -> list[tuple[str, int]]:
    """Note the numbers of a vector; the tables that follow from a field."""
    if leads in TABLES:
        return [(leads, target)]
    if not leads.startswith("["):
        return []
    inner, count = leads[1:-1], struct.unpack_from("<I", data, target)[0]
    if count > len(data):
        raise struct.error("an earlier fault")
    found.append(Place(target, "u32", table, f"length of {field}"))
    if inner in SCALARS:
        size = struct.calcsize("<" + SCALARS[inner])
        found += [Place(target + 4 + size * k, inner, table, field) for k in range(min(count, 64))]
        return []
    at = [target + 4 + 4 * k for k in range(count)]
    found += [Place(a, "offset", table, field, inner) for a in at]
    return [(inner, a + struct.unpack_from("<I", data, a)[0]) for a in at]


def _written(data: bytes, place: Place, value: float) -> bytes:
    letter = SCALARS[place.type]
    changed = bytearray(data)
    if letter == "f":
        with np.errstate(over="ignore"):
            struct.pack_into("<f", changed, place.at, np.float32(value))
    else:
        bits = 8 * struct.calcsize("<" + letter)
        changed[place.at:place.at + bits // 8] = (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")
    return bytes(changed)


def _a_number(
    data: bytes, random: Random, tables: Sequence[str], fields: Sequence[str], values: Sequence[float]
) -> bytes:
    """One number of these tables and fields is another; any of the file where there is none of them."""
    known = places(data)
    chosen = [
        p for p in known if p.type != "offset" and (not tables or p.table in tables)
        and (not fields or p.field in fields)
    ]
    chosen = chosen or [p for p in known if p.type != "offset"]
    place = chosen[random.integers(len(chosen))]
    drawn = FLOATS if place.type == "f32" else values
    return _written(data, place, drawn[int(random.integers(len(drawn)))])


def change(data: bytes, random: Random) -> bytes:
    """Any number of the file is another."""
    return _a_number(data, random, (), (), ABSURD)


def resize(data: bytes, random: Random) -> bytes:
    """A dimension of a tensor is another."""
    return _a_number(data, random, ("Tensor",), ("shape", "shape_signature", "length of shape"), ABSURD)


def retype(data: bytes, random: Random) -> bytes:
    """A tensor has another element type, or is said to be a variable."""
    return _a_number(data, random, ("Tensor",), ("type", "is_variable"), range(len(ELEMENT_TYPES) + 1))


def requantize(data: bytes, random: Random) -> bytes:
    """A scale, a zero point or the axis of them is another."""
    return _a_number(data, random, ("QuantizationParameters",), (), ABSURD)


def tangle(data: bytes, random: Random) -> bytes:
    """An operator takes or makes another tensor: cycles, tensors made twice, too few or too many of them."""
    return _a_number(
        data, random, ("Operator", "SubGraph"),
        ("inputs", "outputs", "length of inputs", "length of outputs", "intermediates"),
        (-2, *range(-1, 9), 64, 1 << 30)
    )


def recode(data: bytes, random: Random) -> bytes:
    """An operator is another one, or has the options of another one."""
    return _a_number(
        data, random, ("OperatorCode", "Operator"),
        ("builtin_code", "deprecated_builtin_code", "builtin_options_type", "version"), range(len(OPERATORS) + 1)
    )


def exaggerate(data: bytes, random: Random) -> bytes:
    """An option of an operator is absurd."""
    return _a_number(data, random, [t for t in TABLES if t.endswith("Options")], (), ABSURD)


def revalue(data: bytes, random: Random) -> bytes:
    """A stored tensor has other values, or another buffer, or another length."""
    which = random.integers(3)
    if which == 0:
        return _a_number(data, random, ("Tensor",), ("buffer",), range(12))
    if which == 1:
        return _a_number(data, random, ("Buffer",), ("length of data", "offset", "size"), ABSURD)
    return _a_number(data, random, ("Buffer",), ("data",), (0, 1, 127, 128, 255))


def redirect(data: bytes, random: Random) -> bytes:
    """An offset leads elsewhere: to another table of that kind, or anywhere."""
    offsets = [p for p in places(data) if p.type == "offset"]
    place = offsets[random.integers(len(offsets))]
    alike = [p for p in offsets if p.leads == place.leads]
    other = alike[random.integers(len(alike))]
    target = other.at + struct.unpack_from("<I", data, other.at)[0] if random.random() < 0.7 else int(
        random.integers(len(data))
    )
    changed = bytearray(data)
    struct.pack_into("<I", changed, place.at, (target - place.at) & 0xFFFFFFFF)
    return bytes(changed)


CHANGES: tuple[Damage, ...] = (change, resize, retype, requantize, tangle, recode, exaggerate, revalue, redirect)
_WEIGHTS = (0.16, 0.18, 0.08, 0.08, 0.12, 0.08, 0.14, 0.08, 0.08)


def mutate(data: bytes, random: Random) -> tuple[str, bytes]:
    """`data` with one to three faults, and their names; those after one in the offsets are in bytes."""
    return faulty(
        data, random, CHANGES, _WEIGHTS, (struct.error, IndexError, MemoryError),
        lambda random: flip if random.random() < 0.5 else cut
    )


# Seeds


def _branch(kind: str) -> Graph:
    return Graph([T("a", (2, 3)), T("b", (2, 3))], [Op(kind, [0], [1])], [0], [1])


def _conditional() -> bytes:
    tensors, values = [
        T("c", (1,), "bool"), T("x", (2, 3)), T("y", (2, 3))
    ], {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}
    return model(tensors, [Op("IF", [0, 1], [2], "IfOptions", values)], [0, 1], [2], _branch("RELU"), _branch("NEG"))


def _looping() -> bytes:
    tensors = [T("k", (1,), "int32"), T("x", (2, 3)), T("n", (1,), "int32"), T("y", (2, 3))]
    condition = Graph(
        [T("k", (1,), "int32"), T("x", (2, 3)), T("most", (1,), "int32", [4]), T("less", (1,), "bool")],
        [Op("LESS", [0, 2], [3])], [0, 1], [3]
    )
    body = Graph([
        T("k", (1,), "int32"), T("x", (2, 3)), T("one", (1,), "int32", [1]), T("n", (1,), "int32"), T("y", (2, 3))
    ],
                 [Op("ADD", [0, 2], [3], "AddOptions"), Op("TANH", [1], [4])], [0, 1], [3, 4])
    return model(
        tensors, [Op("WHILE", [0, 1], [2, 3], "WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})],
        [0, 1], [2, 3], condition, body
    )


def _moving() -> bytes:
    """Operators whose shapes are values."""
    tensors = [T("x", (2, 3, 4)), T("s", (2,), "int32", [6, 4]), T("r", (6, 4)), T(
        "p", (2, 2), "int32", [[1, 0], [0, 2]]
    ), T("z", (7, 6)),
               T("b", (2,), "int32", [1, 1]), T("e", (2,), "int32", [5, 6]), T("t", (2,), "int32", [1, 2]),
               T("y", (4, 3)), T("m", (2,), "int32", [2, 1]), T("w", (8, 3))]
    operators = [
        Op("RESHAPE", [0, 1], [2], "ReshapeOptions", {"NewShape": [6, 4]}), Op("PAD", [2, 3], [4]),
        Op("STRIDED_SLICE", [4, 5, 6, 7], [8], "StridedSliceOptions"), Op("TILE", [8, 9], [10])
    ]
    return model(tensors, operators, [0], [10])


@functools.cache
def small_models() -> tuple[tuple[str, bytes], ...]:
    """Names and bytes of the small models."""
    made = {**MODELS, "if": _conditional, "while": _looping, "moving": _moving}
    return tuple((name, make()) for name, make in made.items())


@functools.cache
def suite_models() -> tuple[tuple[str, bytes], ...]:
    """The models under `TILEWRIGHT_TFLITE_SUITE`, the smaller ones."""
    folder = Path(os.environ.get("TILEWRIGHT_TFLITE_SUITE", "/nonexistent"))
    return tuple(
        (str(p.relative_to(folder)), p.read_bytes()) for p in sorted(folder.rglob("*.tflite"))
        if p.stat().st_size <= LARGEST_SEED
    )


def made(number: int, kinds: Sequence[tuple[tuple[str, bytes], ...]]) -> Made:
    """The mutation of that number. `kinds` are sets of seeds, drawn from alike."""
    random = np.random.default_rng(number)
    models = kinds[int(random.integers(len(kinds)))]
    name, data = models[int(random.integers(len(models)))]
    how, mutated = mutate(data, random)
    return Made(f"{name}: {how}", mutated)


def models(kinds: Sequence[tuple[tuple[str, bytes], ...]]) -> Format:
    """Mutations of these sets of seeds."""
    return Format(
        FILE, functools.partial(made, kinds=kinds), DOORS, TURNS, preloaded=["tilewright.relay.frontend.tflite"]
    )


def main(arguments: Sequence[str]) -> int:
    """Send many; exit with 1 when there is an offender."""
    chosen = damaged_files.options(__doc__, 2000, [*DOORS]).parse_args(arguments)
    kinds = [small_models()] if chosen.small or not suite_models() else [small_models(), suite_models(), suite_models()]
    return damaged_files.report(models(kinds), chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
