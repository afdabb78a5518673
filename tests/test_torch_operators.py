"""The PyTorch frontend, operator by operator, against torch itself: each program through TorchScript and through
torch.export."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.relay.frontend import from_pytorch
from tilewright.relay.frontend.pytorch.decompose import decompositions, holds_for_the_sample_alone
from tilewright.relay.interpreter import evaluate

pytest.importorskip("torch", reason="the PyTorch frontend reads what torch writes; install torch")
import torch

F = torch.nn.functional
# torch's own
pytestmark = [
    pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning")
]

Program = Callable[..., Any]
A, B = (2, 3, 4), (3, 4)

ELEMENTWISE: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "add with alpha": (lambda a, b: torch.add(a, b, alpha=2), (A, B)),
    "numbers of another kind": (lambda a: a.to(torch.int32) / 2 + 1, (A,)),
    "a tensor without dimensions": (lambda a: a * torch.tensor(2.5, dtype=torch.float64), (A,)),
    "floor division": (lambda a: torch.div(a, 0.3, rounding_mode="floor"), (A,)),
    "remainder": (lambda a: torch.remainder(a, 0.7) + torch.fmod(a, 0.7), (A,)),
    "small logarithms": (lambda a: torch.log1p(a * a * 1e-6) + torch.expm1(a * 1e-4), (A,)),
    "activations": (lambda a: F.gelu(a) + F.silu(a) + F.mish(a) + F.hardswish(a) + F.elu(a) + F.softplus(a, 2.0), (A,)),
    "clamps": (lambda a: torch.clamp(a, -0.5, 0.5) + a.clamp(min=0.1), (A,)),
    "comparisons": (lambda a, b: torch.where(a > b, a, b) * (a <= 0), (A, B)),
    "bits": (lambda a: (a.to(torch.int64) & 3) | 4, (A,)),
}
SHAPES: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "views": (lambda a: a.view(-1, 4).transpose(0, 1).reshape(2, -1).unsqueeze(1).flatten(1), (A,)),
    "slices": (lambda a: a[:, 1:, ::2] + a[:, :2, -1:], (A,)),
    "pieces": (lambda a: torch.cat([*a.chunk(2, 2), *a.split([1, 3], 2), a.unbind(2)[0].unsqueeze(2)], dim=2), (A,)),
    "padding": (lambda a: F.pad(F.pad(a, (1, 2), mode="reflect"), (-1, 0, 1, 1), value=3.0), (A,)),
    "turning": (lambda a: torch.roll(a, (1, -1), (1, 2)) + a.flip(0, 2).permute(0, 1, 2), (A,)),
    "diagonals": (lambda a: torch.diagonal(a, 1, 1, 2), (A,)),
    "windows": (lambda a: a.unfold(2, 2, 1), (A,)),
    "shuffling": (lambda a: F.pixel_shuffle(a, 2), ((1, 8, 3, 3),)),
    "repeating": (lambda a: a.repeat(2, 1, 2, 2) + a.tile(2, 2).expand(2, 2, 6, 8), (A,)),
}
REDUCTIONS: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "sums": (lambda a: a.sum(1) + a.mean((0, 1)) + a.prod(1, keepdim=True).amax(1), (A,)),
    "variances": (lambda a: torch.std(a, 2) + torch.var(a, dim=(2,), correction=0), (A,)),
    "norms": (lambda a: torch.linalg.vector_norm(a, 3, 1) + a.norm(dim=1), (A,)),
    "extremes and places": (
        lambda a: (a.max(1)[0], a.argmin(2), *torch.topk(a, 2), *torch.sort(a, 1, descending=True)), (A,)
    ),
    "running": (lambda a: torch.cumsum(a, 1) + torch.logsumexp(a, 1, keepdim=True), (A,)),
}
LAYERS: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "convolution by name": (lambda x, w: F.conv2d(x, w, padding="same", dilation=2), ((1, 4, 7, 7), (6, 4, 2, 2))),
    "grouped and transposed": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2),
        ((1, 4, 5, 5), (4, 3, 3, 3))
    ),
    "pools": (
        lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True) + F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), ((1, 2, 8, 8),)
    ),
    "places of a pool": (lambda x: F.max_pool2d(x, 2, return_indices=True), ((1, 2, 6, 6),)),
    "adaptive pools": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)) + F.adaptive_max_pool2d(x, (3, 2)), ((1, 2, 7, 5),)),
    "norms of layers": (lambda x: F.layer_norm(x, (4,)) + F.group_norm(x, 3) + F.instance_norm(x), ((2, 3, 4),)),
    "products": (lambda a, b: a @ b + torch.einsum("bij,bjk->bik", a, b), ((2, 3, 4), (2, 4, 5))),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        ((1, 2, 5, 4), (1, 2, 5, 4), (1, 2, 5, 4))
    ),
    "resizing": (
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False) + F.interpolate(x, (8, 8)),
        ((1, 2, 4, 4),)
    ),
    "resizing to a fraction": (lambda x: F.interpolate(
        x, scale_factor=0.5, mode="bilinear", align_corners=True
    ) + F.interpolate(x, scale_factor=0.5, mode="bicubic", align_corners=True),
                               ((1, 2, 9, 7),)),
    "sampling": (lambda x, g: F.grid_sample(x, g, align_corners=False), ((1, 2, 4, 4), (1, 3, 3, 2))),
    "losses": (lambda a, b: F.mse_loss(a, b) + F.l1_loss(a, b) + F.smooth_l1_loss(a, b) + F.kl_div(a, b.abs()), (A, A)),
}
PLACES: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "indexing": (lambda a: a[:, torch.tensor([2, 0]), torch.tensor([1, -1])], (A,)),
    "masks": (lambda a: a.masked_fill(a > 0, -1.0), (A,)),
    "gather and scatter": (lambda a: torch.gather(
        a, 1, torch.ones(2, 1, 4, dtype=torch.int64)
    ).expand(2, 3, 4) + torch.zeros(2, 3, 4).scatter_add(1, torch.zeros(
        2, 3, 4, dtype=torch.int64), a), (A,)),
    "counting": (
        lambda a: (
            torch.bincount((a * 4).abs().long().flatten()),
            torch.bincount((a * 4).abs().long().flatten(), a.flatten(), 3)
        ), (A,)
    ),
    "selection": (lambda a: torch.index_select(a, 1, torch.tensor([1, 1])), (A,)),
    "writing": (lambda a: torch.index_put(a, (torch.tensor([0, 1]), torch.tensor([2, 2])), torch.ones(2, 4)), (A,)),
}
TABLE = {**ELEMENTWISE, **SHAPES, **REDUCTIONS, **LAYERS, **PLACES}


def module_of(program: Program) -> Any:
    class Module(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return program(*args)

    return Module().eval()


def drawn(shapes: tuple[Any, ...]) -> list[Any]:
    made = np.random.default_rng(len(shapes))
    return [torch.from_numpy(made.standard_normal(s).astype(np.float32)) for s in shapes]


def imported(door: str, module: Any, inputs: list[Any]) -> Any:
    """The function that a module becomes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if door == "export":
            return from_pytorch(torch.export.export(module, tuple(inputs), strict=False))
        traced = torch.jit.trace(module, tuple(inputs), check_trace=False)
    return from_pytorch(
        traced, [(f"x{k}", (tuple(x.shape), str(x.dtype).removeprefix("torch."))) for k, x in enumerate(inputs)]
    )


