"""`tilewright explain`: what it finds out, and that the page says it safely. The page in a browser:
test_explain_page.py."""

from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from host_examples import HOST_EXAMPLES
from small_models import cnn, mlp
from tflite_small import _conv
from tilewright import relay
from tilewright.backends.cpu.llvm.codegen import emit
from tilewright.backends.cpu.llvm.compile import assembly
from tilewright.backends.targets.target import Target
from tilewright.base.types import FLOAT32
from tilewright.compiler.report import BuildReport
from tilewright.driver.explain.content import Content, explained
from tilewright.driver.explain.difference import ADDED, CHANGED, REMOVED, SAME, Row, difference
from tilewright.driver.explain.graphs import ALONE, ALTERED, UNTOUCHED, Graph, GraphNode, compared
from tilewright.driver.explain.measurement import StepMeasure
from tilewright.driver.explain.memory import Memory
from tilewright.driver.explain.page import page_of, summary_of
from tilewright.driver.explain.recording import Recording
from tilewright.driver.main import main
from tilewright.runtime.manifest import Held

HOSTILE = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>\u2028"
CONTROL = (
    '#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 4), float32], %c: bool) { if (%c) { nn.relu(%x) } else { '
    'negative(%x) } }\n'
)


def hostile_model(folder: Path) -> Path:
    """A network each of whose nodes has a name that closes elements, and that begins new ones."""
    model = cnn()
    for n in model.graph.node:
        n.name = HOSTILE + n.name
    path = folder / "a & <b>.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture(scope="module")
def content() -> Content:
    """What is known of a small network, run."""
    return explained(tvm.compile(cnn().SerializeToString(), threads=1), "cnn")


def described(model: Any, **options: Any) -> Content:
    return explained(tvm.compile(model, **options), "model", run=False)


# --- what changed
# -------------------------------------------------------------------------------------------------------------


def rows(old: str, new: str) -> list[Row]:
    return difference(old.split("\n"), new.split("\n"))


def test_numbers_that_shift_are_no_change() -> None:
    old = "def @main(%x) {\n  %0 = nn.relu(%x);\n  %1 = tanh(%0);\n  exp(%1)\n}"
    new = "def @main(%x) {\n  %0 = negative(%x);\n  %1 = nn.relu(%x);\n  %2 = tanh(%1);\n  exp(%2)\n}"
    assert [r.kind for r in rows(old, new)] == [SAME, ADDED, SAME, SAME, SAME, SAME]


def test_a_value_that_is_read_from_elsewhere_is_a_change() -> None:
    old = "  %0 = nn.relu(%x);\n  %1 = tanh(%x);\n  add(%0, %1)"
    new = "  %0 = nn.relu(%x);\n  %1 = tanh(%x);\n  add(%0, %0)"
    assert rows(old, new) == [Row(SAME, 1, 1), Row(SAME, 2, 2), Row(CHANGED, 3, 3)]


def test_a_call_that_is_another_one_now_is_one_row_and_its_readers_are_as_before() -> None:
    old = '  %0 = nn.conv2d(%x, %w, padding=[1, 1], data_layout="NCHW");\n  nn.relu(%0)'
    new = '  %0 = nn.conv2d(%x, %w, padding=[1, 1], data_layout="NHWC");\n  nn.relu(%0)'
    assert [r.kind for r in rows(old, new)] == [CHANGED, SAME]


def test_lines_that_have_little_in_common_are_not_taken_for_each_other() -> None:
    assert [
        r.kind for r in rows("  %0 = add(%x, %y);", "    %0 = add(%p, meta[relay.Constant][0], a=1, b=2, c=3);")
    ] == [REMOVED, ADDED]


def test_functions_count_their_values_each_for_itself() -> None:
    old = "def @a(%x) {\n  %0 = tanh(%x);\n  exp(%0)\n}\ndef @b(%x) {\n  %0 = nn.relu(%x);\n  exp(%0)\n}"
    assert {r.kind for r in rows(old, old)} == {SAME}


def node(label: str, shape: str = "float32[2]", origin: str = "") -> GraphNode:
    return GraphNode(label, shape, origin, "cpu", "", ())


