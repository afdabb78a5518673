"""TVM's drawings of programs (`contrib.relay_viz`, `contrib.tedd`), and its call of Clang."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.base.errors import ArtifactError, OptionError
from tilewright.compat.contrib import clang, relay_viz, tedd


def module() -> tvm.IRModule:
    """`main` calls `twice`, which uses its parameter two times."""
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    twice = relay.GlobalVar("twice")
    return tvm.IRModule({twice: relay.Function([y], relay.add(y, y)),
                         relay.GlobalVar("main"): relay.Function([x], relay.nn.relu(relay.Call(twice, [x])))})


def test_a_module_as_trees(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    drawn = relay_viz.RelayVisualizer(module())
    drawn.render()
    text = capsys.readouterr().out
    assert text == """@main
`--Function
   |--Var(Input) name_hint: x, shape: (2,), dtype: float32
   `--Call
      |--nn.relu
      `--Call
         |--GlobalVar twice
         `--Var(Input) name_hint: x, shape: (2,), dtype: float32
@twice
`--Function
   |--Var(Input) name_hint: y, shape: (2,), dtype: float32
   `--Call
      |--add
      |--Var(Input) name_hint: y, shape: (2,), dtype: float32
      `--Var(Input) name_hint: y, shape: (2,), dtype: float32
"""
    drawn.render(str(tmp_path / "trees.txt"))
    assert (tmp_path / "trees.txt").read_text() == text


def test_a_parser_and_a_plotter_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    class Parser(relay_viz.VizParser):
        def get_node_edges(self, node: Any, relay_param: Any, node_to_id: Any) -> Any:
            if isinstance(node, relay.Var):
                return relay_viz.VizNode(node_to_id[node], "Mine", node.name_hint), []
            return relay_viz.TermVizParser().get_node_edges(node, relay_param, node_to_id)

    class Twice(relay_viz.terminal.TermGraph):
        def node(self, viz_node: relay_viz.VizNode) -> None:
            super().node(viz_node)
            if viz_node.type_name == "Mine":
                super().node(relay_viz.VizNode("copy", "Copy", ""))
                super().edge(relay_viz.VizEdge("copy", viz_node.identity))

    class Plotter(relay_viz.TermPlotter):
        def create_graph(self, name: str) -> Twice:
            made = self._name_to_graph[name] = Twice(name)
            return made

    x = relay.var("x", shape=(2,))
    shared = relay.exp(x)
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.Tuple([shared, shared])))
    relay_viz.RelayVisualizer(mod, {}, Plotter(), Parser()).render()
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:4] == ["   |--Mine x", "   |  `--Copy"] and lines[-1] == "      `--Call (reuse)"


def test_a_module_as_a_graph_of_graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    x, w = relay.var("x", shape=(1, 2)), relay.var("w", shape=(3, 2))
    body = relay.If(relay.const(True), relay.nn.dense(x, w, units=3), relay.zeros((1, 3), "float32"))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.TupleGetItem(relay.Tuple([body]), 0)))
    plotter = relay_viz.DotPlotter(graph_attr={"rankdir": "LR"})
    relay_viz.RelayVisualizer(mod, {"w": None}, plotter, relay_viz.DotVizParser()).render(str(tmp_path / "net"))
    text = (tmp_path / "net.dot").read_text()
    assert text.startswith('digraph {\n  graph [rankdir="LR"];\n  subgraph "cluster_main" {')
    for said in (r'label="Var\(Param\)\\nname_hint: w\\nshape: \(3, 2\)', r'label="Call nn.dense\\nunits: 3',
                 r'label="Const\\nshape: \(\)\\ndtype: bool\\nvalue: True"', r'label="TupleGetItem\\nidx: 0"',
                 '"main_0" -> "main_'):
        assert re.search(said, text), said
    with pytest.raises(OptionError, match="expressions and operators"):
        relay_viz.DotVizParser().get_node_edges(1, {}, {})


def test_schedules_as_graphs(tmp_path: Path) -> None:
    n, m = te.var("n"), te.var("m")
    a, k = te.placeholder((n, m), name="A"), te.reduce_axis((0, m), "k")
    b = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")
    c = te.compute((n,), lambda i: b[i] + 1, name="C")
    s = te.create_schedule(c.op)
    _, inner = s[b].split(k, factor=16)
    s[b].unroll(inner)
    s[b].compute_at(s[c], c.op.axis[0])
    path = tmp_path / "flow.dot"
    assert tedd.viz_dataflow_graph(s, dot_file_path=path) is None
    flow = path.read_text()
    for said in ('digraph "Dataflow Graph"', "Stage_0:O_0 -> Tensor_0_0", "Tensor_0_0 -> Stage_1:I_0"):
        assert said in flow
    tree = tedd.viz_schedule_tree(s, output_dot_string=True) or ""
    for said in (r"Stage_1.*B<br/>Scope: global.+>0<.+>i\(kDataPar\).+>2<.+>k.inner\(kUnrolled\)",
                 r"\[sum\(A\[i, k\], axis=\[k\]\)\]", r'Stage_1 -> Stage_2:itervar0 \[color="#000000"\]',
                 'Stage_2 -> ROOT', "label=ROOT", "subgraph cluster_legend"):
        assert re.search(said, tree), said
    axes = tedd.viz_itervar_relationship_graph(s, output_dot_string=True) or ""
    for said in (r"subgraph cluster_Stage_0", r"\(kDataPar\)<br/>T.Range\(0, n\)",
                 r"\(kCommReduce\)<br/>T.Range\(0, m\)",
                 "Split_Relation_1_0 +.+>Split", "IterVar_1_1:itervar -> Split_Relation_1_0:Input",
                 "Split_Relation_1_0:Inner -> IterVar_1_3:itervar"):
        assert re.search(said, axes), said


def test_fused_inlined_and_threaded_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    a = te.placeholder((4, 8), name="A")
    b = te.compute((4, 8), lambda i, j: a[i, j] * 2, name="B")
    c = te.compute((4, 8), lambda i, j: b[i, j] + 1, name="C")
    s = te.create_schedule(c.op)
    s[b].compute_inline()
    fused = s[c].fuse(*c.op.axis)
    s[c].bind(fused, te.thread_axis("threadIdx.x"))
    tree = tedd.viz_schedule_tree(s, output_dot_string=True) or ""
    assert 'style=dashed [label="inlined"]' in tree and "(kThreadIndex)(threadIdx.x)" in tree
    axes = tedd.viz_itervar_relationship_graph(s, output_dot_string=True) or ""
    assert "IterVar_2_0:itervar -> Fuse_Relation_2_0:Outer" in axes
    assert "Fuse_Relation_2_0:Fused -> IterVar_2_2:itervar" in axes
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ArtifactError, match="a picture needs"):
        tedd.viz_dataflow_graph(s, show_svg=True)


@pytest.mark.slow
def test_source_text_as_llvm(tmp_path: Path) -> None:
    source = 'extern "C" int twice(int x) {\n  return 2 * x;\n}\n'
    text = clang.create_llvm(source, output=tmp_path / "twice.ll")
    assert "@twice(" in text and (tmp_path / "twice.ll").read_text() == text
    with pytest.raises(ArtifactError, match="error"):
        clang.create_llvm("int broken(\n")
    with pytest.raises(ArtifactError, match="cannot be run"):
        clang.create_llvm(source, cc="no_such_compiler")


def test_commands_of_clang(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("clang-9", "clang-14", "clang-format"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [Path(c).name for c in clang.find_clang()[:2]] == ["clang-14", "clang-9"]
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert clang.find_clang(required=False) == []
    with pytest.raises(ArtifactError, match="Clang was not found"):
        clang.find_clang()
