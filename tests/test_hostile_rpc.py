"""Hostile bytes and messages to the tracker, the proxy and the server: each is refused, and the next client is
served."""

from __future__ import annotations

import json
import math
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tilewright.base.errors import InputError, RPCError
from tilewright.runtime import rpc
from tilewright.runtime.rpc.arrays import array_of
from tilewright.runtime.rpc.connection import dial, seconds
from tilewright.runtime.rpc.service import call

SECRET = "a secret of the tests"
Peer = rpc.Tracker | rpc.Proxy | rpc.Server


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_RPC_SECRET", SECRET)


@pytest.fixture(params=["tracker", "proxy", "server"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    made: Peer = {"tracker": rpc.Tracker, "proxy": rpc.Proxy, "server": rpc.Server}[request.param](port=0)
    yield made
    made.close()


def head(text: int, pieces: int, magic: bytes = b"TWM1") -> bytes:
    return struct.pack("<4sIQ", magic, text, pieces)


def framed(content: Any) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return head(len(text), 0) + text


def deep(levels: int) -> bytes:
    return b'{"message": {"wanted": ' + b"[" * levels + b"]" * levels + b'}, "pieces": []}'


BYTES = (
    b"GET / HTTP/1.1\r\n\r\n", head(1 << 14, 0, b"XXXX"), head((1 << 32) - 1, 0), head(100, (1 << 64) - 1),
    head(100, 1), framed(b"{"), framed(b"\xff\xfe"), framed([]), framed({"message": []}),
    framed({"message": {}, "pieces": [-1]}), framed({"message": {}, "pieces": [1.5]}),
    framed({"message": {}, "pieces": ["x"]}), framed({"message": {}, "pieces": {"a": 1}}),
    framed({"message": {"wanted": 7}, "pieces": []}),
    framed({"message": {"wanted": {}, "proof": "\ud800"}, "pieces": []}), framed(deep(900)), framed(deep(7000)),
    framed(b'{"message": {"wanted": {"x": 1e999, "y": NaN}, "nonce": [1]}, "pieces": []}'), b"",
)


@pytest.mark.parametrize("data", BYTES)
def test_bytes_of_strangers_are_refused(peer: Peer, data: bytes) -> None:
    """The connection of a stranger ends, no memory is asked for, and a client that knows the secret is heard
    afterwards."""
    with socket.create_connection((peer.host, peer.port), 10) as link:
        link.recv(1 << 14)
        link.settimeout(10)
        try:
            link.sendall(data)
            link.shutdown(socket.SHUT_WR)
            while link.recv(1 << 14):
                pass
        except TimeoutError:
            raise
        except OSError:  # the peer has hung up already
            pass
    connection = dial(peer.host, peer.port, SECRET.encode(), {"role": "nobody"})
    assert "'nobody'" in str(connection.receive(10)[0]["refused"])
    connection.close()


TEXT = json.dumps({"message": {"call": "x", "with": {}}, "pieces": [100]}).encode()
NUMBERS: tuple[Any, ...] = (math.inf, math.nan, -1, 1e400, 10**400, "1", None, [], True, {"a": 1})


@pytest.mark.parametrize("value", NUMBERS)
def test_times_of_messages_are_numbers(value: object) -> None:
    with pytest.raises(InputError, match=r"the wait is .*; give seconds from 0 to 86400"):
        seconds(value, "the wait")


@pytest.mark.parametrize("value", [v for v in NUMBERS if not (isinstance(v, float) and math.isnan(v))])
def test_a_server_is_not_lost_by_a_session_that_is_refused(value: object) -> None:
    """The tracker's word for a server is used up by a client; a client with a senseless patience must not use it."""
    with rpc.Server(port=0) as server:
        wanted = {"role": "session", "key": "", "token": "", "seconds": 0}
        refused: list[dict[str, Any]] = [
            {**wanted, "patience": value}, {**wanted, "patience": 1, "seconds": value}, wanted, {"role": []},
            {"role": "session"}
        ]
        for wrong in refused:
            connection = dial(server.host, server.port, SECRET.encode(), wrong)
            assert "refused" in connection.receive(10)[0]
            connection.close()
        rpc.connect(server.host, server.port).close()


@pytest.mark.parametrize("message", [
    {"request": "k", "priority": 1e400, "timeout": 1}, {"request": "k", "priority": 10**30, "timeout": 1},
    {"request": "k", "priority": 1, "timeout": math.inf},
    {"request": "k", "priority": "x", "timeout": 1}, {"request": "k"}, {"unknown": 1}, {},
])
def test_a_tracker_refuses_senseless_requests(message: dict[str, Any]) -> None:
    tracker = rpc.Tracker(port=0)
    try:
        connection = dial(tracker.host, tracker.port, SECRET.encode(), {"role": "client"})
        connection.send(message)
        assert "refused" in connection.receive(10)[0]
        connection.close()
        assert rpc.connect_tracker(tracker.host, tracker.port).summary()["queue_info"] == {}
    finally:
        tracker.close()


@pytest.mark.parametrize(("name", "given"), [
    ("os:system", {}), ("tilewright.runtime.rpc.service:_call", {}),
    ("tilewright.runtime.worker_main:import_modules", {"modules": ["antigravity"]}), ([], {}), (None, {}),
])
def test_a_session_calls_what_is_listed_alone(name: Any, given: Any) -> None:
    with rpc.Server(port=0) as server:
        wanted = {"role": "session", "key": "", "token": "", "seconds": 0, "patience": 5}
        connection = dial(server.host, server.port, SECRET.encode(), wanted)
        assert "ready" in connection.receive(10)[0]
        connection.send({"call": name, "with": given, "timeout": 5})
        assert "refused" in connection.receive(10)[0]
        connection.close()


@pytest.mark.parametrize(
    "sent", [head(1 << 10, 1 << 30)[:7], head(1 << 10, 1 << 30), head(len(TEXT), 100) + TEXT + b"x" * 99]
)
def test_a_session_that_stops_within_a_message_is_ended(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the client falls silent, the server is the next one's."""
    monkeypatch.setattr("tilewright.runtime.rpc.server._IDLE_SECONDS", 0.2)
    with rpc.Server(port=0) as server:
        connection = dial(
            server.host, server.port, SECRET.encode(),
            {"role": "session", "key": "", "token": "", "seconds": 0, "patience": 5}
        )
        assert "ready" in connection.receive(10)[0]
        connection.socket.sendall(sent)
        assert "silent for too long" in connection.receive(10)[0]["refused"]
        rpc.connect(server.host, server.port, patience=10).close()
        connection.close()


@pytest.mark.parametrize(("dtype", "shape"), [
    ("float32", [1 << 40]), ("float32", [-1]), ("float32", [2, 3]), ("float32", [True]), ("float32", ["1"]),
    ("float32", 1), ("object", [1]), ("float32", [1 << 62, 1 << 62]), ("float32", [0]),
])
def test_arrays_have_the_bytes_that_were_sent(dtype: str, shape: Any) -> None:
    with pytest.raises((InputError, RPCError), match=r"does not have the 4 bytes that were sent"):
        array_of(dtype, shape, bytes(4))
    assert array_of("float32", [1], bytes(4)).shape == (1,)


@pytest.mark.parametrize("number", [-1, 0, 1 << 70, "0", None, True])
def test_modules_are_named_by_the_numbers_that_were_given(number: object) -> None:
    with pytest.raises(InputError, match="has no such module"):
        call({"module": number, "function": "f", "args": []}, [])