def test_nodes_of_two_graphs_are_matched_one_to_one() -> None:
    one = Graph((node("add"), node("add"), node("tanh", origin="a"), node("exp")))
    other = Graph((node("add"), node("tanh", "float32[1, 2]", "a"), node("sqrt")))
    assert compared(one, other) == [UNTOUCHED, ALONE, ALTERED, ALONE]
    assert compared(other, one) == [UNTOUCHED, ALTERED, ALONE]


@pytest.mark.slow
def test_only_passes_that_changed_something_are_shown_and_in_order(content: Content) -> None:
    names = [s.name for s in content.states]
    assert names[0] == "import"
    assert names[-1] == "FuseOps"
    assert "ConvertLayout" in names
    assert content.passes > len(names)
    assert all(a.lines != b.lines for a, b in zip(content.states, content.states[1:], strict=False))
    assert content.states[0].graph.operators["nn.conv2d"] == content.states[-1].graph.operators["nn.conv2d"] == 2


def test_a_pass_within_a_pass_is_told_once_and_private_modules_never() -> None:
    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.relu(x))))
    other = tvm.IRModule.from_expr(relay.Function([x], relay.tanh(x)))
    twice = relay.Function([x], relay.nn.relu(x))

    @tvm.transform.module_pass(opt_level=0, name="Shorten")
    def shorten(given: Any, context: Any) -> Any:
        private(other)
        return tvm.IRModule.from_expr(twice)

    @tvm.transform.module_pass(opt_level=0, name="Private")
    def private(given: Any, context: Any) -> Any:
        return tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))

    watching = Recording()
    with tvm.transform.PassContext(instruments=[watching]):
        tvm.transform.Sequential([relay.transform.InferType(), shorten])(mod)
    assert [s.name for s in watching.states] == ["import", "Shorten"]
    assert watching.states[1].graph.operators == {"nn.relu": 1}


# --- the program
# --------------------------------------------------------------------------------------------------------------


def test_steps_know_their_operators_nodes_and_each_other(content: Content) -> None:
    first, second, *_ = content.steps
    assert [o.name for o in first.operations] == ["nn.conv2d", "add", "nn.relu"]
    assert {o.origin for o in first.operations} == {"first", "first_relu"}
    assert {o.origin for o in second.operations} == {"second", "residual"}
    assert first.reads == ()
    assert second.reads == (0,)
    assert first.nbytes == 4 * (3 * 16 * 16 + 8 * 8 * 8 + 8 * 3 * 3 * 3 + 8)


def test_steps_are_measured(content: Content) -> None:
    found = content.measurement
    assert found is not None
    assert found.threads == 1
    assert min(
        found.seconds, found.peaks.rate(FLOAT32), found.peaks.bandwidths[-1][1], *(s.seconds for s in found.steps)
    ) > 0
    # and a sum and a maximum for each
    assert found.steps[0] == StepMeasure(
        found.steps[0].seconds, 2.0 * 8 * 8 * 8 * (27 + 1), float(content.steps[0].nbytes)
    )


def test_what_an_accelerator_takes_is_its_own_step(tmp_path: Path) -> None:
    path = tmp_path / "conv.tflite"
    path.write_bytes(_conv("int8"))
    found = described(str(path), target="npu, llvm")
    taken = [s for s in found.steps if s.where == "npu"]
    assert len(taken) == 1
    assert "qnn.conv2d" in [o.name for o in taken[0].operations]
    assert any(n.where == "npu" for s in found.states for n in s.graph.nodes)
    assert summary_of(found)["accelerators"] == ("npu",)


def test_control_flow_has_blocks_and_its_own_text() -> None:
    model = tvm.compile(tvm.parser.parse(CONTROL))
    found = explained(model, "branches")
    assert {s.block for s in found.steps} == {0, 1}
    assert "flow" in [k.symbol for k in found.kernels]
    assert found.measurement is None
    assert "control flow" in found.not_measured


@pytest.mark.filterwarnings("ignore::tilewright.base.errors.NotNativeWarning")
def test_what_has_no_kernel_runs_by_its_meaning() -> None:
    params, call = HOST_EXAMPLES[0].call()
    assert "python" in [s.where for s in described(relay.Function(tuple(params), call)).steps]


