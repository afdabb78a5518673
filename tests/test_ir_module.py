"""Modules."""

from __future__ import annotations

import pytest

from tilewright.base.errors import CompileError
from tilewright.ir import IRModule
from tilewright.relay.expr import Call, Function, GlobalVar, var
from tilewright.relay.interpreter import evaluate
from tilewright.relay.op.elementwise import Relu


def function() -> Function:
    x = var("x", shape=(2,))
    return Function((x,), Relu()(x))


def test_functions_by_name_and_by_global_var() -> None:
    f, g = function(), function()
    mod = IRModule({"main": f, GlobalVar("other"): g}, attrs={"runtime": "cpp"})
    assert mod["main"] is f and mod[mod.get_global_var("other")] is g
    assert list(mod) == ["main", "other"] and len(mod) == 2 and "main" in mod and "nothing" not in mod
    assert [v.name_hint for v in mod.get_global_vars()] == ["main", "other"]
    assert {v.name_hint: h for v, h in mod.functions.items()} == {"main": f, "other": g}
    assert mod.functions.items()[0] == (mod.get_global_var("main"), f)
    assert mod.get_global_var("main") is mod.get_global_var("main")
    assert mod.get_attr("runtime") == "cpp" and mod.get_attr("nothing") is None
    assert mod.with_attr("k", 1).attrs == {"runtime": "cpp", "k": 1} and "k" not in mod.attrs


def test_an_expression_becomes_a_function_of_its_free_variables() -> None:
    y = var("y", shape=(2,))
    main = IRModule.from_expr(Relu()(y))["main"]
    assert isinstance(main, Function) and main.params == (y,)


def test_update_copy_remove() -> None:
    mod = IRModule.from_expr(function())
    copy = mod.copy()
    f = function()
    copy.update({"main": f, "more": f})
    assert copy["main"] is f and mod["main"] is not f
    copy.update_func("more", mod["main"])
    copy.remove("more")
    assert list(copy) == ["main"]


def test_an_unknown_function_names_the_nearest() -> None:
    mod = IRModule.from_expr(function())
    with pytest.raises(CompileError, match="the module has no function 'mian'; did you mean 'main'"):
        mod["mian"]
    with pytest.raises(CompileError, match="3 is not the name of a function; use a string or a GlobalVar"):
        mod[3]


def test_functions_call_each_other() -> None:
    import numpy as np

    mod = IRModule({"helper": function()})
    x = var("x", shape=(2,))
    mod["main"] = Function((x,), Call(mod.get_global_var("helper"), (x,)))
    assert mod["main"].ret_type == function().ret_type
    np.testing.assert_array_equal(evaluate(mod, np.array([-1, 2], np.float32)), [0, 2])
