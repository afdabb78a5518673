"""Operators of PyTorch that choose and count elements, and that look at bits, against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.base.errors import ModelError
from tilewright.relay.frontend import from_pytorch
from torch_functions import agrees

pytest.importorskip("torch")
import torch

pytestmark = pytest.mark.filterwarnings("ignore")
torch.manual_seed(8)
TIES, REAL = torch.randint(0, 4, (3, 7)).float(), torch.randn(3, 7)
GAPS = torch.where(REAL > 1, torch.nan, TIES)
EDGES = torch.tensor([0.0, -0.0, 1.0, -3.5, 1e-42, -1e-45, 3e38, torch.inf, -torch.inf, torch.nan])
WHOLE = torch.tensor([3, 3, 1, 0, 0, 0, 2])
SEGMENTS: dict[str, Any] = {"lengths": torch.tensor([2, 0, 1])}

def _count(x: Any) -> Any:
    """A number that a run computes, and that is the size of something."""
    count = x.item()
    torch._check(count >= 0)
    torch._check(count < 100)
    return count


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "running extremes": (lambda x: tuple(f(x, d) for f in (torch.cummax, torch.cummin) for d in (0, -1)), (GAPS,)),
    "running extremes of integers": (
        lambda x: (torch.cummax(x, 0), torch.cummin(x > 1, 0), torch.cummax(x[0], 0)),
        (WHOLE,),
    ),
    "averaging resizes": (
        lambda x: tuple(
            torch.nn.functional.interpolate(x[None, None], size, mode=how, antialias=True, align_corners=a)
            for size in ((2, 3), (5, 12))
            for how,
            a in (("bilinear", False), ("bilinear", True), ("bicubic", False), ("bicubic", True), ("lanczos", False))
        ),
        (REAL,),
    ),
    "divisors": (lambda x: (torch.gcd(x - 2, 6 * x), torch.lcm(x - 2, x + 5), torch.gcd(x, torch.tensor(4))), (WHOLE,)),
    "mode": (lambda x: (torch.mode(x), torch.mode(x, 0), torch.mode(x, keepdim=True), torch.mode(x[0, 0])), (TIES,)),
    "angles and lengths": (
        lambda x: (torch.atan2(x[:, None], x), torch.hypot(x[:, None], x), torch.abs(torch.complex(x, -x))),
        (EDGES,),
    ),
    "small numbers": (
        lambda x: (1e7 * torch.log1p(x), 1e7 * torch.nn.functional.softplus(x.log()), (x + 1) - 1 == x),
        (torch.tensor([3.148e-7, 1e-6, 2e-5, 0.3]),),
    ),
    "quotients rounded down": (
        lambda x: (
            torch.floor_divide(x[:, None], x), torch.div(x[:, None], x, rounding_mode="floor"),
            1 / torch.floor_divide(x[:, None], x)
        ),
        (torch.cat([EDGES, torch.tensor([-1.0, 2, -2, 6, 0.1, -0.3, 1e30])]),),
    ),
    "softmax of one number": (
        lambda x: tuple(
            f(v, 0) for v in (x[0], x[1], x[2], x[3])
            for f in (torch.softmax, torch.log_softmax, torch.nn.functional.softmin)
        ),
        (torch.tensor([3.0, torch.inf, -torch.inf, torch.nan]),),
    ),
    "parts of nothing": (lambda x: (*torch.chunk(x[:0], 3), *torch.chunk(x[:, :0], 2, 1)), (REAL,)),
    "mish": (
        lambda x: 1e3 * torch.nn.functional.mish(x),
        (torch.tensor([-90.0, -30, -10, -3, -0.5, 0, 1e-7, 2, 19.9, 20.1, 1e9]),)
    ),
    "none of the greatest": (lambda x: (torch.topk(x, 0), torch.topk(x, 0, 0, False)), (REAL,)),
    "kthvalue": (lambda x: (torch.kthvalue(x, 2), torch.kthvalue(x, 1, 0, True), torch.kthvalue(x[0, 0], 1)), (REAL,)),
    "places": (lambda x: (torch.nonzero_static(x, size=5), torch.nonzero_static(x[:1], size=9, fill_value=7)), (TIES,)),
    "histc": (
        lambda x: (torch.histc(x), torch.histc(x, 5, -1, 1), torch.histc(0 * x + 2, 4), torch.histc(x[:0], 3)),
        (REAL,),
    ),
    "histogram": (
        lambda x: (
            torch.histogram(x, 5),
            torch.histogram(x, 4, range=(-1.0, 1.0), density=True),
            torch.histogram(x, torch.tensor([-1.0, 0, 0.25, 2]), weight=x.abs()),
        ),
        (REAL,),
    ),
    "distances": (lambda x: tuple(torch.nn.functional.pdist(x, p) for p in (2, 1, 0, torch.inf)), (REAL,)),
    "segments": (
        lambda x: tuple(
            torch.segment_reduce(x, how, lengths=torch.tensor([2, 0, 1]), initial=i)
            for how in ("sum", "mean", "max", "min", "prod")
            for i in (None, 2)
        ),
        (REAL,),
    ),
    "segments in rows": (
        lambda x: torch.segment_reduce(
            x, "sum", offsets=torch.tensor([[0, 3, 3, 7], [0, 1, 2, 7], [0, 7, 7, 7]]), axis=1
        ),
        (REAL,),
    ),
    "strides": (lambda x, y: torch.as_strided_scatter(x, y, (2, 3), (7, 2), 1), (REAL, TIES[:2, :3].contiguous())),
    "bits": (
        lambda x: (
            torch.frexp(x),
            torch.signbit(x),
            torch.copysign(torch.ones(10), x),
            torch.ldexp(x, torch.tensor(3)),
            torch.nextafter(x, x.flip(0)),
            torch.nextafter(x, -x),
        ),
        (EDGES,),
    ),
    "bits of doubles": (
        lambda x: (torch.frexp(x), torch.signbit(x), torch.nextafter(x, x + 1), torch.copysign(x, -2)),
        (EDGES.double() * 1e-280,),
    ),
    "writes into a number": (
        lambda x: (
            x.index_fill(0, torch.tensor([0]), 3),
            x.index_add(0, torch.tensor(0), x),
            x.index_copy(0, torch.tensor([0]), x.reshape(1) + 1),
        ),
        (torch.tensor(2.0),),
    ),
    "repeat_interleave by computed counts": (
        lambda x, n: (torch.repeat_interleave(x, n, 0), torch.repeat_interleave(n), x.repeat_interleave(n + 1, 0)),
        (torch.arange(8).reshape(4, 2), torch.tensor([1, 2, 0, 3])),
    ),
    "scatter_reduce of truth values": (
        lambda x, at, rows: tuple(
            x.scatter_reduce(0, at, rows, how, include_self=own)
            for how in ("amax", "amin", "sum", "prod")
            for own in (True, False)
        ),
        (
            torch.tensor([True, False, True, False]),
            torch.tensor([0, 1, 0, 1, 3]),
            torch.tensor([False, True, False, True, False]),
        ),
    ),
    "masked_scatter": (lambda x, y: torch.masked_scatter(x[0], y > 1, x), (REAL, TIES)),
    "ones of a number": (
        lambda x: (torch.ones(_count(x)) * 2, torch.zeros(2, x.item(), dtype=torch.int8), torch.full((_count(x),), 7)),
        (torch.tensor(3),)
    ),
    "copies": (
        lambda x: (
            torch.view_copy(x, (7, 3)),
            torch.permute_copy(x, (1, 0)),
            torch.narrow_copy(x, 1, 2, 3),
            x[0, 0].unfold(0, 1, 1),
        ),
        (REAL,),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_torchs(name: str) -> None:
    function, inputs = CASES[name]
    agrees(function, *inputs)


@pytest.mark.parametrize("ends", [[4, 4, 16], [0, 9, 16], [16, 16, 16]])
def test_products_of_groups(ends: list[int]) -> None:
    def products(x: Any, y: Any, ends: Any) -> Any:
        rows, stack = x.bfloat16(), y.bfloat16()
        return tuple(
            torch._grouped_mm(a, b, offs=e).float() for a, b,
            e in ((rows, stack, ends), (stack, stack, None), (rows, rows, ends), (stack, rows, ends))
        )

    inputs = torch.randn(16, 16), torch.randn(3, 16, 16), torch.tensor(ends, dtype=torch.int32)
    agrees(products, *inputs, rtol=8e-3, atol=0.02)


@pytest.mark.parametrize("dim", [None, 0, 1])
def test_neighbours_that_are_equal(dim: int | None) -> None:
    for x in (torch.tensor([[1, 1, 2], [1, 1, 2], [2, 2, 2], [1, 1, 2]]), torch.tensor([[5.0]])):
        agrees(lambda x: torch.unique_consecutive(x, True, True, dim), x)


def test_segments_by_indices_are_refused() -> None:
    from tilewright.relay.expr import var
    from tilewright.relay.frontend.pytorch.selection import segment_reduce

    class Refusing:
        def refuse(self, why: str) -> None:
            raise ModelError(why, code="TW0107")

    with pytest.raises(ModelError, match="neither 'lengths' nor 'offsets' is given"):
        segment_reduce(var("x", shape=(3,)), "sum", Refusing())  # type: ignore[arg-type]


def test_stored_tensors_of_eight_bit_floats_are_refused() -> None:
    class Narrow(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.ones(3).to(torch.float8_e4m3fn))

        def forward(self, x: Any) -> Any:
            return x * self.scale.to(torch.float32)

    traced = torch.jit.trace(Narrow(), torch.ones(3))
    with pytest.raises(
        ModelError, match="'scale' has elements of type float8_e4m3fn, which is not supported; convert it to float16"
    ):
        from_pytorch(traced, [("x", ((3,), "float32"))])
