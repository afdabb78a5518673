"""TVM's `tvmc.tracker`: the address of a tracker from the text of `--rpc-tracker`."""

from __future__ import annotations

from typing import Final

from tilewright.driver.measuring import address

_PORT: Final = 9090


def tracker_host_port_from_cli(rpc_tracker_str: str | None) -> tuple[str | None, int | None]:
    """Return host and port of `HOST:PORT`, or of `HOST` with port 9090; twice None for an empty text. Raises
    `OptionError` for a port that is not a number."""
    if not rpc_tracker_str:
        return None, None
    return address(rpc_tracker_str if ":" in rpc_tracker_str else f"{rpc_tracker_str}:{_PORT}")
