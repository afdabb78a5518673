"""A tracker with one server, on this machine."""

from __future__ import annotations

from typing import Self

from tilewright.runtime import rpc


class LocalRPC:
    """A tracker and a server while it is entered with `with`."""

    def __init__(self, tracker_key: str = "key", silent: bool = False, no_fork: bool = False) -> None:
        self.tracker_key = tracker_key
        self.tracker = rpc.Tracker(port=0)
        self.tracker_host, self.tracker_port = self.tracker.host, self.tracker.port
        self.server = rpc.Server(port=0, key=tracker_key, tracker_addr=(self.tracker_host, self.tracker_port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.close()
        self.tracker.close()
