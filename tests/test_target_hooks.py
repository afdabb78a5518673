"""Targets with hooks: loop programs for the host, modules made of loop programs, constants that are handed over
once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.base.errors import ArtifactError, CompileError, OptionError
from tilewright.base.global_functions import FUNCTIONS, register_func, remove_global_func
from tilewright.compat.target import register_target_kind
from tilewright.relay import transform
from tilewright.runtime import ModuleNode, load_module, register_module
from tilewright.runtime.module import FactoryModule

Array = np.ndarray[Any, Any]
HEAD = '#[version = "0.0.5"]\n'


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = dict(FUNCTIONS)
    yield
    for name in [n for n in FUNCTIONS if n not in before]:
        remove_global_func(name)


def partitioned(text: str, *names: str) -> tvm.IRModule:
    """The program of `text`, with these operators in functions for "wide"."""
    mod = transform.InferType()(tvm.parser.parse(HEAD + text))
    for name in names:
        tvm.ir.register_op_attr(name, "target.wide", lambda expr: True)
    try:
        return transform.PartitionGraph()(transform.MergeCompilerRegions()(transform.AnnotateTarget("wide")(mod)))
    finally:
        for name in names:
            tvm.ir.Op.get(name).reset_attr("target.wide")


def loops(mod: tvm.IRModule) -> tvm.IRModule:
    """Sums as loop programs: what a target would write itself."""
    made = {}
    for name, f in mod.items():
        a, b = (te.placeholder(p.tensor_type.shape, p.tensor_type.dtype, p.name_hint) for p in f.params)
        made[name] = te.create_prim_func([a, b, te.compute(a.shape, lambda *i, a=a, b=b: a(*i) + b(*i) * 2)])
    return tvm.IRModule(made)


SUM = """def @main(%x: Tensor[(4, 6), float32], %y: Tensor[(4, 6), float32]) {
  %0 = add(exp(%x), %y);
  tanh(add(tanh(%0), %x))
}"""
X, Y = np.random.default_rng(0).standard_normal((2, 4, 6), np.float32)


def meaning(x: Array, y: Array) -> Array:
    result: Array = np.tanh(np.tanh(np.exp(x) + 2 * y) + 2 * x)
    return result


def test_loop_programs_are_compiled_for_the_host(tmp_path: Path) -> None:
    register_target_kind("wide", {"RelayToTIR": loops})
    lib = relay.build(partitioned(SUM, "add"), "llvm")
    assert lib.artifact.manifest.is_native
    assert lib.imported_modules == []
    np.testing.assert_allclose(lib.executable(X, Y), meaning(X, Y), rtol=1e-5)
    for suffix in (".so", ".tar"):
        lib.export_library(tmp_path / f"m{suffix}")
        again = load_module(tmp_path / f"m{suffix}")
        assert isinstance(again, FactoryModule)
        np.testing.assert_array_equal(again.executable(X, Y), lib.executable(X, Y))


def test_they_read_and_write_parts_of_larger_values() -> None:
    register_target_kind("wide", {"RelayToTIR": loops})
    text = """def @main(%x: Tensor[(4, 6), float32], %y: Tensor[(4, 6), float32]) {
      %0 = exp(%x);
      %1 = split(%0, indices_or_sections=2, axis=1);
      %2 = add(%1.0, %1.1);
      %3 = (%2, tanh(%y));
      concatenate(%3, axis=1)
    }"""
    lib = relay.build(partitioned(text, "add"), "llvm")
    wanted = np.concatenate([np.exp(X[:, :3]) + 2 * np.exp(X[:, 3:]), np.tanh(Y)], 1)
    np.testing.assert_allclose(lib.executable(X, Y), wanted, rtol=1e-5)


def test_they_stand_in_control_flow() -> None:
    register_target_kind("wide", {"RelayToTIR": loops})
    text = """def @main(%x: Tensor[(4, 6), float32], %y: Tensor[(4, 6), float32], %c: bool) {
      if (%c) { add(%x, %y) } else { exp(%x) }
    }"""
    lib = relay.build(partitioned(text, "add"), "llvm")
    np.testing.assert_allclose(lib.executable(X, Y, np.array(True)), X + 2 * Y, rtol=1e-5)
    np.testing.assert_allclose(lib.executable(X, Y, np.array(False)), np.exp(X), rtol=1e-5)


class Interpreted(ModuleNode):
    """Loop programs, run as functions of `tvm.build`."""

    type_key = "interpreted"

    def __init__(self, mod: tvm.IRModule) -> None:
        self.built = tvm.build(mod, target="llvm")
        self.names = [n for n, _ in mod.items()]

    def get_function(self, name: str) -> Callable[..., Any] | None:
        return self.built[name] if name in self.names else None


def test_a_target_makes_its_own_module_of_loop_programs() -> None:
    seen: list[Any] = []

    def finish(mod: tvm.IRModule, target: Any) -> ModuleNode:
        seen.append((sorted(n for n, _ in mod.items()), str(target)))
        return Interpreted(mod)

    register_target_kind("wide", {"RelayToTIR": loops, "TIRToRuntime": finish})
    lib = relay.build(partitioned(SUM, "add"), "llvm")
    assert [(len(names), target) for names, target in seen] == [(2, "llvm")]
    assert [m.type_key for m in lib.imported_modules] == ["interpreted"]
    np.testing.assert_allclose(lib.executable(X, Y), meaning(X, Y), rtol=1e-5)


def test_hooks_that_do_something_else_are_told() -> None:
    mod = partitioned(SUM, "add")
    cases: list[tuple[Any, str]] = [
        (
            lambda m: 1,
            r"RelayToTIR of 'wide', at .*test_target_hooks.py:\d+, returned a int; it must return an IRModule of loop "
            r"programs"
        ),
        (
            lambda m: tvm.IRModule(),
            "RelayToTIR of 'wide' made no loop program 'tvmgen_default_wide_main_.'; it must make one of the "
            "same name for each function"
        ),
        (lambda m: tvm.IRModule(
            {
                n: te.create_prim_func([a := te.placeholder((3,), name="a"), te.compute((3,), lambda i: a[i])]) for n,
                _ in m.items()
            }
        ),
         r"the loop program 'tvmgen_default_wide_main_.' that RelayToTIR of 'wide' made takes .*; the inputs and "
         r"outputs are float32\[4, 6\], float32\[4, 6\], float32\[4, 6\]"),
        (lambda m: tvm.IRModule({**dict(loops(m).items()), "more": next(iter(dict(loops(m).items()).values()))}),
         "RelayToTIR of 'wide' made more, which the host does not call; give the target TIRToRuntime"),
    ]
    for hook, message in cases:
        register_target_kind("wide", {"RelayToTIR": hook}, override=True)
        with pytest.raises(CompileError, match=message):
            relay.build(mod, "llvm")
    register_target_kind("wide", {"RelayToTIR": loops, "TIRToRuntime": lambda m, t: 1}, override=True)
    with pytest.raises(
        CompileError, match=r"TIRToRuntime of 'wide', at .*, returned a int; it must return a tvm.runtime.ModuleNode"
    ):
        relay.build(mod, "llvm")


def test_hooks_have_the_names_of_the_field() -> None:
    with pytest.raises(
        OptionError,
        match=r"a target has no hook 'RelayToTir'; did you mean 'RelayToTIR'\?; there are RelayToTIR, TIRToRuntime"
    ):
        register_target_kind("wide", {"RelayToTir": loops})
    with pytest.raises(
        OptionError,
        match="the target 'wide' has TIRToRuntime but no hook that makes loop programs; give it RelayToTIR, too"
    ):
        register_target_kind("wide", {"TIRToRuntime": loops})
    register_target_kind("wide", {"RelayToTIR": loops})
    with pytest.raises(OptionError, match="registered already"):
        register_target_kind("wide", {"RelayToTIR": loops})


class Scaled(ModuleNode):
    """Adds, with a factor that is handed to it as a constant."""

    type_key = "scaled"
    initialized: list[str] = []  # noqa: RUF012

    def __init__(self, symbol: str) -> None:
        self.symbol, self.factor = symbol, None

    def get_function(self, name: str) -> Callable[..., Any] | None:
        return self.run if name == self.symbol else self.take if name == f"__init_{self.symbol}" else None

    def take(self, factor: Any, names: Any) -> None:
        Scaled.initialized.append(self.symbol)
        self.factor = factor.numpy()
        assert names.numpy().tolist() == [1, 2]

    def run(self, x: Any, y: Any, out: Any) -> None:
        out.copyfrom(x.numpy() + y.numpy() * self.factor)

    def save_to_binary(self) -> bytes:
        return self.symbol.encode()

    @classmethod
    def load_from_binary(cls, blob: bytes) -> Scaled:
        return cls(blob.decode())


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_constants_are_handed_over_once(suffix: str, tmp_path: Path) -> None:
    register_module(Scaled)
    register_func("relay.ext.wide", lambda f: Scaled(str(f.attrs["global_symbol"])))
    register_func(
        "relay.ext.wide.constant_updater",
        lambda f, symbol: {"factor": np.float32(2), "names": np.array([1, 2], np.int8)}
    )
    lib = relay.build(partitioned(SUM, "add"), "llvm")
    Scaled.initialized.clear()
    for _ in range(2):
        np.testing.assert_allclose(lib.executable(X, Y), meaning(X, Y), rtol=1e-5)
    assert len(Scaled.initialized) == len(set(Scaled.initialized)) == 2
    lib.export_library(tmp_path / f"m{suffix}")
    again = load_module(tmp_path / f"m{suffix}")
    assert isinstance(again, FactoryModule)
    assert sorted(m.type_key for m in again.imported_modules) == ["const_loader", "scaled", "scaled"]
    np.testing.assert_array_equal(again.executable(X, Y), lib.executable(X, Y))


def test_constants_that_nobody_takes_are_told() -> None:
    class Deaf(Scaled):
        type_key = "deaf"

        def get_function(self, name: str) -> Callable[..., Any] | None:
            return self.run if name == self.symbol else None

    register_func("relay.ext.wide", lambda f: Deaf(str(f.attrs["global_symbol"])))
    register_func("relay.ext.wide.constant_updater", lambda f, symbol: {"factor": np.float32(2)})
    with pytest.raises(
        ArtifactError,
        match=r"the module 'deaf' has constants for 'tvmgen_default_wide_main_.', but no function "
        r"'__init_tvmgen_default_wide_main_.'"
    ):
        _ = relay.build(partitioned(SUM, "add"), "llvm").executable
    register_func("relay.ext.wide.constant_updater", lambda f, symbol: [1], override=True)
    with pytest.raises(
        CompileError, match=r"the constant updater of 'wide', at .*, returned list; it must return arrays by name"
    ):
        relay.build(partitioned(SUM, "add"), "llvm")
