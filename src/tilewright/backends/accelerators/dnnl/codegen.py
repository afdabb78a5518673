"""`relay.ext.dnnl`: converts a function of composite functions (`relay/op/contrib/dnnl.py`) to a oneDNN program.

    fn (%x) { nn.relu(add(nn.bias_add(nn.conv2d(%x, w), b), %r)) } -> convolution(x, w, b), then sum r, then relu
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.backends.accelerators.dnnl.program import CONSTANT, INPUT, Operation, Program
from tilewright.backends.accelerators.dnnl.runtime import DNNLModule
from tilewright.base.errors import CompileError
from tilewright.base.global_functions import register_func
from tilewright.relay.dataflow_pattern import wildcard
from tilewright.relay.dataflow_pattern.match import Matcher
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, Var
from tilewright.relay.op.contrib.dnnl import (
    ACTIVATIONS,
    BINARIES,
    CONVOLUTIONS,
    GLOBAL_POOLS,
    MAX_POOLS,
    MEAN_POOLS,
    TARGET,
    TRANSPOSED,
    UNARY,
    VIEWS,
    Activation,
)
from tilewright.relay.op.registry import Op
from tilewright.relay.visitor import post_order


def generate(function: Function) -> DNNLModule:
    """Return the module of a function that `partition_for_dnnl` made. Raises `CompileError` for a composite that is not
    in the pattern table."""
    return DNNLModule(_Reader(function).program)


register_func(f"relay.ext.{TARGET}", generate)


class _Reader:
    """A walk over a function that converts each call of a composite function to operations."""

    def __init__(self, function: Function) -> None:
        self.program = Program(str(function.attrs["global_symbol"]))
        self.values: dict[Expr, int] = {p: self.program.add(_shape(p), INPUT) for p in function.params}
        self._constants: dict[int, tuple[int, Any]] = {}
        for e in post_order(function.body, inside=False):
            if isinstance(e, Call):
                self.values[e] = self._composite(e)
            elif not isinstance(e, (Var, Constant, Tuple)):
                raise CompileError(
                    f"a function for oneDNN has a {type(e).__name__}; partition the module with partition_for_dnnl",
                    e.span, code="TW0904")
        body = function.body
        self.program.results = [self.value(f) for f in (body.fields if isinstance(body, Tuple) else (body,))]

    def value(self, e: Expr) -> int:
        """Return the number of a value, a new one for a constant. Scalars have one dimension."""
        if not isinstance(e, Constant):
            return self.values[e]
        found = self._constants.get(id(e.value))
        if found is None:
            data = np.ascontiguousarray(e.value, np.float32).reshape(e.value.shape or (1,))
            # kept alive, so that its id stays unique
            found = self._constants[id(e.value)] = self.program.add(data.shape, CONSTANT, data), e.value
        return found[0]

    def _composite(self, call: Call) -> int:
        """Add the operations of one composite function, its anchor and post-ops; return the number of the result."""
        function = call.op
        if not isinstance(function, Function) or "Composite" not in function.attrs:
            raise CompileError(
                "a function for oneDNN calls an operator that is not in its pattern table; partition the module with "
                "partition_for_dnnl",
                call.span, code="TW0904")
        for p, a in zip(function.params, call.args, strict=True):
            if not isinstance(a, Tuple):
                self.values[p] = self.value(a)
        fields = {p: a for p, a in zip(function.params, call.args, strict=True) if isinstance(a, Tuple)}
        steps: list[Callable[[Operation], None]] = []
        e = self._activated(function.body, str(function.attrs["Composite"]), steps)
        while isinstance(e, Call) and (inner := next((a for a in e.args if isinstance(a, Call)), None)) is not None:
            steps.append(self._follows(e, inner))
            e = inner
        if isinstance(e, Call):
            made = self._anchor(e, fields)
        else:
            made = Operation("eltwise", [self.value(e)], self.program.add(_shape(e)))
        for step in reversed(steps):
            step(made)
        if made.kind == "eltwise" and not made.attrs:
            _, name, alpha, beta = made.post.pop(0)
            made.attrs = {"algorithm": name, "alpha": alpha, "beta": beta}
        self.program.operations.append(made)
        return self._shaped(made, function.body)

    def _activated(self, e: Expr, name: str, steps: list[Callable[[Operation], None]]) -> Expr:
        """Return the operand of the activation that a row is named after, and append the activation to `steps`."""
        kind = next((k for k in sorted(ACTIVATIONS, key=len, reverse=True) if name.endswith((f"_{k}", f".{k}"))), None)
        if kind is None:
            return e
        x = wildcard()
        activation = Activation(kind, x)
        found = Matcher(e).match(activation.pattern, e)
        if found is None:
            raise CompileError(
                f"a function {name} for oneDNN is not a {kind}; partition the module with partition_for_dnnl", e.span,
                code="TW0904")
        steps.append(lambda o: o.post.append(["eltwise", activation.algorithm, activation.alpha, activation.beta]))
        inner: Expr = found[x][0]
        return inner

    def _follows(self, e: Call, inner: Call) -> Callable[[Operation], None]:
        """Return a function that adds a call after the anchor to the operation."""
        name = _name(e)
        if name in UNARY:
            return lambda o: o.post.append(["eltwise", *UNARY[name](e.op)])
        other = next((a for a in e.args if a is not inner), None)
        if other is None or name not in ("add", "nn.bias_add"):
            raise CompileError(
                f"{name} follows another operator in a function for oneDNN, which no row of its pattern table allows",
                e.span, code="TW0904")
        return lambda o: self._added(o, e, other)

    def _added(self, o: Operation, e: Call, other: Expr) -> None:
        """Add a sum as a bias (one number per channel), a residual (of the result's shape), or a broadcast operand."""
        op: Any = e.op
        rank = len(_shape(e))
        axis = _channel_axis(o, rank) if _name(e) == "add" else op.axis % rank
        if (
            isinstance(other, Constant) and o.kind in _BIASED and len(o.inputs) == 2 and not o.post
            and axis == _channel_axis(o, rank)
        ):
            shape = other.value.shape if _name(e) == "add" else (*other.value.shape, *(1,) * (rank - 1 - axis))
            wide = (*(1,) * (rank - len(shape)), *shape)
            if all(n == (_shape(e)[axis] if k == axis else 1) for k, n in enumerate(wide)):
                o.inputs.append(self.value(Constant(np.ascontiguousarray(other.value.reshape(-1)))))
                return
        if _shape(other) == _shape(e) and not o.post:
            o.post.append(["sum", self._flat(o, other)])
            return
        if _name(e) == "nn.bias_add":
            assert isinstance(other, Constant)
            other = Constant(other.value.reshape(-1, *(1,) * (rank - 1 - axis)))
        o.post.append(["binary", "add", self._flat(o, other)])

    def _flat(self, o: Operation, e: Expr) -> int:
        """Return the number of a post-op's operand in the shape of the operation, which for products of rows is a
        matrix."""
        value = self.value(e)
        shape = self.program.values[value].shape
        rank = len(self.program.values[o.output].shape)
        if len(shape) <= rank:
            return value
        rows = (int(np.prod(shape[:-1])), shape[-1])
        return self._reshaped(value, rows)

    def _reshaped(self, value: int, shape: Sequence[int]) -> int:
        made = self.program.add(shape)
        self.program.operations.append(Operation("reshape", [value], made))
        return made

    def _shaped(self, o: Operation, e: Expr) -> int:
        """Return the number of the result in the shape of the graph."""
        return o.output if self.program.values[o.output].shape == _shape(e) else self._reshaped(o.output, _shape(e))

    def _anchor(self, e: Call, fields: dict[Var, Tuple]) -> Operation:
        name = _name(e)
        build = _ANCHORS.get(name)
        if build is None:
            raise CompileError(
                f"{name} is not in oneDNN's pattern table; partition the module with partition_for_dnnl", e.span,
                code="TW0904")
        if name == "concatenate":
            joined = e.args[0]
            given = fields.get(joined, joined) if isinstance(joined, Var) else joined
            assert isinstance(given, Tuple)
            inputs = [self.value(f) for f in given.fields]
        else:
            inputs = [self.value(a) for a in e.args]
        return build(self, e, e.op, inputs)


def _name(e: Call) -> str:
    return e.op.name if isinstance(e.op, Op) else "a function"


def _shape(e: Expr) -> tuple[int, ...]:
    """Return the shape of a tensor; a scalar has one dimension."""
    return tuple(e.tensor_type.shape) or (1,)


_BIASED: Final = ("convolution", "deconvolution", "inner_product")


def _channel_axis(o: Operation, rank: int) -> int:
    return int(o.attrs["layout"].index("C")) if "layout" in o.attrs else rank - 1


def _convolution(r: _Reader, e: Call, op: Any, inputs: list[int]) -> Operation:
    attrs = {
        "strides": list(op.strides), "padding": list(op.padding), "dilation": list(op.dilation), "groups": op.groups,
        "layout": op.data_layout,
        "kernel_layout": op.kernel_layout,
    }
    return Operation("deconvolution" if op.transposed else "convolution", inputs, r.program.add(_shape(e)), attrs)


def _dense(r: _Reader, e: Call, op: Any, inputs: list[int]) -> Operation:
    shape = _shape(e.args[0])
    rows = int(np.prod(shape[:-1]))
    if len(shape) != 2:
        inputs[0] = r._reshaped(inputs[0], (rows, shape[-1]))
    return Operation("inner_product", inputs, r.program.add((rows, _shape(e)[-1])))


def _pool(r: _Reader, e: Call, op: Any, inputs: list[int]) -> Operation:
    name = op.name
    axes = [op.layout.index(c) for c in "DHW" if c in op.layout]
    sizes, made = [_shape(e.args[0])[a] for a in axes], [_shape(e)[a] for a in axes]
    whole = name in GLOBAL_POOLS
    kernel, strides, dilation = (
        (sizes, [1] * len(sizes), [1] * len(sizes)) if whole
        else (list(op.pool_size), list(op.strides), list(op.dilation))
    )
    before = [0] * len(sizes) if whole else list(op.padding[: len(sizes)])
    after = [
        (n - 1) * s + (k - 1) * d + 1 - size - p
        for n, s, k, d, size, p in zip(made, strides, kernel, dilation, sizes, before, strict=True)]
    mean = "average with padding" if getattr(op, "count_include_pad", False) else "average"
    algorithm = "max" if name in MAX_POOLS or name == "nn.global_max_pool2d" else mean
    attrs = {
        "algorithm": algorithm, "kernel": kernel, "strides": strides, "dilation": dilation,
        "padding": [*before, *after], "layout": op.layout
    }
    return Operation("pool", inputs, r.program.add(_shape(e)), attrs)


def _softmax(r: _Reader, e: Call, op: Any, inputs: list[int]) -> Operation:
    rank = len(_shape(e))
    return Operation(
        "softmax", inputs, r.program.add(_shape(e)), {"algorithm": op.name.removeprefix("nn."), "axis": op.axis % rank})


def _binary(r: _Reader, e: Call, op: Any, inputs: list[int]) -> Operation:
    if r.program.values[inputs[0]].shape != _shape(e):
        inputs = inputs[::-1]
    return Operation("binary", inputs, r.program.add(_shape(e)), {"algorithm": op.name})


def _bias(r: _Reader, e: Call, op: Any, inputs: list[int]) -> Operation:
    shape = _shape(e)
    axis = op.axis % len(shape)
    wide = r._reshaped(inputs[1], (shape[axis], *(1,) * (len(shape) - 1 - axis)))
    return Operation("binary", [inputs[0], wide], r.program.add(shape), {"algorithm": "add"})


def _eltwise(r: _Reader, e: Call, op: Any, inputs: list[int]) -> Operation:
    name, alpha, beta = UNARY[op.name](op)
    return Operation("eltwise", inputs, r.program.add(_shape(e)), {"algorithm": name, "alpha": alpha, "beta": beta})


def _view(r: _Reader, e: Call, op: Any, inputs: list[int]) -> Operation:
    if op.name == "transpose":
        return Operation("transpose", inputs, r.program.add(_shape(e)), {"axes": list(op.order(len(_shape(e))))})
    return Operation("reshape", inputs, r.program.add(_shape(e)))


_ANCHORS: Final[dict[str, Callable[[_Reader, Call, Any, list[int]], Operation]]] = {
    **dict.fromkeys((*CONVOLUTIONS, *TRANSPOSED), _convolution),
    **dict.fromkeys((*MAX_POOLS, *MEAN_POOLS, *GLOBAL_POOLS), _pool),
    **dict.fromkeys(BINARIES, _binary),
    **dict.fromkeys(UNARY, _eltwise),
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(("nn.softmax", "nn.log_softmax"), _softmax),
    "nn.dense": _dense,
    "nn.bias_add": _bias,
    "nn.batch_matmul": lambda r, e, op, inputs: Operation(
        "matmul", inputs, r.program.add(_shape(e)), {"transpose": [op.transpose_a, op.transpose_b]}),
    "nn.layer_norm": lambda r, e, op, inputs: Operation(
        "layer_norm", inputs, r.program.add(_shape(e)), {"epsilon": float(op.epsilon)}),
    "concatenate": lambda r, e, op, inputs: Operation(
        "concat", inputs, r.program.add(_shape(e)), {"axis": op.axis % len(_shape(e))}),
}
