"""Tasks: kernels of networks, each of whose configurations computes the same; templates; who says which configuration
is taken."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from small_models import mlp
from tilewright import relay, te
from tilewright.backends.decisions import BY_MODEL, Decisions
from tilewright.backends.kernel_options import KernelOptions
from tilewright.backends.targets.target import Target
from tilewright.base.errors import CompileError, OptionError
from tilewright.compiler.cache import Cache
from tilewright.search import autotvm
from tilewright.search.autotvm.measure import TaskCandidate
from tilewright.search.autotvm.task.entities import OtherOptionEntity
from tilewright.search.autotvm.task.kernels import KernelTask
from tilewright.search.autotvm.task.space import ConfigEntity

CONV = """fn (%p0: Tensor[(1, 14, 15, 16), float32], %p1: Tensor[(3, 3, 16, 40), float32], %p2: Tensor[(1, 1, 1, 40), float32], Primitive=1) {
  %0 = nn.conv2d(%p0, %p1, padding=[1, 1, 1, 1], channels=40, kernel_size=[3, 3], data_layout="NHWC", kernel_layout="HWIO");
  nn.relu(add(%0, %p2)) }"""  # noqa: E501
STRIDED = CONV.replace("padding=", "strides=[2, 2], padding=").replace("nn.relu(add(%0, %p2))", "nn.relu(%0)").replace(
    ", %p2: Tensor[(1, 1, 1, 40), float32]", ""
)
POINTWISE = """fn (%p0: Tensor[(1, 9, 10, 256), float32], %p1: Tensor[(1, 1, 256, 48), float32], Primitive=1) {
  nn.relu(nn.conv2d(%p0, %p1, padding=[0, 0, 0, 0], channels=48, kernel_size=[1, 1], data_layout="NHWC", kernel_layout="HWIO")) }"""  # noqa: E501
DEPTHWISE = """fn (%p0: Tensor[(1, 12, 13, 32), float32], %p1: Tensor[(3, 3, 32, 1), float32], Primitive=1) {
  nn.conv2d(%p0, %p1, padding=[1, 1, 1, 1], groups=32, channels=32, kernel_size=[3, 3], data_layout="NHWC", kernel_layout="HWOI") }"""  # noqa: E501
DENSE = (
    "fn (%p0: Tensor[(7, 512), float32], %p1: Tensor[(33, 512), float32], Primitive=1) { nn.relu(nn.dense(%p0, %p1, "
    "units=33)) }"
)
PRODUCTS = (
    "fn (%p0: Tensor[(3, 17, 24), float32], %p1: Tensor[(3, 20, 24), float32], Primitive=1) { nn.batch_matmul(%p0, "
    "%p1, transpose_b=True) }"
)
SOFTMAX = "fn (%p0: Tensor[(6, 77), float32], Primitive=1) { nn.softmax(%p0) }"
POOL = """fn (%p0: Tensor[(1, 13, 14, 32), float32], Primitive=1) {
  nn.max_pool2d(%p0, pool_size=[3, 3], strides=[2, 2], padding=[1, 1, 1, 1], layout="NHWC") }"""
PLANES = (
    "fn (%p0: Tensor[(1, 4, 12, 14), float32], Primitive=1) { nn.max_pool2d(%p0, pool_size=[3, 3], strides=[1, 1], "
    "padding=[1, 1, 1, 1]) }"
)
BYTES = """fn (%p0: Tensor[(1, 9, 10, 64), uint8], %p1: Tensor[(1, 1, 64, 48), int8], Primitive=1) {
  nn.conv2d(%p0, %p1, padding=[0, 0, 0, 0], channels=48, kernel_size=[1, 1], data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32") }"""  # noqa: E501
KERNELS = {
    "conv": (CONV, "011"), "strided": (STRIDED, "01"), "pointwise": (POINTWISE, "01"), "depthwise": (DEPTHWISE, "01"),
    "dense": (DENSE, "01"),
    "products": (PRODUCTS, "00"), "softmax": (SOFTMAX, "0"), "pool": (POOL, "0"), "planes": (PLANES, "0"),
    "bytes": (BYTES, "01"),
}


def kernel_task(name: str, target: str = "llvm") -> KernelTask:
    text, flags = KERNELS[name]
    function = relay.parse_expr(text)
    assert isinstance(function, relay.Function)
    return KernelTask.of(function, [f == "1" for f in flags], Target(target))


def answer(task: KernelTask, config: ConfigEntity) -> np.ndarray[Any, Any]:
    """What a configuration computes, on the same data for all of them."""
    candidate = TaskCandidate.of(task, config)
    kernel = candidate._lowered()[1]  # type: ignore[attr-defined]
    known, arrays = candidate.values(), []
    for k, b in enumerate(kernel.func.params):
        rng, shape = np.random.default_rng(k), tuple(int(d) for d in b.shape)
        kind = b.dtype.numpy()
        drawn = rng.uniform(-1, 1, shape).astype(kind) if b.dtype.is_float else rng.integers(0, 100, shape).astype(kind)
        arrays.append(np.ascontiguousarray(known[b.name]) if b.name in known else drawn)
    tvm.build(kernel.func, target=task.target)(*arrays)
    return arrays[-1]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(KERNELS))
def test_every_configuration_computes_the_same(name: str) -> None:
    task = kernel_task(name)
    space, rng = task.config_space, np.random.default_rng(3)
    wanted = answer(task, task.default_config)
    starts = np.cumsum([0, *space._sizes[:-1]])
    chosen = {*(int(s) for s in starts), *space.sample_ints(5, rng), len(space) - 1}
    for index in chosen:
        found = answer(task, space.get(index))
        np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4, err_msg=str(space.get(index)))


