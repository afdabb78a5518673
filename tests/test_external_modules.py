"""Functions for accelerators: handed to the code generator of their target, called where they stood, saved with the
program."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import ArtifactError, CompileError, OptionError
from tilewright.base.global_functions import FUNCTIONS, register_func, remove_global_func
from tilewright.relay import transform
from tilewright.runtime import ModuleNode, load_module, register_module
from tilewright.runtime.module import FactoryModule

Array = np.ndarray[Any, Any]


class Meaning(ModuleNode):
    """Runs what it was given by the reference interpreter, from the function's text."""

    type_key = "meaning"
    calls: list[str] = []  # noqa: RUF012

    def __init__(self, symbol: str, text: str) -> None:
        self.symbol, self.text = symbol, text
        self.function = tvm.parser.parse(text)["main"]

    def get_function(self, name: str) -> Callable[..., Any] | None:
        return self.run if name == self.symbol else None

    def run(self, *arrays: Any) -> None:
        Meaning.calls.append(self.symbol)
        count = len(self.function.params)
        found = relay.create_executor(
            "debug", tvm.IRModule.from_expr(self.function)
        ).evaluate()(*(a.numpy() for a in arrays[:count]))
        for place, value in zip(arrays[count:], found if isinstance(found, (list, tuple)) else [found], strict=True):
            place.copyfrom(value)

    def save_to_binary(self) -> bytes:
        return f"{self.symbol}\n{self.text}".encode()

    @classmethod
    def load_from_binary(cls, blob: bytes) -> Meaning:
        symbol, _, text = blob.decode().partition("\n")
        return cls(symbol, text)


class Unsaved(Meaning):
    type_key = "unsaved"
    save_to_binary = ModuleNode.save_to_binary


