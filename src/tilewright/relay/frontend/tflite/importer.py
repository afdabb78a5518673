"""`from_tflite`: walks the main graph of a model in order and converts it operator by operator.

Invariants: only what the outputs depend on is converted, and what writes to variables before; every call carries the model's operator as its
span; what comes out of constants alone is a constant at once. Missing converters are all found before the first operator is converted.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from tilewright.base.errors import ModelError, OpNotImplemented, Origin
from tilewright.base.types import DataType, TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Constant, Expr, Var
from tilewright.relay.frontend.known import KnownValues, has_unknown_sizes
from tilewright.relay.frontend.operators import op
from tilewright.relay.frontend.origins import locate, naming
from tilewright.relay.frontend.tflite import deferred
from tilewright.relay.frontend.tflite.model import Graph, Model, Operator, Signature, Tensor, read_model
from tilewright.relay.frontend.tflite.node import Node, NotKnownError, Outside, Value, is_complex, is_quantized, zero_point_of
from tilewright.relay.frontend.tflite.registry import CONVERTERS, Converter, described
from tilewright.relay.frontend.tflite.resources import Resources
from tilewright.relay.qnn.settle_numerics import with_numerics
from tilewright.relay.sequence_values import with_outputs

Array = np.ndarray[Any, Any]

_SENSELESS: Final = (ArithmeticError, LookupError, TypeError, ValueError, MemoryError, RecursionError)
"""What a converter, or numpy below it, raises for values that no valid model has: absurd sizes, contradicting shapes."""
_WRITERS: Final = frozenset({"ASSIGN_VARIABLE", "CALL_ONCE", "HASHTABLE_IMPORT"})
"""Operators that are run although nothing uses a result of them."""
_DEEPEST: Final = 32
_LARGEST_STATE: Final = 1 << 28
"""Elements of a variable."""


def from_tflite(
    model: Any, shape_dict: Mapping[str, Sequence[int]] | None = None, dtype_dict: Mapping[str, str] | None = None,
    op_converter: Mapping[str, Callable[..., Any]] | None = None, signature: str | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """Import a TFLite model as an `IRModule` whose `main` has the model's inputs as parameters, by the names of their tensors.

    `model` is a path, the bytes of a file, or a `tflite.Model`. `shape_dict` has shapes of inputs by name, in place of
    those that the file says (where the file leaves a dimension open, it says 1). `dtype_dict` must agree with the model. `op_converter` has functions for operators of
    your own, or in place of ours, by the operator's name; see `register_converter`. `signature` is the key of one of the model's entries, where it has several: its graph is imported, and
    inputs and outputs have the names of the signature. The weights are constants, so the second result is empty.

    Raises `ModelError` for a file that is no whole TFLite model or contradicts itself, `OpNotImplemented` with the list of all operators that
    have no converter, and `ShapeError` where an operator refuses its arguments; all name the operator.
    """
    read = read_model(model)
    entry = None if signature is None else signature_of(read, signature)
    graph = read.graphs[0 if entry is None else entry.graph]
    own = {kind: described(kind, function) for kind, function in (op_converter or {}).items()}
    importer = Importer(read, {**CONVERTERS, **own})
    importer.check_supported()
    variables = inputs_of(graph, shape_dict, dtype_dict, {} if entry is None else {n: name for name, n in entry.inputs.items()})
    outputs = importer.graph(graph, [op.complex_parts(v) if is_complex(t) else v for v, t in zip(variables, _tensors(graph, graph.inputs), strict=True)], None, 0)
    outputs = [op.complex_of_parts(x) if is_complex(t) else x for x, t in zip(outputs, _tensors(graph, graph.outputs), strict=True)]
    said = {} if entry is None else {n: name for name, n in entry.outputs.items()}
    names = _distinct([said.get(n) or graph.tensors[n].name or f"output{k}" for k, n in enumerate(graph.outputs)])
    main = with_outputs(variables, names, outputs, [True] * len(outputs))
    return IRModule.from_expr(with_numerics(main, "tflite") if any(is_quantized(t) for g in read.graphs for t in g.tensors) else main), {}


def signature_of(model: Model, key: str) -> Signature:
    """The entry of that name. Raises `ModelError` where there is none, or its tensors are not those that its graph takes and gives."""
    found = next((s for s in model.signatures if s.key == key), None)
    if found is None:
        raise ModelError(f"the model has no signature '{key}'; its signatures are: {', '.join(s.key for s in model.signatures) or 'none'}", code="TW0111")
    graph = model.graphs[found.graph]
    for said, numbers in ((found.inputs, graph.inputs), (found.outputs, graph.outputs)):
        wrong = next((name for name, n in said.items() if n not in numbers), None)
        if wrong is not None:
            raise ModelError(f"the signature '{key}' has '{wrong}', which its graph neither takes nor gives; the file is damaged: convert it again", code="TW0103")
    return found


def _tensors(graph: Graph, numbers: Sequence[int]) -> list[Tensor]:
    return [graph.tensors[n] for n in numbers]


def inputs_of(
    graph: Graph, shapes: Mapping[str, Sequence[int]] | None, dtypes: Mapping[str, str] | None, said: Mapping[int, str] | None = None,
) -> list[Var]:
    """The inputs of a graph as variables; `said` has names of some by the number of the tensor. Raises `ModelError` for shapes and types that it does not have."""
    tensors = _tensors(graph, graph.inputs)
    names = _distinct([(said or {}).get(n) or t.name or f"input{k}" for k, (n, t) in enumerate(zip(graph.inputs, tensors, strict=True))])
    for given in (*(shapes or {}), *(dtypes or {})):
        if given not in names:
            raise ModelError(f"the model has no input '{given}'; its inputs are: {', '.join(names) or 'none'}", code="TW0111")
    found = []
    for name, t in zip(names, tensors, strict=True):
        shape = (shapes or {}).get(name)
        wanted = (dtypes or {}).get(name, t.dtype)
        if wanted != t.dtype:
            raise ModelError(f"input '{name}' of the model is {t.dtype}, and dtype_dict says {wanted}; a TFLite model is made for its types", code="TW0112")
        if shape is not None and len(shape) != len(t.shape) and t.shape not in ((), (1,)):
            raise ModelError(f"shape_dict={{{name!r}: {tuple(shape)}}} has {len(shape)} dimensions, and input '{name}' of the model has {len(t.shape)}", code="TW0112")
        found.append(Var(name, TensorType(t.shape if shape is None else tuple(int(d) for d in shape), element_type(t))))
    return found


def element_type(t: Tensor) -> DataType:
    """The type of the elements of a tensor in relay: what has less than a byte has one."""
    narrow = {"int4": "int8", "int2": "int8", "uint4": "uint8"}
    if t.dtype in ("resource", "variant"):
        raise ModelError(f"tensor '{t.name}' is a {t.dtype}, which cannot be an input", code="TW0114")
    return DataType(narrow.get(t.dtype, t.dtype))


def _distinct(names: Sequence[str]) -> list[str]:
    """Names of which no two are equal."""
    found: list[str] = []
    for name in names:
        k, made = 1, name
        while made in found:
            made, k = f"{name}_{k}", k + 1
        found.append(made)
    return found


@dataclass(slots=True)
class Importer:
    """The state of one import."""

    model: Model
    converters: Mapping[str, Converter]
    known: KnownValues = field(default_factory=KnownValues)
    resources: Resources = field(default_factory=Resources)

    def check_supported(self) -> None:
        """Raise `OpNotImplemented` for the operators that have no converter."""
        missing = sorted({o.kind for g in self.model.graphs for o in g.operators if o.kind not in self.converters})
        if missing:
            raise OpNotImplemented(
                f"there is no converter for these operators: {', '.join(missing)}; write them with @tilewright.relay.frontend.tflite.register_converter(name), "
                "or give op_converter={name: function}", Origin(self.model.file) if self.model.file else None,
            )

    def graph(self, graph: Graph, inputs: Sequence[Expr], outside: Outside | None, depth: int) -> list[Expr]:
        """The outputs of a graph on `inputs`; through `outside`, where that is given, goes what is used of the graph around."""
        if depth > _DEEPEST:
            raise ModelError(f"graph '{graph.name}' is called by itself, or deeper than {_DEEPEST} levels, which is not supported", code="TW0115")
        if len(inputs) != len(graph.inputs):
            raise ModelError(f"graph '{graph.name}' takes {len(graph.inputs)} inputs, and {len(inputs)} are given; the file is damaged: convert it again", code="TW0103")
        values: dict[int, Expr] = dict(zip(graph.inputs, inputs, strict=True))
        for operator in _needed(graph):
            origin = self._origin(graph, operator)
            for number, result in zip(operator.outputs, self._converted(graph, operator, origin, values, outside, depth), strict=False):
                values[number] = result
        return [self._lookup(graph, n, values) for n in graph.outputs]

    def _origin(self, graph: Graph, operator: Operator) -> Origin:
        name = next((graph.tensors[n].name for n in operator.outputs if n >= 0), "")
        return Origin(name or f"{operator.kind}_{operator.number}", operator.kind, self.model.file)

    def _lookup(self, graph: Graph, number: int, values: dict[int, Expr]) -> Expr:
        found = values.get(number)
        if found is None:
            t = graph.tensors[number]
            if t.is_stored:
                found = Constant(t.value(), Origin(t.name, "tensor", self.model.file))
            elif t.is_variable or 0 in t.shape:
                if math.prod(t.shape) > _LARGEST_STATE:
                    raise ModelError(f"tensor '{t.name}', which the model remembers, has the shape {t.shape}; that is larger than any network's: convert it again", code="TW0115")
                found = Constant(np.full(t.shape, _first(t), element_type(t).numpy()))
            else:
                raise ModelError(f"tensor '{t.name}' is used before it is computed, and has no stored value; the file is damaged: convert it again", code="TW0103")
            values[number] = found
        return found

    def _converted(
        self, graph: Graph, operator: Operator, origin: Origin, values: dict[int, Expr], outside: Outside | None, depth: int,
    ) -> list[Expr]:
        with _naming(origin):
            args = [Value(self._lookup(graph, n, values), graph.tensors[n]) if n >= 0 else None for n in operator.inputs]
        return self.operator(operator, origin, args, [graph.tensors[n] for n in operator.outputs], [graph.tensors[n] for n in operator.intermediates], outside, depth)

    def operator(
        self, operator: Operator, origin: Origin, args: list[Value | None], outputs: Sequence[Tensor], intermediates: Sequence[Tensor],
        outside: Outside | None, depth: int,
    ) -> list[Expr]:
        """The results of an operator. Raises `CompileError` that names it."""
        with _naming(origin):
            results = self._results(operator, origin, args, outputs, intermediates, outside, depth)
        if len(results) < len(operator.outputs):
            raise ModelError(f"{len(results)} of its {len(operator.outputs)} outputs are supported", origin, code="TW0107")
        return results

    def _results(
        self, operator: Operator, origin: Origin, args: list[Value | None], outputs: Sequence[Tensor], intermediates: Sequence[Tensor],
        outside: Outside | None, depth: int,
    ) -> list[Expr]:
        """The results of an operator; where the type of an input or a value is not known yet, a call that is converted when it is."""
        def import_graph(number: int, inputs: Sequence[Expr], through: Outside | None) -> list[Expr]:
            if not 0 <= number < len(self.model.graphs):
                raise ModelError(f"graph {number} is called, and there are {len(self.model.graphs)}; the file is damaged: convert it again", origin, code="TW0103")
            return self.graph(self.model.graphs[number], inputs, through or outside, depth + 1)

        while args and args[-1] is None:
            args.pop()
        waits = any(a is not None and has_unknown_sizes(a.expr) for a in args)
        if not waits:
            node = Node(operator, origin, outputs, intermediates, self.model, self.known, self.resources, import_graph)
            try:
                found = self.converters[operator.kind].convert(node, args, operator.options)
                results = list(found) if isinstance(found, (tuple, list)) else [found]
                for r in results:
                    locate(r, origin)
                if all(a is None or self.known.of(a.expr) is not None for a in args) or operator.kind in ("SHAPE", "RANK"):
                    results = [self.known.settle(r) for r in results]
                return results
            except NotKnownError:
                if outside is not None:
                    raise
        elif outside is not None:
            raise NotKnownError("the sizes of its inputs are only known while the model runs, and may differ from turn to turn", origin)
        return deferred.defer(self.model, operator, origin, args, outputs, intermediates)


def _first(t: Tensor) -> int:
    """What a variable holds at first: zero, which for int8 of a scale is its zero point."""
    return zero_point_of(t) if t.dtype == "int8" and is_quantized(t) else 0


def _naming(origin: Origin) -> contextlib.AbstractContextManager[None]:
    """Whatever is raised within names the operator."""
    return naming(origin, _SENSELESS, "its inputs and options", "the TFLite interpreter")


def _needed(graph: Graph) -> list[Operator]:
    """The operators that the outputs depend on, and those that write to variables, in order."""
    wanted = set(graph.outputs)
    found = []
    for operator in reversed(graph.operators):
        if operator.kind in _WRITERS or wanted.intersection(operator.outputs):
            found.append(operator)
            wanted.update(operator.inputs)
    return found[::-1]
