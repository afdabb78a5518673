"""Gradients of Relay functions: every rule against central differences, control flow, and training, compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import daily
import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import CompileError, OptionError
from tilewright.ir.op_attributes import registrations
from tilewright.relay.expr import Expr, Function, Var
from tilewright.relay.op.gradients import names_with_gradient
from tilewright.relay.op.registry import Op
from tilewright.relay.prelude import Prelude
from tilewright.relay.testing import count_ops, make_nat_expr, run_infer_type
from tilewright.relay.transform import gradient
from tilewright.relay.visitor import calls

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(11)


def real(*shape: int, low: float = -2, high: float = 2) -> Array:
    return rng.uniform(low, high, shape)


def apart(*shape: int) -> Array:
    """Values of which no two are close, so that differences do not change their order."""
    count = int(np.prod(shape))
    return (rng.permutation(count).reshape(shape) + 0.5) / count * 3.97 - 1.93


def places(*shape: int, most: int) -> Array:
    return rng.integers(0, most, shape).astype("int32")


@dataclass(frozen=True)
class Case:
    """A function of tensors, and the inputs at which its gradients are compared."""

    build: Callable[..., Any]
    inputs: tuple[Array, ...]
    name: str = ""
    attrs: dict[str, Any] = field(default_factory=dict)

    def function(self, dtype: str = "float64") -> Function:
        """The sum of the results, each element with its own factor."""
        params = [relay.var(f"x{k}", shape=x.shape, dtype=dtype if x.dtype == np.float64 else str(x.dtype))
                  for k, x in enumerate(self.inputs)]
        made = self.build(*params, **self.attrs)
        parts = made if isinstance(made, (tuple, list)) else [made]
        total: Expr | None = None
        for k, part in enumerate(parts):
            t = part.tensor_type
            factors = np.cos(np.arange(t.size) + k).reshape(t.shape).astype(t.dtype.numpy())
            term = relay.sum(part * relay.Constant(factors))
            total = term if total is None else relay.add(total, term)
        assert total is not None
        return Function(params, total)


def of(name: str, *inputs: Array, **attrs: Any) -> Case:
    """A case of the operator `name`, called with its inputs and attributes."""
    cls: type[Op] = relay.op.get(name)
    return Case(cls(**attrs), inputs, name)


def fields(name: str, count: int, *inputs: Array, **attrs: Any) -> Case:
    """A case of an operator of `count` results."""
    cls: type[Op] = relay.op.get(name)
    return Case(lambda *args: [cls(**attrs)(*args)[k] for k in range(count)], inputs, name)


def joined(name: str, *inputs: Array, **attrs: Any) -> Case:
    """A case of an operator of one tuple."""
    cls: type[Op] = relay.op.get(name)
    return Case(lambda *args: cls(**attrs)(relay.Tuple(args)), inputs, name)


def elementwise() -> list[Case]:
    anywhere = ("exp", "sigmoid", "tanh", "erf", "sin", "cos", "sinh", "cosh", "atan", "asinh", "negative", "copy")
    found = [of(n, real(2, 3)) for n in anywhere]
    found += [of(n, real(2, 3, low=0.2)) for n in ("log", "log2", "log10", "sqrt", "rsqrt")]
    found += [of(n, real(2, 3, low=-0.9, high=0.9)) for n in ("asin", "acos", "atanh", "tan")]
    found += [of("acosh", real(2, 3, low=1.2)), of("abs", apart(2, 3)), of("nn.relu", apart(2, 3))]
    found += [of("nn.leaky_relu", apart(2, 3), alpha=0.1), of("clip", apart(3, 4), a_min=-0.7, a_max=1.1)]
    found += [of(n, apart(2, 3)) for n in ("floor", "ceil", "trunc", "sign")]
    found += [of("round", real(2, 3, low=0.6, high=1.4))]
    for n in ("add", "subtract", "multiply"):
        found += [of(n, real(2, 3), real(2, 3)), of(n, real(2, 1, 3), real(4, 1))]
    found += [of("divide", real(2, 3), real(3, low=0.5)), of("power", real(2, 3, low=0.3), real(3))]
    found += [of(n, apart(2, 3), apart(3) + 0.01) for n in ("maximum", "minimum")]
    found += [of("where", rng.integers(0, 2, (2, 3, 1)).astype(bool), real(3, 4), real(2, 1, 4))]
    found += [of("cast", real(2, 3), dtype="float64"), of("cast_like", real(2, 3), real(1))]
    passed = ("annotation.checkpoint", "annotation.stop_fusion")
    found += [of(n, real(2, 3)) for n in passed] + [of("annotation.cast_hint", real(2, 3), dtype="int8")]
    return found


def reductions() -> list[Case]:
    found = []
    for n in ("sum", "mean", "max", "min"):
        found += [of(n, apart(2, 3, 4)), of(n, apart(2, 3, 4), axis=-1, keepdims=True),
                  of(n, apart(2, 3, 4), axis=(0, 2)),
                  of(n, apart(2, 3, 4), axis=(0, 1), exclude=True)]
    for unbiased in (False, True):
        found.append(Case(lambda x, u=unbiased: relay.variance(x, axis=1, unbiased=u), (real(3, 4),), "variance"))
    found += [of("cumsum", real(2, 4), axis=1), of("cumsum", real(2, 4), axis=0, exclusive=True)]
    found += [of("collapse_sum_to", real(2, 3, 4), shape=(3, 1)), of("collapse_sum_like", real(2, 3, 4), real(3, 1))]
    found += [of("broadcast_to", real(3, 1), shape=(2, 3, 4)), of("broadcast_to_like", real(3, 1), real(2, 3, 4))]
    found += [of("full", real(), shape=(2, 3), dtype="float64"), of("full_like", real(2, 3), real(1))]
    found += [of("one_hot", places(2, 3, most=4), real(), real(), depth=4, axis=a, dtype="float64") for a in (-1, 1)]
    found += [of("zeros_like", real(2)), of("ones_like", real(2))]
    found += [Case(lambda x, n=n: relay.cast_like(relay.op.get(n)((2,), "float64")(), x) * x, (real(2),), n)
              for n in ("zeros", "ones")]
    found += [Case(lambda x: relay.cast_like(relay.arange(relay.const(2.0)), x) * x, (real(2),), "arange")]
    return found


def moves() -> list[Case]:
    found = [of("reshape", real(2, 3), newshape=(3, 2)), of("reshape_like", real(2, 3), real(6)),
             of("contrib_reverse_reshape", real(2, 3, 4), newshape=(-1, 0)), of("squeeze", real(1, 3, 1)),
             of("expand_dims", real(2, 3), axis=1, num_newaxis=2), of("nn.batch_flatten", real(2, 3, 2)),
             of("transpose", real(2, 3, 4)), of("transpose", real(2, 3, 4), axes=(1, 2, 0)), of("reverse", real(2, 3),
                                                                                                axis=1),
             of("layout_transform", real(1, 4, 2, 3), src_layout="NCHW", dst_layout="NCHW2c")]
    found += [joined("concatenate", real(2, 1), real(2, 3), axis=-1), joined("stack", real(2, 3), real(2, 3), axis=1)]
    found += [fields("split", 3, real(6, 2), indices_or_sections=3),
              fields("split", 2, real(2, 5), indices_or_sections=(2,), axis=1)]
    cuts: list[dict[str, Any]] = [
        {"begin": (0, 1, 0), "end": (-1, -1, 1), "slice_mode": "size"}, {"begin": (1,), "end": (4,), "axes": (2,)},
        {"begin": (0, 4), "end": (2, 0), "strides": (1, -2)}, {"begin": (0, 0, 1), "end": (2, 5, 6),
                                                               "strides": (1, 2, 3)},
        {"begin": (5,), "end": (0,), "strides": (-3,), "axes": (2,)}, {"begin": (1, 2, 3), "end": (2, 3, 4)}]
    found += [of("strided_slice", real(2, 5, 6), **c) for c in cuts]
    found += [of("nn.pad", real(2, 3), real(), pad_width=((1, 2), (0, 1))), of("repeat", real(2, 3), repeats=2, axis=1),
              of("repeat", real(2, 3), repeats=3), of("tile", real(2, 3), reps=(2, 1, 3)), of("tile", real(2, 3),
                                                                                              reps=(2,))]
    found += [of("take", real(3, 4, 2), places(2, 3, most=4), axis=1), of("take", real(3, 4), places(5, most=12)),
              of("take", real(3, 4), np.asarray([-1, 5, 2, 2], "int32"), axis=0), of("take", real(3), places(most=3),
                                                                                     axis=0),
              of("take", real(3, 4), np.asarray([-1, 5, 2], "int32"), axis=1, mode="wrap")]
    found += [of("gather", real(3, 4), np.asarray([[0, -1, 2], [1, 1, 0]], "int32"), axis=0),
              of("gather_nd", real(3, 4), np.asarray([[0, 2, 2], [1, -1, 3]], "int64")),
              of("gather_nd", real(2, 3, 4), places(1, 2, 2, most=3), batch_dims=1)]
    return found


def products() -> list[Case]:
    found = [of("nn.dense", real(2, 3), real(4, 3)), of("nn.dense", real(2, 2, 3), real(4, 3)),
             of("nn.dense", real(3), real(4, 3)),
             of("nn.bias_add", real(2, 3, 4), real(3)), of("nn.bias_add", real(2, 3), real(3), axis=-1)]
    for ta in (False, True):
        for tb in (False, True):
            a, b = (real(3, 2) if ta else real(2, 3)), (real(4, 3) if tb else real(3, 4))
            found.append(of("nn.matmul", a, b, transpose_a=ta, transpose_b=tb))
            many, one = np.stack([a, a + 1]), b[None]
            found.append(of("nn.batch_matmul", many, one, transpose_a=ta, transpose_b=tb))
    found.append(of("nn.matmul", real(2, 2, 3), real(3, 4)))
    shapes: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
        ((2, 2, 5, 4), (3, 2, 3, 3), {"padding": (1, 1)}),
        ((1, 3, 6, 7), (2, 3, 2, 3), {"strides": (2, 3), "padding": (0, 1, 1, 0)}),
        ((1, 2, 7, 6), (2, 2, 3, 2), {"dilation": (2, 3)}),
        ((2, 4, 4, 4), (6, 2, 3, 3), {"groups": 2, "strides": (2, 2)}),
        ((1, 3, 4, 4), (3, 1, 2, 2), {"groups": 3}),
        ((1, 5, 4, 2), (3, 3, 2, 3), {"data_layout": "NHWC", "kernel_layout": "HWIO"}),
        ((1, 5, 4, 2), (3, 3, 2, 3), {"data_layout": "NHWC", "kernel_layout": "HWIO", "out_layout": "NCHW"})]
    found += [of("nn.conv2d", real(*x), real(*w), **a) for x, w, a in shapes]
    found += [of("nn.conv1d", real(2, 2, 6), real(3, 2, 3), strides=(2,), padding=(1, 0)),
              of("nn.conv3d", real(1, 2, 3, 4, 3), real(2, 2, 2, 2, 2), padding=(1, 0, 1, 0, 1, 0))]
    return found


def layers() -> list[Case]:
    found = [of(n, real(2, 3, 4), axis=a) for n in ("nn.softmax", "nn.log_softmax") for a in (-1, 1)]
    pools: list[dict[str, Any]] = [
        {"pool_size": (2, 2), "strides": (2, 2)}, {"pool_size": (3, 2), "strides": (1, 2), "padding": (1, 1)},
        {"pool_size": (2, 3), "strides": (2, 2), "padding": (0, 1, 1, 0), "ceil_mode": True}]
    found += [of(n, apart(2, 2, 5, 4), **p) for n in ("nn.max_pool2d", "nn.avg_pool2d") for p in pools]
    found += [of("nn.avg_pool2d", real(1, 2, 5, 4), count_include_pad=True, **pools[1])]
    found += [of(n, apart(1, 5, 4, 2), layout="NHWC", **pools[1]) for n in ("nn.max_pool2d", "nn.avg_pool2d")]
    found += [of(n, apart(2, 2, 6), pool_size=(3,), strides=(2,), padding=(1, 0))
              for n in ("nn.max_pool1d", "nn.avg_pool1d")]
    found += [of(n, apart(2, 2, 3, 4)) for n in ("nn.global_avg_pool2d", "nn.global_max_pool2d")]
    found += [of(n, apart(2, 2, 6, 4), output_size=s) for n in ("nn.adaptive_avg_pool2d", "nn.adaptive_max_pool2d")
              for s in ((3, 2), (1, 1))]
    found += [of("nn.prelu", apart(2, 3, 4), real(3)), of("nn.l2_normalize", real(2, 3, 4), eps=1e-6, axis=(1,)),
              of("nn.layer_norm", real(2, 3, 4), real(4), real(4)),
              of("nn.layer_norm", real(2, 4, 3), real(4), real(4), axis=1),
              of("nn.instance_norm", real(2, 3, 4), real(3), real(3), scale=False)]
    return found


COMPOSED = [
    of("nn.group_norm", real(2, 4, 3), real(4), real(4), num_groups=2),
    of("nn.cross_entropy", real(2, 3, low=0.2), real(2, 3)), of("nn.cross_entropy_with_logits", real(2, 3), real(2, 3)),
    Case(lambda *args: relay.nn.batch_norm(*args)[0], (real(2, 3, 4), real(3), real(3), real(3), real(3, low=0.5)),
         "nn.batch_norm"),
    Case(relay.nn.dropout, (real(2, 3),), "nn.dropout"),
    Case(lambda x: relay.std(x, axis=1), (real(2, 3),), "std"),
    Case(lambda x: relay.logsumexp(x, axis=1), (real(2, 3),), "logsumexp"),
]
"""Operators without a rule, whose simpler forms have one."""

CASES = [*elementwise(), *reductions(), *moves(), *products(), *layers(), *COMPOSED]
ids = [f"{c.name}-{k}" for k, c in enumerate(CASES)]
# These cannot be called like the others: their tests are below, or they move values between devices.
ELSEWHERE = {"dyn.arange", "dyn.broadcast_to", "dyn.expand_dims", "dyn.ones", "dyn.reshape", "dyn.squeeze", "dyn.zeros",
             "on_device", "device_copy"}


def evaluated(f: Function, inputs: tuple[Any, ...], kind: str = "debug") -> Any:
    return relay.create_executor(kind).evaluate(f)(*inputs)


def differences(f: Function, inputs: tuple[Array, ...], k: int, step: float = 1e-5) -> Array:
    """The central differences of a scalar function for each element of input `k`."""
    found, x = np.zeros(inputs[k].shape), inputs[k]
    for i in np.ndindex(*x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[i] += sign * step
            ends.append(float(evaluated(f, (*inputs[:k], moved, *inputs[k + 1 :])).numpy()))
        found[i] = (ends[0] - ends[1]) / (2 * step)
    return found


def check(f: Function, inputs: tuple[Array, ...]) -> None:
    value, found = evaluated(run_infer_type(gradient(f)), inputs)
    np.testing.assert_allclose(value.numpy(), evaluated(f, inputs).numpy(), rtol=1e-12)
    assert len(found) == len(inputs)
    for k, x in enumerate(inputs):
        own = found[k].numpy()
        assert own.shape == x.shape and own.dtype == x.dtype
        wanted = differences(f, inputs, k) if x.dtype == np.float64 else np.zeros(x.shape)
        np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-7)


def test_every_rule_has_a_case() -> None:
    assert set(names_with_gradient()) - {c.name for c in CASES} == ELSEWHERE


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_gradients_are_the_limits_of_differences(case: Case) -> None:
    check(case.function(), case.inputs)


@pytest.mark.parametrize("case", daily.sample(CASES, 24, "gradients"), ids=lambda c: c.name)
def test_a_compiled_gradient_has_the_values_of_the_interpreted_one(case: Case) -> None:
    f = run_infer_type(gradient(case.function("float32")))
    inputs = tuple(x.astype("float32") if x.dtype == np.float64 else x for x in case.inputs)
    value, found = evaluated(f, inputs, "graph")
    wanted, expected = evaluated(f, inputs)
    np.testing.assert_allclose(value.numpy(), wanted.numpy(), rtol=1e-4, atol=1e-4)
    for g, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(g.numpy(), e.numpy(), rtol=1e-4, atol=1e-4)


# Operators whose results have sizes that are known at run time


def test_gradients_through_computed_sizes() -> None:
    start, stop, step = (relay.var(n, shape=(), dtype="float64") for n in ("start", "stop", "step"))
    row = relay.arange(start, stop, step, dtype="float64")
    inputs = tuple(np.asarray(v) for v in (2.5, 9.5, 1.8))
    check(Function([start, stop, step], relay.sum(row * row)), inputs)
    x, shape = relay.var("x", shape=(2, 3), dtype="float64"), relay.var("shape", shape=(2,), dtype="int32")
    for name in ("dyn.reshape", "dyn.broadcast_to"):
        made = relay.op.get(name)()(x, shape)
        sizes = np.asarray([3, 2] if name == "dyn.reshape" else [2, 3], "int32")
        check(Function([x, shape], relay.sum(made * made)), (real(2, 3), sizes))
    for name in ("dyn.zeros", "dyn.ones"):
        f = Function([shape], relay.op.get(name)(dtype="float64")(shape))
        value, (found,) = evaluated(run_infer_type(gradient(f)), (np.asarray([2, 1], "int32"),))
        assert value.numpy().shape == (2, 1)
        np.testing.assert_array_equal(found.numpy(), np.zeros(2, "int32"))


# What the function is made of


def double(x: Expr) -> Expr:
    return x + x


def test_a_parameter_without_influence_has_a_gradient_of_zeros_of_its_type() -> None:
    x, n = relay.var("x", shape=(2,)), relay.var("n", shape=(3,), dtype="int64")
    b = run_infer_type(gradient(Function([x, n], relay.const(np.ones((2, 2), "float32")))))
    _, (gx, gn) = evaluated(b, (np.ones(2, "float32"), np.ones(3, "int64")))
    np.testing.assert_array_equal(gx.numpy(), np.zeros(2, "float32"))
    np.testing.assert_array_equal(gn.numpy(), np.zeros(3, "int64"))
    assert gn.numpy().dtype == np.int64


def test_the_gradient_of_a_tuple_is_that_of_its_first_tensor() -> None:
    x = relay.var("x", shape=(2,))
    _, (found,) = evaluated(run_infer_type(gradient(Function([x], relay.Tuple([double(double(x)), x])))),
                            (np.ones(2, "float32"),))
    np.testing.assert_array_equal(found.numpy(), [4, 4])


def test_a_tuple_parameter_has_a_tuple_of_gradients() -> None:
    t = relay.TensorType((2,), "float32")
    pair = relay.var("pair", relay.TupleType([t, t]))
    b = run_infer_type(gradient(Function([pair], pair[0] * pair[1])))
    assert b.ret_type == relay.TupleType([t, relay.TupleType([relay.TupleType([t, t])])])
    given = (np.asarray([2, 3], "float32"), np.asarray([5, 7], "float32"))
    _, (found,) = evaluated(b, (given,))
    np.testing.assert_array_equal([f.numpy() for f in found], [given[1], given[0]])


def test_values_are_computed_once() -> None:
    x, y = relay.var("x", shape=(4, 4)), relay.var("y", shape=(4, 4))
    product = relay.nn.dense(x, y)
    f = run_infer_type(Function([x, y], relay.sum(product - relay.sum(product, keepdims=True))))
    assert count_ops(gradient(f, mode="first_order"))["nn.dense"] == 3


def test_a_function_of_a_function_is_differentiated_twice() -> None:
    x, y = relay.var("x", shape=(3,), dtype="float64"), relay.var("y", shape=(3,), dtype="float64")
    first = run_infer_type(gradient(Function([x], relay.exp(x) * x)))
    check(run_infer_type(Function([y], relay.sum(first(y)[1][0]))), (real(3),))


def test_lets_references_and_functions_are_evaluated_first() -> None:
    x, r, u = relay.var("x", shape=(3,), dtype="float64"), relay.Var("r"), relay.Var("u")
    square = relay.Var("square")
    v = relay.var("v", shape=(3,), dtype="float64")
    body = relay.Let(u, relay.RefWrite(r, relay.RefRead(r) * square(relay.RefRead(r))), relay.sum(relay.RefRead(r)))
    body = relay.Let(square, Function([v], v * v), relay.Let(r, relay.RefCreate(x), body))
    f = run_infer_type(Function([x], body))
    value, (found,) = evaluated(run_infer_type(gradient(f)), (np.asarray([1.0, 2, 3]),))
    np.testing.assert_allclose(value.numpy(), 36)
    np.testing.assert_allclose(found.numpy(), [3, 12, 27])


def test_calls_of_functions_of_the_module_are_inlined() -> None:
    mod, x = tvm.IRModule(), relay.var("x", shape=(2,), dtype="float64")
    mod["double"] = Function([x], double(x))
    y, twice = relay.var("y", shape=(2,), dtype="float64"), mod.get_global_var("double")
    mod["main"] = Function([y], twice(twice(y)))
    mod = relay.transform.InferType()(mod)
    _, (found,) = evaluated(run_infer_type(gradient(mod.get_global_var("main"), mod)), (np.ones(2),))
    np.testing.assert_array_equal(found.numpy(), [4, 4])


def test_a_recursion_over_known_data_is_unrolled() -> None:
    mod = tvm.IRModule()
    prelude = Prelude(mod)
    mod.import_from_std("nat.rly")
    x, i = relay.var("x", shape=(2,)), relay.var("i", shape=(2,))
    apply = mod.get_global_var("nat_iterate")
    mod["main"] = Function([i], apply(Function([x], double(x)), make_nat_expr(prelude, 3))(i))
    mod = relay.transform.InferType()(mod)
    _, (found,) = evaluated(run_infer_type(gradient(mod["main"], mod)), (np.ones(2, "float32"),))
    np.testing.assert_array_equal(found.numpy(), [8, 8])


def branching(nested: bool) -> Function:
    """A function whose branches use values of the outer scope, and of their own."""
    cond, x, y = relay.var("cond", shape=(), dtype="bool"), *(relay.var(n, shape=(3,), dtype="float64") for n in "xy")
    shared = relay.exp(x)
    inner = relay.sin(shared * y)
    side = relay.If(cond, inner * x, shared) if nested else inner * inner
    return Function([cond, x, y], relay.sum(relay.If(cond, side, shared + y) * shared))


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("taken", [False, True])
def test_a_branch_has_the_gradient_of_the_side_taken(taken: bool, nested: bool) -> None:
    f, inputs = branching(nested), (np.asarray(taken), real(3), real(3))
    value, (_, *found) = evaluated(run_infer_type(gradient(f)), inputs)
    np.testing.assert_allclose(value.numpy(), evaluated(f, inputs).numpy())
    for k, g in enumerate(found):
        np.testing.assert_allclose(g.numpy(), differences(f, inputs, k + 1), rtol=1e-5, atol=1e-7)


def test_a_compiled_branch_has_the_gradients_of_the_interpreted_one() -> None:
    b = run_infer_type(gradient(branching(True)))
    inputs = (np.asarray(True), real(3), real(3))
    for got, wanted in zip(evaluated(b, inputs, "vm")[1], evaluated(b, inputs)[1], strict=True):
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=1e-6)


def test_only_the_side_taken_is_computed() -> None:
    cond, x = relay.var("cond", shape=(), dtype="bool"), relay.var("x", shape=(3,))
    b = run_infer_type(gradient(Function([cond, x], relay.If(cond, relay.sin(relay.exp(x)), x))))
    outside = [c.op.name for c in calls(b) if isinstance(c.op, Op)]
    assert outside.count("exp") == 2  # one in the branch of the value, one in that of the gradient


# Programs for other rules, and what is refused


def test_a_program_registers_the_rule_of_an_operator() -> None:
    x = relay.var("x", shape=(2,))
    f = Function([x], relay.exp(x))
    with registrations():
        @relay.op.register_gradient("exp")
        def of_exp(orig: Any, grad: Expr) -> list[Expr]:
            return [grad * relay.const(5.0)]

        _, (found,) = evaluated(run_infer_type(gradient(f)), (np.ones(2, "float32"),))
        np.testing.assert_array_equal(found.numpy(), [5, 5])
    _, (found,) = evaluated(run_infer_type(gradient(f)), (np.zeros(2, "float32"),))
    np.testing.assert_array_equal(found.numpy(), [1, 1])


def test_a_rule_must_return_a_gradient_of_the_right_type_for_each_argument() -> None:
    x = relay.var("x", shape=(2,))
    for found, message in (([], "returned 0 gradients, but the call has 1 arguments"),
                           ([relay.const(1.0)], "returned a gradient of type float32 for an argument of type")):
        with registrations(), pytest.raises(CompileError, match=message):
            relay.op.register_gradient("exp", lambda orig, grad, found=found: found)
            gradient(Function([x], relay.exp(x)))


def test_what_has_no_gradient_is_refused_by_name() -> None:
    x = relay.var("x", shape=(2, 3))
    with pytest.raises(CompileError,
                       match=r"operator 'prod' has no gradient; register one with relay.op.register_gradient\('prod'"):
        gradient(Function([x], relay.prod(x)))
    with pytest.raises(CompileError, match=r"the gradient of 'nn.pad' is not supported with pad_mode 'edge'"):
        gradient(Function([x], relay.nn.pad(x, ((1, 1), (0, 0)), pad_mode="edge")))
    with pytest.raises(CompileError, match="a function is expected, not a Var"):
        gradient(x)
    with pytest.raises(OptionError, match="mode is 'second'; it must be higher_order or first_order"):
        gradient(Function([x], x), mode="second")


def test_a_recursion_of_unknown_length_is_refused() -> None:
    mod = tvm.parser.parse("""
