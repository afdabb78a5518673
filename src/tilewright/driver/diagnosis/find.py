"""Finds the pass, stage and operator that make a model wrong, and the smallest program that shows it.

    whole program right?  -> yes: nothing to find
    passes, one by one    -> the first that changes the meaning of the program
    kernels, one by one, on the interpreter's values -> the first wrong one, then its stage: compute, schedule, codegen
    neither               -> the memory plan, or rounding errors that later operators amplify

A failing program is shrunk with the check that found it, so that each try is one pass or one small kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.compiler.flow import needs_control
from tilewright.driver.diagnosis.bench import Bench, Ended, verdict_of
from tilewright.driver.diagnosis.case import Case, operators
from tilewright.driver.diagnosis.loop_stages import CODEGEN
from tilewright.driver.diagnosis.shrink import Shrinker
from tilewright.driver.diagnosis.ways import CRASH, HANG, KERNEL, PASS, WHOLE, NoReference, Verdict, Way
from tilewright.relay.expr import Call, Expr
from tilewright.relay.transform.stages import needs_stages
from tilewright.relay.visitor import post_order

PASSES, LOWERING, CODE, PLAN, ROUNDING, CONTROL, IMPORT = (
    "pass", "lowering", "code generation", "memory plan", "rounding", "control flow", "import"
)
"""The stages that a diagnosis names."""
_MOST_ENDED: Final = 6
"""Largest number of processes that may end while a case is shrunk: each takes seconds, or the whole time limit."""
Told = Callable[[str], None]


@dataclass(slots=True)
class Diagnosis:
    """The result of a diagnosis; `found` is False if the outputs agree with the reference up to rounding."""

    found: bool
    verdict: Verdict | None = None
    stage: str = ""
    name: str = ""
    """Name of the pass, or of the stage of lowering."""
    operator: str = ""
    origin: str = ""
    """The model's node of the operator, if known."""
    case: Case | None = None
    """The smallest failing program."""
    way: Way = field(default_factory=lambda: Way(WHOLE))
    value: str = ""
    """The first wrong value of a pass: its lines before and after."""
    loops: str = ""
    """The loops of the kernel after the faulty stage."""
    nodes: int = 0
    """Number of nodes of the whole program."""
    probes: int = 0

    @property
    def small_nodes(self) -> int:
        """Number of nodes of the smallest program."""
        return 0 if self.case is None else self.case.nodes

    def summary(self) -> str:
        """Return the result in one line."""
        if self.stage == ROUNDING:
            return (
                "no divergence of any pass or kernel: the results differ by rounding, which later operators amplify"
            )
        if not self.found or self.verdict is None:
            return "no divergence"
        where = f"{self.stage} {self.name}" if self.name else self.stage
        origin = f" ({self.origin})" if self.origin else ""
        return f"{self.verdict.kind}: {self.operator or 'the program'}{origin} goes wrong in {where}"

    def as_dict(self) -> dict[str, Any]:
        """Return all fields except the case, for JSON."""
        kind, text = ("", "") if self.verdict is None else (self.verdict.kind, self.verdict.text)
        return {
            "found": self.found, "stage": self.stage, "name": self.name, "operator": self.operator,
            "origin": self.origin, "kind": kind, "difference": text,
            "operators": [] if self.case is None else operators(self.case.main.body), "nodes": self.small_nodes,
            "nodes_of_model": self.nodes, "way": self.way.kind, "pass_number": self.way.step, "value": self.value,
            "loops": self.loops, "probes": self.probes,
        }


def find(case: Case, bench: Bench, told: Told = lambda text: None, *, thorough: bool = False) -> Diagnosis:
    """Compare the compiled results of a case with the interpreter's, and find the cause if they differ.

    With `thorough`, passes and kernels are checked even if the results agree, because not every wrong value reaches
    them. Raises `CompileError` if the interpreter cannot run the program, so that there is no reference.
    """
    made = _find(case, bench, told, thorough)
    made.nodes, made.probes = case.nodes, bench.probes
    return made


def _find(case: Case, bench: Bench, told: Told, thorough: bool) -> Diagnosis:
    told("the whole program")
    try:
        verdict = bench.check(case, Way(WHOLE))
    except NoReference as error:
        raise CompileError(
            f"the interpreter cannot run the model on these inputs, so there is no reference: {error}; give other "
            "inputs with --inputs",
            code="TW0712"
        ) from error
    if verdict is None:
        hidden = (
            (_of_passes(case, bench, told) or _of_kernels(case, bench, told)) if thorough and _straight(case) else None
        )
        return hidden if hidden is not None and hidden.found else Diagnosis(False)
    if not _straight(case):
        told("a part without control flow and dynamic shapes")
        case = _shrunk(case, Way(WHOLE), verdict, bench, told)
        if not _straight(case):
            return _blamed(case, Way(WHOLE), verdict, CONTROL)
    told("the passes over the graph")
    return _of_passes(case, bench, told) or _of_kernels(case, bench, told) or _of_plan(case, verdict, bench, told)


