"""Correlation of two images over displacements, and buffers of the latest data of a stream."""

from __future__ import annotations

import numpy as np

from tilewright import te
from tilewright.base.errors import ShapeError
from tilewright.base.types import TensorType, Type
from tilewright.relay.op.registry import Array, Fusion, Op, op, tensors
from tilewright.topi.nn import displacement as topi
from tilewright.topi.shapes import axis_of, differ, is_too_small, require_rank, require_same_dtype, text
from tilewright.topi.windows import both_sides


@op("nn.correlation", kind=Fusion.OPAQUE)
class Correlation(Op):
    """The similarity of patches of two NCHW images at displacements of up to `max_displacement` in steps of `stride2`.

    It is the mean over channels and patch of products, or of absolute differences: (batch, displacements, height,
    width). Source: Dosovitskiy et al., FlowNet, 2015.
    """

    kernel_size: int = 1
    """Height and width of a patch, in pixels; odd."""
    max_displacement: int = 1
    """Largest displacement along height and width, in pixels."""
    stride1: int = 1
    """Step between two patches, in pixels."""
    stride2: int = 1
    """Step between two displacements, in pixels."""
    padding: tuple[int, ...] = (0, 0)
    """Number of zero pixels around both images: (top, left, bottom, right), or fewer numbers."""
    is_multiply: bool = True
    """True averages products, False absolute differences."""
    layout: str = "NCHW"
    """Layout of the images; only "NCHW" exists."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "padding", both_sides(self.padding, 2))

    def _sizes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The spatial shape of the result."""
        border = self.max_displacement + self.kernel_size // 2
        return tuple((n + self.padding[k] + self.padding[2 + k] - 2 * border + self.stride1 - 1) // self.stride1
                     for k, n in enumerate(shape))

    def _steps(self) -> range:
        radius = self.max_displacement // self.stride2
        return range(-radius * self.stride2, radius * self.stride2 + 1, self.stride2)

    def infer(self, data1: Type, data2: Type) -> TensorType:
        """(batch, displacements, height, width) from two images of one type; their dtype."""
        a, b = (require_rank(t, 4, what) for t, what in zip(tensors(data1, data2), ("data1", "data2"), strict=True))
        require_same_dtype((a, b))
        if (self.layout != "NCHW" or any(map(differ, a.shape, b.shape)) or self.kernel_size % 2 == 0
                or min(self.stride1, self.stride2) < 1):
            raise ShapeError(f"images {text(a.shape)} and {text(b.shape)} must be NCHW and equal in shape, the patch "
                             f"{self.kernel_size} odd, and the strides 1 or more")
        sizes = self._sizes(a.shape[2:])
        if any(is_too_small(n, 1) for n in sizes):
            raise ShapeError(f"displacements of {self.max_displacement} with patches of {self.kernel_size} do not fit "
                             f"into images {text(a.shape)}; pad them")
        return TensorType((a.shape[0], len(self._steps()) ** 2, *sizes), a.dtype)

    def reference(self, data1: Array, data2: Array) -> Array:
        top, left, bottom, right = self.padding
        size, far, out = self.kernel_size, self.max_displacement, self._sizes(data1.shape[2:])
        one, other = (np.pad(x, ((0, 0), (0, 0), (top + far, bottom + far + size), (left + far, right + far + size)))
                      for x in (data1, data2))
        count = data1.dtype.type(size * size * data1.shape[1])
        result = np.empty((data1.shape[0], len(self._steps()) ** 2, *out), data1.dtype)
        for q, (dy, dx) in enumerate((dy, dx) for dy in self._steps() for dx in self._steps()):
            for i, j in np.ndindex(*out):
                y, x = i * self.stride1 + 2 * far, j * self.stride1 + 2 * far
                a, b = (one[:, :, y : y + size, x : x + size],
                        other[:, :, y + dy : y + dy + size, x + dx : x + dx + size])
                result[:, q, i, j] = (
                    (a * b if self.is_multiply else np.abs(a - b)).sum((1, 2, 3), dtype=data1.dtype) / count)
        return result

    def compute(self, data1: te.Tensor, data2: te.Tensor) -> te.Tensor:
        return topi.correlation_nchw(data1, data2, self.kernel_size, self.max_displacement, self.stride1, self.stride2,
                                     self.padding, self.is_multiply)


@op("nn.fifo_buffer", kind=Fusion.OPAQUE)
class FifoBuffer(Op):
    """`buffer` with `data` appended along `axis`, and as many elements dropped at its start."""

    axis: int = 0
    """Dimension of the time; negative counts from the end."""

    def infer(self, data: Type, buffer: Type) -> TensorType:
        """The type of `buffer`; `data` may differ along `axis` only."""
        new, kept = tensors(data, buffer)
        require_same_dtype((new, kept))
        at = axis_of(self.axis, kept.ndim)
        if new.ndim != kept.ndim or any(d != at and differ(n, m)
                                        for d, (n, m) in enumerate(zip(new.shape, kept.shape, strict=True))):
            raise ShapeError(f"data {text(new.shape)} and the buffer {text(kept.shape)} must have equal shapes except "
                             f"along axis {at}")
        return kept

    def reference(self, data: Array, buffer: Array) -> Array:
        both = np.concatenate([buffer, data], self.axis)
        return np.take(both, np.arange(data.shape[self.axis], both.shape[self.axis]), self.axis)

    def compute(self, data: te.Tensor, buffer: te.Tensor) -> te.Tensor:
        return topi.fifo_buffer(data, buffer, self.axis)
