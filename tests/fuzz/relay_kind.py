"""Relay programs at the usual level of optimization: against the interpreter, and against the program compiled without
optimization."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

import random_graphs
import random_kernels
import tilewright
from fuzz import arrays, compare, rules
from fuzz.outcomes import AGREES, EXPLAINED, INVALID, WRONG, Array, Draw, Outcome, raised
from op_examples import EXAMPLES
from random_programs import random_module, varied
from tilewright.base.errors import TVMError
from tilewright.base.types import DataType, TensorType
from tilewright.driver.diagnosis.case import Case as Program
from tilewright.driver.diagnosis.case import case_of
from tilewright.driver.diagnosis.shrink import Shrinker
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, var
from tilewright.relay.visitor import post_order, rewrite

SHAKEN: Final = 4
TRIES: Final = 20
_TEST: Final = '''"""{about}"""

from __future__ import annotations

import numpy as np

from fuzz.outcomes import AGREES, EXPLAINED, REFUSED, silent
from fuzz.relay_kind import Case, RelayKind
from tilewright.driver.diagnosis.case import Case as Program

TEXT = """
PROGRAM_TEXT
"""
"""The program, for the reader."""
PIECES = [
PIECES_TEXT
]
REFERENCES = REFERENCES_TEXT
OURS = OURS_TEXT
"""What was computed when this file was written; for the reader."""


def test_found() -> None:
    outcome = RelayKind().run(Case(Program.from_bytes(PIECES), LEVEL_TEXT), silent)
    assert outcome.category in (AGREES, EXPLAINED, REFUSED), outcome.detail
'''


@dataclass(frozen=True)
class Case:
    """A program with an array for each parameter of `main`."""

    program: Program
    opt_level: int = 3
    how: str = ""


class RelayKind:
    """Graphs of many operators, kernels with what is fused behind them, programs with functions, and single operators
    with other attributes."""

    name = "relay"

    def prepare(self) -> None:
        """Nothing has to be read."""

    def draw(self, draw: Draw) -> Case:
        level = draw.pick((3, 3, 3, 3, 1, 2, 4))
        for _ in range(TRIES):
            how, make = draw.pick(tuple(SOURCES.items()))
            made = make(draw)
            if made is not None:
                return Case(made, level, how)
        raise ValueError("no program was drawn")

    def run(self, case: Case, phase: Callable[[str], None]) -> Outcome:
        phase("reference")
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                want = case.program.reference()
            except Exception as error:  # an operator may refuse the values that it is given
                outcome = raised(error)
                return replace(
                    outcome, label=f"interpreter: {outcome.label}"
                ) if outcome.found else Outcome(INVALID, "refused by the interpreter")
            phase("ours")
            try:
                ours, plain = (native(case.program, level) for level in (case.opt_level, 0))
            except Exception as error:  # each kind of exception has its place in the report
                return raised(error)
            if not compare.difference(ours, want) and not compare.difference(plain, want):
                return Outcome(AGREES)
            return judged(case, ours, plain, want)

    def smaller(self, case: Case) -> Iterator[Case]:
        """Plainer inputs; programs are made smaller by `made_smaller`."""
        for k, x in enumerate(case.program.values):
            if x.dtype.kind in "fiu" and x.size and x.any():
                yield replace(
                    case,
                    program=Program(
                        case.program.module, (*case.program.values[:k], np.zeros_like(x), *case.program.values[k + 1:])
                    )
                )

    def made_smaller(self, case: Case, fails: Callable[[Any], bool]) -> Case:
        """The smallest program found by the shrinker of `tilewright diagnose`."""
        return replace(
            case, program=Shrinker(case.program, lambda program: fails(replace(case, program=program))).run()
        )

    def test(self, case: Case, outcome: Outcome) -> str:
        pieces = "".join(f"    {piece!r},\n" for piece in case.program.to_bytes()).rstrip("\n")
        text = str(case.program.module).replace("\\", "\\\\").replace('"""', "'''")
        made = _TEST.replace("PIECES_TEXT", pieces).replace("PROGRAM_TEXT", text).replace(
            "LEVEL_TEXT", str(case.opt_level)
        )
        return made.replace(
            "REFERENCES_TEXT", repr({n: [repr(a) for a in v] for n, v in outcome.references.items()})
        ).replace("OURS_TEXT", repr([repr(a) for a in outcome.ours]))


def native(program: Program, level: int) -> list[Array]:
    """The results of the compiled program."""
    found = tilewright.compile(program.module, threads=1, opt_level=level)(*program.values)
    return [np.asarray(a) for a in compare.flat(found)]


