"""Tuning and running elsewhere: what the options of the commands say, devices behind a tracker, boards by ssh, records
instead of devices."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from planted import EXPECTED, planted
from small_models import cnn
from tilewright.base.errors import OptionError, RPCError, WorkerError
from tilewright.driver import tvmc as functions
from tilewright.driver.main import main
from tilewright.driver.measuring import MeasuringOptions
from tilewright.driver.tvmc.main import main as tvmc
from tilewright.runtime import rpc
from tilewright.search.boards import SSHRunner, board_build
from tilewright.search.cluster import ClusterBuilder, ClusterRunner
from tilewright.search.local import LocalBuilder
from tilewright.search.measure import MeasureErrorNo, measure
from tilewright.search.ssh import SSHConnection

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
needs_sshd = pytest.mark.skipif(
    not Path(SSHD).exists() or not shutil.which("ssh"), reason="needs OpenSSH's server and client"
)


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_RPC_SECRET", "the secret of these tests")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "cnn.onnx"
    path.write_bytes(cnn().SerializeToString())
    return path


@pytest.fixture
def device() -> Iterator[str]:
    """A tracker with one device of the key `board`."""
    with closing(rpc.Tracker(port=0)) as tracker, rpc.Server(
        port=0, key="board", tracker_addr=("127.0.0.1", tracker.port), threads=1
    ):
        yield f"127.0.0.1:{tracker.port}"


# ---- options
@pytest.mark.parametrize(("options", "why"), [
    ({"cluster": "tcp://a:1", "ssh": "b"}, "--cluster and --ssh are different places"),
    ({"worker_tag": "board"}, "--worker-tag chooses workers of a cluster"),
    ({"tracker": "a:9190"}, "give both HOST:PORT of the tracker and --rpc-key"),
    ({"rpc_key": "board"}, "give both"),
    ({"tracker": "a", "rpc_key": "board"}, "'a' is not the address of a tracker; write HOST:PORT"),
    ({"ssh_config": Path("c")}, "--ssh-config is for a board"),
])
def test_options_that_do_not_go_together(options: dict[str, object], why: str) -> None:
    with pytest.raises(OptionError, match=why):
        MeasuringOptions(**options)  # type: ignore[arg-type]


def test_threads_of_devices_are_their_own() -> None:
    place = MeasuringOptions(tracker="127.0.0.1:1", rpc_key="board")
    assert place.is_elsewhere and not MeasuringOptions().is_elsewhere
    with pytest.raises(OptionError, match="set on its server"):
        place.runner(threads=2)


def test_a_cluster_is_asked_for_the_workers_of_a_tag() -> None:
    pytest.importorskip("distributed")
    place = MeasuringOptions(cluster="tcp://127.0.0.1:1", worker_tag="board")
    builder, runner = place.builder(), place.runner()
    assert isinstance(builder, ClusterBuilder) and isinstance(runner, ClusterRunner)
    assert (builder._address, builder._workers, builder._resources) == ("tcp://127.0.0.1:1", None, None)
    assert (runner._address, runner._workers, runner._resources) == ("tcp://127.0.0.1:1", None, {"board": 1})


# ---- behind a tracker
@pytest.mark.slow
def test_a_package_runs_behind_a_tracker(
    model: Path, tmp_path: Path, device: str, capfd: pytest.CaptureFixture[str]
) -> None:
    package, answers = tmp_path / "m.tar", tmp_path / "y.npz"
    assert tvmc(["compile", str(model), "--target", "llvm", "-o", str(package)]) == 0
    x, here = np.random.default_rng(0).standard_normal((1, 3, 16, 16), np.float32), tvm.compile(model)
    arrays: dict[str, Any] = {here.inputs[0].name: x}
    np.savez(tmp_path / "x.npz", **arrays)
    remote = ["--rpc-tracker", device, "--rpc-key", "board"]
    assert tvmc(
        ["run", str(package), "-i", str(tmp_path / "x.npz"), "-o", str(answers), "--print-time", "--profile", *remote]
    ) == 0
    said = capfd.readouterr().out
    assert "mean" in said and "conv2d" in said
    np.testing.assert_allclose(np.load(answers)["output_0"], here(x), rtol=1e-4, atol=1e-5)
    assert tvmc(["run", str(package), "--rpc-key", "board"]) == 4
    assert "give both" in capfd.readouterr().err
    open_size, library = tmp_path / "open.onnx", tmp_path / "open.so"
    open_size.write_bytes(cnn("n").SerializeToString())
    tvm.compile(open_size, shapes={here.inputs[0].name: ("1..4", 3, 16, 16)}).save(library)
    with rpc.LocalSession() as session, pytest.raises(
        WorkerError, match="do not run on devices; compile for fixed shapes"
    ):
        rpc.RemoteModel(session, "open.so", library.read_bytes())


@pytest.mark.slow
def test_a_package_runs_on_a_server(model: Path, tmp_path: Path) -> None:
    package = functions.compile(functions.load(model), "llvm", package_path=tmp_path / "p.tar")
    here = functions.run(package, fill_mode="ones")
    with rpc.Server(port=0) as server:
        there = functions.run(package, fill_mode="ones", hostname=server.host, port=server.port)
    np.testing.assert_allclose(there.outputs["output_0"], here.outputs["output_0"], rtol=1e-6)


@pytest.mark.slow
def test_kernels_are_tuned_behind_a_tracker(model: Path, tmp_path: Path, device: str) -> None:
    trials = tmp_path / "trials.json"
    options = ["--trials", "3", "--number", "1", "--tuner", "random", "--rpc-tracker", device, "--rpc-key", "board"]
    assert tvmc(["tune", str(model), "--target", "llvm", "-o", str(trials), *options]) == 0
    assert [json.loads(row)["result"][1] for row in trials.read_text().splitlines()] == [0, 0, 0]


@pytest.mark.slow
def test_a_model_is_tuned_behind_a_tracker(
    model: Path, tmp_path: Path, device: str, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "records.json"
    assert main(
        [
            "tune", str(model), "-o", str(out), "--minutes", "1", "--trials", "4", "--tuner", "random", "--tracker",
            device, "--rpc-key", "board"
        ]
    ) == 0
    said = capfd.readouterr().out
    assert "4 trials, 0 of all failed" in said and "The model as a whole was not run there." in said
    assert all(json.loads(row)["result"][1] == 0 for row in out.read_text().splitlines())
    assert main(["compile", str(model), "-o", str(tmp_path / "m.so"), "--tuning-records", str(out)]) == 0


# ---- by ssh
@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An ssh server on loopback with keys of its own, which serves one connection; the client's options, for
    `board`."""
    folder = tmp_path_factory.mktemp("ssh")
    folder.chmod(0o700)
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True,
            stdin=subprocess.DEVNULL, timeout=60
        )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # which sshd asks for where it gives its privileges up
    server = folder / "sshd_config"
    server.write_text(
        f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM "
        "no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nLogLevel ERROR\n",
    )
    config = folder / "config"
    config.write_text(
        f"Host board\n  ProxyCommand {SSHD} -i -f {server}\n  User {getpass.getuser()}\n  IdentityFile {folder}/user\n "
        " IdentitiesOnly yes\n"
        "  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
    )
    yield config


