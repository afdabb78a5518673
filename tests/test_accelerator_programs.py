"""Programs of an accelerator written by hand, as bytes, and what the machine refuses."""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from test_accelerator import Layers, half32
from tilewright import relay
from tilewright.backends.accelerators.declared import (
    Memory,
)
from tilewright.backends.accelerators.declared.program import Program, load
from tilewright.backends.accelerators.declared.simulator import Simulator, SimulatorError
from tilewright.backends.accelerators.declared.stream import LOAD, STORE, Command, Compute, Move, Tile, decode, encode
from tilewright.backends.accelerators.npu import conv, copy, npu
from tilewright.base.errors import ArtifactError, CompileError, RunError


def moved(opcode: int = LOAD, near: int = 0, far: int = 0, count: int = 16) -> Move:
    return Move(opcode, 1, near, far, 0, (1, 1, 1, count), (count, count, count, 1), (0, 0, 0, 0), (0, 0, 0, 0))


def copied(source: int, target: int, count: int = 16, dtype: str = "int8") -> Compute:
    return Compute(copy, {"x": Tile(source, (1, 1, 1, count), "int8"), "y": Tile(target, (1, 1, 1, count), dtype)}, {})


def program(*commands: Command, far: int = 64) -> Program:
    from tilewright.backends.accelerators.declared.program import Layer, TensorPlacement

    where = (TensorPlacement(0, (1, 1, 1, 16), "int8"),)
    return Program(
        "f", where, (TensorPlacement(16, (1, 1, 1, 16), "int8"),), (Layer("layer", "copy", 0, 32),), far, b"",
        b"".join(map(encode, commands))
    )


GOOD = (Command(moved(), 0, 0), Command(copied(0, 16), 0, 1), Command(moved(STORE, 16, 16), 0, 1))


def test_a_program_by_hand() -> None:
    simulator = Simulator(npu, program(*GOOD))
    x = np.arange(16, dtype=np.int8).reshape(1, 1, 1, 16)
    np.testing.assert_array_equal(simulator.run(x)[0], x)
    assert simulator.cycles().total == 33 + 1 + 33
    assert (
        simulator.text().splitlines()[1] == "copy     near[0x10][1, 1, 1, 16] <- x=near[0x0][1, 1, 1, 16]  ; layer 0, "
        "after 1"
    )
    assert (
        simulator.text().splitlines()[0] == "LOAD     near[0x0] <- far[0x0] [1, 1, 1, 16] by [16, 16, 16, 1]  ; layer 0"
    )


@pytest.mark.parametrize(("commands", "said"), [
    (
        (GOOD[0], replace(GOOD[1], wait=0), GOOD[2]),
        "begins at cycle 0, but the other queue uses its memory until cycle 33"
    ),
    (
        (GOOD[0], GOOD[1], replace(GOOD[2], wait=0)),
        "begins at cycle 33, but the other queue uses its memory until cycle 34"
    ),
    (
        (GOOD[0], replace(GOOD[1], wait=2), GOOD[2]),
        "waits for 2 commands of the other queue, of which only 1 precede it, so it never begins"
    ),
    ((GOOD[0], Command(copied(32, 16), 0, 1), GOOD[2]), "reads memory that was never written"),
    ((Command(moved(near=(256 << 10) - 8), 0, 0),), "reaches byte 262152 of sram, which has 262144"),
    ((Command(moved(near=8), 0, 0),), "uses byte 8 of sram, but addresses must be multiples of 16"),
    ((Command(moved(far=60), 0, 0),), "reaches bytes 60 to 76 of dram, where the program has 64"),
    ((Command(moved(), 1, 0),), "is of layer 1, but the program has 1"),
    (
        (GOOD[0], Command(copied(0, 16, dtype="uint8"), 0, 1), GOOD[2]),
        r"copy gave int8\[1, 1, 1, 16\], but its command declares uint8"
    ),
])
def test_what_a_machine_would_get_wrong_without_a_word(commands: tuple[Command, ...], said: str) -> None:
    with pytest.raises(SimulatorError, match=said):
        Simulator(npu, program(*commands)).run(np.zeros((1, 1, 1, 16), np.int8))


