"""Domains: sets of values that must be on one device, for `PlanDevices`.

A domain of data has one device for its place (device and target) and one scope of memory; both are found by union-find.
A domain of a function has one domain for each parameter and one for the result.

    unify(data, data)             same place and same scope
    unify(function, function)     parameter by parameter, and the results
    unify(function, data)         everything in the function is in the domain of the data
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tilewright.base.types import FuncType, Type
from tilewright.ir.virtual_device import FREE, VirtualDevice, joined_places


@dataclass(eq=False, slots=True)
class _Cell:
    """A node of a union-find forest; that of a root has the part of a device that is known."""

    known: VirtualDevice = FREE
    parent: _Cell | None = None

    def root(self) -> _Cell:
        found = self
        while found.parent is not None:
            found = found.parent
        cell = self
        while cell.parent is not None:
            cell.parent, cell = found, cell.parent
        return found


@dataclass(eq=False, slots=True)
class Data:
    """The domain of tensors, tuples, references and data types."""

    place: _Cell = field(default_factory=_Cell)
    scope: _Cell = field(default_factory=_Cell)

    def device(self) -> VirtualDevice:
        """Return what is known of the device."""
        return replace(self.place.root().known, memory_scope=self.scope.root().known.memory_scope)

    def constrain(self, device: VirtualDevice) -> bool:
        """Require a device; return False, without a change, if it contradicts the known one."""
        return self.join(Data(_Cell(replace(device, memory_scope="")), _Cell(VirtualDevice(
            memory_scope=device.memory_scope))))

    def join(self, other: Data) -> bool:
        """Merge both domains; return False, without a change, if they contradict each other."""
        joined = self.device().joined(other.device())
        if joined is None:
            return False
        _merge(self.place, other.place, replace(joined, memory_scope=""))
        _merge(self.scope, other.scope, VirtualDevice(memory_scope=joined.memory_scope))
        return True

    def join_place(self, other: Data) -> bool:
        """Merge the places of both domains, not their scopes; return False if the places contradict each other."""
        joined = joined_places(self.place.root().known, other.place.root().known)
        if joined is not None:
            _merge(self.place, other.place, joined)
        return joined is not None

    def default(self, device: VirtualDevice) -> None:
        """Use the place of `device` if none is known."""
        place = self.place.root()
        if place.known.device is None:
            place.known = replace(device, memory_scope="")


@dataclass(eq=False, slots=True)
class Functional:
    """The domain of a function."""

    params: tuple[Domain, ...]
    result: Domain


Domain = Data | Functional


def _merge(a: _Cell, b: _Cell, known: VirtualDevice) -> None:
    one, other = a.root(), b.root()
    if one is not other:
        other.parent = one
    one.known = known


def domain_of(kind: Type) -> Domain:
    """Return a new domain for values of a type."""
    if isinstance(kind, FuncType):
        return Functional(tuple(map(domain_of, kind.arg_types)), domain_of(kind.ret_type))
    return Data()


def parts(domain: Domain) -> Iterator[Data]:
    """Yield the domains of data in a domain, that of the result first."""
    if isinstance(domain, Data):
        yield domain
        return
    yield from parts(domain.result)
    for p in domain.params:
        yield from parts(p)


def result_of(domain: Domain) -> Data:
    """Return the domain itself, or that of the last result of a function."""
    while isinstance(domain, Functional):
        domain = domain.result
    return domain


def unify(a: Domain, b: Domain) -> bool:
    """Merge two domains; return False if they contradict each other. Domains of data are then unchanged."""
    if isinstance(a, Data) and isinstance(b, Data):
        return a.join(b)
    if isinstance(a, Functional) and isinstance(b, Functional):
        return unify(a.result, b.result) and all(unify(x, y) for x, y in zip(a.params, b.params, strict=True))
    data, function = (a, b) if isinstance(a, Data) else (b, a)
    assert isinstance(data, Data)
    return all(data.join(p) for p in parts(function))


def set_defaults(domain: Domain, device: VirtualDevice) -> None:
    """Use `device` for what is free: first for the result, then the result's device for the parameters."""
    if isinstance(domain, Data):
        domain.default(device)
        return
    set_defaults(domain.result, device)
    chosen = result_of(domain.result).device()
    for p in domain.params:
        for d in parts(p):
            d.default(chosen)
