"""TVM's `tvm.contrib.dlpack`: functions of this package over the tensors of other frameworks, which share memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.nd import NDArray, from_dlpack

__all__ = ["convert_func", "to_pytorch_func"]


def convert_func(tvm_func: Callable[..., Any], tensor_type: type, to_dlpack_func: Callable[[Any], Any]
                 ) -> Callable[..., Any]:
    """Return a function that takes tensors of `tensor_type`, converted by `to_dlpack_func`, in addition to arrays."""

    def call(*args: Any) -> Any:
        return tvm_func(*(from_dlpack(to_dlpack_func(a)) if isinstance(a, tensor_type) else a for a in args))

    return call


def to_pytorch_func(tvm_func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes tensors of PyTorch, which it reads and writes in place."""
    import torch

    def array(tensor: Any) -> NDArray:
        return from_dlpack(tensor.detach())

    return convert_func(tvm_func, torch.Tensor, array)
