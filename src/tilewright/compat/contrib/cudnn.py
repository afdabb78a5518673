"""TVM's `tvm.contrib.cudnn`: whether cuDNN can be called. Programs run on CPUs, so it cannot."""

__all__ = ["exists"]


def exists() -> bool:
    """Return False: no library for GPUs is called."""
    return False
