"""The page of an accelerator, from its declaration: memories, instructions with their bits, operators with their forms,
and refusals."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from tilewright.backends.accelerators.declared.declaration import Accelerator, Instruction, Operator

_OPERATORS = (
    "The operators in the order in which they are matched. Each entry has the attributes of a match, and the pattern.",
    "A line `refused` gives a limit that a generated test program exceeded; such operators stay on the CPU.",
)


def page(accelerator: Accelerator, refused: Mapping[str, Mapping[str, int]] | None = None) -> str:
    """Return the page as Markdown. `refused` has the rules that programs broke, by operator, as found by `conformance`.
    """
    a = accelerator
    lines = [f"# {a.name}, version {a.version}", ""]
    module = inspect.getmodule(next(iter(a.instructions.values())).meaning) if a.instructions else None
    if module is not None and module.__doc__:
        lines += [module.__doc__.strip(), ""]
    rounding = f'the numerics "{a.numerics}"' if a.numerics else "TVM's default rounding"
    lines += [
        f"Tensors are {' or '.join(a.dtypes)}, and images have the layout {a.layout}. "
        f"Quantized operators use {rounding}.",
        ""
    ]
    if a.macs_per_cycle:
        lines += [f"The array computes up to {a.macs_per_cycle:,} multiplications a cycle.", ""]
    lines += [
        "## Memories", "", "| memory | bytes | alignment | bytes a cycle | latency in cycles |", "|---|---|---|---|---|"
    ]
    lines += [
        f"| {a.far.name} | {a.far.size:,} | {a.far.align} | {a.far.bytes_per_cycle} | {a.far.latency} |",
        f"| {a.near.name} | {a.near.size:,} | {a.near.align} | | |",
        "",
    ]
    lines += [
        "## Instructions", "",
        "`backends/accelerators/declared/stream.py` specifies LOAD and STORE; the other instructions follow. "
        f"The fingerprint of these memories and instructions is {a.fingerprint:08x}.",
        ""
    ]
    for i in a.instructions.values():
        lines += _instruction(i)
    lines += ["## Operators", "", *_OPERATORS, ""]
    for o in a.operators.values():
        lines += _operator(o, (refused or {}).get(o.name, {}))
    return "\n".join(lines).rstrip() + "\n"


def _instruction(i: Instruction) -> list[str]:
    lines = [
        f"### {i.opcode:#x} {i.name}", "", inspect.getdoc(i.meaning) or "", "", "| operand | dimensions | dtype |",
        "|---|---|---|"
    ]
    lines += [f"| {name} | `{text}` | {' or '.join(i.dtypes[name])} |" for name, text in i.texts.items()]
    if i.blocks:
        lines += ["", "Whole blocks only: " + ", ".join(f"{a} of {n}" for a, n in i.blocks.items()) + "."]
    if i.fields:
        lines += ["", "| field | bits | from | to |", "|---|---|---|---|"]
        at = 0
        for name, width in i.fields.items():
            low, high = i.limits(name)
            lines.append(f"| {name} | {at} to {at + abs(width) - 1} | {low:,} | {high:,} |")
            at += abs(width)
    return [*lines, ""]


def _operator(o: Operator, refused: Mapping[str, int]) -> list[str]:
    lines = [f"### {o.name}", "", (inspect.getdoc(type(o.form)) or "").strip(), ""]
    own = inspect.getdoc(o.lower)
    lines += [own, ""] if own else []
    lines += ["```text", repr(o.form.pattern()), "```", ""]
    return [*lines, *(f"- refused: {rule}" for rule in sorted(refused)), *([""] if refused else [])]