def compiled(function: Any, kind: type[Meaning] = Meaning) -> Meaning:
    plain = relay.Function(function.params, function.body, None, function.type_params)
    return kind(str(function.attrs["global_symbol"]), tvm.IRModule.from_expr(plain).astext(show_meta_data=True))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Code generators for two accelerators, and the kinds of their modules, for one test."""
    before = dict(FUNCTIONS)
    register_module(Meaning)
    register_func("relay.ext.alpha", compiled)
    register_func("relay.ext.beta", lambda f: compiled(f, Unsaved))
    Meaning.calls.clear()
    yield
    for name in [n for n in FUNCTIONS if n not in before]:
        remove_global_func(name)


def partitioned(text: str, targets: dict[str, str]) -> tvm.IRModule:
    """The program of `text`, its operators annotated by name for targets, in parts."""
    mod = transform.InferType()(tvm.parser.parse('#[version = "0.0.5"]\n' + text))
    keys = [(name, f"target.{target}") for name, target in targets.items()]
    for name, key in keys:
        tvm.ir.register_op_attr(name, key, lambda expr: True)
    try:
        for target in dict.fromkeys(targets.values()):
            mod = transform.AnnotateTarget(target)(mod)
        return transform.PartitionGraph()(transform.MergeCompilerRegions()(mod))
    finally:
        for name, key in keys:
            tvm.ir.Op.get(name).reset_attr(key)


def same(mod: tvm.IRModule, plain: str, *inputs: Array) -> tvm.runtime.FactoryModule:
    """Compile `mod`, and compare it with the program that it was before it was partitioned."""
    lib = relay.build(mod, target="llvm")
    want = relay.build(tvm.parser.parse('#[version = "0.0.5"]\n' + plain), target="llvm").executable(*inputs)
    for x, y in zip(*(v if isinstance(v, tuple) else (v,) for v in (lib.executable(*inputs), want)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
    return lib


HEAD = """def @main(%x: Tensor[(2, 4), float32], %b: Tensor[(4), float32]) {
  %0 = nn.bias_add(%x, %b);
  %1 = exp(%0);
  nn.bias_add(%1, %b)
}"""
X, B = np.random.default_rng(0).standard_normal((2, 4), np.float32), np.arange(4, dtype=np.float32)


def test_parts_run_where_they_were_sent() -> None:
    same(partitioned(HEAD, {"nn.bias_add": "alpha"}), HEAD, X, B)
    assert Meaning.calls == ["tvmgen_default_alpha_main_0", "tvmgen_default_alpha_main_2"]


def test_two_accelerators_and_a_border_of_two_values() -> None:
    text = """def @main(%x: Tensor[(2, 4), float32], %b: Tensor[(4), float32]) {
      %0 = split(%x, indices_or_sections=2, axis=0);
      %1 = tanh(%0.0);
      %2 = nn.bias_add(%0.1, %b);
      add(%1, %2)
    }"""
    mod = partitioned(text, {"split": "alpha", "tanh": "beta", "nn.bias_add": "beta"})
    assert {f.attrs.get("Compiler") for _, f in mod.functions.items()} == {None, "alpha", "beta"}
    same(mod, text, X, B)
    assert len(Meaning.calls) == sum("Compiler" in f.attrs for _, f in mod.functions.items())


def test_a_part_writes_into_a_larger_value() -> None:
    text = """def @main(%x: Tensor[(2, 4), float32], %b: Tensor[(4), float32]) {
      %0 = nn.bias_add(%x, %b);
      %1 = exp(%x);
      %2 = (%0, %1);
      concatenate(%2, axis=1)
    }"""
    same(partitioned(text, {"nn.bias_add": "alpha"}), text, X, B)


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_modules_travel_with_the_program(suffix: str, tmp_path: Path) -> None:
    lib = same(partitioned(HEAD, {"nn.bias_add": "alpha"}), HEAD, X, B)
    assert [m.type_key for m in lib.imported_modules] == ["meaning", "meaning"]
    lib.export_library(tmp_path / f"m{suffix}")
    again = load_module(tmp_path / f"m{suffix}")
    assert isinstance(again, FactoryModule)
    Meaning.calls.clear()
    np.testing.assert_array_equal(again.executable(X, B), lib.executable(X, B))
    assert Meaning.calls[:2] == ["tvmgen_default_alpha_main_0", "tvmgen_default_alpha_main_2"]
    data = bytearray((tmp_path / f"m{suffix}").read_bytes())
    data[data.index(b"nn.bias_add(") + 4] ^= 1
    (tmp_path / f"bad{suffix}").write_bytes(data)
    with pytest.raises(ArtifactError, match="the file is damaged"):
        load_module(tmp_path / f"bad{suffix}")


def test_a_file_with_modules_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    relay.build(partitioned(HEAD, {"nn.bias_add": "alpha"}), target="llvm").export_library(tmp_path / "m.so")
    code = (
        f"import tilewright\ntry:\n    tilewright.load({str(tmp_path / 'm.so')!r})\nexcept "
        "tilewright.base.errors.ArtifactError as e:\n    print(e)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "it has a module of the kind 'meaning', which nothing here can load; import the code that" in said


def test_what_cannot_be_saved_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = relay.build(partitioned(HEAD, {"nn.bias_add": "beta"}), target="llvm")
    with pytest.raises(ArtifactError, match="the module 'unsaved' cannot be saved: Unsaved has no save_to_binary"):
        lib.export_library(tmp_path / "m.so")
    monkeypatch.setattr(Unsaved, "save_to_binary", lambda self: "text")
    with pytest.raises(ArtifactError, match="its save_to_binary returned a str"):
        lib.export_library(tmp_path / "m.so")
    monkeypatch.setattr(Unsaved, "save_to_binary", Meaning.save_to_binary)
    with pytest.raises(ArtifactError, match="could not be loaded again: register its class"):
        lib.export_library(tmp_path / "m.so")
    Unsaved.save_to_binary = ModuleNode.save_to_binary
    assert list(tmp_path.iterdir()) == []


def test_targets_without_a_code_generator_are_refused() -> None:
    mod = partitioned(HEAD, {"nn.bias_add": "alpha"})
    remove_global_func("relay.ext.alpha")
    with pytest.raises(
        CompileError,
        match=r"@tvmgen_default_alpha_main_0 is for 'alpha', which has no code generator.*registered are: .*beta"
    ):
        relay.build(mod, target="llvm")
    register_func("relay.ext.alpha", lambda f: f)
    with pytest.raises(
        CompileError,
        match=r"the code generator of 'alpha', at .*test_external_modules.py:\d+, returned a Function for @tvmgen"
    ):
        relay.build(mod, target="llvm")


def test_a_module_without_the_function_is_refused() -> None:
    register_func(
        "relay.ext.alpha",
        lambda f: Meaning("other", "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(1), float32]) { %x }"), override=True
    )
    lib = relay.build(partitioned(HEAD, {"nn.bias_add": "alpha"}), target="llvm")
    with pytest.raises(
        ArtifactError,
        match="calls 'tvmgen_default_alpha_main_0', but none of its modules has that function: the module 'meaning'"
    ):
        _ = lib.executable


BRANCHES = """def @main(%x: Tensor[(2, 4), float32], %b: Tensor[(4), float32], %c: bool) {
  if (%c) { exp(nn.bias_add(%x, %b)) } else { exp(%x) }
}"""
LOOP = """def @main(%x: Tensor[(2, 4), float32], %b: Tensor[(4), float32], %n: int32) {
  let %loop = fn (%i: int32, %s: Tensor[(2, 4), float32]) -> Tensor[(2, 4), float32] {
    if (less(%i, %n)) { %loop(add(%i, 1), tanh(nn.bias_add(%s, %b))) } else { %s }
  };
  %loop(0, %x)
}"""


@pytest.mark.parametrize("condition", [True, False])
def test_a_part_stands_in_a_branch(condition: bool) -> None:
    same(partitioned(BRANCHES, {"nn.bias_add": "alpha"}), BRANCHES, X, B, np.array(condition))
    assert len(Meaning.calls) == condition


@pytest.mark.parametrize("turns", [0, 1, 7])
def test_a_part_stands_in_a_loop(turns: int) -> None:
    lib = same(partitioned(LOOP, {"nn.bias_add": "alpha"}), LOOP, X, B, np.array(turns, np.int32))
    assert len(Meaning.calls) == turns
    assert not lib.artifact.manifest.is_native


@pytest.mark.parametrize("suffix", [".so", ".tar"])
def test_programs_that_call_back_are_saved(suffix: str, tmp_path: Path) -> None:
    lib = relay.build(partitioned(LOOP, {"nn.bias_add": "alpha"}), target="llvm")
    wanted = lib.executable(X, B, np.array(3, np.int32))
    lib.export_library(tmp_path / f"m{suffix}")
    Meaning.calls.clear()
    again = load_module(tmp_path / f"m{suffix}")
    assert isinstance(again, FactoryModule)
    np.testing.assert_array_equal(again.executable(X, B, np.array(3, np.int32)), wanted)
    assert len(Meaning.calls) == 3


def test_what_a_part_raises_ends_the_program() -> None:
    class Broken(Meaning):
        def run(self, *arrays: Any) -> None:
            Meaning.calls.append(self.symbol)
            if len(Meaning.calls) == 3:
                raise ValueError("the device is hot")
            super().run(*arrays)

    register_func("relay.ext.alpha", lambda f: compiled(f, Broken), override=True)
    executable = relay.build(partitioned(LOOP, {"nn.bias_add": "alpha"}), target="llvm").executable
    with pytest.raises(ValueError, match="the device is hot"):
        executable(X, B, np.array(1 << 30, np.int32))
    Meaning.calls.clear()
    assert np.isfinite(executable(X, B, np.array(1, np.int32))).all()


@pytest.mark.slow
def test_several_executables_share_the_code_that_calls_back() -> None:
    lib = relay.build(partitioned(BRANCHES, {"nn.bias_add": "alpha"}), target="llvm")
    first, second = lib.artifact.executable(), lib.artifact.executable()
    wanted = first(X, B, np.array(True))
    del first
    gc.collect()
    np.testing.assert_array_equal(second(X, B, np.array(True)), wanted)


def test_results_that_cannot_be_handed_over_are_refused() -> None:
    x = relay.var("x", shape=(2,))
    inner = relay.Function(
        [x], relay.Tuple([relay.Tuple([x, x]), x]), attrs={"Compiler": "alpha", "global_symbol": "f"}
    )
    mod = tvm.IRModule({"f": inner})
    y = relay.var("y", shape=(2,))
    mod["main"] = relay.Function([y], relay.TupleGetItem(relay.Call(mod.get_global_var("f"), [y]), 1))
    with pytest.raises(
        CompileError,
        match=r"the function @f, for 'alpha', returns .*; it must return a tensor of known shape, or a tuple of them"
    ):
        relay.build(mod, target="llvm")


def test_kinds_of_modules() -> None:
    class Nameless(ModuleNode):
        pass

    class Other(ModuleNode):
        type_key = "meaning"

    with pytest.raises(OptionError, match="Nameless has the type_key ''; files contain it"):
        register_module(Nameless)
    with pytest.raises(OptionError, match="register_module takes a subclass of ModuleNode"):
        register_module(int)  # type: ignore[type-var]
    with pytest.raises(OptionError, match="registered already"):
        register_module(Other)
    assert register_module(Meaning) is Meaning
    with pytest.raises(OptionError, match="Nameless has no get_function"):
        Nameless().get_function("f")
    with pytest.raises(ArtifactError, match="Nameless has no load_from_binary"):
        Nameless.load_from_binary(b"")
    with pytest.raises(KeyError, match="has no function 'f'"):
        Meaning("g", "#[version = \"0.0.5\"]\ndef @main(%x: Tensor[(1), float32]) { %x }")["f"]
