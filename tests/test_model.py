"""The short door: `tilewright.compile`, what it returns, what it keeps in the cache, and how it says no."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from small_models import cnn, mlp, onnxruntime_answers
from tilewright import relay
from tilewright.base.errors import (
    ArtifactError,
    CompileError,
    InputError,
    ModelError,
    OpenSizeWarning,
    OpNotImplemented,
    OptionError,
    TargetError,
)
from tilewright.compiler import constant_pool, digests, hook_digests, program
from tilewright.compiler.cache import Cache
from tilewright.compiler.digests import digest_bytes, digest_file
from tilewright.compiler.open_program import OpenSizeError
from tilewright.compiler.pipeline import compile_module
from tilewright.ir.module import IRModule
from tilewright.ir.op_attributes import registrations
from tilewright.runtime import host
from tilewright.runtime.artifact import Artifact

X = np.random.default_rng(0).standard_normal((2, 16), np.float32)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "mlp.onnx"
    file.write_bytes(mlp().SerializeToString())
    return file


# --- calling
# ------------------------------------------------------------------------------------------------------------


def test_a_model_is_a_path_bytes_or_a_message(path: Path) -> None:
    expected = onnxruntime_answers(path, {"x": X})[0]
    for source in (path, str(path), path.read_bytes(), onnx.load(path)):
        np.testing.assert_allclose(tilewright.compile(source)(X), expected, rtol=1e-4, atol=1e-6)


def test_all_ways_to_call(path: Path) -> None:
    model = tilewright.compile(path, threads=1)
    expected, out = model(X), np.empty((2, 10), np.float32)
    for answer in (model(x=X), model({"x": X}), model(X[:, ::-1][:, ::-1]), model(X, out=out)):
        np.testing.assert_array_equal(answer, expected)
    np.testing.assert_array_equal(out, expected)
    assert [str(t) for t in (*model.inputs, *model.outputs)] == ["float32 x[2, 16]", "float32 y[2, 10]"]
    model.threads = 2
    assert model.threads == 2
    np.testing.assert_array_equal(model(X), expected)
    assert len(model.benchmark(repeat=2, number=1).results) == 2


def test_open_sizes_are_compiled_when_they_come(tmp_path: Path) -> None:
    proto = cnn("batch")
    model = tilewright.compile(proto, symbolic=False)
    with pytest.raises(
        InputError,
        match=r"has symbolic dimensions \(x: \(batch, 3, 16, 16\)\); call it once, or compile it with shapes="
    ):
        model.save(tmp_path / "m.tar")
    for size in (1, 3, 1):
        x = np.random.default_rng(size).random((size, 3, 16, 16), np.float32)
        np.testing.assert_allclose(model(x), onnxruntime_answers(proto, {"x": x})[0], rtol=1e-4, atol=1e-5)
        assert model.inputs[0].shape == x.shape
        assert model.benchmark(x, repeat=1, number=1).mean > 0
        model.save(tmp_path / f"m{size}.tar")
        np.testing.assert_array_equal(tilewright.load(tmp_path / f"m{size}.tar")(x), model(x))
    assert tilewright.compile(proto, shapes={"x": (5, 3, 16, 16)}).outputs[0].shape == (5, 10)


def test_programs_for_several_shapes_are_saved_together(tmp_path: Path) -> None:
    model = tilewright.compile(cnn("batch"), symbolic=False)
    inputs = [np.random.default_rng(n).random((n, 3, 16, 16), np.float32) for n in (1, 3)]
    wanted = [model(x) for x in inputs]
    loaded = tilewright.load(model.save(tmp_path / "m.tar"))
    for x, y in zip(inputs, wanted, strict=True):
        np.testing.assert_array_equal(loaded(x), y)
    with pytest.raises(
        InputError, match=r"for 2 combinations of shapes \(x: \(1, 3, 16, 16\); x: \(3, 3, 16, 16\)\), .* as .tar"
    ):
        model.save(tmp_path / "m.so")
    one = tilewright.compile(cnn("batch"), symbolic=False)
    one(inputs[0])
    one.save(tmp_path / "one.so")


def test_one_program_serves_all_sizes(cache: Cache, tmp_path: Path) -> None:
    proto = cnn("batch")
    model = tilewright.compile(proto, cache=cache)
    for size in (1, 3, 7, 1):
        x = np.random.default_rng(size).random((size, 3, 16, 16), np.float32)
        np.testing.assert_allclose(model(x), onnxruntime_answers(proto, {"x": x})[0], rtol=1e-4, atol=1e-5)
    assert not model.why_not_symbolic and len(model.specializations()) == 1
    assert model.inputs[0].shape == ("batch", 3, 16, 16) == model.open_dimensions["x"]
    assert model.size_report == (
        "symbolic dimensions (x: (batch, 3, 16, 16)): one program serves all sizes, batch from 1")
    assert model.benchmark(x, repeat=1, number=1).mean > 0 and model.profile(number=1) is not None
    np.testing.assert_array_equal(tilewright.load(model.save(tmp_path / "m.tar"))(x), model(x))
    again = tilewright.compile(proto, cache=cache)
    np.testing.assert_array_equal(again(x), model(x))
    assert not again.report.kernels


def test_sizes_that_the_program_for_all_sizes_excludes_are_interpreted() -> None:
    model = tilewright.compile(cnn("batch"))
    empty = np.ones((0, 3, 16, 16), np.float32)
    assert model(empty).shape == (0, 10)
    assert model(x=np.ones((2, 3, 16, 16), np.float32)).shape == (2, 10)
    assert len(model.specializations()) == 1
    model.warm_up(empty)
    assert model(empty).shape == (0, 10) and len(model.specializations()) == 2
    limited = tilewright.compile(cnn("batch"), {"x": ("1..4", 3, 16, 16)})
    for n in (0, 5):
        with pytest.raises(
            InputError, match=f"dimension 0 of input 'x' is {n}, but the program was compiled for batch from 1 to 4"
        ):
            limited(np.ones((n, 3, 16, 16), np.float32))


def test_sizes_that_are_equal_in_one_program_may_be_broadcast() -> None:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [d]) for n, d in (("a", "n"), ("b", "m"))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "g", infos, outputs)
    model = tilewright.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    a = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(model(a, a), a + a)
    np.testing.assert_array_equal(model(a, a[1:2]), a + 1)
    assert len(model.specializations()) == 1
    with pytest.raises(
        InputError, match=r"dimension 0 of input 'b' is 3, and must be 4, like dimension 0 of input 'a' \(n\)"
    ):
        model(a, a[:3])


@pytest.mark.parametrize("name", ["DynamicDimension.0", "batch size", "2nd", "?", "", "min", "x_0", "a + b", "größe"])
def test_names_of_dimensions_are_of_any_form(name: str) -> None:
    proto = cnn("batch")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    model = tilewright.compile(proto)
    assert not model.why_not_symbolic and len(model.artifact.manifest.symbols) == 1
    assert model.artifact.manifest.symbols[0].name.isidentifier()
    x = np.random.default_rng(0).random((3, 3, 16, 16), np.float32)
    np.testing.assert_allclose(model(x), onnxruntime_answers(cnn("batch"), {"x": x})[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DynamicDimension.0", "batch size", "a:b", "n="])
def test_ranges_under_names_of_any_form(name: str) -> None:
    proto = cnn("batch")
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
    for given, (least, most) in ((f"{name}=2..8:2", (1, 4)), (f"{name}:2", (1, None)), (f"{name}=1..4", (1, 4))):
        model = tilewright.compile(proto, shapes={"x": (given, 3, 16, 16)})
        (symbol,) = model.artifact.manifest.symbols
        assert not model.why_not_symbolic and (symbol.least, symbol.most) == (least, most)
    with pytest.raises(InputError, match=r"is 8, but the program was compiled for .* from 1 to 4"):
        model(np.zeros((8, 3, 16, 16), np.float32))


def test_numbers_for_one_input_determine_names_in_others() -> None:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [d, 3])
             for n, d in (("a", "n"), ("b", "n"), ("c", "m"), ("d", "n + m"))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    nodes = [helper.make_node("Add", ["a", "b"], ["e"]), helper.make_node("Concat", ["e", "c"], ["f"], axis=0),
             helper.make_node("Mul", ["f", "d"], ["y"])]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", infos, outputs), opset_imports=[helper.make_opsetid("", 17)])
    known = tilewright.compile(proto, {"a": (2, 3), "c": (4, 3)})
    assert [t.shape for t in known.inputs] == [(2, 3), (2, 3), (4, 3), (6, 3)] and not known.open_dimensions
    some = tilewright.compile(proto, {"a": (2, 3)})
    assert [t.shape for t in some.inputs] == [(2, 3), (2, 3), ("m", 3), ("(m + 2)", 3)]
    a, c = np.ones((2, 3), np.float32), np.ones((5, 3), np.float32)
    np.testing.assert_array_equal(some(a, a, c, np.ones((7, 3), np.float32)), np.concatenate([a + a, c]))
    with pytest.raises(InputError, match=r"dimension 0 of input 'd' is 8, and must be \(m \+ 2\) = 7, where m is 5"):
        some(a, a, c, np.ones((8, 3), np.float32))


def test_sizes_of_one_name_must_be_equal() -> None:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "ab"]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "yz"]
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["b"], ["z"])]
    model = tilewright.compile(helper.make_model(
        helper.make_graph(nodes, "g", infos, outputs), opset_imports=[helper.make_opsetid("", 17)]))
    assert [y.shape for y in model(np.ones(2, np.float32), np.ones(2, np.float32))] == [(2,), (2,)]
    with pytest.raises(
        InputError, match=r"dimension 0 of input 'b' is 5, and must be 2, like dimension 0 of input 'a' \(n\)"
    ):
        model(np.ones(2, np.float32), np.ones(5, np.float32))


def test_a_model_without_a_program_for_all_sizes_says_why(cache: Cache) -> None:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in (("x", "nn"), ("y", ()))]
    graph = helper.make_graph([helper.make_node("Det", ["x"], ["y"])], "g", infos[:1], infos[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    for _ in range(2):  # the cache keeps the reason
        with pytest.warns(OpenSizeWarning, match="is compiled for each combination of its sizes: Det"):
            model = tilewright.compile(proto, cache=cache)
        assert "Det" in model.why_not_symbolic
        assert "a program is compiled for each combination of sizes, because" in model.size_report
        np.testing.assert_allclose(model(2 * np.eye(3, dtype=np.float32)), 8, rtol=1e-6)
        with pytest.raises(OpenSizeError, match=r"no program serves all sizes of 'model': Det"):
            tilewright.compile(proto, cache=cache, symbolic=True)
    with pytest.warns(OpenSizeWarning, match="the memory for its values is only known at run time"):
        tilewright.compile(cnn("batch"), max_arena=1 << 20)
    assert tilewright.compile(cnn("batch"), symbolic=True).open_dimensions


def test_a_model_whose_values_decide_sizes_is_compiled_in_stages(cache: Cache) -> None:
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT64, None)]
    graph = helper.make_graph([helper.make_node("NonZero", ["x"], ["y"])], "g", infos, outputs)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    for _ in range(2):
        model = tilewright.compile(proto, cache=cache)
        assert "depends on values" in model.why_not_symbolic
        assert "stages are compiled at calls, because" in model.size_report
        for n in (3, 5):
            np.testing.assert_array_equal(model(np.arange(n, dtype=np.float32)), [range(1, n)])
        with pytest.raises(OpenSizeError, match=r"no program serves all sizes of 'model': .* depends on values"):
            tilewright.compile(proto, cache=cache, symbolic=True)


@pytest.mark.parametrize("symbolic", [None, False])
def test_stages_refuse_sizes_beyond_the_given_ranges(cache: Cache, symbolic: bool | None) -> None:
    infos = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
             helper.make_tensor_value_info("b", TensorProto.FLOAT, ["n"])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.INT64, None)]
    nodes = [helper.make_node("NonZero", ["x"], ["y"]), helper.make_node("Relu", ["b"], ["z"])]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", infos, outputs), opset_imports=[helper.make_opsetid("", 17)])
    model = tilewright.compile(proto, {"x": ("n=2..8:2", 4)}, cache=cache, symbolic=symbolic)
    for n in (2, 8, 4):
        assert model(np.ones((n, 4), np.float32), np.ones(n, np.float32)).shape == (2, 4 * n)
    for n, rule in ((9, "must be a multiple of 2"), (10, "multiples of 2 from 2 to 8"), (0, "from 2 to 8")):
        with pytest.raises(InputError, match=rf"dimension 0 of input 'x' is {n}, .*{rule}"):
            model(np.ones((n, 4), np.float32), np.ones(n, np.float32))
    with pytest.raises(InputError, match=r"dimension 0 of input 'b' is 6, and must be 4"):
        model(np.ones((4, 4), np.float32), np.ones(6, np.float32))


def test_a_loop_over_values_of_symbolic_size_runs() -> None:
    def info(name: str, kind: int, shape: Any = None) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    step = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["s", "w"], ["t"])]
    body = helper.make_graph(
        step, "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("s", TensorProto.FLOAT)],
        [info("on", TensorProto.BOOL, []), info("t", TensorProto.FLOAT)])
    graph = helper.make_graph(
        [helper.make_node("Loop", ["m", "", "x"], ["y"], body=body)], "g",
        [info("m", TensorProto.INT64, []), info("x", TensorProto.FLOAT, ["n", 4])], [info("y", TensorProto.FLOAT)],
        [numpy_helper.from_array(np.ones(4, np.float32), "w")])
    model = tilewright.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), symbolic=True)
    for n, steps in ((2, 3), (5, 1)):
        np.testing.assert_array_equal(
            model(np.array(steps), np.ones((n, 4), np.float32)), np.full((n, 4), 1 + steps, np.float32))


def test_calls_of_several_shapes_from_several_threads() -> None:
    model = tilewright.compile(cnn("batch"))
    inputs = [np.random.default_rng(i).random((1 + i % 3, 3, 16, 16), np.float32) for i in range(24)]
    expected = [model(x) for x in inputs]
    with ThreadPoolExecutor(4) as threads:
        for answer, right in zip(threads.map(model, inputs), expected, strict=True):
            np.testing.assert_array_equal(answer, right)


def test_stages_as_text(path: Path, cache: Cache) -> None:
    for model in (tilewright.compile(path, cache=cache), tilewright.compile(path, cache=cache)):
        assert "nn.dense" in model.dump("relay") or "nn.matmul" in model.dump("relay")
        assert "define" in model.dump("ll")
        assert "for" in model.dump("tir")
        assert "ret" in model.dump("asm")
    with pytest.raises(OptionError, match="there is no stage 'wasm'; the stages are relay, tir, ll, asm"):
        model.dump("wasm")


def test_a_program_for_another_machine_is_saved_and_not_run(path: Path, tmp_path: Path, cache: Cache) -> None:
    other = "aarch64" if host.host_arch() == "x86_64" else "x86_64"
    for _ in range(2):
        model = tilewright.compile(path, target=f"llvm -mtriple={other}-linux-gnu", cache=cache)
        assert model.outputs[0].shape == (2, 10)
        assert model.save(tmp_path / "m.tar").stat().st_size > 0
        for use in (partial(model, X), model.benchmark, partial(getattr, model, "executable")):
            with pytest.raises(
                ArtifactError, match=f"model 'mlp': made for {other}, this machine is {host.host_arch()}"
            ):
                use()
    assert "graph" not in model.report.phases


# --- the cache
# ----------------------------------------------------------------------------------------------------------


def test_the_second_time_is_from_the_cache(path: Path, cache: Cache, tmp_path: Path) -> None:
    first = tilewright.compile(path, cache=cache)
    assert {"import", "graph", "llvm"} <= set(first.report.phases)
    copy = tmp_path / "elsewhere" / "mlp.onnx"
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    for source in (path, copy):
        again = tilewright.compile(source, cache=cache)
        assert not {"import", "graph", "llvm"} & set(again.report.phases)
        np.testing.assert_array_equal(again(X), first(X))


def test_what_the_code_depends_on_is_in_the_key(path: Path, cache: Cache) -> None:
    tilewright.compile(path, cache=cache)
    others: list[dict[str, Any]] = [
        {"opt_level": 0}, {"opt_level": 1}, {"config": {"relay.FuseOps.max_depth": 1}}, {"disabled_pass": ["FuseOps"]},
        {"target": "llvm -mcpu=x86-64"},
    ]
    for options in others:
        made = tilewright.compile(path, cache=cache, **options)
        assert "graph" in made.report.phases, options
        np.testing.assert_allclose(made(X), tilewright.compile(path, cache=cache)(X), rtol=1e-5, atol=1e-6)


def test_hooks_of_operators_are_in_the_key(path: Path, cache: Cache) -> None:
    def is_cached(hook: Any) -> bool:
        with registrations():
            relay.op.register_legalize("nn.relu", hook)
            made = tilewright.compile(path, cache=cache)
        np.testing.assert_allclose(made(X), plain(X), rtol=1e-5, atol=1e-6)
        return "graph" not in made.report.phases

    def hook(low: float) -> Any:
        return lambda attrs, inputs, types: relay.maximum(inputs[0], relay.const(low)) if low == 0.0 else None

    plain = tilewright.compile(path, cache=cache)
    assert [is_cached(hook(k)) for k in (0.0, 1.0, 0.0, 1.0)] == [False, False, True, True]
    assert [is_cached(partial(hook(0.0))) for _ in range(2)] == [False, True]
    assert [is_cached(lambda *args: None if args else X) for _ in range(2)] == [False, False]  # arrays have no digest
    assert "graph" not in tilewright.compile(path, cache=cache).report.phases


def test_digests_of_functions() -> None:
    def circle(n: int) -> int:
        return circle(n - 1) if n else 0

    def changed(by: Any) -> Any:
        return lambda: circle(3) + by

    assert hook_digests.digest(changed(1)) == hook_digests.digest(changed(1)) != hook_digests.digest(changed(2))
    assert hook_digests.digest([relay.add, np.float32, tilewright.relay, len]) is not None
    for opaque in (X, changed(X), changed(onnx), pytest.raises, lambda: (__import__, X)):
        assert hook_digests.digest(opaque) is None


def test_another_build_of_the_compiler_reads_the_model_itself(
    path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    tilewright.compile(path, cache=cache)
    monkeypatch.setattr("tilewright.compiler.model_source.compiler_fingerprint", lambda: "another build")
    assert {"import", "graph"} <= set(tilewright.compile(path, cache=cache).report.phases)
    assert cache.folder is not None
    kept = {p.name for p in (cache.folder / "blobs").rglob("signature-*")}
    assert len(kept) == 2


def test_a_changed_model_is_compiled_again(path: Path, cache: Cache) -> None:
    first, times = tilewright.compile(path, cache=cache)(X), path.stat()
    changed = onnx.load(path)
    changed.graph.initializer[1].raw_data = bytes(len(changed.graph.initializer[1].raw_data))
    path.write_bytes(changed.SerializeToString())
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == times.st_size
    second = tilewright.compile(path, cache=cache)(X)
    np.testing.assert_allclose(second, onnxruntime_answers(path, {"x": X})[0], rtol=1e-4, atol=1e-6)
    assert np.abs(second - first).max() > 1e-3


def test_data_in_other_files_is_part_of_the_content(tmp_path: Path, cache: Cache) -> None:
    file, data = tmp_path / "m.onnx", tmp_path / "weights.bin"
    onnx.save(mlp(), file, save_as_external_data=True, location=data.name, size_threshold=0)
    first, times = tilewright.compile(file, cache=cache)(X), data.stat()
    (tmp_path / "m.onnx.notes").write_text("nothing that matters")
    assert "graph" not in tilewright.compile(file, cache=cache).report.phases
    values = np.fromfile(data, np.uint8)
    values[: 16 * 32 * 4].view(np.float32)[:] *= 2
    values.tofile(data)
    os.utime(data, ns=(times.st_atime_ns, times.st_mtime_ns))
    second = tilewright.compile(file, cache=cache)(X)
    np.testing.assert_allclose(second, onnxruntime_answers(file, {"x": X})[0], rtol=1e-4, atol=1e-6)
    assert np.abs(second - first).max() > 1e-3
    data.unlink()
    with pytest.raises(ModelError, match=r"is stored in 'weights.bin', but .* has no such file"):
        tilewright.compile(file, cache=cache)


@pytest.mark.parametrize("name", ["constants.bin", "code.0.o", "manifest.json"])
def test_a_damaged_entry_is_compiled_again(path: Path, cache: Cache, name: str) -> None:
    expected = tilewright.compile(path, cache=cache)(X)
    assert cache.folder is not None
    (entry,) = (cache.folder / "artifacts").iterdir()
    data, times = bytearray((entry / name).read_bytes()), (entry / name).stat()
    data[len(data) // 2] ^= 64
    (entry / name).write_bytes(data)
    os.utime(entry / name, ns=(times.st_atime_ns, times.st_mtime_ns))
    again = tilewright.compile(path, cache=cache)
    assert "graph" in again.report.phases
    np.testing.assert_array_equal(again(X), expected)
    assert "graph" not in tilewright.compile(path, cache=cache).report.phases


@pytest.mark.slow
def test_a_hit_imports_neither_the_frontend_nor_the_compiler(path: Path, tmp_path: Path) -> None:
    code = (
        "import sys, tilewright; tilewright.compile(sys.argv[1]);"
        "print(*(m for m in ('onnx', 'tilewright.relay.expr', 'tilewright.tir', 'tilewright.te') if m in sys.modules))"
    )
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code, str(path)]
    runs = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert "onnx" in runs[0]
    assert runs[1] == []


def test_two_compilations_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    filled = iter((0x11, 0xEE))

    def dirty(shape: tuple[int, ...]) -> Any:
        return np.full(shape, next(filled), np.uint8)

    monkeypatch.setattr(constant_pool, "aligned_empty", dirty)
    first, second = (tilewright.compile(cnn(), cache=Cache(None)).artifact for _ in range(2))
    assert first.constants.tobytes() == second.constants.tobytes()
    assert first.objects == second.objects


def test_digests(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    known = set()
    for size in (0, 1, 5000, (16 << 20) - 1, 16 << 20, (16 << 20) + 1, 50 << 20):
        data = random.integers(0, 256, size, np.uint8)
        data.tofile(tmp_path / "file")
        assert digest_file(tmp_path / "file") == digest_bytes(data.tobytes())
        known.add(digest_bytes(data.tobytes()))
        if size:
            data[-1] ^= 1
            known.add(digest_bytes(data.tobytes()))
    assert len(known) == 13


def test_the_digest_of_an_unchanged_file_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, file, read = Cache(tmp_path / "cache"), tmp_path / "file", []
    real = digests.digest_file

    def digest(path: Path) -> str:
        read.append(path)
        return real(path)

    monkeypatch.setattr(digests, "digest_file", digest)
    data = bytearray(5 << 20)
    file.write_bytes(data)
    first = digests.known_digest(file, cache)
    assert digests.known_digest(file, cache) == first and len(read) == 2  # changed a moment ago: not to be trusted yet
    monkeypatch.setattr(digests, "_SETTLED_NS", -(1 << 62))
    assert digests.known_digest(file, cache) == first == digests.known_digest(file, cache) and len(read) == 3
    times = file.stat()
    data[7] = 1
    file.write_bytes(data)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # the time of its contents says that nothing happened
    assert digests.known_digest(file, cache) == digest_bytes(bytes(data)) != first
    (tmp_path / "copy").write_bytes(data)
    assert digests.known_digest(tmp_path / "copy", cache) == digest_bytes(bytes(data))
    small = tmp_path / "small"
    small.write_bytes(b"few")
    entries = cache.size()
    assert digests.known_digest(small, cache) == digest_bytes(b"few") and cache.size() == entries


# --- what cannot be done
# ------------------------------------------------------------------------------------------------


def unknown_operators() -> onnx.ModelProto:
    """A model with two operators that do not exist, one of them twice."""
    nodes = [
        helper.make_node("Wobble", ["x"], ["a"], name="first", domain="my.ops"),
        helper.make_node("Relu", ["a"], ["b"], name="known"),
        helper.make_node("Wobble", ["b"], ["c"], name="second", domain="my.ops"),
        helper.make_node("Frobnicate", ["c"], ["y"], name="third", domain="my.ops"),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:]), opset_imports=opsets, ir_version=8)


def bad_files(folder: Path) -> Mapping[str, tuple[type[CompileError], str]]:
    """Files that are no models, with the kind and a part of the message for each."""
    whole = mlp().SerializeToString()
    (folder / "text.onnx").write_text("this is no model")
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "zip.onnx").write_bytes(b"PK\x03\x04" + bytes(100))
    (folder / "half.onnx").write_bytes(whole[: len(whole) // 2])
    (folder / "noise.onnx").write_bytes(np.random.default_rng(0).bytes(3000))
    (folder / "unknown.onnx").write_bytes(unknown_operators().SerializeToString())
    return {
        "text.onnx": (ModelError, "is not an ONNX model: it is a text file"),
        "empty.onnx": (ModelError, "is empty; copy or export the model again"),
        "zip.onnx": (ModelError, "is not an ONNX model: it looks like a zip archive"),
        "half.onnx": (ModelError, "is damaged or truncated"),
        "noise.onnx": (ModelError, "is not an ONNX model"),
        "unknown.onnx": (OpNotImplemented, "Wobble"),
    }


def test_an_archive_of_pytorch_needs_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net.pt2").write_bytes(b"PK\x03\x04" + bytes(100))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ModelError,
        match=r"net\.pt2 is a PyTorch archive, and reading it needs the package torch; install it: pip install torch"
    ):
        tilewright.compile(tmp_path / "net.pt2")


def test_files_that_are_no_models(tmp_path: Path) -> None:
    for name, (kind, said) in bad_files(tmp_path).items():
        with pytest.raises(kind) as caught:
            tilewright.compile(tmp_path / name)
        assert said in str(caught.value)
        assert name in str(caught.value)


def test_all_unknown_operators_are_listed_with_their_nodes() -> None:
    with pytest.raises(OpNotImplemented) as caught:
        tilewright.compile(unknown_operators())
    for word in ("Wobble", "Frobnicate", "first", "second", "third"):
        assert word in str(caught.value)
    assert "known'" not in str(caught.value)


def test_things_that_are_no_models(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"file '.*none.onnx' does not exist; check the path"):
        tilewright.compile(tmp_path / "none.onnx")
    with pytest.raises(ModelError, match=r"is a folder; give the .onnx file itself"):
        tilewright.compile(tmp_path)
    with pytest.raises(ModelError, match=r"the model is a int; give a path, bytes or an onnx.ModelProto"):
        tilewright.compile(3)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"target": "lvm"}, TargetError, "'lvm' is not a kind of target: did you mean 'llvm'?"),
        ({"target": "llvm -mcpu=skylark"}, TargetError, "CPU 'skylark' is not known for"),
        ({"target": "llvm -mpcu=skylake"}, TargetError, "'-mpcu' is not an option of a target: did you mean 'mcpu'?"),
        ({"opt_level": 9}, OptionError, "opt_level is 9; it must be an integer from 0 to 4"),
        ({"config": {"relay.FuseOps.max_dept": 3}}, OptionError, "did you mean 'relay.FuseOps.max_depth'?"),
        ({"config": {"relay.FuseOps.max_depth": "3"}}, OptionError, "takes int, not '3' (str)"),
        ({"disabled_pass": ["FuseOp"]}, OptionError, "there is no pass 'FuseOp'; did you mean 'FuseOps'?"),
        ({"threads": -1}, OptionError, "-1 is not a number of threads; use 1 to"),
        ({"threads": 0}, OptionError, "0 is not a number of threads; use 1 to"),
        ({"shapes": {"z": (2, 16)}}, InputError, "the model has no input 'z'; its inputs are x"),
        ({"shapes": {"x": (2, 16, 1)}}, CompileError, "has 3 dimensions, and input 'x' of the model has 2"),
        ({"shapes": {"x": (2, -16)}}, CompileError, "is not a tuple of sizes"),
        ({"shapes": {"x": (2, 15)}}, CompileError, "dense0"),
    ],
)
def test_options_that_cannot_be(path: Path, options: dict[str, Any], kind: type[CompileError], message: str) -> None:
    with pytest.raises(kind) as caught:
        tilewright.compile(path, **options)
    assert message in str(caught.value)


def test_inputs_that_do_not_fit(path: Path) -> None:
    model = tilewright.compile(path)
    with pytest.raises(InputError, match=r"the model has no input 'z'; it has float32 x\[2, 16\]"):
        model(z=X)
    with pytest.raises(InputError, match=r"input 'x' has shape \[2, 15\], expected float32 x\[2, 16\]"):
        model(X[:, :15])
    with pytest.raises(
        InputError,
        match=r"input 'x' has dtype float64, expected float32 x\[2, 16\]; convert it with .astype\('float32'\)"
    ):
        model(X.astype("float64"))
    with pytest.raises(InputError, match=r"missing input 'x'; the model takes float32 x\[2, 16\]"):
        model()
    with pytest.raises(InputError, match="2 inputs were given, but the model has 1"):
        model(X, X)


def test_inputs_that_do_not_fit_open_sizes() -> None:
    model = tilewright.compile(cnn("batch"))
    x = np.zeros((1, 3, 16, 16), np.float32)
    with pytest.raises(
        InputError, match=r"input 'x' has shape \[1, 3, 16, 17\], expected float32 x\[batch, 3, 16, 16\]"
    ):
        model(np.zeros((1, 3, 16, 17), np.float32))
    with pytest.raises(InputError, match="the model has no input 'z'; it has float32 x"):
        model(z=x)
    with pytest.raises(InputError, match=r"x\[batch, 3, 16, 16\]"):
        model()
    with pytest.raises(InputError, match=r"x\[batch, 3, 16, 16\]"):
        model(x, x)
    with pytest.raises(InputError, match="input 'x' has dtype int64, expected"):
        model(x.astype("int64"))


def test_places_that_cannot_be_written(path: Path, tmp_path: Path) -> None:
    model = tilewright.compile(path)
    with pytest.raises(ArtifactError, match="cannot be written: No such file or directory"):
        model.save(tmp_path / "none" / "m.so")
    with pytest.raises(ArtifactError, match=r"is saved as .so .*, .tar .*, .wasm"):
        model.save(tmp_path / "m.exe")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mlp.onnx"]


def test_the_weights_are_released_while_they_are_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the garbage collector: nothing that compiling made holds the module in a cycle."""
    released: list[bool] = []

    def make() -> IRModule:
        weights = np.ones((16, 16), np.float32)
        kept.append(weakref.ref(weights))
        x = relay.var("x", shape=(2, 16))
        return IRModule.from_expr(
            relay.Function([x], relay.nn.softmax(relay.nn.relu(relay.nn.dense(x, relay.const(weights)))))
        )

    kept: list[weakref.ref[np.ndarray[Any, Any]]] = []

    def packed(*parts: Any) -> Artifact:
        released.append(kept[0]() is None)
        return Artifact(*parts)

    monkeypatch.setattr(program, "Artifact", packed)
    artifact = compile_module(make, cache=Cache(None))
    assert released == [True]
    x = np.ones((2, 16), np.float32)
    np.testing.assert_allclose(artifact.executable(threads=1)(x), np.full((2, 16), 1 / 16, np.float32), rtol=1e-6)
