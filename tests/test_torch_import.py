"""The PyTorch frontend: signatures, files, messages, quantized models, `torch.compile`."""

from __future__ import annotations

import io
import os
import pickle
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.base.errors import ModelError, OpNotImplemented

pytest.importorskip("torch", reason="the PyTorch frontend reads what torch writes; install torch")
import torch

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning"), pytest.mark.filterwarnings(
    "ignore::DeprecationWarning"
),
              pytest.mark.filterwarnings("ignore::FutureWarning")]  # torch's own


def network() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 5)
    ).eval()


def picture(batch: int = 2) -> Any:
    return torch.from_numpy(np.random.default_rng(0).standard_normal((batch, 3, 8, 8)).astype(np.float32))


def traced(module: Any, *inputs: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.trace(module, inputs)


def test_weights_are_parameters_with_the_names_of_the_module() -> None:
    mod, params = relay.frontend.from_pytorch(traced(network(), picture()), [("input0", (2, 3, 8, 8))])
    assert sorted(params) == ["0.bias", "0.weight", "3.bias", "3.weight"]
    assert [p.name_hint for p in mod["main"].params] == ["input0", "0.bias", "0.weight", "3.bias", "3.weight"]
    _, plain = relay.frontend.from_pytorch(
        traced(network(), picture()), [("input0", (2, 3, 8, 8))], use_parser_friendly_name=True
    )
    assert "0_weight" in plain


def test_a_converter_of_the_user_comes_before_the_table() -> None:
    seen = []

    def relu(inputs: Any, input_types: Any) -> Any:
        seen.append(input_types)
        return relay.nn.leaky_relu(inputs[0], alpha=0.5)

    mod, _ = relay.frontend.from_pytorch(
        traced(torch.nn.ReLU(), picture()), [("x", (2, 3, 8, 8))], {"aten::relu": relu}
    )
    assert "nn.leaky_relu" in str(mod) and seen == [["float32"]]


def test_files_compile_by_both_doors(tmp_path: Path) -> None:
    module, x = network(), picture()
    wanted = module(x).detach().numpy()
    traced(module, x).save(str(tmp_path / "m.pt"))
    program = torch.export.export(module, (x,), dynamic_shapes=({0: torch.export.Dim("batch", min=2, max=64)},))
    torch.export.save(program, tmp_path / "m.pt2")
    np.testing.assert_allclose(
        tilewright.compile(tmp_path / "m.pt", {"input": (2, 3, 8, 8)})(x.numpy()), wanted, rtol=1e-5, atol=1e-6
    )
    compiled = tilewright.compile(tmp_path / "m.pt2")
    np.testing.assert_allclose(compiled(x.numpy()), wanted, rtol=1e-5, atol=1e-6)
    more = picture(5)
    np.testing.assert_allclose(compiled(more.numpy()), module(more).detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(tilewright.compile(program)(x.numpy()), wanted, rtol=1e-5, atol=1e-6)


def test_a_script_with_a_folder_of_models_in_its_names_is_a_script(tmp_path: Path) -> None:
    traced(network(), picture()).save(str(tmp_path / "plain.pt"))
    with zipfile.ZipFile(tmp_path / "plain.pt") as given, zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        for entry in given.infolist():
            archive.writestr(entry, given.read(entry))
        archive.writestr("plain/code/__torch__/transformers/models/bert/modeling_bert.py", b"")
    found = tilewright.compile(tmp_path / "m.pt", {"input": (2, 3, 8, 8)})(picture().numpy())
    np.testing.assert_allclose(found, network()(picture()).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_a_guard_that_counts_are_greater_is_read(tmp_path: Path) -> None:
    class Positive(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            places = torch.nonzero(x > 0)
            torch._check(places.shape[0] > 1)
            torch._check(places.shape[0] >= 2)
            return places.sum(0)

    x = torch.tensor([[1.0, -1, 2], [0, 3, -4]])
    torch.export.save(torch.export.export(Positive(), (x,)), tmp_path / "m.pt2")
    with zipfile.ZipFile(tmp_path / "m.pt2") as archive:
        assert any(b"GreaterThan" in archive.read(name) for name in archive.namelist())
    np.testing.assert_array_equal(tilewright.compile(tmp_path / "m.pt2")(x.numpy()), Positive()(x).numpy(), strict=True)


def test_shapes_that_a_file_does_not_say_are_asked_for(tmp_path: Path) -> None:
    traced(network(), picture()).save(str(tmp_path / "m.pt"))
    with pytest.raises(
        ModelError,
        match=r"does not contain the shapes of its inputs \(input\); give them: .* "
        r"shapes=\{'input': \(1, 3, 224, 224\)\} to compile"
    ):
        tilewright.compile(tmp_path / "m.pt")


def test_operators_without_a_converter_are_all_named() -> None:
    class Odd(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.linalg.lstsq(
                torch.fake_quantize_per_channel_affine(x, torch.ones(3), torch.zeros(3), 0, 0, 255), x
            )[0]

    with pytest.raises(
        OpNotImplemented,
        match=r"no converter for aten::linalg_lstsq; pass custom_convert_map=\{'aten::linalg_lstsq': function\}"
    ):
        relay.frontend.from_pytorch(traced(Odd(), torch.ones(3, 3)), [("x", (3, 3))])


def test_an_argument_that_has_no_meaning_here_is_refused_by_the_node() -> None:
    with pytest.raises(ModelError, match=r"aten::poisson_nll_loss .*full=True adds Stirling's approximation"):
        relay.frontend.from_pytorch(torch.jit.script(_poisson), [("x", (3,)), ("y", (3,))])


def _poisson(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.poisson_nll_loss(x, y, True, True, 1e-8, 1)


def test_dropout_of_a_model_in_training_is_refused() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.trace(torch.nn.Dropout(0.5).train(), torch.ones(3), check_trace=False)
    with pytest.raises(ModelError, match="dropout in training mode"):
        relay.frontend.from_pytorch(module, [("x", (3,))])


# Files that are not to be trusted


def archive(path: Path, **entries: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in entries.items():
            made.writestr(name.replace("__", "/"), data)
    return path


class _Calls:
    def __reduce__(self) -> Any:
        return os.mkdir, ("was-executed",)


def test_a_pickle_that_calls_something_is_refused_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bad = archive(
        tmp_path / "m.pt",
        **{"m__data.pkl": pickle.dumps(_Calls()), "m__constants.pkl": b"\x80\x02).", "m__code__x.py": b""}
    )
    with pytest.raises(ModelError, match=r"is refused: m/data.pkl would call (posix|nt)\.mkdir when it is read"):
        tilewright.compile(bad)
    assert not (tmp_path / "was-executed").exists()


def test_a_pickle_inside_of_a_stored_tensor_is_looked_into(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as made:
        made.writestr("w/data.pkl", pickle.dumps(_Calls()))
    bad = archive(tmp_path / "m.pt2", **{"m__models__model.json": b"{}", "m__data__weights__w.pt": inner.getvalue()})
    with pytest.raises(ModelError, match="would call"):
        tilewright.compile(bad)


def test_an_entry_that_points_outside_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'\.\./m/data\.pkl' points outside the archive"):
        tilewright.compile(archive(tmp_path / "m.pt", **{"..__m__data.pkl": b""}))


def test_an_archive_that_unpacks_to_much_more_than_it_is_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"unpacks from \d+ to 33554432 bytes"):
        tilewright.compile(archive(tmp_path / "m.pt", m__data__0=bytes(32 << 20)))


def test_a_size_that_is_code_is_refused(tmp_path: Path) -> None:
    text = b'{"x": {"as_expr": {"expr_str": "__import__(\'os\').mkdir(\'x\')"}}}'
    with pytest.raises(ModelError, match="which is not valid arithmetic"):
        tilewright.compile(archive(tmp_path / "m.pt2", **{"m__models__model.json": text}))


def test_a_file_of_weights_alone_says_so(tmp_path: Path) -> None:
    torch.save(network().state_dict(), tmp_path / "m.pth")
    with pytest.raises(ModelError, match="contains only weights, without the program"):
        tilewright.compile(tmp_path / "m.pth")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.pt").write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(ModelError, match=r"is not an archive of torch\.jit\.save or torch\.export\.save"):
        tilewright.compile(tmp_path / "m.pt")


# Quantized


def quantized() -> Any:
    from torch.ao.quantization import QuantWrapper, convert, get_default_qconfig, prepare

    torch.manual_seed(0)
    inner = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Conv2d(8, 8, 3),
        torch.nn.Flatten(), torch.nn.Linear(32, 5)
    )
    module = QuantWrapper(inner).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.backends.quantized.engine = (
            "fbgemm" if "fbgemm" in torch.backends.quantized.supported_engines else "qnnpack"
        )
        module.qconfig = get_default_qconfig(torch.backends.quantized.engine)
        prepared = prepare(module)
        prepared(picture(8))
        return convert(prepared)


def test_a_quantized_network_gives_the_bits_of_torch() -> None:
    module, x = quantized(), picture()
    infos = [("x", (2, 3, 8, 8))]
    mod, params = relay.frontend.from_pytorch(traced(module, x), infos)
    frozen, none = relay.frontend.from_pytorch(traced(module, x), infos, freeze_params=True)
    assert "qnn.conv2d" in str(mod) and "qnn.dense" in str(mod) and not none
    for m in (relay.transform.bind_params(mod, params), frozen):
        np.testing.assert_array_equal(tilewright.compile(m)(x.numpy()), module(x).numpy())


def test_weights_of_quantized_layers_are_parameters_real_or_integers() -> None:
    module, x = quantized(), picture()
    _, real = relay.frontend.from_pytorch(traced(module, x), [("x", (2, 3, 8, 8))])
    mod, kept = relay.frontend.from_pytorch(traced(module, x), [("x", (2, 3, 8, 8))], keep_quantized_weight=True)
    assert list(real) == list(kept) == [
        f"module.{n}_{w}" for n in ("0", "3", "5._packed_params") for w in ("weight", "bias")
    ]
    assert [
        str(a.dtype) for a in real.values()
    ] == ["float32"] * 6 and [str(a.dtype) for a in kept.values()] == ["int8", "int32"] * 3
    found = tilewright.compile(relay.transform.bind_params(mod, kept))(x.numpy())
    # the bias is rounded, which moves few results by one unit
    np.testing.assert_allclose(found, module(x).numpy(), atol=float(module.module[5].scale))


FIELD = """
  %0 = qnn.quantize(%input, 0.0186579f, 114, out_dtype="uint8", axis=1);
  %1 = nn.pad(%0, 114f, pad_width=[[0, 0], [0, 0], [1, 1], [1, 1]]);
  %2 = qnn.quantize(%features.0.0_weight, 0.00288958f, 0, out_dtype="int8", axis=0);
  %3 = qnn.conv2d(%1, %2, 114, 0, 0.0186579f, 0.00288958f, strides=[2, 2], padding=[0, 0, 0, 0], channels=32, kernel_size=[3, 3], out_dtype="int32");
  %4 = qnn.quantize(%features.0.0_bias, 5.39136e-05f, 0, out_dtype="int32", axis=0);
  %5 = nn.bias_add(%3, %4);
  %6 = qnn.requantize(%5, 5.39136e-05f, 0, 0.0150183f, 0, axis=1, out_dtype="int32");
  %7 = clip(%6, a_min=0f, a_max=255f);
  %8 = cast(%7, dtype="uint8");
"""  # noqa: E501


def test_the_text_of_a_quantized_convolution_is_the_one_of_the_field() -> None:
    """The first block of torchvision's quantized mobilenet_v2, as TVM printed it."""
    nnq = torch.ao.nn.quantized
    conv = nnq.ConvReLU2d if hasattr(nnq, "ConvReLU2d") else torch.ao.nn.intrinsic.quantized.ConvReLU2d
    layer = conv(3, 32, 3, stride=2, padding=1)
    layer.set_weight_bias(
        torch.quantize_per_tensor(torch.randn(32, 3, 3, 3) * 0.1, 0.00288958, 0, torch.qint8), torch.randn(32) * 0.1
    )
    layer.scale, layer.zero_point = 0.0150183, 0

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant = nnq.Quantize(torch.tensor([0.0186579]), torch.tensor([114]), torch.quint8)
            self.features = torch.nn.Sequential(torch.nn.Sequential(layer))

        def forward(self, x: Any) -> Any:
            return self.features(self.quant(x)).int_repr()

    mod, params = relay.frontend.from_pytorch(
        traced(Block(), torch.zeros(1, 3, 224, 224)), [("input", (1, 3, 224, 224))]
    )
    body = mod["main"].astext(show_meta_data=False)
    # of names without dots; of scales with six digits
    block = FIELD.strip("\n").replace(".0.0_", "_0_0_").replace("5.39136e-05f", "5.3913496e-05f")
    assert block in re.sub(r" /\* [^*]* \*/", "", body)
    assert list(params) == [
        "features.0.0_weight", "features.0.0_bias"
    ] and mod["main"].attrs["numerics"] == f"torch-{torch.backends.quantized.engine}"


# torch.compile


def test_torch_compile_gives_what_torch_gives_and_sees_new_weights_and_shapes() -> None:
    from tilewright.compiler.torch_backend import compile_graph

    module = network()
    fast = torch.compile(module, backend=compile_graph)
    with torch.no_grad():
        for x in (picture(), picture(), picture(4)):
            np.testing.assert_allclose(fast(x).numpy(), module(x).numpy(), rtol=1e-5, atol=1e-6)
        module[0].weight.mul_(2.0)
        np.testing.assert_allclose(fast(picture()).numpy(), module(picture()).numpy(), rtol=1e-5, atol=1e-6)


class Lengths(torch.nn.Module):
    """Computes with its sizes and with an integer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.conv = torch.nn.Linear(8, 8), torch.nn.Conv1d(8, 8, 3)

    def forward(self, x: torch.Tensor, factor: int = 3) -> Any:
        y = self.linear(x).reshape(x.shape[0] * x.shape[1], 8)
        return torch.cat([y, y]).softmax(-1) * factor, self.conv(x.transpose(1, 2)), 2 * x.shape[1], factor + 1


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that are compiled during a test."""
    from tilewright.compiler import torch_backend

    made: list[Any] = []

    class Noted(torch_backend._CompiledGraph):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(torch_backend, "_CompiledGraph", Noted)
    torch._dynamo.reset()
    return made


@pytest.mark.parametrize(("dynamic", "count"), [(True, 1), (None, 2), (False, 4)])
def test_torch_compile_makes_one_program_for_dynamic_sizes(dynamic: bool | None, count: int, graphs: list[Any]) -> None:
    module = Lengths().eval()
    fast = torch.compile(module, backend="tilewright", dynamic=dynamic)
    with torch.no_grad():
        for shape in ((2, 5), (3, 7), (6, 40), (9, 4)):
            x = torch.randn(*shape, 8)
            torch.testing.assert_close(fast(x), module(x), rtol=1e-5, atol=1e-6)
        assert len(graphs) == count
        module.linear.weight.mul_(2.0)
        torch.testing.assert_close(fast(x), module(x), rtol=1e-5, atol=1e-6)
        assert len(graphs) == count + 1


def test_an_integer_argument_of_torch_compile_is_an_input(graphs: list[Any]) -> None:
    module = Lengths().eval()
    fast = torch.compile(module, backend="tilewright", dynamic=True)
    with torch.no_grad():
        for factor in (2, 5, 11):
            x = torch.randn(2, 4 + factor, 8)
            torch.testing.assert_close(fast(x, factor), module(x, factor), rtol=1e-5, atol=1e-6)
    assert len(graphs) == 1


def test_writes_of_a_program_for_dynamic_sizes_take_effect(graphs: list[Any]) -> None:
    torch.manual_seed(3)
    mine, theirs = Counting(torch.nn.BatchNorm2d(3)), Counting(torch.nn.BatchNorm2d(3))
    fast = torch.compile(mine, backend="tilewright", dynamic=True)
    with torch.no_grad():
        for size in (4, 6, 9):
            x = torch.randn(size, 3, size + 1, 6)
            torch.testing.assert_close(fast(x), theirs(x), rtol=1e-4, atol=1e-5)
    for name, wanted in theirs.state_dict().items():
        torch.testing.assert_close(mine.state_dict()[name], wanted, rtol=1e-4, atol=1e-5)
    assert len(graphs) == 1


def test_dynamic_sizes_without_one_program_are_compiled_one_by_one(
    graphs: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tilewright.compiler.torch_backend")
    fast = torch.compile(torch.linalg.svdvals, backend="tilewright", dynamic=True)
    for size in (4, 5):
        x = torch.randn(size, size + 1, generator=torch.Generator().manual_seed(1))
        torch.testing.assert_close(fast(x), torch.linalg.svdvals(x), rtol=1e-4, atol=1e-5)
    assert "the graph is compiled for each combination of input shapes" in caplog.text


def _composed(x: torch.Tensor) -> torch.Tensor:
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    return (u * s) @ v


@pytest.mark.parametrize("function", [
    lambda x: torch.fft.fft(x).abs(), torch.fft.rfft, lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=0), n=4, dim=0),
    torch.linalg.svdvals, _composed,
    lambda x: torch.nonzero(x[0, 0], as_tuple=True),
], ids=["fft", "rfft", "irfft", "svdvals", "svd", "nonzero of a scalar"])
def test_torch_compile_of_transforms_and_decompositions(function: Any) -> None:
    torch._dynamo.reset()
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    found, wanted = torch.compile(function, backend="tilewright")(x), function(x)
    for f, w in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, wanted)), strict=True):
        assert f.dtype == w.dtype
        np.testing.assert_allclose(f.numpy(), w.numpy(), rtol=1e-5, atol=1e-5)


class Counting(torch.nn.Module):
    """Writes into a buffer of its own, and into the statistics of its layers."""

    def __init__(self, norm: torch.nn.Module) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(3))
        self.norm = norm

    def forward(self, x: Any) -> Any:
        self.seen += x.flatten(2).mean((0, 2))
        return self.norm(x) + self.seen.reshape(1, 3, 1, 1)


@pytest.mark.parametrize(
    "norm", [lambda: torch.nn.BatchNorm2d(3), lambda: torch.nn.InstanceNorm2d(3, track_running_stats=True)],
    ids=["batch", "instance"]
)
@pytest.mark.parametrize("training", [True, False])
def test_what_a_module_writes_into_its_buffers_is_there_after_the_call(norm: Any, training: bool) -> None:
    from tilewright.compiler.torch_backend import compile_graph

    torch.manual_seed(3)
    mine, theirs = Counting(norm()).train(training), Counting(norm()).train(training)
    fast = torch.compile(mine, backend=compile_graph, dynamic=False)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 3, 5, 6)
            torch.testing.assert_close(fast(x), theirs(x), rtol=1e-4, atol=1e-5)
    for name, wanted in theirs.state_dict().items():
        torch.testing.assert_close(mine.state_dict()[name], wanted, rtol=1e-4, atol=1e-5)


