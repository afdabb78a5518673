"""The offer of a server to clients, which a tracker passes on."""

from __future__ import annotations

import secrets
import threading
import time
from typing import Final

from tilewright.runtime.rpc.connection import dial

Address = tuple[str, int]
_HEARTBEAT: Final = 1.0
_UNCLAIMED_SECONDS: Final = 5.0
"""Seconds within which a client sent by the tracker must connect; after them the server is free again."""


class Offer:
    """A token that the next client must show. The tracker gives it to one client; without a tracker, every client may
    come.
    """

    def __init__(self, tracker: Address | None, key: str, address: Address, secret: bytes) -> None:
        """`address` is where clients reach the server."""
        self.tracker, self.key, self.address = tracker, key, address
        self._secret, self._changed, self._token = secret, threading.Condition(), ""
        self.renew()

    @property
    def token(self) -> str:
        """The token of the offer; empty while a client has it, and without a tracker."""
        return self._token if self.tracker else ""

    def claim(self, token: str) -> bool:
        """Whether the client may use the server."""
        with self._changed:
            if not self.tracker:
                return True
            taken = bool(token) and token == self._token
            if taken:
                self._token = ""
                self._changed.notify_all()
            return taken

    def renew(self) -> None:
        """Make a new offer, of a free server."""
        with self._changed:
            self._token = secrets.token_hex(16)
            self._changed.notify_all()

    def wake(self) -> None:
        """Let `announce` look whether it is closed."""
        with self._changed:
            self._changed.notify_all()

    def announce(self, closed: threading.Event) -> None:
        """Report to the tracker when the server is free, until `closed` is set; renew the offer if an assigned client
        does not connect. Raises `OSError` or `RPCError` if the tracker is not reached.
        """
        assert self.tracker is not None
        host, port = self.address
        connection = dial(*self.tracker, self._secret, {"role": "server", "key": self.key, "host": host, "port": port})
        offered, since = "", 0.0

        def is_news() -> bool:
            return self._token != token or closed.is_set()

        try:
            while not closed.is_set():
                with self._changed:
                    token = self._token
                waits = connection.ask({"free": bool(token) and token != offered, "token": token}).get("waits")
                if token and token != offered:
                    offered, since = token, time.monotonic()
                elif waits:
                    since = time.monotonic()
                elif token and token == offered and time.monotonic() - since > _UNCLAIMED_SECONDS:
                    self.renew()
                    continue
                with self._changed:
                    self._changed.wait_for(is_news, _HEARTBEAT)
        finally:
            connection.close()
