"""What would become of a model, said before anything is compiled: `tilewright.check(model)` and `tilewright check
MODEL`.

The model is read and imported, nothing more; of a ResNet-50 that is a third of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import onnx

from tilewright.base.errors import CompileError
from tilewright.compiler.formats import ONNX, PYTORCH, TFLITE, Format, format_of, require_torch
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Function
from tilewright.relay.frontend.known import has_unknown_sizes
from tilewright.relay.frontend.onnx.functions import functions_of, is_supported, operators, opsets_of
from tilewright.relay.frontend.onnx.importer import glance
from tilewright.relay.frontend.onnx.reading import read_model
from tilewright.relay.op.deferred import pending
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import post_order

_SAMPLE: Final = 8
"""An open size, where a number is needed."""


@dataclass(frozen=True, slots=True)
class Value:
    """An input or output as the model declares it: sizes are numbers, names, or "?" where nothing is said."""

    name: str
    shape: tuple[int | str, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator of the model: how often it is there, and how it would run."""

    name: str
    domain: str
    count: int
    runs: str
    """`native`, `staged` (compiled while the model runs, when values that decide sizes are known), `numpy` (its numpy
    meaning), or `unknown`."""
    why: str = ""
    nodes: tuple[str, ...] = ()
    """For what is not native, the first nodes of it."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """What `check` found."""

    opsets: dict[str, int]
    producer: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    operators: tuple[Operator, ...]
    refused: str = ""
    """Why the model cannot be imported although all its operators are known; empty when it can."""

    @property
    def ok(self) -> bool:
        """Whether the model can be compiled, as far as can be said without doing it."""
        return not self.refused and not self.unknown

    @property
    def unknown(self) -> tuple[Operator, ...]:
        """The operators that there is no converter for."""
        return tuple(o for o in self.operators if o.runs == "unknown")

    @property
    def staged(self) -> tuple[Operator, ...]:
        """The operators whose results have sizes that only a run tells: the model is no single program, and cannot be
        saved as one."""
        return tuple(o for o in self.operators if o.runs == "staged")

    @property
    def open_sizes(self) -> dict[str, tuple[str, ...]]:
        """By input, the dimensions that are only known when the model is called; a program is compiled for each
        size."""
        return {v.name: names for v in self.inputs if (names := tuple(d for d in v.shape if isinstance(d, str)))}

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain dictionaries and lists."""
        return {**asdict(self), "open_sizes": {n: list(d) for n, d in self.open_sizes.items()}, "ok": self.ok}


def check(model: Any, shapes: Mapping[str, Sequence[int]] | None = None) -> ModelReport:
    """Say what of a model (a path, bytes, a `ModelProto`, a `tflite.Model`, or a program of PyTorch) runs natively,
    what by its numpy meaning, and what not at all.

    `shapes` are those of `compile`. Raises `ModelError` for what is no model.
    """
    return _BY_FORMAT[format_of(model)](model, shapes)


def _checked_tflite(model: Any, shapes: Mapping[str, Sequence[int]] | None) -> ModelReport:
    from tilewright.relay.frontend.tflite import CONVERTERS, from_tflite
    from tilewright.relay.frontend.tflite.model import read_model as read

    whole = read(model)
    main = whole.graphs[0]
    inputs, outputs = (
        tuple(Value(t.name, t.shape, t.dtype) for t in (main.tensors[n] for n in numbers))
        for numbers in (main.inputs, main.outputs)
    )
    names: dict[str, list[str]] = {}
    for graph in whole.graphs:
        for o in graph.operators:
            names.setdefault(o.kind, []).append(
                next((graph.tensors[n].name for n in o.outputs), f"{o.kind}_{o.number}")
            )
    unknown = names.keys() - CONVERTERS.keys()
    refused, found = ("", _Found()) if unknown else _imported(lambda: from_tflite(model, shapes)[0])
    advice = "@tilewright.relay.frontend.tflite.register_converter"
    rows = [_operator(("", kind), nodes, kind in unknown, found, advice) for kind, nodes in names.items()]
    rows.sort(key=lambda o: (-o.count, o.name))
    return ModelReport({"TFLite": 3}, whole.description, inputs, outputs, tuple(rows), refused)


def _checked_pytorch(model: Any, shapes: Mapping[str, Sequence[int]] | None) -> ModelReport:
    require_torch(model)
    from tilewright.relay.frontend.pytorch import from_shapes, operators, signature

    kind, names, unknown = operators(model)
    advice = "@tilewright.relay.frontend.pytorch.register_converter"
    inputs: tuple[Value, ...] = ()
    refused, found = "", _Found()
    if not unknown:
        refused, found = _imported(lambda: from_shapes(model, shapes or {}))
        inputs = () if refused else tuple(Value(n, tuple(s), t) for n, s, t in signature(model, shapes))
    rows = [_operator(("", name), nodes, name in unknown, found, advice) for name, nodes in names.items()]
    rows.sort(key=lambda o: (-o.count, o.name))
    return ModelReport({kind: 1}, "PyTorch", inputs, (), tuple(rows), refused)


