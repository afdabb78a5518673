"""The pass runner: levels, options, instruments, errors."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tilewright import relay
from tilewright.base.errors import CompileError, InternalError, OptionError, ShapeError
from tilewright.base.types import FuncType
from tilewright.ir import IRModule
from tilewright.ir.instrument import (
    DumpInstrument,
    DumpIR,
    PassInstrument,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    VerifyInstrument,
    pass_instrument,
)
from tilewright.ir.transform import (
    ApplyPassToFunction,
    FunctionPass,
    Pass,
    PassContext,
    PassInfo,
    Sequential,
    module_pass,
    named_pass,
)
from tilewright.relay.adt import Clause, Match, PatternTuple, PatternVar, PatternWildcard
from tilewright.relay.analysis import check_well_formed, well_formed
from tilewright.relay.expr import Call, Expr, Function, GlobalVar, Let, Tuple, Var, var
from tilewright.relay.op.elementwise import Relu
from tilewright.relay.transform import function_pass


def module() -> IRModule:
    x = var("x", shape=(2, 3))
    return IRModule.from_expr(Function((x,), Relu()(x)))


@dataclass(frozen=True)
class AppendRelu(FunctionPass):
    """One more relu at the end."""

    opt_level = 2
    kind = Function
    times: int = 1

    def transform_function(self, function: Any, mod: IRModule, context: PassContext) -> Any:
        body: Expr = function.body
        for _ in range(self.times):
            body = Relu()(body)
        return Function(function.params, body, attrs=function.attrs)


def depth(mod: IRModule) -> int:
    e, n = mod["main"].body, 0
    while isinstance(e, Call):
        e, n = e.args[0], n + 1
    return n


def test_a_pass_returns_a_new_module_and_leaves_the_old() -> None:
    old = module()
    new = AppendRelu(times=3)(old)
    assert (depth(old), depth(new)) == (1, 4)
    assert AppendRelu(times=3).info == PassInfo(2, "AppendRelu", ())


def test_levels_and_switches_decide_in_a_sequence() -> None:
    passes = Sequential((AppendRelu(),))
    with PassContext(opt_level=1):
        assert depth(passes(module())) == 1
        assert depth(AppendRelu()(module())) == 2
    with PassContext(opt_level=1, required_pass=["AppendRelu"]):
        assert depth(passes(module())) == 2
    with PassContext(opt_level=3, disabled_pass=["AppendRelu"]):
        assert depth(passes(module())) == 1
    assert depth(Sequential((passes, passes))(module())) == 3


def test_required_passes_run_first() -> None:
    @module_pass(opt_level=0, required=["AppendRelu"])
    def nothing(mod: IRModule, context: PassContext) -> IRModule:
        return mod

    assert depth(Sequential((nothing,))(module())) == 2


def test_decorated_functions_and_classes_are_passes() -> None:
    @function_pass(opt_level=1, name="Named")
    def again(func: Function, mod: IRModule, context: PassContext) -> Function:
        return Function(func.params, Relu()(func.body))

    @function_pass(opt_level=1)
    class Several:
        def __init__(self, times: int) -> None:
            self.times = times

        def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Any:
            return AppendRelu(self.times).transform_function(func, mod, context)

    assert isinstance(again, Pass) and again.info == PassInfo(1, "Named", ())
    assert depth(again(module())) == 2
    several: Any = Several(2)
    assert several.info.name == "Several"
    assert depth(several(module())) == 3


def test_contexts_nest_and_threads_do_not_meet() -> None:
    assert PassContext.current().opt_level == 2
    seen: list[int] = []
    with PassContext(opt_level=3) as outer:
        with PassContext(opt_level=0):
            assert PassContext.current().opt_level == 0
        assert PassContext.current() is outer
        with outer:
            assert PassContext.current() is outer
        thread = threading.Thread(target=lambda: seen.append(PassContext.current().opt_level))
        thread.start()
        thread.join()
    assert seen == [2]
    assert PassContext.current().opt_level == 2


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(
        OptionError,
        match=r"there is no configuration option 'relay\.FuseOps\.max_dept'; did you mean 'relay\.FuseOps\.max_depth'\?"
    ):
        PassContext(config={"relay.FuseOps.max_dept": 3})
    with pytest.raises(
        OptionError, match=r"there is no configuration option 'zzz'; the options are: .*relay\.FuseOps\.max_depth"
    ):
        PassContext(config={"zzz": 3})


def test_an_option_of_the_wrong_type() -> None:
    with pytest.raises(
        OptionError, match=r"configuration option 'relay\.FuseOps\.max_depth' takes int, not 'many' \(str\)"
    ):
        PassContext(config={"relay.FuseOps.max_depth": "many"})
    with pytest.raises(OptionError, match="takes int, not True"):
        PassContext(config={"relay.FuseOps.max_depth": True})
    assert PassContext(config={"relay.FuseOps.max_depth": 5}).get("relay.FuseOps.max_depth") == 5
    assert PassContext().get("relay.FuseOps.max_depth") == 64


def test_an_unknown_pass_names_the_nearest() -> None:
    with pytest.raises(OptionError, match="there is no pass 'FoldConstants'; did you mean 'FoldConstant'"):
        named_pass("FoldConstants")


def test_the_timing_instrument_shows_nested_passes() -> None:
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        Sequential((AppendRelu(), AppendRelu()), name="both")(module())
        lines = timing.render().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["both", "  AppendRelu", "  AppendRelu"]
    assert all(" ms (" in line for line in lines)


def test_an_instrument_of_the_field_sees_and_skips_passes() -> None:
    @pass_instrument
    class Watch:
        def __init__(self) -> None:
            self.events: list[str] = []

        def enter_pass_ctx(self) -> None:
            self.events.append("enter")

        def exit_pass_ctx(self) -> None:
            self.events.append("exit")

        def should_run(self, mod: IRModule, info: PassInfo) -> bool:
            return info.name != "AppendRelu"

        def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
            self.events.append(f"before {info.name}")

        def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
            self.events.append(f"after {info.name}")

    watch: Any = Watch()
    with PassContext(instruments=[watch]):
        assert depth(Sequential((AppendRelu(),), name="all")(module())) == 1
    assert watch.events == ["enter", "before all", "after all", "exit"]


def test_the_dump_instrument_writes_a_file_a_pass(tmp_path: Path) -> None:
    with PassContext(instruments=[DumpInstrument(tmp_path / "dump")]):
        Sequential((AppendRelu(), AppendRelu()), name="all")(module())
    files = sorted((tmp_path / "dump").iterdir())
    assert [f.name for f in files] == ["00_AppendRelu.relay", "01_AppendRelu.relay", "02_all.relay"]
    assert files[0].read_text().count("nn.relu") == 2


def test_the_dump_folder_is_emptied_when_asked(tmp_path: Path) -> None:
    for _ in range(2):
        with PassContext(instruments=[DumpIR(tmp_path / "dump", refresh=True)]):
            AppendRelu()(module())
    assert [f.name for f in (tmp_path / "dump").iterdir()] == ["00_AppendRelu.relay"]


def test_modules_are_printed_around_passes(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = Sequential((AppendRelu(),), name="all")
    with PassContext(instruments=[PassPrintingInstrument(["AppendRelu"], ["all"])]):
        nothing(module())
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]
    assert heads == ["# before the pass AppendRelu", "# after the pass all"]
    with PassContext(instruments=[PrintBeforeAll(), PrintAfterAll()]):
        AppendRelu()(module())
    out = capsys.readouterr().out
    assert out.index(
        "# before the pass AppendRelu"
    ) < out.index("# after the pass AppendRelu") and out.count("nn.relu") == 3


def test_instruments_are_replaced_within_a_context() -> None:
    first, second = PassTimingInstrument(), PassTimingInstrument()
    with PassContext(instruments=[first]) as context:
        AppendRelu()(module())
        context.override_instruments([second])
        AppendRelu(2)(AppendRelu()(module()))
    assert (len(first.rows), len(second.rows)) == (1, 2)
    assert repr(context).startswith(
        "PassContext(opt_level=2, required_pass=[], disabled_pass=[], instruments=['PassTimingInstrument'], config={}"
    )


def test_the_options_are_listed() -> None:
    configs = PassContext.list_configs()
    assert configs["relay.FuseOps.max_depth"] == {
        "type": "int", "default": 64, "doc": "maximum number of calls in one fused function"
    }
    assert configs[
        "relay.check_rewrites"
    ]["choices"] == (False, True, "skip") and configs["relay.check_rewrites"]["type"] == "bool or str"
    with pytest.raises(
        OptionError,
        match=r"configuration option 'relay\.check_rewrites' takes one of False, True, skip, not 'maybe'"
    ):
        PassContext(config={"relay.check_rewrites": "maybe"})


def test_a_sequence_has_a_level_and_required_passes_of_its_own() -> None:
    inner = Sequential([AppendRelu()], opt_level=3, name="inner", required=["AppendRelu"], traceable=True)
    assert inner.info == PassInfo(
        3, "inner", ("AppendRelu",), True
    ) and repr(inner) == "Sequential(AppendRelu, name='inner')"
    with PassContext(opt_level=2):
        assert depth(Sequential([inner])(module())) == 1
    with PassContext(opt_level=3):
        assert depth(Sequential([inner])(module())) == 3
    with PassContext(opt_level=2, required_pass=["inner"]):
        assert depth(Sequential([inner])(module())) == 3


def test_a_pass_over_functions_by_name() -> None:
    mod = module()
    mod["other"] = mod["main"]
    new = ApplyPassToFunction(AppendRelu(), "oth.*")(mod)
    assert depth(new) == 1 and new["other"] is not mod["other"]
    assert ApplyPassToFunction(AppendRelu(), "ain")(mod) is mod
    with pytest.raises(OptionError, match="no function of the module matches 'ain'; it has main, other"):
        ApplyPassToFunction(AppendRelu(), "ain", error_if_no_function_matches_regex=True)(mod)


def test_what_no_pass_is_made_of() -> None:
    with pytest.raises(OptionError, match=r"the class Empty is not a pass: it has no method transform_module\(self"):
        @module_pass(opt_level=0)
        class Empty:
            pass
    with pytest.raises(OptionError, match="a pass is created from a function or a class, not from 3"):
        module_pass(3)


def test_an_error_of_the_user_keeps_its_kind_and_names_the_pass() -> None:
    @module_pass(opt_level=0, name="Refuse")
    def refuse(mod: IRModule, context: PassContext) -> IRModule:
        raise CompileError("no")

    with pytest.raises(CompileError, match="no") as caught:
        refuse(module())
    assert caught.value.__notes__ == ["in the pass Refuse"]


def test_a_fault_of_a_pass_is_an_internal_error() -> None:
    @module_pass(opt_level=0, name="Broken")
    def broken(mod: IRModule, context: PassContext) -> IRModule:
        raise KeyError("x")

    @module_pass(opt_level=0, name="Nothing")
    def nothing(mod: IRModule, context: PassContext) -> Any:
        return None

    with pytest.raises(InternalError, match="the pass Broken failed with KeyError: 'x'"):
        broken(module())
    with pytest.raises(InternalError, match="the pass Nothing returned a NoneType, not an IRModule"):
        nothing(module())


def test_the_verifier_names_the_pass() -> None:
    @function_pass(opt_level=0, name="Unbind")
    def unbind(func: Function, mod: IRModule, context: PassContext) -> Function:
        return Function((), func.body)

    with PassContext(instruments=[VerifyInstrument(check_well_formed)]):
        AppendRelu()(module())
        with pytest.raises(
            InternalError,
            match="not well formed after the pass Unbind: 'main' uses the variable 'x', which is not bound"
        ):
            unbind(module())


def test_variables_outside_of_their_scope() -> None:
    """Each message says which variable, what uses it, and what it is outside of; a graph may share what is inside with
    what is outside."""
    x, y, z, c = var("x", shape=(2,)), var("y", shape=(2,)), var("z", shape=(2,)), var("c", shape=(), dtype="bool")
    shared = relay.exp(y)
    let = Let(y, Relu()(x), shared)
    inner = Function((z,), relay.tanh(z))
    some = Var("h", x.known_type())
    match = Match(Tuple((x, x)), (Clause(PatternTuple((PatternVar(some), PatternWildcard())), some),))
    loop = Var("f", FuncType((x.checked_type,), x.checked_type))
    faults = {
        r"in 'the function' the variable 'y' is used in exp\(%y\), outside of the body of let %y; move the use": relay.add(let, shared),  # noqa: E501
        r"variable 'y' is used in exp\(%y\), outside of the body of let %y": Let(y, shared, x),
        r"variable 'y' is used in if \(%c\), outside of the body of let %y": relay.If(c, let, y),
        r"variable 'z' is used in add\(.*\), outside of fn \(%z\) .*, which has it as a parameter; return the value": relay.add(inner(x), z),  # noqa: E501
        r"variable 'h' is used in add\(.*\), outside of its clause of match \(.*\); use it only in that clause": relay.add(match, some),  # noqa: E501
        r"variable 'f' is used in %f\(%x\), outside of the body of let %f": relay.add(
            Let(loop, inner, Call(loop, (x,))), Call(loop, (x,))
        ),
    }
    for message, body in faults.items():
        with pytest.raises(CompileError, match=message):
            check_well_formed(Function((x, c), body))
        assert not well_formed(Function((x, c), body))
    again = Let(loop, Function((z,), Call(loop, (relay.tanh(z),))), Call(loop, (x,)))
    for body in (
        let, relay.If(c, let, Let(var("w", shape=(2,)), x, x)), match, again,
        Let(y, x, relay.If(c, shared, relay.add(shared, y)))
    ):
        check_well_formed(Function((x, c), body))


@pytest.mark.slow
def test_scopes_of_a_deep_program() -> None:
    """Ten thousand lets within each other, whose values use one of the first and one of the last."""
    x = var("x", shape=(2,))
    names = [var(f"v{k}", shape=(2,)) for k in range(10_000)]
    body: relay.Expr = relay.add(names[0], names[-1])
    for k in reversed(range(len(names))):
        body = Let(names[k], relay.add(names[k - 1], names[0]) if k else x, body)
    check_well_formed(Function((x,), body))
    with pytest.raises(CompileError, match="the variable 'v9999' is used in add"):
        check_well_formed(Function((x,), relay.add(body, names[-1])))


def test_well_formed_refuses() -> None:
    x, y = var("x", shape=(2,)), var("y")
    assert well_formed(Function((x,), Relu()(x)))
    faults = {
        "the type of a Var is not known": Function((y,), y),
        "the variable 'x' is bound twice": Function((x,), Let(x, Relu()(x), x)),
    }
    for message, function in faults.items():
        with pytest.raises(CompileError, match=message):
            check_well_formed(function)
    with pytest.raises(ShapeError, match="the function takes 1 arguments, but was given 2"):
        Call(Function((var("z", shape=(2,)),), x), (x, x))
    once = Let(y, x, y)
    assert well_formed(y) and well_formed(once) and well_formed(Tuple((once, once)))
    assert not well_formed(Let(y, x, once)) and not well_formed(Tuple((once, Let(y, x, y))))
    called = IRModule.from_expr(Function((x,), Call(GlobalVar("gone"), (x,))))
    with pytest.raises(CompileError, match="'main' calls @gone, which is not in the module"):
        check_well_formed(called)
    assert not well_formed(called)


@pytest.mark.parametrize("method", ["enter_pass_ctx", "exit_pass_ctx", "should_run", "run_before_pass"])
def test_an_instrument_that_fails(method: str) -> None:
    """The instruments before it are left, the context has no instruments, and the error names the method."""
    events: list[str] = []

    class Recorder(PassInstrument):
        def enter_pass_ctx(self) -> None:
            events.append("enter")

        def exit_pass_ctx(self) -> None:
            events.append("exit")

    def fail(self: Any, *args: Any) -> None:
        raise ValueError("broken")

    broken = type("Broken", (PassInstrument,), {method: fail})()
    context = PassContext(instruments=[Recorder(), broken])
    message = f"the method {method} of the instrument Broken failed with ValueError"
    with pytest.raises(InternalError, match=message), context:
        relay.transform.InferType()(IRModule.from_expr(relay.const(1)))
    assert events == ["enter", "exit"] and PassContext.current() is not context
    assert bool(context.instruments) == (method in ("should_run", "run_before_pass"))


def test_required_passes_run_where_they_are_needed() -> None:
    """A sequence infers types before a pass that needs them, and only where types are unknown."""
    x, y = relay.var("x"), relay.var("y", shape=(2, 4))
    mod = IRModule.from_expr(relay.Function([x, y], relay.nn.dense(y, x, units=3)))
    counted = PassTimingInstrument()
    for runs in (1, 0):
        with PassContext(opt_level=3, instruments=[counted]):
            mod = Sequential([relay.transform.FoldConstant()])(mod)
        assert [name for _, name, _ in counted.rows].count("InferType") == runs


def test_the_default_context_keeps_its_instruments() -> None:
    counted = PassTimingInstrument()
    PassContext.current().override_instruments([counted])
    try:
        relay.transform.InferType()(IRModule.from_expr(relay.const(1)))
        assert "InferType" in counted.render()
    finally:
        PassContext.current().override_instruments(None)
