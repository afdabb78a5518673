"""Graphs to draw: operators of a module after a pass, and the steps of a program with their operators."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.base.types import TensorType, TupleType
from tilewright.relay.expr import Call, Constant, Expr, Function, GlobalVar, Var
from tilewright.relay.op.external import ExternalCall
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands, post_order

if TYPE_CHECKING:
    from tilewright.ir.module import IRModule
    from tilewright.relay.transform.plan_memory import MemoryPlan
    from tilewright.runtime.program import Step

CPU, PYTHON, COPY = "cpu", "python", "copy"
"""The executor of a node: generated code, Python, or a memory copy."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An operator, or a function of several; `reads` are the numbers of the nodes that make its arguments."""

    label: str
    type: str
    origin: str
    where: str
    """The processor: CPU, or the name of an accelerator."""
    region: str
    """The enclosing function, if it is not `main`."""
    reads: tuple[int, ...]
    attributes: str = ""
    inner: tuple[str, ...] = ()
    """The operators of a function."""

    @property
    def name(self) -> tuple[str, ...]:
        """A key that is equal for nodes with the same computation of the model, in any layout or dtype."""
        return (self.label, self.origin, *self.inner)

    @property
    def key(self) -> tuple[str, ...]:
        """A key that is equal for nodes that are displayed alike."""
        return (*self.name, self.type, self.where, self.attributes)


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in the order of evaluation."""

    nodes: tuple[GraphNode, ...]

    @property
    def operators(self) -> Counter[str]:
        """Number of nodes by label; a function counts as its operators."""
        return Counter(name for n in self.nodes for name in (n.inner or (n.label,)))


UNTOUCHED, ALTERED, ALONE = 0, 1, 2
"""The state of a node compared with another graph: the same there, there with another type, place or attribute, or
absent."""


def compared(these: Graph, others: Graph) -> list[int]:
    """Return for each node UNTOUCHED, ALTERED or ALONE. Equal nodes are matched one to one."""
    keys, names = Counter(n.key for n in others.nodes), Counter(n.name for n in others.nodes)
    found = []
    for n in these.nodes:
        found.append(UNTOUCHED if keys[n.key] > 0 else ALONE)
        if found[-1] == UNTOUCHED:
            keys[n.key] -= 1
            names[n.name] -= 1
    for k, n in enumerate(these.nodes):
        if found[k] == ALONE and names[n.name] > 0:
            names[n.name] -= 1
            found[k] = ALTERED
    return found


def graph_of_module(mod: IRModule) -> Graph:
    """Return the calls of all functions. The body of a function for an accelerator replaces its call."""
    functions = {n: f for n, f in mod.items() if isinstance(f, Function)}
    made = _Nodes(functions)
    for name, f in functions.items():
        if not _compiler(f):
            made.add(f, CPU, "" if name == "main" else name)
    return Graph(tuple(made.nodes))


class _Nodes:
    """Makes the nodes of functions."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self.functions, self.nodes = functions, list[GraphNode]()
        self.makers: dict[Expr, tuple[int, ...]] = {}

    def add(self, f: Function, where: str, region: str) -> None:
        for e in post_order(f.body, inside=False):
            reads = (
                self.makers.get(e, ()) if isinstance(e, (Var, Constant))
                else tuple(sorted({k for o in operands(e) for k in self.makers.get(o, ())}))
            )
            if isinstance(e, Call):
                reads = self._call(e, reads, where, region)
            self.makers[e] = reads

    def _call(self, e: Call, reads: tuple[int, ...], where: str, region: str) -> tuple[int, ...]:
        called = self.functions.get(e.op.name_hint) if isinstance(e.op, GlobalVar) else None
        if called is not None and isinstance(e.op, GlobalVar) and (accelerator := _compiler(called)):
            for p, a in zip(called.params, e.args, strict=True):
                self.makers[p] = self.makers.get(a, ())
            self.add(called, accelerator, e.op.name_hint)
            return self.makers.get(called.body, ())
        self.nodes.append(_node(e, reads, where, region))
        return (len(self.nodes) - 1,)


def _compiler(f: Function) -> str:
    name = str(f.attrs.get("Compiler", ""))
    return "" if name == "default" else name


