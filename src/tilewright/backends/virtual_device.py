"""`VirtualDevice`: a device, the target of its code, and a scope of its memory, as annotations of values name them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.backends.target import Target
from tilewright.base.nd import Device

UNKNOWN_DEVICE_TYPE = -1


@dataclass(frozen=True, slots=True)
class VirtualDevice:
    """Where a value is computed and held. A part that is not given is free."""

    device: Device | None = None
    target: Target | None = None
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
    def virtual_device_id(self) -> int:
        """The number of the device of its kind; -1 if no device is given."""
        return -1 if self.device is None else self.device.index