def _straight(case: Case) -> bool:
    return not needs_control(case.main) and not needs_stages(case.main)


def _of_passes(case: Case, bench: Bench, told: Told) -> Diagnosis | None:
    """Return the diagnosis for a graph pass that changes results."""
    ended: Ended | None = None
    try:
        found, pieces = bench.ask("first_wrong_pass", case)
    except Ended as error:
        if error.trail.get("at") != "pass":
            return None
        ended = error
        found, pieces = bench.ask("first_wrong_pass", case, stop=ended.trail["step"])
    verdict = ended.verdict if ended is not None else verdict_of(found)
    if verdict is None:
        return None
    way, before = Way(PASS, found["step"]), Case.from_bytes(pieces)
    told(f"the pass {found['name']}: {verdict.text}")
    small = _shrunk(before, way, verdict, bench, told, found["at"])
    made = _blamed(small, way, verdict, PASSES, found["name"])
    made.value = found["value"]
    _name_value(made, bench)
    return made


def _name_value(made: Diagnosis, bench: Bench) -> None:
    """Return the first operator in the shrunk program with a value that the pass changes; empty if there is no
    single one."""
    assert made.case is not None
    try:
        found, pieces = bench.ask("first_wrong_value", made.case, way={"kind": PASS, "step": made.way.step})
    except Ended:
        return
    if found["at"] >= 0:
        made.value = found["value"]
        _blame(made, post_order(Case.from_bytes(pieces).main.body, inside=False)[found["at"]])


def _of_kernels(case: Case, bench: Bench, told: Told) -> Diagnosis | None:
    """Return the diagnosis for a kernel with wrong results, or with an error while it is compiled."""
    told("the kernels")
    try:
        found, pieces = bench.ask("first_wrong_kernel", case)
        if found["kernel"] < 0:
            return Diagnosis(False, stage=ROUNDING) if found["rounding"] else None
        verdict, kernel = verdict_of(found), Case.from_bytes(pieces)
    except Ended as ended:
        if ended.trail.get("at") != "kernel":
            return None
        found, verdict, kernel = {"kernel": ended.trail["step"], "of": ended.trail["of"]}, ended.verdict, bench.kept()
    assert verdict is not None
    told(f"kernel {found['kernel'] + 1} of {found['of']}, {' '.join(operators(kernel.main.body))}: {verdict.text}")
    small = _shrunk(kernel, Way(KERNEL), verdict, bench, told)
    told("the stages of its lowering")
    try:
        stage, _ = bench.ask("first_wrong_loops", small)
        name, loops = stage["stage"], stage["loops"]
    except Ended as ended:
        name, loops = ended.trail.get("stage", ""), ""
    made = _blamed(
        small, Way(KERNEL), verdict, CODE if name == CODEGEN else LOWERING, "" if name in (CODEGEN, LOWERING) else name)
    made.loops = loops
    return made


def _of_plan(case: Case, verdict: Verdict, bench: Bench, told: Told) -> Diagnosis:
    """Return the diagnosis for a wrong program whose passes and kernels are right by themselves."""
    told("the program as a whole: each of its passes and kernels is correct by itself")
    return _blamed(_shrunk(case, Way(WHOLE), verdict, bench, told), Way(WHOLE), verdict, PLAN)


def _shrunk(case: Case, way: Way, verdict: Verdict, bench: Bench, told: Told, hint: int = -1) -> Case:
    told(f"a smaller program than {case.nodes} nodes")
    ended = 0

    def fails(smaller: Case) -> bool:
        nonlocal ended
        found = bench.check(smaller, way)
        ended += found is not None and found.kind in (CRASH, HANG)
        if ended >= _MOST_ENDED:
            shrinker.stop()
        return verdict.same(found)

    shrinker = Shrinker(case, fails)
    return shrinker.run(hint)


def _blamed(case: Case, way: Way, verdict: Verdict, stage: str, name: str = "") -> Diagnosis:
    """Return a diagnosis that blames the last operator of a case."""
    made = Diagnosis(True, verdict, stage, name, case=case, way=way)
    _blame(made, case.main.body)
    return made


def _blame(made: Diagnosis, e: Expr) -> None:
    last = next(
        (c for c in reversed(post_order(e, inside=False)) if isinstance(c, Call) and not isinstance(c.op, Expr)), None)
    if last is not None:
        made.operator, made.origin = last.op.name, "" if last.span is None else str(last.span)
