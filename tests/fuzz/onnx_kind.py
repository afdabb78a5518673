"""ONNX models: ours against ONNX Runtime and ONNX's reference implementation."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

import tilewright
from fuzz import compare, onnx_cases, onnx_graphs, onnx_smaller, onnx_text, rules
from fuzz.onnx_evaluate import REFERENCES, NoAnswer, Steps, descendants
from fuzz.outcomes import AGREES, EXPLAINED, INVALID, WRONG, Draw, Outcome, raised

SHAKEN_WHOLE = 32
"""Evaluations with other roundings for whole numbers, each of which is on either side of a step by chance."""


@dataclass(frozen=True)
class Case:
    """A model with its inputs; `how` says what it was drawn from."""

    model: onnx.ModelProto
    feeds: Mapping[str, Any]
    opt_level: int = 3
    how: str = ""
    known: Mapping[str, Any] = field(default_factory=dict, compare=False)


class OnnxKind:
    """Graphs of many nodes, and models of ONNX's node suite with other attributes, shapes, types and values."""

    name = "onnx"

    def prepare(self) -> None:
        """Read the node suite once, before workers are forked."""
        onnx_cases.by_operator()

    def draw(self, draw: Draw) -> Case:
        level = 3 if draw.chance(0.85) else draw.between(0, 2)
        if draw.chance(0.45):
            model, feeds, how = onnx_cases.drawn(draw)
        else:
            model, feeds = onnx_graphs.drawn(draw)
            how = "graph"
        return Case(model, feeds, level, how)

    def run(self, case: Case, phase: Callable[[str], None]) -> Outcome:
        phase("reference")
        answers = answers_of(case.model, case.feeds)
        phase("ours")
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                ours = run_ours(case)
            except Exception as error:  # each kind of exception has its place in the report
                outcome = raised(error)
                return outcome if answers or outcome.found else Outcome(INVALID, "refused by all")
        phase("reference")
        if not answers:
            return Outcome(INVALID, "refused by the references")
        if any(not compare.difference(ours, theirs) for theirs in answers.values()):
            return Outcome(AGREES)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return judged(case, ours, answers)

    def smaller(self, case: Case) -> Iterator[Case]:
        for model, feeds in onnx_smaller.smaller(case.model, case.feeds):
            yield replace(case, model=model, feeds=feeds)
        if case.opt_level != 3:
            yield replace(case, opt_level=3)

    def test(self, case: Case, outcome: Outcome) -> str:
        return onnx_text.test(case.model, case.feeds, case.opt_level, outcome)


def answers_of(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The answer of each reference that has one."""
    found: dict[str, list[Any]] = {}
    for name, answer in REFERENCES.items():
        with contextlib.suppress(NoAnswer):
            found[name] = answer(model, feeds)
    return found


def run_ours(case: Case) -> list[Any]:
    """The outputs of our compiled model."""
    compiled = tilewright.compile(case.model, threads=1, opt_level=case.opt_level)
    stored = {t.name for t in case.model.graph.initializer}
    found = compiled(*(case.feeds[i.name] for i in case.model.graph.input if i.name not in stored))
    return list(found) if isinstance(found, tuple) else [found]


def judged(case: Case, ours: Sequence[Any], answers: dict[str, list[Any]]) -> Outcome:
    """The outcome for an answer that differs from every reference."""
    said = "; ".join(f"{name}: {compare.difference(ours, theirs)}" for name, theirs in answers.items())
    steps = Steps(case.model, case.feeds)
    if len(case.model.graph.node) > 1 and any(not compare.difference(ours, theirs) for theirs in mixed(steps)):
        return Outcome(AGREES)
    name = excused(steps, ours, [*answers.values()])
    if name:
        return Outcome(EXPLAINED, name, said)
    try:
        exact = steps.exact()
        if compare.as_good(ours, [*answers.values()], exact):
            return Outcome(EXPLAINED, rules.ACCUMULATION.name, said)
        whole = any(not compare.is_float(np.asarray(a)) for a in ours)
        shaken = [steps.shaken(k) for k in range(SHAKEN_WHOLE if whole else compare.SHAKEN)]
        known = [*answers.values()]
        if compare.as_sure(ours, exact, shaken, known) or all(
            compare.as_sure([a], [e], [[s[k]] for s in shaken], [[t[k]] for t in known])
            or any(not compare.difference([a], [t[k]]) for t in answers.values())
            for k, (a, e) in enumerate(zip(ours, exact, strict=True))
        ):
            return Outcome(EXPLAINED, rules.CONDITION.name, said)
    except (NoAnswer, ValueError, TypeError, KeyError):  # not every operator can be evaluated in float64
        pass
    label = " ".join(sorted({n.op_type for n in case.model.graph.node}))
    return Outcome(WRONG, label[:120], said, ours, dict(answers))


def mixed(steps: Steps) -> Iterator[list[Any]]:
    """The outputs node by node, for a model that one of the references cannot run as a whole."""
    for name in REFERENCES:
        try:
            yield steps.outputs(steps.values(name))
        except NoAnswer:
            continue


def excused(steps: Steps, ours: Sequence[Any], answers: Sequence[list[Any]]) -> str:
    """The rule that explains all differing results; empty where there is none."""
    try:
        known = steps.values()
    except NoAnswer:
        return ""
    found: dict[str, rules.Rule] = {}
    for node in steps.model.graph.node:
        inside = (n for a in node.attribute for n in a.g.node)
        rule = rules.applying(node, [known.get(n) for n in node.input], [known.get(n) for n in node.output])
        rule = rule or next(
            (r for n in inside for r in rules.RULES if n.op_type in r.operators and r.name.startswith("random")), None
        )
        if rule is not None:
            found.update((o, rule) for o in node.output if o)
    if not found:
        return ""
    free = descendants(steps.model, found)
    for k, output in enumerate(steps.model.graph.output):
        if output.name not in free and all(compare.difference([ours[k]], [theirs[k]]) for theirs in answers):
            return ""
    return next(iter(found.values())).name