def test_the_models_choice_is_a_configuration() -> None:
    task = kernel_task("conv")
    noted = Decisions(noting=True)
    plain = task.kernel(noted, flat=False)
    assert task.default_config.decisions == noted.taken
    assert str(task.lowered(task.default_config).func) == str(plain.func)
    assert str(task.lowered(ConfigEntity(-1, None, {})).func) == str(plain.func)


def test_algorithms_are_branches() -> None:
    space = kernel_task("conv").config_space
    algorithms = {
        dict(zip(a.names, a.answers[0], strict=True))["algorithm"].value for b in space.branches for a in b
        if "algorithm" in a.names
    }
    assert algorithms == {"direct", "winograd_2x2", "winograd_4x4"}
    names = [{n for a in b for n in a.names} for b in space.branches]
    assert any("tile_ow" in n for n in names)
    assert any("winograd_tile_y" in n for n in names)
    assert not any({"tile_ow", "winograd_tile_y"} <= n for n in names)


def test_answers_that_are_none_are_refused() -> None:
    task = kernel_task("softmax")
    with pytest.raises(OptionError, match="takes no such vectors"):
        task.lower(ConfigEntity(0, None, {"vectors": OtherOptionEntity(3)}))
    with pytest.raises(OptionError, match="has two arguments"):
        KernelTask("fused.x", ["text"], Target("llvm"))
    with pytest.raises(OptionError, match="holds no function of 2 parameters"):
        _ = KernelTask("fused.x", [SOFTMAX, "00"], Target("llvm")).function


def test_decisions_by_name() -> None:
    options = KernelOptions(decisions=Decisions({"a": 2, "c_2": 7, "b": 9}))
    assert options.decide(("a", "b"), (1, 1), lambda: [(1, 2), (2, 9)]) == (2, 9)
    assert options.decide_one("c", BY_MODEL, lambda: [(7,)]) == BY_MODEL
    assert options.decide_one("c", BY_MODEL, lambda: [(7,)]) == 7
    assert (options.decisions.refused, options.decisions.unused) == ([], [])
    options = KernelOptions(decisions=Decisions({"a": 3, "z": 1}))
    assert options.decide_one("a", 1, lambda: [(2,)]) == 1
    assert (options.decisions.refused, options.decisions.unused) == (["a"], ["z"])
    refuse: Any = lambda: 1 / 0  # noqa: E731
    assert KernelOptions().decide_one("a", 1, refuse) == 1  # nobody looks at the options


