"""Single TFLite operators: ours against LiteRT's reference kernels and its default ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

import tilewright
from fuzz import arrays, compare, rules, tflite_draw
from fuzz.onnx_text import array_text
from fuzz.outcomes import AGREES, EXPLAINED, INVALID, WRONG, Array, Draw, Outcome, raised
from tflite_models import Op, T, model

REFERENCES: Final = {"LiteRT reference kernels": "BUILTIN_REF", "LiteRT default kernels": "AUTO"}
SHAKEN: Final = 4
TRIES: Final = 4
_TEST: Final = '''"""{about}"""

from __future__ import annotations

import numpy as np

from fuzz.outcomes import AGREES, EXPLAINED, REFUSED, silent
from fuzz.tflite_kind import Case, TfliteKind
from tflite_models import Op, T

nan, inf = float("nan"), float("inf")
CASE = CASE_TEXT
REFERENCES = {
REFERENCES_TEXT
}
OURS = OURS_TEXT
"""What was computed when this file was written; for the reader."""


def test_found() -> None:
    outcome = TfliteKind().run(CASE, silent)
    assert outcome.category in (AGREES, EXPLAINED, REFUSED), outcome.detail
'''


class NoAnswer(Exception):
    """LiteRT refuses the model."""


@dataclass(frozen=True)
class Case:
    """The tensors of a model, its operator, and an array for each tensor that is not stored and not a result."""

    tensors: tuple[T, ...]
    op: Op
    feeds: Mapping[int, Array]

    @property
    def data(self) -> bytes:
        return model(self.tensors, [self.op], [*self.feeds], list(self.op.outputs))


class TfliteKind:
    """Models of one operator."""

    name = "tflite"

    def prepare(self) -> None:
        """Import LiteRT before workers are forked."""
        import ai_edge_litert.interpreter  # noqa: F401

    def draw(self, draw: Draw) -> Case:
        for _ in range(TRIES):
            tensors, op = draw.pick(tflite_draw.OPERATORS)(draw)
            feeds = {k: fed(draw, tensors[k]) for k in op.inputs if tensors[k].value is None}
            case = Case(tuple(tensors), op, feeds)
            try:
                return sized(case)
            except NoAnswer:
                continue
        return case

    def run(self, case: Case, phase: Callable[[str], None]) -> Outcome:
        phase("reference")
        answers = {}
        for name, kernels in REFERENCES.items():
            try:
                answers[name] = litert(case, kernels)
            except NoAnswer:
                continue
        phase("ours")
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                found = tilewright.compile(case.data, threads=1)(*case.feeds.values())
            except Exception as error:  # each kind of exception has its place in the report
                outcome = raised(error)
                return outcome if answers or outcome.found else Outcome(INVALID, "refused by all")
        ours = list(found) if isinstance(found, tuple) else [found]
        phase("reference")
        if not answers:
            return Outcome(INVALID, "refused by the references")
        if any(not compare.difference(ours, theirs) for theirs in answers.values()):
            return Outcome(AGREES)
        return judged(case, ours, answers)

    def smaller(self, case: Case) -> Iterator[Case]:
        for k, x in case.feeds.items():
            for plain in plainer(x):
                yield replace(case, feeds={**case.feeds, k: plain})
        for name in case.op.values:
            fewer = {n: v for n, v in case.op.values.items() if n != name}
            yield from resized(replace(case, op=replace(case.op, values=fewer)))
        for size in sorted({d for t in case.tensors for d in t.shape if d > 1}, reverse=True):
            yield from resized(cut(case, size))

    def test(self, case: Case, outcome: Outcome) -> str:
        tensors = "".join(f"        {tensor_text(t)},\n" for t in case.tensors)
        feeds = ", ".join(f"{k}: {array_text(v)}" for k, v in case.feeds.items())
        text = f"Case(\n    (\n{tensors}    ),\n    {case.op!r},\n    {{{feeds}}},\n)"
        answers = "\n".join(f"    {n!r}: [{', '.join(map(array_text, v))}]," for n, v in outcome.references.items())
        ours = f"[{', '.join(map(array_text, outcome.ours))}]" if outcome.ours else repr(outcome.detail)
        return _TEST.replace("CASE_TEXT", text).replace("REFERENCES_TEXT", answers).replace("OURS_TEXT", ours)


def fed(draw: Draw, t: T) -> Array:
    """An input."""
    return arrays.values(draw, t.shape, t.dtype, "wide" if t.scale != () else "")


def interpreter(case: Case, kernels: str) -> Any:
    """LiteRT with memory for the model."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    try:
        made = Interpreter(
            model_content=case.data, experimental_op_resolver_type=getattr(OpResolverType, kernels), num_threads=1
        )
        made.allocate_tensors()
    except (RuntimeError, ValueError) as error:
        raise NoAnswer(str(error)) from None
    return made


