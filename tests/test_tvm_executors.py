"""Programs that are run through TVM's names: arguments of other dtypes, parameters, texts of code, unknown sizes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.base.errors import ArtifactError, InputError, NotNativeWarning, OptionError
from tilewright.relay import Function, transform, var
from tilewright.runtime.executor import AotModule

KINDS = ("debug", "graph", "vm")


def run(kind: str, function: Function, *args: Any) -> Any:
    return relay.create_executor(kind, device=tvm.cpu(0), target="llvm").evaluate(function)(*args).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_other_dtypes_are_converted(kind: str) -> None:
    x, y = var("x", shape=(1, 4), dtype="uint8"), var("y", shape=(1, 4), dtype="uint8")
    total = Function([x, y], relay.add(x, y))
    a, b = np.array([[1, 2, 3, 250]]), np.array([[1, 1, 1, 5]])
    for given in ((a, b), (tvm.nd.array(a), tvm.nd.array(b))):
        found = run(kind, total, *given)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, a + b)


def test_parameters_of_other_dtypes_are_converted() -> None:
    x, w = var("x", shape=(1, 2)), var("w", shape=(1, 2))
    f = Function([x, w], x + w)
    bound = relay.build_module.bind_params_by_name(f, {"w": np.array([[1, 2]])})
    np.testing.assert_array_equal(run("debug", bound, np.zeros((1, 2), "float32")), [[1, 2]])
    small = Function([x, v := var("v", shape=(2,), dtype="int8")], relay.cast(v, "float32") + x)
    assert relay.build_module.bind_params_by_name(small, {"v": np.array([1.0, -128.0])}).params == (x,)
    for value in ([1.5, 0.0], [128, 0]):
        with pytest.raises(InputError, match=r"parameter 'v' has type .*, but the model declares"):
            relay.build_module.bind_params_by_name(small, {"v": np.array(value)})


def test_calls_may_repeat_bound_parameters() -> None:
    x, w = var("x", shape=(2,)), var("w", shape=(2,))
    params = {"w": np.ones(2, "float32")}
    executor = relay.create_executor("graph", tvm.IRModule.from_expr(Function([x, w], x + w)), params=params)
    np.testing.assert_array_equal(executor.evaluate()(np.zeros(2, "float32"), **params).numpy(), [1, 1])
    with pytest.raises(InputError, match="'v' is not a parameter"):
        executor.evaluate()(np.zeros(2, "float32"), v=1)


def test_the_texts_of_a_build() -> None:
    x = var("x", shape=(16, 16))
    lib = relay.build(relay.nn.relu(x), "llvm")
    assert "define" in lib.get_source() and lib.get_source("ll") == lib.get_source()
    assert ".text" in lib.lib.get_source("asm") and lib.get_source("s") == lib.get_source("asm")
    with pytest.raises(OptionError, match="there is no source 'ptx' of this module; there is ll, asm"):
        lib.get_source("ptx")
    n = var("n", shape=(relay.Any(),))
    with pytest.raises(ArtifactError, match="has no source here; build it again, with known sizes"):
        relay.build(relay.nn.relu(n), "llvm").get_source()


@pytest.mark.parametrize("kind", ("debug", "vm"))
def test_scatters_of_unknown_sizes(kind: str) -> None:
    d, i, u = (var(n, shape=(relay.Any(), relay.Any()), dtype=t) for n, t in (
        ("d", "float32"), ("i", "int64"), ("u", "float32")))
    f = Function([d, i, u], relay.scatter_elements(d, i, u, 1, "add"))
    at, new = np.array([[1, 0], [2, 2]]), np.array([[1, 2], [3, 4]], "float32")
    np.testing.assert_array_equal(run(kind, f, np.zeros((2, 3), "float32"), at, new), [[2, 1, 0], [0, 0, 7]])


@pytest.mark.parametrize("kind", ("debug", "vm"))
@pytest.mark.parametrize("rank", (1, 3))
@pytest.mark.parametrize("unknown", (False, True))
@pytest.mark.parametrize("count", (None, 5))
def test_sums_of_segments(kind: str, rank: int, unknown: bool, count: int | None) -> None:
    data = np.random.default_rng(0).standard_normal((5, 2, 3)[:rank]).astype("float32")
    where = np.array([2, 0, 1, 0, 2])
    x = var("x", shape=tuple(relay.Any() for _ in data.shape) if unknown else data.shape)
    ids = var("ids", shape=(relay.Any(),) if unknown else (5,), dtype="int64")
    found = run(kind, Function([x, ids], relay.segment_sum(x, ids, count)), data, where)
    wanted = np.stack([data[where == k].sum(0) for k in range(count or 3)])
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("transpose_b", (False, True))
def test_products_of_transposed_stacks_of_matrices(kind: str, transpose_b: bool) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 5, 17)).astype("float32"), rng.standard_normal((5, 19)).astype("float32")
    x, y = var("x", shape=a.shape), var("y", shape=(b.T if transpose_b else b).shape)
    f = Function([x, y], relay.nn.matmul(x, y, transpose_a=True, transpose_b=transpose_b))
    wanted = a.swapaxes(-1, -2) @ b
    np.testing.assert_allclose(run(kind, f, a, b.T if transpose_b else b), wanted, rtol=1e-5, atol=1e-5)


def test_slices_like_a_tensor_of_fewer_dimensions() -> None:
    x, like = var("x", shape=(3, 4, 5)), var("like", shape=(1, 2))
    data = np.arange(60, dtype="float32").reshape(3, 4, 5)
    for kind in KINDS:
        found = run(kind, Function([x, like], relay.slice_like(x, like)), data, np.zeros((1, 2), "float32"))
        np.testing.assert_array_equal(found, data[:1, :2])


@pytest.mark.parametrize("kind", ("debug", "vm"))
def test_tensors_as_attributes(kind: str) -> None:
    x, reps = var("x", shape=(2,)), var("reps", shape=(1,))
    found = run(kind, Function([x, reps], relay.tile(x, reps)), np.ones(2, "float32"), np.array([3.0], "float32"))
    np.testing.assert_array_equal(found, np.ones(6))
    image, size = var("image", shape=(1, 1, 2, 2)), var("size", shape=(2,), dtype="int64")
    f = Function([image, size], relay.image.resize2d(image, size, None, "NCHW", "nearest_neighbor",
                                                     coordinate_transformation_mode="asymmetric"))
    data = np.arange(4, dtype="float32").reshape(1, 1, 2, 2)
    np.testing.assert_array_equal(run(kind, f, data, np.array([4, 4])), data.repeat(2, 2).repeat(2, 3))
    where, values, shape = (var("where", shape=(2,), dtype="int64"), var("values", shape=(2,)),
                            var("shape", shape=(1,), dtype="int64"))
    dense = Function([where, values, shape], relay.sparse_to_dense(where, shape, values, 0.0))
    found = run(kind, dense, np.array([1, 3]), np.array([2, 4], "float32"), np.array([5]))
    np.testing.assert_array_equal(found, [0, 2, 0, 4, 0])


def test_data_types_of_unknown_sizes_are_results_of_the_virtual_machine() -> None:
    mod = tvm.IRModule()
    p = tvm.relay.prelude.Prelude(mod)
    x = var("x", shape=(1,))
    wrapped = p.get_tensor_ctor("tensor1", "float32")(x)
    mod["main"] = Function([x], p.get_global_var("tensor_expand_dims", "float32")(wrapped))
    with pytest.warns(tvm.errors.NotNativeWarning, match="the program is interpreted: @main returns"):
        found = relay.create_executor("vm", mod, device=tvm.cpu(0), target="llvm").evaluate()(np.ones(1, "float32"))
    assert found.tag == p.get_tensor_ctor("tensor2", "float32").tag
    np.testing.assert_array_equal(found[0].numpy(), [[1]])
    with pytest.raises(tvm.errors.CompileError, match="compiled programs return tensors"):
        relay.create_executor("graph", mod, device=tvm.cpu(0), target="llvm").evaluate()
    assert {"tensor_int64_t", "tensor_float32_t"} <= {h.name_hint for h in mod.type_definitions}


def test_devices_of_annotations() -> None:
    x = relay.Var("x")
    there = relay.annotation.on_device(x, "cuda").attrs.virtual_device
    assert (there.literal, there.device_type_int, there.virtual_device_id, there.target) == ("cuda:0", 2, 0, None)
    free = relay.annotation.on_device(x, "cuda", constrain_body=False).attrs.virtual_device
    assert (free.literal, free.device_type_int, free.virtual_device_id, free.memory_scope) == ("", -1, -1, "")
    copied = relay.op.device_copy(var("y"), tvm.device("cuda"), tvm.cpu(0)).attrs
    assert (copied.src_virtual_device.device_type_int, copied.dst_virtual_device.device_type_int) == (2, 1)
    with pytest.raises(ValueError, match="there is no device 'bogus' here"):
        relay.annotation.on_device(x, "bogus")


def test_partial_shapes_of_another_tensor() -> None:
    x, like = var("x", shape=(1, 2, 3, 4)), var("like", shape=(1, 6, 5))
    y = relay.reshape_like(x, like, lhs_begin=1, lhs_end=3, rhs_begin=1, rhs_end=2)
    assert y.tensor_type.shape == (1, 6, 4)
    data = np.arange(24, dtype="float32").reshape(1, 2, 3, 4)
    for kind in KINDS:
        found = run(kind, Function([x, like], relay.nn.relu(y)), data, np.zeros((1, 6, 5), "float32"))
        np.testing.assert_array_equal(found, data.reshape(1, 6, 4))
    last = relay.reshape_like(x, var("z", shape=(7, 2, 2)), lhs_begin=-1, rhs_begin=1)
    assert last.tensor_type.shape == (1, 2, 3, 2, 2)


def test_the_gradient_of_a_transposed_stack_of_matrices() -> None:
    from tilewright.relay.testing import check_grad

    a, b = var("a", shape=(2, 4, 3), dtype="float64"), var("b", shape=(5, 4), dtype="float64")
    check_grad(Function([a, b], relay.nn.matmul(a, b, transpose_a=True, transpose_b=True)))


def test_a_window_of_integers() -> None:
    data = np.random.default_rng(0).standard_normal((2, 9)).astype("float32")
    x, window = var("x", shape=data.shape), var("w", shape=(2,), dtype="int32")
    whole = relay.stft(x, 2, 1, 2, window)
    found = run("debug", Function([x, window], whole), data, np.array([2, 1], "int32"))
    wide = var("w", shape=(2,))
    wanted = run("debug", Function([x, wide], relay.stft(x, 2, 1, 2, wide)), data, np.array([2, 1], "float32"))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_means_of_more_elements_than_float16_counts(kind: str, dtype: str) -> None:
    data = np.random.default_rng(0).uniform(size=(3, 100_000)).astype("float32")
    x = var("x", shape=data.shape)
    half = relay.cast(x, dtype)
    mean = run(kind, Function([x], relay.cast(relay.mean(half, axis=1), "float32")), data)
    np.testing.assert_allclose(mean, data.mean(1), rtol=5e-3)
    spread = run(kind, Function([x], relay.cast(relay.variance(half, axis=1), "float32")), data)
    np.testing.assert_allclose(spread, data.var(1), rtol=2e-2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ("constant", "reflect"))
def test_negative_padding_cuts_elements_off(kind: str, mode: str) -> None:
    x = var("x", shape=(4, 6, 5))
    data = np.arange(120, dtype="float32").reshape(4, 6, 5)
    f = Function([x], relay.nn.pad(x, ((-1, -1), (2, -2), (0, 3)), 7, mode))
    options = {"constant_values": 7} if mode == "constant" else {}
    wanted = np.pad(data, ((0, 0), (2, 0), (0, 3)), mode=mode, **options)[1:-1, :-2]  # type: ignore[call-overload]
    np.testing.assert_array_equal(run(kind, f, data), wanted)


def test_slices_with_fewer_begins_than_ends() -> None:
    x = var("x", shape=(3, 4, 5))
    data = np.arange(60, dtype="float32").reshape(3, 4, 5)
    found = run("debug", Function([x], relay.strided_slice(x, (1, 1), (4, 4, 3))), data)
    np.testing.assert_array_equal(found, data[1:4, 1:4, :3])
    back = run("debug", Function([x], relay.strided_slice(x, (1,), (3, 0), (1, -1))), data)
    np.testing.assert_array_equal(back, data[1:3, :0:-1])


def test_the_configuration_of_requantizations() -> None:
    scale, zero = relay.const(np.float32(1)), relay.const(0)
    x = var("x", shape=(3,), dtype="int32")
    f = Function([x], relay.qnn.op.requantize(x, scale, zero, relay.const(np.float32(16)), zero, out_dtype="int8"))
    data = np.array([-8, 8, -24], "int32")
    np.testing.assert_array_equal(run("graph", f, data), [0, 1, -1])
    with relay.qnn.op.requantize_config(rounding="TONEAREST"):
        np.testing.assert_array_equal(run("graph", f, data), [-1, 1, -2])
        with relay.qnn.op.requantize_config(rounding="UPWARD"):
            np.testing.assert_array_equal(run("debug", f, data), [0, 1, -1])
    with pytest.raises(tvm.errors.CompileError, match="rounding is 'DOWN'"):
        relay.qnn.op.requantize_config(rounding="DOWN")


@pytest.mark.parametrize("kind", ("debug", "vm"))
def test_fourier_transforms_of_unknown_sizes(kind: str) -> None:
    data = np.random.default_rng(0).standard_normal((2, 9)).astype("float32")
    x, known = var("x", shape=(relay.Any(), relay.Any())), var("x", shape=data.shape)
    found = run(kind, Function([x], relay.stft(x, 4, 2)), data)
    np.testing.assert_allclose(found, run("debug", Function([known], relay.stft(known, 4, 2)), data), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_slices_of_a_size_end_with_the_data(kind: str) -> None:
    x = var("x", shape=(3, 4))
    data = np.arange(12, dtype="float32").reshape(3, 4)
    cases = (((1, 0), (3, -1), data[1:]), ((2, 1), (1, 9), data[2:, 1:]), ((-1, 0), (2, 2), data[2:, :2]))
    for begin, size, wanted in cases:
        sliced = relay.strided_slice(x, begin, size, slice_mode="size")
        assert sliced.tensor_type.shape == wanted.shape
        np.testing.assert_array_equal(run(kind, Function([x], relay.nn.relu(sliced)), data), wanted)


def test_a_slice_is_set_to_the_end() -> None:
    x, v = var("x", shape=(3, 4)), var("v", shape=(2, 2))
    data, new = np.zeros((3, 4), "float32"), np.ones((2, 2), "float32")
    for kind in KINDS:
        found = run(kind, Function([x, v], relay.strided_set(x, v, (1, -1), (3,), (1, -2))), data, new)
        part = relay.strided_set(x, v, (1,), (3, 3), (1, 2))  # begins at 0
        np.testing.assert_array_equal(
            run(kind, Function([x, v], part), data, new)[1:3, 0:3:2], new)
        np.testing.assert_array_equal(found, [[0, 0, 0, 0], [0, 1, 0, 1], [0, 1, 0, 1]])


@pytest.mark.parametrize(("low", "high", "kept"), ((-128, 127, False), (-500, 500, False), (-127, 127, True)))
def test_legalize_removes_clips_of_the_full_range(low: float, high: float, kept: bool) -> None:
    x, scale, zero = var("x", shape=(3,), dtype="int32"), relay.const(np.float32(1)), relay.const(0)
    body = relay.qnn.op.requantize(x, scale, zero, scale, zero, out_dtype="int8")
    mod = relay.transform.Legalize()(tvm.IRModule.from_expr(Function([x], relay.clip(body, low, high))))
    assert mod["main"].body.op.name == ("clip" if kept else "qnn.requantize")


def test_inputs_of_an_ahead_of_time_program_have_names_of_c_too() -> None:
    x, w = relay.var("input:0", shape=(2, 3)), relay.var("w", shape=(1, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.add(x, w)))
    runner = AotModule(relay.build(mod, "llvm", params={"w": np.ones((1, 3), np.float32)})["default"](tvm.cpu()))
    data: Any = np.arange(6, dtype=np.float32).reshape(2, 3)
    for name in ("input:0", "input_0"):
        runner.set_input(**{name: data})
        assert runner.get_input_index(name) == 0
        np.testing.assert_array_equal(runner.get_input(name).numpy(), data)
        runner.set_input(name, 2 * data)
        runner.run()
        np.testing.assert_array_equal(runner.get_output(0).numpy(), 2 * data + 1)
    assert runner.get_input_name(0) == "input:0"
    for wrong in (lambda: runner.set_input(other=data), lambda: runner.get_input_index("other")):
        with pytest.raises(InputError, match=r"Invalid input name\. The model has no input 'other'; it has input:0"):
            wrong()


def test_a_model_has_an_entry_of_its_name_and_runs_on_one_device() -> None:
    x = relay.var("x", shape=(2,))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))), "llvm", mod_name="fred")
    assert lib["list_module_names"]() == lib.get_function("list_module_names")() == ["fred"]
    for entry in ("default", "fred"):
        runner = AotModule(lib[entry](tvm.cpu()))
        runner.run(x=np.zeros(2, np.float32))
        np.testing.assert_array_equal(runner.get_output(0).numpy(), [1, 1])
    with pytest.raises(InputError, match="a compiled model runs on one device; 2 were given"):
        lib["default"](tvm.cpu(0), tvm.cpu(0))


@pytest.mark.parametrize("kind", KINDS)
def test_debug_calls_a_function_with_the_value(kind: str) -> None:
    seen: list[list[float]] = []
    x = relay.var("x", shape=(2,))
    twice = relay.op.debug(relay.add(x, x), lambda value: seen.append(value.numpy().tolist()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotNativeWarning)
        found = run(kind, Function([x], relay.exp(twice)), np.array([0, 1], "float32"))
    np.testing.assert_allclose(found, np.exp([0, 2]), rtol=1e-6)
    assert seen == [[0, 2]]
    mod = transform.InferType()(tvm.IRModule.from_expr(relay.op.debug((x, x), seen.append)))
    assert repr(mod["main"].ret_type) == "(Tensor[(2), float32], Tensor[(2), float32])"


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_expressions_that_call_main(kind: str) -> None:
    x = relay.var("x", shape=(3,))
    mod = tvm.IRModule({"main": relay.Function([x], relay.exp(x)), "main_1": relay.Function([x], relay.negative(x))})
    main, other = mod.get_global_var("main"), mod.get_global_var("main_1")
    a = np.linspace(-1, 1, 3, dtype="float32")
    found = relay.create_executor(kind, mod).evaluate(main(other(relay.const(a))))
    np.testing.assert_allclose(found.numpy(), np.exp(-a), rtol=1e-6)
    y = relay.var("y", shape=(3,))
    twice = relay.create_executor(kind, mod).evaluate(relay.Function([y], main(main(y))))
    np.testing.assert_allclose(twice(a).numpy(), np.exp(np.exp(a)), rtol=1e-6)
