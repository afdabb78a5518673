"""Messages between processes and machines: a JSON object and byte pieces, never pickled objects.

    "TWM1" · size of the JSON (uint32) · size of all pieces (uint64) · JSON {"message": …, "pieces": [sizes]} · pieces

Sizes are checked against limits before memory is allocated. Every wait has a timeout, which excludes time during which
this process itself was stopped or suspended.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from collections.abc import Sequence
from typing import Any, Final

from tilewright.base.errors import RPCError
from tilewright.base.json_reading import read_json

Message = dict[str, Any]
_HEAD: Final = struct.Struct("<4sIQ")
_MAGIC: Final = b"TWM1"
_PIECE: Final = 1 << 20
_SLICE: Final = 0.25
"""Seconds of a single wait. A much longer wait means that this process was suspended."""


class Patience:
    """The remaining time of a wait; None: unlimited."""

    def __init__(self, seconds: float | None) -> None:
        self._left = seconds

    def wait(self, descriptor: int, event: int) -> None:
        """Wait until `event` occurs on the descriptor; raises `TimeoutError`."""
        poll = select.poll()
        poll.register(descriptor, event)
        while True:
            here = _SLICE if self._left is None else max(0.0, min(_SLICE, self._left))
            start = time.monotonic()
            if poll.poll(1e3 * here):
                self._spend(time.monotonic() - start)
                return
            self._spend(min(time.monotonic() - start, 2 * _SLICE))
            if self._left is not None and self._left <= 0:
                raise TimeoutError("no answer in time")

    def _spend(self, seconds: float) -> None:
        if self._left is not None:
            self._left -= min(seconds, 2 * _SLICE)


class Channel:
    """A connection for messages: the ends of two pipes, or one socket."""

    def __init__(self, reading: int, writing: int, most_text: int = 64 << 20, most_bytes: int = 4 << 30) -> None:
        """Use file descriptors that the caller owns and closes. No message may exceed the limits."""
        self.reading, self.writing = reading, writing
        self._limits = most_text, most_bytes
        for descriptor in (reading, writing):
            os.set_blocking(descriptor, False)

    def limit(self, most_text: int, most_bytes: int) -> None:
        """Set the size limits of received messages."""
        self._limits = most_text, most_bytes

    def send(self, message: Message, pieces: Sequence[bytes | memoryview] = (), timeout: float | None = None) -> None:
        """Send a message. Raises `ConnectionError` if the other side has gone, and `TimeoutError`."""
        text = json.dumps({"message": message, "pieces": [len(p) for p in pieces]}).encode()
        patience = Patience(timeout)
        self._write(_HEAD.pack(_MAGIC, len(text), sum(map(len, pieces))) + text, patience)
        for piece in pieces:
            self._write(piece, patience)

    def receive(self, timeout: float | None = None) -> tuple[Message, list[bytes]]:
        """Receive the next message. Raises `ConnectionError` if the other side has gone, `TimeoutError`, and `RPCError`
        for an invalid message."""
        patience = Patience(timeout)
        magic, text_size, size = _HEAD.unpack(self._read(_HEAD.size, patience))
        most_text, most_bytes = self._limits
        if magic != _MAGIC:
            raise RPCError(
                "the other side does not speak this protocol; check host and port, and that both are of the same "
                "version",
                code="TW1204")
        if text_size > most_text or size > most_bytes:
            raise RPCError(
                f"a message of {text_size} + {size} bytes is refused, the limits are {most_text} and {most_bytes}",
                code="TW1204")
        try:
            content = read_json(bytes(self._read(text_size, patience)))
            message, sizes = content["message"], content["pieces"]
            if (
                not isinstance(message, dict) or sum(sizes) != size
                or any(not isinstance(n, int) or n < 0 for n in sizes)
            ):
                raise ValueError
        except (ValueError, KeyError, TypeError) as error:
            raise RPCError("a message of the other side cannot be read", code="TW1204") from error
        return message, [bytes(self._read(n, patience)) for n in sizes]

    def _write(self, data: bytes | memoryview, patience: Patience) -> None:
        with memoryview(data) as view:
            done = 0
            while done < len(view):
                try:
                    done += os.write(self.writing, view[done : done + _PIECE])
                except BlockingIOError:
                    patience.wait(self.writing, select.POLLOUT)
                except OSError as error:
                    raise ConnectionError(f"the other side is gone: {error.strerror}") from error

    def _read(self, count: int, patience: Patience) -> bytearray:
        data = bytearray(count)
        done = 0
        with memoryview(data) as view:
            while done < count:
                try:
                    got = os.readv(self.reading, [view[done : done + _PIECE]])
                except BlockingIOError:
                    patience.wait(self.reading, select.POLLIN)
                    continue
                except OSError as error:
                    raise ConnectionError(f"the other side is gone: {error.strerror}") from error
                if not got:
                    raise ConnectionError("the other side has closed the connection")
                done += got
        return data