@pytest.mark.slow
@needs_sshd
def test_a_board_runs_candidates_and_their_faults(board: Path) -> None:
    kinds = ["right", "wrong answer", "wrote input", "segfault", "endless run"]
    with LocalBuilder(timeout=120, n_parallel=1, build_func=board_build) as builder, SSHRunner(
        "board", timeout=1, number=2, repeat=1, cooldown_interval=0, noise=1e9, config=board,
    ) as runner:
        results = measure([planted(k) for k in kinds], builder, runner)
        assert [m.error_no for m in results] == [MeasureErrorNo.NO_ERROR, *(EXPECTED[k] for k in kinds[1:])], results
        assert results[0].cost > 0 and "cores" in results[0].machine
        folder = Path(runner._folder)
        assert (folder / "data").exists()
    assert not folder.exists()


@needs_sshd
@pytest.mark.slow
def test_a_model_is_tuned_on_a_board(
    model: Path, board: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "records.json"
    command = [
        "tune", str(model), "-o", str(out), "--minutes", "1", "--trials", "3", "--tuner", "random", "--ssh", "board",
        "--ssh-config", str(board)
    ]
    assert main(command) == 0
    said = capfd.readouterr().out
    assert "3 trials, 0 of all failed" in said and "each surely faster where it was measured" in said
    assert main(["compile", str(model), "-o", str(tmp_path / "m.so"), "--tuning-records", str(out)]) == 0


@needs_sshd
@pytest.mark.slow
@pytest.mark.skipif(
    not shutil.which("qemu-aarch64") or not shutil.which("aarch64-linux-gnu-gcc"),
    reason="needs an emulator of aarch64, and its compiler"
)
def test_a_board_of_another_processor(board: Path) -> None:
    text = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a53"
    with LocalBuilder(timeout=120, n_parallel=1, build_func=board_build) as builder, SSHRunner(
        "board", timeout=30, number=1, repeat=1, cooldown_interval=0, noise=1e9, config=board,
        launcher=["qemu-aarch64"],
    ) as runner:
        results = measure([replace(planted(k), target=text) for k in ("right", "wrong answer")], builder, runner)
    assert [m.error_no for m in results] == [MeasureErrorNo.NO_ERROR, MeasureErrorNo.WRONG_ANSWER], results


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("ssh"), reason="needs OpenSSH's client")
def test_boards_that_cannot_be_had(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is not an ssh destination"):
        SSHConnection("-oProxyCommand=true")
    config = tmp_path / "config"
    config.write_text(f"Host board\n  ProxyCommand {sys.executable} -c pass\n")
    with pytest.raises(
        RPCError, match=r"(?s)ssh does not reach 'board': .*check that `ssh board true` works without a password"
    ):
        SSHConnection("board", config)
    with pytest.raises(OptionError, match="timeout=0 must be above 0"):
        SSHRunner("board", timeout=0)
    with LocalBuilder(timeout=120, n_parallel=1) as builder, SSHRunner(
        "board", cooldown_interval=0, config=config
    ) as runner:
        (result,) = measure([planted("right")], builder, runner)
    assert result.error_no == MeasureErrorNo.UNKNOWN_ERROR and "does not reach" in result.error
