"""TVM's executors, runtimes and memory pools: options that programs satisfy, and reasons why other options are refused.

A program is machine code and constants with one entry function over plain pointers, and one block of workspace. Each
option is either satisfied already or refused with the reason; no option is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from tilewright.base.errors import OptionError
from tilewright.base.limits import shown_bytes
from tilewright.base.settings import nearest
from tilewright.driver.options import flag
from tilewright.runtime.artifact import Artifact

_ALIGNMENT: Final = 64
"""Alignment of constants and workspace, in bytes."""

Check = Callable[[str, Any], object]
"""Raises `OptionError` if an option of that name cannot have that value."""


def _always(wanted: bool, why: str) -> Check:
    def check(option: str, value: Any) -> None:
        if flag(option, value) is not wanted:
            raise OptionError(f"{option}={value} cannot be: {why}", code="TW0204")

    return check


def _interface(option: str, value: Any) -> None:
    if value not in ("c", "packed"):
        raise OptionError(f"{option}: there is no interface '{value}'; choose from c, packed", code="TW0203")
    if value == "packed":
        raise OptionError(
            f"{option}=packed cannot be: the entry function is a plain function in C, over pointers; leave the option "
            "out, or say c",
            code="TW0204")


def _alignment(option: str, value: Any) -> None:
    size = int(value) if str(value).isdecimal() else 0
    if size < 1 or size & (size - 1):
        raise OptionError(f"{option}: '{value}' is no alignment; write a power of two, in bytes", code="TW0202")
    if size > _ALIGNMENT:
        raise OptionError(
            f"{option}={value} cannot be: memory is aligned to {_ALIGNMENT} bytes, which is a line of the cache; say "
            f"{_ALIGNMENT} or less",
            code="TW0202")


_LINKED: Final = _always(
    True,
    "constants are packed for the kernels that read them, and stay within the library; leave the option out, or say 1")


@dataclass(frozen=True)
class _Kind:
    """A kind with options, checked by `check`."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    word: ClassVar[str]
    kinds: ClassVar[Mapping[str, Mapping[str, Check]]]

    def __post_init__(self) -> None:
        if self.kind not in self.kinds:
            raise OptionError(
                f"--{self.word}: there is no {self.word} '{self.kind}'{nearest(self.kind, self.kinds)}; choose from "
                f"{', '.join(self.kinds)}",
                code="TW0203")
        known = self.kinds[self.kind]
        for name, value in self.options.items():
            option = f"--{self.word}-{self.kind}-{name}"
            if name not in known:
                raise OptionError(
                    f"{option}: {self.kind} has no option '{name}'{nearest(name, known)}; it has "
                    f"{', '.join(known) or 'none'}",
                    code="TW0203")
            known[name](option, value)


@dataclass(frozen=True)
class Executor(_Kind):
    """The executor of a program: `graph` is a package for Python, `aot` a package for C, `vm` a package with only a
    library."""

    kind: str = "graph"
    word: ClassVar[str] = "executor"
    kinds: ClassVar[Mapping[str, Mapping[str, Check]]] = {
        "graph": {"link-params": _LINKED},
        "aot": {
            "link-params": _LINKED,
            "interface-api": _interface,
            "unpacked-api": _always(True, "kernels take plain pointers; leave the option out, or say 1"),
            "workspace-byte-alignment": _alignment,
            "constant-byte-alignment": _alignment,
        },
        "vm": {},
    }


@dataclass(frozen=True)
class Runtime(_Kind):
    """The runtime that a program is linked with. Programs need neither, because they only call libc."""

    kind: str = "cpp"
    word: ClassVar[str] = "runtime"
    kinds: ClassVar[Mapping[str, Mapping[str, Check]]] = {"cpp": {"system-lib": flag}, "crt": {"system-lib": flag}}

    def check_format(self, output_format: str) -> None:
        """Raise `OptionError` for options that a package of this format cannot satisfy: objects of the Model Library
        Format are linked, libraries are loaded."""
        for name, value in self.options.items():
            linked = output_format == "mlf"
            why = (
                "objects of the Model Library Format are linked into a program; use -f so for a library" if linked
                else "a library is loaded from its file; use -f mlf for objects that are linked"
            )
            _always(linked, why)(f"--runtime-{self.kind}-{name}", value)


HINTS: Final = (
    "clock-frequency-hz", "read-bandwidth-bytes-per-cycle", "write-bandwidth-bytes-per-cycle", "read-latency-cycles",
    "write-latency-cycles", "burst-bytes",
)
"""TVM's properties of a pool in addition to its size."""


@dataclass(frozen=True)
class WorkspacePool:
    """The memory for the workspace; `size` in bytes, None for unlimited."""

    name: str
    size: int | None = None

    def check(self, artifact: Artifact) -> None:
        """Raise `OptionError` if the workspace of the program is larger."""
        needed = artifact.manifest.workspace_bytes
        if self.size is not None and needed > self.size:
            raise OptionError(
                f"--workspace-pools-size-hint-bytes: the pool '{self.name}' has {self.size} bytes "
                f"({shown_bytes(self.size)}), and the workspace of the program "
                f"needs {needed} ({shown_bytes(needed)}); give it more, or give the model smaller inputs", code="TW0204"
            )


def workspace_pool(
    names: str, targets: str, sizes: str, hints: Mapping[str, str], processors: tuple[str, ...]
) -> WorkspacePool | None:
    """Return the pool that the options `--workspace-pools…` describe, each `NAME:VALUE`; None without a pool. Raises
    `OptionError` for unsupported values."""
    pools = [n.strip() for n in names.split(",") if n.strip()]
    given = {"targets": targets, "size-hint-bytes": sizes, **hints}
    for option, text in given.items():
        for pool in _by_pool(f"--workspace-pools-{option}", text):
            if pool not in pools:
                raise OptionError(
                    f"--workspace-pools-{option}: there is no pool '{pool}'; name it in --workspace-pools",
                    code="TW0203")
    if len(pools) > 1:
        raise OptionError(
            f"--workspace-pools: {len(pools)} pools are given, and the workspace of a program is one block; give the "
            "one that it is to be in",
            code="TW0204")
    for option, text in hints.items():
        if text:
            raise OptionError(
                f"--workspace-pools-{option}: it helps to choose between pools, and a program has one; leave it out",
                code="TW0204")
    for pool, target in _by_pool("--workspace-pools-targets", targets).items():
        if target not in processors:
            raise OptionError(
                f"--workspace-pools-targets: the pool '{pool}' is assigned to '{target}', but the workspace is used by "
                f"{', '.join(processors)}; assign the pool to that processor, or omit the option",
                code="TW0204")
    if not pools:
        return None
    size = _by_pool("--workspace-pools-size-hint-bytes", sizes).get(pools[0])
    if size is not None and not size.isdecimal():
        raise OptionError(f"--workspace-pools-size-hint-bytes: '{size}' is no number of bytes", code="TW0202")
    return WorkspacePool(pools[0], None if size is None else int(size))


def _by_pool(option: str, text: str) -> dict[str, str]:
    """Convert `a:1,b:2` to a dictionary."""
    found = {}
    for word in filter(None, (w.strip() for w in text.split(","))):
        name, colon, value = word.partition(":")
        if not colon or not name or not value:
            raise OptionError(f"{option}: cannot read '{word}'; write NAME:VALUE", code="TW0202")
        found[name] = value
    return found
