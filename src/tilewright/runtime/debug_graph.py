"""A program as a graph in TVM's debug format, with a node for each input and step (`_tvmdbg_graph_dump.json`).

    {"nodes": [{"op": "null", "name": "x", "inputs": [], "attrs": {"T": "float32"}, "shape": [1, 3, 8, 8]},
               {"op": "kernel_0_conv2d_relu", "name": "kernel_0_conv2d_relu", "inputs": ["x"],
                "attrs": {"T": "float32", …}, "shape": [1, 8, 8, 8]}]}

Inputs come first, then the steps in order; constants are within the steps. Steps of the same kernel are numbered:
`…_1`, `…_2`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import RunError
from tilewright.base.types import DataType
from tilewright.runtime.manifest import Manifest
from tilewright.runtime.notes import Note
from tilewright.runtime.program import CONSTANT, INPUT, KEPT, WORKSPACE, Copy, KernelCall, Place, Step
from tilewright.runtime.stepping import step_name


@dataclass(frozen=True, slots=True)
class DebugNode:
    """A node: `step` is the number of its step, -1 for an input; `shapes` and `dtypes` are those of its outputs,
    `inputs` the numbers of the nodes that it reads."""

    name: str
    op: str
    step: int
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[DataType, ...]
    inputs: tuple[int, ...]
    origin: str = ""
    note: Note | None = None

    def as_dict(self, names: list[str]) -> dict[str, Any]:
        """Return the node in TVM's format; its shape and type are those of its first output."""
        attrs = {"T": str(self.dtypes[0]) if self.dtypes else ""}
        if self.step >= 0:
            attrs |= {
                "func_name": self.op, "num_inputs": str(len(self.inputs)), "num_outputs": str(len(self.shapes)),
                "origin": self.origin
            }
        return {
            "name": self.name, "op": self.op, "inputs": [names[k] for k in self.inputs], "attrs": attrs,
            "shape": list(self.shapes[0]) if self.shapes else [], "shapes": [list(s) for s in self.shapes],
        }


def debug_nodes(manifest: Manifest) -> list[DebugNode]:
    """Return the nodes of a program. Raises `RunError` if its steps cannot be listed."""
    if len(manifest.notes) != len(manifest.steps) or not manifest.steps or not isinstance(manifest.parts, int):
        raise RunError(
            f"'{manifest.name}' cannot be debugged step by step: it has control flow or dynamic shapes, or was "
            "compiled by an older version; compile it again",
            code="TW0714")
    found = [DebugNode(t.name, "null", -1, (tuple(t.shape),), (t.dtype,), ()) for t in manifest.inputs]
    writers: list[tuple[Place, int]] = [(Place(INPUT, k), k) for k in range(len(manifest.inputs))]
    taken: dict[str, int] = {}
    for k, (step, note) in enumerate(zip(manifest.steps, manifest.notes, strict=True)):
        name = step_name(step)
        taken[name] = count = taken.get(name, 0) + 1
        reads, writes = _places(step, note)
        sources = tuple(dict.fromkeys(at for place in reads for at in _writers(writers, place, k, manifest)))
        shapes = tuple(
            (v.shape[0] * manifest.parts, *v.shape[1:]) if manifest.parts != 1 else v.shape for v in note.outputs)
        writers += [(place, len(found)) for place in writes]
        found.append(DebugNode(
            name if count == 1 else f"{name}_{count - 1}", name, k, shapes, tuple(v.dtype for v in note.outputs),
            sources, getattr(step, "origin", ""), note))
    return found


def _places(step: Step, note: Note) -> tuple[list[Place], list[Place]]:
    """Return the places that a step reads, except constants, and those that it writes."""
    match step:
        case Copy():
            reads, writes = [step.source], [step.destination]
        case KernelCall():
            count = len(step.args) - len(note.outputs)
            reads, writes = list(step.args[:count]), list(step.args[count:])
        case _:
            reads, writes = [v.place for v in step.inputs], [v.place for v in step.outputs]
    return [p for p in reads if p.kind not in (CONSTANT, KEPT)], writes


def _writers(writers: list[tuple[Place, int]], place: Place, step: int, manifest: Manifest) -> list[int]:
    """Return the nodes that wrote the data that a step reads: all writers of parts of the live value in the workspace,
    else the last writer."""
    if place.kind != WORKSPACE:
        return [at for p, at in writers if (p.kind, p.offset) == (place.kind, place.offset)][-1:]
    first = len(manifest.inputs)
    held = next(
        (
            h for h in manifest.arena
            if h.birth <= step <= h.death and h.offset <= place.offset < h.offset + max(1, h.nbytes)),
        None)
    if held is None:
        return []
    return [
        at for p, at in writers
        if p.kind == WORKSPACE and at - first >= held.birth
        and held.offset <= p.offset < held.offset + max(1, held.nbytes)]
