"""`VirtualDevice`: a device, the target of its code, and a scope of its memory, as annotations of values name them.

    VirtualDevice(cpu(0))                              the first CPU
    VirtualDevice(cuda(0), Target("cuda"))             a GPU, and the target of its code
    VirtualDevice(memory_scope="global.texture")       a scope of memory on any device
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilewright.base.nd import Device, device

UNKNOWN_DEVICE_TYPE = -1


@dataclass(frozen=True, slots=True)
class VirtualDevice:
    """Where a value is computed and held. A part that is not given is free. `target` is a `tvm.target.Target`."""

    device: Device | None = None
    target: Any = None
    memory_scope: str = ""

    @property
    def kind(self) -> str:
        """The kind of the device; `cpu` if no device is given."""
        return "cpu" if self.device is None else self.device.kind

    @property
    def index(self) -> int:
        return 0 if self.device is None else self.device.index

    @property
    def device_type(self) -> int:
        """DLPack's number of the device kind; -1 if no device is given."""
        return UNKNOWN_DEVICE_TYPE if self.device is None else self.device.device_type

    @property
    def device_type_int(self) -> int:
        """`device_type`, under TVM's name of the plain number."""
        return self.device_type

    @property
    def virtual_device_id(self) -> int:
        """The number of the device of its kind; -1 if no device is given."""
        return -1 if self.device is None else self.device.index

    @property
    def is_free(self) -> bool:
        """Whether no part is given."""
        return self == FREE

    @property
    def literal(self) -> str | None:
        """The device as "kind:index", or "" for any device; None if a target or a scope is given, too."""
        if self.target is not None or self.memory_scope:
            return None
        return "" if self.device is None else f"{self.device.kind}:{self.device.index}"

    def joined(self, other: VirtualDevice) -> VirtualDevice | None:
        """Return the parts that either of both gives; None if they contradict each other."""
        place = joined_places(self, other)
        if place is None or (self.memory_scope and other.memory_scope and self.memory_scope != other.memory_scope):
            return None
        return replace(place, memory_scope=self.memory_scope or other.memory_scope)

    def __str__(self) -> str:
        name = "any device" if self.device is None else f"{self.device.kind}:{self.device.index}"
        target = "" if self.target is None else f" with the target '{self.target}'"
        return f"{name}{target}" + (f" in the memory '{self.memory_scope}'" if self.memory_scope else "")


FREE = VirtualDevice()
"""No part is given."""


def joined_places(a: VirtualDevice, b: VirtualDevice) -> VirtualDevice | None:
    """Return the device and the target that either of both gives, without a scope; None if they contradict each other.
    """
    if (None not in (a.device, b.device) and a.device != b.device) or (
            None not in (a.target, b.target) and a.target != b.target):
        return None
    return VirtualDevice(a.device or b.device, a.target if a.target is not None else b.target)


def virtual_device(given: Any) -> VirtualDevice:
    """Return the virtual device of a `tvm.device`, of a name such as `"cpu:0"` ("" is any device), or of a virtual
    device.

    Raises `TargetError` for an unknown kind of device.
    """
    if isinstance(given, VirtualDevice):
        return given
    if isinstance(given, Device):
        return VirtualDevice(given)
    kind, _, index = str(given).partition(":")
    return VirtualDevice(device(kind, int(index or 0))) if kind else FREE
