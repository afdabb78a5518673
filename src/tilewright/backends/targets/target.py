"""`Target`: the processor for which code is generated, as text, a dictionary or JSON.

    Target("llvm")                                                   this machine
    Target("llvm -mcpu=x86-64-v3")                                   any x86-64 with AVX2
    Target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")      another architecture
    Target({"kind": "llvm", "mcpu": "znver4", "mattr": ["-avx512f"]})
    Target("cuda -host=llvm")                                        with a host, also Target("cuda", host="llvm")
    Target("c")                                                      this machine, by C text and a C compiler
    Target("npu, llvm -mcpu=znver4")                                 accelerators with their options, then the processor

A target is immutable and compared by its text. The first word names the back end, which checks the options and derives
the `Machine` (vector width, registers, caches) for schedules. Nothing here needs LLVM.
"""

from __future__ import annotations

import contextvars
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from tilewright.backends.cpu import processors
from tilewright.backends.hooks import HOOKS, hook_of
from tilewright.backends.offload_kinds import (
    OFFLOAD_MODULES,
    is_offload_kind,
    offload_attributes,
    offload_kinds,
    offload_options,
)
from tilewright.backends.registry import backend_names, find_backend
from tilewright.backends.targets.accelerators import Accelerator, parts, split_accelerators
from tilewright.backends.targets.described import DESCRIBED, is_described
from tilewright.backends.targets.features import Features
from tilewright.backends.targets.reading import Read, check_parts, read_json_target, read_target, split, untagged
from tilewright.base.errors import MissingTargetError, TargetError
from tilewright.base.forks import lazy_attribute
from tilewright.base.nd import device
from tilewright.base.plugins import find_accelerator
from tilewright.base.types import DataType
from tilewright.ir import dialects
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
    """A machine to compile for, or a device that is only described. `attrs` holds the options as given, with the
    defaults of a described kind.

    Raises `TargetError` for unknown kinds, options, tags, CPUs and architectures.
    """

    def __init__(
        self, target: str | Mapping[str, Any] | Target, host: str | Mapping[str, Any] | Target | None = None
    ) -> None:
        given = read_json_target(target)
        self.accelerators: tuple[Accelerator, ...] = ()
        if (read := _offload(given)) is None:
            self.accelerators, processor = _split_accelerators(given)
            read = _copied(processor) if isinstance(processor, Target) else read_target(processor)
        self.kind = TargetKind(read.kind)
        self.attrs = read.attrs
        if "devices" in self.attrs:
            self.attrs["devices"] = tuple(map(Target, self.attrs["devices"]))
        chosen = read.host if host is None else host
        self.host: Target | None = None if chosen is None else Target(chosen)
        if is_offload_kind(self.kind):
            self.keys: tuple[str, ...] = (read.kind,)
            return
        own = (self.attrs["device"],) if "device" in self.attrs else ()
        implied = DESCRIBED[read.kind].keys if is_described(read.kind) else self.backend.keys
        self.keys = tuple(dict.fromkeys((*own, *read.keys, *implied)))
        if not is_described(read.kind):
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

    def without_host(self) -> Target:
        """Return the same target without a host."""
        found = Target(self, "llvm")
        found.host = None
        return found

    @property
    def backend(self) -> Backend:
        """The back end of the target's kind; for a kind that computes parts of a network, that of its host. Raises
        `TargetError` for a kind that is only described."""
        return self.processor.backend if is_offload_kind(self.kind) else find_backend(self.kind)

    def compilable(self) -> Self:
        """Return this target. Raises `TargetError` if no code is generated for it."""
        self.backend.check_code(self.processor)
        return self

    @property
    def mtriple(self) -> str:
        """The triple as given; the default is this machine's, and "" for a kind that is only described."""
        return str(self.attrs.get("mtriple") or ("" if is_described(self.kind) else host_triple()))

    @property
    def mcpu(self) -> str:
        """The CPU as given; the default is `native` if the triple is this machine's, else `generic`, and "" for a kind
        that is only described."""
        if is_described(self.kind):
            return str(self.attrs.get("mcpu", ""))
        return str(self.attrs.get("mcpu") or ("native" if self._for_host_arch else "generic"))

    @property
    def mattr(self) -> tuple[str, ...]:
        """Changes to the features of the CPU, each with its sign: `("+avx2", "-avx512f")`."""
        return tuple(self.attrs.get("mattr", ()))

    @property
    def device_name(self) -> str:
        return str(self.attrs.get("device", ""))

    @property
    def model(self) -> str:
        """The name of the machine; `unknown` by default."""
        return str(self.attrs.get("model", "unknown"))

    @property
    def libs(self) -> list[str]:
        """Libraries that code may call."""
        return list(self.attrs.get("libs", ()))

    @property
    def tag(self) -> str:
        """The tag that named the target, or ""."""
        return str(self.attrs.get("tag", ""))

    @property
    def max_num_threads(self) -> int:
        """Threads of a block on a GPU; -1 where the target does not say."""
        return self._number("max_num_threads")

    @property
    def max_block_size_x(self) -> int:
        """Threads of a block along x; -1 where the target does not say."""
        return self._number("max_block_size_x")

    @property
    def max_block_size_y(self) -> int:
        """Threads of a block along y; -1 where the target does not say."""
        return self._number("max_block_size_y")

    @property
    def thread_warp_size(self) -> int:
        """Threads that run in step; -1 where the target does not say."""
        return self._number("thread_warp_size")

    @property
    def max_shared_memory_per_block(self) -> int:
        """Bytes of shared memory of a block; -1 where the target does not say."""
        return self._number("max_shared_memory_per_block")

    @property
    def max_function_args(self) -> int:
        """Arguments that a kernel takes; -1 where the target does not say."""
        return self._number("max_function_args")

    @property
    def supports_integer_dot_product(self) -> bool:
        """Whether products of bytes are one instruction: as given, else `+dotprod` among the features."""
        return bool(self.attrs.get("supports_integer_dot_product", "+dotprod" in self.mattr))

    def _number(self, name: str) -> int:
        return int(self.attrs.get(name, -1))

    def get_kind_attr(self, attr_name: str) -> Any:
        """Return a property of the target's kind: a hook (`RelayToTIR`, `TIRToRuntime`), or `is_external_codegen`,
        which is True for a kind that computes parts of a network. None for any other."""
        if attr_name in HOOKS:
            return hook_of(self.kind, attr_name)
        return True if attr_name == "is_external_codegen" and is_offload_kind(self.kind) else None

    def get_target_device_type(self) -> int:
        """Return DLPack's number of the device that runs the code."""
        kind = DESCRIBED[self.kind].device if is_described(self.kind) else "cpu"
        return device(kind).device_type

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
    def features(self) -> Features:
        """LLVM's names of the processor's features that generated code depends on; `features.has_dotprod` tells about
        one of them, or about one of a microcontroller."""
        if is_described(self.kind):
            return Features((), ("is_test",) if self.kind == "test" else ())
        if processors.is_microcontroller(self.mcpu):
            return Features((), processors.microcontroller_features(self.mcpu, self.mattr))
        found = set(host_features() if self.is_native else processors.cpu_features(self.family, self.mcpu))
        for change in self.mattr:
            if change[0] == "+":
                found.add(change[1:])
            else:
                found.discard(change[1:])
        if self.family == "x86" and "avx512f" not in found:  # disabling a base feature disables those that depend on it
            found = {f for f in found if not f.startswith("avx512")}
        return Features(found, ("is_aarch64",) if self.family == "aarch64" else ())

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
        """Return the target as a JSON-ready dictionary; `Target(t.export()) == t`, and their hosts are equal."""
        beside = {"accelerators": ", ".join(map(str, self.accelerators))} if self.accelerators else {}
        keys = {"keys": list(self.keys)} if is_described(self.kind) else {}
        host = {} if self.host is None else {"host": self.host.export()}
        return {"kind": str(self.kind), **keys, **{k: _plain(v) for k, v in self.attrs.items()}, **beside, **host}

    def __str__(self) -> str:
        if is_offload_kind(self.kind):
            return str(Accelerator(self.kind, offload_options(self.kind, self.attrs)))
        return ", ".join([*map(str, self.accelerators), self._text()])

    def _text(self) -> str:
        """Return the text of the processor. That of a described kind has its keys and sorted attributes; that of
        `composite` is JSON, because the targets in it have options of their own."""
        if "devices" in self.attrs:
            return json.dumps({k: v for k, v in self.export().items() if k != "host"})
        attrs: Mapping[str, Any] = self.attrs
        if is_described(self.kind):
            keys = {"keys": self.keys} if self.keys else {}
            attrs = {**keys, **{k: attrs[k] for k in sorted(attrs)}}
        return " ".join([str(self.kind), *(f"-{k}={_word(v)}" for k, v in attrs.items())])

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Target) and (self.kind, self._others, self.keys, self.accelerators) == (
            other.kind, other._others, other.keys, other.accelerators)

    def __hash__(self) -> int:
        return hash(str(self.kind)) ^ hash(frozenset(self._others.items()))

    @property
    def _others(self) -> dict[str, Any]:
        """The options except `keys`, which may be given or implied."""
        return {k: v for k, v in self.attrs.items() if k != "keys"}

    @property
    def machine(self) -> Machine:
        """The machine model for tensor expressions and schedules."""
        return self.backend.machine(self)

    def __enter__(self) -> Self:
        """Make this the current target, and its machine the current one for `topi`; a kind that is only described has
        none, so that `topi` computes for the default machine."""
        from tilewright.backends import kernel_options

        described = is_described(self.processor.kind)
        options = kernel_options.KernelOptions() if described else kernel_options.KernelOptions(self.machine)
        _CURRENT.set((*_CURRENT.get(), self))
        kernel_options.enter(options)
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
                raise MissingTargetError(
                    f"Target host is not empty when target is empty. The host is '{target_host}'; give a target")
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
            raise MissingTargetError("no target is given; write for example 'llvm'")
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
        """Return the kinds of processors, those that are only described, and the registered kinds that compute parts of
        a network."""
        return sorted({*backend_names(), *DESCRIBED, *offload_kinds()})


