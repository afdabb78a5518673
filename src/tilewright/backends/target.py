"""`Target`: the processor for which code is generated, as text, a dictionary or JSON.

    Target("llvm")                                                   this machine
    Target("llvm -mcpu=x86-64-v3")                                   any x86-64 with AVX2
    Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")      another architecture
    Target({"kind": "llvm", "mcpu": "znver4", "mattr": ["-avx512f"]})
    Target("cuda -host=llvm")                                        with a host, also Target("cuda", host="llvm")
    Target("c")                                                      this machine, by C text and a C compiler
    Target("npu, llvm -mcpu=znver4")                                 accelerators with their options, then the processor

    Target("cuda")                                                   a GPU: code is not made for it (`named_kinds.py`)

A target is immutable and compared by its text. The first word names the back end, which checks the options and derives
the `Machine` (vector width, registers, caches) for schedules. Nothing here needs LLVM.
"""

from __future__ import annotations

import contextvars
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from tilewright.backends.accelerator_targets import Accelerator, parts, split_accelerators
from tilewright.backends.base import LIST, NUMBER
from tilewright.backends.cpu import processors
from tilewright.backends.cpu.backend import nearest
from tilewright.backends.named_kinds import NAMED_KINDS, named_options
from tilewright.backends.offload_kinds import (
    OFFLOAD_MODULES,
    is_offload_kind,
    offload_attributes,
    offload_kinds,
    offload_options,
)
from tilewright.backends.registry import backend_names, find_backend, has_backend
from tilewright.base.errors import TargetError
from tilewright.base.forks import lazy_attribute
from tilewright.base.json_reading import read_json
from tilewright.base.nd import device
from tilewright.base.plugins import find_accelerator
from tilewright.base.types import DataType
from tilewright.ir.op_attributes import known_targets
from tilewright.runtime.host import host_arch, host_features, host_triple

if TYPE_CHECKING:
    from tilewright.backends.base import Backend
    from tilewright.backends.machine import Machine

_CURRENT: contextvars.ContextVar[tuple[Target, ...]] = contextvars.ContextVar("target", default=())


class TargetKind(str):
    """The name of a kind of target, as a string and as `.name`."""

    __slots__ = ()

    @property
    def name(self) -> str:
        return str(self)