def litert(case: Case, kernels: str, feeds: Sequence[Array] | None = None) -> list[Array]:
    """The outputs by LiteRT."""
    made = interpreter(case, kernels)
    try:
        for detail, x in zip(made.get_input_details(), feeds or case.feeds.values(), strict=True):
            made.set_tensor(detail["index"], x)
        made.invoke()
        return [made.get_tensor(d["index"]) for d in made.get_output_details()]
    except (RuntimeError, ValueError) as error:
        raise NoAnswer(str(error)) from None


def sized(case: Case) -> Case:
    """The case with the sizes of results that LiteRT finds."""
    made = litert(case, "BUILTIN_REF")
    tensors = [*case.tensors]
    for k, y in zip(case.op.outputs, made, strict=True):
        tensors[k] = replace(tensors[k], shape=y.shape)
    return replace(case, tensors=tuple(tensors))


def resized(case: Case) -> Iterator[Case]:
    try:
        yield sized(case)
    except NoAnswer:
        return


def judged(case: Case, ours: Sequence[Array], answers: Mapping[str, list[Array]]) -> Outcome:
    """The outcome for an answer that differs from both kinds of kernels."""
    said = "; ".join(f"{name}: {compare.difference(ours, theirs)}" for name, theirs in answers.items())
    inputs = [case.feeds.get(k, case.tensors[k].value) for k in case.op.inputs]
    rule = rules.applying_tflite(case.op, case.tensors, inputs, next(iter(answers.values())))
    if rule is not None:
        return Outcome(EXPLAINED, rule.name, said)
    if between(ours, [*answers.values()]):
        return Outcome(EXPLAINED, rules.EITHER.name, said)
    exact = next(iter(answers.values()))
    random = np.random.default_rng(0)
    shaken = []
    for _ in range(SHAKEN if any(x.dtype.kind == "f" for x in case.feeds.values()) else 0):
        shaken.append(litert(case, "BUILTIN_REF", [near(x, random) for x in case.feeds.values()]))
    if shaken and compare.as_sure(ours, exact, shaken):
        return Outcome(EXPLAINED, rules.CONDITION.name, said)
    return Outcome(
        WRONG, f"{case.op.kind} {case.tensors[case.op.inputs[0]].dtype} {case.tensors[case.op.outputs[0]].dtype}", said,
        ours, dict(answers)
    )


def near(x: Array, random: np.random.Generator) -> Array:
    """Floats with relative errors of a rounding or two."""
    with np.errstate(all="ignore"):
        return (x * (1 + 2.0**-22 * random.uniform(-1, 1, x.shape))).astype(x.dtype) if x.dtype.kind == "f" else x


def between(ours: Sequence[Array], answers: Sequence[Sequence[Array]]) -> bool:
    """Whether each element is that of one of the references."""
    for k, a in enumerate(ours):
        theirs = [r[k] for r in answers if r[k].shape == a.shape and r[k].dtype == a.dtype]
        if not theirs or np.logical_and.reduce([compare.differing(a, t) for t in theirs]).any():
            return False
    return True


def plainer(x: Array) -> Iterator[Array]:
    """Arrays with plainer values: all the same, then one element after another 0."""
    if x.size and x.any():
        yield np.zeros_like(x)
        for k in np.flatnonzero(x)[:32]:
            changed = x.copy()
            changed.flat[k] = 0
            yield changed


def cut(case: Case, size: int) -> Case:
    """Every dimension of one size is 1, in tensors, and in the numbers of stored shapes."""

    def smaller(shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(1 if d == size else d for d in shape)

    def part(x: Any) -> Any:
        return None if x is None else np.asarray(x)[tuple(slice(1) if d == size else slice(None) for d in np.shape(x))]

    tensors = []
    for t in case.tensors:
        scales = t.scale if isinstance(t.scale, float) or len(t.scale) != size else [*t.scale][:1]
        zeros = t.zero_point if isinstance(t.zero_point, int) or len(t.zero_point) != size else [*t.zero_point][:1]
        tensors.append(replace(t, shape=smaller(t.shape), value=part(t.value), scale=scales, zero_point=zeros))
    return Case(tuple(tensors), case.op, {k: part(x) for k, x in case.feeds.items()})


def tensor_text(t: T) -> str:
    """A tensor as an expression."""
    value = "None" if t.value is None else array_text(t.value)
    return (
        f"T({t.name!r}, {tuple(int(d) for d in t.shape)}, {t.dtype!r}, {value}, {t.scale!r}, {t.zero_point!r}, "
        f"{t.axis})"
    )
