"""Commands and files on a board over one OpenSSH connection, which ends with this process."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tilewright.base.closing import Closeable
from tilewright.base.errors import OptionError, RPCError

_CONNECT_SECONDS: Final = 30.0
_UNREACHED: Final = 255
"""The exit status of ssh itself."""
_ALIVE: Final = b"alive\n"


class SSHConnection(Closeable):
    """Commands on a board: `with SSHConnection("pi@192.168.1.17") as board: status, said, errors = board.run("uname
    -m")`.

    One ssh process holds the connection, the others share it. It runs `cat` on the board, whose input is a pipe from
    this process: the connection ends when the pipe closes, however this process ends.
    """

    def __init__(self, destination: str, config: str | Path | None = None) -> None:
        """`destination` is `user@host` or `ssh://user@host:port`; `config` replaces the user's ssh configuration file.

        The board must accept keys, because ssh cannot ask for passwords. Raises `OptionError` without ssh, `RPCError`
        if the board is not reached.
        """
        if not destination or destination.startswith("-"):
            raise OptionError(
                f"'{destination}' is not an ssh destination; give user@host, or ssh://user@host:port", code="TW1211")
        program = shutil.which("ssh")
        if program is None:
            raise OptionError("ssh is not installed; install OpenSSH's client", code="TW0507")
        self.destination = destination
        self._folder = tempfile.TemporaryDirectory(prefix="tilewright-ssh-")
        options = ["BatchMode=yes", f"ConnectTimeout={_CONNECT_SECONDS:.0f}", "ServerAliveInterval=10"]
        self._command = [
            program, *(word for o in options for word in ("-o", o)), *(["-F", str(config)] if config else []),
            "-S", str(Path(self._folder.name) / "s"),
        ]
        self._master = subprocess.Popen(
            [
                *self._command, "-o", "ControlMaster=yes", "-o", "ControlPersist=no", "-T", destination,
                "echo alive; exec cat"
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        assert self._master.stdout is not None and self._master.stderr is not None
        if self._master.stdout.readline() != _ALIVE:  # ssh ends by itself after ConnectTimeout
            errors = self._master.stderr.read().decode(errors="replace").strip()
            self.close()
            raise RPCError(
                f"ssh does not reach '{destination}': {errors or 'it said nothing'}; check that `ssh {destination} "
                "true` works without a password", code="TW1201")

    def run(self, command: str, data: bytes = b"", timeout: float = 60.0) -> tuple[int, bytes, str]:
        """Run a command in the board's shell with `data` as input; return its status, standard output and errors.

        A signal n gives the status 128 + n. Raises `TimeoutError`, and `RPCError` if the board is no longer reachable.
        """
        full = [*self._command, "-o", "ControlMaster=no", "-T", self.destination, f"{command}; exit $?"]
        try:
            done = subprocess.run(full, input=data, capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"'{self.destination}' did not answer within {timeout:g} s") from error
        errors = done.stderr.decode(errors="replace").strip()
        if (done.returncode == _UNREACHED and not self._is_alive()) or self._master.poll() is not None:
            raise RPCError(
                f"the connection to '{self.destination}' broke: {errors[-500:] or 'ssh said nothing'}", code="TW1201")
        return done.returncode, done.stdout, errors

    def _is_alive(self) -> bool:
        """Return whether the connection is alive; programs may also end with ssh's own error status."""
        command = [*self._command, "-O", "check", self.destination]
        asked = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_CONNECT_SECONDS, check=False)
        return asked.returncode == 0

    def checked(self, command: str, data: bytes = b"", timeout: float = 60.0) -> bytes:
        """Return the output of a command that must succeed. Raises `RPCError`, also on a timeout."""
        try:
            status, said, errors = self.run(command, data, timeout)
        except TimeoutError as error:
            raise RPCError(str(error), code="TW1210") from error
        if status:
            raise RPCError(
                f"'{command[:80]}' failed on '{self.destination}' with status {status}: {errors[-500:]}", code="TW1203")
        return said

    def write(self, path: str, data: bytes) -> None:
        """Write an executable file on the board. Raises `RPCError` if that fails."""
        self.checked(f"cat > {shlex.quote(path)} && chmod 700 {shlex.quote(path)}", data)

    def close(self) -> None:
        """End the connection."""
        self._master.terminate()
        self._master.wait()
        for stream in (self._master.stdin, self._master.stdout, self._master.stderr):
            if stream is not None:
                stream.close()
        self._folder.cleanup()


class ThisMachine:
    """The methods of `SSHConnection` for the shell of this machine."""

    def run(self, command: str, data: bytes = b"", timeout: float = 60.0) -> tuple[int, bytes, str]:
        """Run a command with `data` as input; return its status, standard output and errors. Raises `TimeoutError`."""
        try:
            done = subprocess.run(
                ["sh", "-c", f"{command}; exit $?"], input=data, capture_output=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"the program did not end within {timeout:g} s") from error
        return done.returncode, done.stdout, done.stderr.decode(errors="replace").strip()

    def checked(self, command: str, data: bytes = b"", timeout: float = 60.0) -> bytes:
        """Return the output of a command that must succeed. Raises `RPCError`, also on a timeout."""
        try:
            status, said, errors = self.run(command, data, timeout)
        except TimeoutError as error:
            raise RPCError(str(error), code="TW1210") from error
        if status:
            raise RPCError(f"'{command[:80]}' failed with status {status}: {errors[-500:]}", code="TW1203")
        return said

    def write(self, path: str, data: bytes) -> None:
        """Write an executable file. Raises `RPCError` if that fails."""
        self.checked(f"cat > {shlex.quote(path)} && chmod 700 {shlex.quote(path)}", data)

    def close(self) -> None:
        """Do nothing: there is no connection."""


def words(arguments: Sequence[object]) -> str:
    """Quote arguments for the board's shell."""
    return " ".join(shlex.quote(str(a)) for a in arguments)