def _checked_onnx(model: Any, shapes: Mapping[str, Sequence[int]] | None) -> ModelReport:
    with read_model(model) as (proto, source):
        versions = opsets_of(proto, source, None)
        stored = {t.name for t in proto.graph.initializer}
        inputs = tuple(_value(i) for i in proto.graph.input if i.name not in stored)
        outputs = tuple(_value(o) for o in proto.graph.output)
        names: dict[tuple[str, str], list[str]] = {}
        unknown: set[tuple[str, str]] = set()
        for domain, version, name, node in operators(proto, functions_of(proto), versions):
            names.setdefault((domain, node.op_type), []).append(name)
            if not is_supported(domain, node.op_type, version):
                unknown.add((domain, node.op_type))
        producer = f"{proto.producer_name} {proto.producer_version}".strip()
    refused, found = ("", _Found()) if unknown else _imported(lambda: glance(model, shapes))
    sampled = _samples(inputs, shapes or {})
    if refused and sampled:  # a model of open sizes is compiled for those that come, and some converters need numbers
        why, for_samples = _imported(lambda: glance(model, sampled))
        refused, found = (refused, found) if why else ("", for_samples)
    rows = [
        _operator(key, nodes, key in unknown, found, "@tilewright.relay.frontend.onnx.register_converter")
        for key, nodes in names.items()
    ]
    rows.sort(key=lambda o: (-o.count, o.name))
    return ModelReport(versions, producer, inputs, outputs, tuple(rows), refused)


def _samples(inputs: Sequence[Value], shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """A number for each size that is open, the same for all; nothing where none is open, or an input is no tensor."""
    if any("(" in v.dtype for v in inputs):
        return {}
    open_ones = {
        v.name: v.shape for v in inputs if v.name not in shapes and not all(isinstance(d, int) for d in v.shape)
    }
    return {
        n: tuple(d if isinstance(d, int) else _SAMPLE for d in dims) for n, dims in open_ones.items()
    } | {n: tuple(s) for n, s in shapes.items() if open_ones}


_BY_FORMAT: Final[Mapping[Format, Callable[[Any, Mapping[str, Sequence[int]] | None], ModelReport]]] = {
    ONNX: _checked_onnx, TFLITE: _checked_tflite, PYTORCH: _checked_pytorch,
}


@dataclass(slots=True)
class _Found:
    """Calls of an imported model that are not native, by the operator of the model: names of nodes by the operator of
    relay."""

    slow: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    staged: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """Of those that wait, by why."""


def _imported(read: Callable[[], IRModule]) -> tuple[str, _Found]:
    """Why the model is refused; and what of it is not native."""
    found = _Found()
    try:
        module = read()
    except CompileError as error:
        return str(error), found
    for function in module.functions.values():
        for e in post_order(function.body) if isinstance(function, Function) else ():
            if isinstance(e, Call) and isinstance(e.op, Op) and (pending(e) or not has_kernel(e.op)):
                kind, name = (e.span.kind, e.span.name) if e.span is not None else ("", "")
                found_of, what = (found.staged, _why_staged(e)) if pending(e) else (found.slow, e.op.name)
                found_of.setdefault(kind, {}).setdefault(what, []).append(name)
    return "", found


def _why_staged(call: Call) -> str:
    if any(has_unknown_sizes(a) for a in call.args):
        return "its inputs have sizes that only a run tells; it is compiled when they are known, for each that comes"
    return (
        "values that a run computes decide the sizes of its results; what follows is compiled when they are known, for "
        "each that comes"
    )


def has_kernel(op: Op) -> bool:
    """Whether the operator has a native computation, or is made of operators that have one."""
    return type(op).compute is not Op.compute or type(op).simplify is not Op.simplify


def _operator(key: tuple[str, str], nodes: Sequence[str], unknown: bool, found: _Found, advice: str) -> Operator:
    domain, name = key
    if unknown:
        said = f", domain={domain!r}" if domain else ""
        why = f"there is no converter; write one: {advice}({name!r}{said})"
        return Operator(name, domain, len(nodes), "unknown", why, tuple(nodes[:5]))
    staged, slow = found.staged.get(name, {}), found.slow.get(name, {})
    at = tuple(n for names in (staged or slow).values() for n in dict.fromkeys(names))[:5]
    if staged:
        return Operator(name, domain, len(nodes), "staged", "; ".join(sorted(staged, reverse=True)), at)
    if slow:
        why = f"{', '.join(f'{o} ({len(names)} times)' for o, names in slow.items())} has no native kernel"
        return Operator(name, domain, len(nodes), "numpy", why, at)
    return Operator(name, domain, len(nodes), "native")


def _value(info: onnx.ValueInfoProto) -> Value:
    which = info.type.WhichOneof("value")
    if which != "tensor_type":
        return Value(info.name, (), (which or "unknown").removesuffix("_type"))
    kind = info.type.tensor_type
    dims = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim)
    code = kind.elem_type
    return Value(
        info.name, dims,
        onnx.TensorProto.DataType.Name(code).lower() if code in onnx.TensorProto.DataType.values() else str(code)
    )
