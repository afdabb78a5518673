"""The machine on which commands measure: this one, a Dask cluster, devices of a tracker, or a board by ssh."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import OptionError, RPCError

if TYPE_CHECKING:
    from tilewright.search.measure import Builder, Runner


DEVICE_SECONDS = 10.0
"""Seconds to wait for a device of a tracker."""


@dataclass(frozen=True, slots=True)
class MeasuringOptions:
    """The measuring options of a command; without options, this machine."""

    cluster: str = ""
    worker_tag: str = ""
    tracker: str = ""
    rpc_key: str = ""
    ssh: str = ""
    ssh_config: Path | None = None

    def __post_init__(self) -> None:
        """Raise `OptionError` for options that exclude each other."""
        chosen = [f"--{word}" for word in ("cluster", "tracker", "ssh") if getattr(self, word)]
        if len(chosen) > 1:
            raise OptionError(
                f"{' and '.join(chosen)} are different places to measure; give one of them", code="TW0204")
        if self.worker_tag and not self.cluster:
            raise OptionError(
                "--worker-tag chooses workers of a cluster; give its scheduler by --cluster tcp://HOST:PORT",
                code="TW0204")
        if bool(self.tracker) != bool(self.rpc_key):
            raise OptionError(
                "a tracker needs a key of devices; give both HOST:PORT of the tracker and --rpc-key", code="TW0204")
        if self.ssh_config and not self.ssh:
            raise OptionError("--ssh-config is read for a board; give it by --ssh user@host", code="TW0204")
        if self.tracker:
            address(self.tracker)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the code runs on another machine."""
        return bool(self.cluster or self.tracker or self.ssh)

    def reach(self) -> None:
        """Check early that the tracker, if one is given, has the device.

        Raises `RPCError` if the tracker refuses or does not answer, or if no device of the key is available within ten
        seconds.
        """
        if not self.tracker:
            return
        from tilewright.runtime.rpc.client import connect_tracker

        end = time.monotonic() + DEVICE_SECONDS
        with connect_tracker(*address(self.tracker)) as tracker:
            while f"server:{self.rpc_key}" not in (keys := {str(s["key"]) for s in tracker.summary()["server_info"]}):
                if time.monotonic() > end:
                    there = ", ".join(sorted(k.removeprefix("server:") for k in keys)) or "none"
                    raise RPCError(
                        f"the tracker at {self.tracker} has no device '{self.rpc_key}'; it has: {there}; start "
                        "tilewright.compat.exec.rpc_server with this key", code="TW1201")
                time.sleep(0.2)

    def builder(self, timeout: float = 10, n_parallel: int | None = None) -> Builder:
        """Return the builder: workers of the cluster, or this machine."""
        if self.cluster:
            from tilewright.search.cluster import ClusterBuilder

            return ClusterBuilder(self.cluster, timeout)
        from tilewright.search.local import LocalBuilder

        if self.ssh:
            from tilewright.search.boards import board_build

            return LocalBuilder(timeout, n_parallel, board_build)
        return LocalBuilder(timeout, n_parallel)

    def runner(
        self, timeout: float = 10, number: int = 4, repeat: int = 3, min_repeat_ms: float = 0,
        threads: int | None = None, noise: float = 0.1, cooldown_interval: float = 0.1,
    ) -> Runner:
        """Return the runner with the options of `LocalRunner`.

        Raises `OptionError` for `threads` if the server decides them.
        """
        timing: dict[str, Any] = {
            "timeout": timeout, "number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms,
            "cooldown_interval": cooldown_interval, "noise": noise,
        }
        if self.cluster:
            from tilewright.search.cluster import ClusterRunner

            return ClusterRunner(
                self.cluster, threads=threads, resources={self.worker_tag: 1} if self.worker_tag else None, **timing)
        if self.tracker:
            from tilewright.search.remote import RPCRunner

            if threads is not None:
                raise OptionError(
                    "how many threads a session uses is said where its server is started: python -m "
                    "tilewright.compat.exec.rpc_server --threads", code="TW0204")
            return RPCRunner(self.rpc_key, *address(self.tracker), **timing)
        if self.ssh:
            from tilewright.search.boards import SSHRunner

            return SSHRunner(self.ssh, threads=threads or 1, config=self.ssh_config, **timing)
        from tilewright.search.local import LocalRunner

        return LocalRunner(threads=threads, **timing)


def address(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`. Raises `OptionError` for any other text."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise OptionError(f"'{text}' is no address of a tracker; write HOST:PORT, like 127.0.0.1:9190", code="TW0202")
    return host.strip("[]"), int(port)
