"""TVM's UMA interface: targets, patterns, passes over loop programs, and functions in C."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.backends.accelerators.uma import UMABackend, uma_available
from tilewright.backends.accelerators.uma.api import PassPhase, UMACodegen, UMAPartitioner
from tilewright.base.errors import OptionError, TargetError
from tilewright.relay.dataflow_pattern import is_op, wildcard
from tilewright.relay.op.contrib import get_pattern_table
from tilewright.scalar.expr import Buffer

SOURCE = """
static int twice_sum(const float* a, const float* b, float* out, int n) {
  for (int i = 0; i < n; ++i) out[i] = 2 * (a[i] + b[i]);
  return 0;
}
"""


@tvm.tir.transform.prim_func_pass(opt_level=0)
class CallTwiceSum:
    """The loops of a sum -> a call of a function in C, which computes twice the sum."""

    def transform_function(self, func: Any, mod: Any, context: Any) -> Any:
        a, b, out = func.params
        size = int(np.prod([int(n) for n in a.shape]))
        pointers = [Buffer.access_ptr(p, mode) for p, mode in ((a, "r"), (b, "r"), (out, "w"))]
        call = tvm.tir.call_extern("int32", "twice_sum", *pointers, size)
        return func.with_body(tvm.tir.Evaluate(call))


class Adder(UMABackend):
    """Adds tensors, by a function in C."""

    def __init__(self, codegen: bool = True) -> None:
        super().__init__()
        self._register_pattern("add", is_op("add")(wildcard(), wildcard()))
        if codegen:
            self._register_tir_pass(PassPhase.TIR_PHASE_0, cast("Any", CallTwiceSum()))
            self._register_codegen(fmt="c", includes=lambda: SOURCE)
        self._register_target_attr("variant", "small")
        self._register_target_attr("memory", 1024)

    @property
    def target_name(self) -> str:
        return "uma_adder" if self._has_code else "uma_plain_adder"

    _has_code = True


class PlainAdder(Adder):
    """Adds tensors, by loops of the host."""

    _has_code = False

    def __init__(self) -> None:
        super().__init__(codegen=False)


def source(lib: Any) -> str:
    """Return the C text of the first module of a program."""
    return str(lib.imported_modules[0].get_source())


def network() -> tuple[tvm.IRModule, list[np.ndarray[Any, Any]]]:
    x, y = (relay.var(n, shape=(2, 4)) for n in "xy")
    rng = np.random.default_rng(0)
    return tvm.IRModule.from_expr(relay.Function([x, y], relay.exp(relay.add(x, y)))), [
        rng.standard_normal((2, 4)).astype("float32") for _ in range(2)]


def test_backend_with_code_in_c(tmp_path: Path) -> None:
    backend = Adder()
    backend.register()
    mod, (a, b) = network()
    parts = backend.partition(mod)
    assert [f.attrs["Compiler"] for _, f in parts.items() if "Compiler" in f.attrs] == ["uma_adder"]
    lib = relay.build(parts, [tvm.target.Target("llvm"), tvm.target.Target("uma_adder")])
    np.testing.assert_allclose(lib.executable(a, b), np.exp(2 * (a + b)), rtol=1e-5)
    assert "twice_sum(" in source(lib)
    lib.export_library(tmp_path / "adder.so")
    again: Any = tvm.runtime.load_module(tmp_path / "adder.so")
    np.testing.assert_allclose(again.executable(a, b), np.exp(2 * (a + b)), rtol=1e-5)


def test_backend_without_code_runs_on_the_host() -> None:
    PlainAdder().register()
    mod, (a, b) = network()
    lib = relay.build(mod, "uma_plain_adder, llvm")  # partitioned by the text of the target
    np.testing.assert_allclose(lib.executable(a, b), np.exp(a + b), rtol=1e-5)
    symbols = [getattr(step, "symbol", "") for step in lib.artifact.manifest.steps]
    assert lib.artifact.manifest.is_native and any("uma_plain_adder" in s for s in symbols)


def test_operator_strategy() -> None:
    class Strategic(Adder):
        _has_code = True

        def __init__(self) -> None:
            super().__init__(codegen=False)

            def compute(attrs: Any, inputs: Any, out_type: Any) -> Any:
                return [tvm.te.compute(inputs[0].shape, lambda *i: inputs[0](*i) - inputs[1](*i), name="T_minus")]

            def strategy(attrs: Any, inputs: Any, out_type: Any, target: Any) -> Any:
                made = relay.op.OpStrategy()
                made.add_implementation(compute, None, name="minus", plevel=20)
                return made

            self._register_operator_strategy("add", strategy, 20)

        @property
        def target_name(self) -> str:
            return "uma_strategic"

    backend = Strategic()
    backend.register()
    mod, (a, b) = network()
    lib = relay.build(backend.partition(mod), "llvm")
    np.testing.assert_allclose(lib.executable(a, b), np.exp(a - b), rtol=1e-5)


def test_attributes_of_a_target() -> None:
    Adder().register()
    target = tvm.target.Target("uma_adder -memory=4096")
    assert (str(target.kind), target.attrs) == ("uma_adder", {"variant": "small", "memory": 4096})
    assert str(target) == "uma_adder -memory=4096" and tvm.target.Target(target) == target
    assert tvm.target.Target("uma_adder", host="c").host == tvm.target.Target("c")
    assert "uma_adder" in tvm.target.Target.list_kinds()
    with pytest.raises(TargetError, match="'-size' is not an option of the target 'uma_adder'"):
        tvm.target.Target("uma_adder -size=3")
    with pytest.raises(TargetError, match="'-memory' is 'much'; it must be of the type int"):
        tvm.target.Target("uma_adder -memory=much")


@pytest.fixture
def register_target() -> Iterator[Any]:
    yield tvm.get_global_func("relay.backend.contrib.uma.RegisterTarget")


def test_invalid_targets(register_target: Any) -> None:
    assert uma_available()
    with pytest.raises(tvm.TVMError, match="TVM UMA Error: Target is already registered: 'llvm'"):
        register_target("llvm", {})
    with pytest.raises(tvm.TVMError, match="Attribute is already registered: each target has 'model'"):
        register_target("uma_model", {"model": "mine"})
    with pytest.raises(TypeError, match=r"Only String, Integer, or Bool are supported.*3\.5"):
        register_target("uma_float", {"size": 3.5})
    backend = PlainAdder()
    backend._register_target_attr("nothing", None)
    with pytest.raises(ValueError, match="Target attribute None is not supported"):
        backend.register()
    with pytest.raises(OptionError, match="generates 'c', not 'llvm'"):
        UMACodegen("uma_adder")._register_codegen("llvm")


def test_partitioner_registers_its_table() -> None:
    partitioner = UMAPartitioner("uma_table")
    assert get_pattern_table("uma_table") is None
    partitioner.add_pattern("relu", is_op("nn.relu")(wildcard()))
    partitioner.register()
    table = get_pattern_table("uma_table")
    assert table is not None and [row[0] for row in table] == ["uma_table.relu"]
