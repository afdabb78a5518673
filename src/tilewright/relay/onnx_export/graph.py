"""The graph of an ONNX model that is written, and the walk over a Relay function that fills it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import CompileError, OptionError, PackageError
from tilewright.base.nd import as_numpy
from tilewright.base.types import TensorType, TupleType, Type
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.relay.op.registry import Op
from tilewright.relay.transform.infer_type import InferType
from tilewright.relay.visitor import post_order

OPSET: Final = 11
OPSETS: Final = (11, 12)
"""The versions of the operator set that are written: those in which axes are attributes."""
_IR_VERSION: Final = 7


class Graph:
    """The nodes and constants of a model, and the names of the values of expressions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._taken: set[str] = set()
        try:
            from onnx import helper, numpy_helper
        except ImportError as error:
            raise PackageError("writing ONNX files needs the package onnx; pip install onnx") from error
        self._helper, self._arrays = helper, numpy_helper

    def fresh(self, hint: str) -> str:
        """Return a name that no value has yet."""
        name, k = hint or "value", 0
        while name in self._taken:
            k += 1
            name = f"{hint or 'value'}_{k}"
        self._taken.add(name)
        return name

    def constant(self, value: Any, hint: str = "constant") -> str:
        """Add a constant and return its name."""
        name = self.fresh(hint)
        self.constants.append(self._arrays.from_array(np.ascontiguousarray(value), name))
        return name

    def integers(self, values: Sequence[Any], hint: str) -> str:
        """Add a vector of int64 numbers and return its name. Raises `CompileError` for symbolic sizes."""
        wrong = next((v for v in values if not isinstance(v, (int, np.integer))), None)
        if wrong is not None:
            raise CompileError(
                f"the size '{wrong}' is written as a number in ONNX, but it is symbolic; give it a value",
                code="TW0407")
        return self.constant(np.array([int(v) for v in values], np.int64), hint)

    def node(self, kind: str, inputs: Sequence[str], results: int = 1, **attributes: Any) -> list[str]:
        """Add a node of an ONNX operator and return the names of its results; attributes of None are left out."""
        names = [self.fresh(f"{kind}_{k}" if k else kind) for k in range(results)]
        given = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(self._helper.make_node(kind, list(inputs), names, name=names[0], **given))
        return names

    def value(self, name: str, kind: TensorType) -> Any:
        """Return the description of an input or a result."""
        shape = [d if isinstance(d, int) else None for d in kind.shape]
        return self._helper.make_tensor_value_info(name, element_type(kind.dtype), shape)

    def model(self, inputs: Sequence[Any], results: Sequence[Any], opset: int) -> Any:
        """Return the model with these inputs and results, checked by the package `onnx`."""
        from onnx import checker

        graph = self._helper.make_graph(self.nodes, self.name, list(inputs), list(results), self.constants)
        made = self._helper.make_model(
            graph, opset_imports=[self._helper.make_opsetid("", opset)], ir_version=_IR_VERSION,
            producer_name="tilewright")
        checker.check_model(made)
        return made


def element_type(dtype: Any) -> int:
    """Return ONNX's number of a dtype. Raises `CompileError` for a type that ONNX lacks."""
    from onnx import helper

    try:
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype.numpy())))
    except (KeyError, ValueError, TypeError):
        raise CompileError(f"tensors of {dtype} cannot be written to ONNX; cast them", code="TW0407") from None


Writer = Callable[..., Sequence[str]]


def to_onnx(
    relay_ir: IRModule | Function, params: Mapping[str, Any] | None = None, name: str = "graph",
    opset_version: int = OPSET,
    path: str | os.PathLike[str] | None = None,
) -> Any:
    """Return an ONNX model (`onnx.ModelProto`) of a function without control flow, and write it to `path` if given.

    `params` are values of parameters by name; they become constants. Parameters without a value are the inputs, in
    order. Raises `OptionError` for a version that is not in `OPSETS`, and `CompileError` for an operator, an attribute
    or a type that is not written.
    """
    if opset_version not in OPSETS:
        raise OptionError(
            f"version {opset_version} of ONNX's operators is not written; use one of {', '.join(map(str, OPSETS))}",
            code="TW0210")
    mod = relay_ir if isinstance(relay_ir, IRModule) else IRModule.from_expr(relay_ir)
    function = InferType()(mod)["main"]
    graph = Graph(name)
    known = {k: as_numpy(v) for k, v in (params or {}).items()}
    names: dict[Expr, list[str]] = {}
    inputs = []
    for p in function.params:
        kind = _tensor(p.known_type(), f"the parameter '{p.name_hint}'")
        if p.name_hint in known:
            names[p] = [graph.constant(known[p.name_hint], p.name_hint)]
        else:
            names[p] = [graph.fresh(p.name_hint)]
            inputs.append(graph.value(names[p][0], kind))
    for e in post_order(function.body):
        if e not in names:
            written = _written(graph, e, names)
            if written is not None:
                names[e] = written
    results = _results(graph, function.body, names)
    made = graph.model(inputs, results, opset_version)
    if path is not None:
        from onnx import save

        save(made, path)
    return made


def _tensor(kind: Type | None, what: str) -> TensorType:
    if not isinstance(kind, TensorType):
        raise CompileError(f"{what} is {kind}; only tensors are inputs and results of ONNX models", code="TW0407")
    return kind


def _written(graph: Graph, e: Expr, names: Mapping[Expr, list[str]]) -> list[str] | None:
    """Write an expression whose operands are written; return the names of its values, or None for an operator."""
    from tilewright.relay.onnx_export.writers import WRITERS

    match e:
        case Op():
            return None
        case Constant():
            return [graph.constant(e.value)]
        case Tuple():
            return [n for field in e.fields for n in names[field]]
        case TupleGetItem():
            return [names[e.tuple_value][e.index]]
        case Call() if isinstance(e.op, Op) and e.op.name in WRITERS:
            return list(WRITERS[e.op.name](graph, e, *(names[a] for a in e.args)))
        case Call() if isinstance(e.op, Op):
            raise CompileError(
                f"the operator '{e.op.name}' is not written to ONNX; replace it, or save the network as Relay",
                code="TW0407")
        case Var():
            raise CompileError(f"'{e.name_hint}' is not a parameter of the function that is written", code="TW0407")
    raise CompileError(
        f"{type(e).__name__} has no form in ONNX here; only functions of operators, tuples and constants are written",
        code="TW0407")


def _results(graph: Graph, body: Expr, names: Mapping[Expr, list[str]]) -> list[Any]:
    """Return the descriptions of the results. Each is the result of a node of its own name."""
    kind = body.known_type()
    kinds = kind.fields if isinstance(kind, TupleType) else (kind,)
    made = {name for node in graph.nodes for name in node.output}
    found: list[Any] = []
    for name, each in zip(names[body], kinds, strict=False):
        own = name if name in made and name not in {v.name for v in found} else graph.node("Identity", [name])[0]
        found.append(graph.value(own, _tensor(each, "a result")))
    return found