def network() -> tuple[Any, dict[str, Any]]:
    return relay.testing.resnet.get_workload(num_layers=8, image_shape=(3, 32, 32), num_classes=10)


def test_tasks_of_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    mod, params = network()
    tasks = autotvm.task.extract_from_program(mod["main"], params, "llvm")
    names = [t.name for t in tasks]
    assert len({t.workload for t in tasks}) == len(tasks)
    assert any(n.startswith("fused.conv2d") for n in names)
    assert any("dense" in n for n in names)
    assert f"{len(tasks)} tasks extracted in" in capsys.readouterr().err
    both = autotvm.task.extract_from_multiple_program(
        [mod, mod], [params, params], "llvm", ops=[relay.op.get("nn.conv2d")]
    )
    assert [t.workload for t in both] == [t.workload for t in tasks if "conv2d" in t.name]
    again = autotvm.task.create(tasks[0].name, tasks[0].args, "llvm")
    assert again.workload == tasks[0].workload
    assert len(again.config_space) == len(tasks[0].config_space)
    with pytest.raises(OptionError, match="parameters for 2"):
        autotvm.task.extract_from_multiple_program([mod], [params, params], "llvm")


def test_sizes_that_a_run_tells_are_refused() -> None:
    x = relay.var("x", shape=(4,), dtype="bool")
    with pytest.raises(CompileError, match="only known at run time"):
        autotvm.task.extract_from_program(relay.Function([x], relay.argwhere(x)), {}, "llvm")


def other_config(task: autotvm.task.Task) -> ConfigEntity:
    """A configuration that is not the model's."""
    assert task.default_config is not None
    return task.config_space.get((task.default_config.index + 1) % len(task.config_space))


@pytest.mark.slow
def test_a_build_takes_the_best_of_records(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mod, params = network()
    tasks = autotvm.task.extract_from_program(mod["main"], params, "llvm")
    file = tmp_path / "records.json"
    rows = []
    for t in tasks[:3]:
        for config, seconds in ((t.default_config, 2.0), (other_config(t), 1.0)):
            inp, result = autotvm.MeasureInput(t.target, t, config), autotvm.MeasureResult((seconds,), 0, 1.0, 0.0)
            rows.append(autotvm.record.encode(inp, result))
    file.write_text("\n".join(rows) + "\n")
    x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype("float32")

    def run(lib: Any) -> np.ndarray[Any, Any]:
        m = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu()))
        m.run(data=x)
        return m.get_output(0).numpy()

    with tvm.transform.PassContext(opt_level=3):
        plain = run(relay.build(mod, "llvm", params=params))
        with autotvm.apply_history_best(file) as history, caplog.at_level(logging.INFO, "tilewright.compiler.tuned"):
            tuned = run(relay.build(mod, "llvm", params=params))
    said = [r.getMessage() for r in caplog.records]
    assert sum("tuned, " in s for s in said) >= 3
    assert any("no record, the model decides" in s for s in said)
    assert history.report == {"taken": 6}
    np.testing.assert_allclose(tuned, plain, rtol=1e-4, atol=1e-5)


def test_the_cache_tells_records_apart(tmp_path: Path) -> None:
    model, cache = tmp_path / "m.onnx", Cache(tmp_path / "cache")
    model.write_bytes(mlp().SerializeToString())
    plain = tvm.compile(model, cache=cache)
    mod, _ = relay.frontend.from_onnx(mlp())
    (task, *_) = autotvm.task.extract_from_program(mod["main"], {}, "llvm")
    result = autotvm.MeasureResult((1.0,), 0, 1.0, 0.0)
    records = [(autotvm.MeasureInput(task.target, task, other_config(task)), result)]
    tuned = tvm.compile(model, cache=cache, records=records)
    assert tuned.report.kernels  # it was compiled, not found
    assert not tvm.compile(model, cache=cache, records=records).report.kernels
    assert not tvm.compile(model, cache=cache).report.kernels
    x = [np.ones(i.shape, "float32") for i in plain.inputs]
    np.testing.assert_allclose(tuned(*x), plain(*x), rtol=1e-4)