def _on_host(target: Any, host: Any) -> Target:
    """Return a target with a host; a host of None leaves that of the target."""
    found = target if isinstance(target, Target) else Target(target)
    return found if host is None else found.with_host(host)


def _plain(value: Any) -> Any:
    """Return the value of an attribute as JSON has it."""
    if isinstance(value, tuple):
        return [t.export() if isinstance(t, Target) else t for t in value]
    return value


def _word(value: Any) -> str:
    """Return the value of an attribute as the text of a target has it."""
    if isinstance(value, tuple):
        return shlex.quote(",".join(value)) if any(" " in v for v in value) else ",".join(value)
    return str(int(value)) if isinstance(value, bool) else shlex.quote(str(value))


def _copied(target: Target) -> Read:
    given = target.keys if is_described(target.kind) else tuple(target.attrs.get("keys", ()))
    return Read(str(target.kind), dict(target.attrs), given, target.host)


def _offload(target: Any) -> Read | None:
    """Return the parts of a target that computes parts of a network, without a processor; None for any other target."""
    if isinstance(target, Target):
        return _copied(target) if is_offload_kind(target.kind) else None
    if isinstance(target, Mapping):
        kind, options = str(target.get("kind", "")), {str(k): v for k, v in target.items() if k != "kind"}
    elif isinstance(target, str) and (words := target.split(maxsplit=1)):
        kind, options = words[0], {}
    else:
        return None
    if not is_offload_kind(kind) and not (kind in OFFLOAD_MODULES and find_accelerator(kind) is not None):
        return None
    if isinstance(target, str):
        if len(parts(target)) > 1:
            return None
        options = split(target)[1]
    host = options.pop("host", None)
    return Read(kind, offload_attributes(kind, options), (), host)


def _split_accelerators(target: Any) -> tuple[tuple[Accelerator, ...], Any]:
    """Return the accelerators before the processor, and the processor's part."""
    if isinstance(target, Target):
        return target.accelerators, target
    if isinstance(target, Mapping) and "accelerators" in target:
        return split_accelerators(f"{target['accelerators']}, llvm")[0], {
            k: v for k, v in target.items() if k != "accelerators"}
    if not isinstance(target, str) or not isinstance(untagged(target), str):
        return (), target
    accelerators, processor = split_accelerators(target)
    check_parts(target, [a.name for a in accelerators], processor.split(" ", maxsplit=1)[0])
    return accelerators, processor


dialects.target.provide(Target)
