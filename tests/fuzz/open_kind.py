"""ONNX models with open dimensions: one program of ours, called at several sizes, against ONNX Runtime at each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import onnx
from onnx import NodeProto, helper

import tilewright
from fuzz import compare, onnx_kind, onnx_text
from fuzz.onnx_evaluate import NoAnswer, Steps, element, free_names, runtime
from fuzz.outcomes import AGREES, INVALID, REFUSED, Draw, Outcome, message_kind, raised
from random_open_graphs import Case, drawn
from tilewright.base.errors import CompileError, InputError, OpenSizeWarning

_TEST: Final = '''"""{{about}}"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from fuzz.open_kind import OpenKind
from fuzz.outcomes import AGREES, EXPLAINED, REFUSED, silent
from random_open_graphs import Case

nan, inf = float("nan"), float("inf")


{model}

SHAPES = {shapes!r}
CALLS = [
{calls}
]


def test_found() -> None:
    outcome = OpenKind().run(Case(model(), SHAPES, CALLS), silent)
    assert outcome.category in (AGREES, EXPLAINED, REFUSED), outcome.detail
'''


class OpenKind:
    """Graphs of many nodes whose inputs have open dimensions."""

    name = "open"

    def prepare(self) -> None:
        """Nothing has to be read."""

    def draw(self, draw: Draw) -> Case:
        return drawn(draw)

    def run(self, case: Case, phase: Callable[[str], None]) -> Outcome:
        phase("reference")
        answers = [_answer(case.model, feeds) for feeds in case.calls]
        if not any(answers):
            return Outcome(INVALID, "refused by the reference")
        phase("ours")
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", OpenSizeWarning)
            try:
                program = tilewright.compile(case.model, shapes=dict(case.shapes), threads=1)
            except OpenSizeWarning as refusal:
                text = str(refusal).partition("sizes: ")[2]
                return Outcome(REFUSED, message_kind(CompileError(text)), text[:300])
            except Exception as error:  # each kind of exception has its place in the report
                return raised(error)
            warnings.simplefilter("ignore", OpenSizeWarning)
            return _checked(case, program, answers)

    def smaller(self, case: Case) -> Iterator[Case]:
        try:
            known = [Steps(case.model, feeds).values("onnxruntime") for feeds in case.calls]
        except NoAnswer:
            return
        nodes = list(case.model.graph.node)
        for node in nodes:  # one node on the values that ONNX Runtime computes for it
            if len(nodes) > 1:
                yield _rebuilt(case, [node], [o for o in node.output if o], known, free_names(node))
        for node in nodes:
            names = [o for o in node.output if o]
            if {*names} != {o.name for o in case.model.graph.output}:
                yield _rebuilt(case, nodes, names, known)
        outputs = [o.name for o in case.model.graph.output]
        for name in outputs if len(outputs) > 1 else ():
            yield _rebuilt(case, nodes, [name], known)
        for node in nodes[:-1]:  # one node less: its results are inputs
            if not {*outputs}.intersection(node.output):
                yield _rebuilt(case, [n for n in nodes if n is not node], outputs, known, node.output)
        for k in range(len(case.calls) if len(case.calls) > 2 else 0):  # with one call, all dimensions would be known
            yield replace(case, calls=[*case.calls[:k], *case.calls[k + 1:]])
        yield from _without_attributes(case, outputs, known)

    def test(self, case: Case, outcome: Outcome) -> str:
        calls = "\n".join(
            f"    {{{', '.join(f'{n!r}: {onnx_text.array_text(v)}' for n, v in feeds.items())}}},"
            for feeds in case.calls)
        return _TEST.format(model=onnx_text.model_text(case.model), shapes=dict(case.shapes), calls=calls)


def _answer(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any] | None:
    try:
        return runtime(model, feeds)
    except NoAnswer:
        return None


def _checked(case: Case, program: tilewright.Model, answers: Sequence[list[Any] | None]) -> Outcome:
    """Compare the answers at every size; a size that is refused is reported when all others agree."""
    refused: Outcome | None = None
    worst = Outcome(AGREES)
    for feeds, wanted in zip(case.calls, answers, strict=True):
        try:
            found = program(**feeds)
        except InputError as error:
            if wanted is not None:
                refused = Outcome(REFUSED, f"at a size: {message_kind(error)}", str(error)[:300])
            continue
        except Exception as error:  # each kind of exception has its place in the report
            return raised(error)
        if wanted is None:
            continue
        ours = [np.asarray(f) for f in (found if isinstance(found, tuple) else (found,))]
        if compare.difference(ours, wanted):
            known = {"onnxruntime": wanted} | onnx_kind.answers_of(case.model, feeds)
            if any(not compare.difference(ours, theirs) for theirs in known.values()):
                continue
            outcome = onnx_kind.judged(onnx_kind.Case(case.model, feeds), ours, known)
            if outcome.found:
                sizes = {n: v.shape for n, v in feeds.items()}
                return replace(outcome, detail=f"at {sizes}: {outcome.detail}")
            worst = outcome
    return refused or worst


def _rebuilt(
    case: Case, nodes: Iterable[NodeProto], outputs: Sequence[str], known: Sequence[Mapping[str, Any]],
    cut: Iterable[str] = (),
) -> Case:
    """The case of these nodes and outputs; values of `cut`, which nothing computes any more, are inputs."""
    kept: list[NodeProto] = []
    needed = {*outputs}
    for node in reversed([*nodes]):
        if needed.intersection(node.output):
            kept.insert(0, node)
            needed.update(free_names(node))
    stored = [t for t in case.model.graph.initializer if t.name in needed]
    names = [n for n in (*case.shapes, *cut) if n in needed and n not in {t.name for t in stored}]
    calls = [{n: values[n] for n in dict.fromkeys(names)} for values in known]
    shapes = {n: case.shapes.get(n) or _dims(case, [feeds[n].shape for feeds in calls]) for n in dict.fromkeys(names)}
    inputs = [
        helper.make_tensor_value_info(n, element(calls[0][n].dtype), [_name(d) for d in dims])
        for n, dims in shapes.items()]
    made = [helper.make_tensor_value_info(o, element(known[0][o].dtype), None) for o in outputs]
    model = helper.make_model(
        helper.make_graph(kept, "g", inputs, made, stored), opset_imports=case.model.opset_import,
        ir_version=case.model.ir_version)
    return Case(model, shapes, calls)


def _name(dim: int | str) -> int | str:
    return dim if isinstance(dim, int) else dim.partition("=")[0]


def _dims(case: Case, shapes: Sequence[tuple[int, ...]]) -> tuple[int | str, ...]:
    """The dimensions of an input that has these shapes: numbers, the names of others, or new names."""
    known = {
        tuple(feeds[n].shape[axis] for feeds in case.calls): d
        for n, dims in case.shapes.items() for axis, d in enumerate(dims)}
    columns = list(zip(*shapes, strict=True))
    return tuple(
        c[0] if len({*c}) == 1 else known.get(c, f"d{'_'.join(map(str, c))}") for c in columns)


def _without_attributes(case: Case, outputs: Sequence[str], known: Sequence[Mapping[str, Any]]) -> Iterator[Case]:
    nodes = list(case.model.graph.node)
    for k, node in enumerate(nodes):
        for a in node.attribute:
            changed = NodeProto()
            changed.CopyFrom(node)
            changed.attribute.remove(a)
            yield _rebuilt(case, [*nodes[:k], changed, *nodes[k + 1:]], outputs, known)


