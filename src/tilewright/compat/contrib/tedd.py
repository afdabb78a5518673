"""TVM's `tvm.contrib.tedd` (tensor expression debug display): schedules as drawings in the language of Graphviz.

    viz_dataflow_graph(s, dot_file_path="dataflow.dot")          stages and the tensors between them
    viz_schedule_tree(s, dot_file_path="tree.dot")               loops of each stage, and where it is computed
    viz_itervar_relationship_graph(s, dot_file_path="axes.dot")  splits and fusions of the axes of each stage

Stages are numbered in producer order, inputs included.
"""

from __future__ import annotations

import html
import importlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tilewright.base.errors import ArtifactError
from tilewright.scalar.expr import Buffer, Load, PrimExpr
from tilewright.scalar.walk import rewrite, text_of
from tilewright.te.schedule import Schedule
from tilewright.te.stage import Fuse, Split, Stage, root_axes
from tilewright.te.tensor import ComputeOp, Reduce, TensorElem
from tilewright.tir.stmt import IterVar

__all__ = ["viz_dataflow_graph", "viz_itervar_relationship_graph", "viz_schedule_tree"]

_KINDS: Final = {"spatial": "kDataPar", "reduce": "kCommReduce", "ordered": "kOrdered", "opaque": "kOpaque"}
_MARKS: Final = {
    "vectorized": "kVectorized", "unrolled": "kUnrolled", "parallel": "kParallelized", "tensorized": "kTensorized",
    "thread": "kThreadIndex",
}
_COLORS: Final = {
    "kDataPar": "#FFFFFF", "kThreadIndex": "#2980B9", "kCommReduce": "#FAD7A0", "kOrdered": "#D35400",
    "kOpaque": "#ABB2B9", "kUnrolled": "#D2B4DE", "kVectorized": "#AED6F1", "kParallelized": "#F5B7B1",
    "kTensorized": "#A9DFBF",
}
"""Background of an axis by its kind."""


def viz_dataflow_graph(
    sch: Schedule, show_svg: bool = False, dot_file_path: str | os.PathLike[str] = "", output_dot_string: bool = False
) -> str | None:
    """Draw stages and the tensors that they read and write.

    Writes the file `dot_file_path`, shows the picture in a notebook (`show_svg`), and returns the text if
    `output_dot_string` is set. Raises `ArtifactError` where the picture cannot be made.
    """
    lines = []
    tensors = {t: f"Tensor_{k}_{t.index}" for k, s in enumerate(sch.stages) for t in s.op.outputs}
    for k, stage in enumerate(sch.stages):
        ins = [_cell(f"I_{n}", f"I_{n}") for n, _ in enumerate(stage.op.inputs)]
        outs = [_cell(f"O_{n}", f"O_{n}") for n, _ in enumerate(stage.op.outputs)]
        rows = [_row(ins), _row([_cell(_title(stage))]), _row(outs)]
        lines.append(f"Stage_{k} [label={_table(rows)} shape=none];")
        for n, t in enumerate(stage.op.outputs):
            shape = ", ".join(map(str, t.shape))
            text = f"{t.name}<br/>({_escaped(shape)})<br/>{t.dtype}"
            lines.append(f"{tensors[t]} [label=<{text}> shape=Mrecord];")
            lines.append(f"Stage_{k}:O_{n} -> {tensors[t]};")
        lines += [f"{tensors[t]} -> Stage_{k}:I_{n};" for n, t in enumerate(stage.op.inputs) if t in tensors]
    return _finish("Dataflow Graph", lines, show_svg, dot_file_path, output_dot_string)


def viz_schedule_tree(
    sch: Schedule, show_svg: bool = False, dot_file_path: str | os.PathLike[str] = "", output_dot_string: bool = False
) -> str | None:
    """Draw the loops of each stage, its computation, and an arrow to the loop in which it is computed.

    The arguments and errors are those of `viz_dataflow_graph`. Dashed arrows are inlined stages.
    """
    lines = [*_legend(), "ROOT [label=ROOT shape=oval];"]
    numbers = {id(s): k for k, s in enumerate(sch.stages)}
    for k, stage in enumerate(sch.stages):
        if not isinstance(stage.op, ComputeOp):
            continue
        rows = [_row([_cell(f"{_title(stage)}<br/>Scope: {stage.scope or 'global'}", columns=2)])]
        for n, axis in enumerate(stage.leaf_iter_vars):
            rows.append(_row([_cell(str(n)), _axis_cell(stage, axis, f"itervar{n}")]))
        rows.append(_row([_cell(_escaped(f"[{', '.join(map(_body, stage.op.body))}]"), columns=2)]))
        lines.append(f"Stage_{k} [label={_table(rows)} shape=none];")
        end = "ROOT"
        if stage.place is not None:
            parent, axis = stage.place
            end = f"Stage_{numbers[id(parent)]}"
            end += f":itervar{parent.leaf_iter_vars.index(axis)}" if axis in parent.leaf_iter_vars else ""
        style = ' style=dashed [label="inlined"]' if stage.inlined else ""
        lines.append(f'Stage_{k} -> {end} [color="#000000"]{style};')
    return _finish("Schedule Tree", lines, show_svg, dot_file_path, output_dot_string)


