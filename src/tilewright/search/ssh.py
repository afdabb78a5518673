"""A connection to a board by OpenSSH: commands and files, over one connection that ends with this process."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tilewright.base.errors import OptionError, RPCError

_CONNECT_SECONDS: Final = 30.0
_UNREACHED: Final = 255
"""The exit status of ssh itself."""
_ALIVE: Final = b"alive\n"


class SSHConnection:
    """Commands on a board: `with SSHConnection("pi@192.168.1.17") as board: status, said, errors = board.run("uname -m")`.

    One ssh process holds the connection, others go through it. It runs `cat` on the board, whose input is a pipe from this process: when that closes,
    however this process ends, the connection does.
    """

    def __init__(self, destination: str, config: str | Path | None = None) -> None:
        """`destination` is what ssh takes, `user@host` or `ssh://user@host:port`; `config` a file of ssh's options in the place of the user's.

        Nothing is asked at a terminal: keys have to be there. Raises `OptionError` without ssh, `RPCError` where the board is not reached.
        """
        if not destination or destination.startswith("-"):
            raise OptionError(f"'{destination}' is no destination for ssh; give user@host, or ssh://user@host:port", code="TW1211")
        program = shutil.which("ssh")
        if program is None:
            raise OptionError("there is no ssh here; install OpenSSH's client", code="TW0507")
        self.destination = destination
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-ssh-")
        options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECT_SECONDS:.0f}", "-o", "ServerAliveInterval=10", *(["-F", str(config)] if config else [])]
        self._command = [program, *options, "-S", str(Path(self._folder.name) / "s")]
        self._master = subprocess.Popen(
            [*self._command, "-o", "ControlMaster=yes", "-o", "ControlPersist=no", "-T", destination, "echo alive; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )
        assert self._master.stdout is not None and self._master.stderr is not None
        if self._master.stdout.readline() != _ALIVE:  # ssh gives up by itself behind ConnectTimeout
            errors = self._master.stderr.read().decode(errors="replace").strip()
            self.close()
            raise RPCError(f"ssh does not reach '{destination}': {errors or 'it said nothing'}; check that `ssh {destination} true` works without a password", code="TW1201")

    def run(self, command: str, data: bytes = b"", timeout: float = 60.0) -> tuple[int, bytes, str]:
        """The status, standard output and errors of a command of the board's shell, which reads `data`. A signal n gives the status 128 + n.

        Raises `RPCError` where the board is not reached any more, and `TimeoutError`.
        """
        full = [*self._command, "-o", "ControlMaster=no", "-T", self.destination, f"{command}; exit $?"]
        try:
            done = subprocess.run(full, input=data, capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"'{self.destination}' did not answer within {timeout:g} s") from error
        errors = done.stderr.decode(errors="replace").strip()
        if (done.returncode == _UNREACHED and not self._is_alive()) or self._master.poll() is not None:
            raise RPCError(f"the connection to '{self.destination}' broke: {errors[-500:] or 'ssh said nothing'}", code="TW1201")
        return done.returncode, done.stdout, errors

    def _is_alive(self) -> bool:
        """Whether the connection stands: programs may end with ssh's own status."""
        asked = subprocess.run([*self._command, "-O", "check", self.destination], capture_output=True, stdin=subprocess.DEVNULL, timeout=_CONNECT_SECONDS, check=False)
        return asked.returncode == 0

    def checked(self, command: str, data: bytes = b"", timeout: float = 60.0) -> bytes:
        """The output of a command that has to succeed. Raises `RPCError`, also where it takes too long."""
        try:
            status, said, errors = self.run(command, data, timeout)
        except TimeoutError as error:
            raise RPCError(str(error), code="TW1210") from error
        if status:
            raise RPCError(f"'{command[:80]}' failed on '{self.destination}' with status {status}: {errors[-500:]}", code="TW1203")
        return said

    def write(self, path: str, data: bytes) -> None:
        """Make a file of the board that can be run. Raises `RPCError`."""
        self.checked(f"cat > {shlex.quote(path)} && chmod 700 {shlex.quote(path)}", data)

    def close(self) -> None:
        """End the connection."""
        self._master.terminate()
        self._master.wait()
        for stream in (self._master.stdin, self._master.stdout, self._master.stderr):
            if stream is not None:
                stream.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def words(arguments: Sequence[object]) -> str:
    """Arguments as the board's shell reads them."""
    return " ".join(shlex.quote(str(a)) for a in arguments)