def test_a_target_that_is_c_has_its_text() -> None:
    found = described(mlp().SerializeToString(), target="c")
    assert "void" in found.c
    assert [t.title for t in found.kernels[0].texts] == ["Relay", "TIR"]
    assert "c-text" in ids(page_of(found))


def test_another_machine_is_not_measured() -> None:
    found = explained(tvm.compile(mlp().SerializeToString(), target="llvm -mtriple=aarch64-linux-gnu"), "elsewhere")
    assert found.measurement is None
    assert "not this machine" in found.not_measured
    linked = found.kernels[0].texts[-1]
    assert any(linked.sources)


# --- the links between texts
# ----------------------------------------------------------------------------------------------------


def test_every_text_of_a_kernel_is_linked_to_the_one_before(content: Content) -> None:
    for kernel in content.kernels:
        relay_text, loops, llvm, code = kernel.texts
        for text, before in ((loops, relay_text), (llvm, loops), (code, llvm)):
            assert len(text.sources) == len(text.lines)
            assert all(1 <= n <= len(before.lines) for found in text.sources for n in found)
            assert any(text.sources)
        instructions = [
            k for k,
            line in enumerate(code.lines) if re.match(r"\s+[a-z]", line)
            and not line.lstrip().startswith((".", "push", "pop", "ret", "vzeroupper", "sub", "add"))
        ]
        assert sum(bool(code.sources[k]) for k in instructions) > 0.9 * len(instructions)


def test_a_multiplication_leads_back_to_its_loop_and_its_operator(content: Content) -> None:
    relay_text, loops, llvm, code = content.kernels[0].texts
    at = next(k for k, line in enumerate(code.lines) if "fmadd" in line or "mulps" in line or "mulss" in line)
    (in_llvm,) = code.sources[at]
    assert re.search(r"\bfma\b|fmul|@llvm.fma", llvm.lines[in_llvm - 1])
    (in_loops,) = llvm.sources[in_llvm - 1]
    assert "fma" in loops.lines[in_loops - 1] or "*" in loops.lines[in_loops - 1]
    assert any("nn.conv2d" in relay_text.lines[n - 1] for n in loops.sources[in_loops - 1])


def test_links_change_no_instruction() -> None:
    report = BuildReport(keeps_module=True)
    tvm.compile(cnn().SerializeToString()).build_again(report)
    found = described(cnn().SerializeToString())
    target = Target("llvm")
    for kernel in found.kernels:
        plain = assembly(emit(report.kernels[kernel.symbol].func, target), target)
        assert instructions(kernel.texts[-1].lines) == instructions(plain.split("\n"))


def instructions(lines: Any) -> list[str]:
    """The instructions of assembly, their labels without the numbers that debug information shifts."""
    return [
        " ".join(line.split()) for line in lines if line.startswith(("\t", " "))
        and not line.strip().startswith((".", "#"))
    ]


# --- memory
# ---------------------------------------------------------------------------------------------------------------------


def test_values_that_live_together_do_not_overlap(content: Content) -> None:
    values = content.memory.values
    assert values
    for k, a in enumerate(values):
        assert a.offset + a.nbytes <= content.memory.workspace
        for b in values[k + 1 :]:
            if a.birth <= b.death and b.birth <= a.death:
                assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset


def test_the_peak_is_where_most_is_alive() -> None:
    memory = Memory(100, (Held(0, 60, 0, 1), Held(60, 40, 1, 2), Held(0, 10, 2, 3)))
    assert memory.peak == (1, 100)
    assert Memory(0, ()).peak == (0, 0)


# --- the page
# -------------------------------------------------------------------------------------------------------------------


class _Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._in = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._in = str(dict(attrs).get("id", tag))

    def handle_data(self, data: str) -> None:
        self.texts[self._in] = self.texts.get(self._in, "") + data


def elements(page: str) -> _Elements:
    parser = _Elements()
    parser.feed(page)
    return parser


def ids(page: str) -> list[str]:
    return [str(a["id"]) for _, a in elements(page).found if "id" in a]


def part(page: str, name: str) -> Any:
    """A compressed part of a page."""
    return json.loads(gzip.decompress(base64.b64decode(elements(page).texts[name])))


