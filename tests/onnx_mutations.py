"""Damaged and hostile ONNX models (`tests/mutated_models.py`) through every door of the compiler
(`tests/damaged_files.py`).

`python tests/onnx_mutations.py --count 5000 --seed 0` prints how many were refused, compiled and run, by door and kind
of error; then every offender.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import damaged_files
import mutated_models
from damaged_files import Format, Made, Random, an_input, note, usual_doors
from mutated_models import DATA_BYTES, DATA_FILE
from tilewright.compat.onnx_session import InferenceSession

FILE = "model.onnx"


def through_session(folder: Path, made: Made, random: Random) -> str:
    """`InferenceSession`, and a run."""
    session = InferenceSession(folder / FILE, threads=1)
    note("run")
    fed = {n: an_input(str(dtype), dims, random) for n, dims, dtype in session.model._signature}
    if any(x is None for x in fed.values()):
        return "compiled"
    session.run(None, fed)
    return "ran"


DOORS = {**usual_doors(FILE), "session": through_session}
TURNS = ("compile",) * 4 + ("session",) * 2 + ("check", "command check", "command compile", "command run")


def models(kinds: Sequence[tuple[tuple[str, bytes], ...]]) -> Format:
    """Mutations of these sets of seeds, drawn from alike."""
    return Format(
        FILE, lambda number: Made(*mutated_models.made(number, kinds)), DOORS, TURNS, {DATA_FILE: bytes(DATA_BYTES)},
        ["tilewright.relay.frontend.onnx"]
    )


def main(arguments: Sequence[str]) -> int:
    """Send many; exit with 1 when there is an offender."""
    chosen = damaged_files.options(__doc__, 5000, [*DOORS]).parse_args(arguments)
    small, nodes, real = mutated_models.small_models, mutated_models.node_models, mutated_models.networks
    kinds = [small()] if chosen.small else [small()] * 8 + [nodes()] * 26 + ([real()] if real() else [])
    return damaged_files.report(models(kinds), chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