def test_a_function_that_writes_into_its_inputs_gives_them_back() -> None:
    from tilewright.compiler.torch_backend import compile_graph

    def step(cache: Any, new: Any) -> tuple[Any, Any, Any]:
        cache[:, 2] = new
        return cache.sum(), cache[:, 1:].mul_(2), cache

    mine, theirs = torch.ones(2, 4, 3), torch.ones(2, 4, 3)
    fast = torch.compile(step, backend=compile_graph, dynamic=False)
    for k in range(3):
        new = torch.full((2, 3), float(k))
        found, wanted = fast(mine, new), step(theirs, new)
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b)
        assert found[2] is mine
        torch.testing.assert_close(mine, theirs)


def test_a_graph_whose_sizes_are_values_is_refused() -> None:
    from tilewright.compiler.torch_backend import compile_graph

    part = torch.compile(lambda x, start: torch.narrow(x, 1, start, 0), backend=compile_graph, dynamic=False)
    with pytest.raises(
        Exception,
        match=r"torch cannot trace the graph without its values \(.*\); exclude this part with "
        r"torch.compiler.disable"
    ):
        part(torch.ones(2, 5), torch.tensor(3))


@pytest.mark.parametrize(("draw", "mean"), [
    (lambda x: x.exponential_(2.0), 0.5), (lambda x: x.geometric_(0.25), 4.0),
    (lambda x: x.log_normal_(0.0, 0.5), float(np.exp(0.125))), (lambda x: x.uniform_(2.0, 4.0), 3.0),
    (lambda x: x.normal_(3.0, 2.0), 3.0), (lambda x: x.cauchy_(1.0, 0.1).clamp(-9, 11), 1.0),
])
def test_drawn_numbers_have_their_distribution(draw: Any, mean: float) -> None:
    from tilewright.compiler.torch_backend import compile_graph

    found = torch.compile(lambda x: draw(x + 0), backend=compile_graph, dynamic=False)(torch.zeros(40000))
    assert abs(float(found.mean()) - mean) < 0.1


def test_without_torch_nothing_of_it_is_imported() -> None:
    import subprocess
    import sys

    code = (
        "import sys, tilewright; from tilewright.relay import frontend; from tilewright.compiler import formats; "
        "assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
