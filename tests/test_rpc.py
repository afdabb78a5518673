"""Devices elsewhere: sessions, the tracker's queues, the proxy, what happens to who does not know the secret, and to
what breaks."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from planted import EXPECTED, planted
from tilewright import te
from tilewright.base.errors import (
    InputError,
    MovedModuleWarning,
    OptionError,
    RPCError,
    RPCSessionTimeoutError,
    WorkerCrashed,
    WorkerRaised,
    WorkerTimedOut,
)
from tilewright.compat.exec import query_rpc_tracker
from tilewright.runtime import rpc
from tilewright.runtime.rpc import connection
from tilewright.runtime.rpc.connection import Connection, Listener, dial, parse_address
from tilewright.runtime.rpc.secret import secret_file, shared_secret
from tilewright.runtime.trial import TRIAL
from tilewright.search.local import LocalBuilder
from tilewright.search.measure import MeasureErrorNo, measure
from tilewright.search.records import Records
from tilewright.search.remote import RPCRunner

HERE = Path(__file__).parent
SECRET = "a secret of the tests"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_RPC_SECRET", SECRET)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.placeholder((n,), name="b")
    c = te.compute((n,), lambda i: a[i] + b[i], name="c")
    path = tmp_path_factory.mktemp("rpc") / "add.so"
    tvm.build(te.create_schedule(c.op), [a, b, c], "llvm", name="add").export_library(path)
    return path


@pytest.fixture
def tracker() -> Iterator[rpc.Tracker]:
    made = rpc.Tracker(port=0)
    yield made
    made.close()


class Program:
    """A program of `tilewright.exec` in a process that ends with this one; where it listens stands on its first
    line."""

    def __init__(self, name: str, *options: str) -> None:
        theirs, self._life = os.pipe()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent / "src")])}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "rpc_process.py"), str(theirs), name, *options],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, pass_fds=(theirs,),
            start_new_session=True, text=True, env=environment,
        )
        os.close(theirs)
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        self.address = self.said.rpartition(" ")[2].strip()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)
        os.close(self._life)


def until(condition: Callable[[], Any], seconds: float = 20) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


def check_sum(remote: rpc.RPCSession, library: Path) -> None:
    remote.upload(library)
    f = remote.load_module("add.so")
    a, b = np.random.rand(100).astype("float32"), np.random.rand(100).astype("float32")
    c = tvm.nd.array(np.zeros(100, "float32"), remote.cpu(0))
    f(tvm.nd.array(a, remote.cpu()), b, c)
    tvm.testing.assert_allclose(c.numpy(), a + b)
    found = f.time_evaluator(f.entry_name, remote.cpu(0), number=3, repeat=2)(a, b, c)
    assert len(found.results) == 2 and 0 < found.mean < 1
    with pytest.raises(InputError, match="remote devices call no function"):
        f.time_evaluator(f.entry_name, remote.cpu(0), f_preproc="l2")
    timed = np.zeros(100, "float32")
    f.time_evaluator("add", remote.cpu(0), number=1)(a, b, timed)
    np.testing.assert_array_equal(timed, c.numpy())


def test_a_session_has_files_modules_and_times(library: Path) -> None:
    with rpc.Server(port=0) as server, rpc.connect("127.0.0.1", server.port) as remote:
        check_sum(remote, library)
        remote.upload(b"some bytes", "notes.bin")
        assert remote.download("notes.bin") == b"some bytes"
        remote.remove("notes.bin")
        with pytest.raises(WorkerRaised, match=r"the session has no file 'notes.bin'; upload it first"):
            remote.download("notes.bin")
        for name in ("../escape", "/etc/passwd", "..", ""):
            with pytest.raises(WorkerRaised, match="is not a valid file name in a session"):
                remote.upload(b"x", name)
        with pytest.raises(InputError, match="uploaded bytes need a name"):
            remote.upload(b"x")
        f = remote.load_module("add.so")
        with pytest.raises(InputError, match="the module has no function 'sub'; it has add"):
            f["sub"]
        with pytest.raises(WorkerRaised, match="add takes 3 arguments and was given 1"):
            f(np.zeros(3, "float32"))
        remote.restart()
        with pytest.raises(WorkerRaised, match="the session has no such module"):
            f(np.zeros(3, "float32"), np.zeros(3, "float32"), np.zeros(3, "float32"))
        with pytest.raises(RPCError, match="a session cannot call 'os:system'"):
            remote.call("os:system", {})


def test_a_local_session_is_the_same_without_a_network(library: Path) -> None:
    with rpc.LocalSession() as remote:
        check_sum(remote, library)


@pytest.mark.slow
def test_what_crashes_or_hangs_ends_its_process_and_not_the_server() -> None:
    with LocalBuilder(n_parallel=1) as builder:
        built = builder.build([planted("segfault", 0, False), planted("endless run", 0, False)], ".so")
    with rpc.Server(port=0) as server, rpc.connect("127.0.0.1", server.port) as remote:
        for one, kind, text in (
            (built[0], WorkerCrashed, "SIGSEGV"), (built[1], WorkerTimedOut, "no answer within 0.5 s")
        ):
            assert one.image is not None
            remote.upload(one.image.library, "code.so")
            f = remote.load_module("code.so")
            with pytest.raises(kind, match=text):
                remote.call(
                    "tilewright.runtime.rpc.service:call", f._arguments("double", [np.zeros(64, "float32")] * 2)[0],
                    [bytes(256)] * 2, 0.5
                )


def test_who_does_not_know_the_secret_is_refused(library: Path) -> None:
    with rpc.Server(port=0) as server:
        with pytest.raises(RPCError, match="the secrets differ"):
            rpc.connect("127.0.0.1", server.port, secret="another secret of the tests")
        with socket.create_connection(("127.0.0.1", server.port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2)
            stranger.settimeout(10)
            while stranger.recv(4096):
                pass
        with socket.create_connection(("127.0.0.1", server.port)) as stranger:
            stranger.sendall(b"TWM1" + b"\xff" * 12)
            stranger.settimeout(10)
            while stranger.recv(4096):
                pass
        with rpc.connect("127.0.0.1", server.port) as remote:
            check_sum(remote, library)


def test_a_server_that_does_not_know_the_secret_is_refused() -> None:
    def pretend(link: socket.socket) -> None:
        peer = Connection(link.accept()[0])
        peer.send({"tilewright-rpc": 1, "nonce": "0", "role": "server"})
        peer.receive()
        peer.send({"proof": "0" * 64})
        peer.close()

    with socket.create_server(("127.0.0.1", 0)) as link:
        thread = threading.Thread(target=pretend, args=(link,), daemon=True)
        thread.start()
        with pytest.raises(RPCError, match="the other side does not know the secret"):
            rpc.connect("127.0.0.1", link.getsockname()[1])
        thread.join(10)


def test_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(RPCError, match="has 5 characters, but needs at least 16"):
        shared_secret("short")
    monkeypatch.delenv("TILEWRIGHT_RPC_SECRET")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    made = shared_secret()
    assert len(made) == 64 and shared_secret() == made and stat.S_IMODE(secret_file().stat().st_mode) == 0o600
    secret_file().chmod(0o644)
    with pytest.raises(RPCError, match="others can read the secret; `chmod 600"):
        shared_secret()
    monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/nowhere")
    with pytest.raises(RPCError, match="the secret cannot be read or made"):
        shared_secret()


def test_a_session_ends_when_its_time_is_over() -> None:
    with rpc.Server(port=0) as server, rpc.connect("127.0.0.1", server.port, session_timeout=0.3) as remote:
        with pytest.raises((RPCError, ConnectionError), match=r"the session exceeded its (time )?limit|closed|gone"):
            for _ in range(100):
                remote.call("tilewright.runtime.rpc.service:about", {})
                time.sleep(0.05)
        with rpc.connect("127.0.0.1", server.port) as other:
            assert other.machine == remote.machine


def test_one_session_at_a_time() -> None:
    with rpc.Server(port=0) as server:
        with rpc.connect("127.0.0.1", server.port), pytest.raises(
            RPCError, match="the server is busy with another session"
        ):
            rpc.connect("127.0.0.1", server.port, patience=0.1)
        rpc.connect("127.0.0.1", server.port).close()
        with pytest.raises(RPCError, match="this server has the key '', but 'board' was requested"):
            rpc.connect("127.0.0.1", server.port, key="board")
        with rpc.connect_tracker("127.0.0.1", server.port) as wrong, pytest.raises(
            RPCError, match="a server accepts the role 'session', not 'client'"
        ):
            wrong.summary()


@pytest.mark.slow
def test_the_tracker_hands_out_servers_by_key(tracker: rpc.Tracker, library: Path) -> None:
    address = ("127.0.0.1", tracker.port)
    with rpc.Server(port=0, key="board", tracker_addr=address) as server:
        client = rpc.connect_tracker(*address)
        until(lambda: client.summary()["queue_info"].get("board") == {"free": 1, "pending": 0})
        assert client.summary()["server_info"] == [{"key": "server:board", "addr": ["127.0.0.1", server.port]}]
        with client.request("board", session_timeout=60) as remote:
            check_sum(remote, library)
            assert client.summary()["queue_info"]["board"]["free"] == 0
            with pytest.raises(RPCError, match=r"no server 'board' was free within 0.1 s; there are: board"):
                client.request("board", patience=0.1)
            with pytest.raises(RPCError, match="given to another client, or its offer has lapsed"):
                rpc.connect("127.0.0.1", server.port, key="board")
        until(lambda: client.summary()["queue_info"]["board"]["free"] == 1)
        text = client.text_summary()
        assert f"127.0.0.1:{server.port}  server:board" in text and "board  1      1     0" in text
        with pytest.raises(RPCError, match=r"no server 'desk' was free within 0.1 s; there are: board"):
            client.request("desk", patience=0.1)
    until(lambda: client.summary() == {"queue_info": {"board": {"free": 0, "pending": 0}}, "server_info": []})
    client.close()


def test_the_most_urgent_request_is_next_and_who_leaves_is_forgotten(tracker: rpc.Tracker) -> None:
    address = ("127.0.0.1", tracker.port)
    order: list[int] = []

    def use(priority: int) -> None:
        client = rpc.connect_tracker(*address)
        with client.request("board", priority):
            order.append(priority)
        client.close()

    def waits(count: int) -> bool:
        return bool(tracker.summary()["queue_info"]["board"]["pending"] == count)

    watcher = rpc.connect_tracker(*address)
    with rpc.Server(port=0, key="board", tracker_addr=address):
        until(lambda: watcher.summary()["queue_info"].get("board", {}).get("free"))
        with watcher.request("board"):
            threads = [threading.Thread(target=use, args=(p,), daemon=True) for p in (1, 3, 2)]
            for n, t in enumerate(threads):
                t.start()
                until(partial(waits, n + 1))
            leaver = dial(*address, shared_secret(), {"role": "client"})
            leaver.send({"request": "board", "priority": 9, "timeout": 60})
            until(lambda: tracker.summary()["queue_info"]["board"]["pending"] == 4)
            leaver.close()
            until(lambda: tracker.summary()["queue_info"]["board"]["pending"] == 3)
        for t in threads:
            t.join(60)
        assert order == [3, 2, 1]
    watcher.close()


def test_a_client_that_never_comes_does_not_keep_the_server(
    tracker: rpc.Tracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.runtime.rpc.offer._UNCLAIMED_SECONDS", 0.2)
    monkeypatch.setattr("tilewright.runtime.rpc.offer._HEARTBEAT", 0.1)
    address = ("127.0.0.1", tracker.port)
    with rpc.Server(port=0, key="board", tracker_addr=address):
        leaver = dial(*address, shared_secret(), {"role": "client"})
        first = leaver.ask({"request": "board", "priority": 1, "timeout": 20})
        second = leaver.ask({"request": "board", "priority": 1, "timeout": 20})
        assert first["token"] != second["token"] and first["port"] == second["port"]
        leaver.close()


@pytest.mark.slow
def test_the_proxy_joins_clients_to_servers(tracker: rpc.Tracker, library: Path) -> None:
    proxy = rpc.Proxy(port=0)
    address = ("127.0.0.1", proxy.port)
    try:
        with rpc.Server(*address, key="hidden", is_proxy=True):
            for _ in range(2):
                with rpc.connect(*address, key="hidden") as remote:
                    check_sum(remote, library)
            with pytest.raises(RPCError, match="no server 'other' waits at the proxy"):
                rpc.connect(*address, key="other", patience=0.1)
        with rpc.Server(*address, key="both", is_proxy=True, tracker_addr=("127.0.0.1", tracker.port)):
            client = rpc.connect_tracker("127.0.0.1", tracker.port)
            for _ in range(2):
                with client.request("both", patience=20) as remote:
                    check_sum(remote, library)
            client.close()
    finally:
        proxy.close()


def test_registered_functions_are_called_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "board_functions.py").write_text(textwrap.dedent("""
        import tilewright as tvm

        @tvm.register_func("board.double")
        def double(x):
            x[:] = x.numpy() * 2
            return [x, {"float32": 1.5}[x.dtype], None]

        @tvm.register_func("board.machine")
        def machine(name):
            return object()
        """))
    monkeypatch.syspath_prepend(tmp_path)
    with rpc.Server(port=0, modules=["board_functions"]) as server, rpc.connect("127.0.0.1", server.port) as remote:
        echo = remote.get_function("testing.echo")
        assert [echo(v, 2) for v in (1, 2.5, "text", None, [1, "x"])] == [1, 2.5, "text", None, [1, "x"]]
        assert echo(bytearray(b"\x00\xff")) == bytearray(b"\x00\xff")
        x = np.arange(6, dtype="float32").reshape(2, 3)
        np.testing.assert_array_equal(echo(x).numpy(), x)
        twice, number, nothing = remote.get_function("board.double")(x)
        np.testing.assert_array_equal(x, [[0, 2, 4], [6, 8, 10]])
        np.testing.assert_array_equal(twice.numpy(), x)
        assert (number, nothing) == (1.5, None)
        adds = remote.get_function("rpc.test.add_to_lhs")(10)
        assert adds(12) == 22 and echo(adds)(1) == 11 and repr(adds).startswith("RemoteFunction(0 on ")
        with pytest.raises(WorkerRaised, match=r"there is no registered function 'board\.triple'"):
            remote.get_function("board.triple")
        with pytest.raises(WorkerRaised, match=r"ValueError: abc"):
            remote.get_function("rpc.test.except")("abc")
        with pytest.raises(WorkerRaised, match="of object cannot be sent between machines"):
            remote.get_function("board.machine")("a")
        with pytest.raises(InputError, match="is a function of this machine and cannot be called on the device"):
            echo(len)
        remote.restart()
        with pytest.raises(WorkerRaised, match="the session has no such function; its process was replaced"):
            adds(1)
    with rpc.LocalSession() as local:
        assert local.get_function("rpc.test.strcat")("abc", 11) == "abc:11"
        with pytest.raises(InputError, match="a function of another session cannot be an argument"):
            local.get_function("testing.echo")(echo)


def test_a_server_connects_on_to_another(library: Path, caplog: pytest.LogCaptureFixture) -> None:
    with rpc.Server(port=0, key="near") as near, rpc.Server(port=0, key="far") as far:
        way = ["rpc.Connect", "127.0.0.1", far.port, "far", False]
        with caplog.at_level("INFO", "tilewright.rpc"), rpc.connect(
            "127.0.0.1", near.port, "near", session_constructor_args=way, enable_logging=True
        ) as remote:
            check_sum(remote, library)
        assert "call load with {'name': 'add.so'} and 0 pieces" in caplog.messages
        with pytest.raises(RPCError, match="this server has the key 'far', but 'x' was requested"):
            rpc.connect("127.0.0.1", near.port, "near", session_constructor_args=[*way[:3], "x"])
        with pytest.raises(RPCError, match=r"the server cannot connect to 127\.0\.0\.1:1:"):
            rpc.connect("127.0.0.1", near.port, "near", session_constructor_args=["rpc.Connect", "127.0.0.1", 1])
        with pytest.raises(RPCError, match=r'is made by \["rpc\.Connect", url, port, key, False\], not by'):
            rpc.connect("127.0.0.1", near.port, "near", session_constructor_args=["rpc.Other"])


def test_a_session_beyond_its_limit_has_an_error_of_its_own() -> None:
    with rpc.Server(port=0) as server, rpc.connect("127.0.0.1", server.port, session_timeout=0.3) as remote:
        time.sleep(0.6)
        with pytest.raises(RPCSessionTimeoutError, match="the session exceeded its"):
            remote.upload(b"x", "x")


@pytest.mark.slow
def test_a_proxy_offers_servers_to_a_tracker(tracker: rpc.Tracker, library: Path) -> None:
    address = ("127.0.0.1", tracker.port)
    proxy = rpc.Proxy(port=0, tracker_addr=address)
    try:
        with rpc.Server("127.0.0.1", proxy.port, key="board", is_proxy=True), rpc.connect_tracker(*address) as client:
            for _ in range(2):
                with client.request("board", patience=20) as remote:
                    check_sum(remote, library)
            with pytest.raises(RPCError, match="no server 'board' waits at the proxy"):
                rpc.connect("127.0.0.1", proxy.port, key="board", patience=0.1)
    finally:
        proxy.close()


def test_the_proxy_refuses_strangers() -> None:
    proxy = rpc.Proxy(port=0)
    address = ("127.0.0.1", proxy.port)
    try:
        with pytest.raises(RPCError, match="the secrets differ"):
            rpc.connect("127.0.0.1", proxy.port, key="hidden", secret="another secret of the tests")
        with rpc.connect_tracker(*address) as wrong, pytest.raises(
            RPCError, match="a proxy accepts the roles 'server' and 'session', not 'client'"
        ):
            wrong.summary()
    finally:
        proxy.close()


def test_addresses_and_ports() -> None:
    assert parse_address("board.local:9190") == ("board.local", 9190) and parse_address("[::1]:80") == ("::1", 80)
    for text in ("9190", "host:", "host:x", "host:99999"):
        with pytest.raises(RPCError, match="is not an address; write host:port"):
            parse_address(text)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(RPCError, match=rf"no port from {port} to {port} of 127.0.0.1 is free"):
            Listener("127.0.0.1", port, port, b"", {}, lambda c, w: None)
    with pytest.raises(RPCError, match=r"no connection to 127.0.0.1:"):
        rpc.connect("127.0.0.1", port)
    with pytest.raises(RPCError, match="needs a key"):
        rpc.Server(tracker_addr=("127.0.0.1", 1))
    with (
        pytest.warns(MovedModuleWarning, match=r"rpc\.Server\(tracker=address\) is now tracker_addr=address"),
        pytest.raises(RPCError, match="needs a key")
    ):
        rpc.Server(tracker=("127.0.0.1", 1))


def test_runners_refuse_what_makes_no_sense() -> None:
    with pytest.raises(OptionError, match="timeout=0 must be above 0"):
        RPCRunner("board", "127.0.0.1", 9190, timeout=0)


@pytest.mark.slow
def test_without_a_tracker_each_candidate_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with LocalBuilder(n_parallel=1) as builder:
        (result,) = measure(
            [planted("right")], builder, RPCRunner("board", "127.0.0.1", port, patience=0.1),
            Records(tmp_path / "r.json")
        )
    assert result.error_no == MeasureErrorNo.UNKNOWN_ERROR and "no connection to 127.0.0.1" in result.error
    assert not (tmp_path / "r.json").exists()


@pytest.mark.slow
def test_two_servers_of_a_tracker_one_killed_and_no_trial_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = [Program("rpc_tracker", "--port", "0")]
    try:
        host, port = parse_address(programs[0].address)
        programs += [
            Program("rpc_server", "--port", "0", "--key", "board", "--tracker", f"{host}:{port}", "--threads", "1")
            for _ in range(2)
        ]
        client = rpc.connect_tracker(host, port)
        until(lambda: client.summary()["queue_info"].get("board") == {"free": 2, "pending": 0})
        assert query_rpc_tracker.main(["--port", str(port)]) == 0 and "board" in capsys.readouterr().out
        kinds = ["segfault", "wrong answer", "exception", "abort"]
        candidates = [planted("slow build", k) for k in range(16)] + [planted(k) for k in kinds]
        records = Records(tmp_path / "r.json")
        done: list[int] = []

        def finished(k: int, measured: Any) -> None:
            done.append(k)
            if len(done) == 4:
                programs[1].process.kill()

        with LocalBuilder(n_parallel=2) as builder:
            runner = RPCRunner("board", host, port, timeout=5, number=2, repeat=1, cooldown_interval=0.02, patience=30)
            results = measure(candidates, builder, runner, records, finished)
        assert [m.error_no for m in results] == [MeasureErrorNo.NO_ERROR] * 16 + [EXPECTED[k] for k in kinds], results
        assert sorted(done) == list(range(20)) and len((tmp_path / "r.json").read_text().splitlines()) == 20
        until(lambda: client.summary()["queue_info"].get("board") == {"free": 1, "pending": 0}, 40)
        client.close()
    finally:
        for program in programs:
            program.end()


def test_programs_say_what_is_wrong() -> None:
    for options, text in (
        (["--tracker", "nowhere"], "is not an address; write host:port"), (["--tracker", "127.0.0.1:9"], "needs a key")
    ):
        done = subprocess.run([
            sys.executable, "-m", "tilewright.compat.exec.rpc_server", *options
        ], capture_output=True, text=True, timeout=60, check=False,
                              env={**os.environ, "PYTHONPATH": str(HERE.parent / "src")})
        assert done.returncode in (1, 2) and text in done.stderr and "Traceback" not in done.stderr
    assert TRIAL.endswith(":trial")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["server", "tracker", "proxy"])
def test_silent_connections_keep_nobody_out(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_UNPROVEN", 4)
    listening = (
        rpc.Server(port=0) if kind == "server" else rpc.Tracker(port=0) if kind == "tracker" else rpc.Proxy(port=0)
    )
    before = threading.active_count()
    silent = []
    try:
        for _ in range(300):
            silent.append(socket.create_connection(("127.0.0.1", listening.port), 10))
            if len(silent) % 50 == 0:  # a client that knows the secret is still answered
                with pytest.raises(RPCError, match=r"accepts the role|serves servers and clients"):
                    dial("127.0.0.1", listening.port, shared_secret(None), {"role": "nobody"}).answer(10)
        until(lambda: threading.active_count() <= before + 4)
        # the newest may still show that they know it
        assert [s.recv(1 << 14)[:4] for s in silent[-2:]] == [b"TWM1", b"TWM1"]
    finally:
        for one in silent:
            one.close()
        listening.close()


def test_a_silent_connection_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HANDSHAKE_SECONDS", 0.2)
    tracker = rpc.Tracker(port=0)
    try:
        with socket.create_connection(("127.0.0.1", tracker.port), 10) as silent:
            received = b""
            while piece := silent.recv(1 << 14):  # until the tracker closes it
                received += piece
        assert b"no answer in time" in received
        until(lambda: not tracker._listener._open)
    finally:
        tracker.close()


@pytest.mark.slow
def test_a_model_on_a_device_runs_in_a_graph_module(tmp_path: Path) -> None:
    from tilewright import relay
    from tilewright.runtime import graph_executor
    from tilewright.runtime.vm import VirtualMachine

    x = relay.var("x", shape=(2, 3))
    lib = relay.build(tvm.IRModule.from_expr(relay.add(relay.nn.relu(x), relay.const(1.0))), "llvm")
    lib.export_library(tmp_path / "net.so")
    with rpc.LocalSession() as remote:
        remote.upload(tmp_path / "net.so")
        loaded, dev = remote.load_module("net.so"), remote.cpu(0)
        assert repr(dev) == f"remote[{remote.number}]:cpu(0)" and tvm.nd.array(np.ones(3), dev).device is dev
        module = graph_executor.GraphModule(loaded["default"](dev))
        module.set_input("x", np.array([[-1, 0, 1], [2, 3, 4]], np.float32))
        module.run()
        np.testing.assert_array_equal(module.get_output(0).numpy(), [[1, 1, 2], [3, 4, 5]])
        assert len(module.benchmark(dev, repeat=2, number=1).results) == 2
        machine = VirtualMachine(loaded, dev)
        found = machine.invoke("main", np.full((2, 3), 2, np.float32))
        np.testing.assert_array_equal(found.numpy(), np.full((2, 3), 3))
        out = tvm.nd.array(np.zeros((2, 3), "float32"))
        machine.invoke_with_outputs("main", input_args={"x": np.ones((2, 3), np.float32)}, output_args=[out])
        np.testing.assert_array_equal(out.numpy(), np.full((2, 3), 2))
        assert machine.benchmark(dev, np.ones((2, 3), np.float32), repeat=2, number=1).mean > 0
        with pytest.raises(InputError, match="'main' lacks the inputs x"):
            VirtualMachine(loaded, dev).invoke("main")
        assert module.module.time_evaluator("run", dev, number=1)().mean > 0 and "net.so" in repr(loaded)
        with pytest.raises(InputError, match=r"there is no function 'debug_create' of the model 'net\.so'"):
            loaded["debug_create"]
        with pytest.raises(InputError, match="timed without pauses"):
            module.benchmark(dev, repeat=1, number=1, cooldown_interval_ms=5)