def test_the_page_has_all_of_it(content: Content) -> None:
    page = page_of(content)
    wanted = {
        "summary", *(f"state-{k}" for k in range(len(content.states))),
        *(f"kernel-{k}" for k in range(len(content.kernels)))
    }
    assert wanted == set(ids(page))
    assert part(page, "kernel-0")[3]["lines"] == [*content.kernels[0].texts[3].lines]
    state = part(page, "state-1")
    assert state["old"] == [*content.states[0].lines]
    assert [len(g) for g in state["graphs"]] == [len(content.states[0].graph.nodes), len(content.states[1].graph.nodes)]
    assert json.loads(elements(page).texts["summary"])["steps"][1]["reads"] == [0]
    assert page_of(content) == page


def test_names_cannot_end_elements(tmp_path: Path) -> None:
    found = described(str(hostile_model(tmp_path)))
    page = page_of(explained(tvm.compile(str(hostile_model(tmp_path))), HOSTILE, run=False))
    tags = [tag for tag, _ in elements(page).found]
    assert tags.count("script") == 2 + len(found.states) + len(found.kernels)
    assert not {"img", "iframe", "link", "object"} & set(tags)
    assert HOSTILE in {n.origin[: len(HOSTILE)] for n in found.states[0].graph.nodes}
    assert "window.pwned=1</script>" not in page
    assert "\u2028" not in page.split('id="summary">')[1].split("</script>")[0]


def test_the_page_asks_nobody(content: Content) -> None:
    page = page_of(content)
    policy = next(a["content"] for tag, a in elements(page).found if tag == "meta" and a.get("http-equiv"))
    assert str(policy).startswith("default-src 'none'")
    assert "unsafe" not in str(policy)
    assert set(re.findall(r"https?://[\w./]+", page)) == {"http://www.w3.org/2000/svg"}
    assert not [a for _, a in elements(page).found if "src" in a or "href" in a]


# --- the command
# ----------------------------------------------------------------------------------------------------------------


def test_the_command_writes_one_file_and_says_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(mlp().SerializeToString())
    assert main(["explain", "net.onnx", "--no-run"]) == 0
    assert "Wrote net.html" in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.html", "net.onnx"]
    assert json.loads(elements(Path("net.html").read_text(encoding="utf-8")).texts["summary"])["run"] is None


def test_what_cannot_be_measured_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "branches.relay").write_text(CONTROL)
    assert main(["explain", str(tmp_path / "branches.relay"), "-o", str(tmp_path / "out.html")]) == 0
    assert "Not measured: the steps of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-o", "report.pdf"], 2, "has none of the extensions of the report: .html, .htm"),
        (["--target", "nosuch"], 1, "nosuch"),
        (["-o", "no/such/folder.html"], 1, "cannot write"),
        (["--input-shapes", "x:[n,16]"], 2, "give numbers in --input-shapes"),
    ],
)
def test_mistakes_are_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], code: int,
    said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(mlp("n").SerializeToString())
    shapes = [] if "--input-shapes" in words else ["--input-shapes", "x:[2,16]"]
    assert main(["explain", "net.onnx", *shapes, *words]) == code
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
    assert len(error.strip().split("\n")) == 1


def test_open_sizes_are_asked_for() -> None:
    with pytest.raises(
        tvm.errors.OptionError, match=r"one program serves all sizes, n from 1\. A report shows .* give numbers"
    ):
        explained(tvm.compile(mlp("n").SerializeToString(), shapes={"x": ("n", 16)}), "open")


def test_a_page_names_the_symbolic_dimensions_of_the_model() -> None:
    content = explained(tvm.compile(mlp("n").SerializeToString(), shapes={"x": (4, 16)}), "net", run=False)
    assert content.sizes == "x: n = 4" == summary_of(content)["sizes"]
    called = tvm.compile(mlp("n").SerializeToString(), symbolic=False)
    called(np.ones((3, 16), np.float32))
    assert explained(called, "net", run=False).sizes == "x: n = 3"
    assert not explained(tvm.compile(mlp().SerializeToString()), "net", run=False).sizes


def test_profiled_code_in_memory_gives_the_same_answers() -> None:
    model = tvm.compile(cnn().SerializeToString())
    x = np.random.default_rng(0).random((1, 3, 16, 16), np.float32)
    np.testing.assert_array_equal(model.artifact.executable(1)(x), model(x))