def agrees(door: str, module: Any, inputs: list[Any], rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """The program's answers, shapes and types are torch's, by the meaning that operators have in numpy."""
    mod, params = imported(door, module, [x.clone() for x in inputs])
    got = evaluate(mod["main"], *(x.numpy() for x in inputs), *params.values())
    wanted = module(*(x.clone() for x in inputs))
    flat = [wanted] if isinstance(wanted, torch.Tensor) else list(wanted)
    found = list(got) if isinstance(got, tuple) else [got]
    assert len(found) == len(flat)
    for f, w in zip(found, flat, strict=True):
        array = w.detach().numpy()
        assert (np.asarray(f).shape, np.asarray(f).dtype) == (array.shape, array.dtype)
        np.testing.assert_allclose(f, array, rtol=rtol, atol=atol)


@pytest.mark.parametrize("door", ["script", "export"])
@pytest.mark.parametrize("name", TABLE)
def test_a_program_gives_what_torch_gives(name: str, door: str) -> None:
    program, shapes = TABLE[name]
    agrees(door, module_of(program), drawn(shapes))


@pytest.mark.parametrize("door", ["script", "export"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("steps", [3, 6])
def test_recurrent_layers(kind: str, steps: int, door: str) -> None:
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(4, 5, num_layers=2, bidirectional=True, batch_first=True).eval()

    class Outputs(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return self.layer(x)[0]

    agrees(door, Outputs().eval(), drawn(((2, steps, 4),)), atol=1e-5)


@pytest.mark.parametrize("door", ["script", "export"])
def test_what_is_written_into_a_part_is_seen_in_the_whole_and_in_other_parts(door: str) -> None:
    def program(a: Any) -> Any:
        x = a.clone()
        row, column = x[0], x[:, 1]
        row.add_(1.0)
        column[:, 2] = 7.0
        x[..., ::2].mul_(2.0)
        return x, row, column

    agrees(door, module_of(program), drawn((A,)))


@pytest.mark.parametrize("door", ["script", "export"])
def test_places_that_indices_name_are_written(door: str) -> None:
    def program(a: Any) -> Any:
        x, y, z = a.clone(), a.clone(), a.clone()
        x.index_put_((torch.tensor([0, 2, 0]), torch.tensor([1, 1, 3])), torch.tensor([5.0, 6.0, 7.0]))
        y.index_put_((torch.tensor([1, 1, 0]),), torch.ones(y.shape[1]), accumulate=True)
        z[z > 0] = -1.0
        return x, y, z

    agrees(door, module_of(program), [torch.randn(3, 4)])


class _Halved(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, scale_factor=0.5, mode="area")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", ["trace", "script"])
def test_areas_whose_sizes_are_computed_from_a_number_of_the_program(door: str) -> None:
    x = torch.randn(1, 2, 9, 8)
    program = torch.jit.trace(_Halved(), x) if door == "trace" else torch.jit.script(_Halved())
    mod, params = from_pytorch(program, [("x", tuple(x.shape))])
    assert not params
    np.testing.assert_allclose(evaluate(mod["main"], x.numpy()), _Halved()(x).numpy(), rtol=1e-6, atol=1e-6)


def test_areas_of_images_of_any_height() -> None:
    shapes = ((1, 2, 9, 8), (1, 2, 14, 8), (1, 2, 2, 8))
    exported = torch.export.export(_Halved(), (torch.randn(shapes[0]),), dynamic_shapes=({2: torch.export.Dim.AUTO},))
    compiled = tilewright.compile(exported, threads=1)
    for shape in shapes:
        x = torch.randn(shape)
        np.testing.assert_allclose(compiled(x.numpy()), _Halved()(x).numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_decompositions_that_take_the_path_of_the_sample_are_noticed() -> None:
    """Torch's decomposition of an adaptive pool has windows of 3 for 9 rows; those for 14 rows have 2."""
    exported = torch.export.export(_Halved(), (torch.randn(1, 2, 9, 8),), dynamic_shapes=({2: torch.export.Dim.AUTO},))
    assert not holds_for_the_sample_alone(exported)
    simpler = exported.run_decompositions(decompositions(lambda name, overload: "adaptive" in name))
    assert holds_for_the_sample_alone(simpler)


def test_a_branch_of_a_script_writes_only_where_it_is_taken() -> None:
    @torch.jit.script
    def program(a: torch.Tensor) -> torch.Tensor:
        x = a.clone()
        if bool(a.sum() > 0):
            x.add_(1.0)
        else:
            x[0] = -1.0
        return x

    mod, _ = from_pytorch(program, [("a", (2, 2))])
    for sign in (1.0, -1.0):
        given = np.full((2, 2), sign, np.float32)
        np.testing.assert_array_equal(evaluate(mod["main"], given), program(torch.from_numpy(given)).numpy())


def test_a_loop_whose_turns_only_a_run_knows() -> None:
    @torch.jit.script
    def program(a: torch.Tensor) -> torch.Tensor:
        while bool(a.sum() < 100.0):
            a = a * 2.0
        return a

    mod, _ = from_pytorch(program, [("a", (3,))])
    np.testing.assert_array_equal(evaluate(mod["main"], np.ones(3, np.float32)), np.full(3, 64, np.float32))


@pytest.mark.parametrize(
    "options",
    [{}, {"need_weights": False}, {"average_attn_weights": False}, {"attn_mask": True}, {"key_padding_mask": True}],
    ids=str
)
def test_traced_attention_is_one_operator(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval().requires_grad_(False)
    masks = {
        "attn_mask": torch.triu(torch.ones(5, 5), 1).bool(),
        "key_padding_mask": torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]]).bool()
    }
    given = {k: masks.get(k, v) for k, v in options.items()}

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            found = self.layer(x, x, x, **given)
            return found if found[1] is not None else found[0]

    agrees("script", Attention().eval(), drawn(((2, 5, 8),)))


@pytest.mark.parametrize("kind", ["attention", "encoder"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_attention_that_is_traced_with_its_gradients(kind: str, batch_first: bool) -> None:
    """It is traced operator by operator then, with divisions of sizes that round down."""
    torch.manual_seed(0)

    class Attention(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.MultiheadAttention(8, 2, batch_first=batch_first)

        def forward(self, x: Any) -> Any:
            return self.layer(x, x, x)

    layers = torch.nn.TransformerEncoder(
        torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first), 2, enable_nested_tensor=False
    )
    with torch.enable_grad():
        agrees("script", (Attention() if kind == "attention" else layers).eval(), drawn(((2, 5, 8),)), rtol=1e-4)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm_first", [False, True])
def test_traced_layers_of_an_encoder_are_one_operator(norm_first: bool, activation: str) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 16, batch_first=True, norm_first=norm_first, activation=activation
    ).eval().requires_grad_(False)
    agrees("script", layer, drawn(((2, 5, 8),)))
