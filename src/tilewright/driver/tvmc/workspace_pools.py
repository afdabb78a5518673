"""TVM's `tvmc.workspace_pools`: `--workspace-pools` and the properties of each pool in an `argparse` parser.

    generate_workspace_pools_args(parser)
    pools = workspace_pools_recombobulate(parser.parse_args(), [target], accelerators)
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tilewright.base.errors import OptionError
from tilewright.ir.memory_pools import PoolInfoProperties, WorkspaceMemoryPools, WorkspacePoolInfo

_NUMBERS: Final = (
    "size-hint-bytes", "clock-frequency-hz", "read-bandwidth-bytes-per-cycle", "write-bandwidth-bytes-per-cycle",
    "read-latency-cycles", "write-latency-cycles",
)
"""Options `--workspace-pools-<name>=POOL:NUMBER`, which may be repeated."""


def generate_workspace_pools_args(parser: argparse.ArgumentParser) -> None:
    """Add `--workspace-pools`, and the options for the properties of pools."""
    parser.add_argument("--workspace-pools", help="Names of the pools, separated by commas")
    parser.add_argument("--workspace-pools-targets", action="append", help="POOL:TARGET,… that use the pool")
    for name in _NUMBERS:
        parser.add_argument(f"--workspace-pools-{name}", action="append", help=f"POOL:NUMBER, the {name} of the pool")
    parser.add_argument(
        "--workspace-pools-target-burst-bytes", action="append", help="POOL:TARGET:NUMBER, the bytes of a burst")


def workspace_pools_recombobulate(
    parsed: argparse.Namespace, targets: Sequence[Any], extra_target: Iterable[Mapping[str, Any]] = ()
) -> WorkspaceMemoryPools | None:
    """Return the pools in the order of their names; None without pools. The last value of a repeated option counts.

    Raises `OptionError` for a pool without targets, an unknown target, and a value that is not a number.
    """
    names = [n.strip() for n in (parsed.workspace_pools or "").split(",") if n.strip()]
    if not names:
        return None
    by_name = {str(t.kind.name): t for t in targets}
    numbers = {n: _by_pool(n, getattr(parsed, f"workspace_pools_{n.replace('-', '_')}")) for n in _NUMBERS}
    users, bursts = _by_pool("targets", parsed.workspace_pools_targets), _bursts(parsed, by_name)
    pools = []
    for name in names:
        if name not in users:
            raise OptionError(
                f"--workspace-pools-targets: the pool '{name}' has no target; give {name}:TARGET", code="TW0204")
        given = {n.replace("-", "_"): _number(n, by[name]) for n, by in numbers.items() if name in by}
        properties = PoolInfoProperties(**given, target_burst_bytes=bursts.get(name, {}))
        pools.append(WorkspacePoolInfo(name, [_target(w, by_name) for w in users[name].split(",")], properties))
    return WorkspaceMemoryPools(pools)


def _by_pool(option: str, given: Sequence[str] | None) -> dict[str, str]:
    found = {}
    for word in given or ():
        pool, colon, value = word.partition(":")
        if not colon or not value:
            raise OptionError(f"--workspace-pools-{option}: cannot read '{word}'; write POOL:VALUE", code="TW0202")
        found[pool] = value
    return found


def _bursts(parsed: argparse.Namespace, by_name: Mapping[str, Any]) -> dict[str, dict[Any, int]]:
    found: dict[str, dict[Any, int]] = {}
    for word in parsed.workspace_pools_target_burst_bytes or ():
        pool, _, rest = word.partition(":")
        name, _, value = rest.partition(":")
        found.setdefault(pool, {})[_target(name, by_name)] = _number("target-burst-bytes", value)
    return found


def _number(option: str, word: str) -> int:
    if not word.isdecimal():
        raise OptionError(f"--workspace-pools-{option}: '{word}' is not a whole number", code="TW0202")
    return int(word)


def _target(word: str, by_name: Mapping[str, Any]) -> Any:
    if word not in by_name:
        raise OptionError(
            f"--workspace-pools-targets: the target '{word}' is not in --target; choose from {', '.join(by_name)}",
            code="TW0203")
    return by_name[word]
