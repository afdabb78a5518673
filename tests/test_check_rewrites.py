"""`relay.check_rewrites`: passes that change what a program computes are named, with the first value that they got
wrong."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from random_programs import random_module
from tilewright import relay
from tilewright.base.errors import Origin
from tilewright.compat.transform import PassContext
from tilewright.ir.module import IRModule
from tilewright.relay.check_rewrites import RewriteError, difference, work
from tilewright.relay.expr import Call, Constant, Expr, Function, Tuple, const, var
from tilewright.relay.op.registry import get
from tilewright.relay.visitor import rewrite

Rule = Callable[[Expr], "Expr | None"]


def by_rule(name: str, rule: Rule, inside: bool = False) -> Any:
    @relay.transform.function_pass(opt_level=0, name=name)
    def transform(func: Function, mod: IRModule, context: PassContext) -> Expr:
        return rewrite(func, rule, inside=inside)

    return transform


def is_call(e: Expr, name: str) -> bool:
    return isinstance(e, Call) and e.op == get(name)


def replace_op(old: str, new: str) -> Rule:
    return lambda e: Call(get(new)(), e.args, span=e.span) if is_call(e, old) else None  # type: ignore[attr-defined]


def program(dtype: str = "float32") -> IRModule:
    x, y = var("x", shape=(2, 3), dtype=dtype), var("y", shape=(2, 3), dtype=dtype)
    s = relay.add(x, y)
    return IRModule.from_expr(Function((x, y), relay.subtract(relay.multiply(relay.nn.relu(s), const(2, dtype)), y)))


def checked(mode: Any = True, **config: Any) -> PassContext:
    return PassContext(config={"relay.check_rewrites": mode, **config})


def test_a_wrong_pass_is_named_with_the_first_wrong_value() -> None:
    wrong = by_rule("Wrong", replace_op("add", "subtract"))
    with checked(), pytest.raises(RewriteError) as caught:
        wrong(program())
    lines = str(caught.value).split("\n")
    assert lines[:4] == [
        "the pass Wrong changed what @main computes:",
        "  the first value that differs: subtract",
        "  before: %0 = add(%x, %y) /* ty=Tensor[(2, 3), float32] */;",
        "  after:  %0 = subtract(%x, %y) /* ty=Tensor[(2, 3), float32] */;",
    ]
    assert re.fullmatch(r"  6 of 6 elements differ, most at \[\d, \d\]: \S+ before, \S+ after", lines[4])
    assert lines[5] == "  inputs: numpy.random.default_rng(0), floats from -1.0 to 1.0"


def test_without_the_option_nothing_runs() -> None:
    assert "nn.relu" not in str(by_rule("Wrong", replace_op("nn.relu", "exp"))(program())["main"])


def test_with_skip_the_pass_is_left_out() -> None:
    mod = program()
    wrong, right = by_rule("Wrong", replace_op("nn.relu", "exp")), by_rule("Right", lambda e: None)
    with checked("skip"), pytest.warns(
        UserWarning, match=r"(?s)the pass Wrong changed what @main computes.*the pass is skipped"
    ):
        assert tvm.transform.Sequential([wrong, right])(mod)["main"] is mod["main"]


def test_the_models_node_is_named() -> None:
    x = var("x", shape=(4,))
    e = Call(get("tanh")(), (x,), span=Origin("act/7", "Tanh"))
    mod = IRModule.from_expr(Function((x,), relay.exp(relay.negative(e))))
    with checked(), pytest.raises(RewriteError, match="the first value that differs: sigmoid, from Tanh 'act/7'"):
        by_rule("Wrong", replace_op("tanh", "sigmoid"))(mod)


def test_a_value_that_moved_is_not_blamed() -> None:
    """relu(x) * 2 and relu(x * 2) are the same, so of a pass that also writes 3 for 2 the product is blamed."""
    x = var("x", shape=(3,))
    mod = IRModule.from_expr(Function((x,), relay.exp(relay.multiply(relay.nn.relu(x), const(2.0)))))

    def rule(e: Expr) -> Expr | None:
        if not is_call(e, "multiply"):
            return None
        return relay.nn.relu(relay.multiply(x, const(3.0)))

    with checked(), pytest.raises(RewriteError, match="the first value that differs: multiply"):
        by_rule("Wrong", rule)(mod)
    with checked():
        by_rule(
            "Right", lambda e: relay.nn.relu(relay.multiply(x, const(2.0))) if is_call(e, "multiply") else None
        )(mod)


def test_integers_are_compared_exactly() -> None:
    off_by_one = by_rule("OffByOne", lambda e: Constant(e.value + 1) if isinstance(e, Constant) else None)
    with checked(), pytest.raises(RewriteError, match="elements differ"):
        off_by_one(program("int64"))
    assert difference(np.array([1 << 60], np.int64), np.array([(1 << 60) + 1], np.int64), 0.1) is not None
    assert difference(
        np.array([True, False]), np.array([True, True]), 0.1
    ) == "1 of 2 elements differ, most at [1]: False before, True after"


def test_floats_within_rounding_are_equal() -> None:
    one = np.array([1.0, np.nan, np.inf, 100.0], np.float32)
    assert difference(one, one * np.float32(1 + 1e-6), 3e-4) is None
    assert difference(
        one, np.array([1.0, 2.0, np.inf, 100.0], np.float32), 3e-4
    ) == "1 of 4 elements differ, most at [1]: nan before, 2.0 after"
    assert difference((one,), (one, one), 3e-4) == "a tuple of 1 before, a tuple of 2 after"
    assert difference(one, one.astype("float64"), 3e-4) == "float32 of shape (4,) before, float64 of shape (4,) after"


def test_a_program_that_no_longer_runs() -> None:
    lost = by_rule("Lose", lambda e: var("z", e.checked_type) if is_call(e, "nn.relu") else None)
    with checked(), pytest.raises(
        RewriteError, match="the function runs before the pass, but fails after it: CompileError: "
        "the variable 'z' is not bound here"
    ):
        lost(program())


def test_variables_that_a_function_in_place_sees_are_replaced_too() -> None:
    x, v, p = (var(n, shape=(2,)) for n in "xvp")
    called = Call(Function((p,), relay.add(p, v)), (x,))
    with checked():
        new = relay.transform.ToGraphNormalForm()(
            IRModule.from_expr(Function((x,), relay.Let(v, relay.exp(x), called)))
        )
    assert "let" not in str(new)


def test_what_is_not_checked_is_said() -> None:
    identity = by_rule("Right", replace_op("nn.relu", "nn.relu"))
    with checked(True, **{"relay.check_rewrites.max_work": 10}), pytest.warns(
        UserWarning,
        match=r"the pass Right is not checked on @main: too large: about 2\.4e\+01 multiplications; "
        r"relay\.check_rewrites\.max_work is 1\.0e\+01"
    ):
        identity(program())
    f = var("f", relay.FuncType([relay.TensorType((2,))], relay.TensorType((2,))))
    x = var("x", shape=(2,))
    higher = IRModule.from_expr(Function((f, x), relay.nn.relu(Call(f, (x,)))))
    with checked(), pytest.warns(UserWarning, match=r"no random inputs for f: fn \(Tensor"):
        identity(higher)


def test_the_work_of_a_convolution_and_of_what_is_called() -> None:
    x, w = var("x", shape=(1, 8, 10, 10)), var("w", shape=(16, 8, 3, 3))
    conv = Function((x, w), relay.nn.conv2d(x, w, padding=1))
    assert work(conv, {}) == 1600 * 8 * 9
    g = relay.GlobalVar("conv", conv.checked_type)  # type: ignore[arg-type]
    assert work(Function((x, w), Tuple((Call(g, (x, w)), Call(g, (x, w))))), {"conv": conv}) > 1600 * 8 * 9


@pytest.mark.parametrize("seed", [*range(8), 33])
def test_the_passes_of_the_pipeline_keep_random_programs(seed: int) -> None:
    mod = random_module(seed, first_order=True, pure=True, vary=False, static=True)
    t = relay.transform
    passes = [
        t.ToGraphNormalForm(), t.SimplifyInference(), t.DeadCodeElimination(), t.FoldConstant(),
        t.CanonicalizeOps(biases_only=False), t.SimplifyExpr(), t.EliminateCommonSubexpr()
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what random inputs do not fit is said, and left
        with checked():
            tvm.transform.Sequential(passes)(mod)