class Target:
    """A machine to compile for. `attrs` holds the options as given.

    Raises `TargetError` for unknown kinds, options, CPUs and architectures.
    """

    def __init__(
        self, target: str | Mapping[str, Any] | Target, host: str | Mapping[str, Any] | Target | None = None
    ) -> None:
        if (offload := _offload(target)) is not None:
            self.accelerators: tuple[Accelerator, ...] = ()
            self.kind, self.attrs = TargetKind(offload[0]), offload[1]
            self.keys: tuple[str, ...] = (offload[0],)
            self.host: Target | None = getattr(target, "host", None) if host is None else Target(host)
            return
        self.accelerators, processor = _split_accelerators(target)
        kind, attrs, own_host = _parse(processor)
        self.kind = TargetKind(kind)
        self.attrs = attrs
        self.host = None if host is None and own_host is None else Target(own_host if host is None else host)
        given = tuple(attrs.get("keys", ()))
        model = (attrs["device"],) if "device" in attrs else ()
        named = NAMED_KINDS.get(kind) if not self.accelerators else None
        self.keys = tuple(dict.fromkeys((*model, *given, *(self.backend.keys if named is None else named))))
        if named is None:
            self.backend.check(self)

    @property
    def processor(self) -> Target:
        """The target without accelerators; for a kind that computes parts of a network, its host."""
        if is_offload_kind(self.kind):
            return self.host or Target("llvm")
        return Target(str(self).rpartition(", ")[2], self.host) if self.accelerators else self

    def with_host(self, host: str | Mapping[str, Any] | Target) -> Target:
        """Return the same target with another host."""
        return Target(self, host)

    @property
    def backend(self) -> Backend:
        """The back end of the target's kind; for a kind that computes parts of a network, that of its host.

        Raises `TargetError` for a kind that code is not made for, such as `cuda`.
        """
        return self.processor.backend if is_offload_kind(self.kind) else find_backend(self.kind)

    @property
    def mtriple(self) -> str:
        return str(self.attrs.get("mtriple") or host_triple())

    @property
    def mcpu(self) -> str:
        """The CPU as given; the default is `native` if the triple is this machine's, else `generic`."""
        return str(self.attrs.get("mcpu") or ("native" if self._for_host_arch else "generic"))

    @property
    def mattr(self) -> tuple[str, ...]:
        """Changes to the features of the CPU, each with its sign: `("+avx2", "-avx512f")`."""
        return tuple(self.attrs.get("mattr", ()))

    def get_target_device_type(self) -> int:
        """Return DLPack's number of the kind of device that the target is for."""
        return device(str(self.processor.kind)).device_type

    @property
    def device_name(self) -> str:
        return str(self.attrs.get("device", ""))

    @property
    def _for_host_arch(self) -> bool:
        return "mtriple" not in self.attrs or self.mtriple.split("-")[0] == host_arch()

    @property
    def is_native(self) -> bool:
        """Whether code is generated for exactly this machine's processor."""
        return self.mcpu == "native"

    @property
    def family(self) -> str:
        """The architecture family: `x86`, `aarch64`, `arm`, `riscv` or `wasm`."""
        return processors.FAMILIES[self.mtriple.split("-")[0]]

    @property
    def object_format(self) -> str:
        """The format of object files: `elf`, `coff`, `macho` or `wasm`."""
        return processors.object_format(self.mtriple)

    @property
    def pointer_bytes(self) -> int:
        """Bytes of an address and of C's `size_t`: 4 or 8."""
        return processors.pointer_bytes(self.mtriple)

    @property
    def has_threads(self) -> bool:
        """Whether parallel loops run on several threads; elsewhere the calling thread runs them."""
        return processors.has_threads(self.mtriple)

    @lazy_attribute
    def features(self) -> frozenset[str]:
        """LLVM's names of the processor's features that generated code depends on."""
        found = set(host_features() if self.is_native else processors.cpu_features(self.family, self.mcpu))
        for change in self.mattr:
            if change[0] == "+":
                found.add(change[1:])
            else:
                found.discard(change[1:])
        if self.family == "x86" and "avx512f" not in found:  # disabling a base feature disables those that depend on it
            found = {f for f in found if not f.startswith("avx512")}
        return frozenset(found)

    @lazy_attribute
    def vector_bits(self) -> int:
        """Width of a vector register in bits: 128, 256 or 512."""
        return self.machine.vector_bits

    @property
    def vector_registers(self) -> int:
        """Number of vector registers."""
        return self.machine.vector_registers

    @lazy_attribute
    def has_fma(self) -> bool:
        return processors.has_fma(self.family, self.features)

    def lanes(self, dtype: str | DataType) -> int:
        """Return the number of values of `dtype` in one vector register."""
        return max(1, self.vector_bits // 8 // DataType(dtype).element.itemsize)

    @property
    def cores(self) -> int:
        """Number of cores that code may use: `-num-cores`, else those available to this process, else 4.

        It is 1 on systems without threads.
        """
        return self.machine.cores

    @property
    def l1_bytes(self) -> int:
        """Bytes of the first-level data cache of one core."""
        return self.machine.l1_bytes

    @property
    def l2_bytes(self) -> int:
        """Bytes of the second-level cache of one core."""
        return self.machine.l2_bytes

    def export(self) -> dict[str, Any]:
        """Return the target as a JSON-ready dictionary; `Target(t.export()) == t`."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in self.attrs.items()}
        beside = {"accelerators": ", ".join(map(str, self.accelerators))} if self.accelerators else {}
        return {"kind": str(self.kind), **plain, **beside}

    def __str__(self) -> str:
        if is_offload_kind(self.kind):
            return str(Accelerator(self.kind, offload_options(self.kind, self.attrs)))
        options = (
            f"-{k}={','.join(v) if isinstance(v, tuple) else shlex.quote(str(v))}" for k, v in self.attrs.items())
        return ", ".join([*map(str, self.accelerators), " ".join([str(self.kind), *options])])

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and (self.kind, self.attrs, self.accelerators) == (
            other.kind, other.attrs, other.accelerators
        )

    def __hash__(self) -> int:
        return hash(str(self.kind)) ^ hash(frozenset(self.attrs.items()))

    @property
    def machine(self) -> Machine:
        """The machine model for tensor expressions and schedules."""
        return self.backend.machine(self)

    def __enter__(self) -> Self:
        """Make this the current target, and its machine the current one for `topi`."""
        from tilewright.backends import kernel_options

        _CURRENT.set((*_CURRENT.get(), self))
        kernel_options.enter(kernel_options.KernelOptions(self.machine))
        return self

    def __exit__(self, *_: object) -> None:
        from tilewright.backends import kernel_options

        _CURRENT.set(_CURRENT.get()[:-1])
        kernel_options.leave()

    @staticmethod
    def current(allow_none: bool = True) -> Target | None:
        """Return the target of the innermost `with target:`.

        Without one, return None, or raise `TargetError` if `allow_none` is false.
        """
        stack = _CURRENT.get()
        if not stack and not allow_none:
            raise TargetError(
                "no target is set here; write `with Target('llvm'):` around this, or pass a target", code="TW0514")
        return stack[-1] if stack else None

    @staticmethod
    def target_or_current(target: Any) -> Target:
        """Return the given target, or that of the innermost `with target:`. Raises `TargetError` if there is neither.
        """
        if target is not None:
            return Target(target)
        Target.current(allow_none=False)
        return _CURRENT.get()[-1]

    @staticmethod
    def canon_target(target: Any) -> Target | None:
        """Return a target, or None for None."""
        return None if target is None else Target(target)

    @staticmethod
    def canon_target_and_host(target: Any, target_host: Any = None) -> tuple[Target | None, Target | None]:
        """Return a target that has the host, and its host. Raises `TargetError` for a host without a target."""
        if target is None:
            if target_host is not None:
                raise TargetError(f"the host '{target_host}' is given without a target; give a target", code="TW0514")
            return None, None
        found = _on_host(target, target_host)
        return found, found.host

    @staticmethod
    def canon_multi_target(multi_targets: Any) -> list[Target]:
        """Return a list of targets: from one target, a list, or a mapping whose values are targets."""
        return Target.canon_multi_target_and_host(multi_targets)

    @staticmethod
    def canon_multi_target_and_host(target: Any, target_host: Any = None) -> list[Target]:
        """Return a list of targets that have the host. Raises `TargetError` if no target is given."""
        if target is None:
            raise TargetError("no target is given; write for example 'llvm'", code="TW0514")
        if isinstance(target, Mapping) and "kind" not in target:
            target = list(target.values())
        listed = target if isinstance(target, Sequence) and not isinstance(target, str) else [target]
        return [_on_host(t, target_host) for t in listed]

    @staticmethod
    def canon_target_map_and_host(
        target_map: Mapping[Any, Any], target_host: Any = None
    ) -> tuple[dict[Target, Any], Target | None]:
        """Return a mapping whose keys are targets that have the host, and the host."""
        found = {_on_host(t, target_host): value for t, value in target_map.items()}
        return found, next((t.host for t in found if t.host is not None), Target.canon_target(target_host))

    @staticmethod
    def combined(targets: Sequence[Any]) -> Target:
        """Return one target of a processor and of kinds that compute parts of a network: `[llvm, my_npu]` ->
        `my_npu, llvm`. The default processor is the host of the first one. Raises `TargetError` for two processors."""
        listed = [t if isinstance(t, Target) else Target(t) for t in targets]
        offloads = [t for t in listed if is_offload_kind(t.kind)]
        processors = list(dict.fromkeys(t for t in listed if not is_offload_kind(t.kind))) or [offloads[0].processor]
        if len(processors) > 1:
            raise TargetError(
                f"the targets name {len(processors)} processors ({', '.join(map(str, processors))}), but a program has "
                "one", code="TW0504")
        return Target(", ".join(map(str, [*offloads, *processors])), processors[0].host) if offloads else processors[0]

    @staticmethod
    def list_kinds() -> list[str]:
        """Return the kinds of processors, and the registered kinds that compute parts of a network."""
        return sorted({*backend_names(), *offload_kinds()})


def _on_host(target: Any, host: Any) -> Target:
    """Return a target with a host; a host of None leaves that of the target."""
    found = target if isinstance(target, Target) else Target(target)
    return found if host is None else found.with_host(host)


def _offload(target: Any) -> tuple[str, dict[str, Any]] | None:
    """Return the kind and the attributes of a target that computes parts of a network, without a processor; None for
    any other target."""
    if isinstance(target, Target):
        return (str(target.kind), dict(target.attrs)) if is_offload_kind(target.kind) else None
    if isinstance(target, Mapping):
        kind, options = str(target.get("kind", "")), {str(k): v for k, v in target.items() if k not in ("kind", "host")}
    elif isinstance(target, str) and (words := target.split(maxsplit=1)):
        kind, options = words[0], {}
    else:
        return None
    if not is_offload_kind(kind) and not (kind in OFFLOAD_MODULES and find_accelerator(kind) is not None):
        return None
    if isinstance(target, str):
        if len(parts(target)) > 1:
            return None
        options = _split(target)[1]
    return kind, offload_attributes(kind, options)


def _split_accelerators(target: Any) -> tuple[tuple[Accelerator, ...], Any]:
    """Return the accelerators before the processor, and the processor's part."""
    if isinstance(target, Target):
        return target.accelerators, target
    if isinstance(target, str) and target.lstrip().startswith("{"):
        try:
            target = read_json(target)
        except ValueError as error:
            raise TargetError(f"the target is not valid JSON: {error}", code="TW0501") from error
    if isinstance(target, Mapping) and "accelerators" in target:
        return split_accelerators(f"{target['accelerators']}, llvm")[0], {
            k: v for k, v in target.items() if k != "accelerators"}
    if not isinstance(target, str):
        return (), target
    accelerators, processor = split_accelerators(target)
    _check_parts(target, [a.name for a in accelerators], processor.split(" ", maxsplit=1)[0])
    return accelerators, processor


def _check_parts(text: str, accelerators: list[str], processor: str) -> None:
    """Check that the parts of a target are different accelerators and one processor after them.

    Raises `TargetError` otherwise.
    """
    names = [*accelerators, processor]
    kinds = [n for n in names if has_backend(n)]
    twice = next((n for n in names if names.count(n) > 1), None)
    if len(kinds) > 2:
        raise TargetError(
            f"the target '{text}' names {len(kinds)} processors ({', '.join(kinds)}), but a program has one; give "
            "accelerators, then one processor",
            code="TW0504")
    if twice is not None:
        raise TargetError(
            f"the target '{text}' names {twice} twice; give it once, with all of its options", code="TW0504")
    if len(kinds) > 1:
        raise TargetError(
            f"the target '{text}' names two processors, {' and '.join(kinds)}, but a program has one; remove "
            f"{kinds[0]}",
            code="TW0504")
    if kinds and not has_backend(processor):
        raise TargetError(
            f"the target '{text}' has {kinds[0]} before {processor}; the processor comes last: "
            f"'{', '.join([*accelerators[:-1], processor, kinds[0]])}'", code="TW0504")


def _parse(target: str | Mapping[str, Any] | Target) -> tuple[str, dict[str, Any], Any]:
    """Return the kind, the options, checked and in normal form, and the host, which may be an option (`-host=llvm`)."""
    if isinstance(target, Target):
        return str(target.kind), dict(target.attrs), target.host
    if isinstance(target, str):
        kind, options = _split(target)
    elif isinstance(target, Mapping):
        options = {str(k): v for k, v in target.items() if k != "kind"}
        kind = str(target.get("kind", ""))
    else:
        raise TargetError(f"a target is text, a dictionary or a Target, not {type(target).__name__}", code="TW0501")
    host = options.pop("host", None)
    if not has_backend(kind):
        if kind in NAMED_KINDS:
            return kind, named_options(options), host
        if kind in known_targets():
            raise TargetError(
                f"'{kind}' computes only parts of a network; add a processor for the rest: '{kind}, "
                "llvm'", code="TW0504")
        raise TargetError(f"'{kind}' is not a kind of target: {nearest(kind, backend_names(), 'kind')}", code="TW0502")
    known = find_backend(kind).options
    return kind, {name: _option(name, value, known) for name, value in options.items()}, host


def _split(text: str) -> tuple[str, dict[str, Any]]:
    """Split `llvm -mcpu=znver4 …` into its kind and raw options; `-mcpu znver4` is accepted, too."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"the target '{text}' cannot be read: {error}", code="TW0501") from error
    if not words:
        raise TargetError("the target is empty; write for example 'llvm' or 'llvm -mcpu=x86-64-v3'", code="TW0501")
    options: dict[str, Any] = {}
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("-"):
            raise TargetError(
                f"'{word}' in the target '{text}' is not an option; options start with a dash, as in -mcpu=znver4",
                code="TW0501")
        name, equals, value = word.lstrip("-").partition("=")
        options[name] = value if equals else next(rest, "")
    return words[0], options


def _option(name: str, value: Any, known: Mapping[str, str]) -> Any:
    kind = known.get(name)
    if kind is None:
        raise TargetError(f"'-{name}' is not an option of a target: {nearest(name, known, 'option')}", code="TW0502")
    if value in ("", None):
        raise TargetError(f"the target's option '-{name}' has no value", code="TW0501")
    if kind == NUMBER:
        if not str(value).isdigit():
            raise TargetError(f"the target's option '-{name}' is '{value}'; it must be a number", code="TW0501")
        return int(value)
    if kind == LIST:
        return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else tuple(map(str, value))
    return str(value)