def viz_itervar_relationship_graph(
    sch: Schedule, show_svg: bool = False, dot_file_path: str | os.PathLike[str] = "", output_dot_string: bool = False
) -> str | None:
    """Draw the axes of each stage, and the splits and fusions that made them.

    The arguments and errors are those of `viz_dataflow_graph`.
    """
    lines = list(_legend())
    for k, stage in enumerate(sch.stages):
        axes = list(dict.fromkeys((*root_axes(stage.op), *stage.all_iter_vars)))
        names = {axis: f"IterVar_{k}_{n}" for n, axis in enumerate(axes)}
        lines.append(f"subgraph cluster_Stage_{k} {{ label=<{_title(stage)}>;")
        lines += [
            f"  {name} [label={_table([_row([_axis_cell(stage, axis, 'itervar')])])} shape=none];"
            for axis, name in names.items()]
        lines += [f"  {line}" for line in _relations(stage, k, names)]
        lines.append("}")
    return _finish("IterVar Relationship Graph", lines, show_svg, dot_file_path, output_dot_string)


def _relations(stage: Stage, number: int, names: dict[IterVar, str]) -> Iterator[str]:
    """Yield the node of each split and fusion of a stage, and its arrows."""
    found = [r for r in stage.relations if isinstance(r, (Split, Fuse))]
    for n, relation in enumerate(found):
        if isinstance(relation, Split):
            name = f"Split_Relation_{number}_{n}"
            ins = {"Input": relation.parent}
            outs = {"Outer": relation.outer, "Inner": relation.inner}
        else:
            name = f"Fuse_Relation_{number}_{n}"
            ins = {("Outer", "Inner")[k] if len(relation.parents) == 2 else f"Input_{k}": a
                   for k, a in enumerate(relation.parents)}
            outs = {"Fused": relation.fused}
        rows = [
            _row([_cell(port, port) for port in ins]), _row([_cell(name.partition("_")[0])]),
            _row([_cell(port, port) for port in outs])]
        yield f"{name} [label={_table(rows)} shape=none];"
        yield from (f"{names[a]}:itervar -> {name}:{port};" for port, a in ins.items())
        yield from (f"{name}:{port} -> {names[a]}:itervar;" for port, a in outs.items())


def _axis_cell(stage: Stage, axis: IterVar, port: str) -> str:
    """Return a cell with the name, the kind and the range of an axis, in the colour of its kind."""
    kind = next((_MARKS[m.kind] for m in stage.marks if m.axis is axis and m.kind in _MARKS), _KINDS[axis.kind])
    thread = next((m.value.thread_tag for m in stage.marks if m.axis is axis and m.kind == "thread"), "")
    text = f"{axis.var.name}({kind})" + (f"({thread})" if thread else "")
    begin = 0
    return _cell(f"{_escaped(text)}<br/>T.Range({begin}, {_escaped(text_of(axis.extent))})", port, color=_COLORS[kind])


def _body(e: PrimExpr) -> str:
    """Return the text of a computation: `sum(A[i, k], axis=[k])`."""
    if isinstance(e, Reduce):
        axes = ", ".join(a.var.name for a in e.axes)
        return f"{e.combiner.name}({', '.join(map(_body, e.sources))}, axis=[{axes}])"
    return text_of(rewrite(e, _as_load))


def _as_load(e: PrimExpr) -> PrimExpr | None:
    if not isinstance(e, TensorElem):
        return None
    return Load(Buffer(e.tensor.name, e.tensor.shape, e.tensor.dtype), [rewrite(i, _as_load) for i in e.indices])


def _legend() -> list[str]:
    rows = [_row([_cell(kind, color=color)]) for kind, color in _COLORS.items()]
    return ["subgraph cluster_legend { label=Legend;", f"  legend [label={_table(rows)} shape=none];", "}"]


def _title(stage: Stage) -> str:
    return _escaped(stage.op.name)


def _cell(text: str, port: str = "", columns: int = 1, color: str = "") -> str:
    found = {"PORT": port, "COLSPAN": str(columns) if columns > 1 else "", "BGCOLOR": color}
    return "<TD" + "".join(f' {k}="{v}"' for k, v in found.items() if v) + f">{text}</TD>"


def _row(cells: Sequence[str]) -> str:
    return f"<TR>{''.join(cells)}</TR>" if cells else ""


def _table(rows: Sequence[str]) -> str:
    return f'<<TABLE BORDER="0" CELLBORDER="1" CELLSPACING="0">{"".join(rows)}</TABLE>>'


def _escaped(text: str) -> str:
    return html.escape(text, quote=False)


def _finish(
    title: str, lines: Sequence[str], show_svg: bool, path: str | os.PathLike[str], returned: bool
) -> str | None:
    text = "\n".join([f'digraph "{title}" {{', *(f"  {line}" for line in lines), "}"]) + "\n"
    if path:
        Path(path).write_text(text, encoding="utf-8")
    if show_svg:
        _show(text)
    return text if returned else None


def _show(text: str) -> None:
    """Show a drawing in a notebook."""
    program = shutil.which("dot")
    try:
        display: Any = importlib.import_module("IPython.display")
    except ImportError:
        display = None
    if program is None or display is None:
        missing = "the package IPython" if display is None else "the program dot of Graphviz"
        raise ArtifactError(f"a picture needs {missing}; install it, or give dot_file_path", code="TW0507")
    done = subprocess.run([program, "-Tsvg"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ArtifactError(f"{program} -Tsvg\nfailed:\n{done.stderr}", code="TW0508")
    display.display(display.SVG(done.stdout))
