"""What provokes each code of `catalogue/devices.md`, in an empty folder: no process is started but that of a worker,
which ends with its example."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from tilewright.base.errors import WorkerNotStarted
from tilewright.runtime.rpc.client import connect
from tilewright.runtime.rpc.connection import Connection, parse_address
from tilewright.runtime.rpc.files import file
from tilewright.runtime.rpc.secret import shared_secret
from tilewright.runtime.rpc.server import Server
from tilewright.runtime.wire import Channel
from tilewright.runtime.worker import Worker


@contextmanager
def connected() -> Iterator[tuple[Connection, Connection]]:
    """Two ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(
        listening.getsockname(), 10
    ) as ours:
        theirs, _ = listening.accept()
        with theirs:
            yield Connection(ours), Connection(theirs)


@contextmanager
def worker() -> Iterator[Worker]:
    """A process that ends with the block."""
    made = Worker()
    try:
        yield made
    finally:
        made.close()


def abort(*given: object) -> None:
    """What a worker is told to do."""
    os.abort()


def tw1201() -> None:
    with mock.patch("socket.create_connection", side_effect=ConnectionRefusedError(111, "Connection refused")):
        connect("127.0.0.1", 9190, secret="a secret of the tests")


def tw1202() -> None:
    shared_secret("short")


def tw1203() -> None:
    with connected() as (ours, theirs):
        theirs.send({"refused": "the server is busy with another session; try again later, or use a tracker"})
        ours.answer(10)


def tw1204() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    Channel(reading, writing).receive(10)


def tw1205() -> None:
    with connected() as (ours, theirs):
        theirs.channel.limit(1 << 20, 1 << 20)
        server: Any = SimpleNamespace()
        with mock.patch("time.monotonic", side_effect=[0.0, 61.0, 61.0]):
            Server._serve(server, ours, server, 60.0)


def tw1206() -> None:
    file("../library.so")


def tw1207() -> None:
    with worker() as w:
        w.call("tilewright.runtime.trial:nothing", {}, timeout=60)


def tw1208() -> None:
    with worker() as w:
        w.call("error_examples.devices:abort", {}, timeout=60)


def tw1209() -> None:
    with worker() as w, mock.patch("tilewright.runtime.worker.Channel.receive", side_effect=TimeoutError):
        w.call("tilewright.runtime.trial:trial", {}, timeout=60)


def tw1210() -> None:
    with worker() as w:
        w._running()
        with mock.patch("tilewright.runtime.wire.Channel.receive", side_effect=TimeoutError):
            w.call("tilewright.runtime.trial:trial", {}, timeout=10)


def tw1211() -> None:
    parse_address("localhost")


def tw1212() -> None:
    def call(*given: object) -> None:
        raise WorkerNotStarted("a worker process could not be started: it does not answer")

    worker: Any = SimpleNamespace(call=call)
    Server._call(worker, {"call": "tilewright.runtime.trial:trial", "with": {}}, [], 10)