def test_commands_say_the_same_as_bytes() -> None:
    fields = {"sh": 7, "sw": 1, "dh": 2, "dw": 3, "in_zero": -256, "once": 1, "out_zero": 255, "low": -1, "high": 127}
    shapes = {"x": (1, 9, 9, 3), "w": (2, 2, 3, 5), "q": (5, 4), "y": (1, 1, 2, 5)}
    dtypes = {"x": "uint8", "w": "int8", "q": "int32", "y": "uint8"}
    full = Compute(conv, {n: Tile(64 * k, shapes[n], dtypes[n]) for k, n in enumerate(conv.accesses)}, fields)
    around = Move(LOAD, 2, 32, 128, -7, (3, 4), (-8, 2), (1, 0), (0, 5))
    commands = [Command(full, 3, 9), Command(around, 65535, 1 << 31), *GOOD]
    assert list(decode(b"".join(map(encode, commands)), npu)) == commands
    with pytest.raises(ArtifactError, match="has the opcode 0x77 at byte 0, which npu does not have"):
        list(decode(struct.pack("<BxHI", 0x77, 0, 0), npu))
    with pytest.raises(ArtifactError, match="ends in the middle of a command"):
        list(decode(encode(commands[0])[:-1], npu))


def test_a_program_is_read_by_the_declaration_that_made_it() -> None:
    blob = program(*GOOD).save(npu)
    assert load(blob, npu) == program(*GOOD)
    rest = blob[16:]
    for wrong, said in (
        (b"GONE" + blob[4:], "begins with b'TWAS', but these bytes do not"),
        (blob[:4] + b"\2\0" + blob[6:], "has format 2, but this version reads 1"),
        (blob[:-1] + b"\0\1", "is damaged: its checksum does not match"),
        (blob[:8] + b"\0\0\0\0" + blob[12:], "but the one here is declared as version 1"),
        (blob[:12] + struct.pack("<I", zlib.crc32(rest[:-2])) + rest[:-2], "ends in the middle of a part"),
    ):
        with pytest.raises(ArtifactError, match=said):
            load(wrong, npu)
    with pytest.raises(ArtifactError, match="is for npu"):
        load(blob, half32)
    for changed, said in (
        ({"far_bytes": 1 << 40}, "needs 1099511627776 bytes of dram, which has 268435456"),
        ({"inputs": [{"address": 0, "shape": [1], "dtype": "object"}]}, "or refers to missing tensors"),
        ({"layers": [{"name": "a"}]}, "has a header that cannot be read: KeyError"),
        ({"outputs": 3}, "has a header that cannot be read: TypeError"),
    ):
        with pytest.raises(ArtifactError, match=said):
            load(with_header(blob, changed), npu)


def with_header(blob: bytes, changed: dict[str, Any]) -> bytes:
    """A program with another header, and the checksum of that."""
    (length,) = struct.unpack_from("<I", blob, 16)
    said = json.dumps({**json.loads(blob[20 : 20 + length]), **changed}).encode()
    rest = struct.pack("<I", len(said)) + said + blob[20 + length :]
    return blob[:12] + struct.pack("<I", zlib.crc32(rest)) + rest


def test_a_network_that_the_far_memory_has_no_room_for() -> None:
    small = replace(npu, name="small_npu", far=Memory("dram", 4096))
    small.instructions, small.operators = npu.instructions, npu.operators
    with pytest.raises(
        CompileError,
        match=r"takes [0-9,]+ bytes of dram, which has 4,096; split the network, or declare the actual size of the "
        r"memory"
    ):
        relay.build(small.register(override=True).partition_for(Layers("int8").network()), "llvm")


def test_arrays_that_a_program_does_not_take() -> None:
    from tilewright.backends.accelerators.declared.module import module_of

    module = module_of(npu)(program(*GOOD))
    out = tvm.nd.array(np.zeros((1, 1, 1, 16), "int8"))
    with pytest.raises(RunError, match=r"f takes int8\[1, 1, 1, 16\], but was given int8\[16\]"):
        module["f"](tvm.nd.array(np.zeros(16, "int8")), out)
    assert module.get_function("other") is None


# Another accelerator, and the commands
