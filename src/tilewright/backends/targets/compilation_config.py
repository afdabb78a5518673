"""`CompilationConfig`: the targets and devices of a program for several devices, and the defaults for its values.

    config = make_compilation_config(PassContext(), [Target("llvm"), Target("cuda")])
    relay.transform.PlanDevices(config)(mod)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tilewright.backends.targets.described import DESCRIBED, is_described
from tilewright.backends.targets.target import Target
from tilewright.base.errors import TargetError
from tilewright.base.nd import Device, cpu, device
from tilewright.ir.transform import PassContext
from tilewright.ir.virtual_device import VirtualDevice

FALLBACK: Final = "relay.fallback_device_type"
"""Option with DLPack's number of the kind of the default device."""


@dataclass(frozen=True)
class CompilationConfig:
    """The targets of a program. Shapes and sizes of memory are computed by `host_virtual_device`, and values whose
    device is free by `default_primitive_virtual_device`."""

    primitive_targets: tuple[Target, ...]
    """The targets of kernels, one for each kind of device."""
    host_target: Target
    default_primitive_virtual_device: VirtualDevice
    host_virtual_device: VirtualDevice

    @property
    def optional_homogeneous_target(self) -> Target | None:
        """The target of all kernels, or None if there are several."""
        return self.primitive_targets[0] if len(self.primitive_targets) == 1 else None

    def canonical(self, given: VirtualDevice) -> VirtualDevice:
        """Return a virtual device with its device and its target, where one of both is given.

        Raises `TargetError` for a device that no target is for.
        """
        place = given.device
        if place is None and given.target is not None:
            place = _device_of(given.target)
        if place is None or given.target is not None:
            return replace(given, device=place)
        return replace(given, device=place, target=_target_for(place, (*self.primitive_targets, self.host_target)))


def make_compilation_config(ctxt: PassContext, target: Any, target_host: Any = None) -> CompilationConfig:
    """Return the configuration for a target, a list of targets, or a mapping whose values are targets.

    The default device is that of the only target, or the device of the option `relay.fallback_device_type` of `ctxt`,
    or the CPU. Raises `TargetError` if no target is for it.
    """
    targets = tuple(dict.fromkeys(Target.canon_multi_target_and_host(target, target_host)))
    host = Target.canon_target(target_host) or next((t.host for t in targets if t.host is not None), None) or next(
        (t for t in targets if _device_of(t).kind == "cpu"), None) or Target("llvm")
    fallback = int(ctxt.get(FALLBACK))
    default = _default_device(targets, fallback)
    return CompilationConfig(
        targets, host, VirtualDevice(default, _target_for(default, (*targets, host))), VirtualDevice(cpu(0), host))


def _default_device(targets: Sequence[Target], fallback: int) -> Device:
    kinds = list(dict.fromkeys(_device_of(t) for t in targets))
    if fallback:
        found = next((d for d in kinds if d.device_type == fallback), None)
        if found is None:
            raise TargetError(
                f"the option {FALLBACK} is {fallback}, but no target is for devices of that kind; the targets are "
                f"{', '.join(map(str, targets))}", code="TW0506")
        return found
    return kinds[0] if len(kinds) == 1 else cpu(0)


def _device_of(target: Target) -> Device:
    kind = str(target.kind)
    return device(DESCRIBED[kind].device if is_described(kind) else "cpu")


def _target_for(place: Device, targets: Sequence[Target]) -> Target:
    found = next((t for t in targets if _device_of(t).kind == place.kind), None)
    if found is None:
        raise TargetError(
            f"no target is for the device {place}; the targets are {', '.join(map(str, targets))}", code="TW0506")
    return found