@autotvm.template("tests/matmul")
def matmul_template(n: int, m: int, k: int, dtype: str) -> tuple[Any, list[Any]]:
    a, b = te.placeholder((n, k), dtype, name="a"), te.placeholder((k, m), dtype, name="b")
    r = te.reduce_axis((0, k), "r")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    s = te.create_schedule(c.op)
    y, x = s[c].op.axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2, filter=lambda e: e.size[-1] <= 16)
    cfg.define_knob("vectorize", [0, 1])
    if cfg.is_fallback:
        cfg.fallback_split("tile_y", [[-1, 4]])
    yo, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    s[c].reorder(yo, xo, s[c].op.reduce_axis[0], yi, xi)
    if cfg["vectorize"].val:
        s[c].vectorize(xi)
    if cfg["tile_x"].size[-1] == 1 and cfg["vectorize"].val:
        cfg.raise_error("vectors of one element")
    cfg.add_flop(2 * n * m * k)
    return s, [a, b, c]


def test_templates() -> None:
    task = autotvm.task.create("tests/matmul", (16, 24, 8, "float32"), "llvm")
    assert len(task.config_space) == 5 * 7 * 2
    assert task.flop == 2 * 16 * 24 * 8
    assert task.default_config is None
    a, b = (np.random.default_rng(k).standard_normal(s).astype("float32") for k, s in enumerate(((16, 8), (8, 24))))
    for index in (0, 17, 34):
        s, args = task.instantiate(task.config_space.get(index))
        c = np.zeros((16, 24), "float32")
        tvm.build(s, args, "llvm")(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-5)
    bad = next(c for c in map(task.config_space.get, range(70)) if c["vectorize"].val and c["tile_x"].size[-1] == 1)
    with pytest.raises(tvm.TVMError, match="vectors of one element"):
        task.instantiate(bad)
    with pytest.raises(OptionError, match="there is no template 'tests/matmull'; did you mean 'tests/matmul'"):
        autotvm.task.create("tests/matmull", (1,), "llvm")
    with pytest.raises(OptionError, match="there is a template 'tests/matmul' already"):
        autotvm.template("tests/matmul", lambda: None)


def test_contexts_of_templates() -> None:
    task = autotvm.task.create("tests/matmul", (16, 24, 8, "float32"), "llvm")
    chosen = task.config_space.get(9)
    result = autotvm.MeasureResult((1.0,), 0, 1.0, 0.0)
    with Target("llvm"):
        s, _ = matmul_template(16, 24, 8, "float32")  # the fallback
        with autotvm.apply_history_best([(autotvm.MeasureInput(task.target, task, chosen), result)]) as best:
            assert autotvm.DispatchContext.current is best
            found = autotvm.DispatchContext.current.query(task.target, task.workload)
            assert found.to_json_dict() == chosen.to_json_dict()
            s, _ = matmul_template(16, 24, 8, "float32")
            assert autotvm.DispatchContext.current.query(task.target, ("other",)).is_fallback
            with autotvm.ApplyFixedConfig([task], "tests/matmul"):  # the inner context first, then those around it
                assert autotvm.DispatchContext.current.query(task.target, task.workload).index == 0
    assert s is not None
    assert isinstance(autotvm.DispatchContext.current, autotvm.FallbackContext)
    with pytest.raises(OptionError, match="the configurations of ApplyConfig are fixed"):
        autotvm.ApplyConfig(chosen).update(task.target, task.workload, chosen)
    with pytest.raises(OptionError, match="records are files, or pairs of inputs and results"):
        autotvm.apply_history_best(3)
