"""PyTorch's operator database: a sample of each day through both doors, the operators that agree, and wrong answers
that were found with it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import daily

pytest.importorskip("torch", reason="the PyTorch frontend reads what torch writes; install torch")
import torch

import tilewright
import torch_opinfo
from tilewright.relay.frontend import from_pytorch
from tilewright.relay.interpreter import evaluate

F = torch.nn.functional
Program = Callable[..., Any]
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # torch's own
AGREED = Path(__file__).parent / "torch_opinfo_agreed.txt"
"""Names of the operators whose float32 samples agree by torch.export."""
PER_DAY = int(os.environ.get("TILEWRIGHT_OPINFO_OPERATORS", "24"))

MENDED: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "replicate, cut on one side": (
        lambda x: F.pad(x, (-4, 5), mode="replicate"), (torch.arange(8.0).reshape(1, 2, 4),)
    ),
    "replicate, cut on the other": (
        lambda x: F.pad(x, (3, -2), mode="replicate"), (torch.arange(8.0).reshape(1, 2, 4),)
    ),
    "reflect, cut": (lambda x: F.pad(x, (-1, 2), mode="reflect"), (torch.arange(8.0).reshape(1, 2, 4),)),
    "circular, cut": (lambda x: F.pad(x, (-1, 2), mode="circular"), (torch.arange(8.0).reshape(1, 2, 4),)),
    "constant, all cut": (lambda x: F.pad(x, (-4, 5), value=3.0), (torch.arange(8.0).reshape(1, 2, 4),)),
    "matrix norms": (
        lambda x: tuple(torch.linalg.matrix_norm(x, o) for o in (1, -1, 2, -2, float("inf"), -float("inf"))),
        (torch.randn(2, 3, 4),)
    ),
    "norms of matrices": (
        lambda x: tuple(torch.linalg.norm(x, o, (0, 2), True) for o in (1, -1, 2, "nuc", "fro", float("inf"))),
        (torch.randn(2, 3, 4),)
    ),
    "cosine similarity, broadcast": (
        lambda x, y: F.cosine_similarity(x, y, dim=1), (torch.randn(2, 1, 3), torch.randn(4, 3))
    ),
    "medians with NaN": (lambda x: (torch.median(x), torch.nanmedian(x), *torch.median(x, 1), torch.nanmedian(x, 1)[0]),
                         (torch.tensor([[1.0, float("nan"), 3.0, 0.5], [4.0, 2.0, 8.0, 1.0], [float("nan")] * 4]),)),
    "logcumsumexp of far numbers": (
        lambda x: torch.logcumsumexp(x, 0), (torch.tensor([-200.0, -95.0, 0.0, 3.0, -float("inf")]),)
    ),
    "hinge of other targets": (F.hinge_embedding_loss, (torch.randn(5), torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5]))),
    "variances of a number": (
        lambda x: (x.var(-1, correction=0), *torch.std_mean(x, 0, correction=0), x.std(-1, correction=0, keepdim=True)),
        (torch.tensor(2.5),)),
    "arithmetic on an item": (
        lambda x, y: (y + x.item() * 3, y * (3 - x.item()), y + x.item() / 3, y + x.item() // 3, y - x.item() % 7),
        (torch.tensor(100, dtype=torch.int8), torch.arange(3))
    ),
    "arithmetic on a fraction": (
        lambda x, y: (y + x.item() * 3, y - (-x.item())), (torch.tensor(1.5), torch.arange(3))
    ),
    "places of a scalar": (lambda x: torch.nonzero(x, as_tuple=True), (torch.tensor(3.0),)),
    "products of small integers": (
        lambda x, y: (torch.einsum("ij,jk->ik", x, y), torch.einsum("ij,ij->i", x, x)),
        (torch.full((2, 9), 100, dtype=torch.int8), torch.full((9, 3), 90, dtype=torch.int8))
    ),
    "a scalar turned": (lambda x: (x.flip(()), x.var(), x.sum(-1)), (torch.tensor(2.5),)),
    "diff of nothing": (lambda x: torch.diff(x, n=0, prepend=x), (torch.arange(4.0),)),
    "float_power": (
        lambda x: (torch.float_power(x, 2), torch.float_power(x.float(), x.float())), (torch.arange(1, 4),)
    ),
    "square of bool": (torch.square, (torch.tensor([True, False]),)),
    "add without the second": (lambda x: torch.add(x, x.logical_not(), alpha=False), (torch.tensor([True, False]),)),
    "margins of integers": (
        lambda x, y: F.margin_ranking_loss(x, y, x, 0.5, reduction="none"),
        (torch.tensor([1, -1]), torch.tensor([2, 3]))
    ),
    "prelu of a scalar": (F.prelu, (torch.tensor(-2.0), torch.tensor([0.3]))),
    "pool with a divisor": (lambda x: F.avg_pool2d(x, 2, divisor_override=3), (torch.arange(16).reshape(1, 1, 4, 4),)),
    "statistics of groups": (
        lambda x: torch.native_group_norm(x, None, None, 2, 4, 3, 2, 1e-5), (torch.randn(2, 4, 3),)
    ),
    "statistics of batches": (
        lambda x: (
            *torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5),
            torch.native_batch_norm(x, None, None, x[0, :, 0], x[1, :, 0].abs(), False, 0.1, 1e-5)[0]
        ),
        (torch.randn(2, 4, 3),)),
    "counts of whole numbers": (
        lambda x: tuple(
            x + torch.arange(2.1, -2.9, -1.0, dtype=t).sum() for t in (torch.int64, torch.int32, torch.uint8)
        ), (torch.ones(2, dtype=torch.int64),)
    ),
    "decomposed": (
        lambda x, y: (torch.kron(x, y), torch.logaddexp(x, x), x.quantile(0.3), torch.trace(x)),
        (torch.randn(3, 3), torch.randn(2, 2))
    ),
}


class Called(torch.nn.Module):
    """A function as a module."""

    def __init__(self, call: Program) -> None:
        super().__init__()
        self.call = call

    def forward(self, *tensors: Any) -> Any:
        return self.call(*tensors)


@pytest.mark.parametrize("name", MENDED)
def test_an_exported_program_gives_what_torch_does(name: str) -> None:
    call, tensors = MENDED[name]
    module, _ = from_pytorch(torch.export.export(Called(call), tensors), freeze_params=True)
    found = evaluate(module["main"], *(x.numpy() for x in tensors))
    wanted = torch_opinfo.tensors_in(call(*tensors))
    for mine, theirs in zip(found if isinstance(found, (list, tuple)) else [found], wanted, strict=True):
        assert np.asarray(mine).dtype == theirs.numpy().dtype
        np.testing.assert_allclose(np.asarray(mine), theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("channels", [2, 5])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("corners", [False, True])
def test_images_of_bytes_are_resized_as_by_torch(channels: int, mode: str, antialias: bool, corners: bool) -> None:
    """To the bit: in whole numbers, along the rows first."""
    x = torch.randint(0, 256, (1, channels, 7, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    for how in (
        {"size": (5, 4)}, {"size": (14, 9)}, {"size": (7, 20)}, {"scale_factor": (1.7, 0.6)}, {"size": (3, 31)}
    ):
        call = partial(F.interpolate, mode=mode, antialias=antialias, align_corners=corners, **how)
        module, _ = from_pytorch(torch.export.export(Called(call), (x,)), freeze_params=True)
        np.testing.assert_array_equal(evaluate(module["main"], x.numpy()), call(x).numpy())


@pytest.mark.parametrize(
    "part",
    [
        slice(3, None), slice(None, -1), slice(1, -1), slice(None, None, 2), slice(-2, None), slice(3, 1), slice(1, 3),
        slice(2, 100)
    ]
)
def test_parts_of_a_batch_of_any_size(part: slice) -> None:
    program = torch.export.export(
        Called(lambda x: x[part] * 2), (torch.randn(6, 4),), dynamic_shapes={"tensors": ({0: torch.export.Dim.AUTO},)}
    )
    compiled = tilewright.compile(program, threads=1)
    for rows in (6, 9, 4):
        x = torch.randn(rows, 4)
        np.testing.assert_array_equal(compiled(x.numpy()), (x[part] * 2).numpy())


@pytest.mark.parametrize("door", tuple(torch_opinfo.DOORS))
def test_no_operator_of_the_database_is_wrong(door: str) -> None:
    known = torch_opinfo.operators(torch.float32)
    rows = [
        torch_opinfo.run(known[n], n, door, torch.float32, 2, 0, native=False)
        for n in daily.sample(sorted(known), PER_DAY, door)
    ]
    assert not {r.op: (r.state, r.reason) for r in rows if r.state in ("wrong", "crash")}


def test_operators_that_agreed_still_agree() -> None:
    known, names = torch_opinfo.operators(torch.float32), AGREED.read_text().split()
    assert names == sorted(names)
    assert set(names) <= set(known)
    rows = [
        torch_opinfo.run(known[n], n, "export", torch.float32, 3, 0, native=False)
        for n in daily.sample(names, PER_DAY, "agreed")
    ]
    assert not {r.op: (r.state, r.reason) for r in rows if r.state != "agrees"}


@torch.library.custom_op("tilewright_tests::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    """An operator without a converter or a decomposition."""
    return x * x * x


@cube.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_a_single_operator_is_left_to_torch_and_named(caplog: pytest.LogCaptureFixture) -> None:
    def call(x: Any) -> Any:
        return cube(x.relu()) + 1

    x = torch.randn(4, 4)
    torch._dynamo.reset()
    with caplog.at_level(logging.WARNING, "tilewright.compiler.torch_backend"):
        found = torch.compile(call, backend="tilewright")(x)
    torch.testing.assert_close(found, call(x))
    assert ["tilewright_tests.cube.default"] in [r.operators for r in caplog.records if hasattr(r, "operators")]


def test_bfloat16_goes_in_and_out_under_torch_compile() -> None:
    x = torch.randn(4, 4).bfloat16()
    torch._dynamo.reset()
    found = torch.compile(lambda x: x + x.relu(), backend="tilewright")(x)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found, x + x.relu())