def _node(e: Call, reads: tuple[int, ...], where: str, region: str) -> GraphNode:
    op = e.op
    origin = "" if e.span is None else e.span.name
    if isinstance(op, Function):
        inner = tuple(operator_name(c) for c in post_order(op.body) if isinstance(c, Call))
        label = str(op.attrs.get("Composite") or "function")
        return GraphNode(label, type_text(e), origin, where, region, reads, "", inner)
    return GraphNode(
        operator_name(e), type_text(e), origin, op.compiler if isinstance(op, ExternalCall) else where, region, reads,
        _attributes(op))


def operator_name(e: Call) -> str:
    """Return the name of the operator or of the function of a call."""
    if isinstance(e.op, ExternalCall):
        return e.op.symbol
    if isinstance(e.op, Op):
        return e.op.name
    return f"@{e.op.name_hint}" if isinstance(e.op, GlobalVar) else "function"


def type_text(e: Expr) -> str:
    """Return the type of a value in short: `float32[1, 64, 56, 56]`, or several, separated by commas."""
    return _shown(e.known_type())


def _shown(t: Any) -> str:
    if isinstance(t, TensorType):
        return f"{t.dtype}[{', '.join(map(str, t.shape))}]"
    if isinstance(t, TupleType):
        return ", ".join(map(_shown, t.fields))
    return "" if t is None else repr(t)


def _attributes(op: Any) -> str:
    """Return the attributes of an operator that differ from their defaults."""
    if not (isinstance(op, Op) and dataclasses.is_dataclass(op)):
        return ""
    return ", ".join(
        f"{f.name}={getattr(op, f.name)}" for f in dataclasses.fields(op) if f.repr and getattr(op, f.name) != f.default
    )


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator inside a step."""

    name: str
    type: str
    origin: str


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """A step of a program: the symbol of its kernel, its executor, its operations, the steps that it reads from, and
    the bytes that it reads and writes.

    `function` is the graph of its computation, if known.
    """

    symbol: str
    where: str
    block: int
    operations: tuple[Operation, ...]
    reads: tuple[int, ...]
    nbytes: int
    function: Function | None


def steps_of(
    plan: MemoryPlan, steps: tuple[Step, ...], main: Function, external: Mapping[str, Function], block: int, first: int
) -> list[ProgramStep]:
    """Return the steps of a plan, numbered from `first` on; `main` is the planned function, `external` the functions
    for accelerators by symbol."""
    number = {s.call: k for k, s in enumerate(plan.steps, first) if s.call is not None}
    makers: dict[Expr, tuple[int, ...]] = {}
    reads: dict[Expr, tuple[int, ...]] = {}
    for e in post_order(main.body, inside=False):
        before = tuple(sorted({k for o in operands(e) for k in makers.get(o, ())}))
        makers[e] = (number[e],) if isinstance(e, Call) and e in number else before
        reads[e] = before
    made = []
    for planned, step in zip(plan.steps, steps, strict=True):
        call = planned.call
        moved = sum(
            t.nbytes
            for t in {
                (loc.place, loc.index, loc.skip): loc.type for loc in (*planned.inputs, *planned.outputs)
            }.values() if isinstance(t.nbytes, int))
        if call is None or not isinstance(call.op, Function):
            made.append(ProgramStep(COPY, COPY, block, (), makers.get(main.body, ()), moved, None))
            continue
        body = call.op.body
        handed = body.op if isinstance(body, Call) and isinstance(body.op, ExternalCall) else None
        function = external.get(handed.symbol) if handed is not None else call.op
        where = handed.compiler if handed is not None else CPU if hasattr(step, "symbol") else PYTHON
        made.append(
            ProgramStep(
                _symbol(step), where, block, tuple(_operations(function or call.op)), reads.get(call, ()), moved,
                function))
    return made


def _symbol(step: Step) -> str:
    return str(getattr(step, "symbol", "") or getattr(step, "name", COPY))


def _operations(function: Function) -> Iterator[Operation]:
    """Yield the operators of a function in order, with inner functions in place of their calls."""
    for e in post_order(function.body, inside=False):
        if isinstance(e, Call) and isinstance(e.op, Function):
            yield from _operations(e.op)
        elif isinstance(e, Call):
            yield Operation(operator_name(e), type_text(e), "" if e.span is None else e.span.name)