def judged(case: Case, ours: Sequence[Array], plain: Sequence[Array], want: Sequence[Array]) -> Outcome:
    """The outcome for answers that differ from the interpreter's."""
    levels = ((f"opt_level {case.opt_level}", ours), ("opt_level 0", plain))
    said = "; ".join(f"{n}: {d}" for n, v in levels if (d := compare.difference(v, want)))
    names = sorted(
        {e.op.name for e in post_order(case.program.main.body) if isinstance(e, Call) and hasattr(e.op, "name")}
    )
    if rules.RANDOM_RELAY.intersection(names):
        return Outcome(EXPLAINED, "random numbers", said)
    try:
        shaken = [shake(case.program, k).reference() for k in range(SHAKEN)]
        if all(compare.as_sure(v, want, shaken) for _, v in levels):
            return Outcome(EXPLAINED, rules.CONDITION.name, said)
    except (TVMError, ValueError, ArithmeticError):
        pass
    return Outcome(WRONG, " ".join(names)[:120], said, ours, {"interpreter": want, "opt_level 0": plain})


def shake(program: Program, seed: int) -> Program:
    """The program with relative errors of about a rounding in its float inputs and constants."""
    random = np.random.default_rng(seed)

    def near(x: Array) -> Array:
        if not compare.is_float(x):
            return x
        amount = max(2.0**-22, compare.eps_of(x.dtype))
        return np.asarray(x.astype(np.float64) * (1 + amount * random.uniform(-1, 1, x.shape))).astype(x.dtype)

    new: dict[Expr, Expr] = {
        e: Constant(near(e.value)) for e in post_order(program.main.body) if isinstance(e, Constant)
        and isinstance(e.value, np.ndarray)
    }
    body = rewrite(program.main.body, lambda e: None, memo=new)
    return program.around(body, dict(zip(program.main.params, map(near, program.values), strict=True)))


# Where programs come from.


def graph(draw: Draw) -> Program | None:
    seed = draw.random.randrange(1 << 30)
    function = random_graphs.Graph(seed).function(draw.pick((3, 6, 10, 16)))
    return case_of(function, random_graphs.inputs(seed)[:len(function.params)])


def kernel(draw: Draw) -> Program | None:
    """One heavy operator; large ones take the interpreter too long."""
    make, _ = draw.pick(tuple(random_kernels.KINDS.values()))
    made = random_kernels.Maker(draw.random.randrange(1 << 30)).make(make)
    if sum(a.size for a in made.arrays) > 20_000:
        return None
    return case_of(made.function, made.arrays)


def program(draw: Draw) -> Program | None:
    module = random_module(
        draw.random.randrange(1 << 30), first_order=draw.chance(0.5), pure=True, vary=draw.chance(0.3), static=True,
        length=draw.pick((3, 6, 8))
    )
    module = module.map_functions(lambda f: f.without_attr("Compiler").without_attr("Primitive"), Function)
    main = module["main"]
    if not all(isinstance(p.type_annotation, TensorType) for p in main.params):
        return None
    return Program(
        module,
        tuple(arrays.values(draw, p.type_annotation.concrete_shape, str(p.type_annotation.dtype)) for p in main.params)
    )


def operator(draw: Draw) -> Program | None:
    """One operator with other attributes, values and sizes of batches, and often something elementwise behind it."""
    example = draw.pick(EXAMPLES)
    op = varied(example.op, draw.random) if draw.chance(0.6) else example.op
    given = [other(draw, a) for a in example.inputs]
    params = [var(f"x{k}", shape=a.shape, dtype=DataType(a.dtype)) for k, a in enumerate(given) if a.dtype != object]
    if len(params) != len(given):
        return None
    try:
        made = Call(op, [Tuple(tuple(params))] if op.variadic else list(params))
        kind = made.known_type()
        if not isinstance(kind, TensorType) or not kind.is_static or kind.size > 20_000:
            return None
        if kind.dtype.is_float and draw.chance(0.4):
            made = draw.pick((tilewright.relay.tanh, tilewright.relay.nn.relu, tilewright.relay.negative))(made)
    except (TVMError, ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return case_of(Function(tuple(params), made), given)


def other(draw: Draw, a: Array) -> Array:
    """An input with other values, where these are real numbers; whole ones are often indices."""
    if a.dtype.kind == "f" and draw.chance(0.5):
        return arrays.values(draw, a.shape, a.dtype.name)
    return a


SOURCES: Final[dict[str, Callable[[Draw], Program | None]]] = {
    "graph": graph, "kernel": kernel, "program": program, "operator": operator
}
