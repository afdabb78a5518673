"""The report of `tilewright.check(model)` and `tilewright check MODEL`: how a model would run.

A model of known sizes is only read and imported; a ResNet-50 takes a third of a second. A model with symbolic
dimensions is also compiled for all sizes, because only that shows whether it can be; the cache keeps the program.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from tilewright.base.errors import CompileError
from tilewright.compiler.formats import format_of
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Expr, Function
from tilewright.relay.frontend.core.known import has_unknown_sizes
from tilewright.relay.op.deferred import pending
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import operands, post_order
from tilewright.runtime.guards import shape_of
from tilewright.runtime.open_program import OpenExecutable

_TRIED: Final = (1, 64, 16, 224)
"""Sizes for which a model is imported that cannot be imported for symbolic ones."""
_LARGER: Final = 64
"""Factor of the larger sizes for which the memory of a program is reported."""


@dataclass(frozen=True, slots=True)
class Value:
    """An input or output as the model declares it; a dimension is a number, a name, or "?" if unknown."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of the model: its number of occurrences, and how it would run."""

    name: str
    domain: str
    count: int
    runs: str
    """`native`, `staged` (compiled at run time, once the values that determine sizes are known), `numpy` (interpreted),
    or `unknown`."""
    why: str = ""
    nodes: tuple[str, ...] = ()
    """The first nodes of the operator, if it is not native."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The result of `check`."""

    opsets: dict[str, int]
    producer: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    operators: tuple[Operator, ...]
    refused: str = ""
    """Why the model cannot be imported although it has no unknown operators; empty if it can."""
    symbolic: bool | None = None
    """Whether one program serves all sizes of the symbolic dimensions; None if there are none, or the model is refused.
    """
    why_not_symbolic: str = ""
    """Why no program serves all sizes; stages do where values decide sizes, else a program for each combination."""
    in_stages: bool = False
    """Whether stages serve the sizes, because values decide some."""
    rules: tuple[str, ...] = ()
    """Rules of the symbolic dimensions, if one program serves all sizes: `n (dimension 0 of input 'x'): from 1`."""
    memory: tuple[tuple[str, int], ...] = ()
    """Sizes of that program, `n = 1`, with the bytes between its kernels: the least sizes, then each larger alone."""
    kept: int = 0
    """Bytes of weights in other forms, which that program computes at the first calls with large sizes, and keeps."""

    @property
    def ok(self) -> bool:
        """Whether the model can be compiled, as far as is known without compiling it."""
        return not self.refused and not self.unknown

    @property
    def unknown(self) -> tuple[Operator, ...]:
        """The operators without a converter."""
        return tuple(o for o in self.operators if o.runs == "unknown")

    @property
    def staged(self) -> tuple[Operator, ...]:
        """The operators whose result sizes are known only at run time; a model with such operators cannot be saved as
        one program."""
        return tuple(o for o in self.operators if o.runs == "staged")

    @property
    def open_sizes(self) -> dict[str, tuple[str, ...]]:
        """The dynamic dimensions of each input."""
        return {v.name: names for v in self.inputs if (names := tuple(d for d in v.shape if isinstance(d, str)))}

    def as_dict(self) -> dict[str, Any]:
        """Return the report as dictionaries and lists."""
        return {**asdict(self), "open_sizes": {n: list(d) for n, d in self.open_sizes.items()}, "ok": self.ok}


