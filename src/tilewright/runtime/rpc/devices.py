"""Requests of devices from a tracker, under the names of TVM's tuners."""

from __future__ import annotations

from tilewright.base.errors import RPCError
from tilewright.runtime import rpc


def request_remote(
    device_key: str, host: str = "127.0.0.1", port: int = 9190, priority: int = 1, timeout: float = 60
) -> rpc.RPCSession:
    """Return a session on a device of a tracker. Raises `RPCError` if none is free within `timeout` seconds."""
    with rpc.connect_tracker(host, port) as tracker:
        return tracker.request(device_key, priority, timeout, patience=timeout)


def check_remote(
    device_key: str, host: str = "127.0.0.1", port: int = 9190, priority: int = 100, timeout: float = 10
) -> bool:
    """Return whether a tracker has a free device of that key within `timeout` seconds."""
    try:
        request_remote(device_key, host, port, priority, timeout).close()
    except RPCError:
        return False
    return True
