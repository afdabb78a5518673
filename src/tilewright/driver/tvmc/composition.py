"""TVM's executors, runtimes and memory pools: options that programs satisfy, and reasons why other options are refused.

A program is machine code and constants with one entry function over plain pointers, and one block of workspace. Each
option is either satisfied already or refused with the reason; no option is ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.base.limits import shown_bytes
from tilewright.driver.options import flag
from tilewright.ir.memory_pools import WorkspaceMemoryPools
from tilewright.relay.backend.executors import Executor, Runtime
from tilewright.runtime.artifact import Artifact

_ALIGNMENT: Final = 64
"""Alignment of constants and workspace, in bytes."""

Check = Callable[[str, Any], object]
"""Raises `OptionError` if an option of that name cannot have that value."""


def _always(wanted: bool, why: str) -> Check:
    def check(option: str, value: Any) -> None:
        if flag(option, value) is not wanted:
            shown = int(value) if isinstance(value, bool) else value  # as on the command line
            raise OptionError(f"{option}={shown} is not possible: {why}", code="TW0204")

    return check


def _interface(option: str, value: Any) -> None:
    if value not in ("c", "packed"):
        raise OptionError(f"{option}: there is no interface '{value}'; choose from c, packed", code="TW0203")
    if value == "packed":
        raise OptionError(
            f"{option}=packed is not possible: the entry function is a plain C function with pointers; omit the "
            "option, or give c",
            code="TW0204")


def _alignment(option: str, value: Any) -> None:
    size = int(value) if str(value).isdecimal() else 0
    if size < 1 or size & (size - 1):
        raise OptionError(f"{option}: '{value}' is not an alignment; write a power of two, in bytes", code="TW0202")
    if size > _ALIGNMENT:
        raise OptionError(
            f"{option}={value} is not possible: memory is aligned to {_ALIGNMENT} bytes, which is a cache line; give "
            f"{_ALIGNMENT} or less",
            code="TW0202")


_LINKED: Final = _always(
    True,
    "constants are packed for the kernels that read them, and stay within the library; omit the option, or give 1")


_CHECKS: Final[Mapping[str, Check]] = {
    "link-params": _LINKED,
    "interface-api": _interface,
    "unpacked-api": _always(True, "kernels take plain pointers; omit the option, or give 1"),
    "workspace-byte-alignment": _alignment,
    "constant-byte-alignment": _alignment,
}


def executor(kind: str, given: Mapping[str, Any] | None = None) -> Executor:
    """Return the executor of that kind with options of the command line. Raises `OptionError` for impossible ones."""
    found = Executor(kind, _read("executor", Executor, kind, given or {}))
    check_executor(found)
    return found


def runtime(kind: str, given: Mapping[str, Any] | None = None) -> Runtime:
    """Return the runtime of that kind with options of the command line."""
    return Runtime(kind, _read("runtime", Runtime, kind, given or {}))


def _read(word: str, kinds: type[Executor | Runtime], kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the texts of options to the types that they have."""
    types = kinds.kinds.get(kind, {})
    found = {}
    for name, value in given.items():
        option, wanted = f"--{word}-{kind}-{name}", types.get(name)
        if wanted is int and not str(value).isdecimal():
            raise OptionError(f"{option}: '{value}' is not a whole number", code="TW0202")
        found[name] = flag(option, value) if wanted is bool else value if wanted is None else wanted(value)
    return found


def check_executor(executor: Executor) -> None:
    """Raise `OptionError` for options that a package cannot satisfy."""
    for name, value in executor.options.items():
        _CHECKS[name](f"--executor-{executor}-{name}", value)


def check_runtime(runtime: Runtime, output_format: str) -> None:
    """Raise `OptionError` for options that a package of this format cannot satisfy: objects of the Model Library
    Format are linked, libraries are loaded."""
    for name, value in runtime.options.items():
        linked = output_format == "mlf"
        why = (
            "objects of the Model Library Format are linked into a program; use -f so for a library" if linked
            else "a library is loaded from its file; use -f mlf for objects that are linked"
        )
        _always(linked, why)(f"--runtime-{runtime}-{name}", value)


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
                f"({shown_bytes(self.size)}), but the workspace of the program needs {needed} ({shown_bytes(needed)}); "
                "enlarge the pool, or give the model smaller inputs", code="TW0204"
            )


def single_pool(given: WorkspaceMemoryPools) -> WorkspacePool:
    """Return the pool of a program. Raises `OptionError` for another number of pools, because the workspace is one
    block."""
    if len(given.pools) != 1:
        raise _not_one(len(given.pools))
    pool = given.pools[0]
    return WorkspacePool(pool.pool_name, pool.size_hint_bytes if pool.size_hint_bytes >= 0 else None)


def _not_one(count: int) -> OptionError:
    return OptionError(
        f"--workspace-pools: {count} pools are given, but the workspace of a program is one block; give one pool",
        code="TW0204")


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
        raise _not_one(len(pools))
    for option, text in hints.items():
        if text:
            raise OptionError(
                f"--workspace-pools-{option} is for choosing between pools, but a program has one; omit the option",
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
        raise OptionError(f"--workspace-pools-size-hint-bytes: '{size}' is not a number of bytes", code="TW0202")
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
