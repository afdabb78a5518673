"""A case: a program with the values of its inputs, which is sent between processes, and cut to smaller cases.

    main(x, w) = relu(conv2d(x, w) + b)      cut to the root `conv2d(x, w) + b`, with the value of `conv2d(x, w)` given
    -> main(v0) = v0 + b                     v0: the value computed by the reference interpreter
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.base.nd import NDArray
from tilewright.base.params import load_param_dict, save_param_dict
from tilewright.base.types import DataType, TensorType
from tilewright.ir.module import IRModule
from tilewright.relay.expr import Call, Constant, Expr, Function, Var
from tilewright.relay.first_difference import values_of
from tilewright.relay.interpreter import evaluate
from tilewright.relay.serialization import load_json, save_json
from tilewright.relay.transform.split_batch import PARTS
from tilewright.relay.visitor import calls, post_order, rewrite

Array = np.ndarray[Any, Any]
_KEPT: Final = ("numerics",)
"""Attributes of `main` that affect its operators; attributes about its results do not apply to a part of it."""


@dataclass(frozen=True, slots=True)
class Case:
    """A module whose `main` has tensor parameters, and an array for each parameter, in order."""

    module: IRModule
    values: tuple[Array, ...]

    @property
    def main(self) -> Function:
        main: Function = self.module["main"]
        return main

    @property
    def nodes(self) -> int:
        """Number of calls of operators and functions."""
        return len(calls(self.main.body, inside=False))

    @property
    def elements(self) -> int:
        """Number of elements of the inputs and constants."""
        return (
            sum(v.size for v in self.values)
            + sum(e.value.size for e in post_order(self.main.body) if isinstance(e, Constant))
        )

    @property
    def names(self) -> list[str]:
        return [p.name_hint for p in self.main.params]

    def reference(self) -> list[Array]:
        """Run the interpreter and return its results, with tuples flattened."""
        return flattened(evaluate(self.module, *self.values))

    def known(self) -> dict[Expr, Array]:
        """Return the tensors that `main` computes outside branches, in order of evaluation, from the interpreter."""
        functions = {v.name_hint: self.module[v] for v in self.module.get_global_vars()}
        return {e: v for e, v in values_of(self.main, self.values, functions).items() if not isinstance(e, Var)}

    def of_one_part(self) -> Case:
        """Return the same program for the first of the parts into which it splits its inputs."""
        parts = self.main.attrs.get(PARTS, 1)
        if parts == 1:
            return self
        return Case(
            with_main(self.module, self.main.without_attr(PARTS)), tuple(np.split(v, parts)[0] for v in self.values))

    def cut(self, root: Expr, given: Mapping[Expr, Array]) -> Case:
        """Return the case with the result `root`; expressions with values in `values` become inputs."""
        new: dict[Expr, Expr] = {
            e: Var(f"v{k}", TensorType(v.shape, DataType(v.dtype)), e.span) for k, (e, v) in enumerate(given.items())}
        body = rewrite(root, lambda e: None, memo=dict(new)) if root not in new else new[root]
        return self.around(
            body, {**{v: given[e] for e, v in new.items()}, **dict(zip(self.main.params, self.values, strict=True))})

    def around(self, body: Expr, values: Mapping[Any, Array]) -> Case:
        """Return a case with another body over variables with these values; unused ones are left out."""
        used = [e for e in post_order(body) if isinstance(e, Var) and e in values]
        attrs = {k: v for k, v in self.main.attrs.items() if k in _KEPT}
        return Case(
            with_main(self.module, Function(used, body, attrs=attrs)),
            tuple(np.asarray(values[p], order="C") for p in used))

    def to_bytes(self) -> list[bytes]:
        """Return the case as pieces of a message, or contents of files."""
        return [save_json(self.module).encode(), save_arrays({f"input_{k}": v for k, v in enumerate(self.values)})]

    @staticmethod
    def from_bytes(pieces: Iterable[bytes]) -> Case:
        """Return the case that `to_bytes` encoded."""
        module, arrays = pieces
        return Case(load_json(bytes(module).decode()), tuple(load_arrays(arrays).values()))


def with_main(module: IRModule, main: Function) -> IRModule:
    """Return the module with another `main`."""
    made = module.copy()
    made["main"] = main
    return made


def case_of(function: Function, values: Iterable[Array]) -> Case:
    """Return a case of a single function."""
    return Case(IRModule({"main": function}), tuple(values))


def kernel_case(call: Call, args: Iterable[Array]) -> Case:
    """Return the primitive function of a call as a program: constant arguments stay constants, the others become
    inputs with these values."""
    function = call.op
    assert isinstance(function, Function)
    new: dict[Expr, Expr] = {}
    values: dict[Expr, Array] = {}
    for k, (p, a, v) in enumerate(zip(function.params, call.args, args, strict=True)):
        new[p] = a if isinstance(a, Constant) else Var(f"v{k}", p.type_annotation)
        if not isinstance(a, Constant):
            values[new[p]] = v
    body = rewrite(function.body, lambda e: None, memo=dict(new))
    used = [e for e in post_order(body) if isinstance(e, Var)]
    return case_of(Function(used, body), [np.asarray(values[p], order="C") for p in used])


def operators(body: Expr) -> list[str]:
    """Return the names of the operators of an expression, in order of evaluation."""
    return [e.op.name for e in calls(body) if not isinstance(e.op, Expr)]


def flattened(value: Any) -> list[Array]:
    """Return the arrays of a value, with nested tuples flattened."""
    if isinstance(value, (tuple, list)):
        return [a for v in value for a in flattened(v)]
    return [np.asarray(value.numpy() if isinstance(value, NDArray) else value)]


def save_arrays(arrays: Mapping[str, Array]) -> bytes:
    """Return named arrays as bytes, in the format of parameters."""
    return save_param_dict(arrays)


def load_arrays(raw: bytes) -> dict[str, Array]:
    """Return the arrays that `save_arrays` encoded."""
    return {name: value.numpy() for name, value in load_param_dict(raw).items()}