#[version = "0.0.5"]
def @loop(%n: int32, %x: Tensor[(2), float32]) -> Tensor[(2), float32] {
  if (less(%n, 1)) { %x } else { @loop(subtract(%n, 1), multiply(%x, %x)) }
}
def @main(%n: int32, %x: Tensor[(2), float32]) -> Tensor[(2), float32] { @loop(%n, %x) }
""")
    with pytest.raises(CompileError, match=r"the gradient of @loop.* is not supported; only calls of operators"):
        gradient(mod.get_global_var("main"), mod)


# Passes


def test_first_order_gradient_replaces_the_functions_of_a_module() -> None:
    x = relay.var("x", shape=(2,))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(Function([x], x * x)))
    mod = relay.transform.FirstOrderGradient()(mod)
    _, (found,) = evaluated(mod["main"], (np.asarray([1, 2], "float32"),))
    np.testing.assert_array_equal(found.numpy(), [2, 4])


def test_lazy_gradient_init_removes_additions_of_zeros_and_products_with_ones() -> None:
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(3,))
    t = relay.TensorType((2, 3), "float32")
    kept = relay.ones((2, 3), "float32") * y
    found = [x + relay.zeros_like(x), relay.zeros((3,), "float32") + x, x - relay.const(0.0), relay.ones_like(x) * x,
             x / relay.ones((1,), "float32"), kept]
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(Function([x, y], relay.Tuple(found))))
    mod = relay.transform.LazyGradientInit()(mod)
    assert mod["main"].ret_type == relay.TupleType([t] * 6)
    body = mod["main"].body
    assert body.fields[:5] == (x,) * 5
    assert [c.op.name for c in calls(body)] == ["ones", "multiply"]  # the product gives y another shape


# Training


def network(images: Var, labels: Var, weights: list[Var]) -> Expr:
    """The loss of two layers."""
    first, bias, second = weights
    hidden = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(images, first), bias))
    return relay.nn.cross_entropy_with_logits(relay.nn.log_softmax(relay.nn.dense(hidden, second)), labels)


def test_a_network_learns_with_compiled_gradients() -> None:
    count, width, classes = 64, 16, 3
    centres = rng.normal(0, 2, (classes, 4))
    kinds = rng.integers(0, classes, count)
    points = (centres[kinds] + rng.normal(0, 0.5, (count, 4))).astype("float32")
    labels = np.eye(classes, dtype="float32")[kinds]
    values = [rng.normal(0, 0.5, s).astype("float32") for s in ((width, 4), (width,), (classes, width))]
    x, y = relay.var("x", shape=points.shape), relay.var("y", shape=labels.shape)
    weights = [relay.var(f"w{k}", shape=v.shape) for k, v in enumerate(values)]
    mod = tvm.IRModule.from_expr(run_infer_type(gradient(Function([x, y, *weights], network(x, y, weights)))))
    step = relay.create_executor("graph", mod=mod).evaluate()
    losses = []
    for _ in range(60):
        loss, (_, _, *found) = step(points, labels, *values)
        losses.append(float(loss.numpy()))
        values = [v - np.float32(0.1) * g.numpy() for v, g in zip(values, found, strict=True)]
    assert losses[-1] < 0.2 * losses[0]
    assert np.isfinite(losses).all()


def test_a_convolutional_network_learns_with_compiled_gradients() -> None:
    images = rng.normal(0, 1, (16, 1, 8, 8)).astype("float32")
    dark = images[:, :, :, :4].sum((1, 2, 3)) > images[:, :, :, 4:].sum((1, 2, 3))
    labels = np.eye(2, dtype="float32")[dark.astype(int)]
    values = [rng.normal(0, 0.4, s).astype("float32") for s in ((4, 1, 3, 3), (2, 64))]
    x, y, *weights = (relay.var(n, shape=v.shape) for n, v in zip("xykw", (images, labels, *values), strict=True))
    pooled = relay.nn.max_pool2d(relay.nn.relu(relay.nn.conv2d(x, weights[0], padding=(1, 1))), (2, 2), (2, 2))
    scores = relay.nn.log_softmax(relay.nn.dense(relay.nn.batch_flatten(pooled), weights[1]))
    f = Function([x, y, *weights], relay.nn.cross_entropy_with_logits(scores, y))
    step = relay.create_executor("graph").evaluate(run_infer_type(gradient(f)))
    losses = []
    for _ in range(40):
        loss, (_, _, *found) = step(images, labels, *values)
        losses.append(float(loss.numpy()))
        values = [v - np.float32(0.05) * g.numpy() for v, g in zip(values, found, strict=True)]
    assert losses[-1] < 0.3 * losses[0]