def check(model: Any, shapes: Mapping[str, Sequence[int]] | None = None) -> ModelReport:
    """Report which operators of a model run natively, which in numpy, and which are not supported.

    `model` is a path, bytes, a `ModelProto`, a `tflite.Model`, or a program of PyTorch; `shapes` are those of
    `compile`. Raises `ModelError` for an invalid model.
    """
    whole = format_of(model).contents(model, shapes)
    refused, found = ("", _Found()) if whole.unknown else _imported(whole.read)
    inputs, outputs = (tuple(Value(*v) for v in values) for values in (whole.inputs, whole.outputs))
    dims = {v.name: tuple((shapes or {}).get(v.name, v.shape)) for v in inputs}
    open_ = {n: shape for n, shape in dims.items() if any(isinstance(d, str) for d in shape)}
    sizes = None if whole.unknown or not open_ else _sizes(model, shapes)
    if sizes is not None and sizes.refused:
        refused = sizes.refused
    elif sizes is not None and sizes.symbolic:
        refused, found.staged = "", {}
    elif sizes is not None and refused and _has_sizes(model, shapes or {}, open_):
        refused = ""
    rows = [_operator(key, nodes, found, whole.advice(key[1], key[0]) if key in whole.unknown else "")
            for key, nodes in whole.nodes.items()]
    rows.sort(key=lambda o: (-o.count, o.name))
    report = ModelReport(dict(whole.versions), whole.producer, inputs, outputs, tuple(rows), refused)
    return report if sizes is None or refused else replace(
        report, symbolic=sizes.symbolic, why_not_symbolic=sizes.why, in_stages=sizes.in_stages, rules=sizes.rules,
        memory=sizes.memory, kept=sizes.kept)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How a model serves the sizes of its symbolic dimensions."""

    why: str = ""
    rules: tuple[str, ...] = ()
    memory: tuple[tuple[str, int], ...] = ()
    refused: str = ""
    in_stages: bool = False
    kept: int = 0

    @property
    def symbolic(self) -> bool:
        return not self.why


def _sizes(model: Any, shapes: Mapping[str, Sequence[Any]] | None) -> _Sizes:
    """Compile the model for all sizes, and return what the program admits, or the reason why there is none."""
    from tilewright.compiler.model import compile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            made = compile(model, shapes)
        except CompileError as error:
            return _Sizes(refused=str(error))
    if made.why_not_symbolic:
        return _Sizes(made.why_not_symbolic, in_stages=made.in_stages)
    program = made.executable
    if not isinstance(program, OpenExecutable):
        return _Sizes()
    kept = sum(k.nbytes for k in program.manifest.kept)
    return _Sizes("", program.guards.rules(), _memory(program), kept=kept)


def _memory(program: OpenExecutable) -> tuple[tuple[str, int], ...]:
    """Return combinations of sizes with the memory between kernels: the least sizes, and each size larger alone."""
    symbols, inputs = program.manifest.symbols, program.manifest.inputs
    least = {s.name: max(s.least, 1) for s in symbols}
    larger = {s.name: _LARGER * least[s.name] if s.most is None else min(_LARGER * least[s.name], s.most)
              for s in symbols}
    found: dict[str, int] = {}
    for sizes in (least, *({**least, name: n} for name, n in larger.items())):
        shapes = tuple(shape_of(t, sizes) for t in inputs)
        named = {str(d).strip("()"): n for t, shape in zip(inputs, shapes, strict=True)
                 for d, n in zip(t.shape, shape, strict=True) if isinstance(d, str)}
        text = ", ".join(f"{d} = {n}" for d, n in named.items())
        found[text] = program.at(shapes).manifest.workspace_bytes
    return tuple(found.items())


def _has_sizes(
    model: Any, shapes: Mapping[str, Sequence[Any]], open_: Mapping[str, Sequence[Any]]
) -> bool:
    """Whether the model can be imported for some sizes of its symbolic dimensions."""
    for number in _TRIED:
        sizes = {n: tuple(d if isinstance(d, int) else number for d in dims) for n, dims in open_.items()}
        given = {**shapes, **sizes}
        if not _imported(format_of(model).contents(model, given).read)[0]:
            return True
    return False


@dataclass(slots=True)
class _Found:
    """Calls of an imported model that are not native: names of nodes, by operator of the model and of Relay."""

    slow: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    staged: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Calls that wait for values, by reason."""


def _imported(read: Callable[[], IRModule]) -> tuple[str, _Found]:
    """Import the model; return the reason if it is refused, and the calls that are not native."""
    found = _Found()
    try:
        module = read()
    except CompileError as error:
        return str(error), found
    for function in module.functions.values():
        if isinstance(function, Function):
            _look(function, found)
    return "", found


def _look(function: Function, found: _Found) -> None:
    """Record the calls of a function that are not native.

    A call that only waits for symbolic sizes is native, because every call of the program provides them. So are its
    users that only wait for its type.
    """
    sized: set[Expr] = set()
    for e in post_order(function.body):
        if pending(e) and _waits_for_sizes(e, sized):
            sized.add(e)
        elif isinstance(e, Call) and isinstance(e.op, Op) and (pending(e) or not has_kernel(e.op)):
            kind, name = (e.span.kind, e.span.name) if e.span is not None else ("", "")
            found_of, what = (found.staged, _why_staged(e)) if pending(e) else (found.slow, e.op.name)
            found_of.setdefault(kind, {}).setdefault(what, []).append(name)
        elif any(o in sized for o in operands(e)) and e.known_type() is None:
            sized.add(e)


def _waits_for_sizes(e: Expr, sized: Collection[Expr]) -> bool:
    unknown = [a for a in operands(e) if has_unknown_sizes(a)]
    return ((isinstance(e, Call) and getattr(e.op, "for_sizes", False))
            or (bool(unknown) and all(a in sized for a in unknown)))


def _why_staged(call: Call) -> str:
    if any(has_unknown_sizes(a) for a in call.args):
        return (
            "the sizes of its inputs depend on computed values; it is in a later stage, compiled for all sizes if "
            "possible")
    return (
        "computed values determine the sizes of its results; later operators are in stages of their own, compiled for "
        "all sizes if possible")


def has_kernel(op: Op) -> bool:
    """Whether the operator has a native computation, or decomposes into operators that have one."""
    return type(op).compute is not Op.compute or type(op).simplify is not Op.simplify


def _operator(key: tuple[str, str], nodes: Sequence[str], found: _Found, advice: str) -> Operator:
    domain, name = key
    if advice:
        why = f"there is no converter; write one: {advice}"
        return Operator(name, domain, len(nodes), "unknown", why, tuple(nodes[:5]))
    staged, slow = found.staged.get(name, {}), found.slow.get(name, {})
    at = tuple(n for names in (staged or slow).values() for n in dict.fromkeys(names))[:5]
    if staged:
        return Operator(name, domain, len(nodes), "staged", "; ".join(sorted(staged, reverse=True)), at)
    if slow:
        why = f"{', '.join(f'{o} ({len(names)} times)' for o, names in slow.items())} has no native kernel"
        return Operator(name, domain, len(nodes), "numpy", why, at)
    return Operator(name, domain, len(nodes), "native")
