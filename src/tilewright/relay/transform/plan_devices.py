"""Choose a device for every value, and copy values where the devices differ.

    fn (%a, %b) { subtract(on_device(exp(%a), virtual_device="cpu:0"), %b) }       %b is on the default device, a GPU
    ->
    fn (%a {virtual_device=CPU}, %b {virtual_device=GPU}, virtual_device=GPU) {
      subtract(device_copy(on_device(exp(%a), virtual_device=CPU, constrain_result=True), CPU, GPU), %b)
    }

The steps are functions and methods below, in this order:

1. `_with_moved_marks` moves `on_device` out of projections of tuples, and fixes the result of a function that ends
   with it.
2. `_Domains.collect` merges the domains (`device_domains.py`) of values that must be on one device: arguments and
   result of an operator, a variable and its value, parameters and arguments. Data that is needed on another device
   keeps its domain.
3. `_Domains.default` gives domains without a device a default: results of functions first, then their parameters.
4. `_Placement` removes the old marks and writes the new ones.

With one device instead of a configuration, the pass checks that no value is on another one, and removes the marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from tilewright.base.errors import TargetError
from tilewright.base.global_functions import register_func
from tilewright.base.types import FuncType, TensorType, TupleType, Type
from tilewright.ir.module import IRModule
from tilewright.ir.transform import Pass, PassContext
from tilewright.ir.virtual_device import FREE, VirtualDevice, virtual_device
from tilewright.relay.adt import Constructor, Match, pattern_vars
from tilewright.relay.expr import (
    Call,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefWrite,
    TupleGetItem,
    Var,
)
from tilewright.relay.node_labels import short
from tilewright.relay.op.annotation import DeviceCopy, OnDevice
from tilewright.relay.op.memory import AllocStorage
from tilewright.relay.transform.device_domains import (
    Data,
    Domain,
    Functional,
    domain_of,
    parts,
    result_of,
    set_defaults,
    unify,
)
from tilewright.relay.visitor import operands, post_order, rewrite, with_operands

_KERNEL = ("Primitive", "Compiler")
"""Attributes of functions that run as one kernel, so that their bodies have no devices of their own."""
_WITHOUT_DEVICE = (Function, GlobalVar, Constructor)
"""Values of which no device holds anything."""


class Devices(Protocol):
    """The devices of a program, as `tvm.target.CompilationConfig` has them."""

    @property
    def default_primitive_virtual_device(self) -> VirtualDevice: ...

    @property
    def host_virtual_device(self) -> VirtualDevice: ...

    def canonical(self, given: VirtualDevice) -> VirtualDevice:
        """Return a virtual device with both its device and its target."""
        ...


@dataclass(frozen=True)
class PlanDevices(Pass):
    """Choose the device of each value, and insert `device_copy` between devices. Needs known types.

    `config` is the result of `tvm.target.make_compilation_config`. Or it is one device (a `tvm.device` or its name):
    then the marks are removed, and a value on another device raises `TargetError`. Values other than tensors and tuples
    of tensors cannot be copied: where they are needed on two devices, `TargetError` is raised.
    """

    config: Any = "cpu:0"

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        if not hasattr(self.config, "canonical"):
            here = virtual_device(self.config)
            return mod.map_functions(lambda f: rewrite(f, lambda e: _unmarked(e, here)), Function)
        mod = mod.map_functions(_with_moved_marks, Function)
        domains = _Domains(mod, self.config)
        functions = [f for _, f in mod.items() if isinstance(f, Function)]
        for f in functions:
            domains.collect(f)
        domains.join_loose()
        for f in functions:
            domains.default(f)
        placement = _Placement(domains)
        return mod.map_functions(placement.placed, Function)


def _unmarked(e: Expr, here: VirtualDevice) -> Expr | None:
    """Return the value without a mark. Raises `TargetError` if the mark names another device than `here`."""
    if not (isinstance(e, Call) and isinstance(e.op, (OnDevice, DeviceCopy))):
        return None
    named = [e.op.virtual_device] if isinstance(e.op, OnDevice) else [
        e.op.src_virtual_device, e.op.dst_virtual_device]
    for other in named:
        if other.device is not None and other.device != here.device:
            raise TargetError(f"a value is placed on the device {VirtualDevice(other.device)}, but the program runs on "
                              f"{here}; compile for one device", e.span, code="TW0506")
    return e.args[0]


# Step 1.
def _with_moved_marks(function: Function) -> Function:
    moved = rewrite(function, _moved, inside=True)
    assert isinstance(moved, Function)
    return moved


def _moved(e: Expr) -> Expr | None:
    """on_device(t).0 -> on_device(t.0);   fn { on_device(x) } -> fn { on_device(x, constrain_result=True) }."""
    if isinstance(e, TupleGetItem) and isinstance(e.tuple_value, Call) and isinstance(e.tuple_value.op, OnDevice):
        mark = e.tuple_value
        return Call(mark.op, [TupleGetItem(mark.args[0], e.index, e.span)], span=mark.span)
    if not isinstance(e, Function):
        return None
    lets, end = _chain(e.body)
    if not (isinstance(end, Call) and isinstance(end.op, OnDevice)) or end.op.constrain_result or (
            not end.op.constrain_body):
        return None
    body: Expr = Call(OnDevice(end.op.virtual_device, True, True), end.args, span=end.span)
    for let in reversed(lets):
        body = Let(let.var, let.value, body, let.span)
    return e.with_body(body)


def _chain(body: Expr) -> tuple[list[Let], Expr]:
    """Return the lets at the start of a body, and the expression after them."""
    lets = []
    while isinstance(body, Let):
        lets.append(body)
        body = body.body
    return lets, body


# Steps 2 and 3.
class _Domains:
    """The domain of each expression and variable of a module."""

    def __init__(self, mod: IRModule, config: Devices) -> None:
        self.functions, self.config = dict(mod.items()), config
        self._of: dict[Expr, Domain] = {}
        self._needed: dict[Expr, tuple[Domain, ...]] = {}
        self._loose: list[tuple[Domain, Domain]] = []

    def of(self, e: Expr) -> Domain:
        """Return the domain of an expression. Functions and parameters have the devices of their definitions."""
        found = self._of.get(e)
        if found is None:
            found = self._of[e] = self._new(e)
        return found

    def device(self, domain: Domain) -> VirtualDevice:
        """Return the device of a domain: that of the result for a function."""
        return result_of(domain).device()

    def _new(self, e: Expr) -> Domain:
        if isinstance(e, GlobalVar) and isinstance(f := self.functions.get(e.name_hint), Function):
            return self.of(f)
        if isinstance(e, Function):
            known = _type_of(e)
            result = domain_of(known.ret_type) if isinstance(known, FuncType) else Data()
            made: Domain = Functional(tuple(map(self.of, e.params)), result)
            if e.virtual_device_ != FREE:
                self._require(e, made, e.virtual_device_)
            return made
        made = domain_of(_type_of(e))
        if isinstance(e, Var) and e.virtual_device is not None:
            self._require(e, made, e.virtual_device)
        return made

    def _require(self, e: Expr, domain: Domain, device: VirtualDevice) -> None:
        if not result_of(domain).constrain(self.config.canonical(device)):
            _conflict(e, self.device(domain), device)

    def collect(self, root: Function) -> None:
        """Merge the domains of a function, from users to operands."""
        for e in _users_first(root):
            if _is_kernel(e):
                self._one_place(e)
                continue
            for child, domain in zip(operands(e), self.needed(e), strict=True):
                if not unify(domain, self.of(child)) and not _is_data(_type_of(child)):
                    _conflict(child, self.device(self.of(child)), self.device(domain))

    def join_loose(self) -> None:
        """Merge value and result of marks that allow a copy but require no device, where they do not contradict."""
        for value, result in self._loose:
            _ = unify(value, result)

    def default(self, root: Function) -> None:
        """Give all domains of a function a device."""
        usual = self.config.default_primitive_virtual_device
        for e in _users_first(root):
            if isinstance(e, Function):
                set_defaults(self.of(e), usual)
            elif isinstance(e, Call):
                set_defaults(self.of(e), usual)
                for d in self.needed(e):
                    set_defaults(d, self.device(self.of(e)))
        for e in _users_first(root):
            set_defaults(self.of(e), usual)

    def _one_place(self, kernel: Expr) -> None:
        """A kernel runs on one device, though its parameters may be in different memories."""
        whole = self.of(kernel)
        first, *others = parts(whole)
        for p in others:
            if not first.join_place(p):
                _conflict(kernel, p.device(), first.device())

    def needed(self, e: Expr) -> tuple[Domain, ...]:
        """Return the domain in which `e` needs each of its operands."""
        found = self._needed.get(e)
        if found is None:
            found = self._needed[e] = self._needs(e)
        return found

    def _needs(self, e: Expr) -> tuple[Domain, ...]:
        whole = self.of(e)
        match e:
            case Call():
                return self._arguments(e, whole)
            case Function():
                assert isinstance(whole, Functional)
                return (whole.result,)
            case Let():
                return self.of(e.var), whole
            case If():
                return whole, whole, whole
            case RefWrite():
                return whole, self.of(e.ref)
            case Match():
                data = self.of(e.data)
                for v in (v for c in e.clauses for v in pattern_vars(c.lhs)):
                    if not unify(data, self.of(v)):
                        _conflict(v, self.device(self.of(v)), self.device(data))
                return (data, *(whole for _ in e.clauses))
            case _:
                return tuple(whole for _ in operands(e))

    def _arguments(self, e: Call, whole: Domain) -> tuple[Domain, ...]:
        if isinstance(e.op, Constructor):
            return (self.of(e.op), *(whole for _ in e.args))
        if isinstance(e.op, Expr):
            return self._of_function(e, whole)
        if isinstance(e.op, OnDevice):
            return (self._of_mark(e, e.op, whole),)
        if isinstance(e.op, DeviceCopy):
            source = domain_of(_type_of(e.args[0]))
            self._require(e, source, e.op.src_virtual_device)
            self._require(e, whole, e.op.dst_virtual_device)
            return (source,)
        if isinstance(e.op, AllocStorage):
            self._require(e, whole, e.op.virtual_device)
        if -1 in e.op.on_host:
            self._require(e, whole, self.config.host_virtual_device)
        found = []
        for i in range(len(e.args)):
            if i not in e.op.on_host:
                found.append(whole if -1 not in e.op.on_host else domain_of(_type_of(e.args[i])))
                continue
            found.append(Data())
            self._require(e, found[-1], self.config.host_virtual_device)
        return tuple(found)

    def _of_function(self, e: Call, whole: Domain) -> tuple[Domain, ...]:
        called = self.of(e.op)
        if isinstance(called, Data):  # a function in a tuple is where the tuple is
            return (called, *(called for _ in e.args)) if unify(called, whole) else _conflict(
                e, self.device(whole), self.device(called))
        if not unify(called.result, whole):
            _conflict(e, self.device(called), self.device(whole))
        return (called, *called.params)

    def _of_mark(self, e: Call, mark: OnDevice, whole: Domain) -> Domain:
        value = domain_of(_type_of(e.args[0]))
        if mark.constrain_result:
            self._require(e, whole, mark.virtual_device)
        if mark.constrain_body:
            self._require(e, value, mark.virtual_device)
        if mark.constrain_result and mark.constrain_body:
            _ = unify(value, whole)
        elif not mark.constrain_result and not mark.constrain_body:
            self._loose.append((value, whole))
        return value


def _users_first(root: Function) -> list[Expr]:
    """Return the nodes of a function outside of kernels, each when its first user is reached, in reading order."""
    order: list[Expr] = []
    seen: set[Expr] = set()
    stack: list[Expr] = [root]
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        order.append(e)
        if not _is_kernel(e):
            stack.extend(reversed(operands(e)))
    return order


def _is_kernel(e: Expr) -> bool:
    return isinstance(e, Function) and any(e.attrs.get(k) for k in _KERNEL)


def _type_of(e: Expr) -> Type:
    return e.checked_type


def _is_data(t: Type) -> bool:
    """Return whether values of a type can be copied between devices."""
    return isinstance(t, TensorType) or (isinstance(t, TupleType) and all(map(_is_data, t.fields)))


def _conflict(e: Expr, there: VirtualDevice, needed: VirtualDevice) -> NoReturn:
    raise TargetError(
        f"{short(e)} is on {there}, but is needed on {needed}; only tensors are copied between devices, so place both "
        "on one device", e.span, code="TW0506")


# Step 4.
class _Placement:
    """Writes the devices of the domains into functions."""

    def __init__(self, domains: _Domains) -> None:
        self.domains = domains
        self.new: dict[Expr, Expr] = {}

    def placed(self, function: Function) -> Function:
        """Return the function with the devices of its parameters and results, marks and copies."""
        order = _users_first(function)
        kernels = [e for e in order if _is_kernel(e)]
        self.new.update((k, k) for k in kernels)
        for e in order:
            if isinstance(e, Function) and not _is_kernel(e):
                for p in e.params:
                    self.new[p] = self._parameter(p)
        for e in post_order(function, without=kernels):
            if e not in self.new:
                self.new[e] = self._node(e)
        found = self.new[function]
        assert isinstance(found, Function)
        return found

    def _parameter(self, v: Var) -> Var:
        device = self.domains.device(self.domains.of(v))
        if v.virtual_device == device:
            return v
        made = Var(v.name_hint, v.type_annotation, v.span, device)
        made.set_type(v.known_type())
        return made

    def _node(self, e: Expr) -> Expr:
        below = operands(e)
        here = self.domains.device(self.domains.of(e))
        if isinstance(e, Call) and isinstance(e.op, OnDevice):
            return self._at(e.args[0], self.domains.of(e), here)
        needed = self.domains.needed(e)
        if isinstance(e, Let):
            now = [self._at(e.value, needed[0], None), self._at(e.body, needed[1], here)]
        else:
            now = [self._at(o, d, here) for o, d in zip(below, needed, strict=True)]
        if isinstance(e, Call) and isinstance(e.op, DeviceCopy):
            return self._copied(now[0], self.domains.device(needed[0]), here)
        if isinstance(e, Function):
            params = [self.new[p] for p in e.params]
            if now[0] is e.body and all(a is b for a, b in zip(params, e.params, strict=True)) and (
                    e.virtual_device_ == here):
                return e
            return Function(params, now[0], e.declared_ret_type, e.type_params,  # type: ignore[arg-type]
                            {**e.attrs, "virtual_device": here}, e.span)
        return e if all(a is b for a, b in zip(below, now, strict=True)) else with_operands(e, now)

    def _at(self, child: Expr, needed: Domain, around: VirtualDevice | None) -> Expr:
        """Return the new `child` on the device of `needed`, with a mark where this is not the device `around`."""
        found = self.new.get(child, child)
        there, wanted = self.domains.device(self.domains.of(child)), self.domains.device(needed)
        if there != wanted:
            found = self._copied(_marked(found, there), there, wanted)
        return found if wanted == around else _marked(found, wanted)

    def _copied(self, value: Expr, there: VirtualDevice, wanted: VirtualDevice) -> Expr:
        return value if there == wanted else Call(DeviceCopy(there, wanted), [value], span=value.span)


def _marked(e: Expr, device: VirtualDevice) -> Expr:
    """Return a value with a mark that it is on a device; variables and functions have none."""
    if isinstance(e, (Var, *_WITHOUT_DEVICE)) or (isinstance(e, Call) and isinstance(e.op, OnDevice)):
        return e
    return Call(OnDevice(device, True, True), [e], span=e.span)


class _AsWritten:
    """The devices of a planned program: those that are written."""

    default_primitive_virtual_device = FREE
    host_virtual_device = FREE

    def canonical(self, given: VirtualDevice) -> VirtualDevice:
        return given


@register_func("relay.transform.RecoverVirtualDeviceMap")
def virtual_devices(mod: IRModule, expr: Expr) -> Mapping[Expr, VirtualDevice]:
    """Return the device of each value of `expr`, a function of a module that `PlanDevices` returned."""
    domains = _Domains(mod, _AsWritten())
    roots: Sequence[Function] = [f for _, f in mod.items() if isinstance(f, Function)]
    for f in roots:
        domains.collect(f)
    domains.join_loose()
    found = [e for e in post_order(expr) if not isinstance(e, _WITHOUT_DEVICE[1:])]
    return {e: domains.device(domains.of(e)) for e in found}
